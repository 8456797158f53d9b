"""The arrangements of a kernel: from the index expressions of its LOADs and STOREs to the meta-operations that make them.

Every derivation is checked by pulling the axes back through the arrangement it found: the result must be the kernel's index
expression, node for node. An index that is no chain of meta-operations (a gather, a diagonal) prints as it is."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Sequence

from .. import index as ix
from ..index import text_of
from ..ir import BinaryOps, NtgradError, Ops, UOp
from ..kernel import ACCESSES, Axis, AxisKind, Kernel, Param, gate_or_true, substitute
from ..kernel.arrangement import Arrangement
from .derivation import NoArrangement, straight
from .fused_axes import by_digits
from .printing import Printer


@dataclass(frozen=True)
class ArrangedAccess:
  """One way in which a kernel touches a parameter: the index and its gate, and the arrangement behind them where there is one.

  ``names`` and ``axes`` are those of the arrangement's levels, an axis of the kernel for each dimension; ``where`` are the
  conditions of the gate that the arrangement does not have."""
  param: Param
  stored: bool
  index: UOp
  gate: UOp
  arrangement: Arrangement | None = None
  names: tuple[str, ...] = ()
  axes: tuple[tuple[Axis, ...], ...] = ()
  where: tuple[UOp, ...] = ()

  def chain(self) -> str:
    """``data1(64, 32).tile((8, 32))…``, or ``data1(64, 32).at(…)`` with the index, of which a long part is ``…``."""
    name, printer = f"data{self.param.slot}", Printer(lambda text: "…")
    if self.arrangement is not None: text, conditions = self.arrangement.text(name), self.where
    else:
      text = f"{name}({', '.join(map(text_of, self.param.shape))}).at({', '.join(printer.text(i) for i in self.index.src)})"
      conditions = ix.conjuncts(self.gate)
    return text + (f".where({printer.condition(ix.both(*conditions))})" if conditions else "")

  def lines(self, width: int) -> list[str]:
    """``chain``; of more than ``width`` columns one step a line."""
    text = self.chain()
    if len(text) <= width: return [text]
    first, *rest = steps(text)
    return [first, *["  ." + step for step in rest]]

  def is_of(self, arrangement: Arrangement) -> bool:
    """Whether an arrangement gives this index and gate."""
    at, valid = arrangement.pull([[a.rng for a in level] for level in self.axes])
    return at == self.index.src and set(ix.conjuncts(valid)) == set(ix.conjuncts(self.gate))

  def levels(self) -> str:
    """``GRID (2, 32) · LOOP (64, 1024) · tile (8, 16)``."""
    shapes = self.arrangement.levels if self.arrangement else ()
    return " · ".join(f"{n} ({', '.join(map(text_of, dims))})" if dims else n for n, dims in zip(self.names, shapes))


def steps(chain: str) -> list[str]:
  """The steps of a chain of calls: what stands between dots outside of brackets."""
  out, depth = [""], 0
  for c in chain:
    depth += (c in "([{") - (c in ")]}")
    if c == "." and not depth: out.append("")
    else: out[-1] += c
  return out


def arranged_accesses(kernel: Kernel) -> list[ArrangedAccess]:
  """Every way in which the kernel touches each parameter, in slot order; without dimensions of size 1."""
  found: dict[tuple[Param, bool, UOp, UOp], None] = {}
  for u in kernel.nodes:
    if u.op not in ACCESSES or (p := kernel.by_uop.get(u.src[0])) is None: continue
    dims = kernel.seen_dims[u.src[0]]
    shown = replace(p, shape=tuple(p.shape[d] for d in dims))
    at = u.src[1].replace(tuple(u.src[1].src[d] for d in dims))
    found[shown, u.op is not Ops.LOAD, at, gate_or_true(u)] = None
  return sorted((derive(kernel, *a) for a in found), key=lambda a: (a.param.slot, not a.stored))


def derive(kernel: Kernel, param: Param, stored: bool, index: UOp, gate: UOp) -> ArrangedAccess:
  """The arrangement behind one index: for all run-time sizes with which the kernel gets there."""
  used = {r.arg[0] for r in index.ranges}
  table = _narrowed(kernel.needs, [a.size for a in kernel.axes if a.id in used or a.kind is AxisKind.GRID])
  def now(u: UOp) -> UOp: return substitute((u,), table)[0] if table else u
  def sized(n: ix.Dim) -> ix.Dim: return ix.number(now(n)) if isinstance(n, UOp) else n
  indices = tuple(map(now, index.src))
  axes = [replace(a, size=sized(a.size)) for a in kernel.axes]
  shape = [sized(n) for n in param.shape]
  for way in straight, by_digits:
    try:
      d = way(axes, shape, indices, gate)
      at, valid = d.arr.pull([[a.rng for a in level] for level in d.axes])
    except (NoArrangement, NtgradError): continue
    if at != d.given: continue
    said = set(ix.conjuncts(valid))
    where = tuple(c for c in ix.conjuncts(gate) if not said.issuperset(ix.conjuncts(now(c))))
    levels = tuple(tuple(kernel.axis(a.id) for a in level) for level in d.axes)
    return ArrangedAccess(param, stored, index, gate, d.arr, tuple(d.names), levels, where)
  return ArrangedAccess(param, stored, index, gate)


def _narrowed(needs: Sequence[UOp], some: Sequence[ix.Dim]) -> dict[UOp, UOp]:
  """Sizes, with narrower bounds where conditions and that there are ``some`` tell: N > 7, or N // 8 rounds: it is 8 or more."""
  found: dict[UOp, ix.Size] = {}
  def narrow(u: UOp, lower: int | None, upper: int | None) -> None:
    terms, c = ix.linear(u)
    if len(terms) != 1 or terms[0][1] < 1: return
    n, k = terms[0]
    if lower is not None: lower = -((c - lower) // k)
    if upper is not None: upper = (upper - c) // k
    if n.arg is BinaryOps.IDIV and n.src[1].op is Ops.CONST:
      d = n.src[1].arg
      return narrow(n.src[0], None if lower is None else lower * d, None if upper is None else upper * d + d - 1)
    if n.op is not Ops.SIZE: return
    size = found.get(n, n.arg)
    if lower is not None and (size.lower is None or lower > size.lower): size = size._replace(lower=lower)
    if upper is not None and (size.upper is None or upper < size.upper): size = size._replace(upper=upper)
    if size != n.arg: found[n] = size
  for n in some: narrow(ix.node(n), 1, None)
  for c in needs:
    if c.arg not in (BinaryOps.CMPLT, BinaryOps.CMPLE): continue
    a, b = c.src
    less = c.arg is BinaryOps.CMPLT
    if a.op is Ops.CONST: narrow(b, a.arg + less, None)
    elif b.op is Ops.CONST: narrow(a, None, b.arg - less)
  return {n: size.node for n, size in found.items()}
