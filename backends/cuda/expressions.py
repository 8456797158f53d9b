"""Values as Triton Python: literals, operands brought to common axes, and what each function and cast reads like."""
from __future__ import annotations

import math
from typing import Any, Iterable

import numpy as np

from ntgrad.backends.cuda.facts import TritonFacts, triton_type
from ntgrad.codegen.blocks import FP8, NARROW
from ntgrad.codegen.dtype import DType, cast_number, dtypes, held
from ntgrad.codegen.errors import CompileError
from ntgrad.codegen.functions import FUNCTIONS
from ntgrad.codegen.index import vmin
from ntgrad.codegen.uop import COMPARE, BinaryOps, Ops, TernaryOps, UnaryOps, UOp

# precedences of Python, the tightest first
ATOM, UNARY, MUL, ADD, SHIFT, AND, XOR, OR, CMP, ANY = range(10)
_INFIX = {
  BinaryOps.ADD: (" + ", ADD),
  BinaryOps.SUB: (" - ", ADD),
  BinaryOps.MUL: ("*", MUL),
  BinaryOps.DIV: ("/", MUL),
  BinaryOps.IDIV: ("//", MUL),
  BinaryOps.MOD: ("%", MUL),
  BinaryOps.SHL: (" << ", SHIFT),
  BinaryOps.SHR: (" >> ", SHIFT),
  BinaryOps.CMPLT: (" < ", CMP),
  BinaryOps.CMPLE: (" <= ", CMP),
  BinaryOps.CMPEQ: (" == ", CMP),
  BinaryOps.CMPNE: (" != ", CMP),
  BinaryOps.AND: (" & ", AND),
  BinaryOps.OR: (" | ", OR),
  BinaryOps.XOR: (" ^ ", XOR),
}
_CALL = {
  UnaryOps.EXP: "libdevice.exp", UnaryOps.EXP2: "libdevice.exp2", UnaryOps.LOG: "libdevice.log", UnaryOps.LOG2: "libdevice.log2",
  UnaryOps.SIN: "libdevice.sin", UnaryOps.COS: "libdevice.cos", UnaryOps.TAN: "libdevice.tan", UnaryOps.TANH: "libdevice.tanh",
  UnaryOps.ERF: "libdevice.erf", UnaryOps.FLOOR: "tl.floor", UnaryOps.CEIL: "tl.ceil", UnaryOps.TRUNC: "libdevice.trunc",
  UnaryOps.ROUND: "libdevice.rint", UnaryOps.RSQRT: "libdevice.rsqrt"}
Text = tuple[str, int]     # Python and its precedence


def constant(dtype: DType, value: Any) -> Text:
  """A literal. Triton gives it the dtype of what it meets."""
  if dtype.kind == "b": return (str(bool(value)), ATOM)
  if dtype in FP8:
    with np.errstate(over="ignore"): return (str(int(np.array(value).astype(dtype.np).view(np.uint8))), ATOM)
  if dtype.kind == "f":
    value = held(value, dtype)
    if math.isnan(value): return ('float("nan")', ATOM)
    if math.isinf(value): return ('float("inf")', ATOM) if value > 0 else ('float("-inf")', ATOM)
    text = repr(value) if dtype is dtypes.float64 else str(np.float32(value))
    if "." not in text and "e" not in text: text += ".0"
    return (text, UNARY if text[0] == "-" else ATOM)
  return (str(int(value)), UNARY if value < 0 else ATOM)


def sizes(ns: Iterable[int]) -> str:
  """A tuple: ``(16,)``."""
  parts = [str(n) for n in ns]
  return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

# what the chip has instructions for, to some bits less; for values that are rounded to 16 bits or fewer in the end
_ROUNDED = {UnaryOps.EXP: "tl.exp", UnaryOps.EXP2: "tl.exp2", UnaryOps.RSQRT: "tl.rsqrt"}


