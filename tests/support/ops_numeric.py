"""The table of operations, continued: functions of elements, reductions beside sums."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from . import reference as R
from .ops import Array, E, S, both, rows

_inverse = np.vectorize(
  lambda x: NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2) if abs(x) < 1 else x * math.inf, otypes=[float]
)
_lgamma = np.vectorize(math.lgamma, otypes=[float])
_erfc = np.vectorize(math.erfc, otypes=[float])


def digamma(x: Array) -> Array:
  """Steps up to where the series of the logarithm holds."""
  out = np.zeros(x.shape)
  for _ in range(10):
    out, x = out - 1 / x, x + 1
  return (
    out + np.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6) + 1 / (240 * x**8) - 1 / (132 * x**10)
  )


def one(*names: str, **changes: Any) -> list[tuple[Any, ...]]:
  """Functions whose names numpy has too."""
  other = {name: "arc" + name[1:] for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")}
  return [(n, lambda a, n=n: getattr(a, n)(), getattr(np, other.get(n, n)), changes) for n in names]


# ---- functions of one value
rows(
  "formulas",
  (E, "any"),
  *one("expm1", "atan", "asinh", "sinc", "deg2rad", "rad2deg"),
  *[
    ("erfc", lambda a: a.erfc(), _erfc, {"tol": 8}),
    ("softmin", lambda a: a.softmin(1), lambda a: R.softmax(-a)),
    ("tanhshrink", lambda a: a.tanhshrink(), lambda a: a - np.tanh(a)),
    ("normalize", lambda a: a.normalize(), lambda a: a / np.sqrt((a * a).sum(1, keepdims=True))),
    ("normalize 1", lambda a: a.normalize(1, 0), lambda a: a / np.abs(a).sum(0, keepdims=True)),
    ("glu", lambda a: a.glu(), lambda a: a[:, :20] * R.sigmoid(a[:, 20:]), {"sizes": False}),
    ("rrelu", lambda a: a.rrelu(0.25, 0.75), lambda a: np.where(a < 0, a / 2, a)),
  ],
  tol=8,
  composed=True,
)
rows(
  "formulas",
  (E, "unit"),
  *one("asin", "acos", "atanh"),
  *[("erfinv", lambda a: a.erfinv(), _inverse, {"tol": 16})],
  tol=8,
  composed=True,
)
rows(
  "formulas",
  (E, "pos"),
  *one("log1p"),
  *[
    ("acosh", lambda a: (a + 1).acosh(), lambda a: np.arccosh(a + 1)),
    ("lgamma", lambda a: a.lgamma(), _lgamma, {"tol": 16, "special": False}),
    ("digamma", lambda a: a.digamma(), digamma, {"tol": 16, "special": False}),
  ],
  tol=8,
  composed=True,
)
rows(
  "formulas",
  (E, "prob"),
  ("logit", lambda a: a.logit(), lambda a: np.log(a) - np.log1p(-a)),
  ("logit eps", lambda a: a.logit(0.2), lambda a: np.log(np.clip(a, 0.2, 0.8) / (1 - np.clip(a, 0.2, 0.8)))),
  tol=8,
  composed=True,
)
rows(
  "formulas",
  (E, "few"),
  ("log1p of ints", lambda a: a.abs().log1p(), lambda a: np.log1p(np.abs(a.astype(np.float64)))),
  ("atan of ints", lambda a: a.atan(), lambda a: np.arctan(a.astype(np.float64))),
  kinds="iub",
  grad=False,
  out="float",
  tol=8,
  composed=True,
)
rows("signs", (E, "special"), ("signbit", lambda a: a.signbit(), np.signbit), grad=False, out="bool", composed=True)
rows(
  "signs",
  (E, "special"),
  ("nan_to_num", lambda a: a.nan_to_num(1.0, 2.0, 3.0), lambda a: np.nan_to_num(a, True, 1.0, 2.0, 3.0)),
  ("copysign", lambda a: a.flip(1).copysign(a), lambda a: np.copysign(a[:, ::-1], a)),
  grad=False,
  tol=0,
  composed=True,
)
rows(
  "signs",
  (E, "special"),
  *[
    ("isinf of plus", lambda a: a.isinf(detect_negative=False), np.isposinf),
    ("isinf of minus", lambda a: a.isinf(detect_positive=False), np.isneginf),
  ],
  grad=False,
  out="bool",
  composed=True,
)
rows(
  "pieces of numbers",
  (E, "away"),
  *[
    ("frac", lambda a: a.frac(), lambda a: a - np.trunc(a)),
    ("threshold", lambda a: a.threshold(1, -2), lambda a: np.where(a > 1, a, -2)),
    ("hardshrink", lambda a: a.hardshrink(1), lambda a: np.where(np.abs(a) > 1, a, 0)),
    ("softshrink", lambda a: a.softshrink(1), lambda a: np.sign(a) * np.maximum(np.abs(a) - 1, 0)),
    ("clamp_min", lambda a: a.clamp_min(1), lambda a: np.maximum(a, 1)),
    ("clamp_max", lambda a: a.clamp_max(a * 0 + 1), lambda a: np.minimum(a, 1)),
  ],
  tol=4,
  composed=True,
)

# ---- functions of two values
rows(
  "pairs",
  both("any"),
  *[
    ("atan2", lambda a, b: a.atan2(b), np.arctan2),
    ("hypot", lambda a, b: a.hypot(b), np.hypot),
    ("logaddexp", lambda a, b: a.logaddexp(b), np.logaddexp),
    ("logaddexp2", lambda a, b: a.logaddexp2(b), np.logaddexp2),
    ("copysign", lambda a, b: a.copysign(b), np.copysign),
    ("hypot of a number", lambda a, b: a.hypot(2), lambda a, b: np.hypot(a, 2)),
    ("atan2 broadcast", lambda a, b: a.atan2(b), np.arctan2, {"inputs": (((3, 1), "any"), ((40,), "any"))}),
    ("lerp", lambda a, b: a.lerp(b, b), lambda a, b: a + (b - a) * b),
    ("add alpha", lambda a, b: a.add(b, alpha=0.5), lambda a, b: a + b / 2),
    ("sub alpha", lambda a, b: a.sub(b, alpha=3), lambda a, b: a - 3 * b),
    ("addcmul", lambda a, b: a.addcmul(a, b, value=2), lambda a, b: a + 2 * a * b),
    (
      "prelu",
      lambda a, b: a.prelu(b),
      lambda a, b: np.where(a > 0, a, a * b[:, None]),
      {"inputs": (((3, 5, 4), "any"), ((5,), "any"))},
    ),
    ("prelu of one", lambda a, b: a.prelu(b), lambda a, b: np.where(a > 0, a, a * b), {"inputs": ((E, "any"), ((1,), "any"))}),
  ],
  tol=8,
  composed=True,
)
rows(
  "pairs",
  both("any", "nonzero"),
  *[
    ("addcdiv", lambda a, b: a.addcdiv(a, b, value=2), lambda a, b: a + 2 * a / b),
    ("xlogy", lambda a, b: a.xlogy(b.abs()), lambda a, b: np.where((a == 0) & ~np.isnan(b), 0, a * np.log(np.abs(b)))),
  ],
  tol=8,
  composed=True,
)
rows(
  "pairs",
  both("away", "two"),
  *[("fmod", lambda a, b: a.fmod(b), np.fmod), ("remainder", lambda a, b: a.remainder(b), np.remainder)],
  tol=4,
  composed=True,
)
rows(
  "pairs",
  both("special"),
  ("fmax", lambda a, b: a.fmax(b), np.fmax),
  ("fmin", lambda a, b: a.fmin(b), np.fmin),
  ("nextafter", lambda a, b: a.nextafter(b).nextafter(a), lambda a, b: np.where(np.isnan(b), b, a), {"tol": 0}),
  ("nextafter up", lambda a, b: a.nextafter(b) > a, lambda a, b: b > a, {"tol": 0, "out": "bool"}),
  ("ldexp", lambda a, b: a.ldexp(b), lambda a, b: a * 2.0**b),
  grad=False,
  tol=4,
  composed=True,
)
rows(
  "division",
  both("any", "nonzero"),
  *[
    ("fmod", lambda a, b: a.fmod(b), np.fmod),
    ("remainder", lambda a, b: a.remainder(b), np.remainder),
    ("div floor", lambda a, b: a.div(b, rounding_mode="floor"), np.floor_divide),
    ("div trunc", lambda a, b: a.div(b, rounding_mode="trunc"), lambda a, b: np.trunc(a / b).astype(a.dtype)),
    ("div trunc by a number", lambda a, b: a.div(3, rounding_mode="trunc"), lambda a, b: np.trunc(a / 3).astype(a.dtype)),
  ],
  kinds="fiu",
  grad=False,
  composed=True,
  special=False,
)
rows(
  "names",
  both("few"),
  *[
    ("gt", lambda a, b: a.gt(b), np.greater),
    ("lt", lambda a, b: a.lt(b), np.less),
    ("ge", lambda a, b: a.ge(b), np.greater_equal),
    ("le", lambda a, b: a.le(b), np.less_equal),
    ("and", lambda a, b: a.logical_and(b), np.logical_and),
    ("or", lambda a, b: a.logical_or(b), np.logical_or),
    ("xor", lambda a, b: a.logical_xor(b), np.logical_xor),
    ("isclose", lambda a, b: a.isclose(b, 0.5, 0.25), lambda a, b: np.isclose(a, b, 0.5, 0.25)),
  ],
  kinds="fiub",
  grad=False,
  out="bool",
  composed=True,
)
rows(
  "names",
  both("few"),
  ("heaviside", lambda a, b: a.heaviside(b), lambda a, b: np.where(a == 0, b, a > 0)),
  kinds="fiu",
  grad=False,
  tol=0,
  composed=True,
)
rows(
  "products and sums",
  (((3, 4), "any"), ((3, 5), "any"), ((5, 4), "any")),
  *[
    ("addmm", lambda a, b, c: a.addmm(b, c, beta=2, alpha=0.5), lambda a, b, c: 2 * a + 0.5 * (b @ c)),
    ("addmm of zero", lambda a, b, c: a.addmm(b, c, beta=0), lambda a, b, c: b @ c + 0 * a, {"special": False}),
    ("addmv", lambda a, b, c: a[:, 0].addmv(b, c[:, 0]), lambda a, b, c: a[:, 0] + b @ c[:, 0], {"sizes": False}),
    ("baddbmm", lambda a, b, c: a.baddbmm(b.unsqueeze(0), c.unsqueeze(0)), lambda a, b, c: (a + b @ c)[None]),
  ],
  tol=32,
  composed=True,
)

# ---- reductions
rows(
  "statistics",
  (S, "distinct"),
  *[
    ("amax", lambda a: a.amax(-1), lambda a: a.max(-1)),
    ("amin", lambda a: a.amin((0, 1)), lambda a: a.min()),
    ("max of a dim", lambda a: a.max(1).values, lambda a: a.max(1)),
    ("min of a dim", lambda a: a.min(0, True)[0], lambda a: a.min(0, keepdims=True)),
    ("aminmax", lambda a: a.aminmax(dim=0, keepdim=True), lambda a: (a.min(0, keepdims=True), a.max(0, keepdims=True))),
    ("cummax", lambda a: a.cummax(-1)[0], lambda a: np.maximum.accumulate(a, -1)),
    ("cummin", lambda a: a.cummin(0)[0], lambda a: np.minimum.accumulate(a, 0)),
  ],
  kinds="fiub",
  tol=0,
  composed=True,
)


def where_best(a: Array, axis: int, best: Any) -> Array:
  """Of each element the last place up to it that has the best value."""
  at = np.arange(a.shape[axis]).reshape((-1,) + (1,) * (a.ndim - axis - 1))
  return np.maximum.accumulate(np.where((a == best.accumulate(a, axis)) | (a != a), at, 0), axis)


rows(
  "statistics",
  (S, "few"),
  *[
    ("cummax where", lambda a: a.cummax(1)[1], lambda a: where_best(a, 1, np.maximum)),
    ("cummin where", lambda a: a.cummin(0)[1], lambda a: where_best(a, 0, np.minimum)),
    ("max where", lambda a: a.max(-1).indices, lambda a: a.argmax(-1)),
    ("min where", lambda a: a.min(dim=0)[1], lambda a: a.argmin(0)),
    ("count_nonzero", lambda a: a.count_nonzero(1), lambda a: np.count_nonzero(a, 1), {"out": "int64"}),
  ],
  kinds="fiub",
  grad=False,
  out="int32",
  composed=True,
)
rows(
  "statistics",
  (S, "any"),
  *[
    ("trace", lambda a: a.trace(), lambda a: np.trace(a), {"out": "sum"}),
    ("diff", lambda a: a.diff(), lambda a: np.diff(a), {"out": "same"}),
    ("diff twice", lambda a: a.diff(2, 0), lambda a: np.diff(a, 2, 0)),
    (
      "diff between",
      lambda a: a.diff(prepend=a, append=a[:, :1]),
      lambda a: np.diff(a, prepend=a, append=a[:, :1]),
      {"sizes": False},
    ),
  ],
  kinds="fiu",
  tol=8,
  composed=True,
)
rows(
  "statistics",
  (S, "any"),
  *[
    ("cov", lambda a: a.cov(), np.cov, {"sizes": False}),
    ("cov 0", lambda a: a[0].cov(correction=0), lambda a: np.cov(a[0], ddof=0), {"sizes": False}),
    ("corrcoef", lambda a: a.corrcoef(), np.corrcoef, {"sizes": False}),
    ("trapezoid", lambda a: a.trapezoid(dx=0.5), lambda a: (a[:, 1:] + a[:, :-1]).sum(1) / 4),
    ("trapezoid of points", lambda a: a.trapezoid(a, dim=0), lambda a: ((a[1:] + a[:-1]) * np.diff(a, axis=0)).sum(0) / 2),
    ("cumulative_trapezoid", lambda a: a.cumulative_trapezoid(), lambda a: (a[:, 1:] + a[:, :-1]).cumsum(1) / 2),
    ("dist", lambda a: a.dist(a * 3, 3), lambda a: (np.abs(2 * a) ** 3).sum() ** (1 / 3), {"special": False}),
    ("nanmean", lambda a: a.nanmean(1), lambda a: a.mean(1), {"special": False}),
    ("logcumsumexp", lambda a: a.logcumsumexp(1), lambda a: np.logaddexp.accumulate(a, 1)),
    (
      "logcumsumexp of far ones",
      lambda a: (a * 300).logcumsumexp(0),
      lambda a: np.logaddexp.accumulate(a * 300, 0),
      {"tol": 160, "grad": False},
    ),
    (
      "logcumsumexp of long rows",
      lambda a: a.logcumsumexp(-1),
      lambda a: np.logaddexp.accumulate(a, -1),
      {"inputs": (((2, 75), "any"),)},
    ),
  ],
  tol=32,
  composed=True,
)
rows(
  "statistics",
  (((5, 7), "any"), ((7,), "class:4"), ((7,), "pos")),
  *[("cov weights", lambda a, f, w: a.cov(fweights=f + 1, aweights=w), lambda a, f, w: np.cov(a, fweights=f + 1, aweights=w))],
  tol=64,
  grad=False,
  sizes=False,
  composed=True,
)
rows(
  "statistics",
  (S, "nonzero"),
  ("cumprod", lambda a: a.cumprod(1), lambda a: a.cumprod(1)),
  kinds="fiu",
  out="sum",
  tol=8,
  composed=True,
)
rows(
  "statistics", (S, "few"), ("cumprod of zeros", lambda a: a.cumprod(0), lambda a: a.cumprod(0)), kinds="f", tol=8, composed=True
)
rows("statistics", (S, "special"), ("nansum", lambda a: a.nansum(1), lambda a: np.nansum(a, 1)), grad=False, tol=8, composed=True)
