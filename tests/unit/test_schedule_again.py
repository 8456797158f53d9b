"""What a schedule stores and what it computes again: the bytes of programs for a target with blocks, read from the kernels."""
from __future__ import annotations

import numpy as np
import pytest

from ntgrad import Device, Tensor, nn
from ntgrad.codegen import index as ix
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import UnaryOps
from ntgrad.codegen.kernel import Kernel
from ntgrad.schedule import schedule_graph, sinks_of
from support.marks import long

HALF = dtypes.bfloat16
BLOCKS = Target("triton", cores=132, blocks=True)


def kernels(*tensors: Tensor, target: Target = BLOCKS) -> list[Kernel]:
  """The kernels of some tensors; none writes what nobody reads."""
  given, items = schedule_graph(sinks_of(tensors), target)
  read = {r for i in items for r in i.reads}.union(given)
  assert all(w in read for i in items for w in i.writes)
  return [i.ast for i in items if i.ast is not None]


def stored(ks: list[Kernel], least: int) -> list[str]:
  """The dtypes of the buffers of at least so many elements that kernels write, in their order."""
  return [p.dtype.name for k in ks for p in k.params if p.written and ix.elements(p.shape) >= least]


def empty(*shape: int, dtype: object = HALF) -> Tensor: return Tensor.empty(*shape, dtype=dtype, requires_grad=True)


def test_a_product_is_stored_in_what_it_is_rounded_to() -> None:
  """A sum of products is float32; its readers see bfloat16."""
  x, w = empty(2048, 1024), empty(1024, 2048)
  y = (x @ w).reshape(2048, 2, 1024)
  ks = kernels(y.cast(dtypes.float32).softmax(-1))
  assert stored(ks, 2048 * 2048) == ["bfloat16", "float32"] and len(ks) == 2


def test_a_wider_copy_is_never_stored() -> None:
  x = Tensor.empty(512, 512)
  for _ in range(8): x = (x + 1).exp()
  x = x.cast(HALF)   # dear, rounded, and read by two kernels
  wide = x.cast(dtypes.float32)
  assert stored(kernels(wide.sum(0), wide.sum(1)), 512 * 512) == ["bfloat16"]


def test_cross_entropy_with_its_gradient() -> None:
  """The logits and their gradient are stored, as they are multiplied; between them numbers of rows alone."""
  rows, classes = 4096, 32000
  h, w, y = empty(rows, 512), empty(classes, 512), Tensor.empty(rows, dtype="int32")
  loss = (h @ w.T).cast(dtypes.float32).cross_entropy(y).backward()
  ks = kernels(loss, h.grad, w.grad)
  assert stored(ks, rows * classes) == ["bfloat16", "bfloat16"]
  # of parts of rows, of all parts (which read the class's logit too), and the two products
  assert sum(len(k.reduces) for k in ks if any(ix.elements(p.shape) == rows * classes for p in k.params if not p.written)) == 6


@pytest.mark.parametrize("width, arrays", [(64, 0), (320, 4)])
def test_attention_with_its_gradients(width: int, arrays: int) -> None:
  """No array of the size of the scores is stored, but where heads are too wide for a program: scores, weights, gradients."""
  q, k, v = [empty(4, 8, 1024, width) for _ in range(3)]
  out = q.scaled_dot_product_attention(k, v, is_causal=True)
  (out.cast(dtypes.float32).square().sum()).backward()
  ks = kernels(q.grad, k.grad, v.grad)
  assert stored(ks, 4 * 8 * 1024 * 1024) == ["bfloat16"] * arrays


def test_one_large_product_a_kernel() -> None:
  """Blocks are chosen for one product: the second is added to what the first one stored."""
  a, b, c, d = [empty(512, 512) for _ in range(4)]
  y = a @ b + c @ d
  assert [len(k.reduces) for k in kernels(y)] == [1, 1]
  assert [len(k.reduces) for k in kernels(y, target=Target("opencl", cores=2))] == [2]


