"""The role of each axis in a kernel, and how each access moves through memory along it. Blocks are chosen by these.

    c[i, j] = sum[k](a[i, k] * b[k, j])     i ROW, j COLUMN, k CONTRACTED; a goes along k, b and c along j
    y[j] = sum[i](x[i, j])                  j MAPPED, i REDUCED; x and y go along j
"""
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Iterable

from .. import index as ix
from ..ir import Ops, UOp, dtypes, toposort
from ..kernel import ACCESSES, Axis, Kernel, MemoryAccess, access_profile, flat_index, ids_of, reduce_depths, rewrite
from ..kernel.accesses import multiplication, narrow_value

VECTOR_BYTES = 16    # bytes that one thread reads or writes at a time, at most
_FEW = 16            # an axis counts along which so small a part of the bytes is moved


class Role(Enum):
  """What an axis is to a kernel. Only a sum of products has ROWs, COLUMNs, CONTRACTED and BATCH axes."""
  ROW = "row"                  # the first factor varies with it
  COLUMN = "column"            # the second one does
  CONTRACTED = "contracted"    # both do, and the sum binds it
  BATCH = "batch"              # both do, and the result too
  REDUCED = "reduced"          # another reduction binds it
  MAPPED = "mapped"            # every element of it is one of the result's


PRODUCT_ROLES = Role.ROW, Role.COLUMN, Role.CONTRACTED


@dataclass(frozen=True)
class _Product:
  """A sum of products: the REDUCE and its two factors, as they are multiplied."""
  reduce: UOp
  sides: tuple[UOp, UOp]

  @cached_property
  def stored(self) -> tuple[UOp, UOp]:
    """The factors before they were widened."""
    return narrow_value(self.sides[0]), narrow_value(self.sides[1])


class Roles:
  """The axes that one program may take some of (GRID, and bound LOOP axes), with the accesses along them."""

  def __init__(self, kernel: Kernel):
    self.kernel = kernel
    self.free = free(kernel)
    self.bound = [a for a in kernel.reduced_loops if a.id not in kernel.sequential]
    info = access_profile(kernel)
    self.accesses, self.work, self.sizes, self.product = info.accesses, info.work, kernel.counts, product_of(kernel)

  @cached_property
  def roles(self) -> dict[int, Role]:
    """The role of every axis."""
    out = {a.id: Role.REDUCED if a.id in self.kernel.bound else Role.MAPPED for a in self.kernel.axes}
    if self.product is not None:
      bound = set(self.product.reduce.arg[1])
      a, b = map(ids_of, self.product.sides)
      out |= dict.fromkeys(a - bound, Role.ROW) | dict.fromkeys(b - bound, Role.COLUMN)
      out |= {i: Role.CONTRACTED if i in bound else Role.BATCH for i in a & b}
    return out

  def of(self, role: Role, among: Iterable[Axis]) -> list[int]:
    """The ids of those axes that have a role."""
    return sorted(a.id for a in among if self.roles.get(a.id) is role)

  def footprint(self, x: MemoryAccess) -> int:
    """Bytes of memory that an access goes through, each counted once."""
    return min([self.moved(x), *[ix.elements(p.shape) * p.dtype.itemsize for p in self.kernel.params if p.slot == x.slot]])

  def moved(self, x: MemoryAccess) -> int:
    """Bytes that an access moves, for each value of the axes along which it moves."""
    return math.prod(self.sizes[i] for i, s in x.steps.items() if s != 0) * x.itemsize

  @cached_property
  def along(self) -> dict[int, int]:
    """The axes that accesses go along, with the bytes that are moved so; without those along which there are few."""
    out: dict[int, int] = {}
    for x in self.accesses:
      if (i := fastest_axis(x, self.sizes)) is not None: out[i] = out.get(i, 0) + self.moved(x)
    return {i: n for i, n in out.items() if _FEW * n >= max(out.values())}


def free(kernel: Kernel) -> list[Axis]:
  """The axes of which every element has a program."""
  return [a for a in kernel.grid if a.id not in kernel.bound]


def fastest_axis(x: MemoryAccess, sizes: dict[int, int]) -> int | None:
  """The axis that an access goes along memory with; of several (a window's) the longest. None for a gather, or long steps."""
  return max([i for i, s in x.steps.items() if s in (1, -1) and sizes[i] > 1], key=lambda i: sizes[i], default=None)


def vector(x: MemoryAccess, axis: int | None) -> int:
  """Bytes of an access that one thread can take at once along an axis: as far as all other steps leave it aligned."""
  steps = [s for i, s in x.steps.items() if i != axis]
  if None in steps: return x.itemsize
  return min(math.gcd(*[abs(s) * x.itemsize for s in steps if s], VECTOR_BYTES), VECTOR_BYTES)


def product_of(kernel: Kernel) -> _Product | None:
  """The sum of products that a kernel is, if ``tl.dot`` makes it."""
  if len(kernel.reduces) != 1 or (value := multiplication(u := kernel.reduces[0])) is None: return None
  if u.dtype not in (dtypes.float32, dtypes.float64, dtypes.int32): return None
  if u.dtype is dtypes.int32 and any(narrow_value(s).dtype is not dtypes.int8 for s in value.src): return None
  return _Product(u, (value.src[0], value.src[1]))


def flat(kernel: Kernel) -> Kernel:
  """Params that accesses go through in steps of one size get one dimension: data1[a0 // 56, a0 % 56] -> data1[a0]."""
  shapes = {p.uop: p.shape for p in kernel.params if len(p.shape) > 1 and all(isinstance(n, int) for n in p.shape)}
  plain, folded = set(shapes), set[UOp]()
  for u in kernel.nodes:
    if u.op not in ACCESSES or (buffer := u.src[0]) not in shapes: continue
    def cut(index: Iterable[UOp]) -> bool: return any(x.op is not Ops.RANGE for s in index for x, _ in ix.linear(s)[0])
    if cut([flat_index(shapes[buffer], u.src[1].src)]): plain.discard(buffer)
    if cut(u.src[1].src): folded.add(buffer)
  if not (changed := plain & folded): return kernel
  def access(old: UOp, new: UOp) -> UOp | None:
    if old.src[0] not in changed: return None
    at = new.src[1].replace((flat_index(shapes[old.src[0]], new.src[1].src),))
    return new.replace((new.src[0], at, *new.src[2:]))
  params = tuple(replace(p, shape=(ix.product(p.shape),)) if p.uop in changed else p for p in kernel.params)
  return kernel.with_(params=params, body=rewrite(kernel.body, dict.fromkeys(ACCESSES, access)))


def rounds_of(kernel: Kernel) -> dict[UOp, int]:
  """How many times a program goes through the elements of each LOAD where what is reduced does not fit in one block: for each
  phase of reductions that needs it, once more for what is stored along reduced axes."""
  phases, seen = reduce_depths(kernel.nodes), dict[UOp, set[int]]()
  def note(root: UOp, phase: int) -> None:
    for u in toposort((root,), stop=lambda n: n.op is Ops.REDUCE):
      if u.op is Ops.LOAD: seen.setdefault(u, set()).add(phase)
  for r in kernel.reduces: note(r.src[0], phases[r])
  for s in kernel.body: note(s, -1 if ids_of(s) & kernel.bound else 0)
  return {u: len({p for p in found if p} or {0}) for u, found in seen.items()}
