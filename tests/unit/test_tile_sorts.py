"""Sorts by bits and running sums in the tile language as the scheduler has them: what they give, on their own and as files made
of scheduled kernels; sizes that only a launch knows; what is refused."""
from __future__ import annotations

# ruff: noqa: F841 (assigning a parameter stores)
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Tensor, config
from ntgrad.backends import renderer
from ntgrad.codegen.explain.printing import index_form
from ntgrad.codegen.explain.tile_source import kernel_key, tile_source
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.linearizer import linearize
from ntgrad.engine.compile import programs
from ntgrad.engine.device import get_device
from ntgrad.engine.override_files import read
from ntgrad.errors import NtgradError
from ntgrad.schedule import schedule_graph, sinks_of
from ntgrad.tile.eject import Eject
from support.marks import long, long_where

E = Tensor.empty
RNG = np.random.default_rng(0)
DEVICES = ["CPU", "NUMPY"]

GRAPHS: dict[str, Callable[[], list[Tensor]]] = {
  "sort_rows": lambda: list(E(4, 20).sort(-1)),
  "sort_columns": lambda: list(E(20, 4).sort(0)),
  "sort_middle": lambda: list(E(3, 5, 7).sort(1, descending=True)),
  "sort_ints": lambda: [E(300, dtype="int32").sort()[0]],
  "sort_small": lambda: [E(6, 9, dtype="uint8").sort(1)[0]],
  "sort_doubles": lambda: [E(2, 10, dtype="float64").sort(1)[0]],
  "sort_computed": lambda: [(E(4, 20) * 2 + E(20)).exp().sort(-1)[0] + 1],
  "argsort": lambda: [E(8, 5000).argsort(-1)],
  "sort_long": lambda: [E(20000).sort()[0]],
  "topk": lambda: list(E(4, 20).topk(3)),
  "topk_long": lambda: list(E(2, 9000).topk(5)),
  "least": lambda: [E(3, 4000).topk(1)[0]],
  "least_columns": lambda: [E(400, 3).topk(1, dim=0, largest=False)[1]],
  "median": lambda: [E(20).median()],
  "median_rows": lambda: list(E(5, 21).median(1)),
  "cumsum": lambda: [E(4, 50).cumsum(1) * 2],
  "cumsum_long": lambda: [E(200000).cumsum(0)],
  "cumsum_long_rows": lambda: [E(2, 150000).cumsum(1)],
  "cumsum_of_half": lambda: [E(3, 300, dtype="float16").cumsum(1)],
  "cumprod_long": lambda: [E(100000).cumprod(0)],
  "cummax_long": lambda: list(E(100000).cummax(0)),
}


def kernels(name: str, target: Any) -> list[Kernel]:
  return [i.ast for i in schedule_graph(sinks_of(GRAPHS[name]()), target)[1] if i.ast is not None]


@long_where(lambda target: target == "numpy")
@pytest.mark.parametrize("target", ["opencl", "numpy", "triton"])
@pytest.mark.parametrize("name", GRAPHS)
def test_round_trip(name: str, target: str) -> None:
  """Kernels as each target has them: a file makes the same one, and so the same linear UOps."""
  to = renderer(target).target
  for k in kernels(name, to):
    made = read(text := tile_source(k, "k")).form()
    assert index_form(made) == index_form(k), text
    assert str(linearize(made, to)) == str(linearize(k, to)), text
    assert read(text).key == kernel_key(k)


