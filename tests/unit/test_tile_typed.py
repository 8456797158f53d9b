"""Functions of the tile language that are in no file: typed at a prompt, given to ``python -c`` or to standard input, in archives
and notebook cells; and what is said of those whose text nobody has."""
from __future__ import annotations

import linecache
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as tile
from ntgrad.errors import ApplicationError
from support.marks import long

SCRIPT = """\
import numpy as np
import ntgrad.tile as tile, ntgrad.tile.language as tl

def twice(x): return x * 2
def application(x, y):
  total = tl.zeros(y.shape)
  for _ in range(2): total += twice(x)
  y = total + (lambda v: v - 1)(x)

kernel = tile.make(lambda x, y: (x.tile((4,)), y.tile((4,))), application, (tile.Tensor(1), tile.Tensor(1)))
y = np.zeros(8, np.float32)
kernel(np.arange(8, dtype=np.float32), y)
print("gives", y.tolist())
halves = tile.apply(lambda x: x / 2, np.ones(2, np.float32))
print("halves", halves.tolist())
"""
GIVES, HALVES = "gives [-1.0, 4.0, 9.0, 14.0, 19.0, 24.0, 29.0, 34.0]", "halves [0.5, 0.5]"
UNKNOWN = "its source is not known"


def run(*args: str, **how: Any) -> subprocess.CompletedProcess[str]:
  return subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=120, **how)


@pytest.mark.parametrize("flags", [("-c",), ("-Bc",), ("-W", "ignore", "-c"), ("-i", "-c")])
def test_command_line(flags: tuple[str, ...]) -> None:
  done = run(*flags, SCRIPT, input="")
  assert GIVES in done.stdout and HALVES in done.stdout, done.stderr


@long
def test_command_line_behind_its_letter() -> None:
  done = run("-c" + SCRIPT)
  assert GIVES in done.stdout, done.stderr


@pytest.mark.parametrize("args", [(), ("-",)])
def test_a_file_as_standard_input(args: tuple[str, ...], tmp_path: Path) -> None:
  (tmp_path / "script.py").write_text(SCRIPT)
  with open(tmp_path / "script.py") as f: done = run(*args, stdin=f)
  assert GIVES in done.stdout and HALVES in done.stdout, done.stderr


def test_a_pipe_is_gone_and_said_to_be() -> None:
  done = run("-", input=SCRIPT)
  assert done.returncode and "ApplicationError" in done.stderr and UNKNOWN in done.stderr and "<stdin>" in done.stderr
  assert "write the function in a file" in done.stderr


@long
def test_an_archive(tmp_path: Path) -> None:
  with zipfile.ZipFile(tmp_path / "script.zip", "w") as z: z.writestr("__main__.py", SCRIPT)
  done = run(str(tmp_path / "script.zip"))
  assert GIVES in done.stdout and HALVES in done.stdout, done.stderr


PROMPT = [*SCRIPT.replace("def app", "\ndef app").splitlines(), "def wrong(x, y):", "  y = x + tl.zeros((3,))", "",
          "tile.make(lambda x, y: (x.tile((4,)), y.tile((4,))), wrong, (tile.Tensor(1), tile.Tensor(1)))(y, y)"]


def at_a_prompt(lines: list[str], *args: str) -> str:
  """What a terminal shows when lines are typed at Python's prompt, each when the one before has been read."""
  import pty
  import select
  pid, fd = pty.fork()
  if pid == 0:
    os.environ.update(TERM="dumb", HOME="/nonexistent", PYTHON_HISTORY=os.devnull, PYTHON_BASIC_REPL="1")
    os.execv(sys.executable, [sys.executable, "-q", *args])
  shown, end = b"", time.monotonic() + 120
  def read_until(*marks: bytes) -> None:
    nonlocal shown
    here = len(shown)
    while time.monotonic() < end and not shown[here:].rstrip(b" ").endswith(marks):
      if not select.select([fd], [], [], 0.1)[0]: continue
      try: got = os.read(fd, 4096)
      except OSError: return   # it has ended
      if not got: return
      shown += got
  try:
    read_until(b">>>")
    for line in lines:
      os.write(fd, line.encode() + b"\n")
      read_until(b">>>", b"...")
    os.write(fd, b"raise SystemExit\n")
    read_until(b"nothing comes")
  finally:
    os.close(fd)
    os.waitpid(pid, 0)
  return shown.decode(errors="replace")


@pytest.mark.skipif(sys.platform == "win32", reason="no terminals of this kind")
def test_a_prompt() -> None:
  pytest.importorskip("readline", reason="a prompt without a history")
  shown = at_a_prompt(PROMPT, "-i")
  assert GIVES in shown and HALVES in shown, shown
  assert "in wrong\r\n    y = x + tl.zeros((3,))\r\n        ^^^" in shown, shown   # errors show the line that was typed


@long
@pytest.mark.skipif(sys.platform == "win32", reason="no terminals of this kind")
def test_the_last_of_two_at_a_prompt() -> None:
  """A function that is typed again is the one that was typed last; the first one is still itself."""
  pytest.importorskip("readline", reason="a prompt without a history")
  make = "tile.make(lambda y: y.tile((4,)), f, (tile.Tensor(1),))"
  lines = ["import numpy as np, ntgrad.tile as tile", "y = np.zeros(4, np.float32)", "def f(y): y = y + 1", "", f"one = {make}",
           "def f(y): y = y + 10", "", f"ten = {make}", "one(y); ten(y); print(y)"]
  assert "[11. 11. 11. 11.]" in (shown := at_a_prompt(lines, "-i")), shown


def test_exec_is_refused() -> None:
  space: dict[str, Any] = {}
  exec("def application(x): x = x + 1\nhalf = lambda x: x / 2", space)
  made = tile.make(lambda x: x.tile((4,)), space["application"], (tile.Tensor(1),))
  with pytest.raises(ApplicationError, match=rf"application: {UNKNOWN} \(<string>\)"): made(np.zeros(4, np.float32))
  with pytest.raises(ApplicationError, match=f"a lambda: {UNKNOWN}"): tile.apply(space["half"], np.zeros(4, np.float32))


def test_exec_under_the_name_of_a_file(tmp_path: Path) -> None:
  """A file's name says where the text is only if it is there: of a module that runs other text under another name, too."""
  for name in (str(tmp_path / "generated.py"), __file__):
    space = dict(globals())
    exec(compile("def application(x): x = x + 1", name, "exec"), space)
    made = tile.make(lambda x: x.tile((4,)), space["application"], (tile.Tensor(1),))
    for _ in range(2):
      with pytest.raises(ApplicationError, match=UNKNOWN if name != __file__ else "it does not stand in line 1 of"):
        made(np.zeros(4, np.float32))


def test_a_notebook_cell(monkeypatch: pytest.MonkeyPatch) -> None:
  """A notebook puts the text of a cell into linecache, under a name of its own."""
  name, x = "<cell 1>", np.zeros(4, np.float32)
  monkeypatch.setitem(linecache.cache, name, (len(SCRIPT), None, SCRIPT.splitlines(True), name))
  space: dict[str, Any] = {}
  exec(compile(SCRIPT, name, "exec"), space)
  space["kernel"](x + 1, x)
  assert (x == 4).all()   # 1 * 2 * 2 + 1 - 1, its last statement included
