"""Elements in another order or shape: views beside those of ``movement``, joins, and what is made of indices."""
from __future__ import annotations

import itertools
import math
from typing import Any, Self, Sequence

import numpy as np

from ntgrad.codegen.ir.dtype import dtypes, sum_dtype
from ntgrad.codegen.ir.errors import ArgumentError, AxisError, ShapeError, shown
from ntgrad.codegen.ir.uop import BinaryOps
from ntgrad.core import axis_of, shape_of, whole_number
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import Ints, checked, of_kind

from .creation import new_shape
from .indexing import Indexing
from .movement import several

_MOST_PIECES = 4096   # of a dimension that has fewer elements


@checked
class Rearranging(Indexing):
  """Elements in another order or shape."""
  __slots__ = ()

  # ---- views
  def narrow(self, dim: int | str, start: int, length: int) -> Self:
    """A view of ``length`` elements of a dim from ``start`` on (negative: from the end). Raises AxisError, ArgumentError."""
    d, s = self._dim("narrow", dim, "narrow"), self.shape
    begin = start + s[d] if start < 0 else start
    if not 0 <= begin <= s[d] or not 0 <= length <= s[d] - begin:
      raise ArgumentError(f"narrow: start {start}, length {length} on dimension {d} of shape {s}; it has {s[d]} elements")
    return self._part(d, begin, begin + length)

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
    a, b = [self._dim("rot90", d) for d in dims]
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
    return self._split_at("tensor_split", indices_or_sections, self._dim("tensor_split", dim))
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
    return tuple([self._along(d, slice(a, b)) for a, b in zip([0, *cuts], ends)])
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
    """(n,) -> (n, N): the powers of each element, the highest first or ``increasing`` from 0 on; of ints int64. Raises
    ShapeError, ArgumentError."""
    if self.ndim != 1: raise ShapeError(f"vander: shape {self.shape}; it takes one dimension")
    n = self.shape[0]
    columns = new_shape("vander", (n, n if N is None else N))[1]
    u, out = self.lazydata, sum_dtype(self.dtype)
    acc = graph.acc_dtype(out)
    shape = (n, columns)
    times = graph.expand(graph.reshape(graph.cast(u, acc), (n, 1)), shape)
    first = graph.eq(graph.index_along(1, shape), 0 if increasing else columns - 1)
    powers = graph.where(first, 1, times)
    if n and columns: powers = graph.scan(BinaryOps.MUL, powers, 1, not increasing)
    return self.named()._wrap(graph.cast(powers, out))

  def diag_embed(self, offset: int = 0, dim1: int | str = -2, dim2: int | str = -1) -> Self:
    """(.., n) -> (.., m, m) with the last dim on a diagonal (``offset`` above the main one, m = n + |offset|), zeros elsewhere;
    the two dims of m stand at ``dim1`` and ``dim2``. Raises AxisError, ShapeError, ArgumentError."""
    if not self.ndim: raise ShapeError("diag_embed: shape (); it takes at least 1 dimension")
    a, b = [axis_of("diag_embed", d, self.ndim + 1) for d in (dim1, dim2)]
    if a == b: raise AxisError(f"diag_embed: dim1 {dim1} and dim2 {dim2} are the same dimension")
    m = new_shape("diag_embed", (self.shape[-1] + abs(offset),) * 2)[0]
    rows = self.named().pad(((0, 0),) * (self.ndim - 1) + ((max(-offset, 0), max(offset, 0)),)).unsqueeze(-1)
    at = graph.add(graph.index_along(0, (m, m)), offset)
    there: Any = self._from_node(graph.eq(graph.index_along(1, (m, m)), at))
    return there.where(rows, False if rows.dtype.kind == "b" else 0).movedim((-2, -1), (a, b))._own()

  def diagflat(self, offset: int = 0) -> Self:
    """The elements, flattened, on a diagonal of a square matrix; zeros elsewhere."""
    return self.named().flatten().diag_embed(offset) if self.ndim else self.named().reshape(1).diag_embed(offset)

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
    of_kind("iu", "unravel_index", "indices", self, "they must be ints")
    sizes = shape_of("unravel_index", (shape,) if isinstance(shape, int) else shape)
    step, out, at = math.prod(sizes), [], self._own()
    if not step: raise ShapeError(f"unravel_index: a tensor of shape {sizes} has no elements")
    for n in sizes:
      step //= n
      out.append((at // step) % n)
    return tuple(out)
