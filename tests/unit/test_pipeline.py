"""The pipeline: each pass before and after, what the verifier refuses between them, and how it is looked at."""
from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.codegen import index as ix, pipeline
from ntgrad.codegen.explain.printing import form_text, index_form
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import ConfigError, VerifyError
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps, UOp
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.kernel.linear import UOpList
from ntgrad.codegen.kernel.rewrite import rewrite, substitute
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.codegen.passes.additions import MOST_ADDITIONS, additions, is_float_sum, limit_additions
from ntgrad.codegen.passes.parts import Part, Parts
from ntgrad.codegen.verify.forms import verify_form
from ntgrad.schedule import create_schedule
from tests.support.linear import Lines
from tests.support.statements import F32, Builder, at, for_, if_, run

LANES = Target("lanes", lanes=8, cores=2, local_memory=1 << 20)
ADD = BinaryOps.ADD


def scheduled(t: Tensor) -> Kernel: return create_schedule(t)[-1].ast


def after(name: str, kernel: Kernel, target: Any = None) -> str:
  """What is printed once a pass is done."""
  return form_text(pipeline.run_passes(kernel, target, pipeline.PASSES[0].name, name))


def row_sums(rows: int = 4, columns: int = 8) -> Kernel: return scheduled(Tensor.empty(rows, columns).sum(1))


def two_statements() -> Kernel:
  """t = running sum of x, y = t * 2 where it is positive: over blocks of 16 of 40 elements."""
  b = Builder()
  g, i = b.grid(3), b.tile(16)
  out, x = b.param((40,), written=True), b.param((40,))
  t = b.variable((16,))
  inside = ix.lt(at(g, 16, i), 40)
  return b.kernel(t.set(i, x.load(at(g, 16, i), inside).scan(ADD, i)), if_(t[0] > 0, [out.set(at(g, 16, i), t[i] * 2, inside)]))


# ---- the rewriter
def test_rewrite_rebuilds_what_reads_a_node_that_changed_and_nothing_else() -> None:
  k = row_sums()
  total, = k.reduces
  body = rewrite(k.body, {Ops.REDUCE: lambda old, new: UOp.alu(BinaryOps.MUL, new, UOp.const(new.dtype, 2))})
  assert body[0].src[2].src[0] is total and body[0].src[1] is k.body[0].src[1]
  assert rewrite(k.body, {}) == rewrite(k.body, {Ops.REDUCE: lambda old, new: None}) == k.body


def test_rules_see_a_node_before_and_after_with_indices_in_canonical_form() -> None:
  a = ix.rng(0, 8)
  seen: list[tuple[UOp, UOp]] = []
  load = UOp(Ops.LOAD, F32, (UOp(Ops.DEFINE_GLOBAL, F32, (), (0, "data0", False)), UOp(Ops.INDEX, ix.INT, (ix.add(a, 1),))))
  out, = rewrite((load,), {Ops.RANGE: lambda old, new: ix.const(3), Ops.LOAD: lambda old, new: seen.append((old, new))})
  assert seen == [(load, out)] and out.src[1].src == (ix.const(4),)
  assert substitute((load,), {a: ix.const(3)}) == (out,)


def test_what_equals_no_other_stays_so() -> None:
  b = Builder()
  i = b.loop(4)
  x = b.param((4,), written=True)
  first, second = x.set(i, 1.0), x.set(i, 1.0)
  new = substitute((first, second), {i.rng: ix.const(0)})
  assert first is not second and new[0] is not new[1] and new[0].is_unique and new[1].is_unique
  assert UOp.const(F32, 1.0).replace(()) is UOp.const(F32, 1.0)


# ---- the passes
def test_tiles() -> None:
  b = Builder()
  g, i = b.grid(4), b.tile(16)
  out, x = b.param((64,), written=True), b.param((64,))
  k = b.kernel(out.set(at(g, 16, i), x[at(g, 16, i)] * 2))
  assert after("tiles", k) == """\
axes   a0:64 GRID
data0  (64,) float, written
data1  (64,) float
store data0[a0] = data1[a0] * 2."""
  assert "a0:4 GRID, a1:16 TILE" in after("tiles", k, Target("blocks", blocks=True))


