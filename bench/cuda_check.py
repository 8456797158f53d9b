#!/usr/bin/env python3
"""Does ntgrad work on this machine's NVIDIA GPU, and how fast is it? One run, a few minutes, everything against numpy; torch where it is.

    python bench/cuda_check.py                       # all parts
    python bench/cuda_check.py --only speed,launch   # those whose name has one of these words

Parts: operations (rows of the conformance table), kernels (examples/tile), training (a few steps of examples/mnist.py, captured and not),
launch (microseconds of Python a kernel), speed (against torch and a device copy). A part that fails is told of, the others still run.
"""
from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Callable

os.environ.setdefault("TUNE", "0")
if "CACHE_DIR" not in os.environ: os.environ["CACHE_DIR"] = tempfile.mkdtemp(prefix="ntgrad-cuda-check-")

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

import ntgrad  # noqa: E402
import ntgrad.tile as tile  # noqa: E402
import ntgrad.tile.language as tl  # noqa: E402
from ntgrad import Device, Tensor, config, dtypes, nn  # noqa: E402
from ntgrad.engine import realize as engine  # noqa: E402
from ntgrad.engine.device import get_device  # noqa: E402

try:
  import torch as _torch
except ImportError:
  _torch = None  # type: ignore[assignment]
torch: Any = _torch

HERE = Path(__file__).resolve().parent
NAME = "CUDA"
SECONDS = 220.0     # for everything
started = time.perf_counter()
failures: list[str] = []
# losses of the first training steps, as the CPU computed them (--record prints them)
LOSSES = [2.51042366, 2.37582254, 2.3889947, 2.44412756, 2.44543219, 2.40400028]


def left() -> float: return SECONDS - (time.perf_counter() - started)


def trouble(what: str, e: BaseException) -> None:
  """Note a failure with the end of its traceback."""
  lines = traceback.format_exception(e)
  text = "".join(lines[-3:])
  failures.append(what)
  print(f"FAILED {what}\n" + "\n".join("    " + line[:300] for line in text.strip().splitlines()[-14:]), flush=True)


# ---- operations

def operations() -> None:
  """Rows of the conformance table over some dtypes."""
  sys.path.insert(0, str(HERE.parent / "tests"))
  from support.ops import ROWS, values
  right = wrong = refused = 0
  budget = time.perf_counter() + min(60.0, left())
  names = "float32 int32 bfloat16 float16 uint8 bool float64 float8_e4m3 int64"
  for d in (getattr(dtypes, name) for name in names.split()):
    for i, row in enumerate(r for r in ROWS if r.takes(d)):
      if d not in (dtypes.float32, dtypes.bfloat16) and i % 7: continue
      if time.perf_counter() > budget: break
      arrays = [values(s, d, np.random.default_rng(i)) for s in row.inputs]
      try:
        made = row.fn(*[Tensor(a, device=NAME) for a in arrays])
        got = [t.numpy() for t in (made if isinstance(made, (tuple, list)) else [made])]
      except Exception as e:
        refused += 1
        if refused <= 6: trouble(f"{row.family} / {row.name} of {d}", e)
        continue
      wide = [a if a.dtype.kind in "iub" else a.astype(np.float64) for a in arrays]
      if row.out == "acc": wide = [a.astype(np.int64) if a.dtype.kind in "iu" and a.dtype.itemsize < 4 else a for a in wide]
      with np.errstate(all="ignore"): want = row.ref(*wide)
      eps = float(ml_dtypes.finfo(row.result(d).np).eps) if row.result(d).kind == "f" else 0.0
      for g, w in zip(got, want if isinstance(want, tuple) else [want]):
        if close(g, np.asarray(w), max(row.tol, 1) * eps): right += 1
        else:
          wrong += 1
          if wrong <= 12: print(f"  WRONG {row.family} / {row.name} of {d}: {np.ravel(g)[:4]}, numpy has {np.ravel(w)[:4]}")
  print(f"operations: {right} as in numpy, {wrong} wrong, {refused} failed")
  if wrong: failures.append("operations")


