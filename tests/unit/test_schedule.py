"""The scheduling rules of docs/architecture.md, each with the kernels that it must give. Most run nothing; the rest check values
too."""
from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from ntgrad import Tensor, nn
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import Ops, UOp
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.passes.additions import MOST_PRODUCTS, additions, is_float_sum, limit_additions
from ntgrad.engine.keeping import frugal
from ntgrad.graph import alias
from ntgrad.schedule import ScheduleItem, create_schedule, schedule_graph, sinks_of
from support.machines import MACHINES
from support.marks import long, long_where
from support.work import events, most_bytes

E = Tensor.empty


def test_sums_that_share_nothing_large_are_kernels_of_their_own() -> None:
  """Each of them reads what the other does not, and need not wait for it; small ones are one kernel."""
  def sums(n: int) -> tuple[list[int], np.ndarray, np.ndarray]:
    x, y, z = (Tensor(np.random.default_rng(i).standard_normal((n, 64), np.float32)) for i in range(3))
    a = (x + y).contiguous()
    b = (a + z).contiguous()
    found = [a.sum(0), b.sum(0)]
    kernels = [item.ast for item in create_schedule(found) if item.ast is not None]
    want = np.stack([(v := x.numpy() + y.numpy()).sum(0), (v + z.numpy()).sum(0)])
    return [sum(s.op is Ops.STORE for s in k.body) for k in kernels if k.reduces], Tensor.stack(*found).numpy(), want
  for n, stores in ((8192, [1, 1]), (64, [2])):
    kernels, got, want = sums(n)
    assert sorted(kernels) == stores
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-3)


def items(*tensors: Tensor, cores: int = 2) -> list[ScheduleItem]:
  return schedule_graph(sinks_of(tensors), Target("opencl", cores=cores))[1]
def kernels(*tensors: Tensor, cores: int = 2) -> list[Kernel]:
  return [i.ast for i in items(*tensors, cores=cores) if i.ast is not None]


def alu(k: Kernel) -> int: return sum(u.op is Ops.ALU and u.dtype.name != "index" for u in k.nodes)


def index(n: int) -> Tensor: return E(n, dtype="int32")


# ---- how many kernels

ONE: dict[str, Callable[[], list[Tensor]]] = {
  "elementwise chain": lambda: [(E(8, 8) + 1).relu().exp() * E(8, 8)],
  "movement costs nothing": lambda: [E(4, 6).T.reshape(3, 8).flip(1).pad(((1, 1), (0, 0))) + 1],
  "broadcast": lambda: [E(8, 1) * E(1, 6) + E(6)],
  "softmax": lambda: [E(8, 32).softmax(-1)],
  "softmax over another axis": lambda: [E(8, 32).softmax(0)],
  "log softmax": lambda: [E(8, 32).log_softmax(-1)],
  "softmax of a sum": lambda: [(E(8, 32) + E(32)).softmax(-1) * 2],
  "layer norm": lambda: [E(8, 32).layernorm()],
  "layer norm, weighted": lambda: [E(8, 32).layernorm() * E(32) + E(32)],
  "cross entropy a row": lambda: [E(8, 32).sparse_categorical_crossentropy(index(8), reduction="none")],
  "variance": lambda: [E(8, 32).var(1)],
  "matmul": lambda: [E(8, 16) @ E(16, 4)],
  "matmul + bias + relu": lambda: [(E(8, 16) @ E(16, 4) + E(4)).relu()],
  "cheap prologue": lambda: [(E(8, 16) * 2) @ E(16, 4)],
  "cast prologue": lambda: [E(8, 16, dtype="float16").float() @ E(16, 4)],
  "convolution + bias + relu": lambda: [E(2, 3, 8, 8).conv2d(E(4, 3, 3, 3), E(4)).relu()],
  "batch norm in use": lambda: [E(2, 3, 4, 4).batchnorm(E(3), E(3), E(3), E(3))],
  "two outputs": lambda: [(x := E(8, 8)) + 1, x * 2],
  "value and its use": lambda: [(y := E(8, 8).exp()), y * 2],
  "diamond at one index": lambda: [(y := E(8, 8).exp().sin()) * 2 + y],
  "cheap diamond at two": lambda: [(y := E(8, 8) + 1) + y.T],
  "sum and its rows' maximum": lambda: [(x := E(8, 32)).sum(1), x.max(axis=1)],
  "momentum": lambda: [m := E(32), p := E(32), m.assign(m * 0.9 + E(32)), p.assign(p - m * 0.1)],
}


