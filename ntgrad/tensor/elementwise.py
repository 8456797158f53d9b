"""Elementwise operations of ``Tensor``: arithmetic, comparison, bits, casts and mathematical functions, with numpy's
broadcasting.

Where a number stands beside a tensor it takes part by its kind (``promotion.py``). Functions such as ``exp`` give float32 for
ints and bools.
"""
from __future__ import annotations

import math
from typing import Any, Callable, Self

import numpy as np

from ntgrad.codegen.ir.dtype import DType, as_float, can_cast, dtypes, promote
from ntgrad.codegen.ir.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.codegen.ir.functions import FUNCTIONS, refusal
from ntgrad.codegen.ir.uop import BinaryOps, UnaryOps, UOp
from ntgrad.core import Base
from ntgrad.graph import formulas, nodes as graph
from ntgrad.graph.checks import Operand, checked, foreign, operand
from ntgrad.graph.dimension_names import Names, aligned_names, fit_aligned, text
from ntgrad.graph.modes import mode

from .promotion import broadcast_shape, common_device, common_dtype, scalar_dtype, scalar_node

_SCALARS = (bool, int, float)
_NUMBERS = (bool, int, float, np.number, np.bool_)
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


def _greatest(d: DType) -> float:
  """The greatest finite number of a float dtype."""
  import ml_dtypes
  return float(ml_dtypes.finfo(d.np).max)