def test_statements() -> None:
  assert after("statements", two_statements(), LANES) == """\
t0 = 0.
LOOP a1:16 0 16
  t0 = t0 + data1[gidx0 * 16 + a1]
    where data1[gidx0 * 16 + a1]: gidx0 * 16 + a1 < 40
  v0[a1] = t0
ENDLOOP
IF 0. < v0[0]
  IF gidx0 * 16 < 25
    # a1:16 LOOP
    store data0[gidx0 * 16 + a1] = v0[a1] * 2.
  ELSE
    # a1:16 LOOP
    store data0[gidx0 * 16 + a1] = v0[a1] * 2.
      where data0[gidx0 * 16 + a1]: gidx0 * 16 + a1 < 40
  ENDIF
ENDIF"""
  k = row_sums()
  assert pipeline.prepare(k, LANES) == Parts(k, (Part(k),))


def test_opts_of_a_plain_kernel_and_of_each_statement() -> None:
  parts = pipeline.run_passes(scheduled(Tensor.empty(64, 64) + 1), LANES, "tiles", "opts")
  assert parts.kernel.applied and [p.kernel for p in parts.all()] == [parts.kernel]
  text = after("opts", two_statements(), LANES)
  assert text.count("; opts a1.") == 2 and "a1:16 LANE" in text
  with config(noopt=1): assert "opts" not in after("opts", two_statements(), LANES)


@pytest.mark.parametrize("n", [64, 67, 2047, 5000, 10007, 100_000])
def test_additions(n: int) -> None:
  """Without Opts, by hand, and where a round of the loop adds several values: no accumulator takes more than 64 in a row."""
  b = Builder()
  g, i = b.grid(2), b.loop(n)
  out, x = b.param((2,), written=True), b.param((2, n))
  k = b.kernel(out.set(g, x[g, i].sum(i)))
  hand = Linearizer(k).unroll(1, 4).kernel if n % 4 == 0 else k
  for kernel in (k, hand):
    limited = limit_additions(kernel)
    assert all(additions(limited, u) <= MOST_ADDITIONS for u in limited.reduces if is_float_sum(u))
    assert (limited.body == kernel.body) == (n == 64)
    if any(a.size > MOST_ADDITIONS for a in kernel.axes): assert len(limited.applied) > len(kernel.applied)   # DEBUG=3 lists them
  data = np.random.default_rng(0).integers(-4, 5, (2, n)).astype(np.float32)
  np.testing.assert_array_equal(run(k, NumpyDevice(), [np.zeros(2, np.float32), data], False)[0], data.sum(1))
  if n > 64:
    with pytest.raises(VerifyError, match="additions one after the other"): verify_form("expanded", Parts.of(k))
  ints = scheduled(Tensor.empty(2, n, dtype="int32").sum(1))
  assert limit_additions(ints).body == ints.body


def test_expand() -> None:
  k = Linearizer(row_sums()).unroll(1, 2).upcast(0, 2).kernel
  parts = pipeline.run_passes(Parts.of(k), None, "additions", "expand")
  part, = parts.all()
  # a STORE a row, a REDUCE of two sources in each
  assert len(part.roots) == 2 and all(len(r.src[2].src) == 2 for r in part.roots)
  assert all(s.dtype is dtypes.index for r in part.roots for s in r.src[1:2])


def test_place_and_widths() -> None:
  ordered = pipeline.run_passes(Parts.of(row_sums()), None, "additions", "place")
  linear = pipeline.run_passes(ordered, None, "widths", "widths")
  assert (
    [u.op.name for u in ordered]
    == [u.op.name for u in linear]
    == [
      "DEFINE_GLOBAL",
      "DEFINE_GLOBAL",
      "SPECIAL",
      "DEFINE_ACC",
      "CONST",
      "CONST",
      "ALU",
      "LOOP",
      "ALU",
      "LOAD",
      "ALU",
      "PHI",
      "ENDLOOP",
      "STORE",
    ]
  )

  def widths(uops: UOpList) -> set[Any]: return {u.dtype for u in uops if u.dtype.kind == "i" and u.op is not Ops.ENDLOOP}
  assert widths(ordered) == {dtypes.index} and widths(linear) == {dtypes.int32}
  far = pipeline.run_passes(Parts.of(scheduled(Tensor.empty(1 << 20, 1 << 12) + 1)), None, "additions", "widths")
  assert widths(far) == {dtypes.int32, dtypes.int64}


