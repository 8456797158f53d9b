"""``ntgrad.profile``: what is counted, how it is sorted and printed, and ``python -m ntgrad profile``."""
from __future__ import annotations

import gc
import inspect
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, config, nn, tile
from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.codegen.choose.bound import Bound, Unit, Work
from ntgrad.engine.device import get_device
from ntgrad.engine.observers import observers
from ntgrad.engine.profiling import Profile, Row, watching
from ntgrad.engine.profiling.rows import ROWS
from ntgrad.engine.profiling.watching import KERNELS
from support.marks import long


@pytest.fixture(autouse=True)
def _plain() -> Any:
  """Each size its own kernel, so that what is counted does not depend on the tests before; and nobody is left watching."""
  with config(dynamic="never"): yield
  assert not observers


def ones(*shape: int, device: str = "NUMPY") -> Tensor: return Tensor(np.ones(shape, np.float32), device=device).realize()


def launched(p: Profile, name: str, seconds: float, least: float = 0.0, unit: Unit = Unit.MEMORY,
             axes: tuple[int, ...] = (4,)) -> None:
  spec = ProgramSpec(name, KernelSource(name), (1,), (1,), 1, work=Work(0, (), axes))
  p._watching.launched(spec, get_device("NUMPY"), seconds, Bound(least, unit))


def test_what_lost_most_comes_first() -> None:
  p = Profile()
  launched(p, "fast", 3.0, 2.5, Unit.MATRIX)
  launched(p, "slow", 1.0, 0.25)
  launched(p, "slow", 2.0, 0.75, Unit.VECTOR)
  launched(p, "from the cache", 0.5, 1.0)   # faster than memory: nothing is lost
  assert [r.name for r in p.rows] == ["slow", "fast", "from the cache"]
  slow, fast, cached = p.rows
  assert (slow.count, slow.seconds, slow.bound, slow.lost, slow.unit) == (2, 3.0, 1.0, 2.0, Unit.VECTOR)
  assert slow.fraction == pytest.approx(1 / 3) and cached.lost == 0 and cached.fraction == 2.0
  assert (p.total, p.lost) == (6.5, 2.5)
  lines = p.table().splitlines()
  assert lines[0].split() == "kernel sizes count time bound lost of lost of bound by".split()
  assert re.fullmatch(r"slow +4 +2 +3\.00 +s +1\.00 +s +2\.00 +s +80\.0% +33\.3%  vector", lines[1])
  assert re.fullmatch(r"all +4 +6\.50 +s +4\.50 +s +2\.50 +s +100\.0% +69\.2%", lines[-1]) and len(lines) == 5


def test_a_table_is_one_screen() -> None:
  p = Profile()
  for i in range(ROWS + 7): launched(p, f"kernel_with_a_very_long_name_{i}_of_many_more", 1.0 + i, axes=(123456,) * 6)
  lines = p.table().splitlines()
  assert len(lines) == 1 + ROWS + 2 and max(map(len, lines)) <= 120 and re.match(r"7 others +7 +28\.0 +s", lines[-2])
  assert "…" in lines[1] and lines[1].endswith("  memory")
  assert len(p.table(most=3).splitlines()) == 6 and re.match(r"1 other +1", p.table(most=ROWS + 6).splitlines()[-2])
  assert Profile().table() == "nothing was launched"


def test_sizes_that_change_are_one_row() -> None:
  p = Profile()
  for n in (16, 64, 48): launched(p, "k", 1.0, axes=(1024, n))
  assert [(r.axes, r.sizes, r.count) for r in p.rows] == [(((1024, 1024), (16, 64)), "1024x16..64", 3)]
  with ntgrad.profile() as q, config(dynamic="always", cache=0):
    for n in (35, 36): (ones(n).sqrt() * 3).realize()
  assert [(r.sizes, r.count) for r in q.rows] == [("35..36", 2)]


