# Written by `python -m ntgrad stubs` from ntgrad/compat/signatures.py.
from __future__ import annotations

from ntgrad.core import memory_format
from ntgrad.tensor import Tensor
from ntgrad.tensor.elementwise import DType, Operand
from ntgrad.tensor.linalg import Axis, SignAndLogarithm
from ntgrad.tensor.movement import Dims, Ints
from ntgrad.tensor.random import Generator
from ntgrad.tensor.reduction import MinMax
from ntgrad.tensor.sorting import Picked
from typing import Any, Sequence

def abs(input: Tensor) -> Tensor:
  """The absolute value."""

def abs_(input: Tensor) -> Tensor:
  """``abs``, written in place; see ``add_``."""

def absolute(input: Tensor) -> Tensor:
  """The absolute value."""

def acos(input: Tensor) -> Tensor:
  """The angle whose cosine the value is, from 0 to pi; NaN beyond 1."""

def acos_(input: Tensor) -> Tensor:
  """``acos``, written in place; see ``add_``."""

def acosh(input: Tensor) -> Tensor:
  """The inverse of cosh, not negative; NaN beneath 1."""

def acosh_(input: Tensor) -> Tensor:
  """``acosh``, written in place; see ``add_``."""

def arccos(input: Tensor) -> Tensor:
  """The angle whose cosine the value is, from 0 to pi; NaN beyond 1."""

def arccosh(input: Tensor) -> Tensor:
  """The inverse of cosh, not negative; NaN beneath 1."""

def arcsin(input: Tensor) -> Tensor:
  """The angle whose sine the value is, from -pi/2 to pi/2; NaN beyond 1."""

def arcsinh(input: Tensor) -> Tensor:
  """The inverse of sinh."""

def arctan(input: Tensor) -> Tensor:
  """The angle whose tangent the value is, from -pi/2 to pi/2."""

def arctanh(input: Tensor) -> Tensor:
  """The inverse of tanh; infinite at 1 and -1, NaN beyond."""

def argwhere(input: Tensor) -> Tensor:
  """``nonzero()``."""

def asin(input: Tensor) -> Tensor:
  """The angle whose sine the value is, from -pi/2 to pi/2; NaN beyond 1."""

def asin_(input: Tensor) -> Tensor:
  """``asin``, written in place; see ``add_``."""

def asinh(input: Tensor) -> Tensor:
  """The inverse of sinh."""

def asinh_(input: Tensor) -> Tensor:
  """``asinh``, written in place; see ``add_``."""

def atan(input: Tensor) -> Tensor:
  """The angle whose tangent the value is, from -pi/2 to pi/2."""

def atan_(input: Tensor) -> Tensor:
  """``atan``, written in place; see ``add_``."""

def atanh(input: Tensor) -> Tensor:
  """The inverse of tanh; infinite at 1 and -1, NaN beyond."""

def atanh_(input: Tensor) -> Tensor:
  """``atanh``, written in place; see ``add_``."""

def bitwise_not(input: Tensor) -> Tensor:
  """Every bit of ints inverted; logical not of bools."""

def ceil(input: Tensor) -> Tensor:
  """Rounded up; ints as they are."""

def ceil_(input: Tensor) -> Tensor:
  """``ceil``, written in place; see ``add_``."""

def corrcoef(input: Tensor) -> Tensor:
  """The correlations, from -1 to 1, of variables (rows) over observations (columns); see ``cov``. Raises ShapeError."""

def cos(input: Tensor) -> Tensor:
  """The cosine of radians."""

def cos_(input: Tensor) -> Tensor:
  """``cos``, written in place; see ``add_``."""

def cosh(input: Tensor) -> Tensor:
  """The hyperbolic cosine."""

def cosh_(input: Tensor) -> Tensor:
  """``cosh``, written in place; see ``add_``."""

def deg2rad(input: Tensor) -> Tensor:
  """Degrees in radians."""

def deg2rad_(input: Tensor) -> Tensor:
  """``deg2rad``, written in place; see ``add_``."""

def det(input: Tensor) -> Tensor:
  """Determinants (..) of square matrices (.., n, n), by LU with pivots. Raises ShapeError."""

def detach(input: Tensor) -> Tensor:
  """The same memory; no gradient passes through it."""

def detach_(input: Tensor) -> Tensor:
  """No gradient passes through this tensor itself from now on; a leaf is none any more."""

def digamma(input: Tensor) -> Tensor:
  """The derivative of lgamma. NaN at negative whole numbers."""

def erf(input: Tensor) -> Tensor:
  """The error function."""

def erf_(input: Tensor) -> Tensor:
  """``erf``, written in place; see ``add_``."""

def erfc(input: Tensor) -> Tensor:
  """1 - erf(x), accurate where that is small."""

def erfc_(input: Tensor) -> Tensor:
  """``erfc``, written in place; see ``add_``."""

def erfinv(input: Tensor) -> Tensor:
  """The inverse of erf; infinite at 1 and -1, NaN beyond."""

def exp(input: Tensor) -> Tensor:
  """e to the power of the value."""

def exp2(input: Tensor) -> Tensor:
  """2 to the power of the value."""

def exp2_(input: Tensor) -> Tensor:
  """``exp2``, written in place; see ``add_``."""

def exp_(input: Tensor) -> Tensor:
  """``exp``, written in place; see ``add_``."""

def expm1(input: Tensor) -> Tensor:
  """exp(x) - 1, accurate near 0."""

def expm1_(input: Tensor) -> Tensor:
  """``expm1``, written in place; see ``add_``."""

def fix(input: Tensor) -> Tensor:
  """Rounded to zero; ints as they are."""

def fliplr(input: Tensor) -> Tensor:
  """A view with the second dim reversed. Raises ShapeError for fewer than two."""

def flipud(input: Tensor) -> Tensor:
  """A view with the first dim reversed. Raises ShapeError for shape ()."""

def floor(input: Tensor) -> Tensor:
  """Rounded down; ints as they are."""

def floor_(input: Tensor) -> Tensor:
  """``floor``, written in place; see ``add_``."""

def frac(input: Tensor) -> Tensor:
  """What is behind the point, with the sign of the value; ints give 0."""

def frac_(input: Tensor) -> Tensor:
  """``frac``, written in place; see ``add_``."""

def inverse(input: Tensor) -> Tensor:
  """The inverses of square matrices (.., n, n), by LU with pivots; infinities or NaN where there is none. Raises ShapeError."""

def is_floating_point(input: Tensor) -> bool:
  """Whether the dtype is a float."""

def isfinite(input: Tensor) -> Tensor:
  """Whether the value is neither infinite nor NaN."""

def isinf(input: Tensor) -> Tensor:
  """Whether the value is inf or -inf, or only one of them."""

def isnan(input: Tensor) -> Tensor:
  """Whether the value is NaN."""

def isneginf(input: Tensor) -> Tensor:
  """Whether the value is -inf."""

def isposinf(input: Tensor) -> Tensor:
  """Whether the value is inf."""

def lgamma(input: Tensor) -> Tensor:
  """The logarithm of the absolute value of the gamma function."""

def log(input: Tensor) -> Tensor:
  """The natural logarithm."""

def log10(input: Tensor) -> Tensor:
  """The logarithm to base 10."""

def log10_(input: Tensor) -> Tensor:
  """``log10``, written in place; see ``add_``."""

