"""Handlers of signals that use ntgrad, whatever they have interrupted; and nested values that have themselves."""
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, jit, nn, tile
from ntgrad.backends import memory_pool, workers
from ntgrad.codegen.ir.handlers import in_handler
from ntgrad.engine import realize
from ntgrad.errors import CaptureError, DeviceError, NtgradError, OutOfMemoryError, ShapeError, StateError
from ntgrad.nn.data import DataLoader, default_collate
from support.devices import missing
from support.marks import long

ROOT = Path(__file__).resolve().parents[2]


class Seen(list[Any]):
  """Handlers of each kind, and what came of them."""
  def function(self) -> Callable[..., Any]: return lambda *_: self.method()
  def method(self, *_: Any) -> None:
    try: self.append(Tensor([1.0, 2.0]).sum().item())
    except NtgradError as e: self.append(str(e))
  def __call__(self, *_: Any) -> None: self.method()


@contextmanager
def handled(handler: Any) -> Iterator[None]:
  before = signal.signal(signal.SIGUSR1, handler)
  try: yield
  finally: signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", ["function", "method", "object", "partial"])
def test_computing_in_a_handler(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
  """It works where nothing is half done, and is refused where a plan is run; the one that was interrupted goes on."""
  seen = Seen()
  handler = {"function": seen.function(), "method": seen.method, "object": seen, "partial": partial(seen.method, 1)}[kind]
  run, x = realize.run_plan, np.arange(6, dtype=np.float32)
  def interrupted(*args: Any) -> Any:
    if not in_handler(): signal.raise_signal(signal.SIGUSR1)
    return run(*args)
  with handled(handler):
    signal.raise_signal(signal.SIGUSR1)
    assert seen.pop() == 3.0 and not in_handler()
    monkeypatch.setattr(realize, "run_plan", interrupted)
    assert Tensor(x).mul(2).sum().item() == 30
    assert "a signal's handler uses ntgrad while the thread that it has interrupted computes" in seen.pop()
  step = jit(lambda t: (t * 2).realize())   # within which others are called, in a handler too
  def whole(*_: Any) -> None:
    for _ in range(3): seen.append(step(Tensor(x)).sum().item())
  monkeypatch.setattr(realize, "run_plan", run)
  with handled(whole): signal.raise_signal(signal.SIGUSR1)
  assert seen == [30.0] * 3


def test_handlers_stay() -> None:
  """The compiler's library puts its own over some."""
  seen: list[int] = []
  with handled(lambda s, _: seen.append(s)):
    (Tensor(np.ones(7, np.float32)) * 1.234567 + len(str(ROOT))).realize()
    signal.raise_signal(signal.SIGUSR1)
  assert seen == [signal.SIGUSR1]


def test_the_thread_that_builds_waits_for_nobody() -> None:
  queue, job = workers.Queue(None), workers.Job()
  with queue.claim(job) as mine:
    assert mine
    with pytest.raises(DeviceError, match="a signal's handler"), queue.claim(job): pass
  with queue.claim(job) as mine: assert not mine and job.done


@long
def test_a_timer_that_computes(tmp_path: Path) -> None:
  """At any moment of building, launching and reading: it ends, and what it and the program find is right."""
  (tmp_path / "a.py").write_text("""
import signal, time
import numpy as np, ntgrad, ntgrad.tile as tile
from ntgrad import Tensor
said = []
def app(x, y): y = x * 2.0
double = tile.make(lambda x, y: (x.tile((8,)), y.tile((8,))), app, (tile.Tensor(1), tile.Tensor(1)))
def work(i, step):
  a = np.arange(12 + i % 7, dtype=np.float32)
  assert np.allclose((Tensor(a) * 2 + i).sum().item(), (a * 2 + i).sum())
  assert np.allclose(step(Tensor(a)).numpy(), a * 3)
  b, c = np.full(16, i, np.float32), np.zeros(16, np.float32)
  double(b, c)
  assert (c == 2 * b).all()
mine, theirs = (ntgrad.jit(lambda x: (x * 3).relu()) for _ in range(2))
def handler(*_):
  try: work(len(said), theirs)
  except ntgrad.errors.NtgradError as e: said.append(str(e))
  else: said.append("")
work(0, mine)   # imports
signal.signal(signal.SIGALRM, handler)
begun = time.process_time()
i = 0
while time.process_time() < begun + 3:
  signal.setitimer(signal.ITIMER_REAL, 0.002 + i % 11 * 0.001)
  work(i, mine)
  i += 1
signal.setitimer(signal.ITIMER_REAL, 0)
assert len(said) > 2 and all(not s or "handler" in s or "capture" in s for s in said), said
print("done")
""")
  env = {**os.environ, "PYTHONPATH": str(ROOT), "CACHE": "0"}
  done = subprocess.run([sys.executable, str(tmp_path / "a.py")], capture_output=True, text=True, timeout=120, env=env,
    check=False)
  assert done.stdout == "done\n", done.stderr


@long
def test_a_timer_while_ntgrad_is_imported(tmp_path: Path) -> None:
  """The handler works, or is told what is not there yet, and the program goes on as it would. Before 3.12 Python itself may lose
  the lock of an import that another in a handler interrupts (python/cpython#91351): such a run says nothing, and is repeated."""
  (tmp_path / "a.py").write_text("""
import signal, sys
def handler(*_):
  signal.setitimer(signal.ITIMER_REAL, 0)   # it may take longer than the time between two signals
  try:
    from ntgrad import Tensor
    assert Tensor([1, 2]).sum().item() == 3
  except (ImportError, AttributeError) as e: assert "partially initialized" in str(e), e
  except RuntimeError as e: assert "handler" in str(e), e
  if again: signal.setitimer(signal.ITIMER_REAL, 0.05)
again = True
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
from ntgrad import Tensor, nn
model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
model(Tensor([[1.0, 2.0, 3.0]])).sum().backward()
assert model[0].weight.grad.numpy().shape == (2, 3) and Tensor([1]).device == sys.argv[2]
again = False
signal.setitimer(signal.ITIMER_REAL, 0)
print("done")
""")
  env = {**os.environ, "PYTHONPATH": str(ROOT)}
  for start in ("0.01", "0.031"):
    for _ in range(4):
      done = subprocess.run([sys.executable, str(tmp_path / "a.py"), start, Tensor([1]).device], capture_output=True, text=True,
                            timeout=120, env=env, check=False)
      if not re.search(r"_bootstrap>\", line \d+, in acquire\nKeyError", done.stderr): break
    assert done.stdout == "done\n" and not done.stderr, done.stderr


@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
@pytest.mark.parametrize("kind", ["RuntimeError", "KeyboardInterrupt"])
def test_an_import_that_is_interrupted_is_made_again(kind: str) -> None:
  """What it has left does not have the next one fail."""
  code = f"""
import builtins
real, left = builtins.__import__, [True]
def imported(name, *args, **kwargs):
  found = real(name, *args, **kwargs)
  if left and name == "pyopencl._monkeypatch":
    left.clear()
    raise {kind}
  return found
builtins.__import__ = imported
from ntgrad.backends.opencl.device import import_opencl
try: import_opencl()
except ({kind}, RuntimeError): pass
assert not left
from ntgrad import Tensor
print(Tensor([1, 2]).sum().item(), Tensor([1]).device)"""
  env = {**os.environ, "PYTHONPATH": str(ROOT), "DEV": "CPU"}
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env, check=False)
  assert done.stdout == "3 CPU\n", done.stderr


