"""In-place writes, views, gradients and captures mean what the model in numpy says: random programs, and tests of the fuzzer
itself."""
from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import errors
from support import fuzz_model as model
from support.devices import missing
from support.fuzz_generate import KINDS, Function, Line, generate, namespace, raises
from support.fuzz_model import Tensor, Undefined
from support.fuzz_program import expect, minimised, run, simpler_texts, source
from support.marks import long, long_where

PROGRAMS = {("NUMPY", "eager"): 600, ("NUMPY", "gradient"): 250, ("NUMPY", "capture"): 120,
            ("CPU", "eager"): 25, ("CPU", "gradient"): 12, ("CPU", "capture"): 15}
SECONDS = 10   # for those of a device and kind, where a machine is slow
SCRIPT = Path(__file__).with_name("programs.py")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(ntgrad.Device, "assigned", None)
  model.begin(model.Session())


@long_where(lambda device, kind: device != "NUMPY" or kind != "eager")
@pytest.mark.parametrize("device, kind", PROGRAMS)
def test_programs(device: str, kind: str) -> None:
  """Seeds in order, until one fails: its program is printed in short."""
  if missing(device): pytest.skip(missing(device))
  ntgrad.Device.DEFAULT = device
  until = time.monotonic() + SECONDS
  with ntgrad.config(tiers="check"):   # on the CPU kernels are built both ways, and compared
    for seed in range(PROGRAMS[device, kind]):
      if time.monotonic() > until: break
      program, exact = generate(kind, seed), kind != "gradient"
      if (problem := run(program, exact)) is not None:
        program, problem = minimised(program, problem, exact, seconds=10)
        pytest.fail(f"{kind} {seed} on {device}: {problem.what}\n\n{source(program, exact, problem, device)}", pytrace=False)


# ---- the model
def values(*lines: str) -> list[Any]:
  """What the model says of the checks in some lines."""
  return [np.asarray(v).tolist() for v in expect(tuple(map(Line, lines)), set(), True).values.values()]


A = "x = Tensor(np.arange(6).reshape(2, 3))"


@pytest.mark.parametrize(
  "lines, want",
  [
    (["y = x.T.reshape(6)", "y[1] = 9", "check(x.numpy())"], [[0, 1, 2], [9, 4, 5]]),  # where numpy would copy
    (["x.T[1, 0] = 5", "x[::-1][0] = 7", "check(x.numpy())"], [[0, 5, 2], [7, 7, 7]]),
    (["y = x.contiguous()", "x[0] = 7", "y[1] = 9", "check(x.numpy())"], [[7, 7, 7], [3, 4, 5]]),
    (["y = x[:, ::-1].detach().unsqueeze(0).flatten()[2:]", "x[0, 0] = 8", "check(y.numpy())"], [8, 5, 4, 3]),
    (["x[:, 1:] = x[:, :-1]", "check(x.numpy())"], [[0, 0, 1], [3, 3, 4]]),  # read before anything is written
    (["y = x.sum(1, keepdim=True).expand(2, 3)", "x[0] = 0", "check(y.numpy())"], [[3, 3, 3], [12, 12, 12]]),
    (["x[:, [0, 2, 0]] = np.arange(3)", "check(x.numpy())"], [[2, 1, 1], [2, 4, 1]]),  # the last of equal ones
    (["y = x[[0, 1]]", "x[0] = 9", "check(y.numpy())"], [[0, 1, 2], [3, 4, 5]]),
    (["x.copy_(Tensor([1.5, -1.5, 2.0]))", "check(x.numpy())"], [[1, -1, 2], [1, -1, 2]]),  # broadcast and cast
    (["y = x[:, :1].expand(2, 3)", "x[1] = 9", "check(y.numpy())"], [[0, 0, 0], [9, 9, 9]]),
    (["y, z = x * 0, x * 0", "y[0] = 1", "check(z.numpy())"], [[0, 0, 0], [0, 0, 0]]),
    (
      ["y = x.to(None).cast('int64')", "z = x.pad(((0, 0), (0, 0)))", "x[...] = 0", "check((y - z).numpy())"],
      [[0, 0, 0], [0, 0, 0]],
    ),
  ],
)
def test_model(lines: list[str], want: Any) -> None:
  assert values(A, *lines) == [want]


