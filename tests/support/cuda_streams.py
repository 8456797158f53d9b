"""What cuda.bindings.driver has for putting streams in order and for copies on and between GPUs, of a machine that only
remembers."""
from __future__ import annotations

import ctypes
import types
from typing import Any


class FakeStreams:
  """Puts the functions into a driver. ``log`` is what was asked of them; copies are of host memory, which stands for a GPU's.

  An entry is ("record", stream), ("wait", stream, the stream whose mark it waits for: 0 for that of the device), ("copy", bytes,
  stream), ("peer", to, from, bytes, stream) or ("settle",).
  """

  def __init__(self, driver: Any):
    self.log: list[tuple[Any, ...]] = []
    self.of: dict[int, int] = {}          # events, and the streams that they were recorded on by the driver
    self.devices: dict[int, int] = {}     # addresses, and their devices
    driver.CUpointer_attribute = types.SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL="device")
    driver.cuPointerGetAttribute = lambda which, address: (0, self.devices.get(address, 0))
    driver.cuDevicePrimaryCtxRetain = lambda n: (0, f"context {n}")
    driver.cuEventRecord, driver.cuStreamWaitEvent, driver.cuCtxSynchronize = self.record, self.wait, self.settle
    driver.cuMemcpyDtoDAsync, driver.cuMemcpyPeerAsync = self.copy, self.peer

  def record(self, event: Any, stream: int) -> tuple[int]:
    self.of[id(event)] = int(stream)
    self.log.append(("record", int(stream)))
    return (0,)

  def wait(self, stream: int, event: Any, flags: int) -> tuple[int]:
    self.log.append(("wait", int(stream), self.of.pop(id(event), 0)))
    return (0,)

  def settle(self) -> tuple[int]:
    self.log.append(("settle",))
    return (0,)

  def copy(self, to: int, source: int, n: int, stream: int) -> tuple[int]:
    ctypes.memmove(to, source, n)
    self.log.append(("copy", n, int(stream)))
    return (0,)

  def peer(self, to: int, there: str, source: int, here: str, n: int, stream: int) -> tuple[int]:
    ctypes.memmove(to, source, n)
    self.log.append(("peer", there, here, n, int(stream)))
    return (0,)
