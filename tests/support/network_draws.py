"""What each network of a run is drawn to be: kinds of blocks, three machines, how its sizes are given.

A draw takes what makes the most pairs that were not seen yet, then the least-seen ones, so that 1,000 networks have every pair of
a family of blocks and the one after it with every machine and every way of sizes, every kind of block with every machine and
way of sizes, and every machine with every way of sizes. A draw depends on those before it: that of a number is that of a run
from 0 to it.
"""
from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any, Hashable, Iterable, Iterator

from .network_build import KINDS
from .network_machines import MACHINES
from .network_program import Spec

FAMILIES = {
  "convolution": "conv1d conv2d grouped conv3d transposed", "image": "convnext residual dense up_and_down excited",
  "pool": "max_pool average_pool adaptive_pool norm_pool", "resampled": "upsample pixel_shuffle unfolded folded sampled patches",
  "norm": "batch_norm layer_norm channel_norm group_norm instance_norm rms_norm response_norm",
  "linear": "linear perceptron gate all_activations again shared mixer",
  "attention": "attention grouped_attention rotary_attention cross_attention multihead encoder", "recurrent": "rnn gru lstm",
  "index": "embedding embedding_bag gather select scatter index_add one_hot experts",
  "written": "written_by_index written_part cut_and_put_back cached", "reduced": "ordered statistics pairs einsum",
  "moved": "cat moved positions dropout drawn",
}
FAMILY = {kind: family for family, kinds in FAMILIES.items() for kind in kinds.split()}
SIZES = ("numbers", "changing", "variable")
BUILT = 10   # one network in so many is computed too


@dataclass(frozen=True)
class Draw:
  """A network, and the machines that its kernels are made for."""
  spec: Spec
  machines: tuple[str, ...]

  @property
  def parts(self) -> list[Hashable]:
    """What its machines and sizes make pairs with: its kinds, and families with the ones after them."""
    return parts(self.spec.kinds)


def parts(kinds: Iterable[str]) -> list[Hashable]: return [*kinds, *itertools.pairwise([FAMILY[k] for k in kinds])]


class _Drawing:
  """How often each pair was seen."""

  def __init__(self, seed: int):
    self.rng, self.seen = random.Random(f"draws {seed}"), Counter[tuple[Hashable, ...]]()

  def least(self, among: Iterable[str], beside: Iterable[Hashable]) -> str:
    """What makes the most new pairs with those that stand beside it, and of these the least seen."""
    def seen(x: str) -> tuple[Any, ...]:
      counts = [self.seen[b, x] for b in beside]
      return -counts.count(0), sum(counts)
    shuffled = list(among)
    self.rng.shuffle(shuffled)
    return min(shuffled, key=seen)

  def next(self, number: int, seed: int) -> Draw:
    kinds: list[str] = []
    family = self.least(FAMILIES, ["before"])
    for _ in range(self.rng.choice([2, 3, 4, 4, 5])):
      if kinds: family = self.least(FAMILIES, [family])
      kinds.append(self.least(FAMILIES[family].split(), ["kind"]))
      self.seen.update([("kind", kinds[-1]), *[(FAMILY[k], family) for k in kinds[-2:-1]]])
    self.seen.update([("before", FAMILY[k]) for k in kinds[:-1]])
    beside = parts(kinds)
    sizes = self.least(SIZES, beside)
    machines: list[str] = []
    for _ in range(3): machines.append(self.least([m for m in MACHINES if m not in machines], [*beside, sizes]))
    self.seen.update([*((x, sizes) for x in beside), *((x, m) for m in machines for x in (*beside, sizes))])
    return Draw(Spec(number, seed, tuple(kinds), sizes, number % BUILT == 0), tuple(machines))


def draws(seed: int) -> Iterator[Draw]:
  """The networks of a seed, from number 0 on, without end."""
  drawing = _Drawing(seed)
  for number in itertools.count(): yield drawing.next(number, seed)


def draw(seed: int, number: int) -> Draw:
  """The network of a number."""
  return next(itertools.islice(draws(seed), number, None))


assert {*KINDS} == {*FAMILY}, "a kind of block without a family"
