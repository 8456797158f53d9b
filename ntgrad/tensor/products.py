"""Products of ``Tensor``: matmul and linear, an expanded product and one sum of which the scheduler finds the tiles; tensordot,
kron, cross; einsum, whose formula is read here and whose tensors are multiplied two at a time in the order that takes least.

A label of a dimension is a letter, or, of the dimensions that ``...`` stands for, ``.1`` for the last one, ``.2`` for the one
before it, and so on."""
from __future__ import annotations

import itertools
import math
import string
from typing import Any, Callable, Collection, Mapping, NamedTuple, Self, Sequence

from ntgrad.codegen.ir import ArgumentError, AxisError, BinaryOps, ShapeError, UOp, shown
from ntgrad.codegen.ir.dtype import DType, acc_dtype, as_float, dtypes, promote, sum_dtype
from ntgrad.core import axis_of, whole_number
from ntgrad.graph import Operand, Places, as_tuple, checked, fit, merged, mixed, nodes as graph, one_width, ordinal, text
from ntgrad.graph.nodes import broadcast, cast, drop, expand, permute, reshape
from ntgrad.graph.recipes import recalled

from .creation import Creation
from .families import member
from .movement import several
from .promotion import broadcast_shape, common_device, common_dtype
from .reduction import Reduction, fits_int32


def factors_of_product(name: str, a: UOp, b: UOp, dtype: DType | None = None) -> tuple[UOp, UOp, DType]:
  """Both factors in the dtype that their product is summed in, and the dtype of the result: ``dtype``, or their common one."""
  if a.device != b.device: common_device(name, a, b)
  out = a.dtype if a.dtype is b.dtype else promote(a.dtype, b.dtype)
  acc = acc_dtype(out if dtype is None else promote(out, dtype))
  return cast(a, acc), cast(b, acc), dtype or (acc if out.kind == "e" else out)


def _unwidened(name: str, tensors: Sequence[Any]) -> None:
  """Raises DTypeError where float64 meets a smaller float that requires a gradient, in a product: data would widen a model."""
  floats = [t for t in tensors if t.dtype.kind == "f" and t.ndim]
  wide = next((t for t in floats if t.dtype is dtypes.float64), None)
  narrow = next((t for t in floats if t.dtype is not dtypes.float64 and t._state > 0), None)
  if wide is not None and narrow is not None: raise mixed(name, wide, narrow)


def _product_places(nx: int, ny: int) -> tuple[list[Places], int]:
  """Where the dimensions of a matrix product's factors go, and how many the result has; the summed one is the last place."""
  n = max(nx, ny, 2) - 2 + (nx > 1) + (ny > 1)
  batch = n - (nx > 1) - (ny > 1)
  x = (*range(batch - (nx - 2), batch), batch, n) if nx > 1 else (n,)
  return [x, (*range(batch - (ny - 2), batch), n, n - 1) if ny > 1 else (n,)], n


def _times(t: Any, factor: float) -> Any: return t if factor == 1 else t * factor


def _takes(name: str, tensors: Sequence[Any], dims: Sequence[int], fit: str) -> None:
  """Raises ShapeError unless each tensor has its number of dimensions."""
  if any([t.ndim != n for t, n in zip(tensors, dims)]):
    raise ShapeError(f"{name}: shape{'s' * (len(tensors) > 1)} {' and '.join(map(text, tensors))}; it takes {fit}")


_MOST_STEPS = 1000   # of a polynomial; each is nodes of the graph


