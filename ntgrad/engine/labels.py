"""What kernels are called in all that is said of them: a name each, the same in every line of a run.

A source has the name of its structure, ``r_64_32``, so that equal kernels are one program and one entry of each cache. Another
kernel with that name is called ``r_64_32n1``, the next ``r_64_32n2``. Nothing that is kept on disk knows these labels.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Hashable

from ntgrad.backends.base import ProgramSpec
from ntgrad.codegen.recent import Recent
from ntgrad.lock import lock

MOST = 8192   # names, and kernels, that are remembered


class _Counts(Recent[str, int]):
  """How many kernels have had a name. ``least`` is as many as any name had that was forgotten: so no label is given twice."""
  __slots__ = ("least",)

  def __init__(self, most: int):
    super().__init__(most)
    self.least = 0

  def __setitem__(self, name: str, count: int) -> None:
    if len(self) >= self.most: self.least = max(self.least, *self.older.values(), 0)
    super().__setitem__(name, count)


_counts = _Counts(MOST)
_known: Recent[int, str] = Recent(MOST)


def new_label(name: str) -> str:
  """A label for one more kernel called ``name``, which no other has."""
  with lock:
    count = _counts.get(name, _counts.least)
    while (label := f"{name}n{count}" if count else name) in _counts and count: count += 1   # some kernel's own name is like that
    if count: _counts[label] = 1
    _counts[name] = count + 1
    return label


def labelled(spec: ProgramSpec, identity: Hashable) -> ProgramSpec:
  """The spec with its kernel's label: that of the kernel with the same ``identity``, else the one that it was given, else a new
  one."""
  with lock:
    key = hash(identity)
    found = _known.get(key) or spec.given or new_label(spec.name)
    _known[key] = found
  return spec if spec.given == found else replace(spec, given=found)


def reset() -> None:
  """Give labels from the first on again."""
  _counts.clear()
  _known.clear()
  _counts.least = 0


__all__ = ["labelled", "new_label", "reset"]
