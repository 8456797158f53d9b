"""Index tensors, which must lie inside a dimension: what is known of an index before it is computed, and the mark for the others.

The mark is a DETACH over the index, whose arg says what it may be. Where a value above it is computed, one small kernel more
notes the last element that is outside (``notes``), and the error is raised where the host next waits. An index whose bounds are
known to be inside gets no mark: constants, ``arange``, ``argmax``, ``randint``, a clamped one, one of a dtype that holds no more,
and one that came from the host (``Buffer.between``). """
from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Callable, NamedTuple, Sequence

from ntgrad.codegen.index.algebra import between
from ntgrad.codegen.ir import (
  MOVEMENT,
  ArgumentError,
  BinaryOps,
  IndexOutOfRangeError,
  NtgradError,
  Ops,
  TernaryOps,
  UOp,
  config,
  dtypes,
  prod,
)
from ntgrad.graph import Alias, nodes as graph, origins

from .device import default_device
from .device_asserts import WORD_VALUES, Check, Checks, make_checks

Interval = tuple[int, int]
_DEEP = 48             # nodes beneath each other that are looked at
_ONE = 16384           # elements of an index that one program looks through; of more each of CHECK_PROGRAMS takes its share
CHECK_PROGRAMS = 64    # programs that look through a long index
_SITES = 4             # calls with one index that are named


class Site(NamedTuple):
  """What an error says of an index: the user's function, what the index is outside of, the user's line; or another sentence, with
  ``{value}`` for the index. A ``float`` index is one whose bits are the index."""
  name: str
  of: str
  place: str
  said: str = ""
  error: type[NtgradError] = IndexOutOfRangeError
  float: bool = False


# ---- the mark
def checks_indices(device: str | None) -> bool:
  """Whether ``config.check_indices`` asks for checks on a device."""
  on = config.check_indices
  return bool(on) if on != "auto" else (device or default_device()).partition(":")[0] in ("CPU", "NUMPY")


def within(u: UOp, low: int, end: int, name: str, of: str, device: str | None, ignore: int | None = None,
           said: str = "") -> UOp:
  """An index that must be from ``low`` to ``end - 1`` or ``ignore``, marked if that has to be checked when it is computed.
  ``name`` is the operation that checks it; what the user called is found (``origins.called``). ``of`` says what it is outside of
  otherwise: "dimension 0 of a tensor of shape (2, 3), which has 2 elements"; ``said`` is a whole sentence instead, with
  ``{value}`` for the index. Raises IndexOutOfRangeError for a number that is outside."""
  if not prod(u.shape) or not checks_indices(u.device or device): return u
  lo, hi = value_bounds(u)
  if low <= lo and hi < end or lo == hi == ignore: return u
  if graph.const_value(u) is not None:
    raise index_error(name, said.format(value=lo) if said else f"index {lo} is outside {of}")
  return _marked(u, device, (low, end, ignore, None if u.device else device), name, of, said)


def _marked(u: UOp, device: str | None, limits: tuple[Any, ...], name: str, of: str, *more: Any) -> UOp:
  """A mark that knows where it is from: one index of several calls is one node."""
  mark = graph.make(Ops.DETACH, u.dtype, (u,), ("index", *limits), u.shape, u.device or device)
  name, place = origins.called(name)
  site, known = Site(name, of, place, *more), mark.note or ()
  if site not in known: mark.note = *known[-_SITES + 1:], site
  return mark


def index_error(name: str, what: str) -> IndexOutOfRangeError:
  """The error for an index that is known now, of what the user called."""
  return IndexOutOfRangeError(f"{origins.called(name)[0]}: {what}")


def floats_within(u: UOp, low: float, high: float, name: str, said: str) -> UOp:
  """Floats that must be from ``low`` to ``high``, in a way that has them checked when they are computed; ``said`` is the sentence
  with ``{value}`` and ``{element}``. Raises ArgumentError for a number that is outside."""
  if not prod(u.shape) or not checks_indices(u.device): return u
  if (number := graph.const_value(u)) is not None:
    if not low <= number <= high: raise ArgumentError(f"{name}: {said.format(value=number, element='every place')}")
    return u
  fits = graph.and_(graph.le(low, u), graph.le(u, high))
  outside = graph.seen_as(graph.cast(graph.detach(u), dtypes.float32), dtypes.int32)   # its bits, which are not those of 0
  mark = _marked(graph.where(fits, 0, outside), u.device, (0, 1, None, None), name, "", said, ArgumentError, True)
  return graph.where(graph.eq(mark, 0), u, math.nan)