def log1p(input: Tensor) -> Tensor:
  """log(1 + x), accurate near 0."""

def log1p_(input: Tensor) -> Tensor:
  """``log1p``, written in place; see ``add_``."""

def log2(input: Tensor) -> Tensor:
  """The logarithm to base 2."""

def log2_(input: Tensor) -> Tensor:
  """``log2``, written in place; see ``add_``."""

def log_(input: Tensor) -> Tensor:
  """``log``, written in place; see ``add_``."""

def logdet(input: Tensor) -> Tensor:
  """Logarithms of determinants (..) of (.., n, n): -inf for 0, NaN for one beneath it. Raises ShapeError."""

def logical_not(input: Tensor) -> Tensor:
  """True where the value is zero."""

def neg(input: Tensor) -> Tensor:
  """``-self``; bools are refused (DTypeError)."""

def neg_(input: Tensor) -> Tensor:
  """``neg``, written in place; see ``add_``."""

def negative(input: Tensor) -> Tensor:
  """``-self``; bools are refused (DTypeError)."""

def numel(input: Tensor) -> int:
  """The number of elements."""

def positive(input: Tensor) -> Tensor:
  """The value itself. Raises DTypeError for bools."""

def rad2deg(input: Tensor) -> Tensor:
  """Radians in degrees."""

def rad2deg_(input: Tensor) -> Tensor:
  """``rad2deg``, written in place; see ``add_``."""

def ravel(input: Tensor) -> Tensor:
  """A view of one dim: ``flatten()``."""

def reciprocal(input: Tensor) -> Tensor:
  """1 / value."""

def reciprocal_(input: Tensor) -> Tensor:
  """``reciprocal``, written in place; see ``add_``."""

def rsqrt(input: Tensor) -> Tensor:
  """1 / square root."""

def rsqrt_(input: Tensor) -> Tensor:
  """``rsqrt``, written in place; see ``add_``."""

def sigmoid_(input: Tensor) -> Tensor:
  """``sigmoid``, written in place; see ``add_``."""

def sign(input: Tensor) -> Tensor:
  """-1, 0 or 1 (0 also of -0.0); NaN stays."""

def signbit(input: Tensor) -> Tensor:
  """Whether the value has a minus: also -0.0 and a NaN with one."""

def sin(input: Tensor) -> Tensor:
  """The sine of radians."""

def sin_(input: Tensor) -> Tensor:
  """``sin``, written in place; see ``add_``."""

def sinc(input: Tensor) -> Tensor:
  """sin(pi x) / (pi x), and 1 at 0."""

def sinc_(input: Tensor) -> Tensor:
  """``sinc``, written in place; see ``add_``."""

def sinh(input: Tensor) -> Tensor:
  """The hyperbolic sine."""

def sinh_(input: Tensor) -> Tensor:
  """``sinh``, written in place; see ``add_``."""

def slogdet(input: Tensor) -> SignAndLogarithm:
  """The sign of determinants (1, -1, or 0), and the logarithm of their size (-inf for 0), each (..). Raises ShapeError."""

def sqrt(input: Tensor) -> Tensor:
  """The square root."""

def sqrt_(input: Tensor) -> Tensor:
  """``sqrt``, written in place; see ``add_``."""

def square(input: Tensor) -> Tensor:
  """``self * self``; of bools ints, as ``** 2`` has them."""

def square_(input: Tensor) -> Tensor:
  """``square``, written in place; see ``add_``."""

def t(input: Tensor) -> Tensor:
  """(m, n) -> (n, m), a view; a tensor of one dimension or none as it is. Raises ShapeError for more dimensions."""

def tan(input: Tensor) -> Tensor:
  """The tangent of radians."""

def tan_(input: Tensor) -> Tensor:
  """``tan``, written in place; see ``add_``."""

def tanh_(input: Tensor) -> Tensor:
  """``tanh``, written in place; see ``add_``."""

def trace(input: Tensor) -> Tensor:
  """The sum of a matrix's diagonal; ints as ``sum`` has them. Raises ShapeError for other than 2 dimensions."""

def trunc(input: Tensor) -> Tensor:
  """Rounded to zero; ints as they are."""

def trunc_(input: Tensor) -> Tensor:
  """``trunc``, written in place; see ``add_``."""

def zero_(input: Tensor) -> Tensor:
  """Zeros, written in place; see ``add_``."""

def arctan2(input: Tensor, other: Any) -> Tensor:
  """The angle of the point (other, self), from -pi to pi. No slope at (0, 0)."""

def atan2(input: Tensor, other: Any) -> Tensor:
  """The angle of the point (other, self), from -pi to pi. No slope at (0, 0)."""

def bitwise_and(input: Tensor, other: Any) -> Tensor:
  """``self & other`` for ints and bools."""

def bitwise_left_shift(input: Tensor, other: Any) -> Tensor:
  """``self << other``; see ``lshift``."""

def bitwise_or(input: Tensor, other: Any) -> Tensor:
  """``self | other`` for ints and bools."""

def bitwise_right_shift(input: Tensor, other: Any) -> Tensor:
  """``self >> other``; see ``rshift``."""

def bitwise_xor(input: Tensor, other: Any) -> Tensor:
  """``self ^ other`` for ints and bools."""

def copysign(input: Tensor, other: Any) -> Tensor:
  """The size of the value with the sign of the other one, zeros and NaN included; of ints float32. No slope at 0."""

def eq(input: Tensor, other: Any) -> Tensor:
  """``self == other``, elementwise."""

def equal(input: Tensor, other: Tensor) -> bool:
  """Whether the other tensor has this shape and these values (NaN equals nothing), as Python's bool; computes it now. Raises
    CaptureError while a jit records."""

def floor_divide(input: Tensor, other: Any) -> Tensor:
  """``self // other``, rounded down. Raises ArgumentError for an int divided by the number 0."""

def fmax(input: Tensor, other: Any) -> Tensor:
  """The greater of both; of NaN and a number the number."""

def fmin(input: Tensor, other: Any) -> Tensor:
  """The lesser of both; of NaN and a number the number."""

def fmod(input: Tensor, other: Any) -> Tensor:
  """What division leaves, with the sign of this value, as C has it. Raises ArgumentError for an int divided by the number 0."""

def gcd(input: Tensor, other: Any) -> Tensor:
  """The greatest common divisor of ints, at least 0; 0 of two zeros."""

def ge(input: Tensor, other: Any) -> Tensor:
  """``self >= other``, elementwise."""

def greater(input: Tensor, other: Any) -> Tensor:
  """``self > other``, elementwise."""

def greater_equal(input: Tensor, other: Any) -> Tensor:
  """``self >= other``, elementwise."""

def gt(input: Tensor, other: Any) -> Tensor:
  """``self > other``, elementwise."""

def hypot(input: Tensor, other: Any) -> Tensor:
  """sqrt(self**2 + other**2), without overflow. No slope at (0, 0)."""

def inner(input: Tensor, other: Operand) -> Tensor:
  """The sum of products over the last dimension of both: (.., k), (*o, k) -> (.., *o); with a number it is ``*``. Raises
    ShapeError."""

def kron(input: Tensor, other: Operand) -> Tensor:
  """Kronecker's product: (a, b), (c, d) -> (a*c, b*d), each element of the first times all of the second; of tensors with
    fewer dimensions the first ones are 1. The names of dimensions go."""

