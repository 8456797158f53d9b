"""What objects give when code reads an attribute, an item or all elements of them: found without running anything, and noted.

A *value* is what something in the code may be: the objects, each with the name that the code has for it. Of what the code
computes itself nothing is known, and of plain values only where they were read.
"""
from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ntgrad.graph.change_counts import Stamped
from ntgrad.graph.checks import Valued

from .places import ABSENT, CONTAINERS, Place, Reads, Where, class_attribute, is_library, is_users, plain

MANY = 1024   # objects that one value may be

Value = tuple[tuple[Any, str], ...]
UNKNOWN: Value = ()

# types that call a function → how to get it, or all of them
wrappers: dict[type, Callable[[Any], Any]] = {
  partial: lambda p: p.func, staticmethod: lambda s: s.__func__, classmethod: lambda s: s.__func__}

MUTATORS = frozenset("append extend add update insert remove discard clear appendleft extendleft sort reverse".split())


class Const(NamedTuple):
  """A constant of the code."""
  value: Any


class Leaf(NamedTuple):
  """A plain value that was read from a place: it counts where something uses it, not where it is only printed or listed."""
  place: Place


class Packed(NamedTuple):
  """A container that the code makes, or what iterates: of it, its elements are known."""
  elements: Value


class Super(NamedTuple):
  """``super()`` in a method of ``kind``."""
  owner: Any
  kind: type


class Bound(NamedTuple):
  """A function with its first argument, or a method of a container by name."""
  fn: Any
  owner: Any


NO_OBJECTS = (Const, Leaf, Packed, Super, Bound)