def close(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], tol: float) -> bool:
  """Equal, or off by ``tol`` of the value or of the largest."""
  if got.shape != want.shape: return False
  if got.dtype.kind in "iub": return bool((got == want.astype(got.dtype)).all())
  g, w = got.astype(np.float64), want.astype(got.dtype if tol < 1e-300 else np.float64).astype(np.float64)
  with np.errstate(invalid="ignore"):
    scale = np.maximum(np.abs(w), np.max(np.abs(w), where=np.isfinite(w), initial=1.0))
    return bool(((g == w) | (np.isnan(g) & np.isnan(w)) | (np.abs(g - w) <= tol * scale)).all())


# ---- the tile language's examples

def kernels() -> None:
  """Each kernel of examples/tile on its own case."""
  folder = HERE.parent / "examples" / "tile"
  sys.path.insert(0, str(folder))
  for name in sorted(p.stem for p in folder.glob("*.py")):
    try:
      kernel, args, want = importlib.import_module(name).case(np.random.default_rng(0))
      args, given = (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})
      kernel(*args, **given)
      wants = want if isinstance(want, tuple) else (want,)
      for got, w in zip(args[-len(wants):], wants): np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-4)
      print(f"examples/tile/{name}.py: right")
    except Exception as e: trouble(f"examples/tile/{name}.py", e)


# ---- training

