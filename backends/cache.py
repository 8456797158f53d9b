"""The disk cache: bytes under a key, safe against damage and against other processes.

Every entry is one file: a checksum, then the bytes. It is written beside its place and moved there in one step, so a reader sees the
whole of it or nothing; an entry whose checksum fails is removed and counts as absent. A disk that refuses is a cache that keeps nothing.
"""
from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

from ntgrad.codegen.config import config

_MAGIC = b"ntgrad01"


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
  if raw[:len(_MAGIC)] == _MAGIC and hashlib.sha256(raw[head:]).digest() == raw[len(_MAGIC):head]: return raw[head:]
  remove(table, name)
  return None


def store(table: str, name: str, data: bytes) -> bool:
  """Keep ``data`` under ``name``. False where the cache is off or the disk refuses."""
  if not config.cache: return False
  path = _path(table, name)
  temp = ""
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temp = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    with os.fdopen(handle, "wb") as f: f.write(_MAGIC + hashlib.sha256(data).digest() + data)
    os.replace(temp, path)
    return True
  except OSError:
    if temp and os.path.exists(temp): os.unlink(temp)
    return False


def remove(table: str, name: str) -> None:
  """Forget an entry; none is no mistake."""
  try:
    _path(table, name).unlink()
  except OSError:
    pass
