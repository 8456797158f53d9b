"""Variables: sizes that a person says will have other values. ``n = Variable("n", 1, 4096); cache[:, :n.bind(17)]``.

A bound variable is an int, its value now, that remembers what it is made of: ``n.bind(17) + 1`` is 18 and n + 1. Where such an
int is a size in tensor code, kernels are made for all its values from the first time on. An int that has forgotten it (a float
came between, another library) is a size like any other: it is one from the second value on.
"""
from __future__ import annotations

import operator
from typing import Any, Callable

from ntgrad.codegen import index as ix
from ntgrad.codegen.errors import ArgumentError, ShapeError, shown
from ntgrad.codegen.uop import Ops, UOp


class Bound(int):
  """An int that is the value of an expression of Variables. Sums, products, quotients and remainders with ints are such ints
  again; everything else about it is an int's."""
  node: UOp

  @staticmethod
  def of(value: int, node: UOp) -> int:
    """The value of an expression; an int where no variable is left in it."""
    if node.op is Ops.CONST: return int(value)
    out = Bound(value)
    out.node = node
    return out

  def __neg__(self) -> int: return Bound.of(-int(self), ix.mul(self.node, -1))
  def __reduce__(self) -> Any: return int, (int(self),)
  def __copy__(self) -> int: return self
  def __deepcopy__(self, memo: Any) -> int: return self


def _method(fn: Callable[[int, int], int], made: Callable[[UOp, UOp], UOp], swapped: bool) -> Callable[[Bound, Any], Any]:
  def method(self: Bound, other: Any) -> Any:
    if not isinstance(other, int) or isinstance(other, bool): return NotImplemented
    a, b = (other, self) if swapped else (self, other)
    value = fn(int(a), int(b))
    if made in (ix.fdiv, ix.mod) and int(b) < 1: return value
    return Bound.of(value, made(_node(a), _node(b)))
  return method


def _node(n: int) -> UOp: return n.node if isinstance(n, Bound) else ix.const(int(n))


for _name, _fn, _made in (("add", operator.add, ix.add), ("sub", operator.sub, ix.sub), ("mul", operator.mul, ix.mul),
                          ("floordiv", operator.floordiv, ix.fdiv), ("mod", operator.mod, ix.mod)):
  setattr(Bound, f"__{_name}__", _method(_fn, _made, False))
  setattr(Bound, f"__r{_name}__", _method(_fn, _made, True))


class Variable:
  """A size with a name whose value may change from run to run: ``Variable("n", 1, 4096)`` is from 1 to 4096, both included.

  ``bind(value)`` gives it a value. Variables of one name are one: they have one value in an expression. Raises ArgumentError for
  a name that is none and for bounds without a value between them.
  """

  def __init__(self, name: str, lower: int, upper: int):
    if not isinstance(name, str) or not name.isidentifier(): raise ArgumentError(f"Variable: a name, got {shown(name)}")
    for what, n in (("lower", lower), ("upper", upper)):
      if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 1 << 31:
        raise ArgumentError(f"Variable {name}: the {what} bound is an int from 0 to 2**31 - 1, got {shown(n)}")
    if lower > upper: raise ArgumentError(f"Variable {name}: no value from {lower} to {upper}")
    self.name, self.lower, self.upper = name, lower, upper

  def bind(self, value: int) -> int:
    """An int, ``value``, that is this variable's. Raises ShapeError for one out of bounds."""
    if isinstance(value, bool) or not isinstance(value, int): raise ArgumentError(f"{self}: an int, got {shown(value)}")
    if not self.lower <= value <= self.upper:
      raise ShapeError(f"{self.name} is from {self.lower} to {self.upper}, got {value}; give the Variable bounds that have it")
    return Bound.of(int(value), UOp(Ops.SIZE, ix.INT, (), ix.Size(self.name, self.lower, self.upper, hint=int(value))))

  def __repr__(self) -> str: return f"Variable({self.name!r}, {self.lower}, {self.upper})"


__all__ = ["Bound", "Variable"]
