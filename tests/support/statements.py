"""Kernels in index form with statements, written by hand; and running one on a device."""
from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param
from ntgrad.codegen.kernel.linear import UOpList
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.verify.forms import verify_index, verify_linear
from ntgrad.engine.compile import extent

F32, I32, INDEX = dtypes.float32, dtypes.int32, dtypes.index
Array = np.ndarray[Any, Any]


class E:
  """A value: operators make nodes, numbers become constants of the other side's dtype."""

  def __init__(self, u: UOp): self.u = u

  def _with(self, fn: Any, other: Any, swap: bool = False) -> E:
    o = other.u if isinstance(other, E) else UOp.const(self.u.dtype, other)
    return E(UOp.alu(fn, *((o, self.u) if swap else (self.u, o))))

  def __add__(self, o: Any) -> E: return self._with(BinaryOps.ADD, o)
  def __sub__(self, o: Any) -> E: return self._with(BinaryOps.SUB, o)
  def __mul__(self, o: Any) -> E: return self._with(BinaryOps.MUL, o)
  def __truediv__(self, o: Any) -> E: return self._with(BinaryOps.DIV, o)
  def __lt__(self, o: Any) -> E: return self._with(BinaryOps.CMPLT, o)
  def __gt__(self, o: Any) -> E: return self._with(BinaryOps.CMPLT, o, True)
  def max(self, o: Any) -> E: return self._with(BinaryOps.MAX, o)
  def exp(self) -> E: return E(UOp.alu(UnaryOps.EXP, self.u))
  def abs(self) -> E: return E(UOp.alu(UnaryOps.ABS, self.u))
  def cast(self, d: DType) -> E: return E(self.u.cast(d))
  def where(self, yes: Any, no: Any) -> E:
    y = yes if isinstance(yes, E) else E(UOp.const(no.u.dtype, yes))
    return E(UOp.alu(TernaryOps.WHERE, self.u, y.u, (no if isinstance(no, E) else E(UOp.const(y.u.dtype, no))).u))

  def reduce(self, fn: BinaryOps, *axes: Axis) -> E:
    return E(UOp(Ops.REDUCE, self.u.dtype, (self.u,), (fn, tuple(a.id for a in axes))))

  def sum(self, *axes: Axis) -> E: return self.reduce(BinaryOps.ADD, *axes)
  def scan(self, fn: BinaryOps, axis: Axis, reverse: bool = False) -> E:
    return E(UOp(Ops.SCAN, self.u.dtype, (self.u,), (fn, axis.id, reverse)))

  def sort(self, axis: Axis, descending: bool = False) -> E:
    return E(UOp(Ops.SORT, self.u.dtype, (self.u,), (axis.id, descending)))


def _index(i: Any) -> UOp:
  if isinstance(i, E): return i.u if i.u.dtype is INDEX else UOp(Ops.CAST, INDEX, (i.u,))
  if isinstance(i, Axis): return i.rng
  return i if isinstance(i, UOp) else ix.const(i)


class Place:
  """A param or a variable: ``p[i, j]`` reads, ``p.set((i, j), value)`` stores."""

  def __init__(self, uop: UOp): self.uop = uop
  def _at(self, at: Any) -> UOp: return UOp(Ops.INDEX, INDEX, tuple(_index(i) for i in (at if isinstance(at, tuple) else (at,))))
  def __getitem__(self, at: Any) -> E: return E(UOp(Ops.LOAD, self.uop.dtype, (self.uop, self._at(at))))
  def load(self, at: Any, gate: UOp) -> E: return E(UOp(Ops.LOAD, self.uop.dtype, (self.uop, self._at(at), gate)))
  def set(self, at: Any, value: Any, *gate: UOp) -> UOp:
    return UOp.unique(Ops.STORE, self.uop.dtype, (self.uop, self._at(at), self._value(value), *gate))
  def atomic(self, how: str, at: Any, value: Any, *gate: UOp) -> UOp:
    return UOp.unique(Ops.ATOMIC, self.uop.dtype, (self.uop, self._at(at), self._value(value), *gate), how)
  def _value(self, value: Any) -> UOp: return value.u if isinstance(value, E) else UOp.const(self.uop.dtype, value)


class Builder:
  """Params, axes and variables of a kernel that a test writes."""

  def __init__(self) -> None:
    self.params: list[Param] = []
    self.axes: list[Axis] = []
    self._variables = 0

  def _axis(self, size: Dim, kind: AxisKind) -> Axis:
    a = Axis(len(self.axes), size, kind)
    self.axes.append(a)
    return a

  def grid(self, size: Dim) -> Axis: return self._axis(size, AxisKind.GRID)
  def loop(self, size: Dim) -> Axis: return self._axis(size, AxisKind.LOOP)
  def tile(self, size: int) -> Axis: return self._axis(size, AxisKind.TILE)

  def param(self, shape: tuple[Dim, ...], dtype: DType = F32, written: bool = False) -> Place:
    p = Param(len(self.params), shape, dtype, written)
    self.params.append(p)
    return Place(p.uop)

  def variable(self, shape: tuple[int, ...] = (), dtype: DType = F32) -> Place:
    self._variables += 1
    return Place(UOp(Ops.DEFINE_LOCAL, dtype, (), (f"v{self._variables - 1}", shape, "private")))

  def kernel(self, *body: UOp) -> Kernel: return Kernel(tuple(self.params), tuple(self.axes), body)


def for_(axis: Axis, *body: UOp, end: Any = None) -> UOp:
  return UOp.unique(Ops.FOR, INDEX, (_index(axis.size if end is None else end), *body), axis.id)


def while_(condition: E, *body: UOp) -> UOp: return UOp.unique(Ops.WHILE, dtypes.bool, (condition.u, *body))


def if_(condition: E, then: Sequence[UOp], otherwise: Sequence[UOp] = ()) -> UOp:
  return UOp.unique(Ops.IF, dtypes.bool, (condition.u, *then, *otherwise), len(then))


def at(axis: Axis, by: int = 1, plus: Any = 0) -> UOp:
  """axis * by + plus"""
  return ix.add(ix.mul(axis.rng, by), _index(plus))


def value(axis: Axis, dtype: DType = F32) -> E: return E(UOp(Ops.CAST, dtype, (axis.rng,)))


def lines(kernel: Kernel, target: Any = None) -> UOpList:
  """The linear form, both forms checked."""
  verify_index(kernel, "k")
  uops = linearize(kernel, target)
  verify_linear(uops, "k")
  return uops


def run(kernel: Kernel, device: Device, data: Sequence[Array], opts: bool = True) -> list[Array]:
  """The params after a launch."""
  with config(noopt=0 if opts else 1): uops = lines(kernel, device.renderer.target if opts else None)
  spec = ProgramSpec(
    "k",
    device.renderer.render("k", uops),
    extent(kernel, AxisKind.GRID),
    extent(kernel, AxisKind.LOCAL),
    len(kernel.params),
    tuple(uops),
  )
  program, = device.compile([spec])
  raws = [device.alloc(max(a.nbytes, 1)) for a in data]
  for raw, a in zip(raws, data): device.copyin(raw, np.ascontiguousarray(a).reshape(-1).view(np.uint8))
  program(raws)
  device.synchronize()
  out = [device.copyout(raw, a.nbytes).view(a.dtype).reshape(a.shape).copy() for raw, a in zip(raws, data)]
  for raw, a in zip(raws, data): device.free(raw, max(a.nbytes, 1))
  return out