def losses(captured: bool, steps: int) -> tuple[list[float], float]:
  """The losses of some steps of the example's network, and the median seconds of the last ones."""
  spec = importlib.util.spec_from_file_location("mnist_example", HERE.parent / "examples" / "mnist.py")
  assert spec is not None and spec.loader is not None
  example = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(example)
  Tensor.manual_seed(0)
  model = example.Model(16)
  rng = np.random.default_rng(3)
  opt = nn.optim.Adam(nn.state.get_parameters(model), lr=1e-3)
  def step(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = model(x).sparse_categorical_crossentropy(y).backward()
    opt.step()
    return loss.realize()
  f: Any = ntgrad.jit(step) if captured else step
  out, times = [], []
  Tensor.training = True
  for _ in range(steps):
    x, y = Tensor(rng.random((128, 1, 28, 28), np.float32)), Tensor(rng.integers(0, 10, 128).astype(np.int32))
    start = time.perf_counter()
    out.append(f(x, y).item())
    times.append(time.perf_counter() - start)
  Tensor.training = False
  return out, median(times[3:] or times)


def training() -> None:
  """Losses as on a CPU, captured and not; time of a step beside torch's."""
  for captured in (False, True):
    start = time.perf_counter()
    try: got, seconds = losses(captured, 12 if captured else len(LOSSES))
    except Exception as e:
      trouble(f"training, {'captured' if captured else 'plain'}", e)
      continue
    worst = max(abs(a - b) / abs(b) for a, b in zip(got, LOSSES))
    took = time.perf_counter() - start
    print(f"training, {'captured' if captured else 'plain   '}: {' '.join(f'{x:.5f}' for x in got[:6])}, off the CPU's by {worst:.1e}; "
          f"{seconds * 1e3:.2f} ms a step, {took:.1f} s in all")
    if not worst < 1e-3: failures.append("training: losses")
  if torch is not None:
    try: print(f"training, torch eager: {torch_step() * 1e3:.2f} ms a step")
    except Exception as e: trouble("training in torch", e)


def torch_step() -> float:
  """Median seconds of the same network's step in torch."""
  n = torch.nn
  def block(a: int, b: int, k: int) -> list[Any]:
    return [n.Conv2d(a, b, k), n.ReLU(), n.Conv2d(b, b, k, bias=False), n.BatchNorm2d(b), n.ReLU(), n.MaxPool2d(2)]
  net = n.Sequential(*block(1, 16, 5), *block(16, 32, 3), n.Flatten(), n.Linear(288, 10)).cuda()
  opt = torch.optim.Adam(net.parameters(), lr=1e-3)
  x, y = torch.rand(128, 1, 28, 28).cuda(), torch.randint(0, 10, (128,)).cuda()
  times = []
  for _ in range(30):
    start = time.perf_counter()
    opt.zero_grad()
    loss = n.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    loss.item()
    times.append(time.perf_counter() - start)
  return median(times[10:])


# ---- launches

def each(fn: Callable[[], Any], n: int) -> float:
  """Microseconds of this thread's time a call, the least of five rounds."""
  device = get_device(NAME)
  best = 1e9
  for _ in range(5):
    device.synchronize()
    start = time.perf_counter()
    for _ in range(n): fn()
    best = min(best, time.perf_counter() - start)
    device.synchronize()
  return best / n * 1e6


def launch() -> None:
  """What a launch costs the host: the program alone, a call of the tile language, a captured function."""
  tx, ty, tz = (Tensor(np.random.default_rng(i).random(1024, np.float32)).realize() for i in range(3))
  calls = launches(lambda: (tx + ty).realize())
  program, raws = calls[0]
  print(f"launch: {each(lambda: program(raws), 500):.2f} µs a program of {len(raws)} buffers")
  function, stream, config_, kernel = program._bound[:4]
  print(f"launch: {each(lambda: function(stream, config_, kernel, *raws, 0, 0), 500):.2f} µs of it cuda.core's launch")
  sys.path.insert(0, str(HERE.parent / "examples" / "tile"))
  add = importlib.import_module("vector_add")
  name = next(k for k, v in vars(add).items() if isinstance(v, tile.TileKernel))
  f = getattr(add, name)
  f(tx, ty, tz)
  print(f"launch: {each(lambda: f(tx, ty, tz), 500):.2f} µs a call of a tile-language kernel on tensors")
  def chain(x: Tensor) -> Tensor:
    for _ in range(20): x = (x + 1.5).realize()
    return x
  g = ntgrad.jit(chain)
  for _ in range(3): g(tx)
  print(f"launch: {each(lambda: g(tx), 20) / g.kernels:.2f} µs a kernel of a captured function of {g.kernels}")
  print(f"launch: {each(lambda: (tx + ty).realize(), 200):.2f} µs an addition that is not captured")
  x = np.zeros(1 << 20, np.float32)
  t = Tensor(x).realize()
  for what, fn, n in (("4 bytes in", lambda: Tensor(np.float32(1)).realize(), 200), ("4 bytes out", tx[:1].contiguous().realize().numpy, 200),
                      ("4 MB in", lambda: Tensor(x).realize(), 10), ("4 MB out", t.numpy, 10)):
    print(f"launch: {each(fn, n):.1f} µs for {what}")


def launches(fn: Callable[[], Any]) -> list[tuple[Any, list[Any]]]:
  """The programs that a call launches, each with its memory (which stays allocated)."""
  found: list[tuple[Any, list[Any]]] = []
  kept.append(found)
  def note(step: Any, buffers: Any) -> None:
    kept.append(list(buffers))
    found.append((step.program, [b.raw for b in buffers]))
  engine.captures.append(note)
  try: kept.append(fn())
  finally: engine.captures.remove(note)
  return found


kept: list[Any] = []


# ---- speed

def on_device(calls: list[tuple[Any, list[Any]]], n: int = 20) -> float:
  """Median seconds on the device of some launches, one after the other."""
  device: Any = get_device(NAME)
  times = []
  for i in range(n + 3):
    start = device.clock.record()
    for program, raws in calls: program(raws)
    end = device.clock.record()
    end.sync()
    if i >= 3: times.append(float(end - start) * 1e-3)
    for e in (start, end): device.clock.give(e)
  return median(times)


def in_torch(fn: Callable[[], Any], n: int = 20) -> float:
  """The same for torch."""
  times = []
  for i in range(n + 3):
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    fn()
    b.record()
    b.synchronize()
    if i >= 3: times.append(a.elapsed_time(b) * 1e-3)
  return median(times)


def random(*shape: int, dtype: Any = dtypes.bfloat16) -> Tensor:
  """Random numbers, not all of them different."""
  some = np.random.default_rng(len(kept)).standard_normal(1 << 20, np.float32)
  return Tensor(np.resize(some, shape).astype(dtype.np), device=NAME).realize()


def to_torch(t: Tensor) -> Any:
  """A copy of a tensor in torch."""
  x = t.numpy()
  return torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16) if t.dtype is dtypes.bfloat16 else torch.from_numpy(x).cuda()


