"""Copies of the caller's buffers, for products that read them often: with channels side by side for a convolution, or rows that
begin at multiples of 16 bytes. ``layout`` and ``padded_rows`` treat them as any buffer between kernels."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.gpu_products import ProductWork, worth_copying
from ntgrad.codegen.choose.roles import VECTOR_BYTES
from ntgrad.codegen.index import strides_of
from ntgrad.codegen.ir import Ops, Target, UOp, config, prod, toposort
from ntgrad.codegen.kernel import rewrite, substitute

from .layout import LAST, BufferAccess, Product, dimension_along, products
from .nodes import Body, Copies, axes_in, axes_size, elements_of, indexed, is_fixed, movement, node_bytes, reshaped, viewed
from .padded_rows import LEAST, padded, row, sole_axis, vector_bytes
from .placement import param_stand_in, stores

_USES = 32        # of each element of a factor, from which on a copy of it that lies better pays
_LARGE = 1 << 20  # products of a sum from which on it is made by blocks whatever they read


class _Factor(NamedTuple):
  """A factor of a product: its access, the dimension whose elements should lie side by side (if a copy of it can be made), and
  the bytes that a thread reads at a time without a copy. ``crossed``: it lies along what is summed, and should not."""
  access: BufferAccess
  place: int | None
  vector: int
  crossed: bool = False


def copy_factors(body: Body, versions: Mapping[UOp, UOp], target: Target) -> tuple[Body, Copies]:
  """The body with reads of the caller's buffers that do not lie well for a product replaced by reads of copies; copy node ->
  (what it copies, its body). ``versions`` has the version that the body reads, by storage."""
  nodes = toposort(body)
  of = {u.src[0]: u.src[0].arg for u in nodes if u.op is Ops.LOAD and isinstance(u.src[0].arg, UOp)}
  order = [r for i in body[0].src[1].src for r in i.ranges]
  new: dict[UOp, UOp] = {}
  copies: Copies = {}
  for p in products(nodes, of):
    a, b = p.factors
    p = replace(p, factors=(as_it_lies(a), as_it_lies(b)))
    for f, last in (*channels_last(p), *aligned_rows(p, order, target)):
      if f.by in new: continue
      source = viewed(f.node)
      version = versions.get(source, source)
      copy = UOp(Ops.CONTIGUOUS, f.by.dtype, substitute((f.node,), {source: version}), (LAST, last))
      at = tuple(ix.rng(d, n) for d, n in enumerate(f.node.shape))
      where = at if f.node is source else substitute(f.by.src[1].src, dict(zip(f.at, at)))
      copies[copy] = version, stores(copy, at, UOp(Ops.LOAD, f.by.dtype, (f.by.src[0], indexed(where))))
      new[f.by] = f.by.replace((param_stand_in(copy), indexed(f.at), *f.by.src[2:]))
  return rewrite(body, {Ops.LOAD: lambda old, u: new.get(old)}) if new else body, copies


def as_it_lies(f: BufferAccess) -> BufferAccess:
  """A factor that lies in a flat buffer among others, with a dimension for each axis that goes through it: data[c + i * 100 + j]
  -> (data[c:c + 6400] as (64, 100))[i, j]. Others as they are."""
  if f.node.op is not Ops.BUFFER or len(f.at) != 1 or len(f.node.shape) != 1: return f
  terms, begin = ix.linear(f.at[0])
  if len(terms) < 2 or any(r.op is not Ops.RANGE or not isinstance(r.arg[1], int) for r, _ in terms): return f
  axes, steps = zip(*sorted(terms, key=lambda t: -t[1]))
  shape = tuple(r.arg[1] for r in axes)
  if strides_of(shape) != steps: return f
  return BufferAccess(reshaped(movement(Ops.SHRINK, f.node, ((begin, begin + prod(shape)),)), shape), axes, f.by)


def callers(f: BufferAccess) -> bool:
  """Whether a factor is a buffer of the caller, of which a copy can be made."""
  return viewed(f.node).op is Ops.BUFFER and len(f.at) == len(f.node.shape) and is_fixed(f.node.shape)


def channels_last(p: Product) -> Iterator[tuple[BufferAccess, int]]:
  """The factors of a convolution whose channels do not lie side by side, with the dimension of these: (n, c, h, w) -> c."""
  for f, c in p.channels():
    if not callers(f) or (place := dimension_along(c, f)) is None or place == len(f.at) - 1: continue
    if p.count >= _USES * elements_of(f.node): yield f, place


def aligned_rows(p: Product, order: Sequence[UOp], target: Target) -> Iterator[tuple[BufferAccess, int]]:
  """The factors with which the product takes longer than with copies, and the dimension of the copies' rows: those whose rows do
  not begin at multiples of VECTOR_BYTES, bytes that do not lie along what is summed, columns of exact float32 that do. ``order``
  has the axes of what the kernel stores."""
  if config.noopt or p.count < _LARGE: return
  def free(f: BufferAccess) -> frozenset[UOp]: return axes_in(*f.at) - p.bound
  rows, columns = sorted(p.factors, key=lambda f: max([order.index(r) for r in free(f) if r in order], default=-1))
  itemsize = max(f.by.dtype.itemsize for f in p.factors)
  a, b = both = [_factor(rows, p, itemsize == 1), _factor(columns, p, itemsize == 1, itemsize == 4 and not p.rounded)]
  if all(f.place is None for f in both): return
  x, y = free(rows), free(columns)
  m, n, k, others = map(axes_size, (x - y, y - x, p.bound, x & y))
  if min(m, n, k) < LEAST: return
  work = ProductWork(m, n, k, others, itemsize, itemsize, max(itemsize, 2), sum(node_bytes(f.node) for f in p.factors),
                     vectors=(a.vector, b.vector), crossed=b.crossed, rounded=p.rounded)
  for f, copied in zip(both, worth_copying(work, [0 if f.place is None else node_bytes(f.access.node) for f in both], target)):
    if copied and f.place is not None: yield f.access, f.place


def _factor(f: BufferAccess, p: Product, along: bool = False, across: bool = False) -> _Factor:
  """How a factor lies. ``along``: its rows should be what is summed; ``across``: they should not."""
  shape, itemsize = tuple(f.node.shape), f.by.dtype.itemsize
  if not callers(f) or not shape or f.by.dtype.kind not in "fi": return _Factor(f, None, VECTOR_BYTES)
  last, buffer = row(shape), viewed(f.node)
  align = int(buffer.arg.align)   # 0: memory begins at a multiple of many bytes
  if buffer is not f.node: align = math.gcd(align or VECTOR_BYTES, f.node.src[0].arg[0][0] * itemsize or VECTOR_BYTES)
  vector = vector_bytes(shape, last, itemsize, align)
  summed = [d for d, i in enumerate(f.at) if i.ranges and i.ranges <= p.bound]
  crossed = across and last in summed
  if along and last not in summed:   # turned around byte by byte
    vector, places = itemsize, summed
  else:
    turned = [d for d, n in enumerate(shape) if n > 1 and (d in summed) != (last in summed)]
    places = turned if crossed else [last, *turned]
  if vector >= VECTOR_BYTES and not crossed: return _Factor(f, None, vector)
  def fits(d: int) -> bool:
    n = shape[d]
    return sole_axis(f, d, n) is not None and (n * itemsize % VECTOR_BYTES == 0 or padded(n, itemsize) != n)
  return _Factor(f, next((d for d in places if fits(d)), None), vector, crossed)
