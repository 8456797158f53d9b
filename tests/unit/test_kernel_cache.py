"""Rendered kernels on disk: another process neither chooses nor renders; whatever changes a program changes its key."""
from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Tensor, config
from ntgrad.backends import cache, renderer
from ntgrad.backends.cuda.renderer import TritonRenderer
from ntgrad.backends.specs import SPEC
from ntgrad.codegen import index as ix
from ntgrad.codegen.index.records import NODE, Sequence, TupleForm, packed
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param, structure_text
from ntgrad.codegen.opts import Vectorize
from ntgrad.engine import compile as compiling, overrides
from ntgrad.engine.device import get_device
from ntgrad.schedule import create_schedule
from ntgrad.tile.specialised import as_one, with_aligns
from support.devices import missing
from support.marks import long

cpu = pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
ROOT = Path(__file__).resolve().parents[2]
DEVICE: Any = SimpleNamespace(renderer=renderer("opencl"), name="CPU", identity="some CPU")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
  """A cache of its own, without what keeps kernels from being kept."""
  if cache.sources() is None: pytest.skip("a source file has changed since this process began")
  with config(cache_dir=str(tmp_path), cache=1, debug=0, verify=0, show="", beam=0): yield tmp_path


def key(kernel: Kernel, device: Any = DEVICE, name: str = "k", notes: tuple[str, ...] = ()) -> str | None:
  return compiling.program_key(kernel, device, name, notes)


def scheduled(t: Tensor) -> Kernel:
  kernel: Kernel = create_schedule([t])[-1].ast
  return kernel


def arrangement(x: Any, y: Any, out: Any, n: int = 16) -> Any: return x.tile((n,)), y.tile((n,)), out.tile((n,))
def doubled(x: Any, y: Any, out: Any) -> None: out = x * 2 + y   # noqa: F841
def tripled(x: Any, y: Any, out: Any) -> None: out = x * 3 + y   # noqa: F841


def specialised(application: Any = doubled, size: int = 100, dtype: str = "float32", block: int = 16, **settings: Any) -> Any:
  k = tile.make(lambda *ts: arrangement(*ts, n=block), application, (tile.Tensor(1),) * 3, **settings)
  return k.specialise(*[((size,), dtype)] * 3)


# ---- keys

def test_what_changes_a_program_changes_its_key(folder: Path) -> None:
  kernel = specialised().kernel
  keys = [key(kernel)]
  for setting in ({"noopt": 1}, {"allow_tf32": 1}, {"vector_bits": 128}, {"vector_bits": 256}, {"cores": 3},
                  {"dynamic": "never"}):
    with config(**setting): keys.append(key(kernel))
  others: list[dict[str, Any]] = [{"size": 101}, {"dtype": "float64"}, {"dtype": "float16"}, {"block": 32},
                                  {"application": tripled}]
  keys += [key(specialised(**other).kernel) for other in others]
  keys += [key(with_aligns(kernel, (16, 0, 0))), key(with_aligns(kernel, (4, 0, 0))), key(with_aligns(kernel, (0, 16, 0)))]
  keys += [key(as_one(kernel, ((2, 0),))), key(as_one(kernel, ((2, 1),)))]
  keys += [key(kernel.with_(free=True)), *[key(kernel.with_(applied=(Vectorize(0, n),))) for n in (4, 8)]]
  size = UOp(Ops.SIZE, ix.INT, (), ix.Size("N"))
  keys += [key(kernel.with_(needs=(ix.lt(size, n),))) for n in (3, 4)]
  keys += [key(kernel, name="other"), key(kernel, notes=("a line",)), key(kernel, notes=("another",))]
  keys.append(key(kernel, SimpleNamespace(**{**vars(DEVICE), "identity": "another CPU"})))
  for changed in ({"lanes": 16}, {"registers": 32}, {"cores": 7}, {"cache": 1 << 30}):
    other = renderer("opencl")
    other.target = replace(other.target, **changed)
    keys.append(key(kernel, SimpleNamespace(**{**vars(DEVICE), "renderer": other})))
  for given in (TritonRenderer(capability=80), TritonRenderer(capability=90), TritonRenderer(allow_tf32=True)):
    keys.append(key(kernel, SimpleNamespace(**{**vars(DEVICE), "renderer": given})))
  assert None not in keys and len(set(keys)) == len(keys)
  assert key(specialised().kernel) == keys[0], "made again it is the same"


