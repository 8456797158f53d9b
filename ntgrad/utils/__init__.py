"""``torch.utils``: ``data``, ``checkpoint``."""
from typing import TYPE_CHECKING

from ntgrad.compat.public import show

if TYPE_CHECKING:
  from . import checkpoint as checkpoint, data as data

__all__ = _FILES = ["checkpoint", "data"]

show(__name__)
