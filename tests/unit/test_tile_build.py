"""Libraries of kernels for all sizes: what they serve, what they refuse, and that they compile nothing."""
from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen import index as ix
from ntgrad.codegen.index.sizes import evaluator
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.errors import ArgumentError, DTypeError, GradientError, ShapeError, StateError
from ntgrad.engine.device import get_device
from ntgrad.engine.size_variants import SizedProgram
from ntgrad.tile import Symbol, Tensor, manifest
from ntgrad.tile.build import nearest_sizes
from ntgrad.tile.library import BuiltProgram
from support.devices import missing
from support.marks import long
from support.triton import needs_triton

on_cpu = pytest.mark.skipif(bool(missing("CPU")), reason="no OpenCL device")
f32 = np.float32
rng = np.random.default_rng(0)


def product(lhs: Any, rhs: Any, out: Any) -> None:
  total = tl.zeros(out.shape)
  for k in range(lhs.shape[0]): total += tl.dot(lhs[k], rhs[k])
  out = total  # noqa: F841


def panels(lhs: Any, rhs: Any, out: Any) -> Any:
  out = out.tile((16, 16))
  lhs = lhs.tile((16, 16)).tile((1, -1)).expand((-1, out.shape[1]))
  rhs = rhs.tile((16, 16)).tile((-1, 1)).expand((out.shape[0], -1))
  lhs.dtype, rhs.dtype = lhs.dtype.squeeze(0), rhs.dtype.squeeze(1)
  return lhs, rhs, out


def softmax(x: Any, y: Any) -> None:
  e = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
  y = e / tl.sum(e, axis=1, keep_dims=True)  # noqa: F841


def rows(x: Any, y: Any) -> Any: return x.tile((1, -1)), y.tile((1, -1))
def doubled(x: Any, y: Any) -> None: y = x * 2  # noqa: F841
def fours(x: Any, y: Any) -> Any: return x.tile((4,)), y.tile((4,))
def zeros(*shape: int) -> Any: return np.zeros(shape, f32)


def pairs(arrangement: Any = fours, application: Any = doubled, tensors: Any = None) -> Any:
  return lambda: (arrangement, application, tensors or (Tensor(1), Tensor(1)))


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Path:
  """A product whose common dimension has a name."""
  if missing("CPU"): pytest.skip("no OpenCL device")
  c = tile.Config(arguments=[((None, "K"), "float32"), (("K", None), "float32"), ((None, None), "float32")])
  with config(dev="CPU"):
    return tile.build(pairs(panels, product, (Tensor(2),) * 3), [c], tmp_path_factory.mktemp("products"), kernel_name="product")


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
  """Nothing is read or compiled."""
  from ntgrad.backends.opencl.compiler import Compiler
  from ntgrad.tile.interpret import Interpreter
  def never(*_: Any, **__: Any) -> Any: raise AssertionError("nothing is read or compiled here")
  monkeypatch.setattr(Interpreter, "application", never)
  monkeypatch.setattr(Compiler, "build", never)
  monkeypatch.setattr(SizedProgram, "new", never)


def multiply(library: tile.Library, m: int, k: int, n: int) -> None:
  a, b, c = rng.standard_normal((m, k), f32), rng.standard_normal((k, n), f32), np.full((m, n), np.nan, f32)
  library(a, b, c)
  np.testing.assert_allclose(c, a @ b, rtol=2e-3, atol=2e-4)


@long
@on_cpu
def test_one_library_serves_all_shapes(products: Path, idle: None) -> None:
  """Of 1 and 2 elements, primes, multiples, longer than a panel in a cache; each combination of short and long."""
  library = tile.load(products, "CPU")
  each = [(m, k, n) for m in (1, 3, 17, 64) for k in (1, 33, 1200) for n in (1, 16, 19, 150)]
  for shape in [*each, (2, 2, 2), (1, 1, 5000), (5000, 1, 1), (8, 4000, 8)]: multiply(library, *shape)
  assert len(library.kernels) == 1 and len(library.kernels[0]["programs"]) <= 10


