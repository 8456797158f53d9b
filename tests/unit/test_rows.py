"""Rows that begin at multiples of 16 bytes: which buffers have them, what kernels and bytes that takes, and what the kernels then
say."""
from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ntgrad import Tensor, config, dtypes
from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer
from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.bound import work_of
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.choose.gpu_products import ProductWork, best_blocks, worth_copying
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import Ops
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.linearizer import linearize
from ntgrad.schedule import schedule_graph, sinks_of
from ntgrad.schedule.padded_rows import padded, vector_bytes

CHIP = replace(TARGET, bandwidth=4.2e12)   # an H200
CPU = Target("opencl", cores=2)


def half(*shape: int) -> Tensor: return Tensor.empty(*shape, dtype="bfloat16")


def kernels(*tensors: Tensor, target: Target = CHIP) -> list[Kernel]:
  return [i.ast for i in schedule_graph(sinks_of(tensors), target)[1] if i.ast is not None]


def shapes(k: Kernel) -> list[tuple[ix.Dim, ...]]:
  """The shapes of a kernel's buffers, without ones."""
  return [tuple(n for n in p.shape if n != 1) for p in k.params]


def source(k: Kernel) -> str: return TritonRenderer(CHIP).render("k", linearize(optimize(k, CHIP))).text


def inner(text: str) -> list[str]:
  """The loads in the loop of a product."""
  loop = text[text.index("for "):text.index("tl.store")]
  return [line for line in loop.splitlines() if "tl.load" in line]


def test_sizes_of_rows() -> None:
  """128 bytes where that is hardly longer, else 64, 32 or 16; no more than an eighth."""
  assert [padded(n, 2) for n in (1001, 2047, 127, 129, 257, 65, 513, 64, 8, 15, 17)] == \
    [1024, 2048, 128, 136, 272, 72, 544, 64, 8, 15, 17]
  assert [padded(n, 4) for n in (1001, 2049)] == [1024, 2080] and padded(2040, 1) == 2048
  assert vector_bytes((10, 1001), 1, 2, 0) == 2 and vector_bytes((10, 1004), 1, 2, 0) == 8
  assert vector_bytes((10, 64, 8), 2, 2, 0) == 16
  assert vector_bytes((10, 64), 1, 2, 4) == 4 and vector_bytes((10, 64), 0, 2, 0) == 2


def test_the_callers_factors_are_copied_where_that_pays() -> None:
  """Two copies and a product, whose loop has no condition on columns; the bytes of the copies are all that is added."""
  *copies, product = kernels(half(4097, 1001) @ half(1001, 511))
  assert sorted(shapes(k)[0] for k in copies) == [(1001, 512), (4097, 1024)] or \
    sorted(shapes(k)[0] for k in copies) == [(1001, 544), (4097, 1024)]
  assert shapes(product)[0] == (4097, 511)
  added = 2 * 2 * (4097 * 1001 + 1001 * 511)
  assert added <= sum(ix.count(work_of(k).bytes) for k in copies) <= 1.1 * added
  a, b = inner(source(product))
  assert "[None, :] <" not in a and "mask=alu" in b and "[:, None]" in b.split("mask=")[1]
  assert len(kernels(half(16, 1001) @ half(1001, 17))) == 1                                  # a small one
  assert len(kernels(half(4096, 1024) @ half(1024, 512))) == 1                               # even rows
  assert len(kernels(half(4097, 1001) @ half(1001, 511), target=CPU)) == 1
  with config(noopt=1): assert len(kernels(half(4097, 1001) @ half(1001, 511))) == 1


def test_what_kernels_store_takes_no_copy() -> None:
  """A hidden layer is stored with rows of 1024 by the product before it, a softmax by its own kernel; the graph's results are as
  they are."""
  x, w, v = half(2048, 1024), half(1024, 1001), half(1001, 512)
  first, second = [k for k in kernels((x @ w).relu() @ v) if k.reduces]
  assert shapes(first)[0] == (2048, 1024) and shapes(second)[1:] == [(2048, 1024), (1001, 512)]
  assert all("[None, :] <" not in line for line in inner(source(second))[:1])
  ks = kernels((x @ w).softmax(-1) @ v)
  assert (2048, 1024) in [shapes(k)[0] for k in ks] and shapes(ks[-1])[0] == (2048, 512)


