"""What DEBUG shows: each level with those below it, a new kernel once, colour only where it is wanted."""
from __future__ import annotations

import inspect
import re
import time
from types import SimpleNamespace

import pytest

import ntgrad.tile as tile
from ntgrad import Tensor, nn, profile
from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.arrangements import steps
from ntgrad.codegen.explain.printing import body_lines, index_form
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.recent import Recent
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.codegen.opts import ShiftInwards
from ntgrad.engine import compile, planner, report
from ntgrad.engine.counters import PHASES, phase, take_phase_seconds
from ntgrad.schedule import create_schedule
from ntgrad.tile.visualize import visualize
from support.numbering import reset_labels, reset_numbering
from support.sizes import elementwise, symbols

pytestmark = pytest.mark.usefixtures("nothing_compiled")


def shown(level: int, capsys: pytest.CaptureFixture[str], size: int, color: int = 0) -> str:
  """What two runs of one structure print. ``size``: another structure for each test, as each is new once."""
  a = Tensor(list(range(size)), device="NUMPY", dtype="float32").realize()
  capsys.readouterr()
  reset_numbering()
  with config(debug=level, color=color, cache=0, dynamic="never"):
    for _ in range(2): (a.exp() + 1).realize()
  return capsys.readouterr().out


def test_nothing_at_level_0(capsys: pytest.CaptureFixture[str]) -> None: assert shown(0, capsys, 30) == ""


def test_schedules(capsys: pytest.CaptureFixture[str]) -> None:
  first, where, second = shown(1, capsys, 31).splitlines()
  took = r"[\d.]+ [mµn]?s"
  assert re.fullmatch(rf"schedule 1: 1 kernel, new, {took}", first)
  assert re.fullmatch(rf"first run in {took}: {', '.join(f'{p} {took}' for p in PHASES)}", where)
  assert re.fullmatch(r"schedule 2: 1 kernel, found again, [\d.]+ [mµ]?s", second)


def test_phases_are_counted_apart() -> None:
  """The time of a phase within another counts for the inner one alone, also where an error ends it."""
  take_phase_seconds()
  with phase("scheduling"):
    with pytest.raises(ZeroDivisionError), phase("choosing"): 1 / 0
    with phase("compiling"): time.sleep(0.02)
  spent = take_phase_seconds()
  assert spent["compiling"] >= 0.02 > spent["scheduling"] and set(take_phase_seconds().values()) == {0.0}


def test_a_line_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
  lines = [line for line in shown(2, capsys, 32).splitlines() if line.startswith("***")]
  assert len(lines) == 2
  for i, (line, made) in enumerate(zip(lines, (r"  made in [\d.]+ [mµ]?s", ""))):   # once
    speed = r"[\d.]+ GFLOP/s +[\d.]+ GB/s +\d+ % of bound \(\w+\)"
    assert re.fullmatch(rf"\*\*\* +{i + 1}  E_32 +grid \S+ +[\d.]+ [mµn]?s +{speed}{made}", line), line
    assert len(line.split("  made in")[0]) <= 120, line


def test_run_time_sizes_have_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
  """A launch says with which sizes it ran, and counts work and traffic for them; the kernel itself is for all sizes."""
  reset_numbering()
  with config(debug=3, color=0, cache=0, dynamic="always"):
    for n in (35, 36): (Tensor([2.0] * n, device="NUMPY").realize().sqrt() * 3).realize()
  lines = capsys.readouterr().out.splitlines()
  runs = [line for line in lines if line.startswith("***")]
  assert [re.sub(r".* of bound \(\w+\)|  made in .*", "", line) for line in runs] == ["  s0=35", "  s0=36"]
  row, = [line for line in lines if line.startswith("   0*")]
  assert re.fullmatch(r"   0\*  E_s0  grid 35 +70.0 FLOP +280 B +b1 <- b0  s0=35  test_report.py:\d+ sqrt, mul", row), row
  assert [line.strip() for line in lines if line.strip().startswith("data1(")] == ["data1(s0)"]


