"""The engine: schedules found again, versions of buffers, memory given back, the memory plan, plans on disk."""
from __future__ import annotations

import gc
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, config, nn
from ntgrad.backends import cache
from ntgrad.backends.opencl.device import available
from ntgrad.codegen.ir.recent import Recent
from ntgrad.engine import memory_plan, plan_cache, planner, realize as engine
from ntgrad.engine.device import get_device
from ntgrad.errors import DeviceError
from ntgrad.graph import values
from support.machines import MACHINES
from support.marks import long
from support.work import events

OPENCL = available()[0]
DEVICES = ["NUMPY", *(["CPU"] if OPENCL else [])]
needs_opencl = pytest.mark.skipif(not OPENCL, reason="no OpenCL device")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
  with config(dev=request.param): yield request.param


def array(*shape: int, seed: int = 0) -> np.ndarray:
  return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


class Launches:
  """Counts the steps that run in the block."""
  def __enter__(self) -> Launches:
    self.names: list[str] = []
    engine.captures.append(self.note)
    return self
  def __exit__(self, *_: object) -> None: engine.captures.remove(self.note)
  def note(self, step: Any, buffers: Any) -> None: self.names.append("copy" if step.program is None else step.program.spec.name)


# ---- plans

def test_a_structure_is_scheduled_once(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
  def work(seed: int) -> np.ndarray: return ((Tensor(array(5, 7, seed=seed)) + 3) @ Tensor(array(7, 2, seed=seed))).relu().numpy()
  work(0)
  def never(*_: Any) -> Any: raise AssertionError("scheduled again")
  monkeypatch.setattr(planner, "make_plan", never)
  for i in range(3): np.testing.assert_array_equal(work(i), np.maximum((array(5, 7, seed=i) + 3) @ array(7, 2, seed=i), 0))
  with pytest.raises(AssertionError, match="scheduled again"): (Tensor(array(5, 8)) + 3).numpy()


def test_negative_zero_is_another_constant(device: str) -> None:
  x = Tensor(array(3)).realize()
  assert not np.signbit((x * 0 + 0.0).maximum(0.0).numpy()).any()
  assert (
    np.signbit((Tensor(np.zeros(3, np.float32)) * -0.0).numpy()).all()
    and not np.signbit((Tensor(np.zeros(3, np.float32)) * 0.0).numpy()).any()
  )


def test_equal_work_is_done_once(device: str) -> None:
  x = Tensor(array(4, 4)).realize()
  with Launches() as ran:
    a, b = (x + 1).contiguous(), (x + 1).contiguous()
    Tensor.realize(a, b)
  assert len(ran.names) == 1


# ---- versions

def test_old_values_are_computed_before_they_are_overwritten(device: str) -> None:
  w = Tensor(array(4)).realize()
  lazy, view = w * 2, w[1:3]
  w.assign(w + 1).realize()
  with Launches() as ran: np.testing.assert_array_equal(lazy.numpy(), array(4) * 2)
  assert not ran.names   # it was in the schedule that wrote
  np.testing.assert_array_equal(view.numpy(), array(4)[1:3] + 1)   # a view sees the write
  np.testing.assert_array_equal((w * 2).numpy(), (array(4) + 1) * 2)


def test_nodes_in_the_place_of_older_ones_keep_their_values(device: str) -> None:
  """A Buffer knows by id which nodes' values it had; what lies there now may have any other value."""
  w = Tensor(array(4)).realize()
  y, z = (w + 1).lazydata, (w + 2).lazydata
  one, memory = Tensor(1.0).lazydata, w.lazydata
  values.put(y, one)
  values.put(z, memory)
  memory.arg.known += [id(y), id(z)]
  w.assign(w + 5).realize()
  assert values.pop(y) is one and z not in values


def test_readers_with_assignments_of_their_own(device: str) -> None:
  w, v = Tensor(array(4)).realize(), Tensor(array(4, seed=1)).realize()
  v.assign(v + 1)
  both = w + v
  w.assign(w * 2).realize()
  np.testing.assert_array_equal(v.numpy(), array(4, seed=1) + 1)
  np.testing.assert_array_equal(both.numpy(), array(4) + array(4, seed=1) + 1)
  np.testing.assert_array_equal(w.numpy(), array(4) * 2)
  np.testing.assert_array_equal(v.numpy(), array(4, seed=1) + 1)


def test_a_forgotten_old_value_is_an_error(device: str) -> None:
  w = Tensor(array(4)).realize()
  node = (w * 2).lazydata   # a node that no tensor holds
  w.assign(w + 1).realize()
  with pytest.raises(DeviceError, match="overwritten"): Tensor(node).numpy()


def test_live_tensors_in_order_give_the_same_structure(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """However the tensors lie in memory, the schedule with its readers is found again."""
  def work() -> None:
    junk = [bytearray(random.randrange(4000)) for _ in range(50)]
    w = Tensor(array(6)).realize()
    readers = [w * i for i in range(2, 9)]
    w.assign(w + 1).realize()
    for i, r in enumerate(readers): np.testing.assert_array_equal(r.numpy(), array(6) * (i + 2))
    del junk
  work()
  def never(*_: Any) -> Any: raise AssertionError("scheduled again")
  monkeypatch.setattr(planner, "make_plan", never)
  for _ in range(5): work()


@needs_opencl
def test_two_devices_in_one_schedule() -> None:
  """A copy is no kernel, yet what it joins waits for what it copies; kernels of two devices are never one."""
  x, y = Tensor(array(5), device="CPU"), Tensor(array(5, seed=1), device="NUMPY")
  a, b = (x * 2).to("NUMPY") + y, (y - 1).to("CPU") + x
  c, d = x + 1, y + 1
  Tensor.realize(a, b, c, d)
  assert [t.device for t in (a, b, c, d)] == ["NUMPY", "CPU", "CPU", "NUMPY"]
  for got, want in zip(
    (a, b, c, d), (array(5) * 2 + array(5, seed=1), array(5, seed=1) - 1 + array(5), array(5) + 1, array(5, seed=1) + 1)
  ):
    np.testing.assert_array_equal(got.numpy(), want)


# ---- memory of what is not captured

@needs_opencl
class TestMemory:
  @pytest.fixture(autouse=True)
  def meter(self) -> Iterator[None]:
    with config(dev="CPU"):
      gc.collect()
      gc.disable()   # memory must go without a collection
      self.device = get_device("CPU")
      self.before = self.device.allocated
      self.device.reset_peak()
      yield
      gc.enable()

  @property
  def held(self) -> int: return self.device.allocated - self.before
  @property
  def peak(self) -> int: return self.device.peak - self.before

  def test_inner_buffers_go_after_their_last_use(self) -> None:
    x = Tensor(array(64, 64)).realize()
    y = x
    for _ in range(10): y = (y @ x * 0.0625).contiguous()
    y = y.realize()
    assert self.held == 2 * 16384 and self.peak <= 4 * 16384
    del y
    assert self.held == 16384
    del x
    assert self.held == 0

  def test_graphs_do_not_hold_what_they_computed(self) -> None:
    x = Tensor(array(64, 64)).realize()
    y = (x @ x).realize()
    z = (y @ y).realize()
    del y
    assert self.held == 2 * 16384
    del x
    assert self.held == 16384
    z.numpy()
    del z
    assert self.held == 0

  def test_assigned_and_replaced(self) -> None:
    w = Tensor(array(64, 64)).realize()
    for i in range(4): w.assign(w + i).realize()
    assert self.held == 16384
    view, part = w[3:5], w[3:5].contiguous()
    w.assign(w * 2).realize()
    assert self.held == 16384 + 512   # the view costs nothing, what is its own had to be copied
    del view, part
    w.assign((w @ w) * 0.125).realize()
    assert self.held == 16384
    del w
    assert self.held == 0

  def test_graphs_with_gradients(self) -> None:
    w = Tensor(array(64, 64), requires_grad=True)
    loss = (Tensor(array(64, 64, seed=1)) @ w).relu().sum().realize()
    loss.backward()
    w.grad.realize()
    assert w.grad.shape == (64, 64)
    w.grad = None
    del loss
    assert self.held == 16384
    del w
    assert self.held == 0

  def test_training_step(self) -> None:
    model = [nn.Linear(32, 64), nn.Linear(64, 16)]
    opt = nn.optim.Adam(nn.state.get_parameters(model), lr=0.01)
    x = Tensor(array(128, 32)).realize()
    held = []
    for _ in range(4):
      opt.zero_grad()
      loss = model[1](model[0](x).relu()).square().mean().backward()
      opt.step()
      loss.realize()
      held.append(self.held)
    assert held[0] == held[1] == held[3]
    state = sum(p.nbytes() for p in opt.params)
    # parameters, gradients, two states, a buffer of aligned slices; the input; activations and their gradients
    assert held[-1] <= 6 * state + x.nbytes() + 4096
    assert self.peak <= held[-1] + 3 * 128 * (32 + 64 + 64 + 16 + 16) * 4
    del loss, opt, model, x
    assert self.held == 0


# ---- work in proportion to the graph

def optimised(n: int) -> list[Tensor]:
  """Parameters after a step of Adam over all of them."""
  ps = [Tensor.ones(2, 3, requires_grad=True) for _ in range(n)]
  loss = ps[0].sum()
  for p in ps[1:]: loss = loss + p.square().sum()
  optimiser = nn.optim.Adam(ps)
  loss.backward()
  optimiser.step()
  return ps


def written(n: int) -> list[Tensor]:
  x = Tensor.zeros(100)
  for i in range(n): x[i % 100] = float(i)
  return [x]


def chained(n: int) -> list[Tensor]:
  x, c = Tensor.ones(8), Tensor.ones(8)
  for _ in range(n): x = x * c + c
  return [x]


WHOLE: dict[str, tuple[int, Callable[[int], list[Tensor]]]] = {
  "a chain": (1500, chained), "a cat of many": (30, lambda n: [Tensor.cat(*[Tensor.ones(3) for _ in range(n)])]),
  "writes at numbers": (30, written), "an optimizer": (20, optimised)}


@pytest.mark.parametrize("name", WHOLE)
def test_four_times_the_graph_is_realised_with_four_times_the_work(name: str) -> None:
  n, make = WHOLE[name]
  def run(n: int) -> None: Tensor.realize(*make(n))
  with config(dev="NUMPY"):
    run(3)
    one, four = (events(lambda n=n: run(n)) for n in (n, 4 * n))   # type: ignore[misc]
  assert four <= 4.5 * one, four / one


# ---- the memory plan

def lifetimes(count: int, seed: int) -> list[memory_plan.Lifetime]:
  r = random.Random(seed)
  out = []
  for _ in range(count):
    first = r.randrange(count)
    out.append(memory_plan.Lifetime(first, first + r.randrange(8), r.choice((1, 100, 512, 5000, r.randrange(1, 100000)))))
  return out


def least_peak_bytes(lifetimes: list[memory_plan.Lifetime]) -> int:
  """The most bytes that are needed at one step: no arrangement takes fewer."""
  change: dict[int, int] = {}
  for x in lifetimes:
    change[x.first] = change.get(x.first, 0) + memory_plan.rounded(x.nbytes)
    change[x.last + 1] = change.get(x.last + 1, 0) - memory_plan.rounded(x.nbytes)
  return max(accumulate([change[step] for step in sorted(change)]), default=0)


@pytest.mark.parametrize("seed", range(12))
def test_arranged_buffers_do_not_overlap(seed: int) -> None:
  all_ = lifetimes(40, seed)
  offsets, total = memory_plan.arrange(all_)
  for i, a in enumerate(all_):
    assert offsets[i] % memory_plan.PIECE_ALIGN_BYTES == 0 and offsets[i] + a.nbytes <= total
    for j, b in enumerate(all_[:i]):
      if a.first <= b.last and b.first <= a.last:
        assert offsets[i] + a.nbytes <= offsets[j] or offsets[j] + b.nbytes <= offsets[i]
  assert least_peak_bytes(all_) <= total <= 1.25 * least_peak_bytes(all_)
  assert memory_plan.arrange(all_) == (offsets, total)


@pytest.mark.parametrize("seed", range(12))
def test_buffers_lie_in_rooms_before_these_are_needed(seed: int) -> None:
  """Where they take no memory of their own; no buffer lies in two rooms."""
  all_, size = lifetimes(40, seed), memory_plan.PIECE_ALIGN_BYTES
  rooms = [x._replace(first=x.first + 20, last=60) for x in lifetimes(6, seed + 100)]
  begins = memory_plan.room_begins(rooms)
  offsets, total = memory_plan.arrange(all_, rooms)
  homes = [max(k for k, begin in enumerate(begins) if begin <= offset) for offset in offsets]
  for i, (a, home) in enumerate(zip(all_, homes)):
    assert offsets[i] % size == 0 and offsets[i] + a.nbytes <= total
    if home < len(rooms): assert a.last < rooms[home].first and offsets[i] - begins[home] + a.nbytes <= rooms[home].nbytes
    for j, b in enumerate(all_[:i]):
      if a.first <= b.last and b.first <= a.last:
        assert offsets[i] + a.nbytes <= offsets[j] or offsets[j] + b.nbytes <= offsets[i]
  assert total - begins[-1] <= memory_plan.arrange(all_)[1] * 1.1 and min(homes) < len(rooms)


def slowly(all_: list[memory_plan.Lifetime]) -> tuple[int, ...]:
  """Places found by looking at every buffer placed before."""
  offsets: dict[int, int] = {}
  for i in sorted(range(len(all_)), key=lambda i: (-all_[i].nbytes, all_[i].first)):
    me, end, fits = all_[i], 0, []
    size = memory_plan.rounded(me.nbytes)
    for start, j in sorted((o, j) for j, o in offsets.items() if all_[j].first <= me.last and me.first <= all_[j].last):
      if start - end >= size: fits.append((start - end, end))
      end = max(end, start + memory_plan.rounded(all_[j].nbytes))
    offsets[i] = min(fits)[1] if fits else end
  return tuple(offsets[i] for i in range(len(all_)))


@pytest.mark.parametrize("seed", range(20))
def test_each_buffer_goes_into_the_smallest_gap_that_holds_it(seed: int) -> None:
  for count in (1, 2, 7, 40):
    all_ = lifetimes(count, seed)
    assert memory_plan.arrange(all_)[0] == slowly(all_)
    steps = {s for x in all_ for s in (x.first, x.last)}
    peaks = [sum(memory_plan.rounded(x.nbytes) for x in all_ if x.first <= s <= x.last) for s in steps]
    assert least_peak_bytes(all_) == max(peaks)


NESTED: dict[str, Callable[[int], list[memory_plan.Lifetime]]] = {
  "one after another": lambda n: [memory_plan.Lifetime(i, i + 1, 1000 + i % 7 * 999) for i in range(n)],
  "one within another": lambda n: [memory_plan.Lifetime(i, 2*n - i, 1000 + i % 7 * 999) for i in range(n)],
  "as it comes": lambda n: lifetimes(n, 1)}


@pytest.mark.parametrize("name", NESTED)
def test_arranging_many_buffers_is_little_more_work_for_each(name: str) -> None:
  def run(n: int) -> None:
    all_ = NESTED[name](n)
    assert least_peak_bytes(all_) <= memory_plan.arrange(all_)[1]
  one, four = (events(lambda n=n: run(n)) for n in (500, 2000))   # type: ignore[misc]
  assert four <= 5 * one, four / one


ACCESSES: dict[str, Callable[[int], list[memory_plan.MemoryUse]]] = {
  "all ready at once": lambda n: [memory_plan.MemoryUse((i, n + i), (i,)) for i in range(n)],
  "all of one buffer": lambda n: [memory_plan.MemoryUse((i, -1), (i,)) for i in range(n)],
  "forth and back": lambda n: (
    [memory_plan.MemoryUse((i, i - 1), (i,)) for i in range(n)] + [memory_plan.MemoryUse((-i, n - i), (-i,)) for i in range(1, n)]
  ),
  "parts of one": lambda n: [memory_plan.MemoryUse((-1, i), (-1,)) for i in range(n)],
}


@pytest.mark.parametrize("name", ACCESSES)
def test_ordering_many_steps_is_little_more_work_for_each(name: str) -> None:
  def run(n: int) -> None:
    steps = ACCESSES[name](n)
    assert sorted(memory_plan.order(steps, {b: 512 * (1 + n % 3) for s in steps for b in s.buffers})) == list(range(len(steps)))
  one, four = (events(lambda n=n: run(n)) for n in (500, 2000))   # type: ignore[misc]
  assert four <= 5 * one, four / one


def test_arrange_nothing() -> None: assert memory_plan.arrange([]) == ((), 0)


@pytest.mark.parametrize("seed", range(12))
def test_order_keeps_what_depends_and_lowers_the_peak(seed: int) -> None:
  r = random.Random(seed)
  steps = []
  for i in range(30):
    reads = {r.randrange(i) for _ in range(r.randrange(3))} if i else set()
    writes = (i, *([r.choice(sorted(reads))] if reads and r.random() < 0.3 else ()))   # now and then in place
    steps.append(memory_plan.MemoryUse((*writes, *sorted(reads - set(writes))), writes))
  sizes: dict[Any, int] = {i: r.choice((1, 10, 100)) for i in range(29)}
  order = memory_plan.order(steps, sizes)
  assert sorted(order) == list(range(30))
  at = {i: n for n, i in enumerate(order)}
  for j, b in enumerate(steps):
    for i, a in enumerate(steps[:j]):
      if set(a.writes) & set(b.buffers) or set(a.buffers) & set(b.writes): assert at[i] < at[j]
  assert memory_plan.peak([steps[i] for i in order], sizes) <= memory_plan.peak(steps, sizes)


def test_order_runs_early_what_frees() -> None:
  """Gradients of weights (which free an activation) before the next layer's."""
  a = memory_plan.MemoryUse
  steps = [
    a(("x1",), ("x1",)),
    a(("x2", "x1"), ("x2",)),
    a(("g2", "x2"), ("g2",)),
    a(("g1", "g2"), ("g1",)),
    a(("w2", "g2", "x2"), ("w2",)),
    a(("w1", "g1", "x1"), ("w1",)),
  ]
  sizes = dict.fromkeys(("x1", "x2", "g1", "g2"), 10)
  assert (
    memory_plan.order(steps, sizes) == [0, 1, 2, 4, 3, 5]
    or memory_plan.peak([steps[i] for i in memory_plan.order(steps, sizes)], sizes) == 30
  )


# ---- plans on disk

SCRIPT = """
from ntgrad import Tensor, nn
from ntgrad.engine import planner as engine
made = []
make_plan = engine.make_plan
engine.make_plan = lambda *a: made.append(1) or make_plan(*a)
Tensor.manual_seed(1)
layer = nn.Linear(4, 3)
opt = nn.optim.SGD(nn.state.get_parameters(layer))
for _ in range(2):
  opt.zero_grad()
  loss = layer(Tensor([[1., 2., 3., 4.], [5., 6., 7., 9.]])).sparse_categorical_crossentropy(Tensor([1, 2])).backward()
  opt.step()
  print(loss.item().hex(), end=" ")
print(len(made))
"""


def run(folder: Path, seed: str) -> tuple[str, int]:
  done = subprocess.run([sys.executable, "-c", SCRIPT], text=True, capture_output=True, timeout=120, check=False,
                        env={**os.environ, "CACHE_DIR": str(folder), "PYTHONHASHSEED": seed, "DEV": "CPU", "VERIFY": "0"})
  assert done.returncode == 0, done.stderr
  *losses, made = done.stdout.split()
  return " ".join(losses), int(made)


@long
@needs_opencl
def test_another_process_finds_the_plans(tmp_path: Path) -> None:
  losses, made = run(tmp_path, "1")
  assert made > 0
  entries = sorted((tmp_path / plan_cache.PLAN_TABLE).rglob("*"))
  assert len([e for e in entries if e.is_file()]) == made
  assert run(tmp_path, "2") == (losses, 0)
  for e in entries:   # every entry damaged: made anew
    if e.is_file(): e.write_bytes(e.read_bytes()[:-9])
  assert run(tmp_path, "3") == (losses, made)


@needs_opencl
def test_what_is_no_plan_is_removed(tmp_path: Path) -> None:
  with config(dev="CPU", cache_dir=str(tmp_path)):
    get_device("CPU")
    for data in (b"junk", pickle.dumps(5), pickle.dumps((1, (), (), [(0,)], {}))):
      cache.store(plan_cache.PLAN_TABLE, "ab" * 32, data)
      assert plan_cache.load_plan("ab" * 32) is None and cache.load(plan_cache.PLAN_TABLE, "ab" * 32) is None


@needs_opencl
def test_what_is_made_for_one_machine_is_not_taken_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """Plans in memory and on disk: each machine has its own, and finds it again."""
  data = array(4096)
  x = Tensor(data, device="CPU").realize()
  ran: list[str] = []
  made: dict[int, list[str]] = {}
  monkeypatch.setattr(engine, "captures", [lambda step, buffers: ran.append(step.program.spec.source.text)])
  def look() -> None:
    for machine in MACHINES.values():
      ran.clear()
      with config(**machine): np.testing.assert_array_equal(((x + 2) * x).numpy(), (data + 2)*data)
      assert made.setdefault(machine["vector_bits"], ran[:]) == ran
    assert "float8" in made[128][0] and "float16" in made[512][0]   # two registers, and one
  def never(*_: Any) -> Any: raise AssertionError("scheduled again")
  with config(dev="CPU", cache_dir=str(tmp_path), cache=1, debug=0, verify=0):
    look()
    keys = set()
    for bits, cores in ((256, 2), (128, 1), (128, 3), (512, 1)):
      with config(vector_bits=bits, cores=cores): keys.add(plan_cache.plan_key((), ["CPU"]))
    monkeypatch.setattr(planner, "make_plan", never)
    look()
    if cache.sources() is None: return   # a source file has changed since this process began: nothing is kept
    monkeypatch.setattr(planner, "_plans", Recent(100))
    look()
    assert len(keys) == 4


def test_keys() -> None:
  structure = (("a", 1), 2.0)
  with config(cache=0): assert plan_cache.plan_key(structure, ["NUMPY"]) is None
  assert plan_cache.plan_key(structure, ["NUMPY"]) is None
  if not OPENCL: return
  with config(cache=1, debug=0, verify=0):
    key = plan_cache.plan_key(structure, ["CPU"])
    if cache.sources() is None: pytest.skip("a source file has changed since this process began")
    assert key == plan_cache.plan_key((("a", 1), 2.0), ["CPU", "CPU"]) != plan_cache.plan_key((("a", 1), 2.5), ["CPU"])
    assert plan_cache.plan_key((object(),), ["CPU"]) is None
    with config(debug=3): assert plan_cache.plan_key(structure, ["CPU"]) is None