class Expressions(TritonFacts):
  """The text of every value so far, and what it draws on."""
  text: dict[UOp, Text]
  used: dict[str, None]      # helpers, and the element numbers and masks of axes

  def use(self, name: str) -> str:
    """A name that stands in the source: what it means has to stand there too."""
    self.used[name.split(".")[0]] = None
    return name

  def shape(self, dims: frozenset[int]) -> str:
    return sizes(self.padded[i] for i in self.axes(dims))

  def expand(self, text: str, prec: int, dims: frozenset[int], to: frozenset[int]) -> Text:
    """A block over ``dims`` with dimensions of one for the other axes of ``to``. Scalars meet every block."""
    if not dims or dims == to: return (text, prec)
    at = ", ".join(":" if i in dims else "None" for i in self.axes(to))
    return (f"{text if prec == ATOM else f'({text})'}[{at}]", ATOM)

  def x(self, u: UOp, prec: int = ANY, to: frozenset[int] | None = None) -> str:
    """The text of a value as an operand beside axes ``to``, in parentheses unless it binds at least as tightly as ``prec``."""
    text, p = constant(u.dtype, u.arg) if u.op is Ops.CONST else self.text[u]
    if u.op is Ops.RANGE: self.use(text)
    if to is not None: text, p = self.expand(text, p, self.dims.get(u, frozenset()), to)
    return text if p <= prec else f"({text})"

  def typed(self, u: UOp, to: frozenset[int] | None = None, prec: int = ANY) -> str:
    """Like ``x``, a constant as a tensor of its dtype."""
    return f"tl.full((), {self.x(u)}, {triton_type(u.dtype)})" if u.op is Ops.CONST else self.x(u, prec, to)

  def whole(self, u: UOp, to: frozenset[int]) -> str:
    """A value as a block over all of ``to``."""
    if self.dims.get(u, frozenset()) == to: return self.typed(u)
    if u.op is Ops.CONST: return f"tl.full({self.shape(to)}, {self.x(u)}, {triton_type(u.dtype)})"
    return f"tl.broadcast_to({self.x(u, ANY, to)}, {self.shape(to)})"

  def masks(self, dims: frozenset[int], to: frozenset[int], axes: frozenset[int] | None = None) -> list[str]:
    """The conditions that leave out the lanes added to axes, as operands of ``&``."""
    return [self.expand(self.use(f"m{i}"), ATOM, frozenset((i,)), to)[0]
            for i in self.axes(dims if axes is None else axes) if self.padded[i] != self.sizes[i]]

  # ---- values

  def cast(self, u: UOp) -> Text:
    v, d = u.src[0], u.dtype
    s = v.dtype
    if v.op is Ops.CONST: return (f"tl.full((), {constant(d, cast_number(v.arg, s, d))[0]}, {triton_type(d)})", ATOM)
    if s is d: return (self.x(v, ATOM), ATOM)
    if s in FP8: return (f"{self.use(f'_from_{d_short(s)}')}({self.x(v)})", ATOM)
    if d in FP8:
      return (
        f"{self.use(f'_to_{d_short(d)}')}({self.x(v) if s is dtypes.float32 else f'{self.x(v, ATOM)}.to(tl.float32)'})",
        ATOM,
      )
    if d.kind == "b": return (f"{self.x(v, OR)} != {'0.0' if s.kind == 'f' else '0'}", CMP)
    text = self.x(v, ATOM)
    # out of range is undefined; by way of a wider int it wraps, as numpy does on most machines
    if s.kind == "f" and d.kind in "iu" and d.itemsize < 4: text += ".to(tl.int32)"
    elif s.kind == "f" and d is dtypes.uint32: text += ".to(tl.int64)"
    elif s.kind == "b" and d in NARROW: text += ".to(tl.float32)"
    return (f"{text}.to({triton_type(d)})", ATOM)

  def bitcast(self, u: UOp) -> Text:
    v, d = u.src[0], u.dtype
    if v.dtype.itemsize != d.itemsize: raise CompileError(f"kernel {self.name}: BITCAST from {v.dtype} to {d}: item sizes differ")
    text, (s, t) = self.typed(v, None, ATOM), (triton_type(v.dtype), triton_type(d))
    if v.dtype.kind == "b": text, s = f"{text}.to(tl.int8)", "tl.int8"
    if d.kind == "b": return (f"{text} != 0", CMP)
    return (text, ATOM) if s == t else (f"{text}.to({t}, bitcast=True)", ATOM)

  def alu(self, u: UOp) -> Text:
    fn, src = u.arg, u.src
    to = self.dims[u]
    if fn is TernaryOps.WHERE:
      if all(s.op is Ops.CONST for s in src[1:]): yes, no = self.typed(src[1]), self.x(src[2])
      else: yes, no = self.x(src[1], ANY, to), self.x(src[2], ANY, to)
      return (f"tl.where({self.x(src[0], ANY, to)}, {yes}, {no})", ATOM)
    return self.unary(u) if isinstance(fn, UnaryOps) else self.binary(u)

  def unary(self, u: UOp) -> Text:
    fn, v, d = u.arg, u.src[0], u.dtype
    x = self.typed(v, None, ATOM)
    if fn is UnaryOps.ISNAN: return (f"{x} != {x}" if v.dtype.kind == "f" else f"{x} != {x}", CMP)
    if fn is UnaryOps.NOT: return (f"~{x}", UNARY)
    if fn is UnaryOps.NEG:
      if d.kind == "b": return (self.x(v, ATOM), ATOM)
      # Triton's -x is 0 - x, which makes 0.0 of -0.0's opposite
      return (f"{x}*-1.0", MUL) if d.kind == "f" else (f"-{x}", UNARY)
    if d.kind != "f":
      if fn is UnaryOps.ABS and d.kind == "i": return (f"tl.abs({self.typed(v)})", ATOM)
      if fn in (UnaryOps.ABS, UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND): return (self.typed(v), ANY)
      raise self.refuse(u, f"{fn} of {d}: takes floats")
    if fn is UnaryOps.ABS: return (f"tl.abs({self.typed(v)})", ATOM)
    exact = d is dtypes.float32 and not self.rounded
    if self.rounded and d is dtypes.float32 and fn in _ROUNDED: return (f"{_ROUNDED[fn]}({self.typed(v)})", ATOM)
    if fn is UnaryOps.RECIP:
      one = constant(d, 1.0)[0]
      return (f"tl.div_rn({one}, {self.typed(v)})" if exact else f"{one}/{x}", ATOM if exact else MUL)
    if fn is UnaryOps.SQRT: return (f"{'tl.sqrt_rn' if exact else 'tl.sqrt'}({self.typed(v)})", ATOM)
    return (f"{self.use(_CALL[fn])}({self.typed(v)})", ATOM)

  def binary(self, u: UOp) -> Text:
    fn, (a, b), d = u.arg, u.src, u.dtype
    to = self.dims[u]
    kind = a.dtype.kind
    if kind == "b":
      fn = FUNCTIONS[fn].boolean or fn
      if fn in (BinaryOps.CMPLT, BinaryOps.CMPLE):
        sign, prec = _INFIX[BinaryOps.AND if fn is BinaryOps.CMPLT else BinaryOps.OR]
        return (f"~{self.typed(a, to, ATOM)}{sign}{self.x(b, prec - 1, to)}", prec)
    both = a.op is Ops.CONST and b.op is Ops.CONST
    if fn in (BinaryOps.MAX, BinaryOps.MIN):
      if kind == "f" and a.op is Ops.CONST and a.arg == a.arg and not both:
        bound = self.typed(a) if d is dtypes.float64 else self.x(a)
        return (f"{self.use('_at_least' if fn is BinaryOps.MAX else '_at_most')}({bound}, {self.typed(b, to)})", ATOM)
      nan = ", propagate_nan=tl.PropagateNan.ALL" if kind == "f" else ""
      return (f"tl.{fn.name.lower()}imum({self.typed(a, to) if both else self.x(a, ANY, to)}, {self.x(b, ANY, to)}{nan})", ATOM)
    if fn is BinaryOps.THREEFRY: return self.call("_threefry", u)
    if fn is BinaryOps.POW: return self.call("libdevice.pow" if kind == "f" else "_signed_pow" if kind == "i" else "_int_pow", u)
    if fn is BinaryOps.DIV and d is dtypes.float32 and not self.rounded:
      return (f"tl.div_rn({self.x(a, ANY, to)}, {self.x(b, ANY, to)})", ATOM)
    if fn in (BinaryOps.IDIV, BinaryOps.MOD):
      name = "div" if fn is BinaryOps.IDIV else "mod"
      if kind == "f": return self.call("_float_floor_div" if name == "div" else "_float_mod", u)
      if not (vmin(a) >= 0 and vmin(b) > 0): return self.call(f"_unsigned_{name}" if kind == "u" else f"_floor_{name}", u)
    if fn not in _INFIX: raise self.refuse(u)
    sign, prec = _INFIX[fn]
    tight = fn in _ARITHMETIC
    # bit operations beside arithmetic read better in parentheses, and comparisons do not chain
    most, least = (prec, prec - 1) if tight else (ADD, ADD) if fn in COMPARE else (UNARY, UNARY)
    left = self.typed(a, to, most) if both else self.x(a, most, to)
    right = self.x(b, least, to)
    if fn in (BinaryOps.AND, BinaryOps.OR, BinaryOps.XOR) and a.op is Ops.ALU and a.arg is fn: left = self.x(a, prec, to)
    if right.startswith("-"): right = f"({right})"
    return (f"{left}{sign}{right}", prec)

  def call(self, name: str, u: UOp) -> Text:
    """A helper or library function of typed operands."""
    return (f"{self.use(name)}({', '.join(self.typed(s, self.dims[u]) for s in u.src)})", ATOM)


_ARITHMETIC = frozenset((BinaryOps.ADD, BinaryOps.SUB, BinaryOps.MUL, BinaryOps.DIV, BinaryOps.IDIV, BinaryOps.MOD))


def d_short(d: DType) -> str: return "e4m3" if d is dtypes.float8_e4m3 else "e5m2"
