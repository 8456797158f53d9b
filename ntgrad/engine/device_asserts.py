"""Checks on the device: a kernel notes where a check failed, and the error is raised where the host next waits for the device.

A kernel with checks has one parameter more, its *notes*: an int64 for each check (or several, of which the greatest counts), 0
while it holds. After a failure the upper 32 bits are the number of the greatest failing element plus one, the lower 32 the value
there: an index (beyond 32 bits the nearest that fits), or what a condition compares.
"""
from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, Iterable, NamedTuple, Sequence
from weakref import WeakValueDictionary

import numpy as np

from ntgrad.codegen.ir import DeviceAssertError, NtgradError, dtypes
from ntgrad.graph.origins import blame_caller

from .buffer import Buffer, Storage
from .counters import phase
from .device import LATE, get_device, waited

WORD_VALUES = 1 << 32   # one more than the greatest number of 32 bits


class Check(NamedTuple):
  """One check of a kernel: what to say where it fails, of ``{value}`` at ``{element}`` of a shape."""
  text: str
  shape: tuple[int, ...] = ()
  kind: str = "i"                                  # the value is an int ("i"), a float32 ("f"), or is not noted ("")
  error: type[NtgradError] = DeviceAssertError

  def said(self, note: int) -> str:
    """The sentence for what was noted."""
    number, low = divmod(note, WORD_VALUES)
    at = f"({', '.join(['?'] * len(self.shape))})"   # more elements than fit the number
    if math.prod(self.shape) < WORD_VALUES // 2: at = f"{tuple(map(int, np.unravel_index(number - 1, self.shape)))}"
    value, = struct.unpack("<f" if self.kind == "f" else "<i", struct.pack("<I", low))
    return self.text.format(value=f"{value:.7g}" if self.kind == "f" else value, element=at)


@dataclass(eq=False)
class Checks:
  """The checks of a kernel on a device: the memory of its notes, and what owns it (an Alias, or a Tensor)."""
  kernel: str
  device: str
  storage: Storage
  checks: Sequence[Check]
  owner: Any = None

  def failed(self) -> list[tuple[type[NtgradError], str]]:
    """An error and a sentence for each check that failed since this was last asked."""
    try:
      with phase("copies"): found = get_device(self.device).copyout(self.storage.raw, self.storage.nbytes).view(np.int64)
    except NtgradError as e:
      blame_caller(e, LATE)
      raise
    if not found.any(): return []
    Buffer(self.device, found.shape, dtypes.int64, self.storage).put(np.zeros_like(found))
    return [(c.error, f"{self.kernel}: {c.said(int(n))}")
            for c, n in zip(self.checks, found.reshape(len(self.checks), -1).max(1)) if n]


_launched: dict[str, dict[Checks, None]] = {}    # by device: what has been launched since the host last waited
_of: WeakValueDictionary[int, Checks] = WeakValueDictionary()   # by their storage's serial; their kernels keep them


def make_checks(kernel: str, device: str, checks: Sequence[Check], each: int = 1) -> tuple[Checks, Buffer]:
  """Memory for a kernel's checks, ``each`` notes for one; none has failed."""
  memory = Buffer(device, (len(checks) * each,), dtypes.int64)
  memory.put(np.zeros(memory.shape, np.int64))
  _of[memory.storage.serial] = out = Checks(kernel, device, memory.storage, checks)
  return out, memory


def checks_in(storages: Iterable[Storage]) -> list[Checks]:
  """The checks that lie in memory which a captured function writes."""
  return [c for s in storages if (c := _of.get(s.serial)) is not None]


def watch(c: Checks) -> None:
  """A kernel with these checks has been launched."""
  _launched.setdefault(c.device, {})[c] = None


def raise_failed(device: str) -> None:
  """Raise what checks found that failed in what was launched on a device."""
  if failed := [f for c in _launched.pop(device, ()) for f in c.failed()]:
    raise failed[0][0]("\n".join(text for _, text in failed))


waited.append(raise_failed)
