"""Functions in Triton's Python that rendered kernels draw on, for blocks and scalars alike, in plain arithmetic: every chip from
sm_80 on has them, and Triton's interpreter runs them too. Integer constants keep the other operand's dtype, as Triton has it."""
from __future__ import annotations

from typing import Iterable

# of two values: the name, and what it returns
_COMBINERS = '''_max_nan tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
_min_nan tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
_max tl.maximum(a, b)
_min tl.minimum(a, b)
_add a + b
_mul a * b
_and a & b
_or a | b
_xor a ^ b'''
_TEXT = '''
def _at_least(bound, x):
  # of equal zeros x: its sign stays; NaN stays too
  return tl.where(x < bound, bound, x)

def _at_most(bound, x):
  return tl.where(x > bound, bound, x)

def _short_tanh(x):
  # to a few bits more than 16-bit floats have; near zero by its series, as a difference of ones would be too coarse
  return tl.where(tl.abs(x) < 0.03, x * (1.0 - x * x * 0.33333333), 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0))

def _floor_div(a, b):
  # rounds to minus infinity; x // 0 is 0, and least // -1 wraps
  d = tl.where((b == 0) | (b == -1), 1, b)
  q = a // d
  r = a - q * d
  q = tl.where((r != 0) & ((r < 0) != (d < 0)), q - 1, q)
  return tl.where(b == 0, 0, tl.where(b == -1, 0 - a, q))

def _floor_mod(a, b):
  # the sign of b; x % 0 is 0
  d = tl.where((b == 0) | (b == -1), 1, b)
  r = a % d
  r = tl.where((r != 0) & ((r < 0) != (d < 0)), r + d, r)
  return tl.where(b == 0, 0, r)

def _unsigned_div(a, b):
  # x // 0 is 0
  return tl.where(b == 0, 0, a // tl.where(b == 0, 1, b))

def _unsigned_mod(a, b):
  # x % 0 is 0
  return tl.where(b == 0, 0, a % tl.where(b == 0, 1, b))

def _shl(a, b):
  # by the width or more, or by less than 0: nothing is left
  n: tl.constexpr = a.dtype.primitive_bitwidth
  inside = (b >= 0) & (b < n)
  return tl.where(inside, a << tl.where(inside, b, 0), 0)

def _shr(a, b):
  # of a signed int its sign is left
  n: tl.constexpr = a.dtype.primitive_bitwidth
  return a >> tl.where((b >= 0) & (b < n), b, n - 1)

def _unsigned_shr(a, b):
  n: tl.constexpr = a.dtype.primitive_bitwidth
  inside = b < n
  return tl.where(inside, a >> tl.where(inside, b, 0), 0)

def _float_floor_div(a, b):
  m = libdevice.fmod(a, b)
  q = tl.div_rn(a - m, b) if a.dtype.is_fp32() else (a - m) / b
  q = tl.where((m != 0.0) & ((m < 0.0) != (b < 0.0)), q - 1.0, q)
  f = tl.floor(q)
  f = tl.where(q - f > 0.5, f + 1.0, f)
  return tl.where(b == 0.0, a / b, tl.where(q == 0.0, libdevice.copysign(f, a / b), f))

def _float_mod(a, b):
  # the sign of b
  m = libdevice.fmod(a, b)
  return tl.where(m == 0.0, libdevice.copysign(m, b), tl.where((m < 0.0) != (b < 0.0), m + b, m))

def _int_pow(a, n):
  # by squaring, wrapping
  x = a
  r = (a * 0 + n * 0) + 1
  for _ in range(64):
    r = tl.where((n & 1) != 0, r * x, r)
    x = x * x
    n = n >> 1
  return r

def _signed_pow(a, b):
  # a negative exponent gives what 1 / a**-b truncates to
  r = _int_pow(a, tl.where(b < 0, 0, b))
  inverse = tl.where(a == 1, a, tl.where(a == -1, tl.where((b & 1) != 0, a, a * a), a * 0))
  return tl.where(b < 0, inverse, r)

def _gcd(a, b):
  # Euclid's algorithm: 94 steps are enough for 64 bits; % has the sign of what is divided
  a, b = a + b * 0, b + a * 0   # of one shape, as what a loop changes must be
  for _ in range(94):
    r = tl.where(b == 0, 0, a % tl.where(b == 0, 1, b))
    a = tl.where(b == 0, a, b)
    b = r
  return tl.where(a < 0, 0 - a, a)

def _rotate(x, n):
  return (x << n) | (x >> (32 - n))

def _threefry(counter, key):
  # threefry2x32, 20 rounds: the words of both are (low, high)
  x0 = counter.to(tl.uint32)
  x1 = (counter >> 32).to(tl.uint32)
  k0 = key.to(tl.uint32)
  k1 = (key >> 32).to(tl.uint32)
  k2 = k0 ^ k1 ^ 0x1BD11BDA
  x0 = x0 + k0
  x1 = x1 + k1
@ROUNDS@
  return x0.to(tl.uint64) | (x1.to(tl.uint64) << 32)

def _bit(b: tl.constexpr, t: tl.constexpr):
  # bit b of the numbers of 2**t elements, which have an axis for each
  return tl.reshape(tl.arange(0, 2), [1] * (t - 1 - b) + [2] + [1] * b) != 0

def _merged(x, falls, a, k: tl.constexpr, t: tl.constexpr, near: tl.constexpr):
  # each block of 2**a <= 2**k elements, which rises and then falls or the other way, in order
  x = tl.where(falls, ~x, x)
  for s in tl.static_range(1, k + 1):
    if k - s < a:
      y = tl.sum(x, t - 1 - k + s, keep_dims=True) - x   # the partner, whose number differs in one bit
      # within a thread partners have one comparison
      if k - s < near: x = tl.where(tl.where(_bit(k - s, t), y > x, x > y), y, x)
      else: x = tl.where((x > y) != _bit(k - s, t), y, x)
  return tl.where(falls, ~x, x)

def _first_sorted(x, t: tl.constexpr, n: tl.constexpr, k: tl.constexpr, merges: tl.constexpr, low: tl.constexpr,
                  top: tl.constexpr):
  # the least 2**k of each row of 2**n, rising, again and again until the row is full; blocks of 2**(merges - 1) are in order.
  # Elements are numbered so that those of a thread (bits below low and from top on) are neighbours: most steps are among these
  rows: tl.constexpr = 1 << (t - n)
  near: tl.constexpr = low + n - top
  y = tl.permute(tl.reshape(x, [rows, 1 << (n - top), 1 << (top - low), 1 << low]), 0, 2, 1, 3)
  y = tl.reshape(y, [2] * t)
  at = tl.reshape(tl.arange(0, 1 << t) & ((1 << n) - 1), [2] * t)
  for a in range(merges, k + 1): y = _merged(y, (at >> a) & 1 != 0, a, k, t, near)
  for b in tl.static_range(k, n):
    # of a rising block and the falling one after it the lesser of each two
    y = tl.min(y, t - 1 - b, keep_dims=True)
    if b + 1 < n: y = _merged(y, _bit(b + 1, t), k, k, t, near)
    else: y = _merged(y, tl.full([1] * t, 0, tl.int1), k, k, t, near)
  return tl.reshape(tl.broadcast_to(tl.reshape(y, [rows, 1, 1 << k]), [rows, 1 << (n - k), 1 << k]), x.shape)

def _from_e4m3(x):
  # the bits of float8_e4m3 to float32
  b = x.to(tl.uint32)
  f = ((b & 0x7F) << 20).to(tl.float32, bitcast=True) * 1.329227995784916e+36  # 2**120
  f = tl.where((b & 0x7F) == 0x7F, float("nan"), f)
  return tl.where((b & 0x80) != 0, f * -1.0, f)

def _to_e4m3(x):
  # float32 to the bits of float8_e4m3: nearest even, from 464 on nan
  b = x.to(tl.uint32, bitcast=True)
  a = b & 0x7FFFFFFF
  r = ((a + 0x7FFFF + ((a >> 20) & 1)) >> 20) - 960
  s = (tl.abs(x) + 16384.0).to(tl.uint32, bitcast=True) & 0xF
  r = tl.where(a < 0x3C800000, s, r)
  r = tl.where(a > 0x43E80000, 0x7F, r)
  return (r | ((b >> 24) & 0x80)).to(tl.uint8)

def _from_e5m2(x):
  # the bits of float8_e5m2 to float32: they are the upper half of a float16
  return (x.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)

def _to_e5m2(x):
  # float32 to the bits of float8_e5m2: nearest even
  b = x.to(tl.uint32, bitcast=True)
  a = b & 0x7FFFFFFF
  r = ((a + 0xFFFFF + ((a >> 21) & 1)) >> 21) - 448
  s = (tl.abs(x) + 128.0).to(tl.uint32, bitcast=True) & 0x7
  r = tl.where(a < 0x38800000, s, r)
  r = tl.where(a >= 0x47700000, 0x7C, r)
  r = tl.where(a > 0x7F800000, 0x7E, r)
  return (r | ((b >> 24) & 0x80)).to(tl.uint8)
'''


