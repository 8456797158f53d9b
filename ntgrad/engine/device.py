"""Devices by name, opened when they are first used. "CPU" is OpenCL on a CPU, "CL" (also "CL:1", ..) any other OpenCL device,
"CUDA" (also "CUDA:1", ..) an NVIDIA GPU through Triton, "NUMPY" the slow oracle, "TRITON" Triton's interpreter."""
from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ntgrad.codegen.ir import DeviceError, NtgradError, config, in_handler, shown
from ntgrad.graph.lock import synchronized
from ntgrad.graph.origins import blame_caller

from . import later
from .counters import phase

if TYPE_CHECKING:
  from ntgrad.backends.base import Device as Opened

waited: list[Callable[[str], None]] = []   # called with a device's name when the host has waited for what was launched there
LATE = "found when the device was waited for"   # an error of something that was launched before
DEVICE_NAMES = "CPU", "CL", "CUDA", "NUMPY", "TRITON"
_ALIASES = {"OPENCL": "CL", "NP": "NUMPY", "POCL": "CPU"}


def canonical(name: str) -> str:
  """``"cpu"`` → ``"CPU"``, ``"cl:0"`` → ``"CL"``, ``"CL:1"`` stays. Raises DeviceError for a name that no device has."""
  return _canonical(name if isinstance(name, str) else shown(name))


@lru_cache(maxsize=256)
def _canonical(name: str) -> str:
  m = re.fullmatch(r"([A-Za-z]+)(?::(\d+))?", name)
  kind = m[1].upper() if m else ""
  kind = _ALIASES.get(kind, kind)
  if m is None or kind not in DEVICE_NAMES:
    which = ("an NVIDIA GPU is CUDA, any other OpenCL device CL" if kind == "GPU" else
             f"devices are {', '.join(DEVICE_NAMES)}, with a number for all but the first (CL:1)")
    raise DeviceError(f"device {name!r}: no such device; {which}; this machine has {', '.join(_found())}")
  number = int(m[2] or 0)
  return f"{kind}:{number}" if number else kind


# ---- which there are
_there: set[str] = set()   # canonical names of devices that the machine is known to have


def there(name: str) -> str:
  """A canonical name of a device that the machine has; looks for it the first time, and opens nothing. Raises DeviceError."""
  if name not in _there and name not in _open:
    have, why = available(name)
    if not have: raise DeviceError(f"device {name!r} is not there: {why}; this machine has {', '.join(_found())}")
    _there.add(name)
  return name


@synchronized
def available(name: str) -> tuple[bool, str]:
  """Whether the machine has a device, and why not. Drivers are loaded by one thread."""
  kind = name.split(":")[0]
  if kind == "CUDA":
    from ntgrad.backends.cuda import driver
    return driver.available(name)
  if kind == "TRITON":
    from ntgrad.backends.cuda import compiler
    return compiler.available()
  from ntgrad.backends.opencl import device
  return (True, "") if kind == "NUMPY" else device.available(name)


def _found() -> list[str]:
  """The devices that the machine has."""
  out = [name for name in DEVICE_NAMES if available(name)[0]]
  for kind in "CL", "CUDA":
    n = 1
    while kind in out and available(f"{kind}:{n}")[0]:
      out.append(f"{kind}:{n}")
      n += 1
  return out


class DeviceName(str):
  """The canonical name of a device, a str, with PyTorch's ``type`` ("cpu", "cuda", ..) and ``index`` (None for the CPU)."""
  __slots__ = ()

  @property
  def type(self) -> str: return self.partition(":")[0].lower()
  @property
  def index(self) -> int | None:  # type: ignore[override]
    return int(self.partition(":")[2] or 0) if self.type in ("cl", "cuda") else None


device_name = lru_cache(maxsize=256)(DeviceName)   # of a canonical name


# ---- opened devices
_open: dict[str, Opened] = {}


def get_device(name: str) -> Opened:
  """The device called ``name``, opened on first use. Raises DeviceError for an unknown or missing one."""
  return _open.get(name) or _opened(name)


@synchronized
@phase("opening devices")
def _opened(name: str) -> Opened:
  if name not in _open: _open[name] = _make(name)   # else another thread has opened it
  return _open[name]


