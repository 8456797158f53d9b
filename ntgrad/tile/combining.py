"""Reductions and scans by any function, which is read as the application is: once, of one element of each block."""
from __future__ import annotations

from typing import Any, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import ApplicationError, DType, DTypeError, Ops, ShapeError, TernaryOps, UOp, dtypes, promote, toposort
from ntgrad.codegen.kernel import Fold, gate_or_true

from . import block as _b
from .block import BlockValue, axis_number, block, one, plain_value, tracer


def reduce(input: Any, axis: int | None, combine_fn: Any, keep_dims: Any = False) -> Any:
  """All elements along an axis (None: all there are, row by row) combined by a function, in their order: (m, n) -> (m).

  ``combine_fn(a, b)`` gives what ``a``, of the elements so far, and the next one, ``b``, combine to. Of a tuple of n blocks of
  one shape it takes 2 n values, ``(a0, a1, b0, b1)``, and gives n, and there are n results. It must be associative: neighbours
  may be combined first. What lies outside of a tensor that has no ``other`` takes no part.

  Raises AxisError, ShapeError, DTypeError (of a result that is no value of its block's dtype), ApplicationError (for a function
  that does more than compute values of its arguments).
  """
  return _combined("reduce", input, axis, combine_fn, keep_dims=keep_dims)


def associative_scan(input: Any, axis: int, combine_fn: Any, reverse: Any = False) -> Any:
  """What the elements up to each one along an axis combine to; with ``reverse`` from the end: (m, n) -> (m, n). The function is
  as ``reduce`` has it, also for a tuple of blocks, and so are the errors."""
  return _combined("associative_scan", input, axis, combine_fn, True, True if reverse else False)


def _combined(name: str, input: Any, axis: int | None, fn: Any, scan: bool = False, reverse: bool = False,
              keep_dims: Any = False) -> Any:
  several = isinstance(input, (tuple, list))
  if several and not input: raise ShapeError(f"{name}: a block, or a tuple of some, got {input!r}")
  values, axes = _b.unify(name, *map(block, input if several else (input,)))
  ndim = len(axes)
  if axis is None and not scan:
    values, axes = _b.unify(name, *[_b.block_reshape(BlockValue(u, axes), (-1,)) for u in values])
    at = 0
  else: at = axis_number(name, axis, ndim)
  values, along = [plain_value(u) for u in values], axes[at]
  f = _function(name, fn, [u.dtype for u in values], several)
  out = axes if scan else (None,) * ndim if axis is None and keep_dims else (
    *axes[:at], *(None,) * bool(keep_dims), *axes[at + 1:])
  if along is None: found = values
  else:
    t, there = tracer(), _there(values, along)
    read = values if there is ix.TRUE else [there, *values]
    variables = [t.variable(u.dtype, (), axes) for u in read]
    for v, u in zip(variables, read): t.assign(v, u)
    left = axes if scan else tuple(a for a in axes if a is not along)
    to = [t.variable(u.dtype, (), left) for u in values]
    f = f._replace(shape=variables[0].uop.arg[1], axis=sum(a is not None for a in axes[:at]), scan=scan, reverse=reverse)
    t.state(UOp.unique(Ops.FOLD, dtypes.bool, tuple(v.uop for v in (*variables, *to)),
                       f if there is ix.TRUE else f.guarded()))
    found = [v.block.value for v in to]
  results = tuple(BlockValue(u, out) for u in found)
  return results if several else results[0]


def _function(name: str, fn: Any, kinds: Sequence[DType], several: bool) -> Fold:
  """What a function makes of two elements. Raises for what is no function of elements."""
  t, said = tracer(), getattr(fn, "__name__", repr(fn).removesuffix("()"))
  first, second = ([t.variable(d, ()).block for d in kinds] for _ in range(2))
  line = t.line, t.at_line
  with t.region() as stated: got = t.call(fn, (*first, *second), {})
  t.line, t.at_line = line
  if stated:
    raise ApplicationError(f"{name}: {said} stores, prints, or has a loop or condition that the kernel runs; it computes values")
  if got is None or isinstance(got, (tuple, list)) != several or several and len(got) != len(kinds):
    count = f"{len(got)} values in a tuple" if isinstance(got, (tuple, list)) else "nothing" if got is None else "one value"
    raise ApplicationError(f"{name}: {said} gives {count}; of {'a tuple of ' * several}{len(kinds)} it takes {2 * len(kinds)} "
                           f"values and gives {f'a tuple of {len(kinds)}' if several else 'one'}")
  results = []
  for x, d in zip(got if several else (got,), kinds):
    b = block(x)
    if not all(map(one, b.shape)): raise ShapeError(f"{name}: {said} gives a block of shape {b.shape} for one element")
    if not _b.weak(x) and promote(d, b.dtype) is not d:
      raise DTypeError(f"{name}: {said} gives {b.dtype} for an element of {d}; convert one with .to")
    results.append(plain_value(b.value, d))
  own = {b.value for b in (*first, *second)}
  for u in toposort(results, stop=own.__contains__):
    if u not in own and u.op not in (Ops.ALU, Ops.CAST, Ops.BITCAST, Ops.CONST):
      raise ApplicationError(f"{name}: {said} uses what is neither an argument of it nor a number that is known while reading; "
                             "give it a tuple with one more block")
  return Fold(tuple(b.value for b in first), tuple(b.value for b in second), tuple(results), (), 0, tuple(range(len(kinds))))


def _there(values: Sequence[UOp], along: UOp) -> UOp:
  """Which elements along an axis are made of what was read inside of tensors."""
  given = {p.uop for p in tracer().parameters if p.other is not None}
  there: dict[UOp, UOp] = {}
  for u in toposort(values, stop=lambda u: u.op is Ops.LOAD):
    if u.op is Ops.LOAD:
      told = () if u.src[0].op is Ops.DEFINE_LOCAL or u.src[0] in given else ix.conjuncts(gate_or_true(u))
      there[u] = ix.both(*[c for c in told if along in c.ranges])
    elif u.arg is TernaryOps.WHERE:
      # what was read where the condition holds needs no other
      c, (yes, no) = u.src[0], (there[s] for s in u.src[1:])
      yes = ix.both(*[x for x in ix.conjuncts(yes) if x not in ix.conjuncts(c)])
      there[u] = ix.both(there[c], yes if yes is no else c.where(yes, no))
    elif u.op is Ops.REDUCE:
      there[u] = ix.both(*[c for c in ix.conjuncts(there[u.src[0]]) if all(r.arg[0] not in u.arg[1] for r in c.ranges)])
    else: there[u] = ix.both(*[there[s] for s in u.src])
  return ix.both(*[there[u] for u in values])
