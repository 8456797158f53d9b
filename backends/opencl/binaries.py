"""A program with its machine code as bytes, for the disk cache and between processes. PoCL hands out a program's binary only
after compiling each kernel a second time, for groups of any size. But it keeps what it has compiled in a folder; we give it one
that lasts as long as the process, and carry the program's files. Other drivers give their binary at once."""
from __future__ import annotations

import _ctypes
import ctypes
import os
import re
import shutil
import struct
import weakref
from collections.abc import Iterable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from ntgrad.codegen.index.records import BOOL, COUNT, STR, TEXT, ZIPPED, Maybe, Sequence, Table, TupleForm, packed, unpacked

from ..process import temporary

# its source; whether it was built quickly; of each kernel how many arguments it has, and bytes of local memory; its binary, or
# PoCL's files of it, by their paths in PoCL's folder
FORM = TupleForm(TEXT, BOOL, Table(STR, TupleForm(COUNT, COUNT)), Maybe(ZIPPED), Sequence(TupleForm(STR, ZIPPED)))
_numbers = count()
_PLAIN = re.compile(r"[\w.-]+(/[\w.-]+){2,}", re.ASCII)   # paths of files in the folder of a program


@cache
def folder() -> Path:
  """The folder of PoCL's compiled kernels in this process, gone at exit. To be called before PoCL is loaded."""
  path = temporary() / "pocl"
  path.mkdir()
  # PoCL would go on with a damaged file, so a folder that lasts is not for it: our disk cache is checked
  os.environ["POCL_CACHE_DIR"], os.environ["POCL_KERNEL_CACHE"] = str(path), "1"
  return path


# of each folder of the first level: its state when it was read, None where not all in it was a program, and its programs
_known: dict[str, tuple[tuple[int, int] | None, set[str]]] = {}


def new_folders() -> set[Path]:
  """The folders of the programs that PoCL has built or found in this process since this was last asked. There can be thousands:
  only what has changed is read."""
  new = set[str]()
  for first in os.scandir(folder()):   # two levels of folders, and at the first other things of PoCL's too
    if not first.is_dir(): continue
    info = first.stat()
    state, (before, programs) = (info.st_mtime_ns, info.st_nlink), _known.get(first.name, (None, set[str]()))
    if state == before: continue
    found = {second.path for second in os.scandir(first.path)}
    built = {p for p in found if os.path.exists(f"{p}/program.bc")}
    _known[first.name] = state if built == found else None, built
    new |= built - programs
  return {*map(Path, new)}


for _forget in (folder.cache_clear, _known.clear): os.register_at_fork(after_in_child=_forget)


class Files:
  """PoCL's files of a program, by their paths in PoCL's folder; in memory until PoCL asks for them (``written``), since most
  programs need their machine code alone, and making folders costs more than reading it."""

  def __init__(self, path: Path, contents: Iterable[tuple[str, bytes]] = ()):
    self.path, self._contents = path, dict(contents)

  def written(self) -> Path:
    """The program's folder, the files in it."""
    made = set[str]()
    for path, content in list(self._contents.items()):
      file = f"{folder()}/{path}"
      if os.path.exists(file): continue
      if (above := os.path.dirname(file)) not in made:
        os.makedirs(above, exist_ok=True)
        made.add(above)
      with open(file, "wb") as f: f.write(content)
    self._contents.clear()
    return self.path

  def remove(self) -> None:
    """Remove what PoCL would take for its own."""
    self._contents.clear()
    shutil.rmtree(self.path, ignore_errors=True)

  def machine_code(self, name: str, owner: object, bad: list[str] | None = None) -> dict[bool, int]:
    """The addresses of the function that runs a group of a kernel that has run: for any grid (False) and for small ones (True),
    those of them that there are. They stay loaded for as long as ``owner`` lives. Files that do not have it are added to ``bad``,
    if given, and removed: PoCL would end the process where it loads such, and compiles again where there is nothing.

    PoCL unloads what is beyond the 128 kernels that ran last: a training step with more of them would load each anew at every
    launch, for 15 µs."""
    found = dict[bool, int]()
    inside = [p for p in self._contents if p.split("/")[2::2] == [name, f"{name}.so"]]
    for path in inside or map(str, self.path.glob(f"{name}/*/{name}.so")):
      content, file, handle = self._contents.get(path), path, 0
      if content is not None:   # never two libraries under one name: the second would be the first
        file = f"{temporary()}/{next(_numbers)}.so"
        with open(file, "wb") as f: f.write(content)
      try:
        handle = _ctypes.dlopen(file, ctypes.RTLD_LOCAL | os.RTLD_NOW)
        found["-smallgrid/" in path] = _ctypes.dlsym(handle, f"_pocl_kernel_{name}_workgroup")
      except OSError:   # others write to PoCL's folder too
        if handle: _ctypes.dlclose(handle)   # or whoever opens this path again would get it
        if bad is not None:
          bad.append(path)
          if content is None: os.unlink(path)
          else: del self._contents[path]
      else: weakref.finalize(owner, _ctypes.dlclose, handle).atexit = False
      finally:
        if content is not None: os.unlink(file)
    return found


def pack(source: str, quick: bool, shapes: dict[str, tuple[int, int]], files: Files | None, cl: Any, program: Any) -> bytes:
  """A program as bytes: PoCL's files of it where there are any, else its binary. Every kernel must have run to be in them. Raises
  ValueError for files that PoCL has not written to the end."""
  if files is None:
    return packed(FORM, (source, quick, shapes, bytes(program.get_info(cl.program_info.BINARIES)[0]), ()), "program")
  found = tuple((p.relative_to(folder()).as_posix(), p.read_bytes()) for p in sorted(files.written().rglob("*")) if p.is_file())
  for path, data in found: _check(path, data)
  return packed(FORM, (source, quick, shapes, None, found), "program")


def unpack(data: bytes) -> tuple[str, bool, dict[str, tuple[int, int]], bytes | None, Files | None]:
  """What a packed program has, see ``FORM``. Raises ValueError for bytes that are no packed program."""
  source, quick, shapes, binary, found = unpacked(FORM, data, "program")
  at = {"/".join(path.split("/")[:2]) for path, _ in found}
  if len(at) > 1 or bool(at) == (binary is not None): raise ValueError("packed program: no binary, and no files of a program")
  for path, content in found: _check(path, content)
  return source, quick, shapes, binary, Files(folder().joinpath(*at), found) if at else None


def _check(path: str, data: bytes) -> None:
  """Raises ValueError for a path out of its folder, and for code that is none or not whole: loading such may end the process."""
  if not _PLAIN.fullmatch(path) or {".", ".."} & {*path.split("/")}: raise ValueError(f"packed program: a file {path!r}")
  if path.endswith(".bc") and not _whole(data): raise ValueError(f"packed program: {path} is no code")
  if not path.endswith(".so"): return
  try:   # of 64 bits, and little-endian; others are not looked at
    if data[:4] != b"\x7fELF": raise ValueError
    if data[4:6] != b"\2\1": return
    table, *_, size, count = struct.unpack_from("<Q10xHH", data, 40)
    if table + size * count > len(data): raise ValueError
  except (ValueError, struct.error): raise ValueError(f"packed program: {path} is no whole library") from None


def _whole(code: bytes) -> bool:
  """Whether bytes are LLVM's bitcode, and all of it: blocks, each a word, the number of words that follow, and these."""
  at = 4
  while at + 8 <= len(code): at += 8 + 4 * struct.unpack_from("<I", code, at + 4)[0]
  return code[:4] == b"BC\xc0\xde" and 4 < at == len(code)
