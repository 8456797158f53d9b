"""Settings and modes belong to a thread or task; and threads may use everything at once."""
from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Callable, Iterator

import pytest

from ntgrad import Tensor, no_grad
from ntgrad.codegen.config import Config, config
from ntgrad.core import mode


def elsewhere(f: Callable[[], Any]) -> Any:
  """What a function gives in a thread of its own."""
  with ThreadPoolExecutor(1) as t: return t.submit(f).result(60)


# ---- modes and settings

def test_modes_are_the_threads() -> None:
  def modes() -> tuple[bool, bool]: return mode.grad, Tensor.training
  def other() -> tuple[bool, bool]:
    with no_grad(), Tensor.train(): return modes()
  with no_grad(), Tensor.train():
    assert modes() == (False, True) and elsewhere(modes) == (True, False) and elsewhere(other) == (False, True)
    assert elsewhere(lambda: (Tensor([1.0], requires_grad=True, device="NUMPY") * 2).requires_grad) is True
  assert modes() == (True, False)


def test_modes_are_the_tasks() -> None:
  """Two tasks of one thread that take turns."""
  seen = []
  async def task(off: bool) -> None:
    for _ in range(3):
      if off:
        with no_grad(), Tensor.train(), config(debug=0, noopt=1):
          await asyncio.sleep(0)
          seen.append((off, mode.grad, Tensor.training, config.noopt))
      else:
        await asyncio.sleep(0)
        seen.append((off, mode.grad, Tensor.training, config.noopt))
  async def both() -> None: await asyncio.gather(task(True), task(False))
  asyncio.run(both())
  assert set(seen) == {(True, False, True, 1), (False, True, False, 0)} and len(seen) == 6


def test_settings_of_a_block_are_the_threads() -> None:
  """An assignment outside of a block is for all; in it, for the block."""
  def read() -> tuple[Any, ...]: return config.noopt, config.beam, config.key()[0]
  before = config.noopt
  with config(noopt=1):
    assert read() == (1, 0, 1) and elsewhere(read) == (before, 0, before)
    config.noopt = 0
    assert read()[0] == 0 and elsewhere(read)[0] == before
    def other() -> Any:
      with config(noopt=1, beam=3): return read()
    assert elsewhere(other) == (1, 3, 1)
    config.beam = 2   # no field of the block
    try: assert read()[1] == elsewhere(read)[1] == 2
    finally: config.beam = 0
    def assigns() -> None: config.noopt = 5
    elsewhere(assigns)
    assert config.noopt == 0
  assert config.noopt == elsewhere(lambda: config.noopt) == 5
  config.noopt = before
  assert not config._process and "noopt" in config.__dict__   # attributes again, as quick as before


def test_settings_in_many_threads() -> None:
  mine = Config()
  def work(n: int) -> bool:
    for i in range(300):
      with mine(debug=n, noopt=n % 2):
        with mine(debug=n + 100):
          if mine.debug != n + 100 or mine.key()[0] != n % 2: return False
        if mine.debug != n: return False
      if i % 10 == 0 and mine.debug != 0: return False
    return True
  with ThreadPoolExecutor(8) as t: assert all(t.map(work, range(1, 9)))
  assert not mine._process and mine.debug == 0


def test_blocks_end_by_errors_and_in_generators() -> None:
  @contextmanager
  def around() -> Iterator[None]:
    with config(debug=0, noopt=1): yield
  before = config.noopt
  with pytest.raises(ZeroDivisionError), around(), no_grad():
    assert config.noopt == 1
    raise ZeroDivisionError
  assert config.noopt == before and mode.grad