@long
@on_cpu
def test_what_a_library_refuses_has_the_kernels_words(products: Path) -> None:
  library = tile.load(products, "CPU")
  tensors = Tensor(shape=(None, "K")), Tensor(shape=("K", None)), Tensor(2)
  kernel = tile.make(panels, product, tensors, kernel_name="product")
  wrong: list[tuple[type[Exception], str, tuple[Any, ...]]] = [
    (ShapeError, "K is 128 in dimension 1 of lhs and 64 in dimension 0 of rhs", (zeros(8, 128), zeros(64, 8), zeros(8, 8))),
    (ShapeError, r"outermost level of rhs is \(1, 2\), that of lhs is \(1, 1\)", (zeros(8, 9), zeros(9, 18), zeros(8, 8))),
    (ShapeError, "dimension 0 of lhs has 8 elements, dimension 0 of out has 9", (zeros(8, 9), zeros(9, 8), zeros(9, 8))),
    (ShapeError, "lhs has 2 dimensions, got a tensor of shape", (zeros(8), zeros(9, 8), zeros(9, 8))),
    (ArgumentError, r"takes 3 arguments \(lhs, rhs, out\), got 2", (zeros(8, 9), zeros(9, 8))),
  ]
  for error, match, args in [*wrong, *wrong]:
    with pytest.raises(error, match=match) as mine: library(*args)
    with config(dev="NUMPY"), pytest.raises(error) as e: kernel(*args)
    assert str(mine.value) == str(e.value).split("\n")[0]   # below are lines of Python, of which a library has none
  multiply(library, 5, 6, 7)
  with pytest.raises(DTypeError, match="lhs has elements of dtypes.float, got a tensor of dtypes.double"):
    library(np.zeros((8, 9)), zeros(9, 8), zeros(8, 8))
  out = zeros(0, 8)
  library(zeros(0, 9), zeros(9, 8), out)   # no programs
  right = zeros(8, 9), zeros(9, 8), zeros(8, 8)
  with pytest.raises(ArgumentError, match="no compile-time value 'BLOCK'"): library(*right, BLOCK=3)


@on_cpu
def test_new_sizes_cost_little(products: Path, idle: None) -> None:
  library = tile.load(products, "CPU")
  def args(n: int) -> list[Any]: return [ntgrad.Tensor(zeros(n, n), device="CPU").realize() for _ in range(3)]
  library(*args(3))
  new = [args(n) for n in range(17, 57)]
  def seconds() -> list[float]:
    out = []
    for each in new:
      begin = time.perf_counter()
      library(*each)
      out.append(time.perf_counter() - begin)
    return sorted(out)
  first, again = seconds(), seconds()
  assert first[len(first) // 2] < again[len(again) // 2] + 2e-4   # 20 µs and less where nothing else runs


def built(tmp_path: Path, premake: Any, configs: Any, **options: Any) -> tile.Library:
  with config(dev="CPU"): return tile.load(tile.build(premake, configs, tmp_path / "built", **options), "CPU")


def runs(library: tile.Library, n: int, factor: int = 2) -> None:
  x, y = np.arange(n, dtype=f32), np.full(n, -1, f32)
  library(x, y)
  assert (y == factor * x).all()


def windows(x: Any, filter: Any, out: Any) -> Any:
  """A convolution as a product of matrices: rows of windows by filters."""
  rows = x.tile((1, *filter.shape[1:]), strides=(-1, -1, 1, 1), floor_mode=True).squeeze(1)
  rows.dtype = rows.dtype.squeeze(0)
  rows = rows.ravel().flatten(end_dim=3).flatten(start_dim=1)
  columns = filter.flatten(start_dim=1).permute((1, 0))
  return panels(rows, columns, out.permute((0, 2, 3, 1)).flatten(end_dim=3))


@long
@on_cpu
def test_a_convolution_of_any_sizes(tmp_path: Path) -> None:
  """What is run to pack it is small: at sizes that nobody has hinted at it would be far beyond all memory."""
  library = built(tmp_path, pairs(windows, product, (Tensor(4),) * 3), [tile.Config()], kernel_name="conv")
  for n, ch, h, w, k, r, s in ((2, 3, 9, 10, 5, 3, 2), (1, 1, 4, 4, 1, 1, 1), (4, 16, 20, 31, 33, 3, 3), (3, 7, 11, 5, 2, 5, 5)):
    x, f = rng.standard_normal((n, ch, h, w), f32), rng.standard_normal((k, ch, r, s), f32)
    want = np.einsum("nchwrs,kcrs->nkhw", np.lib.stride_tricks.sliding_window_view(x, (r, s), axis=(2, 3)), f)
    out = np.full(want.shape, np.nan, f32)
    library(x, f, out)
    np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-3)
  with pytest.raises(ShapeError): library(x, f, zeros(3, 3, 7, 1))


