"""``python -m ntgrad eject``: kernels of a script as files of the tile language; ``ntgrad.override``: one's own instead."""
from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.codegen.explain.tile_source import kernel_key, tile_source
from ntgrad.codegen.ir import ArgumentError, ExportError, shown
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.passes.parts import Parts
from ntgrad.engine import overrides, report
from ntgrad.engine.override_files import Exported, read_file
from ntgrad.graph.lock import lock
from ntgrad.schedule import ScheduleItem

from .kernel import TileKernel


@dataclass(eq=False)
class Eject:
  """Writes each new kernel whose name fits ``pattern`` into ``folder``, within a ``with`` block."""

  pattern: str
  folder: Path
  written: dict[str, Path] = field(default_factory=dict)   # by key
  refused: dict[str, str] = field(default_factory=dict)    # by name: why there is no file

  def __enter__(self) -> Eject:
    overrides.kernel_listeners.append(self.note)
    return self
  def __exit__(self, *_: Any) -> None: overrides.kernel_listeners.remove(self.note)

  def note(self, kernel: Kernel, spec: ProgramSpec, parts: Parts, device: Device) -> None:
    """A kernel has been made."""
    key = kernel_key(kernel)
    if not fnmatch.fnmatch(spec.name, self.pattern) or key in self.written: return
    try: text = tile_source(kernel, spec.name, parts.opts)
    except ExportError as e: self.refused[spec.name] = str(e)
    else:
      self.folder.mkdir(parents=True, exist_ok=True)
      self.written[key] = self.folder / f"{spec.name}_{key[:8]}.py"
      self.written[key].write_text(text)


def override(item: ScheduleItem | Kernel, kernel: Any) -> None:
  """Run a person's kernel in the place of a scheduled one from now on: a kernel of ``tile.make``, or the path of a file that
  makes one; None for the scheduler's own again.

  Its first launch is compared with the scheduler's results. Raises ArgumentError for what is no kernel; OverrideError, at the
  launch, where parameters or results are not the same.
  """
  ast = item.ast if isinstance(item, ScheduleItem) else item
  if not isinstance(ast, Kernel): raise ArgumentError(f"override: an item of create_schedule that is a kernel, got {shown(item)}")
  key = kernel_key(ast)
  if isinstance(kernel, (str, Path)): kernel = read_file(Path(kernel))
  elif isinstance(kernel, TileKernel):
    aligns = tuple(p.align for p in ast.params)
    kernel = Exported(kernel, key, None, aligns if any(aligns) else (), {}, f"kernel {kernel.name}")
  elif kernel is not None: raise ArgumentError(f"override: a kernel of tile.make, a file's path or None, got {shown(kernel)}")
  with lock:
    if kernel is None: kernel, how = overrides.given_overrides.pop(key, None), "is no longer in force"
    else: overrides.given_overrides[key], how = kernel, "is in force"
  if kernel is not None:
    report.note_line(f"override: {kernel.kernel.name} {how} in what is compiled from now on; what ntgrad.jit has captured is "
                     "captured again")
