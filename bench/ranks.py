#!/usr/bin/env python3
"""How well the model that chooses lanes and copies on a CPU ranks: its cost of candidates beside their times.

    python bench/ranks.py             # a line a kernel
    python bench/ranks.py --each 20   # so many candidates of each kernel

Of each kernel the model's choice, the ones next to it and others of all costs are run. ``order`` is Spearman's correlation of
cost and time, ``choice`` how much slower the model's choice is than the best that was run.
"""
from __future__ import annotations

import argparse
import os
from statistics import geometric_mean, mean, median
from typing import Any, Sequence

os.environ.setdefault("TIERS", "0")     # steady steps: what runs is optimised
os.environ.setdefault("DYNAMIC", "never")

import numpy as np  # noqa: E402

from ntgrad import Tensor  # noqa: E402
from ntgrad.codegen import pipeline  # noqa: E402
from ntgrad.codegen.choose.bound import work_of  # noqa: E402
from ntgrad.codegen.choose.cpu import Search, after  # noqa: E402
from ntgrad.codegen.ir.errors import NtgradError  # noqa: E402
from ntgrad.codegen.kernel import Kernel  # noqa: E402
from ntgrad.codegen.opts.axes import merge_axes, split_axes  # noqa: E402
from ntgrad.codegen.passes.parts import Parts  # noqa: E402
from ntgrad.engine.compile import rendered  # noqa: E402
from ntgrad.engine.device import get_device  # noqa: E402
from ntgrad.engine.search import contents  # noqa: E402
from ntgrad.schedule import create_schedule  # noqa: E402

E = Tensor.empty
WORKS: dict[str, Any] = {
  "matmul 256³": lambda: E(256, 256) @ E(256, 256),
  "matmul 509×511×513": lambda: E(509, 511) @ E(511, 513),
  "matmul 24×1000×700": lambda: E(24, 1000) @ E(1000, 700),
  "aᵀ·b 384³": lambda: E(384, 384).T @ E(384, 384),
  "a·bᵀ 384³": lambda: E(384, 384) @ E(384, 384).T,
  "x·A 1500×1501": lambda: E(1, 1500) @ E(1500, 1501),
  "A·x 1500×1501": lambda: E(1500, 1501) @ E(1501, 1),
  "conv 3×3 32 channels": lambda: E(4, 32, 28, 28).conv2d(E(32, 32, 3, 3)),
  "depthwise 3×3": lambda: E(4, 64, 56, 56).conv2d(E(64, 1, 3, 3), groups=64),
  "max pool 3×3 by 2": lambda: E(8, 32, 57, 57).max_pool2d((3, 3), stride=2),
  "sum(0) 1500×1501": lambda: E(1500, 1501).sum(0),
  "sum(1) 1500×1501": lambda: E(1500, 1501).sum(1),
  "softmax 2000×500": lambda: E(2000, 500).softmax(-1),
  "softmax(0) 500×2000": lambda: E(500, 2000).softmax(0),
  "transpose 1500×1501": lambda: E(1500, 1501).T.contiguous(),
  "permute 0231": lambda: E(8, 32, 48, 48).permute(0, 2, 3, 1).contiguous(),
  "gelu 1000×1001": lambda: E(1000, 1001).gelu(),
}


def order(xs: Sequence[float], ys: Sequence[float]) -> float:
  """Spearman's correlation: that of the ranks."""
  a, b = (np.argsort(np.argsort(v)) for v in (xs, ys))
  return float(np.corrcoef(a, b)[0, 1])


def seconds(kernel: Kernel, chosen: Kernel, device: Any) -> float:
  """The median time of a candidate."""
  program, = device.compile([rendered(kernel, Parts.of(chosen), device, "candidate")[0]])
  buffers = [contents(device.name, p) for p in kernel.params]
  raws = [b.raw for b in buffers]
  program(raws, True)
  return median(program(raws, True) for _ in range(9))


def ranked(kernel: Kernel, each: int, device: Any) -> tuple[int, float, float]:
  """How many candidates were run, the correlation, and the model's choice over the best."""
  target = device.renderer.target
  kernel = merge_axes(split_axes(pipeline.prepare(kernel, target).kernel))
  search = Search(kernel, target)
  found = sorted([c for c in search.candidates() if c[0] < float("inf")], key=lambda c: c[0])
  some = found[:each // 3] + found[each // 3::max(len(found) // (each - each // 3), 1)]
  costs, times = [], []
  for cost, plan, panel in some:
    try: times.append(seconds(kernel, after(kernel, target, search.opts(plan), panel), device))
    except NtgradError: continue
    costs.append(cost)
  return len(times), order(costs, times), times[0] / min(times)


def main() -> None:
  p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  p.add_argument("--each", type=int, default=15, help="candidates of a kernel (default %(default)s)")
  args = p.parse_args()
  device = get_device("CPU")
  found = []
  print("| kernel | candidates | order | choice |\n| --- | --: | --: | --: |")
  for name, work in WORKS.items():
    kernels = [i.ast for i in create_schedule([work()]) if i.ast is not None]
    kernel = max(kernels, key=lambda k: (work_of(k).flops, work_of(k).bytes))
    n, r, c = ranked(kernel, args.each, device)
    found.append((r, c))
    print(f"| {name} | {n} | {r:.2f} | {c:.2f} × |", flush=True)
  print(f"| all | | {mean(r for r, _ in found):.2f} | {geometric_mean(c for _, c in found):.2f} × |")


if __name__ == "__main__": main()
