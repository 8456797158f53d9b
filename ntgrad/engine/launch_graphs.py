"""Groups recorded launches: a run of kernels that the device takes as one graph is one call. Says what is patched in it."""
from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Hashable, Iterable, Mapping, Sequence

from ntgrad.backends.base import Device, Node, Sizes

from . import memory_plan

_At = Callable[[Any], Any] | None


@dataclass(eq=False, slots=True)
class Launched:
  """A program or a copy, its arguments, and the numbers of its run-time sizes."""
  program: Any
  args: list[Any]
  sizes: Sizes = ()


@dataclass(eq=False, slots=True)
class Slot:
  """An allocation that is another one at every replay, and the arguments that it is, or that (``_At``) are a part of it."""
  raw: Any = None
  args: list[tuple[list[Any], int, _At]] = field(default_factory=list)
  # how to change a graph, launch, argument
  nodes: list[tuple[Callable[[int, int, Any], None], int, int, _At]] = field(default_factory=list)

  def fill(self, raw: Any) -> None:
    """Make the arguments that allocation."""
    if raw is self.raw: return
    self.raw = None   # until all arguments are: an interrupt may come between, and the pool give the same allocation again
    for args, i, at in self.args: args[i] = raw if at is None else at(raw)
    for change, node, i, at in self.nodes: change(node, i, raw if at is None else at(raw))
    self.raw = raw


def one_by_one(steps: Sequence[Launched]) -> None:
  """Launch each step by itself."""
  for s in steps: s.program(s.args, False, s.sizes)


def calls(steps: Sequence[Launched], devices: Sequence[Device | None], accesses: Sequence[memory_plan.MemoryUse],
          slots: Iterable[Slot]) -> tuple[list[Callable[[], None]], dict[int, Callable[[Sizes], None]]]:
  """What launches all steps, in their order: one call for each run of kernels on a device that makes a graph of it; and for each
  step that is in a graph what gives it other sizes there. ``devices`` has None for steps that are no kernels, ``accesses`` what
  each step touches. ``slots`` learn where they are in graphs. All arguments must be there. Raises what ``Device.graph`` does."""
  out: list[Callable[[], None]] = []
  single: list[Launched] = []
  places: dict[int, tuple[Any, int]] = {}   # a step's arguments, by identity → its graph, and which launch of it
  resize: dict[int, Callable[[Sizes], None]] = {}
  for start, end in runs(devices):
    device, mine, graph = devices[start], steps[start:end], None
    if device is not None:
      graph = device.graph([Node(s.program, s.args, tuple(after), s.sizes) for s, after in zip(
        mine, reduced(memory_plan.dependencies(accesses[start:end])[0]))])
    if graph is None:
      if not single: out.append(partial(one_by_one, single := []))
      single += mine
      continue
    out.append(graph)
    single = []
    for i, s in enumerate(mine):
      places[id(s.args)] = graph, i
      resize[start + i] = partial(graph.resize, i)
  for slot in slots:
    slot.nodes = [(found[0].change, found[1], i, at) for args, i, at in slot.args if (found := places.get(id(args)))]
  return out, resize


def runs(devices: Sequence[Any]) -> list[tuple[int, int]]:
  """The longest stretches of one device, as first and one past the last."""
  starts = [i for i, d in enumerate(devices) if i == 0 or d is not devices[i - 1]]
  return list(zip(starts, [*starts[1:], len(devices)]))


def reduced(after: Sequence[Iterable[int]]) -> list[list[int]]:
  """Of the earlier steps that each must come after, those that do not follow from the others."""
  out: list[list[int]] = []
  behind: list[int] = []   # for each step a bit for it and for every step that it comes after
  for i, earlier in enumerate(after):
    seen, kept = 0, []
    for j in sorted(earlier, reverse=True):
      if seen >> j & 1: continue
      kept.append(j)
      seen |= behind[j]
    out.append(kept[::-1])
    behind.append(seen | 1 << i)
  return out


def pieces(places: Mapping[Any, tuple[Hashable, int, int]]) -> dict[Any, tuple[Hashable, ...]]:
  """Buffers that share memory, cut where any of them begins or ends: two overlap where they have a piece in common. ``places``
  has the memory that a buffer lies in, its first byte and the one past its last."""
  cuts: dict[Hashable, set[int]] = {}
  for home, start, end in places.values(): cuts.setdefault(home, set()).update((start, end))
  order = {home: sorted(c) for home, c in cuts.items()}
  return {k: tuple((home, at) for at in order[home][bisect_left(order[home], start):bisect_left(order[home], end)])
          for k, (home, start, end) in places.items()}
