#!/usr/bin/env python3
"""The speed and memory that ntgrad promises on a CPU, measured as ratios against numpy and torch in one run.

    python bench/cpu.py                       # the whole table (a few minutes)
    python bench/cpu.py --only softmax,step   # the rows whose name has one of these words
    python bench/cpu.py --write               # also replaces bench/RESULTS.md

torch joins in if it can be imported; rows that need it are marked where it cannot. Both sides run in turns, so that whatever
else the machine does falls on both; every row's result is compared before it is timed. Times are medians after warm-up.
"""
from __future__ import annotations

import argparse
import datetime
import gc
import hashlib
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

os.environ.setdefault("TIERS", "0")     # steady steps: what runs is optimised
os.environ.setdefault("DYNAMIC", "never")   # rows are kernels with numbers: sizes.py has those with run-time sizes
from measure import BLOCK, cores, dropped, load, peak_from_here, processor, seconds, synchronize  # noqa: E402
from rows import EXAMPLES, FAST, SLOW, Row, example, module_of, table, training  # noqa: E402

import ntgrad  # noqa: E402
from ntgrad import Device, Tensor, nn  # noqa: E402
from ntgrad.graph import origins  # noqa: E402

try:
  import torch as _torch  # type: ignore[import-not-found,unused-ignore]
except ImportError:
  _torch = None  # type: ignore[assignment,unused-ignore]
torch: Any = _torch

HERE = Path(__file__).resolve().parent
NOTES = "## Predictions and outcomes"   # of RESULTS.md, from here on
BATCH = 128
PAUSE = 0.25    # seconds between turns: the threads of numpy's and torch's libraries spin for a while after their last call


# ---- measuring

def kernels(fn: Callable[[], Any]) -> list[str]:
  """The kernels that one call launches, each with the hash of its source and how often it ran."""
  from ntgrad.engine import realize as engine
  names: list[str] = []
  def note(step: Any, buffers: Any) -> None:
    spec = getattr(step.program, "spec", None)
    if spec is not None: names.append(f"{spec.name}:{hashlib.sha256(spec.source.text.encode()).hexdigest()[:8]}")
  engine.captures.append(note)
  try: fn()
  finally: engine.captures.remove(note)
  return [name if n == 1 else f"{n}× {name}" for name, n in Counter(names).items()]


