"""Memory of a tensor: allocated on first use, given back when nobody holds it."""
from __future__ import annotations

from typing import Any

import numpy as np

from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.codegen.uop import prod


class Buffer:
  """``shape`` elements of ``dtype`` on ``device``. The memory exists once ``raw`` is asked for. Compared by identity."""
  __slots__ = ("device", "shape", "dtype", "_raw", "_owner", "rng_count", "__weakref__")

  def __init__(self, device: str, shape: tuple[int, ...], dtype: DType):
    self.device, self.shape, self.dtype = device, shape, dtype
    self._raw: Any = None
    self._owner: Any = None             # the device that gave the memory
    self.rng_count = 0                  # for a random generator's state: how many numbers it stands for

  @property
  def size(self) -> int: return prod(self.shape)
  @property
  def nbytes(self) -> int: return self.size * self.dtype.itemsize
  @property
  def allocated(self) -> bool: return self._raw is not None

  @property
  def raw(self) -> Any:
    """The device's allocation, made now if there is none."""
    if self._raw is None:
      from .device import get_device
      self._owner = get_device(self.device)
      self._raw = self._owner.alloc(max(self.nbytes, 1))
    return self._raw

  @staticmethod
  def from_numpy(device: str, array: np.ndarray) -> Buffer:
    """A buffer with the values of ``array`` (any layout), of its shape and dtype."""
    b = Buffer(device, tuple(array.shape), dtypes.of(array.dtype))
    b.write(array)
    return b

  def write(self, array: np.ndarray) -> None:
    """Replace the contents; the array's bytes must be as many as the buffer's."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if flat.nbytes:
      raw = self.raw
      self._owner.copyin(raw, flat)

  def numpy(self) -> np.ndarray:
    """The contents as a fresh array of the buffer's shape, after everything launched."""
    if not self.nbytes: return np.empty(self.shape, self.dtype.np)
    raw = self.raw
    return self._owner.copyout(raw, self.nbytes).view(self.dtype.np).reshape(self.shape)

  def release(self) -> None:
    """Give the memory back now."""
    if self._raw is not None:
      raw, self._raw = self._raw, None
      self._owner.free(raw, max(self.nbytes, 1))

  def __del__(self) -> None:
    try: self.release()
    except Exception: pass   # at interpreter exit the device may be gone

  def __repr__(self) -> str: return f"Buffer({self.device}, {self.shape}, {self.dtype})"
