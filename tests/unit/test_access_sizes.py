"""Arrangements of kernels with run-time sizes: which accesses have one, how it reads, and that it is right for every size.

A chain is checked by its text alone: with numbers for the names in it, it is an arrangement of numbers, and has to give the
kernel's own index and gate at every point.
"""
from __future__ import annotations

import random
import re
from typing import Any, Mapping, Sequence

import numpy as np
import pytest

from ntgrad import Tensor, Variable, config
from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.arrangements import ArrangedAccess, arranged_accesses
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import Ops, UOp
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.kernel.arrangement import Arrangement
from ntgrad.codegen.opts import Cover, Pad, Peel, Serial, ShiftInwards, Split, Vectorize
from ntgrad.codegen.pipeline import prepare, run_passes
from support.indices import at_points
from support.opts import seed
from support.sizes import MAKES, NAMES, elementwise, flattened, opts, row_sum, symbols, transposed

TARGETS = {"avx2": Target("opencl", lanes=8, registers=16, cores=2, local_memory=512 << 10),
           "neon": Target("opencl", lanes=4, registers=32, cores=8, local_memory=32 << 10),
           "gpu": Target("opencl", locals=True, cores=80, local_memory=48 << 10),
           "blocks": Target("triton", cores=4, blocks=True, descriptors=True)}
VALUES = ({"M": 48, "N": 32, "K": 16}, {"M": 7, "N": 5, "K": 3}, {"M": 17, "N": 40, "K": 33}, {"M": 2, "N": 1100, "K": 1})
UNITS = ({"M": 48, "N": 32, "K": 16}, {"M": 16, "N": 80, "K": 32})
MOST_POINTS = 1 << 21


