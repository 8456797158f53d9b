"""Programs written for PyTorch, with ``import ntgrad as torch`` in the place of its import: they print what they print there."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.marks import long

FOLDER = Path(__file__).resolve().parents[1] / "support/torch_programs"
# those that train take nearly all of the time
SHORT = "batches", "printing"
PROGRAMS = [pytest.param(p, id=p.stem, marks=[] if p.stem in SHORT else long) for p in sorted(FOLDER.glob("*.py"))]


def printed(source: str) -> str:
  r = subprocess.run([sys.executable, "-W", "ignore", "-c", source], capture_output=True, text=True)
  assert r.returncode == 0, r.stderr
  return r.stdout


@pytest.mark.parametrize("path", PROGRAMS)
def test_program(path: Path) -> None:
  here = re.sub(r"^import torch$", "import ntgrad as torch", path.read_text(), flags=re.MULTILINE)
  here = re.sub(r"^from torch\b", "from ntgrad", here, flags=re.MULTILINE)
  assert printed(here) == path.with_suffix(".txt").read_text()


@pytest.mark.parametrize("path", PROGRAMS)
def test_what_pytorch_prints(path: Path) -> None:
  pytest.importorskip("torch")
  assert printed(path.read_text()) == path.with_suffix(".txt").read_text()
