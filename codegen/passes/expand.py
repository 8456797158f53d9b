"""Pass: UPCAST and UNROLL axes become copies, LANE axes become vectors, indices become one flat index a buffer.

A REDUCE then has one source a copy, taken in index order by one accumulator.
"""
from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial, reduce
from typing import Iterable

from .. import index as ix
from ..index import sources_first
from ..ir import BinaryOps, Ops, OptError, Target, TernaryOps, UOp, dtypes, prod, toposort
from ..kernel import EFFECTS, Axis, AxisKind, Kernel, flat_index, fold_node, gate_or_true, rewrite, substitute
from .additions import MOST_COPIES
from .parts import Part, Parts

_Env = tuple[tuple[UOp, UOp], ...]   # a number for each copied axis, in axis order
_Copy = tuple[UOp, _Env]             # a node, and the copied axes that it depends on

_LINE = 64   # bytes of a cache line: a store past the cache of less than one waits for the rest of it
SPACED = 4  # elements between two lanes up to which whole vectors are loaded and what is needed is taken from them
_VALUES = frozenset({Ops.ALU, Ops.CAST, Ops.BITCAST, Ops.REDUCE, Ops.SCAN, Ops.SORT})   # of values


def _within(u: UOp, env: _Env) -> _Copy:
  """A node with those of the copied axes that it depends on."""
  ranges = u.ranges
  return u, tuple([at for at in env if at[0] in ranges]) if env else env


