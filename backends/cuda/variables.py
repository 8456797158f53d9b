"""Variables of a kernel as Python variables that hold blocks: whole reads and assignments, transposed ones, one row or element of
them."""
from __future__ import annotations

import math

from ntgrad.codegen.ir.spelling import ATOM, BIT_AND, CONDITIONAL as ANY, Text
from ntgrad.codegen.ir.uop import Ops, UOp
from ntgrad.codegen.kernel.linear import accesses_variable, gate_or_none, layout, terms

from .expressions import Expressions, permuted, sizes, zero
from .facts import TAKEN, triton_type


class Variables(Expressions):
  """Accesses of DEFINE_LOCALs."""

  def write_define_local(self, u: UOp) -> None:
    name = u.arg[0] if u.arg[0].isidentifier() and not TAKEN.fullmatch(u.arg[0]) else self.fresh("var")
    self.text[u] = name, ATOM
    if self.assigned_first(u): return
    self.emit(f"{name} = tl.full({sizes(self.padded_shapes[u])}, {zero(u.dtype)}, {triton_type(u.dtype)})")

  def assigned_first(self, variable: UOp) -> bool:
    """Whether all of a variable is stored before anything else is done with it, and outside of loops and conditions."""
    for u in self.uops[self.at[variable] + 1:]:
      if u.op in (Ops.LOOP, Ops.IF, Ops.WHILE): break
      if accesses_variable(u) and u.src[0] is variable:
        return u.op is Ops.STORE and gate_or_none(u) is None and layout(variable.arg[1], u.src[1]) == self.shapes[variable]
    return False

  def chosen(self, u: UOp, dim: int) -> str:
    """A condition: the elements that an access takes along a dimension with an index; broadcast along the other dimensions."""
    places = self.places[u]
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
      text = f"tl.sum(tl.where({self.chosen(u, dim)}, {text}, {zero(u.dtype)}), {dim})"
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
    digits: list[str] = []
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
    name, gate, places = self.text[buffer][0], gate_or_none(u), self.places[u]
    order = [place.axis for place in places if place.axis is not None]
    to = frozenset(order)
    if self.gathers(u): raise self.refuse(u, "a scatter into a variable")
    if not self.dims[value] <= to or len(to) != len(order): raise self.refuse(u, "a value of other axes than its place")
    if gate is not None and not self.dims[gate] <= to: raise self.refuse(u, "a condition of other axes than its place")
    all_of = len(order) == len(places)
    moves = self.axes(to) != order and bool(self.dims[value])
    at = ", ".join("None" if place.axis is None else ":" for place in places)

    def placed(v: UOp, text: str) -> str:
      """A value with its dimensions as the variable has them."""
      if moves: text = permuted(self.whole(v, to), [self.axes(to).index(i) for i in order])
      return f"({text})[{at}]" if not all_of and order and self.dims[v] else text

    text = placed(value, self.whole(value, to) if all_of and gate is None else self.x(value, ANY, to))
    masks = [] if gate is None else [placed(gate, self.x(gate, BIT_AND, to))]
    # of an element or row, the others do not change
    masks += [self.chosen(u, dim) for dim, place in enumerate(places) if place.axis is None]
    if masks: text = f"tl.where({' & '.join(masks)}, {text}, {name})"
    if text != name: self.emit(f"{name} = {text}")
