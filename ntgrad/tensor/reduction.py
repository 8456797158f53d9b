"""Reductions of ``Tensor``: sums, extremes, means and variances, norms, softmax; running sums, products and extremes;
differences and integrals.

Sums of ints and bools are int64 (``sum_dtype``), and are added up in int32 where no sum can be greater; float16, bfloat16 and
fp8 sums accumulate in float32. A reduction keeps its dims as 1 in the graph and drops them last, so that what is computed per
row stays in the row's kernel."""
from __future__ import annotations

import math
from collections import namedtuple
from typing import Any, Callable, Self, Sequence, Union, overload

from ntgrad.codegen.ir import ArgumentError, BinaryOps, DTypeError, ShapeError, UOp, shown
from ntgrad.codegen.ir.dtype import DType, acc_dtype, as_float, dtypes, sum_dtype
from ntgrad.codegen.ir.elementwise import absolute, const, eq, exp, isnan, log, lt, sqrt, where
from ntgrad.core import Base, real_number
from ntgrad.engine.index_checks import value_bounds
from ntgrad.graph import Operand, Several, checked, flag, nodes as graph, of_kind, paired, real, without
from ntgrad.graph.nodes import cast, detach, drop, expand, gather, index_along, iota, place_dtype, reduce, reshape, scan

from .families import member
from .indexing import Indexing

Axis = Union[int, str, Sequence[int | str], None]
_CHUNK = 32   # logcumsumexp: elements of a row that are looked at together


def count(u: UOp, axes: Sequence[int]) -> int:
  """How many elements a reduction combines into one."""
  return math.prod(map(u.shape.__getitem__, axes))


def reaches(u: UOp, best: UOp) -> UOp:
  """Where what is compared is as good as the best of it, or NaN."""
  same = eq(u, best)
  return same | isnan(u) if u.dtype.kind == "f" else same


def fits_int32(fn: BinaryOps, u: UOp, n: int) -> bool:
  """Whether int32 holds what n ints (or bools) of a node add up to, or multiply to (ADD, MUL)."""
  d = u.dtype
  if d.kind not in "iub": return False
  def fits(lo: float, hi: float) -> bool:
    most = max(-lo, hi)
    return most * n < 2 ** 31 if fn is BinaryOps.ADD else most <= 1 or n <= int(math.log(2 ** 31 - 1, most))
  return fits(dtypes.min(d), dtypes.max(d)) or d.kind != "b" and fits(*value_bounds(u, memory=False))   # the cheap answer first


def combined(fn: BinaryOps, u: UOp, n: int, dtype: DType | None, how: Callable[[UOp], UOp]) -> UOp:
  """Sums or products (ADD, MUL) of n elements each, which ``how`` makes, of elements cast to ``dtype`` or else to ``sum_dtype``.
  Ints are added up in int32 where that holds what comes out, small floats in float32."""
  out = sum_dtype(u.dtype) if dtype is None else dtype
  if out.kind in "iu" and out.itemsize == 8 and fits_int32(fn, u, n): acc = dtypes.int32
  else:
    acc = acc_dtype(out)
    if dtype is not None: u = cast(u, dtype)
  return cast(how(cast(u, acc)), out)


def reduced(fn: BinaryOps, u: UOp, axes: Sequence[int], dtype: DType | None = None) -> UOp:
  """The sum or the product (ADD, MUL) along axes, which stay as dims of 1; see ``combined``."""
  d = u.dtype
  if dtype is None and d.kind == "f":   # as ``combined`` has it, without its questions
    return cast(reduce(fn, cast(u, acc_dtype(d)), axes), d)
  return combined(fn, u, count(u, axes), dtype, lambda x: reduce(fn, x, axes))


def _scanned(fn: BinaryOps, u: UOp, axis: int, dtype: DType | str | None = None) -> UOp:
  """Running sums or products (ADD, MUL) along an axis; see ``combined``."""
  n, d = u.shape[axis] if u.shape else 1, None if dtype is None else dtypes.of(dtype)
  return combined(fn, u, n, d, lambda x: scan(fn, x, axis) if u.shape else x)