def versus(ours: Callable[[], Any], theirs: Callable[[], Any] | None, rounds: int) -> tuple[float, float]:
  """Median seconds of both, taken in turns after two warm-up calls each (nan where there is nothing to compare with).

  A turn starts with one more call that does not count: after the pause it finds sleeping threads and cold caches.
  """
  for _ in range(2):
    ours()
    if theirs is not None: theirs()
  a: list[float] = []
  b: list[float] = []
  gc.collect()
  for _ in range(-(-rounds // BLOCK)):
    for fn, times in ((ours, a), (theirs, b)):
      if fn is None: continue
      time.sleep(PAUSE)
      fn()
      times.extend(seconds(fn) for _ in range(BLOCK))
  return median(a), median(b) if b else math.nan


def agree(work: str, ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
  """Wrong results are not worth timing."""
  error = float(np.abs(ours - theirs).max() / max(1.0, np.abs(theirs).max()))
  if not error <= tolerance:
    sys.exit(f"bench: {work}: results differ by {error:.3g} of the largest value, at most {tolerance:g} is rounding")


def milliseconds(s: float) -> str: return f"{s * 1e3:.2f} ms"


def operation(work: str, build: Callable[[], Tensor], theirs: Callable[[], Any] | None, name: str, limit: float, rounds: int,
              amount: float, unit: str, tolerance: float = 1e-5) -> Row:
  """One operation: ``build`` makes a fresh graph, ``theirs`` computes the same now. ``amount`` of ``unit`` a call."""
  def ours() -> None:
    build().realize()
    synchronize()
  if theirs is not None: agree(work, build().numpy(), np.asarray(theirs()), tolerance)
  else: ours()
  used = kernels(lambda: build().realize())
  a, b = versus(ours, theirs, rounds)
  def text(s: float) -> str: return f"{milliseconds(s)} ({amount / s:.3g} {unit})"
  if theirs is None: return Row(work, text(a), f"no {name}", None, FAST, limit, kernels=used)
  return Row(work, text(a), f"{name} {text(b)}", b / a, FAST, limit, kernels=used)


def tile_matmul(rng: np.random.Generator, rounds: int) -> Row:
  """The matmul of examples/tile, in float32."""
  kernel = module_of(EXAMPLES / "tile" / "matmul.py").matmul
  a, b = rng.standard_normal((2, 1024, 1024), np.float32)
  ta, tb, out = Tensor(a).realize(), Tensor(b).realize(), Tensor(np.empty_like(a)).realize()
  theirs = np.empty_like(a)
  def ours() -> None:
    kernel(ta, tb, out)
    synchronize()
  ours()
  agree("tile-language matmul", out.numpy(), np.matmul(a, b, out=theirs), 1e-5)
  used = kernels(lambda: kernel(ta, tb, out))
  mine, numpys = versus(ours, lambda: np.matmul(a, b, out=theirs), rounds)
  def text(s: float) -> str: return f"{milliseconds(s)} ({2 * 1024**3 / 1e9 / s:.3g} GFLOP/s)"
  return Row("tile-language matmul 1024³", text(mine), f"numpy {text(numpys)}", numpys / mine, FAST, 0.5, kernels=used)


def operations(rounds: int, wanted: Callable[[str], bool]) -> list[Row]:
  """The rows of single operations."""
  rng = np.random.default_rng(0)
  rows: list[Row] = []

  def torch_of(fn: Callable[[], Any]) -> Callable[[], Any] | None:
    if torch is None: return None
    def call() -> Any:
      with torch.no_grad(): return fn()
    return call

  if wanted("matmul 1024³"):
    a, b = rng.standard_normal((2, 1024, 1024), np.float32)
    ta, tb = Tensor(a).realize(), Tensor(b).realize()
    out = np.empty((1024, 1024), np.float32)
    rows.append(operation("matmul 1024³", lambda: ta @ tb, lambda: np.matmul(a, b, out=out), "numpy", 0.7, rounds * 3,
                          2 * 1024**3 / 1e9, "GFLOP/s"))
  if wanted("tile-language matmul 1024³"): rows.append(tile_matmul(rng, rounds * 3))
  n = 4096
  names = ["add 64 MB", "row sum 64 MB", f"softmax {n}×{n}", f"layer norm {n}×{n}", f"gelu(2x+1)·x {n}×{n}"]
  if not any(map(wanted, names)): return rows
  x, y = rng.standard_normal((2, n, n), np.float32)
  tx, ty = Tensor(x).realize(), Tensor(y).realize()
  px: Any = None
  py, po, f = px, px, px
  if torch is not None: px, py, po, f = torch.from_numpy(x), torch.from_numpy(y), torch.empty(n, n), torch.nn.functional
  gigabytes = x.nbytes / 1e9
  cases: list[tuple[str, Callable[[], Tensor], Callable[[], Any], float, float, float]] = [
    # torch gets its result's memory ready, as ntgrad has it from its pool: a fresh 64 MB costs page faults
    (names[0], lambda: tx + ty, lambda: torch.add(px, py, out=po), 0.95, 3, 1e-6),
    (names[1], lambda: tx.sum(axis=1), lambda: px.sum(1), 0.95, 1, 1e-4),
    (names[2], lambda: tx.softmax(-1), lambda: torch.softmax(px, -1), 2.5, 2, 1e-5),
    (names[3], lambda: tx.layernorm(), lambda: f.layer_norm(px, (n,)), 3.5, 2, 1e-4),
    # torch's gelu(approximate="tanh") is the one that tinygrad's and our gelu is
    (names[4], lambda: (2 * tx + 1).gelu() * tx, lambda: f.gelu(2 * px + 1, approximate="tanh") * px, 5, 2, 1e-4)]
  for work, build, theirs, limit, passes, tolerance in cases:
    if not wanted(work): continue
    rows.append(operation(work, build, torch_of(theirs), "torch", limit, rounds * 3, passes * gigabytes, "GB/s", tolerance))
  return rows


# ---- the MNIST network

def batch() -> tuple[np.ndarray, np.ndarray]:
  """One batch of digits-like data."""
  rng = np.random.default_rng(1)
  return rng.random((BATCH, 1, 28, 28), np.float32), rng.integers(0, 10, BATCH).astype(np.int32)


def torch_training(model: Any) -> Callable[[], float]:
  """The same network from the same weights, optimizer and batch in torch."""
  def conv(c: Any) -> Any:
    weight = c.weight.numpy()
    m = torch.nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2], bias=c.bias is not None)
    m.weight.data = torch.from_numpy(weight)
    if c.bias is not None: m.bias.data = torch.from_numpy(c.bias.numpy())
    return m
  nets = torch.nn
  linear = nets.Linear(model.linear.in_features, 10)
  linear.weight.data, linear.bias.data = (torch.from_numpy(t.numpy()) for t in (model.linear.weight, model.linear.bias))
  def block(first: Any, second: Any, norm: Any) -> list[Any]:
    return [conv(first), nets.ReLU(), conv(second), nets.BatchNorm2d(norm.sz), nets.ReLU(), nets.MaxPool2d(2)]

  net = nets.Sequential(
    *block(model.conv1, model.conv2, model.norm1), *block(model.conv3, model.conv4, model.norm2), nets.Flatten(), linear
  )
  opt = torch.optim.Adam(net.parameters(), lr=1e-3)
  images, labels = batch()
  x, y = torch.from_numpy(images), torch.from_numpy(labels).long()
  def step() -> float:
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    return float(loss.detach())
  return step


def captured_step(rounds: int, width: int) -> Row:
  """A captured training step against torch's."""
  work = f"captured MNIST step, batch {BATCH}, width {width}"
  Tensor.manual_seed(0)
  model = example().Model(width)
  theirs = torch_training(model) if torch is not None else None
  plain = training(model)
  step = ntgrad.jit(plain)
  x, y = (Tensor(a).realize() for a in batch())
  for i in range(3):  # plain, recorded, replayed: the same numbers as torch's
    loss = step(x, y).item()
    if theirs is not None: agree(f"{work}, loss {i}", np.array(loss), np.array(theirs()), 1e-3)
  def ours() -> None: step(x, y).item()
  a, b = versus(ours, theirs, rounds)
  used = kernels(lambda: plain(x, y))
  if theirs is None: return Row(work, milliseconds(a), "no torch", None, SLOW, 3, "× time", used)
  return Row(work, milliseconds(a), f"torch {milliseconds(b)}", a / b, SLOW, 3, "× time", used)


def first_step(width: int) -> float:
  """Seconds of the first training step of this process, from making the model to having the loss."""
  module = example()
  x, y = (Tensor(a).realize() for a in batch())
  Tensor.training = True
  start = time.perf_counter()
  Tensor.manual_seed(0)
  ntgrad.jit(training(module.Model(width)))(x, y).item()
  return time.perf_counter() - start


def first_steps(width: int) -> list[Row]:
  """The first step of a fresh process, with an empty cache folder and again with what the first process left in it."""
  rows = []
  with tempfile.TemporaryDirectory() as folder:
    for name, limit in (("cold", 12.0), ("warm", 2.0)):
      env = {**os.environ, "CACHE_DIR": folder}
      command = [sys.executable, __file__, "--first-step", "--width", str(width)]
      done = subprocess.run(command, env=env, text=True, capture_output=True, check=False)
      if done.returncode: sys.exit(f"bench: the first step with a {name} cache failed:\n{done.stderr[-2000:]}")
      s = float(done.stdout.split()[-1])
      rows.append(Row(f"first step, {name} cache", f"{s:.2f} s", "–", s, SLOW, limit, "s"))
  return rows


def python_time(rounds: int, width: int) -> Row:
  """What a warm step that is not captured spends in Python: the CPU time of the calling thread, which also does its share of the
  kernels: here of two pictures."""
  step = training(example().Model(width))
  x, y = (Tensor(a[:2]).realize() for a in batch())
  for _ in range(3): step(x, y)
  times = []
  for _ in range(rounds):
    synchronize()
    start = time.thread_time()
    step(x, y)
    times.append(time.thread_time() - start)
  ms = median(times) * 1e3
  return Row("Python in an uncaptured warm step", f"{ms:.1f} ms", "–", ms, SLOW, 20, "ms")


def note_of_a_line(rounds: int) -> Row:
  """What it costs an operation to note the line that makes it: ``x + y`` with the notes and without, the least of many turns;
  also where another line has made the same node, which is still there, and by itself."""
  x, y = (Tensor([1.0, 2.0]).realize() for _ in range(2))
  was = ntgrad.config.origins
  def seconds_of_each() -> list[float]:
    least = [math.inf] * 2
    for turn in range(50 * rounds):
      ntgrad.config.origins = turn % 2
      start = time.perf_counter()
      for _ in range(100): x + y
      least[turn % 2] = min(least[turn % 2], (time.perf_counter() - start) / 100)
    return least
  try:
    without, noted = seconds_of_each()
    kept = (x + y).lazydata
    before, again = seconds_of_each()
    start = time.perf_counter()
    for _ in range(10000): origins.note_origin(kept)
    alone = (time.perf_counter() - start) / 10000
  finally: ntgrad.config.origins = was
  ns = (noted - without) * 1e9
  others = f"of what another line made {(again - before) * 1e9:.0f}; a note alone {alone * 1e9:.0f}"
  text = f"{ns:.0f} ns of {noted * 1e9:.0f}; {others}"
  return Row("noting the line of an operation", text, "–", ns, SLOW, 150, "ns")


def peak_memory(width: int) -> Row:
  """The most memory that training holds, against what it must keep: parameters, Adam's state, and what backward reads again."""
  images, labels = batch()
  gc.collect()
  peak, model = peak_from_here(), example().Model(width)
  step = ntgrad.jit(training(model))
  x, y = Tensor(images), Tensor(labels)
  for _ in range(5): step(x, y).item()
  most = peak()
  trained = sum(p.nbytes() for p in nn.state.get_parameters(model) if p.requires_grad)
  # per image: the input, both blocks' (relu, convolution before the norm, relu after it, pooled), the logits
  w = width
  saved = 28 * 28 + w * (24 * 24 + 20 * 20 * 2 + 10 * 10) + 2 * w * (8 * 8 + 6 * 6 * 2 + 3 * 3) + 10
  kept = 3 * trained + BATCH * saved * 4
  return Row("peak memory of training", f"{most / 1e6:.1f} MB", f"kept {kept / 1e6:.1f} MB", most / kept, SLOW, 2, "× kept")


def network(rounds: int, width: int, wanted: Callable[[str], bool]) -> list[Row]:
  """The rows of the MNIST network."""
  rows: list[Row] = []
  Tensor.training = True
  if wanted("captured MNIST step"): rows.append(captured_step(rounds, width))
  if wanted("first step, cold cache") or wanted("first step, warm cache"): rows += first_steps(width)
  if wanted("Python in an uncaptured warm step"): rows.append(python_time(rounds, width))
  if wanted("noting the line of an operation"): rows.append(note_of_a_line(rounds))
  if wanted("peak memory of training"): rows.append(peak_memory(width))
  Tensor.training = False
  return rows


# ---- telling

def machine() -> str:
  """Date, processor, cores that may be used, and versions."""
  versions = [
    f"Python {platform.python_version()}",
    f"numpy {np.__version__}",
    f"torch {torch.__version__}" if torch is not None else "no torch",
  ]
  return f"{datetime.date.today()}, {processor()}, {cores()} cores, device {Device.DEFAULT}, {', '.join(versions)}"


def busy() -> str:
  """A warning if something else runs here: torch's threads wait for one another and lose far more by it than ntgrad's."""
  if load() < 0.5: return ""
  return (
    f"\n\n**The machine was busy before the run (load {load():.1f}): "
    "the ratios, those against torch above all, are not to be relied on.**"
  )


def main() -> None:
  """Measure, print, and exit 1 if a row misses its mark."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--rounds", type=int, default=15, help="timed calls of each side (default %(default)s)")
  parser.add_argument("--only", default="", help="comma-separated words; rows whose name has one of them")
  parser.add_argument("--width", type=int, default=16, help="channels of the MNIST network's first block (default %(default)s)")
  parser.add_argument("--write", action="store_true", help="replace bench/RESULTS.md")
  parser.add_argument("--first-step", action="store_true", help=argparse.SUPPRESS)
  args = parser.parse_args()
  if Device.DEFAULT.startswith("NUMPY"):
    sys.exit("bench: the numpy backend is the oracle, its speed means nothing; use another device")
  if args.first_step:
    print(first_step(args.width))
    return
  if torch is not None: torch.set_num_threads(cores())
  warning = busy()
  words = [w for w in args.only.lower().split(",") if w]
  def wanted(name: str) -> bool: return not words or any(w in name.lower() for w in words)
  rows = operations(args.rounds, wanted) + network(args.rounds, args.width, wanted)
  text = f"{machine()}{warning}\n\n{table(rows)}\n"
  print(text)
  if args.write:
    old = (HERE / "RESULTS.md").read_text() if (HERE / "RESULTS.md").exists() else ""
    kept = old[old.index(NOTES):] if NOTES in old else ""   # what a person wrote
    (HERE / "RESULTS.md").write_text(f"# What `bench/cpu.py` measured\n\n{text}{kept and chr(10)}{kept}")
  sys.exit(1 if dropped() or any(r.ok is False for r in rows) else 0)


if __name__ == "__main__":
  main()
