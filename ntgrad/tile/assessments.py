"""Assessments: what a kernel assumes of sizes. Each is decided when the kernel is made, where symbols tell; else at a call."""
from __future__ import annotations

import itertools
import math
import re
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Callable, Container, Iterator, Mapping, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim, assume, below, lesser, nested_text, same_size, shape_text, sizes_of, text_of
from ntgrad.codegen.ir import ArgumentError, Ops, ShapeError, UOp, toposort
from ntgrad.codegen.kernel import EFFECTS, Kernel
from ntgrad.codegen.kernel.arrangement import onward
from ntgrad.graph import caller, checked
from ntgrad.graph.origins import Line, at_lines
from ntgrad.graph.symbol import Condition, Expr, Symbol, compared, condition_of, evaluate, evaluate_size, symbols_of

from .parameters import Parameter
from .tensor import Tensor


@dataclass(frozen=True)
class Assessment:
  """A condition on sizes (a bool where decided), what to say where it fails, the line that asks, the parameter it is about.
  ``fewer``: what is as good, of a grid that has a program less."""
  condition: bool | Condition
  message: str
  where: str = ""
  of: str = ""
  fewer: bool | Condition = False

  def __str__(self) -> str:
    at = f"  [{self.where}]" if self.where else ""
    verdict = f"at a call: {self.condition}" if isinstance(self.condition, Condition) else "holds always"
    return f"{verdict}; {self.message}{at}"

  def host(self, places: Mapping[str, str]) -> str:
    """The code that checks it at a call, with ``x.shape[0]`` for names; "" where it is decided."""
    if not isinstance(self.condition, Condition): return ""
    said = re.sub(r"[A-Za-z_]\w*", lambda m: places.get(m[0], m[0]), str(self.condition))
    return f"if not ({said}): raise ShapeError"

  def check(self, kernel: str, values: Mapping[str, int], open_: Mapping[str, Dim]) -> None:
    """Raises ShapeError where it does not hold for ``values``; of run-time sizes (``open_``) it is assumed that it holds."""
    c = self.condition
    if not isinstance(c, Condition): return
    if not evaluate(c, values) and self.fewer is not False: c = self.fewer
    if not isinstance(c, Condition): return
    if evaluate(c, values):
      assume.condition_holds(compared(c.op, *[ix.node(evaluate_size(e, open_)) for e in (c.a, c.b)]))
      return
    sizes = ", ".join(f"{n} = {values[n]}" for n in sorted(s.name for s in symbols_of(c)))
    asked = f"; asked for at {self.where}" if self.where else ""
    raise ShapeError(f"{kernel}: {self.message or 'a check fails'} ({c}, where {sizes}){asked}")


_asked: ContextVar[list[Assessment] | None] = ContextVar("asked", default=None)


@contextmanager
def asking() -> Iterator[list[Assessment]]:
  """The checks that an arrangement asks for in the block."""
  found: list[Assessment] = []
  token = _asked.set(found)
  try: yield found
  finally: _asked.reset(token)


@checked
def check(condition: Any, message: str = "") -> None:
  """In an arrangement: the kernel runs only where sizes are so, ``tile.check(M % 32 == 0, "M must be a multiple of 32")``.

  ``condition`` is a comparison of Symbols and ints, or one of sympy. Where symbols decide it, that is done here; else it is
  checked when the kernel is called, before anything is launched. Raises ShapeError where it can never hold, ArgumentError for
  what is no condition, or outside of an arrangement.
  """
  found = _asked.get()
  if found is None: raise ArgumentError("check: belongs in an arrangement, which make calls")
  c = condition_of(condition)
  if c is False: raise ShapeError(f"check: {message or 'the condition'} never holds")
  found.append(Assessment(c, message, caller()))


# ---- grids

def _less(a: Any, b: Any) -> Any:
  """Whether a size is less than another; never of one name with options of two kinds, which says nothing."""
  try: return (a == b) is not True and a < b
  except ArgumentError: return False


