"""CUDA through Triton: linear UOps become Triton Python (``renderer``), that a cubin (``compiler``); ``interpreter`` runs it
without a GPU. Nothing here is imported by ``import ntgrad``, and triton itself only when a kernel is compiled or interpreted."""