@long
@on_cpu
def test_arguments_are_taken_as_others_are(tmp_path: Path) -> None:
  library = built(tmp_path, pairs(), [tile.Config()])
  x = ntgrad.Tensor(np.arange(32, dtype=f32), device="CPU").realize()
  out = ntgrad.Tensor(zeros(2, 32), device="CPU").realize()
  for _ in range(2):
    with pytest.raises(ArgumentError, match="y and x are the same memory"): library(x, x)
    library(x, out[1])
    library(x[3:10], out[0, :7])
    np.testing.assert_array_equal(out.numpy()[1], x.numpy() * 2)
    np.testing.assert_array_equal(out.numpy()[0, :7], x.numpy()[3:10] * 2)
  with pytest.raises(GradientError, match="x requires a gradient"):
    library(ntgrad.Tensor(x.numpy(), device="CPU", requires_grad=True), out[1])


@long
@on_cpu
def test_captured_functions(tmp_path: Path) -> None:
  library = built(tmp_path, pairs(), [tile.Config()])
  def step(x: Any) -> Any:
    y = ntgrad.Tensor.zeros(*x.shape, device="CPU").contiguous().realize()
    library(x, y)
    return (y + 1).realize()
  for n in (10, 11, 500):
    fast = ntgrad.jit(step)
    for v in range(4):
      x = ntgrad.Tensor(np.full(n, v, f32), device="CPU").realize()
      assert (fast(x).numpy() == 2 * v + 1).all()


@long
@on_cpu
def test_a_value_for_a_size_is_a_number(tmp_path: Path) -> None:
  premake = pairs(rows, softmax, (Tensor(shape=("M", "N")), Tensor(shape=("M", "N"))))
  library = built(tmp_path, premake, [tile.Config(values={"N": 12})], kernel_name="twelve")
  for m in (1, 5, 100):
    y = zeros(m, 12)
    library(zeros(m, 12), y)
    np.testing.assert_allclose(y, 1 / 12, rtol=1e-5)
  with pytest.raises(ArgumentError, match="twelve: the library has no kernel for M = 5: it was built for sizes with N == 12"):
    library(zeros(5, 13), zeros(5, 13))


@on_cpu
def test_shapes_come_before_sizes(tmp_path: Path) -> None:
  def premake(factor: int) -> Any:
    def scaled(x: Any, y: Any) -> None: y = x * factor  # noqa: F841
    return fours, scaled, (Tensor(1), Tensor(1))
  shapes = [((64,), "float32")] * 2
  free = [((None,), "float32"), (("?",), "float32")]
  doubles = tile.Config((7,), arguments=[((9,), "float64")] * 2)
  library = built(tmp_path, premake, [tile.Config((3,), arguments=free), tile.Config((5,), arguments=shapes), doubles])
  runs(library, 64, 5)
  for n in (63, 65, 1, 9): runs(library, n, 3)
  with pytest.raises(ArgumentError, match=r"no kernel for float64\(8,\), float64\(8,\); there is float32\(x_size_0,\), "):
    library(np.zeros(8), np.zeros(8))
  with config(dev="CPU"), pytest.raises(ArgumentError, match="two configurations"):
    tile.build(premake, [tile.Config((3,), arguments=free)] * 2, tmp_path / "again")


