"""Arrangements: meta-operations against numpy, refusals, and that what a kernel prints is what it does."""
from __future__ import annotations

from typing import Callable

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.backends.cuda.renderer import TritonRenderer
from ntgrad.codegen import index as ix, pipeline
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.explain.arrangements import arranged_accesses
from ntgrad.codegen.explain.derivation import NoArrangement
from ntgrad.codegen.explain.fused_axes import by_digits
from ntgrad.codegen.ir.errors import ArgumentError, AxisError, IndexOutOfRangeError, ShapeError
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import UOp
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel
from ntgrad.codegen.kernel.arrangement import Arrangement
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.codegen.opts import Fuse, Pad, Unroll
from ntgrad.codegen.passes.parts import Part
from ntgrad.schedule import create_schedule
from support.indices import at_points, grid, ranges

E = Tensor.empty


def elements(a: Arrangement) -> np.ndarray:
  """For every element of every level, its number in the source, -1 where it is not valid."""
  rs = ranges(a.view.shape)
  where, n = [], 0
  for level in a.levels:
    where.append(rs[n:n + len(level)])
    n += len(level)
  at, valid = a.pull(where)
  env = {
    r: np.arange(size).reshape([-1 if i == d else 1 for i in range(len(rs))])
    for d, (r, size) in enumerate(zip(rs, a.view.shape))
    if size > 1
  }
  index = np.zeros((1,) * len(rs), np.int64)
  for i, size in zip(at, a.source): index = index * size + at_points(i, env)
  out: np.ndarray = np.broadcast_to(np.where(at_points(valid, env), index, -1), a.view.shape)
  return out


def numbered(*shape: int) -> np.ndarray: return np.arange(int(np.prod(shape))).reshape(shape)


def test_tile_is_a_level_of_blocks() -> None:
  a = Arrangement.of((6, 8)).tile((2, 4))
  assert a.levels == ((3, 2), (2, 4)) and a.shape == (3, 2)
  assert (elements(a) == numbered(6, 8).reshape(3, 2, 2, 4).transpose(0, 2, 1, 3)).all()


def test_tile_whole_dimension_and_again() -> None:
  a = Arrangement.of((6, 8)).tile((2, -1)).tile((1, 4), level=1)
  assert a.levels == ((3, 1), (2, 2), (1, 4)) and str(a) == "source(6, 8).tile((2, 8)).tile((1, 4), level=1)"
  assert (elements(a).reshape(3, 2, 2, 4) == numbered(6, 8).reshape(3, 2, 2, 4)).all()


def test_partial_last_tile_is_not_valid_outside() -> None:
  a = Arrangement.of((5,)).tile((2,))
  assert a.levels == ((3,), (2,))
  assert elements(a).tolist() == [[0, 1], [2, 3], [4, -1]]
  assert elements(Arrangement.of((5,)).tile((2,), floor_mode=True)).tolist() == [[0, 1], [2, 3]]
  assert elements(Arrangement.of((5,)).tile((2,), shift_inwards=True)).tolist() == [[0, 1], [2, 3], [3, 4]]
  assert elements(Arrangement.of((6,)).tile((3,), (2,), shift_inwards=True)).tolist() == [[0, 1, 2], [2, 3, 4], [3, 4, 5]]
  assert elements(Arrangement.of((2,)).tile((3,))).tolist() == [[0, 1, -1]]


@pytest.mark.parametrize(
  "n, size, stride, dilation, floor",
  [
    (9, 3, 1, 1, True),
    (9, 3, 2, 1, False),
    (10, 3, 2, 1, False),
    (10, 3, 2, 1, True),
    (11, 3, 1, 2, True),
    (11, 2, 3, 4, False),
    (7, 1, 2, 1, False),
    (9, 2, 4, 1, True),
  ],
)
def test_windows(n: int, size: int, stride: int, dilation: int, floor: bool) -> None:
  a = Arrangement.of((n,)).tile((size,), (stride,), (dilation,), floor)
  got = elements(a)
  starts = range(0, n - (size - 1) * dilation, stride) if floor else range(0, stride * got.shape[0], stride)
  want = [[j if (j := s + k * dilation) < n else -1 for k in range(size)] for s in starts]
  assert got.tolist() == want
  if not floor:  # every window begun is there, and no more
    assert starts[-1] < n and starts[-1] + (size - 1) * dilation + stride >= n - 1


