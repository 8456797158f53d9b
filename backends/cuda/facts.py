"""What the renderer asks of a program before it writes: the axes of every value, sizes as Triton wants them, what stands
inline."""
from __future__ import annotations

import math
from typing import Sequence

from ntgrad.backends.cuda.descriptors import Box, Boxes
from ntgrad.codegen.blocks import (
  DOT,
  NARROW,
  Dots,
  accumulator,
  axis_order,
  block_axes,
  layout,
  prune,
  sources,
  terms,
  widen,
)
from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.codegen.errors import CompileError
from ntgrad.codegen.uop import COMPARE, BinaryOps, Ops, UnaryOps, UOp

# a bit less is another number
_STEPS = frozenset((UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND, BinaryOps.IDIV, BinaryOps.MOD))
INLINE = frozenset((Ops.ALU, Ops.CAST, Ops.BITCAST))
NAMED = frozenset((Ops.LOAD, Ops.REDUCE, Ops.SCAN, Ops.SORT))
_TYPE = {"bool": "int1", "float8_e4m3": "uint8", "float8_e5m2": "uint8"}   # others have numpy's name


def triton_type(dtype: DType) -> str:
  """What a value of ``dtype`` is called: ``tl.float32``."""
  if dtype.count > 1:
    raise CompileError(f"Triton has no vectors ({dtype}): blocks are TILE axes; render the kernel without LANE axes")
  return f"tl.{_TYPE.get(dtype.name, dtype.name)}"


