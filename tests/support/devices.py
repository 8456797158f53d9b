"""The devices that tests run over: a name each, and whether this machine has it."""
from __future__ import annotations

from functools import cache

import pytest

from ntgrad.backends.cuda import driver
from ntgrad.backends.opencl.device import available as opencl, find, import_opencl
from ntgrad.codegen.ir.errors import DeviceError

from . import triton

HAS_CUDA, NO_CUDA = driver.available()
needs_cuda = pytest.mark.skipif(not HAS_CUDA, reason=NO_CUDA)


def _opencl_gpu() -> bool:
  try: return bool(find("CL").type & import_opencl().device_type.GPU)
  except DeviceError: return False


DEVICES = ["NUMPY", "CPU", triton.NAME, *(["CUDA"] if HAS_CUDA else []), *(["CL"] if _opencl_gpu() else [])]


@cache
def missing(device: str) -> str:
  """Why this machine has not the device; empty where it has."""
  if device == "CPU": return "" if opencl()[0] else "no OpenCL device"
  if device == triton.NAME: return "" if triton.INSTALLED else triton.REASON
  return NO_CUDA if device == "CUDA" and not HAS_CUDA else ""