@checked
class Products(Reduction, Creation):
  """Products of tensors: of matrices and vectors, and under the names that people know."""
  __slots__ = ()

  # ---- matmul
  def dot(self, w: Any, dtype: Any = None) -> Self:
    """The matrix product: 1-d with 1-d is the inner product; dims before the last two broadcast. Raises ShapeError. (.., m, k) @
    (.., k, n) -> (.., m, n), in the dtype that both have together, or ``dtype``. float16, bfloat16 and fp8 are added up in
    float32, small ints and bools in int32; int sums that the dtype does not hold wrap. Raises DTypeError for float64 with a
    smaller float that requires a gradient."""
    if not isinstance(w, Products): w = self._from_host(w)
    x, y = self.lazydata, w.lazydata
    sx, sy = x.shape, y.shape
    nx, ny = len(sx), len(sy)
    if not nx or not ny: raise ShapeError(f"matmul: shapes {sx} and {sy}; both need at least one dimension (use * for numbers)")
    k = sx[-1]
    if sy[-2 if ny > 1 else 0] != k:
      fit("matmul", (self, w), *_product_places(nx, ny), "factor")
      raise ShapeError(f"matmul: shapes {text(self)} and {text(w)}; the last dimension of the first ({k}) must equal "
                       f"the {'second to last' if ny > 1 else 'only'} dimension of the second ({sy[-2 if ny > 1 else 0]})")
    if x.dtype is not y.dtype: _unwidened("matmul", (self, w))
    a, b, out = factors_of_product("matmul", x, y, None if dtype is None else dtypes.of(dtype))
    called = None if self._names is w._names is None else merged("matmul", (self, w), *_product_places(nx, ny), "factor")
    if nx == 1 and ny == 1:
      total = drop(graph.total(a * b, (0,)), (0,))
      return self._wrap_many(cast(total, out), (w,), called)
    m, n = sx[-2] if nx > 1 else 1, sy[-1] if ny > 1 else 1
    try: batch = broadcast_shape("matmul", sx[:-2], sy[:-2]) if nx > 2 or ny > 2 else ()
    except ShapeError:
      fit("matmul", (self, w), *_product_places(nx, ny), "factor")
      raise
    full = *batch, m, n, k
    if nx > 1: a = reshape(a, sx[:-1] + (1, k))
    if ny > 1: b = permute(b, (*range(ny - 2), ny - 1, ny - 2))
    if ny > 2: b = reshape(b, sy[:-2] + (1, n, k))
    total = graph.total(broadcast(a, full) * broadcast(b, full), (len(full) - 1,))
    total = reshape(total, (*batch, *((m,) if nx > 1 else ()), *((n,) if ny > 1 else ())))
    return self._wrap_many(cast(total, out), (w,), called)

  def matmul(self, x: Any, reverse: bool = False, dtype: Any = None) -> Self:
    """``self @ x``; see ``dot``."""
    return self._from_host(x).dot(self, dtype) if reverse else self.dot(x, dtype)
  def __matmul__(self, x: Any) -> Self: return self.dot(x)
  def __rmatmul__(self, x: Any) -> Self: return self.matmul(x, True)
  def __imatmul__(self, x: Any) -> Self: return self._in_place("@=", lambda: self @ x)

  def linear(self, weight: Operand, bias: Operand | None = None, dtype: Any = None) -> Self:
    """``self @ weight + bias`` with a weight (in, out), or ``self * weight`` for a 1-d one; with ``dtype`` all are cast first.
    Raises ShapeError, DTypeError for float64 with smaller floats."""
    if dtype is not None: return self.cast(dtype).linear(weight.cast(dtype), None if bias is None else bias.cast(dtype))
    one_width("linear", self, weight, bias)
    x = self * weight if weight.ndim == 1 else self.dot(weight)
    return x if bias is None else x + bias

  @recalled
  def _projected(self, weight: Any, bias: Any) -> Any:
    """``self @ weight.T + bias``."""
    return self.linear(weight.transpose(0, 1), bias)

  def sequential(self, layers: Sequence[Callable[..., Any]]) -> Any:
    """The layers applied one after the other."""
    x: Any = self
    for layer in layers: x = layer(x)
    return x

  def outer(self, x: Operand) -> Self:
    """(m,), (n,) -> (m, n). Raises ShapeError."""
    if self.ndim != 1 or x.ndim != 1: raise ShapeError(f"outer: shapes {self.shape} and {x.shape}; it takes two 1-d tensors")
    return self.unsqueeze(1) * x.unsqueeze(0)
  def ger(self, vec2: Operand) -> Self:
    """``outer``."""
    return self.outer(vec2)

  # ---- a product and a sum
  def _plus_product(self, name: str, ndim: int, batch1: Operand, batch2: Operand, *, beta: float = 1, alpha: float = 1) -> Self:
    if batch1.ndim != ndim or batch2.ndim != (1 if name == "addmv" else ndim):
      raise ShapeError(f"{name}: a product of shapes {batch1.shape} and {batch2.shape}; each must have {ndim} dimensions")
    return self._plus(name, batch1 @ batch2, beta, alpha)
  def _plus(self, name: str, product: Any, beta: float, alpha: float) -> Self:
    if broadcast_shape(name, self.shape, product.shape) != product.shape:
      raise ShapeError(f"{name}: a tensor of shape {self.shape} beside a product of shape {product.shape}; it must broadcast to "
                       "that")
    out: Self = _times(product, alpha)
    return out.cast(common_dtype(self.lazydata, out.lazydata)) if beta == 0 else _times(self, beta) + out

  def addmm(self, mat1: Operand, mat2: Operand, *, beta: float = 1, alpha: float = 1) -> Self:
    """``beta * self + alpha * (mat1 @ mat2)`` of matrices (n, k) and (k, m); with a beta of 0 this tensor does not count. Raises
    ShapeError for tensors of other shapes."""
    return self._plus_product("addmm", 2, mat1, mat2, beta=beta, alpha=alpha)
  def addmv(self, mat: Operand, vec: Operand, *, beta: float = 1, alpha: float = 1) -> Self:
    """``beta * self + alpha * (mat @ vec)`` of a matrix (n, k) and a vector (k,); see ``addmm``."""
    if vec.ndim != 1: raise ShapeError(f"addmv: a vector of shape {vec.shape}; it must have 1 dimension")
    return self._plus_product("addmv", 2, mat, vec, beta=beta, alpha=alpha)
  baddbmm = member(
    _plus_product, 3, "``beta * self + alpha * (batch1 @ batch2)`` of matrices (b, n, k) and (b, k, m); see ``addmm``.")
  def addbmm(self, batch1: Operand, batch2: Operand, *, beta: float = 1, alpha: float = 1) -> Self:
    """``beta * self + alpha * (batch1 @ batch2).sum(0)`` of matrices (b, n, k) and (b, k, m); see ``addmm``."""
    if batch1.ndim != 3 or batch2.ndim != 3 or batch1.shape[0] != batch2.shape[0]:
      raise ShapeError(f"addbmm: shapes {batch1.shape} and {batch2.shape}; it takes (b, n, k) and (b, k, m)")
    rows = batch1.named().transpose(0, 1).flatten(1)   # the sum over b is one over (b, k)
    return self._plus("addbmm", rows @ batch2.named().flatten(0, 1), beta, alpha)
  def addr(self, vec1: Operand, vec2: Operand, *, beta: float = 1, alpha: float = 1) -> Self:
    """``beta * self + alpha * vec1.outer(vec2)`` of vectors (n,) and (m,); with a beta of 0 this tensor does not count. Raises
    ShapeError."""
    return self._plus("addr", vec1.outer(vec2), beta, alpha)

  # ---- of matrices and vectors, by their names
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
    """The sum of products over the last dimension of both: (.., k), (*o, k) -> (.., *o); with a number it is ``*``. Raises
    ShapeError."""
    return self * other if self.ndim == 0 or other.ndim == 0 else self._dotted("inner", other, [self.ndim - 1], [other.ndim - 1])

  def vdot(self, other: Operand) -> Self:
    """The inner product of two vectors: (n,), (n,) -> (). Raises ShapeError."""
    _takes("vdot", (self, other), (1, 1), "two vectors of one length")
    return self.dot(other)

  def tensordot(self, other: Operand, dims: Any = 2) -> Self:
    """The sum of products over several dimensions, then the other ones of the first and of the second. ``dims`` is a number (that
    many last ones of the first with as many first ones of the second), or two lists, the dimensions of the first and those of the
    second. Raises ShapeError, AxisError, ArgumentError."""
    n, m = self.ndim, other.ndim
    if isinstance(dims, (tuple, list)) and len(dims) == 2:
      ours = [axis_of("tensordot", d, n, self._names) for d in as_tuple(dims[0])]
      theirs = [axis_of("tensordot", d, m, other._names) for d in as_tuple(dims[1])]
      if len(ours) != len(theirs) or len(set(ours)) != len(ours) or len(set(theirs)) != len(theirs):
        raise ArgumentError(f"tensordot: dims {shown(dims)}; give as many of the first as of the second, none twice")
    else:
      k = whole_number("tensordot", "dims", dims, 0)
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
    return self._summed(name, (self, other), Formula([la, lb], output, dict(zip((*la, *lb), (*self.shape, *other.shape)))))

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
    s, o = [(1,) * (n - t.ndim) + t.shape for t in (self, other)]
    a = self.named().reshape([v for k in s for v in (k, 1)])
    return (a * other.named().reshape([v for k in o for v in (1, k)])).reshape([k * m for k, m in zip(s, o)])._own()

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
    u = reshape(expand(reshape(u, (*s[:d], 1, *s[d:])), (*s[:d], 2, *s[d:])), (*s[:d], 2 * s[d], *s[d + 1:]))
    return self._wrap(graph.part(u, d, k, k + s[d]))

  def pdist(self, p: float = 2.0) -> Self:
    """The p-norm of the difference of every two rows: (n, d) -> (n (n - 1) / 2,), of rows 0 and 1, 0 and 2, .., 1 and 2, ..
    Raises ShapeError, ArgumentError."""
    if self.ndim != 2: raise ShapeError(f"pdist: shape {text(self)}; it takes (n, d)")
    n, x = self.shape[0], self.named()
    i, j = type(self).triu_indices(n, n, 1, device=self.device).unbind(0)
    return (x[i] - x[j]).norm(p, -1)

  def cdist(self, other: Operand, p: float = 2.0) -> Self:
    """The p-norm of the difference of every two rows: (.., m, k), (.., n, k) -> (.., m, n); dims before the last two broadcast.
    Each difference is computed, so that near rows keep all digits of their distance. p goes from 0 (how many elements differ) to
    inf. Small floats are computed in float32, ints give float32; no slope where a distance is 0. Raises ShapeError,
    ArgumentError."""
    if not p >= 0: raise ArgumentError(f"cdist: p = {p!r}; it must be a number of at least 0")
    if self.ndim < 2 or other.ndim < 2 or self.shape[-1] != other.shape[-1]:
      raise ShapeError(f"cdist: shapes {text(self)} and {text(other)}; it takes (.., m, k) and (.., n, k)")
    broadcast_shape("cdist", self.shape[:-2], other.shape[:-2])
    out = as_float(promote(self.dtype, other.dtype))
    acc = acc_dtype(out)
    d = self.named().cast(acc).unsqueeze(-2) - other.named().cast(acc).unsqueeze(-3)
    if 0 < p < 1:   # the slope of |x| ** p at 0 is none, and must not become inf * 0
      none = d == 0
      return none.where(0.0, none.where(1.0, d).abs().pow(p)).sum(-1)._root(1 / p).cast(out)
    if d.shape[-1] == 0: return d.sum(-1).cast(out)
    return d.norm(p, -1).cast(out)

  # ---- einsum
  @classmethod
  def einsum(cls, formula: Any, *operands: Any, dtype: Any = None) -> Self:
    """Einstein's sum of products: ``einsum("ij,jk->ik", a, b)``.

    A letter names a dimension, upper and lower case ones are different, spaces count for nothing. A letter twice in one tensor is
    its diagonal. What is not behind ``->`` is summed; without ``->`` the result has ``...`` and the letters that occur once,
    sorted. ``...`` stands for any number of dimensions, which broadcast; a dimension of 1 goes with any size. Tensors may come in
    a list, or each with a list of numbers from 0 to 51: ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.

    Three and more tensors are multiplied two at a time, up to six in the order with the fewest multiplications. Small floats are
    added up in float32, and rounded once, at the end; ints as ``@`` has them, or, of one tensor, as ``sum``. ``dtype`` is the
    result's, in which it is added up too, unless it is small. Raises ArgumentError for a formula that is none, ShapeError for
    tensors that do not fit it."""
    words, given = _written(formula, operands)
    xs = several("einsum", given)
    return xs[0]._summed("einsum", xs, read_formula(words, xs), None if dtype is None else dtypes.of(dtype))

  def _summed(self, name: str, xs: Sequence[Any], form: Formula, dtype: DType | None = None) -> Self:
    """The sum of products that labels say, in a dtype, or that of their product."""
    terms, output, sizes = form
    common_device(name, *[x.lazydata for x in xs])
    every = [*output, *[c for c in sizes if c not in output]]
    places = [[every.index(c) if labels.count(c) == 1 else None for c in labels] for labels in terms]
    called = merged(name, xs, places, len(output), "factor")
    _unwidened(name, xs)
    out = common_dtype(*[x.lazydata for x in xs])
    summed = len(every) > len(output)
    if out.kind == "e": out = acc_dtype(out)
    acc = acc_dtype(out) if summed or len(xs) > 1 else out
    if summed and len(xs) == 1:
      n, out = math.prod([sizes[c] for c in every[len(output):]]), sum_dtype(out)
      acc = dtypes.int32 if out.kind in "iu" and fits_int32(BinaryOps.ADD, xs[0].lazydata, n) else acc_dtype(out)
    if dtype is not None: acc, out = acc_dtype(promote(acc, dtype)), dtype
    done = [_ready(cast(x.lazydata, acc), labels, sizes) for x, labels in zip(xs, terms)]
    live = set(range(len(done)))
    for i, j in order_of_products([labels for _, labels in done], output, sizes):
      live -= {i, j}
      keep = {*output, *[c for k in live for c in done[k][1]]}
      live.add(len(done))
      done.append(_multiplied(*done[i], *done[j], keep, output))
    u, labels = _summed_over(*done[-1], output)
    # a label of size n whose dimensions were all 1 and went
    u = broadcast(_placed(u, labels, output), tuple([sizes[c] for c in output]))
    return self._wrap_many(cast(u, out), xs, called)

  def newton_schulz(self, steps: int, params: Sequence[float] = (3.4445, -4.775, 2.0315), eps: float = 1e-7) -> Self:
    """Matrices (.., m, n) of the same singular vectors whose singular values are near 1: ``steps`` times the odd polynomial
    ``params[0]·x + params[1]·x³ + ..`` of them (https://kellerjordan.github.io/posts/muon/), of the matrix divided by its
    Frobenius norm; ``steps`` are 1000 at most. Raises ShapeError, ArgumentError."""
    if self.ndim < 2: raise ShapeError(f"newton_schulz: shape {text(self)}; it takes matrices (.., m, n)")
    n = whole_number("newton_schulz", "steps", steps, 0, _MOST_STEPS)
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
                     f"{', two and more, of which the first and the last may be vectors' if vectors else ''}")
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


