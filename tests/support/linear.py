"""Linear programs by hand: each method appends a node (and any constant it needs) and gives it back."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Sequence

import numpy as np

from ntgrad.backends.base import Device, KernelSource, Program, ProgramSpec
from ntgrad.backends.cstyle.kernel import CStyleRenderer
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen.index import Size
from ntgrad.codegen.index.sizes import Dim, arguments
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp
from ntgrad.codegen.kernel.linear import UOpList

INT = dtypes.int32


class Lines:
  """A linear program that is being written."""

  def __init__(self) -> None: self.uops = UOpList()

  def add(self, op: Ops, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
    u = UOp(op, dtype, src, arg)
    if u not in self.uops: self.uops.append(u)
    return u

  def _node(self, x: Any, dtype: DType = INT) -> UOp:
    if isinstance(x, UOp): return x
    u = UOp.const(dtype, x)
    if u not in self.uops:  # before the loops and ifs that are open, so that all may use it
      closed = {e.src[0] for e in self.uops if e.op in (Ops.ENDLOOP, Ops.ENDIF)}
      self.uops.insert(
        next((i for i, o in enumerate(self.uops) if o.op in (Ops.LOOP, Ops.IF) and o not in closed), len(self.uops)), u
      )
    return u

  def buf(self, slot: int, dtype: DType, written: bool = False) -> UOp:
    return self.add(Ops.DEFINE_GLOBAL, dtype, (), (slot, f"data{slot}", written))

  def local(self, name: str, size: int, dtype: DType, kind: str = "local") -> UOp:
    return self.add(Ops.DEFINE_LOCAL, dtype, (), (name, size, kind))

  def acc(self, dtype: DType, start: Any, *after: UOp) -> UOp: return self.add(Ops.DEFINE_ACC, dtype, after, start)
  def var(self, size: Size, dtype: DType = INT) -> UOp: return self.add(Ops.DEFINE_VAR, dtype, (), size)
  def gid(self, size: Dim, dim: int = 0) -> UOp: return self.add(Ops.SPECIAL, INT, (), ("g", dim, size))
  def lid(self, size: int, dim: int = 0) -> UOp: return self.add(Ops.SPECIAL, INT, (), ("l", dim, size))
  def const(self, dtype: DType, value: Any) -> UOp: return self._node(value, dtype)
  def loop(self, start: Any, end: Any) -> UOp: return self.add(Ops.LOOP, INT, (self._node(start), self._node(end)))
  def end(self, loop: UOp) -> UOp: return self.add(Ops.ENDLOOP, INT, (loop,))
  def phi(self, acc: UOp, value: UOp, *loops: UOp) -> UOp: return self.add(Ops.PHI, acc.dtype, (acc, value, *loops))
  def if_(self, cond: UOp) -> UOp: return self.add(Ops.IF, dtypes.bool, (cond,))
  def endif(self, opener: UOp) -> UOp: return self.add(Ops.ENDIF, dtypes.bool, (opener,))
  def barrier(self, *after: UOp) -> UOp: return self.add(Ops.BARRIER, dtypes.bool, after)

  def alu(self, fn: Any, *src: Any) -> UOp:
    first = next(s for s in src[::-1] if isinstance(s, UOp))
    u = UOp.alu(fn, *[self._node(s, first.dtype.scalar()) for s in src])
    return self.add(u.op, u.dtype, u.src, u.arg)

  def load(self, buf: UOp, index: Any, gate: UOp | None = None, other: UOp | None = None, count: int = 1) -> UOp:
    src = (buf, self._node(index), *(x for x in (gate, other) if x is not None))
    return self.add(Ops.LOAD, buf.dtype.vec(count), src)

  def store(self, buf: UOp, index: Any, value: UOp, gate: UOp | None = None) -> UOp:
    return self.add(Ops.STORE, dtypes.bool, (buf, self._node(index), value, *(() if gate is None else (gate,))))

  def cast(self, x: UOp, dtype: DType) -> UOp: return self.add(Ops.CAST, dtype, (x,))
  def bitcast(self, x: UOp, dtype: DType) -> UOp: return self.add(Ops.BITCAST, dtype, (x,))
  def vector(self, *xs: UOp) -> UOp: return self.add(Ops.VECTORIZE, xs[0].dtype.vec(len(xs)), xs)
  def gep(self, v: UOp, lane: int) -> UOp: return self.add(Ops.GEP, v.dtype.scalar(), (v,), lane)

  def spec(self, name: str = "test") -> ProgramSpec:
    sizes = {(u.arg[0], u.arg[1]): u.arg[2] for u in self.uops if u.op is Ops.SPECIAL}
    grid, local = (tuple(sizes.get((k, d), 1) for d in range(3)) for k in "gl")
    count = sum(u.op is Ops.DEFINE_GLOBAL for u in self.uops)
    return ProgramSpec(name, KernelSource(""), grid, local, count, tuple(self.uops), sizes=tuple(arguments(self.uops)))

  def program(self, device: Device, name: str = "test") -> Program:
    """Rendered and compiled for a device."""
    source = device.renderer.render(name, self.uops)
    return device.compile([replace(self.spec(name), source=source)])[0]

  def run(self, *arrays: np.ndarray) -> None:
    """Evaluate with numpy over the arrays' own memory, slot by slot."""
    program, = NumpyDevice().compile([self.spec()])
    program([a.reshape(-1).view(np.uint8) for a in arrays])


def dot(n: int = 4) -> Lines:
  """The dot product of DESIGN 5.3, loop kept."""
  p = Lines()
  out, a, b = p.buf(0, INT, True), p.buf(1, INT), p.buf(2, INT)
  acc = p.acc(INT, 0)
  i = p.loop(0, n)
  total = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, p.load(a, i), p.load(b, i)), acc)
  s = p.phi(acc, total, i)
  p.end(i)
  p.store(out, 0, s)
  return p


def uops_to_cstyle(renderer: CStyleRenderer, name: str, uops: Sequence[UOp]) -> str:
  """The source of a kernel in a language, as text."""
  return renderer.render(name, uops).text
