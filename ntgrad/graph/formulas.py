"""Formulas for functions that kernels have no operation for: angles, logarithms near 1, the error function's kin, gammas.

Each takes float32 or float64 tensors and is right to a few units in the last place over its whole range, with numpy's values at
zeros (their signs too), infinities and NaN. ``SLOPES`` has the derivatives, for ``graph.sloped``. Polynomials were fitted at
Chebyshev's points with 50 digits; the highest power comes first.
"""
from __future__ import annotations

import math
from typing import Any, Callable, Sequence

from ntgrad.codegen.ir import dtypes

from . import nodes as graph

_floats: Callable[[str], tuple[float, ...]] = lambda text: tuple(map(float, text.split()))
# ---- coefficients: for float32, for float64
# arctan of |x| <= tan(pi / 8): powers of x*x from the third power of x on (Cephes, atanf.c)
_ATAN = _floats("8.05374449538e-2 -1.38776856032e-1 1.99777106478e-1 -3.33329491539e-1")
# and of |x| <= 0.66 in float64: x*x * P(x*x) / Q(x*x) of x is what is added to x (Cephes, atan.c)
_ATAN_P = _floats("""
  -8.750608600031904122785e-1 -1.615753718733365076637e1 -7.500855792314704667340e1 -1.228866684490136173410e2
  -6.485021904942025371773e1""")
_ATAN_Q = _floats("""
  1.0 2.485846490142306297962e1 1.650270098316988542046e2 4.328810604912902668951e2 4.853903996359136964868e2
  1.945506571482613964425e2""")
# erfc(x) * exp(x*x) * (x + 1) from 0.5 to infinity, of (x - 5) / (x + 4)
_TAIL = _floats("""
  -9.82689253e-5 0.0005687179264 -0.001661838199 0.003361589721 -0.004877584693 0.00352424777 0.006082139254 -0.03149854771
  0.08019027614 -0.1556289674 0.6642278216"""), _floats("""
  -9.4156168073725865e-10 1.05162168856749622e-9 1.18966720444578051e-8 -2.48509599996551683e-8 -7.8792802635840337e-8
  3.63478011405075899e-7 -6.3311090406403658e-9 -3.51934492083049956e-6 0.0000102218806329267361 3.02560355089829094e-6
  -0.000128337068564290329 0.000575189316244477287 -0.00162832755487133849 0.00335056078619049154 -0.00489486565059899516
  0.00353002272632567765 0.00608617499289285534 -0.031499677433877169 0.0801899310894708379 -0.155628907703002887
  0.664227826398411814""")
# erfinv(x) / x of w = -log(1 - x*x): in float32 for w < 5, then for sqrt(w) from 2.2 to 4.2
_INVERSE32_0 = _floats("""
  -3.333980931e-5 3.553137895e-5 0.0002840751529 -0.0008455459389 -0.0004843499507 0.008529176355 -0.01957419401 -0.02610868599
  0.6166007235 1.50140936""")
_INVERSE32_1 = _floats("""
  9.884805816e-5 -0.0001164245013 -0.0003563006351 0.001160339698 -0.001995057762 0.002923275685 -0.004293655201 0.005976483175
  1.004692412 3.03363651""")
# and in float64 for w < 6.25, then for sqrt(w) from 2.5 to 4, and from 4 to 6.25
_INVERSE64_0 = _floats("""
  -8.18644291659577256e-11 -4.14141455102270009e-9 9.0505163627836586e-9 2.81012471926898279e-8 -1.05098635603290169e-7
  5.56614740446988842e-9 5.4557314494417546e-7 -1.07341474668396556e-6 -6.87597660449069026e-7 7.13827843303438836e-6
  -0.0000112556848303199004 -0.0000150308538315032548 0.0000933669385014546861 -0.00011688806810489265 -0.000264393588748606108
  0.00123248545290627439 -0.00127169227670248039 -0.00413731436776640608 0.0178083618187385104 -0.022604447453820885
  -0.0589225671037871351 0.750494320079967787 1.65365456268310274""")
