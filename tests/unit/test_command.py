"""``python -m ntgrad``: what each command says and how it ends; and the line that says how far long compiling is."""
from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

import ntgrad.tile as tile
from ntgrad import Tensor, config, nn
from ntgrad.backends import cache, progress, workers
from ntgrad.codegen.index.records import COUNT
from ntgrad.schedule import create_schedule
from ntgrad.utils.command import code
from ntgrad.utils.command.main import main
from ntgrad.utils.command.parser import PROGRAM
from support.marks import long

COMMANDS = ["devices", "env", "profile", "check", "reduce", "launch", "eject", "cache", "cache list", "cache size", "cache clear",
            "cache verify", "cache export", "cache import", "passes", "size", "stubs"]


class Said:
  """What a command printed, and its exit code."""

  def __init__(self, capfd: pytest.CaptureFixture[str], *args: str):
    capfd.readouterr()
    try: self.code: Any = main(args)
    except SystemExit as e: self.code = e.code
    self.out, self.err = capfd.readouterr()

  @property
  def json(self) -> Any: return json.loads(self.out)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
  """A disk cache with four entries."""
  with config(cache=1, cache_dir=str(tmp_path / "cache")):
    for table, n in (("plan", 1), ("plan", 2), ("kernel", 3), ("beam", 4)): assert cache.put(table, cache.key(n), COUNT, n)
    yield cache.folder()


def file_of(table: str, n: int) -> Path:
  name = cache.key(n)
  return cache.folder() / table / name[:2] / name


# ---- usage

@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_an_example(command: str, capfd: pytest.CaptureFixture[str]) -> None:
  said = Said(capfd, *command.split(), "--help")
  assert said.code == 0 and not said.err
  examples = re.findall(rf"^  ({PROGRAM} .*)$", said.out.split("example")[1], re.MULTILINE)
  assert examples and all(e.startswith(f"{PROGRAM} {command}".strip()) for e in examples)


def test_all_commands_are_here(capfd: pytest.CaptureFixture[str]) -> None:
  listed = re.findall(r"^    (\w+) ", Said(capfd).out, re.MULTILINE)
  assert listed == [c for c in COMMANDS if " " not in c] and Said(capfd).code == 0
  assert re.findall(r"^    (\w+) ", Said(capfd, "cache").out, re.MULTILINE) == [c[6:] for c in COMMANDS if c.startswith("cache ")]


def test_version(capfd: pytest.CaptureFixture[str]) -> None:
  assert re.fullmatch(r"ntgrad \d+\.\d+\.\d+\n", Said(capfd, "--version").out)


