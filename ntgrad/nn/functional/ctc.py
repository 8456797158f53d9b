"""Connectionist temporal classification: a sequence of labels against a longer one of predictions, over all alignments."""
from __future__ import annotations

from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, DTypeError, GradientError, ShapeError, dtypes
from ntgrad.graph import Operand, checked, text
from ntgrad.graph.nodes import acc_dtype
from ntgrad.tensor import Tensor
from ntgrad.tensor.custom import ruled

_NAME = "ctc_loss"


@checked
def ctc_loss(log_probs: Tensor, targets: Operand, input_lengths: Operand, target_lengths: Operand, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
  """The negative log likelihood of labels under log probabilities (steps, n, classes), or (steps, classes), summed over all ways
  to repeat labels and put blanks between them (Graves et al., Connectionist Temporal Classification, 2006).

  Targets are (n, most labels), or all labels one after the other (their lengths are read then); the lengths are (n,), or numbers
  for one sample. "mean" divides each loss by its number of labels first. A sequence too short for its labels costs inf, or 0
  with ``zero_infinity``, without gradient. Small floats are computed in float32. The gradient is that of the loss as a function
  of ``log_probs``: PyTorch's adds what vanishes behind ``log_softmax``; it has none itself. Raises ShapeError,
  DTypeError, ArgumentError; GradientError for the gradient of a gradient, IndexOutOfRangeError for a label that is no class.
  """
  from .ctc_kernels import NEVER  # with it all of the tile language is imported
  one = log_probs.ndim == 2
  if log_probs.ndim not in (2, 3):
    raise ShapeError(f"{_NAME}: log_probs of shape {text(log_probs)}; give (steps, n, classes) or (steps, classes)")
  if log_probs.dtype.kind != "f": raise DTypeError(f"{_NAME}: log_probs of {log_probs.dtype.name}; it takes floats")
  x: Any = log_probs.named().cast(acc_dtype(log_probs.dtype))
  if one: x = x.unsqueeze(1)
  steps, n, classes = x.shape
  if not 0 <= blank < classes: raise ArgumentError(f"{_NAME}: blank {blank}; it goes from 0 to {classes - 1}")
  for what, t in ("input_lengths", input_lengths), ("target_lengths", target_lengths):
    if t.dtype.kind not in "iu": raise DTypeError(f"{_NAME}: {what} of {t.dtype.name}; they must be ints")
    if t.shape != (n,) and (n != 1 or t.shape != ()):
      raise ShapeError(f"{_NAME}: {what} of shape {text(t)} for {n} samples; give ({n},)")
  input_lengths, target_lengths = [t.named().reshape(n).cast(dtypes.int32) for t in (input_lengths, target_lengths)]
  last = _likelihood(x, _labels(targets, target_lengths, n), input_lengths, target_lengths, blank)
  loss = (last < 0.5 * NEVER).where(0.0 if zero_infinity else float("inf"), -last)
  if reduction == "mean": loss = loss / target_lengths.maximum(1).cast(loss.dtype)
  loss = loss._reduced(_NAME, reduction, log_probs.dtype)
  return loss.squeeze(0) if one and reduction == "none" else loss


def _labels(targets: Any, lengths: Any, n: int) -> Any:
  """Labels as (n, most). Those that follow each other are counted off by their lengths."""
  if targets.dtype.kind not in "iu": raise DTypeError(f"{_NAME}: targets of {targets.dtype.name}; they must be ints")
  targets = targets.named().cast(dtypes.int32)
  if targets.ndim == 2 and targets.shape[0] == n: return targets
  if targets.ndim != 1:
    raise ShapeError(f"{_NAME}: targets of shape {text(targets)} for {n} samples; give ({n}, most labels) or all in one row")
  if n == 1: return targets.unsqueeze(0)
  counts = np.array(lengths.tolist(), np.int64)
  if counts.sum() != targets.shape[0] or (counts < 0).any():
    raise ShapeError(f"{_NAME}: {targets.shape[0]} labels in a row with target_lengths {counts.tolist()}; they must add up")
  start = counts.cumsum() - counts
  place = start[:, None] + np.minimum(np.arange(counts.max(initial=0))[None], np.maximum(counts - 1, 0)[:, None])
  if not place.size: return targets.reshape(n, 0)
  return targets[Tensor(np.minimum(place, targets.shape[0] - 1).astype(np.int32), device=targets.device)]


def _likelihood(x: Any, labels: Any, input_lengths: Any, target_lengths: Any, blank: int) -> Any:
  """The log likelihood of each sample's labels, (n,)."""
  from .ctc_kernels import made
  steps, n, classes = x.shape
  if 0 in x.shape: x = x.new_zeros(max(steps, 1), n, classes) + x.sum()
  if not n: return x.sum((0, 2))
  if not labels.shape[1]: labels = labels.zeros(n, 1, dtype=labels.dtype, device=x.device)
  most = labels.shape[1]
  said = Tensor.arange(most, device=x.device) < target_lengths.unsqueeze(1)
  # the place of each label among classes: what is none of them is found
  labels = Tensor.arange(classes, device=x.device).gather(0, said.where(labels, blank).reshape(-1)).reshape(n, most)
  sizes = Tensor.stack([input_lengths, target_lengths], dim=1)
  forward, backward = made(max(16, 1 << (2 * most).bit_length()))
  def rule(grads: Any, xs: Any, outs: Any) -> Any:
    x, sizes, said, alpha, total = [t.detach() for t in (*xs, *outs[1:])]
    # which part of all ways to say the labels is in each state after each step: (steps, n, states)
    share = backward(x, sizes, blank, said, alpha, total)
    share = ruled([share], xs[:1], _refused)[0] * grads[0].reshape(1, -1, 1)
    return x.zeros_like().scatter_add(2, said.unsqueeze(0).expand(share.shape), share), None

  said, alpha, total = forward(x.detach(), labels, sizes, blank)
  return ruled([total.squeeze(1), said, alpha, total], [x, sizes], rule)[0]


def _refused(*_: Any) -> Any: raise GradientError(f"{_NAME}: its gradient has no gradient itself")


__all__ = ["ctc_loss"]
