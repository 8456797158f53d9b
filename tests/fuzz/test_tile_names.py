"""Random applications full of names: aliases, swaps, loops, conditions, lists and functions must leave what Python itself leaves.

See ``support/tile_python.py`` for what Python is given. Values stay whole numbers below 100, so results are exact.
"""
from __future__ import annotations

import random

import pytest

from support.marks import long, long_where
from support.plain_c import NAME as C, needs_cc
from support.tile_python import ROWS, check_names, defined

PROGRAMS = {"NUMPY": 100, "CPU": 10, C: 20}
LOCALS = ("a", "b", "c")
STEPS = 9             # statements at most, those inside others counted


class Writer:
  """Writes a program. Names: x and y, tiles that are assigned; z, a level of tiles, and row, another name for it; a, b, c,
  Python's own."""

  def __init__(self, seed: int):
    self.rng = random.Random(seed)
    self.lines: list[str] = []
    self.left = self.rng.randrange(1, STEPS + 1)
    self.counters: list[str] = []
    self.named = False            # whether row is

  def text(self) -> str:
    """The program."""
    self.line(0, "def program(x, y, z):")
    self.line(1, "def bounded(v): return tl.minimum(tl.maximum(v, -99.0), 99.0)")
    self.line(1, "def put(place, k, v):")
    self.line(2, "old = place[k]")
    self.line(2, "place[k] = bounded(v)")
    self.line(2, "return old")
    self.line(1, f"a, b, c, row = x, {self.row()}, bounded(y), z")
    self.named = True
    while self.left > 0: self.statement(1, False)
    self.line(1, "x = bounded(a + x)")
    self.line(1, "y = bounded(b - c)")
    return "\n".join(self.lines) + "\n"

  def line(self, depth: int, text: str) -> None: self.lines.append("  " * depth + text)

  def row(self) -> str:
    """A tile of z."""
    at = self.rng.choice(self.counters) if self.counters and self.rng.random() < 0.6 else str(self.rng.randrange(ROWS))
    return f"{self.rng.choice(('z', 'row')) if self.named else 'z'}[{at}]"

  def name(self) -> str: return self.rng.choice(("x", "y", *LOCALS))

  def value(self) -> str:
    """An expression for a tile."""
    kind = self.rng.randrange(10)
    one, two = (self.row() if self.rng.random() < 0.3 else self.name() for _ in range(2))
    if kind < 3: return one
    if kind < 6: return f"bounded({one} {self.rng.choice('+-')} {two})"
    if kind == 6: return f"tl.where({one} > {two}, {two}, {one})"
    if kind == 7: return f"bounded(tl.cumsum({one}, 0))"
    if kind == 8: return f"tl.flip({one}, 0)"
    return f"bounded({one} + put({self.rng.choice(('z', 'row'))}, {self.rng.randrange(ROWS)}, {two}) - {self.name()})"

  def target(self) -> str: return self.row() if self.rng.random() < 0.3 else self.name()

  def body(self, depth: int, kernel: bool) -> None:
    for _ in range(self.rng.randrange(1, 4)): self.statement(depth, kernel)

  def statement(self, depth: int, kernel: bool) -> None:
    """``kernel``: inside of what the kernel decides, where Python's lists may not change."""
    self.left -= 1
    deep = depth < 4 and self.left > 0
    match self.rng.randrange(12):
      case 0 | 1: self.line(depth, f"{self.target()} = {self.value()}")
      case 2 | 3: self.line(depth, f"{self.rng.choice(LOCALS)} = {self.name()}")
      case 4:
        one, two = self.rng.sample(("x", "y", *LOCALS), 2)
        self.line(depth, f"{one}, {two} = {two}, {one}")
      case 5: self.line(depth, f"{self.row()}, {self.name()} = {self.value()}, {self.value()}")
      case 6:
        name = self.name()
        self.line(depth, f"{name} += {self.value()}")
        self.line(depth, f"{name} = bounded({name})")
      case 7:
        self.line(depth, f"kept = [{self.value()}, ({self.name()}, {self.row()})]")
        self.line(depth, f"{self.target()} = {self.value()}")
        self.line(depth, f"{self.target()}, {self.name()} = kept[1][{self.rng.randrange(2)}], kept[0]")
      case 8 | 9 if deep:
        n = len(self.counters)
        counted = self.rng.random() < 0.7
        self.counters.append(f"{'k' if counted else 's'}{n}")
        self.line(
          depth, f"for {self.counters[-1]} in {'range' if counted else 'tl.static_range'}({self.rng.randrange(1, ROWS + 1)}):"
        )
        self.body(depth + 1, kernel or counted)
        self.counters.pop()
      case 10 if deep:
        self.line(depth, f"if tl.sum({self.name()}) > tl.sum({self.name()}):")
        self.body(depth + 1, True)
        if self.rng.random() < 0.5:
          self.line(depth, "else:")
          self.body(depth + 1, True)
      case _: self.line(depth, f"{self.name()} = {self.value()}")


@long_where(lambda device: device != "NUMPY")
@pytest.mark.parametrize("device", ["NUMPY", "CPU", pytest.param(C, marks=[needs_cc, long])])
def test_programs(device: str) -> None:
  for seed in range(PROGRAMS[device]):
    text = Writer(seed).text()
    try: check_names(defined(text), device)
    except Exception as e: raise AssertionError(f"seed {seed} on {device}: {type(e).__name__}: {e}\n{text}") from e
