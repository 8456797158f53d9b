"""Imports go one way: no module is imported, by whatever way round, by what it imports itself, in functions neither."""
from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from support.imports import circle, circle_text, components, drawing, import_graph, product

ROOT = Path(__file__).resolve().parents[2]


def written(folder: Path, sources: dict[str, str]) -> dict[str, Path]:
  """Files with these sources, by the names of their modules."""
  out = {}
  for name, source in sources.items():
    out[name] = folder / f"{name.replace('.', '_')}.py" if name.count(".") else folder / "__init__.py"
    out[name].write_text(source)
  return out


def test_no_import_circle() -> None:
  modules = product(ROOT)
  assert len(modules) > 200
  assert {"ntgrad", "ntgrad.codegen.ir.uop", "ntgrad.backends.opencl.device", "ntgrad.nn"} <= modules.keys()
  graph = import_graph(modules)
  assert "ntgrad.codegen.ir.dtype" in graph["ntgrad.codegen.ir.uop"]   # it sees relative imports,
  assert "ntgrad.nn.state" in graph["ntgrad.nn.module"]          # and those in functions
  found = components(graph)
  assert not found, "\n".join(
    f"{len(c)} modules import each other in circles; one:\n{circle_text(graph, modules, ROOT, circle(graph, c))}" for c in found)


@dataclass(frozen=True)
class Marks:
  """The most that a folder may have."""
  boxes: int
  arrows: int
  floors: int
  loose: int           # files that stand in no folder
  lines: int = 1 << 30   # of a box


@pytest.mark.parametrize("folder, most", [
  ("ntgrad.codegen", Marks(boxes=10, arrows=40, floors=9, loose=3, lines=4000)),
  ("ntgrad", Marks(boxes=27, arrows=91, floors=11, loose=14))])
def test_folders_can_be_drawn(folder: str, most: Marks) -> None:
  """What stands directly in a folder is few boxes, few arrows between them, all of which go down. Prints the drawing."""
  found = drawing(product(ROOT), folder)
  if folder == "ntgrad.codegen": del found.lines["__init__"]   # it hands names on
  floors = found.floors if folder == "ntgrad" else drawing(product(ROOT), folder).floors
  print(found)
  have = Marks(len(found.lines), sum(len(found.arrows[b]) for b in found.lines), max(floors.values()), len(found.loose),
               max(found.lines.values()))
  over = [f"{f.name}: {getattr(have, f.name)}, at most {getattr(most, f.name)}" for f in fields(Marks)
          if getattr(have, f.name) > getattr(most, f.name)]
  assert not over, f"{folder}: {'; '.join(over)}\n{found}"


def test_floors_of_ntgrad() -> None:
  """These import only what stands before them."""
  floors = drawing(product(ROOT), "ntgrad").floors
  order = "graph schedule engine core tile tensor nn functions".split()
  assert [floors[b] for b in order] == sorted({floors[b] for b in order}), {b: floors[b] for b in order}


def test_names_that_a_package_hands_on_count_for_where_they_are_defined(tmp_path: Path) -> None:
  (tmp_path / "p").mkdir()
  sources = {"p": "", "p.a": "x = 1\n__all__ = ['x']", "p.b": "from p.c import x", "p.c": "from p.d import *",
             "p.d": "from p.a import x as x\n__all__ = ['x']", "p.e": "def f():\n  from p import b"}
  modules = {}
  for name, source in sources.items():
    modules[name] = tmp_path / "p" / f"{name.partition('.')[2] or '__init__'}.py"
    modules[name].write_text(source)
  found = drawing(modules, "p")
  assert {b: [*to] for b, to in found.arrows.items()} == {
    "__init__": [], "a": [], "b": ["a"], "c": ["d"], "d": ["a"], "e": ["b"]}
  assert found.floors == {"__init__": 1, "a": 1, "b": 2, "d": 2, "c": 3, "e": 3} and found.loose == {*"abcde", "__init__"}


@pytest.mark.parametrize("back", [
  "from p import a", "from p.a import x", "import p.a", "from .a import x", "from . import a",
  "def f():\n  from p.a import x", "f = lambda: __import__('p.a')", "def f():\n  importlib.import_module('p.a')",
  "if TYPE_CHECKING:\n  pass\nelse:\n  from p.a import x"])
def test_circles_are_found(tmp_path: Path, back: str) -> None:
  """A circle through three modules, closed in every way that Python has."""
  modules = written(tmp_path, {"p": "", "p.a": "from p import b", "p.b": "x = 1\nimport p.c", "p.c": back, "p.d": "import p.a"})
  graph = import_graph(modules)
  found, = components(graph)
  assert sorted(found) == ["p.a", "p.b", "p.c"]
  path = circle(graph, found)
  assert path[0] == path[-1] and sorted(path[1:]) == sorted(found)
  assert "p_b.py:2: p.b imports p.c" in circle_text(graph, modules, tmp_path, path)


@pytest.mark.parametrize("back", ["", "x = 1", "if TYPE_CHECKING:\n  from p.a import x", "import other.a"])
def test_no_circle_is_found_where_there_is_none(tmp_path: Path, back: str) -> None:
  modules = written(tmp_path, {"p": "", "p.a": "from p import b", "p.b": "import p.c", "p.c": back})
  assert not components(import_graph(modules))


def test_long_chains() -> None:
  """Nothing recurses."""
  n = 5000
  graph = {str(i): {str(i + 1): 1} for i in range(n)} | {str(n): {}}
  assert not components(graph)
  graph[str(n)] = {"0": 1}
  found, = components(graph)
  assert len(found) == n + 1 and len(circle(graph, found)) == n + 2


def test_threads_that_ask_for_modules_at_once() -> None:
  """Modules are imported when they are asked for: nobody gets one that another thread is still importing."""
  code = """
import threading
from ntgrad import nn
found = []
asks = [lambda: nn.utils.clip_grad_norm_, lambda: nn.optim.AdamW, lambda: nn.utils.rnn.pad_sequence, lambda: nn.init.zeros_]
threads = [threading.Thread(target=lambda f=f: found.append(f())) for f in asks * 3]
for t in threads: t.start()
for t in threads: t.join()
print(len(found))
"""
  done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
                        check=False)
  assert (done.stdout, done.stderr) == ("12\n", "")