def run(kernel: Kernel, device: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
  """What a scheduled kernel leaves in its arguments."""
  d, (program,) = get_device(device), programs([kernel], get_device(device))
  raws = [d.alloc(a.nbytes) for a in arrays]
  try:
    for raw, a in zip(raws, arrays): d.copyin(raw, np.ascontiguousarray(a).view(np.uint8).reshape(-1))
    program(raws)
    d.synchronize()
    return [d.copyout(raw, a.nbytes).view(np.uint8).reshape(-1)[:a.nbytes].view(a.dtype).reshape(a.shape)
            for raw, a in zip(raws, arrays)]
  finally:
    for raw, a in zip(raws, arrays): d.free(raw, a.nbytes)


@long_where(lambda device: device != "NUMPY")
@pytest.mark.parametrize(
  ("name", "device"), [(n, "CPU") for n in GRAPHS] + [(n, "NUMPY") for n in ("sort_middle", "topk", "median_rows", "cumsum")])
def test_a_file_runs_on_its_own(name: str, device: str) -> None:
  """The kernel of a file, called as any of the tile language, gives what the scheduler's gives."""
  for k in kernels(name, get_device(device).renderer.target):
    if not k.sorts and not k.scans: continue
    arrays = []
    for p in k.params:
      size = tuple(map(int, p.shape))
      kind = p.dtype.np.kind
      numbers = RNG.standard_normal(size) if kind == "f" else RNG.integers(0, 99 if kind == "i" else 200, size)
      arrays.append(numbers.astype(p.dtype.np))
    want = run(k, device, arrays)
    got = [a.copy() for a in arrays]
    with config(dev=device): read(tile_source(k, "k")).kernel(*got)
    for p, w, g in zip(k.params, want, got): np.testing.assert_allclose(g, w, rtol=1e-5, err_msg=f"data{p.slot}")


@long
@pytest.mark.usefixtures("nothing_compiled")
def test_files_in_the_place_of_the_kernels(tmp_path: Path) -> None:
  """Ejected, and in force: what Tensors give is the same."""
  a, b = RNG.standard_normal((6, 50)).astype(np.float32), RNG.standard_normal(70000).astype(np.float32)
  def results() -> list[np.ndarray]:
    x, y = Tensor(a), Tensor(b)
    return [t.numpy() for t in (*x.sort(1), *x.topk(4), x.median(), y.cumsum(0))]
  with config(cache=0), Eject("*", tmp_path) as found: want = results()
  assert not found.refused
  with config(override=str(tmp_path)), ntgrad.profile() as p: got = results()
  assert p.rows and all("_overridden" in row.name for row in p.rows if "copy" not in row.name), [row.name for row in p.rows]
  for w, g in zip(want, got): np.testing.assert_array_equal(w, g)


# ---- as a person writes them

def apply(fn: Callable[..., Any], *arrays: np.ndarray, device: str = "CPU") -> np.ndarray:
  with config(dev=device): return np.asarray(tile.apply(fn, *arrays))


@pytest.mark.parametrize("device", DEVICES)
def test_sort_bits(device: str) -> None:
  x = RNG.integers(0, 1 << 6, (5, 40)).astype(np.uint32)
  np.testing.assert_array_equal(apply(lambda x: tl.sort_bits(x, 0, 6, axis=0), x, device=device), np.sort(x, 0))
  by_low = np.take_along_axis(x, np.argsort(x & 7, 1, kind="stable"), 1)   # equal ones stay as they stood
  np.testing.assert_array_equal(apply(lambda x: tl.sort_bits(x, 0, 3), x, device=device), by_low)
  got = apply(lambda x: tl.sort_bits(x ^ 0x3F, 0, 6) + 1, x, device=device)
  np.testing.assert_array_equal(got, np.sort(x ^ 0x3F, 1) + 1)


@pytest.mark.parametrize("keep", [1, 3])
def test_the_first_few(keep: int) -> None:
  x = RNG.integers(0, 1 << 30, (5, 400)).astype(np.uint32)
  got = apply(lambda x: tl.sort_bits(x, 0, 32, keep=keep), x)
  assert got.shape == (5, keep)
  np.testing.assert_array_equal(got, np.sort(x, 1)[:, :keep])


@pytest.mark.parametrize("device", DEVICES)
def test_sort_bits_of_rows_in_tiles(device: str) -> None:
  """Several rows a program, the last ones not all there; what is stored is computed from what is sorted."""
  def by(x: Any, y: Any) -> None: y = tl.cast(tl.sort_bits(x, 0, 6) & 15, tl.int32) * 2
  x = RNG.integers(0, 1 << 6, (10, 33)).astype(np.uint32)
  y = np.zeros((10, 33), np.int32)
  with config(dev=device):
    tile.make(lambda x, y: (x.tile((4, -1)), y.tile((4, -1))), by, (tile.Tensor(2), tile.Tensor(2)))(x, y)
  np.testing.assert_array_equal(y, (np.sort(x, 1) & 15).astype(np.int32) * 2)


@pytest.mark.parametrize("every", [1, 3, 7, 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_that_begin_anew(every: int, reverse: bool) -> None:
  x = RNG.integers(-9, 9, (4, 20)).astype(np.int32)
  for fn, want in ((tl.cumsum, np.cumsum), (tl.cummax, np.maximum.accumulate)):
    got = apply(lambda x, fn=fn: fn(x, 1, reverse, every=every), x)
    turned = x[:, ::-1] if reverse else x
    parts = [want(turned[:, i:i + every], axis=1) for i in range(0, 20, every)]
    expected = np.concatenate(parts, 1)
    np.testing.assert_array_equal(got, expected[:, ::-1] if reverse else expected)


def test_what_is_refused() -> None:
  x = np.ones((4, 8), np.uint32)
  for fn, why in (
    (lambda x: tl.sort_bits(tl.cast(x, tl.int32), 0, 8), "unsigned ints, got"),
    (lambda x: tl.sort_bits(x, 8, 8), "bits from 8 to 8 of"),
    (lambda x: tl.sort_bits(x, 0, 33), "bits from 0 to 33 of"),
    (lambda x: tl.sort_bits(x, 0, 8, axis=2), "sort_bits: axis 2"),
    (lambda x: tl.sort_bits(x, 0, 8, keep=9), "the first 9 of 8"),
    (lambda x: tl.cumsum(x, 0, every=-1), "every is a number of elements, got -1"),
    (lambda x: tl.sort_bits(x, 0, 8) + tl.sum(x), "beside no sum"),
    (lambda x: tl.sort_bits(x, 0, 8, axis=1) + tl.sort_bits(x, 0, 8, axis=0), "one of a kind"),
    (lambda x: tl.sort_bits(tl.sort_bits(x, 0, 8), 8, 16), "one of a kind"),
  ):
    with pytest.raises(NtgradError, match=why): tile.apply(fn, x)   # type: ignore[arg-type]


# ---- sizes that a launch knows

def rows(*xs: Any) -> Any: return tuple(x.tile((1, -1)) for x in xs)

def few_rows(*xs: Any) -> Any: return tuple(x.tile((3, -1)) for x in xs)

def running(x: Any, y: Any) -> None: y = tl.cumsum(x, axis=1) * 2

def backwards(x: Any, y: Any) -> None: y = tl.cummax(x + 1, axis=1, reverse=True)

def columns(x: Any, y: Any) -> None: y = tl.cumsum(x, axis=0)


EXPECTED: dict[Any, Callable[[np.ndarray], np.ndarray]] = {
  running: lambda x: np.cumsum(x, 1) * 2, backwards: lambda x: np.maximum.accumulate((x + 1)[:, ::-1], 1)[:, ::-1],
  columns: lambda x: np.cumsum(x, 0)}


def tall(*xs: Any) -> Any: return tuple(x.tile((-1, 4)) for x in xs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
  ("arrangement", "application"), [(rows, running), (rows, backwards), (few_rows, running), (tall, columns)])
def test_along_a_run_time_size(arrangement: Any, application: Any, device: str) -> None:
  """One kernel for all lengths."""
  with config(dev=device):
    kernel = tile.make(arrangement, application, (tile.Tensor(2), tile.Tensor(2)))
    forms = set()
    for shape in ((4, 30), (5, 47), (7, 200), (1, 1), (3, 64), (300, 6)):
      x = RNG.integers(-9, 9, shape).astype(np.float32)
      y = np.zeros(shape, np.float32)
      kernel(x, y)
      np.testing.assert_allclose(y, EXPECTED[application](x), rtol=1e-5)
      forms.add(kernel.last.kernel)
    assert len(forms) == 2 and kernel.last.sizes   # numbers at first, then one for all


def test_long_rows_of_run_time_size() -> None:
  kernel = tile.make(rows, running, (tile.Tensor(shape=("M", "N")), tile.Tensor(shape=("M", "N"))))
  for n in (70000, 100001):
    x = RNG.standard_normal((2, n)).astype(np.float32)
    y = np.zeros_like(x)
    kernel(x, y)
    np.testing.assert_allclose(y, np.cumsum(x.astype(np.float64), 1) * 2, atol=1e-2)
  assert len(kernel.last.sizes) == 2


def test_beside_other_work_the_size_is_a_number() -> None:
  """A sum along the same dimension has no such kernel: the dimension stays a number, the answer right."""
  def share(x: Any, y: Any) -> None: y = tl.cumsum(x, axis=1) / tl.sum(x, axis=1, keep_dims=True)
  kernel = tile.make(rows, share, (tile.Tensor(2), tile.Tensor(2)))
  for shape in ((4, 30), (5, 47), (7, 20)):
    x = RNG.uniform(1, 2, shape).astype(np.float32)
    y = np.zeros(shape, np.float32)
    kernel(x, y)
    np.testing.assert_allclose(y, np.cumsum(x, 1) / x.sum(1, keepdims=True), rtol=1e-5)


def test_in_place_along_a_run_time_size() -> None:
  def over(x: Any) -> None: x = tl.cumsum(x, axis=1)
  kernel = tile.make(lambda x: x.tile((1, -1)), over, (tile.Tensor(2),))
  for shape in ((4, 30), (5, 47), (7, 20)):
    x = RNG.integers(-9, 9, shape).astype(np.float32)
    want = np.cumsum(x, 1)
    kernel(x)
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("target", ["triton", "c", "metal", "opencl"])
def test_source_for_all_sizes(target: str) -> None:
  kernel = tile.make(rows, running, (tile.Tensor(2), tile.Tensor(2)), kernel_name="running")
  assert "x_size_1" in (text := kernel.source(target))
  if target == "triton": assert "associative_scan" in text or "cumsum" in text


@long
def test_cubins(tmp_path: Path) -> None:
  """Triton compiles them: a running sum of all lengths, one by parts, and a sort."""
  pytest.importorskip("triton")
  def by_parts(x: Any, y: Any) -> None: y = tl.cumsum(x, axis=1, every=100)
  def ordered(x: Any, y: Any) -> None: y = tl.sort_bits(x, 0, 32, axis=1)
  made: list[tuple[Any, list[Any]]] = [
    (running, [(("M", "N"), "float32")] * 2), (by_parts, [((4, 3000), "float32")] * 2), (ordered, [((4, 300), "uint32")] * 2)]
  for application, arguments in made:
    folder = tmp_path / application.__name__
    tile.build(lambda a=application: (rows, a, (tile.Tensor(2), tile.Tensor(2))), [tile.Config(arguments=arguments)], folder,
               target="sm_90")
    assert list(folder.glob("*.bin"))
