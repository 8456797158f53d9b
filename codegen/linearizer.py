"""From a kernel to its list of UOps: of one whose statements are STOREs that need no order, or of one statement of a program.

By now nothing is left to decide: expansion made the copies, so this gives each phase its loop, each reduction its accumulator, each
index its width, and puts nodes in the innermost loop that they depend on.
"""
from __future__ import annotations

import heapq
from typing import Any, Iterable

from . import index as ix
from .dtype import DType, dtypes
from .errors import OptError
from .expand import expand
from .kernel import EFFECTS, AxisKind, Kernel
from .optimize import optimize
from .opts import Local, Opt, Pad, Serial, Split, Unroll, Upcast, Vectorize
from .rewrite import rewrite
from .uop import BinaryOps, Ops, UOp, UOpList, identity, prod, repeated, toposort

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


class Lowering:
  """Loops, accumulators and integer widths for the expanded STOREs of a kernel."""

  def __init__(self, kernel: Kernel, stores: tuple[UOp, ...]):
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
    for u in toposort(stores):
      below = max((self.phase[s] for s in u.src), default=0)
      self.phase[u] = below + (u.op is Ops.REDUCE)
    self.special = positions(kernel)
    self.memo: dict[tuple[UOp, frozenset[tuple[int, UOp]]], UOp] = {}
    self.final = 1 + max(self.phase[s] for s in stores)
    self.out = [self.lower_store(s) if s.op in EFFECTS else self.lower(s, {}) for s in stores]

  # ---- axes

  def loop(self, axis: int, phase: int | UOp, around: Loops) -> UOp:
    """The loop over an axis in a phase (or, for a staged array, the one that fills it)."""
    key = (axis, phase, around)
    found = self.loops.get(key)
    if found is None:
      n = self.programs[axis]
      end = ix.const(self.size[axis])
      bounds = (UOp(Ops.SPECIAL, dtypes.index, (), ("g", 0, n)), end, ix.const(n)) if n else (ix.const(0), end)
      for b in bounds: self._track(b)
      found = self.loops[key] = UOp.fresh(Ops.LOOP, dtypes.index, bounds, "flatten" if n else None)
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
      missing = [(s, within) for s in u.src if key(s, within) not in self.memo] if u.op is not Ops.STAGE else []
      if missing: stack.extend(missing)
      elif u.op in (Ops.REDUCE, Ops.STAGE): self.memo[k] = (self.reduce if u.op is Ops.REDUCE else self.stage)(u, e)
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
    acc = UOp.fresh(Ops.DEFINE_ACC, u.dtype, (), identity(fn, u.dtype))
    self.inside[acc] = around
    self.outside[acc] = around.union(nest)
    total = acc
    for j, p in enumerate(parts):
      total = UOp.alu(fn, p, acc, dtype=u.dtype) if total is acc else UOp.alu(fn, total, p, dtype=u.dtype)
      # accumulators advance together: what the j-th copy reads is used by all of them before the next is loaded
      for n in toposort((total,), stop=self.step.__contains__): self.step.setdefault(n, j)
      self.inside[total] = self.outside[total] = self.outside[p] | self.outside[acc]
    phi = UOp.fresh(Ops.PHI, u.dtype, (acc, total, *nest))
    self.inside[phi] = around.union(nest)
    self.outside[phi] = around
    return phi


  def stage(self, u: UOp, env: Env) -> UOp:
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


