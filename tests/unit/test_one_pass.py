"""Sums of what is shifted by a statistic of the same elements, made in parts: their values, and that memory is read once."""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from ntgrad import Device, Tensor, config
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.kernel import Kernel
from ntgrad.schedule import schedule_graph, sinks_of
from support import triton
from support.marks import long_where

GPU = Target("triton", cores=132, blocks=True, cache=50 << 20, bandwidth=4e12)


def kernels(t: Tensor) -> list[Kernel]: return [i.ast for i in schedule_graph(sinks_of([t]), GPU)[1] if i.ast is not None]
def passes(t: Tensor, *shape: int) -> int:
  """How many kernels read all of an input."""
  return sum(not p.written and p.shape == shape for k in kernels(t) for p in k.params)


@pytest.mark.parametrize("shape, compute, read", [
  ((8192, 50257), lambda x: x.logsumexp(1), 1),
  ((8192, 50257), lambda x: x.softmax(1), 2),
  ((8192, 8192), lambda x: x.logsumexp(0), 1),
  ((8192, 8192), lambda x: x.var(0), 1),
  ((64, 256, 56, 56), lambda x: x.std((0, 2, 3)), 1),
  ((16, 1 << 20), lambda x: x.var(1), 1),
])
def test_memory_is_read_once(shape: tuple[int, ...], compute: Callable[[Tensor], Tensor], read: int) -> None:
  assert passes(compute(Tensor.empty(*shape)), *shape) == read


def test_noopt_leaves_both_passes() -> None:
  with config(noopt=1): assert passes(Tensor.empty(8192, 50257).logsumexp(1), 8192, 50257) == 1   # both sums
  with config(noopt=1): assert [len(k.reduces) for k in kernels(Tensor.empty(8192, 8192).softmax(0))][0] == 2


def test_what_stays_in_registers_is_not_cut() -> None:
  assert [len(k.reduces) for k in kernels(Tensor.empty(16384, 8192).softmax(1))] == [2]


# ---- values: by Triton's interpreter, with parts of few elements

@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> Any:
  """The interpreter's device, as if programs had room for 32 elements and there was no cache."""
  with triton.installed():
    from ntgrad.backends.cuda.interpreter import InterpreterDevice
    from ntgrad.engine import device as devices
    device = InterpreterDevice()
    device.renderer.target = replace(device.renderer.target, row=32, line=16, cache=1)
    monkeypatch.setitem(devices._open, triton.NAME, device)
    monkeypatch.setattr(Device, "assigned", triton.NAME)
    yield device


