"""What ntgrad was asked to implement, a program for every example, feature and message of the five documents:

- NineToothed, "The Basics": symbols, symbolic tensors, meta-operations, arrange and apply, indexing and iteration;
- NineToothed's readme: kernels by ``jit`` and annotations;
- "NineToothed and tensor-oriented metaprogramming", an article in Chinese that goes the same way with other names of arguments;
- notes on tinygrad: a dot product as UOps and as source, ``NOOPT=1``, ``DEBUG=5``, the Linearizer, upcast;
- Croktile, "Symbolic shapes": anonymous and symbolic dimensions, what is checked when, limits.

A comment ``Differs:`` says where ntgrad answers in another way on purpose.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as ninetoothed
import ntgrad.tile.language as ntl
from ntgrad import Tensor as Values, config
from ntgrad.backends import render, renderer
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOps
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.errors import ApplicationError, ArgumentError, DTypeError, NtgradError, ShapeError
from ntgrad.schedule import create_schedule
from ntgrad.tile import Symbol, Tensor
from support.marks import long


def refusal(kind: type[NtgradError], fn: Any, *args: Any) -> str:
  """The first line of the error that a call raises."""
  with pytest.raises(kind) as e: fn(*args)
  return str(e.value).split("\n")[0]


def numbers(shape: tuple[int, ...], dtype: str = "float16") -> np.ndarray:
  """Small whole numbers, which float16 adds without rounding."""
  return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(dtype)


# ---- NineToothed, The Basics: symbols


def test_symbols() -> None:
  m, n = Symbol("BLOCK_SIZE_M"), Symbol("BLOCK_SIZE_N")
  assert (repr(m), repr(n), repr(m * n)) == ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_M * BLOCK_SIZE_N")
  with pytest.raises(TypeError, match="BLOCK_SIZE_M: a Symbol has no value yet"): range(m)   # type: ignore[call-overload]


@long
def test_symbols_are_sympys_symbols_too() -> None:
  sympy = pytest.importorskip("sympy")
  m, n = Symbol("M", lower_bound=1), Symbol("N", lower_bound=1)
  assert sympy.sympify(m * n) == sympy.sympify(m) * sympy.sympify(n)
  assert sympy.expand((sympy.sympify(m) + 1) ** 2) == sympy.sympify(m * m + 2 * m + 1)


# ---- symbolic tensors and meta-operations


def test_a_symbolic_tensor_has_symbols_for_sizes_and_strides() -> None:
  x = Tensor(2)
  # Differs: the names begin with tensor_, not with ninetoothed_tensor_
  shape = re.fullmatch(r"\((tensor_\d+)_size_0, (tensor_\d+)_size_1\)", str(x.shape))
  assert shape is not None and shape[1] == shape[2]
  assert str(x.strides) == f"({shape[1]}_stride_0, {shape[1]}_stride_1)"


def test_tile_gives_two_levels() -> None:
  m, n = Symbol("BLOCK_SIZE_M", lower_bound=1), Symbol("BLOCK_SIZE_N", lower_bound=1)
  x = Tensor(2, name="x")
  tiled = x.tile((m, n))
  # Differs: expressions have a canonical form, so the number of tiles is written cdiv(size, block), which is equal
  assert str(tiled.shape) == "(cdiv(x_size_0, BLOCK_SIZE_M), cdiv(x_size_1, BLOCK_SIZE_N))"
  for count, size, block in zip(tiled.shape, x.shape, (m, n)): assert count == (size - (block - 1) - 1 + block - 1) // block + 1
  assert tiled.dtype.shape == (m, n)
  assert x.shape != tiled.shape and x.dtype is None   # x itself stays as it was


def test_tile_of_numbers() -> None:
  x = Tensor(shape=(4, 8), name="x")
  tiled = x.tile((2, 2))
  assert tiled.shape == (2, 4) and tiled.dtype.shape == (2, 2)
  # the figure: eight tiles of four elements, in two rows of four
  rows, columns = tiled.offsets()
  assert rows.shape == columns.shape == (2, 4, 2, 2)
  assert rows[1, 3].tolist() == [[2, 2], [3, 3]] and columns[1, 3].tolist() == [[6, 7], [6, 7]]
  assert ninetoothed.visualize(tiled).svg.count("<rect") > 32


@pytest.mark.parametrize("operation, shape, inner", [
  (lambda x: x.tile((2, 4)), (2, 2), (2, 4)),
  (lambda x: x.tile((2, 2)).tile((1, -1)), (2, 1), (1, 4)),
  (lambda x: x.tile((4, 2)).tile((1, -1)).expand((3, -1)), (3, 1), (1, 4)),
  (lambda x: x.tile((4, 2)).squeeze(0), (4,), (4, 2)),
  (lambda x: x.permute((1, 0)).tile((2, 2)), (4, 2), (2, 2)),
], ids=["tile", "tile of tiles", "expand", "squeeze", "permute"])
def test_meta_operations(operation: Any, shape: tuple[int, ...], inner: tuple[int, ...]) -> None:
  out = operation(Tensor(shape=(4, 8)))
  assert out.shape == shape and out.dtype.shape == inner


# ---- arrange and apply: the addition of vectors


def add_arrangement(x: Tensor, y: Tensor, z: Tensor, BLOCK_SIZE: Any = ninetoothed.block_size()) -> tuple[Tensor, ...]:  # noqa: B008
  return x.tile((BLOCK_SIZE,)), y.tile((BLOCK_SIZE,)), z.tile((BLOCK_SIZE,))


def add_application(x: Any, y: Any, z: Any) -> None:
  z = x + y   # noqa: F841


VECTORS = Tensor(1), Tensor(1), Tensor(1)


def test_a_program_for_each_element_of_the_outermost_level() -> None:
  """16 elements in blocks of 2: eight programs, block i of each parameter for program i."""
  kernel = ninetoothed.make(partial(add_arrangement, BLOCK_SIZE=2), add_application, VECTORS)
  made = kernel.specialise(*(((16,), "float16"),) * 3)
  assert [str(a) for a in made.kernel.axes] == ["a0:8 GRID", "a1:2 TILE"]
  assert made.arrangements().split("\n") == ["x(16).tile((2,))", "y(16).tile((2,))", "z(16).tile((2,))"]
  drawn = [ninetoothed.visualize(t) for t in add_arrangement(*(Tensor(shape=(16,), name=n) for n in "xyz"), BLOCK_SIZE=2)]
  assert all(p.svg.count("<rect") >= 16 for p in drawn)   # the three figures
  vectors = tuple(Tensor(shape=(16,)) for _ in range(3))
  _, arranged = ninetoothed.simulate_arrangement(partial(add_arrangement, BLOCK_SIZE=2), vectors)
  for blocks in arranged: assert blocks.tolist() == [[2 * i, 2 * i + 1] for i in range(8)]


def test_addition() -> None:
  """The block size is left to the compiler."""
  kernel = ninetoothed.make(add_arrangement, add_application, VECTORS)
  x, y = np.array((1, 2, 3), np.float16), np.array((4, 5, 6), np.float16)
  z = np.empty_like(x)
  kernel(x, y, z)
  assert z.dtype == np.float16 and z.tolist() == [5, 7, 9]
  a, b = numbers((1000,)), numbers((1000,)) * 2
  c = np.empty_like(a)
  kernel(a, b, c)
  np.testing.assert_array_equal(c, a + b)


@pytest.mark.parametrize("block", [1, 2, 1000, 1024])
def test_a_block_size_by_hand(block: int) -> None:
  # Differs: sizes of blocks may be any, not only powers of two
  kernel = ninetoothed.make(partial(add_arrangement, BLOCK_SIZE=block), add_application, VECTORS)
  x, y = numbers((77,)), numbers((77,))
  z = np.empty_like(x)
  kernel(x, y, z)
  np.testing.assert_array_equal(z, x + y)


def test_a_block_size_has_a_range_to_choose_from() -> None:
  low, high = ninetoothed.block_size().bounds
  assert (low, high) == (16, 1024)
  assert ninetoothed.block_size(lower_bound=32, upper_bound=64).bounds == (32, 64)


def test_tensors_of_this_library_are_arguments_too() -> None:
  # Differs: the document has torch's tensors; here numpy arrays, ntgrad's tensors and what speaks DLPack
  kernel = ninetoothed.make(add_arrangement, add_application, VECTORS)
  x, y, z = Values([1.0, 2, 3]), Values([4.0, 5, 6]), Values.empty(3)
  kernel(x, y, z)
  assert z.tolist() == [5, 7, 9]


# ---- indexing and iteration: the product of matrices

BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K = (ninetoothed.block_size() for _ in range(3))


def product_arrangement(input: Tensor, other: Tensor, output: Tensor, m: Any = BLOCK_SIZE_M, n: Any = BLOCK_SIZE_N,
                        k: Any = BLOCK_SIZE_K, steps: int = 3) -> tuple[Tensor, ...]:
  """After ``steps``: 0 tiles, 1 rows and columns of tiles, 2 one for each tile of the output, 3 without the dims of 1."""
  output = output.tile((m, n))
  input, other = input.tile((m, k)), other.tile((k, n))
  if steps > 0: input, other = input.tile((1, -1)), other.tile((-1, 1))
  if steps > 1: input, other = input.expand((-1, output.shape[1])), other.expand((output.shape[0], -1))
  if steps > 2: input.dtype, other.dtype = input.dtype.squeeze(0), other.dtype.squeeze(1)
  return input, other, output


def product_application(input: Any, other: Any, output: Any) -> None:
  accumulator = ntl.zeros(output.shape, dtype=ntl.float32)
  for k in range(input.shape[0]): accumulator += ntl.dot(input[k], other[k])
  output = accumulator   # noqa: F841


MATRICES = Tensor(2), Tensor(2), Tensor(2)


@pytest.mark.parametrize("steps, outermost, second", [
  (0, [(4, 4), (4, 4), (4, 4)], [(2, 2), (2, 2), (2, 2)]),
  (1, [(4, 1), (1, 4), (4, 4)], [(1, 4), (4, 1), (2, 2)]),
  (2, [(4, 4), (4, 4), (4, 4)], [(1, 4), (4, 1), (2, 2)]),
  (3, [(4, 4), (4, 4), (4, 4)], [(4,), (4,), (2, 2)]),
])
def test_the_arrangement_step_by_step(steps: int, outermost: list[tuple[int, ...]], second: list[tuple[int, ...]]) -> None:
  """The figures of the product, for matrices of 8 by 8 and blocks of 2 by 2."""
  matrices = [Tensor(shape=(8, 8), name=n) for n in ("input", "other", "output")]
  arranged = product_arrangement(*matrices, 2, 2, 2, steps)
  assert [t.shape for t in arranged] == outermost and [t.dtype.shape for t in arranged] == second
  for t in arranged: assert ninetoothed.visualize(t).svg.startswith("<svg")


def test_outermost_levels_must_have_one_shape() -> None:
  matrices = tuple(Tensor(shape=(8, 8)) for _ in range(3))
  unfinished = partial(product_arrangement, m=2, n=2, k=2, steps=1)
  said = refusal(ShapeError, ninetoothed.make, unfinished, product_application, matrices)
  assert said == (
    "product_application: the outermost level of other is (1, 4), that of input is (4, 1); all parameters are arranged for the "
    "same grid"
  )


def test_without_squeeze_rows_and_columns_have_two_dimensions() -> None:
  def application(input: Any, other: Any, output: Any) -> None:
    accumulator = ntl.zeros(output.shape, dtype=ntl.float32)
    for k in range(input.shape[1]): accumulator += ntl.dot(input[0, k], other[k, 0])
    output = accumulator   # noqa: F841

  kernel = ninetoothed.make(partial(product_arrangement, steps=2), application, MATRICES)
  a, b, c = numbers((20, 33), "float32"), numbers((33, 17), "float32"), np.empty((20, 17), np.float32)
  kernel(a, b, c)
  np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("shapes", [((2, 2), (2, 2)), ((100, 70), (70, 90)), ((16, 1), (1, 16))], ids=str)
def test_product(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
  kernel = ninetoothed.make(product_arrangement, product_application, MATRICES)
  input, other = (numbers(s) for s in shapes)
  if shapes[0] == (2, 2): input, other = np.array(((1, 2), (3, 4)), np.float16), np.array(((5, 6), (7, 8)), np.float16)
  output = np.empty((input.shape[0], other.shape[1]), np.float16)
  kernel(input, other, output)
  np.testing.assert_array_equal(output, input.astype(np.float32) @ other.astype(np.float32))
  if shapes[0] == (2, 2): assert output.tolist() == [[19, 22], [43, 50]]


def test_the_articles_names() -> None:
  """The Chinese article calls the factors lhs and rhs."""
  kernel = ninetoothed.make(product_arrangement, product_application, MATRICES)
  lhs, rhs = Values([[1.0, 2], [3, 4]]), Values([[5.0, 6], [7, 8]])
  output = Values.empty(lhs.shape[0], rhs.shape[1])
  kernel(lhs, rhs, output)
  assert output.tolist() == [[19, 22], [43, 50]]


# ---- NineToothed's readme: jit and annotations

BLOCK_SIZE = Symbol("BLOCK_SIZE", meta=True)


def test_jit_reads_the_arrangement_from_annotations() -> None:
  @ninetoothed.jit
  def add_kernel(
    x: Tensor(1).tile((BLOCK_SIZE,)), y: Tensor(1).tile((BLOCK_SIZE,)), z: Tensor(1).tile((BLOCK_SIZE,))   # type: ignore[valid-type]
  ) -> None:
    z = x + y   # noqa: F841

  x, y = numbers((8192,)), numbers((8192,)) * 2
  z = np.empty_like(x)
  add_kernel(x, y, z)
  np.testing.assert_array_equal(z, x + y)
  assert repr(add_kernel) == "<tile kernel add_kernel(x, y, z)>"


def test_a_vector_of_8192_in_blocks_of_1024_has_8_blocks() -> None:
  tiled = Tensor(1).tile((BLOCK_SIZE,))
  assert Tensor(shape=(8192,)).tile((1024,)).shape == (8,)
  assert tiled.eval({tiled.source.shape[0]: 8192, BLOCK_SIZE: 1024}).shape == (8,) + (1024,)
  kernel = ninetoothed.make(partial(add_arrangement, BLOCK_SIZE=1024), add_application, VECTORS)
  made = kernel.specialise(*(((8192,), "float32"),) * 3)
  assert str(made.kernel.axes[0]) == "a0:8 GRID"


def test_a_product_by_jit_with_a_result_of_float16() -> None:
  m, n, k = (Symbol(f"BLOCK_SIZE_{d}", meta=True) for d in "MNK")
  a_tiled, b_tiled, c_tiled = product_arrangement(Tensor(2), Tensor(2), Tensor(2), m, n, k)

  @ninetoothed.jit
  def matmul_kernel(a: a_tiled, b: b_tiled, c: c_tiled) -> None:   # type: ignore[valid-type]
    accumulator = ninetoothed.language.zeros(c.shape, dtype=ninetoothed.language.float32)
    for k in range(a.shape[0]): accumulator += ninetoothed.language.dot(a[k], b[k])
    c = accumulator.to(ninetoothed.language.float16)   # noqa: F841

  a, b = numbers((48, 30)), numbers((30, 65))
  c = np.empty((48, 65), np.float16)
  matmul_kernel(a, b, c)
  np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


def test_kernels_become_triton() -> None:
  """"A DSL based on Triton": no pointer and no mask was written, and the source has them."""
  kernel = ninetoothed.make(partial(product_arrangement, m=16, n=16, k=16), product_application, MATRICES)
  text = kernel.source("triton", *(((40, 40), "float16"),) * 3)
  assert "@triton.jit" in text and "tl.dot(" in text and "mask=" in text


def test_an_application_is_no_lambda() -> None:
  said = refusal(ArgumentError, ninetoothed.make, add_arrangement, lambda x, y, z: None, VECTORS)
  assert said == "make: the application is a lambda, which cannot assign to its parameters; write it with def"


def test_an_application_stores() -> None:
  def gives(x: Any, y: Any, z: Any) -> Any: return x + y
  kernel = ninetoothed.make(partial(add_arrangement, BLOCK_SIZE=16), gives, VECTORS)
  assert "an application stores" in refusal(ApplicationError, kernel, *(np.ones(4, np.float32),) * 3)


# ---- tinygrad: the dot product

SCRIPT = """
from ntgrad import Tensor
a = Tensor([1,2,3,4])
b = Tensor([5,6,7,8])
a = a.dot(b)
print(a.numpy())
"""

# the fourteen lines of the loop: op, dtype, sources, argument
LOOP = [
  "UOps.DEFINE_GLOBAL ptr.dtypes.int [] (0, 'data0', True)", "UOps.DEFINE_GLOBAL ptr.dtypes.int [] (1, 'data1', False)",
  "UOps.DEFINE_GLOBAL ptr.dtypes.int [] (2, 'data2', False)", "UOps.DEFINE_ACC dtypes.int [] 0", "UOps.CONST dtypes.int [] 0",
  "UOps.CONST dtypes.int [] 4", "UOps.LOOP dtypes.int [4, 5] None", "UOps.LOAD dtypes.int [1, 6] None",
  "UOps.LOAD dtypes.int [2, 6] None", "UOps.ALU dtypes.int [7, 8] BinaryOps.MUL", "UOps.ALU dtypes.int [9, 3] BinaryOps.ADD",
  "UOps.PHI dtypes.int [3, 10, 6] None", "UOps.ENDLOOP [6] None", "UOps.STORE [0, 4, 11] None",
]


def listed(text: str) -> list[str]:
  """The lines of a listing without their numbers and spaces."""
  found = re.findall(r"^ *(\d+) (UOps\.\w+) *: *(.*)$", text, re.MULTILINE)
  assert [int(number) for number, _, _ in found] == list(range(len(found)))
  return [" ".join([op, *rest.split()]) for _, op, rest in found]


def shown(**settings: str) -> str:
  """What the script prints with these settings, as a process of its own."""
  root = str(Path(__file__).resolve().parents[2])
  environment = {**os.environ, "PYTHONPATH": root, "DEV": "CPU", **settings}
  done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=300)
  assert done.returncode == 0, done.stderr
  return done.stdout


def test_noopt_shows_the_loop() -> None:
  out = shown(NOOPT="1", DEBUG="5")
  assert listed(out) == LOOP and out.rstrip().endswith("70")
  # Differs: the source is OpenCL's, since that is what a CPU runs; Metal's text is below
  source = out[out.index("void r_4("):out.index("linear UOps")]
  assert "for (int i0 = 0; i0 < 4; i0++) {" in source and "acc0 = val0*val1 + acc0;" in source and "data0[0] = acc0;" in source


def test_by_default_there_is_no_loop() -> None:
  out = shown(DEBUG="5", VECTOR_BITS="512")   # which vectors a CPU has says what is chosen
  source = out[out.index("void r_4("):out.index("linear UOps")]
  assert "for (" not in source and not any("LOOP" in line for line in listed(out)) and out.rstrip().endswith("70")
  assert [line.split()[-1] for line in listed(out) if line.startswith("UOps.CONST")] == ["0", "1", "2", "3"]
  assert len(re.findall(r"int val\d = data[12]\[\d\];", source)) == 8
  # Differs: the sum is in index order, as the loop's is, and nothing is added to an accumulator of 0
  assert "data0[0] = val0*val1 + val2*val3 + val4*val5 + val6*val7;" in source and "acc0" not in source


def test_without_settings_nothing_but_the_result_is_printed() -> None: assert shown(DEBUG="0").split() == ["70"]


def dot(values: list[Any]) -> Linearizer:
  """The Linearizer of a dot product, made as older scripts make it."""
  a, b = Values(values).realize(), Values(values).realize()
  item = create_schedule([a.dot(b).lazydata])[0]
  assert item.ast is not None
  return Linearizer(*item.ast)


def test_the_linearizer_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
  k = dot([1.0, 2.0, 3.0])
  k.linearize()
  capsys.readouterr()
  k.uops.print()
  floats = [line.replace("dtypes.int", "dtypes.float") for line in LOOP]
  floats[3] = floats[3].replace("[] 0", "[] 0.0")
  for i in (4, 5, 6): floats[i] = LOOP[i].replace("[] 4", "[] 3")   # positions are ints
  assert listed(capsys.readouterr().out) == floats


METAL = "kernel void codegen(device int* data0, const device int* data1, const device int* data2, " \
  "uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {"


def test_metals_source_of_the_loop() -> None:
  k = dot([1, 2, 3, 4]).linearize()
  assert render("metal", "codegen", k.uops.uops).split("\n\n")[1].rstrip().split("\n") == [
    METAL, "  int acc0 = 0;", "  for (int ridx0 = 0; ridx0 < 4; ridx0++) {", "    int val0 = *(data1+ridx0);",
    "    int val1 = *(data2+ridx0);", "    acc0 = ((val0*val1)+acc0);", "  }", "  *(data0+0) = acc0;", "}",
  ]


def test_metals_source_after_upcast() -> None:
  k = dot([1, 2, 3, 4])
  k.upcast()
  lines = render("metal", "codegen", k.linearize().uops).split("\n\n")[1].rstrip().split("\n")
  assert lines[0] == METAL and lines[-1] == "}"
  # Differs: each load stands before its first use; the sum is in index order, without acc0
  assert sorted(line.split(" = ")[1] for line in lines[1:-2]) == sorted(f"*(data{d}+{i});" for d in (1, 2) for i in range(4))
  assert lines[-2] == "  *(data0+0) = ((val0*val1)+(val2*val3)+(val4*val5)+(val6*val7));"


def test_upcast_unrolls() -> None:
  k = dot([1.0, 2.0, 3.0])
  # the number of copies is the size of an axis that has another kind: what the notes' `upcasted` counts
  assert [a.size for a in k.kernel.of_kind(AxisKind.LOOP)] == [3] and not k.kernel.of_kind(AxisKind.UNROLL)
  k.upcast()
  assert [a.size for a in k.kernel.of_kind(AxisKind.UNROLL)] == [3] and not k.kernel.of_kind(AxisKind.LOOP)
  assert list(map(str, k.kernel.applied)) == ["a0.unroll()"]
  k.linearize()
  counts = {op: sum(u.op is op for u in k.uops) for op in (Ops.LOAD, Ops.LOOP, Ops.ENDLOOP, Ops.PHI, Ops.STORE)}
  assert counts == {Ops.LOAD: 6, Ops.LOOP: 0, Ops.ENDLOOP: 0, Ops.PHI: 0, Ops.STORE: 1}
  assert [u.arg for u in k.uops if u.op is Ops.CONST] == [0, 1, 2]
  assert {u.src[1].arg for u in k.uops if u.op is Ops.LOAD} == {0, 1, 2}
  # Differs: no DEFINE_ACC is left, so there are two additions and not three
  assert [u.arg for u in k.uops if u.op is Ops.ALU].count(BinaryOps.ADD) == 2 and UOps.DEFINE_ACC not in {u.op for u in k.uops}


def test_upcast_of_any_length_and_the_heuristic_that_bounds_it() -> None:
  long = create_schedule([Values.empty(512).dot(Values.empty(512))])[-1].ast
  assert long is not None
  k = Linearizer(long)
  k.upcast()
  assert sum(u.op is Ops.LOAD for u in k.linearize().uops) == 1024
  chosen = Linearizer(long, renderer("opencl").target).optimize()
  assert sum(u.op is Ops.LOOP for u in chosen.linearize().uops) == 1


def test_where_the_loop_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
  """The notes stop in the linearizer: parameters first, then accumulator, loop, loads and arithmetic, and the store last. Here
  it is a pass, and ``SHOW`` prints a kernel before and after it."""
  k = dot([1, 2, 3, 4])
  reduced = next(u for u in k.kernel.nodes if u.op is Ops.REDUCE)
  below = {u for u in k.kernel.nodes if u.op is Ops.LOAD}
  assert reduced.arg == (BinaryOps.ADD, (0,)) and len(below) == 2   # the notes' earlybufs: data1 and data2
  capsys.readouterr()
  with config(show="expand,place"): k.linearize()
  before, after = capsys.readouterr().out.split("after place")
  assert "REDUCE" in before and "UOps.LOOP" not in before
  assert "REDUCE" not in after and [line.split()[0] for line in listed(after)] == [line.split()[0] for line in LOOP]


# ---- Croktile: anonymous dimensions


def doubled(x: Any, y: Any) -> None:
  y = x * 2   # noqa: F841


def one_tile_a_row(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]: return x.tile((1, 1, 2)), y.tile((1, 1, 2))


def test_an_anonymous_dimension_takes_any_size() -> None:
  foo = ninetoothed.make(one_tile_a_row, doubled, (Tensor(shape=("?", 1, 2), dtype="int32"),) * 2, kernel_name="foo")
  for rows in (1, 5, 12):   # "provided at run time"
    x, y = numbers((rows, 1, 2), "int32"), np.zeros((rows, 1, 2), np.int32)
    foo(x, y)
    np.testing.assert_array_equal(y, 2 * x)
  wrong = np.zeros((5, 3, 2), np.int32)
  assert refusal(ShapeError, foo, wrong, wrong) == "foo: dimension 1 of x is 1, got a tensor of shape (5, 3, 2)"
  flat = np.zeros((5, 2), np.int32)
  assert refusal(ShapeError, foo, flat, flat) == "foo: x has 3 dimensions, got a tensor of shape (5, 2)"
  floats = np.zeros((5, 1, 2), np.float32)
  assert refusal(DTypeError, foo, floats, floats) == "foo: x has elements of dtypes.int, got a tensor of dtypes.float"


def test_two_anonymous_dimensions_are_two_names() -> None:
  a, b = Tensor(shape=("?", None), name="t").shape
  assert str((a, b)) == "(t_size_0, t_size_1)" and bool(a == b) is False


# ---- symbolic dimensions


def croktile_arrangement(lhs: Tensor, rhs: Tensor, out: Tensor) -> tuple[Tensor, ...]:
  return product_arrangement(lhs, rhs, out, 32, 8, 16)


def croktile_application(lhs: Any, rhs: Any, out: Any) -> None:
  total = ntl.zeros(out.shape, dtype=ntl.int32)
  for k in range(lhs.shape[0]): total += ntl.dot(lhs[k], rhs[k])
  out = total   # noqa: F841


def croktile(*shapes: tuple[str, str]) -> Any:
  tensors = tuple(Tensor(shape=s, dtype="int32") for s in shapes)
  return ninetoothed.make(croktile_arrangement, croktile_application, tensors, kernel_name="Matmul")


def test_symbolic_dimensions_multiply() -> None:
  kernel = croktile(("M", "K"), ("K", "N"), ("M", "N"))
  for m, k, n in ((64, 32, 48), (5, 7, 9)):
    lhs, rhs, out = numbers((m, k), "int32"), numbers((k, n), "int32"), np.zeros((m, n), np.int32)
    kernel(lhs, rhs, out)
    np.testing.assert_array_equal(out, lhs @ rhs)


def test_one_symbol_has_one_size() -> None:
  """Croktile: "dimension 'K' is not consistent"."""
  kernel = croktile(("M", "K"), ("K", "N"), ("M", "N"))
  lhs, rhs, out = (np.ones(s, np.int32) for s in ((64, 32), (40, 48), (64, 48)))
  assert refusal(ShapeError, kernel, lhs, rhs, out) == (
    "Matmul: K is 32 in dimension 1 of lhs and 40 in dimension 0 of rhs; one symbol has one size"
  )


def test_anonymous_dimensions_are_checked_by_use() -> None:
  # Differs: Croktile does not check anonymous K's against each other; ntgrad does, since one index goes through both
  kernel = croktile(("?", "?"), ("?", "?"), ("?", "?"))
  lhs, rhs, out = (np.ones(s, np.int32) for s in ((64, 32), (40, 48), (64, 48)))
  assert "dimension 1 of lhs has 32 elements, dimension 0 of rhs has 40" in refusal(ShapeError, kernel, lhs, rhs, out)


def test_names_prove_when_the_kernel_is_made_what_is_otherwise_checked_at_the_call() -> None:
  """The host code that Croktile generates is here a list of what is checked, with the line of host code of each."""
  symbolic = croktile(("M", "K"), ("K", "N"), ("M", "N")).assessments().split("\n")
  anonymous = croktile(("?", "?"), ("?", "?"), ("?", "?")).assessments().split("\n")
  assert all(line.startswith("holds always") for line in symbolic)
  check = "host: if not (cdiv(out.shape[0], 32) == cdiv(lhs.shape[0], 32)): raise ShapeError"
  assert sum(check in line for line in anonymous) == 2


def test_ranks_are_compared_when_the_kernel_is_made() -> None:
  """Croktile: "'mdspan' and 'ituple': rank must be same"."""
  assert refusal(ShapeError, Tensor(shape=("M", "K"), name="lhs").tile, (32, 16, 8)) == (
    "tile: one tile size a dimension, so 2 of them, got (32, 16, 8); in lhs(M, K)"
  )


def whole_blocks(lhs: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
  return lhs.tile((32, 16), floor_mode=True).tile((-1, -1)), out.tile((1, 1))


def add_up(lhs: Any, out: Any) -> None:
  total = ntl.zeros((1, 1), dtype=ntl.int32)
  for i in range(lhs.shape[0]):
    for j in range(lhs.shape[1]): total += ntl.sum(lhs[i, j])
  out = total   # noqa: F841


def test_no_blocks_at_all_is_an_error_at_the_call() -> None:
  """Croktile's M / 32 counts whole blocks, of which there must be one; so does ``floor_mode``."""
  kernel = ninetoothed.make(whole_blocks, add_up, (Tensor(shape=("M", "K")), Tensor(2)), kernel_name="blocks")
  lhs, out = np.ones((70, 40), np.int32), np.zeros((1, 1), np.int32)
  kernel(lhs, out)
  assert out[0, 0] == 64 * 32
  assert "at a call: M // 32 > 0; dimension 0 of lhs has a whole window of 32  [test_documents.py:" in kernel.assessments()
  assert "host: if not (lhs.shape[0] // 32 > 0): raise ShapeError" in kernel.assessments()
  said = refusal(ShapeError, kernel, np.ones((20, 32), np.int32), out)
  assert said.startswith("lhs: tile: no window of 32 lies inside dimension 0, which has 20 elements; in lhs(M, K).tile((32, 16)")


