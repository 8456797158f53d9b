"""The one node type of every program form: ``UOp(op, dtype, src, arg)``, immutable and interned.

The same node is the same object, so identity is equality and a rewrite that changes nothing returns what it was given.
Three forms share the node (``Ops`` is grouped by them): the tensor graph, the index form and the linear form."""
from __future__ import annotations

import math
import os
import threading
from enum import Enum
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Callable, Generic, Iterable, Sequence, TypeVar
from weakref import ref

from .dtype import DType, Number, dtypes, held
from .errors import ShapeError


class _Named(Enum):
  __hash__ = object.__hash__  # Enum's own hash runs Python code; members are singletons
  def __str__(self) -> str: return f"{type(self).__name__}.{self.name}"
  __repr__ = __str__


class UnaryOps(_Named):
  """Functions of one value. NOT is logical on bool, bitwise on ints; ROUND is half to even."""
  NEG = 1; RECIP = 2; SQRT = 3; RSQRT = 4; EXP = 5; EXP2 = 6; LOG = 7; LOG2 = 8; SIN = 9; COS = 10; TAN = 11; TANH = 12
  ERF = 13; FLOOR = 14; CEIL = 15; TRUNC = 16; ROUND = 17; NOT = 18; ABS = 19; ISNAN = 20


class BinaryOps(_Named):
  """Functions of two values. DIV is true division (floats); IDIV and MOD floor, as Python has them; MAX and MIN
  propagate NaN, and of a constant and a zero that equals it they give the second."""
  ADD = 1; SUB = 2; MUL = 3; DIV = 4; IDIV = 5; MOD = 6; MAX = 7; MIN = 8; POW = 9; CMPLT = 10; CMPLE = 11; CMPEQ = 12; CMPNE = 13
  AND = 14; OR = 15; XOR = 16; SHL = 17; SHR = 18; THREEFRY = 19; GCD = 20


class TernaryOps(_Named):
  """WHERE(condition, yes, no)."""
  WHERE = 1


