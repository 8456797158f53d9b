"""The golden helper itself, and listings of programs written by hand."""
from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from support.linear import dot

COMPARE = Callable[[Path, str, bool], "str | None"]


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> COMPARE:
  module = next(p for p in request.config.pluginmanager.get_plugins() if str(getattr(p, "__file__", "")).endswith("golden/conftest.py"))
  return module.compare  # type: ignore[no-any-return]


def test_missing_then_written_then_equal_then_different(compare: COMPARE, tmp_path: Path) -> None:
  path = tmp_path / "a.txt"
  assert "there is no a.txt" in (compare(path, "x\ny", False) or "")
  assert compare(path, "x\ny", True) is None
  assert compare(path, "x  \ny\n\n", False) is None
  wrong = compare(path, "x\nz", False) or ""
  assert "--update-golden" in wrong and "-y\n+z" in wrong


def test_dot_listing(golden: Callable[[str, str], None]) -> None:
  golden("dot_by_hand.linear", str(dot().uops))
