"""Entries of a jagged tensor from within an application: how long each is, where its elements are, what lies behind its end."""
from __future__ import annotations

# ruff: noqa: F841 (assigning a parameter stores)
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.config import config
from ntgrad.errors import ApplicationError, ArgumentError, NtgradError, ShapeError
from ntgrad.tile import Tensor
from support.triton import needs_triton

f32 = np.float32
OFFSETS = np.array([0, 2, 2, 9, 10])   # one entry is empty
LENGTHS = np.diff(OFFSETS)
VALUES = np.arange(1, 11, dtype=f32)
PADDED = np.array([[VALUES[a + i] if a + i < b else 0 for i in range(7)] for a, b in zip(OFFSETS, OFFSETS[1:])], f32)
ON = ["NUMPY", "CPU", pytest.param("TRITON", marks=needs_triton)]
Arranged = Any
CASES: list[tuple[Callable[..., None], Callable[..., Any], Any]] = []


def case(arrangement: Callable[..., Any], want: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
  def given(fn: Callable[..., None]) -> Callable[..., None]:
    CASES.append((fn, arrangement, np.asarray(want, f32)))
    return fn
  return given


def row(x: Tensor) -> Arranged:
  x = x.tile((1, -1)).squeeze(1)
  x.dtype = x.dtype.squeeze(0)
  return x


def rows(x: Tensor, y: Tensor) -> Arranged: return row(x), row(y) if y.ndim == 2 else y
def blocks(x: Tensor, y: Tensor) -> Arranged: return x.tile((3, -1)), y.tile((3, -1))


def pairs(x: Tensor, y: Tensor) -> Arranged:
  """Tiles of 2 along the entry."""
  x = x.tile((1, 2)).tile((1, -1)).squeeze(1)
  x.dtype = x.dtype.squeeze(0)
  x.dtype.dtype = x.dtype.dtype.squeeze(0)
  return x, y


def entries(x: Tensor, y: Tensor) -> Arranged:
  """Two entries a program, one after another."""
  x = x.tile((1, -1)).tile((2, 1)).squeeze(1)
  x.dtype = x.dtype.squeeze(1)
  return x, y.tile((1,)).tile((2,))


@case(rows, LENGTHS)
def length(x: Any, y: Any) -> None: y = x.source.shape[1]

@case(rows, np.where(np.arange(7) < LENGTHS[:, None], PADDED, -1))
def masked(x: Any, y: Any) -> None: y = tl.where(x.offsets(1) < x.source.shape[1], x, -1.0)

@case(rows, PADDED.sum(1) / np.maximum(LENGTHS, 1))
def mean(x: Any, y: Any) -> None: y = tl.sum(x) / tl.maximum(x.source.shape[1], 1)

@case(rows, (PADDED * np.arange(1, 8)).sum(1))
def to_the_end(x: Any, y: Any) -> None:
  total = 0.0
  for k in range(x.source.shape[1]): total += x.source[tl.program_id(0), k] * (k + 1)
  y = total

@case(rows, np.where(LENGTHS > 1, PADDED.sum(1), -1))
def condition(x: Any, y: Any) -> None:
  if x.source.shape[1] > 1: y = tl.sum(x)
  else: y = -1.0

@case(pairs, PADDED.sum(1) + 100 * LENGTHS)
def tiles_to_the_end(x: Any, y: Any) -> None:
  n, total = x.source.shape[1], 0.0
  for k in range(tl.cdiv(n, 2)): total += tl.sum(x[k])
  y = total + 100.0 * n

@case(blocks, np.where(np.arange(7) < LENGTHS[:, None], PADDED, -1))
def several_entries_a_tile(x: Any, y: Any) -> None: y = tl.where(x.offsets(1)[None] < x.source.shape[1][:, None], x, -1.0)

@case(entries, PADDED.sum(1) + LENGTHS)
def entries_one_after_another(x: Any, y: Any) -> None:
  for b in range(x.shape[0]): y[b] = tl.sum(x[b]) + x[b].source.shape[1]

@case(lambda x, y: (x, y), PADDED + 100 * LENGTHS[:, None])
def an_element_a_program(x: Any, y: Any) -> None: y = x + 100 * x.source.shape[1]

@case(rows, PADDED.sum(1))
def by_pointers(x: Any, y: Any) -> None: y = tl.sum(tl.load(x.data_ptr() + x.offsets(), mask=x.offsets(1) < x.source.shape[1]))

@case(rows, PADDED[:, 1])
def at_a_place(x: Any, y: Any) -> None: y = x.source[tl.program_id(0), 1]


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("fn, arrangement, want", CASES, ids=lambda c: getattr(c, "__name__", ""))
def test_entries(fn: Any, arrangement: Any, want: Any, device: str) -> None:
  y = np.full(want.shape, -5, f32)
  kernel = tile.make(arrangement, fn, (Tensor(2, jagged_dim=1), Tensor(want.ndim)))
  with config(dev=device): kernel(tile.Jagged(VALUES, OFFSETS), y)
  np.testing.assert_allclose(y, want)


def test_a_later_dimension() -> None:
  """(batch, 2, length): strides are those in memory."""
  values = np.arange(20, dtype=f32).reshape(2, 10)
  def told(x: Any, y: Any) -> None: y = tl.sum(x) + 1000 * x.source.shape[2] + x.stride(1) * 1e5 + x.stride(2) * 1e4
  y = np.zeros((4, 2), f32)
  tile.make(lambda x, y: (x.tile((1, 1, -1)).squeeze(2), y), told, (Tensor(3, jagged_dim=2), Tensor(2)))(
    tile.Jagged(values, OFFSETS, 2), y)
  want = [[values[i, a:b].sum() + 1000 * (b - a) + 10e5 + 1e4 for i in range(2)] for a, b in zip(OFFSETS, OFFSETS[1:])]
  np.testing.assert_allclose(y, want)


def test_writing_at_places_stays_in_the_entry() -> None:
  def application(x: Any, y: Any) -> None:
    x.source[tl.program_id(0), 1] = -1.0
    y = 1.0
  values, y = VALUES.copy(), np.zeros(4, f32)
  tile.make(rows, application, (Tensor(2, jagged_dim=1), Tensor(1)))(tile.Jagged(values, OFFSETS), y)
  assert values.tolist() == [1, -1, 3, -1, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("kind, message, arrangement, fn", [
  (ShapeError, r"x.source.stride\(0\): from one entry of a jagged tensor to the next", rows, lambda x: x.stride(0)),
  (ShapeError, r"source.shape\[1\]: the level \(2,\) has several entries; index it first", entries, lambda x: x.source.shape[1]),
  (ArgumentError, "arange: ends that are known while reading", rows, lambda x: tl.arange(0, x.source.shape[1])),
  (ShapeError, "zeros: a block has the shape", rows, lambda x: tl.zeros((x.source.shape[1],))),
  (ApplicationError, "assert: the condition is known only when the kernel runs", rows, None)])
def test_refused(kind: type[NtgradError], message: str, arrangement: Any, fn: Any) -> None:
  def application(x: Any, y: Any) -> None:
    if fn is None: assert x.source.shape[1] > 0
    else: y = fn(x)
  y = np.zeros(4, f32)
  with pytest.raises(kind, match=message):
    tile.make(arrangement, application, (Tensor(2, jagged_dim=1), Tensor(1)))(tile.Jagged(VALUES, OFFSETS), y)
