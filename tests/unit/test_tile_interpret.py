"""Names in an application are Python's: each program here is run as a kernel and by Python, and must leave the same in its
parameters."""
from __future__ import annotations

# ruff: noqa: F841 (assigning a parameter stores)
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.uop import Ops
from ntgrad.errors import ApplicationError
from ntgrad.tile import Tensor
from support.marks import long_where
from support.tile_python import check_names

PROGRAMS: list[Callable[..., None]] = []


def program(fn: Callable[..., None]) -> Callable[..., None]:
  PROGRAMS.append(fn)
  return fn


# ---- a name for a tile is a name for what was read

@program
def swap_by_a_third(x: Any, y: Any) -> None:
  t = x
  x = y
  y = t

@program
def swap_by_tuples(x: Any, y: Any) -> None: x, y = y, x

@program
def rotate_nested(x: Any, y: Any, z: Any) -> None: (x, y), z[1] = (z[0], x), y

@program
def chained(x: Any, y: Any) -> None: x = y = x + y

@program
def rebound(x: Any, y: Any) -> None:
  w = x
  w = w * 2
  w += y
  y = w

@program
def seen_after_a_store(x: Any, y: Any) -> None:
  w = x
  v = w + 1
  x = x * 0
  y = w + v

@program
def in_lists(x: Any, y: Any) -> None:
  both = [x, (y, {"sum": x + y})]
  x = both[1][0]
  y = both[0] + both[1][1]["sum"]

@program
def grown_list(x: Any, y: Any) -> None:
  seen = [x]
  same = seen
  seen += [y]
  x = same[1]
  y = seen[0]

@program
def through_functions(x: Any, y: Any) -> None:
  old = x
  def doubled(a: Any, b: Any = old) -> Any:
    a = a * 2
    x = a + b
    return x
  x = doubled(y)
  y = doubled(old) + old

@program
def on_its_way(x: Any, z: Any) -> None:
  def put(row: Any, k: Any) -> Any:
    row[k] = x * 0
    return x
  x = z[0] + put(z, 0) + z[0]


# ---- loops

@program
def carried(x: Any, y: Any) -> None:
  w = x
  for _ in range(3): w = w * 2
  y = w

@program
def kept_over_a_loop(x: Any, y: Any) -> None:
  old = x
  later = x + 0
  for _ in range(3):
    y = y + later
    x = x * 2 + old
  y = y + old

@program
def kept_over_nested_loops(x: Any, y: Any, z: Any) -> None:
  first, sums = z[0], tl.cumsum(x, 0)
  for _ in range(3):
    y = y + first + sums
    for j in range(2):
      z[j] = z[j] + 1
      z[2] = z[0]
      x = x + tl.cumsum(x, 0)

@program
def swapped_in_a_loop(x: Any, y: Any, z: Any) -> None:
  a, b = x, z[0]
  for k in range(3):
    a, b = b, a + b
    x, y = y, x
    z[k] = a
  y = y + b

@program
def shifted(x: Any, z: Any) -> None:
  last = z[0]
  for k in range(3):
    t = z[k]
    z[k] = last
    last = t
  x = last

@program
def rows_by_name(x: Any, z: Any) -> None:
  row = z
  row[0] = row[1]
  z[1], row[2] = row[2], z[1]
  for t in row:
    t = t * 2
    x += t

@program
def another_row_each_round(x: Any, y: Any, z: Any) -> None:
  for k in range(2):
    row = z
    row[k] = x + row[k]

@program
def while_a_name_grows(x: Any, y: Any) -> None:
  w = x
  while tl.max(w) < 100.0: w = w + x
  y = w

@program
def condition_of_many_steps(x: Any, y: Any) -> None:
  n = x * 0
  while tl.max(tl.cumsum(x, 0)) < 100.0:
    x = x * 2
    n += 1
  y = n


# ---- conditions

@program
def kept_over_a_condition(x: Any, y: Any, z: Any) -> None:
  old, sums = x, tl.cumsum(x, 0)
  if tl.sum(x) > 0: x = y
  else: z[0] = old
  y = old + sums + tl.cumsum(x, 0)
  if tl.sum(x) < 0: y = y * 0
  z[1] = old

