"""Making tensors: from data on the host, from constants and counters that cost no memory until they are realised, by window
functions, and matrices from their diagonals and columns."""
from __future__ import annotations

import itertools
import math
from typing import Any, Callable, Self, Sequence

import numpy as np

from ntgrad.backends.memory_pool import host_room
from ntgrad.codegen.ir import BinaryOps, DType, UOp, acc_dtype, config, dtypes, held, sum_dtype, to_narrow
from ntgrad.codegen.ir.elementwise import const, eq, le, lt, where
from ntgrad.codegen.ir.errors import ArgumentError, AxisError, DTypeError, OutOfMemoryError, ShapeError, shown
from ntgrad.core import MAX_SIZE, Base, axis_of, memory_format, real_number, shape_of, whole_number
from ntgrad.engine.buffer import Buffer
from ntgrad.engine.device import Device
from ntgrad.engine.index_checks import known_class, within
from ntgrad.graph import Several, checked, mode, nodes as graph, of_kind, origins
from ntgrad.graph.host_values import first_of
from ntgrad.graph.nodes import broadcast, buffer, cast, expand, index_along, index_of, iota, pad, reshape, scan, shrink

from .elementwise import Elementwise, Host
from .families import class_member, member
from .movement import Movement, several
from .promotion import cut_to_int, scalar_node

_MOST_NUMBERS = 1 << 24   # of a window function


def _counted(r: range) -> Host:
  """The numbers of a range."""
  if not r or max(abs(r[0]), abs(r[-1])) >= 2 ** 63: return np.array(list(r[:8]))   # no ints, or such as are refused
  host_room(8 * len(r), "Tensor of a range")
  return np.arange(r[0], r[-1] + (1 if r.step > 0 else -1), r.step)


def array_of(data: Any, dtype: DType | None) -> Host:
  """Nested lists as an array: bools give bool, ints the default int (int64 where they need it), floats the default float. Raises
  ShapeError, DTypeError, ArgumentError."""
  first = 0 if isinstance(data, range) else first_of("Tensor", data)
  try: a = _counted(data) if isinstance(data, range) else np.array(data)
  except MemoryError as e: raise OutOfMemoryError(f"Tensor: out of memory on the host for {shown(data)}: {e}") from None
  except ValueError:
    raise ShapeError(f"Tensor: nested lists of different lengths ({shown(data)}); "
                     "every row must have as many elements as its neighbours") from None
  # ints that numpy makes objects or floats of
  if a.dtype.kind == "O" or (a.dtype.kind == "f" and a.size and abs(a).max() >= 2 ** 63):
    given = np.array(data, object).reshape(-1).tolist()
    for x in given:
      if not isinstance(x, (bool, int, float, np.generic)):
        raise DTypeError(f"Tensor: lists of {type(x).__name__} ({shown(x)}); they may hold bools, ints and floats")
    if given and (a.dtype.kind == "O" or all([isinstance(x, int) for x in given])):
      raise ArgumentError(f"Tensor: a list of ints from {shown(min(given))} to {shown(max(given))}, which no int dtype holds; "
                          "give floats")
  if a.dtype.kind not in "biuf" and a.dtype not in _KNOWN:
    raise DTypeError(f"Tensor: lists of {a.dtype.name}; they may hold bools, ints and floats")
  if dtype is not None: return host_cast(a, dtype)
  if isinstance(first, (np.ndarray, np.generic)): return a
  if a.dtype.kind == "f": return host_cast(a, dtypes.default_float)
  if a.dtype == np.int64 and (not a.size or fits_default(int(a.min()), int(a.max()))): return a.astype(dtypes.default_int.np)
  return a


def fits_default(low: int, high: int) -> bool:
  """Whether the default int dtype holds ints from low to high."""
  return dtypes.min(dtypes.default_int) <= low and high <= dtypes.max(dtypes.default_int)


_KNOWN = frozenset(d.np for d in dtypes.all)


