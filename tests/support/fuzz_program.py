"""Random programs run on ntgrad and on the model, compared, printed as Python, and cut down to the shortest that still fails."""
from __future__ import annotations

import ast
import re
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Callable, Iterator

import numpy as np

import ntgrad
from ntgrad.errors import CaptureError, GradientError

from . import fuzz_model as model
from .fuzz_generate import Function, Line, Program, namespace
from .same_recipes import recipes_compared

STEP = 1e-5   # of finite differences, which are of the fourth order; NaN where that is too coarse
TOLERANCE = 1e-5, 1e-6   # relative and absolute


def defined(s: Line | Function) -> set[str]:
  """The names that a statement makes."""
  if isinstance(s, Function): return {s.name}
  if s.text.endswith(".backward()"): return {"grad"}
  m = re.match(r"(?:with \w+\(\w*\): )?(\w+(?:, \w+)*) = ", s.text)
  return set(m.group(1).split(", ")) if m else set()


@cache
def used(text: str) -> set[str]: return set(re.findall(r"[A-Za-z_]\w*", text))


@cache
def compiled(text: str) -> Any:
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")   # simpler texts may be nonsense
    return compile(text, "<program>", "exec")


@dataclass
class Expected:
  """What the model says of a program: the values of its checks, which statements may be refused, which were left out."""
  values: dict[int, Any] = field(default_factory=dict)
  refusable: set[int] = field(default_factory=set)
  skipped: set[int] = field(default_factory=set)


def _model_run(program: Program, refused: set[int], session: model.Session) -> Expected:
  out, got = Expected(), list[Any]()
  env = namespace(got.append)
  missing: set[str] = set()
  model.begin(session)
  for i, s in enumerate(program):
    if i in refused or used(s.text) & missing:
      missing |= defined(s)
      out.skipped.add(i)
      continue
    session.refusable = False
    exec(compiled(s.text), env)
    if session.refusable: out.refusable.add(i)
    if got:
      out.values[i] = got.pop()
      if isinstance(out.values[i], model.Tensor): raise model.Undefined
  env.clear()
  return out


def expect(program: Program, refused: set[int], exact: bool) -> Expected:
  """The model's run, without the statements that were refused. Raises where the model has no rule."""
  session = model.Session(exact)
  out = _model_run(program, refused, session)
  if exact or not session.losses: return out
  gradients = {}
  for k, leaf in enumerate(session.leaves):
    slopes = []
    for e in range(leaf.memory.flat.size):
      rise = {}
      for n in (1, 2, 4):
        ends = []
        for h in (n * STEP, -n * STEP):
          s = model.Session(exact, (k, e, h), session.constants)
          _model_run(program, refused, s)
          ends.append(s.losses[0])
        rise[n] = ends[0] - ends[1]
      # the error of the first is a 16th of the second's
      fine, coarse = ((8 * rise[n] - rise[2 * n]) / (12 * n * STEP) for n in (1, 2))
      slopes.append(fine if np.isclose(fine, coarse, *TOLERANCE) else np.nan)   # too steep: nothing is known
    gradients[k] = np.round(slopes, 8).reshape(leaf.shape)
  last = model.Session(exact)
  last.gradients = gradients
  out = _model_run(program, refused, last)
  if not any((~(np.abs(g) <= 1e-9)).any() for g in gradients.values()):   # no leaf is beneath the loss
    out.refusable |= {i for i, s in enumerate(program) if s.text.endswith(".backward()")}
  return out


def ntgrad_names() -> dict[str, Any]:
  """What programs take from ntgrad."""
  def grad(t: Any) -> Any: return np.zeros(t.shape) if t.grad is None else t.grad.numpy()
  return {"Tensor": ntgrad.Tensor, "jit": ntgrad.jit, "no_grad": ntgrad.no_grad, "grad": grad}


@dataclass(frozen=True)
class Problem:
  """What went wrong, and at which statement."""
  what: str
  at: int
  detail: str
  refused: frozenset[int] = frozenset()

  @property
  def kind(self) -> str:
    """The same for the same mistake elsewhere: the error and how its message begins."""
    if self.what == "wrong value": return self.what
    return " ".join([self.what, *re.sub(r"[\d'\"]|\(.*?\)|\[.*?\]|\b[fg]:", "", self.detail).split()[:5]])


