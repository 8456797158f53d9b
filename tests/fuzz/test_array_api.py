"""``ntgrad.array_api`` against array-api-strict, on random arrays: values, shapes, dtypes; all of the standard is there."""
from __future__ import annotations

import types
from typing import Any, Callable

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given, strategies as st

from ntgrad import Tensor, array_api as xp, config, dtypes
from ntgrad.errors import NtgradError
from support.marks import long_half

INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
KINDS = {"f": FLOATS, "i": INTS, "b": ("bool",)}
# complex numbers are not there, nor what only array-api-strict has
MISSING = {"complex64", "complex128", "conj", "imag", "real", "ArrayAPIStrictFlags", "Device", "ModuleType",
           "get_array_api_strict_flags", "reset_array_api_strict_flags", "set_array_api_strict_flags"}


@pytest.fixture(autouse=True)
def _numpy() -> Any:
  with config(dev="NUMPY"): yield


def test_all_names_are_there() -> None:
  assert not [n for n in dir(strict) if n[0] != "_" and not hasattr(xp, n) and n not in MISSING]


def arrays(kinds: str, shape: Any = None) -> st.SearchStrategy[np.ndarray[Any, Any]]:
  """Arrays of some dtype of these kinds: shapes with up to three dimensions of up to four, among them 0 and 1."""
  names = [n for k in kinds for n in KINDS[k]]
  @st.composite
  def build(draw: Any) -> np.ndarray[Any, Any]:
    dtype = np.dtype(draw(st.sampled_from(names)))
    size = draw(shape if shape is not None else st.lists(st.integers(0, 4), max_size=3))
    n = int(np.prod(size, dtype=int))
    if dtype.kind == "b": values: Any = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    elif dtype.kind == "f":
      number = st.sampled_from([0.0, -0.0, 1.0, -1.5, 0.3, 2.0, 5.25, -7.0, float("inf"), -float("inf"), float("nan")])
      values = draw(st.lists(number, min_size=n, max_size=n))
    else: values = draw(st.lists(st.integers(0 if dtype.kind == "u" else -5, 9), min_size=n, max_size=n))
    return np.array(values, dtype).reshape(size)
  return build()


def pairs(kinds: str) -> st.SearchStrategy[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
  """Two arrays of one kind that broadcast."""
  @st.composite
  def build(draw: Any) -> Any:
    kind = draw(st.sampled_from(kinds))
    a = draw(arrays(kind))
    shape = [draw(st.sampled_from([n, 1])) for n in a.shape]
    b = draw(arrays(kind, st.just(shape[draw(st.integers(0, len(shape))):])))
    return (a, b) if promotes(a.dtype, b.dtype) else (a, b.astype(a.dtype))
  return build()


def promotes(a: np.dtype[Any], b: np.dtype[Any]) -> bool:
  try: strict.result_type(getattr(strict, a.name), getattr(strict, b.name))
  except TypeError: return False
  return True


def same(got: Any, want: Any, exact: bool = False) -> None:
  """Equal in shape, dtype (the default int is int32 here, int64 there) and value."""
  if isinstance(want, (tuple, list)):
    assert len(got) == len(want)
    if got and all(isinstance(g, Tensor) for g in got): Tensor.realize(*got)   # what they share is computed once
    for g, w in zip(got, want): same(g, w, exact)
    return
  assert isinstance(got, Tensor), got
  w = np.asarray(want)
  assert got.shape == w.shape, (got.shape, w.shape)
  defaults = {"int64": ("int64", "int32"), "uint64": ("uint64", "uint32"), "float64": ("float64", "float32")}
  assert got.dtype.name in defaults.get(w.dtype.name, (w.dtype.name,)), (got.dtype, w.dtype)
  g = got.numpy()
  if w.dtype.kind in "biu": np.testing.assert_array_equal(g, w)
  else:
    rtol, atol = (2e-5, 1e-6) if g.dtype.itemsize == 4 else (1e-12, 1e-13)
    np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)


def both(name: str, *args: Any, **kwargs: Any) -> None:
  """The function of both namespaces on the same arrays. Where the reference refuses, ours may."""
  def made(space: types.ModuleType, x: Any) -> Any:
    if isinstance(x, (np.ndarray, np.generic)): return Tensor(x) if space is xp else strict.asarray(x)
    return [made(space, i) for i in x] if isinstance(x, list) else x
  with np.errstate(all="ignore"):
    try: want = getattr(strict, name)(*[made(strict, a) for a in args], **{k: made(strict, v) for k, v in kwargs.items()})
    except Exception: want = None
  try: got = getattr(xp, name)(*[made(xp, a) for a in args], **{k: made(xp, v) for k, v in kwargs.items()})
  except NtgradError:
    if want is not None: raise
    return
  if want is not None: same(got, want)


