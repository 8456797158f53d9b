"""Kernels as people write them for NineToothed: what such kernels do that is not the language's own way of saying it."""
from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.errors import ApplicationError, ArgumentError, AxisError, DTypeError, ShapeError
from ntgrad.tile import Symbol, Tensor, block_size
from support.triton import needs_triton

X = np.arange(8, dtype=np.float32)


@pytest.fixture(autouse=True, params=["CPU", "NUMPY", pytest.param("TRITON", marks=needs_triton)])
def device(request: pytest.FixtureRequest) -> Any:
  with config(dev=request.param, tune=0): yield request.param


def fours(*xs: Tensor) -> Any: return tuple(x.tile((4,)) if x.source.ndim else x for x in xs)
def blocks(*xs: Tensor) -> Any: return tuple(x.tile((2, 4)) for x in xs)
def copy(x: Any, y: Any) -> None: y = x


def ran(application: Any, *arrays: Any, arrangement: Any = fours, out: Any = None, tensors: Any = None) -> Any:
  """What a kernel writes into its last parameter."""
  y = np.zeros(8, np.float32) if out is None else out
  tensors = tensors or tuple(Tensor(np.ndim(a)) for a in (*arrays, y))
  tile.make(arrangement, application, tensors)(*arrays, y)
  return y.tolist()


# ---- numbers and dtypes

@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "float16", "bfloat16", "uint8"])
def test_numbers_take_the_dtype_that_is_declared(dtype: str) -> None:
  def scaled(x: Any, by: Any, y: Any) -> None:
    assert by.dtype == dtype_
    y = x * by
  dtype_ = dtypes.of(dtype)
  k = tile.make(fours, scaled, (Tensor(1), Tensor(0, dtype=dtype), Tensor(1)))
  floats = (2.5, np.float32(1.5), np.float64(0.25)) if dtype_.kind == "f" else ()
  for by in (2, True, np.int32(3), np.uint8(4), *floats):
    for _ in range(2):
      y = np.zeros(8, np.float32)
      k(X, by, y)
      np.testing.assert_array_equal(y, X * float(by))
  if dtype_.kind != "f":
    with pytest.raises(DTypeError, match="by has elements of .* got the number 2.5"): k(X, 2.5, y)
  if dtype == "uint8":
    with pytest.raises(ArgumentError, match="from 0 to 255, got 300"): k(X, 300, y)


def test_dtypes_by_triton_names() -> None:
  names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "fp8e5": "float8_e5m2", "i1": "bool",
           "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u64": "uint64", "torch.half": "float16"}
  for name, ours in names.items(): assert Tensor(1, dtype=name).dtype is dtypes.of(ours)
  assert Tensor(1, dtype=np.float16).dtype is dtypes.float16 and dtypes.of("i8") is dtypes.int64   # elsewhere numpy's
  class dtype:   # as torch and Triton have it
    def __init__(self, text: str): self.text = text
    def __str__(self) -> str: return self.text
  dtype.__module__ = "triton.language.core"
  assert Tensor(1, dtype=dtype("fp8e4nv")).dtype is dtypes.float8_e4m3 and Tensor(1, dtype=dtype("int1")).dtype is dtypes.bool
  def halves(x: Any, y: Any) -> None: y = tl.cast(x, "i8").to("fp32") * 0.5
  assert ran(halves, X) == (X / 2).tolist()


def test_bits() -> None:
  def bits(x: Any, y: Any) -> None:
    y = tl.cast(x, tl.int32, bitcast=True) + (x + 0).to(tl.int32, bitcast=True) - x.to("i32", bitcast=True)
  assert ran(bits, X, out=np.zeros(8, np.int32)) == X.view(np.int32).tolist()


# ---- making and calling

def test_make_takes_more_than_the_parameters() -> None:
  def cut(x: Tensor, size: int, y: Tensor, spare: Tensor) -> Any: return x.tile((size,)), y.tile((size,)), spare
  assert ran(copy, X, arrangement=cut, tensors=(Tensor(1), 4, Tensor(1), Tensor(2))) == X.tolist()
  def skipping(spare: Tensor, x: Tensor, y: Tensor) -> Any: return x.tile((4,)), y.tile((4,))
  k = tile.make(skipping, copy, (Tensor(2), Tensor(1), Tensor(1)))
  assert k.names == ["x", "y"]
  y = np.zeros(8, np.float32)
  k(X, y)
  assert y.tolist() == X.tolist()
  def with_number(x: Tensor, y: Tensor, factor: float) -> Any: return *fours(x, y), factor
  def scaled(x: Any, y: Any, factor: Any) -> None: y = x * factor
  k = tile.make(with_number, scaled, (Tensor(1), Tensor(1), 2.5))
  k(X, y)
  assert y.tolist() == (X * 2.5).tolist()
  with pytest.raises(ArgumentError, match="2 parameters .x, y. and 1 tensors"): tile.make(fours, copy, (Tensor(1),))


