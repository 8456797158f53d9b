"""Settings and modes belong to a thread or task; and threads may use everything at once."""
from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
from ntgrad import Device, Tensor, no_grad
from ntgrad.backends.memory_pool import Pooled
from ntgrad.codegen.ir import uop
from ntgrad.codegen.ir.config import Settings, config
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import BinaryOps, UOp
from ntgrad.graph.modes import mode
from ntgrad.tensor import random
from support.devices import missing
from support.marks import long


def elsewhere(f: Callable[[], Any]) -> Any:
  """What a function gives in a thread of its own."""
  with ThreadPoolExecutor(1) as t: return t.submit(f).result(60)


# ---- modes and settings

def test_modes_are_the_threads() -> None:
  def modes() -> tuple[bool, bool]: return mode.grad, Tensor.training
  def other() -> tuple[bool, bool]:
    with no_grad(), Tensor.train(): return modes()
  with no_grad(), Tensor.train():
    assert modes() == (False, True) and elsewhere(modes) == (True, False) and elsewhere(other) == (False, True)
    assert elsewhere(lambda: (Tensor([1.0], requires_grad=True, device="NUMPY") * 2).requires_grad) is True
  assert modes() == (True, False)


def test_modes_are_the_tasks() -> None:
  """Two tasks of one thread that take turns."""
  seen = []
  async def task(off: bool) -> None:
    for _ in range(3):
      if off:
        with no_grad(), Tensor.train(), config(debug=0, noopt=1):
          await asyncio.sleep(0)
          seen.append((off, mode.grad, Tensor.training, config.noopt))
      else:
        await asyncio.sleep(0)
        seen.append((off, mode.grad, Tensor.training, config.noopt))
  async def both() -> None: await asyncio.gather(task(True), task(False))
  asyncio.run(both())
  assert set(seen) == {(True, False, True, 1), (False, True, False, 0)} and len(seen) == 6


def test_settings_of_a_block_are_the_threads() -> None:
  """An assignment outside of a block is for all; in it, for the block."""
  def read() -> tuple[Any, ...]: return config.noopt, config.beam, config.key()[0]
  before = config.noopt
  with config(noopt=1):
    assert read() == (1, 0, 1) and elsewhere(read) == (before, 0, before)
    config.noopt = 0
    assert read()[0] == 0 and elsewhere(read)[0] == before
    def other() -> Any:
      with config(noopt=1, beam=3): return read()
    assert elsewhere(other) == (1, 3, 1)
    config.beam = 2   # no field of the block
    try: assert read()[1] == elsewhere(read)[1] == 2
    finally: config.beam = 0
    def assigns() -> None: config.noopt = 1 - before
    elsewhere(assigns)
    assert config.noopt == 0
  assert config.noopt == elsewhere(lambda: config.noopt) == 1 - before
  config.noopt = before
  assert not config._process and "noopt" in config.__dict__   # attributes again, as quick as before


def test_settings_in_many_threads() -> None:
  mine = Settings()
  def work(n: int) -> bool:
    for i in range(300):
      with mine(beam=n, noopt=n % 2):
        with mine(beam=n + 100):
          if mine.beam != n + 100 or mine.key()[0] != n % 2: return False
        if mine.beam != n: return False
      if i % 10 == 0 and mine.beam != 0: return False
    return True
  with ThreadPoolExecutor(8) as t: assert all(t.map(work, range(1, 9)))
  assert not mine._process and mine.beam == 0


def test_blocks_end_by_errors_and_in_generators() -> None:
  @contextmanager
  def around() -> Iterator[None]:
    with config(debug=0, noopt=1): yield
  before = config.noopt
  with pytest.raises(ZeroDivisionError), around(), no_grad():
    assert config.noopt == 1
    raise ZeroDivisionError
  assert config.noopt == before and mode.grad


# ---- everything at once

