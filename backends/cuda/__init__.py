"""CUDA through Triton: linear UOps become Triton Python (``renderer``), that a cubin (``compiler``); ``interpreter`` runs it
without a GPU. Nothing here is imported by ``import ntgrad``, and triton itself only when a kernel is compiled or interpreted."""
from __future__ import annotations

from ntgrad.codegen.ir import config


class _Matmul:
  """``torch.backends.cuda.matmul``: ``allow_tf32`` is ``config.allow_tf32``; products of 16 bits are summed in float32 anyhow."""
  allow_fp16_reduced_precision_reduction = allow_bf16_reduced_precision_reduction = False
  @property
  def allow_tf32(self) -> bool: return bool(config.allow_tf32)
  @allow_tf32.setter
  def allow_tf32(self, value: bool) -> None: config.allow_tf32 = bool(value)


matmul = _Matmul()


def is_built(enabled: bool = True) -> bool:
  """True: kernels can be made for CUDA. Attention is what its expression is: choosing one of PyTorch's kernels does nothing."""
  return True


enable_flash_sdp = enable_math_sdp = enable_mem_efficient_sdp = is_built
