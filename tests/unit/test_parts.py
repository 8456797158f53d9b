"""Parts of buffers: slices share kernels and schedules, where they begin is an argument."""
from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import pytest

import ntgrad.tile as tile
from ntgrad import Device, Tensor, jit, nn
from ntgrad.codegen.kernel import Kernel
from ntgrad.engine import compile as compiling
from ntgrad.engine.buffer import slice_of
from ntgrad.schedule import create_schedule
from ntgrad.schedule.placement import PART_ALIGN_BYTES, alignment, consecutive
from ntgrad.tile import specialised as tile_kernel
from support.devices import DEVICES, missing
from support.marks import long

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
  (slice(0, 16), (16, 7), PART_ALIGN_BYTES),
  (slice(16, 32), (16, 7), PART_ALIGN_BYTES),
  (slice(5, 21), (16, 7), 4),
  (5, (7,), 4),
  ((5, slice(2, 4)), (2,), 4),
  ((slice(None), slice(2, 4)), (400, 7), 0),   # not one piece
  ((slice(None), 2), (399*7 + 1,), 4),         # as far apart as rows
  ((slice(10, 20), 2), (9*7 + 1,), 4),
  (slice(None), (400, 7), 0),
  (slice(None, None, -1), (400, 7), 0),
  (slice(0, 400, 2), (399, 7), PART_ALIGN_BYTES),         # from the first row that is read to the last
])
def test_what_a_kernel_takes(key: Any, shape: tuple[int, ...], align: int) -> None:
  t = Tensor(X).realize()
  k, = kernels(t[key] * 2)
  assert (k.params[1].shape, k.params[1].align) == (shape, align)
  np.testing.assert_array_equal((t[key] * 2).numpy(), X[key] * 2)


def test_consecutive() -> None:
  assert consecutive((4, 5, 6), ((1, 2), (2, 4), (0, 6))) == 42 and consecutive((4, 5), ((1, 3), (0, 5))) == 5
  assert consecutive((4, 5), ((1, 3), (0, 4))) is None and consecutive((), ()) == 0
  assert alignment(128, 4) == PART_ALIGN_BYTES and alignment(4, 4) == 4


@pytest.mark.parametrize("device", DEVICES)
def test_steps_of_a_sequence_are_one_kernel(device: str, rendered: list[Kernel]) -> None:
  """x[:, t] read, and written, for each t."""
  if reason := missing(device): pytest.skip(reason)
  a = np.random.default_rng(1).standard_normal((5, 6, 16)).astype(np.float32)
  t = Tensor(a, device=device).realize()
  for i in range(6): np.testing.assert_allclose((t[:, i] * 2 + 1).numpy(), a[:, i] * 2 + 1, rtol=1e-6)
  assert len(rendered) <= 2
  steps = [Tensor(a[:, i].copy(), device=device).realize() for i in range(6)]
  np.testing.assert_array_equal(Tensor.stack(*steps, dim=1).numpy(), a)
  assert len(rendered) <= 4
  for i in range(6): t[:, i] = steps[5 - i]
  np.testing.assert_array_equal(t.numpy(), a[:, ::-1])


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


def test_slices_go_to_another_device() -> None:
  """Also where a schedule is found again, with other sizes and other places of the slice."""
  there = "NUMPY" if Device.DEFAULT != "NUMPY" else "CPU"
  t = Tensor(X.ravel()[:80].copy()).realize()
  for begin, end in ((16, 20), (24, 28), (64, 69), (32, 37), (8, 11), (9, 15)):
    for shape in (-1,), (-1, 1):
      np.testing.assert_array_equal(t[begin:end].reshape(shape).to(there).numpy().ravel(), X.ravel()[begin:end])


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


# ---- what shares kernels by it

