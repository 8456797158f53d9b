"""What a function's code reads from outside, found in its instructions, without running it.

The instructions are gone through in order with a stack of *values* (``objects.py``). Names of globals, closures and defaults give
objects, attributes and items of these give others, and every step is noted. What is called is gone through likewise, with what is
known of its arguments. All branches count. Only the user's code is read so; of ntgrad's layers every attribute is noted, and of
Python's and installed packages nothing.
"""
from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Mapping, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from ntgrad.graph import Valued
from ntgrad.graph.change_counts import Stamped
from ntgrad.graph.origins import is_internal

from .instructions import Frame, Inner, Instructions
from .objects import MANY, NO_NAMES, NO_OBJECTS, UNKNOWN, Args, Bound, Named, Packed, Value, constants, wrappers
from .places import CONTAINERS, Reads, class_attribute, contents, is_library, is_users

DEPTH = 40    # calls within one another that are gone through

_INNER = frozenset("items values get copy pop popitem setdefault popleft".split())   # what gives what lies in a container
# what gives elements of its arguments → how deep
_EACH: dict[Any, int] = {
  enumerate: 2, zip: 2, reversed: 1, sorted: 1, list: 1, tuple: 1, iter: 1, set: 1, frozenset: 1, filter: 1, dict: 0}
_CHANGING_MODULES = frozenset({"time", "random", "secrets", "_random", "_secrets"})
_CHANGING = input, open, eval, exec, globals, os.getenv, os.urandom


