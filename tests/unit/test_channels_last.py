"""Layouts of the buffers between kernels: convolutions have their channels side by side, whatever layout the caller's tensors
have."""
from __future__ import annotations

import numpy as np
import pytest

from ntgrad import Tensor, nn
from ntgrad.backends.cuda.renderer import TARGET
from ntgrad.codegen import index as ix
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import Ops
from ntgrad.codegen.kernel import Kernel
from ntgrad.schedule import schedule_graph, sinks_of
from ntgrad.schedule.layout import is_window
from support.marks import long_where
from support.triton import NAME, needs_triton

BLOCKS = Target("triton", cores=132, blocks=True)


def kernels(*tensors: Tensor, target: Target = BLOCKS) -> list[Kernel]:
  return [i.ast for i in schedule_graph(sinks_of(tensors), target)[1] if i.ast is not None]


def shapes(ks: list[Kernel], size: int) -> list[tuple[ix.Dim, ...]]:
  """The shapes, without ones, of the written buffers of so many elements, in order of the kernels."""
  return [tuple(n for n in p.shape if n != 1) for k in ks for p in k.params if p.written and ix.elements(p.shape) == size]


def test_between_convolutions() -> None:
  """x is the caller's and the result is his too: what lies between has its channels last."""
  x = Tensor.empty(4, 16, 20, 20)
  w = [Tensor.empty(16, 16, 3, 3) for _ in range(3)]
  y = x.conv2d(w[0], padding=1).relu().conv2d(w[1], padding=1).relu().conv2d(w[2], padding=1)
  assert shapes(kernels(y), 4 * 16 * 20 * 20) == [(4, 20, 20, 16), (4, 20, 20, 16), (4, 16, 20, 20)]
  assert set(shapes(kernels(y, target=Target("opencl", cores=2)), 4 * 16 * 20 * 20)) == {(4, 16, 20, 20)}


def test_copies_of_the_callers_buffers() -> None:
  """Weights, and pictures without padding, are copied where a convolution uses each element often."""
  x, w = Tensor.empty(4, 16, 20, 20), Tensor.empty(32, 16, 3, 3)
  assert shapes(kernels(x.conv2d(w)), 32 * 16 * 9) == [(32, 3, 3, 16)]
  assert shapes(kernels(x.conv2d(w)), 4 * 16 * 400) == [(4, 20, 20, 16)]
  assert shapes(kernels(Tensor.empty(1, 16, 3, 3).conv2d(w)), 32 * 16 * 9) == []      # one pixel
  assert shapes(kernels(x.conv2d(w), target=Target("opencl", cores=2)), 32 * 16 * 9) == []
  both = kernels(x.conv2d(w), x.conv2d(w).exp().sum())
  assert shapes(both, 32 * 16 * 9) == [(32, 3, 3, 16)]                                # one copy for all that read it


def test_neighbours_go_along() -> None:
  """A 1×1 convolution has no windows, and what is added to its result none either: they lie as what they are computed from."""
  x, a, b, c = Tensor.empty(2, 16, 20, 20), Tensor.empty(32, 16, 1, 1), Tensor.empty(32, 32, 3, 3), Tensor.empty(48, 32, 1, 1)
  y = x.conv2d(a).relu().conv2d(b, padding=1).relu().conv2d(c)
  z = (y + y.mean((0, 2, 3), keepdim=True)).contiguous() * 2
  assert set(shapes(kernels(z), 2 * 48 * 400)) == {(2, 20, 20, 48), (2, 48, 20, 20)}   # the sink's alone is the caller's order
  assert shapes(kernels(z), 2 * 48 * 400).count((2, 48, 20, 20)) == 1


@pytest.mark.parametrize("packed", [False, True])
def test_gradients_go_along(packed: bool) -> None:
  """Forward, and both gradients: of every buffer of pixels and channels the channels are last, also where a sum goes over pixels
  in parts, and where an optimizer has all weights' gradients in one buffer, which a kernel goes along by one axis."""
  net = [nn.Conv2d(8, 24, 3, padding=1), nn.BatchNorm2d(24), nn.Conv2d(24, 16, 1), nn.Conv2d(16, 24, 3, stride=2, padding=1)]
  x = Tensor.empty(9, 8, 14, 14)
  with Tensor.train(): loss = x.sequential([f for layer in net for f in (layer, Tensor.relu)]).square().sum().backward()
  grads = [p.grad for p in nn.state.get_parameters(net) if p.grad is not None]
  if packed: grads = [Tensor.cat(*[g.reshape(-1) for g in grads])]
  ks = kernels(loss, *grads)
  written = [tuple(n for n in p.shape if n != 1) for k in ks for p in k.params if p.written]
  pixels = [s for s in written if len(s) == 4 and 9 in s]
  assert len(pixels) > 4 and all(s[0] == 9 and s[1] == s[2] and s[3] in (8, 16, 24) for s in pixels), pixels