def notes(u: UOp, parts: int) -> UOp:
  """For a marked index, int64 of shape (parts,): 0 where all of it is inside, else the note of the last element that is not."""
  (_, low, end, ignore, _), d, n = u.arg, u.dtype, prod(u.shape)
  index = graph.reshape(u.src[0], (n,))
  bad = graph.lt(index, low) if low > dtypes.min(d) else graph.le(end, index)
  if dtypes.min(d) < low and end <= dtypes.max(d): bad = graph.or_(bad, graph.le(end, index))
  if ignore is not None: bad = graph.and_(bad, graph.ne(index, ignore))
  if d.itemsize == 8 or d is dtypes.uint32:   # the nearest of 32 bits
    if d.kind == "i": index = graph.maximum(index, dtypes.min(dtypes.int32))
    index = graph.minimum(index, dtypes.max(dtypes.int32))
  index = graph.cast(index, dtypes.int32)
  each = -(-n // parts)
  def split(x: UOp) -> UOp: return graph.reshape(graph.pad(x, [(0, parts * each - n)]), (parts, each))
  bad, index, numbers = map(split, (bad, index, graph.add(graph.iota(n), 1)))
  # two reductions of 32 bits are faster than one of 64: which is the last, and what it is
  last = graph.reduce(BinaryOps.MAX, graph.where(bad, numbers, 0), (1,))
  there = graph.eq(numbers, graph.expand(last, bad.shape))
  least = graph.const(dtypes.min(dtypes.int32), dtypes.int32, bad.shape)
  value = graph.reduce(BinaryOps.MAX, graph.where(there, index, least), (1,))
  note = graph.add(graph.mul(graph.cast(last, dtypes.int64), WORD_VALUES),
                   graph.cast(graph.cast(value, dtypes.uint32), dtypes.int64))
  return graph.reshape(graph.where(graph.eq(last, 0), 0, note), (parts,))


@lru_cache(maxsize=1024)
def _checks(device: str, sites: tuple[Site, ...], shape: tuple[int, ...]) -> Checks:
  """The checks of marked indices: an Alias has the memory that their notes go to."""
  names, ofs, places = [list(dict.fromkeys(each)) for each in zip(*[s[:3] for s in sites])]
  at, of = ", ".join(places), " and ".join(ofs).replace("{", "{{").replace("}", "}}")
  text = f"index {{value}} is outside {of} ({at}); last at {{element}} of the index, of shape {shape}"
  last = sites[-1]
  if last.said: text = f"{last.said} ({at})"
  check = Check(text, shape, "f" if last.float else "i", last.error)
  found, memory = make_checks(", ".join(names), device, (check,), 1 if prod(shape) <= _ONE else CHECK_PROGRAMS)
  found.owner = Alias(memory.node)
  return found


def look_through(marked: Sequence[UOp], checked: dict[UOp, Checks]) -> list[Alias]:
  """Have the notes of marked indices made, too: the Aliases that are written for it. ``checked`` gets the checks."""
  out = []
  for u in marked:
    whole = f"its dimension, which goes from {u.arg[1]} to {u.arg[2] - 1}"
    checked[u] = _checks(u.device or default_device(), u.note or (Site("index", whole, "an index"),), u.shape)
    a: Alias = checked[u].owner
    a.write(graph.maximum(a.node, notes(u, *a.node.shape)), "a check of indices")
    out.append(a)
  return out


# ---- bounds
def value_bounds(u: UOp, memory: bool = True) -> Interval:
  """The least and greatest that an int of the graph can be, as far as its nodes (at most ``_DEEP`` back) and, with ``memory``,
  what lies in memory now tell; else what the dtype holds."""
  known: dict[UOp, Interval] = {}
  todo = [(u, 0, False)]
  while todo:
    node, deep, after_sources = todo.pop()
    if node in known: continue
    if node.dtype.kind not in "iu" or deep >= _DEEP or node.op is Ops.BUFFER and not memory: known[node] = _held(node)
    elif after_sources:
      held, found = _held(node), _bounds(node, lambda s: known.get(s) or _held(s))
      known[node] = found if found is not None and held[0] <= found[0] and found[1] <= held[1] else held
    else:
      todo.append((node, deep, True))
      todo += [(s, deep + 1, False) for s in node.src if s not in known]
  return known[u]


def _held(u: UOp) -> Interval:
  """What a dtype holds; of floats, more than any int."""
  if u.dtype.kind == "b": return 0, 1
  return (int(dtypes.min(u.dtype)), int(dtypes.max(u.dtype))) if u.dtype.kind in "iu" else (-WORD_VALUES ** 2, WORD_VALUES ** 2)


def _bounds(u: UOp, of: Callable[[UOp], Interval]) -> Interval | None:
  """What ``value_bounds`` says of a node, given what it says of others."""
  op, x = u.op, u.src[0] if u.src else u
  if op is Ops.CONST: return int(u.arg), int(u.arg)
  if op is Ops.BUFFER: return u.arg.between[1:] if u.arg.between is not None and u.arg.between[0] == u.arg.version else None
  if op is Ops.IOTA: return 0, max(u.arg - 1, 0)
  if op is Ops.CAST: return of(x) if x.dtype.kind in "iub" else None
  if op in MOVEMENT or op is Ops.GATHER:
    return _hull(of(x), (0, 0)) if op in (Ops.PAD, Ops.UNTILE, Ops.GATHER) else of(x)
  if op is Ops.DETACH and u.arg is not None:   # checked already
    _, low, end, ignore, _ = u.arg
    lo, hi = of(x)
    if ignore is not None: low, end = min(low, ignore), max(end, ignore + 1)
    return (max(lo, low), min(hi, end - 1)) if lo < end and hi >= low else None
  if op in (Ops.DETACH, Ops.CONTIGUOUS, Ops.COPY): return of(x)
  if op is Ops.CAT: return _hull(*map(of, u.src))
  if op is Ops.REDUCE_AXIS:
    fn, axes = u.arg
    if fn is BinaryOps.ADD: return between(BinaryOps.MUL, *of(x), *[prod([x.shape[a] for a in axes])] * 2)
    if fn not in (BinaryOps.MAX, BinaryOps.MIN) or not prod(x.shape): return None
    if fn is BinaryOps.MAX and x.arg is TernaryOps.WHERE and _holds_somewhere(x.src[0], axes):   # argmax
      return of(x.src[1])[0], max(of(x.src[1])[1], of(x.src[2])[1])
    return of(x)
  if op is not Ops.ALU: return None
  if u.arg is TernaryOps.WHERE:
    (a, b), (c, d) = of(u.src[1]), of(u.src[2])
    less = x.arg is BinaryOps.CMPLT
    if less and x.src == u.src[1:]: return min(a, c), min(b, d)         # a if a < b else b
    if less and x.src == u.src[:0:-1]: return max(a, c), max(b, d)      # b if a < b else a: clamp
    return min(a, c), max(b, d)
  return between(u.arg, *of(x), *of(u.src[1])) if len(u.src) == 2 else None


def _hull(*each: Interval) -> Interval:
  """What covers all of them."""
  return min(lo for lo, _ in each), max(hi for _, hi in each)


def _holds_somewhere(c: UOp, axes: Any) -> bool:
  """Whether a condition is ``x == max(x)`` along axes, or that x is not a number."""
  if c.op is Ops.ALU and c.arg is BinaryOps.OR: c = c.src[0]
  if c.op is not Ops.ALU or c.arg is not BinaryOps.CMPEQ: return False
  x, best = c.src
  if best.op is Ops.EXPAND: best = best.src[0]
  return best.op is Ops.REDUCE_AXIS and best.src[0] is x and best.arg in ((BinaryOps.MAX, axes), (BinaryOps.MIN, axes))


# ---- classes
def known_class(name: str, u: UOp, n: int, ignore: int | None = None) -> None:
  """Raises IndexOutOfRangeError if class indices are a constant that is no class (others are known when they are computed)."""
  v = graph.const_value(u)
  if v is not None and 0 not in u.shape and v != ignore and not 0 <= v < n: raise no_class(name, v, n)


def no_class(name: str, v: Any, n: int) -> IndexOutOfRangeError:
  """The error for a number that is none of n classes."""
  return index_error(name, f"class {v} of {n}; classes go from 0 to {n - 1}")
