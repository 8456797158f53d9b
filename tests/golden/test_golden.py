"""The golden helper itself, and listings of programs written by hand."""
from __future__ import annotations

from pathlib import Path
from typing import Callable

from support.golden import compare
from support.linear import dot


def test_missing_then_written_then_equal_then_different(tmp_path: Path) -> None:
  path = tmp_path / "a.txt"
  assert "there is no a.txt" in (compare(path, "x\ny", False) or "")
  assert compare(path, "x\ny", True) is None
  assert compare(path, "x  \ny\n\n", False) is None
  wrong = compare(path, "x\nz", False) or ""
  assert "--update-golden" in wrong and "-y\n+z" in wrong


def test_dot_listing(golden: Callable[[str, str], None]) -> None:
  golden("dot_by_hand.linear", str(dot().uops))
