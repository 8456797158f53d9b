"""Which buffer holds the value of a graph node, and what a write does to it.

In the tensor graph UPDATE, SCATTER and CALL are pure; here they become effects on memory.

  UPDATE(base, value, view)   ->  AFTER(memory, ASSIGN(view(memory), value))       what lies in the memory afterwards
  UPDATE(.., index)           ->  AFTER(memory, SCATTER(view(memory), index, value)), as of SCATTER(base, index.., value)
  CALL(base, arguments..)     ->  AFTER(memory, LAUNCH(memory, arguments..)), one LAUNCH for each argument that the kernel writes
  a value for a BUFFER        ->  ASSIGN(BUFFER, value), or ASSIGN(AFTER(BUFFER, LAUNCH), value) where a call has written there

The memory is the BUFFER that the newest value goes to, else a copy of the base that nothing else sees. So no two nodes write one
memory unless one comes after the other. ``order`` puts readers before what writes over them. Where that cannot be
(``Conflict``), values or copies come first.

A kernel that touches one piece of a buffer, ``x[200:300]`` of 1000 rows, takes the piece as its param, and its place as an
argument of the launch: all slices of one shape share a kernel. That of ``x[:, 3]`` begins at the first row that is touched, and
ends behind the last.
"""
from __future__ import annotations

import functools
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import NamedTuple

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Shape
from ntgrad.codegen.ir import MOVEMENT, Ops, UOp, prod, toposort
from ntgrad.codegen.ir.elementwise import make
from ntgrad.graph import apply_view, written

from .nodes import Body, Idx, Nodes, elements_of, indexed, movement, pulled, reshaped, viewed

Sink = tuple[UOp, UOp | None]   # a value that is asked for, and the BUFFER that it is to be written to
GRAPH_EFFECTS = Ops.ASSIGN, Ops.SCATTER, Ops.LAUNCH
PART_ALIGN_BYTES = 64   # bytes: a vector register, and what every allocation begins at a multiple of
_WRITES = frozenset({*GRAPH_EFFECTS, Ops.AFTER})


def storage(u: UOp) -> UOp:
  """The node whose buffer holds ``u``'s value: of a write that of the memory that it writes."""
  if u.op not in _WRITES: return u
  passed = []
  # found once for each version: they lie upon each other
  while (u.op in _WRITES or u.op in MOVEMENT) and "_storage" not in u.__dict__:
    if u.op in _WRITES: passed.append(u)
    u = u.src[0]
  found: UOp = u.__dict__.get("_storage", u)
  for w in passed: w.__dict__["_storage"] = found
  return found


def storage_index(u: UOp, idx: Idx) -> Idx:
  """Where element ``idx`` of root ``u`` lies in its storage."""
  if u.op is not Ops.ASSIGN and u.op is not Ops.SCATTER: return idx
  t = u.src[0]
  while t.op in MOVEMENT: idx, t = pulled(t, idx)[0], t.src[0]
  return idx


def param_stand_in(u: UOp) -> UOp:
  """A parameter that has no slot yet: it names the graph node that stores ``u``."""
  return UOp(Ops.DEFINE_GLOBAL, u.dtype, (), storage(u))


def load_element(u: UOp, idx: Idx, valid: UOp) -> UOp:
  """LOAD of an element of a root or BUFFER."""
  return UOp(Ops.LOAD, u.dtype, (param_stand_in(u), indexed(storage_index(u, idx)), *([valid] if valid is not ix.TRUE else ())))


def stores(root: UOp, idx: Idx, value: UOp) -> Body:
  """The statement that stores a value of a root."""
  return UOp(Ops.STORE, value.dtype, (param_stand_in(root), indexed(idx), value)),


def number_of(effect: UOp) -> int:
  """Which write an effect is: the same number each time that the same sinks are placed."""
  return effect.arg if effect.op is Ops.ASSIGN else effect.arg[-1]


def made_by(version: UOp) -> UOp:
  """What a version of memory comes from: an effect, or a root."""
  return version.src[1] if version.op is Ops.AFTER else version


def is_write(u: UOp) -> bool: return u.op in (Ops.UPDATE, Ops.SCATTER, Ops.CALL)


def past_empty(u: UOp) -> UOp:
  """The node without writes of no elements on top of it."""
  while is_write(u):
    if elements_of(u if u.op is Ops.CALL else u.src[1 if u.op is Ops.UPDATE else -1]): break
    u = u.src[0]
  return u