@long
@on_cpu
def test_numbers_expressions_bounds_and_checks(tmp_path: Path) -> None:
  N = Symbol("N", lower_bound=2, upper_bound=40)
  def arrangement(x: Any, w: Any, y: Any) -> Any:
    tile.check(x.shape[0] % 2 == 0, "rows come in pairs")
    return x.tile((2, 4)), w.tile((4,)).unsqueeze(0).expand((tile.cdiv(y.shape[0], 2), -1)), y.tile((2, 4))
  def application(x: Any, w: Any, y: Any) -> None: y = x + w  # noqa: F841
  tensors = Tensor(shape=(N, None), other=1.0), Tensor(1), Tensor(shape=(N, None))
  library = built(tmp_path, lambda: (arrangement, application, tensors),
                  [tile.Config(arguments=[((N, 12), "float32"), ((12,), "float32"), (("N", 12), "float32")])])
  for n in (2, 4, 10, 40):
    x, w, y = rng.standard_normal((n, 12), f32), rng.standard_normal(12, f32), zeros(n, 12)
    library(x, w, y)
    np.testing.assert_allclose(y, x + w, rtol=1e-6)
  for error, match, shapes in (
    (ShapeError, r"rows come in pairs \(N % 2 == 0, where N = 5\); asked for at test_tile_build.py", ((5, 12), (12,), (5, 12))),
    (ShapeError, "N is between 2 and 40, got 42", ((42, 12), (12,), (42, 12))),
    (ShapeError, "N is 4 in dimension 0 of x and 6 in dimension 0 of y", ((4, 12), (12,), (6, 12))),
    (ShapeError, r"dimension 1 of x is 12, got a tensor of shape \(4, 11\)", ((4, 11), (11,), (4, 11))),
  ):
    with pytest.raises(error, match=match): library(*(zeros(*s) for s in shapes))


@long
@on_cpu
def test_an_expression_of_a_name(tmp_path: Path) -> None:
  def application(x: Any, y: Any) -> None: x = tl.sum(y)  # noqa: F841
  tensors = Tensor(shape=("K",)), Tensor(shape=("2*K + 1",))
  premake = pairs(lambda x, y: (x.tile((1,)), y.tile((2,), floor_mode=True)), application, tensors)
  library = built(tmp_path, premake, [tile.Config()], kernel_name="sums")
  for k in (1, 3, 50):
    x, y = zeros(k), np.arange(2 * k + 1, dtype=f32)
    library(x, y)
    assert (x == y[:-1].reshape(k, 2).sum(1)).all()
  with pytest.raises(ShapeError, match=r"sums: dimension 0 of y has 8 elements; 2 \* K \+ 1 is 7 where K = 3"):
    library(zeros(3), zeros(8))


@on_cpu
def test_hints_decide_what_an_application_asks(tmp_path: Path) -> None:
  def application(x: Any, y: Any) -> None:
    if x.source.shape[0] % 2 == 0: y = x * 2  # noqa: F841
    else: y = x * 3  # noqa: F841
  even, odd = (tile.Config(hints={"x_size_0": n, "y_size_0": n}) for n in (8, 9))
  library = built(tmp_path / "one", pairs(application=application), [even], kernel_name="halved")
  runs(library, 10)
  with pytest.raises(ArgumentError, match=r"no kernel for x_size_0 = 7, y_size_0 = 7: .* x_size_0 % 2 == 0"): runs(library, 7)
  library = built(tmp_path / "both", pairs(application=application), [even, odd])
  for n in (1, 2, 7, 10, 101, 1000): runs(library, n, 2 + n % 2)
  with config(dev="CPU"), pytest.raises(ArgumentError, match="no size rows in doubled; it has .*x_size_0"):
    tile.build(pairs(), [tile.Config(hints={"rows": 3})], tmp_path / "none")


