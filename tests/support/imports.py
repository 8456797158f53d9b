"""Which modules import which, read from their sources."""
from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

Graph = dict[str, dict[str, int]]   # module -> what it imports, and in which line
FOLDERS = {"ntgrad": "ntgrad", "ntgrad.codegen": "codegen", "ntgrad.backends": "backends"}


def product(root: Path) -> dict[str, Path]:
  """The modules of the product, by their names, and their files."""
  out = {}
  for package, folder in FOLDERS.items():
    for file in sorted((root / folder).rglob("*.py")):
      parts = file.relative_to(root / folder).with_suffix("").parts
      out[".".join([package, *parts]).removesuffix(".__init__")] = file
  return {name: file for name, file in out.items() if file.exists()}


def import_graph(modules: Mapping[str, Path]) -> Graph:
  """What each module imports of the others, at its top, in functions, or by ``import_module("name")``; what is for type checkers
  only is left out. Who imports a module of a package that it is not in itself imports the package too."""
  out: Graph = {}
  for name, file in modules.items():
    found = out[name] = {}
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for imported, line in _imports(ast.parse(file.read_text()), package):
      while imported and imported not in modules: imported = imported.rpartition(".")[0]   # a name in a module
      above = imported
      while "." in above:
        if above != name and (above == imported or not f"{name}.".startswith(f"{above}.")): found.setdefault(above, line)
        above = above.rpartition(".")[0]
      if imported and "." not in imported and imported != name: found.setdefault(imported, line)
  return out


def _imports(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
  stack = [tree]
  while stack:
    n = stack.pop()
    if isinstance(n, ast.If) and any(getattr(x, "id", getattr(x, "attr", "")) == "TYPE_CHECKING" for x in ast.walk(n.test)):
      stack += n.orelse
      continue
    if isinstance(n, ast.Import): yield from ((a.name, n.lineno) for a in n.names)
    elif isinstance(n, ast.ImportFrom):
      parts = package.split(".")
      base = [*parts[:len(parts) - n.level + 1], *filter(None, [n.module])] if n.level else [n.module or ""]
      yield from ((".".join([*base, a.name]), n.lineno) for a in n.names)
    elif isinstance(n, ast.Call) and n.args and isinstance(n.args[0], ast.Constant) and isinstance(n.args[0].value, str):
      called = n.func.attr if isinstance(n.func, ast.Attribute) else n.func.id if isinstance(n.func, ast.Name) else ""
      if called in ("import_module", "__import__"): yield n.args[0].value, n.lineno
    stack += ast.iter_child_nodes(n)


def components(graph: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
  """The strongly connected components of more than one module (Tarjan's algorithm, without recursion)."""
  number: dict[str, int] = {}
  low: dict[str, int] = {}
  path: list[str] = []
  on_path: set[str] = set()
  out = []
  def enter(v: str) -> tuple[str, Iterator[str]]:
    number[v] = low[v] = len(number)
    path.append(v)
    on_path.add(v)
    return v, iter(graph[v])
  for root in graph:
    if root in number: continue
    work = [enter(root)]
    while work:
      v, rest = work[-1]
      for w in rest:
        if w not in number:
          work.append(enter(w))
          break
        if w in on_path: low[v] = min(low[v], number[w])
      else:
        work.pop()
        if work: low[work[-1][0]] = min(low[work[-1][0]], low[v])
        if low[v] != number[v]: continue
        found = path[path.index(v):]
        del path[len(path) - len(found):]
        on_path.difference_update(found)
        if len(found) > 1: out.append(found)
  return out


def circle(graph: Mapping[str, Mapping[str, int]], component: list[str]) -> list[str]:
  """A shortest way from the first module of a component back to it, through the component."""
  start, inside = component[0], set(component)
  before: dict[str, str] = {}
  ring = [start]
  while start not in before:
    met = [(w, v) for v in ring for w in graph[v] if w in inside and w not in before]
    for w, v in met: before.setdefault(w, v)
    ring = list(dict.fromkeys(w for w, _ in met))
  path = [start]
  while len(path) == 1 or path[-1] != start: path.append(before[path[-1]])
  return path[::-1]


def rooms(graph: Graph, modules: Mapping[str, Path]) -> Graph:
  """The graph with each package beneath ``ntgrad`` as one node: ``ntgrad.engine`` for all of ``ntgrad.engine.*``."""
  def room(name: str) -> str: return ".".join(name.split(".")[:2])
  out: Graph = {room(name): {} for name in modules}
  for name, found in graph.items():
    for other, line in found.items():
      if room(other) != room(name): out[room(name)].setdefault(room(other), line)
  return out


def circle_text(graph: Graph, modules: Mapping[str, Path], root: Path, path: list[str]) -> str:
  """A circle, an import a line, with the file and line where it stands."""
  return "\n".join(f"  {modules[a].relative_to(root)}:{graph[a][b]}: {a} imports {b}" for a, b in zip(path, path[1:]))
