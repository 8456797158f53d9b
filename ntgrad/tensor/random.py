"""Random numbers by counter (threefry): element i of a call is a function of the seed and of how many were drawn before with
the same generator, anywhere. Random tensors, samples of distributions, permutations, dropout.

A call's place in the sequence, ``(counter, seed)``, is a small buffer made by ``rng_state``; it is marked with ``rng_count`` so
that a replay of captured kernels can write the next place into it (``next_state``). Structure never depends on the numbers."""
from __future__ import annotations

import math
from contextvars import ContextVar
from secrets import randbits
from typing import Any, Callable, Self

import numpy as np

from ntgrad.codegen.ir import ArgumentError, BinaryOps, DType, DTypeError, ShapeError, UOp, acc_dtype, dtypes, held, shown
from ntgrad.core import Base, real_number, whole_number
from ntgrad.engine.buffer import Buffer, transfer_watchers
from ntgrad.engine.device import Device
from ntgrad.graph import Operand, checked, flag, mode, nodes as graph, of_kind, synchronized
from ntgrad.graph.formulas import polynomial
from ntgrad.graph.nodes import Shape, cast, const, expand, minimum, reshape, seen_as, shrink

from .creation import new_shape, node_of, number_dtype
from .elementwise import Host, info_of
from .families import class_member, member
from .sorting import Sorting


@checked
class Generator:
  """A sequence of random numbers of its own: ``Tensor.rand(3, generator=ntgrad.Generator(1))``. Numbers are those that
  ``Tensor.manual_seed`` with the same seed gives, on every device. Calls captured by a jit draw the next ones at every replay.
  ``seed`` is an int from 0 to 2**64 - 1, None for one from the operating system; ``device`` says nothing. Raises ArgumentError;
  CaptureError where a sequence begins while a jit records, here and in the methods that set it."""
  __slots__ = "_seed", "_counter", "__weakref__"

  def __init__(self, seed: int | None = None, device: str | None = None):
    self._seed = self._counter = 0
    self._begin("Generator", randbits(64) if seed is None else seed)

  def __repr__(self) -> str: return f"<Generator of seed {self._seed}, {self._counter} numbers drawn>"

  def _begin(self, name: str, seed: int, counter: int = 0) -> None:
    for n in seed, counter:
      if not 0 <= n < 2 ** 64: raise ArgumentError(f"{name}: {n!r}; a seed is an int from 0 to 2**64 - 1")
    for w in transfer_watchers: w.seeded(name)
    self._seed, self._counter = seed, counter

  def manual_seed(self, seed: int) -> Generator:
    """Start the sequence over with a seed (0 .. 2**64 - 1). Gives the generator itself. Raises ArgumentError."""
    self._begin("manual_seed", seed)
    return self

  def seed(self) -> int:
    """Start the sequence over with a seed from the operating system, and give that."""
    seed = randbits(64)
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
  def _next(self, n: int) -> Host:
    state = np.array([self._counter, self._seed], np.uint64)
    self._counter = (self._counter + int(n)) % 2 ** 64   # of run-time sizes too the number: the counter outlives them
    return state


_of_thread: ContextVar[Generator | None] = ContextVar("generator", default=None)


def _shared(name: str) -> Any:
  """An attribute of the default generator: that of the thread's own one where it has one."""
  at: Any = getattr(Generator, name)
  def get(self: Generator) -> int: return at.__get__(_of_thread.get() or self)
  def put(self: Generator, value: int) -> None: at.__set__(_of_thread.get() or self, value)
  return property(get, put)


class _Default(Generator):
  """The generator of whoever names none."""
  __slots__ = ()
  _seed, _counter = _shared("_seed"), _shared("_counter")


def sequence_of_thread() -> None:
  """Have this thread go on in the default sequence by itself: what other threads draw changes nothing for it."""
  mine = Generator(default_generator._seed)
  mine._counter = default_generator._counter
  _of_thread.set(mine)


default_generator: Generator = _Default()


def place() -> tuple[int, int]:
  """The seed and how many numbers have been drawn since it was set, without a generator of their own."""
  return default_generator._seed, default_generator._counter


