"""Random kernels after random Opts, compared with their plain loops on the oracle (``support.opts``).

  python tests/fuzz/kernels.py --minutes 5 [--device CUDA|CPU|NUMPY|TRITON] [--versions V] [--seed S] [--jobs J]

Each seed is a random tensor program, every second one's gradients; each of its kernels is tried V times.
"""
from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "tests"):
  if str(folder) not in sys.path: sys.path.insert(0, str(folder))
for setting, value in (("VERIFY", "1"), ("WORKERS", "1")): os.environ.setdefault(setting, value)


def one(device: str, seed: int, versions: int) -> tuple[int, int, str]:
  """The seed, how many versions ran, and what went wrong."""
  from ntgrad.engine.device import get_device
  from support.opts import random_kernels
  try: return seed, random_kernels(get_device(device), [seed], versions), ""
  except Exception as e: return seed, 0, f"{type(e).__name__}: {e}"


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--minutes", type=float, default=5)
  parser.add_argument("--device", default="CPU")
  parser.add_argument("--versions", type=int, default=6)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--jobs", type=int, default=1)
  args = parser.parse_args()
  until, seed, ran, failed = time.monotonic() + 60 * args.minutes, args.seed, 0, 0
  def pool() -> ProcessPoolExecutor: return ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn"))
  workers = pool()
  while time.monotonic() < until:
    seeds = range(seed, seed + 8 * args.jobs)
    seed = seeds.stop
    jobs = {s: workers.submit(one, args.device, s, args.versions) for s in seeds}
    for s, job in jobs.items():
      try: _, n, wrong = job.result()
      except BrokenProcessPool: n, wrong = 0, "a process ended (this seed or another of its time)"
      ran += n
      if wrong:
        failed += 1
        print(f"# ---- seed {s} on {args.device}\n{wrong}\n", flush=True)
    if any(isinstance(job.exception(), BrokenProcessPool) for job in jobs.values()): workers = pool()
  workers.shutdown()
  print(f"{ran} versions of the kernels of {seed - args.seed} programs on {args.device}, {failed} programs failed")
  return failed > 0


if __name__ == "__main__": sys.exit(main())
