"""The verifier's table of the tensor graph."""
from __future__ import annotations

from typing import Any, Callable, Sequence

from .errors import VerifyError
from .spec import combiner_rule, node_line
from .spec_rules import alu_rule, cast_rule, const_rule, names
from .uop import MOVEMENT, Ops, UOp, prod, toposort
from .view import TRANSFORMS


def _graph_alu(u: UOp) -> str | None:
  wrong = alu_rule(u)
  if wrong: return wrong
  shapes = {s.shape for s in u.src}
  return None if len(shapes) == 1 else f"the sources of {u.arg} have one shape, got {' and '.join(map(str, sorted(shapes)))}"


def _pairs(u: UOp, n: int) -> bool:
  return (
    isinstance(u.arg, tuple) and len(u.arg) == n and all(isinstance(p, tuple) and len(p) == 2 and p[0] <= p[1] for p in u.arg)
  )


def _tile_fits(shape: tuple[int, ...], arg: Any) -> bool:
  return (isinstance(arg, tuple) and len(arg) == len(shape) and
          all(len(t) == 3 and min(t) >= 1 and (t[0] - 1) * t[2] < max(n, 1) for t, n in zip(arg, shape)))


def _graph_move(u: UOp) -> str | None:
  """The argument of a movement operation fits the shape it moves."""
  if len(u.src) != 1: return f"{u.op.name} moves one source, got {len(u.src)}"
  s, arg, op = u.src[0].shape, u.arg, u.op
  n = len(s)
  if u.dtype is not u.src[0].dtype: return f"{op.name} keeps the dtype: {u.src[0].dtype} to {u.dtype}"
  fits = True
  if op is Ops.RESHAPE: fits = isinstance(arg, tuple) and all(isinstance(d, int) and d >= 0 for d in arg) and prod(arg) == prod(s)
  elif op is Ops.PERMUTE: fits = isinstance(arg, tuple) and sorted(arg) == list(range(n))
  elif op is Ops.EXPAND: fits = isinstance(arg, tuple) and len(arg) == n and all(a == b or b == 1 for a, b in zip(arg, s))
  elif op is Ops.PAD: fits = isinstance(arg, tuple) and len(arg) == n and all(len(p) == 2 and min(p) >= 0 for p in arg)
  elif op is Ops.SHRINK: fits = _pairs(u, n) and all(0 <= b and e <= d for (b, e), d in zip(arg, s))
  elif op is Ops.FLIP: fits = isinstance(arg, tuple) and len(set(arg)) == len(arg) and all(0 <= a < n for a in arg)
  elif op is Ops.TILE: fits = _tile_fits(s, arg)
  elif op is Ops.UNTILE:
    fits = isinstance(arg, tuple) and len(arg) == 2 and _tile_fits(arg[0], arg[1])
    if fits:
      fits = TRANSFORMS[Ops.TILE][0](arg[0], arg[1]) == s
  return None if fits else f"{op.name} {arg!r} does not fit shape {s}"


def _graph_reduce(u: UOp) -> str | None:
  op, axes = u.arg
  s = u.src[0].shape
  if u.dtype is not u.src[0].dtype: return f"REDUCE_AXIS of {u.src[0].dtype} gives {u.src[0].dtype}, not {u.dtype}: cast first"
  if len(set(axes)) != len(axes) or not all(0 <= a < len(s) for a in axes): return f"REDUCE_AXIS over axes {axes} of shape {s}"
  return combiner_rule(op, u.dtype)


def _graph_gather(u: UOp) -> str | None:
  if len(u.src) != 2: return f"GATHER has a base and an index, got {len(u.src)} sources"
  base, index = u.src
  if not base.shape: return "GATHER needs a base of one dimension or more"
  if index.dtype.kind not in "iu": return f"the index of GATHER is int, got {index.dtype}"
  return None if u.dtype is base.dtype else f"GATHER of {base.dtype} gives {base.dtype}, not {u.dtype}"


def _graph_scatter(u: UOp) -> str | None:
  if len(u.src) != 3: return f"SCATTER has a base, an index and a value, got {len(u.src)} sources"
  base, index, value = u.src
  if (u.arg[0] if isinstance(u.arg, tuple) else u.arg) not in ("set", "add"):
    return f"the arg of SCATTER is 'set' or 'add', got {u.arg!r}"
  if index.dtype.kind not in "iu": return f"the index of SCATTER is int, got {index.dtype}"
  if value.shape != index.shape + base.shape[1:]:
    return f"SCATTER of a value of shape {value.shape}; {index.shape + base.shape[1:]} expected"
  if not u.dtype is base.dtype is value.dtype:
    return f"SCATTER of {value.dtype} into {base.dtype} gives {u.dtype}: one dtype expected"
  return None