def test_numbers_and_tensors_by_name() -> None:
  def scaled(x: Any, y: Any, factor: Any) -> None: y = x * factor
  k = tile.make(fours, scaled, (Tensor(1), Tensor(1), Tensor(0, constexpr=True, value=3)))
  y = np.zeros(8, np.float32)
  for args, given, by in (((X, y), {}, 3), ((X, y, 4), {}, 4), ((X, y), {"factor": 5}, 5), ((X,), {"y": y, "factor": 6}, 6),
                          ((), {"x": X, "y": y}, 3)):
    for _ in range(2):
      k(*args, **given)
      np.testing.assert_array_equal(y, X * by)
  with pytest.raises(ArgumentError, match="factor is given twice"): k(X, y, 3, factor=4)
  with pytest.raises(ArgumentError, match="x is given twice"): k(X, x=X)
  with pytest.raises(ArgumentError, match="y is not given"): k(x=X)
  with pytest.raises(ArgumentError, match="no compile-time value 'factr'; did you mean factor?"): k(X, y, factr=4)


def test_a_block_size_that_is_given_may_be_outside_the_tuners_bounds() -> None:
  size = block_size(lower_bound=16, upper_bound=32)
  y = np.zeros(8, np.float32)
  k = tile.make(lambda x, y: (x.tile((size,)), y.tile((size,))), copy, (Tensor(1), Tensor(1)))
  for n in (4, 3, 64):
    y[:] = 0
    k(X, y, **{size.name: n})
    assert y.tolist() == X.tolist()
  with pytest.raises(ShapeError, match="a block is 1 or more"): k(X, y, **{size.name: 0})
  N = Symbol("N", constexpr=True, lower_bound=16)
  with pytest.raises(ShapeError, match="N is between 16 and any"):
    tile.make(lambda x, y: (x.tile((N,)), y.tile((N,))), copy, (Tensor(1), Tensor(1)))(X, y, N=4)


# ---- arrangements

def test_shapes_can_be_set() -> None:
  def declared(x: Tensor, y: Tensor) -> Any:
    x.shape = y.shape = ("N",)
    return fours(x, y)
  k = tile.make(declared, copy, (Tensor(1), Tensor(1)))
  y = np.zeros(8, np.float32)
  k(X, y)
  assert y.tolist() == X.tolist()
  with pytest.raises(ShapeError, match="N is 8 in dimension 0 of x and 4"): k(X, y[:4])
  t = Tensor(shape=(1, 6), name="t").tile((1, 2))
  t.shape = (4, 2)
  t.dtype.shape = t.dtype.shape
  assert t.levels == ((4, 2), (1, 2)) and t.eval().reshape(4, 2, 2).tolist() == [[[0, 1], [2, 3]]] * 4
  with pytest.raises(ShapeError, match="shape: 2 dimensions"): t.shape = (4,)


def test_expanding_what_may_be_one() -> None:
  def arrangement(x: Tensor, y: Tensor) -> Any:
    y = y.tile((2, 4))
    return x.tile((1, 4)).expand((y.shape[0], -1)), y
  k = tile.make(arrangement, copy, (Tensor(2), Tensor(2)))
  y = np.zeros((8, 8), np.float32)
  k(X[None], y)
  assert (y == X).all()
  with pytest.raises(ShapeError, match=r"only dimensions of 1 become others, \(3, 2\) cannot become \(4, 2\)"):
    k(np.zeros((3, 8), np.float32), y)


def row_sum(x: Any, y: Any) -> None: y = tl.sum(x)