def differs(got: Any, want: Any, exact: bool) -> str:
  """Empty where a value is the one expected."""
  g, w = np.asarray(got), np.asarray(want)
  if g.shape != w.shape: return f"shape {g.shape}"
  if not exact and np.isnan(w).any(): g = np.where(np.isnan(w), w, g)
  if isinstance(want, np.ndarray) and g.dtype != w.dtype: return f"dtype {g.dtype}"
  if not (np.array_equal(g, w) if exact else np.allclose(g, w, *TOLERANCE, equal_nan=True)): return f"{g.tolist()}"
  return ""


def run(program: Program, exact: bool, names: Callable[[], dict[str, Any]] = ntgrad_names) -> Problem | None:
  """The first thing that goes wrong, in a program of gradients also that a recipe gives others than rules do. Raises whatever the
  model raises for a program that it has no rule for."""
  with nullcontext() if exact else recipes_compared(): return _first_problem(program, exact, names)


def _first_problem(program: Program, exact: bool, names: Callable[[], dict[str, Any]]) -> Problem | None:
  refused: set[int] = set()
  want = expect(program, refused, exact)
  got: list[Any] = []
  env = {**namespace(got.append), **names()}
  def problem(what: str, detail: str) -> Problem: return Problem(what, i, detail, frozenset(refused))
  try:
    for i, s in enumerate(program):
      if i in want.skipped: continue
      try: exec(compiled(s.text), env)
      except (CaptureError, GradientError) as e:
        if i not in want.refusable: return problem(type(e).__name__, str(e))
        refused.add(i)
        want = expect(program, refused, exact)
      except Exception as e: return problem(type(e).__name__, str(e))
      if got and (wrong := differs(got.pop(), want.values[i], exact)): return problem("wrong value", wrong)
    return None
  finally: env.clear()


# ---- printing
CHECK = '''def check(got, want, dtype=None):
  got = np.asarray(got)
  assert dtype is None or got.dtype == dtype, got.dtype
  assert got.shape == np.shape(want) and {same}, f"{{got.tolist()}}, not {{want}}"
'''


def source(program: Program, exact: bool, problem: Problem | None = None, device: str | None = None) -> str:
  """A program as Python that anyone can run, with the values that the model expects."""
  want = expect(program, set(problem.refused) if problem else set(), exact)
  lines = []
  for i, s in enumerate(program):
    text = s.text
    if i in want.values:
      v = want.values[i]
      dtype = f", np.{v.dtype.name}".replace("np.bool", "np.bool_") if isinstance(v, np.ndarray) else ""
      text = f"{text[:-1]}, {np.asarray(v).tolist()}{dtype})" if np.asarray(v).size or isinstance(v, list) else \
             f"{text[:-1]}, np.zeros({v.shape}){dtype})"
    elif i in want.skipped and not (problem and i in problem.refused): continue
    elif i in want.skipped: text = f"try: {text}\nexcept (CaptureError, GradientError): pass   # which it may"
    elif i in want.refusable: text += f"   # or {'Gradient' if text.endswith('.backward()') else 'Capture'}Error"
    if problem and i == problem.at: text += f"   # {problem.what}: {problem.detail}".replace("\n", " ")[:300]
    lines.append(text)
  body = "\n".join(lines)
  errors = sorted(set(re.findall(r"\w+Error", re.sub(r"#.*", "", body))))
  names = [n for n in ("Device", "Tensor", "jit", "no_grad") if re.search(rf"\b{n}\b", body) or (n == "Device" and device)]
  head = [
    "import numpy as np",
    *(["from pytest import raises"] if "raises(" in body else []),
    "",
    f"from ntgrad import {', '.join(names)}",
    *([f"from ntgrad.errors import {', '.join(errors)}"] if errors else []),
    "",
  ]
  if "check(" in body:
    head.append("\n" + CHECK.format(same="np.array_equal(got, want)" if exact else "np.allclose(got, want, 1e-5, 1e-6)"))
  if "grad(" in body: head.append("\ndef grad(t): return np.zeros(t.shape) if t.grad is None else t.grad.numpy()\n")
  if device: head.append(f'\nDevice.DEFAULT = "{device}"')
  return "\n".join([*head, body, ""])


