"""What a plan takes behind the memory that its graph reads: numbers that may be others in another call, and slices of memory."""
from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary, ref

import numpy as np

from ntgrad.backends import memory_pool as pools
from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import DType, Ops, UOp, dtypes, live_nodes
from ntgrad.graph import BoundInt, Derived
from ntgrad.schedule.buffer_pieces import PART_ALIGN_BYTES, alignment, consecutive
from ntgrad.schedule.placement import offset_of

from .buffer import Buffer, Storage, resolved
from .keeping import Sinks
from .size_templates import NumberNode
from .traced_sizes import traces

_COMMON = 0.0, 0.5, 1.0, 2.0     # floats that stay part of a kernel


def made_of_variables(order: Sequence[UOp]) -> bool:
  """Whether sizes, places or numbers in a graph are made of Variables."""
  for u in order:
    if any([type(n) is BoundInt for n in u.shape]) or type(u.arg) is Derived: return True
    if u.op is Ops.SHRINK or u.op is Ops.UPDATE:
      parts = [arg for op, arg in (u.arg if u.op is Ops.UPDATE else ((u.op, u.arg),)) if op is Ops.SHRINK]
      if any([type(n) is BoundInt for part in parts for ends in part for n in ends]): return True
  return False


def number_nodes(sinks: Sinks, order: list[UOp]) -> dict[int, NumberNode]:
  """What ``_parameter`` finds in a graph, by the number of the node in ``order``."""
  targets = {target.arg.storage for _, target in sinks if target is not None}
  return {i: p for i, u in enumerate(order) if (p := _parameter(u, targets)) is not None}


def _parameter(u: UOp, written: Collection[Storage]) -> NumberNode | None:
  """What another call may well have otherwise in a node (a learning rate, not the 0 of a relu; the place of a write or a slice):
  the node without it, its dtype, and the number; of a slice of memory that is not among what is ``written``, its Buffer."""
  if u.op is Ops.CONST and u.dtype.kind == "f" and (type(u.arg) is Derived or math.isfinite(u.arg) and abs(u.arg) not in _COMMON):
    return ("number", u.dtype), u.dtype, u.arg
  if u.op is Ops.SHRINK:
    part = slice_of(u)
    return None if part is None or part.storage in written else (("slice", u.dtype, u.shape, part.align), u.dtype, part)
  found = offset_of(u) if u.op is Ops.UPDATE else None
  return None if found is None else (("place", u.dtype, found[0]), dtypes.int32, found[1])


def slice_of(u: UOp) -> Buffer | None:
  """A slice of memory whose elements are consecutive as a Buffer of its own, for kernels to read; None for any other node."""
  chain: list[UOp] = []
  while (u := resolved(u)).op in (Ops.SHRINK, Ops.RESHAPE):
    chain.append(u)
    u = u.src[0]
  memory, first = u.arg, 0
  if u.op is not Ops.BUFFER or not memory.size: return None
  for m in chain[::-1]:
    if m.op is Ops.RESHAPE: continue
    if (begin := consecutive(m.src[0].shape, m.arg)) is None: return None
    first += ix.count(begin)   # of memory that there is
  out, size = Buffer(memory.device, chain[0].shape, u.dtype, memory.storage), u.dtype.itemsize
  out.version = memory.version   # stale where the memory is
  out.offset = at = memory.offset + first * size
  if type(at) is not BoundInt: out.align = alignment(at, size)
  else: out.align = PART_ALIGN_BYTES if ix.mod(at.node, PART_ALIGN_BYTES) is ix.ZERO else size   # wherever it is
  return out if out.size else None


# memory of numbers, which no tensor has and nobody writes, and the numbers in words
constants: WeakKeyDictionary[Storage, str] = WeakKeyDictionary()


def number_buffer(device: str, dtype: DType, value: float, shape: tuple[int, ...] = ()) -> Buffer:
  """A number as a buffer of shape (), or (1,). 0.0 and -0.0 are two."""
  return _number_buffer(device, dtype, value, math.copysign(1, value), shape)


@lru_cache(maxsize=4096)
def _number_buffer(device: str, dtype: DType, value: float, sign: float, shape: tuple[int, ...]) -> Buffer:
  made = Buffer.from_numpy(device, np.full(shape, value, dtype.np))
  constants[made.storage] = f"{dtype.name} {value!r}"
  made.storage.writer = ref(number_buffer)   # which writes nothing
  return made


pools.relievers[:0] = [_number_buffer.cache_clear, live_nodes]   # the latter lets go of what an interrupt kept from going


def open_numbers(order: Sequence[UOp], numbers: Mapping[int, NumberNode]) -> dict[int, NumberNode]:
  """What may be other in graphs of one skeleton: whole numbers may come of sizes; a write at a number is one at a size."""
  found: dict[int, NumberNode] = {}
  for i, u in enumerate(order):
    if u.op is Ops.CONST and u.dtype.kind in "iu" and abs(u.arg) > 1: found[i] = ("number", u.dtype), u.dtype, u.arg
    elif i in numbers and u.op is not Ops.UPDATE: found[i] = numbers[i]
  return found


def number_node(u: UOp, device: str, number: NumberNode) -> UOp:
  """The BUFFER that is given for the number of a node."""
  _, dtype, value = number
  return value.node if isinstance(value, Buffer) else number_buffer(device, dtype, value, (1,) if u.op is Ops.UPDATE else ()).node


def given_behind(more: Sequence[Buffer | int], nodes: Sequence[UOp]) -> list[Buffer]:
  """The numbers and slices that a plan takes behind its inputs."""
  return [x if isinstance(x, Buffer) else _slice(nodes[x]) for x in more]


def _slice(u: UOp) -> Buffer:
  found = slice_of(u)
  assert found is not None, f"{u} is no slice of memory"
  return found


def numbers_and_slices(given: Sequence[UOp], sinks: Sinks, order: Sequence[UOp]) -> list[Buffer | int] | None:
  """What every graph with the same structure gives a plan behind its inputs: numbers, and slices by the places of their nodes.
  None where that may be other: slices of what is written are no parameters, and values of Variables are none of the structure."""
  if not given: return []
  if traces or any([target is not None for _, target in sinks]) or made_of_variables(order): return None
  at = {(s.storage, s.offset, s.shape, s.dtype): i for i, u in enumerate(order)
        if u.op is Ops.SHRINK and (s := slice_of(u)) is not None}
  more: list[Buffer | int] = [at.get((b.storage, b.offset, b.shape, b.dtype), -1) if b.storage not in constants else b
                              for b in [u.arg for u in given]]
  return None if -1 in more else more
