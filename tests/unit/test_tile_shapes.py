"""Tile kernels at one shape after another, by numbers and by run-time sizes: what they write over while they still need it, and
everything else that an application does with its tiles."""
from __future__ import annotations

# ruff: noqa: F841 (assigning a parameter stores)
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.config import config
from ntgrad.tile import Tensor
from support.marks import long_half, long_where
from support.plain_c import NAME as C, needs_cc
from support.triton import needs_triton

f32 = np.float32
ROWS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {}   # a program has a row; with what numpy makes of all rows


def row(want: Callable[..., Any]) -> Callable[..., Any]:
  def given(fn: Callable[..., None]) -> Callable[..., None]:
    ROWS[fn.__name__] = fn, want
    return fn
  return given


def halves(x: Any) -> tuple[Any, Any]: return x[:, :x.shape[1] // 2], x[:, x.shape[1] // 2:]
def running(x: Any) -> Any: return np.cumsum(x, 1)


# ---- in place, in another order

@row(lambda x: x[:, ::-1])
def flipped(x: Any) -> None: x = tl.flip(x, 0)

@row(lambda x: x + x[:, ::-1])
def added_to_its_flip(x: Any) -> None: x += tl.flip(x, 0)

@row(lambda x: np.roll(x, 1, 1))
def rolled(x: Any) -> None: x = x[(tl.arange(0, x.shape[0]) + (x.shape[0] - 1)) % x.shape[0]]

@row(lambda x: np.roll(x, 1, 1))
def rolled_by_places(x: Any) -> None:
  at = (x.offsets(1) + (x.source.shape[1] - 1)) % x.source.shape[1]
  x = x.source[tl.program_id(0), at]

@row(lambda x: np.sort(x, 1))
def sorted_in_place(x: Any) -> None: x = tl.sort(x)

@row(lambda x: np.sort(x, 1)[:, ::-1])
def sorted_and_flipped(x: Any) -> None: x = tl.flip(tl.sort(x), 0)

@row(lambda x: running(x))
def summed_up(x: Any) -> None: x = tl.cumsum(x, 0)

@row(lambda x: running(x[:, ::-1]) + x)
def summed_up_from_the_end(x: Any) -> None: x += tl.cumsum(tl.flip(x, 0), 0)

@row(lambda x: x - x[:, :1])
def without_the_first(x: Any) -> None: x -= x[0]

@row(lambda x: x / x.sum(1, keepdims=True))
def normalised(x: Any) -> None: x = x / tl.sum(x)

@row(lambda x: x[:, ::-1] - x.max(1, keepdims=True))
def flipped_beside_a_sum(x: Any) -> None: x = tl.flip(x, 0) - tl.max(x)

@row(lambda x: np.where(np.arange(x.shape[1]) % 2 == 0, x[:, ::-1], x))
def flipped_in_part(x: Any) -> None: x = tl.where(tl.arange(0, x.shape[0]) % 2 == 0, tl.flip(x, 0), x)

@row(lambda x: x[:, ::-1] * 8)
def flipped_in_a_loop(x: Any) -> None:
  for _ in range(3): x = 2.0 * tl.flip(x, 0)

@row(lambda x: np.where(x.sum(1, keepdims=True) > 0, x[:, ::-1], x))
def flipped_on_a_condition(x: Any) -> None:
  if tl.sum(x) > 0: x = tl.flip(x, 0)

@row(lambda x, y: (y[:, ::-1], x[:, ::-1]))
def swapped_and_flipped(x: Any, y: Any) -> None: x, y = tl.flip(y, 0), tl.flip(x, 0)

@row(lambda x, y: (x[:, ::-1], x[:, ::-1] + y))
def read_after_it_was_flipped(x: Any, y: Any) -> None:
  x = tl.flip(x, 0)
  y += x

@row(lambda x, y: (x[:, ::-1], x + y))
def read_before_it_was_flipped(x: Any, y: Any) -> None:
  was = x
  x = tl.flip(x, 0)
  y += was

@row(lambda x: x[:, ::-1])
def stored_at_places(x: Any) -> None: x.source[tl.program_id(0), x.source.shape[1] - 1 - x.offsets(1)] = x

@row(lambda x: x[:, ::-1])
def stored_by_a_pointer(x: Any) -> None:
  n = x.source.shape[1]
  tl.store(x.data_ptr() + tl.program_id(0) * n + (n - 1 - tl.arange(0, x.shape[0])), x)

@row(lambda x: np.where(x[:, ::-1] > 0, -1, x))
def masked_by_its_flip(x: Any) -> None:
  tl.store(x.source[tl.program_id(0), x.offsets(1)], -1.0, mask=tl.flip(x, 0) > 0)

@row(lambda x: x[:, ::-1])
def put_in_order(x: Any) -> None: tl.put(x.source.at(tl.program_id(0), x.offsets(1)), tl.flip(x, 0), axis=0)

# ---- several that are written, each once for each element

@row(lambda x, y, z: (z, x[:, ::-1], z))
def read_flipped_and_written(x: Any, y: Any, z: Any) -> None:
  y = tl.flip(x, 0)
  x = z

@row(lambda x, y, z: (x, x + 1, z * 2))
def doubled_beside_another(x: Any, y: Any, z: Any) -> None:
  y = x + 1
  z = z * 2

@row(lambda x, y, z: (x, x + 1, z - x))
def less_beside_more(x: Any, y: Any, z: Any) -> None:
  y = x + 1
  z = z - x

@row(lambda x, y, z: (x, z + 1, 0 * z + 5))
def read_and_filled(x: Any, y: Any, z: Any) -> None:
  y = z + 1
  z = 5.0

@row(lambda x, y, z: (z, 0 * y + x.sum(1, keepdims=True), z))
def summed_and_written(x: Any, y: Any, z: Any) -> None:
  y = tl.sum(x)
  x = z

@row(lambda x, y, z: (y, y, z + x.sum(1, keepdims=True)))
def a_sum_added_and_written(x: Any, y: Any, z: Any) -> None:
  z += tl.sum(x)
  x = y

# ---- the rest

@row(lambda x, y: (x, x * 2 + y))
def plain(x: Any, y: Any) -> None: y += x * 2

@row(lambda x, y: (x, np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)))
def softmax(x: Any, y: Any) -> None: y = tl.softmax(x)

