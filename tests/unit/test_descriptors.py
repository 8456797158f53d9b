"""Accesses by tensor descriptor: which are boxes and which stay pointers, what they look like, and that they compute the same."""
from __future__ import annotations

from functools import cache
from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.backends import render
from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.cuda import compiler
from ntgrad.backends.cuda.descriptors import Box
from ntgrad.backends.cuda.renderer import TritonRenderer
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.printing import index_form
from ntgrad.codegen.index import Size
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import CompileError, OptError
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.opts import Pad, TensorDescriptor
from ntgrad.codegen.verify.forms import verify_linear
from ntgrad.schedule import create_schedule
from support import triton
from support.descriptors import box_copy, boxes, interpreted, linear, marked, numbers, product, rendered, source
from support.linear import Lines
from support.marks import long_where
from support.statements import F32, I32, Builder, at, for_, run
from support.triton_kernels import online_softmax

BF16, F16, I8 = dtypes.bfloat16, dtypes.float16, dtypes.int8


@cache
def interpreter() -> Any:
  from ntgrad.backends.cuda.interpreter import InterpreterDevice
  return InterpreterDevice()


def body(kernel: Kernel, capability: int = 90) -> str:
  text = source(kernel, capability)
  return "\n".join(line[2:] for line in text[text.index("def k("):].splitlines()[1:])


def box(kernel: Kernel, slot: int = 1) -> Any:
  """The (size, stride, block) of a param's dimensions, or why it has pointers."""
  found = boxes(marked(kernel, slot))[f"data{slot}"]
  return list(found.layout) if isinstance(found, Box) else found


# ---- the Opt

def test_marks_live_to_the_linear_form() -> None:
  k = marked(product(64, 64, 64, (32, 32, 32), BF16), 0, 1)
  assert str(k.applied[0]) == "data0.tensor_descriptor()"
  assert [line.endswith(", by descriptor") for line in index_form(k).splitlines()[1:4]] == [True, True, False]
  assert [u.arg for u in linear(k) if u.op in (Ops.LOAD, Ops.STORE)] == ["tma", None, "tma"]
  with pytest.raises(OptError, match="data7.tensor_descriptor.*neither reads nor writes data7"): TensorDescriptor(7).apply(k)


def test_the_scheduler_s_kernels_and_other_backends() -> None:
  x, y = Tensor(np.arange(12.0, dtype=np.float32).reshape(3, 4)), Tensor(np.ones((4, 5), np.float32))
  k = create_schedule([x.realize() @ y.realize()])[-1].ast
  assert k is not None
  rng = np.random.default_rng(0)
  padded = Pad(k.axes[0].id, 4).apply(marked(k, 0, 1, 2))   # the mark stays on what is padded
  for kernel in (marked(k, 0, 1, 2), padded):
    uops = linearize(kernel)
    assert {u.arg for u in uops if u.op in (Ops.LOAD, Ops.STORE)} == {"tma"}
    data = numbers(kernel, rng)
    got = run(kernel, NumpyDevice(), data)
    np.testing.assert_array_equal(got[0], data[1].reshape(3, 4) @ data[2].reshape(4, 5))


def test_statements_keep_their_marks() -> None:
  k = marked(online_softmax(), 0, 1, 2, 3)
  assert not k.plain and all(isinstance(b, Box) for b in boxes(k).values()) and len(boxes(k)) == 4
  assert [u.is_unique for u in k.body] == [u.is_unique for u in online_softmax().body]
  text = body(k)
  assert text.count(".load([") == 3 and text.count(".store([") == 1 and "data" not in text[text.index("gidx"):]


# ---- which accesses are boxes