def test_dimension_operations() -> None:
  x = numbered(2, 3, 4)
  a = Arrangement.of((2, 3, 4))
  same: list[tuple[Arrangement, np.ndarray]] = [
    (a.permute((2, 0, 1)), x.transpose(2, 0, 1)),
    (a.flatten(), x.reshape(-1)),
    (a.flatten(1), x.reshape(2, 12)),
    (a.flip((0, 2)), x[::-1, :, ::-1]),
    (a.unsqueeze(1), x[:, None]),
    (a.unsqueeze(-1).squeeze(3), x),
    (a.unsqueeze(0).expand((5, -1, -1, -1)), np.broadcast_to(x, (5, 2, 3, 4))),
    (a.shrink(((0, 1), (1, 3), (2, 4))), x[:1, 1:3, 2:4]),
    (a.pad(((0, 1), (1, 0), (0, 0))), np.pad(x, ((0, 1), (1, 0), (0, 0)), constant_values=-1)),
    (a.tile((1, 3, 2)).ravel(), x.reshape(2, 1, 1, 3, 2, 2).transpose(0, 2, 4, 1, 3, 5)),
    (a.tile((1, 3, 2)).permute((2, 1, 0), level=1), x.reshape(2, 1, 3, 2, 2).transpose(0, 1, 3, 4, 2)[..., None]),
  ]
  for got, want in same: assert (elements(got) == want).all() and elements(got).shape == want.shape, str(got)


KEYS = [(slice(None, None, -2),), (1,), (slice(1, None, 2), 0, None), (..., slice(-1, 0, -2)),
        (None, slice(5, 2)), slice(100, -100, -3), -1, (), None]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_index(key: object) -> None:
  a, want = Arrangement.of((5, 3, 7)), numbered(5, 3, 7)[key]  # type: ignore[index]
  for got in (
    a[key],
    a.tile((5, 3, 7)).ravel()[0, 0, 0][key],
    a.unsqueeze(0).tile((1, 5, 3, 7)).squeeze(0, level=1).index(key, level=1),
  ):
    assert got.levels[-1] == want.shape and (got.elements().reshape(want.shape) == want).all(), str(got)
    # what is printed can be read
    assert (eval(str(got), {"source": lambda *shape: Arrangement.of(shape)}).elements() == got.elements()).all()


def test_unflatten() -> None:
  a = Arrangement.of((6, 4))
  assert (a.unflatten(0, (2, 3)).elements() == numbered(2, 3, 4)).all() and a.unflatten(-1, (-1, 2)).shape == (6, 2, 2)
  assert str(a.tile((6, 4)).unflatten(0, (2, -1), level=1)) == "source(6, 4).tile((6, 4)).unflatten(0, (2, 3), level=1)"


def test_elements_and_offsets() -> None:
  a = Arrangement.of((5, 3)).tile((2, 3))
  assert (a.elements() == elements(a)).all() and a.elements().shape == (3, 1, 2, 3)
  rows, columns = a.offsets()
  assert rows[2, 0].tolist() == [[4] * 3, [5] * 3] and columns[1, 0].tolist() == [[0, 1, 2]] * 2
  assert Arrangement.of((4,))[4:].elements().shape == (0,)


def test_inner_levels() -> None:
  a = Arrangement.of((4, 6)).tile((2, 6)).tile((2, 3), level=1)
  assert a.levels == ((2, 1), (1, 2), (2, 3))
  b = a.squeeze(1).squeeze(0, level=1).flatten(level=2).flip(0, level=2)
  assert b.levels == ((2,), (2,), (6,))
  assert (elements(b) == elements(a).reshape(2, 2, 6)[..., ::-1]).all()
  assert a.ravel(2).levels == ((2, 1, 1, 2), (2, 3)) and a.ravel(level=1).levels == ((2, 1), (1, 2, 2, 3))
  assert a.ravel(2, 1).text("x") == "x(4, 6).tile((2, 6)).tile((2, 3), level=1).ravel(level=1)"


