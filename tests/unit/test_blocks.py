"""What is chosen for targets with blocks: axes of products, rows, programs; and the Opts that say so."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ntgrad import Tensor, config
from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.choose.gpu import choose_tiles
from ntgrad.codegen.choose.gpu_cost import estimate
from ntgrad.codegen.ir.errors import OptError
from ntgrad.codegen.ir.uop import Ops
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.opts import Block, Persistent, Serial, Stages, Swizzle, Warps
from ntgrad.engine.compile import extent, options
from ntgrad.schedule import create_schedule, schedule_graph

E = Tensor.empty


def kernel(t: Tensor) -> Kernel:
  """The last kernel that a tensor needs, as scheduled for a chip with blocks."""
  k = schedule_graph([t.lazydata], TARGET)[1][-1].ast
  assert k is not None
  return k


def half(*shape: int) -> Tensor: return E(*shape, dtype="bfloat16")
def chosen(t: Tensor, **target: Any) -> str: return " ".join(map(str, optimize(kernel(t), replace(TARGET, **target)).applied))
def tiles(t: Tensor) -> list[int]: return [a.size for a in optimize(kernel(t), TARGET).of_kind(AxisKind.TILE)]
def programs(k: Kernel) -> int:
  x, y, z = extent(k, AxisKind.GRID)
  return x * y * z


# ---- what is chosen

def test_products() -> None:
  """The largest block with a program for every core; groups where the cache does not hold the factors; staying where there is
  much to do."""
  assert chosen(half(1024, 1024) @ half(1024, 1024)) == "a0.block(64) a1.block(128) a2.block(64)"
  assert chosen(half(2048, 2048) @ half(2048, 2048)) == "a0.block(128) a1.block(256) a2.block(64)"
  large = "a0.block(128) a1.block(256) a2.block(64) a0.swizzle(8)"
  staying = " persistent(128) data0.tensor_descriptor() data1.tensor_descriptor() data2.tensor_descriptor()"
  assert chosen(half(4096, 4096) @ half(4096, 4096)) == large + staying
  assert chosen(half(4096, 4096) @ half(4096, 4096), descriptors=False) == large
  assert chosen(half(16, 8192) @ half(8192, 8192)) == "a0.block(16) a1.block(64) a2.block(256)"
  assert chosen(E(4096, 4096) @ E(4096, 4096)) == "a0.block(64) a1.block(64) a2.block(32) a0.swizzle(8)"
  with config(allow_tf32=1):   # by warp groups, where both factors lie along what is summed
    assert chosen(E(4096, 4096) @ E(4096, 4096).T) == "a0.block(128) a1.block(256) a2.block(32) a0.swizzle(8)"
    turned = "a0.block(64) a1.block(64) a2.block(32) warps(2) a0.swizzle(8)"
    for a, b in ((E(4096, 4096), E(4096, 4096)), (E(4096, 4096).T, E(4096, 4096).T)): assert chosen(a @ b) == turned
    assert chosen(E(4096, 4096) @ E(4096, 4096), warp_groups=False) == "a0.block(128) a1.block(256) a2.block(32) a0.swizzle(8)"


def test_the_axes_of_a_convolution() -> None:
  """All axes of one role are one: images, their rows and columns the rows of a product, channels and windows what is summed."""
  forward = kernel(E(128, 16, 24, 24).conv2d(E(16, 16, 5, 5)))
  assert "tl.dot(" in TritonRenderer().render("k", linearize(optimize(forward, TARGET))).text
  first = optimize(kernel(E(128, 1, 28, 28).conv2d(E(16, 1, 5, 5))), TARGET)
  assert [a.size for a in first.of_kind(AxisKind.TILE)] == [64, 16, 25] and "tl.dot(" in TritonRenderer().render(
    "k", linearize(first)
  ).text


def test_rows() -> None:
  """A row that fits stays in registers; a longer one is gone through in blocks; no core is left without rows."""
  long = half(256, 40000)
  assert tiles(half(16384, 8192).softmax(-1)) == [8192] and tiles(long / long.sum(-1, keepdim=True)) == [8192]
  assert tiles(half(16384, 64).softmax(-1)) == [16, 64] and tiles(half(264, 64).softmax(-1)) == [4, 64]


def test_long_sums_are_split_for_programs() -> None:
  """split-k: the weight gradient of a convolution has few outputs, and a program makes many of them."""
  x, w = E(128, 16, 24, 24), E(16, 16, 5, 5)
  w.requires_grad = True
  items = [
    i.ast
    for i in schedule_graph([(E(128, 16, 20, 20) * x.conv2d(w)).sum().gradient(w)[0].lazydata], TARGET)[1]
    if i.ast
  ]
  assert any(programs(optimize(k, TARGET)) >= TARGET.cores for k in items if len(k.axes) > 4)
  few = schedule_graph([(half(256, 8192) @ half(8192, 256)).lazydata], TARGET)[1]
  assert len(few) == 2 and len(schedule_graph([(half(1024, 1024) @ half(1024, 1024)).lazydata], TARGET)[1]) == 1


# ---- the Opts

def test_block_pads() -> None:
  k = Block(0, 64).apply(kernel(E(100) + 1))
  assert [str(a) for a in k.axes] == ["a0:2 GRID", "a1:64 TILE"] and len(k.body[0].src) == 4


def test_swizzle() -> None:
  """Neighbouring rows of programs run next to each other."""
  k = kernel(half(64, 32) + 1)
  assert [str(a) for a in Swizzle(0, 8).apply(k).axes] == ["a0:8 GRID", "a1:32 GRID", "a2:8 GRID"]
  assert [str(a) for a in Swizzle(0, 64).apply(k).axes] == ["a1:32 GRID", "a0:64 GRID"]
  with pytest.raises(OptError, match="7 does not divide the axis a0:64 GRID"): Swizzle(0, 7).apply(k)
  with pytest.raises(OptError, match="not an axis of programs"): Swizzle(0, 8).apply(Serial(0).apply(k))


def test_persistent() -> None:
  """As many programs as asked for, a loop with their number as its step."""
  k = Persistent(12).apply(kernel(half(64, 32) + 1))
  assert [str(a) for a in k.axes] == ["a0:2048 LOOP/12"] and extent(k, AxisKind.GRID) == (12, 1, 1)
  loop, = [u for u in linearize(k) if u.op is Ops.LOOP]
  assert loop.src[0].op is Ops.SPECIAL and [s.arg for s in loop.src[1:]] == [2048, 12] and loop.arg == "flatten"
  with pytest.raises(OptError, match="has 2048 programs; at least one and fewer than that"):
    Persistent(2048).apply(kernel(half(64, 32) + 1))
  with pytest.raises(OptError, match="are the last step"): Block(0, 2).apply(k)


def test_what_the_compiler_is_told() -> None:
  k = kernel(E(100) + 1)
  for o in (Warps(2), Stages(3), Warps(8)): k = o.apply(k)
  assert dict(options(k)) == {"num_warps": 8, "num_stages": 3} and " ".join(map(str, k.applied)) == "warps(2) stages(3) warps(8)"


def test_estimates() -> None:
  """Idle cores, tiny blocks and blocks that do not fit all cost time. An axis of one program is none."""
  one = Block(0, 64).apply(kernel(E(64) + 1))
  assert 0 < estimate(one, TARGET) == estimate(one.with_(axes=(Axis(7, 1, AxisKind.GRID), *one.axes)), TARGET)
  k = kernel(half(2048, 2048) @ half(2048, 2048))
  def of(*blocks: int) -> float:
    out = k
    for i, n in enumerate(blocks): out = Block(i, n).apply(out)
    return estimate(out, TARGET)

  assert (
    of(128, 256, 64) < of(64, 64, 64) < of(16, 16, 16)
    and of(128, 256, 64) < of(512, 512, 64)
    and of(128, 256, 64) < of(128, 256, 512)
  )


def test_a_factor_that_is_cast_gets_the_blocks_of_its_product() -> None:
  """What is multiplied counts, not what is read: float32 weights cast to bfloat16, a float32 bias."""
  def sizes(out: Tensor) -> list[int]:
    return [o.n for o in choose_tiles(create_schedule([out])[-1].ast, TARGET).applied if isinstance(o, Block)]
  x, w, bias = Tensor.empty(4096, 768), Tensor.empty(768, 3072), Tensor.empty(3072)
  half, other = x.cast("bfloat16"), w.cast("bfloat16")
  stored = [Tensor.empty(*t.shape, dtype="bfloat16") for t in (x, w)]
  assert sizes(stored[0] @ stored[1]) == sizes(stored[0] @ stored[1] + bias) == [128, 256, 64]
  assert sizes(half @ other) == sizes(half @ other + bias) == sizes(half @ stored[1]) == [128, 256, 32]   # 128 bytes of a row
  assert sizes(x @ w) == [64, 64, 32]
