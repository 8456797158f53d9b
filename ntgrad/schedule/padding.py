"""Zero padding under a reduction gets a buffer of its own where each padded element is read many times (convolutions), instead of
a bounds check in the inner loop. A product with a padded zero is taken for zero, whatever the other factor."""
from __future__ import annotations

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import BinaryOps, Ops, TernaryOps, UOp, toposort
from ntgrad.codegen.kernel import ids_of, rewrite

from .nodes import Body, Copies, as_buffer, axes_size, in_bounds, indexed, movement
from .placement import param_stand_in, stores

REUSE = 4    # reads of an element from which on a padded copy pays


def pad_inputs(body: Body, versions: dict[UOp, UOp]) -> tuple[Body, Copies]:
  """The body with masked reads of small windows replaced by plain reads of padded copies; copy node -> (what it copies, its
  body). ``versions`` has the version that the body reads, by storage."""
  bound = {i for u in toposort(body) if u.op is Ops.REDUCE for i in u.arg[1]}
  gates: dict[UOp, frozenset[UOp]] = {}       # replaced load -> the conditions that its zeros stand for
  copies: Copies = {}
  def load(u: UOp, new: UOp) -> UOp:
    made = _padded(u, versions) if len(u.src) > 2 and not bound.isdisjoint(ids_of(u)) else None
    if made is None: return new
    new, copy, copies[copy] = made
    gates[new] = frozenset(ix.conjuncts(u.src[2]))
    return new
  def choice(u: UOp, new: UOp) -> UOp:
    """Where the condition is false a padded value is zero anyway."""
    if new.arg is not TernaryOps.WHERE or new.src[2].op is not Ops.CONST or new.src[2].arg != 0: return new
    known = frozenset(ix.conjuncts(u.src[0]))
    inner = _ungated(new.src[1], known)
    if new.src[1] in gates: gates[inner] = gates[new.src[1]]
    return inner if known <= _zeros(inner, gates) else new.replace((new.src[0], inner, new.src[2]))
  return rewrite(body, {Ops.LOAD: load, Ops.ALU: choice}), copies


def multiplies(body: Body) -> bool:
  """Whether a body sums products of two factors each of which has outputs of its own: blocks of them are multiplied, without
  masks in the loop. Elsewhere on targets with blocks a mask costs less than a copy."""
  for u in toposort(body):
    if u.op is not Ops.REDUCE or u.arg[0] is not BinaryOps.ADD: continue
    value = u.src[0]
    while value.op is Ops.CAST or value.arg is TernaryOps.WHERE: value = value.src[value.op is not Ops.CAST]
    if value.arg is not BinaryOps.MUL: continue
    a, b = [ids_of(s).difference(u.arg[1]) for s in value.src]
    if a - b and b - a: return True
  return False


def _ungated(value: UOp, known: frozenset[UOp]) -> UOp:
  """A value that is only looked at where ``known`` holds: reads that are in bounds anyway need no gate for it."""
  def free(old: UOp, u: UOp) -> UOp | None:
    if len(u.src) < 3 or not frozenset(ix.conjuncts(u.src[2])) <= known: return None
    shape = tuple(u.src[0].arg.shape) or (1,)
    inside = all(ix.vmin(i) >= 0 and ix.lt(i, n) is ix.TRUE for i, n in zip(u.src[1].src, shape))
    return u.replace(u.src[:2]) if inside else None
  return value if value.op is Ops.LOAD else rewrite((value,), {Ops.LOAD: free})[0]


def _zeros(u: UOp, gates: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
  """Conditions without which a value is zero already."""
  def end(n: UOp) -> bool: return n in gates or n.op is not Ops.CAST and n.arg is not BinaryOps.MUL
  found: dict[UOp, frozenset[UOp]] = {}
  for n in toposort((u,), end): found[n] = gates.get(n, frozenset()) if end(n) else frozenset().union(*(found[s] for s in n.src))
  return found[u]


def _padded(u: UOp, versions: dict[UOp, UOp]) -> tuple[UOp, UOp, tuple[UOp, Body]] | None:
  """What a LOAD is in a padded copy, the copy, and what it copies with its body."""
  source: UOp = u.src[0].arg
  shape, index = tuple(source.shape) or (1,), u.src[1].src
  inside = {p for i, n in zip(index, shape) for c in (ix.ge(i, 0), ix.lt(i, n)) for p in ix.conjuncts(c)}
  if {*ix.conjuncts(u.src[2])} != inside: return None
  pads = tuple((max(0, -ix.vmin(i)), max(0, ix.vmax(ix.sub(i, n)) + 1)) for i, n in zip(index, shape))
  if any(amount >= ix.FAR for pair in pads for amount in pair): return None   # of a run-time size nobody knows
  wide = tuple(ix.plus(n, lo + hi) for n, (lo, hi) in zip(shape, pads))
  size = ix.elements(wide)
  if axes_size(u.ranges) < REUSE * size or size > 4 * ix.elements(shape) + 4096: return None
  version = versions.get(source, source)
  copy, at = as_buffer(movement(Ops.PAD, version, pads)), tuple(ix.rng(d, n) for d, n in enumerate(wide))
  there = tuple(ix.sub(i, lo) for i, (lo, _) in zip(at, pads))
  value = UOp(Ops.LOAD, u.dtype, (u.src[0], indexed(there), in_bounds(there, shape)))
  moved = tuple(ix.add(i, lo) for i, (lo, _) in zip(index, pads))
  return UOp(Ops.LOAD, u.dtype, (param_stand_in(copy), indexed(moved))), copy, (version, stores(copy, at, value))
