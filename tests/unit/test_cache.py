"""The disk cache: whole entries or none, whoever writes."""
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ntgrad.backends import cache
from ntgrad.codegen.ir.config import config
from support.devices import missing
from support.marks import long

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize(
  "damage",
  [lambda b: b[:-1], lambda b: b[:10], lambda b: b"", lambda b: b[:-1] + b"x", lambda b: b + b"x", lambda b: b"x" + b[1:]],
)
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


# ---- its limit

def size(path: Path) -> int: return sum(blocks for _, blocks, _ in cache.entries(path)) * cache.BLOCK


def put(n: int, nbytes: int = 3000) -> str:
  """An entry that was last used at second ``n``."""
  k = cache.key("entry", n)
  assert cache.store("t", k, bytes([n % 256]) * nbytes)
  path = config.cache_dir + f"/t/{k[:2]}/{k}"
  if os.path.exists(path): os.utime(path, (n, n))
  return k


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
  with config(cache_bytes=20 * cache.BLOCK):
    keys = [put(n) for n in range(18)]
    assert cache.load("t", keys[0]) is not None and size(tmp_path) == 18 * cache.BLOCK   # read: now it is the newest
    keys += [put(n) for n in range(18, 21)]
    assert cache.BLOCK * 20 * cache.ROOM == size(tmp_path)
    left = {k for k in keys if cache.load("t", k) is not None}
    assert left == {keys[0], *keys[7:]}   # all but the six oldest


def test_it_stays_below_the_limit(tmp_path: Path) -> None:
  """Whatever the sizes, also when entries are written again and again; and the files are looked at now and then only."""
  looked = []
  real = cache.trim
  with pytest.MonkeyPatch.context() as m, config(cache_bytes=100 * cache.BLOCK):
    m.setattr(cache, "trim", lambda: looked.append(size(tmp_path)) or real())
    for n in range(300):
      put(n % 97, 1 + n * 37 % 9000)
      assert size(tmp_path) <= config.cache_bytes
  assert looked and len(looked) < 40
  with config(cache_bytes=10): assert not cache.store("t", cache.key("large"), b"x" * 11)
  with config(cache_bytes=0): assert put(1, 1 << 20) and put(2, 1 << 20)   # no limit


def test_a_cache_that_nobody_counted(tmp_path: Path) -> None:
  """As an older version leaves it: too much of it goes at the first write. Files that are no entries stay."""
  with config(cache_bytes=0):
    for n in range(30): put(n)
  mine = [tmp_path/"notes.txt", tmp_path/"t"/"ab"/"notes.txt", tmp_path/"photos"/"1"/("a" * 64), tmp_path/"t"/("a" * 64)]
  for p in mine:
    p.parent.mkdir(parents=True, exist_ok=True)
    p.write_bytes(b"x" * 100_000)
  with config(cache_bytes=20 * cache.BLOCK): put(30)
  assert size(tmp_path) == 15 * cache.BLOCK and all(p.exists() for p in mine)


