"""Random tensor programs (views, arithmetic, reductions, fuzzed shapes) give what numpy gives."""
from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ntgrad import Tensor, config
from ntgrad.engine.device import default_device
from support.marks import long_after
from support.programs import Program


def wrong(p: Program) -> list[str]:
  out = []
  for k, (t, a) in enumerate(p.values):
    got = t.numpy()
    if got.shape != a.shape or not np.array_equal(got, a): out.append(f"value {k}: {got.tolist()}, numpy has {a.tolist()}")
  return out


X, I = np.arange(1, 7, dtype=np.float32).reshape(2, 3), np.array([1, -1, 0], np.int32)
FOUND = {
  "max of an expanded axis": lambda t, i: (t.unsqueeze(1).expand(2, 4, 3).max(axis=1), X),
  "sum of an expanded axis": lambda t, i: (t.unsqueeze(1).expand(2, 4, 3).sum(1), X * 4),
  "product of an expanded axis": lambda t, i: (t.unsqueeze(1).expand(2, 5, 3).prod(1), X ** 5),
  "sums of gathered, expanded rows": lambda t, i: (t[i].unsqueeze(1).expand(3, 2, 3).sum(1).sum(0), X[I].sum(0) * 2),
  "argmax of gathered rows": lambda t, i: (t[i].argmax(0), X[I].argmax(0)),
  "nothing, padded": lambda t, i: (t[2:].pad(((1, 2), (0, 1))).flip(0).contiguous(), np.zeros((3, 4)))}


@pytest.mark.parametrize("device", ["NUMPY", *(["CPU"] if default_device() == "CPU" else [])])
@pytest.mark.parametrize("name", FOUND)
def test_found_before(name: str, device: str) -> None:
  got, want = FOUND[name](Tensor(X, device=device), Tensor(I, device=device))
  assert np.array_equal(got.numpy(), want)


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
@pytest.mark.parametrize("seed", long_after(3, range(10)))
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
