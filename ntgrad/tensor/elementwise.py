"""Elementwise operations of ``Tensor``: arithmetic, comparison, bits, casts and mathematical functions, with numpy's
broadcasting.

Where a number stands beside a tensor it takes part by its kind (``promotion.py``). Functions such as ``exp`` give float32 for
ints and bools."""
from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any, Callable, Self, TypeVar

import numpy as np

from ntgrad.codegen.ir import FUNCTIONS, ArgumentError, BinaryOps, DTypeError, ShapeError, UnaryOps, UOp, refusal
from ntgrad.codegen.ir.dtype import DType, acc_dtype, as_float, can_cast, dtypes
from ntgrad.core import Base
from ntgrad.graph import Operand, checked, foreign, formulas, mode, nodes as graph, operand
from ntgrad.graph.dimension_names import Names, aligned_names, fit_aligned, text
from ntgrad.graph.nodes import binary, broadcast, cast, const, detach, unary, where

from .families import member
from .promotion import broadcast_shape, common_device, common_dtype, scalar_dtype, scalar_node

Host = np.ndarray[Any, Any]   # values on the host
_SCALARS = bool, int, float
_NUMBERS = bool, int, float, np.number, np.bool_
_T = TypeVar("_T", bound="Elementwise")
_BITS, _WHOLE = (frozenset(fn for fn in BinaryOps if refusal(fn, d)) for d in (dtypes.float32, dtypes.bool))


def by_squaring(base: Any, n: int, times: Callable[[Any, Any], Any]) -> Any:
  """The product of n of what is given, n being 1 or more, with as few products as squares take."""
  out = None
  while n:
    if n & 1: out = base if out is None else times(out, base)
    n >>= 1
    if n: base = times(base, base)
  return out


def _sloped(name: str, value: UOp, *made_from: UOp) -> UOp:
  """A formula's value with the gradient that it is known to have. Whoever asks for that may ask at any tensor, also at one that
  requires none."""
  return graph.sloped(name, value, *made_from) if mode.grad else value


@cache
def info_of(d: DType) -> Any:
  """What is known of a float dtype: ``max``, the greatest finite number, ``eps``, the distance from 1 to the next, and ``nmant``,
  the bits of its fraction."""
  import ml_dtypes
  return ml_dtypes.finfo(d.np)


def _operators(fn: BinaryOps) -> tuple[Callable[[_T, Any], _T], Callable[[_T, Any], _T]]:
  """``self + other``, and ``other + self``."""
  def first(self: _T, other: Any) -> _T: return self._binary(fn, other)
  def second(self: _T, other: Any) -> _T: return self._binary(fn, other, True)
  return first, second


def _assigning(sign: str, fn: Callable[[Any, Any], Any]) -> Callable[[_T, Any], _T]:
  """``self += x``."""
  def call(self: _T, x: Any) -> _T: return self._in_place(sign, lambda: fn(self, x))
  return call


