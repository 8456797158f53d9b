"""The array API standard over ``Tensor`` (data-apis.org/array-api, version 2024.12): ``from ntgrad import array_api as xp``.

Names, parameters and result dtypes are the standard's: arrays of shape () promote as others do, sums of ints are the default int,
int32 (``dtypes.default_int``), or wider where the elements are. Operators are PyTorch's (docs/numbers.md). There are no complex
numbers. Functions whose result's shape depends on values (``nonzero``, ``unique_*``) compute at once, all
else is lazy.
"""
# ruff: noqa: F403, F405 - the stub has what the table makes
from __future__ import annotations

import builtins
from functools import wraps
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

from ntgrad.codegen.ir import ArgumentError, DType, ShapeError, dtypes, promote
from ntgrad.compat.public import show
from ntgrad.compat.signatures import ARRAY, ARRAY_OF_TWO
from ntgrad.engine.device import DEVICE_NAMES, Device
from ntgrad.functions import kinds
from ntgrad.functions.kinds import broadcast_shapes, finfo as finfo, iinfo as iinfo
from ntgrad.graph.nodes import UINTS
from ntgrad.tensor import Tensor
from ntgrad.tensor.made import functions

if TYPE_CHECKING:
  from ntgrad.functions.array import *

__array_api_version__ = "2024.12"
_IMPORTED = {"Shape", *globals()} - {"broadcast_shapes", "finfo", "iinfo"}

e, inf, nan, pi, newaxis = kinds.e, kinds.inf, kinds.nan, kinds.pi, kinds.newaxis
_DTYPES = [dtypes.of(n) for n in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()]
bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64 = _DTYPES
Shape = int | Sequence[int]


# ---- dtypes that several arrays have

def result_type(*arrays_and_dtypes: Any) -> DType:
  """The dtype that arrays and dtypes promote to, whatever their shapes; Python numbers count by their kind. Raises ArgumentError
  for numbers alone."""
  if builtins.all([isinstance(x, (int, float)) for x in arrays_and_dtypes]):
    raise ArgumentError("result_type: only Python numbers; it takes at least one array or dtype")
  return kinds.result_type(*[x.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes])


def _promoted(*xs: Any) -> list[Any]:
  """Arrays in the dtype that they promote to; what is no array as it is."""
  d = promote(*[x.dtype for x in xs if isinstance(x, Tensor)])
  return [x.cast(d) if isinstance(x, Tensor) and x.dtype is not d else x for x in xs]


def _summed(d: DType) -> DType:
  """What sums of a dtype are: ints and bools at least as wide as the default int."""
  least = dtypes.default_int.itemsize
  if d.kind == "f" or d.kind in "iu" and d.itemsize >= least: return d
  return UINTS[least] if d.kind == "u" else dtypes.default_int


def _promoting(fn: Any) -> Any:
  """A function of two arrays, which come in the dtype that they promote to; one of them may be a number."""
  @wraps(fn)
  def call(x1: Any, x2: Any, /, **more: Any) -> Tensor:
    if not isinstance(x1, Tensor):
      x1 = Tensor(x1, dtype=None if isinstance(x1, float) and x2.dtype.kind != "f" else x2.dtype, device=x2.device)
    return fn(*_promoted(x1, x2), **more)
  return call


_MADE = functions(ARRAY, __name__) | {name: _promoting(fn) for name, fn in functions(ARRAY_OF_TWO, __name__).items()}
globals().update(_MADE)


# ---- functions of elements

def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
  """Values below ``min`` and above ``max`` replaced by these, in x's dtype."""
  out = x.broadcast_to(broadcast_shapes(*[t.shape for t in (x, min, max) if isinstance(t, Tensor)]))
  if min is not None: out = where(less(out, min), min, out).cast(x.dtype)
  if max is not None: out = where(greater(out, max), max, out).cast(x.dtype)
  return out.clone()


# ---- creation

def asarray(obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: Any = None) -> Tensor:
  """A Tensor of numbers, nested sequences, arrays or tensors; ``copy=False`` refuses where that needs a copy (ArgumentError)."""
  if isinstance(obj, Tensor):
    same = (dtype is None or dtypes.of(dtype) is obj.dtype) and (device is None or Device.canonicalize(device) == obj.device)
    if same and not copy: return obj
    if copy is False: raise ArgumentError("asarray: another dtype or device with copy=False; leave out copy=False")
    return obj.to(device=device or obj.device, dtype=dtype or obj.dtype).clone()
  if copy is False: raise ArgumentError(f"asarray: {type(obj).__name__} with copy=False; values are copied to a Tensor")
  if isinstance(obj, float): dtype = dtype or dtypes.default_float
  return Tensor(obj, dtype=dtype, device=device)


