"""What reads a person's kernel from a file. The tile language, which does, stands above the engine; ``ntgrad`` gives it."""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
  from ntgrad.tile.exported import Exported

read: Callable[[Path], Exported] | None = None
