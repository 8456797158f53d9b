"""The disk cache: records under a key, safe against damage, against other processes and other users, and against being killed.

An entry is one file, a record (``codegen/index/records.py``), written in ``.writing`` and moved to its place in one step. One
that is damaged, or makes no sense, is removed and counts as absent. Where the disk cannot be written, nothing is cached.

What lies there is loaded and run, so the folder, the folders in it and the entries belong to this user, and nobody else may write
them; links in it are not followed. Where that is not so of the folder, a private one is used, and that is said.

The entries take at most ``config.cache_bytes``; the least recently used go first. Each process appends a byte to the file
``.size`` for every block that it writes: its length is an upper bound. Only when that is too large are the files counted, and it
gets their length, while no other process appends: what is written during the count is noted after it.
"""
from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Iterator, TypeVar

from ntgrad.codegen.index import records
from ntgrad.codegen.index.records import Form, RecordError
from ntgrad.codegen.ir import config

from .process import temporary

BLOCK = 4096                  # bytes; a file takes whole blocks
ROOM = 0.75                   # part of the limit that is still used after removing entries
ABANDONED = 3600.0            # seconds after which an unfinished file is one of a process that was killed
OTHERS = 0o022                # bits of a mode: others than the owner may write
_WRITING, _SIZE = ".writing", ".size"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC   # a pipe in a file's place is not waited for
_seen: set[str] = set()       # folders whose abandoned files this process has removed
_refused: list[str] = []      # the disk's last error, so that it is told once
_places: dict[tuple[str, int], str] = {}   # by the folder that is set and the user: the folder that is used
_loaded = time.time_ns()
T = TypeVar("T")


@cache
def _platform_folder() -> Path:
  import platformdirs
  return Path(platformdirs.user_cache_dir("ntgrad"))


@cache
def version() -> str:
  """The part of a key that stands for ntgrad itself: a hash of the code generators' text, which changes without a version."""
  h = hashlib.sha256()
  root = Path(__file__).resolve().parent
  for folder in root, root.parent / "codegen":
    for path in sorted(folder.rglob("*.py")): h.update(path.read_bytes())
  return h.hexdigest()[:16]


@cache
def sources() -> str | None:
  """Stands for all of ntgrad's sources: names, sizes and times of change (reading them would take longer than it saves). None
  where a file has changed since this process began: what runs here is not what lies there."""
  h = hashlib.sha256(sys.version.encode())
  for package in "ntgrad", "ntgrad.codegen", "ntgrad.backends":   # the latter two lie beside it, or are links
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


# ---- the folder

def folder() -> Path:
  """The cache's folder: ``config.cache_dir`` or the platform's; a private one, which is said, where others may write there."""
  given = config.cache_dir or str(_platform_folder())
  try:
    if not os.path.isabs(given): given = os.path.abspath(given)
    if (known := _places.get((given, os.geteuid()))) is None: known = _places[given, os.geteuid()] = _place(given)
  except (OSError, ValueError): return Path(given)   # where nothing can lie
  return Path(known)


def _place(given: str) -> str:
  path = os.path.realpath(given)
  reason, helps = _wrong(given, path)
  if not reason: return path
  private = _private()
  print(
    f"ntgrad: {given} is not used for the disk cache, for {reason}; {private} is used in its place. What lies in the cache is "
    f"run: {helps and f'see what is there, then {helps}, or '}let CACHE_DIR name a folder of your own", file=sys.stderr)
  return private


def _wrong(given: str, path: str) -> tuple[str, str]:
  """Why others could put something into a folder, and what helps; "" where they cannot: it is this user's, nobody else may write
  it, and none of those that it is in. One that is not there yet will be so."""
  user = os.geteuid()
  try:
    if os.path.islink(given) and os.lstat(given).st_uid not in (user, 0): return "it is another user's link", ""
    about = os.stat(path)
    if not stat.S_ISDIR(about.st_mode): return "", ""   # nothing can be written there, which is said then
    if about.st_uid != user: return f"it belongs to user {about.st_uid}, and this process is user {user}'s", ""
    if about.st_mode & OTHERS: return f"others may write there (mode {stat.S_IMODE(about.st_mode):o})", f"chmod -R go-w {given}"
  except (OSError, ValueError): pass
  at = path
  while (above := os.path.dirname(at)) != at:
    at = above
    try: about = os.stat(at)
    except (OSError, ValueError): continue
    mode = about.st_mode
    if not stat.S_ISDIR(mode): break
    if mode & stat.S_ISVTX or not mode & OTHERS: continue   # in the former each may change what is his
    if mode & stat.S_IWOTH or not _only_mine(about.st_gid):
      return f"others may write in {at} (mode {stat.S_IMODE(mode):o})", f"chmod go-w {at}"
  return "", ""


def _only_mine(group: int) -> bool:
  """Whether a group is this user's alone: it has his name, and nobody else is in it."""
  import grp
  import pwd
  try: found, me = grp.getgrgid(group), pwd.getpwuid(os.geteuid()).pw_name
  except KeyError: return False
  return found.gr_name == me and set(found.gr_mem) <= {me}


