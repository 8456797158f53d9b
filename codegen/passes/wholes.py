"""Pass for targets with blocks: programs whose block lies inside the data run a copy of the code without masks.

A mask that ends at no multiple of a vector keeps a whole block from being moved by vectors, though it leaves out elements of the
last program only. So where accesses could be vectors but for such masks, programs branch.
"""
from __future__ import annotations

import math
import operator
from functools import reduce
from typing import Callable, Iterable, Mapping, Sequence

from .. import index as ix
from ..ir import NO_VALUE, BinaryOps, Ops, TernaryOps, UOp, config, dtypes, toposort
from ..ir.alu import add, and_, less, mul
from ..kernel import LOAD_OR_STORE, UOpList, gate_or_true, is_dot, prune, terms

_WIDE = 16        # bytes that a thread moves at a time, at most
MOST_NODES = 400  # of a program that is written twice
_GONE = UOp.const(dtypes.bool, True)
_SHARED = frozenset((Ops.DEFINE_GLOBAL, Ops.DEFINE_VAR, Ops.SPECIAL, Ops.RANGE, Ops.CONST))
_OWN = NO_VALUE | {Ops.LOOP, Ops.PHI, Ops.DEFINE_ACC, Ops.DEFINE_LOCAL}   # each branch has one of its own
_LEFT = frozenset((Ops.WHILE, Ops.IF, Ops.ATOMIC, Ops.BARRIER, Ops.PRINT, Ops.FOLD)) # programs with these stay as they are
_UNIFORM = frozenset((Ops.SPECIAL, Ops.DEFINE_VAR, Ops.CONST, Ops.ALU, Ops.CAST))

Sum = tuple[tuple[UOp, int], ...]    # of values that a program has one of, each with a factor
_Condition = tuple[Sum, int]         # that such a sum is less than a number


def branch_whole(uops: UOpList) -> UOpList:
  """For targets with blocks: what is masked for the last program's sake -> a branch without the masks, and the rest as it was.

      STORE(y, g*1024 + r, x, g*1024 + r < n)
      ->   IF(g*1024 < n - 1023); STORE(y, g*1024 + r, x); ELSE; STORE(y, g*1024 + r, x, g*1024 + r < n); ENDIF"""
  if config.noopt or len(uops) > MOST_NODES or any(u.op in _LEFT or is_dot(u) for u in uops) or _read_after_write(uops):
    return uops
  uniform: dict[UOp, None] = {}   # the integers that a program has one of from its beginning on
  for u in uops:
    if u.op in _UNIFORM and u.dtype.kind in "iu" and all(s in uniform for s in u.src): uniform[u] = None
  gates = dict.fromkeys(c for u in uops if u.op in LOAD_OR_STORE for c in ix.conjuncts(gate_or_true(u)))
  always = {c: found for c in gates if (found := _for_all(c, uniform)) is not None}
  if not always or not any(_widened(u, always) for u in uops): return uops
  least: dict[Sum, int] = {}
  for sum_, end in always.values(): least[sum_] = min(end, least.get(sum_, end))
  return _branched(uops, frozenset(always), least) if _mostly(uniform, least) else uops


def _read_after_write(uops: Sequence[UOp]) -> bool:
  """Whether memory is read after it was written: the order of such accesses is not changed."""
  written: set[UOp] = set()
  for u in uops:
    if u.op is Ops.STORE and u.src[0].op is Ops.DEFINE_GLOBAL: written.add(u.src[0])
    elif u.op is Ops.LOAD and u.src[0] in written: return True
  return False


def _difference(c: UOp) -> tuple[dict[UOp, int], int] | None:
  """The sum that is less than 0 where a comparison holds: its terms, and its constant."""
  if c.arg is not BinaryOps.CMPLT or any(s.dtype.kind not in "iu" for s in c.src): return None
  found, constant = terms(c.src[0])
  more, other = terms(c.src[1])
  for x, k in more.items(): found[x] = found.get(x, 0) - k
  return {x: k for x, k in found.items() if k}, constant - other


def _for_all(c: UOp, uniform: Mapping[UOp, None]) -> _Condition | None:
  """When a condition holds for all of a program's elements; None where that does not depend on it, or nobody knows."""
  if (found := _difference(c)) is None: return None
  mine, most = [], found[1]
  for x, k in found[0].items():
    if x in uniform: mine.append((x, k))
    elif x.dtype.kind not in "iu" or x.op in (Ops.LOAD, Ops.PHI, Ops.DEFINE_ACC): return None
    else:
      low, high = ix.bounds(x)
      if max(abs(low), abs(high)) >= ix.FAR: return None
      most += k * (high if k > 0 else low)
  return (tuple(mine), -most) if mine else None


def _widened(u: UOp, always: Mapping[UOp, _Condition]) -> bool:
  """Whether an access would move vectors but for masks that whole programs do without."""
  if u.op not in LOAD_OR_STORE or u.src[0].op is not Ops.DEFINE_GLOBAL or (gate := gate_or_true(u)) is ix.TRUE: return False
  most = _WIDE // u.src[0].dtype.itemsize
  found, constant = terms(u.src[1])
  along = next((x for x, k in found.items() if x.op is Ops.RANGE and k == 1), None)
  if along is None: return False
  width = math.gcd(most, along.arg[1], constant, *[k for x, k in found.items() if x is not along])
  if width == 1: return False
  masks = {c: _aligned(c, along, width) for c in ix.conjuncts(gate)}
  return min(masks.values()) < min([n for c, n in masks.items() if c not in always], default=width)


