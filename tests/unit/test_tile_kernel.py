"""Making tile kernels, calling them in every way, what they refuse, and where they stand among lazy tensors."""
from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Tensor as Lazy
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import Ops
from ntgrad.engine.device import default_device, get_device
from ntgrad.errors import ApplicationError, ArgumentError, DTypeError, GradientError, NtgradError, ShapeError
from ntgrad.tile import Symbol, Tensor, block_size
from support.devices import missing
from support.machines import MACHINES
from support.marks import long, long_where
from support.triton import needs_triton

RNG = np.random.default_rng(1)
BLOCK = Symbol("BLOCK", constexpr=True)


def pairs(x: Tensor, y: Tensor) -> Any: return x.tile((BLOCK,)), y.tile((BLOCK,))
def triples(x: Tensor, y: Tensor, z: Tensor) -> Any: return x.tile((BLOCK,)), y.tile((BLOCK,)), z.tile((BLOCK,))
def add_tiles(x: Any, y: Any, z: Any) -> None: z = x + y
def double(x: Any, y: Any) -> None: y = x * 2
def increment(x: Any, y: Any) -> None: y += x


add = tile.make(triples, add_tiles, (Tensor(1), Tensor(1), Tensor(1)), kernel_name="add")


def vectors(n: int = 100) -> Any: return RNG.standard_normal((2, n)).astype(np.float32)


# ---- calling

def test_numpy_arrays_are_written_in_place() -> None:
  x, y = vectors()
  z = np.empty_like(x)
  assert add(x, y, z, BLOCK=32) is None
  np.testing.assert_array_equal(z, x + y)
  out = np.zeros((2, 100), np.float32)
  add(x, y, out[1], BLOCK=32)   # a view of an array
  np.testing.assert_array_equal(out, [np.zeros(100), x + y])


def test_dlpack() -> None:
  class Foreign:
    """Another library's tensor."""
    def __init__(self, a: np.ndarray): self.a, self.shape, self.dtype = a, a.shape, "foreign.float32"
    def __dlpack__(self, **kw: Any) -> Any: return self.a.__dlpack__(**kw)
    def __dlpack_device__(self) -> Any: return self.a.__dlpack_device__()
  x, y = vectors()
  z = np.empty_like(x)
  add(Foreign(x), y, Foreign(z), BLOCK=64)
  np.testing.assert_array_equal(z, x + y)


def test_lazy_tensors_are_computed_first_and_values_kept() -> None:
  x, y = vectors()
  a, b, out = Lazy(x), Lazy(y), Lazy(np.zeros(100, np.float32)).realize()
  before = out * 3 + 1                                  # reads the old contents, not computed yet
  view = out[:10]
  add((a + 1), b * 2, out, BLOCK=32)
  after = out + 0
  np.testing.assert_array_equal(out.numpy(), (x + 1) + y * 2)
  np.testing.assert_array_equal(before.numpy(), np.ones(100))
  np.testing.assert_array_equal(view.numpy(), ((x + 1) + y * 2)[:10])   # a view sees what the kernel writes
  np.testing.assert_array_equal(after.numpy(), (x + 1) + y * 2)


def test_numbers_and_zero_dimensional_tensors() -> None:
  def scaled(x: Any, by: Any, y: Any) -> None: y = x * by
  k = tile.make(lambda x, by, y: (x.tile((BLOCK,)), by, y.tile((BLOCK,))), scaled, (Tensor(1), Tensor(0), Tensor(1)))
  x, _ = vectors()
  y = np.empty_like(x)
  for by in (2.0, 3, np.float32(0.5), Lazy(4.0)):
    k(x, by, y, BLOCK=64)
    np.testing.assert_allclose(y, x * np.float32(by.item() if isinstance(by, Lazy) else by), rtol=1e-6)


def test_compile_time_numbers() -> None:
  def repeat(x: Any, times: Any, y: Any) -> None:
    total = x * 0
    for _ in range(times): total = total + x
    y = total

  k = tile.make(
    lambda x, t, y: (x.tile((BLOCK,)), t, y.tile((BLOCK,))), repeat, (Tensor(1), Tensor(0, constexpr=True), Tensor(1))
  )
  x, _ = vectors(8)
  y = np.empty_like(x)
  k(x, 3, y, BLOCK=8)
  np.testing.assert_allclose(y, x * 3, rtol=1e-6)


def test_in_place_and_plus_equals() -> None:
  k = tile.make(pairs, increment, (Tensor(1), Tensor(1)))
  x, y = vectors()
  want = y + x
  k(x, y, BLOCK=32)
  np.testing.assert_array_equal(y, want)
  t = Lazy(x).realize()
  k(t, t, BLOCK=32)                                     # each program touches its own elements only
  np.testing.assert_array_equal(t.numpy(), x * 2)


def test_jit_decorator() -> None:
  B = block_size()
  @tile.jit
  def triple(x: Tensor(1).tile((B,)), y: Tensor(1).tile((B,))) -> None:  # type: ignore[valid-type]
    y = x * 3  # noqa: F841
  x, _ = vectors()
  y = np.empty_like(x)
  triple(x, y)
  np.testing.assert_allclose(y, x * 3, rtol=1e-6)


def test_a_specialisation_is_compiled_once() -> None:
  a, b, c = (Lazy(v).realize() for v in (*vectors(96), np.zeros(96, np.float32)))
  add(a, b, c, BLOCK=32)
  count = len(add._specialised)
  built = get_device(a.device).compiler.built if hasattr(get_device(a.device), "compiler") else 0
  for _ in range(3): add(a, b, c, BLOCK=32)
  add(b, a, c, BLOCK=32)
  assert len(add._specialised) == count
  if hasattr(get_device(a.device), "compiler"): assert get_device(a.device).compiler.built == built


# ---- among lazy tensors

def test_captured() -> None:
  @ntgrad.jit
  def step(x: Lazy) -> Lazy:
    y = (x * 0).realize()
    tile_double(x + 1, y, BLOCK=32)
    return y * 10
  tile_double = tile.make(pairs, double, (Tensor(1), Tensor(1)))
  for i in range(4):
    x = np.arange(50, dtype=np.float32) + i
    np.testing.assert_array_equal(step(Lazy(x).realize()).numpy(), (x + 1) * 20)