def host_cast(a: Host, dtype: DType) -> Host:
  """An array in another dtype; floats lose their fraction as ints. Raises ArgumentError for what does not fit an int dtype."""
  low, high = dtypes.min(dtype), dtypes.max(dtype)
  if dtype.kind in "iu" and dtypes.of(a.dtype).kind == "f":
    whole = np.trunc(a.astype(np.float64))
    fits = (whole >= low) & (whole < high + 1)
    if not fits.all():
      raise ArgumentError(f"Tensor: value {whole[~fits][0]} does not fit {dtype.name}, which holds {low} to {high}")
  if dtype.kind in "iu" and a.dtype.kind in "iu" and a.size and dtypes.of(a.dtype) is not dtype:
    least, most = int(a.min()), int(a.max())
    if least < low or most > high:
      raise ArgumentError(f"Tensor: values {least} to {most} do not fit {dtype.name}, which holds {low} to {high}")
  return to_narrow(a, dtype) if dtype.kind in "fe" and dtype.itemsize < 4 else a.astype(dtype.np)


def bits_of(name: str, data: Any, dtype: DType, count: int = -1, offset: int = 0) -> Host:
  """Bytes as numbers of a dtype, from byte ``offset``, ``count`` of them (-1: all). Raises ArgumentError for too few bytes, for
  some left over, and for what has none."""
  try: array = np.frombuffer(data, np.uint8 if dtype.kind == "b" else dtype.np, count, offset)
  except (TypeError, ValueError, OverflowError, AttributeError, BufferError) as e:
    raise ArgumentError(
      f"{name}: {f'{len(data)} bytes' if isinstance(data, (bytes, bytearray)) else shown(data)} as {dtype.name} of "
      f"{dtype.itemsize} bytes each{f', count {shown(count)}, offset {shown(offset)}' if count != -1 or offset else ''}: {e}"
    ) from None
  if dtype.kind == "b" and (array > 1).any(): raise ArgumentError(f"{name}: a byte of {array.max()} as bool; bools are 0 and 1")
  return array.astype(bool) if dtype.kind == "b" else array


def _moved(node: UOp, device: str | None) -> UOp:
  """A node on a device (None: where it is)."""
  return node if device is None or (node.device or Device.DEFAULT) == device else graph.copy(node, device)


def _of_numbers(data: Any, first: Any) -> Any:
  """Nested lists of tensors that are one number each, and of numbers beside them, as a tensor. Raises DTypeError for others."""
  if isinstance(data, (list, tuple)): return type(first).stack([_of_numbers(x, first) for x in data])
  t: Any = data.detach() if isinstance(data, Base) else type(first)(data, device=first.device)
  if t.numel() != 1: raise DTypeError(f"Tensor: lists of tensors ({shown(t)}); join them with Tensor.stack or Tensor.cat")
  return t.reshape(())


