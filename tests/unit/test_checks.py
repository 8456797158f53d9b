"""Arguments checked by annotations: what comes in, what is refused and how, and that public parameters are checked at all."""
from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Device, Tensor, nn
from ntgrad.codegen.ir.errors import shown
from ntgrad.errors import ArgumentError
from ntgrad.graph.checks import _ELSEWHERE, Ints, _unwritten, checked, with_code


@pytest.fixture(autouse=True)
def _on_numpy() -> Any:
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None


@checked
def take(
  n: int = 0,
  x: float = 0.0,
  yes: bool = False,
  name: str | None = None,
  sizes: Ints = (1, 2),
  pairs: Sequence[tuple[int, int]] = (),
  path: str | os.PathLike[str] = ".",
  fn: Callable[..., Any] = len,
  table: Mapping[str, int] = {},
  items: Iterable[int] = (),  # noqa: B006
  anything: Any = None,
  **rest: Any,
) -> dict[str, Any]:
  return dict(locals())


@checked
class Layer:
  """With a method of each sort."""
  def __init__(self, n: int, *more: float, only: bool = True): self.n, self.more, self.only = n, more, only
  def __call__(self, x: Tensor) -> Any: return x
  @classmethod
  def made(cls, n: int) -> Layer: return cls(n)
  @staticmethod
  def twice(n: int, /) -> int: return 2 * n


@pytest.mark.parametrize(
  "name, given, comes",
  [
    ("n", 3, 3),
    ("n", np.int64(3), 3),
    ("n", np.uint8(3), 3),
    ("n", -(2**63), -(2**63)),
    ("x", 1, 1),
    ("x", np.float32(0.5), 0.5),
    ("x", float("inf"), float("inf")),
    ("yes", np.True_, True),
    ("yes", 1, True),
    ("yes", 0, False),
    ("name", None, None),
    ("name", "a", "a"),
    ("sizes", 3, 3),
    ("sizes", [1, np.int32(2)], (1, 2)),
    ("sizes", np.array([1, 2]), (1, 2)),
    ("sizes", range(2), (0, 1)),
    ("sizes", (), ()),
    ("pairs", [[1, 2], (3, 4)], ((1, 2), (3, 4))),
    ("path", Path("a"), Path("a")),
    ("fn", max, max),
    ("anything", {1}, {1}),
  ],
)
def test_what_comes_in(name: str, given: Any, comes: Any) -> None:
  got = take(**{name: given})[name]
  assert got == comes and type(got) is type(comes)
  if name == "n": assert take(given)["n"] == comes


@pytest.mark.parametrize(
  "name, given, words",
  [
    ("n", 1.0, "n is 1.0; it takes a whole number"),
    ("n", True, "n is True"),
    ("n", None, "n is None"),
    ("n", 2**64, "n is 18446744073709551616"),
    ("n", 10**5000, "n is an int of 16610 bits"),
    ("n", np.ones(3), r"n is an array of float64 of shape \(3,\)"),
    ("x", "1", "x is '1'; it takes a number"),
    ("x", 1j, "x is 1j"),
    ("x", True, "x is True; it takes a number"),
    ("x", np.True_, "x is .*; it takes a number"),
    ("x", 10**400, "x is an int of 1329 bits"),
    ("yes", 2, "yes is 2; it takes True or False"),
    ("yes", "no", "yes is 'no'"),
    ("yes", np.array([True, False]), "yes is an array"),
    ("name", 5, "name is 5; it takes a string or None"),
    ("sizes", 1.5, r"sizes is 1.5; it takes a whole number of up to 64 bits or a list \(each a whole number"),
    ("sizes", (1, None), "sizes is"),
    ("sizes", {1, 2}, "sizes is {1, 2}"),
    ("sizes", "12", "sizes is '12'"),
    ("pairs", ((1, 2, 3),), "pairs is"),
    ("path", "a\0", "path is"),
    ("path", "", "path is ''"),
    ("fn", 5, "fn is 5; it takes a function"),
    ("table", [1], "table is"),
    ("items", 5, "items is 5"),
    ("items", np.array(5), "items is an array"),
  ],
  ids=shown,
)
def test_what_is_refused(name: str, given: Any, words: str) -> None:
  with pytest.raises(ArgumentError, match=f"^take: {words}"): take(**{name: given})


def test_methods() -> None:
  made = Layer(np.int32(1), np.float64(2.0), 3, only=np.False_)
  assert (made.n, made.more, made.only) == (1, (2.0, 3), False) and type(made.n) is int
  assert Layer.made(2).n == 2 and Layer.twice(4) == 8
  for call, words in ((lambda: Layer("a"), "^Layer: n is 'a'"), (lambda: Layer(1, "a"), "^Layer: more is 'a'"),
                      (lambda: Layer(1, only=5), "only is 5"), (lambda: made([1]), "^Layer: x is .* takes a Tensor"),
                      (lambda: Layer.made(1.5), "^made: n is 1.5"),
                      (lambda: Layer.twice(None), "^twice: n is None")):
    with pytest.raises(ArgumentError, match=words): call()  # type: ignore[no-untyped-call]
  for wrong in (lambda: Layer(), lambda: Layer(1, other=2), lambda: Layer.twice(n=2), lambda: Layer.made(1, 2)):
    with pytest.raises(TypeError): wrong()  # type: ignore[no-untyped-call]