def test_functions_have_gradients() -> None:
  def cube(x: Any, y: Any) -> None: y = x * x * x
  def cube_backward(x: Any, grad_y: Any, grad_x: Any) -> None: grad_x = 3 * x * x * grad_y
  f = tile.function(tile.make(pairs, cube, (Tensor(1),) * 2), tile.make(triples, cube_backward, (Tensor(1),) * 3))
  x = Lazy(np.arange(6, dtype=np.float32), requires_grad=True)
  (f(x * 2, BLOCK=4) * x).sum().backward()
  np.testing.assert_allclose(x.grad.numpy(), 32 * np.arange(6.0) ** 3)
  with pytest.raises(GradientError, match="give tile.function a backward kernel"):
    tile.function(tile.make(pairs, increment, (Tensor(1),) * 2))(x, BLOCK=4)
  with pytest.raises(GradientError, match="use tile.function"):
    tile.make(pairs, cube, (Tensor(1),) * 2)(x, Lazy(np.zeros(6, np.float32)), BLOCK=4)
  with pytest.raises(ArgumentError, match="has no parameter z"):
    tile.function(tile.make(pairs, cube, (Tensor(1),) * 2), outputs={"z": "x"})


def test_the_gradients_of_several_outputs_come_from_one_backward_call() -> None:
  def split(x: Any, w: Any, total: Any, product: Any) -> None:
    total = x + w
    product = x * w
  def split_backward(x: Any, w: Any, grad_total: Any, grad_product: Any, grad_x: Any, grad_w: Any) -> None:
    grad_x = grad_total + grad_product * w
    grad_w = grad_total + grad_product * x
  calls = []
  class Counted(tile.TileKernel):
    def __call__(self, *args: Any, **given: Any) -> None:
      calls.append(args)
      super().__call__(*args, **given)
  backward = tile.make(lambda *xs: tuple(x.tile((BLOCK,)) for x in xs), split_backward, (Tensor(1),) * 6)
  backward.__class__ = Counted
  f = tile.function(
    tile.make(lambda *xs: tuple(x.tile((BLOCK,)) for x in xs), split, (Tensor(1),) * 4), backward, {"total": "x", "product": "x"}
  )
  x, w = (Lazy(v, requires_grad=True) for v in vectors(20))
  total, product = f(x, w, BLOCK=8)
  # the second output depends on the first by more than one way, and is used before and after it
  (total * product.exp() + product * 3 + (total * total).sum()).sum().backward()
  a, b = x.numpy(), w.numpy()
  at_total, at_product = np.exp(a * b) + 40 * (a + b), (a + b) * np.exp(a * b) + 3
  np.testing.assert_allclose(x.grad.numpy(), at_total + at_product * b, rtol=1e-4)
  np.testing.assert_allclose(w.grad.numpy(), at_total + at_product * a, rtol=1e-4)
  assert len(calls) == 1
  for i, want in enumerate(([np.ones(20)] * 2, [b, a])):         # nothing depends on the other output: zeros
    outputs = f(x, w, BLOCK=8)
    for g, v in zip(outputs[i].sum().gradient(x, w), want): np.testing.assert_allclose(g.numpy(), v, rtol=1e-6)
    assert len(calls) == 2 + i
  total, product = f(x, w, BLOCK=8)
  np.testing.assert_array_equal((total + product).sum().gradient(total)[0].numpy(), np.ones(20))
  assert len(calls) == 3                                         # the inputs are not asked for
  total, product = f(x * 1, w, BLOCK=8)
  product.sum().item()
  tile.make(pairs, double, (Tensor(1),) * 2)(x.detach(), total.detach(), BLOCK=4)   # a copy: gradients need the result
  np.testing.assert_array_equal(total.numpy(), 2 * a)
  for g, v in zip(product.sum().gradient(x, w), (b, a)): np.testing.assert_allclose(g.numpy(), v, rtol=1e-6)


def test_function_outputs_of_another_shape() -> None:
  def row_sums(x: Any, y: Any) -> None: y = tl.sum(x, axis=1, keep_dims=True)
  k = tile.make(lambda x, y: (x.tile((4, -1)), y.tile((4, 1))), row_sums, (Tensor(2), Tensor(2)))
  f = tile.function(k, outputs={"y": lambda x: ((x.shape[0], 1), "float32")})
  x = RNG.standard_normal((10, 33)).astype(np.float32)
  np.testing.assert_allclose(f(Lazy(x)).numpy(), x.sum(1, keepdims=True), rtol=1e-5)


# ---- effects

def test_several_outputs_atomics_and_raw_places() -> None:
  def histogram(x: Any, counts: Any, total: Any) -> None:
    tl.atomic_add(counts.source[x.to(tl.int32)], 1, mask=x >= 0)
    tl.atomic_max(total.source[0], tl.max(x))

  k = tile.make(
    lambda x, c, t: (
      x.tile((16,)),
      c.tile((-1,)).expand((x.tile((16,)).shape[0],)),
      t.tile((-1,)).expand((x.tile((16,)).shape[0],)),
    ),
    histogram,
    (Tensor(1, other=-1), Tensor(1), Tensor(1)),
  )
  x = RNG.integers(0, 10, 100).astype(np.int32)
  counts, total = np.zeros(10, np.int32), np.zeros(1, np.int32)
  k(x, counts, total)
  np.testing.assert_array_equal(counts, np.bincount(x, minlength=10))
  assert total[0] == x.max()


def test_masked_loads_and_stores() -> None:
  def shifted(x: Any, y: Any) -> None:
    at = x.offsets(0)
    value = tl.load(x.source[at - 3], mask=at % 2 == 0, other=-1.0)
    tl.store(y.source[at], value, mask=at < 20)
  k = tile.make(pairs, shifted, (Tensor(1), Tensor(1)))
  x, _ = vectors(37)
  y = np.zeros_like(x)
  k(x, y, BLOCK=16)
  want = np.where(np.arange(37) % 2 == 0, np.concatenate([np.full(3, -1, np.float32), x[:-3]]), -1.0)
  want[20:] = 0
  np.testing.assert_array_equal(y, want)


def test_three_levels_and_iteration() -> None:
  def total(x: Any, y: Any) -> None:
    out = tl.zeros(y.shape)
    for row in x:
      for j in range(row.shape[0]): out += tl.sum(row[j], axis=0)
    y = out
  def arranged(x: Tensor, y: Tensor) -> Any:
    x = x.tile((4, 8)).tile((1, -1)).tile((-1, 1))       # (1, 1) of (rows of tiles, 1) of (1, columns) of (4, 8)
    x.dtype = x.dtype.squeeze(1)
    x.dtype.dtype = x.dtype.dtype.squeeze(0)
    return x.squeeze(1).squeeze(0), y.tile((-1,)).squeeze(0)
  k = tile.make(arranged, total, (Tensor(2), Tensor(1)))
  x = RNG.integers(-5, 5, (12, 24)).astype(np.float32)
  y = np.zeros(8, np.float32)
  k(x, y)
  np.testing.assert_array_equal(y, x.reshape(12, 3, 8).sum((0, 1)))