def programs(n: int) -> Iterator[tuple[str, Callable[[], Any], Any]]:
  """Small programs that are all different for each ``n``: a name, what it computes, and what numpy has."""
  rng = np.random.default_rng(n)
  for i in range(2):
    x, w = (rng.integers(-4, 5, (n + 2, n + i + 2)).astype(np.float32) for _ in range(2))
    yield "elementwise", lambda x=x, w=w: (Tensor(x) * 2 + Tensor(w)).relu().numpy(), np.maximum(x * 2 + w, 0)
    yield "matmul", lambda x=x, w=w: (Tensor(x) @ Tensor(w).T).numpy(), x @ w.T
    def gradient(x: Any = x, w: Any = w) -> Any:
      p = Tensor(w, requires_grad=True)
      ((Tensor(x) * p).square().sum()).backward()
      return p.grad.numpy()
    yield "gradient", gradient, 2 * x * x * w
    def written(x: Any = x, w: Any = w) -> Any:
      t = Tensor(x).realize()
      view = t[1:]
      for k in range(3):
        t += Tensor(w)
        view[0] = float(k)
        t.realize()
      return t.numpy()
    want = x.copy()
    for k in range(3):
      want += w
      want[1] = k
    yield "written", written, want
    def captured(x: Any = x, w: Any = w) -> Any:
      total = Tensor.zeros(*x.shape).contiguous().realize()
      @ntgrad.jit
      def step(a: Tensor) -> Tensor:
        total.assign(total + a * 2)
        return (total * 3).realize()
      for _ in range(5): out = step(Tensor(x))
      return np.stack([out.numpy(), total.numpy()])
    yield "captured", captured, np.stack([x * 30, x * 10])
    def tiled(x: Any = x) -> Any:
      out = Tensor.empty(*x.shape).contiguous().realize()
      for _ in range(3): double(Tensor(x).realize(), out)
      return out.numpy()
    yield "tiled", tiled, x * 2


def rows(x: Any, y: Any) -> Any: return x.tile((1, -1)), y.tile((1, -1))
def twice(x: Any, y: Any) -> Any: y = x * 2  # noqa: F841


double = tile.make(rows, twice, (tile.Tensor(2), tile.Tensor(2)))


