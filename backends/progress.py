"""Progress bars: on a terminal, where tqdm is installed; nowhere else."""
from __future__ import annotations

import sys
from typing import Any


class _Nothing:
  """A bar that shows nothing."""
  n = total = 0

  def __enter__(self) -> _Nothing: return self
  def __exit__(self, *error: object) -> None: pass
  def update(self, n: int = 1) -> None: pass
  def refresh(self) -> None: pass
  def close(self) -> None: pass


def wanted(show: bool = True) -> bool: return show and sys.stderr is not None and sys.stderr.isatty()


def bar(text: str, total: int, show: bool = True) -> Any:
  """A bar with tqdm's methods, ``text 12/40``, on stderr; closing it clears the line."""
  if not wanted(show): return _Nothing()
  try:
    from tqdm import tqdm
  except ImportError: return _Nothing()
  return tqdm(total=total, desc=text, leave=False, file=sys.stderr, bar_format="{desc} {n_fmt}/{total_fmt} {bar:24} {elapsed}")
