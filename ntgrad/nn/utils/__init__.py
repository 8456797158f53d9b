"""What belongs to layers but is none, where PyTorch has it: ``nn.utils.checkpoint``, ``.data``, ``.rnn``,
``.clip_grad_norm_``."""
# ruff: noqa: F401 - what is handed on
from typing import TYPE_CHECKING

from ntgrad.compat.public import show

from .gradients import clip_grad_norm_, clip_grad_value_, get_total_norm, parameters_to_vector, vector_to_parameters

if TYPE_CHECKING:
  from . import checkpoint, data, rnn

_FILES = "checkpoint", "data", "rnn"
__all__ = ["clip_grad_norm_", "clip_grad_value_", "get_total_norm", "parameters_to_vector", "vector_to_parameters"]

show(__name__)
