"""Symbols: integers without a value yet, as people see them in shapes and tile sizes.

An expression keeps the form in which it was written; two are equal where their keys are (``algebra.py``). Index arithmetic inside
kernels is not made of these (``index.py``).
"""
from __future__ import annotations

import ast
import functools
import itertools
import operator
from numbers import Integral
from typing import Any, Callable, Mapping, Sequence, Union

import sympy

from .algebra import (
  INTS,
  CeilDiv,
  FloorDiv,
  Form,
  Greater,
  Key,
  Lesser,
  Modulo,
  divided,
  form_of,
  key_of,
  run,
  sources_first,
  text_of,
)
from .errors import ArgumentError, shown

Expr = Union[int, "Symbol"]
Bounds = tuple[int | None, int | None]

_APPLY: dict[str, Callable[[Any, Any], Any]] = {
  "+": operator.add, "*": operator.mul, "**": operator.pow, "//": operator.floordiv, "%": operator.mod,
  "cdiv": lambda a, b: cdiv(a, b), "max": lambda a, b: maximum(a, b), "min": lambda a, b: minimum(a, b)}


def _replaced(form: Form, values: Mapping[str, Any]) -> Any:
  """The expression with ``values`` for names, made again with Python's operators."""
  got: list[Any] = []
  for step in form:
    if isinstance(step, tuple): got.append(_applied(step[0], [got[i] for i in step[1:]]))
    else: got.append(step if isinstance(step, int) else values[step])
  return got[-1]


def _applied(op: str, operands: list[Any]) -> Any:
  """An operator between operands: sums and products of many are made at once."""
  if len(operands) == 2: return _APPLY[op](*operands)
  node = sympy.Add if op == "+" else sympy.Mul
  return Symbol._of(node(*map(_expr_of, operands)), functools.reduce(_merged, map(_free_of, operands)))


# ---- bounds

def _both(fn: Callable[[int, int], int], *pairs: tuple[int | None, int | None]) -> list[int] | None:
  return (
    None if any(a is None or b is None for a, b in pairs) else [fn(a, b) for a, b in pairs if a is not None and b is not None]
  )


def _bounds(form: Form, free: Mapping[str, Symbol]) -> Bounds:
  got: list[Bounds] = []
  for step in form:
    if isinstance(step, int): got.append((step, step))
    elif isinstance(step, str): got.append((free[step].lower_bound, free[step].upper_bound))
    else: got.append(functools.reduce(functools.partial(_between, step[0]), [got[i] for i in step[1:]]))
  return got[-1]


def _between(op: str, a: Bounds, b: Bounds) -> Bounds:
  """The bounds of a function of two numbers."""
  (lo, hi), (b_lo, b_hi) = a, b
  if op == "+": lo, hi = None if lo is None or b_lo is None else lo + b_lo, None if hi is None or b_hi is None else hi + b_hi
  elif op == "*":
    corners = _both(operator.mul, (lo, b_lo), (lo, b_hi), (hi, b_lo), (hi, b_hi))
    if corners: lo, hi = min(corners), max(corners)
    elif lo is not None and b_lo is not None and lo >= 0 and b_lo >= 0: lo, hi = lo * b_lo, None
    else: lo, hi = None, None
  elif op in ("//", "cdiv") and b_lo is not None and b_lo > 0:
    div = INTS[op]
    least = (
      None
      if lo is None
      else div(lo, b_lo)
      if lo < 0
      else div(lo, b_hi)
      if b_hi is not None
      else min(lo, 1)
      if op == "cdiv"
      else 0
    )
    most = None if hi is None else div(hi, b_lo) if hi >= 0 else div(hi, b_hi) if b_hi is not None else 0 if op == "cdiv" else -1
    lo, hi = least, most
  elif op == "%" and b_lo is not None and b_lo > 0: lo, hi = 0, None if b_hi is None else b_hi - 1
  elif op == "max":
    lo = b_lo if lo is None else lo if b_lo is None else max(lo, b_lo)
    hi = None if hi is None or b_hi is None else max(hi, b_hi)
  elif op == "min":
    lo = None if lo is None or b_lo is None else min(lo, b_lo)
    hi = b_hi if hi is None else hi if b_hi is None else min(hi, b_hi)
  elif op == "**" and lo is not None and b_lo is not None and lo >= 1 and b_lo >= 0:
    lo, hi = lo ** b_lo, None if hi is None or b_hi is None else hi ** b_hi
  else: lo, hi = None, None
  return lo, hi


# ---- Symbols