@row(lambda x, y: (x, running(x) - x))
def scan_beside_a_load(x: Any, y: Any) -> None: y = tl.cumsum(x, 0) - x

@row(lambda x, y: (x, np.broadcast_to((x * (1 + np.arange(x.shape[1]))).sum(1, keepdims=True), x.shape)))
def counted(x: Any, y: Any) -> None:
  total = 0.0
  for i in range(x.shape[0]): total += x[i] * (i + 1)
  y = total

@row(lambda x, y: (x, x + y.sum(1, keepdims=True) - y))
def several_sums(x: Any, y: Any) -> None:
  kept = tl.sum(y)
  y = x + kept - y

@row(lambda x, y: (x, np.where(x > 0, x.sum(1, keepdims=True), y[:, ::-1])))
def chosen(x: Any, y: Any) -> None: y = tl.where(x > 0, tl.sum(x), tl.flip(y, 0))

@row(lambda x, y: (x, (x[:, :, None] * x[:, None]).sum(1) + y))
def products(x: Any, y: Any) -> None: y += tl.sum(x[:, None] * x[None, :], 0)

@row(lambda x, y: (x, (x[:, None] < x[:, :, None]).sum(2) * 1.0))
def ranks(x: Any, y: Any) -> None: y = tl.sum((x[None, :] < x[:, None]).to(tl.int32), 1)

@row(lambda x, y: (x, x * (x.shape[1] % 3)))
def a_loop_of_a_few_rounds(x: Any, y: Any) -> None:
  s = x * 0
  for _ in range(x.shape[0] % 3): s += x
  y = s

@row(lambda x, y: (x, x * np.minimum(np.arange(len(x)), 1)[:, None]))
def a_loop_of_no_or_one_round(x: Any, y: Any) -> None:
  s = x * 0
  for _ in range(tl.minimum(tl.program_id(0), 1)): s += x
  y = s

