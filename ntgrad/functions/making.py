"""Tensors made of numbers and data, and the state of the random numbers."""
from __future__ import annotations

from typing import Any

from ntgrad.codegen.ir import ArgumentError, dtypes
from ntgrad.graph import checked, operand, real_number
from ntgrad.tensor import Tensor
from ntgrad.tensor.creation import bits_of
from ntgrad.tensor.random import Generator, default_generator


# ---- numbers in a row
@checked
def arange(start: float | None = None, end: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None,
           requires_grad: Any = None) -> Tensor:
  """start, start + step, .. below end; of one number: from 0 below it. Raises ArgumentError, DTypeError."""
  if start is None and end is None: raise ArgumentError("arange: no end; give where it ends")
  return Tensor.arange(0 if start is None else start, end, step, dtype=dtype, device=device, requires_grad=requires_grad)


@checked
def range(start: float, end: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None,
          requires_grad: Any = None) -> Tensor:
  """start, start + step, .. up to end, that included; floats unless told otherwise. Raises ArgumentError, DTypeError."""
  first, last = [real_number("range", "start or end", x) for x in ((0.0, start) if end is None else (start, end))]
  step = real_number("range", "step", step)
  if step == 0: raise ArgumentError("range: step is 0; the numbers would never reach the end")
  n = int((last - first) / step + 1e-9) + 1
  if (last - first) / step < 0: raise ArgumentError(f"range: from {first} to {last} by {step}; step has the wrong sign")
  made = (Tensor.arange(n, dtype="float64", device=device) * step + first).cast(dtypes.default_float if dtype is None else dtype)
  if requires_grad is not None: made.requires_grad = requires_grad
  return made


# ---- data
@checked
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
  """Data as a tensor; a tensor of that dtype, on that device, as it is. Raises as :class:`Tensor`."""
  if not isinstance(data, Tensor): return Tensor(data, dtype=dtype, device=device)
  return data.to(device=data.device if device is None else device, dtype=data.dtype if dtype is None else dtype)


@checked
def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None,
            requires_grad: bool | None = None) -> Tensor:
  """:func:`as_tensor`; with ``copy`` a tensor of its own. Raises as :class:`Tensor`."""
  out = as_tensor(obj, dtype, device)
  if copy: out = out.detach().clone()
  return out if requires_grad is None else out.detach().requires_grad_(requires_grad)


@checked
def scalar_tensor(s: float, *, dtype: Any = None, device: Any = None, requires_grad: Any = None) -> Tensor:
  """A number as a tensor of shape (), of the default float unless told otherwise."""
  return Tensor(s, dtype=dtypes.default_float if dtype is None else dtype, device=device, requires_grad=requires_grad)


@checked
def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: Any = None) -> Tensor:
  """Numbers of an object's bytes, from byte ``offset``, ``count`` of them (-1: all), copied. Raises ArgumentError, DTypeError."""
  return Tensor(bits_of("frombuffer", buffer, dtypes.of(dtype), count, offset).copy(), requires_grad=requires_grad)


def _typed(name: str, dtype: Any) -> Any:
  """What makes tensors of one dtype, by PyTorch's name of before dtypes."""
  def make(*data: Any) -> Tensor:
    if len(data) == 1 and not isinstance(data[0], int): return Tensor(data[0], dtype=dtype)
    return Tensor.empty(*data, dtype=dtype) if data else Tensor.zeros(0, dtype=dtype)
  make.__name__ = make.__qualname__ = name
  make.__doc__ = f"A tensor of {dtype.name} of data, or of sizes. Raises as :class:`Tensor`."
  return make


globals().update({f"{name}Tensor": _typed(f"{name}Tensor", dtypes.of(of)) for name, of in zip(
  "BFloat16 Half Float Double Byte Char Short Int Long Bool".split(),
  "bfloat16 float16 float32 float64 uint8 int8 int16 int32 int64 bool".split())})


# ---- random numbers
@checked
def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, dtype: Any = None,
           device: Any = None, requires_grad: Any = None) -> Tensor:
  """Normal with a mean and a standard deviation: numbers and a ``size``, or tensors, whose shapes broadcast. Raises
  ArgumentError, ShapeError, DTypeError."""
  if size is None:
    one = next((t for t in (mean, std) if isinstance(t, Tensor)), Tensor)
    mean, std = [operand("normal", t, one) for t in (mean, std)]
    return (mean + std).randn_like(generator=generator) * std + mean
  return Tensor.normal(size, mean=mean, std=std, generator=generator, dtype=dtype, device=device, requires_grad=requires_grad)


@checked
def randint_like(input: Tensor, low: int = 0, high: int | None = None, *, generator: Generator | None = None, dtype: Any = None,
                 device: Any = None) -> Tensor:
  """Ints from low to high - 1, of one number: from 0 below it, in a tensor's shape, dtype and device. Raises ArgumentError."""
  low, high = (0, low) if high is None else (low, high)
  return input.randint_like(low, high, generator=generator, dtype=input.dtype if dtype is None else dtype, device=device)


@checked
def manual_seed(seed: int) -> Generator:
  """Start the sequence of random numbers over; gives its generator. A seed beneath 0 counts from 2**64. Raises ArgumentError."""
  return default_generator.manual_seed(seed % 2 ** 64)


seed, initial_seed = default_generator.seed, default_generator.initial_seed


def get_rng_state() -> Any: return default_generator.get_state()


def set_rng_state(new_state: Any) -> None:
  """Go on with the random numbers where :func:`get_rng_state` was called. Raises ShapeError, DTypeError."""
  default_generator.set_state(new_state)
