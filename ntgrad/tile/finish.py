"""What an application is once it has been read: with sorts and running sums, in the form of the scheduler's kernels."""
from __future__ import annotations

import operator
from typing import Sequence

from ntgrad.codegen.explain.scheduler_form import inlined, is_scheduled, without_tiles
from ntgrad.codegen.index.rewrite import rewrite
from ntgrad.codegen.index.sizes import Dim
from ntgrad.codegen.ir.errors import ApplicationError
from ntgrad.codegen.ir.uop import Ops
from ntgrad.codegen.kernel import Kernel

from .block import seen


def finished(kernel: Kernel) -> Kernel:
  """A kernel as it has been read, in the form of the scheduler's where only that can be compiled: with a sort by bits, a running
  sum that begins anew, or one along a size that is no number. Where it cannot have that form, the size becomes a number; raises
  ApplicationError for the others."""
  by_parts = any(u.op is Ops.SORTED or u.op is Ops.SCAN and any(u.arg[3:]) for u in kernel.nodes)
  if not by_parts and all(isinstance(n, int) for v in kernel.variables for n in v.arg[1]): return kernel
  found = inlined(kernel)
  if is_scheduled(found): return without_tiles(found)
  if by_parts:
    raise ApplicationError("sort_bits, and a running sum that begins anew (every=), stand in an application that apart from that "
                           "computes element by element and stores: one of a kind, in no loop or condition, beside no sum")
  numbers = {v: v.replace((), arg=(v.arg[0], known_sizes(v.arg[1]), *v.arg[2:])) for v in kernel.variables}
  made = {Ops.DEFINE_LOCAL: lambda old, new: numbers.get(old, new)}
  return kernel.with_(body=rewrite(kernel.body, made))


def known_sizes(sizes: Sequence[Dim]) -> tuple[int, ...]:
  """Sizes that must be numbers: a run-time size is the one that it is now, which the kernel is for from there on."""
  return tuple([operator.index(seen(n)) for n in sizes])
