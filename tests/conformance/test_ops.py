"""Every operation × backend × dtype against numpy, and its gradient against finite differences of the numpy reference.

All rows of a family are realised together, so that they share programs; when that fails, each is tried alone to name the guilty.
"""
from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Callable

import ml_dtypes
import numpy as np
import pytest

from ntgrad import Tensor, config, dtypes
from ntgrad.codegen.ir.dtype import DType
from ntgrad.engine.device import get_device
from support import plain_c
from support.all_ops import COMPOSED, FAMILIES, ROWS, Row, values
from support.devices import DEVICES, missing
from support.machines import MACHINES
from support.marks import long, long_unless
from support.triton import NAME as TRITON

COPIES = ("movement", "join", "index")  # what these move is not looked at: one dtype a size, and those that are stored in another
COPIED = (dtypes.bool, dtypes.int8, dtypes.float8_e4m3, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int64)
# of what is made of other operations
FEW = (dtypes.bool, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.float32)
FORWARD = [(d, f) for d in dtypes.all for f in FAMILIES
           if any(r.family == f and r.takes(d) for r in ROWS) and (f not in COPIES or d in COPIED)
           and (f not in COMPOSED or d in FEW)]
GRADIENT = [f for f in FAMILIES if any(r.family == f and r.grad for r in ROWS)]
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def device_exists(device: str) -> Iterator[None]:
  if missing(device): pytest.skip(missing(device))
  def whole() -> int: return int(get_device("CPU").compiler.whole) if device == "CPU" else 0   # type: ignore[attr-defined]
  before = whole()
  yield
  assert whole() == before, "a kernel calls a function that backends/opencl/declared.py has not"


def inputs(row: Row, dtype: DType) -> list[Array]:
  rng = np.random.default_rng(zlib.crc32(f"{row.family} {row.name}".encode()))
  return [values(spec, dtype, rng) for spec in row.inputs]


def wide(x: Array) -> Array:
  """Floats as float64; a reference gets ints and bools as they are."""
  return x if x.dtype.kind in "iub" else x.astype(np.float64)


def several(x: Any) -> list[Any]: return list(x) if isinstance(x, (tuple, list)) else [x]


def reference(row: Row, arrays: list[Array]) -> list[Array]:
  if row.out == "sum": arrays = [a.astype(np.int64) if a.dtype.kind in "biu" and a.dtype != np.uint64 else a for a in arrays]
  with np.errstate(all="ignore"): return [np.asarray(x) for x in several(row.ref(*[wide(a) for a in arrays]))]


def together(rows: list[Row], make: Callable[[Row], list[Tensor]]) -> tuple[dict[Row, list[Array]], dict[Row, str]]:
  """What each row's tensors hold, realised in one schedule, and what went wrong with the others."""
  lazy: dict[Row, list[Tensor]] = {}
  wrong: dict[Row, str] = {}
  for row in rows:
    try: lazy[row] = make(row)
    except Exception as e: wrong[row] = f"{type(e).__name__} while building: {e}"
  try:
    every = [t for ts in lazy.values() for t in ts]
    if every: Tensor.realize(*every)
    return {row: [t.numpy() for t in ts] for row, ts in lazy.items()}, wrong
  except Exception as whole:
    got: dict[Row, list[Array]] = {}
    for row in lazy:
      try: got[row] = [t.realize().numpy() for t in make(row)]
      except Exception as e: wrong[row] = f"{type(e).__name__}: {str(e)[:600]}"
    if len(got) == len(lazy): wrong[rows[0]] = f"fails only together with others: {type(whole).__name__}: {str(whole)[:600]}"
    return got, wrong


