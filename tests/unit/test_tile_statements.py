"""Statements of applications that Python has for arrays: parts of blocks assigned, break and continue, tuples through loops. Each
function is run by Python on numpy's arrays, and as an application."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir import Ops, toposort
from ntgrad.codegen.ir.config import config
from ntgrad.errors import NtgradError
from support.devices import missing
from support.triton import needs_triton

X = np.random.default_rng(3).permutation(24).astype(np.float32).reshape(4, 6)
STEP = 2


@pytest.fixture(params=["CPU", "NUMPY", pytest.param("TRITON", marks=needs_triton)])
def device(request: Any) -> Any:
  with config(dev=request.param): yield request.param


def at_scalar(x: Any) -> Any:
  b = x + 0
  b[-1, 2] = -5
  b[0, :] += 1
  return b


def slices(x: Any) -> Any:
  b = x + 1
  b[1:3, 2:] = x[2:, :4] * x[0, 1:5]
  b[::2, 1] = -1.0
  b[3, ::-1] = x[1]
  b[:, 5:0:-STEP] = x[:, :3]
  return b


def in_a_loop(x: Any) -> Any:
  b = x * 0
  for i in range(0, 6, 2):
    b[:, i:i + 2] = x[:, i:i + 2] + b[:, 0:2]
    b[1, i] += 7
  return b


def computed(x: Any) -> Any:
  b = x * 1
  i = 0
  while x[0, i] < 15: i += 1
  b[2, i] = 50
  for k in range(4): b[k, 0] = b[k, i]
  return b


def stops(x: Any) -> Any:
  total = 0.0
  for i in range(6):
    if x[0, i] > 18: break
    total = total + x[0, i]
  return x + total


def skips(x: Any) -> Any:
  total = x * 0
  for i in range(6):
    if x[1, i] > 12: continue
    total = total + x[:, i:i + 1]
    if x[2, i] > 5:
      total = total + 1
      continue
    total = total * 2
  return total


def both(x: Any) -> Any:
  total, rounds = 0.0, 0
  for i in range(4):
    for j in range(6):
      if x[i, j] > 12:
        if x[i, j] > 20: break
        else: continue
      if i == 3 and j > 3:
        total = total - 100
        break
      rounds = rounds + 1
    else_where = total * 0
    if rounds > 9: break
    total = total + rounds + else_where
  return x + total * 100 + rounds


def forever(x: Any) -> Any:
  n = 1
  steps = 0
  while True:
    if n > 200: break
    n = n * 2
    if n < 20: continue
    steps = steps + 1
  return x + n + steps * 1000


def while_with_both(x: Any) -> Any:
  i = 0
  total = x * 0
  while i < 6:
    i = i + 1
    if x[0, i - 1] < 4: continue
    total = total + i
    if i == 4: break
  return total


def unrolled(x: Any) -> Any:
  total = x * 0
  last = 0
  for i in (0, 1, 2, 3, 4, 5):
    if i == 4: break
    last = i
    if x[3, i] < 9: continue
    total = total + x[:, i:i + 1]
  return total + last + i


def unrolled_stops(x: Any) -> Any:
  total = 0.0
  for i in [0, 2, 4, 1]:
    if x[0, i] > 18: break
    total = total + x[0, i]
  return x + total


def tuples(x: Any) -> Any:
  state = (x * 0, (0.0, 1))
  for i in range(6):
    rows, (total, n) = state
    state = rows + x[:, i:i + 1], (total + x[0, i], n * 2)
  return state[0] + state[1][0] + state[1][1]


def tuple_in_while(x: Any) -> Any:
  pair = 0, 1
  while pair[1] < 60: pair = pair[1], pair[0] + pair[1]
  return x + pair[0] * 1000 + pair[1]


def tuple_with_condition(x: Any) -> Any:
  best = (-1.0, -1)
  for i in range(6):
    if x[2, i] > best[0]: best = (x[2, i], i)
  return x + best[0] * 100 + best[1]


def places_of_a_sum(x: Any) -> Any:
  """A reduction in an index goes along the dimension that the index is for."""
  i = x.max() - 21 if isinstance(x, np.ndarray) else tl.position(tl.max(x).to(tl.int32) - 21)
  at = np.arange(6) if isinstance(x, np.ndarray) else tl.arange(0, 6)
  b = x + 0
  if isinstance(x, np.ndarray): b[:, :2] = 0
  else: b = tl.where(at - i >= 0, b, 0)
  return b


def single_places(x: Any) -> Any:
  """Elements at numbers, some twice, read between; then all of it is used, and goes on."""
  b = x * 2
  b[0, 1] = x[3, 3] + b[0, 0]
  b[3, -1] = b[0, 1] * b[2, 2] + x[1, 1] - b[3, 5]
  b[0, 1] = b[0, 1] + b[3, 5]
  whole = b.sum() if isinstance(b, np.ndarray) else tl.sum(b)
  turned = b.T if isinstance(b, np.ndarray) else tl.trans(b)
  b[1, 1] = turned[1, 0] + whole
  b[1:, 0] = b[1, 1]
  b[2, 0] = b[2, 0] + 1
  return b * 1 + b[2, 0]


def rows_by_number(x: Any) -> Any:
  b = x * 1
  for i in (0, 1, 2): b[i] = b[i + 1] * 2 + b[0] + b[i, 1]
  c = b + 0
  for i in (3, 1, 0): b[i] = c[i] - c[3 - i]
  for i in (0, 1, 2, 3): b[i] = b[i] + b[i, 0]
  return b


def places_in_regions(x: Any) -> Any:
  """Some are assigned where a condition holds, or in a loop of the kernel."""
  b = x + 0
  b[0, 0] = 1
  b[0, 1] = b[0, 0] + 5
  if x[1, 1] > 12: b[0, 2] = b[0, 1] * 2
  else: b[0, 0] = b[0, 1] * 3
  for i in range(3):
    b[1, 0] = b[1, 0] + x[0, i]
    b[1, 1] = b[1, 0] + b[0, 2]
  b[2, 2] = b[0, 2] + b[1, 1] + b[0, 0]
  b[2, 3] = b[2, 2] + 1
  return b


def columns_and_rows(x: Any) -> Any:
  b = x + 0
  b[:, 2] = b[:, 0] + b[:, 1]
  b[1] = b[2] * 2
  b[:, 3] = b[:, 2] - b[1, 1]
  b[0, 0] = b[1, 3]
  return b


def pieces(x: Any) -> Any:
  """Pieces of one length; then of another, of two dimensions, a piece across two others, and single elements."""
  b = x * 2
  for i in (0, 2, 4):
    b[:, i:i + 2] = b[:, 4 - i:6 - i] * 0.5 + x[:, 0:2]
    b[:, 0:2] = b[:, i:i + 2] + 1
  b[:, 0:2] = b[:, 1:3]
  b[:, 0:3] = b[:, 3:6] + b[:, 2:3]
  for i in (0, 2):
    for j in (0, 3): b[i:i + 2, j:j + 3] = b[2 - i:4 - i, 3 - j:6 - j] * b[i, j]
  b[0:2, 0:3] = b[2, 3:6]
  b[1:3, 2] = b[0:2, 5] + 1
  b[3, 0:2] = b[2, 2]
  b[3, 2:4] = b[3, 0:2] - 1
  return b


FUNCTIONS = [
  single_places, pieces, rows_by_number, places_in_regions, columns_and_rows, places_of_a_sum, at_scalar, slices, in_a_loop,
  computed, stops, skips, both, forever, while_with_both, unrolled, unrolled_stops, tuples, tuple_in_while,
  tuple_with_condition]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_as_python_has_it(fn: Callable[..., Any], device: str) -> None:
  np.testing.assert_allclose(tile.apply(fn, X), fn(X), rtol=1e-6)


def test_a_block_is_a_value() -> None:
  def named_twice(x: Any) -> Any:
    b = x * 2
    c = b
    b[0] = 0.0
    return c, b
  c, b = tile.apply(named_twice, X)
  np.testing.assert_array_equal(c, X * 2)
  np.testing.assert_array_equal(b[0], np.zeros(6))


def test_places_of_a_block_that_is_a_value(device: str) -> None:
  """Each name keeps the block that it had, whatever is assigned under another, and where a parameter that it reads is written."""
  def named(x: Any, y: Any) -> None:
    b = x * 2
    b[0] = 1.0
    c = b
    b[1] = c[0] + c[1]
    c[2] = b[1] * 10
    x = b
    for i in tl.static_range(4): y[i] = c[i] + b[i] * 100
  x, y = np.arange(1, 5, dtype=np.float32), np.zeros(4, np.float32)
  tile.make(lambda x, y: (x.tile((4,)), y.tile((4,))), named, (tile.Tensor(1),) * 2)(x, y)
  np.testing.assert_array_equal(x, [1, 5, 6, 8])
  np.testing.assert_array_equal(y, np.array([1, 4, 50, 8]) + np.array([1, 5, 6, 8]) * 100)


def assigned_stages(n: int, copied: bool) -> Any:
  """The same in a block whose elements are assigned; each stage from a copy, or in pairs."""
  def application(x: Any, y: Any) -> None:
    b = x * 1.0
    for s in tl.static_range(n.bit_length() - 1):
      c = b + 0.0 if copied else b
      for i in tl.static_range(n):
        if not i >> s & 1:
          u, v = (c if copied else b)[i], (c if copied else b)[i | 1 << s]
          b[i] = u * 0.5 - v
          b[i | 1 << s] = u + v * 0.5
    y = b  # noqa: F841
  return tile.make(lambda x, y: (x.tile((n,)), y.tile((n,))), application, (tile.Tensor(shape=(n,), dtype="float32"),) * 2)


def test_what_is_at_places_of_a_tensor_is_a_block(device: str) -> None:
  """It is indexed, gone along and assigned in parts as any other, and the tensor keeps what it has."""
  def picked(x: Any, i: Any) -> Any:
    column = x.source[i, 1]
    column[0] = -1.0
    rows = x.source[i[:, None], tl.arange(0, 6)[None, :]]
    total = sum([r[::-1] for r in rows]) + x.source[i, 2][:, None][1, 0] + rows.T.shape[0] + len(rows) + rows.ndim
    if x.source[0, 0] < 100: total += column[0]
    return x.source[i, 1][:, None] * total
  i = np.array([3, 0, 2])
  want = X[i, 1][:, None] * (X[i][:, ::-1].sum(0) + X[0, 2] + 6 + 3 + 2 - 1)
  np.testing.assert_allclose(tile.apply(picked, X, i), want)


def test_an_index_that_is_chosen_by_infinities(device: str) -> None:
  def chosen(x: Any, factor: Any) -> Any:
    row = tl.where(factor[:, None] * (x[:3] + 1) < float("inf"), 1, 3)
    return x.source[row, tl.arange(0, 6)[None, :]]
  factor = np.array([1, 0, np.inf], np.float32)
  np.testing.assert_array_equal(tile.apply(chosen, X, factor), X[[1, 1, 3]])


@pytest.mark.parametrize("copied", [False, True])
def test_stages_in_a_block(copied: bool, device: str) -> None:
  n = 16
  k, x, y, at = assigned_stages(n, copied), np.arange(n, dtype=np.float32) / n, np.zeros(n, np.float32), np.arange(n)
  want = x
  for s in range(n.bit_length() - 1):
    other = want[at ^ 1 << s]
    want = np.where(at >> s & 1, other + want * 0.5, want * 0.5 - other)
  k(x.copy(), y)
  np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


def assigned_pieces(n: int) -> Any:
  def application(x: Any, y: Any) -> None:
    b = x * 1.0
    for e in tl.static_range(n.bit_length() - 3):
      s = n >> e + 1
      for i in tl.static_range(0, n, 2 * s):
        for at in tl.static_range(i, i + s, 4):
          u, v = b[at:at + 4], b[at + s:at + s + 4]
          b[at:at + 4] = u * 0.5 - v
          b[at + s:at + s + 4] = u + v * 0.5
    y = b  # noqa: F841
  return tile.make(lambda x, y: (x.tile((n,)), y.tile((n,))), application, (tile.Tensor(shape=(n,), dtype="float32"),) * 2)


def test_pieces_that_are_assigned_cost_what_they_are() -> None:
  """A chain of choices had 115 and 203 nodes for each of 24 and 64."""
  if missing("CPU"): pytest.skip("no OpenCL device")
  with config(dev="CPU"): each = [len(assigned_pieces(n).uops()) / (n // 4 * (n.bit_length() - 3)) for n in (32, 64)]
  assert max(each) < 12, each


@pytest.mark.parametrize("copied", [False, True])
def test_elements_that_are_assigned_cost_what_they_are(copied: bool) -> None:
  """The program's length grows as the number of assignments does, n log n: a chain of choices had 27 nodes for each of 160."""
  if missing("CPU"): pytest.skip("no OpenCL device")
  with config(dev="CPU"): each = [len(assigned_stages(n, copied).uops()) / (n * (n.bit_length() - 1)) for n in (16, 32)]
  assert max(each) < 8, each


