"""The table of operations, continued: Losses."""
from __future__ import annotations
