"""bench/cpu.py: what it refuses, and that its rows can be measured."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench" / "cpu.py"


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
  return subprocess.run(
    [sys.executable, str(BENCH), *args], env={**os.environ, **env}, text=True, capture_output=True, timeout=300, check=False
  )


def test_the_numpy_backend_is_refused() -> None:
  done = run(DEV="NUMPY")
  assert done.returncode == 1 and "the numpy backend is the oracle" in done.stderr


def test_a_row_of_the_table() -> None:
  done = run("--only", "peak memory", "--width", "2", "--rounds", "1")
  assert "| peak memory of training |" in done.stdout and "must reach" in done.stdout, done.stderr
