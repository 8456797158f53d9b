"""Random tensor programs (views, arithmetic, reductions, fuzzed shapes) give what numpy gives."""
from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ntgrad import Tensor, config
from ntgrad.engine.device import default_device
from support.programs import Program


def wrong(p: Program) -> list[str]:
  out = []
  for k, (t, a) in enumerate(p.values):
    got = t.numpy()
    if got.shape != a.shape or not np.array_equal(got, a): out.append(f"value {k}: {got.tolist()}, numpy has {a.tolist()}")
  return out


@settings(max_examples=150)
@given(data=st.data())
def test_numpy(data: st.DataObject) -> None:
  p = Program(lambda xs: data.draw(st.sampled_from(list(xs))), "NUMPY", data.draw(st.integers(1, 8)), np.random.default_rng(0))
  last = p.values[-1][0]
  last.realize()  # first the newest alone, then those on the way
  assert not (w := wrong(p)), f"{p.said}: {w[0]}"


@settings(max_examples=60)
@given(data=st.data())
def test_gradients_are_adjoints(data: st.DataObject) -> None:
  """f linear: <f(x), w> = <x, gradient>, exactly."""
  rng = np.random.default_rng(0)
  p = Program(lambda xs: data.draw(st.sampled_from(list(xs))), "NUMPY", data.draw(st.integers(1, 8)), rng, linear=True)
  for t, a in p.values[len(p.leaves):]:
    w = rng.integers(-2, 3, a.shape).astype(np.float32)
    total = (t * Tensor(w, device="NUMPY")).sum()
    asked = [x for x, _ in p.leaves if x.lazydata in total.lazydata.toposort()]
    grads = dict(zip(map(id, asked), total.gradient(*asked)))
    for x, g in ((x, grads[id(x)]) for x in asked): assert g.shape == x.shape and g.dtype is x.dtype
    want = sum(float((grads[id(x)].numpy() * b).sum()) for x, b in p.leaves if id(x) in grads)
    assert float((a * w).sum()) == want == total.item(), p.said


@pytest.mark.skipif(default_device() != "CPU", reason="no OpenCL device")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("noopt", [0, 1])
def test_opencl(seed: int, noopt: int) -> None:
  """Ten programs in one schedule, so that their kernels are compiled together."""
  rng = random.Random(seed)
  with config(noopt=noopt):
    programs = [Program(lambda xs: rng.choice(list(xs)), "CPU", 6, np.random.default_rng(k)) for k in range(10)]
    Tensor.realize(*[p.values[-1][0] for p in programs])
    for p in programs:
      t, a = p.values[-1]
      assert np.array_equal(t.numpy(), a), f"{p.said}: {t.tolist()}, numpy has {a.tolist()}"
