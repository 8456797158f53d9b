"""The table of operations, continued: Products."""
from __future__ import annotations
