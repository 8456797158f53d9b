"""Random numbers that depend on a tensor: samples of distributions, permutations, dropout."""
from __future__ import annotations

import math
from typing import Any, Self

from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import ArgumentError, ShapeError
from ntgrad.codegen.ir.uop import UOp
from ntgrad.core import real_number, whole_number
from ntgrad.engine.device import Device
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import Operand, checked, flag, of_kind
from ntgrad.graph.formulas import polynomial
from ntgrad.graph.modes import mode

from .creation import new_shape, number_dtype
from .numeric import Numeric
from .random import Generator, Random, bits, fraction
from .sorting import Sorting

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
  shape = (attempts, *rate.shape[1:])
  u, v = rate._uniform(generator, shape) - 0.5, 1 - rate._uniform(generator, shape)
  root = rate.sqrt()
  b = root * 2.53 + 0.931
  a = b * 0.02483 - 0.059
  off = 0.5 - u.abs()
  k = ((a * 2 / off + b) * u + rate + 0.43).floor()
  # log of the probability of k, with Stirling's series for log k!, so that great numbers do not cancel
  n = k.maximum(1)
  off_by = (rate - n) / n
  ratio = off_by + 1
  log_ratio = ratio.log() + (off_by - (ratio - 1)) / ratio
  series = (1 / 12 - (1 / 360 - 1 / 1260 / (n * n)) / (n * n)) / n
  log_p = n * (log_ratio - off_by) - (n * (2 * math.pi)).log() * 0.5 - series
  log_p = (k < 1).where(-rate, log_p)
  accepted = (k >= 0) & (off > 0) & ((v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (off * off) + b)).log() <= log_p)
  # the first that is accepted, by its number
  number = type(rate).arange(attempts, 0, -1, device=rate.device).reshape(attempts, *(1,) * (rate.ndim - 1))
  first = accepted.where(number, 0).max(axis=0, keepdim=True)
  found = (accepted & (number == first)).where(k, 0.0).sum(0)
  return (first.squeeze(0) > 0).where(found, rate.squeeze(0).round())


