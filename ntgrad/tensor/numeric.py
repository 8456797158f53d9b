"""Functions of elements that are made of others: logarithms, angles, comparisons and arithmetic by name."""
from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from ntgrad.codegen.ir.dtype import DType, as_float, dtypes
from ntgrad.codegen.ir.errors import ArgumentError, DTypeError, ShapeError, shown
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UnaryOps, UOp
from ntgrad.core import Base
from ntgrad.graph import formulas, nodes as graph, origins
from ntgrad.graph.alias import Bits
from ntgrad.graph.checks import Operand, checked, one_width, operand
from ntgrad.graph.modes import mode
from ntgrad.graph.names import Names, aligned_names, fit_aligned

from .activation import Activation
from .creation import Creation
from .elementwise import Elementwise, broadcast_shape, common_device, common_dtype, scalar_dtype, scalar_node
from .reduction import Reduction


def _sloped(name: str, value: UOp, *made_from: UOp) -> UOp:
  """A formula's value with the gradient that it is known to have. Whoever asks for that may ask at any tensor, also at one that
  requires none."""
  return graph.sloped(name, value, *made_from) if mode.grad else value


@checked
class Numeric(Activation, Reduction, Creation):
  """Functions of elements that are made of others: logarithms, angles, comparisons and arithmetic by name.

  Where a number stands beside a tensor it takes part by its kind, as with ``+``. Functions such as ``log1p`` give float32 for
  ints and bools; small floats are computed in float32.
  """
  __slots__ = ()

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
  def allclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all values are close (see ``isclose``), as Python's bool; computes it now. Raises CaptureError while a jit
    records."""
    return bool(self.isclose(other, rtol, atol, equal_nan).all().item())
  def equal(self, other: Base) -> bool:
    """Whether the other tensor has this shape and these values (NaN equals nothing), as Python's bool; computes it now. Raises
    CaptureError while a jit records."""
    return self.shape == other.shape and bool(self.detach().named().eq(other.detach().named()).all().item())

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
    return self - self.trunc() if self.dtype.kind in "fe" else self.zeros_like()
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
  negative, absolute, fix, invert = Elementwise.neg, Elementwise.abs, Elementwise.trunc, Elementwise.bitwise_not
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

  # ---- activations of more than one element
  def softmin(self, dim: int | str = -1, dtype: DType | str | None = None) -> Self:
    """softmax(-x) along a dim. Raises AxisError."""
    return self.neg().softmax(dim, dtype)
  def normalize(self, p: float = 2, dim: int | str = 1, eps: float = 1e-12) -> Self:
    """x over its p-norm along a dim, which counts as ``eps`` at least. Raises AxisError, ArgumentError; see ``norm``."""
    x = self._in_floats()
    wide = x.cast(graph.acc_dtype(x.dtype))
    a = self._dim("normalize", dim)
    return (wide / wide.norm(p, a, keepdim=True).clamp(eps)).cast(x.dtype)
  def glu(self, dim: int | str = -1) -> Self:
    """The first half along a dim, times the sigmoid of the second one. Raises AxisError; ShapeError for a dim that is not
    even."""
    a = self._dim("glu", dim)
    if not self.ndim or self.shape[a] % 2: raise ShapeError(f"glu: shape {self.shape} along {dim}; the dimension must be even")
    first, second = self.split(self.shape[a] // 2, a) if self.shape[a] else (self, self)
    return first * second.sigmoid()
  def prelu(self, weight: Operand) -> Self:
    """x where positive, else weight * x; the weight is one number, or one for each channel (dimension 1). Raises ShapeError."""
    one_width("prelu", self, weight)
    w = weight.named()
    if w.numel() == 1: w = w.reshape(())
    elif self.ndim < 2 or w.shape != self.shape[1:2]:
      raise ShapeError(f"prelu: a weight of shape {weight.shape} for shape {self.shape}; it has 1 element, or 1 for each channel")
    else: w = w.reshape((-1,) + (1,) * (self.ndim - 2))
    return (self > 0).where(self, self * w)

  # ---- bits
  def view(self, *shape: Any, dtype: Any = None) -> Self:
    """``reshape``, or, of one dtype or its name, ``bitcast``. Raises ShapeError, ArgumentError, DTypeError."""
    if dtype is None and len(shape) == 1 and isinstance(shape[0], (DType, str)): return self.bitcast(shape[0])
    if dtype is None: return self.reshape(*shape)
    if shape: raise ArgumentError(f"view: a shape {shown(shape)} and dtype={shown(dtype)}; give one of them")
    return self.bitcast(dtype)

  def bitcast(self, dtype: DType | str) -> Self:
    """A view of the same bits as another dtype. One of another size changes the last dimension: (.., n) of float32 is (.., 4n) of
    uint8 (the lowest byte first) and (.., n / 2) of float64. No gradient passes, but for the same dtype.

    Raises DTypeError where one is bool and the other is not, ShapeError where the last dimension is missing or does not divide.
    """
    d, u = dtypes.of(dtype), self.lazydata
    if d is u.dtype: return self._seen((Ops.RESHAPE, u.shape))
    if (d.kind == "b") != (u.dtype.kind == "b"):
      raise DTypeError(f"bitcast: {u.dtype.name} as {d.name}; bool goes with bool only")
    few, many = sorted((d.itemsize, u.dtype.itemsize))
    n = many // few
    if n > 1 and (not u.shape or (few != d.itemsize and u.shape[-1] % n)):
      raise ShapeError(f"bitcast: shape {u.shape} of {u.dtype.name} as {d.name}; the last dimension must be there"
                       + (f", and a multiple of {n}" if u.shape else ""))
    called = self._names if n == 1 or self._names is None else (*self._names[:-1], None)
    return self._of_alias(Bits(origins.note_origin(graph.bits(u, d)), self._alias, (*self._view, (Ops.BITCAST, d))), called)


def _greatest(d: DType) -> float:
  """The greatest finite number of a float dtype."""
  import ml_dtypes
  return float(ml_dtypes.finfo(d.np).max)
