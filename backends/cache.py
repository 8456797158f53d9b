"""The disk cache: bytes under a key, safe against damage, against other processes, and against being killed.

Every entry is one file: a checksum, then the bytes. It is written in ``.writing`` and moved to its place in one step, so a reader
sees the whole of it or nothing; an entry whose checksum fails is removed and counts as absent. A disk that refuses is a cache
that keeps nothing.

What is kept stays below ``config.cache_bytes``: those that were not read for longest go first. Nobody adds up the files at each
write: the file ``.size`` has a byte for each block that was ever written, so its length is what the cache takes at most, whoever
wrote, and appending to it is one step. Only when that is too much are the files looked at, and ``.size`` is made anew.
"""
from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, Iterator

from ntgrad.codegen.config import config

_MAGIC = b"ntgrad01"
BLOCK = 4096                  # bytes that a file takes a multiple of
ROOM = 0.75                   # of the limit is left when there was too much
ABANDONED = 3600.0            # seconds after which nobody is writing a file any more
_WRITING, _SIZE = ".writing", ".size"
_seen: set[str] = set()       # folders whose abandoned files this process has removed
_refused: list[str] = []      # what the disk said, once


@cache
def _platform_folder() -> Path:
  import platformdirs
  return Path(platformdirs.user_cache_dir("ntgrad"))


@cache
def version() -> str:
  """What of ntgrad itself belongs to a key: its version and, as checkouts change without one, the text of the generators."""
  h = hashlib.sha256()
  root = Path(__file__).resolve().parent
  for folder in (root, root.parent / "codegen"):
    for path in sorted(folder.rglob("*.py")): h.update(path.read_bytes())
  return h.hexdigest()[:16]


def folder() -> Path:
  """Where the cache lies: ``config.cache_dir``, or the platform's folder for caches."""
  return Path(config.cache_dir) if config.cache_dir else _platform_folder()


def settings() -> dict[str, Any]:
  """The settings that say where something is kept: for whoever keeps it later, in another thread or process."""
  return {
    "cache": config.cache,
    "cache_dir": config.cache_dir and os.path.abspath(config.cache_dir),
    "cache_bytes": config.cache_bytes,
  }


def key(*parts: object) -> str:
  """The sha256 of ``parts`` (their reprs, so lengths and types count), in hex."""
  return hashlib.sha256(repr(parts).encode()).hexdigest()


def _path(table: str, name: str) -> Path: return folder() / table / name[:2] / name


def load(table: str, name: str) -> bytes | None:
  """The bytes kept under ``name``, or None where there are none. A damaged entry is removed."""
  if not config.cache: return None
  path = _path(table, name)
  try:
    raw = path.read_bytes()
  except OSError:
    return None
  head = len(_MAGIC) + 32
  if raw[:len(_MAGIC)] == _MAGIC and hashlib.sha256(raw[head:]).digest() == raw[len(_MAGIC):head]:
    try: os.utime(path)   # it has been used
    except OSError: pass
    return raw[head:]
  remove(table, name)
  return None


def store(table: str, name: str, data: bytes) -> bool:
  """Keep ``data`` under ``name``. False where the cache is off, the disk refuses (which is said once), or it is more than the
  cache may take."""
  if not config.cache or (config.cache_bytes and len(data) > config.cache_bytes): return False
  root, path, temp = folder(), _path(table, name), ""
  try:
    (root/_WRITING).mkdir(parents=True, exist_ok=True)
    _clean(root)
    path.parent.mkdir(parents=True, exist_ok=True)
  except OSError as e:
    _say(root, e)
    return False
  try:
    handle, temp = tempfile.mkstemp(dir=root/_WRITING)
    with os.fdopen(handle, "wb") as f: f.write(_MAGIC + hashlib.sha256(data).digest() + data)
    os.replace(temp, path)
    temp = ""
    _count(root, len(data))
  except FileNotFoundError: return False   # somebody has removed the folder
  except OSError as e:
    _say(root, e)
    return False
  finally:
    if temp: _unlink(temp)
  return True


def remove(table: str, name: str) -> None:
  """Forget an entry; none is no mistake."""
  _unlink(_path(table, name))


def _unlink(path: str | Path) -> None:
  try: os.unlink(path)
  except OSError: pass


def _say(root: Path, e: OSError) -> None:
  if not _refused:
    print(
      f"ntgrad: {root} keeps nothing ({e}), so kernels are compiled again by every process; CACHE_DIR names a folder that can be "
      "written, "
      "CACHE=0 is no cache",
      file=sys.stderr,
    )
  _refused[:] = [str(e)]


def _clean(root: Path) -> None:
  """Remove what processes that were killed had begun to write; once a process and folder."""
  if str(root) in _seen: return
  _seen.add(str(root))
  with os.scandir(root/_WRITING) as found:
    for f in found:
      try:
        if time.time() - f.stat().st_mtime > ABANDONED: os.unlink(f)
      except OSError: pass   # another process did


def _count(root: Path, nbytes: int) -> None:
  """Note that so many bytes were written, and make room when it is too much."""
  if not config.cache_bytes: return
  blocks = _blocks(nbytes)
  with open(root/_SIZE, "ab", buffering=0) as f:
    f.write(bytes(blocks))
    total = os.fstat(f.fileno()).st_size
  if total == blocks or total * BLOCK > config.cache_bytes: trim()   # the first: nobody has counted what is there


def _blocks(nbytes: int) -> int: return -(-(nbytes + len(_MAGIC) + 32) // BLOCK)


def entries(root: Path) -> Iterator[tuple[int, int, str]]:
  """When each entry was last used (ns), its size in blocks, and its path; files of others that lie there are none."""
  for table in _folders(str(root)):
    for part in _folders(table):
      try: found = list(os.scandir(part))
      except OSError: continue
      for f in found:
        if len(f.name) != 64 or not f.name.startswith(os.path.basename(part)): continue
        try: about = f.stat(follow_symlinks=False)
        except OSError: continue
        yield about.st_mtime_ns, -(-about.st_size // BLOCK), f.path


def _folders(path: str) -> list[str]:
  try: return [f.path for f in os.scandir(path) if not f.name.startswith(".") and f.is_dir(follow_symlinks=False)]
  except OSError: return []


def trim() -> None:
  """Count what the cache takes; where that is more than ``config.cache_bytes``, remove what was not used for longest."""
  root = folder()
  found = sorted(entries(root))
  total = sum(blocks for _, blocks, _ in found)
  if total * BLOCK > config.cache_bytes > 0:
    for _, blocks, path in found:
      if total * BLOCK <= config.cache_bytes * ROOM: break
      _unlink(path)
      total -= blocks
  handle, temp = tempfile.mkstemp(dir=root/_WRITING)
  with os.fdopen(handle, "wb") as f: f.write(bytes(total))
  os.replace(temp, root/_SIZE)
