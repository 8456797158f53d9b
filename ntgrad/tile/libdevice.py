"""The functions of the language under the names that CUDA's libdevice has, and those of ``ntgrad.graph.formulas`` for blocks."""
from __future__ import annotations

import math
from typing import Any, Callable

from ntgrad.codegen.ir import ArgumentError, DType, DTypeError, Ops, UnaryOps, UOp, as_float

from . import block as _b, operations as _o, triton_names as _s
from .block import BlockValue, block, block_cast, block_where, reinterpreted
from .operations import float32, int32, int64, uint32, uint64


class Values:
  """A block with the methods that formulas use, those of a Tensor."""
  __slots__ = ("block",)

  def __init__(self, x: Any): self.block = block(x)
  @property
  def dtype(self) -> DType: return self.block.dtype


def _raw(x: Any) -> Any: return x.block if isinstance(x, Values) else x


def _method(fn: Callable[..., Any]) -> Callable[..., Values]: return lambda *xs: Values(fn(*map(_raw, xs)))


_NAMES = "abs ceil cos erf exp exp2 floor isnan log maximum minimum reciprocal round rsqrt sin sqrt tan trunc where bitcast cast"
for _name, _fn in [*[(n, getattr(_o, n)) for n in _NAMES.split()], *_b.operators()]:
  setattr(Values, _name, _method(_fn))
  if _name in ("__eq__", "__ne__", "__neg__"): setattr(Values, _name.strip("_"), _method(_fn))


def _formula(name: str) -> Callable[..., BlockValue]:
  """One of ``ntgrad.graph.formulas``, of floats: small ones are computed in float32, ints are float32."""
  def fn(*xs: Any) -> BlockValue:
    if not xs: raise ArgumentError(f"{name}: takes blocks and numbers, got none")
    d = as_float(_b.common_dtype(*xs))
    wide = d if d.itemsize >= 4 or name in _BITS else float32
    from ntgrad.graph import formulas
    given = [block_cast(x, wide) for x in xs]
    out: BlockValue = getattr(formulas, name)(*map(Values, given)).block
    if _b.tracer().slopes and name in formulas.SLOPES:
      us, axes = _b.unify(name, out, *given)
      out = BlockValue(UOp(Ops.SLOPED, wide, tuple(us), name), axes)
    return out if out.dtype.kind == "b" else block_cast(out, d)
  fn.__name__ = name
  return fn


_BITS = "signbit", "signed", "nextafter"   # of the bits of any float


def _unsigned(name: str, x: Any) -> tuple[BlockValue, int]:
  """The bits of ints of 32 or 64 bits, smaller ones as int32, and how many there are."""
  b = block(x)
  if b.dtype.kind not in "iu": raise DTypeError(f"{name}: of ints, got {b.dtype}")
  if b.dtype.itemsize < 4: b = block_cast(b, int32)
  return reinterpreted(b, uint64 if b.dtype.itemsize == 8 else uint32), 8 * b.dtype.itemsize


def _mask(step: int, bits: int) -> int:
  """Ones and zeros by turns, ``step`` of each, ones lowest."""
  return sum(((1 << step) - 1) << at for at in range(0, bits, 2 * step))


def _count(u: BlockValue, bits: int) -> BlockValue:
  u = u - ((u >> 1) & _mask(1, bits))
  u = (u & _mask(2, bits)) + ((u >> 2) & _mask(2, bits))
  u = u + (u >> 4) & _mask(4, bits)
  step = 8
  while step < bits: u, step = u + (u >> step), step * 2
  return block_cast(u & 0xFF, int32)


def _cast_bits(given: DType, dtype: DType) -> Callable[[Any], BlockValue]:
  return lambda x: reinterpreted(block_cast(block(x), given), dtype)


_expm1, _erfc, _copysign = map(_formula, ("expm1", "erfc", "signed"))
# The language's functions; behind a colon what it calls them. All arithmetic is rounded to the nearest (_rn), the fast ones are
# as exact as the others.
_SAME = """
  exp exp2 log log2 sqrt rsqrt pow fma isnan sin cos tan tanh erf floor ceil trunc abs
  rint:round nearbyint:round fabs:abs fmax:maximum fmin:minimum
  fma_rn:fma div_rn:fdiv rcp_rn:reciprocal sqrt_rn:sqrt rsqrt_rn:rsqrt
  fast_sinf:sin fast_cosf:cos fast_tanf:tan fast_tanhf:tanh fast_expf:exp fast_logf:log fast_log2f:log2 fast_powf:pow
  fast_dividef:fdiv"""
