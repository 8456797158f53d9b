#!/usr/bin/env python3
"""The speed that ntgrad promises on an NVIDIA GPU, measured side by side with torch and a device copy in one run.

    python bench/cuda.py                      # the whole table (some minutes: kernels are compiled, and some searched for)
    python bench/cuda.py --only matmul,step   # the rows whose name has one of these words
    python bench/cuda.py --write              # also replaces bench/RESULTS-cuda.md

Without torch the rows against it are marked, those against the copy are measured. Data are random; times are medians of the
device's clock after warm-up, the L2 cache written over before each call, both sides in turns; every result is compared before it
is timed.
"""
from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Callable

os.environ.setdefault("TIERS", "0")     # steady steps: what runs is optimised
os.environ.setdefault("DYNAMIC", "never")   # rows are kernels with numbers: sizes.py has those with run-time sizes
if "CACHE_DIR" not in os.environ: os.environ["CACHE_DIR"] = tempfile.mkdtemp(prefix="ntgrad-bench-")

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from measure import BLOCK, FLUSH, Flush, dropped, kept, launches, timed  # noqa: E402
from rows import EXAMPLES, FAST, SLOW, Row, example, module_of, table, training  # noqa: E402

# this file's name is that of NVIDIA's package
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]

import ntgrad  # noqa: E402
from ntgrad import Device, Tensor, config, dtypes  # noqa: E402

try:
  import torch as _torch
except ImportError:
  _torch = None  # type: ignore[assignment]
torch: Any = _torch

HERE = Path(__file__).resolve().parent
NAME = "CUDA"
rows: list[Row] = []


# ---- measuring

def ours(calls: list[tuple[Any, list[Any]]], flush: Flush) -> Callable[[], float]:
  """Some launches, one after the other."""
  def launch() -> None:
    for program, raws in calls: program(raws)
  return timed(flush, launch)


def theirs(fn: Callable[[], Any]) -> Callable[[], float] | None:
  """The same of torch."""
  if torch is None: return None
  scratch = torch.empty(FLUSH, dtype=torch.uint8, device="cuda")
  def once() -> float:
    scratch.zero_()
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    fn()
    b.record()
    b.synchronize()
    return float(a.elapsed_time(b)) * 1e-3
  return once


def versus(a: Callable[[], float], b: Callable[[], float] | None, rounds: int = 6) -> tuple[float, float]:
  """Median seconds of both, taken in turns after some calls to warm up (nan where there is no other)."""
  for _ in range(3):
    a()
    if b is not None: b()
  x: list[float] = []
  y: list[float] = []
  for _ in range(rounds):
    x += [a() for _ in range(BLOCK)]
    if b is not None: y += [b() for _ in range(BLOCK)]
  return median(x), median(y) if y else float("nan")


def close(what: str, got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], limit: float = 1e-2) -> None:
  """Raise unless the relative error is small (NaN never passes)."""
  error = np.linalg.norm(got.astype(np.float32) - want.astype(np.float32)) / np.linalg.norm(want.astype(np.float32))
  if not error < limit: raise AssertionError(f"{what}: off by {error:.2g}")


def random(*shape: int, dtype: Any = dtypes.bfloat16) -> Tensor:
  """Random numbers, a million different ones."""
  some = np.random.default_rng(sum(shape)).standard_normal(1 << 20, np.float32)
  n = int(np.prod(shape))
  return Tensor(np.resize(some, n + len(shape))[len(shape):].reshape(shape).astype(dtype.np), device=NAME).realize()


def to_torch(t: Tensor) -> Any:
  """A copy of a tensor in torch."""
  x = t.numpy()
  return (
    torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16) if t.dtype is dtypes.bfloat16 else torch.from_numpy(x).cuda()
  )


def note(row: Row) -> None:
  """A line of the table, printed now as well."""
  rows.append(row)
  print("| " + " | ".join(row.cells()) + f" |  {', '.join(row.kernels)}", flush=True)


def names(calls: list[tuple[Any, list[Any]]]) -> list[str]: return [p.spec.name for p, _ in calls]


# ---- rows

