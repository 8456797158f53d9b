"""Applications with something foreign in them: in good ones an expression is replaced by what an application cannot do with, or
only with luck (a call of numpy, a list, a string, None, an unknown name or keyword, too many arguments). The kernel works, or
raises an error of ntgrad's that names the line; never Python's own."""
from __future__ import annotations

import ast
import importlib.util
import os
import random
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as tile
from ntgrad.codegen.ir.config import config
from ntgrad.errors import NtgradError, VerifyError
from ntgrad.tile import Tensor
from support.tile_python import defined

PROGRAMS = int(os.environ.get("FOREIGN", 250))
GOOD = [
  """
  y = tl.exp(x - tl.max(x))
  y = y / tl.sum(y, 0)
""", """
  total = x * 0
  for i in range(3):
    if i % 2 == 0: total += x * i
    else: total = tl.maximum(total, x[i])
  y = total
""", """
  at = x.offsets(0)
  y = tl.load(x.source[at - 1], mask=at > 1, other=-1.0)
  tl.store(y.source[at], x, mask=at == 2)
""", """
  def scaled(a, factor=2.0): return a * factor
  parts = [scaled(x), scaled(x, factor=3)]
  first, second = parts
  y = first + second if n > 1 else -first
""", """
  steps = 0
  while tl.sum(x) + steps < 10:
    steps += 1
  y = tl.cast(steps, tl.float32) + x.to(tl.float16)
""", """
  m = tl.reshape(x, (2, 2))
  m = tl.trans(m)[:, None, 0] + tl.arange(0, 2)[None, :]
  y = tl.sum(tl.dot(m, m), axis=1)[0] + tl.zeros((4,), dtype=tl.float32)
""", """
  values = {"a": x, "b": tl.sort(x)}
  out = sum([values[k] for k in ("a", "b")])
  y += tl.where(tl.cumsum(x, axis=0) > n, out, tl.flip(x, 0))
""", """
  name = f"{n} and {x.shape[0]}"
  assert len(name) > 3, name
  twice = lambda v: v + v
  y = min(twice(x), n) + abs(x) + float(n) * x.dtype.itemsize
""", """
  pid = tl.program_id(0)
  if pid > 0:
    for i in range(pid): y = x + i
  tl.atomic_add(y.source[pid * 4], 1.0)
  y[1] = x[2]
"""]
FOREIGN = """np.exp({0}) | np.sum({0}) | np.asarray({0}) | np.float32(2) | np.ones(4) | np.float64(2) * {0} | np.add({0}, {0})
  | math.exp({0}) | math.pi | round({0}) | abs({0}) | sum({0}) | len({0}) | sorted({0}) | list({0}) | tuple({0})
  | set({0}) | dict({0}) | iter({0}) | type({0}) | str({0}) | repr({0}) | print({0}) | isinstance({0}, int)
  | divmod({0}, 2) | pow({0}, 2) | complex({0}) | int({0}) | float({0}) | bool({0}) | range({0}) | enumerate({0})
  | zip({0}, {0}) | map(len, {0}) | any({0}) | all({0}) | min({0}) | max() | [] | [{0}] | [1, 2] | ({0}, {0}) | () | {{}}
  | {{1: {0}}} | {{{0}}} | None | 'abc' | b'x' | '' | True | 1j | 10 ** 30 | -1 | 1e400 | ... | {0}.nothing | {0}.sum()
  | {0}.shape | {0}.dtype | {0}.T | {0}.source | {0}.offsets() | {0}.stride(0) | {0}.nothing(1) | nothing | nothing({0})
  | tl | tl.nothing | tl.exp | tl.float32 | tl.exp() | tl.exp({0}, {0}) | tl.exp(nothing={0}) | tl.sum({0}, 'a')
  | tl.sum({0}, axis=7) | tl.sum({0}, keep_dims={0}) | tl.zeros({0}) | tl.zeros('ab') | tl.zeros(()) | tl.full((2,), {0})
  | tl.arange({0}) | tl.arange(0, 0) | tl.reshape({0}, (3, None)) | tl.reshape({0}, 'a') | tl.trans({0}, 5)
  | tl.where({0}) | tl.where(None, {0}, {0}) | tl.dot({0}, {0}) | tl.cast({0}, 'nothing') | tl.cast({0}, None)
  | tl.load({0}, mask=1) | tl.load(5) | tl.store({0}, {0}) | tl.load({0}[0]) | tl.cumsum({0}, 'a') | tl.sort({0}, 3)
  | tl.cat({0}, {0}) | tl.broadcast_to({0}, (None,)) | tl.program_id({0}) | tl.program_id(9) | tl.atomic_add({0}, {0})
  | tl.expand_dims({0}, None) | tl.flip({0}, 'a') | tl.topk({0}, {0}) | tl.libdevice.exp({0}) | tl.rand({0}, {0})
  | tl.static_assert({0}) | tl.device_assert({0}) | tl.static_range({0}) | tl.cdiv({0}, 0) | tl.clamp({0}, None, 1)
  | tl.split({0}) | tl.join({0}, {0}) | {0}[{0}] | {0}[0, 0, 0] | {0}['a'] | {0}[None] | {0}[...] | {0}[1.5] | {0}[::0]
  | {0}[[0, 1]] | {0}[()] | {0}({0}) | {0}() | {0} @ {0} | {0} + [1] | {0} + 'a' | {0} + None | 'a' * {0} | [1] * {0}
  | not {0} | ~{0} | -{0} | {0} << {0} | {0} // 0 | {0} ** {0} | 1 / 0 | {0} in {0} | {0} is None | {0} < 'a' | {0} == 'a'
  | {0} == None | {0} if {0} else None | {0} and None | {0} or 'a' | (lambda: {0})() | (lambda q: q)()
  | (lambda *a, **k: a)({0}, k={0}) | (lambda a: a)({0}, {0}) | (lambda a: a)(b={0}) | (q := {0}) | [q for q in {0}]
  | {{q: q for q in {0}}} | f'{{{0}:.2f}}' | f'{{{0}!r}}' | helper({0}) | helper({0}, {0}) | helper(*{0}) | helper(**{0})
  | helper(nothing={0}) | broken({0}) | recursive({0}) | ntgrad.exp({0}) | ntgrad.Tensor({0}) | ntgrad.Tensor([1.0])
  | ntgrad.nothing | tile.Symbol('n') | tile.Tensor(1) | open | {0} @ [1] | torch.exp({0}) | torch.ones(4)
  | torch.tensor({0}) | F.relu({0}) | F.softmax({0}, 0) | range(0, 5, 0) | range(1, 2, 3, 4) | super()"""
