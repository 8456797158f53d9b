"""Products of tensors under the names that people know: mm, bmm, tensordot, einsum, kron, rearrange."""
from __future__ import annotations

import itertools
import math
from typing import Any, Self, Sequence

import numpy as np

from ntgrad.codegen.ir.dtype import as_float, dtypes, promote, sum_dtype
from ntgrad.codegen.ir.errors import ArgumentError, AxisError, ShapeError, shown
from ntgrad.codegen.ir.uop import BinaryOps
from ntgrad.core import axis_of
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import Operand, checked
from ntgrad.graph.names import text

from . import contraction
from .creation import Creation
from .elementwise import broadcast_shape, common_device, common_dtype
from .functional import Functional, names_of_product, unwidened
from .indexing import Indexing
from .movement import several
from .pattern import Pattern
from .reduction import Reduction, fits_int32


def _takes(name: str, tensors: Sequence[Any], dims: Sequence[int], fit: str) -> None:
  """Raises ShapeError unless each tensor has its number of dimensions."""
  if any([t.ndim != n for t, n in zip(tensors, dims)]):
    raise ShapeError(f"{name}: shape{'s' * (len(tensors) > 1)} {' and '.join(map(text, tensors))}; it takes {fit}")


_MOST_STEPS = 1000   # of a polynomial; each is nodes of the graph


def _count(name: str, what: str, value: Any, most: int = 2 ** 63 - 1) -> int:
  if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 0 <= value <= most: return int(value)
  limit = f" and at most {most}" if most < 2 ** 31 else ""
  raise ArgumentError(f"{name}: {what} {shown(value)}; it takes an int of at least 0{limit}")