class Ops(Enum):
  """What a node is. Prints as ``UOps.NAME``, the name that listings have."""
  # any form
  CONST = 1        # arg: value; tensor graph: shape ()
  ALU = 2          # arg: UnaryOps | BinaryOps | TernaryOps
  CAST = 3
  BITCAST = 4      # same item size
  # tensor graph
  BUFFER = 10      # arg: Buffer (shape, dtype, device)
  IOTA = 11        # arg: n; 0, 1, .., n-1
  RESHAPE = 12     # arg: shape
  PERMUTE = 13     # arg: order
  EXPAND = 14      # arg: shape; dims of 1 become any size
  PAD = 15         # arg: ((lo, hi), ..), zeros
  SHRINK = 16      # arg: ((begin, end), ..)
  FLIP = 17        # arg: axes
  TILE = 18        # arg: ((size, stride, dilation), ..) for every dim: (d..) -> (outer.., inner..)
  UNTILE = 19      # arg: (d.., the TILE's arg): (outer.., inner..) -> (d.., inner..), zero where no window has it
  REDUCE_AXIS = 20  # arg: (BinaryOps, axes); dims stay as 1
  GATHER = 21      # (base, index): index.shape + base.shape[1:], zero where out of range
  # (base, index, value), arg: "set" | "add"; gather's adjoint. In schedules an effect, base then a view of memory
  SCATTER = 22
  CAT = 23         # arg: axis
  CONTIGUOUS = 24  # realised on its own
  DETACH = 25      # no gradient passes
  COPY = 26        # arg: device
  SLOPED = 33      # (value, made from..), arg: a function of ntgrad/graph/formulas.py, whose derivatives are its own
  ASSIGN = 27      # schedules: (view of memory, value): the effect of writing it there
  # (base, value[, index]), arg: ((movement op, its arg), ..): base with that part, or rows of that part, replaced
  UPDATE = 29
  # (an argument, all arguments..), arg: (launcher, the argument's position): what it holds after a kernel has run that writes it
  CALL = 34
  APPLY = 36       # (an input of a recipe..), arg: the Recipe: a graph that is made when a plan for it is
  OUTPUT = 37      # (APPLY), arg: the number of one of the values that its recipe makes
  # schedules: (memory, arguments.., memory of what else it writes..), arg: (launcher, position, positions of the arguments, call,
  # number): the effect of a kernel on one of the arguments that it writes
  LAUNCH = 35
  AFTER = 30       # schedules: (memory, effect): what lies in the memory after an ASSIGN, SCATTER or LAUNCH has written to it
  SCAN_AXIS = 31   # (value), arg: (BinaryOps, axis, reverse[, every]): inclusive; anew after so many elements, in its order
  # (value), arg: (axis, low, high, keep[, bitonic]): rising by these bits, equal ones as they stood; the first ``keep``, 0 for
  # all. In schedules it may say that the value is bitonic: it turns round once
  SORT_AXIS = 32
  CUSTOM = 28      # (inputs..): a result of a kernel that has run; arg: (call, number of the output). Only gradients see it
  # index form
  RANGE = 40       # ([size]), arg: (axis id, size); a size that is no number is its source too, and may vary with outer axes
  SIZE = 45        # arg: index.Size; an integer that has a value at the launch
  INDEX = 41       # one index expression a source dimension
  REDUCE = 42      # (value), arg: (BinaryOps, axis ids)
  CACHE_READ = 43  # (load), arg: axis ids in layout order; the elements are first copied to local memory
  # (value, place), arg: (axis id, low, high, keep, bitonic): the element at that place when sorted along the axis
  SORTED = 46
  FOR = 44         # (end, statement..), arg: axis id; 0 <= axis < end
  # index and linear form
  DEFINE_GLOBAL = 50  # arg: (slot, name, written[, align]); with align (bytes) it begins somewhere in a memory
  # (buffer, index[, gate[, other]]), arg: None, "tma" (by a tensor descriptor where the target has them), "look" (a debugger's)
  LOAD = 51
  # (buffer, index, value[, gate]), arg: None, "nt" (past the cache), "tma"; index form also ("add" | "set", axis ids in order)
  STORE = 52
  # (buffer, index, value[, gate[, variable, index[, compared]]]), arg: one of ``kernel.ATOMICS``; an effect: what was there goes
  # to the variable, 0 where the gate is false
  ATOMIC = 53
  # (value), arg: (BinaryOps, axis id, reverse): inclusive; the whole value of a STORE to a variable. The scheduler's stand in any
  # value, and may have a fourth: after how many elements they start anew
  SCAN = 54
  # (value), arg: (axis id, descending[, keep, bitonic]): stable, NaN last; likewise. The scheduler's rise: the first ``keep``, a
  # power of two, again and again, of values that may be bitonic
  SORT = 55
  WHILE = 56       # index form: (condition, statement..); linear form: nothing, the condition's nodes and its BREAK follow
  DEFINE_LOCAL = 60  # arg: (name, size, "local" | "private"); index form: a variable, (name, shape, "private")
  # linear form
  DEFINE_VAR = 57  # arg: index.Size; an argument of the launch, int32 or int64
  DEFINE_ACC = 61  # arg: start value
  SPECIAL = 62     # arg: ("g" | "l", dimension, size); the size is an int, or an index over SIZEs
  LOOP = 63        # (start, end[, step]), arg: None, "flatten" (with the loops inside it, where the target can)
  ENDLOOP = 64     # (loop)
  PHI = 65         # (accumulator, value, loop..)
  VECTORIZE = 66   # scalars to a vector
  GEP = 67         # arg: lane; one element of a vector
  IF = 68          # (condition); index form: (condition, statement..), arg: how many of them are for true
  ENDIF = 69       # (if)
  BARRIER = 70
  # index and linear form: (variable.., variable..), arg: Fold; what the first combine to along one of their dimensions goes to
  # the others. Targets without blocks have a loop
  FOLD = 75
  PRINT = 71       # index and linear form: (variable.., place of the program..), arg: Print; prints them, or stops in a debugger
  ELSE = 72        # (if)
  BREAK = 73       # (condition): leaves the WHILE where it is false
  ENDWHILE = 74    # (while)

  __hash__ = object.__hash__
  def __str__(self) -> str: return f"UOps.{self.name}"
  __repr__ = __str__


UOps = Ops
MOVEMENT = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.TILE, Ops.UNTILE})
# op -> a node's shape, from its sources'; of other ops it is the first source's. The rules are in ``view.py``
SHAPES: dict[Ops, Callable[[UOp], tuple[int, ...]]] = {}
COMPARE = frozenset({BinaryOps.CMPLT, BinaryOps.CMPLE, BinaryOps.CMPEQ, BinaryOps.CMPNE})


