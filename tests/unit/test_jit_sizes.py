"""ntgrad.jit with sizes that change: one capture for all of them, and never a result of another size."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import numpy as np
import pytest
from unit.test_cuda_graph import cuda, fake  # noqa: F401 - fixtures

import ntgrad
from ntgrad import Tensor, Variable, config, nn
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.backends.opencl.device import available
from ntgrad.engine import planner
from ntgrad.engine.size_variants import SizedProgram
from ntgrad.errors import ArgumentError, NtgradError
from ntgrad.graph.variable import BoundInt
from support.graphs import Shuffled
from support.marks import long

DEVICES = ["NUMPY", "graphs", *(["CPU"] if available()[0] else [])]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
  """Every device, and numpy as one that makes graphs."""
  if request.param == "graphs": monkeypatch.setattr(NumpyDevice, "graph", lambda self, nodes: Shuffled(nodes))
  with config(dev="NUMPY" if request.param == "graphs" else request.param): yield request.param


@pytest.fixture
def numpy_device() -> Iterator[None]:
  with config(dev="NUMPY"): yield


class Count:
  """How many variants of kernels were compiled, and how many plans made."""

  def __init__(self, monkeypatch: pytest.MonkeyPatch):
    self.variants = self.plans = 0
    new, make = SizedProgram.new, planner.make_plan
    def variant(*args: Any) -> Any:
      self.variants += 1
      return new(*args)
    def plan(*args: Any) -> Any:
      self.plans += 1
      return make(*args)
    monkeypatch.setattr(SizedProgram, "new", variant)
    monkeypatch.setattr(planner, "make_plan", plan)

  @property
  def all(self) -> int: return self.variants + self.plans


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Count: return Count(monkeypatch)


def array(*shape: int, seed: int = 0) -> np.ndarray:
  return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
  e = np.exp(x - x.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


def close(got: Tensor, want: np.ndarray) -> None:
  assert got.shape == want.shape and all(type(n) is int for n in got.shape)
  np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


def run(fn: Callable[..., Any], want: Callable[..., np.ndarray], shapes: list[Any], **options: Any) -> tuple[Any, list[int]]:
  """Call a jit of ``fn`` with arrays of shapes and compare with numpy; gives the jit, and at which calls its Python ran."""
  ran: list[int] = []
  now = [0]
  def f(*args: Tensor) -> Any:
    ran.append(now[0])
    return fn(*args)
  j = ntgrad.jit(f, **options)
  for i, shape in enumerate(shapes):
    now[0] = i
    arrays = [array(*s, seed=i + k) for k, s in enumerate(shape)]
    close(j(*[Tensor(a).realize() for a in arrays]), want(*arrays))
  return j, ran


# ---- Variables

@long
def test_a_decode_loop_with_a_growing_cache(device: str, compiled: Count) -> None:
  """64 tokens: recorded twice, nothing is compiled after the second; the place of the write is a size of its kernel."""
  n = Variable("n", 1, 127)
  cache, want = Tensor.zeros(2, 128, 16).contiguous().realize(), np.zeros((2, 128, 16), np.float32)
  ran: list[int] = []
  @ntgrad.jit
  def step(x: Tensor, pos: int) -> tuple[Tensor, Tensor]:
    ran.append(int(pos))
    cache[:, pos] = x
    keys = cache[:, :pos + 1]
    return (x.reshape(2, 1, 16) @ keys.transpose(-2, -1)).softmax(-1) @ keys, keys * 2
  at_third = 0
  for pos in range(2, 66):
    x = array(2, 16, seed=pos)
    got, twice = step(Tensor(x).realize(), n.bind(pos))
    want[:, pos] = x
    keys = want[:, :pos + 1]
    close(got, softmax(x[:, None] @ keys.swapaxes(1, 2)) @ keys)
    close(twice, keys * 2)
    if pos == 3: at_third = compiled.all
  assert ran == [2, 3, 4] and len(step._captures) == 1 and step.captured
  assert compiled.all - at_third <= 2   # variants for sizes that 16 divides
  np.testing.assert_array_equal(cache.numpy(), want)
  step(Tensor(x).realize(), n.bind(126))   # large, and small again
  step(Tensor(x).realize(), n.bind(2))
  assert ran == [2, 3, 4]
  want[:, 126] = want[:, 2] = x
  np.testing.assert_array_equal(cache.numpy(), want)


def test_a_value_of_0_or_1_has_a_capture_of_its_own(numpy_device: None) -> None:
  n = Variable("n", 0, 10)
  table, ran = Tensor(array(10, 3)).realize(), []
  @ntgrad.jit
  def f(k: int) -> Tensor:
    ran.append(int(k))
    return table[:k + 1].sum(0)
  for _ in range(2):
    for k in (0, 1, 2, 3, 4, 5, 8): close(f(n.bind(k)), array(10, 3)[:k + 1].sum(0))
  assert ran == [0, 1, 2, 3, 4, 0, 1] and len(f._captures) == 3


def test_slices_at_a_variable(device: str) -> None:
  """What is read begins at a place that only a replay knows."""
  n = Variable("n", 1, 20)
  table = Tensor(array(24, 8)).realize()
  ran = []
  @ntgrad.jit
  def f(k: int) -> Tensor:
    ran.append(int(k))
    return table[k] + table[k + 1:k + 3].sum(0)
  a = array(24, 8)
  for k in (2, 3, 4, 7, 16, 20, 5): close(f(n.bind(k)), a[k] + a[k + 1:k + 3].sum(0))
  assert ran == [2, 3, 4]


def test_two_variables(numpy_device: None) -> None:
  n, m = Variable("n", 2, 30), Variable("m", 2, 30)
  table, ran = Tensor(array(30, 30)).realize(), []
  @ntgrad.jit
  def f(k: int, i: int) -> Tensor:
    ran.append((int(k), int(i)))
    return table[:k, :i].sum(1) * 2
  for k, i in ((5, 5), (6, 6), (8, 8), (5, 9), (29, 2), (2, 29)): close(f(n.bind(k), m.bind(i)), array(30, 30)[:k, :i].sum(1) * 2)
  assert len(ran) == 3


def test_one_variable_with_two_values_is_two_numbers(numpy_device: None) -> None:
  n = Variable("n", 2, 30)
  table = Tensor(array(30, 4)).realize()
  f = ntgrad.jit(lambda a, b: table[a:b] * 2)
  for a, b in ((3, 9), (4, 9), (3, 9), (3, 8), (3, 9)): close(f(n.bind(a), n.bind(b)), array(30, 4)[a:b] * 2)


# ---- dimensions

@pytest.mark.parametrize("options", [{}, {"dynamic": {0: 0}}, {"dynamic": {0: (0,)}}])
def test_dimensions_that_change(device: str, options: Any, compiled: Count) -> None:
  """Automatic from the second shape on, or as it is told."""
  w = Tensor(array(8, 3)).realize()
  f = lambda x: ((x @ w).relu() * (1 / x.shape[0])).sum(0) + x.mean()   # noqa: E731
  def want(x: np.ndarray) -> np.ndarray: return np.maximum(x @ array(8, 3), 0).sum(0) / len(x) + x.mean()
  sizes = [5, 7, 9, 20, 33, 5, 7, 100, 2, 9]
  j, ran = run(f, want, [((n, 8),) for n in sizes], **options)
  assert ran == ([0, 1, 2] if options else [0, 1, 2, 3])


def test_names_of_parameters_and_methods(numpy_device: None) -> None:
  ran = []
  class Model:
    def __init__(self) -> None: self.w = Tensor(array(4)).realize()
    @ntgrad.jit(dynamic={"x": (0,)})
    def __call__(self, scale: float, x: Tensor) -> Tensor:
      ran.append(x.shape[0])
      return x * self.w * scale
  model = Model()
  for n in (3, 4, 5, 6, 7):
    x = array(n, 4, seed=n)
    close(model.__call__(2.0, x=Tensor(x)) if n % 2 else model.__call__(2.0, Tensor(x)), x * array(4) * 2)
  assert ran[:2] == [3, 4] and len(ran) < 7
  with pytest.raises(ArgumentError, match="parameters are x"): ntgrad.jit(lambda x: x, dynamic={"y": 0})
  with pytest.raises(ArgumentError, match="dimensions of 'x' as ints"): ntgrad.jit(lambda x: x, dynamic={"x": (-1,)})


def test_only_the_dimensions_that_differ(numpy_device: None) -> None:
  shapes = [((n, m),) for n, m in ((4, 6), (5, 6), (7, 6), (8, 6), (9, 6), (9, 7), (4, 8), (5, 9))]
  j, ran = run(lambda x: x.sum(1), lambda x: x.sum(1), shapes)
  assert ran == [0, 1, 2, 3, 5, 6, 7]   # from the sixth on both change


def test_never(numpy_device: None) -> None:
  with config(dynamic="never"):
    j, ran = run(lambda x: x * 2, lambda x: x * 2, [((n, 3),) for n in (3, 4, 5, 3, 4, 5, 3, 4, 5)], dynamic={0: 0})
  assert ran == [0, 1, 2, 3, 4, 5] and len(j._captures) == 3


@pytest.mark.parametrize("name, fn, want", [
  ("softmax", lambda x: x.softmax(-1), softmax),
  ("slices", lambda x: x[:, 1:-1] * 2 + x[:, 2:], lambda x: x[:, 1:-1] * 2 + x[:, 2:]),
  ("half", lambda x: x[:, :x.shape[1] // 2] + 1, lambda x: x[:, :x.shape[1] // 2] + 1),
  ("cat", lambda x: Tensor.cat(x, x * 2, dim=1), lambda x: np.concatenate([x, x * 2], 1)),
  ("flat", lambda x: x.reshape(-1) * 2, lambda x: x.reshape(-1) * 2),
  ("arange", lambda x: x + Tensor.arange(x.shape[1]), lambda x: x + np.arange(x.shape[1], dtype=np.float32)),
  ("std", lambda x: x.std(1), lambda x: x.std(1, ddof=1)),
  ("views", lambda x: (x * 2).realize().T[1:], lambda x: (x * 2).T[1:]),
  ("square", lambda x: x.T @ x, lambda x: x.T @ x),
  ("number", lambda x: x * x.shape[1] - 1 / (x.shape[1] + 1), lambda x: x * x.shape[1] - 1 / (x.shape[1] + 1)),
])
def test_operations(numpy_device: None, name: str, fn: Any, want: Any) -> None:
  j, ran = run(fn, want, [((3, n),) for n in (20, 6, 9, 12, 33, 50, 6, 7)])
  assert ran[:4] == [0, 1, 2, 3] and len(ran) <= 5, name


# ---- what is not made of the sizes

BAKED: dict[str, tuple[Any, Any]] = {
  "a loop": (lambda x: sum([x[i] * i for i in range(x.shape[0])]), lambda x: sum(x[i] * np.float32(i) for i in range(len(x)))),
  "a float": (lambda x: x * float(int(x.shape[0])), lambda x: x * np.float32(len(x))),
  "an int": (lambda x: x + int(x.shape[0]), lambda x: x + np.float32(len(x))),
  "a branch": (lambda x: x + 1 if x.shape[0] > 6 else x - 1, lambda x: x + 1 if len(x) > 6 else x - 1),
  "an equality": (lambda x: x + 1 if x.shape[0] == 7 else x - 1, lambda x: x + 1 if len(x) == 7 else x - 1),
  "a remainder": (lambda x: x + 1 if x.shape[0] % 4 == 0 else x - 1, lambda x: x + 1 if len(x) % 4 == 0 else x - 1),
  "min": (lambda x: x[:min(x.shape[0], 6)] * 2, lambda x: x[:6] * 2),
  "max": (lambda x: Tensor.zeros(max(x.shape[0], 8)) + x.sum(), lambda x: np.zeros(max(len(x), 8), np.float32) + x.sum()),
  "a size without its name": (lambda x: Tensor.zeros(int(x.shape[0])) + x.sum(),
                              lambda x: np.zeros(len(x), np.float32) + x.sum()),
  "host data": (lambda x: x * Tensor(np.full(x.shape, x.shape[0], np.float32)),
                lambda x: x * np.float32(len(x))),
  "a table": (lambda x: x * {4: 1.5, 5: 2.5}.get(x.shape[0], 3.5), lambda x: x * np.float32({4: 1.5, 5: 2.5}.get(len(x), 3.5))),
  "a truth": (lambda x: x + 1 if x.shape[0] % 4 else x - 1, lambda x: x + 1 if len(x) % 4 else x - 1),
  "a search": (lambda x: x + 1 if x.shape[0] in (4, 8, 12) else x - 1, lambda x: x + 1 if len(x) in (4, 8, 12) else x - 1),
  "a power": (lambda x: x * 2.0 ** x.shape[0], lambda x: x * np.float32(2.0 ** len(x))),
}


@pytest.mark.parametrize("what", BAKED)
@pytest.mark.parametrize("options", [{}, {"dynamic": {0: 0}}])
def test_a_number_that_forgot_what_it_is(numpy_device: None, what: str, options: Any) -> None:
  """Whatever Python makes of a size, a call means what the function means."""
  fn, want = BAKED[what]
  sizes = [4, 5, 6, 7, 8, 9, 4, 5, 12, 6, 7, 8, 9, 16, 4, 30]
  run(fn, want, [((n, 3),) for n in (sizes if what != "a loop" else sizes[:13])], **options)


@pytest.mark.parametrize("fn", [
  lambda x: x.reshape(2, -1) * 2, lambda x: x[:x.shape[0] // 2] + x[x.shape[0] // 2:], lambda x: x.reshape(-1, 4, 3).sum(1),
  lambda x: x[6:].sum(0) + x[:, None].expand(-1, 2, -1)[:, 1].max(axis=0), lambda x: x[7] * 2,
  lambda x: x + Tensor.ones(x.shape[0] // 2 * 2, 3)
])
def test_what_is_refused_at_some_sizes_is_at_those(numpy_device: None, fn: Any) -> None:
  """Also where a capture for all sizes is there."""
  j = ntgrad.jit(fn, dynamic={0: 0})
  for n in (8, 12, 16, 20, 9, 6, 32, 7, 10, 8, 3, 28):
    x = Tensor(array(n, 3, seed=n)).realize()
    try: want: Any = fn(x).numpy()
    except NtgradError as e: want = e
    if isinstance(want, NtgradError):
      with pytest.raises(type(want)): j(x)
    else: close(j(x), want)


def test_it_says_why(numpy_device: None, capsys: pytest.CaptureFixture[str]) -> None:
  with config(debug=1): run(*BAKED["a float"], [((n, 3),) for n in (4, 5, 6, 7, 8)])
  assert "is captured for each shape" in capsys.readouterr().out
  with config(debug=1): run(lambda x: x * 2, lambda x: x * 2, [((n, 3),) for n in (4, 5, 6, 7, 8)])
  assert "for all values of s0" in capsys.readouterr().out


def test_two_dimensions_that_were_equal_when_recorded(numpy_device: None) -> None:
  """What is made of one is not taken for the other."""
  f = lambda x, y: (x.sum(1) + 1) * y.sum()   # noqa: E731
  def want(x: np.ndarray, y: np.ndarray) -> np.ndarray: return (x.sum(1) + 1) * y.sum()
  run(f, want, [((n, 3), (m, 2)) for n, m in ((4, 4), (5, 5), (6, 6), (7, 7), (8, 5), (5, 9), (9, 9))])
  g = lambda x, y: x + y.sum(1, keepdim=True) if x.shape[0] == y.shape[0] else x   # noqa: E731
  def other(x: np.ndarray, y: np.ndarray) -> np.ndarray: return x + y.sum(1, keepdims=True) if len(x) == len(y) else x
  run(g, other, [((n, 3), (m, 2)) for n, m in ((4, 4), (5, 5), (6, 6), (7, 7), (8, 5), (5, 9), (9, 9))])


# ---- state

def test_state_and_results(device: str) -> None:
  """What a replay of any size writes is there, what it returned stays."""
  total, last = Tensor.zeros(3).contiguous().realize(), np.zeros(3, np.float32)
  def f(x: Tensor) -> tuple[Tensor, Tensor]:
    total.assign(total + x.sum(0)).realize()
    return total, x[::-1] * 2
  j = ntgrad.jit(f)
  kept = []
  for i, n in enumerate((4, 5, 6, 7, 50, 8, 4, 5, 9)):
    x = array(n, 3, seed=i)
    last = last + x.sum(0)
    kept.append((j(Tensor(x).realize()), last, x))
    if i % 3 == 2:
      total.assign(total * 2)
      last = last * 2
  for (a, b), t, x in kept:
    close(a, t)
    close(b, x[::-1] * 2)
  close(total, last)


@long
def test_training_with_batches_of_any_size(numpy_device: None) -> None:
  """Batch norm, dropout's random numbers, an optimizer: what the plain step does."""
  results, ran = [], []
  for captured in (False, True):
    Tensor.manual_seed(3)
    class Net:
      def __init__(self) -> None: self.a, self.norm, self.b = nn.Linear(5, 8), nn.BatchNorm(8), nn.Linear(8, 3)
      def __call__(self, x: Tensor) -> Tensor: return self.b(self.norm(self.a(x)).relu().dropout(0.25))
    model = Net()
    opt = nn.optim.AdamW(nn.state.get_parameters(model), lr=0.01)
    def step(x: Tensor, y: Tensor, model: Any = model, opt: Any = opt, captured: bool = captured) -> Tensor:
      if captured: ran.append(int(x.shape[0]))
      opt.zero_grad()
      loss = model(x).sparse_categorical_crossentropy(y).backward()
      opt.step()
      return loss.realize()
    call = ntgrad.jit(step) if captured else step
    got = []
    with Tensor.train():
      for i, n in enumerate((6, 6, 6, 4, 4, 5, 7, 8, 9, 20, 4, 6)):
        loss = call(Tensor(array(n, 5, seed=i)), Tensor(np.arange(n, dtype=np.int32) % 3))
        got.append((loss.item(), model.a.weight.grad.numpy().copy(), model.norm.running_var.numpy().copy()))
    results.append(got)
  for a, b in zip(*results):
    for x, y in zip(a, b): np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
  assert len(ran) <= 6


