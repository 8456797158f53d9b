"""Arguments that are the same memory: which pairs of parameters may be, and the kernel for it.

In general what one program writes others would read. It is safe where both parameters are arranged alike, so that each program
has elements of its own, and where a program reads an element before it is written or for the write itself: ``y[k] = x[k] * 2``.
The kernel is then compiled once more with the two as one parameter, so that nothing is reordered that may not be.
"""
from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.kernel import EFFECTS, REGIONS, AxisKind, Kernel, inner, walk
from ntgrad.codegen.rewrite import substitute
from ntgrad.codegen.uop import Ops, UOp, toposort

from .place import Parameter

Pair = tuple[int, int]   # slots: of a parameter that is written, and of another


class Event(NamedTuple):
  """A load or store of a parameter: its place among the kernel's statements, the FORs and WHILEs around it, and the access."""
  position: int
  loops: tuple[UOp, ...]
  access: UOp


def may_share(kernel: Kernel, parameters: Sequence[Parameter]) -> tuple[Pair, ...]:
  """The pairs (written parameter, another) that may be the same memory."""
  def own(p: Parameter) -> bool: return not p.anywhere and not p.computed and p.memory is None and p.arrangement.injective
  alike = [
    (w.slot, p.slot)
    for w in parameters
    for p in parameters
    if w.written and not p.written and own(w) and own(p) and w.dtype is p.dtype and w.arrangement.text() == p.arrangement.text()
  ]
  if not alike: return ()
  events = list(accesses(staged(kernel)))
  by_slot: dict[int, list[Event]] = {}
  for e in events: by_slot.setdefault(e.access.src[0].arg[0], []).append(e)
  return tuple((w, p) for w, p in alike if in_order(by_slot.get(p, []), by_slot.get(w, [])))


def accesses(kernel: Kernel) -> Iterator[Event]:
  """Every LOAD, STORE and ATOMIC of a parameter."""
  position = 0
  def each(statements: Sequence[UOp], loops: tuple[UOp, ...]) -> Iterator[Event]:
    nonlocal position
    for s in statements:
      position += 1
      within = (*loops, s) if s.op in (Ops.FOR, Ops.WHILE) else loops
      read = s.src if s.op in EFFECTS else s.src[:1]
      around = within if s.op is Ops.WHILE else loops   # its condition is looked at in each round
      for u in toposort(read):
        if u.op is Ops.LOAD and u.src[0].op is Ops.DEFINE_GLOBAL: yield Event(position, around, u)
      if s.op in EFFECTS and s.src[0].op is Ops.DEFINE_GLOBAL: yield Event(position, loops, s)
      if s.op in REGIONS:
        for part in inner(s): yield from each(part, within)
  return each(kernel.body, ())


def in_order(loads: Sequence[Event], touched: Sequence[Event]) -> bool:
  """Whether loads of one parameter get the same where it is the memory that others of ``touched`` write: each load comes before
  the stores, or is at the element that its store writes."""
  for s in touched:
    if s.access.op is Ops.ATOMIC: return False
    if s.access.op is not Ops.STORE: continue
    index = s.access.src[1]
    for load in loads:
      around = [x for x in load.loops if x in s.loops]
      same = load.access.src[1] is index
      if around:   # each round has elements of its own, or the next one would read what this one wrote
        if not same or any(x.op is Ops.WHILE or x.arg not in {r.arg[0] for r in index.ranges} for x in around): return False
      if load.position > s.position or (load.position == s.position and not same): return False
  return True


def staged(kernel: Kernel) -> Kernel:
  """The kernel with reductions that are the same in every round of a loop computed before it, as each would be at its first
  round: the greatest and the sum of a softmax whose last loop writes."""
  kinds = {a.id: a.kind for a in kernel.axes}
  body: list[UOp] = []
  count = 0
  for s in kernel.body:
    if s.op is not Ops.FOR:
      body.append(s)
      continue
    counters = {f.arg for f in toposort((s,)) if f.op is Ops.FOR}
    stored = {e.src[0] for e, _ in walk((s,)) if e.op in EFFECTS}

    def fixed(u: UOp, own: set[int] = counters, filled: set[UOp] = stored) -> bool:
      if u.op is not Ops.REDUCE or own & {r.arg[0] for r in u.ranges}: return False
      return not any(n.op is Ops.LOAD and n.src[0] in filled for n in toposort((u,)))

    new: dict[UOp, UOp] = {}
    for u in toposort((s,), stop=fixed):
      if not fixed(u): continue
      axes = sorted((r for r in u.ranges if kinds[r.arg[0]] is AxisKind.TILE), key=lambda r: int(r.arg[0]))
      variable = UOp(Ops.DEFINE_LOCAL, u.dtype, (), (f"kept{count}", tuple(r.arg[1] for r in axes), "private"))
      index = UOp(Ops.INDEX, dtypes.index, tuple(axes))
      body.append(UOp.unique(Ops.STORE, u.dtype, (variable, index, substitute((u,), new)[0])))
      new[u] = UOp(Ops.LOAD, u.dtype, (variable, index))
      count += 1
    body.append(substitute((s,), new)[0] if new else s)
  return kernel.with_(body=tuple(body))


def as_one(kernel: Kernel, pairs: Sequence[Pair]) -> Kernel:
  """The kernel in which the second parameter of each pair is the first."""
  kernel = staged(kernel)
  uops = {p.slot: p.uop for p in kernel.params}
  return kernel.with_(body=substitute(kernel.body, {uops[p]: uops[w] for w, p in pairs}))
