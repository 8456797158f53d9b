"""Variables of a kernel as Python variables that hold blocks: whole reads and assignments, transposed ones, one row or element of
them."""
from __future__ import annotations

import keyword
import math
import re

from ntgrad.backends.cuda.expressions import AND, ANY, ATOM, MUL, Expressions, Text, constant
from ntgrad.backends.cuda.facts import triton_type
from ntgrad.codegen.blocks import layout, terms
from ntgrad.codegen.errors import CompileError
from ntgrad.codegen.uop import Ops, UOp

_TAKEN = re.compile(
  r"(data|unused|desc|gidx|acc|alu|cast|val|red|dot|scan|sort|next|go|var|ni|i|r|m)\d+|_.*|tl|triton|libdevice|range|float|"
  + "|".join(keyword.kwlist)
)  # names that a variable of the kernel cannot have


class Variables(Expressions):
  """Accesses of DEFINE_LOCALs."""

  blocks: list[int]

  def emit(self, line: str) -> None: raise NotImplementedError
  def fresh(self, prefix: str) -> str: raise NotImplementedError

  def variable(self, u: UOp) -> None:
    name = u.arg[0] if u.arg[0].isidentifier() and not _TAKEN.fullmatch(u.arg[0]) else self.fresh("var")
    self.text[u] = (name, ATOM)
    for x in self.uops[self.uops.index(u) + 1:]:   # nothing to say where the first thing is that all of it is stored
      if x.op in (Ops.LOOP, Ops.IF, Ops.WHILE): break
      if x.op in (Ops.LOAD, Ops.STORE) and x.src[0] is u:
        if x.op is Ops.STORE and len(x.src) < 4 and layout(u.arg[1], x.src[1]) == self.shapes[u]: return
        break
    self.blocks.append(math.prod(self.padded_shape(u)))
    self.emit(f"{name} = tl.full({self.array(u)}, {constant(u.dtype, 0)[0]}, {triton_type(u.dtype)})")

  def array(self, u: UOp) -> str:
    sizes = [str(n) for n in self.padded_shape(u)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

  def padded_shape(self, u: UOp) -> list[int]:
    """A variable's sizes as Triton has them: those of the axes that go through it."""
    sizes = [1 << (n - 1).bit_length() for n in self.shapes[u]]
    for (v, d), axes in self.through().items():
      if v is u: sizes[d] = max(sizes[d], *(self.padded[a] for a in axes))
    return sizes

  def read(self, u: UOp) -> Text:
    """A variable, its dimensions in the kernel's order."""
    name = self.text[u.src[0]][0]
    try: places = self.places(u)
    except CompileError: return self.gathered(u)
    order: list[int] = []
    text = name
    for d, (axis, index) in enumerate(places):
      if axis is not None:
        order.append(axis)
        continue
      dims = frozenset().union(*(self.dims.get(x, frozenset()) for x, _ in index))
      if not dims: order.append(-1)
      elif len(dims) == 1 and len(places) == 1:
        order.append(*dims)
        text = f"tl.gather({text}, {self.sum(index)}, {d})"
      else: return self.gathered(u)
    for d in reversed(range(len(places))):   # one element: the others are masked away
      if order[d] != -1: continue
      at = ", ".join(":" if e == d else "None" for e in range(len(order)))
      here = f"(tl.arange(0, {self.padded_shape(u.src[0])[d]}) == {self.sum(places[d][1])})"
      text = f"tl.sum(tl.where({here if len(order) == 1 else f'{here}[{at}]'}, {text}, {constant(u.dtype, 0)[0]}), {d})"
      if u.dtype.kind == "b": text = f"({text} != 0)"
      elif u.dtype.itemsize < 4: text += f".to({triton_type(u.dtype)})"
      del order[d]
    wanted = self.axes(frozenset(order))
    if wanted != order: text = self.permuted(text, [order.index(i) for i in wanted])
    return (text, ATOM)

  def gathered(self, u: UOp) -> Text:
    """Elements of a variable at computed places: a gather from its elements in a row."""
    atoms, c = terms(u.src[1])
    dims = frozenset().union(*(self.dims.get(x, frozenset()) for x in atoms))
    whole = [self.padded[i] for i in self.axes(dims)]
    at = " + ".join(
      [self.x(x, MUL, dims) + (f"*{k}" if k != 1 else "") for x, k in atoms.items()] + ([str(c)] if c or not atoms else [])
    )
    at, step, wide = f"({at})", 1, 1
    parts: list[str] = []
    # rows have gaps where sizes are padded
    for n, size in reversed(list(zip(self.shapes[u.src[0]], self.padded_shape(u.src[0])))):
      digit = f"{at} // {step} % {n}" if step > 1 else f"{at} % {n}"
      parts.append(f"({digit})*{wide}" if wide > 1 else f"{digit}")
      step, wide = step*n, wide*size
    same = list(self.shapes[u.src[0]]) == self.padded_shape(u.src[0])
    flat = f"tl.minimum(tl.maximum({at}, 0), {wide - 1})" if same else f"({' + '.join(parts[::-1])})"
    shape = f"({', '.join(map(str, whole))}{',' if len(whole) == 1 else ''})"
    index = f"tl.reshape(tl.broadcast_to({flat}, {shape}), ({math.prod(whole)},))"
    row = f"tl.reshape({self.text[u.src[0]][0]}, ({wide},))"
    return (f"tl.reshape(tl.gather({row}, {index}, 0), {shape})", ATOM)

  def permuted(self, text: str, order: list[int]) -> str:
    return f"tl.trans({text})" if order == [1, 0] else f"tl.permute({text}, ({', '.join(map(str, order))}))"

  def sum(self, index: list[tuple[UOp, int]]) -> str:
    parts = [self.x(x, MUL) + (f"*{k}" if k != 1 else "") for x, k in index if not (x.op is Ops.CONST and x.arg == 0)]
    return " + ".join(parts) or "0"

  def assign(self, u: UOp) -> None:
    """STORE to a variable: where all of it is stored, the value takes its place."""
    buffer, _, value = u.src[:3]
    name = self.text[buffer][0]
    places = self.places(u)
    order = [axis for axis, _ in places if axis is not None]
    to = frozenset(order)
    if not self.dims.get(value, frozenset()) <= to or len(to) != len(order):
      raise self.refuse(u, "a value of other axes than its place")
    masks = [self.x(u.src[3], AND, to)] if len(u.src) > 3 else []
    if len(u.src) > 3 and not self.dims.get(u.src[3], frozenset()) <= to:
      raise self.refuse(u, "a condition of other axes than its place")
    text = self.whole(value, to) if len(order) == len(places) and not masks else self.x(value, ANY, to)
    wanted = self.axes(to)
    if wanted != order and self.dims.get(value, frozenset()):
      text = self.permuted(self.whole(value, to), [wanted.index(i) for i in order])
      masks = [self.permuted(self.whole(u.src[3], to), [wanted.index(i) for i in order])] if masks else []
    if len(order) < len(places):   # some element, or row: the rest stays
      at = ", ".join("None" if axis is None else ":" for axis, _ in places)
      if order and self.dims.get(value, frozenset()): text = f"({text})[{at}]"
      if order and masks and self.dims.get(u.src[3], frozenset()): masks = [f"({masks[0]})[{at}]"]
      for d, (axis, index) in enumerate(places):
        if axis is not None: continue
        if any(self.dims.get(x, frozenset()) for x, _ in index): raise self.refuse(u, "a scatter into a variable")
        here = f"(tl.arange(0, {self.padded_shape(buffer)[d]}) == {self.sum(index)})"
        masks.append(here if len(places) == 1 else f"{here}[{', '.join(':' if e == d else 'None' for e in range(len(places)))}]")
    if masks: text = f"tl.where({' & '.join(masks)}, {text}, {name})"
    if text != name: self.emit(f"{name} = {text}")
