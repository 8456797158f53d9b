#!/usr/bin/env python3
"""Training steps in mixed precision beside torch: steps of larger models (captured), and the losses of 200 steps of small ones.

    python bench/mixed_precision.py                  # on the CPU, small sizes
    python bench/mixed_precision.py --device cuda    # on a GPU, large models (bench/RESULTS-mixed-precision.md has more)
    python bench/mixed_precision.py --compiled       # torch.compile in bfloat16 as well; the faster one counts (minutes more)
    python bench/mixed_precision.py --only losses,"steps of GPT" --quick

torch is in the same process and takes turns. "float32" is what both do by default: on a GPU convolutions round to tf32, other
products do not. "bfloat16" is autocast in both. Each step ends with its loss on the host. Losses begin with equal weights and
batches; what is compared is their mean over all steps, for at the end a network that knows its data by heart has none.
"""
from __future__ import annotations

import argparse
import datetime
import gc
import importlib
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import first_hour_models as models
import measure
from rows import FAST, SLOW

from first_hour import Row, table  # isort: skip   (which takes this folder off the path)

import ntgrad
import ntgrad.optim  # noqa: F401

torch: Any = importlib.import_module("torch")
STEPS, QUICK, AGREE = 200, 40, 0.02   # of which losses are compared, and the most that these may differ, as a part
SMALL: dict[str, Callable[[Any], models.Work]] = {
  "GPT": models.gpt, "ViT": models.vit, "ResNet-18": models.resnet, "U-Net": models.unet, "ConvNeXt": models.convnext}
LARGE: dict[str, Callable[[Any], models.Work]] = {
  "GPT": partial(models.gpt, width=512, layers=8, context=512, words=8192, batch=32, written_out=False),
  "ViT": partial(models.vit, width=384, layers=12, size=224, patch=16, batch=64),
  "ResNet-18": partial(models.resnet, width=64, batch=256), "U-Net": partial(models.unet, width=64, size=128, batch=16),
  "ConvNeXt": partial(models.convnext, width=96, size=224, batch=64)}
COMPARED = "GPT", "ResNet-18", "U-Net"
# at least, of torch's time over ours; of ours in float32 over ours in bfloat16 (a GPU's)
MUST, AIM, GAIN = {"float32": 0.7, "bfloat16": 0.5}, {"float32": 1.0, "bfloat16": 0.8}, 1.5


def both(make: Callable[[Any], models.Work]) -> tuple[models.Work, models.Work]:
  """The workload for ntgrad and for torch, with the same weights."""
  torch.manual_seed(0)
  theirs, ours = make(torch), make(ntgrad)
  ours.model.load_state_dict({k: ntgrad.tensor(v.detach().cpu().numpy()) for k, v in theirs.model.state_dict().items()})
  ntgrad.Tensor.realize(*ours.model.state_dict().values())
  return ours, theirs


def stepped(library: Any, work: models.Work, device: str, dtype: str, scaler: Any = None) -> Callable[..., Any]:
  """A training step in a dtype, which gives the loss; ``scaler``: with gradients scaled."""
  assert work.loss is not None
  loss, optimizer = work.loss, work.optimizer
  def step(*inputs: Any) -> Any:
    optimizer.zero_grad()
    with library.autocast(device, getattr(library, dtype)) if dtype != "float32" else nullcontext(): value = loss(*inputs)
    (value if scaler is None else scaler.scale(value)).backward()
    if scaler is None: optimizer.step()
    else:
      scaler.step(optimizer)
      scaler.update()
    return value.detach()
  return step


def losses(library: Any, work: models.Work, step: Callable[..., Any]) -> Iterator[float]:
  """The losses of one step after the other."""
  i = 0
  while True:
    yield float(step(*[library.tensor(a) for a in work.batch(i)]).item())
    work.after()
    i += 1


def timed(step: Callable[..., Any], inputs: list[Any]) -> float:
  start = time.perf_counter()
  step(*inputs).item()
  return time.perf_counter() - start


def give_back(device: str) -> None:
  """Leave the next model the whole GPU: an allocator that finds none asks the driver in each step."""
  gc.collect()
  if device == "cuda":
    ntgrad.cuda.empty_cache()
    torch.cuda.empty_cache()