@long
@pytest.mark.parametrize(
  "device", ["NUMPY", pytest.param("CPU", marks=pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU")))]
)
def test_everything_at_once(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """Eight threads, each with programs that others have too and some that are its own, in another order; results are numpy's."""
  monkeypatch.setattr(Device, "assigned", device)
  before = sys.getswitchinterval()
  sys.setswitchinterval(1e-5)
  def work(seed: int) -> list[str]:
    mine = [p for n in ((1, 2, 3 + seed % 4) if device == "NUMPY" else (1, 2)) for p in programs(n)]
    wrong = []
    for _ in range(2):
      np.random.default_rng(seed).shuffle(mine)  # type: ignore[arg-type]
      wrong += [name for name, run, want in mine if not np.array_equal(run(), want)]
    return wrong
  try:
    with ThreadPoolExecutor(8) as threads: assert not sum(threads.map(work, range(8)), [])
  finally: sys.setswitchinterval(before)


FIRST = """
import os, sys, tempfile, threading
sys.setswitchinterval(1e-6)
from ntgrad import Tensor
at_once, results = threading.Barrier(8), []
def work(n):
  at_once.wait()
  results.append((Tensor([1.0, 2.0]) * n).tolist() == [n, 2 * n])
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
folders = [f for f in os.listdir(tempfile.gettempdir()) if f.startswith("ntgrad-process-")]
assert results == [True] * 8 and len(folders) == 1, (results, folders)
"""


@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
@pytest.mark.parametrize("cores", [1, 2])
def test_the_first_work_of_a_process_is_in_threads(cores: int, tmp_path: Path) -> None:
  """Who starts the driver, and makes folders for it, is one of them."""
  cores_here = sorted(os.sched_getaffinity(0))[:cores]
  found = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=120, check=False,
                         env={**os.environ, "TMPDIR": str(tmp_path), "DEV": ""},
                         preexec_fn=lambda: os.sched_setaffinity(0, cores_here))
  assert not found.returncode and not found.stderr, found.stderr


def test_threads_share_weights(monkeypatch: pytest.MonkeyPatch) -> None:
  """A tensor that nobody writes, not realised when they begin: each gets the same; gradients of all are added up."""
  monkeypatch.setattr(Device, "assigned", "NUMPY")
  x = np.arange(12, dtype=np.float32).reshape(3, 4)
  for _ in range(5):
    w = (Tensor(x) + 1) * 2
    leaf = Tensor(x, requires_grad=True)
    def work(n: int, w: Tensor = w, leaf: Tensor = leaf) -> bool:
      (leaf * n).sum().backward()
      return np.array_equal((w * n).numpy(), (x + 1) * 2 * n) and np.array_equal(w.numpy(), (x + 1) * 2)
    with ThreadPoolExecutor(8) as threads: assert all(threads.map(work, range(1, 9)))
    assert (leaf.grad.numpy() == 36).all()


def test_equal_nodes_are_one() -> None:
  """Whoever makes them, and while others of their kind go."""
  barrier = threading.Barrier(8)
  def work(_: int) -> list[UOp]:
    barrier.wait()
    out = []
    for n in range(400):
      a = UOp.const(dtypes.int64, n * 7919)
      if n % 4 == 0: out.append(a)
      b = UOp.alu(BinaryOps.ADD, a, UOp.const(dtypes.int64, n))
      assert UOp.alu(BinaryOps.ADD, UOp.const(dtypes.int64, n * 7919), UOp.const(dtypes.int64, n)) is b
    return out
  before = sys.getswitchinterval()
  sys.setswitchinterval(1e-6)
  try:
    with ThreadPoolExecutor(8) as threads: made = list(threads.map(work, range(8)))
  finally: sys.setswitchinterval(before)
  assert all(a is b for other in made[1:] for a, b in zip(made[0], other))


def test_random_numbers_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(Device, "assigned", "NUMPY")
  Tensor.manual_seed(3)
  with ThreadPoolExecutor(8) as threads: drawn = list(threads.map(lambda _: Tensor.rand(16).numpy(), range(40)))
  assert len({x.tobytes() for x in drawn}) == 40
  Tensor.manual_seed(3)
  assert {x.tobytes() for x in drawn} == {Tensor.rand(16).numpy().tobytes() for _ in range(40)}


class Counted(Pooled):
  """Memory that is a number."""
  name, unit, most_pooled = "COUNTED", 64, 1 << 30
  made = 0
  def _new(self, size: int, nbytes: int) -> Any:
    self.made += 1
    return [size]
  def copyin(self, raw: Any, data: Any) -> None: pass


def test_a_pool_in_many_threads() -> None:
  """No allocation is handed out twice, and what is counted comes out even."""
  d = Counted()
  used: set[int] = set()
  def work(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held: list[tuple[Any, int]] = []
    for _ in range(500):
      if held and rng.random() < 0.5:
        raw, n = held.pop()
        used.remove(id(raw))
        d.free(raw, n)
      else:
        n = int(rng.integers(1, 600))
        raw = d.alloc(n)
        assert id(raw) not in used and raw[0] >= n
        used.add(id(raw))
        held.append((raw, n))
    for raw, n in held:
      used.remove(id(raw))
      d.free(raw, n)
  before = sys.getswitchinterval()
  sys.setswitchinterval(1e-6)
  try:
    with ThreadPoolExecutor(8) as threads: list(threads.map(work, range(8)))
  finally: sys.setswitchinterval(before)
  assert d.allocated == 0 and d.pooled == sum(raw[0] for raws in d._pool.values() for raw in raws)


# ---- another thread at the worst moment

class Meanwhile:
  """Called in the middle of something, it lets another thread do ``f`` first; one that has to wait does it afterwards."""
  def __init__(self, f: Callable[[], Any]):
    self.thread: threading.Thread | None = None
    self.got: list[Any] = []
    self.f = f

  def __call__(self) -> None:
    if self.thread is not None: return
    self.thread = threading.Thread(target=lambda: self.got.append(self.f()))
    self.thread.start()
    self.thread.join(0.2)

  def result(self) -> Any:
    assert self.thread is not None
    self.thread.join(20)
    return self.got[0]


def test_an_equal_node_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
  other = Meanwhile(lambda: UOp.const(dtypes.int64, 987654321))
  class Entry(uop._Entry):
    __slots__ = ()
    def __init__(self, *_: Any): other()
  monkeypatch.setattr(uop, "_Entry", Entry)
  mine = UOp.const(dtypes.int64, 987654321)
  assert mine is other.result() and mine is UOp.const(dtypes.int64, 987654321)


def test_random_numbers_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
  other = Meanwhile(lambda: random.next_state(5))
  class Numpy:
    uint64 = np.uint64
    def array(self, *args: Any) -> Any:
      made = np.array(*args)
      other()
      return made
  monkeypatch.setattr(random, "np", Numpy())
  mine = random.next_state(5)
  assert mine[0] != other.result()[0]


def test_an_allocation_meanwhile() -> None:
  d = Counted()
  other = Meanwhile(lambda: d.alloc(64))
  class Free(list[Any]):
    def __len__(self) -> int:
      n = super().__len__()
      other()
      return n
  d.free(d.alloc(64), 64)
  d._pool[64] = Free(d._pool[64])
  mine = d.alloc(64)
  assert mine is not other.result() and d.made == 2 and (d.allocated, d.pooled) == (128, 0)
