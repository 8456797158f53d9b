"""Loops that multiply blocks, in the tile language and for a GPU: branches for masks, the longest first, early reads."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.backends.cuda.renderer import TritonRenderer
from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import BinaryOps, Ops, UOp, dtypes
from ntgrad.codegen.kernel import substitute
from ntgrad.codegen.passes.masks import _mask
from ntgrad.tile import Tensor
from support import triton

ROWS, COLUMNS, WIDTH = 32, 16, 16


def arrangement(x: Tensor, y: Tensor, o: Tensor) -> Any:
  """A block of rows of x and o a program; all blocks of y."""
  y = y.tile((COLUMNS, -1)).tile((-1, -1)).squeeze(1)
  y.dtype = y.dtype.squeeze(1)
  x, o = (t.tile((ROWS, -1)).squeeze(1) for t in (x, o))
  return x, y.expand(x.shape), o


def masked(seen: Callable[..., Any]) -> Callable[..., None]:
  """Rows of x times those of y, times y again, where a row may see another."""
  def application(x: Any, y: Any, o: Any) -> None:
    total = tl.zeros(o.shape)
    for j in range(y.shape[0]):
      s = tl.where(seen(x.offsets(0)[:, None], y[j].offsets(0)[None, :]), tl.dot(x, tl.trans(y[j])), 0.0)
      total += tl.dot(s, y[j])
    o = total  # noqa: F841
  application.__name__ = seen.__name__
  return application


@masked
def window(i: Any, j: Any) -> Any: return (j <= i + 40) & (i - 50 < j)


@masked
def documents(i: Any, j: Any) -> Any: return j // 48 == i // 48


@masked
def thirds(i: Any, j: Any) -> Any: return (i + j) % 3 == 0


def upper(x: Any, y: Any, o: Any) -> None:
  total = tl.zeros(o.shape)
  for j in range(tl.cdiv((tl.program_id(0) + 1) * ROWS, COLUMNS)):
    s = tl.where(y[j].offsets(0)[None, :] <= x.offsets(0)[:, None], tl.dot(x, tl.trans(y[j])), 0.0)
    total += tl.dot(s, y[j])
  o = total  # noqa: F841


def lower(x: Any, y: Any, o: Any) -> None:
  total = tl.zeros(o.shape)
  for j in range(tl.program_id(0) * ROWS // COLUMNS, y.shape[0]):
    s = tl.where(y[j].offsets(0)[None, :] < x.offsets(0)[:, None], 0.0, tl.dot(x, tl.trans(y[j])))
    total += tl.dot(s, y[j])
  o = total  # noqa: F841


def few(x: Any, y: Any, o: Any) -> None:
  total = tl.zeros(o.shape)
  for j in range(tl.program_id(0)):   # the first program has no round
    total += tl.dot(tl.dot(x, tl.trans(y[j])), y[j])
  o = total  # noqa: F841


def until(x: Any, y: Any, o: Any) -> None:
  total = tl.zeros(o.shape)
  for j in range(y.shape[0]):
    if j == tl.program_id(0): break
    total += tl.dot(tl.dot(x, tl.trans(y[j])), y[j])
  o = total  # noqa: F841


i, j = np.arange(128)[:, None], np.arange(128)
MASKS: dict[Callable[..., None], Any] = {
  upper: j <= i, window: (j <= i + 40) & (i - 50 < j), documents: i // 48 == j // 48, thirds: (i + j) % 3 == 0, lower: j >= i,
  few: j // COLUMNS < i // ROWS, until: j // COLUMNS < i // ROWS}


def arrays(n: int) -> list[np.ndarray[Any, Any]]:
  g = np.random.default_rng(n)
  return [g.standard_normal((n, WIDTH), np.float32) for _ in range(2)] + [np.zeros((n, WIDTH), np.float32)]


def loop_of(application: Callable[..., None], n: int = 128) -> tuple[list[str], list[str]]:
  """The lines of a kernel's source before its loop, and those of the loop."""
  source = tile.make(arrangement, application, (Tensor(2),) * 3).source("triton", *arrays(n)).splitlines()
  begin = next(k for k, line in enumerate(source) if line.startswith("  for ") or line.startswith("  while "))
  return source[:begin], [line for line in source[begin:] if line.startswith("    ")]


