"""Targets: every number of a heuristic has a name where one finds it, every field is asked for, and choices follow what it
says."""
from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ntgrad import Tensor
from ntgrad.backends.cuda.renderer import TARGET
from ntgrad.backends.opencl.renderer import OpenCLRenderer
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.choose.gpu_cost import estimate
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import CompileError
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.linearizer import linearize
from ntgrad.engine.compile import program_spec
from ntgrad.schedule import create_schedule, schedule_graph

ROOT = Path(__file__).resolve().parents[2]
CPU = Target("opencl", lanes=8, registers=16, cores=2, local_memory=512 << 10)
PLAIN = {0, 1, 2, 4}    # none, one, a pair, and the bytes of a 32-bit element


def kernel(*outputs: Tensor) -> Kernel: return create_schedule(list(outputs))[-1].ast


def trees() -> list[tuple[Path, ast.Module]]:
  return [(p, ast.parse(p.read_text())) for f in ("codegen", "backends", "ntgrad/engine", "ntgrad/schedule", "ntgrad/tile")
          for p in sorted((ROOT / f).rglob("*.py"))]


@pytest.mark.parametrize("name", ["cpu", "cpu_panels", "gpu", "gpu_cost"])
def test_numbers_have_names(name: str) -> None:
  """What a heuristic goes by stands in Target or at the top of its file."""
  tree = ast.parse((ROOT / "codegen" / "choose" / f"{name}.py").read_text())
  found = [f"line {n.lineno}: {n.value}" for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)
           if isinstance(n, ast.Constant) and type(n.value) in (int, float) and n.value not in PLAIN]
  assert not found, found


def test_every_field_is_asked_for() -> None:
  asked = {
    n.attr
    for _, tree in trees()
    for n in ast.walk(tree)
    if isinstance(n, ast.Attribute)
    and isinstance(n.ctx, ast.Load)
    and (
      isinstance(n.value, ast.Name) and n.value.id == "target" or isinstance(n.value, ast.Attribute) and n.value.attr == "target"
    )
  }
  assert [f.name for f in fields(Target) if f.name not in asked] == []


def test_targets_are_typed() -> None:
  """Who is given a target says so, and a caller's mistake is found before anything runs."""
  found = [f"{p.relative_to(ROOT)}:{n.lineno}" for p, tree in trees() for n in ast.walk(tree)
           if isinstance(n, ast.arg) and n.arg == "target" and isinstance(n.annotation, ast.Name) and n.annotation.id == "Any"]
  assert found == []


def test_choices_follow_the_target() -> None:
  """Each of these fields, changed alone, changes what is chosen."""
  large, small, row, columns = (
    Tensor.empty(4096, 4096) + 1,
    Tensor.empty(64, 64) + 1,
    Tensor.empty(64, 8192).sum(1),
    Tensor.empty(8192, 512).sum(0),
  )
  half = Tensor.empty(4096, 4096, dtype="float16")
  product, exact = half @ half, Tensor.empty(512, 512) @ Tensor.empty(512, 512)
  gpu = Target("opencl", locals=True)
  cases: list[tuple[Target, Tensor, dict[str, object]]] = [
    (CPU, large, {"stream": 1 << 40}),
    (CPU, large, {"start_cycles": 1 << 20}),
    (CPU, row, {"cores": 64}),
    (CPU, large, {"lanes": 4}),
    (CPU, exact, {"registers": 4}),
    (CPU, exact, {"core_cache": 1 << 10}),
    (CPU, exact, {"local_memory": 0}),
    (gpu, small, {"work_items": 16}),
    (TARGET, large, {"mapped": 4096}),
    (TARGET, row, {"row": 4096}),
    (TARGET, row, {"block": 1024, "row": 1024}),
    (TARGET, columns, {"cores": 8}),
    (TARGET, product, {"dots": ((64, 64),)}),
    (TARGET, exact, {"exact_dot": (32, 32, 32)}),
    (TARGET, product, {"row_bytes": 64}),
    (TARGET, product, {"cache": 1 << 40}),
    (TARGET, product, {"group": 2}),
    (TARGET, product, {"waves": 100}),
    (TARGET, product, {"descriptors": False}),
  ]
  for target, output, changed in cases:
    k = kernel(output)
    assert optimize(k, target).applied != optimize(k, replace(target, **changed)).applied, changed


def test_what_an_inner_axis_does_not_change_costs_once() -> None:
  """Statistics of rows are computed before the loop over a row, whose lanes lie along memory; not in blocks of rows."""
  for n, wide in ((48, 16), (32, 8)):
    x, mean, variance = Tensor.empty(n, 8, 27 * 27), Tensor.empty(n, 1, 1), Tensor.empty(n, 1, 1)
    k = optimize(kernel((x - mean) * (variance + 1e-5).rsqrt()), replace(CPU, lanes=wide, registers=32))
    store, = k.body
    assert not k.of_kind(AxisKind.UPCAST)
    assert [a.rng in store.src[1].src[-1].ranges for a in k.of_kind(AxisKind.LANE)] == [True]


def test_sums_are_cut_for_the_core_cache() -> None:
  """A convolution's weight gradient is summed in parts whose inputs fit."""
  w = Tensor.empty(16, 32, 3, 3)
  slope = (Tensor.empty(32, 16, 30, 30) * Tensor.empty(32, 32, 32, 32).conv2d(w)).sum().gradient(w)[0].lazydata
  plain, cut = (len(schedule_graph([slope], Target("opencl", core_cache=n))[1]) for n in (64 << 20, 256 << 10))
  assert plain < cut


def test_estimates_follow_the_target() -> None:
  k = optimize(kernel(Tensor.empty(4096, 512) @ Tensor.empty(512, 4096)), TARGET)
  before = estimate(k, TARGET)
  for worse in ({"bandwidth": 1e12}, {"cores": 16}, {"iteration": 1e-6}, {"start_bytes": 1 << 20},
      {"accumulators": 1 << 10}, {"local_memory": 8 << 10}):
    assert estimate(k, replace(TARGET, **worse)) > before, worse   # type: ignore[arg-type]


def test_a_dtype_that_the_device_lacks() -> None:
  """A sentence, not the log of a compiler."""
  x = Tensor.empty(8, dtype="float64")
  device: Any = SimpleNamespace(
    name="CL:1", renderer=OpenCLRenderer(replace(CPU, dtypes=tuple(d for d in dtypes.all if d is not dtypes.float64)))
  )
  with pytest.raises(CompileError, match="kernel E_8: CL:1 has no float64; cast to another dtype before"):
    program_spec(kernel(x + 1), device)
  assert "float" in program_spec(kernel(Tensor.empty(8) + 1), device)[0].source.text


def test_without_a_target_nothing_is_chosen() -> None:
  """The plainest target is what a kernel is lowered for then: the same list."""
  k = kernel(Tensor.empty(64, 64).sum(1))
  assert list(map(str, linearize(k))) == list(map(str, linearize(k, Target("none")))) and not k.of_kind(AxisKind.LANE)