class Emitter:
  """Puts nodes into blocks (one a loop) and blocks into a list: a priority topological sort."""
  FIRST = {Ops.DEFINE_GLOBAL: -5, Ops.DEFINE_LOCAL: -4, Ops.SPECIAL: -3, Ops.DEFINE_ACC: -2, Ops.CONST: -1}

  def __init__(self, low: Lowering):
    self.low = low
    nodes = toposort([*(f for fills in low.after.values() for f in fills), *low.out])
    self._read_first(nodes)
    self.rank = {u: i for i, u in enumerate(nodes)}
    loops = sorted((u for u in nodes if u.op is Ops.LOOP), key=lambda l: low.order[l])
    need: dict[UOp, set[UOp]] = {l: set(low.inside[l]) - {l} for l in loops}
    place = {l: i for i, l in enumerate(loops)}
    for u in nodes:
      s = sorted(low.inside[u], key=lambda l: place[l])
      for i, l in enumerate(s): need[l].update(s[:i])
    self.parent: dict[UOp, UOp | None] = {}
    for l in reversed(loops):
      p = max(need[l], key=lambda x: place[x], default=None)
      self.parent[l] = p
      if p is not None: need[p] |= need[l] - {p}
    self.place = place
    self.block: dict[UOp, UOp | None] = {}
    self.members: dict[UOp | None, list[UOp]] = {None: []}
    for l in loops: self.members[l] = []
    for u in nodes:
      if u.op is Ops.LOOP: b = self.parent[u]
      else: b = max(low.inside[u], key=lambda x: place[x], default=None)
      self.block[u] = b
      self.members[b].append(u)
    self.out = UOpList()
    self.emit(None)

  def _read_first(self, nodes: list[UOp]) -> None:
    """What is read of a parameter that the kernel also writes is the old contents: loads come before its stores."""
    loads: dict[UOp, list[UOp]] = {}
    for u in nodes:
      if u.op is Ops.LOAD: loads.setdefault(u.src[0], []).append(u)
    for u in nodes:
      if u.op is Ops.STORE and u.src[0].op is Ops.DEFINE_GLOBAL and u.src[0] in loads: self.low.after[u] = tuple(loads[u.src[0]])

  def chain(self, b: UOp | None) -> list[UOp | None]:
    out: list[UOp | None] = [b]
    while b is not None:
      b = self.parent[b]
      out.append(b)
    return out

  def emit(self, b: UOp | None) -> None:
    """The nodes of block ``b`` in order; a loop among them stands for its whole body."""
    members = self.members[b]
    unit: dict[UOp, UOp] = {}
    def own(u: UOp) -> UOp | None:
      """The member of this block that ``u`` is, or lies in."""
      if u in unit: return unit[u]
      x = u if u.op is Ops.LOOP and self.block[u] == b else None
      c = self.block[u]
      if c == b: x = u
      while x is None and c is not None:
        if self.parent[c] == b: x = c
        c = self.parent[c]
      if x is not None: unit[u] = x
      return x
    inner: dict[UOp, list[UOp]] = {u: [u] for u in members}
    for c, us in self.members.items():
      if c is None or c is b: continue
      top = next((x for x in self.chain(c) if x is not None and self.parent[x] == b), None)
      if top is not None and top in inner: inner[top].extend(us)
    waits: dict[UOp, set[UOp]] = {u: set() for u in members}
    users: dict[UOp, list[UOp]] = {u: [] for u in members}
    for u in members:
      for n in inner[u]:
        for s in (*n.src, *self.low.after.get(n, ())):
          o = own(s)
          if o is not None and o is not u and o not in waits[u] and o in waits:
            waits[u].add(o)
            users[o].append(u)
    def priority(u: UOp) -> tuple[int, int, int]:
      if u.op is Ops.PHI: return (3, 0, self.rank[u])
      if u.op is Ops.LOOP: return (1, 0, self.rank[u])
      return (self.FIRST.get(u.op, 0), self.low.step.get(u, 0), u.arg[0] if u.op is Ops.DEFINE_GLOBAL else self.rank[u])
    heap = [(*priority(u), i) for i, u in enumerate(members) if not waits[u]]
    heapq.heapify(heap)
    number = {u: i for i, u in enumerate(members)}
    while heap:
      u = members[heapq.heappop(heap)[-1]]
      self.out.append(u)
      if u.op is Ops.LOOP:
        self.emit(u)
        self.out.append(UOp.fresh(Ops.ENDLOOP, u.dtype, (u,)))
      for v in users[u]:
        waits[v].discard(u)
        if not waits[v]: heapq.heappush(heap, (*priority(v), number[v]))


def lower_index(uops: Iterable[UOp]) -> UOpList:
  """dtype ``index`` becomes int32 where the ranges prove that it is enough, else int64."""
  new: dict[UOp, UOp] = {}
  out = UOpList()
  wide = (-(1 << 31), (1 << 31) - 1)
  def width(u: UOp) -> DType:
    lo, hi = ix.bounds(u)
    fits = wide[0] <= lo and hi <= wide[1] and all(new[s].dtype.itemsize <= 4 for s in u.src if s.dtype.scalar() is dtypes.index)
    return (dtypes.int32 if fits else dtypes.int64).vec(u.dtype.count)
  def widen(s: UOp, d: DType) -> UOp:
    n = new[s]
    if n.dtype.scalar() is d.scalar() or s.dtype.scalar() is not dtypes.index: return n
    c = UOp.const(d.scalar(), n.arg) if n.op is Ops.CONST else UOp(Ops.CAST, d.scalar().vec(n.dtype.count), (n,))
    if c not in seen:
      seen.add(c)
      # beside what it widens, so that every loop which sees that sees it too; a PHI is seen after its loops
      beside = n
      if n.op is Ops.PHI: beside = max((ended[l] for l in n.src[2:] if l in ended), key=out.index, default=n)
      after.setdefault(beside, []).append(c)
    return c
  seen: set[UOp] = set()
  ended: dict[UOp, UOp] = {}
  after: dict[UOp, list[UOp]] = {}
  for u in uops:
    src = u.src
    d = u.dtype
    if d.scalar() is dtypes.index and u.op is not Ops.ENDLOOP: d = width(u)
    at = [s for s in src if s.dtype.scalar() is dtypes.index]
    if u.op in (Ops.ALU, Ops.LOOP, Ops.VECTORIZE) and at:
      wide_source = any(new[s].dtype.itemsize > 4 for s in at)
      w = dtypes.int64 if wide_source or (u.dtype.scalar() is dtypes.index and d.itemsize > 4) else dtypes.int32
      srcs = tuple(widen(s, w) for s in src)
    else: srcs = tuple(new[s] for s in src)
    if srcs == src and d is u.dtype: n = u
    elif u.op is Ops.CAST and srcs[0].dtype is d: n = srcs[0]
    else: n = (UOp.fresh if u.lone or u.op in (Ops.LOOP, Ops.PHI, Ops.ENDLOOP, Ops.STORE) else UOp)(u.op, d, srcs, u.arg)
    new[u] = n
    if n.op is Ops.ENDLOOP: ended[n.src[0]] = n
    if n not in seen:
      seen.add(n)
      out.append(n)
  return UOpList(x for n in out for x in (n, *after.get(n, ())))