@pytest.mark.parametrize("name", ONE)
def test_one_kernel(name: str) -> None: assert len(kernels(*ONE[name]())) == 1


MORE: dict[str, tuple[int, Callable[[], list[Tensor]]]] = {
  "costly diamond at two indices is stored": (2, lambda: [(y := E(8, 8).exp().sin()) + y.T]),
  "costly prologue of a matmul is stored": (2, lambda: [E(32, 64).exp() @ E(64, 32)]),
  "a matmul of a matmul": (2, lambda: [E(8, 8) @ E(8, 8) @ E(8, 8)]),
  "a part of a cat each": (2, lambda: [E(2, 3).cat(E(2, 3) * 2)]),
  "attention": (3, lambda: [(E(2, 16, 8) @ E(2, 16, 8).transpose(1, 2)).softmax(-1) @ E(2, 16, 8)]),
  "a padded copy for a convolution's windows": (2, lambda: [E(2, 3, 8, 8).conv2d(E(4, 3, 3, 3), padding=1)])}


@pytest.mark.parametrize("name", MORE)
def test_several_kernels(name: str) -> None:
  n, make = MORE[name]
  assert len(kernels(*make())) == n


def test_contiguous_is_stored_on_the_way() -> None:
  k, = kernels((E(8) + 1).contiguous() * 2)
  assert len(k.body) == 2


def test_cross_entropy_with_a_mean_is_rows_and_a_mean() -> None:
  assert len(kernels(E(64, 32).sparse_categorical_crossentropy(index(64)))) <= 2


def test_what_is_there_needs_no_kernel() -> None:
  assert create_schedule([E(4)]) == []


def test_several_outputs_share_their_reads() -> None:
  k, = kernels((x := E(8, 8)) + 1, x * 2)
  assert [p.written for p in k.params] == [True, True, False] and len(k.body) == 2


# ---- rule 1: parallelism before fusion

CORES = (1, 2, 8, 16)


@pytest.mark.parametrize("cores", CORES[1:])  # one core is busy anyway
@pytest.mark.parametrize(
  "name, outputs, make",
  [
    ("64M sum", 1, lambda: E(8192, 8192).sum()),
    ("a 64M row", 1, lambda: E(1, 1 << 26).sum(1)),
    ("a maximum", 1, lambda: E(1 << 24).max()),
    ("a prime", 1, lambda: E(16777213).sum()),
    ("few columns", 4, lambda: E(1 << 20, 4).sum(0)),
    ("batch statistics", 3, lambda: E(256, 3, 64, 64).mean((0, 2, 3))),
    ("a weight gradient", 6, lambda: E(1 << 18, 3).T @ E(1 << 18, 2)),
  ],
)
def test_few_outputs_of_much_are_split(name: str, outputs: int, make: Callable[[], Tensor], cores: int) -> None:
  ks = kernels(make(), cores=cores)
  assert len(ks) == (2 if outputs < 4*cores else 1), name
  programs = [np.prod([a.size for a in k.of_kind(AxisKind.GRID)], dtype=np.int64) for k in ks]
  assert programs[0] >= cores   # the partial sums keep every core busy


@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize("make", [lambda: E(64, 1024).sum(1), lambda: E(1024, 1024).sum(0), lambda: E(4096).sum()])
def test_many_outputs_or_little_are_not_split(make: Callable[[], Tensor], cores: int) -> None:
  assert len(kernels(make(), cores=cores)) == 1


# ---- rule 2: accuracy

def chains(k: Kernel) -> list[int]:
  """Additions that one accumulator takes, for every float sum."""
  limited = limit_additions(k)
  return [additions(limited, u) for u in limited.reduces if is_float_sum(u)]


@pytest.mark.parametrize("make", [lambda: E(8192, 8192).sum(), lambda: E(64, 100_003).sum(1), lambda: E(3, 70_000, 5).sum((0, 1)),
                                  lambda: E(64, 8192) @ E(8192, 64), lambda: E(2, 64, 16, 16).conv2d(E(8, 64, 9, 9))])
@pytest.mark.parametrize("cores", CORES)
def test_no_accumulator_takes_many_additions(make: Callable[[], Tensor], cores: int) -> None:
  for k in kernels(make(), cores=cores):
    assert chains(k) and max(chains(k)) <= MOST_PRODUCTS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("noopt", [0, 1])
