"""The plan with run-time sizes is made before a second size comes: what another batch needs is there, and has the same bits."""
from __future__ import annotations

import sys
import threading
import time
from functools import lru_cache
from typing import Any, Callable, Iterator, Sequence

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, config, nn
from ntgrad.backends import workers
from ntgrad.codegen.ir.recent import Recent
from ntgrad.codegen.kernel import Kernel
from ntgrad.engine import compile as compiling, kernels_ahead, later, planner
from ntgrad.graph.lock import lock, stand_aside
from support.marks import long

Array = np.ndarray[Any, Any]


class Ahead:
  """The kernels that workers were asked for, those that were compiled and not among them, and how often a graph was scheduled."""

  def __init__(self) -> None:
    self.asked: set[Any] = set()
    self.compiled: list[Any] = []
    self.schedules = 0

  def take(self) -> tuple[list[Any], int]:
    later.wait()
    out = [k for k in self.compiled if k not in self.asked], self.schedules
    self.compiled, self.schedules = [], 0
    return out


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ahead]:
  """As if other processes compiled."""
  seen = Ahead()
  compiled, scheduled = compiling.compiled_program, planner.schedule_of
  def key(kernel: Kernel) -> Any: return kernel.params, kernel.axes, kernel.body, kernel.needs, kernel.free
  def compiled_program(kernel: Kernel, *args: Any, **named: Any) -> Any:
    seen.compiled.append(key(kernel))
    return compiled(kernel, *args, **named)
  def schedule_of(form: Any) -> Any:
    seen.schedules += 1
    return scheduled(form)
  def ahead(kernels: Sequence[Kernel], device: Any, soon: bool = False) -> None:
    if not soon: seen.asked.update(map(key, kernels))
  monkeypatch.setattr(planner, "schedule_of", schedule_of)
  monkeypatch.setattr(kernels_ahead, "ahead", ahead)
  monkeypatch.setattr(compiling, "compiled_program", compiled_program)
  monkeypatch.setattr(planner, "makes_ahead", lambda steps: config.dynamic == "auto")
  for module, name in (planner, "_plans"), (compiling, "_programs"): monkeypatch.setattr(module, name, Recent[Any, Any](1024))
  yield seen


class Net(nn.Module):
  def __init__(self) -> None:
    super().__init__()
    self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(64, 10)

  def forward(self, x: Tensor) -> Tensor: return self.head(self.norm(self.conv(x)).relu().max_pool2d(2).flatten(1))


def training() -> tuple[Callable[[int], float], Callable[[int], int]]:
  """A step of training, and one of evaluation, for a batch."""
  ntgrad.manual_seed(0)
  net, random = Net(), np.random.default_rng(0)
  adam = nn.optim.Adam(net.parameters(), lr=1e-2)
  def images(n: int) -> Tensor: return Tensor(random.standard_normal((n, 1, 8, 8), dtype=np.float32))
  def train(n: int) -> float:
    net.train()
    adam.zero_grad()
    loss = net(images(n)).cross_entropy(Tensor(random.integers(0, 10, n)))
    loss.backward()
    adam.step()
    return float(loss.item())
  def evaluate(n: int) -> int:
    net.eval()
    with ntgrad.no_grad(): return int((net(images(n)).argmax(1) == 1).sum().item())
  return train, evaluate


@long
def test_a_smaller_batch_finds_its_programs(ahead: Ahead) -> None:
  train, evaluate = training()
  for _ in range(4): train(50)
  ahead.take()
  train(28)
  new, schedules = ahead.take()
  assert ahead.asked and not new and not schedules
  for _ in range(3): evaluate(99)
  ahead.take()
  evaluate(97)
  assert ahead.take() == ([], 0)


def test_a_captured_step_finds_its_programs(ahead: Ahead) -> None:
  """What its first call for a smaller batch needs is there since the first call for the first batch."""
  net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
  random = np.random.default_rng(0)
  adam = nn.optim.Adam(net.parameters(), lr=1e-2)
  @ntgrad.jit
  def step(x: Tensor, y: Tensor) -> Tensor:
    adam.zero_grad()
    loss = net(x).cross_entropy(y)
    loss.backward()
    adam.step()
    return loss
  def call(n: int) -> None: step(Tensor(random.standard_normal((n, 1, 8, 8), dtype=np.float32)), Tensor(np.arange(n) % 10)).item()
  for _ in range(2): call(50)
  ahead.take()
  call(28)
  assert ahead.take() == ([], 0) and ahead.asked


