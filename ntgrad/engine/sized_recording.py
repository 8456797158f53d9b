"""Captures for all values of some sizes: which numbers of a recording are expressions of variables, and what they are for others.

A function is recorded twice, at different values. Numbers in a recording that are Bounds are expressions of the variables, all
others constants. The second recording's expressions must give the first one's numbers, and all else must be the same: a number
that got into a kernel, a loop or a table by another way shows as a difference. The function is then captured for each shape.
"""
from __future__ import annotations

import itertools
from typing import Any, Callable, NamedTuple, Sequence

from ntgrad.codegen.index import dim_text, evaluator
from ntgrad.codegen.ir import Recent, UOp

from .buffer import number_buffer
from .traced_sizes import Trace

_Ints = tuple[int, ...]
_Outline = tuple[list[Any], list[int]]   # of ``outline``
KNOWN = 256   # values of the variables that a capture has its numbers for


class At(NamedTuple):
  """What sizes decide in a capture, for some values of them. Of each launch: its program, the numbers that it takes, where
  arguments begin, the bytes of a copy (0 for kernels). ``nbytes`` of the memory that launches use, by serial number. Of each
  output: the shape of its memory, and its movement. ``counts``: how many random numbers are drawn."""
  programs: tuple[Any, ...]
  sizes: tuple[_Ints, ...]
  offsets: tuple[_Ints, ...]
  copies: _Ints
  nbytes: dict[int, int]
  made: tuple[_Ints, ...]
  movements: tuple[tuple[Any, ...], ...]
  counts: _Ints


def _name(program: Any) -> str:
  return "a copy" if (spec := getattr(program, "spec", None)) is None else spec.label


def outline(launches: Sequence[Any], sizes: dict[int, Any], outputs: Sequence[Any], rng: Sequence[Any],
            label: Callable[[int], Any] = lambda k: None, more: Sequence[Any] = ()) -> _Outline:
  """What does not change with sizes, and the numbers that may, of recorded ``launches`` on ``sizes`` of memory (serial: device,
  bytes), which draw numbers for ``rng``. ``label`` tells what memory is that is not made by the launches, None for such; ``more``
  is what else must be the same."""
  names: dict[int, Any] = {}
  def name(k: int) -> Any:
    if k not in names: names[k] = label(k) or ("new", len(names))
    return names[k]
  structure: list[Any] = [
    ("launch", x.of or x.program, tuple(map(name, x.serials)), tuple(map(name, x.writes)), len(x.offsets), len(x.asked),
     x.sizes if x.of is None else ()) for x in launches]
  numbers: list[int] = [n for x in launches for n in (*x.offsets, *x.asked)]
  for k, (device, nbytes, _) in sizes.items():
    structure.append(("memory", name(k), device))
    known = label(k)
    numbers.append(nbytes if known is None else int(nbytes) * (known[0] != "argument"))   # an argument's is what a call gives
  def left_out(n: int) -> type:
    numbers.append(n)
    return int
  for o in outputs:
    structure.append(("result", o.kind, name(o.serial), _mapped(o.movement, left_out), len(o.shape)))
    numbers += o.shape
  numbers += [b.rng_count for b in rng]   # random numbers that are drawn
  return structure + [("value", m) for m in more], numbers


def _mapped(value: Any, fn: Callable[[int], Any]) -> Any:
  """Nested tuples with what a function gives for each int in them."""
  if isinstance(value, tuple): return tuple(_mapped(v, fn) for v in value)
  return fn(value) if isinstance(value, int) and not isinstance(value, bool) else value


def plain_ints(value: Any) -> Any:
  """Nested tuples with ints that remember nothing."""
  return _mapped(value, int)


def launches_at(launches: Sequence[Any], sizes: dict[int, Any], outputs: Sequence[Any], numbers: Sequence[Any],
                variants: bool = False) -> At:
  """What an outline's ``numbers``, or expressions for them, say. Programs are the recorded ones, or, with ``variants``, those
  that the numbers need."""
  todo = iter(numbers)
  def take(n: int) -> _Ints: return tuple(itertools.islice(todo, n))
  each = []
  for x in launches:
    offsets, asked = take(len(x.offsets)), take(len(x.asked))
    each.append((offsets, *(x.of.variant(asked) if variants and x.of is not None else (x.program, x.sizes))))
  nbytes = dict(zip(sizes, take(len(sizes))))
  made: dict[int, _Ints] = {}
  movements = []
  for o in outputs:
    movements.append(_mapped(o.movement, lambda _: next(todo)))
    made.setdefault(o.serial, take(len(o.shape)))
  return At(tuple(program for _, program, _ in each), tuple(given for *_, given in each), tuple(offsets for offsets, *_ in each),
            tuple(nbytes[x.serials[0]] if x.program is None else 0 for x in launches), nbytes, tuple(made.values()),
            tuple(movements), tuple(todo))