def test_outside_of_a_block() -> None:
  """What is assigned there is nowhere; what is read there is 0."""
  def outside(x: Any) -> Any:
    i = tl.max(x).to(tl.int32) - 21   # 2
    b = x + 0
    b[0, i:i + 6] = x[1]
    return b, x[0, i + 2:i + 6]
  b, part = tile.apply(outside, X)
  want = X.copy()
  want[0, 2:] = X[1, :4]
  np.testing.assert_array_equal(b, want)
  np.testing.assert_array_equal(part, [*X[0, 4:], 0, 0])


def test_a_computed_part_of_a_parameter() -> None:
  def turned(x: Any, y: Any) -> None:
    for i in range(0, 8, 4): y[i:i + 4] = x[i:i + 4][::-1]
  x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
  tile.make(lambda *xs: tuple(v.tile((8,)) for v in xs), turned, (tile.Tensor(1),) * 2)(x, y)
  np.testing.assert_array_equal(y, [3, 2, 1, 0, 7, 6, 5, 4])


# ---- refusals
def unknown_length(x: Any) -> Any:
  n = tl.max(x).to(tl.int32)
  return x[0, 0:n]
def scattered(x: Any) -> Any:
  b = x * 2
  b[0, x[1].to(tl.int32)] = 1.0
  return b
