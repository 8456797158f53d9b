"""The verifier's table of the tensor graph."""
# ruff: noqa: F403, F405 - what rules are made of is rules.py's
from __future__ import annotations

from typing import Any, Callable, Sequence

from .. import index as ix
from ..index import TRANSFORMS, Shape, nested_text, shape_text
from ..ir import MOVEMENT, Ops, UOp, toposort
from .rules import *

# sizes may be expressions of run-time sizes: what is not known to be wrong may be right

def _alike(a: Shape, b: Shape) -> bool: return len(a) == len(b) and all(map(ix.may_equal, a, b))
def _natural(n: Any) -> bool: return n >= 0 if isinstance(n, int) else isinstance(n, UOp) and ix.vmax(n) >= 0
def _most(a: ix.Dim, b: ix.Dim) -> bool: return ix.vmin(ix.node(ix.minus(a, b))) <= 0   # a <= b


def _same_shapes(u: UOp) -> str | None:
  first, *others = dict.fromkeys(s.shape for s in u.src)
  return None if all(_alike(first, s) for s in others) else \
    f"the sources of {u.arg} have one shape, got {' and '.join(map(shape_text, (first, *others)))}"


def _tiles(shape: Shape, arg: Any) -> bool:
  return len(arg) == len(shape) and all(
    len(t) == 3 and min(t) >= 1 and (t[0] - 1) * t[2] < max(ix.vmax(ix.node(n)), 1) for t, n in zip(arg, shape))


_FITS: dict[str, Callable[[Shape, Any], bool]] = dict(   # whether a tuple is the arg of a movement of a shape
  RESHAPE=lambda s, a: all(map(_natural, a)) and ix.may_equal(ix.product(a), ix.product(s)),
  PERMUTE=lambda s, a: sorted(a) == list(range(len(s))),
  EXPAND=lambda s, a: len(a) == len(s) and all(n == 1 or ix.may_equal(n, m) for m, n in zip(a, s)),
  PAD=lambda s, a: len(a) == len(s) and all(len(p) == 2 and all(map(_natural, p)) for p in a),
  SHRINK=lambda s, a: len(a) == len(s) and all(
    len(p) == 2 and _natural(p[0]) and _most(*p) and _most(p[1], n) for p, n in zip(a, s)),
  FLIP=lambda s, a: len(set(a)) == len(a) and all(0 <= d < len(s) for d in a),
  TILE=_tiles,
  UNTILE=lambda s, a: len(a) == 2 and _tiles(*a) and _alike(TRANSFORMS[Ops.TILE].shape(*a), s))


def _moves(u: UOp) -> str | None:
  """The argument of a movement operation fits the shape it moves."""
  s = u.src[0].shape
  return None if isinstance(u.arg, tuple) and _FITS[u.op.name](s, u.arg) else \
    f"{u.op.name} {nested_text(u.arg, repr)} does not fit shape {shape_text(s)}"


def _reduces(u: UOp) -> str | None:
  op, axes = u.arg
  s = u.src[0].shape
  if len(set(axes)) != len(axes) or not all(0 <= a < len(s) for a in axes): return f"REDUCE_AXIS over axes {axes} of shape {s}"
  return combiner_rule(op, u.dtype)


def _scans(u: UOp) -> str | None:
  fn, axis, reverse, *every = u.arg
  s = u.src[0].shape
  if not isinstance(axis, int) or not 0 <= axis < len(s) or not isinstance(reverse, bool):
    return f"SCAN_AXIS along axis {axis!r}, reverse {reverse!r}, of shape {shape_text(s)}"
  if any(not isinstance(n, int) or n < 1 for n in every): return f"SCAN_AXIS starts anew after {every[0]!r} elements"
  return combiner_rule(fn, u.dtype)


def _sorts(u: UOp) -> str | None:
  axis, low, high, keep = u.arg[:4]
  s = u.src[0].shape
  if u.dtype.kind != "u": return f"SORT_AXIS sorts unsigned ints, got {u.dtype}"
  if not 0 <= axis < len(s) or keep and isinstance(s[axis], int) and keep > s[axis]:
    return f"SORT_AXIS along axis {axis}, the first {keep}, of shape {shape_text(s)}"
  return None if 0 <= low < high <= 8 * u.dtype.itemsize else f"SORT_AXIS by bits {low} to {high} of {u.dtype}"


def _indices(end: int | None) -> Rule:
  """Ints of one shape from the second source to before ``end``, one for each of the base's first dims."""
  def rule(u: UOp) -> str | None:
    base, index = u.src[0].shape, u.src[1:end]
    if len(index) > len(base): return f"{u.op.name} by {len(index)} indices needs a base of as many dimensions, got {len(base)}"
    if any(not _alike(i.shape, index[0].shape) for i in index): return f"the indices of {u.op.name} have one shape"
    return next((wrong for i in index if (wrong := int_dtype(f"the index of {u.op.name}", i))), None)
  return rule


def _value(u: UOp, value: UOp, shape: Shape) -> str | None:
  return None if _alike(value.shape, shape) else \
    f"{u.op.name} of a value of shape {shape_text(value.shape)}; {shape_text(shape)} expected"


