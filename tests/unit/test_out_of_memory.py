"""A device without memory left: what is kept for reuse is given back first, then an error tells what lives, and nothing is
broken."""
from __future__ import annotations

import gc
import re
from typing import Any, Iterator

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, config
from ntgrad.engine import realize
from ntgrad.engine.device import get_device
from ntgrad.errors import DeviceError, OutOfMemoryError
from support.devices import DEVICES, missing

MB = 1 << 20
REAL = [pytest.param(d, marks=pytest.mark.skipif(bool(missing(d)), reason=missing(d))) for d in DEVICES if d != "TRITON"]


@pytest.fixture(params=REAL)
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
  """The default device, with nothing of other tests in its pool."""
  monkeypatch.setattr(Device, "assigned", request.param)
  gc.collect()
  getattr(get_device(request.param), "trim", lambda: None)()
  yield request.param


def room(nbytes: int) -> Any:
  """So many bytes more than are in use now."""
  return config(memory=Device.memory().allocated + nbytes)


def floats(nbytes: int) -> Tensor: return Tensor(np.ones(nbytes // 4, np.float32))


def test_the_error_tells_what_lives(device: str) -> None:
  with room(9 * MB):
    kept = [floats(2 * MB), (floats(MB) + 1).realize(), floats(MB // 2)]
    kept[1].assign(kept[1] * 2).realize()
    with pytest.raises(OutOfMemoryError) as e: (floats(2 * MB) + kept[0]).pad(((0, 3 * MB // 4),)).contiguous().realize()
  text = str(e.value)
  assert isinstance(e.value, DeviceError) and isinstance(e.value, MemoryError)
  assert f"{device}: out of memory allocating 5,242,880 bytes" in text and "in use, and MEMORY allows" in text
  assert "2,097,152  a tensor of shape (524288,) (dtypes.float), made by the host's data at test_out_of_memory.py:" in text
  assert "1,048,576  a tensor of shape (262144,) (dtypes.float), written by assign at test_out_of_memory.py:" in text
  assert "the schedule that ran (of 1 kernels) takes 5,242,880 bytes at most, beside the 4,194,304 that it reads" in text
  sizes = [int(line.split()[0].replace(",", "")) for line in text.split("\n")[2:-2]]
  assert re.fullmatch(r"computing what was made at test_out_of_memory.py:\d+ add, pad", text.split("\n")[-1]), text
  assert sizes[:-1] == sorted(sizes[:-1], reverse=True) and len(sizes) <= 11
  del e, kept


def test_the_pool_is_given_back(device: str) -> None:
  """Memory of other sizes that waits for reuse, and what lies in circles, does not count."""
  with room(6 * MB):
    for n in (1, 2, 3): floats(n * MB)
    class Circle: pass
    c: Any = Circle()
    c.me, c.tensor = c, floats(3 * MB)
    gc.disable()
    try:
      del c
      t = floats(5 * MB)
    finally: gc.enable()
    assert t.numpy().sum() == t.shape[0]


def test_nothing_is_broken(device: str) -> None:
  """Tensors that were to be written have their old values; once there is room the same call works, pending writes included."""
  w, m = floats(MB), floats(MB)
  with room(3 * MB):
    big = w.reshape(512, 512).sum(0, keepdim=True).expand(2048, 512).contiguous()
    w.assign(w + big.sum() * 0 + 1)
    m += 2
    with pytest.raises(OutOfMemoryError): Tensor.realize(w, m, big)
    gc.collect()
  assert (w.numpy() == 2).all() and (m.numpy() == 3).all() and (big.numpy() == 512).all()


@pytest.mark.parametrize("after", range(6))
def test_a_step_that_fails_in_the_middle(device: str, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
  """What was written before it is written, what was not has its old value; the next step is right."""
  a, b, c = (Tensor(np.zeros(64, np.float32)).realize() for _ in range(3))
  def step() -> None:
    for t, n in ((a, 1), (b, 2)): t.assign(t + n)
    c[:5].assign(c[:5] + a[:5] * 0 + 3)
    c[5:].assign(c[5:] + b[5:] * 0 + 3)
    Tensor.realize(a, b, c)
  step()
  count = [0]
  real = realize.run_step
  def run_step(*args: Any) -> None:
    count[0] += 1
    if count[0] > after: raise OutOfMemoryError("no more")
    real(*args)
  with monkeypatch.context() as patch:
    patch.setattr(realize, "run_step", run_step)
    try: step()
    except OutOfMemoryError: pass
  def value(t: Tensor) -> Any:
    try: got = t.numpy()
    except DeviceError as e: return str(e)
    return float(got[0]) if (got == got[0]).all() else got
  seen = [value(t) for t in (a, b, c)]
  for got, delta in zip(seen, (1, 2, 3)):
    assert got in (delta, 2 * delta) or (isinstance(got, str) and "a part of a write that failed" in got)
  if all(isinstance(x, float) for x in seen):
    step()
    assert [value(t) for t in (a, b, c)] == [x + d for x, d in zip(seen, (1, 2, 3))]


def test_captured(device: str) -> None:
  """A replay that finds no memory for its results has not begun."""
  total = Tensor(np.zeros(MB // 4, np.float32)).realize()
  @ntgrad.jit
  def step(x: Tensor) -> Tensor:
    total.assign(total + x.sum())
    return (total * 2 + x).realize()
  x = floats(MB)
  for _ in range(3): out = step(x)
  before = total.numpy()[0]
  kept = [out]
  with room(2 * MB), pytest.raises(OutOfMemoryError, match="jit .*step"):
    for _ in range(5): kept.append(step(x))
  assert len(kept) > 1 and total.numpy()[0] == before + (len(kept) - 1) * x.shape[0]
  kept.clear()
  step(x)
  assert (total.numpy() == total.numpy()[0]).all()