@row(lambda x, y: (x, np.sort(x, 1)[:, ::-1] + y))
def sorted_into_another(x: Any, y: Any) -> None: y += tl.sort(x, descending=True)


def by_rows(*xs: Any) -> Any:
  out = []
  for x in xs:
    x = x.tile((1, -1)).squeeze(1)
    x.dtype = x.dtype.squeeze(0)
    out.append(x)
  return tuple(out)


def compare(kernel: Any, want: Callable[..., Any], count: int, shapes: Any, device: str, dynamic: str) -> None:
  for seed, shape in enumerate(shapes):
    r = np.random.default_rng(seed)
    given = [(r.integers(-8, 9, shape) + 0.5).astype(f32) for _ in range(count)]   # no sum is 0, all are exact
    expected = want(*given)
    got = [x.copy() for x in given]
    with config(dev=device, dynamic=dynamic): kernel(*got)
    for a, b in zip(got, expected if count > 1 else (expected,)):
      np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6, err_msg=f"{shape} on {device}, DYNAMIC={dynamic}")


SHAPES = [(3, 16), (3, 20), (3, 33), (2, 7), (1, 1)]
ON = [("NUMPY", "auto"), ("NUMPY", "always"), ("CPU", "auto"), pytest.param("TRITON", "always", marks=needs_triton),
      pytest.param(C, "auto", marks=needs_cc)]


@long_where(lambda device, dynamic: dynamic == "auto" and device != "NUMPY")
@pytest.mark.parametrize("device, dynamic", ON)
@pytest.mark.parametrize("name", long_half(ROWS))
def test_a_row_a_program(name: str, device: str, dynamic: str) -> None:
  fn, want = ROWS[name]
  count = fn.__code__.co_argcount
  kernel = tile.make(by_rows, fn, (Tensor(2),) * count)
  compare(kernel, want, count, SHAPES if device == "NUMPY" else SHAPES[:2], device, dynamic)


# ---- whole matrices

WHOLE: list[tuple[Callable[..., None], Callable[..., Any]]] = []


def matrix(want: Callable[..., Any]) -> Callable[..., Any]:
  def given(fn: Callable[..., None]) -> Callable[..., None]:
    WHOLE.append((fn, want))
    return fn
  return given


@matrix(lambda x: x.T)
def transposed(x: Any) -> None: x = tl.trans(x)

@matrix(lambda x: x + x.T)
def symmetric(x: Any) -> None: x += tl.trans(x)

@matrix(lambda x: x[::-1, ::-1])
def turned(x: Any) -> None: x = tl.flip(tl.flip(x, 0), 1)

@matrix(lambda x: x @ x)
def squared(x: Any) -> None: x = tl.dot(x, x)

@matrix(lambda x: x.T.reshape(x.shape) - x)
def regrouped(x: Any) -> None: x = tl.reshape(tl.trans(x), x.shape) - x

@matrix(lambda x: np.cumsum(x.T, 0))
def running_transposed(x: Any) -> None: x = tl.cumsum(tl.trans(x), 0)


@long_where(lambda device, dynamic: dynamic == "auto" and device != "NUMPY")
@pytest.mark.parametrize("device, dynamic", ON)
@pytest.mark.parametrize("fn, want", WHOLE, ids=lambda f: f.__name__)
def test_a_matrix_in_place(fn: Any, want: Any, device: str, dynamic: str) -> None:
  compare(tile.make(lambda x: (x.tile((-1, -1)),), fn, (Tensor(2),)), want, 1, [(5, 5), (8, 8), (3, 3)], device, dynamic)


def test_an_atomic_sum_of_what_is_added_up() -> None:
  """Its value is kept before: the size of its tile is a number."""
  def application(x: Any, y: Any) -> None: tl.atomic_add(y.source[x.offsets(1)], tl.sum(x, 0))
  kernel = tile.make(lambda x, y: (x.tile((2, -1)).squeeze(1), y), application, (Tensor(2), Tensor(1)))
  for n in (3, 5, 7):
    x, y = np.arange(4 * n, dtype=f32).reshape(4, n), np.zeros(n, f32)
    kernel(x, y)
    np.testing.assert_array_equal(y, x.sum(0))
