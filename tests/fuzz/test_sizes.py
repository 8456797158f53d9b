"""Kernels with run-time sizes, after any Opts and after those that heuristics choose, compute what the kernel with numbers does.

On whole numbers, for sizes that vectors divide and that they do not, 1 among them. The oracle finds what is outside of a memory
and what is written twice.
"""
from __future__ import annotations

import random
from typing import Any, Sequence

import pytest

from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.pipeline import prepare, run_passes
from ntgrad.engine.device import default_device, get_device
from support import plain_c
from support.marks import long, long_after, long_unless, long_where
from support.opts import seed
from support.sizes import MAKES, NUMBERS, Make, opts, random_kernel, same, symbols

TARGETS = {"avx2": Target("opencl", lanes=8, registers=16, cores=2, local_memory=512 << 10),
           "avx512": Target("opencl", lanes=16, registers=32, cores=4, local_memory=512 << 10),
           "neon": Target("opencl", lanes=4, registers=32, cores=8, local_memory=32 << 10),
           "gpu": Target("opencl", locals=True, cores=80, local_memory=48 << 10)}
needs_opencl = pytest.mark.skipif(default_device() != "CPU", reason="no OpenCL device")


def drawn(make: Make, device: str, rng: random.Random, versions: int, most: int = 6) -> None:
  """Versions by random Opts, for sizes with different hints."""
  lanes = device != plain_c.NAME   # plain C has no vectors
  def choose(xs: Sequence[Any]) -> Any: return rng.choice(list(xs))
  made = [opts(make(symbols(rng.choice((1, 9, 16, 100)))), choose, most, lanes) for _ in range(versions)]
  same(make, [(k, None) for k in made], get_device(device), get_device("NUMPY"), NUMBERS)


def heuristics(make: Make, device: str, target: Target) -> None:
  """Versions by the heuristics of a target, for two hints and units, and one that serves any sizes."""
  tried = []
  for hint, unit, free in ((16, 1, False), (100, 16, False), (100, 1, True)):
    kernel = make(symbols(max(hint // unit, 1), unit)).with_(free=free)
    tried.append(run_passes(prepare(kernel, target), target, "opts", "opts"))
    assert not (free and tried[-1].needs)
    where = [n for n in NUMBERS if all(x % unit == 0 for x in n)]
    ran = same(make, [(tried[-1], target)], get_device(device), get_device("NUMPY"), where)
    assert ran or tried[-1].kernel.needs


@pytest.mark.parametrize("name", MAKES)
def test_numpy(name: str) -> None: drawn(MAKES[name], "NUMPY", random.Random(seed(name)), 12)


@needs_opencl
@pytest.mark.parametrize("name", MAKES)
def test_opencl(name: str) -> None: drawn(MAKES[name], "CPU", random.Random(seed(name, "cl")), 3)


@plain_c.needs_cc
@pytest.mark.parametrize("name", MAKES)
def test_plain_c(name: str) -> None: drawn(MAKES[name], plain_c.NAME, random.Random(seed(name, "c")), 3)


@pytest.mark.parametrize("start", long_after(10, range(40)))
def test_random_kernels_numpy(start: int) -> None:
  rng = random.Random(start)
  drawn(random_kernel(lambda xs: rng.choice(list(xs))), "NUMPY", rng, 3)


@plain_c.needs_cc
@pytest.mark.parametrize("start", long_after(2, range(8)))
def test_random_kernels_plain_c(start: int) -> None:
  rng = random.Random(1000 + start)
  drawn(random_kernel(lambda xs: rng.choice(list(xs))), plain_c.NAME, rng, 3)


@long_where(lambda target: target.lanes == 16)
@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
@pytest.mark.parametrize("name", MAKES)
def test_heuristics_on_the_oracle(name: str, target: Target) -> None: heuristics(MAKES[name], "NUMPY", target)


@pytest.mark.parametrize("start", long_unless(lambda start: 0 < start < 5, range(15)))
def test_heuristics_of_random_kernels(start: int) -> None:
  rng = random.Random(2000 + start)
  heuristics(random_kernel(lambda xs: rng.choice(list(xs))), "NUMPY", rng.choice(list(TARGETS.values())))


@long
@needs_opencl
@pytest.mark.parametrize("name", MAKES)
def test_heuristics_opencl(name: str) -> None:
  heuristics(MAKES[name], "CPU", get_device("CPU").renderer.target)
