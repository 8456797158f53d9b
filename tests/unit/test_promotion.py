"""The dtypes of results: the tables of docs/numbers.md, and PyTorch's where it is installed, for all pairs of dtypes, of tensors
with dimensions and without, and of numbers."""
from __future__ import annotations

import importlib
import importlib.util
import itertools
import re
import warnings
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, array_api, dtypes
from ntgrad.codegen.ir.dtype import DType
from ntgrad.codegen.ir.uop import Ops, toposort
from ntgrad.errors import NtgradError

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "numbers.md").read_text()


@pytest.fixture(autouse=True)
def _on_numpy() -> Any:
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None


# ---- the page

def table(head: str) -> list[list[str]]:
  """The rows of a table of the page, whose first line begins with ``head``."""
  lines = PAGE[PAGE.index(f"\n{head}") + 1:].split("\n\n")[0].split("\n")
  return [[c.strip() for c in line.strip("|").split("|")] for line in lines[:1] + lines[2:]]


def test_the_table_of_pairs() -> None:
  head, *rows = table("| | bool |")
  assert [r[0] for r in rows] == head[1:] and len(head) == 14
  for a, *cells in rows:
    for b, cell in zip(head[1:], cells):
      if not cell: continue
      for pair in ((a, b), (b, a)):
        x, y = [Tensor([1], dtype=d) for d in pair]
        assert ntgrad.promote_types(*pair).name == ntgrad.result_type(x, y).name == (x * y).dtype.name == cell, pair
        assert Tensor([True]).where(x, y).dtype.name == x.cat(y).dtype.name == cell, pair
        assert (Tensor(1, dtype=pair[0]) * Tensor(1, dtype=pair[1])).dtype.name == cell, pair


def examples() -> list[tuple[str, str]]:
  """An expression of the page, and the dtype that it has."""
  out = []
  for code, names, _ in table("| expression | dtype |")[1:]:
    each, said = re.findall(r"`([^`]+)`", code), names.split(", ")
    assert len(each) == len(said), code
    out += zip(each, said)
  return out


@pytest.mark.parametrize("code, dtype", examples())
def test_examples_of_the_page(code: str, dtype: str) -> None:
  of = {name: Tensor([1, 2]).cast(d) for name, d in
        {"b": "bool", "i8": "int8", "u8": "uint8", "u32": "uint32", "u64": "uint64", "f16": "float16", "f32": "float32"}.items()}
  assert eval(code, {"Tensor": Tensor, "xp": array_api, "m8": Tensor([[1, 2], [3, 4]], dtype="int8"), **of}).dtype.name == dtype


# ---- PyTorch

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
NUMBERS = (True, 2, 2.5)
OF_TWO: dict[str, Callable[[Any, Any, Any], Any]] = {   # of the library and two operands
  "result_type": lambda L, a, b: L.result_type(a, b),
  "+": lambda L, a, b: a + b, "*": lambda L, a, b: a * b, "/": lambda L, a, b: a / b, "//": lambda L, a, b: a // b,
  "%": lambda L, a, b: a % b, "**": lambda L, a, b: a ** b, "&": lambda L, a, b: a & b, "<<": lambda L, a, b: a << b,
  "==": lambda L, a, b: a == b, "where": lambda L, a, b: L.where(L.tensor([True, False]), a, b),
  **{n: (lambda L, a, b, n=n: getattr(L, n)(a, b)) for n in (
    "maximum", "fmax", "fmod", "atan2", "hypot", "copysign", "logaddexp", "nextafter", "xlogy", "ldexp", "floor_divide",
    "remainder", "rsub", "float_power", "isin", "outer", "kron", "dot", "heaviside", "logical_and")},
  "clamp": lambda L, a, b: L.clamp(a, min=b, max=b), "clamp_min": lambda L, a, b: L.clamp(a, min=b),
  "lerp": lambda L, a, b: L.lerp(a, a, b), "lerp to": lambda L, a, b: L.lerp(a, b, .5),
  "sub alpha": lambda L, a, b: L.sub(a, b, alpha=2),
  "div trunc": lambda L, a, b: L.div(a, b, rounding_mode="trunc"), "cat": lambda L, a, b: L.cat([a, b]),
  "stack": lambda L, a, b: L.stack([a, b]), "einsum": lambda L, a, b: L.einsum("i,i->i", a, b),
  "masked_fill": lambda L, a, b: L.masked_fill(a, L.tensor([True, False]), b), "index_put": lambda L, a, b:
    a.index_put((L.tensor([0]).long(),), b), "+=": lambda L, a, b: a.__iadd__(b), "*=": lambda L, a, b: a.__imul__(b),
  "/=": lambda L, a, b: a.__itruediv__(b), "**=": lambda L, a, b: a.__ipow__(b), "&=": lambda L, a, b: a.__iand__(b),
  "add_": lambda L, a, b: a.add_(b), "copy_": lambda L, a, b: a.copy_(b)}
