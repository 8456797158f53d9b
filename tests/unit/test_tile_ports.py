"""What programs written for NineToothed give to kernels, and get from libraries."""
from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.config import config
from ntgrad.errors import ArgumentError, DTypeError
from ntgrad.graph import origins
from ntgrad.tile import Tensor
from ntgrad.tile.open_sizes import agree_on_grid
from support.triton import needs_triton

f32 = np.float32


@pytest.fixture(params=["CPU", "NUMPY", pytest.param("TRITON", marks=needs_triton)])
def device(request: Any) -> Any:
  with config(dev=request.param): yield request.param


def scaled(x: Any, by: Any, y: Any) -> None: y = x * by  # noqa: F841


# ---- tensors

def test_a_number_as_dtype_is_ignored(monkeypatch: Any) -> None:
  monkeypatch.setattr(origins, "_told", {})
  with pytest.warns(UserWarning, match="dtype=3 is a number") as found:
    for dtype in (3, 0.5, 1): assert Tensor(1, dtype=dtype).dtype is None
  assert len(found) == 1 and found[0].filename == __file__


def test_options_of_dimensions_are_any_iterable() -> None:
  want = Tensor(2, shape_options=[{"lower_bound": 1}, {"lower_bound": 2}]).shape_options
  assert Tensor(2, shape_options=({"lower_bound": n} for n in (1, 2))).shape_options == want
  assert Tensor(2, shape_options={"a": want[0], "b": want[1]}.values()).shape_options == want
  with pytest.raises(ArgumentError, match="for each of 2 dimensions"): Tensor(2, shape_options=iter(want[:1]))


@pytest.mark.parametrize("dtype", ["float32", "float64", float])
def test_ints_become_the_floats_that_are_declared(dtype: Any, device: str) -> None:
  torch = pytest.importorskip("torch")
  x = np.arange(6, dtype=f32)
  one = tile.make(lambda x, b, y: (x.tile((4,)), b, y.tile((4,))), scaled, (Tensor(1), Tensor(0, dtype=dtype), Tensor(1)))
  for three in (3, np.int64(3), np.array(3), torch.tensor(3), ntgrad.Tensor(3), 3.0):
    for _ in range(2):
      y = np.zeros(6, f32)
      one(x, three, y)
      np.testing.assert_array_equal(y, x * 3)
  many = tile.make(lambda *xs: tuple(v.tile((4,)) for v in xs), scaled, (Tensor(1), Tensor(1, dtype=dtype), Tensor(1)))
  for ints in (np.arange(6), torch.arange(6), ntgrad.Tensor(np.arange(6))):
    y = np.zeros(6, f32)
    many(x, ints, y)
    np.testing.assert_array_equal(y, x * x)


def test_what_is_written_is_not_converted(device: str) -> None:
  k = tile.make(lambda *xs: tuple(v.tile((4,)) for v in xs), scaled, (Tensor(1), Tensor(1), Tensor(1, dtype="float32")))
  with pytest.raises(DTypeError, match="y is written, and has elements of dtypes.float, got a tensor or number of dtypes.long"):
    k(np.ones(4, f32), np.ones(4, f32), np.zeros(4, np.int64))


def test_output_dir_is_a_path(tmp_path: Path) -> None:
  for folder in (tmp_path / "a", str(tmp_path / "b")):
    k = tile.make(lambda *xs: tuple(v.tile((4,)) for v in xs), scaled, (Tensor(1),) * 3, output_dir=folder)
    k(*[np.zeros(4, f32) for _ in range(3)])
    assert len(list(Path(folder).iterdir())) == 1


# ---- empty tensors

def test_empty_tensors_are_expanded_and_squeezed(device: str) -> None:
  """They have nothing for any of the elements: all are masked."""
  def total(x: Any, y: Any) -> None: y = tl.sum(x) + 1  # noqa: F841
  def rows(x: Any, y: Any) -> None: y = tl.sum(x, 1) + 1  # noqa: F841
  cases: list[Any] = [
    (lambda x, y: (x.expand((4,)).tile((4,)), y.tile((1,))), total, 1, lambda n: (n,), 1, {0: 1, 1: 5}),
    (lambda x, y: (x.tile((4, 1)).squeeze(1), y.tile((4,))), rows, 2, lambda n: (4, n), 4, {0: 1, 1: 2}),
    (lambda x, y: (x.squeeze(0).tile((4,)), y.tile((1,))), total, 2, lambda n: (n, 4), 1, {0: 1, 1: 5})]
  for arrangement, application, ndim, shape, size, want in cases:
    k = tile.make(arrangement, application, (Tensor(ndim), Tensor(1)))
    for n in (1, 0, 1):
      y = np.zeros(size, f32)
      k(np.ones(shape(n), f32), y)
      assert y.tolist() == [want[n]] * size
  assert Tensor(shape=(0, 3)).expand((2, -1)).shape == (2, 3) and Tensor(shape=(0, 3)).squeeze(0).shape == (3,)


# ---- libraries

def by_rows(x: Any, y: Any, block: int) -> Any: return x.tile((block,)), y.tile((block,))


def premake(size: int | None = None, factor: int = 2, dtype: Any = None, block: int = 4) -> Any:
  def times(x: Any, y: Any) -> None: y = x * factor  # noqa: F841
  return functools.partial(by_rows, block=block), times, (Tensor(shape=(size,), dtype=dtype), Tensor(shape=(size,), dtype=dtype))


def test_a_built_library_is_called_with_its_configuration(tmp_path: Path) -> None:
  """By position behind the tensors, or by keyword: also where nothing else tells the configurations apart."""
  configs = [((), {"factor": n, "dtype": tl.float32}, {}) for n in (2, 5)] + [((7, 3), {"dtype": tl.float64}, {})]
  with config(dev="CPU"):
    k = tile.build(premake, configs, output_dir=tmp_path, kernel_name="times", caller="cpu", lazy=True)
    assert Path(k) == tmp_path and len(tile.load(k).kernels) == 3
    x = np.arange(9, dtype=f32)
    for n in (2, 5):
      given: Any = ((None, n, tl.float32, 4), {}), ((None, n), {}), ((), {"factor": n}), ((None, n, np.float32), {"block": 4})
      for args, named in given:
        y = np.zeros(9, f32)
        k(x, y, *args, **named)
        np.testing.assert_array_equal(y, x * n)
    y = np.zeros(7)
    k(np.arange(7.0), y)   # its dtype tells
    assert y.tolist() == (np.arange(7) * 3).tolist()
    with pytest.raises(ArgumentError, match=r"several kernels for .*with .*'factor': 2.*'factor': 5"): k(x, np.zeros(9, f32))
    with pytest.raises(ArgumentError, match=r"no kernel for .* with {'factor': 4}"): k(x, np.zeros(9, f32), factor=4)


def test_likely_sizes_agree_on_the_grid() -> None:
  """Or a kernel for all sizes of a convolution would never be made: its output has sizes of its own."""
  N, H, K, O, P = (tile.Symbol(n) for n in "NHKOP")
  hints = {"N": 4, "H": 10, "K": 3, "O": 1024, "P": 1024}
  agree_on_grid([(tile.cdiv(N * (H - K + 1), 8),), (tile.cdiv(O * P, 8),)], hints, ())
  assert tile.cdiv(hints["O"] * hints["P"], 8) == 4 and hints["O"] * hints["P"] == 32
  agree_on_grid([(N,), (O,), (N + P,)], hints, {"N"})
  assert hints["O"] == hints["N"] == 4
