"""Long loops take no more and more memory, nodes, files or threads; and a process that is killed leaves a cache that the next one
can use."""
from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
from ntgrad import Device, Tensor, nn
from ntgrad.backends import cache
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.uop import live_nodes
from ntgrad.engine import compile as engine_compile, planner
from ntgrad.engine.buffer import Storage, overwritten
from ntgrad.graph.alias import live_aliases, pending
from support.devices import missing
from support.marks import long

ROOT = Path(__file__).resolve().parents[2]
needs_cpu = pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
DEVICES = ["NUMPY", pytest.param("CPU", marks=needs_cpu)]


def census() -> dict[str, int]:
  """How many there are of what a process has."""
  gc.collect()
  return {"nodes": len(live_nodes()), "aliases": len(live_aliases), "pending": len(pending), "overwritten": len(overwritten),
          "storages": sum(type(o) is Storage for o in gc.get_objects()), "bytes": Device.memory().allocated,
          "plans": len(planner._plans), "programs": len(engine_compile._programs),
          "threads": threading.active_count(), "files": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0}


def rows(x: Any, y: Any) -> Any: return x.tile((1, -1)), y.tile((1, -1))
def twice(x: Any, y: Any) -> Any: y = x * 2  # noqa: F841


def work() -> dict[str, Callable[[], object]]:
  """What programs do all day, by name."""
  layer = nn.Linear(4, 3)
  opt = nn.optim.Adam(nn.state.get_parameters(layer), lr=0.01)
  data = np.arange(8, dtype=np.float32).reshape(2, 4)
  kernel = tile.make(rows, twice, (tile.Tensor(2), tile.Tensor(2)))
  out, total = Tensor.zeros(2, 4).contiguous().realize(), Tensor.zeros(2, 3).contiguous().realize()
  def train() -> None:
    opt.zero_grad()
    layer(Tensor(data)).square().mean().backward()
    opt.step()
  @ntgrad.jit
  def captured(x: Tensor) -> Tensor:
    total.assign(total + layer(x).detach())
    return (total * 2).realize()
  def captured_anew() -> None:
    f = ntgrad.jit(lambda x: (x * 2 + 1).realize())
    for _ in range(3): f(Tensor(data))
  def views() -> None:
    x = Tensor(data).realize()
    y = x[1:].reshape(2, 2)
    y += 1
    x[0, :2] = 5.0
    assert x.numpy()[0, 0] == 5
  def dropped() -> None:   # written and read by nobody
    x = Tensor(data).realize()
    x += 1
    (x * 3).sum()
  def refused() -> None:
    try: Tensor(data) @ Tensor(data)
    except ntgrad.errors.ShapeError: pass

  return {
    "train": train,
    "captured": lambda: captured(Tensor(data)),
    "captured anew": captured_anew,
    "views": views,
    "dropped": dropped,
    "tile": lambda: kernel(Tensor(data).realize(), out),
    "random": lambda: Tensor.rand(3).numpy(),
    "refused": refused,
    "numpy": lambda: np.from_dlpack(Tensor(data).realize()) if out.device == "CPU" else None,
  }


@long
@pytest.mark.parametrize("device", DEVICES)
def test_loops(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """Sixty rounds more leave what the first eight left."""
  monkeypatch.setattr(Device, "assigned", device)
  for name, step in work().items():
    for _ in range(8): step()
    before = census()
    for _ in range(60): step()
    passing, end = {"threads": 2, "files": 4}, time.monotonic() + 20   # programs may be saved at the moment
    while True:
      after = census()
      grew = {k: (before[k], after[k]) for k in after if after[k] > before[k] + passing.get(k, 0)}
      if not grew.keys() & passing.keys() or time.monotonic() > end: break
      time.sleep(0.2)   # or a compiler be at work
    assert not grew, (name, grew)


@long
@needs_cpu
def test_many_shapes_and_processes(tmp_path: Path) -> None:
  """The size of the process itself: new shapes all the time, with worker processes that come and go."""
  code = """
import gc, os, resource, time
import numpy as np
from ntgrad import Tensor
from ntgrad.backends import workers as pool
from ntgrad.engine import compile, planner as plans, realize
for known in (plans._plans, compile._programs): known.most = 4
def size(): return int(open("/proc/self/statm").read().split()[1]) * 4096
def step(n):
  x = Tensor(np.ones((n % 5 + 2, 100_000), np.float32))
  (x * (n % 5 + 0.5)).sum(1).numpy()
  if n % 10 == 9: pool.stop()
for n in range(20): step(n)
files, before = len(os.listdir("/proc/self/fd")), size()
for n in range(200): step(n)
gc.collect()
print(len(os.listdir("/proc/self/fd")) - files <= 2, size() - before < 30_000_000, size() - before)
"""
  if not os.path.isdir("/proc/self/fd"): pytest.skip("no /proc")
  done = subprocess.run(
    [sys.executable, "-c", code],
    env={**os.environ, "DEV": "CPU", "CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT), "WORKERS": "2", "VERIFY": "0"},
    capture_output=True,
    text=True,
    timeout=150,
    check=False,
  )
  assert done.stdout.startswith("True True") and not done.stderr, done.stdout + done.stderr


@long
@needs_cpu
def test_killed_while_it_compiles_and_saves(tmp_path: Path) -> None:
  """At any moment. The next process finds no damage, prints nothing, and computes the same."""
  code = """
import sys
import numpy as np
from ntgrad import Tensor
from ntgrad.backends.opencl import compiler
compiler.QUIET = 0.01
first = int(sys.argv[1])
for n in range(first, first + 5):
  x = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
  for k in (1, 2): assert ((Tensor(x) + k).sum(1).numpy() == (x + k).sum(1)).all()
"""
  env = {**os.environ, "DEV": "CPU", "CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT), "WORKERS": "2", "VERIFY": "0"}
  rng = random.Random(1)

  def start(n: int) -> Any:
    return subprocess.Popen([sys.executable, "-c", code, str(n)], env=env, stderr=subprocess.PIPE, text=True)

  started = time.monotonic()
  for i in range(6):
    p = start(2 + i)
    try: p.wait(rng.uniform(0.6, 2.5))
    except subprocess.TimeoutExpired: p.send_signal(signal.SIGKILL)
    assert p.communicate(timeout=60)[1] == ""
    if time.monotonic() - started > 20: break
  p = start(2)
  assert p.communicate(timeout=100)[1] == "" and p.returncode == 0
  for *_, path in cache.entries(tmp_path):   # all of them are whole
    table, name = Path(path).parent.parent.name, Path(path).name
    with config(cache=1, cache_dir=str(tmp_path)): assert cache.load(table, name) is not None
