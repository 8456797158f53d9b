"""The kernels of examples/tile, against numpy, on every backend; each arrangement and application is short."""
from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.codegen.ir.config import config
from ntgrad.tile import TileKernel
from support.devices import needs_cuda
from support.marks import long, long_where
from support.triton import needs_triton

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "tile"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in ("ported", "show"))   # the first has tests of its own


def load(name: str) -> Any:
  """An example as a module; examples import one another by bare names."""
  if str(FOLDER) not in sys.path: sys.path.insert(0, str(FOLDER))
  return importlib.import_module(name)


@long_where(lambda name, device: name == "flash_attention" and device == "NUMPY")
@pytest.mark.parametrize(
  "device", ["CPU", "NUMPY", pytest.param("TRITON", marks=needs_triton), pytest.param("CUDA", marks=needs_cuda)]
)
@pytest.mark.parametrize("name", NAMES)
def test_against_numpy(name: str, device: str) -> None:
  kernel, args, want = load(name).case(np.random.default_rng(0))
  args, given = (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})
  with config(dev=device): kernel(*args, **given)
  wants = want if isinstance(want, tuple) else (want,)
  for got, w in zip(args[-len(wants):], wants): np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_short(name: str) -> None:
  """Under 40 lines of arrangement and application for each kernel."""
  module = load(name)
  trees = {n.name: n for n in ast.parse((FOLDER / f"{name}.py").read_text()).body if isinstance(n, ast.FunctionDef)}
  lines = {n: (t.end_lineno or 0) - t.lineno + 1 for n, t in trees.items()}
  kernels = [k for k in vars(module).values() if isinstance(k, TileKernel)]
  assert kernels
  for k in kernels:
    used = [n for n in lines if n == k.application.__name__ or "arrangement" in n]
    assert sum(lines[n] for n in used) < 40, (k, used)


@long
def test_attention_has_gradients() -> None:
  attention = load("flash_attention").attention
  rng = np.random.default_rng(0)
  arrays, w = rng.standard_normal((3, 1, 2, 40, 16)).astype(np.float32), rng.standard_normal((1, 2, 40, 16)).astype(np.float32)
  mine, plain = ([Tensor(a, requires_grad=True) for a in arrays] for _ in range(2))
  o, _ = attention(*mine, 0.25)
  (o * Tensor(w)).sum().backward()
  q, k, v = plain
  mask = Tensor(np.where(np.tril(np.ones((40, 40), bool)), 0, -np.inf).astype(np.float32))
  want = ((q @ k.transpose(2, 3)) * 0.25 + mask).softmax(-1) @ v
  (want * Tensor(w)).sum().backward()
  np.testing.assert_allclose(o.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
  for a, b in zip(mine, plain): np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-3, atol=1e-5)


def test_an_example_says_something_when_it_is_run() -> None:
  root = FOLDER.parents[1]
  done = subprocess.run([sys.executable, str(FOLDER / "softmax.py")], capture_output=True, text=True,
                        env={**os.environ, "PYTHONPATH": str(root)}, timeout=300)
  assert done.returncode == 0, done.stderr
  assert done.stdout == "input(20, 333).tile((1, 333))\noutput(20, 333).tile((1, 333))\nsoftmax gives what numpy gives\n"
  for path in FOLDER.glob("*.py"): assert path.stem == "show" or '__name__ == "__main__"' in path.read_text(), path
