"""The table of operations: each row says what ``Tensor`` does and what numpy does, on which inputs and for which dtypes.

References get floats as float64, and ints and bools in their own dtype. A row's functions may give one result or a tuple.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from ntgrad import Tensor, dtypes
from ntgrad.codegen.ir.dtype import DType

from . import reference as R

Array = np.ndarray[Any, Any]
In = tuple[tuple[int, ...], str]
E = (3, 40)          # elementwise: several whole vectors of 16 and a rest
S = (4, 6)


@dataclass(frozen=True)
class Row:
  """``kinds`` of dtypes: f floats, i signed, u unsigned, b bool, 8 also fp8. ``out``: same, bool, float (ints give float32), sum,
  int32, int64, with int32 (what both have together). ``tol``: error allowed, in units of the dtype's last place of the largest
  value.
  ``composed``: made of operations that have rows of their own, and so tried in a few dtypes. ``sizes``: also with sizes of 1 and
  0; ``special``: also with NaN and infinities."""
  family: str
  name: str
  fn: Callable[..., Any]
  ref: Callable[..., Any]
  inputs: tuple[In, ...]
  kinds: str = "f"
  grad: bool = True
  out: str = "same"
  tol: float = 4
  composed: bool = False
  sizes: bool = True
  special: bool = True

  def takes(self, d: DType) -> bool: return ("8" in self.kinds) if d.kind == "f" and d.itemsize == 1 else d.kind in self.kinds

  def result(self, d: DType) -> DType:
    """The dtype that the result must have."""
    if self.out == "bool": return dtypes.bool
    if self.out in ("int32", "int64"): return dtypes.of(self.out)
    if self.out == "float": return d if d.kind == "f" else dtypes.float32
    if self.out == "sum" and d.kind != "f": return d if d is dtypes.uint64 else dtypes.int64
    if self.out == "with int32" and d.itemsize < 4: return dtypes.int32
    return d


ROWS: list[Row] = []


def rows(family: str, inputs: tuple[In, ...] | In, *table: tuple[Any, ...], **common: Any) -> None:
  """Add rows ``(name, fn, ref[, changes])`` that share inputs and settings."""
  shared: Any = (inputs,) if isinstance(inputs[1], str) else inputs
  for name, fn, ref, *changes in table:
    ROWS.append(Row(family, name, fn, ref, **{"inputs": shared, **common, **(changes[0] if changes else {})}))


# ---- elementwise, two operands

def both(domain: str, other: str | None = None) -> tuple[In, ...]: return ((E, domain), (E, other or domain))


rows("binary", both("any"), *[
  ("add", lambda a, b: a + b, lambda a, b: a + b), ("sub", lambda a, b: a - b, lambda a, b: a - b),
  ("mul", lambda a, b: a * b, lambda a, b: a * b),
  ("broadcast", lambda a, b: a + b, lambda a, b: a + b, {"inputs": (((3, 1), "any"), ((1, 40), "any"))}),
  ("broadcast rank", lambda a, b: a * b, lambda a, b: a * b, {"inputs": ((E, "any"), ((), "any"))}),
  ("scalar right", lambda a: a * 3 + 2 - 1, lambda a: a * 3 + 2 - 1, {"inputs": ((E, "any"),)}),
  ("scalar left", lambda a: 7 - a, lambda a: 7 - a, {"inputs": ((E, "any"),)})], kinds="fiu8", tol=2)
rows(
  "binary",
  both("distinct"),
  *[
    ("maximum", lambda a, b: a.maximum(b), np.maximum, {"kinds": "fiub8"}),
    ("minimum", lambda a, b: a.minimum(b), np.minimum, {"kinds": "fiub8"}),
    ("maximum scalar", lambda a: a.maximum(1), lambda a: np.maximum(a, 1), {"inputs": ((E, "away"),)}),
  ],
  kinds="fiu8",
  tol=0,
)
rows("compare", both("few"), *[
  ("lt", lambda a, b: a < b, np.less), ("le", lambda a, b: a <= b, np.less_equal), ("gt", lambda a, b: a > b, np.greater),
  ("ge", lambda a, b: a >= b, np.greater_equal), ("eq", lambda a, b: a == b, np.equal), ("ne", lambda a, b: a != b, np.not_equal),
  ("scalar", lambda a, b: (a < 2) & (2 != b), lambda a, b: (a < 2) & (b != 2))], kinds="fiub8", grad=False, out="bool")
rows("divide", both("any", "nonzero"), *[
  ("div", lambda a, b: a / b, lambda a, b: a / b, {"out": "float"}),
  ("div scalar", lambda a, b: a / 3, lambda a, b: a / 3, {"out": "float"}),
  ("reverse div", lambda a, b: 2 / b, lambda a, b: 2 / b, {"out": "float"})], kinds="fiu", tol=2)
rows("divide", both("any", "nonzero"), *[
  ("floordiv", lambda a, b: a // b, lambda a, b: a // b), ("mod", lambda a, b: a % b, lambda a, b: a % b),
  ("floordiv scalar", lambda a, b: a // 3, lambda a, b: a // 3), ("mod scalar", lambda a, b: a % 3, lambda a, b: a % 3)],
  kinds="iu", grad=False)
rows(
  "divide",
  both("away", "two"),
  *[
    ("float floordiv", lambda a, b: a // b, lambda a, b: a // b, {"grad": False}),
    ("float mod", lambda a, b: a % b, lambda a, b: a % b),
  ],
  tol=4,
)
rows(
  "power",
  both("pos", "any"),
  *[
    ("pow", lambda a, b: a**b, lambda a, b: a**b, {"tol": 64}),
    ("square", lambda a, b: a**2, lambda a, b: a**2),
    ("cube", lambda a, b: a**3, lambda a, b: a**3),
    ("inverse", lambda a, b: a**-1, lambda a, b: a**-1.0),
    ("root", lambda a, b: a**0.5, lambda a, b: a**0.5),
    ("odd power", lambda a, b: a**1.7, lambda a, b: a**1.7, {"tol": 32}),
    ("reverse pow", lambda a, b: 2**b, lambda a, b: 2.0**b, {"tol": 16}),
  ],
)
rows("power", both("few", "shift"), ("int pow", lambda a, b: a ** b, lambda a, b: a ** b), kinds="iu", grad=False)
rows(
  "bits",
  both("any"),
  *[
    ("and", lambda a, b: a & b, np.bitwise_and),
    ("or", lambda a, b: a | b, np.bitwise_or),
    ("xor", lambda a, b: a ^ b, np.bitwise_xor),
    ("not", lambda a, b: ~a, lambda a, b: ~a),
  ],
  kinds="iub",
  grad=False,
)
rows(
  "divisors",
  both("any", "any"),
  *[("gcd", lambda a, b: a.gcd(b), np.gcd), ("gcd scalar", lambda a, b: a.gcd(6), lambda a, b: np.gcd(a, np.full_like(a, 6))),
    ("lcm", lambda a, b: a.lcm(b), np.lcm)],
  kinds="iu",
  grad=False,
)
rows(
  "bits",
  both("any", "shift"),
  *[
    ("lshift", lambda a, b: a << b, np.left_shift),
    ("rshift", lambda a, b: a >> b, np.right_shift),
    ("lshift scalar", lambda a, b: a << 2, lambda a, b: a << 2),
    ("rshift scalar", lambda a, b: a >> 1, lambda a, b: a >> 1),
  ],
  kinds="iu",
  grad=False,
)
rows(
  "where",
  ((E, "bool"), (E, "any"), (E, "any")),
  *[
    ("where", lambda c, a, b: c.where(a, b), np.where),
    ("where scalar", lambda c, a, b: c.where(a, 0), lambda c, a, b: np.where(c, a, np.zeros_like(a))),
    ("masked_fill", lambda c, a, b: a.masked_fill(c, 1), lambda c, a, b: np.where(c, np.ones_like(a), a)),
    ("where row", lambda c, a, b: c.where(a, b), np.where, {"inputs": (((40,), "bool"), (E, "any"), ((3, 1), "any"))}),
  ],
  kinds="fiu8",
  tol=0,
)
rows("where", (E, "any"), ("lerp", lambda a: a.lerp(a * 2, 0.25), lambda a: a + (a * 2 - a) * 0.25, {"kinds": "f"}))

# ---- elementwise, one operand

rows("unary", (E, "any"), *[
  ("neg", lambda a: -a, np.negative, {"kinds": "fiu8"}), ("square", lambda a: a.square(), np.square, {"kinds": "fiu"}),
  ("exp", lambda a: a.exp(), np.exp), ("exp2", lambda a: a.exp2(), np.exp2), ("sin", lambda a: a.sin(), np.sin),
  ("cos", lambda a: a.cos(), np.cos), ("tanh", lambda a: a.tanh(), np.tanh), ("erf", lambda a: a.erf(), R.erf),
  ("sinh", lambda a: a.sinh(), np.sinh, {"tol": 8}), ("cosh", lambda a: a.cosh(), np.cosh, {"tol": 8}),
  ("sigmoid", lambda a: a.sigmoid(), R.sigmoid), ("logsigmoid", lambda a: a.logsigmoid(), lambda a: -R.softplus(-a), {"tol": 8}),
  ("silu", lambda a: a.silu(), lambda a: a * R.sigmoid(a)), ("gelu", lambda a: a.gelu(), R.gelu_tanh, {"tol": 8}),
  ("gelu erf", lambda a: a.gelu("none"), R.gelu, {"tol": 8}),
  ("quick_gelu", lambda a: a.quick_gelu(), lambda a: a * R.sigmoid(1.702 * a), {"tol": 8}),
  ("softplus", lambda a: a.softplus(), R.softplus, {"tol": 8}),
  ("softplus beta", lambda a: a.softplus(2.0), lambda a: R.softplus(a, 2.0), {"tol": 8}),
  ("mish", lambda a: a.mish(), lambda a: a * np.tanh(R.softplus(a)), {"tol": 16}),
  ("tan", lambda a: a.tan(), np.tan, {"inputs": ((E, "unit"),), "tol": 8})])
rows("unary", (E, "pos"), *[
  ("log", lambda a: a.log(), np.log), ("log2", lambda a: a.log2(), np.log2), ("log10", lambda a: a.log10(), np.log10),
  ("sqrt", lambda a: a.sqrt(), np.sqrt), ("rsqrt", lambda a: a.rsqrt(), lambda a: a ** -0.5),
  ("reciprocal", lambda a: a.reciprocal(), lambda a: 1 / a)])
rows(
  "pieces",
  (E, "away"),
  *[
    ("abs", lambda a: a.abs(), np.abs, {"kinds": "fi8"}),
    ("relu", lambda a: a.relu(), lambda a: np.maximum(a, 0), {"kinds": "fi"}),
    ("sign", lambda a: a.sign(), np.sign, {"kinds": "fi"}),
    ("floor", lambda a: a.floor(), np.floor),
    ("ceil", lambda a: a.ceil(), np.ceil),
    ("trunc", lambda a: a.trunc(), np.trunc),
    ("round", lambda a: (a + 0.2).round(), lambda a: np.rint(a + 0.2), {"inputs": ((E, "quarters"),)}),
    ("clamp", lambda a: a.clamp(-1, 2), lambda a: np.clip(a, -1, 2), {"kinds": "fi"}),
    ("leaky_relu", lambda a: a.leaky_relu(0.1), lambda a: np.where(a > 0, a, 0.1 * a)),
    ("elu", lambda a: a.elu(), R.elu),
    ("celu", lambda a: a.celu(2.0), lambda a: np.maximum(a, 0) + np.minimum(0, 2 * np.expm1(a / 2))),
    ("selu", lambda a: a.selu(), lambda a: 1.0507009873554805 * R.elu(a, 1.6732632423543772)),
    ("softsign", lambda a: a.softsign(), lambda a: a / (1 + np.abs(a))),
    ("relu6", lambda a: a.relu6(), lambda a: np.clip(a, 0, 6)),
    ("hardswish", lambda a: a.hardswish(), lambda a: a * np.clip(a + 3, 0, 6) / 6),
    ("hardsigmoid", lambda a: a.hardsigmoid(), lambda a: np.clip(a / 6 + 0.5, 0, 1)),
    ("hardtanh", lambda a: a.hardtanh(), lambda a: np.clip(a, -1, 1)),
  ],
  tol=8,
)
rows(
  "pieces",
  (E, "special"),
  *[
    ("isnan", lambda a: a.isnan(), np.isnan),
    ("isinf", lambda a: a.isinf(), np.isinf),
    ("isfinite", lambda a: a.isfinite(), np.isfinite),
  ],
  kinds="f",
  grad=False,
  out="bool",
)
rows(
  "pieces",
  both("special"),
  *[
    ("maximum with nan", lambda a, b: a.maximum(b), np.maximum),
    ("minimum with nan", lambda a, b: a.minimum(b), np.minimum),
    ("abs of specials", lambda a, b: a.abs(), lambda a, b: np.abs(a)),
    ("exp of specials", lambda a, b: a.exp(), lambda a, b: np.exp(a)),
    ("relu of specials", lambda a, b: a.relu(), lambda a, b: np.maximum(a, 0)),
    ("tanh of specials", lambda a, b: a.tanh(), lambda a, b: np.tanh(a)),
    ("sqrt of specials", lambda a, b: a.sqrt(), lambda a, b: np.sqrt(a)),
    ("log of specials", lambda a, b: a.log(), lambda a, b: np.log(a)),
    ("where of specials", lambda a, b: (a < b).where(a, b), lambda a, b: np.where(a < b, a, b)),
  ],
  kinds="f",
  grad=False,
)
rows("pieces", (E, "few"), ("logical_not", lambda a: a.logical_not(), np.logical_not), kinds="fiub8", grad=False, out="bool")

# ---- movement: the same elements, any dtype

A3 = (2, 3, 4)
rows(
  "movement",
  (A3, "any"),
  *[
    ("reshape", lambda a: a.reshape(4, -1), lambda a: a.reshape(4, 6)),
    ("reshape of some dims", lambda a: a.reshape(None, None, 2, -1), lambda a: a.reshape(2, 3, 2, 2)),
    ("permute", lambda a: a.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1)),
    ("transpose", lambda a: a.transpose(0, 2), lambda a: a.swapaxes(0, 2)),
    ("flip", lambda a: a.flip(0, 2), lambda a: a[::-1, :, ::-1]),
    ("expand", lambda a: a.reshape(2, 1, 3, 4).expand(2, 5, 3, 4), lambda a: np.broadcast_to(a[:, None], (2, 5, 3, 4))),
    ("pad", lambda a: a.pad(((1, 2), (0, 0), (3, 1))), lambda a: np.pad(a, ((1, 2), (0, 0), (3, 1)))),
    ("pad flat", lambda a: a.pad((1, 2)), lambda a: np.pad(a, ((0, 0), (0, 0), (1, 2)))),
    (
      "pad value",
      lambda a: a.pad(((0, 1), (1, 0), (0, 0)), value=1),
      lambda a: np.pad(a, ((0, 1), (1, 0), (0, 0)), constant_values=1),
    ),
    ("pad negative", lambda a: a.pad(((0, 0), (-1, 1), (2, -2))), lambda a: np.pad(a[:, 1:, :-2], ((0, 0), (0, 1), (2, 0)))),
    ("pad reflect", lambda a: a.pad((1, 2, 1, 0), mode="reflect"), lambda a: np.pad(a, ((0, 0), (1, 0), (1, 2)), "reflect")),
    ("pad replicate", lambda a: a.pad((1, 2), mode="replicate"), lambda a: np.pad(a, ((0, 0), (0, 0), (1, 2)), "edge")),
    ("pad circular", lambda a: a.pad((1, 2), mode="circular"), lambda a: np.pad(a, ((0, 0), (0, 0), (1, 2)), "wrap")),
    ("shrink", lambda a: a.shrink(((0, 1), None, (1, 3))), lambda a: a[:1, :, 1:3]),
    ("repeat", lambda a: a.repeat(2, 1, 3), lambda a: np.tile(a, (2, 1, 3))),
    ("repeat_interleave", lambda a: a.repeat_interleave(2, 1), lambda a: np.repeat(a, 2, 1)),
    ("unfold", lambda a: a.unfold(2, 2, 1), lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, 2)),
    ("windows", lambda a: a.windows((2, 2), (1, 2)), lambda a: R.windows(a, (2, 2), (1, 2), (1, 1))),
    ("windows dilated", lambda a: a.windows((2, 2), 1, 2), lambda a: R.windows(a, (2, 2), (1, 1), (2, 2))),
    ("flatten", lambda a: a.flatten(1), lambda a: a.reshape(2, 12)),
    ("unflatten", lambda a: a.unflatten(2, (2, 2)), lambda a: a.reshape(2, 3, 2, 2)),
    ("squeeze", lambda a: a[:1].squeeze(0).unsqueeze(-1), lambda a: a[0][..., None]),
    ("roll", lambda a: a.roll((1, -1), (0, 2)), lambda a: np.roll(a, (1, -1), (0, 2))),
    ("tril", lambda a: a.tril(1), lambda a: np.tril(a, 1)),
    ("triu", lambda a: a.triu(-1), lambda a: np.triu(a, -1)),
    ("diag", lambda a: a[0, 0].diag(), lambda a: np.diag(a[0, 0])),
    ("diagonal", lambda a: a[0, :, :3].diagonal(), lambda a: np.diagonal(a[0, :, :3])),
    (
      "chain",
      lambda a: a.permute(1, 0, 2).reshape(3, 8).flip(1).pad(((1, 1), (0, 2))).T,
      lambda a: np.pad(a.transpose(1, 0, 2).reshape(3, 8)[:, ::-1], ((1, 1), (0, 2))).T,
    ),
    ("split", lambda a: a.split([1, 3], 2), lambda a: (a[:, :, :1], a[:, :, 1:])),
    ("chunk", lambda a: a.chunk(2, 1), lambda a: (a[:, :2], a[:, 2:]), {"sizes": False}),
  ],
  kinds="fiub8",
  tol=0,
)
rows(
  "join",
  ((A3, "any"), (A3, "any")),
  *[
    ("cat", lambda a, b: a.cat(b, dim=1), lambda a, b: np.concatenate([a, b], 1)),
    ("cat last", lambda a, b: Tensor.cat(a, b[:, :, :2], a, dim=-1), lambda a, b: np.concatenate([a, b[:, :, :2], a], -1)),
    ("stack", lambda a, b: Tensor.stack(a, b, dim=2), lambda a, b: np.stack([a, b], 2)),
    ("meshgrid", lambda a, b: a[0, 0].meshgrid(b[1, 1]), lambda a, b: tuple(np.meshgrid(a[0, 0], b[1, 1], indexing="ij"))),
  ],
  kinds="fiub8",
  tol=0,
)

# ---- reductions

rows("reduce", (S, "any"), *[
  ("sum", lambda a: a.sum(), lambda a: a.sum()), ("sum axis", lambda a: a.sum(1), lambda a: a.sum(1)),
  ("sum keepdim", lambda a: a.sum(0, keepdim=True), lambda a: a.sum(0, keepdims=True)),
  ("sum two axes", lambda a: a.reshape(2, 2, 6).sum((0, 2)), lambda a: a.reshape(2, 2, 6).sum((0, 2))),
  ("cumsum", lambda a: a.cumsum(1), lambda a: a.cumsum(1)),
  ("cumsum of columns", lambda a: a.cumsum(0).flip(1), lambda a: np.flip(a.cumsum(0), 1))], kinds="fiub", out="sum", tol=4)
rows("reduce", (S, "any"), *[
  ("mean", lambda a: a.mean(1), lambda a: a.mean(1)), ("mean all", lambda a: a.mean(), lambda a: a.mean()),
  ("var", lambda a: a.var(1), lambda a: a.var(1, ddof=1)), ("std", lambda a: a.std(0, correction=0), lambda a: a.std(0)),
  ("var_mean", lambda a: a.var_mean(1), lambda a: (a.var(1, ddof=1), a.mean(1))),
  ("norm", lambda a: a.norm(axis=1), lambda a: np.sqrt((a * a).sum(1))),
  ("norm 3", lambda a: a.norm(3, 1), lambda a: (np.abs(a) ** 3).sum(1) ** (1 / 3), {"tol": 16})], tol=8)
rows(
  "reduce",
  (S, "distinct"),
  *[
    ("max", lambda a: a.max(axis=1), lambda a: a.max(axis=1)),
    ("min", lambda a: a.min(axis=0), lambda a: a.min(axis=0)),
    ("max all", lambda a: a.max(), lambda a: a.max()),
    ("max keepdim", lambda a: a.max(axis=(0, 1), keepdim=True), lambda a: a.max(axis=(0, 1), keepdims=True)),
  ],
  kinds="fiub8",
  tol=0,
)
rows("reduce", (S, "nonzero"), ("prod", lambda a: a.prod(1), lambda a: a.prod(1)), kinds="fiub", out="sum", tol=8)
rows("reduce", (S, "few"), *[
  ("argmax", lambda a: a.argmax(1), lambda a: a.argmax(1)), ("argmin", lambda a: a.argmin(0), lambda a: a.argmin(0)),
  ("argmax all", lambda a: a.argmax(), lambda a: a.argmax())], kinds="fiub", grad=False, out="int32")
rows("reduce", (S, "few"), *[
  ("any", lambda a: a.any(1), lambda a: (a != 0).any(1)),
  ("all", lambda a: a.all(0), lambda a: (a != 0).all(0))], kinds="fiub", grad=False, out="bool")
rows("reduce", (S, "bool"), ("count", lambda a: a.sum(1), lambda a: a.sum(1)), kinds="ib", grad=False, out="sum")
rows("reduce", (S, "few"), *[
  ("sort", lambda a: a.sort(1)[0], lambda a: np.sort(a, 1)),
  ("topk", lambda a: a.topk(2, 0)[0], lambda a: np.flip(np.sort(a, 0), 0)[:2], {"sizes": False})],
  kinds="fiub8", tol=0, grad=False)
rows("reduce", (S, "few"), *[
  ("argsort", lambda a: a.argsort(0), lambda a: np.argsort(a, 0, kind="stable"))], kinds="fiub", grad=False, out="int32")
rows("reduce", (S, "special"), *[
  ("sort with nan", lambda a: a.sort(1)[0], lambda a: np.sort(a, 1)),
  ("max with nan", lambda a: a.max(axis=1), lambda a: a.max(axis=1)),
  ("min with nan", lambda a: a.min(axis=1), lambda a: a.min(axis=1)),
  ("sum with nan", lambda a: a.sum(1), lambda a: a.sum(1))], kinds="f", grad=False)
rows(
  "softmax",
  (S, "any"),
  *[
    ("softmax", lambda a: a.softmax(), R.softmax),
    ("softmax axis 0", lambda a: a.softmax(0), lambda a: R.softmax(a, 0)),
    ("log_softmax", lambda a: a.log_softmax(), R.log_softmax),
    ("logsumexp", lambda a: a.logsumexp(1), lambda a: R.logsumexp(a, 1)),
    ("softmax of large", lambda a: (a * 30).softmax(), lambda a: R.softmax(a * 30), {"tol": 160}),
    ("layernorm", lambda a: a.layernorm(), R.layernorm),
    ("layernorm axes", lambda a: a.reshape(2, 2, 6).layernorm((1, 2)), lambda a: R.layernorm(a.reshape(2, 2, 6), (1, 2))),
    ("rms_norm", lambda a: a.rms_norm(), lambda a: a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-6)),
  ],
  tol=16,
)

# ---- products

rows("matmul", (((5, 7), "any"), ((7, 3), "any")), *[
  ("matmul", lambda a, b: a @ b, lambda a, b: a @ b),
  ("dot", lambda a, b: a.dot(b), lambda a, b: a @ b, {"inputs": (((9,), "any"), ((9,), "any"))}),
  ("matrix vector", lambda a, b: a @ b, lambda a, b: a @ b, {"inputs": (((5, 7), "any"), ((7,), "any"))}),
  ("vector matrix", lambda a, b: a @ b, lambda a, b: a @ b, {"inputs": (((5,), "any"), ((5, 7), "any"))}),
  ("transposed", lambda a, b: b.T @ a.T, lambda a, b: b.T @ a.T),
  ("batched", lambda a, b: a @ b, lambda a, b: a @ b, {"inputs": (((2, 3, 4), "any"), ((2, 4, 5), "any"))}),
  ("batch broadcast", lambda a, b: a @ b, lambda a, b: a @ b, {"inputs": (((2, 1, 3, 4), "any"), ((3, 4, 2), "any"))}),
  ("larger", lambda a, b: a @ b, lambda a, b: a @ b, {"inputs": (((33, 18), "any"), ((18, 35), "any")), "grad": False})],
  kinds="fiu", tol=32)
rows("matmul", (((5, 7), "any"), ((7, 3), "any"), ((3,), "any")), *[
  ("linear", lambda a, w, b: a.linear(w, b), lambda a, w, b: a @ w + b),
  ("epilogue", lambda a, w, b: ((a * 2) @ w + b).relu(), lambda a, w, b: np.maximum(a * 2 @ w + b, 0)),
  ("outer", lambda a, w, b: a[0].outer(b), lambda a, w, b: np.outer(a[0], b))], tol=32)

X, W, B = ((2, 4, 6, 5), "any"), ((6, 4, 3, 2), "any"), ((6,), "any")
rows(
  "conv",
  (X, W, B),
  *[
    ("conv2d", lambda x, w, b: x.conv2d(w, b), R.conv),
    ("stride", lambda x, w, b: x.conv2d(w, b, stride=2), lambda x, w, b: R.conv(x, w, b, stride=2)),
    ("stride pair", lambda x, w, b: x.conv2d(w, stride=(1, 2)), lambda x, w, b: R.conv(x, w, stride=(1, 2))),
    ("padding", lambda x, w, b: x.conv2d(w, b, padding=1), lambda x, w, b: R.conv(x, w, b, padding=1)),
    ("dilation", lambda x, w, b: x.conv2d(w, dilation=2), lambda x, w, b: R.conv(x, w, dilation=2)),
    (
      "all",
      lambda x, w, b: x.conv2d(w, b, stride=2, dilation=(1, 2), padding=((1, 1), (2, 2))),
      lambda x, w, b: R.conv(x, w, b, 1, 2, (1, 2), ((1, 1), (2, 2))),
    ),
    (
      "groups",
      lambda x, w, b: x.conv2d(w, b, groups=2),
      lambda x, w, b: R.conv(x, w, b, 2),
      {"inputs": (X, ((6, 2, 3, 2), "any"), B)},
    ),
    (
      "depthwise",
      lambda x, w, b: x.conv2d(w, b, groups=4, padding=1),
      lambda x, w, b: R.conv(x, w, b, 4, padding=1),
      {"inputs": (X, ((4, 1, 3, 3), "any"), ((4,), "any"))},
    ),
    (
      "1x1",
      lambda x, w, b: x.conv2d(w, b).relu(),
      lambda x, w, b: np.maximum(R.conv(x, w, b), 0),
      {"inputs": (X, ((6, 4, 1, 1), "any"), B)},
    ),
    (
      "conv1d",
      lambda x, w, b: x.conv2d(w, b, padding=1),
      lambda x, w, b: R.conv(x, w, b, padding=1),
      {"inputs": (((2, 4, 7), "any"), ((6, 4, 3), "any"), B)},
    ),
    (
      "conv3d",
      lambda x, w, b: x.conv2d(w, b),
      R.conv,
      {"inputs": (((1, 2, 4, 3, 3), "any"), ((3, 2, 2, 2, 2), "any"), ((3,), "any"))},
    ),
    (
      "transpose",
      lambda x, w, b: x.conv_transpose2d(w, b),
      lambda x, w, b: R.conv_transpose(x, w, b),
      {"inputs": (X, ((4, 6, 3, 2), "any"), B)},
    ),
    (
      "transpose stride",
      lambda x, w, b: x.conv_transpose2d(w, b, stride=2, padding=1, output_padding=1),
      lambda x, w, b: R.conv_transpose(x, w, b, 2, 1, 1),
      {"inputs": (((2, 3, 3, 4), "any"), ((3, 6, 3, 3), "any"), B)},
    ),
  ],
  tol=64,
)
P = ((2, 3, 6, 7), "distinct")
rows(
  "pool",
  P,
  *[
    ("max_pool2d", lambda x: x.max_pool2d(), lambda x: R.max_pool(x, (2, 2)), {"kinds": "fi"}),
    ("max stride", lambda x: x.max_pool2d((3, 2), stride=1), lambda x: R.max_pool(x, (3, 2), 1), {"kinds": "fi"}),
    ("max padding", lambda x: x.max_pool2d((3, 3), 2, padding=1), lambda x: R.max_pool(x, (3, 3), 2, padding=1), {"kinds": "fi"}),
    ("max dilation", lambda x: x.max_pool2d((2, 2), 1, 2), lambda x: R.max_pool(x, (2, 2), 1, 2), {"kinds": "fi"}),
    ("avg_pool2d", lambda x: x.avg_pool2d(), lambda x: R.avg_pool(x, (2, 2))),
    ("avg stride", lambda x: x.avg_pool2d((3, 3), 1), lambda x: R.avg_pool(x, (3, 3), 1)),
    ("avg padding", lambda x: x.avg_pool2d((2, 2), 2, padding=1), lambda x: R.avg_pool(x, (2, 2), 2, 1)),
    (
      "avg exclusive",
      lambda x: x.avg_pool2d((2, 2), 2, padding=1, count_include_pad=False),
      lambda x: R.avg_pool(x, (2, 2), 2, 1, False),
    ),
  ],
  tol=8,
)
Q = ((2, 5, 8), "any")
rows(
  "attention",
  (Q, Q, Q),
  *[
    ("attention", lambda q, k, v: q.scaled_dot_product_attention(k, v), R.attention),
    ("causal", lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True), lambda q, k, v: R.attention(q, k, v, True)),
  ],
  tol=16,
)
rows("norm", (((3, 4, 5), "any"), ((4,), "any"), ((4,), "any"), ((4,), "any"), ((4,), "pos")), *[
  ("batchnorm", lambda x, w, b, m, s: x.batchnorm(w, b, m, s),
   lambda x, w, b, m, s: ((x - m[:, None]) * s[:, None] * w[:, None] + b[:, None]))], tol=8)

# ---- losses and indexing

L = ((7, 5), "any")
rows("loss", (L, ((7,), "class:5")), *[
  ("cross_entropy", lambda x, y: x.cross_entropy(y), R.cross_entropy),
  ("cross_entropy none", lambda x, y: x.cross_entropy(y, "none"), lambda x, y: R.cross_entropy(x, y, reduction="none")),
  ("smoothing", lambda x, y: x.cross_entropy(y, label_smoothing=0.2), lambda x, y: R.cross_entropy(x, y, 0.2)),
  ("ignore", lambda x, y: x.cross_entropy(y, ignore_index=2), lambda x, y: R.cross_entropy(x, y, ignore=2)),
  ("sparse", lambda x, y: x.sparse_categorical_crossentropy(y), R.cross_entropy),
  ("nll", lambda x, y: x.log_softmax(1).nll_loss(y), R.cross_entropy)], tol=16)
rows("loss", (L, ((7, 5), "prob")), *[
  ("mse", lambda x, y: x.mse_loss(y), lambda x, y: ((x - y) ** 2).mean()),
  ("bce", lambda x, y: x.sigmoid().binary_crossentropy(y), R.bce_logits, {"tol": 64}),
  ("bce logits", lambda x, y: x.binary_crossentropy_logits(y), R.bce_logits)], tol=16)
I1, I2 = ((4,), "ix:5"), ((2, 4), "ix:6")
T3 = ((5, 6, 4), "any")
rows(
  "index",
  (T3, I1, I2),
  *[
    ("int", lambda a, i, j: a[2], lambda a, i, j: a[2]),
    ("negative int", lambda a, i, j: a[-1, :, -2], lambda a, i, j: a[-1, :, -2]),
    ("slices", lambda a, i, j: a[1:4, ::2, 1:], lambda a, i, j: a[1:4, ::2, 1:]),
    ("negative steps", lambda a, i, j: a[::-1, 4:0:-3], lambda a, i, j: a[::-1, 4:0:-3]),
    ("none and ellipsis", lambda a, i, j: a[..., None, 1], lambda a, i, j: a[..., None, 1]),
    ("rows", lambda a, i, j: a[i], lambda a, i, j: a[i]),
    ("columns", lambda a, i, j: a[:, j], lambda a, i, j: a[:, j]),
    ("pairs", lambda a, i, j: a[i, j], lambda a, i, j: a[i, j]),
    ("apart", lambda a, i, j: a[i, :, 1], lambda a, i, j: a[i, :, 1]),
    ("list", lambda a, i, j: a[[0, 4, -1]], lambda a, i, j: a[[0, 4, -1]]),
  ],
  kinds="fiub8",
  tol=0,
)
rows("index", (((5, 4), "any"), ((3, 4), "class:5")), *[
  ("gather", lambda a, i: a.gather(0, i), lambda a, i: np.take_along_axis(a, i.astype(np.int64), 0))], kinds="fiub8", tol=0)
rows(
  "index",
  (((5, 4), "any"), ((3, 4), "class:5"), ((3, 4), "any")),
  *[("scatter add", lambda a, i, s: a.scatter(0, i, s, reduce="add"), lambda a, i, s: R.scatter(a, 0, i, s, True))],
  kinds="fi",
  tol=8,
)
rows(
  "index",
  (((5, 4), "any"), ((3, 4), "any")),
  *[
    (
      "scatter",
      lambda a, s: a.scatter(0, Tensor([[0, 1, 2, 3], [1, 2, 3, 4], [4, 0, 1, 2]], device=a.device), s),
      lambda a, s: R.scatter(a, 0, np.array([[0, 1, 2, 3], [1, 2, 3, 4], [4, 0, 1, 2]]), s, False),
    )
  ],
  kinds="fiub",
  tol=0,
)
rows(
  "index",
  ((3, 4), "class:6"),
  ("one_hot", lambda a: a.one_hot(6), lambda a: np.eye(6, dtype=np.int32)[a]),
  kinds="i",
  grad=False,
  out="int32",
)


# ---- inputs

def values(spec: In, dtype: DType, rng: np.random.Generator) -> Array:
  """An input of the table as an array of ``dtype`` (or the dtype that its domain has)."""
  shape, domain = spec
  n = math.prod(shape)
  if domain == "bool": return rng.random(shape) < 0.5
  if domain.startswith("ix:"): return rng.integers(-int(domain[3:]), int(domain[3:]), shape).astype(np.int32)
  if domain.startswith("class:"): return rng.integers(0, int(domain[6:]), shape).astype(np.int32)
  if dtype.kind == "b": return rng.random(shape) < 0.5
  low = 0 if dtype.kind == "u" else -1
  if dtype.kind in "iu":
    if domain == "nonzero": out = rng.integers(1, 10, shape) * rng.choice([1, low or 1], shape)
    elif domain == "pos": out = rng.integers(1, 10, shape)
    elif domain == "shift": out = rng.integers(0, 7, shape)
    elif domain == "few": out = rng.integers(3 * low, 4, shape)
    elif domain == "distinct": out = rng.permutation(n).reshape(shape) % 120 + low * 60
    else: out = rng.integers(9 * low, 10, shape)
    return out.astype(dtype.np)
  if domain == "pos": x = rng.uniform(0.5, 3, shape)
  elif domain == "nonzero": x = rng.uniform(0.5, 2, shape) * rng.choice([1, -1], shape)
  elif domain == "two": x = np.full(shape, 2.0) * rng.choice([1, -1], shape)
  elif domain == "unit": x = rng.uniform(-0.9, 0.9, shape)
  elif domain == "prob": x = rng.uniform(0.05, 0.95, shape)
  elif domain == "away": x = rng.integers(-4, 4, shape) + rng.uniform(0.2, 0.8, shape)  # no function of the table bends there
  elif domain == "quarters": x = rng.integers(-4, 4, shape) + rng.choice([0.25, 0.75], shape)
  elif domain == "few": x = rng.integers(-3, 4, shape).astype(np.float64)
  elif domain == "distinct": x = (rng.permutation(n).reshape(shape) - n / 2) * (6 / max(n, 1))
  elif domain == "special":
    x = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.0, 0.5], shape, p=[0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.1, 0.2])
  else: x = rng.standard_normal(shape) * 1.5
  return np.asarray(x).astype(dtype.np)
