"""dtypes: names as numpy has them, printed as the listings have them, and the promotion table."""
from __future__ import annotations

import builtins
from ctypes import c_float
from functools import cache, lru_cache, reduce
from typing import Any, Callable, Sequence

import ml_dtypes
import numpy as np

from .errors import DTypeError, shown

Number = int | float   # what a constant is in Python; bool is an int


class DType:
  """A scalar or vector element type. There is one object a type; it equals what stands for it elsewhere:
  ``x.dtype == np.float32``, ``== "float32"``, ``== torch.float32``."""
  __slots__ = "name", "short", "kind", "itemsize", "rank", "count", "np", "__weakref__"

  def __init__(self, name: str, short: str, kind: str, rank: int, np_type: Any, count: int = 1):
    self.np: np.dtype[Any] = np.dtype(np_type)
    self.name, self.short, self.kind, self.itemsize, self.rank, self.count = name, short, kind, self.np.itemsize, rank, count

  def __repr__(self) -> str: return f"dtypes.{self.short}" + (f".vec({self.count})" if self.count > 1 else "")

  def __eq__(self, other: object) -> bool:
    return self is other or (not isinstance(other, (DType, tuple)) and self.count == 1 and dtypes.find(other) is self)
  __hash__ = object.__hash__

  def __reduce__(self) -> tuple[Callable[..., DType], tuple[Any, ...]]:
    return (getattr, (dtypes, self.name)) if self.count == 1 else (DType.vec, (self.scalar(), self.count))

  @property
  def is_floating_point(self) -> bool: return self.kind == "f"
  @property
  def is_signed(self) -> bool: return self.kind in "if"
  @property
  def is_complex(self) -> bool: return False

  def vec(self, count: int) -> DType:
    """The vector of ``count`` elements of this scalar type (itself for 1)."""
    return self if count == 1 else _vec(self.scalar(), count)

  def scalar(self) -> DType:
    """The element type of a vector; a scalar gives itself."""
    return self if self.count == 1 else _by_name[self.name]


@cache
def _vec(dtype: DType, count: int) -> DType: return DType(dtype.name, dtype.short, dtype.kind, dtype.rank, dtype.np, count)


class _Defaults(type):
  """Checks what is assigned to ``dtypes.default_float`` and ``dtypes.default_int``."""
  def __setattr__(cls, name: str, value: Any) -> None:
    if name in ("default_float", "default_int"):
      value = dtypes.of(value)
      if value not in (dtypes.floats if name == "default_float" else dtypes.ints):
        raise DTypeError(f"dtypes.{name}: {value.name}; it takes dtypes of {'floats' if name == 'default_float' else 'ints'}")
    super().__setattr__(name, value)