def offset_of(u: UOp) -> tuple[Hashable, int] | None:
  """Of a write at numbers (``x[3, :, 5] = v``) what is the same at other numbers, and these as one index of the joined dims."""
  if u.op is not Ops.UPDATE or len(u.src) != 2 or not u.arg or u.arg[0][0] is not Ops.SHRINK: return None
  if any(op not in (Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP) for op, _ in u.arg[1:]): return None
  box, shape, flat = u.arg[0][1], u.src[0].shape, 0
  if not (at := _single(box, shape)): return None
  for d in at: flat = flat * shape[d] + box[d][0]
  return (tuple(None if d in at else b for d, b in enumerate(box)), u.arg[1:]), flat


def _single(box: Sequence[tuple[int, int]], shape: Sequence[int]) -> list[int]:
  return [d for d, ((b, e), n) in enumerate(zip(box, shape)) if e - b == 1 and n > 1]


def at_index(u: UOp, base: UOp, value: UOp, index: UOp) -> UOp:
  """A write at numbers as one at an index in memory, so that one kernel serves all numbers: ``x[3] = v`` -> ``x[index] = v``."""
  box, shape = u.arg[0][1], base.shape
  at = _single(box, shape)
  rest, sizes = [d for d in range(len(shape)) if d not in at], [e - b for b, e in box]
  order, left = (*at, *rest), [sizes[d] for d in rest]
  part = written(movement(Ops.SHRINK, base, box), u.arg[1:], value)   # the value as the box has it
  part = reshaped(movement(Ops.PERMUTE, part, order), (1, *left))
  view = ((Ops.SHRINK, tuple((0, shape[d]) if d in at else b for d, b in enumerate(box))), (Ops.PERMUTE, order),
          (Ops.RESHAPE, (ix.product(shape[d] for d in at), *left)))
  return UOp(Ops.UPDATE, u.dtype, (base, part, index), view)


def own(value: UOp, number: int, what: str = "", device: str | None = None) -> UOp:
  """A value in a buffer that nothing else sees, on its device or another; ``what`` tells two of one write apart."""
  device = device or value.device
  arg = "own", number, what, *([device] if value.device is None else [])
  return make(Ops.CONTIGUOUS, value.dtype, (value,), arg, value.shape, device)