def test_so_many_rows_and_no_more() -> None:
  p = Profile()
  for i in range(KERNELS + 10): launched(p, f"k{i}", 1.0 if i < KERNELS else 10.0)
  first, *rest = p.rows
  assert len(rest) == KERNELS and (first.name, first.count, first.seconds) == ("other kernels", 10, 100.0)


# ---- launches

def test_counts_what_is_launched_within(capsys: pytest.CaptureFixture[str]) -> None:
  a = ones(40, 50)
  (a + 1).realize()
  with ntgrad.profile() as p:
    for _ in range(3): (a + 1).realize()
    (a + 1).sum().item()
  (a + 1).realize()
  assert {(r.sizes, r.count, r.device) for r in p.rows} == {("40x50", 3, "NUMPY"), ("40x50", 1, "NUMPY")}
  add, = [r for r in p.rows if r.name == "E_40_50"]
  assert add.seconds > 0 and add.unit is Unit.CACHE
  assert add.bound == pytest.approx(3 * 16000 / get_device("NUMPY").renderer.target.rates.cache)
  assert capsys.readouterr().out == ""


def test_profiles_within_profiles_and_again() -> None:
  a = ones(41)
  with ntgrad.profile() as outer:
    (a + 1).realize()
    with ntgrad.profile() as inner: (a + 1).realize()
    with inner, inner: (a + 1).realize()
  assert [r.count for r in outer.rows] == [3] and [r.count for r in inner.rows] == [2]


def test_an_error_within() -> None:
  a = ones(42)
  with pytest.raises(ZeroDivisionError), ntgrad.profile() as p:
    (a + 1).realize()
    1 / 0
  (a + 1).realize()
  assert [r.count for r in p.rows] == [1] and "E_42" in str(p)


def test_replays_of_captured_functions() -> None:
  a, b = ones(43), ones(43)
  step = ntgrad.jit(lambda x: (x + 1).sum() * 2)
  for _ in range(3): step(a)
  with ntgrad.profile() as p:
    for _ in range(4): got = step(b)
  once = {r.name: r.count for r in p.rows}
  assert set(once.values()) == {4} and got.item() == 172
  first = ntgrad.jit(lambda x: (x + 2).sum())   # captured, and replayed for the first time, within
  with ntgrad.profile() as p:
    for _ in range(5): got = first(b)
  assert {r.count for r in p.rows} == {5} and got.item() == 129
  assert first(a).item() == 129


def test_tile_kernels() -> None:
  @tile.jit
  def double(x: tile.Tensor(1).tile((8,)), out: tile.Tensor(1).tile((8,))) -> None:   # type: ignore[valid-type]
    out = x * 2   # noqa: F841
  a, out = ones(44), ones(44)
  double(a, out)
  with ntgrad.profile() as p:
    for _ in range(2): double(a, out)
  row, = p.rows
  assert row.name.startswith("double") and row.count == 2 and row.bound > 0 and out.numpy().sum() == 88
  with ntgrad.profile() as p:
    for _ in range(50): double(a, out)
  row, = p.rows
  assert row.count == 50 and row.timed <= 4 and len(p._watching.lists) == 1


def test_several_devices_and_copies_between_them() -> None:
  a = ones(45, device="CPU")
  with ntgrad.profile() as p: ((a + 1).to("NUMPY") * 2).realize()
  found = {(r.name, r.device, r.sizes): r for r in p.rows}
  assert len(found) == 3 and {r.device for r in p.rows} == {"CPU", "NUMPY"}
  copy, = [r for r in p.rows if r.name == "copy CPU to NUMPY"]
  assert (copy.count, copy.sizes) == (1, "180") and copy.seconds > 0 and copy.bound > 0
  assert all("NUMPY" in line or "CPU" in line for line in p.table().splitlines()[1:-1])
  assert max(map(len, p.table().splitlines())) <= 120
  step = ntgrad.jit(lambda x: (x + 1).to("NUMPY") * 2)
  for _ in range(3): step(a)
  with ntgrad.profile() as p: step(a)
  assert sorted(r.count for r in p.rows) == [1, 1, 1] and any(r.name.startswith("copy") for r in p.rows)