# ---- formulas of einsum
Labels = Sequence[str]
_EXACT = 6      # as many tensors are multiplied in the best order; of more the pair is next that makes the least of its factors
_LETTERS = string.ascii_uppercase + string.ascii_lowercase


class Formula(NamedTuple):
  """What a formula says of tensors: the labels of each one's dimensions, those of the result, the size of each label."""
  terms: list[list[str]]
  output: list[str]
  sizes: dict[str, int]


def _written(formula: Any, operands: Sequence[Any]) -> tuple[str, Sequence[Any]]:
  """A formula as text, and its tensors; also where each tensor is followed by a list of numbers. Raises ArgumentError."""
  if isinstance(formula, str): return formula, operands
  if not operands: raise ArgumentError(f"einsum: {shown(formula)}; give a formula (ij,jk->ik) and tensors, or tensors with lists")
  text = ",".join([_word(labels) for labels in operands[::2]])
  if len(operands) % 2: return text, (formula, *operands[1::2])
  return f"{text}->{_word(operands[-1])}", (formula, *operands[1:-1:2])


def _word(labels: Any) -> str:
  if not isinstance(labels, (list, tuple)): raise ArgumentError(f"einsum: {shown(labels)} where a list of labels is due")
  for n in labels:
    if n is not Ellipsis and (not isinstance(n, int) or isinstance(n, bool) or not 0 <= n < len(_LETTERS)):
      raise ArgumentError(f"einsum: label {shown(n)} in {shown(labels)}; it takes ints from 0 to {len(_LETTERS) - 1}, and ...")
  return "".join(["..." if n is Ellipsis else _LETTERS[n] for n in labels])


