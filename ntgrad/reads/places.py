"""What a user's code reads from outside of its arguments, noted and compared at the next call.

``Reads`` holds the *places* that were read (a name in a namespace, an attribute, an item, a cell, a container as a whole) and
what lay there. Numbers, bools, strings, small arrays and tuples of such are compared by value, all else by identity; nothing is
kept alive but containers and plain values. Attributes of Modules are looked at only after one of a Module that was read has been
set (``changes``), so that a large model costs a comparison a call.
"""
from __future__ import annotations

import operator
import os
import site
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from types import CellType, FunctionType, MappingProxyType, MemberDescriptorType
from typing import Any, Callable, NamedTuple
from weakref import ref

import numpy as np

from ntgrad.codegen.ir import DType, shown
from ntgrad.graph import Valued
from ntgrad.graph.change_counts import Stamped
from ntgrad.graph.hooks import Hook, of_leaf
from ntgrad.graph.origins import is_internal, say_once

MOST = 4096          # elements of a container that is compared as a whole, and bytes of an array
Where = tuple[str, int]   # a file and a line
ABSENT = object()    # stands for what is not there
_PLAIN = type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), DType, Enum, np.generic
_SETS = set, frozenset
CONTAINERS = list, tuple, deque, *_SETS, dict
_LIBRARIES = tuple({os.path.realpath(p) + os.sep for p in (
  *[sysconfig.get_path(n) for n in ("stdlib", "platstdlib", "purelib", "platlib")], *site.getsitepackages(),
  site.getusersitepackages())})
_DIRECT = dict, MappingProxyType, list, tuple, deque   # what [key] reads at once
_getitem = operator.getitem


@lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
  """Whether a file is Python's or an installed package's: nobody changes what is in it."""
  return file.startswith("<frozen") or os.path.realpath(file).startswith(_LIBRARIES)


def is_users(module: str) -> bool:
  """Whether a module of that name is the user's own."""
  if module.partition(".")[0] == "ntgrad" or module in sys.builtin_module_names: return False
  file = getattr(sys.modules.get(module), "__file__", None)
  return file is None or not is_internal(file) and not is_library(file)


def plain(value: Any) -> bool:
  """Whether a value is compared by what it is."""
  if isinstance(value, tuple): return len(value) <= MOST and all([type(v) is not tuple and plain(v) for v in value])
  return isinstance(value, _PLAIN)


def same(a: Any, b: Any) -> bool:
  """Whether two plain values are the same: of one type, -0.0 not 0.0, nan as nan."""
  if a is b: return True
  if type(a) is not type(b) or not plain(a): return False
  if isinstance(a, tuple): return len(a) == len(b) and all(map(same, a, b))
  return repr(a) == repr(b) if isinstance(a, (float, complex, np.generic, slice)) else bool(a == b)


@dataclass(slots=True, eq=False)
class Place:
  """Where something was read, and what was there. ``used``: it matters to what is computed."""
  get: Any
  text: str
  where: Where
  value: Any = None   # a plain value, or what no weak reference can be had of
  alive: Any = None   # a weak reference to any other
  id: int = 0
  used: bool = True

  def now(self) -> Any:
    try: return self.get()
    except (LookupError, AttributeError, ValueError, TypeError): return ABSENT

  def hold(self, value: Any, died: Callable[[Any], None] | None) -> None:
    """Take ``value`` for what has to be there."""
    self.id, self.value, self.alive = id(value), value, None
    if value is ABSENT or plain(value): return
    try: self.alive = ref(value, died)
    except TypeError: return
    self.value = None

  def differs(self) -> str:
    """What is there now that was not, in words; "" for the same."""
    now = self.now()
    if id(now) == self.id and (self.alive is None or self.alive() is now): return ""
    if self.alive is None and same(now, self.value):
      self.value, self.id = now, id(now)
      return ""
    if self.kept and all([x is ABSENT or plain(x) for x in (now, self.value)]):
      return f"{self.text} was {_said(self.value)} and is {_said(now)}"
    return f"{self.text} is another object"

  @property
  def kept(self) -> bool:
    """Whether it is compared by value: what it was may come again."""
    return self.alive is None


def contents(container: Any) -> list[Any]: return list(container.values() if isinstance(container, dict) else container)


def _said(value: Any) -> str: return "not there" if value is ABSENT else shown(value)


