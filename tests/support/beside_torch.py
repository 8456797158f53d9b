"""Programs that PyTorch and ntgrad both run: ``program(torch, note)`` notes what it sees, and both have to see the same."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import config

Program = Callable[[Any, Callable[..., None]], None]


def values(x: Any) -> Any:
  """Lists in the place of tensors, in tuples and dicts too."""
  if isinstance(x, (tuple, list)): return [values(v) for v in x]
  if isinstance(x, dict): return {k: values(v) for k, v in x.items()}
  return np.asarray(x.detach().numpy()).tolist() if hasattr(x, "detach") else x


def linear(torch: Any) -> Any:
  """A layer with the same weights in both."""
  layer = torch.nn.Linear(2, 2)
  with torch.no_grad():
    layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    layer.bias.copy_(torch.tensor([1.0, -1.0]))
  return layer


def compare(program: Program, *modules: str, error: float = 1e-5) -> None:
  """Run a program in both, ntgrad's first; numbers may be off by ``error``. ``modules`` are PyTorch's that it needs."""
  def noted(torch: Any) -> list[Any]:
    out: list[Any] = []
    program(torch, lambda *a: out.append(values(a)))
    return out
  with config(dev="NUMPY"): have = noted(ntgrad)
  torch = pytest.importorskip("torch")
  for name in modules: pytest.importorskip(f"torch.{name}")
  want = noted(torch)
  assert len(have) == len(want) > 0
  for a, b in zip(have, want): assert _same(a, b, error), (a, b)


def _same(a: Any, b: Any, error: float) -> bool:
  if isinstance(b, (list, tuple)): return len(a) == len(b) and all(_same(v, w, error) for v, w in zip(a, b))
  if isinstance(b, dict): return a.keys() == b.keys() and all(_same(a[k], w, error) for k, w in b.items())
  return bool(abs(a - b) <= error * (1 + abs(b))) if isinstance(b, float) else bool(a == b)
