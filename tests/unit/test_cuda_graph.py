"""Captured kernels as CUDA graphs: on a stand-in for the driver how they are built and patched, on a GPU what they compute."""
from __future__ import annotations

import gc
import itertools
import random
import time
from dataclasses import replace
from typing import Any, Callable, Iterator

import numpy as np
import pytest
from unit.test_cuda_device import Fake, spec

import ntgrad
from ntgrad import Tensor, config, nn
from ntgrad.backends.base import Argument, Node, Program
from ntgrad.backends.cuda import compiler, device as runtime, driver as nvidia
from ntgrad.backends.cuda.compiler import Binary
from ntgrad.backends.cuda.device import CUDADevice
from ntgrad.codegen.ir.errors import DeviceError, DistributedError
from ntgrad.engine import device as devices, launch_graphs, memory_plan
from ntgrad.engine.compile import _by_spec, _programs
from support.cuda_graphs import RECORDING, Refused
from support.devices import needs_cuda
from support.graphs import Launches
from support.triton import needs_triton


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
  """Found in the place of NVIDIA's modules; kernels want no shared memory to speak of."""
  f = Fake()
  monkeypatch.setattr(nvidia, "modules", lambda: (f.core, f.driver))
  monkeypatch.setattr(compiler, "build", lambda r: binary(r.name, warps=r.num_warps))
  monkeypatch.setattr(compiler, "cached", lambda *a: None)
  yield f
  runtime._here.__dict__.clear()


def binary(name: str = "double", warps: int = 4, shared: int = 128, scratch: int = 0) -> Binary:
  return Binary(name, "sm_90", b"cubin", "ptx", warps, 1, shared, scratch, 128)


def made(device: CUDADevice, *nodes: tuple[Any, list[int], tuple[int, ...]]) -> Launches:
  return Launches(device, *[(*n, ()) for n in nodes])


def node(program: Any, count: int = 2) -> Node: return Node(program, [Argument(i) for i in range(count)])


# ---- the graph itself

def test_nodes_and_patches(fake: Fake) -> None:
  """Only what has another address than before is given to the driver again, once, and then everything is launched by one call."""
  d = CUDADevice("CUDA")
  a, = d.compile([spec()])
  b, = d.compile([spec((3, 4, 1))])
  graph = made(d, (a, [1 << 40, 2], ()), (b, [3, 4], ()), (a, [5, 6], (0, 1)))
  of = [(grid, (128, 1, 1), 128, "double") for grid in ((10, 1, 1), (3, 4, 1), (10, 1, 1))]
  assert not fake.launches and fake.graphs.made[0].after == [(), (), (0, 1)]
  args = [(1 << 40, 2, 0, 0), (3, 4, 0, 0), (5, 6, 0, 0)]
  def launched(graph: Any) -> list[Any]:
    fake.launches.clear()
    graph()
    return fake.launches
  assert launched(graph) == [(*o, x) for o, x in zip(of, args)]   # they had no addresses before
  fake.graphs.patched.clear()
  graph.change(1, 0, 33)
  graph.change(2, 1, 66)
  graph.change(2, 0, 55)
  graph.change(0, 1, 2)   # as it is
  args[1:] = [(33, 4, 0, 0), (55, 66, 0, 0)]
  for _ in range(2): assert launched(graph) == [(*o, x) for o, x in zip(of, args)]
  assert fake.graphs.patched == [1, 2] and fake.graphs.launched == 3 and d.launched[-1] == "double"
  del graph
  assert not any(fake.graphs.alive.values())


class Sent(Program):
  """Another library's work: what it puts into the stream that is recorded; ``log`` is what else it was asked."""
  recorded = True
  spec = replace(spec(), name="sent")

  def __init__(self, fake: Fake): self.fake, self.log, self.refused = fake, list[str](), False
  def before(self) -> None:
    self.log.append("before")
    if self.refused: raise DistributedError("others do something else")
  def after(self) -> None: self.log.append(f"after {self.fake.graphs.launched}")
  def record(self, stream: int, buffers: Any) -> None:
    assert stream == RECORDING and self.fake.graphs.recorded is not None
    self.fake.graphs.recorded += [("sent", *buffers), ("received",)]


