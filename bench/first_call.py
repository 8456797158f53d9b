#!/usr/bin/env python3
"""What the first call of a tile kernel costs: reading it, choosing for the device, making source, compiling, and a search.

    python bench/first_call.py                     # the kernels of examples/tile on the default device, without and with a search
    python bench/first_call.py --cubin sm_90       # to cubins for a GPU that need not be here, instead
    python bench/first_call.py --only conv,mm      # the kernels whose name has one of these words
    python bench/first_call.py --write             # also replaces bench/RESULTS-first-call.md, or the part of it

Each call is in a process of its own: with an empty cache folder, and again with what the first process left there. A call's time
ends when its results are back in the arrays. What is imported, and what the device takes to open, is in no number of a kernel's:
the table's first line says what the latter takes.
"""
from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator

import numpy as np

os.environ.setdefault("TIERS", "0")     # steady steps: what runs is optimised
os.environ.setdefault("DYNAMIC", "never")   # rows are kernels with numbers: sizes.py has those with run-time sizes
from measure import cores, processor  # noqa: E402
from rows import EXAMPLES, module_of  # noqa: E402

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]   # bench/cuda.py is no package
sys.path.insert(0, str(EXAMPLES / "tile"))                                # conv2d imports matmul

COLD, WARM = 0.5, 0.1             # seconds that a call may take, with an empty cache and with a full one
SEARCH, SEARCH_GPU = 8.0, 5.0     # and with a search
CUBIN = 1.5                       # reading, choosing, source and cubin of one kernel
OPENING = "opening the device"
MEASURED = ("trace", "choose", "render", "measure")   # what is timed; the rest of a call is its compiler's, and its launch
Case = tuple[Any, tuple[Any, ...], dict[str, Any]]


# ---- the kernels

def normal(*shape: int) -> np.ndarray: return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
def zeros(*shape: int) -> np.ndarray: return np.zeros(shape, np.float32)


def example(name: str, kernel: str, *args: Any, **given: Any) -> Callable[[], Case]:
  """A call of a kernel of examples/tile. Sizes of arrays stand for the arrays."""
  def made() -> Case:
    arrays = [normal(*a) if isinstance(a, tuple) else a for a in args]
    return getattr(module_of(EXAMPLES / "tile" / f"{name}.py"), kernel), tuple(arrays), given
  return made


def half(*shape: int) -> np.ndarray: return normal(*shape).astype(np.float16)


CASES: dict[str, Callable[[], Case]] = {
  "add": example("vector_add", "add", *[(1 << 20,)] * 3),
  "softmax": example("softmax", "softmax", *[(1024, 1000)] * 2),
  "layer_norm": example("layer_norm", "layer_norm", (1024, 1000), (1000,), (1000,), 1e-5, (1024, 1000)),
  "add_rms_norm": example("ported", "fused_add_rms_norm", (512, 1024), (512, 1024), (1024,), 1e-5, (512, 1024)),
  "group_norm": example("ported", "group_norm", (8, 32, 14, 14), (32,), (32,), 1e-5, (8, 32, 14, 14), BLOCK_SIZE=8),
  "max_pool2d": example("max_pool2d", "max_pool2d", (8, 16, 56, 56), (8, 16, 27, 27), WINDOW_H=3, WINDOW_W=3),
  "rotary": example("rotary", "rotary", (4, 256, 8, 64), (256, 32), (256, 32), (4, 256, 8, 64)),
  "causal_conv1d": example("ported", "causal_conv1d", (8, 256, 512), (4, 512), (8, 256, 512), BLOCK_SIZE=128),
  "topk": example("ported", "topk", (256, 300), (256, 3), np.zeros((256, 3), np.int64)),
  "mm": example("matmul", "matmul", (512, 512), (512, 512), (512, 512)),
  "mm half": example("matmul", "matmul", half(512, 512), half(512, 512), half(512, 512)),
  "conv2d": example("conv2d", "conv2d", (4, 32, 30, 30), (64, 32, 3, 3), (4, 64, 28, 28)),
  "attention": example("flash_attention", "forward_kernel", *[(1, 4, 512, 64)] * 3, 0.125, (1, 4, 512, 64), (1, 4, 512, 1)),
  "attention_keys": example("flash_attention", "keys_kernel", *[(1, 2, 256, 64)] * 3, 0.125, (1, 2, 256, 64), (1, 2, 256, 1),
                            *[(1, 2, 256, 64)] * 3),
}