ONE = {
  "f": "acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 reciprocal sin sinh sqrt tan tanh signbit",
  "fi": "abs ceil floor round trunc negative positive sign square isfinite isinf isnan",
  "i": "bitwise_invert", "b": "bitwise_invert logical_not",
  "fib": "all any count_nonzero sort argsort unique_values matrix_transpose zeros_like ones_like tril triu flip nonzero argmax "
         "argmin"}
TWO = {
  "f": "atan2 copysign divide hypot logaddexp nextafter",
  "fi": "add subtract multiply floor_divide remainder pow maximum minimum less less_equal greater greater_equal",
  "fib": "equal not_equal isin", "ib": "bitwise_and bitwise_or bitwise_xor", "b": "logical_and logical_or logical_xor"}
CASES_ONE = [(kinds, n) for kinds, names in ONE.items() for n in names.split()]
CASES_TWO = [(kinds, n) for kinds, names in TWO.items() for n in names.split()]


@pytest.mark.parametrize("kinds, name", long_half(CASES_ONE), ids=lambda x: x)
@given(data=st.data())
def test_functions_of_one(kinds: str, name: str, data: Any) -> None:
  x = data.draw(arrays(kinds))
  if name not in ("sort", "argsort") or x.ndim: both(name, x)   # these have an axis, the last one


@pytest.mark.parametrize("kinds, name", long_half(CASES_TWO), ids=lambda x: x)
@given(data=st.data())
def test_functions_of_two(kinds: str, name: str, data: Any) -> None:
  a, b = data.draw(pairs(kinds))
  if name in ("floor_divide", "remainder") and a.dtype.kind != "f": b = np.where(b == 0, 1, b).astype(b.dtype)
  if name in ("floor_divide", "remainder"):
    a, b = [np.nan_to_num(x, posinf=3, neginf=-3) for x in (a, b)]
    b = b + (b == 0)
  if name == "pow" and a.dtype.kind == "i": b = abs(b % 4)
  both(name, a, b)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "all", "any", "std", "var"])
@given(data=st.data())
def test_reductions(name: str, data: Any) -> None:
  x = data.draw(arrays("f" if name in ("mean", "std", "var") else "fib" if name in ("all", "any") else "fi"))
  if name in ("sum", "prod", "mean", "std", "var") and x.dtype.kind == "f": x = np.nan_to_num(x, posinf=3, neginf=-2)
  axes = st.none() | st.integers(-x.ndim, x.ndim - 1) if x.ndim else st.none()
  both(name, x, axis=data.draw(axes), keepdims=data.draw(st.booleans()))


@pytest.mark.parametrize(
  "name", ["cumulative_sum", "cumulative_prod", "sort", "argsort", "argmax", "argmin", "diff", "unstack", "flip"])
@given(data=st.data())
def test_along_an_axis(name: str, data: Any) -> None:
  x = data.draw(arrays("fi", st.lists(st.integers(1, 4), min_size=1, max_size=3)))
  if name in ("cumulative_sum", "cumulative_prod", "diff"): x = np.nan_to_num(x, posinf=3, neginf=-2)
  options: dict[str, Any] = {"axis": data.draw(st.integers(-x.ndim, x.ndim - 1))}
  if name in ("sort", "argsort"): options["descending"] = data.draw(st.booleans())
  if name.startswith("cumulative"): options["include_initial"] = data.draw(st.booleans())
  both(name, x, **options)


@pytest.mark.parametrize("name", ["unique_all", "unique_counts", "unique_inverse"])
@given(data=st.data())
def test_sets(name: str, data: Any) -> None:
  x = np.nan_to_num(data.draw(arrays("fi")))
  got, want = getattr(xp, name)(Tensor(x)), getattr(strict, name)(strict.asarray(x))
  same(tuple(got), tuple(want))
  assert got._fields == want._fields


def some(draw: Callable[..., Any], low: int = 1) -> np.ndarray[Any, Any]:
  return draw(arrays("fib", st.lists(st.integers(low, 4), min_size=1, max_size=3)))


@given(data=st.data())
def test_movement(data: Any) -> None:
  x, draw = some(data.draw, 0), data.draw
  axis = draw(st.integers(-x.ndim, x.ndim - 1))
  both("concat", [x, x], axis=axis)
  both("concat", [x, x], axis=None)
  both("stack", [x, x], axis=axis)
  both("expand_dims", x, axis=axis)
  both("roll", x, draw(st.integers(-5, 5)), axis=draw(st.sampled_from([axis, None])))
  both("repeat", x, draw(st.integers(0, 3)), axis=draw(st.sampled_from([axis, None])))
  both("tile", x, tuple(draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))))
  both("moveaxis", x, axis, draw(st.integers(-x.ndim, x.ndim - 1)))
  both("permute_dims", x, tuple(draw(st.permutations(range(x.ndim)))))
  both("squeeze", x, axis)
  both("reshape", x, (-1,) if x.size else (0,))
  both("broadcast_to", x, (2, *x.shape))
  both("broadcast_arrays", x, x[..., :1])
  both("tril", x, k=draw(st.integers(-3, 3)))


