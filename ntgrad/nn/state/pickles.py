"""A reader of pickles that runs nothing in them.

A pickle is a program for a small stack machine. Here only what makes plain values is carried out: numbers, text, lists, tuples,
dicts, sets, and calls of the few functions that the caller names. Every other name in it is refused with a sentence.
"""
from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from ntgrad.codegen.errors import NtgradError, shown
from ntgrad.nn.state.mapped import Refuse

_MARK = object()
_NAMES = {"__builtin__": "builtins"}   # as Python 2 has them
_SIMPLE: dict[str, Callable[[], Any]] = {
  "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
  "EMPTY_DICT": dict, "EMPTY_SET": set, "MARK": lambda: _MARK}
_VALUES = frozenset("""INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE
BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8""".split())
_NOTHING = frozenset(("PROTO", "FRAME", "STOP"))


class Built:
  """A value that a pickle makes in two steps: by a call, and by ``build`` with what the pickle has of it. ``build`` raises
  ValueError for what it does not take."""
  __slots__ = ()
  def build(self, state: Any) -> None: raise ValueError(f"a {type(self).__name__} of {shown(state)}")


class Called:
  """A function that a pickle may name, and its name."""
  __slots__ = ("name", "fn")
  def __init__(self, name: str, fn: Callable[..., Any]): self.name, self.fn = name, fn


def load(f: BinaryIO, known: Mapping[str, Any], persistent: Callable[[Any], Any], refuse: Refuse) -> Any:
  """The value of the pickle at the place of ``f``, which stands behind it afterwards.

  ``known`` are the values of the names that it may use, functions among them as Called; ``persistent`` gives what is kept
  outside of the pickle. Raises what ``refuse`` makes.
  """
  machine = _Machine(known, persistent, refuse)
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")   # of text with odd escapes
      for op, arg, at in pickletools.genops(f): machine.step(op.name, arg, at)
    if len(machine.stack) != 1 or machine.stack[0] is _MARK: raise refuse("its pickle ends with more or less than one value")
    return machine.stack[0]
  except NtgradError: raise
  except (ValueError, IndexError, KeyError, TypeError, EOFError, OverflowError, MemoryError, RecursionError, AttributeError,
          AssertionError) as e:
    raise refuse(f"its pickle is damaged ({type(e).__name__}: {str(e)[:200]})") from None


class _Machine:
  """The stack machine: a stack of values, and a table of those that are used again."""

  def __init__(self, known: Mapping[str, Any], persistent: Callable[[Any], Any], refuse: Refuse):
    self.known, self.persistent, self.refuse = known, persistent, refuse
    self.stack: list[Any] = []
    self.memo: dict[int, Any] = {}

  def step(self, op: str, arg: Any, at: int | None) -> None:
    """Carry out one instruction."""
    if op in _NOTHING: return
    if op in _VALUES: self.stack.append(bytearray(arg) if op == "BYTEARRAY8" else arg)
    elif op in _SIMPLE: self.stack.append(_SIMPLE[op]())
    elif op in ("PUT", "BINPUT", "LONG_BINPUT"): self.memo[arg] = self.top()
    elif op == "MEMOIZE": self.memo[len(self.memo)] = self.top()
    elif op in ("GET", "BINGET", "LONG_BINGET"): self.stack.append(self.memo[arg])
    elif (do := getattr(self, "op_" + op.lower(), None)) is not None: do(arg)
    else: raise self.refuse(f"its pickle has the instruction {op} at byte {at}, which is not carried out")

  def top(self) -> Any:
    """The value on top of the stack."""
    if self.stack[-1] is _MARK: raise ValueError("a mark where a value should be")
    return self.stack[-1]

  def pop(self) -> Any:
    """Take the value on top off the stack."""
    self.top()
    return self.stack.pop()

  def marked(self) -> list[Any]:
    """Take what lies above the last mark, and the mark, off the stack."""
    at = len(self.stack) - 1
    while self.stack[at] is not _MARK:
      at -= 1
      if at < 0: raise ValueError("no mark")
    found = self.stack[at + 1:]
    del self.stack[at:]
    return found

  def onto(self, kind: type) -> Any:
    """The list, dict or set on top of the stack."""
    x = self.top()
    if type(x) is not kind: raise TypeError(f"{type(x).__name__} where {kind.__name__} is expected")
    return x

  def op_pop(self, _: Any) -> None: self.stack.pop()
  def op_pop_mark(self, _: Any) -> None: self.marked()
  def op_dup(self, _: Any) -> None: self.stack.append(self.top())
  def op_append(self, _: Any) -> None:
    x = self.pop()
    self.onto(list).append(x)
  def op_appends(self, _: Any) -> None:
    found = self.marked()
    self.onto(list).extend(found)
  def op_list(self, _: Any) -> None: self.stack.append(self.marked())
  def op_tuple(self, _: Any) -> None: self.stack.append(tuple(self.marked()))
  def op_tuple1(self, _: Any) -> None: self.tuple(1)
  def op_tuple2(self, _: Any) -> None: self.tuple(2)
  def op_tuple3(self, _: Any) -> None: self.tuple(3)
  def tuple(self, n: int) -> None:
    """A tuple of the last n values."""
    self.stack.append(tuple([self.pop() for _ in range(n)][::-1]))
  def op_dict(self, _: Any) -> None: self.stack.append(_pairs(self.marked()))
  def op_setitem(self, _: Any) -> None:
    value, key = self.pop(), self.pop()
    self.onto(dict)[key] = value
  def op_setitems(self, _: Any) -> None:
    found = _pairs(self.marked())
    self.onto(dict).update(found)
  def op_additems(self, _: Any) -> None:
    found = self.marked()
    self.onto(set).update(found)
  def op_frozenset(self, _: Any) -> None: self.stack.append(frozenset(self.marked()))
  def op_persid(self, arg: Any) -> None: self.stack.append(self.persistent(arg))
  def op_binpersid(self, _: Any) -> None: self.stack.append(self.persistent(self.pop()))
  def op_global(self, arg: str) -> None: self.name(*arg.split(" ", 1))
  def op_stack_global(self, _: Any) -> None:
    name, module = self.pop(), self.pop()
    self.name(module, name)

  def name(self, module: Any, name: Any) -> None:
    """What a name of the pickle stands for."""
    full = f"{_NAMES.get(module, module)}.{name}"
    if full not in self.known:
      raise self.refuse(f"it holds an object of {full}, and only tensors and plain values are loaded: nothing in it is run; "
                        "save a state dict in its place")
    self.stack.append(self.known[full])

  def op_reduce(self, _: Any) -> None:
    args, fn = self.pop(), self.pop()
    if not isinstance(fn, Called) or not isinstance(args, tuple): raise TypeError(f"a call of {shown(fn)}")
    try: self.stack.append(fn.fn(*args))
    except (TypeError, ValueError, AttributeError) as e:
      raise self.refuse(f"{fn.name} has other arguments than it takes ({e})") from None

  def op_build(self, _: Any) -> None:
    """Attributes of a dict (an OrderedDict's ``_metadata``) are left out; else only a Built has any."""
    state = self.pop()
    if isinstance(x := self.top(), Built): x.build(state)
    else: self.onto(dict)


def _pairs(found: list[Any]) -> dict[Any, Any]:
  if len(found) % 2: raise ValueError("a key without a value")
  return dict(zip(found[::2], found[1::2]))
