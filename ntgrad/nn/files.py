"""Files that are there before they are read, and whole before they are seen."""
from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ntgrad.codegen.errors import MissingFileError, StateError

_UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.ntgrad-unfinished")


def plain_file(name: str, path: str | os.PathLike[str], new: bool = False) -> Path:
  """The path that links lead to, of a file that is there (or, ``new``, of one to write in a folder that is there).

  Raises MissingFileError, and StateError where something other than a plain file lies there: a folder, a device.
  """
  found = Path(os.path.realpath(path))
  if not (found.parent.is_dir() if new else found.exists()):
    raise MissingFileError(f"{name}: no {'folder' if new else 'file'} for {str(path)!r}")
  if found.exists() and not found.is_file():
    raise StateError(
      f"{name}: {str(path)!r} is {'a folder' if found.is_dir() else 'no plain file (a device or a pipe)'}; give the path of a "
      "file"
    )
  return found


@contextmanager
def replaced_when_whole(path: Path) -> Iterator[BinaryIO]:
  """A file to write that takes the place of ``path`` when the block ends; if it ends by an error, nothing has changed.

  What processes that were killed left unfinished in the folder is removed: the file is locked while its process lives. Raises
  OSError.
  """
  for left in path.parent.iterdir():
    if _UNFINISHED.fullmatch(left.name): _remove_left(left)
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


def _remove_left(path: Path) -> None:
  with suppress(OSError), open(path, "rb") as f:
    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)   # fails while the process that writes it lives
    path.unlink()
