"""A mapping of limited size: it keeps what was used last."""
from __future__ import annotations

from typing import Any, TypeVar

K = TypeVar("K")
_V = TypeVar("_V")


class Recent(dict[K, _V]):
  """Keeps the ``most`` entries that were used last, or up to as many more. What is not there is None; ``in`` tells the two apart.

  There are two generations. The newer one is this dict itself. An entry that is found in the older one moves to the newer. When
  the newer is full, it becomes the older. So ``[key]`` costs what it costs in a dict for entries that were used lately."""
  __slots__ = "most", "older"

  def __init__(self, most: int):
    super().__init__()
    self.most = most
    self.older: dict[K, _V] = {}

  def get(self, key: K, default: Any = None) -> Any:
    """The value under a key, which counts as used now, or ``default``."""
    found = self[key]
    return default if found is None else found

  def __missing__(self, key: K) -> Any:
    older = self.older   # another thread may put another in its place
    if key not in older: return None
    found = self[key] = older[key]
    return found

  def __contains__(self, key: object) -> bool: return super().__contains__(key) or key in self.older

  def __setitem__(self, key: K, value: _V) -> None:
    if len(self) >= self.most:
      self.older = dict(self)
      super().clear()
    super().__setitem__(key, value)

  def drop(self, key: K) -> None:
    """Let go of an entry, if there is one."""
    self.pop(key, None)
    self.older.pop(key, None)

  def clear(self) -> None:
    self.older = {}
    super().clear()