REFUSED: list[tuple[type[Exception], str, Callable[[Arrangement], object]]] = [
  (ShapeError, "tile: one tile size a dimension, so 2", lambda a: a.tile((2,))),
  (ArgumentError, "tile: sizes, strides and dilations are 1 or more", lambda a: a.tile((2, 0))),
  (ArgumentError, "each tile size is an int", lambda a: a.tile((2, 1.5))),  # type: ignore[arg-type]
  (ShapeError, "no window of 7", lambda a: a.tile((7, 1), floor_mode=True)),
  (ShapeError, "no window of 7 .* inside dimension 0, which has 6 elements", lambda a: a.tile((7, 1), shift_inwards=True)),
  (ArgumentError, "not both", lambda a: a.tile((4, 1), floor_mode=True, shift_inwards=True)),
  (ShapeError, "only dimensions of 1 become others", lambda a: a.expand((12, 8))),
  (ShapeError, "only a dimension of 1 can go", lambda a: a.squeeze(0)),
  (AxisError, "axis 2; the level has 2", lambda a: a.squeeze(2)),
  (AxisError, "axis is given twice", lambda a: a.permute((0, 0))),
  (AxisError, "permute: a level of 2", lambda a: a.permute((0,))),
  (AxisError, "levels 0 to 0", lambda a: a.flip(0, level=1)),
  (AxisError, "stands behind", lambda a: a.flatten(1, 0)),
  (AxisError, "ravel: 2 levels", lambda a: a.ravel(2)),
  (ArgumentError, "shrink cuts off", lambda a: a.pad(((0, -1), (0, 0)))),
  (ShapeError, "a pair for each of 2", lambda a: a.pad(((0, 1),))),
  (ShapeError, "0 <= begin <= end <= size", lambda a: a.shrink(((0, 7), (0, 8)))),
  (ShapeError, "unflatten: dimension 0 of \\(6, 8\\) has 6 elements, which is no \\(4, 2\\)", lambda a: a.unflatten(0, (4, 2))),
  (ShapeError, "which is no \\(4, -1\\)", lambda a: a.unflatten(0, (4, -1))),
  (ArgumentError, "one may be -1", lambda a: a.unflatten(0, (-1, -1))),
  (ArgumentError, "unflatten: sizes are ints", lambda a: a.unflatten(0, (1.5,))),  # type: ignore[arg-type]
  (IndexOutOfRangeError, "index: 6 is outside dimension 0 of \\(6, 8\\)", lambda a: a[6]),
  (AxisError, "3 indices for 2", lambda a: a[0, 0, 0]),
  (ArgumentError, "may stand once", lambda a: a[..., ...]),
  (ArgumentError, "a step of 0", lambda a: a[::0]),
  (ArgumentError, "ints, slices", lambda a: a["x"]),
  (ShapeError, "got \\[1\\] indices", lambda a: a.pull([[0]])),
]


@pytest.mark.parametrize("error, text, use", REFUSED, ids=[t for _, t, _ in REFUSED])
def test_refusals(error: type[Exception], text: str, use: Callable[[Arrangement], object]) -> None:
  with pytest.raises(error, match=text): use(Arrangement.of((6, 8)))


# ---- kernels

