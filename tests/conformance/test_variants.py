"""Every operation in the cases that go wrong: sizes of 1 and 0, inputs that are views of other memory, NaN and infinities."""
from __future__ import annotations

from dataclasses import replace
from typing import Callable

import numpy as np
import pytest

from ntgrad import Device, Tensor, dtypes, errors
from ntgrad.codegen.ir.dtype import DType
from ntgrad.errors import NtgradError
from support.all_ops import COMPOSED, FAMILIES, ROWS, Row
from support.devices import missing
from support.marks import long_unless

from .test_ops import Array, differs, epsilon, inputs, reference, report, several, together

DEVICES = ("CPU", "NUMPY")
# what is made of other operations is the same graph on both devices, and kernels of any index are made of the others
WHERE = long_unless(
  lambda device, family: device == "NUMPY" and family not in COMPOSED,
  [(d, f) for d in DEVICES for f in FAMILIES if d == "NUMPY" or f not in COMPOSED])
FITTED = ("movement", "conv")   # rows whose arguments are for their sizes: other sizes may be refused
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])


# references of empty arrays
pytestmark = [pytest.mark.filterwarnings(f"ignore:{w}:RuntimeWarning") for w in ("Mean of empty", "Degrees of", "invalid value")]


@pytest.fixture(autouse=True)
def device_exists(device: str) -> None:
  if missing(device): pytest.skip(missing(device))


def dtype_of(row: Row) -> DType:
  """What a row is tried in: float32 where it takes floats."""
  return next(d for d in (dtypes.float32, dtypes.int32, dtypes.uint8, dtypes.bool) if row.takes(d))


def compare(rows: dict[Row, list[Array]], title: str, make: Callable[[Array], Tensor], slack: float = 32) -> None:
  """Rows with their inputs against their references. Where the reference refuses, ours may refuse too. ``slack``: sums may
  cancel."""
  refused: dict[Row, str] = {}
  wanted: dict[Row, list[Array]] = {}
  for row, arrays in rows.items():
    try: wanted[row] = reference(row, arrays)
    except Exception as e: refused[row] = f"{type(e).__name__}: {e}"
  def built(row: Row) -> list[Tensor]: return several(row.fn(*[make(a) for a in rows[row]]))
  got, wrong = together(list(wanted), built)
  for row in [r for r, w in wrong.items() if r.family in FITTED and getattr(errors, w.partition(" ")[0], None)]: del wrong[row]
  for row, arrays in got.items():
    if len(arrays) != len(wanted[row]): wrong[row] = f"gives {len(arrays)} results, numpy {len(wanted[row])}"
    for g, w in zip(arrays, wanted[row]):
      tol = row.tol * slack
      if tol == 0 and g.dtype.kind not in "iub": w = w.astype(g.dtype)
      if bad := differs(g, w, tol, epsilon(dtypes.of(g.dtype))): wrong.setdefault(row, bad)
  for row in refused:   # no other error than ours
    try:
      for t in built(row): t.numpy()
      for name in DEVICES: Device.synchronize(name)   # where an index is found to be out of range
    except NtgradError: pass
    except Exception as e: wrong[row] = f"{type(e).__name__}: {e}; numpy refuses with {refused[row]}"
  report(title, wrong)


def sizes_of(row: Row) -> set[int]: return {n for shape, _ in row.inputs for n in shape if n > 1}


@pytest.mark.parametrize("device, family", WHERE)
@pytest.mark.parametrize("size", [1, 0])
def test_sizes(device: str, family: str, size: int) -> None:
  rows: dict[Row, list[Array]] = {}
  for row in ROWS:
    if row.family != family or not row.sizes: continue
    for old in sizes_of(row):
      new = replace(row, name=f"{row.name}, {size} for {old}", inputs=tuple(
        [(tuple([size if n == old else n for n in shape]), domain) for shape, domain in row.inputs]))
      rows[new] = inputs(new, dtype_of(row))
  compare(rows, f"{family} with sizes of {size} on {device}", lambda a: Tensor(a, device=device))


def as_view(a: Array, device: str) -> Tensor:
  """The array as a view: the dimensions the other way round in memory, the first one backwards, with others in between."""
  if not a.ndim: return Tensor(a.reshape(1).repeat(3), device=device)[1]
  stored = np.repeat(np.flip(a, 0).transpose(), 2, -1)
  t = Tensor(np.ascontiguousarray(stored), device=device)[..., ::2]
  return t.permute(*range(a.ndim)[::-1]).flip(0)


@pytest.mark.parametrize("device, family", WHERE)
def test_views(device: str, family: str) -> None:
  rows = {row: inputs(row, dtype_of(row)) for row in ROWS if row.family == family}
  compare(rows, f"{family} of views on {device}", lambda a: as_view(a, device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_special_values(device: str, family: str) -> None:
  rows: dict[Row, list[Array]] = {}
  for row in ROWS:
    if row.family != family or not row.special or not row.takes(dtypes.float32): continue
    arrays = inputs(row, dtypes.float32)
    rng = np.random.default_rng(0)
    for a in arrays:
      if a.dtype.kind == "f" and a.size: a[rng.random(a.shape) < 0.15] = rng.choice(SPECIAL)
    rows[row] = arrays
  compare(rows, f"{family} of NaN and infinities on {device}", lambda a: Tensor(a, device=device))
