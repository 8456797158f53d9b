"""Objects that count how often one of their attributes is set, so that nobody has to look whether one was."""
from __future__ import annotations

from typing import Any, ClassVar
from weakref import ref


class Stamped:
  """``watch`` an object, and every attribute of it that is set or deleted is counted in ``Stamped.changes``."""
  changes: ClassVar[int] = 0
  _watched: ClassVar[dict[int, ref[Any]]] = {}   # by identity; an entry goes with its object

  @staticmethod
  def watch(thing: Any) -> None:
    """Count what is set of an object from now on."""
    key, watched = id(thing), Stamped._watched
    if (found := watched.get(key)) is None or found() is not thing:
      watched[key] = ref(thing, lambda r: watched.pop(key, None) if watched.get(key) is r else None)

  def __setattr__(self, name: str, value: Any) -> None:
    object.__setattr__(self, name, value)
    if id(self) in Stamped._watched: Stamped.changes += 1
  def __delattr__(self, name: str) -> None:
    object.__delattr__(self, name)
    if id(self) in Stamped._watched: Stamped.changes += 1
