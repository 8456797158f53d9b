"""Programs of ``fuzz_sizes_generate`` run with sizes that change, and with sizes that are numbers (``dynamic="never"`` on NUMPY):
compared, printed, and cut down to the shortest that still fails."""
from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Callable, Iterator

import numpy as np

import ntgrad
from ntgrad import Tensor, Variable, config
from ntgrad.engine import planner
from ntgrad.engine.size_variants import SizedProgram
from ntgrad.errors import CaptureError

from .fuzz_program import Problem, simpler_texts, used
from .fuzz_sizes_generate import STATE, SizedCalls, Values, array, shape_of

STEADY = 3      # calls of a steady program, its last ones, that make no plan
GUESSES = 5     # plans of one structure: with numbers, then with sizes, guessed from two and more
VARIANTS = 4    # of one kernel: for sizes below and above 64 elements of a row, with less and more work


class Made:
  """Plans made by structure, and kernels with sizes, while something runs."""

  def __init__(self) -> None:
    self.plans: Counter[int] = Counter()
    self.programs: dict[int, Any] = {}
    self.all = 0
    self._kept: list[Any] = []

  @contextmanager
  def counting(self) -> Iterator[None]:
    guess, new, make = planner._Sized.guess, SizedProgram.new, planner.make_plan
    def plan(*args: Any) -> Any:
      self.all += 1
      return make(*args)
    def guessed(this: Any) -> None:
      self._kept.append(this.seen)
      self.plans[id(this.seen)] += 1
      guess(this)
    def made(this: Any, *args: Any) -> Any:
      self.programs[id(this)] = this
      return new(this, *args)
    planner._Sized.guess, SizedProgram.new, planner.make_plan = guessed, made, plan  # type: ignore[method-assign]
    try: yield
    finally: planner._Sized.guess, SizedProgram.new, planner.make_plan = guess, new, make  # type: ignore[method-assign]

  def too_many(self) -> str:
    most = max(self.plans.values(), default=0)
    if most > GUESSES: return f"{most} plans of one structure"
    for p in self.programs.values():
      # a block that spans a size is made for each power of two
      units = Counter([(v.units, v.needs if p.target.blocks else ()) for v in p.variants])
      if any(c > VARIANTS for c in units.values()): return f"{max(units.values())} variants of one kernel"
    return ""


Outcome = list[Any]


def outcomes(program: SizedCalls, device: str, reference: bool) -> Iterator[Callable[[], Outcome]]:
  """What each call computes, as arrays. The reference has numbers for sizes."""
  mode, captured = program.mode, program.mode.startswith("jit") and not reference
  state = [Tensor(np.zeros((STATE, 8), np.float32), device=device).realize()]
  env: dict[str, Any] = {"Tensor": Tensor, "np": np, "s": state[0]}
  exec(program.text(program.mode.startswith("jit")), env)
  fn: Any = env["p"]
  if captured:
    dynamic = {0: (0, 1)} if mode == "jit dynamic" else None
    fn = ntgrad.jit(fn, dynamic=dynamic) if dynamic else ntgrad.jit(fn)
  variables = [Variable(name, 0, 2000) for name in "nmk"]
  for values in program.calls:
    def call(values: Values = values) -> Outcome:
      tensors = []
      for name, shape, dtype in program.inputs:
        grad = mode.startswith("gradient") and dtype == "float32"
        tensors.append(Tensor(array(name, shape_of(shape, values), dtype), device=device, requires_grad=grad or None))
      sizes: tuple[Any, ...] = values
      if "variables" in mode and not reference: sizes = tuple([v.bind(n) for v, n in zip(variables, values)])
      if mode.startswith("jit") and "variables" not in mode: sizes = ()
      results = fn(*sizes, *tensors)
      got = []
      if mode.startswith("gradient"):
        loss = sum([((t.float() * 0.5).tanh() + t.float() * 0.01).sum() for t in results], tensors[0].sum())
        loss.backward()
        got = [np.zeros(t.shape, np.float32) if t.grad is None else t.grad.numpy() for t in tensors]
      return [*[t.numpy() for t in (*results, *tensors, state[0])], *got]
    yield call


def differs(got: Outcome, want: Outcome) -> str:
  for i, (g, w) in enumerate(zip(got, want)):
    if g.shape != w.shape or g.dtype != w.dtype: return f"value {i}: {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
    if not g.size: continue
    w, g = w.astype(np.float64), g.astype(np.float64)
    most = np.abs(w[np.isfinite(w)]).max(initial=1)
    if most > 1e7: return ""   # rounding is all that is left
    if not np.allclose(g, w, 1e-3, 1e-4 * most, equal_nan=True):
      return f"value {i}: {int((~np.isclose(g, w, 1e-3, 1e-4 * most, equal_nan=True)).sum())} of {g.size} elements differ"
  return ""


class Invalid(Exception):
  """The program cannot be run with numbers either."""


def wanted(program: SizedCalls) -> list[Outcome]:
  with config(dynamic="never", dev="NUMPY", verify=0), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try: return [call() for call in outcomes(program, "NUMPY", True)]
    except Exception as e: raise Invalid(f"{type(e).__name__}: {e}") from None


