"""Sorting and choosing: sort, topk, order statistics, sets, searches and counts.

Keys are unsigned ints that order as the values do, each with its place behind it in one number: to sort these is to sort in a
stable way, and gives the places. Values are then read at their places, so their gradients are those of reading there.

What a result's shape depends on (which elements are not zero, how many are different) is computed at once and read on the host;
where a jit records, that is a CaptureError."""
from __future__ import annotations

import math
from typing import Any, Self, Sequence

import numpy as np

from ntgrad.codegen.ir import ArgumentError, BinaryOps, ShapeError, UnaryOps, UOp, acc_dtype, as_float, dtypes, promote, shown
from ntgrad.codegen.ir.elementwise import binary, const, eq, floor, isnan, lt, minimum, ne, not_, unary, where
from ntgrad.core import Base, whole_number
from ntgrad.graph import Operand, checked, flag, no_flag, nodes as graph, of_kind, paired, without
from ntgrad.graph.nodes import cast, detach, expand, index_along, pad, permute, place_dtype, reshape, scan, seen_as, total

from .creation import Creation, new_shape
from .elementwise import Host, info_of
from .families import member
from .indexing import added, host_values
from .promotion import broadcast_shape, common_device, common_dtype
from .reduction import Picked, Reduction, at_places, combined

_PLACES = 32      # bits of a key's place in its row, where fewer do not make both together a uint32


def bits_of(u: UOp) -> tuple[UOp, int]:
  """Unsigned ints that order as the values do, NaN after everything else, and how many bits they have."""
  d = u.dtype
  if d.kind == "b": return cast(u, dtypes.uint32), 1
  if d.kind == "e": return cast(seen_as(u, dtypes.uint8), dtypes.uint32), 8
  if d.kind == "u": return (u if d.itemsize == 8 else cast(u, dtypes.uint32)), 8 * d.itemsize
  wide = d.itemsize == 8
  key, signed, size = (dtypes.uint64, dtypes.int64, 64) if wide else (dtypes.uint32, dtypes.int32, 32)
  if d.kind == "i":
    bits = 8 * d.itemsize
    if d.itemsize < 4: return cast(cast(u, signed) + (1 << bits - 1), key), bits
    return seen_as(u, key) ^ 1 << size - 1, size
  x = u if wide else cast(u, dtypes.float32)
  number = seen_as(where(eq(x, 0.0), 0.0, x), key)   # -0 is as great as 0
  ones, top = dtypes.max(key), const(1 << size - 1, key, x.shape)
  number = number ^ where(lt(number ^ ones, top), ones, top)
  number = where(isnan(x), ones, number)
  low = 23 - info_of(d).nmant if d.itemsize < 4 else 0   # a smaller float needs as many bits less, beside sign and exponent
  return (number >> low if low else number), size - low


def places_of(u: UOp, axis: int, bits: int, keep: int) -> UOp:
  """Where what is sorted along an axis stands, of unsigned ints of so many bits; the first ``keep`` of them."""
  n, s = u.shape[axis], u.shape
  if bits > _PLACES:   # by the lower half first, then what that gives by the upper one
    low = places_of(cast(u & (1 << _PLACES) - 1, dtypes.uint32), axis, _PLACES, n)
    high = cast(u >> _PLACES, dtypes.uint32)
    return at_places(low, places_of(at_places(high, low, axis), axis, bits - _PLACES, keep), axis)
  shift = (n - 1).bit_length() if isinstance(n, int) else _PLACES
  key, shift = (dtypes.uint32, shift) if shift + bits <= 32 else (dtypes.uint64, _PLACES)
  out = graph.sort(cast(u, key) << shift | cast(index_along(axis, s), key), axis, shift, shift + bits, keep)
  return cast(out & (1 << min(shift, 31)) - 1, dtypes.int32)


_INTERPOLATIONS = "linear", "lower", "higher", "midpoint", "nearest"
_WAYS = 16  # elements that a search compares with at once
_FEW = 64   # elements that every other one is compared with; more are sorted
_READ = "find it outside of what is recorded"


def _between(position: UOp, how: str) -> tuple[UOp, UOp, UOp]:
  """What stands at a place in a sorted row that is no whole number: the places of the element below and of the one above, and how
  far it is from the one to the other (0 to 1)."""
  down = floor(position)
  up = unary(UnaryOps.CEIL, position)
  if how == "nearest": down = up = unary(UnaryOps.ROUND, position)
  elif how == "lower": up = down
  elif how == "higher": down = up
  way = position - down
  if how == "midpoint": way = const(0.5, way.dtype, way.shape)
  return cast(detach(down), dtypes.int32), cast(detach(up), dtypes.int32), way


