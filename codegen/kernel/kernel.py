"""A kernel in index form: parameters, axes, and a body of statements whose values are functions of the axes.

A statement is a STORE, an ATOMIC, a FOLD or a PRINT, or a region of statements: FOR, WHILE, IF. A STORE goes to a param or to a
variable, which each program has for itself."""
from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

from .. import index as ix
from ..index import Dim, Shape as Shape, dim_text, sizes_of, text_of
from ..ir import DType, Ops, OptError, UOp, dtypes, toposort
from ..ir.alu import or_


class AxisKind(Enum):
  """How the values of an axis are gone through; docs/architecture.md has the list."""
  GRID = "grid"
  LOOP = "loop"
  TILE = "tile"
  LOCAL = "local"
  UPCAST = "upcast"
  UNROLL = "unroll"
  LANE = "lane"
  __hash__ = object.__hash__
  def __str__(self) -> str: return self.name


@dataclass(frozen=True)
class Axis:
  """One dimension of the iteration space: ``RANGE(id, size)`` in the body.

  GRID and LOOP axes may have a ``size`` that is an expression of run-time sizes, a LOOP's also of the axes around it; the sizes
  of all others are numbers.

  ``programs``: so many programs share the values of this LOOP, each taking every n-th; 0: each program goes through all of them.
  ``again``: how many elements the last vector, copy or block has that the one before had too (``ShiftInwards``). ``most``: how
  large a run-time size is at most, for local memory along it. ``rest_of``: the axis that this one was a part of before ``Peel``;
  going through one of the parts needs nothing of the other."""
  id: int
  size: Dim
  kind: AxisKind
  programs: int = 0
  again: int = 0
  most: int = 0
  rest_of: int | None = None

  @property
  def rng(self) -> UOp: return ix.rng(self.id, self.size)
  @property
  def varies(self) -> bool:
    """Whether the size is another one for other values of the axes around it."""
    return isinstance(self.size, UOp) and not ix.of_sizes(self.size)
  @property
  def known(self) -> int:
    """The size of an axis of which it is a number: of all but GRID and LOOP axes."""
    assert isinstance(self.size, int), f"the size of {self} is no number"
    return self.size
  @property
  def count(self) -> int: return ix.count(self.size)   # the size, or about what it is where that is known at the launch only
  def __str__(self) -> str: return f"a{self.id}:{text_of(self.size)} {self.kind}" + (f"/{self.programs}" if self.programs else "")


def volume(axes: Iterable[Axis]) -> int:
  """How many values some axes have together, or about how many."""
  return math.prod([a.count for a in axes])


@dataclass(frozen=True)
class Param:
  """A buffer parameter: its source shape (indices are one a source dimension), element type, and whether it is written.

  ``align``: for a part of a memory, the place where it begins is a multiple of so many bytes. The place itself is an argument of
  the launch. 0: it begins where the memory does. ``runs``: for an index, equal elements stand side by side in parts of so many
  elements, and no two parts have the same row."""
  slot: int
  shape: Shape
  dtype: DType
  written: bool
  align: int = 0
  runs: int = 0

  @property
  def uop(self) -> UOp:
    part = (self.align,) if self.align else ()
    return UOp(Ops.DEFINE_GLOBAL, self.dtype, (), (self.slot, f"data{self.slot}", self.written, *part))


@dataclass(frozen=True)
class LocalVariable(Param):
  """An array that each program has for itself between statements, in the place of a param; its slot is negative."""
  node: UOp = field(kw_only=True)

  @property
  def uop(self) -> UOp: return self.node


class Print(NamedTuple):
  """What a PRINT prints: a text, and variables of these ``shapes``. ``stop``: the number of a breakpoint, which has no text."""
  text: str
  shapes: tuple[tuple[int, ...], ...]
  stop: int = 0

  def labels(self) -> list[str]:
    """What stands before the values of each variable."""
    return [f"{self.text}{f' (operand {i})' * (len(self.shapes) > 1)}: " for i in range(len(self.shapes))]