@checked
class Drawing(Sorting, Random, Numeric):
  """Samples, permutations and dropout."""
  __slots__ = ()

  # ---- distributions of a shape
  @classmethod
  def _left(cls, s: tuple[int, ...], device: str, d: DType, generator: Generator | None) -> UOp:
    """Uniform in (0, 1], so that its logarithm is finite, in float32 or float64."""
    work = dtypes.float64 if d is dtypes.float64 else dtypes.float32
    return graph.sub(1.0, fraction(bits(s, device, generator), work))

  @classmethod
  def exponential(cls, *shape: Any, lambd: float = 1.0, generator: Generator | None = None, device: str | None = None,
                  dtype: Any = None, requires_grad: bool | None = None) -> Self:
    """The exponential distribution of a rate: -log(1 - u) / lambd. Raises ArgumentError for a rate that is not above 0,
    DTypeError."""
    if real_number("exponential", "lambd", lambd) <= 0: raise ArgumentError(f"exponential: lambd {lambd}; it must be above 0")
    s, dev, d = cls._random("exponential", shape, device, dtype)
    log = graph.log(cls._left(s, dev, d, generator))
    # 0 where the logarithm is: not -0
    u = graph.sub(0.0, graph.div(log, lambd))
    return cls._made(graph.cast(u, d), None, requires_grad)

  @classmethod
  def geometric(cls, *shape: Any, p: float = 0.5, generator: Generator | None = None, device: str | None = None,
                dtype: Any = None) -> Self:
    """How many trials up to the first success of probability p, 1 at least; of the default int (int32) unless told otherwise, in
    floats too. Raises ArgumentError for a p that is not above 0 and up to 1, DTypeError."""
    p = _between("geometric", p, low=False)
    d = number_dtype("geometric", dtype, dtypes.default_int)
    s = new_shape("geometric", shape)
    if p == 1: return cls.full(s, 1, dtype=d, device=device)
    log = graph.log(cls._left(s, Device._located(device), d, generator))
    failures = graph.floor(graph.mul(log, 1 / math.log1p(-p)))
    # the greatest that every dtype's float has below its greatest int
    most = float(dtypes.max(d)) * (1 - 2.0 ** -20) if d.kind in "iu" else math.inf
    return cls._from_node(graph.cast(graph.minimum(graph.add(failures, 1.0), most), d))

  @classmethod
  def log_normal(cls, *shape: Any, mean: float = 1.0, std: float = 2.0, generator: Generator | None = None,
                 device: str | None = None, dtype: Any = None, requires_grad: bool | None = None) -> Self:
    """exp of a normal distribution with that mean and standard deviation. Raises ArgumentError, DTypeError."""
    s, dev, d = cls._random("log_normal", shape, device, dtype)
    u = cls.normal(*s, mean=mean, std=std, generator=generator, device=dev, dtype=graph.acc_dtype(d)).lazydata
    return cls._made(graph.cast(graph.exp(u), d), None, requires_grad)

  @classmethod
  def trunc_normal(cls, *shape: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                   generator: Generator | None = None, device: str | None = None, dtype: Any = None,
                   requires_grad: bool | None = None) -> Self:
    """Normal with a mean and a standard deviation, of which only what lies between a and b is drawn: the quantile of a uniform
    number. Raises ArgumentError, DTypeError."""
    name = "trunc_normal"
    mean, std, a, b = [real_number(name, what, v) for what, v in (("mean", mean), ("std", std), ("a", a), ("b", b))]
    if std < 0 or not a <= b: raise ArgumentError(f"{name}: std {std}, a {a}, b {b}; std of at least 0, and a not above b")
    s, dev, d = cls._random(name, shape, device, dtype)
    if not std: return cls.full(s, min(max(mean, a), b), dtype=d, device=dev, requires_grad=requires_grad)
    # of the half in which most of it lies, so that small probabilities are not differences from 1
    sign = -1.0 if (a - mean) + (b - mean) > 0 else 1.0
    low, high = sorted([math.erfc(-sign * (x - mean) / std / math.sqrt(2)) for x in (a, b)])   # twice the probabilities
    u: Any = cls._from_node(fraction(bits(s, dev, generator), graph.acc_dtype(d)))
    x = _quantile(u * (high - low) + low) * (sign * std) + mean
    return cls._made(x.minimum(b).maximum(a).cast(d).lazydata, None, requires_grad)

  @classmethod
  def randperm(cls, n: int, *, generator: Generator | None = None, dtype: Any = None, device: str | None = None) -> Self:
    """The ints 0 .. n - 1 in random order, of the default int (int32) unless told otherwise: where 64 random bits each stand when
    sorted. Raises ArgumentError, DTypeError for bool."""
    d = number_dtype("randperm", dtype, dtypes.default_int)
    s = new_shape("randperm", (whole_number("randperm", "n", n, 0),))
    if n and d.kind in "iu" and n - 1 > dtypes.max(d):
      raise ArgumentError(f"randperm: {n - 1} does not fit {d.name}, which holds up to {dtypes.max(d)}")
    if not n: return cls._from_node(graph.const(0, d, s))
    keys = cls._from_node(bits(s, Device._located(device), generator))
    return cls._from_node(graph.cast(keys.argsort(0).lazydata, d))

  # ---- distributions that a tensor gives
  def _uniform(self, generator: Generator | None, shape: tuple[int, ...] | None = None) -> Self:
    """Uniform float32 (float64 for a tensor of that) on this device."""
    s = self.shape if shape is None else shape
    d = dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32
    return type(self).rand(*s, generator=generator, device=self.device, dtype=d)

  def bernoulli(self, p: Operand | None = None, *, generator: Generator | None = None) -> Self:
    """1 with the probability that each element is, else 0, of this shape and dtype; with ``p``, a number or a tensor that
    broadcasts to this shape, those are the probabilities.

    An element below 0 counts as 0, one above 1 as 1, NaN as 0. No gradient. Raises DTypeError for probabilities that are no
    floats, ShapeError, ArgumentError for a number p outside [0, 1].
    """
    of: Any = self if p is None else p
    of_kind("f", "bernoulli", "probabilities", of, "they must be floats")
    if p is not None:
      value = graph.const_value(of.lazydata)
      if value is not None: _between("bernoulli", value)
      of = of.expand(self.shape)
    drawn = of._uniform(generator) < of
    return self._detached(graph.cast(drawn.lazydata, self.dtype))

  def poisson(self, *, generator: Generator | None = None) -> Self:
    """Of each element as a rate, a number of the Poisson distribution, of this shape and dtype; NaN for negative rates and NaN.
    No gradient. Raises DTypeError for rates that are no floats.

    Below a rate of 10 by inversion, above by transformed rejection (Hörmann, The transformed rejection method for generating
    Poisson random variables, 1993, PTRS), the first of 16 attempts that is accepted (should all fail, which is rarer than once in
    10**9: the rate rounded).
    """
    of_kind("f", "poisson", "rates", self, "they must be floats")
    rate: Any = self.named().detach()
    if rate.dtype.itemsize < 8: rate = rate.cast(dtypes.float32)
    small = rate < 10
    few = _few_of(small.where(rate, 1.0), rate._uniform(generator))
    many = _many_of((~small & (rate < 2.0 ** 60)).where(rate, 16.0).unsqueeze(0), generator)
    out = (rate >= 0).where(small.where(few, (rate < 2.0 ** 60).where(many, rate)), math.nan)
    return self._detached(graph.cast(out.lazydata, self.dtype))

  def multinomial(self, num_samples: int = 1, replacement: bool = False, *, generator: Generator | None = None) -> Self:
    """Indices drawn by weight along the last dim of a 1-d or 2-d tensor, int32: (n,) gives (num_samples,), (m, n) gives
    (m, num_samples).

    Weights need not add up to 1; they must not be negative. Without replacement the indices of a row differ: those of the least
    exponential variables with the weights as rates (Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006),
    and indices of weight 0 come last. Raises ShapeError, ArgumentError for more samples than that gives.
    """
    if self.ndim not in (1, 2): raise ShapeError(f"multinomial: weights of shape {self.shape}; it takes 1 or 2 dimensions")
    n = self.shape[-1]
    if num_samples < 1 or not n or (num_samples > n and not replacement):
      raise ArgumentError(f"multinomial: {num_samples} samples of {n} weights with replacement={replacement}; "
                          "at least one, and without replacement up to as many as there are weights")
    w: Any = (self.named().unsqueeze(0) if self.ndim == 1 else self.named()).detach().cast(dtypes.float32)
    make = type(self)
    if replacement or num_samples == 1:
      running = w.cumsum(1)
      last = running.shrink(((0, w.shape[0]), (n - 1, n)))
      drawn: Any = make.rand(w.shape[0], num_samples, 1, generator=generator, device=self.device, dtype=dtypes.float32)
      out = (drawn >= (running / last).unsqueeze(1)).sum(2, dtype=dtypes.int32).minimum(n - 1)
    else:
      waits: Any = make.exponential(*w.shape, generator=generator, device=self.device, dtype=dtypes.float32)
      out = (waits / w).topk(num_samples, 1, False)[1]
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
    made = {"generator": generator, "dtype": self.dtype, "device": self.device, **options}
    return self._in_place(f"{name}_", lambda: getattr(type(self), name)(*self.shape, **made))

  # ---- dropout
  def gumbel_softmax(self, tau: float = 1.0, hard: bool = False, dim: int | str = -1, *,
                     generator: Generator | None = None) -> Self:
    """softmax((x + g) / tau) along a dim with Gumbel noise g: nearly one-hot samples of the classes whose logits x are; ``hard``:
    exactly one-hot ones, which have the gradient of the soft ones (Jang et al., https://arxiv.org/abs/1611.01144).

    Raises AxisError, DTypeError, ArgumentError.
    """
    if not real_number("gumbel_softmax", "tau", tau) > 0: raise ArgumentError(f"gumbel_softmax: tau {tau}; it must be above 0")
    of_kind("f", "gumbel_softmax", "a tensor", self, "it takes floats")
    x: Any = self.cast(graph.acc_dtype(self.dtype))
    noise = type(self).exponential(*self.shape, generator=generator, device=self.device, dtype=x.dtype).log()
    soft = ((x - noise) / tau).softmax(dim)
    if not hard: return soft.cast(self.dtype)
    d = self._dim("gumbel_softmax", dim)
    if not self.ndim: return soft.cast(self.dtype)
    at = self._from_node(graph.index_along(d, self.shape))
    chosen = (at == soft.detach().argmax(d, keepdim=True)).cast(soft.dtype)
    return (chosen + (soft - soft.detach())).cast(self.dtype)

  def dropout(self, p: float = 0.5, training: bool | None = None, *, generator: Generator | None = None) -> Self:
    """While training: zero with probability p, else divided by 1 - p. ``training`` None: as ``Tensor.train`` says. Raises
    ArgumentError for a p outside [0, 1]."""
    return self._dropped("dropout", p, training, self.shape, generator)

  def dropout1d(self, p: float = 0.5, training: bool | None = None, *, generator: Generator | None = None) -> Self:
    """``dropout`` of whole channels of (n, channels, length), or (channels, length). Raises ShapeError, ArgumentError."""
    return self._dropped("dropout1d", p, training, self._per_channel("dropout1d", (2, 3), 2), generator)

  def dropout2d(self, p: float = 0.5, training: bool | None = None, *, generator: Generator | None = None) -> Self:
    """``dropout`` of whole channels of (n, channels, height, width); of 3 dims, as in PyTorch, (n, channels, length). Raises
    ShapeError, ArgumentError."""
    return self._dropped("dropout2d", p, training, self._per_channel("dropout2d", (3, 4), 0), generator)

  def dropout3d(self, p: float = 0.5, training: bool | None = None, *, generator: Generator | None = None) -> Self:
    """``dropout`` of whole channels of (n, channels, depth, height, width), or without n. Raises ShapeError, ArgumentError."""
    return self._dropped("dropout3d", p, training, self._per_channel("dropout3d", (4, 5), 4), generator)

  def alpha_dropout(self, p: float = 0.5, training: bool | None = None, *, generator: Generator | None = None) -> Self:
    """While training: elements go to the limit of ``selu`` with probability p, and all are scaled so that mean 0 and variance 1
    stay (Klambauer et al., Self-Normalizing Neural Networks, 2017). Raises ArgumentError."""
    return self._dropped("alpha_dropout", p, training, self.shape, generator, alpha=True)

  def feature_alpha_dropout(self, p: float = 0.5, training: bool | None = None, *, generator: Generator | None = None) -> Self:
    """``alpha_dropout`` of whole channels of (n, channels, ..). Raises ShapeError, ArgumentError."""
    shape = self._per_channel("feature_alpha_dropout", range(2, self.ndim + 1), 0)
    return self._dropped("feature_alpha_dropout", p, training, shape, generator, alpha=True)

  def rrelu(self, lower: float = 1 / 8, upper: float = 1 / 3, training: bool | None = None) -> Self:
    """x where it is not negative, else x times a slope: in training (None: as ``Tensor.training`` says) random from lower to
    upper, each element its own; else the mean of both. Raises ArgumentError."""
    if not lower <= upper: raise ArgumentError(f"rrelu: lower {lower}, upper {upper}; they must be in order")
    slope: Any = (lower + upper) / 2
    x = self._in_floats()
    if mode.training if training is None else training:
      slope = type(self).uniform(*self.shape, low=lower, high=upper, device=self.device, dtype=x.dtype)
    return (x >= 0).where(x, x * slope)

  def _per_channel(self, name: str, dims: Any, unbatched: int) -> tuple[int, ...]:
    """The shape with 1 behind the channels, which are at dim 1, or 0 with ``unbatched`` dims. Raises ShapeError."""
    if self.ndim not in dims:
      raise ShapeError(f"{name}: shape {self.shape}; it takes {' or '.join(map(str, dims)) or 'at least 2'} dimensions")
    kept = 1 if self.ndim == unbatched else 2
    return self.shape[:kept] + (1,) * (self.ndim - kept)

  def _dropped(self, name: str, p: float, training: bool | None, shape: tuple[int, ...], generator: Generator | None,
               alpha: bool = False) -> Self:
    """Dropout with one random number for each element of ``shape``, which is expanded."""
    p = _between(name, p)
    if not (mode.training if training is None else flag(name, training)) or p == 0: return self._own()
    if p == 1: return self * 0
    make: Any = type(self)
    kept = make.rand(*shape, generator=generator, device=self.device, dtype=dtypes.float32) >= p
    if not alpha: return kept.where(self * (1 / (1 - p)), 0)
    scale = 1 / math.sqrt((_ALPHA ** 2 * p + 1) * (1 - p))
    return kept.where(self * scale + _ALPHA * scale * p, _ALPHA * scale * (p - 1))
