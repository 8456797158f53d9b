"""Finding out what a kernel does: ``tl.device_print``, ``breakpoint()``, races."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Device, Tensor, jit
from ntgrad.codegen.ir.config import config
from ntgrad.errors import ApplicationError, ArgumentError, CompileError, RaceError
from support.devices import missing
from support.triton import needs_triton

PRINTING = "CPU", "NUMPY"


def halves(x: Any, y: Any) -> None:
  half = x / 2
  tl.device_print("50% of x", half)
  for k in range(2):
    tl.device_print("round", k, tl.sum(half) > 1)
  y = half + 1  # noqa: F841


def pair(application: Any, *block: int) -> Any:
  return tile.make(lambda x, y: (x.tile(block), y.tile(block)), application, (tile.Tensor(len(block)),) * 2)


def printed(capfd: Any, run: Callable[[], object]) -> list[str]:
  capfd.readouterr()
  run()
  sys.stdout.flush()
  return [line for line in capfd.readouterr().out.splitlines() if line.startswith("pid")]


def expected(x: np.ndarray[Any, Any]) -> list[list[str]]:
  """The lines of each of the four programs for a (3, 5) array in blocks of (2, 3)."""
  whole = np.pad(x, ((0, 1), (0, 1))) / 2
  out = []
  for i, j in np.ndindex(2, 2):
    block = whole[2*i:2*i + 2, 3*j:3*j + 3]
    lines = [f"idx ({r}, {c}) 50% of x: {block[r, c]:.7g}" for r, c in np.ndindex(2, 3)]
    for k in range(2):
      lines += [f"idx () round (operand 0): {k}", f"idx () round (operand 1): {int(block.sum() > 1)}"]
    out.append([f"pid ({i}, {j}) {line}" for line in lines])
  return out


@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("device", PRINTING)
def test_each_element_once_in_order(device: str, noopt: int, capfd: Any) -> None:
  if reason := missing(device): pytest.skip(reason)
  x = np.arange(15, dtype=np.float32).reshape(3, 5)
  def run() -> None:
    y = Tensor(np.zeros_like(x), device=device).realize()
    pair(halves, 2, 3)(Tensor(x, device=device).realize(), y)
    np.testing.assert_array_equal(y.numpy(), x / 2 + 1)
  with config(noopt=noopt): lines = printed(capfd, run)
  programs = expected(x)
  assert sorted(lines) == sorted(line for program in programs for line in program)
  for program in programs:   # programs print side by side, each in its order
    own = program[0][:len("pid (0, 0)")]
    assert [line for line in lines if line.startswith(own)] == program


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int64", "uint64", "bool", "bfloat16"])
@pytest.mark.parametrize("device", PRINTING)
def test_values_as_they_are(device: str, dtype: str, capfd: Any) -> None:
  def show(x: Any, y: Any) -> None:
    tl.device_print("x", x)
    y = x  # noqa: F841
  numbers = {"i": [-3, 100], "u": [7, 250], "b": [0, 1]}.get(np.dtype(dtype).kind if dtype != "bfloat16" else "f", [0.5, -3])
  if dtype == "uint64": numbers = [7, (1 << 64) - 1]
  x, out = (Tensor(numbers if dtype == "bfloat16" else np.array(numbers, dtype), dtype=dtype, device=device).realize()
            for _ in range(2))
  lines = printed(capfd, lambda: (pair(show, 2)(x, out), out.numpy()))
  assert lines == [f"pid (0) idx ({i}) x: {int(n) if dtype == 'bool' else n}" for i, n in enumerate(numbers)]


@pytest.mark.parametrize("device", PRINTING)
def test_what_is_not_asked_for_prints_too(device: str, capfd: Any) -> None:
  """A call with an argument that is not computed yet, in a replay, in a branch that some programs take, without a block."""
  def some(x: Any, y: Any) -> None:
    if tl.program_id(0) == 1: tl.device_print("second", tl.max(x))
    tl.device_print("here")
    y = x  # noqa: F841
  k, y = pair(some, 4), Tensor(np.zeros(8, np.float32), device=device).realize()
  x = Tensor(np.arange(8, dtype=np.float32), device=device).realize()
  want = ["pid (0) here", "pid (1) here", "pid (1) idx () second: 14"]
  assert sorted(printed(capfd, lambda: k(x * 2, y))) == want

  @jit
  def f(x: Tensor) -> Tensor:
    k(x, y)
    return (y + 1).realize()
  for _ in range(4):
    lines = printed(capfd, lambda: f((x * 2).realize()))
  assert sorted(lines) == want


@pytest.mark.parametrize("device", PRINTING)
def test_between_two_writes(device: str, capfd: Any) -> None:
  def twice(x: Any, y: Any) -> None:
    y = x
    tl.device_print("before", y)
    y = x + 1
    tl.device_print("after", y)
    tl.device_print("after", y)   # equal statements are two
  x, y = (Tensor(np.full(2, 8, np.float32), device=device).realize() for _ in range(2))
  lines = printed(capfd, lambda: pair(twice, 2)(x, y))
  assert lines == [f"pid (0) idx ({i}) {said}" for said in ("before: 8", "after: 9", "after: 9") for i in range(2)]
  assert y.tolist() == [9, 9]


def test_kernels_that_print_are_not_measured(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(Device, "assigned", "CPU")   # Triton prints a number in every thread
  block = tile.block_size()
  def show(x: Any, y: Any) -> None:
    tl.device_print("x", tl.sum(x))
    y = x  # noqa: F841
  k = tile.make(lambda x, y: (x.tile((block,)), y.tile((block,))), show, (tile.Tensor(1),) * 2)
  x = np.ones(2048, np.float32)
  for beam in 0, 2:
    with config(beam=beam): lines = printed(capfd, lambda: k(x, np.zeros_like(x)))
    assert lines and len(lines) == len(set(lines)) and sum(float(line.rpartition(":")[2]) for line in lines) == 2048


@needs_triton
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3", "bool", "uint64"])
def test_triton(dtype: str) -> None:
  from ntgrad.backends.cuda import compiler
  from ntgrad.backends.cuda.renderer import TritonRenderer
  def show(x: Any, y: Any) -> None:
    tl.device_print("50% x", x, tl.program_id(0))
    y = x  # noqa: F841
  s = pair(show, 6).specialise(((20,), dtype), ((20,), dtype))
  spec = s.spec(SimpleNamespace(renderer=TritonRenderer(capability=90), name="sm_90"))  # type: ignore[arg-type]
  assert re.search(r'tl\.device_print\("50%% x", .*v0.*, v1\)', spec.source.text)
  built = compiler.build(compiler.Request(spec.source, spec.name, "sm_90"))
  assert b"vprintf" in built.cubin


@needs_triton
def test_triton_interpreted(capfd: Any) -> None:
  x = np.arange(4, dtype=np.float32)
  def show(x: Any, y: Any) -> None:
    tl.device_print("x", x)
    y = x + 1  # noqa: F841
  y = Tensor(np.zeros(4, np.float32), device="TRITON").realize()
  capfd.readouterr()
  pair(show, 2)(Tensor(x, device="TRITON").realize(), y)
  assert y.tolist() == [1, 2, 3, 4]
  out = capfd.readouterr().out
  assert re.search(r"\(0, 0, 0\).*x:.*0.*1", out) and re.search(r"\(1, 0, 0\).*x:.*2.*3", out)


def test_c_prints(tmp_path: Path) -> None:
  if (cc := shutil.which("gcc")) is None: pytest.skip("no gcc")
  x = np.arange(15, dtype=np.float32).reshape(3, 5)
  k = pair(halves, 2, 3)
  source = k.source("c", x, x)
  main = f"""
