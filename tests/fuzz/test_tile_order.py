"""Random applications that write their parameters over while others are made of them, in another order too (flips, sorts, running
sums, parts): statements happen one after another, at the first shape, at later ones, and with run-time sizes from the start."""
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

PROGRAMS = {("NUMPY", "auto"): 40, ("NUMPY", "always"): 20, ("CPU", "auto"): 8, (C, "auto"): 30, ("TRITON", "auto"): 10}
SHAPES = [(2, 8), (3, 5), (2, 12)]
NAMES = ("x", "y", "z", "a", "b")
VALUES = ("{p}", "{p} + {q}", "tl.flip({p}, 0)", "tl.flip({p}, 0) - {q}", "{p} - tl.max({q})", "tl.sum({p}) * 0.125 + {q}",
          "tl.where({p} > {q}, {p}, tl.flip({q}, 0))", "tl.cumsum({p}, 0) * 0.25", "{p}[0] + {q}", "x * 0 + 1.0", "tl.sort({p})")
TL = types.SimpleNamespace(sum=np.sum, max=np.max, sort=np.sort, flip=lambda x, axis: np.flip(x, axis).view(Value),
                           cumsum=lambda x, axis: np.cumsum(x), where=lambda *xs: np.where(*xs).view(Value))


def written(seed: int) -> str:
  """A program of a few statements."""
  r = random.Random(seed)
  lines = ["def program(x, y, z):", *["  a, b = x, y"] * r.randrange(2)]
  names = NAMES if len(lines) == 2 else NAMES[:3]
  def value() -> str: return r.choice(VALUES).format(p=r.choice(names), q=r.choice(names))
  def statements(depth: int, n: int) -> None:
    pad = "  " * depth
    for _ in range(n):
      kind = r.randrange(8) if depth < 3 else 0
      if kind < 5: lines.append(f"{pad}{r.choice(names)} = {value()}")
      elif kind == 5: lines.append(f"{pad}{r.choice('xyz')} += {value()}")
      else:
        lines.append(f"{pad}for _ in range({r.randrange(1, 4)}):" if kind == 6 else f"{pad}if tl.sum({r.choice(names)}) > 0:")
        statements(depth + 1, r.randrange(1, 3))
  statements(1, r.randrange(2, 6))
  if not any(line.lstrip()[:2] in ("x ", "y ", "z ") for line in lines): lines.append("  z = z + 1")   # it stores something
  return "\n".join(lines) + "\n"


def by_python(text: str, *arrays: Any) -> list[Any]:
  """What each row is after it, the program run on it by Python."""
  space: dict[str, Any] = {"tl": TL}
  exec(text + "  return x, y, z\n", space)
  rows = [space["program"](*[row.view(Value) for row in rows]) for rows in zip(*arrays)]
  return [np.stack([row[i] for row in rows]) for i in range(3)]


def by_rows(*xs: Any) -> Any:
  out = []
  for x in xs:
    x = x.tile((1, -1)).squeeze(1)
    x.dtype = x.dtype.squeeze(0)
    out.append(x)
  return tuple(out)


def check(seed: int, device: str, dynamic: str) -> None:
  text = written(seed)
  kernel = tile.make(by_rows, defined(text), (Tensor(2),) * 3)
  for shape in SHAPES:
    r = np.random.default_rng(seed)
    arrays = [r.integers(-4, 5, shape).astype(np.float32) for _ in range(3)]
    want = by_python(text, *[a.copy() for a in arrays])
    with config(dev=device, dynamic=dynamic): kernel(*arrays)
    for n, a, w in zip("xyz", arrays, want): np.testing.assert_allclose(a, w, rtol=1e-4, atol=1e-4, err_msg=f"{n} {shape}")


@long_where(lambda device, dynamic: (device, dynamic) != ("NUMPY", "auto"))
@pytest.mark.parametrize("device, dynamic", [
  ("NUMPY", "auto"), ("NUMPY", "always"), ("CPU", "auto"), pytest.param(C, "auto", marks=[needs_cc, long]),
  pytest.param("TRITON", "auto", marks=needs_triton)])
def test_programs(device: str, dynamic: str) -> None:
  for seed in range(PROGRAMS[device, dynamic]):
    try: check(seed, device, dynamic)
    except Exception as e: raise AssertionError(f"seed {seed} on {device}: {type(e).__name__}: {e}\n{written(seed)}") from e