def test_a_product() -> None:
  assert body(marked(product(256, 128, 96, (64, 32, 32), BF16), 0, 1, 2)) == """\
desc0 = tl.make_tensor_descriptor(data1, (256, 96), (96, 1), (64, 32))
desc1 = tl.make_tensor_descriptor(data2, (96, 128), (128, 1), (32, 32))
desc2 = tl.make_tensor_descriptor(data0, (256, 128), (128, 1), (64, 32))
gidx1 = tl.program_id(1)
gidx0 = tl.program_id(0)
acc0 = tl.full((64, 32), 0.0, tl.float32)
for i0 in range(0, 3):
  val0 = desc0.load([gidx1*64, i0*32])
  val1 = desc1.load([i0*32, gidx0*32])
  acc0 = tl.dot(val0, val1, acc0)
desc2.store([gidx1*64, gidx0*32], acc0.to(tl.bfloat16))"""


def test_older_chips_have_pointers() -> None:
  plain = product(250, 120, 96, (64, 32, 32), BF16)
  assert source(marked(plain, 0, 1, 2), 80) == source(plain, 80) == source(plain)


def test_ragged_sizes_need_no_masks() -> None:
  text = body(marked(product(250, 120, 72, (64, 32, 32), F16), 0, 1, 2))
  assert "mask" not in text and "(250, 72), (72, 1), (64, 32)" in text and "(72, 120), (120, 1), (32, 32)" in text


def test_transposed_operands() -> None:
  text = body(marked(product(128, 128, 64, (64, 64, 32), BF16, (True, True)), 1, 2))
  assert "(64, 128), (128, 1), (32, 64)" in text and "(128, 64), (64, 1), (64, 32)" in text and text.count("tl.trans") == 2


@pytest.mark.parametrize("kernel, want", [
  (lambda: box_copy((64, 96), (32, 16)), [(64, 96, 32), (96, 1, 16)]),
  (lambda: box_copy((1000,), (128,)), [(1000, 1, 128)]),
  (lambda: box_copy((1000,), (256,), dtypes.bool), [(1000, 1, 256)]),
  (lambda: box_copy((3, 40, 48), (0, 16, 16)), [(3, 1920, 1), (40, 48, 16), (48, 1, 16)]),       # 40 rows: a batch is a dimension
  (lambda: box_copy((3, 32, 48), (0, 16, 16)), [(96, 48, 16), (48, 1, 16)]),                    # 32: rows of other batches follow
  (lambda: box_copy((2, 50, 3, 40), (0, 16, 0, 40)), [(2, 6000, 1), (50, 120, 16), (3, 40, 1), (40, 1, 64)]),   # heads between
  # two batch axes are one dimension
  (lambda: box_copy((2, 3, 50, 64), (0, 0, 16, 32)), [(6, 3200, 1), (50, 64, 16), (64, 1, 32)]),
  # the most
  (lambda: box_copy((2, 4, 8, 8, 16), (2, 4, 8, 8, 16)), [(2, 4096, 2), (4, 1024, 4), (8, 128, 8), (8, 16, 8), (16, 1, 16)]),
  (lambda: box_copy((64, 64), (16, 16), start=(3, 8), size=(40, 48)), [(43, 64, 16), (56, 1, 16)]),
  (lambda: box_copy((64, 48), (16, 12)), [(64, 48, 16), (4, 12, 1), (12, 1, 16)]),              # what 12 lacks to 16 lies outside
  (lambda: box_copy((20, 36), (20, 36)), [(20, 36, 32), (36, 1, 64)]),
  (lambda: box_copy((64, 64), (16, 16), loops=(True, False)), [(64, 64, 16), (64, 1, 16)])])
def test_boxes(kernel: Callable[[], Kernel], want: Any) -> None: assert sorted(box(kernel())) == sorted(want)


def gathered() -> Kernel:
  b = Builder()
  i, j = b.tile(16), b.tile(16)
  out, x, rows = b.param((16, 16), written=True), b.param((64, 16)), b.param((16,), I32)
  return b.kernel(out.set((i, j), x[rows[i], j]))


def windows() -> Kernel:
  b = Builder()
  i, j = b.tile(16), b.tile(4)
  out, x = b.param((16, 4), written=True), b.param((64,))
  return b.kernel(out.set((i, j), x[ix.add(ix.mul(i.rng, 2), j.rng)]))


