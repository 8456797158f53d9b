"""Calls of kernels as nodes of the tensor graph, for arguments that are not computed yet.

    x = a + b                 # not computed
    kernel(x, out)            # out is CALL(out, x, out): what it holds after the kernel has run
    out.sum().item()          # one schedule: x, the kernel, the sum

The graph stays pure: what a kernel writes is the next version of its argument, as with every other write. So whoever needs the
old one has it, other results of the kernel are computed with the one that is asked for, and a call whose results nobody asks
for does not run. A call whose arguments are all in memory is launched at once, which nobody can tell but by the clock.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ntgrad.codegen.ir.uop import Ops, UOp
from ntgrad.core import Base as Tensor
from ntgrad.engine.planner import number_buffer
from ntgrad.engine.realize import base_of, rebased
from ntgrad.engine.traced_sizes import traces
from ntgrad.graph import nodes as graph, origins
from ntgrad.graph.alias import repeats
from ntgrad.graph.variable import BoundInt

from .parameters import Parameter

if TYPE_CHECKING:
  from .specialised import Specialised


def call_later(s: Specialised, sizes: tuple[int, ...], given: Mapping[str, Any], device: str) -> bool:
  """Make what a kernel writes the next version of these arguments (by name), to be computed when it is asked for. False, and
  nothing is done, where the call has to be made at once: for arrays, which get their results when it returns; for arguments that
  share memory, need a gradient or have sizes of Variables; for kernels that check what they compute."""
  if traces or any(p.notes or p.of for p in s.parameters): return False   # what is traced says which sizes a launch takes
  arguments = [(p, given[p.name]) for p in s.parameters]
  tensors = [(p, a) for p, a in arguments if isinstance(a, Tensor)]
  if any(t._state > 0 or any(type(n) is BoundInt for n in t.shape) for _, t in tensors): return False
  if any(not isinstance(a, Tensor) and (p.written or getattr(a, "shape", ()) != ()) for p, a in arguments): return False  # arrays
  written = [(p.slot, t) for p, t in tensors if p.written]
  if not written or any(repeats(t._view) or t._alias.packed is not None or not _plain(t) for _, t in written): return False
  if _share(tensors): return False
  nodes = [rebased(a.lazydata) if isinstance(a, Tensor) else number_buffer(device, p.dtype, a).node for p, a in arguments]
  launcher = s.launcher(device, (), sizes)
  def result(slot: int) -> UOp:
    u = nodes[slot]
    return origins.note_origin(graph.make(Ops.CALL, u.dtype, (u, *nodes), (launcher, slot), u.shape, device))
  for t, value in [(t, result(slot)) for slot, t in written]: t._write("a kernel called", value)
  return True


def _plain(t: Tensor) -> bool:
  """Whether a tensor is not the memory of another library, which is written when a kernel returns."""
  base = base_of(t.lazydata)
  memory = t._alias.memory
  return (base.op is not Ops.BUFFER or not base.arg.storage.foreign) and (memory is None or not memory.storage.foreign)


def _share(tensors: Sequence[tuple[Parameter, Tensor]]) -> bool:
  """Whether some memory that is written is another argument's too."""
  def places(t: Tensor) -> set[int]:
    base = base_of(t.lazydata)
    return {id(t._alias), *([id(base.arg.storage)] if base.op is Ops.BUFFER else [])}
  found = [(p.written, places(t)) for p, t in tensors]
  return any(i != j and w & t for i, (writes, w) in enumerate(found) if writes for j, (_, t) in enumerate(found))