_INVERSE64_1 = _floats("""
  3.86459753087586161e-12 6.81730914523847177e-10 -2.71929304887425528e-9 2.45736766791233972e-10 2.67034508932148615e-8
  -9.5361903318473319e-8 9.26769727099358362e-8 5.2689924532186129e-7 -2.66469862813637508e-6 5.12714507532046679e-6
  2.40583930203115689e-6 -0.00004739178769056888 0.00016966502589887311 -0.000400635703306786668 0.00078830785100019651
  -0.00158254108912587787 0.00302113943638399315 0.753944225770619347 3.08388561049222063""")
_INVERSE64_2 = _floats("""
  1.08513952611009405e-10 1.32894537075685209e-10 -1.78830364311963129e-9 4.42778752671164422e-9 -7.80326891923640192e-9
  1.43483416544588195e-8 -2.57184865925229773e-8 4.7406423327978698e-8 -1.19855295714673299e-7 4.34391551880391364e-7
  -1.8160019948710817e-6 7.59744106511902618e-6 -0.0000298955271727070379 0.000103622082718045437 -0.000256202312481264322
  -0.000269071246768668054 1.13653831048724802 4.97619139001629928""")
# lgamma(x) / ((x - 1) * (x - 2)) of x - 2, from 1 to 3
_GAMMA = _floats("""
  -3.873420964e-5 7.817562828e-5 -5.241944203e-5 0.0001306324413 -0.0004255713697 0.0009442966221 -0.002102061579 0.004991560908
  -0.01238497512 0.0329656257 -0.1003172731 0.4227843262"""), _floats("""
  1.58181263373710856e-9 -3.05885174055927964e-9 -4.35886240907251515e-9 7.63280367498138879e-9 1.63272874328450055e-8
  -2.99246932704989022e-8 5.68873795385757931e-9 -1.8782633004145103e-8 1.04442854432796892e-7 -2.11980588760685147e-7
  3.95720794275161002e-7 -8.41531437995407718e-7 1.8114769634727658e-6 -3.85174558930729794e-6 8.22120509215542371e-6
  -0.0000176605132209207081 0.0000381690832831344973 -0.000083095327798444881 0.000182552614418381049 -0.000405707375813281831
  0.000915376924123895193 -0.00210813083526843498 0.0049986411646232827 -0.0123841921933343754 0.0329650006211569769
  -0.100317301674354228 0.422784335098467136""")
# what is added to Stirling's formula, 1 / x times a polynomial of 1 / (x*x): Bernoulli numbers, B(2n) / (2n * (2n - 1))
_STIRLING = 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12
# the same for its derivative, 1 / (x*x) times a polynomial of it: B(2n) / 2n; for the second one B(2n)
_STIRLING_1 = 1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12
_STIRLING_2 = 7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6   # of the second one
_BIG = 2.0 ** 60   # its square is finite in float32, and 1 beside it nothing in float64


def _double(x: Any) -> bool: return bool(x.dtype is dtypes.float64)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
  """Horner's form, the highest power first."""
  out: Any = coefficients[0]
  for c in coefficients[1:]: out = out * x + c
  return out


def _bits(x: Any) -> Any: return x.bitcast(graph.UINTS[x.dtype.itemsize])


def signbit(x: Any) -> Any:
  """Whether floats have a minus, zeros and NaN too."""
  return _bits(x) >= 1 << 8 * x.dtype.itemsize - 1


def signed(size: Any, sign: Any) -> Any:
  """``size`` with the signs of ``sign``, of zeros and NaN too; one dtype."""
  top = 1 << 8 * size.dtype.itemsize - 1
  return ((_bits(size) & (top - 1)) | (_bits(sign) & top)).bitcast(size.dtype)


def nextafter(x: Any, y: Any) -> Any:
  """The float beside x on y's side: their bits, as numbers, grow with the size. y where they are equal."""
  b = _bits(x)
  farther = (x < y) == (b >> 8 * x.dtype.itemsize - 1).eq(0)
  beside = farther.where(b + 1, b - 1).bitcast(x.dtype)
  beside = x.eq(0).where(signed((b * 0 + 1).bitcast(x.dtype), y), beside)
  return (x.isnan() | y.isnan()).where(math.nan, x.eq(y).where(y, beside))


# ---- logarithms and exponentials
def log1p(x: Any) -> Any:
  """log(1 + x): of u = 1 + x, which has lost x - (u - 1); that part of u changes the logarithm by as much (Kahan)."""
  u = x + 1
  lost = (x - (u - 1)) / u
  return x.eq(0).where(x, u.log() + lost.isnan().where(0.0, lost))