def next_state(n: int, generator: Generator | None = None) -> Host:
  """The place of the next n numbers, uint64 ``(counter, seed)``; the counter moves on by n."""
  return (generator or default_generator)._next(n)


def rng_state(n: int, device: str | None = None, generator: Generator | None = None) -> Any:
  """A uint64 Buffer of shape (2,) with the place of the next n numbers, marked with ``rng_count`` and ``rng_from``."""
  b = Buffer.from_numpy(device or Device.DEFAULT, next_state(n, generator))
  b.rng_count, b.rng_from = n, None if generator is default_generator else generator
  return b


def _bits(shape: Shape, device: str | None, generator: Generator | None = None) -> UOp:
  """64 random bits an element, uint64."""
  n = math.prod(shape)
  if not n: return const(0, dtypes.uint64, shape)
  state = graph.buffer(rng_state(n, device, generator))
  counter = cast(graph.iota(n), dtypes.uint64) + expand(shrink(state, ((0, 1),)), (n,))
  # the shape comes before the hash, so that the value on top is computed (and can be assigned), not a view
  key = expand(reshape(shrink(state, ((1, 2),)), (1,) * len(shape)), shape)
  return graph.binary(BinaryOps.THREEFRY, reshape(counter, shape), key)


def _fraction(r: UOp, dtype: DType) -> UOp:
  """[0, 1) from the top bits of uint64, in float32 or float64: as many bits as the dtype's fraction holds, so that 1 never comes
  out."""
  n = info_of(dtype).nmant + 1
  return cast(cast(r >> 64 - n, dtypes.int64 if n > 31 else dtypes.int32), acc_dtype(dtype)) * 2.0 ** -n


def _normal(r: UOp, dtype: DType) -> UOp:
  """Normal with mean 0 and variance 1 (Box-Muller). One hash: the high word gives the radius, the low word the angle."""
  work = acc_dtype(dtype)
  angle = cast(cast((r & 2 ** 32 - 1) >> 8, dtypes.int32), work) * (2 * math.pi * 2.0 ** -24)
  left = 1.0 - cast(_fraction(r, dtypes.float32), work)   # (0, 1]: its logarithm is finite
  return graph.sqrt(graph.log(left) * -2.0) * graph.cos(angle)


def below(value: float, dtype: DType) -> float:
  """The greatest number less than ``value`` that a dtype has."""
  least = np.array(-448 if dtype is dtypes.float8_e4m3 else -math.inf, np.float32).astype(dtype.np)
  return float(np.nextafter(np.array(value, dtype.np), least))


_ALPHA = 1.7580993408473766   # -selu(-inf): the scale of selu times its alpha


def _between(name: str, value: Any, low: bool = True) -> float:
  """A probability, from 0 to 1 (``low=False``: above 0). Raises ArgumentError."""
  p: float = real_number(name, "p", value)
  if not (0 <= p <= 1 if low else 0 < p <= 1):
    raise ArgumentError(f"{name}: p = {value}; it must be {'from 0' if low else 'above 0 and up'} to 1")
  return p


# Giles, Approximating the erfinv function, 2010: powers of w - 2.5 below w = 5, of sqrt(w) - 3 from there
_NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
         0.246640727, 1.50140941)
_FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406,
        2.83297682)


def _quantile(twice: Any) -> Any:
  """Where the normal distribution function has a value, of which twice is given: -sqrt(2) erfinv(1 - twice). Of float64, whose
  bits the polynomials do not have, with two steps of Newton's."""
  double, x = twice.dtype is dtypes.float64, 1 - twice
  w = (twice.maximum(1e-300 if double else 1e-37) * (2 - twice).maximum(2.0 ** -60)).log().neg()   # of (1 - x) (1 + x)
  y = (w < 5).where(polynomial(w - 2.5, _NEAR), polynomial(w.maximum(5.0).sqrt() - 3, _FAR)) * x
  for _ in range(2 if double else 0):   # where erf still grows
    y = y - (w < 12).where((y.erf() - x) / ((y * y).neg().exp() * (2 / math.sqrt(math.pi))), 0.0)
  return y * -math.sqrt(2)


