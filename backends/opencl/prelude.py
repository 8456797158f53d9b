"""Helper functions in OpenCL C that rendered kernels draw on, made for the scalar or vector type that asks.

PoCL calls every OpenCL builtin (``exp``, ``max``, ``vload8``, ``convert_int8``) out of line, which spills all vector registers round
it. So what hot loops need is written here with operators and compiler builtins, which inline and vectorise.
A helper is called ``<function>_<type>``, for example ``max_float8``; a template gets a :class:`Type` and gives the body.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Callable


@dataclass(frozen=True)
class Type:
  """An OpenCL C type ``float8`` as base ``float`` and width 8, and how to write conversions of it."""
  base: str
  n: int = 1

  def __str__(self) -> str: return self.base + ("" if self.n == 1 else str(self.n))
  def of(self, base: str) -> Type:
    """The type of the same width with another element."""
    return Type(base, self.n)

  def to(self, base: str, x: str) -> str:
    """C text that converts the value ``x`` to elements of ``base``."""
    return f"({base})({x})" if self.n == 1 else f"__builtin_convertvector({x}, {base}{self.n})"

  def bits(self, base: str, x: str) -> str:
    """C text that reinterprets the bits of ``x`` as elements of ``base``."""
    return f"as_{self.of(base)}({x})"

  @property
  def size(self) -> int: return SIZES[self.base]
  @property
  def bits_wide(self) -> int: return 8*self.size*(4 if self.n == 3 else self.n)

  @staticmethod
  def parse(text: str) -> Type:
    """``float8`` → ``Type("float", 8)``."""
    m = re.fullmatch(r"([a-z]+)(\d*)", text)
    assert m is not None, text
    return Type(m[1], int(m[2] or 1))


SIZES = {"bool": 1, "char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "long": 8, "ulong": 8, "float": 4,
         "double": 8}
SIGNED = {1: "char", 2: "short", 4: "int", 8: "long"}
UNSIGNED = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}

Template = Callable[[Type], str]
_templates: dict[str, Template] = {}
_bases: dict[str, tuple[str, ...]] = {}   # of templates that are not for all


def helper(fn: Template) -> Template:
  """Register a template under its name without the leading underscore; ``_log_natural`` is ``log``."""
  _templates[fn.__name__.strip("_").replace("_natural", "")] = fn
  return fn


def helper_of(*bases: str) -> Callable[[Template], Template]:
  """Register a template for these elements only."""
  def register(fn: Template) -> Template:
    _bases[fn.__name__.strip("_").replace("_natural", "")] = bases
    return helper(fn)
  return register


# ---- the device's own functions
# name → number of arguments. PoCL compiles kernels and its library for CPUs that may differ (a new CPU with AVX-512, which its LLVM does not
# know, gets AVX2 kernels and AVX-512 functions). They agree on how vectors are handed over only up to the kernel's registers: a function
# of anything wider gives wrong numbers or ends the process. So wider vectors go in pieces, and so do those that ``selftest`` found wrong.
LIBRARY = {"sqrt": 1, "exp": 1, "exp2": 1, "log": 1, "log2": 1, "sin": 1, "cos": 1, "tan": 1, "tanh": 1, "erf": 1, "pow": 2, "fmod": 2,
           "copysign": 2}
_ALL = 128                                # bits that every CPU's vector registers have
_SOME = {256: "__AVX__"}                  # wider ones, and what the compiler defines where its code has them


Bad = Callable[[str, str], frozenset[int]]   # (function, element) → the widths of vectors at which the driver has it wrong


def trusted(name: str, base: str) -> frozenset[int]:
  """The answer where no driver has been tested: all is right."""
  return frozenset()


def registers(t: Type) -> str | None:
  """What the compiler defines where its code has registers for such a vector; "" where that is always so, None where never."""
  return "" if t.n == 1 or t.bits_wide <= _ALL else _SOME.get(t.bits_wide)


def direct(name: str, t: Type, bad: Bad) -> bool:
  """Whether the device's own function is called for a type wherever the kernel runs, without a helper."""
  return registers(t) == "" and (t.n == 1 or t.n not in bad(name, t.base))


