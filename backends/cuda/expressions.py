"""Values as Triton Python: literals, operands brought to common axes, what each function and cast reads like, variables."""
from __future__ import annotations

import math
from typing import Callable, Iterable, Mapping, Sequence

import numpy as np

from ntgrad.codegen.index import TRUE, vmax, vmin
from ntgrad.codegen.ir import ATOM, FUNCTIONS, PRODUCT, UNARY, CompileError, DType, Text, cast_number, dtypes, held, inside
from ntgrad.codegen.ir.spelling import BIT_AND, BIT_OR, COMPARISON as CMP, CONDITIONAL as ANY, SHORT_PYTHON as PYTHON, operands
from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp
from ntgrad.codegen.kernel import FP8, NARROW, accesses_variable, buffers_written, gate_or_true, layout, terms

from ..writer import float_text
from .descriptors import AxisIds
from .facts import TAKEN, Facts, triton_type

# what functions are called where it is not the function of libdevice of that name
_CALLS = dict(FLOOR="tl.floor", CEIL="tl.ceil", SQRT="tl.sqrt", ABS="tl.abs", ROUND="libdevice.rint")
# what the chip has instructions for, to some bits less; for values that are rounded to 16 bits or fewer in the end
_ROUNDED = dict(EXP="tl.exp", EXP2="tl.exp2", RSQRT="tl.rsqrt", TANH="_short_tanh")
_NORMAL = 2 ** -126, (2 - 2 ** -23) * 2 ** 127   # what numbers of float32 are between that have all bits
_WHOLE = UnaryOps.ABS, UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND   # an int is that already; ABS: unsigned


def constant(dtype: DType, value: float) -> Text:
  """A literal. Triton gives it the dtype of the other operand."""
  if dtype.kind == "b": return str(bool(value)), ATOM
  if dtype in FP8:
    with np.errstate(over="ignore"): return str(int(np.array(value).astype(dtype.np).view(np.uint8))), ATOM
  if dtype.kind != "f": return str(int(value)), UNARY if value < 0 else ATOM
  value = held(value, dtype)
  if not math.isfinite(value): return f'float("{value}")', ATOM
  if value == 0 and math.copysign(1, value) < 0:   # Triton 3.6 takes -0.0 for 0.0
    bits = 8 * dtype.itemsize
    return f"tl.full((), {-1 << bits - 1}, tl.int{bits}).to({triton_type(dtype)}, bitcast=True)", ATOM
  text = float_text(value, dtype)
  if value == 0 or dtype.itemsize > 4 or _NORMAL[0] <= abs(float(text[0])) <= _NORMAL[1]: return text
  return f"tl.full((), {value!r}, {triton_type(dtype)})", ATOM   # of which Triton would make a float64


def zero(dtype: DType) -> str: return constant(dtype, 0)[0]


def sizes(ns: Iterable[int]) -> str: return str(tuple(ns))


def permuted(text: str, order: Sequence[int]) -> str:
  """A block with its dimensions in another order."""
  if list(order) == sorted(order): return text
  return f"tl.trans({text})" if len(order) == 2 else f"tl.permute({text}, {sizes(order)})"