def lcm(input: Tensor, other: Any) -> Tensor:
  """The least common multiple of ints, at least 0; 0 where one of both is 0."""

def ldexp(input: Tensor, other: Operand) -> Tensor:
  """``self * 2**other``, a float: with ints as ``other`` of this dtype."""

def le(input: Tensor, other: Any) -> Tensor:
  """``self <= other``, elementwise."""

def less(input: Tensor, other: Any) -> Tensor:
  """``self < other``, elementwise."""

def less_equal(input: Tensor, other: Any) -> Tensor:
  """``self <= other``, elementwise."""

def logaddexp(input: Tensor, other: Any) -> Tensor:
  """log(exp(self) + exp(other)), without overflow."""

def logaddexp2(input: Tensor, other: Any) -> Tensor:
  """log2(2**self + 2**other), without overflow."""

def logical_and(input: Tensor, other: Operand) -> Tensor:
  """Whether neither value is zero."""

def logical_or(input: Tensor, other: Operand) -> Tensor:
  """Whether one of both values is not zero."""

def logical_xor(input: Tensor, other: Operand) -> Tensor:
  """Whether exactly one of both values is not zero."""

def lt(input: Tensor, other: Any) -> Tensor:
  """``self < other``, elementwise."""

def matmul(input: Tensor, other: Any) -> Tensor:
  """``self @ other``; see ``dot``."""

def maximum(input: Tensor, other: Any) -> Tensor:
  """The greater of both, NaN where either is NaN. Where they are equal each has half of the gradient."""

def minimum(input: Tensor, other: Any) -> Tensor:
  """The lesser of both, NaN where either is NaN. Where they are equal each has half of the gradient."""

def mul(input: Tensor, other: Any) -> Tensor:
  """``self * other``."""

def multiply(input: Tensor, other: Any) -> Tensor:
  """``self * other``."""

def ne(input: Tensor, other: Any) -> Tensor:
  """``self != other``, elementwise."""

def nextafter(input: Tensor, other: Any) -> Tensor:
  """The float of this dtype that is next to the value on the other one's side; of ints float32. No gradient."""

def not_equal(input: Tensor, other: Any) -> Tensor:
  """``self != other``, elementwise."""

def remainder(input: Tensor, other: Any) -> Tensor:
  """``self % other``, with the sign of the divisor. Raises ArgumentError for an int divided by the number 0."""

def true_divide(input: Tensor, other: Any) -> Tensor:
  """``self / other``: ints give float32."""

def vdot(input: Tensor, other: Operand) -> Tensor:
  """The inner product of two vectors: (n,), (n,) -> (). Raises ShapeError."""

def xlogy(input: Tensor, other: Any) -> Tensor:
  """self * log(other), and 0 where self is 0 (unless other is NaN)."""

def xlogy_(input: Tensor, other: Any) -> Tensor:
  """``xlogy``, written in place; see ``add_``."""

def clone(input: Tensor, *, memory_format: memory_format | None=None) -> Tensor:
  """The same value as a tensor of its own (memory is copied when one of the two is written), on a device, or where it is;
    gradients pass. ``memory_format`` has no effect. Raises DeviceError."""

def add(input: Tensor, other: Any, *, alpha: float=1) -> Tensor:
  """``self + alpha * other``."""

def sub(input: Tensor, other: Any, *, alpha: float=1) -> Tensor:
  """``self - alpha * other``; bools are refused (DTypeError)."""

def subtract(input: Tensor, other: Any, *, alpha: float=1) -> Tensor:
  """``self - alpha * other``."""

def div(input: Tensor, other: Any, *, rounding_mode: str | None=None) -> Tensor:
  """``self / other``, true division: ints give float32. With ``rounding_mode`` "trunc" rounded to zero, with "floor" down: ints
    stay ints. Raises ArgumentError for another mode, and for an int that is so divided by the number 0."""

def divide(input: Tensor, other: Any, *, rounding_mode: str | None=None) -> Tensor:
  """``self / other``; see ``div``."""

def dist(input: Tensor, other: Operand, p: float=2) -> Tensor:
  """The p-norm of the difference of both tensors, over all elements; see ``norm``."""

def allclose(input: Tensor, other: Any, rtol: float=1e-05, atol: float=1e-08, equal_nan: bool=False) -> bool:
  """Whether all values are close (see ``isclose``), a Python bool, computed now. Raises CaptureError while a jit records."""

def isclose(input: Tensor, other: Any, rtol: float=1e-05, atol: float=1e-08, equal_nan: bool=False) -> Tensor:
  """Whether ``|self - other| <= atol + rtol * |other|``; infinities are close to equal ones only, NaN to NaN if ``equal_nan``.
    Raises ArgumentError for tolerances beneath 0."""

def float_power(input: Tensor, exponent: Operand) -> Tensor:
  """``self ** exponent``, computed and given in float64."""

def dot(input: Tensor, tensor: Any) -> Tensor:
  """The matrix product: 1-d with 1-d is the inner product; dims before the last two broadcast. Raises ShapeError. (.., m, k) @
    (.., k, n) -> (.., m, n), in the dtype that both have together, or ``dtype``. float16, bfloat16 and fp8 are added up in
    float32, small ints and bools in int32; int sums that the dtype does not hold wrap. Raises DTypeError for float64 with a
    smaller float that requires a gradient."""

def bmm(input: Tensor, mat2: Operand) -> Tensor:
  """Products of as many matrices: (b, m, k), (b, k, n) -> (b, m, n); dtypes as for ``dot``. Raises ShapeError."""

def mm(input: Tensor, mat2: Operand) -> Tensor:
  """The product of two matrices: (m, k), (k, n) -> (m, n); dtypes as for ``dot``. Raises ShapeError."""

def mv(input: Tensor, vec: Operand) -> Tensor:
  """A matrix times a vector: (m, k), (k,) -> (m,); dtypes as for ``dot``. Raises ShapeError."""

def ger(input: Tensor, vec2: Operand) -> Tensor:
  """``outer``."""

def outer(input: Tensor, vec2: Operand) -> Tensor:
  """(m,), (n,) -> (m, n). Raises ShapeError."""

def addbmm(input: Tensor, batch1: Operand, batch2: Operand, *, beta: float=1, alpha: float=1) -> Tensor:
  """``beta * self + alpha * (batch1 @ batch2).sum(0)`` of matrices (b, n, k) and (b, k, m); see ``addmm``."""

def baddbmm(input: Tensor, batch1: Operand, batch2: Operand, *, beta: float=1, alpha: float=1) -> Tensor:
  """``beta * self + alpha * (batch1 @ batch2)`` of matrices (b, n, k) and (b, k, m); see ``addmm``."""

def addmv(input: Tensor, mat: Operand, vec: Operand, *, beta: float=1, alpha: float=1) -> Tensor:
  """``beta * self + alpha * (mat @ vec)`` of a matrix (n, k) and a vector (k,); see ``addmm``."""

def addmm(input: Tensor, mat1: Operand, mat2: Operand, *, beta: float=1, alpha: float=1) -> Tensor:
  """``beta * self + alpha * (mat1 @ mat2)`` of matrices (n, k) and (k, m); with a beta of 0 this tensor does not count. Raises
    ShapeError for tensors of other shapes."""

