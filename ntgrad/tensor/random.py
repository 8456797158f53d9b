"""Random numbers by counter (threefry): element i of a call is a function of the seed and of how many were drawn before with
the same generator, anywhere.

A call's place in the sequence, ``(counter, seed)``, is a small buffer made by ``rng_state``; it is marked with ``rng_count`` so
that a replay of captured kernels can write the next place into it (``next_state``). Structure never depends on the numbers.
"""
from __future__ import annotations

import math
import os
from typing import Any, Self

import numpy as np

from ntgrad.codegen.ir.dtype import DType, dtypes, held
from ntgrad.codegen.ir.errors import ArgumentError, DTypeError, ShapeError, shown
from ntgrad.codegen.ir.uop import BinaryOps, UnaryOps, UOp
from ntgrad.core import Base, real_number
from ntgrad.engine.buffer import Buffer, transfer_watchers
from ntgrad.engine.device import Device
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import checked, of_kind
from ntgrad.graph.lock import synchronized

from .creation import Creation, new_shape, node_of


@checked
class Generator:
  """A sequence of random numbers of its own: ``Tensor.rand(3, generator=ntgrad.Generator(1))``.

  Numbers are those that ``Tensor.manual_seed`` with the same seed gives, on every device. Calls captured by a jit draw the next
  ones at every replay. ``seed`` is an int from 0 to 2**64 - 1, None for one from the operating system; ``device`` says nothing.
  Raises ArgumentError; CaptureError where a sequence begins while a jit records, here and in the methods that set it.
  """
  __slots__ = ("_seed", "_counter", "__weakref__")

  def __init__(self, seed: int | None = None, device: str | None = None):
    self._seed = self._counter = 0
    self._begin("Generator", _entropy() if seed is None else seed)

  def __repr__(self) -> str: return f"<Generator of seed {self._seed}, {self._counter} numbers drawn>"

  def _begin(self, name: str, seed: int, counter: int = 0) -> None:
    for n in (seed, counter):
      if not 0 <= n < 2 ** 64: raise ArgumentError(f"{name}: {n!r}; a seed is an int from 0 to 2**64 - 1")
    for w in transfer_watchers: w.seeded(name)
    self._seed, self._counter = seed, counter

  def manual_seed(self, seed: int) -> Generator:
    """Start the sequence over with a seed (0 .. 2**64 - 1). Gives the generator itself. Raises ArgumentError."""
    self._begin("manual_seed", seed)
    return self

  def seed(self) -> int:
    """Start the sequence over with a seed from the operating system, and give that."""
    seed = _entropy()
    self._begin("seed", seed)
    return seed

  def initial_seed(self) -> int:
    """The seed that the sequence began with."""
    return self._seed

  def get_state(self) -> Any:
    """Where the sequence is, as a uint64 Tensor of shape (2,): how many numbers were drawn, and the seed."""
    return Base._from_node(node_of(np.array([self._counter, self._seed], np.uint64), None, None))

  def set_state(self, state: Any) -> Generator:
    """Go on where ``get_state`` was called. Gives the generator itself. Raises ShapeError, DTypeError."""
    t = state if isinstance(state, Base) else Base._from_node(node_of(state, "NUMPY", None))
    if t.shape != (2,): raise ShapeError(f"set_state: a state of shape {t.shape}; it is what get_state gave, of shape (2,)")
    of_kind("iu", "set_state", "a state", t, "it is what get_state gave, of uint64")
    for w in transfer_watchers: w.seeded("set_state")   # before values are read
    counter, seed = t.tolist()
    self._begin("set_state", seed, counter)
    return self

  @synchronized
  def _next(self, n: int) -> np.ndarray[Any, Any]:
    state = np.array([self._counter, self._seed], np.uint64)
    self._counter = (self._counter + int(n)) % 2 ** 64   # of run-time sizes too the number: the counter outlives them
    return state


def _entropy() -> int: return int.from_bytes(os.urandom(8), "little")


default_generator = Generator()


def manual_seed(seed: int = 0) -> None:
  """Start the sequence of random numbers over with a seed (0 .. 2**64 - 1). Raises ArgumentError."""
  default_generator._begin("manual_seed", seed)


