"""Heuristics: which Opts make a kernel fast on a target."""
from __future__ import annotations


from typing import Any

from .kernel import Kernel


def optimize(kernel: Kernel, target: Any) -> Kernel:
  """The kernel after the Opts chosen for a target."""
  return kernel
