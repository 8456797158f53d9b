"""Pass: the expanded statements of a part -> the same with a LOOP for each phase of reductions, an accumulator for each REDUCE.

    STORE(y, a0, REDUCE(LOAD(x, a0*4 + a1), ADD, (a1,)))   ->   acc = 0; LOOP(0, 4); PHI(acc, acc + LOAD(x, gidx0*4 + loop));
    STORE(y, gidx0, phi)

Nothing has an order yet: a node knows in which loops it stands, and what its value varies with.
"""
from __future__ import annotations

import itertools
from functools import reduce
from typing import Iterable, Sequence, Union

from .. import index as ix
from ..ir import BinaryOps, Ops, OptError, UOp, dtypes, identity, prod, repeated, toposort, union
from ..kernel import EFFECTS, Axis, AxisKind, Kernel, ids_of, rebuilt, reduce_depths

Loops = frozenset[UOp]
_NONE: Loops = frozenset()
_OWN_LOOPS = Ops.REDUCE, Ops.CACHE_READ
Phase = Union[int, UOp]    # which loops over an axis are one: those of a phase of reductions, or those that fill a local array


def positions(kernel: Kernel) -> dict[int, UOp]:
  """GRID and LOCAL axes from the program's position: the last axis is dimension 0; more than three share dimension 2."""
  out: dict[int, UOp] = {}
  for kind, letter in ((AxisKind.GRID, "g"), (AxisKind.LOCAL, "l")):
    axes = kernel.of_kind(kind)[::-1]
    for d, a in enumerate(axes[:2]): out[a.id] = UOp(Ops.SPECIAL, dtypes.index, (), (letter, d, a.size))
    at = UOp(Ops.SPECIAL, dtypes.index, (), (letter, 2, ix.product(a.size for a in axes[2:])))
    for a in axes[2:]: out[a.id], at = ix.mod(at, a.size), ix.fdiv(at, a.size)
  return out


class _Env(dict[int, UOp]):
  """The LOOPs of axes, and what nodes are that depend on all of these axes, and on no others that have one."""

  def __init__(self, loops: Iterable[tuple[int, UOp]]):
    super().__init__(loops)
    self.made: dict[UOp, UOp] = {}
    self.parts: dict[Loops, _Env] = {}   # axes -> the same of those among them