def reads_of(fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Reads:
  """What a call of ``fn`` reads beside its arguments, as it is before the call. Of objects among the arguments, what is read of
  them is noted, too; of lists, dicts and dataclasses among them not what lies there, but what is read of objects there."""
  given = [((a, f"argument {i}"),) for i, a in enumerate(args)]
  named = {k: ((a, k),) for k, a in (kwargs or {}).items()}
  walk = _Walk(Reads(), (*args, *(kwargs or {}).values()))
  walk.call(((fn, getattr(fn, "__name__", "the function")),), given, named)
  return walk.reads


class _Walk(Instructions):

  def __init__(self, reads: Reads, arguments: Sequence[Any]):
    super().__init__(reads)
    self.depth = 0
    self.held.append(arguments)
    stack = list(arguments)
    while stack:
      x = stack.pop()
      if id(x) in self.loose: continue
      if isinstance(x, CONTAINERS): inner = contents(x)
      elif dataclasses.is_dataclass(x) and not isinstance(x, type): inner = list(getattr(x, "__dict__", {}).values())
      else: continue
      self.loose.add(id(x))
      stack.extend(inner)

  # ---- calls
  def call(self, callee: Value, args: Args, named: Named) -> Value:
    """Go through whatever ``callee`` may be; gives what may come back."""
    out: dict[int, tuple[Any, str]] = {}
    for fn, text in callee:
      for x in self.call_one(fn, text, args, named): out[id(x[0])] = x
    return tuple(out.values())[:MANY]

  def call_one(self, fn: Any, text: str, args: Args = (), named: Named = NO_NAMES) -> Value:
    if isinstance(fn, Bound):
      method, owner = fn
      if not isinstance(method, str): return self.call_one(method, text, [_owner(owner, text), *args], named)
      if method not in _INNER: return UNKNOWN
      found = self.elements_of(owner, text)[:MANY]
      if method == "items": found = ((Packed(found), text),)
      return ((Packed(found), text),) if method in ("items", "values", "copy") else found
    if isinstance(fn, (*NO_OBJECTS, Inner)): return UNKNOWN
    if type(fn) in wrappers:
      if type(fn) is partial:
        args = [*[((a, text),) for a in fn.args], *args]
        named = {**{k: ((a, k),) for k, a in fn.keywords.items()}, **named}
      inner = wrappers[type(fn)](fn)
      return self.call(tuple([(f, text) for f in (inner if isinstance(inner, tuple) else (inner,))]), args, named)
    if isinstance(fn, MethodType): return self.call_one(fn.__func__, text, [_owner(fn.__self__, text), *args], named)
    if isinstance(fn, FunctionType):
      file = fn.__code__.co_filename
      if not is_internal(file) and not is_library(file):
        here, self.reads.where = self.reads.where, (file, fn.__code__.co_firstlineno)
        found = self.function(fn, text, args, named)
        self.reads.where = here
        return found
      for x, t in args[0] if args and is_internal(file) else ():
        if isinstance(x, Stamped): self.layer(x, t)   # a method of a layer
      if (inner := getattr(fn, "__wrapped__", None)) is not None: return self.call_one(inner, text, args, named)
    elif isinstance(fn, type): return self.made(fn, text, args, named)
    elif not isinstance(fn, (BuiltinFunctionType, Valued)): return self.object(fn, text, args, named)
    return self.foreign(fn, text, args, named)

  def foreign(self, fn: Any, text: str, args: Args, named: Named) -> Value:
    """A call of what is not the user's. Functions and layers among its arguments, and in containers there, count as called."""
    if fn is getattr and len(args) > 1:
      names = constants(args[1])
      return self.attributes(args[0], str(names[0])) if names else self.own(args[0])
    if fn is os.getenv: args = [((os.environ, "os.environ"),), *args]
    if getattr(fn, "__name__", "") in ("get", "getenv") and len(args) > 1:   # of a mapping that is no dict
      mappings, keys = tuple([v for v in args[0] if isinstance(v[0], Mapping)]), constants(args[1])
      if mappings and keys: return self.item(mappings, keys[0])
    if fn is vars and args: return ((Packed(self.own(args[0])), text),)
    if fn is next and args and any([not isinstance(x, Packed) for x, _ in args[0]]):
      self.reads.cannot(f"next({args[0][0][1]})")
    elif (any([fn is f for f in _CHANGING]) or getattr(fn, "__module__", None) in _CHANGING_MODULES
          or isinstance(getattr(fn, "__self__", None), (random.Random, np.random.Generator, np.random.RandomState))):
      self.reads.cannot(f"{text}()")
    values = [x for value in (*args, *named.values()) for x in value]
    values += self.elements(tuple([v for v in values if isinstance(v[0], (Packed, *CONTAINERS))]))
    for x, t in values:
      if isinstance(x, (FunctionType, MethodType, Stamped, Bound)) or type(x) in wrappers: self.call_one(x, t)
      elif (note := getattr(type(x), "_note_reads", None)) is not None: note(x, self.reads, t)
    return UNKNOWN

  def made(self, kind: type, text: str, args: Args, named: Named) -> Value:
    if (levels := _EACH.get(kind)) is not None:
      inner = tuple([x for a in args for x in self.elements(a)])
      for _ in range(levels - 1): inner = ((Packed(inner), text),)
      return (Packed(inner), text),
    if kind is type and len(args) == 1: return tuple([(type(x), text) for x, _ in args[0] if not isinstance(x, NO_OBJECTS)])
    if kind is map and args:
      self.call(args[0], [self.elements(a) for a in args[1:]], {})
      return UNKNOWN
    if not is_users(kind.__module__): return self.foreign(kind, text, args, named)
    init = self.of_class(kind, "__init__")
    if isinstance(init, FunctionType): self.call_one(init, text, [UNKNOWN, *args], named)
    return UNKNOWN

  def object(self, x: Any, text: str, args: Args, named: Named) -> Value:
    """A call of an object: of its class's ``__call__``, for a Module ``forward``."""
    kind = type(x)
    call = class_attribute(kind, "__call__")[1]
    if isinstance(x, Stamped):
      self.reads.mode(x, text)
      for h in self.reads.hooks(x, text): self.call_one(h.fn, text)
      if (own := vars(x).get("forward")) is not None: return self.call_one(own, f"{text}.forward", args, named)
      forward = class_attribute(kind, "forward")[1]
      call = forward if isinstance(forward, FunctionType) and not is_internal(forward.__code__.co_filename) else call
      if isinstance(call, FunctionType) and is_internal(call.__code__.co_filename):
        for inner, t in self.layer(x, text):
          if callable(inner) and not isinstance(inner, Valued): self.call_one(inner, t)
        return UNKNOWN
    elif not is_users(kind.__module__): return UNKNOWN
    if not isinstance(call, FunctionType): return UNKNOWN
    self.of_class(kind, call.__name__)
    return self.call_one(call, text, [((x, text),), *args], named)

  def function(self, fn: FunctionType, text: str, args: Args, named: Named) -> Value:
    code, closure, defaults = fn.__code__, fn.__closure__ or (), fn.__defaults__ or ()
    self.reads.function(fn, text)
    count, names = code.co_argcount, code.co_varnames
    given: dict[str, Value] = {name: ((d, name),) for name, d in (*zip(names[count - len(defaults):count], defaults),
                                                                  *(fn.__kwdefaults__ or {}).items())}
    given.update(zip(names[:count], args))
    given.update({k: a for k, a in named.items() if k in names})
    if code.co_flags & 4:   # *args
      rest = tuple([x for a in args[count:] for x in a])
      given[names[count + code.co_kwonlyargcount]] = ((Packed(rest), "args"),)
    key = code, id(fn.__globals__), tuple(map(id, closure)), tuple([(n, _identity(v)) for n, v in given.items()])
    if key in self.done: return self.done[key]
    self.done[key] = UNKNOWN
    if self.depth >= DEPTH: return UNKNOWN
    self.held.append((fn, given))
    self.depth += 1
    cells = dict(zip(code.co_freevars, closure))
    kind = cells.pop("__class__", None)
    frame = Frame(code, fn.__globals__, {n: self.one(self.reads.cell(c, n), n) for n, c in cells.items()}, given)
    if kind is not None: frame.kind = kind.cell_contents
    self.done[key] = found = self.walk(frame)
    self.depth -= 1
    return found

  def inner(self, x: Inner, args: Args) -> Value:
    """A call of a function that the code itself makes: it sees the names around it."""
    code, f = x.code, x.frame
    key = "inner", code, id(f), tuple(map(_identity, args))
    if key in self.done or self.depth >= DEPTH: return UNKNOWN
    self.done[key] = UNKNOWN
    self.held.append((f, args))
    cells = {n: f.locals.get(n, f.cells.get(n, UNKNOWN)) for n in code.co_freevars}
    self.depth += 1
    found = self.walk(Frame(code, f.globals, cells, dict(zip(code.co_varnames[:code.co_argcount], args))))
    self.depth -= 1
    return found


def _identity(value: Value) -> tuple[Any, ...]:
  """Which objects a value may be; of what a walk makes anew each time, what is in it."""
  return tuple([_identity(x.elements) if isinstance(x, Packed) else (id(x.owner), x.fn if isinstance(x.fn, str) else id(x.fn))
                if isinstance(x, Bound) else 0 if isinstance(x, NO_OBJECTS) else id(x) for x, _ in value])


def _owner(x: Any, method: str) -> Value: return (x, method.rpartition(".")[0] or "self"),