def speed(name: str, device: str, large: bool, quick: bool, compiled: bool) -> list[Row]:
  """Steps of a model in both precisions."""
  rows, own = [], {}
  for dtype in MUST:
    ours, theirs = both((LARGE if large else SMALL)[name])
    plain = [(library, work, stepped(library, work, device, dtype)) for library, work in ((ntgrad, ours), (torch, theirs))]
    steps = [(ntgrad, ours, ntgrad.jit(plain[0][2])), *plain[1:]]
    if compiled and dtype != "float32": steps.append((torch, theirs, torch.compile(steps[1][2])))
    sides = [partial(timed, step, [library.tensor(a) for a in work.batch(0)]) for library, work, step in steps]
    for side in sides:
      for _ in range(4): side()
    ntgrad.Device.optimise()
    took = measure.turns(sides, 0.1 if quick else 2.0, 3, 60)
    own[dtype], best = took[0], min(took[1:])
    by = f"{best * 1e3:.2f} ms" + (" (compiled)" if best in took[2:] else "")
    rows.append(Row(f"{name}, {dtype}", f"{took[0] * 1e3:.2f} ms", by, best / took[0], "×", FAST, MUST[dtype], AIM[dtype]))
    del ours, theirs, plain, steps, sides
    give_back(device)
  gained = own["float32"] / own["bfloat16"]
  rows.append(Row(f"{name}, float32 ÷ bfloat16", "", "", gained, "×", FAST, GAIN if device == "cuda" else None))
  return rows


def agreement(name: str, device: str, quick: bool) -> list[Row]:
  """The losses of many steps of AdamW in each low dtype; float16 with scaled gradients. (By Nesterov's momentum at a high rate,
  as ResNet-18 has it elsewhere, 1e-6 of its weights changes the mean of torch's own losses by 2.7 %; by AdamW by 1 %.)"""
  rows = []
  for dtype in ("bfloat16", "float16"):
    ours, theirs = [replace(work, optimizer=library.optim.AdamW(work.model.parameters(), lr=1e-3), after=lambda: None)
                    for library, work in zip((ntgrad, torch), both(SMALL[name]))]
    found = []
    for library, work in ((ntgrad, ours), (torch, theirs)):
      scaler = library.amp.GradScaler(device) if dtype == "float16" else None
      step = stepped(library, work, device, dtype, scaler)
      made = losses(library, work, ntgrad.jit(step) if library is ntgrad else step)
      found.append([next(made) for _ in range(QUICK if quick else STEPS)])
    apart = abs(fmean(found[0]) / fmean(found[1]) - 1)
    series = [f"{f[0]:.4f} … {f[-1]:.4f}" for f in found]
    rows.append(Row(f"losses of {name}, {dtype}", *series, 100 * apart, "%", SLOW, 100 * AGREE))
  return rows


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
  parser.add_argument("--only", default="", help="words; rows whose name has one of them")
  parser.add_argument("--quick", action="store_true", help="few steps: whether it works")
  parser.add_argument("--compiled", action="store_true", help="torch.compile as well")
  given = parser.parse_args()
  if given.device == "cuda":
    ntgrad.Device.DEFAULT = "CUDA"
    torch.set_default_device("cuda")
  def wanted(name: str) -> bool: return not given.only or any(word in name for word in given.only.split(","))
  measurements: dict[str, Callable[[], list[Row]]] = {
    **{f"steps of {name}": partial(speed, name, given.device, given.device == "cuda", given.quick, given.compiled)
       for name in SMALL},
    **{f"losses of {name}": partial(agreement, name, given.device, given.quick) for name in COMPARED}}
  rows: list[Row] = []
  for name, run in measurements.items():
    if not wanted(name): continue
    rows += run()
    print(*[" | ".join(r.cells()) for r in rows[-3:]], sep="\n", file=sys.stderr, flush=True)
  where = torch.cuda.get_device_name() if given.device == "cuda" else f"{platform.machine()}, {torch.get_num_threads()} threads"
  print(f"{datetime.date.today()}, {where}, torch {torch.__version__}\n\n{table(rows)}")
  if not all(r.ok for r in rows): sys.exit(1)


if __name__ == "__main__": main()