# ---- the shortest
def without(program: Program, drop: set[int]) -> Program:
  """Without some statements, and without those that need what they made."""
  gone: set[str] = set()
  out: list[Line | Function] = []
  for i, s in enumerate(program):
    if isinstance(s, Function): s = _fewer(s, set(), gone)
    if i in drop or used(s.text) & gone:
      if not s.text.startswith("del "): gone |= defined(s)
    else: out.append(s)
  return tuple(out)


def _fewer(f: Function, drop: set[int], gone: set[str]) -> Function:
  """A function without some lines of its body, and those that need them or names that are gone."""
  gone, body = set(gone) - set(f.params), []
  for i, text in enumerate(f.body):
    if i in drop or used(text) & gone: gone |= defined(Line(text))
    else: body.append(text)
  return replace(f, body=tuple(body), results=f.results if not gone & set(f.results) else f.results)


def _renamed(program: Program, start: int, old: str, new: str) -> Program:
  def text(s: str) -> str: return re.sub(rf"\b{old}\b", lambda _: new, s)
  return tuple(s if k < start else Line(text(s.text)) if isinstance(s, Line) else
               replace(s, body=tuple(map(text, s.body)), results=tuple(map(text, s.results))) for k, s in enumerate(program))


def _tensors_in(text: str, name: str) -> list[str]:
  """The tensors that a definition uses, which may take the place of what it defines."""
  return sorted(n for n in used(text.split(" = ", 1)[-1]) - {name} if re.fullmatch(r"[xt]\d+|[abc]", n))


class _Simpler(ast.NodeTransformer):
  """Puts another node in the place of one."""
  def __init__(self, old: ast.AST, new: ast.AST | None): self.old, self.new = old, new
  def visit(self, node: ast.AST) -> Any: return self.new if node is self.old else super().generic_visit(node)


@cache
def simpler_texts(text: str) -> tuple[str, ...]:
  """A line with one thing simpler: a method or index left out, one side of an operator, a smaller number, a slice with less."""
  out = []
  for k, node in enumerate(ast.walk(ast.parse(text))):
    new: list[ast.AST | None] = []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute): new = [node.func.value, *node.args]
    elif isinstance(node, (ast.Subscript, ast.Attribute)): new = [node.value]
    elif isinstance(node, ast.BinOp): new = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp): new = [node.operand]
    elif isinstance(node, ast.Compare): new = [node.left]
    elif isinstance(node, ast.Slice):
      new = [
        ast.Slice(*[None if p == q else getattr(node, q) for q in ("lower", "upper", "step")])
        for p in ("lower", "upper", "step")
        if getattr(node, p) is not None
      ]
    elif isinstance(node, (ast.Tuple, ast.List)) and len(node.elts) > 1:
      new = [type(node)(node.elts[:j] + node.elts[j + 1:], node.ctx) for j in range(len(node.elts))]
    elif isinstance(node, ast.Tuple) and node.elts: new = [node.elts[0]]
    elif isinstance(node, ast.keyword): new = [None]
    elif isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0:
      new = [ast.Constant(v) for v in sorted({0, 1, 2, 3, node.value - 1}) if v < node.value]
    for n in new:
      tree = ast.parse(text)
      nodes = list(ast.walk(tree))
      try: out.append(ast.unparse(ast.fix_missing_locations(_Simpler(nodes[k], n).visit(tree))).replace(":\n    ", ": "))
      except Exception: continue
  return tuple(dict.fromkeys(out))


def size(program: Program) -> tuple[int, int, int]:
  """Less is simpler: lines, characters, and the sum of all numbers."""
  text = "\n".join(s.text for s in program)
  return text.count("\n"), len(text.replace(" ", "")), sum(int(n) for n in re.findall(r"\b\d{1,4}\b", text))


def _arguments(text: str) -> list[str]:
  """The arguments of a call, split at its own commas."""
  out, depth = [""], 0
  for c in text:
    depth += (c in "([") - (c in ")]")
    if c == "," and not depth: out.append("")
    else: out[-1] += c
  return [a.strip() for a in out if a.strip()]


