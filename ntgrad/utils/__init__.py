"""``torch.utils``: ``data``, ``checkpoint``, ``hooks``. ``command`` is ``python -m ntgrad``."""
# ruff: noqa: F401 - what is handed on
from typing import TYPE_CHECKING

from ntgrad.compat.public import show

if TYPE_CHECKING:
  from . import checkpoint, data, hooks

__all__ = _FILES = ["checkpoint", "data", "hooks"]

show(__name__)
