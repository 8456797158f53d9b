"""examples/distributed: what they print they reach, with ranks that are threads."""
from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from ntgrad import distributed as dist

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "distributed"


def main_of(name: str) -> Any: return runpy.run_path(str(FOLDER / f"{name}.py"))["main"]


@pytest.mark.long
def test_mnist() -> None:
  scores = dist.run(main_of("mnist"), 2, (["--epochs", "1", "--batch", "64"],))
  assert scores[0] == scores[1] > 0.7


@pytest.mark.long
def test_gpt_goes_on_from_its_checkpoint_with_another_number_of_ranks(tmp_path: Path) -> None:
  main = main_of("gpt")
  whole = dist.run(main, 2, (["--steps", "12", "--out", str(tmp_path / "whole")],))[0]
  dist.run(main, 2, (["--steps", "6", "--out", str(tmp_path / "parts")],))
  assert dist.run(main, 1, (["--steps", "12", "--out", str(tmp_path / "parts")],))[0] == pytest.approx(whole, rel=1e-6)
