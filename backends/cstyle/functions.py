"""Helper functions for what languages in C's style have no operator or function for, made for the type that asks.

A helper is called ``<function>_<type>``, for example ``max_float8``; a template gets a :class:`Type` and gives the function's
text, in which ``@name(`` calls a function of its own type, ``@name:float8(`` of another: a builtin function, or again a helper.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Callable, ClassVar, Mapping

from ntgrad.codegen.ir import CompileError, dtypes

ROTATIONS = 13, 15, 26, 6, 17, 29, 16, 24   # bits, of each round of threefry


@dataclass(frozen=True)
class Type:
  """A C type ``float8`` as base ``float`` and width 8, and how a language writes it and conversions to it."""
  base: str                                 # as OpenCL C calls it
  n: int = 1
  names: ClassVar[Mapping[str, str]] = {}   # of bases that the language calls otherwise

  def __str__(self) -> str: return self.names.get(self.base, self.base) + ("" if self.n == 1 else str(self.n))
  def of(self, base: str) -> Type: return type(self)(base, self.n)

  def to(self, base: str, x: str) -> str:
    """C text that converts the value ``x`` to elements of ``base``."""
    return f"({self.of(base)})({x})" if self.n == 1 else f"__builtin_convertvector({x}, {self.of(base)})"

  def bits(self, base: str, x: str) -> str:
    """C text that reinterprets the bits of ``x``, a value of this type, as elements of ``base``."""
    return f"as_{self.of(base)}({x})"

  @property
  def size(self) -> int: return SIZES[self.base]
  @property
  def bits_wide(self) -> int: return 8*self.size*(4 if self.n == 3 else self.n)

  @classmethod
  def parse(cls, text: str) -> Type:
    """``float8`` → ``Type("float", 8)``."""
    base = text.rstrip("0123456789")
    return cls(base, int(text[len(base):] or 1))


SIZES = {d.short: d.itemsize for d in dtypes.numbers if d.short.isalpha()}   # bytes
SIGNED = {1: "char", 2: "short", 4: "int", 8: "long"}
UNSIGNED = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
FLOATS = "float", "double"

Template = Callable[[Type], str]
# by the name of the function: a template and the elements that it is for
Templates = dict[str, tuple[Template, tuple[str, ...]]]
Source = tuple[tuple[str, str], ...]                      # helpers in order: names in C and texts
COMMON: Templates = {}


# builtin functions of floats that most languages have: name -> number of arguments
FUNCTIONS = {**dict.fromkeys("sqrt exp exp2 log log2 sin cos tan tanh erf floor ceil trunc rint".split(), 1),
             **dict.fromkeys("pow fmod copysign".split(), 2)}


def helper(templates: Templates, *bases: str, name: str = "") -> Callable[[Template], Template]:
  """Add a template, for these elements or for all, under ``name`` or its own name without the leading underscore."""
  def add(fn: Template) -> Template:
    templates[name or fn.__name__.strip("_")] = fn, bases or tuple(SIZES)
    return fn
  return add


common, _of_ints = helper(COMMON), helper(COMMON, *SIGNED.values(), *UNSIGNED.values())


def library(name: str, t: Type, *args: str) -> str: return f"@{name}:{t.base}{t.n}({', '.join(args)})"


_CALL = re.compile(r"@(\w+)(?::(\w+))?")


class Library:
  """The functions of a language: builtin ones, as :meth:`builtin` says, and helpers for the others."""
  templates: Mapping[str, tuple[Template, tuple[str, ...]]] = COMMON
  names: Mapping[str, str] = {}                     # what the language calls its functions
  floats = FLOATS                                   # the elements that it has them for

  def __init__(self) -> None: self.made = dict[tuple[str, Type], Source]()

  def builtin(self, name: str, t: Type) -> str | None:
    """The name of a builtin function of the language; None where a helper is to be called."""
    return self.names.get(name) if t.base in self.floats else None

  def has(self, name: str, t: Type) -> bool:
    """Whether there is a template of this name for a type."""
    return name in self.templates and t.base in self.templates[name][1]

  def template(self, name: str, t: Type) -> str:
    """The text of a helper, in which calls are still marked with ``@``. Raises CompileError where there is none."""
    if not self.has(name, t): raise CompileError(f"the target has no function {name} of {t}")
    return self.templates[name][0](t)

  def source(self, name: str, t: Type) -> Source:
    """The helper ``name`` for a type, after those that it calls."""
    if (found := self.made.get((name, t))) is None:
      text, needs = self.resolve(self.template(name, t).strip("\n"), t)
      found = self.made[name, t] = *needs, (f"{name}_{t}", text)
    return found

  def resolve(self, text: str, t: Type) -> tuple[str, Source]:
    """A text with its calls written out, and the helpers that they need. ``t`` is the type of those that name none."""
    out = dict[str, str]()
    def called(m: re.Match[str]) -> str:
      of = t.parse(m[2]) if m[2] else t
      if (builtin := self.builtin(m[1], of)) is None: out.update(self.source(m[1], of))
      return builtin or f"{m[1]}_{of}"
    return _CALL.sub(called, text), tuple(out.items())


# ---- MAX and MIN
def _extreme(name: str, sign: str, t: Type) -> str:
  return f"static {t} {name}_{t}({t} a, {t} b) {{ return (a {sign} b){' | (a != a)' if t.base in FLOATS else ''} ? a : b; }}"


for _name, _sign in ("max", ">"), ("min", "<"): helper(COMMON, name=_name)(partial(_extreme, _name, _sign))


def _minus(t: Type, x: str) -> str:
  """C text of -x for a signed int, which wraps."""
  u = t.of(f"u{t.base}")
  return f"({t})(0u - ({u}){x})" if t.n == 1 else u.bits(t.base, f"-{t.bits(u.base, x)}")


# ---- shifts: C leaves those by the width or more open. Here nothing is left of a number but its sign, as in numpy
@_of_ints
def _shl(t: Type) -> str:
  u, last = t.of(UNSIGNED[t.size]), 8*t.size - 1
  if t.n == 1: shifted = f"({t})(({u if t.size >= 4 else t.of('uint')})a << (b & {last}))"
  else: shifted = u.bits(t.base, f"{t.bits(u.base, 'a')} << ({t.bits(u.base, 'b')} & ({u})({last}))")
  return f"static {t} shl_{t}({t} a, {t} b) {{ return {_inside(t)} ? {shifted} : ({t})(0); }}"


@_of_ints
def _shr(t: Type) -> str:
  last = f"({t})({8*t.size - 1})"
  if not t.base.startswith("u"): return f"static {t} shr_{t}({t} a, {t} b) {{ return a >> ({_inside(t)} ? b : {last}); }}"
  return f"static {t} shr_{t}({t} a, {t} b) {{ return {_inside(t)} ? a >> (b & {last}) : ({t})(0); }}"


def _inside(t: Type) -> str:
  u = t.of(UNSIGNED[t.size])
  return f"({f'({u})b' if t.n == 1 else t.bits(u.base, 'b')} < ({u})({8*t.size}))"


# ---- division: Python's floor; x / 0 is 0 and least / -1 wraps, both of which trap on a CPU when written plainly
@common
def _idiv(t: Type) -> str:
  if t.base in FLOATS: return f"""