def test_reading_a_param_after_assigning_it() -> None:
  def twice(x: Any, y: Any) -> None:
    old = x + 0
    y = x * 2
    y = y + old
    y += 1
  k = tile.make(pairs, twice, (Tensor(1), Tensor(1)))
  x, y = vectors(20)
  k(x, y, BLOCK=8)
  np.testing.assert_allclose(y, x * 3 + 1, rtol=1e-6)


def test_values_read_before_a_store_stay() -> None:
  def swap(x: Any, y: Any) -> None:
    a, b = x + 0, y + 0
    x = b
    y = a
  k = tile.make(pairs, swap, (Tensor(1), Tensor(1)))
  x, y = vectors(20)
  wx, wy = y.copy(), x.copy()
  k(x, y, BLOCK=8)
  np.testing.assert_array_equal(x, wx)
  np.testing.assert_array_equal(y, wy)


def test_branches_with_effects() -> None:
  def signed(x: Any, y: Any) -> None:
    if tl.sum(x) > 0: y = x
    else: y = -x
  k = tile.make(pairs, signed, (Tensor(1), Tensor(1)))
  x, _ = vectors(40)
  y = np.zeros_like(x)
  k(x, y, BLOCK=8)
  blocks = x.reshape(5, 8)
  np.testing.assert_array_equal(y.reshape(5, 8), np.where(blocks.sum(1, keepdims=True) > 0, blocks, -blocks))


# ---- what the code is

def test_masks_and_widths() -> None:
  assert " < " not in add.source("opencl", ((64,), "float32"), ((64,), "float32"), ((64,), "float32"), BLOCK=32).split("for (")[0]
  kernel = add.specialise(*[((1 << 33,), dtypes.float32)] * 3, BLOCK=64)
  assert any(u.dtype is dtypes.int64 for u in kernel.uops), "an index past 2**31 is 64 bits wide"
  small = add.specialise(*[((1 << 20,), dtypes.float32)] * 3, BLOCK=64)
  assert not any(u.dtype is dtypes.int64 for u in small.uops) and not any(u.op is Ops.LOAD and len(u.src) > 2 for u in small.uops)


def test_a_matrix_of_2_to_the_32_elements() -> None:
  k = tile.make(lambda x, y: (x.tile((1, 128)), y.tile((1, 128))), double, (Tensor(2), Tensor(2)))
  s = k.specialise(((65536, 65536), "float32"), ((65536, 65536), "float32"))
  index = [u.src[1] for u in s.uops if u.op in (Ops.LOAD, Ops.STORE)]
  assert index and all(i.dtype is dtypes.int64 for i in index)


def test_seeing() -> None:
  shape = ((100,), "float32")
  assert add.arrangements(shape, shape, shape, BLOCK=32).split("\n") == [
    "x(100).tile((32,))",
    "y(100).tile((32,))",
    "z(100).tile((32,))",
  ]
  assert "add" in add.source("opencl", shape, shape, shape, BLOCK=32) and "UOps.STORE" in str(
    add.uops(shape, shape, shape, BLOCK=32)
  )
  with pytest.raises(ArgumentError, match="has not been called yet"): tile.make(pairs, double, (Tensor(1), Tensor(1))).source()


def test_noopt_gives_the_same() -> None:
  x, y = vectors()
  z = np.empty_like(x)
  with config(noopt=1): add(x, y, z, BLOCK=32)
  np.testing.assert_array_equal(z, x + y)


# ---- refusals

