"""Where the time and the memory of a program go: ``with ntgrad.profile() as p: ...; print(p)``, and ``python -m ntgrad profile
script.py``. ``watching.py`` sees what happens, ``findings.py`` adds it up, ``advice.py`` says what follows."""
from __future__ import annotations

from html import escape
from json import dumps
from pathlib import Path
from typing import Any

from ntgrad.codegen.ir import MissingFileError
from ntgrad.codegen.ir.paths import usable
from ntgrad.graph import checked
from ntgrad.graph.lock import lock

from .advice import advice
from .exports import data, full_text, side_by_side, trace
from .findings import Findings
from .rows import ROWS, Row, kernel_table
from .watching import Watching


@checked
class Profile:
  """What happens while its ``with`` block lasts: the time of the thread that entered it, and launches of all threads.

  Wall time is divided into the user's Python, building graphs, gradients, scheduling, choosing, rendering and compiling kernels,
  launching, waiting, copies, kernels. Python is divided by samples, 400 a second; the rest is measured. Kernels are timed
  one by one in the first run of a plan or replay, and in few others ("timing kernels"); those in between are taken to be as
  long. It can be entered again, and goes on counting then. Profiles may be nested. ``print`` it, also in the block."""

  def __init__(self) -> None: self._watching, self._entered = Watching(), 0

  def __enter__(self) -> Profile:
    with lock:
      self._entered += 1
      if self._entered == 1: self._watching.enter()
    return self

  def __exit__(self, *_: object) -> None:
    with lock:
      self._entered -= 1
      if self._entered > 0: return
    self._watching.leave()

  def _found(self) -> Findings:
    with lock: return Findings(self._watching)

  @property
  def rows(self) -> list[Row]:
    """A row a kernel and device, what lost most first."""
    return self._found().rows
  @property
  def total(self) -> float:
    """Seconds that all launches took."""
    return sum(r.seconds for r in self.rows)
  @property
  def lost(self) -> float:
    """Seconds that they took beyond their bounds."""
    return sum(r.lost for r in self.rows)
  @property
  def seconds(self) -> dict[str, float]:
    """The wall time by kind: "your Python", "building graphs", .. "kernels", "other"."""
    return self._found().kinds
  @property
  def advice(self) -> list[str]:
    """What follows from the numbers, a sentence each: what takes time or memory, at which line, and what to do."""
    return [a.text for a in advice(self._found())]

  def table(self, most: int = ROWS) -> str:
    """The kernels as text, ``most`` of them and a line for all others, in 120 columns."""
    return kernel_table(self.rows, most)
  def compare(self, other: Profile) -> str:
    """This profile beside another one, as text: time by kind, of a later step where both have steps, and kernels."""
    return side_by_side(self._found(), other._found())
  def data(self) -> dict[str, Any]:
    """All of it as numbers, texts, lists and dicts, as ``json`` takes them. Seconds and bytes."""
    return data(self._found())
  def trace(self, file: str | Path) -> None:
    """Write a trace that https://ui.perfetto.dev and Chrome show. Raises MissingFileError."""
    with usable("trace", file, MissingFileError): Path(file).write_text(dumps(trace(self._found())))

  def __str__(self) -> str: return full_text(self._found())
  def __repr__(self) -> str: return f"<profile of {len(self._watching.rows)} kernels>"
  def _repr_html_(self) -> str: return f"<pre>{escape(str(self))}</pre>"


def profile() -> Profile:
  """Sees where time and memory go in ``with ntgrad.profile() as p: ...``; then ``print(p)``. See :class:`Profile`."""
  return Profile()


__all__ = ["Profile", "Row", "profile"]
