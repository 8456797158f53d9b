"""Paths that cannot be used: too long for the system, with a NUL, of a folder that may not be read."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import NtgradError, StateError


def shown_path(path: Any) -> str:
  """A path for a message, cut short where it is very long."""
  said = repr(str(path))
  return said if len(said) <= 400 else f"{said[:120]}..{said[-60:]} ({len(said) - 2} characters)"


def reason(e: Exception) -> str:
  """Why the system refuses a path, without the path."""
  return e.strerror or str(e) if isinstance(e, OSError) else str(e)


@contextmanager
def usable(name: str, path: Any, kind: type[NtgradError] = StateError) -> Iterator[None]:
  """A block that opens or makes what is at a path. What the system says against it becomes an error of ``kind``."""
  try: yield
  except NtgradError: raise
  except (OSError, ValueError) as e: raise kind(f"{name}: {shown_path(path)} cannot be used: {reason(e)}") from None