def test_an_argument_that_is_written(numpy_device: None) -> None:
  def f(x: Tensor, y: Tensor) -> Tensor:
    x += y.sum(0)
    return x * 2
  j = ntgrad.jit(f)
  for i, n in enumerate((4, 5, 6, 7, 8, 4, 5, 6)):
    x, y = Tensor(array(4, 3, seed=i)).realize(), array(n, 3, seed=i + 50)
    close(j(x, Tensor(y).realize()), (array(4, 3, seed=i) + y.sum(0)) * 2)
    close(x, array(4, 3, seed=i) + y.sum(0))
  for i, n in enumerate((4, 5, 6, 7, 8, 4, 5, 6)):   # of such a size itself
    x = Tensor(array(n, 3, seed=i)).realize()
    close(j(x, Tensor(array(2, 3)).realize()), (array(n, 3, seed=i) + array(2, 3).sum(0)) * 2)
    close(x, array(n, 3, seed=i) + array(2, 3).sum(0))


def test_a_tensor_of_such_a_size_that_is_kept(numpy_device: None) -> None:
  seen: dict[str, Tensor] = {}
  def f(x: Tensor) -> Tensor:
    seen["last"] = (x * 3).realize()
    return x + 1
  j = ntgrad.jit(f)
  for i, n in enumerate((4, 5, 6, 7, 8, 4, 5, 6, 4)):
    x = array(n, 3, seed=i)
    close(j(Tensor(x).realize()), x + 1)
    np.testing.assert_array_equal(seen["last"].numpy(), x * 3)


