"""The documents run: every ``python`` block of README.md, CONTRIBUTING.md and docs/*.md, in order, in one namespace a file.

The ``text`` block behind one is what it prints.
"""
from __future__ import annotations

import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from ntgrad.engine import report

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
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


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_blocks_run(path: Path) -> None:
  report.reset()   # each page is a run of its own
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


def test_what_counts_as_the_same() -> None:
  assert (
    same("a  \nb\n", "a\nb")
    and same("a\nx\ny\nb\n", "a\n…\nb")
    and same("it took 3 s\n", "it took … s")
    and not same("a\nc\n", "a\nb")
  )
