"""The table of operations, continued: Spatial."""
from __future__ import annotations