def run(program: SizedCalls, device: str) -> Problem | None:
  """The first thing that goes wrong. Raises Invalid for a program that cannot be run with numbers."""
  want, made, i, before = wanted(program), Made(), 0, 0
  dynamic = "always" if "always" in program.mode else "auto"
  try:
    with config(dynamic=dynamic, dev=device), made.counting(), np.errstate(all="ignore"):
      for i, call in enumerate(outcomes(program, device, False)):
        if i == len(program.calls) - STEADY: before = made.all
        if wrong := differs(call(), want[i]): return Problem("wrong value", i, wrong)
  except CaptureError: return None   # what may not be captured is another fuzzer's
  except Exception as e: return Problem(type(e).__name__, i, str(e))
  if program.mode == "steady" and i >= 9 and made.all > before:
    return Problem("compiles late", i, f"{made.all - before} plans in the last {STEADY} of {i + 1} calls")
  if many := made.too_many(): return Problem("compiles again", i, many)
  return None


# ---- printing and shortening

def source(program: SizedCalls, device: str, problem: Problem | None = None) -> str:
  """A program as Python that anyone can run; it prints what the calls give, and what they give at numbers."""
  mode, floats = program.mode, [name for name, _, dtype in program.inputs if dtype == "float32"]
  names = ", ".join([name for name, _, _ in program.inputs])
  lines = ["import sys", "", "import numpy as np", "", "from ntgrad import Tensor, Variable, config, jit", "",
           f'config.dev, never = "{device}", "never" in sys.argv']
  if "always" in mode: lines.append('config.dynamic = "always"')
  lines += ['if never: config.dynamic, config.dev, config.jit = "never", "NUMPY", 0',
            f"s = Tensor(np.zeros(({STATE}, 8), np.float32))", "",
            *["@jit(dynamic={0: (0, 1)})" if "dynamic" in mode else "@jit"] * ("jit" in mode),
            program.text("jit" in mode), "", f"for n, m, k in {list(program.calls)}:"]
  if "variables" in mode:
    lines += ["  if not never:", "    n, m, k = [Variable(v, 0, 2000).bind(i) for v, i in zip('nmk', (n, m, k))]"]
  for name, shape, dtype in program.inputs:
    value = f"np.random.default_rng({ord(name[-1])}).integers(-3, 4, ({shape},))"
    lines.append(f"  {name} = Tensor({value}.astype(np.int32))" if dtype == "int32" else
                 f"  {name} = Tensor(({value} / 2).astype(np.float32){', requires_grad=True' if 'gradient' in mode else ''})")
  lines.append(f"  out = p({'' if 'jit' in mode and 'variables' not in mode else 'n, m, k, '}{names})")
  if "gradient" in mode:
    lines += ["  sum([((t.float() * 0.5).tanh() + t.float() * 0.01).sum() for t in out], x0.sum()).backward()",
              f"  out += [x.grad for x in ({', '.join(floats)},)]"]
  lines.append(f"  print([t.numpy() for t in (*out, s, {names})])")
  said = f", call {problem.at} {program.calls[problem.at]}: {problem.what}: {problem.detail}" if problem else ""
  return "\n".join([f"# {mode}{said}".replace("\n", " ")[:400], *lines, ""])


def candidates(program: SizedCalls) -> Iterator[SizedCalls]:
  """Programs with one thing less."""
  for step in (4, 2, 1):
    for at in range(0, len(program.calls) - step + 1, step):
      if step < len(program.calls): yield replace(program, calls=program.calls[:at] + program.calls[at + step:])
  for i in range(len(program.body) - 1, -1, -1):
    made = program.body[i].split(" = ")[0]
    gone, body = {made} if re.fullmatch(r"t\d+", made) else set[str](), list(program.body[:i])
    for text in program.body[i + 1:]:
      if used(text) & gone: gone |= {m[0]} if (m := re.match(r"t\d+(?= = )", text)) else set()
      else: body.append(text)
    results = tuple([r for r in program.results if not used(r) & gone])
    if not results and body: results = (body[-1].split(" = ")[0],) if re.match(r"t\d+ = ", body[-1]) else ()
    if results: yield replace(program, body=tuple(body), results=results)
  for i in range(len(program.results)):
    if len(program.results) > 1: yield replace(program, results=program.results[:i] + program.results[i + 1:])
  for i in range(1, len(program.inputs)):
    if not any(program.inputs[i][0] in used(t) for t in (*program.body, *program.results)):
      yield replace(program, inputs=program.inputs[:i] + program.inputs[i + 1:])
  for i, text in enumerate(program.body):
    for simpler in simpler_texts(text): yield replace(program, body=program.body[:i] + (simpler,) + program.body[i + 1:])
  for i, v in enumerate(program.calls):
    for smaller in ((2, 2, 1), (3, 2, 1), (5, 8, 1), (v[0], 8, v[2]), (v[0], v[1], 0), (v[0], v[1], 1)):
      if smaller != v and smaller <= v: yield replace(program, calls=program.calls[:i] + (smaller,) + program.calls[i + 1:])


def size(program: SizedCalls) -> tuple[int, int, int]:
  return len(program.body) + len(program.inputs), len(program.calls), len(program.text()) + sum(map(sum, program.calls))


def shortened(program: SizedCalls, problem: Problem, device: str, seconds: float = 20) -> tuple[SizedCalls, Problem]:
  """The simplest program found with the same kind of problem."""
  until, tried, found = time.monotonic() + seconds, {program}, True
  while found and time.monotonic() < until:
    found = False
    for p in candidates(program):
      if time.monotonic() > until: break
      if p in tried or size(p) >= size(program): continue
      tried.add(p)
      forget()
      try: other = run(p, device)
      except Exception: continue
      if other is not None and other.kind == problem.kind:
        program, problem, found = p, other, True
        break
  return program, problem


def forget() -> None:
  """Forget all plans: what was met before changes what is guessed."""
  planner._plans.clear()
