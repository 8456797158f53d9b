"""``print`` of a Tensor computes and shows its values, in PyTorch's layout; ``repr`` computes nothing."""
from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, config, dtypes, jit, nn
from ntgrad.engine.device import Device
from ntgrad.errors import ArgumentError, CaptureError, ShapeError
from ntgrad.helpers import GlobalCounters

INF, NAN = math.inf, math.nan

# what PyTorch prints of the same values
TEXTS: list[tuple[Any, str, str]] = [
  ([[1.0, 2.5], [3.0, 4.0]], "float32", "tensor([[1.0000, 2.5000],\n        [3.0000, 4.0000]])"),
  ([1.0, -2.0, 30.0], "float32", "tensor([ 1., -2., 30.])"),
  (1.5, "float32", "tensor(1.5000)"),
  (7, "int32", "tensor(7)"),
  ([[-1, 20]], "int32", "tensor([[-1, 20]])"),
  ([-1, 20], "int64", "tensor([-1, 20])"),
  ([1, 200], "uint8", "tensor([  1, 200], dtype=torch.uint8)"),
  ([True, False], "bool", "tensor([ True, False])"),
  ([0.5], "float64", "tensor([0.5000], dtype=torch.float64)"),
  ([0.1, 2.0], "float16", "tensor([0.1000, 2.0000], dtype=torch.float16)"),
  ([0.1, 2.0], "bfloat16", "tensor([0.1001, 2.0000], dtype=torch.bfloat16)"),
  ([0.1, 2.0], "float8_e4m3", "tensor([0.1016, 2.0000], dtype=torch.float8_e4m3fn)"),
  ([1e-5, 1.0], "float32", "tensor([1.0000e-05, 1.0000e+00])"),
  ([1.0, 1000.0], "float32", "tensor([   1., 1000.])"),
  ([1.0, 1001.0], "float32", "tensor([1.0000e+00, 1.0010e+03])"),
  ([2e8], "float32", "tensor([2.0000e+08])"),
  ([0.5, NAN, INF, -INF], "float32", "tensor([0.5000,    nan,    inf,   -inf])"),
  ([1.0, NAN, -INF], "float32", "tensor([1., nan, -inf])"),
  ([0.0, -0.0, NAN], "float32", "tensor([0., -0., nan])"),
  ([], "float32", "tensor([])"),
  ([], "bool", "tensor([], dtype=torch.bool)"),
  (np.zeros((0, 3)), "float32", "tensor([], size=(0, 3))"),
  (np.zeros((2, 0)), "int32", "tensor([], size=(2, 0), dtype=torch.int32)"),
  (np.arange(8).reshape(2, 2, 2), "int32", "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]])"),
  (np.arange(1001), "int32", "tensor([   0,    1,    2,  ...,  998,  999, 1000])"),
  (np.arange(2000).reshape(1000, 2), "int32",
   "tensor([[   0,    1],\n        [   2,    3],\n        [   4,    5],\n        ...,\n"
   "        [1994, 1995],\n        [1996, 1997],\n        [1998, 1999]])"),
  (np.arange(20) / 4, "float32",
   "tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000, 1.2500, 1.5000, 1.7500, 2.0000,\n"
   "        2.2500, 2.5000, 2.7500, 3.0000, 3.2500, 3.5000, 3.7500, 4.0000, 4.2500,\n        4.5000, 4.7500])"),
]


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
  ntgrad.set_printoptions(profile="default")
  yield
  ntgrad.set_printoptions(profile="default")


@pytest.mark.parametrize("values, dtype, text", TEXTS)
def test_texts(values: Any, dtype: str, text: str) -> None: assert str(Tensor(values, dtype=dtype)) == text


def test_it_computes(capsys: pytest.CaptureFixture[str]) -> None:
  """What was printed is computed, and stays; a list shows what ``repr`` shows, and computes nothing."""
  t, u = Tensor([1.0, 2.0]).realize() + 1, Tensor([3.0]).realize() * 2
  print(t, [u])
  said = capsys.readouterr().out
  assert said.startswith("tensor([2., 3.]) [<Tensor (1,) float32") and said.endswith("not computed>]\n")
  before = GlobalCounters.kernel_count
  assert str(t) == f"{t}" == "tensor([2., 3.])" and "[2., 3.]" in repr(t) and "not computed" in repr(u)
  assert GlobalCounters.kernel_count == before


def test_what_stands_behind_the_values() -> None:
  leaf = Tensor([1.0], requires_grad=True)
  assert str(leaf) == str(nn.Parameter(Tensor([1.0]))) == str(leaf * 1) == "tensor([1.], requires_grad=True)"
  with Tensor.no_grad(): assert str(leaf * 2) == "tensor([2.])"
  for device in ("CPU", "NUMPY"):
    said = "" if device == Device.DEFAULT else f", device='{device.lower()}'"
    assert str(Tensor([1.0], device=device)) == f"tensor([1.]{said})"
  long = str(Tensor(np.full(5, 0.25), requires_grad=True))
  assert long == ("tensor([0.2500, 0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64,\n       requires_grad=True)")
  assert str(Tensor([[1.0]]).named("a", "b")) == "tensor([[1.]])"
  defaults = dtypes.default_float, dtypes.default_int
  dtypes.default_float, dtypes.default_int = "float64", "int16"   # type: ignore[assignment] # names are taken
  try:
    assert str(Tensor([0.5])) == "tensor([0.5000])" and str(Tensor([1])) == "tensor([1])"
    assert str(Tensor([1], dtype="int32")) == "tensor([1], dtype=torch.int32)"
  finally: dtypes.default_float, dtypes.default_int = defaults


