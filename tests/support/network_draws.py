"""What each network of a run is drawn to be: kinds of blocks, three targets, how its sizes are given.

Every pair of (kind, kind after it), (kind, target), (kind, sizes) and (target, sizes) comes about equally often: each draw takes
what makes the least-seen pairs, the first of the shuffled where several do. So a draw depends on those before it, and the draw of
a number is that of a run from 0 to it.
"""
from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from typing import Iterable, Iterator, Sequence

from .network_build import KINDS
from .network_machines import MACHINES
from .network_program import Spec

SIZES = ("numbers", "changing", "variable")
BUILT = 10   # one network in so many is computed too


@dataclass(frozen=True)
class Draw:
  """A network, and the machines that its kernels are made for."""
  spec: Spec
  machines: tuple[str, ...]


class _Drawing:
  """How often each pair was seen."""

  def __init__(self, seed: int):
    self.rng, self.seen = random.Random(f"draws {seed}"), Counter[tuple[str, str]]()

  def least(self, among: Iterable[str], beside: Sequence[str]) -> str:
    """What makes the least-seen pairs with those that stand beside it."""
    shuffled = list(among)
    self.rng.shuffle(shuffled)
    return min(shuffled, key=lambda x: sum(self.seen[b, x] for b in beside))

  def next(self, number: int, seed: int) -> Draw:
    kinds = [min(self.rng.sample(KINDS, len(KINDS)), key=lambda k: self.seen["before", k])]
    for _ in range(self.rng.choice([1, 2, 3, 3, 4])): kinds.append(self.least(KINDS, kinds[-1:]))
    sizes = self.least(SIZES, kinds)
    machines: list[str] = []
    for _ in range(3): machines.append(self.least([m for m in MACHINES if m not in machines], [*kinds, sizes]))
    self.seen.update([*itertools.pairwise(kinds), *(("before", k) for k in kinds[:-1]), *((k, sizes) for k in kinds),
                      *((x, m) for m in machines for x in (*kinds, sizes))])
    return Draw(Spec(number, seed, tuple(kinds), sizes, number % BUILT == 0), tuple(machines))


def draws(seed: int) -> Iterator[Draw]:
  """The networks of a seed, from number 0 on, without end."""
  drawing = _Drawing(seed)
  for number in itertools.count(): yield drawing.next(number, seed)


def draw(seed: int, number: int) -> Draw:
  """The network of a number."""
  return next(d for d in draws(seed) if d.spec.number == number)
