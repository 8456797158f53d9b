"""Matrix products, convolutions, pooling, normalisation and losses of ``Tensor``.

Products of matrices and convolutions are written as an expanded product and one sum: the scheduler finds the tiles.
"""
from __future__ import annotations

import math
from typing import Any, Callable, Self, Sequence

import numpy as np

from ntgrad import graph
from ntgrad.bounds import within
from ntgrad.checks import Operand, checked, operand
from ntgrad.codegen.dtype import dtypes, promote
from ntgrad.codegen.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from ntgrad.codegen.uop import BinaryOps, UnaryOps, UOp
from ntgrad.core import Base, mode, real_number
from ntgrad.elementwise import broadcast_shape, common_device
from ntgrad.movement import several
from ntgrad.names import Names, Places, fit, fit_aligned, merged, text
from ntgrad.reduction import Reduction


def known_class(name: str, u: UOp, n: int, ignore: int | None = None) -> None:
  """Raises IndexOutOfRangeError if class indices are a constant that is no class (others are known when they are computed)."""
  v = graph.const_value(u)
  if v is not None and 0 not in u.shape and v != ignore and not 0 <= v < n:
    raise _no_class(name, v, n)


def _no_class(name: str, v: Any, n: int) -> IndexOutOfRangeError:
  return IndexOutOfRangeError(f"{name}: class {v} of {n}; classes go from 0 to {n - 1}")


def _product(name: str, a: UOp, b: UOp) -> tuple[UOp, UOp, Any]:
  """Both factors in the dtype that their product is summed in, and the dtype of the result."""
  if a.device != b.device: common_device(name, a, b)
  out = a.dtype if a.dtype is b.dtype else promote(a.dtype, b.dtype)
  acc = graph.acc_dtype(out)
  if out.kind != "f": out = acc
  return graph.cast(a, acc), graph.cast(b, acc), out


def _of_product(name: str, tensors: Sequence[Any], places: Sequence[Places], ndim: int) -> Names | None:
  """The names of a sum of products: of each factor, where its dimensions go in the result (behind it: what is summed)."""
  if all([t._names is None for t in tensors]): return None
  return merged(name, tensors, places, ndim, "factor")


def _product_places(nx: int, ny: int) -> tuple[list[Places], int]:
  """Where the dimensions of a matrix product's factors go, and how many the result has; the summed one is the last place."""
  n = max(nx, ny, 2) - 2 + (nx > 1) + (ny > 1)
  batch = n - (nx > 1) - (ny > 1)
  x = (*range(batch - (nx - 2), batch), batch, n) if nx > 1 else (n,)
  y = (*range(batch - (ny - 2), batch), n, n - 1) if ny > 1 else (n,)
  return [x, y], n


