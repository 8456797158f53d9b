"""Constructors of the tensor graph's elementwise nodes: each stores the shape and device, which it knows, on the node, so that
they are not computed again.

They do not check their arguments: nodes of one shape, and of one dtype where the function takes that."""
from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any, Callable

from .dtype import DType, Number, dtypes
from .uop import COMPARE, BinaryOps, Ops, TernaryOps, UnaryOps, UOp, interned

Shape = tuple[int, ...]
_bool, _scale, _WHERE, _ALU = dtypes.bool, dtypes.float8_e8m0, TernaryOps.WHERE, Ops.ALU   # read by each node that is made

make = interned   # a node whose shape and device are known; no CONST


@lru_cache(maxsize=4096, typed=True)
def _const(value: Number, dtype: DType, shape: Shape) -> UOp:
  u = UOp.const(dtype, value)
  u.__dict__["shape"], u.__dict__["device"] = (), None
  if not shape: return u
  ones = (1,) * len(shape)
  u = make(Ops.RESHAPE, dtype, (u,), ones, ones, None)
  return u if shape == ones else make(Ops.EXPAND, dtype, (u,), shape, shape, None)


def const(value: Number, dtype: DType, shape: Shape = ()) -> UOp:
  """A constant of a shape: CONST, RESHAPE to ones, EXPAND."""
  # the cache takes -0.0 for 0.0
  if value == 0 and dtype.kind == "f" and math.copysign(1.0, value) < 0: return _const.__wrapped__(value, dtype, shape)
  return _const(value, dtype, shape)


def const_value(u: UOp) -> Number | None:
  """The number that every element of ``u`` is known to be, or None."""
  while u.op is Ops.EXPAND or u.op is Ops.RESHAPE: u = u.src[0]
  return u.arg if u.op is Ops.CONST else None


def _float(u: UOp) -> UOp:
  """A float8_e8m0 value as float32, which arithmetic takes it as."""
  return make(Ops.CAST, dtypes.float32, (u,), None, u.shape, u.device)


def unary(fn: UnaryOps, a: UOp) -> UOp:
  """A function of one value; ISNAN gives bool."""
  if a.dtype is _scale: a = _float(a)
  return make(_ALU, _bool if fn is UnaryOps.ISNAN else a.dtype, (a,), fn, a.shape, a.device)


def binary(fn: BinaryOps, a: UOp, b: UOp) -> UOp:
  """A function of two values of one shape and dtype; comparisons give bool."""
  if a.dtype is _scale: a, b = _float(a), _float(b)
  return make(_ALU, _bool if fn in COMPARE else a.dtype, (a, b), fn, a.shape, a.device or b.device)


def like(x: UOp | Number, other: UOp | Number) -> Any:
  """A node as it is; a number as a constant of the other operand's dtype and shape."""
  return x if isinstance(x, UOp) else const(x, other.dtype, other.shape)  # type: ignore[union-attr]  # one of both is a node


def _of_two(fn: BinaryOps) -> Callable[[UOp | Number, UOp | Number], UOp]:
  """``fn`` of two nodes of one shape and dtype, or of a node and a number of its dtype."""
  def node(a: UOp | Number, b: UOp | Number) -> UOp: return binary(fn, like(a, b), like(b, a))
  return node


(add, sub, mul, div, idiv, mod, power, maximum, minimum, and_, or_, xor, shl, shr, eq, ne, lt, le) = [
  _of_two(BinaryOps[name]) for name in
  "ADD SUB MUL DIV IDIV MOD POW MAX MIN AND OR XOR SHL SHR CMPEQ CMPNE CMPLT CMPLE".split()]


neg, exp, log, sqrt, sin, cos, absolute, floor, isnan, not_ = [
  partial(unary, UnaryOps[name]) for name in "NEG EXP LOG SQRT SIN COS ABS FLOOR ISNAN NOT".split()]


def where(condition: UOp, yes: UOp | Number, no: UOp | Number) -> UOp:
  """Choose by a bool condition; all of one shape, and one of both values may be a number."""
  a, b = like(yes, no), like(no, yes)
  return make(_ALU, a.dtype, (condition, a, b), _WHERE, a.shape, condition.device or a.device or b.device)


# ---- arithmetic that folds the constants that gradients are full of
def product(a: UOp, b: UOp) -> UOp:
  """a * b; a factor of 1 is left out."""
  va, vb = const_value(a), const_value(b)
  if va is not None and vb is not None: return const(va * vb, a.dtype, a.shape)
  if va == 1: return b
  if vb == 1: return a
  return binary(BinaryOps.MUL, a, b)


def quotient(a: UOp, b: UOp) -> UOp:
  """a / b; a divisor of 1 is left out."""
  va, vb = const_value(a), const_value(b)
  if vb == 1: return a
  if va is not None and vb: return const(va / vb, a.dtype, a.shape)
  return binary(BinaryOps.DIV, a, b)


def negative(a: UOp) -> UOp:
  """-a, where -(-a) is a."""
  v = const_value(a)
  if v is not None: return const(-v, a.dtype, a.shape)
  return a.src[0] if a.arg is UnaryOps.NEG else unary(UnaryOps.NEG, a)


def scaled(a: UOp, value: float) -> UOp: return product(a, const(value, a.dtype, a.shape))   # a * value, a number


def select(mask: UOp, a: UOp) -> UOp: return where(mask, a, 0.0)


# ---- ``a + b``, ``1.0 - b``, ``a & b``
def _operator(sign: str, fn: Callable[[Any, Any], UOp]) -> None:
  setattr(UOp, f"__{sign}__", fn)
  setattr(UOp, f"__r{sign}__", lambda b, a: fn(a, b))


for _sign, _fn in (("add", add), ("sub", sub), ("mul", mul), ("truediv", div), ("floordiv", idiv), ("and", and_), ("or", or_),
                   ("xor", xor), ("lshift", shl), ("rshift", shr)): _operator(_sign, _fn)
