"""``checkpoint`` under the name that PyTorch has for it."""
from ntgrad.compat.public import show
from ntgrad.tensor.custom import checkpoint

__all__ = ["checkpoint"]

show(__name__)
