"""Indexing of ``Tensor``: ints, slices, None, Ellipsis, integer tensors and bool masks; gather, take and select by indices or a
mask; assignment to parts.

Integer tensors are GATHERs of rows: the indexed dims are brought to the front and joined, so any number of them is one GATHER.
A mask is brought to one dim first. To read with one, its True elements are found on the host, since the result's shape depends on
them; a write takes a WHERE over the whole part, and needs no value of the mask."""
from __future__ import annotations

import functools
import itertools
import math
from typing import Any, Self, Sequence

import numpy as np

from ntgrad.codegen.ir import BinaryOps, Ops, UOp, acc_dtype, can_cast, dtypes, errors
from ntgrad.codegen.ir.errors import ArgumentError, CaptureError, DTypeError, IndexTypeError, ShapeError, shown
from ntgrad.core import MAX_DIMS, Base, shape_of, whole_number
from ntgrad.engine.index_checks import index_error, within
from ntgrad.graph import Ints, Move, Names, Operand, checked, foreign, merged, nodes as graph, of_kind, text
from ntgrad.graph.host_values import first_of
from ntgrad.graph.nodes import Shape, broadcast, cast, gather, index_of, permute, reshape, where

from .elementwise import Elementwise, Host
from .movement import Movement, sliced
from .promotion import broadcast_shape, common_device


def host_index(name: str, index: Any, size: int, axis: int, shape: Shape) -> Host:
  """An index array known on the host, made non-negative. Raises IndexOutOfRangeError, DTypeError."""
  try: a = np.asarray(index)
  except ValueError: raise ShapeError(f"{name}: an index list whose rows have different lengths") from None
  if a.size == 0: a = a.astype(np.int32)
  of_kind("iu", name, "an index", a, "indices are ints", IndexTypeError)
  if a.size and (a.min() < -size or a.max() >= size):
    raise index_error(name, f"index {int(a.min()) if a.min() < -size else int(a.max())} on axis {axis} of shape {shape}; "
                            f"indices go from {-size} to {size - 1}")
  a = a.astype(np.int64)   # every index that is inside fits, and its dtype may not hold the size
  return np.where(a < 0, a + size, a).astype(np.int32 if size < 2 ** 31 else np.int64)


def normal_index(name: str, u: UOp, axis: int, shape: Shape, device: str | None) -> UOp:
  """An index of an axis with negative ones counted from the end; it is checked where ``config.check_indices`` says so."""
  size = shape[axis]
  of = f"dimension {axis} of a tensor of shape {shape}, which has {size} elements"
  if u.dtype.kind == "u" or u.op is Ops.IOTA: return index_of(within(u, 0, size, name, of, device), size)
  u = within(index_of(u, size), -size, size, name, of, device)
  return where(graph.lt(u, 0), u + size, u)


def host_values(name: str, t: Any, advice: str) -> Host:
  """Values of a tensor (or an array as it is) that a result's shape depends on. Raises CaptureError while a jit records."""
  if isinstance(t, np.ndarray): return t
  try: values: Host = t.numpy()
  except CaptureError as e:
    raise CaptureError(f"{name}: the shape of the result depends on values, which have to be known; {advice} ({e})") from None
  return values


def _mask(item: Any) -> Any:
  """The bool mask, a tensor or an array, that an item of an index is; None for another item."""
  if isinstance(item, (Base, np.ndarray)): return item if item.dtype.kind == "b" else None
  if isinstance(item, (bool, np.bool_)): return np.asarray(item)
  first = first_of("index", item)
  if first is item or not isinstance(first, (bool, np.bool_)): return None
  try: a = np.asarray(item)
  except ValueError: return None   # rows of different lengths, which is said elsewhere
  return a if a.dtype.kind == "b" else None


def _spread(name: str, index: Any, s: Shape, dims: Sequence[int] | None = None) -> list[Any]:
  """The items of an index with slices in place of the Ellipsis, or at the end, for a shape; ``dims`` says of how many dimensions
  each is. Raises ArgumentError, IndexOutOfRangeError."""
  items = list(index) if isinstance(index, tuple) else [index]
  used = sum([i is not None and i is not Ellipsis for i in items] if dims is None else dims)
  dots = [k for k, i in enumerate(items) if i is Ellipsis]
  if len(dots) > 1: raise ArgumentError(f"{name}: {len(dots)} Ellipsis for shape {s}; at most one")
  if used > len(s): raise errors.IndexOutOfRangeError(f"{name}: too many indices: {used} for shape {s} of {len(s)} dimensions")
  at = dots[0] if dots else len(items)
  items[at:at + 1] = [slice(None)] * (len(s) - used)
  if len(items) > MAX_DIMS:
    raise errors.IndexOutOfRangeError(f"{name}: an index that makes {len(items)} dimensions of shape {s}; at most {MAX_DIMS}")
  return items


