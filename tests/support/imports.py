"""Which modules import which, read from their sources."""
from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
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
    for imported, line in _imports(_parsed(file.read_text()), package):
      while imported and imported not in modules: imported = imported.rpartition(".")[0]   # a name in a module
      above = imported
      while "." in above:
        if above != name and (above == imported or not f"{name}.".startswith(f"{above}.")): found.setdefault(above, line)
        above = above.rpartition(".")[0]
      if imported and "." not in imported and imported != name: found.setdefault(imported, line)
  return out


@lru_cache(1024)
def _parsed(text: str) -> ast.Module: return ast.parse(text)


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


@dataclass
class Drawing:
  """What stands directly in a folder, each folder and each file as one box, and which box imports which."""
  lines: dict[str, int]              # by box
  arrows: dict[str, dict[str, str]]  # box -> box that it imports, and one import of those
  loose: set[str]                    # boxes that are files

  @property
  def floors(self) -> dict[str, int]:
    """The longest path of arrows from each box down, itself counted. There are no circles."""
    out: dict[str, int] = {}
    left = [*self.lines]
    while left:
      rest = [b for b in left if not self.arrows[b].keys() <= out.keys()]
      assert len(rest) < len(left), f"a circle of boxes: {', '.join(rest)}"
      out |= {b: 1 + max([out[a] for a in self.arrows[b]], default=0) for b in left if b not in rest}
      left = rest
    return out

  def __str__(self) -> str:
    floors = self.floors
    return "\n".join(f"{floors[b]:2} {b:12} {self.lines[b]:6} lines -> {', '.join(sorted(self.arrows[b]))}"
                     for b in sorted(self.lines, key=lambda b: (-floors[b], b)))


def drawing(modules: Mapping[str, Path], folder: str) -> Drawing:
  """The boxes of a package (``ntgrad``, ``ntgrad.codegen``). Importing a name from a package is an arrow to the box that defines
  it; ``ntgrad.codegen`` and ``ntgrad.backends`` are no boxes of ``ntgrad``."""
  others = {"ntgrad.codegen", "ntgrad.backends"} - {folder}
  given = {name: _given(name, file, modules) for name, file in modules.items()}
  def box(name: str) -> str | None:
    if name != folder and not name.startswith(f"{folder}.") or any(f"{name}.".startswith(f"{o}.") for o in others): return None
    return name.removeprefix(folder).strip(".").split(".")[0] or "__init__"
  def home(module: str, name: str) -> str:
    while (to := given[module].get(name)) is not None:
      module, name = to
      if f"{module}.{name}" in modules: return f"{module}.{name}"
    return module
  out = Drawing({}, {}, set())
  for name, file in modules.items():
    if (here := box(name)) is None: continue
    out.lines[here] = out.lines.get(here, 0) + len(file.read_text().splitlines())
    arrows = out.arrows.setdefault(here, {})
    if file.parent.name == folder.rpartition(".")[2] and (file.stem == here): out.loose.add(here)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for imported, line in _imports(_parsed(file.read_text()), package):
      module, _, last = imported.rpartition(".")
      to = imported if imported in modules else home(module, last) if module in modules else None
      there = None if to is None else box(to)
      if there is not None and there != here: arrows.setdefault(there, f"{name}:{line} {imported}")
  return out


def _given(name: str, file: Path, modules: Mapping[str, Path]) -> dict[str, tuple[str, str]]:
  """The names that a module has from others: the module, and the name there."""
  package = name if file.name == "__init__.py" else name.rpartition(".")[0]
  out: dict[str, tuple[str, str]] = {}
  for n in _parsed(file.read_text()).body:
    if not isinstance(n, ast.ImportFrom): continue
    parts = package.split(".")
    base = ".".join([*parts[:len(parts) - n.level + 1], *filter(None, [n.module])]) if n.level else n.module or ""
    if base not in modules: continue
    for a in n.names:
      if a.name != "*": out[a.asname or a.name] = base, a.name
      else: out |= {x: (base, x) for x in _listed(modules[base])}
  return out


def _listed(file: Path) -> list[str]:
  """The ``__all__`` of a file that ``import *`` takes names from."""
  for n in _parsed(file.read_text()).body:
    if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__": return list(ast.literal_eval(n.value))
  return []


def circle_text(graph: Graph, modules: Mapping[str, Path], root: Path, path: list[str]) -> str:
  """A circle, an import a line, with the file and line where it stands."""
  return "\n".join(f"  {modules[a].relative_to(root)}:{graph[a][b]}: {a} imports {b}" for a, b in zip(path, path[1:]))
