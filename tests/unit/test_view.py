"""Views: pulls of random chains of transforms against numpy's own views, and that adjoints are adjoint."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.arrangements import derive
from ntgrad.codegen.index.view import View, strides_of, tile_shape
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import Ops, UOp
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param
from ntgrad.codegen.linearizer import Linearizer
from support.indices import at_points, grid

Spec = tuple[tuple[int, int, int], ...]


def windows(a: np.ndarray, spec: Spec) -> np.ndarray:
  """TILE with numpy."""
  outer = tile_shape(a.shape, spec)[:a.ndim]
  step = a.strides
  return np.lib.stride_tricks.as_strided(a, (*outer, *(s for s, _, _ in spec)), (*(k * s for k, (_, s, _) in zip(step, spec)),
                                         *(k * g for k, (_, _, g) in zip(step, spec))), writeable=False)


def apply(a: np.ndarray, op: Ops, arg: Any) -> np.ndarray:
  """A transform with numpy; -1 is an element that has no source."""
  if op is Ops.RESHAPE: return a.reshape(arg)
  if op is Ops.PERMUTE: return a.transpose(arg)
  if op is Ops.EXPAND: return np.broadcast_to(a, arg)
  if op is Ops.PAD: return np.pad(a, arg, constant_values=-1)
  if op is Ops.SHRINK: return a[tuple(slice(b, e) for b, e in arg)]
  if op is Ops.FLIP: return np.flip(a, arg)
  if op is Ops.TILE: return windows(np.ascontiguousarray(a), arg)
  full, spec = arg
  n = len(full)
  out = np.full((*full, *a.shape[n:]), -1, a.dtype)
  for place in np.ndindex(*a.shape):
    at = tuple(o * s + w * g for o, w, (_, s, g) in zip(place[:n], place[n:], spec))
    out[(*at, *place[n:])] = a[place]
  return out


def step(draw: Callable[..., Any], shape: tuple[int, ...]) -> tuple[Ops, Any]:
  """A transform that fits ``shape``."""
  n = len(shape)
  kinds = [Ops.RESHAPE, Ops.PERMUTE, Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.EXPAND]
  if n <= 3: kinds += [Ops.TILE, Ops.UNTILE]
  op = draw(st.sampled_from(kinds))
  if op is Ops.PERMUTE: return op, tuple(draw(st.permutations(range(n))))
  if op is Ops.PAD: return op, tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape)
  if op is Ops.SHRINK:
    pairs = [sorted((draw(st.integers(0, d)), draw(st.integers(0, d)))) for d in shape]
    return op, tuple((b, e) if b < e else (0, d) for (b, e), d in zip(pairs, shape))
  if op is Ops.FLIP: return op, tuple(sorted(draw(st.sets(st.integers(0, n - 1))))) if n else ()
  if op is Ops.EXPAND: return op, tuple(draw(st.integers(1, 3)) if d == 1 else d for d in shape)
  if op is Ops.TILE:
    def one(d: int) -> tuple[int, int, int]:
      size, gap = draw(st.integers(1, min(d, 3))), draw(st.integers(1, 2))
      if (size - 1) * gap >= d: gap = 1
      return (size, draw(st.integers(1, 3)), gap)
    return op, tuple(one(d) for d in shape)
  if op is Ops.UNTILE and n == 2:  # (outer, inner) of one dimension
    stride, gap = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rest = draw(st.integers(0, stride - 1))
    return op, (((shape[0] - 1) * stride + (shape[1] - 1) * gap + 1 + rest,), ((shape[1], stride, gap),))
  total, dims = int(np.prod(shape)), []
  while total > 1 and len(dims) < 3:
    f = draw(st.sampled_from([f for f in range(1, total + 1) if total % f == 0]))
    dims.append(f)
    total //= f
  return Ops.RESHAPE, (*dims, total)


@st.composite
def chains(draw: Callable[..., Any]) -> tuple[View, np.ndarray]:
  """A view and what numpy makes of the numbered source."""
  shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
  view, a = View(shape), np.arange(int(np.prod(shape))).reshape(shape)
  for _ in range(draw(st.integers(1, 5))):
    if np.prod(view.shape) > 400 or len(view.shape) > 5: break
    op, arg = step(draw, view.shape)
    view, a = view.then(op, arg), apply(a, op, arg)
  return view, a


def axes_of(shape: tuple[int, ...]) -> list[Axis]: return [Axis(d, n, AxisKind.GRID) for d, n in enumerate(shape)]


@given(chains())
def test_pull_is_numpys_view(chain: tuple[View, np.ndarray]) -> None:
  view, want = chain
  assert view.shape == want.shape, view
  axes = axes_of(view.shape)
  at, valid = view.pull([a.rng for a in axes])
  env = grid(axes)
  got = sum((at_points(i, env) * k for i, k in zip(at, strides_of(view.source))), np.zeros((), np.int64))
  assert (np.broadcast_to(np.where(at_points(valid, env), got, -1), view.shape) == want).all(), view


@given(chains(), st.integers(0, 3))
def test_arrangement_of_any_view(chain: tuple[View, np.ndarray], tiles: int) -> None:
  """An arrangement is derived from the index alone, and says the same; where none is found it says so."""
  view, _ = chain
  axes = tuple(a for a in axes_of(view.shape) if a.size > 1)
  at, valid = view.pull([ix.rng(d, n) for d, n in enumerate(view.shape)])
  param = Param(0, view.source, dtypes.float32, True)
  store = UOp(Ops.STORE, param.dtype, (param.uop, UOp(Ops.INDEX, ix.INT, at), UOp.const(param.dtype, 0), valid))
  k = Linearizer(Kernel((param,), axes, (store,)))
  for a in axes[:tiles]:
    if a.size % 2 == 0: k.upcast(a.id, 2)
  store, = k.kernel.body
  access = derive(k.kernel, param, True, store.src[1], store.src[3])
  if access.arrangement is None: return
  mine, valid = access.arrangement.pull([[a.rng for a in level] for level in access.axes])
  points, gate = grid(k.kernel.axes), ix.both(valid, *access.where)
  want = at_points(store.src[3], points)
  assert (at_points(gate, points) == want).all(), access
  for x, y in zip(mine, store.src[1].src):
    assert np.broadcast_to(
      at_points(x, points) == at_points(y, points), np.broadcast_shapes(want.shape, *(g.shape for g in points.values()))
    )[np.broadcast_to(want, np.broadcast_shapes(want.shape, *(g.shape for g in points.values())))].all(), access


ADJOINT: list[tuple[tuple[int, ...], Spec]] = [
  ((7,), ((3, 1, 1),)),
  ((8,), ((3, 2, 1),)),
  ((9,), ((2, 3, 2),)),
  ((6, 7), ((2, 2, 1), (3, 1, 2))),
  ((5, 5), ((1, 1, 1), (2, 2, 1))),
]


def matrix(view: View) -> np.ndarray:
  """The view as a linear function: 1 where an element of the output is one of the source."""
  axes = axes_of(view.shape)
  at, valid = view.pull([a.rng for a in axes])
  env = grid(axes)
  where = np.broadcast_to(
    sum((at_points(i, env) * k for i, k in zip(at, strides_of(view.source))), np.zeros((), np.int64)), view.shape
  ).ravel()
  ok = np.broadcast_to(at_points(valid, env), view.shape).ravel()
  out = np.zeros((where.size, int(np.prod(view.source))))
  out[np.arange(where.size)[ok], where[ok]] = 1
  return out


@pytest.mark.parametrize("shape, spec", ADJOINT)
def test_untile_and_a_sum_is_the_adjoint_of_tile(shape: tuple[int, ...], spec: Spec) -> None:
  tile = View(shape).then(Ops.TILE, spec)
  untile = View(tile.shape).then(Ops.UNTILE, (shape, spec))
  assert untile.shape == (*shape, *(s for s, _, _ in spec))
  summed = matrix(untile).reshape(int(np.prod(shape)), -1, matrix(untile).shape[1]).sum(1)
  assert (summed == matrix(tile).T).all()


@pytest.mark.parametrize(
  "op, arg, back",
  [
    (Ops.PERMUTE, (2, 0, 1), (Ops.PERMUTE, (1, 2, 0))),
    (Ops.FLIP, (0, 2), (Ops.FLIP, (0, 2))),
    (Ops.RESHAPE, (6, 4), (Ops.RESHAPE, (2, 3, 4))),
    (Ops.PAD, ((1, 0), (0, 2), (1, 1)), (Ops.SHRINK, ((1, 3), (0, 3), (1, 5)))),
    (Ops.SHRINK, ((0, 1), (1, 3), (2, 4)), (Ops.PAD, ((0, 1), (1, 0), (2, 0)))),
  ],
)
def test_adjoint_pairs(op: Ops, arg: Any, back: tuple[Ops, Any]) -> None:
  there = View((2, 3, 4)).then(op, arg)
  assert (matrix(View(there.shape).then(*back)) == matrix(there).T).all()


def test_view_prints_its_steps() -> None:
  assert repr(View((2, 3)).then(Ops.PERMUTE, (1, 0)).then(Ops.RESHAPE, (6,))) == "(2, 3).permute((1, 0)).reshape((6,))"
