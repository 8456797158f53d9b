"""Kernels whose params are read and written in blocks of boxes: copies and products, for the tests of tensor descriptors."""
from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.backends.cuda.facts import Facts
from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer
from ntgrad.codegen import index as ix, pipeline
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.uop import UOp
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel
from ntgrad.codegen.kernel.linear import UOpList
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.opts import TensorDescriptor
from ntgrad.codegen.verify.forms import verify_index, verify_linear
from ntgrad.engine.compile import extent

from .statements import F32, I32, Builder, at

Array = np.ndarray[Any, Any]


def marked(kernel: Kernel, *slots: int) -> Kernel:
  """The kernel with a TensorDescriptor on params."""
  for slot in slots: kernel = TensorDescriptor(slot).apply(kernel)
  return kernel


def linear(kernel: Kernel) -> UOpList:
  """The linear form, both forms checked."""
  verify_index(kernel, "k")
  uops = linearize(kernel, TARGET)
  verify_linear(uops, "k")
  return uops


def rendered(kernel: Kernel, capability: int = 90) -> KernelSource:
  return TritonRenderer(capability=capability).render("k", linear(kernel))


def source(kernel: Kernel, capability: int = 90) -> str: return rendered(kernel, capability).text


def boxes(kernel: Kernel) -> dict[str, Any]:
  """For each param with a mark: its Box, or why it has none."""
  facts = Facts("k", pipeline.run_passes(linear(kernel), TARGET, "floats", "dots"), {}, True)
  return {**facts.pointers, **{u.src[0].arg[1]: box for u, box in facts.boxes.items()}}


def tiled(b: Builder, size: int, block: int, loop: bool = False) -> tuple[UOp, UOp]:
  """A dimension of ``size`` in blocks: its index, and the condition under which there is an element."""
  n = -(-size // block)
  inner = b.tile(block)
  i = at(b.loop(n) if loop else b.grid(n), block, inner) if n > 1 else inner.rng
  return i, ix.lt(i, size)


def gate(*conditions: UOp) -> tuple[UOp, ...]:
  """What follows the other arguments of an access."""
  c = ix.both(*conditions)
  return () if c is ix.TRUE else (c,)


def box_copy(shape: Sequence[int], blocks: Sequence[int], dtype: DType = F32, start: Sequence[int] = (), size: Sequence[int] = (),
             order: Sequence[int] = (), loops: Sequence[bool] = ()) -> Kernel:
  """out = x[start : start + size].permute(order), in blocks; a block of 0 has one element, its dimension no TILE axis."""
  rank = len(shape)
  start, order, loops = tuple(start) or (0,) * rank, tuple(order) or tuple(range(rank)), tuple(loops) or (False,) * rank
  size = tuple(size) or tuple(n - s for n, s in zip(shape, start))
  b = Builder()
  out, x = b.param(tuple(size[i] for i in order), dtype, True), b.param(tuple(shape), dtype)
  where: list[tuple[UOp, UOp]] = []
  for n, block, loop in zip(size, blocks, loops):
    if block: where.append(tiled(b, n, block, loop))
    else: where.append(((b.loop(n) if loop else b.grid(n)).rng if n > 1 else ix.const(0), ix.TRUE))
  at_x, all_of = tuple(ix.add(i, s) for (i, _), s in zip(where, start)), gate(*(c for _, c in where))
  value = x.load(at_x, *all_of) if all_of else x[at_x]
  return b.kernel(out.set(tuple(where[i][0] for i in order), value, *all_of))


def product(m: int, n: int, k: int, blocks: Sequence[int], dtype: DType, transposed: tuple[bool, bool] = (False, False),
            out: DType | None = None, batch: int = 0) -> Kernel:
  """A matrix product, its operands as they are or transposed in memory."""
  b = Builder()
  acc = I32 if dtype is dtypes.int8 else F32
  g = [b.grid(batch)] if batch else []
  lead = (batch,) if batch else ()
  (i, mi), (j, mj), (l, ml) = tiled(b, m, blocks[0]), tiled(b, n, blocks[1]), tiled(b, k, blocks[2], True)
  z = b.param((*lead, m, n), out or dtype, True)
  x = b.param((*lead, *((k, m) if transposed[0] else (m, k))), dtype)
  y = b.param((*lead, *((n, k) if transposed[1] else (k, n))), dtype)
  def read(p: Any, where: tuple[UOp, UOp], c: tuple[UOp, ...]) -> Any:
    return (p.load((*g, *where), *c) if c else p[(*g, *where)]).cast(acc)
  ids: list[Axis] = [a for a in b.axes if a.rng in l.ranges]
  left, right = (
    read(x, (l, i) if transposed[0] else (i, l), gate(mi, ml)),
    read(y, (j, l) if transposed[1] else (l, j), gate(mj, ml)),
  )
  return b.kernel(z.set((*g, i, j), (left * right).sum(*ids).cast(out or dtype), *gate(mi, mj)))


def interpreted(device: Any, kernel: Kernel, arrays: Sequence[Array]) -> list[Array]:
  """The params after a launch of the kernel as Triton source."""
  uops = linear(kernel)
  source = device.renderer.render("k", uops)
  program, = device.compile([ProgramSpec("k", source, extent(kernel, AxisKind.GRID), (1, 1, 1), len(kernel.params), tuple(uops))])
  out = [a.copy() for a in arrays]
  program([a.reshape(-1).view(np.uint8) for a in out])
  return out


def numbers(kernel: Kernel, rng: np.random.Generator) -> list[Array]:
  """Small whole numbers in each param: products and sums of them are exact."""
  return [rng.integers(-3, 4, p.shape).astype(p.dtype.np) for p in kernel.params]
