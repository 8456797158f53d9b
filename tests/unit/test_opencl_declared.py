"""The declarations that stand before a program in the place of OpenCL's header."""
from __future__ import annotations

import re

import numpy as np
import pytest

from ntgrad.backends.opencl import declared as declarations
from ntgrad.backends.opencl.compiler import OPTIONS, is_pocl
from ntgrad.backends.opencl.declared import WITHOUT_HEADER, declared
from ntgrad.backends.opencl.device import OpenCLDevice, available

pytestmark = pytest.mark.skipif(not available()[0], reason=available()[1])
DOT = "__kernel void f(__global const float* x, __global float* out) { out[0] = dot(vload4(0, x), vload4(0, x)); }"


@pytest.fixture(scope="module")
def device() -> OpenCLDevice:
  found = OpenCLDevice("CPU")
  if not is_pocl(found.device): pytest.skip("the driver is not PoCL")
  return found


def test_they_say_what_the_header_says(device: OpenCLDevice) -> None:
  """The same types and attributes of the same functions: another result would be refused, another function ambiguous."""
  text = "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n" + "\n".join(declarations._DECLARED.values())
  text += "\n__kernel void f(void) {}"
  device.compiler.load_program(OPTIONS, text)
  wrong = text.replace("float __attribute__((overloadable, const)) exp(float)", "int __attribute__((overloadable)) exp(float)")
  with pytest.raises(device.cl.Error, match="conflicting types"): device.compiler.load_program(OPTIONS, wrong)


def test_only_what_is_called_is_declared() -> None:
  text = declared("void f_exp(float a) { atomic_add (p, 1); exp_0(a); sin(a); }")
  assert set(re.findall(r"\)\) (\w+)\(", text)) == {"atomic_add", "sin"}


@pytest.mark.parametrize("scalar", [1, 1.0])
def test_every_type_of_a_function_is_there(device: OpenCLDevice, scalar: float) -> None:
  """Nothing is converted on the way to a function: what is ambiguous with the header is so without it."""
  for source in (f"__kernel void f(__global double* x) {{ x[0] = sin({scalar}); x[1] = sin((float)x[1]); }}",
                 "__kernel void f(__global long* x) { x[0] = min(x[0], 1); }"):
    built = []
    for options, text in ((OPTIONS, source), (f"{OPTIONS} {WITHOUT_HEADER}", declared(source))):
      try: built.append(device.compiler.load_program(options, text) is not None)
      except device.cl.Error: built.append(False)
    assert built[0] == built[1], source


def test_what_is_not_declared_is_built_with_the_header(device: OpenCLDevice) -> None:
  before = device.compiler.whole
  x = np.arange(4, dtype=np.float32)
  assert device.run(DOT, "f", [x], 1) == [14]
  assert device.compiler.whole == before + 1
  device.run(DOT.replace("dot(vload4(0, x), vload4(0, x))", "vload4(0, x).s2"), "f", [x], 1)
  assert device.compiler.whole == before + 1
