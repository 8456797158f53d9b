"""Files that are there before they are read, and whole before they are seen."""
from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from ntgrad.codegen.ir.errors import MissingFileError, NtgradError, StateError
from ntgrad.codegen.ir.paths import reason, shown_path, usable

_UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.ntgrad-unfinished")


def plain_file(name: str, path: str | os.PathLike[str], new: bool = False) -> Path:
  """The path that links lead to, of a file that is there (or, ``new``, of one to write in a folder that is there).
  Raises MissingFileError, and StateError where something other than a plain file lies there: a folder, a device."""
  try:
    found = Path(os.path.realpath(path))
    if not (found.parent.is_dir() if new else found.exists()):
      raise MissingFileError(f"{name}: no {'folder' if new else 'file'} for {shown_path(path)}")
    if found.exists() and not found.is_file():
      raise StateError(f"{name}: {shown_path(path)} is {'a folder' if found.is_dir() else 'no plain file (a device or a pipe)'}; "
                       "give the path of a file")
    if new and len(os.fsencode(found.name)) > os.pathconf(found.parent, "PC_NAME_MAX"): raise OSError(errno.ENAMETOOLONG, "")
    return found
  except (OSError, ValueError) as e:   # a name that is too long, or has a NUL; a folder that may not be looked into
    if isinstance(e, NtgradError): raise
    raise MissingFileError(f"{name}: no file can be at {shown_path(path)}: {reason(e)}") from None


def unpacked(data: Any, how: str, refuse: Callable[[str], NtgradError]) -> bytearray:
  """What gzip, bzip2 or xz has packed into some bytes: at most 32 MiB and 24 bytes for each of them, since files come from
  strangers. Raises what ``refuse`` makes."""
  if how == "gzip": make = partial(zlib.decompressobj, 31)
  elif how == "bzip2": make = import_module("bz2").BZ2Decompressor
  else: make = partial(import_module("lzma").LZMADecompressor, memlimit=80 << 20)
  most, out, at = (32 << 20) + 24 * len(data), bytearray(), 0
  try:
    while at < len(data) and any(data[at:at + 16]):   # several streams, and zeros behind them
      unpacker: Any = make()
      while not unpacker.eof:
        if at >= len(data) and getattr(unpacker, "needs_input", True):
          raise refuse(f"its {how} stream is damaged: it ends too early")
        if how == "gzip" or unpacker.needs_input: part, at = data[at:at + 512], at + 512
        else: part = b""   # bzip2 makes a million bytes of one
        out += unpacker.decompress(part, *(() if how == "gzip" else (1 << 20,)))
        if len(out) > most: raise refuse(f"it unpacks to more than {most} bytes from {len(data)}")
      at = min(at, len(data)) - len(unpacker.unused_data)
  except NtgradError: raise
  except Exception as e:   # each of the three has its own
    raise refuse(f"its {how} stream is damaged ({type(e).__name__}: {' '.join(str(e).split())})") from None
  return out


@contextmanager
def replaced_when_whole(path: Path) -> Iterator[BinaryIO]:
  """A file to write that takes the place of ``path`` when the block ends; if it ends by an error, nothing has changed.

  What processes that were killed left unfinished in the folder is removed: the file is locked while its process lives. Raises
  StateError where the folder takes no new file, and OSError where the disk is full.
  """
  with usable("a file to write", path):
    for left in path.parent.iterdir():
      if not _UNFINISHED.fullmatch(left.name): continue
      with suppress(OSError), open(left, "rb") as old:
        fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)   # fails while the process that writes it lives
        left.unlink()
    f, temporary = _locked_file(path.parent)
  try:
    with f:
      yield f
      f.flush()
      os.fsync(f.fileno())
      os.replace(temporary, path)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise


def _locked_file(folder: Path) -> tuple[BinaryIO, Path]:
  while True:
    path = folder / f".{secrets.token_hex(8)}.ntgrad-unfinished"
    f = open(path, "xb")  # noqa: SIM115 - the caller closes it
    # a file system without locks: nobody else can lock, and so remove, the file either
    with suppress(OSError): fcntl.flock(f, fcntl.LOCK_EX)
    if os.fstat(f.fileno()).st_nlink: return f, path   # else it was removed before it was locked
    f.close()
