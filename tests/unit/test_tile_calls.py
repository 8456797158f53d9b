"""Calls of tile kernels in lazy programs: the same values whether a call is launched at once or is a node of the graph."""
from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import GlobalCounters, Tensor, Variable, config, tile
from ntgrad.codegen.ir.errors import ApplicationError, DeviceError, NtgradError
from ntgrad.codegen.ir.uop import Ops
from ntgrad.engine.device import get_device
from ntgrad.schedule import create_schedule
from ntgrad.tile import language as tl
from support.marks import long, long_where

N = 24
Array = np.ndarray[Any, Any]


def _rows(*xs: Any) -> Any: return tuple([x.tile((8,)) for x in xs])
def _double(x: Any, out: Any) -> None: out = x * 2   # noqa: F841 - stores
def _add_one(x: Any) -> None: x = x + 1   # noqa: F841
def _both(x: Any, more: Any, less: Any) -> None:
  more = x + 1   # noqa: F841
  less = less - x   # noqa: F841
def _two(x: Any, more: Any, less: Any) -> None: more, less = x + 1, x - 1   # noqa: F841
def _scale(x: Any, y: Any) -> None: y = x * 3   # noqa: F841
def _late(x: Any, out: Any) -> None: out = tl.nothing_of_that_name(x)   # noqa: F841


def vectors(n: int) -> tuple[tile.Tensor, ...]: return tuple([tile.Tensor(1) for _ in range(n)])


double = tile.make(_rows, _double, vectors(2), kernel_name="double")
add_one = tile.make(_rows, _add_one, vectors(1), kernel_name="add_one")
both = tile.make(_rows, _both, vectors(3), kernel_name="both")
wrong = tile.make(_rows, _late, vectors(2), kernel_name="wrong")


def data(seed: int = 0) -> Array: return np.random.default_rng(seed).integers(-9, 10, N).astype(np.float32)


def is_node(t: Tensor) -> bool: return any(u.op is Ops.CALL for u in t.lazydata.toposort())


def memory(x: Array) -> Tensor: return Tensor(x).realize()


def test_a_call_on_what_is_not_computed_is_a_node() -> None:
  a, out = data(), memory(np.zeros(N, np.float32))
  double(Tensor(a) + 1, out)
  assert is_node(out) and np.array_equal(out.numpy(), (a + 1) * 2) and not is_node(out)


def test_one_schedule_has_the_argument_the_call_and_what_reads_it() -> None:
  a, out = memory(data()), memory(np.zeros(N, np.float32))
  double(a.exp(), out)
  out.sum().item()   # compiled
  double(a.exp(), out)
  total = (out + 1).sum()
  before = GlobalCounters.kernel_count
  total.realize()
  assert GlobalCounters.kernel_count - before == 3
  before = GlobalCounters.kernel_count
  assert not is_node(out.realize()) and GlobalCounters.kernel_count == before   # computed with it


def test_what_is_in_memory_is_launched_at_once() -> None:
  a, out = memory(data()), memory(np.zeros(N, np.float32))
  double(a, out)
  assert out.lazydata.op is Ops.BUFFER and np.array_equal(out.numpy(), data() * 2)


def test_a_schedule_says_what_is_called() -> None:
  a, out = memory(data()), memory(np.zeros(N, np.float32))
  double(a, out)
  double(a + 1, out)
  assert str(create_schedule(out)).splitlines()[-1].endswith("double: a call")


def test_an_error_while_it_runs_names_the_line() -> None:
  class Broken:
    def ready(self) -> None: pass
    def __call__(self, *buffers: Any) -> None: raise DeviceError("the launch failed")
  def refused(x: Any, out: Any) -> None: out = x * 4   # noqa: F841
  kernel, a, out = tile.make(_rows, refused, vectors(2)), memory(data()), memory(np.zeros(N, np.float32))
  kernel(a + 1, out)
  kernel(a + 1, out)
  call, = [u for u in out.lazydata.toposort() if u.op is Ops.CALL][-1:]
  vars(call.arg[0])["program"] = Broken()
  said = r"the launch failed\ncomputing what was made at test_tile_calls.py:\d+ kernel"
  with pytest.raises(DeviceError, match=said): out.numpy()