class Expander:
  """Expands the statements of one kernel."""

  def __init__(self, kernel: Kernel):
    self.copied = [a for a in kernel.of_kind(AxisKind.UPCAST, AxisKind.UNROLL) if a.known > 1]
    self.ranges = frozenset(a.rng for a in self.copied)
    lanes = [a for a in kernel.lanes if a.known > 1]
    if len(lanes) > 1: raise OptError(f"a kernel has one LANE axis, got {len(lanes)}")
    self.lane = lanes[0].rng if lanes else None
    self.width = lanes[0].known if lanes else 1
    self.params, self.written = kernel.by_uop, kernel.written
    places = [s for u in kernel.nodes if u.op is Ops.LOAD or u.op in EFFECTS for s in (u.src[1], gate_or_true(u))]
    self.sums = bool(kernel.reduces) and any([  # whether an index or a condition has a reduction
      n.op is Ops.REDUCE for n in toposort((*places, *filter(_compares_indices, kernel.nodes)))])
    self.memo: dict[_Copy, UOp] = {}
    self.flat: dict[tuple[UOp, ...], tuple[UOp, dict[UOp, int]]] = {}   # of what is read or written and where: ``place``
    self.steps: dict[UOp, tuple[UOp, int | None]] = {}   # of indices without their constants: ``moving``
    self.filled: dict[_Copy, UOp] = {}   # the same of indices and conditions
    self.across: dict[UOp, Axis | None] = {}   # LOAD -> the axis along which its lanes' neighbours lie
    self.transposed: dict[_Copy, list[UOp]] = {}    # and its vectors, of which there is one for each value of that axis
    self.by_id = {a.id: a for a in kernel.axes}
    self.caches: dict[UOp, tuple[tuple[int, ...], list[UOp]]] = {}   # CACHE_READ -> loops that fill it; its array and the STOREs

  def envs(self, over: Iterable[Axis]) -> list[_Env]:
    """Every combination of numbers of some axes, in order."""
    return list(itertools.product(*[[(a.rng, ix.const(n)) for n in range(a.known)] for a in over]))

  def scalar(self, *us: UOp) -> bool:
    """Whether no node varies along the lane axis."""
    return not any(self.lane in u.ranges for u in us)

  # ---- values

  def value(self, u: UOp, env: _Env = ()) -> UOp:
    """The value of ``u`` where the copied axes have the numbers of ``env``; a vector where it varies along the lane axis."""
    first = _within(u, env)
    for at, sources in sources_first(first, lambda at: [] if at in self.memo else self.sources(*at)).items():
      if at not in self.memo: self.memo[at] = self._value(*at, tuple(self.memo[s] for s in sources))
    return self.memo[first]

  def sources(self, u: UOp, env: _Env) -> list[_Copy]:
    """The values that the value of a node is made of: of a REDUCE, one for each copy of its axes."""
    if u.dtype is dtypes.index or u.op not in _VALUES or _compares_indices(u): return []
    copied = [a for a in self.copied if a.id in u.arg[1]] if u.op is Ops.REDUCE else []
    return [_within(s, (*env, *more)) for more in self.envs(copied) for s in u.src]

  def _value(self, u: UOp, env: _Env, src: tuple[UOp, ...]) -> UOp:
    op = u.op
    if op is Ops.CONST: return u
    if u.dtype is dtypes.index: return self.index_lanes(self.at(u, env))
    if op is Ops.LOAD: return self.load(u, env)
    if op is Ops.REDUCE: return self.reduce(u, env, src)
    if op is Ops.CACHE_READ: return self.cache_read(u, env)
    if op not in _VALUES: raise OptError(f"{op} cannot stand in a kernel body")
    if _compares_indices(u):
      c = self.at(u, env)
      return self.uniform(c) or UOp(Ops.ALU, dtypes.bool.vec(self.width), tuple(map(self.index_lanes, c.src)), c.arg)
    out = UOp(op, u.dtype.vec(max(s.dtype.count for s in src)), src, u.arg)
    return fold_node(out) or out

  def at(self, u: UOp, env: _Env) -> UOp:
    """An index or condition with the copied axes filled in; loads inside are expanded too. Still scalar along the lane axis."""
    if (key := _within(u, env)) not in self.filled:
      sums = [r for r in toposort((u,), stop=lambda n: n.op is Ops.REDUCE) if r.op is Ops.REDUCE] if self.sums else []
      self.filled[key], = rewrite((u,), {Ops.LOAD: lambda old, new: _load(
        new, flat_index(self.params[new.src[0]].shape, new.src[1].src), gate_or_true(new))},
        {**dict(key[1]), **{r: self.reduce_at(r, env) for r in sums}})
    return self.filled[key]

  def reduce_at(self, u: UOp, env: _Env) -> UOp:
    """A REDUCE in an index, ``at`` which its own axes are copied too: they are others than those of the same names around it."""
    (fn, ids), own = u.arg, [a for a in self.copied if a.id in u.arg[1]]
    env = tuple([e for e in env if e[0].arg[0] not in ids])
    parts = [self.at(u.src[0], (*env, *more)) for more in self.envs(own)]
    if self.lane is not None and self.lane.arg[0] in ids: parts = [x for p in parts for x in self.lanes_of(p)]
    loops = tuple(i for i in ids if self.by_id[i].kind in (AxisKind.LOOP, AxisKind.GRID, AxisKind.TILE))
    return UOp(Ops.REDUCE, u.dtype, tuple(parts), (fn, loops)) if loops else reduce(partial(UOp.alu, fn), parts)

  def lanes_of(self, u: UOp, count: int = 0) -> list[UOp]:
    """A scalar expression of the lane axis, once for each lane, or for the first ones."""
    assert self.lane is not None
    lanes = range(count or self.width)
    if u.dtype is dtypes.index:
      first, c, step = self.moving(u)
      if step is not None: return [ix.add(first, c + i * step) for i in lanes]
    return [substitute((u,), {self.lane: ix.const(i)})[0] for i in lanes]

  def step_of(self, u: UOp) -> int | None:
    """What an index moves by from lane to lane; None where that is not the same everywhere."""
    return self.moving(u)[2]

  def moving(self, u: UOp) -> tuple[UOp, int, int | None]:
    """An index for the first lane, as another and a constant (copies share the other), and what it moves by from lane to lane."""
    base, c = (u.src[0], u.src[1].arg) if u.arg is BinaryOps.ADD and u.src[1].op is Ops.CONST else (u, 0)
    if base not in self.steps:
      steps = {atom: k for atom, k in ix.linear(base)[0] if self.lane in atom.ranges}
      step = sum(steps.values()) if steps.keys() <= {self.lane} else None
      self.steps[base] = ix.sub(base, ix.weighted_sum(steps.items())) if step else base, step
    first, step = self.steps[base]
    return first, c, step

  def contiguous(self, at: UOp) -> bool:
    """Whether the lanes of an index follow one another: a step that depends on ranges, (8*i + lane) // 8, shows in them."""
    if (step := self.step_of(at)) is not None: return step == 1
    ats = self.lanes_of(at)
    return all(ix.sub(a, ats[0]) is ix.const(i) for i, a in enumerate(ats))

  def index_lanes(self, u: UOp) -> UOp:
    """An index as a value: a vector where it depends on the lane axis."""
    if self.scalar(u): return u
    lanes = self.lanes_of(u)
    steps = [ix.sub(x, lanes[0]) for x in lanes]
    if not all(s.op is Ops.CONST for s in steps): return _vector(lanes)
    return UOp.alu(BinaryOps.ADD, lanes[0], _vector(steps))

  def uniform(self, c: UOp) -> UOp | None:
    """A condition that all lanes agree on, as a scalar, or one that is known for some lanes, as a vector; None for any other."""
    if self.scalar(c): return c
    if len({*(lanes := self.lanes_of(c))}) == 1: return lanes[0]
    return _vector(lanes) if any(x.op is Ops.CONST for x in lanes) else None

  def wide(self, v: UOp) -> UOp:
    """A value as a vector: a scalar is the same in all lanes."""
    return _vector([v] * self.width) if v.dtype.count == 1 else v

  # ---- memory

  def place(self, u: UOp, env: _Env) -> tuple[UOp, UOp]:
    """The flat index and the gate of a LOAD, STORE or ATOMIC. Copies along axes that the index is linear in are steps apart."""
    gate, numbers = self.at(gate_or_true(u), env), dict(env)
    if u.src[:2] not in self.flat:
      flat = flat_index(self.params[u.src[0]].shape, u.src[1].src)
      steps = {t: k for t, k in ix.linear(flat)[0] if t in self.ranges}
      self.flat[u.src[:2]] = self.at(ix.sub(flat, ix.weighted_sum(steps.items())), ()), steps
    first, steps = self.flat[u.src[:2]]
    if first.ranges.isdisjoint(self.ranges) and all([r in numbers for r in steps]):
      return ix.add(first, sum([k * numbers[r].arg for r, k in steps.items()])), gate
    return flat_index(self.params[u.src[0]].shape, [self.at(i, env) for i in u.src[1].src]), gate

  def gate(self, u: UOp, env: _Env) -> UOp:
    """The gate of a vector: scalar where all lanes agree, else a bool vector."""
    return self.uniform(self.at(gate_or_true(u), env)) or self.value(gate_or_true(u), env)

  def load(self, u: UOp, env: _Env) -> UOp:
    """A scalar, a vector of neighbours, or lanes that are loaded one by one."""
    at, gate = self.place(u, env)
    if self.scalar(at, gate): return _load(u, at, gate)
    if self.contiguous(at): return self.vector_load(u, self.lanes_of(at, 1)[0], self.gate(u, env))
    if u not in self.across: self.across[u] = self.beside(u)
    if (axis := self.across[u]) is not None and axis.rng in dict(env): return self.transposed_load(u, env, axis)
    step, ats = self.step_of(at), self.lanes_of(at)
    if step is not None and is_spaced(step, self.width) and u.dtype.kind != "b":
      return self.spaced_load(u, ats, step, self.gate(u, env))
    return _vector([_load(u, a, g) for a, g in zip(ats, self.lanes_of(gate))])

  def spaced_load(self, u: UOp, ats: list[UOp], step: int, gate: UOp) -> UOp:
    """Lanes that lie ``step`` elements apart, of vectors that reach from the first one's element to the last one's."""
    n, first = self.width, ats[0 if step > 0 else -1]
    places = [abs(step) * i for i in range(n)]
    found: list[UOp] = []   # the lanes that are there already
    while len(found) < n:
      start = min(places[len(found)], places[-1] - (n - 1))
      lanes = {p - start: lane_of(gate, i if step > 0 else n - 1 - i) for i, p in enumerate(places)}
      mask = gate if gate.dtype.count == 1 else _vector([lanes.get(i, ix.FALSE) for i in range(n)])
      v = self.vector_load(u, ix.add(first, start), mask)
      new = [lane_of(v, p - start) for p in places[len(found):] if p - start < n]
      # two vectors a time, which is one shuffle
      found = new if not found else [lane_of(_vector([*found, *new, *[new[-1]] * (n - len(found) - len(new))]), i)
                                     for i in range(len(found) + len(new))]
    return _vector(found if step > 0 else found[::-1])

  def vector_load(self, u: UOp, at: UOp, mask: UOp) -> UOp:
    """A vector of which a mask chooses all or lanes; where it lies in memory as a whole (the last source) it is read as such."""
    buffer = u.src[0]
    zero, dtype, inside = UOp.const(u.dtype, 0), u.dtype.vec(self.width), ix.FALSE
    if mask.dtype.count > 1 and buffer not in self.written and buffer.op is Ops.DEFINE_GLOBAL:
      room = ix.sub(ix.node(ix.product(self.params[buffer].shape)), self.width)
      inside = ix.both(ix.ge(at, 0), ix.ge(ix.sub(room, at), 0))
    if inside is ix.FALSE: return _load(u, at, mask, self.width)
    whole = _load(u, at, ix.TRUE, self.width) if inside is ix.TRUE else UOp(
      Ops.LOAD, dtype, (buffer, at, mask, zero, inside), u.arg)
    return UOp.alu(TernaryOps.WHERE, mask, whole, zero, dtype=dtype)

  def beside(self, u: UOp) -> Axis | None:
    """Of an access whose lanes lie apart, the copied axis along which elements lie beside each other, to be transposed."""
    if self.lane is None or self.lane not in u.src[1].ranges or gate_or_true(u) is not ix.TRUE or u.dtype.kind == "b": return None
    if u.op is not Ops.LOAD and (u.op is not Ops.STORE or isinstance(u.arg, tuple)) or self.width & (self.width - 1): return None
    first = dict.fromkeys([a.rng for a in self.copied], ix.ZERO)
    def beside(a: Axis, i: int) -> UOp: return self.place(u, tuple({**first, a.rng: ix.const(i)}.items()))[0]
    begin = self.place(u, tuple(first.items()))[0]
    if self.contiguous(begin): return None
    along = [a for a in self.copied if a.rng in u.src[1].ranges and a.kind is AxisKind.UPCAST and a.known in (4, 8, 16)]
    return next((a for a in along if a.known <= self.width and all(
      ix.sub(beside(a, i), begin) is ix.const(i) for i in range(a.known))), None)

  def transposed_load(self, u: UOp, env: _Env, axis: Axis) -> UOp:
    """A vector of lanes that lie apart, of a block that is loaded by vectors along the copied axis."""
    rest = tuple((r, n) for r, n in env if r is not axis.rng)
    if (u, rest) not in self.transposed:
      at = self.lanes_of(self.place(u, (*rest, (axis.rng, ix.ZERO)))[0])
      self.transposed[u, rest] = transposed([_load(u, a, ix.TRUE, axis.known) for a in at], axis.known)
    return self.transposed[u, rest][dict(env)[axis.rng].arg]

  def transposed_store(self, u: UOp, axis: Axis) -> list[UOp]:
    """The STOREs of vectors along the copied axis, of a block whose lanes lie apart; past the cache only whole lines of it."""
    out, to = list[UOp](), u if axis.known * u.dtype.itemsize >= _LINE else u.with_arg(None)
    for env in self.envs([a for a in self.copied if a.rng in u.ranges and a is not axis]):
      at = self.lanes_of(self.place(u, (*env, (axis.rng, ix.ZERO)))[0])
      values = [self.wide(self.value(u.src[2], (*env, (axis.rng, ix.const(i))))) for i in range(axis.known)]
      out += [_store(to, a, v, ix.TRUE) for a, v in zip(at, transposed(values, self.width))]
    return out

  def store(self, u: UOp) -> list[UOp]:
    """The STOREs of all copies: of scalars, vectors of neighbours, or lanes one by one; none where a gate is false."""
    if (axis := self.beside(u)) is not None: return self.transposed_store(u, axis)
    out: list[UOp] = []
    for env in self.envs([a for a in self.copied if a.rng in u.ranges]):
      (at, gate), v = self.place(u, env), self.value(u.src[2], env)
      if u.src[4:]:
        out += self.atomic(u, env, at, gate, v)
        continue
      if gate is ix.FALSE: continue
      if isinstance(u.arg, tuple) and u.arg[0] == "add":
        old = self.load(UOp(Ops.LOAD, u.dtype, (*u.src[:2], *u.src[3:])), env)
        v = UOp.alu(BinaryOps.ADD, old, v, dtype=u.dtype.vec(max(old.dtype.count, v.dtype.count)))
      if self.scalar(at, gate) and v.dtype.count == 1: out.append(_store(u, at, v, gate))
      elif u.op is Ops.STORE and self.contiguous(at):
        out.append(_store(u, self.lanes_of(at, 1)[0], self.wide(v), self.gate(u, env)))
      else:
        lanes = zip(self.lanes_of(at), self.lanes_of(gate), map(partial(lane_of, v), range(self.width)))
        out += [_store(u, a, x, g) for a, g, x in lanes if g is not ix.FALSE]
    return out

  def atomic(self, u: UOp, env: _Env, at: UOp, gate: UOp, v: UOp) -> list[UOp]:
    """The ATOMICs, one a lane, of which a variable has what was there."""
    to = self.place(UOp(Ops.LOAD, u.dtype, u.src[4:6]), env)[0]
    compared = [self.value(x, env) for x in u.src[6:]]
    if self.scalar(at, gate, to): return [UOp(u.op, u.dtype, (u.src[0], at, v, gate, u.src[4], to, *compared), u.arg)]
    return [UOp(u.op, u.dtype, (u.src[0], a, lane_of(v, i), g, u.src[4], t, *[lane_of(c, i) for c in compared]), u.arg)
            for i, (a, g, t) in enumerate(zip(*map(self.lanes_of, (at, gate, to))))]

  def cache_read(self, u: UOp, env: _Env) -> UOp:
    """An element of the copy: CACHE_READ(index, local array, stores that fill it), with the loops that the stores go through."""
    load, axes = u.src[0], [self.by_id[i] for i in u.arg]
    shape = tuple(a.most or a.known for a in axes)
    vector = self.lane is not None and axes[-1].kind is AxisKind.LANE
    first: _Env = ((self.lane, ix.ZERO),) if self.lane is not None else ()
    def position(at: _Env) -> UOp: return flat_index(shape, [dict(at).get(a.rng, a.rng) for a in axes])
    if u not in self.caches:
      local = UOp.unique(Ops.DEFINE_LOCAL, u.dtype, (), (f"cache{len(self.caches)}", prod(shape), "local"))
      loops = tuple(a.id for a in axes if a.kind in (AxisKind.LOOP, AxisKind.GRID))
      if not vector or self.step_of(self.place(load, ())[0]) == 1:
        fills = [(position((*first, *at)), self.value(load, at)) for at in self.envs([a for a in self.copied if a in axes])]
        if vector: fills = [(at, self.wide(v)) for at, v in fills]   # one number for all lanes, where none of them is read
      else:   # element by element: gathered vectors would be much code for what runs once
        fills, loops = [(position(()), self.at(load, ()))], tuple(a.id for a in axes if a.kind is not AxisKind.LOCAL)
      self.caches[u] = loops, [local, *[UOp(Ops.STORE, v.dtype, (local, at, v)) for at, v in fills]]
    loops, array = self.caches[u]
    return UOp(Ops.CACHE_READ, u.dtype.vec(self.width if vector else 1), (position((*first, *env)), *array), loops)

  # ---- reductions

  def reduce(self, u: UOp, env: _Env, parts: tuple[UOp, ...]) -> UOp:
    """A REDUCE of the copies of its value over the loops that are left; without loops, the copies combined. A product with a
    LOAD whose gate is false adds nothing."""
    fn, ids = u.arg
    if fn is BinaryOps.ADD and (value := u.src[0]).arg is BinaryOps.MUL:
      gates = [gate_or_true(s) for s in value.src if s.op is Ops.LOAD]
      envs = [(*env, *more) for more in self.envs([a for a in self.copied if a.id in ids])]
      parts = tuple([p for p, e in zip(parts, envs) if not any(self.at(g, e) is ix.FALSE for g in gates)])
      if not parts: return UOp.const(u.dtype, 0)
    kinds = {i: self.by_id[i].kind for i in ids}
    across = self.lane is not None and AxisKind.LANE in kinds.values()
    if across: parts = tuple(map(self.wide, parts))
    loops = tuple(i for i in ids if kinds[i] in (AxisKind.LOOP, AxisKind.GRID, AxisKind.TILE))
    dtype = u.dtype.vec(max(p.dtype.count for p in parts))
    combined = partial(UOp.alu, fn, dtype=dtype)
    if fn is BinaryOps.ADD and u.dtype.kind == "f":
      while len(parts) > MOST_COPIES: parts = tuple(reduce(combined, parts[i:i + 2]) for i in range(0, len(parts), 2))
    total = UOp(Ops.REDUCE, dtype, parts, (fn, loops)) if loops else reduce(combined, parts)
    if not across: return total
    xs = [lane_of(total, i) for i in range(total.dtype.count)]   # the lanes, joined pairwise
    while half := len(xs) // 2: xs = [*map(partial(UOp.alu, fn), xs[:half], xs[half:]), *xs[2 * half:]]
    return xs[0]