def same_grids(kernel: str, arranged: Sequence[Tensor], aside: Container[str] = ()) -> list[Assessment]:
  """That the outermost levels are the same, or have as many programs, which correspond in row-major order; there may be
  fewer of them than of the first parameter. Raises ShapeError if they never are, or only where a tensor is
  square; of a tensor that is not arranged, the application's use of it decides. Those in ``aside`` have no grid."""
  grids = [(t.name, t.levels[0]) for t in arranged if t.levels != ((),) and t.name not in aside]
  whole = {t.name for t in arranged if not t.operations}
  lines = {t.name: t._lines()[0] for t in arranged}
  alike: dict[Symbol, Symbol] = {}   # union-find of names that must have one value
  out = []
  for name, grid in grids[1:]:
    (first, want), line = grids[0], lines[name]
    where = "" if line is None else line.short
    said = f"the outermost level of {name} is {nested_text(grid)}, that of {first} is {nested_text(want)}"
    refused = f"{kernel}: {said}; all parameters are arranged for the same grid{mended(name, grid, want, first)}"
    mine, theirs = grid, want
    if len(grid) != len(want): mine, theirs = (tuple(n for n in g if n != 1) for g in (grid, want))
    if len(mine) != len(theirs):
      count, fewer = math.prod(grid) == math.prod(want), math.prod(grid) < math.prod(want)
      if forgotten_expand(grid, want, lambda a, b: (a == b) is True): fewer = False
      asked = f"{said}: there must be as many programs{mended(name, grid, want, first)}"
      if count is False: count = fewer
      if count is not False: out.append(Assessment(count, asked, where, name, fewer))
      elif name not in whole: raise ShapeError(refused + at_lines(line))
      continue
    fewer = _less(math.prod(mine), math.prod(theirs)) if mine else False
    if forgotten_expand(grid, want, lambda a, b: (a == b) is True): fewer = False
    unequal = [d for d, (a, b) in enumerate(zip(mine, theirs)) if (a == b) is False]
    if name in whole and unequal and fewer is False: continue
    for d, (a, b) in enumerate(zip(mine, theirs)):
      same = fewer if (a == b) is False else a == b
      if same is False: raise ShapeError(refused + at_lines(line))
      if pair := names_that_agree(a, b): alike[representative(alike, pair[0])] = representative(alike, pair[1])
      for t in arranged:
        names = {s for s in t._source.shape if isinstance(s, Symbol) and s.is_name}
        if len({representative(alike, s) for s in names}) < len(names):
          raise ShapeError(
            f"{kernel}: {said}; dimension {d} is the same only for a square {t.name} {nested_text(t._source.shape)}: expand to "
            f"the size of another dimension, or give both dimensions one name{at_lines(line)}")
      known = True if not isinstance(same, Condition) else same
      out.append(Assessment(known, f"dimension {d} of the grid: {said}", where, name, fewer))
  return out


def forgotten_expand(grid: Sequence[Any], want: Sequence[Any], same: Callable[[Any, Any], bool]) -> bool:
  """Whether a grid has dimensions of another, in order, and the others not, or of 1: there all programs shall see the same."""
  left = iter(want)
  real = [n for n in grid if not same(n, 1)]
  return bool(real) and len(real) < len(want) and all(any(same(n, m) for m in left) for n in real)


def mended(name: str, grid: Sequence[Any], want: Sequence[Any], other: str) -> str:
  """Which meta-operation would give a parameter the grid of another one; "" where none is near."""
  have, need = len(grid), len(want)
  if have == need:
    ones = [d for d, (a, b) in enumerate(zip(grid, want)) if a == 1 and (a == b) is not True]
    if not ones or any(a != 1 and (a == b) is False for a, b in zip(grid, want)): return ""
    return f"; {name}.expand({nested_text(tuple([b if d in ones else -1 for d, b in enumerate(want)]))}) gives it that of {other}"
  if have > need:
    ones = [d for d, n in enumerate(grid) if n == 1][:have - need]
    if len(ones) < have - need: return mended(other, want, grid, name)
    return f"; {name}.squeeze({ones[0] if len(ones) == 1 else tuple(ones)}) takes dimensions of 1 away"
  # where it has the other's sizes; else in front
  same: list[int] = []
  for d, n in enumerate(want):
    if len(same) < have and (grid[len(same)] == n) is True: same.append(d)
  if len(same) < have: same = list(range(need - have, need))
  new = [d for d in range(need) if d not in same]
  calls = "".join(f".unsqueeze({d})" for d in new)
  wide = tuple([n if d in new else -1 for d, n in enumerate(want)])
  if any(want[d] != 1 for d in new): calls += f".expand({nested_text(wide)})"
  return f"; {name}{calls} gives it the dimensions of {other}"


def representative(alike: Mapping[Symbol, Symbol], s: Symbol) -> Symbol:
  """The name that stands for all that must have the same value as ``s``."""
  while s in alike and alike[s] is not s: s = alike[s]
  return s