def expm1(x: Any) -> Any:
  """exp(x) - 1: near 0 by its series, where the difference would cancel."""
  small = x.abs() < 0.5
  s = small.where(x, 0.0)
  series = polynomial(s, [1 / math.factorial(k) for k in range(15 if _double(x) else 9, 1, -1)])
  return small.where(s * (s * series + 1), x.exp() - 1)


def logaddexp(a: Any, b: Any) -> Any:
  """log(exp(a) + exp(b)), without overflow."""
  return a.maximum(b) + log1p(_apart(a, b).abs().neg().exp())
def logaddexp2(a: Any, b: Any) -> Any:
  """log2(2**a + 2**b), without overflow."""
  return a.maximum(b) + log1p(_apart(a, b).abs().neg().exp2()) * (1 / math.log(2))
def _apart(a: Any, b: Any) -> Any:
  """a - b, and 0 of equal infinities."""
  return a.eq(b).where(0.0, a - b)


def logit(x: Any) -> Any:
  """log(x / (1 - x)), accurate near 0.5 where it is 0: there 2x - 1 is exact."""
  low = x < 0.25
  p = log1p(low.where(-x, (x + x - 1) / (1 - x)))
  return low.where(x.log() - p, p)


# ---- angles
def atan(x: Any) -> Any:
  """The angle: pi / 2 - atan(1 / x) from tan(3 pi / 8) on, pi / 4 + atan((x - 1) / (x + 1)) from tan(pi / 8) on, then Cephes."""
  a = x.abs()
  far, middle = a > 2.414213562373095, a > 0.4142135623730951
  t = far.where(-1.0, middle.where(a - 1, a)) / far.where(a, middle.where(a + 1, 1.0))
  z = t * t
  if _double(x): t = t + (t * (z * polynomial(z, _ATAN_P) / polynomial(z, _ATAN_Q)) +
                          far.where(6.123233995736765886130e-17, middle.where(3.061616997868382943065e-17, 0.0)))
  else: t = t + t * z * polynomial(z, _ATAN)
  return signed(far.where(t + math.pi / 2, middle.where(t + math.pi / 4, t)), x)


def asin(x: Any) -> Any:
  """The angle whose sine is x: NaN beyond 1."""
  return atan(x / ((1 - x) * (1 + x)).sqrt())
def acos(x: Any) -> Any:
  """The angle whose cosine is x: NaN beyond 1. Of half the angle the tangent is known without loss."""
  return atan(((1 - x) / (1 + x)).sqrt()) * 2


def atan2(y: Any, x: Any) -> Any:
  """The angle of the point (x, y), from -pi to pi, by its quadrant; infinities count as equal ones, signs of zeros count."""
  p, q = y.abs(), x.abs()
  ratio = (p.eq(q) & ~p.eq(0)).where(1.0, (p.eq(0) & q.eq(0)).where(0.0, p / q))
  angle = atan(ratio)
  return signed(signbit(x).where(math.pi - angle, angle), y)


def hypot(a: Any, b: Any) -> Any:
  """sqrt(a*a + b*b) without overflow or loss of small numbers; inf if one is infinite, also beside NaN."""
  p, q = a.abs(), b.abs()
  most = p.maximum(q)
  ratio = p.minimum(q) / most.eq(0).where(1.0, most)
  return (p.eq(math.inf) | q.eq(math.inf)).where(math.inf, most * (ratio * ratio + 1).sqrt())


def asinh(x: Any) -> Any:
  """log(|x| + sqrt(x*x + 1)) with the sign of x."""
  a = x.abs()
  big = a > _BIG
  t = big.where(1.0, a)
  return signed(log1p(big.where(a, t + t * t / ((t * t + 1).sqrt() + 1))) + big.cast(x.dtype) * math.log(2), x)


def acosh(x: Any) -> Any:
  """log(x + sqrt(x*x - 1)); NaN beneath 1."""
  big = x > _BIG
  t = big.where(1.0, x) - 1
  return (x < 1).where(math.nan, log1p(big.where(x, t + (t * (t + 2)).sqrt())) + big.cast(x.dtype) * math.log(2))


def atanh(x: Any) -> Any:
  """log((1 + x) / (1 - x)) / 2; infinite at 1, NaN beyond."""
  a = x.abs()
  return signed(log1p((a + a) / (1 - a)) * 0.5, x)