def read_formula(formula: str, tensors: Sequence[Any]) -> Formula:
  """What a formula says of tensors. Raises ArgumentError for one that is none, ShapeError for tensors that do not fit it."""
  inputs, arrow, result = formula.replace(" ", "").partition("->")
  words = inputs.split(",")
  plain = [w.replace("...", "", 1) for w in (*words, result)]
  if len(words) != len(tensors) or not all([w.isalpha() or not w for w in plain]) or len(set(plain[-1])) != len(plain[-1]):
    raise ArgumentError(f"einsum: {formula!r} for {len(tensors)} tensors; name the dims of each, with commas between, "
                        "and those of the result after -> (ij,jk->ik), each once; ... stands for any number of dims")
  if unknown := [c for c in plain[-1] if c not in inputs]:
    raise ArgumentError(f"einsum: {formula!r}: letter {unknown[0]!r} of the result is in no tensor")
  terms = [_labels(formula, w, k, tensors) for k, w in enumerate(words)]
  dots = [f".{k}" for k in range(max([sum([c[0] == "." for c in t]) for t in terms]), 0, -1)]
  if not arrow: output = dots + sorted([c for c in set("".join(plain)) if inputs.count(c) == 1])
  else:
    at = result.find("...")
    output = [*plain[-1]] if at < 0 else [*result[:at], *dots, *result[at + 3:]]
  return Formula(terms, output, _sizes(formula, terms, tensors))