class Expressions(Facts):
  """The text of every value."""

  def use(self, name: str) -> str:
    """A name that stands in the source: what it means has to stand there too."""
    self.used[name.split(".")[0]] = None
    return name

  def shape(self, dims: AxisIds) -> str: return sizes(self.padded[i] for i in self.axes(dims))

  def expand(self, text: Text, dims: AxisIds, to: AxisIds) -> Text:
    """A block over ``dims`` with dimensions of one for the other axes of ``to``. A scalar broadcasts without."""
    if not dims or dims == to: return text
    return f"{inside(text)}[{', '.join(':' if i in dims else 'None' for i in self.axes(to))}]", ATOM

  def value(self, u: UOp) -> Text:
    """How a value reads; element numbers of an axis are int32 unless its RANGE says otherwise."""
    if u.op is Ops.CONST: return constant(u.dtype, u.arg)
    if u.op is not Ops.RANGE: return self.text[u]
    name = self.use(f"r{u.arg[0]}")
    return (name if u.dtype is dtypes.int32 else f"{name}.to({triton_type(u.dtype)})"), ATOM

  def x(self, u: UOp, prec: int = ANY, to: AxisIds | None = None) -> str:
    """The text of a value as an operand beside axes ``to``, in parentheses unless it binds at least as tightly as ``prec``."""
    text = self.value(u)
    return inside(text if to is None else self.expand(text, self.dims[u], to), prec)

  def typed(self, u: UOp, prec: int = ANY, to: AxisIds | None = None) -> str:
    """Like ``x``, a constant as a tensor of its dtype."""
    return f"tl.full((), {self.x(u)}, {triton_type(u.dtype)})" if u.op is Ops.CONST else self.x(u, prec, to)

  def whole(self, u: UOp, to: AxisIds) -> str:
    """A value broadcast to a block over all of ``to``."""
    if self.dims[u] == to: return self.typed(u)
    if u.op is Ops.CONST: return f"tl.full({self.shape(to)}, {self.x(u)}, {triton_type(u.dtype)})"
    return f"tl.broadcast_to({self.x(u, ANY, to)}, {self.shape(to)})"

  def sum(self, terms: Mapping[UOp, int], start: int, to: AxisIds | None = None, narrow: bool = False) -> str:
    """A sum of terms (value, factor) and a constant: ``a*4 + b + 1``. ``narrow`` makes its values int32."""
    def term(x: UOp, k: int) -> str:
      text = f"{self.x(x, ATOM)}.to(tl.int32)" if narrow and x.dtype.itemsize > 4 else self.x(x, PRODUCT, to)
      return text if k == 1 else f"{text}*{k}"

    return " + ".join([*(term(x, k) for x, k in terms.items()), *([str(start)] if start or not terms else [])])

  def masks(self, axes: Iterable[int], to: AxisIds) -> list[str]:
    """The conditions that leave out the lanes added to some axes, as operands of ``&`` beside axes ``to``."""
    return [self.expand((self.use(f"m{i}"), ATOM), frozenset((i,)), to)[0] for i in self.axes(frozenset(axes)) if self.ragged(i)]

  def filled(self, text: str, axes: Iterable[int], to: AxisIds, value: str) -> str:
    """A block over ``to`` with ``value`` in the lanes added to some axes."""
    masks = self.masks(axes, to)
    return f"tl.where({' & '.join(masks)}, {text}, {value})" if masks else text

  # ---- values

  def write_cast(self, u: UOp) -> Text:
    v, dtype = u.src[0], u.dtype
    s = v.dtype   # of the source
    if v.op is Ops.CONST: return f"tl.full((), {constant(dtype, cast_number(v.arg, s, dtype))[0]}, {triton_type(dtype)})", ATOM
    text = self.x(v, ATOM)
    if s is dtype: return text, ATOM
    if s in FP8: return f"{self.use('_from_' + s.name.removeprefix('float8_'))}({self.x(v)})", ATOM
    if dtype in FP8:
      text = self.x(v) if s is dtypes.float32 else f"{text}.to(tl.float32)"
      return f"{self.use('_to_' + dtype.name.removeprefix('float8_'))}({text})", ATOM
    if dtype.kind == "b": return f"{self.x(v, BIT_OR)} != {'0.0' if s.kind == 'f' else '0'}", CMP
    # out of range is undefined; by way of a wider int it wraps, as numpy does on most machines
    if s.kind == "f" and dtype.kind in "iu" and dtype.itemsize < 4: text += ".to(tl.int32)"
    elif s.kind == "f" and dtype is dtypes.uint32: text += ".to(tl.int64)"
    elif s.kind == "b" and dtype in NARROW: text += ".to(tl.float32)"
    return f"{text}.to({triton_type(dtype)})", ATOM

  def write_bitcast(self, u: UOp) -> Text:
    v, dtype = u.src[0], u.dtype
    if v.dtype.itemsize != dtype.itemsize:
      raise CompileError(f"kernel {self.name}: BITCAST from {v.dtype} to {dtype}: item sizes differ")
    text, (s, t) = self.typed(v, ATOM), (triton_type(v.dtype), triton_type(dtype))
    if v.dtype.kind == "b": text, s = f"{text}.to(tl.int8)", "tl.int8"
    if dtype.kind == "b": return f"{text} != 0", CMP
    return (text if s == t else f"{text}.to({t}, bitcast=True)"), ATOM

  def write_alu(self, u: UOp) -> Text:
    if isinstance(u.arg, UnaryOps): return self.unary(u)
    if u.arg is not TernaryOps.WHERE: return self.binary(u)
    (c, yes, no), to = u.src, self.dims[u]
    return f"tl.where({self.x(c, ANY, to)}, {self.first(yes, no)(yes, ANY, to)}, {self.x(no, ANY, to)})", ATOM

  def first(self, a: UOp, b: UOp) -> Callable[[UOp, int, AxisIds], str]:
    """What writes the first of two operands: one of two constants needs a dtype."""
    return self.typed if a.op is Ops.CONST and b.op is Ops.CONST else self.x

  def unary(self, u: UOp) -> Text:
    fn, v, dtype = u.arg, u.src[0], u.dtype
    x, bare = self.typed(v, ATOM), self.typed(v)
    if fn is UnaryOps.ISNAN: return f"{x} != {x}", CMP
    if fn is UnaryOps.NOT: return f"~{x}", UNARY
    if fn is UnaryOps.NEG:
      if dtype.kind == "b": return self.x(v, ATOM), ATOM
      # Triton's -x is 0 - x, which makes 0.0 of -0.0's opposite
      return (f"{x}*-1.0", PRODUCT) if dtype.kind == "f" else (f"-{x}", UNARY)
    if dtype.kind != "f" and not (fn is UnaryOps.ABS and dtype.kind == "i"):
      if fn in _WHOLE: return bare, ANY
      raise self.refuse(u, f"{fn} of {dtype}: takes floats")
    single = dtype is dtypes.float32
    seen = u in self.exact
    if fn is UnaryOps.RECIP:
      one = constant(dtype, 1.0)[0]
      return (f"tl.div_rn({one}, {bare})", ATOM) if single and seen else (f"{one}/{x}", PRODUCT)
    name = _CALLS.get(fn.name, f"libdevice.{fn.name.lower()}")
    if single and not seen: name = _ROUNDED.get(fn.name, name)
    elif single and fn is UnaryOps.SQRT: name = "tl.sqrt_rn"
    return f"{self.use(name)}({bare})", ATOM

  def binary(self, u: UOp) -> Text:
    fn, (a, b), dtype = u.arg, u.src, u.dtype
    to = self.dims[u]
    kind, first = a.dtype.kind, self.first(a, b)
    if kind == "b":
      if (fn := FUNCTIONS[fn].boolean or fn) in (BinaryOps.CMPLT, BinaryOps.CMPLE):
        sign, prec = PYTHON[BinaryOps.AND if fn is BinaryOps.CMPLT else BinaryOps.OR]
        return f"~{self.typed(a, ATOM, to)}{sign}{self.x(b, prec - 1, to)}", prec
    if fn in (BinaryOps.MAX, BinaryOps.MIN):
      if kind == "f" and a.op is Ops.CONST and a.arg == a.arg and b.op is not Ops.CONST:
        bound = self.typed(a) if dtype is dtypes.float64 else self.x(a)
        return f"{self.use('_at_least' if fn is BinaryOps.MAX else '_at_most')}({bound}, {self.typed(b, ANY, to)})", ATOM
      return (f"tl.{fn.name.lower()}imum({first(a, ANY, to)}, {self.x(b, ANY, to)}"
              f"{', propagate_nan=tl.PropagateNan.ALL' if kind == 'f' else ''})"), ATOM
    if fn in (BinaryOps.GCD, BinaryOps.THREEFRY): return self.call(f"_{fn.name.lower()}", u)
    if fn is BinaryOps.POW: return self.call({"f": "libdevice.pow", "i": "_signed_pow"}.get(kind, "_int_pow"), u)
    if fn is BinaryOps.DIV and dtype is dtypes.float32 and u in self.exact:
      return f"tl.div_rn({self.x(a, ANY, to)}, {self.x(b, ANY, to)})", ATOM
    if fn in (BinaryOps.IDIV, BinaryOps.MOD):
      name = "div" if fn is BinaryOps.IDIV else "mod"
      if kind == "f": return self.call("_float_floor_div" if name == "div" else "_float_mod", u)
      if not (vmin(a) >= 0 and vmin(b) > 0): return self.call(f"_unsigned_{name}" if kind == "u" else f"_floor_{name}", u)
    if fn in (BinaryOps.SHL, BinaryOps.SHR) and not 0 <= vmin(b) <= vmax(b) < 8 * dtype.itemsize:
      return self.call("_shl" if fn is BinaryOps.SHL else "_unsigned_shr" if kind == "u" else "_shr", u)
    if fn not in PYTHON: raise self.refuse(u)
    sign, prec = PYTHON[fn]
    most, least = operands(fn, prec, a.op is Ops.ALU and a.arg is fn)
    left, right = first(a, most, to), self.x(b, least, to)
    return f"{left}{sign}{f'({right})' if right.startswith('-') else right}", prec

  def call(self, name: str, u: UOp) -> Text:
    """A helper or library function of typed operands."""
    return f"{self.use(name)}({', '.join(self.typed(s, ANY, self.dims[u]) for s in u.src)})", ATOM

  # ---- variables: Python variables that hold blocks; whole reads and assignments, transposed ones, one row or element of them

  def write_define_local(self, u: UOp) -> None:
    name = u.arg[0] if u.arg[0].isidentifier() and not TAKEN.fullmatch(u.arg[0]) else self.fresh("var")
    self.text[u] = name, ATOM
    if self.assigned_first(u): return
    self.emit(f"{name} = tl.full({sizes(self.padded_shapes[u])}, {zero(u.dtype)}, {triton_type(u.dtype)})")

  def assigned_first(self, variable: UOp) -> bool:
    """Whether all of a variable is stored before anything else is done with it, and outside of loops and conditions."""
    for u in self.uops[self.at[variable] + 1:]:
      if u.op in (Ops.LOOP, Ops.IF, Ops.WHILE): break
      if u.op is Ops.FOLD and variable in u.src: return variable in buffers_written(u)
      if accesses_variable(u) and u.src[0] is variable:
        return u.op is Ops.STORE and gate_or_true(u) is TRUE and layout(variable.arg[1], u.src[1]) == self.shapes[variable]
    return False

  def chosen(self, u: UOp, dim: int, ndim: int | None = None) -> str:
    """A condition: the elements that an access takes along a dimension with an index; broadcast along the other dimensions, of
    which there are fewer where those behind it are gone."""
    places = self.places[u][:ndim]
    text = f"(tl.arange(0, {self.padded_shapes[u.src[0]][dim]}) == {self.sum(places[dim].terms, places[dim].start)})"
    return text if len(places) == 1 else f"{text}[{', '.join(':' if e == dim else 'None' for e in range(len(places)))}]"

  def gathers(self, u: UOp) -> bool:
    """Whether an access of a variable goes to places that are computed for each element of a block."""
    return accesses_variable(u) and any(self.dims[x] for place in self.places[u] for x in place.terms)

  def read(self, u: UOp) -> Text:
    """A variable, its dimensions in the kernel's order."""
    text, places = self.text[u.src[0]][0], self.places[u]
    if self.gathers(u):
      if len(places) > 1 or len(frozenset().union(*[self.dims[x] for x in places[0].terms])) > 1: return self.gathered(u)
      return f"tl.gather({text}, {self.sum(places[0].terms, places[0].start)}, 0)", ATOM
    order = [place.axis for place in places]
    for dim in reversed(range(len(places))):   # one element: the others are masked away
      if order[dim] is not None: continue
      text = f"tl.sum(tl.where({self.chosen(u, dim, len(order))}, {text}, {zero(u.dtype)}), {dim})"
      if u.dtype.kind == "b": text = f"({text} != 0)"
      elif u.dtype.itemsize < 4: text += f".to({triton_type(u.dtype)})"
      del order[dim]
    return permuted(text, [order.index(i) for i in self.axes(frozenset(i for i in order if i is not None))]), ATOM

  def gathered(self, u: UOp) -> Text:
    """Elements of a variable at computed places: a gather from its elements in a row."""
    shape, padded = self.shapes[u.src[0]], self.padded_shapes[u.src[0]]
    index, start = terms(u.src[1])
    dims = frozenset[int]().union(*[self.dims[x] for x in index])
    at, step, wide = f"({self.sum(index, start, dims)})", 1, 1
    digits = list[str]()
    for n, size in zip(shape[::-1], padded[::-1]):   # rows have gaps where sizes are padded
      digit = f"{at} // {step} % {n}" if step > 1 else f"{at} % {n}"
      digits.insert(0, f"({digit})*{wide}" if wide > 1 else digit)
      step, wide = step*n, wide*size
    flat = f"tl.minimum(tl.maximum({at}, 0), {wide - 1})" if shape == padded else f"({' + '.join(digits)})"
    block = self.shape(dims)
    places = f"tl.reshape(tl.broadcast_to({flat}, {block}), ({math.prod(self.padded[i] for i in dims)},))"
    return f"tl.reshape(tl.gather(tl.reshape({self.text[u.src[0]][0]}, ({wide},)), {places}, 0), {block})", ATOM

  def assign(self, u: UOp) -> None:
    """STORE to a variable: to all of it, or the elements chosen by ``tl.where``. Raises CompileError for a scatter."""
    buffer, _, value = u.src[:3]
    name, gate, places = self.text[buffer][0], gate_or_true(u), self.places[u]
    order = [place.axis for place in places if place.axis is not None]
    to = frozenset(order)
    if self.gathers(u): raise self.refuse(u, "a scatter into a variable")
    if not self.dims[value] <= to or len(to) != len(order): raise self.refuse(u, "a value of other axes than its place")
    if not self.dims[gate] <= to: raise self.refuse(u, "a condition of other axes than its place")
    all_of = len(order) == len(places)
    moves = self.axes(to) != order and bool(self.dims[value])
    at = f"[{', '.join('None' if place.axis is None else ':' for place in places)}]"

    def placed(v: UOp, text: str) -> str:
      """A value with its dimensions as the variable has them."""
      if moves: text = permuted(self.whole(v, to), [self.axes(to).index(i) for i in order])
      return f"({text}){at}" if not all_of and order and self.dims[v] else text

    text = placed(value, self.whole(value, to) if all_of and gate is TRUE else self.x(value, ANY, to))
    masks = [] if gate is TRUE else [placed(gate, self.x(gate, BIT_AND, to))]
    # of an element or row, the others do not change
    masks += [self.chosen(u, dim) for dim, place in enumerate(places) if place.axis is None]
    if masks: text = f"tl.where({' & '.join(masks)}, {text}, {name})"
    if text != name: self.emit(f"{name} = {text}")
