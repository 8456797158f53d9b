"""Losses, attention, dropout, and what a row of the table cannot say of them: errors, dtypes, names, edges."""
from __future__ import annotations

import math
from typing import Any, Callable, Iterator

import numpy as np
import pytest

from ntgrad import Device, Generator, Tensor, config
from ntgrad.errors import ArgumentError, IndexOutOfRangeError, ShapeError


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None


def normal(*shape: int) -> Tensor: return Tensor.randn(*shape, generator=Generator(3))
def value(t: Tensor) -> Any: return t.numpy()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
  "mse": lambda x, y: x.mse_loss(y), "l1": lambda x, y: x.l1_loss(y, "sum"), "huber": lambda x, y: x.huber_loss(y, "none"),
  "bce": lambda x, y: x.binary_cross_entropy_with_logits(y), "kl": lambda x, y: x.kl_div(y, "batchmean"),
  "cosine": lambda x, y: x.cosine_similarity(y), "classes": lambda x, y: x.cross_entropy([0, 1]),
  "probabilities": lambda x, y: x.cross_entropy(y), "margins": lambda x, y: x.multi_margin_loss([0, 1])}


@pytest.mark.parametrize("name", LOSSES)
def test_dtypes(name: str) -> None:
  """A loss has its input's dtype, small floats being computed in float32; ints are computed as floats."""
  x, y = normal(2, 3), normal(2, 3).sigmoid()
  want = value(LOSSES[name](x, y))
  for d, tol in (("float16", 2e-3), ("bfloat16", 2e-2), ("float64", 1e-6)):
    got = LOSSES[name](x.cast(d), y.cast(d))
    assert got.dtype.name == d
    np.testing.assert_allclose(value(got.cast("float64")), want, rtol=tol, atol=tol)
  assert LOSSES[name](x.cast("int32"), y.cast("int32")).dtype.name == "float32"


def test_half_sums_do_not_overflow_on_the_way() -> None:
  x = Tensor.full((1000,), 200.0, dtype="float16")
  assert x.mse_loss(x - 0.5).item() == 0.25 and x.huber_loss(x * 0).item() == 199.5
  assert x.l1_loss(x * 0).item() == 200 and x.cosine_similarity(x, 0).item() == 1


def test_the_mean_over_rows_that_count() -> None:
  x, w = normal(4, 3), Tensor([1.0, 2.0, 4.0])
  rows = value(x.cross_entropy([0, 1, 2, 1], "none"))
  np.testing.assert_allclose(value(x.cross_entropy([0, 1, 2, 1], ignore_index=1)), rows[[0, 2]].mean(), rtol=1e-6)
  np.testing.assert_allclose(value(x.cross_entropy([0, 1, 2, -1], ignore_index=-1, weight=w)),
                             (rows[:3] * [1, 2, 4]).sum() / 7, rtol=1e-6)
  assert math.isnan(x.cross_entropy([1] * 4, ignore_index=1).item())
  assert math.isnan(Tensor.ones(0, 3).cross_entropy(Tensor.ones(0, dtype="int32")).item())
  assert x.cross_entropy([1] * 4, "sum", ignore_index=1).item() == 0


def test_a_weight_has_a_gradient() -> None:
  x, w = normal(4, 3), Tensor([1.0, 2.0, 4.0], requires_grad=True)
  x.cross_entropy([0, 1, 2, 1], "sum", weight=w).backward()
  rows = value(x.cross_entropy([0, 1, 2, 1], "none"))
  np.testing.assert_allclose(value(w.grad), [rows[0], rows[1] + rows[3], rows[2]], rtol=1e-6)