class Symbol:
  """An integer without a value yet: a name, or an expression of names.

  ``constexpr``: its value is part of the kernel. ``meta``: the tuner chooses it (so it is constexpr), by default a power of two
  from 16 to
  1024. ``lower_bound`` and ``upper_bound`` are included. Symbols of one name are the same symbol. Raises ArgumentError for a name
  that is none, options on an expression, bounds without a value between them.
  """

  __slots__ = (
    "expr",
    "free",
    "constexpr",
    "meta",
    "lower_bound",
    "upper_bound",
    "power_of_two",
    "_known_key",
    "_known_form",
    "__weakref__",
  )
  expr: Key
  free: dict[str, Symbol]
  _known_key: Key
  _known_form: Form | None
  lower_bound: int | None
  upper_bound: int | None

  def __init__(self, name: str | int | Symbol, constexpr: bool = False, meta: bool = False, lower_bound: int | None = None,
               upper_bound: int | None = None, power_of_two: bool | None = None):
    if not isinstance(name, str | int | Symbol) or (isinstance(name, int) and not -2 ** 63 <= name < 2 ** 63):
      raise ArgumentError(f"Symbol: a name, an expression or an int of 64 bits, got {shown(name)}")
    if not all(x is None or isinstance(x, bool) for x in (constexpr, meta, power_of_two)):
      raise ArgumentError(
        f"Symbol {name}: constexpr, meta and power_of_two are True or False, got {shown((constexpr, meta, power_of_two))}"
      )
    options = bool(constexpr or meta or power_of_two) or lower_bound is not None or upper_bound is not None
    self._known_key = self._known_form = None
    self.meta, self.constexpr = bool(meta), bool(constexpr or meta)
    self.power_of_two = bool(meta if power_of_two is None else power_of_two)
    self.lower_bound = 16 if meta and lower_bound is None else lower_bound
    self.upper_bound = max(1024, self.lower_bound or 0) if meta and upper_bound is None else upper_bound
    if meta and lower_bound is None and upper_bound is not None: self.lower_bound = min(16, upper_bound)
    if isinstance(name, str) and name.isidentifier():
      self.expr, self.free = sympy.Symbol(name, integer=True), {name: self}
      self._check_bounds(name)
      return
    if options: raise ArgumentError(f"Symbol: options are those of a name, and {name} is an expression")
    made = _parsed(name) if isinstance(name, str) else name
    self.expr, self.free = (made.expr, made.free) if isinstance(made, Symbol) else (sympy.Integer(int(made)), {})

  def _check_bounds(self, name: str) -> None:
    lo, hi = self.lower_bound, self.upper_bound
    if any(b is not None and (isinstance(b, bool) or not isinstance(b, int) or not -2 ** 63 <= b < 2 ** 63) for b in (lo, hi)):
      raise ArgumentError(f"Symbol {name}: bounds are ints of 64 bits, got {shown(lo)} and {shown(hi)}")
    if self.meta and lo is not None and lo < 1:
      raise ArgumentError(f"Symbol {name}: the tuner chooses sizes of 1 or more, the lower bound is {lo}")
    if lo is None or hi is None: return
    if lo > hi: raise ArgumentError(f"Symbol {name}: the lower bound {lo} is greater than the upper bound {hi}")
    if self.power_of_two and 1 << (max(lo, 1) - 1).bit_length() > hi:
      raise ArgumentError(f"Symbol {name}: there is no power of two from {lo} to {hi}")

  @staticmethod
  def _of(expr: Key, free: dict[str, Symbol]) -> int | Symbol:
    """An expression as a Symbol, or as the int that it is."""
    if expr.is_Integer: return int(expr)
    out = Symbol.__new__(Symbol)
    out.expr, out.free, out._known_key, out._known_form = expr, free, None, None
    out.constexpr, out.meta, out.power_of_two, out.lower_bound, out.upper_bound = (
      all(s.constexpr for s in free.values()),
      False,
      False,
      None,
      None,
    )
    if expr.is_Symbol: return free[expr.name]
    return out

  # ---- what it is

  @property
  def is_name(self) -> bool:
    """Whether it is one name, not an expression."""
    return bool(self.expr.is_Symbol)

  @property
  def name(self) -> str:
    """The name, or the expression as written."""
    return str(self)

  @property
  def key(self) -> Key:
    """What it equals: Symbols are equal where their keys are."""
    if self._known_key is None: self._known_key = key_of(self.expr)
    return self._known_key

  @property
  def form(self) -> Form:
    """Steps, operands first: ints, names, and (operator, the numbers of the steps that are its operands…)."""
    if self._known_form is None: self._known_form = form_of(self.expr)
    return self._known_form

  def names(self) -> frozenset[Symbol]:
    """The names that it is made of."""
    return frozenset(self.free.values())

  def refusal(self, value: int) -> str:
    """A sentence about a value that is out of bounds, or no power of two where it must be; empty for one that fits."""
    low, high = self.lower_bound, self.upper_bound
    fits = (
      (low is None or value >= low)
      and (high is None or value <= high)
      and not (self.power_of_two and (value < 1 or value & (value - 1)))
    )
    if fits: return ""
    power = ", a power of two" if self.power_of_two else ""
    return f"{self} is between {0 if low is None else low} and {'any' if high is None else high}{power}, got {value}"

  @property
  def bounds(self) -> Bounds:
    """The least and the greatest value that it can have, None where that is not known."""
    return _bounds(self.form, self.free)

  def subs(self, mapping: Mapping[Any, Any]) -> int | Symbol:
    """With ``mapping``'s ints or Symbols for names (given as text or as Symbols); an int where nothing is left open."""
    values = {(k.name if isinstance(k, Symbol) else k): v for k, v in mapping.items()}
    if not self.free.keys() & values.keys(): return self
    out: int | Symbol = _replaced(self.form, {**self.free, **values})
    return out

  def __repr__(self) -> str: return text_of(self.form)
  def __hash__(self) -> int: return hash(self.key)
  def __reduce__(self) -> Any: return _restored, (self.form, [_options(s) for s in self.free.values()])

  def __eq__(self, other: object) -> bool:
    if isinstance(other, Symbol): return bool(self.expr == other.expr or self.key == other.key)
    if isinstance(other, int): return bool(self.key == other)
    return NotImplemented

  def __bool__(self) -> bool:
    lo, hi = self.bounds
    if (lo is not None and lo > 0) or (hi is not None and hi < 0): return True
    raise ArgumentError(f"{self}: whether it is 0 is not known before it has a value")

  # ---- arithmetic

  def _with(self, other: Any) -> tuple[Key, dict[str, Symbol]] | None:
    """The other operand, and the names of both."""
    if isinstance(other, Symbol): return other.expr, _merged(self.free, other.free)
    try: return sympy.Integer(operator.index(other)), self.free
    except TypeError: return None

  def __add__(self, other: Any) -> Any:
    return NotImplemented if (o := self._with(other)) is None else Symbol._of(self.expr + o[0], o[1])

  def __sub__(self, other: Any) -> Any:
    return NotImplemented if (o := self._with(other)) is None else Symbol._of(self.expr - o[0], o[1])

  def __rsub__(self, other: Any) -> Any:
    return NotImplemented if (o := self._with(other)) is None else Symbol._of(o[0] - self.expr, o[1])

  def __mul__(self, other: Any) -> Any:
    return NotImplemented if (o := self._with(other)) is None else Symbol._of(self.expr * o[0], o[1])

  __radd__, __rmul__ = __add__, __mul__

  def __neg__(self) -> Any: return Symbol._of(-self.expr, self.free)
  def __pos__(self) -> Symbol: return self

  def __pow__(self, other: Any) -> Any:
    if (o := self._with(other)) is None: return NotImplemented
    if o[0].is_Integer and o[0] < 0: raise ArgumentError(f"{self}**{o[0]}: a negative power is no integer")
    return Symbol._of(self.expr ** o[0], o[1])

  def __rpow__(self, other: Any) -> Any:
    return NotImplemented if (o := self._with(other)) is None else Symbol._of(o[0] ** self.expr, o[1])

  def __floordiv__(self, other: Any) -> Any:
    return NotImplemented if self._with(other) is None else _division(FloorDiv, self, other)

  def __rfloordiv__(self, other: Any) -> Any:
    return NotImplemented if self._with(other) is None else _division(FloorDiv, other, self)

  def __mod__(self, other: Any) -> Any: return NotImplemented if self._with(other) is None else _division(Modulo, self, other)
  def __rmod__(self, other: Any) -> Any: return NotImplemented if self._with(other) is None else _division(Modulo, other, self)

  def __truediv__(self, other: Any) -> Any:
    raise ArgumentError(f"{self} / {other}: a Symbol is an integer; a // b rounds down, cdiv(a, b) rounds up")

  def __rtruediv__(self, other: Any) -> Any:
    raise ArgumentError(f"{other} / {self}: a Symbol is an integer; a // b rounds down, cdiv(a, b) rounds up")

  def __lt__(self, other: Any) -> Any: return NotImplemented if self._with(other) is None else _compared("<", self, other)
  def __le__(self, other: Any) -> Any: return NotImplemented if self._with(other) is None else _compared("<=", self, other)
  def __gt__(self, other: Any) -> Any: return NotImplemented if self._with(other) is None else _compared(">", self, other)
  def __ge__(self, other: Any) -> Any: return NotImplemented if self._with(other) is None else _compared(">=", self, other)


