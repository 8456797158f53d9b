"""Functions of values that are rounded to 16 bits: Triton kernels use the chip's instructions for them, and for no others."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer
from ntgrad.engine.compile import program_spec
from ntgrad.schedule import schedule_graph, sinks_of
from support.triton import NAME, needs_triton

GPU: Any = SimpleNamespace(name="CUDA", renderer=TritonRenderer(replace(TARGET, cores=132)))


def sources(*tensors: Tensor) -> list[str]:
  items = schedule_graph(sinks_of(tensors), GPU.renderer.target)[1]
  return [program_spec(i.ast, GPU)[0].source.text for i in items if i.ast is not None]


def test_what_is_rounded_and_what_is_seen() -> None:
  """A softmax that also stores its sums: their exponentials are exact, the quotient that is rounded is not."""
  x = Tensor.empty(64, 256, dtype="bfloat16").cast("float32")
  e = (x - x.max(axis=1, keepdim=True)).exp()
  total = e.sum(1, keepdim=True)
  source, = sources((e / total).cast("bfloat16"), total)
  assert "div_rn" not in source and "libdevice.exp" in source
  source, = sources((e / total).cast("bfloat16"))
  assert "div_rn" not in source and "tl.exp(" in source
  source, = sources(e / total)
  assert "div_rn" in source and "libdevice.exp" in source


def test_what_decides_is_exact() -> None:
  """A value that is compared is exact though only a 16-bit choice is stored; what is rounded on the way to it is not."""
  x, y = Tensor.empty(64), Tensor.empty(64)
  assert "libdevice.tanh" in sources((x.tanh() < y).where(x, y).cast("float16"))[0]
  assert "_short_tanh" in sources(x.tanh().cast("float16"))[0] and "libdevice.tanh" in sources(x.tanh())[0]


@needs_triton
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tanh_of_16_bits(dtype: str) -> None:
  """Within a unit in the last place, also near zero and where it is 1."""
  signs = np.concatenate([np.geomspace(1e-4, 40, 3000), [0.0, np.inf, 1e-7]])
  x = np.concatenate([signs, -signs, [np.nan]]).astype(np.float32)
  got = Tensor(x, device=NAME).tanh().cast(dtype).cast("float32").numpy().astype(np.float64)
  want = np.tanh(x.astype(np.float64))
  bits = 10 if dtype == "float16" else 7
  ulp = np.maximum(2.0 ** (np.floor(np.log2(np.maximum(np.abs(want), 1e-30))) - bits), 2.0 ** -24 if bits == 10 else 0)
  assert np.isnan(got[-1]) and (np.abs(got - want) <= ulp)[:-1].all()