@given(data=st.data())
def test_indices(data: Any) -> None:
  x = some(data.draw)
  axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
  n = x.shape[axis]
  index = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=5)), np.int64)
  both("take", x, index, axis=axis)
  both("take_along_axis", x, np.argsort(x, axis=axis), axis=axis)
  both("where", x.astype(bool), x, x[..., :1])
  line = np.sort(np.nan_to_num(data.draw(arrays("f", st.just([6])))))
  wanted = np.nan_to_num(data.draw(arrays("f", st.just([2, 3])))).astype(line.dtype)
  both("searchsorted", line, wanted, side=data.draw(st.sampled_from(["left", "right"])))


@given(data=st.data())
def test_products(data: Any) -> None:
  n, k, m = [data.draw(st.integers(0, 4)) for _ in range(3)]
  a = np.nan_to_num(data.draw(arrays("fi", st.just([2, n, k]))), posinf=3, neginf=-2)
  b = np.nan_to_num(data.draw(arrays("fi", st.just([k, m]))), posinf=3, neginf=-2).astype(a.dtype)
  both("matmul", a, b)
  both("tensordot", a, b, axes=1)
  both("tensordot", a, b, axes=((2,), (0,)))
  both("vecdot", a, a[:1])
  both("matmul", b[:, 0] if m else np.zeros(k, b.dtype), b)


@given(data=st.data())
def test_creation(data: Any) -> None:
  start, stop, step = [data.draw(st.integers(-4, 9)) for _ in range(3)]
  both("arange", start, stop, step or 1)
  both("linspace", float(start), float(stop), data.draw(st.integers(0, 7)), endpoint=data.draw(st.booleans()))
  both("eye", abs(start), abs(stop), k=step)
  for name in ("zeros", "ones"): both(name, (abs(start), 2), dtype=None)
  both("full", (2, abs(stop)), data.draw(st.sampled_from([1, 2.5, True])))
  both("meshgrid", np.arange(abs(start)), np.arange(abs(stop)), indexing=data.draw(st.sampled_from(["xy", "ij"])))


@given(x=arrays("fib"), to=st.sampled_from(INTS + FLOATS))
def test_dtypes(x: np.ndarray[Any, Any], to: str) -> None:
  assert xp.can_cast(dtypes.of(x.dtype), to) == strict.can_cast(getattr(strict, x.dtype.name), getattr(strict, to)) or \
    not promotes(x.dtype, np.dtype(to))
  if promotes(x.dtype, np.dtype(to)):
    assert xp.result_type(Tensor(x), dtypes.of(to)).name == np.result_type(x.dtype, np.dtype(to)).name
  if x.dtype.kind != "f": same(xp.astype(Tensor(x), to), x.astype(to))
  for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric", ("bool", "integral")):
    assert xp.isdtype(to, kind) == strict.isdtype(getattr(strict, to), kind)


@pytest.mark.parametrize("kinds, name", [*CASES_TWO, ("fib", "where"), ("fib", "concat"), ("fi", "clip"), ("fib", "result_type")])
def test_arrays_without_dimensions_promote_as_others(kinds: str, name: str) -> None:
  every = [n for k in kinds for n in {"f": FLOATS, "i": INTS, "b": ("bool",)}[k]]
  for a, b in [(a, b) for a in every for b in every if promotes(np.dtype(a), np.dtype(b))]:
    x, y = xp.ones((2,), dtype=a), xp.ones((), dtype=b)
    if name == "concat": got = xp.concat([x, y], axis=None)
    elif name == "where": got = xp.where(xp.ones((2,), dtype="bool"), x, y)
    elif name == "clip": got = xp.clip(x, min=y)
    else: got = getattr(xp, name)(x, y)
    d = got if name == "result_type" else got.dtype
    want = np.result_type(np.dtype(a), np.dtype(b)).name
    if name == "clip": want = a
    elif name == "isin" or "equal" in name or name in ("less", "greater"): want = "bool"
    assert d.name == want, (a, b)


def test_the_namespace_of_a_tensor() -> None:
  x = Tensor([1.0, 2.0])
  assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2022.12") is xp
  with pytest.raises(NtgradError): x.__array_namespace__(api_version="2099.12")
  assert x.size == 2 and x.to_device(x.device).tolist() == [1.0, 2.0] and "float32" in xp.__array_namespace_info__().dtypes()
  assert xp.finfo(xp.float32).bits == 32 and xp.iinfo(xp.int8).min == -128