def test_refusals_of_make() -> None:
  with pytest.raises(ArgumentError, match=r"add_tiles has 3 parameters \(x, y, z\) and 2 tensors"):
    tile.make(triples, add_tiles, (Tensor(1), Tensor(1)))
  with pytest.raises(ArgumentError, match="<lambda> gives 1 values for the 2 parameters"):
    tile.make(lambda x, y: x, double, (Tensor(1), Tensor(1)))
  def halved(x: Any, y: Any, n: int) -> Any: return x.tile((8 // n,)), y.tile((4,) * n)
  for n, match in ((0, r"make: halved: ZeroDivisionError.*\n.*, in halved\n"), (2, r"tile size a dimension.*\n.*, in halved\n")):
    with pytest.raises(NtgradError, match=match): tile.make(partial(halved, n=n), double, (Tensor(1), Tensor(1)))
  with pytest.raises(ShapeError, match=r"the outermost level of y is \(1, 16\), that of x is"):
    tile.make(lambda x, y: (x.tile((4,)), y.tile((2,)).unsqueeze(0)), double, (Tensor(shape=(32,)), Tensor(shape=(32,))))
  def wrong(x: Tensor, y: Tensor) -> Any:
    return x.tile((4, 4)), y.tile((4,))
  with pytest.raises(ShapeError) as e: tile.make(wrong, double, (Tensor(1), Tensor(1)))
  assert f"{__file__}:" in str(e.value) and "x.tile((4, 4))" in str(e.value) and "^" in str(e.value)
  with pytest.raises(ArgumentError, match="not annotated"): tile.jit(double)


def test_refusals_of_a_call() -> None:
  x, y = vectors()
  z = np.empty_like(x)
  with pytest.raises(ArgumentError, match=r"takes 3 arguments \(x, y, z\), got 2"): add(x, y, BLOCK=32)
  with pytest.raises(ArgumentError, match="no value for BLOCK; give BLOCK="): add(x, y, z)
  with pytest.raises(ArgumentError, match="no compile-time value 'BLOCKS'"): add(x, y, z, BLOCKS=32)
  with pytest.raises(ArgumentError, match="BLOCK is an int"): add(x, y, z, BLOCK=3.5)
  with pytest.raises(ShapeError, match=r"outermost level of y is \(4,\), that of x is \(2,\)"): add(x[:50].copy(), y, z, BLOCK=32)
  with pytest.raises(ShapeError, match="x has 1 dimensions, got a tensor of shape"): add(x[None], y, z, BLOCK=32)
  with pytest.raises(ArgumentError, match="z is written, and the array is read-only"):
    z.flags.writeable = False
    add(x, y, z, BLOCK=32)
  with pytest.raises(ArgumentError, match="add: y: 'y' is no argument; it takes a tensor"): add(x, "y", z, BLOCK=32)
  with pytest.raises(ArgumentError, match="z is written, and got the number"): tile.make(lambda z: z, _set_one, (Tensor(0),))(1.0)


def _set_one(z: Any) -> None: z = 1.0


def test_symbols_are_checked_between_arguments() -> None:
  n = Symbol("n", upper_bound=64)
  k = tile.make(pairs, double, (Tensor(shape=(n,)), Tensor(shape=(n,), dtype="float32")))
  x, y = vectors(32)
  with pytest.raises(ShapeError, match="n is 32 in dimension 0 of x and 31 in dimension 0 of y"): k(x, y[:31].copy(), BLOCK=32)
  with pytest.raises(ShapeError, match="n is between 0 and 64, got 100"): k(*vectors(100), BLOCK=32)
  with pytest.raises(DTypeError, match="y has elements of .*float, got a tensor of .*double"):
    k(x, y.astype(np.float64), BLOCK=32)


def test_overlapping_memory_is_refused() -> None:
  def rows(x: Any, y: Any) -> None: y = x * 2
  k = tile.make(lambda x, y: (x.tile((8,)).flip(0), y.tile((8,))), rows, (Tensor(1), Tensor(1)))
  t = Lazy(vectors(32)[0]).realize()
  other = Lazy(vectors(32)[0]).realize()
  for _ in range(2):                                    # whatever was called before
    with pytest.raises(ArgumentError, match="y and x are the same memory"): k(t, t)
    with pytest.raises(ArgumentError, match="y and x are the same memory"): k(t.detach(), t)
    with pytest.raises(ArgumentError, match="y and x are the same memory"): k(t.reshape(4, 8).reshape(32), t)
    before = t.numpy()
    k(t, other)                                         # of the same signature
    np.testing.assert_array_equal(other.numpy(), before.reshape(4, 8)[::-1].ravel() * 2)
    np.testing.assert_array_equal(t.numpy(), before)


def mirror(x: Any, y: Any) -> None: tl.store(y.source[x.offsets(0)], tl.load(x.source[31 - x.offsets(0)]))


@pytest.mark.parametrize(
  "arranged, application, fits",
  [
    (lambda x: x.tile((8,)), double, True),
    (lambda x: x.tile((8,), strides=(4,)), double, False),
    (lambda x: x.tile((2,), strides=(2,), dilation=(3,)), double, True),
    (lambda x: x.tile((2,), strides=(3,), dilation=(3,)), double, False),
    (lambda x: x.unsqueeze(0).expand((2, -1)).tile((1, 8)), double, False),
    (lambda x: x.tile((8,)), mirror, False),
  ],
)
def test_one_memory_twice_where_programs_have_their_own(arranged: Any, application: Any, fits: bool) -> None:
  k = tile.make(lambda x, y: (arranged(x), arranged(y)), application, (Tensor(1), Tensor(1)))
  t = Lazy(vectors(32)[0]).realize()
  k(t, Lazy(vectors(32)[1]).realize())
  if fits: k(t, t)
  else:
    with pytest.raises(ArgumentError, match="y and x are the same memory"): k(t, t)


@pytest.mark.skipif(default_device() not in ("CPU", "NUMPY"), reason="numpy's memory is a host's")
def test_pieces_of_another_library_that_overlap() -> None:
  k = tile.make(pairs, double, (Tensor(1), Tensor(1)))
  memory = np.arange(256, dtype=np.float32)
  memory = memory[-memory.ctypes.data // 4 % 64:]        # a multiple of 256 bytes
  x, y, far = (Lazy.from_dlpack(memory[i:i + 64], copy=False) for i in (0, 32, 64))
  k(x, far, BLOCK=8)
  for _ in range(2):
    with pytest.raises(ArgumentError, match="y and x overlap in memory"): k(x, y, BLOCK=8)


def test_nothing_stored_and_values_returned() -> None:
  def nothing(x: Any, y: Any) -> None: z = x + y  # noqa: F841
  def gives(x: Any, y: Any) -> Any: return x + y
  shape = ((8,), "float32")
  with pytest.raises(ApplicationError, match="stores nothing; assign to one of x, y"):
    tile.make(pairs, nothing, (Tensor(1),) * 2).specialise(shape, shape, BLOCK=4)
  with pytest.raises(ApplicationError, match="returns a value"):
    tile.make(pairs, gives, (Tensor(1),) * 2).specialise(shape, shape, BLOCK=4)


def test_a_store_of_a_wrong_shape() -> None:
  def wrong(x: Any, y: Any) -> None: y = tl.zeros((3,))
  with pytest.raises(NtgradError, match=r"storing into y: a block of shape \(3,\) where one of \(4,\) is wanted"):
    tile.make(pairs, wrong, (Tensor(1),) * 2).specialise(((8,), "float32"), ((8,), "float32"), BLOCK=4)


def test_empty_tensors_run_nothing() -> None:
  z = np.empty(0, np.float32)
  add(z, z, z.copy(), BLOCK=32)


# ---- the tuner

def test_what_a_search_has_found_is_kept_on_ctrl_c(tmp_path: Any, monkeypatch: Any) -> None:
  from ntgrad.tile import tune as module
  asked: list[float] = []
  def measure(self: Any, program: Any) -> float:
    asked.append(0.5 ** len(asked))
    if len(asked) == 3: raise KeyboardInterrupt
    return asked[-1]
  monkeypatch.setattr(module.Bench, "measure", measure)
  B = block_size(8, 32)
  def made() -> Any:
    def halves(x: Any, y: Any) -> None:
      total = x * 0
      for _ in range(3): total = total * 0.5 + x
      y += total
    return tile.make(lambda x, y: (x.tile((B,)), y.tile((B,))), halves, (Tensor(1), Tensor(1)), kernel_name="halved")
  x, start = vectors(64)
  with config(tune=1, cache=1, cache_dir=str(tmp_path)):
    first = made()
    with pytest.raises(KeyboardInterrupt): first(x, start.copy())
    for k in (first, made()):   # here, and in another process
      y = start.copy()
      k(x, y)
      np.testing.assert_allclose(y, start + 1.75 * x, rtol=1e-4, atol=1e-5)
    assert len(asked) == 3 and k.last.values == first.last.values


def test_tuning_searches_once_and_remembers(tmp_path: Any, monkeypatch: Any) -> None:
  """Three block sizes are tried (on copies of what is written), the choice is kept on disk, and another process finds it."""
  from ntgrad.tile import kernel as module
  searched = []
  real = module.search_values
  def search(*args: Any) -> Any:
    searched.append(real(*args))
    return searched[-1]
  monkeypatch.setattr(module, "search_values", search)
  B = block_size(8, 32)
  def made() -> Any:
    def halves(x: Any, y: Any) -> None:
      total = x * 0
      for _ in range(3): total = total * 0.5 + x   # carried from round to round, so that block sizes make different kernels
      y += total
    return tile.make(lambda x, y: (x.tile((B,)), y.tile((B,))), halves, (Tensor(1), Tensor(1)), kernel_name="halves")
  x, start = vectors(64)
  with config(tune=1, cache=1, cache_dir=str(tmp_path)):
    first, y = made(), start.copy()
    first(x, y)
    np.testing.assert_allclose(y, start + 1.75 * x, rtol=1e-4, atol=1e-5)
    each = 2 if get_device(default_device()).renderer.target.blocks else 1   # numbers of warps
    assert len(searched) == 1 and sum("µs" in line for line in searched[0][1]) == 3 * each
    first(x, start.copy())
    second = made()
    second(x, start.copy())
    assert len(searched) == 1 and second.last.values == first.last.values
  with config(tune=0):
    third = made()
    third(x, start.copy())
    assert third.last.values[str(B)] == 32 and len(searched) == 1


def test_several_calls_share_one_budget(tmp_path: Any, monkeypatch: Any) -> None:
  """What one search leaves is the next ones'; shapes that round up to the same are searched once; nothing is written."""
  from ntgrad.tile import kernel as module
  clock, given = [0.0], []
  def search(kernel: Any, symbols: Any, specialise: Any, device: Any, inputs: Any, interrupted: Any, seconds: float) -> Any:
    given.append(seconds)
    clock[0] += 2.0 if len(given) == 1 else 9.0
    if len(given) == 4: raise KeyboardInterrupt
    return {str(symbols[0]): 8 * len(given)}, []
  monkeypatch.setattr(module, "search_values", search)
  monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
  B = block_size(8, 64)
  def doubled(x: Any, y: Any) -> None: y = x * 2  # noqa: F841
  def made() -> Any: return tile.make(lambda x, y: (x.tile((B,)), y.tile((B,))), doubled, (Tensor(1), Tensor(1)))
  def call(n: int) -> tuple[Any, Any]: return np.ones(n, np.float32), np.zeros(n, np.float32)
  calls = [call(n) for n in (60, 64, 1000, 5000)]
  with config(tune=1, cache=1, cache_dir=str(tmp_path)):
    k = made()
    found = k.tune(*calls, seconds=12)
    assert [v[str(B)] for v in found] == [8, 8, 16, 24]
    assert given == [3.0, 5.0, 1.5]   # (12 - 2) / 2, and after one that took 9 half an even share
    assert not any(y.any() for _, y in calls)
    for again in k, made():
      for (x, y), values in zip(calls, found):
        again(x, y)
        assert again.last.values[str(B)] == values[str(B)] and (y == 2).all()
    with pytest.raises(KeyboardInterrupt): k.tune(call(7), call(9), call(100000))
    assert len(given) == 4 and k.seconds is None and k.tune(*calls) == found   # a call goes on as without
    for wrong, match in (((call(64), 3), "a call is a tuple of its arguments, got 3"), (((1, 2, 3),), "takes 2 arguments")):
      with pytest.raises(ArgumentError, match=match): k.tune(*wrong)
    for seconds in (0, -1.0, float("nan"), "2"):
      with pytest.raises(ArgumentError, match="seconds is .* greater than 0"): k.tune(call(64), seconds=seconds)
    with pytest.raises(ArgumentError, match="add.tune: it has no block_size"): add.tune(call(64))


def test_a_candidate_that_fails_is_dropped_with_a_reason(tmp_path: Any) -> None:
  from ntgrad.tile.launch import describe_argument
  from ntgrad.tile.tune import search_values
  B = block_size(8, 32)
  def sized(x: Any, y: Any) -> None:
    tl.static_assert(x.shape[0] != 16, "sixteen is too many")
    y = tl.cumsum(x, axis=0)
  k = tile.make(lambda x, y: (x.tile((B,)), y.tile((B,))), sized, (Tensor(1), Tensor(1)))
  x, y = (Lazy(v).realize() for v in vectors(64))
  device = get_device(x.device)
  arguments = [describe_argument(t) for t in (x, y)]
  values = k.bind(arguments, {})
  found, lines = search_values(k, [k.symbols[str(B)]], lambda v: k.build(arguments, {}, values | v), device,
                        [t.lazydata.arg for t in (x, y)])
  assert any("sixteen is too many" in line for line in lines) and found[str(B)] != 16


def test_a_choice_made_on_one_device_serves_no_other(tmp_path: Any, monkeypatch: Any) -> None:
  from ntgrad.tile import kernel as module
  searched: list[str] = []
  def search(kernel: Any, symbols: Any, specialise: Any, device: Any, *_: Any) -> Any:
    searched.append(device.identity)
    return {str(symbols[0]): 8 * len(searched)}, []
  monkeypatch.setattr(module, "search_values", search)
  B = block_size(8, 64)

  def made() -> Any:
    return tile.make(lambda x, y, n: (x.tile((B,)), y.tile((B,)), n), power, (Tensor(1), Tensor(1), Tensor(0, constexpr=True)))

  def power(x: Any, y: Any, n: Any) -> None: y = x ** n
  def chosen(k: Any, device: str, n: int = 2) -> int:
    x, y = (Lazy(v, device=device).realize() for v in vectors(64))
    k(x, y, n)
    return int(k.last.values[str(B)])
  with config(tune=1, cache=1, cache_dir=str(tmp_path)):
    first = made()
    assert [chosen(first, d) for d in ("CPU", "NUMPY", "CPU", "NUMPY")] == [8, 16, 8, 16]
    assert len(set(searched)) == 2
    assert [chosen(made(), d) for d in ("NUMPY", "CPU")] == [16, 8]      # found on disk
    monkeypatch.setattr(get_device("CPU"), "identity", "the same device after an update of its driver")
    assert chosen(made(), "CPU") == 24 and chosen(made(), "NUMPY") == 16
    assert chosen(made(), "NUMPY", 3) == 32                              # another number makes another kernel


def test_the_assigned_default_device_is_where_arrays_go(monkeypatch: Any) -> None:
  from ntgrad.engine import device as engine
  monkeypatch.setattr(ntgrad.Device, "assigned", "NUMPY")
  def other(name: str) -> Any: raise AssertionError(f"{name} was opened")
  monkeypatch.setattr(engine, "_open", {"NUMPY": get_device("NUMPY")})
  monkeypatch.setattr(engine, "_make", other)
  x, y = vectors(16)
  k = tile.make(pairs, double, (Tensor(1), Tensor(1)))
  k(x, y, BLOCK=4)
  np.testing.assert_array_equal(y, x * 2)
  assert k.specialise(x, y, BLOCK=4) is k.last
  assert tile.function(k)(x, BLOCK=4).device == "NUMPY"
  np.testing.assert_array_equal(tile.apply(lambda x: x + 1.0, x), x + 1)
  assert default_device() == ntgrad.Device.DEFAULT == "NUMPY"
  for t in (
    Lazy(1.0),
    Lazy([1.0]),
    Lazy.zeros(2),
    Lazy.arange(3),
    Lazy.rand(2),
    Lazy.full((2,), 3.0) + 1,
    Lazy.eye(2).contiguous(),
  ):
    assert t.realize().device == "NUMPY" and t.lazydata.device in (None, "NUMPY")


# ---- ahead of time

def test_built_kernels_run_without_reading_or_compiling(tmp_path: Any) -> None:
  import subprocess
  import sys
  from pathlib import Path
  def premake(scale: int) -> Any:
    def scaled(x: Any, y: Any) -> None: y = x * scale
    return pairs, scaled, (Tensor(1), Tensor(1))
  def one(n: int, scale: int, dtype: str = "float32") -> tile.Config:
    return tile.Config((scale,), {}, [((n,), dtype), ((n,), dtype)], {"BLOCK": 32})
  folder = tile.build(premake, [one(100, 2), one(64, 3), one(100, 5, "float64")], tmp_path / "built", kernel_name="scaled").folder
  assert sorted(p.name for p in folder.iterdir())[-1] == "scaled_2.cl" and (folder / "manifest.json").exists()
  script = """
import sys, numpy as np
import ntgrad.tile as tile, ntgrad.tile.interpret as interpret
from ntgrad.backends.opencl.compiler import Compiler
def never(*_, **__): raise AssertionError("nothing is read or built here")
build = Compiler.build
def only_the_devices_own(self, unit): never() if any("scaled" in s.name for s in unit.specs.values()) else build(self, unit)
interpret.Interpreter.application, Compiler.build = never, only_the_devices_own
kernels = tile.load(sys.argv[1])
for n, scale, dtype in ((100, 2, "float32"), (64, 3, "float32"), (100, 5, "float64")):
  x = np.arange(n, dtype=dtype); y = np.empty_like(x)
  kernels(x, y)
  assert (y == x * scale).all()
try: kernels(np.zeros(7, np.float32), np.zeros(7, np.float32))
except Exception as e: print(type(e).__name__, e)
"""
  done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=120,
                        env={**__import__("os").environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])})
  assert done.returncode == 0, done.stderr
  assert (
    done.stdout.startswith("ArgumentError")
    and "no kernel for float32(7,), float32(7,); there is float32(100,), float32(100,)" in done.stdout
  )
  with pytest.raises(ArgumentError, match="two configurations"):
    tile.build(premake, [one(100, 2), one(100, 2)], tmp_path / "again")
  binary = folder / "scaled_1.bin"
  binary.write_bytes(binary.read_bytes()[:-9])
  with pytest.raises(NtgradError, match="is damaged; build it again"):
    tile.load(folder)(np.zeros(64, np.float32), np.zeros(64, np.float32))
  with pytest.raises(NtgradError, match="no folder of built kernels"): tile.load(tmp_path)