class Fold(NamedTuple):
  """How a FOLD combines n values an element, in their order: ``results`` are n functions of the LOADs ``first``, of all so far,
  and ``second``, of the next. It goes along dimension ``axis`` of variables of a ``shape``, with ``reverse`` from the end. A scan
  (``scan``) gives all that it comes by, else the last is asked for. The results ``asked`` for go to variables."""
  first: tuple[UOp, ...]
  second: tuple[UOp, ...]
  results: tuple[UOp, ...]
  shape: tuple[int, ...]
  axis: int
  asked: tuple[int, ...]
  scan: bool = False
  reverse: bool = False

  def guarded(self) -> Fold:
    """With one more value, the first: whether an element takes part."""
    a, b = (scalar(name, dtypes.bool) for name in ("there", "here"))
    both = zip(self.first, self.second, self.results)
    results = or_(a, b), *[a.where(b.where(r, x), y) for x, y, r in both]
    asked = tuple([i + 1 for i in self.asked])
    return self._replace(first=(a, *self.first), second=(b, *self.second), results=results, asked=asked)


def scalar(name: str, dtype: DType) -> UOp:
  """What reads a variable of one element."""
  return UOp(Ops.LOAD, dtype, (UOp(Ops.DEFINE_LOCAL, dtype, (), (name, (), "private")), UOp(Ops.INDEX, ix.INT)))


def fold_names(u: UOp, names: Sequence[str]) -> tuple[Sequence[str], list[str]]:
  """Of the names of a FOLD's variables those that it reads, and that which each result goes to: ``_`` for one not asked for."""
  n = len(u.arg.first)
  to = dict(zip(u.arg.asked, names[n:]))
  return names[:n], [to.get(i, "_") for i in range(n)]


def buffers_written(u: UOp) -> tuple[UOp, ...]:
  """The buffers that a statement, or a node of the linear form, writes."""
  if u.op is Ops.FOLD: return u.src[len(u.arg.first):]
  return (u.src[0], *u.src[4:5]) if u.op is Ops.ATOMIC else u.src[:1] if u.op is Ops.STORE else ()


Around = tuple[int, ...]   # ids of the axes of the FORs around a statement
EFFECTS = Ops.STORE, Ops.ATOMIC
ACCESSES = Ops.LOAD, *EFFECTS
LOAD_OR_STORE = Ops.LOAD, Ops.STORE
ATOMICS = "add", "max", "min", "and", "or", "xor", "xchg", "cas"   # cas: if it equals what is compared
REGIONS = Ops.FOR, Ops.WHILE, Ops.IF


def reads_its_place(effect: UOp) -> bool:
  """Whether to store an element twice, or in another order, is not the same: an ATOMIC, a STORE that adds or keeps an order."""
  return effect.op is Ops.ATOMIC or isinstance(effect.arg, tuple) and (effect.arg[0] == "add" or bool(effect.arg[1]))


def orders(u: UOp) -> bool:
  """Whether an ATOMIC may tell others that what its program did before is done, or its program that of others."""
  return u.op is Ops.ATOMIC and (u.arg in ("xchg", "cas") or len(u.src) > 4)


def inner(statement: UOp) -> tuple[tuple[UOp, ...], ...]:
  """The sequences of statements of a region: one, or two for an IF (the second may be empty). None for an effect."""
  if statement.op is Ops.IF: return statement.src[1:1 + statement.arg], statement.src[1 + statement.arg:]
  return (statement.src[1:],) if statement.op in REGIONS else ()


def walk_statements(body: Iterable[UOp]) -> Iterator[tuple[UOp, Around]]:
  """Every statement, in order, a region before what it has; each with the axes of the FORs around it."""
  stack: list[tuple[UOp, Around]] = [(s, ()) for s in reversed(list(body))]
  while stack:
    s, around = stack.pop()
    yield s, around
    within = (*around, s.arg) if s.op is Ops.FOR else around
    for part in reversed(inner(s)): stack.extend([(x, within) for x in reversed(part)])


def is_variable(buffer: UOp) -> bool:
  """Whether a buffer of the index form is a variable (the array of a CACHE_READ has a number of elements, not a shape)."""
  return buffer.op is Ops.DEFINE_LOCAL and isinstance(buffer.arg[1], tuple)