def joined_index(indices: Sequence[UOp], sizes: Sequence[int]) -> UOp:
  """Several indices (of one shape, not negative) as one of the joined dims; -1 where any is out of range."""
  if len(indices) == 1: return indices[0]
  work = graph.place_dtype(math.prod(sizes))
  counted = [index_of(u, size) for u, size in zip(indices, sizes)]
  inside = [graph.inside(u, size) for u, size in zip(counted, sizes)]   # before a cast cuts off what makes one too large
  flat, *rest = [cast(u, work) for u in counted]
  for u, size in zip(rest, sizes[1:]): flat = flat * size + u
  return where(functools.reduce(graph.and_, inside), flat, -1)


def _order(items: Sequence[Any], arrays: Sequence[int], ints: Sequence[int]) -> tuple[list[int], int]:
  """The items beside integer tensors and ints, and how many of them come before the index's dimensions, as in PyTorch: ints and
  tensors of shape () take their dimension away first; of what is left those before the first tensor where tensors stand side by
  side, else none."""
  single = {*ints, *[k for k in arrays if isinstance(items[k], UOp) and not items[k].shape]}
  left = [k for k in range(len(items)) if k not in single]
  rest = [k for k in left if k not in arrays]
  at = [n for n, k in enumerate(left) if k in arrays]
  return rest, at[0] if at and at[-1] - at[0] + 1 == len(at) else 0


def _ints(name: str, index: Any) -> Any:
  """An index of ints; one of no elements may have another dtype. Raises DTypeError."""
  if index.numel(): of_kind("iu", name, "an index", index, "it takes ints")
  return index if index.dtype.kind in "iu" else index.cast(dtypes.int32)


def has_tensors(index: Sequence[Any]) -> bool:
  """Whether items of an index choose by their values."""
  return any([isinstance(i, (Base, list, tuple, np.ndarray, range)) for i in index])


def added(base: UOp, index: Sequence[UOp], value: UOp) -> UOp:
  """Base with rows added to; small floats are added up in float32."""
  acc = acc_dtype(base.dtype) if base.dtype.kind == "f" else base.dtype
  return cast(graph.scatter(cast(base, acc), index, cast(value, acc), "add"), base.dtype)