def addr(input: Tensor, vec1: Operand, vec2: Operand, *, beta: float=1, alpha: float=1) -> Tensor:
  """``beta * self + alpha * vec1.outer(vec2)`` of vectors (n,) and (m,); with a beta of 0 this tensor does not count. Raises
    ShapeError."""

def addcdiv(input: Tensor, tensor1: Operand, tensor2: Operand, *, value: float=1) -> Tensor:
  """``self + value * tensor1 / tensor2``."""

def addcmul(input: Tensor, tensor1: Operand, tensor2: Operand, *, value: float=1) -> Tensor:
  """``self + value * tensor1 * tensor2``."""

def lerp(input: Tensor, end: Any, weight: Any) -> Tensor:
  """``self + (end - self) * weight``."""

def clamp(input: Tensor, min: Any=None, max: Any=None) -> Tensor:
  """Not below the least nor above the greatest value; the gradient passes where the value stays as it is, the limits included.
    NaN stays, and comes of limits that are NaN. Raises ArgumentError if neither is given, or for the number NaN."""

def clamp_(input: Tensor, min: Any=None, max: Any=None) -> Tensor:
  """``clamp``, written in place; see ``add_``."""

def clip(input: Tensor, min: Any=None, max: Any=None) -> Tensor:
  """Not below the least nor above the greatest value; the gradient passes where the value stays as it is, the limits included.
    NaN stays, and comes of limits that are NaN. Raises ArgumentError if neither is given, or for the number NaN."""

def clip_(input: Tensor, min: Any=None, max: Any=None) -> Tensor:
  """``clip``, written in place; see ``add_``."""

def clamp_max(input: Tensor, max: Any) -> Tensor:
  """Not above a number or tensor; see ``clamp``."""

def clamp_max_(input: Tensor, max: Any) -> Tensor:
  """``clamp_max``, written in place; see ``add_``."""

def clamp_min(input: Tensor, min: Any) -> Tensor:
  """Not below a number or tensor; see ``clamp``."""

def clamp_min_(input: Tensor, min: Any) -> Tensor:
  """``clamp_min``, written in place; see ``add_``."""

def nan_to_num(input: Tensor, nan: float=0.0, posinf: float | None=None, neginf: float | None=None) -> Tensor:
  """Numbers in place of NaN and infinities: for an infinity, None is the greatest or least finite number of the dtype."""

def nan_to_num_(input: Tensor, nan: float=0.0, posinf: float | None=None, neginf: float | None=None) -> Tensor:
  """``nan_to_num``, written in place; see ``add_``."""

def logit(input: Tensor, eps: float | None=None) -> Tensor:
  """log(x / (1 - x)), the inverse of sigmoid; with ``eps`` x is first kept within eps and 1 - eps. Raises ArgumentError for an
    eps that is not from 0 to 0.5."""

def logit_(input: Tensor, eps: float | None=None) -> Tensor:
  """``logit``, written in place; see ``add_``."""

def heaviside(input: Tensor, values: Any) -> Tensor:
  """0 beneath 0, 1 above it, ``values`` at 0; NaN stays. Without gradient."""

def fill(input: Tensor, value: Any) -> Tensor:
  """A number everywhere, of this shape, dtype and device."""

def fill_(input: Tensor, value: Any) -> Tensor:
  """A number (or a tensor of one element) everywhere, written in place; see ``add_``."""

def round(input: Tensor, *, decimals: int=0) -> Tensor:
  """Rounded to the nearest, halves to even, or to a number of ``decimals``; ints as they are. Raises ArgumentError."""

def round_(input: Tensor, *, decimals: int=0) -> Tensor:
  """``round``, written in place; see ``add_``."""

def all(input: Tensor, dim: Axis=None, keepdim: bool=False) -> Tensor:
  """Whether every one along axes (None: all) is not zero. Raises AxisError."""

def amax(input: Tensor, dim: Axis=None, keepdim: bool=False) -> Tensor:
  """The greatest along dims (None: all), NaN if one is NaN. Raises AxisError; ArgumentError of none."""

def amin(input: Tensor, dim: Axis=None, keepdim: bool=False) -> Tensor:
  """The least along dims (None: all), NaN if one is NaN. Raises AxisError; ArgumentError of none."""

def any(input: Tensor, dim: Axis=None, keepdim: bool=False) -> Tensor:
  """Whether one along axes (None: all) is not zero. Raises AxisError."""

def argmax(input: Tensor, dim: int | str | None=None, keepdim: bool=False) -> Tensor:
  """Where the greatest is along an axis (None: in the flattened tensor), int32 (int64 among 2**31 elements or more); the first of
    equals, a NaN before all. Raises AxisError."""

def argmin(input: Tensor, dim: int | str | None=None, keepdim: bool=False) -> Tensor:
  """Where the least is along an axis; see ``argmax``. Raises AxisError."""

def median(input: Tensor, dim: int | str | None=None, keepdim: bool=False) -> Any:
  """The median along a dim as ``(values, indices)``, or (None) of all elements as one value. Of an even number of elements the
    lower of the two in the middle (``quantile(0.5)`` is between them); NaN where one is NaN. Raises AxisError, ArgumentError."""

def nanmean(input: Tensor, dim: Axis=None, keepdim: bool=False) -> Tensor:
  """The mean along dims (None: all) of what is not NaN; NaN where all are. Raises AxisError."""

def nanmedian(input: Tensor, dim: int | str | None=None, keepdim: bool=False) -> Any:
  """``median`` of the elements that are not NaN; NaN where all are. Raises AxisError, ArgumentError."""

def aminmax(input: Tensor, *, dim: Axis=None, keepdim: bool=False) -> MinMax:
  """``(min, max)`` along dims (None: all). Raises AxisError; ArgumentError for no elements."""

def mean(input: Tensor, dim: Axis=None, keepdim: bool=False, *, dtype: DType | str | None=None) -> Tensor:
  """The mean along axes (None: all); of ints and bools the default float; with ``dtype`` elements are cast first. Raises
    AxisError."""

def nansum(input: Tensor, dim: Axis=None, keepdim: bool=False, *, dtype: DType | str | None=None) -> Tensor:
  """The sum along dims (None: all) of what is not NaN; see ``sum``. Raises AxisError."""

def prod(input: Tensor, dim: Axis=None, keepdim: bool=False, *, dtype: DType | str | None=None) -> Tensor:
  """The product along axes (None: all), of ints and bools int64; with ``dtype`` elements are cast first. Raises AxisError."""

def sum(input: Tensor, dim: Axis=None, keepdim: bool=False, *, dtype: DType | str | None=None) -> Tensor:
  """The sum along axes (None: all), of ints and bools int64; with ``dtype`` elements are cast first. Raises AxisError."""

def logsumexp(input: Tensor, dim: Axis, keepdim: bool=False) -> Tensor:
  """log(sum(exp(x))) along axes (None: all), without overflow. Raises AxisError."""

def cumprod(input: Tensor, dim: int | str, *, dtype: DType | str | None=None) -> Tensor:
  """Running products along a dim, of ints and bools int64; with ``dtype`` elements are cast first. Raises AxisError."""

def cumsum(input: Tensor, dim: int | str, *, dtype: DType | str | None=None) -> Tensor:
  """Running sums along an axis, of ints and bools int64; with ``dtype`` elements are cast first. Raises AxisError."""

def cummax(input: Tensor, dim: int | str) -> Picked:
  """The greatest so far along a dim and where it is (of equal ones the last), int32; a NaN stays. Raises AxisError."""

