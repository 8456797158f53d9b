"""The disk cache: whole entries or none, whoever writes."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ntgrad.backends import cache
from ntgrad.codegen.config import config


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path):  # type: ignore[no-untyped-def]
  with config(cache=1, cache_dir=str(tmp_path)): yield


def entries(path: Path) -> list[Path]:
  """Files of the tests' own table (programs that other tests compiled may still be saved beside it)."""
  return [p for p in (path / "t").rglob("*") if p.is_file()]


def test_keeps_bytes(tmp_path: Path) -> None:
  k = cache.key("kernel", 1)
  assert cache.load("t", k) is None
  assert cache.store("t", k, b"abc")
  assert cache.load("t", k) == b"abc"
  cache.store("t", k, b"")
  assert cache.load("t", k) == b""
  cache.remove("t", k)
  cache.remove("t", k)
  assert cache.load("t", k) is None and not entries(tmp_path)


def test_keys_tell_parts_apart() -> None:
  keys = {cache.key(*k) for k in (("ab", "c"), ("a", "bc"), ("abc",), (("a", "b"), "c"), (1,), ("1",), (1.0,))}
  assert len(keys) == 7 and all(len(k) == 64 for k in keys)
  assert cache.key("ab", "c") == cache.key("ab", "c")


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:10], lambda b: b"", lambda b: b[:-1] + b"x", lambda b: b + b"x",
                                    lambda b: b"x" + b[1:]])
def test_a_damaged_entry_is_removed(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
  k = cache.key("kernel")
  cache.store("t", k, b"precious")
  path, = entries(tmp_path)
  path.write_bytes(damage(path.read_bytes()))
  assert cache.load("t", k) is None and not entries(tmp_path)
  cache.store("t", k, b"rebuilt")
  assert cache.load("t", k) == b"rebuilt"


def test_off_keeps_nothing(tmp_path: Path) -> None:
  with config(cache=0):
    assert not cache.store("t", cache.key(0), b"x") and cache.load("t", cache.key(0)) is None
  assert not entries(tmp_path)


def test_a_disk_that_refuses_is_no_error(tmp_path: Path) -> None:
  blocked = tmp_path/"file"
  blocked.write_text("not a folder")
  with config(cache_dir=str(blocked)):
    assert not cache.store("t", cache.key(0), b"x") and cache.load("t", cache.key(0)) is None


def test_processes_never_see_half_a_file(tmp_path: Path) -> None:
  """Two writers and this reader on one key: every read is the whole of one of the values."""
  k = cache.key("shared")
  code = f"""
from ntgrad.backends import cache
import sys
for i in range(150): cache.store("t", {k!r}, sys.argv[1].encode()*(100_000 + i))
"""
  root = str(Path(__file__).resolve().parents[2])
  env = {"CACHE_DIR": str(tmp_path), "PYTHONPATH": root, "PATH": "/usr/bin:/bin"}
  writers = [subprocess.Popen([sys.executable, "-c", code, c], env=env) for c in "ab"]
  seen = set()
  while any(w.poll() is None for w in writers):
    data = cache.load("t", k)
    if data is not None:
      assert len(data) >= 100_000 and data.count(data[:1]) == len(data)
      seen.add(data[:1])
  assert all(w.wait() == 0 for w in writers) and cache.load("t", k) is not None
  assert len(entries(tmp_path)) == 1  # and no leavings