@checked
class Functional(Reduction):
  """Products, convolutions, pooling, normalisation, losses."""
  __slots__ = ()

  # ---- products
  def dot(self, w: Any, dtype: Any = None) -> Self:
    """The matrix product: 1-d with 1-d is the inner product; dims before the last two broadcast. Raises ShapeError.

    (.., m, k) @ (.., k, n) -> (.., m, n). float16, bfloat16 and fp8 accumulate in float32; small ints in int32.
    """
    if not isinstance(w, Functional): w = type(self)(w, device=self.lazydata.device)  # type: ignore[call-arg]
    x, y = self.lazydata, w.lazydata
    sx, sy = x.shape, y.shape
    nx, ny = len(sx), len(sy)
    if not nx or not ny: raise ShapeError(f"matmul: shapes {sx} and {sy}; both need at least one dimension (use * for numbers)")
    k = sx[-1]
    if sy[-2 if ny > 1 else 0] != k:
      fit("matmul", (self, w), *_product_places(nx, ny), "factor")
      raise ShapeError(f"matmul: shapes {text(self)} and {text(w)}; the last dimension of the first ({k}) must equal "
                       f"the {'second to last' if ny > 1 else 'only'} dimension of the second ({sy[-2 if ny > 1 else 0]})")
    if x.dtype.kind == "b" and y.dtype.kind == "b": x = graph.cast(x, dtypes.default_int)
    a, b, out = _product("matmul", x, y)
    called = None if self._names is w._names is None else _of_product("matmul", (self, w), *_product_places(nx, ny))
    if dtype is not None: out = dtypes.of(dtype)
    if nx == 1 and ny == 1:
      total = graph.drop(graph.reduce(BinaryOps.ADD, graph.mul(a, b), (0,)), (0,))
      return self._wrap_many(graph.cast(total, out), (w,), called)
    n = sy[-1] if ny > 1 else 1
    m = sx[-2] if nx > 1 else 1
    try: batch = broadcast_shape("matmul", sx[:-2], sy[:-2]) if nx > 2 or ny > 2 else ()
    except ShapeError:
      fit("matmul", (self, w), *_product_places(nx, ny), "factor")
      raise
    full = (*batch, m, n, k)
    if nx > 1: a = graph.reshape(a, sx[:-1] + (1, k))
    if ny > 1: b = graph.permute(b, (*range(ny - 2), ny - 1, ny - 2))
    if ny > 2: b = graph.reshape(b, sy[:-2] + (1, n, k))
    total = graph.reduce(BinaryOps.ADD, graph.mul(graph.broadcast(a, full), graph.broadcast(b, full)), (len(full) - 1,))
    total = graph.reshape(total, (*batch, *((m,) if nx > 1 else ()), *((n,) if ny > 1 else ())))
    return self._wrap_many(graph.cast(total, out), (w,), called)

  def matmul(self, x: Any, reverse: bool = False, dtype: Any = None) -> Self:
    """``self @ x``; see ``dot``."""
    if reverse: return type(self)(x, device=self.lazydata.device).dot(self, dtype)  # type: ignore[call-arg]
    return self.dot(x, dtype)
  def __matmul__(self, x: Any) -> Self: return self.dot(x)
  def __rmatmul__(self, x: Any) -> Self: return self.matmul(x, True)

  def linear(self, weight: Operand, bias: Operand | None = None) -> Self:
    """``self @ weight + bias`` with a weight (in, out), or ``self * weight`` for a 1-d one. Raises ShapeError."""
    x = self * weight if weight.ndim == 1 else self.dot(weight)
    return x if bias is None else x + bias

  def sequential(self, layers: Sequence[Callable[..., Any]]) -> Any:
    """The layers applied one after the other."""
    x: Any = self
    for layer in layers: x = layer(x)
    return x

  def outer(self, x: Operand) -> Self:
    """(m,), (n,) -> (m, n). Raises ShapeError."""
    if self.ndim != 1 or x.ndim != 1: raise ShapeError(f"outer: shapes {self.shape} and {x.shape}; it takes two 1-d tensors")
    return self.unsqueeze(1) * x.unsqueeze(0)

  @classmethod
  def einsum(cls, formula: str, *operands: Any) -> Self:
    """Einstein's sum of named dims: ``einsum("ij,jk->ik", a, b)``; without ``->`` the letters that occur once, sorted.

    Raises ArgumentError for a formula that is none, ShapeError for tensors that do not fit it.
    """
    xs = several("einsum", operands)
    inputs, arrow, output = formula.replace(" ", "").partition("->")
    names = inputs.split(",")
    if not arrow: output = "".join(sorted([c for c in set(inputs) if c != "," and inputs.count(c) == 1]))
    known = inputs.replace(",", "").isalpha() and set(output) <= set(inputs) and len(set(output)) == len(output)
    if len(names) != len(xs) or not known:
      raise ArgumentError(f"einsum: {formula!r} for {len(xs)} tensors; name the dims of each, with commas between, "
                          "and those of the result after -> (ij,jk->ik)")
    sizes: dict[str, int] = {}
    for name, x in zip(names, xs):
      if len(name) != x.ndim or len(set(name)) != len(name) or any([sizes.setdefault(c, n) != n for c, n in zip(name, x.shape)]):
        raise ShapeError(f"einsum: {formula!r} for shapes {', '.join(map(text, xs))}; each needs one letter a dim, "
                         "none twice, and a letter has one size")
    letters = output + "".join([c for c in sizes if c not in output])
    called = _of_product("einsum", xs, [[letters.index(c) for c in name] for name in names], len(output))
    if called is not None: xs = tuple([x.named() for x in xs])
    out: Any = None
    for name, x in zip(names, xs):
      order = sorted(range(x.ndim), key=lambda i: letters.index(name[i]))  # noqa: B023 - used at once
      x = x.permute(order).reshape(tuple([sizes[c] if c in name else 1 for c in letters]))
      out = x if out is None else out * x
    if len(letters) > len(output): out = out.sum(tuple(range(len(output), len(letters))))
    if called is not None: out._names = called
    return out

  # ---- dropout and attention
  def dropout(self, p: float = 0.5) -> Self:
    """While training: zero with probability p, else divided by 1 - p. Raises ArgumentError for a p outside [0, 1]."""
    if not 0 <= real_number("dropout", "p", p) <= 1: raise ArgumentError(f"dropout: p = {p}; it must be from 0 to 1")
    if not mode.training or p == 0: return self._own()
    if p == 1: return self * 0
    make: Any = type(self)
    kept = make.rand(*self.shape, device=self.device, dtype=dtypes.float32) >= p
    return kept.where(self * (1 / (1 - p)), 0)

  def scaled_dot_product_attention(self, key: Operand, value: Operand, attn_mask: Operand | None = None, dropout_p: float = 0.0,
                                   is_causal: bool = False) -> Self:
    """softmax(q kᵀ / sqrt(d) + mask) v. A bool mask keeps where it is true. Raises ShapeError."""
    if not self._names is key._names is value._names is None:
      return self._attention_named(key, value, attn_mask, dropout_p, is_causal)
    scores: Any = self.dot(key.transpose(-2, -1)) * (1 / math.sqrt(self.shape[-1]))
    if is_causal:
      if attn_mask is not None: raise ArgumentError("scaled_dot_product_attention: is_causal with attn_mask; give one of them")
      make: Any = type(self)
      attn_mask = make.ones(*scores.shape[-2:], dtype=dtypes.bool).tril()
    if attn_mask is not None:
      scores = attn_mask.where(scores, -math.inf) if attn_mask.dtype is dtypes.bool else scores + attn_mask
    return scores.softmax(-1).dropout(dropout_p).dot(value)

  def _attention_named(self, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool) -> Self:
    """Attention of tensors of which some have names: the result has the queries' rows and the values' columns. Keys may have
    the name of the queries: they are summed in the end."""
    name, tensors = "scaled_dot_product_attention", (self, key, value)
    n = max([t.ndim for t in tensors])
    ends = (n - 2, n + 1), (n, n + 1), (n, n - 1)   # places n and n + 1 are summed: the keys, and what queries and keys have
    places = [(*range(n - t.ndim, n - 2), *end) for t, end in zip(tensors, ends)]
    called = None
    if min([t.ndim for t in tensors]) > 1:
      fit(name, tensors, places, n)
      called = merged(name, tensors, places, n)
    out = self.named().scaled_dot_product_attention(
      key.named(), value.named(), None if mask is None else mask.named(), dropout_p, is_causal
    )
    out._names = called
    return out

  # ---- losses
  def _reduced(self, name: str, how: str) -> Self:
    if how == "mean": return self.mean()
    if how == "sum": return self.sum()
    if how == "none": return self
    raise ArgumentError(f"{name}: reduction {how!r}; it takes 'mean', 'sum' or 'none'")

  def _same_shape(self, name: str, target: Any) -> Any:
    """A target as a tensor of this shape. Raises ShapeError."""
    if not isinstance(target, Base): target = type(self)(target, device=self.lazydata.device)  # type: ignore[call-arg]
    if target.shape != self.shape:
      fit_aligned(name, (self, target))
      raise ShapeError(f"{name}: a target of shape {target.shape} for predictions of {self.shape}; they must be equal")
    return target

  def mse_loss(self, target: Operand, reduction: str = "mean") -> Self:
    """(x - target)², reduced. Raises ShapeError."""
    target = self._same_shape("mse_loss", target)
    return (self - target).square()._reduced("mse_loss", reduction)

  def binary_crossentropy(self, Y: Operand, reduction: str = "mean") -> Self:
    """-(y log x + (1 - y) log(1 - x)) for probabilities, reduced. A logarithm is at least -100, without slope there. Raises
    ShapeError."""
    Y = self._same_shape("binary_crossentropy", Y)
    def log(x: Any) -> Any:
      least = (x >= 0) & (x <= math.exp(-100))
      return least.where(-100.0, least.where(1.0, x).log())
    return (-Y * log(self) - (1 - Y) * log(1 - self))._reduced("binary_crossentropy", reduction)

  def binary_crossentropy_logits(self, Y: Operand, reduction: str = "mean", pos_weight: Operand | None = None) -> Self:
    """Binary cross entropy of sigmoid(x), without overflow, reduced. Raises ShapeError."""
    Y = self._same_shape("binary_crossentropy_logits", Y)
    if pos_weight is None: loss = self.softplus() - self * Y
    else: loss = self.neg().softplus() * Y * pos_weight + self.softplus() * (1 - Y)
    return loss._reduced("binary_crossentropy_logits", reduction)

  def _target(self, name: str, Y: Any, n: int, ignore: int | None = None) -> Any:
    """What a loss compares with, as a tensor. Of lists and numpy arrays the classes are known: raises IndexOutOfRangeError for
    one outside."""
    if isinstance(Y, Base): return Y
    t: Any = operand(name, Y, self)
    if t.lazydata.dtype.kind in "iu":
      a = np.asarray(Y)
      outside = a[((a < 0) | (a >= n)) & (True if ignore is None else a != ignore)]
      if outside.size: raise _no_class(name, outside[0], n)
    return t

  def _classes(self, name: str, Y: Any, rows: tuple[int, ...], n: int, ignore: int | None) -> UOp:
    """Class indices of shape ``rows`` in a dtype that holds n, the number of classes, and the index that is ignored.

    Raises ShapeError, DTypeError, and IndexOutOfRangeError where a number that every row has is no class.
    """
    u: UOp = Y.lazydata
    if u.shape != rows:
      raise ShapeError(
        f"{name}: class indices of shape {text(Y)} for predictions of {text(self)}; they must have shape {rows}"
      )
    if u.dtype.kind not in "iu": raise DTypeError(f"{name}: class indices of {u.dtype.name}; they must be ints")
    common_device(name, self.lazydata, u)
    known_class(name, u, n, ignore)
    index = graph.index_of(u, max(n, abs(ignore or 0) + 1))
    return within(index, 0, n, name, f"the {n} classes, which go from 0 to {n - 1}", self.lazydata.device, ignore)

  def _class_loss(self, name: str, u: UOp, axis: int, Y: Any, ignore_index: int | None, smoothing: float, how: str,
                  logits: bool) -> Self:
    """Loss of class indices Y, one a row (u with dim ``axis`` taken out): reduced over classes first, then over rows."""
    s = u.shape
    if not 0 <= smoothing <= 1: raise ArgumentError(f"{name}: label_smoothing = {smoothing}; it must be from 0 to 1")
    rows, kept = s[:axis] + s[axis + 1:], s[:axis] + (1,) + s[axis + 1:]
    index = graph.reshape(self._classes(name, Y, rows, s[axis], ignore_index), kept)
    classes = graph.reshape(graph.cast(graph.iota(s[axis]), index.dtype), (1,) * axis + (s[axis],) + (1,) * (len(s) - axis - 1))
    chosen = graph.binary(BinaryOps.CMPEQ, graph.expand(classes, s), graph.expand(index, s))
    zero = graph.const(0.0, u.dtype, s)
    if logits: d, _, total = self._shifted(u, axis)
    else: d = u
    row = graph.reduce(BinaryOps.ADD, graph.where(chosen, d, zero), (axis,))
    if smoothing:
      mean = self._mean_node(d, (axis,))
      row = graph.add(graph.scalar(BinaryOps.MUL, row, 1 - smoothing), graph.scalar(BinaryOps.MUL, mean, smoothing))
    row = graph.sub(graph.unary(UnaryOps.LOG, total), row) if logits else graph.unary(UnaryOps.NEG, row)
    row = graph.where(graph.inside(index, s[axis]), row, graph.const(math.nan, row.dtype, kept))
    called = None
    if self._names is not None or Y._names is not None:
      n = len(rows)
      called = merged(name, (self, Y), ([*range(axis), None, *range(axis, n)], range(n)), n)

    def as_rows(node: UOp) -> Any:
      t = self._wrap(graph.reshape(node, rows))
      t._names = called
      return t

    if ignore_index is None: return as_rows(graph.cast(row, self._float()))._reduced(name, how)
    used = graph.scalar(BinaryOps.CMPNE, index, ignore_index)
    loss: Any = as_rows(graph.where(used, row, graph.const(0.0, row.dtype, kept)))
    if how != "mean": return loss._reduced(name, how).cast(self._float())
    counted = self._from_node(graph.reshape(used, rows)).sum().cast(loss.dtype)
    return (loss.sum() / counted).cast(self._float())

  def _float(self) -> Any: return self.dtype if self.dtype.kind == "f" else dtypes.default_float

  def sparse_categorical_crossentropy(self, Y: Any, ignore_index: int = -1, label_smoothing: float = 0.0,
                                      reduction: str = "mean") -> Self:
    """Cross entropy of logits (.., classes) with class indices (..,); rows whose index is ignore_index do not count.

    The loss of a row whose index is no class is NaN. Raises ShapeError, DTypeError;
    IndexOutOfRangeError where the classes are known (lists, arrays, constants).
    """
    u, a, _ = self._rows("sparse_categorical_crossentropy", -1)
    Y = self._target("sparse_categorical_crossentropy", Y, u.shape[a], ignore_index)
    return self._class_loss("sparse_categorical_crossentropy", u, a, Y, ignore_index, label_smoothing, reduction, True)

  def cross_entropy(self, Y: Any, reduction: str = "mean", label_smoothing: float = 0.0, ignore_index: int | None = None) -> Self:
    """Cross entropy of logits (n, classes, ..) with class indices (n, ..) or probabilities of the logits' shape.

    Rows whose index is ignore_index do not count; the loss of a row whose index is no class is NaN. Raises ShapeError,
    DTypeError; IndexOutOfRangeError where the classes are known (lists, arrays, constants).
    """
    axis = 0 if self.ndim == 1 else 1
    u, a, _ = self._rows("cross_entropy", axis)
    Y = self._target("cross_entropy", Y, u.shape[a], ignore_index)
    if Y.ndim == self.ndim - 1: return self._class_loss("cross_entropy", u, a, Y, ignore_index, label_smoothing, reduction, True)
    Y = self._same_shape("cross_entropy", Y)
    y = Y.cast(graph.acc_dtype(self._float()))
    if label_smoothing: y = y * (1 - label_smoothing) + label_smoothing / self.shape[a]
    rows = -(self.cast(y.dtype).log_softmax(a) * y).sum(a)
    return rows._reduced("cross_entropy", reduction).cast(self._float())

  def nll_loss(self, Y: Any, weight: Operand | None = None, ignore_index: int | None = None, reduction: str = "mean") -> Self:
    """The negative of log probabilities (n, classes, ..) at class indices (n, ..), with a weight a class.

    Rows whose index is ignore_index do not count; the loss of a row whose index is no class is NaN. Raises ShapeError,
    DTypeError; IndexOutOfRangeError where the classes are known (lists, arrays, constants).
    """
    u, a, _ = self._rows("nll_loss", 0 if self.ndim == 1 else 1)
    Y = self._target("nll_loss", Y, u.shape[a], ignore_index)
    if weight is None: return self._class_loss("nll_loss", u, a, Y, ignore_index, 0.0, reduction, False)
    if weight.shape != (u.shape[a],):
      raise ShapeError(f"nll_loss: a weight of shape {weight.shape} for {u.shape[a]} classes; it must be ({u.shape[a]},)")
    rows = self._class_loss("nll_loss", u, a, Y, ignore_index, 0.0, "none", False)
    index: Any = self._from_node(self._classes("nll_loss", Y, Y.shape, u.shape[a], ignore_index))
    w = weight[index] if ignore_index is None else (index != ignore_index).where(weight[index.clamp(0, u.shape[a] - 1)], 0.0)
    return (rows * w).sum() / w.sum() if reduction == "mean" else (rows * w)._reduced("nll_loss", reduction)
