"""Linear programs over blocks: the two passes of targets that have them, and what their renderers ask of such a program.

    linear --floats, dots--> linear, with products of blocks

Such a target computes with float32 and float64; its memory also has float16, bfloat16 and the fp8 dtypes.
"""
from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import combinations
from typing import Callable, Iterable, Mapping, Sequence

from .. import index as ix
from ..ir.dtype import DType, dtypes
from ..ir.uop import NO_VALUE, BinaryOps, Ops, TernaryOps, UOp
from .linear import UOpList

F32 = dtypes.float32
FP8 = frozenset((dtypes.float8_e4m3, dtypes.float8_e5m2))
NARROW = FP8 | {dtypes.float16, dtypes.bfloat16}
DOT = "dot"   # in the place of a REDUCE's combiner: (a, b[, accumulator]), arg (DOT, (axis id,)) is a product of two blocks
MOST_KEPT = 16384   # elements of a block that is an accumulator
_SMALLEST_DOT = 9   # elements along an axis: of the 16 that a dot has at least, most would be padding
_MOVED = frozenset((Ops.LOAD, Ops.CAST, Ops.ALU, Ops.BITCAST))
_EFFECTS = NO_VALUE | {Ops.LOOP, Ops.PHI, Ops.SPECIAL, Ops.DEFINE_GLOBAL}
# these have the dtype of memory, or of bits; arithmetic has float32
_EXACT = frozenset((Ops.CONST, Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL, Ops.LOAD, Ops.STORE, Ops.ATOMIC, Ops.BITCAST))


# ---- passes

def widen_floats(uops: Iterable[UOp]) -> UOpList:
  """For targets with blocks: arithmetic on float16, bfloat16 and fp8 -> arithmetic on float32 between CASTs.

  Values are rounded where they are stored, cast or taken as bits, not between two operations. A WHERE that chooses between narrow
  values is one of narrow values still.

      x:half = LOAD(..); y:half = x * x; STORE(.., y)   ->   x:half = LOAD(..); w:float = CAST(x); y:float = w * w;
                                                             z:half = CAST(y); STORE(.., z)
  """
  new: dict[UOp, UOp] = {}
  out: list[UOp] = []
  widened: dict[UOp, UOp] = {}   # narrow value -> its CAST, which follows it

  def wide(u: UOp) -> UOp:
    """A source as float32 where it is narrow, else as it is."""
    n = new[u]
    if n.dtype not in NARROW: return n
    if n.op is not Ops.CONST: return widened.setdefault(n, n.cast(F32))
    out.append(UOp.const(F32, n.arg))
    return out[-1]

  def cast(n: UOp, dtype: DType) -> UOp:
    """A value in another dtype, by a CAST that stands here."""
    if n.dtype is dtype: return n
    out.append(UOp.unique(Ops.CAST, dtype, (n,)))
    return out[-1]

  for u in uops:
    if u.op in _EXACT or not any(x.dtype in NARROW for x in (u, *u.src)):
      n = u.replace(tuple([cast(new[s], s.dtype) for s in u.src]))
    elif u.op is Ops.CAST:
      n = wide(u.src[0])
      if n.dtype is not u.dtype:
        if u.dtype in NARROW and n.dtype.kind != "b": n = cast(n, F32)   # by way of float32
        n = u.replace((n,))
    elif u.arg is TernaryOps.WHERE and all(new[s].dtype in NARROW for s in u.src[1:]) and \
        any(s.op is not Ops.CONST for s in u.src[1:]): n = u.replace(tuple([new[s] for s in u.src]))
    else: n = u.replace(tuple([wide(s) for s in u.src]), dtype=F32 if u.dtype in NARROW else u.dtype)
    new[u] = n
    out.append(n)
  return prune([x for n in out for x in (n, widened.get(n, n))])