def diagonal() -> Kernel:
  b = Builder()
  i = b.tile(16)
  out, x = b.param((16,), written=True), b.param((16, 16))
  return b.kernel(out.set(i, x[i, i]))


def padded_before() -> Kernel:
  b = Builder()
  i = b.tile(32)
  out, x = b.param((32,), written=True), b.param((32,))
  return b.kernel(out.set(i, x.load(at(i, 1, -4), ix.ge(i.rng, 4))))


def causal() -> Kernel:
  b = Builder()
  i, j = b.tile(16), b.tile(16)
  out, x = b.param((16, 16), written=True), b.param((16, 16))
  return b.kernel(out.set((i, j), x.load((i, j), ix.lt(ix.sub(j.rng, i.rng), 1))))


def in_place() -> Kernel:
  b = Builder()
  i = b.tile(32)
  x = b.param((32,), written=True), b.param((32,), written=True)
  return b.kernel(x[1].set(i, x[1][i] + 1), x[0].set(i, x[1][i]))


def again() -> Kernel:
  b = Builder()
  i, k = b.tile(32), b.loop(3)
  out, x = b.param((32,), written=True), b.param((32,), written=True)
  return b.kernel(for_(k, x.set(i, out[i] * 2)), out.set(i, 1))


def backwards() -> Kernel:
  b = Builder()
  i = b.tile(32)
  out, x = b.param((32,), written=True), b.param((32,))
  return b.kernel(out.set(i, x[at(i, -1, 31)]))


def single() -> Kernel:
  b = Builder()
  i = b.tile(32)
  out, x = b.param((32,), written=True), b.param((4,))
  return b.kernel(out.set(i, x[3]))


@pytest.mark.parametrize(
  "kernel, why",
  [
    (gathered, "its index is not linear in the block's axes"),
    (diagonal, "neighbours in the block are 17 elements apart"),
    (windows, "its rows are 8 bytes apart, no multiple of 16"),
    (padded_before, "its condition is no bound of a dimension"),
    (causal, "its condition is no bound of a dimension"),
    (in_place, "it is read and written"),
    (again, "a loop writes the same elements again"),
    (backwards, "it goes backwards through memory"),
    (single, "it is one element"),
    (lambda: box_copy((40, 41), (16, 16)), "its rows are 164 bytes apart, no multiple of 16"),
    (lambda: box_copy((40, 40), (16, 0)), "neighbours in the block are 40 elements apart"),
    (lambda: box_copy((40, 40), (16, 2)), "a block is 8 bytes wide, less than 16"),
    (lambda: box_copy((40, 512), (2, 512)), "a block has 512 elements along a dimension, more than 256"),
    (lambda: box_copy((40, 40), (12, 8)), "a block has 12 elements along a dimension, no power of two"),
    (lambda: box_copy((40, 40), (8, 8), start=(0, 1), size=(40, 32)), "blocks begin at other than multiples of 16 bytes"),
    (lambda: box_copy((4, 4, 4, 4, 4, 4), (4, 4, 4, 4, 4, 4)), "it has 6 dimensions, a descriptor 5 at most"),
  ],
  ids=lambda x: x.replace(" ", "_")[:40] if isinstance(x, str) else getattr(x, "__name__", "")[:10],
)
def test_refused(kernel: Callable[[], Kernel], why: str) -> None:
  assert box(kernel()) == why
  assert f"# data1 goes by pointers: {why}" in source(marked(kernel(), 1)) and "desc0" not in source(marked(kernel(), 1))


def test_overlapping_windows() -> None:
  b = Builder()
  i, j = b.tile(16), b.tile(16)
  out, x = b.param((16, 16), written=True), b.param((256,))
  assert box(b.kernel(out.set((i, j), x[ix.add(ix.mul(i.rng, 4), j.rng)]))) == "its windows overlap"
  b = Builder()
  i, j = b.tile(16), b.tile(16)
  out, x = b.param((16, 16), written=True), b.param((256,))
  assert box(b.kernel(out.set((i, j), x[ix.add(i.rng, j.rng)]))) == "its windows overlap"