@long
def test_built_kernels_take_arguments_as_others_do(tmp_path: Any) -> None:
  def premake() -> Any: return (lambda x, y: (x.tile((8,)).flip(0), y.tile((8,)))), double, (Tensor(1), Tensor(1))
  built = tile.load(tile.build(premake, [tile.Config(arguments=[((32,), "float32")] * 2)], tmp_path))
  x, out = Lazy(vectors(32)[0]).realize(), Lazy.zeros(2, 32).contiguous().realize()
  for _ in range(2):
    with pytest.raises(ArgumentError, match="y and x are the same memory"): built(x, x)
    built(x, out[1])                                    # a view
    np.testing.assert_array_equal(out.numpy(), [np.zeros(32), x.numpy().reshape(4, 8)[::-1].ravel() * 2])
  with pytest.raises(GradientError, match="x requires a gradient"): built(Lazy(x.numpy(), requires_grad=True), out[1])


def test_source_names_the_lines_and_is_kept(tmp_path: Any) -> None:
  k = tile.make(triples, add_tiles, (Tensor(1), Tensor(1), Tensor(1)), kernel_name="sums", output_dir=str(tmp_path))
  x, y = vectors()
  k(x, y, np.empty_like(x), BLOCK=32)
  text = k.source("opencl")
  assert "// test_tile_kernel.py:" in text and "def add_tiles(x: Any, y: Any, z: Any) -> None: z = x + y" in text
  assert [p.read_text() for p in tmp_path.glob("sums_*.cl")] == [text]


