"""Operations written in place, as PyTorch's names with ``_`` at the end have them."""
from __future__ import annotations

from functools import wraps
from typing import Any, Callable, Self

from ntgrad.core import Base
from ntgrad.graph.checks import checked

from .statistics import Statistics


def _written(name: str) -> Callable[..., Any]:
  """An operation whose result is written to its tensor: ``exp_`` of ``exp``, with the same parameters."""
  method = getattr(Statistics, name)
  @wraps(method)
  def call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self._in_place(f"{name}_", lambda: getattr(self, name)(*args, **kwargs))
  call.__name__, call.__qualname__ = f"{name}_", f"Writing.{name}_"
  call.__doc__ = f"``{name}``, written in place; see ``add_``."
  return call


class Writing(Statistics):
  """Operations written in place. Each raises what the operation raises, and ShapeError, DTypeError, AssignError and
  GradientError as ``add_`` does."""
  __slots__ = ()

  def zero_(self) -> Self:
    """Zeros, written in place; see ``add_``."""
    return self.fill_(0)
  def fill_(self, value: Any) -> Self:
    """A number (or a tensor of one element) everywhere, written in place; see ``add_``."""
    t: Any = value if isinstance(value, Base) else type(self)(value, dtype=self.dtype)  # type: ignore[call-arg]
    return self._in_place("fill_", lambda: t.reshape(()).expand(self.shape))
  def detach_(self) -> Self:
    """No gradient passes through this tensor itself from now on; a leaf is none any more."""
    self.requires_grad = None
    return self
  @checked
  def copy_(self, x: Any) -> Self:
    """The values of ``x``, broadcast to this shape, cast to this dtype and moved to this device, written in place; see
    ``add_``."""
    t: Any = x if isinstance(x, Base) else type(self)(x)  # type: ignore[call-arg]
    return self._in_place("copy_", lambda: t.to(self.device).cast(self.dtype).expand(self.shape))

  abs_ = _written("abs"); acos_ = _written("acos"); acosh_ = _written("acosh"); addcdiv_ = _written("addcdiv")
  addcmul_ = _written("addcmul"); addmm_ = _written("addmm"); asin_ = _written("asin"); asinh_ = _written("asinh")
  atan_ = _written("atan"); atan2_ = _written("atan2"); atanh_ = _written("atanh"); baddbmm_ = _written("baddbmm")
  bitwise_and_ = _written("bitwise_and"); bitwise_not_ = _written("bitwise_not"); bitwise_or_ = _written("bitwise_or")
  bitwise_xor_ = _written("bitwise_xor"); ceil_ = _written("ceil"); clamp_ = _written("clamp")
  clamp_max_ = _written("clamp_max"); clamp_min_ = _written("clamp_min"); clip_ = _written("clip")
  copysign_ = _written("copysign"); cos_ = _written("cos"); cosh_ = _written("cosh"); cumprod_ = _written("cumprod")
  cumsum_ = _written("cumsum"); deg2rad_ = _written("deg2rad"); digamma_ = _written("digamma"); erf_ = _written("erf")
  erfc_ = _written("erfc"); erfinv_ = _written("erfinv"); exp_ = _written("exp"); exp2_ = _written("exp2")
  expm1_ = _written("expm1"); floor_ = _written("floor"); floor_divide_ = _written("floor_divide"); fmod_ = _written("fmod")
  frac_ = _written("frac"); hypot_ = _written("hypot"); lerp_ = _written("lerp"); lgamma_ = _written("lgamma")
  log_ = _written("log"); log10_ = _written("log10"); log1p_ = _written("log1p"); log2_ = _written("log2")
  logical_and_ = _written("logical_and"); logical_not_ = _written("logical_not"); logical_or_ = _written("logical_or")
  logical_xor_ = _written("logical_xor"); logit_ = _written("logit"); masked_fill_ = _written("masked_fill")
  nan_to_num_ = _written("nan_to_num"); neg_ = _written("neg"); pow_ = _written("pow"); rad2deg_ = _written("rad2deg")
  reciprocal_ = _written("reciprocal"); relu_ = _written("relu"); remainder_ = _written("remainder")
  round_ = _written("round"); rsqrt_ = _written("rsqrt"); sigmoid_ = _written("sigmoid"); sign_ = _written("sign")
  sin_ = _written("sin"); sinc_ = _written("sinc"); sinh_ = _written("sinh"); sqrt_ = _written("sqrt")
  square_ = _written("square"); tan_ = _written("tan"); tanh_ = _written("tanh"); threshold_ = _written("threshold")
  tril_ = _written("tril"); triu_ = _written("triu"); trunc_ = _written("trunc"); xlogy_ = _written("xlogy")