@pytest.mark.parametrize("text, error", [
  ("x.unsqueeze(0).expand(2, 2, 3)[0, 0, 0] = 1", errors.AssignError), ("x[0] = np.zeros(2, np.int64)", errors.ShapeError),
  ("x[0] = Tensor([0.5])", errors.DTypeError), ("x.assign(x[:, :2])", errors.AssignError)])
def test_model_refuses(text: str, error: type[Exception]) -> None:
  assert values(A, f"with raises({error.__name__}): {text}", "check(x.tolist())") == [[[0, 1, 2], [3, 4, 5]]]


def test_model_has_no_rule() -> None:
  for text in ("x[0] = 1e9", "x = x * 0.3", "x = x.cast('float32') * 1000 * 1000"):
    with pytest.raises(Undefined): values(A, text)


CAPTURED = (Line("s = Tensor(np.arange(3))"), Line("v = s[1:]"),
            Function("f", ("a", "b"), ("a[0] = b[0]", "t = s + a", "s[0] = 9"), ("t", "v", "a")),
            Line("x = Tensor(np.arange(10, 14))"), Line("r, p, q = f(x[:3], x[1:])"), Line("s[2] = 7"), Line("check(p.numpy())"),
            Line("check(r.numpy())"), Line("check(q.numpy())"), Line("y = f(x[:3], x[:3])"))


def test_model_of_capture() -> None:
  """Arguments and state are written, results are copies, and another overlap is another signature."""
  e = expect(CAPTURED, set(), True)
  assert [v.tolist() for v in e.values.values()] == [[1, 2], [11, 12, 14], [11, 11, 12]] and e.refusable == {9}
  assert set(expect(CAPTURED, {9}, True).skipped) == {9}


def test_model_of_gradients() -> None:
  lines = (
    "x = Tensor(np.array([1., 2., 3.]), requires_grad=True)",
    "y = x * 2",
    "v = y[1:]",
    "d = y.detach()",
    "y[0] = x[2] * x[2]",
    "d[1] = x[0]",
    "v *= x[1:]" if hasattr(Tensor, "__imul__") else "v[...] = v * x[1:]",
    "with no_grad(): x.assign(x * 3)",
    "loss = (y * d).sum()",
    "loss.backward()",
    "check(grad(x))",
  )
  # y = x2 ** 2, (1, with the slope of 2 * x1) * x1, 2 * x2 ** 2, and d's values as constants: 9, 2, 18
  assert np.allclose(values_of(lines), [0, 2 * (2 * 2 + 1), 9 * 6 + 18 * 12])
  with pytest.raises(errors.GradientError): expect((*map(Line, lines[:1]), Line("x[0] = 1")), set(), False)


def values_of(lines: tuple[str, ...]) -> Any: return next(iter(expect(tuple(map(Line, lines)), set(), False).values.values()))


# ---- the fuzzer
@pytest.mark.parametrize("kind", KINDS)
def test_printed_programs_are_the_programs(kind: str) -> None:
  """Printed code runs by itself: with the model in ntgrad's place all its checks hold, a wrong value fails."""
  for seed in range(40):
    assert (program := generate(kind, seed)) == generate(kind, seed)
    text = source(program, kind != "gradient")
    if kind != "gradient": execute(text, model.Tensor)
    assert text.count("check(") >= sum("check(" in s.text for s in program)


def execute(text: str, tensor: Any) -> None:
  """Run printed code with other classes in the place of ntgrad's."""
  stand_in = ModuleType("stand_in")
  stand_in.__dict__.update(Tensor=tensor, jit=model.jit, no_grad=model.no_grad)
  model.begin(model.Session())
  env = {"stand_in": stand_in}
  sys.modules["stand_in"] = stand_in
  try: exec(text.replace("from ntgrad import", "from stand_in import"), env)
  finally: del sys.modules["stand_in"]