class Placing:
  """Gives every write its memory. ``late`` writes get their values from a buffer, ``apart`` ones a copy of what they write to."""

  def __init__(self, sinks: Sequence[Sink], late: Collection[int], apart: Collection[int]):
    self.late, self.apart = late, apart
    self.asked = [s for s, _ in sinks]
    self.sinks = [(past_empty(s), target) for s, target in sinks]
    self.order = toposort([s for s, _ in self.sinks])
    self.number = {u: i for i, u in enumerate(self.order)}
    self.over: dict[UOp, UOp] = {}     # a write -> the one that writes over its result
    self.target: dict[UOp, UOp] = {}   # a write -> the BUFFER that it is on the way to
    self.inside: set[UOp] = set()      # writes whose result lies in that BUFFER
    self.first: dict[UOp, UOp] = {}    # a value that is no write -> the BUFFER that it is written to, from which others read it
    self.stored: dict[UOp, UOp] = {}   # the same -> its ASSIGN
    self.new: dict[UOp, UOp] = {}
    # BUFFERs that hold nothing before a call writes them, and what was written to them last; where a sink is to go, its number
    self.unused: dict[UOp, UOp] = {}
    self.end = {target: self.number[s] for s, target in reversed(self.sinks) if target is not None}
    self.calls: dict[tuple[object, ...], dict[int, UOp]] = {}   # of each call, the arguments that it writes and somebody reads
    for u in self.order:
      if u.op is Ops.CALL: self.calls.setdefault((u.arg[0], *u.src[1:]), {})[u.arg[1]] = u
    asked = {s for s, _ in self.sinks}
    for s, target in self.sinks:
      if target is not None and not is_write(s) and viewed(s).op not in (Ops.BUFFER, Ops.CONST):
        self.first.setdefault(s, target)
    ends: list[Sink] = [(s, target) for s, target in self.sinks if target is not None and is_write(s)]
    ends += [(u, None) for u in reversed(self.order) if is_write(u)]
    seen: set[UOp] = set()
    for u, target in ends:
      while u not in seen:
        seen.add(u)
        if target is not None: self.target[u] = target
        below = past_empty(u.src[0])
        if not is_write(below) or below in asked or below in self.over: break
        self.over[below], u = u, below

  def place(self) -> Nodes:
    """The graph with effects: one node for each sink."""
    for u in self.order:
      if is_write(u): self.new[u] = self._write(u) if past_empty(u) is u else self.new[past_empty(u)]
      else: self.new[u] = u.replace(tuple(self.new[s] for s in u.src))
      if u in self.first: self.new[u], self.stored[u] = self._assign(self.first[u], self.new[u], self.number[u])
    out = []
    for i, (s, target) in enumerate(self.sinks):
      if target is None or s in self.inside and self.target[s] is target: out.append(self.new[s])
      elif self.first.get(s) is target: out.append(self.stored[s])
      else: out.append(self._assign(target, self.new[s], len(self.order) + i)[1])
    return tuple(out)

  def owned(self, ready: Sequence[UOp]) -> Nodes:
    """What has come of the sinks once they are rewritten. A value in memory which others have gets memory of its own, and so does
    one that is a number by now, or numbers that do not know where they belong."""
    out, unused = list(ready), set(self.unused) - {target for _, target in self.sinks if target is not None}
    for i, (u, (s, target), asked) in enumerate(zip(ready, self.sinks, self.asked)):
      if target is not None: continue
      shared = storage(viewed(u)).op is Ops.BUFFER and asked.op is not Ops.BUFFER
      if shared and u.op is Ops.AFTER and u.src[1].op is Ops.LAUNCH and u.src[0] in unused: unused.remove(u.src[0])
      elif shared or u.device != s.device or u.op is Ops.CONST: out[i] = own(u, len(self.order) + i, device=s.device)
    return tuple(out)

  def _assign(self, target: UOp, value: UOp, number: int) -> tuple[UOp, UOp]:
    """Write a whole value: the node that others read it from, and the ASSIGN."""
    if late := number in self.late: value = own(value, number)
    elif value.op is Ops.CONTIGUOUS and value.arg is None: value = value.src[0]
    effect = UOp(Ops.ASSIGN, value.dtype, (self.unused.get(target, target), value), number)
    return value if late else effect, effect

  def _memory(self, u: UOp) -> UOp:
    """The memory that a write is done to, as it is before."""
    base, number, target = past_empty(u.src[0]), self.number[u], self.target.get(u)
    new = self.new[base]
    if u.op is Ops.CALL and u.arg[1] in u.arg[2] and base is not target:   # nothing is lost
      if target is not None and number not in self.apart and (u.arg[0].in_place or not self._takes(u, target)):
        self.inside.add(u)
        return target
      if self.end.get(new, number) < number: return own(new, number)   # what is to be there comes before
      return self.unused.setdefault(new, new)
    if number in self.apart: return own(new, number)
    if self.over.get(base) is u:
      if base in self.inside: self.inside.add(u)
      return new
    if target is None: return own(new, number)
    self.inside.add(u)
    return base if base is target else self._assign(target, new, -1 - number)[1]

  def _write(self, u: UOp) -> UOp:
    if u.op is Ops.CALL: return self._launch(u)
    memory, number = self._memory(u), self.number[u]
    part, mode, value, index = ((apply_view(memory, u.arg), "set", u.src[1], u.src[2:]) if u.op is Ops.UPDATE else
                                (memory, u.arg, u.src[-1], u.src[1:-1]))
    new = self.new[value]
    if number in self.late: new = own(new, number, "value")
    if index: effect = UOp(Ops.SCATTER, u.dtype, (part, *[self.new[i] for i in index], new), (mode, number))
    else: effect = UOp(Ops.ASSIGN, u.dtype, (part, new), number)
    return UOp(Ops.AFTER, u.dtype, (memory, effect))

  def _takes(self, u: UOp, memory: UOp) -> bool:   # whether a call takes that
    return any([storage(viewed(self.new[past_empty(s)])) is memory for s in u.src[1:]])

  def _launch(self, u: UOp) -> UOp:
    """An argument after a kernel that writes it. Each effect of a call comes after all that the kernel takes; arguments that it
    writes and nobody reads are copies, unless there was nothing in them (``empty``)."""
    launcher, position, empty = u.arg
    together = self.calls[launcher, *u.src[1:]]
    call = min(self.number[x] for x in together.values())
    memories = {i: self._memory(x) for i, x in sorted(together.items())}
    positions, arguments = [], []
    for i, s in enumerate(u.src[1:]):
      if i in together: continue
      value = self.new[past_empty(s)]
      while value.op in (Ops.RESHAPE, Ops.DETACH): value = value.src[0]
      if i in launcher.writes and i not in empty or value.op is Ops.CONST: value = own(value, call, f"argument {i}")
      positions.append(i)
      arguments.append(value)
    memory, arg = memories.pop(position), (launcher, position, tuple(positions), call, self.number[u])
    made = UOp(Ops.AFTER, u.dtype, (memory, UOp(Ops.LAUNCH, u.dtype, (memory, *arguments, *memories.values()), arg)))
    if (at := storage(memory)) in self.unused: self.unused[at] = made
    return made


# ---- parts of buffers