def _few_of(rate: Any, u: Any) -> Any:
  """Numbers of the Poisson distribution of rates below 10: how many of its probabilities, added up, do not reach u."""
  each = rate.neg().exp()
  total, out = each, u * 0
  for k in range(1, 48):
    each = each * (rate * (1 / k))
    out = out + ((u >= total) & (each > 1e-9)).cast(out.dtype)   # what is less only adds roundings
    total = total + each
  return out


def _many_of(rate: Any, generator: Generator | None, attempts: int = 16) -> Any:
  """Numbers of the Poisson distribution of rates from 10 on, (1, ..) -> (..), as PTRS draws them."""
  shape = attempts, *rate.shape[1:]
  u, v = rate._uniform(generator, shape) - 0.5, 1 - rate._uniform(generator, shape)
  b = rate.sqrt() * 2.53 + 0.931
  a = b * 0.02483 - 0.059
  off = 0.5 - u.abs()
  k = ((a * 2 / off + b) * u + rate + 0.43).floor()
  # log of the probability of k, with Stirling's series for log k!, so that great numbers do not cancel
  n = k.maximum(1)
  off_by = (rate - n) / n
  ratio = off_by + 1
  log_ratio = ratio.log() + (off_by - (ratio - 1)) / ratio
  log_p = n * (log_ratio - off_by) - (n * (2 * math.pi)).log() * 0.5 - (1 / 12 - (1 / 360 - 1 / 1260 / (n * n)) / (n * n)) / n
  log_p = (k < 1).where(-rate, log_p)
  accepted = (k >= 0) & (off > 0) & ((v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (off * off) + b)).log() <= log_p)
  # the first that is accepted, by its number
  number = type(rate).arange(attempts, 0, -1, device=rate.device).reshape(attempts, *(1,) * (rate.ndim - 1))
  first = accepted.where(number, 0).max(axis=0, keepdim=True)
  return (first.squeeze(0) > 0).where((accepted & (number == first)).where(k, 0.0).sum(0), rate.squeeze(0).round())


