"""Losses: what predictions cost against a target, element by element, reduced to one number.

All take ``reduction``: "mean" (of all elements), "sum" or "none". Small floats are computed and reduced in float32, and the
loss has the dtype that predictions and target promote to; ints are computed as floats.

Class indices that are none of the classes raise IndexOutOfRangeError: at once where they are known (lists, arrays, constants),
and else when the loss is computed, where indices are checked (``engine/index_checks.py``; ``config.check_indices``). Unchecked,
such a row's loss is NaN. """
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from ntgrad.codegen.ir import ArgumentError, DType, ShapeError, UOp, acc_dtype, as_float, promote, shown
from ntgrad.core import Base, real_number
from ntgrad.engine.index_checks import floats_within, known_class, no_class, within
from ntgrad.graph import Operand, checked, fit_aligned, merged, nodes as graph, of_kind, operand, text
from ntgrad.graph.nodes import Shape, cast, expand, inside, reshape, where
from ntgrad.graph.recipes import recalled

from .activation import Activation
from .families import member
from .promotion import broadcast_shape, common_device
from .reduction import Reduction


def _of_class(chosen: UOp, u: UOp, axis: int) -> UOp:
  """What each row has, along an axis, at its class."""
  return graph.total(where(chosen, graph.broadcast(u, chosen.shape), 0.0), (axis,))


def _positive(name: str, what: str, value: Any, zero: bool = False) -> Any:
  """A number above 0 (or 0). Raises ArgumentError."""
  value = real_number(name, what, value)
  if value < 0 or (value == 0 and not zero):
    raise ArgumentError(f"{name}: {what} = {value}; it must be {'at least' if zero else 'above'} 0")
  return value