@pytest.mark.skipif(bool(missing("CPU")), reason="no OpenCL device")
@pytest.mark.parametrize("machine", MACHINES)
def test_source_is_what_runs(machine: str) -> None:
  """On this machine and on another that is pretended, for the settings at the call."""
  k = tile.make(triples, add_tiles, (Tensor(1), Tensor(1), Tensor(1)))
  x, y = vectors()
  for settings in ({}, MACHINES[machine]):
    with config(dev="CPU", **settings):
      k(x, y, np.empty_like(x), BLOCK=32)
      program = next(reversed(k.last.launchers.values())).program
      assert k.source() == program.spec.source.text
      lanes = get_device("CPU").renderer.target.lanes
      assert f"float{lanes}" in k.source()


# ---- jagged tensors

def test_jagged() -> None:
  """Rows of different lengths: sums along the jagged dimension, with a tile that does not divide it, and a jagged output."""
  B = Symbol("B", constexpr=True)
  def total(x: Any, y: Any) -> None:
    out = tl.zeros(y.shape)
    for k in range(x.shape[0]): out += tl.sum(x[k], axis=0)
    y = out
  def arrangement(x: Tensor, y: Tensor) -> Any:
    x = x.tile((1, B, -1)).tile((1, -1, -1)).squeeze((1, 2))
    x.dtype = x.dtype.squeeze((0, 2))
    x.dtype.dtype = x.dtype.dtype.squeeze(0)
    y = y.tile((1, -1)).squeeze(1)
    y.dtype = y.dtype.squeeze(0)
    return x, y
  k = tile.make(arrangement, total, (Tensor(3, jagged_dim=1), Tensor(2)))
  values, offsets = RNG.standard_normal((23, 6)).astype(np.float32), np.array([0, 5, 5, 16, 23], np.int64)
  jagged = tile.Jagged(values, offsets)
  assert jagged.shape == (4, 11, 6)
  y = np.zeros((4, 6), np.float32)
  for device in [d for d in ("CPU", "NUMPY") if not missing(d)]:
    with config(dev=device): k(jagged, y, B=4)
    np.testing.assert_allclose(y, [values[a:b].sum(0) for a, b in zip(offsets, offsets[1:])], rtol=1e-5, atol=1e-6)
  def twice(x: Any, z: Any) -> None: z = x * 2
  def both(x: Tensor, z: Tensor) -> Any: return x.tile((1, B, -1)), z.tile((1, B, -1))
  out = np.zeros_like(values)
  tile.make(both, twice, (Tensor(3, jagged_dim=1),) * 2)(jagged, tile.Jagged(out, offsets), B=4)
  np.testing.assert_array_equal(out, values * 2)
  with pytest.raises(ArgumentError, match="x is jagged in dimension 1, got a plain tensor"):
    k(np.zeros((4, 11, 6), np.float32), y, B=4)
  with pytest.raises(NtgradError, match="offsets go from 0 to 20; the values have 23"): tile.Jagged(values, np.array([0, 20]))