def test_long_float32_sums_are_accurate(noopt: int, machine: str) -> None:
  """One fp32 chain of ones and small numbers loses the small ones long before 2^22 of them."""
  x = np.full(1 << 22, 1e-3, np.float32)
  x[::7] = 1.0
  with config(noopt=noopt, **MACHINES[machine]):
    got = Tensor(x).sum().item()
    rows = Tensor(x.reshape(64, -1)).sum(1).numpy()
  exact = x.astype(np.float64).sum()
  naive = float(np.cumsum(x)[-1])   # one chain
  bound = 3e-5 if MACHINES[machine]["cores"] > 2 else 2e-5   # 16 cores cut the sum otherwise: 2.3e-5
  assert abs(naive - exact) > 5e-3 * exact and abs(got - exact) <= bound * exact
  assert np.allclose(rows, x.reshape(64, -1).astype(np.float64).sum(1), rtol=bound, atol=0)


# ---- rule 3: recompute

def test_depth_does_not_multiply_work() -> None:
  """Each level is needed at two indices; computed again each time, the last would cost 2^12."""
  x = E(64)
  for _ in range(12): x = x.exp() + x.flip(0)
  ks = kernels(x)
  assert sum(map(alu, ks)) <= 12 * 8 and len(ks) <= 12


# ---- rule 4: limits

@pytest.mark.parametrize(
  "step", [lambda x: x.exp(), lambda x: (x + 1) * 1.5, lambda x: x.sin() + x], ids=["exp", "a*x+b", "x+sin x"]
)
def test_long_chains_are_cut(step: Callable[[Tensor], Tensor]) -> None:
  x = E(16)
  for _ in range(1000): x = step(x)
  ks = kernels(x)
  assert 2 <= len(ks) <= 8 and max(map(alu, ks)) <= 600


def test_many_inputs_are_cut() -> None:
  x = E(16)
  for _ in range(150): x = x + E(16)
  ks = kernels(x)
  assert 2 <= len(ks) <= 6 and max(len(k.params) for k in ks) <= 100


# ---- rule 5: versions

DEVICES = ["CPU", "NUMPY"]


def filled(values: list[float], device: str) -> Tensor: return Tensor(values, device=device).realize()


@pytest.mark.parametrize("device", DEVICES)
def test_readers_of_the_old_contents_come_first(device: str) -> None:
  x = filled([1, 2, 3, 4], device)
  y = x + 1
  x.assign(x * 2).realize()
  assert x.tolist() == [2, 4, 6, 8] and y.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("device", DEVICES)
def test_views_see_what_is_written(device: str) -> None:
  x = filled([1, 2, 3, 4], device)
  back, part, copy = x.flip(0), x[1:3], x[1:3].contiguous()
  x.assign(x * 2).realize()
  assert back.tolist() == [8, 6, 4, 2] and part.tolist() == [4, 6] and copy.tolist() == [2, 3] and x.tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize("device", DEVICES)
def test_readers_after_the_assignment_see_the_new_contents(device: str) -> None:
  x = filled([1, 2, 3, 4], device)
  x.assign(x * 2)
  assert (x + 1).tolist() == [3, 5, 7, 9]


@pytest.mark.parametrize("device", DEVICES)
def test_reads_elsewhere_get_a_new_buffer(device: str) -> None:
  x = filled([[1, 2], [3, 4]], device)   # type: ignore[list-item]
  x.assign(x.T + 1).realize()
  assert x.tolist() == [[2, 4], [3, 5]]
  z = filled([1, 2, 3, 4, 5], device)
  z.assign(z.flip(0) - z.sum()).realize()
  assert z.tolist() == [-10, -11, -12, -13, -14]


def test_in_place_only_where_an_element_reads_itself() -> None:
  x = E(8, 8)
  x.assign(x * 2)
  assert len(kernels(x)) == 1
  x = E(8, 8)
  x.assign(x.T * 2)
  ks = kernels(x)
  assert len(ks) == 2   # into a new buffer, and a copy of it


@pytest.mark.parametrize("device", DEVICES)
def test_two_buffers_swap(device: str) -> None:
  a, b = filled([1, 2], device), filled([3, 4], device)
  old = a * 1
  a.assign(b)
  b.assign(old)
  Tensor.realize(a, b)
  assert a.tolist() == [3, 4] and b.tolist() == [1, 2]


# ---- rules 6 to 9

def test_adam_over_a_flat_buffer_is_one_kernel() -> None:
  p, m, v, g = E(1000), E(1000), E(1000), E(1000)
  m.assign(m * 0.9 + g * 0.1)
  v.assign(v * 0.99 + g * g * 0.01)
  p.assign(p - 0.001 * m / (v.sqrt() + 1e-8))
  k, = kernels(p, m, v)
  assert sum(q.written for q in k.params) == 3 and len(k.params) == 4