@pytest.mark.parametrize("rows, stored_first", [(64, False), (16384, True)])
def test_a_factor_that_is_cast(rows: int, stored_first: bool) -> None:
  """Weights of float32 in a product of bfloat16: cast in the kernel, or first where many rows use them."""
  x, w = empty(rows, 1024), Tensor.empty(1024, 1024)
  product = next(k for k in kernels(x @ w.cast(HALF)) if len(k.reduces) == 1 and len(k.params) == 3)
  assert [p.dtype.name for p in product.params[1:]] == ["bfloat16", "bfloat16" if stored_first else "float32"]


def test_statistics_of_rows_are_kept_for_gradients() -> None:
  """Layer norm: its gradient computes the normalised values again from two numbers a row."""
  norm = nn.LayerNorm(768)
  x = Tensor.empty(1024, 768, requires_grad=True) + 1
  y = norm(x.contiguous()).square().sum().backward()
  sizes = [ix.elements(p.shape) for k in kernels(y, norm.weight.grad) for p in k.params if p.written]
  assert sizes.count(1024 * 768) == 1   # x itself


@pytest.mark.parametrize("target", [BLOCKS, Target("opencl", cores=2)])
def test_normed_rows_are_computed_again_for_gradients(target: Target) -> None:
  """A sum that is stored, and its rows normed, which are a factor; not the rows without the norm's weights: they are made of the
  sum and two numbers a row."""
  norm, x, v, w = nn.LayerNorm(512), *[empty(*shape, dtype=dtypes.float32) for shape in ((2048, 512), (512, 512), (512, 256))]
  loss = (norm(x + x @ v) @ w).square().sum().backward()
  forward = kernels(loss, target=target)
  both = kernels(loss, x.grad, v.grad, w.grad, norm.weight.grad, norm.bias.grad, target=target)
  assert len(stored(forward, 2048 * 512)) == 2 and len(stored(both, 2048 * 512)) == 2 + 4   # gradients


@long
def test_values() -> None:
  """What is computed again is what was stored before, on a device and by numpy."""
  rng = np.random.default_rng(0)
  q, k, w = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 24, 16), (2, 24, 16), (5, 16))]
  weights = rng.dirichlet(np.ones(24), (2, 5)).swapaxes(1, 2).astype(np.float32)
  def program(device: str) -> list[np.ndarray]:
    x, y, z = [Tensor(a, device=device, requires_grad=True) for a in (q, k, w)]
    out = x.scaled_dot_product_attention(y, x, is_causal=True).layernorm() @ z.T.cast(dtypes.float16).cast(dtypes.float32)
    loss = -(out.cast(dtypes.float16).cast(dtypes.float32).log_softmax(-1) * Tensor(weights, device=device)).sum().backward()
    return [t.numpy() for t in (loss, x.grad, y.grad, z.grad)]
  for got, want in zip(program(Device.DEFAULT), program("NUMPY")): np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4)


def test_operations_that_are_dear_on_a_cpu() -> None:
  """exp of a value in memory, read by two kernels, is computed twice where blocks are loaded meanwhile, stored once elsewhere."""
  x = Tensor.empty(256, 256)
  e = (x - x.max(axis=1, keepdim=True)).exp()
  def exps(target: Target) -> int:
    return sum(u.arg is UnaryOps.EXP for k in kernels(e.sum(0), (e * 2).sum(1), target=target) for u in k.nodes)
  assert (exps(BLOCKS), exps(Target("opencl", cores=2))) == (2, 1)


def test_sums_in_parts_of_the_same_values_share_a_kernel() -> None:
  """The gradients of scale and shift are sums of the same values over the same axes: they are read once."""
  x, w, b, up = empty(16384, 1024), empty(1024), empty(1024), empty(16384, 1024)
  y = x.layernorm() * w + b
  ks = kernels(*y.gradient(w, b, gradient=up))
  reading = [k for k in ks if any(ix.elements(p.shape) == 16384 * 1024 and not p.written for p in k.params)]
  assert len(reading) == 2 and [len(k.reduces) for k in reading] == [2, 2]   # of rows, of columns
