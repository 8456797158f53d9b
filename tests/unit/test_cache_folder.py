"""Whose the disk cache is: the folder, what lies in it, and what is done with what makes no sense."""
from __future__ import annotations

import hashlib
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.backends import cache, process
from ntgrad.backends.opencl import binaries, compiler, selftest
from ntgrad.codegen import pipeline
from ntgrad.codegen.index import records
from ntgrad.codegen.index.records import INT, PLAIN, STR, sealed, unpacked
from ntgrad.codegen.ir.config import config
from ntgrad.engine import compile as compiling, plan_cache, search as searching, search_results
from ntgrad.engine.device import get_device
from ntgrad.graph.symbol import Symbol
from ntgrad.schedule import create_schedule
from ntgrad.tile import tune
from support.devices import missing
from support.marks import long_where

ROOT = Path(__file__).resolve().parents[2]
cpu = pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
KEY = cache.key("something")


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  """A cache, and a folder for private ones, of this test; nothing is known of either."""
  temporary = tmp_path / "temporary"
  temporary.mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(temporary))
  monkeypatch.setattr(cache, "_places", {})
  monkeypatch.setattr(cache, "_refused", [])
  with config(cache=1, cache_dir=str(tmp_path / "cache")): yield


@pytest.fixture
def root(tmp_path: Path) -> Path: return tmp_path / "cache"


@pytest.fixture
def private(tmp_path: Path) -> Path: return tmp_path / "temporary" / f"ntgrad-cache-{os.geteuid()}"


def kept(data: bytes = b"data") -> bool: return cache.store("t", KEY, data) and cache.load("t", KEY) == data
def entry(root: Path) -> Path: return root / "t" / KEY[:2] / KEY
def mode(path: Path) -> int: return stat.S_IMODE(path.lstat().st_mode)


def in_process(code: str, **env: str) -> Any:
  done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT), **env}, capture_output=True,
                        text=True, timeout=200, check=False)
  assert done.returncode == 0, done.stderr
  return done


# ---- the folder

@pytest.mark.parametrize("umask", [0o022, 0, 0o002, 0o077])
def test_what_is_made_is_this_users_alone(root: Path, umask: int, capfd: pytest.CaptureFixture[str]) -> None:
  """Also folders on the way to it, whatever the umask."""
  before = os.umask(umask)
  try:
    with config(cache_dir=str(root / "a" / "b")):
      assert kept() and cache.folder() == root / "a" / "b"
      for path in (root, *root.rglob("*")): assert mode(path) == (0o700 if path.is_dir() else 0o600), path
  finally: os.umask(before)
  assert capfd.readouterr().err == ""


@pytest.mark.parametrize("bits", [0o777, 0o775, 0o770, 0o702, 0o720, 0o1777])
def test_a_folder_that_others_may_write(root: Path, private: Path, bits: int, capfd: pytest.CaptureFixture[str]) -> None:
  root.mkdir()
  root.chmod(bits)
  assert kept() and kept(b"more") and cache.folder() == private and mode(private) == 0o700 and entry(private).exists()
  assert not list(root.iterdir())
  said = capfd.readouterr().err
  assert said.count("\n") == 1 and str(root) in said and str(private) in said and f"mode {bits:o}" in said
  assert f"chmod -R go-w {root}" in said and "CACHE_DIR" in said
  assert cache.settings()["cache_dir"] == str(private)   # what a worker uses
  monkey: dict[Any, Any] = cache._places
  monkey.clear()   # another process: the same folder
  assert cache.load("t", KEY) == b"more"
  root.chmod(0o700)
  monkey.clear()
  assert cache.folder() == root and cache.load("t", KEY) is None


def test_a_folder_that_others_may_write_from_now_on(root: Path, private: Path, capfd: pytest.CaptureFixture[str]) -> None:
  assert kept()
  root.chmod(0o777)
  assert cache.load("t", KEY) is None and cache.folder() == private and kept()
  assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("bits, fine", [(0o777, False), (0o1777, True), (0o755, True), (0o757, False), (0o711, True)])
def test_the_folders_that_it_is_in(root: Path, private: Path, bits: int, fine: bool, capfd: pytest.CaptureFixture[str]) -> None:
  """Who may write one of them may put another folder in its place, but where each may change only what is his."""
  within = root / "a" / "b" / "cache"
  within.parent.mkdir(parents=True)
  (root / "a").chmod(bits)
  with config(cache_dir=str(within)): assert kept() and cache.folder() == (within if fine else private)
  assert (f"chmod go-w {root / 'a'}, or" in capfd.readouterr().err) is not fine