@pytest.mark.parametrize("dynamic", ["auto", "never"])
def test_grids_of_as_many_programs_correspond_in_row_major_order(dynamic: str) -> None:
  rng = np.random.default_rng(0)
  with config(dynamic=dynamic):
    rows = tile.make(lambda x, y: (x.tile((1, -1)), y.tile((1,))), row_sum, (Tensor(2), Tensor(1)))   # (n, 1) and (n,)
    turned = tile.make(lambda x, y: (x.tile((1,)), y.tile((1, 1))), copy, (Tensor(1), Tensor(2)))     # (a * b,) and (a, b)
    cubes = tile.make(lambda x, y: (x.tile((1, 2, 4)), y.tile((2, 4))), copy, (Tensor(3), Tensor(2)))
    for n in (3, 5, 6):
      x = rng.standard_normal((n, 4)).astype(np.float32)
      y = np.zeros(n, np.float32)
      rows(x, y)
      np.testing.assert_allclose(y, x.sum(1), rtol=1e-5)
      out = np.zeros((4, n), np.float32)
      turned(x.reshape(-1), out)
      assert out.tolist() == x.reshape(4, n).tolist()
      x = rng.standard_normal((n, 4, 8)).astype(np.float32)   # (n, 2, 2) and (2 * n, 2)
      out = np.zeros((n * 4, 8), np.float32)
      cubes(x, out)
      assert out.tolist() == x.reshape(-1, 8).tolist()
  with pytest.raises(ShapeError, match=r"for the same grid; x.unsqueeze"):
    turned(np.zeros(12, np.float32), np.zeros((3, 5), np.float32))


def test_a_grid_that_does_not_fit_says_what_would_mend_it() -> None:
  def made(arrangement: Any) -> Any: return tile.make(arrangement, copy, (Tensor(2, name="a"), Tensor(1)))
  one, two = np.zeros((3, 8), np.float32), np.zeros(8, np.float32)
  with pytest.raises(ShapeError, match=r"; y.unsqueeze\(0\).expand\(\(x_size_0, -1\)\) gives it the dimensions of x"):
    made(lambda x, y: (x.tile((1, 4)), y.tile((4,))))(one, two)
  with pytest.raises(ShapeError, match=r"same grid; y.expand\(\(x_size_0, -1\)\) gives it that of x"):
    made(lambda x, y: (x.tile((1, 4)), y.tile((4,)).unsqueeze(0)))(one, two)
  square = Tensor(shape=(4, 6))
  with pytest.raises(ShapeError, match=r"same grid; y.expand\(\(-1, 6\)\) gives it that of x"):
    tile.make(lambda x, y: (x, y.tile((1, -1))), copy, (square, Tensor(shape=(4, 6))))


# ---- applications

def test_functions_that_assign_a_parameter_store() -> None:
  def twice(output: Any, value: Any) -> None: output = value * 2
  def with_local(x: Any, y: Any) -> None:
    y = x
    def more(target: Any, *, by: Any) -> None:
      target += by
    more(y, by=10)
    twice(output=x, value=x)   # by name too
  def applied(x: Any, y: Any) -> None: twice(y, x)
  assert ran(applied, X) == (X * 2).tolist()
  x = X.copy()
  assert ran(with_local, x) == (X + 10).tolist() and x.tolist() == (X * 2).tolist()
  def values(x: Any, y: Any) -> None:   # other names too, in loops and conditions of the kernel as well
    v = x * 0
    twice(v, x)
    for _ in range(3):
      if tl.sum(x) > 10: increased(v, 1)
    y = v
  assert ran(values, X) == [0, 2, 4, 6, 11, 13, 15, 17]
  def python(x: Any, y: Any) -> None:   # one that gives something back leaves names alone
    v = doubled(x)
    y = v + x
  assert ran(python, X) == (X * 3).tolist()


def increased(total: Any, by: Any) -> None: total += by
def doubled(x: Any) -> Any:
  x = x * 2
  return x


