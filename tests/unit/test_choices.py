"""What the model of time chooses on a large chip: what was measured stays as it is, and forms that were slow get blocks along
memory, programs for every core, and products."""
from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Callable

import pytest

from ntgrad import Tensor
from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.choose.gpu import choices
from ntgrad.codegen.choose.gpu_cost import Streams
from ntgrad.codegen.choose.gpu_products import ProductWork, best_blocks, blocks_and_warps, product_seconds, split_k_parts
from ntgrad.codegen.choose.roles import Role, Roles, vector
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.opts.axes import merge_axes, split_axes
from ntgrad.engine.compile import extent
from ntgrad.schedule import schedule_graph

CHIP = replace(TARGET, bandwidth=4.2e12)   # an H200
E = Tensor.empty


def half(*shape: int) -> Tensor: return E(*shape, dtype="bfloat16")


def kernels(t: Tensor) -> list[Kernel]:
  """The kernels of a tensor, as scheduled for the chip."""
  return [i.ast for i in schedule_graph([t.lazydata], CHIP)[1] if i.ast is not None]


def opts(k: Kernel) -> str: return " ".join(str(o) for o in optimize(k, CHIP).applied)
def programs(k: Kernel) -> int: return math.prod(extent(optimize(k, CHIP), AxisKind.GRID))


MEASURED: dict[str, tuple[Callable[[], Tensor], str]] = {   # bench/RESULTS-cuda.md
  "1024": (lambda: half(1024, 1024) @ half(1024, 1024), "a0.block(64) a1.block(128) a2.block(64)"),
  "2048": (lambda: half(2048, 2048) @ half(2048, 2048), "a0.block(128) a1.block(256) a2.block(64)"),
  "8192": (lambda: half(8192, 8192) @ half(8192, 8192),
           "a0.block(128) a1.block(256) a2.block(64) a0.swizzle(8) persistent(128) data0.tensor_descriptor() "
           "data1.tensor_descriptor() data2.tensor_descriptor()"),
  "16 rows": (lambda: half(16, 8192) @ half(8192, 8192), "a0.block(16) a1.block(64) a2.block(256)"),
  "row sum": (lambda: half(16384, 8192).sum(1), "a1.block(8192)"),
  "softmax": (lambda: half(16384, 8192).softmax(-1), "a1.block(8192)"),
  "layer norm": (lambda: half(16384, 8192).layernorm(), "a1.block(8192)"),
  "elementwise": (lambda: E(8192, 8192) + 1.25, "a0.fuse(a1) a0.block(1024)"),
}


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_what_was_measured_stays(name: str) -> None:
  make, want = MEASURED[name]
  assert opts(kernels(make())[-1]) == want


def test_columns_are_read_along_memory_by_programs_for_every_core() -> None:
  """Whole lines of neighbouring columns, long blocks; the sum is cut in parts where there are few columns."""
  for make in (lambda: E(8192, 8192).sum(0), lambda: E(8192, 8192).max(axis=0), lambda: E(1, 8192) @ E(8192, 8192)):
    k, = kernels(make())
    tiles = {a.id: a.count for a in optimize(k, CHIP).of_kind(AxisKind.TILE)}
    assert programs(k) >= 2 * 128 and math.prod(tiles.values()) >= 8192 and min(tiles.values()) >= 32, make
  for make in (lambda: E(16384, 768).sum(0), lambda: E(64, 56, 56, 256).sum((0, 1, 2))):
    parts, whole = kernels(make())
    assert programs(parts) >= CHIP.cores and programs(whole) > 1


def test_transposes_have_blocks_along_both_memories() -> None:
  for make in (lambda: E(8192, 8192).T.contiguous(), lambda: half(16, 12, 1024, 64).permute(0, 1, 3, 2).contiguous(),
               lambda: half(64, 256, 56, 56).permute(0, 2, 3, 1).contiguous()):
    k, = kernels(make())
    assert sorted(a.count for a in optimize(k, CHIP).of_kind(AxisKind.TILE))[0] >= 32


def test_convolutions_are_products() -> None:
  """Forward and both gradients, with a stride too: one axis of rows, one loop, no float32 products, no sum inside of the loop."""
  for stride in (1, 2):
    x, w = half(32, 56, 56, 128).permute(0, 3, 1, 2), half(128, 3, 3, 128).permute(0, 3, 1, 2)
    x.requires_grad = w.requires_grad = True
    y = x.conv2d(w, padding=1, stride=stride)
    g = half(32, y.shape[2], y.shape[3], 128).permute(0, 3, 1, 2)
    for out in (y, *(g * y).sum().gradient(x, w)):
      made = [optimize(k, CHIP) for k in kernels(out)]
      k = max(made, key=lambda k: len(k.applied))
      text = TritonRenderer(CHIP).render("k", linearize(k)).text
      assert text.count("tl.dot(") == 1 and "tl.sum" not in text and "ieee" not in text and text.count("for ") == 1, text


def test_short_sums_by_several_programs_a_core() -> None:
  """A product that is over before a pipeline is full, or whose best block is small, does not stay."""
  for make in (lambda: half(256, 512, 64) @ half(256, 64, 512), lambda: half(4096, 16) @ half(16, 4096),
               lambda: half(192, 1024, 1024) @ half(192, 1024, 64)):
    assert "persistent" not in opts(kernels(make())[-1])


