"""Pass: the expanded statements of a part -> the same with loops: each phase of reductions its LOOP, each REDUCE its accumulator.

    STORE(y, a0, REDUCE(LOAD(x, a0*4 + a1), ADD, (a1,)))   ->   acc = 0; LOOP(0, 4); PHI(acc, acc + LOAD(x, gidx0*4 + loop));
    STORE(y, gidx0, phi)

Nothing has an order yet: a node knows in which loops it stands, and what its value varies with.
"""
from __future__ import annotations

from typing import Any

from . import index as ix
from .dtype import dtypes
from .errors import OptError
from .functions import identity
from .kernel import EFFECTS, AxisKind, Kernel
from .uop import BinaryOps, Ops, UOp, prod, repeated, toposort

Loops = frozenset[UOp]
NONE: Loops = frozenset()
Env = dict[int, UOp]   # axis -> what stands for it: a LOOP


def positions(kernel: Kernel) -> dict[int, UOp]:
  """GRID and LOCAL axes from the program's position: the last axis is dimension 0; more than three share dimension 2."""
  out: dict[int, UOp] = {}
  for kind, letter in ((AxisKind.GRID, "g"), (AxisKind.LOCAL, "l")):
    axes = kernel.of_kind(kind)[::-1]
    for d, a in enumerate(axes[:2]): out[a.id] = UOp(Ops.SPECIAL, dtypes.index, (), (letter, d, a.size))
    rest = axes[2:]
    total = 1
    for a in rest: total *= a.size
    if rest:
      at = UOp(Ops.SPECIAL, dtypes.index, (), (letter, 2, total))
      for a in rest[:-1]:
        out[a.id] = ix.mod(at, a.size)
        at = ix.fdiv(at, a.size)
      out[rest[-1].id] = at
  return out


