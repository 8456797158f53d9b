"""Programs that store functions of their inputs, some lanes at a time, on an OpenCL device."""
from __future__ import annotations

import warnings
from typing import Any, Callable

import numpy as np

from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.opencl.device import OpenCLDevice
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp, toposort

I32 = dtypes.int32
N = 64


def const(x: Any, dtype: DType = I32) -> UOp: return UOp.const(dtype, x)
def param(slot: int, dtype: DType, written: bool = False) -> UOp:
  return UOp(Ops.DEFINE_GLOBAL, dtype, (), (slot, f"data{slot}", written))


def load(buffer: UOp, index: UOp, n: int = 1, *gate: UOp) -> UOp:
  return UOp(Ops.LOAD, buffer.dtype.vec(n), (buffer, index, *gate))


def store(*src: UOp, arg: Any = None) -> UOp: return UOp(Ops.STORE, src[2].dtype, src, arg)


def loop_over(n: int, size: int, body: Callable[[UOp], list[UOp]]) -> list[UOp]:
  """A program that runs ``body(index)`` (STOREs) for every n-th index below ``size``."""
  loop = UOp(Ops.LOOP, I32, (const(0), const(size//n)))
  nodes = toposort(body(UOp.alu(BinaryOps.MUL, loop, const(n))))
  outer = [u for u in nodes if u.op in (Ops.DEFINE_GLOBAL, Ops.CONST)]
  inner = [u for u in nodes if u not in outer and u not in loop.src and u is not loop]
  return [*outer, *(s for s in loop.src if s not in outer), loop, *inner, UOp(Ops.ENDLOOP, I32, (loop,))]


def run(device: OpenCLDevice, uops: list[UOp], arrays: list[np.ndarray], grid: tuple[int, ...] = (1,),
        local: tuple[int, ...] = (1,)) -> list[np.ndarray]:
  """Compile and launch; the arrays as they are afterwards."""
  spec = ProgramSpec("program", device.renderer.render("program", uops), grid, local, len(arrays))
  with config(cache=0): program, = device.compile([spec])
  raws = [device.alloc(max(a.nbytes, 1)) for a in arrays]
  for raw, a in zip(raws, arrays): device.copyin(raw, np.ascontiguousarray(a).reshape(-1).view(np.uint8))
  program(raws)
  out = [device.copyout(raw, a.nbytes).view(a.dtype).reshape(a.shape) for raw, a in zip(raws, arrays)]
  for raw, a in zip(raws, arrays): device.free(raw, max(a.nbytes, 1))
  return out


def elementwise(device: OpenCLDevice, n: int, inputs: list[np.ndarray], fns: list[Callable[..., UOp]]) -> list[np.ndarray]:
  """One kernel that stores each of ``fns`` of the inputs, n lanes at a time."""
  params = [param(i, dtypes.of(a.dtype)) for i, a in enumerate(inputs)]
  probe = [load(p, const(0), n) for p in params]
  outs = [param(len(params) + i, f(*probe).dtype.scalar(), True) for i, f in enumerate(fns)]
  def body(i: UOp) -> list[UOp]:
    values = [load(p, i, n) for p in params]
    return [store(o, i, f(*values)) for o, f in zip(outs, fns)]
  size = len(inputs[0])
  got = run(device, loop_over(n, size, body), [*inputs, *(np.zeros(size, o.dtype.np) for o in outs)])
  return got[len(inputs):]


def samples(dtype: DType, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Two arrays of N values with the awkward ones in all pairs."""
  rng = np.random.default_rng(seed)
  if dtype.kind == "f": hard = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5]
  elif dtype.kind == "b": hard = [False, True]
  else: hard = [0, 1, 2, 7, dtypes.min(dtype), dtypes.max(dtype), -1 if dtype.kind == "i" else 3]
  a, b = [x for x in hard for _ in hard], [y for _ in hard for y in hard]
  rest = N - len(a)
  if dtype.kind == "f": more = (rng.standard_normal((2, rest))*3).astype(dtype.np)
  elif dtype.kind == "b": more = rng.integers(0, 2, (2, rest)).astype(np.bool_)
  else:
    more = rng.integers(dtypes.min(dtype), dtypes.max(dtype), (2, rest), dtype.np, endpoint=True) >> np.array(
      [[1], [3]], dtype.np
    )
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    return np.concatenate([np.array(a).astype(dtype.np), more[0]]), np.concatenate([np.array(b).astype(dtype.np), more[1]])


def check(got: np.ndarray, want: np.ndarray, what: str, rtol: float = 0.0) -> None:
  assert got.dtype == want.dtype, what
  if want.dtype.kind in "biu": np.testing.assert_array_equal(got, want, err_msg=what)
  else:
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=0, equal_nan=True, err_msg=what)