@checked
class Sorting(Reduction, Creation):
  """Sorts, order statistics, sets, searches and counts."""
  __slots__ = ()

  # ---- sorts
  def _sorted(self, dim: int, descending: bool = False, keep: int | None = None) -> tuple[UOp, UOp]:
    """Values and places of the first ``keep`` (None: all) when sorted."""
    u = self.lazydata
    size = u.shape[dim] if u.shape else 1
    if keep is None: keep = size
    if keep < size and (not keep or not math.prod(u.shape)): u = graph.part(u, dim, 0, keep)
    if not u.shape or not math.prod(u.shape): return u, const(0, dtypes.int32, u.shape)
    if size > dtypes.max(dtypes.int32):
      raise ShapeError(f"sorting {size} elements along dim {dim}: int32 has places of {dtypes.max(dtypes.int32)} at most"
                       "; sort parts of it")
    key, bits = bits_of(detach(u))
    if descending: key = key ^ (1 << bits) - 1
    places = places_of(key, dim, bits, keep)
    return at_places(u, places, dim), places

  @paired
  def sort(self, dim: int | str = -1, descending: bool = False, stable: bool = False) -> Picked:
    """``(values, indices)``: the elements along a dim in rising (``descending``: falling) order, and where they stood (int32).
    Equal ones, as 0 and -0 are, keep their order whatever ``stable`` says; NaN is greater than everything. Raises AxisError."""
    values, places = self._sorted(self._dim("sort", dim), flag("descending", descending))
    return Picked(self._wrap(values), self._detached(places))

  def argsort(self, dim: int | str = -1, descending: bool = False, stable: bool = False) -> Self:
    """The indices (int32) of what stands along a dim in rising order; see :meth:`sort`. Raises AxisError."""
    return self._detached(self._sorted(self._dim("argsort", dim), flag("descending", descending))[1])

  @paired
  def topk(self, k: int, dim: int | str = -1, largest: bool = True, sorted_: bool = True, *, sorted: bool = True) -> Picked:
    """``(values, indices)`` of the k greatest along a dim (``largest=False``: the least), the greatest (least) first; of equal
    ones those that stand first. They are in order whatever ``sorted`` (or ``sorted_``) says. Raises AxisError, ArgumentError for
    a k that is not from 0 to the size of the dim."""
    d = self._dim("topk", dim)
    n = self.shape[d] if self.ndim else 1
    k = whole_number("topk", "k", k, 0)
    if k > n: raise ArgumentError(f"topk: k = {k} of the {n} elements along dim {dim} of shape {self.shape}; it takes up to {n}")
    values, places = self._sorted(d, flag("largest", largest), k)
    return Picked(self._wrap(values), self._detached(places))

  # ---- order statistics
  def _in_one_dim(self, name: str, dim: int | str | None) -> tuple[Self, int]:
    """This tensor, or (dim None) all of it in one dim, and the dim. Raises ArgumentError where that has no elements."""
    x = self.named().flatten() if dim is None else self.atleast_1d()
    d = 0 if dim is None else self._dim(name, dim)
    if not x.shape[d]: raise ArgumentError(f"{name}: shape {self.shape} has no elements along {dim}; it takes at least one")
    return x, d

  def _chosen_along(self, x: Self, d: int, values: UOp, places: UOp, dim: Any, keepdim: bool) -> Picked:
    """Values and where they stood, given with a dim of 1, as results along a dim of this tensor."""
    s = values.shape if flag("keepdim", keepdim) else values.shape[:d] + values.shape[d + 1:]
    if not self.ndim: s = ()
    elif dim is None and keepdim: s = (1,) * self.ndim
    v, p = x._wrap(reshape(values, s)), self._from_node(reshape(detach(places), s))
    v._names = p._names = None if dim is None else self._names if keepdim else without(self._names, (d,))
    return Picked(v, p)

  def _kth(self, d: int, k: int) -> tuple[UOp, UOp]:
    """The k-th of each row along a dim when sorted, from 0, and where it stood."""
    values, places = self._sorted(d, keep=k + 1)
    return graph.part(values, d, k, k + 1), graph.part(places, d, k, k + 1)

  @paired
  def kthvalue(self, k: int, dim: int | str = -1, keepdim: bool = False) -> Picked:
    """``(values, indices)`` of the k-th least along a dim, counted from 1; NaN is greater than everything. Raises AxisError,
    ArgumentError for a k that is not from 1 to the size of the dim."""
    x, d = self._in_one_dim("kthvalue", dim)
    n = x.shape[d]
    if not 1 <= k <= n: raise ArgumentError(f"kthvalue: k = {k} of the {n} elements along dim {dim} of shape {self.shape}")
    return self._chosen_along(x, d, *x._kth(d, k - 1), dim, keepdim)

  @paired
  def median(self, dim: int | str | None = None, keepdim: bool = False) -> Any:
    """The median along a dim as ``(values, indices)``, or (None) of all elements as one value. Of an even number of elements the
    lower of the two in the middle (``quantile(0.5)`` is between them); NaN where one is NaN. Raises AxisError, ArgumentError."""
    x, d = self._in_one_dim("median", dim)
    values, places = x._kth(d, (x.shape[d] - 1) // 2)
    if x.dtype.kind == "f":
      nan = x.detach().isnan()
      bad = nan.any(d, keepdim=True).lazydata
      values = where(bad, math.nan, values)
      places = where(bad, nan.argmax(d, keepdim=True).lazydata, places)
    found = self._chosen_along(x, d, values, places, dim, keepdim)
    return found[0] if dim is None else found

  @paired
  def nanmedian(self, dim: int | str | None = None, keepdim: bool = False) -> Any:
    """``median`` of the elements that are not NaN; NaN where all are. Raises AxisError, ArgumentError."""
    if self.dtype.kind != "f": return self.median(dim, keepdim)
    x, d = self._in_one_dim("nanmedian", dim)
    values, places = x._sorted(d)
    middle = ((x._count_of_numbers(d) - 1).maximum(0) // 2).lazydata
    found = self._chosen_along(x, d, at_places(values, middle, d), at_places(places, middle, d), dim, keepdim)
    return found[0] if dim is None else found

  def _count_of_numbers(self, d: int) -> Any:
    """How many along a dim are not NaN, with a dim of 1."""
    return self.detach().isnan().logical_not().sum(d, keepdim=True, dtype=dtypes.int32)

  @paired
  def mode(self, dim: int | str = -1, keepdim: bool = False) -> Picked:
    """``(values, indices)``: what occurs most often along a dim, the least of several, and where it stands last. Raises
    AxisError, ArgumentError."""
    x, d = self._in_one_dim("mode", dim)
    values, places = x._sorted(d)
    at = index_along(d, values.shape)
    best = self._from_node(at - scan(BinaryOps.MAX, where(_fresh(detach(values), d), at, 0), d)).argmax(d, keepdim=True).lazydata
    return self._chosen_along(x, d, at_places(values, best, d), at_places(places, best, d), dim, keepdim)

  def _quantile(self, name: str, skip: bool, q: Any, dim: int | str | None = None, keepdim: bool = False,
                interpolation: str = "linear") -> Self:
    if interpolation not in _INTERPOLATIONS:
      raise ArgumentError(f"{name}: interpolation {shown(interpolation)}; it takes {', '.join(map(repr, _INTERPOLATIONS))}")
    self._needs_floats(name)
    x, d = self._in_one_dim(name, dim)
    n, acc = x.shape[d], acc_dtype(x.dtype)
    values = cast(x._sorted(d)[0], acc)
    order = (d, *[i for i in range(x.ndim) if i != d])
    values = permute(values, order)   # the sorted dim first
    rest = values.shape[1:]
    parts = self._quantile_parts(name, q)
    count = parts.numel()
    position = expand(reshape(parts.lazydata, (count,) + (1,) * len(rest)), (count, *rest))
    if skip:
      most = expand(permute((x._count_of_numbers(d) - 1).maximum(0).cast(parts.dtype).lazydata, order), (count, *rest))
    else: most = const(n - 1, parts.dtype, position.shape)
    below, above, way = _between(position * most, interpolation)
    a, b, way = at_places(values, below, 0), at_places(values, above, 0), cast(way, acc)
    out = where(eq(a, b), a, a * (1.0 - way) + b * way)
    if not skip: out = where(expand(permute(x.detach().isnan().any(d, keepdim=True).lazydata, order), out.shape), math.nan, out)
    kept = (1,) * self.ndim if dim is None else (*x.shape[:d], 1, *x.shape[d + 1:]) if self.ndim else ()
    t = x._wrap_many(cast(reshape(out, (count,) * parts.ndim + (kept if flag("keepdim", keepdim) else rest)), x.dtype), (parts,))
    if self._names is not None and dim is not None:
      t._names = (None,) * parts.ndim + (self._names if keepdim else tuple([a for i, a in enumerate(self._names) if i != d]))
    return t

  quantile = member(_quantile, False, """
    What a part q (0 to 1) of the elements along a dim (None: all) is not above; NaN where one is NaN. Of several q, a list or
    a tensor (k,), the result has them as its first dim. Where it is between two elements, ``interpolation`` is "linear",
    "lower", "higher", "midpoint" or "nearest". A q in a tensor is not checked: what is beyond 0 and 1 counts as these.

    Raises AxisError, DTypeError, ShapeError, ArgumentError.""")
  nanquantile = member(_quantile, True, "``quantile`` of the elements that are not NaN; NaN where all are.")

  def _quantile_parts(self, name: str, q: Any) -> Any:
    """The q of a quantile: float64 (exact) from the host, a tensor in this tensor's dtype or float32, from 0 to 1."""
    if isinstance(q, Base):
      of_kind("f", name, "q", q, "it takes floats")
      if q.ndim > 1: raise ShapeError(f"{name}: q of shape {q.shape}; it takes a number or one dimension of them")
      common_device(name, self.lazydata, q.lazydata)
      return q.named().cast(acc_dtype(self.dtype)).clamp(0, 1)  # type: ignore[attr-defined]
    try: a = np.asarray(no_flag(name, "q", q), np.float64)
    except (ValueError, TypeError, OverflowError):
      raise ArgumentError(f"{name}: q {shown(q)}; it takes numbers from 0 to 1") from None
    if a.ndim > 1: raise ShapeError(f"{name}: q of shape {a.shape}; it takes a number or one dimension of them")
    if not (np.isfinite(a) & (a >= 0) & (a <= 1)).all(): raise ArgumentError(f"{name}: q {shown(q)}; it goes from 0 to 1")
    return self._from_host(a) if a.ndim else type(self)(float(a), dtype=dtypes.float64)

  # ---- sets
  def _firsts(self) -> tuple[UOp, Host]:
    """Of rows (the first dim), of which equal ones are side by side: which are not as the one before, and where these are."""
    fresh = _fresh(detach(self.lazydata), 0)
    if self.ndim > 1: fresh = reshape(graph.reduce(BinaryOps.OR, fresh, range(1, self.ndim)), (self.shape[0],))
    return fresh, np.flatnonzero(host_values("unique", self._from_node(fresh), _READ))

  def _with_counts(self, out: Any, inverse: Any, starts: Host, n: int, wanted: bool) -> Any:
    """What ``unique`` gives of runs that begin at ``starts`` among n."""
    return _given(out, inverse, self._from_host(np.diff(np.append(starts, n)).astype(np.int32)) if wanted else None)

  def unique(self, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
             dim: int | str | None = None) -> Any:
    """The different elements in rising order (whatever ``sorted`` says), or the different slices of a dim, as
    ``out[, inverse][, counts]``: ``out[inverse]`` is this tensor, and ``counts`` says how often each occurs (both int32). Every
    NaN is different. It is computed at once, and raises CaptureError while a jit records. Raises AxisError."""
    if dim is not None: return self._unique_rows(dim, return_inverse, return_counts)
    x = self.named().flatten()
    n = x.shape[0]
    values, places = x._sorted(0)
    fresh, starts = self._from_node(values)._firsts()
    inverse = None
    if return_inverse:
      number = _run_of(fresh)
      back = graph.scatter(const(0, dtypes.int32, (n,)), (places,), number, "set") if n else number
      inverse = self._from_node(reshape(back, self.shape))
    return self._with_counts(x._wrap(values)[starts.astype(np.int32)], inverse, starts, n, return_counts)

  def _unique_rows(self, dim: int | str, return_inverse: bool, return_counts: bool) -> Any:
    """``unique`` of the slices along a dim, which the host sorts."""
    x, d = self.atleast_1d(), self._dim("unique", dim)
    n = x.shape[d]
    host = host_values("unique", x.detach().movedim(d, 0).reshape(n, x.numel() // n if n else 0), _READ)
    if host.dtype.kind not in "biuf": host = host.astype(np.float32)
    if not n or not host.shape[1]:   # no elements: all rows are equal
      first, back = np.zeros(min(n, 1), np.int64), np.zeros(n, np.int64)
      counts = np.full(min(n, 1), n)
    else: _, first, back, counts = np.unique(host, True, True, True, axis=0)
    found = [self._from_host(a.reshape(-1).astype(np.int32)) if wanted else None
             for a, wanted in ((back, return_inverse), (counts, return_counts))]
    return _given(x._along(d, first.astype(np.int32)), *found)

  def unique_consecutive(self, return_inverse: bool = False, return_counts: bool = False, dim: int | str | None = None) -> Any:
    """The elements, or the slices of a dim, that are not as the one before them; otherwise as ``unique``."""
    d = 0 if dim is None else self._dim("unique_consecutive", dim)
    x = self.named().flatten() if dim is None else self.atleast_1d()
    n = x.shape[d]
    fresh, starts = (x if dim is None else x.named().movedim(d, 0))._firsts()
    inverse = self._from_node(reshape(_run_of(fresh), self.shape if dim is None else (n,))) if return_inverse else None
    return self._with_counts(x._along(d, starts.astype(np.int32)), inverse, starts, n, return_counts)

  def isin(self, test_elements: Operand, assume_unique: bool = False, invert: bool = False) -> Self:
    """Whether each element is one of the test elements (``invert``: is none of them); NaN is none. More than 64 test elements are
    sorted and searched: O((n + m) log m). ``assume_unique`` changes nothing."""
    common_device("isin", self.lazydata, test_elements.lazydata)
    t: Any = test_elements.detach().named().flatten()
    x: Any = self.detach()
    m = t.numel()
    if not m: found: Any = x._detached(const(False, dtypes.bool, self.shape))
    elif m <= _FEW: found = (x.unsqueeze(-1) == t).any(-1)
    else:
      d = common_dtype(self.lazydata, test_elements.lazydata)
      x, (t, _) = x.cast(d), t.cast(d).sort(0)
      found = t[t.searchsorted(x.named()).minimum(m - 1)] == x
    return found.logical_not() if invert else found

  # ---- searches and counts
  def searchsorted(self, values: Operand, *, right: bool = False, side: str | None = None, sorter: Operand | None = None) -> Self:
    """How many elements of this sorted tensor (or of what is sorted in the order ``sorter``) are less than each value (``right``,
    or ``side="right"``: or equal): where it goes in front of (behind) equal ones, int32. (n,) and any shape, or (.., n) and
    (.., m) with the same dims in front; NaN is greater than everything. A search among 16 elements at a time: O(log n) each.
    Raises ShapeError, ArgumentError."""
    if sorter is not None: return self.gather(-1, sorter).searchsorted(values, right=right, side=side)
    if side not in (None, "left", "right"): raise ArgumentError(f"searchsorted: side {shown(side)}; it takes 'left' or 'right'")
    if side == "left" and right: raise ArgumentError("searchsorted: side 'left' and right=True; give one of them")
    s, vs = self.shape, values.shape
    if not s or (len(s) > 1 and s[:-1] != vs[:-1]):
      raise ShapeError(f"searchsorted: a sorted tensor of shape {s} and values of shape {vs}; it takes (n,) and any shape, or "
                       "(.., n) and (.., m) with the same dimensions in front")
    common_device("searchsorted", self.lazydata, values.lazydata)
    n, rows = s[-1], math.prod(s[:-1])
    d = promote(self.dtype, values.dtype)
    u, v = [cast(detach(t.lazydata), d) for t in (self, values)]
    return values._detached(_searched(u, v, n, rows, right or side == "right"))

  def bucketize(self, boundaries: Operand, *, right: bool = False) -> Self:
    """For each element the number of the bucket between sorted boundaries (n,) that it is in, 0 to n, int32: the one whose upper
    end is not less than it (``right``: is greater). Raises ShapeError."""
    if boundaries.ndim != 1: raise ShapeError(f"bucketize: boundaries of shape {boundaries.shape}; it takes one dimension")
    return boundaries.searchsorted(self, right=right)

  def nonzero(self, as_tuple: bool = False, *, size: int | None = None, fill_value: int = 0) -> Any:
    """(count, ndim): the indices of the elements that are not zero, row by row, int32; or ``as_tuple`` a tensor (count,) for each
    dim. It is computed at once, and raises CaptureError while a jit records, but with ``size``: then it is
    ``nonzero_static``."""
    x = self.atleast_1d() if as_tuple else self
    if size is not None:
      found = x.nonzero_static(size=size, fill_value=fill_value)
      return found.unbind(1) if as_tuple else found
    a = host_values("nonzero", x.detach().cast(dtypes.bool), "use where() or masked_fill()")
    d = np.int32 if all([n < 2 ** 31 for n in self.shape]) else np.int64
    if as_tuple: return tuple([self._from_host(i.astype(d)) for i in np.nonzero(a)])
    return self._from_host(np.argwhere(a).astype(d))
  def nonzero_static(self, *, size: int, fill_value: int = -1) -> Self:
    """(size, ndim): the indices of the first ``size`` elements that are not zero, row by row, int32; ``fill_value`` where there
    are less. Unlike ``nonzero`` its shape is known, so that a jit can record it. Raises ArgumentError, ShapeError."""
    size = whole_number("nonzero_static", "size", size, 0)
    if self.numel() > dtypes.max(dtypes.int32): raise ShapeError(f"nonzero_static: indices of {self.shape}; int32 is too small")
    make = type(self)
    if not size or not self.ndim or not self.numel():
      return make.full((size, self.ndim), fill_value, dtype=dtypes.int32, device=self.device)
    at = self._first_true(size)
    return (at < self.numel()).unsqueeze(1).where(make.stack(at.unravel_index(self.shape), dim=1), fill_value)
  def _first_true(self, size: int) -> Self:
    """(size,): the indices into the flattened tensor of the first elements that are not zero; from its end on where there are
    less."""
    counts = self.named().cast(dtypes.bool).reshape(-1).cumsum(0, dtype=dtypes.int32)
    return counts.searchsorted(type(self).arange(1, size + 1, device=self.device).cast(dtypes.int32))
  def masked_select(self, mask: Operand, *, size: int | None = None, fill_value: float = 0) -> Self:
    """(count,): the elements where a bool mask is true, both broadcast together. It is computed at once, and raises CaptureError
    while a jit records, but with ``size``: then it is the first ``size`` of them, and ``fill_value`` where there are less. Raises
    DTypeError, ShapeError, ArgumentError."""
    shape = broadcast_shape("masked_select", self.shape, self._mask_for("masked_select", mask).shape)
    x, m = self.named().expand(shape), mask.named().expand(shape)
    if size is None: return x[m]
    n = math.prod(shape)
    if n > dtypes.max(dtypes.int32): raise ShapeError(f"masked_select: {n} elements with a size; at most 2**31 - 1")
    if not n or not whole_number("masked_select", "size", size, 0): return x.new_full((size,), fill_value)
    at = m._first_true(size)
    return (at < n).where(x.reshape(-1)[at.minimum(n - 1)], fill_value).cast(self.dtype)
  def argwhere(self) -> Self:
    """``nonzero()``."""
    return self.nonzero()

  def repeat_interleave(self, repeats: Any, dim: int | str | None = None, output_size: int | None = None) -> Self:
    """Each element so many times in a row, along one dim or (None) of the flattened tensor; ``repeats`` is a number, or ints of
    shape (n,), one for each element of the dim. With a tensor of them the size of the result depends on values: they are computed
    at once, and raise CaptureError while a jit records, unless ``output_size`` says what they add up to (if it is not so, the
    last elements are missing or come more often). Raises AxisError, ShapeError, DTypeError, ArgumentError."""
    if not isinstance(repeats, (Base, np.ndarray, list, tuple)) or isinstance(repeats, np.ndarray) and not repeats.ndim:
      return super().repeat_interleave(repeats, dim)  # type: ignore[arg-type]  # checked there
    x = self.flatten() if dim is None else self
    d = 0 if dim is None else x._dim("repeat_interleave", dim)
    x = x.atleast_1d()
    r: Any = repeats if isinstance(repeats, Base) else self._from_host(no_flag("repeat_interleave", "repeats", repeats))
    n = x.shape[d]
    if r.numel(): of_kind("iu", "repeat_interleave", "repeats", r, "it takes ints")
    if r.ndim > 1 or r.numel() not in (1, n):
      raise ShapeError(f"repeat_interleave: repeats of shape {r.shape} for {n} elements, dimension {d} of shape {x.shape}; "
                       "give a number, or one for each")
    r = r.reshape(r.numel()).cast(dtypes.int32 if not r.numel() else r.dtype)
    if r.numel() != n: r = r.expand(n)
    if output_size is not None:
      whole_number("repeat_interleave", "output_size", output_size, 0)
      if not n: return x._along(d, self._from_host(np.zeros(0, np.int32)))
      ends, at = r.cumsum(0, dtype=acc_dtype(r.dtype)), type(self).arange(output_size)
      return x._along(d, ends.searchsorted(at.to(ends.device) if ends.lazydata.device else at, right=True).minimum(n - 1))
    counts = host_values("repeat_interleave", r, "give output_size=, their sum")
    if counts.size and counts.min() < 0: raise ArgumentError(f"repeat_interleave: repeats {counts.min()}; they must be 0 or more")
    return x._along(d, np.repeat(np.arange(n, dtype=np.int32), counts))

  def bincount(self, weights: Operand | None = None, minlength: int = 0) -> Self:
    """How often each of 0, 1, .. occurs in a 1-d tensor of ints, int64, or the sum of its ``weights``: (n,) -> (greatest + 1,),
    at least ``minlength``. The greatest is computed at once, and raises CaptureError while a jit records. Raises ShapeError,
    DTypeError, ArgumentError for a negative element."""
    if self.ndim != 1: raise ShapeError(f"bincount: shape {self.shape}; it takes one dimension")
    of_kind("iu", "bincount", "a tensor", self, "it takes ints")
    if weights is not None and weights.shape != self.shape:
      raise ShapeError(f"bincount: weights of shape {weights.shape} for shape {self.shape}; they must be the same")
    size = whole_number("bincount", "minlength", minlength, 0)
    if self.numel():
      x = self.named()
      low, high = host_values("bincount", x.min().stack(x.max()), "use one_hot(n).sum(0), or scatter_add into n zeros").tolist()
      if low < 0: raise ArgumentError(f"bincount: the element {low}; they must not be negative")
      size = max(size, high + 1)
    new_shape("bincount", (size,))
    return self._counts_of(graph.index_of(self.lazydata, size), size, weights)

  def _counts_of(self, index: UOp, size: int, weights: Any) -> Self:
    """How often each index occurs, or the sums of weights; those out of range do not count."""
    one = const(1, dtypes.int32, index.shape) if weights is None else weights.lazydata
    def add_up(x: UOp) -> UOp:
      none = const(0, x.dtype, (size,))
      return added(none, (index,), x) if size and index.shape[0] else none
    node = combined(BinaryOps.ADD, one, index.shape[0], None, add_up)
    return (self._from_node(node) if weights is None else weights._wrap(node))._called(None)

  def _histogram_ends(self, name: str, low: Any, high: Any) -> tuple[Any, Any, Any]:
    """All elements in one dim, in floats, and both ends of what is counted: those given, or the least and the greatest."""
    x: Any = self.detach().named().flatten().cast(acc_dtype(
      self.dtype if self.dtype.kind == "f" else dtypes.float64 if self.dtype.itemsize == 8 else dtypes.default_float))
    if not math.isfinite(low) or not math.isfinite(high) or low > high:
      raise ArgumentError(f"{name}: from {low} to {high}; it takes finite numbers, the lesser first")
    if low == high and not self.numel(): low, high = 0.0, 1.0
    a, b = [type(self)(float(end), dtype=x.dtype) for end in (low, high)] if low != high else (x.min(), x.max())
    same = a == b
    return x, same.where(a - 1, a), same.where(b + 1, b)

  def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Self:
    """How many elements are in each of ``bins`` equal parts from min to max, the last with its upper end, in this dtype (ints and
    bools: int64); elements outside and NaN count nowhere. Where both are equal, from the least to the greatest element. Raises
    ArgumentError."""
    whole_number("histc", "bins", bins, 1)
    new_shape("histc", (bins,))
    x, low, high = self._histogram_ends("histc", min, max)
    counts = self._counts_of(_bin(x, low, high, bins), bins, None)
    return counts.cast(self.dtype) if self.dtype.kind == "f" else counts

  def histogram(self, bins: Any = 100, *, range: Sequence[float] | None = None, weight: Operand | None = None,
                density: bool = False) -> tuple[Self, Self]:
    """``(counts, edges)``, (n,) and (n + 1,): how many elements, or the sum of their weights, are in each of n equal bins of a
    range (None: from the least to the greatest element), or between the sorted edges that ``bins`` gives, the last one with its
    upper end. ``density``: divided by the sum and by how wide the bin is. float32, or this tensor's float dtype. Raises
    ArgumentError, ShapeError."""
    if weight is not None and weight.shape != self.shape:
      raise ShapeError(f"histogram: weights of shape {weight.shape} for shape {self.shape}; they must be the same")
    out = as_float(self.dtype)
    if range is not None and len(range) != 2: raise ArgumentError(f"histogram: range {shown(range)}; it takes two numbers")
    if isinstance(bins, (int, np.integer)):
      n = whole_number("histogram", "bins", bins, 1)
      new_shape("histogram", (n + 1,))
      x, low, high = self._histogram_ends("histogram", *(range or (0, 0)))
      part = type(self).arange(n + 1).cast(x.dtype) / n
      edges = low * (1 - part) + high * part
      index = _bin(x, low, high, n)
    else:
      given: Any = bins if isinstance(bins, Base) else self._from_host(bins)
      edges = given
      if edges.ndim != 1 or edges.numel() < 2: raise ShapeError(f"histogram: edges of shape {edges.shape}; it takes two or more")
      n, x = edges.numel() - 1, self.detach().named().flatten()
      index = (x == edges[-1]).where(n - 1, edges.searchsorted(x, right=True) - 1).lazydata   # -1 and n are in no bin
    counts = self._counts_of(index, n, None if weight is None else weight.named().flatten()).cast(out)
    edges = edges.cast(out)
    if density: counts = counts / counts.sum() / (edges[1:] - edges[:-1])
    return counts, edges


def _given(first: Any, *others: Any) -> Any:
  """Results, or the first one alone; None is none."""
  found = (first, *[t for t in others if t is not None])
  return found if len(found) > 1 else first


def _fresh(u: UOp, axis: int) -> UOp:
  """Which elements are not as the one before them along an axis; the first one is."""
  s, n = u.shape, u.shape[axis]
  if n <= 1: return const(True, dtypes.bool, s)
  before = pad(graph.part(u, axis, 0, n - 1), [(1, 0) if i == axis else (0, 0) for i in range(len(s))])
  return eq(index_along(axis, s), 0) | ne(u, before)


def _run_of(fresh: UOp) -> UOp:
  """The number of the run that each element is in; ``fresh``: those that begin one."""
  return scan(BinaryOps.ADD, cast(fresh, dtypes.int32), 0) - 1


def _searched(u: UOp, v: UOp, n: int, rows: int, right: bool) -> UOp:
  """How many of the n sorted elements of a row are less than a value, or equal."""
  shape, places = v.shape, place_dtype(n)
  count = const(0, places, shape)
  if not n or 0 in shape: return count
  work = place_dtype(rows * n)
  flat = reshape(u, (rows * n,))
  # each value's row begins here
  start = const(0, work, shape) if rows == 1 else expand(reshape(cast(graph.iota(rows), work), (*shape[:-1], 1)) * n, shape)
  axis, step = len(shape), 1
  while step * _WAYS <= n: step *= _WAYS
  while step:   # of some elements, ``step`` apart, how many are less; then of those between two of them
    every = *shape, min(_WAYS - 1, n // step)
    def spread(x: UOp) -> UOp: return expand(reshape(x, (*shape, 1)), every)  # noqa: B023 - used at once
    at = cast(index_along(axis, every), places) * step + spread(count)
    at = at + (step - 1)
    there = lt(at, n)
    x = graph.gather(flat, spread(start) + cast(minimum(at, n - 1), work))
    count = count + reshape(total(cast(there & _less(x, spread(v), right), places), (axis,)), shape) * step
    step //= _WAYS
  return count


def _less(x: UOp, v: UOp, right: bool) -> UOp:
  """Whether x is less than v, or (``right``) equal; NaN is greater than everything else."""
  less = binary(BinaryOps.CMPLE if right else BinaryOps.CMPLT, x, v)
  if v.dtype.kind != "f": return less
  nan = isnan(v)
  if not right: nan = nan & not_(isnan(x))
  return less | nan


def _bin(x: Any, low: Any, high: Any, bins: int) -> UOp:
  """Which of equal bins each element is in, -1 where it is in none."""
  at, inside = ((x - low) / (high - low) * bins).clamp(0, bins - 1), (x >= low) & (x <= high)
  return inside.where(inside.where(at, 0.0).cast(dtypes.int32), -1).lazydata
