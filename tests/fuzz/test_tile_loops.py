"""Random applications full of loops that have no round, one or a few, in some programs or in all: what they carry, add up and
count must be what Python itself makes of it, program by program."""
from __future__ import annotations

import random
import types
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as tile
from ntgrad.codegen.ir.config import config
from ntgrad.tile import Tensor
from support.marks import long, long_where
from support.plain_c import NAME as C, needs_cc
from support.tile_python import Value, defined
from support.triton import needs_triton

GRID, WIDTH, STATEMENTS = 3, 4, 10
PROGRAMS = {"NUMPY": 60, "CPU": 10, C: 10, "TRITON": 10}
HEAD = """def bound(v): return tl.minimum(tl.maximum(v, -50.0), 50.0)
def whole(v): return tl.minimum(tl.maximum(v, -50), 50)
def program(x, y, n, m, u):
  a, b, c, pid = x * 0, x, 1, tl.program_id(0)
  low = tl.minimum(tl.maximum(u, 0), 1)
"""
COUNTS = ("0", "1", "n", "m", "low", "u", "pid", "n - 1", "pid - 1", "x.shape[0] - 3", "m - n", "low - pid", "min(n, 1)",
          "pid // 2", "tl.minimum(pid, 1)", "(pid + n) % 2", "pid * 0", "low * n", "pid - 2", "u - 1", "min(pid, m)")
VALUES = ("x", "a + x", "b - a", "bound(a * 2.0)", "b + c", "tl.where(a > b, b, a)", "tl.maximum(a, b)", "a + tl.sum(b, 0)",
          "bound(tl.cumsum(b, 0))")


class Writer:
  """Writes a program. a and b are blocks, c is a number; n and m are known while reading (m perhaps), u when it runs."""
  def __init__(self, seed: int):
    self.rng, self.lines, self.left = random.Random(seed), list[str](), STATEMENTS
    self.counters: list[str] = []
    self.names = 0

  def text(self) -> str:
    while self.left > 0: self.statement(1)
    return HEAD + "\n".join([*self.lines, "  y = bound(a + b + c)"]) + "\n"

  def line(self, depth: int, text: str) -> None: self.lines.append("  " * depth + text)
  def count(self) -> str: return self.rng.choice(COUNTS)
  def value(self) -> str:
    return self.rng.choice((*VALUES, *[v.format(i) for i in self.counters for v in ("b + {}", "x * ({} + 1)")]))

  def range(self) -> str:
    match self.rng.randrange(5):
      case 0: return f"range({self.count()}, {self.count()})"
      case 1: return f"range({self.count()}, {self.count()}, {self.rng.choice((1, 2, -1, 3, -2))})"
      case _: return f"range({self.count()})"

  def body(self, depth: int, counter: str = "") -> None:
    if counter: self.counters.append(counter)
    for _ in range(self.rng.randrange(1, 4)): self.statement(depth)
    if counter: self.counters.pop()

  def statement(self, depth: int) -> None:
    self.left -= 1
    deep = depth < 5 and self.left > 0
    match self.rng.randrange(10):
      case 0 | 1: self.line(depth, f"a = bound({self.value()})")
      case 2: self.line(depth, f"b += {self.value()}")
      case 3: self.line(depth, "a += x")
      case 4: self.line(depth, f"a = tl.maximum(a, {self.value()})")
      case 5: self.line(depth, f"c = whole(c + {self.rng.choice(('1', 'pid', 'n', *self.counters))})")
      case 6 | 7 if deep:
        self.names += 1
        name = f"i{self.names}"
        self.line(depth, f"for {name} in {self.range()}:")
        self.body(depth + 1, name)
      case 8 if deep:
        self.names += 1
        name = f"w{self.names}"
        self.line(depth, f"{name} = {self.count()}")
        self.line(depth, f"while {name} > {self.rng.randrange(2)}:")
        self.line(depth + 1, f"{name} -= 1")
        self.body(depth + 1, name)
      case 9 if deep:
        self.line(depth, f"if {self.count()} > {self.rng.randrange(2)}:")
        self.body(depth + 1)
        if self.rng.random() < 0.5:
          self.line(depth, "else:")
          self.body(depth + 1)
      case _: self.line(depth, f"b = bound({self.value()})")


def extreme(fn: Any, native: Any) -> Any:
  return lambda a, b: fn(a, b) if isinstance(a, Value) or isinstance(b, Value) else native(a, b)


def by_python(text: str, x: Any, n: int, m: int, u: int) -> Any:
  """What Python makes of the program, one after another for each program of the grid."""
  out = []
  for pid, part in enumerate(x.reshape(GRID, WIDTH)):
    tl = types.SimpleNamespace(minimum=extreme(np.minimum, min), maximum=extreme(np.maximum, max), sum=np.sum, cumsum=np.cumsum,
                               where=lambda *xs: np.where(*xs).view(Value), program_id=lambda axis, pid=pid: pid)
    space: dict[str, Any] = {"tl": tl}
    exec(text.replace("  y = bound", "  return bound"), space)
    out.append(space["program"](part.view(Value), None, n, m, u))
  return np.concatenate([np.broadcast_to(o, WIDTH) for o in out])


def check(seed: int, device: str) -> None:
  text, r = Writer(seed).text(), random.Random(seed)
  tensors = (Tensor(1), Tensor(1), Tensor(0, constexpr=True), Tensor(0, constexpr=r.random() < 0.5), Tensor(0))
  def arrangement(x: Any, y: Any, *numbers: Any) -> Any: return x.tile((WIDTH,)), y.tile((WIDTH,)), *numbers
  kernel = tile.make(arrangement, defined(text), tensors)
  x = np.arange(1, 1 + GRID * WIDTH, dtype=np.float32)
  for numbers in ((0, 1, 0), (1, 0, 1), (2, 1, 2)):
    y = np.zeros_like(x)
    with config(dev=device): kernel(x, y, *numbers)
    np.testing.assert_allclose(y, by_python(text, x, *numbers), rtol=1e-5, err_msg=str(numbers))


@long_where(lambda device: device != "NUMPY")
@pytest.mark.parametrize("device", [
  "NUMPY", "CPU", pytest.param(C, marks=[needs_cc, long]), pytest.param("TRITON", marks=needs_triton)])
def test_programs(device: str) -> None:
  for seed in range(PROGRAMS[device]):
    try: check(seed, device)
    except Exception as e: raise AssertionError(f"seed {seed} on {device}: {type(e).__name__}: {e}\n{Writer(seed).text()}") from e


@needs_triton
def test_a_position_that_two_branches_read() -> None:
  check(3, "TRITON")   # it was defined in each of them