def test_storing_a_part_of_a_tile() -> None:
  def parts(x: Any, y: Any) -> None:
    y = 9.0
    y[tl.arange(0, 2)] = x[2:]
    y[3] = tl.sum(x)
    y[-2] += 1
  assert ran(parts, X) == [2, 3, 10, 6, 6, 7, 10, 22]
  def matrix(x: Any, y: Any) -> None:
    y[1] = x[0]
    y[:, 3] = 7.0
    y[0, 0:2] = x[1, 2:4]
    y[tl.arange(0, 2), 2 - tl.arange(0, 2)] = 5.0
  a = np.arange(16, dtype=np.float32).reshape(2, 8)
  want = np.zeros((2, 8), np.float32)
  for x, y in ((a[:, :4], want[:, :4]), (a[:, 4:], want[:, 4:])):
    y[1], y[:, 3], y[0, 0:2] = x[0], 7, x[1, 2:4]
    y[[0, 1], [2, 1]] = 5
  assert ran(matrix, a, out=np.zeros((2, 8), np.float32), arrangement=blocks) == want.tolist()
  def at(x: Any, i: Any, y: Any) -> None: y[i] = tl.sum(x)   # outside of the tile nothing is written
  index = np.array([1, 4], np.int32)
  assert ran(at, X, index, arrangement=lambda x, i, y: (x.tile((4,)), i, y.tile((4,)))) == [0, 6, 0, 0, 0, 0, 0, 0]
  with pytest.raises(AxisError, match="index 4 in a dimension of 4"):
    def outside(x: Any, y: Any) -> None: y[4] = 1.0
    ran(outside, X)


def test_indices_that_the_kernel_computes() -> None:
  def reversed_(x: Any, y: Any) -> None: y = x[3 - tl.arange(0, 4)] + (x * 2)[3 - tl.arange(0, 4)]
  assert ran(reversed_, X) == [9, 6, 3, 0, 21, 18, 15, 12]
  index = np.array([3, 7], np.int32)
  def read(x: Any, i: Any, y: Any) -> None: y = x[i]
  pairs = lambda x, i, y: (x.tile((4,)), i, y)  # noqa: E731
  assert ran(read, X, index, arrangement=pairs, out=np.zeros(2, np.float32)) == [3, 0]   # outside: nothing
  a = np.arange(16, dtype=np.float32).reshape(2, 8)
  want = np.concatenate([p[::-1] + p[:, :1] for p in (a[:, :4], a[:, 4:])], 1)
  def grid(x: Any, y: Any) -> None:
    rows, columns = tl.arange(0, 2), tl.arange(0, 4)
    y = x[1 - rows[:, None], columns[None, :]] + x[rows, 0][:, None]
  assert ran(grid, a, out=np.zeros((2, 8), np.float32), arrangement=blocks) == want.tolist()


def test_linear_offsets_and_pointers() -> None:
  a = np.arange(24, dtype=np.float32).reshape(4, 6)
  def linear(x: Any, y: Any) -> None:
    assert x.offsets().shape == x.shape
    y = x.offsets()
  assert ran(linear, a, out=np.zeros_like(a), arrangement=blocks) == a.tolist()
  def pointers(x: Any, y: Any) -> None:
    at = x.offsets()
    v = tl.load(x.source.data_ptr() + at - 1, mask=at < 20, other=-1.0)
    tl.store(100 - 99 + y.data_ptr() + at - 1, v * 2, mask=at < 22)
  want = np.where((a > 0) & (a < 20), (a - 1) * 2, np.where(a < 22, -2, 0))   # before the first: other
  assert ran(pointers, a, out=np.zeros_like(a), arrangement=blocks) == want.tolist()
  with pytest.raises(ApplicationError, match="is a place, not what is there; read it with tl.load"):
    def deref(x: Any, y: Any) -> None: y = x.source.data_ptr() * 2
    ran(deref, X)


def test_atomics_on_pointers(device: str) -> None:
  if device == "TRITON": pytest.skip("float atomics of the interpreter are covered by the language's tests")
  def total(x: Any, y: Any) -> None: tl.atomic_add(y.source.data_ptr(), tl.sum(x))
  out = np.zeros((), np.float32)
  tile.make(fours, total, (Tensor(1), Tensor(0)))(X, out)
  assert out == X.sum()


def test_names_that_mean_nothing() -> None:
  def wrong(input: Any, output: Any) -> None: output = inptu * 2  # type: ignore[name-defined]  # noqa: F821
  with pytest.raises(ApplicationError, match="'inptu' is read before .*; did you mean input?"): ran(wrong, X)


def test_rounding() -> None:
  def rounded(x: Any, y: Any) -> None: y = tl.libdevice.nearbyint(x * 0.5)
  assert ran(rounded, X) == np.rint(X * 0.5).tolist()


def test_the_package_alone_gives_the_language(device: str) -> None:
  if device != "CPU": pytest.skip("once is enough")
  subprocess.run([sys.executable, "-c", "import ntgrad.tile; ntgrad.tile.language.exp"], check=True, timeout=120)


# ---- memory