def test_threads() -> None:
  """Every launch of the process counts, whichever thread makes it."""
  tensors = [ones(46) for _ in range(4)]
  def work(a: Tensor) -> None:
    for _ in range(20): (a + 1).realize()
  with ntgrad.profile() as p:
    threads = [threading.Thread(target=work, args=(a,)) for a in tensors]
    for t in threads: t.start()
    while any(t.is_alive() for t in threads): assert len(p.rows) <= 1 and str(p)
    for t in threads: t.join()
  assert [r.count for r in p.rows] == [80]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
  for name in "ASKED", "EVENTS": monkeypatch.setattr(watching, name, 8)
  a = ones(47)
  with ntgrad.profile() as p:
    (a + 1).realize()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200): (a + 1).realize()
    gc.collect()
    assert len(gc.get_objects()) < before + 100
  assert p.rows[0].count == 201


def test_beside_debug(capsys: pytest.CaptureFixture[str]) -> None:
  a = ones(48)
  with config(debug=2), ntgrad.profile() as p: (a + 1).realize()
  assert capsys.readouterr().out.count("% of bound") == 1 and p.rows[0].count == 1


def test_rows_are_plain_data() -> None:
  r = Row("k", "CPU", ((2, 2), (3, 5)), 2, 4.0, {Unit.MEMORY: 1.0, Unit.VECTOR: 2.0}, 2)
  assert (r.bound, r.lost, r.fraction, r.unit, r.sizes) == (3.0, 1.0, 0.75, Unit.VECTOR, "2x3..5")
  assert (Row("k", "CPU").sizes, Row("k", "CPU").unit, Row("k", "CPU").fraction) == ("1", Unit.MEMORY, 0.0)


# ---- time, steps, memory

def spin(seconds: float) -> None:
  ended = time.perf_counter() + seconds
  while time.perf_counter() < ended: pass


def steps(n: int, python: float = 0.0) -> list[Tensor]:
  """A loop with steps."""
  x, out = ones(60), list[Tensor]()
  for i in range(n):
    spin(python)
    out.append(((x + i % 2) * 3).sum())
    out[-1].item()
  return out


def test_the_time_is_divided() -> None:
  with ntgrad.profile() as p: steps(8, 0.03)
  found = p.seconds
  assert sum(found.values()) == pytest.approx(p.data()["seconds"], rel=0.01) and min(found.values()) >= 0
  assert 0.2 < found["your Python"] < 0.4 and found["other"] < 0.05 * sum(found.values())


def test_phases_of_another_thread_are_not_this_one_s() -> None:
  a = ones(61)
  def work() -> None:
    for i in range(30): (a + i).numpy()
  with ntgrad.profile() as p:
    thread = threading.Thread(target=work)
    thread.start()
    spin(0.1)
    thread.join()
  assert sum(p.seconds.values()) == pytest.approx(p.data()["seconds"], rel=0.01) and p.seconds["launching"] < 0.05


def test_steps_end_where_values_are_asked_for() -> None:
  with ntgrad.profile() as p: steps(9, 0.004)
  found = p.data()["steps"]
  line = inspect.getsourcelines(steps)[1] + 6
  assert found["line"] == f"test_profiling.py:{line}" and found["count"] == 9
  assert 0.004 <= sum(found["later"].values()) < 0.1 and sum(found["first"].values()) < p.data()["seconds"]
  with ntgrad.profile() as p: ones(62)
  assert p.data()["steps"] is None and str(p)


def test_lines_and_modules() -> None:
  class Net(nn.Module):
    def __init__(self) -> None: self.inner = nn.Linear(8, 8)
    def forward(self, x: Tensor) -> Tensor: return self.inner(x).relu()
  net, x = Net(), Tensor.rand(4, 8).realize()
  with ntgrad.profile() as p:
    for _ in range(3): net(x).realize()
  line = inspect.getsourcelines(Net)[1] + 2
  found, = [row for row in p.data()["lines"] if row["place"] == f"test_profiling.py:{line}"]
  assert {"relu", "inner"} & {*found["operations"]} and found["launches"] > 0 and found["kernels"] > 0 and found["nbytes"] > 0
  assert [m["path"] for m in p.data()["modules"]] == ["inner"]