@long_where(lambda kind: kind == "capture")
@pytest.mark.parametrize("kind", KINDS)
def test_printed_programs_on_ntgrad(kind: str) -> None:
  """A program and its printed code have the same outcome."""
  ntgrad.Device.DEFAULT = "NUMPY"
  for seed in range(40):
    program, exact = generate(kind, seed), kind != "gradient"
    if expect(program, set(), exact).refusable: continue   # a refusal is not printed
    problem = run(program, exact)
    try: exec(source(program, exact, problem), {})
    except (Exception, pytest.fail.Exception) as e: assert problem is not None, f"{kind} {seed}: {e}"
    else: assert problem is None, f"{kind} {seed}: {problem}"


class Wrong(Tensor):
  """The model with a mistake: a write to a flipped tensor is lost."""
  def flip(self, *dims: int) -> Tensor: return Tensor.flip(self, *dims).clone()


class WrongCapture(model.jit):
  """The model with a mistake: from the third call on a result is the first one's."""
  def __call__(self, *args: Any) -> Any:
    out = super().__call__(*args)
    self.first = getattr(self, "first", out)
    return self.first if sum(map(len, self.patterns.values())) > 2 else out


@pytest.mark.parametrize("kind, names, most", [("eager", {"Tensor": Wrong}, 4), ("capture", {"jit": WrongCapture}, 10)])
def test_finds_and_shortens(kind: str, names: dict[str, Any], most: int) -> None:
  """A mistake put in is found within some seeds, and shown in a few lines that fail by themselves."""

  def wrong() -> dict[str, Any]:
    return {**{k: v for k, v in namespace().items() if k in ("Tensor", "jit", "no_grad", "grad")}, **names}

  for seed in range(300):
    program = generate(kind, seed)
    problem = run(program, True, wrong)
    if problem is not None: break
  else: pytest.fail("nothing found")
  short, _ = minimised(program, problem, True, wrong, seconds=8)
  assert sum(s.text.count("\n") + 1 for s in short) <= most < len(program), source(short, True)


def test_simpler_texts() -> None:
  assert {"x = y[1:]", "x = y.flip(0)", "x = y[:].flip(0)"} <= set(simpler_texts("x = y[1:].flip(0)"))
  with pytest.raises(AssertionError): execute("check = lambda a, b: None\nassert 0", Tensor)
  with pytest.raises(Exception, match="no AssignError"), raises(errors.AssignError): pass


def script(*args: str, path: str = "") -> Any:
  env = {**os.environ, "PYTHONPATH": os.pathsep.join([path, str(SCRIPT.parents[2]), str(SCRIPT.parents[1])])}
  return subprocess.run([sys.executable, str(SCRIPT), *args], capture_output=True, text=True, timeout=120, env=env)


@long
def test_script() -> None:
  """The script runs programs in processes of their own and says how many."""
  out = script("--minutes", "0.1", "--kind", "eager", "--device", "NUMPY", "--seed", "5")
  assert "eager: " in out.stdout and "programs a second on NUMPY" in out.stdout and not out.stderr
  assert script("--show", "eager", "3", "--device", "NUMPY").stdout == source(generate("eager", 3), True, None, "NUMPY")


@long
def test_crash(tmp_path: Path) -> None:
  """A process that dies is a finding: its program is shown, and the seeds after it run."""
  (tmp_path / "sitecustomize.py").write_text("import os, signal\nfrom ntgrad import Tensor\n"
                                             "def flip(*_): os.kill(os.getpid(), signal.SIGSEGV)\nTensor.flip = flip\n")
  out = script("--minutes", "0.08", "--kind", "eager", "--device", "NUMPY", "--shorten", "3", path=str(tmp_path)).stdout
  part = next(p for p in out.split("# ---- ") if "ended with -11" in p.split("\n")[0])
  assert ".flip(" in part and int(re.search(r"eager: (\d+) programs", out)[1]) > 3