class _Torch:
  """What PyTorch's tensors have that kernels look at."""
  def __init__(self, a: Any = None, shape: Any = (), place: str = "cpu"):
    self.a, self.shape, self.dtype = a, shape if a is None else a.shape, "torch.float32"
    self.device = type("device", (), {"type": place})
  def __dlpack__(self, **kw: Any) -> Any:
    if self.a is None: raise RuntimeError("Cannot pack tensors on meta")
    return self.a.__dlpack__(**kw)
  def __dlpack_device__(self) -> Any: return (1, 0) if self.a is None else self.a.__dlpack_device__()


def test_what_is_not_read_may_be_a_meta_tensor() -> None:
  def shaped(x: Any, like: Any, y: Any) -> None: y = x + like.shape[0] + like.offsets(0)
  like = _Torch(shape=(8,), place="meta")
  y = np.zeros(8, np.float32)
  k = tile.make(fours, shaped, (Tensor(1),) * 3)
  for _ in range(2): k(X, like, y)
  assert y.tolist() == (2 * X + 4).tolist()
  with pytest.raises(ArgumentError, match="x is a meta tensor, which has no memory"): k(like, like, y)


def test_nested_tensors() -> None:
  class Nested(_Torch):
    is_nested, layout = True, "torch.jagged"
    def _nested_tensor_size(self) -> Any: raise NotImplementedError
    def __init__(self, values: np.ndarray, offsets: np.ndarray):
      super().__init__(None, (2, -1))
      self._values, self._offsets = values, offsets
    def values(self) -> Any: return self._values
    def offsets(self) -> Any: return self._offsets
  values, offsets = np.arange(8, dtype=np.float32), np.array([0, 3, 8], np.int64)
  out = np.zeros_like(values)
  def doubled(x: Any, y: Any) -> None: y = x * 2
  k = tile.make(lambda x, y: (x.tile((1, 4)), y.tile((1, 4))), doubled, (Tensor(2, jagged_dim=1),) * 2)
  k(Nested(values, offsets), Nested(out, offsets))
  assert out.tolist() == (values * 2).tolist()
  class Pieces(_Torch): is_nested = True
  with pytest.raises(ArgumentError, match="make it with layout=torch.jagged"): k(Pieces(), Pieces())


class Strided(_Torch):
  """A nested tensor with layout=torch.strided: the numbers of all entries, and the size, strides and place of each entry."""
  is_nested = True

  def __init__(self, memory: np.ndarray, sizes: list[tuple[int, ...]], strides: Any = None):
    super().__init__(None, (len(sizes), -1))
    self.memory, self.sizes = memory, np.array(sizes, np.int64)
    self.strides = strides or [[int(np.prod(s[d + 1:])) for d in range(len(s))] for s in sizes]

  def values(self) -> Any: return self.memory
  def _nested_tensor_size(self) -> Any: return self.sizes
  def _nested_tensor_strides(self) -> Any: return np.array(self.strides, np.int64)
  def _nested_tensor_storage_offsets(self) -> Any: return np.cumsum(self.sizes.prod(1)) - self.sizes.prod(1)


def test_strided_nested_tensors() -> None:
  """Read and written where they are, as jagged ones."""
  def doubled(x: Any, y: Any) -> None: y = x * 2 + x.offsets(1)
  for rest in ((), (5,)):
    lengths = [3, 1, 4]
    sizes = [(n, *rest) for n in lengths]
    memory = np.arange(8 * int(np.prod(rest)), dtype=np.float32)
    out, nd = np.zeros_like(memory), 2 + len(rest)
    cut = (1, 2, *rest)
    k = tile.make(lambda x, y, cut=cut: (x.tile(cut), y.tile(cut)), doubled if not rest else _doubled_rows,
                  (Tensor(nd, jagged_dim=1),) * 2)
    for _ in range(2): k(Strided(memory, sizes), Strided(out, sizes))
    at = np.concatenate([np.arange(n) for n in lengths]) if not rest else np.zeros(8)
    assert (out.reshape(8, -1) == memory.reshape(8, -1) * 2 + at[:, None]).all()


def _doubled_rows(x: Any, y: Any) -> None: y = x * 2


