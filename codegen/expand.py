"""Expansion: UPCAST and UNROLL axes become copies, LANE axes become vectors, indices become one flat index a buffer.

What is left depends on GRID, LOCAL and LOOP axes only. A REDUCE then has one source a copy, taken in index order by one
accumulator.
"""
from __future__ import annotations

import itertools
from typing import Any

from . import index as ix
from .dtype import dtypes
from .errors import OptError
from .kernel import EFFECTS, AxisKind, Kernel
from .rewrite import rewrite, substitute
from .uop import BinaryOps, Ops, UOp, prod
from .view import strides_of

Env = tuple[tuple[UOp, int], ...]  # a value for each copied axis, in axis order


_VALUES = frozenset({Ops.ALU, Ops.CAST, Ops.BITCAST, Ops.REDUCE, Ops.SCAN, Ops.SORT})   # of values


def within(u: UOp, env: Env) -> Env:
  """Of the copied axes those that a node depends on."""
  rs = u.ranges
  return tuple((r, n) for r, n in env if r in rs)


class Expander:
  """Expands one kernel. ``run`` gives STOREs without UPCAST, UNROLL and LANE axes."""

  def __init__(self, kernel: Kernel):
    self.kernel = kernel
    self.copied = [a for a in kernel.axes if a.kind in (AxisKind.UPCAST, AxisKind.UNROLL) and a.size > 1]
    lanes = [a for a in kernel.axes if a.kind is AxisKind.LANE and a.size > 1]
    if len(lanes) > 1: raise OptError(f"a kernel has one LANE axis, got {len(lanes)}")
    self.lane = lanes[0].rng if lanes else None
    self.width = lanes[0].size if lanes else 1
    self.shapes = {p.uop: p.shape for p in kernel.params}
    self.memo: dict[tuple[UOp, Env], UOp] = {}
    self.filled: dict[tuple[UOp, Env], UOp] = {}   # the same of indices and conditions
    self.by_id = {a.id: a for a in kernel.axes}
    self.caches: dict[UOp, tuple[tuple[int, ...], UOp, list[UOp]]] = {}   # CACHE_READ -> loops that fill it, its array, stores

  def run(self) -> tuple[UOp, ...]:
    return tuple(out for s in self.kernel.body for out in (self.store(s) if s.op in EFFECTS else [self.value(s, ())]))

  def envs(self, over: list[Any]) -> list[Env]:
    return [tuple(zip([a.rng for a in over], point)) for point in itertools.product(*(range(a.size) for a in over))]

  # ---- values

  def value(self, u: UOp, env: Env) -> UOp:
    """The value of ``u`` where the copied axes have the values of ``env``; a vector where it varies along the lane axis."""
    first = (u, within(u, env))
    stack = [first]
    while stack:   # sources first: graphs are deeper than Python's stack
      if (at := stack[-1]) in self.memo:
        stack.pop()
        continue
      missing = [s for s in self.needed(*at) if s not in self.memo]
      if missing: stack.extend(missing)
      else:
        self.memo[at] = self._value(*at)
        stack.pop()
    return self.memo[first]

  def needed(self, u: UOp, env: Env) -> list[tuple[UOp, Env]]:
    """The values that the value of a node is made of, each where it is needed."""
    if u.dtype is dtypes.index or u.op not in _VALUES: return []
    if u.op is Ops.REDUCE: return [(u.src[0], within(u.src[0], at)) for at in self.copies(u, env)]
    return [(s, within(s, env)) for s in u.src if s.dtype is not dtypes.index]

  def _value(self, u: UOp, env: Env) -> UOp:
    if u.op is Ops.CONST: return u
    if u.dtype is dtypes.index: return self.index_lanes(self.at(u, env))
    if u.op is Ops.LOAD: return self.load(u, env)
    if u.op is Ops.REDUCE: return self.reduce(u, env)
    if u.op is Ops.CACHE_READ: return self.cache_read(u, env)
    if u.op in (Ops.SCAN, Ops.SORT): return UOp(u.op, u.dtype, (self.value(u.src[0], env),), u.arg)
    if u.op in (Ops.ALU, Ops.CAST, Ops.BITCAST):
      if u.op is Ops.ALU and u.dtype is dtypes.bool and all(s.dtype is dtypes.index for s in u.src):
        return self.compared(self.at(u, env))
      src = tuple(self.value(s, env) for s in u.src)
      n = max(s.dtype.count for s in src)
      out = UOp(u.op, u.dtype.vec(n), src, u.arg)
      return ix.fold(out) or out
    raise OptError(f"{u.op} cannot stand in a kernel body")

  def at(self, u: UOp, env: Env) -> UOp:
    """An index or condition with the copied axes filled in; loads inside are expanded too. Still scalar along the lane axis."""
    env = within(u, env)
    found = self.filled.get((u, env))
    if found is None:
      known = {r: ix.const(n) for r, n in env}
      found, = rewrite((u,), {Ops.LOAD: lambda old, new: self.scalar_load(new)}, known)
      self.filled[u, env] = found
    return found

  def lanes_of(self, u: UOp) -> list[UOp]:
    """A scalar expression of the lane axis, once for each lane."""
    assert self.lane is not None
    step = self.step_of(u) if u.dtype is dtypes.index else None
    if step is not None:
      first = ix.sub(u, ix.mul(self.lane, step))
      return [ix.add(first, i * step) for i in range(self.width)]
    return [substitute((u,), {self.lane: ix.const(i)})[0] for i in range(self.width)]

  def step_of(self, u: UOp) -> int | None:
    """What an index moves by from lane to lane; None where that is not the same everywhere."""
    step = 0
    for atom, k in ix.linear(u)[0]:
      if atom is self.lane: step += k
      elif self.lane in atom.ranges: return None
    return step

  def contiguous(self, at: UOp, ats: list[UOp]) -> bool:
    """Whether the lanes of an index follow one another (a step that depends on ranges, as in (8*i + lane) // 8, shows lane by
    lane)."""
    step = self.step_of(at)
    return step == 1 if step is not None else all(ix.sub(a, ats[0]) is ix.const(i) for i, a in enumerate(ats))

  def index_lanes(self, u: UOp) -> UOp:
    """An index as a value: a vector where it depends on the lane axis."""
    if self.lane is None or self.lane not in u.ranges: return u
    lanes = self.lanes_of(u)
    steps = [ix.sub(x, lanes[0]) for x in lanes]
    if all(s.op is Ops.CONST for s in steps):
      return UOp(
        Ops.ALU,
        dtypes.index.vec(self.width),
        (lanes[0], UOp(Ops.VECTORIZE, dtypes.index.vec(self.width), tuple(steps))),
        BinaryOps.ADD,
      )
    return UOp(Ops.VECTORIZE, dtypes.index.vec(self.width), tuple(lanes))

  def compared(self, c: UOp) -> UOp:
    """A comparison of indices: scalar where all lanes agree, else a vector."""
    if self.lane is None or self.lane not in c.ranges: return c
    lanes = self.lanes_of(c)
    if all(x is lanes[0] for x in lanes): return lanes[0]
    if any(x.op is Ops.CONST for x in lanes): return UOp(Ops.VECTORIZE, dtypes.bool.vec(self.width), tuple(lanes))
    return UOp(Ops.ALU, dtypes.bool.vec(self.width), tuple(self.index_lanes(s) for s in c.src), c.arg)

  def wide(self, v: UOp) -> UOp:
    """A value as a vector: a scalar is the same in all lanes."""
    return UOp(Ops.VECTORIZE, v.dtype.vec(self.width), (v,) * self.width) if v.dtype.count == 1 else v

  def condition(self, u: UOp | None, env: Env) -> UOp:
    """A gate: scalar where all lanes agree, else a bool vector."""
    if u is None: return ix.TRUE
    c = self.at(u, env)
    if self.lane is None or self.lane not in c.ranges: return c
    lanes = self.lanes_of(c)
    if all(x is lanes[0] for x in lanes): return lanes[0]
    if any(x.op is Ops.CONST for x in lanes): return UOp(Ops.VECTORIZE, dtypes.bool.vec(self.width), tuple(lanes))
    return self.value(u, env)

  # ---- memory

  def flat(self, buffer: UOp, index: UOp, env: Env) -> UOp:
    """One index into the buffer from one a dimension."""
    return self.joined(buffer, tuple([self.at(i, env) for i in index.src]))

  def joined(self, buffer: UOp, index: tuple[UOp, ...]) -> UOp:
    out = ix.const(0)
    for i, stride in zip(index, strides_of(self.shapes[buffer])): out = ix.add(out, ix.mul(i, stride))
    return out

  def scalar_load(self, u: UOp) -> UOp:
    """A LOAD whose index and gate are filled in."""
    return self._load(u, self.joined(u.src[0], u.src[1].src), u.src[2] if len(u.src) > 2 else ix.TRUE)

  def _load(self, u: UOp, at: UOp, gate: UOp, count: int = 1) -> UOp:
    dtype = u.dtype.vec(count)
    zero = UOp.const(u.dtype, 0)
    if gate is ix.FALSE: return zero
    return UOp(Ops.LOAD, dtype, (u.src[0], at) if gate is ix.TRUE else (u.src[0], at, gate, zero), u.arg)

  def load(self, u: UOp, env: Env) -> UOp:
    at = self.flat(u.src[0], u.src[1], env)
    gate = self.at(u.src[2], env) if len(u.src) > 2 else ix.TRUE
    if self.lane is None or not (self.lane in at.ranges or self.lane in gate.ranges): return self._load(u, at, gate)
    ats = self.lanes_of(at)
    gates = self.lanes_of(gate)
    if self.contiguous(at, ats):
      if all(g is ix.FALSE for g in gates): return UOp.const(u.dtype, 0)
      return self._load(u, ats[0], gates[0] if all(g is gates[0] for g in gates) else self.condition(u.src[2], env), self.width)
    return UOp(Ops.VECTORIZE, u.dtype.vec(self.width), tuple(self._load(u, a, g) for a, g in zip(ats, gates)))

  def store(self, u: UOp) -> list[UOp]:
    buffer, index, value = u.src[:3]
    over = [
      a for a in self.copied if a.rng in index.ranges or a.rng in value.ranges or (len(u.src) > 3 and a.rng in u.src[3].ranges)
    ]
    out: list[UOp] = []
    for env in self.envs(over):
      at, v = self.flat(buffer, index, env), self.value(value, env)
      gate = self.at(u.src[3], env) if len(u.src) > 3 else ix.TRUE
      if gate is ix.FALSE: continue
      if isinstance(u.arg, tuple) and u.arg[0] == "add":
        old = self.load(UOp(Ops.LOAD, u.dtype, (buffer, index, *u.src[3:])), env)
        v = UOp.alu(BinaryOps.ADD, old, v, dtype=u.dtype.vec(max(old.dtype.count, v.dtype.count)))
      if self.lane is None or not (self.lane in at.ranges or v.dtype.count > 1 or self.lane in gate.ranges):
        out.append(self._store(u, at, v, gate))
        continue
      ats, gates = self.lanes_of(at), self.lanes_of(gate)
      if u.op is Ops.STORE and self.contiguous(at, ats):
        g = gates[0] if all(x is gates[0] for x in gates) else self.condition(u.src[3], env)
        out.append(self._store(u, ats[0], self.wide(v), g))
      else:
        for i, (a, g) in enumerate(zip(ats, gates)):
          if g is not ix.FALSE: out.append(self._store(u, a, lane_of(v, i), g))
    return out

  def _store(self, u: UOp, at: UOp, v: UOp, gate: UOp) -> UOp:
    return UOp(
      u.op, v.dtype, (u.src[0], at, v) if gate is ix.TRUE else (u.src[0], at, v, gate), u.arg if isinstance(u.arg, str) else None
    )

  def cache_read(self, u: UOp, env: Env) -> UOp:
    """An element of the copy: CACHE_READ(index, local array, stores that fill it), with the loops that the stores go through."""
    axes = [self.by_id[i] for i in u.arg]
    strides = strides_of(tuple(a.size for a in axes))
    vector = self.lane is not None and axes[-1].kind is AxisKind.LANE
    def place(at: Env, lane: bool) -> UOp:
      known = dict(at)
      out = ix.const(0)
      for a, s in zip(axes, strides):
        if a.kind is AxisKind.LANE and not lane: continue
        out = ix.add(out, ix.mul(ix.const(known[a.rng]) if a.rng in known else a.rng, s))
      return out
    found = self.caches.get(u)
    if found is None:
      load = u.src[0]
      local = UOp.unique(Ops.DEFINE_LOCAL, u.dtype, (), (f"cache{len(self.caches)}", prod(a.size for a in axes), "local"))
      plain = tuple(a.id for a in axes if a.kind in (AxisKind.LOOP, AxisKind.GRID))
      if not vector or self.step_of(self.flat(load.src[0], load.src[1], ())) == 1:
        fills = []
        for at in self.envs([a for a in self.copied if a in axes]):
          v = self.value(load, at)
          if vector: v = self.wide(v)   # one number for all lanes, where none of them is read
          fills.append(UOp(Ops.STORE, v.dtype, (local, place(at, False), v)))
      else:  # element by element: gathered vectors would be much code for what runs once
        fills, plain = [UOp(Ops.STORE, u.dtype, (local, place((), True), self.at(load, ())))], tuple(u.arg)
      found = self.caches[u] = (plain, local, fills)
    loops, local, fills = found
    return UOp(Ops.CACHE_READ, u.dtype.vec(self.width if vector else 1), (place(env, False), local, *fills), loops)

  # ---- reductions

  def copies(self, u: UOp, env: Env) -> list[Env]:
    """Where a REDUCE needs its value: once for each copy of its axes."""
    return [(*env, *more) for more in self.envs([a for a in self.copied if a.id in u.arg[1]])]

  def reduce(self, u: UOp, env: Env) -> UOp:
    fn, ids = u.arg
    bound = [self.by_id[i] for i in ids]
    parts = [self.value(u.src[0], at) for at in self.copies(u, env)]
    across = any(a.kind is AxisKind.LANE for a in bound) and self.lane is not None
    if across: parts = [self.wide(p) for p in parts]
    loops = tuple(a.id for a in bound if a.kind in (AxisKind.LOOP, AxisKind.GRID, AxisKind.TILE))
    n = max(p.dtype.count for p in parts)
    if loops: total = UOp(Ops.REDUCE, u.dtype.vec(n), tuple(parts), (fn, loops))
    else:
      total = parts[0]
      for p in parts[1:]: total = UOp.alu(fn, total, p, dtype=u.dtype.vec(n))
    return across_lanes(total, fn) if across else total


def lane_of(v: UOp, i: int) -> UOp:
  """One element of a vector; a scalar stands for all of its lanes."""
  if v.dtype.count == 1: return v
  return v.src[i] if v.op is Ops.VECTORIZE else UOp(Ops.GEP, v.dtype.scalar(), (v,), i)


def across_lanes(v: UOp, fn: BinaryOps) -> UOp:
  """The lanes of a vector joined pairwise."""
  xs = [lane_of(v, i) for i in range(v.dtype.count)]
  while len(xs) > 1:
    half = len(xs) // 2
    xs = [UOp.alu(fn, xs[i], xs[i + half]) for i in range(half)] + xs[2 * half:]
  return xs[0]


def expand(kernel: Kernel) -> tuple[UOp, ...]:
  """Copies of UPCAST and UNROLL axes, vectors of LANE axes, one flat index a buffer: y[a0, a1:2 UPCAST] -> y[2*a0], y[2*a0 +
  1]."""
  return Expander(kernel).run()

