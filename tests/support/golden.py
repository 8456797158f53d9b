"""Goldens: text that a person has read once and that must not change by accident.

``golden("dot.linear", text)`` compares with ``expected/dot.linear.txt``. ``pytest --update-golden`` writes the files instead;
read the diff before committing it.
"""
from __future__ import annotations

import difflib
from pathlib import Path
from typing import Callable

import pytest

EXPECTED = Path(__file__).parents[1] / "golden" / "expected"
Golden = Callable[[str, str], None]


def compare(path: Path, text: str, update: bool) -> str | None:
  """None when the file holds ``text`` (after writing it, with ``update``), else what differs, line by line."""
  text = "\n".join(line.rstrip() for line in text.rstrip("\n").split("\n")) + "\n"
  if update:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text: path.write_text(text)
    return None
  if not path.exists(): return f"there is no {path.name}; pytest --update-golden writes it. Got:\n{text}"
  want = path.read_text()
  if want == text: return None
  diff = difflib.unified_diff(want.splitlines(), text.splitlines(), f"expected/{path.name}", "got", lineterm="")
  return "\n".join([f"{path.name} differs; if the new text is right, pytest --update-golden writes it.", *diff])


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
  """``golden(name, text)``: fail with a diff unless ``expected/<name>.txt`` holds the text. Trailing blanks do not count."""
  update = request.config.getoption("--update-golden")
  def check(name: str, text: str) -> None:
    wrong = compare(EXPECTED / f"{name}.txt", text, update)
    if wrong is not None: pytest.fail(wrong, pytrace=False)
  return check