@pytest.mark.parametrize("lazy", [False, True])
class TestBothWays:
  """``lazy``: the argument is computed with the call."""

  def argument(self, lazy: bool) -> Tensor: return Tensor(data()) + 1 if lazy else memory(data() + 1)

  def test_a_reader_of_the_old_version(self, lazy: bool) -> None:
    out = memory(np.ones(N, np.float32))
    old = out + 5
    double(self.argument(lazy), out)
    assert np.array_equal(old.numpy(), np.full(N, 6.0)) and np.array_equal(out.numpy(), (data() + 1) * 2)

  def test_a_view_of_the_output(self, lazy: bool) -> None:
    out = memory(np.zeros(N, np.float32))
    view = out.reshape(4, 6)[1]
    double(self.argument(lazy), out)
    assert np.array_equal(view.numpy(), ((data() + 1) * 2).reshape(4, 6)[1])

  def test_an_output_that_is_a_view(self, lazy: bool) -> None:
    whole = memory(np.zeros((3, N), np.float32))
    double(self.argument(lazy), whole[1])
    want = np.zeros((3, N), np.float32)
    want[1] = (data() + 1) * 2
    assert np.array_equal(whole.numpy(), want)

  def test_several_outputs(self, lazy: bool) -> None:
    more, less = memory(np.zeros(N, np.float32)), memory(np.ones(N, np.float32))
    both(self.argument(lazy), more, less)
    GlobalCounters.reset()
    assert np.array_equal(less.numpy(), -data()) and np.array_equal(more.numpy(), data() + 2)

  def test_an_output_that_nobody_keeps(self, lazy: bool) -> None:
    less = memory(np.ones(N, np.float32))
    both(self.argument(lazy), Tensor.zeros(N), less)
    assert np.array_equal(less.numpy(), -data())

  def test_in_place(self, lazy: bool) -> None:
    x = self.argument(lazy)
    same = x.reshape(4, 6)
    add_one(x)
    add_one(x)
    assert np.array_equal(same.numpy().reshape(-1), data() + 3)

  def test_captured(self, lazy: bool) -> None:
    @ntgrad.jit
    def step(x: Tensor, out: Tensor) -> Tensor:
      double(x + 1 if lazy else x, out)
      return out.sum()
    out = memory(np.zeros(N, np.float32))
    for i in range(5):
      x = memory(data(i))
      want = (data(i) + lazy) * 2
      assert step(x, out).item() == want.sum() and np.array_equal(out.numpy(), want)

  def test_without_gradients(self, lazy: bool) -> None:
    weight = Tensor(np.ones(N, np.float32), requires_grad=True)
    with ntgrad.no_grad(): double(self.argument(lazy), weight)
    assert np.array_equal(weight.numpy(), (data() + 1) * 2) and weight.requires_grad
    with pytest.raises(NtgradError, match="requires a gradient"): double(self.argument(lazy) * weight, memory(data()))

  def test_an_error_in_the_kernel(self, lazy: bool) -> None:
    out = memory(np.ones(N, np.float32))
    with pytest.raises(ApplicationError, match="nothing_of_that_name"): wrong(self.argument(lazy), out)
    assert np.array_equal(out.numpy(), np.ones(N))

  def test_numbers_and_nothing(self, lazy: bool) -> None:
    out = memory(np.zeros(0, np.float32))
    double(self.argument(lazy)[:0], out)
    assert out.shape == (0,) and out.numpy().size == 0


def test_memory_with_nothing_in_it_is_not_copied() -> None:
  """What ``tile.function`` makes is written in place, also where only a part of it is asked for."""
  made = tile.function(tile.make(_rows, _two, vectors(3), kernel_name="two"), outputs={"more": "x", "less": "x"})
  x = Tensor(data()).realize() * 2
  more, _ = made(x)
  assert [item.call is not None for item in create_schedule(more + 1)] == [False, True, False]
  np.testing.assert_array_equal((more + 1).numpy(), data() * 2 + 2)