@on_cpu
def test_values_that_calls_name(tmp_path: Path) -> None:
  B = Symbol("B", constexpr=True)
  def application(x: Any, y: Any) -> None: y = x * 2  # noqa: F841
  premake = pairs(lambda x, y: (x.tile((B,)), y.tile((B,))), application)
  library = built(tmp_path, premake, [tile.Config(values={"B": 8}), tile.Config(values={"B": 16})])
  x, y = np.ones(21, f32), zeros(21)
  for b in (8, 16): library(x, y, B=b)
  assert (y == 2).all()
  with pytest.raises(ArgumentError, match="several kernels"): library(x, y)
  with pytest.raises(ArgumentError, match="no kernel for .* with {'B': 4}"): library(x, y, B=4)


@on_cpu
def test_a_damaged_or_old_library(tmp_path: Path) -> None:
  library = built(tmp_path, pairs(), [tile.Config()])
  place = library.folder / "manifest.json"
  good = json.loads(place.read_text())
  runs(library, 12)
  def broken(change: Any) -> None:
    found = json.loads(json.dumps(good))
    change(found["kernels"][0])
    place.write_text(json.dumps(found))
  def load() -> Any: return tile.load(library.folder, "CPU")
  place.write_text(json.dumps({**good, "format": 3}))
  with pytest.raises(StateError, match="has format 3; this version reads 4: build it again"): load()
  place.write_text("[]")
  with pytest.raises(StateError, match="has format None"): load()
  for change in (
    lambda k: k.pop("condition"), lambda k: k["takes"].pop("symbols"), lambda k: k.update(condition=[["x_size_0", "is", 3]]),
    lambda k: k.update(condition=[["__import__('os').getpid()", "<", 3]]), lambda k: k.update(arguments=3),
    lambda k: k["takes"]["parameters"][0].update(operations=[[0, "__class__", []]]),
    lambda k: k["takes"]["parameters"][0].update(dtype="float99"),
    lambda k: k["takes"].update(assessed=[[["x_size_0", "or exit() or", 3], "said", "", ""]]),
  ):
    broken(change)
    with pytest.raises(StateError, match="manifest.json is damaged .*; build it again"): load()
  broken(lambda k: k["programs"][0].update(grid=["open('x')", 1, 1]))
  with pytest.raises(StateError, match="is damaged"): runs(load(), 12)
  place.write_text(json.dumps(good))
  binary = library.folder / good["kernels"][0]["binary"]
  binary.write_bytes(binary.read_bytes()[:-5])
  with pytest.raises(StateError, match="is damaged; build it again"): runs(load(), 12)


