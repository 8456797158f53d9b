"""NVIDIA's driver, through ``cuda.core`` and ``cuda.bindings``, which are imported where there is a driver and nowhere else. They
have no annotations, so what they give is Any here."""
from __future__ import annotations

import ctypes
import sys
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any, Callable

import numpy as np

from ntgrad.codegen.ir import DeviceError

from ..numpy.memory import Array
from ..process import Driver, Parameters as Parameters
from . import compiler

OLDEST = 80                            # compute capability that kernels are made for
RING = 32 << 20                        # bytes of pinned memory that copies pass through
HINT = "pip install 'ntgrad[cuda]'"
_started = Driver("CUDA")
_NODES = "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"


@cache
def present() -> bool:
  """Whether this machine has an NVIDIA driver: device files and a library, of which nothing is loaded where they are missing."""
  if not sys.platform.startswith("linux") or not any(Path(node).exists() for node in _NODES): return False
  try: ctypes.CDLL("libcuda.so.1")
  except OSError: return False
  return True


@cache
def modules() -> tuple[Any, Any]:
  """``cuda.core`` and ``cuda.bindings.driver``. Raises DeviceError where they are missing or cannot load."""
  if not present(): raise DeviceError("no CUDA: this machine has no NVIDIA driver; use another device, such as CPU")
  found, reason = compiler.available()
  if not found: raise DeviceError(f"no CUDA: {reason}")
  try:
    import cuda.core as core
    from cuda.bindings import driver
  except Exception as e:   # a broken installation raises whatever it likes
    raise DeviceError(f"no CUDA: importing cuda.core failed ({type(e).__name__}: {e}); {HINT}") from None
  return core, driver


def call(result: tuple[Any, ...], what: str) -> Any:
  """The value of a driver call. Raises DeviceError with the driver's name for an error."""
  code, *values = result
  if int(code) == 0: return values[0] if len(values) == 1 else tuple(values)
  raise DeviceError(f"{what}: {getattr(code, 'name', code)}")


def check(result: tuple[Any, ...]) -> None:
  """Raise DeviceError with the driver's name for an error."""
  if result[0]: raise DeviceError(str(getattr(result[0], "name", result[0])))


def _driver() -> Any:
  """``cuda.bindings.driver``, started. Raises DeviceError."""
  _, driver = modules()
  _started.start()
  call(driver.cuInit(0), "no CUDA: starting the driver failed")
  return driver


def find(name: str) -> int:
  """The number of the device that ``name`` means: 1 of ``"CUDA:1"``. Raises DeviceError where there is none, or too old a one."""
  kind, _, number = name.partition(":")
  if kind != "CUDA" or not (number or "0").isdigit():
    raise DeviceError(f"no CUDA device is called {name!r}; names: CUDA, CUDA:1, ..")
  n, driver = int(number or 0), _driver()
  count = int(call(driver.cuDeviceGetCount(), "no CUDA: asking for devices failed"))
  if n >= count: raise DeviceError(f"no CUDA device {name!r}: the machine has {count}")
  if (have := capability_of(driver, n)) < OLDEST:
    raise DeviceError(f"no CUDA: {name} is of compute capability {have / 10}, kernels need {OLDEST / 10} or later")
  return n


def capability_of(driver: Any, n: int) -> int:
  """90 for an H100."""
  a = driver.CUdevice_attribute
  major, minor = (int(call(driver.cuDeviceGetAttribute(which, n), "asking for the compute capability failed")) for which in
                  (a.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, a.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
  return major * 10 + minor


def device_of(address: int) -> int:
  """The number of the device that an address of CUDA's lies on. Raises DeviceError."""
  driver = _driver()
  return int(call(driver.cuPointerGetAttribute(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address),
                  f"asking for the device of address {address:#x} failed"))


def available(name: str = "CUDA") -> tuple[bool, str]:
  """Whether the device can be used, and its name or why not. Does not raise; imports nothing where there is no driver."""
  try:
    n = find(name)
    return True, bytes(call(modules()[1].cuDeviceGetName(128, n), "asking for the name failed")).split(b"\0")[0].decode(
      errors="replace")
  except DeviceError as e: return False, str(e)
  except Exception as e: return False, f"no CUDA: {type(e).__name__}: {e}"


class Events:
  """CUDA events, recorded in a stream and reused. ``timing``: with the device's time, so that two can be subtracted."""

  def __init__(self, core: Any, stream: Any, timing: bool = False):
    self.stream, self.free = stream, deque[Any]()
    self.options = core.EventOptions(timing_enabled=True) if timing else None

  def record(self) -> Any:
    """An event behind everything that has been launched."""
    event = self._spare()
    return self.stream.record(event) if event is not None else self.stream.record(options=self.options)

  def _spare(self) -> Any:
    try: return self.free.popleft()
    except IndexError: return None

  def spare(self) -> Any: return self._spare() or self.record()   # an event to record in any stream

  def give(self, event: Any) -> None: self.free.append(event)


class Staging:
  """A ring of pinned memory that copies between host and device pass through."""
  GRAIN = 4096

  def __init__(self, driver: Any, stream: Any, events: Events, size: int = RING):
    self.driver, self.stream, self.events, self.size, self.piece = driver, stream, events, size, size // 4
    self.address = int(call(driver.cuMemAllocHost(size), f"out of memory for {size:,} pinned bytes"))
    self.bytes: Array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.address))
    self.head = 0
    # start, end, and the event behind the copy; oldest first, so in the ring's order
    self.pending = deque[tuple[int, int, Any]]()

  def reserve(self, n: int) -> int:
    """``n`` bytes that no copy under way uses."""
    if self.head + n > self.size:
      left, self.head = self.head, 0
      self._wait_for(lambda start, end: start >= left)   # of the round before: nothing would wait for them later
    at, stop = self.head, self.head + n
    self._wait_for(lambda start, end: start < stop and at < end)
    self.head = (stop + self.GRAIN - 1) // self.GRAIN * self.GRAIN
    return at

  def _wait_for(self, which: Callable[[int, int], bool]) -> None:
    """Forget the oldest copies while ``which`` has them, all done."""
    last = None
    while self.pending and which(*self.pending[0][:2]):
      if last is not None: self.events.give(last)
      last = self.pending.popleft()[2]
    if last is not None:   # those before it are done then
      last.sync()
      self.events.give(last)

  def send(self, to: int, data: Array) -> None:
    """Host to device; ``data`` (flat uint8) may be changed after the call, the device has it before what is launched next."""
    for start in range(0, data.size, self.piece):
      piece = data[start:start + self.piece]
      at = self.reserve(piece.size)
      self.bytes[at:at + piece.size] = piece
      call(self.driver.cuMemcpyHtoDAsync(to + start, self.address + at, piece.size, self.stream.handle),
           f"copying {data.size:,} bytes to the device")
      self.pending.append((at, at + piece.size, self.events.record()))

  def fetch(self, source: int, out: Array) -> None:
    """Device to host, complete on return: the next piece is on its way while one is copied out of the pinned memory."""
    under_way = deque[tuple[int, int, int, Any]]()
    def land() -> None:
      start, at, n, event = under_way.popleft()
      event.sync()
      self.events.give(event)
      out[start:start + n] = self.bytes[at:at + n]
    for start in range(0, out.size, self.piece):
      n = min(self.piece, out.size - start)
      if len(under_way) == 2: land()
      at = self.reserve(n)
      call(self.driver.cuMemcpyDtoHAsync(self.address + at, source + start, n, self.stream.handle),
           f"copying {out.size:,} bytes to the host")
      under_way.append((start, at, n, self.events.record()))
    while under_way: land()
