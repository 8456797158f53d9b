"""Symbols: integers without a value yet, as people write them in shapes and tile sizes.

A Symbol is an expression of index arithmetic (``codegen/index/algebra.py``) over run-time sizes, in its one canonical form. A
divisor is taken to be 1 or more. sympy's expressions are taken and given.
"""
from __future__ import annotations

import ast
import itertools
import operator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Callable, Mapping, Sequence, Union

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import assumes, condition_holds, from_parts, negated, size_nodes, text_of, without_options
from ntgrad.codegen.ir import ArgumentError, BinaryOps, DType, Ops, UOp, shown, toposort
from ntgrad.codegen.kernel import substitute

from .symbol_sympy import PLAIN_OPERATORS, as_comparison, from_sympy, is_sympy, never_negative, to_sympy

_UNKNOWN = 1 << 62   # a bound as far out says nothing

Expr = Union[int, "Symbol"]
Bounds = tuple[int | None, int | None]

_INTS: dict[BinaryOps, Callable[[int, int], int]] = {
  **PLAIN_OPERATORS, BinaryOps.IDIV: operator.floordiv, BinaryOps.MOD: operator.mod, BinaryOps.MAX: max, BinaryOps.MIN: min}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
  "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}


# ---- arithmetic of ints and Symbols

def _operands(a: Any, b: Any) -> tuple[UOp, UOp] | None:
  """Two operands as indices; None where one is no integer."""
  try: return _node(a), _node(b)
  except ArgumentError: raise
  except TypeError: return None


def _made(fn: Callable[[UOp, UOp], UOp], a: Any, b: Any) -> Any:
  if (operands := _operands(a, b)) is None: return NotImplemented
  out = fn(*operands)
  x, y = map(size_nodes, operands)
  if x is not y: _check_options(x | y)
  return Symbol._of(out)


def _power(a: UOp, b: UOp) -> UOp:
  if ix.vmax(b) < 0: raise ArgumentError(f"{text_of(a)}**{text_of(b)}: a negative power is no integer")
  return ix.power(a, b)


def _divided(a: UOp, b: UOp) -> tuple[UOp, UOp, int]:
  """a, b -> a', b', sign: with b' 1 or more where it is known, b' == sign * b."""
  if b is ix.ZERO: raise ArgumentError(f"{text_of(a)} divided by 0")
  return (ix.mul(a, -1), ix.mul(b, -1), -1) if ix.vmax(b) < 0 else (a, b, 1)


def _floor(a: UOp, b: UOp) -> UOp: return ix.fdiv(*_divided(a, b)[:2])
def _ceil(a: UOp, b: UOp) -> UOp: return ix.cdiv(*_divided(a, b)[:2])


def _modulo(a: UOp, b: UOp) -> UOp:
  x, d, sign = _divided(a, b)
  return ix.mul(ix.mod(x, d), sign)


_Method = Callable[[Any, Any], Any]


def _operator(fn: Callable[[UOp, UOp], UOp]) -> tuple[_Method, _Method]:
  """The methods of an operator whose Symbol is on the left, and on the right."""
  return lambda a, b: _made(fn, a, b), lambda b, a: _made(fn, a, b)


def _comparison(op: str) -> _Method: return lambda a, b: _compared(op, a, b)


