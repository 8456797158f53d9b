"""A walk through the instructions of a function, with a stack of what each value may be. See ``code.py``."""
from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from .objects import MANY, MUTATORS, UNKNOWN, Args, Bound, Const, Named, Objects, Packed, Super, Value, constants

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
def steps_of(code: CodeType) -> list[Step]:
  """The instructions of some code."""
  out, line = [], code.co_firstlineno
  for i in dis.get_instructions(code):
    if i.positions is not None and i.positions.lineno is not None: line = i.positions.lineno
    target = i.argval if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs else None
    try: grows = dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
    except ValueError: grows = 0
    out.append(Step(i.opname, i.arg, i.argval, line, i.offset, target, grows))
  return out


@dataclass(eq=False)
class Frame:
  """A function that is gone through."""
  code: CodeType
  globals: dict[str, Any]
  cells: Mapping[str, Value]
  locals: dict[str, Value]
  kind: Any = None                                                          # its class, where it asks for super()
  gives: dict[int, tuple[Any, str]] = field(default_factory=dict)   # what it may return

  def local(self, name: str) -> Value:
    """What a name of its own, or of a function around it, may be."""
    return self.locals.get(name, self.cells.get(name, UNKNOWN))

  def keep(self, name: str, value: Value) -> None:
    """A name may be ``value``, beside what it was elsewhere. Of packed values, made anew each time, the last one counts."""
    old = self.locals.get(name, UNKNOWN)
    seen = {id(x) for x, _ in old}
    if any([isinstance(x, Packed) for x, _ in value]): old = tuple([o for o in old if not isinstance(o[0], Packed)])
    self.locals[name] = (*old, *[v for v in value if id(v[0]) not in seen])[:MANY]


class Inner:
  """A function that the code makes, and the names around it."""
  __slots__ = "code", "frame"
  def __init__(self, code: CodeType, frame: Frame): self.code, self.frame = code, frame