SUBJECTS: dict[str, Callable[[], list[Tensor]]] = {
  "dot": lambda: [E(4).dot(E(4))],
  "softmax": lambda: [E(8, 16).softmax(-1)],
  "layer norm": lambda: [E(6, 8).layernorm()],
  "matmul": lambda: [(E(8, 16) @ E(16, 4) + E(4)).relu()],
  "batched": lambda: [E(2, 8, 4) @ E(2, 4, 6)],
  "conv": lambda: [E(2, 3, 6, 6).conv2d(E(4, 3, 3, 3))],
  "conv, dilated": lambda: [E(1, 2, 9, 9).conv2d(E(2, 2, 3, 3), dilation=2)],
  "conv, strided and padded": lambda: [E(2, 3, 6, 6).conv2d(E(4, 3, 3, 3), padding=1, stride=2)],
  "conv, groups": lambda: [E(2, 4, 5, 5).conv2d(E(4, 2, 3, 3), groups=2)],
  "pool": lambda: [E(2, 3, 6, 6).max_pool2d()],
  "pool, a rest": lambda: [E(2, 3, 7, 7).max_pool2d()],
  "pool, overlapping": lambda: [E(1, 2, 9, 9).avg_pool2d(3, 2)],
  "cat": lambda: [E(2, 3).cat(E(2, 3) * 2, dim=0)],
  "pad": lambda: [E(2, 3).pad(((1, 1), (0, 2))) + 1],
  "flip and merge": lambda: [E(2, 3).flip(1).permute(1, 0).reshape(6) * 2],
  "regroup": lambda: [E(4, 6).permute(1, 0).reshape(2, 3, 2, 2) * 2],
  "merge three": lambda: [E(2, 3, 4).permute(1, 0, 2).reshape(24) * 2],
  "slice": lambda: [E(10, 12)[2:8:2, ::-1] * 2],
  "transposed twice": lambda: [E(4, 6) + 1, E(4, 6).T * 2],
  "columns": lambda: [E(5, 7).sum(0)],
  "all": lambda: [E(5, 7).sum()],
  "broadcast": lambda: [E(3, 1, 5) + E(4, 1)],
  "4x6 as 6x4": lambda: [E(4, 6).T.reshape(4, 6) + 1],
}
FUSED: dict[str, Callable[[], list[Tensor]]] = {   # blocks of these have the digits of fused axes
  "conv": lambda: [E(2, 16, 9, 9).conv2d(E(32, 16, 3, 3))],
  "conv, strided and padded": lambda: [E(2, 16, 9, 10).conv2d(E(32, 16, 3, 3), padding=1, stride=2)],
  "conv, odd": lambda: [E(2, 3, 21, 21).conv2d(E(24, 3, 7, 7), stride=2)],
  "conv, gradient": lambda: E(2, 16, 9, 9).conv2d(w := E(32, 16, 3, 3, requires_grad=True)).square().sum().gradient(w),
  "pictures as rows": lambda: [E(2, 16, 4, 6).permute(0, 2, 3, 1).reshape(48, 16) @ E(16, 32)],
}
TARGETS = {"as scheduled": None, "16 lanes": Target("opencl", lanes=16, registers=32, cores=2),
           "4 lanes": Target("opencl", lanes=4, registers=16, cores=1)}
BLOCKS = TritonRenderer().target


def check_accesses(kernel: Kernel) -> list[str]:
  """Each printed chain, evaluated, gives the kernel's own indices and gates for all values of its axes. Gives those that are
  ``.at(…)``."""
  as_is = []
  for access in arranged_accesses(kernel):
    if access.arrangement is None:
      as_is.append(access.chain())
      continue
    # from the text alone: what is printed is what is checked
    chain = access.chain().split(".where(")[0]
    arrangement: Arrangement = eval(chain, {f"data{access.param.slot}": lambda *shape: Arrangement.of(shape)})
    at, valid = arrangement.pull([[a.rng for a in level] for level in access.axes])
    env = grid(kernel.axes)
    full = tuple(a.size for a in kernel.axes)

    def points(u: UOp, env: dict[UOp, np.ndarray] = env, full: tuple[int, ...] = full) -> np.ndarray:
      return np.broadcast_to(at_points(u, env), full)

    if any(r not in env for u in access.where for r in u.ranges): continue
    gate = points(access.gate)
    assert (points(ix.both(valid, *access.where)) == gate).all(), access.chain()
    for mine, theirs, size in zip(at, access.index.src, access.param.shape):
      assert (points(mine) == points(theirs))[gate].all(), access.chain()
      assert ((points(theirs) >= 0) & (points(theirs) < size))[gate].all(), access.chain()
  return as_is