def test_sizes_of_a_tile_kernel(capsys: pytest.CaptureFixture[str]) -> None:
  """What is said once of sizes that a kernel gets at the launch; what any int fits is no condition worth saying."""
  s0, s1 = (UOp(Ops.SIZE, ix.INT, (), ix.Size(f"s{i}")) for i in range(2))
  most = UOp(Ops.ALU, dtypes.bool, (s0, ix.const(2 ** 31 - 1)), BinaryOps.CMPLE)
  family = SimpleNamespace(seen={"s0": {8, 9}, "s1": {4}})
  with config(debug=1):
    for condition in (ix.both(most, ix.lt(s1, s0)), most):
      report.sized("copies", "s0", family, SimpleNamespace(condition=condition))
  assert capsys.readouterr().out.splitlines() == [
    "tile copies: s0 unknown until the launch (s0 met as 8 and 9), where s1 < s0",
    "tile copies: s0 unknown until the launch (s0 met as 8 and 9)"]


def test_a_kernel_says_which_sizes_it_needs() -> None:
  n = symbols()
  k = ShiftInwards(1, 8).apply(elementwise(n)).needing(ix.lt(ix.node(n["M"]), ix.node(ix.plus(n["N"], 2))))
  assert report.describe(k).splitlines()[:3] == [
    "axes   a0:M GRID, a1:cdiv(N, 8) GRID, a2:8 LANE", "opts   a1.shift_inwards(8)", "needs  7 < N and M < N + 2"]


def test_levels_are_nested_and_in_order(capsys: pytest.CaptureFixture[str]) -> None:
  texts = [shown(level, capsys, 40 + level) for level in range(1, 7)]
  marks = ["schedule 1", "***", "axes   ", "source", "linear UOps", "machine code"]
  for level, text in enumerate(texts, 1):
    for i, mark in enumerate(marks[:6 if level == 6 else level]): assert mark in text, f"level {level} lacks {marks[i]}"
    for mark in marks[level:]: assert mark not in text, f"level {level} has {mark}"
  text = texts[4]
  at = [
    text.index(m)
    for m in ("schedule 1", "<-", "── E_", "axes   ", "data0", "GRID (", "body", "source", "linear UOps", "── runs", "***")
  ]
  assert at == sorted(at)


def test_a_kernel_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
  text = shown(5, capsys, 50)
  assert (
    text.count("axes   ") == text.count("linear UOps") == 1
    and text.count("schedule ") == 2
    and len(re.findall(r"^\*\*\* ", text, re.M)) == 2
  )


def test_only_some_kernels(capsys: pytest.CaptureFixture[str]) -> None:
  """ONLY leaves out every line about kernels with other names: rows, dumps, passes, launches. Headers of schedules stay, and
  launches keep their numbers."""
  a = Tensor(list(range(54)), device="NUMPY", dtype="float32").realize()
  texts = {}
  for only in ("", "r_*", "E_54, r_nothing", "nothing"):
    capsys.readouterr()
    reset_numbering()
    with config(debug=5, show="opts", only=only, color=0, cache=0, dynamic="never"), pytest.MonkeyPatch.context() as patch:
      patch.setattr(compile, "_programs", Recent(64))
      patch.setattr(planner, "_plans", Recent(64))
      Tensor.realize(a.exp(), a.sum())
    texts[only] = capsys.readouterr().out
  has = {only: {n for n in ("E_54", "r_54") if re.search(rf"\b{n}\b", text)} for only, text in texts.items()}
  assert has == {"": {"E_54", "r_54"}, "r_*": {"r_54"}, "E_54, r_nothing": {"E_54"}, "nothing": set()}
  # passes, row, dump, file (its first line, its name), source, launch
  for name in ("E_54", "r_54"): assert len(re.findall(rf"\b{name}\b", texts[""])) == 7
  assert all("schedule 1: 2 kernels" in text for text in texts.values())
  assert len(texts["nothing"].splitlines()) < 10 < len(texts["r_*"].splitlines()) < len(texts[""].splitlines())
  launches = [re.findall(r"^\*\*\* +(\d+)", texts[only], re.M) for only in ("E_54, r_nothing", "r_*")]
  assert sorted(launches) == [["1"], ["2"]]


def test_colour_is_a_choice(capsys: pytest.CaptureFixture[str]) -> None:
  assert "\x1b[" not in shown(3, capsys, 51, color=0) and "\x1b[" not in shown(3, capsys, 52, color=-1)
  assert "\x1b[32m" in shown(3, capsys, 53, color=1)