def _private() -> str:
  """A folder that only this user may write: one for all his processes, or one of this process where its name is taken."""
  path = f"{os.path.realpath(tempfile.gettempdir())}/ntgrad-cache-{os.geteuid()}"
  try:
    with suppress(FileExistsError): os.mkdir(path, 0o700)
    about = os.lstat(path)
    if stat.S_ISDIR(about.st_mode) and _mine(about) and not _wrong(path, path)[0]: return path
  except OSError: pass
  return str(temporary() / "cache")


def _mine(about: os.stat_result) -> bool:
  """Whether a file or folder is this user's, and nobody else may write it."""
  return about.st_uid == os.geteuid() and not about.st_mode & OTHERS


def settings() -> dict[str, Any]:
  """The settings that say where entries are stored, for a thread or process that stores one later."""
  return {"cache": config.cache,
          "cache_dir": str(folder()) if config.cache else config.cache_dir and os.path.abspath(config.cache_dir),
          "cache_bytes": config.cache_bytes}


@contextmanager
def _inside(*names: str, make: bool = False) -> Iterator[int]:
  """A folder in the cache, as the number of an open file. With ``make`` it is made where it is missing, or a link, and others may
  not write it from now on. Raises OSError where there is none, or it is not this user's alone."""
  opened = [_root(make)]
  try:
    for name in names: opened.append(_within(opened[-1], name, make))
    yield opened[-1]
  finally:
    for fd in opened: os.close(fd)


def _root(make: bool) -> int:
  path = str(folder())
  try: fd = os.open(path, _FOLDER)
  except FileNotFoundError:
    if not make: raise
    _make(path)
    fd = os.open(path, _FOLDER)
  if _mine(os.fstat(fd)): return fd
  os.close(fd)   # others may write it since it was looked at: folder() looks again
  for key in [key for key, known in _places.items() if known == path]: del _places[key]
  if str(folder()) == path: raise PermissionError(f"{path} is not this user's alone")
  return _root(make)


def _make(path: str) -> None:
  """Make a folder that only this user may write, and those that it is in, whatever the umask."""
  missing = [path]
  while not os.path.isdir(above := os.path.dirname(missing[-1])) and above != missing[-1]: missing.append(above)
  for each in reversed(missing):
    try: os.mkdir(each, 0o700)
    except FileExistsError: pass
    except FileNotFoundError as e: raise OSError(str(e)) from None   # nobody has removed it: it cannot be there


def _within(fd: int, name: str, make: bool) -> int:
  if make:
    try: os.mkdir(name, 0o700, dir_fd=fd)
    except FileExistsError:
      if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=fd)
        os.mkdir(name, 0o700, dir_fd=fd)
  found = os.open(name, _FOLDER, dir_fd=fd)
  about = os.fstat(found)
  if make and about.st_uid == os.geteuid() and about.st_mode & OTHERS: os.fchmod(found, 0o700)
  elif not _mine(about):
    os.close(found)
    raise PermissionError(f"{name} is not this user's alone")
  return found


# ---- entries

def key(*parts: object) -> str:
  """The sha256 of ``parts`` (their reprs, so lengths and types count), in hex."""
  return hashlib.sha256(repr(parts).encode()).hexdigest()


def get(table: str, name: str, form: Form[T]) -> T | None:
  """The value kept under a key; None where there is none. An entry that is damaged, or no such value, is removed."""
  if (body := load(table, name)) is None: return None
  try: return records.unpacked(form, body, f"{table}/{name}")
  except RecordError:
    remove(table, name)
    return None


def put(table: str, name: str, form: Form[T], value: T) -> bool:
  """Keep a value under a key. False where it is not kept: see ``store``; or it has parts of which no record is made."""
  if not config.cache: return False
  try: body = records.packed(form, value, f"{table}/{name}")
  except RecordError: return False
  return store(table, name, body)


def load(table: str, name: str) -> bytes | None:
  """The bytes stored under a key, or None. A damaged entry is removed, and one that is not this user's alone to write."""
  if not config.cache: return None
  try:
    with _inside(table, name[:2]) as at:
      try: body = _read(name, at)
      except FileNotFoundError: return None
      except (OSError, RecordError):   # the first: a link, or what cannot be opened
        _unlink(name, at)
        return None
      with suppress(OSError): os.utime(name, dir_fd=at, follow_symlinks=False)   # it has been used
      return body
  except (OSError, ValueError): return None


def _read(name: str, at: int) -> bytes:
  """What an entry has. Raises OSError for a link, and what cannot be opened; RecordError for one that is damaged, or not this
  user's alone to write."""
  with open(name, "rb", opener=lambda file, flags: os.open(file, flags | _FILE, dir_fd=at)) as f:
    about = os.fstat(f.fileno())
    if not stat.S_ISREG(about.st_mode) or not _mine(about): raise RecordError("no file that only this user may write")
    return records.opened(f.read())