class Reads:
  """The places that some code has read. Noted with ``attribute``, ``item``, ``cell``, ..; ``settle`` ends that, ``hold`` says
  whether all of them have what they had. ``unknown`` has, by text and line, what cannot be compared."""

  def __init__(self) -> None:
    self.unknown: dict[tuple[str, str, int], None] = {}
    self.where: Where = "", 0   # what is noted is read there
    self.why = ""                 # which place has something else, since ``hold`` said so
    self.returns = False          # whether what it had may come again
    self.latest = Place(lambda: None, "", ("", 0))   # what was noted last,
    self.is_new = False                              # and whether it was not before
    self._places: dict[Any, Place] = {}
    self._wholes: set[int] = set()
    self._holders: list[Any] = []    # those of keys made of identities
    self._gone = ""
    self.begin()

  # ---- noting
  def _note(self, key: Any, get: Any, text: str) -> Any:
    p = self._places.get(key)
    self.is_new = p is None
    if p is None:
      p = self._places[key] = Place(get, text, self.where)
      p.hold(p.now(), None)
    self.latest = p
    return p.now()

  def item(self, container: Any, key: Any, text: str, kind: type | None = None) -> Any:
    """An item of a dict, a module's namespace or that of a class (``kind``), a sequence, another mapping."""
    if not plain(key): return ABSENT
    holder = container if kind is None else kind
    self._holders.append(holder)
    return self._note(("item", id(holder), type(key), key), _Item(container, key), text)

  def attribute(self, owner: Any, name: str, text: str) -> Any:
    """An attribute that an object has itself; ABSENT where it has not, which is noted too."""
    try: own: Any = ref(owner)
    except TypeError: own = lambda: owner   # noqa: E731
    self._holders.append(owner)
    key = "module" if isinstance(owner, Stamped) else "attribute", id(owner), name
    return self._note(key, _Attribute(own, name), text)

  def mode(self, owner: Any, text: str) -> None:
    self._note(("module", id(owner), "", "mode"), _Attribute(ref(owner), "_mode", True), f"the training mode of {text}")

  def names(self, owner: Any, text: str) -> None:
    """Which attributes a Module has."""
    self._note(("module", id(owner), "", "names"), _Names(ref(owner)), f"the attributes of {text}")

  def cell(self, cell: CellType, text: str) -> Any: return self._note(("cell", id(cell)), _Cell(cell), text)

  def function(self, fn: FunctionType, text: str) -> None:
    """A function's code and defaults."""
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
      if getattr(fn, name) is None: continue
      self._note(("function", id(fn), name), _Attribute(lambda: fn, name, True), f"{text}.{name}")
    if fn.__kwdefaults__: self.whole(fn.__kwdefaults__, text)
    self._holders.append(fn)

  def whole(self, container: Any, text: str) -> list[Any]:
    """All that a container has, which is given. One that is too large is noted as unknown."""
    elements = contents(container)
    if len(elements) > MOST:
      self.unknown[f"{text} has {len(elements):,} elements, which is more than are compared", *self.where] = None
      return elements[:MOST]
    self._holders.append(container)
    if id(container) not in self._wholes and not isinstance(container, tuple):
      self._wholes.add(id(container))
      self._note(("whole", id(container)), partial(_outline, container), text)
      keys = () if isinstance(container, _SETS) else list(container) if isinstance(container, dict) else range(len(elements))
      for key in keys: self.item(container, key, f"{text}[{shown(key)}]")
    return elements

  def array(self, array: np.ndarray[Any, Any], text: str) -> None:
    if array.dtype.kind == "O": return
    if array.nbytes > MOST:
      self.unknown[f"{text} is an array of {array.nbytes:,} bytes, which is more than are compared", *self.where] = None
    else: self._note(("array", id(array)), array.tobytes, f"the elements of {text}")

  def hooks(self, owner: Any, text: str) -> Sequence[Hook]:
    """What is called with a Module."""
    mine = self.attribute(owner, "_hooks", f"the hooks of {text}")
    return () if mine is ABSENT else self.attribute(mine, "all", f"the hooks of {text}")

  def flag(self, tensor: Valued, text: str) -> Sequence[Hook]:
    """Whether a tensor that is not computed from others requires a gradient. Gives its hooks."""
    of = ref(tensor)
    if tensor._state != 1:
      self._note(("flag", id(tensor)), lambda: ABSENT if (t := of()) is None else t._state == 2, f"{text}.requires_grad")
    def hooks() -> Any: return None if (t := of()) is None or (found := of_leaf(t)) is None else found.all
    return self._note(("flag", id(tensor), "hooks"), hooks, f"the hooks of {text}") or ()

  def cannot(self, text: str) -> None:
    """Something is read that cannot be compared."""
    self.unknown[f"{text} cannot be compared at later calls", *self.where] = None

  # ---- comparing
  def settle(self) -> None:
    """What is there now counts from here on. What has changed since it was noted, the code has changed itself: ``unknown``."""
    for key, p in list(self._places.items()):
      if p.used and not p.differs(): continue
      del self._places[key]
      if p.used and p.kept and key[0] not in ("whole", "array", "flag"):
        self.unknown[f"{p.text} is changed by the function itself, and not by replays", *p.where] = None
    self._holders.clear()
    self._wholes.clear()
    self.begin()

  def begin(self) -> None:
    """Compare from now on with what is there."""
    self._gone, self.why = "", ""
    mine = ref(self)
    def died(_: Any) -> None:
      if (r := mine()) is not None: r._gone = "something that was read is gone"
    kinds: list[list[Place]] = [[] for _ in range(6)]
    self._items, self._attributes, self._cells, self._absent, self._modules, self._rest = kinds
    for (what, *_), p in self._places.items():
      p.hold(value := p.now(), died)
      there = value is not ABSENT
      if what == "module": Stamped.watch(p.get.owner())
      if what in ("module", "flag"): self._modules.append(p)
      elif what == "item" and there and type(p.get.container) in _DIRECT: self._items.append(p)
      elif what in ("attribute", "function") and there: self._attributes.append(p)
      elif what == "attribute" and hasattr(p.get.owner(), "__dict__"): self._absent.append(p)
      elif what == "cell" and there: self._cells.append(p)
      else: self._rest.append(p)
    self._all = [p for kind in kinds for p in kind]
    self._changes = Stamped.changes
    self._prepare()

  def _prepare(self) -> None:
    """What places of a kind have in common in lists, which Python goes through without a step of its own for each."""
    self._fast = (
      [p.get.container for p in self._items], [p.get.key for p in self._items], [p.id for p in self._items],
      [p.get.owner for p in self._attributes], [p.get.name for p in self._attributes], [p.id for p in self._attributes],
      [p.get.cell for p in self._cells], [p.id for p in self._cells], [(p.get.owner, p.get.name) for p in self._absent])

  def hold(self) -> bool:
    """Whether every place has what it had; ``why`` says which has not."""
    if self._gone:
      self.why, self.returns = self._gone, False
      return False
    containers, keys, items, owners, names, attributes, cells, inside, absent = self._fast
    try:
      if (list(map(id, map(_getitem, containers, keys))) == items
          and list(map(id, map(getattr, [o() for o in owners], names))) == attributes
          and (not cells or [id(c.cell_contents) for c in cells] == inside)
          and not (absent and any([n in o().__dict__ for o, n in absent]))
          and (self._changes == Stamped.changes or self._compare(self._modules))
          and (not self._rest or self._compare(self._rest))):
        self._changes = Stamped.changes
        return True
    except (LookupError, AttributeError, TypeError, ValueError): pass
    if not self._compare(self._all): return False
    self._changes = Stamped.changes
    self._prepare()   # the same values are other objects
    return True

  def _compare(self, places: Iterable[Place]) -> bool:
    for p in places:
      if why := p.differs():
        self.why, self.returns = f"{why} ({os.path.basename(p.where[0])}:{p.where[1]})", p.kept
        return False
    return True

  def said(self, name: str) -> list[str]:
    """What cannot be compared, a line each; each is said once, at its line, as a warning."""
    lines = []
    for text, file, line in self.unknown:
      lines.append(f"{text} ({os.path.basename(file)}:{line})")
      say_once((text, file, line), f"{name}: {text}. It stays what it is when the function is captured", (file, line))
    return lines