def test_a_group_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
  """Many systems give each user a group, and new folders to it: nobody else is in there."""
  import grp
  import pwd
  me = pwd.getpwuid(os.geteuid()).pw_name
  for name, members, mine in ((me, [], True), (me, [me], True), (me, [me, "other"], False), ("users", [], False)):
    found = SimpleNamespace(gr_name=name, gr_mem=members)
    monkeypatch.setattr(grp, "getgrgid", {7: found}.__getitem__)
    assert cache._only_mine(7) is mine
  monkeypatch.setattr(grp, "getgrgid", {}.__getitem__)
  assert not cache._only_mine(7)


def test_another_users_folder(root: Path, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                              capfd: pytest.CaptureFixture[str]) -> None:
  """As for root with a user's HOME. Here everything belongs to another one, the private folder's name too."""
  assert kept()
  user = os.geteuid()
  monkeypatch.setattr(os, "geteuid", lambda: user + 1)
  (tmp_path / "temporary" / f"ntgrad-cache-{user + 1}").mkdir()
  assert cache.load("t", KEY) is None
  found = cache.folder()
  assert root not in (found, *found.parents) and process.temporary() in found.parents   # of this process
  assert f"it belongs to user {user}, and this process is user {user + 1}'s" in capfd.readouterr().err


@pytest.mark.parametrize("what", ["file", "link", "open"])
def test_a_private_folders_name_that_is_taken(root: Path, private: Path, what: str, tmp_path: Path) -> None:
  root.mkdir()
  root.chmod(0o777)
  if what == "file": private.write_text("")
  if what == "link": private.symlink_to(tmp_path)
  if what == "open":
    private.mkdir()
    private.chmod(0o777)
  assert kept() and process.temporary() in cache.folder().parents


def test_ones_own_link_to_the_folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """Disks are given to users so. Another user's link is none."""
  real = tmp_path / "real"
  real.mkdir(0o700)
  root.symlink_to(real)
  assert kept() and cache.folder() == real and entry(real).exists()
  monkeypatch.setattr(cache, "_places", {})
  look = os.lstat
  def lstat(path: Any, **named: Any) -> Any:
    found = look(path, **named)
    return SimpleNamespace(st_uid=found.st_uid + 1, st_mode=found.st_mode) if str(path) == str(root) else found
  monkeypatch.setattr(os, "lstat", lstat)
  assert cache.folder() != real


def test_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  for name in ("one", "two"):
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with config(cache_dir="cache"): assert cache.load("t", KEY) is None and kept()
    assert entry(tmp_path / name / "cache").exists()