def test_another_librarys_work_is_a_graph_in_the_graph(fake: Fake) -> None:
  """It is recorded when addresses are known, and again for others, of which the last few are kept."""
  d, sent = CUDADevice("CUDA"), Sent(fake)
  a, = d.compile([spec()])
  graph = made(d, (a, [1, 2], ()), (sent, [2, 3], (0,)), (a, [5, 6], (0,)), (a, [3, 6], (1, 2)))
  assert not fake.graphs.made and not fake.launches
  def launched(graph: Any = graph) -> Any:
    fake.launches.clear()
    graph()
    return fake.launches[1]
  assert launched() == (("sent", 2, 3), ("received",)) and fake.graphs.made[0].after == [(), (0,), (0,), (1, 2)]
  assert sent.log == ["before", "after 1"] and fake.graphs.patched == []
  assert [x[4][:2] for x in fake.launches[::2]] == [(1, 2), (5, 6)]
  for n in (30, 31, 30, 31):
    graph.change(1, 1, n)
    assert launched() == (("sent", 2, n), ("received",))
  assert fake.graphs.patched == [1] * 4 and fake.graphs.alive == {"graph": 4, "exec": 1}   # its own, and three recordings
  for n in range(40, 60):
    graph.change(1, 1, n)
    launched()
  assert fake.graphs.alive["graph"] == 5
  graph.graph.release()   # as where the group is left, which waits for it
  assert not any(fake.graphs.alive.values()) and list(d.recorded) == [graph.graph]
  assert launched() == (("sent", 2, 59), ("received",)) and fake.graphs.alive == {"graph": 2, "exec": 1}
  sent.refused = True
  with pytest.raises(DistributedError, match="something else"): launched()
  assert not fake.launches
  del graph, launched
  gc.collect()
  assert not any(fake.graphs.alive.values())


def test_what_has_no_programs_is_left_out_of_a_graph_that_is_made_again(fake: Fake) -> None:
  d = CUDADevice("CUDA")
  a, none = d.compile([spec()]) + d.compile([spec((0, 4, 1))])
  graph = made(d, (a, [1, 2], ()), (none, [3, 4], ()), (Sent(fake), [5, 6], ()))
  for _ in range(2):
    fake.launches.clear()
    graph()
    assert [x[-1][:1] if x[0] != ("sent", 5, 6) else "sent" for x in fake.launches] == [(1,), "sent"]
    graph.graph.release()


def test_work_that_cannot_be_recorded_is_told(fake: Fake) -> None:
  d, sent = CUDADevice("CUDA"), Sent(fake)
  a, = d.compile([spec()])
  graph = made(d, (a, [1, 2], ()), (sent, [2, 3], (0,)))
  def record(stream: int, buffers: Any) -> None: raise DistributedError("NCCL: no")
  sent.record, kept = record, sent.record   # type: ignore[method-assign]
  with pytest.raises(DeviceError, match=r"launching 2 kernels at once failed \(double, sent\): NCCL: no"): graph()
  sent.record = kept   # type: ignore[method-assign]
  graph()   # made anew
  assert [x[-1] for x in fake.launches[1:]] == [("received",)] and fake.graphs.recorded is None


