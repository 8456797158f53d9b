"""Products of float32 that may round their factors to tf32: convolutions where nobody forbids it, others where somebody asks."""
from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, config
from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer
from ntgrad.codegen.choose.bound import work_of
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.ir import TF32, Ops
from ntgrad.codegen.linearizer import linearize
from ntgrad.schedule import schedule_graph


def products(results: Sequence[Tensor]) -> list[str]:
  """How each product of blocks that some tensors need is rounded, and in what its work is counted."""
  kernels = [item.ast for item in schedule_graph([t.lazydata for t in results], TARGET)[1] if item.ast is not None]
  out = []
  for k in kernels:
    counted = {o.dtype for o in work_of(k).operations if o.unit.name == "MATRIX"}
    for found in re.findall(r'input_precision="(\w+)"', TritonRenderer().render("k", linearize(optimize(k, TARGET))).text):
      out.append(found)
      assert counted == {"tf32" if found == "tf32" and not config.allow_tf32 else "float32"}
  return out


def convolutions(device: str = "TRITON", dtype: str = "float32") -> list[Tensor]:
  """A convolution with windows, one without, and the gradients of both."""
  x, w, v = (Tensor.empty(*s, dtype=dtype, device=device, requires_grad=True) for s in (
    (32, 64, 32, 32), (64, 64, 3, 3), (128, 64, 1, 1)))
  y = x.conv2d(w, padding=1).relu().conv2d(v)
  y.sum().backward()
  return [y, x.grad, w.grad, v.grad]   # type: ignore[list-item]


def test_convolutions_and_their_gradients_round() -> None:
  found = products(convolutions())
  assert len(found) >= 4 and {*found} == {"tf32"}


@pytest.mark.parametrize("name", ["backends.cudnn.allow_tf32", "CONV_TF32"])
def test_switched_off(name: str) -> None:
  with config(conv_tf32=1):
    assert ntgrad.backends.cudnn.allow_tf32 is True
    if name == "CONV_TF32": config.conv_tf32 = 0
    else: ntgrad.backends.cudnn.allow_tf32 = False
    assert config.conv_tf32 == 0 and {*products(convolutions())} == {"ieee"}
    with config(allow_tf32=1): assert {*products(convolutions())} == {"tf32"}


def test_others_do_not_round() -> None:
  """Products of matrices, halves, and devices that could not."""
  a, b = Tensor.empty(512, 512, device="TRITON"), Tensor.empty(512, 512, device="TRITON")
  assert products([a @ b]) == ["ieee"]
  for results in (convolutions(dtype="float16"), convolutions(device="NUMPY")):
    assert not any(u.op is Ops.CAST and u.arg == TF32 for t in results for u in t.lazydata.toposort())


def test_a_product_beside_a_convolution_is_exact() -> None:
  """Each product has its own rounding."""
  x, w, m = (Tensor.empty(*s, device="TRITON") for s in ((16, 64, 16, 16), (64, 64, 3, 3), (64, 128)))
  assert sorted(products([x.conv2d(w, padding=1).permute(0, 2, 3, 1) @ m])) == ["ieee", "tf32"]


def test_values_are_what_they_were() -> None:
  """The mark changes nothing where nothing rounds."""
  x, w = (np.random.default_rng(0).standard_normal(s).astype("f4") for s in ((2, 16, 6, 6), (16, 16, 3, 3)))
  results = []
  for device in ("NUMPY", "TRITON"):
    a, b = Tensor(x, device=device, requires_grad=True), Tensor(w, device=device, requires_grad=True)
    (a.conv2d(b, padding=1) ** 2).sum().backward()
    results.append([t.numpy() for t in (a.conv2d(b), a.grad, b.grad)])   # type: ignore[union-attr]
  for u, v in zip(*results): np.testing.assert_allclose(u, v, rtol=2e-5, atol=2e-4)


def test_a_captured_function_sees_the_setting() -> None:
  x, w = Tensor.ones(1, 16, 6, 6, device="TRITON"), Tensor.ones(16, 16, 3, 3, device="TRITON")
  made: list[int] = []
  @ntgrad.jit
  def f(x: Tensor) -> Tensor:
    made.append(config.conv_tf32)
    return x.conv2d(w)
  for setting in (1, 0):
    with config(conv_tf32=setting): f(x)
  assert made == [1, 0]
