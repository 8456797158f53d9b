"""Plans that are found again: all kernels are one call, with the bits, the memory and the errors of one launch after another."""
from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from unit.test_fork import needs_cpu, run

import ntgrad
from ntgrad import Tensor, config, nn
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.backends.opencl.threads import CPUGraph
from ntgrad.engine import launch_graphs, planner, realize as engine
from ntgrad.engine.device import get_device
from ntgrad.errors import DeviceError, IndexOutOfRangeError, OutOfMemoryError
from support.devices import missing
from support.graphs import Shuffled
from support.marks import long_where

DEVICES = ["graphs", pytest.param("CPU", marks=pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU")))]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
  """The CPU, and numpy as a device that makes graphs."""
  if request.param == "graphs": monkeypatch.setattr(NumpyDevice, "graph", lambda self, nodes: Shuffled(nodes))
  elif not get_device("CPU").direct: pytest.skip("PoCL's machine code is not called here")
  with config(dev="NUMPY" if request.param == "graphs" else "CPU"): yield request.param


class Calls:
  """Counts, in a block, plans that run as one call and steps that run by themselves."""

  def __init__(self, patch: pytest.MonkeyPatch) -> None:
    self.plans, self.steps = list[int](), 0
    call, step = launch_graphs.PlanLaunch.__call__, engine.run_step
    def counted(launch: Any, plan: Any, buffers: Any) -> bool:
      if done := call(launch, plan, buffers): self.plans.append(len(plan.steps))
      return done
    def stepped(*args: Any) -> None:
      self.steps += 1
      step(*args)
    patch.setattr(launch_graphs.PlanLaunch, "__call__", counted)
    patch.setattr(engine, "run_step", stepped)

  def take(self) -> tuple[list[int], int]:
    """The kernels of each call, and the steps, since this was last asked."""
    found = self.plans, self.steps
    self.plans, self.steps = [], 0
    return found


@pytest.fixture
def calls(device: str, monkeypatch: pytest.MonkeyPatch) -> Calls:
  planner._plans.clear()   # of the same structures in other tests
  return Calls(monkeypatch)


def array(*shape: int, seed: int = 0) -> np.ndarray:
  return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def chain(x: Tensor, y: Tensor) -> Tensor:
  for i in range(5): x = (x[::-1] * 0.5 + y + i).contiguous()
  return x


def chained(x: np.ndarray, y: np.ndarray) -> np.ndarray:
  for i in range(5): x = x[::-1] * np.float32(0.5) + y + np.float32(i)
  return x


def test_from_the_third_time_on_it_is_one_call(calls: Calls) -> None:
  """On other memory each time, for inputs and results; what was computed before stays as it is."""
  kept = []
  for i in range(6):
    x, y = array(32, seed=i), array(32, seed=i + 50)
    kept.append((chain(Tensor(x), Tensor(y)).realize(), chained(x, y)))
    plans, steps = calls.take()
    assert (plans, steps) == (([], 5) if i < 2 else ([5], 0))
  for got, want in kept: np.testing.assert_array_equal(got.numpy(), want)


def test_two_inputs_that_are_the_same_buffer(calls: Calls) -> None:
  x, y = Tensor(array(32)).realize(), Tensor(array(32, seed=1)).realize()
  for a, b in ((x, y), (y, x), (x, x), (y, y), (x, y)) * 2:
    np.testing.assert_array_equal(chain(a, b).numpy(), chained(a.numpy(), b.numpy()))
  assert calls.take()[0]


def network(seed: int = 3) -> tuple[Any, Callable[[int], Tensor]]:
  Tensor.manual_seed(seed)
  layers = [nn.Linear(20, 32), nn.BatchNorm(32), nn.Linear(32, 7)]
  opt = nn.optim.AdamW(nn.state.get_parameters(layers), lr=0.01)
  def step(i: int, rows: int = 16) -> Tensor:
    opt.zero_grad()
    opt.lr = 0.01 / (i + 1)
    labels = Tensor(np.random.default_rng(i).integers(0, 7, rows).astype(np.int32))
    x = layers[2](layers[1](layers[0](Tensor(array(rows, 20, seed=i)))).relu().dropout(0.25))
    loss = x.sparse_categorical_crossentropy(labels).backward()
    opt.step()
    return loss.realize()
  return layers, step


def trained(many: int = 8, rows: Callable[[int], int] = lambda i: 16) -> list[Any]:
  layers, step = network()
  got = []
  with Tensor.train():
    for i in range(many):
      got.append(step(i, rows(i)).numpy())   # type: ignore[call-arg]
  return [*got, *(t.numpy() for t in nn.state.get_state_dict(layers).values())]


def one_by_one(monkeypatch: pytest.MonkeyPatch, f: Callable[[], list[Any]]) -> list[Any]:
  """What it gives where no plan is one call."""
  with monkeypatch.context() as patch:
    patch.setattr(engine, "FOUND", 1 << 40)
    patch.setattr(planner, "_plans", type(planner._plans)(4096))
    return f()


def same(got: list[Any], want: list[Any]) -> None:
  for a, b in zip(got, want, strict=True): np.testing.assert_array_equal(a, b)


def test_training_steps(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
  """Parameters and states that are written in place, and random numbers: the same bits."""
  want = one_by_one(monkeypatch, trained)
  calls.take()
  same(trained(), want)
  assert max(calls.take()[0]) > 5


@long_where(lambda device: device == "CPU")
def test_sizes_that_come_again(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
  """A plan for run-time sizes is one call for sizes that it has run with."""
  sizes = lambda i: (16, 24, 10)[i % 3]   # noqa: E731
  with config(dynamic="always"):
    want = one_by_one(monkeypatch, lambda: trained(12, rows=sizes))
    calls.take()
    same(trained(12, rows=sizes), want)
  assert max(calls.take()[0]) > 5


def test_parts_of_memory(calls: Calls) -> None:
  """Slices that are arguments of a kernel begin at another place each time."""
  data = Tensor(array(64, 8)).realize()
  for i in range(10):
    part = data[3 * i + 1:3 * i + 17]
    got = ((part[::-1] * 2).contiguous()[::-1] + part).realize()
    np.testing.assert_array_equal(got.numpy(), data.numpy()[3 * i + 1:3 * i + 17] * 3)
  assert len(calls.take()[0]) > 3


@pytest.mark.parametrize("what", ["debug", "profile", "jit", "watch"])
@pytest.mark.usefixtures("capsys")
def test_what_comes_in_between(calls: Calls, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
  """Launches that are timed, recorded or watched are made one by one, and the next are one call again."""
  want = one_by_one(monkeypatch, lambda: trained(12))
  layers, step = network()
  def other(i: int) -> Tensor: return step(i)
  captured = ntgrad.jit(other)
  got = []
  with Tensor.train():
    for i in range(12):
      calls.take()
      if i not in (4, 5, 6): got.append(step(i).numpy())
      elif what == "debug":
        with config(debug=2): got.append(step(i).numpy())
      elif what == "profile":
        with ntgrad.profile() as p: got.append(step(i).numpy())
        assert sum(r.count for r in p.rows) > 5
      elif what == "jit": got.append(captured(i).numpy())
      else:
        seen: list[Any] = []
        engine.captures.append(lambda s, b: seen.append(s))   # noqa: B023
        try: got.append(step(i).numpy())
        finally: engine.captures.pop()
        assert len(seen) > 5
      plans, _ = calls.take()
      assert i < 3 or (max(plans, default=0) > 5) == (i not in (4, 5, 6))
  same([*got, *(t.numpy() for t in nn.state.get_state_dict(layers).values())], want)


def test_indices_are_checked(calls: Calls) -> None:
  def at(i: Tensor) -> Tensor: return ((x * 2).contiguous()[i] + 1).contiguous()[::-1].contiguous()
  x = Tensor(array(10, 2)).realize()
  for k in range(8):
    i = (Tensor(np.array([1, 3, k], np.int32)) + 0).realize()
    np.testing.assert_array_equal(at(i).numpy(), (x.numpy() * 2)[[1, 3, k]][::-1] + 1)
  assert calls.take()[0]
  bad = (Tensor(np.array([1, 3, 12], np.int32)) + 0).realize()
  with pytest.raises(IndexOutOfRangeError, match="index 12 is outside"): at(bad).numpy()
  np.testing.assert_array_equal(at(i).numpy(), (x.numpy() * 2)[[1, 3, 7]][::-1] + 1)


@pytest.mark.parametrize("error", [DeviceError, OutOfMemoryError])
def test_a_call_that_fails(calls: Calls, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
  """Nothing has been launched: what was to be written still is. Where the arena finds no memory the steps run one by one."""
  a, b = (Tensor(np.zeros(64, np.float32)).realize() for _ in range(2))
  def step() -> None:
    inner = (a[::-1] + 1).contiguous()
    a.assign(inner[::-1] * 1)
    b.assign((inner[::-1] + b * 0).contiguous() * 2)
    Tensor.realize(a, b)
  for _ in range(4): step()
  assert calls.take()[0]
  with monkeypatch.context() as patch:
    def refuse(*_: Any) -> None: raise error("no")
    patch.setattr(Shuffled, "__call__", refuse)
    patch.setattr(CPUGraph, "__call__", refuse)
    if error is DeviceError:
      with pytest.raises(DeviceError, match="no"): step()
    else: step()
  done = 5
  assert (a.numpy() == done).all() and (b.numpy() == 2 * done).all()
  calls.take()
  for _ in range(6): step()   # after a want of memory the first ones still are one by one
  assert (a.numpy() == done + 6).all() and (b.numpy() == 2 * done + 12).all() and calls.take()[0]


def test_memory(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
  """As much is in use afterwards as one by one, and at most while it runs not notably more."""
  device: Any = get_device("CPU" if config.dev == "CPU" else "NUMPY")
  def measure() -> list[int]:
    layers, step = network()
    out = []
    with Tensor.train():
      for i in range(6):
        gc.collect()
        device.reset_peak()
        before = device.allocated
        loss = step(i)
        out += [device.allocated - before, device.peak - before]
        del loss
    return out
  want = one_by_one(monkeypatch, measure)
  calls.take()
  got = measure()
  assert calls.take()[0]
  assert got[::2] == want[::2]
  for a, b in zip(got[1::2], want[1::2]): assert a <= b + max(b // launch_graphs.MORE_PART, launch_graphs.MORE_BYTES)


def test_a_plan_that_would_take_more_memory(calls: Calls) -> None:
  """Results that are needed late only would be there while a large inner buffer is: the steps run one by one."""
  x = Tensor(np.ones(1 << 18, np.float32)).realize()
  def f() -> list[Tensor]:
    big = (x.reshape(1, -1).expand(4, 1 << 18) * 2).contiguous()
    small = (big[:, ::-1] + 1).contiguous().sum(axis=0)
    return [(small.contiguous() * i).contiguous() for i in range(6)]
  for _ in range(5):
    made = f()
    Tensor.realize(*made)
    for i, t in enumerate(made): assert (t.numpy() == 12 * i).all()
  plans, steps = calls.take()
  assert not plans and steps == 5 * 3


def test_threads(calls: Calls) -> None:
  """Two that run the same plan at the same time."""
  failed: list[Any] = []
  def work(seed: int) -> None:
    try:
      for i in range(30):
        x, y = array(48, seed=seed + i), array(48, seed=seed - i + 100)
        np.testing.assert_array_equal(chain(Tensor(x), Tensor(y)).numpy(), chained(x, y))
    except Exception as e: failed.append(e)
  with config(dev=config.dev):
    threads = [threading.Thread(target=work, args=(100 * k,)) for k in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
  assert not failed and calls.take()[0]


@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
def test_copies_between_devices() -> None:
  with config(dev="CPU"):
    for i in range(5):
      x = Tensor(array(16, seed=i), device="NUMPY")
      got = ((x * 2).contiguous().to("CPU")[::-1] + 1).contiguous()[::-1].contiguous()
      np.testing.assert_array_equal(got.numpy(), array(16, seed=i) * 2 + 1)


@needs_cpu
def test_a_fork_in_between() -> None:
  """The child is refused, as in the plan's first runs; the parent goes on."""
  lines = run("""
    import numpy as np
    x = Tensor(np.ones(64, np.float32), device="CPU").realize()
    w = Tensor(np.ones(64, np.float32), device="CPU").realize()
    def step():
      w.assign(((w[::-1] * 2).contiguous()[::-1] + x).contiguous() * 0.5).realize()
      return w
    for _ in range(5): step()
    child(lambda: step().numpy().sum())
    print(step().numpy().sum())
  """)
  assert "DeviceError" in lines[0] and "forked" in lines[0] and lines[1] == "status 0" and float(lines[2]) == 64 * 4.0