@long
def test_several_processes_share_the_limit(tmp_path: Path) -> None:
  """Each of them counts what all have written, and none minds that another removes what it looks at."""
  code = """
from ntgrad.backends import cache
import sys
for i in range(200): assert cache.store("t", cache.key(sys.argv[1], i), sys.argv[1].encode() * 5000)
"""
  env = {"CACHE_DIR": str(tmp_path), "CACHE_BYTES": str(50 * cache.BLOCK), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
  writers = [subprocess.Popen([sys.executable, "-c", code, c], env=env, stderr=subprocess.PIPE) for c in "abc"]
  for w in writers: assert w.communicate(timeout=60)[1] == b"" and w.returncode == 0
  assert 0 < size(tmp_path) <= (50 + 2 * len(writers)) * cache.BLOCK   # what was on its way while another looked


def test_killed_writers(tmp_path: Path) -> None:
  """What they leave is never taken for an entry, and is removed by a later process; what is being written now is not."""
  put(1)
  old, new = tmp_path/".writing"/"old", tmp_path/".writing"/"new"
  for p in (old, new): p.write_bytes(b"half")
  os.utime(old, (1, 1))
  (tmp_path/".size").write_bytes(b"")
  cache._seen.clear()
  put(2)
  assert not old.exists() and new.exists() and cache.load("t", cache.key("entry", 1)) is not None


def test_a_disk_that_refuses_is_said_once(tmp_path: Path) -> None:
  code = """
from ntgrad.backends import cache
for i in range(3): assert not cache.store("t", cache.key(i), b"x") and cache.load("t", cache.key(i)) is None
"""
  blocked = tmp_path/"file"
  blocked.write_text("not a folder")
  env = {"CACHE_DIR": str(blocked), "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PATH": "/usr/bin:/bin"}
  done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
  assert done.stderr.count("\n") == 1 and str(blocked) in done.stderr and "CACHE_DIR names a folder" in done.stderr


# ---- what else keeps files

LEARN = """
import numpy as np
from ntgrad import Tensor
print((Tensor(np.arange(5, dtype=np.float32)) * 3).tolist())
"""


@long
@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
@pytest.mark.parametrize("home", ["/dev/null/home", ""])
def test_nothing_is_written_at_home(tmp_path: Path, home: str) -> None:
  """With a folder of its own for the cache, a home that cannot be written is as good as another."""
  at_home, cached = tmp_path/"home", tmp_path/"cache"
  at_home.mkdir()
  env = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
  env |= {"HOME": home or str(at_home), "CACHE_DIR": str(cached), "DEV": "CPU", "PYTHONPATH": str(ROOT)}
  for _ in range(2):
    done = subprocess.run([sys.executable, "-c", LEARN], env=env, capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout, done.stderr) == ("[0.0, 3.0, 6.0, 9.0, 12.0]\n", "")
  assert not list(at_home.iterdir()) and list(cache.entries(cached))


@long
@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
def test_programs_whose_files_are_gone_are_not_kept(capfd: pytest.CaptureFixture[str]) -> None:
  """PoCL's folder, or the cache's, may be removed by whoever cleans up; saving says nothing then, also at exit."""
  code = """
import shutil, threading, time
import numpy as np
from ntgrad import Tensor
from ntgrad.backends import cache
from ntgrad.backends.opencl import binaries, compiler
from ntgrad.engine.device import get_device
compiler.QUIET = 0.05
c = get_device("CPU").compiler
inside = threading.Event()
real = binaries.pack
def pack(*args):
  inside.set()
  time.sleep({wait})
  {before}
  return real(*args)
binaries.pack = pack
(Tensor(np.arange({n}, dtype=np.float32), device="CPU") * 3).realize()
inside.wait(20)
{after}
"""
  remove = "shutil.rmtree(binaries.folder())"
  cases = [("0", remove, "c.save()"), ("0.5", "pass", "pass"), ("0", remove, "pass"),
           ("0.2", "pass", "shutil.rmtree(cache.folder(), ignore_errors=True)")]
  for n, (wait, before, after) in enumerate(cases):
    env = {**os.environ, "CACHE_DIR": config.cache_dir, "PYTHONPATH": str(ROOT)}
    program = code.format(wait=wait, before=before, after=after, n=n + 3)
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


@long
@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
def test_temporary_files_of_killed_processes(tmp_path: Path) -> None:
  """They are removed by the next process; those of living ones stay, and at its end a process removes its own."""
  code = "from ntgrad.backends import process\nprocess.YOUNG = -1\nfrom ntgrad import Tensor\n"
  code += "(Tensor([1.0], device='CPU') + 1).realize()\n"
  env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "CACHE_DIR": str(tmp_path/"cache")}
  living = subprocess.Popen(
    [sys.executable, "-c", code + "print(1, flush=True)\ninput()"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
  )
  assert living.stdout is not None and living.stdout.readline() == b"1\n"
  def there() -> set[Path]: return set(tmp_path.glob("ntgrad-*"))
  mine = there()
  subprocess.run([sys.executable, "-c", code + "import os\nos.kill(os.getpid(), 9)"], env=env, timeout=100, check=False)
  assert len(there()) == 2 and mine < there()
  subprocess.run([sys.executable, "-c", code], env=env, timeout=100, check=True)
  assert there() == mine
  living.communicate(b"\n", timeout=60)
  assert not there()


@long
@pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))
def test_kernels_that_run_at_exit_have_their_files(tmp_path: Path) -> None:
  """A process that ends with kernels waiting: they run before PoCL's folder goes, which PoCL would make again, or abort."""
  code = """
    import atexit, time
    import numpy as np
    from ntgrad import Tensor
    atexit.register(time.sleep, 1)   # it runs last
    x, y = (Tensor(np.ones(shape, np.float32), device="CPU").realize() for shape in ((1500, 1500), (1,)))
    waiting = [(x @ x + i).realize() for i in range(8)] + [(y + 1).realize()]
  """
  env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "CACHE_DIR": str(tmp_path/"cache")}
  for _ in range(2):   # the second one finds its kernels compiled
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, timeout=100, check=True)
    assert not list(tmp_path.glob("ntgrad-*"))
