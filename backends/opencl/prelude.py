"""The helper functions of OpenCL C: those of every language in C's style, and how PoCL's builtin functions are called. It calls
each (``exp``, ``max``, ``vload8``, ``convert_int8``) out of line, which spills all vector registers at the call. So what hot
loops need is written here with operators and compiler builtins, which inline and vectorise."""
from __future__ import annotations

from functools import partial
from typing import Callable

from ..cstyle.functions import COMMON, FLOATS, FUNCTIONS, Library, Templates, Type, helper, horner, library

TEMPLATES: Templates = dict(COMMON)

# ---- the device's builtin functions: name -> number of arguments. PoCL compiles kernels and its library for CPUs that may differ
# (a new CPU with AVX-512, which its LLVM does not know, gets AVX2 kernels and AVX-512 functions). They agree on how vectors are
# handed over only up to the kernel's registers: a function of anything wider gives wrong numbers or ends the process. So wider
# vectors go in pieces, and so do those that ``selftest`` found wrong.
ROUNDINGS = "floor", "ceil", "trunc", "rint"
LIBRARY = {name: args for name, args in FUNCTIONS.items() if name not in ROUNDINGS}
_ALL = 128                                # bits that every CPU's vector registers have
_SOME = {256: "__AVX__"}                  # wider ones, and what the compiler defines where its code has them

Bad = Callable[[str, str], frozenset[int]]   # (function, element) → the widths of vectors at which the driver has it wrong


def trusted(name: str, base: str) -> frozenset[int]:
  """The answer where no driver has been tested: all is right."""
  return frozenset()


def registers(t: Type) -> str | None:
  """What the compiler defines where its code has registers for such a vector; "" where that is always so, None where never."""
  return "" if t.n == 1 or t.bits_wide <= _ALL else _SOME.get(t.bits_wide)


def either(macro: str | None, hard: str, soft: str) -> str:
  """``hard`` where the compiler defines ``macro``, else ``soft``."""
  return f"#ifdef {macro}\n{hard}\n#else\n{soft.strip()}\n#endif" if macro else soft


