"""The axes of a kernel brought to their simplest form before Opts split them: an axis that every index uses as ``a // n`` and
``a % n`` becomes two, and two axes that every index uses as ``a * n + b`` become one."""
from __future__ import annotations

import itertools

from .. import index as ix
from ..ir import BinaryOps, Ops, UOp
from ..kernel import Kernel, access_profile
from .axes import Fuse, Split, split_axis


def split_axes(kernel: Kernel) -> Kernel:
  """An axis that indices only see through ``a // n`` and ``a % n`` becomes the two that they mean (a flattened gradient). Not one
  whose number stands for a run-time size (then it has a ``most``), which ``n`` need not divide."""
  axes = {a.rng: a for a in kernel.axes if isinstance(a.size, UOp) or not a.most}
  for u in kernel.nodes:
    if u.arg in (BinaryOps.IDIV, BinaryOps.MOD) and u.src[0] in axes and ix.of_sizes(u.src[1]):
      a, n = axes[u.src[0]], ix.number(u.src[1])
      if n in (1, a.size) or ix.mod(ix.node(a.size), n) is not ix.ZERO: continue
      return split_axes(Split(a.id, n).apply(kernel) if isinstance(n, int) else split_axis(kernel, a, n, a.kind))
  return kernel


def merge_axes(kernel: Kernel) -> Kernel:
  """Neighbouring axes that every access sees as one become one."""
  while len(kernel.axes) > 1:
    info = access_profile(kernel)
    # an axis whose number is itself a value, or is compared, stays what it is
    others = {r.arg[0] for u in kernel.nodes if u.op in (Ops.CAST, Ops.ALU) and u.dtype.name != "index"
              for s in u.src if s.dtype.name == "index" for r in s.ranges}
    for a, b in itertools.permutations(kernel.axes, 2):
      ids = {a.id, b.id}
      if a.kind is not b.kind or ids & (kernel.sequential | others): continue   # sequential: gone through in order
      if any(len(ids & bound) == 1 for bound in (kernel.bound, *(bound for _, bound in info.reduces))): continue   # one of them
      pairs = [(x.steps.get(a.id, 0), x.steps.get(b.id, 0)) for x in info.accesses]
      if all(sa is not None and sb is not None and sa == sb * b.count for sa, sb in pairs):
        kernel = Fuse(a.id, b.id).apply(kernel)
        break
    else: break
  return kernel