@pytest.mark.parametrize("device", ["NUMPY", "CPU"])
@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss", "sparse_categorical_crossentropy", "multi_margin_loss"])
def test_a_class_that_is_none(device: str, loss: str) -> None:
  x = Tensor(np.zeros((3, 4), np.float32), device=device)
  with pytest.raises(IndexOutOfRangeError, match=f"{loss}: class 4 of 4"): getattr(x, loss)([0, 1, 4])
  labels = Tensor([1, 0, 2], device=device).realize() * 2
  with pytest.raises(IndexOutOfRangeError, match=f"{loss}: index 4"): getattr(x, loss)(labels).item()
  with config(check_indices=0): assert math.isnan(getattr(x, loss)(labels).item())


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
  "reduction": (lambda: normal(2).l1_loss(normal(2), "average"), ArgumentError, "l1_loss: reduction 'average'"),
  "batchmean": (lambda: normal(2).mse_loss(normal(2), "batchmean"), ArgumentError, "mse_loss: reduction 'batchmean'"),
  "shape": (lambda: normal(2).huber_loss(normal(3)), ShapeError, r"huber_loss: a target of shape \(3,\)"),
  "beta": (lambda: normal(2).smooth_l1_loss(normal(2), beta=-1.0), ArgumentError, "beta = -1.0"),
  "delta": (lambda: normal(2).huber_loss(normal(2), delta=0.0), ArgumentError, "delta = 0.0"),
  "weight": (lambda: normal(2, 3).cross_entropy([0, 1], weight=normal(2)), ShapeError, r"shape \(2,\) for 3 classes"),
  "wide weight": (lambda: normal(3).binary_cross_entropy(normal(3), normal(2, 3)), ShapeError, "must broadcast"),
  "ignored": (lambda: normal(2, 3).cross_entropy(normal(2, 3), ignore_index=1), ArgumentError, "ignore_index = 1 with prob"),
  "margin": (lambda: normal(2, 3).multi_margin_loss([0, 1], p=3), ArgumentError, "p = 3"),
  "triplet": (lambda: normal(2, 3).triplet_margin_loss(normal(3), normal(2, 3)), ShapeError, "as many dimensions"),
  "cosine": (lambda: normal(2, 3).cosine_embedding_loss(normal(2, 3), [1]), ShapeError, "cosine_embedding_loss"),
  "variances": (lambda: normal(2, 3).gaussian_nll_loss(normal(2, 3), normal(2, 2)), ShapeError, "variances of shape"),
  "heads": (lambda: normal(3, 2, 4).scaled_dot_product_attention(normal(2, 2, 4), normal(2, 2, 4), enable_gqa=True), ShapeError,
            "3 heads of queries with 2 of keys"),
  "dims": (lambda: normal(2, 4).scaled_dot_product_attention(normal(2, 4), normal(2, 4), enable_gqa=True), ShapeError, "heads"),
  "both masks": (lambda: normal(2, 4).scaled_dot_product_attention(normal(2, 4), normal(2, 4), Tensor.ones(2, 2), 0.0, True),
                 ArgumentError, "is_causal with attn_mask"),
  "channels": (lambda: normal(2).dropout2d(0.5), ShapeError, "dropout2d: shape"),
  "p": (lambda: normal(2).alpha_dropout(1.5), ArgumentError, "alpha_dropout: p = 1.5")}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
  make, error, text = REFUSED[name]
  with pytest.raises(error, match=text): make()


def test_names() -> None:
  x, y = normal(2, 3).named("batch", "classes"), normal(2, 3)
  assert x.huber_loss(y, "none").names == ("batch", "classes") and x.kl_div(y).names == ()
  assert x.cross_entropy([0, 1], "none", weight=Tensor.ones(3)).names == ("batch",)
  assert x.multi_margin_loss([0, 1], reduction="none").names == ("batch",)
  assert x.cosine_similarity(y, "classes").names == ("batch",)
  q, k = normal(4, 5, 6).named("head", "time", None), normal(2, 5, 6)
  assert q.scaled_dot_product_attention(k, k, enable_gqa=True).names == ("head", "time", None)
  with Tensor.train(): assert x.dropout().names == x.bernoulli(0.5).names == ("batch", "classes")


# ---- attention
def test_a_query_without_keys_gives_zeros_and_no_gradient() -> None:
  q, k = normal(3, 4), Tensor(value(normal(5, 4)), requires_grad=True)
  mask = Tensor([[True] * 5, [False] * 5, [True, False, True, False, True]])
  for m in (mask, mask.where(0.0, -math.inf)):
    k.grad = None
    out = q.scaled_dot_product_attention(k, k, m)
    assert value(out)[1].tolist() == [0] * 4 and np.isfinite(value(out)).all()
    out.sum().backward()
    assert np.isfinite(value(k.grad)).all()


def test_weights_are_dropped_in_training_only() -> None:
  q = normal(8, 4)
  plain = value(q.scaled_dot_product_attention(q, q))
  np.testing.assert_array_equal(value(q.scaled_dot_product_attention(q, q, dropout_p=0.5)), plain)
  with Tensor.train(): assert (value(q.scaled_dot_product_attention(q, q, dropout_p=0.5)) != plain).any()


# ---- dropout
def test_whole_channels_are_dropped() -> None:
  for x, drop in ((Tensor.ones(4, 50, 6), "dropout1d"), (Tensor.ones(4, 50, 2, 3), "dropout2d"),
                  (Tensor.ones(50, 2, 2, 2), "dropout3d"), (Tensor.ones(4, 50, 2, 2), "feature_alpha_dropout")):
    got = value(getattr(x, drop)(0.5, True))
    flat = got.reshape(*got.shape[:1 if drop == "dropout3d" else 2], -1)
    assert (flat == flat[..., :1]).all() and len(np.unique(flat)) == 2
    assert getattr(x, drop)(0.5).lazydata is x.lazydata   # not in training


def test_training_may_be_said() -> None:
  x = Tensor.ones(100)
  assert set(value(x.dropout(0.75, True)).tolist()) == {0.0, 4.0}
  with Tensor.train(): assert x.dropout(0.5, False).lazydata is x.lazydata and x.dropout(0.0).lazydata is x.lazydata
  assert value(x.dropout(1.0, True)).tolist() == [0] * 100
  y = value(normal(20000).alpha_dropout(0.4, True))
  assert abs(y.mean()) < 0.03 and abs(y.std() - 1) < 0.03