def node_of(data: Any, device: str | None, dtype: DType | None) -> UOp:
  """The node of anything that a Tensor is made from. Raises DTypeError for other things."""
  if isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
    d = dtype or dtypes.of(type(data))
    if dtype is None and d.kind in "iu" and not fits_default(int(data), int(data)): d = dtypes.int64
    return _moved(scalar_node("Tensor", cut_to_int("Tensor", data, d), d, ()), device)
  if isinstance(data, Base): data = data.lazydata
  if isinstance(data, UOp): return _moved(data if dtype is None else cast(data, dtype), device)
  if isinstance(data, memoryview) and dtype is None and data.format not in ("B", "b", "c"): data = np.asarray(data)   # numbers
  if isinstance(data, (bytes, bytearray, memoryview)): array, dtype = bits_of("Tensor", data, dtype or dtypes.uint8), None
  elif isinstance(data, Several): raise data.refused()
  elif isinstance(data, (list, tuple)) and isinstance(first := first_of("Tensor", data), Base):
    return node_of(_of_numbers(data, first), device, dtype)
  elif isinstance(data, (list, tuple, range)): array = array_of(data, dtype)
  elif isinstance(data, (np.ndarray, np.generic)): array = np.asarray(data)
  elif data is None: array = np.zeros(0, dtypes.default_float.np)
  else:
    from ntgrad.engine import interchange
    if not interchange.speaks(data) and hasattr(type(data), "__array__"):   # a pandas column, a picture
      return node_of(np.asarray(data), device, dtype)
    if not interchange.speaks(data):
      raise DTypeError(f"Tensor: data of {type(data).__name__}; "
                       "it takes numbers, nested lists, numpy arrays, bytes, Tensors, UOps and tensors of other libraries")
    found = interchange.take(data)
    node = interchange.adopt(found, device, copy=True if found.kind == interchange.CPU else None)
    return _moved(node if dtype is None else cast(node, dtype), device)
  if array.dtype.byteorder not in "=|" and not array.dtype.isnative: array = array.astype(array.dtype.newbyteorder("="))
  if array.dtype.type in (np.longlong, np.ulonglong): array = array.astype(np.int64 if array.dtype.kind == "i" else np.uint64)
  dtypes.of(array.dtype)  # refuses what ntgrad does not have
  if dtype is not None: array = host_cast(array, dtype)
  return buffer(Buffer.from_numpy(device or Device.DEFAULT, array))


def new_shape(name: str, shape: Sequence[Any], size: Any = None) -> tuple[int, ...]:
  """The shape of a new tensor, which was given separately or by the keyword ``size``. Raises ArgumentError for both, and for
  what no tensor has."""
  if size is not None:
    if shape: raise ArgumentError(f"{name}: a shape {shown(tuple(shape))} and size={shown(size)}; give one of them")
    shape = (tuple(size) if isinstance(size, (tuple, list)) else size,)
  s = shape_of(name, shape)
  if any([n < 0 for n in s]): raise ArgumentError(f"{name}: shape {s}; sizes must not be negative")
  if math.prod(s) > MAX_SIZE: raise ArgumentError(f"{name}: shape {s} has {math.prod(s)} elements; a tensor has up to {MAX_SIZE}")
  return s


def number_dtype(name: str, dtype: Any, default: DType) -> DType:
  """The dtype that is asked for. Raises DTypeError for bool."""
  d = dtypes.of(dtype, default)
  if d.kind == "b": raise DTypeError(f"{name}: bool; it gives numbers")
  return d


def _float(dtype: Any) -> DType: return dtypes.of(dtype, dtypes.default_float)


def _steps_in(d: DType) -> DType:
  """What steps between numbers are counted in, for a dtype."""
  return dtypes.float64 if d is dtypes.float64 or d.kind != "f" else dtypes.float32


