"""Values that come to be a number, or another's memory, while a graph is rewritten: they are written all the same, each into
memory of its own."""
from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
from ntgrad import Tensor, config
from ntgrad.codegen.ir.errors import VerifyError
from ntgrad.engine import keeping
from support.devices import DEVICES, missing

f32 = np.float32


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
  if why := missing(request.param): pytest.skip(why)
  with config(dev=request.param): yield request.param


def nothing(dtype: type = f32) -> Tensor: return Tensor(np.zeros(0, dtype))


FOLDED: dict[str, tuple[Callable[[], Tensor], float]] = {
  "x ** 0": (lambda: Tensor(2.0).realize() ** 0, 1),
  "any of nothing, as a condition": (lambda: nothing().any().where(Tensor(1), Tensor(7)), 7),
  "not all of nothing": (lambda: nothing().isclose(nothing()).all().logical_not(), 0),
  "a sum of nothing": (lambda: nothing().sum(), 0),
  "a product of no ints": (lambda: nothing(np.int32).prod(), 1),
  "its cast": (lambda: nothing(np.int32).prod().cast("float16"), 1),
  "a chain of them": (lambda: (nothing().sum() + 1) * 2, 2),
  "a bool": (lambda: nothing(np.bool_).any(), 0),
  "contiguous": (lambda: nothing().prod().contiguous(), 1),
  "as a row": (lambda: nothing().prod().reshape(1, 1), 1),
}


@pytest.mark.parametrize("name", FOLDED)
def test_a_number_is_written(device: str, name: str) -> None:
  make, want = FOLDED[name]
  assert make().item() == want
  a, b = make(), make()
  Tensor.realize(a, b)
  assert (a.item(), b.item()) == (want, want)
  a.assign(Tensor(3).cast(a.dtype).expand(a.shape)).realize()
  assert b.item() == want   # written, the two share nothing
  f = ntgrad.jit(lambda x: (x.sum(), make()))
  for _ in range(4): assert f(Tensor([1.0, 2.0]))[1].item() == want


def test_a_choice_that_is_known_is_no_other_name_of_what_it_chose(device: str) -> None:
  x = Tensor([1.0, 2.0]).realize()
  y = nothing().any().where(Tensor(np.zeros(2, f32)), x).realize()
  x.assign(Tensor([5.0, 6.0])).realize()
  assert (y.tolist(), x.tolist()) == ([1, 2], [5, 6])
  y.assign(Tensor([7.0, 8.0])).realize()
  assert (y.tolist(), x.tolist()) == ([7, 8], [5, 6])


def test_of_memory_that_is_being_written(device: str) -> None:
  x = Tensor([1.0, 2.0]).realize()
  x[0] = 4.0
  y = nothing().any().where(Tensor(np.zeros(2, f32)), x)
  Tensor.realize(x, y)
  x[1] = 9.0
  assert (y.tolist(), x.tolist()) == ([4, 2], [4, 9])


def test_numbers_of_several_devices() -> None:
  devices = [d for d in DEVICES if not missing(d)]
  made = [Tensor(np.zeros(0, f32), device=d).sum() for d in devices]
  rows = [Tensor(np.zeros((0, 3), f32), device=d).sum(0) for d in devices]
  kept = [Tensor(np.zeros((0, 3), f32), device=d).prod(0).contiguous() + Tensor([1.0, 2.0, 3.0], device=d) for d in devices]
  Tensor.realize(*made, *rows, *kept)
  for d, a, b, c in zip(devices, made, rows, kept):
    assert {t.device for t in (a, b, c)} == {t.lazydata.device for t in (a, b, c)} == {d}
    assert (a.item(), b.tolist(), c.tolist()) == (0, [0] * 3, [2, 3, 4])
    for e in devices: assert Tensor(np.zeros(0, f32), device=d).prod().to(e).realize().item() == 1


def test_arguments_of_a_tile_kernel(device: str) -> None:
  def application(x, n, y): y = x + n  # noqa: F841
  add = tile.make(lambda x, n, y: (x.tile((4,)), n, y.tile((4,))), application, (tile.Tensor(1), tile.Tensor(0), tile.Tensor(1)))
  x, y = Tensor([1.0, 2.0, 3.0]), Tensor([0.0, 0.0, 0.0])
  add(x, nothing().prod(), y)
  assert y.tolist() == [2, 3, 4]


def test_what_nothing_computes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
  """And no uninitialised memory."""
  schedule = keeping.schedule_graph
  def lost(*args: object, **names: object) -> object:
    ready, items = schedule(*args, **names)  # type: ignore[arg-type]
    return ready, items[:-1]
  monkeypatch.setattr(keeping, "schedule_graph", lost)
  with pytest.raises(VerifyError, match=r"no step of a schedule computes its .*float of shape \(53,\)"):
    ((Tensor(np.arange(53, dtype=f32)) * 1.75 + 0.125).sin().exp() - 3.0).numpy()   # of which no test has a plan


def test_new_memory_is_poisoned(device: str) -> None:
  """In tests: what nobody wrote reads as NaN and -1."""
  from ntgrad.codegen.ir.dtype import dtypes
  from ntgrad.engine.buffer import Buffer
  for _ in range(2):   # from the system and from the pool
    held = Buffer(device, (300,), dtypes.float32)
    assert np.isnan(held.numpy()).all()
    held.write(np.ones(300, f32))
    del held
