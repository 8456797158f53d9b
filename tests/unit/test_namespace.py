"""Methods of ``Tensor`` as functions, as programs written for other libraries call them."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import ntgrad
import ntgrad.nn.functional as F
from ntgrad import Tensor, config, dtypes, nn
from ntgrad.errors import ArgumentError, NtgradError


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
  with config(dev="NUMPY"): yield


def test_functions() -> None:
  x = ntgrad.tensor([[1.0, -2.0], [3.0, 4.0]])
  assert type(x) is Tensor and ntgrad.cat([x, x], dim=1).shape == (2, 4) and ntgrad.zeros(2, 3).shape == (2, 3)
  assert ntgrad.flatten(x, 1).shape == (2, 2) and ntgrad.where(x > 1, x, 0.0).tolist() == [[0, 0], [3, 4]]
  assert F.relu(x).tolist() == nn.functional.relu(x).tolist() == [[1, 0], [3, 4]]
  assert F.cross_entropy(x, ntgrad.tensor([0, 1])).item() == x.cross_entropy(Tensor([0, 1])).item()
  assert "relu" in dir(F) and "_wrap" not in dir(F)


def test_names_that_are_dtypes_too() -> None:
  assert ntgrad.long is dtypes.int64 and ntgrad.float is dtypes.float32 and ntgrad.bool is dtypes.bool
  assert ntgrad.full((2,), 1, dtype=ntgrad.long).dtype is dtypes.int64


def test_what_is_no_function() -> None:
  for name in ("shape", "T", "_wrap", "nothing", "__path"):
    with pytest.raises(AttributeError, match=name): getattr(F, name)
    with pytest.raises(AttributeError, match=name): getattr(ntgrad, name)


def test_a_tensor_of_its_own() -> None:
  x = Tensor([1.0, 2.0], requires_grad=True)
  y = ntgrad.tensor(x, dtype="float64", requires_grad=True)
  with ntgrad.no_grad(): y.add_(1)
  assert x.tolist() == [1, 2] and y.tolist() == [2, 3] and y.dtype is dtypes.float64
  a = np.ones(2, np.float32)
  z = ntgrad.tensor(a)
  a[0] = 5
  assert z.tolist() == [1, 1]
  with pytest.raises(NtgradError): ntgrad.tensor([[1], [2, 3]])


@pytest.mark.parametrize(("args", "kwargs", "shape", "low", "high"), [
  ((7, (300,)), {}, (300,), 0, 7), ((3, 7, (300,)), {}, (300,), 3, 7), ((-2, 2, [30, 10]), {}, (30, 10), -2, 2),
  ((7,), {"size": (300,)}, (300,), 0, 7), ((2,), {"high": 5, "size": 300}, (300,), 2, 5),
  ((), {"low": 4, "high": 6, "size": (300,)}, (300,), 4, 6), ((30, 10), {}, (30, 10), 0, 10), (((30, 10),), {}, (30, 10), 0, 10),
  ((300,), {"low": 8, "high": 11}, (300,), 8, 11), ((5,), {"low": 2, "size": (300,)}, (300,), 2, 5)])
def test_randint_has_both_orders(args: tuple[object, ...], kwargs: dict[str, object], shape: tuple[int, ...], low: int,
                                 high: int) -> None:
  x = Tensor.randint(*args, **kwargs).numpy()   # type: ignore[arg-type]
  assert x.shape == shape and set(np.unique(x)) == set(range(low, high))


@pytest.mark.parametrize("args", [("a", (2,)), (1.5, (2,)), (True, (2,)), (3, 3, (2,)), (1, 2, 3, (2,)), (0, 5, ("a",))])
def test_randint_refuses(args: tuple[object, ...]) -> None:
  with pytest.raises(ArgumentError, match="randint"): Tensor.randint(*args)