def too_long(x: Any) -> Any:
  b = x * 2
  b[0] = x[1, :3]
  return b
def beyond(x: Any) -> Any:
  b = x * 2
  b[4] = 1.0
  return b
def longer_tuple(x: Any) -> Any:
  t = (0.0, 1.0)
  for i in range(3): t = (*t, x[0, i])
  return x + t[0]
def counter_behind(x: Any) -> Any:
  total = 0.0
  for i in [0, 1, 2]:
    if x[0, i] > 18: break
    total = total + 1
  return x + i
def computed_size(x: Any) -> Any: return tl.zeros((tl.max(x).to(tl.int32),))


REFUSALS: dict[Callable[..., Any], str] = {
  unknown_length: r"a length that is known: block\[at:at \+ 4\]",
  scattered: "assigned at one place, or at places equally far from each other",
  too_long: r"assigning a part of a block: a block of shape \(3,\) where one of \(6,\) is wanted",
  beyond: "index 4 in a dimension of 4",
  longer_tuple: r"'t' is \(0.0, 1.0\) before the loop and",
  counter_behind: "'i' has no value here: it counts the loop at line",
  computed_size: "zeros: dimension 0 has a size that the kernel computes; .* known before the kernel runs",
}


@pytest.mark.parametrize("fn", REFUSALS, ids=lambda f: f.__name__)
def test_refusals(fn: Callable[..., Any]) -> None:
  with pytest.raises(NtgradError, match=REFUSALS[fn]) as e: tile.apply(fn, X)
  assert f"in {fn.__name__}" in str(e.value)