def differs(got: Array, want: Array, tol: float, eps: float) -> str | None:
  """None, or where the worst difference is. ``tol`` in units of ``eps`` of the largest finite value."""
  if got.shape != want.shape: return f"shape {got.shape}, numpy has {want.shape}"
  if got.dtype.kind in "iub":
    want = want.astype(got.dtype)
    bad = got != want
  else:
    g, w = got.astype(np.float64), want.astype(np.float64)
    if tol == 0 or not w.size: bad = ~((g == w) | (np.isnan(g) & np.isnan(w)))
    else:
      with np.errstate(invalid="ignore"):
        size = np.abs(w)
        # a value may be off by its own rounding, or by that of what it was made from
        scale = np.maximum(size, min(1.0, float(np.max(size, where=np.isfinite(w), initial=0.0))))
        bad = ~((g == w) | (np.isnan(g) & np.isnan(w)) | (np.abs(g - w) <= tol * eps * scale))
  if not bad.any(): return None
  at = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
  return f"{int(bad.sum())} of {bad.size} differ, first at {at}: {got[at]!r}, numpy has {want[at]!r}"


def epsilon(d: DType) -> float: return float(ml_dtypes.finfo(d.np).eps) if d.kind == "f" else 0.0


def report(title: str, wrong: dict[Row, str]) -> None:
  if wrong: pytest.fail(title + "\n" + "\n".join(f"  {r.family} / {r.name}: {w}" for r, w in wrong.items()), pytrace=False)


# What is made of other operations is the same graph on every device, and that a device computes a dtype is seen of the others.
# So all of it is tried on NUMPY; in float16 on the CPU what most often is, on Triton's interpreter one of ints, one of floats.
HALVES = ("attention of groups", "losses", "normalise", "pooling")
TAKEN = {"NUMPY": FEW, "CPU": tuple(d for d in FEW if d is not dtypes.float16), TRITON: (dtypes.int32, dtypes.float32)}
WHERE = [(on, d, f) for on in DEVICES for d, f in FORWARD
         if f not in COMPOSED or d in TAKEN.get(on, FEW) or (d is dtypes.float16 and f in HALVES)]


def plain(device: str, dtype: DType, family: str) -> bool:
  """What the short run has: every dtype on the oracle, one on other devices; of what is made of others one on the oracle, and
  some on the CPU."""
  if device == "NUMPY" and family not in COMPOSED: return True
  one = next(d for d in (dtypes.float32, dtypes.int32, dtypes.bool) if any(r.family == family and r.takes(d) for r in ROWS))
  return dtype is one and (device == "NUMPY" or family not in COMPOSED or device == "CPU" and family in HALVES)


@pytest.mark.parametrize("device, dtype, family", long_unless(plain, WHERE), ids=lambda x: x if isinstance(x, str) else x.name)
def test_forward(device: str, dtype: DType, family: str) -> None: forward(device, dtype, family)


# the CPU's code for other machines than this one: every operation, and of other dtypes what is most different
ELSEWHERE = [("CPU", d, f) for d, f in FORWARD if f not in COMPOSED and (d is dtypes.float32
             or (d, f) == (dtypes.int8, "reduce") or (d in (dtypes.float64, dtypes.float16) and f in ("unary", "power")))]


@plain_c.needs_cc
@pytest.mark.parametrize("device", [plain_c.NAME])
@pytest.mark.parametrize("dtype, family", long_unless(lambda d, f: d is dtypes.float32 and f in ("unary", "binary", "reduce"), [
  (d, f) for d, f in FORWARD if f not in COMPOSED and (d is dtypes.float32 or (d, f) == (dtypes.int8, "reduce")
  or f in ("unary", "binary", "power", "where", "compare", "divide", "bits"))]),
  ids=lambda x: x if isinstance(x, str) else x.name)
def test_forward_in_plain_c(device: str, dtype: DType, family: str) -> None: forward(device, dtype, family)


@long
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("device, dtype, family", ELSEWHERE, ids=lambda x: x if isinstance(x, str) else x.name)
def test_forward_elsewhere(device: str, dtype: DType, family: str, machine: str) -> None:
  with config(**MACHINES[machine]): forward(device, dtype, family)