def at_places(u: UOp, places: UOp, axis: int) -> UOp:
  """out[i][j] = u[i][places[i][j]] for axis 1; all places are there."""
  s, step = u.shape, 1
  work = place_dtype(math.prod(s))
  flat: UOp | None = None
  for a in reversed(range(len(s))):
    if s[a] != 1:
      at = cast(places if a == axis else index_along(a, places.shape), work)
      if step != 1: at = at * step
      flat = at if flat is None else flat + at
    step *= s[a]
  return gather(reshape(u, (step,)), const(0, work, places.shape) if flat is None else flat)


class Picked(Several, namedtuple("Picked", "values indices")):
  """Elements of a tensor, and where they stood (int32)."""
  __slots__ = ()


class MinMax(Several, namedtuple("MinMax", "min max")):
  """What ``aminmax`` gives."""
  __slots__ = ()


@checked
class Reduction(Indexing):
  """The reductions."""
  __slots__ = ()

  def _finish(self, node: UOp, axes: tuple[int, ...], keepdim: bool) -> Self:
    if flag("keepdim", keepdim): return self._wrap(node, 3)
    t = self._wrap(drop(node, axes), 3)
    if self._names is not None: t._names = without(self._names, axes)
    return t

  def sum(self, axis: Axis = None, keepdim: bool = False, dtype: DType | str | None = None) -> Self:
    """The sum along axes (None: all), of ints and bools int64; with ``dtype`` elements are cast first. Raises AxisError."""
    axes = self._dims("sum", axis)
    return self._finish(reduced(BinaryOps.ADD, self.lazydata, axes, None if dtype is None else dtypes.of(dtype)), axes, keepdim)

  def prod(self, axis: Axis = None, keepdim: bool = False, dtype: DType | str | None = None) -> Self:
    """The product along axes (None: all), of ints and bools int64; with ``dtype`` elements are cast first. Raises AxisError."""
    axes = self._dims("prod", axis)
    return self._finish(reduced(BinaryOps.MUL, self.lazydata, axes, None if dtype is None else dtypes.of(dtype)), axes, keepdim)

  def _extreme(self, name: str, fn: BinaryOps, dim: Axis = None, keepdim: bool = False) -> Self:
    u = self.lazydata
    axes = self._dims(name, dim)
    if not count(u, axes): raise ArgumentError(f"{name}: shape {u.shape} has no elements along {dim}; it takes at least one")
    if u.dtype.kind == "b": fn = BinaryOps.OR if fn is BinaryOps.MAX else BinaryOps.AND
    return self._finish(reduce(fn, u, axes), axes, keepdim)

  def _extreme_at(self, name: str, fn: BinaryOps, dim: Any, keepdim: bool, axis: Axis) -> Any:
    """The extreme along ``axis``; where ``dim`` is one dimension, with where it is; of two tensors of each two elements."""
    if axis is not None:
      if dim is not None: raise ArgumentError(f"{name}: axis={shown(axis)} and dim={shown(dim)}; give one of them")
      return self._extreme(name, fn, axis, keepdim)
    if isinstance(dim, Base): return self.maximum(dim) if fn is BinaryOps.MAX else self.minimum(dim)
    if dim is None or isinstance(dim, (tuple, list)): return self._extreme(name, fn, dim, keepdim)
    d, places = self._dim(name, dim), self._argextreme(name, fn, dim if self.ndim else None, True)
    if not self.ndim: return Picked(self._own(), places)
    values = self._finish(at_places(self.lazydata, places.lazydata, d), (d,), keepdim)
    return Picked(values, self._argextreme(name, fn, dim, keepdim))

  @overload
  def max(self, dim: int | str, keepdim: bool = False) -> Picked: ...
  @overload
  def max(self, dim: tuple[int | str, ...] | list[int | str] | Base | None = None, keepdim: bool = False, *,
          axis: Axis = None) -> Self: ...
  def max(self, dim: Any = None, keepdim: bool = False, *, axis: Axis = None) -> Any:
    """The greatest of all elements, NaN if one is NaN. Along a dim, by place or as ``dim=``, ``(values, indices)``: where it is
    too, int32, the first of equal ones. Along ``axis=``, one or several, the values alone. Of two tensors, ``x.max(y)``, the
    greater of each two elements. Raises AxisError; ArgumentError for no elements."""
    return self._extreme_at("max", BinaryOps.MAX, dim, keepdim, axis)

  @overload
  def min(self, dim: int | str, keepdim: bool = False) -> Picked: ...
  @overload
  def min(self, dim: tuple[int | str, ...] | list[int | str] | Base | None = None, keepdim: bool = False, *,
          axis: Axis = None) -> Self: ...
  def min(self, dim: Any = None, keepdim: bool = False, *, axis: Axis = None) -> Any:
    """The least of all elements, NaN if one is NaN; along a dim ``(values, indices)``, along ``axis=`` the values alone, of two
    tensors the lesser of each two elements: see ``max``. Raises AxisError; ArgumentError for no elements."""
    return self._extreme_at("min", BinaryOps.MIN, dim, keepdim, axis)

  def _argextreme(self, name: str, fn: BinaryOps, axis: int | str | None = None, keepdim: bool = False) -> Self:
    u = self.lazydata
    s = u.shape
    if axis is None: u, a = reshape(u, (math.prod(s),)), 0
    else: a = self._dim(name, axis)
    if not u.shape: return self._from_node(const(0, dtypes.int32))
    n = u.shape[a]
    if not n: raise ArgumentError(f"{name}: shape {s} has no elements along {axis}; it takes at least one")
    if u.dtype.kind == "b": u = cast(u, dtypes.int32)
    found = reaches(u, expand(reduce(fn, u, (a,)), u.shape))
    # n - i is greatest at the first
    out = cast(n - reduce(BinaryOps.MAX, where(found, n - index_along(a, u.shape), 0), (a,)), place_dtype(n))
    if flag("keepdim", keepdim): return self._detached(reshape(out, (1,) * len(s)) if axis is None else out)
    t = self._from_node(drop(out, (a,)))
    if axis is not None: t._names = without(self._names, (a,))
    return t

  argmax = member(_argextreme, BinaryOps.MAX, """
    Where the greatest is along an axis (None: in the flattened tensor), int32 (int64 among 2**31 elements or more); the first of
    equals, a NaN before all. Raises AxisError.""")
  argmin = member(_argextreme, BinaryOps.MIN, "Where the least is along an axis; see ``argmax``. Raises AxisError.")

  amax = member(
    _extreme, BinaryOps.MAX, "The greatest along dims (None: all), NaN if one is NaN. Raises AxisError; ArgumentError of none.")
  amin = member(
    _extreme, BinaryOps.MIN, "The least along dims (None: all), NaN if one is NaN. Raises AxisError; ArgumentError of none.")
  def aminmax(self, *, dim: Axis = None, keepdim: bool = False) -> MinMax:
    """``(min, max)`` along dims (None: all). Raises AxisError; ArgumentError for no elements."""
    return MinMax(self._extreme("aminmax", BinaryOps.MIN, dim, keepdim), self._extreme("aminmax", BinaryOps.MAX, dim, keepdim))

  def _together(self, name: str, fn: BinaryOps, axis: Axis = None, keepdim: bool = False) -> Self:
    axes = self._dims(name, axis)
    return self._finish(reduce(fn, cast(self.lazydata, dtypes.bool), axes), axes, keepdim)
  any = member(_together, BinaryOps.OR, "Whether one along axes (None: all) is not zero. Raises AxisError.")
  all = member(_together, BinaryOps.AND, "Whether every one along axes (None: all) is not zero. Raises AxisError.")

  def allclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all values are close (see ``isclose``), a Python bool, computed now. Raises CaptureError while a jit records."""
    return bool(self.isclose(other, rtol, atol, equal_nan).all().item())
  def equal(self, other: Base) -> bool:
    """Whether the other tensor has this shape and these values (NaN equals nothing), as Python's bool; computes it now. Raises
    CaptureError while a jit records."""
    return self.shape == other.shape and bool(self.detach().named().eq(other.detach().named()).all().item())

  def _mean_node(self, u: UOp, axes: Sequence[int]) -> UOp:
    """Mean with dims kept, in the accumulator's dtype."""
    total, n = graph.total(cast(u, acc_dtype(as_float(u.dtype))), axes), count(u, axes)
    return total / real(n) if n != 1 else total

  def mean(self, axis: Axis = None, keepdim: bool = False, *, dtype: DType | str | None = None) -> Self:
    """The mean along axes (None: all); of ints and bools the default float; with ``dtype`` elements are cast first. Raises
    AxisError."""
    u = self.lazydata if dtype is None else self.cast(dtype).lazydata
    axes = self._dims("mean", axis)
    return self._finish(cast(self._mean_node(u, axes), as_float(u.dtype)), axes, keepdim)

  def _var_node(self, u: UOp, axes: Sequence[int], correction: float, unbiased: bool | None) -> UOp:
    """The variance with dims kept, in the accumulator's dtype: two passes."""
    correction = real_number("var", "correction", correction if unbiased is None else int(unbiased))
    mean = self._mean_node(u, axes)
    d = cast(u, mean.dtype) - expand(mean, u.shape)
    return graph.total(d * d, axes) / real(max(count(u, axes) - correction, 0))

  def var(self, axis: Axis = None, keepdim: bool = False, correction: float = 1, *, unbiased: bool | None = None) -> Self:
    """The variance along axes (None: all), divided by n - correction; ``unbiased`` says that as a flag, True: n - 1, False: n.
    Raises AxisError."""
    u, axes = self.lazydata, self._dims("var", axis)
    return self._finish(cast(self._var_node(u, axes, correction, unbiased), as_float(u.dtype)), axes, keepdim)

  def std(self, axis: Axis = None, keepdim: bool = False, correction: float = 1, *, unbiased: bool | None = None) -> Self:
    """The standard deviation along axes (None: all); no slope where it is 0. Raises AxisError. See ``var``."""
    u, axes = self.lazydata, self._dims("std", axis)
    return self._finish(self._var_node(u, axes, correction, unbiased), axes, keepdim)._root(0.5)._rounded_to(u.dtype)

  def _with_mean(self, name: str, axis: Axis = None, keepdim: bool = False, correction: float = 1, *,
                 unbiased: bool | None = None) -> tuple[Self, Self]:
    # var or std
    return getattr(self, name[:-5])(axis, keepdim, correction, unbiased=unbiased), self.mean(axis, keepdim)
  var_mean = member(_with_mean, "``(var, mean)``; see ``var``. Raises AxisError.")
  std_mean = member(_with_mean, "``(std, mean)``; see ``std``. Raises AxisError.")

  def nansum(self, dim: Axis = None, keepdim: bool = False, *, dtype: DType | str | None = None) -> Self:
    """The sum along dims (None: all) of what is not NaN; see ``sum``. Raises AxisError."""
    return self._numbers().sum(dim, keepdim, dtype)
  def nanmean(self, dim: Axis = None, keepdim: bool = False) -> Self:
    """The mean along dims (None: all) of what is not NaN; NaN where all are. Raises AxisError."""
    if self.dtype.kind != "f": return self.mean(dim, keepdim)
    wide = acc_dtype(self.dtype)
    total = self._numbers().cast(wide).sum(dim, keepdim)
    return (total / self.isnan().logical_not().cast(wide).sum(dim, keepdim)).cast(self.dtype)
  def _numbers(self) -> Self: return self.isnan().where(0, self) if self.dtype.kind in "fe" else self
  def count_nonzero(self, dim: Axis = None) -> Self:
    """How many along dims (None: all) are not 0, int64; NaN is not. Raises AxisError."""
    return self.ne(0).sum(dim)

  def trace(self) -> Self:
    """The sum of a matrix's diagonal; ints as ``sum`` has them. Raises ShapeError for other than 2 dimensions."""
    if self.ndim != 2: raise ShapeError(f"trace: a tensor of shape {self.shape}; it takes a matrix")
    n = min(self.shape)
    return self.named()[:n, :n].diagonal().sum()

  # ---- norms
  def norm(self, p: float = 2, axis: Axis = None, keepdim: bool = False, *, dtype: DType | str | None = None) -> Self:
    """The p-norm along axes (None: all). p may be inf and -inf (the greatest and the least absolute value) and 0 (how many are
    not 0). Small floats are computed in float32; no slope where the norm is 0; with ``dtype`` elements are cast first. Raises
    AxisError, ArgumentError."""
    if dtype is not None: return self.cast(dtype).norm(p, axis, keepdim)
    if not isinstance(p, (int, float)) or p != p: raise ArgumentError(f"norm: p = {p!r}; it must be a number")
    u = self.lazydata
    x = self.cast(acc_dtype(as_float(u.dtype)))
    if p == 0: out = x.ne(0).cast(x.dtype).sum(axis, keepdim)
    elif p == math.inf: out = x.abs().max(axis=axis, keepdim=keepdim)
    elif p == -math.inf: out = x.abs().min(axis=axis, keepdim=keepdim)
    elif p == 1: out = x.abs().sum(axis, keepdim)
    else: out = (x.square() if p == 2 else x.abs().pow(p)).sum(axis, keepdim)._root(1 / p)
    return out._rounded_to(u.dtype)

  def _root(self, power: float) -> Self:
    """self ** power, without slope where self is 0."""
    u = self.lazydata
    zero = eq(u, 0.0)
    base = where(zero, 1.0, u)
    return self._wrap(where(zero, 0.0 if power > 0 else math.inf, sqrt(base) if power == 0.5 else graph.power(base, power)))
  def _rounded_to(self, dtype: DType) -> Self: return self.cast(as_float(dtype))

  def renorm(self, p: float, dim: int | str, maxnorm: float) -> Self:
    """Each part along a dim whose p-norm is above ``maxnorm`` scaled down to it. Raises AxisError, DTypeError, ArgumentError."""
    d = self._dim("renorm", dim)
    if self.ndim < 2: raise ShapeError(f"renorm: shape {self.shape}; it takes at least two dimensions")
    of_kind("f", "renorm", "a tensor", self, "it takes floats")
    if p <= 0 or maxnorm < 0: raise ArgumentError(f"renorm: p {p}, maxnorm {maxnorm}; p must be above 0, maxnorm not beneath it")
    x: Any = self._wide()
    size = x.norm(p, tuple([k for k in range(self.ndim) if k != d]), keepdim=True)
    return ((size > maxnorm).where(maxnorm / (size + 1e-7), 1.0) * x).cast(self.dtype)
  def dist(self, other: Operand, p: float = 2) -> Self:
    """The p-norm of the difference of both tensors, over all elements; see ``norm``."""
    if not p >= 0: raise ArgumentError(f"dist: p = {p}; it must not be negative")
    if self.dtype.kind == "b": raise DTypeError("dist: of bools; cast them to an int dtype")
    return (self - other).norm(p)

  # ---- along rows
  def _rows(self, name: str, axis: int | str) -> tuple[UOp, int, DType]:
    """Input in float32 or float64, the axis, and the dtype of the result."""
    d = as_float(self.dtype)
    return cast(cast(self.lazydata, d), acc_dtype(d)), self._dim(name, axis), d

  def _shifted(self, u: UOp, a: int) -> tuple[UOp, UOp, UOp]:
    """x - max, its exponential, and the sum of those, along axis a (dims kept)."""
    axes = (a,) if u.shape else ()
    d = u - expand(detach(reduce(BinaryOps.MAX, u, axes)), u.shape)
    e = exp(d)
    return d, e, graph.total(e, axes)

  def softmax(self, axis: int | str = -1, dtype: DType | str | None = None) -> Self:
    """exp(x) / sum(exp(x)) along an axis; small floats are computed in float32. Raises AxisError."""
    u, a, out = self._rows("softmax", axis)
    _, e, total = self._shifted(u, a)
    return self._wrap(cast(e / expand(total, e.shape), out if dtype is None else dtypes.of(dtype)))

  def softmin(self, dim: int | str = -1, dtype: DType | str | None = None) -> Self:
    """softmax(-x) along a dim. Raises AxisError."""
    return self.neg().softmax(dim, dtype)

  def log_softmax(self, axis: int | str = -1, dtype: DType | str | None = None) -> Self:
    """log(softmax(x)) along an axis; small floats are computed in float32. Raises AxisError."""
    u, a, out = self._rows("log_softmax", axis)
    d, _, total = self._shifted(u, a)
    return self._wrap(cast(d - expand(log(total), d.shape), out if dtype is None else dtypes.of(dtype)))

  def logsumexp(self, axis: Axis = None, keepdim: bool = False) -> Self:
    """log(sum(exp(x))) along axes (None: all), without overflow. Raises AxisError."""
    x = cast(self.lazydata, as_float(self.dtype))
    u, axes = cast(x, acc_dtype(x.dtype)), self._dims("logsumexp", axis)
    top = detach(reduce(BinaryOps.MAX, u, axes))
    top = where(lt(absolute(top), math.inf), top, 0.0)   # a row of only -inf must not become inf - inf
    return self._finish(cast(log(graph.total(exp(u - expand(top, u.shape)), axes)) + top, x.dtype), axes, keepdim)

  # ---- scans
  def cumsum(self, axis: int | str = 0, *, dtype: DType | str | None = None) -> Self:
    """Running sums along an axis, of ints and bools int64; with ``dtype`` elements are cast first. Raises AxisError."""
    return self._wrap(_scanned(BinaryOps.ADD, self.lazydata, self._dim("cumsum", axis), dtype))

  def cumprod(self, dim: int | str = 0, *, dtype: DType | str | None = None) -> Self:
    """Running products along a dim, of ints and bools int64; with ``dtype`` elements are cast first. Raises AxisError."""
    return self._wrap(_scanned(BinaryOps.MUL, self.lazydata, self._dim("cumprod", dim), dtype))

  @paired
  def _running(self, name: str, fn: BinaryOps, dim: int | str = 0) -> Picked:
    a, u = self._dim(name, dim), self.lazydata
    s = u.shape
    if not s or not s[a]: return Picked(self._own(), self._detached(const(0, dtypes.int32, s)))
    if u.dtype.kind == "b": u = cast(u, dtypes.int32)
    best = scan(fn, u, a)
    last = scan(BinaryOps.MAX, where(reaches(u, best), cast(index_along(a, s), place_dtype(s[a])), 0), a)
    return Picked(self._wrap(cast(best, self.dtype)), self._detached(last))
  cummax = member(_running, BinaryOps.MAX, """
    The greatest so far along a dim and where it is (of equal ones the last), int32; a NaN stays. Raises AxisError.""")
  cummin = member(_running, BinaryOps.MIN, """
    The least so far along a dim and where it is (of equal ones the last), int32; a NaN stays. Raises AxisError.""")

  def logcumsumexp(self, dim: int | str = 0) -> Self:
    """log(cumsum(exp(x))) along a dim (the first one unless told otherwise), without overflow or loss of what is far beneath the
    greatest. Raises AxisError."""
    u, a, out = self._rows("logcumsumexp", dim)
    if not u.shape or not u.shape[a]: return self._wrap(cast(u, out))
    x = self._wrap(u).named()
    order = (*[d for d in range(x.ndim) if d != a], a)
    rows = x.permute(order)
    found = _log_sums(rows.reshape(-1, u.shape[a]) if x.numel() else rows.reshape(0, u.shape[a]))
    return found.reshape(rows.shape).permute(tuple([order.index(d) for d in range(x.ndim)])).cast(out)._called(self._names)

  # ---- differences and integrals
  def diff(self, n: int = 1, dim: int | str = -1, prepend: Operand | None = None, append: Operand | None = None) -> Self:
    """Each element less the one before it along a dim, ``n`` times; of bools whether they differ. ``prepend`` and ``append`` are
    joined first. Raises AxisError; ArgumentError for n beneath 0; ShapeError for a tensor without dimensions."""
    if n < 0: raise ArgumentError(f"diff: n = {n}; it must not be negative")
    if not self.ndim: raise ShapeError("diff: a tensor of shape (); it takes at least one dimension")
    a = self._dim("diff", dim)
    parts = [t for t in (prepend, self, append) if t is not None]
    x: Any = self if len(parts) == 1 else type(self).cat(*parts, dim=a)
    for _ in range(min(n, x.shape[a])):
      after, before = x._along(a, slice(1, None)), x._along(a, slice(-1))
      x = after.ne(before) if x.dtype.kind == "b" else after - before
    return x._own() if n == 0 else x

  def _trapezoids(self, name: str, add_up: str, x: Operand | None = None, *, dx: float = 1, dim: int | str = -1) -> Self:
    a, n = self._dim(name, dim), self.ndim
    if not n: raise ShapeError(f"{name}: a tensor of shape (); it takes at least one dimension")
    y = self._in_floats()
    both = y._along(a, slice(1, None)) + y._along(a, slice(-1))
    if x is None: return getattr(both * (0.5 * dx), add_up)(a)
    if x.ndim == 1: x = x.reshape((-1,) + (1,) * (n - a - 1)) if x.numel() else x
    if x.ndim > n or x.ndim < n - a or x.shape[a - n] != self.shape[a]:
      raise ShapeError(f"{name}: points of shape {x.shape} for a tensor of shape {self.shape}; as many as dimension {a} has")
    return getattr(both * x.diff(1, a - n) * 0.5, add_up)(a)

  trapezoid = member(_trapezoids, "sum", """
    The integral along a dim by trapezoids, whose bases are ``dx`` wide or given by the points ``x`` (one for each element of the
    dim, or of this shape). Ints give float32. Raises AxisError, ShapeError.""")
  cumulative_trapezoid = member(
    _trapezoids, "cumsum", "Running integrals along a dim, one less than it has elements; see ``trapezoid``.")


def _log_sums(x: Any) -> Any:
  """Running log(sum(exp)) of rows: of parts of rows, each element with all before it, and of what the parts come to."""
  rows, n = x.shape
  if n <= 1: return x
  if n > _CHUNK:
    parts = -(-n // _CHUNK)
    chunks = x.pad(((0, 0), (0, parts * _CHUNK - n)), value=-math.inf).reshape(rows * parts, _CHUNK)
    inner = _log_sums(chunks).reshape(rows, parts, _CHUNK)
    before = _log_sums(inner[:, :-1, -1]).pad(((0, 0), (1, 0)), value=-math.inf)
    return before.unsqueeze(2).logaddexp(inner).reshape(rows, parts * _CHUNK)[:, :n]
  at = x._from_node(iota(n))
  all_before = (at.reshape(1, 1, n) <= at.reshape(1, n, 1)).where(x.unsqueeze(1), -math.inf)
  top = all_before.detach().max(axis=2, keepdim=True)
  top = (top.abs() < math.inf).where(top, 0.0)
  total = (all_before - top).exp().sum(2)
  none = total.eq(0)
  return none.where(-math.inf, none.where(1.0, total).log() + top.squeeze(2))