@pytest.mark.parametrize("args, sentence", [
  ("devcies", "'devcies' is not a command (did you mean 'devices'?): there are devices, env, "),
  ("cache lst", "'lst' is not a command (did you mean 'list'?): there are list, size, clear, verify, export, import"),
  ("xyz", "'xyz' is not a command: there are "),
  ("devices --jsn", "unrecognized arguments: --jsn"),
  ("profile", "the following arguments are required: script;"),
  ("profile no/such.py", "there is no file no/such.py"),
  ("eject no/such.py", "there is no file no/such.py"),
  ("cache clear --older yesterday", "'yesterday' is no number of days"),
  ("cache clear --older -1", "'-1' is no number of days"),
])
def test_wrong_usage(args: str, sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
  said = Said(capfd, *args.split())
  assert said.code == 2 and not said.out and sentence in said.err and said.err.count("\n") == 1 and "--help" in said.err


def test_an_error_is_a_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
  (tmp_path / "s.py").write_text("print('run')")
  said = Said(capfd, "profile", "--trace", str(tmp_path / "none" / "t"), str(tmp_path / "s.py"))
  assert (said.code, said.out, said.err) == (1, "", f"{PROGRAM}: {tmp_path}/none/t: No such file or directory\n")


@long
def test_as_a_process() -> None:
  """What a reader does not wait for is no error that is shown."""
  run = f"{sys.executable} -m ntgrad passes | head -1; {sys.executable} -m ntgrad env --json >/dev/null; echo $?"
  done = subprocess.run(["bash", "-c", run], capture_output=True, text=True, timeout=60)
  assert done.stdout.splitlines()[0].startswith("1  scales") and done.stdout.splitlines()[1] == "0" and not done.stderr


# ---- what there is

def test_devices(capfd: pytest.CaptureFixture[str]) -> None:
  found = Said(capfd, "devices", "--json").json
  assert found["devices"]["NUMPY"]["kind"] == "numpy" and found["default"] in found["devices"]
  for d in found["devices"].values():
    assert {"hardware", "kind", "compute_units", "memory", "driver"} == d.keys() and d["memory"] > 0
  there, missing = found["devices"].keys(), found["missing"].keys()
  assert not there & missing and there | missing >= {"CPU", "CUDA", "NUMPY"}
  assert all(len(why) > 20 for why in found["missing"].values())
  text = Said(capfd, "devices").out
  assert f"default  {found['default']}" in text and "numpy " in text


def test_a_device_that_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
  with config(dev="CUDA:77"): said = Said(capfd, "devices")
  assert said.code == 0 and "default  none: device 'CUDA:77' is not there" in said.out


def test_env(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setenv("MY_SECRET", "a word of mine")
  monkeypatch.setenv("POCL_DEVICES", "cpu")
  with config(noopt=1): said = Said(capfd, "env", "--json")
  assert said.json["changed_settings"]["NOOPT"] == 1 and "MEMORY" not in said.json["changed_settings"]
  assert said.json["environment"]["POCL_DEVICES"] == "cpu" and "a word of mine" not in said.out
  assert said.json["disk_cache"]["folder"] == str(cache.folder()) and said.json["packages"]["numpy"][0].isdigit()
  assert "a word of mine" not in Said(capfd, "env").out


def test_passes_and_size(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
  names = [p["name"] for p in Said(capfd, "passes", "--json").json]
  assert [line.split()[1] for line in Said(capfd, "passes").out.splitlines()] == names and "expand" in names
  monkeypatch.setattr(code, "counts", lambda: {"codegen": (9000, 600, "a.py (5 lines)"), "ntgrad": (8000, 700, "b.py (6 lines)")})
  assert Said(capfd, "size", "--json").json["ntgrad"] == {"tokens": 8000, "lines": 700, "longest_file": "b.py (6 lines)"}
  assert [line.split()[:3] for line in Said(capfd, "size").out.splitlines()[1:]] == [
    ["codegen", "9,000", "600"], ["ntgrad", "8,000", "700"], ["all", "17,000", "1,300"]]


# ---- the disk cache

def test_what_lies_in_the_cache(kept: Path, capfd: pytest.CaptureFixture[str]) -> None:
  found = Said(capfd, "cache", "list", "--json").json
  kinds = {k: (v["entries"], v["bytes"]) for k, v in found["kinds"].items()}
  assert kinds == {"beam": (1, 4096), "kernel": (1, 4096), "plan": (2, 8192)}
  assert (found["entries"], found["bytes"], found["folder"]) == (4, 16384, str(kept))
  lines = Said(capfd, "cache", "list").out.splitlines()
  assert re.fullmatch(r"plan +2 +8\.19 kB  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", lines[3])
  assert len(lines) == 5 and lines[4].startswith("all  ")
  assert Said(capfd, "cache", "size", "--json").json == {k: found[k] for k in ("folder", "entries", "bytes", "limit")}


def test_clear(kept: Path, capfd: pytest.CaptureFixture[str]) -> None:
  old = time.time() - 40 * 86400
  os.utime(file_of("plan", 1), (old, old))
  assert Said(capfd, "cache", "clear", "--older", "50", "--json").json == {"removed": 0, "bytes": 0}
  assert ": entries 1, 4.10 kB\n" in Said(capfd, "cache", "clear", "--older", "30").out and not file_of("plan", 1).exists()
  assert cache.get("plan", cache.key(2), COUNT) == 2
  assert Said(capfd, "cache", "clear", "--json").json == {"removed": 3, "bytes": 12288}
  assert not [*cache.entries(kept)] and (kept / ".size").stat().st_size == 0   # what is written next is counted from there
  assert cache.put("plan", cache.key(2), COUNT, 2) and Said(capfd, "cache", "size", "--json").json["entries"] == 1


def test_nothing_lies_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
  with config(cache_dir=str(tmp_path / "none")):
    for name in "list", "size", "clear", "verify": assert Said(capfd, "cache", name).code == 0
  assert not (tmp_path / "none").exists()


def test_clear_beside_a_process_that_writes(kept: Path, capfd: pytest.CaptureFixture[str]) -> None:
  going = True
  wrong = list[Any]()
  def write() -> None:
    n = 0
    with config(cache=1, cache_dir=str(kept)):
      while going:
        n += 1
        stored, found = cache.put("plan", cache.key(n), COUNT, n), cache.get("plan", cache.key(n), COUNT)
        if not stored or found not in (n, None): wrong.append((stored, n, found))
  writer = threading.Thread(target=write)
  writer.start()
  try:
    for _ in range(10): assert Said(capfd, "cache", "clear").code == 0 and Said(capfd, "cache", "verify").code == 0
  finally:
    going = False
    writer.join()
  assert not wrong


def test_verify(kept: Path, capfd: pytest.CaptureFixture[str]) -> None:
  assert Said(capfd, "cache", "verify").code == 0
  cut, changed, open_ = file_of("plan", 1), file_of("kernel", 3), file_of("beam", 4)
  cut.write_bytes(cut.read_bytes()[:-5])
  changed.write_bytes(changed.read_bytes()[:-1] + b"?")
  open_.chmod(0o666)
  used = file_of("plan", 2).stat().st_mtime_ns
  said = Said(capfd, "cache", "verify")
  assert said.code == 1 and said.out.splitlines()[-1] == "damaged: 3 of 4 entries" and f"{cut}: a damaged record" in said.out
  assert f"{changed}: a damaged record" in said.out and f"{open_}: no file that only this user may write" in said.out
  assert file_of("plan", 2).stat().st_mtime_ns == used and cut.exists()   # to look is no use, and changes nothing
  said = Said(capfd, "cache", "verify", "--remove", "--json")
  assert said.code == 1 and said.json["entries"] == 4 and {*said.json["damaged"]} == {*map(str, (cut, changed, open_))}
  assert not cut.exists() and Said(capfd, "cache", "verify").code == 0 and cache.get("plan", cache.key(2), COUNT) == 2


# ---- scripts

SCRIPT = """
import sys
from ntgrad import Tensor
print(sys.argv[1:])
(Tensor([1.0, 2.0], device="NUMPY") * 3).realize()
if "--fail" in sys.argv: {}["key"]
sys.exit(int(sys.argv[-1]))
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
  (tmp_path / "script.py").write_text(SCRIPT)
  return str(tmp_path / "script.py")


@pytest.mark.parametrize("command", ["profile", "eject"])
def test_what_is_the_scripts_own(command: str, script: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
  options = ["-o", str(tmp_path / "mine")] if command == "eject" else []
  own = ["--help", "--", "--json", "-o", "--trace", "x", "7"]
  said = Said(capfd, command, *options, script, *own)
  assert said.code == 7 and said.out.splitlines()[0] == str(own)
  said = Said(capfd, command, *options, "--json", script, "3")
  assert said.code == 3 and "['3']" in said.err and said.json
  said = Said(capfd, command, *options, script, "--fail")
  assert said.code == 1 and said.err.startswith("Traceback") and "KeyError: 'key'" in said.err and "runpy" not in said.err


def test_a_profile_as_data(script: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
  said = Said(capfd, "profile", "--json", "--trace", str(tmp_path / "t.json"), script, "0")
  row, = said.json["kernels"]
  assert said.code == 0 and (row["name"][:3], row["device"], row["count"]) == ("E_2", "NUMPY", 1)
  event, = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["name"] == row["name"]]
  assert event["ph"] == "X" and event["ts"] >= 0 and event["dur"] == pytest.approx(row["seconds"] * 1e6, rel=0.01)


# ---- what notebooks show

def test_tables() -> None:
  class Odd(nn.Module):
    def __init__(self) -> None:
      super().__init__()
      self.inner, self.many = nn.Linear(3, 4), [nn.ReLU() for _ in range(100)]
    def extra_repr(self) -> str: return "<b>&"
  shown = Odd()._repr_html_()
  assert "<b>" not in shown and "&lt;b&gt;&amp;" in shown.split("<table>")[0]
  shown = nn.Sequential(Odd())._repr_html_()
  assert "inner: Linear" in shown and "<td>16</td>" in shown and "<b>" not in shown and "0: Odd(&lt;b&gt;&amp;)" in shown
  assert shown.count("<tr>") == shown.count("</tr>") == 41 and "…" in shown
  def arrangement(x: Any, y: Any) -> Any: return x.tile((4,)), y.tile((4,))
  def application(x: Any, y: Any) -> None: y = x   # noqa: F841
  kernel = tile.make(arrangement, application, (tile.Tensor(1), tile.Tensor(1)), kernel_name="copied")
  assert ".tile((4,))</td>" in kernel._repr_html_() and "tile kernel copied(x, y)" in kernel._repr_html_()
  schedule = create_schedule([Tensor.empty(4) < 2])
  assert schedule._repr_html_().startswith("<div>a schedule of 1 steps") and "&lt; 2" in schedule._repr_html_()
  assert "<td>2</td>" in Tensor([1.0, 2.0], device="NUMPY").realize()._repr_html_()


# ---- progress

class Call(workers.Job):
  """Something to build."""
  count = 1


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
  """The line is shown after a tenth of a second, and begins anew."""
  monkeypatch.setattr(progress, "AFTER", 0.1)
  monkeypatch.setattr(progress.line, "_ended", -progress.QUIET)


def build(n: int = 8) -> None:
  queue = workers.Queue(None)
  jobs = [Call() for _ in range(n)]
  for j in jobs: queue.add(j)
  for j in jobs:
    with queue.claim(j): time.sleep(0.03)


def shown(text: str, columns: int = 100) -> str:
  """What a row of a terminal shows at the end of a text: characters, keeping the cursor, erasing from it on."""
  row, at, kept = [" "] * columns, 0, 0
  for part in re.findall(r"\x1b7|\x1b8|\x1b\[K|\x1b\[\?7[lh]|.", text):
    if part == "\x1b7": kept = at
    elif part == "\x1b8": at = kept
    elif part == "\x1b[K": row[at:] = [" "] * (columns - at)
    elif part[0] != "\x1b":
      row[at] = part
      at += 1
  return "".join(row).rstrip()


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, work: Any = build) -> str:
  ours, theirs = os.openpty()
  with open(theirs, "w") as stderr, open(ours, "rb", buffering=0) as screen:
    monkeypatch.setattr(sys, "stderr", stderr)
    print("loss: ", end="", file=stderr, flush=True)
    work()
    print("1.5", end="", file=stderr, flush=True)
    os.set_blocking(ours, False)
    return (screen.read() or b"").decode()


def test_a_line_on_a_terminal(soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
  with config(debug=0): text = on_a_terminal(monkeypatch)
  lines = re.findall(r"ntgrad: compiling (\d) of 8 kernels, 0 s", text)
  assert 3 <= len(lines) < 8 and lines == sorted(lines) and shown(text) == "loss: 1.5"
  assert shown(text[:text.rindex("kernels, 0 s") + 12]).startswith("loss: ntgrad: compiling ")   # behind what the user printed


def test_it_goes_on_while_a_worker_is_waited_for(soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
  def wait() -> None:
    queue, job = workers.Queue(None), Call()
    queue.add(job)
    def other() -> None:
      with queue.claim(job):
        begun.set()
        time.sleep(0.5)
    begun, thread = threading.Event(), threading.Thread(target=other)
    thread.start()
    begun.wait()
    with queue.claim(job) as mine: assert not mine
    thread.join()
  with config(debug=0): text = on_a_terminal(monkeypatch, wait)
  assert text.count("compiling 0 of 1 kernels") >= 2 and shown(text) == "loss: 1.5"


def test_it_goes_where_building_fails(soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
  def fail() -> None:
    with pytest.raises(KeyboardInterrupt), progress.line(lambda: "first"):
      time.sleep(0.15)
      progress.line.draw()
      with progress.line(lambda: "second"): raise KeyboardInterrupt
  with config(debug=0): text = on_a_terminal(monkeypatch, fail)
  assert "ntgrad: first, 0 s" in text and "second" not in text and shown(text) == "loss: 1.5"


@pytest.mark.parametrize("why", ["DEBUG=1", "PROGRESS=0", "TERM=dumb", "another thread", "quick"])
def test_no_line(why: str, soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
  def in_a_thread() -> None:
    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
  if why == "TERM=dumb": monkeypatch.setenv("TERM", "dumb")
  if why == "quick": monkeypatch.setattr(progress, "AFTER", 60.0)
  with config(debug=int(why == "DEBUG=1"), progress=int(why != "PROGRESS=0")):
    assert on_a_terminal(monkeypatch, in_a_thread if why == "another thread" else build) == "loss: 1.5"


def test_no_line_without_a_terminal(soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
  stream = io.StringIO()
  monkeypatch.setattr(sys, "stderr", stream)
  with config(debug=0): build()
  stream.close()
  with config(debug=0): build(4)
  monkeypatch.setattr(sys, "stderr", None)
  with config(debug=0): build(4)


def test_in_a_notebook(soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
  """What it overwrites it blanks."""
  Stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
  stream = Stream()
  monkeypatch.setattr(sys, "stderr", stream)
  with config(debug=0): build()
  first, line, *_, before, blank, end = stream.getvalue().split("\r")
  assert first == end == "" and "ntgrad: compiling" in line and blank.isspace() and len(blank) == len(before)


def test_plans_have_it(soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
  said: list[str] = []
  monkeypatch.setattr(progress, "AFTER", 0.0)
  monkeypatch.setattr(progress, "wanted", lambda: True)
  monkeypatch.setattr(progress.Line, "_write", lambda self, text: said.append(text))
  with config(debug=0, cache=0): (Tensor.ones(977).contiguous().realize() * 2 + 0.375).realize()
  assert [s for s in said if re.match(r"ntgrad: rendering 0 of 1 kernels, \d s", s)], said
