"""Random programs around sums that are made in one pass: scores, what comes before and after, what else is asked, gradients."""
from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, config
from ntgrad.engine.device import get_device
from support.marks import long_after

BEFORE = [lambda q, k, v: (q, k, v), lambda q, k, v: (q * 1.5, k.tanh(), v), lambda q, k, v: (q, k, v + v.mean(1, keepdim=True)),
          lambda q, k, v: (q, v, v) if k.shape == v.shape else (q.relu(), k, v)]
AFTER = [lambda y: y, lambda y: (y * 2).relu(), lambda y: y + y.sum(-1, keepdim=True), lambda y: y.layer_norm(y.shape[-1:]),
         lambda y: y.permute(1, 0, 2).reshape(y.shape[1], -1).sum(1), lambda y: y * y.exp(),
         lambda y: (y @ y.transpose(-1, -2)).softmax(-1) @ y]
ALSO = [lambda y: [], lambda y: [y], lambda y: [y * 3 + 1, (y * y).sum(1)]]


def scores(r: random.Random, bias: np.ndarray) -> Any:
  rows, columns = [Tensor.arange(n).reshape(*shape) for n, shape in zip(bias.shape, ((-1, 1), (1, -1)))]
  return r.choice([lambda s: s, lambda s: s * 0.3, lambda s: s + Tensor(bias), lambda s: s.tanh(),
                   lambda s: (rows + 2 >= columns).where(s, -math.inf), lambda s: s.masked_fill(rows + 3 < columns, -math.inf)])


def weighed(s: Tensor, v: Tensor, by_hand: bool) -> Tensor:
  if not by_hand: return s.softmax(-1) @ v
  e = (s - s.max(axis=-1, keepdim=True)).exp()
  return e @ v / e.sum(-1, keepdim=True)


@pytest.mark.parametrize("seed", long_after(2, range(40)))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
  """As if a CPU took one pass for few scores; compared with kernels that are not joined and have no Opts."""
  renderer: Any = get_device("CPU").renderer
  monkeypatch.setattr(renderer, "target", replace(renderer.target, least_scores=1 << 10))
  r, draw = random.Random(seed), np.random.default_rng(seed)
  rows, columns, width, values = r.choice((9, 17, 33)), r.choice((9, 17, 33, 40)), r.choice((3, 8)), r.choice((3, 8))
  if r.random() < 0.4: columns, values = rows, width
  arrays = [draw.standard_normal((4, n, w)).astype(np.float32) for n, w in ((rows, width), (columns, width), (columns, values))]
  f = scores(r, draw.standard_normal((rows, columns)).astype(np.float32))
  before, after, also, by_hand, asked = r.choice(BEFORE), r.choice(AFTER), r.choice(ALSO), r.random() < 0.2, r.randrange(3)

  def run() -> list[np.ndarray]:
    inputs = [Tensor(a, requires_grad=True).realize() for a in arrays]
    q, k, v = before(*inputs)
    first = weighed(f(q @ k.transpose(-1, -2)), v, by_hand)
    y = after(first)
    results = [y, *also(first)]
    if asked:
      (y * Tensor(np.random.default_rng(1).standard_normal(y.shape).astype(np.float32))).sum().backward()
      results = [*[t.grad for t in inputs if t.grad is not None], *results * (asked == 2)]
    Tensor.realize(*results)
    return [t.numpy() for t in results]
  found = run()
  with config(noopt=1): plain = run()
  for a, b in zip(found, plain): assert np.allclose(a, b, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(b).max()))