def cummin(input: Tensor, dim: int | str) -> Picked:
  """The least so far along a dim and where it is (of equal ones the last), int32; a NaN stays. Raises AxisError."""

def logcumsumexp(input: Tensor, dim: int | str) -> Tensor:
  """log(cumsum(exp(x))) along a dim (the first one unless told otherwise), without overflow or loss of what is far beneath the
    greatest. Raises AxisError."""

def unsqueeze(input: Tensor, dim: int | str) -> Tensor:
  """A new dim of 1 at ``dim``. Raises AxisError."""

def mode(input: Tensor, dim: int | str=-1, keepdim: bool=False) -> Picked:
  """``(values, indices)``: what occurs most often along a dim, the least of several, and where it stands last. Raises
    AxisError, ArgumentError."""

def kthvalue(input: Tensor, k: int, dim: int | str=-1, keepdim: bool=False) -> Picked:
  """``(values, indices)`` of the k-th least along a dim, counted from 1; NaN is greater than everything. Raises AxisError,
    ArgumentError for a k that is not from 1 to the size of the dim."""

def topk(input: Tensor, k: int, dim: int | str=-1, largest: bool=True, sorted: bool=True) -> Picked:
  """``(values, indices)`` of the k greatest along a dim (``largest=False``: the least), the greatest (least) first; of equal
    ones those that stand first. They are in order whatever ``sorted`` (or ``sorted_``) says. Raises AxisError, ArgumentError for
    a k that is not from 0 to the size of the dim."""

def argsort(input: Tensor, dim: int | str=-1, descending: bool=False, stable: bool=False) -> Tensor:
  """The indices (int32) of what stands along a dim in rising order; see :meth:`sort`. Raises AxisError."""

def sort(input: Tensor, dim: int | str=-1, descending: bool=False, stable: bool=False) -> Picked:
  """``(values, indices)``: the elements along a dim in rising (``descending``: falling) order, and where they stood (int32).
    Equal ones, as 0 and -0 are, keep their order whatever ``stable`` says; NaN is greater than everything. Raises AxisError."""

def searchsorted(sorted_sequence: Tensor, input: Operand, *, out_int32: bool=False, right: bool=False, side: str | None=None, sorter: Operand | None=None) -> Tensor:
  """How many elements of this sorted tensor (or of what is sorted in the order ``sorter``) are less than each value (``right``,
    or ``side="right"``: or equal): where it goes in front of (behind) equal ones, int32. (n,) and any shape, or (.., n) and
    (.., m) with the same dims in front; NaN is greater than everything. A search among 16 elements at a time: O(log n) each.
    Raises ShapeError, ArgumentError."""

def nanquantile(input: Tensor, q: Any, dim: int | str | None=None, keepdim: bool=False, *, interpolation: str='linear') -> Tensor:
  """``quantile`` of the elements that are not NaN; NaN where all are."""

def quantile(input: Tensor, q: Any, dim: int | str | None=None, keepdim: bool=False, *, interpolation: str='linear') -> Tensor:
  """What a part q (0 to 1) of the elements along a dim (None: all) is not above; NaN where one is NaN. Of several q, a list or
    a tensor (k,), the result has them as its first dim. Where it is between two elements, ``interpolation`` is "linear",
    "lower", "higher", "midpoint" or "nearest". A q in a tensor is not checked: what is beyond 0 and 1 counts as these.

    Raises AxisError, DTypeError, ShapeError, ArgumentError."""

def renorm(input: Tensor, p: float, dim: int | str, maxnorm: float) -> Tensor:
  """Each part along a dim whose p-norm is above ``maxnorm`` scaled down to it. Raises AxisError, DTypeError, ArgumentError."""

def cov(input: Tensor, *, correction: float=1, fweights: Operand | None=None, aweights: Operand | None=None) -> Tensor:
  """The covariance matrix of variables (rows; one dimension is one variable) over observations (columns). ``fweights`` (n,)
    says how often each observation counts (ints), ``aweights`` (n,) how much (floats not beneath 0). The sum of products is
    divided by the number of observations less ``correction``. Raises ShapeError, DTypeError."""

def unique(input: Tensor, sorted: bool=True, return_inverse: bool=False, return_counts: bool=False, dim: int | str | None=None) -> Any:
  """The different elements in rising order (whatever ``sorted`` says), or the different slices of a dim, as
    ``out[, inverse][, counts]``: ``out[inverse]`` is this tensor, and ``counts`` says how often each occurs (both int32). Every
    NaN is different. It is computed at once, and raises CaptureError while a jit records. Raises AxisError."""

def unique_consecutive(input: Tensor, return_inverse: bool=False, return_counts: bool=False, dim: int | str | None=None) -> Any:
  """The elements, or the slices of a dim, that are not as the one before them; otherwise as ``unique``."""

def bincount(input: Tensor, weights: Operand | None=None, minlength: int=0) -> Tensor:
  """How often each of 0, 1, .. occurs in a 1-d tensor of ints, int64, or the sum of its ``weights``: (n,) -> (greatest + 1,),
    at least ``minlength``. The greatest is computed at once, and raises CaptureError while a jit records. Raises ShapeError,
    DTypeError, ArgumentError for a negative element."""

def histc(input: Tensor, bins: int=100, min: float=0, max: float=0) -> Tensor:
  """How many elements are in each of ``bins`` equal parts from min to max, the last with its upper end, in this dtype (ints and
    bools: int64); elements outside and NaN count nowhere. Where both are equal, from the least to the greatest element. Raises
    ArgumentError."""

def histogram(input: Tensor, bins: Any=100, *, range: Sequence[float] | None=None, weight: Operand | None=None, density: bool=False) -> tuple[Tensor, Tensor]:
  """``(counts, edges)``, (n,) and (n + 1,): how many elements, or the sum of their weights, are in each of n equal bins of a
    range (None: from the least to the greatest element), or between the sorted edges that ``bins`` gives, the last one with its
    upper end. ``density``: divided by the sum and by how wide the bin is. float32, or this tensor's float dtype. Raises
    ArgumentError, ShapeError."""

def nonzero_static(input: Tensor, *, size: int, fill_value: int=-1) -> Tensor:
  """(size, ndim): the indices of the first ``size`` elements that are not zero, row by row, int32; ``fill_value`` where there
    are less. Unlike ``nonzero`` its shape is known, so that a jit can record it. Raises ArgumentError, ShapeError."""

def nonzero(input: Tensor, *, as_tuple: bool=False) -> Any:
  """(count, ndim): the indices of the elements that are not zero, row by row, int32; or ``as_tuple`` a tensor (count,) for each
    dim. It is computed at once, and raises CaptureError while a jit records, but with ``size``: then it is
    ``nonzero_static``."""

def diff(input: Tensor, n: int=1, dim: int | str=-1, prepend: Operand | None=None, append: Operand | None=None) -> Tensor:
  """Each element less the one before it along a dim, ``n`` times; of bools whether they differ. ``prepend`` and ``append`` are
    joined first. Raises AxisError; ArgumentError for n beneath 0; ShapeError for a tensor without dimensions."""

def cumulative_trapezoid(y: Tensor, x: Operand | None=None, *, dx: float=1, dim: int | str=-1) -> Tensor:
  """Running integrals along a dim, one less than it has elements; see ``trapezoid``."""

