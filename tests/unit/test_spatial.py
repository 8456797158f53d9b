"""What the table of operations cannot say of convolution, pooling, resampling, padding and normalisation."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Device, Tensor, nn
from ntgrad.codegen.ir.uop import Ops
from ntgrad.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.schedule import create_schedule
from support.beside_torch import compare
from support.kernels import E
from support.marks import long_unless


@pytest.fixture(autouse=True)
def _small() -> Any:
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None


def f(*shape: int) -> Tensor: return Tensor.ones(*shape)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], list[str]]] = {
  "same with a stride": (lambda: f(1, 1, 4).conv1d(f(1, 1, 3), stride=2, padding="same"), ArgumentError, ["same", "stride"]),
  "dims of conv1d": (lambda: f(1, 1, 4, 4).conv1d(f(1, 1, 3, 3)), ShapeError, ["conv1d", "1 spatial dimension"]),
  "torch's order": (lambda: f(1, 3, 4, 4).conv2d(f(2, 3, 3, 3), None, 2, 1), ShapeError, ["groups, stride, dilation, padding"]),
  "cut off by padding": (lambda: f(1, 1, 2).conv_transpose1d(f(1, 1, 2), padding=2), ShapeError, ["(-1,)"]),
  "bias of the adjoint": (lambda: f(1, 2, 2).conv_transpose1d(f(2, 3, 2), f(2)), ShapeError, ["bias", "(3,)"]),
  "windows of col2im": (lambda: f(1, 4, 5).col2im(3, 2), ShapeError, ["col2im", "(2, 2)"]),
  "channels of col2im": (lambda: f(1, 3, 4).col2im(3, 2), ShapeError, ["c * 4"]),
  "divisor": (lambda: f(1, 4, 4).avg_pool2d(2, divisor_override=0), ArgumentError, ["divisor_override"]),
  "indices of unpool": (lambda: f(1, 2).max_unpool1d(f(1, 2), 2), DTypeError, ["float32"]),
  "size of unpool": (lambda: f(1, 2).max_unpool1d(Tensor([[0, 1]]), 2, output_size=(7,)), ShapeError, ["(7,)", "(4,)"]),
  "both sizes": (lambda: f(1, 1, 4).interpolate(2, 2), ArgumentError, ["one of them"]),
  "no mode": (lambda: f(1, 1, 4).interpolate(2, mode="cubic"), ArgumentError, ["'cubic'", "'bicubic'"]),
  "dims of a mode": (lambda: f(1, 1, 4).interpolate(2, mode="bilinear"), ShapeError, ["bilinear", "spatial dimensions being 2"]),
  "corners of nearest": (lambda: f(1, 1, 4).interpolate(2, align_corners=True), ArgumentError, ["align_corners"]),
  "antialias of nearest": (lambda: f(1, 1, 4).interpolate(2, antialias=True), ArgumentError, ["antialias", "'bicubic'"]),
  "ints": (lambda: f(1, 1, 4).int().interpolate(2, mode="linear"), DTypeError, ["int32"]),
  "nothing left": (lambda: f(1, 1, 4).interpolate(scale_factor=0.1), ArgumentError, ["(0,)"]),
  "nothing to pool": (lambda: f(1, 0).adaptive_avg_pool1d(2), ShapeError, ["(1, 0)"]),
  "channels of pixels": (lambda: f(1, 3, 2, 2).pixel_shuffle(2), ShapeError, ["c * 4"]),
  "last dims": (lambda: f(2, 3).layer_norm((2,)), ShapeError, ["normalized_shape (2,)"]),
  "groups": (lambda: f(2, 3).group_norm(2), ArgumentError, ["3 channels", "2 groups"]),
  "no statistics": (lambda: f(2, 3).batch_norm(None, None), ArgumentError, ["running_mean", "training=True"]),
  "one value a channel": (lambda: f(1, 3).batch_norm(None, None, training=True), ArgumentError, ["one value"]),
  "more than once round": (lambda: f(3).pad((4, 0), mode="circular"), ArgumentError, ["circular", "up to 3"]),
  "round what is left": (lambda: f(3).pad((3, -1), mode="circular"), ArgumentError, ["circular", "up to 2"]),
  "reflected too far": (lambda: f(3).pad((3, 0), mode="reflect"), ArgumentError, ["reflect", "up to 2"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
  fn, kind, words = REFUSED[name]
  with pytest.raises(kind) as e: fn()
  assert all([w in str(e.value) for w in words]), str(e.value)


def test_a_tie_shares_the_gradient_and_gives_the_first_index() -> None:
  x = Tensor([[1.0, 3.0, 3.0, 0.0]], requires_grad=True)
  values, indices = x.max_pool1d(4, return_indices=True)
  assert values.sum().gradient(x)[0].tolist() == [[0, 0.5, 0.5, 0]] and indices.tolist() == [[1]]
  assert x.adaptive_max_pool1d(1, return_indices=True)[1].tolist() == [[1]]


def test_specials() -> None:
  """NaN is greatest; the padding is never chosen; what has no weight does not count."""
  nan, inf = float("nan"), float("inf")
  assert Tensor([[1.0, nan, 3.0]]).max_pool1d(3, return_indices=True)[1].tolist() == [[1]]
  assert Tensor([[-inf, -inf]]).max_pool1d(2, padding=1, return_indices=True)[1].tolist() == [[0, 1]]
  up = Tensor([[[1.0, 2.0, inf, 4.0]]]).interpolate(scale_factor=2, mode="linear").numpy()[0, 0]
  assert up.tolist() == [1.0, 1.25, 1.75, inf, inf, inf, inf, 4.0]
  assert Tensor([[1.0, inf, 3.0, 4.0, 5.0]]).adaptive_avg_pool1d(3).tolist() == [[inf, inf, 4.5]]


def test_empty_batches() -> None:
  assert f(0, 2, 4).conv1d(f(3, 2, 2), f(3)).numpy().shape == (0, 3, 3)
  assert f(0, 2, 4).max_pool1d(2, return_indices=True)[1].numpy().shape == (0, 2, 2)
  assert f(0, 2, 2).max_unpool1d(Tensor.zeros(0, 2, 2, dtype="int32"), 2).numpy().shape == (0, 2, 4)
  assert f(0, 2, 4, 4).interpolate((3, 7), mode="bicubic").numpy().shape == (0, 2, 3, 7)
  assert f(0, 2, 5).adaptive_avg_pool1d(3).numpy().shape == (0, 2, 3)
  assert f(0, 4, 3).group_norm(2).numpy().shape == f(0, 4, 3).batch_norm(None, None, training=True).numpy().shape == (0, 4, 3)


def test_names() -> None:
  x = f(2, 4, 6, 6).named("batch", "channels", "height", "width")
  for out in (x.max_pool2d(2, return_indices=True)[1], x.adaptive_avg_pool2d(3), x.interpolate(4, mode="bilinear"),
              x.group_norm(2), x.pad((1, 1), mode="reflect"), x.layer_norm(6), x.batch_norm(f(4), f(4)), x.pixel_shuffle(2),
              x[0].conv2d(f(3, 4, 2, 2))):
    assert out.names[-2:] == ("height", "width")
  assert x.im2col(2).names == ("batch", None, None) and x[0].conv2d(f(3, 4, 2, 2)).names == (None, "height", "width")


def test_running_statistics_are_those_of_the_layer() -> None:
  x = Tensor(np.random.default_rng(0).standard_normal((4, 3, 5)).astype(np.float32))
  mean, var, layer = Tensor.zeros(3), Tensor.ones(3), nn.BatchNorm(3, momentum=0.2)
  with Tensor.train(): want = layer(x)
  np.testing.assert_allclose(x.batch_norm(mean, var, training=True, momentum=0.2).numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(mean.numpy(), layer.running_mean.numpy(), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(var.numpy(), layer.running_var.numpy(), rtol=1e-5, atol=1e-6)


def test_the_data_are_read_by_few_kernels() -> None:
  """Whatever the number of dimensions. Others make tables, of a dimension's weights or counts, or go on from a padded copy."""
  x = E(2, 3, 8, 8)
  outs = {
    "twice": x.interpolate(scale_factor=2, mode="bilinear"), "nearest": x.interpolate((16, 24)),
    "cubic": x.interpolate((5, 7), mode="bicubic"), "mean": x.adaptive_avg_pool2d((3, 5)),
    "greatest": x.adaptive_max_pool2d(3), "reflected": x.pad((1, 2, 2, 1), mode="reflect"),
  }
  for name, out in outs.items():
    assert sum([x.lazydata in item.reads for item in create_schedule([out])]) <= 2, name


