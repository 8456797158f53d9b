"""What registering a hook gives, under the name that PyTorch has for it."""
from ntgrad.compat.public import show
from ntgrad.graph.hooks import RemovableHandle

__all__ = ["RemovableHandle"]

show(__name__)