@checked
class Random(Sorting):
  """Random tensors, samples, permutations and dropout."""
  __slots__ = ()

  # ---- numbers of a shape
  @staticmethod
  def manual_seed(seed: int = 0) -> None:
    """Start the sequence of random numbers (of the default generator) over with a seed (0 .. 2**64 - 1). Raises ArgumentError."""
    default_generator._begin("manual_seed", seed)

  @classmethod
  def _random(cls, name: str, shape: Any, device: str | None, dtype: Any, size: Any = None) -> tuple[Shape, str, DType]:
    d = dtypes.of(dtype, dtypes.default_float)
    if d.kind != "f": raise DTypeError(f"{name}: {d.name}; it gives floats (randint gives ints)")
    return new_shape(name, shape, size), Device._located(device), d

  @classmethod
  def _of_bits(cls, name: str, fn: Callable[[UOp, DType], UOp], *shape: Any, size: Any = None, generator: Generator | None = None,
               device: str | None = None, dtype: Any = None, requires_grad: bool | None = None) -> Self:
    s, dev, d = cls._random(name, shape, device, dtype, size)
    return cls._made(cast(fn(_bits(s, dev, generator), d), d), None, requires_grad)
  rand = class_member(_of_bits, _fraction, """
    Uniform in [0, 1), of the default float (float32) unless told otherwise. Raises ArgumentError, DTypeError.""")
  randn = class_member(_of_bits, _normal, """
    Normal with mean 0 and variance 1 (Box-Muller), of the default float (float32) unless told otherwise. Raises
    ArgumentError, DTypeError.""")

  @classmethod
  def uniform(cls, *shape: Any, low: float = 0.0, high: float = 1.0, generator: Generator | None = None,
              device: str | None = None, dtype: Any = None, requires_grad: bool | None = None) -> Self:
    """Uniform in [low, high), both rounded to the dtype. Raises ArgumentError, DTypeError."""
    low, high = real_number("uniform", "low", low), real_number("uniform", "high", high)
    if dtype is not None and dtypes.of(dtype).kind in "iu":
      if not all([math.isfinite(v) and v == int(v) for v in (low, high)]):
        raise ArgumentError(f"uniform: low {low}, high {high} for {dtypes.of(dtype).name}; they must be ints")
      return cls.randint(*shape, low=int(low), high=int(high), generator=generator, device=device, dtype=dtype)
    s, dev, d = cls._random("uniform", shape, device, dtype)
    if not low <= high or not all([math.isfinite(held(v, t)) for v, t in ((low, d), (high, d), (high - low, acc_dtype(d)))]):
      raise ArgumentError(f"uniform: low {low}, high {high} for {d.name}; numbers of the dtype, low not above high, nor too far "
                          "apart")
    u = _fraction(_bits(s, dev, generator), d)
    if high - low != 1:
      u = u * (high - low)
      # through its bits, so that no compiler joins the product with a sum: the same bits on every device
      if low: u = seen_as(seen_as(u, graph.UINTS[u.dtype.itemsize]), u.dtype)
    if low: u = u + low
    u = cast(u, d)
    # fractions of high stay below it; a sum may be rounded up to it
    if low or u.dtype is not acc_dtype(d): u = minimum(u, max(below(held(high, d), d), held(low, d)))
    return cls._made(u, None, requires_grad)

  @classmethod
  def normal(cls, *shape: Any, mean: float = 0.0, std: float = 1.0, requires_grad: bool | None = None, **kwargs: Any) -> Self:
    """Normal with a mean and a standard deviation; ``generator``, ``device`` and ``dtype`` as for ``randn``. Raises
    ArgumentError, DTypeError."""
    mean, std = real_number("normal", "mean", mean), real_number("normal", "std", std)
    if std < 0: raise ArgumentError(f"normal: std {std}; it must not be negative")
    return cls._made(cls.randn(*shape, **kwargs).lazydata * std + mean, None, requires_grad)

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
    r, span = _bits(new_shape("randint", shape, size), Device._located(device), generator), high - low
    if span < 2 ** 32: r = (r >> 32) * span >> 32
    elif span < 2 ** 64: r = graph.mod(r, span)
    u = cast(r, dtypes.uint64 if d is dtypes.uint64 else dtypes.int64)
    return cls._from_node(cast(u + low if low else u, d))

  @classmethod
  def scaled_uniform(cls, *shape: Any, requires_grad: bool | None = None, **kwargs: Any) -> Self:
    """Uniform in [-1, 1) divided by sqrt(number of elements)."""
    bound = 1 / math.sqrt(max(math.prod(new_shape("scaled_uniform", shape)), 1))
    return cls.uniform(*shape, low=-bound, high=bound, requires_grad=requires_grad, **kwargs)
  @classmethod
  def glorot_uniform(cls, *shape: Any, requires_grad: bool | None = None, **kwargs: Any) -> Self:
    """Uniform with bound sqrt(6 / (first size + product of the others)). Raises ShapeError for no dims."""
    s = cls._fan("glorot_uniform", shape)
    bound = math.sqrt(6 / (s[0] + math.prod(s[1:])))
    return cls.uniform(*s, low=-bound, high=bound, requires_grad=requires_grad, **kwargs)
  @classmethod
  def kaiming_uniform(cls, *shape: Any, a: float = 0.01, requires_grad: bool | None = None, **kwargs: Any) -> Self:
    """Uniform with bound sqrt(6 / (1 + a²) / fan in), the fan in being the product of all sizes but the first. Raises ShapeError
    for no dims."""
    s = cls._fan("kaiming_uniform", shape)
    bound = math.sqrt(6 / (1 + a * a) / math.prod(s[1:]))
    return cls.uniform(*s, low=-bound, high=bound, requires_grad=requires_grad, **kwargs)
  @classmethod
  def kaiming_normal(cls, *shape: Any, a: float = 0.01, requires_grad: bool | None = None, **kwargs: Any) -> Self:
    """Normal with deviation sqrt(2 / (1 + a²) / fan in), the fan in being the product of all sizes but the first. Raises
    ShapeError for no dims."""
    s = cls._fan("kaiming_normal", shape)
    return cls.normal(*s, mean=0.0, std=math.sqrt(2 / (1 + a * a) / math.prod(s[1:])), requires_grad=requires_grad, **kwargs)
  @classmethod
  def _fan(cls, name: str, shape: Any) -> Shape:
    s = new_shape(name, shape)
    if not s or 0 in s: raise ShapeError(f"{name}: shape {s}; it takes at least one dimension and no size of 0")
    return s

  def _like(self, make: str, *, generator: Generator | None = None, dtype: Any = None, device: str | None = None,
            requires_grad: bool | None = None) -> Self:
    return getattr(type(self), make)(*self.shape, generator=generator, requires_grad=requires_grad,
                                     **self._alike_in(dtype, device))._called(self._names)
  rand_like = member(_like, "rand", "Uniform in [0, 1) of this shape, dtype and device. Raises DTypeError.")
  randn_like = member(_like, "randn", "Normal of this shape, dtype and device. Raises DTypeError.")
  def randint_like(self, low: int = 0, high: int = 10, *, generator: Generator | None = None, dtype: Any = None,
                   device: str | None = None) -> Self:
    """Ints from low to high - 1 of this shape, dtype and device; of the default int where this tensor has no ints. Raises
    ArgumentError, DTypeError."""
    return type(self).randint(*self.shape, low=low, high=high, generator=generator, **self._alike_in(
      dtypes.default_int if dtype is None and self.dtype.kind not in "iu" else dtype, device))._called(self._names)

  # ---- distributions of a shape
  @classmethod
  def _left(cls, s: Shape, device: str, d: DType, generator: Generator | None) -> UOp:
    """Uniform in (0, 1], so that its logarithm is finite, in float32 or float64."""
    return 1.0 - _fraction(_bits(s, device, generator), dtypes.float64 if d is dtypes.float64 else dtypes.float32)

  @classmethod
  def exponential(cls, *shape: Any, lambd: float = 1.0, generator: Generator | None = None, device: str | None = None,
                  dtype: Any = None, requires_grad: bool | None = None) -> Self:
    """The exponential distribution of a rate: -log(1 - u) / lambd. Raises ArgumentError for a rate not above 0, DTypeError."""
    if real_number("exponential", "lambd", lambd) <= 0: raise ArgumentError(f"exponential: lambd {lambd}; it must be above 0")
    s, dev, d = cls._random("exponential", shape, device, dtype)
    u = 0.0 - graph.log(cls._left(s, dev, d, generator)) / lambd   # 0 where the logarithm is: not -0
    return cls._made(cast(u, d), None, requires_grad)

  @classmethod
  def geometric(cls, *shape: Any, p: float = 0.5, generator: Generator | None = None, device: str | None = None,
                dtype: Any = None) -> Self:
    """How many trials up to the first success of probability p, 1 at least; of the default int (int32) unless told otherwise, in
    floats too. Raises ArgumentError for a p that is not above 0 and up to 1, DTypeError."""
    p = _between("geometric", p, low=False)
    d = number_dtype("geometric", dtype, dtypes.default_int)
    s = new_shape("geometric", shape)
    if p == 1: return cls.full(s, 1, dtype=d, device=device)
    failures = graph.floor(graph.log(cls._left(s, Device._located(device), d, generator)) * (1 / math.log1p(-p)))
    # the greatest that every dtype's float has below its greatest int
    most = float(dtypes.max(d)) * (1 - 2.0 ** -20) if d.kind in "iu" else math.inf
    return cls._from_node(cast(minimum(failures + 1.0, most), d))

  @classmethod
  def log_normal(cls, *shape: Any, mean: float = 1.0, std: float = 2.0, generator: Generator | None = None,
                 device: str | None = None, dtype: Any = None, requires_grad: bool | None = None) -> Self:
    """exp of a normal distribution with that mean and standard deviation. Raises ArgumentError, DTypeError."""
    s, dev, d = cls._random("log_normal", shape, device, dtype)
    return cls._made(cast(graph.exp(cls.normal(
      *s, mean=mean, std=std, generator=generator, device=dev, dtype=acc_dtype(d)).lazydata), d), None, requires_grad)

  @classmethod
  def trunc_normal(cls, *shape: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                   generator: Generator | None = None, device: str | None = None, dtype: Any = None,
                   requires_grad: bool | None = None) -> Self:
    """Normal with a mean and a standard deviation, of which only what lies between a and b is drawn: the quantile of a uniform
    number. Raises ArgumentError, DTypeError."""
    name = "trunc_normal"
    mean, std, a, b = [real_number(name, *given) for given in (("mean", mean), ("std", std), ("a", a), ("b", b))]
    if std < 0 or not a <= b: raise ArgumentError(f"{name}: std {std}, a {a}, b {b}; std of at least 0, and a not above b")
    s, dev, d = cls._random(name, shape, device, dtype)
    if not std: return cls.full(s, min(max(mean, a), b), dtype=d, device=dev, requires_grad=requires_grad)
    # of the half in which most of it lies, so that small probabilities are not differences from 1
    sign = -1.0 if (a - mean) + (b - mean) > 0 else 1.0
    low, high = sorted([math.erfc(-sign * (x - mean) / std / math.sqrt(2)) for x in (a, b)])   # twice the probabilities
    x = _quantile(cls._from_node(_fraction(_bits(s, dev, generator), acc_dtype(d))) * (high - low) + low) * (sign * std) + mean
    return cls._made(x.minimum(b).maximum(a).cast(d).lazydata, None, requires_grad)

  @classmethod
  def randperm(cls, n: int, *, generator: Generator | None = None, dtype: Any = None, device: str | None = None) -> Self:
    """The ints 0 .. n - 1 in random order, of the default int (int32) unless told otherwise: where 64 random bits each stand when
    sorted. Raises ArgumentError, DTypeError for bool."""
    d = number_dtype("randperm", dtype, dtypes.default_int)
    s = new_shape("randperm", (whole_number("randperm", "n", n, 0),))
    if n and d.kind in "iu" and n - 1 > dtypes.max(d):
      raise ArgumentError(f"randperm: {n - 1} does not fit {d.name}, which holds up to {dtypes.max(d)}")
    if not n: return cls._from_node(const(0, d, s))
    return cls._from_node(cast(cls._from_node(_bits(s, Device._located(device), generator)).argsort(0).lazydata, d))

  # ---- distributions that a tensor gives
  def _uniform(self, generator: Generator | None, shape: Shape | None = None) -> Self:
    """Uniform float32 (float64 for a tensor of that) on this device."""
    d = dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32
    return type(self).rand(*self.shape if shape is None else shape, generator=generator, device=self.device, dtype=d)

  def bernoulli(self, p: Operand | None = None, *, generator: Generator | None = None) -> Self:
    """1 with the probability that each element is, else 0, of this shape and dtype; with ``p``, a number or a tensor that
    broadcasts to this shape, those are the probabilities. An element below 0 counts as 0, one above 1 as 1, NaN as 0. No
    gradient. Raises DTypeError for probabilities that are no floats, ShapeError, ArgumentError for a number p outside [0, 1]."""
    of: Any = self if p is None else p
    of_kind("f", "bernoulli", "probabilities", of, "they must be floats")
    if p is not None:
      if (value := graph.const_value(of.lazydata)) is not None: _between("bernoulli", value)
      of = of.expand(self.shape)
    return self._detached(cast((of._uniform(generator) < of).lazydata, self.dtype))

  def poisson(self, *, generator: Generator | None = None) -> Self:
    """Of each element as a rate, a number of the Poisson distribution, of this shape and dtype; NaN for negative rates and NaN.
    No gradient. Raises DTypeError for rates that are no floats. Below a rate of 10 by inversion, above by transformed rejection
    (Hörmann, The transformed rejection method for generating Poisson random variables, 1993, PTRS), the first of 16 attempts that
    is accepted (should all fail, which is rarer than once in 10**9: the rate rounded)."""
    of_kind("f", "poisson", "rates", self, "they must be floats")
    rate: Any = self.named().detach()
    if rate.dtype.itemsize < 8: rate = rate.cast(dtypes.float32)
    small = rate < 10
    few = _few_of(small.where(rate, 1.0), rate._uniform(generator))
    many = _many_of((~small & (rate < 2.0 ** 60)).where(rate, 16.0).unsqueeze(0), generator)
    out = (rate >= 0).where(small.where(few, (rate < 2.0 ** 60).where(many, rate)), math.nan)
    return self._detached(cast(out.lazydata, self.dtype))

  def multinomial(self, num_samples: int = 1, replacement: bool = False, *, generator: Generator | None = None) -> Self:
    """Indices drawn by weight along the last dim of a 1-d or 2-d tensor, int32: (n,) gives (num_samples,), (m, n) gives (m,
    num_samples). Weights need not add up to 1; they must not be negative. Without replacement the indices of a row differ: those
    of the least exponential variables with the weights as rates (Efraimidis and Spirakis, Weighted random sampling with a
    reservoir, 2006), and indices of weight 0 come last. Raises ShapeError, ArgumentError for more samples than that gives."""
    if self.ndim not in (1, 2): raise ShapeError(f"multinomial: weights of shape {self.shape}; it takes 1 or 2 dimensions")
    n = self.shape[-1]
    if num_samples < 1 or not n or (num_samples > n and not replacement):
      raise ArgumentError(f"multinomial: {num_samples} samples of {n} weights with replacement={replacement}; "
                          "at least one, and without replacement up to as many as there are weights")
    w: Any = self.named().atleast_2d().detach().cast(dtypes.float32)
    make: Any = type(self)
    how = {"generator": generator, "device": self.device, "dtype": dtypes.float32}
    if replacement or num_samples == 1:
      running = w.cumsum(1)
      last = running.shrink(((0, w.shape[0]), (n - 1, n)))
      drawn = make.rand(w.shape[0], num_samples, 1, **how) >= (running / last).unsqueeze(1)
      out: Any = drawn.sum(2, dtype=dtypes.int32).minimum(n - 1)
    else: out = (make.exponential(*w.shape, **how) / w).topk(num_samples, 1, False)[1]
    return out.squeeze(0) if self.ndim == 1 else out

  # ---- written in place
  def uniform_(self, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Self:
    """Uniform in [low, high), written in place; see ``uniform`` and ``add_``."""
    return self._drawn("uniform", generator, low=low, high=high)
  def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Self:
    """Normal, written in place; see ``normal`` and ``add_``."""
    return self._drawn("normal", generator, mean=mean, std=std)
  def exponential_(self, lambd: float = 1.0, *, generator: Generator | None = None) -> Self:
    """The exponential distribution, written in place; see ``exponential`` and ``add_``."""
    return self._drawn("exponential", generator, lambd=lambd)
  def log_normal_(self, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Self:
    """exp of a normal distribution, written in place; see ``log_normal`` and ``add_``."""
    return self._drawn("log_normal", generator, mean=mean, std=std)
  def geometric_(self, p: float, *, generator: Generator | None = None) -> Self:
    """The geometric distribution, written in place; see ``geometric`` and ``add_``."""
    return self._drawn("geometric", generator, p=p)
  def bernoulli_(self, p: Operand = 0.5, *, generator: Generator | None = None) -> Self:
    """1 with probability p, else 0, written in place; see ``bernoulli`` and ``add_``."""
    return self._in_place("bernoulli_", lambda: self.bernoulli(p, generator=generator))
  def _drawn(self, name: str, generator: Generator | None, **options: float) -> Self:
    """What a distribution gives for this shape, dtype and device, written in place."""
    return self._in_place(f"{name}_", lambda: getattr(type(self), name)(
      *self.shape, generator=generator, dtype=self.dtype, device=self.device, **options))

  # ---- dropout
  def gumbel_softmax(self, tau: float = 1.0, hard: bool = False, dim: int | str = -1, *,
                     generator: Generator | None = None) -> Self:
    """softmax((x + g) / tau) along a dim with Gumbel noise g: nearly one-hot samples of the classes whose logits x are; ``hard``:
    exactly one-hot ones, which have the gradient of the soft ones (Jang et al., https://arxiv.org/abs/1611.01144). Raises
    AxisError, DTypeError, ArgumentError."""
    if not real_number("gumbel_softmax", "tau", tau) > 0: raise ArgumentError(f"gumbel_softmax: tau {tau}; it must be above 0")
    of_kind("f", "gumbel_softmax", "a tensor", self, "it takes floats")
    x = self._wide()
    noise = type(self).exponential(*self.shape, generator=generator, device=self.device, dtype=x.dtype).log()
    soft, d = ((x - noise) / tau).softmax(dim), self._dim("gumbel_softmax", dim)
    if not hard or not self.ndim: return soft.cast(self.dtype)
    at = self._from_node(graph.index_along(d, self.shape))
    return ((at == soft.detach().argmax(d, keepdim=True)).cast(soft.dtype) + (soft - soft.detach())).cast(self.dtype)

  def _dropout(self, name: str, dims: Shape, p: float = 0.5, training: bool | None = None, *,
               generator: Generator | None = None) -> Self:
    """Of elements or, where ``dims`` says how many dimensions there may be (and last, of how many the first is no batch), of
    whole channels, which are at dim 1, or 0 without a batch. Raises ShapeError."""
    shape = self.shape
    if dims:
      *ranks, unbatched = dims
      if self.ndim not in (ranks or range(2, self.ndim + 1)):
        raise ShapeError(f"{name}: shape {shape}; it takes {' or '.join(map(str, ranks)) or 'at least 2'} dimensions")
      front = 1 if self.ndim == unbatched else 2
      shape = shape[:front] + (1,) * (self.ndim - front)
    p = _between(name, p)
    if not (mode.training if training is None else flag(name, training)) or p == 0: return self._own()
    if p == 1: return self * 0
    kept = type(self).rand(*shape, generator=generator, device=self.device, dtype=dtypes.float32) >= p
    if "alpha" not in name: return kept.where(self * (1 / (1 - p)), 0)
    scale = 1 / math.sqrt((_ALPHA ** 2 * p + 1) * (1 - p))
    return kept.where(self * scale + _ALPHA * scale * p, _ALPHA * scale * (p - 1))

  dropout = member(_dropout, (), """
    While training: zero with probability p, else divided by 1 - p. ``training`` None: as ``Tensor.train`` says. Raises
    ArgumentError for a p outside [0, 1].""")
  dropout1d = member(_dropout, (2, 3, 2), """
    ``dropout`` of whole channels of (n, channels, length), or (channels, length). Raises ShapeError, ArgumentError.""")
  dropout2d = member(_dropout, (3, 4, 0), """
    ``dropout`` of whole channels of (n, channels, height, width); of 3 dims, as in PyTorch, (n, channels, length). Raises
    ShapeError, ArgumentError.""")
  dropout3d = member(_dropout, (4, 5, 4), """
    ``dropout`` of whole channels of (n, channels, depth, height, width), or without n. Raises ShapeError, ArgumentError.""")
  alpha_dropout = member(_dropout, (), """
    While training: elements go to the limit of ``selu`` with probability p, and all are scaled so that mean 0 and variance 1
    stay (Klambauer et al., Self-Normalizing Neural Networks, 2017). Raises ArgumentError.""")
  feature_alpha_dropout = member(
    _dropout, (0,), "``alpha_dropout`` of whole channels of (n, channels, ..). Raises ShapeError, ArgumentError.")

  def rrelu(self, lower: float = 1 / 8, upper: float = 1 / 3, training: bool | None = None) -> Self:
    """x where it is not negative, else x times a slope: in training (None: as ``Tensor.training`` says) random from lower to
    upper, each element its own; else the mean of both. Raises ArgumentError."""
    if not lower <= upper: raise ArgumentError(f"rrelu: lower {lower}, upper {upper}; they must be in order")
    slope: Any = (lower + upper) / 2
    x = self._in_floats()
    if mode.training if training is None else training:
      slope = type(self).uniform(*self.shape, low=lower, high=upper, device=self.device, dtype=x.dtype)
    return (x >= 0).where(x, x * slope)