def _labels(formula: str, word: str, k: int, tensors: Sequence[Any]) -> list[str]:
  """A label for each dimension of a tensor."""
  at, n = word.find("..."), tensors[k].ndim
  more = n - len(word) + (3 if at >= 0 else 0)
  if more < 0 or more and at < 0:
    raise ShapeError(f"einsum: {formula!r}: {word!r} for the {ordinal(k)} tensor, whose shape is {text(tensors[k])}; "
                     "it takes a letter a dimension")
  return [*word] if at < 0 else [*word[:at], *[f".{i}" for i in range(more, 0, -1)], *word[at + 3:]]


def _sizes(formula: str, terms: Sequence[Labels], tensors: Sequence[Any]) -> dict[str, int]:
  """The size of each label; a dimension of 1 goes with any size, but not within one tensor."""
  found: dict[str, tuple[int, int]] = {}   # size, tensor
  for k, (labels, x) in enumerate(zip(terms, tensors)):
    for c, size in zip(labels, x.shape):
      first = found.setdefault(c, (size, k))
      if first[0] == 1 and first[1] != k: found[c] = size, k
      elif first[0] != size and (size != 1 or first[1] == k):
        raise ShapeError(
          f"einsum: {formula!r}: {f'letter {c!r}' if c[0] != '.' else f'dimension {-int(c[1:])} of ...'} is {first[0]} in the "
          f"{ordinal(first[1])} tensor and {size} in {f'the {ordinal(k)}' if first[1] != k else 'the same'}: "
          f"shapes {', '.join(map(text, tensors))}")
  return {c: size for c, (size, _) in found.items()}