class SizedRecording:
  """The numbers of a recording for all values of the variables of ``trace``."""

  def __init__(self, trace: Trace, outlined: _Outline, launches: Sequence[Any], sizes: dict[int, Any], outputs: Sequence[Any]):
    (self.structure, self._now), self._recorded = outlined, (launches, sizes, outputs)
    self.values, self.exprs = trace.values, list(map(trace.expr, self._now))
    made_of = launches_at(*self._recorded, self.exprs)
    self.varying = {k for k, e in made_of.nbytes.items() if isinstance(e, UOp)}   # memory whose bytes depend on sizes
    # which arguments begin at a place that does: (launch, argument)
    self.places = {(i, j) for i, offsets in enumerate(made_of.offsets) for j, e in enumerate(offsets) if isinstance(e, UOp)}
    self._different = tuple(dict.fromkeys(e for e in self.exprs if isinstance(e, UOp)))
    self._evaluate = evaluator(self._different, trace.sizes)
    self._sizes, self.guards = trace.sizes, trace.guards
    self._holds = evaluator(self.guards, trace.sizes)
    self.first = self._last = launches_at(*self._recorded, list(map(int, self._now)))
    self._found: Recent[_Ints, At] = Recent(KNOWN)
    self._found[trace.values] = self.first
    def number(device: str, dtype: Any, made: Any) -> Callable[[_Ints], Any]:
      return lambda values: number_buffer(device, dtype, made.make(lambda node: evaluator((node,), trace.sizes)(values)[0]))
    self.numbers = {k: number(*n) for k, n in trace.numbers.items()}

  def holds(self, values: _Ints) -> bool:
    """Whether all that has to hold of values does."""
    try: return all(self._holds(values))
    except ZeroDivisionError: return False   # what is divided by is a size

  def numbers_at(self, values: _Ints) -> _Ints:
    """All numbers for other values."""
    found: dict[Any, Any] = dict(zip(self._different, self._evaluate(values)))
    return tuple([found.get(e, e) for e in self.exprs])

  def greatest(self) -> dict[int, int]:
    """The bytes of memory, by serial, for the greatest values that the variables have; empty where there are none."""
    most = tuple(s.upper for s in self._sizes if s.upper is not None)
    return launches_at(*self._recorded, self.numbers_at(most)).nbytes if len(most) == len(self._sizes) else {}

  def at(self, values: _Ints) -> At | None:
    """Everything for other values; variants that they need are compiled. None where they need another recording."""
    found = self._found[values]
    if found is None and self.holds(values):
      found = launches_at(*self._recorded, self.numbers_at(values), True)
      # most values have these in common: one tuple for all of them
      same = {k: b for k in "programs offsets copies movements".split() if getattr(found, k) == (b := getattr(self._last, k))}
      found = self._last = self._found[values] = found._replace(**same)
    return found

  def refuses(self, first: SizedRecording) -> str:
    """Why another recording, at other values, is not the same with other numbers; "" where it is."""
    a, b = first.structure, self.structure
    if len(a) != len(b):
      n, m = (sum(x[0] == "launch" for x in s) for s in (a, b))
      return f"{n} kernels are launched at one and {m} at the other"
    for i, (x, y) in enumerate(zip(a, b)):
      named = x[0] == y[0] == "launch" and x[1] is not y[1]
      if x != y: return f"{x[0]} {i} is another one{f' ({_name(x[1])} and {_name(y[1])})' if named else ''}"
    if len(first._now) != len(self._now): return "other shapes have other dimensions"
    if not self.holds(first.values):
      return f"it must hold that {next(dim_text(g) for g, ok in zip(self.guards, self._holds(first.values)) if not ok)}"
    for got, want, e in zip(self.numbers_at(first.values), first._now, self.exprs):
      if got != want: return f"a number that is {want} and then {dim_text(e)} does not say what it is made of"
    return ""
