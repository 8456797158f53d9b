"""Reductions and scans by any function, atomic operations that give what was there, products of batches: against numpy."""
from __future__ import annotations

import pickle
from typing import Any, Callable, Iterator

import ml_dtypes
import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.kernel import structure_text
from ntgrad.errors import NtgradError
from ntgrad.tile import Tensor
from support import plain_c
from support.devices import needs_cuda
from support.marks import long, long_where
from support.triton import needs_triton

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 7)).astype(np.float32)
P = (np.abs(X) + 0.5).astype(np.float32)
I = RNG.integers(-9, 9, (5, 7)).astype(np.int32)
S = RNG.integers(0, 2, (5, 7)).astype(bool)
DEVICES = ["CPU", "NUMPY", pytest.param("TRITON", marks=needs_triton), pytest.param("CUDA", marks=needs_cuda)]


@pytest.fixture(params=DEVICES)
def device(request: Any) -> Iterator[str]:
  with config(dev=request.param, verify=1): yield request.param


# ---- functions: read by the language, and called by Python with numpy's scalars

def recurrence(a: Any, x: Any, b: Any, y: Any) -> Any: return a * b, x * b + y


def welford(mean: Any, squares: Any, n: Any, mean2: Any, squares2: Any, n2: Any) -> Any:
  total, apart = n + n2, mean2 - mean
  return mean + apart * n2 / total, squares + squares2 + apart * apart * n * n2 / total, total


def segmented(begins: Any, x: Any, begins2: Any, y: Any) -> Any: return begins | begins2, y if begins2 else x + y


def greatest(x: Any, i: Any, y: Any, j: Any) -> Any:
  if x >= y: return x, i
  return y, j


def matrices(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
  """Products of two by two matrices: no function that commutes."""
  return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def halves(x: Any, y: Any) -> Any:
  for _ in tl.static_range(2): x = x + y * 0.5
  return x


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
  "recurrence": (recurrence, (P / 2, X)),
  "welford": (welford, (X, X * 0, X * 0 + 1)),
  "segmented": (segmented, (S, X)),
  "greatest": (greatest, (X, np.broadcast_to(np.arange(7, dtype=np.int32), (5, 7)).copy())),
  "matrices": (matrices, (P, X / 3, X, P / 2)),
  "sum": (lambda x, y: x + y, (I,)),
  "maximum": (lambda x, y: x if x > y else y, (X,)),
}


def combined(fn: Callable[..., Any], xs: tuple[np.ndarray, ...], axis: int, reverse: bool = False) -> list[np.ndarray]:
  """All that the elements combine to, one after another, as Python computes it."""
  out = [x.copy() for x in xs]
  rows = [np.moveaxis(x[::1] if not reverse else np.flip(x, axis), axis, 0) for x in out]   # views
  for at in np.ndindex(rows[0].shape[1:]):
    for k in range(1, len(rows[0])):
      got = fn(*(r[(k - 1, *at)] for r in rows), *(r[(k, *at)] for r in rows))
      for r, v in zip(rows, got if len(rows) > 1 else (got,)): r[(k, *at)] = v
  return out


def same(got: Any, want: list[np.ndarray]) -> None:
  for g, w in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
    assert g.dtype == w.dtype and g.shape == w.shape
    np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=2e-5, atol=1e-5)


@long_where(lambda name, axis: name not in ("recurrence", "segmented") or axis == 0)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, axis: int, device: str) -> None:
  fn, xs = FUNCTIONS[name]
  given: Callable[..., Any] = lambda *bs: bs if len(bs) > 1 else bs[0]  # noqa: E731
  same(tile.apply(lambda *bs: tl.associative_scan(given(*bs), axis, fn), *xs), combined(fn, xs, axis))
  same(tile.apply(lambda *bs: tl.associative_scan(given(*bs), axis - 2, fn, reverse=True), *xs), combined(fn, xs, axis, True))
  last = [w.take(-1, axis) for w in combined(fn, xs, axis)]
  same(tile.apply(lambda *bs: tl.reduce(given(*bs), axis, fn), *xs), last)
  same(tile.apply(lambda *bs: tl.reduce(given(*bs), axis, fn, keep_dims=True), *xs), [np.expand_dims(w, axis) for w in last])