def test_a_statement_may_stand_in_loops_that_come_twice() -> None:
  """Two FORs over one axis, one after the other and around different statements."""
  b = Builder()
  g, n, i = b.grid(2), b.loop(3), b.tile(4)
  out = b.param((2, 4), written=True)
  v = b.variable((4,))
  twice = for_(n, v.set(i, v[i] + 1)), for_(n, v.set(i, v[i] * 2), for_(b.loop(2), v.set(i, v[i] + 1)))
  k = b.kernel(v.set(i, 0), *twice, out.set((g, i), v[i]))
  want = 3.0
  for _ in range(3): want = want * 2 + 2
  for opts in (False, True):
    np.testing.assert_array_equal(
      run(k, NumpyDevice(), [np.zeros((2, 4), np.float32)], opts)[0], np.full((2, 4), want, np.float32)
    )


def test_floats() -> None:
  """Rounded where it is stored, not between two operations; a choice between narrow values stays narrow."""
  p = Lines()
  half = dtypes.float16
  out, x = p.buf(0, half, True), p.load(p.buf(1, half), 0)
  y = p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, x, x), p.const(half, 0.5))
  p.store(out, 0, p.alu(TernaryOps.WHERE, p.alu(BinaryOps.CMPLT, x, y), x, p.const(half, 2.0)))
  p.store(out, 1, y)
  uops = pipeline.run_passes(p.uops, None, "floats", "floats")
  verify_form("linear", uops)
  values = [(u.op, u.arg, u.dtype) for u in uops if u.op in (Ops.ALU, Ops.CAST)]
  assert values == [
    (Ops.CAST, None, F32), (Ops.ALU, BinaryOps.MUL, F32), (Ops.ALU, BinaryOps.ADD, F32),
    (Ops.ALU, BinaryOps.CMPLT, dtypes.bool), (Ops.ALU, TernaryOps.WHERE, half), (Ops.CAST, None, half)]


def masked_products(dtype: DType, n: int = 16) -> UOpList:
  """Two loops, each with acc + sum[k](x[i, k] * y[k, j] where k < 12)."""
  p = Lines()
  out, x, y = p.buf(0, F32, True), p.buf(1, dtype), p.buf(2, dtype)
  i, j, k = (p.add(Ops.RANGE, dtypes.int32, (), (axis, n)) for axis in range(3))
  def at(a: UOp, b: UOp) -> UOp: return p.alu(BinaryOps.ADD, p.alu(BinaryOps.MUL, a, n), b)
  left, right, place, inside = at(i, k), at(k, j), at(i, j), p.alu(BinaryOps.CMPLT, k, 12)
  acc = p.acc(F32, 0.0)
  for end in (4, 5):
    loop = p.loop(0, end)
    a, b = (p.cast(p.load(buffer, p.alu(BinaryOps.ADD, index, loop)), F32) for buffer, index in ((x, left), (y, right)))
    product = p.alu(TernaryOps.WHERE, inside, p.alu(BinaryOps.MUL, a, b), p.const(F32, 0.0))
    total = p.add(Ops.REDUCE, F32, (product,), (BinaryOps.ADD, (2,)))
    acc = p.phi(acc, p.alu(BinaryOps.ADD, total, acc), loop)
    p.end(loop)
  p.store(out, place, acc)
  return p.uops


@pytest.mark.parametrize("dtype, fp8, factors", [
  (dtypes.float16, False, dtypes.float16), (dtypes.float8_e4m3, True, dtypes.float8_e4m3), (dtypes.float8_e4m3, False, F32)])
def test_dots(dtype: DType, fp8: bool, factors: DType) -> None:
  """The factors as the target multiplies them, zero where the sum leaves them out, and the accumulator; valid in every loop."""
  uops = pipeline.run_passes(masked_products(dtype), Target("blocks", blocks=True, fp8_dots=fp8), "floats", "dots")
  verify_form("linear", uops)
  found = [u for u in uops if u.op is Ops.REDUCE]
  assert [u.arg for u in found] == [("dot", (2,))] * 2
  for u in found:
    assert [s.dtype for s in u.src] == [factors, factors, F32] and u.src[2].op in (Ops.DEFINE_ACC, Ops.PHI)
    assert all(s.arg is TernaryOps.WHERE and s.src[2].arg == 0 for s in u.src[:2])
  first, bad = found[0], []
  bad.append((first.replace((first.src[2], *first.src[1:])), "factors of one dtype and an accumulator of dtypes.float"))
  bad.append((first.replace((*first.src, first.src[2])), "two factors and maybe an accumulator, got 4 sources"))
  bad.append((first.replace(first.src, arg=("dot", 2)), r"the arg of REDUCE is \('dot', \(axis id,\)\), got"))
  for u, words in bad[factors is F32:]:
    with pytest.raises(VerifyError, match=words): verify_form("linear", [*uops[:uops.index(first)], u])