def test_of_many_elements_the_edges_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
  from ntgrad.tensor import printing
  x = Tensor.arange(40 * 50 * 3).reshape(40, 50, 3).flip(0)
  want, copied = str(x), []
  monkeypatch.setattr(printing, "WHOLE", 1000)
  numpy = Tensor.numpy
  def noted(self: Tensor) -> Any:
    copied.append(self.numel())
    return numpy(self)
  monkeypatch.setattr(Tensor, "numpy", noted)
  assert str(x) == want and want.startswith("tensor([[[5850, 5851, 5852],\n") and copied == [6 * 6 * 3]


def test_views_and_subclasses() -> None:
  class Mine(Tensor): pass
  x = Tensor.arange(6).reshape(2, 3)
  assert str(x.T[1:]) == "tensor([[1, 4],\n        [2, 5]])" and str(Mine([1]).data) == str(Mine([1])) == "tensor([1])"
  assert str(Tensor([2.0]).expand(2, 2)) == "tensor([[2., 2.],\n        [2., 2.]])"
  x[0, 0] = 9
  assert str(x[0]) == "tensor([9, 1, 2])"


def test_formats() -> None:
  assert f"{Tensor(0.25)} {Tensor(0.25):.3f} {Tensor([0.25]):.1e} {Tensor([0.25])}" == "0.25 0.250 2.5e-01 tensor([0.2500])"
  assert f"{Tensor(7):04d} {Tensor(True)} {str(Tensor(7))}" == "0007 True tensor(7)"
  with pytest.raises(ShapeError, match="takes one element"): f"{Tensor([1.0, 2.0]):.2f}"


@pytest.mark.parametrize("given, text", [
  ({"precision": 2}, "tensor([0.33, 0.67])"), ({"sci_mode": True}, "tensor([3.3333e-01, 6.6667e-01])"),
  ({"threshold": 1, "edgeitems": 0}, "tensor([...], size=(2,))"), ({"linewidth": 16}, "tensor([0.3333,\n        0.6667])"),
  ({"profile": "short"}, "tensor([0.33, 0.67])"), ({"profile": "short", "precision": 1}, "tensor([0.3, 0.7])")])
def test_options(given: dict[str, Any], text: str) -> None:
  before = np.get_printoptions()
  ntgrad.set_printoptions(**given)
  assert str(Tensor([1 / 3, 2 / 3])) == text
  assert np.get_printoptions() == before


def test_options_of_summaries() -> None:
  ntgrad.set_printoptions(threshold=4, edgeitems=1)
  assert str(Tensor.arange(5)) == "tensor([0,  ..., 4])" and str(Tensor.arange(4)) == "tensor([0, 1, 2, 3])"
  ntgrad.set_printoptions(sci_mode=False, threshold=math.inf)
  assert str(Tensor([1e-5, 1.0])) == "tensor([0.0000, 1.0000])"
  assert "..." not in str(Tensor.zeros(1001))
  ntgrad.set_printoptions()   # sci_mode is as the values ask again
  assert "e-05" in str(Tensor([1e-5, 1.0]))
  for wrong in ({"profile": "long"}, {"precision": -1}, {"threshold": NAN}, {"linewidth": "wide"}):
    with pytest.raises(ArgumentError, match="set_printoptions"): ntgrad.set_printoptions(**wrong)   # type: ignore[arg-type]


def test_a_captured_function_does_not_print(capsys: pytest.CaptureFixture[str]) -> None:
  @jit
  def step(x: Tensor) -> Tensor:
    y = x * 2
    print(y)
    return y
  step(Tensor([1.0]).realize())   # it runs plainly the first time
  assert capsys.readouterr().out == "tensor([2.])\n"
  said = r"^jit step: a tensor of shape \(1,\) is printed at test_printing.py:\d+ while the function is captured, where it has "
  with pytest.raises(CaptureError, match=said + "no values; return the tensor and print it after the call$"):
    step(Tensor([2.0]).realize())
  @jit
  def shown(x: Tensor) -> Tensor:
    assert "not computed" in repr(y := x * 2)
    return y
  for i in range(3): assert str(shown(Tensor([float(i)]).realize())) == f"tensor([{2 * i}.])"
  assert re.search(r"<Tensor \(1,\)", repr(shown(Tensor([1.0]).realize())))
  with config(jit=0): step(Tensor([1.0]).realize())
  assert capsys.readouterr().out == "tensor([2.])\n"