class Instructions(Objects):
  """Goes through functions; what calls give is found by ``call`` and ``inner``."""

  def call(self, callee: Value, args: Args, named: Named) -> Value: raise NotImplementedError
  def foreign(self, fn: Any, text: str, args: Args, named: Named) -> Value:
    """What a call gives of which nothing is known but the arguments."""
    raise NotImplementedError
  def inner(self, x: Inner, args: Args) -> Value: raise NotImplementedError

  def walk(self, f: Frame) -> Value:
    """Go through a function; gives what it may return. What a loop's body gives a name counts at its beginning, too."""
    steps, here = steps_of(f.code), self.reads.where
    loops, known = any([s.op.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD")) for s in steps]), -1
    for _ in range(PASSES if loops else 1):
      _Pass(self, f).run(steps)
      before, known = known, sum(map(len, f.locals.values()))
      if known == before: break
    self.reads.where = here
    return tuple(f.gives.values())[:MANY]

  def name(self, f: Frame, name: str) -> Value:
    """A global, or one of Python's own names."""
    if name in f.globals: return self.one(self.reads.item(f.globals, name, name), name)
    return ((getattr(builtins, name), name),) if hasattr(builtins, name) else UNKNOWN

  def called(self, callee: Value, args: Args, named: Named) -> Value:
    """What a call in the code gives. What is only listed or printed is not used."""
    inner = [x for x, _ in callee if isinstance(x, Inner)]
    quiet = any([x is print or isinstance(x, Bound) and isinstance(x.fn, str) and x.fn in MUTATORS for x, _ in callee])
    for value in (*args, *named.values()):
      if not quiet: self.used(value)
      inner += [x for x, _ in value if isinstance(x, Inner)]
    given = self.call(tuple([c for c in callee if not isinstance(c[0], Inner)]), args, named)
    if not callee: self.foreign(None, "", args, named)
    for x in inner: given = (*given, *self.inner(x, args if any([x is c for c, _ in callee]) else ()))
    return given


class _Pass:

  def __init__(self, walk: Instructions, f: Frame):
    self.walk, self.f = walk, f
    self.stack: list[Value] = []
    self.waiting: dict[int, list[Value]] = {}   # stacks at places that are jumped to
    self.keywords: Sequence[str] = ()           # of the next call
    self.reached = True

  def pop(self, n: int = 1) -> list[Value]:
    """The topmost values, the last one last."""
    stack = self.stack
    stack[:0] = [UNKNOWN] * (n - len(stack))
    at = len(stack) - n
    out, stack[at:] = stack[at:], []
    return out

  def run(self, steps: Sequence[Step]) -> None:
    stack, waiting = self.stack, self.waiting
    for s in steps:
      if s.offset in waiting:
        if not self.reached or len(waiting[s.offset]) >= len(stack): stack[:] = waiting[s.offset]
        self.reached = True
      elif not self.reached: stack.clear()
      if s.target is not None and s.op != "FOR_ITER":
        waiting.setdefault(s.target, list(stack[:-1]) if "POP_JUMP" in s.op else list(stack))
      self.walk.reads.where = self.f.code.co_filename, s.line
      if s.op in _QUIET: continue
      if s.op in _LEAVES: self.reached = False
      else: self.step(s)

  def step(self, s: Step) -> None:
    f, stack, walk, pop, push = self.f, self.stack, self.walk, self.pop, self.stack.append
    op, arg, argval = s.op, s.arg, s.argval
    def top() -> Value: return pop()[0]
    match op:
      # names, constants and attributes
      case "LOAD_GLOBAL" | "LOAD_NAME":
        if op == "LOAD_GLOBAL" and arg & 1: push(UNKNOWN)
        push(walk.name(f, argval))
      case "LOAD_FAST_LOAD_FAST" | "LOAD_FAST_BORROW_LOAD_FAST_BORROW": stack.extend([f.local(n) for n in argval])
      case _ if op.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")): push(f.local(argval))
      case "STORE_FAST_STORE_FAST":
        b, a = pop(2)
        f.keep(argval[0], a)
        f.keep(argval[1], b)
      case "STORE_FAST_LOAD_FAST":
        f.keep(argval[0], top())
        push(f.local(argval[1]))
      case "STORE_FAST" | "STORE_DEREF": f.keep(argval, top())
      case "LOAD_CONST" | "LOAD_SMALL_INT": push(((Const(argval), ""),))
      case "IMPORT_NAME":
        level, names = [next(iter(constants(v)), None) for v in pop(2)]
        module = sys.modules.get(argval if names else argval.partition(".")[0]) if level == 0 else None
        push(((module, argval),) if module is not None else UNKNOWN)
      case "IMPORT_FROM": push(walk.attributes(stack[-1], argval))
      case "LOAD_ATTR" | "LOAD_METHOD":
        push(walk.attributes(top(), argval))
        if op == "LOAD_METHOD" or not _OLD and arg & 1: push(UNKNOWN)
      case "LOAD_SUPER_ATTR":
        pop(3)
        push(walk.attributes(self.above(), argval))
        if arg & 1: push(UNKNOWN)
      # items, loops, and containers that are made
      case "BINARY_SUBSCR" | "BINARY_OP" if op == "BINARY_SUBSCR" or argval in ("[]", 26):
        of, key = pop(2)
        walk.used(key)
        consts = constants(key)
        push(walk.item(of, consts[0]) if consts else walk.elements(of))
      case "GET_ITER": push(((Packed(walk.elements(top())), ""),))
      case "FOR_ITER":
        self.waiting.setdefault(s.target, stack[:-1] if _OLD else [*stack, UNKNOWN])
        push(walk.elements(stack[-1]) if stack else UNKNOWN)
      case "UNPACK_SEQUENCE" | "UNPACK_EX":
        stack.extend([walk.elements(top())] * (arg if op == "UNPACK_SEQUENCE" else (arg & 0xFF) + 1 + (arg >> 8)))
      case "BUILD_LIST" | "BUILD_TUPLE" | "BUILD_SET":
        inner = tuple([x for v in pop(arg) for x in v])
        walk.used(inner)
        push(((Packed(inner), ""),))
      case "LIST_EXTEND" | "SET_UPDATE" | "LIST_APPEND" | "SET_ADD":
        walk.used(value := top())
        more = walk.elements(value) if op in ("LIST_EXTEND", "SET_UPDATE") else value
        if more and len(stack) >= arg:
          before = [y for x, _ in stack[-arg] if isinstance(x, Packed) for y in x.elements]
          stack[-arg] = ((Packed((*more, *before)), ""),)
      case "FORMAT_VALUE" | "FORMAT_SIMPLE" | "CONVERT_VALUE":
        if op == "FORMAT_VALUE" and arg & 4: pop()
      case "BUILD_STRING": push(tuple([x for v in pop(arg) for x in v]))
      # calls, and functions that are made
      case "KW_NAMES": self.keywords = f.code.co_consts[arg]
      case "CALL" | "CALL_KW":
        if op == "CALL_KW": self.keywords = next(iter(constants(top())), ())
        args = pop(arg)
        a, b = pop(2)
        n = len(args) - len(self.keywords)
        named, self.keywords = dict(zip(self.keywords, args[n:])), ()
        both = *a, *b
        if any([x is super for x, _ in both]): push(self.above())
        elif any([isinstance(x, Inner) for x, _ in a]): push(walk.called(a, [b, *args[:n]], named))   # a comprehension
        else: push(walk.called(both, args[:n], named))
      case "CALL_FUNCTION_EX":
        if sys.version_info >= (3, 14) or arg & 1: walk.used(top())
        given = walk.elements(top())
        a, b = pop(2)
        both = *a, *b
        count = max([c.co_argcount for x, _ in both if (c := getattr(x, "__code__", None)) is not None], default=1)
        push(walk.called(both, [given] * count, {}))
      case "MAKE_FUNCTION":
        code = next((c for c in constants(top()) if isinstance(c, CodeType)), None)
        if sys.version_info < (3, 13): pop(bin(arg or 0).count("1"))
        push(((Inner(code, f), ""),) if code is not None else UNKNOWN)
      case "SET_FUNCTION_ATTRIBUTE": del stack[-2:-1]
      case "RETURN_VALUE":
        walk.used(value := top())
        f.gives.update([(id(x[0]), x) for x in value])
        self.reached = False
      # and any other: what it takes is used, what it gives is unknown
      case "COPY": push(stack[-arg] if arg <= len(stack) else UNKNOWN)
      case "SWAP":
        if arg <= len(stack): stack[-1], stack[-arg] = stack[-arg], stack[-1]
      case _ if op in _POPS: pop(max(-s.grows, 1))
      case _:
        taken = pop(-s.grows) if s.grows < 0 else []
        if op not in _PUSHES and not op.startswith(("STORE_", "POP_JUMP", "JUMP_IF", "DELETE_")):
          taken += pop()
          push(UNKNOWN)
        for value in taken: walk.used(value)
        stack.extend([UNKNOWN] * max(s.grows, 0))

  def above(self) -> Value:
    """What ``super()`` gives."""
    f = self.f
    if f.kind is None or not f.code.co_argcount: return UNKNOWN
    return tuple([(Super(x, f.kind), "super()") for x, _ in f.locals.get(f.code.co_varnames[0], UNKNOWN)])