def test_calls_in_plans_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
  """A kernel for sizes of one name is a step of a plan with run-time sizes: the third size compiles nothing."""
  scaled = tile.function(tile.make(lambda x, y: (x.tile((8,)), y.tile((8,))), _scale, [tile.Tensor(shape=("n",))] * 2))
  def run(n: int) -> Array: return np.asarray((scaled(Tensor(np.ones(n, np.float32)).realize() + n) * 5).numpy())
  for n in 100, 130: run(n)
  def never(*_: Any) -> Any: raise AssertionError("nothing is compiled")
  monkeypatch.setattr(type(get_device("CPU")), "compile", never)
  for n in 90, 111, 100: np.testing.assert_array_equal(run(n), np.full(n, (n + 1) * 15, np.float32))


@long
def test_sizes_that_change() -> None:
  """Calls in a capture for all sizes, and on sizes of Variables, keep their kernels for all sizes."""
  @ntgrad.jit(dynamic={"x": (0,)})
  def step(x: Tensor) -> Tensor:
    out = Tensor.zeros(*x.shape).contiguous().realize()
    double(x + 1, out)
    return out.sum().realize()
  n, whole = Variable("n", 1, 64), memory(np.arange(64, dtype=np.float32))
  for size in (16, 20, 24, 33, 40, 17, 64, 5):
    want = float((np.arange(size) + 1).sum() * 2)
    assert step(memory(np.arange(size, dtype=np.float32))).item() == want
    x = whole[:n.bind(size)]
    out = (x * 0).contiguous().realize()
    double(x + 1, out)
    assert out.sum().item() == want


class Program:
  """A random program on a few tensors, and the same on arrays. ``eager`` computes every value before it goes on."""

  def __init__(self, seed: int, eager: bool):
    self.random, self.eager = random.Random(seed), eager
    self.tensors = [memory(data(i)) for i in range(4)]
    self.arrays = [data(i).copy() for i in range(4)]
    self.seen: list[tuple[Tensor, Array]] = []   # values that are looked at later

  def pick(self) -> int: return self.random.randrange(4)

  def value(self) -> tuple[Tensor, Array]:
    """Something made of the tensors, computed or not."""
    i, j, how = self.pick(), self.pick(), self.random.randrange(5)
    t, a = self.tensors[i], self.arrays[i]
    if how == 1: t, a = t + 3, a + 3
    if how == 2: t, a = t - self.tensors[j], a - self.arrays[j]
    if how == 3: t, a = t.flip(0), a[::-1].copy()
    if how == 4: t, a = t.reshape(4, 6).permute(1, 0).reshape(N), a.reshape(4, 6).T.reshape(N).copy()
    return t, a

  def step(self) -> None:
    do, i, j = self.random.randrange(8), self.pick(), self.pick()
    t, a = self.value()
    if do <= 2:
      double(t, self.tensors[i])
      self.arrays[i][:] = a * 2
    elif do == 3:
      add_one(self.tensors[i])
      self.arrays[i][:] += 1
    elif do == 4 and i != j:
      t = t + 0   # no memory that is written
      both(t, self.tensors[i], self.tensors[j])
      less = self.arrays[j] - a
      self.arrays[i][:] = a + 1
      self.arrays[j][:] = less
    elif do == 5:
      self.tensors[i].assign(t.clip(-50, 50))
      self.arrays[i][:] = np.clip(a, -50, 50)
    elif do == 6: self.seen.append((t + 0, a.copy()))
    elif do == 7: self.tensors[i].realize()
    if self.eager: Tensor.realize(*self.tensors, *[t for t, _ in self.seen])

  def check(self) -> None:
    order = list(zip(self.tensors, self.arrays)) + self.seen
    self.random.shuffle(order)
    for t, a in order: np.testing.assert_array_equal(t.numpy(), a)


@long_where(lambda seed: seed > 9)
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int, eager: bool) -> None:
  with config(verify=1):
    program = Program(seed, eager)
    for _ in range(12): program.step()
    program.check()