def test_sums_in_parts_begin_where_blocks_do() -> None:
  """The gradient of a vocabulary's scores is read along 50257 columns, in two parts of 25152."""
  n, v, c = 8192, 50257, 768
  x, w = half(n, c), half(v, c)
  x.requires_grad = w.requires_grad = True
  loss = (x @ w.T).cast(dtypes.float32).cross_entropy(Tensor.empty(n, dtype="int32"))
  ks = kernels(loss, *loss.gradient(x, w))
  parts = next(k for k in ks if (n, 50304) in shapes(k)[1:] and any(a.size == 25152 for a in k.axes))
  assert not any(len(u.src) > 2 for u in parts.nodes if u.op is Ops.LOAD and u.src[0] is parts.params[1].uop)


def test_gradients_of_convolutions_are_products_of_channels() -> None:
  """Forward and both gradients: three products; the copies are of pictures and weights; nothing but the gradient of the weights
  is summed in parts."""
  x, w, g = half(32, 128, 28, 28), half(128, 128, 3, 3), half(32, 128, 28, 28)
  x.requires_grad = w.requires_grad = True
  y = x.conv2d(w, padding=1)
  ks = kernels(y, *(y * g).sum().gradient(x, w))
  products = [k for k in ks if k.reduces and len(k.params) == 3]
  assert len(products) == 3 and len([k for k in ks if k.reduces]) == 4 and len(ks) == 9
  assert all(s[-1] == 128 for k in products for s in shapes(k)[1:])
  assert sum(ix.count(work_of(k).bytes) for k in ks) < 9 * 2 * 32 * 128 * 28 * 28 * 2


def test_bytes_are_multiplied_along_what_is_summed() -> None:
  a, b = (Tensor.empty(2048, 2048, dtype="int8") for _ in range(2))
  copy, product = kernels(a @ b)
  assert "tl.trans(val1)" in source(product) and "tl.dot" not in source(copy)
  assert len(kernels(a @ b.T)) == 1


def test_doubles_are_multiplied_in_blocks() -> None:
  k, = kernels(Tensor.empty(1024, 1024, dtype="float64") @ Tensor.empty(1024, 1024, dtype="float64"))
  assert "out_dtype=tl.float64" in source(k)
  assert "tl.dot" not in TritonRenderer(CHIP, 75).render("k", linearize(optimize(k, replace(CHIP, double_dots=False)))).text


@pytest.mark.parametrize("vectors, least, most", [((16, 16), 1.0, 1.0), ((2, 2), 4.0, 20.0), ((16, 2), 1.5, 20.0)])
def test_narrow_reads_in_the_model(vectors: tuple[int, int], least: float, most: float) -> None:
  """As measured: 2049×2047×2045 takes ten times as long as 2048³."""
  work = ProductWork(2049, 2045, 2047)
  found = best_blocks(replace(work, vectors=vectors), CHIP)[0] / best_blocks(work, CHIP)[0]
  assert least <= found <= most
  sizes = [2 * 2049 * 2047, 2 * 2047 * 2045]
  assert worth_copying(replace(work, vectors=vectors), sizes, CHIP) == tuple(v < 16 for v in vectors)
  assert worth_copying(replace(work, vectors=(2, 2)), [0, 0], CHIP) == (False, False)
  assert math.isfinite(found)


def test_columns_of_exact_products_do_not_lie_along_the_sum() -> None:
  """x @ w.T of float32 reads a copy of w, turned around, also where w lies among others in one buffer; x @ w does not."""
  def exact(*shape: int) -> Tensor: return Tensor.empty(*shape)
  x, flat = exact(4096, 784), exact(3 + 1024 * 784)
  for w in (exact(1024, 784), flat[3:].reshape(1024, 784)):
    copy, product = kernels(x @ w.T)
    assert [p.shape for p in copy.params if p.written] == [(784, 1024)]
    assert (784, 1024) in [p.shape for p in product.params if not p.written]
  assert len(kernels(x @ exact(784, 1024))) == 1
