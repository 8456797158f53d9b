"""Indexing of ``Tensor``: ints, slices, None, Ellipsis and integer tensors; gather and scatter; assignment to parts.

Integer tensors are GATHERs of rows: the indexed dims are brought to the front and joined, so any number of them is one GATHER.
"""
from __future__ import annotations

import math
import operator
from typing import Any, Self, Sequence

import numpy as np

from ntgrad import graph
from ntgrad.alias import Move
from ntgrad.bounds import within
from ntgrad.checks import checked, foreign
from ntgrad.codegen.dtype import dtypes, promote
from ntgrad.codegen.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError, shown
from ntgrad.codegen.uop import BinaryOps, Ops, UOp
from ntgrad.core import MAX_DIMS, Base, axis_of
from ntgrad.elementwise import broadcast_shape, common_device
from ntgrad.names import Names, merged, text
from ntgrad.random import Random

_ADD, _MUL, _LT, _AND = BinaryOps.ADD, BinaryOps.MUL, BinaryOps.CMPLT, BinaryOps.AND


def host_index(name: str, index: Any, size: int, axis: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
  """An index array known on the host, made non-negative. Raises IndexOutOfRangeError, DTypeError."""
  try: a = np.asarray(index)
  except ValueError: raise ShapeError(f"{name}: an index list whose rows have different lengths") from None
  if a.size == 0: a = a.astype(np.int32)
  if a.dtype.kind == "b":
    raise DTypeError(f"{name}: a bool mask of shape {a.shape}; the result's shape would depend on the values: "
                     "use where() or masked_fill(), or give integer indices")
  if a.dtype.kind not in "iu": raise DTypeError(f"{name}: an index of {a.dtype.name}; indices are ints")
  if a.size and (a.min() < -size or a.max() >= size):
    bad = int(a.min()) if a.min() < -size else int(a.max())
    raise IndexOutOfRangeError(f"{name}: index {bad} on axis {axis} of shape {shape}; indices go from {-size} to {size - 1}")
  a = a.astype(np.int64)   # every index that is inside fits, and its dtype may not hold the size
  return np.where(a < 0, a + size, a).astype(np.int32 if size < 2 ** 31 else np.int64)


def normal_index(name: str, u: UOp, axis: int, shape: tuple[int, ...], device: str | None) -> UOp:
  """An index of an axis with negative ones counted from the end; it is checked where ``config.check_indices`` says so."""
  size = shape[axis]
  of = f"dimension {axis} of a tensor of shape {shape}, which has {size} elements"
  if u.dtype.kind == "u" or u.op is Ops.IOTA: return graph.index_of(within(u, 0, size, name, of, device), size)
  u = within(graph.index_of(u, size), -size, size, name, of, device)
  return graph.where(graph.scalar(_LT, u, 0), graph.scalar(_ADD, u, size), u)


def joined_index(indices: Sequence[UOp], sizes: Sequence[int]) -> UOp:
  """Several indices (of one shape, not negative) as one of the joined dims; -1 where any is out of range."""
  if len(indices) == 1: return indices[0]
  work = dtypes.int64 if math.prod(sizes) >= 2 ** 31 else dtypes.int32
  flat: UOp | None = None
  valid: UOp | None = None
  for u, size in zip(indices, sizes):
    u = graph.index_of(u, size)
    inside = graph.inside(u, size)   # before the cast, which may cut off what makes it too large
    valid = inside if valid is None else graph.binary(_AND, valid, inside)
    u = graph.cast(u, work)
    flat = u if flat is None else graph.add(graph.scalar(_MUL, flat, size), u)
  assert flat is not None and valid is not None
  return graph.where(valid, flat, graph.const(-1, work, flat.shape))


def _sliced(item: slice, size: int) -> tuple[int, int, int]:
  """The first element of a slice, how many it has, and its step, as ``slice.indices`` has them. What is made of Variables stays
  so: each end is compared with the size, so that a capture knows for which values it is cut off."""
  step = 1 if item.step is None else operator.index(item.step)
  if step == 0: raise ValueError("slice step cannot be zero")
  low, high = (0, size) if step > 0 else (-1, size - 1)
  def end(given: Any, without: int) -> int:
    if given is None: return without
    n: int = given if isinstance(given, int) else operator.index(given)
    if n < 0: n = n + size
    return low if n < low else high if n > high else n
  first, last = (end(item.start, low), end(item.stop, high)) if step > 0 else (end(item.start, high), end(item.stop, low))
  length, each = (last - first, step) if step > 0 else (first - last, -step)
  return first, (length + each - 1) // each if length > 0 else 0, step


def _order(items: Sequence[Any], arrays: Sequence[int], ints: Sequence[int]) -> tuple[list[int], int]:
  """The items beside integer tensors and ints, and how many of them come before the index's dimensions, as numpy has it: those
  before the first of the two where these stand side by side, else none."""
  rest = [k for k in range(len(items)) if k not in arrays and k not in ints]
  chosen = sorted([*arrays, *ints])
  together = chosen[-1] - chosen[0] + 1 == len(chosen)
  return rest, len([k for k in rest if k < chosen[0]]) if together else 0


@checked
class Indexing(Random):
  """Indexing, gather, scatter, assignment to parts."""
  __slots__ = ()

  def _parse(self, name: str, index: Any) -> tuple[list[Any], list[int]]:
    """One item a dim of the result before ints are dropped: (begin, count, step) for a dim, None for a new one, or an index node;
    and which of them are ints.

    Raises IndexOutOfRangeError, ArgumentError, DTypeError.
    """
    s = self.shape
    items = list(index) if isinstance(index, tuple) else [index]
    used = sum([1 for i in items if i is not None and i is not Ellipsis])
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1: raise ArgumentError(f"{name}: {len(dots)} Ellipsis for shape {s}; at most one")
    if used > len(s): raise IndexOutOfRangeError(f"{name}: {used} indices for shape {s}, which has {len(s)} dimensions")
    at = dots[0] if dots else len(items)
    items[at:at + 1] = [slice(None)] * (len(s) - used)
    if len(items) > MAX_DIMS:
      raise IndexOutOfRangeError(f"{name}: an index that makes {len(items)} dimensions of shape {s}; at most {MAX_DIMS}")
    out: list[Any] = []
    ints: list[int] = []
    axis = 0
    for item in items:
      if item is None:
        out.append(None)
        continue
      size = s[axis]
      if isinstance(item, (bool, np.bool_)):
        raise DTypeError(f"{name}: the bool {item} as an index; indices are ints, slices, None, ... and int tensors")
      if isinstance(item, (int, np.integer)):
        if not -size <= item < size:
          raise IndexOutOfRangeError(
            f"{name}: index {shown(item)} on axis {axis} of shape {s}; indices go from {-size} to {size - 1}"
          )
        ints.append(len(out))
        out.append((item if item >= 0 else item + size, 1, 1))
      elif isinstance(item, slice):
        try: out.append(_sliced(item, size))
        except ValueError: raise ArgumentError(f"{name}: slice {item} with step 0; the step must not be zero") from None
        except TypeError: raise ArgumentError(f"{name}: slice {shown(item)}; its parts must be ints or None") from None
      elif isinstance(item, Base):
        if item.dtype.kind == "b":
          raise DTypeError(f"{name}: a bool mask of shape {item.shape}; the result's shape would depend on the values: "
                           "use where() or masked_fill(), or give integer indices")
        if item.dtype.kind not in "iu": raise DTypeError(f"{name}: an index tensor of {item.dtype.name}; indices are ints")
        common_device(name, self.lazydata, item.lazydata)
        out.append(normal_index(name, item.lazydata, axis, s, self.lazydata.device))
      elif isinstance(item, (list, tuple, np.ndarray, range)) or foreign(item):
        if foreign(item) and not isinstance(item, np.ndarray): item = np.asarray(item)
        array = host_index(name, list(item) if isinstance(item, (tuple, range)) else item, size, axis, s)
        out.append(type(self)(array, device=self.lazydata.device).lazydata)  # type: ignore[call-arg]
      else:
        raise DTypeError(f"{name}: an index of {type(item).__name__}; "
                         "indices are ints, slices, None, ... and int tensors or lists")
      axis += 1
    return out, ints

  def __getitem__(self, index: Any) -> Self:
    """Parts, as in numpy: ints, slices with steps, None, Ellipsis, integer tensors and lists (which broadcast together).

    Without integer tensors and lists a view, else a tensor of its own.
    Ints and lists outside the dim raise IndexOutOfRangeError. So does an index tensor where the host next waits for the device,
    on CPU and NUMPY (``config.check_indices``); where that is off, elements outside give zeros. Bool masks are refused
    (DTypeError).
    """
    items, ints = self._parse("getitem", index)
    seen = self._seen(*self._boxed(items), dims=None if self._names is None else range(self.ndim))
    arrays = [k for k, i in enumerate(items) if isinstance(i, UOp)]
    # sizes now: one a item
    sizes = iter(seen.shape)
    shape = [1 if i is None else next(sizes) for i in items]
    if arrays:
      out = self._gathered(graph.reshape(seen.lazydata, tuple(shape)), items, arrays, ints)
      out._names = self._gathered_names(index if isinstance(index, tuple) else (index,), items, arrays, ints)
      return out
    dims = None
    if self._names is not None:
      axes = iter(range(self.ndim))
      dims = [None if i is None else next(axes) for i in items]
      dims = [d for k, d in enumerate(dims) if k not in ints]
    return seen._seen((Ops.RESHAPE, tuple([d for k, d in enumerate(shape) if k not in ints])), dims=dims)

  def _boxed(self, items: Sequence[Any]) -> list[Move]:
    """The slices, as movement: shrink, flip, steps."""
    box, turned, steps = [], [], []
    sizes = iter(self.shape)
    for axis, i in enumerate([i for i in items if i is not None]):
      size = next(sizes)
      if isinstance(i, UOp):
        box.append((0, size))
        steps.append(1)
        continue
      b, n, step = i
      if n == 0: box.append((0, 0))
      elif step > 0: box.append((b, b + (n - 1) * step + 1))
      else: box.append((b + (n - 1) * step, b + 1))
      if step < 0 and n: turned.append(axis)
      steps.append(abs(step) if n > 1 else 1)
    moves: list[Move] = [(Ops.SHRINK, tuple(box)), (Ops.FLIP, tuple(turned))]
    if any([s > 1 for s in steps]):
      counts = tuple([-(-(e - b) // s) for (b, e), s in zip(box, steps)])
      moves += [(Ops.TILE, tuple([(1, s, 1) for s in steps])), (Ops.RESHAPE, counts)]
    return moves

  def _gathered(self, u: UOp, items: Sequence[Any], arrays: list[int], ints: list[int]) -> Self:
    """Integer tensors at the dims ``arrays``; ints at ``ints`` take part as index arrays of shape (), as in numpy."""
    indices = [items[k] for k in arrays]
    if len(indices) == 1: common = indices[0].shape
    else:
      common = broadcast_shape("getitem", *[i.shape for i in indices])
      indices = [graph.broadcast(i, common) for i in indices]
    rest, front = _order(items, arrays, ints)
    sizes = [u.shape[k] for k in arrays]
    moved = graph.permute(u, (*arrays, *ints, *rest))
    base = graph.reshape(moved, (*sizes, *[u.shape[k] for k in rest]))
    node = graph.gather(base, *indices)
    n = len(common)
    if front: node = graph.permute(node, (*range(n, n + front), *range(n), *range(n + front, n + len(rest))))
    return self._wrap(node)

  def _gathered_names(self, index: Sequence[Any], items: Sequence[Any], arrays: list[int], ints: list[int]) -> Names | None:
    """The names of what ``_gathered`` gives: those of the index tensors stand where their dimensions do."""
    given = [i for i in index if isinstance(i, Base)]
    if self._names is None and all([t._names is None for t in given]): return None
    rest, front = _order(items, arrays, ints)
    n = max([len(items[k].shape) for k in arrays])
    place = {k: r if r < front else r + n for r, k in enumerate(rest)}
    places: list[Any] = [[place.get(k) for k, i in enumerate(items) if i is not None]]
    places += [range(front + n - t.ndim, front + n) for t in given]
    return merged("getitem", (self, *given), places, len(rest) + n)

  # ---- assignment to parts
  def __setitem__(self, index: Any, value: Any) -> None:
    """Replace a part (ints, slices, None, Ellipsis, or integer tensors, of which the last of equal ones counts), for all that
    share the memory.

    Raises AssignError for an expanded tensor, ShapeError, DTypeError, IndexOutOfRangeError, and GradientError for a leaf that
    requires a gradient.
    """
    self._check_writable("setitem")
    items, ints = self._parse("setitem", index)
    make: Any = type(self)
    dtype = None if isinstance(value, np.ndarray) else self.dtype
    v = value if isinstance(value, Indexing) else make(value, device=self.lazydata.device, dtype=dtype)
    if v.dtype is not self.dtype and promote(v.dtype, self.dtype) is not self.dtype:
      raise DTypeError(f"setitem: a value of {v.dtype.name} into a tensor of {self.dtype.name}; cast it first")
    common_device("setitem", self.lazydata, v.lazydata)
    vu = graph.cast(v.lazydata, self.dtype)
    arrays = [k for k, i in enumerate(items) if isinstance(i, UOp)]
    if arrays:
      if None in [i if i is None else 0 for i in items]:
        raise ArgumentError(
          f"setitem: None together with integer tensors in the index of shape {self.shape}; reshape the value instead"
        )
      if self._names is not None and v._names is not None: self[index]._check_names("setitem", v)
      self._check_leaf("setitem")
      self._seen(*self._boxed(items))._set_rows(items, ints, arrays, vu, v._state > 0)
      return
    part = self[index]
    part._check_names("setitem", v)
    vu = self._fit(vu, part.shape)
    self._check_leaf("setitem")
    part._write("setitem", vu, v._state > 0)

  def _fit(self, v: UOp, shape: tuple[int, ...]) -> UOp:
    while len(v.shape) > len(shape) and v.shape[0] == 1: v = graph.reshape(v, v.shape[1:])
    if broadcast_shape("setitem", v.shape, shape) != shape:
      raise ShapeError(f"setitem: a value of shape {v.shape} into a part of shape {shape}")
    return graph.broadcast(v, shape)

  def _set_rows(self, items: Sequence[Any], ints: Sequence[int], arrays: list[int], v: UOp, attached: bool) -> None:
    """Replace what integer tensors choose; the slices have been taken already, ints are dims of 1."""
    s = self.shape
    indices = [i if isinstance(i, UOp) else graph.const(0, dtypes.int32) for k, i in enumerate(items) if k in arrays or k in ints]
    axes = sorted([*arrays, *ints])
    common = broadcast_shape("setitem", *[i.shape for i in indices])
    rest, front = _order(s, arrays, ints)
    sizes = [s[k] for k in axes]
    n = len(common)
    v = self._fit(v, (*[s[k] for k in rest[:front]], *common, *[s[k] for k in rest[front:]]))
    v = graph.permute(v, (*range(front, front + n), *range(front), *range(front + n, len(v.shape))))
    rows = self._seen((Ops.PERMUTE, (*axes, *rest)), (Ops.RESHAPE, (math.prod(sizes), *[s[k] for k in rest])))
    rows._write("setitem", v, attached, joined_index([graph.broadcast(i, common) for i in indices], sizes))

  # ---- gather and scatter along one dim
  def _indices(self, name: str, dim: int | str, index: Any) -> tuple[list[UOp], int]:
    """An index for every dim: along ``dim`` the one given, along others where it stands."""
    d, s = axis_of(name, dim, self.ndim, self._names), self.shape
    if not isinstance(index, Base) or index.dtype.kind not in "iu":
      raise DTypeError(f"{name}: an index of {index.dtype.name if isinstance(index, Base) else type(index).__name__}; "
                       "it takes a tensor of ints")
    if index.ndim != len(s) or any([i > n for k, (i, n) in enumerate(zip(index.shape, s)) if k != d]):
      raise ShapeError(f"{name}: an index of shape {text(index)} for shape {text(self)} on axis {d}; "
                       "it needs as many dimensions, none but that axis larger")
    common_device(name, self.lazydata, index.lazydata)
    u = normal_index(name, index.lazydata, d, s, self.lazydata.device)
    return [u if k == d else self._index(k, index.shape) for k in range(len(s))], d

  def gather(self, dim: int | str, index: Any) -> Self:
    """out[i][j] = self[index[i][j]][j] for dim 0, and so on; an index out of range is an error, or zeros, as for ``x[index]``.

    Raises ShapeError, DTypeError, AxisError.
    """
    if not isinstance(index, Base) and foreign(index): index = type(self)(index, device=self.device)  # type: ignore[call-arg]
    indices, d = self._indices("gather", dim, index)
    out = self._wrap(graph.gather(self.lazydata, *indices))
    if self._names is not None or index._names is not None:
      n = self.ndim   # along the axis stands what the index has
      out._names = merged("gather", (self, index), ([*range(d), None, *range(d + 1, n)], range(n)), n)
    return out

  def scatter(self, dim: int | str, index: Any, src: Any, reduce: str | None = None) -> Self:
    """self with self[index[i][j]][j] = src[i][j] for dim 0, and so on; reduce="add" adds.

    Raises ShapeError, DTypeError, AxisError, ArgumentError.
    """
    if reduce not in (None, "add"): raise ArgumentError(f"scatter: reduce {reduce!r}; it takes None or 'add'")
    if not isinstance(index, Base) and foreign(index): index = type(self)(index, device=self.device)  # type: ignore[call-arg]
    indices, d = self._indices("scatter", dim, index)
    v = src if isinstance(src, Indexing) else type(self)(src, dtype=self.dtype).expand(index.shape)  # type: ignore[call-arg]
    if v.dtype is not self.dtype:
      raise DTypeError(f"scatter: a source of {v.dtype.name} into a tensor of {self.dtype.name}; cast it first")
    if v.ndim != index.ndim or any([a < b for a, b in zip(v.shape, index.shape)]):
      raise ShapeError(f"scatter: a source of shape {v.shape} for an index of {index.shape}; it must not be smaller")
    vu = graph.shrink(v.lazydata, [(0, n) for n in index.shape])
    called = None
    if not self._names is index._names is v._names is None:
      others = [*range(d), None, *range(d + 1, self.ndim)]
      called = merged("scatter", (self, index, v), (range(self.ndim), others, others), self.ndim)
    return self._wrap_many(graph.scatter(self.lazydata, indices, vu, reduce or "set"), (v,), called)
