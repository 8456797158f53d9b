"""Functions of special values against numpy, to the sign of a zero: zeros, infinities, NaN, the least and the greatest
numbers."""
from __future__ import annotations

from typing import Any, Callable

import ml_dtypes
import numpy as np
import pytest

from ntgrad import Tensor, dtypes
from ntgrad.codegen.ir.dtype import DType, to_narrow
from support.devices import DEVICES, missing

Array = np.ndarray[Any, Any]
FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
EXACT = frozenset(
  {
    "neg",
    "abs",
    "sign",
    "floor",
    "ceil",
    "trunc",
    "round",
    "relu",
    "square",
    "isnan",
    "isinf",
    "isfinite",
    "relu6",
    "hardtanh",
    "sqrt",
  }
)


@pytest.fixture(autouse=True)
def device_exists(device: str) -> None:
  if missing(device): pytest.skip(missing(device))


def specials(d: DType, device: str) -> Array:
  """Numbers at which functions go wrong. On CUDA without denormals: libdevice's functions take them for zeros
  (docs/numbers.md)."""
  info: Any = ml_dtypes.finfo(d.np)
  some = [0.0, 1.0, 1e-4, 0.1, 0.49, 0.5, 1.5, 2.5, 3.0, 7.0, 20.0, 89.0, 90.0, 300.0, 30000.0, np.inf]
  some += [float(info.tiny), float(info.max), *([] if device == "CUDA" else [float(info.smallest_subnormal)])]
  return np.array([s * x for x in some for s in (1, -1)] + [np.nan]).astype(d.np)


def rounded(x: Any, d: DType) -> Array:
  x = np.asarray(x)
  return x if x.dtype.kind == "b" else to_narrow(x, d) if d.itemsize < 4 else x.astype(d.np)


def alike(got: Array, want: Array, ulps: float) -> Array:
  """Equal in value and sign of zero, or within ``ulps`` and neither zero nor special."""
  if got.dtype.kind == "b": return got == want
  info: Any = ml_dtypes.finfo(got.dtype)
  g, w = got.astype(np.float64), want.astype(np.float64)
  with np.errstate(all="ignore"):
    near = np.abs(g - w) <= ulps * np.maximum(float(info.eps) * np.abs(w), float(info.tiny) if ulps else 0)
  return ((g == w) & (np.signbit(g) == np.signbit(w))) | (np.isnan(g) & np.isnan(w)) | (near & (w != 0))


ONE: dict[str, Callable[[Array], Any]] = {
  "neg": np.negative,
  "abs": np.abs,
  "sign": np.sign,
  "floor": np.floor,
  "ceil": np.ceil,
  "trunc": np.trunc,
  "round": np.rint,
  "square": np.square,
  "sqrt": np.sqrt,
  "rsqrt": lambda x: 1 / np.sqrt(x),
  "reciprocal": np.reciprocal,
  "exp": np.exp,
  "exp2": np.exp2,
  "log": np.log,
  "log2": np.log2,
  "log10": np.log10,
  "sin": np.sin,
  "cos": np.cos,
  "tan": np.tan,
  "tanh": np.tanh,
  "sinh": np.sinh,
  "cosh": np.cosh,
  "isnan": np.isnan,
  "isinf": np.isinf,
  "isfinite": np.isfinite,
  "relu": lambda x: np.where(x < 0, 0, x),
  "relu6": lambda x: np.where(x < 0, 0, np.where(x > 6, 6, x)),
  "hardtanh": lambda x: np.where(x < -1, -1, np.where(x > 1, 1, x)),
  "sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)),
  "softplus": lambda x: np.logaddexp(0, x),
  "logsigmoid": lambda x: -np.logaddexp(0, -x),
}
TWO: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Array, Array], Any]]] = {
  "add": (lambda a, b: a + b, np.add),
  "sub": (lambda a, b: a - b, np.subtract),
  "mul": (lambda a, b: a * b, np.multiply),
  "div": (lambda a, b: a / b, np.divide),
  "floordiv": (lambda a, b: a // b, np.floor_divide),
  "mod": (lambda a, b: a % b, np.remainder),
  "lt": (lambda a, b: a < b, np.less),
  "le": (lambda a, b: a <= b, np.less_equal),
  "eq": (lambda a, b: a == b, np.equal),
  "ne": (lambda a, b: a != b, np.not_equal),
  "pow": (lambda a, b: a**b, np.power),
  "maximum": (lambda a, b: a.maximum(b) + 0.0, np.maximum),
  "minimum": (lambda a, b: a.minimum(b) + 0.0, np.minimum),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_functions_of_one_value(device: str, dtype: DType) -> None:
  x = specials(dtype, device)
  got = {name: getattr(Tensor(x, device=device), name)() for name in ONE}
  Tensor.realize(*got.values())
  wrong = []
  for name, reference in ONE.items():
    with np.errstate(all="ignore"): want = rounded(reference(x.astype(np.float64)), dtype)
    ok = alike(got[name].numpy(), want, 0 if name in EXACT else 8 if dtype.itemsize >= 4 else 2)
    wrong += [f"{name}({x[i]}) is {got[name].numpy()[i]}, numpy has {want[i]}" for i in np.flatnonzero(~ok)]
  assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_functions_of_two_values(device: str, dtype: DType) -> None:
  v = specials(dtype, device)
  a, b = np.repeat(v, len(v)), np.tile(v, len(v))
  got = {name: fn(Tensor(a, device=device), Tensor(b, device=device)) for name, (fn, _) in TWO.items()}
  Tensor.realize(*got.values())
  wrong = []
  for name, (_, reference) in TWO.items():
    # what narrow floats are computed in; their exact results then are rounded once
    wide = [x.astype(np.float32) if dtype.itemsize < 4 and name != "pow" else x for x in (a, b)]
    if name == "pow": wide = [x.astype(np.float64) for x in wide]
    with np.errstate(all="ignore"): want = rounded(reference(*wide), dtype)
    if name in ("maximum", "minimum"): want = want + 0
    ok = alike(got[name].numpy(), want, 16 if name == "pow" else 0)
    wrong += [f"{name}({a[i]}, {b[i]}) is {got[name].numpy()[i]}, numpy has {want[i]}" for i in np.flatnonzero(~ok)]
  assert not wrong, "\n".join(wrong[:40])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
  "divisor, dividend", [(3.0, 1e8), (0.1, 1.0), (3.0, -7.0), (-3.0, 7.0), (np.inf, 5.0), (np.inf, -5.0), (2.0, -0.0)]
)
def test_float_division_by_a_number_is_pythons(device: str, divisor: float, dividend: float) -> None:
  x = Tensor(np.array([dividend] * 3), device=device)
  assert (x // divisor).tolist() == [dividend // divisor] * 3 and (x % divisor).tolist() == [dividend % divisor] * 3
  assert np.signbit((x // divisor).numpy()).all() == np.signbit(dividend // divisor)
  y = Tensor(np.array([divisor] * 3), device=device)
  assert (dividend // y).tolist() == [dividend // divisor] * 3 and (dividend % y).tolist() == [dividend % divisor] * 3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_negative_zero_as_a_number(device: str, dtype: DType) -> None:
  x = Tensor([1.0, -2.0, 3.0], dtype=dtype, device=device).realize()
  assert np.signbit((x * -0.0).numpy()).tolist() == [True, False, True]
  assert np.signbit((x > 100).where(x, -0.0).numpy()).all()
