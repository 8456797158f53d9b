"""Passes over linear UOps before they are written as Triton: narrow floats to float32, products to dots, what nobody reads away.

Triton computes with float32 and float64; memory also has float16, bfloat16 and the fp8 dtypes. After ``widen`` those occur at
LOAD, STORE, CAST and BITCAST only (and where values are merely chosen), and no rounding stands between two operations that had
none in memory.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, Sequence

from .dtype import dtypes
from .index import conjuncts
from .uop import COMPARE, BinaryOps, Ops, TernaryOps, UnaryOps, UOp, toposort

F32 = dtypes.float32
NARROW = frozenset((dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2))
FP8 = frozenset((dtypes.float8_e4m3, dtypes.float8_e5m2))
EFFECTS = frozenset(
  (
    Ops.STORE,
    Ops.ATOMIC,
    Ops.LOOP,
    Ops.ENDLOOP,
    Ops.PHI,
    Ops.IF,
    Ops.ELSE,
    Ops.ENDIF,
    Ops.WHILE,
    Ops.BREAK,
    Ops.ENDWHILE,
    Ops.SPECIAL,
    Ops.BARRIER,
    Ops.DEFINE_GLOBAL,
  )
)
DOT = "dot"   # a REDUCE with this in its arg: (a, b[, accumulator]), arg (DOT, axis id)


def widen(uops: Iterable[UOp]) -> list[UOp]:
  """Arithmetic on narrow floats becomes arithmetic on float32 between casts."""
  new: dict[UOp, UOp] = {}
  out: list[UOp] = []
  after: dict[UOp, list[UOp]] = {}
  seen: set[UOp] = set()

  def wide(u: UOp) -> UOp:
    """The value of a source as float32 where its dtype is narrow, else as it is."""
    n = new[u]
    if n.dtype not in NARROW: return n
    if n.op is Ops.CONST: return UOp.const(F32, n.arg)
    c = UOp(Ops.CAST, F32, (n,))
    if c not in seen:
      seen.add(c)
      after.setdefault(n, []).append(c)
    return c

  def raw(u: UOp) -> UOp:
    """The value of a source as memory of its dtype keeps it."""
    n = new[u]
    if n.dtype is u.dtype: return n
    c = UOp.unique(Ops.CAST, u.dtype, (n,))
    out.append(c)
    return c

  for u in uops:
    if u.dtype.count > 1:
      new[u] = u
    elif u.op is Ops.CONST or not any(x.dtype in NARROW for x in (u, *u.src)):
      new[u] = u.replace(tuple(new[s] for s in u.src))
    elif u.op is Ops.LOAD: new[u] = u.replace((*(new[s] for s in u.src[:3]), *(raw(s) for s in u.src[3:])))
    elif u.op in (Ops.STORE, Ops.ATOMIC):
      new[u] = u.replace((new[u.src[0]], new[u.src[1]], raw(u.src[2]), *(new[s] for s in u.src[3:])))
    elif u.op is Ops.BITCAST: new[u] = u.replace((raw(u.src[0]),))
    elif u.op is Ops.CAST:
      x = wide(u.src[0])
      if u.dtype in NARROW and x.dtype.kind != "b" and x.dtype is not F32: x = new_cast(x, out)
      new[u] = x if x.dtype is u.dtype else u.replace((x,))
    elif u.op is Ops.ALU and u.arg is TernaryOps.WHERE and all(new[s].dtype in NARROW for s in u.src[1:]) and \
        any(new[s].op is not Ops.CONST for s in u.src[1:]): new[u] = u.replace(tuple(new[s] for s in u.src))
    elif u.op is Ops.DEFINE_GLOBAL or u.op is Ops.DEFINE_LOCAL: new[u] = u
    else:
      d = u.dtype if u.dtype not in NARROW or u.arg in COMPARE or u.arg is UnaryOps.ISNAN else F32
      new[u] = u.replace(tuple(wide(s) for s in u.src), dtype=d)
    n = new[u]
    if n not in seen:
      seen.add(n)
      out.append(n)
  return [x for n in out for x in (n, *after.get(n, ()))]


def new_cast(x: UOp, out: list[UOp]) -> UOp:
  """A number as float32, on its way to a narrower float."""
  c = UOp.unique(Ops.CAST, F32, (x,))
  out.append(c)
  return c


def sources(u: UOp) -> tuple[UOp, ...]:
  """What the text of a node names: of the index into a variable only what it is made of, as its dimensions are told apart."""
  if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].op is Ops.DEFINE_LOCAL: return (u.src[0], *terms(u.src[1])[0], *u.src[2:])
  return u.src


# ---- which axes a value is a block over

def block_axes(uops: Sequence[UOp]) -> dict[UOp, frozenset[int]]:
  """The TILE axes that each value varies with. An accumulator or variable has those of what is assigned to it."""
  dims: dict[UOp, frozenset[int]] = {}
  none: frozenset[int] = frozenset()
  while True:
    before = dict(dims)
    for u in uops:
      d = none.union(*(dims.get(s, none) for s in sources(u))) if u.src else dims.get(u, none)
      if u.op is Ops.RANGE: d = frozenset((u.arg[0],))
      elif u.op is Ops.REDUCE: d = d.difference((u.arg[1],) if u.arg[0] is DOT else u.arg[1])
      elif u.op is Ops.DEFINE_LOCAL: d = none
      elif u.op is Ops.PHI:
        acc = accumulator(u)
        d |= dims.get(acc, none)
        dims[acc] = d
      dims[u] = d
    if dims == before: return dims


def accumulator(u: UOp) -> UOp:
  """The DEFINE_ACC that a PHI assigns."""
  while u.op is Ops.PHI: u = u.src[0]
  return u


def steps(u: UOp) -> dict[int, int]:
  """What an index moves by along each TILE axis that it is linear in."""
  return {x.arg[0]: k for x, k in terms(u)[0].items() if x.op is Ops.RANGE}


def terms(u: UOp) -> tuple[dict[UOp, int], int]:
  """An index as its atoms with their factors, and its constant."""
  def whole(n: UOp) -> bool: return n.dtype.kind in "iu"

  def joined(n: UOp) -> bool:
    return n.op is Ops.CAST and whole(n.src[0]) or n.op is Ops.ALU and n.arg in (BinaryOps.ADD, BinaryOps.MUL)

  found: dict[UOp, tuple[dict[UOp, int], int]] = {}
  for n in toposort((u,), lambda n: not joined(n)):
    found[n] = {n: 1}, 0
    if n.op is Ops.CONST and whole(n): found[n] = {}, int(n.arg)
    elif not joined(n): continue
    elif n.op is Ops.CAST: found[n] = found[n.src[0]]
    elif n.arg is BinaryOps.ADD:
      (a, c), (b, d) = found[n.src[0]], found[n.src[1]]
      found[n] = {x: a.get(x, 0) + b.get(x, 0) for x in {**a, **b}}, c + d
    else:
      for x, f in (n.src, n.src[::-1]):
        if f.op is Ops.CONST and whole(f):
          found[n] = {t: k * int(f.arg) for t, k in found[x][0].items()}, found[x][1] * int(f.arg)
  return found[u]


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


def axis_order(uops: Sequence[UOp]) -> list[int]:
  """One order of the TILE axes for the whole kernel: STOREs, then LOADs, put what moves further through memory first."""
  ids = list(dict.fromkeys(u.arg[0] for u in uops if u.op is Ops.RANGE))
  later: dict[int, set[int]] = {i: set() for i in ids}
  def reaches(a: int, b: int) -> bool: return b in later[a] or any(reaches(x, b) for x in later[a])
  for kind in (Ops.STORE, Ops.LOAD):
    for u in uops:
      if u.op is not kind: continue
      by = sorted(((i, abs(s)) for i, s in steps(u.src[1]).items() if s), key=lambda t: -t[1])
      for j, (a, s) in enumerate(by):
        for b, t in by[j + 1:]:
          if s > t and a != b and not reaches(b, a): later[a].add(b)
  out: list[int] = []
  while len(out) < len(ids):
    out.append(next(i for i in ids if i not in out and not any(i in later[x] for x in ids if x not in out)))
  return out


# ---- matrix products

@dataclass
class Dots:
  """``find`` makes REDUCEs of products into dots where Triton has one: ``uops`` after it."""
  uops: list[UOp]
  fp8: bool = True                     # the chip multiplies fp8
  sizes: dict[int, int] = field(default_factory=dict)
  dims: dict[UOp, frozenset[int]] = field(default_factory=dict)

  def find(self) -> list[UOp]:
    self.sizes = {u.arg[0]: u.arg[1] for u in self.uops if u.op is Ops.RANGE}
    if len(self.sizes) < 3 or not any(u.op is Ops.REDUCE for u in self.uops): return self.uops
    self.dims = block_axes(self.uops)
    uses: dict[UOp, int] = {}
    for u in self.uops:
      for s in u.src: uses[s] = uses.get(s, 0) + 1
    new: dict[UOp, UOp] = {}
    out: list[UOp] = []
    for u in self.uops:
      src = tuple(new.get(s, s) for s in u.src)   # constants made on the way stand in no list
      n = u.replace(src)
      if u.op is Ops.REDUCE and (found := self.operands(u)) is not None:
        factors = []
        for x, where in found:
          f = new[x]
          if where is not None:
            out.append(f := UOp.unique(Ops.ALU, x.dtype, (new[where], f, UOp.const(x.dtype, 0)), TernaryOps.WHERE))
          factors.append(f)
        n = UOp(Ops.REDUCE, u.dtype, tuple(factors), (DOT, u.arg[1][0]))
      elif u.op is Ops.ALU and u.arg is BinaryOps.ADD:   # acc + dot(a, b) is dot(a, b, acc)
        for x, acc in (u.src, u.src[::-1]):
          d = new.get(x, x)
          plain = d.op is Ops.REDUCE and d.arg[0] is DOT and len(d.src) == 2
          if plain and uses[x] == 1 and self.dims.get(acc) == self.dims[x]:
            n = UOp(Ops.REDUCE, u.dtype, (*d.src, new[acc]), d.arg)
      new[u] = n
      out.append(n)
    return prune(out)

  def operands(self, u: UOp) -> list[tuple[UOp, UOp | None]] | None:
    """The factors of a REDUCE that is a matrix product, the one whose free axis comes first in front, and where each must be made
    zero."""
    fn, ids = u.arg
    value = u.src[0]
    where = None
    if value.op is Ops.ALU and value.arg is TernaryOps.WHERE and value.src[2].op is Ops.CONST and value.src[2].arg == 0:
      where, value, _ = value.src
    if fn is not BinaryOps.ADD or len(ids) != 1 or value.op is not Ops.ALU or value.arg is not BinaryOps.MUL: return None
    k, (a, b) = ids[0], value.src
    if u.dtype is F32:
      sa, sb = self.stored(a), self.stored(b)
      if sa.dtype is sb.dtype and (sa.dtype in NARROW - FP8 or (self.fp8 and sa.dtype in FP8)): a, b = sa, sb
    elif u.dtype is dtypes.int32:
      a, b = self.stored(a), self.stored(b)
      if a.dtype is not dtypes.int8 or b.dtype is not dtypes.int8: return None
    else: return None
    none: frozenset[int] = frozenset()
    da, db = self.dims.get(a, none), self.dims.get(b, none)
    free_a, free_b = da - {k}, db - {k}
    if k not in da or k not in db or len(free_a) != 1 or len(free_b) != 1 or free_a == free_b: return None
    (m,), (n,) = free_a, free_b
    if min(self.sizes[x] for x in (m, n, k)) < 9: return None   # a dot of 16 would be padding, mostly
    if where is not None and self.dims[where] != {k}: return None
    order = axis_order(self.uops)
    factors = (a, b) if order.index(m) < order.index(n) else (b, a)
    return [(x, None if where is None or gated(x, where) else where) for x in factors]

  def stored(self, u: UOp) -> UOp:
    """What a CAST widened."""
    widens = u.op is Ops.CAST and (u.src[0].dtype in NARROW if u.dtype is F32 else u.src[0].dtype is dtypes.int8)
    return u.src[0] if widens else u


def gated(x: UOp, where: UOp) -> bool:
  """Whether a factor is a LOAD that gives 0 where ``where`` is false."""
  while x.op is Ops.CAST: x = x.src[0]
  if x.op is not Ops.LOAD or len(x.src) < 3 or (len(x.src) > 3 and x.src[3].arg != 0): return False
  return set(conjuncts(where)) <= set(conjuncts(x.src[2]))


def prune(uops: Sequence[UOp]) -> list[UOp]:
  """Without the values that nothing reads."""
  used: set[UOp] = set()
  for u in reversed(uops):
    if u.op in EFFECTS or u in used:
      used.add(u)
      used.update(sources(u))
  return [u for u in uops if u in used]
