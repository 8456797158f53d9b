"""``torch.cuda``: what the machine has of NVIDIA's GPUs, their memory, and waiting for them. There is one stream a device."""
from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ntgrad.codegen.ir import ArgumentError, DeviceError, shown
from ntgrad.compat.public import show
from ntgrad.engine.device import Device, DeviceName, Memory, available, get_device
from ntgrad.nn.amp import GradScaler, autocast
from ntgrad.tensor.random import default_generator


def _name(device: Any) -> str:
  """A device by number or name; None for the current one. Raises DeviceError."""
  if device is None: return Device.DEFAULT if Device.DEFAULT.startswith("CUDA") else "CUDA"
  if isinstance(device, int) and not isinstance(device, bool):
    return Device.canonicalize(f"CUDA:{device}" if device >= 0 else str(device))
  if not isinstance(device, str):
    raise ArgumentError(f"cuda: device {shown(device)}; it takes a number, or a name such as 'cuda:0'")
  name = Device.canonicalize(device)
  if not name.startswith("CUDA"): raise DeviceError(f"cuda: device {device!r} is no NVIDIA GPU; names are CUDA, CUDA:1, ..")
  return name


# ---- what there is
def is_available() -> bool:
  """Whether kernels can run on an NVIDIA GPU of this machine. Looks for a driver first, and opens nothing."""
  return available("CUDA")[0]


def device_count() -> int:
  """How many NVIDIA GPUs kernels can run on."""
  n = 0
  while available(f"CUDA:{n}")[0]: n += 1
  return n


def current_device() -> int:
  """The number of the GPU that tensors are made on. Raises DeviceError where there is none."""
  _opened(None)
  return DeviceName(_name(None)).index or 0


def set_device(device: Any) -> None:
  """Make new tensors on a GPU where no device is named. Raises DeviceError."""
  Device.DEFAULT = _opened(device).name


def _opened(device: Any) -> Any: return get_device(_name(device))


def get_device_name(device: Any = None) -> str:
  """What NVIDIA calls a GPU. Raises DeviceError where there is none."""
  found, said = available(_name(device))
  if not found: raise DeviceError(said)
  return said


def get_device_capability(device: Any = None) -> tuple[int, int]:
  """The compute capability of a GPU, (9, 0) of an H100. Raises DeviceError."""
  return divmod(_opened(device).capability, 10)


def is_bf16_supported(including_emulation: bool = True) -> bool:
  """Whether there is a GPU: kernels need sm_80, which has bfloat16."""
  return is_available()


def is_initialized() -> bool:
  """Whether there is a GPU: it is opened when it is used first."""
  return is_available()


# ---- work and memory
def synchronize(device: Any = None) -> None:
  """Wait for everything launched on a GPU. Raises DeviceError, also for what went wrong in it."""
  Device.synchronize(_name(device))


def _memory(device: Any) -> Memory: return Device.memory(_name(device)) if is_available() else Memory(0, 0, 0, 0)


def memory_allocated(device: Any = None) -> int:
  """The bytes that tensors use on a GPU; 0 where there is none."""
  return _memory(device).allocated


def max_memory_allocated(device: Any = None) -> int:
  """The most bytes that tensors used on a GPU since the start, or ``reset_peak_memory_stats``; 0 where there is none."""
  return _memory(device).peak


def memory_reserved(device: Any = None) -> int:
  """The bytes that tensors use on a GPU, and those kept for reuse; 0 where there is none."""
  m = _memory(device)
  return m.allocated + m.pooled


def mem_get_info(device: Any = None) -> tuple[int, int]:
  """The bytes of a GPU that this process does not hold, and all that it has. Raises DeviceError."""
  m = Device.memory(_name(device))
  return m.total - m.allocated - m.pooled, m.total


def reset_peak_memory_stats(device: Any = None) -> None:
  """Start measuring ``max_memory_allocated`` anew."""
  if is_available(): Device.reset_peak(_name(device))


def empty_cache() -> None:
  """Give back memory that is kept for reuse on the current GPU."""
  if is_available(): _opened(None).trim()


def manual_seed(seed: int) -> None:
  """Start the sequence of random numbers over, which is one for all devices. Raises ArgumentError."""
  default_generator.manual_seed(seed)


manual_seed_all = manual_seed

# ---- mixed precision, by its older names: ``from torch.cuda.amp import autocast``
class _Amp(ModuleType):
  """``torch.cuda.amp``: what ``amp`` has, for GPUs."""
  GradScaler = GradScaler

  @staticmethod
  def autocast(enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> autocast:
    """``amp.autocast`` on GPUs."""
    return autocast("cuda", dtype, enabled, cache_enabled)


amp = sys.modules[f"{__name__}.amp"] = _Amp(f"{__name__}.amp")
__all__ = """
  current_device device_count empty_cache get_device_capability get_device_name is_available is_bf16_supported
  is_initialized manual_seed manual_seed_all max_memory_allocated mem_get_info memory_allocated memory_reserved
  reset_peak_memory_stats set_device synchronize""".split()  # noqa: PLE0605

show(__name__)