def _aligned(c: UOp, along: UOp, width: int) -> int:
  """How many neighbours along an axis a condition is the same for, at most ``width``."""
  if (found := _difference(c)) is None: return 1
  k = found[0].get(along, 0)
  if abs(k) > 1: return 1
  if not k: return width if not any(along in x.ranges for x in found[0]) else 1
  return math.gcd(width, found[1] + (k < 0), *[n for x, n in found[0].items() if x is not along])


_VALUE: Mapping[object, Callable[[int, int], int]] = {
  BinaryOps.ADD: operator.add, BinaryOps.SUB: operator.sub, BinaryOps.MUL: operator.mul, BinaryOps.MIN: min, BinaryOps.MAX: max,
  BinaryOps.IDIV: operator.floordiv, BinaryOps.MOD: operator.mod}


def _mostly(uniform: Iterable[UOp], least: Mapping[Sum, int]) -> bool:
  """Whether the program in the middle of all is whole."""
  value: dict[UOp, int] = {}
  for u in uniform:
    if u.op is Ops.CONST: value[u] = int(u.arg)
    elif u.op is Ops.SPECIAL: value[u] = ix.count(u.arg[2]) // 2
    elif u.op is Ops.DEFINE_VAR: value[u] = ix.hint(u)
    elif all(s in value for s in u.src):
      if u.op is Ops.CAST: value[u] = value[u.src[0]]
      elif u.arg in _VALUE and (u.arg not in (BinaryOps.IDIV, BinaryOps.MOD) or value[u.src[1]]):
        value[u] = _VALUE[u.arg](value[u.src[0]], value[u.src[1]])
  if any(x not in value for sum_ in least for x, _ in sum_): return False
  return all(sum(k * value[x] for x, k in sum_) < end for sum_, end in least.items())


def _condition(least: Mapping[Sum, int]) -> UOp:
  """The condition that sums are less than their ends."""
  whole = []
  for sum_, end in least.items():
    wide = any(x.dtype.itemsize > 4 for x, _ in sum_)
    dtype = dtypes.int64 if wide or abs(end) > dtypes.max(dtypes.int32) else dtypes.int32
    added = [x.cast(dtype) if k == 1 else mul(x.cast(dtype), UOp.const(dtype, k)) for x, k in sum_]
    whole.append(less(reduce(add, added), UOp.const(dtype, end)))
  return reduce(and_, whole)


def _branched(uops: UOpList, gone: frozenset[UOp], least: Mapping[Sum, int]) -> UOpList:
  """A program with a branch in which some conditions hold."""
  new: dict[UOp, UOp] = {}
  for u in uops:
    op, arg = u.op, u.arg
    src = tuple(new[s] for s in u.src)
    if u in gone: n = _GONE
    elif op in _SHARED: n = u
    elif op is Ops.DEFINE_LOCAL: n = UOp.unique(op, u.dtype, src, (f"{arg[0]}_whole", *arg[1:]))
    elif op in LOAD_OR_STORE and (at := 2 if op is Ops.LOAD else 3) < len(src) and src[at] is _GONE:
      n = UOp.unique(op, u.dtype, src[:at], arg) if op is Ops.STORE else u.replace(src[:at])
    elif op in _OWN: n = UOp.unique(op, u.dtype, src, arg)
    elif arg is BinaryOps.AND and _GONE in src: n = src[src[0] is _GONE]
    elif arg is TernaryOps.WHERE and src[0] is _GONE: n = src[1]
    else: n = u.replace(src)
    new[u] = n
  begin, without, masked = _apart([*new.items()], {x for sum_ in least for x, _ in sum_})
  condition = _condition(least)
  branch = UOp.unique(Ops.IF, dtypes.bool, (condition,))
  other, end = (UOp.unique(op, dtypes.bool, (branch,)) for op in (Ops.ELSE, Ops.ENDIF))
  return prune([_GONE, *begin, *toposort((condition,), set(begin).__contains__), branch, *without, other, *masked, end])


def _apart(copies: Sequence[tuple[UOp, UOp]], asked: set[UOp]) -> tuple[list[UOp], list[UOp], list[UOp]]:
  """What both branches need and is the same in them, or is ``asked`` for before they begin; what the one needs, and the other."""
  needed = set(asked), set(asked)
  for side in 0, 1:
    for pair in reversed(copies):
      u = pair[side]
      if u.op in _OWN or u in needed[side]: needed[side].update((u, *u.src))
  both = needed[0] & needed[1] | {u for u in needed[0] | needed[1] if u.op in _SHARED}
  def listed(side: int) -> list[UOp]: return [*dict.fromkeys(p[side] for p in copies if p[side] in needed[side])]
  without, masked = ([u for u in listed(side) if u not in both] for side in (1, 0))
  return [*dict.fromkeys(u for p in copies for u in p if u in both)], without, masked
