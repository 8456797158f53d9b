"""Which Module is being called, by its path in the outermost one: ``layers.3.attention``. Errors, tables and profiles say it
beside the line (``graph/origins.py``)."""
from __future__ import annotations

import functools
from collections.abc import Callable
from threading import local
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from ntgrad.graph import origins

from .hooks import run
from .tree import ModuleBase, walk

_F = TypeVar("_F", bound=Callable[..., Any])
# of what lies in a Module: by the identity of a Module, which may be another's later, itself and its path
_Paths = dict[int, tuple[ref[ModuleBase], str]]
_known: WeakKeyDictionary[ModuleBase, _Paths] = WeakKeyDictionary()


class _Calls(local):
  """The calls of Modules that this thread is in: the outermost Module, the one before it, and the paths of those in that."""
  outermost: ModuleBase | None = None
  last: ref[ModuleBase] | None = None
  paths: _Paths
  looked: bool   # in this call

  def find(self, module: ModuleBase) -> str:
    """Where a Module lies: as earlier calls have found it, or by going through the outermost one, once a call. Of one that is no
    part of that its class."""
    root: Any = self.outermost
    if self.last is None or self.last() is not root: self.last, self.paths = ref(root), _known.setdefault(root, {})
    if (known := self.paths.get(id(module))) is not None and known[0]() is module: return known[1]
    if self.looked: return type(module).__name__
    self.looked = True
    self.paths.clear()
    for part in walk(root):
      if isinstance(part.value, ModuleBase): self.paths.setdefault(id(part.value), (ref(part.value), part.path))
    return self.find(module)


_here = _Calls()


def within(call: _F) -> _F:
  """A method that calls a Module: what is made meanwhile is noted as made within it. The outermost one runs hooks."""
  here, calling = _here, origins.calling
  @functools.wraps(call)
  def called(self: Any, *args: Any, **kwargs: Any) -> Any:
    before = here.outermost, calling.path
    if here.outermost is None: here.outermost, here.looked = self, False
    else: calling.path = here.find(self)
    try:
      if self._hooks is not None and type(self).__call__ is called: return run(self, call, args, kwargs)
      return call(self, *args, **kwargs)
    finally: here.outermost, calling.path = before
  called.__around__ = within   # type: ignore[attr-defined]
  return called  # type: ignore[return-value]