@pytest.mark.parametrize("name", ["x" * 5000, "a/" * 3000, "nul\0", "/dev/null/x", "/proc/x"])
def test_names_that_no_folder_has(root: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
  with config(cache_dir=str(root / name)): assert not kept() and cache.load("t", KEY) is None
  said = capfd.readouterr().err
  assert "keeps nothing" in said and said.count("\n") == 1


def test_a_disk_that_cannot_be_written(root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
  """What lies there is read; nothing is kept, and no other folder is used."""
  assert kept()
  def refuse(*_: Any, **__: Any) -> Any: raise OSError(30, "Read-only file system")
  make = os.open
  monkeypatch.setattr(os, "mkdir", refuse)
  monkeypatch.setattr(os, "utime", refuse)
  monkeypatch.setattr(os, "open", lambda path, flags, *a, **k: refuse() if flags & os.O_CREAT else make(path, flags, *a, **k))
  assert cache.load("t", KEY) == b"data" and not cache.store("t", KEY, b"x") and not cache.store("t", KEY, b"x")
  assert cache.folder() == root and capfd.readouterr().err.count("\n") == 1


# ---- what lies in it

@pytest.mark.parametrize("what", ["link", "folder", "pipe", "loop", "dangling", "open", "group"])
def test_entries_that_are_no_files_of_this_user(root: Path, what: str, tmp_path: Path) -> None:
  """They are removed, and nothing that they lead to is touched."""
  assert kept()
  path, elsewhere = entry(root), tmp_path / "elsewhere"
  shutil.copy(path, elsewhere)   # an entry that is right
  before = elsewhere.stat()
  path.unlink()
  if what == "link": path.symlink_to(elsewhere)
  if what == "loop": path.symlink_to(path)
  if what == "dangling": path.symlink_to(tmp_path / "nothing")
  if what == "folder": path.mkdir()
  if what == "pipe": os.mkfifo(path)
  if what in ("open", "group"):
    shutil.copy(elsewhere, path)
    path.chmod(0o606 if what == "open" else 0o620)
  assert cache.load("t", KEY) is None and (what == "folder" or not os.path.lexists(path))
  assert kept() is (what != "folder")
  after = elsewhere.stat()
  assert (before.st_mtime_ns, before.st_size, before.st_mode) == (after.st_mtime_ns, after.st_size, after.st_mode)
  assert not (tmp_path / "nothing").exists()


def test_another_users_entry(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  assert kept()
  look, inode = os.fstat, entry(root).stat().st_ino
  def fstat(fd: int) -> Any:
    found = look(fd)
    if found.st_ino != inode: return found
    return SimpleNamespace(st_uid=found.st_uid + 1, st_mode=found.st_mode, st_size=found.st_size)
  monkeypatch.setattr(os, "fstat", fstat)
  assert cache.load("t", KEY) is None and not entry(root).exists()


@pytest.mark.parametrize("part", ["t", f"t/{KEY[:2]}", ".writing"])
def test_links_to_folders_are_not_followed(root: Path, part: str, tmp_path: Path) -> None:
  assert kept()
  moved = tmp_path / "moved"
  (root / part).rename(moved)
  (root / part).symlink_to(moved)
  before = sorted(moved.rglob("*"))
  if part != ".writing": assert cache.load("t", KEY) is None
  cache.remove("t", KEY)
  assert kept(b"new") and not (root / part).is_symlink() and sorted(moved.rglob("*")) == before


@pytest.mark.parametrize("part", ["t", f"t/{KEY[:2]}"])
def test_folders_in_it_that_others_may_write(root: Path, part: str) -> None:
  assert kept()
  (root / part).chmod(0o777)
  assert cache.load("t", KEY) is None
  assert kept() and mode(root / part) == 0o700   # from now on nobody else may


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
def test_the_file_of_sizes(root: Path, what: str, tmp_path: Path) -> None:
  size, elsewhere = root / ".size", tmp_path / "elsewhere"
  elsewhere.write_bytes(b"precious")
  assert kept()
  size.unlink()
  if what == "link": size.symlink_to(elsewhere)
  if what == "folder": size.mkdir()
  if what == "pipe": os.mkfifo(size)
  for n in range(3): assert cache.store("t", cache.key(n), b"x") or what == "folder"
  assert cache.load("t", cache.key(0)) == b"x" and elsewhere.read_bytes() == b"precious"
  if what != "folder": assert stat.S_ISREG(size.lstat().st_mode)


# ---- values

def test_values(root: Path, tmp_path: Path) -> None:
  for form, value in ((INT, 7), (STR, "text"), (PLAIN, {"a": (1, [2.5, b"x"])})):
    assert cache.put("t", KEY, form, value) and cache.get("t", KEY, form) == value
  assert not cache.put("t", KEY, INT, "no int") and not cache.put("t", KEY, PLAIN, object())
  assert cache.get("t", KEY, INT) is None and not entry(root).exists(), "of another form: removed"
  cache.put("t", KEY, INT, 7)
  other = cache.key("other")
  body = cache.load("t", KEY)
  assert body is not None
  for table, name in (("t", other), ("u", KEY)):   # under another name: not what belongs there
    cache.store(table, name, body)
    assert cache.get(table, name, INT) is None and cache.load(table, name) is None
  with config(cache=0): assert not cache.put("t", KEY, INT, 8) and cache.get("t", KEY, INT) is None
  assert cache.get("t", KEY, INT) == 7


class Bomb:
  """What makes a file when it is unpickled."""
  def __init__(self, path: Path): self.path = path
  def __reduce__(self) -> Any: return Path.touch, (self.path,)


def bombs(path: Path) -> list[bytes]:
  """Files that an older version would have unpickled, and such with a right head."""
  data = pickle.dumps(Bomb(path))
  return [b"ntgrad01" + hashlib.sha256(data).digest() + data, sealed(data), data]


def test_older_versions_entries_are_removed(root: Path, tmp_path: Path) -> None:
  assert kept()
  for content in bombs(tmp_path / "made")[::2]:
    entry(root).write_bytes(content)
    assert cache.load("t", KEY) is None and not entry(root).exists() and kept()


SCRIPT = """
import numpy as np
from ntgrad import Tensor, tile, TinyJit
import ntgrad.tile.language as tl
from ntgrad.engine.device import get_device
rng = np.random.default_rng(0)
x = Tensor(rng.standard_normal((37, 53), dtype=np.float32), device="CPU")
w = Tensor(rng.standard_normal((53, 19), dtype=np.float32), device="CPU")
y = (x @ w).relu()
print(y.softmax(1).sum(0).numpy().tolist())
y += 1
y += y.mean()
print(y.sin().max(axis=1).numpy().tolist())
def arrangement(a, b, c, n=tile.Symbol("n", meta=True, lower_bound=16, upper_bound=64)):
  return a.tile((n,)), b.tile((n,)), c.tile((n,))
def application(a, b, c): c = a * 3 + b
k = tile.make(arrangement, application, (tile.Tensor(1),) * 3)
out = Tensor.empty(100, device="CPU").realize()
k(Tensor.arange(100, device="CPU").float().realize(), Tensor.ones(100, device="CPU").realize(), out)
print(out.numpy().tolist())
get_device("CPU").compiler.save()
"""


def run(folder: Path, script: Path) -> str:
  done = in_process(f"exec(compile(open({str(script)!r}).read(), {str(script)!r}, 'exec'))", CACHE_DIR=str(folder), DEV="CPU",
                    CACHE="1", VERIFY="0", DEBUG="0")
  assert re.sub(r"\d+ errors? generated.\n", "", done.stderr) == ""   # of PoCL's compiler
  return str(done.stdout)


def bodies(folder: Path) -> dict[tuple[str, str], bytes]:
  """What lies there, by table and name."""
  out = {}
  with config(cache_dir=str(folder)):
    for *_, path in cache.entries(folder):
      table, name = Path(path).parts[-3], Path(path).name
      body = cache.load(table, name)
      assert body is not None
      out[table, name] = body
  return out


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
  """A cache with entries of all tables, the script that made them, and what that prints."""
  at = tmp_path_factory.mktemp("filled")
  script = at / "script.py"
  script.write_text(SCRIPT)
  return at / "cache", script, run(at / "cache", script)


@pytest.fixture
def copied(filled: tuple[Path, Path, str], root: Path) -> tuple[Path, Path, str]:
  shutil.copytree(filled[0], root)
  return root, *filled[1:]


@long_where(lambda how: how not in ("pickle", "swapped"))
@cpu
@pytest.mark.parametrize("how", ["bomb", "sealed bomb", "pickle", "swapped", "empty", "another form"])
def test_what_makes_no_sense_is_made_again(copied: tuple[Path, Path, str], how: str, tmp_path: Path) -> None:
  """Whatever lies under today's names, with the right checksum: the results are the same, nothing of it is run, and the entries
  are there again."""
  folder, script, want = copied
  made, before = tmp_path / "made", bodies(folder)
  assert {"plan", "kernel", "opencl-program", "opencl-program-of", "opencl-bits"} <= {table for table, _ in before}
  of: dict[str, list[bytes]] = {}
  for (table, _), body in sorted(before.items()): of.setdefault(table, []).append(body)
  with config(cache_dir=str(folder)):
    for (table, name), body in before.items():
      path = folder / table / name[:2] / name
      if how == "bomb": path.write_bytes(bombs(made)[0])
      elif how == "sealed bomb": path.write_bytes(bombs(made)[1])
      elif how == "pickle": path.write_bytes(bombs(made)[2])
      elif how == "swapped": cache.store(table, name, of[table][(of[table].index(body) + 1) % len(of[table])])
      elif how == "empty": cache.store(table, name, b"")
      else: cache.put(table, name, PLAIN, [1, {"a": None}])
  assert run(folder, script) == want and not made.exists()
  after = bodies(folder)
  assert after.keys() >= before.keys()
  for at in before:   # one kernel's machine code is not the same each time; only this one's place is
    if at[0] in ("plan", "kernel", "opencl-bits"): assert after[at] == before[at], at


@long_where(lambda tables, source: tables == ("kernel",) or len(tables) > 1 or source[0][0] == "_")
@cpu
@pytest.mark.parametrize("tables, source", [
  (("plan",), ("this is no ", "C")), (("kernel",), ("this is no ", "C")), (("plan", "kernel"), ("", "")),
  (("plan",), ("__kernel void ", f"({', '.join(map('int i{}'.format, range(40)))}) {{}}")),
])
def test_kernels_that_do_not_compile_are_made_again(copied: tuple[Path, Path, str], tables: tuple[str, ...],
                                                        source: tuple[str, str]) -> None:
  """Plans and kernels that are whole and of the right form, with other sources: they are made anew, and kept."""
  folder, script, want = copied
  before = bodies(folder)
  def broken(spec: Any) -> Any:
    if spec is None: return None
    kernel = source[0], f"{source[1]} // {cache.key(spec.source.text)}"
    return replace(spec, source=replace(spec.source, text=spec.name.join(kernel), kernel=kernel, helpers=()))
  with config(cache_dir=str(folder)):
    for table, name in before:
      if table == "plan" and "kernel" in tables and "plan" not in tables or table.startswith("opencl-program"):
        cache.remove(table, name)   # so that it is asked for the kernels, and these are compiled
      elif table not in tables: continue
      elif table == "plan":
        *rest, steps = cache.get(table, name, plan_cache.PLAN_FORM) or ()
        steps = tuple([(broken(spec), *more) for spec, *more in steps])
        assert cache.put(table, name, plan_cache.PLAN_FORM, (*rest, steps))
      else:
        found = cache.get(table, name, compiling.PROGRAM_FORM)
        assert found is not None and cache.put(table, name, compiling.PROGRAM_FORM, (broken(found[0]), found[1]))
  assert run(folder, script) == want
  assert run(folder, script) == want   # plans may have been made of such kernels
  after = bodies(folder)
  for at in before:   # kernels that nobody asked for lie there as they did
    if at[0] == "plan" or at[0] == "kernel" and tables == ("kernel",): assert after[at] == before[at], at


@cpu
def test_plans_of_other_graphs_are_not_run(copied: tuple[Path, Path, str]) -> None:
  """Slots, steps, nodes, shapes and devices that do not fit the graph, or each other."""
  folder, script, want = copied
  plans = [at for at in bodies(folder) if at[0] == "plan"]
  assert len(plans) >= 3
  def wrong(n: int, inputs: int, made: Any, outputs: Any, kept: Any, steps: Any) -> Any:
    spec, taken, writes, last, device, offsets, *nodes = first = steps[0]
    changed = [
      (inputs + 1, made, outputs, kept, steps), (inputs, made, tuple([9999 for _ in outputs]), kept, steps),
      (inputs, tuple([(device, (*shape, 7), dtype) for device, shape, dtype in made]), outputs, kept, steps),
      (inputs, made, outputs, kept, steps[1:]),
      (inputs, made, outputs, kept, (*steps, first[:1] + (tuple([t + 5000 for t in taken]),) + first[2:])),
      (inputs, made, outputs, kept, ((spec, taken, (77,), last, device, offsets, *nodes), *steps[1:])),
      (inputs, made, outputs, kept, ((spec, taken, writes, (0,), device, offsets, *nodes), *steps[1:])),
      (inputs, made, outputs, kept, ((spec, taken, writes, last, "CUDA:9", offsets, *nodes), *steps[1:])),
      (inputs, made, outputs, kept, ((spec, taken, writes, last, device, (0,) * 99, *nodes), *steps[1:])),
      (inputs, made, outputs, kept, ((spec, taken, writes, last, device, (1 << 40,) * len(taken), *nodes), *steps[1:])),
      (inputs, made, outputs, kept, ((spec, taken, writes, last, device, offsets, (1 << 40,), nodes[1]), *steps[1:])),
      (inputs, made, outputs, kept, ((replace(spec, nparams=99), taken, writes, last, device, offsets, *nodes), *steps[1:])),
      (inputs, made, outputs, kept, ((replace(spec, local=(1 << 16,)), taken, writes, last, device, (), *nodes), *steps[1:])),
      (inputs, made, outputs, kept, ((spec, taken, writes, last, device, offsets, nodes[0], (1, 2)), *steps[1:])),
      (inputs, made, outputs, kept, ((None, taken, writes, last, device, offsets, *nodes), *steps[1:])) if len(taken) != 2 else
      (inputs, made, (), kept, steps), (inputs, made, outputs, (1 << 40,), steps),
    ]
    return changed[n % len(changed)]
  for n in range(0, 16, len(plans)):
    with config(cache_dir=str(folder)):
      before = {}
      for i, (table, name) in enumerate(plans):
        found = cache.get(table, name, plan_cache.PLAN_FORM)
        assert found is not None
        before[name] = found
        if found[1] and found[4]: assert cache.put(table, name, plan_cache.PLAN_FORM, wrong(n + i, *found))
    assert run(folder, script) == want, n
    with config(cache_dir=str(folder)):
      assert {name: cache.get(plan_cache.PLAN_TABLE, name, plan_cache.PLAN_FORM) for name in before} == before, n


@long_where(lambda kind, what: kind == ".bc" or what == "half")
@cpu
@pytest.mark.parametrize("kind, what", [(".so", "junk"), (".so", "other"), (".so", "half"), (".bc", "junk"), (".bc", "half")])
def test_machine_code_that_is_none(copied: tuple[Path, Path, str], kind: str, what: str) -> None:
  """In programs that are whole and have the right checksum. PoCL would end the process."""
  import _ctypes
  folder, script, want = copied
  other = Path(_ctypes.__file__).read_bytes()
  def spoilt(path: str, data: bytes) -> bytes:
    if not path.endswith(kind): return data
    junk = data[:64] + bytes(len(data) - 64) if kind == ".so" else b"junk"
    return {"junk": junk, "other": other, "half": data[:len(data) // 2]}[what]
  spoilt_ones = 0
  with config(cache_dir=str(folder)):
    for table, name in bodies(folder):
      if table != "opencl-program": continue
      names, packed = cache.get(table, name, compiler.PROGRAM) or ({}, b"")
      *first, files = unpacked(binaries.FORM, packed, "program")
      changed = *first, tuple([(p, spoilt(p, data)) for p, data in files])
      packed = records.packed(binaries.FORM, changed, "program")
      assert cache.put(table, name, compiler.PROGRAM, (names, packed))
      spoilt_ones += len(files) > 0
  if not spoilt_ones: pytest.skip("another driver than PoCL")
  assert run(folder, script) == want
  assert run(folder, script) == want


def test_choices_that_make_no_sense(root: Path) -> None:
  """Values for other names, out of bounds, or of other kinds: they are looked for again."""
  low, free = Symbol("a", meta=True, lower_bound=16, upper_bound=64), Symbol("b", meta=True)
  table = "tile-tune"
  def found(value: Any, form: Any = PLAIN) -> Any:
    assert cache.put(table, KEY, search_results.entry_form(form), (("this device", "k", ""), value))
    return tune.remembered(KEY, [low, free])
  assert search_results.keep_choice(table, KEY, search_results.CHOICE, {"a": 32, "b": 1024, "num_warps": 4},
                             search_results.About("this device", "k"))
  assert tune.remembered(KEY, [low, free]) == {"a": 32, "b": 1024, "num_warps": 4}
  for choice in ({"a": 32}, {"a": 8, "b": 8}, {"a": 128, "b": 8}, {"a": 32, "b": 1 << 40}, {"a": 32, "b": 8, "c": 1},
                 {"a": 32, "b": 8, "num_warps": 1 << 20}, {}):
    assert found(choice, search_results.CHOICE) is None and cache.load(table, KEY) is None, choice
  for other in (7, None, {"a": "x", "b": 8}, [["a", 32]]): assert found(other) is None and cache.load(table, KEY) is None
  assert tune.remembered(KEY, [low, free]) is None


@cpu
def test_opts_that_make_no_sense(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  device, kernel = get_device("CPU"), create_schedule([Tensor.empty(64, 64, device="CPU") + 1])[-1].ast
  parts = pipeline.prepare(kernel, device.renderer.target, "k")
  looked: list[Any] = []
  def search(parts: Any, start: Any, *_: Any) -> Any:
    looked.append(start)
    return start
  monkeypatch.setattr(searching, "search_opts", search)
  def best() -> Any: return searching.best(parts, device, "k", compiling.rendered)
  with config(beam=1):
    want = best().opts
    assert best().opts == want and len(looked) == 1
    (_, name), = [at for at in bodies(root) if at[0] == "beam"]
    for wrong in ((), ((["nothing", 1],),), ((["split", "x", None],),), ((["upcast", 99, 4],),), (("abc",), (7,)), ((["pad"],),)):
      assert search_results.keep_choice("beam", name, search_results.LISTS, wrong, search_results.About("this device", "k"))
      looked.clear()
      assert best().opts == want and len(looked) == 1, wrong
      assert best().opts == want and len(looked) == 1


def test_widths_of_functions_that_make_no_sense(root: Path) -> None:
  f = selftest.Functions("some driver", lambda *_: np.zeros(selftest.COUNT * (1 + len(selftest.widths("float"))), np.float32))
  good = f("sin", "float")
  (table, name), = bodies(root)
  for wrong in ((-1,), "x", None, [2.5]):
    assert cache.put(table, name, PLAIN, wrong)
    f.known.clear()
    assert f("sin", "float") == good