def find_dots(uops: Sequence[UOp], fp8: bool, double: bool = False) -> UOpList:
  """For targets with blocks: sums of products -> products of blocks, sum[k](a * b) + c -> dot[k](a, b, c).

  ``fp8`` and ``double`` say that the target multiplies such values. The factors are those in memory, narrow ones
  too, and each varies with ``k`` and one other axis. A condition of the sum becomes one of each factor that is not 0 outside it
  anyway.

      s = REDUCE(WHERE(m, CAST(a) * CAST(b), 0)), arg (ADD, (k,)); t = s + c
      ->   t = REDUCE(WHERE(m, a, 0), WHERE(m, b, 0), c), arg (DOT, (k,))
  """
  sizes = {u.arg[0]: u.arg[1] for u in uops if u.op is Ops.RANGE}
  if len(sizes) < 3: return UOpList(uops)
  axes, order = block_axes(uops), axis_order(uops)
  uses = Counter(s for u in uops for s in u.src)
  new: dict[UOp, UOp] = {}
  out: list[UOp] = []

  def factors(u: UOp) -> list[UOp] | None:
    """The factors of a sum that is a product of blocks, the one whose free axis comes first in front. None where it is none."""
    if (found := _product(u, fp8, double)) is None: return None
    (k,), (a, b, wheres) = u.arg[1], found
    both = [a, b]
    free = [axes[x] - {k} for x in both if k in axes[x]]
    if [len(f) for f in free] != [1, 1] or free[0] == free[1]: return None
    if any(not any(axes[w] <= axes[x] for x in both) for w in wheres): return None
    ids = [i for f in free for i in f]
    if min(sizes[i] for i in (*ids, k)) < _SMALLEST_DOT: return None
    return [masked(x, wheres) for x in (both if order.index(ids[0]) < order.index(ids[1]) else both[::-1])]

  def masked(x: UOp, wheres: list[UOp]) -> UOp:
    """A factor that is zero where one of the conditions is false."""
    value = new[x]
    for where in wheres:
      if not axes[where] <= axes[x] or _zero_outside(x, where): continue   # then the other one is 0
      zero = UOp.const(x.dtype, 0)
      value = UOp.unique(Ops.ALU, x.dtype, (new[where], value, zero), TernaryOps.WHERE)
      out.extend((zero, value))
    return value

  for u in uops:
    n = u.replace(tuple([new[s] for s in u.src]))
    if u.op is Ops.REDUCE and (found := factors(u)) is not None: n = UOp(Ops.REDUCE, u.dtype, tuple(found), (DOT, u.arg[1]))
    elif u.op is Ops.ALU and u.arg is BinaryOps.ADD:
      for x, acc in (u.src, u.src[::-1]):
        dot = new[x]
        if is_dot(dot) and len(dot.src) == 2 and uses[x] == 1 and axes[acc] == axes[x]: n = dot.replace((*dot.src, new[acc]))
    new[u] = n
    out.append(n)
  return prune(out)


def keep_blocks(uops: Sequence[UOp]) -> UOpList:
  """For targets with blocks: a loop that adds up reduced blocks -> one that adds up whole blocks, which are reduced after it.

  Lanes are combined once and not in every iteration, for which a program's warps wait for each other. Products of blocks stay as
  they are: they have accumulators of their own.

      LOOP; r = REDUCE(x), arg (ADD, (a1,)); t = r + acc; PHI(acc, t); ENDLOOP; STORE(.., phi)
      ->   LOOP; t = x + acc; PHI(acc, t); ENDLOOP; r = REDUCE(phi), arg (ADD, (a1,)); STORE(.., r)
  """
  out = UOpList(uops)
  while len(after := _reduced_later(out)): out = after   # a sum of sums, the inner one first
  return load_late(out)


def load_late(uops: UOpList) -> UOpList:
  """What stands before a loop of products and is used after it only (a bias), after the loop: its registers are free until then,
  and a pipeline through several such loops waits for nothing but factors."""
  if not any(map(is_dot, uops)): return uops
  path: list[tuple[UOp, ...]] = []   # the loops that each node stands in
  begin: dict[UOp, int] = {}
  loops: list[tuple[int, int, tuple[UOp, ...]]] = []   # of products: first line, last line, the loops around
  around: tuple[UOp, ...] = ()
  last_dot = -1
  for i, u in enumerate(uops):
    if u.op is Ops.ENDLOOP:
      around = around[:-1]
      if last_dot > begin[u.src[0]]: loops.append((begin[u.src[0]], i, around))
    path.append(around)
    if u.op is Ops.LOOP: begin[u], around = i, (*around, u)
    if is_dot(u): last_dot = i
  first: dict[UOp, float] = {}       # where a node is first used
  place: dict[UOp, float] = {}
  for i, u in reversed([*enumerate(uops)]):
    used = first.get(u, -1.0)
    if u.op in _MOVED and not (u.op is Ops.LOAD and (u.src[0].op is not Ops.DEFINE_GLOBAL or u.src[0].arg[2])):
      ends = [end for start, end, outside in loops if i < start and end < used and outside == path[i]]
      if ends: place[u] = max(ends) + 0.5
    for s in u.src: first[s] = min(first.get(s, math.inf), place.get(u, i))
  if not place: return uops
  return UOpList(u for _, u in sorted(enumerate(uops), key=lambda t: place.get(t[1], t[0])))