def test_the_signature_and_the_name_stay() -> None:
  assert str(inspect.signature(nn.Linear.__init__)) == (
    "(self, in_features: 'int', out_features: 'int', bias: 'bool' = True, *, device: 'str | None' = None, dtype: 'Any' = None)")
  assert Tensor.conv2d.__name__ == "conv2d" and "Convolution" in (Tensor.conv2d.__doc__ or "")
  assert inspect.signature(take).parameters["sizes"].default == (1, 2)


def test_operands_become_tensors_where_the_tensor_is() -> None:
  x, w = Tensor.ones(1, 1, 4, 4, device="NUMPY"), np.ones((1, 1, 2, 2), np.float32)
  for weight in (w, w.tolist(), Tensor(w)): assert x.conv2d(weight).tolist() == [[[[4.0] * 3] * 3]]
  assert x.conv2d(w, stride=np.int64(2), padding=np.array([0, 0])).shape == (1, 1, 2, 2)
  a = Tensor([1.0, 2.0])
  assert a.mse_loss([0.0, 0.0]).item() == 2.5 and a.outer(np.array([1.0, 2.0], np.float32)).shape == (2, 2)
  assert Tensor.einsum("i,i->", a, np.array([3.0, 4.0], np.float32)).item() == 11
  assert Tensor.cat(a, np.zeros(1, np.float32)).tolist() == [1, 2, 0] and Tensor.stack([a, a]).shape == a.stack((a,)).shape == (
    2,
    2,
  )


def test_an_annotation_that_cannot_be_checked_is_no_annotation() -> None:
  def fn(x: dict[str, int] | complex) -> None: ...
  with pytest.raises(TypeError, match="no check for parameters annotated"): with_code(checked(fn))


def test_code_is_written_when_a_function_is_called_first() -> None:
  @checked
  def twice(x: int, dim: int = 1, *rest: float, last: str = "") -> object: return x, dim, rest, last
  @checked
  def anything(x: Any, **more: Any) -> object: return x, more
  assert twice.__code__ is _unwritten.__code__ and "_unwritten" not in anything.__code__.co_name
  assert list(inspect.signature(twice).parameters) == ["x", "dim", "rest", "last"] and twice.__name__ == "twice"
  with ThreadPoolExecutor(8) as pool: found = list(pool.map(lambda n: twice(n, axis=3, last="z"), range(100)))
  assert found == [(n, 3, (), "z") for n in range(100)] and twice.__code__ is not _unwritten.__code__
  with pytest.raises(ArgumentError, match="twice: x is 'a'"): twice("a")
  with pytest.raises(TypeError, match="missing 1 required positional argument"): twice()
  assert twice(np.int8(1), 2, 3.5) == (1, 2, (3.5,), "") and anything(1, y=2) == (1, {"y": 2})


def test_every_public_parameter_of_tensors_and_layers_is_annotated() -> None:
  for cls in (
    Tensor,
    *[getattr(nn, n) for n in nn.__all__ if isinstance(getattr(nn, n), type)],
    *[getattr(nn.optim, n) for n in nn.optim.__all__],
  ):
    for name in [n for n in dir(cls) if n[0] != "_" or n in ("__init__", "__call__")]:
      fn = inspect.getattr_static(cls, name)
      fn = getattr(fn, "__func__", fn)
      if not inspect.isfunction(fn):
        continue
      for p in inspect.signature(fn).parameters.values():
        if p.name in ("self", "cls"):
          continue
        assert p.annotation is not p.empty, f"{cls.__name__}.{name}: {p.name}"
        if p.name not in _ELSEWHERE and p.annotation not in ("Any", "DType | str | None", "DType | str") and name != "__init__":
          assert hasattr(fn, "__wrapped__"), f"{cls.__name__}.{name}: {p.name} is not checked"
      with_code(fn)   # its annotations can be checked


def test_values_are_shown_short() -> None:
  assert shown(10 ** 5000) == "an int of 16610 bits" and len(shown("a" * 1000)) < 80 and len(shown(list(range(1000)))) < 80
  assert shown(np.zeros((1000, 1000))) == "an array of float64 of shape (1000, 1000)" and "16610" in shown(([10 ** 5000],))


def test_the_p_norms() -> None:
  x = Tensor([[3.0, 0.0, -4.0], [0.0, 0.0, 0.0]])
  for p in (0, 1, 2, 3, float("inf"), -float("inf")):
    np.testing.assert_allclose(x.norm(p, axis=1).numpy(), np.linalg.norm(x.numpy(), p, axis=1), rtol=1e-6)
  assert x.norm(0).item() == 2 and x.cast("int32").norm(0, keepdim=True).tolist() == [[2.0]]


def test_a_line_counts_as_the_users_when_it_calls_a_function_first() -> None:
  """In a process of its own: nothing has been called before."""
  code = ("import warnings; from ntgrad import Context, Tensor as T, autocast\n"
          "with Context(ALL_LEAVES=1): print([t.requires_grad for t in (T.rand(2), T.eye(2), T([1.0]).zeros_like())])\n"
          "with warnings.catch_warnings(record=True) as told: warnings.simplefilter('always'); autocast('cpu', 'float32')\n"
          "print(told[0].filename, told[0].lineno)")
  found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
  assert found == ["[True, True, True]", "<string> 3"]