int main(void) {{
  float x[15], y[15]; int grid[3] = {{2, 2, 1}};
  for (int i = 0; i < 15; i++) x[i] = i;
  {re.search(r"void (halves)", source)[1]}(x, y, grid);
  return 0;
}}
"""
  (tmp_path / "k.c").write_text(source + main)
  subprocess.run([cc, "-std=c11", "-o", tmp_path / "k", tmp_path / "k.c", "-lm"], check=True)
  out = subprocess.run([tmp_path / "k"], capture_output=True, text=True, check=True).stdout.splitlines()
  assert out == [line for program in expected(x) for line in program]


def test_refused() -> None:
  with pytest.raises(ArgumentError, match="printable ASCII"):
    tile.apply(lambda x: tl.device_print("é", x) or x, np.ones(3, np.float32))
  with pytest.raises(CompileError, match="Metal has no printf"): pair(halves, 2, 3).source("metal", *[((3, 5), "float32")] * 2)
  with pytest.raises(ArgumentError, match="inside an application"): tl.device_print("x")


# ---- breakpoint()

def rows(x: Any, y: Any) -> None:
  total = tl.zeros(y.shape)
  for k in range(x.shape[0]):
    both = [x[k], x[k] * SCALE]
    breakpoint()  # noqa: T100
    total += both[1]
  y = total  # noqa: F841


SCALE = 3
def sums() -> Any: return tile.make(lambda x, y: (x.tile((2,)).tile((2,)), y.tile((2,))), rows, (tile.Tensor(1),) * 2)


def stops(monkeypatch: Any, application: Any, *args: Any) -> list[tuple[str, int, dict[str, Any]]]:
  """Where a kernel stops on NUMPY, and which names there are."""
  found = []
  def hook() -> None:
    frame = sys._getframe(1)
    assert frame.f_globals is globals()
    found.append((frame.f_code.co_filename + ":" + frame.f_code.co_name, frame.f_lineno, dict(frame.f_locals)))
  monkeypatch.setattr(sys, "breakpointhook", hook)
  application(*args)
  return found


def on_numpy(*arrays: np.ndarray[Any, Any]) -> list[Tensor]: return [Tensor(a, device="NUMPY").realize() for a in arrays]


def test_stops_in_each_program_and_round(monkeypatch: Any) -> None:
  x, y = on_numpy(np.arange(8, dtype=np.float32), np.zeros(4, np.float32))
  found = stops(monkeypatch, sums(), x, y)
  assert y.tolist() == [6, 12, 30, 36]
  line = rows.__code__.co_firstlineno + 4
  assert [(where, n) for where, n, _ in found] == [(f"{__file__}:rows", line)] * 4
  seen = [(names["__program__"], int(names["k"]), names["x"].tolist(), names["both"][1].tolist(), names["total"].tolist())
          for *_, names in found]
  assert seen == [((0,), 0, [[0, 1], [2, 3]], [0, 3], [0, 0]), ((0,), 1, [[0, 1], [2, 3]], [6, 9], [0, 3]),
                  ((1,), 0, [[4, 5], [6, 7]], [12, 15], [0, 0]), ((1,), 1, [[4, 5], [6, 7]], [18, 21], [12, 15])]
  assert all(isinstance(names["x"], np.ndarray) and names["x"].dtype == np.float32 for *_, names in found)


def test_looking_changes_nothing(monkeypatch: Any) -> None:
  """What is seen of a parameter that several programs write is no read of theirs, and arrays are copies."""
  def count(x: Any, y: Any) -> None:
    def helper(z: Any) -> None:
      if tl.max(z) > 2: breakpoint()  # noqa: T100
    helper(x)
    tl.atomic_add(y, tl.sum(x))
    breakpoint()  # noqa: T100
  def arrangement(x: Any, y: Any) -> Any:
    x = x.tile((2,))
    return x, y.tile((1,)).expand((x.shape[0],))
  k = tile.make(arrangement, count, (tile.Tensor(1), tile.Tensor(shape=(1,))))
  x, y = on_numpy(np.arange(6, dtype=np.float32), np.zeros(1, np.float32))
  found = stops(monkeypatch, k, x, y)
  assert y.tolist() == [15] and len(found) == 5
  helper, *_ = [names for where, _, names in found if where.endswith("helper")]
  assert helper["z"].tolist() == [2, 3] and helper["__program__"] == (1,)
  assert [names["y"].tolist() for where, _, names in found if where.endswith("count")] == [[1], [6], [15]]


def test_elsewhere(monkeypatch: Any) -> None:
  x, y = np.arange(8, dtype=np.float32), np.zeros(4, np.float32)
  line = rows.__code__.co_firstlineno + 4
  with pytest.raises(ApplicationError, match=rf"breakpoint\(\) at test_tile_debug.py:{line}: device CPU .* on NUMPY"):
    sums()(*[Tensor(a, device="CPU") for a in (x, y)])
  with pytest.raises(ApplicationError, match="on NUMPY"): sums().source("c", x, y)
  monkeypatch.setenv("PYTHONBREAKPOINT", "0")
  sums()(x, y)
  assert y.tolist() == [6, 12, 30, 36]


SCRIPT = """
import numpy as np
import ntgrad.tile as tile, ntgrad.tile.language as tl
from ntgrad import Tensor
def application(x, y):
  double = x * 2
  breakpoint()
  y = double + 1