@triton.needs_triton
@pytest.mark.parametrize("n", [128, 120])
@pytest.mark.parametrize("application", MASKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("device", ["TRITON", "CPU"])
def test_values(application: Callable[..., None], n: int, device: str) -> None:
  x, y, o = arrays(n)
  args = [ntgrad.Tensor(a, device=device).realize() for a in (x, y, o)]
  tile.make(arrangement, application, (Tensor(2),) * 3)(*args)
  expected = np.where(MASKS[application][:n, :n], x.astype(np.float64) @ y.T, 0) @ y
  assert np.allclose(args[2].numpy(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("application, branches", [
  (upper, True), (window, True), (documents, True), (lower, True), (thirds, False)])
def test_masks_stand_in_branches(application: Callable[..., None], branches: bool) -> None:
  _, loop = loop_of(application)
  masked = [line for line in loop if "tl.where" in line]
  assert masked and any(line.startswith("    if ") for line in loop) is branches
  assert all(line.startswith("      ") is branches for line in masked)


def test_programs_with_the_longest_loops_begin_first() -> None:
  def text(f: Callable[..., None]) -> str:
    source = tile.make(arrangement, f, (Tensor(2),) * 3).source("triton", *arrays(128))
    return source[source.index("for "):].splitlines()[0]
  assert text(upper) == "for i0 in range(0, gidx0*(-2) + 8):"   # of programs with 2, 4, 6 and 8 rounds the last
  assert text(lower) == "for i0 in range(0, gidx0*(-2) + 8):"   # as it is written: fewer rounds in each program
  assert "gidx" not in text(window)


def in_turn(x: Any, y: Any, o: Any, turn: Any) -> None:
  total = tl.zeros(o.shape)
  for j in range(tl.cdiv((tl.program_id(0) + 1) * ROWS, COLUMNS)):
    total += tl.dot(tl.dot(x, tl.trans(y[j])), y[j])
  while tl.atomic_cas(turn.source[0], tl.program_id(0), tl.program_id(0)) != tl.program_id(0): total += 0.0
  o = total  # noqa: F841
  tl.atomic_xchg(turn.source[0], tl.program_id(0) + 1)


def test_programs_that_wait_for_those_before_them_keep_their_order() -> None:
  """Those before may never begin, where those that wait have all cores."""
  def also(x: Tensor, y: Tensor, o: Tensor, turn: Tensor) -> Any:
    given = arrangement(x, y, o)
    return *given, turn.tile((-1,)).expand(given[0].shape)
  source = tile.make(also, in_turn, (*(Tensor(2),) * 3, Tensor(1, dtype="int32"))).source(
    "triton", *arrays(128), np.zeros(1, np.int32))
  assert "range(0, gidx0*2 + 2)" in source


def test_what_every_round_reads_is_read_before() -> None:
  """But not what might not be there: in a loop that may have no round, or ends before it reads."""
  def inside(f: Callable[..., None]) -> bool: return any("tl.load(data0" in line for line in loop_of(f)[1])
  assert not inside(upper) and not inside(window)
  assert inside(few) and inside(until)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_block_is_whole_where_a_mask_leaves_out_nothing_of_it(data: Any) -> None:
  """What is known by the ends of a block is true of each of its elements."""
  draw, axes = data.draw, [ix.rng(n, size) for n, size in enumerate((3, 4, 3, 4))]   # of grid, loop, and two of the block
  def index(parts: list[UOp]) -> UOp:
    return ix.weighted_sum([*((r, draw(st.integers(-5, 5))) for r in parts), (ix.ONE, draw(st.integers(-20, 20)))])
  def less() -> UOp:
    nested = ix.fdiv(index(axes), draw(st.integers(1, 6))) if draw(st.booleans()) else ix.ZERO
    return UOp.alu(BinaryOps.CMPLT, ix.add(index(axes), ix.mul(nested, draw(st.integers(-3, 3)))), ix.ZERO)
  parts, (op, joined) = [less(), less()], draw(st.sampled_from([(BinaryOps.AND, all), (BinaryOps.OR, any)]))
  mask = UOp.alu(op, *parts)
  x, zero = UOp(Ops.CAST, dtypes.float32, (axes[2],)), UOp.const(dtypes.float32, 0)
  kept = draw(st.booleans())
  assume(axes[1] in mask.ranges)
  found = _mask(mask.where(x, zero) if kept else mask.where(zero, x), axes[1], {*axes[2:]})
  assume(found is not None)
  assert found is not None and found[0] is x
  def holds(u: UOp, at: tuple[int, ...]) -> bool:
    return bool(substitute((u,), {r: ix.const(n) for r, n in zip(axes, at)})[0].arg)
  for outer in np.ndindex(3, 4):
    whole = all(holds(c, (*outer, 0, 0)) for c in found[1])   # the same for all of the block
    if whole: assert all(joined(holds(c, (*outer, *inner)) for c in parts) is kept for inner in np.ndindex(3, 4))


def test_two_programs_share_a_core() -> None:
  """Of a loop with several products as few stages as leave room for a second one, if there can be room."""
  def stages(width: int) -> int:
    kernel = tile.make(arrangement, window, (Tensor(2),) * 3)
    shapes = [np.zeros((512, width), np.float32) for _ in range(3)]
    spec = kernel._seen((*shapes,), {}, True).spec(DEVICE)
    return dict(spec.source.options)["num_stages"]
  assert [stages(w) for w in (64, 256, 512)] == [3, 2, 3]


DEVICE: Any = type("Device", (), {"renderer": TritonRenderer(), "name": "triton"})()