def products(flush: Flush, wanted: Callable[[str], bool]) -> None:
  """bf16 matrix products against cuBLAS: as the model schedules them, and with a search (BEAM) where that is asked for."""
  def one(work: str, m: int, k: int, n: int, limit: float, run: Callable[[Tensor, Tensor], Any] | None = None) -> None:
    if not wanted(work): return
    a, b = random(m, k), random(k, n)
    if run is None:
      c = a @ b
      calls = launches(lambda: c.realize())
    else: calls, c = run(a, b)
    other = None
    if torch is not None:
      ta, tb = to_torch(a), to_torch(b)
      out = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
      other = theirs(lambda: torch.mm(ta, tb, out=out))
      close(work, c.numpy(), (ta @ tb).float().cpu().numpy())
    x, y = versus(ours(calls, flush), other)
    work_ = 2 * m * n * k / 1e12
    ratio = None if torch is None else y / x
    note(Row(work, f"{work_ / x:.0f} TFLOP/s", f"cuBLAS {work_ / y:.0f} TFLOP/s", ratio, FAST, limit, kernels=names(calls)))
    kept.clear()
  for n, limit in ((1024, 0.85), (2048, 1.0), (4096, 1.0), (8192, 1.0)): one(f"bf16 matmul {n}", n, n, n, limit)
  one("bf16 matmul 16×8192×8192", 16, 8192, 8192, 0.85)
  for n in (1024, 2048, 4096, 8192):
    with config(beam=2): one(f"bf16 matmul {n}, BEAM=2", n, n, n, 0.85 if n == 1024 else 1.0)
  kernel = module_of(EXAMPLES / "tile" / "matmul.py")
  def written(a: Tensor, b: Tensor) -> tuple[list[Any], Tensor]:
    c = Tensor(np.zeros((a.shape[0], b.shape[1]), ml_dtypes.bfloat16), device=NAME).realize()
    with config(tune=1): kernel.matmul(a, b, c)
    return launches(lambda: kernel.matmul(a, b, c)), c
  one("tile-language matmul 4096", 4096, 4096, 4096, 0.95, written)


def streams(flush: Flush, wanted: Callable[[str], bool]) -> None:
  """Kernels that should move their bytes at the speed of a copy."""
  def one(work: str, x: Tensor, make: Callable[[], Tensor], want: Callable[[], Any], passes: int, limit: float) -> None:
    """``passes``: times that the bytes of ``x`` are read or written."""
    if not wanted(work): return
    t, size, device = make(), x.nbytes(), flush.device
    calls = launches(lambda: t.realize())
    if torch is not None: close(work, t.numpy(), want().float().cpu().numpy())
    source, to = x.lazydata.arg.raw, device.alloc(size)
    copy = timed(flush, lambda: device.driver.cuMemcpyDtoDAsync(to, source, size, device.stream.handle))
    mine, copied = versus(ours(calls, flush), copy)
    _, other = versus(copy, theirs(want)) if torch is not None else (0.0, float("nan"))
    device.free(to, size)
    text = f"copy {2 * size / copied / 1e12:.2f} TB/s" + (
      f", torch {passes * size / other / 1e12:.2f}" if torch is not None else ""
    )
    note(
      Row(
        work, f"{passes * size / mine / 1e12:.2f} TB/s", text, passes / mine / (2 / copied), FAST, limit, "× copy", names(calls)
      )
    )
    kept.clear()
  if any(map(wanted, ("x + 1.25, 268 MB fp32", "gelu(2x + 1)·x, 268 MB fp32"))):
    x = random(8192, 8192, dtype=dtypes.float32)
    tx = to_torch(x) if torch is not None else None
    one("x + 1.25, 268 MB fp32", x, lambda: x + 1.25, lambda: tx + 1.25, 2, 0.92)
    one("gelu(2x + 1)·x, 268 MB fp32", x, lambda: (2 * x + 1).gelu() * x,
        lambda: torch.nn.functional.gelu(2 * tx + 1, approximate="tanh") * tx, 2, 0.92)
  y = random(16384, 8192)
  ty = to_torch(y) if torch is not None else None
  one("row sum 16384×8192 bf16", y, lambda: y.sum(1), lambda: ty.sum(1), 1, 0.88)
  one("softmax 16384×8192 bf16", y, lambda: y.softmax(-1), lambda: torch.softmax(ty, -1), 2, 0.88)
  one("layer norm 16384×8192 bf16", y, lambda: y.layernorm(), lambda: torch.nn.functional.layer_norm(ty, (8192,)), 2, 0.88)


def network(flush: Flush, wanted: Callable[[str], bool]) -> None:
  """A training step of examples/mnist.py, batch 128: host time with the loss read, as a training loop has it."""
  work = "MNIST step, captured"
  if not wanted(work): return
  Tensor.manual_seed(0)
  f: Any = ntgrad.jit(training(example().Model(16)))
  rng = np.random.default_rng(3)
  arrays = [(rng.random((128, 1, 28, 28), np.float32), rng.integers(0, 10, 128).astype(np.int32)) for _ in range(4)]
  batches = [(Tensor(x).realize(), Tensor(y).realize()) for x, y in arrays]
  Tensor.training = True
  losses = [f(*batches[i % 4]).item() for i in range(40)]
  if not losses[-1] < losses[0]: raise AssertionError(f"{work}: the loss does not fall ({losses[0]:.3f} to {losses[-1]:.3f})")
  turn = 0
  def mine() -> float:
    nonlocal turn
    turn += 1
    start = time.perf_counter()
    f(*batches[turn % 4]).item()
    return time.perf_counter() - start
  x, y = versus(mine, torch_step() if torch is not None else None, 12)
  calls = f.kernels
  Tensor.training = False
  note(
    Row(
      work,
      f"{x * 1e3:.2f} ms, {calls} kernels",
      f"torch eager {y * 1e3:.2f} ms",
      None if torch is None else x / y,
      SLOW,
      0.5,
      "× time",
    )
  )