class Condition:
  """A comparison of which the result is not known yet: ``N < 4``. As a bool it is an error; ``evaluate`` gives it one."""
  __slots__ = ("op", "a", "b")

  def __init__(self, op: str, a: int | Symbol, b: int | Symbol): self.op, self.a, self.b = op, a, b

  def __bool__(self) -> bool:
    raise ArgumentError(f"{self}: not known before {_listed(names_of(self.a) | names_of(self.b))} has a value")

  def __repr__(self) -> str: return f"{self.a} {self.op} {self.b}"
  def __hash__(self) -> int: return hash((self.op, self.a, self.b))
  def __eq__(self, other: object) -> bool:
    return isinstance(other, Condition) and (self.op, self.a, self.b) == (other.op, other.a, other.b)

  def subs(self, mapping: Mapping[Any, Any]) -> bool | Condition:
    """With ``mapping``'s values for names; a bool where that decides it."""
    return _compared(self.op, *(e if isinstance(e, int) else e.subs(mapping) for e in (self.a, self.b)))


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _compared(op: str, a: Any, b: Any) -> bool | Condition:
  if isinstance(a, int) and isinstance(b, int): return bool(_COMPARE[op](a, b))
  if a == b: return op in ("<=", ">=")
  difference = a - b
  lo, hi = (difference, difference) if isinstance(difference, int) else difference.bounds
  for edge, known in ((lo, True), (hi, False)):  # decided where the least, or the greatest, difference already is
    if edge is not None and _COMPARE[op](edge, 0) == ((op in (">", ">=")) == known): return bool(_COMPARE[op](edge, 0))
  return Condition(op, a, b)


