"""Pass for targets with blocks: whole blocks are added up in a loop, and reduced after it."""
from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Mapping, Sequence

from ..ir import Ops, UOp
from ..kernel import UOpList, block_axes, is_dot

MOST_KEPT = 16384   # elements of a block that is an accumulator
_MOVED = frozenset((Ops.LOAD, Ops.CAST, Ops.ALU, Ops.BITCAST))


def keep_blocks(uops: Sequence[UOp]) -> UOpList:
  """For targets with blocks: a loop that adds up reduced blocks -> one that adds up whole blocks, which are reduced after it.

  Lanes are combined once and not in every iteration, for which warps wait. Products of blocks have accumulators of their own.

      LOOP; r = REDUCE(x), arg (ADD, (a1,)); t = r + acc; PHI(acc, t); ENDLOOP; STORE(.., phi)
      ->   LOOP; t = x + acc; PHI(acc, t); ENDLOOP; r = REDUCE(phi), arg (ADD, (a1,)); STORE(.., r)"""
  out = UOpList(uops)
  while len(after := _reduced_later(out)): out = after   # a sum of sums, the inner one first
  return load_late(out)


def load_late(uops: UOpList) -> UOpList:
  """What stands before a loop of products and is used after it only (a bias), after the loop: its registers are free so long."""
  if not any(map(is_dot, uops)): return uops
  path: list[tuple[UOp, ...]] = []   # the loops that each node stands in
  loops: list[tuple[int, int, tuple[UOp, ...]]] = []   # of products: first line, last line, the loops around
  begin, around, last_dot = dict[UOp, int](), tuple[UOp, ...](), -1
  for i, u in enumerate(uops):
    if u.op is Ops.ENDLOOP:
      around = around[:-1]
      if last_dot > begin[u.src[0]]: loops.append((begin[u.src[0]], i, around))
    path.append(around)
    if u.op is Ops.LOOP: begin[u], around = i, (*around, u)
    if is_dot(u): last_dot = i
  first, place = dict[UOp, float](), dict[UOp, float]()   # where a node is first used, and where it is to stand
  for i, u in reversed([*enumerate(uops)]):
    used = first.get(u, -1.0)
    if u.op in _MOVED and not (u.op is Ops.LOAD and (u.src[0].op is not Ops.DEFINE_GLOBAL or u.src[0].arg[2])):
      if ends := [end for start, end, outside in loops if i < start and end < used and outside == path[i]]:
        place[u] = max(ends) + 0.5
    for s in u.src: first[s] = min(first.get(s, math.inf), place.get(u, i))
  return uops if not place else UOpList(u for _, u in sorted(enumerate(uops), key=lambda t: place.get(t[1], t[0])))


def _reduced_later(uops: UOpList) -> UOpList:
  """One round of ``keep_blocks``: the loops whose values are reduced in them. Empty where there are none."""
  uses = Counter(s for u in uops for s in u.src)
  axes = block_axes(uops)
  sums = {u: parts for u in uops if u.op is Ops.PHI and (parts := _added_blocks(u, uses, axes))}
  if not sums: return UOpList()
  inside = {r: r.src[0] for parts in sums.values() for r in parts}
  new, out = dict[UOp, UOp](), list[UOp]()
  waiting: defaultdict[UOp, list[UOp]] = defaultdict(list)   # loop -> PHIs that are reduced after it
  for u in uops:
    if u in inside:
      new[u] = new[inside[u]]
      continue
    new[u] = u.replace(tuple(new[s] for s in u.src))
    out.append(new[u])
    if u in sums: waiting[u.src[2]].append(u)
    for phi in waiting.pop(u.src[0], ()) if u.op is Ops.ENDLOOP else ():
      new[phi] = UOp(Ops.REDUCE, phi.dtype, (new[phi],), sums[phi][0].arg)
      out.append(new[phi])
  return UOpList(out)


def _added_blocks(phi: UOp, uses: Mapping[UOp, int], axes: Mapping[UOp, frozenset[int]]) -> list[UOp]:
  """The REDUCEs of blocks, all alike, that a loop adds to an accumulator; empty where it adds something else."""
  acc, total = phi.src[:2]
  fn, found = total.arg, list[UOp]()
  while total is not acc:
    if total.op is not Ops.ALU or total.arg is not fn or uses[total] != 1 or len(total.src) != 2: return []
    here, total = total.src if total.src[0].op is Ops.REDUCE else total.src[::-1]
    if here.op is not Ops.REDUCE or here.arg[0] is not fn or uses[here] != 1 or here.src[0].dtype is not phi.dtype: return []
    found.append(here)
  sizes = dict(u.arg for u in axes if u.op is Ops.RANGE)
  if math.prod(sizes[i] for r in found for i in axes[r.src[0]]) > MOST_KEPT ** len(found): return []
  return found if len({(r.arg[1], axes[r.src[0]]) for r in found}) == 1 and acc.op is Ops.DEFINE_ACC and uses[acc] == 2 else []