@pytest.mark.parametrize(
  "value, text",
  [
    (0, "    0  B"),
    (999, "  999 B"),
    (1000, " 1.00 kB"),
    (1.5e6, " 1.50 MB"),
    (123456, "  123 kB"),
    (2e-5, " 20.0 µB"),
    (9.996e2, " 1.00 kB"),
    (5e-9, "  5.0 nB"),
  ],
)
def test_numbers_with_units(value: float, text: str) -> None: assert report.unit_text(value, "B") == text


def test_a_name_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
  """Kernels of one structure's name have names of their own, the same in every line about them; sources do not depend on it."""
  a = Tensor(list(range(58)), device="NUMPY", dtype="float32").realize()
  sources = []
  for order in (("exp", "sin", "cos"), ("cos", "exp", "sin")):
    reset_numbering()
    capsys.readouterr()
    for table in (compile._programs, compile._by_spec, planner._plans): table.clear()   # type: ignore[attr-defined]
    with config(debug=5, show="opts", color=0, cache=0, dynamic="never"), profile() as p:
      for fn in order: getattr(a, fn)().realize()
      for fn in order: getattr(a, fn)().realize()   # found again
    text = capsys.readouterr().out
    names = ["E_58", "E_58n1", "E_58n2"]
    assert [r.name for r in sorted(p.rows, key=lambda r: r.name)] == names and all(r.count == 2 for r in p.rows)
    assert re.findall(r"^\*\*\* +\d+  (\w+)", text, re.M) == names * 2 and re.findall(r"---- (\w+) after", text) == names
    assert re.findall(r"^── (\w+) on", text, re.M) == re.findall(r"^   0\*  (\w+) ", text, re.M) == names
    for name, fn, part in zip(names, order, text.split("── E_")[1:]):
      assert f"= {fn}(data1" in part, f"{name} is {fn}"
    sources.append({fn: program.spec.source for fn, program in zip(order, compile._programs.values())})
    assert {program.spec.name for program in compile._programs.values()} == {"E_58"}
  assert sources[0] == sources[1]


def test_a_label_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
  """Also where more names are met than are remembered, and where a kernel's own name is like a label."""
  monkeypatch.setattr(report, "LABELS", 4)
  given = [report.new_label(f"r_{i % 11}") for i in range(60)]
  given += [report.new_label(n) for n in ("r_1n1", "r_1", "x", "x", "xn1", "x")]
  assert len(set(given)) == len(given) and len(report._counts) <= 5
  monkeypatch.undo()
  reset_labels()
  assert [report.new_label(n) for n in ("x", "x", "xn1", "x")] == ["x", "xn1", "xn1n1", "xn2"]


@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
def test_how_long_it_took_to_make_a_kernel(capsys: pytest.CaptureFixture[str], device: str) -> None:
  """With its first launch, the wait for a device's compiler counted; not where it is launched again, and not for what has been
  made without DEBUG."""
  a = Tensor([3.0] * 59, device=device).realize()
  with config(cache=0, dynamic="never"): (a * 5).tan().realize()
  capsys.readouterr()
  with config(debug=2, color=0, cache=0, dynamic="never"):
    for fn in (a.tan, (a * 5).tan, a.tan): fn().realize()
  runs = [line for line in capsys.readouterr().out.splitlines() if line.startswith("***")]
  assert [("made in" in line) for line in runs] == [True, False, False], runs
  value, unit = re.findall(r"made in ([\d.]+) (\S+)", runs[0])[0]
  assert float(value) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit] > (1e-2 if device == "CPU" else 1e-5), runs[0]


def test_what_kernels_share_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
  """A function that an earlier kernel has shown is named; with the names the text of each kernel is still whole."""
  reset_numbering()
  a = Tensor([1.0] * 71).realize()
  with config(debug=4, color=0, cache=0, dynamic="never"):
    a.exp().realize()
    (a.exp() + a.maximum(2)).realize()
  text = capsys.readouterr().out
  shown = re.findall(r"// shown before: (.*)", text)
  assert len(shown) == 1 and "exp_float" in shown[0] and "max_float" not in shown[0]
  defined = re.findall(r"^ *static \S+ (exp_\w+)\(", text, re.M)
  assert defined and len(defined) == len(set(defined))
  assert re.search(r"^ *static \S+ max_\w+\(", text.split("shown before")[1], re.M)
  spec = list(compile._programs.values())[-1].spec
  assert "static" in spec.source.text and all(h in spec.source.text for h in spec.source.helpers)   # what is compiled is whole