def _without_parameter(program: Program, f: Function, k: int) -> Program:
  out: list[Line | Function] = []
  for s in program:
    if s is f: s = _fewer(replace(f, params=f.params[:k] + f.params[k + 1:]), set(), {f.params[k]})
    elif isinstance(s, Line) and (m := re.match(rf"(.*\b{f.name}\()(.*)\)$", s.text)):
      args = _arguments(m.group(2))
      s = Line(f"{m.group(1)}{', '.join(args[:k] + args[k + 1:])})")
    out.append(s)
  return tuple(out)


def _without_result(program: Program, f: Function, k: int) -> Program:
  out: list[Line | Function] = []
  for s in program:
    if s is f: s = replace(f, results=f.results[:k] + f.results[k + 1:])
    elif isinstance(s, Line) and (m := re.match(rf"(.*) = ({f.name}\(.*)", s.text)):
      names = m.group(1).split(", ")
      names.pop(k)
      s = Line(f"{', '.join(names)}{' = ' * bool(names)}{m.group(2)}")
    out.append(s)
  kept = {n for s in out for n in defined(s)}
  gone = {n for s in program for n in defined(s)} - kept
  return without(tuple(out), {i for i, s in enumerate(out) if used(s.text) & gone})


def candidates(program: Program) -> Iterator[Program]:
  """Programs with one thing less, those with much less first."""
  n = len(program)
  step = n // 2
  while step:
    for at in range(n - step, -1, -step): yield without(program, set(range(at, at + step)))
    step //= 2
  for i, s in enumerate(program):
    if isinstance(s, Function):
      def put(f: Function, i: int = i) -> Program: return program[:i] + (f,) + program[i + 1:]
      for k in range(len(s.body)): yield put(_fewer(s, {k}, set()))
      for k in range(len(s.params)): yield _without_parameter(program, s, k)
      for k in range(len(s.results)): yield _without_result(program, s, k)
      for k, text in enumerate(s.body):
        for name in defined(Line(text)):
          for other in _tensors_in(text, name):
            def text_of(t: str, a: str = name, b: str = other) -> str: return re.sub(rf"\b{a}\b", b, t)
            yield put(replace(s, body=s.body[:k] + tuple(map(text_of, s.body[k + 1:])), results=tuple(map(text_of, s.results))))
        for simpler in simpler_texts(text): yield put(replace(s, body=s.body[:k] + (simpler,) + s.body[k + 1:]))
    else:
      names = defined(s)
      if len(names) == 1 and "raises" not in s.text:
        name = next(iter(names))
        if name.startswith("h") and len(re.findall(rf"\b{name}\b", "\n".join(t.text for t in program))) == 2:
          yield without(_renamed(program, i + 1, name, s.text.split(" = ", 1)[1]), {i})   # host values put where they are used
        for other in _tensors_in(s.text, name): yield without(_renamed(program, i + 1, name, other), {i})
      for simpler in simpler_texts(s.text): yield program[:i] + (Line(simpler),) + program[i + 1:]


def minimise(program: Program, fails: Callable[[Program], bool], seconds: float = 20) -> Program:
  """The simplest program found that still fails; ``fails`` is False for programs that the model has no rule for."""
  until, tried = time.monotonic() + seconds, {program}
  found = True
  while found and time.monotonic() < until:
    found = False
    for p in candidates(program):
      if time.monotonic() > until: break
      if p in tried or size(p) >= size(program): continue
      tried.add(p)
      if fails(p):
        program, found = p, True
        break
  return program


def minimised(program: Program, problem: Problem, exact: bool, names: Callable[[], dict[str, Any]] = ntgrad_names,
              seconds: float = 20) -> tuple[Program, Problem]:
  """The simplest program with the same kind of problem, and the problem there."""
  last = [problem]
  def fails(p: Program) -> bool:
    try: found = run(p, exact, names)
    except Exception: return False
    if found is None or found.kind != problem.kind: return False
    last[0] = found
    return True
  return minimise(program[:problem.at + 1] if fails(program[:problem.at + 1]) else program, fails, seconds), last[0]
