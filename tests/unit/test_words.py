"""Words: one meaning for each name that modules have in public, units for numbers, and a glossary whose terms are in the code."""
from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import Iterable, Iterator, NamedTuple

import pytest

import ntgrad.codegen

ROOT = Path(ntgrad.codegen.__file__).resolve().parent.parent
if not (ROOT / "setup.py").exists(): pytest.skip("installed without its source tree", allow_module_level=True)

FOLDERS = ("codegen", "ntgrad/schedule", "ntgrad/engine", "ntgrad/graph", "ntgrad/tile")
# what is used qualified (``graph.add``, ``ix.add``), or has the names that users of the tile language write (``tl.load``)
NAMESPACES = {"ntgrad/graph/nodes.py", "codegen/index/algebra.py", "codegen/ir/elementwise.py", "ntgrad/tile/operations.py",
              "ntgrad/tile/triton_names.py", "ntgrad/tile/libdevice.py"}
# words in a constant's name that say what it counts
UNITS = {"BYTES", "ELEMENTS", "SECONDS", "CYCLES", "NODES", "PROGRAMS", "WARPS", "REGISTERS", "LANES", "ROWS", "COLUMNS", "DIMS",
         "DIMENSIONS", "BLOCKS", "PANELS", "STATEMENTS", "COPIES", "ADDITIONS", "PRODUCTS", "STORES", "PARAMS", "CALLS", "BITS"}


class Constant(NamedTuple):
  """A number, or a tuple of numbers, that a module assigns: where, its names, and the comments above it and on its line."""
  path: Path
  line: int
  names: tuple[str, ...]
  above: str
  beside: str
  loose: bool   # it stands behind a function or class

  def __str__(self) -> str: return f"{self.path.relative_to(ROOT)}:{self.line}: {', '.join(self.names)}"


def files(folders: Iterable[str]) -> Iterator[Path]:
  for folder in folders: yield from sorted(p for p in (ROOT / folder).rglob("*.py") if "__pycache__" not in p.parts)


def targets(n: ast.stmt) -> list[str]:
  """The names that a statement of a module defines."""
  if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): return [n.name]
  assigned = n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AnnAssign) else []
  names = [x for t in assigned for x in ast.walk(t) if isinstance(x, ast.Name)]
  return [x.id for x in names if isinstance(x.ctx, ast.Store)]


def clashes(sources: dict[str, str], namespaces: Iterable[str] = ()) -> list[str]:
  """Public names that two of the files define, but for a namespace and another file."""
  where: dict[str, dict[str, int]] = {}
  for path, source in sources.items():
    for n in ast.parse(source).body:
      for name in targets(n):
        if not name.startswith("_"): where.setdefault(name, {}).setdefault(path, n.lineno)
  named = {name: {path: line for path, line in found.items() if path not in namespaces} for name, found in where.items()}
  return [f"{name}: {', '.join(f'{path}:{line}' for path, line in found.items())}" for name, found in sorted(named.items())
          if len(found) > 1]


def test_one_meaning() -> None:
  """No two modules of these folders define the same public name.

  Namespaces are exempt against others: modules that are used qualified, which are the nodes of the tensor graph (``graph.add``),
  the algebra of indices (``ix.add``) and elementwise functions; and those with the tile language's own names, which users write
  qualified (``tl.load``).
  """
  sources = {str(p.relative_to(ROOT)): p.read_text() for p in files(FOLDERS)}
  assert len(sources) > 100 and NAMESPACES <= sources.keys()
  found = clashes(sources, NAMESPACES)
  assert not found, f"{len(found)} names have several meanings:\n" + "\n".join(found)


def test_clashes_are_found() -> None:
  sources = {"a": "def f(): ...\nx = 1\n_y = 2\ndef g(): ...", "b": "\nx: int = 2\n_y = 3\nfrom a import f",
             "c": "class g: ...\nx, z = 1, 2\nf.x = f[0] = 1"}
  assert clashes(sources) == ["g: a:4, c:1", "x: a:2, b:2, c:2"]
  assert clashes(sources, {"a"}) == ["x: b:2, c:2"] and not clashes(sources, {"a", "c"})


# ---- constants

def numeric(v: ast.expr | None) -> bool:
  """A number, also a computed one, or a tuple of them."""
  if isinstance(v, ast.Constant): return type(v.value) in (int, float)
  if isinstance(v, ast.UnaryOp): return numeric(v.operand)
  if isinstance(v, ast.BinOp): return numeric(v.left) and numeric(v.right)
  return isinstance(v, ast.Tuple) and bool(v.elts) and all(map(numeric, v.elts))