@dataclass(frozen=True)
class Kernel:
  """``body`` is a tuple of statements, mostly STORE(param, INDEX, value[, gate]); ``applied`` lists the Opts that led here.
  ``needs``: conditions on run-time sizes without which it must not be launched; a ``free`` kernel gets none."""
  params: tuple[Param, ...]
  axes: tuple[Axis, ...]
  body: tuple[UOp, ...]
  applied: tuple[Any, ...] = ()
  needs: tuple[UOp, ...] = ()
  free: bool = False

  def __iter__(self) -> Iterator[Kernel]: yield self   # ``Linearizer(*item.ast)``, as older scripts have it

  def with_(self, **changes: Any) -> Kernel: return replace(self, **changes)

  def needing(self, condition: UOp) -> Kernel:
    """The kernel, to be launched where a condition on run-time sizes holds. Raises OptError for one that is for all sizes."""
    if self.free and condition is not ix.TRUE: raise OptError(f"a kernel for all sizes: {dim_text(condition)} may not hold")
    return self.with_(needs=ix.conjuncts(ix.both(*self.needs, condition)))

  @cached_property
  def nodes(self) -> list[UOp]: return toposort(self.body)

  @cached_property
  def by_uop(self) -> dict[UOp, Param]: return {p.uop: p for p in self.params}   # the params

  @cached_property
  def sizes(self) -> tuple[ix.Size, ...]:
    """The run-time sizes that it is launched with, in order of their names."""
    return sizes_of([*self.body, *(a.size for a in self.axes), *(n for p in self.params for n in p.shape), *self.needs])

  @cached_property
  def statements(self) -> list[UOp]: return [s for s, _ in walk_statements(self.body)]

  @cached_property
  def effects(self) -> list[UOp]: return [s for s in self.statements if s.op in EFFECTS]   # the STOREs and ATOMICs

  @cached_property
  def variables(self) -> list[UOp]:
    """The variables, in the order in which they are first used."""
    return [u for u in self.nodes if is_variable(u)]

  @cached_property
  def written(self) -> frozenset[UOp]: return frozenset(b for s in self.statements for b in buffers_written(s))

  @cached_property
  def seen_dims(self) -> dict[UOp, tuple[int, ...]]:
    """The dimensions of each buffer that people are shown: if any are left, not those of size 1 that 0 indexes everywhere."""
    used = {u: {d for d, n in enumerate(p.shape) if n != 1} for u, p in self.by_uop.items()}
    for u in self.nodes:
      if u.op in ACCESSES and u.src[0] in used: used[u.src[0]].update([d for d, i in enumerate(u.src[1].src) if i is not ix.ZERO])
    return {u: tuple(sorted(dims)) or tuple(range(len(self.by_uop[u].shape)))[-1:] for u, dims in used.items()}

  @cached_property
  def prints(self) -> bool: return any(u.op is Ops.PRINT for u in self.nodes)   # or stops at a breakpoint

  @cached_property
  def stores_only(self) -> bool: return not self.variables and all(s.op is Ops.STORE for s in self.body)   # and only to params

  @cached_property
  def plain(self) -> bool:
    """Whether all statements may run at once: STOREs to params, none reading what an earlier one wrote, nor writing what it or an
    earlier one reads, but for the very element.

    STOREs that were not made fresh (the scheduler's) mean what is read before any of them is done: a swap of two buffers is
    plain."""
    if not self.stores_only or any(u.op is Ops.SCAN or u.op is Ops.SORTED for u in self.nodes): return False
    peeled = any(a.rest_of is not None for a in self.axes)
    tiles = frozenset(a.rng for a in self.tiles if a.id not in self.bound)
    before: set[UOp] = set()
    read: dict[UOp, list[tuple[UOp, UOp]]] = {}   # memory -> indices, and the statements that read there
    for n, s in enumerate(self.body):
      if s.is_unique:
        done = {e.src[0] for e in self.body[:n] if not self.apart(e, s)} if peeled else before
        if s.src[0] in done: return False   # perhaps the same elements again
        for u in s.toposort():
          if u.op is not Ops.LOAD: continue
          if u.src[0] in done: return False
          read.setdefault(u.src[0], []).append((u.src[1], s))
        for index, e in read.get(s.src[0], ()):
          if peeled and e is not s and self.apart(e, s): continue
          # one element a program, of all tiles, or one would go through another's again
          if index is not s.src[1] or tiles and not tiles <= e.ranges & s.ranges: return False
      before.add(s.src[0])
    return True

  def apart(self, a: UOp, b: UOp) -> bool:
    """Whether two statements go through different parts of one axis."""
    whole = {x.rng: x.id if x.rest_of is None else x.rest_of for x in self.axes}
    parts = {whole[r]: r for r in a.ranges if r in whole}
    return any(parts.get(whole[r], r) is not r for r in b.ranges if r in whole)

  @cached_property
  def scans(self) -> list[UOp]:
    """The scheduler's SCANs, which stand anywhere in a value: the pass ``scans`` makes loops of them, before Opts."""
    return [u for u in self.nodes if u.op is Ops.SCAN] if self.stores_only else []

  @cached_property
  def sorts(self) -> list[UOp]:
    """The scheduler's SORTEDs: the pass ``sorts`` makes statements of them, before Opts."""
    return [u for u in self.nodes if u.op is Ops.SORTED]

  @cached_property
  def reduces(self) -> list[UOp]: return [u for u in self.nodes if u.op is Ops.REDUCE]

  @cached_property
  def bound(self) -> frozenset[int]:
    """Ids of the axes that one program goes through: those that some REDUCE binds, and the sequential ones."""
    scanned = [u.arg[1] if u.op is Ops.SCAN else u.arg[0] for u in self.nodes if u.op is Ops.SCAN or u.op is Ops.SORTED]
    return self.sequential.union(scanned, *[r.arg[1] for r in self.reduces])

  @cached_property
  def sequential(self) -> frozenset[int]:
    """Ids of the axes that a scattering STORE goes through in order: later values are added to, or replace, earlier ones."""
    return frozenset(i for s in self.effects if isinstance(s.arg, tuple) for i in s.arg[1])

  @cached_property
  def in_place(self) -> bool:
    """Whether to write an element twice is not the same as once: some parameter is both read and written."""
    return any(reads_its_place(s) for s in self.effects) or any(u.op is Ops.LOAD and u.src[0] in self.written for u in self.nodes)

  def axis(self, id: int) -> Axis: return next(a for a in self.axes if a.id == id)

  def of_kind(self, *kinds: AxisKind) -> list[Axis]: return [a for a in self.axes if a.kind in kinds]
  @property
  def grid(self) -> list[Axis]: return self.of_kind(AxisKind.GRID)
  @property
  def loops(self) -> list[Axis]: return self.of_kind(AxisKind.LOOP)
  @property
  def tiles(self) -> list[Axis]: return self.of_kind(AxisKind.TILE)
  @property
  def lanes(self) -> list[Axis]: return self.of_kind(AxisKind.LANE)
  @property
  def reduced_loops(self) -> list[Axis]: return [a for a in self.loops if a.id in self.bound]
  @property
  def counts(self) -> dict[int, int]: return {a.id: a.count for a in self.axes}