def forward(device: str, dtype: DType, family: str) -> None:
  """The rows of a family against numpy."""
  rows = [r for r in ROWS if r.family == family and r.takes(dtype)]
  def make(row: Row) -> list[Tensor]:
    out = several(row.fn(*[Tensor(a, device=device) for a in inputs(row, dtype)]))
    for t in out:
      if t.dtype is not row.result(dtype): raise TypeError(f"gives {t.dtype}, {row.result(dtype)} expected")
    return out
  got, wrong = together(rows, make)
  for row, arrays in got.items():
    want = reference(row, inputs(row, dtype))
    if len(want) != len(arrays): wrong[row] = f"gives {len(arrays)} results, numpy {len(want)}"
    for g, w in zip(arrays, want):
      if row.tol == 0 and dtype.kind == "f" and g.dtype.kind not in "iub": w = w.astype(g.dtype)
      bad = differs(g, w, row.tol, epsilon(row.result(dtype)))
      if bad: wrong.setdefault(row, bad)
  report(f"{family} of {dtype} on {device}", wrong)


def finite_differences(row: Row, arrays: list[Array], weights: list[Array], at: int, h: float = 1e-6) -> Array:
  """d sum(weight * ref(..)) / d input ``at``, by central differences."""
  x = arrays[at]
  out = np.zeros(x.shape)
  def total(delta: float, i: tuple[int, ...]) -> float:
    y = x.copy()
    y[i] += delta
    return sum(float((w * v).sum()) for w, v in zip(weights, reference(row, [*arrays[:at], y, *arrays[at + 1:]])))
  for i in np.ndindex(*x.shape): out[i] = (total(h, i) - total(-h, i)) / (2 * h)
  return out


_slopes: dict[str, list[tuple[int, Array]]] = {}


def slopes(row: Row) -> list[tuple[int, Array]]:
  """The gradient of each float input that matters, by finite differences; the same for every backend."""
  key = f"{row.family} {row.name}"
  if key not in _slopes:
    arrays = inputs(row, dtypes.float64)
    weights = cotangents(reference(row, arrays))
    found = [(k, finite_differences(row, arrays, weights, k)) for k, a in enumerate(arrays) if a.dtype.kind == "f"]
    _slopes[key] = [(k, g) for k, g in found if g.any()]  # asking for the gradient of what has no part in the value is an error
  return _slopes[key]


def cotangents(outs: list[Array]) -> list[Array]:
  rng = np.random.default_rng(1)
  return [rng.uniform(0.5, 1.5, np.shape(o)) for o in outs]


SLOPED = [(d, dtypes.float64 if d == "NUMPY" else dtypes.float32) for d in DEVICES if d != "TRITON"]


@pytest.mark.parametrize("family, device, dtype", long_unless(
  lambda family, device, dtype: device == "NUMPY" or family not in COMPOSED,
  [(f, *where) for where in SLOPED for f in GRADIENT]), ids=lambda x: x if isinstance(x, str) else x.name)
def test_gradient(device: str, dtype: DType, family: str) -> None:
  rows = [r for r in ROWS if r.family == family and r.grad and r.takes(dtype)]
  def make(row: Row) -> list[Tensor]:
    # two float64 inputs may be equal: each its own tensor
    arrays = [a.astype(dtype.np) if a.dtype.kind == "f" else a for a in inputs(row, dtypes.float64)]
    tensors = [Tensor(a, device=device, requires_grad=a.dtype.kind == "f" or None) for a in arrays]
    outs = several(row.fn(*tensors))
    weights = cotangents(reference(row, arrays))
    losses = [(o * Tensor(w.astype(dtype.np), device=device)).sum() for o, w in zip(outs, weights)]
    loss = losses[0] if len(losses) == 1 else sum(losses[1:], losses[0])
    needed = [k for k, _ in slopes(row)]
    return loss.gradient(*[tensors[k] for k in needed]) if needed else []
  got, wrong = together(rows, make)
  tol = 3e-6 if dtype is dtypes.float64 else 2e-4
  for row, arrays in got.items():
    for g, (k, want) in zip(arrays, slopes(row)):
      if g.dtype != dtype.np: wrong.setdefault(row, f"gradient {k} has dtype {g.dtype}")
      bad = differs(g, want, 1.0, tol * max(1.0, float(np.abs(want).max(initial=0.0))))
      if bad: wrong.setdefault(row, f"gradient of input {k}: {bad}")
  report(f"gradients of {family} in {dtype} on {device}", wrong)
