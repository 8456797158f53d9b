"""The same program, device, version and settings: the same bits, run after run, cold or warm cache, eager or captured."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.devices import missing
from support.marks import long

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import hashlib, sys
import numpy as np
import ntgrad
from ntgrad import Tensor, nn
Tensor.manual_seed(7)
conv, norm, head = nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.Linear(6 * 49, 10)
table = nn.Embedding(20, 18)
params = nn.state.get_parameters([conv, norm, head, table])
optimizer = nn.optim.Adam(params, lr=0.01)
digest = hashlib.sha256()
def step(i, y):
  optimizer.zero_grad()
  x = table(i).reshape(8, 2, 9, 9)
  out = norm(conv(x)).relu().flatten(1).dropout(0.3)
  loss = head(out).cross_entropy(y) + out.softmax(1).square().sum() * 0.01
  loss.backward()
  optimizer.step()
  return loss.realize()
if sys.argv[1] == "captured": step = ntgrad.jit(step)
with Tensor.train():
  for k in range(5):
    i = Tensor(np.random.default_rng(k).integers(0, 20, (8, 9)).astype(np.int32))
    digest.update(step(i, Tensor((np.arange(8) + k).astype(np.int32) % 10)).numpy().tobytes())
for p in params: digest.update(p.numpy().tobytes())
r = Tensor.rand(100, int(sys.argv[2]))
results = r.sum(), r.sum(0), r.exp().mean(1), r @ r.T, r.cumsum(1), r.std(), r.var(0), (r > 0.5).where(r, -r).sum(1).softmax()
for t in results: digest.update(t.numpy().tobytes())
print(digest.hexdigest())
"""


def bits(device: str, how: str, cache: Path, **settings: str) -> str:
  env = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    "DEV": device,
    "CACHE_DIR": str(cache),
    "VERIFY": "0",
    **settings,
  }
  long = "30" if device == "NUMPY" else "3000"   # it has one way to sum, and goes from element to element
  command = [sys.executable, "-c", PROGRAM, how, long]
  done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
  assert not done.returncode, done.stderr
  return done.stdout.strip()


@long
@pytest.mark.parametrize("device", ["NUMPY", "CPU", "CUDA"])
def test_bits(device: str, tmp_path: Path) -> None:
  if missing(device): pytest.skip(missing(device))
  cold = bits(device, "eager", tmp_path/"a")
  assert bits(device, "eager", tmp_path/"a") == cold            # warm: plans and programs from the disk
  assert bits(device, "captured", tmp_path/"a") == cold
  # compiled elsewhere, in another order
  if device != "NUMPY": assert bits(device, "captured", tmp_path/"b", WORKERS="2") == cold