def test_why_plans_were_made() -> None:
  with config(dynamic="never", cache=0), ntgrad.profile() as p:
    for n, k in ((63, 2.5), (64, 2.5), (64, 3.5)): (ones(n) * k).realize()
    (ones(64) * 3.5).exp().realize()
  found = [(row["kind"], row["why"]) for row in p.data()["plans"]]
  assert [kind for kind, _ in found] == ["structure", "size", "constant", "structure"]
  assert found[1][1] == "dimension 0 of input 0, (64,), is 64, and was 63" and "3.5, and was 2.5" in found[2][1]
  assert all("test_profiling.py:" in row["made"] and row["kernels"] == 1 and row["seconds"] > 0 for row in p.data()["plans"])


def test_memory_at_the_peak() -> None:
  x, n = ones(1 << 18), inspect.currentframe().f_lineno   # type: ignore[union-attr]
  with ntgrad.profile() as p:
    for _ in range(2): ((x + 1).contiguous() * 2).sum().item()
  found = p.data()["memory"]
  assert found["peak"] >= 1 << 20 and found["at_peak"][0]["bytes"] == 1 << 20
  assert found["at_peak"][0]["made"].startswith(f"test_profiling.py:{n + 2} add")


def test_memory_that_replays_give_is_of_the_line_that_calls() -> None:
  x, kept = ones(1 << 12), list[Tensor]()
  step = ntgrad.jit(lambda x: x + 1)
  for _ in range(3): step(x)
  with ntgrad.profile() as p:
    for _ in range(64): kept.append(step(x))
    n = inspect.currentframe().f_lineno - 1   # type: ignore[union-attr]
  found = p.data()["memory"]
  assert found["peak"] >= 60 << 14
  assert [m["count"] for m in found["at_peak"] if m["made"] == f"test_profiling.py:{n}"][0] >= 60


def test_launches_that_are_not_timed_count() -> None:
  a = ones(65)
  step = ntgrad.jit(lambda x: (x + 1).sum() * 2)
  for _ in range(3): step(a)
  with ntgrad.profile() as p:
    for _ in range(40): step(a).item()
  row = p.rows[0]
  assert row.count == 40 and 1 <= row.timed <= 4 and row.seconds == pytest.approx(row.each * 40)


def test_launches_that_are_not_timed_are_like_the_middle_one() -> None:
  p = Profile()
  for seconds in 8.0, 1.0, 1.25: launched(p, "k", seconds, 0.5)
  row = p._watching.rows["NUMPY", "k"]
  row.count = 10
  assert (row.typical, row.seconds, row.each) == (1.25, 10.25 + 7 * 1.25, 1.9)


def test_what_a_captured_function_returns_is_of_its_own_line() -> None:
  def f(x: Tensor) -> Tensor:
    y = x.exp()
    return y.sum(0)
  g, x, line = ntgrad.jit(f), ones(66, 3), inspect.getsourcelines(f)[1]
  with ntgrad.profile() as p:
    for _ in range(4): g(x)
  found = {row["place"]: row["operations"] for row in p.data()["lines"] if row["launches"]}
  assert found == {f"test_profiling.py:{line + 1}": ["exp"], f"test_profiling.py:{line + 2}": ["sum"]}


def test_a_step_ends_at_the_line_that_asks_most_of_the_time() -> None:
  step = ntgrad.jit(lambda x: [(x + i).sum().realize() for i in range(20)])
  with ntgrad.profile() as p:
    x = [ones(67) + i for i in range(40)]
    for a in x: a.realize()
    for _ in range(30):
      step(x[0])
      n = inspect.currentframe().f_lineno - 1   # type: ignore[union-attr]
      spin(0.002)
  assert p.data()["steps"]["line"] == f"test_profiling.py:{n}" and p.data()["steps"]["count"] == 29   # one was recorded