def constants(path: Path, source: str) -> Iterator[Constant]:
  comments = {t.start[0]: t.string.lstrip("# ") for t in tokenize.generate_tokens(io.StringIO(source).readline)
              if t.type == tokenize.COMMENT}
  lines, behind = source.splitlines(), False
  for n in ast.parse(source).body:
    behind |= isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    if not isinstance(n, (ast.Assign, ast.AnnAssign)) or not numeric(n.value): continue
    assert n.end_lineno is not None
    above = comments.get(n.lineno - 1, "") if n.lineno > 1 and lines[n.lineno - 2].startswith("#") else ""
    yield Constant(path, n.lineno, tuple(targets(n)), above, comments.get(n.end_lineno, ""), behind)


CONSTANTS = [c for p in files((*FOLDERS, "backends")) for c in constants(p, p.read_text())]


def has_unit(c: Constant) -> bool:
  """Whether a comment, or the name, says what a constant counts."""
  return bool(c.above or c.beside) or all(UNITS & set(name.strip("_").split("_")) for name in c.names)


def test_constants_say_what_they_count() -> None:
  """Each has a comment on its line or above it, or a unit in its name."""
  assert len(CONSTANTS) > 300
  bare = [str(c) for c in CONSTANTS if not has_unit(c)]
  assert not bare, "say what these count, and in which unit:\n" + "\n".join(bare)


def test_comments_of_constants_are_whole() -> None:
  """None goes on at the next constant."""
  open_ = [f"{c}: {text}" for c in CONSTANTS for text in (c.above, c.beside) if text.endswith(",")]
  assert not open_, "a sentence for each constant:\n" + "\n".join(open_)


def test_constants_stand_at_the_top() -> None:
  loose = [str(c) for c in CONSTANTS if c.loose]
  assert not loose, "above the first function and class, beside those that they belong to:\n" + "\n".join(loose)


@pytest.mark.parametrize("source, unit, whole", [
  ("A = 5\n", False, True), ("A_BYTES = 5\n", True, True), ("A = 5   # rows\n", True, True), ("# rows\nA = 5\n", True, True),
  ("B = 1   # rows,\nA = (1, 2)   # and columns\n", True, False), ("A, B_ROWS = 1, -2.5\n", False, True),
  ("# rows\n\nA = 1 << 4\n", False, True)])
def test_rules_of_constants(source: str, unit: bool, whole: bool) -> None:
  found = list(constants(ROOT / "a.py", source))
  assert found and all(map(has_unit, found)) is unit
  assert whole == (not any(c.above.endswith(",") or c.beside.endswith(",") for c in found))
  assert not any(c.loose for c in found) and all(c.loose for c in constants(ROOT / "a.py", "def f(): ...\n" + source))
  assert not list(constants(ROOT / "a.py", "A = 'a'\nB = True\nC = (1, 'b')\nD = ()\nE = f(1)\n"))


# ---- the glossary

GLOSSARY = ROOT / "docs" / "glossary.md"
ENTRY = re.compile(r"- \*\*(.+?)\*\* \(`([\w./]+)`\): \S.*\.$")


def entries(text: str) -> list[tuple[str, str]]:
  """Terms and their files; every line that begins an item has to be one."""
  out = []
  for line in text.splitlines():
    if not line.startswith("- "): continue
    m = ENTRY.match(line)
    assert m, f"not ``- **term** (`file`): one sentence.``: {line}"
    out.append((m[1], m[2]))
  return out


def mentions(source: str, term: str) -> bool:
  """Whether a file has a term, in a name or in prose, in some form of the words."""
  words = [re.escape(w[:-1] if w.endswith(("e", "y")) and len(w) > 3 else w) for w in re.split(r"[ -]", term.lower())]
  return re.search(r"(?<![a-z])" + r"\w*[ _\n#-]*".join(words), source.lower()) is not None


def test_glossary() -> None:
  """Alphabetical, each term once, and in the file that is named."""
  found = entries(GLOSSARY.read_text())
  terms = [t for t, _ in found]
  assert len(terms) >= 40 and terms == sorted(set(terms), key=str.lower), "alphabetical, each once"
  missing = [f"{path}: {term}" for term, path in found
             if not (ROOT / path).is_file() or not mentions((ROOT / path).read_text(), term)]
  assert not missing, "not in these files:\n" + "\n".join(missing)


def test_rules_of_the_glossary() -> None:
  assert entries("# words\n- **a b** (`codegen/x.py`): what it is.\n") == [("a b", "codegen/x.py")]
  for line in ("- **a**: what.", "- **a** (`x.py`): ", "- **a** (`x.py`): what", "- a (`x.py`): what."):
    with pytest.raises(AssertionError): entries(line)
  assert mentions("class CacheRead:", "cache read") and mentions("it is split_axis", "split")
  assert mentions("x # cache\n# read", "cache read")
  assert not mentions("resplit", "split") and not mentions("cached reads of", "read cache")