class LoopNest:
  """The roots of an expanded part with loops and accumulators (``out``), and for every node the loops that it stands in
  (``inside``)."""

  def __init__(self, kernel: Kernel, roots: tuple[UOp, ...]):
    self.kernel = kernel
    self.size = {a.id: a.size for a in kernel.axes}
    self.programs = {a.id: a.programs for a in kernel.axes}
    self.order: dict[UOp, tuple[int, int, int]] = {}                 # loop -> place in the nesting
    self.loops: dict[tuple[Any, ...], UOp] = {}                 # (axis, phase, surrounding loops) -> LOOP
    self.inside: dict[UOp, Loops] = {}                          # the loops that a linear node stands in
    self.outside: dict[UOp, Loops] = {}                         # the loops that its value varies with, seen from its users
    self.after: dict[UOp, tuple[UOp, ...]] = {}                 # nodes that must come before, beside the sources
    self.step: dict[UOp, int] = {}                              # the copy of a reduced axis that a node first serves
    self.phase: dict[UOp, int] = {}
    for u in toposort(roots):
      below = max((self.phase[s] for s in u.src), default=0)
      self.phase[u] = below + (u.op is Ops.REDUCE)
    self.special = positions(kernel)
    self.memo: dict[tuple[UOp, frozenset[tuple[int, UOp]]], UOp] = {}
    self.final = 1 + max(self.phase[s] for s in roots)
    self.out = [self.lower_store(s) if s.op in EFFECTS else self.lower(s, {}) for s in roots]

  # ---- axes

  def loop(self, axis: int, phase: int | UOp, around: Loops) -> UOp:
    """The loop over an axis in a phase (or, for the array of a CACHE_READ, the one that fills it)."""
    key = (axis, phase, around)
    found = self.loops.get(key)
    if found is None:
      n = self.programs[axis]
      end = ix.const(self.size[axis])
      bounds = (UOp(Ops.SPECIAL, dtypes.index, (), ("g", 0, n)), end, ix.const(n)) if n else (ix.const(0), end)
      for b in bounds: self._track(b)
      found = self.loops[key] = UOp.unique(Ops.LOOP, dtypes.index, bounds, "flatten" if n else None)
      self.inside[found] = self.outside[found] = around | {found}
      # surrounding loops come first
      self.order[found] = (len(around), -1 if isinstance(phase, UOp) else phase, [a.id for a in self.kernel.axes].index(axis))
    return found

  # ---- nodes

  def lower_store(self, u: UOp) -> UOp:
    """Output LOOP axes get their loops: those that no reduction binds surround everything, the bound ones the last phase."""
    env: Env = {}
    around: Loops = NONE
    ranges = {r.arg[0] for r in u.ranges}
    for a in sorted(self.kernel.of_kind(AxisKind.LOOP), key=lambda a: a.id in self.kernel.bound):
      if a.id in ranges:
        env[a.id] = self.loop(a.id, self.final if a.id in self.kernel.bound else 0, around)
        around |= {env[a.id]}
    return self.lower(u, env)

  def lower(self, root: UOp, env: Env) -> UOp:
    """``root`` with axes replaced by loops and positions."""
    def key(u: UOp, e: Env) -> tuple[UOp, frozenset[tuple[int, UOp]]]:
      return (u, frozenset((r.arg[0], e[r.arg[0]]) for r in u.ranges if r.arg[0] in e))
    stack = [(root, env)]
    while stack:   # sources first: graphs are deeper than Python's stack
      u, e = stack[-1]
      k = key(u, e)
      if k in self.memo:
        stack.pop()
        continue
      within = self.nest(u, e)[0] if u.op is Ops.REDUCE else e
      missing = [(s, within) for s in u.src if key(s, within) not in self.memo] if u.op is not Ops.CACHE_READ else []
      if missing: stack.extend(missing)
      elif u.op in (Ops.REDUCE, Ops.CACHE_READ): self.memo[k] = (self.reduce if u.op is Ops.REDUCE else self.cache_read)(u, e)
      else: self.memo[k] = self.node(u, tuple([self.memo[key(s, e)] for s in u.src]), e)
    return self.memo[key(root, env)]

  def node(self, u: UOp, src: tuple[UOp, ...], env: Env) -> UOp:
    if u.op is Ops.RANGE:
      i = u.arg[0]
      if i in env: return env[i]
      if i in self.special: return self._track(self.special[i])
      if self.kernel.axis(i).kind is AxisKind.TILE: return self._track(u)   # all at once: the node stands for a block
      raise OptError(f"axis a{i} has kind {self.kernel.axis(i).kind}, which this target does not take")
    new = u.replace(src)
    folded = ix.fold(new) if src != u.src else None
    return self._track(folded or new)

  def _track(self, u: UOp) -> UOp:
    if u not in self.outside:
      for n in toposort((u,), stop=self.outside.__contains__):
        if n not in self.outside: self.inside[n] = self.outside[n] = NONE.union(*(self.outside[s] for s in n.src))
    return u

  def over_tiles(self, fn: BinaryOps, value: UOp, tiles: tuple[int, ...]) -> UOp:
    """A block reduced over TILE axes; those that the value does not vary along only say how often it counts."""
    there = {r.arg[0] for r in value.ranges}
    over = tuple(i for i in tiles if i in there)
    if over: value = UOp(Ops.REDUCE, value.dtype, (value,), (fn, over))
    return repeated(fn, value, prod(self.kernel.axis(i).size for i in tiles if i not in there))

  def nest(self, u: UOp, env: Env) -> tuple[Env, list[UOp], Loops]:
    """Around the value of a REDUCE: its axes, its own loops, and the loops around those."""
    outer = {r.arg[0] for r in u.ranges if r.arg[0] in env}
    around: Loops = NONE.union(*(self.outside[env[i]] for i in outer))
    inner, nest = dict(env), list[UOp]()
    for i in u.arg[1]:
      if self.kernel.axis(i).kind is AxisKind.TILE: continue
      inner[i] = self.loop(i, self.phase[u], around.union(nest))
      nest.append(inner[i])
    return inner, nest, around

  def reduce(self, u: UOp, env: Env) -> UOp:
    """acc = identity; for ..: acc = value + acc. Over TILE axes it stays a REDUCE, of a block."""
    fn, bound = u.arg
    tiles = tuple(i for i in bound if self.kernel.axis(i).kind is AxisKind.TILE)
    inner, nest, around = self.nest(u, env)
    parts = [self.lower(s, inner) for s in u.src]
    if tiles: parts = [self._track(self.over_tiles(fn, p, tiles)) for p in parts]
    if not nest:
      whole = parts[0]
      for p in parts[1:]: whole = self._track(UOp.alu(fn, whole, p, dtype=u.dtype))
      return whole
    acc = UOp.unique(Ops.DEFINE_ACC, u.dtype, (), identity(fn, u.dtype))
    self.inside[acc] = around
    self.outside[acc] = around.union(nest)
    total = acc
    for j, p in enumerate(parts):
      total = UOp.alu(fn, p, acc, dtype=u.dtype) if total is acc else UOp.alu(fn, total, p, dtype=u.dtype)
      # accumulators advance together: what the j-th copy reads is used by all of them before the next is loaded
      for n in toposort((total,), stop=self.step.__contains__): self.step.setdefault(n, j)
      self.inside[total] = self.outside[total] = self.outside[p] | self.outside[acc]
    phi = UOp.unique(Ops.PHI, u.dtype, (acc, total, *nest))
    self.inside[phi] = around.union(nest)
    self.outside[phi] = around
    return phi

  def cache_read(self, u: UOp, env: Env) -> UOp:
    """for ..: local[..] = value; then reads of it"""
    at, local, fills = u.src[0], u.src[1], u.src[2:]
    own = {r.arg[0] for f in fills for r in f.ranges} - set(u.arg)
    around: Loops = NONE.union(*(self.outside[env[i]] for i in own if i in env))
    inner = dict(env)
    nest: list[UOp] = []
    for i in u.arg:
      inner[i] = self.loop(i, local, around.union(nest))
      nest.append(inner[i])
    self._track(local)
    filled = tuple(self.lower(f, inner) for f in fills)
    where = self.lower(at, env)
    out = UOp(Ops.LOAD, u.dtype, (local, where))
    self.inside[out] = self.outside[out] = self.outside[where] | around
    self.after[out] = filled
    return out