def library(name: str, t: Type, *args: str) -> str:
  """Text for a template that calls the device's own function."""
  return f"@{name}:{t}({', '.join(args)})"


def _pieces(name: str, t: Type, bad: Bad) -> str:
  """A helper that calls the device's own function with vectors that fit its registers, and that it has right."""
  args = "ab"[:LIBRARY[name]]
  parts = [f"s{i}" for i in range(3)] if t.n == 3 else ["lo", "hi"]
  part = Type(t.base, 1 if t.n == 3 else t.n//2)
  head = f"static {t} {name}_{t}({', '.join(f'{t} {a}' for a in args)}) "
  split = f"{head}{{ return ({t})({', '.join(library(name, part, *(f'{a}.{p}' for a in args)) for p in parts)}); }}"
  needed = registers(t)
  if not needed or t.n in bad(name, t.base): return split
  return f"#ifdef {needed}\n{head}{{ return {name}({', '.join(args)}); }}\n#else\n{split}\n#endif"


# what a template calls: `@name` is the helper of the template's own type, `@name:float8` of another
_CALL = re.compile(r"@(\w+)(?::(\w+))?")


@cache
def source(name: str, ctype: str, bad: Bad = trusted) -> tuple[tuple[str, str], ...]:
  """The helper ``name`` for ``ctype`` after those that it calls, as (name in C, text) pairs; ``bad`` says what the driver has wrong."""
  t = Type.parse(ctype)
  text = (_templates[name](t) if has(name, t) else _pieces(name, t, bad)).strip("\n")
  out: dict[str, str] = {}
  def called(m: re.Match[str]) -> str:
    fn, of = m[1], m[2] or ctype
    if fn in LIBRARY and not has(fn, Type.parse(of)) and direct(fn, Type.parse(of), bad): return fn
    out.update(source(fn, of, bad))
    return f"{fn}_{of}"
  text = _CALL.sub(called, text)
  out[f"{name}_{ctype}"] = text
  return tuple(out.items())


def has(name: str, t: Type) -> bool:
  """Whether there is a template of this name for a type."""
  return name in _templates and t.base in _bases.get(name, (t.base,))


# ---- MAX and MIN
@helper
def _max(t: Type) -> str:
  nan = " | (a != a)" if t.base in ("float", "double") else ""
  return f"static {t} max_{t}({t} a, {t} b) {{ return (a > b){nan} ? a : b; }}"


@helper
def _min(t: Type) -> str:
  nan = " | (a != a)" if t.base in ("float", "double") else ""
  return f"static {t} min_{t}({t} a, {t} b) {{ return (a < b){nan} ? a : b; }}"


# ---- division: Python's floor; x / 0 is 0 and least / -1 wraps, both of which trap on a CPU when written plainly
@helper
def _idiv(t: Type) -> str:
  if t.base in ("float", "double"): return f"""
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
  minus_a = f"({t})(0u - (u{t.base})a)"
  if t.n > 1: minus_a = t.bits(t.base, f"({t.of('u' + t.base)})(0) - {t.bits('u' + t.base, 'a')}")
  return f"""
static {t} idiv_{t}({t} a, {t} b) {{
  {t} d = (b == ({t})(0)) | (b == ({t})(-1)) ? ({t})(1) : b, q = a / d, r = a - q*d;
  q = (r != ({t})(0)) & ((r < ({t})(0)) != (d < ({t})(0))) ? q - ({t})(1) : q;
  return b == ({t})(-1) ? {minus_a} : (b == ({t})(0) ? ({t})(0) : q);
}}"""


@helper
def _mod(t: Type) -> str:
  if t.base in ("float", "double"): return f"""
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


@helper_of(*SIGNED.values(), *UNSIGNED.values())
def _pow(t: Type) -> str:
  """Integer powers by squaring; a negative exponent gives what 1 / a**-b truncates to."""
  signed = not t.base.startswith("u")
  loop = f"""
static {t} pow_{t}({t} a, {t} b) {{
  {UNSIGNED[t.size]} r = 1, x = a;
  for ({UNSIGNED[t.size]} e = b; e; e >>= 1) {{
    if (e & 1) r = (uint)r*x;
    x = (uint)x*x;
  }}
  return {f"b < 0 ? (a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0) : ({t})r" if signed else f"({t})r"};
}}"""
  if t.size == 8: loop = loop.replace("(uint)", "")
  if t.n == 1: return loop
  lanes = ", ".join(f"@pow:{t.base}(a.s{i:x}, b.s{i:x})" for i in range(t.n))
  return f"static {t} pow_{t}({t} a, {t} b) {{ return ({t})({lanes}); }}"


@helper
def _abs(t: Type) -> str:
  if t.base in ("float", "double"):
    bits, mask = ("int", "0x7fffffff") if t.base == "float" else ("long", "0x7fffffffffffffffL")
    return f"static {t} abs_{t}({t} x) {{ return {t.bits(t.base, t.bits(bits, 'x') + f' & {mask}')}; }}"
  return f"static {t} abs_{t}({t} x) {{ return x < ({t})(0) ? ({t})(0) - x : x; }}"


# ---- narrow floats: stored in 8 or 16 bits, held in float registers
def _decode(kind: str, t: Type, shift: int, mask: str, scale: str, special: str) -> str:
  f, u = t.of("float"), t.of("uint")
  return f"""
static {f} {kind}_to_float_{t}({t} x) {{
  {u} b = {t.to('uint', 'x')}, m = b & {mask};
  {f} f = {t.bits('float', f'm << {shift}')} * {scale};
  return {t.bits('float', f"({special} : {t.bits('uint', 'f')}) | (b - m) << {31 - (15 if t.base == 'ushort' else 7)}")};
}}"""


def _encode(kind: str, t: Type, store: str, shift: int, offset: str, least: str, magic: str, top: str, over: str,
            nan: str) -> str:
  f, u = t.of("float"), t.of("uint")
  sign = 31 - (15 if store == "ushort" else 7)
  # numbers below the least normal: adding `magic` makes the FPU round them to a multiple of the least subnormal
  return f"""
static {t.of(store)} float_to_{kind}_{t}({t} x) {{
  {u} b = {t.bits('uint', 'x')}, s = (b & 0x80000000u) >> {sign}, a = b & 0x7fffffffu;
  {f} m = {t.bits('float', 'a')};
  {u} small = {t.bits('uint', f'm + {magic}')} - {t.bits('uint', f'({f})({magic})')};
  {u} r = ((a + {hex((1 << (shift - 1)) - 1)}u + (a >> {shift} & 1u)) >> {shift}) - {offset};
  r = a < {least} ? small : (r > {top} ? ({u})({over}) : r);
  return {t.to(store, f"(a > 0x7f800000u ? ({u})({nan}) : r) | s")};
}}"""


@helper
def _half_to_float(t: Type) -> str:
  # a hardware instruction does four or eight
  soft = _decode("half", t, 13, "0x7fffu", "0x1p112f", "m >= 0x7c00u ? m << 13 | 0x7f800000u")
  if t.n not in (1, 4, 8, 16): return soft
  if t.n == 8: hard = "return __builtin_ia32_vcvtph2ps256(as_short8(x));"
  elif t.n == 16: hard = "return (float16)(@half_to_float:ushort8(x.lo), @half_to_float:ushort8(x.hi));"
  elif t.n == 4: hard = "return __builtin_ia32_vcvtph2ps(as_short8((ushort8)(x, x)));"
  else: hard = "return as_float4(__builtin_ia32_vcvtph2ps((short8)(as_short(x)))).s0;"
  return f"""
#ifdef __F16C__
static {t.of('float')} half_to_float_{t}({t} x) {{ {hard} }}
#else
{soft.strip()}
#endif"""


@helper
def _float_to_half(t: Type) -> str:
  soft = _encode("half", t, "ushort", 13, "0x1c000u", "0x38800000u", "0.5f", "0x7c00u", "0x7c00u", "0x7e00u")
  if t.n not in (1, 4, 8, 16): return soft
  if t.n == 8: hard = "return as_ushort8(__builtin_ia32_vcvtps2ph256(x, 0));"
  elif t.n == 16: hard = "return (ushort16)(@float_to_half:float8(x.lo), @float_to_half:float8(x.hi));"
  elif t.n == 4: hard = "return as_ushort8(__builtin_ia32_vcvtps2ph(x, 0)).lo;"
  else: hard = "return as_ushort8(__builtin_ia32_vcvtps2ph((float4)(x), 0)).s0;"
  return f"""
#ifdef __F16C__
static {t.of('ushort')} float_to_half_{t}({t} x) {{ {hard} }}
#else
{soft.strip()}
#endif"""


@helper
def _bfloat16_to_float(t: Type) -> str:
  return f"static {t.of('float')} bfloat16_to_float_{t}({t} x) {{ return {t.bits('float', t.to('uint', 'x') + ' << 16')}; }}"


@helper
def _float_to_bfloat16(t: Type) -> str:
  u = t.of("uint")
  return f"""
static {t.of('ushort')} float_to_bfloat16_{t}({t} x) {{
  {u} b = {t.bits('uint', 'x')};
  return {t.to('ushort', "x != x ? b >> 16 | 0x40u : (b + 0x7fffu + (b >> 16 & 1u)) >> 16")};
}}"""


@helper
def _fp8e4m3_to_float(t: Type) -> str:
  return _decode("fp8e4m3", t, 20, "0x7fu", "0x1p120f", f"m == 0x7fu ? ({t.of('uint')})(0x7fc00000u)")


@helper
def _float_to_fp8e4m3(t: Type) -> str:
  return _encode("fp8e4m3", t, "uchar", 20, "0x3c0u", "0x3c800000u", "0x1p14f", "0x7eu", "0x7fu", "0x7fu")


@helper
def _fp8e5m2_to_float(t: Type) -> str:
  return _decode("fp8e5m2", t, 21, "0x7fu", "0x1p112f", "m >= 0x7cu ? m << 21 | 0x7f800000u")


@helper
def _float_to_fp8e5m2(t: Type) -> str:
  return _encode("fp8e5m2", t, "uchar", 21, "0x1c0u", "0x38800000u", "0x1p7f", "0x7cu", "0x7cu", "0x7eu")


@helper
def _to_odd(t: Type) -> str:
  """double to float rounded to odd, so that rounding on to a narrower float is as if done once."""
  i = t.of("int")
  d = t.to("double", "f")
  def mask(c: str) -> str: return c if t.n == 1 else t.to("int", f"({c})")
  return f"""
static {t.of('float')} to_odd_{t}({t} x) {{
  {t.of('float')} f = {t.to('float', 'x')};
  {t} r = {d};
  {i} b = {t.bits('int', 'f')}, inexact = {mask('r != x')}, beyond = {mask('@abs(r) > @abs(x)')};
  b = inexact ? (beyond ? b - 1 : b) | 1 : b;
  return {t.bits('float', 'b')};
}}"""


# ---- random numbers
@helper
def _threefry(t: Type) -> str:
  if t.n > 1:
    lanes = ", ".join(f"@threefry:ulong(x.s{i:x}, key.s{i:x})" for i in range(t.n))
    return f"static {t} threefry_{t}({t} x, {t} key) {{ return ({t})({lanes}); }}"
  return """
static ulong threefry_ulong(ulong x, ulong key) {
  uint k[3] = {(uint)key, (uint)(key >> 32), (uint)key ^ (uint)(key >> 32) ^ 0x1BD11BDAu};
  const uint rotation[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  uint a = (uint)x + k[0], b = (uint)(x >> 32) + k[1];
  for (int i = 0; i < 5; i++) {
    for (int j = 0; j < 4; j++) {
      uint r = rotation[(i & 1)*4 + j];
      a += b;
      b = (b << r | b >> (32 - r)) ^ a;
    }
    a += k[(i + 1) % 3];
    b += k[(i + 2) % 3] + i + 1;
  }
  return (ulong)b << 32 | a;
}"""