def test_expressions_come_back_from_text() -> None:
  N, M = Symbol("N", lower_bound=1), Symbol("M", lower_bound=1)
  for e in (N, tile.cdiv(N, 16), N * M - 3, (N + M) // 4 % 7, tile.cdiv(N, M) * 2, N ** 2):
    there = manifest.expression(manifest.size_entry(e.node))
    names = tuple(map(ix.Size, ("M", "N")))
    for values in ((1, 1), (5, 100), (64, 63)):
      assert evaluator((there,), names)(values)[0] == tile.Symbol(e).subs(dict(zip("MN", values)))
  with pytest.raises(ArgumentError, match="which a library cannot have"): manifest.checked_name("lambda")


@needs_triton
def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
  """A row that is one block has a program for each power of two; strides that are multiples of 16 bytes have their own."""
  N = Symbol("N", upper_bound=32)
  c = tile.Config(arguments=[((None, N), "float32")] * 2, hints={"N": 32})
  folder = tile.build(pairs(rows, softmax, (Tensor(2), Tensor(2))), [c], tmp_path, target="sm_90", kernel_name="softmax")
  found = json.loads((folder / "manifest.json").read_text())
  entry, = found["kernels"]
  binary = (folder / entry["binary"]).read_bytes()
  assert found["target"] == "sm_90" and binary.count(b"\x7fELF") == len(entry["programs"])
  patterns = {(tuple(p["units"]), p["wide"]) for p in entry["programs"]}
  assert patterns == {((u, 1), wide) for u in (1, 4) for wide in (False, True)} and entry["sizes"] == ["N", "x_size_0"]
  for p in entry["programs"]:
    source = (folder / p["source"]).read_text()
    spec = manifest.spec_of(p, source)
    given = [n if u == 1 else f"{n}_{u}" for n, u in zip(entry["sizes"], p["units"])]
    assert [n for n, _ in p["about"]["signature"]] == ["data0", "data1", *given]
    assert all(n in source for n, _ in p["about"]["signature"])
    assert evaluator(spec.grid, spec.sizes)((8, 77)) == (1, 77, 1)
  records = entry["programs"]
  entry["choice"]["most"] = {"N": 32}
  for p in records: p["needs"].append(["N", "<", 33 // p["units"][0] + 1])
  programs = [SimpleNamespace(number=i, spec=manifest.spec_of(p, "")) for i, p in enumerate(records)]
  chosen = BuiltProgram("softmax", entry, programs)   # type: ignore[arg-type]
  for n in range(1, 33):   # the block that n fits, whole vectors where 4 divides it, 64 bits where the rows need them
    for m in (1, 77, (1 << 31) // n):
      program, given = chosen.variant((n, m))
      p = records[program.number]
      assert p["wide"] == (m > 77) and p["units"] == [1 if n % 4 else 4, 1] and given == (n // p["units"][0], m)
      assert f"tl.arange(0, {max(16, 1 << (n - 1).bit_length())})" in (folder / p["source"]).read_text()
  with pytest.raises(ArgumentError, match="softmax: .* no program for these sizes: N is 40, and it has programs up to 32"):
    chosen.variant((40, 5))


@long
@on_cpu
def test_a_library_takes_parameters_without_tiles(tmp_path: Path) -> None:
  """They have no grid there either, and those with tiles have."""
  def picked(places: Any, y: Any, x: Any) -> None: y = tl.load(x.data_ptr() + places)  # noqa: F841
  def placed(places: Any, y: Any, x: Any) -> Any: return places.tile((4,)), y.tile((4,)), x
  c = tile.Config(arguments=[((None,), "int32"), ((None,), "float32"), ((None,), "float32")])
  library = tile.load(tile.build(pairs(placed, picked, (Tensor(1),) * 3), [c], tmp_path, kernel_name="picked"), "CPU")
  for n, m in ((10, 5), (3, 40), (16, 4)):
    places, y = (np.arange(n) % m).astype(np.int32), zeros(n)
    library(places, y, np.arange(m, dtype=f32))
    np.testing.assert_array_equal(y, places)
  with pytest.raises(ShapeError, match="outermost level of y"): library(np.zeros(9, np.int32), zeros(4), zeros(5))


@on_cpu
def test_what_compiles_a_kernel_runs_it_with_small_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """With the likely ones the loops of a convolution would go past the memory that it is run on."""
  packed: list[Any] = []
  monkeypatch.setattr(type(get_device("CPU")), "pack", lambda self, specs: packed.extend(specs) or b"")
  with config(dev="CPU"): tile.build(pairs(), [tile.Config(hints={"x_size_0": 1 << 14, "y_size_0": 1 << 14})], tmp_path)
  assert packed and all(s.hint is None and s.lower <= 64 for spec in packed for s in spec.sizes)


def test_nearest_sizes_come_first() -> None:
  """Without a look at all choices, of which there may be any number."""
  near = [*itertools.islice(nearest_sizes([[1, 2, 4, 64]] * 30, (2,) * 30), 62)]
  assert near[0] == (2,) * 30 and len({*near}) == 62
  assert all(sum(n != 2 for n in at) == 1 and 64 not in at for at in near[1:61])
  every = [*nearest_sizes([[1, 4, 16], [8, 2]], (4, 2))]
  assert sorted(every) == [(a, b) for a in (1, 4, 16) for b in (2, 8)] and every[0] == (4, 2)