OF_THREE: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
  "addcmul": lambda L, a, b, c: L.addcmul(a, b, c), "addcdiv": lambda L, a, b, c: L.addcdiv(a, b, c),
  "clamp": lambda L, a, b, c: L.clamp(a, b, c), "lerp": lambda L, a, b, c: L.lerp(a, b, c)}
OF_ONE: dict[str, Callable[[Any, Any], Any]] = {   # of the library and a tensor (4,)
  **{n: (lambda L, x, n=n: getattr(L, n)(x)) for n in (
    "sum", "prod", "nansum", "count_nonzero", "bincount", "mean", "square", "vander", "diff", "abs", "cumulative_trapezoid")},
  "sum dim": lambda L, x: x.sum(0), "cumsum": lambda L, x: x.cumsum(0), "cumprod": lambda L, x: x.cumprod(0),
  "trace": lambda L, x: x.reshape(2, 2).trace(), "@": lambda L, x: x.reshape(2, 2) @ x.reshape(2, 2),
  "dot": lambda L, x: x.dot(x),
  "einsum of one": lambda L, x: L.einsum("ii->", x.reshape(2, 2)), "einsum": lambda L, x: L.einsum("i,i->", x, x),
  "tensordot": lambda L, x: L.tensordot(x, x, 1), "multi_dot": lambda L, x: L.linalg.multi_dot([x.reshape(2, 2)] * 3),
  "addmm": lambda L, x: L.addmm(*[x.reshape(2, 2)] * 3), "conv1d": lambda L, x: L.nn.functional.conv1d(*[x.reshape(1, 1, 4)] * 2),
  "index_add": lambda L, x: x.index_add(0, L.tensor([0]).long(), x[:1]), "cumsum_": lambda L, x: x.cumsum_(0),
  "sum to int8": lambda L, x: x.sum(dtype=L.int8), "cumsum to int8": lambda L, x: x.cumsum(0, dtype=L.int8),
  "prod to int16": lambda L, x: x.prod(dtype=L.int16), "sum to float16": lambda L, x: x.sum(dtype=L.float16)}


def made(library: Any, what: Any, sizes: tuple[int, ...] = (2,)) -> Any:
  """An operand: a number, or a tensor of a dtype and a number of dimensions."""
  if not isinstance(what, tuple): return what
  name, ndim = what
  dtype = getattr(library, name)
  return library.ones(sizes * ndim, dtype=dtype)


def said(fn: Callable[..., Any], library: Any, *operands: Any) -> str:
  """The dtype of what a function gives, or "" where it refuses."""
  try: out = fn(library, *operands)
  except (NtgradError, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError): return ""
  except AttributeError:   # of a number
    assert not all(hasattr(o, "dtype") for o in operands)
    return ""
  d = out if isinstance(out, DType) or torch is not None and isinstance(out, torch.dtype) else out.dtype
  return d.name if isinstance(d, DType) else str(d).removeprefix("torch.")


def differing(fn: Callable[..., Any], kinds: Iterator[Any]) -> list[str]:
  """Operands for which a function gives another dtype than PyTorch. int32 where that has int64 for a bool and the number 2 is
  the default int."""
  wrong, compared = [], 0
  for operands in kinds:
    got, want = [said(fn, library, *[made(library, o) for o in operands]) for library in (ntgrad, torch)]
    compared += bool(got and want)
    if not got or not want or got == want: continue
    if (got, want) == ("int32", "int64") and 2 in operands and all(o == 2 or o[0] == "bool" for o in operands): continue
    wrong.append(f"{operands}: {got}, in PyTorch {want}")
  assert compared > 5
  return wrong


OPERANDS = list(itertools.product(DTYPES, (1, 0)))


@pytest.mark.skipif(torch is None, reason="compares with PyTorch")
@pytest.mark.parametrize("name", OF_TWO)
def test_two_operands_as_pytorch(name: str) -> None:
  pairs = [*itertools.product(OPERANDS, OPERANDS), *itertools.product(OPERANDS, NUMBERS), *itertools.product(NUMBERS, OPERANDS)]
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    assert differing(OF_TWO[name], iter(pairs)) == []


@pytest.mark.skipif(torch is None, reason="compares with PyTorch")
@pytest.mark.parametrize("name", OF_THREE)
def test_three_operands_as_pytorch(name: str) -> None:
  few = list(itertools.product(("int8", "int32", "float16", "float32", "float64"), (1, 0)))
  assert differing(OF_THREE[name], itertools.product(few, repeat=3)) == []