static {t} idiv_{t}({t} a, {t} b) {{
  {t} m = {library('fmod', t, 'a', 'b')}, q = (a - m) / b;
  q = (m != 0) & ((m < 0) != (b < 0)) ? q - 1 : q;
  {t} f = {'floor' if t.n == 1 else '@floor'}(q);
  f = q - f > ({t})(0.5) ? f + 1 : f;
  return b == 0 ? a / b : (q == 0 ? {library('copysign', t, f'({t})(0)', 'a / b')} : f);
}}"""
  if t.base.startswith("u"): return f"""
static {t} idiv_{t}({t} a, {t} b) {{
  return b == ({t})(0) ? ({t})(0) : a / (b == ({t})(0) ? ({t})(1) : b);
}}"""
  return f"""
static {t} idiv_{t}({t} a, {t} b) {{
  {t} d = (b == ({t})(0)) | (b == ({t})(-1)) ? ({t})(1) : b, q = a / d, r = a - q*d;
  q = (r != ({t})(0)) & ((r < ({t})(0)) != (d < ({t})(0))) ? q - ({t})(1) : q;
  return b == ({t})(-1) ? {_minus(t, 'a')} : (b == ({t})(0) ? ({t})(0) : q);
}}"""


@_of_ints
def _gcd(t: Type) -> str:
  """Euclid's algorithm on sizes; vectors go as many steps as the longest one needs, Fibonacci's numbers."""
  u, steps = t.of(UNSIGNED[t.size]), {1: 14, 2: 25, 4: 48, 8: 94}[t.size]
  def size(v: str) -> str:
    if t.base in UNSIGNED.values(): return v
    least = f"{v} < ({t})(0) ? {_minus(t, v)} : {v}"
    return f"({u})({least})" if t.n == 1 else t.bits(u.base, f"({least})")
  end = "y" if t.n == 1 else f"y != ({u})(0)"
  return f"""
