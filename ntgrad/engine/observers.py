"""Who is told of what the engine does, while it does it: profiles (``engine/profiling``). Nobody is, most of the time: then each
of these places costs a look at an empty list."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.codegen.choose.bound import Bound
from ntgrad.graph.origins import Made


class Planned(NamedTuple):
  """A graph that had no plan. ``structure``: what it has in common with graphs that differ in sizes and numbers alone; ``sizes``:
  of every dimension, those of its inputs first; ``shapes``: of its inputs; ``made``: the lines of its last kernel."""
  structure: Any
  sizes: Sequence[Any]
  numbers: Sequence[Any]
  shapes: Sequence[tuple[int, ...]]
  steps: Sequence[Any]
  made: Made
  seconds: float


class Observer:
  """Sees what it is told, by the thread that does it. ``phase`` is told of each ``counters.phase`` that has ended: its name, when
  it began, its seconds, those in no phase within it, and its thread's ``open_phases``. That is often: it should be no Python."""
  phase: Callable[[tuple[str, float, float, float, list[Any]]], object]

  def asked(self, replay: bool = False) -> None:
    """The user's code asks for values, or calls a captured function that is replayed."""
  def plainly(self, fn: Any, kind: str, why: str) -> None:
    """A function that ntgrad.jit was given runs its own code in place of a replay: why, in a word and in a sentence."""
  def built(self, what: str) -> None:
    """The user's line makes an optimizer, or parameters of a layer."""
  def planned(self, plan: Planned) -> None:
    """A plan has been made."""
  def runs(self, steps: Sequence[Any], made: Sequence[Made]) -> bool:
    """Steps are about to be launched, ``made`` by such lines each; whether they are to be launched one by one, and timed."""
    return False
  def launched(self, spec: ProgramSpec, device: Device, seconds: float, least: Bound, quick: bool = False) -> None:
    """A launch was timed. The spec has numbers for its sizes; ``least`` is its bound; ``quick``: it was built without
    optimisation."""
  def allocated(self, storage: Any) -> None:
    """A Storage has got its memory."""
  def released(self, storage: Any) -> None:
    """A Storage has given its memory back. This may come at any time, from any thread."""
  def written(self, storages: Iterable[tuple[Any, Made]]) -> None:
    """What makes the values that lie in some Storages."""


observers: list[Observer] = []
