"""Products of odd sizes over padded rows, copies and what kernels store, compute what numpy does: views, gradients, epilogues,
every dtype that blocks are multiplied in."""
from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ntgrad import Tensor, config
from ntgrad.backends.cuda.renderer import TARGET
from ntgrad.schedule import copied_factors, padded_rows, schedule_graph, sinks_of
from support.marks import long
from support.triton import NAME, needs_triton

pytestmark = needs_triton
CHIP = replace(TARGET, bandwidth=4.2e12)   # an H200
ODD = (17, 19, 23, 25, 31, 33, 35)


@contextmanager
def eager() -> Iterator[None]:
  """Every factor that may be copied is, however small."""
  # sizes that change have rows as long as they are
  with config(dynamic="never"), pytest.MonkeyPatch.context() as patch:
    patch.setattr(copied_factors, "_LARGE", 0)
    patch.setattr(padded_rows, "_MOST", 1.0)
    patch.setattr(copied_factors, "worth_copying", lambda work, sizes, target: tuple(n > 0 for n in sizes))
    yield


def widest(*tensors: Tensor) -> set[int]:
  """The longest rows of all buffers, of which the graph's are odd."""
  items = schedule_graph(sinks_of(tensors), CHIP)[1]
  return {n for i in items if i.ast is not None for p in i.ast.params for n in p.shape if isinstance(n, int)}


def numbers(shape: tuple[int, ...], seed: int, dtype: str) -> np.ndarray:
  rng = np.random.default_rng(seed)
  return rng.integers(-9, 9, shape).astype(np.int8) if dtype == "int8" else rng.standard_normal(shape).astype(np.float32)


def check(program: Any, arrays: list[np.ndarray], dtype: str, wrt: bool) -> None:
  """A program on the device against the same on numpy's."""
  def results(device: str) -> list[np.ndarray]:
    xs = [Tensor(a, device=device, dtype=None if dtype == "int8" else dtype).realize() for a in arrays]
    for x in xs: x.requires_grad = wrt
    out = program(*xs)
    outs = [out, *(out.cast("float32") * out.cast("float32")).sum().gradient(*xs)] if wrt else [out]
    Tensor.realize(*outs)
    return [t.cast("float32").numpy() for t in outs]
  with eager(): got = results(NAME)
  tolerance = {"float64": 1e-6, "float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2, "int8": 0}[dtype]
  for x, y in zip(got, results("NUMPY")): assert np.abs(x - y).max() <= tolerance * max(np.abs(y).max(), 1), (x.shape, dtype)


@long
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_products(data: Any) -> None:
  """Of matrices as they are, transposed, batched, and slices; with what follows the product, and a second one."""
  draw = data.draw
  m, k, n, q = (draw(st.sampled_from((*ODD, 32))) for _ in range(4))
  dtype = draw(st.sampled_from(("float32", "float16", "bfloat16", "int8", "float64")))
  batch = draw(st.sampled_from(((), (), (3,))))
  turned = draw(st.booleans()), draw(st.booleans())
  cut, flat = draw(st.booleans()), draw(st.booleans())   # flat: among others in one buffer
  after = draw(st.sampled_from(("", "bias", "relu", "softmax", "second", "normed"))) if dtype != "int8" else ""
  a, b = [(*batch, *(s[::-1] if t else s)) for s, t in zip(((m + cut, k), (k, n)), turned)]
  arrays = [numbers(s, i, dtype) for i, s in enumerate((a, (3 + math.prod(b),) if flat else b, (n,), (n, q)))]
  def program(*xs: Tensor) -> Tensor:
    x, y, bias, w = xs
    if flat: y = y[3:].reshape(*b)
    if turned[0]: x = x.transpose(-1, -2)
    if turned[1]: y = y.transpose(-1, -2)
    out = (x[..., 1:, :] if cut else x) @ y
    if dtype == "int8": return out
    if after == "relu": out = out.relu() * 2
    if after == "softmax": out = out.softmax(-1)
    if after == "normed": out = out.layernorm()
    return out @ w + bias.sum() if after in ("second", "softmax", "normed") else out + bias + w.sum()
  used = arrays[:2] if dtype == "int8" else arrays
  check(program if dtype != "int8" else lambda x, y: program(x, y, x, y), used, dtype, dtype == "float32" and draw(st.booleans()))


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_convolutions(data: Any) -> None:
  draw = data.draw
  n, i, o = 2, draw(st.sampled_from(ODD)), draw(st.sampled_from(ODD))
  h, w, r = draw(st.integers(3, 7)), draw(st.integers(3, 7)), draw(st.sampled_from((1, 3)))
  options = dict(padding=draw(st.integers(0, r // 2)), stride=draw(st.integers(1, 2)))
  dtype = draw(st.sampled_from(("float32", "bfloat16")))
  arrays = [numbers(s, j, dtype) for j, s in enumerate(((n, i, h, w), (o, i, r, r), (i, o, 1, 1)))]
  deep = draw(st.booleans())
  def program(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    y = x.conv2d(a, **options)
    return y.relu().conv2d(b) if deep else y + b.sum()
  check(program, arrays, dtype, dtype == "float32" and draw(st.booleans()))


def test_what_is_padded() -> None:
  """The caller's factors where that pays, what kernels store as factors always; nothing with NOOPT=1, nor on other targets."""
  def half(*shape: int) -> Tensor: return Tensor.empty(*shape, dtype="bfloat16")
  assert {1024, 512} <= widest(half(4097, 1001) @ half(1001, 511))
  assert {1024, 32}.isdisjoint(widest(half(16, 1001) @ half(1001, 31)))
  x = half(2048, 1000) @ half(1000, 511)
  assert 512 in widest(x.relu() @ half(511, 512)[:, :64])
  with config(noopt=1): assert {1024, 512}.isdisjoint(widest(half(4097, 1001) @ half(1001, 511)))