def _reduced_later(uops: UOpList) -> UOpList:
  """One round of ``keep_blocks``: the loops whose values are reduced in them. Empty where there are none."""
  uses = Counter(s for u in uops for s in u.src)
  axes = block_axes(uops)
  sums = {u: parts for u in uops if u.op is Ops.PHI and (parts := _added_blocks(u, uses, axes))}
  if not sums: return UOpList()
  inside = {r: r.src[0] for parts in sums.values() for r in parts}
  new: dict[UOp, UOp] = {}
  out: list[UOp] = []
  waiting: defaultdict[UOp, list[UOp]] = defaultdict(list)   # loop -> PHIs that are reduced after it
  for u in uops:
    if u in inside:
      new[u] = new[inside[u]]
      continue
    new[u] = u.replace(tuple([new[s] for s in u.src]))
    out.append(new[u])
    if u in sums: waiting[u.src[2]].append(u)
    if u.op is Ops.ENDLOOP:
      for phi in waiting.pop(u.src[0], ()):
        new[phi] = UOp(Ops.REDUCE, phi.dtype, (new[phi],), sums[phi][0].arg)
        out.append(new[phi])
  return UOpList(out)


def _added_blocks(phi: UOp, uses: Mapping[UOp, int], axes: Mapping[UOp, frozenset[int]]) -> list[UOp]:
  """The REDUCEs of blocks, all alike, that a loop adds to an accumulator; empty where it adds something else."""
  acc, total = phi.src[:2]
  fn, found = total.arg, list[UOp]()
  while total is not acc:
    if total.op is not Ops.ALU or total.arg is not fn or uses[total] != 1 or len(total.src) != 2: return []
    here, rest = total.src if total.src[0].op is Ops.REDUCE else total.src[::-1]
    if here.op is not Ops.REDUCE or is_dot(here) or here.arg[0] is not fn or uses[here] != 1: return []
    if here.src[0].dtype is not phi.dtype: return []
    found.append(here)
    total = rest
  sizes = {u.arg[0]: u.arg[1] for u in axes if u.op is Ops.RANGE}
  if math.prod(sizes[i] for r in found for i in axes[r.src[0]]) > MOST_KEPT ** len(found): return []
  alike = len({(r.arg[1], axes[r.src[0]]) for r in found}) == 1
  return found if alike and acc.op is Ops.DEFINE_ACC and uses[acc] == 2 else []


def _product(u: UOp, fp8: bool, double: bool) -> tuple[UOp, UOp, list[UOp]] | None:
  """The factors that a REDUCE adds products of, as they are in memory, and the conditions outside which they count as zero. None
  where it adds other things, along several axes or in a dtype that the target multiplies no blocks of."""
  value, wheres = u.src[0], list[UOp]()
  while value.arg is TernaryOps.WHERE and value.src[2].op is Ops.CONST and value.src[2].arg == 0:
    wheres.append(value.src[0])
    value = value.src[1]
  if u.arg[0] is not BinaryOps.ADD or len(u.arg[1]) != 1 or value.arg is not BinaryOps.MUL: return None
  a, b = map(_loaded, value.src)
  x, y = (s.src[0] if s.op is Ops.CAST else s for s in (a, b))
  if x.dtype is y.dtype and x.dtype in {F32: NARROW if fp8 else NARROW - FP8, dtypes.int32: (dtypes.int8,)}.get(u.dtype, ()):
    return x, y, wheres
  return (a, b, wheres) if u.dtype is F32 or double and u.dtype is dtypes.float64 else None


def _loaded(u: UOp) -> UOp:
  """A factor without a condition outside which it was loaded as 0 anyway."""
  if u.arg is not TernaryOps.WHERE or u.src[2].op is not Ops.CONST or u.src[2].arg != 0: return u
  return u.src[1] if _zero_outside(u.src[1], u.src[0]) else u


def _zero_outside(x: UOp, where: UOp) -> bool:
  """Whether a factor is a LOAD that gives 0 where ``where`` is false."""
  while x.op is Ops.CAST: x = x.src[0]
  return x.op is Ops.LOAD and loads_zero(x) and set(ix.conjuncts(where)) <= set(ix.conjuncts(gate_of(x)))


def prune(uops: Sequence[UOp], sources: Callable[[UOp], Iterable[UOp]] = lambda u: u.src) -> UOpList:
  """Without the values that nothing reads, each node once, constants in front. ``sources`` tells what a node reads."""
  used: set[UOp] = set()
  for u in reversed(uops):
    if u.op in _EFFECTS or u in used: used.update((u, *sources(u)))
  return UOpList(u for u in sorted(dict.fromkeys(uops), key=lambda u: u.op is not Ops.CONST) if u in used)


# ---- nodes

def is_dot(u: UOp) -> bool: return u.op is Ops.REDUCE and u.arg[0] is DOT


def gate_of(u: UOp) -> UOp | None:
  """The condition under which a LOAD, STORE or ATOMIC accesses memory; None where it always does."""
  gate = u.src[2 if u.op is Ops.LOAD else 3:][:1]
  return gate[0] if gate else None


