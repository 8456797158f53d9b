"""Nothing that is remembered grows without end."""
from __future__ import annotations

import gc
import importlib
import pkgutil
import sys
from collections import deque
from types import ModuleType
from typing import Any, Iterator
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
from ntgrad import Tensor
from ntgrad.backends.opencl.compiler import UNSAVED
from ntgrad.codegen.ir.recent import Recent
from ntgrad.engine import buffer, compile as engine_compile, counters, planner
from support.devices import missing
from support.marks import long

# functions that remember every answer: there are only so many questions
FINITE = {
  "dtype._vec": "scalar dtypes x widths of vectors", "dtype._limits": "dtypes", "elementwise.int_range": "dtypes",
  "elementwise.info_of": "dtypes",
  "device._worker_device": "devices", "device._start_compiler": "devices", "device.core_cache": "",
  "process.temporary": "", "driver.present": "", "driver.modules": "", "device.import_opencl": "",
  "binaries.folder": "",
  "cache.version": "", "cache._platform_folder": "", "cache.sources": "", "compiler.available": "",
  "compiler.version": "", "captured._numbers": "", "public._reasons": "", "nccl.load": "",
}


def modules() -> Iterator[tuple[str, ModuleType]]:
  """All of ntgrad's, by their last name."""
  for m in pkgutil.walk_packages(ntgrad.__path__, "ntgrad."):
    if m.name.endswith("__main__"): continue
    yield m.name.rpartition(".")[2], importlib.import_module(m.name)


def remembering() -> dict[str, Any]:
  """Every function of a module that remembers its answers."""
  found = {}
  for name, module in modules():
    for key, value in vars(module).items():
      if hasattr(value, "cache_info") and value.__module__ == module.__name__: found[f"{name}.{key}"] = value
  return found


def containers() -> dict[str, Any]:
  """Every container of a module, and those of its objects, that is no constant."""
  kinds = (dict, list, set, deque, WeakSet, WeakValueDictionary, WeakKeyDictionary)
  found: dict[int, tuple[str, Any]] = {}
  for name, module in modules():
    for key, value in vars(module).items():
      if key.startswith("__"): continue
      if isinstance(value, kinds): found.setdefault(id(value), (f"{name}.{key}", value))   # once, wherever it is imported
      elif isinstance(value, (type, ModuleType)): continue
      elif type(value).__module__.startswith("ntgrad.") and hasattr(value, "__dict__"):
        found.update({id(v): (f"{name}.{key}.{k}", v) for k, v in vars(value).items() if isinstance(v, kinds)})
  return dict(found.values())


def test_functions_remember_so_much_at_most() -> None:
  forever = {name for name, f in remembering().items() if f.cache_parameters()["maxsize"] is None}
  assert forever <= set(FINITE), "give it a size, or say here why there are only so many answers"
  assert remembering()   # the walk finds some


def test_recent() -> None:
  r: Recent[int, int | None] = Recent(4)
  for i in range(4): r[i] = i
  assert r.get(0) == 0 and 3 in r and r[9] is None and 9 not in r and r.get(9, "no") == "no"
  r[4] = 4
  assert r[1] == 1 and dict(r) == {4: 4, 1: 1} and r.older[3] == 3   # all are there; used ones are among the new
  for i in range(5, 100):
    r[i] = None
    assert r[1] == 1 and len(r) + len(r.older) <= 8 and i in r
  assert 2 not in r
  r.clear()
  assert not r and 1 not in r


@long
@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
def test_many_programs(monkeypatch: pytest.MonkeyPatch) -> None:
  """Structures that are all new: what is remembered of them has a limit, and what is not remembered is gone."""
  for known in (planner._plans, engine_compile._programs):
    known.clear()
    monkeypatch.setattr(known, "most", 8)
  monkeypatch.setattr(counters, "_MOST", 8)
  monkeypatch.setattr(planner, "MANY_SIZED", 8)
  buffer._number_buffer.cache_clear()
  def arrangement(x: Any, y: Any, n: Any = 4) -> Any: return x.tile((n,)), y.tile((n,))
  def application(x: Any, y: Any) -> Any: y = x + 1  # noqa: F841
  kernel = tile.make(arrangement, application, (tile.Tensor(1), tile.Tensor(1)))
  for c in (kernel._launchers, kernel._specialised, kernel._chosen): c.most = 8
  def work(i: int) -> None:
    y = (Tensor(np.ones(i, np.float32), device="CPU") * (i + 0.125)).realize()
    y[i // 2:] = i + 0.25
    kernel(y.realize(), y.clone().contiguous().realize())
  for i in range(2, 8): work(i)
  compiler = sys.modules["ntgrad.engine.device"].get_device("CPU").compiler
  def sizes() -> dict[str, int]:
    return {
      **{k: len(c) for k, c in containers().items()},
      **{f"compiler.{k}": len(v) for k, v in vars(compiler).items() if hasattr(v, "__len__")},
      **{f"kernel.{k}": len(v) + len(v.older) for k, v in vars(kernel).items() if isinstance(v, Recent)},
    }

  compiler.save()
  gc.collect()
  before = sizes()
  for i in range(8, 22): work(i)
  assert len(compiler.unsaved) <= UNSAVED + 10
  compiler.save()
  gc.collect()
  grew = {k: n - before.get(k, 0) for k, n in sizes().items() if n - before.get(k, 0) > 0}
  nodes = grew.pop("uop._interned", 0)   # held by what is remembered
  # numbers that are parameters of kernels
  assert sum([grew.pop(k) for k in list(grew) if k.endswith(".constants")]) <= buffer._number_buffer.cache_info().currsize
  assert all(n <= 16 for n in grew.values()) and nodes < 400, (grew, nodes)   # of 14 times a dozen structures
  known = planner._plans, engine_compile._programs, kernel._launchers, kernel._specialised
  assert all(len(k) + len(k.older) <= 16 for k in known)