CALLS = [c.strip() for c in FOREIGN.replace("\n ", "").split(" | ")]
STATEMENTS = [
  "del {0}", "with {0}: pass", "try: pass\nexcept: pass", "raise ValueError({0})", "global q", "import nothing",
  "from math import nothing", "class A: pass", "break", "continue", "for q in {0}: pass", "while {0}: q = {0}", "q, r = {0}",
  "q, *r = {0}", "{0}.a = 1", "q[0] = {0}", "return {0}", "assert {0}", "assert None, 'no'", "q: int = {0}", "q += {0}", "{0}",
  "match {0}:\n  case _: pass", "async def f(): pass", "if {0}: q = 1\nelse: q = 'a'", "def f(a): return f(a)\nf({0})",
  "yield {0}", "for q, r in [1, 2]: pass", "nonlocal q"]
TORCH = "import torch, torch.nn.functional as F\n" if importlib.util.find_spec("torch") else ""
HEAD = "import math, numpy as np, ntgrad, ntgrad.tile as tile\n" + TORCH + """
def helper(a): return a + 1
def broken(a): return np.exp(a)
def recursive(a): return recursive(a)
"""


class Replaced(ast.NodeTransformer):
  """With another expression in the place of one."""
  def __init__(self, old: ast.expr, new: ast.expr): self.old, self.new = old, new
  def visit(self, node: ast.AST) -> Any: return self.new if node is self.old else self.generic_visit(node)


def expressions(tree: ast.AST) -> list[ast.expr]:
  """The expressions that may be another one."""
  strings = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
  return [n for n in ast.walk(tree)
          if isinstance(n, ast.expr) and id(n) not in strings and not isinstance(getattr(n, "ctx", None), ast.Store)]


def written(seed: int) -> str:
  """A program with something foreign in it."""
  r = random.Random(seed)
  tree = ast.parse("def program(x, y, n):" + r.choice(GOOD))
  for _ in range(r.choice((1, 1, 1, 2))):
    around = ast.unparse(r.choice(expressions(tree))) if r.random() < 0.4 else r.choice(("x", "y", "n", "x[0]", "tl.sum(x)"))
    if r.random() < 0.15:
      body = r.choice([n.body for n in ast.walk(tree) if isinstance(n, (ast.For, ast.FunctionDef, ast.If))])
      try: new = ast.parse(r.choice(STATEMENTS).format(around)).body
      except SyntaxError: continue
      at = r.randrange(len(body) + 1)
      body[at:at] = new
      continue
    try: expression = ast.parse(r.choice(CALLS).format(around), mode="eval").body
    except SyntaxError: continue   # an f-string in an f-string
    tree = Replaced(r.choice(expressions(tree)), expression).visit(tree)
  return HEAD + ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def check(seed: int, device: str = "NUMPY") -> str:
  """Run a program; what came of it."""
  text = written(seed)
  try: fn = defined(text)
  except (SyntaxError, ValueError): return "no Python"
  file = fn.__code__.co_filename
  kernel = tile.make(lambda x, y, n: (x.tile((4,)), y.tile((4,)), n), fn, (Tensor(1), Tensor(1), Tensor(0, constexpr=True)))
  x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
  try:
    with config(dev=device):
      if "while" in text: kernel.specialise(x, y, 2)   # it may not end
      else: kernel(x, y, 2)
  except VerifyError as e:   # a program that writes where another one does is refused by the oracle
    assert "a race" in str(e) or "nothing has written" in str(e), f"seed {seed}: {e}\n{text}"
    return "refused at the launch"
  except NtgradError as e:
    said = str(e)
    assert file + ":" in said or "stores nothing" in said or "returns a value" in said, f"seed {seed}: no line: {said}\n{text}"
    assert "itself fails" not in said, f"seed {seed}: {said}\n{text}"
    return "refused"
  except Exception as e: raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}\n{text}") from e
  return "runs"


@pytest.mark.filterwarnings("ignore")
def test_foreign_expressions(capfd: pytest.CaptureFixture[str]) -> None:
  found = [check(seed) for seed in range(PROGRAMS)]
  assert found.count("refused") > PROGRAMS // 3 and found.count("runs") > PROGRAMS // 20