class dtypes(metaclass=_Defaults):
  """The dtypes by name, and questions about them. ``kind`` is b, i, u or f as in numpy, and e for float8_e8m0, which holds powers
  of two, the scales of blocks: it is stored, moved and cast; arithmetic takes it as float32. In a cast to it 0 becomes its least,
  2 ** -127, and negative numbers and those beyond its greatest NaN.

  ``default_float`` (float32) is what lists of floats, random numbers and functions of ints give, ``default_int`` (int32) what
  lists of ints do. Both can be assigned: ``dtypes.default_float = "float64"``. Raises DTypeError for what is no float, or no int.
  """
  bool = DType("bool", "bool", "b", 0, np.bool_)
  int8 = DType("int8", "char", "i", 1, np.int8)
  uint8 = DType("uint8", "uchar", "u", 2, np.uint8)
  int16 = DType("int16", "short", "i", 3, np.int16)
  uint16 = DType("uint16", "ushort", "u", 4, np.uint16)
  int32 = DType("int32", "int", "i", 5, np.int32)
  uint32 = DType("uint32", "uint", "u", 6, np.uint32)
  int64 = DType("int64", "long", "i", 7, np.int64)
  uint64 = DType("uint64", "ulong", "u", 8, np.uint64)
  float8_e4m3 = DType("float8_e4m3", "fp8e4m3", "f", 9, ml_dtypes.float8_e4m3fn)
  float8_e5m2 = DType("float8_e5m2", "fp8e5m2", "f", 10, ml_dtypes.float8_e5m2)
  float16 = DType("float16", "half", "f", 11, np.float16)
  bfloat16 = DType("bfloat16", "bfloat16", "f", 12, ml_dtypes.bfloat16)
  float32 = DType("float32", "float", "f", 13, np.float32)
  float64 = DType("float64", "double", "f", 14, np.float64)
  float8_e8m0 = DType("float8_e8m0", "fp8e8m0", "e", 16, ml_dtypes.float8_e8m0fnu)
  # an index of unknown width: becomes int32 or int64 when the ranges are known
  index = DType("index", "index", "i", 15, np.int64)
  char, uchar, short, ushort, int, uint, long, ulong = int8, uint8, int16, uint16, int32, uint32, int64, uint64
  half, float, double = float16, float32, float64
  float8_e4m3fn, float8_e8m0fnu = float8_e4m3, float8_e8m0   # those without infinities, as PyTorch and numpy's call them
  fp8e4m3, fp8e5m2 = float8_e4m3, float8_e5m2
  default_float, default_int = float32, int32

  all: tuple[DType, ...]
  numbers: tuple[DType, ...]   # those that arithmetic takes, which are the dtypes of linear programs
  floats: tuple[DType, ...]
  ints: tuple[DType, ...]
  fp8s: tuple[DType, ...]
  uints: tuple[DType, ...]
  sints: tuple[DType, ...]   # with a sign

  @staticmethod
  def is_float(x: DType) -> builtins.bool: return x.kind == "f"
  @staticmethod
  def is_int(x: DType) -> builtins.bool: return x.kind in "iu"
  @staticmethod
  def is_unsigned(x: DType) -> builtins.bool: return x.kind == "u"
  @staticmethod
  def is_bool(x: DType) -> builtins.bool: return x.kind == "b"

  @staticmethod
  def of(x: Any, default: DType | None = None) -> DType:
    """The dtype that a name (ours, numpy's, PyTorch's, or Triton's such as fp32), a Python type, a dtype of numpy, torch or
    Triton, or a DType stands for; ``default``, if given, for None. Raises DTypeError for any other."""
    if x is None and default is not None: return default
    found = dtypes.find(x)
    if found is None: raise DTypeError(f"no dtype {shown(x)}; dtypes: {', '.join(d.name for d in dtypes.all)}")
    return found

  @staticmethod
  def find(x: Any) -> DType | None:
    """The dtype that something stands for, as :meth:`of`, or None."""
    if isinstance(x, DType): return x
    kind = type(x)
    if kind.__name__ == "dtype" and kind.__module__.partition(".")[0] in ("torch", "triton"): x = str(x)
    if isinstance(x, str):
      x = x.removeprefix("torch.")
      if x in _by_text: return _by_text[x]
    if x is bool: return dtypes.bool
    if isinstance(x, type) and issubclass(x, int): return dtypes.default_int   # an IntEnum's too
    if isinstance(x, type) and issubclass(x, float) and not issubclass(x, np.generic): return dtypes.default_float
    try:
      # numpy reads other objects as float64 (None) or by their dtype attribute
      if isinstance(x, (str, type, np.dtype)): return _by_np[np.dtype(x)]
    except (TypeError, KeyError, ValueError): pass
    return None

  @staticmethod
  def min(d: DType) -> Number:
    """The least value of a dtype, as a Python number (-inf for floats; float8_e4m3 has no infinity: -448)."""
    return _limits(d)[0]

  @staticmethod
  def max(d: DType) -> Number:
    """The greatest value of a dtype, as a Python number (inf for floats; float8_e4m3 has no infinity: 448)."""
    return _limits(d)[1]


@cache
def _limits(d: DType) -> tuple[Number, Number]:
  if d.kind == "b": return False, True
  if d.kind == "e": return 2.0 ** -127, 2.0 ** 127
  if d.kind != "f": return int(np.iinfo(d.np).min), int(np.iinfo(d.np).max)
  most = 448.0 if d.name == "float8_e4m3" else np.inf
  return -most, most