class Symbol:
  """An integer without a value yet: a name, or an expression of names.

  ``name`` is a name, an expression as text (``"2*K + 1"``), an int, a Symbol, or an expression of sympy. ``constexpr``: its value
  is part of the kernel. ``meta``: the tuner chooses it (so it is constexpr), by default a power of two from 16 to 1024.
  ``lower_bound`` and ``upper_bound`` are included. Symbols of one name are equal, and have the same options where they meet.
  Raises ArgumentError for a name that is none, options on an expression, bounds without a value between them.
  """
  __slots__ = "node", "__weakref__"
  node: UOp

  def __init__(self, name: Any, constexpr: bool = False, meta: bool = False, lower_bound: int | None = None,
               upper_bound: int | None = None, power_of_two: bool | None = None):
    known = isinstance(name, str | int | Symbol) or is_sympy(name)
    if not known or isinstance(name, int) and not -ix.FAR <= name < ix.FAR:
      raise ArgumentError(f"Symbol: a name, an expression or an int of 64 bits, got {shown(name)}")
    if not all(x is None or isinstance(x, bool) for x in (constexpr, meta, power_of_two)):
      raise ArgumentError(f"Symbol {name}: constexpr, meta and power_of_two are True or False, "
                          f"got {shown((constexpr, meta, power_of_two))}")
    if isinstance(name, str) and name.isidentifier():
      if meta:
        if lower_bound is None: lower_bound = 16 if upper_bound is None else min(16, upper_bound)
        if upper_bound is None: upper_bound = max(1024, lower_bound)
      power = bool(meta if power_of_two is None else power_of_two)
      size = ix.Size(name, lower_bound, upper_bound, bool(constexpr or meta), bool(meta), power)
      _check_bounds(size)
      self.node = size.node
      return
    if constexpr or meta or power_of_two or lower_bound is not None or upper_bound is not None:
      raise ArgumentError(f"Symbol: options are those of a name, and {name} is an expression")
    self.node = _node(_parsed(name) if isinstance(name, str) else name)

  @staticmethod
  def _of(node: UOp) -> int | Symbol:
    """An expression as a Symbol, or as the int that it is."""
    return int(node.arg) if node.op is Ops.CONST else _symbol(node)

  # ---- what it is

  @property
  def is_name(self) -> bool:
    """Whether it is one name, not an expression."""
    return self.node.op is Ops.SIZE

  @property
  def name(self) -> str:
    """The name, or the expression's text."""
    return self.node.arg.name if self.is_name else str(self)

  @property
  def lower_bound(self) -> int | None:
    """The least value of a name, None where there is none."""
    return self.node.arg.lower if self.is_name else None

  @property
  def upper_bound(self) -> int | None:
    """The greatest value of a name, None where there is none."""
    return self.node.arg.upper if self.is_name else None

  @property
  def constexpr(self) -> bool:
    """Whether its value is part of the kernel; of an expression, whether all of its names are so."""
    return all(s.arg.constexpr for s in size_nodes(self.node))

  @property
  def meta(self) -> bool:
    """Whether it is a name whose value the tuner chooses."""
    return bool(self.is_name and self.node.arg.meta)

  @property
  def power_of_two(self) -> bool:
    """Whether it is a name whose values are powers of two."""
    return bool(self.is_name and self.node.arg.power_of_two)

  @property
  def bounds(self) -> Bounds:
    """The least and the greatest value that it can have, None where that is not known."""
    lo, hi = ix.bounds(self.node)
    return None if lo <= -_UNKNOWN else lo, None if hi >= _UNKNOWN else hi

  def names(self) -> frozenset[Symbol]:
    """The names that it is made of."""
    return frozenset(map(_symbol, size_nodes(self.node)))

  def refusal(self, value: int) -> str:
    """A sentence about a value that is out of bounds, or no power of two where it must be; empty for one that fits."""
    low, high = self.lower_bound, self.upper_bound
    power = self.power_of_two and (value < 1 or value & (value - 1))
    if (low is None or value >= low) and (high is None or value <= high) and not power: return ""
    return (f"{self} is between {0 if low is None else low} and {'any' if high is None else high}"
            f"{', a power of two' if self.power_of_two else ''}, got {value}")

  def subs(self, mapping: Mapping[Any, Any]) -> int | Symbol:
    """With ``mapping``'s ints or Symbols for names (given as text or as Symbols); an int where nothing is left open."""
    values = {k.name if isinstance(k, Symbol) else k: v for k, v in mapping.items()}
    table = {s: _node(values[s.arg.name]) for s in size_nodes(self.node) if s.arg.name in values}
    if not table: return self
    new, = substitute((self.node,), table)
    _check_options(size_nodes(new))
    return Symbol._of(new)

  def __repr__(self) -> str: return text_of(self.node)
  def __hash__(self) -> int: return hash(self.node.arg if self.node.op is Ops.CONST else without_options(self.node))
  def __reduce__(self) -> Any:
    number = {n: i for i, n in enumerate(toposort((self.node,)))}
    return _restored, ([(n.op, n.dtype, tuple(number[s] for s in n.src), n.arg) for n in number],)

  def __bool__(self) -> bool:
    lo, hi = ix.bounds(self.node)
    if lo > 0 or hi < 0: return True
    raise ArgumentError(f"{self}: whether it is 0 is not known before it has a value")

  def __index__(self) -> int:
    """While a kernel is made for sizes with hints: the number that it is then, which the kernel is for from there on."""
    if not has_hints(self): raise TypeError(f"{self}: a Symbol has no value yet")
    n = ix.hint(self.node)
    if not condition_holds(ix.eq(self.node, n)): raise TypeError(f"{self}: several values are assumed of it")
    return n

  def _sympy_(self) -> Any: return to_sympy(self.node)

  # ---- arithmetic

  __add__, __radd__ = _operator(ix.add)
  __sub__, __rsub__ = _operator(ix.sub)
  __mul__, __rmul__ = _operator(ix.mul)
  __pow__, __rpow__ = _operator(_power)
  __floordiv__, __rfloordiv__ = _operator(_floor)
  __mod__, __rmod__ = _operator(_modulo)

  def __neg__(self) -> Any: return Symbol._of(ix.mul(self.node, -1))
  def __pos__(self) -> Symbol: return self

  def __truediv__(self, other: Any) -> Any:
    raise ArgumentError(f"{self} / {other}: a Symbol is an integer; a // b rounds down, cdiv(a, b) rounds up")

  def __rtruediv__(self, other: Any) -> Any:
    raise ArgumentError(f"{other} / {self}: a Symbol is an integer; a // b rounds down, cdiv(a, b) rounds up")

  __lt__, __le__, __gt__, __ge__ = map(_comparison, ("<", "<=", ">", ">="))
  __eq__, __ne__ = map(_comparison, ("==", "!="))


