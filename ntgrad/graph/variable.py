"""Variables: sizes that a person says will have other values. ``n = Variable("n", 1, 4096); cache[:, :n.bind(17)]``.

A bound variable is an int, its value now, that remembers what it is made of: ``n.bind(17) + 1`` is 18 and n + 1. Where such an
int is a size in tensor code, kernels are made for all its values from the first time on.
"""
from __future__ import annotations

import operator
import sys
from types import FrameType
from typing import Any, Callable, NamedTuple, cast

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import ArgumentError, DType, Ops, ShapeError, UOp, held, shown

from .origins import HERE

_LONGEST = 400   # characters of how a float is made, that it remembers


class Looked(NamedTuple):
  """A comparison of two values, ``said`` being how it came out."""
  fn: Callable[[UOp, UOp], UOp]
  a: UOp
  b: UOp
  said: bool


# while ntgrad.jit records: the comparisons that BoundInts took part in
looks: list[dict[Looked, None]] = []


def _internal(frame: Callable[[int], FrameType] = sys._getframe, here: str = HERE) -> bool:
  """Whether whoever asks a number for its hash, say, is ntgrad's code. (Modules may be gone when the interpreter ends.)"""
  return frame(2).f_code.co_filename.startswith(here)


def _hash(self: BoundInt, internal: Callable[[], bool] = _internal, plain: Callable[[int], int] = int.__hash__,
          both: Callable[[Any], int] = hash) -> int:
  if internal(): return both((plain(self), self.node))
  if looks: looks[-1][Looked(ix.eq, self.node, ix.const(plain(self)), True)] = None   # who looks it up may not find another value
  return plain(self)


class BoundInt(int):
  """An int that is the value of an expression of Variables. Sums, products, quotients and remainders with ints are such ints
  again; everything else about it is an int's.

  In tables of ntgrad's own, ints that stand for different expressions are different keys.
  """
  node: UOp
  __hash__ = _hash

  @staticmethod
  def of(value: int, node: UOp) -> int:
    """The value of an expression; an int where no variable is left in it."""
    if node.op is Ops.CONST: return int(value)
    out = BoundInt(value)
    out.node = node
    return out

  def __truediv__(self, other: Any) -> Any: return real(self) / other
  def __rtruediv__(self, other: Any) -> Any: return other / real(self)
  def __divmod__(self, other: Any) -> Any: return self // other, self % other
  def __rdivmod__(self, other: Any) -> Any: return other // self, other % self
  def __pow__(self, other: Any, modulo: Any = None) -> Any:
    if type(other) is not int or not 0 <= other <= 4 or modulo is not None: return int.__pow__(self, other, modulo)
    out: int = 1
    for _ in range(other): out = out * self
    return out
  def rounded(self, dtype: DType) -> Any:
    """The number that an element of a dtype of floats holds."""
    return cast(Derived, real(self)).rounded(dtype)
  @property
  def val(self) -> int:
    """The value now, as an int that forgets what it is made of."""
    return int(self)
  def unbind(self) -> tuple[Variable, int]:
    """The Variable and its value. Raises ArgumentError for an expression, which is not one Variable."""
    size = self.node.arg
    if self.node.op is not Ops.SIZE or size.upper is None:
      raise ArgumentError(f"unbind: {int(self)} is no Variable's value, but made of sizes; unbind the Variables")
    return Variable(size.name, size.lower, size.upper), int(self)
  def __bool__(self) -> bool:
    said = int(self) != 0
    if looks: looks[-1][Looked(ix.eq, self.node, ix.ZERO, not said)] = None
    return said
  def __neg__(self) -> int: return self * -1
  def __pos__(self) -> int: return self
  def __reduce__(self) -> Any: return int, (int(self),)
  def __copy__(self) -> int: return self
  def __deepcopy__(self, memo: Any) -> int: return self


def _method(fn: Callable[[int, int], int], made: Callable[[UOp, UOp], UOp], swapped: bool) -> Callable[[BoundInt, Any], Any]:
  def method(self: BoundInt, other: Any) -> Any:
    if isinstance(other, float) and made in (ix.add, ix.sub, ix.mul):
      mine: Any = real(self)
      return fn(other, mine) if swapped else fn(mine, other)  # type: ignore[arg-type]
    if not isinstance(other, int) or isinstance(other, bool): return NotImplemented
    a, b = (other, self) if swapped else (self, other)
    value = fn(int(a), int(b))
    if made in (ix.fdiv, ix.mod):
      if int(b) < 1: return value
      if looks and isinstance(b, BoundInt): looks[-1][Looked(ix.ge, b.node, ix.ONE, True)] = None
    return BoundInt.of(value, made(_node(a), _node(b)))
  return method


def _node(n: int) -> UOp: return n.node if isinstance(n, BoundInt) else ix.const(int(n))


for _name, _fn, _made in (("add", operator.add, ix.add), ("sub", operator.sub, ix.sub), ("mul", operator.mul, ix.mul),
                          ("floordiv", operator.floordiv, ix.fdiv), ("mod", operator.mod, ix.mod)):
  setattr(BoundInt, f"__{_name}__", _method(_fn, _made, False))
  setattr(BoundInt, f"__r{_name}__", _method(_fn, _made, True))


def _compared(fn: Callable[[int, Any], Any], made: Callable[[UOp, UOp], UOp]) -> Callable[[BoundInt, Any], Any]:
  def method(self: BoundInt, other: Any) -> Any:
    said = fn(self, other)
    if looks and said is not NotImplemented and isinstance(other, int):
      # a number of 2 or more that it equals in ntgrad's own tables says nothing: that it is no constant shows at another value
      holds = bool(said) is not (fn is int.__ne__)
      if made is not ix.eq or not holds or isinstance(other, BoundInt) or other < 2 or not _internal():
        looks[-1][Looked(made, self.node, _node(other), holds)] = None
    return said
  return method