def butterflies(n: int) -> Any:
  """A sum over all pairs of bits, written out stage by stage: each result is made of all elements."""
  def application(x: Any, y: Any) -> None:
    parts = [x[i] for i in range(n)]
    for s in tl.static_range(n.bit_length() - 1):
      parts = [parts[i] * 0.5 + parts[i ^ 1 << s] * (1 if i >> s & 1 else -1) for i in range(n)]
    for i in tl.static_range(n): y[i] = parts[i]
  return tile.make(lambda x, y: (x.tile((n,)), y.tile((n,))), application, (tile.Tensor(shape=(n,), dtype="float32"),) * 2)


def test_stages_that_are_written_out_are_computed_once(device: str) -> None:
  x, sizes = np.arange(64, dtype=np.float32), []
  for n in (32, 64):
    k, want, y = butterflies(n), x[:n], np.zeros(n, np.float32)
    for s in range(n.bit_length() - 1):
      want = want * 0.5 + want[np.arange(n) ^ 1 << s] * np.where(np.arange(n) >> s & 1, 1, -1)
    statements = k.index_form().body
    sizes.append(sum(len(toposort((s,))) for s in statements))
    if n == 32:
      k(x[:n].copy(), y)
      np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-3)
  assert sizes[1] < 3 * sizes[0]   # n log n; each by itself would be 4 times as much