def linspace(start: float, stop: float, /, num: int, *, dtype: Any = None, device: str | None = None,
             endpoint: Any = True) -> Tensor:
  """``num`` numbers from start to stop, stop itself left out without ``endpoint``."""
  d = dtypes.of(dtype, dtypes.default_float)
  if endpoint or num == 0: return Tensor.linspace(start, stop, num, dtype=d, device=device)
  return Tensor.linspace(start, stop, num + 1, dtype=d, device=device)[:num]


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: str | None = None) -> Tensor:
  """Ones on the k-th diagonal."""
  n, m = n_rows, n_rows if n_cols is None else n_cols
  rows, columns = Tensor.arange(n, device=device).reshape(n, 1), Tensor.arange(m, device=device).reshape(1, m)
  return (rows + k == columns).cast(dtype or dtypes.default_float)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
  """Coordinates for each point of a grid."""
  return list(Tensor.meshgrid(*arrays, indexing=indexing)) if arrays else []


# ---- dtypes

_KINDS: dict[str, str] = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
                          "complex floating": "", "numeric": "iuf"}


def isdtype(dtype: Any, kind: Any) -> Any:
  """Whether a dtype is of a kind: a dtype, a word of the standard, or a tuple of these. Raises ArgumentError."""
  if isinstance(kind, tuple): return builtins.any(isdtype(dtype, k) for k in kind)
  if isinstance(kind, str):
    if kind not in _KINDS: raise ArgumentError(f"isdtype: kind {kind!r}; kinds are {', '.join(_KINDS)}")
    return dtypes.of(dtype).kind in _KINDS[kind] if _KINDS[kind] else False
  return dtypes.of(dtype) is dtypes.of(kind)




def can_cast(from_: Any, to: Any, /) -> Any:
  """Whether promotion leads from one dtype to the other."""
  return promote(from_.dtype if isinstance(from_, Tensor) else dtypes.of(from_), dtypes.of(to)) is dtypes.of(to)


def astype(x: Tensor, dtype: Any, /, *, copy: Any = True, device: str | None = None) -> Tensor:
  """x in another dtype; the same tensor where nothing changes and ``copy=False``."""
  d = dtypes.of(dtype)
  return x if d is x.dtype and not copy and device is None else x.to(device=device or x.device, dtype=d).clone()


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
  """All in the shape that they broadcast to."""
  shape = broadcast_shapes(*[a.shape for a in arrays])
  return [a.broadcast_to(shape) for a in arrays]


# ---- movement

def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
  """Joined along an axis; None: all flattened."""
  d = result_type(*arrays)
  return Tensor.cat(*[(a.reshape(-1) if axis is None else a).cast(d) for a in arrays], dim=axis or 0)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
  """Joined along a new axis."""
  d = result_type(*arrays)
  return Tensor.stack(*[a.cast(d) for a in arrays], dim=axis)


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor: return x.flip(tuple(range(x.ndim)) if axis is None else axis)
def matrix_transpose(x: Tensor, /) -> Tensor: return x.mT


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
  """Each element so often, one after the other."""
  if isinstance(repeats, Tensor) and repeats.numel() == 1: repeats = int(repeats.item())
  return x.repeat_interleave(repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: Any = None) -> Tensor:
  """The same elements in another shape: a view, or with ``copy=True`` a tensor of its own."""
  return x.reshape(shape).clone() if copy else x.reshape(shape)


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
  """Without axes of size 1. Raises ShapeError for another size."""
  axes = [axis] if isinstance(axis, int) else list(axis)
  wrong = [a for a in axes if -x.ndim <= a < x.ndim and x.shape[a] != 1]
  if wrong: raise ShapeError(f"squeeze: axis {wrong[0]} of shape {x.shape}; its size must be 1")
  return x.squeeze(tuple(axes))


# ---- products

def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor: return (x1 * x2).sum(axis, dtype=promote(x1.dtype, x2.dtype))


# ---- reductions

