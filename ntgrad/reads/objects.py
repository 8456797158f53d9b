"""What objects give when code reads an attribute, an item or all elements of them: found without running anything, and noted.

A *value* is what something in the code may be: the objects, each with the name that the code has for it. Of what the code
computes itself nothing is known, and of plain values only where they were read.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from ntgrad.graph import Valued
from ntgrad.graph.change_counts import Stamped

from .places import ABSENT, CONTAINERS, Place, Reads, class_attribute, contents, is_library, is_users, plain

MANY = 1024   # objects that one value may be

Value = tuple[tuple[Any, str], ...]
UNKNOWN: Value = ()
Args = Sequence[Value]
Named = Mapping[str, Value]
NO_NAMES: Named = {}

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


NO_OBJECTS = Const, Leaf, Packed, Super, Bound


def constants(value: Value) -> list[Any]: return [x.value for x, _ in value if isinstance(x, Const)]


def of_each(value: Value, found: Callable[[Any, str], Iterable[tuple[Any, str]]]) -> Value:
  """What is found of each object that a value may be."""
  return tuple([y for x, text in value for y in found(x, text)][:MANY])


class Objects:
  """What one walk through some code knows of objects. ``loose`` has the identities of containers among the arguments, which the
  call's signature has taken apart: what lies there is not noted."""

  def __init__(self, reads: Reads):
    self.reads = reads
    self.done: dict[Any, Value] = {}
    self.loose: set[int] = set()
    self.held: list[Any] = []   # so that identities stay what they are

  def call_one(self, fn: Any, text: str, args: Args = (), named: Named = NO_NAMES) -> Value: raise NotImplementedError

  def one(self, x: Any, text: str) -> Value:
    """What has just been read at a place, and noted."""
    place = self.reads.latest
    if x is ABSENT or not plain(x) or isinstance(x, tuple) or place.used and not self.reads.is_new:
      return self.obtained((x, text))
    place.used = False
    return (Leaf(place), text),

  def obtained(self, *found: tuple[Any, str]) -> Value:
    """Objects that were read: what is known of each beside."""
    out = []
    for x, text in found:
      if x is ABSENT: continue
      if isinstance(x, Valued):
        for h in self.reads.flag(x, text): self.call_one(h.fn, text)
      elif isinstance(x, np.ndarray): self.reads.array(x, text)
      elif not plain(x) or isinstance(x, tuple): out.append((x, text))
    return tuple(out)

  def used(self, value: Value) -> None:
    """A value goes where nobody follows it: of a container all may be read."""
    for x, text in value:
      if isinstance(x, Leaf): x.place.used = True
      if isinstance(x, CONTAINERS) and id(x) not in self.loose: self.elements_of(x, text)

  def elements(self, value: Value) -> Value: return of_each(value, self.elements_of)

  def elements_of(self, x: Any, text: str) -> Value:
    if isinstance(x, Packed): return x.elements
    if isinstance(x, CONTAINERS):
      if id(x) not in self.loose and isinstance(x, tuple) and plain(x): return UNKNOWN
      found = contents(x) if id(x) in self.loose else self.reads.whole(x, text)
      return self.obtained(*[(y, f"{text}[{i}]") for i, y in enumerate(found)])
    if isinstance(x, Stamped): return self.layer(x, text)
    return self.elements(self.method(x, "__iter__", text))

  def item(self, value: Value, key: Any) -> Value: return of_each(value, lambda x, text: self.item_of(x, key, text))

  def item_of(self, x: Any, key: Any, text: str) -> Value:
    called = f"{text}[{key!r}]"
    if isinstance(x, Packed): return x.elements
    if isinstance(x, Stamped): return self.elements_of(x, text)
    if isinstance(x, CONTAINERS) and (id(x) in self.loose or isinstance(x, tuple)):
      try: return self.obtained((x[key], called))   # type: ignore[index]
      except (LookupError, TypeError): return UNKNOWN
    if isinstance(x, (list, dict, deque)) or isinstance(x, Mapping) and not is_users(type(x).__module__):
      return self.one(self.reads.item(x, key, called), called)
    return self.method(x, "__getitem__", text, (Const(key), "key"))

  def method(self, x: Any, name: str, text: str, *args: tuple[Any, str]) -> Value:
    """What a method of an object's class gives, where it is written in Python."""
    fn = class_attribute(type(x), name)[1]
    return self.call_one(fn, text, [((x, text),), *[(a,) for a in args]]) if isinstance(fn, FunctionType) else UNKNOWN

  def own(self, value: Value) -> Value:
    """All attributes of objects."""
    return of_each(tuple([v for v in value if not isinstance(v[0], (type, ModuleType, Valued))]), self.own_of)

  def own_of(self, x: Any, text: str, but: str = "") -> Value:
    """The attributes of one object, without that of one name."""
    names = [n for n in getattr(x, "__dict__", ()) if n != but]
    return self.obtained(*[(self.reads.attribute(x, n, called := f"{text}.{n}"), called) for n in names])

  def attributes(self, value: Value, name: str) -> Value: return of_each(value, lambda x, text: self.attribute(x, name, text))

  def attribute(self, x: Any, name: str, text: str) -> Value:
    called = f"{text}.{name}"
    if isinstance(x, Super): return self.above(x, name, called)
    if isinstance(x, (*NO_OBJECTS, Valued)): return UNKNOWN
    if isinstance(x, ModuleType):
      if is_users(x.__name__): return self.one(self.reads.item(vars(x), name, called), called)
      return ((vars(x)[name], called),) if name in vars(x) else UNKNOWN
    if isinstance(x, tuple) and name in getattr(type(x), "_fields", ()): return self.obtained((getattr(x, name), called))
    if isinstance(x, CONTAINERS) and type(x).__module__ in ("builtins", "collections"):
      if name not in MUTATORS and id(x) not in self.loose: self.reads.whole(x, text)
      return (Bound(name, x), called),
    if isinstance(x, type):
      found = self.of_class(x, name)
      return self.obtained((getattr(found, "__func__", found), called))
    if id(x) in self.loose: return self.obtained((vars(x)[name], called)) if name in vars(x) else UNKNOWN
    return self.of_object(x, name, called)

  def of_object(self, x: Any, name: str, called: str) -> Value:
    """An attribute of an object that is no module, class or container: its own, or its class's."""
    kind, has_dict = type(x), hasattr(x, "__dict__")
    if name == "__class__": return ((kind, called),)
    if name == "__dict__": return ((x.__dict__, called),) if has_dict else UNKNOWN
    holder, found = class_attribute(kind, name)
    if isinstance(found, property): return self.call_one(found.fget, called, [((x, called),)])
    slot = isinstance(found, MemberDescriptorType)
    given = (x, called), (kind, called)   # to a descriptor
    if holder is not None and not slot and hasattr(type(found), "__set__"): return self.method(found, "__get__", called, *given)
    if slot or name in getattr(x, "__dict__", ()) or holder is None and has_dict:
      value = self.reads.attribute(x, name, called)
      return self.one(value, called) if value is not ABSENT else self.asked_for(x, name, called)
    if holder is None: return self.asked_for(x, name, called)
    if has_dict: self.reads.attribute(x, name, called)   # it may get its own
    self.of_class(kind, name)
    if isinstance(found, staticmethod): return ((found.__func__, called),)
    if isinstance(found, classmethod): return ((Bound(found.__func__, kind), called),)
    if isinstance(found, (FunctionType, *wrappers)): return ((Bound(found, x), called),)
    if not hasattr(type(found), "__get__"): return self.obtained((found, called))
    inner = getattr(found, "func", None)   # of a cached property: what it was given
    if isinstance(inner, FunctionType): return self.call_one(inner, called, [((x, called),)])
    return self.method(found, "__get__", called, *given)

  def asked_for(self, x: Any, name: str, called: str) -> Value:
    """What ``__getattr__`` gives: by an item of a dict, or a function."""
    getter = class_attribute(type(x), "__getattr__")[1]
    if isinstance(x, dict) and not isinstance(getter, FunctionType): return self.item_of(x, name, called.rpartition(".")[0])
    if isinstance(getter, FunctionType) and is_library(getter.__code__.co_filename): self.reads.cannot(called)
    return self.method(x, "__getattr__", called, (Const(name), "name"))

  def above(self, x: Super, name: str, called: str) -> Value:
    """What ``super().name`` gives."""
    mro = type(x.owner).__mro__
    for c in mro[mro.index(x.kind) + 1:] if x.kind in mro else ():
      if name not in c.__dict__: continue
      if is_users(c.__module__): self.reads.item(vars(c), name, f"{c.__name__}.{name}", c)
      return (Bound(c.__dict__[name], x.owner), called),
    return UNKNOWN

  def of_class(self, kind: type, name: str) -> Any:
    """A class's attribute, its bases' included; noted where the class is the user's."""
    for c in kind.__mro__:
      if is_users(c.__module__): self.reads.item(vars(c), name, f"{c.__name__}.{name}", c)
      if name in c.__dict__: return c.__dict__[name]
    return ABSENT

  def layer(self, x: Any, text: str) -> Value:
    """All attributes of one of ntgrad's layers."""
    key = "layer", id(x)
    if key in self.done: return self.done[key]
    self.done[key] = UNKNOWN
    self.held.append(x)
    self.reads.names(x, text)
    found = self.own_of(x, text, "_mode")
    self.done[key] = found = (*found, *[y for v, t in found if isinstance(v, CONTAINERS) for y in self.elements_of(v, t)[:MANY]])
    return found