@checked
class Losses(Activation, Reduction):
  """Losses of predictions over classes, and of predictions that are numbers or vectors."""
  __slots__ = ()

  # ---- what every loss needs
  def _reduced(self, name: str, how: str, out: DType) -> Self:
    """The losses of elements, reduced, in a dtype."""
    if how == "mean": return self.mean().cast(out)
    if how == "sum": return self.sum().cast(out)
    if how == "none": return self.cast(out)
    raise ArgumentError(f"{name}: reduction {how!r}; it takes 'mean', 'sum' or 'none'")

  def _same_shape(self, name: str, target: Any) -> Any:
    """A target as a tensor of this shape. Raises ShapeError."""
    if not isinstance(target, Base): target = operand(name, target, self)
    if target.shape != self.shape:
      fit_aligned(name, (self, target))
      raise ShapeError(f"{name}: a target of shape {target.shape} for predictions of {self.shape}; they must be equal")
    return target

  def _target(self, name: str, Y: Any, n: int, ignore: int | None = None) -> Any:
    """What a loss compares with, as a tensor. Of lists and numpy arrays the classes are known: raises IndexOutOfRangeError for
    one outside."""
    if isinstance(Y, Base): return Y
    t: Any = operand(name, Y, self)
    if t.lazydata.dtype.kind in "iu":
      a = np.asarray(Y)
      outside = a[((a < 0) | (a >= n)) & (True if ignore is None else a != ignore)]
      if outside.size: raise no_class(name, outside[0], n)
    return t

  def _classes(self, name: str, Y: Any, rows: Shape, n: int, ignore: int | None) -> UOp:
    """Class indices of shape ``rows`` in a dtype that holds n, the number of classes, and the index that is ignored. Raises
    ShapeError, DTypeError, and IndexOutOfRangeError where a number that every row has is no class."""
    u: UOp = Y.lazydata
    if u.shape != rows:
      raise ShapeError(f"{name}: class indices of shape {text(Y)} for predictions of {text(self)}; they must have shape {rows}")
    of_kind("iu", name, "class indices", u, "they must be ints")
    common_device(name, self.lazydata, u)
    known_class(name, u, n, ignore)
    index = graph.index_of(u, max(n, abs(ignore or 0) + 1))
    return within(index, 0, n, name, f"the {n} classes, which go from 0 to {n - 1}", self.lazydata.device, ignore)

  def _weight(self, name: str, weight: Any, u: UOp, axis: int) -> UOp | None:
    """A weight for each class in the dtype of u, along dim ``axis`` of as many dims. Raises ShapeError."""
    if weight is None: return None
    n = u.shape[axis]
    if weight.shape != (n,): raise ShapeError(f"{name}: a weight of shape {weight.shape} for {n} classes; it must be ({n},)")
    common_device(name, u, weight.lazydata)
    return reshape(cast(weight.lazydata, as_float(u.dtype)), (1,) * axis + (n,) + (1,) * (len(u.shape) - axis - 1))

  def _chosen(self, index: UOp, s: Shape, axis: int) -> UOp:
    """Where along ``axis`` of a shape the index of each row is."""
    return graph.eq(cast(graph.index_along(axis, s), index.dtype), expand(index, s))

  def _class_loss(self, name: str, dim: int, target: Any, ignore_index: int | None, smoothing: float, how: str,
                  logits: bool, weight: Any = None) -> Self:
    """Loss of class indices, one a row (the classes' dim taken out): reduced over classes first, then over rows."""
    s, axis = self.shape, self._dim(name, dim)
    Y = self._target(name, target, s[axis], ignore_index)
    if not 0 <= smoothing <= 1: raise ArgumentError(f"{name}: label_smoothing = {smoothing}; it must be from 0 to 1")
    index = self._from_node(self._classes(name, Y, s[:axis] + s[axis + 1:], s[axis], ignore_index))._called(Y._names)
    return self._loss_of_classes(index, weight, name, axis, ignore_index, smoothing, how, logits)

  @recalled
  def _loss_of_classes(self, Y: Any, weight: Any, name: str, axis: int, ignore_index: int | None, smoothing: float, how: str,
                       logits: bool) -> Any:
    u = self._rows(name, axis)[0]
    s = u.shape
    rows, kept = s[:axis] + s[axis + 1:], s[:axis] + (1,) + s[axis + 1:]
    index = reshape(Y.lazydata, kept)
    chosen = self._chosen(index, s, axis)
    w = self._weight(name, weight, u, axis)
    log_total = mine = None
    if logits:
      u, _, total = self._shifted(u, axis)
      log_total = graph.log(total)
      if w is not None: u, log_total = u - expand(log_total, s), None   # log probabilities
    row = _of_class(chosen, u, axis)
    if w is not None:
      mine = _of_class(chosen, w, axis)
      row = mine * row
    if smoothing: row = row * (1 - smoothing) + self._mean_node(u if w is None else expand(w, s) * u, (axis,)) * smoothing
    row = graph.neg(row) if log_total is None else log_total - row
    row = where(inside(index, s[axis]), row, math.nan)
    n = len(rows)
    called = merged(name, (self, Y), ([*range(axis), None, *range(axis, n)], range(n)), n)

    def as_rows(node: UOp) -> Any: return self._wrap_many(reshape(node, rows), () if weight is None else (weight,), called)

    used, out = None if ignore_index is None else graph.ne(index, ignore_index), as_float(self.dtype)
    loss: Any = as_rows(row if used is None else where(used, row, 0.0))
    if mine is not None and used is not None: mine = where(used, mine, 0.0)
    if how != "mean" or used is mine is None:
      # without a mean over the rows that count, one may be rounded before it is reduced
      return (loss.cast(out) if used is None else loss)._reduced(name, how, out)
    rest: Any = used if mine is None else mine
    count = self._from_node(reshape(rest, rows)).sum().cast(loss.dtype) if mine is None else as_rows(rest).sum()
    return (loss.sum() / count).cast(out)

  # ---- of classes
  def sparse_categorical_crossentropy(self, Y: Any, ignore_index: int = -1, label_smoothing: float = 0.0,
                                      reduction: str = "mean") -> Self:
    """Cross entropy of logits (.., classes) with class indices (..,); rows whose index is ignore_index do not count. The loss of
    a row whose index is no class is NaN. Raises ShapeError, DTypeError; IndexOutOfRangeError where the classes are known (lists,
    arrays, constants)."""
    if not self.ndim: raise ShapeError("sparse_categorical_crossentropy: logits of shape (); they have a dimension of classes")
    return self._class_loss("sparse_categorical_crossentropy", -1, Y, ignore_index, label_smoothing, reduction, True)

  def cross_entropy(self, target: Any, reduction: str = "mean", label_smoothing: float = 0.0, ignore_index: int | None = None,
                    weight: Operand | None = None) -> Self:
    """Cross entropy of logits (n, classes, ..) with class indices (n, ..) or probabilities of the logits' shape; logits
    (classes,) are one row.

    ``weight`` (classes,) is a factor for each class; the mean over class indices is then divided by the sum of the rows' weights,
    that over probabilities by the number of rows. Rows whose index is ignore_index do not count (None: every row does; PyTorch
    ignores -100); the mean over no rows is NaN, as is the loss of a row whose index is no class. Raises ShapeError, DTypeError,
    ArgumentError; IndexOutOfRangeError where the classes are known (lists, arrays, constants)."""
    name = "cross_entropy"
    u, a, _ = self._rows(name, 0 if self.ndim == 1 else 1)
    Y = self._target(name, target, u.shape[a], ignore_index)
    if Y.ndim == self.ndim - 1: return self._class_loss(name, a, Y, ignore_index, label_smoothing, reduction, True, weight)
    Y = self._same_shape(name, Y)
    if ignore_index is not None and ignore_index >= 0:
      raise ArgumentError(f"{name}: ignore_index = {ignore_index} with probabilities; it is for class indices")
    if not 0 <= label_smoothing <= 1: raise ArgumentError(f"{name}: label_smoothing = {label_smoothing}; it must be from 0 to 1")
    y = Y.cast(acc_dtype(as_float(self.dtype)))
    if label_smoothing: y = y * (1 - label_smoothing) + label_smoothing / max(self.shape[a], 1)
    w = self._weight(name, weight, u, a)
    if weight is not None and w is not None: y = y * weight._wrap(w)
    return (-(self.cast(y.dtype).log_softmax(a) * y).sum(a))._reduced(name, reduction, as_float(self.dtype))

  def nll_loss(self, target: Any, weight: Operand | None = None, ignore_index: int | None = None,
               reduction: str = "mean") -> Self:
    """The negative of log probabilities (n, classes, ..) at class indices (n, ..), with a weight a class, by whose sum over the
    rows the mean is divided. Rows whose index is ignore_index do not count; the loss of a row whose index is no class is NaN.
    Raises ShapeError, DTypeError; IndexOutOfRangeError where the classes are known (lists, arrays, constants)."""
    return self._class_loss("nll_loss", 0 if self.ndim == 1 else 1, target, ignore_index, 0.0, reduction, False, weight)

  def multi_margin_loss(self, target: Any, p: int = 1, margin: float = 1.0, weight: Operand | None = None,
                        reduction: str = "mean") -> Self:
    """How far scores (n, classes), or (classes,), of other classes come within ``margin`` of the score of the class index (n,):
    the mean over classes of weight[y] max(0, margin - x[y] + x[i]) ** p for i != y, with p 1 or 2. Raises ShapeError, DTypeError,
    ArgumentError; IndexOutOfRangeError where the classes are known."""
    name = "multi_margin_loss"
    if p not in (1, 2): raise ArgumentError(f"{name}: p = {p}; it takes 1 or 2")
    if self.ndim not in (1, 2): raise ShapeError(f"{name}: predictions of shape {text(self)}; give (n, classes) or (classes,)")
    u, a, _ = self._rows(name, -1)
    s = u.shape
    Y = self._target(name, target, s[a])
    index = reshape(self._classes(name, Y, s[:-1], s[a], None), (*s[:-1], 1))
    chosen = self._chosen(index, s, a)
    each = u - expand(_of_class(chosen, u, a), s) + real_number(name, "margin", margin)
    each = where(chosen, 0.0, graph.maximum(each, 0.0))
    if p == 2: each = each * each
    w = self._weight(name, weight, u, a)
    if w is not None: each = each * expand(_of_class(chosen, w, a), s)
    row = where(inside(index, s[a]), self._mean_node(each, (a,)), math.nan)
    called = merged(name, (self, Y), ([*range(a), None], range(a)), a)
    return self._wrap_many(graph.drop(row, (a,)), () if weight is None else (weight,), called)._reduced(
      name, reduction, as_float(self.dtype))

  def multilabel_margin_loss(self, target: Any, reduction: str = "mean") -> Self:
    """How far scores (n, classes), or (classes,), of other classes come within 1 of those of a row's target: the sum over its
    classes y and all others i of max(0, 1 - x[y] + x[i]), divided by the number of classes; then reduced. The target has the
    scores' shape and is class indices, up to the first -1 of a row. Raises ShapeError, DTypeError, ArgumentError;
    IndexOutOfRangeError where the classes are known (lists, arrays, constants)."""
    name = "multilabel_margin_loss"
    if self.ndim not in (1, 2): raise ShapeError(f"{name}: predictions of shape {text(self)}; give (n, classes) or (classes,)")
    n = self.shape[-1]
    index = self._from_node(self._classes(name, self._target(name, target, n, -1), self.shape, n, -1))
    x: Any = self.named().cast(acc_dtype(as_float(self.dtype)))
    counts: Any = (index < 0).cumsum(-1, dtype="int32") < 1
    mine = (counts.unsqueeze(-1) & (index.unsqueeze(-1) == self._from_node(graph.iota(n)))).detach()   # (.., target, class)
    others = mine.any(-2).logical_not().unsqueeze(-2)
    scores = mine.where(x.unsqueeze(-2), 0.0).sum(-1, keepdim=True)
    rows = (counts.unsqueeze(-1) & others).where((1 - scores + x.unsqueeze(-2)).relu(), 0.0).sum((-2, -1)) / max(n, 1)
    rows._names = None if self._names is None else self._names[:-1]
    return rows._reduced(name, reduction, as_float(self.dtype))

  # ---- what losses of numbers share
  def _alike(self, *others: Any) -> Any:
    """This tensor and others as floats of the dtype that the loss is computed in, then the dtype that it has."""
    out: DType = promote(as_float(self.dtype), *[t.dtype for t in others])
    work = acc_dtype(out)
    return *[t.cast(work) for t in (self, *others)], out

  def _against(self, name: str, target: Any) -> Any:
    """The same of a target, which has this tensor's shape. Raises ShapeError."""
    return self._alike(self._same_shape(name, target))

  def _weighted(self, name: str, weight: Any) -> Any:
    """Elements of a loss, each times its weight (None: 1). Raises ShapeError for a weight that does not fit."""
    if weight is None: return self
    if broadcast_shape(name, self.shape, weight.shape) != self.shape:
      raise ShapeError(f"{name}: a weight of shape {text(weight)} for a loss of shape {text(self)}; it must broadcast to that")
    return self * weight.cast(self.dtype)

  # ---- distances
  def _loss_of(self, name: str, loss: Callable[[Any, Any], Any], target: Operand, reduction: str = "mean") -> Self:
    x, y, out = self._against(name, target)
    return loss(x, y)._reduced(name, reduction, out)

  def _elements(self, name: str, loss: Callable[[Any, Any], Any], target: Operand, weight: Any) -> Any:
    """Losses of elements, each times its weight (None: 1), the weights, and the dtype that the loss has."""
    x, y, out = self._against(name, target)
    if weight is None: return loss(x, y), None, out
    if weight.shape != x.shape:
      raise ShapeError(f"{name}: a weight of shape {text(weight)} for a loss of shape {text(x)}; they must be equal")
    w = weight.cast(x.dtype)
    return loss(x, y) * w, w, out

  @recalled
  def _weighed(self, name: str, loss: Callable[[Any, Any], Any], target: Operand, reduction: str = "mean",
               weight: Operand | None = None) -> Self:
    """``_loss_of`` whose mean is over the sum of the weights."""
    each, w, out = self._elements(name, loss, target, weight)
    if w is not None and reduction == "mean": each, reduction = each.sum() / w.sum(), "sum"
    return each._reduced(name, reduction, out)

  mse_loss = member(_weighed, lambda x, y: (x - y).square(), """
    (x - target)², reduced; with a weight for each element the mean is over the sum of the weights. Raises ShapeError.""")
  l1_loss = member(_weighed, lambda x, y: (x - y).abs(), """
    |x - target|, reduced; with a weight for each element the mean is over the sum of the weights. Raises ShapeError.""")
  soft_margin_loss = member(_loss_of, lambda x, y: (-y * x).softplus(), """
    log(1 + exp(-target * x)) for targets 1 and -1, without overflow, reduced. Raises ShapeError.""")

  def smooth_l1_loss(self, target: Operand, reduction: str = "mean", beta: float = 1.0) -> Self:
    """d² / (2 beta) where d = |x - target| is less than beta, d - beta / 2 elsewhere, reduced. Raises ShapeError,
    ArgumentError for a negative beta."""
    beta = _positive("smooth_l1_loss", "beta", beta, zero=True)
    if beta == 0: return self.l1_loss(target, reduction)
    return self._loss_of("smooth_l1_loss", lambda x, y: (x - y)._huber(beta) / beta, target, reduction)

  def huber_loss(self, target: Operand, reduction: str = "mean", delta: float = 1.0, weight: Operand | None = None) -> Self:
    """d² / 2 where d = |x - target| is less than delta, delta (d - delta / 2) elsewhere, times a weight for each element, reduced
    (Huber, Robust Estimation of a Location Parameter, 1964). Raises ShapeError, ArgumentError for a delta that is not above 0."""
    delta = _positive("huber_loss", "delta", delta)
    each, _, out = self._elements("huber_loss", lambda x, y: (x - y)._huber(delta), target, weight)
    return each._reduced("huber_loss", reduction, out)

  def _huber(self, delta: float) -> Any:
    """d²/2 for d = |x| up to delta, delta * (d - delta/2) from there: with m the lesser of d and delta, m * (d - m/2)."""
    d = self.abs()
    m = d.minimum(delta)
    return m * (d - m * 0.5)

  def pairwise_distance(self, x2: Operand, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Self:
    """The p-norm of x1 - x2 + eps along the last dim; the two broadcast. Raises ShapeError, ArgumentError."""
    x, y, out = self._alike(x2)
    return (x - y + real_number("pairwise_distance", "eps", eps)).norm(p, -1, keepdim).cast(out)

  def triplet_margin_loss(self, positive: Operand, negative: Operand, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
                          swap: bool = False, reduction: str = "mean") -> Self:
    """max(0, margin + distance to positive - distance to negative), reduced; (n, d) or (d,) each, distances as
    ``pairwise_distance`` has them (Balntas et al., Learning shallow convolutional feature descriptors with triplet losses, 2016).
    ``swap`` takes the lesser of the negative's distances to this tensor and to the positive. Raises ShapeError, ArgumentError."""
    return self._triplet("triplet_margin_loss", positive, negative, lambda a, b: a.pairwise_distance(b, p, eps), margin, swap,
                         reduction)

  def triplet_margin_with_distance_loss(self, positive: Operand, negative: Operand, *,
                                        distance_function: Callable[[Any, Any], Any] | None = None, margin: float = 1.0,
                                        swap: bool = False, reduction: str = "mean") -> Self:
    """``triplet_margin_loss`` with a distance of one's own, a function of two tensors of this shape (None: their Euclidean
    distance along the last dim). Raises ShapeError, ArgumentError."""
    name = "triplet_margin_with_distance_loss"
    def distance(a: Any, b: Any) -> Any:
      d = a.pairwise_distance(b) if distance_function is None else distance_function(a, b)
      if not isinstance(d, Base): raise ArgumentError(f"{name}: distance_function gave {shown(d)}; it must give a tensor")
      return d
    return self._triplet(name, positive, negative, distance, margin, swap, reduction)

  def _triplet(self, name: str, positive: Any, negative: Any, distance: Callable[[Any, Any], Any], margin: float, swap: bool,
               reduction: str) -> Self:
    if not self.ndim == positive.ndim == negative.ndim:
      raise ShapeError(f"{name}: shapes {text(self)}, {text(positive)} and {text(negative)}; they must have as many dimensions")
    x, near, far, out = self._alike(positive, negative)
    margin = _positive(name, "margin", margin)
    other = distance(x, far)
    if swap: other = other.minimum(distance(near, far))
    return (distance(x, near) - other + margin).relu()._reduced(name, reduction, out)

  def cosine_similarity(self, x2: Operand, dim: int | str = 1, eps: float = 1e-8) -> Self:
    """x1 · x2 / (|x1| |x2|) along a dim, each length at least eps; the two broadcast. Raises AxisError, ShapeError."""
    x, y, out = self._alike(x2)
    eps = real_number("cosine_similarity", "eps", eps)
    if isinstance(dim, str):   # the same dimension of both, counted from the last
      named = x if x._names is not None else y
      dim = named._dim("cosine_similarity", dim) - named.ndim
    n = max(x.ndim, y.ndim)
    x, y = [t if t.ndim == n else t.reshape((1,) * (n - t.ndim) + t.shape) for t in (x, y)]
    x, y = [t / t.norm(2, dim, True).maximum(eps) for t in (x, y)]
    return (x * y).sum(dim).cast(out)

  def cosine_embedding_loss(self, x2: Operand, target: Operand, margin: float = 0.0, reduction: str = "mean") -> Self:
    """1 - cosine for a target of 1, max(0, cosine - margin) for one of -1, reduced: (n, d) twice and target (n,), or (d,) and
    (). Raises ShapeError."""
    name = "cosine_embedding_loss"
    if self.ndim not in (1, 2) or x2.shape != self.shape or target.shape != self.shape[:-1]:
      raise ShapeError(f"{name}: shapes {text(self)}, {text(x2)} and a target of {text(target)}; give (n, d), (n, d) and (n,), "
                       "or (d,), (d,) and ()")
    x, y, out = self._alike(x2)
    cosine = (x * y).sum(-1) / (((x * x).sum(-1) + 1e-12) * ((y * y).sum(-1) + 1e-12)).sqrt()
    far = (target == -1).where((cosine - real_number(name, "margin", margin)).relu(), 0.0)
    return (target == 1).where(1 - cosine, far)._reduced(name, reduction, out)

  # ---- margins
  def hinge_embedding_loss(self, target: Operand, margin: float = 1.0, reduction: str = "mean") -> Self:
    """x where the target is 1, max(0, margin - x) where it is -1, reduced. Raises ShapeError."""
    x, y, out = self._against("hinge_embedding_loss", target)
    apart = (real_number("hinge_embedding_loss", "margin", margin) - x).relu()
    return ((y != 1).where(apart, 0.0) + (y != -1).where(x, 0.0))._reduced("hinge_embedding_loss", reduction, out)

  def margin_ranking_loss(self, input2: Operand, target: Operand, margin: float = 0.0, reduction: str = "mean") -> Self:
    """max(0, -target * (x1 - x2) + margin), reduced: a target of 1 wants x1 above x2, one of -1 below; they broadcast. Raises
    ShapeError."""
    x, y, t, out = self._alike(input2, target)
    loss = ((y - x) * t + real_number("margin_ranking_loss", "margin", margin)).relu()
    return loss._reduced("margin_ranking_loss", reduction, out)

  # ---- of probabilities
  def _bce(self, name: str, target: Operand, weight: Operand | None = None, reduction: str = "mean") -> Self:
    x, y, out = self._against(name, target)
    if name == "binary_cross_entropy":
      x = x._wrap(floats_within(x.lazydata, 0.0, 1.0, name, f"{{value}} at {{element}} of an input of shape {text(self)}, which "
                                f"takes probabilities, 0 to 1; of logits there is {name}_with_logits"))
    def log(x: Any) -> Any:
      least = (x >= 0) & (x <= math.exp(-100))
      return least.where(-100.0, least.where(1.0, x).log())
    return (-y * log(x) - (1 - y) * log(1 - x))._weighted(name, weight)._reduced(name, reduction, out)

  binary_cross_entropy = member(_bce, """
    -(y log x + (1 - y) log(1 - x)) for probabilities, times a weight that broadcasts, reduced. A logarithm is at least -100,
    without slope there. Raises ShapeError; ArgumentError for what is no probability, where the host next waits (as indices are
    checked).""")

  def binary_crossentropy(self, Y: Operand, reduction: str = "mean") -> Self:
    """``binary_cross_entropy`` by tinygrad's name, of tensors that broadcast; NaN of what is no probability. Raises
    ShapeError."""
    x, y = self._broadcast_with("binary_crossentropy", Y)
    return x._bce("binary_crossentropy", y, None, reduction)

  def _broadcast_with(self, name: str, Y: Any) -> tuple[Self, Any]:
    """This tensor and another one in the shape that they broadcast to."""
    y: Any = Y if isinstance(Y, Base) else operand(name, Y, self)
    shape = broadcast_shape(name, self.shape, y.shape)
    return self.expand(shape), y.expand(shape)

  @recalled
  def _bce_logits(self, name: str, target: Operand, weight: Operand | None = None, reduction: str = "mean",
                  pos_weight: Operand | None = None) -> Self:
    x, y, out = self._against(name, target)
    loss = x.softplus() - x * y if pos_weight is None else (
      (x.neg().softplus() * y)._weighted(name, pos_weight) + x.softplus() * (1 - y))
    return loss._weighted(name, weight)._reduced(name, reduction, out)

  binary_cross_entropy_with_logits = member(_bce_logits, """
    Binary cross entropy of sigmoid(x), without overflow, times a weight, reduced; ``pos_weight`` is a factor of the part for the
    target. Both weights broadcast to the loss. Raises ShapeError.""")

  def binary_crossentropy_logits(self, Y: Operand, reduction: str = "mean", pos_weight: Operand | None = None) -> Self:
    """``binary_cross_entropy_with_logits`` by tinygrad's name, of tensors that broadcast. Raises ShapeError."""
    x, y = self._broadcast_with("binary_crossentropy_logits", Y)
    return x._bce_logits("binary_crossentropy_logits", y, None, reduction, pos_weight)

  def multilabel_soft_margin_loss(self, target: Operand, weight: Operand | None = None, reduction: str = "mean") -> Self:
    """Binary cross entropy of sigmoid(x), times a weight a class, its mean over the last dim, reduced. Raises ShapeError."""
    return self._loss_of("multilabel_soft_margin_loss", lambda x, y: (x.softplus() - x * y)._weighted(
      "multilabel_soft_margin_loss", weight).mean(-1), target, reduction)

  def kl_div(self, target: Operand, reduction: str = "mean", log_target: bool = False) -> Self:
    """target * (log(target) - x) for log probabilities x, 0 log 0 being 0; ``log_target``: the target is a logarithm too. The
    reduction "batchmean" is the sum divided by the size of dimension 0: the divergence itself, a row. Raises ShapeError,
    ArgumentError."""
    x, y, out = self._against("kl_div", target)
    loss = y.exp() * (y - x) if log_target else y * (y == 0).where(1.0, y).log() - y * x
    if reduction != "batchmean": return loss._reduced("kl_div", reduction, out)
    return (loss.sum() / self.shape[0] if self.ndim else loss.sum()).cast(out)

  def gaussian_nll_loss(self, target: Operand, var: Operand, full: bool = False, eps: float = 1e-6,
                        reduction: str = "mean") -> Self:
    """(log(var) + (x - target)² / var) / 2 for predicted means and variances, reduced; ``full`` adds log(2 pi) / 2. ``var`` has
    the shape of x, or 1 as its last size, or lacks that dim, or is a number; it counts as eps at least, gradients passing as if
    it did not (Nix and Weigend, Estimating the mean and variance of the target probability distribution, 1994). Raises
    ShapeError, ArgumentError for an eps that is not above 0."""
    name = "gaussian_nll_loss"
    x, y, v, out = self._alike(self._same_shape(name, target), var)
    eps = _positive(name, "eps", eps)
    if v.ndim and v.shape != x.shape:
      if v.shape == x.shape[:-1]: v = v.unsqueeze(-1)
      if v.shape != (*x.shape[:-1], 1):
        raise ShapeError(f"{name}: variances of shape {text(var)} for predictions of {text(self)}; give that shape, or without "
                         "or with 1 as the last size")
    v = v + (v < eps).where(eps - v, 0.0).detach()
    loss = (v.log() + (x - y).square() / v) * 0.5
    return (loss + 0.5 * math.log(2 * math.pi) if full else loss)._reduced(name, reduction, out)

  def poisson_nll_loss(self, target: Operand, log_input: bool = True, full: bool = False, eps: float = 1e-8,
                       reduction: str = "mean") -> Self:
    """exp(x) - target * x for the logarithm x of a rate, or x - target * log(x + eps) for a rate, reduced; ``full`` adds
    Stirling's approximation of log(target!) where the target is above 1. Raises ShapeError."""
    x, y, out = self._against("poisson_nll_loss", target)
    loss = x.exp() - y * x if log_input else x - y * (x + real_number("poisson_nll_loss", "eps", eps)).log()
    if full:
      many = y > 1
      t = many.where(y, 2.0)
      loss = loss + many.where(t * t.log() - t + 0.5 * (2 * math.pi * t).log(), 0.0)
    return loss._reduced("poisson_nll_loss", reduction, out)
