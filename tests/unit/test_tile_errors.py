"""What an application cannot do is said in a sentence of ntgrad's, with the line, what the operands are and what to do instead;
what a call cannot take, with the parameter."""
from __future__ import annotations

# ruff: noqa: F841 (assigning a parameter stores)
import math
import traceback
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.errors import ApplicationError, ArgumentError, DeviceError, DTypeError, NtgradError, ShapeError
from ntgrad.tile import Symbol, Tensor

f32 = np.float32
TILE = r"x is a tile of shape \(4,\) of dtypes.float"


def blocks(*xs: Any) -> Any: return tuple(x.tile((4,)) for x in xs)


def ran(fn: Callable[..., None]) -> Any:
  x, y = np.arange(8, dtype=f32), np.zeros(8, f32)
  tile.make(blocks, fn, (Tensor(1), Tensor(1)))(x, y)
  return y


def by_numpy(a: Any) -> Any: return np.exp(a)
def plus(a: Any, b: Any = 1) -> Any: return a + b


def a1(x: Any, y: Any) -> None: y = np.exp(x)
def a2(x: Any, y: Any) -> None: y = math.exp(x)
def a3(x: Any, y: Any) -> None: y = round(x)  # type: ignore[call-overload]
def a4(x: Any, y: Any) -> None: y = ntgrad.exp(x)
def a5(x: Any, y: Any) -> None: y = np.sum(x)
def a6(x: Any, y: Any) -> None: y = x + [1, 2]
def a7(x: Any, y: Any) -> None: y = x < "abc"
def a8(x: Any, y: Any) -> None: y += None
def a9(x: Any, y: Any) -> None: y = tl.exp(x, base=3)  # type: ignore[call-arg]
def b1(x: Any, y: Any) -> None: y = tl.where(x > 0, x)  # type: ignore[call-arg]
def b2(x: Any, y: Any) -> None: y = plus(x, c=3)  # type: ignore[call-arg]
def b3(x: Any, y: Any) -> None: y = x.sum()
def b4(x: Any, y: Any) -> None: y = f"{x:.2f}"
def b5(x: Any, y: Any) -> None: y = (z := x) + 1
def b6(x: Any, y: Any) -> None: y = None
def b7(x: Any, y: Any) -> None: y = [1, 2]
def b8(x: Any, y: Any) -> None: y = by_numpy(x)
def b9(x: Any, y: Any) -> None: y = tl.full((4,), x)
def c1(x: Any, y: Any) -> None: y = ~x
def c2(x: Any, y: Any) -> None: y = [v for v in x.source][0]
def c3(x: Any, y: Any) -> None: y = x * Symbol("n")
def c4(x: Any, y: Any) -> None: y = {1: 2}[3]


def c5(x: Any, y: Any) -> None:
  def f(a: Any) -> Any: return a
  y = f(x, 1)  # type: ignore[call-arg]


def c6(x: Any, y: Any) -> None:
  try: y = x
  except ValueError: pass


def c7(x: Any, y: Any) -> None:
  for _ in 5: y = x  # type: ignore[attr-defined]


def c8(x: Any, y: Any) -> None:
  import nosuchmodule  # type: ignore[import-not-found]  # noqa: F401
  y = x


@pytest.mark.parametrize("fn, message", [
  (a1, f"np.exp takes nothing that a kernel computes; {TILE}; tl.exp is the language's own"), (a2, "math.exp takes nothing that"),
  (a3, f"round takes nothing that a kernel computes; {TILE}; tl.round is"), (a4, "ntgrad.exp takes nothing that.*; tl.exp is"),
  (a5, "np.sum takes nothing that a kernel computes"),
  (a6, rf"x \+ \[1, 2\]: it takes blocks and numbers; {TILE}; \[1, 2\] is a list"),
  (a7, "x < 'abc': it takes blocks and numbers"), (a8, r"y \+= None: it takes blocks and numbers; y is a tile"),
  (a9, r"tl.exp: got an unexpected keyword argument 'base'; it takes \(x\)"), (b1, r"tl.where: missing a required argument: 'y'"),
  (b2, "plus: got an unexpected keyword argument 'c'"), (b3, "x has no 'sum'; it is a tile of .*; tl.sum is the language's own"),
  (b4, "TypeError: unsupported format string"), (b5, "an application has no `:=`"), (b6, "storing into y: .* got NoneType None"),
  (b7, r"storing into y: .* got list \[1, 2\]"), (b9, r"full: one value for all elements, got a block of shape \(4,\)"),
  (c1, "takes ints or bool, got dtypes.float"), (c2, "x.source is a whole tensor"), (c3, "n has no value in this kernel"),
  (c4, "KeyError: 3"), (c5, "f: too many positional arguments"), (c6, "an application has no try statement"),
  (c7, "for _ in 5: TypeError: 'int' object is not iterable"), (c8, "ModuleNotFoundError: No module named 'nosuchmodule'")])