def computed(fn: Callable[[Tensor], Tensor], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
  with np.errstate(all="ignore"): return fn(Tensor(x)).numpy()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_values(little: Any, data: Any) -> None:
  shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 7, 40, 61, 100]), min_size=1, max_size=3)))
  assume(math.prod(shape) <= 700)
  axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
  rng = np.random.default_rng(data.draw(st.integers(0, 99)))
  x = (rng.standard_normal(shape) * 10 + data.draw(st.sampled_from([0, 50]))).astype(np.float32)
  wide = x.astype(np.float64)
  most = wide.max(axes, keepdims=True)
  total = np.exp(wide - most).sum(axes, keepdims=True)
  np.testing.assert_allclose(computed(lambda t: t.logsumexp(axes), x), (np.log(total) + most).squeeze(axes), rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(computed(lambda t: t.var(axes, correction=0), x), wide.var(axes), rtol=1e-4, atol=1e-5)
  if len(axes) == 1: np.testing.assert_allclose(computed(lambda t: t.softmax(axes[0]), x), np.exp(wide - most) / total, rtol=1e-4,
                                                atol=1e-6)


@pytest.mark.parametrize("at, value", [(0, -math.inf), (70, -math.inf), (70, math.inf), (3, math.nan)])
@pytest.mark.parametrize("rest", ["normal", "-inf"])
def test_infinities(little: Any, at: int, value: float, rest: str) -> None:
  """Parts without finite elements, and rows without any, give what one pass after another gives."""
  x = np.random.default_rng(0).standard_normal((3, 101)).astype(np.float32) - 200
  if rest == "-inf": x[1] = -math.inf
  x[1, 32:64] = -math.inf
  x[1, at] = value
  def plain(how: Callable[[Tensor], Tensor]) -> np.ndarray[Any, Any]:
    return how(Tensor(x, device="NUMPY")).numpy()
  with np.errstate(all="ignore"):
    for how in (lambda t: t.logsumexp(1), lambda t: t.softmax(1)):
      np.testing.assert_allclose(computed(how, x), plain(how), rtol=1e-5)


def test_a_part_of_negative_infinities_beside_very_negative_elements(little: Any) -> None:
  """The sum of such a part is 0, and its correction may not be infinite: 0 * exp(0 + 200) would be NaN."""
  x = np.random.default_rng(0).standard_normal((2, 320)).astype(np.float32) - 200
  x[:, 64:200] = -math.inf
  kept = np.where(np.isinf(x), -np.inf, x).astype(np.float64)
  most = kept.max(1, keepdims=True)
  want = np.log(np.exp(kept - most).sum(1)) + most[:, 0]
  np.testing.assert_allclose(computed(lambda t: t.logsumexp(1), x), want, rtol=1e-6)
  np.testing.assert_allclose(computed(lambda t: t.softmax(1), x), np.exp(kept - want[:, None]), rtol=1e-4)


def weighted(x: Tensor, w: Tensor) -> Tensor:
  """The mean of w with the weights of a softmax, written out by hand: two sums with one shift."""
  e = (x - x.max(axis=1, keepdim=True)).exp2()
  return (e * w).sum(1) / e.sum(1)


def test_weighted_sums_read_memory_once() -> None:
  x, w = Tensor.empty(8192, 50257), Tensor.empty(8192, 50257)
  assert passes(weighted(x, w), *x.shape) == 2   # x and w


@pytest.mark.parametrize("shape", [(3, 320), (2, 331), (1, 100)])
def test_weighted_sums(little: Any, shape: tuple[int, int]) -> None:
  rng = np.random.default_rng(0)
  x, w = (rng.standard_normal(shape).astype(np.float32) * 9 - 200 for _ in range(2))
  x[0, 40:90] = -math.inf
  e = np.exp2(x.astype(np.float64) - x.max(1, keepdims=True))
  np.testing.assert_allclose(computed(lambda t: weighted(t, Tensor(w)), x), (e * w).sum(1) / e.sum(1), rtol=1e-5)


# ---- what an index chooses

def test_the_logit_of_a_class_is_read_alone() -> None:
  """A sum that leaves one element is no pass over all of them."""
  loss = Tensor.empty(8192, 50257).cross_entropy(Tensor.empty(8192, dtype="int32"))
  assert [len(k.reduces) for k in kernels(loss)] == [2, 2, 1]   # of parts, of the parts of a row, of all rows


@long_where(lambda device: device != "NUMPY")
@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_chosen_elements(device: str, data: Any) -> None:
  """Sums of what is equal to an index, wherever that lies, beside sums of everything."""
  n, m = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 40))
  kind = data.draw(st.sampled_from(["int32", "int64", "uint8", "int8"]))
  rng = np.random.default_rng(data.draw(st.integers(0, 99)))
  x, i = rng.standard_normal((n, m)).astype(np.float32), rng.integers(0, m + 3, n).astype(kind) - data.draw(st.integers(0, 2))
  i = i.astype(kind)
  t, at = Tensor(x, device=device), Tensor(i, device=device)
  equal = np.arange(m)[None].astype(kind) == i[:, None]
  chosen = Tensor.arange(m, device=device).cast(kind).reshape(1, m) == at.reshape(n, 1)
  np.testing.assert_allclose(chosen.where(t, 0.0).sum(1).numpy(), np.where(equal, x, 0).sum(1), rtol=1e-6)
  np.testing.assert_allclose(chosen.where(t, 0.0).sum().numpy(), np.where(equal, x, 0).sum(), rtol=1e-5, atol=1e-6)
  off = x - x.mean(1, keepdims=True)
  np.testing.assert_allclose(chosen.where(t - t.mean(1, keepdim=True), 0.0).sum(1).numpy(), np.where(equal, off, 0).sum(1),
                             rtol=1e-4, atol=1e-6)


def test_numbers_that_wrap_are_met_several_times() -> None:
  """300 classes in a byte: 44 of them have the same number as others, and all count."""
  x = np.random.default_rng(0).standard_normal((3, 300)).astype(np.float32)
  i = np.array([1, 43, 255], np.uint8)
  chosen = Tensor.arange(300).cast("uint8").reshape(1, 300) == Tensor(i).reshape(3, 1)
  want = np.where(np.arange(300).astype(np.uint8)[None] == i[:, None], x, 0).sum(1)
  np.testing.assert_allclose(chosen.where(Tensor(x), 0.0).sum(1).numpy(), want, rtol=1e-6)