def test_structures_are_told_apart() -> None:
  """Nodes that print alike and are not the same: shared or not, fresh or not, -0.0, True and 1, sizes in arguments."""
  param = Param(0, (4,), dtypes.float32, True)
  def kernel(*values: UOp, axis: Axis = Axis(0, 4, AxisKind.GRID), fresh: bool = False) -> Kernel:   # noqa: B008
    index = UOp(Ops.INDEX, dtypes.index, (axis.rng,))
    store = UOp.unique if fresh else UOp
    return Kernel((param,), (axis,), tuple([store(Ops.STORE, dtypes.float32, (param.uop, index, v)) for v in values]))
  x = UOp(Ops.LOAD, dtypes.float32, (param.uop, UOp(Ops.INDEX, dtypes.index, (ix.ZERO,))))
  def const(v: Any, dtype: Any = dtypes.float32) -> UOp: return UOp(Ops.CONST, dtype, (), v)
  def local(name: str) -> UOp:
    return UOp(Ops.LOAD, dtypes.float32, (UOp(Ops.DEFINE_LOCAL, dtypes.float32, (), (name, (4,), "private")), x.src[1]))
  def count(s: ix.Size) -> UOp: return UOp(Ops.SIZE, ix.INT, (), s)
  n, m = count(ix.Size("N")), count(ix.Size("M"))
  def special(size: UOp) -> UOp: return UOp(Ops.SPECIAL, ix.INT, (), ("for", 1, size)).cast(dtypes.float32)   # no source of it
  kernels = [
    kernel(x), kernel(x, fresh=True), kernel(x, x), kernel(x, x, fresh=True),
    kernel(UOp.alu(BinaryOps.ADD, x, x)), kernel(UOp.alu(BinaryOps.MUL, x, x)), kernel(UOp.alu(BinaryOps.ADD, x, const(1.0))),
    kernel(const(0.0)), kernel(const(-0.0)), kernel(const(float("nan"))), kernel(const(float("inf"))), kernel(const(0.1)),
    kernel(const(1, dtypes.int32)), kernel(const(True, dtypes.bool)), kernel(const(1, dtypes.int64)),
    kernel(local("a")), kernel(local("b")), kernel(special(n)), kernel(special(m)), kernel(special(ix.add(n, m))),
    *[kernel(x, axis=Axis(0, d, AxisKind.GRID)) for d in (5, n, m, ix.add(n, 1), count(ix.Size("N", lower=2)),
                                                          count(ix.Size("N", hint=3)), count(ix.Size("N", unit=4)))],
    kernel(x, axis=Axis(0, 4, AxisKind.LOOP)), kernel(x, axis=Axis(0, 4, AxisKind.GRID, programs=2)),
    kernel(x, axis=Axis(1, 4, AxisKind.GRID)),
  ]
  texts = [structure_text(k) for k in kernels]
  assert len(set(texts)) == len(texts)
  assert texts == [structure_text(pickle.loads(pickle.dumps(k))) for k in kernels]
  assert not any(" at 0x" in t for t in texts)


def test_what_has_no_text_is_not_kept(folder: Path) -> None:
  kernel = specialised().kernel.with_(applied=(object(),))
  with pytest.raises(TypeError): structure_text(kernel)
  assert key(kernel) is None


def test_where_parts_are_wanted_nothing_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  kernel = specialised().kernel
  for setting in ({"cache": 0}, {"debug": 3}, {"verify": 1}, {"show": "expand"}, {"beam": 2}):
    with config(**setting): assert key(kernel) is None, setting   # type: ignore[arg-type]
  assert key(kernel, get_device("NUMPY")) is None
  assert key(kernel, SimpleNamespace(renderer=renderer("opencl"), name="CPU")) is None, "a device that says nothing of itself"
  assert key(kernel, compiling.Elsewhere("CPU", renderer("opencl"))) is None
  monkeypatch.setattr(overrides, "kernel_listeners", [print])
  assert key(kernel) is None


# ---- entries

