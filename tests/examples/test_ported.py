"""Scripts as people write them for other libraries, imports changed: each ``main`` in a short form, and what it must reach."""
from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.marks import long_unless

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "ported"


def script(name: str) -> Any:
  spec = importlib.util.spec_from_file_location(f"ported_{name}", FOLDER / f"{name}.py")
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module
  spec.loader.exec_module(module)
  return module


REACHED: dict[str, tuple[tuple[Any, ...], Any]] = {
  "training_loop": ((40,), lambda accuracy: accuracy > 90),
  "kmeans": ((), lambda error: error < 0.3),
  "image_filter": ((), lambda ratio: ratio > 3),
  "ode": ((40,), lambda error: error < 0.2),
  "lbfgs": ((), lambda error: error < 1e-3),   # with a history of three pairs, see ``test_script``
  "vae": ((100,), lambda loss: loss < 22),
  "recurrent": ((30,), lambda reached: reached[0] < 0.03),
  "transformer": ((80,), lambda accuracy: accuracy > 0.9),
  "dqn": ((60, 30.0), lambda mean: mean > 25),
  "finetune": ((None, 1), lambda accuracy: accuracy > 0.8),
}


# those that train a network to where they must come take most of the time; other tests train smaller ones
TRAINED = ("lbfgs", "ode", "vae", "recurrent", "transformer", "dqn", "finetune")


@pytest.mark.parametrize("name", long_unless(lambda name: name not in TRAINED, REACHED))
def test_script(name: str) -> None:
  arguments, reached = REACHED[name]
  module = script(name)
  # each length of the history has kernels of its own to compile, and there are many more rounds than pairs either way
  if name == "lbfgs": module.lbfgs = partial(module.lbfgs, history=3)
  assert reached(module.main(*arguments))


def test_all_are_run() -> None: assert {p.stem for p in FOLDER.glob("*.py")} == set(REACHED)