def trapezoid(y: Tensor, x: Operand | None=None, *, dx: float=1, dim: int | str=-1) -> Tensor:
  """The integral along a dim by trapezoids, whose bases are ``dx`` wide or given by the points ``x`` (one for each element of the
    dim, or of this shape). Ints give float32. Raises AxisError, ShapeError."""

def trapz(y: Tensor, x: Operand | None=None, *, dx: float=1, dim: int | str=-1) -> Tensor:
  """The integral along a dim by trapezoids, whose bases are ``dx`` wide or given by the points ``x`` (one for each element of the
    dim, or of this shape). Ints give float32. Raises AxisError, ShapeError."""

def swapdims(input: Tensor, dim0: int | str, dim1: int | str) -> Tensor:
  """``transpose``: a view with two dims swapped. Raises AxisError."""

def transpose(input: Tensor, dim0: int | str, dim1: int | str) -> Tensor:
  """Two dims swapped. Raises AxisError."""

def swapaxes(input: Tensor, axis0: int | str, axis1: int | str) -> Tensor:
  """``transpose``: a view with two dims swapped. Raises AxisError."""

def flip(input: Tensor, dims: Any) -> Tensor:
  """Dims with their elements in reverse order. Raises AxisError."""

def permute(input: Tensor, dims: Any) -> Tensor:
  """Dims in another order: (a, b, c).permute(2, 0, 1) -> (c, a, b). Raises AxisError unless every dim is named once."""

def moveaxis(input: Tensor, source: Dims, destination: Dims) -> Tensor:
  """A view with dims moved to other places, the others in their order: (a, b, c).movedim(0, -1) -> (b, c, a). Raises AxisError
    for a dim named twice, ArgumentError for another number of places than dims."""

def movedim(input: Tensor, source: Dims, destination: Dims) -> Tensor:
  """A view with dims moved to other places, the others in their order: (a, b, c).movedim(0, -1) -> (b, c, a). Raises AxisError
    for a dim named twice, ArgumentError for another number of places than dims."""

def reshape(input: Tensor, shape: Any) -> Tensor:
  """A view: the elements in row-major order in another shape; one size may be -1, and None is the size that the tensor has in
    this place. Raises ShapeError if the sizes do not give as many."""

def broadcast_to(input: Tensor, size: Any) -> Tensor:
  """Dims of 1 repeated to other sizes, new dims in front; -1 or None keeps a size. Raises ShapeError."""

def flatten(input: Tensor, start_dim: int | str=0, end_dim: int | str=-1) -> Tensor:
  """(a, b, c) -> (a*b*c,), or only the dims from start to end. Raises AxisError."""

def unflatten(input: Tensor, dim: int | str, sizes: Sequence[int]) -> Tensor:
  """(a*b,) -> (a, b) for one dim. Raises AxisError, ShapeError."""

def count_nonzero(input: Tensor, dim: Axis=None) -> Tensor:
  """How many along dims (None: all) are not 0, int64; NaN is not. Raises AxisError."""

def squeeze(input: Tensor, dim: int | str | Sequence[int | str] | None=None) -> Tensor:
  """Without dims of 1 (all, or the ones named if they are 1). Raises AxisError."""

def unbind(input: Tensor, dim: int | str=0) -> tuple[Tensor, ...]:
  """Views of the slices along a dim, without it: (n, ..) -> n of (..). Raises AxisError."""

def narrow(input: Tensor, dim: int | str, start: int, length: int) -> Tensor:
  """A view of ``length`` elements of a dim from ``start`` on (negative: from the end). Raises AxisError, ArgumentError."""

def chunk(input: Tensor, chunks: int, dim: int | str=0) -> tuple[Tensor, ...]:
  """At most so many equal pieces along a dim (the last may be smaller). Raises AxisError, ArgumentError."""

def unsafe_chunk(input: Tensor, chunks: int, dim: int | str=0) -> tuple[Tensor, ...]:
  """At most so many equal pieces along a dim (the last may be smaller). Raises AxisError, ArgumentError."""

def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int | str=0) -> tuple[Tensor, ...]:
  """Pieces of a size (the last may be smaller), or of the given sizes, along a dim. Raises AxisError, ArgumentError."""

def unsafe_split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int | str=0) -> tuple[Tensor, ...]:
  """Pieces of a size (the last may be smaller), or of the given sizes, along a dim. Raises AxisError, ArgumentError."""

def split_with_sizes(tensor: Tensor, split_sizes: int | Sequence[int], dim: int | str=0) -> tuple[Tensor, ...]:
  """Pieces of a size (the last may be smaller), or of the given sizes, along a dim. Raises AxisError, ArgumentError."""

def unsafe_split_with_sizes(tensor: Tensor, split_sizes: int | Sequence[int], dim: int | str=0) -> tuple[Tensor, ...]:
  """Pieces of a size (the last may be smaller), or of the given sizes, along a dim. Raises AxisError, ArgumentError."""

def dsplit(input: Tensor, indices_or_sections: Ints) -> tuple[Tensor, ...]:
  """The same of the third dim. Raises AxisError, ArgumentError."""

def hsplit(input: Tensor, indices_or_sections: Ints) -> tuple[Tensor, ...]:
  """Views of equal pieces, or up to given indices, of the second dim (of one: the first). Raises AxisError, ArgumentError."""

def vsplit(input: Tensor, indices_or_sections: Ints) -> tuple[Tensor, ...]:
  """The same of the first dim, of at least 2. Raises AxisError, ArgumentError."""

def tensor_split(input: Tensor, indices_or_sections: Ints, dim: int | str=0) -> tuple[Tensor, ...]:
  """Views: so many pieces of a dim, the first ones greater by one where it does not divide; or the pieces that end at the given
    indices (as slices have them), and the rest. Raises AxisError, ArgumentError."""

def roll(input: Tensor, shifts: Ints, dims: int | str | Sequence[int | str] | None=None) -> Tensor:
  """Elements moved along dims, those that fall off coming in at the other end. Raises AxisError, ArgumentError."""

def rot90(input: Tensor, k: int=1, dims: Sequence[int | str]=(0, 1)) -> Tensor:
  """A view turned k times by a right angle in the plane of two dims, from the first towards the second. Raises AxisError."""

def cat(tensors: Any, dim: int | str=0) -> Any:
  """Joined along a dim: ``a.cat(b, c, dim=1)``, ``Tensor.cat(a, b)``, ``Tensor.cat([a, b])`` or ``Tensor.cat([a, b], 1)``.
    Raises ShapeError, AxisError, DeviceError, ArgumentError."""

def concat(tensors: Any, dim: int | str=0) -> Any:
  """Joined along a dim: ``a.cat(b, c, dim=1)``, ``Tensor.cat(a, b)``, ``Tensor.cat([a, b])`` or ``Tensor.cat([a, b], 1)``.
    Raises ShapeError, AxisError, DeviceError, ArgumentError."""

def concatenate(tensors: Any, dim: int | str=0) -> Any:
  """Joined along a dim: ``a.cat(b, c, dim=1)``, ``Tensor.cat(a, b)``, ``Tensor.cat([a, b])`` or ``Tensor.cat([a, b], 1)``.
    Raises ShapeError, AxisError, DeviceError, ArgumentError."""

def stack(tensors: Any, dim: int | str=0) -> Any:
  """Joined along a new dim, given as for ``cat``. Raises ShapeError, AxisError, DeviceError, ArgumentError."""

