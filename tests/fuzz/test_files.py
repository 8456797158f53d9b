"""Files from strangers: some of what ``python tests/fuzz/files.py`` tries, and what is beside it."""
from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np

from support.file_cases import KINDS, Case, damaged
from support.file_run import results
from support.hostile_files import hostile_files
from support.hostile_pickles import hostile_pickles, random_pickle
from support.marks import long

SEED = 5


@long
def test_files() -> None:
  """Every sixth attack in small, and some that are damaged or drawn at random."""
  rng = np.random.default_rng(SEED)
  hostile = [make for attacks in (hostile_pickles, hostile_files) for make in islice(attacks(rng, 20000), SEED % 6, None, 6)]
  cases = [make() for make in hostile if "bomb" not in str(make.args)]  # type: ignore[attr-defined]
  cases += [random_pickle(rng) for _ in range(80)] + [damaged(rng, kind) for kind in KINDS * 5]
  came: Counter[str] = Counter()
  wrong = []
  for r in results(cases):
    came[r.what] += 1
    if why := r.wrong(seconds=5): wrong.append(f"{r.case.kind}, {r.case.name}: {why}")
  assert not wrong, "\n".join(wrong)
  assert came["refused"] > 150 and came["read"] > 10, came


def test_what_fails_is_seen() -> None:
  """A reader that ends the process, goes on for ever or raises something else is a failure."""
  good, bad = Case("good", "csv", b"a\n1\n", False), Case("not refused", "csv", b"a\n1\n")
  first, second = results([good, bad])
  assert not first.wrong() and second.wrong() == "it was not refused"
  assert "another error" in first._replace(what="another error, KeyError").wrong()
  assert "1.50 s" in first._replace(seconds=1.5).wrong()
  assert "70 MiB" in first._replace(mib=70.0).wrong()