def loads_zero(u: UOp) -> bool:
  """Whether a LOAD gives 0 where its gate is false."""
  return len(u.src) < 4 or u.src[3].op is Ops.CONST and u.src[3].arg == 0


def accumulator(u: UOp) -> UOp:
  """The DEFINE_ACC that a PHI assigns; any other node itself."""
  while u.op is Ops.PHI: u = u.src[0]
  return u


def accesses_variable(u: UOp) -> bool:
  """Whether a LOAD or STORE accesses a variable of the program, not memory."""
  return u.op in (Ops.LOAD, Ops.STORE) and u.src[0].op is Ops.DEFINE_LOCAL


def sources(u: UOp) -> tuple[UOp, ...]:
  """What the text of a node names: not the index into a variable but its terms, as the variable's dimensions are told apart."""
  return (u.src[0], *terms(u.src[1])[0], *u.src[2:]) if accesses_variable(u) else u.src


# ---- axes and indices

def block_axes(uops: Sequence[UOp]) -> defaultdict[UOp, frozenset[int]]:
  """The TILE axes that each value varies with. An accumulator has those of what is assigned to it; a variable has none, its
  accesses have."""
  axes: defaultdict[UOp, frozenset[int]] = defaultdict(frozenset)
  grown = True
  while grown:
    grown = False
    for u in uops:
      along = axes[u].union(*[axes[s] for s in sources(u)])
      if u.op is Ops.RANGE: along = frozenset((u.arg[0],))
      elif u.op is Ops.REDUCE: along = along.difference(u.arg[1])
      for x in (u, accumulator(u)):
        grown |= axes[x] != along
        axes[x] = along
  return axes


def block_shapes(uops: Sequence[UOp]) -> dict[UOp, tuple[int, ...]]:
  """The shape of each value that is a block: the sizes of the TILE axes that it varies with, in one order for the program."""
  sizes = {u.arg[0]: u.arg[1] for u in uops if u.op is Ops.RANGE}
  if not sizes: return {}
  order, axes = axis_order(uops), block_axes(uops)
  return {u: tuple([sizes[i] for i in order if i in axes[u]]) for u in uops if axes[u] and u.op not in NO_VALUE}


def axis_order(uops: Sequence[UOp]) -> list[int]:
  """One order of the TILE axes for the whole program: STOREs, then LOADs, put what moves further through memory first."""
  later: dict[int, set[int]] = {u.arg[0]: set() for u in uops if u.op is Ops.RANGE}   # axis -> those that come after it
  for kind in (Ops.STORE, Ops.LOAD):
    for u in uops:
      if u.op is not kind: continue
      steps = sorted([found for x, k in terms(u.src[1])[0].items() if (found := step(x, k)) is not None], key=lambda t: -t[0])
      for (s, a), (t, b) in combinations(steps, 2):
        if s == t or a == b or a in later[b]: continue
        for i, after in later.items():
          if i == a or a in after: after |= {b} | later[b]
  out: list[int] = []
  while later:
    out.append(next(i for i in later if not any(i in after for after in later.values())))
    del later[out[-1]]
  return out


def step(x: UOp, k: int) -> tuple[int, int] | None:
  """About how far a term of an index moves through memory with a TILE axis, and the axis: r5 * N * 8 -> 8 N's hint, 5. None for a
  term of none, or of several."""
  axes, others = [], abs(k)
  for f in ix.factors(x):
    while f.op is Ops.CAST: f = f.src[0]
    if f.op is Ops.RANGE: axes.append(f.arg[0])
    else: others *= max(ix.hint(f), 1)
  return (others, axes[0]) if len(axes) == 1 else None


def terms(index: UOp) -> tuple[dict[UOp, int], int]:
  """An index of the linear form as its terms (atom, factor) and constant: ``ix.linear``, through CASTs of ints."""
  found: dict[UOp, int] = {}
  constant = 0
  left = [(index, 1)]
  while left:
    u, factor = left.pop()
    while u.op is Ops.CAST and u.src[0].dtype.kind in "iu": u = u.src[0]
    parts, c = ix.linear(u)
    constant += factor * c
    for x, k in reversed(parts):
      if x is not u: left.append((x, factor * k))
      else: found[x] = found.get(x, 0) + factor * k
  return found, constant


def layout(size: int, index: UOp) -> tuple[int, ...] | None:
  """The shape of an array of ``size`` elements of which an access at ``index`` takes every one: the sizes of its axes, the
  outermost first."""
  atoms, c = terms(index)
  if c or any(x.op is not Ops.RANGE for x in atoms): return None
  below = 1
  shape: list[int] = []
  for x, k in sorted(atoms.items(), key=lambda t: t[1]):
    if k != below: return None
    shape.insert(0, x.arg[1])
    below *= x.arg[1]
  return tuple(shape) if below == size else None