# ---- one call, in a process of its own

@contextmanager
def clocks() -> Iterator[dict[str, float]]:
  """Seconds by what they were spent on, until the block ends; what a part calls counts for it alone."""
  from ntgrad.codegen import pipeline
  from ntgrad.engine import compile as engine, measuring
  from ntgrad.tile import kernel as tiles, tune
  spent = dict.fromkeys(MEASURED, 0.0)
  around: list[float] = []

  def timed(owner: Any, name: str, part: str) -> Callable[[], None]:
    real = getattr(owner, name)
    def call(*args: Any, **kwargs: Any) -> Any:
      around.append(0.0)
      start = time.perf_counter()
      try: return real(*args, **kwargs)
      finally:
        took = time.perf_counter() - start
        spent[part] += took - around.pop()
        if around: around[-1] += took
    setattr(owner, name, call)
    return lambda: setattr(owner, name, real)

  parts = [(tiles.TileKernel, "build", "trace"), (engine, "chosen_for", "choose"),
           (pipeline, "lower_tiles", "choose"), (engine, "rendered", "render"),
           (measuring.Bench, "reference", "measure"), (measuring.Bench, "measure", "measure")]
  if hasattr(tune, "lower_tiles"): parts.append((tune, "lower_tiles", "choose"))
  if hasattr(tune, "model_seconds"): parts += [(tune, "model_seconds", "choose"), (tune, "excess", "choose")]
  back = [timed(*p) for p in parts]
  try: yield spent
  finally:
    for undo in back: undo()


def opened() -> float:
  """Seconds that the default device takes to open: until a small kernel has run twice."""
  from ntgrad import Tensor
  start = time.perf_counter()
  x = Tensor(np.ones(4, np.float32))
  for _ in range(2): (x + 1).numpy()
  return time.perf_counter() - start


def one_call(name: str) -> dict[str, Any]:
  """The first call of a kernel in this process, and its second."""
  opening = opened()
  if name not in CASES: return {**dict.fromkeys((*MEASURED, "rest"), 0.0), "total": opening, "values": {}}
  kernel, args, given = CASES[name]()
  with clocks() as spent:
    start = time.perf_counter()
    kernel(*args, **given)
    total = time.perf_counter() - start
  start = time.perf_counter()
  kernel(*args, **given)
  again = time.perf_counter() - start
  chosen = {} if kernel.last is None else kernel.last.values
  values = {n: v for n, v in chosen.items() if n not in kernel.symbols or kernel.symbols[n].meta}
  return {**spent, "rest": total - sum(spent.values()), "total": total, "again": again, "values": by_name(values)}


def one_cubin(name: str, chip: str) -> dict[str, Any]:
  """A kernel for a GPU that need not be here, with the first choice of block sizes."""
  from ntgrad.backends.cuda import compiler
  from ntgrad.backends.cuda.renderer import TritonRenderer
  from ntgrad.codegen.ir.config import config
  from ntgrad.engine import device as engine
  compiler._triton()
  device: Any = SimpleNamespace(renderer=TritonRenderer(capability=compiler.capability(chip)), name=chip)
  kernel, args, given = CASES[name]()
  engine._open[chip] = device
  small, arrays, _ = CASES["add"]()
  with config(cache=0): compiler.request(small.specialise(*arrays).spec(device), chip).fitting(compiler.build)   # its imports
  with clocks() as spent:
    start = time.perf_counter()
    from ntgrad.tile.launch import converted_arguments, describe_argument
    arguments, values = kernel.called(args, given)
    described = [describe_argument(a) for a in converted_arguments(kernel, arguments)]
    found = kernel._specialise(described, arguments, values, chip, numbers_only=True)[0]
    spec = found.spec(device)
    compiling = time.perf_counter()
    binary = compiler.request(spec, chip).fitting(compiler.build)
    end = time.perf_counter()
  total = end - start
  values = {n: v for n, v in found.values.items() if n not in kernel.symbols or kernel.symbols[n].meta}
  return {**spent, "rest": total - sum(spent.values()), "compile": end - compiling, "total": total, "values": by_name(values),
          "shared": binary.shared, "warps": binary.num_warps}