def test_windows() -> None:
  """Where axes only count through a dimension in two steps nothing overlaps."""
  a, b = ix.rng(0, 8), ix.rng(1, 4)
  assert not is_window(ix.add(ix.mul(a, 4), b)) and is_window(ix.add(ix.mul(a, 2), b)) and is_window(ix.add(a, b))
  assert not is_window(ix.mul(a, 2)) and is_window(ix.add(ix.fdiv(a, 2), b))


@long_where(lambda stride: stride == 2)
@long_where(lambda stride, groups: stride != groups)
@needs_triton
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_values(stride: int, groups: int) -> None:
  rng = np.random.default_rng(stride)
  sizes = (2, 8, 7, 6), (16, 8 // groups, 3, 3), (8, 16, 1, 1), (8, 8, 3, 3)
  arrays = [rng.standard_normal(s).astype(np.float32) for s in sizes]
  def program(device: str) -> list[np.ndarray]:
    x, *ws = [Tensor(a, device=device, requires_grad=True) for a in arrays]
    y = x.conv2d(ws[0], padding=1, stride=stride, groups=groups).relu().conv2d(ws[1])
    y = (y - y.mean((0, 2, 3), keepdim=True)).cast(dtypes.float16).cast(dtypes.float32).conv2d(ws[2], padding=1)
    loss = (y * y).mean().backward()
    return [t.numpy() for t in (loss, y, *(t.grad for t in (x, *ws)))]
  for got, want in zip(program(NAME), program("NUMPY")): assert np.abs(got - want).max() <= 2e-3 * np.abs(want).max()


def test_every_index_stays_within_its_buffer() -> None:
  x, w = Tensor.empty(2, 12, 9, 10), Tensor.empty(16, 12, 3, 3)
  for k in kernels(x.conv2d(w).relu().conv2d(Tensor.empty(8, 16, 3, 3), padding=(1, 0)).max(axis=1)):
    for u in k.nodes:
      if u.op not in (Ops.LOAD, Ops.STORE) or len(u.src) > (2 if u.op is Ops.LOAD else 3): continue
      shape = next(p.shape for p in k.params if p.uop is u.src[0])
      assert all(0 <= ix.vmin(i) and ix.vmax(i) < n for i, n in zip(u.src[1].src, shape))


def test_gradients_of_weights_lie_along_the_channels_of_the_result() -> None:
  """Both of its dimensions are channels; which one lies side by side does not depend on the order of a set."""
  x, w = Tensor.empty(32, 64, 28, 28, dtype="bfloat16"), Tensor.empty(128, 64, 3, 3, dtype="bfloat16", requires_grad=True)
  up = Tensor.empty(32, 128, 28, 28, dtype="bfloat16")
  grad, = x.conv2d(w, padding=1).gradient(w, gradient=up)
  items = schedule_graph(sinks_of([grad]), Target("triton", cores=132, blocks=True, bandwidth=4e12))[1]
  parts = [p.shape for i in items if i.ast is not None for p in i.ast.params if p.written and len(p.shape) > 4]
  assert parts and all(shape[-1] == 128 for shape in parts)


def test_sums_in_parts_have_no_channels() -> None:
  """A gradient of weights sums over all rows: one of their axes alone, beside one that is cut in parts, is none of channels. The
  copies that products read would otherwise put it last everywhere."""
  x = Tensor.empty(8, 128, 256)
  w = [Tensor.empty(*s, requires_grad=True) for s in ((256, 1024), (1024, 256), (256, 1000))]
  gradients = (((x @ w[0]).gelu() @ w[1] + x) @ w[2]).softmax().square().sum().gradient(*w)
  ks = kernels(*gradients, target=TARGET)
  for n in (256, 1000, 1024): assert {s for s in shapes(ks, 8 * 128 * n) if len(s) > 2} == {(8, 128, n)}
