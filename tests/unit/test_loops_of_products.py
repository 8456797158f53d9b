"""Loops that multiply blocks, in the tile language and for a GPU: branches for masks, the longest first, early reads."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.backends.cuda.renderer import TritonRenderer
from ntgrad.tile import Tensor
from support import triton

ROWS, COLUMNS, WIDTH = 32, 16, 16


def arrangement(x: Tensor, y: Tensor, o: Tensor) -> Any:
  """A block of rows of x and o a program; all blocks of y."""
  y = y.tile((COLUMNS, -1)).tile((-1, -1)).squeeze(1)
  y.dtype = y.dtype.squeeze(1)
  x, o = (t.tile((ROWS, -1)).squeeze(1) for t in (x, o))
  return x, y.expand(x.shape), o


def upper(x: Any, y: Any, o: Any) -> None:
  total = tl.zeros(o.shape)
  for j in range(tl.cdiv((tl.program_id(0) + 1) * ROWS, COLUMNS)):
    s = tl.dot(x, tl.trans(y[j]))
    s = tl.where(y[j].offsets(0)[None, :] <= x.offsets(0)[:, None], s, 0.0)
    total += tl.dot(s, y[j])
  o = total  # noqa: F841


def window(x: Any, y: Any, o: Any) -> None:
  total = tl.zeros(o.shape)
  for j in range(y.shape[0]):
    s = tl.dot(x, tl.trans(y[j]))
    near = (y[j].offsets(0)[None, :] <= x.offsets(0)[:, None] + 40) & (x.offsets(0)[:, None] - 50 < y[j].offsets(0)[None, :])
    s = tl.where(near, s, 0.0)
    total += tl.dot(s, y[j])
  o = total  # noqa: F841


def documents(x: Any, y: Any, o: Any) -> None:
  total = tl.zeros(o.shape)
  for j in range(y.shape[0]):
    s = tl.dot(x, tl.trans(y[j]))
    s = tl.where(y[j].offsets(0)[None, :] // 48 == x.offsets(0)[:, None] // 48, s, 0.0)
    total += tl.dot(s, y[j])
  o = total  # noqa: F841


def thirds(x: Any, y: Any, o: Any) -> None:
  total = tl.zeros(o.shape)
  for j in range(y.shape[0]):
    s = tl.dot(x, tl.trans(y[j]))
    s = tl.where((x.offsets(0)[:, None] + y[j].offsets(0)[None, :]) % 3 == 0, s, 0.0)
    total += tl.dot(s, y[j])
  o = total  # noqa: F841


def lower(x: Any, y: Any, o: Any) -> None:
  total = tl.zeros(o.shape)
  for j in range(tl.program_id(0) * ROWS // COLUMNS, y.shape[0]):
    s = tl.dot(x, tl.trans(y[j]))
    s = tl.where(y[j].offsets(0)[None, :] >= x.offsets(0)[:, None], s, 0.0)
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


def test_what_every_round_reads_is_read_before() -> None:
  """But not what might not be there: in a loop that may have no round, or ends before it reads."""
  def inside(f: Callable[..., None]) -> bool: return any("tl.load(data0" in line for line in loop_of(f)[1])
  assert not inside(upper) and not inside(window)
  assert inside(few) and inside(until)


def test_two_programs_share_a_core() -> None:
  """Of a loop with several products as few stages as leave room for a second one, if there can be room."""
  def stages(width: int) -> int:
    kernel = tile.make(arrangement, window, (Tensor(2),) * 3)
    shapes = [np.zeros((512, width), np.float32) for _ in range(3)]
    spec = kernel._seen((*shapes,), {}, True).spec(DEVICE)
    return dict(spec.source.options)["num_stages"]
  assert [stages(w) for w in (64, 256, 512)] == [3, 2, 3]


DEVICE: Any = type("Device", (), {"renderer": TritonRenderer(), "name": "triton"})()