_SORT_KEYS = '''
def _sort_key_int@BITS@(x, descending):
  # an int that orders as the float does, NaN after everything
  b = x.to(tl.int@BITS@, bitcast=True)
  k = tl.where(b < 0, b ^ @MOST@, b)
  return tl.where(x != x, -@MOST@ if descending else @LAST@, k)

def _from_sort_key_int@BITS@(k):
  b = tl.where(k < 0, k ^ @MOST@, k)
  x = b.to(tl.float@BITS@, bitcast=True)
  return tl.where((k == -@MOST@) | (k == @LAST@), float("nan"), x)
'''


def _sort_keys(bits: int) -> str:
  most = (1 << (bits - 1)) - 1
  return _SORT_KEYS.strip().replace("@BITS@", str(bits)).replace("@MOST@", str(most)).replace("@LAST@", str(most - 1))


def _rounds() -> str:
  lines = []
  for i in range(5):
    for n in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]: lines += ["x0 = x0 + x1", f"x1 = _rotate(x1, {n}) ^ x0"]
    lines += [f"x0 = x0 + k{(i + 1) % 3}", f"x1 = x1 + k{(i + 2) % 3} + {i + 1}"]
  return "\n".join(f"  {line}" for line in lines)


_CALLS = {"_signed_pow": "_int_pow", "_first_sorted": "_merged", "_merged": "_bit", "_threefry": "_rotate",
          "_float_floor_div": "libdevice", "_float_mod": "libdevice"}
_texts = [f"def {name}(a, b):\n  return {value}" for name, value in (line.split(" ", 1) for line in _COMBINERS.split("\n"))]
for _part in _TEXT.replace("@ROUNDS@", _rounds()), _sort_keys(32), _sort_keys(64): _texts += _part.strip().split("\n\n")
HELPERS = {text[4:text.index("(")]: f"@triton.jit\n{text}" for text in _texts}


def with_called(names: Iterable[str]) -> list[str]:
  """These names, and before each what a helper of that name calls: another helper, or ``libdevice``."""
  found = []
  for name in names:
    chain = [name]
    while chain[-1] in _CALLS: chain.append(_CALLS[chain[-1]])
    found += chain[::-1]
  return list(dict.fromkeys(found))
