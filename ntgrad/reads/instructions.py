"""A walk through the instructions of a function, with a stack of what each value may be. See ``code.py``."""
from __future__ import annotations

import builtins
import dis
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .objects import MANY, MUTATORS, UNKNOWN, Bound, Const, Objects, Packed, Super, Value
from .places import Where

PASSES = 4    # through a function with loops, at most
_OLD = sys.version_info < (3, 12)

_QUIET = frozenset("RESUME NOP PRECALL CACHE EXTENDED_ARG COPY_FREE_VARS MAKE_CELL NOT_TAKEN LIST_TO_TUPLE TO_BOOL "
                   "CALL_INTRINSIC_1".split())
_POPS = frozenset("POP_TOP POP_EXCEPT POP_ITER END_FOR END_SEND".split())
_PUSHES = frozenset("PUSH_NULL LOAD_BUILD_CLASS PUSH_EXC_INFO LOAD_ASSERTION_ERROR LOAD_CLOSURE MATCH_MAPPING "
                    "MATCH_SEQUENCE GET_LEN LOAD_COMMON_CONSTANT LOAD_SPECIAL BEFORE_WITH BEFORE_ASYNC_WITH".split())
_LEAVES = frozenset("RAISE_VARARGS RERAISE RETURN_CONST JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT".split())


class Step(NamedTuple):
  """An instruction: ``target`` is where it may jump to, ``grows`` what the stack grows by where it does not."""
  op: str
  arg: Any
  argval: Any
  line: int
  offset: int
  target: Any
  grows: int


@lru_cache(maxsize=4096)
def steps_of(code: types.CodeType) -> list[Step]:
  """The instructions of some code."""
  out = []
  line = code.co_firstlineno
  for i in dis.get_instructions(code):
    if i.positions is not None and i.positions.lineno is not None: line = i.positions.lineno
    target = i.argval if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs else None
    try: grows = dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
    except ValueError: grows = 0
    out.append(Step(i.opname, i.arg, i.argval, line, i.offset, target, grows))
  return out


class Frame:
  """A function that is gone through."""

  def __init__(self, code: types.CodeType, names: dict[str, Any], cells: Mapping[str, Value], given: dict[str, Value]):
    self.code, self.globals, self.cells, self.locals = code, names, cells, given
    self.kind: Any = None                         # the class that it is a method of, where it asks for super()
    self.gives: dict[int, tuple[Any, str]] = {}   # what it may return

  def local(self, name: str) -> Value:
    """What a name of its own, or of a function around it, may be."""
    return self.locals.get(name, self.cells.get(name, UNKNOWN))

  def keep(self, name: str, value: Value) -> None:
    """A name may be ``value``, beside what it was anywhere else. Of packed values, which are made anew each time, the last one
    counts."""
    old = self.locals.get(name, UNKNOWN)
    seen = {id(x) for x, _ in old}
    if any([isinstance(x, Packed) for x, _ in value]): old = tuple([o for o in old if not isinstance(o[0], Packed)])
    self.locals[name] = (*old, *[v for v in value if id(v[0]) not in seen])[:MANY]


class Inner:
  """A function that the code makes, and the names around it."""
  __slots__ = ("code", "frame")
  def __init__(self, code: types.CodeType, frame: Frame): self.code, self.frame = code, frame