def dstack(tensors: Any) -> Any:
  """Joined along the third dim, given as for ``cat``. Raises ShapeError, ArgumentError."""

def hstack(tensors: Any) -> Any:
  """Joined along the second dim (tensors of one dim: along that), given as for ``cat``. Raises ShapeError, ArgumentError."""

def row_stack(tensors: Any) -> Any:
  """Joined along the first dim, as rows where they have one dim, given as for ``cat``. Raises ShapeError, ArgumentError."""

def vstack(tensors: Any) -> Any:
  """Joined along the first dim, as rows where they have one dim, given as for ``cat``. Raises ShapeError, ArgumentError."""

def diag(input: Tensor, diagonal: int=0) -> Tensor:
  """(n,) -> a square matrix with the elements on a diagonal, zeros elsewhere; (m, n) -> the elements of that diagonal, a tensor
    of its own. ``diagonal`` is how far to the right of the main one it lies. Raises ShapeError for another number of dims."""

def tril(input: Tensor, diagonal: int=0) -> Tensor:
  """The lower triangle of the last two dims, zeros above. Raises ShapeError."""

def triu(input: Tensor, diagonal: int=0) -> Tensor:
  """The upper triangle of the last two dims, zeros below. Raises ShapeError."""

def diagflat(input: Tensor, offset: int=0) -> Tensor:
  """The elements, flattened, on a diagonal of a square matrix; zeros elsewhere."""

def diag_embed(input: Tensor, offset: int=0, dim1: int | str=-2, dim2: int | str=-1) -> Tensor:
  """(.., n) -> (.., m, m) with the last dim on a diagonal (``offset`` above the main one, m = n + |offset|), zeros elsewhere;
    the two dims of m stand at ``dim1`` and ``dim2``. Raises AxisError, ShapeError, ArgumentError."""

def diagonal(input: Tensor, offset: int=0, dim1: int | str=0, dim2: int | str=1) -> Tensor:
  """The elements whose index along ``dim2`` is that along ``dim1`` plus ``offset``: (.., m, .., n, ..) -> (.., k), the others
    first. A view: what is written to it is written to the tensor. Raises ShapeError, AxisError."""

def gather(input: Tensor, dim: int | str, index: Any) -> Tensor:
  """out[i][j] = self[index[i][j]][j] for dim 0, and so on; an index out of range is an error, or zeros, as for ``x[index]``.
    Raises ShapeError, DTypeError, AxisError."""

def index_select(input: Tensor, dim: int | str, index: Operand) -> Tensor:
  """Rows of a dim by a 1-d index: (a, n, b) -> (a, k, b). Raises AxisError, ShapeError, DTypeError, IndexOutOfRangeError."""

def select(input: Tensor, dim: int | str, index: int) -> Tensor:
  """A view of one place of a dim, without it: (a, b, c).select(1, i) -> (a, c). Raises AxisError, IndexOutOfRangeError."""

def index_copy(input: Tensor, dim: int | str, index: Operand, source: Operand) -> Tensor:
  """self with the rows of a dim that a 1-d index names replaced by those of ``source``; of equal indices the last counts.
    Raises as ``index_select``."""

def index_add(input: Tensor, dim: int | str, index: Operand, source: Operand, *, alpha: float=1) -> Tensor:
  """self with ``alpha * source`` added to the rows of a dim that a 1-d index names; for equal indices all are added. ``source``
    has one row for each index, or broadcasts to that. Raises as ``index_select``."""

def index_fill(input: Tensor, dim: int | str, index: Operand, value: Any) -> Tensor:
  """self with the rows of a dim that a 1-d index names filled with a number (or a tensor of shape ()). Raises as
    ``index_select``, ShapeError."""

def scatter_add(input: Tensor, dim: int | str, index: Any, src: Any) -> Tensor:
  """self with self[index[i][j]][j] += src[i][j] for dim 0, and so on. Raises as ``scatter``."""

def scatter_reduce(input: Tensor, dim: int | str, index: Any, src: Any, reduce: str, *, include_self: bool=True) -> Tensor:
  """self with what goes to one element combined: "sum", "prod", "mean", "amax" or "amin", with the element that was there or
    (``include_self=False``) without; where nothing goes the element stays. A mean of ints is rounded down. Sum and mean are one
    or two scatters. amax and amin sort the source first, prod sorts it by where it goes and takes log2(n) passes over its n
    elements: all O(n log n). Equal extremes share the gradient. Raises as ``scatter``."""

def take(input: Tensor, index: Operand) -> Tensor:
  """The elements of the flattened tensor at indices, of the index's shape. Raises DTypeError, IndexOutOfRangeError."""

def put(input: Tensor, index: Operand, source: Operand, accumulate: bool=False) -> Tensor:
  """self with the elements at indices of the flattened tensor replaced (of equal indices by the last), or ``accumulate``: added
    to, by those of ``source``. Raises DTypeError, ShapeError, IndexOutOfRangeError."""

def take_along_dim(input: Tensor, indices: Any, dim: int | str | None=None) -> Tensor:
  """``gather`` with the other dims broadcast; dim None: of the flattened tensor, by flattened indices. Raises ShapeError,
    DTypeError, AxisError."""

def index_put(input: Tensor, indices: Sequence[Any], values: Any, accumulate: bool=False) -> Tensor:
  """self with ``self[indices] = values`` (None in ``indices`` takes all of a dim), or ``accumulate``: with values added, for
    equal indices all of them. Raises as an assignment to parts; with masks that are to be added to CaptureError while a jit
    records."""

def index_put_(input: Tensor, indices: Sequence[Any], values: Any, accumulate: bool=False) -> Tensor:
  """``index_put``, written in place; see ``add_``."""

def masked_select(input: Tensor, mask: Operand) -> Tensor:
  """(count,): the elements where a bool mask is true, both broadcast together. It is computed at once, and raises CaptureError
    while a jit records, but with ``size``: then it is the first ``size`` of them, and ``fill_value`` where there are less. Raises
    DTypeError, ShapeError, ArgumentError."""

def masked_scatter(input: Tensor, mask: Operand, source: Operand) -> Tensor:
  """self with the elements where a bool mask (which broadcasts to this shape) is true replaced by those of ``source`` in order,
    which has at least as many. Lazy: too few are an error where the index checks of ``__getitem__`` are on. Raises DTypeError,
    ShapeError."""

def masked_fill(input: Tensor, mask: Operand, value: Any) -> Tensor:
  """This tensor, with a number (or what broadcasts) in its dtype where the bool mask is true. Raises DTypeError,
    ArgumentError."""

def select_scatter(input: Tensor, src: Operand, dim: int | str, index: int) -> Tensor:
  """A copy with ``src`` as what ``select(dim, index)`` gives. Raises AxisError, ShapeError, IndexOutOfRangeError."""

def slice_scatter(input: Tensor, src: Operand, dim: int | str=0, start: int | None=None, end: int | None=None, step: int=1) -> Tensor:
  """A copy with ``src`` as the elements ``start:end:step`` of a dim. Raises AxisError, ShapeError, ArgumentError."""

def diagonal_scatter(input: Tensor, src: Operand, offset: int=0, dim1: int | str=0, dim2: int | str=1) -> Tensor:
  """A copy with ``src`` as what ``diagonal(offset, dim1, dim2)`` gives. Raises AxisError, ShapeError."""