@long
def test_the_same_bits(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
  def losses() -> list[float]:
    train, evaluate = training()
    return [*[train(n) for n in (32, 32, 32, 32, 21, 32, 9, 2)], *[float(evaluate(n)) for n in (40, 40, 40, 13)]]
  with_it = losses()
  assert ahead.asked
  monkeypatch.setattr(planner, "makes_ahead", lambda steps: False)
  planner._plans.clear()
  compiling._programs.clear()
  assert losses() == with_it


@long
def test_workers_make_them(monkeypatch: pytest.MonkeyPatch) -> None:
  """Programs for sizes are built by launching them on sizes that fit them."""
  for module, name in (planner, "_plans"), (compiling, "_programs"), (compiling, "_ahead"):
    monkeypatch.setattr(module, name, Recent[Any, Any](1024))
  train, _ = training()
  with config(workers=2):
    for _ in range(4): train(50)
    later.wait()
    jobs = {job for job, _ in compiling._ahead.values()}
    with workers.changed: workers.changed.wait_for(lambda: all([j.answer or j.made or j.refused or j.here for j in jobs]), 60)
    assert jobs and not [j for j in jobs if j.refused or j.here or not (j.answer or j.made)]
  workers.stop()


def test_optimise_waits_for_what_is_made_ahead() -> None:
  done = list[int]()
  def work() -> None:
    time.sleep(0.2)
    done.append(1)
  later.do_later(work)
  ntgrad.Device.optimise()
  assert done


def test_what_nobody_waits_for_stands_aside() -> None:
  """It goes on while nobody computes, and no further than its next look while somebody does, who never waits for all of it."""
  rounds, stop = [0], threading.Event()
  def work() -> None:
    while not stop.is_set():
      rounds[0] += 1
      stand_aside()
  def goes_on() -> bool:
    begun, end = rounds[0], time.monotonic() + 20
    while rounds[0] < begun + 3 and time.monotonic() < end: time.sleep(0.001)
    return rounds[0] >= begun + 3
  later.do_later(work)
  try:
    for _ in range(3):
      assert goes_on()
      with lock:
        begun = rounds[0]
        (Tensor([1.0, 2.0]) * 3).realize()
        time.sleep(0.02)
        assert rounds[0] <= begun + 1
    assert goes_on()
  finally: stop.set()
  later.wait()
  stand_aside()   # nothing to another thread


def test_a_job_that_is_taken_waits_nowhere() -> None:
  queues, job = [workers.Queue(None), workers.Queue(None)], workers.Job()
  for q in queues: q.add(job)
  with queues[0].claim(job): assert not any([q.waiting() for q in queues])


@lru_cache
def weight() -> Tensor: return Tensor(np.random.default_rng(1).standard_normal((6, 6), dtype=np.float32)).realize()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
  "product": lambda x: (x.reshape(-1, 6) @ weight()).reshape(*x.shape),
  "mean": lambda x: ((x - x.mean()) ** 2).mean(),
  "variance": lambda x: x.var(0),
  "rows": lambda x: x.reshape(x.shape[0], -1).softmax(1).sum(0),
  "permuted": lambda x: x.permute(1, 2, 0).contiguous().sum(1),
  "places": lambda x: x + Tensor.arange(x.shape[0]).reshape(-1, 1, 1),
  "pool": lambda x: x.reshape(x.shape[0], 1, 4, 6).max_pool2d(2),
  "picked": lambda x: x.sum((1, 2)).sort()[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_another_batch_has(name: str, ahead: Ahead) -> None:
  """Sizes and numbers are those that the second batch shows, whichever it is: 6 is also the size of a dimension that stays."""
  fn, random = PROGRAMS[name], np.random.default_rng(0)
  for n in (6, 6, 6, 17):
    ahead.take()
    x = random.standard_normal((n, 4, 6), dtype=np.float32)
    got = fn(Tensor(x)).numpy()
  if name != "picked": assert ahead.take() == ([], 0)   # how rows are sorted depends on how many there are
  with config(dynamic="never"): np.testing.assert_allclose(got, fn(Tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


def test_another_dimension_than_the_batch(ahead: Ahead) -> None:
  """The guess was wrong: the plan is made when it is asked for, of the sizes that there were."""
  for shape in ((8, 5), (8, 5), (8, 5), (8, 7), (3, 7)):
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    np.testing.assert_allclose((Tensor(x) * 2 + 1).sum(1).numpy(), (x * 2 + 1).sum(1))
    later.wait()


@pytest.mark.parametrize("settings", [{"dynamic": "never"}, {"workers": 1}, {"beam": 1}, {"debug": 3}])
def test_nothing_is_made_ahead(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
  with config(workers=2):
    assert kernels_ahead.makes_ahead(kernels_ahead.WORTH_WORKERS)
    with config(**settings): assert not kernels_ahead.makes_ahead(kernels_ahead.WORTH_WORKERS)
  asked: list[Any] = []
  monkeypatch.setattr(later, "do_later", asked.append)
  x = Tensor(np.ones((9, 5), np.float32))
  for _ in range(3): (x * 3 + 2).sum(0).numpy()   # it reads the same memory each time: no batch
  assert not asked


def test_memory_is_not_kept(ahead: Ahead) -> None:
  """What waits for a second size holds no memory of the first."""
  from ntgrad import Device
  for _ in range(3): Tensor(np.ones((1 << 18, 4), np.float32)).sum(1).numpy()
  later.wait()
  before = Device.memory().allocated
  for _ in range(3): (Tensor(np.ones((1 << 18, 4), np.float32)) * 3).exp().sum(1).numpy()
  later.wait()
  assert Device.memory().allocated - before < 1 << 20


def test_who_waits_gets_its_turn_soon() -> None:
  """While something is done later, threads that run Python take short turns, and what the program had set comes back."""
  before, go, seen = sys.getswitchinterval(), threading.Event(), list[float]()
  def work() -> None:
    seen.append(sys.getswitchinterval())
    go.wait(10)
  for _ in range(3): later.do_later(work)
  while len(seen) < 3: time.sleep(0.001)
  go.set()
  later.wait()
  assert max(seen) <= 2 * later.TURN and sys.getswitchinterval() == before


def test_a_plan_for_any_size_looks_for_no_other(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
  """The first plan looks ahead at its second run; what comes of a second size is for all, whatever size comes again."""
  looked: list[str] = []
  monkeypatch.setattr(planner, "_plan_ahead", lambda *args: looked.append("ahead"))
  def run(n: int) -> None: (Tensor(np.full((n, 3), 2.0, np.float32), device="NUMPY").sqrt() * 3).realize()
  with config(dynamic="auto"):
    for n in (5, 5): run(n)
    assert looked == ["ahead"]
    for n in (6, 7, 8, 6, 7, 8, 6, 7, 8): run(n)
  assert looked == ["ahead"]
