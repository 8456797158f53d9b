"""What belongs to layers but is none, where PyTorch has it: ``nn.utils.checkpoint``, ``.data``, ``.clip_grad_norm_``."""
from typing import TYPE_CHECKING

from ntgrad.compat.public import show

from .gradients import clip_grad_norm_, clip_grad_value_, get_total_norm, parameters_to_vector, vector_to_parameters

if TYPE_CHECKING:
  from . import checkpoint as checkpoint, data as data

_FILES = "checkpoint", "data"
__all__ = ["clip_grad_norm_", "clip_grad_value_", "get_total_norm", "parameters_to_vector", "vector_to_parameters"]

show(__name__)