def test_an_archive_of_ntgrad(tmp_path: Path) -> None:
  """It says that it has to be unpacked."""
  with zipfile.ZipFile(tmp_path / "ntgrad.zip", "w") as z:
    for folder, name in (("ntgrad", "ntgrad"), ("codegen", "ntgrad/codegen"), ("backends", "ntgrad/backends")):
      for path in (ROOT / folder).rglob("*.py"):
        inside = path.relative_to(ROOT / folder)
        if folder != "ntgrad" or inside.parts[0] not in ("codegen", "backends"): z.write(path, f"{name}/{inside}")
  code = f"import sys; sys.path.insert(0, {str(tmp_path / 'ntgrad.zip')!r}); import ntgrad"
  done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
  assert "unpack the archive, or pip install it" in done.stderr.splitlines()[-1]


# ---- nested values

def rings() -> Iterator[Any]:
  """Lists that have themselves, are deep, or come again and again."""
  ring: list[Any] = []
  ring.append(ring)
  yield ring
  pair: list[Any] = []
  pair.append((pair,))
  yield pair
  deep: Any = 1.0
  for _ in range(10**5): deep = [deep]
  yield deep
  doubled: Any = [1.0]
  for _ in range(60): doubled = [doubled, doubled]
  yield doubled


@long
def test_lists_that_do_not_end() -> None:
  for x in rings():
    for use in (Tensor, ntgrad.tensor, ntgrad.as_tensor, lambda x: Tensor.ones(3)[x], lambda x: Tensor.ones(3) + x,
      Tensor.ones(3).reshape,
                lambda x: nn.functional.cross_entropy(Tensor.rand(2, 2), x)):
      with pytest.raises(NtgradError) as e: use(x)
      assert len(str(e.value)) < 1500
    for captured in (jit(lambda x: Tensor([1.0])), jit(lambda _, x=x: x)):
      with pytest.raises(CaptureError, match="or has itself"):
        for _ in range(3): captured(x if captured.fn.__defaults__ is None else 0)
    with pytest.raises((ShapeError, StateError)): default_collate([x, x])
  row = [0.5] * 3
  assert Tensor([row] * 4).tolist() == [row] * 4 and Tensor([[row, row]] * 2).shape == (2, 2, 3)
  assert Tensor(range(5)).tolist() == [0, 1, 2, 3, 4] and Tensor(range(7, -3, -4)).tolist() == [7, 3, -1]
  assert Tensor(range(3)).dtype is Tensor([0, 1, 2]).dtype and Tensor(range(0)).dtype is Tensor([]).dtype
  for x in rings():
    with pytest.raises(NtgradError): next(iter(DataLoader([x, x], batch_size=2)))


