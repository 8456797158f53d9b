"""A CPU that PoCL's compiler does not know gets the name of a level of the x86-64 ABI."""
from __future__ import annotations

import sys

import pytest

from ntgrad.backends.opencl import cpuname
from ntgrad.backends.opencl.device import find, is_pocl

V2 = {"fpu", "sse2", "cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"}
V3 = V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def test_levels() -> None:
  assert [cpuname.level(f) for f in (V4, V4 - {"avx512vl"}, V3 - {"fma"}, {"fpu"})] == \
    ["x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"]


def test_only_a_cpu_that_llvm_calls_generic() -> None:
  known = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3"
  assert not cpuname.missing(known) and not cpuname.missing("OpenCL 3.0 PoCL HSTR: pthread-aarch64-unknown-linux-gnu-generic")
  if sys.platform == "linux": assert cpuname.missing(known.replace("znver3", "generic")).startswith("x86-64")


def test_the_name_is_found_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
  """In a description like the driver's: words, among them no addresses, and the address of the name."""
  import ctypes
  if sys.platform != "linux": pytest.skip("reads /proc")
  name, other, triple = [ctypes.create_string_buffer(s) for s in (b"generic", b"generically", b"x86_64-pc-linux-gnu")]
  at = [ctypes.addressof(b) for b in (name, other, triple, name)]
  words = (ctypes.c_uint64 * 200)(*[3] * 78, *at, *[2**63] * 100)
  class Device:
    version = "PoCL HSTR: pthread-x86_64-pc-linux-gnu-generic"
    int_ptr = ctypes.addressof(words)
  cpuname.give_name(Device())
  assert ctypes.string_at(words[81]).decode() == cpuname.missing(Device.version)
  assert list(words[:81]) == [3] * 78 + at[:3]
  before = list(words)
  cpuname.give_name(Device())   # again: nothing to be done
  assert list(words) == before


def test_no_device_is_left_with_it() -> None:
  device = find("CPU")
  if not is_pocl(device): pytest.skip("another driver")
  assert cpuname._find(device.int_ptr) is None