# ---- the order of products
def order_of_products(terms: Sequence[Labels], output: Labels, sizes: Mapping[str, int]) -> list[tuple[int, int]]:
  """Which two tensors to multiply at each step; a product's number is the next one after the tensors'. As many as six are
  multiplied with the fewest multiplications that any order has; of more, the two come next whose product is smallest beside
  them."""
  sets = [frozenset(t) for t in terms]
  if len(sets) <= 2: return [(0, 1)] if len(sets) == 2 else []
  return (_best if len(sets) <= _EXACT else _greedy)(sets, frozenset(output), {c: int(n) for c, n in sizes.items()})


def _work(labels: Collection[str], sizes: Mapping[str, int]) -> int: return math.prod([sizes[c] for c in labels])


def _best(sets: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]) -> list[tuple[int, int]]:
  n = len(sets)
  full = (1 << n) - 1
  every: list[frozenset[str]] = [frozenset().union(*[sets[i] for i in range(n) if m >> i & 1]) for m in range(full + 1)]
  left = [every[m] & (output | every[full ^ m]) if m & (m - 1) else every[m] for m in range(full + 1)]   # what a product keeps
  cost: dict[int, tuple[int, int]] = {1 << i: (0, 0) for i in range(n)}   # tensors -> multiplications, one side of the last
  for m in range(1, full + 1):
    if m in cost: continue
    found, half = [], (m - 1) & m
    while half:
      if half > m ^ half: found.append((cost[half][0] + cost[m ^ half][0] + _work(left[half] | left[m ^ half], sizes), half))
      half = half - 1 & m
    cost[m] = min(found)
  steps: list[tuple[int, int]] = []
  def make(m: int) -> int:
    if not m & (m - 1): return m.bit_length() - 1
    one = cost[m][1]
    steps.append((make(one), make(m ^ one)))
    return n + len(steps) - 1
  make(full)
  return steps


