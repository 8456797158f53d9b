"""A reader of pickles that runs nothing in them: a small stack machine makes plain values, and calls the few functions that the
caller names; every other name is refused with a sentence. Files come from strangers: what they may make is limited as
docs/architecture.md says.
"""
from __future__ import annotations

import codecs
import gc
import struct
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, NamedTuple

from ntgrad.codegen.ir import DType, NtgradError, shown

from .files import Refuse

ROOM = 40 << 20, 4   # bytes that the values of a file may take, beside so many for each byte of it
DEEPEST = 100
_KEY = 1 << 60       # keys are ints beneath: their hash is themselves
_NAMES = {"__builtin__": "builtins"}   # as Python 2 has them
_FLAT = str, bytes, int, float, type(None), DType
_NESTS = frozenset((list, tuple, dict, set, frozenset))
_COPIED: dict[type, int] = {str: 4, bytes: 1, bytearray: 1, tuple: 9, list: 100, dict: 100, set: 100, frozenset: 100}


class Built:
  """A value that a pickle makes in two steps: by a call, and by ``build`` with what the pickle has of it. ``build`` raises
  ValueError for what it does not take."""
  __slots__ = ()
  def build(self, state: Any) -> None: raise ValueError(f"a {type(self).__name__} of {shown(state)}")


@dataclass(eq=False)
class Called:
  """A function that a pickle may name, its name, and how many bytes its result takes beside copies of what it is given."""
  name: str
  fn: Callable[..., Any]
  cost: int = 100


class Loaded(NamedTuple):
  """The value of a pickle, and where in the bytes it ends."""
  value: Any
  end: int


def load(data: memoryview, known: Mapping[str, Any], persistent: Callable[[Any], Any], refuse: Refuse, at: int = 0,
         size: int | None = None) -> Loaded:
  """The value of the pickle that begins at byte ``at``.

  ``known`` are the values of the names that it may use, functions among them as Called; ``persistent`` gives what is kept
  outside of the pickle; ``size`` is that of the file, if it is more than ``data``. Raises what ``refuse`` makes.
  """
  machine = _Machine(data, at, ROOM[0] + ROOM[1] * (len(data) if size is None else size), known, persistent, refuse)
  collecting = gc.isenabled()
  try:
    gc.disable()   # which would look at the same lists and tuples again and again, and none is garbage
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")   # of text with odd escapes
      machine.run()
    if len(machine.stack) != 1 or machine.marks: raise refuse("its pickle ends with more or less than one value")
    machine.measure(machine.stack[0], 100_000 + 8 * (machine.at - at))
    return Loaded(machine.stack[0], machine.at)
  except NtgradError: raise
  except Exception as e:   # whatever an instruction meets
    raise refuse(f"its pickle is damaged ({type(e).__name__}: {str(e)[:200]})") from None
  finally:
    if collecting: gc.enable()


def key(x: Any) -> Any:
  """A key of a dict, or what is in a set: a number, text, or a short tuple of them, whose hash takes no time and which cannot all
  have the same one. Raises ValueError."""
  if len(x) <= 8 and all(_flat(n, 1 << 31) for n in x) if type(x) is tuple else _flat(x, _KEY): return x
  raise ValueError(f"a key {shown(x)}, expected a number, text or a short tuple of them")


def _flat(x: Any, most: int) -> bool: return isinstance(x, _FLAT) and (not isinstance(x, int) or -most <= x < most)


def pairs(found: Any) -> dict[Any, Any]:
  """A dict of pairs, whose keys are flat."""
  return {key(k): v for k, v in found}


def text_bytes(x: Any, encoding: Any = "latin1") -> bytes:
  """Bytes as Python 2's pickles have them: text, a character each."""
  if isinstance(x, (bytes, bytearray)): return bytes(x)
  if not isinstance(x, str) or encoding not in ("latin1", "latin-1"): raise TypeError(f"{shown(x)} in {shown(encoding)}")
  return x.encode("latin1")


