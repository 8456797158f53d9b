"""The whole table of operations: ``ops`` and the files that continue it."""
from __future__ import annotations

from . import ops_further, ops_linalg, ops_losses, ops_numeric, ops_products, ops_selecting, ops_spatial  # noqa: F401
from .ops import ROWS, Row, values

FAMILIES = list(dict.fromkeys(r.family for r in ROWS))
COMPOSED = frozenset(r.family for r in ROWS if r.composed)   # made of operations that have rows of their own

__all__ = ["COMPOSED", "FAMILIES", "ROWS", "Row", "values"]