class _Entry(ref["UOp"]):
  """A weak reference that knows under which key it is found: WeakValueDictionary, without a call of Python code in it."""
  __slots__ = ("key",)
  key: tuple[Any, ...]


_interned: dict[tuple[Any, ...], _Entry] = {}
_lock = threading.RLock()   # of what is replaced
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]


def _drop(entry: ref[UOp], interned: dict[tuple[Any, ...], _Entry] = _interned) -> None:   # also when the module has gone
  """A node has gone; unless its equal has taken its place, so has its entry."""
  key = entry.key  # type: ignore[attr-defined]
  try:   # no call between the look and the deletion, and no Python code in a key: no other thread comes between
    if interned[key] is entry: del interned[key]
  except KeyError: pass


def live_nodes() -> list[UOp]:
  """All interned nodes. Entries of nodes that have gone, which an interrupt kept from being dropped, are, those of tables too:
  what they hold would never go."""
  for table in _tables: table.sweep()
  found = [(entry, entry()) for entry in list(_interned.values())]
  for entry, u in found:
    if u is None: _drop(entry)
  return [u for _, u in found if u is not None]


_T = TypeVar("_T")
memoized_names: set[str] = set()   # under which results are kept with nodes


def memoized_of(of: Callable[[UOp], Sequence[UOp]]) -> Callable[[Callable[[Any], _T]], Callable[[UOp], _T]]:
  """A function of a node that asks for the same of the nodes that ``of`` gives: its results are kept with the nodes, those first,
  so that graphs may be deeper than Python's stack. Nothing else may be kept in a node's ``__dict__``: what changes while the node
  stays the same has a table (``NodeTable``)."""
  def decorated(fn: Callable[[Any], _T]) -> Callable[[UOp], _T]:
    name = fn.__name__
    memoized_names.add(name)
    @wraps(fn)
    def found(u: UOp) -> _T:
      stack = [u] if name not in u.__dict__ else []
      while stack:
        if missing := [s for s in of(stack[-1]) if name not in s.__dict__]: stack += missing
        elif name not in (known := (n := stack.pop()).__dict__): known[name] = fn(n)
      return u.__dict__[name]
    return found
  return decorated


memoized = memoized_of(lambda u: u.src)


class kept_property(Generic[_T]):
  """A property of a node, memoized: from the second time on, Python finds it among the node's attributes."""

  def __init__(self, fn: Callable[[Any], _T]) -> None:
    self.found, self.__doc__ = memoized(fn), fn.__doc__

  def __get__(self, u: UOp, owner: type[UOp] | None = None) -> _T: return self.found(u)


