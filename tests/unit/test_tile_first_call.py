"""What a first call chooses, what a search leaves out, and what another process finds: counted, not timed."""
from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.backends import renderer, workers
from ntgrad.backends.base import Program
from ntgrad.codegen.choose.gpu_resources import WRITTEN_OUT, room_of
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.errors import CompileError
from ntgrad.engine import measuring
from ntgrad.engine.device import default_device
from ntgrad.tile import Tensor, block_size, tune
from ntgrad.tile.tune import Clock, compiled_candidates, different, fitting
from support.marks import long

TRITON: Any = renderer("triton").target
CPU: Any = renderer("opencl").target


def product() -> Any:
  BM, BN, BK = block_size(), block_size(), block_size()
  def arrangement(a: Tensor, b: Tensor, c: Tensor) -> Any:
    c = c.tile((BM, BN))
    a = a.tile((BM, BK)).tile((1, -1)).expand((-1, c.shape[1]))
    a.dtype = a.dtype.squeeze(0)
    b = b.tile((BK, BN)).tile((-1, 1)).expand((c.shape[0], -1))
    b.dtype = b.dtype.squeeze(1)
    return a, b, c
  def application(a: Any, b: Any, c: Any) -> None:
    total = tl.zeros(c.shape)
    for k in range(a.shape[0]): total += tl.dot(a[k], b[k])
    c = total   # noqa: F841
  return tile.make(arrangement, application, (Tensor(2),) * 3, kernel_name="product"), [BM, BN, BK]


def reader(kernel: Any, dtype: str, read: list[Any] | None = None, n: int = 512) -> Any:
  def specialise(values: Any) -> Any:
    if read is not None: read.append(dict(values))
    given = {name: v for name, v in values.items() if not name.startswith("num_")}
    return kernel.specialise(*[((n, n), dtype)] * 3, **given)
  return specialise


# ---- block sizes

def test_a_float32_product_takes_blocks_for_which_a_core_has_room() -> None:
  kernel, symbols = product()
  large = kernel.specialise(*[((512, 512), "float32")] * 3, **{str(s): 128 for s in symbols})
  room = room_of(large.kernel)
  assert room.written_out == 128 ** 3 // 128 and room.staged == 4 * 2 * 128 * 128 * 4 and room.excess(TRITON) > 4
  values = fitting(symbols, reader(kernel, "float32"), TRITON, {})
  chosen = kernel.specialise(*[((512, 512), "float32")] * 3, **values)
  assert room_of(chosen.kernel).excess(TRITON) <= 1 and room_of(chosen.kernel).written_out <= WRITTEN_OUT
  assert min(values.values()) >= 16


def test_factors_that_matrix_units_multiply_are_not_written_out() -> None:
  kernel, symbols = product()
  s = kernel.specialise(*[((512, 512), "float16")] * 3, **{str(s): 64 for s in symbols})
  assert room_of(s.kernel).written_out == 0
  f32 = kernel.specialise(*[((512, 512), "float32")] * 3, **{str(s): 64 for s in symbols})
  with config(allow_tf32=1): assert room_of(f32.kernel).written_out == 0
  assert room_of(f32.kernel, warps=8).written_out == room_of(f32.kernel, warps=4).written_out // 2


def test_what_fits_and_what_a_cpu_runs_is_the_first_choice() -> None:
  kernel, symbols = product()
  read: list[Any] = []
  assert set(fitting(symbols, reader(kernel, "float32", read), CPU, {}).values()) == {64} and not read
  one = block_size()
  k = tile.make(lambda x, y: (x.tile((one,)), y.tile((one,))), copy, (Tensor(1),) * 2)
  def specialise(values: Any) -> Any: return k.specialise(*[((5000,), "float32")] * 2, **values)
  assert fitting([one], specialise, TRITON, {}) == {str(one): 1024}


def copy(x: Any, y: Any) -> None: y = x   # noqa: F841


def test_a_search_reads_each_candidate_once_for_all_warps_and_leaves_out_what_does_not_fit() -> None:
  kernel, symbols = product()
  read: list[Any] = []
  lines: list[str] = []
  clock = Clock(TRITON)
  clock.seconds = 1e6
  found = different(kernel, symbols, reader(kernel, "float32", read), TRITON, clock, lines)
  assert len({tuple(v.items()) for v in read}) == len(read)                      # none is read twice
  warps = {v["num_warps"] for v, _ in found}
  assert warps == {4, 8} and all(dict(s.options)["num_warps"] == v["num_warps"] for v, s in found)
  assert all(room_of(s.kernel, v["num_warps"], 3).excess(TRITON) <= 1 for v, s in found)
  assert any("what a core has room for" in line for line in lines)


