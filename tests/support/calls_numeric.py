"""Good calls for ``tests/fuzz/test_arguments.py``: numeric functions, comparisons by name, statistics, in place."""
from __future__ import annotations

from typing import Any, Callable

PLAIN = """
log1p expm1 asin acos atan asinh acosh atanh arcsin arccos arctan arcsinh arccosh arctanh sinc deg2rad rad2deg erfc erfinv
lgamma digamma signbit isposinf isneginf frac positive negative absolute fix trace corrcoef
tanhshrink""".split()   # no parameters


def calls(call: Any, f: Any, i: Any, b: Any) -> dict[str, Callable[[], Any]]:
  """A call of each, with all of its parameters; ``f``, ``i`` and ``b`` make tensors of floats, ints and bools."""
  return {
    **{n: lambda n=n: call(getattr(f(2), n), f(2)) for n in """
       gt lt ge le fmax fmin ldexp greater less greater_equal less_equal not_equal logical_and logical_or logical_xor logaddexp
       logaddexp2 xlogy float_power atan2 arctan2 hypot copysign nextafter heaviside remainder fmod true_divide floor_divide
       subtract multiply clamp_min clamp_max atan2_ copysign_ hypot_ fmod_ floor_divide_ remainder_ xlogy_ logical_and_
       logical_or_ logical_xor_ clamp_min_ clamp_max_ pow_""".split()},
    **{n: lambda n=n: call(getattr(f(2), n)) for n in """
       abs_ acos_ acosh_ asin_ asinh_ atan_ atanh_ ceil_ cos_ cosh_ deg2rad_ digamma_ erf_ erfc_ erfinv_ exp_ exp2_
       expm1_ floor_ frac_ lgamma_ log_ log10_ log1p_ log2_ logical_not_ neg_ rad2deg_ reciprocal_ relu_ round_ rsqrt_
       sigmoid_ sign_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_""".split()},
    **{n: lambda n=n: call(getattr(i(2), n), 1) for n in
       "gcd lcm gcd_ lcm_ bitwise_and_ bitwise_or_ bitwise_xor_ bitwise_left_shift bitwise_right_shift".split()},
    **{n: lambda n=n: call(getattr(f(2), n), f(2), 1e-5, 1e-8, True) for n in ("isclose", "allclose")},
    **{n: lambda n=n: call(getattr(f(2), n), f(2), f(2), value=2) for n in ("addcmul", "addcdiv", "addcmul_", "addcdiv_")},
    **{n: lambda n=n: call(getattr(f(2, 2), n), f(2, 3), f(3, 2), beta=2, alpha=3) for n in ("addmm", "addmm_")},
    **{n: lambda n=n: call(getattr(f(1, 2, 2), n), f(1, 2, 3), f(1, 3, 2), beta=2, alpha=3) for n in ("baddbmm", "baddbmm_")},
    **{n: lambda n=n: call(getattr(f(2), n), 0, 1) for n in "clamp_ clip_ uniform_ normal_ threshold threshold_".split()},
    **{n: lambda n=n: call(getattr(f(2), n), 0.0, 1.0, -1.0) for n in ("nan_to_num", "nan_to_num_")},
    **{n: lambda n=n: call(getattr(f(2, 3), n), 1, True) for n in ("amax", "amin", "nanmean")},
    **{n: lambda n=n: call(getattr(f(2, 3), n), 1) for n in "count_nonzero cummax cummin logcumsumexp cumsum_".split()},
    **{n: lambda n=n: call(getattr(f(2, 3), n), 1, dtype="float32") for n in ("cumprod", "cumprod_")},
    **{n: lambda n=n: call(getattr(f(2, 3), n), f(3), dx=1.0, dim=1) for n in ("trapezoid", "cumulative_trapezoid")},
    **{n: lambda n=n: call(getattr(f(2), n), 0.1) for n in ("logit", "logit_", "hardshrink", "softshrink")},
    **{n: lambda n=n: call(getattr(f(2, 2), n), 0) for n in ("tril_", "triu_")},
    "equal": lambda: call(f(2).equal, f(2)),
    "bitwise_not_": lambda: call(i(2).bitwise_not_),
    "invert": lambda: call(i(2).invert),
    "isinf": lambda: call(f(2).isinf, True, False),
    "divide": lambda: call(f(2).divide, f(2), rounding_mode="trunc"),
    "masked_fill_": lambda: call(f(2).masked_fill_, b(2), 0),
    "lerp_": lambda: call(f(2).lerp_, f(2), 0.5),
    "addmv": lambda: call(f(2).addmv, f(2, 3), f(3), beta=2, alpha=3),
    "softmin": lambda: call(f(2, 3).softmin, 1, "float32"),
    "normalize": lambda: call(f(2, 3).normalize, 2, 1, 1e-12),
    "glu": lambda: call(f(2, 4).glu, 1),
    "prelu": lambda: call(f(2, 4).prelu, f(4)),
    "rrelu": lambda: call(f(2, 4).rrelu, 0.1, 0.2, True),
    "aminmax": lambda: call(f(2, 3).aminmax, dim=1, keepdim=True),
    "nansum": lambda: call(f(2, 3).nansum, 1, True, dtype="float32"),
    "dist": lambda: call(f(2).dist, f(2), 2),
    "cov": lambda: call(f(2, 3).cov, correction=1, fweights=i(3) + 1, aweights=f(3)),
    "diff": lambda: call(f(2, 3).diff, 1, 1, f(2, 1), f(2, 1)),
  }