@checked
class Products(Functional, Indexing, Reduction, Creation):
  """Products of tensors under the names that people know: mm, bmm, tensordot, einsum, kron, rearrange."""
  __slots__ = ()

  # ---- products of matrices
  def mm(self, mat2: Operand) -> Self:
    """The product of two matrices: (m, k), (k, n) -> (m, n); dtypes as for ``dot``. Raises ShapeError."""
    _takes("mm", (self, mat2), (2, 2), "matrices (m, k) and (k, n); use @ for other shapes")
    return self.dot(mat2)

  def bmm(self, mat2: Operand) -> Self:
    """Products of as many matrices: (b, m, k), (b, k, n) -> (b, m, n); dtypes as for ``dot``. Raises ShapeError."""
    _takes("bmm", (self, mat2), (3, 3), "(b, m, k) and (b, k, n); use @ for other shapes")
    if self.shape[0] != mat2.shape[0]:
      raise ShapeError(f"bmm: shapes {text(self)} and {text(mat2)}; the first dimensions must be equal (@ broadcasts)")
    return self.dot(mat2)

  def mv(self, vec: Operand) -> Self:
    """A matrix times a vector: (m, k), (k,) -> (m,); dtypes as for ``dot``. Raises ShapeError."""
    _takes("mv", (self, vec), (2, 1), "a matrix (m, k) and a vector (k,); use @ for other shapes")
    return self.dot(vec)

  def t(self) -> Self:
    """(m, n) -> (n, m), a view; a tensor of one dimension or none as it is. Raises ShapeError for more dimensions."""
    if self.ndim > 2: raise ShapeError(f"t: shape {text(self)}; it takes at most 2 dimensions (mT swaps the last two)")
    return self.T

  def inner(self, other: Operand) -> Self:
    """The sum of products over the last dimension of both: (.., k), (*o, k) -> (.., *o); with a number it is ``*``.

    Raises ShapeError.
    """
    return self * other if self.ndim == 0 or other.ndim == 0 else self._dotted("inner", other, [self.ndim - 1], [other.ndim - 1])

  def vdot(self, other: Operand) -> Self:
    """The inner product of two vectors: (n,), (n,) -> (). Raises ShapeError."""
    _takes("vdot", (self, other), (1, 1), "two vectors of one length")
    return self.dot(other)

  def tensordot(self, other: Operand, dims: Any = 2) -> Self:
    """The sum of products over several dimensions, then the other ones of the first and of the second.

    ``dims`` is a number (that many last ones of the first with as many first ones of the second), or two lists, the dimensions of
    the first and those of the second. Raises ShapeError, AxisError, ArgumentError.
    """
    n, m = self.ndim, other.ndim
    if isinstance(dims, (tuple, list)) and len(dims) == 2:
      both = [list(d) if isinstance(d, (tuple, list)) else [d] for d in dims]
      ours = [axis_of("tensordot", d, n, self._names) for d in both[0]]
      theirs = [axis_of("tensordot", d, m, other._names) for d in both[1]]
      if len(ours) != len(theirs) or len(set(ours)) != len(ours) or len(set(theirs)) != len(theirs):
        raise ArgumentError(f"tensordot: dims {shown(dims)}; give as many of the first as of the second, none twice")
    else:
      k = _count("tensordot", "dims", dims)
      if k > min(n, m): raise ArgumentError(f"tensordot: dims {k} for shapes {text(self)} and {text(other)}; neither has as many")
      ours, theirs = list(range(n - k, n)), list(range(k))
    if (not n and ours) or (not m and theirs):
      raise AxisError(f"tensordot: dims {shown(dims)} for shapes {self.shape} and {other.shape}; () has no dimension")
    return self._dotted("tensordot", other, ours, theirs)

  def _dotted(self, name: str, other: Self, ours: Sequence[int], theirs: Sequence[int]) -> Self:
    """Summed over pairs of dimensions."""
    la, lb = [f"a{d}" for d in range(self.ndim)], [f"b{d}" for d in range(other.ndim)]
    for p, q in zip(ours, theirs):
      lb[q] = la[p]
      if self.shape[p] != other.shape[q]:
        raise ShapeError(f"{name}: shapes {text(self)} and {text(other)}; dimension {p} of the first is {self.shape[p]}, "
                         f"dimension {q} of the second {other.shape[q]}, and they must be equal")
    output = [c for c in la if c not in lb] + [c for c in lb if c not in la]
    sizes = dict(zip((*la, *lb), (*self.shape, *other.shape)))
    return self._summed(name, (self, other), contraction.Sum([la, lb], output, sizes))

  # ---- chains of matrices
  def multi_dot(*tensors: Any) -> Any:
    """The product of two and more matrices in the order with the fewest multiplications: (a, b), (b, c), (c, d) -> (a, d), given
    one after the other or in a list. The first and the last may be vectors, as for ``@``. Raises ShapeError, ArgumentError."""
    return _chain("multi_dot", tensors, True)

  def chain_matmul(*tensors: Any) -> Any:
    """The product of one and more matrices in the order with the fewest multiplications; see ``multi_dot``. Raises ShapeError,
    ArgumentError."""
    return _chain("chain_matmul", tensors, False)

  # ---- other products
  def kron(self, other: Operand) -> Self:
    """Kronecker's product: (a, b), (c, d) -> (a*c, b*d), each element of the first times all of the second; of tensors with
    fewer dimensions the first ones are 1. The names of dimensions go."""
    n = max(self.ndim, other.ndim)
    s, o = (1,) * (n - self.ndim) + self.shape, (1,) * (n - other.ndim) + other.shape
    a = self.named().reshape(tuple([v for k in s for v in (k, 1)]))
    b = other.named().reshape(tuple([v for k in o for v in (1, k)]))
    return (a * b).reshape(tuple([k * m for k, m in zip(s, o)]))._own()

  def cross(self, other: Operand, dim: int | str = -1) -> Self:
    """The vector product along a dimension of 3; the others broadcast. Raises ShapeError, AxisError."""
    shape = broadcast_shape("cross", self.shape, other.shape)
    d = axis_of("cross", dim, len(shape), self._names if len(shape) == self.ndim else other._names)
    if not shape or self.shape[d - len(shape):][:1] != (3,) or other.shape[d - len(shape):][:1] != (3,):
      raise ShapeError(f"cross: shapes {text(self)} and {text(other)} along dimension {d}; it must be 3 in both")
    after, before = [[x._turned(d - len(shape), k) for x in (self, other)] for k in (1, 2)]
    return after[0] * before[1] - before[0] * after[1]

  def _turned(self, d: int, k: int) -> Self:
    """The elements along a dimension (counted from the end) moved up by k, those that fall off behind the others."""
    u, s = self.lazydata, self.shape
    d += len(s)
    u = graph.reshape(graph.expand(graph.reshape(u, (*s[:d], 1, *s[d:])), (*s[:d], 2, *s[d:])), (*s[:d], 2 * s[d], *s[d + 1:]))
    return self._wrap(graph.part(u, d, k, k + s[d]))

  def pdist(self, p: float = 2.0) -> Self:
    """The p-norm of the difference of every two rows: (n, d) -> (n (n - 1) / 2,), of rows 0 and 1, 0 and 2, .., 1 and 2, ..

    Raises ShapeError, ArgumentError.
    """
    if self.ndim != 2: raise ShapeError(f"pdist: shape {text(self)}; it takes (n, d)")
    n, x = self.shape[0], self.named()
    make: Any = type(self)
    i, j = make.triu_indices(n, n, 1, device=self.device).unbind(0)
    return (x[i] - x[j]).norm(p, -1)

  def cdist(self, other: Operand, p: float = 2.0) -> Self:
    """The p-norm of the difference of every two rows: (.., m, k), (.., n, k) -> (.., m, n); dims before the last two broadcast.

    Each difference is computed, so that near rows keep all digits of their distance. p goes from 0 (how many elements differ) to
    inf. Small floats are computed in float32, ints give float32; no slope where a distance is 0. Raises ShapeError,
    ArgumentError.
    """
    if not p >= 0: raise ArgumentError(f"cdist: p = {p!r}; it must be a number of at least 0")
    if self.ndim < 2 or other.ndim < 2 or self.shape[-1] != other.shape[-1]:
      raise ShapeError(f"cdist: shapes {text(self)} and {text(other)}; it takes (.., m, k) and (.., n, k)")
    broadcast_shape("cdist", self.shape[:-2], other.shape[:-2])
    out = as_float(promote(self.dtype, other.dtype))
    acc = graph.acc_dtype(out)
    d = self.named().cast(acc).unsqueeze(-2) - other.named().cast(acc).unsqueeze(-3)
    if 0 < p < 1:   # the slope of |x| ** p at 0 is none, and must not become inf * 0
      none = d == 0
      return (none.where(0.0, none.where(1.0, d).abs().pow(p)).sum(-1)._root(1 / p)).cast(out)
    if d.shape[-1] == 0: return d.sum(-1).cast(out)
    return d.norm(p, -1).cast(out)

  # ---- einsum
  @classmethod
  def einsum(cls, formula: Any, *operands: Any) -> Self:
    """Einstein's sum of products: ``einsum("ij,jk->ik", a, b)``.

    A letter names a dimension, upper and lower case ones are different, spaces count for nothing. A letter twice in one tensor is
    its diagonal. What is not behind ``->`` is summed; without ``->`` the result has ``...`` and the letters that occur once,
    sorted. ``...`` stands for any number of dimensions, which broadcast; a dimension of 1 goes with any size. Tensors may come in
    a list, or each with a list of numbers from 0 to 51: ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.

    Three and more tensors are multiplied two at a time, up to six in the order with the fewest multiplications. Small floats are
    added up in float32, and rounded once, at the end; ints as ``@`` has them, or, of one tensor, as ``sum``. Raises ArgumentError
    for a formula that is none, ShapeError for tensors that do not fit it.
    """
    words, given = contraction.written(formula, operands)
    xs = several("einsum", given)
    return xs[0]._summed("einsum", xs, contraction.read(words, xs))

  def _summed(self, name: str, xs: Sequence[Any], form: contraction.Sum) -> Self:
    """The sum of products that labels say."""
    terms, output, sizes = form
    common_device(name, *[x.lazydata for x in xs])
    every = [*output, *[c for c in sizes if c not in output]]
    places = [[every.index(c) if labels.count(c) == 1 else None for c in labels] for labels in terms]
    called = names_of_product(name, xs, places, len(output))
    unwidened(name, xs)
    out = common_dtype(*[x.lazydata for x in xs])
    summed = len(every) > len(output)
    if out.kind == "e": out = graph.acc_dtype(out)
    acc = graph.acc_dtype(out) if summed or len(xs) > 1 else out
    if summed and len(xs) == 1:
      n, out = math.prod([sizes[c] for c in every[len(output):]]), sum_dtype(out)
      acc = dtypes.int32 if out.kind in "iu" and fits_int32(BinaryOps.ADD, xs[0].lazydata, n) else graph.acc_dtype(out)
    done = [contraction.ready(graph.cast(x.lazydata, acc), labels, sizes) for x, labels in zip(xs, terms)]
    live = set(range(len(done)))
    for i, j in contraction.order([labels for _, labels in done], output, sizes):
      live -= {i, j}
      keep = {*output, *[c for k in live for c in done[k][1]]}
      live.add(len(done))
      done.append(contraction.multiplied(*done[i], *done[j], keep, output))
    u, labels = contraction.summed(*done[-1], output)
    # a label of size n whose dimensions were all 1 and went
    u = graph.broadcast(contraction.placed(u, labels, output), tuple([sizes[c] for c in output]))
    return self._wrap_many(graph.cast(u, out), xs, called)

  # ---- rearrange
  def rearrange(self, formula: str, **sizes: Any) -> Self:
    """Dimensions split, put in another order and joined, as einops has it: ``x.rearrange("b (h w) c -> b c h w", h=4)``. A view.

    Both sides have the same names, each once; parentheses group those that make one dimension, ``1`` and ``()`` are dimensions of
    1, ``...`` stands for any number of them (in parentheses on the right only). Of each group's sizes one may be left open. A
    dimension that stays one keeps its name of ``named``. Raises ArgumentError for a pattern that is none, ShapeError for sizes
    that do not fit.
    """
    axes = {k: _count("rearrange", f"size {k}", n) for k, n in sizes.items()}
    pieces, groups = Pattern.of(formula).moves(self, axes)
    split = self._regrouped(tuple([n for _, n in pieces]), [d for d, _ in pieces])
    moved = split._permute(tuple([k for g in groups for k in g]))
    shape = tuple([math.prod([pieces[k][1] for k in g]) for g in groups])
    ends = list(itertools.accumulate([len(g) for g in groups]))
    return moved._regrouped(shape, [end - 1 if len(g) == 1 else None for g, end in zip(groups, ends)])

  def newton_schulz(self, steps: int, params: Sequence[float] = (3.4445, -4.775, 2.0315), eps: float = 1e-7) -> Self:
    """Matrices (.., m, n) of the same singular vectors whose singular values are near 1: ``steps`` times the odd polynomial
    ``params[0]·x + params[1]·x³ + ..`` of them (https://kellerjordan.github.io/posts/muon/), of the matrix divided by its
    Frobenius norm; ``steps`` are 1000 at most. Raises ShapeError, ArgumentError.
    """
    if self.ndim < 2: raise ShapeError(f"newton_schulz: shape {text(self)}; it takes matrices (.., m, n)")
    n = _count("newton_schulz", "steps", steps, _MOST_STEPS)
    if not len(params): raise ArgumentError("newton_schulz: params has no number; it takes those of x, x³ and so on")
    x: Any = self / (self.square().sum((-2, -1), keepdim=True).sqrt() + eps)
    flipped = self.shape[-2] > self.shape[-1]
    if flipped: x = x.transpose(-2, -1)
    for _ in range(n):
      square, power, total = x @ x.transpose(-2, -1), x, x * params[0]
      for p in params[1:]:
        power = square @ power
        total = total + p * power
      x = total
    return x.transpose(-2, -1) if flipped else x