_comparisons: tuple[tuple[str, Any], ...] = (
  ("lt", ix.lt), ("ge", ix.ge), ("eq", ix.eq), ("ne", ix.eq), ("gt", lambda a, b: ix.lt(b, a)), ("le", lambda a, b: ix.ge(b, a)))
for _name, _made in _comparisons:
  setattr(BoundInt, f"__{_name}__", _compared(getattr(int, f"__{_name}__"), _made))


class Derived(float):
  """A float that is made of values of Variables with + - * / and **: 1 / n. ``make`` computes it, given a function that tells
  the value of an expression. ``nodes`` are the expressions. ``text`` tells one way of making from another."""
  make: Callable[[Callable[[UOp], int]], float]
  text: str
  nodes: tuple[UOp, ...]

  @staticmethod
  def of(value: float, make: Callable[[Callable[[UOp], int]], float], text: str, nodes: tuple[UOp, ...]) -> Any:
    """A float that remembers; one that has forgotten where that would be long."""
    if len(text) > _LONGEST: return value
    out = Derived(value)
    out.make, out.text, out.nodes = make, text, nodes
    return out

  def rounded(self, dtype: DType) -> Any:
    """The number that an element of a dtype of floats holds."""
    make = self.make
    return Derived.of(held(float(self), dtype), lambda value: held(make(value), dtype), f"{dtype.name}({self.text})", self.nodes)

  def hex(self) -> str:
    """A text that only an equal number, made in the same way, has."""
    return f"{float.hex(self)} {self.text}"
  def __hash__(self) -> int: return hash(self.hex()) if _internal() else float.__hash__(self)
  def __eq__(self, other: Any) -> bool:
    return self.hex() == other.hex() if type(other) is Derived and _internal() else float(self) == other
  def __ne__(self, other: Any) -> bool: return not self == other
  def __neg__(self) -> Any: return self * -1.0
  def __float__(self) -> float: return float.__add__(self, 0.0)
  def __reduce__(self) -> Any: return float, (float(self),)
  def __copy__(self) -> float: return self
  def __deepcopy__(self, memo: Any) -> float: return self


def real(n: float) -> float:
  """A number as a float, which remembers what it is made of if the number does."""
  if type(n) is not BoundInt: return n if type(n) is Derived else float(n)
  node = n.node
  return cast(float, Derived.of(float(int(n)), lambda value: float(value(node)), f"s{id(node):x}", (node,)))


def _float_method(name: str, fn: Callable[[float, float], float], swapped: bool) -> Callable[[Derived, Any], Any]:
  def method(self: Derived, other: Any) -> Any:
    if not isinstance(other, (int, float)) or isinstance(other, bool): return NotImplemented
    a, b = (real(other), self) if swapped else (self, real(other))
    value = fn(float(a), float(b))
    if type(value) is not float: return value   # a power that is complex
    f, g = _maker(a), _maker(b)
    nodes = tuple([n for x in (a, b) if type(x) is Derived for n in x.nodes])
    return Derived.of(value, lambda v: fn(f(v), g(v)), f"({_text(a)} {name} {_text(b)})", nodes)
  return method


def _maker(x: float) -> Callable[[Callable[[UOp], int]], float]: return x.make if isinstance(x, Derived) else lambda value: x
def _text(x: float) -> str: return x.text if isinstance(x, Derived) else x.hex()


for _name, _fn in (("add", operator.add), ("sub", operator.sub), ("mul", operator.mul), ("truediv", operator.truediv),
                   ("pow", operator.pow)):
  setattr(Derived, f"__{_name}__", _float_method(_name, _fn, False))
  setattr(Derived, f"__r{_name}__", _float_method(_name, _fn, True))


class Variable:
  """A size with a name whose value may change from run to run: ``Variable("n", 1, 4096)`` is from 1 to 4096, both included.

  ``bind(value)`` gives it a value. Variables of one name are one: they have one value in an expression. Raises ArgumentError for
  a name that is none and for bounds without a value between them.
  """

  def __init__(self, name: str, lower: int, upper: int):
    if not isinstance(name, str) or not name.isidentifier(): raise ArgumentError(f"Variable: a name, got {shown(name)}")
    for what, n in ("lower", lower), ("upper", upper):
      if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 1 << 31:
        raise ArgumentError(f"Variable {name}: the {what} bound is an int from 0 to 2**31 - 1, got {shown(n)}")
    if lower > upper: raise ArgumentError(f"Variable {name}: no value from {lower} to {upper}")
    self.name, self.lower, self.upper = self.expr, self.vmin, self.vmax = name, lower, upper

  def _unbound(self, *_: Any) -> Any:
    raise ArgumentError(f"{self} has no value yet; compute with a value of it: {self.name}.bind({self.lower})")
  __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _unbound
  __lt__ = __le__ = __gt__ = __ge__ = __neg__ = _unbound

  def bind(self, value: int) -> int:
    """An int, ``value``, that is this variable's. Raises ShapeError for one out of bounds."""
    if isinstance(value, bool) or not isinstance(value, int): raise ArgumentError(f"{self}: an int, got {shown(value)}")
    if not self.lower <= value <= self.upper:
      raise ShapeError(f"{self.name} is from {self.lower} to {self.upper}, got {value}; give the Variable bounds that have it")
    return BoundInt.of(int(value), ix.Size(self.name, self.lower, self.upper).node)

  def __repr__(self) -> str: return f"Variable({self.name!r}, {self.lower}, {self.upper})"
