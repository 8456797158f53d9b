"""Opening devices by name: "CPU" and "CL" through OpenCL, "CUDA" through Triton, "NUMPY" the oracle, "TRITON" Triton's
interpreter."""
from __future__ import annotations

import os
import sys

from ntgrad.backends.base import Device
from ntgrad.codegen.config import config
from ntgrad.codegen.errors import DeviceError
from ntgrad.lock import alone

_open: dict[str, Device] = {}


def get_device(name: str) -> Device:
  """The device called ``name``, opened on first use. Raises DeviceError for an unknown or missing one."""
  found = _open.get(name)
  return _opened(name) if found is None else found


@alone
def _opened(name: str) -> Device:
  found = _open.get(name)   # another thread may have opened it
  if found is None: found = _open[name] = _make(name)
  return found


def _after_fork() -> None:
  """In a forked process: what the parent had opened is lost here; asking for it again says so."""
  for name, device in list(_open.items()):
    device.forked()
    if device.lost: del _open[name]


os.register_at_fork(after_in_child=_after_fork)


def _make(name: str) -> Device:
  kind = name.split(":")[0]
  if config.debug >= 1: print(f"opening device {name}", file=sys.stderr)
  if kind == "NUMPY":
    from ntgrad.backends.numpy.device import NumpyDevice
    return NumpyDevice()
  if kind in ("CPU", "CL"):
    from ntgrad.backends.opencl.device import OpenCLDevice
    return OpenCLDevice(name)
  if kind == "CUDA":
    from ntgrad.backends.cuda.device import CUDADevice
    return CUDADevice(name)
  if kind == "TRITON":
    from ntgrad.backends.cuda.interpreter import InterpreterDevice
    return InterpreterDevice()
  raise DeviceError(f"no device {name!r}; devices: CPU, CL, CL:1, .., CUDA, CUDA:1, .., NUMPY, TRITON (interpreted)")


def best() -> str:
  """The best device that the machine has."""
  from ntgrad.backends.cuda.driver import available as cuda, present
  if present():
    found, reason = cuda()
    if found: return "CUDA"
    if config.debug >= 1: print(f"ntgrad: {reason}", file=sys.stderr)
  from ntgrad.backends.opencl.device import available
  found, reason = available()
  if not found: print(f"ntgrad: {reason}; using the slow numpy backend", file=sys.stderr)
  return "CPU" if found else "NUMPY"
