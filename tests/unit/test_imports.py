"""Imports go one way: no module is imported, by whatever way round, by what it imports itself, in functions neither."""
from __future__ import annotations

from pathlib import Path

import pytest

from support.imports import circle, circle_text, components, import_graph, product, rooms

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


def test_rooms_stand_upon_each_other() -> None:
  """The packages, each as one thing, import no circle either; and these import only what stands before them."""
  modules = product(ROOT)
  graph = rooms(import_graph(modules), modules)
  found = components(graph)
  assert not found, "\n".join(" imports ".join(circle(graph, c)) for c in found)
  order = [f"ntgrad.{r}" for r in "codegen backends schedule engine core reads tile tensor capture nn".split()]
  for i, room in enumerate(order):
    assert not graph[room].keys() & set(order[i + 1:]), f"{room} imports what stands above it: {', '.join(graph[room])}"


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