def names_that_agree(a: Expr, b: Expr) -> tuple[Symbol, Symbol] | None:
  """The two names that must have one value where two sizes are the same: M and N in ``cdiv(M, 16) == cdiv(N, 16)``."""
  apart = symbols_of(a) - symbols_of(b), symbols_of(b) - symbols_of(a)
  if not isinstance(a, Symbol) or [*map(len, apart)] != [1, 1]: return None
  (m,), (n,) = apart
  return (m, n) if a.subs({m: n}) == b else None


# ---- levels

def whole_windows(arranged: Sequence[Tensor]) -> list[Assessment]:
  """That there are whole windows wherever only these count, as the Arrangement of a call sees to."""
  each = [(t, o, d, n > 0) for t in arranged for o in t.operations for d, n in enumerate(o.windows)]
  return [Assessment(some, f"dimension {d} of {t.name} has a whole window of {o.args[0][d]}", o.line.short if o.line else "")
          for t, o, d, some in each if isinstance(some, Condition)]


def no_empty_tiles(kernel: str, parameters: Sequence[Parameter], arranged: Sequence[Tensor]) -> None:
  """Raises ShapeError for a level or tile without elements in a program that is run, with the line that made the level."""
  for p in parameters:
    for n, level in enumerate(p.arrangement.levels[1:], 1):
      if any(below(d, 1) for d in level):
        lines = [t._lines()[n] for t in arranged if t.name == p.name]
        raise ShapeError(
          f"{kernel}: level {n} of {p.name} is {shape_text(level)}, for a tensor of shape {shape_text(p.arrangement.source)}: a "
          f"program has nothing to read there; call it only where there is, or tile without floor_mode{at_lines(*lines)}")


# ---- dimensions that an operation puts side by side

@dataclass(eq=False)
class Whole:
  """A parameter as it is before it is cut into tiles: the source, or what slices, flips and flattening make of it.

  Of each dimension ``limits`` is how many elements there are, ``covered`` up to where its tiles go (None: to the end or beyond),
  ``offsets`` where they begin, ``named`` whether it was given names or numbers, ``of`` the dimensions of levels that go through
  it, ``source`` the dimension of the source that it is, where it is one.
  """
  parameter: Parameter
  limits: tuple[Dim, ...]
  covered: list[Dim | None]
  offsets: list[Dim]
  named: list[bool]
  of: list[set[tuple[int, int]]]
  source: list[int | None]

  @staticmethod
  def new(p: Parameter, t: Tensor) -> Whole:
    a = p.arrangement
    whole = a.uncut
    shape = whole.view.shape
    fresh = dimensions(shape)
    made_of = [i.ranges for i in whole.view.pull(fresh)[0]]
    parts = [[s for s, ranges in enumerate(made_of) if r in ranges] for r in fresh]
    where = [(level, d) for level, dims in enumerate(a.levels) for d in range(len(dims))]
    through = dimensions(a.view.shape)
    of = [{w for w, r in zip(where, through) if r in i.ranges} for i in a.cut.pull(through)[0]]
    exact = a.cut.pull([ix.rng(d, n) if n else ix.ZERO for d, n in enumerate(a.view.shape)])[0]
    covered = [last_of(i, n, a.partly) for i, n in zip(exact, shape)]
    named = [bool(s) and all(t._source.given[d] is not None for d in s) for s in parts]
    same_size = [s[0] if len(s) == 1 and parts.count(s) == 1 and a.source[s[0]] == n else None for s, n in zip(parts, shape)]
    return Whole(p, shape, covered, [offset(i) for i in exact], named, of, same_size)

  def size(self, d: int) -> Dim:
    """How many elements of a dimension the tiles have."""
    return self.limits[d] if (found := self.covered[d]) is None else found

  def through(self, at: tuple[int, int]) -> list[int]:
    """The dimensions that a dimension of a level goes through."""
    return [d for d, of in enumerate(self.of) if at in of]

  def text(self, d: int, t: Tensor, elements: str = "") -> str:
    """``dimension 1 of x, K, has 20 elements``"""
    p, at = self.parameter, self.source[d]
    tiles = "" if self.covered[d] is None else f", tiles for {text_of(self.size(d))}"
    has = f"has {text_of(self.limits[d])}{elements}{tiles}"
    if at is None: return f"dimension {d} of {p.arrangement.uncut.text(p.name)} {has}"
    declared = t._source.given[at]
    return f"dimension {at} of {p.name}{f', {declared},' if isinstance(declared, Symbol) else ''} {has}"