# ---- between the passes
def broken(form: str) -> tuple[Any, str]:
  """A program of a form with a mistake, and a part of what is said of it."""
  k = row_sums()
  store, = k.body
  if form == "index": return k.with_(axes=k.axes[:1]), "the kernel does not have"
  if form == "parts": return Parts.of(k.with_(body=(UOp(Ops.STORE, F32, store.src[:1]),))), "STORE has 3 to 4 sources"
  part = pipeline.run_passes(Parts.of(k), None, "additions", "expand").items[0]
  if form == "expanded": return Parts(k, (replace(part, roots=k.body),)), "INDEX does not belong in the expanded form"
  uops = pipeline.run_passes(Parts(k, (part,)), None, "place", "place")
  if form == "ordered": return UOpList(uops[:-2] + uops[-1:]), "stands between a PHI and its ENDLOOP"
  return uops, "has dtype index"


@pytest.mark.parametrize("form", dict.fromkeys(p.gives for p in pipeline.PASSES))
def test_every_form_is_checked(form: str) -> None:
  wrong, says = broken(form)
  with pytest.raises(VerifyError, match=says): verify_form(form, wrong, "k")


def test_copies_that_were_not_made_are_refused() -> None:
  k = Linearizer(row_sums()).upcast(0, 2).kernel
  at_index = ix.add(ix.mul(k.axes[0].rng, 2), k.axes[1].rng)
  root = UOp(Ops.STORE, F32, (k.params[0].uop, at_index, UOp.const(F32, 1.0)))
  with pytest.raises(VerifyError, match="copies of axis"): verify_form("expanded", Parts(k, (Part(k, (root,)),)))


def test_each_pass_takes_what_the_one_before_gives() -> None:
  for one, two in zip(pipeline.PASSES, pipeline.PASSES[1:]): assert one.gives == two.takes
  assert all((p.about.__doc__ or "").strip() for p in pipeline.PASSES) and len({p.name for p in pipeline.PASSES}) == len(
    pipeline.PASSES
  )


# ---- looking
def test_show_prints_the_form_after_passes(capsys: pytest.CaptureFixture[str]) -> None:
  k = row_sums()
  with config(show="tiles, widths"): pipeline.linearize(k)
  out = capsys.readouterr().out
  assert "after widths" in out and "UOps.PHI" in out and "after place" not in out
  with config(show="tiles"): pipeline.prepare(k, None, "r_4_8")
  assert capsys.readouterr().out == f"---- r_4_8 after tiles\n{index_form(k)}\n"
  with config(show="fold"), pytest.raises(ConfigError, match="no pass 'fold'; passes: scales, tiles, one_pass, longest, masks"):
    pipeline.linearize(k)


def test_the_list_prints_itself() -> None:
  done = subprocess.run([sys.executable, "-m", "ntgrad", "passes"], capture_output=True, text=True, timeout=100, check=True)
  assert done.stdout == pipeline.listing() + "\n"
  assert [line.split()[1] for line in done.stdout.splitlines()] == [p.name for p in pipeline.PASSES]


def test_axes_of_the_expanded_form() -> None:
  """What is left after expansion: axes of programs, work-items and loops; blocks on targets that have them."""
  k = Linearizer(scheduled(Tensor.empty(32, 64).sum(1))).lane(0, 8).unroll(1, 4).kernel
  part, = pipeline.run_passes(Parts.of(k), None, "additions", "expand").all()
  kinds = {k.axis(r.arg[0]).kind for u in part.roots for r in u.ranges}
  assert kinds <= {AxisKind.GRID, AxisKind.LOOP}


def test_few_nodes_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
  """To lower a convolution with many copies, for each node of its program: indices of copies are steps apart, and what is so
  already is not made again."""
  x, w = Tensor.empty(4, 16, 32, 32), Tensor.empty(32, 16, 3, 3)
  target = Target("lanes", lanes=8, cores=2, registers=16, local_memory=1 << 20)
  parts = pipeline.run_passes(scheduled(x.conv2d(w, padding=1).relu()), target, "scales", "opts")
  made = [0]
  real = UOp.__new__
  def counted(*args: Any) -> UOp:
    made[0] += 1
    return real(*args)
  monkeypatch.setattr(UOp, "__new__", counted)
  uops = pipeline.finish(parts, target)
  assert len(uops) > 200 and made[0] < 5.5 * len(uops), (made[0], len(uops))