dtypes.all = tuple(dict.fromkeys(d for d in vars(dtypes).values() if isinstance(d, DType) and d is not dtypes.index))
dtypes.numbers, dtypes.floats, dtypes.ints = (tuple(d for d in dtypes.all if d.kind in kinds) for kinds in ("biuf", "f", "iu"))
dtypes.uints, dtypes.sints = (tuple(d for d in dtypes.ints if d.kind == kind) for kind in "ui")
dtypes.fp8s = dtypes.float8_e4m3, dtypes.float8_e5m2
_by_name = {d.name: d for d in (*dtypes.all, dtypes.index)} | {
  "float8_e4m3fn": dtypes.float8_e4m3, "float8_e8m0fnu": dtypes.float8_e8m0}
# Triton's names; those that numpy has for others (i1, i8 and u8 count bytes there) are the tile language's alone
_by_triton = {f"{d.kind}{d.itemsize * 8}": d for d in dtypes.ints if d.itemsize > 1} | {
  "fp16": dtypes.float16, "bf16": dtypes.bfloat16, "fp32": dtypes.float32, "fp64": dtypes.float64, "int1": dtypes.bool,
  "fp8e4nv": dtypes.float8_e4m3, "fp8e5": dtypes.float8_e5m2}
# without index, which tensors do not have
_by_text = {d.short: d for d in dtypes.all} | {name: d for name, d in _by_name.items() if name != "index"} | _by_triton
_by_np = {d.np: d for d in dtypes.all}


def set_default_dtype(d: Any) -> None:
  """Set ``dtypes.default_float``: what lists of floats, random numbers and functions of ints give. Raises DTypeError."""
  dtypes.default_float = d


def get_default_dtype() -> DType:
  """``dtypes.default_float``."""
  return dtypes.default_float