k = tile.make(lambda x, y: (x.tile((2,)), y.tile((2,))), application, (tile.Tensor(1),) * 2)
x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
try: k(x, y)
except BaseException as e: print(type(e).__name__)
print(y)
"""


@pytest.mark.parametrize("commands, said", [
  ("p double\nn\nn\np double\nc\n", ["application()", "array([0., 2.]", "array([4., 6.]", "[1. 3. 5. 7.]"]),
  ("p __program__\nq\n", ["(0,)", "BdbQuit"])])
def test_in_pdb(commands: str, said: list[str], tmp_path: Path) -> None:
  (tmp_path / "script.py").write_text(SCRIPT)
  out = subprocess.run([sys.executable, "script.py"], input=commands, capture_output=True, text=True, cwd=tmp_path, check=True,
                       env={**os.environ, "DEV": "NUMPY", "PYTHONBREAKPOINT": ""}).stdout
  at = 0
  for text in said:
    assert text in out[at:], out
    at = out.index(text, at) + len(text)
  assert "evaluate.py" not in out and "breakpoints.py" not in out and "-> y = double + 1" in out


# ---- races, which the verifier sees, too, where no index depends on data: that is off here, as it is for users

@pytest.fixture
def unverified() -> Any:
  with config(verify=0): yield


def at(fn: Any, after: int = 1) -> str: return rf"test_tile_debug\.py:{fn.__code__.co_firstlineno + after}"


def together(x: Any, y: Any) -> Any:
  """Every program has an element of its own of y's first dimension, and all columns of programs share it."""
  x = x.tile((1, 4))
  return x, y.tile((1,)).unsqueeze(1).expand((-1, x.shape[1]))


