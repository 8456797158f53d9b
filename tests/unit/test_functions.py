"""The table of functions: an entry and a spelling in each backend for every member, dtypes that are taken, gradients that are
slopes."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.backends import render
from ntgrad.backends.numpy.functions import function
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.elementwise import const, make
from ntgrad.codegen.ir.errors import CompileError
from ntgrad.codegen.ir.functions import COMBINERS, FUNCTIONS, identity, refusal
from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp
from ntgrad.codegen.verify.rules import alu_rule
from ntgrad.errors import DTypeError
from support.linear import Lines

ALL: list[Any] = [*UnaryOps, *BinaryOps, *TernaryOps]
F64 = dtypes.float64


def arity(fn: Any) -> int: return [UnaryOps, BinaryOps, TernaryOps].index(type(fn)) + 1
def taken(fn: Any) -> list[DType]: return [d for d in dtypes.numbers if refusal(fn, d) is None]


def kernel(fn: Any, d: DType) -> list[UOp]:
  """data0 = fn(data1, ..), each a scalar."""
  p = Lines()
  kinds = [d] * arity(fn)
  if fn is TernaryOps.WHERE: kinds[0] = dtypes.bool
  gives = FUNCTIONS[fn].gives or d
  out, params = p.buf(0, gives, True), [p.buf(i + 1, k) for i, k in enumerate(kinds)]
  p.store(out, 0, p.add(Ops.ALU, gives, tuple(p.load(x, 0) for x in params), fn))
  return list(p.uops)


def test_what_is_missing() -> None:
  """A function without an entry, or without a spelling for a dtype that it takes."""
  missing = [f"{fn}: no entry in codegen/ir/functions.py" for fn in ALL if fn not in FUNCTIONS]
  for fn in FUNCTIONS:
    for d in taken(fn):
      if alu_rule(next(u for u in kernel(fn, d) if u.op is Ops.ALU)): missing.append(f"{fn} of {d}: the verifier")
      try:
        ones = [np.ones(1, d.np)] * arity(fn)
        if fn is TernaryOps.WHERE: ones[0] = np.ones(1, np.bool_)
        with np.errstate(all="ignore"):
          assert function(fn, d, FUNCTIONS[fn].gives or d)(*ones).dtype == (FUNCTIONS[fn].gives or d).np
      except (KeyError, TypeError, AssertionError):
        missing.append(f"{fn} of {d}: backends/numpy/functions.py")
      for target, where in (("opencl", "backends/opencl/renderer.py"), ("triton", "backends/cuda/expressions.py")):
        try: render(target, "k", kernel(fn, d))
        except (CompileError, KeyError) as e: missing.append(f"{fn} of {d}: {where} ({e})")
  assert not missing, "\n".join(missing)


@pytest.mark.parametrize("fn", ALL, ids=str)
def test_dtypes(fn: Any) -> None:
  """What is not taken is refused by the verifier, in words; a node's dtype is what the table says."""
  for d in dtypes.numbers:
    if refusal(fn, d) is None:
      sources = [UOp(Ops.CONST, d, (), i) for i in range(arity(fn))]
      if fn is TernaryOps.WHERE: sources[0] = UOp.const(dtypes.bool, True)
      assert UOp.alu(fn, *sources).dtype is (FUNCTIONS[fn].gives or d)
    else: assert f"{fn} takes " in (alu_rule(UOp(Ops.ALU, d, (UOp.const(d, 1),) * arity(fn), fn)) or "")


@pytest.mark.parametrize("fn", COMBINERS, ids=str)
def test_identities(fn: Any) -> None:
  for d in taken(fn):
    x = np.array([0, 1] if d.kind == "b" else [0, 1, 3, 100] if d.kind == "u" else [0, 1, -3, 100]).astype(d.np)
    np.testing.assert_array_equal(function(fn, d, d)(np.full(x.shape, identity(fn, d)).astype(d.np), x), x)
  with pytest.raises(KeyError): identity(BinaryOps.SUB, dtypes.float32)


@pytest.mark.parametrize("fn, want", [(BinaryOps.ADD, [0, 1, 1, 1]), (BinaryOps.SUB, [0, 1, 1, 0]), (BinaryOps.MUL, [0, 0, 0, 1]),
                                      (BinaryOps.MAX, [0, 1, 1, 1]), (BinaryOps.MIN, [0, 0, 0, 1])])
def test_arithmetic_of_bools(fn: Any, want: list[int]) -> None:
  a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
  got = function(fn, dtypes.bool, dtypes.bool)(a, b)
  assert got.dtype == bool and got.tolist() == [bool(x) for x in want]
  assert [fn for fn in ALL if FUNCTIONS[fn].boolean] == [
    BinaryOps.ADD,
    BinaryOps.SUB,
    BinaryOps.MUL,
    BinaryOps.MAX,
    BinaryOps.MIN,
  ]


AT = (0.3, 0.7, 1.7, 2.6)     # no multiples of each other, nowhere a step of a rounding


def apply(fn: Any, *xs: Any) -> Any:
  """The function of tensors."""
  nodes = [x.lazydata for x in xs]
  if fn is TernaryOps.WHERE: nodes.insert(0, const(True, dtypes.bool, nodes[0].shape))
  return xs[0]._wrap(make(Ops.ALU, FUNCTIONS[fn].gives or F64, tuple(nodes), fn, nodes[0].shape, nodes[-1].device))


@pytest.mark.parametrize("fn", [fn for fn in ALL if fn in FUNCTIONS and refusal(fn, F64) is None], ids=str)
def test_gradients_are_slopes(fn: Any) -> None:
  """Of what a function takes, each by itself; one without a gradient is flat."""
  n = min(arity(fn), 2)
  values = [np.array(AT), np.array(AT[::-1])][:n]
  def of(*xs: np.ndarray) -> np.ndarray:
    return np.asarray(apply(fn, *[Tensor(x, device="NUMPY") for x in xs]).cast(F64).numpy())
  for i in range(n):
    step = [np.where(i == j, 1e-5, 0.0) for j in range(n)]
    slope = (of(*[v + s for v, s in zip(values, step)]) - of(*[v - s for v, s in zip(values, step)])) / 2e-5
    if not FUNCTIONS[fn].gradient:
      np.testing.assert_array_equal(slope, 0)
      continue
    leaves = [Tensor(v, device="NUMPY", requires_grad=True) for v in values]
    g, = apply(fn, *leaves).sum().gradient(leaves[i])
    np.testing.assert_allclose(g.numpy(), slope, rtol=1e-6, atol=1e-8)


def test_bits_of_floats_are_refused_by_tensors() -> None:
  x = Tensor([1.0, 2.0], device="NUMPY")
  for fn in (lambda: x & x, lambda: x << 1):
    with pytest.raises(DTypeError, match="it takes ints and bools"): fn()