def _compares_indices(u: UOp) -> bool:
  return u.op is Ops.ALU and u.dtype is dtypes.bool and all(s.dtype is dtypes.index for s in u.src)


def _vector(xs: list[UOp]) -> UOp: return UOp(Ops.VECTORIZE, xs[0].dtype.vec(len(xs)), tuple(xs))


def _load(u: UOp, at: UOp, gate: UOp, count: int = 1) -> UOp:
  """A LOAD of ``count`` elements from a flat index, 0 where the gate is false."""
  zero = UOp.const(u.dtype, 0)
  return zero if gate is ix.FALSE else UOp(
    Ops.LOAD, u.dtype.vec(count), (u.src[0], at, *(() if gate is ix.TRUE else (gate, zero))), u.arg)


def _store(u: UOp, at: UOp, v: UOp, gate: UOp) -> UOp:
  return UOp(u.op, v.dtype, (u.src[0], at, v, *[gate] * (gate is not ix.TRUE)), u.arg if isinstance(u.arg, str) else None)


def lane_of(v: UOp, i: int) -> UOp:
  """One element of a vector; a scalar stands for all of its lanes."""
  if v.dtype.count == 1: return v
  return v.src[i] if v.op is Ops.VECTORIZE else UOp(Ops.GEP, v.dtype.scalar(), (v,), i)