def _sum(method: str) -> Callable[..., Tensor]:
  def function(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Tensor:
    return getattr(x, method)(axis, keepdims, dtype=_summed(x.dtype) if dtype is None else dtype)
  return function


sum, prod = _sum("sum"), _sum("prod")


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: Any = False) -> Tensor:
  """How many elements are not 0."""
  return x.cast(dtypes.bool).sum(axis, keepdims, dtype=dtypes.default_int)


def _cumulative(method: str, first: int) -> Callable[..., Tensor]:
  def function(x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: Any = False) -> Tensor:
    if axis is None and x.ndim > 1: raise ArgumentError(f"cumulative: a tensor of shape {x.shape} without axis; give one")
    a = axis or 0
    out: Tensor = getattr(x, method)(a, dtype=_summed(x.dtype) if dtype is None else dtype)
    if not include_initial: return out
    shape = list(out.shape)
    shape[a] = 1
    return Tensor.cat(Tensor.full(shape, first, dtype=out.dtype, device=out.device), out, dim=a)
  return function


cumulative_sum, cumulative_prod = _cumulative("cumsum", 0), _cumulative("cumprod", 1)


# ---- searching, sets, sorting

def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor: return condition.where(*_promoted(x1, x2))
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor: return x.index_select(axis or 0, indices)
def isin(x1: Any, x2: Any, /, *, invert: Any = False) -> Tensor:
  """Whether each element of the first is one of the second."""
  x1, x2 = _promoted(_tensor(x1), _tensor(x2))
  return x1.isin(x2, invert=invert)
def _tensor(x: Any) -> Tensor: return x if isinstance(x, Tensor) else Tensor(x)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
  """The indices of elements that are not 0, one tensor an axis. Raises ShapeError for a tensor without axes."""
  if not x.ndim: raise ShapeError("nonzero: a tensor of shape (); it needs at least one axis")
  return tuple(x.nonzero(as_tuple=True))


def sort(x: Tensor, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Tensor:
  """In rising or falling order along an axis."""
  return x.sort(axis, descending)[0]


class unique_all_result(NamedTuple):
  """Values, where each stands first, which one each element is, how often each is there."""
  values: Tensor
  indices: Tensor
  inverse_indices: Tensor
  counts: Tensor


class unique_counts_result(NamedTuple):
  """Values, and how often each is there."""
  values: Tensor
  counts: Tensor


class unique_inverse_result(NamedTuple):
  """Values, and which one each element is."""
  values: Tensor
  inverse_indices: Tensor


def unique_values(x: Tensor, /) -> Tensor: return unique_all(x).values


def unique_all(x: Tensor, /) -> unique_all_result:
  """The different values, rising; NaNs are all different, 0 and -0 are one. Computes at once."""
  flat = x.reshape(-1)
  n = flat.shape[0]
  if not n:
    none = Tensor.zeros(0, dtype=dtypes.default_int, device=x.device)
    return unique_all_result(flat.clone(), none, none.reshape(x.shape), none)
  values, order = flat.sort()
  new = Tensor.cat(Tensor.ones(1, dtype=dtypes.bool, device=x.device), values[1:] != values[:-1])
  starts = new.nonzero().reshape(-1)
  inverse = Tensor.zeros(n, dtype=dtypes.int32, device=x.device).scatter(0, order, new.cumsum(0, dtype=dtypes.int32) - 1)
  counts = (Tensor.cat(starts[1:], Tensor.full((1,), n, dtype=starts.dtype, device=x.device)) - starts).cast(dtypes.default_int)
  return unique_all_result(values[starts], order[starts].cast(dtypes.default_int), inverse.reshape(x.shape), counts)


def unique_counts(x: Tensor, /) -> unique_counts_result:
  """See :func:`unique_all`."""
  found = unique_all(x)
  return unique_counts_result(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> unique_inverse_result:
  """See :func:`unique_all`."""
  found = unique_all(x)
  return unique_inverse_result(found.values, found.inverse_indices)


# ---- what there is

class _Info:
  """What this namespace has, as the standard asks for it."""

  def capabilities(self) -> dict[str, Any]:
    return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

  def default_device(self) -> str: return Device.DEFAULT
  def devices(self) -> list[str]: return list(DEVICE_NAMES)

  def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
    return {"real floating": dtypes.default_float, "integral": dtypes.default_int, "indexing": dtypes.int32}

  def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
    return {d.name: d for d in _DTYPES if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> _Info: return _Info()


__all__ = sorted([k for k in globals() if k[0] != "_" and k not in _IMPORTED])  # noqa: PLE0605

show(__name__)
