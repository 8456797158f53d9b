"""The table of operations, continued: Linalg."""
from __future__ import annotations