class _Machine:
  """The stack machine: a stack of values, where in it marks are, and a table of values that are used again."""

  def __init__(self, data: memoryview, at: int, room: int, known: Mapping[str, Any], persistent: Callable[[Any], Any],
               refuse: Refuse):
    self.data, self.at, self.room = data, at, room
    self.known, self.persistent, self.refuse = known, persistent, refuse
    self.stack = list[Any]()
    self.marks = list[int]()
    self.memo = list[Any]()          # pickles count from 0 on
    self.odd = dict[int, Any]()      # those that do not

  def run(self) -> None:
    """Carry out one instruction after the other, to the end of the pickle."""
    data = self.data
    while True:
      op = data[self.at]
      self.at += 1
      if op == 46: return
      if (found := _STEPS.get(op)) is None:
        raise self.refuse(f"its pickle has the instruction {_name_of(op)} at byte {self.at - 1}, which is not carried out")
      do, cost = found
      self.room -= cost
      if self.room < 0: self.take(0)
      do(self)

  def take(self, n: int) -> None:
    self.room -= n
    if self.room < 0:
      raise self.refuse(f"its pickle makes more than {ROOM[0] >> 20} MiB and {ROOM[1]} bytes for each byte of the file, at byte "
                        f"{self.at}; save what is large as tensors")

  # ---- what stands behind an instruction
  def part(self, n: int) -> memoryview:
    if not 0 <= n <= len(self.data) - self.at: raise ValueError(f"{n} bytes at byte {self.at} of {len(self.data)}")
    self.at += n
    return self.data[self.at - n:self.at]

  def byte(self) -> int:
    self.at += 1
    return self.data[self.at - 1]

  def number(self, n: int, signed: bool = False) -> int: return int.from_bytes(self.part(n), "little", signed=signed)

  def line(self) -> bytes:
    """The bytes up to the end of a line."""
    n, begin = 256, self.at
    while (found := bytes(self.data[begin:begin + n]).find(b"\n")) < 0:
      if begin + n >= len(self.data): raise ValueError("a line without an end")
      n *= 4
    self.at = begin + found + 1
    self.take(2 * found)
    return bytes(self.data[begin:begin + found])

  # ---- the stack
  def push(self, x: Any) -> None:
    self.take(getsizeof(x))
    self.stack.append(x)

  def top(self) -> Any:
    if len(self.stack) <= (self.marks[-1] if self.marks else 0): raise ValueError("a mark where a value should be")
    return self.stack[-1]

  def pop(self) -> Any:
    self.top()
    return self.stack.pop()

  def marked(self, cost: int = 0) -> list[Any]:
    """Take what lies above the last mark, and the mark, off the stack; charge ``cost`` bytes for each."""
    at = self.marks.pop()
    found = self.stack[at:]
    del self.stack[at:]
    self.take(cost * len(found))
    return found

  def into(self, kind: Any, found: Any = ()) -> None:
    """Add to the list, dict or set on top of the stack."""
    x = self.top()
    if type(x) is not kind: raise TypeError(f"{type(x).__name__} where {kind.__name__} is expected")
    (x.extend if kind is list else x.update)(found)

  def put(self, i: int) -> None:
    """Keep the value on top, to be used again as number i."""
    if i == len(self.memo): self.memo.append(self.top())
    elif 0 <= i < len(self.memo): self.memo[i] = self.top()
    else:
      self.take(150)
      self.odd[i] = self.top()

  def get(self, i: int) -> None: self.stack.append(self.memo[i] if 0 <= i < len(self.memo) else self.odd[i])

  def pop_any(self) -> None:
    if self.marks and self.marks[-1] == len(self.stack): self.marks.pop()
    else: self.stack.pop()

  def mark(self) -> None:
    if len(self.marks) > 4 * DEEPEST: raise self.refuse(f"its pickle makes what is more than {DEEPEST} deep")
    self.marks.append(len(self.stack))
  def row(self, n: int) -> None:
    """A tuple of the last n values."""
    at = len(self.stack) - n
    if at < (self.marks[-1] if self.marks else 0): raise ValueError("a mark where a value should be")
    self.stack[at:] = [tuple(self.stack[at:])]
  def setitem(self) -> None:
    value, k = self.pop(), self.pop()
    self.into(dict, {key(k): value})
  def marked_pairs(self) -> dict[Any, Any]:
    """What is marked, as keys and values in turn."""
    found = self.marked(42)
    if len(found) % 2: raise ValueError("a key without a value")
    return pairs(zip(found[::2], found[1::2]))
  def marked_keys(self) -> frozenset[Any]: return frozenset(map(key, self.marked(92)))

  def name(self, module: Any, name: Any) -> None:
    if not isinstance(module, str) or not isinstance(name, str): raise TypeError(f"a name {shown(module)}, {shown(name)}")
    full = f"{_NAMES.get(module, module)}.{name}"
    if full not in self.known:
      raise self.refuse(f"it holds an object of {full[:200]}, and only tensors and plain values are loaded: nothing in it is "
                        "run; save a state dict in its place")
    self.stack.append(self.known[full])
  def stack_global(self) -> None:
    name, module = self.pop(), self.pop()
    self.name(module, name)

  def reduce(self) -> None:
    """The result of a call; what it takes may be copied."""
    args, fn = self.pop(), self.pop()
    if not isinstance(fn, Called) or not isinstance(args, tuple): raise TypeError(f"a call of {shown(fn)}")
    self.take(fn.cost + _larger(args))
    try: self.stack.append(fn.fn(*args))
    except (TypeError, ValueError, AttributeError) as e:
      raise self.refuse(f"{fn.name} has other arguments than it takes ({str(e)[:200]})") from None

  def build(self) -> None:
    """Attributes of a dict (an OrderedDict's ``_metadata``) are left out; else only a Built has any."""
    state = self.pop()
    if not isinstance(x := self.top(), Built): self.into(dict)
    else:
      self.take(_larger(state) if isinstance(state, tuple) else 0)
      x.build(state)

  # ---- numbers and text as lines
  def line_int(self) -> None:
    said = self.line()
    self.push(said == b"01" if said in (b"00", b"01") else int(said))
  def line_string(self) -> None:
    said = self.line().strip()
    if len(said) < 2 or said[:1] not in (b"'", b'"') or said[:1] != said[-1:]: raise ValueError("text without quotes")
    self.push(codecs.escape_decode(said[1:-1])[0].decode("latin-1"))

  def measure(self, root: Any, most: int) -> None:
    """Refuse a value that has itself, is deep, or has more than ``most`` parts where what it holds twice counts twice."""
    done = dict[int, tuple[int, int]]()   # by identity, of what is through: parts, and how deep; of what is not: 0, 0

    def visit(x: Any, above: int) -> tuple[int, int]:
      done[id(x)] = 0, 0
      inside = x.values() if type(x) is dict else x
      parts, deep = 1 + len(inside), 1
      for c in inside:
        if type(c) not in _NESTS: continue
        if (found := done.get(id(c))) is None:
          if above >= DEEPEST: raise self.refuse(f"its pickle makes what is more than {DEEPEST} deep")
          self.take(100)
          found = visit(c, above + 1)
        if not found[0]: raise self.refuse(f"its pickle makes a {type(c).__name__} that has itself")
        parts, deep = parts + found[0] - 1, max(deep, 1 + found[1])
      if parts > most: raise self.refuse(f"its pickle makes what would have more than {most} parts if it were written out")
      if deep > DEEPEST: raise self.refuse(f"its pickle makes what is more than {DEEPEST} deep")
      if deep > 1 or parts > 8:
        self.take(100)
        done[id(x)] = parts, deep
      else: del done[id(x)]   # as quickly counted again
      return parts, deep

    if type(root) in _NESTS: visit(root, 1)