def test_windows_are_written_out() -> None:
  for make in (lambda: half(32, 256, 56, 56).conv2d(half(256, 1, 3, 3), padding=1, groups=256),
               lambda: half(64, 64, 112, 112).max_pool2d(2)):
    assert opts(kernels(make())[-1]).count("unroll") == 2


def test_windows_with_rows_in_common_are_read_once() -> None:
  """Each program makes several steps along an axis that windows lie along, and not where neighbours have nothing in common."""
  for make in (lambda: half(32, 256, 56, 56).conv2d(half(256, 1, 3, 3), padding=1, groups=256),
               lambda: half(31, 255, 55, 57).conv2d(half(255, 1, 5, 5), padding=2, groups=255),
               lambda: half(31, 255, 55, 57).max_pool2d(3, stride=1, padding=1)):
    assert "upcast" in opts(kernels(make())[-1])
  for make in (lambda: half(64, 64, 112, 112).max_pool2d(2), lambda: E(8192, 8).sum(1), lambda: half(8192, 3, 512).sum(1)):
    assert "upcast" not in opts(kernels(make())[-1])


def test_windows_with_a_stride_go_through_one_axis() -> None:
  """The lanes of a warp then lie along the results, whichever way a compiler orders a block's axes."""
  for make in (lambda: half(8, 64, 112, 112).max_pool2d(3, stride=2, padding=1), lambda: half(7, 65, 111, 111).avg_pool2d(2),
               lambda: E(8191, 8193)[::2, ::3].contiguous()):
    assert len(optimize(kernels(make())[-1], CHIP).of_kind(AxisKind.TILE)) == 1
  assert len(kernels(half(32, 256, 56, 56).conv2d(half(256, 1, 3, 3), padding=1, groups=256))) == 1   # no padded copy


def test_short_odd_rows_are_made_by_few_warps() -> None:
  """Where no lane takes several elements of a row, each row is one warp's, and lanes combine what they have once."""
  assert "warps(1)" in opts(kernels(half(1048575, 63).softmax(-1))[-1])
  assert "warps" not in opts(kernels(half(1048576, 64).softmax(-1))[-1])


def test_roles() -> None:
  k = kernels(half(4, 64, 128) @ half(4, 128, 32))[-1]
  roles = Roles(k)
  assert [roles.roles[a.id] for a in k.axes] == [Role.BATCH, Role.ROW, Role.COLUMN, Role.CONTRACTED]
  columns = Roles(kernels(E(64, 32).sum(0))[-1])
  assert sorted(r.value for r in columns.roles.values()) == ["mapped", "reduced"]
  odd, even = (Roles(kernels(E(64, n) + E(64, 2 * n)[:, :n])[-1]).accesses for n in (33, 32))
  assert min(vector(x, 1) for x in odd) == 4 and min(vector(x, 1) for x in even) == 16


def test_products_by_the_model() -> None:
  """What was measured: 128×256 for 2048³, and that it takes a quarter less than 128×128."""
  work = ProductWork(2048, 2048, 2048)
  assert best_blocks(work, CHIP)[1] == (128, 256, 64)
  assert product_seconds(work, (128, 256, 64), CHIP) < 0.8 * product_seconds(work, (128, 128, 64), CHIP)
  assert split_k_parts(work, 8, CHIP) == 1 and split_k_parts(ProductWork(128, 4096, 16384), 64, CHIP) > 1


def test_a_large_block_leaves_room_for_what_comes_after_its_sum() -> None:
  """Two results, or two blocks that are read besides, in GPT-2's gradients: half of the rows take 0.83 to 0.95 of the time."""
  plain = ProductWork(16384, 768, 3072)
  assert blocks_and_warps(plain, CHIP) == ((128, 256, 64), 0)
  assert blocks_and_warps(replace(plain, beside=4, written=4, stored=4), CHIP) == ((128, 256, 64), 0)
  for beside, stored in ((4, 6), (8, 4)):
    assert blocks_and_warps(replace(plain, beside=beside, written=4, stored=stored), CHIP) == ((64, 256, 64), 8)
  x, y, z = half(16384, 3072) @ half(3072, 768), E(16384, 768), E(16384, 768)
  assert "warps(8)" in opts(kernels(x.float() + y + z)[-1])


def test_choosing_takes_milliseconds() -> None:
  """Less than 5 on a machine that does nothing else."""
  for make in (lambda: E(8192, 8192).softmax(0), lambda: half(64, 256, 56, 56).permute(0, 2, 3, 1).contiguous(),
               lambda: E(64, 256, 56, 56).std((0, 2, 3))):
    k = merge_axes(split_axes(kernels(make())[-1]))
    times = []
    for _ in range(5):
      begun = time.perf_counter()
      roles = Roles(k)
      model = Streams(roles, CHIP)
      found = [model.seconds(c.tiles, c.copied) for c in choices(roles, CHIP)]
      times.append(time.perf_counter() - begun)
    assert 10 < len(found) < 300 and min(times) < 0.05, f"{min(times) * 1e3:.1f} ms"