def test_cat_stores_into_slices() -> None:
  ks = kernels(E(2, 3).cat(E(4, 3) + 1, E(1, 3)))
  assert len(ks) == 3 and {k.params[0].shape for k in ks} == {(2, 3), (3,), (4, 3)}


def test_gather_reads_and_scatter_reduces() -> None:
  k = kernels(E(10, 3)[index(4)])[-1]
  assert not k.reduces and any(s.op is Ops.CAST for u in k.nodes if u.op is Ops.INDEX for s in u.src)
  table = Tensor.rand(10, 3, requires_grad=True)
  table[Tensor([1, 2, 1])].sum().backward()
  assert table.grad is not None
  assert table.grad.numpy()[:, 0].tolist() == [0, 2, 1, 0, 0, 0, 0, 0, 0, 0]


def test_a_tile_s_gradient_is_a_sum_over_windows() -> None:
  """No atomics, no scatter: the gradient of a pooling reads the windows that an element is in."""
  x = Tensor.rand(1, 1, 6, 6, requires_grad=True)
  g, = x.avg_pool2d(3, 1).sum().gradient(x)
  want = np.zeros((6, 6))
  for i in range(4):
    for j in range(4): want[i:i + 3, j:j + 3] += 1 / 9
  assert np.allclose(g.numpy()[0, 0], want, atol=1e-6)


def test_order_is_sources_first() -> None:
  made: set[UOp] = set()
  for item in items((E(8, 8) @ E(8, 8)).softmax(-1) @ E(8, 8)):
    assert {r for r in item.reads if r.op is not Ops.BUFFER} <= made
    made |= set(item.writes)


def test_no_product_is_stored_before_its_sum() -> None:
  """Two sums over axes of different lengths in one kernel: how often one of them uses its elements is no matter of the other's
  axis."""
  x, y, a, b, c = E(64, 32), E(4, 16, 12, 12), E(32, 48), E(48, 40), E(32, 40)
  wide, deep, short = E(64, 16, 3, 3), E(64, 64, 3, 3), E(64, 16, 1, 1)
  q = E(4, 64, 32)
  block = y.conv2d(wide, padding=1, stride=2).relu().conv2d(deep, padding=1)
  for out in (x @ a @ b + x @ c, x @ c + x @ a @ b, x @ a @ b + x @ c + (x * 2) @ c, block + y.conv2d(short, stride=2),
              (y.conv2d(short, stride=2) + block).relu(), (q @ q.transpose(1, 2)).softmax() @ q + q @ E(32, 32)):
    items = create_schedule([out])
    most = max(p.shape and np.prod(p.shape) for i in items for p in i.ast.params if not p.written)
    assert all(np.prod(p.shape) <= max(most, np.prod(out.shape)) for i in items for p in i.ast.params if p.written), items
    assert len(items) <= 3


# ---- scheduling takes time and memory in proportion to the graph

def training(n: int) -> list[Tensor]:
  """A step of gradient descent through ``n`` layers."""
  ws = [Tensor.empty(8, 8, requires_grad=True) for _ in range(n)]
  x = E(4, 8)
  for w in ws: x = (x @ w).relu()
  x.sum().backward()
  for w in ws: w.assign((w - w.grad * 0.1).detach())
  return ws


def losses(n: int) -> list[Tensor]:
  """The gradients of a sum of ``n`` losses, each of a parameter of its own."""
  ws = [Tensor.empty(2, 3, requires_grad=True) for _ in range(n)]
  loss = ws[0].sum()
  for w in ws[1:]: loss = loss + w.square().sum()
  return loss.gradient(*ws)


def regularised(n: int) -> list[Tensor]:
  """Layers whose weights are computed, and a sum of all the weights: each is read here and, first, there."""
  ws, x, total = [E(8, 8).exp() for _ in range(n)], E(8), E(1)
  for w in ws: total = total + w.sum()
  for w in ws: x = (x.reshape(8, 1) * w).sum(0).sin()
  return [total, x]


def repeated(n: int, x: Tensor, step: Callable[[Tensor, int], Tensor | None]) -> list[Tensor]:
  """``step`` done ``n`` times: what it gives goes on, or it writes in place."""
  for i in range(n):
    y = step(x, i)
    if y is not None: x = y
  return [x]