def test_chains_of_many_steps_have_a_line_each() -> None:
  x = Tensor.empty(1, 2, 6, 6).conv2d(Tensor.empty(4, 2, 3, 3), padding=1, stride=2)
  kernel = create_schedule([x])[-1].ast
  assert kernel is not None
  lines = report.describe(kernel).splitlines()
  at = lines.index("       data2(4, 2, 3, 3)")
  assert all(re.fullmatch(r"         \.\w+\(.*\)", line) for line in lines[at + 1:at + 5]) and max(map(len, lines)) <= 130
  assert steps("data0(1.5, (2, 3)).at(a[0].b, 'x').c") == ["data0(1.5, (2, 3))", "at(a[0].b, 'x')", "c"]


def test_dimensions_of_one_are_not_shown() -> None:
  """Where the kernel indexes them with 0; a buffer of one element keeps a dimension."""
  kernel = create_schedule([Tensor.empty(1, 3, 1) + Tensor.empty(1, 1, 1)])[-1].ast
  assert kernel is not None
  text = report.describe(kernel)
  assert "data0(3)\n" in text and "data2(1)" in text and "store data0[a0] = data1[a0] + data2[0]" in text


def test_conditions_stand_below() -> None:
  """One line for the places that have it; the same place under another condition is told apart."""
  x, i = UOp(Ops.DEFINE_GLOBAL, dtypes.float, (), (1, "data1", False)), ix.rng(0, 8)
  at = UOp(Ops.INDEX, ix.INT, (i,))
  def load(gate: UOp | None) -> UOp: return UOp(Ops.LOAD, dtypes.float, (x, at, *([] if gate is None else [gate])))
  value = UOp.alu(BinaryOps.ADD, UOp.alu(BinaryOps.ADD, load(ix.lt(i, 3)), load(ix.lt(i, 5))), load(None))
  out = UOp(Ops.DEFINE_GLOBAL, dtypes.float, (), (0, "data0", True))
  store = UOp(Ops.STORE, dtypes.float, (out, at, value, ix.lt(i, 5)))
  kernel = Kernel((Param(0, (8,), dtypes.float32, True), Param(1, (8,), dtypes.float32, False)), (Axis(0, 8, AxisKind.GRID),),
                  (store,))
  assert body_lines(kernel) == ["store data0[a0] = data1[a0] + data1[a0]' + data1[a0]''", "  where data0[a0], data1[a0]': a0 < 5",
                                "  where data1[a0]: a0 < 3"]


def test_one_screen() -> None:
  """What ``print`` shows of a kernel, an item, a plan, a Linearizer, a layer, a tensor, a picture."""
  x, layer = Tensor.empty(64, 32, device="NUMPY"), nn.Linear(32, 8)
  item = create_schedule([x.softmax()])[-1]
  assert item.ast is not None
  k = Linearizer(item.ast)
  assert str(item.ast) == index_form(item.ast)
  assert str(item).splitlines()[0] == "kernel: float(64, 32) on NUMPY <- float(64, 32) on NUMPY"
  assert f"from   test_report.py:{inspect.currentframe().f_lineno - 5} softmax" in str(item)   # type: ignore[union-attr]
  assert "not linearised" in str(k) and re.search(r"\d+ linear UOps", str(k.linearize())) and str(item.ast) in str(k)
  copy, = [i for i in create_schedule([x.to("CPU") + 1]) if i.ast is None]
  assert str(copy) == "copy float(64, 32) on NUMPY to CPU"
  wide = create_schedule([Tensor.empty(4).exp() + float(n) for n in range(90)])[-1]
  picture = visualize(tile.Tensor(2, shape=(40, 40)).tile((2, 2)))
  with config(dynamic="never", cache=0): (x + 1).sum(0).realize()
  plan = list(planner._plans.values())[-1].plan
  assert re.match(r"plan of 1 step: reads b0, makes b1 float\(1, 32\), gives b1\n   0 +r_\w+ .*b1 <- b0$", str(plan)), str(plan)
  for shown in (x, layer, item, item.ast, k, copy, wide, plan, picture):
    lines = str(shown).splitlines()
    assert 1 <= len(lines) <= 60 and max(map(len, lines)) <= 160 and " object at 0x" not in str(shown), shown
