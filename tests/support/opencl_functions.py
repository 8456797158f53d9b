"""Every function of floats at every vector width against numpy: ``python -m support.opencl_functions float32``.

For a process of its own: a function that takes a vector in another way than the kernel hands it over may end the process.
"""
from __future__ import annotations

import math
import sys
from typing import Any

import ml_dtypes
import numpy as np

from ntgrad.backends.opencl.device import OpenCLDevice
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.uop import BinaryOps, UnaryOps, UOp

from .elementwise import elementwise, samples

WIDTHS = (1, 2, 3, 4, 8, 16)
SIZE = 4080                     # every width divides it
# op, reference, greatest error in ulp of float32
UNARY: list[tuple[UnaryOps, Any, float]] = [
  (UnaryOps.EXP, np.exp, 1.5), (UnaryOps.EXP2, np.exp2, 1.5), (UnaryOps.LOG, np.log, 1.5), (UnaryOps.LOG2, np.log2, 2),
  (UnaryOps.SIN, np.sin, 2.5), (UnaryOps.COS, np.cos, 2.5), (UnaryOps.TAN, np.tan, 4.5), (UnaryOps.TANH, np.tanh, 5),
  (UnaryOps.ERF, np.vectorize(math.erf, otypes=[np.float64]), 1.5), (UnaryOps.SQRT, np.sqrt, 0.5),
  (UnaryOps.RSQRT, lambda v: 1/np.sqrt(v), 2), (UnaryOps.RECIP, lambda v: 1/v, 0.5), (UnaryOps.FLOOR, np.floor, 0),
  (UnaryOps.CEIL, np.ceil, 0), (UnaryOps.TRUNC, np.trunc, 0), (UnaryOps.ROUND, np.round, 0), (UnaryOps.ABS, np.abs, 0),
  (UnaryOps.NEG, np.negative, 0)]
BINARY: list[tuple[BinaryOps, Any]] = [(BinaryOps.POW, np.power), (BinaryOps.IDIV, np.floor_divide), (BinaryOps.MOD, np.mod)]


def numbers(dtype: DType) -> np.ndarray:
  rng = np.random.default_rng(1)
  special = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1,
    -1,
    1e-40,
    1e38,
    88.7,
    88.8,
    -87.4,
    -103.9,
    -104.1,
    0.5,
    1.5,
    2.5,
    -0.5,
    8,
    128,
    -149.2,
    1e6,
    3.1415927,
    1.5707964,
    0.625,
    0.92774,
  ]
  x = np.concatenate([special, rng.standard_normal(3000)*4, np.exp(rng.uniform(-80, 80, 1000))])
  return np.resize(x, SIZE).astype(np.float32).astype(dtype.np)


def far(got: np.ndarray, want: np.ndarray, dtype: DType, ulps: float) -> np.ndarray:
  """Where results are further off than ``ulps`` of float32 (1e-13 of double), or than one rounding more of a narrow dtype."""
  g, rounded = got.astype(np.float64), want.astype(dtype.np).astype(np.float64)
  same = (g == rounded) | (np.isnan(g) & np.isnan(want))
  if dtype is dtypes.float64: room = 1e-13*np.abs(want) + 1e-300
  elif dtype is dtypes.float32: room = max(ulps, 0.51)*np.spacing(np.abs(rounded.astype(np.float32))).astype(np.float64)
  else:
    info = ml_dtypes.finfo(dtype.np)
    room = float(info.eps)*np.abs(want) + float(info.smallest_subnormal)
  return ~(same | (np.abs(g - want) <= room))


def wrong(device: OpenCLDevice, dtype: DType, n: int) -> list[str]:
  """The functions that give something else than numpy at width ``n``, and where."""
  out = []
  with np.errstate(all="ignore"):
    x = numbers(dtype)
    for (op, ref, ulps), g in zip(UNARY, elementwise(device, n, [x], [lambda v, op=op: UOp.alu(op, v) for op, _, _ in UNARY])):
      want = ref(x.astype(np.float64))
      bad = far(g, want, dtype, ulps)
      if bad.any(): out.append(f"{op} {dtype} width {n} at {x[bad][0]!r}: {g[bad][0]!r}, numpy has {want[bad][0]!r}")
    a, b = (np.resize(v, 192) for v in samples(dtype))
    table = BINARY if dtype.itemsize >= 4 else BINARY[:1]   # a quotient that is rounded first may have another floor
    for (op, ref), g in zip(table, elementwise(device, n, [a, b], [lambda v, w, op=op: UOp.alu(op, v, w) for op, _ in table])):
      want = (
        ref(a, b).astype(np.float64)
        if dtype.itemsize >= 4
        else ref(a.astype(np.float32), b.astype(np.float32)).astype(np.float64)
      )
      bad = far(g, want, dtype, 8.0 if op is BinaryOps.POW else 0.0)
      if bad.any():
        out.append(f"{op} {dtype} width {n} at {a[bad][0]!r}, {b[bad][0]!r}: {g[bad][0]!r}, numpy has {want[bad][0]!r}")
  return out


def main(name: str) -> int:
  device, dtype = OpenCLDevice("CPU"), getattr(dtypes, name)
  lines = []
  for n in WIDTHS:
    print(f"width {n}", flush=True)   # the last line that a crash leaves
    lines += wrong(device, dtype, n)
  if device.compiler.whole: lines.append(f"{device.compiler.whole} programs called a function that is not declared")
  print("\n".join(lines))
  return 1 if lines else 0


if __name__ == "__main__": sys.exit(main(sys.argv[1]))