def open_devices() -> list[Opened]: return [d for d in list(_open.values()) if not d.lost]


def _after_fork() -> None:
  """In a forked process: what the parent had opened is lost here; asking for it again says so."""
  for name, device in list(_open.items()):
    device.forked()
    if device.lost: del _open[name]


os.register_at_fork(after_in_child=_after_fork)


def _make(name: str) -> Opened:
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


@synchronized
def _best_device() -> str:
  """The best device that the machine has, looked for once."""
  if not _best: _best.append(_look())
  return _best[0]


def _look() -> str:
  """CUDA, else CPU, else NUMPY, which is said."""
  from ntgrad.backends.cuda.driver import available as cuda, present
  if present():
    have, reason = cuda()
    if have: return "CUDA"
    if config.debug >= 1: print(f"ntgrad: {reason}", file=sys.stderr)
  from ntgrad.backends.opencl.device import available
  have, reason = available()
  if not have and in_handler():
    raise DeviceError(f"{reason} (in a signal's handler: what it has interrupted may be importing it)")
  if not have: print(f"ntgrad: {reason}; using the slow numpy backend", file=sys.stderr)
  return "CPU" if have else "NUMPY"


# ---- what people see
class Memory(NamedTuple):
  """Bytes on a device: in use now and at most (since the start, or ``reset_peak``), kept for reuse, and what the device has."""
  allocated: int
  peak: int
  pooled: int
  total: int


class _Device:
  """``Device.DEFAULT``: the device that tensors are made on when none is named. Assign a name to change it."""
  assigned: str | None = None

  @property
  def DEFAULT(self) -> str:
    """The default device's canonical name: what was assigned, else ``config.dev`` (``DEV=``), else CUDA, else CPU through OpenCL,
    else NUMPY (said once). Raises DeviceError for one that the machine has not, also where it is assigned."""
    return default_device()

  @DEFAULT.setter
  def DEFAULT(self, name: str | None) -> None: self.assigned = None if name is None else there(canonical(name))

  def canonicalize(self, name: str | None) -> str:
    """The canonical name; None means the default. Raises DeviceError for a name that no device has."""
    return self.DEFAULT if name is None else canonical(name)

  def _located(self, name: str | None) -> str:
    """The same, of a device that the machine has. Raises DeviceError."""
    return self.DEFAULT if name is None else there(canonical(name))

  def get_available_devices(self) -> list[str]:
    """The names of the devices that the machine has. Opens none."""
    return _found()

  def memory(self, name: str | None = None) -> Memory:
    """The bytes that tensors use on a device (None: the default one), not in other libraries' memory. Raises DeviceError."""
    d = get_device(self._located(name))
    return Memory(d.allocated, d.peak, d.pooled, d.memory)

  def reset_peak(self, name: str | None = None) -> None:
    """Start measuring ``memory(name).peak`` anew, from what is in use now. Raises DeviceError."""
    get_device(self._located(name)).reset_peak()

  def optimise(self, name: str | None = None) -> None:
    """Have kernels optimised that were built quickly (see TIERS in ``ntgrad.config``), and wait for that and for what is
    made ahead in threads: what runs on a device (None: the default one) is then as fast as it will be. Raises DeviceError."""
    get_device(self._located(name)).optimise()
    later.wait()

  def synchronize(self, name: str | None = None) -> None:
    """Wait for everything launched on a device (None: the default one). Raises DeviceError, also for what went wrong in it, and
    DeviceAssertError for a ``tl.device_assert`` that did not hold."""
    device = get_device(self._located(name))
    try:
      with phase("waiting"): device.synchronize()
    except NtgradError as e:
      blame_caller(e, LATE)
      raise
    for tell in waited: tell(self.canonicalize(name))

  def __getitem__(self, name: str) -> Any:
    """The opened device: ``Device["CPU"].synchronize()``. Raises DeviceError for one that the machine has not."""
    return get_device(canonical(name))

  def __repr__(self) -> str: return f"Device(DEFAULT={self.DEFAULT!r})"


Device = _Device()
_best: list[str] = []


def default_device() -> str:
  """``Device.DEFAULT``."""
  if Device.assigned is not None: return Device.assigned
  if config.dev: return there(canonical(config.dev))
  return _best[0] if _best else _best_device()