def combinations(input: Tensor, r: int=2, with_replacement: bool=False) -> Tensor:
  """(n,) -> (k, r): every choice of r elements in their order, each at most once or ``with_replacement``. Raises ShapeError,
    ArgumentError."""

def vander(x: Tensor, N: int | None=None, increasing: bool=False) -> Tensor:
  """(n,) -> (n, N): the powers of each element, the highest first or ``increasing`` from 0 on; of ints int64. Raises
    ShapeError, ArgumentError."""

def unravel_index(indices: Tensor, shape: Ints) -> tuple[Tensor, ...]:
  """Indices into a flattened tensor as one tensor of indices for each of its dims; negative ones count from the end. Raises
    ShapeError, DTypeError, ArgumentError."""

def tensordot(a: Tensor, b: Operand, dims: Any=2) -> Tensor:
  """The sum of products over several dimensions, then the other ones of the first and of the second. ``dims`` is a number (that
    many last ones of the first with as many first ones of the second), or two lists, the dimensions of the first and those of the
    second. Raises ShapeError, AxisError, ArgumentError."""

def cdist(x1: Tensor, x2: Operand, p: float=2.0) -> Tensor:
  """The p-norm of the difference of every two rows: (.., m, k), (.., n, k) -> (.., m, n); dims before the last two broadcast.
    Each difference is computed, so that near rows keep all digits of their distance. p goes from 0 (how many elements differ) to
    inf. Small floats are computed in float32, ints give float32; no slope where a distance is 0. Raises ShapeError,
    ArgumentError."""

def cholesky(input: Tensor, upper: bool=False) -> Tensor:
  """The lower triangles L with ``L @ L.mT = self`` of positive definite matrices (.., n, n); ``upper`` gives ``L.mT``. Only the
    lower triangle is read, and the gradient is symmetric. A matrix that is not positive definite gives NaN. Raises ShapeError."""

def cholesky_inverse(input: Tensor, upper: bool=False) -> Tensor:
  """The inverses of A from the factors L of ``A = L @ L.mT`` (``upper``: of ``L.mT @ L``): (.., n, n). Raises ShapeError."""

def cholesky_solve(input: Tensor, input2: Operand, upper: bool=False) -> Tensor:
  """The X with ``A @ X = self``, L being ``A.cholesky(upper)``: (.., n, k), (.., n, n) -> (.., n, k). Raises ShapeError."""

def matrix_power(input: Tensor, n: int) -> Tensor:
  """Square matrices (.., m, m) multiplied n times; the identity for 0, powers of the inverse for less. Raises ShapeError,
    for a negative n DTypeError."""

def pinverse(input: Tensor, rcond: float | None=1e-15) -> Tensor:
  """``pinv``."""

def linspace(start: float, end: float, steps: int, *, dtype: Any=None, device: str | None=None, requires_grad: bool | None=None) -> Tensor:
  """``steps`` evenly spaced numbers from start to stop, both included exactly. Raises ArgumentError."""

def logspace(start: float, end: float, steps: int, base: float=10.0, *, dtype: Any=None, device: str | None=None, requires_grad: bool | None=None) -> Tensor:
  """``base`` to the powers of ``linspace(start, end, steps)``. Raises ArgumentError for a base that is not above 0."""

def empty_like(input: Tensor, *, dtype: Any=None, device: str | None=None, requires_grad: bool | None=None, memory_format: str | None=None) -> Tensor:
  """Memory of this shape, dtype and device that is not initialised."""

def ones_like(input: Tensor, *, dtype: Any=None, device: str | None=None, requires_grad: bool | None=None, memory_format: str | None=None) -> Tensor:
  """Ones of this shape, dtype and device."""

def zeros_like(input: Tensor, *, dtype: Any=None, device: str | None=None, requires_grad: bool | None=None, memory_format: str | None=None) -> Tensor:
  """Zeros of this shape, dtype and device."""

def full_like(input: Tensor, fill_value: Any, *, dtype: Any=None, device: str | None=None, requires_grad: bool | None=None, memory_format: str | None=None) -> Tensor:
  """A number everywhere, of this shape, dtype and device."""

def rand_like(input: Tensor, *, generator: Generator | None=None, dtype: Any=None, device: str | None=None, requires_grad: bool | None=None, memory_format: str | None=None) -> Tensor:
  """Uniform in [0, 1) of this shape, dtype and device. Raises DTypeError."""

def randn_like(input: Tensor, *, generator: Generator | None=None, dtype: Any=None, device: str | None=None, requires_grad: bool | None=None, memory_format: str | None=None) -> Tensor:
  """Normal of this shape, dtype and device. Raises DTypeError."""

def bernoulli(input: Tensor, p: Operand | None=None, *, generator: Generator | None=None) -> Tensor:
  """1 with the probability that each element is, else 0, of this shape and dtype; with ``p``, a number or a tensor that
    broadcasts to this shape, those are the probabilities. An element below 0 counts as 0, one above 1 as 1, NaN as 0. No
    gradient. Raises DTypeError for probabilities that are no floats, ShapeError, ArgumentError for a number p outside [0, 1]."""

def poisson(input: Tensor, generator: Generator | None=None) -> Tensor:
  """Of each element as a rate, a number of the Poisson distribution, of this shape and dtype; NaN for negative rates and NaN.
    No gradient. Raises DTypeError for rates that are no floats. Below a rate of 10 by inversion, above by transformed rejection
    (Hörmann, The transformed rejection method for generating Poisson random variables, 1993, PTRS), the first of 16 attempts that
    is accepted (should all fail, which is rarer than once in 10**9: the rate rounded)."""

def multinomial(input: Tensor, num_samples: int, replacement: bool=False, *, generator: Generator | None=None) -> Tensor:
  """Indices drawn by weight along the last dim of a 1-d or 2-d tensor, int32: (n,) gives (num_samples,), (m, n) gives (m,
    num_samples). Weights need not add up to 1; they must not be negative. Without replacement the indices of a row differ: those
    of the least exponential variables with the weights as rates (Efraimidis and Spirakis, Weighted random sampling with a
    reservoir, 2006), and indices of weight 0 come last. Raises ShapeError, ArgumentError for more samples than that gives."""

def batch_norm(input: Tensor, weight: Operand | None, bias: Operand | None, running_mean: Operand | None, running_var: Operand | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool=True) -> Tensor:
  """Normalisation of each channel over the batch and what follows (https://arxiv.org/abs/1502.03167): (n, c, ..) -> the same.
    By the running statistics, or, in ``training``, by the batch's own mean and variance; then the running ones, where given, move
    towards these by ``momentum`` (the variance unbiased). All are (c,). Raises ShapeError, DTypeError; ArgumentError where
    running statistics are missing, and for a single value a channel in training."""

def instance_norm(input: Tensor, weight: Operand | None, bias: Operand | None, running_mean: Operand | None, running_var: Operand | None, use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool=True) -> Tensor:
  """Normalisation of each channel of each sample over what follows: (n, c, l, ..) -> the same
    (https://arxiv.org/abs/1607.08022). By its own mean and variance, towards whose averages over the batch the running ones move;
    or, without ``use_input_stats``, by the running ones. All are (c,). Raises ShapeError, DTypeError, ArgumentError as
    :meth:`batch_norm`."""
