"""Reads the files that ``tile_source`` writes: the kernel, the KEY of the scheduled kernel that it stands for, and its Opts."""
from __future__ import annotations

import itertools
import linecache
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ntgrad.codegen.explain.scheduler_form import inlined, with_aligns, with_numbered_axes, without_tiles
from ntgrad.codegen.ir import MissingFileError, NtgradError, OverrideError
from ntgrad.codegen.ir.paths import usable
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.opts import Opt

_texts = itertools.count()


@dataclass(frozen=True)
class Exported:
  """A kernel of the tile language that stands for the scheduler's kernel of a ``key``."""
  kernel: Any   # of ``ntgrad.tile.make``: a file imports the tile language itself
  key: str
  opts: tuple[tuple[Opt, ...], ...] | None   # of each part; None: to be chosen
  aligns: tuple[int, ...]   # of parameters that are parts of a memory; () where none is
  axes: dict[int, int]   # by the number that Opts have for an axis, its place as read, in the order of loops; {} for 0, 1, …
  file: str
  number: int = field(default_factory=lambda: next(_texts))   # no two that are read have the same

  def tiled(self) -> Kernel:
    """The index form with the file's tiles."""
    return with_aligns(inlined(self.kernel.index_form()), self.aligns)

  def form(self) -> Kernel:
    """The index form without tiles, as the scheduler makes it, before its Opts; statements that have an order stay as they
    are."""
    kernel = self.tiled()
    if not kernel.plain and not kernel.scans and not kernel.sorts: return kernel
    kernel = without_tiles(kernel)
    if not self.axes: return kernel
    if sorted(self.axes.values()) != [a.id for a in kernel.axes]:
      have = ", ".join(map(str, kernel.axes))
      raise OverrideError(f"{self.file}: AXES is {self.axes}, and the axes are {have}; without it, and with "
                          "OPTS = None (Opts have numbers of axes), they stay in this order")
    return with_numbered_axes(kernel.with_(axes=tuple(kernel.axes[i] for i in self.axes.values())), tuple(self.axes))


def read(text: str, file: str = "") -> Exported:
  """Run the text of a file. Raises OverrideError for one that makes no kernel, or does not say for what it stands."""
  name = file or f"<tile source {next(_texts)}>"
  space: dict[str, Any] = {"__name__": "exported", "__file__": name}
  # functions are read from their source: it must be found under their file's name
  linecache.cache[name] = len(text), None, text.splitlines(True), name
  try: exec(compile(text, name, "exec"), space)  # noqa: S102 (a person's own file)
  except NtgradError: raise
  except Exception as e: raise OverrideError(f"{name}: {type(e).__name__}: {e}") from e
  kernel, key, opts = map(space.get, ("kernel", "KEY", "OPTS"))
  if not hasattr(kernel, "index_form"): raise OverrideError(f"{name}: makes no `kernel`; kernel = tile.make(…)")
  if not isinstance(key, str): raise OverrideError(f"{name}: has no KEY, which says what scheduled kernel it stands for")
  return Exported(kernel, key, None if opts is None else tuple(map(tuple, opts)), tuple(space.get("ALIGNS", ())),
                  dict(space.get("AXES", {})), name)


def read_file(path: Path) -> Exported:
  """A file that was written by ``python -m ntgrad eject``, as it is now. Raises MissingFileError where there is none."""
  with usable("override", path): there = path.is_file()
  if not there: raise MissingFileError(f"{path}: there is no such file; python -m ntgrad eject writes some")
  return read(path.read_text(), str(path))