@checked
class Elementwise(Base):
  """The elementwise operations."""
  __slots__ = ()

  def _from_host(self, values: Any) -> Any:
    """A tensor of values of the host (or of another library) where this tensor is."""
    return type(self)(values, device=self.lazydata.device)

  # ---- two operands
  def _binary(self, fn: BinaryOps, x: Any, reverse: bool = False) -> Self:
    a = self.lazydata
    da = a.dtype
    if isinstance(x, Base):
      b = x.lazydata
      db = b.dtype
      name = fn.name
      if a.device != b.device: common_device(name, a, b)
      shape = a.shape
      if shape != b.shape:
        try: shape = broadcast_shape(name, shape, b.shape)
        except ShapeError:
          fit_aligned(name.lower(), (self, x))
          raise
      if da is not db:
        d = common_dtype(a, b)
        a, b = cast(a, d), cast(b, d)
      if a.shape != b.shape: a, b = broadcast(a, shape), broadcast(b, shape)
      called = None if self._names is x._names is None else aligned_names(name.lower(), (self, x))
    elif isinstance(x, _NUMBERS):
      if isinstance(x, np.generic): x = x.item()
      d = scalar_dtype(x, da)
      if d is not da: a = cast(a, d)
      b = scalar_node(fn.name, x, d, a.shape)
      x = None
    elif isinstance(x, (list, tuple, np.ndarray)) or foreign(x): return self._binary(fn, self._from_host(x), reverse)
    else: raise DTypeError(f"{fn.name}: an operand of {type(x).__name__}; operands are tensors, numbers, lists and numpy arrays")
    d = a.dtype
    if d.kind == "b":
      if fn is BinaryOps.SUB: raise DTypeError("SUB: bools cannot be subtracted; use ^ (xor), or cast them to an int dtype")
      fn = FUNCTIONS[fn].boolean or fn
      if fn in _WHOLE: a, b = cast(a, dtypes.default_int), cast(b, dtypes.default_int)
    elif d.kind == "e": a, b = cast(a, dtypes.float32), cast(b, dtypes.float32)
    elif d.kind == "f" and fn in _BITS:
      raise DTypeError(f"{fn.name}: {d.name} tensors; it takes ints and bools (cast the floats, or bitcast them for their bits)")
    node = binary(fn, b, a) if reverse else binary(fn, a, b)
    if x is None: return self._wrap(node, 3)
    return (self if x._state <= self._state else x)._wrap(node, 3, (self, x))._called(called)

  def add(self, x: Any, reverse: bool = False, *, alpha: float = 1) -> Self:
    """``self + alpha * x``."""
    return self._binary(BinaryOps.ADD, x if alpha == 1 else self._times(x, alpha), reverse)
  def sub(self, x: Any, reverse: bool = False, *, alpha: float = 1) -> Self:
    """``self - alpha * x``; bools are refused (DTypeError)."""
    return self._binary(BinaryOps.SUB, x if alpha == 1 else self._times(x, alpha), reverse)
  def _in_one_dtype(self, *others: Any) -> Any:
    """This tensor and others, in the dtype that all of them have together."""
    d = common_dtype(self.lazydata, *[t.lazydata for t in others])
    return [t if t.dtype is d else t.cast(d) for t in (self, *others)]
  def _times(self, x: Any, factor: float) -> Any:
    t: Any = x if isinstance(x, (Base, *_NUMBERS)) else operand("alpha", x, self)
    return t * factor
  mul = member(_binary, BinaryOps.MUL, "``self * x``.")
  def div(self, x: Any, reverse: bool = False, *, rounding_mode: str | None = None) -> Self:
    """``self / x``, true division: ints give float32. With ``rounding_mode`` "trunc" rounded to zero, with "floor" down: ints
    stay ints. Raises ArgumentError for another mode, and for an int that is so divided by the number 0."""
    if rounding_mode is not None: return self._rounded_quotient(x, reverse, rounding_mode)
    a = self
    if a.dtype.kind != "f" and (not isinstance(x, Base) or x.dtype.kind != "f"):
      a = a.cast(dtypes.default_float)
      if isinstance(x, Elementwise): x = x.cast(dtypes.default_float)
    return a._binary(BinaryOps.DIV, x, reverse)
  def idiv(self, x: Any, reverse: bool = False) -> Self:
    """``self / x`` rounded to zero, where ``//`` rounds down, for ints and floats. Raises ArgumentError for an int divided by the
    number 0."""
    self._not_by_zero("idiv", x, reverse)
    return self._rounded_quotient(x, reverse, "trunc")
  def _floored(self, x: Any, reverse: bool = False) -> Self:
    self._not_by_zero("floor_divide", x, reverse)
    return self._binary(BinaryOps.IDIV, x, reverse)
  def _rounded_quotient(self, x: Any, reverse: bool, mode: str) -> Self:
    if mode not in ("trunc", "floor"): raise ArgumentError(f"div: rounding_mode={mode!r}; it takes None, 'trunc' or 'floor'")
    down = self._floored(x, reverse)
    if mode == "floor": return down
    if down.dtype.kind == "f": return self.div(x, reverse).trunc()
    exact = (down * self).eq(x) if reverse else (down * x).eq(self)   # one more than down, if that is negative
    return down + ((down < 0) & ~exact).cast(down.dtype)
  def mod(self, x: Any, reverse: bool = False) -> Self:
    """``self % x`` with the sign of the divisor, for ints and floats. Raises ArgumentError for an int divided by the number 0."""
    self._not_by_zero("mod", x, reverse)
    return self._binary(BinaryOps.MOD, x, reverse)
  def _not_by_zero(self, name: str, x: Any, reverse: bool) -> None:
    if not reverse and isinstance(x, _NUMBERS) and x == 0 and scalar_dtype(x, self.dtype).kind != "f":
      raise ArgumentError(f"{name}: ints divided by 0; the divisor must not be 0")

  def pow(self, x: Any, reverse: bool = False) -> Self:
    """``self ** x``. Ints to a negative int number are refused (DTypeError)."""
    if isinstance(x, (np.number, np.bool_)): x = x.item()
    if reverse or not isinstance(x, _SCALARS): return self._binary(BinaryOps.POW, x, reverse)
    a = self.cast(scalar_dtype(x, self.dtype))
    if a.dtype.kind != "f" and x < 0:
      raise DTypeError(f"pow: ints to the power {x}; cast to a float dtype first, or use a power of at least 0")
    if x == 0: return a._without_slope(const(1, a.dtype, a.shape))
    if (isinstance(x, int) or x.is_integer()) and abs(x) <= (64 if a.dtype.kind != "f" else 4):
      return by_squaring(a if x > 0 else a.reciprocal(), abs(int(x)), lambda p, q: p._binary(BinaryOps.MUL, q))
    return a.sqrt() if x == 0.5 else a.rsqrt() if x == -0.5 else a._binary(BinaryOps.POW, x)

  def _without_slope(self, node: UOp) -> Self:
    """A value that is made from this one and does not change with it: its gradient is zeros, not missing."""
    if node.dtype.kind != "f" or self.dtype is not node.dtype: return self._detached(node)
    return self._wrap(where(const(True, dtypes.bool, node.shape), detach(node), self.lazydata))
  def _detached(self, node: UOp) -> Self:
    """A result without gradient, of this tensor's dimensions."""
    return self._from_node(node)._called(self._names)
  def _extreme_of(self, fn: BinaryOps, x: Any) -> Self:
    """MAX or MIN. For gradients a bare constant is a limit, without slope where it is reached (relu at 0); here it is a value,
    detached."""
    a = self.lazydata
    if isinstance(x, _NUMBERS):
      if isinstance(x, np.generic): x = x.item()
      d = scalar_dtype(x, a.dtype)
      if d.kind == "f": return self._wrap(binary(fn, cast(a, d), detach(scalar_node(fn.name, x, d, a.shape))))
    if not isinstance(x, Base): return self._binary(fn, x)
    pair: Any = self, x
    p, q = [t if graph.const_value(t.lazydata) is None else t._detached(detach(t.lazydata)) for t in pair]
    return p._binary(fn, q)
  maximum = member(_extreme_of, BinaryOps.MAX,
                   "The greater of both, NaN where either is NaN. Where they are equal each has half of the gradient.")
  minimum = member(_extreme_of, BinaryOps.MIN,
                   "The lesser of both, NaN where either is NaN. Where they are equal each has half of the gradient.")
  bitwise_and = member(_binary, BinaryOps.AND, "``self & x`` for ints and bools.")
  bitwise_or = member(_binary, BinaryOps.OR, "``self | x`` for ints and bools.")
  bitwise_xor = member(_binary, BinaryOps.XOR, "``self ^ x`` for ints and bools.")
  xor = bitwise_xor
  gcd = member(_binary, BinaryOps.GCD, "The greatest common divisor of ints, at least 0; 0 of two zeros.")
  def lcm(self, x: Any) -> Self:
    """The least common multiple of ints, at least 0; 0 where one of both is 0."""
    return (self._floored(self.gcd(x)) * x).abs()
  lshift = member(_binary, BinaryOps.SHL, "``self << x`` for ints: 0 where x is the width or more, or below 0.")
  rshift = member(_binary, BinaryOps.SHR,
                  "``self >> x`` for ints, arithmetic on signed ones: 0 or -1, as the sign, where x is the width or more, or "
                  "below 0.")

  def lerp(self, end: Any, weight: Any) -> Self:
    """``self + (end - self) * weight``."""
    return self + (end - self) * weight

  def where(self, yes: Any, no: Any) -> Self:
    """``yes`` where this bool tensor is true, else ``no``; all broadcast. Raises DTypeError for another condition dtype."""
    if self.dtype.kind != "b":
      raise DTypeError(f"where: a condition of {self.dtype.name}; it takes bool (compare first, e.g. x != 0)")
    a, b = self._where_pair(yes, no)
    c, u, v = self.lazydata, a.lazydata, b.lazydata
    common_device("where", c, u, v)
    if u.dtype is not v.dtype:
      d = common_dtype(u, v)
      u, v = cast(u, d), cast(v, d)
    if not c.shape == u.shape == v.shape:
      try: shape = broadcast_shape("where", c.shape, u.shape, v.shape)
      except ShapeError:
        fit_aligned("where", (self, a, b))
        raise
      c, u, v = broadcast(c, shape), broadcast(u, shape), broadcast(v, shape)
    called = None if self._names is a._names is b._names is None else aligned_names("where", (self, a, b))
    return self._wrap_many(where(c, u, v), (a, b), called)

  def _where_pair(self, yes: Any, no: Any) -> tuple[Base, Base]:
    """Both values as tensors; a number takes the other's dtype where its kind lets it."""
    make = type(self)
    if isinstance(no, Base) and not isinstance(yes, Base): return self._where_pair(no, yes)[::-1]
    if not isinstance(yes, Base): return make(yes), make(no)
    return yes, no if isinstance(no, Base) else make(no, dtype=scalar_dtype(no, yes.dtype) if isinstance(no, _SCALARS) else None)

  # ---- writing: the result goes to this tensor's memory, where all that share it see it
  def _in_place(self, name: str, make: Callable[[], Base]) -> Self:
    """Write a result of this shape and of a dtype that may be cast to this one. Raises ShapeError, DTypeError, AssignError,
    GradientError."""
    self._check_writable(name)
    result, shape, dtype = make(), self.shape, self.dtype
    if result.shape != shape:
      raise ShapeError(f"{name}: a result of shape {text(result)} does not fit into a tensor of shape {text(self)}, which is "
                       "written in place; write it without assignment (a = a + b)")
    if not can_cast(result.dtype, dtype):
      raise DTypeError(f"{name}: a result of {result.dtype.name} does not fit into a tensor of {dtype.name}, which is written in "
                       "place; cast the operand, or write it without assignment (a = a + b)")
    self._check_names(name, result)
    self._check_leaf(name)
    return self._write(name, cast(result.lazydata, dtype), result._state > 0)

  __iadd__ = _assigning("+=", operator.add)
  __isub__ = _assigning("-=", operator.sub)
  __imul__ = _assigning("*=", operator.mul)
  __itruediv__ = _assigning("/=", operator.truediv)
  __ifloordiv__ = _assigning("//=", operator.floordiv)
  __imod__ = _assigning("%=", operator.mod)
  __ipow__ = _assigning("**=", operator.pow)
  __iand__ = _assigning("&=", operator.and_)
  __ior__ = _assigning("|=", operator.or_)
  __ixor__ = _assigning("^=", operator.xor)
  __ilshift__ = _assigning("<<=", operator.lshift)
  __irshift__ = _assigning(">>=", operator.rshift)
  def add_(self, x: Any, *, alpha: float = 1) -> Self:
    """``self += alpha * x``: written in place. Raises ShapeError, DTypeError, AssignError, and GradientError for a leaf outside
    ``no_grad``."""
    return self._in_place("add_", lambda: self.add(x, alpha=alpha))
  def sub_(self, x: Any, *, alpha: float = 1) -> Self:
    """``self -= alpha * x``; see ``add_``."""
    return self._in_place("sub_", lambda: self.sub(x, alpha=alpha))
  def mul_(self, x: Any) -> Self:
    """``self *= x``; see ``add_``."""
    return self._in_place("mul_", lambda: self * x)
  def div_(self, x: Any, *, rounding_mode: str | None = None) -> Self:
    """``div``, written in place; see ``add_``."""
    return self._in_place("div_", lambda: self.div(x, rounding_mode=rounding_mode))

  # ---- operators
  __add__, __radd__ = _operators(BinaryOps.ADD)
  __sub__, __rsub__ = _operators(BinaryOps.SUB)
  __mul__, __rmul__ = _operators(BinaryOps.MUL)
  __truediv__, __floordiv__, __mod__ = div, _floored, mod
  def __rtruediv__(self, x: Any) -> Self: return self.div(x, True)
  def __rfloordiv__(self, x: Any) -> Self: return self._floored(x, True)
  def __rmod__(self, x: Any) -> Self: return self.mod(x, True)
  def __pow__(self, x: Any) -> Self: return self.pow(x)
  def __rpow__(self, x: Any) -> Self: return self.pow(x, True)
  __and__, __rand__ = _operators(BinaryOps.AND)
  __or__, __ror__ = _operators(BinaryOps.OR)
  __xor__, __rxor__ = _operators(BinaryOps.XOR)
  __lshift__, __rlshift__ = _operators(BinaryOps.SHL)
  __rshift__, __rrshift__ = _operators(BinaryOps.SHR)
  __lt__, __gt__ = _operators(BinaryOps.CMPLT)
  __le__, __ge__ = _operators(BinaryOps.CMPLE)
  def __eq__(self, x: Any) -> Self:  # type: ignore[override]
    return self._binary(BinaryOps.CMPEQ, x) if x is not None else NotImplemented   # a tensor is not None
  def __ne__(self, x: Any) -> Self:  # type: ignore[override]
    return self._binary(BinaryOps.CMPNE, x) if x is not None else NotImplemented
  __hash__ = object.__hash__
  def eq(self, x: Any) -> Self:
    """``self == x``, elementwise."""
    return self._binary(BinaryOps.CMPEQ, x)
  def ne(self, x: Any) -> Self:
    """``self != x``, elementwise."""
    return self._binary(BinaryOps.CMPNE, x)

  # ---- one operand
  def cast(self, dtype: DType | str) -> Self:
    """The values in another dtype: floats to ints truncate, anything to bool is ``!= 0``."""
    return self._wrap(cast(self.lazydata, dtype if isinstance(dtype, DType) else dtypes.of(dtype)))
  def _unary(self, fn: UnaryOps) -> Self:
    """A function of floats; ints and bools become float32 first."""
    return self._wrap(unary(fn, cast(self.lazydata, as_float(self.dtype))))
  def _times_number(self, factor: float) -> Self: return self._in_floats() * factor
  def _wide(self) -> Self: return self.cast(acc_dtype(self.dtype))   # what small floats are computed in
  def _in_floats(self) -> Self: return self if self.dtype.kind == "f" else self.cast(dtypes.default_float)

  def _rounding(self, fn: UnaryOps) -> Self:
    return self._wrap(unary(fn, self.lazydata)) if self.dtype.kind in "fe" else self._own()

  def neg(self) -> Self:
    """``-self``; bools are refused (DTypeError)."""
    if self.dtype.kind == "b": raise DTypeError("NEG: bools have no sign; use ~ (logical_not), or cast them to an int dtype")
    return self._wrap(graph.neg(self.lazydata))
  def __pos__(self) -> Self: return self._own()
  def bitwise_not(self) -> Self:
    """Every bit of ints inverted; logical not of bools."""
    if self.dtype.kind == "f": raise DTypeError(f"NOT: bits of {self.dtype.name}; it takes ints and bools")
    return self._wrap(graph.not_(self.lazydata))
  def logical_not(self) -> Self:
    """True where the value is zero."""
    return self.cast(dtypes.bool).bitwise_not()
  def abs(self) -> Self:
    """The absolute value."""
    return self._wrap(graph.absolute(self.lazydata)) if self.dtype.kind in "fi" else self._own()
  __neg__, __abs__, __invert__ = neg, abs, bitwise_not
  exp = member(_unary, UnaryOps.EXP, "e to the power of the value.")
  exp2 = member(_unary, UnaryOps.EXP2, "2 to the power of the value.")
  log = member(_unary, UnaryOps.LOG, "The natural logarithm.")
  log2 = member(_unary, UnaryOps.LOG2, "The logarithm to base 2.")
  def log10(self) -> Self:
    """The logarithm to base 10."""
    return self._unary(UnaryOps.LOG) * (1 / math.log(10))
  sqrt = member(_unary, UnaryOps.SQRT, "The square root.")
  rsqrt = member(_unary, UnaryOps.RSQRT, "1 / square root.")
  reciprocal = member(_unary, UnaryOps.RECIP, "1 / value.")
  sin = member(_unary, UnaryOps.SIN, "The sine of radians.")
  cos = member(_unary, UnaryOps.COS, "The cosine of radians.")
  tan = member(_unary, UnaryOps.TAN, "The tangent of radians.")
  tanh = member(_unary, UnaryOps.TANH, "The hyperbolic tangent.")
  def sinh(self) -> Self:
    """The hyperbolic sine."""
    small = self.abs() < 0.5   # its series; the difference of exponentials would cancel
    x: Any = small.where(self, 0.0)
    series: Any = 1.0
    for k in range(15, 1, -2): series = series * (x * x) * (1 / (k * (k - 1))) + 1.0
    up, down = self._half_exponentials()
    return small.where(x * series, (self < 0).where(down - up, up - down))
  def cosh(self) -> Self:
    """The hyperbolic cosine."""
    up, down = self._half_exponentials()
    return up + down
  def _half_exponentials(self) -> tuple[Self, Self]:
    """exp(|x|) / 2, which overflows only where sinh and cosh do, and exp(-|x|) / 2."""
    root = (self.abs() * 0.5).exp()
    return root * 0.5 * root, self.abs().neg().exp() * 0.5
  erf = member(_unary, UnaryOps.ERF, "The error function.")
  floor = member(_rounding, UnaryOps.FLOOR, "Rounded down; ints as they are.")
  ceil = member(_rounding, UnaryOps.CEIL, "Rounded up; ints as they are.")
  trunc = member(_rounding, UnaryOps.TRUNC, "Rounded to zero; ints as they are.")
  def sign(self) -> Self:
    """-1, 0 or 1 (0 also of -0.0); NaN stays."""
    if self.dtype.kind not in "fi": return self.ne(0).cast(self.dtype)
    return self._without_slope((self < 0).where(-1, (self > 0).where(1, self.abs())).lazydata)
  def isnan(self) -> Self:
    """Whether the value is NaN."""
    return self._wrap(graph.isnan(self.lazydata)) if self.dtype.kind in "fe" else self != self
  def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
    """Whether the value is inf or -inf, or only one of them."""
    if self.dtype.kind != "f" or not (detect_positive or detect_negative): return self.ne(self) & False
    if detect_positive and detect_negative: return self.abs().eq(math.inf)
    return self.eq(math.inf if detect_positive else -math.inf)
  def isfinite(self) -> Self:
    """Whether the value is neither infinite nor NaN."""
    return self.abs() < math.inf if self.dtype.kind == "f" else self == self
  def square(self) -> Self:
    """``self * self``; of bools ints, as ``** 2`` has them."""
    return self._binary(BinaryOps.MUL, self) if self.dtype.kind != "b" else self.pow(2)
  def clamp(self, min_: Any = None, max_: Any = None, *, min: Any = None, max: Any = None) -> Self:
    """Not below the least nor above the greatest value; the gradient passes where the value stays as it is, the limits included.
    NaN stays, and comes of limits that are NaN. Raises ArgumentError if neither is given, or for the number NaN."""
    out, lo, hi = self, (min if min_ is None else min_), (max if max_ is None else max_)
    if lo is hi is None: raise ArgumentError("clamp: neither a least nor a greatest value given; give one of them")
    if isinstance(lo, Base) and isinstance(hi, Base): out, lo, hi = self._in_one_dtype(lo, hi)
    if lo is not None: out = out._within("clamp", lo, True)
    return out if hi is None else out._within("clamp", hi, False)
  def _within(self, name: str, limit: Any, least: bool) -> Self:
    """This value, or the limit where it is beyond that."""
    if isinstance(limit, np.generic): limit = limit.item()
    if isinstance(limit, _SCALARS):
      if limit != limit: raise ArgumentError(f"{name}: a limit of nan; limits are numbers that values can be compared with")
      d = scalar_dtype(limit, self.dtype)
      u = cast(self.lazydata, d)
      c = scalar_node(name, limit, d, u.shape)
      return self._wrap(where(binary(BinaryOps.CMPLT, *((u, c) if least else (c, u))), c, u))
    if not isinstance(limit, Base): limit = self._from_host(limit)
    outside: Any = self < limit if least else self > limit
    return (outside | limit.isnan() if limit.dtype.kind == "f" else outside).where(limit, self)
  clip = clamp

  # ---- formulas, and the gradients that they are known to have
  def _formula(self, name: str) -> Self:
    """One of ``formulas``, of this tensor."""
    d = as_float(self.dtype)
    w = cast(cast(self.lazydata, d), acc_dtype(d))
    return self._wrap(cast(_sloped(name, getattr(formulas, name)(self._from_node(w)).lazydata, w), d))

  def _formula_of(self, name: str, other: Any) -> Self:
    """One of ``formulas``, of this tensor and another one or a number."""
    a, b, names = self._pair(name, other, True)
    p, q = [cast(u, acc_dtype(a.dtype)) for u in (a, b)]
    node = getattr(formulas, name)(self._from_node(p), self._from_node(q)).lazydata
    return self._wrap_many(cast(_sloped(name, node, p, q), a.dtype), (other,) if isinstance(other, Base) else (), names)

  def _pair(self, name: str, x: Any, floats: bool = False) -> tuple[UOp, UOp, Names | None]:
    """The nodes of both operands, broadcast and of one dtype (with ``floats`` a float one), and the names of what they give."""
    t = self._other(name, x)
    a, b = self.lazydata, t.lazydata
    common_device(name, a, b)
    try: shape = broadcast_shape(name, a.shape, b.shape)
    except ShapeError:
      fit_aligned(name, (self, t))
      raise
    d = a.dtype if a.dtype is b.dtype else common_dtype(a, b)
    if floats: d = as_float(d)
    a, b = [broadcast(cast(u, d), shape) for u in (a, b)]
    return a, b, aligned_names(name, (self, t))

  def _other(self, name: str, x: Any) -> Any:
    """An operand as a tensor; a number in the dtype that it works in with this one."""
    if isinstance(x, Base): return x
    if isinstance(x, np.generic): x = x.item()
    if not isinstance(x, _SCALARS): return operand(name, x, self)
    return self._from_node(scalar_node(name, x, scalar_dtype(x, self.dtype), ()))

  # ---- comparisons
  def _of_other(self, method: Callable[[Any, Any], Any], other: Any) -> Self: return method(self, other)
  def _before(self, fn: BinaryOps, other: Any) -> Self: return self._binary(fn, other)
  def _behind(self, fn: BinaryOps, other: Any) -> Self: return self._binary(fn, other, True)
  def _logical(self, fn: BinaryOps, other: Operand) -> Self: return self.cast(dtypes.bool)._binary(fn, other.cast(dtypes.bool))
  gt = member(_behind, BinaryOps.CMPLT, "``self > other``, elementwise.")
  lt = member(_before, BinaryOps.CMPLT, "``self < other``, elementwise.")
  ge = member(_behind, BinaryOps.CMPLE, "``self >= other``, elementwise.")
  le = member(_before, BinaryOps.CMPLE, "``self <= other``, elementwise.")
  not_equal = member(_before, BinaryOps.CMPNE, "``self != other``, elementwise.")
  greater, less, greater_equal, less_equal = gt, lt, ge, le

  logical_and = member(_logical, BinaryOps.AND, "Whether neither value is zero.")
  logical_or = member(_logical, BinaryOps.OR, "Whether one of both values is not zero.")
  logical_xor = member(_logical, BinaryOps.XOR, "Whether exactly one of both values is not zero.")

  def isclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Self:
    """Whether ``|self - other| <= atol + rtol * |other|``; infinities are close to equal ones only, NaN to NaN if ``equal_nan``.
    Raises ArgumentError for tolerances beneath 0."""
    for what, value in (("rtol", rtol), ("atol", atol)):
      if not value >= 0: raise ArgumentError(f"isclose: {what} = {value}; it must not be negative")
    u, v, names = self._pair("isclose", other)
    if u.dtype.kind == "b": u, v = cast(u, dtypes.default_int), cast(v, dtypes.default_int)
    a, b = [self._from_node(detach(n)) for n in (u, v)]
    if u.dtype.kind == "f": a, b = a._wide(), b._wide()
    apart = a.maximum(b) - a.minimum(b)   # of unsigned ints too
    close = (apart <= b.abs() * rtol + atol) & apart.isfinite() | a.eq(b)
    if equal_nan: close = close | a.isnan() & b.isnan()
    return close._called(names)

  # ---- logarithms and exponentials
  log1p = member(_formula, "log(1 + x), accurate near 0.")
  expm1 = member(_formula, "exp(x) - 1, accurate near 0.")
  logaddexp = member(_formula_of, "log(exp(self) + exp(other)), without overflow.")
  logaddexp2 = member(_formula_of, "log2(2**self + 2**other), without overflow.")
  def logit(self, eps: float | None = None) -> Self:
    """log(x / (1 - x)), the inverse of sigmoid; with ``eps`` x is first kept within eps and 1 - eps. Raises ArgumentError for an
    eps that is not from 0 to 0.5."""
    if eps is None: return self._formula("logit")
    if not 0 <= eps <= 0.5: raise ArgumentError(f"logit: eps = {eps}; it goes from 0 to 0.5")
    return self._in_floats().clamp(eps, 1 - eps)._formula("logit")
  xlogy = member(_formula_of, "self * log(other), and 0 where self is 0 (unless other is NaN).")
  def float_power(self, exponent: Operand) -> Self:
    """``self ** exponent``, computed and given in float64."""
    return self.cast(dtypes.float64)._binary(BinaryOps.POW, exponent.cast(dtypes.float64))

  # ---- angles
  asin = member(_formula, "The angle whose sine the value is, from -pi/2 to pi/2; NaN beyond 1.")
  acos = member(_formula, "The angle whose cosine the value is, from 0 to pi; NaN beyond 1.")
  atan = member(_formula, "The angle whose tangent the value is, from -pi/2 to pi/2.")
  atan2 = member(_formula_of, "The angle of the point (other, self), from -pi to pi. No slope at (0, 0).")
  asinh = member(_formula, "The inverse of sinh.")
  acosh = member(_formula, "The inverse of cosh, not negative; NaN beneath 1.")
  atanh = member(_formula, "The inverse of tanh; infinite at 1 and -1, NaN beyond.")
  arcsin, arccos, arctan, arctan2, arcsinh, arccosh, arctanh = asin, acos, atan, atan2, asinh, acosh, atanh
  hypot = member(_formula_of, "sqrt(self**2 + other**2), without overflow. No slope at (0, 0).")
  sinc = member(_formula, "sin(pi x) / (pi x), and 1 at 0.")
  deg2rad = member(_times_number, math.pi / 180, "Degrees in radians.")
  rad2deg = member(_times_number, 180 / math.pi, "Radians in degrees.")

  # ---- the error function's kin, gammas
  erfc = member(_formula, "1 - erf(x), accurate where that is small.")
  erfinv = member(_formula, "The inverse of erf; infinite at 1 and -1, NaN beyond.")
  lgamma = member(_formula, "The logarithm of the absolute value of the gamma function.")
  digamma = member(_formula, "The derivative of lgamma. NaN at negative whole numbers.")

  # ---- signs and parts of numbers
  def signbit(self) -> Self:
    """Whether the value has a minus: also -0.0 and a NaN with one."""
    u = self.lazydata
    if u.dtype.kind != "f": return self < 0 if u.dtype.kind == "i" else self.ne(self) & False
    return self._detached(formulas.signbit(self._from_node(u)).lazydata)
  def copysign(self, other: Any) -> Self:
    """The size of the value with the sign of the other one, zeros and NaN included; of ints float32. No slope at 0."""
    a, b, names = self._pair("copysign", other, True)
    node = _sloped("signed", formulas.signed(self._from_node(a), self._from_node(b)).lazydata, a, b)
    return self._wrap_many(node, (other,) if isinstance(other, Base) else (), names)
  def nextafter(self, other: Any) -> Self:
    """The float of this dtype that is next to the value on the other one's side; of ints float32. No gradient."""
    a, b, names = self._pair("nextafter", other, True)
    return self._detached(formulas.nextafter(self._from_node(a), self._from_node(b)).lazydata)._called(names)
  def frac(self) -> Self:
    """What is behind the point, with the sign of the value; ints give 0."""
    return self - self.trunc() if self.dtype.kind in "fe" else self.ne(self).cast(self.dtype)
  def isposinf(self) -> Self:
    """Whether the value is inf."""
    return self.isinf(True, False)
  def isneginf(self) -> Self:
    """Whether the value is -inf."""
    return self.isinf(False, True)
  def _of_numbers(self, name: str, fn: BinaryOps, other: Any) -> Self:
    t = self._other(name, other)
    out = self._extreme_of(fn, t)
    if self.dtype.kind in "fe": out = self.isnan().where(t, out)
    return t.isnan().where(self, out) if t.dtype.kind in "fe" else out
  fmax = member(_of_numbers, BinaryOps.MAX, "The greater of both; of NaN and a number the number.")
  fmin = member(_of_numbers, BinaryOps.MIN, "The lesser of both; of NaN and a number the number.")
  def ldexp(self, other: Operand) -> Self:
    """``self * 2**other``, a float: with ints as ``other`` of this dtype."""
    if other.dtype.kind == "f": return self * other.exp2()
    x = self._in_floats()
    wide = x._wide()
    return (wide * other.cast(wide.dtype).exp2()).cast(x.dtype)
  def heaviside(self, values: Any) -> Self:
    """0 beneath 0, 1 above it, ``values`` at 0; NaN stays. Without gradient."""
    u, v, names = self._pair("heaviside", values)
    x, at = [self._from_node(detach(n)) for n in (u, v)]
    out = x.eq(0).where(at, (x > 0).cast(u.dtype))
    if u.dtype.kind == "f": out = x.isnan().where(x, out)
    return out._called(names)
  def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
    """Numbers in place of NaN and infinities: for an infinity, None is the greatest or least finite number of the dtype."""
    if self.dtype.kind == "e": return self.cast(dtypes.float32).nan_to_num(nan, posinf, neginf)
    if self.dtype.kind != "f": return self._own()
    most = float(info_of(self.dtype).max)
    out = self.isnan().where(nan, self)
    out = self.eq(math.inf).where(most if posinf is None else posinf, out)
    return self.eq(-math.inf).where(-most if neginf is None else neginf, out)

  # ---- arithmetic by name
  remainder = member(_of_other, mod,
                     "``self % other``, with the sign of the divisor. Raises ArgumentError for an int divided by the number 0.")
  def fmod(self, other: Any) -> Self:
    """What division leaves, with the sign of this value, as C has it. Raises ArgumentError for an int divided by the number 0."""
    self._not_by_zero("fmod", other, False)
    u, v, names = self._pair("fmod", other)
    if u.dtype.kind == "f": return self._formula_of("fmod", other)
    if u.dtype.kind == "b": raise DTypeError("fmod: of bools; cast them to an int dtype")
    a, b = self._from_node(u), self._from_node(v)
    left = a % b
    if u.dtype.kind == "i": left = (left.ne(0) & (a < 0).ne(b < 0)).where(left - b, left)
    return left._called(names)
  def _plus_scaled(self, fn: Callable[[Any, Any], Any], tensor1: Operand, tensor2: Operand, *, value: float = 1) -> Self:
    x, y, z = self._in_one_dtype(tensor1, tensor2)
    return x.add(fn(y, z), alpha=value)
  addcmul = member(_plus_scaled, operator.mul, "``self + value * tensor1 * tensor2``.")
  addcdiv = member(_plus_scaled, operator.truediv, "``self + value * tensor1 / tensor2``.")
  true_divide = member(_of_other, div, "``self / other``: ints give float32.")
  floor_divide = member(_of_other, _floored,
                        "``self // other``, rounded down. Raises ArgumentError for an int divided by the number 0.")
  def positive(self) -> Self:
    """The value itself. Raises DTypeError for bools."""
    if self.dtype.kind == "b": raise DTypeError("positive: bools have no sign; cast them to an int dtype")
    return self._own()
  negative, absolute, fix, invert = neg, abs, trunc, bitwise_not
  def round(self, decimals: int = 0) -> Self:
    """Rounded to the nearest, halves to even, or to a number of ``decimals``; ints as they are. Raises ArgumentError."""
    if not decimals or self.dtype.kind != "f": return self._rounding(UnaryOps.ROUND)
    if abs(decimals) > 300: raise ArgumentError(f"round: decimals {decimals}; it goes from -300 to 300")
    x, by = self._wide(), 10.0 ** abs(decimals)
    return ((x * by)._rounding(UnaryOps.ROUND) / by if decimals > 0 else (x / by)._rounding(UnaryOps.ROUND) * by).cast(self.dtype)
  def __round__(self, digits: int | None = None) -> Any:
    """``round(x)``, ``round(x, 3)``: a Python number for one element, else a tensor, halves to even."""
    return round(self.item(), digits) if self.numel() == 1 else self.round(digits or 0)
  def subtract(self, other: Any, *, alpha: float = 1) -> Self:
    """``self - alpha * other``."""
    return self.sub(other, alpha=alpha)
  multiply = member(_before, BinaryOps.MUL, "``self * other``.")
  def divide(self, other: Any, *, rounding_mode: str | None = None) -> Self:
    """``self / other``; see ``div``."""
    return self.div(other, rounding_mode=rounding_mode)
  bitwise_left_shift = member(_before, BinaryOps.SHL, "``self << other``; see ``lshift``.")
  bitwise_right_shift = member(_before, BinaryOps.SHR, "``self >> other``; see ``rshift``.")

  def clamp_min(self, min: Any) -> Self:
    """Not below a number or tensor; see ``clamp``."""
    return self._within("clamp_min", operand("clamp_min: min", min, self) if min is None else min, True)
  def clamp_max(self, max: Any) -> Self:
    """Not above a number or tensor; see ``clamp``."""
    return self._within("clamp_max", operand("clamp_max: max", max, self) if max is None else max, False)


class Casts(Elementwise):
  """Casts by the names of dtypes (a class of their own: these names hide Python's in the class body)."""
  __slots__ = ()

  float = member(Elementwise.cast, dtypes.float32, "Cast to float32.")
  double = member(Elementwise.cast, dtypes.float64, "Cast to float64.")
  half = member(Elementwise.cast, dtypes.float16, "Cast to float16.")
  bfloat16 = member(Elementwise.cast, dtypes.bfloat16, "Cast to bfloat16.")
  int = member(Elementwise.cast, dtypes.int32, "Cast to int32.")
  long = member(Elementwise.cast, dtypes.int64, "Cast to int64.")
  bool = member(Elementwise.cast, dtypes.bool, "Cast to bool: ``!= 0``.")
