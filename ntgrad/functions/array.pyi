# Written by `python -m ntgrad stubs` from ntgrad/compat/signatures.py.
from __future__ import annotations

from ntgrad.tensor import Tensor
from ntgrad.tensor.elementwise import Operand
from ntgrad.tensor.movement import Dims, Ints
from ntgrad.tensor.reduction import Axis
from typing import Any, Sequence

def abs(x: Tensor, /) -> Tensor:
  """The absolute value."""

def acos(x: Tensor, /) -> Tensor:
  """The angle whose cosine the value is, from 0 to pi; NaN beyond 1."""

def acosh(x: Tensor, /) -> Tensor:
  """The inverse of cosh, not negative; NaN beneath 1."""

def asin(x: Tensor, /) -> Tensor:
  """The angle whose sine the value is, from -pi/2 to pi/2; NaN beyond 1."""

def asinh(x: Tensor, /) -> Tensor:
  """The inverse of sinh."""

def atan(x: Tensor, /) -> Tensor:
  """The angle whose tangent the value is, from -pi/2 to pi/2."""

def atanh(x: Tensor, /) -> Tensor:
  """The inverse of tanh; infinite at 1 and -1, NaN beyond."""

def bitwise_invert(x: Tensor, /) -> Tensor:
  """Every bit of ints inverted; logical not of bools."""

def ceil(x: Tensor, /) -> Tensor:
  """Rounded up; ints as they are."""

def cos(x: Tensor, /) -> Tensor:
  """The cosine of radians."""

def cosh(x: Tensor, /) -> Tensor:
  """The hyperbolic cosine."""

def exp(x: Tensor, /) -> Tensor:
  """e to the power of the value."""

def expm1(x: Tensor, /) -> Tensor:
  """exp(x) - 1, accurate near 0."""

def floor(x: Tensor, /) -> Tensor:
  """Rounded down; ints as they are."""

def isfinite(x: Tensor, /) -> Tensor:
  """Whether the value is neither infinite nor NaN."""

def isinf(x: Tensor, /) -> Tensor:
  """Whether the value is inf or -inf, or only one of them."""

def isnan(x: Tensor, /) -> Tensor:
  """Whether the value is NaN."""

def log(x: Tensor, /) -> Tensor:
  """The natural logarithm."""

def log1p(x: Tensor, /) -> Tensor:
  """log(1 + x), accurate near 0."""

def log2(x: Tensor, /) -> Tensor:
  """The logarithm to base 2."""

def log10(x: Tensor, /) -> Tensor:
  """The logarithm to base 10."""

def logical_not(x: Tensor, /) -> Tensor:
  """True where the value is zero."""

def negative(x: Tensor, /) -> Tensor:
  """``-self``; bools are refused (DTypeError)."""

def positive(x: Tensor, /) -> Tensor:
  """The same value as a tensor of its own (memory is copied when one of the two is written), on a device, or where it is;
    gradients pass. ``memory_format`` has no effect. Raises DeviceError."""

def reciprocal(x: Tensor, /) -> Tensor:
  """1 / value."""

def round(x: Tensor, /) -> Tensor:
  """Rounded to the nearest, halves to even, or to a number of ``decimals``; ints as they are. Raises ArgumentError."""

def sign(x: Tensor, /) -> Tensor:
  """-1, 0 or 1 (0 also of -0.0); NaN stays."""

def signbit(x: Tensor, /) -> Tensor:
  """Whether the value has a minus: also -0.0 and a NaN with one."""

def sin(x: Tensor, /) -> Tensor:
  """The sine of radians."""

def sinh(x: Tensor, /) -> Tensor:
  """The hyperbolic sine."""

def sqrt(x: Tensor, /) -> Tensor:
  """The square root."""

def square(x: Tensor, /) -> Tensor:
  """``self * self``; of bools ints, as ``** 2`` has them."""

def tan(x: Tensor, /) -> Tensor:
  """The tangent of radians."""

def tanh(x: Tensor, /) -> Tensor:
  """The hyperbolic tangent."""

def trunc(x: Tensor, /) -> Tensor:
  """Rounded to zero; ints as they are."""

def all(x: Tensor, /, *, axis: Axis=None, keepdims: bool=False) -> Tensor:
  """Whether every one along axes (None: all) is not zero. Raises AxisError."""