# ---- the error function's kin
def erfc(x: Any) -> Any:
  """1 - erf(x), and from 0.5 on exp(-x*x) times a polynomial: x*x in two parts, for its rounding would count x*x times."""
  near = x < 0.5
  z = near.where(1.0, x).minimum(30.0)
  keep = 0xFFFFFFFFF8000000 if _double(x) else 0xFFFFF000   # bits of a number whose square is exact
  high = (_bits(z) & keep).bitcast(z.dtype)
  power = (high * high).neg().exp() * ((high - z) * (high + z)).exp()
  return near.where(1 - x.erf(), polynomial((z - 5) / (z + 4), _TAIL[_double(x)]) / (z + 1) * power)


def erfinv(x: Any) -> Any:
  """The number whose error function is x: infinite at 1, NaN beyond. Polynomials in the way of M. Giles, "Approximating the
  erfinv function" (2010)."""
  w = ((1 - x) * (1 + x)).log().neg()
  r = w.minimum(40.0).sqrt()
  if _double(x):
    out = polynomial(w.minimum(6.25) * 0.32 - 1, _INVERSE64_0)
    out = (w < 6.25).where(out, polynomial((r - 3.25) / 0.75, _INVERSE64_1))
    out = (r > 4).where(polynomial((r - 5.125) / 1.125, _INVERSE64_2), out)
  else: out = (w < 5).where(polynomial(w.minimum(5.0) * 0.4 - 1, _INVERSE32_0), polynomial(r - 3.2, _INVERSE32_1))
  return x * x.abs().eq(1).where(math.inf, out)


# ---- gammas
def lgamma(x: Any) -> Any:
  """log(|gamma(x)|): Stirling's formula from 8 on, a polynomial from 1 to 3 and steps of 1 to there, reflection beneath 0, where
  it is absolutely, not relatively, accurate near its zeros."""
  y = x.abs()
  low, far = y < 1, y >= 8
  t = far.where(2.0, y)
  steps: Any = 1.0
  for _ in range(5):
    above = t >= 3
    t = above.where(t - 1, t)
    steps = above.where(t, 1.0) * steps
  d = low.where(y - 1, t - 2)
  core = (d + 1) * d * polynomial(d, _GAMMA[_double(x)])
  log, z = far.where(y, low.where(y, steps)).log(), far.where(y, 8.0).reciprocal()
  above = (y - 0.5) * (log - 1) + ((math.log(2 * math.pi) - 1) / 2 + z * polynomial(z * z, _STIRLING))
  positive = far.where(above, low.where(core - log, core + log))
  sine = ((y - y.round()) * math.pi).sin().abs() * (1 / math.pi)
  beneath = low.where(sine, sine * y).log().neg() - low.where(core, positive)
  return (y.eq(math.inf) | (x < 0) & sine.eq(0)).where(math.inf, (x < 0).where(beneath, positive))


def _shifted(x: Any, power: int) -> tuple[Any, Any, Any]:
  """Where x is beneath 0; x, there 1 - x, added 1 to up to where Stirling's formula holds; the sum of 1 / y**power of the
  steps."""
  below, steps, above = x < 0, 10 if _double(x) else 6, 0.0
  y = below.where(1 - x, x)
  for _ in range(steps):
    low = y < steps
    above = low.where((y if power == 1 else y * y).reciprocal(), 0.0) + above
    y = low.where(y + 1, y)
  return below, y, above


def digamma(x: Any) -> Any:
  """The derivative of log(gamma(x)): steps of 1 up to where Stirling's formula holds, reflection beneath 0; NaN at its poles
  beneath 0, at 0 infinite."""
  below, y, passed = _shifted(x, 1)
  z = y.reciprocal()
  out = y.log() - z * 0.5 - z * z * polynomial(z * z, _STIRLING_1) - passed
  r = below.where(x - x.round(), 0.25) * math.pi
  out = below.where(out - r.eq(0).where(math.nan, math.pi / r.tan()), out)
  return x.eq(0).where(-x.reciprocal(), out)


def _trigamma(x: Any) -> Any:
  """The derivative of digamma, in the same way."""
  below, y, passed = _shifted(x, 2)
  z = y.reciprocal()
  out = z + z * z * 0.5 + z * z * z * polynomial(z * z, _STIRLING_2) + passed
  s = (below.where(x - x.round(), 0.25) * math.pi).sin() * (1 / math.pi)
  return below.where((s * s).reciprocal() - out, out)


