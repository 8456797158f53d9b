"""How often a kernel is compiled whose sizes change: one hundred shapes, one hundred slices."""
from __future__ import annotations

from typing import Any, Callable, Iterator, Sequence

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, config, nn
from ntgrad.backends.base import Program, ProgramSpec
from ntgrad.engine import compile as compiling
from ntgrad.engine.device import get_device
from support.marks import long, long_where

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
SHAPES = [tuple(int(n) for n in RANDOM.integers(2, 200, 3)) for _ in range(100)]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
  """The names of kernels that are compiled, each as often as that happens."""
  names: list[str] = []
  made = compiling.from_specs
  def counted(specs: Sequence[ProgramSpec], device: Any) -> list[Program]:
    names.extend(s.name for s in specs)
    return made(specs, device)
  monkeypatch.setattr(compiling, "from_specs", counted)
  compiling._programs.clear()
  with config(check_indices=0): yield names


def rand(*shape: int) -> Array: return RANDOM.standard_normal(shape).astype(np.float32)


def soft(a: Array) -> Array:
  e = np.exp(a - a.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


PROGRAMS: dict[str, tuple[Callable[..., Tensor], Callable[..., Array], Callable[[int, int, int], list[Array]]]] = {
  "elements": (lambda a, b: (a + b).exp(), lambda a, b: np.exp(a + b), lambda m, n, k: [rand(m, n), rand(n)]),
  "sum": (lambda a: a.sum(1), lambda a: a.sum(1), lambda m, n, k: [rand(m, n)]),
  "columns": (lambda a: a.sum(0), lambda a: a.sum(0), lambda m, n, k: [rand(m, n)]),
  "softmax": (lambda a: a.softmax(-1), soft, lambda m, n, k: [rand(m, n)]),
  "product": (lambda a, b: a @ b, lambda a, b: a @ b, lambda m, n, k: [rand(m, k), rand(k, n)]),
  "transposed": (lambda a: a.T.contiguous(), lambda a: a.T, lambda m, n, k: [rand(m, n)]),
  "cat": (lambda a, b: Tensor.cat(a, b) * 2, lambda a, b: np.concatenate([a, b]) * 2, lambda m, n, k: [rand(m, n), rand(k, n)]),
}


@long_where(lambda name, device: device != "NUMPY" or name in ("product", "softmax", "cat"))
@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hundred_shapes(name: str, device: str, compiled: list[str]) -> None:
  get_device(device)
  fn, want, arrays = PROGRAMS[name]
  kernels = 3 if name == "cat" else 1   # cat stores each of its parts
  for shape in SHAPES:
    given = arrays(*shape)
    got = fn(*[Tensor(a, device=device) for a in given]).numpy()
    np.testing.assert_allclose(got, want(*given), rtol=1e-3, atol=1e-4)
  assert len(compiled) <= 4 * kernels, compiled


@long
@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
def test_a_hundred_shapes_of_a_captured_function(device: str, compiled: list[str]) -> None:
  @ntgrad.jit
  def program(a: Tensor, b: Tensor) -> Tensor: return (a @ b).relu().realize()
  for m, n, k in SHAPES:
    a, b = rand(m, k), rand(k, n)
    got = program(Tensor(a, device=device).realize(), Tensor(b, device=device).realize()).numpy()
    np.testing.assert_allclose(got, np.maximum(a @ b, 0), rtol=1e-3, atol=1e-4)
  assert len(compiled) <= 4, compiled


@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
def test_a_hundred_slices(device: str, compiled: list[str]) -> None:
  """Of one length, anywhere: a place that is a multiple of what vectors need, or not. And of any length."""
  a = rand(1000, 12)
  x = Tensor(a, device=device).realize()
  for i in RANDOM.integers(0, 900, 100).tolist():
    np.testing.assert_allclose((x[i:i + 100] * 2 + 1).numpy(), a[i:i + 100] * 2 + 1, rtol=1e-4, atol=1e-5)
  assert len(compiled) <= 2, compiled
  compiled.clear()
  for i in RANDOM.integers(0, 1000, 100).tolist(): np.testing.assert_allclose((x[i] - 1).numpy(), a[i] - 1, rtol=1e-4, atol=1e-5)
  assert len(compiled) <= 2, compiled
  compiled.clear()
  for i, n in zip(RANDOM.integers(0, 900, 100).tolist(), RANDOM.integers(2, 100, 100).tolist()):
    np.testing.assert_allclose((x[i:i + n] * 3 + 1).numpy(), a[i:i + n] * 3 + 1, rtol=1e-4, atol=1e-5)
  assert len(compiled) <= 4, compiled


@pytest.mark.parametrize("device", ["CPU", pytest.param("NUMPY", marks=long)])
def test_a_second_step_compiles_nothing(device: str, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
  """What layers and optimizers begin with lies in memory, as what they go on with: there is one form of a step."""
  monkeypatch.setattr(ntgrad.Device, "assigned", device)
  net = nn.Sequential(
    nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
    nn.Dropout(0.1), nn.GroupNorm(2, 4), nn.PReLU(), nn.Flatten(), nn.LayerNorm(36), nn.Linear(36, 5), nn.BatchNorm1d(5))
  for begin in (nn.optim.Adam, nn.optim.AdamW, nn.optim.RMSprop, lambda p, lr: nn.optim.SGD(p, lr=lr, momentum=0.9)):
    opt, made = begin(net.parameters(), lr=0.01), list[int]()
    for _ in range(4):
      opt.zero_grad()
      net(Tensor(rand(6, 3, 5, 5))).square().mean().backward()
      opt.step()
      made.append(len(compiled))
    assert made[0] == made[-1], compiled[made[0]:]