@program
def chosen(x: Any, y: Any) -> None:
  w = x
  if tl.sum(y) > 0: w = y
  x = x * 0
  y = w

@program
def chosen_within(x: Any, y: Any, z: Any) -> None:
  w = x
  for k in range(3):
    if tl.sum(z[k]) > 900:
      x = w + z[k]
      w = x
    else:
      z[k] = w
      w = w * 2
  y = w

@program
def pairs_are_chosen_by_their_parts(x: Any, y: Any, z: Any) -> None:
  p, unused = (x, [y, 1.0]), z
  if tl.sum(x) > 0:
    p, unused = (y, [x, 2.0]), x
    z[0] = z[0] + 1
  x = p[0]
  y = p[1][0] * p[1][1]

@program
def both_sides_alike(x: Any, z: Any) -> None:
  if tl.sum(x) > 0: row, w = z, x
  else: row, w = z, x
  x = x * 2
  row[0] = w


@long_where(lambda device: device != "NUMPY")
@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_names_are_those_of_python(fn: Callable[..., None], device: str) -> None: check_names(fn, device)


def made(fn: Callable[..., None]) -> tile.TileKernel:
  return tile.make(lambda x, y: (x.tile((4,)), y.tile((4,))), fn, (Tensor(1), Tensor(1)))


def test_places_at_computed_indices_are_read_where_they_stand() -> None:
  def swaps(x: Any, y: Any) -> None:
    x.source[0], x.source[1] = x.source[1], x.source[0]
    t = y.source[0]
    y.source[0] = y.source[3]
    y.source[3] = t
    tl.store(t, 7.0)                       # as a place it is where it was
    y.source[1] = tl.load(t) + t
  x, y = np.arange(4, dtype=np.float32), np.arange(10, 14, dtype=np.float32)
  made(swaps)(x, y)
  assert x.tolist() == [1, 0, 2, 3] and y.tolist() == [7, 17, 12, 10]


def test_a_call_that_stores_does_not_change_what_was_read_before_it() -> None:
  def stores(x: Any, y: Any) -> None:
    old = x + 0
    def clear(place: Any) -> Any:
      if tl.sum(y) > 0: tl.store(place.source[tl.arange(0, 4)], 0.0)
      return 1.0
    y = x + clear(x) + old + x
  x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
  made(stores)(x, y)
  assert x.tolist() == [0, 0, 0, 0] and y.tolist() == [1, 3, 5, 7]


def test_a_name_that_nothing_reads_costs_nothing() -> None:
  def unused(x: Any, y: Any) -> None:
    w = x
    v = x * y
    for _ in range(3): v = v + w
    x = x * 2
    y = y + 1
  got = made(unused).specialise(((4,), "float32"), ((4,), "float32")).kernel
  assert not any(u.op is Ops.DEFINE_LOCAL for u in got.nodes), got


def refuse(fn: Callable[..., None], message: str) -> None:
  with pytest.raises(ApplicationError, match=message):
    tile.make(lambda x, y: (x.tile((4,)).tile((2,)), y.tile((4,)).tile((2,))), fn, (Tensor(1), Tensor(1)))(
      np.zeros(8, np.float32), np.zeros(8, np.float32))


def test_what_a_loop_or_condition_of_the_kernel_cannot_change() -> None:
  def grows(x: Any, y: Any) -> None:
    seen: list[Any] = []
    for k in range(2): seen.append(x[k])
    y[0] = seen[0]
  def element(x: Any, y: Any) -> None:
    seen = {"first": x[0]}
    if tl.sum(x[0]) > 0: seen["first"] = y[0]
    y[0] = seen["first"]
  def level(x: Any, y: Any) -> None:
    row = x
    for k in range(2):
      row[k] = row[k] * 2
      row = y
  def either(x: Any, y: Any) -> None:
    if tl.sum(x[0]) > 0: row = x
    else: row = y
    row[0] = x[1]
  refuse(grows, r"the loop at line \d+, which the kernel runs, changes a list that was made before it.*static_range")
  refuse(element, "an `if` whose condition is known only when the kernel runs changes a dict")
  refuse(level, "'row' has no value here")
  refuse(
    either,
    r"'row' has no value here: the `if` at line \d+ leaves it x or y, as the kernel decides; both must be numbers or blocks",
  )
