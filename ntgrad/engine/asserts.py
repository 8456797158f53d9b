"""What only a device can see: kernels note where a check failed, and it is raised where the host next waits for the device.

A kernel with checks has one parameter more, an array with an int32 for each check: 0 while it holds, else the number of the
greatest element for which it did not, plus one.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable
from weakref import WeakValueDictionary

import numpy as np

from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.errors import DeviceAssertError

from .buffer import Buffer, Storage, waited


@dataclass(eq=False)
class Checks:
  """The checks of a kernel on a device: the memory that the kernel notes them in, and what to say of each, given the element."""
  kernel: str
  device: str
  storage: Storage
  say: tuple[Callable[[int], str], ...]

  def failed(self) -> list[str]:
    """A sentence for each check that failed since this was last asked."""
    memory = Buffer(self.device, (len(self.say),), dtypes.int32, self.storage)
    found = memory.get()
    if not found.any(): return []
    memory.put(np.zeros_like(found))
    return [f"{self.kernel}: {say(int(n) - 1)}" for say, n in zip(self.say, found) if n]


_launched: dict[str, dict[Checks, None]] = {}    # by device: what has been launched since the host last waited
_of: WeakValueDictionary[int, Checks] = WeakValueDictionary()   # by their storage's serial; their kernels keep them


def make_checks(kernel: str, device: str, say: tuple[Callable[[int], str], ...]) -> tuple[Checks, Buffer]:
  """Memory for a kernel's checks, none of which has failed."""
  memory = Buffer.from_numpy(device, np.zeros(len(say), np.int32))
  _of[memory.storage.serial] = out = Checks(kernel, device, memory.storage, say)
  return out, memory


def checks_in(storages: Iterable[Storage]) -> list[Checks]:
  """The checks that lie in memory which a captured function writes."""
  return [c for s in storages if (c := _of.get(s.serial)) is not None]


def watch(c: Checks) -> None:
  """A kernel with these checks has been launched."""
  _launched.setdefault(c.device, {})[c] = None


def raise_failed(device: str) -> None:
  """Raise DeviceAssertError for checks that failed in what was launched on a device."""
  said = [line for c in _launched.pop(device, ()) for line in c.failed()]
  if said: raise DeviceAssertError("\n".join(said))


waited.append(raise_failed)
