"""CUDA through Triton: linear UOps become Triton Python (``renderer``), that a cubin (``compiler``); ``interpreter`` runs it
without a GPU. Nothing here is imported by ``import ntgrad``, and triton itself only when a kernel is compiled or interpreted."""
from __future__ import annotations

from importlib import import_module
from typing import Any


def is_built() -> bool:
  """Whether kernels can be made for CUDA: True, as ``torch.backends.cuda`` is asked for it."""
  return True


def _kind_enabled() -> bool:
  """True: attention is what its expression is, fused as far as kernels go."""
  return True


def _enable_kind(enabled: bool) -> None:
  """Nothing: PyTorch chooses among its kernels of attention by it."""


flash_sdp_enabled = mem_efficient_sdp_enabled = math_sdp_enabled = cudnn_sdp_enabled = _kind_enabled
enable_flash_sdp = enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = _enable_kind


def __getattr__(name: str) -> Any:
  if name != "matmul": raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return import_module(".matmul", __name__)