@pytest.mark.skipif(torch is None, reason="compares with PyTorch")
@pytest.mark.parametrize("name", OF_ONE)
def test_sums_and_products_as_pytorch(name: str) -> None:
  default = {"square": "int32"}   # of bools: ** 2, the default int
  for d in (*DTYPES, "uint16", "uint32"):
    got, want = [said(OF_ONE[name], L, L.tensor([1, 2, 3, 4], dtype=getattr(L, d))) for L in (ntgrad, torch)]
    if want and got: assert got == want or d == "bool" and default.get(name) == got, (d, got, want)


# ---- sums are added up in 32 bits where no sum can be greater

def added_up_in(t: Tensor) -> set[DType]:
  return {u.dtype for u in toposort((t.lazydata,)) if u.op in (Ops.REDUCE_AXIS, Ops.SCAN_AXIS)}


def test_what_is_added_up_in_32_bits() -> None:
  narrow, wide = {dtypes.int32}, {dtypes.int64}
  few = Tensor.empty(2 ** 15, dtype="int16")
  i8, b, i32 = [Tensor.empty(1000, dtype=d) for d in ("int8", "bool", "int32")]
  for t in (i8, b, i32 > 3, Tensor.empty(2 ** 30, dtype="bool"), few, i32.clamp(-5, 5), (i32 > 3).cast("int64"), i32 % 7,
            i8.reshape(10, 100).sum(1)):
    assert added_up_in(t.sum()) == added_up_in(t.cumsum(0)) == narrow and t.sum().dtype is dtypes.int64, t
  for t in (few.repeat(3), i32, Tensor.empty(2 ** 31, dtype="bool"), Tensor.empty(3, dtype="uint32")):
    assert added_up_in(t.sum()) == wide, t
  assert added_up_in(b.prod()) == added_up_in(i8[:4].prod()) == narrow and added_up_in(i8.prod()) == wide
  assert added_up_in(i32.sum(dtype="int32")) == narrow and added_up_in(i8.sum(dtype="int8")) == narrow


def test_what_lies_in_memory_does_not_say_how_sums_are_added_up() -> None:
  state = Tensor([1, 2, 3]).realize()   # small numbers when the function is captured
  step = ntgrad.jit(lambda x: (state.sum() + x, state.cumsum(0)))
  for _ in range(3): assert step(Tensor(1).realize())[0].item() == 7
  state.assign(Tensor([2 ** 31 - 1] * 3)).realize()
  total, running = step(Tensor(1).realize())
  assert total.item() == 3 * (2 ** 31 - 1) + 1 and running.tolist() == [k * (2 ** 31 - 1) for k in (1, 2, 3)]


def test_values_of_wide_sums() -> None:
  big = np.array([2 ** 31 - 1, -5, 2 ** 31 - 1, 7], np.int32)
  for t, a in ((Tensor(big), big), (Tensor(big[:3] > 0), big[:3] > 0), (Tensor(big.astype(np.int8)), big.astype(np.int8))):
    wide = a.astype(np.int64)
    assert t.sum().item() == wide.sum() and t.prod().item() == wide.prod()
    assert t.cumsum(0).tolist() == wide.cumsum().tolist() and t.cumprod(0).tolist() == wide.cumprod().tolist()
  assert Tensor.arange(100000).sum().item() == 4999950000
  full = Tensor.full((1000,), 100, dtype="int8")
  assert (full @ full).item() == np.int64(10 ** 7).astype(np.int8) and full.dot(full, dtype="int32").item() == 10 ** 7


def test_indices_stay_narrow() -> None:
  x = Tensor.empty(50, 7)
  for t in (x.argmax(1), x.sort(1)[1], x.topk(2)[1], x.nanmedian(1)[1], x.multinomial(3), x.nonzero_static(size=4), x.argsort(),
            x.gather(1, x.argmax(1, keepdim=True)), x.nll_loss(Tensor.empty(50, dtype="int32")), x.multilabel_margin_loss(
              Tensor.empty(50, 7, dtype="int32")), x.quantile(0.5, 1), x[x.argmin(1) % 3]):
    assert not {u.dtype for u in toposort((t.lazydata,)) if u.op is not Ops.BUFFER} & {dtypes.int64}, t


def test_a_count_goes_into_narrow_memory() -> None:
  n = Tensor([3, 4])
  n += (Tensor([[1, 2], [2, 2]]) == 2).sum(1)
  n[0] = (n > 3).sum()
  assert n.dtype is dtypes.int32 and n.tolist() == [2, 6]
