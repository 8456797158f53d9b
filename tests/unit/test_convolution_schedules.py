"""How convolutions and what stands between them are scheduled for a chip with blocks: only what is used is computed, in one
shape, in an order of dimensions that the products like."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ntgrad import Tensor, config
from ntgrad.backends.cuda.renderer import TARGET
from ntgrad.codegen.choose.bound import Unit, work_of
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.kernel import Kernel
from ntgrad.graph.recipes import written_out
from ntgrad.schedule import schedule_graph
from ntgrad.schedule.prepare import prepare_graph
from ntgrad.schedule.round_trips import find_round_trips

E = Tensor.empty


def kernels(results: Sequence[Tensor]) -> list[Kernel]:
  items = schedule_graph(written_out([t.lazydata for t in results]), TARGET)[1]
  return [i.ast for i in items if i.ast is not None]


def products(found: Sequence[Kernel]) -> list[tuple[int, str]]:
  """Of the kernels that are products how many operations they do, and their Opts."""
  out = []
  for k in found:
    done = sum(int(o.count) for o in work_of(k).operations if o.unit is Unit.MATRIX)   # type: ignore[arg-type]
    if done: out.append((done, " ".join(map(str, optimize(k, TARGET).applied))))
  return out


def as_prepared(t: Tensor) -> np.ndarray:
  """The values of a tensor's graph as it is rewritten for the chip."""
  return Tensor(prepare_graph(written_out([t.lazydata]), TARGET, {})[0]).numpy()


def test_an_input_that_was_written_in_part_is_padded_as_a_whole() -> None:
  """Its padded copy had room for the part."""
  x, w = (np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((6, 3, 12, 12), (8, 3, 3, 3)))
  want = x.copy()
  want[:, :, 2:8, 1:9] *= 2
  with config(dev="NUMPY"):   # sees where kernels write
    t = Tensor(x)
    t[:, :, 2:8, 1:9] = t[:, :, 2:8, 1:9] * 2
    found, right = [given.conv2d(Tensor(w), padding=1).numpy() for given in (t, Tensor(want))]
  np.testing.assert_allclose(found, right, 1e-5, 1e-5)


def test_a_padded_input_gets_the_gradient_that_is_used() -> None:
  """The sum over channels is long enough to be split: of the inner pixels, not of those that were padded, too."""
  x, w = E(256, 512, 4, 4, requires_grad=True, device="TRITON"), E(512, 512, 3, 3, requires_grad=True, device="TRITON")
  (x.conv2d(w, padding=1) * E(256, 512, 4, 4, device="TRITON")).sum().backward()
  assert [n for n, _ in products(kernels([x.grad]))] == [2 * 256 * 16 * 512 * 512 * 9]   # type: ignore[list-item]


@pytest.mark.parametrize("shape, axes, left", [
  ((3, 40000, 6), (1,), ((0, 3), (2, 5))), ((2, 1, 30000, 5), (2,), ((0, 2), (1, 2))),
  ((4, 4, 9, 4000), (2, 3), ((1, 3), (0, 2))),
])
def test_parts_of_long_sums(shape: tuple[int, ...], axes: tuple[int, ...], left: tuple[tuple[int, int], ...]) -> None:
  a = np.random.default_rng(0).integers(-3, 4, shape).astype("f4")
  with config(dev="NUMPY"):
    whole = Tensor(a).realize().sum(axes)
    part = whole.reshape([n for n in whole.shape if n != 1]).shrink(left)
    want = a.sum(axes).reshape([n for n in whole.shape if n != 1])[tuple(slice(*s) for s in left)]
    np.testing.assert_array_equal(as_prepared(part), want)
    np.testing.assert_array_equal(as_prepared(part + whole.sum()), want + a.sum())   # which needs all of it


def test_sums_that_are_reshaped_before_a_part_is_taken_are_split_as_ever() -> None:
  """Where more than dimensions of one element come or go, or nothing is left, the sum is made first."""
  a = np.random.default_rng(0).integers(-3, 4, (3, 40000, 6)).astype("f4")
  x = Tensor(a, device="NUMPY").realize()
  merged = x.sum(1, keepdim=True).reshape(18).shrink(((2, 9),))
  none = x.sum((0, 1), keepdim=True).reshape(1, 6).shrink(((0, 0), (0, 6)))
  assert len(kernels([x.sum(1)])) == len(kernels([merged])) == 2
  np.testing.assert_array_equal(as_prepared(merged), a.sum(1).reshape(18)[2:9])
  assert as_prepared(none).shape == (0, 6)


def normalised(x: Tensor, groups: int) -> Tensor: return (x * 2).group_norm(groups).relu()


def test_what_is_between_reshapes_is_computed_in_the_outer_shape() -> None:
  x = Tensor(np.random.default_rng(0).standard_normal((4, 6, 5, 3)).astype("f4"), device="NUMPY").realize()
  y = normalised(x, 2)
  node, = written_out([y.lazydata])
  assert {*find_round_trips([node]).values()} == {(4, 6, 5, 3)}
  np.testing.assert_allclose(as_prepared(y), y.numpy(), rtol=1e-6, atol=1e-6)
  assert not find_round_trips(written_out([(x.reshape(24, 15) + 1).reshape(4, 6, 5, 3).lazydata]))   # a matrix stays one
  assert not find_round_trips(written_out([(x.reshape(4, 1, 6, 5, 3) + 1).reshape(4, 6, 5, 3).lazydata]))


def test_channels_lie_side_by_side_around_group_norm() -> None:
  """Between convolutions everything has their shape, and is computed for the elements that there are."""
  n, c, s = 16, 64, 64
  x = E(n, c, s, s, device="TRITON")
  ws = [E(c, c, 3, 3, requires_grad=True, device="TRITON") for _ in range(3)]
  for w in ws: x = normalised(x.conv2d(w, padding=1), 8)
  forward = kernels([x])
  assert all(len(p.shape) < 5 or p.shape[2:] == (1, 1, 1) for k in forward for p in k.params)
  (x * E(n, c, s, s, device="TRITON")).sum().backward()
  found = products(kernels([x, *[w.grad for w in ws]]))   # type: ignore[list-item]
  assert [done for done, _ in found] == [2 * n * s * s * c * c * 9] * 8   # 3 results, 2 inputs, 3 weights
  assert sum("warps(2)" in opts for _, opts in found) == 3   # the weights' sum pixels, the others what lies side by side


def test_flattened_channels_have_no_order_of_their_own() -> None:
  """A buffer of (n, groups, elements) that a convolution reads: its batch is not what the product sums."""
  n, c, s, groups = 16, 256, 32, 8
  g = (E(n, groups, c * s * s // groups, device="TRITON") * 2).contiguous().reshape(n, c, s, s)
  w = E(c, c, 3, 3, device="TRITON")
  assert (n, groups, c * s * s // groups) in [p.shape for k in kernels([g.conv2d(w, padding=1), g + 1]) for p in k.params[:1]]
