"""Ctrl-C at any moment: every tensor has its old value or its new one, and what is called next works."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ntgrad import Tensor
from ntgrad.backends.process import uninterrupted
from ntgrad.engine.device import get_device
from support.devices import missing
from support.marks import long, long_where

ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
DEVICES = ["NUMPY", pytest.param("CPU", marks=pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU")))]

# ``interrupted(f, seconds)`` calls f and sends Ctrl-C after that time; gives whether it came before f was done.
PRELUDE = """
import os, random, signal, sys, time
import numpy as np
import ntgrad
from ntgrad import Tensor, config
random.seed(1)
signal.signal(signal.SIGINT, signal.default_int_handler)   # ignored in what a shell runs in the background
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
def interrupted(f, seconds):
  try:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try: f()
    finally: signal.setitimer(signal.ITIMER_REAL, 0)
  except KeyboardInterrupt: return True
  return False
def within(seconds, f, longest):
  # f again and again, interrupted after times up to ``longest``; how often it was
  count, end = 0, time.monotonic() + seconds
  while time.monotonic() < end: count += f(random.uniform(0, 1) ** 2 * longest + 1e-6)
  return count
"""


def run(code: str, **env: str) -> list[str]:
  """The lines that a program prints. Of errors it may print only that Python lost an interrupt, which it does in what runs when
  an object goes."""
  with tempfile.NamedTemporaryFile("w", suffix=".py") as f:   # an application's source is read from its file
    f.write(PRELUDE + textwrap.dedent(code))
    f.flush()
    done = subprocess.run(
      [sys.executable, f.name],
      env={**os.environ, "PYTHONPATH": PATHS, **env},
      capture_output=True,
      text=True,
      timeout=150,
      check=False,
    )
  assert done.returncode == 0 and "Error" not in done.stderr, done.stderr
  return done.stdout.splitlines()


def test_uninterrupted() -> None:
  """Once, after the block, whatever it raises, and blocks in blocks; a handler of somebody else's is called as it was."""
  seen: list[str] = []
  before = signal.getsignal(signal.SIGINT)
  try:
    signal.signal(signal.SIGINT, lambda *_: seen.append("handled"))
    with uninterrupted():
      with uninterrupted():
        for _ in range(3): signal.raise_signal(signal.SIGINT)
        seen.append("inner")
      seen.append("outer")
    assert seen == ["inner", "outer", "handled"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), uninterrupted():
      signal.raise_signal(signal.SIGINT)
      raise ValueError
    mine = signal.getsignal(signal.SIGINT)
    with uninterrupted(): pass
    assert signal.getsignal(signal.SIGINT) is mine
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted(): signal.raise_signal(signal.SIGINT)
  finally: signal.signal(signal.SIGINT, before)


@long_where(lambda device, how: device != "NUMPY" or how != "jit")
@pytest.mark.parametrize("how", ["plain", "jit", "tile"])
@pytest.mark.parametrize("device", DEVICES)
def test_steps(device: str, how: str) -> None:
  """Steps that write in place, eager and captured: each state is the one before or after the step, whole, and counting goes on
  from it.

  The parameter that two kernels write, and the one whose new value needs another's old one, are where half a step would show.
  """
  lines = run(f"""
    import ntgrad.tile as tile
    w, m, parts = (Tensor(np.zeros(40, np.float32)).contiguous().realize() for _ in range(3))
    def rows(x): return (x.tile((8,)),)
    def add_one(x): x = x + 1
    kernel = tile.make(rows, add_one, (tile.Tensor(1),))
    def step():
      if {how!r} == "tile": return kernel(w)
      loss = (w * 2 + m).sum()
      parts.assign((parts[:7] + 1).cat(parts[7:] + 1))
      m.assign(m + w - w + 2)
      w.assign(w + 1)
      Tensor.realize(w, m, parts, loss)
      return loss
    call = ntgrad.jit(step) if {how!r} == "jit" else step
    for _ in range(3): call()
    state = [3.0, 6.0, 3.0] if {how!r} != "tile" else [3.0, 0.0, 0.0]
    deltas = (1, 2, 1) if {how!r} != "tile" else (1, 0, 0)
    def attempt(seconds):
      global state
      hit = interrupted(call, seconds)
      now = []
      for t, old, delta in zip((w, m, parts), state, deltas):
        got = t.numpy()
        assert (got == got[0]).all() and got[0] in (old, old + delta), (got, old)
        now.append(float(got[0]))
      if not hit: assert now == [o + d for o, d in zip(state, deltas)]
      state = now
      return hit
    begun = time.perf_counter()
    for _ in range(5): attempt(0)   # never
    longest = (time.perf_counter() - begun) / 5 * 1.5
    print(within(3, attempt, longest) > 20)
    before = list(state)
    for _ in range(3): call()
    assert [float(t.numpy()[0]) for t in (w, m, parts)] == [b + 3 * d for b, d in zip(before, deltas)]
    """, DEV=device, VERIFY="0")
  assert lines == ["True"]