def _larger(args: tuple[Any, ...]) -> int:
  """What copies of some values take at most, but for what they hold."""
  return sum(_COPIED.get(type(a), 0) * len(a) for a in args if type(a) in _COPIED)


def _name_of(op: int) -> str:
  import pickletools
  known = pickletools.code2op.get(chr(op))  # type: ignore[attr-defined]
  return known.name if known else f"{op}, which is none"


def _reads(n: int, make: Callable[[memoryview], Any]) -> Callable[[_Machine], Any]:
  """Puts on the stack what is made of some bytes, whose number stands in n before them."""
  return lambda m: m.push(make(m.part(m.number(n))))


def _latin1(b: memoryview) -> str: return str(b, "latin-1")
def _utf8(b: memoryview) -> str: return str(b, "utf-8", "surrogatepass")


# by the bytes that it takes (those whose size is known later charge it themselves): what an instruction does. A place on the
# stack is 8 bytes, which go into what is made of it; what leaves little is charged so that it cannot go on
_BY_COST: dict[int, dict[str, Callable[[_Machine], Any]]] = {
  1: {"a": lambda m: m.into(list, [m.pop()]), "e": lambda m: m.into(list, m.marked(1)),
      "u": lambda m: m.into(dict, m.marked_pairs()), "\x90": lambda m: m.into(set, m.marked_keys())},
  8: {"I": _Machine.line_int, "L": lambda m: m.push(int(m.line().removesuffix(b"L"))), "F": lambda m: m.push(float(m.line())),
      "J": lambda m: m.push(m.number(4, True)), "K": lambda m: m.stack.append(m.byte()), "M": lambda m: m.push(m.number(2)),
      "\x8a": lambda m: m.push(m.number(m.byte(), True)), "\x8b": lambda m: m.push(m.number(m.number(4), True)),
      "G": lambda m: m.push(struct.unpack(">d", m.part(8))[0]), "g": lambda m: m.get(int(m.line())),
      "h": lambda m: m.get(m.byte()), "j": lambda m: m.get(m.number(4)),
      "c": lambda m: m.name(*[str(m.line(), "utf-8") for _ in range(2)]),
      "\x93": _Machine.stack_global, "R": _Machine.reduce},
  9: {"p": lambda m: m.put(int(m.line())), "q": lambda m: m.put(m.byte()), "r": lambda m: m.put(m.number(4))},
  16: {"N": lambda m: m.stack.append(None), "\x88": lambda m: m.stack.append(True), "\x89": lambda m: m.stack.append(False),
       ")": lambda m: m.stack.append(()), "S": _Machine.line_string, "V": lambda m: m.push(str(m.line(), "raw-unicode-escape")),
       "T": _reads(4, _latin1), "U": _reads(1, _latin1), "X": _reads(4, _utf8), "\x8c": _reads(1, _utf8),
       "\x8d": _reads(8, _utf8), "B": _reads(4, bytes), "C": _reads(1, bytes), "\x8e": _reads(8, bytes),
       "\x96": _reads(8, bytearray), "\x94": lambda m: m.memo.append(m.top()), "b": _Machine.build},
  24: {"]": lambda m: m.push([]), "}": lambda m: m.push({}), "\x8f": lambda m: m.push(set()),
       "2": lambda m: m.stack.append(m.top())},
  48: {"(": _Machine.mark, "0": _Machine.pop_any, "1": lambda m: m.marked(), "\x80": lambda m: m.part(1),
       "\x95": lambda m: m.part(8)},
  56: {"\x85": lambda m: m.row(1), "\x86": lambda m: m.row(2), "\x87": lambda m: m.row(3)},
  64: {"t": lambda m: m.stack.append(tuple(m.marked())), "P": lambda m: m.stack.append(m.persistent(str(m.line(), "utf-8"))),
       "Q": lambda m: m.stack.append(m.persistent(m.pop()))},
  80: {"l": lambda m: m.stack.append(m.marked()), "d": lambda m: m.stack.append(m.marked_pairs())},
  84: {"s": _Machine.setitem}, 240: {"\x91": lambda m: m.stack.append(m.marked_keys())}}
_STEPS = {ord(op): (do, cost) for cost, steps in _BY_COST.items() for op, do in steps.items()}