c, d, wide, gathered = E(8), E(8), E(64, 64), index(8)
GROWING: dict[str, tuple[int, Callable[[int], list[Tensor]]]] = {
  "kernels of different shapes": (60, lambda n: [E(2 + i % 97, 300 + i).exp() for i in range(n)]),
  "kernels of one shape": (60, lambda n: [E(64, 64).exp() for _ in range(n)]),
  "many outputs of one input": (200, lambda n: [wide * (i + 1.5) for i in range(n)]),
  "small kernels": (200, lambda n: [E(4, 4).exp() for _ in range(n)]),
  "a chain of products": (60, lambda n: repeated(n, E(16, 16), lambda x, i: (x @ E(16, 16)).tanh())),
  "products of one input": (60, lambda n: [(c.reshape(1, 8) @ E(8, 8)).tanh() for _ in range(n)]),
  "a chain of additions and products": (2500, lambda n: repeated(n, E(8), lambda x, i: x * c + d)),
  "a sum of many": (1500, lambda n: repeated(n, E(16), lambda x, i: x + E(16))),
  "rows less their sums": (300, lambda n: repeated(n, E(4, 4), lambda x, i: x - x.sum(1, keepdim=True) * 0.01)),
  "costly diamonds": (200, lambda n: repeated(n, E(64), lambda x, i: x.exp() + x.flip(0))),
  "indices of indices": (100, lambda n: repeated(n, gathered, lambda x, i: gathered[x])),
  "a cat of many": (60, lambda n: [Tensor.cat(*[E(3) + 1 for _ in range(n)])]),
  "a cat of one": (300, lambda n: [Tensor.cat(*[E(3).exp()] * n)]),
  "cats of a cat": (60, lambda n: repeated(n, E(1), lambda x, i: Tensor.cat(x, E(1)))),
  "writes at numbers": (60, lambda n: repeated(n, E(1000), lambda x, i: x.__setitem__(i, float(i)))),
  "writes that read beside": (40, lambda n: repeated(n, E(8), lambda x, i: x.__setitem__(slice(1, 5), x[2:6] * 0.5))),
  "values written over": (300, lambda n: repeated(n, E(8), lambda x, i: x.assign(x + 1))),
  "a training step": (40, training), "a sum of losses": (60, losses), "weights read twice": (250, regularised)}


def scheduled(make: Callable[[int], list[Tensor]], n: int) -> None:
  alias.next_look[0] = 1 << 60   # the engine leaves the graph whole
  frugal(items(*make(n)), set())


@long_where(lambda name: GROWING[name][0] > 200 or name in ("a training step", "indices of indices"))
@pytest.mark.parametrize("name", GROWING)
def test_four_times_the_graph_is_four_times_the_work(name: str) -> None:
  n, make = GROWING[name]
  scheduled(make, 3)   # what is found once
  one, four = (events(lambda m=m: scheduled(make, m)) for m in (n, 4 * n))   # type: ignore[misc]
  assert four <= 5 * one, four / one   # 16 times for work that goes with the square


# graphs that are large beside everything else that is alive, tables of nodes among it, which grow by doubling
@long
@pytest.mark.parametrize("name", ["a chain of additions and products", "a sum of many", "weights read twice"])
def test_four_times_the_graph_takes_four_times_the_memory(name: str) -> None:
  n, make = GROWING[name]
  scheduled(make, 4 * n)
  gc.collect()
  one, four = [most_bytes(lambda m=m: scheduled(make, m)) for m in (n, 4 * n)]   # type: ignore[misc]
  if four > 5 * one:   # once more, for a table of all nodes that grows meanwhile is not the schedule's
    one, four = [min(old, most_bytes(lambda m=m: scheduled(make, m))) for old, m in ((one, n), (four, 4 * n))]  # type: ignore[misc]
  assert four <= 5 * one, four / one   # 16 times for work that goes with the square


def test_one_tensor_is_one_output() -> None:
  out = E(4, 8) + 1
  (one,), (listed,), (node,) = create_schedule(out), create_schedule([out]), create_schedule(out.lazydata)
  assert one.ast.body == listed.ast.body == node.ast.body


def test_what_recipes_stand_for_is_scheduled() -> None:
  """By whichever name it is asked for."""
  x, w = Tensor.empty(4, 8), Tensor.empty(5, 8)
  counts = set()
  for _ in range(4):
    t = nn.functional.linear(x, w).softplus()
    counts.add((len(create_schedule(t)), len(schedule_graph([t.lazydata])[1])))
  assert t.lazydata.op is Ops.OUTPUT and counts == {(1, 1)}
