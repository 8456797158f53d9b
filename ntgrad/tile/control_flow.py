"""Values that decide what an application does next: ranges, conditions, and Python's own functions on blocks."""
from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Callable, Iterable, Mapping, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import ApplicationError, BinaryOps, DType, Ops, UOp, dtypes, promote
from ntgrad.codegen.ir.nested import fold_tree
from ntgrad.graph.symbol import Symbol, maximum, minimum

from . import block as _b
from .block import BlockValue, DimSize, as_index, block, block_binary, block_cast, is_value, one, truth
from .parameters import SourceTensor, Tile
from .python_source import Closure
from .trace import LocalArray, reads

# ---- what a loop counts
_Rounds = tuple[Any, Callable[[UOp], Any]]


@dataclass(frozen=True)
class Range:
  """``range`` of numbers that may be known only when the kernel runs."""
  start: Any
  stop: Any
  step: Any

  def steps(self) -> _Rounds:
    """How many rounds (an int, or an index expression), and what the counter is in round ``k``."""
    start, stop, step = self.start, self.stop, self.step
    if _known(start, stop, step):   # so is a counter, where its round is
      return len(range(start, stop, step)), lambda k: (
        int(u.arg) if (u := ix.add(ix.mul(k, step), start)).op is Ops.CONST else BlockValue(u))
    if not _known(step) or step == 0:
      raise ApplicationError("range: the step is a number other than 0 that is known while reading")
    ends = [block(x) for x in (start, stop)]
    if bad := [b.shape for b in ends if not all(map(one, b.shape))]:
      raise ApplicationError(f"a single number is wanted, got a block of shape {bad[0]}")
    first, last = (as_index(b.value) for b in ends)
    end = ix.fdiv(ix.add(ix.sub(last, first) if step > 0 else ix.sub(first, last), abs(step) - 1), abs(step))
    if ix.of_sizes(end): end = ix.greatest(end, 0)
    return ix.number(end), lambda k: BlockValue(ix.add(ix.mul(k, step), first))


def tiles_of(level: Tile) -> _Rounds:
  """The tiles of a level, along its first dimension, as ``Range.steps`` has numbers."""
  if level.ndim != 1:
    raise ApplicationError(f"{level!r} has a level of shape {level.shape}: loop over its dimensions and index it")
  n = level.shape[0]
  return n.node if isinstance(n, Symbol) else n, lambda k: level[BlockValue(k)]


def most(end: UOp) -> int | UOp:
  """How many rounds a loop has at most, where that depends on what the kernel computes."""
  upper = ix.end_of(end, True) if ix.has_sizes(end) else None
  return min(max(ix.vmax(end), 1), (1 << 31) - 1) if upper is None else ix.number(ix.greatest(upper, 1))


def _known(*xs: Any) -> bool: return not any(computed(x) or isinstance(x, Symbol) for x in xs)


def make_range(*args: Any) -> Any:
  """range, also of numbers that the kernel computes."""
  if not 1 <= len(args) <= 3: raise ApplicationError(f"range: takes 1 to 3 numbers, got {len(args)}")
  start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
  return range(start, stop, step) if _known(start, stop, step) else Range(start, stop, step)


def extreme(fn: BinaryOps, native: Callable[..., Any]) -> Callable[..., Any]:
  """Python's min or max, also of blocks."""
  def call(*xs: Any) -> Any:
    items = xs if len(xs) > 1 else tuple(xs[0]) if xs else ()
    if not items: raise ApplicationError(f"{native.__name__}: the {native.__name__} of nothing")
    if _known(*items): return native(items)
    if not any(map(computed, items)): return reduce(minimum if fn is BinaryOps.MIN else maximum, items)
    return reduce(lambda a, b: block_binary(fn, a, b), items)
  return call


def native_int(x: Any = 0, *base: Any) -> Any:
  """Python's int, also of blocks."""
  if computed(x): return block_cast(x, dtypes.int32) if block(x).dtype.kind == "f" else x
  return x if isinstance(x, Symbol) else int(x, *base)


NATIVE: dict[Any, Any] = {   # Python's own functions, also of blocks
  range: make_range, min: extreme(BinaryOps.MIN, min), max: extreme(BinaryOps.MAX, max), int: native_int,
  float: lambda x=0.0: float(x) if _known(x) else block_cast(x, dtypes.float32),
  bool: lambda x=False: truth(x) if computed(x) else bool(x), sum: lambda xs, start=0: reduce(operator.add, xs, start)}


# ---- helpers

def computed(x: Any) -> bool:
  """Whether a value is computed by the kernel (or holds one that is)."""
  stack = [x]
  while stack:
    x = stack.pop()
    if isinstance(x, (tuple, list)): stack.extend(x)
    elif is_value(x) or isinstance(x, (Range, Closure, SourceTensor)): return True
  return False


def can_be_variable(x: Any) -> bool:
  """Whether something can be held by a variable."""
  if isinstance(x, Tile): return x.innermost
  return is_value(x) or isinstance(x, (bool, int, float, Symbol)) and not isinstance(x, DType)


def carried(names: Iterable[str], values: Mapping[str, Any]) -> dict[str, Any]:
  """The numbers and blocks that names have, those in tuples as ``t[0]``; without names of which a part is neither."""
  out: dict[str, Any] = {}
  for name in names:
    stack, found = [(name, values[name])], dict[str, Any]()
    while stack:
      at, x = stack.pop()
      if isinstance(x, tuple): stack.extend((f"{at}[{i}]", part) for i, part in reversed(list(enumerate(x))))
      elif can_be_variable(x): found[at] = x
      else: break
    else: out |= found
  return out