def by_hand(**change: Any) -> Any:
  """out[r] = x[16*g + r if 16*g + r < 50], in linear UOps."""
  p, d = Lines(), change.get("dtype", I32)
  out, x, g = p.buf(0, F32, True), p.buf(1, F32), p.add(Ops.SPECIAL, d, (), ("g", 0, 4))
  r = p.add(Ops.RANGE, d, (), (0, 16))
  i = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, g, 16), r)
  c = p.alu(BinaryOps.CMPLT, i, 50)
  v = p.add(Ops.LOAD, F32, (x, p.alu(BinaryOps.ADD, i, change.get("plus", 0)), c, p.const(F32, change.get("other", 0.0))), "tma")
  p.store(out, r, v)
  return p.uops


def test_what_is_read_outside() -> None:
  assert "(50,), (1,), (16,)" in TritonRenderer().render("k", by_hand()).text
  assert all(x in TritonRenderer().render("k", by_hand(plus=4)).text for x in ("(54,), (1,), (16,)", "[gidx0*16 + 4]"))
  assert "outside it, something else than 0 is read" in TritonRenderer().render("k", by_hand(other=1.0)).text
  assert "a block may begin before the first element" in TritonRenderer().render("k", by_hand(plus=-4)).text


def test_accesses_of_one_layout_share_a_descriptor() -> None:
  b = Builder()
  i, j = b.tile(16), b.tile(16)
  out, x = b.param((16, 16), written=True), b.param((64, 16))
  text = body(marked(b.kernel(out.set((i, j), x.load((at(i, 1, 16), j), ix.lt(i.rng, 16)) * x[at(i, 1, 32), j])), 1))
  assert text.count("make_tensor_descriptor") == 2   # 32 and 48 rows
  b = Builder()
  g, i, j = b.grid(2), b.tile(16), b.tile(16)
  out, x, y = b.param((32, 16), written=True), b.param((32, 16)), b.param((32, 16))
  k = b.kernel(out.set((at(g, 16, i), j), x[at(g, 16, i), j] * y[at(g, 16, i), j] + x[at(g, 16, i), j].exp()))
  assert body(marked(k, 1)).count("make_tensor_descriptor") == 1


def test_64_bit_positions() -> None:
  n = 1 << 27
  text = body(marked(box_copy((64, n), (16, 16), dtypes.uint8), 1))   # pointers would be 64 bits
  assert f"(64, {n}), ({n}, 1), (16, 16)" in text and ".load([gidx1*16, gidx0*16])" in text
  assert box(box_copy((1 << 32,), (256,))) == f"a dimension has {1 << 32} elements"
  assert "desc0.load([gidx0.to(tl.int32)*16])" in TritonRenderer().render("k", by_hand(dtype=dtypes.int64)).text


# ---- what they compute

@triton.needs_triton
@pytest.mark.parametrize("dtype", [BF16, F16, F32, I8, dtypes.float8_e4m3])
@pytest.mark.parametrize("sizes", [(64, 64, 64), (50, 48, 80), (33, 64, 48)])
def test_products(dtype: DType, sizes: tuple[int, int, int]) -> None:
  m, n, k = sizes
  rng = np.random.default_rng(m)
  out = I32 if dtype is I8 else F32 if dtype.itemsize == 1 else None
  for transposed in ((False, False), (True, False), (False, True), (True, True)):
    kernel = marked(product(m, n, k, (32, 16, 32), dtype, transposed, out), 0, 1, 2)
    data = numbers(kernel, rng)
    a, b = (x.astype(np.float64).T if t else x.astype(np.float64) for x, t in zip(data[1:], transposed))
    want = (a @ b).astype((out or dtype).np).astype(np.float64)
    np.testing.assert_array_equal(interpreted(interpreter(), kernel, data)[0].astype(np.float64), want)
    if m == 64: assert all(isinstance(x, Box) for x in boxes(kernel).values())