def dimensions(shape: Sequence[Dim]) -> list[UOp]:
  """An index that varies for each dimension, also for those of 0 and 1."""
  return [ix.rng(d, max(n, 2) if isinstance(n, int) else n) for d, n in enumerate(shape)]


def last_of(index: UOp, n: Dim, partly: bool) -> Dim | None:
  """How many of n elements tiles reach, their index being ``index``; None where that is all of them."""
  if isinstance(n, int) and not sizes_of((index,)):
    reached = ix.vmax(index) + 1
    return reached if reached < n else None
  if not partly: return None
  terms, c = ix.linear(index)
  if any(t.op is not Ops.RANGE or k < 0 for t, k in terms): return None
  return lesser(n, ix.plus(ix.total([ix.times(k, ix.minus(t.arg[1], 1)) for t, k in terms]), c + 1))


def dimensions_agree(kernel: str, body: Kernel, parameters: Sequence[Parameter], tensors: Mapping[str, Tensor],
                     whole_of: Callable[[Parameter, Tensor], Whole] = Whole.new,
                     lines: Mapping[int, Line | None] | None = None) -> None:
  """That dimensions which are gone through by one index have one size, unless both have names (then they may differ).

  Without it an addition of 3 and 5 elements in tiles of 16 would give 5 results. They are those of the parameter as it is when it
  is first cut into tiles, be it a slice or flattened. Left out are dimensions that were padded, and those of which the
  application names single tiles (``x[0]``): they are longer than what goes through them. ``lines``: of the application, by slot,
  in their order, those that read or write the parameters first. Raises ShapeError, with the line that comes to the second of two.
  """
  def met(*both: Parameter) -> str:
    slots = [p.slot for p in both]
    return at_lines(*[line for slot, line in (lines or {}).items() if slot in slots][1:])
  by_slot = {p.slot: p for p in parameters if p.memory is None and not p.of and not p.notes and p.name in tensors}
  whole = cache(lambda p: whole_of(p, tensors[p.name]))
  for statement in body.effects:
    seen: dict[UOp, list[tuple[Whole, int]]] = {}
    for u in toposort((statement,)):
      if u.op is not Ops.LOAD and u.op not in EFFECTS or u.src[0].op is not Ops.DEFINE_GLOBAL: continue
      p = by_slot.get(u.src[0].arg[0])
      if p is None or not u.src[1].ranges: continue
      w = whole(p)
      for d, i in enumerate(onward(p.arrangement.uncut.view, u.src[1].src)):
        if i is None or not i.ranges or w.of[d] & p.picked: continue
        beside = seen.setdefault(ix.sub(i, ix.node(w.offsets[d])), [])
        if (w, d) in beside: continue
        for other, e in beside:
          if other.named[e] and w.named[d]: continue
          if same_size(ix.minus(other.size(e), other.offsets[e]), ix.minus(w.size(d), w.offsets[d])): continue
          raise ShapeError(
            f"{kernel}: {other.text(e, tensors[other.parameter.name], ' elements')}, {w.text(d, tensors[p.name])}, and the "
            "application goes through both with one index; give tensors that agree, or name both dimensions: "
            f"Tensor(shape=('N', ..)){met(other.parameter, p)}")
        beside.append((w, d))
  for short, long in itertools.permutations(parameters, 2):   # a loop of one round leaves no index to see
    for (counter, n, here), (another, m, there) in itertools.product(short.once, long.once):
      if counter is not another or n != 1 or same_size(n, m): continue
      first, second = whole(short), whole(long)
      mine, theirs = first.through(here), second.through(there)
      if all(first.named[i] for i in mine) and all(second.named[i] for i in theirs): continue
      few = ", ".join(first.text(i, tensors[short.name], " elements") for i in mine) or f"{short.name} has one tile"
      many = ", ".join(second.text(i, tensors[long.name]) for i in theirs) or f"{long.name} {text_of(m)}"
      raise ShapeError(f"{kernel}: {few}, {many}, and a loop goes once through both; give tensors that agree, or name the "
                       f"dimensions of both: Tensor(shape=('N', ..)){met(short, long)}")


def offset(i: UOp) -> Dim:
  """The part of an index that does not vary: 4*g + t + 3 -> 3."""
  terms, c = ix.linear(i)
  return ix.plus(ix.total([ix.times(k, t) for t, k in terms if not t.ranges]), c)
