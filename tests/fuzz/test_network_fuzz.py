"""Random networks on machines that are not here: nothing that is chosen is refused, and what is computed is right
(``python tests/fuzz/networks.py`` runs as many as one likes)."""
from __future__ import annotations

import itertools

import pytest

from support.network_build import KINDS, grown
from support.network_draws import FAMILIES, SIZES, draws
from support.network_machines import MACHINES
from support.network_run import tried

SEED, COUNT = 29, 12


@pytest.mark.parametrize("number", range(COUNT))
def test_networks(number: int) -> None:
  """A failure names the network, the machine and the error, and has the program."""
  d = next(itertools.islice(draws(SEED), number, None))
  failures, made = tried(d)
  text = "\n\n".join(f"network {number} of seed {SEED} on {f.where}: {f.what}\n{f.code}" for f in failures[:1])
  if failures: pytest.fail(f"{len(failures)} failures\n{text}", pytrace=False)
  assert made


def test_draws_cover_pairs() -> None:
  """1,000 networks have every kind and every two families of blocks on every machine and with every way of sizes."""
  first = list(itertools.islice(draws(SEED), 1000))
  parts = [*KINDS, *itertools.product(FAMILIES, FAMILIES)]
  on = {(x, m) for d in first for x in (*d.parts, d.spec.sizes) for m in d.machines}
  assert on == {*itertools.product((*parts, *SIZES), MACHINES)}
  assert {(x, d.spec.sizes) for d in first for x in d.parts} == {*itertools.product(parts, SIZES)}


def test_programs_are_functions_of_number_and_seed() -> None:
  for a, b in zip(itertools.islice(draws(3), 30), itertools.islice(draws(3), 30)):
    assert a == b and grown(a.spec) == grown(b.spec)
