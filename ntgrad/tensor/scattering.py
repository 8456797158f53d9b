"""Writing elements to places that indices or masks say: scatters, writes of rows, parts replaced in a copy.

Of equal indices the last counts where something is set; where something is added or combined all count, in order. Nothing here
depends on the order in which a device does its work: results are the same each time."""
from __future__ import annotations

import math
from typing import Any, Callable, Self, Sequence

from ntgrad.codegen.ir import ArgumentError, BinaryOps, DTypeError, ShapeError, UOp, acc_dtype, dtypes, shown
from ntgrad.codegen.ir.elementwise import absolute, binary, const, eq, isnan, lt, maximum, not_, where
from ntgrad.core import Base, whole_number
from ntgrad.graph import Names, Operand, checked, merged
from ntgrad.graph.nodes import cast, contiguous, detach, gather, inside, iota, pad, reshape, scatter, shrink

from .custom import ruled
from .families import in_a_copy, in_place
from .indexing import Indexing, added, has_tensors, joined_index
from .promotion import broadcast_shape, common_device
from .reduction import at_places
from .sorting import bits_of, places_of

_REDUCE = "sum", "prod", "mean", "amax", "amin"


def _products(value: UOp, row: UOp) -> UOp:
  """Running products of values that stand row by row, anew at each row: each pass joins twice as many."""
  n, k = value.shape[0], 1
  value, row = contiguous(value), contiguous(row + 1)   # 0 is no row
  while k < n:
    row_before, before = [pad(shrink(u, [(0, n - k)]), [(k, 0)]) for u in (row, value)]
    value = contiguous(value * where(eq(row, row_before), before, 1))
    k *= 2
  return value


