"""From groups of graph nodes to kernels in index form."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ntgrad.codegen import index as ix
from ntgrad.codegen.explain.printing import dtype_name, kernel_name, screen
from ntgrad.codegen.explain.tile_source import tile_source
from ntgrad.codegen.index import shape_text
from ntgrad.codegen.ir import MOVEMENT, BinaryOps, ExportError, Ops, TernaryOps, UOp, config, dtypes, repeated, toposort
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param, ids_of, rewrite, zero_outside
from ntgrad.codegen.opts import Opts
from ntgrad.graph.buffer_names import BufferNames
from ntgrad.graph.origins import Origin, lines, worth_naming

from .copied_factors import copy_factors
from .kernel_groups import Group
from .nodes import Body, Copies, Idx, Nodes, as_buffer, at_place, axes_in, in_bounds, indexed, movement, node_bytes, pulled
from .partition import Asked, Partition, Use
from .placement import load_element, param_stand_in, storage, storage_index, stores, touched_parts
from .scan import scan_value
from .scatter_order import RUNS
from .sort import sorted_value

REUSE = 4          # reads of an element from which on a padded copy pays
_LARGE = 1 << 20   # bytes of a value, from which on sums of it do not wait for sums of others


@dataclass(frozen=True)
class ScheduleItem:
  """One step: a kernel (``ast``) over the buffers of graph nodes, in slot order. ``ast`` is None for a copy between devices (to,
  from), and for a ``call`` of a kernel that there is already."""
  ast: Kernel | None
  nodes: Nodes      # the graph node (BUFFER or root) behind each param
  writes: Nodes     # roots that this item stores
  reads: frozenset[UOp]       # roots and BUFFERs that it loads (an ASSIGN is another node than its target's BUFFER)
  offsets: tuple[int, ...] = ()   # for each slot the byte of its memory where the param begins; () where all are 0
  given: Nodes = ()     # the nodes of the graph, as it was given, that it computes
  call: Any = None                # the launcher of a kernel that somebody wrote: its name, what it writes, its Step
  origins: Mapping[UOp, Iterable[Origin]] = field(default_factory=dict, compare=False)   # where those were made, for ``print``

  def __str__(self) -> str:
    def said(u: UOp, name: str = "") -> str:
      return f"{dtype_name(u.dtype)}{shape_text(u.shape)}{f' {name}' if name else ''}{f' on {u.device}' if u.device else ''}"
    if self.ast is None and self.call is None: return f"copy {said(self.nodes[1])} to {self.nodes[0].device}"
    texts = list(map(said, self.nodes, buffer_names_of(self, BufferNames())))
    flow = [", ".join(t for i, t in enumerate(texts) if (i in self.written) is w) or "nothing" for w in (True, False)]
    made = lines(self.given, self.origins)
    return "\n".join([screen(f"kernel: {flow[0]} <- {flow[1]}"), *([f"from   {made}"] if made else []),
                      f"call of {self.call.kernel}" if self.ast is None else str(self.ast)])

  @property
  def written(self) -> tuple[int, ...]:
    """The positions of the buffers that it writes."""
    if self.call is not None: return tuple(self.call.writes)
    return (0,) if self.ast is None else tuple(p.slot for p in self.ast.params if p.written)

  def tile_source(self, name: str = "", opts: Sequence[Opts] | None = None) -> str:
    """The kernel as a Python file that makes it with the tile language, arrangement and application, with the Opts of each of its
    parts (None: chosen by the target's model). Raises ExportError for a copy, and for what the language does not have."""
    if self.call is not None: raise ExportError(f"a call of {self.call.kernel}, which is a kernel of the tile language")
    if self.ast is None: raise ExportError("a copy between devices, which is no kernel")
    return tile_source(self.ast, name or kernel_name(self.ast), opts)


def buffer_names_of(item: ScheduleItem, names: BufferNames) -> list[str]:
  """What each buffer of an item is called; "" where nobody knows."""
  if item.ast is None: return list(map(names.of, item.nodes))
  return [names.of(n, first, ix.elements(p.shape) * n.dtype.itemsize)
          for n, p, first in zip(item.nodes, item.ast.params, item.offsets or (0,) * len(item.nodes))]


class Lowering:
  """Values of every node that has a use, sources first."""

  def __init__(self, part: Partition):
    self.part = part
    self.values: dict[Asked, UOp] = {}
    self.copies: dict[UOp, ScheduleItem] = {}      # padded copies that kernels asked for
    for u in part.order:
      for d in part.uses[u]:
        if (v := self._value(u, d)) is not None: self.values[u, *d] = v

  def get(self, s: UOp, g: Group, idx: Idx, valid: UOp) -> UOp:
    if s.op is Ops.CONST: return s
    found = self.values.get((s, g, idx, valid))
    return load_element(s, idx, valid) if found is None else found

  def _value(self, u: UOp, d: Use) -> UOp | None:
    g, idx, valid = d
    if u.op in (Ops.BUFFER, Ops.CAT, Ops.COPY, Ops.SCATTER, Ops.LAUNCH, Ops.AFTER): return None
    if u.op is Ops.CONST: return u
    if u.op is Ops.IOTA: return UOp(Ops.CAST, u.dtype, (idx[0],))
    at, v, taken = self.part.binds.get((u, *d), (idx, valid, ()))
    zero = UOp.const(u.dtype, 0)
    if u.op in MOVEMENT and v is ix.FALSE: return zero
    inner = self.get(u.src[1] if u.op is Ops.ASSIGN else u.src[0], g, at, v)
    if u.op in (Ops.CONTIGUOUS, Ops.DETACH, Ops.ASSIGN): return inner
    if u.op in MOVEMENT:
      own = pulled(u, idx)[1] if u.op in (Ops.PAD, Ops.UNTILE) else ix.TRUE
      if own is ix.TRUE or zero_outside(inner, own): return inner
      if inner.op is Ops.CONST and inner.dtype is dtypes.bool: return own if inner.arg else zero
      return UOp.alu(TernaryOps.WHERE, own, inner, zero)
    if u.op is Ops.REDUCE_AXIS:
      alike = ix.product(r.arg[1] for r in set(taken) - inner.ranges)
      if (u, *d) in self.part.merged: return repeated(u.arg[0], inner, alike)
      axes = sorted({r.arg[0] for r in inner.ranges.intersection(taken).union(inner.ranges - axes_in(valid, *idx))})
      return repeated(u.arg[0], UOp(Ops.REDUCE, u.dtype, (inner,), (u.arg[0], tuple(axes))) if axes else inner, alike)
    if u.op is Ops.SCAN_AXIS: return scan_value(u, idx, inner)
    if u.op is Ops.SORT_AXIS: return sorted_value(u, idx, at, inner)
    if u.op is Ops.GATHER:
      return inner if inner.op is Ops.LOAD and len(inner.src) > 2 else UOp.alu(TernaryOps.WHERE, v, inner, zero)
    return UOp(u.op, u.dtype, tuple(self.get(s, g, idx, valid) for s in u.src), u.arg)

  def items(self, g: Group, given: Mapping[UOp, UOp]) -> list[ScheduleItem]:
    """The kernels of a group, several where it has sums that share nothing large, and the ``given`` nodes that they compute."""
    body: list[UOp] = []
    for root, node, asked, at, gate in g.stores:
      value = self.get(node, g, asked, ix.TRUE)
      where = storage_index(root, at) or (ix.const(0),)
      mode: tuple[str, tuple[int, ...]] | None = None
      if root.op is Ops.SCATTER:
        # it goes through its indices' axes in order, but for one that is an index itself; along one that nothing has, again
        axes = [i for i in g.at[:len(root.src[1].shape)] if i.op is Ops.RANGE and i not in at[:len(root.src) - 2]]
        used = axes_in(*where, value, gate)
        if root.arg[0] == "add": value = repeated(BinaryOps.ADD, value, ix.product(i.arg[1] for i in axes if i not in used))
        mode = root.arg[0], tuple(i.arg[0] for i in axes if i in used)
      src = param_stand_in(root), indexed(where), value, *(() if gate is ix.TRUE else (gate,))
      body.append(UOp(Ops.STORE, value.dtype, src, mode))
    reads = set(g.reads)
    versions = {storage(r): r for r in reads}
    final, copies = read_chosen(tuple(body)), Copies()
    if not self.part.blocks or multiplies(final): final, copies = pad_inputs(final, versions)
    if self.part.blocks:
      final, more = copy_factors(final, versions, self.part.target)
      copies |= more
    named = tuple(worth_naming(given))
    for copy, (version, copy_body) in copies.items():
      self.copies.setdefault(copy, make_item(copy_body, (copy,), frozenset((version,)), named))
      reads.add(copy)
    parts = _apart(final, self.part.groups.storing) if g.joined is None else ()
    if len(parts) <= 1: return [make_item(final, tuple(dict.fromkeys(root for root, *_ in g.stores)), frozenset(reads), named)]
    out, every = [], loaded(final)
    for part in parts:
      statements = tuple(final[i] for i in part)
      mine, roots = loaded(statements), tuple(dict.fromkeys(g.stores[i][0] for i in part))
      own = frozenset(r for r in reads if storage(r) in mine or storage(r) not in every)
      within = set(toposort([g.stores[i][1] for i in part], reads.__contains__))   # not of the kernels before
      out.append(make_item(statements, roots, own, tuple(worth_naming(n for n, u in given.items() if u in within))))
    return out


def loaded(body: Sequence[UOp]) -> set[UOp]: return {u.src[0].arg for u in toposort(body) if u.op is Ops.LOAD}


def _apart(body: Sequence[UOp], storing: Mapping[UOp, list[Group]]) -> list[list[int]]:
  """The statements of a kernel, by number, that are better made by kernels of their own: sums of _LARGE values that no other one
  reads. Together they would be as few programs as one of them, and keep all that they read until the last of it is made (unless
  one kernel stores it)."""
  if len(body) < 2 or any(s.arg is not None for s in body): return [list(range(len(body)))]
  # statements, what makes the large buffers that they read, whether all are sums
  groups: list[tuple[list[int], set[UOp | Group], bool]] = []
  for i, s in enumerate(body):
    reads: set[UOp | Group] = {next(iter(storing.get(n, ())), n) for n in loaded([s]) if node_bytes(n) >= _LARGE}
    numbers, sums = [i], any(u.op is Ops.REDUCE for u in toposort((s,)))
    for other in [o for o in groups if o[1] & reads]:
      groups.remove(other)
      numbers, reads, sums = [*other[0], *numbers], other[1] | reads, sums and other[2]
    groups.append((numbers, reads, sums))
  alone = [numbers for numbers, reads, sums in groups if reads and sums]
  rest = sorted(i for numbers, reads, sums in groups if not (reads and sums) for i in numbers)
  return sorted([*alone, *([rest] if rest else [])])


def make_item(body: Body, writes: Nodes, reads: frozenset[UOp], given: Nodes) -> ScheduleItem:
  """Give the stand-in nodes of a body their slots, written ones first."""
  nodes, written = toposort(body), [s.src[0] for s in body]
  slots = list(dict.fromkeys((*written, *(u.src[0] for u in nodes if u.op is Ops.LOAD))))
  parts = touched_parts(slots, nodes)
  runs = [n.arg.arg[1] if n.arg.op is Ops.CONTIGUOUS and n.arg.arg and n.arg.arg[0] == RUNS else 0 for n in slots]
  params = tuple(Param(i, p.shape, n.dtype, n in written, p.align, m) for i, (n, p, m) in enumerate(zip(slots, parts, runs)))
  part = dict(zip(slots, parts))
  def accessed(old: UOp, new: UOp) -> UOp: return at_place(new, part[old.src[0]].within(new.src[1].src))
  out = rewrite(body, dict.fromkeys((Ops.LOAD, Ops.STORE), accessed), {n: p.uop for n, p in zip(slots, params)})
  ranges: dict[int, UOp] = {u.arg[0]: u for u in nodes if u.op is Ops.RANGE}
  bound = {*(i for u in nodes if u.op is Ops.REDUCE or u.op is Ops.STORE and u.arg for i in u.arg[1]),
           *(u.arg[1] for u in nodes if u.op is Ops.SCAN),
           *(i for u in nodes if u.op is Ops.SORTED for i in (u.arg[0], *ids_of(u.src[1])))}
  axes = tuple(Axis(i, ranges[i].arg[1], AxisKind.LOOP if i in bound else AxisKind.GRID) for i in sorted(ranges))
  return ScheduleItem(
    Kernel(params, axes, out), tuple(n.arg for n in slots), writes, reads,
    tuple(p.offset * n.dtype.itemsize for n, p in zip(slots, parts)) if any(p.align for p in parts) else (), given)


# ---- a sum that leaves one element, chosen by an index, reads that element alone (the logit of a class):
#     sum[a1](a1 == i[a0] ? x[a0, a1] : 0)   ->   0 <= i[a0] < n ? x[a0, i[a0]] : 0

def read_chosen(body: Body) -> Body:
  """The statements of a kernel with such sums replaced by what they choose."""
  if config.noopt or not any(u.op is Ops.REDUCE for u in toposort(body)): return body
  return rewrite(body, {Ops.REDUCE: lambda old, u: _read(u)})


def _read(u: UOp) -> UOp | None:
  """What a REDUCE chooses; None where it does more than that."""
  if u.arg[0] is not BinaryOps.ADD or u.src[0].arg is not TernaryOps.WHERE: return None
  test, chosen, other = u.src[0].src
  if other.op is not Ops.CONST or other.arg != 0 or test.arg is not BinaryOps.CMPEQ: return None
  for number, index in test.src, test.src[::-1]:
    axis = number.src[0] if number.op is Ops.CAST else number
    if axis.op is not Ops.RANGE or axis.arg[0] not in u.arg[1] or axis in index.ranges or number.dtype.kind not in "iu": continue
    if number is not axis and ix.vmax(axis) > dtypes.max(number.dtype): continue   # numbers that come more than once
    # what is reduced along the axis itself (the sum of a softmax) stays
    known = {n: n for n in toposort((chosen,)) if n.op is Ops.REDUCE and axis.arg[0] in n.arg[1]}
    if any(n.op is Ops.SCAN for n in toposort((chosen,), known.__contains__)): return None
    at = index.cast(ix.INT)
    inside = in_bounds((at,), (axis.arg[1],))
    def load(old: UOp, new: UOp, gate: UOp = inside, a: UOp = axis) -> UOp | None:
      return new.replace((*new.src[:2], ix.both(gate, *new.src[2:]))) if a in old.ranges else None
    found = rewrite((chosen,), {Ops.LOAD: load}, {**known, axis: at})[0]
    found = UOp.alu(TernaryOps.WHERE, inside, found, UOp.const(found.dtype, 0))
    rest = tuple(i for i in u.arg[1] if i != axis.arg[0])
    return UOp(Ops.REDUCE, u.dtype, (found,), (u.arg[0], rest)) if rest else found.cast(u.dtype)
  return None


# ---- zero padding under a reduction gets a buffer of its own where each padded element is read many times (convolutions), not a
# bounds check in the inner loop. A product with a padded zero is taken for zero, whatever the other factor

def pad_inputs(body: Body, versions: dict[UOp, UOp]) -> tuple[Body, Copies]:
  """The body with masked reads of small windows replaced by plain reads of padded copies; copy node -> (what it copies, its
  body). ``versions`` has the version that the body reads, by storage."""
  bound = {i for u in toposort(body) if u.op is Ops.REDUCE for i in u.arg[1]}
  gates: dict[UOp, frozenset[UOp]] = {}       # replaced load -> the conditions that its zeros stand for
  copies: Copies = {}
  def load(u: UOp, new: UOp) -> UOp:
    made = _padded(u, versions) if len(u.src) > 2 and not bound.isdisjoint(ids_of(u)) else None
    if made is None: return new
    new, copy, copies[copy] = made
    gates[new] = frozenset(ix.conjuncts(u.src[2]))
    return new
  def choice(u: UOp, new: UOp) -> UOp:
    """Where the condition is false a padded value is zero anyway."""
    if new.arg is not TernaryOps.WHERE or new.src[2].op is not Ops.CONST or new.src[2].arg != 0: return new
    known = frozenset(ix.conjuncts(u.src[0]))
    inner = _ungated(new.src[1], known)
    if new.src[1] in gates: gates[inner] = gates[new.src[1]]
    return inner if known <= _zeros(inner, gates) else new.replace((new.src[0], inner, new.src[2]))
  return rewrite(body, {Ops.LOAD: load, Ops.ALU: choice}), copies


def multiplies(body: Body) -> bool:
  """Whether a body sums products of two factors each of which has outputs of its own: blocks of them are multiplied, without
  masks in the loop. Elsewhere on targets with blocks a mask costs less than a copy."""
  for u in toposort(body):
    if u.op is not Ops.REDUCE or u.arg[0] is not BinaryOps.ADD: continue
    value = u.src[0]
    while value.op is Ops.CAST or value.arg is TernaryOps.WHERE: value = value.src[value.op is not Ops.CAST]
    if value.arg is not BinaryOps.MUL: continue
    a, b = [ids_of(s).difference(u.arg[1]) for s in value.src]
    if a - b and b - a: return True
  return False


def _ungated(value: UOp, known: frozenset[UOp]) -> UOp:
  """A value that is only looked at where ``known`` holds: reads that are in bounds anyway need no gate for it."""
  def free(old: UOp, u: UOp) -> UOp | None:
    if len(u.src) < 3 or not frozenset(ix.conjuncts(u.src[2])) <= known: return None
    shape = tuple(u.src[0].arg.shape) or (1,)
    inside = all(ix.vmin(i) >= 0 and ix.lt(i, n) is ix.TRUE for i, n in zip(u.src[1].src, shape))
    return u.replace(u.src[:2]) if inside else None
  return value if value.op is Ops.LOAD else rewrite((value,), {Ops.LOAD: free})[0]


def _zeros(u: UOp, gates: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
  """Conditions without which a value is zero already."""
  def end(n: UOp) -> bool: return n in gates or n.op is not Ops.CAST and n.arg is not BinaryOps.MUL
  found: dict[UOp, frozenset[UOp]] = {}
  for n in toposort((u,), end): found[n] = gates.get(n, frozenset()) if end(n) else frozenset().union(*(found[s] for s in n.src))
  return found[u]


def _padded(u: UOp, versions: dict[UOp, UOp]) -> tuple[UOp, UOp, tuple[UOp, Body]] | None:
  """What a LOAD is in a padded copy, the copy, and what it copies with its body."""
  source: UOp = u.src[0].arg
  shape, index = tuple(source.shape) or (1,), u.src[1].src
  inside = {p for i, n in zip(index, shape) for c in (ix.ge(i, 0), ix.lt(i, n)) for p in ix.conjuncts(c)}
  if {*ix.conjuncts(u.src[2])} != inside: return None
  pads = tuple((max(0, -ix.vmin(i)), max(0, ix.vmax(ix.sub(i, n)) + 1)) for i, n in zip(index, shape))
  if any(amount >= ix.FAR for pair in pads for amount in pair): return None   # of a run-time size nobody knows
  wide = tuple(ix.plus(n, lo + hi) for n, (lo, hi) in zip(shape, pads))
  size = ix.elements(wide)
  if ix.elements(r.arg[1] for r in u.ranges) < REUSE * size or size > 4 * ix.elements(shape) + 4096: return None
  if (version := versions.get(source, source)).shape != source.shape: return None   # a write to a part of it
  copy, at = as_buffer(movement(Ops.PAD, version, pads)), tuple(ix.rng(d, n) for d, n in enumerate(wide))
  there = tuple(ix.sub(i, lo) for i, (lo, _) in zip(at, pads))
  value = UOp(Ops.LOAD, u.dtype, (u.src[0], indexed(there), in_bounds(there, shape)))
  moved = tuple(ix.add(i, lo) for i, (lo, _) in zip(index, pads))
  return UOp(Ops.LOAD, u.dtype, (param_stand_in(copy), indexed(moved))), copy, (version, stores(copy, at, value))