def _graph_cat(u: UOp) -> str | None:
  if not u.src: return "CAT of nothing"
  first = u.src[0].shape
  if not isinstance(u.arg, int) or not 0 <= u.arg < len(first): return f"CAT along axis {u.arg!r} of shape {first}"
  for s in u.src[1:]:
    if len(s.shape) != len(first) or any(a != b for d, (a, b) in enumerate(zip(s.shape, first)) if d != u.arg):
      return f"CAT along axis {u.arg} of shapes {first} and {s.shape}"
  if any(s.dtype is not u.dtype for s in u.src): return f"CAT to {u.dtype} of {names(s.dtype for s in u.src)}"
  return None


def _graph_assign(u: UOp) -> str | None:
  if len(u.src) < 2: return f"ASSIGN has a target and a value, got {len(u.src)} sources"
  target, value = u.src[:2]
  beneath = target
  while beneath.op in MOVEMENT or beneath.op in (Ops.ASSIGN, Ops.AFTER): beneath = beneath.src[0]
  if beneath.op not in (Ops.BUFFER, Ops.CONTIGUOUS): return f"ASSIGN to a BUFFER or a view of one, got a view of {beneath.op}"
  if target.shape != value.shape: return f"ASSIGN of shape {value.shape} to {target.shape}"
  return None if target.dtype is value.dtype is u.dtype else f"ASSIGN of {value.dtype} to {target.dtype}"


def _graph_update(u: UOp) -> str | None:
  if len(u.src) not in (2, 3): return f"UPDATE has a base, a value and perhaps an index, got {len(u.src)} sources"
  base, value = u.src[:2]
  part = base.shape
  for op, arg in u.arg:
    if op not in MOVEMENT or op in (Ops.PAD, Ops.EXPAND, Ops.UNTILE):
      return f"UPDATE by {op}; it takes movement that shows no element twice"
    part = TRANSFORMS[op][0](part, arg)
  if len(u.src) == 3:
    if u.src[2].dtype.kind not in "iu": return f"the index of UPDATE is int, got {u.src[2].dtype}"
    part = u.src[2].shape + part[1:]
  if value.shape != part: return f"UPDATE of a value of shape {value.shape}; {part} expected"
  return (
    None
    if u.dtype is base.dtype is value.dtype
    else f"UPDATE of {value.dtype} into {base.dtype} gives {u.dtype}: one dtype expected"
  )


def _graph_after(u: UOp) -> str | None:
  if len(u.src) != 2 or u.src[1].op not in (Ops.ASSIGN, Ops.SCATTER): return "AFTER has memory and an ASSIGN or SCATTER"
  return None if u.dtype is u.src[0].dtype else f"AFTER keeps the dtype: {u.src[0].dtype} to {u.dtype}"


def _graph_same(u: UOp) -> str | None:
  if len(u.src) != 1: return f"{u.op.name} has one source, got {len(u.src)}"
  return None if u.dtype is u.src[0].dtype else f"{u.op.name} keeps the dtype: {u.src[0].dtype} to {u.dtype}"


def _graph_buffer(u: UOp) -> str | None:
  if not hasattr(u.arg, "shape"): return f"the arg of BUFFER is a Buffer, got {u.arg!r}"
  return None if u.dtype is u.arg.dtype else f"a BUFFER node of {u.dtype} on a Buffer of {u.arg.dtype}"


def _graph_iota(u: UOp) -> str | None:
  if isinstance(u.arg, int) and u.arg >= 0 and u.dtype.kind in "iu": return None
  return f"IOTA is an int dtype and a size, got {u.dtype} and {u.arg!r}"


GRAPH: dict[Ops, Callable[[UOp], str | None]] = {
  Ops.CONST: const_rule,
  Ops.ALU: _graph_alu,
  Ops.CAST: cast_rule,
  Ops.BITCAST: cast_rule,
  Ops.BUFFER: _graph_buffer,
  Ops.IOTA: _graph_iota,
  **{op: _graph_move for op in MOVEMENT},
  Ops.REDUCE_AXIS: _graph_reduce,
  Ops.GATHER: _graph_gather,
  Ops.SCATTER: _graph_scatter,
  Ops.CAT: _graph_cat,
  Ops.CONTIGUOUS: _graph_same,
  Ops.DETACH: _graph_same,
  Ops.COPY: _graph_same,
  Ops.ASSIGN: _graph_assign,
  Ops.UPDATE: _graph_update,
  Ops.AFTER: _graph_after,
  Ops.CUSTOM: lambda u: None,
}


def verify_graph(roots: Sequence[UOp]) -> None:
  """Check a tensor graph. Raises VerifyError with the rule broken and the node's line in the listing of the graph."""
  nodes = toposort(roots)
  for i, u in enumerate(nodes):
    rule = GRAPH.get(u.op)
    wrong = f"{u.op} does not belong in the tensor graph" if rule is None else \
      f"{u.op.name} has dtype {u.dtype}: the tensor graph has scalar dtypes" if u.dtype.count != 1 else rule(u)
    if wrong is not None: raise VerifyError(f"tensor graph: {wrong}\n{node_line(nodes, i)}")
