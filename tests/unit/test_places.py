"""Places among 2**31 elements or more, most of which no memory holds: right, or refused with a sentence."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ntgrad import Tensor, config
from ntgrad.backends.opencl.device import available
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.errors import NtgradError, ShapeError
from support.marks import long

N = 2**31 + 5
pytestmark = pytest.mark.skipif(not available()[0], reason="no OpenCL device: numpy would take minutes")


@pytest.fixture(autouse=True)
def _on_the_cpu() -> object:
  with config(dev="CPU"): yield


def ones(*shape: int) -> Tensor: return Tensor(np.ones((1,) * len(shape), np.int8)).realize().expand(shape)


@long
def test_where_the_greatest_is() -> None:
  found = ones(N).argmax()
  assert (found.item(), found.dtype) == (0, dtypes.int64)
  value, place = (Tensor([0, 1], dtype="int8").reshape(2, 1).expand(2, 2**30 + 1)).reshape(-1).max(dim=0)
  assert (value.item(), place.item()) == (1, 2**30 + 1)


def test_places_are_int32_where_these_hold_them() -> None:
  rows = Tensor(np.arange(3, dtype=np.int8)).reshape(3, 1).expand(3, N).argmax(0)
  assert (rows[N - 1].item(), rows.dtype) == (2, dtypes.int32)
  assert ones(2**31 - 1)[:5].argmin().dtype is dtypes.int32


@pytest.mark.parametrize("make, want", [
  (lambda: Tensor.eye(N, 2)[-1], [0, 0]),
  (lambda: Tensor.eye(N, N)[-2:, -3:].flatten(), [0, 1, 0, 0, 0, 1]),
  (lambda: ones(N, 3).tril()[-1], [1, 1, 1]),
  (lambda: ones(3, N).triu()[2, :4], [0, 0, 1, 1]),
  (lambda: Tensor([N - 1], dtype="int64").one_hot(N)[0, -2:], [0, 1]),
  (lambda: Tensor.linspace(0, N - 1, N, dtype="float64")[-3:], [N - 3, N - 2, N - 1]),
  (lambda: ones(N)[Tensor([N - 1, -1], dtype="int64")], [1, 1]),
  (lambda: ones(N).searchsorted(Tensor([2, 1, 0], dtype="int8"), right=True), [N, N, 0]),
  (lambda: ones(N).sum(dtype="int64").reshape(1), [N]),
  (lambda: ones(N).sum(dtype="int32").reshape(1), [-(2**31) + 5]),
  (lambda: ones(2**40, 2**40)[2**39:, 5][:2], [1, 1]),
  (lambda: Tensor(np.arange(3, dtype=np.int8)).realize().reshape(3, 1).expand(3, 2**40).reshape(-1)[2**41 + 5:][:1], [2]),
])
def test_far_elements(make: Callable[[], Tensor], want: list[int]) -> None:
  assert make().tolist() == want


@pytest.mark.parametrize("call", [Tensor.sort, Tensor.argsort, lambda x: x.topk(2), Tensor.median, Tensor.unique])
def test_sorts_of_more_are_refused(call: Callable[[Tensor], object]) -> None:
  with pytest.raises(ShapeError, match="sorting 2147483653 elements along dim 0: int32 has places of 2147483647 at most; sort"):
    call(ones(N))


def test_more_than_int64_counts_are_refused() -> None:
  with pytest.raises(NtgradError, match="places among 1208925819614629174706176 elements"): ones(2**40, 2**40).argmax()