def test_launches_that_share_scratch_memory_come_one_after_another(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
  sizes = {"one": 256, "two": 256, "plain": 0}
  monkeypatch.setattr(compiler, "build", lambda r: binary(r.name, scratch=sizes[r.name]))
  d = CUDADevice("CUDA")
  one, two, plain = d.compile([replace(spec(), name=name) for name in sizes])
  graph = made(d, *[(p, [1, 2], ()) for p in (one, two, plain, one, two, plain, one)])
  assert fake.graphs.made[0].after == [(), (), (), (0,), (1,), (), (3,)]
  graph()
  scratch = [x[4][2] for x in fake.launches]
  assert scratch[0] == scratch[3] == scratch[6] != scratch[1] == scratch[4] != 0 and scratch[2] == scratch[5] == 0
  del one, two
  gc.collect()
  assert d.allocated == 2 * 2560   # the graph holds it
  del graph
  assert d.allocated == 0


@pytest.mark.parametrize("function", ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate"])
def test_a_driver_that_makes_no_graphs(fake: Fake, function: str, capsys: pytest.CaptureFixture[str]) -> None:
  """They are launched one by one then, and nothing is left over."""
  d = CUDADevice("CUDA")
  p, = d.compile([spec()])
  fake.graphs.fails = function
  for debug in (0, 1):
    with config(debug=debug): assert d.graph([node(p)]) is None
    said = capsys.readouterr().err
    assert ("CUDA: 1 kernels are launched one by one" in said and "NOT_SUPPORTED" in said) == bool(debug)
  assert not any(fake.graphs.alive.values())


def test_a_device_that_is_lost_makes_no_graph(fake: Fake) -> None:
  d = CUDADevice("CUDA")
  p, = d.compile([spec()])
  error = Refused(700)
  error.name = "CUDA_ERROR_ILLEGAL_ADDRESS"
  fake.graphs.fails, fake.graphs.error = "cuGraphInstantiate", error
  for _ in range(2):
    with pytest.raises(DeviceError, match="CUDA is lost .*ILLEGAL_ADDRESS"): d.graph([node(p)])


def test_errors_name_the_kernels(fake: Fake) -> None:
  """A launch that is refused can be tried again: what was to be patched still is."""
  d = CUDADevice("CUDA")
  p, = d.compile([spec()])
  graph = made(d, (p, [1, 2], ()), (p, [3, 4], (0,)))
  graph.change(1, 0, 5)
  for function in ("cuGraphExecKernelNodeSetParams", "cuGraphLaunch"):
    fake.graphs.fails = function
    with pytest.raises(DeviceError, match=r"launching 2 kernels at once failed \(double\): CUDA_ERROR_NOT_SUPPORTED"): graph()
  fake.graphs.fails = ""
  graph()
  assert [x[4][:2] for x in fake.launches] == [(1, 2), (5, 4)]
  fake.stream.broken = "CUDA_ERROR_ILLEGAL_ADDRESS: a kernel went astray"
  with pytest.raises(DeviceError, match="Launched last: double;"): d.synchronize()


def test_an_interrupt_while_nodes_get_their_addresses(fake: Fake) -> None:
  """The driver learns of all of them at the next launch."""
  d = CUDADevice("CUDA")
  p, = d.compile([spec()])
  graph = made(d, (p, [1, 2], ()), (p, [3, 4], (0,)))
  graph()
  graph.change(1, 0, 5)
  class Interrupted(np.ndarray):
    def __setitem__(self, where: Any, what: Any) -> None:
      super().__setitem__(where, what)
      raise KeyboardInterrupt
  inner: Any = graph.graph
  values, inner._values = inner._values, inner._values.view(Interrupted)
  with pytest.raises(KeyboardInterrupt): graph()
  inner._values = values
  fake.launches.clear()
  graph()
  assert [x[4][:2] for x in fake.launches] == [(1, 2), (5, 4)]


def test_arguments_are_counted(fake: Fake) -> None:
  d = CUDADevice("CUDA")
  with config(debug=0): assert d.graph([node(d.compile([spec()])[0], 1)]) is None   # the launch says what is wrong


# ---- what has to come after what

def test_order_is_kept_where_memory_is_shared() -> None:
  """As for every pair of launches of which one writes bytes that the other touches; what follows from the rest is not said."""
  rng = random.Random(0)
  for _ in range(60):
    places = {k: (rng.choice("AB"), start := 512 * rng.randrange(8), start + 512 * rng.randrange(1, 5)) for k in range(8)}
    places.update({k: (f"own {k}", 0, 512) for k in range(8, 11)})
    shared = launch_graphs.pieces({k: p for k, p in places.items() if k < 8})
    steps = []
    for _ in range(rng.randrange(1, 25)):
      buffers = rng.sample(range(11), rng.randrange(1, 4))
      steps.append((buffers, buffers[:rng.randrange(0, 3)]))
    def touched(buffers: list[int], shared: Any = shared) -> tuple[Any, ...]:
      return tuple(p for k in buffers for p in shared.get(k, (k,)))
    def overlap(a: int, b: int, places: Any = places) -> bool:
      (m, s, e), (n, t, f) = places[a], places[b]
      return m == n and s < f and t < e
    after = launch_graphs.reduced(memory_plan.dependencies([memory_plan.MemoryUse(touched(b), touched(w)) for b, w in steps])[0])
    def closure(edges: list[set[int]]) -> list[set[int]]:
      out: list[set[int]] = []
      for e in edges: out.append(e.union(*(out[j] for j in e)))
      return out
    pairs = [{j for j in range(i) if any(overlap(x, y) for x in steps[j][1] for y in steps[i][0])
              or any(overlap(x, y) for x in steps[j][0] for y in steps[i][1])} for i in range(len(steps))]
    behind = closure(pairs)
    assert closure([set(a) for a in after]) == behind
    for a in after: assert not any(j in behind[k] for j, k in itertools.permutations(a, 2))


def test_runs() -> None:
  x, y = object(), object()
  assert launch_graphs.runs([x, x, None, None, y, x, x]) == [(0, 2), (2, 4), (4, 5), (5, 7)] and launch_graphs.runs([]) == []


# ---- ntgrad.jit on it

@pytest.fixture
def cuda(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
  """The device that tensors are made on. Kernels leave memory as it is."""
  monkeypatch.setattr(devices, "_open", {**devices._open, "CUDA": CUDADevice("CUDA")})
  with config(dev="CUDA", cache=0): yield fake
  for known in (_programs, _by_spec):
    for key in [k for k in known if k[0] == "CUDA"]: del known[key]


def array(*shape: int, seed: int = 0) -> np.ndarray:
  return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def test_a_replay_is_one_launch(cuda: Fake) -> None:
  """With the addresses that the kernels would have had one by one; a replay on the same memory patches nothing."""
  def f(x: Tensor) -> Tensor:
    for i in range(6): x = (x[::-1] * 0.5 + i).contiguous()
    return x
  j = ntgrad.jit(f)
  x, other = Tensor(array(64)).realize(), Tensor(array(64, seed=1)).realize()
  for _ in range(2): j(x)
  def replay(t: Tensor, **settings: int) -> tuple[Any, ...]:
    cuda.launches.clear()
    cuda.graphs.patched.clear()
    with config(**settings): kept.append(j(t))
    return tuple(cuda.launches)
  kept: list[Tensor] = []
  replay(x)   # before which the nodes have no addresses
  cuda.graphs.launched = 0
  kept.clear()
  first = replay(x)
  assert len(first) == j.kernels == 6 and cuda.graphs.launched == 1 and len(cuda.graphs.made) == 1
  assert cuda.graphs.made[0].after == [(), (0,), (1,), (2,), (3,), (4,)]
  def ends() -> tuple[int, int]: return cuda.launches[0][4][1], cuda.launches[-1][4][0]
  assert ends() == (x.lazydata.arg.raw, kept[0].lazydata.arg.raw)
  second = replay(other)
  assert cuda.graphs.patched == [0, 5] and second[1:-1] == first[1:-1]
  assert ends() == (other.lazydata.arg.raw, kept[1].lazydata.arg.raw)
  assert len({id(t.lazydata.arg.storage) for t in kept}) == 2 and kept[0].lazydata.arg.raw != kept[1].lazydata.arg.raw
  kept.pop()
  assert replay(other) == second and not cuda.graphs.patched   # the pool gives the result's memory again
  kept.pop()
  launched = cuda.graphs.launched
  assert replay(other, debug=2) == second and cuda.graphs.launched == launched
  assert len(cuda.graphs.made) == 1
  j.reset()
  gc.collect()
  assert not any(cuda.graphs.alive.values())


def test_branches_stand_side_by_side(cuda: Fake) -> None:
  """Kernels that have nothing to do with each other do not wait for each other; what needs both waits for both."""
  def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    a, b, c = (x[::-1] * 2).realize(), (y[::-1] * 3).realize(), (x[::-1] + 1).realize()
    return (a.T @ b).realize(), (b[::-1] - 2).realize(), (c[::-1] - 1).realize()
  j = ntgrad.jit(f)
  x, y = Tensor(array(8, 8)).realize(), Tensor(array(8, 8, seed=1)).realize()
  # kernels differ in how many parameters they have
  cuda.graphs._read = lambda p: ((), (), 0, "", ())  # type: ignore[method-assign]
  for _ in range(3): j(x, y)
  assert j.kernels == 6 and cuda.graphs.made[0].after == [(), (), (), (0, 1), (1,), (2,)]


def test_a_plan_is_one_launch(cuda: Fake) -> None:
  """From the third time on, kernel after kernel, with the addresses of its input and its result; only other ones are patched."""
  def f(x: Tensor) -> Tensor:
    for i in range(4): x = (x[::-1] * 0.5 + i).contiguous()
    return x.realize()
  kept = []
  for i in range(6):
    x = Tensor(array(64, seed=i)).realize()
    cuda.launches.clear()
    cuda.graphs.patched.clear()
    kept.append((x, f(x)))
    assert cuda.graphs.launched == max(i - 1, 0) and len(cuda.launches) == 4
    assert cuda.launches[0][4][1] == x.lazydata.arg.raw and cuda.launches[-1][4][0] == kept[-1][1].lazydata.arg.raw
    for a, b in itertools.pairwise(cuda.launches): assert a[4][0] == b[4][1]
    if i > 2: assert cuda.graphs.patched == [0, 3]
  assert cuda.graphs.made[0].after == [(), (0,), (1,), (2,)] and len(cuda.graphs.made) == 1


def test_without_graphs_a_replay_launches_one_by_one(cuda: Fake) -> None:
  cuda.graphs.fails = "cuGraphInstantiate"
  j = ntgrad.jit(lambda x: (x[::-1] * 2).contiguous()[::-1] + 1)
  x = Tensor(array(64)).realize()
  for _ in range(2): j(x)
  for _ in range(3):
    cuda.launches.clear()
    j(x)
    assert len(cuda.launches) == 2 and cuda.launches[0][4][1] == x.lazydata.arg.raw
  assert not cuda.graphs.launched


# ---- a GPU

@pytest.fixture
def on_gpu() -> Iterator[None]:
  with config(dev="CUDA"): yield


def captured(f: Callable[..., Any], *first: np.ndarray) -> Any:
  """The function, captured on arguments; its kernels must be one graph."""
  j = ntgrad.jit(f)
  for _ in range(2): j(*map(Tensor, first))
  return j


def one_graph(j: Any) -> None:
  assert [type(r.graph).__name__ for r in j._replay.form.graphs] == ["CUDAGraph"]


@needs_cuda
@needs_triton
@pytest.mark.usefixtures("on_gpu")
def test_equals_what_is_not_captured() -> None:
  """Several outputs and inputs, which change; kept results stay as they are."""
  def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    a = (x @ y).relu().contiguous()
    b = (a - a.max(axis=1, keepdim=True)).exp()
    return b / b.sum(axis=1, keepdim=True), a.sum(axis=0), (a[::-1] * 2).contiguous()
  j = captured(f, array(64, 48), array(48, 80))
  kept = []
  for i in range(30):
    x, y = Tensor(array(64, 48, seed=i)).realize(), Tensor(array(48, 80, seed=i + 100)).realize()
    kept.append((j(x, y), f(x, y)))
  for got, want in kept:
    for g, w in zip(got, want): np.testing.assert_array_equal(g.numpy(), w.numpy())
  one_graph(j)


@needs_cuda
@needs_triton
@pytest.mark.usefixtures("on_gpu")
def test_a_changed_input_is_patched_while_replays_are_under_way() -> None:
  """Many replays behind one another, none waited for, each on other memory, and one on its own last result."""
  def f(x: Tensor) -> Tensor:
    for i in range(5): x = (x[::-1] * 0.5 + i).contiguous()
    return x
  def want(x: np.ndarray) -> np.ndarray:
    for i in range(5): x = (x[::-1] * np.float32(0.5) + np.float32(i))
    return x
  given = [array(100_000, seed=i) for i in range(20)]
  j = captured(f, given[0])
  xs = [Tensor(g).realize() for g in given]
  results = [j(x) for _ in range(3) for x in xs]
  chained = xs[0]
  expected = given[0]
  for _ in range(10): chained, expected = j(chained), want(expected)
  for r, g in zip(results, given * 3): np.testing.assert_array_equal(r.numpy(), want(g))
  np.testing.assert_array_equal(chained.numpy(), expected)
  one_graph(j)


@needs_cuda
@needs_triton
@pytest.mark.usefixtures("on_gpu")
def test_independent_branches_side_by_side() -> None:
  """Chains that share an arena with one another, joined at the end, on one input given twice too."""
  def f(x: Tensor, y: Tensor) -> Tensor:
    parts = []
    for k in range(6):
      t = x if k % 2 else y
      for i in range(3 + k): t = (t[::-1] + float(k - i)).T.contiguous().realize()
      parts.append(t)
    return (parts[0] + parts[1] * parts[2] - parts[3] + parts[4] * parts[5]).contiguous()
  j = captured(f, array(128, 128), array(128, 128, seed=1))
  assert j.kernels > 25 and j.planned_bytes < j.unplanned_bytes
  for i in range(40):
    x, y = Tensor(array(128, 128, seed=i)).realize(), Tensor(array(128, 128, seed=i + 7)).realize()
    if i % 5 == 0: y = x
    np.testing.assert_array_equal(j(x, y).numpy(), f(x, y).numpy())
  one_graph(j)


@needs_cuda
@needs_triton
@pytest.mark.usefixtures("on_gpu")
def test_large_shared_memory() -> None:
  """A product whose blocks take more than 48 KB of it."""
  def f(x: Tensor, y: Tensor) -> Tensor: return ((x @ y).contiguous() @ y).contiguous()
  x, y = (Tensor(np.random.default_rng(i).standard_normal((1024, 1024)).astype(np.float16)).realize() for i in (0, 1))
  want = f(x, y).numpy()
  j = ntgrad.jit(f)
  for _ in range(5): np.testing.assert_array_equal(j(x, y).numpy(), want)
  one_graph(j)


@needs_cuda
@needs_triton
@pytest.mark.usefixtures("on_gpu")
def test_random_numbers() -> None:
  def f(x: Tensor) -> Any: return (x + Tensor.rand(40, 30)).contiguous() * 2, Tensor.randint(500, low=0, high=1000) * 1
  runs = []
  for call in (f, ntgrad.jit(f)):
    Tensor.manual_seed(7)
    runs.append([[t.numpy() for t in call(Tensor(array(40, 30)))] for _ in range(8)])
  for a, b in zip(*runs):
    for x, y in zip(a, b): np.testing.assert_array_equal(x, y)
  assert (runs[1][3][1] != runs[1][4][1]).any()


@needs_cuda
@needs_triton
@pytest.mark.usefixtures("on_gpu")
def test_training_steps() -> None:
  """An optimiser's steps, with batch norm's statistics and dropout, captured and not: the same bits."""
  results = []
  for capture in (False, True):
    Tensor.manual_seed(3)
    layers = [nn.Linear(20, 64), nn.BatchNorm(64), nn.Linear(64, 10)]
    opt = nn.optim.AdamW(nn.state.get_parameters(layers), lr=0.01)
    def step(x: Tensor, y: Tensor, layers: Any = layers, opt: Any = opt) -> Tensor:
      opt.zero_grad()
      loss = layers[2](layers[1](layers[0](x)).relu().dropout(0.25)).sparse_categorical_crossentropy(y).backward()
      opt.step()
      return loss.realize()
    run = ntgrad.jit(step) if capture else step
    got = []
    with Tensor.train():
      for i in range(12):
        opt.lr = 0.01 / (i + 1)
        labels = np.random.default_rng(i).integers(0, 10, 32).astype(np.int32)
        got.append(run(Tensor(array(32, 20, seed=i)), Tensor(labels)).numpy())
    results.append([*got, *(t.numpy() for t in nn.state.get_state_dict(layers).values())])
    if capture: one_graph(run)
  for a, b in zip(*results): np.testing.assert_array_equal(a, b)


@needs_cuda
@needs_triton
@pytest.mark.usefixtures("on_gpu")
def test_time_a_kernel() -> None:
  """A chain of small kernels on changing inputs: under 4 µs each, from the call to the end on the device."""
  def f(x: Tensor) -> Tensor:
    for i in range(100): x = (x[::-1] * 0.5 + i).contiguous()
    return x
  j = captured(f, array(1024))
  one = devices.get_device("CUDA")
  xs = [Tensor(array(1024, seed=i)).realize() for i in range(4)]
  for x in xs: j(x)
  best = float("inf")
  for _ in range(10):
    one.synchronize()
    start = time.perf_counter()
    for i in range(20): j(xs[i % 4])
    one.synchronize()
    best = min(best, (time.perf_counter() - start) / 20 / j.kernels)
  print(f"{best * 1e6:.2f} µs a kernel")
  assert best < 4e-6