def four_products(x: Any, y: Any, z: Any) -> None:
  total = z[0] * 2.0
  for k in range(2): total = total + tl.dot(x[0], y[k]) + tl.dot(x[1], y[k + 2])
  z[0] = total + tl.sum(x[0], 1)[:, None] + tl.sum(x[1], 1)[:, None]


def test_sums_that_are_added_have_one_accumulator(device: str) -> None:
  def arrangement(x: Any, y: Any, z: Any) -> Any: return x.tile((2, 8, 32)), y.tile((4, 32, 16)), z.tile((1, 8, 16))
  shapes = (2, 8, 32), (4, 32, 16), (1, 8, 16)
  k = tile.make(arrangement, four_products, tuple([tile.Tensor(shape=s) for s in shapes]))
  x, y, z = [np.random.default_rng(i).standard_normal(s).astype("f4") for i, s in enumerate(shapes)]
  want = 2.0 * z + sum(x[i % 2].astype("f8") @ y[[0, 2, 1, 3][i]] for i in range(4)) + x.sum((0, 2))[:, None]
  k(x, y, z)
  np.testing.assert_allclose(z, want, rtol=1e-4, atol=1e-4)
  if device == "CPU":
    loops = [u for u in k.uops() if u.op is Ops.PHI]
    assert len({u.src[2] for u in loops}) == 2   # a loop of two products, one of two sums


def rounds(x: Any, weight: Any, y: Any) -> None:
  h = x[0]
  for k in range(3):
    y[k] = x[k] + tl.dot(h, weight)
    h = y[k]


def test_edges_beside_a_sum_are_masked_in_one_loop_and_matrices_read_in_place(device: str) -> None:
  """Rows end within a block, but only what is added to the sums is masked; weights lie as a copy of them would."""
  def arrangement(x: Any, weight: Any, y: Any) -> Any:
    def of_rows(p: Any) -> Any:
      p = p.tile((1, 32, -1)).tile((-1, 1, 1)).squeeze((0, 2))
      p.dtype, p.dtype.dtype = p.dtype.squeeze((1, 2)), p.dtype.dtype.squeeze(0)
      return p
    return of_rows(x), weight.tile((-1, -1)).squeeze(1).expand((of_rows(x).shape[0],)), of_rows(y)
  kernel = tile.make(arrangement, rounds, tuple([tile.Tensor(shape=s) for s in [(3, "n", 128), (128, 128), (3, "n", 128)]]))
  x, weight = [np.random.default_rng(i).standard_normal(s).astype("f4") / 8 for i, s in enumerate([(3, 70, 128), (128, 128)])]
  y, want = np.zeros_like(x), x.astype("f8")
  for k in range(3): want[k] += want[max(k - 1, 0)] @ weight
  kernel(x, weight, y)
  np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
  if device == "CPU":
    code = kernel.source("opencl")
    assert code.count(" < 128; ") == 1   # one loop over what is added, not one more without masks
    assert "__local" not in code