def place() -> tuple[int, int]:
  """The seed and how many numbers have been drawn since it was set, without a generator of their own."""
  return default_generator._seed, default_generator._counter


def next_state(n: int, generator: Generator | None = None) -> np.ndarray[Any, Any]:
  """The place of the next n numbers, uint64 ``(counter, seed)``; the counter moves on by n."""
  return (generator or default_generator)._next(n)


def rng_state(n: int, device: str | None = None, generator: Generator | None = None) -> Any:
  """A uint64 Buffer of shape (2,) with the place of the next n numbers, marked with ``rng_count`` and ``rng_from``."""
  b = Buffer.from_numpy(device or Device.DEFAULT, next_state(n, generator))
  b.rng_count, b.rng_from = n, None if generator is default_generator else generator
  return b


_FRACTION = {
  dtypes.float64: 53,
  dtypes.float32: 24,
  dtypes.float16: 11,
  dtypes.bfloat16: 8,
  dtypes.float8_e4m3: 4,
  dtypes.float8_e5m2: 3,
}


def bits(shape: tuple[int, ...], device: str | None, generator: Generator | None = None) -> UOp:
  """64 random bits an element, uint64."""
  n = math.prod(shape)
  if not n: return graph.const(0, dtypes.uint64, shape)
  state = graph.buffer(rng_state(n, device, generator))
  counter = graph.add(graph.cast(graph.iota(n), dtypes.uint64), graph.expand(graph.shrink(state, ((0, 1),)), (n,)))
  # the shape comes before the hash, so that the value on top is computed (and can be assigned), not a view
  key = graph.expand(graph.reshape(graph.shrink(state, ((1, 2),)), (1,) * len(shape)), shape)
  return graph.binary(BinaryOps.THREEFRY, graph.reshape(counter, shape), key)


def fraction(r: UOp, dtype: DType) -> UOp:
  """[0, 1) from the top bits of uint64, in float32 or float64: as many bits as the dtype's fraction holds, so that 1 never comes
  out."""
  n = _FRACTION[dtype]
  work = graph.acc_dtype(dtype)
  whole = graph.cast(graph.shr(r, 64 - n), dtypes.int64 if n > 31 else dtypes.int32)
  return graph.mul(graph.cast(whole, work), 2.0 ** -n)


def below(value: float, dtype: DType) -> float:
  """The greatest number less than ``value`` that a dtype has."""
  return float(
    np.nextafter(
      np.array(value, dtype.np),
      np.array(-math.inf, np.float32).astype(dtype.np) if dtype is not dtypes.float8_e4m3 else np.array(-448, dtype.np),
    )
  )


def _rounded(u: UOp) -> UOp:
  """The same value through its bits, so that no compiler joins the product with a sum: the same bits on every device."""
  return u if u.dtype.itemsize == 1 else graph.seen_as(graph.seen_as(u, graph.UINTS[u.dtype.itemsize]), u.dtype)