def any(x: Tensor, /, *, axis: Axis=None, keepdims: bool=False) -> Tensor:
  """Whether one along axes (None: all) is not zero. Raises AxisError."""

def max(x: Tensor, /, *, axis: Axis=None, keepdims: bool=False) -> Any:
  """The greatest of all elements, NaN if one is NaN. Along a dim, by place or as ``dim=``, ``(values, indices)``: where it is
    too, int32, the first of equal ones. Along ``axis=``, one or several, the values alone. Of two tensors, ``x.max(y)``, the
    greater of each two elements. Raises AxisError; ArgumentError for no elements."""

def mean(x: Tensor, /, *, axis: Axis=None, keepdims: bool=False) -> Tensor:
  """The mean along axes (None: all); of ints and bools the default float; with ``dtype`` elements are cast first. Raises
    AxisError."""

def min(x: Tensor, /, *, axis: Axis=None, keepdims: bool=False) -> Any:
  """The least of all elements, NaN if one is NaN; along a dim ``(values, indices)``, along ``axis=`` the values alone, of two
    tensors the lesser of each two elements: see ``max``. Raises AxisError; ArgumentError for no elements."""

def argmax(x: Tensor, /, *, axis: int | str | None=None, keepdims: bool=False) -> Tensor:
  """Where the greatest is along an axis (None: in the flattened tensor), int32 (int64 among 2**31 elements or more); the first of
    equals, a NaN before all. Raises AxisError."""

def argmin(x: Tensor, /, *, axis: int | str | None=None, keepdims: bool=False) -> Tensor:
  """Where the least is along an axis; see ``argmax``. Raises AxisError."""

def std(x: Tensor, /, *, axis: Axis=None, correction: float=0.0, keepdims: bool=False) -> Tensor:
  """The standard deviation along axes (None: all); no slope where it is 0. Raises AxisError. See ``var``."""

def var(x: Tensor, /, *, axis: Axis=None, correction: float=0.0, keepdims: bool=False) -> Tensor:
  """The variance along axes (None: all), divided by n - correction; ``unbiased`` says that as a flag, True: n - 1, False: n.
    Raises AxisError."""

def zeros(shape: Any, *, dtype: Any=None, device: str | None=None) -> Tensor:
  """Zeros of a shape, of the default float (float32) unless told otherwise. Raises ArgumentError."""

def ones(shape: Any, *, dtype: Any=None, device: str | None=None) -> Tensor:
  """Ones of a shape, of the default float (float32) unless told otherwise. Raises ArgumentError."""

def empty(shape: Any, *, dtype: Any=None, device: str | None=None) -> Tensor:
  """Zeros of a shape, of the default float (float32) unless told otherwise. Raises ArgumentError."""

def full(shape: Any, fill_value: Any, *, dtype: Any=None, device: str | None=None) -> Tensor:
  """A number everywhere; the dtype is the number's unless given. It takes memory once it is realised or written, whatever
    ``buffer`` says. Raises ArgumentError."""

def arange(start: float, /, stop: float | None=None, step: float=1, *, dtype: Any=None, device: str | None=None) -> Tensor:
  """start, start + step, .. below stop (``arange(n)``: 0 .. n-1); for ints the default int, int32 (int64 where they need it),
    for floats the default float. Raises ArgumentError."""

def from_dlpack(x: Any, /, *, device: str | None=None, copy: bool | None=None) -> Tensor:
  """Another library's tensor, a numpy array or a DLPack capsule as a Tensor of its shape and dtype, over the same memory where
    that can be.

    Memory of a GPU stays on that GPU (``CUDA``, ``CUDA:1``, ..); memory of the host comes to ``device`` (None: the default one)
    and is shared where that is the CPU. Shared is what is contiguous or a view with slices, steps, transposes and broadcasts, and
    lies at a multiple of 16 bytes (64 on the host); else, or with ``copy=True``, values are copied. The memory is kept as long as
    tensors need it. On a GPU, what is computed from the Tensor comes after what the other library has launched.

    Shared memory is one value for both: ``assign`` and optimizers write into it (not where it is read-only, as JAX's: then they
    give the Tensor memory of its own), and what the other library writes later is seen by whatever is computed after that, in no
    order unless both synchronise (``Device.synchronize()``).

    Raises InterchangeError where ``copy=False`` rules out what would be needed or memory is not given, DTypeError, DeviceError,
    and CaptureError while a jit records."""