def test_with_fixed_shapes_it_is_an_error_when_the_kernel_is_made() -> None:
  said = refusal(ShapeError, ninetoothed.make, whole_blocks, add_up, (Tensor(shape=(16, 32)), Tensor(2)))
  assert said.startswith("tile: no window of 32 lies inside dimension 0, which has 16 elements")
  # Differs: tiles without floor_mode hang over the edge instead of being left out, so 20 rows are one block of 32
  assert Tensor(shape=(20, 32)).tile((32, 16)).shape == (1, 2)


def test_assertions_of_ones_own() -> None:
  def arrangement(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    ninetoothed.check(x.shape[0] // 32 > 0, "x has no whole block of rows")
    return x.tile((32,)), y.tile((32,))

  kernel = ninetoothed.make(arrangement, doubled, (Tensor(1, name="x"), Tensor(1)))
  assert "M // 32 > 0" not in kernel.assessments() and "x_size_0 // 32 > 0; x has no whole block of rows" in kernel.assessments()
  short = np.ones(20, np.float32)
  said = refusal(ShapeError, kernel, short, short.copy())
  assert said.startswith("doubled: x has no whole block of rows (x_size_0 // 32 > 0, where x_size_0 = 20); asked for at ")


def test_sizes_of_blocks_inside_a_kernel_are_numbers() -> None:
  """Croktile: a buffer that is declared inside cannot have a symbolic dimension. Here it is refused with the line."""
  def application(x: Any, y: Any) -> None:
    y = x + ntl.zeros((Symbol("ROWS"),), dtype=ntl.float32)   # noqa: F841

  kernel = ninetoothed.make(lambda x, y: (x.tile((16,)), y.tile((16,))), application, (Tensor(1), Tensor(1)), kernel_name="foo")
  with pytest.raises(ApplicationError) as e: kernel(np.ones(32, np.float32), np.ones(32, np.float32))
  first, *where = str(e.value).split("\n")
  assert first == "ROWS has no value in this kernel; it has x_size_0, y_size_0"
  assert Path(__file__).name in where[0] and "ntl.zeros((Symbol" in where[1] and set(where[2].strip()) == {"^"}


def test_run_time_sizes_are_numbers_of_the_launch() -> None:
  """Sizes that come anew do not make a kernel each: "dynamic shapes". (The host checks, the device is given integers.)"""
  def rows(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]: return x.tile((64,)), y.tile((64,))
  kernel = ninetoothed.make(rows, doubled, (Tensor(shape=("N",)), Tensor(shape=("N",))))
  for n in (1000, 77, 4096):
    x, y = numbers((n,), "float32"), np.empty(n, np.float32)
    kernel(x, y)
    np.testing.assert_array_equal(y, 2 * x)
    assert kernel.arrangements().split("\n") == ["x(N).tile((64,))", "y(N).tile((64,))"]   # one kernel, whatever N is
