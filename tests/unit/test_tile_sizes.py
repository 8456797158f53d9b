"""Tile kernels whose sizes are known at the launch: how often they are compiled, and what they compute."""
from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.errors import ApplicationError, ShapeError
from ntgrad.engine.size_variants import SizedProgram
from ntgrad.tile import Tensor
from support.devices import DEVICES, missing
from support.marks import long, long_where
from support.triton import needs_triton

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "tile"
ON = [pytest.param(d, marks=pytest.mark.skipif(bool(missing(d)), reason=missing(d))) for d in DEVICES]
f32 = np.float32
Case = tuple[Any, tuple[Any, ...], Any]   # a kernel, its arguments, and what must be in the last of them


def example(name: str) -> Any:
  if str(FOLDER) not in sys.path: sys.path.insert(0, str(FOLDER))
  return importlib.import_module(name)


def forget(kernel: tile.TileKernel) -> None:
  """As if it had never been called."""
  for known in (kernel._families, kernel._sized, kernel._launchers, kernel._specialised): known.clear()
  kernel.last = None


class Compiles:
  """Counts the compiled kernels: variants of those for many sizes, and those with numbers."""
  def __init__(self, kernel: tile.TileKernel, monkeypatch: pytest.MonkeyPatch):
    self.kernel, self.variants = kernel, 0
    new = SizedProgram.new
    def counted(*args: Any) -> Any:
      self.variants += 1
      return new(*args)
    monkeypatch.setattr(SizedProgram, "new", counted)

  @property
  def count(self) -> int: return self.variants + len(self.kernel._specialised) + len(self.kernel._specialised.older)


# ---- the examples

def add(r: Any, n: int) -> Case:
  x, y = r.standard_normal((2, n), f32)
  return example("vector_add").add, (x, y, np.empty_like(x)), x + y


def matmul(r: Any, m: int, n: int, k: int) -> Case:
  a, b = r.standard_normal((m, k), f32), r.standard_normal((k, n), f32)
  return example("matmul").matmul, (a, b, np.empty((m, n), f32)), a @ b


def softmax(r: Any, m: int, n: int) -> Case:
  x = r.standard_normal((m, n), f32)
  e = np.exp(x - x.max(1, keepdims=True))
  return example("softmax").softmax, (x, np.empty_like(x)), e / e.sum(1, keepdims=True)


def normed(x: Any, w: Any, b: Any) -> Any: return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b


def layer_norm(r: Any, m: int, n: int) -> Case:
  x, (w, b) = r.standard_normal((m, n), f32), r.standard_normal((2, n), f32)
  return example("layer_norm").layer_norm, (x, w, b, 1e-5, np.empty_like(x)), normed(x, w, b)


def _rows(x: Any, w: Any, b: Any, eps: Any, out: Any) -> Any:
  def blocks(t: Any) -> Any:
    t = t.tile((1, 32)).tile((1, -1))
    t.dtype = t.dtype.squeeze(0)
    t.dtype.dtype = t.dtype.dtype.squeeze(0)
    return t.squeeze(1)
  def same(v: Any) -> Any:
    v = v.tile((32,)).tile((-1,)).expand((x.shape[0],))
    return v
  return blocks(x), same(w), same(b), eps, blocks(out)


def _norm(x: Any, w: Any, b: Any, eps: Any, out: Any) -> None:
  n = x.source.shape[1]
  total = tl.zeros((32,))
  for k in range(x.shape[0]): total += x[k]
  mean = tl.sum(total) / n
  squares = tl.zeros((32,))
  for k in range(x.shape[0]):
    c = tl.where(x[k].offsets(1) < n, x[k] - mean, 0.0)
    squares += c * c
  scale = tl.rsqrt(tl.sum(squares) / n + eps)
  for k in range(x.shape[0]): out[k] = (x[k] - mean) * scale * w[k] + b[k]


looped = tile.make(_rows, _norm, (Tensor(2), Tensor(1), Tensor(1), Tensor(0), Tensor(2)), kernel_name="looped_norm")


