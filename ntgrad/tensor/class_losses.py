"""Losses of predictions over classes: cross entropy, negative log likelihood, margins between classes.

Class indices that are none of the classes raise IndexOutOfRangeError: at once where they are known (lists, arrays, constants),
and else when the loss is computed, where indices are checked (``engine/bounds.py``; ``config.check_indices``). Unchecked, such a
row's loss is NaN.
"""
from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from ntgrad.codegen.ir.dtype import as_float
from ntgrad.codegen.ir.errors import ArgumentError, ShapeError
from ntgrad.codegen.ir.uop import UOp
from ntgrad.core import Base, real_number
from ntgrad.engine.bounds import known_class, no_class, within
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import Operand, checked, of_kind, operand
from ntgrad.graph.names import fit_aligned, merged, text

from .activation import Activation
from .elementwise import common_device
from .movement import Movement
from .reduction import Reduction


def _of_class(chosen: UOp, u: UOp, axis: int) -> UOp:
  """What each row has, along an axis, at its class."""
  return graph.total(graph.where(chosen, graph.broadcast(u, chosen.shape), 0.0), (axis,))


@checked
class ClassLosses(Activation, Reduction, Movement):
  """Losses of predictions over classes."""
  __slots__ = ()

  # ---- what every loss needs
  def _reduced(self, name: str, how: str) -> Self:
    if how == "mean": return self.mean()
    if how == "sum": return self.sum()
    if how == "none": return self
    raise ArgumentError(f"{name}: reduction {how!r}; it takes 'mean', 'sum' or 'none'")

  def _float(self) -> Any: return as_float(self.dtype)

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

  def _classes(self, name: str, Y: Any, rows: tuple[int, ...], n: int, ignore: int | None) -> UOp:
    """Class indices of shape ``rows`` in a dtype that holds n, the number of classes, and the index that is ignored.

    Raises ShapeError, DTypeError, and IndexOutOfRangeError where a number that every row has is no class.
    """
    u: UOp = Y.lazydata
    if u.shape != rows:
      raise ShapeError(
        f"{name}: class indices of shape {text(Y)} for predictions of {text(self)}; they must have shape {rows}"
      )
    of_kind("iu", name, "class indices", u, "they must be ints")
    common_device(name, self.lazydata, u)
    known_class(name, u, n, ignore)
    index = graph.index_of(u, max(n, abs(ignore or 0) + 1))
    return within(index, 0, n, name, f"the {n} classes, which go from 0 to {n - 1}", self.lazydata.device, ignore)

  def _weight(self, name: str, weight: Any, u: UOp, axis: int) -> UOp | None:
    """A weight for each class in the dtype of u, along dim ``axis`` of as many dims. Raises ShapeError."""
    if weight is None: return None
    n = u.shape[axis]
    if weight.shape != (n,):
      raise ShapeError(f"{name}: a weight of shape {weight.shape} for {n} classes; it must be ({n},)")
    common_device(name, u, weight.lazydata)
    w = graph.cast(weight.lazydata, as_float(u.dtype))
    return graph.reshape(w, (1,) * axis + (n,) + (1,) * (len(u.shape) - axis - 1))

  def _chosen(self, index: UOp, s: tuple[int, ...], axis: int) -> UOp:
    """Where along ``axis`` of a shape the index of each row is."""
    return graph.eq(graph.cast(graph.index_along(axis, s), index.dtype), graph.expand(index, s))

  def _class_loss(self, name: str, u: UOp, axis: int, Y: Any, ignore_index: int | None, smoothing: float, how: str,
                  logits: bool, weight: Any = None) -> Self:
    """Loss of class indices Y, one a row (u with dim ``axis`` taken out): reduced over classes first, then over rows."""
    s = u.shape
    if not 0 <= smoothing <= 1: raise ArgumentError(f"{name}: label_smoothing = {smoothing}; it must be from 0 to 1")
    rows, kept = s[:axis] + s[axis + 1:], s[:axis] + (1,) + s[axis + 1:]
    index = graph.reshape(self._classes(name, Y, rows, s[axis], ignore_index), kept)
    chosen = self._chosen(index, s, axis)
    w = self._weight(name, weight, u, axis)
    log_total = mine = None
    if logits:
      u, _, total = self._shifted(u, axis)
      log_total = graph.log(total)
      if w is not None: u, log_total = graph.sub(u, graph.expand(log_total, s)), None   # log probabilities
    row = _of_class(chosen, u, axis)
    if w is not None:
      mine = _of_class(chosen, w, axis)
      row = graph.mul(mine, row)
    if smoothing:
      mean = self._mean_node(u if w is None else graph.mul(graph.expand(w, s), u), (axis,))
      row = graph.add(graph.mul(row, 1 - smoothing), graph.mul(mean, smoothing))
    row = graph.neg(row) if log_total is None else graph.sub(log_total, row)
    row = graph.where(graph.inside(index, s[axis]), row, math.nan)
    called = None
    if self._names is not None or Y._names is not None:
      n = len(rows)
      called = merged(name, (self, Y), ([*range(axis), None, *range(axis, n)], range(n)), n)

    def as_rows(node: UOp) -> Any: return self._wrap_many(graph.reshape(node, rows), () if weight is None else (weight,), called)

    used = None
    if ignore_index is not None:
      used = graph.ne(index, ignore_index)
      row = graph.where(used, row, 0.0)
    loss: Any = as_rows(row)
    if how != "mean" or (used is None and mine is None):
      # without a mean over the rows that count, one may be rounded before it is reduced
      return loss.cast(self._float())._reduced(name, how) if used is None else loss._reduced(name, how).cast(self._float())
    if mine is None:
      assert used is not None
      return (loss.sum() / self._from_node(graph.reshape(used, rows)).sum().cast(loss.dtype)).cast(self._float())
    if used is not None: mine = graph.where(used, mine, 0.0)
    return (loss.sum() / as_rows(mine).sum()).cast(self._float())

  # ---- the losses
  def sparse_categorical_crossentropy(self, Y: Any, ignore_index: int = -1, label_smoothing: float = 0.0,
                                      reduction: str = "mean") -> Self:
    """Cross entropy of logits (.., classes) with class indices (..,); rows whose index is ignore_index do not count.

    The loss of a row whose index is no class is NaN. Raises ShapeError, DTypeError;
    IndexOutOfRangeError where the classes are known (lists, arrays, constants).
    """
    if not self.ndim: raise ShapeError("sparse_categorical_crossentropy: logits of shape (); they have a dimension of classes")
    u, a, _ = self._rows("sparse_categorical_crossentropy", -1)
    Y = self._target("sparse_categorical_crossentropy", Y, u.shape[a], ignore_index)
    return self._class_loss("sparse_categorical_crossentropy", u, a, Y, ignore_index, label_smoothing, reduction, True)

  def cross_entropy(self, target: Any, reduction: str = "mean", label_smoothing: float = 0.0, ignore_index: int | None = None,
                    weight: Operand | None = None) -> Self:
    """Cross entropy of logits (n, classes, ..) with class indices (n, ..) or probabilities of the logits' shape; logits
    (classes,) are one row.

    ``weight`` (classes,) is a factor for each class; the mean over class indices is then divided by the sum of the rows' weights,
    that over probabilities by the number of rows. Rows whose index is ignore_index do not count (None: every row does; PyTorch
    ignores -100); the mean over no rows is NaN, as is the loss of a row whose index is no class. Raises ShapeError, DTypeError,
    ArgumentError; IndexOutOfRangeError where the classes are known (lists, arrays, constants).
    """
    name = "cross_entropy"
    u, a, _ = self._rows(name, 0 if self.ndim == 1 else 1)
    Y = self._target(name, target, u.shape[a], ignore_index)
    if Y.ndim == self.ndim - 1: return self._class_loss(name, u, a, Y, ignore_index, label_smoothing, reduction, True, weight)
    Y = self._same_shape(name, Y)
    if ignore_index is not None and ignore_index >= 0:
      raise ArgumentError(f"{name}: ignore_index = {ignore_index} with probabilities; it is for class indices")
    if not 0 <= label_smoothing <= 1: raise ArgumentError(f"{name}: label_smoothing = {label_smoothing}; it must be from 0 to 1")
    y = Y.cast(graph.acc_dtype(self._float()))
    if label_smoothing: y = y * (1 - label_smoothing) + label_smoothing / max(self.shape[a], 1)
    w = self._weight(name, weight, u, a)
    if weight is not None and w is not None: y = y * weight._wrap(w)
    rows = -(self.cast(y.dtype).log_softmax(a) * y).sum(a)
    return rows._reduced(name, reduction).cast(self._float())

  def nll_loss(self, target: Any, weight: Operand | None = None, ignore_index: int | None = None,
               reduction: str = "mean") -> Self:
    """The negative of log probabilities (n, classes, ..) at class indices (n, ..), with a weight a class, by whose sum over the
    rows the mean is divided.

    Rows whose index is ignore_index do not count; the loss of a row whose index is no class is NaN. Raises ShapeError,
    DTypeError; IndexOutOfRangeError where the classes are known (lists, arrays, constants).
    """
    u, a, _ = self._rows("nll_loss", 0 if self.ndim == 1 else 1)
    Y = self._target("nll_loss", target, u.shape[a], ignore_index)
    return self._class_loss("nll_loss", u, a, Y, ignore_index, 0.0, reduction, False, weight)

  def multi_margin_loss(self, target: Any, p: int = 1, margin: float = 1.0, weight: Operand | None = None,
                        reduction: str = "mean") -> Self:
    """How far scores (n, classes), or (classes,), of other classes come within ``margin`` of the score of the class index (n,):
    the mean over classes of weight[y] max(0, margin - x[y] + x[i]) ** p for i != y, with p 1 or 2.

    Raises ShapeError, DTypeError, ArgumentError; IndexOutOfRangeError where the classes are known.
    """
    name = "multi_margin_loss"
    if p not in (1, 2): raise ArgumentError(f"{name}: p = {p}; it takes 1 or 2")
    if self.ndim not in (1, 2): raise ShapeError(f"{name}: predictions of shape {text(self)}; give (n, classes) or (classes,)")
    u, a, _ = self._rows(name, -1)
    s = u.shape
    Y = self._target(name, target, s[a])
    index = graph.reshape(self._classes(name, Y, s[:-1], s[a], None), (*s[:-1], 1))
    chosen = self._chosen(index, s, a)
    mine = graph.expand(_of_class(chosen, u, a), s)
    each = graph.add(graph.sub(u, mine), real_number(name, "margin", margin))
    each = graph.where(chosen, 0.0, graph.maximum(each, 0.0))
    if p == 2: each = graph.mul(each, each)
    w = self._weight(name, weight, u, a)
    if w is not None: each = graph.mul(each, graph.expand(_of_class(chosen, w, a), s))
    row = graph.where(graph.inside(index, s[a]), self._mean_node(each, (a,)), math.nan)
    called = merged(name, (self, Y), ([*range(a), None], range(a)), a)
    rows = self._wrap_many(graph.drop(row, (a,)), () if weight is None else (weight,), called)
    return rows._reduced(name, reduction).cast(self._float())

  def multilabel_margin_loss(self, target: Any, reduction: str = "mean") -> Self:
    """How far scores (n, classes), or (classes,), of other classes come within 1 of those of a row's target: the sum over its
    classes y and all others i of max(0, 1 - x[y] + x[i]), divided by the number of classes; then reduced.

    The target has the scores' shape and is class indices, up to the first -1 of a row. Raises ShapeError, DTypeError,
    ArgumentError; IndexOutOfRangeError where the classes are known (lists, arrays, constants).
    """
    name = "multilabel_margin_loss"
    if self.ndim not in (1, 2): raise ShapeError(f"{name}: predictions of shape {text(self)}; give (n, classes) or (classes,)")
    n = self.shape[-1]
    Y = self._target(name, target, n, -1)
    index = self._from_node(self._classes(name, Y, self.shape, n, -1))
    x: Any = self.named().cast(graph.acc_dtype(self._float()))
    counts: Any = (index < 0).cumsum(-1, dtype="int32") < 1
    mine = (counts.unsqueeze(-1) & (index.unsqueeze(-1) == self._from_node(graph.iota(n)))).detach()   # (.., target, class)
    others = mine.any(-2).logical_not().unsqueeze(-2)
    scores = mine.where(x.unsqueeze(-2), 0.0).sum(-1, keepdim=True)
    each = (counts.unsqueeze(-1) & others).where((1 - scores + x.unsqueeze(-2)).relu(), 0.0)
    rows = each.sum((-2, -1)) / max(n, 1)
    rows._names = None if self._names is None else self._names[:-1]
    total: Self = rows._reduced(name, reduction)
    return total.cast(self._float())
