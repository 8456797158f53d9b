"""The documents run: every ``python`` block of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/*.md, in order, in one namespace
a file.

The ``text`` block behind one is what it prints.
"""
from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from ntgrad import config
from support.marks import long_where
from support.numbering import reset_numbering

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
  """Python of a document, the line it stands in, and what it must print (None: not said)."""
  line: int
  code: str
  shown: str | None


def blocks(text: str) -> list[Block]:
  """The ``python`` blocks; one that is followed at once by a ``text`` block prints that."""
  out: list[Block] = []
  end = -1
  for m in FENCE.finditer(text):
    if m[1] == "python": out.append(Block(text.count("\n", 0, m.start()) + 1, m[2], None))
    elif m[1] == "text" and out and not text[end:m.start()].strip() and out[-1].shown is None and end >= 0: out[-1].shown = m[2]
    end = m.end() if m[1] == "python" else -1
  return out


def same(got: str, want: str) -> bool:
  """Line by line, without trailing blanks; a line ``…`` stands for any lines, ``…`` within one for anything."""

  def one(line: str) -> str:
    return "(?:.*\n)*" if line.strip() == "…" else ".*".join(map(re.escape, line.rstrip().split("…"))) + "\n"

  pattern = [one(line) for line in want.rstrip("\n").split("\n")]
  return re.fullmatch("".join(pattern), "".join(line.rstrip() + "\n" for line in got.rstrip("\n").split("\n"))) is not None


@long_where(lambda path: path.name == "tile.md")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_blocks_run(path: Path) -> None:
  from ntgrad.engine import planner
  reset_numbering()   # each page is a run of its own
  planner._plans.clear()
  names: dict[str, Any] = {"__name__": "document"}
  for b in blocks(path.read_text()):
    printed = StringIO()
    with redirect_stdout(printed): exec(compile("\n" * b.line + b.code, str(path), "exec"), names)
    if b.shown is not None:
      assert same(printed.getvalue(), b.shown), f"{path.name}:{b.line} prints\n{printed.getvalue()}\ninstead of\n{b.shown}"


def test_the_walk_through_is_whole() -> None:
  assert sum(b.shown is not None for b in blocks((ROOT / "docs" / "walkthrough.md").read_text())) >= 6


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
  text = re.sub(r"`[^`]*`", "", FENCE.sub("", path.read_text()))
  for target in re.findall(r"\]\(([^)#:]+)\)", text): assert (path.parent / target).exists(), f"{path.name}: {target}"


NAMED = re.compile(r"`((?:codegen|backends|ntgrad|tests|bench|examples|docs|engine|schedule|tile|nn)/[\w/]+\.py)`")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_files_that_are_named_exist(path: Path) -> None:
  """A name is a path from the top, or from ``ntgrad/``."""
  named = NAMED.findall(path.read_text())
  assert [n for n in named if not (ROOT / n).exists() and not (ROOT / "ntgrad" / n).exists()] == []


def test_names_in_the_architecture_exist() -> None:
  """Every word of code in its sentences occurs in the code, the tests or the names of their files."""
  tops = ("codegen", "backends", "ntgrad", "tests", "bench")
  known: set[str] = set()
  for path in (p for top in tops for p in (ROOT / top).rglob("*.py")):
    known.update((path.stem, *re.findall(r"\w+", path.read_text())))
  text = FENCE.sub("", (ROOT / "docs" / "architecture.md").read_text())
  code = " ".join(c for c in re.findall(r"`([^`\n]+)`", text) if "->" not in c)
  assert set(re.findall(r"[A-Za-z_]\w{2,}", code)) - known == set()


# words that only this project used, or that say "we"
PRIVATE = ("ours", "lent", "ripe", "hosts", "demands", "met")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_words(path: Path) -> None:
  sentences = re.sub(r"`[^`]*`", "", FENCE.sub("", path.read_text()))
  assert [w for w in PRIVATE if re.search(rf"\b{w}\b", sentences)] == []


@pytest.mark.parametrize("page, folder", [("scheduling", "schedule"), ("engine", "engine")])
def test_the_last_table_of_a_page_has_its_folder(page: str, folder: str) -> None:
  table = (ROOT / "docs" / f"{page}.md").read_text().split("\n## ")[-1]
  files = {p.name for p in (ROOT / "ntgrad" / folder).glob("*.py")} - {"__init__.py"}
  named = set(re.findall(r"`(\w+\.py)`", table))
  assert (named - files, files - named) == (set(), set()), f"docs/{page}.md names files that are gone, or lacks some"