def linearize(kernel: Kernel, target: Any = None) -> UOpList:
  """The kernel's linear UOps. ``target`` chooses Opts for the statements of a kernel that has an order of them."""
  if not kernel.plain:
    from .program import linearize_program
    return linearize_program(kernel, target)
  kernel = limit_additions(kernel)
  return lower_index(Emitter(Lowering(kernel, expand(kernel))).out)


MOST_ADDITIONS = 4096


def limit_additions(kernel: Kernel) -> Kernel:
  """No float accumulator takes more than 4,096 sequential additions (DESIGN section 6, rule 2): long sums become sums of sums."""
  def sequential(u: UOp) -> list[int]:
    return [i for i in u.arg[1] if kernel.axis(i).kind in (AxisKind.LOOP, AxisKind.GRID)]
  for u in kernel.reduces:
    if u.arg[0] is not BinaryOps.ADD or u.dtype.kind != "f": continue
    for i in sequential(u):
      n = kernel.axis(i).size
      if n > MOST_ADDITIONS:
        inner = next((f for f in range(MOST_ADDITIONS, 31, -1) if n % f == 0), 0)
        if inner: return limit_additions(Split(i, inner).apply(kernel))
        return limit_additions(Split(i, 1024).apply(Pad(i, 1024).apply(kernel)))
  def sums(old: UOp, new: UOp) -> UOp | None:
    ids, long = list(old.arg[1]), sequential(old)
    if old.arg[0] is not BinaryOps.ADD or old.dtype.kind != "f": return None
    groups: list[list[int]] = [[]]
    for i in reversed(long):
      if groups[-1] and prod(kernel.axis(j).size for j in (i, *groups[-1])) > MOST_ADDITIONS: groups.append([])
      groups[-1].insert(0, i)
    if len(groups) == 1: return None
    groups[0] += [i for i in ids if i not in long]
    total = new.src[0]
    for g in groups: total = UOp(Ops.REDUCE, old.dtype, (total,), (BinaryOps.ADD, tuple(sorted(g, key=ids.index))))
    return total
  return kernel.with_(body=rewrite(kernel.body, {Ops.REDUCE: sums}))


class Linearizer:
  """Drives a kernel by hand: Opts, then ``linearize()``, then ``.uops``.

  Nothing is applied but what is called; ``optimize()`` applies what realising on ``target`` would. ``Linearizer(*item.ast)`` works as well.
  """

  def __init__(self, ast: Kernel, target: Any = None):
    self.kernel, self.target = ast, target
    self.uops = UOpList()

  def apply(self, opt: Opt) -> Linearizer:
    """Apply an Opt. Raises OptError where it cannot be."""
    self.kernel = opt.apply(self.kernel)
    return self

  def optimize(self) -> Linearizer:
    """Apply the heuristics of the target (a ``backends.base.Target``). Raises OptError without one."""
    if self.target is None: raise OptError("Linearizer.optimize: no target was given; Linearizer(ast, target) takes a Target")
    self.kernel = optimize(self.kernel, self.target)
    return self

  def _last(self, axis: int | None) -> int:
    if axis is not None: return axis
    if not self.kernel.axes: raise OptError("the kernel has no axis left to work on")
    loops = [a for a in self.kernel.axes if a.kind in (AxisKind.LOOP, AxisKind.GRID)]
    if not loops: raise OptError("every axis of the kernel is expanded already")
    return loops[-1].id

  def upcast(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Copies of the last (or given) axis instead of a loop; on a reduced axis this is ``unroll``."""
    a = self._last(axis)
    return self.apply((Unroll if a in self.kernel.bound else Upcast)(a, amount))

  def unroll(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Copies of a reduced axis, added up in index order."""
    return self.apply(Unroll(self._last(axis), amount))

  def lane(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Vector lanes along an axis."""
    return self.apply(Vectorize(self._last(axis), amount))

  def tile(self, axis: int, amount: int) -> Linearizer:
    """An axis in blocks of ``amount``, gone through by a loop."""
    return self.apply(Serial(axis, amount))

  def local(self, axis: int | None = None, amount: int | None = None) -> Linearizer:
    """Work-items of a group along an axis."""
    return self.apply(Local(self._last(axis), amount))

  def linearize(self) -> Linearizer:
    """Make ``uops``."""
    self.uops = linearize(self.kernel, self.target)
    return self