@long
@pytest.mark.parametrize("device", DEVICES)
def test_training(device: str) -> None:
  """Gradients, an optimizer, random numbers, a captured step that is captured anew: what is interrupted leaves nothing behind."""
  lines = run("""
    from ntgrad import nn
    from ntgrad.engine import realize, buffer
    from ntgrad.graph import alias
    Tensor.manual_seed(1)
    net = [nn.Linear(4, 5), nn.Linear(5, 1)]
    params = [p for layer in net for p in (layer.weight, layer.bias)]
    opt = nn.optim.Adam(params, lr=0.01)
    x = Tensor(np.arange(8, dtype=np.float32).reshape(2, 4) / 8)
    def step(x):
      with Tensor.train():
        opt.zero_grad()
        loss = (net[1](net[0](x).relu()).dropout(0.1) - 1).square().mean()
        loss.backward()
        opt.step()
      return loss.realize()
    captured = ntgrad.jit(step)
    for _ in range(4): captured(x); step(x)
    def attempt(seconds):
      def work():
        captured.reset()
        for _ in range(3): captured(x)
        step(x)
      hit = interrupted(work, seconds)
      assert not (buffer.being_recorded or realize.captures)
      assert not (buffer.transfer_watchers or alias.write_watchers)
      ntgrad.core.mode.grad, Tensor.training = True, False   # Python itself may lose the end of a with block
      if hit: captured.reset()
      step(x)
      return hit
    begun = time.perf_counter()
    attempt(0)
    longest = time.perf_counter() - begun
    print(within(6, attempt, longest) > 5)
    opt.zero_grad()
    for _ in range(3): loss = captured(x)
    assert np.isfinite(loss.item()) and all(np.isfinite(p.numpy()).all() for p in params)
    a = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose((Tensor(a) @ Tensor(a).T).numpy(), a @ a.T, rtol=1e-5)
    """, DEV=device, VERIFY="0")
  assert lines == ["True"]


@long
@pytest.mark.parametrize("settings", [{"WORKERS": "2"}, {"BEAM": "2", "WORKERS": "1"}], ids=["workers", "BEAM"])
@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
def test_compiling(settings: dict[str, str], tmp_path: Path) -> None:
  """New programs all the time, with worker processes or a search: what was interrupted is made when it is asked for again."""
  lines = run("""
    from ntgrad.backends import workers as pool
    def program(n):
      x = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
      t = Tensor(x)
      got = [((t + k).sum(0) * (k + 1)).realize() for k in range(4)] + [(t * 2).max(axis=1).realize()]
      want = [(x + k).sum(0) * (k + 1) for k in range(4)] + [(x * 2).max(1)]
      for g, w in zip(got, want): np.testing.assert_allclose(g.numpy(), w, rtol=1e-5)
    n, hits, end = 2, 0, time.monotonic() + 90
    while hits < 5 and time.monotonic() < end:
      hits += interrupted(lambda: program(n), random.uniform(0.01, 0.8))
      program(n)
      n += 1
    print(hits)
    """, DEV="CPU", CACHE_DIR=str(tmp_path), VERIFY="0", DYNAMIC="never", **settings)
  assert int(lines[0]) > 1


def test_an_interrupt_while_a_node_goes() -> None:
  """Python loses it, and what the node is known by stays; who looks at the nodes lets go of it."""
  from ntgrad.codegen.ir import uop
  from ntgrad.codegen.ir.dtype import dtypes
  below = uop.UOp.const(dtypes.int64, 123456789)
  key = (uop.Ops.CAST, dtypes.int32, (below,), None)
  above = uop.UOp(*key)
  entry = uop._interned[key]
  del above
  assert key not in uop._interned
  uop._interned[key] = entry   # as if ``_drop`` had not run
  assert below in uop.live_nodes() and key not in uop._interned


@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
def test_an_interrupt_after_a_launch_was_enqueued() -> None:
  """Who reads what it writes waits for it."""
  device: Any = get_device("CPU")
  kept = (Tensor.ones(8, device="CPU").contiguous().realize() * 3).realize()
  program: Any = next(iter(device.programs)).clone()
  program.ready()
  def enqueue(*_: object) -> None: raise KeyboardInterrupt
  program._launch, program._linkable, program._enqueue = None, False, enqueue
  device.drain()
  raws = [device.alloc(4096) for _ in range(program.spec.nparams)]
  with pytest.raises(KeyboardInterrupt): program(raws, False, tuple(1 for _ in program.spec.sizes))
  assert device.busy and kept.tolist() == [3] * 8
  for raw in raws: device.free(raw, 4096)