def test_settings_that_are_named_exist() -> None:
  known = {f.metadata["env"] for f in fields(config)}
  for path in FILES[:2]:
    named = set(re.findall(r"\b([A-Z][A-Z_0-9]+)=\w", re.sub(r"```(python|sh).*?```", "", path.read_text(), flags=re.DOTALL)))
    assert named <= known, f"{path.name}: {named - known}"


# ---- README.md: the folders

def lines_in(place: str) -> int:
  """Lines of Python, as ``python -m ntgrad size`` counts them."""
  if place.endswith("*.py"): files = [*ROOT.glob(place)]
  elif place.endswith(".py"): files = [ROOT / place]
  else: files = [p for p in (ROOT / place).rglob("*.py") if p.relative_to(ROOT).parts[:2] not in LINKS]
  return sum(p.read_text().count("\n") for p in files)


LINKS = [("ntgrad", "codegen"), ("ntgrad", "backends")]   # symbolic links to the folders at the top


def number(text: str) -> int: return int(text.replace(",", ""))


def test_numbers_of_lines() -> None:
  """A row of the table is right within 10 %, or 100 lines, to which it is rounded; the core within 5 %."""
  text = (ROOT / "README.md").read_text()
  said = {place: number(n) for place, n in re.findall(r"^\| \**`([\w/.*]+)`\** \| ([\d,]+) \|", text, re.MULTILINE)}
  assert len(said) > 15
  have = {place: lines_in(place) for place in said}
  assert {p: (n, have[p]) for p, n in said.items() if abs(n - have[p]) > max(100, have[p] // 10)} == {}, "said and there"
  core = re.search(r"Its core has ([\d,]+) lines of Python:\n(.*?)\(", text, re.DOTALL)
  assert core
  total = sum(map(lines_in, re.findall(r"`([\w/]+)`", core[2])))
  assert abs(number(core[1]) - total) <= total // 20, f"the core has {total:,} lines"


def test_all_folders_are_named() -> None:
  text = (ROOT / "README.md").read_text().split("## The folders")[1]
  there = {f"{p.parent.name}/{p.name}/" for top in ("codegen", "ntgrad") for p in (ROOT / top).iterdir()
           if p.is_dir() and not p.is_symlink() and (p / "__init__.py").exists()}
  assert {f for f in there if f"`{f}`" not in text and f"`{f.partition('/')[2]}`" not in text} == set()


def test_what_counts_as_the_same() -> None:
  assert (
    same("a  \nb\n", "a\nb")
    and same("a\nx\ny\nb\n", "a\n…\nb")
    and same("it took 3 s\n", "it took … s")
    and not same("a\nc\n", "a\nb")
  )


# ---- docs/architecture.md: the way of a softmax

ENTERED = """
import sys
seen = {}
def enter(frame, event, arg):
  code = frame.f_code
  if event == "call": seen.setdefault((code.co_filename, code.co_qualname))
from ntgrad import Tensor
x = Tensor.rand(8, 32).realize()
sys.setprofile(enter)
x.softmax().realize()
sys.setprofile(None)
for file, name in seen: print(file, name, sep="\\t")
"""


def way() -> list[tuple[str, str]]:
  """File and function of each step of the table."""
  text = (ROOT / "docs" / "architecture.md").read_text()
  section = text[text.index("## The way of a softmax"):].split("\n## ")[0]
  return re.findall(r"^\|[^|]*\| `([\w/.]+)` \| `([\w.]+)` \|", section, re.MULTILINE)


def defined(path: Path) -> set[str]:
  """The qualified names of a file's functions and methods."""
  out: set[str] = set()
  nodes: list[tuple[str, ast.AST]] = [("", ast.parse(path.read_text()))]
  while nodes:
    prefix, node = nodes.pop()
    for n in ast.iter_child_nodes(node):
      if isinstance(n, ast.FunctionDef | ast.ClassDef):
        out.add(prefix + n.name)
        nodes.append((f"{prefix}{n.name}.", n))
  return out


def test_each_step_of_the_way_exists() -> None:
  assert len(way()) > 20
  assert [(file, name) for file, name in way() if name not in defined(ROOT / file)] == []


def test_the_way_is_gone_in_this_order(tmp_path: Path) -> None:
  environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEV": "CPU", "CACHE_DIR": str(tmp_path), "NOOPT": "0", "VERIFY": "0"}
  done = subprocess.run([sys.executable, "-c", ENTERED], capture_output=True, text=True, env=environment, timeout=300)
  assert done.returncode == 0, done.stderr
  place = {}
  for i, line in enumerate(done.stdout.splitlines()):
    file, name = line.split("\t")
    place[str(Path(file).resolve()), name] = i
  steps = [(str((ROOT / file).resolve()), name) for file, name in way()]
  assert [s for s in steps if s not in place] == []
  assert steps == sorted(steps, key=place.__getitem__)
