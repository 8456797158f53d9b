"""A line of a table of measurements, and the table as markdown; and the examples that are measured: for ``bench/cpu.py`` and
``bench/cuda.py``."""
from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

from ntgrad import Tensor, nn

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

FAST, SLOW = "≥", "≤"   # a ratio of speeds must reach a number, an amount must stay under one


@dataclass
class Row:
  """A line of the table: what was measured, and what must be."""
  work: str
  ours: str
  reference: str
  value: float | None        # None: could not be measured (no torch)
  sign: str
  limit: float
  unit: str = "×"
  kernels: list[str] = field(default_factory=list)

  @property
  def ok(self) -> bool | None:
    if self.value is None: return None
    return self.value >= self.limit if self.sign == FAST else self.value <= self.limit

  def cells(self) -> list[str]:
    value = "–" if self.value is None else f"{self.value:.2f} {self.unit}"
    ok = {True: "yes", False: "**no**", None: "–"}[self.ok]
    return [self.work, self.ours, self.reference, value, f"{self.sign} {self.limit:g} {self.unit}", ok]


def table(rows: list[Row]) -> str:
  """The rows as markdown, and the kernels that were timed."""
  head = ["work", "ntgrad", "reference", "ratio", "must reach", "ok"]
  lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * 3 + ["--:"] * 2 + ["---"], *(r.cells() for r in rows))]
  timed = [f"- {r.work}: {', '.join(r.kernels)}" for r in rows if r.kernels]
  return "\n".join(lines) + ("\n\nKernels timed:\n" + "\n".join(timed) if timed else "")


def module_of(path: Path) -> ModuleType:
  """An example as a module."""
  spec = importlib.util.spec_from_file_location(f"{path.stem}_example", path)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def example() -> ModuleType:
  """examples/mnist.py as a module."""
  return module_of(EXAMPLES / "mnist.py")


def training(model: Any) -> Callable[[Tensor, Tensor], Tensor]:
  """The training step of the example, not captured."""
  opt = nn.optim.Adam(nn.state.get_parameters(model), lr=1e-3)
  def step(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = model(x).sparse_categorical_crossentropy(y).backward()
    opt.step()
    return loss.realize()
  return step
