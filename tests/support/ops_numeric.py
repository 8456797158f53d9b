"""The table of operations, continued: Numeric."""
from __future__ import annotations