@checked
class Elementwise(Base):
  """The elementwise operations."""
  __slots__ = ()

  def _from_host(self, values: Any) -> Any:
    """A tensor of values of the host (or of another library) where this tensor is."""
    make: Any = type(self)
    return make(values, device=self.lazydata.device)

  # ---- two operands
  def _binary(self, fn: BinaryOps, x: Any, reverse: bool = False) -> Self:
    a = self.lazydata
    da = a.dtype
    if isinstance(x, Base):
      b = x.lazydata
      db = b.dtype
      name = fn.name
      if a.device != b.device: common_device(name, a, b)
      if a.shape != b.shape:
        try: shape = broadcast_shape(name, a.shape, b.shape)
        except ShapeError:
          fit_aligned(name.lower(), (self, x))
          raise
        if da is not db:
          d = common_dtype(a, b)
          a, b = graph.cast(a, d), graph.cast(b, d)
        a, b = graph.broadcast(a, shape), graph.broadcast(b, shape)
      elif da is not db:
        d = promote(da, db)
        a, b = graph.cast(a, d), graph.cast(b, d)
      called = None if self._names is x._names is None else aligned_names(name.lower(), (self, x))
    elif isinstance(x, _NUMBERS):
      if isinstance(x, np.generic): x = x.item()
      d = scalar_dtype(x, da)
      if d is not da: a = graph.cast(a, d)
      b = scalar_node(fn.name, x, d, a.shape)
      x = None
    elif isinstance(x, (list, tuple, np.ndarray)) or foreign(x):
      return self._binary(fn, self._from_host(x), reverse)
    else:
      raise DTypeError(f"{fn.name}: an operand of {type(x).__name__}; operands are tensors, numbers, lists and numpy arrays")
    d = a.dtype
    if d.kind == "b":
      if fn is BinaryOps.SUB: raise DTypeError("SUB: bools cannot be subtracted; use ^ (xor), or cast them to an int dtype")
      fn = FUNCTIONS[fn].boolean or fn
      if fn in _WHOLE: a, b = graph.cast(a, dtypes.default_int), graph.cast(b, dtypes.default_int)
    elif d.kind == "e": a, b = graph.cast(a, dtypes.float32), graph.cast(b, dtypes.float32)
    elif d.kind == "f" and fn in _BITS:
      raise DTypeError(f"{fn.name}: bits of {d.name} tensors; it takes ints and bools (bitcast the floats to ints)")
    node = graph.binary(fn, b, a) if reverse else graph.binary(fn, a, b)
    if x is None: return self._wrap(node, 3)
    t = self._wrap(node, 3) if x._state <= self._state else x._wrap(node, 3)
    return t._called(called)

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
  def mul(self, x: Any, reverse: bool = False) -> Self:
    """``self * x``."""
    return self._binary(BinaryOps.MUL, x, reverse)
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
    """``self // x``, rounded down, for ints and floats. Raises ArgumentError for an int divided by the number 0."""
    self._not_by_zero("idiv", x, reverse)
    return self._binary(BinaryOps.IDIV, x, reverse)
  def _rounded_quotient(self, x: Any, reverse: bool, mode: str) -> Self:
    if mode not in ("trunc", "floor"): raise ArgumentError(f"div: rounding_mode={mode!r}; it takes None, 'trunc' or 'floor'")
    down = self.idiv(x, reverse)
    if mode == "floor": return down
    if down.dtype.kind == "f": return self.div(x, reverse).trunc()
    exact = (down * x if not reverse else down * self).eq(self if not reverse else x)   # one more than down, if that is negative
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
    if not reverse and isinstance(x, _SCALARS):
      a = self.cast(scalar_dtype(x, self.dtype))
      whole = int(x) if (isinstance(x, int) or x.is_integer()) and abs(x) <= (64 if a.dtype.kind != "f" else 4) else None
      if a.dtype.kind != "f" and x < 0:
        raise DTypeError(f"pow: ints to the power {x}; cast to a float dtype first, or use a power of at least 0")
      if whole is not None:
        if whole == 0: return a._without_slope(graph.const(1, a.dtype, a.shape))
        return by_squaring(a if whole > 0 else a.reciprocal(), abs(whole), lambda p, q: p._binary(BinaryOps.MUL, q))
      if x == 0.5: return a.sqrt()
      if x == -0.5: return a.rsqrt()
      return a._binary(BinaryOps.POW, x)
    return self._binary(BinaryOps.POW, x, reverse)

  def _without_slope(self, node: UOp) -> Self:
    """A value that is made from this one and does not change with it: its gradient is zeros, not missing."""
    if node.dtype.kind != "f" or self.dtype is not node.dtype: return self._detached(node)
    return self._wrap(graph.where(graph.const(True, dtypes.bool, node.shape), graph.detach(node), self.lazydata))
  def _detached(self, node: UOp) -> Self:
    """A result without gradient, of this tensor's dimensions."""
    return self._from_node(node)._called(self._names)
  def maximum(self, x: Any) -> Self:
    """The greater of both, NaN where either is NaN. Where they are equal each has half of the gradient."""
    return self._extreme_of(BinaryOps.MAX, x)
  def minimum(self, x: Any) -> Self:
    """The lesser of both, NaN where either is NaN. Where they are equal each has half of the gradient."""
    return self._extreme_of(BinaryOps.MIN, x)
  def _extreme_of(self, fn: BinaryOps, x: Any) -> Self:
    """MAX or MIN. For gradients a bare constant is a limit, without slope where it is reached (relu at 0); here it is a value,
    detached."""
    a = self.lazydata
    if isinstance(x, _NUMBERS):
      if isinstance(x, np.generic): x = x.item()
      d = scalar_dtype(x, a.dtype)
      if d.kind == "f": return self._wrap(graph.binary(fn, graph.cast(a, d), graph.detach(scalar_node(fn.name, x, d, a.shape))))
    if not isinstance(x, Base): return self._binary(fn, x)
    pair: Any = (self, x)
    p, q = [t._detached(graph.detach(t.lazydata)) if graph.const_value(t.lazydata) is not None else t for t in pair]
    return p._binary(fn, q)
  def bitwise_and(self, x: Any, reverse: bool = False) -> Self:
    """``self & x`` for ints and bools."""
    return self._binary(BinaryOps.AND, x, reverse)
  def bitwise_or(self, x: Any, reverse: bool = False) -> Self:
    """``self | x`` for ints and bools."""
    return self._binary(BinaryOps.OR, x, reverse)
  def bitwise_xor(self, x: Any, reverse: bool = False) -> Self:
    """``self ^ x`` for ints and bools."""
    return self._binary(BinaryOps.XOR, x, reverse)
  xor = bitwise_xor
  def lshift(self, x: Any, reverse: bool = False) -> Self:
    """``self << x`` for ints: 0 where x is the width or more, or below 0."""
    return self._binary(BinaryOps.SHL, x, reverse)
  def rshift(self, x: Any, reverse: bool = False) -> Self:
    """``self >> x`` for ints, arithmetic on signed ones: 0 or -1, as the sign, where x is the width or more, or below 0."""
    return self._binary(BinaryOps.SHR, x, reverse)

  def lerp(self, end: Any, weight: Any) -> Self:
    """``self + (end - self) * weight``."""
    return self + (end - self) * weight

  def where(self, yes: Any, no: Any) -> Self:
    """``yes`` where this bool tensor is true, else ``no``; all broadcast together.

    Raises DTypeError for another condition dtype.
    """
    if self.dtype.kind != "b":
      raise DTypeError(f"where: a condition of {self.dtype.name}; it takes bool (compare first, e.g. x != 0)")
    a, b = self._where_pair(yes, no)
    c, u, v = self.lazydata, a.lazydata, b.lazydata
    common_device("where", c, u, v)
    if u.dtype is not v.dtype:
      d = common_dtype(u, v)
      u, v = graph.cast(u, d), graph.cast(v, d)
    if not c.shape == u.shape == v.shape:
      try: shape = broadcast_shape("where", c.shape, u.shape, v.shape)
      except ShapeError:
        fit_aligned("where", (self, a, b))
        raise
      c, u, v = graph.broadcast(c, shape), graph.broadcast(u, shape), graph.broadcast(v, shape)
    return self._wrap_many(
      graph.where(c, u, v), (a, b), None if self._names is a._names is b._names is None else aligned_names("where", (self, a, b))
    )

  def _where_pair(self, yes: Any, no: Any) -> tuple[Base, Base]:
    """Both values as tensors; a number takes the other's dtype where its kind lets it."""
    make: Any = type(self)
    if isinstance(no, Base) and not isinstance(yes, Base): return self._where_pair(no, yes)[::-1]
    if not isinstance(yes, Base): return make(yes), make(no)
    if isinstance(no, Base): return yes, no
    return yes, make(no, dtype=scalar_dtype(no, yes.dtype) if isinstance(no, _SCALARS) else None)

  # ---- writing: the result goes to this tensor's memory, where all that share it see it
  def _in_place(self, name: str, make: Callable[[], Base]) -> Self:
    """Write a result of this shape and of a dtype that may be cast to this one. Raises ShapeError, DTypeError, AssignError,
    GradientError."""
    self._check_writable(name)
    result, shape, dtype = make(), self.shape, self.dtype
    if result.shape != shape:
      raise ShapeError(
        f"{name}: a result of shape {text(result)} does not fit into a tensor of shape {text(self)}, which is written in place; "
        "write it without assignment (a = a + b)"
      )
    if not can_cast(result.dtype, dtype):
      raise DTypeError(
        f"{name}: a result of {result.dtype.name} does not fit into a tensor of {dtype.name}, which is written in place; "
        "cast the operand, or write it without assignment (a = a + b)"
      )
    self._check_names(name, result)
    self._check_leaf(name)
    return self._write(name, graph.cast(result.lazydata, dtype), result._state > 0)

  def __iadd__(self, x: Any) -> Self: return self._in_place("+=", lambda: self + x)
  def __isub__(self, x: Any) -> Self: return self._in_place("-=", lambda: self - x)
  def __imul__(self, x: Any) -> Self: return self._in_place("*=", lambda: self * x)
  def __itruediv__(self, x: Any) -> Self: return self._in_place("/=", lambda: self / x)
  def __ifloordiv__(self, x: Any) -> Self: return self._in_place("//=", lambda: self // x)
  def __imod__(self, x: Any) -> Self: return self._in_place("%=", lambda: self % x)
  def __ipow__(self, x: Any) -> Self: return self._in_place("**=", lambda: self ** x)
  def __iand__(self, x: Any) -> Self: return self._in_place("&=", lambda: self & x)
  def __ior__(self, x: Any) -> Self: return self._in_place("|=", lambda: self | x)
  def __ixor__(self, x: Any) -> Self: return self._in_place("^=", lambda: self ^ x)
  def __ilshift__(self, x: Any) -> Self: return self._in_place("<<=", lambda: self << x)
  def __irshift__(self, x: Any) -> Self: return self._in_place(">>=", lambda: self >> x)
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
  def __add__(self, x: Any) -> Self: return self._binary(BinaryOps.ADD, x)
  def __radd__(self, x: Any) -> Self: return self._binary(BinaryOps.ADD, x, True)
  def __sub__(self, x: Any) -> Self: return self._binary(BinaryOps.SUB, x)
  def __rsub__(self, x: Any) -> Self: return self._binary(BinaryOps.SUB, x, True)
  def __mul__(self, x: Any) -> Self: return self._binary(BinaryOps.MUL, x)
  def __rmul__(self, x: Any) -> Self: return self._binary(BinaryOps.MUL, x, True)
  def __truediv__(self, x: Any) -> Self: return self.div(x)
  def __rtruediv__(self, x: Any) -> Self: return self.div(x, True)
  def __floordiv__(self, x: Any) -> Self: return self.idiv(x)
  def __rfloordiv__(self, x: Any) -> Self: return self.idiv(x, True)
  def __mod__(self, x: Any) -> Self: return self.mod(x)
  def __rmod__(self, x: Any) -> Self: return self.mod(x, True)
  def __pow__(self, x: Any) -> Self: return self.pow(x)
  def __rpow__(self, x: Any) -> Self: return self.pow(x, True)
  def __and__(self, x: Any) -> Self: return self._binary(BinaryOps.AND, x)
  def __rand__(self, x: Any) -> Self: return self._binary(BinaryOps.AND, x, True)
  def __or__(self, x: Any) -> Self: return self._binary(BinaryOps.OR, x)
  def __ror__(self, x: Any) -> Self: return self._binary(BinaryOps.OR, x, True)
  def __xor__(self, x: Any) -> Self: return self._binary(BinaryOps.XOR, x)
  def __rxor__(self, x: Any) -> Self: return self._binary(BinaryOps.XOR, x, True)
  def __lshift__(self, x: Any) -> Self: return self.lshift(x)
  def __rlshift__(self, x: Any) -> Self: return self.lshift(x, True)
  def __rshift__(self, x: Any) -> Self: return self.rshift(x)
  def __rrshift__(self, x: Any) -> Self: return self.rshift(x, True)
  def __lt__(self, x: Any) -> Self: return self._binary(BinaryOps.CMPLT, x)
  def __gt__(self, x: Any) -> Self: return self._binary(BinaryOps.CMPLT, x, True)
  def __le__(self, x: Any) -> Self: return self._binary(BinaryOps.CMPLE, x)
  def __ge__(self, x: Any) -> Self: return self._binary(BinaryOps.CMPLE, x, True)
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
    return self._wrap(graph.cast(self.lazydata, dtype if isinstance(dtype, DType) else dtypes.of(dtype)))
  def _unary(self, fn: UnaryOps) -> Self:
    """A function of floats; ints and bools become float32 first."""
    return self._wrap(graph.unary(fn, graph.cast(self.lazydata, as_float(self.dtype))))
  def _in_floats(self) -> Self: return self if self.dtype.kind == "f" else self.cast(dtypes.default_float)

  def _rounding(self, fn: UnaryOps) -> Self:
    return self._wrap(graph.unary(fn, self.lazydata)) if self.dtype.kind in "fe" else self._own()

  def neg(self) -> Self:
    """``-self``; bools are refused (DTypeError)."""
    if self.dtype.kind == "b": raise DTypeError("NEG: bools have no sign; use ~ (logical_not), or cast them to an int dtype")
    return self._wrap(graph.neg(self.lazydata))
  def __neg__(self) -> Self: return self.neg()
  def __pos__(self) -> Self: return self._own()
  def __abs__(self) -> Self: return self.abs()
  def bitwise_not(self) -> Self:
    """Every bit of ints inverted; logical not of bools."""
    if self.dtype.kind == "f": raise DTypeError(f"NOT: bits of {self.dtype.name}; it takes ints and bools")
    return self._wrap(graph.not_(self.lazydata))
  def __invert__(self) -> Self: return self.bitwise_not()
  def logical_not(self) -> Self:
    """True where the value is zero."""
    return self.cast(dtypes.bool).bitwise_not()
  def abs(self) -> Self:
    """The absolute value."""
    return self._wrap(graph.absolute(self.lazydata)) if self.dtype.kind in "fi" else self._own()
  def exp(self) -> Self:
    """e to the power of the value."""
    return self._unary(UnaryOps.EXP)
  def exp2(self) -> Self:
    """2 to the power of the value."""
    return self._unary(UnaryOps.EXP2)
  def log(self) -> Self:
    """The natural logarithm."""
    return self._unary(UnaryOps.LOG)
  def log2(self) -> Self:
    """The logarithm to base 2."""
    return self._unary(UnaryOps.LOG2)
  def log10(self) -> Self:
    """The logarithm to base 10."""
    return self._unary(UnaryOps.LOG) * (1 / math.log(10))
  def sqrt(self) -> Self:
    """The square root."""
    return self._unary(UnaryOps.SQRT)
  def rsqrt(self) -> Self:
    """1 / square root."""
    return self._unary(UnaryOps.RSQRT)
  def reciprocal(self) -> Self:
    """1 / value."""
    return self._unary(UnaryOps.RECIP)
  def sin(self) -> Self:
    """The sine of radians."""
    return self._unary(UnaryOps.SIN)
  def cos(self) -> Self:
    """The cosine of radians."""
    return self._unary(UnaryOps.COS)
  def tan(self) -> Self:
    """The tangent of radians."""
    return self._unary(UnaryOps.TAN)
  def tanh(self) -> Self:
    """The hyperbolic tangent."""
    return self._unary(UnaryOps.TANH)
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
  def erf(self) -> Self:
    """The error function."""
    return self._unary(UnaryOps.ERF)
  def floor(self) -> Self:
    """Rounded down; ints as they are."""
    return self._rounding(UnaryOps.FLOOR)
  def ceil(self) -> Self:
    """Rounded up; ints as they are."""
    return self._rounding(UnaryOps.CEIL)
  def trunc(self) -> Self:
    """Rounded to zero; ints as they are."""
    return self._rounding(UnaryOps.TRUNC)
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

    NaN stays, and comes of limits that are NaN. Raises ArgumentError if neither is given, or for the number NaN.
    """
    lo, hi = (min if min_ is None else min_), (max if max_ is None else max_)
    if lo is None and hi is None: raise ArgumentError("clamp: neither a least nor a greatest value given; give one of them")
    out = self
    if isinstance(lo, Base) and isinstance(hi, Base): out, lo, hi = self._in_one_dtype(lo, hi)
    if lo is not None: out = out._within("clamp", lo, True)
    return out if hi is None else out._within("clamp", hi, False)
  def _within(self, name: str, limit: Any, least: bool) -> Self:
    """This value, or the limit where it is beyond that."""
    if isinstance(limit, np.generic): limit = limit.item()
    if isinstance(limit, _SCALARS):
      if limit != limit: raise ArgumentError(f"{name}: a limit of nan; limits are numbers that values can be compared with")
      u = self.lazydata
      d = scalar_dtype(limit, u.dtype)
      u = graph.cast(u, d)
      c = scalar_node(name, limit, d, u.shape)
      return self._wrap(graph.where(graph.binary(BinaryOps.CMPLT, *((u, c) if least else (c, u))), c, u))
    if not isinstance(limit, Base): limit = self._from_host(limit)
    outside: Any = self < limit if least else self > limit
    return (outside | limit.isnan() if limit.dtype.kind == "f" else outside).where(limit, self)
  clip = clamp

  # ---- formulas, and the gradients that they are known to have
  def _formula(self, name: str) -> Self:
    """One of ``formulas``, of this tensor."""
    u = self.lazydata
    u = graph.cast(u, as_float(u.dtype))
    w = graph.cast(u, graph.acc_dtype(u.dtype))
    node: UOp = getattr(formulas, name)(self._from_node(w)).lazydata
    return self._wrap(graph.cast(_sloped(name, node, w), u.dtype))

  def _formula_of(self, name: str, x: Any) -> Self:
    """One of ``formulas``, of this tensor and another one or a number."""
    a, b, names = self._pair(name, x, True)
    wide = graph.acc_dtype(a.dtype)
    p, q = graph.cast(a, wide), graph.cast(b, wide)
    node: UOp = getattr(formulas, name)(self._from_node(p), self._from_node(q)).lazydata
    return self._wrap_many(graph.cast(_sloped(name, node, p, q), a.dtype), (x,) if isinstance(x, Base) else (), names)

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
    a, b = [graph.broadcast(graph.cast(u, d), shape) for u in (a, b)]
    return a, b, aligned_names(name, (self, t))

  def _other(self, name: str, x: Any) -> Any:
    """An operand as a tensor; a number in the dtype that it works in with this one."""
    if isinstance(x, Base): return x
    if isinstance(x, np.generic): x = x.item()
    if not isinstance(x, (bool, int, float)): return operand(name, x, self)
    return self._from_node(scalar_node(name, x, scalar_dtype(x, self.dtype), ()))

  # ---- comparisons
  def gt(self, other: Any) -> Self:
    """``self > other``, elementwise."""
    return self > other
  def lt(self, other: Any) -> Self:
    """``self < other``, elementwise."""
    return self < other
  def ge(self, other: Any) -> Self:
    """``self >= other``, elementwise."""
    return self >= other
  def le(self, other: Any) -> Self:
    """``self <= other``, elementwise."""
    return self <= other
  def not_equal(self, other: Any) -> Self:
    """``self != other``, elementwise."""
    return self.ne(other)
  greater, less, greater_equal, less_equal = gt, lt, ge, le

  def logical_and(self, other: Operand) -> Self:
    """Whether neither value is zero."""
    return self.cast(dtypes.bool) & other.cast(dtypes.bool)
  def logical_or(self, other: Operand) -> Self:
    """Whether one of both values is not zero."""
    return self.cast(dtypes.bool) | other.cast(dtypes.bool)
  def logical_xor(self, other: Operand) -> Self:
    """Whether exactly one of both values is not zero."""
    return self.cast(dtypes.bool) ^ other.cast(dtypes.bool)

  def isclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Self:
    """Whether ``|self - other| <= atol + rtol * |other|``; infinities are close to equal ones only, NaN to NaN if ``equal_nan``.

    Raises ArgumentError for tolerances beneath 0.
    """
    for what, value in (("rtol", rtol), ("atol", atol)):
      if not value >= 0: raise ArgumentError(f"isclose: {what} = {value}; it must not be negative")
    u, v, names = self._pair("isclose", other)
    if u.dtype.kind == "b": u, v = graph.cast(u, dtypes.default_int), graph.cast(v, dtypes.default_int)
    a, b = self._from_node(graph.detach(u)), self._from_node(graph.detach(v))
    if u.dtype.kind == "f" and u.dtype.itemsize < 4: a, b = a.cast(dtypes.float32), b.cast(dtypes.float32)
    apart: Any = a.maximum(b) - a.minimum(b)   # of unsigned ints too
    close = (apart <= b.abs() * rtol + atol) & apart.isfinite() | a.eq(b)
    if equal_nan: close = close | a.isnan() & b.isnan()
    return close._called(names)

  # ---- logarithms and exponentials
  def log1p(self) -> Self:
    """log(1 + x), accurate near 0."""
    return self._formula("log1p")
  def expm1(self) -> Self:
    """exp(x) - 1, accurate near 0."""
    return self._formula("expm1")
  def logaddexp(self, other: Any) -> Self:
    """log(exp(self) + exp(other)), without overflow."""
    return self._formula_of("logaddexp", other)
  def logaddexp2(self, other: Any) -> Self:
    """log2(2**self + 2**other), without overflow."""
    return self._formula_of("logaddexp2", other)
  def logit(self, eps: float | None = None) -> Self:
    """log(x / (1 - x)), the inverse of sigmoid; with ``eps`` x is first kept within eps and 1 - eps. Raises ArgumentError for an
    eps that is not from 0 to 0.5."""
    if eps is None: return self._formula("logit")
    if not 0 <= eps <= 0.5: raise ArgumentError(f"logit: eps = {eps}; it goes from 0 to 0.5")
    return self._in_floats().clamp(eps, 1 - eps)._formula("logit")
  def xlogy(self, other: Any) -> Self:
    """self * log(other), and 0 where self is 0 (unless other is NaN)."""
    return self._formula_of("xlogy", other)
  def float_power(self, exponent: Operand) -> Self:
    """``self ** exponent``, computed and given in float64."""
    return self.cast(dtypes.float64)._binary(BinaryOps.POW, exponent.cast(dtypes.float64))

  # ---- angles
  def asin(self) -> Self:
    """The angle whose sine the value is, from -pi/2 to pi/2; NaN beyond 1."""
    return self._formula("asin")
  def acos(self) -> Self:
    """The angle whose cosine the value is, from 0 to pi; NaN beyond 1."""
    return self._formula("acos")
  def atan(self) -> Self:
    """The angle whose tangent the value is, from -pi/2 to pi/2."""
    return self._formula("atan")
  def atan2(self, other: Any) -> Self:
    """The angle of the point (other, self), from -pi to pi. No slope at (0, 0)."""
    return self._formula_of("atan2", other)
  def asinh(self) -> Self:
    """The inverse of sinh."""
    return self._formula("asinh")
  def acosh(self) -> Self:
    """The inverse of cosh, not negative; NaN beneath 1."""
    return self._formula("acosh")
  def atanh(self) -> Self:
    """The inverse of tanh; infinite at 1 and -1, NaN beyond."""
    return self._formula("atanh")
  arcsin, arccos, arctan, arctan2, arcsinh, arccosh, arctanh = asin, acos, atan, atan2, asinh, acosh, atanh
  def hypot(self, other: Any) -> Self:
    """sqrt(self**2 + other**2), without overflow. No slope at (0, 0)."""
    return self._formula_of("hypot", other)
  def sinc(self) -> Self:
    """sin(pi x) / (pi x), and 1 at 0."""
    return self._formula("sinc")
  def deg2rad(self) -> Self:
    """Degrees in radians."""
    return self._in_floats() * (math.pi / 180)
  def rad2deg(self) -> Self:
    """Radians in degrees."""
    return self._in_floats() * (180 / math.pi)

  # ---- the error function's kin, gammas
  def erfc(self) -> Self:
    """1 - erf(x), accurate where that is small."""
    return self._formula("erfc")
  def erfinv(self) -> Self:
    """The inverse of erf; infinite at 1 and -1, NaN beyond."""
    return self._formula("erfinv")
  def lgamma(self) -> Self:
    """The logarithm of the absolute value of the gamma function."""
    return self._formula("lgamma")
  def digamma(self) -> Self:
    """The derivative of lgamma. NaN at negative whole numbers."""
    return self._formula("digamma")

  # ---- signs and parts of numbers
  def signbit(self) -> Self:
    """Whether the value has a minus: also -0.0 and a NaN with one."""
    u = self.lazydata
    if u.dtype.kind != "f": return self < 0 if u.dtype.kind == "i" else self.ne(self) & False
    t: Self = formulas.signbit(self._from_node(u))
    return self._detached(t.lazydata)
  def copysign(self, other: Any) -> Self:
    """The size of the value with the sign of the other one, zeros and NaN included; of ints float32. No slope at 0."""
    a, b, names = self._pair("copysign", other, True)
    node: UOp = formulas.signed(self._from_node(a), self._from_node(b)).lazydata
    return self._wrap_many(_sloped("copysign", node, a, b), (other,) if isinstance(other, Base) else (), names)
  def nextafter(self, other: Any) -> Self:
    """The float of this dtype that is next to the value on the other one's side; of ints float32. No gradient."""
    a, b, names = self._pair("nextafter", other, True)
    t: Self = formulas.nextafter(self._from_node(a), self._from_node(b))
    return self._detached(t.lazydata)._called(names)
  def frac(self) -> Self:
    """What is behind the point, with the sign of the value; ints give 0."""
    return self - self.trunc() if self.dtype.kind in "fe" else self.ne(self).cast(self.dtype)
  def isposinf(self) -> Self:
    """Whether the value is inf."""
    return self.isinf(True, False)
  def isneginf(self) -> Self:
    """Whether the value is -inf."""
    return self.isinf(False, True)
  def fmax(self, other: Any) -> Self:
    """The greater of both; of NaN and a number the number."""
    return self._of_numbers("fmax", other, BinaryOps.MAX)
  def fmin(self, other: Any) -> Self:
    """The lesser of both; of NaN and a number the number."""
    return self._of_numbers("fmin", other, BinaryOps.MIN)
  def _of_numbers(self, name: str, other: Any, fn: BinaryOps) -> Self:
    t = self._other(name, other)
    out = self._extreme_of(fn, t)
    if self.dtype.kind in "fe": out = self.isnan().where(t, out)
    return t.isnan().where(self, out) if t.dtype.kind in "fe" else out
  def ldexp(self, other: Operand) -> Self:
    """``self * 2**other``, a float: with ints as ``other`` of this dtype."""
    if other.dtype.kind == "f": return self * other.exp2()
    x = self._in_floats()
    wide = graph.acc_dtype(x.dtype)
    return (x.cast(wide) * other.cast(wide).exp2()).cast(x.dtype)
  def heaviside(self, values: Any) -> Self:
    """0 beneath 0, 1 above it, ``values`` at 0; NaN stays. Without gradient."""
    u, v, names = self._pair("heaviside", values)
    x, at = self._from_node(graph.detach(u)), self._from_node(graph.detach(v))
    out = x.eq(0).where(at, (x > 0).cast(u.dtype))
    if u.dtype.kind == "f": out = x.isnan().where(x, out)
    return out._called(names)
  def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
    """Numbers in place of NaN and infinities: for an infinity, None is the greatest or least finite number of the dtype."""
    if self.dtype.kind == "e": return self.cast(dtypes.float32).nan_to_num(nan, posinf, neginf)
    if self.dtype.kind != "f": return self._own()
    most = _greatest(self.dtype)
    out = self.isnan().where(nan, self)
    out = self.eq(math.inf).where(most if posinf is None else posinf, out)
    return self.eq(-math.inf).where(-most if neginf is None else neginf, out)

  # ---- arithmetic by name
  def remainder(self, other: Any) -> Self:
    """``self % other``, with the sign of the divisor. Raises ArgumentError for an int divided by the number 0."""
    return self.mod(other)
  def fmod(self, other: Any) -> Self:
    """What is left of the division, with the sign of this value, as C has it. Raises ArgumentError for an int divided by the
    number 0."""
    self._not_by_zero("fmod", other, False)
    u, v, names = self._pair("fmod", other)
    if u.dtype.kind == "f": return self._formula_of("fmod", other)
    if u.dtype.kind == "b": raise DTypeError("fmod: of bools; cast them to an int dtype")
    a, b = self._from_node(u), self._from_node(v)
    left = a % b
    if u.dtype.kind == "i": left = (left.ne(0) & (a < 0).ne(b < 0)).where(left - b, left)
    return left._called(names)
  def addcmul(self, tensor1: Operand, tensor2: Operand, *, value: float = 1) -> Self:
    """``self + value * tensor1 * tensor2``."""
    x, y, z = self._in_one_dtype(tensor1, tensor2)
    out: Self = x.add(y * z, alpha=value)
    return out
  def addcdiv(self, tensor1: Operand, tensor2: Operand, *, value: float = 1) -> Self:
    """``self + value * tensor1 / tensor2``."""
    x, y, z = self._in_one_dtype(tensor1, tensor2)
    out: Self = x.add(y.div(z), alpha=value)
    return out
  def true_divide(self, other: Any) -> Self:
    """``self / other``: ints give float32."""
    return self.div(other)
  def floor_divide(self, other: Any) -> Self:
    """``self // other``, rounded down. Raises ArgumentError for an int divided by the number 0."""
    return self.idiv(other)
  def positive(self) -> Self:
    """The value itself. Raises DTypeError for bools."""
    if self.dtype.kind == "b": raise DTypeError("positive: bools have no sign; cast them to an int dtype")
    return self._own()
  negative, absolute, fix, invert = neg, abs, trunc, bitwise_not
  def round(self, decimals: int = 0) -> Self:
    """Rounded to the nearest, halves to even, or to a number of ``decimals``; ints as they are. Raises ArgumentError."""
    if not decimals or self.dtype.kind != "f": return self._rounding(UnaryOps.ROUND)
    if abs(decimals) > 300: raise ArgumentError(f"round: decimals {decimals}; it goes from -300 to 300")
    x: Any = self.cast(graph.acc_dtype(self.dtype))
    out = (x * 10.0 ** decimals)._rounding(UnaryOps.ROUND) / 10.0 ** decimals if decimals > 0 else (
      x / 10.0 ** -decimals)._rounding(UnaryOps.ROUND) * 10.0 ** -decimals
    done: Self = out.cast(self.dtype)
    return done
  def __round__(self, digits: int | None = None) -> Any:
    """``round(x)``, ``round(x, 3)``: a Python number for one element, else a tensor, halves to even."""
    return round(self.item(), digits) if self.numel() == 1 else self.round(digits or 0)
  def subtract(self, other: Any, *, alpha: float = 1) -> Self:
    """``self - alpha * other``."""
    return self.sub(other, alpha=alpha)
  def multiply(self, other: Any) -> Self:
    """``self * other``."""
    return self.mul(other)
  def divide(self, other: Any, *, rounding_mode: str | None = None) -> Self:
    """``self / other``; see ``div``."""
    return self.div(other, rounding_mode=rounding_mode)
  def bitwise_left_shift(self, other: Any) -> Self:
    """``self << other``; see ``lshift``."""
    return self.lshift(other)
  def bitwise_right_shift(self, other: Any) -> Self:
    """``self >> other``; see ``rshift``."""
    return self.rshift(other)

  def clamp_min(self, min: Any) -> Self:
    """Not below a number or tensor; see ``clamp``."""
    return self._within("clamp_min", operand("clamp_min: min", min, self) if min is None else min, True)
  def clamp_max(self, max: Any) -> Self:
    """Not above a number or tensor; see ``clamp``."""
    return self._within("clamp_max", operand("clamp_max: max", max, self) if max is None else max, False)


class Casts(Elementwise):
  """Casts by the names of dtypes (a class of their own: these names hide Python's in the class body)."""
  __slots__ = ()

  def float(self) -> Self:
    """Cast to float32."""
    return self.cast(dtypes.float32)
  def double(self) -> Self:
    """Cast to float64."""
    return self.cast(dtypes.float64)
  def half(self) -> Self:
    """Cast to float16."""
    return self.cast(dtypes.float16)
  def bfloat16(self) -> Self:
    """Cast to bfloat16."""
    return self.cast(dtypes.bfloat16)
  def int(self) -> Self:
    """Cast to int32."""
    return self.cast(dtypes.int32)
  def long(self) -> Self:
    """Cast to int64."""
    return self.cast(dtypes.int64)
  def bool(self) -> Self:
    """Cast to bool: ``!= 0``."""
    return self.cast(dtypes.bool)
