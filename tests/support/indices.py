"""Index expressions at points, with numpy's integers: the oracle of index arithmetic and of views."""
from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps, UOp
from ntgrad.codegen.kernel import Axis

_FN = {
  BinaryOps.ADD: np.add,
  BinaryOps.SUB: np.subtract,
  BinaryOps.MUL: np.multiply,
  BinaryOps.IDIV: np.floor_divide,
  BinaryOps.MOD: np.mod,
  BinaryOps.CMPLT: np.less,
  BinaryOps.CMPLE: np.less_equal,
  BinaryOps.CMPEQ: np.equal,
  BinaryOps.CMPNE: np.not_equal,
  BinaryOps.AND: np.bitwise_and,
  BinaryOps.OR: np.bitwise_or,
  BinaryOps.MAX: np.maximum,
  BinaryOps.MIN: np.minimum,
  TernaryOps.WHERE: np.where,
}


def at_points(u: UOp, env: Mapping[UOp, np.ndarray]) -> np.ndarray:
  """The value of an index or condition where its RANGEs have the values of ``env``."""
  values: dict[UOp, np.ndarray] = {}
  for n in u.toposort():
    if n in env: values[n] = env[n]
    elif n.op is Ops.CONST: values[n] = np.asarray(n.arg)
    elif n.op is Ops.CAST: values[n] = values[n.src[0]]
    else: values[n] = _FN[n.arg](*(values[s] for s in n.src))
  return values[u]


def grid(axes: Sequence[Axis]) -> dict[UOp, np.ndarray]:
  """All values of the axes, each along a dimension of its own."""
  return {a.rng: np.arange(a.size).reshape([-1 if i == d else 1 for i in range(len(axes))]) for d, a in enumerate(axes)}


def ranges(shape: Sequence[int]) -> list[UOp]:
  """One RANGE a dimension, numbered from 0."""
  return [ix.rng(d, n) for d, n in enumerate(shape)]
