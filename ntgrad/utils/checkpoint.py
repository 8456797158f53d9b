"""``checkpoint`` under the name that PyTorch has for it."""
from ntgrad.custom import checkpoint
from ntgrad.public import show

__all__ = ["checkpoint"]

show(__name__)