@dataclass(frozen=True, slots=True)
class Condition:
  """A comparison of which the result is not known yet: ``N < 4``. ``evaluate`` gives it one. As a bool it is an error; but ``==``
  is whether both are the same expression, so that Symbols are found in lists and tables."""
  op: str
  a: int | Symbol
  b: int | Symbol

  @property
  def node(self) -> UOp: return compared(self.op, _node(self.a), _node(self.b))

  def __bool__(self) -> bool:
    if has_hints(self.a) and has_hints(self.b): return condition_holds(self.node)
    if self.op in ("==", "!="): return self.op == "!="
    raise ArgumentError(f"{self}: not known before {', '.join(sorted(s.name for s in symbols_of(self)))} has a value")

  def __repr__(self) -> str: return f"{self.a} {self.op} {self.b}"

  def subs(self, mapping: Mapping[Any, Any]) -> bool | Condition:
    """With ``mapping``'s values for names; a bool where that decides it."""
    return _compared(self.op, *(e if isinstance(e, int) else e.subs(mapping) for e in (self.a, self.b)))


def compared(op: str, a: UOp, b: UOp) -> UOp:
  """A comparison of sizes as a node."""
  if op in ("==", "!="):
    same = ix.eq(a, b)
    return same if op == "==" else UOp.const(same.dtype, not same.arg) if same.op is Ops.CONST else negated(same)
  if op in (">", ">="): a, b = b, a
  return ix.lt(a, b if op in ("<", ">") else ix.add(b, 1))


def _restored(nodes: list[tuple[Ops, DType, tuple[int, ...], Any]]) -> int | Symbol:
  made: list[UOp] = []
  for op, dtype, src, arg in nodes: made.append(UOp(op, dtype, tuple(made[i] for i in src), arg))
  return Symbol._of(made[-1])


# ---- names


def _check_bounds(size: ix.Size) -> None:
  name, lo, hi = size[:3]
  if any(b is not None and (isinstance(b, bool) or not isinstance(b, int) or not -ix.FAR <= b < ix.FAR) for b in (lo, hi)):
    raise ArgumentError(f"Symbol {name}: bounds are ints of 64 bits, got {shown(lo)} and {shown(hi)}")
  if size.meta and lo is not None and lo < 1:
    raise ArgumentError(f"Symbol {name}: the tuner chooses sizes of 1 or more, the lower bound is {lo}")
  if lo is None or hi is None: return
  if lo > hi: raise ArgumentError(f"Symbol {name}: the lower bound {lo} is greater than the upper bound {hi}")
  if size.power_of_two and 1 << (max(lo, 1) - 1).bit_length() > hi:
    raise ArgumentError(f"Symbol {name}: there is no power of two from {lo} to {hi}")