def test_all_elements_row_by_row(device: str) -> None:
  flat = combined(recurrence, (P.ravel() / 2, X.ravel()), 0)
  same(tile.apply(lambda a, x: tl.reduce((a, x), None, recurrence), P / 2, X), [np.array(w[-1]) for w in flat])
  got = tile.apply(lambda a, x: tl.reduce((a, x), None, recurrence, keep_dims=True)[1], P / 2, X)
  assert got.shape == (1, 1)


def test_blocks_that_broadcast_and_dimensions_of_one(device: str) -> None:
  """A position, a number, and a row beside a matrix; along a dimension of one element nothing is combined."""
  def counted(a: Any, i: Any, n: Any, b: Any, j: Any, m: Any) -> Any: return *greatest(a, i, b, j), n + m
  v, i, n = tile.apply(lambda x: tl.reduce((x, tl.arange(0, 7), 1), 1, counted), X)
  np.testing.assert_array_equal(i, X.argmax(1))
  assert v.tolist() == X.max(1).tolist() and (n == 7).all()
  same(tile.apply(lambda x: tl.reduce(x[:, None], 1, lambda a, b: a * b), X), [X])
  same(tile.apply(lambda x: tl.associative_scan(x[:, None], 1, lambda a, b: a * b), X), [X[:, None]])


def test_functions_of_the_language_and_of_python(device: str) -> None:
  same(tile.apply(lambda x: tl.reduce(x, 0, tl.maximum), X), [X.max(0)])
  same(tile.apply(lambda x: tl.reduce(x, 0, min), X), [X.min(0)])
  same(tile.apply(lambda x: tl.reduce(x, 0, halves), X), [combined(lambda a, b: a + b, (X,), 0)[0][-1]])
  half = 0.5
  same(tile.apply(lambda x: tl.reduce(x, 0, lambda a, b: a + b + half), X),
       [combined(lambda a, b: a + b + 0.5, (X,), 0)[0][-1]])


@long_where(lambda dtype: dtype not in ("int8", "float16", "bool"))
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint32", "int64", "float16", "bfloat16", "float64"])
def test_dtypes(dtype: str, device: str) -> None:
  kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
  x = (RNG.integers(0, 2, (3, 6)) if dtype == "bool" else RNG.integers(1, 4, (3, 6))).astype(kind)
  fn: Callable[..., Any] = (lambda a, b: a ^ b) if dtype == "bool" else lambda a, b: a * b
  plain: Callable[..., Any] = (lambda a, b: a != b) if dtype == "bool" else lambda a, b: a * b
  with np.errstate(over="ignore"): last, down = combined(plain, (x,), 1)[0][:, -1], combined(plain, (x,), 0, True)
  same(tile.apply(lambda x: tl.reduce(x, 1, fn), x), [last])
  same(tile.apply(lambda x: tl.associative_scan(x, 0, fn, True), x), down)


# ---- tiles that hang over the edge, sizes known at the launch, loops