def test_the_gradient_of_resampling_by_small_ratios_reads_by_window() -> None:
  x = Tensor(np.ones((1, 1, 6, 6), np.float32), requires_grad=True)
  for size in (12, 9, 3, 4, 18):
    g, = x.interpolate((size, size), mode="bilinear").sum().gradient(x)
    assert not [u for u in g.lazydata.toposort() if u.op in (Ops.GATHER, Ops.SCATTER)]
    np.testing.assert_allclose(g.numpy().sum(), size * size, rtol=1e-5)


# sizes to others, by size or by scale: smaller, larger, to one element, and what stays
ANTIALIAS = [((13, 8), dict(size=(5, 4))), ((7, 9), dict(size=(20, 3))), ((6, 5), dict(size=(1, 1))),
             ((8, 8), dict(scale_factor=0.5)), ((9, 4), dict(scale_factor=(0.37, 1.7))), ((32, 17), dict(size=(32, 7))),
             ((1, 5), dict(size=(1, 2)))]


@pytest.mark.parametrize("mode, corners, sizes, to", long_unless(
  lambda mode, corners, sizes, to: corners is (mode == "bicubic") and sizes[0] < 10,
  [(mode, corners, *case) for case in ANTIALIAS for mode in ("bilinear", "bicubic") for corners in (False, True)]))
def test_antialias_is_pytorchs(mode: str, corners: bool, sizes: tuple[int, int], to: dict[str, Any]) -> None:
  """Values and gradients."""
  def program(torch: Any, note: Any) -> None:
    x = torch.tensor(np.random.default_rng(3).standard_normal((2, 2, *sizes)), requires_grad=True)
    y = torch.nn.functional.interpolate(x, mode=mode, align_corners=corners, antialias=True, **to)
    (y * torch.tensor(np.random.default_rng(4).standard_normal(tuple(y.shape)))).sum().backward()
    note(y, x.grad)
  compare(program, error=1e-6)


def test_antialias_keeps_means_and_dtypes() -> None:
  x = Tensor(np.random.default_rng(0).standard_normal((1, 1, 12, 8)).astype(np.float16))
  y = x.interpolate((6, 4), mode="bilinear", antialias=True)
  assert y.dtype == x.dtype and abs(f(1, 1, 64, 64).interpolate((7, 5), mode="bicubic", antialias=True).numpy() - 1).max() < 1e-6
  np.testing.assert_array_equal(x.interpolate((12, 8), mode="bicubic", antialias=True).numpy(), x.numpy())