static {t} gcd_{t}({t} a, {t} b) {{
  {u} x = {size("a")}, y = {size("b")};
  for (int i = 0; i < {steps}; i++) {{ {u} r = @mod:{u.base}{u.n}(x, y); x = {end} ? y : x; y = r; }}
  return {f'({t})x' if t.n == 1 else u.bits(t.base, 'x')};
}}"""


@common
def _mod(t: Type) -> str:
  if t.base in FLOATS: return f"""
static {t} mod_{t}({t} a, {t} b) {{
  {t} m = {library('fmod', t, 'a', 'b')};
  return m == 0 ? {library('copysign', t, 'm', 'b')} : ((m < 0) != (b < 0) ? m + b : m);
}}"""
  if t.base.startswith("u"): return f"""
static {t} mod_{t}({t} a, {t} b) {{
  return b == ({t})(0) ? ({t})(0) : a % (b == ({t})(0) ? ({t})(1) : b);
}}"""
  return f"""
static {t} mod_{t}({t} a, {t} b) {{
  {t} d = (b == ({t})(0)) | (b == ({t})(-1)) ? ({t})(1) : b, r = a % d;
  r = (r != ({t})(0)) & ((r < ({t})(0)) != (d < ({t})(0))) ? r + d : r;
  return b == ({t})(0) ? ({t})(0) : r;
}}"""


@_of_ints
def _pow(t: Type) -> str:
  """Integer powers by squaring; a negative exponent gives what 1 / a**-b truncates to."""
  unsigned, widened = t.of(UNSIGNED[t.size]), f"({t.of('uint')})" if t.size < 8 else ""
  loop = f"""
static {t} pow_{t}({t} a, {t} b) {{
  {unsigned} r = 1, x = a;
  for ({unsigned} e = b; e; e >>= 1) {{
    if (e & 1) r = {widened}r*x;
    x = {widened}x*x;
  }}
  return {'' if t.base.startswith('u') else 'b < 0 ? (a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0) : '}({t})r;
}}"""
  if t.n == 1: return loop
  return (f"static {t} pow_{t}({t} a, {t} b) "
          f"{{ return ({t})({', '.join(f'@pow:{t.base}(a.s{i:x}, b.s{i:x})' for i in range(t.n))}); }}")


@common
def _abs(t: Type) -> str:
  if t.base in FLOATS:
    bits, mask = ("int", "0x7fffffff") if t.base == "float" else ("long", "0x7fffffffffffffffL")
    return f"static {t} abs_{t}({t} x) {{ return {t.bits(t.base, t.bits(bits, 'x') + f' & {mask}')}; }}"
  return f"static {t} abs_{t}({t} x) {{ return x < ({t})(0) ? {_minus(t, 'x')} : x; }}"


# ---- narrow floats: stored in 8 or 16 bits, held in float registers
def _decode(kind: str, t: Type) -> str:
  (shift, mask, scale, special), f, u = _DECODE[kind], t.of("float"), t.of("uint")
  return f"""
static {f} {kind}_to_float_{t}({t} x) {{
  {u} b = {t.to('uint', 'x')}, m = b & {mask};
  {f} f = {u.bits('float', f'm << {shift}')} * {scale};
  return {u.bits('float', f"({special.format(uint=u)} : {f.bits('uint', 'f')}) | (b - m) << {32 - 8*t.size}")};
}}"""


def _encode(kind: str, t: Type) -> str:
  store, shift, offset, least, magic, top, over, nan = _ENCODE[kind].split()
  f, u = t.of("float"), t.of("uint")
  # numbers below the least normal: adding `magic` makes the FPU round them to a multiple of the least subnormal
  return f"""
static {t.of(store)} float_to_{kind}_{t}({t} x) {{
  {u} b = {t.bits('uint', 'x')}, s = (b & 0x80000000u) >> {31 - (15 if store == 'ushort' else 7)}, a = b & 0x7fffffffu;
  {f} m = {u.bits('float', 'a')};
  {u} small = {t.bits('uint', f'm + {magic}')} - {t.bits('uint', f'({f})({magic})')};
  {u} r = ((a + {hex((1 << (int(shift) - 1)) - 1)}u + (a >> {shift} & 1u)) >> {shift}) - {offset};
  r = a < {least} ? small : (r > {top} ? ({u})({over}) : r);
  return {t.to(store, f"(a > 0x7f800000u ? ({u})({nan}) : r) | s")};
}}"""


# how bits are shifted, all but the sign, the scale, what infinity and NaN become
_DECODE = {"half": (13, "0x7fffu", "0x1p112f", "m >= 0x7c00u ? m << 13 | 0x7f800000u"),
           "fp8e4m3": (20, "0x7fu", "0x1p120f", "m == 0x7fu ? ({uint})(0x7fc00000u)"),
           "fp8e5m2": (21, "0x7fu", "0x1p112f", "m >= 0x7cu ? m << 21 | 0x7f800000u")}
# the type in memory, the shift, the difference of the exponents, the least normal, the magic number, the greatest, overflow, NaN
_ENCODE = {"half": "ushort 13 0x1c000u 0x38800000u 0.5f 0x7c00u 0x7c00u 0x7e00u",
           "fp8e4m3": "uchar 20 0x3c0u 0x3c800000u 0x1p14f 0x7eu 0x7fu 0x7fu",
           "fp8e5m2": "uchar 21 0x1c0u 0x38800000u 0x1p7f 0x7cu 0x7cu 0x7eu"}
for _kind in _DECODE:
  helper(COMMON, name=f"{_kind}_to_float")(partial(_decode, _kind))
  helper(COMMON, name=f"float_to_{_kind}")(partial(_encode, _kind))


@common
def _bfloat16_to_float(t: Type) -> str:
  bits = t.of("uint").bits("float", f"{t.to('uint', 'x')} << 16")
  return f"static {t.of('float')} bfloat16_to_float_{t}({t} x) {{ return {bits}; }}"


@common
def _float_to_bfloat16(t: Type) -> str:
  return f"""