def test_a_search_without_time_left_still_has_its_first_choice() -> None:
  kernel, symbols = product()
  clock = Clock(TRITON)
  clock.seconds = -1.0
  found = different(kernel, symbols, reader(kernel, "float16"), TRITON, clock, [])
  assert len(found) == 1


# ---- slow compilers

@dataclass(eq=False)
class Unit(workers.Job):
  """A kernel that takes so many seconds to compile, or is refused."""
  seconds: float = 0.0
  message: str = ""

  def work(self) -> workers.Work: return (time.sleep, (self.seconds,)) if not self.message else (refuse, (self.message,))


def refuse(message: str) -> None: raise CompileError(message)


class Slow(Program):
  def __init__(self, seconds: float):
    self.unit, self.asked = Unit(seconds=seconds), 0
  def ready(self) -> None: self.asked += 1


class Answered(Unit):
  def work(self) -> workers.Work: return abs, (-7,)


def test_a_candidate_whose_compiler_takes_too_long_is_dropped_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(workers, "size", lambda: 2)
  slow, quick = Slow(600.0), Slow(0.0)
  quick.unit = Answered()
  real = workers.changed.wait_for
  def wait_for(over: Any, timeout: float | None = None) -> Any:   # the time is over when the quick one is there: no clock decides
    return real(lambda: quick.unit.answer is not None or over(), timeout)
  monkeypatch.setattr(workers.changed, "wait_for", wait_for)
  there = measuring.compiled_in_time([slow, quick], 120.0, apart=True)
  assert there == [False, True] and quick.unit.answer == 7
  assert slow.asked == 0 and quick.asked == 1          # this process never compiles what is slow
  assert not slow.unit.taken and not slow.unit.done


def test_no_time_no_process() -> None:
  programs = [Slow(600.0)]
  assert measuring.compiled_in_time(programs, -1.0, apart=True) == [False] and not programs[0].unit.taken
  assert measuring.compiled_in_time(programs, -1.0) == [False] and programs[0].asked == 0
  programs[0].unit.done = True                         # built with another, or by a worker
  assert measuring.compiled_in_time(programs, -1.0) == [True] and programs[0].asked == 1


def test_what_is_not_compiled_in_time_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
  kernel, symbols = product()
  ranked = [({"B": n}, reader(kernel, "float16")({str(s): n for s in symbols})) for n in (32, 64)]
  device: Any = SimpleNamespace(renderer=renderer("triton"), name="sm_90", compile=lambda specs: [Slow(0.0) for _ in specs])
  monkeypatch.setattr(
    tune, "compiled_in_time", lambda programs, seconds, apart: [apart and n == 1 for n, _ in enumerate(programs)])
  lines: list[str] = []
  clock = Clock(TRITON)
  clock.seconds = 1e6
  assert [v for v, _ in compiled_candidates(ranked, device, lines, clock)] == [{"B": 64}]
  assert lines == ["B=32: not compiled in time"]


# ---- another process

SCRIPT = """
import numpy as np, sys
import ntgrad.tile as tile
from ntgrad.tile import Tensor, block_size
from ntgrad.engine.device import get_device
from ntgrad.tile import kernel as module
searched = []
real = module.search_values
def search(*args):
  searched.append(1)
  return real(*args)
module.search_values = search
B = block_size(8, 32)
def halves(x, y):
  total = x * 0
  for _ in range(3): total = total * 0.5 + x
  y += total
k = tile.make(lambda x, y: (x.tile((B,)), y.tile((B,))), halves, (Tensor(1), Tensor(1)), kernel_name="halves")
x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
k(x, y)
assert (y == 1.75).all()
device = get_device("CPU")
print(len(searched), sum("halves" in s.name for u in device.compiler.units.values() for s in u.specs.values()))
"""


@long
def test_a_second_process_neither_searches_nor_compiles(tmp_path: Path) -> None:
  if default_device() != "CPU": pytest.skip("programs on disk are counted on the CPU")
  script = tmp_path / "script.py"
  script.write_text(SCRIPT)
  env = {**os.environ, "TUNE": "1", "CACHE": "1", "CACHE_DIR": str(tmp_path / "cache")}
  def run() -> list[int]:
    done = subprocess.run([sys.executable, str(script)], env=env, text=True, capture_output=True, check=True)
    return list(map(int, done.stdout.split()))
  first, second = run(), run()
  assert first[0] == 1 and first[1] > 1     # it searched, and made several kernels
  assert second == [0, 0]                   # found on disk: nothing waits for a compiler
