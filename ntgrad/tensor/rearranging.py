"""Elements in another order or shape: views beside those of ``movement``, joins, and what is made of indices."""
from __future__ import annotations

import itertools
import math
from typing import Any, Callable, Self, Sequence

import numpy as np

from ntgrad import graph
from ntgrad.checks import Ints, Operand, checked
from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.codegen.errors import ArgumentError, AxisError, DTypeError, IndexOutOfRangeError, ShapeError, shown
from ntgrad.codegen.uop import BinaryOps
from ntgrad.core import Base, axis_of, shape_of, whole_number
from ntgrad.tensor.indexing import host_values
from ntgrad.tensor.movement import several
from ntgrad.tensor.sorting import Sorting

_MOST_PIECES = 4096   # of a dimension that has fewer elements

Dims = int | str | Sequence[int | str]


@checked
class Rearranging(Sorting):
  """Elements in another order or shape."""
  __slots__ = ()

  # ---- views
  def narrow(self, dim: int | str, start: int, length: int) -> Self:
    """A view of ``length`` elements of a dim from ``start`` on (negative: from the end). Raises AxisError, ArgumentError."""
    d, s = axis_of("narrow", dim, self.ndim, self._names), self.shape
    if not s: raise AxisError("narrow: a tensor of shape () has no dimension to narrow")
    begin = start + s[d] if start < 0 else start
    if not 0 <= begin <= s[d] or not 0 <= length <= s[d] - begin:
      raise ArgumentError(f"narrow: start {start}, length {length} on dimension {d} of shape {s}; it has {s[d]} elements")
    return self._shrink([(begin, begin + length) if i == d else (0, n) for i, n in enumerate(s)])

  def select(self, dim: int | str, index: int) -> Self:
    """A view of one place of a dim, without it: (a, b, c).select(1, i) -> (a, c). Raises AxisError, IndexOutOfRangeError."""
    d, s = axis_of("select", dim, self.ndim, self._names), self.shape
    if not s: raise AxisError("select: a tensor of shape () has no dimension to choose from")
    if not -s[d] <= index < s[d]:
      raise IndexOutOfRangeError(f"select: index {index} on axis {d} of shape {s}; indices go from {-s[d]} to {s[d] - 1}")
    return self[(slice(None),) * d + (index,)]

  def movedim(self, source: Dims, destination: Dims) -> Self:
    """A view with dims moved to other places, the others in their order: (a, b, c).movedim(0, -1) -> (b, c, a).

    Raises AxisError for a dim named twice, ArgumentError for another number of places than dims.
    """
    src, dst = [tuple(v) if isinstance(v, (tuple, list)) else (v,) for v in (source, destination)]
    n = self.ndim
    if len(src) != len(dst): raise ArgumentError(f"movedim: dims {src} to {dst}; give as many of both")
    if not n: return self
    a, b = [axis_of("movedim", d, n, self._names) for d in src], [axis_of("movedim", d, n, self._names) for d in dst]
    if len(set(a)) != len(a) or len(set(b)) != len(b):
      raise AxisError(f"movedim: dims {src} to {dst} of a tensor with {n} dimensions; name none twice")
    order, rest = [-1] * n, iter([d for d in range(n) if d not in a])
    for i, j in zip(a, b): order[j] = i
    return self._permute(tuple([next(rest) if o < 0 else o for o in order]))
  def moveaxis(self, source: Dims, destination: Dims) -> Self:
    """``movedim``."""
    return self.movedim(source, destination)

  def swapaxes(self, axis0: int | str, axis1: int | str) -> Self:
    """``transpose``: a view with two dims swapped. Raises AxisError."""
    return self.transpose(axis0, axis1) if self.ndim else self
  def swapdims(self, dim0: int | str, dim1: int | str) -> Self:
    """``transpose``: a view with two dims swapped. Raises AxisError."""
    return self.transpose(dim0, dim1) if self.ndim else self

  def ravel(self) -> Self:
    """A view of one dim: ``flatten()``."""
    return self.flatten()

  def rot90(self, k: int = 1, dims: Sequence[int | str] = (0, 1)) -> Self:
    """A view turned k times by a right angle in the plane of two dims, from the first towards the second. Raises AxisError."""
    if len(dims) != 2: raise AxisError(f"rot90: dims {shown(dims)}; it turns in the plane of two")
    a, b = [axis_of("rot90", d, self.ndim, self._names) for d in dims]
    if a == b or self.ndim < 2: raise AxisError(f"rot90: dims {shown(dims)} of shape {self.shape}; it takes two different ones")
    if k % 4 == 0: return self
    if k % 4 == 2: return self.flip(a, b)
    return self.flip(b).transpose(a, b) if k % 4 == 1 else self.transpose(a, b).flip(b)

  def fliplr(self) -> Self:
    """A view with the second dim reversed. Raises ShapeError for fewer than two."""
    if self.ndim < 2: raise ShapeError(f"fliplr: shape {self.shape}; it takes at least 2 dimensions")
    return self.flip(1)
  def flipud(self) -> Self:
    """A view with the first dim reversed. Raises ShapeError for shape ()."""
    if not self.ndim: raise ShapeError("flipud: shape (); it takes at least 1 dimension")
    return self.flip(0)

  def atleast_1d(self) -> Self:
    """A view of at least one dim: () -> (1,)."""
    return self if self.ndim else self.reshape(1)
  def atleast_2d(self) -> Self:
    """A view of at least two dims: (n,) -> (1, n), () -> (1, 1)."""
    return self if self.ndim >= 2 else self.atleast_1d().unsqueeze(0)
  def atleast_3d(self) -> Self:
    """A view of at least three dims: (m, n) -> (m, n, 1), (n,) -> (1, n, 1), () -> (1, 1, 1)."""
    return self if self.ndim >= 3 else self.atleast_2d().unsqueeze(-1)

  def tensor_split(self, indices_or_sections: Ints, dim: int | str = 0) -> tuple[Self, ...]:
    """Views: so many pieces of a dim, the first ones greater by one where it does not divide; or the pieces that end at the given
    indices (as slices have them), and the rest. Raises AxisError, ArgumentError."""
    return self._split_at("tensor_split", indices_or_sections, axis_of("tensor_split", dim, self.ndim, self._names))
  def _split_at(self, name: str, where: Any, d: int, even: bool = False) -> tuple[Self, ...]:
    if not self.ndim: raise AxisError(f"{name}: a tensor of shape () has no dimension to split")
    n = self.shape[d]
    if isinstance(where, int):
      whole_number(name, "sections", where, 1)
      if where > max(n, _MOST_PIECES):
        raise ArgumentError(f"{name}: {where} sections of dimension {d} of shape {self.shape}; "
                            f"where most are empty it makes up to {_MOST_PIECES}")
      if even and n % where:
        raise ArgumentError(f"{name}: {where} sections of dimension {d} of shape {self.shape}; they must be equal")
      cuts = [i * (n // where) + min(i, n % where) for i in range(1, where)]
    else: cuts = list(where)
    ends: list[Any] = [*cuts, None]
    return tuple([self[(slice(None),) * d + (slice(a, b),)] for a, b in zip([0, *cuts], ends)])
  def hsplit(self, indices_or_sections: Ints) -> tuple[Self, ...]:
    """Views of equal pieces, or up to the given indices, of the second dim (of one dim: the first). Raises AxisError,
    ArgumentError."""
    return self._split_at("hsplit", indices_or_sections, min(self.ndim - 1, 1), True)
  def vsplit(self, indices_or_sections: Ints) -> tuple[Self, ...]:
    """The same of the first dim, of at least 2. Raises AxisError, ArgumentError."""
    if self.ndim < 2: raise AxisError(f"vsplit: shape {self.shape}; it takes at least 2 dimensions")
    return self._split_at("vsplit", indices_or_sections, 0, True)
  def dsplit(self, indices_or_sections: Ints) -> tuple[Self, ...]:
    """The same of the third dim. Raises AxisError, ArgumentError."""
    if self.ndim < 3: raise AxisError(f"dsplit: shape {self.shape}; it takes at least 3 dimensions")
    return self._split_at("dsplit", indices_or_sections, 2, True)

  # ---- repeated and joined
  def tile(self, *reps: Any) -> Self:
    """``repeat``, with counts of 1 in front where fewer than dims are given. Raises ArgumentError."""
    r = shape_of("tile", reps)
    return self.repeat((1,) * (self.ndim - len(r)) + r)

  def repeat_interleave(self, repeats: Any, dim: int | str | None = None, output_size: int | None = None) -> Self:
    """Each element so many times in a row, along one dim or (None) of the flattened tensor; ``repeats`` is a number, or ints of
    shape (n,), one for each element of the dim.

    With a tensor of them the size of the result depends on values: they are computed at once, and raise CaptureError while a jit
    records, unless ``output_size`` says what they add up to (if it is not so, the last elements are missing or come more often).
    Raises AxisError, ShapeError, DTypeError, ArgumentError.
    """
    if not isinstance(repeats, (Base, np.ndarray, list, tuple)) or isinstance(repeats, np.ndarray) and not repeats.ndim:
      return super().repeat_interleave(repeats, dim)  # type: ignore[arg-type]  # checked there
    make: Any = type(self)
    x = self.flatten() if dim is None else self
    d = 0 if dim is None else axis_of("repeat_interleave", dim, x.ndim, x._names)
    x = x.atleast_1d()
    r: Any = repeats if isinstance(repeats, Base) else make(repeats, device=self.lazydata.device)
    n = x.shape[d]
    if r.dtype.kind not in "iu" and r.numel(): raise DTypeError(f"repeat_interleave: repeats of {r.dtype.name}; it takes ints")
    if r.ndim > 1 or r.numel() not in (1, n):
      raise ShapeError(f"repeat_interleave: repeats of shape {r.shape} for {n} elements, dimension {d} of shape {x.shape}; "
                       "give a number, or one for each")
    r = r.reshape(r.numel()).cast(dtypes.int32 if not r.numel() else r.dtype)
    if r.numel() != n: r = r.expand(n)
    if output_size is not None:
      whole_number("repeat_interleave", "output_size", output_size, 0)
      if not n: return x._rows_at(d, make(np.zeros(0, np.int32), device=self.lazydata.device))
      ends, at = r.cumsum(0), make.arange(output_size)
      place: Any = type(self).searchsorted(ends, at.to(ends.device) if ends.lazydata.device else at, right=True)  # type: ignore[attr-defined]
      return x._rows_at(d, place.minimum(n - 1))
    counts = host_values("repeat_interleave", r, "give output_size=, their sum")
    if counts.size and counts.min() < 0: raise ArgumentError(f"repeat_interleave: repeats {counts.min()}; they must be 0 or more")
    return x._rows_at(d, np.repeat(np.arange(n, dtype=np.int32), counts))
  def _rows_at(self, d: int, index: Any) -> Self: return self[(slice(None),) * d + (index,)]

  def hstack(*tensors: Any) -> Any:
    """Joined along the second dim (tensors of one dim: along that), given as for ``cat``. Raises ShapeError, ArgumentError."""
    ts = [t.atleast_1d() for t in several("hstack", tensors)]
    return ts[0].cat(*ts[1:], dim=0 if ts[0].ndim == 1 else 1)
  def vstack(*tensors: Any) -> Any:
    """Joined along the first dim, as rows where they have one dim, given as for ``cat``. Raises ShapeError, ArgumentError."""
    ts = [t.atleast_2d() for t in several("vstack", tensors)]
    return ts[0].cat(*ts[1:], dim=0)
  def dstack(*tensors: Any) -> Any:
    """Joined along the third dim, given as for ``cat``. Raises ShapeError, ArgumentError."""
    ts = [t.atleast_3d() for t in several("dstack", tensors)]
    return ts[0].cat(*ts[1:], dim=2)

  def block_diag(*tensors: Any) -> Any:
    """Matrices (of fewer dims: rows) one after the other on the diagonal, zeros elsewhere: (a, b), (c, d) -> (a + c, b + d).

    Raises ShapeError for more than 2 dims, ArgumentError.
    """
    ts = several("block_diag", tensors)
    if any([t.ndim > 2 for t in ts]):
      raise ShapeError(f"block_diag: shapes {', '.join([str(t.shape) for t in ts])}; it takes at most 2 dimensions")
    ts = tuple([t.named().atleast_2d() for t in ts])
    columns, rows, at = sum([t.shape[1] for t in ts]), [], 0
    for t in ts:
      rows.append(t.pad(((0, 0), (at, columns - at - t.shape[1]))))
      at += t.shape[1]
    return rows[0].cat(*rows[1:], dim=0)

  def cartesian_prod(*tensors: Any) -> Any:
    """Every combination of an element of each 1-d tensor, the last changing fastest: (a,), (b,) -> (a * b, 2); of one tensor
    that tensor. Raises ShapeError, ArgumentError."""
    ts = several("cartesian_prod", tensors)
    if any([t.ndim != 1 for t in ts]):
      raise ShapeError(f"cartesian_prod: shapes {', '.join([str(t.shape) for t in ts])}; it takes 1-d tensors")
    if len(ts) == 1: return ts[0]._own()
    grid = [t.flatten() for t in ts[0].named().meshgrid(*[t.named() for t in ts[1:]])]
    return grid[0].stack(*grid[1:], dim=1)

  def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
    """(n,) -> (k, r): every choice of r elements in their order, each at most once or ``with_replacement``.

    Raises ShapeError, ArgumentError.
    """
    if self.ndim != 1: raise ShapeError(f"combinations: shape {self.shape}; it takes one dimension")
    n, r = self.shape[0], whole_number("combinations", "r", r, 0)
    k = math.comb(n + r - 1 if with_replacement and n else n, r)
    if k * max(r, 1) > dtypes.max(dtypes.int32):
      raise ArgumentError(f"combinations: {k} choices of {r} of {n} elements; at most 2**31 - 1 elements are chosen")
    chosen = itertools.combinations_with_replacement(range(n), r) if with_replacement else itertools.combinations(range(n), r)
    flat = np.fromiter(itertools.chain.from_iterable(chosen), np.int32, k * r)
    return self.named()[flat.reshape(k, r)]

  # ---- made
  def vander(self, N: int | None = None, increasing: bool = False) -> Self:
    """(n,) -> (n, N): the powers of each element, the highest first or ``increasing`` from 0 on. Raises ShapeError,
    ArgumentError."""
    if self.ndim != 1: raise ShapeError(f"vander: shape {self.shape}; it takes one dimension")
    n = self.shape[0]
    columns = type(self)._sizes("vander", (n, n if N is None else N))[1]
    x = self.named() if self.dtype.kind != "b" else self.named().cast(dtypes.default_int)
    u = x.lazydata
    acc = graph.acc_dtype(u.dtype) if u.dtype.kind == "f" else u.dtype
    shape = (n, columns)
    times = graph.expand(graph.reshape(graph.cast(u, acc), (n, 1)), shape)
    first = graph.scalar(BinaryOps.CMPEQ, self._index(1, shape), 0 if increasing else columns - 1)
    powers = graph.where(first, graph.const(1, acc, shape), times)
    if n and columns: powers = graph.scan(BinaryOps.MUL, powers, 1, not increasing)
    return x._wrap(graph.cast(powers, u.dtype))

  def diag_embed(self, offset: int = 0, dim1: int | str = -2, dim2: int | str = -1) -> Self:
    """(.., n) -> (.., m, m) with the last dim on a diagonal (``offset`` above the main one, m = n + |offset|), zeros elsewhere;
    the two dims of m stand at ``dim1`` and ``dim2``. Raises AxisError, ShapeError, ArgumentError."""
    if not self.ndim: raise ShapeError("diag_embed: shape (); it takes at least 1 dimension")
    a, b = [axis_of("diag_embed", d, self.ndim + 1) for d in (dim1, dim2)]
    if a == b: raise AxisError(f"diag_embed: dim1 {dim1} and dim2 {dim2} are the same dimension")
    m = type(self)._sizes("diag_embed", (self.shape[-1] + abs(offset),) * 2)[0]
    rows = self.named().pad(((0, 0),) * (self.ndim - 1) + ((max(-offset, 0), max(offset, 0)),)).unsqueeze(-1)
    at = graph.scalar(BinaryOps.ADD, self._index(0, (m, m)), offset)
    there: Any = self._from_node(graph.binary(BinaryOps.CMPEQ, self._index(1, (m, m)), at))
    return there.where(rows, False if rows.dtype.kind == "b" else 0).movedim((-2, -1), (a, b))._own()

  def diagflat(self, offset: int = 0) -> Self:
    """The elements, flattened, on a diagonal of a square matrix; zeros elsewhere."""
    return self.named().flatten().diag_embed(offset) if self.ndim else self.named().reshape(1).diag_embed(offset)

  def select_scatter(self, src: Operand, dim: int | str, index: int) -> Self:
    """A copy with ``src`` as what ``select(dim, index)`` gives. Raises AxisError, ShapeError, IndexOutOfRangeError."""
    return self._with("select_scatter", src, lambda t: t.select(dim, index))

  def slice_scatter(self, src: Operand, dim: int | str = 0, start: int | None = None, end: int | None = None,
                    step: int = 1) -> Self:
    """A copy with ``src`` as the elements ``start:end:step`` of a dim. Raises AxisError, ShapeError, ArgumentError."""
    d = axis_of("slice_scatter", dim, self.ndim, self._names)
    whole_number("slice_scatter", "step", step, 1)
    return self._with("slice_scatter", src, lambda t: t[(slice(None),) * d + (slice(start, end, step),)])

  def diagonal_scatter(self, src: Operand, offset: int = 0, dim1: int | str = 0, dim2: int | str = 1) -> Self:
    """A copy with ``src`` as what ``diagonal(offset, dim1, dim2)`` gives. Raises AxisError, ShapeError."""
    return self._with("diagonal_scatter", src, lambda t: t.diagonal(offset, dim1, dim2))

  def _with(self, name: str, src: Any, part: Callable[[Any], Any]) -> Self:
    """A copy of which a part, a view, is ``src``."""
    where = part(self.named())
    if src.shape != where.shape:
      raise ShapeError(f"{name}: a source of shape {src.shape} for a part of shape {where.shape}; they must be equal")
    places = part(self._from_node(graph.reshape(graph.iota(self.numel()), self.shape)))
    flat: Any = self.named().reshape(-1)
    out: Self = flat.index_put((places.reshape(-1),), src.named().cast(self.dtype).reshape(-1)).reshape(self.shape)._own()
    out._names = self._names
    return out

  def fill_diagonal_(self, fill_value: float, wrap: bool = False) -> Self:
    """A number on the main diagonal of a matrix, or of a tensor whose dims have one size, written in place; ``wrap``: of a high
    matrix again and again, a row left out between. Raises ShapeError."""
    s = self.shape
    if len(s) < 2 or (len(s) > 2 and len(set(s)) > 1):
      raise ShapeError(f"fill_diagonal_: shape {s}; it takes a matrix, or dimensions of one size")
    step = sum([math.prod(s[d + 1:]) for d in range(len(s))])
    most = self.numel() if wrap and len(s) == 2 else min(s[0], s[1]) * step
    at: Any = self._from_node(graph.reshape(graph.iota(self.numel()), s))
    self._in_place("fill_diagonal_", lambda: ((at % step == 0) & (at < most)).where(fill_value, self).cast(self.dtype))
    return self

  def unravel_index(self, shape: Ints) -> tuple[Self, ...]:
    """Indices into a flattened tensor as one tensor of indices for each of its dims; negative ones count from the end.

    Raises ShapeError, DTypeError, ArgumentError.
    """
    if self.dtype.kind not in "iu": raise DTypeError(f"unravel_index: indices of {self.dtype.name}; they must be ints")
    sizes = shape_of("unravel_index", (shape,) if isinstance(shape, int) else shape)
    step, out, at = math.prod(sizes), [], self._own()
    if not step: raise ShapeError(f"unravel_index: a tensor of shape {sizes} has no elements")
    for n in sizes:
      step //= n
      out.append((at // step) % n)
    return tuple(out)

  @classmethod
  def tril_indices(cls, row: int, col: int | None = None, offset: int = 0, *, dtype: DType | str | None = None,
                   device: str | None = None) -> Self:
    """(2, k): rows and columns of the elements at and below a diagonal of a (row, col) matrix, row by row; int32 unless told
    otherwise. Raises ArgumentError."""
    return cls._triangle_indices("tril_indices", np.tril_indices, row, col, offset, dtype, device)
  @classmethod
  def triu_indices(cls, row: int, col: int | None = None, offset: int = 0, *, dtype: DType | str | None = None,
                   device: str | None = None) -> Self:
    """(2, k): rows and columns of the elements at and above a diagonal, as ``tril_indices``. Raises ArgumentError."""
    return cls._triangle_indices("triu_indices", np.triu_indices, row, col, offset, dtype, device)
  @classmethod
  def _triangle_indices(cls, name: str, make: Any, row: int, col: int | None, offset: int, dtype: Any, device: Any) -> Self:
    n, m = cls._sizes(name, (row, row if col is None else col))
    if n * m > dtypes.max(dtypes.int32): raise ArgumentError(f"{name}: a matrix of shape {(n, m)}; at most 2**31 - 1 elements")
    found = np.stack(make(n, max(-n - 1, min(offset, m + 1)), m)).astype(np.int32)
    return cls(found, device=device, dtype=dtypes.int32 if dtype is None else dtypes.of(dtype))  # type: ignore[call-arg]


__all__ = ["Rearranging"]
