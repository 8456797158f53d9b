"""Files that ``tile_source`` writes, read again: the kernel, what it stands for, and its Opts."""
from __future__ import annotations

import itertools
import linecache
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

from ntgrad.codegen.errors import NtgradError, OverrideError
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.opts import Opt
from ntgrad.codegen.rewrite import substitute
from ntgrad.codegen.tiles import lower_tiles, numbered
from ntgrad.codegen.uop import Ops, UOp

from .kernel import TileKernel
from .specialised import Specialised, aligned

_texts = itertools.count()


@dataclass(frozen=True)
class Exported:
  """A kernel of the tile language that stands for the scheduler's kernel of a ``key``."""
  kernel: TileKernel
  key: str
  opts: tuple[Opt, ...]
  aligns: tuple[int, ...]   # of parameters that are parts of a memory; () where none is
  file: str

  def specialised(self, shapes: Sequence[tuple[Sequence[int], Any]] = (), **given: Any) -> Specialised:
    """For the sizes that the file has, or for (shape, dtype) of each parameter."""
    taken = shapes or [(t.source.shape, t.element) for t in self.kernel.tensors]
    if all(isinstance(n, int) for shape, _ in taken for n in shape): return self.kernel.specialise(*taken, **given)
    return self.kernel.general(False, given).specialised

  def form(self, shapes: Sequence[tuple[Sequence[int], Any]] = ()) -> Kernel:
    """The index form without tiles, as the scheduler makes it, before its Opts."""
    return aligned(numbered(lower_tiles(with_scans(self.specialised(shapes).kernel))), self.aligns)


def with_scans(kernel: Kernel) -> Kernel:
  """A kernel that keeps running sums in variables, and does nothing else in an order, with the SCANs where they are used."""
  if not kernel.variables or any(s.op is not Ops.STORE for s in kernel.body): return kernel
  table: dict[UOp, UOp] = {}
  stores: list[UOp] = []
  for s in kernel.body:
    where, value = substitute(s.src[1:3], table)
    if s.src[0].op is Ops.DEFINE_LOCAL and value.op is Ops.SCAN: table[UOp(Ops.LOAD, s.dtype, (s.src[0], where))] = value
    else: stores.append(s)
  if len(table) + len(stores) < len(kernel.body): return kernel   # one that is filled twice
  changed = kernel.with_(body=substitute(tuple(stores), table))
  return kernel if changed.variables else changed


def read(text: str, file: str = "") -> Exported:
  """Run the text of a file. Raises OverrideError for one that makes no kernel, or does not say for what it stands."""
  name = file or f"<tile source {next(_texts)}>"
  space: dict[str, Any] = {"__name__": "exported", "__file__": name}
  # functions are read from their source: it must be found under their file's name
  linecache.cache[name] = (len(text), None, text.splitlines(True), name)
  try: exec(compile(text, name, "exec"), space)  # noqa: S102 (a person's own file)
  except NtgradError: raise
  except Exception as e: raise OverrideError(f"{name}: {type(e).__name__}: {e}") from e
  return taken(space, name)


def taken(space: Mapping[str, Any], name: str) -> Exported:
  """What a module that was run says of its kernel."""
  kernel, key = space.get("kernel"), space.get("KEY")
  if not isinstance(kernel, TileKernel): raise OverrideError(f"{name}: makes no `kernel`; kernel = tile.make(…)")
  if not isinstance(key, str): raise OverrideError(f"{name}: has no KEY, which says what scheduled kernel it stands for")
  return Exported(kernel, key, tuple(space.get("OPTS", ())), tuple(space.get("ALIGNS", ())), name)


def read_file(path: Path) -> Exported:
  """A file that was written by ``python -m ntgrad eject``, as it is now."""
  return read(path.read_text(), str(path))