rows: list[tuple[str, str, str, str]] = []


def row(work: str, ours: float, theirs: float | None, amount: float, unit: str) -> None:
  """A line of the table, printed now as well."""
  def text(s: float) -> str: return f"{s * 1e3:.3f} ms ({amount / s:.4g} {unit})"
  rows.append((work, text(ours), text(theirs) if theirs else "–", f"{theirs / ours:.2f}" if theirs else "–"))
  print("| " + " | ".join(rows[-1]) + " |", flush=True)


BM, BN, BK = (tile.Symbol(n, constexpr=True) for n in ("BM", "BN", "BK"))


def arrangement(input: Any, other: Any, output: Any) -> Any:
  """Tiles of the output, a row of one matrix's and a column of the other's."""
  o = output.tile((BM, BN))
  a = input.tile((BM, BK)).tile((1, -1)).expand((-1, o.shape[1]))
  a.dtype = a.dtype.squeeze(0)
  b = other.tile((BK, BN)).tile((-1, 1)).expand((o.shape[0], -1))
  b.dtype = b.dtype.squeeze(1)
  return a, b, o


def application(input, other, output):  # type: ignore[no-untyped-def]
  accumulator = tl.zeros(output.shape, dtype=tl.float32)
  for k in range(input.shape[0]):
    accumulator += tl.dot(input[k], other[k])
  output = accumulator  # noqa: F841


def matmul() -> None:
  """4096³ in bfloat16: as scheduled, and tiles of the tile language with warps and stages."""
  n = 4096
  a, b = random(n, n), random(n, n)
  ta, tb = (to_torch(a), to_torch(b)) if torch is not None else (None, None)
  theirs = in_torch(lambda: ta @ tb) if torch is not None else None
  want = (ta @ tb).float().cpu().numpy() if torch is not None else None
  def check(what: str, out: np.ndarray[Any, Any]) -> None:
    if want is None: return
    error = np.linalg.norm(out.astype(np.float32) - want) / np.linalg.norm(want)
    if not error < 1e-2: raise AssertionError(f"{what}: off by {error:.2g}")
  work = 2 * n ** 3 / 1e12
  c = a @ b
  calls = launches(lambda: c.realize())
  check("matmul", c.numpy())
  row(f"matmul {n}³ bf16, scheduled", on_device(calls), theirs, work, "TFLOP/s")
  kernel = tile.make(arrangement, application, (tile.Tensor(2), tile.Tensor(2), tile.Tensor(2)), kernel_name="matmul")
  device: Any = get_device(NAME)
  found = []
  sizes = [(64, 64, 64), (128, 64, 64), (128, 128, 64), (128, 256, 64), (256, 128, 64), (64, 256, 64), (128, 128, 32), (128, 128, 128), (256, 64, 64)]
  for bm, bn, bk in sizes:
    for warps, stages in ((4, 3), (8, 3), (8, 4)):
      if left() < 60 or (bm * bn > 128 * 128 and warps == 4): continue
      what = f"matmul {n}³ bf16, tiles {bm}×{bn}×{bk}, {warps} warps, {stages} stages"
      try:
        s = kernel.specialise(*[((n, n), "bfloat16")] * 3, BM=bm, BN=bn, BK=bk)
        program, = device.compile([replace(s.spec(device), options=(("num_warps", warps), ("num_stages", stages)))])
        out = Tensor(np.zeros((n, n), ml_dtypes.bfloat16), device=NAME).realize()
        raws = [t.lazydata.arg.raw for t in (a, b, out)]
        program(raws)
        check(what, out.numpy())
        found.append((on_device([(program, raws)], 10), what))
      except Exception as e:
        print(f"  {what}: {type(e).__name__}: {str(e).splitlines()[0][:200]}")
  for seconds, what in sorted(found)[:6]: row(what, seconds, theirs, work, "TFLOP/s")
  if found: print("  slowest: " + ", ".join(f"{what.split('tiles ')[1]} {work / seconds:.0f}" for seconds, what in sorted(found)[6:]))


