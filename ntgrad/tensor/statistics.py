"""Reductions and scans beside sums: extremes, what ignores NaN, running products and extremes, covariance, integrals."""
from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

from ntgrad.codegen.ir.dtype import DType, as_float, dtypes
from ntgrad.codegen.ir.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.codegen.ir.uop import BinaryOps
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import Operand, checked, of_kind, paired
from ntgrad.graph.several import Several

from .functional import Functional
from .indexing import Indexing
from .numeric import Numeric
from .reduction import Axis, reaches, scanned
from .sorting import Picked

_CHUNK = 32   # logcumsumexp: elements of a row that are looked at together


class _MinMax(NamedTuple):
  min: Any
  max: Any


class MinMax(Several, _MinMax):
  """What ``aminmax`` gives."""
  __slots__ = ()


@checked
class Statistics(Functional, Indexing, Numeric):
  """Reductions and scans beside sums: extremes, what ignores NaN, running products and extremes, covariance, integrals."""
  __slots__ = ()

  # ---- reductions
  def amax(self, dim: Axis = None, keepdim: bool = False) -> Self:
    """The greatest along dims (None: all), NaN if one is NaN. Raises AxisError; ArgumentError for no elements."""
    return self._extreme("amax", BinaryOps.MAX, dim, keepdim)
  def amin(self, dim: Axis = None, keepdim: bool = False) -> Self:
    """The least along dims (None: all), NaN if one is NaN. Raises AxisError; ArgumentError for no elements."""
    return self._extreme("amin", BinaryOps.MIN, dim, keepdim)
  def aminmax(self, *, dim: Axis = None, keepdim: bool = False) -> MinMax:
    """``(min, max)`` along dims (None: all). Raises AxisError; ArgumentError for no elements."""
    return MinMax(self._extreme("aminmax", BinaryOps.MIN, dim, keepdim), self._extreme("aminmax", BinaryOps.MAX, dim, keepdim))

  def nansum(self, dim: Axis = None, keepdim: bool = False, *, dtype: DType | str | None = None) -> Self:
    """The sum along dims (None: all) of what is not NaN; see ``sum``. Raises AxisError."""
    return self._numbers().sum(dim, keepdim, dtype)
  def nanmean(self, dim: Axis = None, keepdim: bool = False) -> Self:
    """The mean along dims (None: all) of what is not NaN; NaN where all are. Raises AxisError."""
    if self.dtype.kind != "f": return self.mean(dim, keepdim)
    wide = graph.acc_dtype(self.dtype)
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

  def renorm(self, p: float, dim: int | str, maxnorm: float) -> Self:
    """Each part along a dim whose p-norm is above ``maxnorm`` scaled down to it. Raises AxisError, DTypeError, ArgumentError."""
    d = self._dim("renorm", dim)
    if self.ndim < 2: raise ShapeError(f"renorm: shape {self.shape}; it takes at least two dimensions")
    of_kind("f", "renorm", "a tensor", self, "it takes floats")
    if p <= 0 or maxnorm < 0: raise ArgumentError(f"renorm: p {p}, maxnorm {maxnorm}; p must be above 0, maxnorm not beneath it")
    x: Any = self.cast(graph.acc_dtype(self.dtype))
    size = x.norm(p, tuple([k for k in range(self.ndim) if k != d]), keepdim=True)
    out: Self = ((size > maxnorm).where(maxnorm / (size + 1e-7), 1.0) * x).cast(self.dtype)
    return out
  def dist(self, other: Operand, p: float = 2) -> Self:
    """The p-norm of the difference of both tensors, over all elements; see ``norm``."""
    if not p >= 0: raise ArgumentError(f"dist: p = {p}; it must not be negative")
    if self.dtype.kind == "b": raise DTypeError("dist: of bools; cast them to an int dtype")
    return (self - other).norm(p)

  # ---- scans
  def cumprod(self, dim: int | str = 0, *, dtype: DType | str | None = None) -> Self:
    """Running products along a dim, of ints and bools int64; with ``dtype`` elements are cast first. Raises AxisError."""
    return self._wrap(scanned(BinaryOps.MUL, self.lazydata, self._dim("cumprod", dim), dtype))

  @paired
  def cummax(self, dim: int | str = 0) -> Picked:
    """The greatest so far along a dim and where it is (of equal ones the last), int32; a NaN stays. Raises AxisError."""
    return self._running("cummax", BinaryOps.MAX, dim)
  @paired
  def cummin(self, dim: int | str = 0) -> Picked:
    """The least so far along a dim and where it is (of equal ones the last), int32; a NaN stays. Raises AxisError."""
    return self._running("cummin", BinaryOps.MIN, dim)
  def _running(self, name: str, fn: BinaryOps, dim: int | str) -> Picked:
    a = self._dim(name, dim)
    u = self.lazydata
    s = u.shape
    if not s or not s[a]: return Picked(self._own(), self._detached(graph.const(0, dtypes.int32, s)))
    if u.dtype.kind == "b": u = graph.cast(u, dtypes.int32)
    best = graph.scan(fn, u, a)
    at = graph.cast(graph.index_along(a, s), graph.place_dtype(s[a]))
    where = graph.scan(BinaryOps.MAX, graph.where(reaches(u, best), at, 0), a)
    return Picked(self._wrap(graph.cast(best, self.dtype)), self._detached(where))

  def logcumsumexp(self, dim: int | str) -> Self:
    """log(cumsum(exp(x))) along a dim, without overflow or loss of what is far beneath the greatest. Raises AxisError."""
    u, a, out = self._rows("logcumsumexp", dim)
    if not u.shape or not u.shape[a]: return self._wrap(graph.cast(u, out))
    x = self._wrap(u).named()
    order = (*[d for d in range(x.ndim) if d != a], a)
    rows = x.permute(order)
    found = _log_sums(rows.reshape(-1, u.shape[a]) if x.numel() else rows.reshape(0, u.shape[a]))
    t: Self = found.reshape(rows.shape).permute(tuple([order.index(d) for d in range(x.ndim)])).cast(out)
    return t._called(self._names)

  # ---- covariance
  def cov(self, *, correction: float = 1, fweights: Operand | None = None, aweights: Operand | None = None) -> Self:
    """The covariance matrix of variables (rows; one dimension is one variable) over observations (columns).

    ``fweights`` (n,) says how often each observation counts (ints), ``aweights`` (n,) how much (floats not beneath 0). The sum of
    products is divided by the number of observations less ``correction``. Raises ShapeError, DTypeError.
    """
    if self.ndim > 2: raise ShapeError(f"cov: a tensor of shape {self.shape}; it takes up to 2 dimensions")
    d = graph.acc_dtype(as_float(self.dtype))
    x: Any = self.named().cast(d).reshape(self.shape if self.ndim == 2 else (1, self.numel()))
    w, count, less = self._weights(fweights, aweights, correction, d)
    total: Any = x.shape[1] if w is None else w.sum()
    centred = x - (x.sum(1, keepdim=True) / total if w is None else (x * w).sum(1, keepdim=True) / total)
    out = (centred if w is None else centred * w) @ centred.T
    if w is None: out = out / float(max(count - correction, 0))
    else: out = out / (total - correction * less).maximum(0)
    out = out.reshape(()) if self.ndim < 2 else out
    return out.cast(self.dtype) if self.dtype.kind == "f" else out

  def _weights(self, often: Any, much: Any, correction: float, d: DType) -> tuple[Any, int, Any]:
    """The weight of each observation, their number, and what ``correction`` is multiplied by."""
    n = self.shape[-1] if self.shape else 1
    for what, w in (("fweights", often), ("aweights", much)):
      if w is not None and w.shape != (n,):
        raise ShapeError(f"cov: {what} of shape {w.shape} for {n} observations; it takes one for each, shape {(n,)}")
    if often is not None and often.dtype.kind not in "iu": raise DTypeError(f"cov: fweights of {often.dtype.name}; they are ints")
    if much is None: return None if often is None else often.named().cast(d), n, 1
    a = much.named().cast(d)
    w = a if often is None else a * often.named().cast(d)
    return w, n, (w * a).sum() / w.sum()

  def corrcoef(self) -> Self:
    """The matrix of correlations, from -1 to 1, of variables (rows) over observations (columns); see ``cov``. Raises
    ShapeError."""
    if self.ndim > 2: raise ShapeError(f"corrcoef: a tensor of shape {self.shape}; it takes up to 2 dimensions")
    d = graph.acc_dtype(as_float(self.dtype))
    c = self.cast(d).cov()
    if self.ndim < 2: out = c / c
    else:
      s = c.diagonal().sqrt()
      out = (c / s.unsqueeze(1) / s.unsqueeze(0)).clamp(-1, 1)
    return out._rounded_to(self.dtype)

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

  def trapezoid(self, x: Operand | None = None, *, dx: float = 1, dim: int | str = -1) -> Self:
    """The integral along a dim by trapezoids, whose bases are ``dx`` wide or given by the points ``x`` (one for each element of
    the dim, or of this shape). Ints give float32. Raises AxisError, ShapeError."""
    a = self._dim("trapezoid", dim)
    return self._trapezoids("trapezoid", x, dx, a).sum(a)
  def cumulative_trapezoid(self, x: Operand | None = None, *, dx: float = 1, dim: int | str = -1) -> Self:
    """Running integrals along a dim, one less than it has elements; see ``trapezoid``."""
    a = self._dim("cumulative_trapezoid", dim)
    return self._trapezoids("cumulative_trapezoid", x, dx, a).cumsum(a)
  def _trapezoids(self, name: str, x: Any, dx: float, a: int) -> Self:
    if not self.ndim: raise ShapeError(f"{name}: a tensor of shape (); it takes at least one dimension")
    y = self._in_floats()
    both = y._along(a, slice(1, None)) + y._along(a, slice(-1))
    if x is None: return both * (0.5 * dx)
    if x.ndim == 1: x = x.reshape((-1,) + (1,) * (self.ndim - a - 1)) if x.numel() else x
    if x.ndim > self.ndim or x.ndim < self.ndim - a or x.shape[a - self.ndim] != self.shape[a]:
      raise ShapeError(f"{name}: points of shape {x.shape} for a tensor of shape {self.shape}; as many as dimension {a} has")
    return both * x.diff(1, a - self.ndim) * 0.5


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
  at = x._from_node(graph.iota(n))
  seen = at.reshape(1, 1, n) <= at.reshape(1, n, 1)
  all_before = seen.where(x.unsqueeze(1), -math.inf)
  top = all_before.detach().max(axis=2, keepdim=True)
  top = (top.abs() < math.inf).where(top, 0.0)
  total = (all_before - top).exp().sum(2)
  none = total.eq(0)
  return none.where(-math.inf, none.where(1.0, total).log() + top.squeeze(2))