@checked
class Indexing(Elementwise, Movement):
  """Indexing, what indices and masks choose, assignment to parts."""
  __slots__ = ()

  def _parse(self, name: str, index: Any) -> tuple[list[Any], list[int]]:
    """One item a dim of the result before ints are dropped: (begin, count, step) for a dim, None for a new one, or an index node;
    and which of them are ints. Raises IndexOutOfRangeError, ArgumentError, DTypeError."""
    s, axis = self.shape, 0
    out: list[Any] = []
    ints: list[int] = []
    for item in _spread(name, index, s):
      if item is None:
        out.append(None)
        continue
      size = s[axis]
      if isinstance(item, (int, np.integer)):
        if not -size <= item < size:
          raise index_error(name, f"index {shown(item)} on axis {axis} of shape {s}; indices go from {-size} to {size - 1}")
        ints.append(len(out))
        out.append((item if item >= 0 else item + size, 1, 1))
      elif isinstance(item, slice):
        try: out.append(sliced(item, size))
        except ValueError: raise ArgumentError(f"{name}: slice {item} with step 0; the step must not be zero") from None
        except TypeError: raise ArgumentError(f"{name}: slice {shown(item)}; its parts must be ints or None") from None
      elif isinstance(item, Base):
        of_kind("iu", name, "an index tensor", item, "indices are ints", IndexTypeError)
        common_device(name, self.lazydata, item.lazydata)
        out.append(normal_index(name, item.lazydata, axis, s, self.lazydata.device))
      elif isinstance(item, (list, tuple, np.ndarray, range)) or foreign(item):
        if foreign(item) and not isinstance(item, np.ndarray): item = np.asarray(item)
        array = host_index(name, list(item) if isinstance(item, (tuple, range)) else item, size, axis, s)
        out.append(self._from_host(array).lazydata)
      else:
        raise IndexTypeError(f"{name}: an index of {type(item).__name__}; "
                             "indices are ints, slices, None, ..., and tensors, arrays or lists of ints or bools")
      axis += 1
    return out, ints

  def _with_masks(self, name: str, index: Any) -> tuple[Self, Any, dict[int, Any]]:
    """This tensor seen so that each bool mask of an index has one dimension of it: a mask of several takes them joined, one of
    none a new one of 1. Then the index of that, and the masks, of one dimension each, by where they stand in it. Raises
    MaskShapeError for a mask that has another shape than what it stands at."""
    items = index if isinstance(index, tuple) else (index,)
    masks = [_mask(i) for i in items]
    if all([m is None for m in masks]): return self, index, {}
    dims = [0 if i is None or i is Ellipsis else 1 if m is None else m.ndim for i, m in zip(items, masks)]
    given = _spread(name, items, self.shape, dims)
    x, axis, found = self, 0, dict[int, Any]()
    for k, item in enumerate(given):
      if (m := _mask(item)) is None:
        axis += item is not None
        continue
      n = m.ndim
      there = x.shape[axis:axis + n]
      if m.shape != there:
        raise errors.MaskShapeError(f"{name}: a bool mask of shape {m.shape} for dimensions {there} of shape {self.shape}; it "
                                    "must have their sizes")
      if isinstance(m, Base): common_device(name, self.lazydata, m.lazydata)
      if n != 1: x = x.flatten(axis, axis + n - 1) if n else x.unsqueeze(axis)
      found[k] = m.reshape(m.numel() if isinstance(m, Base) else m.size)
      axis += 1
    return x, tuple(given), found

  def _with_places(self, name: str, index: Sequence[Any], masks: dict[int, Any]) -> tuple[Any, ...]:
    """An index with the places of their True elements instead of masks. Raises CaptureError while a jit records."""
    return tuple([np.flatnonzero(host_values(
      name, masks[k], "use where() or masked_fill(), or find the places outside of what is recorded and give these"))
      if k in masks else i for k, i in enumerate(index)])

  def __getitem__(self, index: Any) -> Self:
    """Parts, as in PyTorch: ints, slices with steps, None, Ellipsis, integer tensors and lists (which broadcast together), and
    bool masks of as many dims as they have. Ints take their dimension away before tensors, lists and masks are looked at.

    Without tensors and lists a view, else a tensor of its own. Ints and lists outside the dim raise IndexOutOfRangeError. So does
    an index tensor where the host next waits for the device, on CPU and NUMPY (``config.check_indices``); where that is off,
    elements outside give zeros. What a mask chooses depends on its values: it is computed at once, and raises CaptureError while
    a jit records (use ``where`` or ``masked_fill`` there); ShapeError for one that has another shape than its dims."""
    x, index, masks = self._with_masks("getitem", index)
    if masks: return x[self._with_places("getitem", index, masks)]
    items, ints = self._parse("getitem", index)
    seen, shape = self._boxed(items)
    arrays = [k for k, i in enumerate(items) if isinstance(i, UOp)]
    if arrays:
      return self._gathered(reshape(seen.lazydata, shape), items, arrays, ints)._called(
        self._gathered_names(index if isinstance(index, tuple) else (index,), items, arrays, ints))
    dims = None
    if self._names is not None:
      axes = iter(range(self.ndim))
      dims = [None if i is None else next(axes) for i in items]
      dims = [d for k, d in enumerate(dims) if k not in ints]
    return seen._seen((Ops.RESHAPE, tuple([d for k, d in enumerate(shape) if k not in ints])), dims=dims)

  def _boxed(self, items: Sequence[Any]) -> tuple[Self, Shape]:
    """What the slices show, and its shape with a size for each item: shrink, flip, steps."""
    box, turned, steps = [], [], []
    for axis, (i, size) in enumerate(zip([i for i in items if i is not None], self.shape)):
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
    seen = self._seen(*moves, dims=range(len(box)))
    sizes = iter(seen.shape)
    return seen, tuple([1 if i is None else next(sizes) for i in items])

  def _gathered(self, u: UOp, items: Sequence[Any], arrays: list[int], ints: list[int]) -> Self:
    """Integer tensors at the dims ``arrays``; ints at ``ints`` have taken their dimension away, but for one of 1."""
    indices = [items[k] for k in arrays]
    common = broadcast_shape("getitem", *[i.shape for i in indices]) if len(indices) > 1 else indices[0].shape
    rest, front = _order(items, arrays, ints)
    base = reshape(permute(u, (*arrays, *ints, *rest)), (*[u.shape[k] for k in arrays], *[u.shape[k] for k in rest]))
    node = gather(base, *[broadcast(i, common) for i in indices])
    n = len(common)
    if front: node = permute(node, (*range(n, n + front), *range(n), *range(n + front, n + len(rest))))
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

  def select(self, dim: int | str, index: int) -> Self:
    """A view of one place of a dim, without it: (a, b, c).select(1, i) -> (a, c). Raises AxisError, IndexOutOfRangeError."""
    d, s = self._dim("select", dim, "choose from"), self.shape
    if not -s[d] <= index < s[d]:
      raise index_error("select", f"index {index} on axis {d} of shape {s}; indices go from {-s[d]} to {s[d] - 1}")
    return self._along(d, index)

  def _along(self, d: int, item: Any) -> Self:
    """What an item of an index gives of a dim, and all of the others."""
    return self[(slice(None),) * d + (item,)]

  # ---- assignment to parts
  def __setitem__(self, index: Any, value: Any) -> None:
    """Replace a part (ints, slices, None, Ellipsis, integer tensors, of which the last of equal ones counts, or bool masks), for
    all that share the memory.

    One mask without index tensors stays lazy: a value of shape (n, ..) for its n True elements goes to them in order (another
    number of them is an error where the index checks of ``__getitem__`` are on). Several, or one beside index tensors, are
    computed at once, and raise CaptureError while a jit records.

    Raises AssignError for an expanded tensor, ShapeError, DTypeError, IndexOutOfRangeError, and GradientError for a leaf that
    requires a gradient."""
    self._check_writable("setitem")
    x, index, masks = self._with_masks("setitem", index)
    v = self._value("setitem", value)
    if masks:
      if len(masks) == 1 and not has_tensors([i for k, i in enumerate(index) if k not in masks]):
        x._set_masked(index, *masks.popitem(), v)
      else: x[self._with_places("setitem", index, masks)] = v
      return
    items, ints = self._parse("setitem", index)
    if any([isinstance(i, UOp) for i in items]):
      if self._names is not None and v._names is not None: self[index]._check_names("setitem", v)
      self._set_rows("setitem", items, ints, v)
      return
    part = self[index]
    part._check_names("setitem", v)
    vu = self._fit(v.lazydata, part.shape)
    self._check_leaf("setitem")
    part._write("setitem", vu, v._state > 0)

  def _value(self, name: str, value: Any) -> Self:
    """What is to be written here as a tensor of this dtype. Raises DTypeError, DeviceError."""
    v: Any = value if isinstance(value, Indexing) else type(self)(
      value, self.lazydata.device, None if isinstance(value, np.ndarray) else self.dtype)
    if not can_cast(v.dtype, self.dtype):
      raise DTypeError(f"{name}: a value of {v.dtype.name} into a tensor of {self.dtype.name}; cast it first")
    common_device(name, self.lazydata, v.lazydata)
    return v if v.dtype is self.dtype else v.cast(self.dtype)

  def masked_fill(self, mask: Operand, value: Any) -> Self:
    """This tensor, with a number (or what broadcasts) in its dtype where the bool mask is true. Raises DTypeError,
    ArgumentError."""
    return mask.where(self._value("masked_fill", value), self)

  def _set_masked(self, index: Sequence[Any], k: int, mask: Any, value: Self) -> None:
    """Replace what a mask of one dimension, item ``k`` of an index without index tensors, chooses."""
    whole = tuple([slice(None) if i == k else item for i, item in enumerate(index)])
    _, ints = self._parse("setitem", whole)
    part = self[whole]
    behind = part.ndim - 1 - len([i for i in range(k) if i not in ints])   # dimensions after the mask's
    v: Any = value
    while v.ndim > part.ndim and v.shape[0] == 1: v = v.squeeze(0)
    m = self._from_host(mask)
    of_rows = v.ndim - behind - 1
    if of_rows >= 0 and v.shape[of_rows] != 1: v = v._at_true("setitem", of_rows, mask, m)
    if broadcast_shape("setitem", v.shape, part.shape) != part.shape:
      raise ShapeError(f"setitem: a value of shape {v.shape} into a part of shape {part.shape}, of which a mask has a dimension")
    if v._names is not None and v.ndim <= part.ndim: part._check_names("setitem", v)
    self._check_leaf("setitem")
    out = m.named().reshape((-1,) + (1,) * behind if m.numel() else (0,) + (1,) * behind).where(v.named(), part.named())
    part._write("setitem", out.lazydata, out._state > 0)

  def _at_true(self, name: str, dim: int, given: Any, mask: Any, exact: bool = True) -> Self:
    """Along a dim, for each True element of a mask of shape (size,) its part of this tensor in order: part 0 at the first one.
    Any part where the mask is False. Raises ShapeError where ``given``, the mask, is an array that has another number of True
    elements (or, not ``exact``, more) than this tensor has parts."""
    n = self.shape[dim]
    said = f"{{value}} True in a mask of shape {given.shape} for a value of shape {text(self)}, which has {n} of them"
    if isinstance(given, np.ndarray):
      count = int(np.count_nonzero(given))
      if count > n or exact and count != n: raise ShapeError(f"{name}: {said.format(value=count)}; give as many")
    ones = cast(mask.lazydata, graph.place_dtype(mask.shape[0]))
    total = within(graph.total(ones, (0,)), n if exact else 0, n + 1, name, "", self.lazydata.device, said=said)
    # how many there are, less those from an element on: as many as are before it
    place = graph.expand(total, ones.shape) - graph.scan(BinaryOps.ADD, ones, 0, True)
    order = (dim, *[d for d in range(self.ndim) if d != dim])
    parts = permute(self.lazydata, order)
    if not n: parts = graph.pad(parts, [(0, 1)] + [(0, 0)] * (self.ndim - 1))   # else nothing would look at the index
    return self._wrap(graph.permute_back(gather(parts, place), order))._called(None)

  def _fit(self, v: UOp, shape: Shape) -> UOp:
    while len(v.shape) > len(shape) and v.shape[0] == 1: v = reshape(v, v.shape[1:])
    if broadcast_shape("setitem", v.shape, shape) != shape:
      raise ShapeError(f"setitem: a value of shape {v.shape} into a part of shape {shape}")
    return broadcast(v, shape)

  def _set_rows(self, name: str, items: Sequence[Any], ints: Sequence[int], value: Base, add: bool = False) -> None:
    """Replace what integer tensors among items choose, or add to it."""
    self._check_leaf(name)
    x, s = self._boxed(items)
    arrays = [k for k, i in enumerate(items) if isinstance(i, UOp)]
    indices = [i if isinstance(i, UOp) else graph.const(0, dtypes.int32) for k, i in enumerate(items) if k in arrays or k in ints]
    axes = sorted([*arrays, *ints])
    common = broadcast_shape("setitem", *[i.shape for i in indices])
    rest, front = _order(items, arrays, ints)
    sizes = [s[k] for k in axes]
    n = len(common)
    v = self._fit(value.lazydata, (*[s[k] for k in rest[:front]], *common, *[s[k] for k in rest[front:]]))
    v = permute(v, (*range(front, front + n), *range(front), *range(front + n, len(v.shape))))
    # ints are dims of 1, as None is
    rows = x._seen((Ops.RESHAPE, s), (Ops.PERMUTE, (*axes, *rest)), (Ops.RESHAPE, (math.prod(sizes), *[s[k] for k in rest])))
    at = joined_index([broadcast(i, common) for i in indices], sizes)
    if not add: rows._write(name, v, value._state > 0, at)
    elif 0 not in v.shape: rows._write(name, added(rows.lazydata, (at,), v), value._state > 0 or rows._state > 0)

  # ---- along one dim
  def _indices(self, name: str, dim: int | str, index: Any) -> tuple[list[UOp], int]:
    """An index for every dim: along ``dim`` the one given, along others where it stands."""
    d, s = self._dim(name, dim), self.shape
    if not isinstance(index, Base) or index.dtype.kind not in "iu":
      raise DTypeError(f"{name}: an index of {index.dtype.name if isinstance(index, Base) else type(index).__name__}; "
                       "it takes a tensor of ints")
    if index.ndim != len(s) or any([i > n for k, (i, n) in enumerate(zip(index.shape, s)) if k != d]):
      raise ShapeError(f"{name}: an index of shape {text(index)} for shape {text(self)} on axis {d}; "
                       "it needs as many dimensions, none but that axis larger")
    common_device(name, self.lazydata, index.lazydata)
    u = normal_index(name, index.lazydata, d, s, self.lazydata.device)
    return [u if k == d else graph.index_along(k, index.shape) for k in range(len(s))], d

  def gather(self, dim: int | str, index: Any) -> Self:
    """out[i][j] = self[index[i][j]][j] for dim 0, and so on; an index out of range is an error, or zeros, as for ``x[index]``.
    Raises ShapeError, DTypeError, AxisError."""
    if not isinstance(index, Base) and foreign(index): index = type(self)(index, device=self.device)
    indices, d = self._indices("gather", dim, index)
    out = self._wrap(gather(self.lazydata, *indices))
    if self._names is not None or index._names is not None:
      n = self.ndim   # along the axis stands what the index has
      out._names = merged("gather", (self, index), ([*range(d), None, *range(d + 1, n)], range(n)), n)
    return out

  def take_along_dim(self, indices: Any, dim: int | str | None = None) -> Self:
    """``gather`` with the other dims broadcast; dim None: of the flattened tensor, by flattened indices. Raises ShapeError,
    DTypeError, AxisError."""
    if dim is None: return self.take(indices).flatten()
    d = self._dim("take_along_dim", dim)
    if not isinstance(indices, Base) or indices.ndim != self.ndim: return self.gather(d, indices)   # which says so
    shape = broadcast_shape("take_along_dim", *[(*t.shape[:d], 1, *t.shape[d + 1:]) for t in (self, indices)])
    def along(t: Any) -> Any: return t.expand((*shape[:d], t.shape[d], *shape[d + 1:]))
    return along(self).gather(d, along(indices))

  # ---- an index for each row
  def _rows_of(self, name: str, dim: int | str, index: Any) -> tuple[Any, ...]:
    """What chooses rows of a dim by a 1-d index, as an index of ``x[..]``."""
    d = self._dim(name, dim, "choose from")
    if index.ndim > 1: raise ShapeError(f"{name}: an index of shape {index.shape}; it takes one dimension")
    return (slice(None),) * d + (_ints(name, index).named().reshape(index.numel()),)

  def index_select(self, dim: int | str, index: Operand) -> Self:
    """Rows of a dim by a 1-d index: (a, n, b) -> (a, k, b). Raises AxisError, ShapeError, DTypeError, IndexOutOfRangeError."""
    return self[self._rows_of("index_select", dim, index)]

  # ---- elements of the flattened tensor
  def take(self, index: Operand) -> Self:
    """The elements of the flattened tensor at indices, of the index's shape. Raises DTypeError, IndexOutOfRangeError."""
    return self.named().flatten()[_ints("take", index)]

  # ---- masks
  def _mask_for(self, name: str, mask: Any) -> Any:
    if mask.dtype.kind == "b": return mask
    raise DTypeError(f"{name}: a mask of {mask.dtype.name}; it takes bool (compare first, e.g. x != 0)")

  # ---- indices of combinations, and of a flattened tensor
  def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
    """(n,) -> (k, r): every choice of r elements in their order, each at most once or ``with_replacement``. Raises ShapeError,
    ArgumentError."""
    if self.ndim != 1: raise ShapeError(f"combinations: shape {self.shape}; it takes one dimension")
    n, r = self.shape[0], whole_number("combinations", "r", r, 0)
    k = math.comb(n + r - 1 if with_replacement and n else n, r)
    if k * max(r, 1) > dtypes.max(dtypes.int32):
      raise ArgumentError(f"combinations: {k} choices of {r} of {n} elements; at most 2**31 - 1 elements are chosen")
    chosen = itertools.combinations_with_replacement(range(n), r) if with_replacement else itertools.combinations(range(n), r)
    return self.named()[np.fromiter(itertools.chain.from_iterable(chosen), np.int32, k * r).reshape(k, r)]

  def unravel_index(self, shape: Ints) -> tuple[Self, ...]:
    """Indices into a flattened tensor as one tensor of indices for each of its dims; negative ones count from the end. Raises
    ShapeError, DTypeError, ArgumentError."""
    of_kind("iu", "unravel_index", "indices", self, "they must be ints")
    sizes = shape_of("unravel_index", (shape,) if isinstance(shape, int) else shape)
    step, out, at = math.prod(sizes), [], self._own()
    if not step: raise ShapeError(f"unravel_index: a tensor of shape {sizes} has no elements")
    for n in sizes:
      step //= n
      out.append((at // step) % n)
    return tuple(out)