def test_what_is_found_is_what_was_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  a, b = Tensor.empty(33, 65), Tensor.empty(65, 17)
  kernels = [specialised().kernel, scheduled(a @ b), scheduled((a * 2).softmax(1)), sized()]
  made = [compiling.program_spec(k, DEVICE, label="first") for k in kernels]
  assert all(m.parts is not None for m in made) and any(m.needs for m in made)
  never(monkeypatch)
  found = [compiling.program_spec(k, DEVICE, label="second") for k in kernels]
  for m, f in zip(made, found):
    assert f.parts is None and f.needs == m.needs and f.spec == replace(m.spec, uops=())
    assert all(x is y for x, y in zip((*f.needs, *f.spec.grid), (*m.needs, *m.spec.grid)) if isinstance(x, UOp)), "nodes are one"
    assert f.spec.label == "second"
  assert compiling.program_spec(kernels[0], DEVICE).spec.label == compiling.kernel_name(kernels[0])


def sized() -> Kernel:
  """A kernel with run-time sizes whose Opts need something of them."""
  n = UOp(Ops.SIZE, ix.INT, (), ix.Size("N", lower=16, hint=512))
  axis = Axis(0, n, AxisKind.GRID)
  x, out = Param(0, (n,), dtypes.float32, False), Param(1, (n,), dtypes.float32, True)
  index = UOp(Ops.INDEX, dtypes.index, (axis.rng,))
  value = UOp.alu(BinaryOps.ADD, load := UOp(Ops.LOAD, dtypes.float32, (x.uop, index)), load)
  return Kernel((x, out), (axis,), (UOp(Ops.STORE, dtypes.float32, (out.uop, index, value)),), needs=(ix.lt(n, 1000),))


def never(monkeypatch: pytest.MonkeyPatch) -> None:
  def refuse(*_: Any, **__: Any) -> Any: raise AssertionError("made again")
  for name in ("chosen_for", "rendered"): monkeypatch.setattr(compiling, name, refuse)