def _greedy(sets: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]) -> list[tuple[int, int]]:
  live = dict(enumerate(sets))
  steps: list[tuple[int, int]] = []
  def kept(pair: tuple[int, int]) -> frozenset[str]:
    return (live[pair[0]] | live[pair[1]]) & output.union(*[s for i, s in live.items() if i not in pair])
  def price(pair: tuple[int, int]) -> tuple[int, int]:
    """How much larger a product is than its factors, and the work that it takes."""
    a, b = live[pair[0]], live[pair[1]]
    return _work(kept(pair), sizes) - _work(a, sizes) - _work(b, sizes), _work(a | b, sizes)
  while len(live) > 1:
    pair = min([(price(pair), pair) for pair in itertools.combinations(live, 2)])[1]
    live = {i: s for i, s in live.items() if i not in pair} | {len(sets) + len(steps): kept(pair)}
    steps.append(pair)
  return steps


# ---- nodes
def _ready(u: UOp, labels: Labels, sizes: Mapping[str, int]) -> tuple[UOp, list[str]]:
  """A tensor with each label once: a repeated one is the diagonal. Dimensions of 1 whose label has another size go."""
  out = list(labels)
  while again := next((c for c in out if out.count(c) > 1), None):
    i = out.index(again)
    j = out.index(again, i + 1)
    rest = [d for d in range(len(out)) if d not in (i, j)]
    u = permute(u, (*rest, i, j))
    *s, n, _ = u.shape
    u = graph.tile(reshape(u, (*s, n * n)), [(1, 1, 1)] * len(s) + [(1, n + 1, 1)])
    u = reshape(u, (*s, n))
    out = [*[out[d] for d in rest], again]
  thin = [d for d, c in enumerate(out) if u.shape[d] == 1 and sizes[c] != 1]
  return drop(u, thin), [c for d, c in enumerate(out) if d not in thin]


def _summed_over(u: UOp, labels: Labels, keep: Collection[str]) -> tuple[UOp, list[str]]:
  """The sum over the labels that are not kept."""
  axes = [d for d, c in enumerate(labels) if c not in keep]
  return drop(graph.total(u, axes), axes) if axes else u, [c for c in labels if c in keep]


def _placed(u: UOp, labels: Labels, into: Labels) -> UOp:
  """Dimensions in the order of ``into``, with dims of 1 for labels that are not there."""
  u = permute(u, tuple([labels.index(c) for c in into if c in labels]))
  at = dict(zip([c for c in into if c in labels], u.shape))
  return reshape(u, tuple([at.get(c, 1) for c in into]))


def _multiplied(a: UOp, la: Labels, b: UOp, lb: Labels, keep: Collection[str], output: Labels) -> tuple[UOp, list[str]]:
  """One product of two tensors of one dtype, summed over the labels that are not kept: what both have and keep, what only the
  first has, what only the second has; the sum is over what both have, so that it is a product of matrices. The last product has
  the order of the result."""
  a, la = _summed_over(a, la, {*keep, *lb})
  b, lb = _summed_over(b, lb, {*keep, *la})
  both = [c for c in la if c in lb]
  out = [*[c for c in both if c in keep], *[c for c in la if c not in lb], *[c for c in lb if c not in la]]
  if set(out) <= set(output): out = [c for c in output if c in out]
  every = [*out, *[c for c in both if c not in keep]]
  a, b = _placed(a, la, every), _placed(b, lb, every)
  full = tuple([n if n != 1 else m for n, m in zip(a.shape, b.shape)])
  a, b = expand(a, full), expand(b, full)
  return _summed_over(a & b if a.dtype.kind == "b" else a * b, every, out)