def always(x: Any) -> Any:
  """What is so in every program, as only its data tells: what is written then is no race that indices show."""
  return tl.sum(x) >= 0


def overwrites(x: Any, y: Any) -> None:
  if always(x): y = tl.sum(x, 1)  # noqa: F841


def adds(x: Any, y: Any) -> None:
  if always(x): y = y + tl.sum(x, 1)


def mixes(x: Any, y: Any) -> None:
  tl.atomic_add(y, tl.sum(x, 1))
  if always(x): y = tl.max(x, 1)  # noqa: F841


def looks(x: Any, y: Any) -> None:
  tl.atomic_add(y, tl.sum(x, 1) * 0 +
                y)


@pytest.mark.usefixtures("unverified")
@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("application, said", [
  (overwrites, rf"program \(\d, \d\) writes y\[(\d)\] at {at(overwrites)}, program \(\d, \d\) writes it at {at(overwrites)}"),
  (adds, rf"program \(\d, \d\) writes y\[(\d)\] at {at(adds)}, program \(\d, \d\) reads it at {at(adds)}"),
  (mixes, rf"program \(\d, \d\) writes y\[(\d)\] at {at(mixes, 2)}, program \(\d, \d\) updates it at {at(mixes)}"),
  (looks, rf"program \(\d, \d\) updates y\[(\d)\] at {at(looks)}, program \(\d, \d\) reads it at {at(looks)}")])
def test_races(application: Any, said: str, noopt: int) -> None:
  k = tile.make(together, application, (tile.Tensor(2), tile.Tensor(1)))
  x = np.arange(24, dtype=np.float32).reshape(3, 8)
  with config(noopt=noopt), pytest.raises(RaceError, match=f"^{application.__name__}: {said}: a race") as e:
    k(*on_numpy(x, x[:, 0] * 0))
  first, second = re.findall(r"program \((\d), (\d)\)", str(e.value))
  element, = re.findall(r"y\[(\d)\]", str(e.value))
  assert first[0] == second[0] == element and {first[1], second[1]} == {"0", "1"}