@triton.needs_triton
def test_batches_of_products() -> None:
  for m in (32, 40):
    kernel = marked(product(m, 32, 48, (16, 16, 16), F32, batch=3), 0, 1, 2)
    assert all(isinstance(x, Box) for x in boxes(kernel).values())
    data = numbers(kernel, np.random.default_rng(0))
    np.testing.assert_array_equal(interpreted(interpreter(), kernel, data)[0], data[1] @ data[2])


@triton.needs_triton
@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_copies_of_every_dtype(dtype: DType) -> None:
  kernel = marked(box_copy((40, 64), (16, 32), dtype, order=(1, 0)), 0, 1)
  assert isinstance(boxes(kernel)["data1"], Box)
  data = numbers(kernel, np.random.default_rng(0))
  out, bits = interpreted(interpreter(), kernel, data)[0], f"u{dtype.itemsize}"   # bits, since NaN of ml_dtypes equals nothing
  np.testing.assert_array_equal(out.view(bits), data[1].T.view(bits))
  made = rendered(kernel)
  assert "cp.async.bulk.tensor" in compiler.build(compiler.Request(made, "k", "sm_90")).ptx


@triton.needs_triton
def test_what_lies_outside_stays_as_it_is() -> None:
  """A block of 16 over 12 columns of 20: the others are not written."""
  b = Builder()
  i, j = b.tile(8), b.tile(12)
  out, x = b.param((8, 20), written=True), b.param((8, 12))
  kernel = marked(b.kernel(out.set((i, j), x[i, j])), 0, 1)
  assert boxes(kernel)["data0"].layout == ((8, 20, 8), (12, 1, 16))
  data = [np.full((8, 20), 7, np.float32), np.ones((8, 12), np.float32)]
  np.testing.assert_array_equal(interpreted(interpreter(), kernel, data)[0], np.where(np.arange(20) < 12, 1, 7) * np.ones((8, 1)))


@pytest.mark.parametrize("dtype, n, size", [(F32, 6, 24), (BF16, 12, 24), (I8, 17, 17)])
def test_rows_are_written_in_units(dtype: DType, n: int, size: int) -> None:
  """What a chip writes of a row is whole units of 16 bytes: others would lose what lies behind."""
  b = Builder()
  i = b.tile(n)
  out, x = b.param((2 * n,), dtype, written=True), b.param((n,), dtype)
  found = boxes(marked(b.kernel(out.set(i, x[i])), 0, 1))
  assert found["data0"] == f"its rows end at {size} bytes, no multiple of the 16 that are written at once"
  assert found["data1"].layout == ((n, 1, 1 << n.bit_length()),)   # reading is exact
  b = Builder()
  i = b.tile(32)
  out, x = b.param((64,), dtype, written=True), b.param((32,), dtype)
  some = marked(b.kernel(out.set(i, x[i], ix.lt(i.rng, n))), 0)
  assert boxes(some)["data0"] == found["data0"]


BOX = """
import triton
import triton.language as tl

# data0: *fp32
@triton.jit
def k(data0):
  desc0 = tl.make_tensor_descriptor(data0, ({size},), (1,), (8,))
  desc0.store([{at}], tl.full((8,), 1, tl.float32))
"""


@triton.needs_triton
@pytest.mark.parametrize(
  "size, at, wrong",
  [
    (8, 0, ""),
    (12, 8, ""),
    (6, 0, "rows of 6 elements, 24 bytes, no multiple of 16"),
    (16, 8, "a store outside the kernel's memory, at 4 of 8 places, the first at 48 bytes"),
  ],
)
def test_the_interpreter_checks_boxes(size: int, at: int, wrong: str) -> None:
  program, = interpreter().compile([ProgramSpec("k", triton.module(BOX.format(size=size, at=at)), (1, 1, 1), (1, 1, 1), 1)])
  data = np.zeros(12, np.float32)
  if wrong:
    with pytest.raises(CompileError, match=wrong): program([data.view(np.uint8)])
  else: program([data.view(np.uint8)])
  assert data.sum() == (0 if wrong else min(8, size - at))