@long_where(lambda dynamic, device: (dynamic == "always") is not (device == "CPU"))
@pytest.mark.parametrize("dynamic", ["never", "always"])
def test_what_lies_outside_takes_no_part(dynamic: str, device: str) -> None:
  def application(x: Any, y: Any, z: Any, w: Any) -> None:
    y = tl.associative_scan(x, 1, lambda a, b: a if a > b else b, reverse=True)
    z = tl.reduce(x * 2, 1, lambda a, b: a * b, keep_dims=True)
    w = tl.reduce(x, None, lambda a, b: a if a > b else b, keep_dims=True)
  kernel = tile.make(
    lambda x, y, z, w: (x.tile((3, 4)), y.tile((3, 4)), z.tile((3, 1)), w.tile((1, 1))), application, (Tensor(2),) * 4)
  with config(dynamic=dynamic):
    for rows, columns in ((7, 10), (6, 8), (8, 6)):
      x = -RNG.random((rows, columns)).astype(np.float32) - 1
      across, down = -(-columns // 4), -(-rows // 3)
      y, z, w = np.zeros_like(x), np.zeros((rows, across), np.float32), np.zeros((down, across), np.float32)
      kernel(x, y, z, w)
      for j in range(across):
        part = x[:, 4 * j:4 * j + 4]
        np.testing.assert_array_equal(y[:, 4 * j:4 * j + 4], np.maximum.accumulate(part[:, ::-1], 1)[:, ::-1])
        np.testing.assert_allclose(z[:, j], (part * 2).prod(1), rtol=1e-5)
        assert [w[i, j] for i in range(down)] == [part[3 * i:3 * i + 3].max() for i in range(down)]


def test_what_is_read_outside_takes_part_where_it_is_said(device: str) -> None:
  """The tensor's ``other``, what a load was given, and what is chosen there."""
  def application(x: Any, y: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    a = tl.reduce(x, 0, lambda p, q: p + q, keep_dims=True)
    b = tl.reduce(tl.load(y.source[y.offsets(0)], other=2.0), 0, lambda p, q: p + q, keep_dims=True)
    c = tl.reduce(tl.where(y.offsets(0) < 10, y, 3.0), 0, lambda p, q: p + q, keep_dims=True)
    d = tl.reduce(x + y, 0, lambda p, q: p + q, keep_dims=True)
  kernel = tile.make(lambda x, *xs: (x.tile((4,)), xs[0].tile((4,)), *(t.tile((1,)) for t in xs[1:])), application,
                     (Tensor(1, other=1.0), *(Tensor(1),) * 5))
  x = np.arange(10, dtype=np.float32)
  out = [np.zeros(3, np.float32) for _ in range(4)]
  kernel(x, x, *out)
  for got, last in zip(out, (17 + 2, 17 + 4, 17 + 6, 34)): assert got[2] == last
  assert out[0][0] == 6 and out[3][1] == 44


@long_where(lambda dynamic, device: (dynamic == "always") is not (device == "CPU"))
@pytest.mark.parametrize("dynamic", ["never", "always"])
def test_a_state_that_a_loop_carries(dynamic: str, device: str) -> None:
  """A recurrence over rows of any length, tile by tile: what a tile ends with goes into the next."""
  def application(a: Any, x: Any, y: Any) -> None:
    h = tl.zeros((2,))
    for k in range(x.shape[0]):
      decay, inner = tl.associative_scan((a[k], x[k]), 1, recurrence)
      y[k] = inner + decay * h[:, None]
      h = tl.reduce((a[k], x[k]), 1, recurrence)[1] + tl.reduce(a[k], 1, lambda p, q: p * q) * h
  def rows(*xs: Any) -> Any:
    out = [x.tile((2, 8)).tile((1, -1)) for x in xs]
    for x in out: x.dtype = x.dtype.squeeze(0)
    return tuple(out)
  kernel = tile.make(rows, application, (Tensor(2),) * 3)
  with config(dynamic=dynamic):
    for n in (21, 40):
      a, x = RNG.random((3, n)).astype(np.float32), RNG.standard_normal((3, n)).astype(np.float32)
      y = np.zeros_like(x)
      kernel(a, x, y)
      np.testing.assert_allclose(y, combined(recurrence, (a, x), 1)[1], rtol=1e-4, atol=1e-5)


def test_a_kernel_as_text() -> None:
  """What the disk cache finds it by, in this process and another; and what people read."""
  def application(x: Any, y: Any, n: Any) -> None:
    y = tl.associative_scan((x, x), 1, recurrence)[1]
    tl.store(n.source[0], tl.atomic_add(n.source[1], tl.reduce(x, None, lambda a, b: a * b)))
  kernel = tile.make(lambda x, y, n: (x.tile((2, -1)), y.tile((2, -1)), n.tile((-1,)).expand((2,)).unsqueeze(1)), application,
                     (Tensor(2), Tensor(2), Tensor(1)))
  found = kernel.specialise(((4, 6), "float32"), ((4, 6), "float32"), ((2,), "float32"))
  made = found.kernel
  assert all("recurrence(" not in line for line in found.lines) and "y = tl.associative_scan(" in found.lines[0]
  assert structure_text(made) == structure_text(pickle.loads(pickle.dumps(made)))
  text = str(made)
  assert "_, v7 = all of (v0, v1) ⊕ (v2, v3) = (v0 * v2, v1 * v2 + v3) along 1 of v4, v5" in text
  assert "v11 = the last of (v8) ⊕ (v9) = (v8 * v9) along 0 of v10" in text and "v12 = atomic add data2[1], v11" in text


def test_under_a_condition(device: str) -> None:
  def application(x: Any, y: Any) -> None:
    if tl.sum(x) > 0: y = tl.associative_scan(x, 0, lambda a, b: a * b)
    else: y = x
  kernel = tile.make(lambda *xs: tuple(x.tile((3,)) for x in xs), application, (Tensor(1),) * 2)
  x, y = np.array([1, 2, 3, -1, -2, -3], np.float32), np.zeros(6, np.float32)
  kernel(x, y)
  assert y.tolist() == [1, 2, 6, -1, -2, -3]


def test_a_function_is_read_anew_where_what_it_reads_has_changed() -> None:
  def application(x: Any, y: Any) -> None: y = tl.reduce(x, 0, watched, keep_dims=True)
  kernel = tile.make(lambda x, y: (x.tile((4,)), y.tile((1,))), application, (Tensor(1),) * 2)
  x, y = np.array([1, 2, 3, 4], np.float32), np.zeros(1, np.float32)
  global FACTOR
  for FACTOR in (1.0, 2.0):
    kernel(x, y)
    assert y[0] == 1 * FACTOR ** 3 + 2 * FACTOR ** 2 + 3 * FACTOR + 4


FACTOR = 1.0
def watched(a: Any, b: Any) -> Any: return a * FACTOR + b


# ---- refusals: the sentence, the line, a caret

def too_few(x: Any) -> Any: return tl.reduce((x, x), 0, lambda a, b: a)
def wrong_count(x: Any) -> Any: return tl.reduce((x, x), 0, lambda a, b, c, d: (a, b, c))
def no_tuple(x: Any) -> Any: return tl.reduce((x, x), 0, lambda a, b, c, d: a + c)
def gives_nothing(x: Any) -> Any:
  def nothing(a: Any, b: Any) -> None: pass
  return tl.reduce(x, 0, nothing)
def other_dtype(x: Any) -> Any: return tl.associative_scan(x > 0, 0, lambda a, b: a + b)
def no_element(x: Any) -> Any: return tl.reduce(x, 0, lambda a, b: a + b + tl.arange(0, 3))
def outside(x: Any) -> Any:
  total = tl.sum(x)
  return tl.reduce(x, 0, lambda a, b: a + b * total)
def loops(x: Any) -> Any:
  def gcd(a: Any, b: Any) -> Any:
    while b > 0: a, b = b, a - b
    return a
  return tl.reduce(x, 0, gcd)
def no_axis(x: Any) -> Any: return tl.associative_scan(x, 2, lambda a, b: a)
def all_of_a_scan(x: Any) -> Any: return tl.associative_scan(x, None, lambda a, b: a)   # type: ignore[arg-type]
def unlike_shapes(x: Any) -> Any: return tl.reduce((x, tl.arange(0, 3)), 0, greatest)
def no_blocks(x: Any) -> Any: return tl.reduce((), 0, greatest)
def no_function(x: Any) -> Any: return tl.reduce(x, 0, 3)
def bad_batch(x: Any) -> Any: return tl.dot(x[None], tl.zeros((2, 7, 5)))
def mixed_batch(x: Any) -> Any: return tl.dot(x[None], tl.zeros((7, 5)))


REFUSALS: dict[Callable[..., Any], str] = {
  too_few: "too many positional arguments", wrong_count: "gives 3 values in a tuple; of a tuple of 2 it takes 4 values",
  no_tuple: "gives one value; of a tuple of 2", gives_nothing: r"nothing gives nothing; of 1 it takes 2 values and gives one",
  other_dtype: "gives dtypes.int for an element of dtypes.bool; convert one with .to",
  no_element: r"gives a block of shape \(3,\) for one element",
  outside: "neither an argument of it nor a number that is known", loops: r"gcd stores, prints, or has a loop",
  no_axis: "associative_scan: axis 2; the block has 2 dimensions", all_of_a_scan: "associative_scan: axis None",
  unlike_shapes: r"reduce: blocks of shapes \(5, 7\) and \(3,\)", no_blocks: "reduce: a block, or a tuple of some",
  no_function: "'int' object is not callable",
  bad_batch: r"dot: blocks of shapes \(1, 5, 7\) and \(2, 7, 5\); it takes \(m, k\) and \(k, n\), or \(b, m, k\)",
  mixed_batch: r"dot: blocks of shapes \(1, 5, 7\) and \(7, 5\)",
}


@pytest.mark.parametrize("fn", REFUSALS, ids=lambda f: f.__name__)
def test_refusals(fn: Callable[..., Any]) -> None:
  with pytest.raises(NtgradError, match=REFUSALS[fn]) as e: tile.apply(fn, X)
  text = str(e.value)
  assert f"{__file__}:" in text and "^" in text and f"in {fn.__name__}" in text


# ---- atomic operations give what was there

def spread(values: Any, *results: Any) -> Any:
  values = values.tile((4,))
  return values, *(x.tile((-1,)).expand(values.shape) for x in results)


def made(application: Callable[..., None], count: int, **options: Any) -> Any:
  return tile.make(spread, application, (Tensor(1, **options), *(Tensor(1),) * count))


@long_where(lambda dtype: dtype not in ("int32", "int64"))
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "int8", "uint16", "float32", "float16"])
def test_each_gets_a_ticket(dtype: str, device: str) -> None:
  if device in ("TRITON", "CUDA") and np.dtype(dtype).itemsize < 4: pytest.skip("CUDA has none of these")
  def application(values: Any, mine: Any, counts: Any) -> None:
    old = tl.atomic_add(counts.source[values], 1, mask=values >= 0)
    tl.store(mine.source[values.offsets(0)], old + 1)
  values = RNG.integers(0, 3, 22).astype(np.int32)
  mine, counts = np.zeros(22, dtype), np.zeros(3, dtype)
  made(application, 2, other=-1)(values, mine, counts)
  for v in range(3):
    assert counts[v] == (values == v).sum() and sorted(mine[values == v].tolist()) == [*range(1, int(counts[v]) + 1)]


OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[[Any, int], Any]]] = {
  "add": (tl.atomic_add, lambda old, v: old + v), "max": (tl.atomic_max, max), "min": (tl.atomic_min, min),
  "xchg": (tl.atomic_xchg, lambda old, v: v), "and": (tl.atomic_and, lambda old, v: old & v),
  "or": (tl.atomic_or, lambda old, v: old | v), "xor": (tl.atomic_xor, lambda old, v: old ^ v)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str, device: str) -> None:
  """One program, an element each, of a tile and of places: what was there, and what comes of it; 0 where there is no element."""
  fn, means = OPERATIONS[name]
  def application(values: Any, old: Any, held: Any) -> None: old = fn(held, values, mask=values != 5)
  kernel = tile.make(lambda *xs: tuple(x.tile((4,)) for x in xs), application, (Tensor(1),) * 3)
  values, held, old = np.array([3, 5, -2, 12, 6, 7], np.int32), np.arange(1, 7, dtype=np.int32), np.full(6, 9, np.int32)
  kernel(values, old, was := held.copy())
  assert old.tolist() == [1, 0, 3, 4, 5, 6]
  assert was.tolist() == [h if v == 5 else means(h, v) for h, v in zip(held.tolist(), values.tolist())]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_compare_and_swap(dtype: str, device: str) -> None:
  def application(values: Any, old: Any, held: Any) -> None:
    at = values.offsets(0)
    tl.store(old.source[at], tl.atomic_cas(held.source[at], values, 40 + at, mask=at != 2))
  values, held, old = np.array([1, 7, 3, 4, 5], np.int32), np.arange(1, 6).astype(dtype), np.full(5, 9, dtype)
  made(application, 2)(values, old, held)
  assert held.tolist() == [40, 2, 3, 43, 44] and old.tolist() == [1, 2, 0, 4, 5]


