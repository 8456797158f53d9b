"""Every combination of Opts computes what the plain loops compute.

On whole numbers the results must be equal (order of additions does not matter), on others within rounding. The oracle runs many
combinations, OpenCL a few of each kernel in one program, Triton's interpreter a few with blocks, a GPU more of those.
"""
from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ntgrad.backends.base import Device
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.target import Target
from ntgrad.engine.device import default_device, get_device
from support import triton
from support.devices import needs_cuda
from support.kernels import GRAPHS as ALL, ODD, launch, spec
from support.machines import MACHINES
from support.marks import long, long_after, long_half, long_where
from support.opts import check, plain, random_kernels, seed

GRAPHS = {name: make for name, make in ALL.items() if name != "cumsum"}   # of a scan the pass makes loops first


@long_where(lambda name: "gradient" in name)
@pytest.mark.parametrize("name", long_half(GRAPHS))
@settings(max_examples=20)
@given(data=st.data())
def test_numpy_whole(name: str, data: st.DataObject) -> None:
  check(get_device("NUMPY"), name, True, lambda xs: data.draw(st.sampled_from(list(xs))))


@pytest.mark.parametrize("name", GRAPHS)
@settings(max_examples=5)
@given(data=st.data())
def test_numpy_any(name: str, data: st.DataObject) -> None:
  check(get_device("NUMPY"), name, False, lambda xs: data.draw(st.sampled_from(list(xs))))


@long_where(lambda name: "gradient" in name)
@pytest.mark.skipif(default_device() != "CPU", reason="no OpenCL device")
@pytest.mark.parametrize("name", long_half(GRAPHS))
def test_opencl(name: str) -> None:
  rng = random.Random(seed(name))
  check(get_device("CPU"), name, True, lambda xs: rng.choice(list(xs)), 4)


@long_where(lambda name: "conv" in name or "gradient" in name)
@triton.needs_triton
@pytest.mark.parametrize("name", GRAPHS)
def test_triton_interpreted(name: str) -> None:
  rng = random.Random(seed(name))
  check(get_device(triton.NAME), name, True, lambda xs: rng.choice(list(xs)), 3)


@triton.needs_triton
@pytest.mark.parametrize("start", long_after(1, range(4)))
def test_random_kernels_interpreted(start: int) -> None: random_kernels(get_device(triton.NAME), range(start, 64, 4), 2)


@pytest.mark.parametrize("start", long_after(2, range(4)))
def test_random_kernels_numpy(start: int) -> None: random_kernels(get_device("NUMPY"), range(start, 120, 4), 4)


@pytest.mark.skipif(default_device() != "CPU", reason="no OpenCL device")
@pytest.mark.parametrize("start", long_after(1, range(2)))
def test_random_kernels_opencl(start: int) -> None: random_kernels(get_device("CPU"), range(start, 16, 2), 3)


@needs_cuda
@pytest.mark.parametrize("start", long_after(2, range(10)))
def test_random_kernels_cuda(start: int) -> None: random_kernels(get_device("CUDA"), range(start, 200, 10), 4)


@needs_cuda
@pytest.mark.parametrize("name", GRAPHS)
def test_cuda(name: str) -> None:
  rng = random.Random(seed(name, "cuda"))
  check(get_device("CUDA"), name, True, lambda xs: rng.choice(list(xs)), 24)


# a start of a program that costs little makes many programs of small kernels
TARGETS = {"avx2": Target("opencl", lanes=8, registers=16, cores=2, local_memory=512 << 10),
           "many cores": Target("opencl", lanes=16, registers=32, cores=64, start_cycles=500, local_memory=512 << 10),
           "avx512": Target("opencl", lanes=16, registers=32, cores=4, local_memory=512 << 10),
           "neon": Target("opencl", lanes=4, registers=32, cores=8, local_memory=32 << 10),
           "gpu": Target("opencl", locals=True, cores=80, local_memory=48 << 10)}


@long_where(lambda target: target.lanes == 16)
@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
@pytest.mark.parametrize("name", [*GRAPHS, *ODD])
def test_heuristics_on_the_oracle(name: str, target: Target) -> None:
  """What the optimiser chooses for OpenCL machines, evaluated with numpy: bounds, races and values."""
  chosen(get_device("NUMPY"), name, target)


@long
@pytest.mark.skipif(default_device() != "CPU", reason="no OpenCL device")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", [*GRAPHS, *ODD])
def test_heuristics_opencl(name: str, machine: str) -> None:
  """What the optimiser chooses for different CPUs, run."""
  device = get_device("CPU")
  with config(**MACHINES[machine]): chosen(device, name, device.renderer.target)


@triton.needs_triton
@pytest.mark.parametrize("name", GRAPHS)
def test_heuristics_interpreted(name: str) -> None:
  """What the optimiser chooses for a small chip with blocks."""
  chosen(get_device(triton.NAME), name, Target("triton", cores=4, blocks=True, descriptors=True))


def chosen(device: Device, name: str, target: Target) -> None:
  for k, data, want in plain(name, True):
    best = optimize(k, target)
    got = launch(device, [spec(best, name.replace(" ", "_"))], k, data)[0]
    for g, w in zip(got, want):
      np.testing.assert_allclose(
        g.astype(np.float64), w.astype(np.float64), rtol=1e-5, atol=1e-5, err_msg=f"{name} after {best.applied}"
      )
