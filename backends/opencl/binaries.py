"""A program with its machine code as bytes, for the disk cache and between processes.

PoCL hands out a program's binary only after compiling each kernel a second time for groups of any size, which takes as long as
the first. But it keeps what it has compiled in a folder; we give it one that lasts as long as the process, and carry the
program's files. Other drivers give their binary at once.
"""
from __future__ import annotations

import _ctypes
import ctypes
import io
import os
import weakref
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from ntgrad.backends.process import temporary

_SOURCE, _BINARY, _FILES = "source.cl", "binary", "pocl/"


@cache
def folder() -> Path:
  """The folder of PoCL's compiled kernels in this process, gone at exit. To be called before PoCL is loaded."""
  path = temporary() / "pocl"
  path.mkdir()
  # PoCL would go on with a damaged file, so a folder that lasts is not for it: our disk cache is checked
  os.environ["POCL_CACHE_DIR"], os.environ["POCL_KERNEL_CACHE"] = str(path), "1"
  return path


os.register_at_fork(after_in_child=folder.cache_clear)


def program_folders() -> set[Path]:
  """Those of the programs that PoCL has built or found in this process."""
  # two levels of folders, and at the first other things of PoCL's too. Path.glob takes five times as long
  found = [second.path for first in os.scandir(folder()) if first.is_dir() for second in os.scandir(first.path)]
  return {Path(p) for p in found if os.path.exists(f"{p}/program.bc")}


def pack(source: str, files: Path | None, cl: Any, program: Any) -> bytes:
  """A program as bytes: PoCL's files of it where there are any, else its binary. Every kernel must have run to be in them."""
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
    z.writestr(_SOURCE, source)
    if files is None: z.writestr(_BINARY, bytes(program.get_info(cl.program_info.BINARIES)[0]))
    else:
      for p in sorted(files.rglob("*")):
        if p.is_file(): z.write(p, _FILES + p.relative_to(folder()).as_posix())
  return out.getvalue()


def unpack(data: bytes) -> tuple[str, bytes | None, Path | None]:
  """The source of a packed program, and its binary, or the folder of its files for PoCL, which are put where it looks for them.

  Raises ValueError for bytes that are no packed program.
  """
  try:
    with zipfile.ZipFile(io.BytesIO(data)) as z:
      names = z.namelist()
      files = {folder().joinpath(*Path(n.removeprefix(_FILES)).parts[:2]) for n in names if n.startswith(_FILES)}
      for name in names:
        path = folder()/name.removeprefix(_FILES)
        if not name.startswith(_FILES) or path.exists(): continue
        if not path.resolve().is_relative_to(folder().resolve()): raise ValueError(f"packed program: {name} leaves its folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(z.read(name))
      return z.read(_SOURCE).decode(), z.read(_BINARY) if _BINARY in names else None, next(iter(files), None)
  except (zipfile.BadZipFile, KeyError, EOFError) as e:
    raise ValueError(f"packed program: {e}") from None


def machine_code(files: Path, name: str, owner: object) -> dict[bool, int]:
  """The addresses of the function that runs a group of a kernel that has run: for any grid (False) and for small ones (True),
  those of them that there are. They stay loaded for as long as ``owner`` lives.

  PoCL unloads what is beyond the 128 kernels that ran last: a training step with more of them would load each anew at every
  launch, for 15 µs."""
  found: dict[bool, int] = {}
  for path in files.glob(f"{name}/*/{name}.so"):
    try:
      handle = _ctypes.dlopen(str(path), ctypes.RTLD_LOCAL | os.RTLD_NOW)
      found[path.parent.name.endswith("-smallgrid")] = _ctypes.dlsym(handle, f"_pocl_kernel_{name}_workgroup")
    except OSError: continue   # others write to PoCL's folder too
    weakref.finalize(owner, _ctypes.dlclose, handle).atexit = False
  return found
