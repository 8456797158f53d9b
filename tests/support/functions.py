"""Every function of single numbers on a device whose memory is numpy's, against the oracle."""
from __future__ import annotations

from typing import Any

import numpy as np

from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen.ir.dtype import DType
from ntgrad.codegen.ir.uop import BinaryOps, TernaryOps, UnaryOps, UOp

from .elementwise import check, const, load, loop_over, param, samples, store

EXACT = (UnaryOps.NEG, UnaryOps.ABS, UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND)
NUMBERS = (
  BinaryOps.MAX,
  BinaryOps.MIN,
  BinaryOps.ADD,
  BinaryOps.SUB,
  BinaryOps.MUL,
  BinaryOps.CMPLT,
  BinaryOps.CMPLE,
  BinaryOps.CMPEQ,
  BinaryOps.CMPNE,
)
BITS = (BinaryOps.AND, BinaryOps.OR, BinaryOps.XOR, UnaryOps.NOT)
OF_KIND: dict[str, tuple[Any, ...]] = {
  "b": (*NUMBERS, *BITS),
  "u": (*NUMBERS, *BITS, BinaryOps.IDIV, BinaryOps.MOD),
  "i": (*NUMBERS, *BITS, *EXACT, BinaryOps.IDIV, BinaryOps.MOD),
  "f": (*NUMBERS, *(f for f in UnaryOps if f is not UnaryOps.NOT), BinaryOps.DIV, BinaryOps.IDIV, BinaryOps.MOD, BinaryOps.POW),
}


def functions(device: Device, dtype: DType) -> None:
  """Awkward numbers in all pairs; floats to a few units in the last place."""
  def value(fn: Any, a: UOp, b: UOp) -> UOp:
    if fn is TernaryOps.WHERE: return UOp.alu(fn, UOp.alu(BinaryOps.CMPLT, a, b), a, b)
    return UOp.alu(fn, a) if isinstance(fn, UnaryOps) else UOp.alu(fn, a, b)
  fns, inputs, params = (*OF_KIND[dtype.kind], TernaryOps.WHERE), samples(dtype), (param(0, dtype), param(1, dtype))
  outs = [param(2 + i, value(f, *(load(p, const(0)) for p in params)).dtype, True) for i, f in enumerate(fns)]
  def body(i: UOp) -> list[UOp]:
    a, b = (load(p, i) for p in params)
    return [store(o, i, value(f, a, b)) for o, f in zip(outs, fns)]
  uops = tuple(loop_over(1, len(inputs[0]), body))
  results = []
  for d in (device, NumpyDevice()):
    arrays = [np.array(a) for a in (*inputs, *(np.zeros(len(inputs[0]), o.dtype.np) for o in outs))]
    program, = d.compile([ProgramSpec("k", d.renderer.render("k", uops), (1, 1, 1), (1, 1, 1), len(arrays), uops)])
    with np.errstate(all="ignore"): program([a.view(np.uint8) for a in arrays])
    results.append(arrays[2:])
  close = {"float64": 1e-14, "float32": 2e-6}.get(dtype.name, 2.0 ** -(3 if dtype.itemsize == 1 else 7))
  for fn, got, want in zip(fns, *results): check(got, want, f"{fn} of {dtype}", close if got.dtype.kind not in "biu" else 0.0)
