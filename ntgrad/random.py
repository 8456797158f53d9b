"""``torch.random``: the state of the random numbers."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ntgrad.compat.public import show
from ntgrad.functions.making import get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from ntgrad.graph import flag
from ntgrad.tensor.random import default_generator


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
  """A block whose random numbers leave the sequence as it was before; there is one for all devices."""
  kept, before = flag("fork_rng: enabled", enabled), default_generator.get_state()
  try: yield
  finally:
    if kept: default_generator.set_state(before)


__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]

show(__name__)