def _merged(a: dict[str, Symbol], b: dict[str, Symbol]) -> dict[str, Symbol]:
  if a is b or not b: return a
  for name in a.keys() & b.keys():
    if a[name] is not b[name] and _options(a[name]) != _options(b[name]):
      raise ArgumentError(f"two Symbols of the name {name} have different options; make one and use it twice")
  return {**b, **a}


def _options(s: Symbol) -> tuple[Any, ...]: return s.expr.name, s.constexpr, s.meta, s.lower_bound, s.upper_bound, s.power_of_two


def _restored(form: Form, options: list[tuple[Any, ...]]) -> int | Symbol:
  """From a pickle."""
  out: int | Symbol = _replaced(form, {o[0]: Symbol(*o) for o in options})
  return out


_CALLS: dict[str, Callable[[Any, Any], Any]] = {
  "cdiv": lambda a, b: cdiv(a, b),
  "max": lambda a, b: maximum(a, b),
  "min": lambda a, b: minimum(a, b),
}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
  ast.Add: operator.add,
  ast.Sub: operator.sub,
  ast.Mult: operator.mul,
  ast.FloorDiv: operator.floordiv,
  ast.Mod: operator.mod,
  ast.Pow: operator.pow,
}


def _parsed(text: str) -> int | Symbol:
  """An expression from its text."""
  try:
    root = ast.parse(text, mode="eval").body
  except SyntaxError:
    raise ArgumentError(f"Symbol: {shown(text)} is neither a name nor an expression") from None
  except (RecursionError, MemoryError):
    raise ArgumentError(
      f"Symbol: {shown(text)} is nested deeper than Python reads; make it of parts, with Python's operators"
    ) from None
  values: dict[ast.AST, Any] = {}
  for n, parts in sources_first(root, lambda n: _parts(text, n)).items():
    got = [values[p] for p in parts]
    match n:
      case ast.Constant(): values[n] = n.value
      case ast.Name(): values[n] = Symbol(n.id)
      case ast.UnaryOp(): values[n] = -got[0]
      case ast.BinOp(): values[n] = _OPERATORS[type(n.op)](*got)
      case ast.Call(func=ast.Name(id=name)): values[n] = _CALLS[name](*got)
  return values[root]


def _parts(text: str, n: ast.AST) -> Sequence[ast.AST]:
  """The operands of a part of an expression."""
  match n:
    case ast.Constant(value=int()) | ast.Name(): return ()
    case ast.UnaryOp(op=ast.USub(), operand=of): return (of,)
    case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS: return (a, b)
    case ast.Call(func=ast.Name(id=name), args=[a, b], keywords=[]) if name in _CALLS: return (a, b)
  raise ArgumentError(f"Symbol: {shown(text)} is neither a name nor an expression of names, ints, + - * // % ** and cdiv")