ADDRESS = """
import triton
import triton.language as tl

# data0: *fp32, data1: *fp32
@triton.jit
def k(data0, data1):
  r0 = tl.arange(0, 4)
  tl.store(data0 + r0, tl.load(data1 + r0{plus}, mask=r0 < {most}))
"""


@triton.needs_triton
@pytest.mark.parametrize("plus, most, wrong", [("", 3, ""), ("", 4, "a load outside .* at 1 of 4 places, the first at 12 bytes"),
                                               (" - 1", 2, "a load outside")])
def test_the_interpreter_checks_addresses(plus: str, most: int, wrong: str) -> None:
  (program,) = interpreter().compile(
    [ProgramSpec("k", triton.module(ADDRESS.format(plus=plus, most=most), 2), (1, 1, 1), (1, 1, 1), 2)]
  )
  data = [np.zeros(4, np.float32).view(np.uint8), np.ones(3, np.float32).view(np.uint8)]
  if wrong:
    with pytest.raises(CompileError, match=wrong): program(data)
  else: program(data)


@triton.needs_triton
def test_a_maximum_over_added_elements() -> None:
  """They are 0 by descriptor, and no part of a maximum."""
  b = Builder()
  i, j = b.tile(8), b.tile(12)
  out, x = b.param((8,), written=True), b.param((8, 12))
  kernel = marked(b.kernel(out.set(i, x[i, j].reduce(BinaryOps.MAX, j))), 0, 1)
  text = body(kernel)
  assert "m1 = r1 < 12" in text and "r0" not in text
  data = [np.zeros(8, np.float32), -1 - np.random.default_rng(0).random((8, 12), np.float32)]
  np.testing.assert_array_equal(interpreted(interpreter(), kernel, data)[0], data[1].max(1))


@triton.needs_triton
def test_attention_in_one_go() -> None:
  plain = online_softmax()
  data = [np.random.default_rng(0).standard_normal(p.shape).astype(p.dtype.np) for p in plain.params]
  got, want = (interpreted(interpreter(), k, data)[0] for k in (marked(plain, 0, 1, 2, 3), plain))
  np.testing.assert_array_equal(got, want)


# ---- cubins

@long_where(lambda dtype, sizes: sizes[0] == 250 or dtype is F32)
@triton.needs_triton
@pytest.mark.parametrize("sizes", [(256, 256, 128), (250, 200, 104)])
@pytest.mark.parametrize("dtype", [BF16, F16, F32, I8, dtypes.float8_e4m3])
def test_cubins(dtype: DType, sizes: tuple[int, int, int]) -> None:
  if sizes[0] == 250 and dtype.itemsize == 1: sizes = (250, 208, 112)
  out = I32 if dtype is I8 else F32 if dtype.itemsize == 1 else None
  kernel = marked(product(*sizes, (128, 64, 32), dtype, (False, dtype.itemsize == 1), out), 0, 1, 2)
  for capability in (80, 90):
    if capability == 80 and dtype is dtypes.float8_e4m3: continue
    binary = compiler.build(compiler.Request(rendered(kernel, capability), "k", f"sm_{capability}"))
    assert ("cp.async.bulk.tensor" in binary.ptx) is (capability == 90)
    # each program has a place for each descriptor that it makes; allocations are aligned as it must be
    assert (
      binary.global_scratch_size == (3 * 128 if capability == 90 else 0)
      and binary.num_ctas == 1
      and binary.global_scratch_align <= 512
    )


# ---- loops with a step