@pytest.mark.usefixtures("unverified")
def test_a_race_of_some_sizes() -> None:
  """Elements that computed places lead to, for sizes that are arguments of the launch."""
  def halves(x: Any, y: Any) -> None:
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    tl.store(y.source[i // 6], x)
  k = tile.make(lambda x, y: (x.tile((4,)), y.tile((4,))), halves, (tile.Tensor(shape=("N",)),) * 2)
  def run(n: int) -> None: k(*on_numpy(np.arange(n, dtype=np.float32), np.zeros(n, np.float32)))
  with config(dynamic="always"):
    for n in (8, 24):
      with pytest.raises(RaceError, match=r"program \(\d,\) writes y\[\d\] at .* program \(\d,\) writes it"): run(n)

  def pairs(x: Any, y: Any) -> None:
    tl.store(y.source[tl.arange(0, 4) // 2 + tl.program_id(0) * 4], x)
  k = tile.make(lambda x, y: (x.tile((4,)), y.tile((4,))), pairs, (tile.Tensor(1),) * 2)
  said = rf"elements of one program's block write y\[\d\] with different values at {at(pairs)}"
  with pytest.raises(RaceError, match=said): run(8)


@pytest.mark.usefixtures("unverified")
def test_no_race() -> None:
  """The same value from all, an element of one's own, atomic operations alone; programs that differ in nothing count."""
  x = np.arange(24, dtype=np.float32).reshape(3, 8)
  def same(x: Any, y: Any) -> None: y = tl.sum(x, 1) * 0 + 1  # noqa: F841
  def counts(x: Any, y: Any) -> None: tl.atomic_add(y, tl.sum(x, 1) * 0 + 1)
  def own(x: Any, y: Any) -> None: x = x + tl.max(x)
  for application, want in ((same, 1), (counts, 2)):
    a, y = on_numpy(x, x[:, 0] * 0)
    tile.make(together, application, (tile.Tensor(2), tile.Tensor(1)))(a, y)
    assert y.tolist() == [want] * 3
  def count(x: Any, y: Any) -> None: tl.atomic_add(y, 1)
  a, y = on_numpy(x, np.zeros(1, np.float32))
  def arrangement(x: Any, y: Any) -> Any:
    x = x.tile((1, 4))
    return x, y.tile((1,)).unsqueeze(0).expand(x.shape)
  tile.make(arrangement, count, (tile.Tensor(2), tile.Tensor(1)))(a, y)
  assert y.tolist() == [6]
  a, y = on_numpy(x, x[:, 0] * 0)
  tile.make(together, own, (tile.Tensor(2), tile.Tensor(1)))(a, y)
  np.testing.assert_array_equal(a.numpy(), x + x.reshape(3, 2, 4).max(-1).repeat(4, 1))


@pytest.mark.usefixtures("unverified")
def test_races_in_a_grid_of_five_dimensions() -> None:
  def write(x: Any, y: Any) -> None:
    if always(x): y = tl.sum(x)  # noqa: F841
  def arrangement(x: Any, y: Any) -> Any:
    x = x.tile((1,) * 5)
    return x, y.tile((1,) * 5).expand((-1, -1, x.shape[2], -1, -1))
  k = tile.make(arrangement, write, (tile.Tensor(5),) * 2)
  x = np.zeros((2, 3, 4, 2, 2), np.float32)
  x[1, 2, 3, 0, 1] = 5
  with pytest.raises(RaceError) as e: k(*on_numpy(x, np.zeros((2, 3, 1, 2, 2), np.float32)))
  first, second = (tuple(map(int, re.findall(r"\d", p))) for p in re.findall(r"program (\([\d, ]+\))", str(e.value)))
  assert "y[1, 2, 0, 0, 1]" in str(e.value) and (1, 2, 3, 0, 1) in (first, second) and first[:2] == second[:2] == (1, 2)