class _Part(NamedTuple):
  """Consecutive elements of a buffer: the number of the first one, ``shape``, and the least index in each dimension of the
  buffer. The first ``gone`` dimensions have one index only. ``rows`` says how many rows apart the elements of the first
  dimensions lie; these are then one dimension of the part."""
  offset: int
  shape: Shape
  begin: Idx
  gone: int = 0
  align: int = 0
  rows: tuple[int, ...] = ()

  def within(self, index: Idx) -> Idx:
    """An index of the buffer as one of the part."""
    if not self.begin: return (ix.ZERO,)
    at = tuple(ix.sub(i, b) for i, b in zip(index[self.gone:], self.begin[self.gone:]))
    return (functools.reduce(ix.add, map(ix.mul, at, self.rows)), *at[len(self.rows):]) if self.rows else at


def touched_parts(slots: Sequence[UOp], nodes: Iterable[UOp]) -> list[_Part]:
  """For each buffer (its stand-in) the part that the LOADs and STOREs among ``nodes`` touch."""
  accesses: dict[UOp, list[Idx]] = {s: [] for s in slots}
  for u in nodes:
    if u.op in (Ops.LOAD, Ops.STORE): accesses[u.src[0]].append(u.src[1].src)
  return [_part(s, accesses[s]) for s in slots]


def _part(stand_in: UOp, accesses: Sequence[Idx]) -> _Part:
  """(10, 4, 8) of which 3, 1..2, 0..7 are touched -> (2, 8) from element 104 on."""
  shape, itemsize = tuple(stand_in.arg.shape), stand_in.dtype.itemsize
  given: int = stand_in.arg.arg.align if stand_in.arg.op is Ops.BUFFER else 0   # of a buffer that is a part itself
  touched = [(0, n) for n in shape]
  for d, n in enumerate(shape):
    if not isinstance(n, int): break   # of a run-time size all may be touched
    lo, hi = _touched(accesses, d)
    if lo < 0 or hi > n: break   # only a gate keeps it inside
    touched[d] = lo, hi
    if hi > lo + 1: break
  if (part := _apart(shape, accesses)) is None:
    sizes, first = tuple(ix.minus(e, b) for b, e in touched), consecutive(shape, touched)
    if not shape or not isinstance(first, int) or sizes == shape and not given:
      return _Part(0, shape or (1,), (ix.ZERO,) * len(shape), align=given)
    gone = next((d for d, n in enumerate(sizes) if n != 1), len(shape) - 1)
    part = _Part(first, sizes[gone:], tuple(ix.const(b) for b, _ in touched), gone)
  return part._replace(align=min(alignment(part.offset * itemsize, itemsize), given or PART_ALIGN_BYTES))


def _touched(accesses: Sequence[Idx], d: int) -> tuple[int, int]:
  """The first index in a dimension, and the one behind the last."""
  return min([ix.vmin(i[d]) for i in accesses]), max([ix.vmax(i[d]) for i in accesses]) + 1


def _apart(shape: Shape, accesses: Sequence[Idx]) -> _Part | None:
  """(32, 64, 8) of which 0..31, 5, 0..7 are touched -> (31*64 + 1, 8) from element 40 on, by 64*i + j. None for other parts."""
  sizes = [n for n in shape if isinstance(n, int)]
  if len(sizes) < max(len(shape), 2): return None
  found = [_touched(accesses, d) for d in range(len(shape))]
  if any(lo < 0 or hi > n for (lo, hi), n in zip(found, sizes)): return None
  one = [d for d, ((lo, hi), n) in enumerate(zip(found, sizes)) if hi == lo + 1 and n > 1]
  several = [d for d, (lo, hi) in enumerate(found) if hi > lo + 1]
  if not one or not several or one[-1] < several[0]: return None
  last = one[-1]
  if any((lo, hi) != (0, n) for (lo, hi), n in zip(found[last + 1:], sizes[last + 1:])): return None
  steps = [prod(sizes[d + 1:last + 1]) for d in range(last + 1)]
  span = sum((hi - lo - 1) * step for (lo, hi), step in zip(found, steps)) + 1
  first = sum(lo * step for (lo, _), step in zip(found, steps)) * prod(sizes[last + 1:])
  return _Part(first, (span, *shape[last + 1:]), tuple(ix.const(lo) for lo, _ in found), rows=tuple(steps))


def consecutive(shape: Sequence[ix.Dim], slices: Sequence[tuple[ix.Dim, ix.Dim]]) -> ix.Dim | None:
  """The number of the first element of ``slices`` (begin, end) of an array, where their elements are consecutive; else None."""
  first: ix.Dim = 0
  partial = False
  for n, (b, e) in zip(shape, slices):
    if partial and (b, e) != (0, n): return None
    first = ix.plus(ix.times(first, n), b)
    partial = partial or ix.minus(e, b) != 1
  return first


def alignment(offset: int, itemsize: int) -> int:
  """The ``align`` of a part that begins at a byte."""
  return PART_ALIGN_BYTES if offset % PART_ALIGN_BYTES == 0 else itemsize
