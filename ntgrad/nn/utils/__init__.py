"""What belongs to layers but is none, where PyTorch has it: ``nn.utils.checkpoint``, ``nn.utils.clip_grad_norm_``."""
from .gradients import clip_grad_norm_, clip_grad_value_, get_total_norm, parameters_to_vector, vector_to_parameters

__all__ = ["clip_grad_norm_", "clip_grad_value_", "get_total_norm", "parameters_to_vector", "vector_to_parameters"]