def streaming() -> None:
  """Kernels that should move their bytes at the speed of a copy."""
  x = random(8192, 8192, dtype=dtypes.float32)
  tx = to_torch(x) if torch is not None else None
  size = x.nbytes()
  if torch is not None:
    out = torch.empty_like(tx)
    seconds = in_torch(lambda: out.copy_(tx))
    print(f"device copy of {size / 1e6:.0f} MB in torch: {2 * size / seconds / 1e12:.2f} TB/s read and written")
  def one(work: str, make: Callable[[], Tensor], theirs: Callable[[], Any] | None, passes: float, nbytes: int) -> None:
    try:
      t = make()
      calls = launches(lambda: t.realize())
      if theirs is not None and torch is not None:
        g, w = t.numpy().astype(np.float32), theirs().float().cpu().numpy()
        error = np.linalg.norm(g - w) / np.linalg.norm(w)
        if not error < 1e-2: raise AssertionError(f"off by {error:.2g}")
      names = ", ".join(p.spec.name for p, _ in calls)
      other = in_torch(theirs) if theirs is not None and torch is not None else None
      row(f"{work} ({names})", on_device(calls), other, passes * nbytes / 1e12, "TB/s")
    except Exception as e: trouble(work, e)
    kept.clear()
  gelu = (lambda y: torch.nn.functional.gelu(y, approximate="tanh")) if torch is not None else None
  one("x + 1.25, 268 MB fp32", lambda: x + 1.25, lambda: tx + 1.25, 2, size)
  one("gelu(2x+1)·x, 268 MB fp32", lambda: (2 * x + 1).gelu() * x, lambda: gelu(2 * tx + 1) * tx, 2, size)  # type: ignore[misc]
  y = random(16384, 8192)
  ty = to_torch(y) if torch is not None else None
  size = y.nbytes()
  one("row sum 16384×8192 bf16", lambda: y.sum(1), lambda: ty.sum(1), 1, size)
  one("softmax 16384×8192 bf16", lambda: y.softmax(-1), lambda: torch.softmax(ty, -1), 2, size)
  one("layer norm 16384×8192 bf16", lambda: y.layernorm(), lambda: torch.nn.functional.layer_norm(ty, (8192,)), 2, size)


def speed() -> None:
  """A table: work, ntgrad, torch, ratio."""
  for part in (streaming, matmul):
    try: part()
    except Exception as e: trouble(part.__name__, e)


def main() -> None:
  """Run the parts; exits 1 when one failed."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--only", default="", help="comma-separated words")
  parser.add_argument("--record", action="store_true", help="print the losses of the training steps on this machine's default device")
  parser.add_argument("--seconds", type=float, default=SECONDS, help="for everything (default %(default)s)")
  args = parser.parse_args()
  globals()["SECONDS"] = args.seconds
  if args.record:
    print(losses(False, 6)[0])
    return
  from ntgrad.backends.cuda.driver import available
  found, name = available(NAME)
  if not found: sys.exit(f"cuda_check: {name}")
  print(f"{name}; default device {Device.DEFAULT}; Python {sys.version.split()[0]}, numpy {np.__version__}, "
        f"{'torch ' + torch.__version__ if torch is not None else 'no torch'}")
  if Device.DEFAULT != NAME: failures.append("the default device")
  words = [w for w in args.only.split(",") if w]
  with config(dev=NAME):
    for part in (kernels, training, launch, speed, operations):
      if words and not any(w in part.__name__ for w in words): continue
      start = time.perf_counter()
      try: part()
      except Exception as e: trouble(part.__name__, e)
      print(f"-- {part.__name__}: {time.perf_counter() - start:.1f} s", flush=True)
  if rows: print("\n| work | ntgrad | torch | ratio |\n|---|---|---|--:|\n" + "\n".join("| " + " | ".join(r) + " |" for r in rows))
  device: Any = get_device(NAME)
  print(f"peak memory {device.peak / 1e9:.2f} GB; {time.perf_counter() - started:.0f} s; failed: {', '.join(failures) or 'nothing'}")
  sys.exit(1 if failures else 0)


if __name__ == "__main__": main()