def to_narrow(x: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
  """An array as a float dtype of less than 32 bits, rounded once, to nearest even (float8_e8m0: of two equally near the greater).
  (ml_dtypes rounds doubles twice, first to float32.)"""
  with np.errstate(over="ignore", invalid="ignore"):
    if dtype.kind == "e": x = np.where(x == 0, dtypes.min(dtype), x.astype(np.float64))
    if dtype is dtypes.float16 or (x.dtype.kind == "f" and x.dtype.itemsize <= 4): return x.astype(dtype.np)
    x = x.astype(np.float64)
    f = x.astype(np.float32)
    back = f.astype(np.float64)
    bits = f.view(np.int32)   # float32 rounded to odd: the last bit says that something was cut off
    odd = np.where((back != x) & (x == x), (bits - (np.abs(back) > np.abs(x))) | 1, bits).astype(np.int32)
    return odd.view(np.float32).astype(dtype.np)


def held(value: Any, dtype: DType) -> Number:
  """What an element of a dtype holds after ``value`` is stored in it: ints wrap, floats are rounded once, to nearest even."""
  if dtype.kind == "e": return float(to_narrow(np.asarray(float(value)), dtype))
  if dtype.kind == "f":
    if (rounded := getattr(value, "rounded", None)) is not None: return rounded(dtype)
    if type(value) is int and -(1 << 63) <= value < 1 << 64 and dtype.itemsize < 8:   # not by way of a double
      value = np.array(value)
      if dtype.itemsize == 4: return float(value.astype(np.float32))
    else: value = float(value)
    if dtype.itemsize == 8: return value
    if dtype.itemsize == 4: return c_float(value).value
    return float(to_narrow(np.asarray(value), dtype))
  if dtype.kind == "b": return bool(value)
  value = int(value)
  if dtype.name == "index": return value
  bits = dtype.itemsize * 8
  value &= (1 << bits) - 1
  return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


def number_text(value: Number, dtype: DType) -> str:
  """The shortest text that the dtype reads back as the same value: ``0.1`` for the float32 nearest to it."""
  return str(np.array(value, dtype.np)) if dtype.kind in "fe" else str(value)


def scale_byte(value: Number) -> int:
  """The byte of the float8_e8m0 that is nearest to a number; 255 (NaN) where there is none: for negative and infinite ones."""
  return int(to_narrow(np.asarray(float(value)), dtypes.float8_e8m0).view(np.uint8))


def cast_number(value: Number, src: DType, dst: DType) -> Number:
  """A constant of one dtype cast to another. Floats outside of an int dtype become what x86 makes of them: the cast is undefined,
  and a compiler that sees it done to a constant takes any number."""
  if src.kind in "fe" and dst.kind in "iu" and not dtypes.min(dst) - 1 < value < dtypes.max(dst) + 1:
    with np.errstate(invalid="ignore"):
      value = np.array(value).astype(np.int32 if dst.itemsize < 4 or dst.short == "int" else np.int64).item()
  return held(value, dst)


def acc_dtype(dtype: DType) -> DType:
  """What a sum accumulates in: float32 for smaller floats, int32 or uint32 for bool and small ints."""
  if dtype.kind == "f": return dtypes.float32 if dtype.itemsize < 4 else dtype
  if dtype.kind == "e": return dtypes.float32
  if dtype.itemsize >= 4: return dtype
  return dtypes.uint32 if dtype.kind == "u" else dtypes.int32


def sum_dtype(dtype: DType) -> DType:
  """What sums, products and running sums are: of bools and ints int64, of uint64 and floats that dtype itself."""
  if dtype.kind in "biu": return dtype if dtype is dtypes.uint64 else dtypes.int64
  return dtypes.float32 if dtype.kind == "e" else dtype


def as_float(dtype: DType) -> DType:
  """A float dtype itself, for others the default one."""
  return dtype if dtype.kind == "f" else dtypes.default_float


@lru_cache(maxsize=4096)
def promote(*ds: DType) -> DType:
  """The least dtype that holds all of ``ds``.

  bool < ints < floats. Two ints: the wider; equal width and mixed sign, the next wider signed one (uint64 with a
  signed int gives float64). An int with a float gives the float. float16 with bfloat16, or two different fp8, give float32 and
  float16. float8_e8m0 with another takes part as float32. Tensors of shape () and Python numbers: ``promote_tensors`` and
  ``scalar_dtype`` of ``ntgrad/tensor/promotion.py``."""
  a, *rest = dict.fromkeys(ds)
  if not rest: return a
  if len(rest) > 1: return reduce(promote, rest, a)
  b, = rest
  if "e" in (a.kind, b.kind): return promote(*[dtypes.float32 if d.kind == "e" else d for d in (a, b)])
  if a.rank > b.rank: a, b = b, a
  if a.kind == "b": return b
  if b.kind == "f":
    if a.kind != "f": return b
    wider = {(dtypes.float16, dtypes.bfloat16): dtypes.float32, (dtypes.float8_e4m3, dtypes.float8_e5m2): dtypes.float16}
    return wider.get((a, b), b)
  if a.kind == b.kind: return b
  signed, unsigned = (a, b) if a.kind == "i" else (b, a)
  if signed.itemsize > unsigned.itemsize: return signed
  return {1: dtypes.int16, 2: dtypes.int32, 4: dtypes.int64, 8: dtypes.float64}[unsigned.itemsize]


_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2, "e": 2}


def promote_tensors(full: Sequence[DType], single: Sequence[DType]) -> DType:
  """The dtype that tensors with dimensions, of dtypes ``full``, and such of shape (), of dtypes ``single``, have together, as in
  PyTorch: bool < ints < floats are categories, and those of shape () count only where theirs is above that of the others."""
  if not full or not single: return promote(*full, *single)
  a, b = promote(*full), promote(*single)
  if _CATEGORY[a.kind] < _CATEGORY[b.kind]: return b
  return dtypes.float32 if a.kind == "e" and b is not a else a


def can_cast(value: DType, to: DType) -> bool:
  """Whether values of a dtype may be written into a tensor of another: into one of their category or above it, as in PyTorch."""
  return value is to or to.kind != "e" and _CATEGORY[value.kind] <= _CATEGORY[to.kind]