def test_data_trace_and_comparison(tmp_path: Path) -> None:
  with ntgrad.profile() as p: steps(4)
  with ntgrad.profile() as q: steps(5, 0.02)
  assert json.loads(json.dumps(p.data())) == p.data()
  p.trace(tmp_path / "t.json")
  events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
  kinds = {(e["ph"], e["pid"]) for e in events}
  assert {("X", 1), ("X", 2), ("s", 1), ("f", 2), ("C", 1), ("i", 1), ("M", 3)} <= kinds
  flows = [e for e in events if e["ph"] in "sf"]
  assert len(flows) == 2 * len({e["id"] for e in flows}) and all(e["ts"] >= 0 for e in events if "ts" in e)
  text = p.compare(q).splitlines()
  assert text[0].split() == "a later step this other ratio".split() and any(line.startswith("kernel") for line in text)
  assert any("your Python" in line for line in text) and "<pre>" in p._repr_html_()


def test_the_signal_is_given_back() -> None:
  import signal
  before = signal.getsignal(signal.SIGALRM)
  with ntgrad.profile() as p:
    assert signal.getsignal(signal.SIGALRM) is not before
    with ntgrad.profile() as q: spin(0.03)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)   # the user takes it
  assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
  signal.signal(signal.SIGALRM, before)
  assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
  assert q.seconds["your Python"] > 0.01 and p.data()["seconds"] > 0.03
  with ntgrad.profile() as p:   # where it is taken, a thread looks
    pass
  signal.signal(signal.SIGALRM, signal.SIG_IGN)
  try:
    with ntgrad.profile() as p: spin(0.05)
  finally: signal.signal(signal.SIGALRM, before)
  assert p.seconds["your Python"] > 0.01 and not [t for t in threading.enumerate() if t.name == "ntgrad-sampler"]


# ---- the command

def command(tmp_path: Path, text: str, *args: str) -> subprocess.CompletedProcess[str]:
  (tmp_path / "helper.py").write_text("NAME = 'beside the script'\n")
  script = tmp_path / "script.py"
  script.write_text(text)
  return subprocess.run([sys.executable, "-m", "ntgrad", "profile", str(script), *args], capture_output=True, text=True)


def test_a_script(tmp_path: Path) -> None:
  done = command(tmp_path, """
import sys
from helper import NAME
from ntgrad import Tensor
def use(): return Tensor.ones(30, device="NUMPY").contiguous().realize()
if __name__ == "__main__":
  print(NAME, sys.argv[1:])
  (use() + 1).realize()
""", "a", "--b")
  lines = done.stdout.splitlines()
  assert done.returncode == 0 and not done.stderr, done.stderr
  assert lines[0] == "beside the script ['a', '--b']" and "E_30" in done.stdout
  assert any(line.startswith("kernel ") for line in lines) and any(line.startswith("all ") for line in lines)


@long
def test_a_script_that_ends_by_itself(tmp_path: Path) -> None:
  done = command(tmp_path, "from ntgrad import Tensor\n(Tensor([1.0, 2.0], device='NUMPY') * 2).realize()\nraise SystemExit(7)\n")
  assert done.returncode == 7 and "E_2 " in done.stdout and not done.stderr


@long
def test_a_script_that_fails(tmp_path: Path) -> None:
  done = command(tmp_path, "from ntgrad import Tensor\n(Tensor([1.0], device='NUMPY') * 2).realize()\ndef f(): {}['key']\nf()\n")
  assert done.returncode == 1 and "\nall " in done.stdout
  shown = done.stderr.splitlines()
  assert shown[0].startswith("Traceback") and shown[-1] == "KeyError: 'key'" and "script.py\", line 4" in shown[1]
  assert "runpy" not in done.stderr and "profiling.py" not in done.stderr
