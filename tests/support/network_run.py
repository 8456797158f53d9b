"""Running the program of a network: on machines that are not here, where every kernel is chosen, lowered, rendered and its
launches checked, and on this one's CPU, where its values are compared with plain loops'."""
from __future__ import annotations

import math
import re
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator

import numpy as np

from ntgrad import Device, Tensor, Variable, config
from ntgrad.codegen.choose.candidates import refusals

from .devices import missing
from .network_build import grown
from .network_draws import Draw
from .network_machines import MACHINES, Machine, opened
from .network_program import PRELUDE, Program

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Failure:
  """What went wrong with a network: where (a machine, or "values"), the error's kind and text, and the code that shows it."""
  where: str
  what: str
  settings: str
  code: str

  @property
  def cause(self) -> str:
    """The error without names and numbers: failures that have it alike are probably one."""
    return re.sub(r"\b[a-z]+\d*(_\w+)+|\d+", "#", self.what.split("\n")[0])[:160]


class Nothing:
  """The generator of numbers on a machine that has no memory."""
  def standard_normal(self, shape: Any) -> Array: return np.zeros(shape, np.float32)
  def random(self, shape: Any) -> Array: return np.zeros(shape, np.float32)
  def integers(self, low: int, high: int, shape: Any) -> Array: return np.zeros(shape, np.int32)


@contextmanager
def default(device: str) -> Iterator[None]:
  """A device as the default one; modes are given back too."""
  before = Device.assigned, Tensor.training
  Device.DEFAULT = device
  try: yield
  finally: Device.assigned, Tensor.training = before


def results(program: Program, drawn: Any = None, nudge: float = 0) -> list[list[Tensor]]:
  """Run a program on the default device: what each of its calls gives, realized. ``drawn`` draws the numbers instead of its own
  generator; ``nudge`` changes all numbers by about that part of them."""
  env: dict[str, Any] = {}
  exec(PRELUDE, env)
  if drawn is not None: env["rng"] = drawn
  if nudge:
    other, values, data = np.random.default_rng(1), env["values"], env["rng"]
    def near(a: Array) -> Array: return np.asarray(a) * (1 + nudge * other.uniform(-1, 1, np.shape(a)))
    env["values"] = lambda name, shape: near(values(name, shape))
    env["data"] = lambda *shape, dtype="float32": Tensor(near(data.standard_normal(shape)).astype("float32"), dtype=dtype)
  exec(program.body, env)
  out = []
  for call in program.calls:
    made = env["step"](*[Variable(f"n{x}", 1, most).bind(n) if most else n for x, n, most in zip("bt", call, program.bounds)])
    Tensor.realize(*made)
    out.append(made)
  return out


def on(machine: Machine, program: Program) -> int:
  """Make all kernels of a program for a machine, and check their launches. Gives how many are new."""
  device = opened(machine)
  before = device.count
  refusals.clear()
  with default(machine.device), config(verify=1): results(program, Nothing())
  if refusals: raise AssertionError(f"Opts that were chosen were dropped: {'; '.join(map(str, refusals))}")
  return device.count - before


# ---- values
def computed(program: Program, nudge: float = 0) -> list[list[Array]]:
  """The values of all results of a program, as float64."""
  return [[t.cast("float32").numpy().astype(np.float64) for t in call] for call in results(program, None, nudge)]


def compare(program: Program, machine: Machine, oracle: bool) -> str:
  """What differs between a program's values on this CPU, with code as for ``machine``, and those of plain loops: "" for nothing.

  How much two right ways of computing may differ is measured: the loops' own values change so much where every number that goes
  in changes by some roundings. A result may differ by some times that, and by roundings of the largest."""
  if missing("CPU"): return ""
  with default("CPU"), config(**dict(machine.settings)): got = computed(program)
  half = "float16" in program.body
  eps = 2.0 ** (-8 if "bfloat16" in program.body else -11 if half else -22)
  with default("NUMPY" if oracle else "CPU"), config(noopt=1): want = computed(program)
  spread: list[list[float]] = [[0.0] * len(call) for call in want]
  problem = ""
  for k in range(4):
    with default("CPU"), config(noopt=1): near = computed(program, eps * 2 ** k)
    for call, pair in enumerate(zip(want, near)):
      for i, (a, b) in enumerate(zip(*pair)): spread[call][i] = max(spread[call][i], _distance(a, b))
    problem = differs(got, want, spread, eps)
    if not problem: return ""
  return problem


def _distance(a: Array, b: Array) -> float:
  """The greatest difference of finite elements; infinite where one has an element that is not finite and the other has not."""
  if not np.array_equal(np.isfinite(a), np.isfinite(b)): return math.inf
  return float(np.abs(np.where(np.isfinite(a), a, 0) - np.where(np.isfinite(b), b, 0)).max(initial=0))


def differs(got: list[list[Array]], want: list[list[Array]], spread: list[list[float]], eps: float) -> str:
  """The first result that differs by more than 16 times its spread."""
  for call, (gs, ws) in enumerate(zip(got, want)):
    for i, (g, w) in enumerate(zip(gs, ws)):
      most = float(np.abs(w[np.isfinite(w)]).max(initial=0))
      if g.shape != w.shape: return f"call {call}, result {i}: shape {g.shape}, plain loops have {w.shape}"
      if not _distance(g, w) <= 16 * (spread[call][i] + eps * most):
        return (f"call {call}, result {i} of shape {g.shape} differs by {_distance(g, w):.3g}; by rounding it would by "
                f"{spread[call][i]:.3g}, the greatest value is {most:.3g}")
  return ""


# ---- all of it
def said(e: BaseException) -> str:
  """An error, and the last place in ntgrad that it came from."""
  frames = [f for f in traceback.extract_tb(e.__traceback__) if "/support/" not in f.filename and not f.filename.startswith("<")]
  at = f" [{re.sub('.*/', '', frames[-1].filename)}:{frames[-1].lineno} {frames[-1].name}]" if frames else ""
  text = str(e).strip().split("\n")
  return f"{type(e).__name__}: {text[0][:300]}{at}"


def tried(d: Draw, built: bool = True) -> tuple[list[Failure], int]:
  """Everything that is asked of a network: the failures, and how many kernels were made that had not been before."""
  try: program = grown(d.spec)
  except Exception as e: return [Failure("growing", said(e), "", f"# kinds: {', '.join(d.spec.kinds)}\n")], 0
  found, made = [], 0
  for name in d.machines:
    machine = MACHINES[name]
    try: made += on(machine, program)
    except Exception as e: found.append(Failure(name, said(e), machine.environment, program.text))
  return found + (wrong_values(d) if built and d.spec.small else []), made


def wrong_values(d: Draw) -> list[Failure]:
  """What differs between the values of a network on this CPU, with code as for a CPU among its machines, and plain loops'. Every
  second one's loops are the oracle's, which sees what is read that nobody wrote."""
  machine, program = next((MACHINES[m] for m in d.machines if m.startswith("cpu")), MACHINES["cpu2x256"]), grown(d.spec)
  try: problem = compare(program, machine, d.spec.oracle)
  except Exception as e: problem = said(e)
  return [Failure("values", problem, machine.environment, program.text)] if problem else []