# ---- functions of ints and Symbols

def _expr_of(e: int | Symbol) -> Key: return e.expr if isinstance(e, Symbol) else sympy.Integer(operator.index(e))
def _free_of(e: int | Symbol) -> dict[str, Symbol]: return e.free if isinstance(e, Symbol) else {}


def bounds_of(e: int | Symbol) -> Bounds:
  """The least and the greatest value, None where that is not known."""
  return e.bounds if isinstance(e, Symbol) else (e, e)


def _division(node: Any, a: Any, b: Any) -> int | Symbol:
  """a // b, a % b or cdiv(a, b), of which one at least is a Symbol."""
  if isinstance(b, int) and b == 0: raise ArgumentError(f"{a} divided by 0")
  free = _merged(_free_of(a), _free_of(b))
  ea, eb = _expr_of(a), _expr_of(b)
  if b == 1: return 0 if node is Modulo else a
  whole, rest = divided(ea, eb)  # as written first, for what is shown
  if rest != 0: whole, rest = divided(key_of(ea), key_of(eb))
  if rest == 0: return 0 if node is Modulo else Symbol._of(whole, free)
  (a_lo, a_hi), (b_lo, _) = bounds_of(a), bounds_of(b)
  if a_lo is not None and a_hi is not None and b_lo is not None:
    if node is CeilDiv and 0 < a_lo and a_hi <= b_lo: return 1
    if node is not CeilDiv and 0 <= a_lo and a_hi < b_lo: return a if node is Modulo else 0
  return Symbol._of(node(ea, eb), free)


def cdiv(a: int | Symbol, b: int | Symbol) -> Any:
  """a / b rounded up, for ints and Symbols, b > 0: how many tiles of b it takes to cover a. Raises ArgumentError."""
  if not all(isinstance(x, Integral | Symbol) for x in (a, b)):
    raise ArgumentError(f"cdiv of {shown(a)} and {shown(b)}; it takes whole numbers and Symbols")
  if isinstance(a, int) and isinstance(b, int):
    if b == 0: raise ArgumentError(f"cdiv({a}, 0): divided by 0")
    return -(-a // b)
  return _division(CeilDiv, a, b)


def _chosen(node: Any, a: int | Symbol, b: int | Symbol) -> Any:
  if isinstance(a, int) and isinstance(b, int): return max(a, b) if node is Greater else min(a, b)
  for op in (">=", "<="):
    known = _compared(op, a, b)
    if not isinstance(known, Condition): return a if known == ((op == ">=") == (node is Greater)) else b
  return Symbol._of(node(_expr_of(a), _expr_of(b)), _merged(_free_of(a), _free_of(b)))


def maximum(a: int | Symbol, b: int | Symbol) -> Any:
  """The greater of two ints or Symbols."""
  return _chosen(Greater, a, b)


def minimum(a: int | Symbol, b: int | Symbol) -> Any:
  """The lesser of two ints or Symbols."""
  return _chosen(Lesser, a, b)


def names_of(e: int | Symbol | Condition) -> frozenset[Symbol]:
  """The names that an expression is made of."""
  if isinstance(e, Condition): return names_of(e.a) | names_of(e.b)
  return e.names() if isinstance(e, Symbol) else frozenset()


def _listed(names: frozenset[Symbol] | list[str]) -> str: return ", ".join(sorted(map(str, names)))


def evaluate(e: Any, values: Mapping[str, int]) -> int:
  """The value of an int, Symbol or Condition where names have ``values``. Raises ArgumentError that lists the names without
  one."""
  if e.__class__ is int: return int(e)
  if isinstance(e, Condition): return bool(_COMPARE[e.op](evaluate(e.a, values), evaluate(e.b, values)))
  if not isinstance(e, Symbol): return operator.index(e)
  try:
    return run(e.form, values)
  except KeyError:
    raise ArgumentError(f"{e}: no value for {_listed([n for n in e.free if n not in values])}") from None
  except ZeroDivisionError:
    raise ArgumentError(f"{e}: division by 0 where {', '.join(f'{n} = {values[n]}' for n in e.free)}") from None


_count = itertools.count()


def block_size(lower_bound: int | None = None, upper_bound: int | None = None) -> Symbol:
  """A tile size that the tuner chooses: a power of two within the bounds (16 to 1024 unless told)."""
  return Symbol(f"BLOCK_SIZE_{next(_count)}", meta=True, lower_bound=lower_bound, upper_bound=upper_bound)
