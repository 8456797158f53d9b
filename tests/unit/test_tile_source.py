"""Scheduled kernels as files of the tile language: made again they are the same kernels, node for node; overriding with them."""
from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
import pytest
from golden.test_kernels import CASES, GRAPHS

import ntgrad
from ntgrad import Tensor, Variable, config, nn
from ntgrad.codegen.choose.gpu import choose_tiles as tiled
from ntgrad.codegen.explain.printing import index_form
from ntgrad.codegen.explain.tile_source import kernel_key, tile_source
from ntgrad.codegen.ir.errors import ArgumentError, OverrideError
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.linearizer import Linearizer, linearize
from ntgrad.codegen.opts import Vectorize
from ntgrad.engine import compile as engine_compile, overrides
from ntgrad.engine.override_files import read
from ntgrad.schedule import create_schedule
from ntgrad.tile.eject import Eject
from support.marks import long
from support.numbering import reset_numbering
from support.triton_kernels import MORE as TRITON, WITH_BLOCKS

E = Tensor.empty
I = "int32"


def gradients(loss: Tensor, *leaves: Tensor) -> list[Tensor]: return [loss, *loss.gradient(*leaves)]


def attention() -> list[Tensor]:
  q, k, v = (E(2, 2, 16, 8, requires_grad=True) for _ in range(3))
  return gradients(((q @ k.transpose(-1, -2) * 0.3).softmax(-1) @ v).sum(), q, k, v)


def convolution() -> list[Tensor]:
  x, w = E(2, 2, 8, 8, requires_grad=True), E(4, 2, 3, 3, requires_grad=True)
  return gradients(x.conv2d(w, padding=1).relu().max_pool2d().sum(), x, w)


def norm() -> list[Tensor]:
  x, w = E(4, 16, requires_grad=True), E(16, requires_grad=True)
  return gradients((x.layernorm() * w).gelu().square().sum(), x, w)


def classes() -> list[Tensor]:
  x = E(8, 10, requires_grad=True)
  return gradients(x.cross_entropy(E(8, dtype=I)), x)


def rows_of_a_part() -> list[Tensor]:
  x = E(8, 8).realize()
  x[E(3, dtype=I)] = E(3, 8) * 2
  x[2:4] = E(2, 8) * 2
  return [x]


OTHERS: dict[str, Callable[[], list[Tensor]]] = {
  "attention": attention, "convolution": convolution, "norm": norm, "classes": classes, "rows_of_a_part": rows_of_a_part,
  "batch_norm": lambda: [nn.BatchNorm(4)(E(4, 4, 6, 6))],
  "group_norm": lambda: [nn.GroupNorm(2, 4)(E(2, 4, 5, 5))],
  "normal": lambda: [Tensor.randn(10, 7)],
  "dropout": lambda: [E(8, 8).dropout(0.5)],
  "cumsum": lambda: [E(4, 50).cumsum(1)],
  "cumprod": lambda: [E(4, 50).cumprod(1) + 1],
  "cumsum_long": lambda: [E(200000).cumsum(0)],
  "argmax": lambda: [E(4, 20).argmax(-1)],
  "sort": lambda: [E(4, 20).sort(-1)[0]],
  "topk": lambda: list(E(4, 20).topk(3)),
  "median": lambda: [E(20).median()],
  "std": lambda: [E(4, 20).std(1), E(4, 20).logsumexp(-1)],
  "scatter": lambda: [E(5, 6).scatter(1, E(5, 2, dtype=I), E(5, 2))],
  "gather_1": lambda: [E(5, 6).gather(1, E(5, 2, dtype=I))],
  "triangles": lambda: [E(6, 6).tril() + E(6, 6).triu(1)],
  "roll": lambda: [E(6, 5).roll(2, 0)],
  "one_hot": lambda: [E(6, dtype=I).one_hot(5)],
  "arange": lambda: [Tensor.arange(20).float() * E(20)],
  "big_sum": lambda: [E(1000, 1000).sum()],
  "long_softmax": lambda: [E(4, 100000).softmax(-1)],
  "interpolate": lambda: [E(1, 2, 4, 4).interpolate(size=(8, 8))],
  "cat_3": lambda: [E(3, 4).cat(E(3, 2), E(3, 1), dim=1).exp()],
  "diagonal": lambda: [E(6, 6).diagonal()],
  "transposed_convolution": lambda: [E(1, 2, 5, 5).conv_transpose2d(E(2, 3, 3, 3), stride=2)],
  "any": lambda: [(E(5, 6) > 1).any(1)],
  "small_ints": lambda: [E(8, dtype="int8") + E(8, dtype="int8"), E(8, dtype="uint8").sum()],
  "half_sum": lambda: [E(8, 16, dtype="float16").sum(1)],
  "products": lambda: [E(5, 8).prod(1), E(5, 8).min(axis=1)],
  "powers": lambda: [E(5) ** 2.5, E(5) ** E(5), 1 / E(5), E(5).isnan(), E(5).bitcast(I), E(5, dtype=I) << 2],
}
ALL = {**GRAPHS, **TRITON, **{name: graph for name, graph in OTHERS.items() if name not in {*GRAPHS, *TRITON}}}
def kernels(name: str) -> list[Kernel]:
  return [item.ast for item in create_schedule(ALL[name]()) if item.ast is not None]