def test_sentences(fn: Callable[..., None], message: str) -> None:
  with pytest.raises(NtgradError, match=message) as e: ran(fn)
  assert f"{__file__}:" in str(e.value) and f"in {fn.__name__}" in str(e.value)


def test_the_line_that_called_is_named_too() -> None:
  with pytest.raises(ApplicationError, match=r"np.exp takes nothing(.|\n)*in by_numpy(.|\n)*called at .*in b8") as e: ran(b8)
  assert isinstance(e.value.__cause__, TypeError)


class Elsewhere:
  """Another library's tensor in the CPU's memory."""
  def __init__(self, a: Any): self.a, self.shape, self.dtype = a, a.shape, a.dtype
  def __dlpack__(self, **given: Any) -> Any: return self.a.__dlpack__(**given)
  def __dlpack_device__(self) -> Any: return self.a.__dlpack_device__()


def test_errors_with_other_libraries_tensors_have_no_others_before_them() -> None:
  def copied(x: Any, y: Any) -> None: y = x
  k = tile.make(blocks, copied, (Tensor(1), Tensor(shape=(8,))))
  for x in (np.zeros(9, f32), Elsewhere(np.zeros(9, f32))):
    with pytest.raises(ShapeError, match="dimension 0 of y is 8") as e: k(x, np.zeros(9, f32))
    assert "another exception" not in "".join(traceback.format_exception(e.value))


def test_what_is_supported() -> None:
  def application(x: Any, y: Any) -> None:
    def every(a: Any, *more: Any, key: Any = 1, **others: Any) -> Any: return a * key + len(more) + others["b"]
    first, *_ = list(every(x, 1, 2, key=np.float32(2), b=3))
    y = every(x, 1, 2, key=np.float32(2), b=3) + first * 0 + len(f"{x.shape!r}") * 0
  assert ran(application).tolist() == [2.0 * i + 5 for i in range(8)]


B = Symbol("B", constexpr=True)
def scaled(x: Any, y: Any, n: Any) -> None: y = x * n
SCALED = tile.make(lambda x, y, n: (x.tile((B,)), y.tile((B,)), n), scaled, (Tensor(1), Tensor(1, dtype="float32"), Tensor(0)))
X = np.arange(8, dtype=f32)


def memory(device: str) -> Any: return ntgrad.Tensor(X, device=device).realize()


@pytest.mark.parametrize("kind, message, args, given", [
  (ArgumentError, r"takes 3 arguments \(x, y, n\), got 1", (X,), {"B": 4}), (ArgumentError, "got 4", (X, X, 2, 3), {"B": 4}),
  (ArgumentError, "no value for B", (X, X, 2), {}), (ArgumentError, "no compile-time value 'C'", (X, X, 2), {"B": 4, "C": 1}),
  (ArgumentError, r"B is an int, got \[4\]", (X, X, 2), {"B": [4]}),
  (ArgumentError, "B is an int, got True", (X, X, 2), {"B": True}),
  (ArgumentError, r"x: \[1, 2\] is no argument", ([1, 2], X, 2), {"B": 4}),
  (ArgumentError, "y: 'abc' is no argument", (X, "abc", 2), {"B": 4}),
  (ArgumentError, "n: None is no argument", (X, X, None), {"B": 4}),
  (ArgumentError, "n: 2j is no argument", (X, X, 2j), {"B": 4}),
  (ShapeError, r"x has 1 dimensions, got a tensor of shape \(1, 8\)", (X[None], X, 2), {"B": 4}),
  (DTypeError, "y has elements of dtypes.float, got a tensor of dtypes.double", (X, X.astype(float), 2), {"B": 4}),
  (DTypeError, "x: no dtype 'complex128'", (X.astype(complex), X, 2), {"B": 4}),
  (DTypeError, "x: no dtype 'object'", (X.astype(object), X, 2), {"B": 4})])
def test_arguments(kind: type[NtgradError], message: str, args: Any, given: Any) -> None:
  with pytest.raises(kind, match="scaled: (.*)" + message): SCALED(*[a.copy() if a is X else a for a in args], **given)


def test_devices() -> None:
  with pytest.raises(DeviceError, match="scaled: x is on CPU and y is on NUMPY"): SCALED(memory("CPU"), memory("NUMPY"), 2, B=4)


def test_what_is_no_application() -> None:
  def several(x: Any, *rest: Any, **more: Any) -> None: x = 1
  with pytest.raises(ArgumentError, match=r"make: several takes \*rest.* and \*\*more.*; an application has a name for each"):
    tile.make(blocks, several, (Tensor(1),) * 3)
  with pytest.raises(ArgumentError, match="(?s)make: wrong: AttributeError: 'Tensor' object has no attribute 'foo'.*in wrong"):
    def wrong(x: Any, y: Any) -> Any: return x.foo, y
    tile.make(wrong, a1, (Tensor(1),) * 2)
  def keywords(x: Any, *, y: Any) -> None: y = x + 1
  assert ran(keywords).tolist() == [i + 1.0 for i in range(8)]