def test_random_numbers(numpy_device: None) -> None:
  runs = []
  for captured in (False, True):
    Tensor.manual_seed(5)
    def f(x: Tensor) -> Tensor: return x + Tensor.rand(*x.shape) + Tensor.rand(2, 1)[0]
    call = ntgrad.jit(f) if captured else f
    runs.append([call(Tensor(array(n, 3)).realize()).numpy() for n in (4, 5, 6, 7, 8, 9, 4, 30)])
  for a, b in zip(*runs): np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("cut", [lambda k: slice(None, k), lambda k: slice(k, None, -1), lambda k: slice(-k, None, 2)])
def test_slices_that_are_cut_off(numpy_device: None, cut: Any) -> None:
  """A capture of two sizes at which a slice ends with the memory is none for a size at which it does not."""
  j = ntgrad.jit(lambda a, b: b[2, cut(a.shape[0] // 3)] + 0)
  for n, m in ((2, 2), (5, 8), (64, 20), (100, 20), (23, 20), (5, 20), (70, 20)):
    a, b = array(n, m), array(n + 1, m, seed=1)
    close(j(Tensor(a).realize(), Tensor(b).realize()), b[2, cut(n // 3)])


# ---- graphs

def test_graphs_patch_sizes_and_grids(cuda: Any) -> None:  # noqa: F811
  """One graph for all sizes; a replay of another size patches what it changes, and launches once."""
  n = Variable("n", 1, 4000)
  table = Tensor(array(4096, 3)).realize()
  j = ntgrad.jit(lambda k: (table[:k] * 2).contiguous()[::-1] + 1)
  cuda.graphs._read = lambda p: ((p.gridDimX, p.gridDimY, p.gridDimZ), (), 0, "", ())
  for k in (101, 202, 303): j(n.bind(k))
  def replay(k: int) -> Any:
    cuda.launches.clear()
    cuda.graphs.patched.clear()
    made.append(j(n.bind(k)))
    return [x[0] for x in cuda.launches]
  made: list[Tensor] = []
  small = replay(3)
  assert len(cuda.graphs.made) == 1 and len(small) == j.kernels == 2 and j.captured
  large = replay(3999)
  assert len(cuda.graphs.made) == 1 and sorted(set(cuda.graphs.patched)) == [0, 1]
  assert all(np.prod(a) < np.prod(b) for a, b in zip(small, large))
  made.pop()
  assert replay(3999) == large and not cuda.graphs.patched
  assert replay(3) == small and made[-1].shape == (3, 3)


# ---- ints that remember

def test_bound_is_an_int() -> None:
  n = Variable("n", 1, 100).bind(17)
  assert isinstance(n, BoundInt) and {17: "a"}[n] == "a" and n in {17} and n == 17 and hash(n) == hash(17)
  assert (n + 1, n * 2, 2 ** n, n ** 2, divmod(n, 5), -n, n // 2, n % 5) == (18, 34, 2 ** 17, 289, (3, 2), -17, 8, 2)
  assert (1 / n, n / 2, n - 0.5, 0.5 * n) == (1 / 17, 8.5, 16.5, 8.5) and f"{1 / n:.3f}" == "0.059"


def test_division_by_a_size_that_may_be_0(numpy_device: None) -> None:
  """What is divided by a size holds for its values from 1 on; another call's quotient says nothing of 0."""
  n, table = Variable("n", 0, 30), Tensor(array(40, 2)).realize()
  f = ntgrad.jit(lambda x, k: (x[:k % (x.shape[0] // 3) + 2] * 2, table[k % (k // 2 + 1):] + 1))
  for m, k in ((12, 5), (9, 7), (16, 8), (30, 0), (30, 1), (7, 3), (9, 7), (6, 2)):
    x = array(m, 3, seed=m)
    got, rest = f(Tensor(x).realize(), n.bind(k))
    close(got, x[:k % (m // 3) + 2] * 2)
    close(rest, array(40, 2)[k % (k // 2 + 1):] + 1)


def test_floats_made_of_sizes_are_floats(numpy_device: None) -> None:
  f = ntgrad.jit(lambda x: (Tensor.full(3, x.shape[0] * 0.5), Tensor(1 / x.shape[0]) + x.sum()), dynamic={0: 0})
  for n in (2, 4, 6, 9, 6):
    x = array(n)
    got, other = f(Tensor(x).realize())
    assert got.dtype is other.dtype is Tensor(1.0).dtype
    close(got, np.full(3, n / 2, np.float32))
    close(other, np.float32(1 / n) + x.sum())


def test_arguments_are_written_where_a_recording_is_given_up(numpy_device: None) -> None:
  """An index from the host that is another one at each size ends the recording, not what the call writes."""
  def f(x: Tensor, y: Tensor) -> Tensor:
    y[1:2] = 9
    return x[[1, -2]] + y[0]
  j = ntgrad.jit(f)
  for n in (6, 5, 6, 7, 6, 5, 7, 8):
    x, y = array(n, 2, seed=n), Tensor(array(n, seed=1)).realize()
    got, want = j(Tensor(x).realize(), y), array(n, seed=1)
    want[1] = 9
    np.testing.assert_array_equal(y.numpy(), want)
    close(got, x[[1, -2]] + want[0])


def test_a_size_that_was_the_same_in_both_recordings(numpy_device: None) -> None:
  """Nothing shows that a number was made of it: another value of it has another capture."""
  f = ntgrad.jit(lambda x: (x.cast("int32") * x.shape[0], x + x.shape[1]), dynamic={0: (0, 1)})
  for n, m in ((4, 12), (17, 17), (17, 33), (8, 31), (64, 12), (17, 17), (17, 9), (8, 9), (9, 9)):
    x = np.arange(n * m, dtype=np.float32).reshape(n, m)
    got, other = f(Tensor(x).realize())
    np.testing.assert_array_equal(got.numpy(), x.astype(np.int32) * n)
    close(other, x + m)


def test_a_variable_of_1_leaves_plain_numbers(numpy_device: None) -> None:
  """Sizes made of a value that is none of the capture's are numbers in what is compiled."""
  f = ntgrad.jit(lambda x, n, k: x.unfold(0, 3, 2).roll(k, 1))
  for n, k in ((17, 1), (17, 1), (9, 1), (9, 2), (17, 2), (30, 1), (20, 2)):
    x = array(n, seed=n)
    got = f(Tensor(x).realize(), Variable("n", 0, 50).bind(n), Variable("k", 0, 9).bind(k))
    close(got, np.roll(np.lib.stride_tricks.sliding_window_view(x, 3)[::2], k, 1))