def launched(nodes: Sequence[UOp], values: Mapping[str, int]) -> dict[UOp, np.ndarray]:
  """Numbers for the sizes beneath nodes."""
  sizes = {u for n in nodes for u in n.toposort() if u.op is Ops.SIZE}
  return {u: np.asarray(values[u.arg.name] // u.arg.unit) for u in sizes}


def check(kernel: Kernel, access: ArrangedAccess, values: Mapping[str, int]) -> None:
  """The printed chain gives, for these sizes, the index and the gate of the access wherever the kernel gets."""
  axes = [a for level in access.axes for a in level]
  nodes = [access.index, access.gate, *access.where, *kernel.needs, *(a.rng for a in kernel.axes)]
  env = launched(nodes, values)
  if not all(at_points(c, env) for c in kernel.needs): return
  names: dict[str, Any] = {**values, "cdiv": lambda a, b: -(-a // b), "min": min, "max": max}
  shapes = [eval(f"[{text}]", dict(names)) for text in re.findall(r"\((.*)\)", access.levels().replace(" · ", "\n"))]
  counts = [n for shape in shapes for n in shape]
  if 0 in counts or np.prod(counts) > MOST_POINTS: return   # what runs no round touches nothing
  assert len(counts) == len(axes)
  there = np.asarray(True)
  for d, (a, n) in enumerate(zip(axes, counts)):
    env[a.rng] = np.arange(n).reshape([-1 if i == d else 1 for i in range(len(axes))])
  for a in axes: there = there & (env[a.rng] < at_points(ix.node(a.size), env))
  if not there.any(): return
  chain = access.chain().split(".where(")[0]
  arrangement: Arrangement = eval(chain, {**names, f"data{access.param.slot}": lambda *shape: Arrangement.of(shape)})
  assert arrangement.levels == tuple(map(tuple, shapes or [()])), chain
  order = iter(range(len(axes)))
  ranges = [[ix.rng(axes[i].id, counts[i]) for _, i in zip(level, order)] for level in arrangement.levels]
  at, valid = arrangement.pull(ranges)
  points = {r: env[axes[i].rng] for i, r in enumerate(r for level in ranges for r in level)}
  gate = there & at_points(access.gate, env)
  said = at_points(valid, points)
  for c in access.where: said = said & at_points(c, env)
  assert ((said == gate) | ~there).all(), chain
  for mine, theirs in zip(at, access.index.src): assert ((at_points(mine, points) == at_points(theirs, env)) | ~gate).all(), chain


def checked(kernel: Kernel, values: Sequence[Mapping[str, int]] = VALUES) -> list[str]:
  """The chains that are ``.at(…)``; all others are right."""
  found = arranged_accesses(kernel)
  for a in found:
    if a.arrangement is not None:
      for v in values: check(kernel, a, v)
  return [a.chain() for a in found if a.arrangement is None]


def mixed(sizes: Sequence[str], unit: int = 1) -> dict[str, ix.Dim]:
  """Some sizes that the launch gives, and numbers for the others."""
  given = symbols(16, unit)
  return {n: given[n] if n in sizes else v for n, v in VALUES[0].items()}


@pytest.mark.parametrize("name", MAKES)
def test_every_access_of_a_kernel_as_it_is_made(name: str) -> None:
  for sizes in (NAMES, *NAMES, ("M", "N")):
    assert checked(MAKES[name](mixed(sizes)), VALUES if sizes == NAMES else VALUES[:1]) == []


# kernels some of whose accesses are shown by their index: a block of all of M*N has no size that is known; of a loop that is
# shorter for the last program and peeled, backwards or in windows, no chain is found
INDICES = {("whole_sum", "blocks"), ("transposed", "avx2"), ("transposed", "neon"), ("window", "neon"), ("window", "blocks")}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MAKES)
def test_after_the_opts_of_targets(name: str, target: str) -> None:
  for unit, values in ((1, VALUES), (16, UNITS)):
    for part in run_passes(prepare(MAKES[name](symbols(16, unit)), TARGETS[target]), TARGETS[target], "opts", "opts").all():
      as_is = checked(part.kernel, values)
      assert as_is == [] or (name, target) in INDICES, as_is


@pytest.mark.parametrize("name", MAKES)
def test_after_any_opts(name: str) -> None:
  rng = random.Random(seed(name))
  def choose(xs: Sequence[Any]) -> Any: return rng.choice(list(xs))
  for hint in (1, 9, 16, 16, 100, 100): checked(opts(MAKES[name](symbols(hint)), choose, 4), VALUES[1:3])


def chains(kernel: Kernel) -> list[str]:
  assert checked(kernel) == []
  return [f"{a.chain()}  {a.levels()}" for a in arranged_accesses(kernel)]


def after(kernel: Kernel, *steps: Any) -> Kernel:
  for o in steps: kernel = o.apply(kernel)
  return kernel


N = symbols()
TEXTS = {
  "padded": (after(elementwise(N), Pad(0, 4), Split(0, 4)), [
    "data0(M, N).tile((4, 1)).ravel().squeeze(3).permute((0, 2, 1))  GRID (cdiv(M, 4), 4, N)",
    "data1(M, N).tile((4, 1)).ravel().squeeze(3).permute((0, 2, 1))  GRID (cdiv(M, 4), 4, N)",
    "data2(N).unsqueeze(0).unsqueeze(1).expand((cdiv(M, 4), 4, N))  GRID (cdiv(M, 4), 4, N)"]),
  "peeled": (after(row_sum(N), Peel(1, 8), Vectorize(1, 8)), [
    "data0(M)  GRID (M)",
    "data1(M, K).tile((1, 8 * (K // 8)), floor_mode=True).tile((1, 8), level=1).squeeze(1).squeeze(0, level=1)"
    ".squeeze(0, level=2)  GRID (M) · LOOP (K // 8) · tile (8)",
    "data1(M, K).shrink(((0, M), (8 * (K // 8), K))).tile((1, K % 8)).squeeze(1).squeeze(0, level=1)  GRID (M) · LOOP (K % 8)"]),
  "shifted inwards": (after(elementwise(N), ShiftInwards(1, 8)), [
    "data0(M, N).tile((1, 8), shift_inwards=True).ravel().squeeze(2).tile((1, 1, 8)).squeeze(2).squeeze((0, 1), level=1)"
    "  GRID (M, cdiv(N, 8)) · tile (8)",
    "data1(M, N).tile((1, 8), shift_inwards=True).ravel().squeeze(2).tile((1, 1, 8)).squeeze(2).squeeze((0, 1), level=1)"
    "  GRID (M, cdiv(N, 8)) · tile (8)",
    "data2(N).tile((8,), shift_inwards=True).ravel().tile((1, 8)).squeeze(1).unsqueeze(0).expand((M, cdiv(N, 8)))"
    ".squeeze(0, level=1)  GRID (M, cdiv(N, 8)) · tile (8)"]),
  "backwards, the last round shorter": (after(transposed(N), Serial(0, 4)), [
    "data0(M, N).tile((4, 1)).squeeze(1, level=1)  GRID (cdiv(M, 4), N) · LOOP (4)",
    "data1(N, M).tile((1, 4)).permute((1, 0)).squeeze(0, level=1)  GRID (cdiv(M, 4), N) · LOOP (4)",
    "data2(M, N).flip(0).tile((4, 1)).squeeze(1, level=1)  GRID (cdiv(M, 4), N) · LOOP (4)"]),
  "covered": (after(elementwise(N), Cover(1, 32)), [
    "data0(M, N).tile((1, 32)).squeeze(1).squeeze(0, level=1)  GRID (M) · tile (32)",
    "data1(M, N).tile((1, 32)).squeeze(1).squeeze(0, level=1)  GRID (M) · tile (32)",
    "data2(N).pad(((0, 32 - N),)).tile((32,)).expand((M,))  GRID (M) · tile (32)"]),
  "peeled twice": (after(row_sum(N), Peel(1, 8), Vectorize(1, 8), Peel(1, 2)), [
    "data0(M)  GRID (M)",
    "data1(M, K).tile((1, 16 * (K // 16)), floor_mode=True).tile((1, 8), level=1).squeeze(1).squeeze(0, level=1)"
    ".squeeze(0, level=2)  GRID (M) · LOOP (2 * (K // 16)) · tile (8)",
    "data1(M, K).shrink(((0, M), (16 * (K // 16), 8 * (K // 8)))).tile((1, 8 * (K // 8) - 16 * (K // 16))).tile((1, 8), level=1)"
    ".squeeze(1).squeeze(0, level=1).squeeze(0, level=2)  GRID (M) · LOOP (K // 8 - 2 * (K // 16)) · tile (8)",
    "data1(M, K).shrink(((0, M), (8 * (K // 8), K))).tile((1, K % 8)).squeeze(1).squeeze(0, level=1)  GRID (M) · LOOP (K % 8)"]),
  "flattened": (flattened(N), ["data0(M * N)  GRID (M * N)", "data1(M, N).flatten()  GRID (M * N)"]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_how_they_read(name: str) -> None:
  kernel, lines = TEXTS[name]
  assert chains(kernel) == lines


PROGRAMS = {
  "elementwise": lambda x: x(20, 30) * 2 + x(30),
  "softmax": lambda x: x(20, 30).softmax(-1),
  "matmul": lambda x: x(20, 30) @ x(30, 40),
  "batched": lambda x: x(3, 20, 30) @ x(3, 30, 40),
  "transposed": lambda x: x(20, 30).T.contiguous() + 1,
  "flattened": lambda x: x(20, 30, 4).permute(1, 0, 2).reshape(30, 80) + 1,
  "slice": lambda x: x(64, 32)[:Variable("n", 1, 4096).bind(17)] * 2,
  "inner slice": lambda x: x(64, 32)[3:Variable("n", 1, 4096).bind(17), 2:].sum(1),
  "cat": lambda x: x(20, 30).cat(x(12, 30)),
  "columns": lambda x: x(20, 30).sum(0),
}


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
  def x(*shape: int) -> Tensor: return Tensor(np.ones(shape, np.float32), device="NUMPY").realize()
  with config(dynamic="always", debug=3, cache=0, color=0): PROGRAMS[name](x).realize()
  shown = capsys.readouterr().out
  assert "GRID (" in shown and ".at(" not in shown, shown