def test_symbols_in_an_application_are_numbers() -> None:
  n = Symbol("n")
  def numbered(x: Any, y: Any) -> None:
    total = x * 0
    for k in range(n // BLOCK): total = total * 0.5 + k
    y = total + tl.arange(0, BLOCK)
  k = tile.make(pairs, numbered, (Tensor(shape=(n,)), Tensor(1)))
  x = np.zeros(32, np.float32)
  y = np.empty_like(x)
  k(x, y, BLOCK=8)
  np.testing.assert_allclose(y, np.tile(np.arange(8), 4) + ((0.5 + 2) * 0.5 + 3 - 0.0))
  other = Symbol("other")
  def unknown(x: Any, y: Any) -> None: y = x * other
  with pytest.raises(ApplicationError, match="other has no value in this kernel; it has n, y_size_0, BLOCK"):
    tile.make(pairs, unknown, (Tensor(shape=(n,)), Tensor(1)))(x, y, BLOCK=8)


def test_stores_to_the_arguments_of_apply_come_back() -> None:
  def marked(x: Any) -> Any:
    tl.store(x.source[0], 5.0)
    return tl.cumsum(x, axis=0)
  a = np.ones(4, np.float32)
  tile.apply(marked, a)
  assert a.tolist() == [5, 1, 1, 1]


def test_values_are_checked_against_their_symbols() -> None:
  B = Symbol("B", lower_bound=16, upper_bound=64, power_of_two=True)
  with pytest.raises(ShapeError, match="is between 16 and 64, a power of two, got 2"): Tensor(shape=(8,)).tile((B,)).eval({B: 2})
  sources, targets = tile.simulate_arrangement(lambda x: x.tile((4,)), (Tensor(1),), subs={"x_size_0": 8})
  assert sources[0].shape == (8,) and targets[0].shape == (2, 4)


def test_warps_and_stages_reach_the_compiler() -> None:
  k = tile.make(pairs, double, (Tensor(1), Tensor(1)), num_warps=8, num_stages=(2, 4))
  s = k.specialise(((64,), "float32"), ((64,), "float32"), BLOCK=32)
  assert s.spec(get_device("NUMPY")).options == (("num_warps", 8), ("num_stages", 2))


def test_a_written_view() -> None:
  x, y = vectors()
  base = Lazy(np.zeros((100, 2), np.float32)).realize()
  before = base.clone()
  add(Lazy(x), Lazy(y), base[:, 1], BLOCK=32)
  np.testing.assert_array_equal(base.numpy(), np.stack([np.zeros(100, np.float32), x + y], 1))
  row = Lazy(np.zeros((1, 100), np.float32))
  add(Lazy(x), Lazy(y), row[0], BLOCK=32)   # a whole piece of memory, in another shape
  np.testing.assert_array_equal(row.numpy()[0], x + y)
  assert not before.numpy().any()


@pytest.mark.parametrize("device", ["NUMPY", pytest.param("TRITON", marks=needs_triton)])
def test_an_index_goes_through_several_levels(device: str) -> None:
  def blocks(t: Any) -> Any:   # one program has the rows of blocks, each of which has its blocks
    t = t.tile((2, 2)).tile((1, -1))
    t.dtype = t.dtype.squeeze(0)
    return t.squeeze(1).tile((-1,))
  def application(x: Any, y: Any) -> None:
    last = x.dtype.shape[0] - 1
    for i in range(x.shape[0]):
      for j in range(last + 1): y[i, j] = x[i, last - j] + x[0, 0, 1, 1]
  kernel = tile.make(lambda *xs: tuple(map(blocks, xs)), application, (Tensor(2),) * 2)
  x, y = np.arange(24, dtype=np.float32).reshape(4, 6), ntgrad.zeros(4, 6, device=device).realize()
  kernel(ntgrad.Tensor(x, device=device).realize(), y)
  assert y.tolist() == (x.reshape(4, 3, 2)[:, ::-1].reshape(4, 6) + x[1, 1]).tolist()


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("device", ["NUMPY", pytest.param("TRITON", marks=needs_triton)])
def test_offsets_along_a_dimension_of_one_element(device: str, size: int) -> None:
  """A tile of one element has its places in a block of one: code is the same for all sizes of blocks."""
  def application(x: Any, y: Any) -> None:
    tl.static_assert(x.offsets(0).shape == (size,) and x.offsets(-1).shape == (1,))
    y = x.source[x.offsets(0)[:, None], 2 - x.offsets(1)[None, :]]
  kernel = tile.make(lambda x, y: (x.tile((size, 1)), y.tile((size, 1))), application, (Tensor(2),) * 2)
  x, y = np.arange(12, dtype=np.float32).reshape(4, 3), ntgrad.zeros(4, 3, device=device).realize()
  kernel(ntgrad.Tensor(x, device=device).realize(), y)
  assert y.tolist() == x[:, ::-1].tolist()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_offsets_behind_the_end(n: int) -> None:
  def where(x: Any, y: Any) -> None: y = tl.where(x.offsets(0) < x.source.shape[0], x.offsets(0), -x.offsets(0))
  y = np.zeros(4, np.int32)
  x = np.zeros(n, np.float32)
  def arrangement(x: Any, y: Any) -> Any:
    x = x[:4].unsqueeze(0).tile((1, 4)).squeeze(0)
    x.dtype = x.dtype.squeeze(0)
    return x, y.tile((4,))
  tile.make(arrangement, where, (Tensor(1), Tensor(1)))(x, y)
  assert y.tolist() == [i if i < n else -i for i in range(4)]


# ---- arguments that are one memory

def online(x: Any, y: Any) -> None:
  most, total = tl.full((1, 1), -1e30, tl.float32), tl.zeros((1, 1))
  for k in range(x.shape[1]):
    new = tl.maximum(most, tl.max(x[0, k], axis=1, keep_dims=True))
    total = total * tl.exp(most - new) + tl.sum(tl.exp(x[0, k] - new), axis=1, keep_dims=True)
    most = new
  for k in range(x.shape[1]): y[0, k] = tl.exp(x[0, k] - most) / total


def three_loops(x: Any, y: Any) -> None:
  most, total = tl.full((1, 1), -1e30, tl.float32), tl.zeros((1, 1))
  for k in range(x.shape[1]): most = tl.maximum(most, tl.max(x[0, k], axis=1, keep_dims=True))
  for k in range(x.shape[1]): total += tl.sum(tl.exp(x[0, k] - most), axis=1, keep_dims=True)
  for k in range(x.shape[1]): y[0, k] = tl.exp(x[0, k] - most) / total


def one_row(x: Any, y: Any) -> None:
  e = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
  y = e / tl.sum(e, axis=1, keep_dims=True)  # noqa: F841


@long_where(lambda device, columns: columns != 37 or device != "NUMPY")
@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
@pytest.mark.parametrize("columns", [5, 37, 1001])
@pytest.mark.parametrize("application", [online, three_loops, one_row])
def test_softmax_in_place(application: Any, columns: int, device: str) -> None:
  def arranged(x: Any) -> Any: return x.tile((1, -1)) if application is one_row else x.tile((1, 16)).tile((1, -1))
  k = tile.make(lambda x, y: (arranged(x), arranged(y)), application, (Tensor(2, other=-1e30), Tensor(2)))
  a = np.random.default_rng(0).standard_normal((3, columns)).astype(np.float32)
  x, y = Lazy(a, device=device).realize(), Lazy(a, device=device).realize()
  k(x, y)
  k(x, x)                                               # of the same signature
  np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-5)
  np.testing.assert_allclose(x.numpy().sum(1), 1, rtol=1e-5)