static {t.of('ushort')} float_to_bfloat16_{t}({t} x) {{
  {t.of('uint')} b = {t.bits('uint', 'x')};
  return {t.to('ushort', "x != x ? b >> 16 | 0x40u : (b + 0x7fffu + (b >> 16 & 1u)) >> 16")};
}}"""


@common
def _to_odd(t: Type) -> str:
  """double, or an int of 32 or 64 bits, to float rounded to odd, so that rounding on to a narrower float is as if done once."""
  if t.base != "double":
    unsigned = t.of(UNSIGNED[t.size])
    return f"""
static float to_odd_{t}({t} x) {{
  {unsigned} m = x < 0 ? 0u - ({unsigned})x : x;
  float scale = x < 0 ? -1.0f : 1.0f;
  for (; m >> 24; m = m >> 1 | (m & 1)) scale *= 2.0f;
  return (float)m*scale;
}}"""
  def mask(c: str) -> str: return c if t.n == 1 else t.to("int", f"({c})")
  return f"""
static {t.of('float')} to_odd_{t}({t} x) {{
  {t.of('float')} f = {t.to('float', 'x')};
  {t} r = {t.to('double', 'f')};
  {t.of('int')} b = {t.bits('int', 'f')}, inexact = {mask('r != x')}, beyond = {mask('@abs(r) > @abs(x)')};
  b = inexact ? (beyond ? b - 1 : b) | 1 : b;
  return {t.bits('float', 'b')};
}}"""


# ---- functions
def horner(x: str, coefficients: str) -> str:
  """C text of a polynomial, nested; blanks between the coefficients, of which that of the highest power comes first."""
  text, *more = coefficients.split()
  for c in more:
    if "*" in text: text = f"({text})"
    text += f"*{x} {'-' if c[0] == '-' else '+'} {c.lstrip('-')}"
  return text


@helper(COMMON, "float")
def _erf(t: Type) -> str:
  near = horner("s", "-5.96761703e-4f 4.99119423e-3f -2.67681349e-2f 1.12819925e-1f -3.76125336e-1f 1.28379166e-1f")
  return f"""
static {t} erf_{t}({t} x) {{
  {t} a = @abs(x), s = x*x;
  {t} r = a*-1.72853470e-5f + 3.83197126e-4f, u = a*-3.88396438e-3f + 2.42546219e-2f;
  r = r*s + u;
  r = {horner('a', 'r -1.06777877e-1f -6.34846687e-1f -1.28717512e-1f')};
  r = 1.0f - @exp(r*a - a);
  {t} q = {near};
  return a > 0.927734375f ? (x < 0.0f ? -r : r) : q*x + x;
}}"""


# ---- random numbers


@helper(COMMON, "ulong")
def _threefry(t: Type) -> str:
  """Rounds in words of 32 bits, each number of a vector by its own lane."""
  u = t.of("uint")
  rounds = []
  for i in range(5):
    rounds += [*(f"a += b; b = (b << {n} | b >> {32 - n}) ^ a;" for n in ROTATIONS[i % 2 * 4:][:4]),
               f"a += k{(i + 1) % 3}; b += k{(i + 2) % 3} + {i + 1}u;"]
  body = "\n  ".join(rounds)
  return f"""
static {t} threefry_{t}({t} x, {t} key) {{
  {u} k0 = {t.to("uint", "key")}, k1 = {t.to("uint", "key >> 32")}, k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  {u} a = {t.to("uint", "x")} + k0, b = {t.to("uint", "x >> 32")} + k1;
  {body}
  return {u.to("ulong", "b")} << 32 | {u.to("ulong", "a")};
}}"""