def names_of(parts: Iterable[str]) -> list[str]:
  """The names of which ``carried`` has parts."""
  return list(dict.fromkeys(p.partition("[")[0] for p in parts))


def with_parts(values: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
  """What names stand for with ``parts``, as ``carried`` has them, in the place of their numbers and blocks."""
  def made(at: tuple[str, Any], inside: list[Any]) -> Any:
    name, x = at
    return parts[name] if not isinstance(x, tuple) else type(x)(*inside) if hasattr(x, "_fields") else tuple(inside)

  def inside(at: tuple[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{at[0]}[{i}]", x) for i, x in enumerate(at[1])] if isinstance(at[1], tuple) else []

  return {n: fold_tree((n, values[n]), inside, made) for n in names_of(parts)}


def boolean(fn: BinaryOps, a: Any, b: Any) -> Any:
  """``a and b`` (AND), or ``a or b`` (OR), also of blocks."""
  if not computed(a): return b if bool(a) is (fn is BinaryOps.AND) else a
  if not computed(b): return a if bool(b) is (fn is BinaryOps.AND) else b
  return block_binary(fn, truth(a), truth(b))


def known_equal(a: Any, b: Any) -> bool:
  """Whether two values are known to be equal."""
  if a is b: return True
  if isinstance(a, Tile) and isinstance(b, Tile) and not a.innermost:
    return a._parameter is b._parameter and a._indices == b._indices
  if isinstance(a, BlockValue) and isinstance(b, BlockValue): return a.value is b.value and a.axes == b.axes
  return type(a) is type(b) and not computed(a) and bool(a == b)


def pairs_of(pair: tuple[Any, Any]) -> Sequence[tuple[Any, Any]]:
  """The pairs among two tuples or lists of one length, unless they are known to be equal."""
  a, b = pair
  if not isinstance(a, (tuple, list)) or not isinstance(b, (tuple, list)) or len(a) != len(b) or known_equal(a, b): return ()
  return list(zip(a, b))


def alike(a: Any, b: Any) -> bool:
  """Whether the kernel can choose between two values: numbers or blocks, or tuples and lists of them that are alike."""
  stack = [(a, b)]
  while stack:
    pair = a, b = stack.pop()
    if known_equal(a, b): continue
    parts = pairs_of(pair)
    if type(a) is not type(b) if parts else not (can_be_variable(a) and can_be_variable(b)): return False
    stack.extend(parts)
  return True


def each(a: Any, b: Any, choose: Callable[[Any, Any], Any]) -> Any:
  """Values that are alike, with what ``choose`` makes of each two numbers or blocks in them that may differ."""

  def made(pair: tuple[Any, Any], parts: list[Any]) -> Any:
    return type(pair[0])(parts) if parts else pair[0] if known_equal(*pair) else choose(*pair)

  return fold_tree((a, b), pairs_of, made)


def select_value(condition: BlockValue, a: Any, b: Any) -> Any:
  """``a`` or ``b``, as a condition decides that the kernel computes."""
  def choose(a: Any, b: Any) -> Any:
    if can_be_variable(a) and can_be_variable(b): return _b.block_where(condition, a, b)
    raise ApplicationError(f"{a!r} or {b!r}, as a condition decides that is known only when the kernel runs; both must be "
                           "numbers or blocks")

  return each(a, b, choose)


def common_dtype_shape(*values: Any) -> tuple[DType, tuple[DimSize, ...]]:
  """The dtype and shape of a variable that holds any of the values."""
  blocks = [block(v) for v in values]
  found = [b.dtype if is_value(v) else dtypes.of(int if isinstance(v, Symbol) else type(v)) for b, v in zip(blocks, values)]
  strong = [d for d, v in zip(found, values) if is_value(v)]
  d = promote(*found) if len(strong) != 1 or promote(*found).kind != strong[0].kind else strong[0]
  return d, _b.broadcast_shapes("value", *(b.shape for b in blocks))


def accumulations(variables: Mapping[str, LocalArray], initial: Mapping[str, Any], updates: Mapping[str, UOp],
                  k: UOp) -> dict[str, Any] | None:
  """A loop that only adds to (or takes the greatest with) what each variable held is a reduction over its axis."""
  out: dict[str, Any] = {}
  for n, v in variables.items():
    u, held, first = updates[n], v.block.value, initial[n]
    if u is held:
      out[n] = first
      continue
    fn = u.arg
    if u.op is not Ops.ALU or fn not in (BinaryOps.ADD, BinaryOps.MAX, BinaryOps.MIN) or held not in u.src: return None
    part = u.src[u.src[0] is held]
    if any(reads(part, w) for w in variables.values()): return None
    ids = k.arg[:1]
    if part.op is Ops.REDUCE and part.arg[0] is fn: part, ids = part.src[0], ids + part.arg[1]
    if k not in part.ranges: return None
    total = BlockValue(UOp(Ops.REDUCE, part.dtype, (part,), (fn, ids)), v.axes)
    zero = fn is BinaryOps.ADD and (b := block(first)).value.op is Ops.CONST and b.value.arg == 0
    out[n] = total if zero else block_binary(fn, block_cast(first, part.dtype) if is_value(first) else first, total)
  return out
