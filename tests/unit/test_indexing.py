"""Index arithmetic: whatever dtype an index has, what is computed with it is computed in one that holds it and the size. Indices
outside are not checked here, as on CUDA (``test_index_checks.py`` has the checks)."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Device, Tensor, config
from ntgrad.errors import IndexOutOfRangeError
from support.marks import long_where

SIGNED = ("int8", "int16", "int32", "int64")
ROWS = np.arange(400, dtype=np.float32).reshape(200, 2)


@pytest.fixture(autouse=True, params=["NUMPY", "CPU"])
def _device(request: Any) -> Any:
  Device.DEFAULT = request.param
  with config(check_indices=0): yield
  Device.DEFAULT = None


def test_one_hot_of_more_classes_than_the_dtype_has_values() -> None:
  labels = np.array([[3, 200], [255, 0]], np.uint8)
  assert (Tensor(labels).one_hot(1000).numpy() == (labels[..., None] == np.arange(1000))).all()
  assert Tensor(np.array([-1, 1, 127], np.int8)).one_hot(300).numpy().sum(1).tolist() == [0, 1, 1]
  assert Tensor(np.array([2 ** 64 - 1, 1, 2 ** 32], np.uint64)).one_hot(3).numpy().tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]


LOSSES: dict[str, Callable[[Tensor, Any], Tensor]] = {
  "cross_entropy": lambda x, y: x.cross_entropy(y, "none"),
  "sparse": lambda x, y: x.sparse_categorical_crossentropy(y, reduction="none"),
  "nll": lambda x, y: x.log_softmax(1).nll_loss(y, reduction="none"),
  "ignored": lambda x, y: x.cross_entropy(y, "none", ignore_index=-100),
  "weighted": lambda x, y: x.log_softmax(1).nll_loss(y, Tensor.ones(1000), ignore_index=-1, reduction="none")}


@long_where(lambda _device, dtype: _device != "NUMPY" and dtype != "int64")
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64", "uint64"])
def test_class_losses_of_any_int(name: str, dtype: str) -> None:
  x, y = np.random.default_rng(0).standard_normal((3, 1000)), np.array([3, 200, 255])
  want = np.log(np.exp(x).sum(1)) - x[np.arange(3), y]
  np.testing.assert_allclose(LOSSES[name](Tensor(x), Tensor(y.astype(dtype))).numpy(), want, rtol=1e-10)


def test_a_class_that_is_none() -> None:
  x = Tensor(np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32), requires_grad=True)
  loss = x.cross_entropy(Tensor([4, 5, -1]), "none")
  assert np.isnan(loss.numpy()).tolist() == [False, True, True]
  assert not loss.sum().gradient(x)[0].numpy()[1:].any()
  assert np.isnan(x.log_softmax(1).nll_loss(Tensor([4, 5, -1]), Tensor.ones(5)).item())
  assert x.sparse_categorical_crossentropy(Tensor([4, 0, -1]), reduction="none").numpy()[2] == 0  # the one that is ignored
  for call in (
    lambda: x.cross_entropy([4, 5, 0]),
    lambda: x.cross_entropy(np.array([4, -1, 0])),
    lambda: x.cross_entropy(Tensor.full((3,), 5)),
    lambda: x.nll_loss([0, 1, 7]),
    lambda: x.sparse_categorical_crossentropy([0, 1, -2]),
    lambda: Tensor.full((2,), 9).one_hot(9),
  ):
    with pytest.raises(IndexOutOfRangeError, match="classes go from 0 to"):
      call()
  assert x.cross_entropy([4, -1, 0], ignore_index=-1).item() == x.cross_entropy(Tensor([4, -1, 0]), ignore_index=-1).item()


@pytest.mark.parametrize("dtype", SIGNED)
def test_negative_indices_near_the_range_of_their_dtype(dtype: str) -> None:
  i = np.array([-1, -128, 5, 127], dtype)
  both = np.stack([i, i], 1)
  assert (Tensor(ROWS)[Tensor(i)].numpy() == ROWS[i]).all() and (Tensor(ROWS)[i].numpy() == ROWS[i]).all()
  assert (Tensor(ROWS)[Tensor(i), Tensor(i % 2)].numpy() == ROWS[i, i % 2]).all()
  assert (Tensor(ROWS).gather(0, Tensor(both)).numpy() == np.take_along_axis(ROWS, both.astype(np.int64), 0)).all()
  want, got = ROWS.copy(), Tensor(ROWS.copy())
  want[i], got[Tensor(i)] = 7, 7.0
  assert (got.numpy() == want).all()
  added = Tensor(ROWS).scatter(0, Tensor(both), Tensor.ones(4, 2), reduce="add").numpy() - ROWS
  assert sorted(added.nonzero()[0].tolist()) == sorted((i.astype(np.int64) % 200).tolist() * 2)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_indices_beyond_32_bits_are_out_of_range(dtype: str) -> None:
  i = Tensor(np.array([2 ** 32 + 3, 3, 2 ** 63 - 1], dtype))
  zero = Tensor(np.zeros(3, dtype))
  for got in (
    Tensor(ROWS)[i, zero],
    Tensor(ROWS)[i][:, 0],
    Tensor(ROWS)[zero, i],
    Tensor(ROWS).gather(0, i.reshape(3, 1)).reshape(3),
  ):
    assert got.numpy().tolist() in ([0, 6, 0], [0, 0, 0])
  t = Tensor(ROWS.copy())
  t[i, zero] = -1.0
  assert np.argwhere(t.numpy() == -1).tolist() == [[3, 0]]