@checked
class Random(Creation):
  """Random tensors."""
  __slots__ = ()

  @staticmethod
  def manual_seed(seed: int = 0) -> None:
    """Start the sequence of random numbers (of the default generator) over with a seed (0 .. 2**64 - 1). Raises ArgumentError."""
    manual_seed(seed)

  @classmethod
  def _random(cls, name: str, shape: Any, device: str | None, dtype: Any, size: Any = None) -> tuple[tuple[int, ...], str, DType]:
    d = dtypes.of(dtype, dtypes.default_float)
    if d.kind != "f": raise DTypeError(f"{name}: {d.name}; it gives floats (randint gives ints)")
    return new_shape(name, shape, size), Device._located(device), d

  @classmethod
  def rand(cls, *shape: Any, size: Any = None, generator: Generator | None = None, device: str | None = None, dtype: Any = None,
           requires_grad: bool | None = None) -> Self:
    """Uniform in [0, 1), of the default float (float32) unless told otherwise. Raises ArgumentError, DTypeError."""
    s, dev, d = cls._random("rand", shape, device, dtype, size)
    return cls._made(graph.cast(fraction(bits(s, dev, generator), d), d), None, requires_grad)

  @classmethod
  def uniform(cls, *shape: Any, low: float = 0.0, high: float = 1.0, generator: Generator | None = None,
              device: str | None = None, dtype: Any = None, requires_grad: bool | None = None) -> Self:
    """Uniform in [low, high), both rounded to the dtype. Raises ArgumentError, DTypeError."""
    low, high = real_number("uniform", "low", low), real_number("uniform", "high", high)
    if dtype is not None and dtypes.of(dtype).kind in "iu":
      if not (math.isfinite(low) and math.isfinite(high)) or low != int(low) or high != int(high):
        raise ArgumentError(f"uniform: low {low}, high {high} for {dtypes.of(dtype).name}; they must be ints")
      return cls.randint(*shape, low=int(low), high=int(high), generator=generator, device=device, dtype=dtype)
    s, dev, d = cls._random("uniform", shape, device, dtype)
    if not (
      low <= high
      and math.isfinite(held(low, d))
      and math.isfinite(held(high, d))
      and math.isfinite(held(high - low, graph.acc_dtype(d)))
    ):
      raise ArgumentError(
        f"uniform: low {low}, high {high} for {d.name}; numbers of the dtype, low not above high, nor too far apart"
      )
    u = fraction(bits(s, dev, generator), d)
    if high - low != 1:
      u = graph.mul(u, high - low)
      if low: u = _rounded(u)
    if low: u = graph.add(u, low)
    u = graph.cast(u, d)
    # fractions of high stay below it; a sum may be rounded up to it
    if low or u.dtype is not graph.acc_dtype(d): u = graph.minimum(u, max(below(held(high, d), d), held(low, d)))
    return cls._made(u, None, requires_grad)

  @classmethod
  def randn(cls, *shape: Any, size: Any = None, generator: Generator | None = None, device: str | None = None, dtype: Any = None,
            requires_grad: bool | None = None) -> Self:
    """Normal with mean 0 and variance 1 (Box-Muller), of the default float (float32) unless told otherwise. Raises
    ArgumentError, DTypeError."""
    s, dev, d = cls._random("randn", shape, device, dtype, size)
    r = bits(s, dev, generator)
    work = graph.acc_dtype(d)
    # one hash, two uniforms: the high word gives the radius, the low word the angle
    a = fraction(r, dtypes.float32)
    low = graph.cast(graph.shr(graph.and_(r, 2 ** 32 - 1), 8), dtypes.int32)
    angle = graph.mul(graph.cast(low, work), 2 * math.pi * 2.0 ** -24)
    left = graph.sub(1.0, graph.cast(a, work))  # (0, 1]: its logarithm is finite
    radius = graph.sqrt(graph.mul(graph.log(left), -2.0))
    return cls._made(graph.cast(graph.mul(radius, graph.unary(UnaryOps.COS, angle)), d), None, requires_grad)

  @classmethod
  def normal(cls, *shape: Any, mean: float = 0.0, std: float = 1.0, requires_grad: bool | None = None, **kwargs: Any) -> Self:
    """Normal with a mean and a standard deviation; ``generator``, ``device`` and ``dtype`` as for ``randn``. Raises
    ArgumentError, DTypeError."""
    mean, std = real_number("normal", "mean", mean), real_number("normal", "std", std)
    if std < 0: raise ArgumentError(f"normal: std {std}; it must not be negative")
    u = graph.mul(cls.randn(*shape, **kwargs).lazydata, std)
    return cls._made(graph.add(u, mean), None, requires_grad)

  @classmethod
  def randint(cls, *shape: Any, low: int = 0, high: int | None = None, size: Any = None, generator: Generator | None = None,
              device: str | None = None, dtype: Any = None) -> Self:
    """Ints from low to high - 1 (0 to 9), of the default int (int32) unless told otherwise: ``randint(3, 4, high=6)``; or as
    PyTorch has it, with the shape as a tuple behind the range: ``randint(6, (3, 4))``, ``randint(0, 6, size=(3, 4))``. Raises
    ArgumentError, DTypeError."""
    d = dtypes.of(dtype, dtypes.default_int)
    if size is None and len(shape) in (2, 3) and isinstance(shape[-1], (tuple, list)): shape, size = shape[:-1], shape[-1]
    if size is not None:
      if len(shape) > 2 - (high is not None):
        raise ArgumentError(f"randint: {shown(shape)} before size={shown(size)}; it takes low, high and size")
      if high is not None: low = shape[0] if shape else low
      elif shape: low, high = (low, shape[0]) if len(shape) == 1 else shape
      shape = ()
    if high is None: high = 10
    if d.kind not in "iu": raise DTypeError(f"randint: {d.name}; it gives ints (uniform gives floats)")
    whole = all([isinstance(x, int) and not isinstance(x, bool) for x in (low, high)])
    if not whole or not dtypes.min(d) <= low < high <= dtypes.max(d) + 1:
      raise ArgumentError(f"randint: low {shown(low)}, high {shown(high)} for {d.name}; ints with low < high, within the dtype")
    s = new_shape("randint", shape, size)
    r, span = bits(s, Device._located(device), generator), high - low
    if span < 2 ** 32: r = graph.shr(graph.mul(graph.shr(r, 32), span), 32)
    elif span < 2 ** 64: r = graph.scalar(BinaryOps.MOD, r, span)
    wide = dtypes.uint64 if d is dtypes.uint64 else dtypes.int64
    u = graph.cast(r, wide)
    return cls._from_node(graph.cast(graph.add(u, low) if low else u, d))

  @classmethod
  def scaled_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
    """Uniform in [-1, 1) divided by sqrt(number of elements)."""
    bound = 1 / math.sqrt(max(math.prod(new_shape("scaled_uniform", shape)), 1))
    return cls.uniform(*shape, low=-bound, high=bound, **kwargs)
  @classmethod
  def glorot_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
    """Uniform with bound sqrt(6 / (first size + product of the others)). Raises ShapeError for no dims."""
    s = cls._fan("glorot_uniform", shape)
    bound = math.sqrt(6 / (s[0] + math.prod(s[1:])))
    return cls.uniform(*s, low=-bound, high=bound, **kwargs)
  @classmethod
  def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
    """Uniform with bound sqrt(6 / (1 + a²) / fan in), the fan in being the product of all sizes but the first.

    Raises ShapeError for no dims.
    """
    s = cls._fan("kaiming_uniform", shape)
    bound = math.sqrt(6 / (1 + a * a) / math.prod(s[1:]))
    return cls.uniform(*s, low=-bound, high=bound, **kwargs)
  @classmethod
  def kaiming_normal(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
    """Normal with deviation sqrt(2 / (1 + a²) / fan in), the fan in being the product of all sizes but the first.

    Raises ShapeError for no dims.
    """
    s = cls._fan("kaiming_normal", shape)
    return cls.normal(*s, mean=0.0, std=math.sqrt(2 / (1 + a * a) / math.prod(s[1:])), **kwargs)
  @classmethod
  def _fan(cls, name: str, shape: Any) -> tuple[int, ...]:
    s = new_shape(name, shape)
    if not s or 0 in s: raise ShapeError(f"{name}: shape {s}; it takes at least one dimension and no size of 0")
    return s

  def rand_like(self, *, generator: Generator | None = None, dtype: Any = None, device: str | None = None,
                requires_grad: bool | None = None) -> Self:
    """Uniform in [0, 1) of this shape, dtype and device. Raises DTypeError for a dtype that is no float."""
    given = self._alike_in(dtype, device)
    return type(self).rand(*self.shape, generator=generator, requires_grad=requires_grad, **given)._called(self._names)
  def randn_like(self, *, generator: Generator | None = None, dtype: Any = None, device: str | None = None,
                 requires_grad: bool | None = None) -> Self:
    """Normal of this shape, dtype and device. Raises DTypeError for a dtype that is no float."""
    given = self._alike_in(dtype, device)
    return type(self).randn(*self.shape, generator=generator, requires_grad=requires_grad, **given)._called(self._names)
  def randint_like(self, low: int = 0, high: int = 10, *, generator: Generator | None = None, dtype: Any = None,
                   device: str | None = None) -> Self:
    """Ints from low to high - 1 of this shape, dtype and device; of the default int where this tensor has no ints. Raises
    ArgumentError, DTypeError."""
    given = self._alike_in(dtypes.default_int if dtype is None and self.dtype.kind not in "iu" else dtype, device)
    return type(self).randint(*self.shape, low=low, high=high, generator=generator, **given)._called(self._names)