def loops(r: Any, m: int, n: int) -> Case:
  x, (w, b) = r.standard_normal((m, n), f32), r.standard_normal((2, n), f32)
  return looped, (x, w, b, 1e-5, np.empty_like(x)), normed(x, w, b)


def conv2d(r: Any, n: int, h: int, w: int) -> Case:
  x, f = r.standard_normal((n, 3, h, w), f32), r.standard_normal((5, 3, 3, 2), f32)
  windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3))
  want = np.einsum("nchwrs,kcrs->nkhw", windows, f)
  return example("conv2d").conv2d, (x, f, np.empty(want.shape, f32)), want


def rotary(r: Any, b: int, length: int, heads: int) -> Case:
  x = r.standard_normal((b, length, heads, 16), f32)
  angle = np.arange(length)[:, None] / 10000 ** (np.arange(8) / 8)
  s, c = np.sin(angle).astype(f32), np.cos(angle).astype(f32)
  lo, hi, s4, c4 = x[..., :8], x[..., 8:], s[None, :, None], c[None, :, None]
  return example("rotary").rotary, (x, s, c, np.empty_like(x)), np.concatenate([lo * c4 - hi * s4, lo * s4 + hi * c4], -1)


def attention(r: Any, heads: int, length: int) -> Case:
  m = example("flash_attention")
  q, k, v = r.standard_normal((3, 1, heads, length, 16), f32)
  o, _ = m.reference(q, k, v, 16 ** -0.5)
  return m.forward_kernel, (q, k, v, 16 ** -0.5, np.empty((1, heads, length, 1), f32), np.empty_like(q)), o


def run(case: Case) -> None:
  kernel, args, want = case
  if kernel.name == "attention": kernel(*args[:4], args[5], args[4])   # the output is the last but one
  else: kernel(*args)
  np.testing.assert_allclose(args[-1], want, rtol=2e-3, atol=2e-4)


def sizes(r: Any, n: int, most: int) -> tuple[int, ...]: return tuple(int(v) for v in r.integers(1, most + 1, n))


NO_SPAN: dict[str, tuple[Callable[..., Case], int, int]] = {   # how many sizes, and how large
  "add": (add, 1, 5000), "matmul": (matmul, 3, 150), "loops": (loops, 2, 150), "rotary": (rotary, 3, 20),
  "attention": (attention, 2, 100)}


@long_where(lambda name: name != "add")
@pytest.mark.parametrize("name", NO_SPAN)
def test_a_hundred_shapes_take_four_compiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """Where no tile spans a size: one for the first shape, one for all others; where sizes are shorter than a vector a few more."""
  case, n, most = NO_SPAN[name]
  r = np.random.default_rng(1)
  kernel = case(r, *[16] * n)[0]
  forget(kernel)
  compiles = Compiles(kernel, monkeypatch)
  with config(dev="CPU"):
    for _ in range(100 if name != "attention" else 20): run(case(r, *(s + 15 for s in sizes(r, n, most))))
    assert 2 <= compiles.count <= 4
    for _ in range(20): run(case(r, *sizes(r, n, 15)))
  assert compiles.count <= 8 and sum(len(f.forms) for f in kernel._families.values()) == 1


@long
def test_convolutions_of_many_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
  r = np.random.default_rng(1)
  kernel = example("conv2d").conv2d
  forget(kernel)
  compiles = Compiles(kernel, monkeypatch)
  with config(dev="CPU"):
    for _ in range(40): run(conv2d(r, *(s + 3 for s in sizes(r, 3, 20))))
  assert 2 <= compiles.count <= 4


@long_where(lambda case, device: case in (attention, conv2d) or (device != "NUMPY" and case in (loops, rotary)))
@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("case", [add, matmul, softmax, layer_norm, loops, conv2d, rotary, attention])
def test_results_on_every_device(case: Callable[..., Case], device: str) -> None:
  """1, primes, multiples of 16, and larger than a block."""
  n = {add: 1, matmul: 3, rotary: 3, conv2d: 3}.get(case, 2)
  r = np.random.default_rng(2)
  forget(case(r, *[16] * n)[0])
  shapes = [(16, 32, 48), (1, 1, 1), (7, 13, 5), (17, 64, 3), (2, 131, 33)]
  if case is rotary: shapes = [(16, 16, 2), *shapes[1:3], (2, 17, 16), (2, 131, 3)]   # a program has one row of them
  if case is attention: shapes[4] = (2, 67)   # work goes with the square of the length; a block has 64
  with config(dev=device):
    for shape in shapes: run(case(r, *(s + 3 * (case is conv2d) for s in shape[:n])))