def is_spaced(step: int | None, width: int) -> bool:
  """Whether lanes so many elements apart are taken from whole vectors."""
  return step is not None and width & (width - 1) == 0 and (step == -1 or 2 <= abs(step) <= SPACED)


def transposed(rows: list[UOp], columns: int) -> list[UOp]:
  """The columns of a block, of which each vector is a row: all numbers are powers of two. Interleaving the first half of all
  elements with the second moves the highest bit of an element's number to the lowest place, as often as the rows' numbers have
  bits."""
  n, width = len(rows), rows[0].dtype.count
  for _ in range(n.bit_length() - 1):
    both = [[lane_of(v, i) for i in range(width) for v in pair] for pair in zip(rows[:n // 2], rows[n // 2:])]
    rows = [_vector(part) for lanes in both for part in (lanes[:width], lanes[width:])]
  if n == width: return rows
  flat = [(v, i) for v in rows for i in range(width)]
  return [_vector([lane_of(v, i) for v, i in flat[c * n:(c + 1) * n]]) for c in range(columns)]


def expand_axes(parts: Parts, target: Target | None = None) -> Parts:
  """Copies of UPCAST and UNROLL axes, vectors of LANE axes, one flat index a buffer: y[a0, a1:2 UPCAST] -> y[2*a0], y[2*a0 +
  1]."""
  def expanded(p: Part) -> Part:
    e = Expander(p.kernel)
    return replace(p, roots=tuple(out for s in p.kernel.body for out in (
      e.store(s) if s.op in EFFECTS else [s if s.op in (Ops.PRINT, Ops.FOLD) else e.value(s)])))
  return parts.map(expanded)
