"""What belongs to layers but is none, where PyTorch has it: ``nn.utils.checkpoint``, ``.data``, ``.rnn``, ``.parametrize``,
``.clip_grad_norm_``."""
# ruff: noqa: F401 - what is handed on
from typing import TYPE_CHECKING

from ntgrad.compat.public import show

from .fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights
from .gradients import clip_grad_norm_, clip_grad_value_, get_total_norm, parameters_to_vector, vector_to_parameters
from .weights import remove_weight_norm, weight_norm

if TYPE_CHECKING:
  from . import checkpoint, data, parametrizations, rnn

_FILES = "checkpoint", "data", "fusion", "parametrizations", "parametrize", "rnn"
__all__ = ["clip_grad_norm_", "clip_grad_value_", "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval",
           "fuse_linear_bn_weights", "get_total_norm", "parameters_to_vector", "remove_weight_norm", "vector_to_parameters",
           "weight_norm"]

show(__name__)
