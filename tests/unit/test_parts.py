"""Parts of buffers: slices share kernels and schedules, where they begin is an argument."""
from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import pytest

from ntgrad import Tensor, jit
from ntgrad.codegen.kernel import Kernel
from ntgrad.engine import compile as compiling
from ntgrad.schedule import create_schedule
from ntgrad.schedule.parts import ALIGN, alignment, consecutive
from support.devices import DEVICES, missing

X = np.random.default_rng(0).standard_normal((400, 7)).astype(np.float32)


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Kernel]]:
  """The kernels that are rendered while a test runs."""
  found: list[Kernel] = []
  spec = compiling.program_spec
  def note(kernel: Kernel, *args: Any, **options: Any) -> Any:
    found.append(kernel)
    return spec(kernel, *args, **options)
  monkeypatch.setattr(compiling, "program_spec", note)
  yield found


def kernels(t: Tensor) -> list[Kernel]: return [item.ast for item in create_schedule([t]) if item.ast is not None]


@pytest.mark.parametrize("key, shape, align", [
  (slice(0, 16), (16, 7), ALIGN),
  (slice(16, 32), (16, 7), ALIGN),
  (slice(5, 21), (16, 7), 4),
  (5, (7,), 4),
  ((5, slice(2, 4)), (2,), 4),
  ((slice(None), slice(2, 4)), (400, 7), 0),   # not one piece
  (slice(None), (400, 7), 0),
  (slice(None, None, -1), (400, 7), 0),
  (slice(0, 400, 2), (399, 7), ALIGN),         # from the first row that is read to the last
])
def test_what_a_kernel_takes(key: Any, shape: tuple[int, ...], align: int) -> None:
  t = Tensor(X).realize()
  k, = kernels(t[key] * 2)
  assert (k.params[1].shape, k.params[1].align) == (shape, align)
  np.testing.assert_array_equal((t[key] * 2).numpy(), X[key] * 2)


def test_consecutive() -> None:
  assert consecutive((4, 5, 6), ((1, 2), (2, 4), (0, 6))) == 42 and consecutive((4, 5), ((1, 3), (0, 5))) == 5
  assert consecutive((4, 5), ((1, 3), (0, 4))) is None and consecutive((), ()) == 0
  assert alignment(128, 4) == ALIGN and alignment(4, 4) == 4


@pytest.mark.parametrize("device", DEVICES)
def test_a_hundred_slices_are_two_kernels(device: str, rendered: list[Kernel]) -> None:
  if reason := missing(device): pytest.skip(reason)
  t = Tensor(X, device=device).realize()
  for i in range(0, 390, 40 if device == "TRITON" else 4):
    np.testing.assert_allclose((t[i:i + 10] * 2 + 1).numpy(), X[i:i + 10] * 2 + 1, rtol=1e-6)
  assert len(rendered) <= 2
  for i in range(0, 400, 40 if device == "TRITON" else 4):
    np.testing.assert_allclose((t[i] * 2).numpy(), X[i] * 2, rtol=1e-6)
  assert len(rendered) <= 4


def test_parts_of_results_share_kernels(rendered: list[Kernel]) -> None:
  rows = [Tensor(X[i:i + 3]).realize() for i in range(0, 300, 3)]
  rendered.clear()
  whole = Tensor.cat(*[r.exp() for r in rows])
  np.testing.assert_allclose(whole.numpy(), np.exp(X[:300]), rtol=1e-5)
  assert len(rendered) <= 2
  for c, part in zip(whole.chunk(100), range(0, 300, 3)):
    np.testing.assert_allclose((c + 1).numpy(), np.exp(X[part:part + 3]) + 1, rtol=1e-5)
  assert len(rendered) <= 4


def test_a_slice_of_what_is_written_keeps_its_order() -> None:
  t = Tensor(X.copy()).realize()
  for i in range(0, 40, 10):
    before = t[i:i + 10] * 2
    t[i + 5:i + 15] = t[i:i + 10] + 1   # reads what it writes
    X2 = t.numpy()
    np.testing.assert_allclose(before.numpy()[:5], X2[i:i + 5] * 2, rtol=1e-6)
  want = X.copy()
  for i in range(0, 40, 10): want[i + 5:i + 15] = want[i:i + 10] + 1
  np.testing.assert_allclose(t.numpy(), want, rtol=1e-6)


def test_captured() -> None:
  w = Tensor(X).realize()

  @jit
  def f(x: Tensor) -> Tensor: return (x[2:5] * w[6:9] + w[101]).sum(1) + x[1, 3]

  for seed in range(5):
    x = np.random.default_rng(seed).standard_normal((6, 7)).astype(np.float32)
    np.testing.assert_allclose(f(Tensor(x).realize()).numpy(), (x[2:5] * X[6:9] + X[101]).sum(1) + x[1, 3], rtol=1e-4, atol=1e-5)


def test_a_slice_of_a_slice() -> None:
  t = Tensor(X).realize()
  for i in (3, 8, 16, 40):
    np.testing.assert_array_equal((t[i:i + 50][2:9][3] + 1).numpy(), X[i:i + 50][2:9][3] + 1)