def _check_options(sizes: frozenset[UOp]) -> None:
  """Raises ArgumentError where two names differ in nothing but their options."""
  if name := _two_of_a_name(sizes):
    raise ArgumentError(f"two Symbols of the name {name} have different options; make one and use it twice")


def _two_of_a_name(sizes: frozenset[UOp]) -> str:
  known = {s.arg.name: s for s in sizes}
  return "" if len(known) == len(sizes) else next(s.arg.name for s in sizes if known[s.arg.name] is not s)


def _symbol(node: UOp) -> Symbol:
  out = Symbol.__new__(Symbol)
  out.node = node
  return out


def _node(e: Any) -> UOp:
  """An int, a Symbol or an expression of sympy as an index."""
  return e.node if isinstance(e, Symbol) else from_sympy(e) if is_sympy(e) else ix.const(operator.index(e))


# ---- functions of ints and Symbols

def cdiv(a: int | Symbol, b: int | Symbol) -> Any:
  """a / b rounded up, for ints and Symbols, b > 0: how many tiles of b it takes to cover a. Raises ArgumentError."""
  if not all(isinstance(x, Integral | Symbol) and not isinstance(x, bool) or is_sympy(x) for x in (a, b)):
    raise ArgumentError(f"cdiv of {shown(a)} and {shown(b)}; it takes whole numbers and Symbols")
  if isinstance(a, int) and isinstance(b, int):
    if b == 0: raise ArgumentError(f"cdiv({a}, 0): divided by 0")
    return -(-a // b)
  return _made(_ceil, a, b)


def maximum(a: int | Symbol, b: int | Symbol) -> Any: return _made(ix.greatest, a, b)


def minimum(a: int | Symbol, b: int | Symbol) -> Any: return _made(ix.least, a, b)


def bounds_of(e: int | Symbol) -> Bounds:
  """The least and the greatest value, None where that is not known."""
  return e.bounds if isinstance(e, Symbol) else (e, e)


def condition_of(e: Any) -> bool | Condition:
  """What is checked: a bool, a Condition, or a comparison of sympy. Raises ArgumentError for anything else."""
  if isinstance(e, bool | Condition): return e
  found = as_comparison(e) if is_sympy(e) else None
  if found is None: raise ArgumentError(f"a condition compares sizes, as N % 16 == 0 does; got {shown(e)}")
  return _compared(*found)


def symbols_of(e: int | Symbol | Condition) -> frozenset[Symbol]:
  """The names that an expression is made of."""
  if isinstance(e, Condition): return symbols_of(e.a) | symbols_of(e.b)
  return e.names() if isinstance(e, Symbol) else frozenset()


def _compared(op: str, a: Any, b: Any) -> Any:
  """A comparison: a bool where the bounds of the difference decide it, else a Condition."""
  if (operands := _operands(a, b)) is None: return NotImplemented
  x, y = operands
  if op in ("==", "!="):
    if without_options(x) is without_options(y): return op == "=="
    if _two_of_a_name(size_nodes(x) | size_nodes(y)): return op == "!="
  difference = _made(ix.sub, a, b)
  lo, hi = bounds_of(difference)
  fn = _COMPARE[op]
  if lo is not None and lo == hi: return bool(fn(lo, 0))
  if op in ("==", "!="):
    if lo is not None and lo > 0 or hi is not None and hi < 0: return op == "!="
  else:
    for edge, known in (lo, True), (hi, False):  # decided where the least, or the greatest, difference already is
      if edge is not None and fn(edge, 0) == ((op in (">", ">=")) == known): return bool(fn(edge, 0))
    above = difference.node if op in (">", ">=") else (-difference).node   # the question: is this > 0, or >= 0
    strict = int(op in ("<", ">"))
    if never_negative(ix.sub(above, strict)): return True
    if never_negative(ix.sub(ix.mul(above, -1), 1 - strict)): return False
  return Condition(op, Symbol._of(x), Symbol._of(y))


def has_hints(e: int | Symbol) -> bool:
  """Whether what an expression is may be assumed: a kernel is being made for sizes of which a likely value is known."""
  return assumes() and (not isinstance(e, Symbol) or all(s.arg.hint is not None for s in size_nodes(e.node)))


def evaluate_size(e: Any, values: Mapping[str, Any]) -> ix.Dim:
  """``evaluate`` where values may be expressions of run-time sizes too; an int where nothing is left open."""
  if not isinstance(e, Symbol): return operator.index(e)
  if any(s.arg.name not in values for s in size_nodes(e.node)): raise _without_value(e, values)
  return ix.number(substitute((e.node,), {s: ix.node(values[s.arg.name]) for s in size_nodes(e.node)})[0])


def _without_value(e: Symbol, values: Mapping[str, Any]) -> ArgumentError:
  return ArgumentError(f"{e}: no value for {', '.join(sorted({s.arg.name for s in size_nodes(e.node)} - values.keys()))}")


def evaluate(e: Any, values: Mapping[str, int]) -> int:
  """The value of an int, Symbol or Condition where names have ``values``. Raises ArgumentError with the names that have none."""
  if e.__class__ is int: return int(e)
  if isinstance(e, Condition): return bool(_COMPARE[e.op](evaluate(e.a, values), evaluate(e.b, values)))
  if not isinstance(e, Symbol): return operator.index(e)
  got: dict[UOp, int] = {}
  try:
    for u in toposort((e.node,)):
      if u.op is Ops.CONST: got[u] = u.arg
      elif u.op is Ops.SIZE: got[u] = values[u.arg.name]
      else: got[u] = _INTS[u.arg](got[u.src[0]], got[u.src[1]])
  except KeyError: raise _without_value(e, values) from None
  except ZeroDivisionError:
    raise ArgumentError(
      f"{e}: division by 0 where "
      f"{', '.join(f'{name} = {values[name]}' for name in sorted(s.arg.name for s in size_nodes(e.node)))}") from None
  return got[e.node]


def solved(e: Symbol, n: int, values: Mapping[str, int]) -> tuple[Symbol, int] | None:
  """The name that is left in ``e == n`` where others have ``values``, and what it is: K and 3 for ``2*K + 1 == 7``. None where
  none or several are left, or it is not in a sum. Raises ArgumentError where no whole number does."""
  left = e.subs({s.name: values[s.name] for s in e.names() if s.name in values})
  if isinstance(left, int) or len(left.names()) != 1: return None
  terms, c = ix.linear(left.node)
  if len(terms) != 1 or terms[0][0].op is not Ops.SIZE: return None
  (size, k), = terms
  if (n - c) % k: raise ArgumentError(f"{e} is {n} for no {size.arg.name}{f', where it is {left}' if left != e else ''}")
  return _symbol(size), (n - c) // k


_count = itertools.count()


def block_size(lower_bound: int | None = None, upper_bound: int | None = None) -> Symbol:
  """A tile size that the tuner chooses: a power of two within the bounds (16 to 1024 unless told)."""
  return Symbol(f"BLOCK_SIZE_{next(_count)}", meta=True, lower_bound=lower_bound, upper_bound=upper_bound)


# ---- text

_CALLS: dict[str, Callable[[Any, Any], Any]] = {"cdiv": cdiv, "max": maximum, "min": minimum}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
  ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
  ast.Pow: operator.pow}