def store(table: str, name: str, data: bytes) -> bool:
  """Store ``data`` under ``name``. False where the cache is off or smaller, or the disk cannot be written (told once)."""
  if not config.cache or (config.cache_bytes and len(data) > config.cache_bytes): return False
  try:
    with _inside(_WRITING, make=True) as writing:
      _clean(writing)
      with _inside(table, name[:2], make=True) as at: _write(writing, records.sealed(data), name, at)
      _count(len(data))
  except FileNotFoundError: return False   # somebody has removed the folder
  except (OSError, ValueError) as e:
    _say(e)
    return False
  return True


def _write(writing: int, data: bytes, name: str, at: int) -> None:
  """Write a file, and move it to its place."""
  temp = f"{os.getpid()}-{os.urandom(8).hex()}"
  fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=writing)
  try:
    with open(fd, "wb") as f: f.write(data)
    os.replace(temp, name, src_dir_fd=writing, dst_dir_fd=at)
    temp = ""
  finally:
    if temp: _unlink(temp, writing)


def remove(table: str, name: str) -> None:
  """Remove an entry, if there is one."""
  with suppress(OSError, ValueError), _inside(table, name[:2]) as at: _unlink(name, at)


def _unlink(path: str, at: int | None = None) -> None:
  with suppress(OSError): os.unlink(path, dir_fd=at)


def _say(e: Exception) -> None:
  if not _refused:
    print(
      f"ntgrad: {folder()} keeps nothing ({e}), so kernels are compiled again by every process; CACHE_DIR names a folder that "
      "can be written, CACHE=0 is no cache", file=sys.stderr)
  _refused[:] = [str(e)]


# ---- the limit

def _clean(writing: int) -> None:
  """Remove files that processes which were killed had begun to write; done once for each folder."""
  if (root := str(folder())) in _seen: return
  _seen.add(root)
  for name in os.listdir(writing):
    with suppress(OSError):   # another process did
      if time.time() - os.stat(name, dir_fd=writing, follow_symlinks=False).st_mtime > ABANDONED: os.unlink(name, dir_fd=writing)


def _count(nbytes: int) -> None:
  """Note that so many bytes were written, and remove entries when it is too much."""
  if not config.cache_bytes: return
  blocks = -(-(nbytes + records.HEAD_SIZE) // BLOCK)
  with _size(fcntl.LOCK_SH) as f:
    if f is None: return   # it is counted again
    f.write(bytes(blocks))
    total = os.fstat(f.fileno()).st_size
  if total == blocks or total * BLOCK > config.cache_bytes: trim()   # the first: nobody has counted what is there


@contextmanager
def _size(lock: int) -> Iterator[BinaryIO | None]:
  """The file ``.size``, to be appended to, locked. None, and it is removed, where something else is in its place."""
  with _inside() as root:
    try: fd = os.open(_SIZE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _FILE, 0o600, dir_fd=root)
    except OSError:
      _unlink(_SIZE, root)
      yield None
      return
    with open(fd, "ab", buffering=0) as f:
      with suppress(OSError): fcntl.flock(fd, lock)   # not every file system has locks
      yield f


def entries(root: Path) -> Iterator[tuple[int, int, str]]:
  """When each entry was last used (ns), its size in blocks, and its path; other files in the folder are left out."""
  for folder, inside, files in os.walk(root):
    inside[:] = [name for name in inside if not name.startswith(".")]
    for name in files:
      if len(name) != 64 or not name.startswith(os.path.basename(folder)): continue
      path = f"{folder}/{name}"
      try: about = os.lstat(path)
      except OSError: continue
      yield about.st_mtime_ns, -(-about.st_size // BLOCK), path


def trim() -> None:
  """Count the entries' blocks; where they take more than ``config.cache_bytes``, remove the least recently used."""
  with _size(fcntl.LOCK_EX) as f:
    found = sorted(entries(folder()))
    total = sum(blocks for _, blocks, _ in found)
    if total * BLOCK > config.cache_bytes > 0:
      for _, blocks, path in found:
        if total * BLOCK <= config.cache_bytes * ROOM: break
        _unlink(path)
        total -= blocks
    if f is not None: f.truncate(total)


# ---- for people: see ``ntgrad/utils/command/cache.py``

def entry_of(path: str) -> tuple[str, str]:
  """The table and the name of an entry."""
  table, _, name = path.split("/")[-3:]
  return table, name


def clear(before: float) -> tuple[int, int]:
  """Remove the entries that were last used before a time (``time.time()``): how many, and their bytes."""
  old = [(blocks, path) for used, blocks, path in entries(folder()) if used < before * 1e9]
  for _, path in old: remove(*entry_of(path))
  with suppress(OSError): trim()   # counts what is left
  gone = [blocks for blocks, path in old if not os.path.lexists(path)]
  return len(gone), sum(gone) * BLOCK


def damage(path: str) -> str:
  """What is wrong with an entry, which stays as it is; "" for one that is whole, or is gone."""
  table, name = entry_of(path)
  try:
    with _inside(table, name[:2]) as at: _read(name, at)
  except FileNotFoundError: pass
  except (OSError, RecordError) as e: return str(e)
  return ""