@pytest.mark.parametrize("name", ALL)
def test_round_trip(name: str) -> None:
  """A file made of a kernel makes the same kernel: the same linear UOps."""
  for k in kernels(name):
    made = read(text := tile_source(k, "k")).form()
    assert index_form(made) == index_form(k), text
    assert str(Linearizer(made).linearize().uops) == str(Linearizer(k).linearize().uops), text
    assert read(text).key == kernel_key(k)


@pytest.mark.parametrize("name", {**GRAPHS, **TRITON})
def test_round_trip_with_blocks(name: str) -> None:
  """The same for a target that computes with blocks: tiled as the model does, the same linear UOps."""
  def uops(k: Kernel) -> str: return str(linearize(tiled(k, replace(WITH_BLOCKS, cores=1)), WITH_BLOCKS))
  for k in kernels(name): assert uops(read(tile_source(k, "k")).form()) == uops(k)


@pytest.mark.parametrize("name", [name for name, (_, steps) in CASES.items() if steps])
def test_opts_are_recorded(name: str) -> None:
  graph, steps = CASES[name]
  k = Linearizer(kernels(graph)[-1])
  for opt in steps: k.apply(opt)
  found = read(tile_source(kernels(graph)[-1], name, [tuple(steps)]))
  assert found.opts == (tuple(steps),)
  again = Linearizer(found.form())
  for opt in found.opts[0]: again.apply(opt)
  assert str(again.linearize().uops) == str(k.linearize().uops)


