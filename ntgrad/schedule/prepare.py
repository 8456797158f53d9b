"""Rewrites of the graph before it is cut: movement is merged, long reductions with few outputs are split."""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.gpu_cost import sum_parts
from ntgrad.codegen.choose.gpu_products import ProductWork, split_k_parts
from ntgrad.codegen.ir import MOVEMENT, BinaryOps, Ops, Target, UOp, dtypes, identity, may_round, power_of_two, toposort
from ntgrad.codegen.kernel import flat_index, rewrite, steps_of
from ntgrad.graph import nodes as graph

from .exchanged_sums import find_exchanges, in_two
from .nodes import LEAVES_WITHIN, Nodes, elements_of, is_fixed, leaves, movement, node_bytes, reduced_size, viewed, with_axis
from .online_statistics import find_shifted, in_one_pass, in_parts_along, stored_along
from .placement import own
from .round_trips import computed_in, find_round_trips
from .scan import split_scan
from .scatter_order import in_runs
from .sort import split_sort

_SPLIT_FROM = 32768    # elements a reduction must have before it is worth splitting
MOST_UNEVEN = 1.15     # of the time that a sum would take if all cores had as much of it
_LEAST_PART = 256      # elements of a part of a sum
_BLOCK = 64            # elements of a sum of products that are read at a time
WHOLE_BLOCK = 8192     # elements: a long part along memory is a multiple of it, or of a part of it
LITTLE_MORE = 16       # no part gets longer for that by more than one of so many


def prepare_graph(sinks: Nodes, target: Target, made: dict[UOp, UOp], exchanged: dict[UOp, UOp] | None = None,
                  kept: Collection[UOp] = (), several: Collection[UOp] = ()) -> Nodes:
  """Rewrite the graph for a target. ``made`` gets what stands for each node, ``exchanged`` the sums of ``find_exchanges``, and of
  ``several`` axes, by what is made in their place, but for those that are ``kept``; None: they stay as they are."""
  shifted = find_shifted(sinks, target) if target.blocks else {}   # a CPU's row stays in a core's own cache
  parts, trips = (find_shrunk(sinks), find_round_trips(sinks)) if target.blocks else ({}, {})
  exchanges = {u: e for u, e in find_exchanges(sinks).items() if u not in kept} if exchanged is not None else {}
  divided = {u for u in several if u not in kept and u.op is Ops.REDUCE_AXIS and len(u.arg[1]) > 1}
  first = tuple(dict.fromkeys(e.stored for e in exchanges.values()))   # rewritten before what reads them then
  later = set[UOp]()   # SHRINKs of what is split: by them

  def reduce(old: UOp, u: UOp) -> UOp | None:
    if new := in_two(u) if old in divided else exchanges[old].made(u, made) if old in exchanges else None:
      if exchanged is not None: exchanged[new[0]] = old
      return new[1]
    if old in shifted: return in_one_pass(shifted[old], u, target)
    if (none := of_nothing(u, identity(u.arg[0], u.dtype))) is not None: return none
    found = split_blocks(u, target) if target.blocks else split_reduce(u, target)
    if found is None or old not in parts: return found
    later.add(parts[old])
    return None
  def elementwise(old: UOp, u: UOp) -> UOp | None: return computed_in(u, trips[old]) if old in trips else None
  def shrink(old: UOp, u: UOp) -> UOp | None:
    if old not in later: return of_nothing(u, 0) or merge_movement(u)
    return graph.reshape(reduce(r, r) or r, u.shape) if (r := shrunk_before(u)) is not None else None
  def copied(old: UOp, u: UOp) -> UOp | None:   # of what begins where its memory does: a part of a memory is made a value before
    if is_number_now(old.src[0], x := u.src[0]): return x
    return u.replace((own(x, 0, "copied"),)) if x.op is Ops.BUFFER and x.arg.align else None
  def contiguous(old: UOp, u: UOp) -> UOp | None:
    if is_number_now(old, u): return u.src[0] if u.arg is None else own(u.src[0], u.arg[1], u.arg[2], old.device)
    return u.src[0] if u.arg is None and u.src[0].op in (Ops.CONTIGUOUS, Ops.CAT) else None
  return rewrite((*first, *sinks), {
    **dict.fromkeys((Ops.DETACH, Ops.SLOPED), lambda _, u: u.src[0]), **dict.fromkeys((Ops.ALU, Ops.CAST), elementwise),
    Ops.CONTIGUOUS: contiguous, Ops.REDUCE_AXIS: reduce,
    Ops.SCAN_AXIS: lambda _, u: split_scan(u, target), Ops.SORT_AXIS: lambda _, u: split_sort(u, target),
    Ops.COPY: copied, Ops.LAUNCH: lambda _, u: with_memory(u),
    Ops.AFTER: lambda _, u: in_runs(u, target, lambda r: reduce(r, r) or r) if target.blocks else None,
    **dict.fromkeys(MOVEMENT, lambda _, u: of_nothing(u, 0) or merge_movement(u)), Ops.SHRINK: shrink}, made=made)[len(first):]


