"""Files that are damaged or made to do harm, of every format that is read: each gives an error of ntgrad, or what it holds,
within a second and within 64 MiB above its size.

  python tests/fuzz/files.py [--damaged 2000] [--hostile 500] [--random 500] [--seed S] [--only WORDS] [--keep FOLDER]

Hostile files are every attack in ``support/hostile_pickles.py`` and ``support/hostile_files.py``, in sizes that the seed chooses;
random ones have pickles of instructions drawn at random. ``--keep`` writes those that fail to a folder.
"""
from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "tests"):
  if str(folder) not in sys.path: sys.path.insert(0, str(folder))

import numpy as np  # noqa: E402

from support.file_cases import KINDS, Case, damaged  # noqa: E402
from support.file_run import Result, results  # noqa: E402
from support.hostile_files import hostile_files  # noqa: E402
from support.hostile_pickles import hostile_pickles, random_pickle  # noqa: E402


def hostile(seed: int, count: int, most: int = 10 ** 6) -> Iterator[Case]:
  """Hostile files: all attacks, then all again in other sizes, ``count`` of them."""
  left = count
  while left > 0:
    for make in (hostile_pickles, hostile_files):
      for case in make(np.random.default_rng(seed), most):
        if left > 0: yield case()
        left -= 1
    seed += 1


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  for option, default in (("--damaged", 2000), ("--hostile", 700), ("--random", 500), ("--seed", 0)):
    parser.add_argument(option, type=int, default=default)
  parser.add_argument("--only", default="")
  parser.add_argument("--keep", type=Path)
  args = parser.parse_args()

  def cases() -> Iterator[Case]:
    yield from hostile(args.seed, args.hostile)
    for i in range(args.random): yield random_pickle(np.random.default_rng((args.seed, 1, i)))
    for i in range(args.damaged): yield damaged(np.random.default_rng((args.seed, 2, i)), KINDS[i % len(KINDS)])

  came: Counter[str] = Counter()
  failed, slowest, largest = 0, None, None
  for r in results(c for c in cases() if args.only in f"{c.kind}: {c.name}"):
    came[r.what] += 1
    slowest, largest = _more(slowest, r, "seconds"), _more(largest, r, "mib")
    if not (why := r.wrong()): continue
    failed += 1
    print(f"{r.case.kind}, {r.case.name}: {why}", flush=True)
    if args.keep:
      args.keep.mkdir(exist_ok=True)
      (args.keep / f"{failed}.{r.case.kind}").write_bytes(r.case.data)
  print(f"{sum(came.values())} files: {', '.join(f'{n} {what}' for what, n in came.most_common())}; {failed} failed")
  if slowest and largest:
    print(f"slowest {slowest.case.kind}, {slowest.case.name}: {slowest.seconds:.2f} s; "
          f"largest {largest.case.kind}, {largest.case.name}: {largest.mib:.0f} MiB")
  return int(failed > 0)


def _more(a: Result | None, b: Result, by: str) -> Result: return b if a is None or getattr(b, by) > getattr(a, by) else a


if __name__ == "__main__": sys.exit(main())
