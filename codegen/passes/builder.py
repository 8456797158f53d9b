"""What passes make the statements of a kernel with: axes, variables, loops, and STOREs under conditions."""
from __future__ import annotations

import itertools
from typing import Any, Iterable

from .. import index as ix
from ..ir import BinaryOps, DType, Ops, Target, UOp, config, dtypes
from ..kernel import Axis, AxisKind, Kernel, flat_index, rewrite, steps_of, substitute
from ..opts.axes import new_id

_PROGRAM = 32768   # elements that a program is worth starting for
EACH = 4           # programs for each core, at least, before one makes several tasks
_ROWS = 2048       # elements of short rows that a block has together

Loop = tuple[Axis, ix.Dim]   # an axis that a FOR goes through, and its end


def chooses(target: Target | None) -> bool:
  """Whether Opts are chosen for the statements of a kernel."""
  return not (config.noopt or target is None or target.blocks or target.lanes == 1 or target.locals)


class Builder:
  """A kernel whose statements are made anew: its new axes, in order, and what its old ones are by these (``table``)."""

  def __init__(self, kernel: Kernel, target: Target | None):
    self.kernel, self.target = kernel, target
    self.cores = target.cores if target is not None else 1
    self.next = new_id(kernel)
    self.axes: list[Axis] = []
    self.outer = list(kernel.axes)   # of the old ones, those of which every element has its own rows
    self.table: dict[UOp, UOp] = {}
    self.part: Axis | None = None   # GRID axis of the parts of a row, which stands behind that of the rows

  @property
  def parts(self) -> int: return 1 if self.part is None else self.part.count
  @property
  def outside(self) -> ix.Dim: return ix.product(a.size for a in self.outer)   # how many rows there are

  def new(self, size: ix.Dim, kind: AxisKind) -> Axis:
    """One more axis."""
    self.axes.append(Axis(self.next, size, kind))
    self.next += 1
    return self.axes[-1]

  def tiles(self, *sizes: ix.Dim) -> list[Axis]: return [self.new(n, AxisKind.TILE) for n in sizes]
  def loops(self, *sizes: ix.Dim) -> list[Axis]: return [self.new(n, AxisKind.LOOP) for n in sizes]

  def along(self, axes: list[Axis], flat: UOp) -> None:
    """Put what a number among all values of some axes stands for in their place."""
    for a in axes[::-1]: self.table[a.rng], flat = ix.mod(flat, a.size), ix.fdiv(flat, a.size)

  def here(self, u: UOp, more: dict[UOp, UOp] | None = None) -> UOp:
    """A value of the kernel by the new axes."""
    return substitute((u,), {**self.table, **(more or {})})[0]

  def beside(self, buffer: UOp, index: UOp) -> Axis | None:
    """The outer axis along which neighbours of an access lie side by side in memory."""
    p = self.kernel.by_uop.get(buffer)
    steps = {} if p is None else steps_of(flat_index(p.shape, index.src))
    return next((a for a in self.outer if steps.get(a.id) == 1 and a.size != 1), None)

  # ---- programs

  def programs(self, n: ix.Dim, each: int = 1) -> tuple[UOp, Loop | None]:
    """The number of one of ``n`` tasks of so many elements; where one is too short for a program, also the loop over several."""
    several = min(-(-_PROGRAM // max(each, 1)), ix.count(n) * self.parts // (EACH * self.cores)) if chooses(self.target) else 1
    several = max(several, 1)
    at: UOp = ix.ZERO
    if n != 1 or several > 1: at = self.new(ix.rounds(n, several), AxisKind.GRID).rng
    if self.part is not None: self.axes.append(self.part)
    if several == 1: return at, None
    begin, (task,) = ix.mul(at, several), self.loops(several)
    end = several if ix.divides(several, n) else ix.number(ix.least(ix.sub(ix.node(n), begin), several))
    return ix.add(begin, task.rng), (task, end)

  def rows_of_blocks(self, size: int) -> tuple[list[Axis], UOp]:
    """Rows of so many elements, several in a block where they are short: their axis, if any, and whether a row is there."""
    n, many = self.outside, max(_ROWS // size, 1)
    while many > 1 and ix.count(n) * self.parts < many * 2 * self.cores: many //= 2
    row, _ = self.programs(ix.rounds(n, many))
    tile = self.tiles(many) if many > 1 else []
    for a in tile: row = ix.add(ix.mul(row, many), a.rng)
    self.along(self.outer, row)
    return tile, ix.lt(row, n)

  # ---- statements

  def stores(self, table: dict[UOp, UOp], gate: UOp, kept: Iterable[Axis] | None = None) -> list[UOp]:
    """The kernel's STOREs where a condition is true; their values are ``kept`` first where one could write what another reads."""
    found = []
    for s in self.kernel.body:
      index, value, *own = [with_gated_loads(self.here(x, table), gate) for x in s.src[1:]]
      found.append((s, index, value, ix.both(gate, *own)))
    out: list[UOp] = []
    if kept is not None and self.kernel.in_place and len(found) > 1:
      kept = list(kept)
      found = [(s, index, keep(out, f"out{i}", v, *kept), g) for i, (s, index, v, g) in enumerate(found)]
    return out + [put(s, index, value, g) for s, index, value, g in found]

  def made(self, body: Iterable[UOp], loop: Loop | None = None, **changes: Any) -> Kernel:
    """The kernel with these statements, in a loop over the tasks of a program if there is one."""
    body = tuple(body) if loop is None else (for_(*loop, *body),)
    return self.kernel.with_(axes=tuple(self.axes), body=body, **changes)


def variable(name: str, dtype: DType, *axes: Axis) -> UOp:
  """What reads a variable with an element for each value of some axes."""
  v = UOp(Ops.DEFINE_LOCAL, dtype, (), (name, tuple(a.known for a in axes), "private"))
  return UOp(Ops.LOAD, dtype, (v, UOp(Ops.INDEX, ix.INT, tuple(a.rng for a in axes))))


def moved(v: UOp, *to: UOp) -> UOp:
  """What reads a variable at another place."""
  return v.replace((v.src[0], UOp(Ops.INDEX, ix.INT, to)))


def store_over(place: UOp, value: UOp) -> UOp:
  """A STORE to where a LOAD reads."""
  return UOp.unique(Ops.STORE, value.dtype, (*place.src[:2], value))


def keep(body: list[UOp], name: str, value: UOp, *axes: Axis) -> UOp:
  """What reads a new variable, after the STORE of a value to it."""
  v = variable(name, value.dtype, *axes)
  body.append(store_over(v, value))
  return v


def put(s: UOp, index: UOp, value: UOp, *gates: UOp) -> UOp:
  """A STORE to the buffer of another one, under a condition that is not always true."""
  return UOp.unique(Ops.STORE, s.dtype, (s.src[0], index, value, *[g for g in gates if g is not ix.TRUE]))


def new_name(prefix: str, names: set[str]) -> str:
  """A name that is not one of some yet, and is from now on."""
  names.add(name := next(n for i in itertools.count() if (n := f"{prefix}{i}") not in names))
  return name


def for_(axis: Axis, end: ix.Dim, *body: UOp) -> UOp: return UOp.unique(Ops.FOR, ix.INT, (ix.node(end), *body), axis.id)
def while_(condition: UOp, *statements: UOp) -> UOp: return UOp.unique(Ops.WHILE, dtypes.bool, (condition, *statements))


def reduce_over(fn: BinaryOps, value: UOp, *axes: Axis) -> UOp:
  """A REDUCE of a value along some axes."""
  return UOp(Ops.REDUCE, value.dtype, (value,), (fn, tuple(a.id for a in axes)))


def with_gated_loads(u: UOp, gate: UOp) -> UOp:
  """A value whose LOADs read where a condition is true only."""
  if gate is ix.TRUE: return u
  def load(old: UOp, new: UOp) -> UOp:
    return new.replace((*new.src[:2], ix.both(gate, *new.src[2:]))) if new.src[0].op is Ops.DEFINE_GLOBAL else new
  return rewrite((u,), {Ops.LOAD: load})[0]
