"""``python -m ntgrad check`` and ``reduce``: kernels beside the oracle, with a renderer that is broken on purpose."""
from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

from ntgrad import Tensor, config, dtypes
from ntgrad.backends.opencl.renderer import OpenCLRenderer
from ntgrad.codegen.ir import BinaryOps, Ops, Recent
from ntgrad.codegen.kernel import UOpList
from ntgrad.engine import compile as compiling, planner
from ntgrad.engine.device import default_device
from ntgrad.engine.overrides import difference
from ntgrad.schedule import create_schedule
from ntgrad.utils.command import check, reduce
from ntgrad.utils.command.main import main

pytestmark = pytest.mark.skipif(default_device() != "CPU", reason="no OpenCL device")


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
  """Kernels are made anew, and what is made here no other test gets."""
  monkeypatch.setattr(compiling, "_programs", Recent(64))
  monkeypatch.setattr(compiling, "_by_spec", type(compiling._by_spec)())
  monkeypatch.setattr(planner, "_plans", Recent(64))
  monkeypatch.chdir(tmp_path)
  yield
  assert not compiling.comparers


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
  """Additions of vectors of floats subtract: what some Opts make is wrong, and the plain loops are right."""
  render = OpenCLRenderer.render

  def wrong(self: Any, name: str, uops: Any, notes: Any = ()) -> Any:
    new: dict[Any, Any] = {}
    for u in uops:
      v = u.replace(tuple([new[s] for s in u.src]))
      if u.arg is BinaryOps.ADD and u.op is Ops.ALU and u.dtype.count > 1 and u.dtype.scalar().kind == "f":
        v = v.with_arg(BinaryOps.SUB)
      new[u] = v
    return render(self, name, UOpList(new.values()), notes)
  monkeypatch.setattr(OpenCLRenderer, "render", wrong)


def command(*words: str) -> int: return main(words)


def script(text: str) -> str:
  path = Path("script.py")
  path.write_text("import sys\nimport numpy as np\nimport ntgrad\nfrom ntgrad import Tensor\n"
                  "a = Tensor(np.random.default_rng(0).standard_normal((37, 53)).astype('float32'))\n" + text)
  return str(path)


GOOD = """
print(sys.argv[1:], (a.exp() * 2).sum(1).softmax().sum().item())
print((a - a.mean()).sum().item())   # rounding alone
print((a @ a.T).relu().sum().item(), a.argmax(1).sum().item(), a.cumsum(1).half().sum().item())
f = ntgrad.jit(lambda x: (x * 2 + 1).sum(0))
for i in range(4): f(a + i).realize()
sys.exit(3)
"""
WRONG = """
b = (a * 2).relu()
try: c = (b + a.exp()).realize()   # here
except Exception: raise
"""


def test_all_right(capsys: pytest.CaptureFixture[str]) -> None:
  assert command("check", script(GOOD), "one", "--two") == 3
  out = capsys.readouterr().out
  assert "['one', '--two']" in out and out.rstrip().endswith(", all as the oracle's") and "0 kernels" not in out


def test_the_first_that_differs(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
  assert command("check", "--save", "case.npz", script(WRONG)) == 1
  out, err = capsys.readouterr()
  assert "E_37_53" in out and " on CPU gives something else than the oracle: data0, " in out and "ULP" in out
  assert "opts   a0." in out and "computing what was made at script.py:" in out and "script.py:8 exp, add" in out
  assert "Traceback" not in err and "wrote case.npz" in out
  case = reduce.load("case.npz")
  assert case.device == "CPU" and case.data[1].shape == (37, 53) and reduce.differs(case) is not None


KERNELS = {
  "several operations": ("((a * a).sqrt() + a.exp() * a).sum(1).sin().realize()", ("exp", "sqrt", "sin(")),
  "running sum": ("(a.reshape(-1)[:1920].reshape(40, 48).cumsum(0) * 2).sin().realize()", ("sin",)),
  "run-time sizes": (
    "ntgrad.config.dynamic = 'always'\nfor n in 20, 37: (a[:n].contiguous().exp() + 1).sum(1).realize()", ("exp",)),
  "tile": ("""
import ntgrad.tile as tile, ntgrad.tile.language as tl
def arrangement(x, y): return x.tile((64,)), y.tile((64,))
def application(x, y): y = x + tl.exp(x)
x, y = (a * 1).reshape(-1)[:300].contiguous().realize(), Tensor.zeros(300).contiguous().realize()
tile.make(arrangement, application, (tile.Tensor(1),) * 2)(x, y)
""", ("exp",))}


@pytest.mark.long
@pytest.mark.parametrize("name, saved", [("several operations", False), *[(name, True) for name in KERNELS]])
def test_reduced(name: str, saved: bool, broken: None, monkeypatch: pytest.MonkeyPatch,
                 capsys: pytest.CaptureFixture[str]) -> None:
  text, gone = KERNELS[name]
  monkeypatch.setattr(config, "dynamic", config.dynamic)
  source = script(text)
  if saved:
    assert command("check", "--save", "case.npz", source) == 1
    source = "case.npz"
  assert command("reduce", "-o", "small.py", source) == 0
  out = capsys.readouterr().out
  assert "wrote small.py, " in out and (name != "tile" or re.search(r"launched at .*script\.py:11\n", out))
  small = Path("small.py").resolve()
  text = small.read_text()
  assert text.count("\n") <= 30 and not any(word in text for word in gone), text
  with pytest.raises(AssertionError, match="(?s)ACTUAL.*DESIRED"): runpy.run_path(str(small), run_name="__main__")
  monkeypatch.undo()
  runpy.run_path(str(small), run_name="__main__")   # mended


def test_a_captured_function_and_an_error_that_a_script_hides(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
  text = "f = ntgrad.jit(lambda x: x + 1)\nfor _ in range(4):\n  try: f(a).realize()\n  except RuntimeError: pass\n"
  assert command("check", script(text)) == 1
  assert "E_37_53" in capsys.readouterr().out


def test_what_is_rounding() -> None:
  """A difference of nearly equal values is another one on every device; one element that is wrong is not."""
  x = Tensor.empty(64)
  kernel = create_schedule([(x - 1000.0).sum()])[-1].ast
  data = [np.zeros(1, np.float32), (1000 + np.random.default_rng(0).standard_normal(64) * 1e-4).astype(np.float32)]
  oracle = check.oracle(kernel, "k")
  want = oracle(data, {})
  def said(value: float) -> str | None:
    got = [np.full_like(want[0], want[0] + value), data[1]]
    return check.compare(kernel, lambda d: oracle(d, {}), data, got)
  assert said(0) is None and said(1e-3) is None   # an input is known to 6e-5
  assert "1 of 1 elements" in (said(1.0) or "")


def test_differences_are_shown() -> None:
  a = np.arange(6, dtype=np.float32).reshape(2, 3)
  b = a.copy()
  b[1, 2] += 1
  said = difference(a, b, dtypes.float32, 1e-5)
  assert said is not None and "1 of 6 elements, most at element (1, 2): 6.0 in place of 5.0" in said and said.endswith("ULP")
  assert difference(a, a + 1e-6, dtypes.float32, 1e-5) is None
  assert difference(np.array([1, 2]), np.array([1, 3]), dtypes.int64, 0) is not None
  nan = np.array([np.nan, np.inf], np.float32)
  assert difference(nan, nan, dtypes.float32, 0) is None and difference(nan, nan[::-1], dtypes.float32, 1.0) is not None