def by_name(values: dict[str, int]) -> dict[str, int]:
  """Block sizes in the order in which they were made."""
  return dict(sorted(values.items(), key=lambda t: (len(t[0]), t[0])))


def in_process(name: str, folder: str, tune: int, chip: str) -> dict[str, Any]:
  """What a process of its own measures."""
  env = {**os.environ, "CACHE_DIR": folder, "TUNE": str(tune)}
  command = [sys.executable, __file__, "--one", name, *(["--cubin", chip] if chip else [])]
  done = subprocess.run(command, env=env, text=True, capture_output=True, check=False)
  if done.returncode: sys.exit(f"bench: {name} failed:\n{done.stderr[-2000:]}")
  return dict(json.loads(done.stdout.splitlines()[-1]))


# ---- the table

def seconds(found: dict[str, Any], limit: float) -> str:
  """A total, marked where it is more than it may be."""
  text = f"{found['total']:.2f}"
  return f"**{text}**" if found["total"] > limit else text


def measured(name: str, chip: str, gpu: bool) -> tuple[str, bool]:
  """A kernel's line, and whether it keeps its marks."""
  with tempfile.TemporaryDirectory(prefix="ntgrad-bench-") as folder:
    cold = in_process(name, folder, 0, chip)
    warm = in_process(name, folder, 0, chip)
  limit = CUBIN if gpu or chip else COLD
  parts = [f"{cold[p]:.2f}" for p in ("trace", "choose", "render", "rest")]
  chosen = " ".join(map(str, cold["values"].values())) or "–"
  ok = cold["total"] <= limit and warm["total"] <= WARM
  if chip: return row(name, *parts, seconds(cold, limit), seconds(warm, WARM), chosen), ok
  with tempfile.TemporaryDirectory(prefix="ntgrad-bench-") as folder:
    found = in_process(name, folder, 1, chip)
    again = in_process(name, folder, 1, chip)
  search = SEARCH_GPU if gpu else SEARCH
  ok = ok and found["total"] <= search and again["total"] <= WARM
  tuned = [f"{found[p]:.2f}" for p in (*MEASURED, "rest")]
  best = " ".join(map(str, found["values"].values())) or "–"
  return row(name, *parts, seconds(cold, limit), seconds(warm, WARM), *tuned, seconds(found, search), seconds(again, WARM),
             f"{chosen} → {best}"), ok


def row(*cells: str) -> str: return "| " + " | ".join(cells) + " |"


def main() -> None:
  """Measure, print, and exit 1 if a kernel misses its marks."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--only", default="", help="comma-separated words; kernels whose name has one of them")
  parser.add_argument("--cubin", default="", metavar="CHIP", help="compile for a chip (sm_90) in place of calling")
  parser.add_argument("--write", action="store_true", help="replace the results on disk")
  parser.add_argument("--one", default="", help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.one:
    print(json.dumps(one_cubin(args.one, args.cubin) if args.cubin else one_call(args.one)))
    return
  from ntgrad import Device
  words = [w for w in args.only.lower().split(",") if w]
  gpu = Device.DEFAULT.startswith("CUDA")
  head = ["kernel", "trace", "choose", "render", "rest", "first call", "warm disk"]
  if not args.cubin: head += ["search: trace", "choose", "render", "measure", "rest", "search", "warm disk"]
  where = args.cubin or Device.DEFAULT
  lines = [f"{datetime.date.today()}, {processor()}, {cores()} cores, {where}; seconds, **more than they may be**", "",
           row(*head, "block sizes"), row(*["---"] + ["--:"] * (len(head) - 1) + ["---"])]
  print("\n".join(lines), flush=True)
  every = True
  for name in (*([] if args.cubin else [OPENING]), *CASES):
    if words and not any(w in name.lower() for w in words): continue
    line, ok = measured(name, args.cubin, gpu)
    every = every and ok
    lines.append(line)
    print(line, flush=True)
  if args.write:
    (HERE / f"RESULTS-first-call{f'-{args.cubin}' if args.cubin else ''}.md").write_text(
      "# What `bench/first_call.py` measured\n\n" + "\n".join(lines) + "\n")
  sys.exit(0 if every else 1)


if __name__ == "__main__":
  main()