def _chain(name: str, given: Sequence[Any], vectors: bool) -> Any:
  """The product of matrices, two at a time where that takes the fewest multiplications (chains: Godbole, 1973)."""
  tensors = several(name, given)
  last = len(tensors) - 1
  for k, t in enumerate(tensors):
    if t.ndim == 2 or (vectors and t.ndim == 1 and k in (0, last) and last): continue
    raise ShapeError(f"{name}: shapes {', '.join(map(text, tensors))}; it takes matrices"
                     + (", two and more, of which the first and the last may be vectors" if vectors else ""))
  if vectors and not last: raise ArgumentError(f"{name}: one tensor of shape {text(tensors[0])}; it takes two and more")
  for a, b in zip(tensors, tensors[1:]):
    if a.shape[-1] != b.shape[0]:
      raise ShapeError(f"{name}: shapes {text(a)} and {text(b)}, one behind the other; the last dimension of the first must be "
                       "the first of the second")
  sizes = [int(tensors[0].shape[0]) if tensors[0].ndim == 2 else 1, *[int(t.shape[0]) for t in tensors[1:]],
           int(tensors[-1].shape[-1]) if tensors[-1].ndim == 2 else 1]
  cost: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(last + 1)}   # first, last -> work, where to cut
  for length in range(1, last + 1):
    for i in range(last + 1 - length):
      j = i + length
      cost[i, j] = min([(cost[i, k][0] + cost[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)])
  def make(i: int, j: int) -> Any: return tensors[i] if i == j else make(i, cost[i, j][1]).dot(make(cost[i, j][1] + 1, j))
  out = make(0, last)
  return out if last else out._own()
