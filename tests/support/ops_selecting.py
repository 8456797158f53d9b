"""The table of operations, continued: Selecting."""
from __future__ import annotations