# ---- a kernel as text

def structure_text(kernel: Kernel) -> str:
  """All that a kernel is, the same in every process; two kernels have the same text only where they are equal. Raises TypeError
  for a node whose argument has no such text."""
  whole = kernel.params, kernel.axes, kernel.body, kernel.applied, kernel.needs, kernel.free
  order: list[UOp] = []
  number: dict[UOp, int] = {}
  roots = _nodes_in(whole)
  while roots:   # then those that stand in arguments only
    new = [u for u in toposort(roots, number.__contains__) if u not in number]
    number.update(zip(new, range(len(order), len(order) + len(new))))
    order += new
    roots = [x for u in new if isinstance(u.arg, tuple) for x in _nodes_in(u.arg) if x not in number]
  lines = [
    f"{u.op.name}{'!' if u.is_unique else ''} {u.dtype!r} {[number[s] for s in u.src]} {_arg_text(u.arg, number)}" for u in order]
  return "\n".join([*lines, _arg_text(whole, number)])


def _within(x: Any) -> tuple[Any, ...]:
  """What a tuple, or an object of a dataclass, is made of."""
  if isinstance(x, tuple): return x
  return tuple(getattr(x, f.name) for f in fields(x)) if is_dataclass(x) else ()


def _nodes_in(x: Any) -> list[UOp]:
  out, stack = [], [x]
  while stack:
    x = stack.pop()
    if isinstance(x, UOp): out.append(x)
    else: stack.extend(reversed(_within(x)))
  return out


def _arg_text(x: Any, number: dict[UOp, int]) -> str:
  if x is None or type(x) in (int, bool, str): return repr(x)
  if isinstance(x, UOp): return f"%{number[x]}"
  if type(x) is float: return x.hex()
  if isinstance(x, (Enum, DType)): return f"{type(x).__name__} {x!r}"
  if isinstance(x, tuple) or is_dataclass(x):   # of whichever class: a Size, an Axis, an Opt
    return f"{type(x).__name__}({', '.join(_arg_text(y, number) for y in _within(x))})"
  raise TypeError(f"{x!r} has no text that is the same in every process")
