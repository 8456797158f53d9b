"""Sizes that a launch gives, on every backend: one compiled program, launched with several numbers."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from ntgrad.backends.base import Device
from ntgrad.codegen import index as ix
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.index import Size
from ntgrad.codegen.uop import BinaryOps, Ops, UOp
from ntgrad.engine.device import get_device
from support import metal, plain_c, triton
from support.linear import Lines

F32, I64 = dtypes.float32, dtypes.int64
Array = np.ndarray[Any, Any]
N, M = Size("N", 0, 1 << 20), Size("M", 0, 1 << 10)
UNITS = Size("N", 0, 1 << 16, unit=16)


def index(size: Size) -> UOp: return UOp(Ops.SIZE, ix.INT, (), size)


def blocks(p: Lines, g: UOp, n: int) -> UOp:
  """The element that a program is about: of one block of ``n`` for a target that has them, else the program's own."""
  return p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, g, n), p.add(Ops.RANGE, g.dtype, (), (0, n)))


def elementwise(tiled: bool) -> Lines:
  """out[i] = x[i] + 1 for i < N, the grid rounded up."""
  p = Lines()
  out, x, n = p.buf(0, F32, True), p.buf(1, F32), p.var(N)
  if tiled: i = blocks(p, p.gid(ix.cdiv(index(N), 64)), 64)
  else:
    g, l = p.gid(ix.cdiv(index(N), 4)), p.loop(0, 4)
    i = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, g, 4), l)
  inside = p.alu(BinaryOps.CMPLT, i, n)
  p.store(out, i, p.alu(BinaryOps.ADD, p.load(x, i, inside), 1.0), inside)
  if not tiled: p.end(l)
  return p


def reduction(tiled: bool) -> Lines:
  """out[i] = sum of x[i, :N], of M rows."""
  p = Lines()
  out, x, n = p.buf(0, F32, True), p.buf(1, F32), p.var(N)
  row = p.gid(index(M))
  acc, k = p.acc(F32, 0.0), p.loop(0, n)
  value = p.load(x, p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, row, n), k))
  total = p.phi(acc, p.alu(BinaryOps.ADD, acc, value), k)
  p.end(k)
  p.store(out, row, total)
  return p


def transposition(tiled: bool) -> Lines:
  """out[j, i] = x[i, j], one program for each element of (M, N)."""
  p = Lines()
  out, x, m, n = p.buf(0, F32, True), p.buf(1, F32), p.var(M), p.var(N)
  g = p.gid(ix.mul(index(M), index(N)))
  i, j = p.alu(BinaryOps.IDIV, g, n), p.alu(BinaryOps.MOD, g, n)
  p.store(out, p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, j, m), i), p.load(x, g))
  return p


def wide(tiled: bool) -> Lines:
  """out[i] = x[i]*N in int64, of N units of 16 elements in two dimensions of programs."""
  p = Lines()
  out, x, n = p.buf(0, I64, True), p.buf(1, I64), p.var(UNITS, I64)
  g, h = (p.add(Ops.SPECIAL, I64, (), ("g", d, size)) for d, size in ((0, 16), (1, index(UNITS))))
  i = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, h, 16), g)
  p.store(out, i, p.alu(BinaryOps.MUL, p.load(x, i), n))
  return p


def cases(name: str, m: int, n: int) -> tuple[tuple[int, ...], Array, Array]:
  """Numbers for a program's sizes, its input, and what it has to give."""
  x = np.random.default_rng(m * 7 + n).integers(-9, 10, max(m, 1) * n).astype(np.float32)
  if name == "elementwise": return (n,), x[:n], x[:n] + np.float32(1)
  x = x if name == "wide" else x[:m * n]
  if name == "reduction": return (m, n), x, x.reshape(m, n).sum(1)
  if name == "transposition": return (m, n), x, np.ascontiguousarray(x.reshape(m, n).T).reshape(-1)
  data = np.resize(x, 16 * n).astype(np.int64) if x.size else np.zeros(16 * n, np.int64)
  return (n,), data, data * n


PROGRAMS: dict[str, Callable[[bool], Lines]] = {f.__name__: f for f in (elementwise, reduction, transposition, wide)}
DEVICES = [
  "NUMPY",
  "CPU",
  pytest.param(plain_c.NAME, marks=plain_c.needs_cc),
  pytest.param("METAL", marks=metal.needs_cxx),
  pytest.param(triton.NAME, marks=triton.needs_triton),
]


def device(name: str) -> Device: return metal.MetalDevice() if name == "METAL" else get_device(name)


def launched(d: Device, program: Any, sizes: tuple[int, ...], x: Array, out: Array) -> Array:
  """What a launch writes."""
  raws = [d.alloc(max(a.nbytes, 1)) for a in (out, x)]
  for raw, a in zip(raws, (out, x)): d.copyin(raw, a.reshape(-1).view(np.uint8))
  program(raws, sizes=sizes)
  got: Array = d.copyout(raws[0], out.nbytes).view(out.dtype)
  for raw, a in zip(raws, (out, x)): d.free(raw, max(a.nbytes, 1))
  return got


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("where", DEVICES)
def test_one_program_for_all_sizes(where: str, name: str) -> None:
  d = device(where)
  program = PROGRAMS[name](where == triton.NAME).program(d, name)
  for m, n in ((3, 5), (1, 1), (4, 64), (2, 65), (0, 4), (5, 0), (0, 0), (3, 5)):
    sizes, x, want = cases(name, m, n)
    got = launched(d, program, sizes, x, np.zeros_like(want))
    np.testing.assert_array_equal(got, want)