def _pieces(name: str, t: Type, bad: Bad) -> str:
  """A helper that calls a builtin function with vectors that fit the device's registers, and for which it is right."""
  args = "ab"[:LIBRARY[name]]
  parts = [f"s{i}" for i in range(3)] if t.n == 3 else ["lo", "hi"]
  part = Type(t.base, 1 if t.n == 3 else t.n//2)
  head = f"static {t} {name}_{t}({', '.join(f'{t} {a}' for a in args)}) "
  split = f"{head}{{ return ({t})({', '.join(library(name, part, *(f'{a}.{p}' for a in args)) for p in parts)}); }}"
  return split if t.n in bad(name, t.base) else either(registers(t), f"{head}{{ return {name}({', '.join(args)}); }}", split)


class OpenCLLibrary(Library):
  """What a device has of its own, where ``bad`` does not say that it is wrong; for CPUs this folder's functions come first."""
  templates = TEMPLATES

  def __init__(self, bad: Bad = trusted, native: bool = False):
    super().__init__()
    self.bad, self.native = bad, native   # native: a GPU, whose functions are fast

  def builtin(self, name: str, t: Type) -> str | None:
    if t.base not in FLOATS or (self.has(name, t) and not self.native): return None
    if name not in LIBRARY: return name if name in ROUNDINGS else None
    return name if registers(t) == "" and (t.n == 1 or t.n not in self.bad(name, t.base)) else None

  def template(self, name: str, t: Type) -> str:
    """See :meth:`Library.template`; a device's function of vectors too wide for it takes them in pieces."""
    return super().template(name, t) if self.has(name, t) or name not in LIBRARY else _pieces(name, t, self.bad)


# ---- float16 in memory: a hardware instruction does four or eight
_HARDWARE = {   # by the name of the helper: what it converts to, and how, by the width of the vector
  "half_to_float": ("float", {
    1: "as_float4(__builtin_ia32_vcvtph2ps((short8)(as_short(x)))).s0",
    4: "__builtin_ia32_vcvtph2ps(as_short8((ushort8)(x, x)))", 8: "__builtin_ia32_vcvtph2ps256(as_short8(x))",
    16: "(float16)(@half_to_float:ushort8(x.lo), @half_to_float:ushort8(x.hi))"}),
  "float_to_half": ("ushort", {
    1: "as_ushort8(__builtin_ia32_vcvtps2ph((float4)(x), 0)).s0", 4: "as_ushort8(__builtin_ia32_vcvtps2ph(x, 0)).lo",
    8: "as_ushort8(__builtin_ia32_vcvtps2ph256(x, 0))",
    16: "(ushort16)(@float_to_half:float8(x.lo), @float_to_half:float8(x.hi))"})}


def _by_hardware(name: str, t: Type) -> str:
  soft, (to, hard) = COMMON[name][0](t), _HARDWARE[name]
  return either("__F16C__", f"static {t.of(to)} {name}_{t}({t} x) {{ return {hard[t.n]}; }}", soft) if t.n in hard else soft


for _name in _HARDWARE: helper(TEMPLATES, name=_name)(partial(_by_hardware, _name))


# ---- float32 functions: special values as IEEE has them, 1.3 to 15 times as fast as PoCL's builtins on vectors. Greatest errors
# measured, in ulp: exp 1.0, exp2 1.0, log 0.8, log2 1.3, sin and cos 1.9, tan 3, tanh 4.6, erf 1.0, sqrt 0.5. Arguments are
# reduced by adding 1.5*2^23, which leaves the nearest integer in the low bits; polynomials are in Horner form, whose ``p*r + c``
# the compiler contracts to fused multiply-adds (the errors rely on it). Comparisons are written so that NaN falls through
_of_floats = helper(TEMPLATES, "float")
_EXP = "1.98756912e-4f 1.39819994e-3f 8.33345205e-3f 4.16657962e-2f 1.66666657e-1f 0.5f"


# A result that rounds to zero (of what a mask took away, exp(-inf)) is chosen, not computed: a product that becomes subnormal
# on the way takes a CPU a hundred times as long.

def _power(t: Type, name: str, most: str, least: str, reduced: str) -> str:
  """exp or exp2 from ``least`` to ``most``: ``r`` is what x is ``reduced`` to, ``t`` has n in its low bits."""
  return f"""
static {t} {name}_{t}({t} x) {{
  x = x > {most} ? ({t})({most}) : x;
  {t.of('int')} zero = x < {least};
  x = zero ? ({t})(0.0f) : x;
  {reduced}
  {t} p = {horner('r', _EXP)};
  p = p*(r*r) + r + 1.0f;
  {t.of('int')} n = {t.bits('int', 't')} - 0x4b400000, h = n >> 1;  // 2^n in two steps: it may overflow or be subnormal
  p = p*{t.bits('float', '(h + 127) << 23')}*{t.bits('float', '(n - h + 127) << 23')};
  return zero ? ({t})(0.0f) : p;
}}"""


@_of_floats
def _exp(t: Type) -> str:
  return _power(t, "exp", "89.0f", "-104.0f", f"""{t} t = x*1.44269504f + 12582912.0f, k = t - 12582912.0f;
  {t} r = x - k*0.693145752f;
  r = r - k*1.42860677e-6f;""")


@_of_floats
def _exp2(t: Type) -> str:
  return _power(t, "exp2", "129.0f", "-151.0f", f"""{t} t = x + 12582912.0f;
  {t} r = (x - (t - 12582912.0f))*0.693147181f;""")


def _log(t: Type, name: str, result: str) -> str:
  i = t.of("int")
  poly = horner("f", "7.0376836292e-2f -1.1514610310e-1f 1.1676998740e-1f -1.2420140846e-1f "
                "1.4249322787e-1f -1.6668057665e-1f 2.0000714765e-1f -2.4999993993e-1f 3.3333331174e-1f")
  return f"""
static {t} {name}_{t}({t} x) {{
  {t} a = x < 1.17549435e-38f ? x*8388608.0f : x;
  {i} b = {t.bits('int', 'a')}, e = (b - 0x3f3504f3) >> 23;
  {t} f = {t.bits('float', 'b - (e << 23)')} - 1.0f, z = f*f;  // the mantissa in [sqrt(1/2), sqrt(2)), less one
  {t} k = {i.to('float', 'e')} - (x < 1.17549435e-38f ? ({t})(23.0f) : ({t})(0.0f));
  {t} p = {poly};
  {result}
  r = x < 0.0f ? ({t})(NAN) : r;
  r = x == 0.0f ? ({t})(-INFINITY) : r;
  return (x < INFINITY) ? r : x;
}}"""


@helper(TEMPLATES, "float", name="log")
def _log_natural(t: Type) -> str:
  return _log(t, "log", f"""{t} y = p*(f*z) + k*-2.12194440e-4f - 0.5f*z;
  {t} r = f + y + k*0.693359375f;""")


@_of_floats
def _log2(t: Type) -> str:
  return _log(t, "log2", f"""{t} y = p*(f*z) - 0.5f*z, m = f + y;
  {t} r = m*0.442695041f + m + k;""")


@_of_floats
def _tanh(t: Type) -> str:
  p = horner("s", "-2.76076847742355e-16f 2.00018790482477e-13f -8.60467152213735e-11f 5.12229709037114e-08f "
             "1.48572235717979e-05f 6.37261928875436e-04f 4.89352455891786e-03f")
  q = horner("s", "1.19825839466702e-06f 1.18534705686654e-04f 2.26843463243900e-03f 4.89352518554385e-03f")
  near = horner("s", "-5.70498872745e-3f 2.06390887954e-2f -5.37397155531e-2f 1.33314422036e-1f -3.33332819422e-1f")
  return f"""
static {t} tanh_{t}({t} x) {{
  {t} c = x > 7.99881172f ? ({t})(7.99881172f) : x;
  c = c < -7.99881172f ? ({t})(-7.99881172f) : c;
  {t} s = c*c, p = {p}, q = {q};
  {t} near = {near};
  return @abs(x) < 0.625f ? x*(near*s + 1.0f) : c*p/q;
}}"""


def _wave(t: Type, name: str, shift: str, sign: str) -> str:
  patch = f"{name}(x)"
  if t.n > 1: patch = f"({t})({', '.join(f'big.s{j:x} ? {name}(x.s{j:x}) : y.s{j:x}' for j in range(t.n))})"
  return f"""
static {t} {name}_{t}({t} x) {{
  {t} t = x*0.318309886f{shift} + 12582912.0f, k = t - 12582912.0f{' + 0.5f' if shift else ''};
  {t} r = x - k*3.14159274f;
  r = r + k*8.74227766e-8f;
  r = r + k*3.4302487e-15f;
  {t} s = r*r;
  r = {t.bits('float', f"{t.bits('int', 'r')} ^ ({t.bits('int', 't')}{sign} << 31)")};
  {t} y = ({horner('s', '2.60831598e-6f -1.98106907e-4f 8.33307858e-3f -1.66666597e-1f')})*(s*r) + r;
  {t.of('int')} big = !(@abs(x) < 1e5f);
  if ({'big' if t.n == 1 else ' | '.join(f'big.s{j:x}' for j in range(t.n))}) y = {patch};  // rare: the device's own, one by one
  return {'y' if shift else 'x == 0.0f ? x : y'};  // of -0.0 it is -0.0
}}"""


@_of_floats
def _sin(t: Type) -> str: return _wave(t, "sin", "", "")
@_of_floats
def _cos(t: Type) -> str: return _wave(t, "cos", " - 0.5f", " + 1")
@_of_floats
def _tan(t: Type) -> str: return f"static {t} tan_{t}({t} x) {{ return @sin(x)/@cos(x); }}"


@_of_floats
def _sqrt(t: Type) -> str:
  if t.n == 1: return f"static float sqrt_{t}(float x) {{ return __builtin_sqrtf(x); }}"
  hard = {4: "__builtin_ia32_sqrtps(x)", 8: "__builtin_ia32_sqrtps256(x)"}.get(t.n)
  soft = f"static {t} sqrt_{t}({t} x) {{ return sqrt(x); }}"
  if t.n > 4: soft = f"static {t} sqrt_{t}({t} x) {{ return ({t})(@sqrt:float{t.n//2}(x.lo), @sqrt:float{t.n//2}(x.hi)); }}"
  return either("__AVX__", f"static {t} sqrt_{t}({t} x) {{ return {hard}; }}", soft) if hard else soft


def _rounding(name: str, t: Type) -> str:
  return f"static {t} {name}_{t}({t} x) {{ return __builtin_elementwise_{'roundeven' if name == 'rint' else name}(x); }}"


for _name in ROUNDINGS: helper(TEMPLATES, name=_name)(partial(_rounding, _name))