class TritonFacts:
  """A program after its passes, and what is true of it."""

  def __init__(self, name: str, uops: Sequence[UOp], fp8_products: bool, descriptors: bool = False):
    self.name = name
    self.params = [u for u in uops if u.op is Ops.DEFINE_GLOBAL]
    for u in uops:
      if u.dtype.count > 1: triton_type(u.dtype)
    self.uops = Dots(prune(widen(uops)), fp8_products).find()
    self.dims = block_axes(self.uops)
    self.order = axis_order(self.uops)
    self.sizes: dict[int, int] = {u.arg[0]: u.arg[1] for u in self.uops if u.op is Ops.RANGE}
    self.shapes = self._variables()
    self.padded = self._padded()
    boxes = Boxes(self.uops, self.dims, self.padded)
    if descriptors: self.uops = boxes.find()
    self.pointers = boxes.pointers                      # params whose marked accesses are no boxes, and why
    self.rounded = self._rounded()
    self.ordered = self._ordered()                      # params that are read and written
    self.inline: set[UOp] = set()
    self.reads: dict[UOp, frozenset[UOp]] = {}          # accumulators and variables that a value's text names
    self._analyse()

  def refuse(self, u: UOp, why: str = "") -> CompileError:
    return CompileError(f"kernel {self.name}: Triton cannot express {u!r}{why and f': {why}'}")

  def _grid(self) -> tuple[int, int, int]:
    size = [1, 1, 1]
    for u in self.uops:
      if u.op is Ops.SPECIAL and u.arg[0] == "g": size[u.arg[1]] = u.arg[2]
    return (size[0], size[1], size[2])

  def _padded(self) -> dict[int, int]:
    """The size of each TILE axis as Triton wants it: a power of two, for a dot at least 16 (its inner one 32 for a byte)."""
    least: dict[int, int] = {}
    for u in self.uops:
      if u.op is Ops.REDUCE and u.arg[0] is DOT:
        for i in self.dims[u.src[0]] | self.dims[u.src[1]]:
          least[i] = max(least.get(i, 0), 32 if i == u.arg[1] and u.src[0].dtype.itemsize == 1 else 16)
    out = {i: max(1 << (n - 1).bit_length(), least.get(i, 1)) for i, n in self.sizes.items()}
    same = list(self.through().values())   # those that go through one dimension of a variable have its size
    while any(len({out[i] for i in axes}) > 1 for axes in same):
      for axes in same: out.update(dict.fromkeys(axes, max(out[i] for i in axes)))
    return out

  def through(self) -> dict[tuple[UOp, int], set[int]]:
    """The axes that go through each dimension of each variable."""
    out: dict[tuple[UOp, int], set[int]] = {}
    for u in self.uops:
      if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].op is Ops.DEFINE_LOCAL:
        for d, (axis, _) in enumerate(self.places(u)):
          if axis is not None: out.setdefault((u.src[0], d), set()).add(axis)
    return out

  def places(self, u: UOp) -> list[tuple[int | None, list[tuple[UOp, int]]]]:
    """How an access of a variable goes through each dimension: by an axis of its size, or by an index, here as terms (the
    constant's UOp last)."""
    shape = self.shapes[u.src[0]]
    atoms, c = terms(u.src[1])
    out: list[tuple[int | None, list[tuple[UOp, int]]]] = []
    stride = math.prod(shape)
    for n in shape:
      stride //= n
      own = [(x, k // stride) for x, k in atoms.items() if abs(k) >= stride and k % stride == 0]
      for x, _ in own: del atoms[x]
      whole, c = divmod(c, stride)
      if len(own) == 1 and own[0][1] == 1 and own[0][0].op is Ops.RANGE and own[0][0].arg[1] == n and not whole:
        out.append((own[0][0].arg[0], []))
      else: out.append((None, [*own, (UOp.const(dtypes.int32, whole), 1)]))
    if atoms or c: raise self.refuse(u, f"an index that is not made of those into its dimensions {shape}")
    return out

  def _rounded(self) -> bool:
    """Whether float32 is only on its way to narrower floats, and nothing is decided by it: its last bits are not seen then."""
    stored = [u.src[0].dtype for u in self.uops if u.op in (Ops.STORE, Ops.ATOMIC) and u.src[0].op is Ops.DEFINE_GLOBAL]
    decides = any(u.src[0].dtype.kind == "f" and (u.op is Ops.ALU and (u.arg in COMPARE or u.arg in _STEPS) or
                                                  u.op is Ops.CAST and u.dtype.kind != "f" or u.op is Ops.BITCAST)
                  for u in self.uops if u.src)
    return bool(stored) and all(d in NARROW for d in stored) and not decides

  def _ordered(self) -> frozenset[UOp]:
    loads, stores = ({u.src[0] for u in self.uops if u.op in ops} for ops in ((Ops.LOAD,), (Ops.STORE, Ops.ATOMIC)))
    return frozenset(p for p in loads & stores if p.op is Ops.DEFINE_GLOBAL)

  def _variables(self) -> dict[UOp, tuple[int, ...]]:
    """The shape of each variable: that of an access which takes all of it, else one dimension."""
    out: dict[UOp, tuple[int, ...]] = {}
    for u in self.uops:
      if u.op not in (Ops.LOAD, Ops.STORE) or u.src[0].op is not Ops.DEFINE_LOCAL: continue
      size = u.src[0].arg[1]
      found = layout(size, u.src[1])
      if found is not None and (u.src[0] not in out or len(found) > len(out[u.src[0]])): out[u.src[0]] = found
    return {u: out.get(u, () if u.arg[1] == 1 else (u.arg[1],)) for u in self.uops if u.op is Ops.DEFINE_LOCAL}

  def axes(self, dims: frozenset[int]) -> list[int]: return [i for i in self.order if i in dims]

  def target(self, u: UOp) -> frozenset[int]:
    """The axes that the sources of ``u`` are brought to."""
    if isinstance(u.arg, Box): return frozenset(u.arg.axes)
    if u.op in (Ops.LOAD, Ops.STORE, Ops.ATOMIC): return frozenset().union(*(self.dims.get(s, frozenset()) for s in sources(u)))
    if u.op is Ops.REDUCE: return self.dims[u.src[0]].union((u.arg[1],) if u.arg[0] is DOT else u.arg[1])
    return self.dims[u]

  def _analyse(self) -> None:
    """``inline``: values used once, where they stand, by something over the same axes, with nothing that they read written
    between."""
    uses: dict[UOp, int] = {}
    users: dict[UOp, list[int]] = {}
    block: list[int] = []
    stack = [0]
    writes: dict[UOp, list[int]] = {}
    ends: dict[int, int] = {}     # where a loop begins -> where it ends
    around: list[tuple[int, ...]] = []
    for at, u in enumerate(self.uops):
      if u.op in (Ops.ENDLOOP, Ops.ENDIF, Ops.ELSE): stack.pop()
      elif u.op is Ops.ENDWHILE: stack[-2:] = []
      if u.op in (Ops.ENDLOOP, Ops.ENDWHILE): ends[self.uops.index(u.src[0])] = at
      block.append(stack[-1])
      around.append(tuple(stack))
      if u.op in (Ops.LOOP, Ops.IF, Ops.WHILE, Ops.ELSE, Ops.BREAK): stack.append(at)
      if u.op is Ops.PHI: writes.setdefault(accumulator(u), []).append(at)
      elif u.op is Ops.STORE and u.src[0].op is Ops.DEFINE_LOCAL: writes.setdefault(u.src[0], []).append(at)
      for s in sources(u):
        uses[s] = uses.get(s, 0) + (2 if u.op is Ops.ALU and u.arg is UnaryOps.ISNAN else 1)
        users.setdefault(s, []).append(at)
    none: frozenset[UOp] = frozenset()
    for at, u in enumerate(self.uops):
      self.reads[u] = none
      if u.op in (Ops.DEFINE_ACC, Ops.PHI): self.reads[u] = frozenset((accumulator(u),))
      elif u.op is Ops.LOAD and u.src[0].op is Ops.DEFINE_LOCAL:
        # as long as nothing is stored to it, a variable's own name will do; what a loop after this reads it may write in a later
        # round
        last = max((max([p, *(ends[b] for b in around[p] if b > at and b in ends)]) for p in users.get(u, ())), default=at)
        if not any(at < w < last for w in writes.get(u.src[0], ())):
          self.inline.add(u)
          self.reads[u] = frozenset((u.src[0],))
      elif u.op in INLINE or (u.op is Ops.REDUCE and u.arg[0] is DOT and len(u.src) == 3):
        reads = none.union(*(self.reads.get(s, none) for s in u.src))
        p = users[u][-1] if u in users else at
        if uses.get(u, 0) == 1 and block[p] == block[at] and (not self.dims[u] or self.dims[u] == self.target(self.uops[p])) and \
            not any(at < w < p for x in reads for w in writes.get(x, ())):
          self.inline.add(u)
          self.reads[u] = reads
      elif uses.get(u, 0) == 1 and users[u] == [at + 1] and u.op in NAMED and self.uops[at + 1].op is Ops.STORE and \
          self.uops[at + 1].src[0].op is Ops.DEFINE_LOCAL and self.uops[at + 1].src[2] is u:
        self.inline.add(u)   # it gets the variable's name