def zeros_like(x: Tensor, /, *, dtype: Any=None, device: str | None=None) -> Tensor:
  """Zeros of this shape, dtype and device."""

def ones_like(x: Tensor, /, *, dtype: Any=None, device: str | None=None) -> Tensor:
  """Ones of this shape, dtype and device."""

def empty_like(x: Tensor, /, *, dtype: Any=None, device: str | None=None) -> Tensor:
  """Zeros of this shape, dtype and device."""

def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any=None, device: str | None=None) -> Tensor:
  """A number everywhere, of this shape, dtype and device."""

def tril(x: Tensor, /, *, k: int=0) -> Tensor:
  """The lower triangle of the last two dims, zeros above. Raises ShapeError."""

def triu(x: Tensor, /, *, k: int=0) -> Tensor:
  """The upper triangle of the last two dims, zeros below. Raises ShapeError."""

def diff(x: Tensor, /, *, axis: int | str=-1, n: int=1, prepend: Operand | None=None, append: Operand | None=None) -> Tensor:
  """Each element less the one before it along a dim, ``n`` times; of bools whether they differ. ``prepend`` and ``append`` are
    joined first. Raises AxisError; ArgumentError for n beneath 0; ShapeError for a tensor without dimensions."""

def expand_dims(x: Tensor, /, *, axis: int | str=0) -> Tensor:
  """A new dim of 1 at ``axis``. Raises AxisError."""

def unstack(x: Tensor, /, *, axis: int | str=0) -> tuple[Tensor, ...]:
  """Views of the slices along a dim, without it: (n, ..) -> n of (..). Raises AxisError."""

def moveaxis(x: Tensor, source: Dims, destination: Dims, /) -> Tensor:
  """A view with dims moved to other places, the others in their order: (a, b, c).movedim(0, -1) -> (b, c, a). Raises AxisError
    for a dim named twice, ArgumentError for another number of places than dims."""

def permute_dims(x: Tensor, /, axes: Any) -> Tensor:
  """Dims in another order: (a, b, c).permute(2, 0, 1) -> (c, a, b). Raises AxisError unless every dim is named once."""

def broadcast_to(x: Tensor, /, shape: Any) -> Tensor:
  """Dims of 1 repeated to other sizes, new dims in front; -1 or None keeps a size. Raises ShapeError."""

def tile(x: Tensor, repetitions: Any, /) -> Tensor:
  """``repeat``, with counts of 1 in front where fewer than dims are given. Raises ArgumentError."""

def roll(x: Tensor, /, shift: Ints, *, axis: int | str | Sequence[int | str] | None=None) -> Tensor:
  """Elements moved along dims, those that fall off coming in at the other end. Raises AxisError, ArgumentError."""

def take_along_axis(x: Tensor, indices: Any, /, *, axis: int | str | None=-1) -> Tensor:
  """``gather`` with the other dims broadcast; dim None: of the flattened tensor, by flattened indices. Raises ShapeError,
    DTypeError, AxisError."""

def argsort(x: Tensor, /, *, axis: int | str=-1, descending: bool=False, stable: bool=True) -> Tensor:
  """The indices (int32) of what stands along a dim in rising order; see :meth:`sort`. Raises AxisError."""

def searchsorted(x1: Tensor, x2: Operand, /, *, side: str | None='left', sorter: Operand | None=None) -> Tensor:
  """How many elements of this sorted tensor (or of what is sorted in the order ``sorter``) are less than each value (``right``,
    or ``side="right"``: or equal): where it goes in front of (behind) equal ones, int32. (n,) and any shape, or (.., n) and
    (.., m) with the same dims in front; NaN is greater than everything. A search among 16 elements at a time: O(log n) each.
    Raises ShapeError, ArgumentError."""

def add(x1: Tensor, x2: Any, /) -> Tensor:
  """``self + alpha * x2``."""

def atan2(x1: Tensor, x2: Any, /) -> Tensor:
  """The angle of the point (other, self), from -pi to pi. No slope at (0, 0)."""

