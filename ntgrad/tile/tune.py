"""Choosing the values of ``block_size()`` symbols."""
from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Sequence

from ntgrad.codegen.errors import ArgumentError
from ntgrad.codegen.symbol import Symbol

if TYPE_CHECKING:
  from .kernel import TileKernel


def choose(symbols: Sequence[Symbol], kernel: TileKernel, values: Mapping[str, int]) -> dict[str, int]:
  """A value for each symbol that is neither a size nor given: the tuner's. Raises ArgumentError for one that is not its to choose."""
  free = [s for s in symbols if s.meta]
  left = [str(s) for s in symbols if not s.meta]
  if left: raise ArgumentError(f"{kernel.name}: no value for {', '.join(left)}; give {left[0]}=… with the call")
  return {str(s): first_choice(s, len(free)) for s in free}


def first_choice(s: Symbol, count: int) -> int:
  """A power of two within the bounds: long when it is the only one."""
  n = 1024 if count == 1 else 64
  low, high = s.lower_bound or 1, s.upper_bound or 1 << 20
  while n > high and n > 1: n //= 2
  while n < low: n *= 2
  return n