def torch_step() -> Callable[[], float]:
  """The same network's step in torch."""
  n = torch.nn
  def block(a: int, b: int, k: int) -> list[Any]:
    return [n.Conv2d(a, b, k), n.ReLU(), n.Conv2d(b, b, k, bias=False), n.BatchNorm2d(b), n.ReLU(), n.MaxPool2d(2)]
  net = n.Sequential(*block(1, 16, 5), *block(16, 32, 3), n.Flatten(), n.Linear(288, 10)).cuda()
  opt = torch.optim.Adam(net.parameters(), lr=1e-3)
  x, y = torch.rand(128, 1, 28, 28).cuda(), torch.randint(0, 10, (128,)).cuda()
  def once() -> float:
    start = time.perf_counter()
    opt.zero_grad()
    loss = n.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    loss.item()
    return time.perf_counter() - start
  return once


def costs(flush: Flush, wanted: Callable[[str], bool]) -> None:
  """What launching costs the host: microseconds of its time, the least of five rounds."""
  device = flush.device
  def each(fn: Callable[[], Any], n: int) -> float:
    best = 1e9
    for _ in range(5):
      device.synchronize()
      start = time.perf_counter()
      for _ in range(n): fn()
      best = min(best, time.perf_counter() - start)
      device.synchronize()
    return best / n * 1e6
  def one(work: str, fn: Callable[[], Any], n: int, per: int, limit: float) -> None:
    took = each(fn, n) / per
    note(Row(work, f"{took:.1f} µs", "–", took, SLOW, limit, "µs"))
  tx, ty, tz = (Tensor(np.random.default_rng(i).random(1024, np.float32), device=NAME).realize() for i in range(3))
  if wanted("a launch"):
    program, raws = launches(lambda: (tx + ty).realize())[0]
    one("a launch", lambda: program(raws), 500, 1, 6)
  if wanted("a small kernel on replay"):
    def chain(x: Tensor) -> Tensor:
      for _ in range(40): x = (x + 1.5).realize()
      return x
    g = ntgrad.jit(chain)
    for _ in range(4): g(tx)
    start = time.perf_counter()
    for _ in range(20): g(tx)
    device.synchronize()
    whole = (time.perf_counter() - start) / 20 / g.kernels * 1e6
    one("a small kernel on replay", lambda: g(tx), 20, g.kernels, 4)
    note(Row("the same until the device is done", f"{whole:.1f} µs", "–", whole, SLOW, 4, "µs"))
  if wanted("a tile kernel's call"):
    add = module_of(EXAMPLES / "tile" / "vector_add.py")
    f = next(v for v in vars(add).values() if isinstance(v, ntgrad.tile.TileKernel))
    f(tx, ty, tz)
    one("a tile kernel's call", lambda: f(tx, ty, tz), 500, 1, 12)


def main() -> None:
  """Measure, print, and exit 1 if a row misses its mark or a part fails."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--only", default="", help="comma-separated words; rows whose name has one of them")
  parser.add_argument("--write", action="store_true", help="replace bench/RESULTS-cuda.md")
  args = parser.parse_args()
  from ntgrad.backends.cuda.driver import available
  found, name = available(NAME)
  if not found: sys.exit(f"bench: {name}")
  words = [w for w in args.only.lower().split(",") if w]
  def wanted(work: str) -> bool: return not words or any(w in work.lower() for w in words)
  failed = []
  with config(dev=NAME):
    flush = Flush()
    for part in (streams, products, network, costs):
      try: part(flush, wanted)
      except Exception as e:   # the others are still worth having
        failed.append(part.__name__)
        print(f"FAILED {part.__name__}: {type(e).__name__}: {e}"[:2000], flush=True)
  with_torch = f"torch {torch.__version__}" if torch is not None else "no torch"
  versions = f"Python {sys.version.split()[0]}, numpy {np.__version__}, {with_torch}"
  text = f"{datetime.date.today()}, {name}, default device {Device.DEFAULT}, {versions}\n\n{table(rows)}\n"
  print("\n" + text)
  if args.write:
    file = HERE / "RESULTS-cuda.md"
    # written by hand, and kept
    _, mark, notes = (file.read_text() if file.exists() else "").partition("## Predictions and outcomes")
    file.write_text(f"# What `bench/cuda.py` measured\n\n{text}" + (f"\n{mark}{notes}" if mark else ""))
  sys.exit(1 if dropped() or failed or any(r.ok is False for r in rows) else 0)


if __name__ == "__main__": main()