def each_level(x: Any, y: Any) -> None:
  for k in range(x.shape[0]): y[k] = x[k] + 1


def other_way(x: Any, y: Any) -> None:
  for k in range(x.shape[0]): y[k] = x[x.shape[0] - 1 - k]


def next_level(x: Any, y: Any) -> None:
  for k in range(x.shape[0] - 1): y[k] = x[k + 1]


def again(x: Any, y: Any) -> None:
  for _ in tl.static_range(2):
    for k in range(x.shape[0]): y[k] = x[k] + 1


def rounds(x: Any, y: Any) -> None:
  for _ in range(3):
    for k in range(x.shape[0]): y[k] = x[k] + y[k]


def halves(x: Any, y: Any) -> None:
  for k in range(x.shape[0]): y[k] = x[k // 2]


@pytest.mark.parametrize("application", [each_level, other_way, next_level, again, rounds, halves])
def test_one_memory_twice_on_two_levels(application: Any) -> None:
  fits = application is each_level
  k = tile.make(lambda x, y: (x.tile((4,)).tile((3,)), y.tile((4,)).tile((3,))), application, (Tensor(1), Tensor(1)))
  x, y = Lazy(vectors(37)[0]).realize(), Lazy(vectors(37)[0]).realize()
  k(x, y)
  if fits:
    k(x, x)
    np.testing.assert_array_equal(x.numpy(), y.numpy())
  else:
    for _ in range(2):
      with pytest.raises(ArgumentError, match="y and x are the same memory"): k(x, x)


def by_halves(x: Tensor, y: Tensor) -> Any:
  """Each row in two halves, which a program has both."""
  def halves(t: Tensor) -> Tensor:
    t = t.tile((1, t.shape[1] // 2)).tile((1, -1))
    t.dtype = t.dtype.squeeze(0)
    t.dtype.dtype = t.dtype.dtype.squeeze(0)
    return t
  return halves(x), halves(y)


def by_turns(x: Tensor, y: Tensor) -> Any:
  """Each row in its even and its odd places."""
  def turns(t: Tensor) -> Tensor:
    t = t.tile((1, t.shape[1] // 2), strides=(-1, 1), dilation=(1, 2)).tile((1, 2))
    t.dtype = t.dtype.squeeze(0)
    t.dtype.dtype = t.dtype.dtype.squeeze(0)
    return t
  return turns(x), turns(y)


def rotation(x: Any, y: Any) -> None:
  a, b = x[0], x[1]
  y[0] = 0.6 * a - 0.8 * b
  y[1] = 0.8 * a + 0.6 * b


@pytest.mark.parametrize("arranged", [by_halves, by_turns])
def test_what_has_a_name_before_it_is_written_over_is_kept(arranged: Any) -> None:
  k = tile.make(arranged, rotation, (Tensor(2), Tensor(2)))
  for rows, columns in ((3, 8), (5, 8), (7, 8), (3, 10), (4, 12)):   # numbers, then run-time sizes
    start = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    x, y = Lazy(start).realize(), Lazy(start * 0).realize()
    k(x, y)
    k(x, x)
    np.testing.assert_array_equal(x.numpy(), y.numpy())
    k(start, start)
    np.testing.assert_array_equal(start, y.numpy())


def test_what_is_read_once_more_after_it_was_written_is_refused() -> None:
  def anew(x: Any, y: Any) -> None:
    y[0] = x[0] + x[1]
    y[1] = x[0] - x[1]
  k = tile.make(by_halves, anew, (Tensor(2), Tensor(2)))
  x = Lazy.ones(3, 8).contiguous().realize()
  for _ in range(2):
    with pytest.raises(ArgumentError, match="y and x are the same memory"): k(x, x)


def test_what_is_read_after_it_is_written_or_turned_is_refused() -> None:
  def turned(x: Any, y: Any) -> None: y = tl.trans(x)  # noqa: F841
  def two(x: Any, y: Any, z: Any) -> None:
    y = x * 2  # noqa: F841
    z = x + 1  # noqa: F841
  t = Lazy.ones(16, 16).contiguous().realize()
  k = tile.make(lambda x, y: (x.tile((16, 16)), y.tile((16, 16))), turned, (Tensor(2),) * 2)
  with pytest.raises(ArgumentError, match="y and x are the same memory"): k(t, t)
  both = tile.make(lambda *t: tuple(x.tile((8, 8)) for x in t), two, (Tensor(2),) * 3)
  other = Lazy.ones(16, 16).contiguous().realize()
  with pytest.raises(ArgumentError, match="y and x are the same memory"): both(t, t, other)
  both(t, other, t)                                     # the last to be written
  assert other.numpy()[0, 0] == 2 and t.numpy()[0, 0] == 2


def test_written_pieces_that_overlap_are_refused_at_every_call() -> None:
  def two(x: Any, y: Any, z: Any) -> None:
    y = x + 1  # noqa: F841
    z = x + 2  # noqa: F841
  k = tile.make(lambda *t: tuple(x.tile((8,)) for x in t), two, (Tensor(1),) * 3)
  x, t = Lazy.ones(8).contiguous().realize(), Lazy(np.zeros(32, np.float32)).realize()
  for _ in range(2):
    k(x, t[:8], t[8:16])
    for a, b in ((t[:8], t[4:12]), (t[4:12], t[:8]), (t[:8], t[:8])):
      with pytest.raises(ArgumentError, match="y and z overlap in memory, and both are written"): k(x, a, b)
  assert t.numpy().tolist() == [2] * 8 + [3] * 8 + [0] * 16
  k(t[:8], t[8:16], t[16:24])                           # a piece that is read keeps what it was
  assert t.numpy()[8:24].tolist() == [3] * 8 + [4] * 8