_FORMULAS = "log1p hypot asin acos atan atan2 asinh acosh atanh erfinv lgamma fmod signbit nextafter"
# the bits of a dtype as another
_CASTS = """
  float_as_int float32 int32, int_as_float int32 float32, float_as_uint float32 uint32, uint_as_float uint32 float32,
  double_as_longlong float64 int64, longlong_as_double int64 float64"""


class libdevice:
  """The functions under the names that CUDA's libdevice has."""
  expm1, erfc, copysign, add_rn, sub_rn, mul_rn = _expm1, _erfc, _copysign, _s.add, _s.sub, _s.mul
  def log10(x: Any) -> BlockValue: return _o.log2(x) * math.log10(2)
  fast_log10f = log10
  def exp10(x: Any) -> BlockValue: return _o.exp2(block(x) * math.log2(10))
  fast_exp10f = exp10
  def isinf(x: Any) -> BlockValue: return _b.block_unary(UnaryOps.ABS, x) == math.inf
  def isfinited(x: Any) -> BlockValue: return _b.block_unary(UnaryOps.ABS, x) < math.inf
  finitef = isfinited
  def fdim(x: Any, y: Any) -> BlockValue:
    return block_where(_o.isnan(x) | _o.isnan(y), math.nan, _o.maximum(block(x) - y, 0.0))
  def saturatef(x: Any) -> BlockValue: return block_where(_o.isnan(x), 0.0, _o.clamp(x, 0.0, 1.0))
  def sinh(x: Any) -> BlockValue:
    t = _expm1(x)
    return 0.5 * block_where(_o.abs(x) < 1.0, t + t / (t + 1.0), _o.exp(x) - _o.exp(-block(x)))
  def cosh(x: Any) -> BlockValue: return 0.5 * (_o.exp(x) + _o.exp(-block(x)))
  def cbrt(x: Any) -> BlockValue:
    a = _o.abs(block_cast(x, _b.floating(x)))
    some = (a > 0.0) & (a < math.inf)
    y = _o.exp2(_o.log2(block_where(some, a, 1.0)) / 3.0)
    for _ in range(2): y = y - (y - block_where(some, a, 1.0) / (y * y)) / 3.0   # Newton's steps
    return _copysign(block_where(some, y, a), x)
  def rcbrt(x: Any) -> BlockValue: return 1.0 / libdevice.cbrt(x)
  def normcdf(x: Any) -> BlockValue: return 0.5 * _erfc(block(x) * -math.sqrt(0.5))
  def round(x: Any) -> BlockValue:
    # halves away from 0
    t = _o.trunc(x)
    return block_where(_o.abs(block(x) - t) >= 0.5, t + _copysign(1.0, x), t)
  def llround(x: Any) -> BlockValue: return block_cast(libdevice.round(x), int64)
  def llrint(x: Any) -> BlockValue: return block_cast(_o.round(x), int64)
  def popc(x: Any) -> BlockValue: return _count(*_unsigned("popc", x))
  def ffs(x: Any) -> BlockValue:
    # one more than the place of the lowest 1; of 0 it is 0
    u, bits = _unsigned("ffs", x)
    return block_where(u == 0, 0, _count((u & (~u + 1)) - 1, bits) + 1)
  def clz(x: Any) -> BlockValue:
    u, bits = _unsigned("clz", x)
    step = 1
    while step < bits: u, step = u | (u >> step), step * 2   # the highest 1 and all beneath it
    return bits - _count(u, bits)
  def brev(x: Any) -> BlockValue:
    u, bits = _unsigned("brev", x)
    step = 1
    while step < bits: u, step = (u >> step) & _mask(step, bits) | ((u & _mask(step, bits)) << step), step * 2
    b = block(x)
    return reinterpreted(u, b.dtype if b.dtype.itemsize * 8 == bits else int32)


_ALL: dict[str, Any] = {k: v for k, v in vars(libdevice).items() if k[0] != "_"}
for _name in _SAME.split():
  _name, _, _other = _name.partition(":")
  _ALL[_name] = getattr(_o, _other or _name)
for _name in _FORMULAS.split(): _ALL[_name] = _formula(_name)
for _name, *_dtypes in map(str.split, _CASTS.split(",")): _ALL[_name] = _cast_bits(*[getattr(_o, d) for d in _dtypes])
for _name, _fn in _ALL.items(): setattr(libdevice, _name, staticmethod(_fn))   # all without self