def sized(graph: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
  """The kernels of a graph, all sizes known at the launch."""
  seen: list[Kernel] = []
  make = engine_compile.SizedProgram
  monkeypatch.setattr(engine_compile, "SizedProgram", lambda kernel, *more: seen.append(kernel) or make(kernel, *more))
  def x(*shape: int) -> Tensor: return Tensor(np.ones(shape, np.float32), device="NUMPY").realize()
  with config(dynamic="always", cache=0): graph(x).realize()
  assert seen
  return seen


PROGRAMS: dict[str, Callable[..., Tensor]] = {
  "elementwise": lambda x: x(20, 30) * 2 + x(30),
  "softmax": lambda x: x(20, 30).softmax(-1),
  "layer_norm": lambda x: x(20, 30).layernorm(),
  "matmul": lambda x: x(20, 30) @ x(30, 40),
  "batched": lambda x: x(3, 20, 30) @ x(3, 30, 40),
  "transposed": lambda x: x(20, 30).T.contiguous() + 1,
  "flattened": lambda x: x(20, 30, 4).permute(1, 0, 2).reshape(30, 80) + 1,
  "slice": lambda x: x(64, 32)[:Variable("n", 1, 4096).bind(17)] * 2,
  "cat": lambda x: x(20, 30).cat(x(12, 30)),
  "columns": lambda x: x(20, 30).sum(0),
  "pad": lambda x: x(20, 30).pad(((1, 2), (0, 3))) + 1,
  "convolution": lambda x: x(1, 2, 8, 8).conv2d(x(3, 2, 3, 3), padding=1),
  "mean": lambda x: x(20, 30).mean(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_run_time_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """Of a kernel with run-time sizes the file has symbols, and makes the kernel for all sizes."""
  for k in sized(PROGRAMS[name], monkeypatch):
    found = read(text := tile_source(k, "k"))
    assert index_form(found.form()) == index_form(k), text


def test_reads_as_a_person_would_write_it() -> None:
  item, = create_schedule([E(8, 32).softmax(-1)])
  text = item.tile_source("softmax", [(Vectorize(1, 8),)])
  assert text == f'''\
"""softmax: a0:8 GRID, a1:32 LOOP."""
from ntgrad.codegen.opts import Vectorize
import ntgrad.tile as tile
import ntgrad.tile.language as tl

KEY = "{kernel_key(item.ast)}"   # of the kernel that this stands for
OPTS = [[Vectorize(axis=1, n=8)]]   # of each part
M, N = 8, 32   # sizes; numbers below may be made of them

def arrangement(data0, data1):
  data0 = data0.tile((1, N)).squeeze(1)
  data0.dtype = data0.dtype.squeeze(0)
  data1 = data1.tile((1, N)).squeeze(1)
  data1.dtype = data1.dtype.squeeze(0)
  return data0, data1

def application(data0, data1):
  v0 = tl.exp(data1 - tl.max(data1))
  data0 = v0 / tl.sum(v0)

tensors = (
  tile.Tensor(shape=(M, N), dtype=tl.float32),
  tile.Tensor(shape=(M, N), dtype=tl.float32),
)
kernel = tile.make(arrangement, application, tensors, kernel_name="softmax")
'''


def test_left_free_it_is_the_kernel_for_all_sizes() -> None:
  item, = create_schedule([(E(8, 32) * 2).softmax(-1)])
  free = read(item.tile_source("softmax").replace("M, N = 8, 32", 'M, N = tile.Symbol("M"), tile.Symbol("N")'))
  assert index_form(free.form()) == """\
axes   a0:M GRID, a1:N LOOP
data0  (M, N) float, written
data1  (M, N) float
v0 = data1[a0, a1] * 2.
v1 = exp(v0 - max[a1](v0))
store data0[a0, a1] = v1 / sum[a1](v1)"""
  for shape in ((3, 40), (17, 5)):
    x, y = numbers(*shape), np.zeros(shape, np.float32)
    free.kernel(y, x)
    e = np.exp(x * 2 - (x * 2).max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_print_schedule() -> None:
  shown = str(create_schedule([E(1, 2, 6, 6).conv2d(E(4, 2, 3, 3), E(4)).relu(), E(8, 32).softmax(-1), E(4, 20).sort(-1)[0]]))
  assert shown.startswith("""\
0  r_4_4_4_2_3_3: data0 (1, M, N, K) float <- data1 (1, P, 6, 6) float, data2 (M, P, Q, R) float, data3 (M) float; \
M = 4, N = 4, K = 4, P = 2, Q = 3, R = 3
     data0 = tl.maximum(0., tl.sum(data1 * data2) + data3)
1  r_8_32: data0 (M, N) float <- data1 (M, N) float; M = 8, N = 32
     v0 = tl.exp(data1 - tl.max(data1))
     data0 = v0 / tl.sum(v0)
2  E_4_20_20: data0 (M, N) ulong <- data1 (M, N) float; M = 4, N = 20
     a2 = tl.arange(0, N)
     v0 = tl.bitcast(tl.where(data1 == 0., 0., data1), tl.uint32)
     v1 = tl.where(tl.isnan(data1), 4294967295, v0 ^ tl.where(v0 ^ 4294967295 < 2147483648, 4294967295, \
tl.cast(2147483648, tl.uint32)))
     data0 = tl.sort_bits(tl.cast(v1, tl.uint64) << 32 | tl.cast(tl.cast(a2, tl.int32), tl.uint64), 32, 40, axis=0)
3  E_4_20_20: data0 (M, N) ulong <- data1 (M, N) ulong; M = 4, N = 20
     data0 = tl.sort_bits(data1, 40, 48, axis=0)
"""), shown
  moved = create_schedule([Tensor(numbers(3)).realize().to("NUMPY")])
  assert str(moved) == "0  copy to NUMPY"


def test_noopt_keeps_tiles(capsys: pytest.CaptureFixture[str]) -> None:
  """One program a tile with a loop inside; else what is shown says that they are dissolved."""
  import ntgrad.tile as tile
  def arrangement(x, y): return x.tile((3, 8)), y.tile((3, 8))  # type: ignore[no-untyped-def]
  def application(x, y): y = x * 2 + 1  # type: ignore[no-untyped-def] # noqa: F841
  def kernel() -> tile.TileKernel: return tile.make(arrangement, application, (tile.Tensor(2), tile.Tensor(2)))
  x, y = numbers(8, 20), np.zeros((8, 20), np.float32)
  with config(noopt=1, debug=3, color=0, dev="CPU"): kernel()(x, y)
  shown = capsys.readouterr().out
  assert "a0:3 GRID, a1:3 GRID, a2:3 LOOP, a3:8 LOOP" in shown and "are now part of" not in shown
  np.testing.assert_allclose(y, x * 2 + 1, rtol=1e-6)
  y[:] = 0
  with config(debug=3, color=0, dev="CPU"): kernel()(x, y)
  np.testing.assert_allclose(y, x * 2 + 1, rtol=1e-6)
  assert "tiles a2:3, a3:8 are now part of" in (shown := capsys.readouterr().out) and "NOOPT=1 keeps tiles" in shown


# ---- in the place of the scheduler's

@pytest.fixture(autouse=True)
def none_in_force() -> Iterator[None]:
  overrides.given_overrides.clear()
  yield
  overrides.given_overrides.clear()


def numbers(*shape: int) -> np.ndarray: return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def edited(item: ntgrad.schedule.ScheduleItem, old: str, new: str, path: Path) -> Path:
  text = item.tile_source("edited")
  assert old in text
  path.write_text(text.replace(old, new))
  return path


@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
def test_an_edited_kernel_runs_and_is_shown(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  x = Tensor(a := numbers(12, 48), device=device).realize()
  def graph() -> Tensor: return (x * 3).softmax(-1)
  item, = create_schedule(graph())
  # another way to the same: 1 / sum first
  path = edited(item, "v1 / tl.sum(v1)", "v1 * tl.reciprocal(tl.sum(v1))", tmp_path / "softmax.py")
  ntgrad.override(item, path)
  with config(debug=2, color=0): out = graph().numpy()
  assert "edited_overridden" in capsys.readouterr().out
  e = np.exp(a * 3 - (a * 3).max(axis=1, keepdims=True))
  np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)
  ntgrad.override(item, None)
  with config(debug=2, color=0): graph().numpy()
  assert "overridden" not in capsys.readouterr().out


def test_a_wrong_kernel_is_refused(tmp_path: Path) -> None:
  x = Tensor(numbers(12, 48)).realize()
  item, = create_schedule(x.softmax(-1))
  ntgrad.override(item, edited(item, "v0 / tl.sum(v0)", "v0 / tl.sum(v0) + 0.25", tmp_path / "wrong.py"))
  with pytest.raises(OverrideError, match=r"wrong.py: edited_over.* gives something else .*data0, 576 of 576 .* of 0.25"):
    x.softmax(-1).numpy()
  with pytest.raises(OverrideError, match="576 of 576"): x.softmax(-1).numpy()   # not only the first time


def test_in_place_kernels_are_compared_on_copies(tmp_path: Path) -> None:
  """The check does not write twice over what a kernel reads and writes."""
  def step(t: Tensor) -> Tensor: return t.assign(t * 0.5 + 1)
  t = Tensor(a := numbers(40)).realize()
  step(t)
  item, = create_schedule(t)
  ntgrad.override(item, edited(item, "0.5", "0.5", tmp_path / "half.py"))
  np.testing.assert_allclose(t.numpy(), a * 0.5 + 1, rtol=1e-6)
  np.testing.assert_allclose(step(t).numpy(), (a * 0.5 + 1) * 0.5 + 1, rtol=1e-6)


def test_other_parameters_are_refused(tmp_path: Path) -> None:
  x = Tensor(numbers(12, 48)).realize()
  item, = create_schedule(x.softmax(-1))
  ntgrad.override(item, edited(item, "M, N = 12, 48", "M, N = 12, 47", tmp_path / "short.py"))
  with pytest.raises(OverrideError, match=r"short.py: .*\(12, 4"): x.softmax(-1).numpy()
  with pytest.raises(ArgumentError, match="override: a kernel of tile.make"): ntgrad.override(item, 3)
  with pytest.raises(ArgumentError, match="an item of create_schedule"): ntgrad.override(x, None)


def test_opts_that_do_not_apply(tmp_path: Path) -> None:
  x = Tensor(numbers(12, 48)).realize()
  item, = create_schedule(x.softmax(-1))
  path = tmp_path / "k.py"
  path.write_text(item.tile_source("k", [(Vectorize(7, 8),)]))
  ntgrad.override(item, path)
  with pytest.raises(OverrideError, match="k.py: its OPTS do not apply .*OPTS = None"): x.softmax(-1).numpy()


def test_a_file_must_say_what_it_is(tmp_path: Path) -> None:
  for text, why in (("kernel = 3", "makes no `kernel`"), ("1 / 0", "ZeroDivisionError")):
    with pytest.raises(OverrideError, match=why): read(text, str(tmp_path / "bad.py"))
  with pytest.raises(OverrideError, match="no such folder"), config(override=str(tmp_path / "none")): (E(3) + 1).realize()


SCRIPT = """
import numpy as np
from ntgrad import Tensor
x = Tensor(np.arange(60, dtype=np.float32).reshape(6, 10))
print(x.realize().sum(1).numpy().tolist(), (x * 2 + 1).numpy().sum())
"""


def test_eject_edit_and_override(tmp_path: Path) -> None:
  """The command writes files, which OVERRIDE puts in the place of what they stand for, found by their KEY."""
  (tmp_path / "script.py").write_text(SCRIPT)
  def python(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    import os
    return subprocess.run([sys.executable, *args], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "CACHE": "0", "COLOR": "0", **env})
  r = python("-m", "ntgrad", "eject", "--kernel", "r_*", "-o", "mine", "script.py")
  assert r.returncode == 0, r.stderr
  path, = (tmp_path / "mine").glob("*.py")
  assert f"wrote {path.relative_to(tmp_path)}" in r.stderr and "r_" in path.name
  path.rename(path.with_name("another_name.py"))
  shown = python("script.py", OVERRIDE="mine", DEBUG="2")
  assert shown.returncode == 0, shown.stderr
  assert len(re.findall(r"\*\*\* .*_overridden ", shown.stdout)) == 1
  assert shown.stdout.splitlines()[-1].startswith("[45.0, 145.0,") or "[45.0, 145.0," in shown.stdout
  text = path.with_name("another_name.py").read_text()
  path.with_name("another_name.py").write_text(text.replace("tl.sum(data1)", "tl.sum(data1) * 2.0"))
  wrong = python("script.py", OVERRIDE="mine")
  assert wrong.returncode == 1 and "OverrideError" in wrong.stderr and "another_name.py" in wrong.stderr
  assert python("-m", "ntgrad", "eject", "none.py").returncode != 0


def test_debug_3_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
  reset_numbering()
  with config(debug=3, color=0, cache=0): (Tensor(numbers(3, 7)).realize().sum(1) * 1.625).realize()
  shown = capsys.readouterr().out
  assert "as a file of the tile language" in shown and "  data0 = tl.sum(data1) * 1.625" in shown


@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
def test_a_kernel_that_writes_a_part_of_a_memory(device: str, tmp_path: Path) -> None:
  def graph() -> Tensor: return x.cat(x[:3] * 2)
  x = Tensor(a := numbers(5, 32), device=device).realize()
  for n, item in enumerate(create_schedule(graph())):
    ntgrad.override(item, edited(item, "data0 = ", "data0 = ", tmp_path / f"{n}.py"))
  np.testing.assert_allclose(graph().numpy(), np.concatenate([a, a[:3] * 2]), rtol=1e-6)


@long
def test_every_kernel_of_a_training_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  """Written with the Opts that were chosen, read again, and compared with the scheduler's: all of a small network's."""
  rng = np.random.default_rng(0)
  x, y = Tensor(numbers(4, 1, 10, 10)).realize(), Tensor(rng.integers(0, 10, 4).astype(np.int32)).realize()

  def losses() -> list[float]:
    w, norm, table = (Tensor(numbers(*s) / 4, requires_grad=True) for s in ((3, 1, 3, 3), (75, 10), (10, 10)))
    optimizer, out = nn.optim.Adam([w, norm, table], lr=0.01), []
    for _ in range(3):
      optimizer.zero_grad()
      loss = (x.conv2d(w, padding=1).relu().max_pool2d().flatten(1).layernorm() @ norm + table[y]).cross_entropy(y)
      loss.backward()
      optimizer.step()
      out.append(loss.item())
    return out

  with config(cache=0), Eject("*", tmp_path) as written: want = losses()
  assert len(written.written) > 10 and not written.refused
  with config(override=str(tmp_path), debug=2, color=0): got = losses()
  assert capsys.readouterr().out.count("_overridden") > 30
  assert got == pytest.approx(want, rel=1e-4) and want[2] < want[0]