def find_shrunk(sinks: Nodes) -> dict[UOp, UOp]:
  """The reductions of whose results only a part is used, and the SHRINKs that take it: the gradient of an input that is padded.
  Split before that, they would compute all of it."""
  order = toposort(sinks)
  uses = Counter(s for u in order for s in u.src)
  found: dict[UOp, UOp] = {}
  for u in order:
    if u.op is not Ops.SHRINK or uses[s := u.src[0]] != 1: continue
    if s.op is Ops.RESHAPE and uses[s := s.src[0]] != 1: continue
    if s.op is Ops.REDUCE_AXIS and shrunk_before(u) is not None: found[s] = u
  return found


def shrunk_before(u: UOp) -> UOp | None:
  """shrink(reshape(sum(x))), where only dimensions of one element come or go -> sum(shrink(x)), of the sum's shape. None for
  others."""
  r = u.src[0].src[0] if u.src[0].op is Ops.RESHAPE else u.src[0]
  if r.op is not Ops.REDUCE_AXIS or not elements_of(u): return None
  left = [(bounds, n) for bounds, n in zip(u.arg, u.src[0].shape) if n != 1]
  if [n for n in r.shape if n != 1] != [n for _, n in left]: return None
  x, rest = r.src[0], iter([bounds for bounds, _ in left])
  return movement(Ops.REDUCE_AXIS, movement(Ops.SHRINK, x, tuple(
    (0, n) if m == 1 else next(rest) for m, n in zip(r.shape, x.shape))), r.arg)


def is_number_now(old: UOp, u: UOp) -> bool:
  """Whether a value of memory has come to be one of numbers alone, which lies nowhere."""
  return u.device is None and old.device is not None


def with_memory(u: UOp) -> UOp | None:
  """A LAUNCH whose arguments lie in memory, also those that have come to be numbers."""
  numbers = {i: own(s, u.arg[3], f"number {i}", u.device) for i, s in enumerate(u.src) if s.op is Ops.CONST}
  return u.replace(tuple(numbers.get(i, s) for i, s in enumerate(u.src))) if numbers else None


def of_nothing(u: UOp, value: Any) -> UOp | None:
  """What movement (padding an empty tensor) or a reduction makes of no elements: zeros, or the combiner's identity."""
  return graph.const(value, u.dtype, u.shape) if elements_of(u) and not elements_of(u.src[0]) else None


def merge_movement(u: UOp) -> UOp | None:
  """reshape(reshape(x)) is one reshape."""
  if u.op is not Ops.RESHAPE: return None
  s = u.src[0].src[0] if u.src[0].op is Ops.RESHAPE else u.src[0]
  return s if s.shape == u.arg else u.replace((s,)) if s is not u.src[0] else None