class Instructions(Objects):
  """Goes through functions; what calls give is found by ``call`` and ``inner``."""

  def call(self, callee: Value, args: Sequence[Value], named: Mapping[str, Value], where: Where) -> Value:
    """What a call of whatever ``callee`` may be gives."""
    raise NotImplementedError
  def foreign(self, fn: Any, text: str, args: Sequence[Value], named: Mapping[str, Value], where: Where) -> Value:
    """What a call gives of which nothing is known but the arguments."""
    raise NotImplementedError
  def inner(self, x: Inner, args: Sequence[Value]) -> Value:
    """What a call of a function that the code makes gives."""
    raise NotImplementedError

  def walk(self, f: Frame) -> Value:
    """Go through a function; gives what it may return. What a loop's body gives a name counts at its beginning, too."""
    steps = steps_of(f.code)
    loops = any([s.op.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD")) for s in steps])
    known = -1
    for _ in range(PASSES if loops else 1):
      _Pass(self, f).run(steps)
      before, known = known, sum(map(len, f.locals.values()))
      if known == before: break
    return tuple(f.gives.values())[:MANY]

  def name(self, f: Frame, name: str, where: Where) -> Value:
    """A global, or one of Python's own names."""
    if name in f.globals: return self.one(self.reads.item(f.globals, name, name, where), name, where)
    return ((getattr(builtins, name), name),) if hasattr(builtins, name) else UNKNOWN

  def called(self, callee: Value, args: Sequence[Value], named: Mapping[str, Value], where: Where) -> Value:
    """What a call in the code gives. What is only listed or printed is not used."""
    inner = [x for x, _ in callee if isinstance(x, Inner)]
    quiet = any([x is print or isinstance(x, Bound) and isinstance(x.fn, str) and x.fn in MUTATORS for x, _ in callee])
    for value in (*args, *named.values()):
      if not quiet: self.used(value, where)
      inner += [x for x, _ in value if isinstance(x, Inner)]
    given = self.call(tuple([c for c in callee if not isinstance(c[0], Inner)]), args, named, where)
    if not callee: self.foreign(None, "", args, named, where)
    for x in inner: given = (*given, *self.inner(x, args if any([x is c for c, _ in callee]) else ()))
    return given


class _Pass:
  """One pass through the instructions of a function."""

  def __init__(self, walk: Instructions, f: Frame):
    self.walk, self.f = walk, f
    self.stack: list[Value] = []
    self.waiting: dict[int, list[Value]] = {}   # stacks at places that are jumped to
    self.keywords: Sequence[str] = ()           # of the next call
    self.reached = True

  def pop(self, n: int = 1) -> list[Value]:
    """The topmost values, the last one last."""
    stack = self.stack
    while len(stack) < n: stack.insert(0, UNKNOWN)
    out = stack[len(stack) - n:]
    del stack[len(stack) - n:]
    return out

  def run(self, steps: Sequence[Step]) -> None:
    """Go through all of them, in the order in which they stand."""
    stack, waiting = self.stack, self.waiting
    for s in steps:
      if s.offset in waiting:
        if not self.reached or len(waiting[s.offset]) >= len(stack): stack[:] = waiting[s.offset]
        self.reached = True
      elif not self.reached: stack.clear()
      if s.target is not None and s.op != "FOR_ITER":
        waiting.setdefault(s.target, list(stack[:-1]) if "POP_JUMP" in s.op else list(stack))
      where = (self.f.code.co_filename, s.line)
      if s.op in _QUIET: continue
      if s.op in _LEAVES: self.reached = False
      elif not any([part(self, s, where) for part in _PARTS]): self.other(s, where)

  # each gives whether the instruction is one of its kind
  def names(self, s: Step, where: Where) -> bool:
    """Names, constants and attributes."""
    op, f, stack = s.op, self.f, self.stack
    if op in ("LOAD_GLOBAL", "LOAD_NAME"):
      if op == "LOAD_GLOBAL" and s.arg & 1: stack.append(UNKNOWN)
      stack.append(self.walk.name(f, s.argval, where))
    elif op in ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"): stack.extend([f.local(n) for n in s.argval])
    elif op.startswith("LOAD_FAST") or op in ("LOAD_DEREF", "LOAD_CLASSDEREF"): stack.append(f.local(s.argval))
    elif op == "STORE_FAST_STORE_FAST":
      b, a = self.pop(2)
      f.keep(s.argval[0], a)
      f.keep(s.argval[1], b)
    elif op == "STORE_FAST_LOAD_FAST":
      f.keep(s.argval[0], self.pop()[0])
      stack.append(f.local(s.argval[1]))
    elif op in ("STORE_FAST", "STORE_DEREF"): f.keep(s.argval, self.pop()[0])
    elif op in ("LOAD_CONST", "LOAD_SMALL_INT"): stack.append(((Const(s.argval), ""),))
    elif op == "IMPORT_NAME":
      level, names = [next((k.value for k, _ in v if isinstance(k, Const)), None) for v in self.pop(2)]
      module = sys.modules.get(s.argval if names else s.argval.partition(".")[0]) if level == 0 else None
      stack.append(((module, s.argval),) if module is not None else UNKNOWN)
    elif op == "IMPORT_FROM": stack.append(self.walk.attributes(stack[-1], s.argval, where))
    elif op in ("LOAD_ATTR", "LOAD_METHOD"):
      stack.append(self.walk.attributes(self.pop()[0], s.argval, where))
      if op == "LOAD_METHOD" or (not _OLD and s.arg & 1): stack.append(UNKNOWN)
    elif op == "LOAD_SUPER_ATTR":
      self.pop(3)
      stack.append(self.walk.attributes(self.above(), s.argval, where))
      if s.arg & 1: stack.append(UNKNOWN)
    else: return False
    return True

  def containers(self, s: Step, where: Where) -> bool:
    """Items, loops, and containers that are made."""
    op, stack, walk = s.op, self.stack, self.walk
    if op == "BINARY_SUBSCR" or (op == "BINARY_OP" and s.argval in ("[]", 26)):
      of, key = self.pop(2)
      walk.used(key, where)
      consts = [k.value for k, _ in key if isinstance(k, Const)]
      stack.append(walk.item(of, consts[0], where) if consts else walk.elements(of, where))
    elif op == "GET_ITER": stack.append(((Packed(walk.elements(self.pop()[0], where)), ""),))
    elif op == "FOR_ITER":
      self.waiting.setdefault(s.target, stack[:-1] if _OLD else [*stack, UNKNOWN])
      stack.append(walk.elements(stack[-1], where) if stack else UNKNOWN)
    elif op == "UNPACK_SEQUENCE": stack.extend([walk.elements(self.pop()[0], where)] * s.arg)
    elif op == "UNPACK_EX": stack.extend([walk.elements(self.pop()[0], where)] * ((s.arg & 0xFF) + 1 + (s.arg >> 8)))
    elif op in ("BUILD_LIST", "BUILD_TUPLE", "BUILD_SET"):
      inner = tuple([x for v in self.pop(s.arg) for x in v])
      walk.used(inner, where)
      stack.append(((Packed(inner), ""),))
    elif op in ("LIST_EXTEND", "SET_UPDATE", "LIST_APPEND", "SET_ADD"):
      value, = self.pop()
      walk.used(value, where)
      more = walk.elements(value, where) if op in ("LIST_EXTEND", "SET_UPDATE") else value
      if more and len(stack) >= s.arg:
        before = [y for x, _ in stack[-s.arg] if isinstance(x, Packed) for y in x.elements]
        stack[-s.arg] = ((Packed((*more, *before)), ""),)
    elif op in ("FORMAT_VALUE", "FORMAT_SIMPLE", "CONVERT_VALUE"):
      if op == "FORMAT_VALUE" and s.arg & 4: self.pop()
    elif op == "BUILD_STRING": stack.append(tuple([x for v in self.pop(s.arg) for x in v]))
    else: return False
    return True

  def calls(self, s: Step, where: Where) -> bool:
    """Calls, and functions that are made."""
    op, stack, walk = s.op, self.stack, self.walk
    if op == "KW_NAMES": self.keywords = self.f.code.co_consts[s.arg]
    elif op in ("CALL", "CALL_KW"):
      if op == "CALL_KW": self.keywords = next((k.value for k, _ in self.pop()[0] if isinstance(k, Const)), ())
      args = self.pop(s.arg)
      a, b = self.pop(2)
      n = len(args) - len(self.keywords)
      named, self.keywords = dict(zip(self.keywords, args[n:])), ()
      if any([x is super for x, _ in (*a, *b)]): stack.append(self.above())
      elif any([isinstance(x, Inner) for x, _ in a]):   # a comprehension
        stack.append(walk.called(a, [b, *args[:n]], named, where))
      else: stack.append(walk.called((*a, *b), args[:n], named, where))
    elif op == "CALL_FUNCTION_EX":
      if sys.version_info >= (3, 14) or s.arg & 1: walk.used(self.pop()[0], where)
      given = walk.elements(self.pop()[0], where)
      a, b = self.pop(2)
      callee = (*a, *b)
      count = max([c.co_argcount for x, _ in callee if (c := getattr(x, "__code__", None)) is not None], default=1)
      stack.append(walk.called(callee, [given] * count, {}, where))
    elif op == "MAKE_FUNCTION":
      code = next((c.value for c, _ in self.pop()[0] if isinstance(c, Const) and isinstance(c.value, types.CodeType)), None)
      if sys.version_info < (3, 13): self.pop(bin(s.arg or 0).count("1"))
      stack.append(((Inner(code, self.f), ""),) if code is not None else UNKNOWN)
    elif op == "SET_FUNCTION_ATTRIBUTE": del stack[-2:-1]
    elif op == "RETURN_VALUE":
      value, = self.pop()
      walk.used(value, where)
      for x in value: self.f.gives[id(x[0])] = x
      self.reached = False
    else: return False
    return True

  def other(self, s: Step, where: Where) -> None:
    """Any other instruction: what it takes is used, what it gives is unknown."""
    stack, walk = self.stack, self.walk
    if s.op == "COPY": stack.append(stack[-s.arg] if s.arg <= len(stack) else UNKNOWN)
    elif s.op == "SWAP":
      if s.arg <= len(stack): stack[-1], stack[-s.arg] = stack[-s.arg], stack[-1]
    elif s.op in _POPS: self.pop(max(-s.grows, 1))
    else:
      taken = self.pop(-s.grows) if s.grows < 0 else []
      if s.op not in _PUSHES and not s.op.startswith(("STORE_", "POP_JUMP", "JUMP_IF", "DELETE_")):
        taken += self.pop()
        stack.append(UNKNOWN)
      for value in taken: walk.used(value, where)
      stack.extend([UNKNOWN] * max(s.grows, 0))

  def above(self) -> Value:
    """What ``super()`` gives."""
    f = self.f
    if f.kind is None or not f.code.co_argcount: return UNKNOWN
    return tuple([(Super(x, f.kind), "super()") for x, _ in f.locals.get(f.code.co_varnames[0], UNKNOWN)])


_PARTS: tuple[Callable[[_Pass, Step, Where], bool], ...] = (_Pass.names, _Pass.containers, _Pass.calls)