@long
def test_models_that_hold_themselves() -> None:
  ring, pair, deep, doubled = rings()
  w = Tensor([1.0])
  ring.append(w)
  assert list(nn.state.get_state_dict(ring)) == ["1"] and "1" in nn.summary([nn.Linear(1, 1),
    ring]) and nn.state.get_parameters(pair) == []
  for x in (deep, doubled):
    with pytest.raises(StateError, match="name tensors by a path of their own"): nn.state.get_state_dict(x)
  several: list[Any] = [w]
  for _ in range(10): several = [several, several]
  assert len(nn.state.get_state_dict(several)) == 1024


def test_more_than_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
  for use in (lambda: Tensor.zeros(2**40).numpy(), lambda: Tensor.zeros(2**40).tolist(),
              lambda: Tensor.zeros(2**40).cast("int8").numpy(),
              lambda: Tensor([1.0]).realize().expand(2**40).numpy(), lambda: Tensor.zeros(2**40, device="NUMPY").realize(),
              lambda: Tensor(range(2**40)), lambda: np.asarray(Tensor.zeros(2**40))):
    with pytest.raises(OutOfMemoryError, match="out of memory"): use()
  monkeypatch.setattr(memory_pool, "host_left", lambda: 1 << 20)
  for use in (lambda: Tensor.zeros(2**26).tolist(), lambda: Tensor([1.0]).realize().expand(2**28).numpy(),
              lambda: Tensor.ones(2**28).contiguous().realize()):
    with pytest.raises(OutOfMemoryError, match="out of memory"): use()
  monkeypatch.undo()
  assert memory_pool.host_left() > 1 << 20


def test_a_tile_kernel_in_a_handler() -> None:
  def app(x, y): y = x + 1.0   # noqa: F841
  kernel = tile.make(lambda x, y: (x.tile((8,)), y.tile((8,))), app, (tile.Tensor(1), tile.Tensor(1)))
  a, b = np.zeros(8, np.float32), np.zeros(8, np.float32)
  with handled(lambda *_: kernel(a, b)): signal.raise_signal(signal.SIGUSR1)
  assert (b == 1).all()