def test_nested_tensors_that_are_no_batch_of_rows() -> None:
  def doubled(x: Any, y: Any) -> None: y = x * 2
  k = tile.make(lambda x, y: (x.tile((1, 4, 4)), y.tile((1, 4, 4))), doubled, (Tensor(3, jagged_dim=1),) * 2)
  memory = np.zeros(16, np.float32)
  other = Strided(memory, [(2, 4), (4, 2)])
  with pytest.raises(ArgumentError, match="differ in more than their first dimension"): k(other, other)
  turned = Strided(memory, [(2, 4), (2, 4)], [[1, 2], [1, 2]])
  with pytest.raises(ArgumentError, match="do not lie one behind the other"): k(turned, turned)


def test_arrays_that_are_one_memory() -> None:
  def more(x: Any, y: Any) -> None: y = x + 1
  k = tile.make(fours, more, (Tensor(1), Tensor(1)))
  a = np.arange(12, dtype=np.float32)
  k(a, a)
  assert a.tolist() == list(range(1, 13))
  with pytest.raises(ArgumentError, match="y and x overlap in memory"): k(a[:8], a[4:])
  k(a[::2], a[1::2])   # side by side
  assert a[1::2].tolist() == (a[::2] + 1).tolist()
  def backwards(x: Any, y: Any) -> None: y = tl.load(x.source[x.source.shape[0] - 1 - x.offsets(0)])
  k = tile.make(fours, backwards, (Tensor(1), Tensor(1)))
  with pytest.raises(ArgumentError, match="y and x are the same memory: what one program writes others read"): k(a, a)


# ---- parameters without tiles

def test_what_is_only_read_at_places_is_not_arranged(device: str) -> None:
  def picked(places: Any, y: Any, x: Any) -> None: y = tl.load(x.data_ptr() + places, mask=places >= 0, other=-1.0)
  def placed(places: Any, y: Any, x: Any) -> tuple[Any, ...]: return places.tile((4,)), y.tile((4,)), x
  k = tile.make(placed, picked, (Tensor(1, dtype=int), Tensor(1), Tensor(1)))
  for n, m, dtype in ((10, 5, np.int64), (10, 3, np.int32), (7, 10, np.int32), (4, 4, np.int64)):
    places, x, y = (np.arange(n) % (m + 1) - 1).astype(dtype), np.arange(m, dtype=np.float32) + 0.5, np.zeros(n, np.float32)
    k(places, y, x)
    np.testing.assert_array_equal(y, np.where(places < 0, -1, places + 0.5))


def test_a_sum_of_all_programs_in_one_element(device: str) -> None:
  if device == "TRITON": pytest.skip("float atomics of the interpreter are covered by the language's tests")
  def add(x: Any, total: Any) -> None: tl.atomic_add(total.data_ptr(), tl.sum(x))
  k = tile.make(lambda x, total: (x.tile((4,)), total), add, (Tensor(1, other=0), Tensor(1, shape_options=({"upper_bound": 1},))))
  for n in (3, 10, 11):
    total = np.zeros(1, np.float32)
    k(np.arange(n, dtype=np.float32), total)
    assert total[0] == n * (n - 1) / 2


def test_indices_of_a_tensor_that_is_not_arranged_are_those_of_the_source(device: str) -> None:
  def gram(x: Any, y: Any, n: Any) -> None:
    for i in range(n):
      for j in range(n):
        if i == j: y[i, j] = 1.0
        elif j < i: y[i, j] = y[j, i]
        else:
          total = tl.zeros((), dtype=tl.float32)
          for k in range(x.source.shape[1]): total += x[i, k] * x[j, k]
          y[i, j] = total
  x, y = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32), np.zeros((3, 3), np.float32)
  tile.make(lambda *xs: xs, gram, (Tensor(shape=(3, 5)), Tensor(shape=(3, 3)), Tensor(0, constexpr=True, value=3)))(x, y)
  want = x @ x.T
  np.fill_diagonal(want, 1)
  np.testing.assert_allclose(y, want, rtol=1e-5)


def test_a_parameter_that_is_not_used_has_any_grid(device: str) -> None:
  def masked(x: Any, mask: Any, y: Any, use: Any) -> None:
    if use: y = tl.where(mask > 0, x, 0.0)
    else: y = x
  arranged = lambda x, mask, y, use: (x.tile((4,)), mask.tile((2,)), y.tile((4,)), use)  # noqa: E731
  using, without = (tile.make(arranged, masked, (*[Tensor(1)] * 3, Tensor(0, constexpr=True, value=v))) for v in (True, False))
  for n in (8, 12, 12, 16):
    x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    refusal = rf"the outermost level of mask is \({n // 2},\), that of x is \({n // 4},\)"
    with pytest.raises(ShapeError, match=refusal): using(x, x, y)
    without(x, x, y)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("kind, good, bad", [(int, (np.int8, np.int64, np.uint16), np.float32), (bool, (np.bool_,), np.int32),
                                             (float, (np.float16, np.float64, np.int32), np.bool_)])
