"""The loss that is no method of Tensor."""
from __future__ import annotations

from typing import Any

from ntgrad.tensor import Tensor

from .made import Layer, layer


@layer
class CTCLoss(Layer):
  """What it costs to say labels in sequences of log probabilities (steps, n, classes), over all ways to repeat labels and put
  ``blank`` between them; "mean" divides by the number of labels first. See :func:`nn.functional.ctc_loss`."""
  blank: int = 0
  reduction: str = "mean"
  zero_infinity: bool = False

  def __call__(self, log_probs: Tensor, targets: Any, input_lengths: Any, target_lengths: Any) -> Tensor:
    """The loss, of targets (n, most labels) or all labels in a row, and lengths (n,). Raises ShapeError, DTypeError,
    ArgumentError."""
    from .functional import ctc_loss
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)