@checked
class Scattering(Indexing):
  """Writing elements to places that indices or masks say."""
  __slots__ = ()

  # ---- an index for each element
  def _scattered(self, name: str, dim: int | str, index: Any, src: Any) -> tuple[list[UOp], Self, Names | None]:
    """An index for each dim, what goes there (as many elements), and the names of the result."""
    indices, d = self._indices(name, dim, index)
    v: Any = src if isinstance(src, Base) else type(self)(src, dtype=self.dtype)
    if not isinstance(src, Base) and not v.ndim: v = v.expand(index.shape)
    if v.dtype is not self.dtype:
      raise DTypeError(f"{name}: a source of {v.dtype.name} into a tensor of {self.dtype.name}; cast it first")
    if v.ndim != index.ndim or any([a < b for a, b in zip(v.shape, index.shape)]):
      raise ShapeError(f"{name}: a source of shape {v.shape} for an index of {index.shape}; it must not be smaller")
    common_device(name, self.lazydata, v.lazydata)
    called = None
    if not self._names is index._names is v._names is None:
      others = [*range(d), None, *range(d + 1, self.ndim)]
      called = merged(name, (self, index, v), (range(self.ndim), others, others), self.ndim)
    return indices, v, called

  def scatter(self, dim: int | str, index: Any, src: Any, reduce: str | None = None) -> Self:
    """self with self[index[i][j]][j] = src[i][j] for dim 0, and so on; ``src`` is a tensor or a number. ``reduce="add"`` adds,
    "multiply" multiplies (see ``scatter_reduce`` for what that takes). Raises ShapeError, DTypeError, AxisError,
    ArgumentError."""
    if reduce not in (None, "add", "multiply"):
      raise ArgumentError(f"scatter: reduce {reduce!r}; it takes None, 'add' or 'multiply' (scatter_reduce has more)")
    indices, v, called = self._scattered("scatter", dim, index, src)
    if reduce == "multiply": return self._scatter_reduced("prod", indices, v, index.shape, True, called)
    vu = shrink(v.lazydata, [(0, n) for n in index.shape])
    u = self.lazydata
    node = u if 0 in index.shape else added(u, indices, vu) if reduce else scatter(u, indices, vu, "set")
    return self._wrap_many(node, (v,), called)

  def scatter_add(self, dim: int | str, index: Any, src: Any) -> Self:
    """self with self[index[i][j]][j] += src[i][j] for dim 0, and so on. Raises as ``scatter``."""
    return self.scatter(dim, index, src, "add")

  def scatter_reduce(self, dim: int | str, index: Any, src: Any, reduce: str, include_self: bool = True) -> Self:
    """self with what goes to one element combined: "sum", "prod", "mean", "amax" or "amin", with the element that was there or
    (``include_self=False``) without; where nothing goes the element stays. A mean of ints is rounded down. Sum and mean are one
    or two scatters. amax and amin sort the source first, prod sorts it by where it goes and takes log2(n) passes over its n
    elements: all O(n log n). Equal extremes share the gradient. Raises as ``scatter``."""
    if reduce not in _REDUCE:
      raise ArgumentError(f"scatter_reduce: reduce {shown(reduce)}; it takes {', '.join(map(repr, _REDUCE))}")
    indices, v, called = self._scattered("scatter_reduce", dim, index, src)
    return self._scatter_reduced(reduce, indices, v, index.shape, include_self, called)

  def _scatter_reduced(self, how: str, indices: list[UOp], v: Self, shape: tuple[int, ...], with_self: bool,
                       called: Names | None) -> Self:
    """``scatter_reduce`` of arguments that fit, at elements of this tensor in one dim."""
    if 0 in shape or not self.numel(): return self._own()._called(called)
    s = self.shape
    n = math.prod(shape)
    at = reshape(joined_index(indices, s), (n,)) if s else const(0, dtypes.int32, (n,))
    base = self.named().reshape(math.prod(s))
    vs = v.named()._shrink([(0, k) for k in shape]).reshape(n)
    if how in ("sum", "mean"): flat = base._scatter_sum(at, vs, with_self, how == "mean")
    elif how == "prod": flat = base._scatter_product(at, vs, with_self)
    else: flat = base._scatter_extreme(at, vs, with_self, how == "amax")
    return flat.reshape(s)._own()._called(called)

  def _hit_by(self, at: UOp) -> UOp:
    """Which elements are named by an index."""
    return scatter(const(False, dtypes.bool, self.shape), (at,), const(True, dtypes.bool, at.shape), "set")

  def _scatter_sum(self, at: UOp, v: Self, with_self: bool, mean: bool) -> Self:
    u = self.lazydata
    acc = acc_dtype(u.dtype) if u.dtype.kind != "u" or u.dtype.itemsize < 4 else u.dtype
    base = cast(u, acc)
    if not with_self: base = where(self._hit_by(at), 0, base)
    total = scatter(base, (at,), cast(v.lazydata, acc), "add")
    if mean:
      count = scatter(const(int(with_self), dtypes.int32, u.shape), (at,), const(1, dtypes.int32, at.shape), "add")
      count = cast(maximum(count, 1), acc)
      total = total / count if acc.kind == "f" else total // count
    return self._wrap_many(cast(total, u.dtype), (v,))

  def _scatter_product(self, at: UOp, v: Self, with_self: bool) -> Self:
    u = self.lazydata
    acc = acc_dtype(u.dtype) if u.dtype.kind in "fb" else u.dtype
    size = u.shape[0]
    row = where(inside(at, size), at, size)   # those outside behind all others
    bits = size.bit_length()
    places = places_of(cast(row, dtypes.uint64 if bits > 32 else dtypes.uint32), 0, bits, at.shape[0])
    row = contiguous(at_places(row, places, 0))
    products = _products(at_places(cast(v.lazydata, acc), places, 0), row)
    base = cast(u, acc)
    out = scatter(const(1, acc, u.shape) if with_self else base, (row,), products, "set")   # the last of a row has all of it
    return self._wrap_many(cast(base * out if with_self else out, u.dtype), (v,))

  def _scatter_extreme(self, at: UOp, v: Self, with_self: bool, greatest: bool) -> Self:
    """The source in order, so that the last that goes to an element is its extreme."""
    u, n = self.lazydata, at.shape[0]
    x = detach(v.lazydata)
    key, bits = bits_of(x)
    if not greatest:
      ones = (1 << bits) - 1
      key = key ^ ones
      if x.dtype.kind == "f": key = where(isnan(x), ones, key)
    places = places_of(key, 0, bits, n)
    own = detach(u)
    best = scatter(own, (at_places(at, places, 0),), at_places(x, places, 0), "set")
    if with_self:
      of_bools, of_others = (BinaryOps.OR, BinaryOps.MAX) if greatest else (BinaryOps.AND, BinaryOps.MIN)
      best = binary(of_bools if u.dtype.kind == "b" else of_others, own, best)
    out = self._from_node(best)
    if u.dtype.kind != "f": return out
    def rule(grads: Any, xs: Any, outs: Any) -> Any:
      """Each of the elements that are equal to the extreme has the same share."""
      base, value, index = [x.lazydata for x in xs]
      found, acc = outs[0].lazydata, acc_dtype(u.dtype)
      won = eq(value, gather(found, index))
      stays = eq(base, found) if with_self else not_(outs[0]._hit_by(index))
      share = cast(grads[0].lazydata, acc) / maximum(scatter(cast(stays, acc), (index,), cast(won, acc), "add"), 1.0)
      def at_finite(x: Any, there: UOp, g: UOp) -> Any:
        return x._wrap(cast(where(there & lt(absolute(x.lazydata), math.inf), g, 0.0), x.dtype))
      return at_finite(xs[0], stays, share), at_finite(xs[1], won, gather(share, index)), None
    return ruled([out], [self, v, self._from_node(at)], rule)[0]

  scatter_, scatter_add_, scatter_reduce_ = in_place(scatter), in_place(scatter_add), in_place(scatter_reduce)

  # ---- an index for each row
  def _put_rows(self, name: str, index: tuple[Any, ...], value: Any, add: bool = False) -> Self:
    """Write to what index tensors choose, or add to it."""
    v = self._value(name, value)
    items, ints = self._parse(name, index)
    self._check_writable(name)
    self._set_rows(name, items, ints, v, add)
    return self

  def index_add_(self, dim: int | str, index: Operand, source: Operand, *, alpha: float = 1) -> Self:
    """``index_add``, written in place; see ``add_``."""
    return self._put_rows("index_add", self._rows_of("index_add", dim, index), source if alpha == 1 else source * alpha, True)
  index_add = in_a_copy(index_add_, """
    self with ``alpha * source`` added to the rows of a dim that a 1-d index names; for equal indices all are added. ``source``
    has one row for each index, or broadcasts to that. Raises as ``index_select``.""")

  def index_copy_(self, dim: int | str, index: Operand, source: Operand) -> Self:
    """``index_copy``, written in place; see ``add_``."""
    return self._put_rows("index_copy", self._rows_of("index_copy", dim, index), source)
  index_copy = in_a_copy(index_copy_, """
    self with the rows of a dim that a 1-d index names replaced by those of ``source``; of equal indices the last counts.
    Raises as ``index_select``.""")

  def index_fill_(self, dim: int | str, index: Operand, value: Any) -> Self:
    """``index_fill``, written in place; see ``add_``."""
    v = self._value("index_fill", value)
    if v.ndim: raise ShapeError(f"index_fill: a value of shape {v.shape}; it takes a number")
    return self._put_rows("index_fill", self._rows_of("index_fill", dim, index), v)
  index_fill = in_a_copy(index_fill_, """
    self with the rows of a dim that a 1-d index names filled with a number (or a tensor of shape ()). Raises as
    ``index_select``, ShapeError.""")

  def index_put_(self, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Self:
    """``index_put``, written in place; see ``add_``."""
    index: Any = tuple([slice(None) if i is None else i for i in indices])
    if not accumulate:
      self[index] = values
      return self
    x, index, masks = self._with_masks("index_put", index)
    index = x._with_places("index_put", index, masks) if masks else index
    if has_tensors(index): x._put_rows("index_put", index, values, True)
    else: x[index] = x[index] + values
    return self
  index_put = in_a_copy(index_put_, """
    self with ``self[indices] = values`` (None in ``indices`` takes all of a dim), or ``accumulate``: with values added, for
    equal indices all of them. Raises as an assignment to parts; with masks that are to be added to CaptureError while a jit
    records.""")

  # ---- elements of the flattened tensor
  def put_(self, index: Operand, source: Operand, accumulate: bool = False) -> Self:
    """``put``, written in place; see ``add_``."""
    if index.numel() != source.numel() and source.numel() != 1:
      raise ShapeError(f"put: an index of shape {index.shape} and a source of shape {source.shape}; they need as many elements")
    flat = self.named().flatten()
    flat._put_rows("put", flat._rows_of("put", 0, index.named().flatten()), source.named().flatten(), accumulate)
    return self
  put = in_a_copy(put_, """
    self with the elements at indices of the flattened tensor replaced (of equal indices by the last), or ``accumulate``: added
    to, by those of ``source``. Raises DTypeError, ShapeError, IndexOutOfRangeError.""")

  # ---- masks
  def masked_scatter(self, mask: Operand, source: Operand) -> Self:
    """self with the elements where a bool mask (which broadcasts to this shape) is true replaced by those of ``source`` in order,
    which has at least as many. Lazy: too few are an error where the index checks of ``__getitem__`` are on. Raises DTypeError,
    ShapeError."""
    m = self._mask_for("masked_scatter", mask).named()
    if broadcast_shape("masked_scatter", m.shape, self.shape) != self.shape:
      raise ShapeError(f"masked_scatter: a mask of shape {m.shape} for a tensor of shape {self.shape}; it must broadcast to that")
    if source.dtype is not self.dtype:
      raise DTypeError(f"masked_scatter: a source of {source.dtype.name} into a tensor of {self.dtype.name}; cast it first")
    common_device("masked_scatter", self.lazydata, m.lazydata, source.lazydata)
    m = m.expand(self.shape)
    flat = m.reshape(self.numel())
    return m.where(source.named().flatten()._at_true("masked_scatter", 0, flat, flat, False).reshape(self.shape), self)
  masked_scatter_ = in_place(masked_scatter)

  # ---- parts, in a copy
  def select_scatter(self, src: Operand, dim: int | str, index: int) -> Self:
    """A copy with ``src`` as what ``select(dim, index)`` gives. Raises AxisError, ShapeError, IndexOutOfRangeError."""
    return self._with("select_scatter", src, lambda t: t.select(dim, index))

  def slice_scatter(self, src: Operand, dim: int | str = 0, start: int | None = None, end: int | None = None,
                    step: int = 1) -> Self:
    """A copy with ``src`` as the elements ``start:end:step`` of a dim. Raises AxisError, ShapeError, ArgumentError."""
    d = self._dim("slice_scatter", dim)
    whole_number("slice_scatter", "step", step, 1)
    return self._with("slice_scatter", src, lambda t: t._along(d, slice(start, end, step)))

  def diagonal_scatter(self, src: Operand, offset: int = 0, dim1: int | str = 0, dim2: int | str = 1) -> Self:
    """A copy with ``src`` as what ``diagonal(offset, dim1, dim2)`` gives. Raises AxisError, ShapeError."""
    return self._with("diagonal_scatter", src, lambda t: t.diagonal(offset, dim1, dim2))

  def _with(self, name: str, src: Any, part: Callable[[Any], Any]) -> Self:
    """A copy of which a part, a view, is ``src``."""
    shown = part(self.named())
    if src.shape != shown.shape:
      raise ShapeError(f"{name}: a source of shape {src.shape} for a part of shape {shown.shape}; they must be equal")
    places = part(self._from_node(reshape(iota(self.numel()), self.shape)))
    return self.named().reshape(-1).index_put((places.reshape(-1),), src.named().cast(self.dtype).reshape(-1)).reshape(
      self.shape)._own()._called(self._names)

  # ---- a diagonal
  def fill_diagonal_(self, fill_value: float, wrap: bool = False) -> Self:
    """A number on the main diagonal of a matrix, or of a tensor whose dims have one size, written in place; ``wrap``: of a high
    matrix again and again, a row left out between. Raises ShapeError."""
    s = self.shape
    if len(s) < 2 or (len(s) > 2 and len(set(s)) > 1):
      raise ShapeError(f"fill_diagonal_: shape {s}; it takes a matrix, or dimensions of one size")
    step = sum([math.prod(s[d + 1:]) for d in range(len(s))])
    most = self.numel() if wrap and len(s) == 2 else min(s[0], s[1]) * step
    at: Any = self._from_node(reshape(iota(self.numel()), s))
    return self._in_place("fill_diagonal_", lambda: ((at % step == 0) & (at < most)).where(fill_value, self).cast(self.dtype))
