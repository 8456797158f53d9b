"""``checkpoint`` under the name that PyTorch has for it."""
from ntgrad.custom import checkpoint

__all__ = ["checkpoint"]