def test_a_lock_around_what_is_no_single_operation(device: str) -> None:
  def application(values: Any, total: Any, lock: Any, rounds: Any) -> None:
    tried = 0
    while tl.atomic_cas(lock.source[0], 0, 1) != 0: tried += 1
    tl.store(total.source[0], tl.load(total.source[0]) * 2 + tl.sum(values))
    tl.atomic_xchg(lock.source[0], 0)
    tl.atomic_add(rounds.source[0], tried * 0 + 1)
  total, lock, rounds = (np.zeros(1, np.int32) for _ in range(3))
  made(application, 3)(np.ones(40, np.int32), total, lock, rounds)
  assert (total[0], lock[0], rounds[0]) == (4 * (2 ** 10 - 1), 0, 10)


def test_the_last_program_adds_up(device: str) -> None:
  """A ticket says which program comes last: what all others wrote is there then."""
  def application(values: Any, parts: Any, done: Any, total: Any) -> None:
    tl.store(parts.source[tl.program_id(0)], tl.sum(values))
    if tl.atomic_add(done.source[0], 1) == tl.num_programs(0) - 1: tl.store(total.source[0], tl.sum(parts))
  parts, done, total = np.zeros(6, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
  made(application, 3)(np.arange(22, dtype=np.int32), parts, done, total)
  assert total[0] == sum(range(22)) and done[0] == 6


def test_once_for_each_element_of_a_block_at_one_place(device: str) -> None:
  def application(values: Any, count: Any) -> None: tl.atomic_add(count.source[0], tl.ones((4,), tl.int32))
  count = np.zeros(1, np.int32)
  made(application, 1)(np.zeros(8, np.int32), count)
  assert count[0] == 8


def test_in_loops_and_beside_what_is_read(device: str) -> None:
  def application(values: Any, out: Any, held: Any) -> None:
    before = held + 0                                   # what was there
    found = tl.zeros((4,), tl.int32)
    for k in range(3): found += tl.atomic_add(held, values + k)
    out = found * 100 + before
  kernel = tile.make(lambda *xs: tuple(x.tile((4,)) for x in xs), application, (Tensor(1),) * 3)
  values, held, out = np.array([1, 2, 3, 4, 5, 6], np.int32), np.arange(6, dtype=np.int32), np.zeros(6, np.int32)
  kernel(values, out, held)
  np.testing.assert_array_equal(held, np.arange(6) + 3 * values + 3)
  np.testing.assert_array_equal(out, 100 * (3 * np.arange(6) + 3 * values + 1) + np.arange(6))


@pytest.mark.parametrize("dynamic", ["never", "always"])
def test_sizes_known_at_the_launch(dynamic: str, device: str) -> None:
  def application(values: Any, mine: Any, count: Any) -> None:
    tl.store(mine.source[values.offsets(0)], tl.atomic_add(count.source[values * 0], 1, mask=values > 0))
  kernel = made(application, 2)
  with config(dynamic=dynamic):
    for n in (9, 14, 30):
      mine, count = np.zeros(n, np.int32), np.zeros(1, np.int32)
      kernel(np.ones(n, np.int32), mine, count)
      assert sorted(mine.tolist()) == [*range(n)] and count[0] == n


@plain_c.needs_cc
def test_in_c() -> None:
  def application(values: Any, old: Any, held: Any) -> None:
    at = values.offsets(0)
    a = tl.atomic_cas(held.source[at], values, 40 + at, mask=at != 2)
    tl.store(old.source[at], a + tl.atomic_xchg(held.source[at], 5, mask=at == 4) + tl.atomic_or(held.source[0], 1))
  with config(dev=plain_c.NAME):
    values, held, old = np.array([1, 7, 3, 4, 5], np.int32), np.arange(1, 6, dtype=np.int32), np.full(5, 9, np.int32)
    made(application, 2)(values, old, held)
    assert held.tolist() == [41, 2, 3, 43, 5] and old.tolist() == [41, 42, 40, 44, 90]


def either(x: Any, y: Any) -> None: y = tl.atomic_add(x.source[0], 1) if tl.sum(x) > 0 else 0
def perhaps(x: Any, y: Any) -> None:
  if tl.sum(x) > 0 and tl.atomic_add(x.source[0], 1) > 0: y = 1
def twice(x: Any, y: Any) -> None: y.source[tl.atomic_add(x.source[0], 1).to(tl.int32)] += 1
def within(x: Any, y: Any) -> None:
  def counting(a: Any, b: Any) -> Any: return tl.atomic_add(x.source[0], 1) + b
  y = tl.reduce(x, 0, counting, keep_dims=True)
def bits_of_floats(x: Any, y: Any) -> None: tl.atomic_or(y.source[0], 1)
def compared_floats(x: Any, y: Any) -> None: y = tl.atomic_cas(y, 0, 1)
def no_place(x: Any, y: Any) -> None: y = tl.atomic_xchg(x + 1, 2)


ATOMIC_REFUSALS: dict[Callable[..., Any], str] = {
  either: "this expression is computed either way; put it under an `if`",
  perhaps: "this expression is computed either way", twice: "in a place that is found twice",
  within: r"counting stores, prints, or has a loop", bits_of_floats: "atomic_or: elements that are ints, got dtypes.float",
  compared_floats: "atomic_cas: elements that are ints", no_place: "atomic_xchg: a place in a tensor"}


@pytest.mark.parametrize("fn", ATOMIC_REFUSALS, ids=lambda f: f.__name__)
def test_refusals_of_atomics(fn: Callable[..., Any]) -> None:
  kernel = tile.make(lambda x, y: (x.tile((4,)), y.tile((1,))), fn, (Tensor(1),) * 2)
  with pytest.raises(NtgradError, match=ATOMIC_REFUSALS[fn]) as e: kernel(np.ones(4, np.float32), np.zeros(1, np.float32))
  text = str(e.value)
  assert f"{__file__}:" in text and "^" in text and f"in {fn.__name__}" in text


# ---- products of batches

@long_where(lambda dtype, device: dtype != "float32" or device == "NUMPY")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64"])
def test_products_of_batches(dtype: str, device: str) -> None:
  def application(a: Any, b: Any, c: Any) -> None: c = tl.dot(a, b, acc=c)
  kernel = tile.make(lambda *xs: tuple(x.tile((3, -1, -1)) for x in xs), application, (Tensor(3),) * 3)
  total = {"int8": "int32", "float64": "float64"}.get(dtype, "float32")
  for m, k, n in ((17, 20, 18), (3, 5, 2)):
    a, b = (RNG.integers(-5, 5, s).astype(dtype) for s in ((4, m, k), (4, k, n)))
    c = np.ones((4, m, n), total)
    kernel(a, b, c)
    np.testing.assert_array_equal(c, a.astype(total) @ b.astype(total) + 1)


def test_products_of_batches_in_other_orders(device: str) -> None:
  def application(a: Any, b: Any, c: Any) -> None: c = tl.trans(tl.exp(a) @ tl.trans(b, 0, 2, 1), 1, 0, 2)
  kernel = tile.make(lambda *xs: tuple(x.tile((-1, -1, -1)) for x in xs), application, (Tensor(3),) * 3)
  a, b = RNG.standard_normal((4, 17, 20)).astype(np.float32), RNG.standard_normal((4, 18, 20)).astype(np.float32)
  c = np.zeros((17, 4, 18), np.float32)
  kernel(a, b, c)
  np.testing.assert_allclose(c, np.einsum("bmk,bnk->mbn", np.exp(a), b), rtol=1e-4, atol=1e-3)


@long_where(lambda dynamic, device: dynamic == "always" or device != "TRITON")
@pytest.mark.parametrize("dynamic", ["never", "always"])
def test_attention_of_several_heads_at_once(dynamic: str, device: str) -> None:
  """Heads as the batch, keys tile by tile, a length that is no multiple of a tile."""
  def application(q: Any, k: Any, v: Any, o: Any) -> None:
    total, norm = tl.zeros(q.shape), tl.zeros((q.shape[0], q.shape[1], 1))
    for j in range(k.shape[0]):
      weights = tl.exp(tl.dot(q, tl.trans(k[j])))
      weights = tl.where(k[j].offsets(1)[None, None, :] < k.source.shape[1], weights, 0.0)
      norm += tl.sum(weights, 2, keep_dims=True)
      total += tl.dot(weights, v[j])
    o = total / norm
  def arrangement(q: Any, k: Any, v: Any, o: Any) -> Any:
    q, o = (x.tile((2, 16, -1)) for x in (q, o))
    def keys(x: Any) -> Any:
      x = x.tile((2, 16, -1)).tile((1, -1, -1)).expand((-1, q.shape[1], -1))
      x.dtype = x.dtype.squeeze((0, 2))
      return x
    return q, keys(k), keys(v), o
  kernel = tile.make(arrangement, application, (Tensor(3),) * 4)
  with config(dynamic=dynamic):
    for n in (21, 40):
      q, k, v = (RNG.standard_normal((2, n, 16)).astype(np.float32) / 4 for _ in range(3))
      o = np.zeros_like(q)
      kernel(q, k, v, o)
      w = np.exp(q @ k.transpose(0, 2, 1))
      np.testing.assert_allclose(o, w @ v / w.sum(2, keepdims=True), rtol=1e-4, atol=1e-5)


# ---- compiled for a GPU that is not there

def every_fold(a: Any, x: Any, y: Any, z: Any, w: Any) -> None:
  y = tl.associative_scan((a, x), 1, recurrence, reverse=True)[1]
  z = tl.reduce((x, tl.arange(0, x.shape[1])), 1, greatest, keep_dims=True)[1]
  w = tl.reduce(x > 0, 1, lambda p, q: p & ~q, keep_dims=True)


def every_atomic(values: Any, old: Any, held: Any) -> None:
  at = values.offsets(0)
  got = tl.atomic_cas(held.source[at], values, at, mask=at > 1) + tl.atomic_xchg(held.source[at], values)
  got += tl.atomic_and(held.source[at], values) + tl.atomic_or(held.source[0], at) + tl.atomic_xor(held.source[1], 1)
  tl.store(old.source[at], got + tl.atomic_add(held.source[at], 1) + tl.atomic_max(held.source[at], 1))


def batch(a: Any, b: Any, c: Any) -> None: c = tl.dot(a, b)


@needs_triton
@long
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8", "uint8", "int64"])
def test_compiled_scans(dtype: str) -> None:
  def arrangement(a: Any, x: Any, y: Any, z: Any, w: Any) -> Any:
    return *(t.tile((3, -1)) for t in (a, x, y)), z.tile((3, 1)), w.tile((3, 1))
  kernel = tile.make(arrangement, every_fold, (Tensor(2),) * 5)
  text = compiled(kernel, *[((7, 20), dtype)] * 3, ((7, 1), "int32"), ((7, 1), "bool"))
  assert text.count("tl.associative_scan(") == 3 and "reverse=True" in text


@needs_triton
@long_where(lambda dtype: dtype != "int32")
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
def test_compiled_atomics(dtype: str) -> None:
  text = compiled(made(every_atomic, 2), ((10,), "int32"), ((10,), dtype), ((10,), dtype))
  assert all(f"tl.atomic_{name}(" in text for name in (*OPERATIONS, "cas") if name != "min")


@needs_triton
@long_where(lambda dtype: dtype != "float16")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8"])
def test_compiled_batches(dtype: str) -> None:
  kernel = tile.make(lambda *xs: tuple(x.tile((3, -1, -1)) for x in xs), batch, (Tensor(3),) * 3)
  total = {"int8": "int32", "float64": "float64"}.get(dtype, "float32")
  text = compiled(kernel, ((4, 17, 40), dtype), ((4, 40, 18), dtype), ((4, 17, 18), total))
  assert text.count("tl.dot(") == 1 and "tl.sum(" not in text


def compiled(kernel: Any, *args: Any) -> str:
  """The source, which Triton's compiler takes for an H100."""
  from types import SimpleNamespace

  from ntgrad.backends.cuda import compiler
  from ntgrad.backends.cuda.renderer import TritonRenderer
  spec = kernel.specialise(*args).spec(SimpleNamespace(renderer=TritonRenderer(capability=90), name="sm_90"))
  binary = compiler.build(compiler.Request(spec.source, spec.name, "sm_90"))
  assert binary.cubin[:4] == b"\x7fELF"
  return str(spec.source.text).partition("import triton")[2]   # behind the notes