# ---- how places are read
class _Item(NamedTuple):
  container: Any
  key: Any
  def __call__(self) -> Any:
    c = self.container
    # a dict that makes what it has not is not to make it
    return dict.get(c, self.key, ABSENT) if isinstance(c, dict) else c[self.key]


class _Names(NamedTuple):
  owner: Any
  def __call__(self) -> Any: return tuple([n for n in vars(self.owner()) if n != "_mode"])


class _Attribute(NamedTuple):
  """``owner`` gives the object. ``any``: whoever has it; else the object itself, in its dict or a slot."""
  owner: Any
  name: str
  any: bool = False
  def __call__(self) -> Any:
    owner = self.owner()
    if self.any: return getattr(owner, self.name)
    found = getattr(owner, "__dict__", _NOTHING).get(self.name, ABSENT)
    if found is ABSENT and isinstance(slot := class_attribute(type(owner), self.name)[1], MemberDescriptorType):
      return slot.__get__(owner)
    return found


_NOTHING: Mapping[str, Any] = {}


class _Cell(NamedTuple):
  cell: CellType
  def __call__(self) -> Any: return self.cell.cell_contents


def _outline(c: Any) -> Any:
  """A container's keys, or how many elements it has."""
  if isinstance(c, dict): return tuple([k if plain(k) else id(k) for k in c])
  return tuple(sorted([repr(x) if plain(x) else str(id(x)) for x in c])) if isinstance(c, _SETS) else len(c)


def class_attribute(kind: type, name: str) -> tuple[Any, Any]:
  """The class among a class and its bases whose own attribute it is, and what that is, no descriptor called; (None, ABSENT)."""
  for c in kind.__mro__:
    if name in c.__dict__: return c, c.__dict__[name]
  return None, ABSENT