def test_types_of_python_stand_for_dtypes_of_their_kind(device: str, kind: Any, good: Any, bad: Any) -> None:
  k = tile.make(fours, copy, (Tensor(1, dtype=kind), Tensor(1)))
  for dtype in good:
    x, y = np.ones(5, dtype), np.zeros(5, np.float32)
    k(x, y)
    assert y.tolist() == [1] * 5
  with pytest.raises(DTypeError, match=f"x has elements of {kind.__name__}, got a tensor of"):
    k(np.ones(5, bad), np.zeros(5, np.float32))


# ---- bounds

def test_bounds_of_a_dimension_without_a_name_say_what_is_likely(device: str) -> None:
  options = {"lower_bound": 4, "upper_bound": 16}
  k = tile.make(lambda x, y: (x.tile((1, -1)), y.tile((1, -1))), copy, (Tensor(2, shape_options=(None, options)), Tensor(2)))
  for n in (8, 16, 20, 40, 3, 8, 500):
    x, y = np.arange(2 * n, dtype=np.float32).reshape(2, n), np.zeros((2, n), np.float32)
    k(x, y)
    np.testing.assert_array_equal(y, x)
    assert k.specialise(x, y).values["x_size_1"] == n
  named = tile.make(lambda x, y: (x.tile((-1,)), y.tile((-1,))), copy, (Tensor(shape=(Symbol("n", upper_bound=16),)), Tensor(1)))
  with pytest.raises(ShapeError, match="n is between 0 and 16, got 20"): named(np.zeros(20, np.float32), np.zeros(20, np.float32))


# ---- ahead of time

def test_build_as_it_is_called_elsewhere(device: str, tmp_path: Any) -> None:
  if device != "CPU": pytest.skip("a library is for the CPU here")
  def premake(n: int, size: int = 4) -> Any:
    def scaled(x: Any, y: Any) -> None: y = x * n
    return lambda x, y: (x.tile((size,)), y.tile((size,))), scaled, (Tensor(1, dtype="fp32"), Tensor(1, dtype="fp32"))
  configs = tuple(((3,), {"size": size}, {"num_warps": 4, "num_stages": 2}) for size in (4, 8))
  folder = tile.build(premake, configs, caller="torch", kernel_name="scaled", output_dir=tmp_path, meta_parameters=("size",))
  y = np.zeros(8, np.float32)
  tile.load(folder)(X, y)
  assert y.tolist() == (X * 3).tolist() and len(tile.load(folder).kernels) == 1
  with pytest.raises(ArgumentError, match="a call could not tell apart|two configurations"):
    tile.build(premake, configs[:1] * 2, tmp_path / "b")
  with pytest.raises(ArgumentError, match="no option 'num_warp'; did you mean num_warps?"):
    tile.build(premake, [((3,), {}, {"num_warp": 4})], tmp_path / "c")
  with pytest.raises(ArgumentError, match="a tile.Config, or a tuple"): tile.build(premake, [3], tmp_path / "d")


# ---- tuning

def test_candidates_with_the_same_source_are_one(device: str) -> None:
  if device != "CPU": pytest.skip("once is enough")
  from ntgrad.engine.device import get_device
  from ntgrad.tile.launch import describe_argument
  from ntgrad.tile.tune import compiled_candidates
  k = tile.make(fours, copy, (Tensor(1), Tensor(1)))
  arguments = (((8,), "float32"),) * 2
  sizes = {"x_size_0": 8, "y_size_0": 8}
  one, same = (k.build([describe_argument(a) for a in arguments], {}, sizes) for _ in range(2))
  other = k.specialise(*(((16,), "float32"),) * 2)
  assert one is not None and same is not None and one is not same
  lines: list[str] = []
  programs = compiled_candidates([({"B": 1}, one), ({"B": 2}, same), ({"B": 3}, other)], get_device("CPU"), lines)
  assert [v for v, _ in programs] == [{"B": 1}, {"B": 3}] and lines == ["B=2: the same program as B=1"]