def _joins(u: UOp) -> str | None:
  if not u.src: return "CAT of nothing"
  first, axis = u.src[0].shape, u.arg
  if not isinstance(axis, int) or not 0 <= axis < len(first): return f"CAT along axis {axis!r} of shape {first}"
  for s in u.src[1:]:
    if len(s.shape) != len(first) or any(not ix.may_equal(a, b) for d, (a, b) in enumerate(zip(s.shape, first)) if d != axis):
      return f"CAT along axis {axis} of shapes {first} and {s.shape}"
  return None


def _assigns(u: UOp) -> str | None:
  target, value = u.src[:2]
  beneath = target
  while beneath.op in MOVEMENT or beneath.op in (Ops.ASSIGN, Ops.AFTER): beneath = beneath.src[0]
  if beneath.op not in (Ops.BUFFER, Ops.CONTIGUOUS): return f"ASSIGN to a BUFFER or a view of one, got a view of {beneath.op}"
  return _value(u, value, target.shape)


def _updates(u: UOp) -> str | None:
  part: Shape = u.src[0].shape
  for op, arg in u.arg:
    if op not in MOVEMENT or op in (Ops.PAD, Ops.EXPAND, Ops.UNTILE):
      return f"UPDATE by {op}; it takes movement that shows no element twice"
    part = TRANSFORMS[op].shape(part, arg)
  if len(u.src) == 3:
    if wrong := int_dtype("the index of UPDATE", u.src[2]): return wrong
    part = u.src[2].shape + part[1:]
  return _value(u, u.src[1], part)


GRAPH = op_rules(VALUES, dict.fromkeys(MOVEMENT, all_of(same_dtype, _moves)),
  ALU=(alu_rule, _same_shapes),
  BUFFER=(lambda u: None if hasattr(u.arg, "shape") else f"the arg of BUFFER is a Buffer, got {u.arg!r}",
    lambda u: None if u.dtype is u.arg.dtype else f"a BUFFER node of {u.dtype} on a Buffer of {u.arg.dtype}"),
  CONTIGUOUS=same_dtype, DETACH=same_dtype, COPY=same_dtype,
  IOTA=(argument(_natural, "a size >= 0"), no_sources, lambda u: int_dtype("IOTA", u)),
  REDUCE_AXIS=(same_dtype, _reduces),
  SCAN_AXIS=(same_dtype, argument(lambda a: tuple_of(a, 3, 4), "(combiner, axis, reverse)"), _scans),
  SORT_AXIS=(same_dtype, argument(lambda a: tuple_of(a, 4, 5) and fields(a[:4], int, int, int, int), "(axis, bits, keep)"),
    _sorts),
  GATHER=(
    lambda u: None if len(u.src) > 1 else f"GATHER has a base and an index for each of its first dimensions, got {len(u.src)}",
    _indices(None), one_dtype(0)),
  SCATTER=(lambda u: None if len(u.src) > 2 else f"SCATTER has a base, indices and a value, got {len(u.src)}",
    argument(lambda a: (a[0] if isinstance(a, tuple) else a) in ("set", "add"), "'set' or 'add'"), _indices(-1),
    lambda u: _value(u, u.src[-1], u.src[1].shape + u.src[0].shape[len(u.src) - 2:]), one_dtype(0, -1)),
  CAT=(_joins, one_dtype()),
  ASSIGN=(source_count(2, "a target and a value", ANY), _assigns, one_dtype(0, 1)),
  UPDATE=(source_count(2, "a base, a value and perhaps an index", 3), _updates, one_dtype(0, 1)),
  AFTER=(source_count(2, "memory and an effect"), lambda u: None if u.src[1].op in (Ops.ASSIGN, Ops.SCATTER, Ops.LAUNCH) else
    f"AFTER comes after an ASSIGN, SCATTER or LAUNCH, got {u.src[1].op}", one_dtype(0)),
  CALL=(argument(lambda a: tuple_of(a, 3), "(launcher, position, positions of empty memory)"),
    lambda u: None if 0 <= u.arg[1] < len(u.src) - 1 else f"CALL of argument {u.arg[1]}, of {len(u.src) - 1}",
    lambda u: None if _alike(u.src[0].shape, u.src[1 + u.arg[1]].shape) else
    f"CALL of argument {u.arg[1]}, whose shape is another", one_dtype(0)),
  LAUNCH=(argument(lambda a: tuple_of(a, 5), "(launcher, position, positions, call, number)"), one_dtype(0)),
  SLOPED=(source_count(2, "a value and what it is made from", ANY), one_dtype(), _same_shapes),
  CUSTOM=lambda u: None, APPLY=lambda u: None,   # whose args are their makers'
  OUTPUT=lambda u: None if len(u.src) == 1 and u.src[0].op is Ops.APPLY else "OUTPUT is of an APPLY")


def verify_graph(roots: Sequence[UOp]) -> None:
  """Check a tensor graph. Raises VerifyError with the rule broken and the node's line in the listing of the graph."""
  verify(toposort(roots), "tensor graph", lambda u: None if u.dtype.count == 1 else
         f"{u.op.name} has dtype {u.dtype}: the tensor graph has scalar dtypes", by_op(GRAPH, "the tensor graph"))