# ---- the rest
def fmod(a: Any, b: Any) -> Any:
  """What is left of a, with its sign, when b is taken from it as often as it fits; exact."""
  return signed(a.abs() % b.abs(), a)


def xlogy(x: Any, y: Any) -> Any:
  """x * log(y), and 0 where x is 0 unless y is NaN."""
  return (x.eq(0) & ~y.isnan()).where(0.0, x * y.log())


def sinc(x: Any) -> Any:
  """sin(pi x) / (pi x), at 0 its limit 1; of the sine, what is beyond the nearest whole number, so that it is 0 at those."""
  n = x.round()
  sine = ((x - n) * math.pi).sin()
  sine = ((n * 0.5).floor() * 2).ne(n).where(-sine, sine)   # of odd ones
  return x.eq(0).where(1.0, sine / x.eq(0).where(1.0, x * math.pi))


def _sinc_slope(x: Any) -> Any:
  y = x * math.pi
  small = y.abs() < 0.5
  far, near = small.where(1.0, y), small.where(y, 0.0)
  series = polynomial(near * near, [(-1) ** k * 2 * k / math.factorial(2 * k + 1) for k in range(7, 0, -1)])
  return small.where(near * series, (far.cos() - far.sin() / far) / far) * math.pi


def _weight(a: Any, b: Any) -> tuple[Any, Any]:
  """exp(a) and exp(b), over the sum of both."""
  first = _apart(a, b).sigmoid()
  return first, 1 - first


def _constant(x: Any, value: float) -> Any: return x._from_node(graph.const(value, x.dtype, x.shape))


def _known(name: str, *xs: Any) -> Any:
  """A formula with its slopes, for derivatives of derivatives."""
  value = globals()[name](*xs)
  return value._from_node(graph.sloped(name, value.lazydata, *[x.lazydata for x in xs]))


def _over(a: Any, b: Any) -> Any: return b.eq(0).where(0.0, a / b)


def _atan2_slopes(u: Any, y: Any, x: Any) -> tuple[Any, ...]:
  h = _known("hypot", y, x)
  return _over(_over(x, h), h), _over(_over(y, h), h).neg()


# the value and what it is made from -> the derivative for each of these
SLOPES: dict[str, Callable[..., tuple[Any, ...]]] = {
  "passed": lambda u, x: (_constant(x, 1),),   # of a value that is written: ``Alias.pass_on``
  "log1p": lambda u, x: (1 / (x + 1),),
  "expm1": lambda u, x: (x.exp(),),
  "logaddexp": lambda u, a, b: _weight(a, b),
  "logaddexp2": lambda u, a, b: _weight(a * math.log(2), b * math.log(2)),
  "logit": lambda u, x: (1 / (x * (1 - x)),),
  "atan": lambda u, x: (1 / (x * x + 1),),
  "asin": lambda u, x: (((1 - x) * (1 + x)).rsqrt(),),
  "acos": lambda u, x: (((1 - x) * (1 + x)).rsqrt().neg(),),
  "atan2": _atan2_slopes,
  "hypot": lambda u, a, b: (_over(a, u), _over(b, u)),
  "asinh": lambda u, x: (1 / _known("hypot", x, _constant(x, 1)),),
  "acosh": lambda u, x: ((x.abs() - 1).rsqrt() * (x.abs() + 1).rsqrt(),),
  "atanh": lambda u, x: (1 / ((1 - x) * (1 + x)),),
  "erfc": lambda u, x: ((x * x).neg().exp() * (-2 / math.sqrt(math.pi)),),
  "erfinv": lambda u, x: ((u * u).exp() * (math.sqrt(math.pi) / 2),),
  "lgamma": lambda u, x: (_known("digamma", x),),
  "digamma": lambda u, x: (_trigamma(x),),
  "fmod": lambda u, a, b: (_constant(a, 1), (a / b).trunc().neg()),
  "xlogy": lambda u, x, y: ((x.eq(0) & (y <= 0)).where(0.0, y.log()), x / y),
  "sinc": lambda u, x: (_sinc_slope(x),),
  "signed": lambda u, x, y: (_over(u, x), _constant(y, 0))}