def persistent(n: int, wide: bool = False) -> Lines:
  """Each of 4 programs takes every fourth of ``n`` elements: out[i] = x[i] + 1, and counts them: many[g]."""
  p = Lines()
  d = dtypes.int64 if wide else I32
  out, x, many, g = p.buf(0, F32, True), p.buf(1, F32), p.buf(2, I32, True), p.gid(4)
  acc = p.acc(I32, 0)
  start = p.cast(g, d) if wide else g
  i = p.add(Ops.LOOP, d, (start, p.const(d, n), p.const(d, 4)), "flatten")
  p.store(out, i, p.alu(BinaryOps.ADD, p.load(x, i), p.const(F32, 1.0)))
  s = p.phi(acc, p.alu(BinaryOps.ADD, acc, p.const(I32, 1)), i)
  p.end(i)
  p.store(many, g, s)
  return p


@pytest.mark.parametrize("n", [3, 4, 10, 16])
def test_a_loop_with_a_step(n: int) -> None:
  data = [np.zeros(n, np.float32), np.arange(n, dtype=np.float32), np.zeros(4, np.int32)]
  persistent(n).run(*data)
  np.testing.assert_array_equal(data[0], data[1] + 1)
  np.testing.assert_array_equal(data[2], [len(range(g, n, 4)) for g in range(4)])


def test_a_loop_with_a_step_as_text() -> None:
  text = TritonRenderer().render("k", persistent(10).uops).text
  assert "for i0 in tl.range(gidx0, 10, 4, flatten=True):" in text
  text = TritonRenderer().render("k", persistent(10, True).uops).text
  assert "for ni0 in tl.range(gidx0.to(tl.int64), 10, 4, flatten=True):\n    i0 = tl.cast(ni0, tl.int64)" in text
  assert "i0 < 10; i0 += 4) {" in render("opencl", "k", persistent(10).uops)


@triton.needs_triton
def test_persistent_products() -> None:
  """A program goes through the blocks of the result in steps of the grid; by descriptor, in one flattened loop."""
  p = Lines()
  out, x, y = p.buf(0, BF16, True), p.buf(1, BF16), p.buf(2, BF16)
  g = p.gid(4)
  m, n, k = (p.add(Ops.RANGE, I32, (), (i, s)) for i, s in ((0, 32), (1, 16), (2, 32)))
  t = p.add(Ops.LOOP, I32, (p._node(g), p.const(I32, 2 * 3), p.const(I32, 4)), "flatten")
  row, column = p.alu(BinaryOps.IDIV, t, 3), p.alu(BinaryOps.MOD, t, 3)
  acc = p.acc(F32, 0.0, t)
  def index(*parts: tuple[Any, int]) -> Any:
    total = None
    for u, f in parts:
      part = p.alu(BinaryOps.MUL, u, f) if f != 1 else u
      total = part if total is None else p.alu(BinaryOps.ADD, total, part)
    return total
  place = index((row, 32 * 48), (m, 48), (column, 16), (n, 1))
  i = p.loop(0, 2)
  a = p.add(Ops.LOAD, BF16, (x, index((row, 32 * 64), (m, 64), (i, 32), (k, 1))), "tma")
  b = p.add(Ops.LOAD, BF16, (y, index((i, 32 * 48), (k, 48), (column, 16), (n, 1))), "tma")
  product = p.add(Ops.REDUCE, F32, (p.alu(BinaryOps.MUL, p.cast(a, F32), p.cast(b, F32)),), (BinaryOps.ADD, (2,)))
  total = p.phi(acc, p.alu(BinaryOps.ADD, product, acc), i)
  p.end(i)
  p.add(Ops.STORE, BF16, (out, place, p.cast(total, BF16)), "tma")
  p.end(t)
  verify_linear(p.uops, "k")
  made = TritonRenderer().render("k", p.uops)
  text = made.text
  assert text.count("make_tensor_descriptor") == 3 and "(64, 48), (48, 1), (32, 16)" in text
  assert "for i0 in tl.range(gidx0, 6, 4, flatten=True):" in text
  binary = compiler.build(compiler.Request(made, "k", "sm_90"))
  assert "cp.async.bulk.tensor" in binary.ptx
  program, = interpreter().compile([ProgramSpec("k", made, (4, 1, 1), (1, 1, 1), 3, tuple(p.uops))])
  rng = np.random.default_rng(0)
  data = [rng.integers(-3, 4, s).astype(BF16.np) for s in ((64, 48), (64, 64), (64, 48))]
  program([d.reshape(-1).view(np.uint8) for d in data])
  want = (data[1].astype(np.float32) @ data[2].astype(np.float32)).astype(BF16.np)
  np.testing.assert_array_equal(data[0].view(np.uint16), want.view(np.uint16))


