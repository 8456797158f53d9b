#!/usr/bin/env python3
"""What several GPUs of one machine come to: collective operations beside bare calls of NCCL, and a training step of GPT-2 124M,
data parallel, beside one GPU's and beside torch's.

    python bench/distributed_cuda.py [-n 2] [--batch 16] [--only operations,steps]

torch is in the same processes, with the same weights and batches, and takes turns. Every time is a median of calls that all ranks
begin together. Set NCCL_NVLS_ENABLE=0 where the machine's switch cannot multicast.
"""
from __future__ import annotations

import argparse
import gc
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import first_hour_models as models  # noqa: E402

sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]   # bench/cuda.py is no package

import ntgrad  # noqa: E402
import ntgrad.optim  # noqa: E402, F401
from ntgrad import Tensor, distributed as dist  # noqa: E402
from ntgrad.distributed.world import here  # noqa: E402
from ntgrad.engine.device import get_device  # noqa: E402
from ntgrad.nn.parallel import DistributedDataParallel, ZeroRedundancyOptimizer  # noqa: E402

ROUNDS, MANY = 15, 16   # timed calls; operations of one call


def say(text: str) -> None:
  if not dist.get_rank(): print(text, flush=True)


def timed(fns: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
  """The median seconds of each, in turns, until the device has done it."""
  took: dict[str, list[float]] = {name: [] for name in fns}
  for i in range(rounds + 3):
    for name, fn in fns.items():
      dist.barrier()
      start = time.perf_counter()
      fn()
      if i >= 3: took[name].append(time.perf_counter() - start)
  return {name: median(seconds) for name, seconds in took.items()}


def operations() -> None:
  """Rows for all_reduce in a captured step, beside bare calls: what each adds to the same step without any."""
  device, transport = get_device(ntgrad.Device.DEFAULT), here().transport
  stream = device.stream_handle()
  say("| all_reduce | ntgrad | NCCL alone | |\n| --- | --: | --: | --: |")
  for nbytes, loop in ((4 << 10, 50), (1 << 20, 50), (256 << 20, 4)):
    x = Tensor.ones(nbytes // 4).contiguous().realize()
    def captured(times: int) -> Any:
      @ntgrad.jit
      def step(x: Tensor) -> Tensor:
        for _ in range(times): x = dist.functional.all_reduce(x, "avg")
        return x[:1] + 1   # a result that is the operation's own would be copied
      return step
    def repeated(fn: Callable[[], Any], loop: int = loop) -> Callable[[], None]:
      def run() -> None:
        for _ in range(loop): fn()
        device.synchronize()
      return run
    raw = device.alloc(2 * nbytes)
    def bare(raw: Any = raw, nbytes: int = nbytes) -> None:
      for _ in range(MANY):
        transport.enqueue("all_reduce", raw + nbytes, raw, nbytes // 4, nbytes // 4, 7, 4, "avg", 0, stream)   # type: ignore[attr-defined]
    without, many = captured(0), captured(MANY)
    fns: dict[str, Callable[[], Any]] = {"ours": partial(many, x), "without": partial(without, x), "bare": bare}
    for fn in fns.values():
      for _ in range(4): fn()
    took = {name: seconds / loop / MANY for name, seconds in timed({k: repeated(f) for k, f in fns.items()}).items()}
    ours = took["ours"] - took["without"]
    say(f"| {nbytes >> 10:,} KB, {MANY} in a step | {ours * 1e6:.1f} µs | {took['bare'] * 1e6:.1f} µs | "
        f"{took['bare'] / ours:.2f} ×, {(ours - took['bare']) * 1e6:+.1f} µs |")
    device.free(raw, 2 * nbytes)


def steps(batch: int, layers: int) -> None:
  """Rows for GPT-2 124M in bfloat16 (autocast): one GPU, data parallel, state in parts (ZeRO 1); of torch the first two."""
  local = dist.get_local_rank()
  try: torch: Any = importlib.import_module("torch")
  except ModuleNotFoundError: torch = None
  def made(library: Any) -> models.Work:
    return models.gpt(library, width=768, layers=layers, context=1024, words=50257, batch=batch, written_out=False)
  if torch is not None:
    torch.cuda.set_device(local)
    torch.set_default_device(f"cuda:{local}")
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    torch.distributed.init_process_group("nccl")
    torch.manual_seed(0)
    weights = {k: v.detach().cpu().numpy() for k, v in made(torch).model.state_dict().items()}
  took, state = dict[str, float](), dict[str, int]()
  for name, library, how in [("ntgrad", ntgrad, "alone"), ("ntgrad", ntgrad, "ddp"), ("ntgrad", ntgrad, "zero"),
                             *([("torch", torch, "alone"), ("torch", torch, "ddp")] if torch is not None else [])]:
    work = made(library)
    if torch is not None:
      work.model.load_state_dict({k: library.tensor(v) for k, v in weights.items()})
    whole: Any = work.model
    if how == "ddp":
      whole = (DistributedDataParallel(whole) if library is ntgrad else
               torch.nn.parallel.DistributedDataParallel(whole, device_ids=[local], gradient_as_bucket_view=True))
    optimizer: Any = (ZeroRedundancyOptimizer(work.model.parameters(), ntgrad.optim.AdamW, lr=1e-4) if how == "zero" else
                      library.optim.AdamW(work.model.parameters(), lr=1e-4, **({"fused": True} if library is torch else {})))
    def step(x: Any, y: Any, library: Any = library, whole: Any = whole, optimizer: Any = optimizer) -> Any:
      optimizer.zero_grad()
      with library.autocast("cuda", library.bfloat16):
        logits = whole(x)
        loss = library.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
      loss.backward()
      optimizer.step()
      return loss.detach()
    called: Any = ntgrad.jit(step) if library is ntgrad else step
    x, y = [library.tensor(a) for a in work.batch(dist.get_rank())]
    began = time.perf_counter()
    losses = [float(called(x, y).item()) for _ in range(4)]
    first = time.perf_counter() - began
    ntgrad.Device.optimise()
    ntgrad.cuda.reset_peak_memory_stats()
    def once(called: Any = called, x: Any = x, y: Any = y) -> None: called(x, y).item()
    took[f"{name} {how}"] = timed({"": once})[""]
    if library is ntgrad:
      inner = optimizer.optim if how == "zero" else optimizer
      state[how] = sum(t.nbytes() for s in inner.state.values() for t in s.values())
    peak = (ntgrad if library is ntgrad else torch).cuda.max_memory_allocated() / 1e9
    say(f"- {name}, {how}: {took[f'{name} {how}'] * 1e3:.2f} ms a step, {peak:.1f} GB at most, "
        f"four steps at first in {first:.1f} s, losses "
        f"{', '.join([f'{v:.4f}' for v in losses])}")
    del work, whole, optimizer, step, called, once, x, y
    gc.collect()
    ntgrad.cuda.empty_cache()
    if torch is not None: torch.cuda.empty_cache()
  n = dist.get_world_size()
  ours = took["ntgrad alone"] / took["ntgrad ddp"]
  say(f"\n| GPT-2 124M, {n} GPUs, batch {batch} each | |\n| --- | --: |\n| throughput ÷ ({n} × one GPU's) | {ours:.3f} |")
  if torch is not None:
    theirs = took["torch alone"] / took["torch ddp"]
    say(f"| the same of torch | {theirs:.3f} |\n| ours ÷ torch's | {ours / theirs:.3f} |")
    torch.distributed.destroy_process_group()
  say(f"| state in parts: step of data parallel ÷ its step | {took['ntgrad ddp'] / took['ntgrad zero']:.3f} |\n"
      f"| state in parts: its bytes a rank ÷ all | {state['zero'] / state['ddp']:.3f} |")


def main() -> None:
  """Run from the command line: starts the ranks, or is one."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("-n", type=int, default=2, help="GPUs (default %(default)s)")
  parser.add_argument("--batch", type=int, default=16, help="texts of 1,024 tokens for each GPU (default %(default)s)")
  parser.add_argument("--layers", type=int, default=12, help="of the model (default %(default)s)")
  parser.add_argument("--only", default="operations,steps", help="which tables")
  args = parser.parse_args()
  if "WORLD_SIZE" not in os.environ:
    sys.exit(subprocess.run([sys.executable, "-m", "ntgrad", "launch", "--backend", "nccl", "-n", str(args.n), __file__,
                             *sys.argv[1:]], check=False).returncode)
  dist.init_process_group("nccl", timeout=120)
  if "operations" in args.only: operations()
  if "steps" in args.only: steps(args.batch, args.layers)


if __name__ == "__main__": main()
