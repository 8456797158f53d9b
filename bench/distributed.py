#!/usr/bin/env python3
"""What several processes cost beside what MPI itself takes, and what that comes to for many ranks.

    python bench/distributed.py            # 2 ranks of MPI, one core each: a table (two minutes)
    python bench/distributed.py -n 4

The same messages by bare mpi4py calls, in the same processes and in turns, are the reference of an operation. A data parallel
step's reference is the same step without operations, and these messages of all gradients.
"""
from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ntgrad
from ntgrad import Tensor, distributed as dist, nn
from ntgrad.nn.parallel import DistributedDataParallel, ZeroRedundancyOptimizer

ROUNDS = 15


def timed(*fns: Callable[[], Any], rounds: int = ROUNDS) -> list[float]:
  """The median seconds of each, in turns, each begun together by all ranks."""
  from mpi4py import MPI
  took: list[list[float]] = [[] for _ in fns]
  for i in range(rounds + 2):
    for fn, seconds in zip(fns, took):
      MPI.COMM_WORLD.Barrier()
      start = time.perf_counter()
      fn()
      if i >= 2: seconds.append(time.perf_counter() - start)
  return [statistics.median(s) for s in took]


def bare(x: np.ndarray) -> Callable[[], None]:
  """An all_reduce of the same messages and additions, by mpi4py and numpy alone."""
  from mpi4py import MPI
  comm = MPI.COMM_WORLD
  n, rank, out = comm.size, comm.rank, np.empty_like(x)
  ends = [x.size * i // n for i in range(n + 1)]
  pieces = [slice(a, b) for a, b in zip(ends, ends[1:])]
  others = [r for r in range(n) if r != rank]

  def small() -> None:
    parts = [x if r == rank else np.empty_like(x) for r in range(n)]
    MPI.Request.Waitall([*[comm.Irecv(parts[r], r) for r in others], *[comm.Isend(x, r) for r in others]])
    np.copyto(out, parts[0])
    for p in parts[1:]: np.add(out, p, out=out)

  def large() -> None:
    mine = pieces[rank]
    parts = [x[mine] if r == rank else np.empty_like(x[mine]) for r in range(n)]
    MPI.Request.Waitall([*[comm.Irecv(parts[r], r) for r in others], *[comm.Isend(x[pieces[r]], r) for r in others]])
    total = parts[0].copy()
    for p in parts[1:]: np.add(total, p, out=total)
    out[mine] = total
    MPI.Request.Waitall([*[comm.Irecv(out[pieces[r]], r) for r in others], *[comm.Isend(out[mine], r) for r in others]])
  return small if x.nbytes <= 1 << 14 else large


def operations() -> tuple[float, float]:
  """Rows for all_reduce; gives the bytes a second of each rank, and the seconds of a message."""
  last, least = 0.0, 0.0
  for nbytes in 4 << 10, 1 << 20, 64 << 20:
    a = np.ones(nbytes // 4, np.float32)
    x = Tensor(a).realize()
    @ntgrad.jit
    def captured(x: Tensor) -> Tensor: return dist.functional.all_reduce(x)
    for _ in range(4): captured(x)
    reference, ours = timed(bare(a), lambda f=captured, x=x: f(x))
    row(f"all_reduce of {nbytes >> 10:,} KB, captured", ours, reference)
    n = dist.get_world_size()
    last, least = 2 * (n - 1) / n * nbytes / reference, least or reference
  return last, least / (2 * (dist.get_world_size() - 1))


def steps() -> tuple[int, float]:
  """Rows for whole steps of a perceptron; gives its bytes of gradients and the seconds of a step alone."""
  rng = np.random.default_rng(dist.get_rank())
  x, y = Tensor(rng.standard_normal((64, 512)).astype(np.float32)).realize(), Tensor(rng.integers(0, 10, 64)).realize()

  def step_of(how: str) -> tuple[Callable[[], Any], int, int]:
    Tensor.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    whole = DistributedDataParallel(model) if how == "ddp" else model
    parameters = list(model.parameters())
    optimizer: Any = (ZeroRedundancyOptimizer(parameters, nn.optim.Adam, lr=1e-3) if how == "zero" else
                      nn.optim.Adam(parameters, lr=1e-3))
    inner = optimizer.optim if how == "zero" else optimizer
    @ntgrad.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
      optimizer.zero_grad()
      loss = whole(x).cross_entropy(y)
      loss.backward()
      optimizer.step()
      return loss.detach()
    for _ in range(4): step(x, y)
    return lambda: step(x, y).item(), sum(p.nbytes() for p in parameters), sum(
      t.nbytes() for s in inner.state.values() for t in s.values())
  (alone, nbytes, state), (ddp, _, _), (zero, _, part) = [step_of(how) for how in ("alone", "ddp", "zero")]
  a = np.ones(nbytes // 4, np.float32)
  seconds, with_ddp, with_zero, reference = timed(alone, ddp, zero, bare(a))
  row("step of a perceptron, data parallel", with_ddp, seconds + reference)
  row("the same, state in parts (ZeRO 1)", with_zero, with_ddp)
  say(f"| optimizer's state a rank | {part / 1e6:.1f} MB | {state / 1e6:.1f} MB | {part / state:.2f} × |")
  return nbytes, seconds


def say(text: str) -> None:
  if not dist.get_rank(): print(text, flush=True)


def row(name: str, ours: float, reference: float) -> None:
  say(f"| {name} | {ours * 1e3:.3f} ms | {reference * 1e3:.3f} ms | {ours / reference:.2f} × |")


def model_of(bandwidth: float, latency: float, nbytes: int, step: float) -> None:
  """What a step costs with many ranks: see docs/distributed.md."""
  say(f"\n{bandwidth / 1e9:.2f} GB/s a rank, {latency * 1e6:.0f} µs a message, {nbytes / 1e6:.1f} MB of gradients, "
      f"{step * 1e3:.1f} ms a step\n\n| ranks | all_reduce | step |\n| --: | --: | --: |")
  for n in 2, 8, 64, 1024:
    seconds = 2 * (n - 1) / n * nbytes / bandwidth + 2 * (n - 1) * latency
    say(f"| {n} | {seconds * 1e3:.2f} ms | {(seconds + step) / step:.2f} × |")


def main() -> None:
  """Run from the command line: starts the ranks, or is one."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("-n", type=int, default=2, help="ranks (default %(default)s)")
  args = parser.parse_args()
  if "PMI_RANK" not in os.environ and "OMPI_COMM_WORLD_RANK" not in os.environ:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    sys.exit(subprocess.run([str(mpiexec), "-bind-to", "core", "-n", str(args.n), sys.executable, __file__, "-n", str(args.n)],
                            env={**os.environ, "CORES": "1"}, check=False).returncode)
  dist.init_process_group("mpi")
  say(f"{args.n} ranks of MPI, a core each\n\n| work | ntgrad | reference | ratio |\n| --- | --: | --: | --: |")
  bandwidth, latency = operations()
  nbytes, step = steps()
  model_of(bandwidth, latency, nbytes, step)


if __name__ == "__main__": main()