def kernels(name: str) -> list[Kernel]: return [item.ast for item in create_schedule(SUBJECTS[name]()) if item.ast is not None]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_printed_chain_is_what_the_kernel_does(name: str, target: str) -> None:
  for k in kernels(name):
    as_is = check_accesses(k if TARGETS[target] is None else optimize(k, TARGETS[target]))
    assert as_is == []


@pytest.mark.parametrize("name", FUSED)
def test_printed_chain_of_blocks(name: str) -> None:
  fused = 0
  for item in create_schedule(FUSED[name]()):
    assert item.ast is not None
    parts = pipeline.run_passes(pipeline.prepare(item.ast, BLOCKS), BLOCKS, "opts", "opts")
    for part in parts.items:
      if not isinstance(part, Part): continue
      fused += any(isinstance(o, Fuse) for o in part.kernel.applied)
      assert check_accesses(part.kernel) == []
  assert fused


def test_digits_of_an_axis_in_three_levels() -> None:
  a, b, c, x = (Axis(i, n, kind) for i, (n, kind) in enumerate(
    [(9, AxisKind.GRID), (8, AxisKind.LOOP), (4, AxisKind.TILE), (5, AxisKind.TILE)]))
  e = ix.add(ix.mul(ix.add(ix.mul(a.rng, 8), b.rng), 4), c.rng)   # 288 = 32 * 3 * 3
  index = (ix.fdiv(e, 9), ix.add(ix.fdiv(ix.mod(e, 9), 3), x.rng), ix.sub(ix.const(2), ix.mod(e, 3)))
  d = by_digits([a, b, c, x], (32, 7, 3), index, ix.TRUE)
  assert d.names == ["GRID", "LOOP", "tile"] and d.axes == [(a,), (b,), (c, x)]
  assert d.arr.pull([[r.rng for r in level] for level in d.axes]) == (index, ix.TRUE)
  with pytest.raises(NoArrangement): by_digits([a, b, c, x], (32, 7, 3), (ix.fdiv(e, 9), x.rng, ix.mod(e, 4)), ix.TRUE)
  with pytest.raises(NoArrangement): by_digits([a, b, c, x], (32, 7, 3), (a.rng, x.rng, c.rng), ix.TRUE)   # no digits


@pytest.mark.parametrize("name", ["matmul", "conv", "conv, strided and padded", "pool", "regroup", "merge three"])
def test_tiled_by_hand(name: str) -> None:
  for k in kernels(name):
    lin = Linearizer(k)
    for i, a in enumerate(k.axes):
      for amount in (4, 3, 2):
        if a.size % amount: continue
        if a.id in k.bound: lin.unroll(a.id, amount) if i % 2 else lin.tile(a.id, amount)
        elif i == 1: lin.lane(a.id, amount)
        else: lin.upcast(a.id, amount)
        break
    assert check_accesses(lin.kernel) == []


def test_padded_axis_is_where() -> None:
  k, = kernels("columns")
  k = Linearizer(k).apply(Pad(1, 4)).apply(Unroll(1, 4)).kernel
  assert check_accesses(k) == []


def test_gather_and_diagonal_print_as_they_are() -> None:
  k = create_schedule([E(10, 3)[Tensor([1, 2])]])[-1].ast
  assert k is not None
  row = "(data1[a0] + 10 if data1[a0] < 0 else data1[a0])"   # from the end where it is negative
  assert check_accesses(k) == [f"data2(10, 3).at({row}, a1).where(-1 < {row} and {row} < 10)"]
  base = k.params[2]
  from ntgrad.codegen.explain.arrangements import derive
  a0 = k.axes[0].rng
  from ntgrad.codegen.ir.uop import Ops
  both = derive(k, base, False, UOp(Ops.INDEX, ix.INT, (a0, a0)), ix.TRUE)
  assert both.arrangement is None and both.chain() == "data2(10, 3).at(a0, a0)"