@checked
class Creation(Elementwise, Movement):
  """Constants, counters, window functions; matrices of diagonals and columns."""
  __slots__ = ()

  # ---- constants and counters
  @classmethod
  def _made(cls, node: UOp, device: str | None, requires_grad: bool | None) -> Self:
    if device is not None and node.device is None: node = _moved(node, Device._located(device))
    return cls._from_node(node)._made_leaf(requires_grad)
  def _made_leaf(self, requires_grad: bool | None) -> Self:
    """This new tensor, a leaf if that is said, or the setting ALL_LEAVES says it of what the user's line makes."""
    if requires_grad is None and config.all_leaves and mode.grad and self._state == 0 and self.dtype.kind == "f":
      requires_grad = origins.asked_for() or None
    if requires_grad is not None: self.requires_grad = requires_grad
    return self

  @classmethod
  def full(cls, shape: Any = None, fill_value: Any = None, *, size: Any = None, dtype: Any = None, device: str | None = None,
           requires_grad: bool | None = None, buffer: bool = True) -> Self:
    """A number everywhere; the dtype is the number's unless given. It takes memory once it is realised or written, whatever
    ``buffer`` says. Raises ArgumentError."""
    s = new_shape("full", () if shape is None else (shape,), size)
    if isinstance(fill_value, (Base, np.ndarray)):
      return cls(fill_value, dtype=dtype, device=device).expand(s)._own()._made_leaf(requires_grad)
    if isinstance(fill_value, np.generic):
      fill_value, dtype = fill_value.item(), dtypes.of(fill_value.dtype) if dtype is None else dtype
    if not isinstance(fill_value, (bool, int, float)):
      raise DTypeError(f"full: a value of {type(fill_value).__name__}; it takes numbers")
    d = dtypes.of(type(fill_value) if dtype is None else dtype)
    return cls._made(scalar_node("full", cut_to_int("full", fill_value, d), d, s), device, requires_grad)

  @classmethod
  def _filled(cls, name: str, value: int, *shape: Any, size: Any = None, dtype: Any = None, device: str | None = None,
              requires_grad: bool | None = None, buffer: bool = True) -> Self:
    return cls.full(new_shape(name, shape, size), value, dtype=_float(dtype), device=device, requires_grad=requires_grad)
  zeros = class_member(
    _filled, 0, "Zeros of a shape, of the default float (float32) unless told otherwise. Raises ArgumentError.")
  ones = class_member(_filled, 1, "Ones of a shape, of the default float (float32) unless told otherwise. Raises ArgumentError.")

  @classmethod
  def empty(cls, *shape: Any, size: Any = None, dtype: Any = None, device: str | None = None,
            requires_grad: bool | None = None, memory_format: memory_format | None = None) -> Self:
    """Memory of a shape that is not initialised, of the default float (float32) unless told otherwise; ``memory_format`` has no
    effect. Raises ArgumentError."""
    d = _float(dtype)
    s = new_shape("empty", shape, size)
    return cls._made(buffer(Buffer(Device._located(device), s, d)), None, requires_grad)

  @classmethod
  def arange(cls, start: float, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: str | None = None,
             requires_grad: bool | None = None) -> Self:
    """start, start + step, .. below stop (``arange(n)``: 0 .. n-1); for ints the default int, int32 (int64 where they need it),
    for floats the default float. Raises ArgumentError."""
    if stop is None: start, stop = 0, start
    start, stop, step = [real_number("arange", *given) for given in (("start", start), ("stop", stop), ("step", step))]
    if step == 0: raise ArgumentError(f"arange: step 0 from {start} to {stop}; it must not be zero")
    ints = all([isinstance(v, int) for v in (start, stop, step)])
    n, most = max(0, -((start - stop) // step) if ints else int(math.ceil((stop - start) / step))), dtypes.max(dtypes.int32)
    if n > most: raise ArgumentError(f"arange: {n} elements; at most {most}")
    last = start + (n - 1) * step
    low, high = min(start, last), max(start, last)
    d = number_dtype("arange", dtype, dtypes.default_int if ints else dtypes.default_float)
    if dtype is None and ints and n and not fits_default(int(low), int(high)): d = dtypes.int64
    if n == 0: return cls._made(const(0, d, (0,)), device, requires_grad)
    if d.kind in "iu":
      for v in (start, last): scalar_node("arange", int(v), d, ())
    # ints are counted as ints and rounded at the end
    if not ints: work = _steps_in(d)
    else: work = dtypes.int32 if -most - 1 <= low and max(high, (n - 1) * abs(step)) <= most else dtypes.int64   # on the way too
    u = cast(iota(n), work)  # type: ignore[arg-type]  # an int: steps of floats are rounded up above
    if step != 1: u = u * step
    if start != 0: u = u + start
    return cls._made(cast(u, d), device, requires_grad)

  @classmethod
  def linspace(cls, start: float, stop: float, steps: int, *, dtype: Any = None, device: str | None = None,
               requires_grad: bool | None = None) -> Self:
    """``steps`` evenly spaced numbers from start to stop, both included exactly. Raises ArgumentError."""
    n = whole_number("linspace", "steps", steps, 0)
    start, stop = real_number("linspace", "start", start), real_number("linspace", "stop", stop)
    d = number_dtype("linspace", dtype, dtypes.default_float)
    if d.kind != "f" and n:
      for v in (start, stop): scalar_node("linspace", int(v), d, ())
    if n < 2: return cls.full((n,), start, dtype=d, device=device, requires_grad=requires_grad)
    work = _steps_in(d)
    step = (stop - start) / (n - 1)
    if not math.isfinite(held(step, work)):
      raise ArgumentError(f"linspace: {n} steps from {start} to {stop}; a step does not fit {work.name}")
    # the first half is counted from the start, the second from the stop
    first = lt(iota(n), n // 2)
    return cls._made(cast(cast(where(first, iota(n), iota(n) - (n - 1)), work) * step
                          + where(first, const(start, work, (n,)), stop), d), device, requires_grad)

  @classmethod
  def logspace(cls, start: float, stop: float, steps: int, base: float = 10.0, *, dtype: Any = None, device: str | None = None,
               requires_grad: bool | None = None) -> Self:
    """``base`` to the powers of ``linspace(start, stop, steps)``. Raises ArgumentError for a base that is not above 0."""
    base = real_number("logspace", "base", base)
    if base <= 0: raise ArgumentError(f"logspace: base {base}; it must be above 0")
    d = number_dtype("logspace", dtype, dtypes.default_float)
    return cls._made(cast(graph.power(base, cls.linspace(start, stop, steps, dtype=_steps_in(d)).lazydata), d), device,
                     requires_grad)

  @classmethod
  def eye(cls, n: int, m: int | None = None, *, dtype: Any = None, device: str | None = None,
          requires_grad: bool | None = None) -> Self:
    """Ones on the diagonal of (n, m or n), zeros elsewhere. Raises ArgumentError."""
    s = new_shape("eye", (n, n if m is None else m))
    return cls._made(cast(eq(index_along(0, s), index_along(1, s)), _float(dtype)), device, requires_grad)

  def _alike_in(self, dtype: Any, device: str | None) -> dict[str, Any]:
    """This tensor's dtype and device where none is given."""
    return {"dtype": self.dtype if dtype is None else dtype, "device": self.lazydata.device if device is None else device}
  def full_like(self, fill_value: Any, *, dtype: Any = None, device: str | None = None,
                requires_grad: bool | None = None, buffer: bool = True) -> Self:
    """A number everywhere, of this shape, dtype and device."""
    return type(self).full(
      self.shape, fill_value, requires_grad=requires_grad, **self._alike_in(dtype, device))._called(self._names)
  zeros_like = member(full_like, 0, "Zeros of this shape, dtype and device.")
  ones_like = member(full_like, 1, "Ones of this shape, dtype and device.")
  def empty_like(self, *, dtype: Any = None, device: str | None = None, requires_grad: bool | None = None) -> Self:
    """Memory of this shape, dtype and device that is not initialised."""
    return type(self).empty(self.shape, requires_grad=requires_grad, **self._alike_in(dtype, device))._called(self._names)

  def new_full(self, size: Any, fill_value: Any, *, dtype: Any = None, device: str | None = None,
               requires_grad: bool | None = None) -> Self:
    """A number everywhere, of a shape, in this dtype and on this device. Raises ArgumentError."""
    return type(self).full(size, fill_value, requires_grad=requires_grad, **self._alike_in(dtype, device))
  def _new(self, make: str, *shape: Any, size: Any = None, dtype: Any = None, device: str | None = None,
           requires_grad: bool | None = None) -> Self:
    return getattr(type(self), make)(*shape, size=size, requires_grad=requires_grad, **self._alike_in(dtype, device))
  new_zeros = member(_new, "zeros", "Zeros of a shape, in this dtype and on this device. Raises ArgumentError.")
  new_ones = member(_new, "ones", "Ones of a shape, in this dtype and on this device. Raises ArgumentError.")
  new_empty = member(
    _new, "empty", "Memory of a shape that is not initialised, in this dtype and on this device. Raises ArgumentError.")
  def new_tensor(self, data: Any, *, dtype: Any = None, device: str | None = None, requires_grad: bool | None = None) -> Self:
    """A tensor of its own from data, in the data's dtype unless told otherwise, on this device. See :class:`Tensor` for what it
    takes and raises."""
    if isinstance(data, Base): data = data.detach()
    return type(self)(data, self._alike_in(dtype, device)["device"], dtype, requires_grad)

  @classmethod
  def from_numpy(cls, array: Any, *, device: str | None = None, requires_grad: bool | None = None) -> Self:
    """A numpy array's values in its dtype: a copy, unlike PyTorch's. Raises DTypeError for anything that is no array."""
    if not isinstance(array, (np.ndarray, np.generic)):
      raise DTypeError(f"from_numpy: {shown(array)} is no numpy array; Tensor(..) takes other things")
    return cls(array, device, None, requires_grad)

  @classmethod
  def tri(cls, n: int, m: int | None = None, k: int = 0, *, dtype: Any = None, device: str | None = None,
          requires_grad: bool | None = None) -> Self:
    """Ones on and below diagonal k of (n, m or n), zeros above, as numpy's. Raises ArgumentError."""
    s = new_shape("tri", (n, n if m is None else m))
    below = le(index_along(1, s), index_along(0, s) + max(-s[0], min(k, s[1])))
    return cls._made(cast(below, _float(dtype)), device, requires_grad)

  def _triangle(self, name: str, upper: bool, diagonal: int = 0) -> Self:
    u = self.lazydata
    if len(u.shape) < 2: raise ShapeError(f"{name}: shape {u.shape}; it takes at least 2 dimensions")
    s = u.shape[-2:]
    diagonal = max(-s[0], min(diagonal, s[1]))
    row = index_along(0, s) + diagonal if diagonal else index_along(0, s)
    a, b = (row, index_along(1, s)) if upper else (index_along(1, s), row)
    return self._wrap(where(broadcast(le(a, b), u.shape), u, 0))
  tril = member(_triangle, False, "The lower triangle of the last two dims, zeros above. Raises ShapeError.")
  triu = member(_triangle, True, "The upper triangle of the last two dims, zeros below. Raises ShapeError.")

  def diag(self, diagonal: int = 0) -> Self:
    """(n,) -> a square matrix with the elements on a diagonal, zeros elsewhere; (m, n) -> the elements of that diagonal, a tensor
    of its own. ``diagonal`` is how far to the right of the main one it lies. Raises ShapeError for another number of dims."""
    if self.ndim == 2: return self.diagonal(diagonal)._own()
    if self.ndim != 1: raise ShapeError(f"diag: shape {self.shape}; it takes one dimension or two (diagonal() takes more)")
    n, first = self.shape[0], max(diagonal, 0)
    size = n + abs(diagonal)
    if not n: return type(self).full((size, size), 0, dtype=self.dtype, device=self.device)
    first += max(-diagonal, 0) * size
    u = reshape(pad(reshape(self.lazydata, (n, 1)), ((0, 0), (0, size))), (n * (size + 1),))
    last = (n - 1) * (size + 1) + 1   # the zeros behind the last element go
    u = pad(shrink(u, ((0, last),)), ((first, size * size - first - last),))
    return self._wrap(reshape(u, (size, size)))

  @classmethod
  def _triangle_indices(cls, name: str, make: Any, row: int, col: int | None = None, offset: int = 0, *,
                        dtype: DType | str | None = None, device: str | None = None) -> Self:
    n, m = new_shape(name, (row, row if col is None else col))
    if n * m > dtypes.max(dtypes.int32): raise ArgumentError(f"{name}: a matrix of shape {(n, m)}; at most 2**31 - 1 elements")
    return cls(np.stack(make(n, max(-n - 1, min(offset, m + 1)), m)).astype(np.int32), device=device,
               dtype=dtypes.of(dtype, dtypes.int32))
  tril_indices = class_member(_triangle_indices, np.tril_indices, """
    (2, k): rows and columns of the elements at and below a diagonal of a (row, col) matrix, row by row; int32 unless told
    otherwise. Raises ArgumentError.""")
  triu_indices = class_member(_triangle_indices, np.triu_indices, """
    (2, k): rows and columns of the elements at and above a diagonal, as ``tril_indices``. Raises ArgumentError.""")

  def one_hot(self, num_classes: int = -1) -> Self:
    """(..,) ints -> (.., num_classes) int32: 1 at the index, 0 elsewhere; all 0 where the index is no class. -1: as many classes
    as the greatest index needs, which is read for it. Raises DTypeError, ArgumentError; IndexOutOfRangeError for a constant that
    is no class."""
    u = self.lazydata
    of_kind("iu", "one_hot", "a tensor", u, "it takes ints")
    if num_classes == -1:
      if not self.numel(): raise ArgumentError("one_hot: no indices to count classes by; give num_classes")
      num_classes = int(self.numpy().max()) + 1
    whole_number("one_hot", "num_classes", num_classes, 0)
    known_class("one_hot", u, num_classes)
    shape = *u.shape, num_classes
    inside = within(index_of(u, num_classes), 0, num_classes, "one_hot",
                    f"the {num_classes} classes, which go from 0 to {num_classes - 1}", u.device)
    index = expand(reshape(inside, (*u.shape, 1)), shape)
    out = self._from_node(cast(eq(index, cast(index_along(len(u.shape), shape), index.dtype)), dtypes.int32))
    if self._names is not None: out._names = *self._names, None
    return out

  # ---- matrices of other matrices, of columns and of diagonals
  def block_diag(*tensors: Any) -> Any:
    """Matrices (of fewer dims: rows) one after the other on the diagonal, zeros elsewhere: (a, b), (c, d) -> (a + c, b + d).
    Raises ShapeError for more than 2 dims, ArgumentError."""
    ts = several("block_diag", tensors)
    if any([t.ndim > 2 for t in ts]):
      raise ShapeError(f"block_diag: shapes {', '.join([str(t.shape) for t in ts])}; it takes at most 2 dimensions")
    ts = tuple([t.named().atleast_2d() for t in ts])
    ends = list(itertools.accumulate([t.shape[1] for t in ts]))
    return Movement.cat([t.pad(((0, 0), (at, ends[-1] - at - t.shape[1]))) for t, at in zip(ts, (0, *ends))])

  def vander(self, N: int | None = None, increasing: bool = False) -> Self:
    """(n,) -> (n, N): the powers of each element, the highest first or ``increasing`` from 0 on; of ints int64. Raises
    ShapeError, ArgumentError."""
    if self.ndim != 1: raise ShapeError(f"vander: shape {self.shape}; it takes one dimension")
    n = self.shape[0]
    columns = new_shape("vander", (n, n if N is None else N))[1]
    out, shape = sum_dtype(self.dtype), (n, columns)
    powers = where(eq(index_along(1, shape), 0 if increasing else columns - 1), 1,
                   expand(reshape(cast(self.lazydata, acc_dtype(out)), (n, 1)), shape))
    if n and columns: powers = scan(BinaryOps.MUL, powers, 1, not increasing)
    return self.named()._wrap(cast(powers, out))

  def diag_embed(self, offset: int = 0, dim1: int | str = -2, dim2: int | str = -1) -> Self:
    """(.., n) -> (.., m, m) with the last dim on a diagonal (``offset`` above the main one, m = n + |offset|), zeros elsewhere;
    the two dims of m stand at ``dim1`` and ``dim2``. Raises AxisError, ShapeError, ArgumentError."""
    if not self.ndim: raise ShapeError("diag_embed: shape (); it takes at least 1 dimension")
    a, b = [axis_of("diag_embed", d, self.ndim + 1) for d in (dim1, dim2)]
    if a == b: raise AxisError(f"diag_embed: dim1 {dim1} and dim2 {dim2} are the same dimension")
    m = new_shape("diag_embed", (self.shape[-1] + abs(offset),) * 2)[0]
    rows = self.named().pad(((0, 0),) * (self.ndim - 1) + ((max(-offset, 0), max(offset, 0)),)).unsqueeze(-1)
    there: Any = self._from_node(eq(index_along(1, (m, m)), index_along(0, (m, m)) + offset))
    return there.where(rows, False if rows.dtype.kind == "b" else 0).movedim((-2, -1), (a, b))._own()

  def diagflat(self, offset: int = 0) -> Self:
    """The elements, flattened, on a diagonal of a square matrix; zeros elsewhere."""
    return self.named().flatten().diag_embed(offset)

  # ---- window functions: ``window_length`` numbers, computed on the host in float64. ``periodic``: as if one more, the first
  # again, came behind the last. All raise ArgumentError, and DTypeError for a dtype without fractions.
  @classmethod
  def _window(cls, name: str, fn: Callable[[Any], Any], window_length: int, periodic: bool = True, *, dtype: Any = None,
              device: str | None = None, requires_grad: bool | None = None) -> Self:
    """fn of places from 0 to 1."""
    d, n = _float(dtype), window_length
    if d.kind != "f": raise DTypeError(f"{name}: dtype {d.name}; it takes floats")
    if not 0 <= n <= _MOST_NUMBERS: raise ArgumentError(f"{name}: window_length {n}; it goes from 0 to {_MOST_NUMBERS}")
    return cls(fn(np.arange(n) / (n if periodic else n - 1)) if n > 1 else np.ones(n), device, d, requires_grad)

  hann_window = class_member(_window, lambda t: 0.5 - 0.5 * np.cos(2 * math.pi * t), "1/2 - 1/2 cos(2 pi t).")
  blackman_window = class_member(
    _window, lambda t: np.maximum(0.42 - 0.5 * np.cos(2 * math.pi * t) + 0.08 * np.cos(4 * math.pi * t), 0),
    "0.42 - 0.5 cos(2 pi t) + 0.08 cos(4 pi t).")
  bartlett_window = class_member(_window, lambda t: 1 - np.abs(2 * t - 1), "1 - |2 t - 1|: a triangle.")

  @classmethod
  def hamming_window(cls, window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
                     dtype: Any = None, device: str | None = None, requires_grad: bool | None = None) -> Self:
    """alpha - beta cos(2 pi t)."""
    a, b = real_number("hamming_window", "alpha", alpha), real_number("hamming_window", "beta", beta)
    return cls._window("hamming_window", lambda t: a - b * np.cos(2 * math.pi * t), window_length, periodic, dtype=dtype,
                       device=device, requires_grad=requires_grad)

  @classmethod
  def kaiser_window(cls, window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None,
                    device: str | None = None, requires_grad: bool | None = None) -> Self:
    """I0(beta sqrt(1 - (2 t - 1)²)) / I0(beta), I0 being the modified Bessel function of order 0. ``beta`` is at most 700."""
    b = real_number("kaiser_window", "beta", beta)
    if not abs(b) <= 700: raise ArgumentError(f"kaiser_window: beta {beta}; it goes from -700 to 700")
    return cls._window("kaiser_window", lambda t: np.i0(b * np.sqrt(np.maximum(1 - (2 * t - 1) ** 2, 0))) / np.i0(np.float64(b)),
                       window_length, periodic, dtype=dtype, device=device, requires_grad=requires_grad)