class Objects:
  """What one walk through some code knows of objects. ``loose`` has the identities of containers among the arguments, which the
  call's signature has taken apart: what lies there is not noted."""

  def __init__(self, reads: Reads):
    self.reads = reads
    self.done: dict[Any, Value] = {}
    self.loose: set[int] = set()
    self.held: list[Any] = []   # so that identities stay what they are

  def call_one(self, fn: Any, text: str, args: Sequence[Value], named: Mapping[str, Value], where: Where) -> Value:
    """What a call gives."""
    raise NotImplementedError

  def one(self, x: Any, text: str, where: Where) -> Value:
    """What has just been read at a place, and noted."""
    place = self.reads.latest
    if x is ABSENT or not plain(x) or isinstance(x, tuple) or (place.used and not self.reads.is_new):
      return self.obtained(((x, text),), where)
    place.used = False
    return ((Leaf(place), text),)

  def obtained(self, found: Value, where: Where) -> Value:
    """Objects that were read: what is known of each beside."""
    out = []
    for x, text in found:
      if x is ABSENT: continue
      if isinstance(x, Valued): self.reads.flag(x, text, where)
      elif isinstance(x, np.ndarray): self.reads.array(x, text, where)
      elif not plain(x) or isinstance(x, tuple): out.append((x, text))
    return tuple(out)

  def used(self, value: Value, where: Where) -> None:
    """A value goes where nobody follows it: of a container all may be read."""
    for x, text in value:
      if isinstance(x, Leaf): x.place.used = True
      if isinstance(x, CONTAINERS) and id(x) not in self.loose: self.elements(((x, text),), where)

  def elements(self, value: Value, where: Where) -> Value:
    """What lies in containers."""
    out: list[tuple[Any, str]] = []
    for x, text in value:
      if isinstance(x, Packed): out += x.elements
      elif isinstance(x, CONTAINERS):
        if id(x) in self.loose: found = list(x.values() if isinstance(x, dict) else x)
        elif isinstance(x, tuple) and plain(x): continue
        else: found = self.reads.whole(x, text, where)
        out += self.obtained(tuple([(y, f"{text}[{i}]") for i, y in enumerate(found)]), where)
      elif isinstance(x, Stamped): out += self.layer(x, text, where)
      elif isinstance(iterate := class_attribute(type(x), "__iter__")[1], types.FunctionType):
        out += self.elements(self.call_one(iterate, text, [((x, text),)], {}, where), where)
    return tuple(out[:MANY])

  def item(self, value: Value, key: Any, where: Where) -> Value:
    """What ``[key]`` gives."""
    out: list[tuple[Any, str]] = []
    for x, text in value:
      if isinstance(x, Packed): out += x.elements
      elif isinstance(x, Stamped): out += self.elements(((x, text),), where)
      elif isinstance(x, CONTAINERS) and (id(x) in self.loose or isinstance(x, tuple)):
        try: out += self.obtained(((x[key], f"{text}[{key!r}]"),), where)   # type: ignore[index]
        except (LookupError, TypeError): pass
      elif isinstance(x, (list, dict, deque)) or (isinstance(x, Mapping) and not is_users(type(x).__module__)):
        out += self.one(self.reads.item(x, key, f"{text}[{key!r}]", where), f"{text}[{key!r}]", where)
      elif isinstance(getter := class_attribute(type(x), "__getitem__")[1], types.FunctionType):
        out += self.call_one(getter, text, [((x, text),), ((Const(key), "key"),)], {}, where)
    return tuple(out[:MANY])

  def own(self, value: Value, where: Where) -> Value:
    """All attributes of objects."""
    out: list[tuple[Any, str]] = []
    for x, text in value:
      names = list(getattr(x, "__dict__", ()))
      if isinstance(x, (type, types.ModuleType)) or isinstance(x, Valued): continue
      out += self.obtained(tuple([(self.reads.attribute(x, n, f"{text}.{n}", where), f"{text}.{n}") for n in names]), where)
    return tuple(out[:MANY])

  def attributes(self, value: Value, name: str, where: Where) -> Value:
    """What ``.name`` gives."""
    out: list[tuple[Any, str]] = []
    for x, text in value: out += self.attribute(x, name, text, where)
    return tuple(out[:MANY])

  def attribute(self, x: Any, name: str, text: str, where: Where) -> Value:
    """What ``.name`` of one object gives."""
    called = f"{text}.{name}"
    if isinstance(x, Super): return self.above(x, name, called, where)
    if isinstance(x, NO_OBJECTS) or isinstance(x, Valued): return UNKNOWN
    if isinstance(x, types.ModuleType):
      if is_users(x.__name__): return self.one(self.reads.item(vars(x), name, called, where), called, where)
      return ((vars(x)[name], called),) if name in vars(x) else UNKNOWN
    if isinstance(x, tuple) and name in getattr(type(x), "_fields", ()):
      return self.obtained(((getattr(x, name), called),), where)
    if isinstance(x, CONTAINERS) and type(x).__module__ in ("builtins", "collections"):
      if name not in MUTATORS and id(x) not in self.loose: self.reads.whole(x, text, where)
      return ((Bound(name, x), called),)
    if isinstance(x, type):
      found = self.of_class(x, name, where)
      return self.obtained(((getattr(found, "__func__", found), called),), where)
    if id(x) in self.loose: return self.obtained(((vars(x)[name], called),), where) if name in vars(x) else UNKNOWN
    return self.of_object(x, name, called, where)

  def of_object(self, x: Any, name: str, called: str, where: Where) -> Value:
    """An attribute of an object that is no module, class or container: its own, or its class's."""
    kind = type(x)
    if name == "__class__": return ((kind, called),)
    if name == "__dict__": return ((x.__dict__, called),) if hasattr(x, "__dict__") else UNKNOWN
    holder, found = class_attribute(kind, name)
    if isinstance(found, property): return self.call_one(found.fget, called, [((x, called),)], {}, where)
    slot = isinstance(found, types.MemberDescriptorType)
    if holder is not None and not slot and hasattr(type(found), "__set__"): return self.described(found, x, called, where)
    if slot or name in getattr(x, "__dict__", ()) or (holder is None and hasattr(x, "__dict__")):
      value = self.reads.attribute(x, name, called, where)
      return self.one(value, called, where) if value is not ABSENT else self.asked_for(x, name, called, where)
    if holder is None: return self.asked_for(x, name, called, where)
    if hasattr(x, "__dict__"): self.reads.attribute(x, name, called, where)   # it may get its own
    self.of_class(kind, name, where)
    if isinstance(found, staticmethod): return ((found.__func__, called),)
    if isinstance(found, classmethod): return ((Bound(found.__func__, kind), called),)
    if isinstance(found, (types.FunctionType, *wrappers)): return ((Bound(found, x), called),)
    if not hasattr(type(found), "__get__"): return self.obtained(((found, called),), where)
    inner = getattr(found, "func", None)   # of a cached property: what it was given
    if isinstance(inner, types.FunctionType): return self.call_one(inner, called, [((x, called),)], {}, where)
    return self.described(found, x, called, where)

  def described(self, descriptor: Any, x: Any, called: str, where: Where) -> Value:
    """What a descriptor gives."""
    getter = class_attribute(type(descriptor), "__get__")[1]
    if not isinstance(getter, types.FunctionType): return UNKNOWN
    return self.call_one(getter, called, [((descriptor, called),), ((x, called),), ((type(x), called),)], {}, where)

  def asked_for(self, x: Any, name: str, called: str, where: Where) -> Value:
    """What ``__getattr__`` gives: by an item of a dict, or a function."""
    getter = class_attribute(type(x), "__getattr__")[1]
    if isinstance(x, dict) and not isinstance(getter, types.FunctionType):
      return self.item(((x, called.rpartition(".")[0]),), name, where)
    if isinstance(getter, types.FunctionType) and is_library(getter.__code__.co_filename): self.reads.cannot(called, where)
    return self.call_one(getter, called, [((x, called),), ((Const(name), "name"),)], {}, where)

  def above(self, x: Super, name: str, called: str, where: Where) -> Value:
    """What ``super().name`` gives."""
    mro = type(x.owner).__mro__
    for c in mro[mro.index(x.kind) + 1:] if x.kind in mro else ():
      if name not in c.__dict__: continue
      if is_users(c.__module__): self.reads.class_item(c, name, f"{c.__name__}.{name}", where)
      return ((Bound(c.__dict__[name], x.owner), called),)
    return UNKNOWN

  def of_class(self, kind: type, name: str, where: Where) -> Any:
    """A class's attribute, its bases' included; noted where the class is the user's."""
    for c in kind.__mro__:
      if is_users(c.__module__): self.reads.class_item(c, name, f"{c.__name__}.{name}", where)
      if name in c.__dict__: return c.__dict__[name]
    return ABSENT

  def layer(self, x: Any, text: str, where: Where) -> Value:
    """All attributes of one of ntgrad's layers."""
    key = ("layer", id(x))
    if key in self.done: return self.done[key]
    self.done[key] = UNKNOWN
    self.held.append(x)
    names = [n for n in vars(x) if n != "_mode"]
    self.reads.names(x, text, where)
    found = tuple([(self.reads.attribute(x, n, f"{text}.{n}", where), f"{text}.{n}") for n in names])
    found = self.obtained(found, where)
    inner = [y for v, t in found if isinstance(v, CONTAINERS) for y in self.elements(((v, t),), where)]
    self.done[key] = found = (*found, *inner)
    return found
