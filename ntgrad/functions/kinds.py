"""Dtypes, devices, shapes, and questions about a tensor."""
from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from ntgrad.codegen.ir import ArgumentError, DType, DTypeError, can_cast as _can_cast, dtypes, promote, promote_tensors
from ntgrad.core import memory_format as memory_format
from ntgrad.engine.device import Device, DeviceName, canonical
from ntgrad.graph import Ints, checked, whole_number
from ntgrad.tensor import Tensor
from ntgrad.tensor.promotion import broadcast_shape, scalar_dtype

e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None
dtype = DType
Size: Any = tuple   # what shapes are
channels_last, channels_last_3d, contiguous_format, preserve_format = [
  memory_format(f"torch.{name}") for name in "channels_last channels_last_3d contiguous_format preserve_format".split()]


# ---- dtypes
def _dtype(x: Any) -> DType: return x.dtype if isinstance(x, Tensor) else dtypes.of(x)


class finfo:
  """Limits of a float dtype (None: the default one), or of a tensor's: bits, eps, max, min, smallest_normal, tiny, resolution,
  dtype. Raises DTypeError for another dtype."""

  def __init__(self, type: Any = None):
    self.dtype = dtypes.default_float if type is None else _dtype(type)
    if self.dtype.kind != "f": raise DTypeError(f"finfo: {self.dtype.name}; it takes floats")
    i = ml_dtypes.finfo(self.dtype.np)
    self.bits = i.bits
    self.eps, self.max, self.min, self.smallest_normal, self.resolution = [
      float(getattr(i, k)) for k in "eps max min smallest_normal resolution".split()]
    self.tiny = self.smallest_normal

  def __repr__(self) -> str:
    return (f"finfo(resolution={self.resolution}, min={self.min}, max={self.max}, eps={self.eps}, tiny={self.tiny}, "
            f"dtype={self.dtype.name})")


class iinfo:
  """Limits of an int dtype, or of a tensor's: bits, max, min, dtype. Raises DTypeError for another dtype."""

  def __init__(self, type: Any):
    self.dtype = _dtype(type)
    if self.dtype.kind not in "iu": raise DTypeError(f"iinfo: {self.dtype.name}; it takes ints")
    self.bits, self.max, self.min = 8 * self.dtype.itemsize, int(dtypes.max(self.dtype)), int(dtypes.min(self.dtype))

  def __repr__(self) -> str: return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype.name})"


def promote_types(type1: Any, type2: Any) -> DType:
  """The least dtype that holds both. Raises DTypeError."""
  return promote(dtypes.of(type1), dtypes.of(type2))


def result_type(*tensors: Any) -> DType:
  """The dtype that operands have together: of tensors with dimensions and dtypes; of tensors of shape () and then of Python
  numbers where their category is above that. Raises ArgumentError for nothing, DTypeError."""
  if not tensors: raise ArgumentError("result_type: no arguments; it takes tensors, dtypes and numbers")
  single = [x.dtype for x in tensors if isinstance(x, Tensor) and not x.shape]
  full = [_dtype(x) for x in tensors if not isinstance(x, (int, float)) and not (isinstance(x, Tensor) and not x.shape)]
  out = promote_tensors(full, single) if full or single else dtypes.bool
  for x in tensors:
    if isinstance(x, (int, float)): out = scalar_dtype(x, out)
  return out


def can_cast(from_: Any, to: Any) -> bool:
  """Whether a dtype may become another in a write: not floats ints, nor anything but bools bools. Raises DTypeError."""
  return _can_cast(dtypes.of(from_), dtypes.of(to))


# ---- devices, shapes
class device(DeviceName):
  """The name of a device, with its ``type`` and ``index``: ``device("cuda:1")``, ``device("cuda", 1)``. A str, so that it stands
  wherever a device is named; in a ``with`` the default device. Raises DeviceError for a name that no device has; whether the
  machine has it is asked where it is used."""

  def __new__(cls, type: Any, index: int | None = None) -> device:
    number = index if isinstance(type, str) else type
    if number is None: return super().__new__(cls, Device.DEFAULT if type is None else canonical(type))
    number = whole_number("device", "index", number, 0, 2 ** 31 - 1)
    return super().__new__(cls, canonical(f"{type if isinstance(type, str) else 'cuda'}:{number}"))

  before: str | None

  def __enter__(self) -> device:
    self.before = Device.assigned
    Device.DEFAULT = self
    return self
  def __exit__(self, *error: Any) -> None: Device.DEFAULT = self.before


@checked
def broadcast_shapes(*shapes: Ints) -> tuple[int, ...]:
  """The shape that all (numbers are shapes of one dim) broadcast to. Raises ShapeError."""
  return broadcast_shape("broadcast_shapes", *[(s,) if isinstance(s, int) else tuple(s) for s in shapes]) if shapes else ()


# ---- questions
def is_tensor(obj: Any) -> bool: return isinstance(obj, Tensor)
def is_storage(obj: Any) -> bool: return False


def typename(obj: Any) -> str:
  """The name of an object's class, with its module."""
  kind = type(obj)
  return "ntgrad.Tensor" if kind is Tensor else f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


@checked
def is_nonzero(input: Tensor) -> bool:
  """Whether the one element of a tensor is not 0. Raises ShapeError for several elements."""
  return bool(input.reshape(()).item())


@checked
def is_same_size(input: Tensor, other: Tensor) -> bool:
  """Whether two tensors have the same shape."""
  return input.shape == other.shape


@checked
def is_signed(input: Tensor) -> bool:
  """Whether a tensor's dtype has negative numbers."""
  return input.dtype.kind in "if"


# ---- numbers are real
@checked
def is_complex(input: Tensor) -> bool:
  """False: there are no complex numbers."""
  return False


is_conj = is_neg = is_complex


@checked
def real(input: Tensor) -> Tensor:
  """The tensor itself: numbers are real."""
  return input


conj = resolve_conj = resolve_neg = real


@checked
def isreal(input: Tensor) -> Tensor:
  """True everywhere: numbers are real."""
  return input.full_like(True, dtype="bool")