@pytest.mark.parametrize("damage", [b"", b"no record", pickle.dumps((1, 2)), "half", "other", "needs", "grid"])
def test_a_damaged_entry_is_made_again(damage: Any, folder: Path) -> None:
  kernel = specialised().kernel
  made = compiling.program_spec(kernel, DEVICE, "k")
  name = key(kernel)
  assert name is not None
  raw = cache.load(compiling.KERNEL_TABLE, name)
  assert raw is not None
  if damage == "half": damage = raw[:len(raw) // 2]
  spec, n = replace(made.spec, uops=()), UOp(Ops.SIZE, ix.INT, (), ix.Size("N"))
  if damage == "other":
    damage = packed(compiling.PROGRAM_FORM, (replace(spec, name="other"), ()), f"{compiling.KERNEL_TABLE}/{name}")
  if damage == "grid": damage = packed(compiling.PROGRAM_FORM, (replace(spec, grid=(n,)), ()), f"{compiling.KERNEL_TABLE}/{name}")
  if damage == "needs": damage = packed(TupleForm(SPEC, Sequence(NODE)), (spec, (n,)), f"{compiling.KERNEL_TABLE}/{name}")
  cache.store(compiling.KERNEL_TABLE, name, damage)
  again = compiling.program_spec(kernel, DEVICE, "k")
  assert again.parts is not None and again.spec.source == made.spec.source
  assert cache.load(compiling.KERNEL_TABLE, name) == raw
  file = folder / compiling.KERNEL_TABLE / name[:2] / name
  data = bytearray(file.read_bytes())
  data[-1] ^= 1   # on disk
  file.write_bytes(data)
  assert compiling.program_spec(kernel, DEVICE, "k").parts is not None and cache.load(compiling.KERNEL_TABLE, name) == raw


def test_entries_are_bounded(folder: Path) -> None:
  with config(cache_bytes=20 * cache.BLOCK):
    for size in range(100, 140): compiling.program_spec(specialised(size=size).kernel, DEVICE)
    assert 0 < sum(blocks for _, blocks, _ in cache.entries(folder)) <= 20


# ---- processes

CALLS = """
import sys
import numpy as np
import ntgrad.tile as tile
from ntgrad import Tensor
from ntgrad.engine import compile as compiling

def arrangement(x, y, out): return x.tile((16,)), y.tile((16,)), out.tile((16,))
def application(x, y, out): out = x * 2 + y

kernel = tile.make(arrangement, application, (tile.Tensor(1),) * 3, kernel_name="again", num_warps=8)
made = []
chosen = compiling.chosen_for
def note(kernel, device, name, label=""):
  made.append(label or name)
  return chosen(kernel, device, name, label)
compiling.chosen_for = note
for n in map(int, sys.argv[1:]):
  x, y, out = np.arange(n, dtype=np.float32), np.ones(n, np.float32), np.zeros(n, np.float32)
  kernel(x, y, out)
  np.testing.assert_array_equal(out, x * 2 + y)
  z = np.zeros(n, np.float32)
  shared = Tensor(x.copy()).realize()
  kernel(shared, Tensor(y), shared)   # the same memory: another kernel
  np.testing.assert_array_equal(shared.numpy(), x * 2 + y)
spec = kernel.last.spec(__import__("ntgrad.engine.device", fromlist=["get_device"]).get_device("CPU"))
print(len(made), dict(spec.options).get("num_warps"), spec.label)
"""


def process(folder: Path, *sizes: int, **env: str) -> subprocess.Popen[str]:
  script = folder / "calls.py"
  if not script.exists(): script.write_text(CALLS)
  given = {**os.environ, "CACHE_DIR": str(folder / "cache"), "VERIFY": "0", "DEBUG": "0", "DYNAMIC": "never", "DEV": "CPU",
           "PYTHONPATH": str(ROOT), **env}
  return subprocess.Popen([sys.executable, str(script), *map(str, sizes)], env=given, text=True, stdout=subprocess.PIPE)


def answer(p: subprocess.Popen[str]) -> list[str]:
  out, _ = p.communicate(timeout=120)
  assert p.returncode == 0
  return out.split()


@long
@cpu
def test_another_process_renders_nothing(tmp_path: Path) -> None:
  first = answer(process(tmp_path, 100, 101))
  assert int(first[0]) >= 4
  second = answer(process(tmp_path, 100, 101))
  assert second == ["0", *first[1:]] and first[1] == "8"
  assert int(answer(process(tmp_path, 100, 102))[0]) == int(first[0]) // 2, "the other size is new"
  for setting in ({"NOOPT": "1"}, {"VECTOR_BITS": "128"}):
    assert int(answer(process(tmp_path, 100, 101, **setting))[0]) == int(first[0]), setting


@long
@cpu
def test_two_processes_at_once(tmp_path: Path) -> None:
  both = [process(tmp_path, *range(100, 110)) for _ in range(2)]
  for p in both: answer(p)
  assert answer(process(tmp_path, *range(100, 110)))[0] == "0"


@cpu
def test_kernels_of_the_scheduler_are_found_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """Where the plan is another one: here the same product, of another graph."""
  def calculated() -> np.ndarray[Any, Any]:
    a, b = Tensor(np.ones((19, 23), np.float32), device="CPU"), Tensor(np.ones((23, 5), np.float32), device="CPU")
    return (a @ b).numpy()
  from ntgrad.codegen.ir.recent import Recent
  from ntgrad.engine import plan_cache, planner
  monkeypatch.setattr(plan_cache, "load_plan", lambda key: None)
  def forget() -> None:
    for module, name in ((compiling, "_programs"), (planner, "_plans")):
      monkeypatch.setattr(module, name, Recent(64))
  forget()   # another test may have had the same product
  want = calculated()
  forget()
  never(monkeypatch)
  np.testing.assert_array_equal(calculated(), want)


def test_tile_options_come_after_what_is_kept(folder: Path) -> None:
  """Kernels that differ in what their compiler is told share an entry, and are two programs."""
  four, eight = specialised(num_warps=4), specialised(num_warps=8)
  assert key(four.kernel) == key(eight.kernel)
  assert [dict(s.spec(DEVICE).options)["num_warps"] for s in (four, eight, four)] == [4, 8, 4]


def test_float32_products_that_round(folder: Path) -> None:
  """A kernel that asks for tf32 is another one."""
  def product(a: Any, b: Any, c: Any) -> None: c = tl.dot(a, b)   # noqa: F841
  def rounded(a: Any, b: Any, c: Any) -> None: c = tl.dot(a, b, allow_tf32=True)   # noqa: F841
  device: Any = SimpleNamespace(renderer=TritonRenderer(), name="GPU", identity="a GPU")
  texts = []
  for application in (product, rounded, product):
    k = tile.make(lambda *ts: tuple([t.tile((32, 32)) for t in ts]), application, (tile.Tensor(2),) * 3, kernel_name="p")
    texts.append(k.specialise(*[((32, 32), "float32")] * 3).spec(device).source.text.splitlines()[-3:])
  assert texts[0] == texts[2] != texts[1]
