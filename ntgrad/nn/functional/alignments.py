"""Connectionist temporal classification: a sequence of labels against a longer one of predictions, over all alignments."""
from __future__ import annotations

from typing import Any

import numpy as np

from ntgrad.checks import Operand, checked
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.graph import acc_dtype
from ntgrad.names import text
from ntgrad.tensor import Tensor

_NAME = "ctc_loss"
_NEVER = -1e30   # the logarithm of no probability: finite, so that gradients are numbers


@checked
def ctc_loss(log_probs: Tensor, targets: Operand, input_lengths: Operand, target_lengths: Operand, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
  """The negative log likelihood of labels under log probabilities (steps, n, classes), or (steps, classes), summed over all ways
  to repeat labels and put blanks between them (Graves et al., Connectionist Temporal Classification, 2006).

  Targets are (n, most labels), or all labels one after the other (their lengths are read then); the lengths are (n,), or numbers
  for one sample. "mean" divides each loss by its number of labels first. A sequence too short for its labels costs inf, or 0
  with ``zero_infinity``, without gradient. Small floats are computed in float32. The gradient is that of the loss as a function
  of ``log_probs``: PyTorch's adds what vanishes behind ``log_softmax``. One step follows the other: what is compiled, at the
  first call, grows with the sequence. Raises ShapeError, DTypeError, ArgumentError; IndexOutOfRangeError for a label that is no
  class.
  """
  one = log_probs.ndim == 2
  if log_probs.ndim not in (2, 3):
    raise ShapeError(f"{_NAME}: log_probs of shape {text(log_probs)}; give (steps, n, classes) or (steps, classes)")
  if log_probs.dtype.kind != "f": raise DTypeError(f"{_NAME}: log_probs of {log_probs.dtype.name}; it takes floats")
  x: Any = log_probs.named().cast(acc_dtype(log_probs.dtype))
  if one: x = x.unsqueeze(1)
  steps, n, classes = x.shape
  if not 0 <= blank < classes: raise ArgumentError(f"{_NAME}: blank {blank}; it goes from 0 to {classes - 1}")
  if reduction not in ("mean", "sum", "none"):
    raise ArgumentError(f"{_NAME}: reduction {reduction!r}; it takes 'mean', 'sum' or 'none'")
  input_lengths, target_lengths = [_lengths(what, t, n) for what, t in (
    ("input_lengths", input_lengths), ("target_lengths", target_lengths))]
  labels = _labels(targets, target_lengths, n)
  last = _forward(x, labels, input_lengths, target_lengths, blank)
  impossible = last < 0.5 * _NEVER
  loss = impossible.where(0.0 if zero_infinity else float("inf"), -last)
  if reduction == "mean": loss = loss / target_lengths.maximum(1).cast(loss.dtype)
  loss = loss._reduced(_NAME, reduction).cast(log_probs.dtype)
  return loss.squeeze(0) if one and reduction == "none" else loss


def _lengths(what: str, t: Any, n: int) -> Any:
  """Lengths as (n,) ints."""
  if t.dtype.kind not in "iu": raise DTypeError(f"{_NAME}: {what} of {t.dtype.name}; they must be ints")
  if t.shape != (n,) and (n != 1 or t.shape != ()):
    raise ShapeError(f"{_NAME}: {what} of shape {text(t)} for {n} samples; give ({n},)")
  return t.named().reshape(n).cast(dtypes.int32)


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


def _forward(x: Any, labels: Any, input_lengths: Any, target_lengths: Any, blank: int) -> Any:
  """The log likelihood of each sample.

  ``between[s]`` is that of all ways to say s labels and a blank, ``at[s]`` of those that have just said label s. A step stays, or
  goes on; from one label to the next without a blank between, where they differ.
  """
  steps, n, _ = x.shape
  most = labels.shape[1]
  number = Tensor.arange(most + 1, device=x.device).unsqueeze(0)
  ends = target_lengths.unsqueeze(1)
  labels = (number[:, :most] < ends).where(labels, blank)
  say = x.gather(2, labels.unsqueeze(0).expand(steps, n, most))
  rest = x[:, :, blank:blank + 1]
  before = labels.pad((1, -1), value=-1) if most else labels
  fresh = labels != before
  between = (number == 0).where(0.0, _NEVER).expand(n, most + 1).cast(x.dtype)
  at = Tensor.full((n, most), _NEVER, dtype=x.dtype, device=x.device)
  for t in range(steps):
    goes = input_lengths.unsqueeze(1) > t
    last = at.pad((1, 0), value=_NEVER)
    stay = _either(between, last) + rest[t]
    at = goes.where(_either(at, between[:, :most], fresh.where(last[:, :most], _NEVER)) + say[t], at)
    between = goes.where(stay, between)
  ended = (number == ends).where(between, _NEVER)
  said = (number == ends).where(at.pad((1, 0), value=_NEVER), _NEVER)
  return _either(ended.max(1), said.max(1))


def _either(*terms: Any) -> Any:
  """log(exp(a) + exp(b) + ..)."""
  top = terms[0]
  for t in terms[1:]: top = top.maximum(t)
  top = top.detach()
  total: Any = 0
  for t in terms: total = total + (t - top).exp()
  return top + total.log()


__all__ = ["ctc_loss"]