@pytest.mark.parametrize("case", [softmax, layer_norm])
@pytest.mark.parametrize("device", ON)
def test_tiles_that_span_a_size(case: Callable[..., Case], device: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """On targets with blocks one compile a power of two (and whether 16 divides it), elsewhere a few for all."""
  r = np.random.default_rng(3)
  kernel = case(r, 2, 2)[0]
  forget(kernel)
  compiles = Compiles(kernel, monkeypatch)
  with config(dev=device):
    for n in (5, 16, 17, 30, 31, 33, 50, 63, 100, 120, 127, 64, 40, 48): run(case(r, n % 7 + 1, n))
  assert compiles.count <= (1 + 2 * 4 if device in ("TRITON", "CUDA") else 4)


# ---- what is a size when

def copies(x: Any, y: Any) -> None: y = x  # noqa: F841


def blocks(x: Any, y: Any) -> Any: return x.tile((4,)), y.tile((4,))


def ran(kernel: Any, n: int) -> tuple[str, ...]:
  """The sizes that it has at the launch, after a call with so many elements."""
  x, y = np.arange(n, dtype=f32), np.zeros(n, f32)
  kernel(x, y)
  assert y.tolist() == x.tolist()
  return tuple(s.name for s in kernel.last.kernel.sizes)


def test_policy() -> None:
  automatic = tile.make(blocks, copies, (Tensor(1), Tensor(1)))
  assert ran(automatic, 8) == () and ran(automatic, 8) == () and ran(automatic, 9) == ("x_size_0",)
  for declared in ("N", "?", tile.Symbol("N")):
    assert len(ran(tile.make(blocks, copies, (Tensor(shape=(declared,)), Tensor(shape=(declared,)))), 8)) == 1
  fixed = tile.make(blocks, copies, (Tensor(shape=(8,)), Tensor(shape=(8,))))
  assert ran(fixed, 8) == ()
  with config(dynamic="never"): assert ran(automatic, 10) == () and ran(automatic, 11) == ()
  with config(dynamic="always"): assert ran(tile.make(blocks, copies, (Tensor(1), Tensor(1))), 8) == ("x_size_0",)


def test_a_name_that_the_application_must_know_stays_a_number() -> None:
  def whole(x: Any, y: Any) -> Any: return x.tile((1, -1)), y.tile((1, -1))
  def application(x: Any, y: Any) -> None: y = tl.sort(x, 1)  # noqa: F841
  k = tile.make(whole, application, (Tensor(2), Tensor(2)))
  for m, n in ((2, 5), (3, 6), (4, 6), (5, 7)):
    x, y = np.arange(m * n, dtype=f32).reshape(m, n)[:, ::-1].copy(), np.zeros((m, n), f32)
    k(x, y)
    assert y[0].tolist() == list(range(n))
  assert [s.name for s in k.last.kernel.sizes] == ["x_size_0"]


def test_conditions_of_an_application() -> None:
  def application(x: Any, y: Any) -> None:
    if x.source.shape[0] % 2 == 0: y = x  # noqa: F841
    else: y = x + x.source.shape[0]  # noqa: F841
  k = tile.make(blocks, application, (Tensor(1), Tensor(1)))
  for n in (4, 6, 7, 8, 9, 100, 101):
    x, y = np.ones(n, f32), np.zeros(n, f32)
    k(x, y)
    assert y.tolist() == [1 + n % 2 * n] * n
  assert sum(len(f.forms) for f in k._families.values()) == 2


@pytest.mark.parametrize("dynamic", ["auto", "always"])
def test_what_does_not_fit_is_refused_as_ever(dynamic: str) -> None:
  k = tile.make(blocks, copies, (Tensor(1), Tensor(1)), kernel_name="by_four")
  with config(dynamic=dynamic):
    for n in (8, 9, 10): ran(k, n)
    with pytest.raises(ShapeError, match=r"outermost level of y is \(8,\), that of x is \(7,\).*\(32,\) and \(28,\)"):
      k(np.zeros(28, f32), np.zeros(32, f32))
    with pytest.raises(ShapeError, match="dimension 0 of x has 32 elements, dimension 0 of y has 28"):
      k(np.zeros(32, f32), np.zeros(28, f32))
    with pytest.raises(ShapeError, match="dimension 0 of x has 7 elements, dimension 0 of y has 8"):
      k(np.zeros(7, f32), np.zeros(8, f32))
    y = np.zeros(0, f32)
    k(np.zeros(0, f32), y)


def test_bounds_of_symbols_are_checked_at_every_launch() -> None:
  N = tile.Symbol("N", lower_bound=2, upper_bound=20)
  k = tile.make(blocks, copies, (Tensor(shape=(N,)), Tensor(shape=(N,))))
  tensors = [ntgrad.Tensor(np.ones(n, f32)).realize() for n in (4, 5, 30, 1)]
  out = [ntgrad.Tensor(np.zeros(n, f32)).realize() for n in (4, 5, 30, 1)]
  for x, y in list(zip(tensors, out))[:2]: k(x, y)
  for x, y in list(zip(tensors, out))[2:]:
    with pytest.raises(ShapeError, match="N is between 2 and 20, got"): k(x, y)


def test_a_check_of_an_arrangement_holds_for_each_launch() -> None:
  def arrangement(x: Any, y: Any) -> Any:
    tile.check(x.shape[0] % 4 == 0, "whole tiles")
    return blocks(x, y)
  k = tile.make(arrangement, copies, (Tensor(1), Tensor(1)))
  for n in (8, 12, 16): ran(k, n)
  with pytest.raises(ShapeError, match="whole tiles .*x_size_0 = 18"): ran(k, 18)


def test_debug_says_what_becomes_a_size(capsys: pytest.CaptureFixture[str]) -> None:
  k = tile.make(blocks, copies, (Tensor(1), Tensor(1)))
  with config(debug=1):
    for n in (8, 9): ran(k, n)
  assert "tile copies: x_size_0 unknown until the launch (x_size_0 met as 8 and 9" in capsys.readouterr().out


# ---- tensors, captured functions, files

def test_tensors() -> None:
  k = example("vector_add").add
  forget(k)
  def summed(x: Any, y: Any) -> Any:
    z = ntgrad.Tensor.zeros(*x.shape).contiguous().realize()
    k(x, y, z)
    return (z * 2).realize()
  for n in (10, 11, 12, 3000):
    x, y = (ntgrad.Tensor(np.full(n, v, f32)).realize() for v in (1, 2))
    assert (summed(x, y).numpy() == 6).all()
  assert k.last is not None and k.last.kernel.sizes


def test_sources_without_a_call() -> None:
  k = example("vector_add").add
  forget(k)
  assert "x_size_0" in k.source("opencl") and "x_size_0" in k.source("triton") and "x(x_size_0)" in k.arrangements()
  assert "BLOCK" not in k.source("opencl")
  m = example("flash_attention").forward_kernel
  forget(m)
  with pytest.raises(ShapeError, match="give the arguments.*o_size_3, v_size_3 must be a number"): m.source("opencl")


@long_where(lambda case: case in (attention, conv2d))
@needs_triton
@pytest.mark.parametrize("case", [add, matmul, softmax, layer_norm, loops, conv2d, rotary, attention])
def test_cubins_without_a_gpu(case: Callable[..., Case]) -> None:
  from ntgrad.backends.cuda import compiler
  from ntgrad.backends.cuda.renderer import TritonRenderer
  n = {add: 1, matmul: 3, rotary: 3, conv2d: 3}.get(case, 2)
  r = np.random.default_rng(2)
  kernel = case(r, *[16] * n)[0]
  forget(kernel)
  with config(dev="NUMPY"):
    for k in (4, 5): run(case(r, *[16 + k] * n))
  assert kernel.last.kernel.sizes
  spec = kernel.last.spec(SimpleNamespace(renderer=TritonRenderer(capability=90), name="sm_90"))
  assert compiler.build(compiler.Request(spec.source, spec.name, "sm_90")).cubin[:4] == b"\x7fELF"


def test_a_comparison_in_a_kernel_that_is_no_condition_is_refused() -> None:
  def application(x: Any, y: Any) -> None: y = tl.where(x.source.shape[0] > 4, x, 0.0)  # noqa: F841
  k = tile.make(blocks, application, (Tensor(1), Tensor(1)))
  for n in (3, 5, 6):
    x, y = np.ones(n, f32), np.zeros(n, f32)
    try: k(x, y)
    except ApplicationError: pytest.fail("numbers must do")
    assert y.tolist() == [float(n > 4)] * n


@pytest.mark.parametrize("device", ON)
def test_one_tile_of_unknown_size_for_all_programs(device: str) -> None:
  """Of three rows there is one tile of four, which every program has; of eight there are two, for a program each."""
  def rows(x: Any, b: Any, y: Any) -> None: tl.store(y.source[tl.program_id(0), tl.arange(0, 8)], tl.sum(b, axis=0))
  def arrangement(x: Tensor, b: Tensor, y: Tensor) -> Any:
    x = x.tile((4,))
    return x, b.tile((4, -1)).squeeze(1).expand(x.shape), y
  kernel = tile.make(arrangement, rows, (Tensor(1), Tensor(2), Tensor(2)))
  for n in (3, 8, 2, 7):
    b, y = np.arange(n * 8, dtype=f32).reshape(n, 8), np.zeros((2, 8), f32)
    with config(dev=device, dynamic="always"): kernel(np.zeros(8, f32), b, y)
    np.testing.assert_array_equal(y, [b[:4].sum(0), b[4 if n > 4 else 0:].sum(0)])


@pytest.mark.parametrize("device", ON)
def test_a_grid_whose_size_is_a_difference_divided(device: str) -> None:
  """Windows in one dimension, tiled: cdiv((m - 2) * (n - 2), 4) programs, in a sum with negative terms that // rounds down."""
  def sums(x: Any, y: Any) -> None: y = tl.sum(x, axis=-1)  # noqa: F841
  def arrangement(x: Tensor, y: Tensor) -> Any:
    x = x.tile((1, 3, 3), strides=(1, 1, 1), floor_mode=True).ravel().flatten(1, 3).flatten(2, 5).tile((1, 4, -1)).squeeze(2)
    y = y.flatten(1, 3).tile((1, 4))
    x.dtype, y.dtype = x.dtype.squeeze(0), y.dtype.squeeze(0)
    return x, y
  kernel = tile.make(arrangement, sums, (Tensor(3), Tensor(3)))
  for b, m, n in ((2, 5, 7), (3, 6, 4)):
    x, y = np.arange(b * m * n, dtype=f32).reshape(b, m, n), np.zeros((b, m - 2, n - 2), f32)
    with config(dev=device, dynamic="always"): kernel(x, y)
    np.testing.assert_array_equal(y, np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2)).sum((3, 4)))
  assert kernel.last is not None and kernel.last.kernel.sizes


def test_captured_functions() -> None:
  k = example("vector_add").add
  forget(k)
  def summed(x: Any, y: Any) -> Any:
    z = ntgrad.Tensor.zeros(*x.shape).contiguous().realize()
    k(x, y, z)
    return (z * 2).realize()
  for n in (10, 11, 12, 3000):
    y = ntgrad.Tensor(np.full(n, 2, f32)).realize()
    fast = ntgrad.jit(summed)
    for v in range(4): assert (fast(ntgrad.Tensor(np.full(n, v, f32)).realize(), y).numpy() == 2 * v + 4).all()
  assert k.last.kernel.sizes