def bitwise_and(x1: Tensor, x2: Any, /) -> Tensor:
  """``self & x2`` for ints and bools."""

def bitwise_left_shift(x1: Tensor, x2: Any, /) -> Tensor:
  """``self << x2`` for ints: 0 where x2 is the width or more, or below 0."""

def bitwise_or(x1: Tensor, x2: Any, /) -> Tensor:
  """``self | x2`` for ints and bools."""

def bitwise_right_shift(x1: Tensor, x2: Any, /) -> Tensor:
  """``self >> x2`` for ints, arithmetic on signed ones: 0 or -1, as the sign, where x2 is the width or more, or below 0."""

def bitwise_xor(x1: Tensor, x2: Any, /) -> Tensor:
  """``self ^ x2`` for ints and bools."""

def copysign(x1: Tensor, x2: Any, /) -> Tensor:
  """The size of the value with the sign of the other one, zeros and NaN included; of ints float32. No slope at 0."""

def divide(x1: Tensor, x2: Any, /) -> Tensor:
  """``self / x2``, true division: ints give float32. With ``rounding_mode`` "trunc" rounded to zero, with "floor" down: ints
    stay ints. Raises ArgumentError for another mode, and for an int that is so divided by the number 0."""

def equal(x1: Tensor, x2: Any, /) -> Tensor:
  """``self == x2``, elementwise."""

def floor_divide(x1: Tensor, x2: Any, /) -> Tensor:
  """``self // x2``, rounded down. Raises ArgumentError for an int divided by the number 0."""

def greater(x1: Tensor, x2: Any, /) -> Tensor:
  """``self > x2``, elementwise."""

def greater_equal(x1: Tensor, x2: Any, /) -> Tensor:
  """``self >= x2``, elementwise."""

def hypot(x1: Tensor, x2: Any, /) -> Tensor:
  """sqrt(self**2 + other**2), without overflow. No slope at (0, 0)."""

def less(x1: Tensor, x2: Any, /) -> Tensor:
  """``self < x2``, elementwise."""

def less_equal(x1: Tensor, x2: Any, /) -> Tensor:
  """``self <= x2``, elementwise."""

def logaddexp(x1: Tensor, x2: Any, /) -> Tensor:
  """log(exp(self) + exp(other)), without overflow."""

def logical_and(x1: Tensor, x2: Operand, /) -> Tensor:
  """Whether neither value is zero."""

def logical_or(x1: Tensor, x2: Operand, /) -> Tensor:
  """Whether one of both values is not zero."""

def logical_xor(x1: Tensor, x2: Operand, /) -> Tensor:
  """Whether exactly one of both values is not zero."""

def matmul(x1: Tensor, x2: Any, /) -> Tensor:
  """``self @ x2``; see ``dot``."""

def maximum(x1: Tensor, x2: Any, /) -> Tensor:
  """The greater of both, NaN where either is NaN. Where they are equal each has half of the gradient."""

def minimum(x1: Tensor, x2: Any, /) -> Tensor:
  """The lesser of both, NaN where either is NaN. Where they are equal each has half of the gradient."""

def multiply(x1: Tensor, x2: Any, /) -> Tensor:
  """``self * x2``."""

def nextafter(x1: Tensor, x2: Any, /) -> Tensor:
  """The float of this dtype that is next to the value on the other one's side; of ints float32. No gradient."""

def not_equal(x1: Tensor, x2: Any, /) -> Tensor:
  """``self != x2``, elementwise."""

def pow(x1: Tensor, x2: Any, /) -> Tensor:
  """``self ** x2``. Ints to a negative int number are refused (DTypeError)."""

def remainder(x1: Tensor, x2: Any, /) -> Tensor:
  """``self % x2`` with the sign of the divisor, for ints and floats. Raises ArgumentError for an int divided by the number 0."""

def subtract(x1: Tensor, x2: Any, /) -> Tensor:
  """``self - alpha * x2``; bools are refused (DTypeError)."""

def tensordot(x1: Tensor, x2: Operand, /, *, axes: Any=2) -> Tensor:
  """The sum of products over several dimensions, then the other ones of the first and of the second. ``axes`` is a number (that
    many last ones of the first with as many first ones of the second), or two lists, the dimensions of the first and those of the
    second. Raises ShapeError, AxisError, ArgumentError."""
