"""Window functions for signals: Hann, Hamming and the like."""
from __future__ import annotations

import math
from typing import Any, Callable, Self

import numpy as np

from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import ArgumentError, DTypeError
from ntgrad.core import Base, real_number
from ntgrad.graph.checks import checked

_MOST = 1 << 24   # numbers of a window


@checked
class Windows(Base):
  """Windows of ``window_length`` numbers, computed on the host in float64. ``periodic``: as if one more, the first again, came
  behind the last. All raise ArgumentError, and DTypeError for a dtype without fractions."""
  __slots__ = ()

  @classmethod
  def _window(cls, name: str, n: int, periodic: bool, fn: Callable[[Any], Any], dtype: Any, given: dict[str, Any]) -> Self:
    """fn of places from 0 to 1."""
    d = dtypes.of(dtype, dtypes.default_float)
    if d.kind != "f": raise DTypeError(f"{name}: dtype {d.name}; it takes floats")
    if not 0 <= n <= _MOST: raise ArgumentError(f"{name}: window_length {n}; it goes from 0 to {_MOST}")
    last = n if periodic else n - 1
    values = fn(np.arange(n) / last) if n > 1 else np.ones(n)
    make: Any = cls
    made: Self = make(values, dtype=d, **given)
    return made

  @classmethod
  def hann_window(cls, window_length: int, periodic: bool = True, *, dtype: Any = None, device: str | None = None,
                  requires_grad: bool | None = None) -> Self:
    """1/2 - 1/2 cos(2 pi t)."""
    return cls._window("hann_window", window_length, periodic, lambda t: 0.5 - 0.5 * np.cos(2 * math.pi * t), dtype,
                       {"device": device, "requires_grad": requires_grad})

  @classmethod
  def hamming_window(cls, window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
                     dtype: Any = None, device: str | None = None, requires_grad: bool | None = None) -> Self:
    """alpha - beta cos(2 pi t)."""
    a, b = real_number("hamming_window", "alpha", alpha), real_number("hamming_window", "beta", beta)
    return cls._window("hamming_window", window_length, periodic, lambda t: a - b * np.cos(2 * math.pi * t), dtype,
                       {"device": device, "requires_grad": requires_grad})

  @classmethod
  def blackman_window(cls, window_length: int, periodic: bool = True, *, dtype: Any = None, device: str | None = None,
                      requires_grad: bool | None = None) -> Self:
    """0.42 - 0.5 cos(2 pi t) + 0.08 cos(4 pi t)."""
    def fn(t: Any) -> Any: return np.maximum(0.42 - 0.5 * np.cos(2 * math.pi * t) + 0.08 * np.cos(4 * math.pi * t), 0)
    return cls._window("blackman_window", window_length, periodic, fn, dtype, {"device": device, "requires_grad": requires_grad})

  @classmethod
  def bartlett_window(cls, window_length: int, periodic: bool = True, *, dtype: Any = None, device: str | None = None,
                      requires_grad: bool | None = None) -> Self:
    """1 - |2 t - 1|: a triangle."""
    return cls._window("bartlett_window", window_length, periodic, lambda t: 1 - np.abs(2 * t - 1), dtype,
                       {"device": device, "requires_grad": requires_grad})

  @classmethod
  def kaiser_window(cls, window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None,
                    device: str | None = None, requires_grad: bool | None = None) -> Self:
    """I0(beta sqrt(1 - (2 t - 1)²)) / I0(beta), I0 being the modified Bessel function of order 0. ``beta`` is at most 700."""
    b = real_number("kaiser_window", "beta", beta)
    if not abs(b) <= 700: raise ArgumentError(f"kaiser_window: beta {beta}; it goes from -700 to 700")
    def fn(t: Any) -> Any: return np.i0(b * np.sqrt(np.maximum(1 - (2 * t - 1) ** 2, 0))) / np.i0(np.float64(b))
    return cls._window("kaiser_window", window_length, periodic, fn, dtype, {"device": device, "requires_grad": requires_grad})
