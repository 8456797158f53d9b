"""Functions of the tile language give the same by place and by name, for each of their parameters."""
from __future__ import annotations

import ast
import inspect
from typing import Any

import numpy as np
import pytest

from ntgrad import config, tile
from ntgrad.tile import language as tl
from support.tile_python import defined

# of x, y (4, 8) floats, i (4, 8) ints, b (4, 8) bools; all parameters by place, with other values than the defaults if it shows
_CALLS = """
add(i, i, False) | sub(i, i, False) | mul(i, i, False) | all(b, 1, True) | any(b, 1, True) | arange(2, 6)
argmax(i, 1, False, True) | argmin(i, 1, False, True)
bitcast(x, "int32") | cast(x, "int32", None, True) | cat(x, y, False, 1) | cdiv(i, 3)
clamp(x, -0.5, 0.5, None) | cummax(x, 1, True, 4) | cummin(x, 1, True, 4) | cumprod(i, 1, True, "int64", 4)
cumsum(i, 1, True, "int64", 4) | dot(x, tl.trans(y), tl.ones((4, 4)), "ieee", False, None, "float32") | expand_dims(x, 1)
fdiv(x, y, True, False) | flip(x, 0) | fma(x, y, x) | gcd(i, 6) | full((2, 3), 5, "int32") | gather(x, i % 4, 0)
histogram(tl.ravel(i), 8, None)
interleave(x, y) | join(x, y) | max(x, 1, True, False, True) | min(x, 1, True, False, True) | maximum(x, y, None)
minimum(x, y, None) | ones((2, 3), "int32") | zeros((2, 3), "int32") | pow(x * x + 1, y) | prod(x, 1, True) | rand(5, i, 7)
randint(5, i, 7) | randn(5, i, 7) | ravel(x, False) | reduce_or(i, 1, True) | softmax(x, 1, False, True) | sort(x, 0, True)
squeeze(tl.expand_dims(x, 1), 1) | sum(i, 1, True, "int64") | topk(x, 4, 1, False) | umulhi(i, i) | unsqueeze(x, 1)
where(b, x, y) | xor_sum(i, 1, True) | div_rn(x, y)
reduce((x, i), 1, lambda p, q, r, s: (p * r, q - s), True) | associative_scan(i, 0, lambda p, q: p - q, True)
"""
CALLS = [c.strip() for line in _CALLS.strip().split("\n") for c in line.split(" | ")]


def run(call: str) -> Any:
  rng = np.random.default_rng(3)
  floats = [rng.standard_normal((4, 8)).astype(np.float32) for _ in range(2)]
  ints = rng.integers(0, 8, (4, 8)).astype(np.int32)
  program = defined(f"def program(x, y, i, b):\n  return tl.{call}\n")
  with config(dev="NUMPY"): got = tile.apply(program, *floats, ints, floats[0] > 0)
  return [g.tolist() for g in got] if isinstance(got, tuple) else got.tolist()


@pytest.mark.parametrize("call", CALLS)
def test_by_place_and_by_name(call: str) -> None:
  node: Any = ast.parse(call, mode="eval").body
  name, values = node.func.id, [ast.unparse(a) for a in node.args]
  names = list(inspect.signature(getattr(tl, name)).parameters)
  assert len(values) == len(names), f"tl.{name} has {names}"
  want = run(call)
  for k in range(len(names)):   # the first k by place
    named = ", ".join([*values[:k], *[f"{n}={v}" for n, v in zip(names[k:], values[k:])]])
    assert run(f"{name}({named})") == want, f"tl.{name}({named})"


def test_every_function_with_options_has_a_call() -> None:
  there = {c.partition("(")[0] for c in CALLS}
  left = []
  for n, fn in vars(tl).items():
    if n[0] == "_" or not inspect.isfunction(fn) or not fn.__module__.startswith("ntgrad.tile.") or n in there: continue
    parameters = list(inspect.signature(fn).parameters.values())
    if len(parameters) > 1 and all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters): left.append(n)
  assert not set(left) - set(OTHERS), "give a call of each of these"


# effects, hints, and what is the language's own inside
OTHERS = """atomic_add atomic_max atomic_min atomic_xchg atomic_and atomic_or atomic_xor atomic_cas device_assert static_assert
load store put max_constancy max_contiguous multiple_of
swizzle2d sort_bits threefry randbits expand_to plain same one""".split()