def split_reduce(u: UOp, target: Target) -> UOp | None:
  """sum over 64M elements -> sum over P of P partial sums, each its own program."""
  shape, axes, cores = u.src[0].shape, u.arg[1], target.cores
  count, outputs = reduced_size(u), elements_of(u)
  if count <= _SPLIT_FROM // 2: return None
  if outputs >= 4 * cores: return split_for_cache(u, count, outputs, target)
  if count <= _SPLIT_FROM: return None
  want, axis = min(max(16 * cores // max(outputs, 1), cores), 4096), _longest(shape, axes)
  n = shape[axis]
  if not isinstance(n, int): return in_padded_parts(u, axis, min(want, ix.count(n)))
  # whole parts of the first axis that has enough of them, which lie one after the other in memory
  for a in axes:
    if not isinstance(size := shape[a], int): continue
    parts = next((p for p in range(min(want, size), 1, -1) if size % p == 0), 1)
    if parts > 1 and -(-parts * outputs // cores) * cores <= MOST_UNEVEN * parts * outputs:
      return _in_parts(u, u.src[0], a, parts)
  return in_padded_parts(u, axis, min(want, n))


def _longest(shape: Sequence[ix.Dim], axes: Sequence[int]) -> int: return max(axes, key=lambda a: (ix.count(shape[a]), -a))


def split_for_cache(u: UOp, count: int, outputs: int, target: Target) -> UOp | None:
  """A long sum that reads all for each of many outputs (a weight's gradient) -> partial sums of what a core's cache holds."""
  size, axis = sum(node_bytes(n) for n, _ in leaves(u.src[0])), min(u.arg[1])
  n = u.src[0].shape[axis]
  if not isinstance(n, int): return None
  fits = target.core_cache * 3 // 4   # the rest is for what else the program reads and writes
  if size <= 4 * fits or outputs * count < 16 * size: return None
  parts = next((p for p in range(max(size // fits, 2 * target.cores), n + 1) if n % p == 0), 0)
  return _in_parts(u, u.src[0], axis, parts) if parts and parts * outputs * u.dtype.itemsize <= size else None


def split_blocks(u: UOp, target: Target) -> UOp | None:
  """A long reduction that leaves cores idle, as a program makes a block of outputs -> one of partial ones (split-k), in as many
  parts as take the least time."""
  x, count, outputs = u.src[0], reduced_size(u), elements_of(u)
  if count < 2 * _LEAST_PART: return None
  most, of = count // _LEAST_PART, viewed(x)
  product = u.arg[0] is BinaryOps.ADD and is_contraction(of)
  if product: want = split_k_parts(product_work(of, count, outputs), most, target)
  else: want = sum_parts(outputs, count, bytes_of(x), are_columns(x, u.arg[1]), most, target)
  cut = cut_blocks(one_axis(u), want, product) if want != 1 else None
  return None if cut is None else graph.reshape(cut, u.shape)


def cut_blocks(u: UOp, want: int, product: bool) -> UOp | None:
  """A reduction in about so many parts, each of whole blocks where memory goes along it."""
  x, axes = u.src[0], u.arg[1]
  axis = _longest(x.shape, axes) if product else next((a for a in axes if ix.count(x.shape[a]) >= want), _longest(x.shape, axes))
  n = x.shape[axis]
  if not isinstance(n, int): return in_padded_parts(u, axis, min(want, ix.count(n)), True)
  # of a product that is read along what it sums, parts begin where blocks do
  step = _BLOCK if product and n >= want * _LEAST_PART else 1
  near = [p for p in range(2, min(2 * want, n) + 1) if n % (p * step) == 0 and 2 * p >= want]
  if not product and along_memory(x) == axis: near = [p for p in near if n // p % block_of(n // p) == 0]
  if near: return _in_parts(u, x, axis, min(near, key=lambda p: max(p, want) / min(p, want)), True)
  return in_padded_parts(u, axis, min(want, n), True, step)


def along_memory(x: UOp) -> int | None:
  """The dimension of a value along which the largest thing that it is made of lies side by side in memory."""
  idx = tuple(ix.rng(d, n) for d, n in enumerate(x.shape))
  largest, at = max(leaves(x, idx), key=lambda leaf: node_bytes(leaf[0]), default=(None, idx))
  if largest is None or not node_bytes(largest): return None
  return next((i for i, k in steps_of(flat_index(largest.shape, at)).items() if x.shape[i] != 1 and k in (1, -1)), None)


def block_of(n: int) -> int:
  """A power of two that a part of about ``n`` is made a multiple of: a long one has whole blocks and is not much longer."""
  return power_of_two(n) if n <= WHOLE_BLOCK else min(1 << (n // LITTLE_MORE).bit_length() - 1, WHOLE_BLOCK)


def one_axis(u: UOp) -> UOp:
  """A reduction over axes that lie side by side in all that it is made of, as one over a single axis: sum[0, 1](x) of (8191,
  8193) -> sum[0] of (67108863,). Else as it is."""
  x, (fn, axes) = u.src[0], u.arg
  first, last = axes[0], axes[-1]
  if len(axes) == 1 or axes != tuple(range(first, last + 1)) or not is_fixed(x.shape[first:last + 1]): return u
  left, seen = [x], {x}
  while left:
    v = left.pop()
    if v.op in (Ops.ALU, Ops.CAST):
      new = [s for s in dict.fromkeys(v.src) if s not in seen]
      seen.update(new)
      left += new
    elif v.op is Ops.RESHAPE: left.append(v.src[0])
    elif v.op in MOVEMENT and elements_of(_source(v)) > 1: return u
    if len(seen) > LEAVES_WITHIN: return u
  flat = with_axis(x, first, ix.product(x.shape[a] for a in axes), after=len(axes))
  return movement(Ops.REDUCE_AXIS, flat, (fn, (first,)))


def are_columns(x: UOp, axes: Sequence[int]) -> bool:
  """Whether the outputs lie side by side in what is read, or may come to (``layout``: channels between summed dimensions)."""
  kept = [d for d, n in enumerate(x.shape) if d not in axes and n != 1]
  return bool(kept) and (along_memory(x) in kept or len(x.shape) > 3 and any(a < kept[-1] for a in axes))


def _source(u: UOp) -> UOp:
  while u.op in MOVEMENT or u.op is Ops.CAST: u = u.src[0]
  return u


def narrowest(u: UOp) -> int:
  """Bytes of an element of a value where it has the fewest on its way through movement and casts: as it is stored."""
  least = u.dtype.itemsize
  while u.op in MOVEMENT or u.op is Ops.CAST: least, u = min(least, u.src[0].dtype.itemsize), u.src[0]
  return least


def bytes_of(x: UOp) -> int:
  """About how many bytes are read for a value: those of the largest thing that it is made of, at most an element for each."""
  return max([min(elements_of(u), elements_of(x)) * u.dtype.itemsize for u, _ in leaves(x)], default=node_bytes(x))


def product_work(x: UOp, count: int, outputs: int) -> ProductWork:
  """A contraction as the model of products sees it. The rows are what the smaller factor does not vary with."""
  sides = sorted(x.src, key=lambda s: elements_of(_source(s)))
  few, many = [elements_of(_source(s)) for s in sides]
  rows = min(max(outputs * count // few, 1), outputs)
  columns = min(max(outputs * count // many, 1), max(outputs // rows, 1))
  first, second = map(narrowest, sides)
  size, wide = max(2, first, second), max(s.dtype.itemsize for s in x.src)
  return ProductWork(rows, columns, count, max(outputs // (rows * columns), 1), size, wide if size > 2 else min(wide, 2),
                     max(4, wide), few * first + many * second, rounded=may_round(x.src))


def is_contraction(x: UOp) -> bool:
  """Whether summing ``x`` is a matrix product, or a convolution: a product whose factors are both repeated."""
  return x.arg is BinaryOps.MUL and all(2 * elements_of(_source(s)) <= elements_of(x) for s in x.src)


def in_padded_parts(u: UOp, axis: int, parts: int, apart: bool = False, step: int = 1) -> UOp | None:
  """The reduction ``u`` in at most so many ``parts`` of one size, a multiple of ``step``, along ``axis``. The last one ends with
  elements that change nothing: sum[0](x) of (1000,) -> sum[0](sum[1](pad(x) as (8, 128))). None for what has none of 0 where a
  size is not known."""
  x, fn = u.src[0], u.arg[0]
  n, nothing = x.shape[axis], identity(fn, u.dtype)
  if nothing != 0 and not isinstance(n, int): return None
  size = ix.rounds(n, parts)
  if isinstance(n, int):
    if apart and step == 1 and along_memory(x) == axis: step = block_of(-(-n // parts))
    size = each = -(-n // (parts * step)) * step
    parts = -(-n // each)
  padding = tuple((0, ix.minus(ix.times(size, parts), n)) if d == axis else (0, 0) for d, n in enumerate(x.shape))
  if all(high == 0 for _, high in padding): return _in_parts(u, x, axis, parts, apart)
  padded = movement(Ops.PAD, x, padding)
  if nothing != 0: padded = graph.where(movement(Ops.PAD, graph.const(True, dtypes.bool, x.shape), padding), padded, nothing)
  return _in_parts(u, padded, axis, parts, apart)


def _in_parts(u: UOp, x: UOp, axis: int, parts: int, apart: bool = False) -> UOp:
  """The reduction ``u`` of ``x`` in ``parts``: the partial results get a buffer, then they are reduced. ``apart``: those of one
  part lie side by side, as a program of a block stores them."""
  (fn, axes), x = u.arg, with_axis(x, axis, parts, ix.over(x.shape[axis], parts))
  partial = stored_along(movement(Ops.REDUCE_AXIS, x, (fn, in_parts_along(axes, axis))), axis if apart else 0)
  return graph.reshape(movement(Ops.REDUCE_AXIS, partial, (fn, (axis,))), u.shape)