# ---- sizes that a launch gives

def by_sizes(m: Size, k: Size, gated: bool = True, stored: bool = False) -> Lines:
  """out[i, j] = x[i, j] of (M, K), in blocks of (16, 16), K in units of 16 as its size says."""
  p = Lines()
  out, x, rows, units = p.buf(0, F32, True), p.buf(1, F32), p.var(m), p.var(k)
  row, column = ((UOp(Ops.SIZE, ix.INT, (), s), s.unit) for s in (m, k))
  length = p.alu(BinaryOps.MUL, units, k.unit) if k.unit > 1 else units
  g, h = p.gid(ix.cdiv(row[0], 16), 1), p.gid(ix.cdiv(ix.mul(*column), 16), 0)
  i, j = (p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, s, 16), p.add(Ops.RANGE, I32, (), (a, 16))) for a, s in enumerate((g, h)))
  inside = p.alu(BinaryOps.CMPLT, i, rows)
  if gated: inside = p.alu(BinaryOps.AND, inside, p.alu(BinaryOps.CMPLT, j, length))
  place = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, i, length), j)
  value = p.add(Ops.LOAD, F32, (x, place, inside), None if stored else "tma")
  p.add(Ops.STORE, dtypes.bool, (out, place, value, inside), "tma" if stored else None)
  return p


M, K, UNITS = Size("M", 1, 1 << 20), Size("K", 1, 1 << 20), Size("K", 1, 1 << 16, unit=16)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_sizes_of_a_launch(gated: bool, stored: bool) -> None:
  """A box has the launch's sizes where the hardware's rules can be proven of them, whatever they are; one kernel for all."""
  p = by_sizes(M, UNITS, gated, stored)
  text = TritonRenderer().render("k", p.uops).text
  assert f"tl.make_tensor_descriptor(data{1 - stored}, (M, K_16*16), (K_16*16, 1), (16, 16))" in text
  assert ("mask" in text) and f"desc0.{'store' if stored else 'load'}([gidx1*16, gidx0*16]" in text
  device = interpreter()
  program = p.program(device)
  for m, k in ((5, 1), (16, 2), (33, 3)):
    x = np.random.default_rng(0).standard_normal((m, k * 16)).astype(np.float32)
    out = np.zeros_like(x)
    program([a.reshape(-1).view(np.uint8) for a in (out, x)], sizes=(k, m))
    np.testing.assert_array_equal(out, x)
  source = TritonRenderer().render("k", p.uops)
  assert compiler.build(compiler.Request(source, "k", "sm_90")).cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize("m, k, why", [
  (M, K, "its rows are K*4 bytes apart, no multiple of 16"),
  (M, UNITS._replace(lower=0), "which of its strides K/16*16 and 1 is greater depends on the sizes"),
  (M._replace(lower=0), UNITS, "a dimension has M elements"),
  (M._replace(upper=None), UNITS, "a dimension has M elements"),
])
def test_sizes_of_which_too_little_is_known(m: Size, k: Size, why: str) -> None:
  assert f"# data1 goes by pointers: {why}\n" in TritonRenderer().render("k", by_sizes(m, k).uops).text
