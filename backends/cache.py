"""The disk cache: bytes under a key, safe against damage, against other processes, and against being killed.

Every entry is one file: a checksum, then the bytes. It is written in ``.writing`` and moved to its place in one step, so a reader
sees the whole of it or nothing; an entry whose checksum fails is removed and counts as absent. Where the disk cannot be written,
nothing is cached.

The entries take at most ``config.cache_bytes``; the least recently used are removed first. The sizes are not added up at each
write: each process appends a byte to the file ``.size`` for every block that it writes, in one step, so the length of that file
is an upper bound for all processes. Only when that is too large are the files themselves counted, and ``.size`` is rewritten.
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
BLOCK = 4096                  # bytes; a file takes whole blocks
ROOM = 0.75                   # part of the limit that is still used after removing entries
ABANDONED = 3600.0            # seconds after which an unfinished file is one of a process that was killed
_WRITING, _SIZE = ".writing", ".size"
_seen: set[str] = set()       # folders whose abandoned files this process has removed
_refused: list[str] = []      # the disk's last error, so that it is told once
_loaded = time.time_ns()


@cache
def _platform_folder() -> Path:
  import platformdirs
  return Path(platformdirs.user_cache_dir("ntgrad"))


@cache
def version() -> str:
  """The part of a key that stands for ntgrad itself: a hash of the code generators' text, which changes without a version."""
  h = hashlib.sha256()
  root = Path(__file__).resolve().parent
  for folder in (root, root.parent / "codegen"):
    for path in sorted(folder.rglob("*.py")): h.update(path.read_bytes())
  return h.hexdigest()[:16]


@cache
def sources() -> str | None:
  """Stands for all of ntgrad's sources: names, sizes and times of change (reading them would take longer than what it saves).

  None where a file has changed since this process began: what runs here is not what lies there.
  """
  h = hashlib.sha256(sys.version.encode())
  for package in ("ntgrad", "ntgrad.codegen", "ntgrad.backends"):   # the latter two lie beside it, or are links
    for root in sys.modules[package].__path__:
      folders = [root]
      for folder in folders:   # which grows
        with os.scandir(folder) as found: inside = sorted(found, key=lambda f: f.name)
        folders += [f.path for f in inside if f.is_dir(follow_symlinks=False)]
        for f in inside:
          if not f.name.endswith(".py"): continue
          about = f.stat()
          if about.st_mtime_ns > _loaded: return None
          h.update(f"{f.path.removeprefix(root)} {about.st_size} {about.st_mtime_ns}\n".encode())
  return h.hexdigest()


def folder() -> Path:
  """The cache's folder: ``config.cache_dir``, or the platform's folder for caches."""
  return Path(config.cache_dir) if config.cache_dir else _platform_folder()


def settings() -> dict[str, Any]:
  """The settings that say where entries are stored, for a thread or process that stores one later."""
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
  """The bytes stored under ``name``, or None where there are none. A damaged entry is removed."""
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
  """Store ``data`` under ``name``. False where the cache is off, the disk cannot be written (which is told once), or the data is
  larger than the whole cache may be."""
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
  """Remove an entry, if there is one."""
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
  """Remove files that processes which were killed had begun to write; done once for each folder."""
  if str(root) in _seen: return
  _seen.add(str(root))
  with os.scandir(root/_WRITING) as found:
    for f in found:
      try:
        if time.time() - f.stat().st_mtime > ABANDONED: os.unlink(f)
      except OSError: pass   # another process did


def _count(root: Path, nbytes: int) -> None:
  """Note that so many bytes were written, and remove entries when it is too much."""
  if not config.cache_bytes: return
  blocks = _blocks(nbytes)
  with open(root/_SIZE, "ab", buffering=0) as f:
    f.write(bytes(blocks))
    total = os.fstat(f.fileno()).st_size
  if total == blocks or total * BLOCK > config.cache_bytes: trim()   # the first: nobody has counted what is there


def _blocks(nbytes: int) -> int: return -(-(nbytes + len(_MAGIC) + 32) // BLOCK)


def entries(root: Path) -> Iterator[tuple[int, int, str]]:
  """When each entry was last used (ns), its size in blocks, and its path; other files in the folder are left out."""
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
  """Count the entries' blocks; where they take more than ``config.cache_bytes``, remove the least recently used."""
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