class LoopNest:
  """The roots of an expanded part with loops and accumulators (``out``), and the loops of every node (``inside``)."""

  def __init__(self, kernel: Kernel, roots: tuple[UOp, ...]):
    self.kernel = kernel
    self.axes = {a.id: a for a in kernel.axes}
    self.tiles = {a.id for a in kernel.tiles}  # those of which all values are taken at once, as a block
    self.order: dict[UOp, tuple[int, int, int]] = {}            # loop -> place in the nesting
    self.loops: dict[tuple[int, Phase, Loops], UOp] = {}        # (axis, phase, surrounding loops) -> LOOP
    self.part: dict[UOp, tuple[Phase, int, int]] = {}           # loop -> phase, the axis that its own is a part of, its own
    self.inside: dict[UOp, Loops] = {}                          # the loops that a linear node stands in
    self.varies: dict[UOp, Loops] = {}                          # the loops that its value varies with
    self.after: dict[UOp, tuple[UOp, ...]] = {}                 # nodes that must come before, beside the sources
    self.step: dict[UOp, int] = {}                              # the copy of a reduced axis that a node first serves
    self.phase = reduce_depths(toposort(roots))
    self.free = self._free(roots)                               # the axes that a node depends on, where sizes do too
    self.special = positions(kernel)
    self.locals = [a for a in kernel.of_kind(AxisKind.LOCAL) if a.known > 1]
    self.barriers: dict[tuple[tuple[UOp, ...], Loops], UOp] = {}
    self.envs: dict[frozenset[tuple[int, UOp]], _Env] = {}
    self.final = 1 + max(self.phase[s] for s in roots)
    self.out = [self.lower_store(s) if s.op in EFFECTS else self.lower(s, self.env(())) for s in roots]

  # ---- axes

  def _free(self, roots: tuple[UOp, ...]) -> dict[UOp, Loops]:
    """The axes that nodes depend on where sizes of loops beneath them need some; empty, as ``UOp.ranges``, where none do."""
    needs = {a.id: a.size.ranges for a in self.kernel.axes if isinstance(a.size, UOp) and a.size.ranges}
    found: dict[UOp, Loops] = {}
    for u in toposort(roots) if needs else ():
      own = union([found[s] for s in u.src], u.ranges)
      if u.op is Ops.REDUCE: own = own.union(*(needs.get(i, _NONE) for i in u.arg[1])) - {self.axes[i].rng for i in u.arg[1]}
      found[u] = own
    return found

  def ranges(self, u: UOp) -> Loops:
    """The axes that a node depends on."""
    return self.free.get(u, u.ranges) if self.free else u.ranges

  def loop(self, id: int, phase: Phase, outer: Loops, env: _Env, items: Axis | None = None) -> UOp:
    """The loop over an axis in a phase (or that fills an array), inside other loops; work-items of ``items`` share its values."""
    if (found := self.loops.get((id, phase, outer))) is None:
      axis = self.axes[id]
      start, step = ix.ZERO, axis.programs
      if axis.programs: start = UOp(Ops.SPECIAL, dtypes.index, (), ("g", 0, step))
      elif items is not None: start, step = self.special[items.id], items.known
      end = ix.node(axis.size)
      if end.ranges: end = self.lower(end, env)
      bounds = tuple(map(self._track, (start, end, *[ix.const(step)] * (step > 0))))
      found = self.loops[id, phase, outer] = UOp.unique(Ops.LOOP, dtypes.index, bounds, "flatten" if axis.programs else None)
      self.inside[found] = self.varies[found] = outer | {found}
      self.part[found] = phase, id if axis.rest_of is None else axis.rest_of, id
      # surrounding loops come first
      self.order[found] = len(outer), -1 if isinstance(phase, UOp) else phase, self.kernel.axes.index(axis)
    return found

  def apart(self, a: UOp, b: UOp) -> bool:
    """Whether two nodes stand in loops over different parts of one axis, in one phase: neither has to come before the other."""
    parts = {self.part[l][:2]: self.part[l][2] for l in self.inside[a]}
    return any(parts.get(self.part[l][:2], self.part[l][2]) != self.part[l][2] for l in self.inside[b])

  def nest(self, u: UOp, env: _Env) -> tuple[_Env, list[UOp], Loops]:
    """The loops that the sources of a node with loops of its own stand in: the LOOP of each axis, its own ones (of a REDUCE over
    the axes that it binds, without TILE axes; of a CACHE_READ those that fill its array), and the ones around these."""
    axes: tuple[int, ...]
    phase: Phase
    if u.op is Ops.REDUCE:
      axes, phase, ranges = tuple(i for i in u.arg[1] if i not in self.tiles), self.phase[u], self.ranges(u)
    else: axes, phase, ranges = u.arg, u.src[1], _NONE.union(*(f.ranges for f in u.src[2:]))
    outer = union([self.varies[env[r.arg[0]]] for r in ranges if r.arg[0] in env and r.arg[0] not in axes])
    inner, loops = dict(env), list[UOp]()
    items = [a for a in self.locals if a.rng not in ranges] if u.op is Ops.CACHE_READ else []   # who would copy the same
    for i, a in itertools.zip_longest(axes, items[:len(axes)]):
      inner[i] = self.loop(i, phase, outer.union(loops), self.env(inner.items()), a)
      loops.append(inner[i])
    return self.env(inner.items()), loops, outer

  # ---- nodes

  def lower_store(self, u: UOp) -> UOp:
    """Output LOOP axes get their loops: those that no reduction binds surround everything, the bound ones the last phase."""
    env, bound = self.env(()), self.kernel.bound
    for a in sorted([a for a in self.kernel.loops if a.rng in u.ranges], key=lambda a: a.id in bound):
      loop = self.loop(a.id, self.final if a.id in bound else 0, _NONE.union(env.values()), env)
      env = self.env([*env.items(), (a.id, loop)])
    return self.lower(u, env)

  def lower(self, root: UOp, env: _Env) -> UOp:
    """``root`` with axes replaced by loops and positions."""
    stack = [(root, env)]
    while stack:   # sources first: graphs are deeper than Python's stack
      u, e = stack[-1]
      if u not in (made := self.within(u, e).made):
        inner, loops, outer = self.nest(u, e) if u.op in _OWN_LOOPS else (e, [], _NONE)
        at = [(s, inner) for s in u.src]
        if u.op is Ops.CACHE_READ: at[0] = u.src[0], e   # where to read, which the loops do not go through
        src = tuple([new[s] for s, x in at if s in (new := self.within(s, x).made)])
        if len(src) < len(at):
          stack.extend([(s, x) for s, x in at if s not in self.within(s, x).made])
          continue
        if u.op is Ops.REDUCE: made[u] = self.reduce(u, src, loops, outer)
        elif u.op is Ops.CACHE_READ: made[u] = self.cache_read(u, src, outer)
        else: made[u] = self.node(u, src, e)
      stack.pop()
    return self.within(root, env).made[root]

  def within(self, u: UOp, env: _Env) -> _Env:
    """The loops of those axes that a node depends on."""
    ranges = self.ranges(u)
    if (found := env.parts.get(ranges)) is None:
      found = env.parts[ranges] = self.env([(r.arg[0], env[r.arg[0]]) for r in ranges if r.arg[0] in env])
    return found

  def env(self, loops: Iterable[tuple[int, UOp]]) -> _Env:
    """The one with these loops of axes."""
    if (found := self.envs.get(key := frozenset(loops))) is None: found = self.envs[key] = _Env(loops)
    return found

  def node(self, u: UOp, src: tuple[UOp, ...], env: _Env) -> UOp:
    """A node without loops of its own."""
    if u.op is Ops.RANGE:
      if (i := u.arg[0]) in env: return env[i]
      if i in self.special: return self._track(self.special[i])
      if i in self.tiles: return self._track(u)   # the node stands for a block
      raise OptError(f"axis a{i} has kind {self.axes[i].kind}, which this target does not take")
    return self._track(rebuilt(u, src))

  def _track(self, u: UOp) -> UOp:
    """Note the loops of a node: those that its sources vary with."""
    stack = [u] if u not in self.varies else []
    while stack:   # a folded node may be made of new ones
      n = stack[-1]
      if missing := [s for s in n.src if s not in self.varies]: stack += missing
      else: self.inside[n] = self.varies[n] = union([self.varies[s] for s in stack.pop().src])
    return u

  def over_tiles(self, fn: BinaryOps, value: UOp, tiles: list[int]) -> UOp:
    """A block reduced over TILE axes; those that the value does not vary along only say how often it counts."""
    there = ids_of(value)
    if over := tuple(i for i in tiles if i in there): value = UOp(Ops.REDUCE, value.dtype, (value,), (fn, over))
    return self._track(repeated(fn, value, prod(self.axes[i].known for i in tiles if i not in there)))

  def reduce(self, u: UOp, parts: Sequence[UOp], loops: list[UOp], outer: Loops) -> UOp:
    """acc = identity; for ..: acc = value + acc. Over TILE axes it stays a REDUCE, of a block."""
    fn, bound = u.arg
    if tiles := [i for i in bound if i in self.tiles]: parts = [self.over_tiles(fn, p, tiles) for p in parts]
    if not loops: return reduce(lambda x, y: self._track(UOp.alu(fn, x, y, dtype=u.dtype)), parts)
    acc = UOp.unique(Ops.DEFINE_ACC, u.dtype, (), identity(fn, u.dtype))
    self.inside[acc], self.varies[acc] = outer, outer.union(loops)
    total = acc
    for j, p in enumerate(parts):
      total = UOp.alu(fn, *((p, acc) if total is acc else (total, p)), dtype=u.dtype)
      # accumulators advance together: what the j-th copy reads is used by all of them before the next is loaded
      for n in toposort((total,), stop=self.step.__contains__): self.step.setdefault(n, j)
      self.inside[total] = self.varies[total] = self.varies[p] | self.varies[acc]
    phi = UOp.unique(Ops.PHI, u.dtype, (acc, total, *loops))
    self.inside[phi], self.varies[phi] = outer.union(loops), outer
    return phi

  def cache_read(self, u: UOp, src: tuple[UOp, ...], outer: Loops) -> UOp:
    """for ..: local[..] = value; then reads of it. Work-items wait before the array is filled, and before it is read."""
    at, local, *fills = src
    out = UOp(Ops.LOAD, u.dtype, (local, at))
    self.inside[out] = self.varies[out] = self.varies[at] | outer
    self.after[out] = (self.filled(tuple(fills), outer),) if self.locals else tuple(fills)
    return out

  def filled(self, fills: tuple[UOp, ...], outer: Loops) -> UOp:
    """The BARRIER behind the STOREs that fill an array; another comes before them. All stand in the same loops."""
    if (fills, outer) not in self.barriers:
      before, behind = (UOp.unique(Ops.BARRIER, dtypes.bool) for _ in range(2))
      self.inside[before] = self.inside[behind] = outer
      stores = [UOp.unique(f.op, f.dtype, f.src, f.arg) for f in fills]
      for f, s in zip(fills, stores): self.inside[s], self.after[s] = self.inside[f] | outer, (before,)
      self.after[behind] = tuple(stores)
      self.barriers[fills, outer] = behind
    return self.barriers[fills, outer]