def test_cat_of_many_and_adam_over_many(rendered: list[Kernel]) -> None:
  parts = [Tensor(X[i:i + 2]).realize() for i in range(300)]
  rendered.clear()
  np.testing.assert_array_equal(Tensor.cat(*[p * 2 for p in parts]).numpy()[100:102], X[50:52] * 2)
  assert len(rendered) <= 2
  weights = [Tensor.ones(4, 4, requires_grad=True) for _ in range(300)]
  opt = nn.optim.Adam(weights)
  rendered.clear()
  with Tensor.train():
    for _ in range(3):
      opt.zero_grad()
      sum([(w * w).sum() for w in weights], Tensor(0.0)).backward()
      opt.step()
  assert len(rendered) <= 12, "as many kernels as for three weights"
  np.testing.assert_allclose(weights[0].numpy(), weights[-1].numpy())


class _Layers:
  def __init__(self, n: int): self.layers = [(nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)) for _ in range(n)]
  def __call__(self, x: Tensor) -> Tensor:
    for norm, up, down in self.layers: x = x + down(up(norm(x)).gelu())
    return x


@long
def test_repeated_layers_are_compiled_once(rendered: list[Kernel]) -> None:
  def distinct(n: int) -> int:
    model = _Layers(n)
    opt = nn.optim.SGD(nn.state.get_parameters(model), lr=0.01)
    x = Tensor(X[:8, :4].reshape(2, 16)).realize()
    rendered.clear()
    with Tensor.train():
      model(x).square().mean().backward()
      opt.step()
    return len(rendered)
  distinct(3)   # whatever this leaves compiled, a deeper model needs no more
  assert distinct(7) <= 4


# ---- pieces of memory as arguments of tile kernels

@pytest.mark.parametrize("device", DEVICES)
def test_pieces_go_to_tile_kernels_as_they_are(device: str, rendered: list[Kernel], monkeypatch: pytest.MonkeyPatch) -> None:
  if reason := missing(device): pytest.skip(reason)
  def both(x: Any, y: Any, z: Any) -> None: z = x * 2 + y  # noqa: F841
  k = tile.make(lambda *ts: tuple(t.tile((2, 4)) for t in ts), both, (tile.Tensor(2),) * 3)
  t, out = Tensor(X, device=device).realize(), Tensor.zeros(6, 7, device=device).contiguous().realize()
  rendered.clear()
  specs: list[Any] = []
  spec = tile_kernel.program_spec
  monkeypatch.setattr(tile_kernel, "program_spec", lambda *a: specs.append(a) or spec(*a))
  for i in (0, 1, 16, 33, 48, 7):
    k(t[i:i + 6], t[100 + i:106 + i], out)
    np.testing.assert_array_equal(out.numpy(), X[i:i + 6] * 2 + X[100 + i:106 + i])
  assert not rendered, "nothing is copied first"
  assert len(specs) <= 4

  whole = Tensor(X.copy(), device=device).realize()
  k(whole[3:9], whole[20:26], whole[40:46])   # what is written shares the memory: read before
  want = X.copy()
  want[40:46] = X[3:9] * 2 + X[20:26]
  np.testing.assert_array_equal(whole.numpy(), want)


def test_pieces_in_captured_functions() -> None:
  def double(x: Any, y: Any) -> None: y = x * 2  # noqa: F841
  k = tile.make(lambda x, y: (x.tile((4,)), y.tile((4,))), double, (tile.Tensor(1),) * 2)
  out = Tensor.zeros(7).contiguous().realize()

  @jit
  def f(x: Tensor) -> Tensor:
    k(x[2], out)
    return x[2] + 1

  for seed in range(4):
    x = np.random.default_rng(seed).standard_normal((5, 7)).astype(np.float32)
    np.testing.assert_allclose(f(Tensor(x).realize()).numpy(), x[2] + 1, rtol=1e-6)
    np.testing.assert_allclose(out.numpy(), x[2] * 2, rtol=1e-6)


def test_a_piece_of_what_was_written_over_is_refused() -> None:
  t = Tensor(X[:8].copy()).realize()
  piece = slice_of(t[2:4].lazydata)
  assert piece is not None and not piece.stale and piece.offset == 2 * 7 * 4
  t.assign(t + 1).realize()
  assert piece.stale and not slice_of(t[2:4].lazydata).stale   # type: ignore[union-attr]