def _parsed(text: str) -> int | Symbol:
  try: root: ast.AST = ast.parse(text, mode="eval").body
  except SyntaxError: raise ArgumentError(f"Symbol: {shown(text)} is neither a name nor an expression") from None
  except (RecursionError, MemoryError):
    raise ArgumentError(f"Symbol: {shown(text)} is nested deeper than Python reads; make it of parts, with Python's "
                        "operators") from None
  def made(n: ast.AST, values: Mapping[ast.AST, Any]) -> Any:
    fn, parts = _read(text, n)
    return fn(*[values[p] for p in parts])
  return from_parts(root, lambda n: _read(text, n)[1], made)


def _read(text: str, n: ast.AST) -> tuple[Callable[..., Any], Sequence[ast.AST]]:
  """How a part of an expression is made, and of which operands."""
  match n:
    case ast.Constant(value=int(value)): return lambda: value, ()
    case ast.Name(id=name): return lambda: Symbol(name), ()
    case ast.UnaryOp(op=ast.USub(), operand=of): return operator.neg, (of,)
    case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS: return _OPERATORS[type(op)], (a, b)
    case ast.Call(func=ast.Name(id=name), args=[a, b], keywords=[]) if name in _CALLS: return _CALLS[name], (a, b)
  raise ArgumentError(f"Symbol: {shown(text)} is neither a name nor an expression of names, ints, + - * // % ** and cdiv")