class UOp:
  """A node: what it does (``op``, ``arg``), the dtype of its value, and the nodes it reads (``src``)."""
  __slots__ = "op", "dtype", "src", "arg", "origin", "note", "__weakref__", "__dict__"   # __dict__: see ``memoized``
  op: Ops
  dtype: DType
  src: tuple[UOp, ...]
  arg: Any
  # no part of what the node is:
  origin: tuple[Any, ...] | None   # which line of the user's made it (ntgrad/graph/origins.py)
  note: Any                        # what its maker keeps with it
  is_unique = False  # not interned: it equals no other

  def __new__(cls, op: Ops, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
    # 0.0 == -0.0 and nan != nan, so a float constant is interned by its text
    if op is Ops.CONST and isinstance(arg, float): return interned(op, dtype, src, arg, None, None, arg.hex())
    return interned(op, dtype, src, arg, None, None)

  @staticmethod
  def unique(op: Ops, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
    """A node that equals no other: a loop or an accumulator of the linear form."""
    self = object.__new__(UOp)
    self.op, self.dtype, self.src, self.arg = op, dtype, src, arg
    self.origin = self.note = None
    self.is_unique = True
    return self

  def __reduce__(self) -> Any: return UOp.unique if self.is_unique else UOp, (self.op, self.dtype, self.src, self.arg)
  def __repr__(self) -> str:
    return f"{self.op}({self.dtype}, {'' if self.arg is None else self.arg}{', ' if self.src else ''}{len(self.src) or ''})"

  # ---- making nodes
  @staticmethod
  def const(dtype: DType, value: Any) -> UOp:
    """A constant, the value converted to what the dtype holds."""
    return UOp(Ops.CONST, dtype, (), held(value, dtype))

  @staticmethod
  def alu(fn: Any, *src: UOp, dtype: DType | None = None) -> UOp:
    """``fn`` of ``src``; comparisons give bool, everything else the dtype of the last source."""
    if dtype is None:
      dtype = dtypes.bool.vec(max(s.dtype.count for s in src)) if fn in COMPARE or fn is UnaryOps.ISNAN else src[-1].dtype
    return UOp(Ops.ALU, dtype, src, fn)

  def cast(self, dtype: DType) -> UOp: return self if self.dtype is dtype else UOp(Ops.CAST, dtype, (self,))
  def where(self, yes: UOp, no: UOp) -> UOp: return UOp.alu(TernaryOps.WHERE, self, yes, no)
  if TYPE_CHECKING:   # of nodes of the tensor graph, by elementwise.py
    def _operator(self, x: UOp | Number) -> UOp: ...
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = _operator
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _operator
  def replace(self, src: tuple[UOp, ...], **changed: Any) -> UOp:
    """This node with other sources (and ``arg=``, ``dtype=``); one that equals no other becomes one that equals no other."""
    arg, dtype = changed.get("arg", self.arg), changed.get("dtype", self.dtype)
    if src == self.src and dtype is self.dtype and arg == self.arg: return self
    return (UOp.unique if self.is_unique else UOp)(self.op, dtype, src, arg)
  def with_arg(self, arg: Any) -> UOp: return self.replace(self.src, arg=arg)

  # ---- the tensor graph's shape and device
  @kept_property
  def shape(self) -> tuple[int, ...]:
    """The shape of a tensor graph node, found once when the node is first asked. Graphs that people make have numbers; those of
    schedules may have expressions of run-time sizes (``index.Dim``)."""
    if (rule := SHAPES.get(self.op)) is not None: return rule(self)
    if self.src: return self.src[0].shape
    raise ShapeError(f"{self.op} has no shape")

  @kept_property
  def device(self) -> str | None:
    """The device of a tensor graph node; None for constants."""
    if self.op is Ops.BUFFER: return self.arg.device
    if self.op is Ops.COPY: return self.arg
    return next((s.device for s in self.src if s.device is not None), None)

  # ---- walking
  def toposort(self) -> list[UOp]: return toposort((self,))

  @kept_property
  def ranges(self) -> frozenset[UOp]:
    """The RANGE nodes that the value of this index form node is a function of (a REDUCE binds its own)."""
    if self.op is Ops.RANGE: return union([frozenset((self,)), *[s.ranges for s in self.src]])
    out = union([s.ranges for s in self.src])
    if self.op is Ops.REDUCE or self.op is Ops.FOR or self.op is Ops.SORTED:
      bound = self.arg[1] if self.op is Ops.REDUCE else (self.arg,) if self.op is Ops.FOR else self.arg[:1]
      return frozenset(r for r in out if r.arg[0] not in bound)
    return out


def interned(op: Ops, dtype: DType, src: tuple[UOp, ...], arg: Any, shape: Any, device: str | None,
             text: str | None = None, new: Callable[[type[UOp]], UOp] = object.__new__,
             known: Callable[[Any], _Entry | None] = _interned.get,
             keep: Callable[[Any, _Entry], _Entry] = _interned.setdefault) -> UOp:
  """The node that is so: a new one, or the one that there is. ``shape`` and ``device`` are its own where they are known, else
  None; ``text`` stands for arg in the table."""
  key = op, dtype, src, arg if text is None else text
  entry = known(key)
  if entry is not None and (found := entry()) is not None:
    if shape is not None and "shape" not in (facts := found.__dict__): facts["shape"], facts["device"] = shape, device
    return found
  self = new(UOp)
  self.op, self.dtype, self.src, self.arg = op, dtype, src, arg
  self.origin = self.note = None
  if shape is not None:
    facts = self.__dict__
    facts["shape"], facts["device"] = shape, device
  mine = _Entry(self, _drop)
  mine.key = key
  if keep(key, mine) is mine: return self   # in one step
  with _lock:   # another thread has just made it, or one that has gone is still there
    entry = known(key)
    if entry is not None and (found := entry()) is not None: return found
    _interned[key] = mine
  return self


_tables: list[NodeTable[Any]] = []


class _Known(ref[UOp], Generic[_T]):
  """A weak reference to a node, with what a table knows of it."""
  __slots__ = "key", "value", "table"
  key: int
  value: _T
  table: dict[int, _Known[_T]]


def _forget(known: Any) -> None:
  if known.table.get(known.key) is known: known.table.pop(known.key, None)


class NodeTable(Generic[_T]):
  """A dictionary with nodes as keys. An entry goes when its node goes. A value must not refer to its node, or neither would ever
  go.

  ``known.get(id(u))`` finds an entry without a call of Python code. The entry is right if a call of it gives ``u``."""
  __slots__ = ("known",)

  def __init__(self) -> None:
    self.known: dict[int, _Known[_T]] = {}
    _tables.append(self)

  def __contains__(self, u: UOp) -> bool: return self.get(u) is not None
  def get(self, u: UOp) -> _T | None:
    known = self.known.get(id(u))
    return known.value if known is not None and known() is u else None

  def put(self, u: UOp, value: _T) -> None:
    known: _Known[_T] = _Known(u, _forget)
    known.key, known.value, known.table = id(u), value, self.known
    self.known[id(u)] = known

  def pop(self, u: UOp) -> _T | None:
    value = self.get(u)
    if value is not None: del self.known[id(u)]
    return value

  def nodes(self) -> list[UOp]:
    """The nodes of which something is known, in the order in which that became known."""
    return [u for known in list(self.known.values()) if (u := known()) is not None]

  def sweep(self) -> None:
    """Drop entries of nodes that have gone, which an interrupt kept from being dropped."""
    for key, known in list(self.known.items()):
      if known() is None and self.known.get(key) is known: del self.known[key]


def union(sets: Iterable[frozenset[UOp]], out: frozenset[UOp] = frozenset()) -> frozenset[UOp]:
  """What is in any of some sets; one of them where that has it all, so that nodes which depend on the same share it."""
  for s in sets:
    if s is not out and not s <= out: out = s if out <= s else out | s
  return out


def toposort(roots: Iterable[UOp], stop: Callable[[UOp], bool] | None = None) -> list[UOp]:
  """Every node beneath ``roots``, sources first. A node for which ``stop`` is true is listed, what it reads is not."""
  done: dict[UOp, None] = {}
  stack = list(roots)[::-1]
  seen: set[UOp] = set()
  while stack:
    n = stack[-1]
    if n in done or n in seen or not n.src or (stop is not None and stop(n)):
      done[n] = None
      stack.pop()
      continue
    seen.add(n)
    stack.extend([s for s in n.src[::-1] if s not in done])
  return list(done)


NO_VALUE = {Ops.STORE, Ops.ATOMIC, Ops.ENDLOOP, Ops.IF, Ops.ELSE, Ops.ENDIF, Ops.WHILE, Ops.BREAK, Ops.ENDWHILE, Ops.BARRIER,
  Ops.FOR, Ops.PRINT, Ops.FOLD}


def step_of(loop: UOp) -> UOp | None:
  """What the index of a LOOP goes up by; None for 1. (A source without a value is something that the loop comes after.)"""
  return loop.src[2] if len(loop.src) > 2 and loop.src[2].op not in NO_VALUE else None


def repeated(combiner: Any, x: UOp, n: int | UOp) -> UOp:
  """A value combined with itself, ``n`` of them: what is left of reducing an axis along which it was expanded."""
  times = partial(UOp.alu, BinaryOps.MUL)
  if isinstance(n, UOp):   # a run-time size
    if combiner is BinaryOps.ADD: return times(x, UOp(Ops.CAST, x.dtype, (n,)))
    if combiner is BinaryOps.MUL: return UOp.alu(BinaryOps.POW, x, UOp(Ops.CAST, x.dtype, (n,)))
    if combiner is not BinaryOps.XOR: return x
    return times(x, UOp(Ops.CAST, x.dtype, (UOp(Ops.ALU, n.dtype, (n, UOp.const(n.dtype, 2)), BinaryOps.MOD),)))
  if n == 1 or combiner not in (BinaryOps.ADD, BinaryOps.MUL, BinaryOps.XOR): return x
  if combiner is BinaryOps.ADD: return times(x, UOp.const(x.dtype, n))
  if combiner is BinaryOps.XOR: return x if n % 2 else UOp.const(x.dtype, 0)
  half = repeated(combiner, times(x, x), n // 2)
  return times(half, x) if n % 2 else half


def prod(xs: Iterable[int]) -> int: return math.prod(xs)


def power_of_two(n: int) -> int:
  """The least power of two that is at least ``n``."""
  return 1 << (max(n, 1) - 1).bit_length()
