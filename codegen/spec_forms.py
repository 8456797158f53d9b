"""The verifier's tables of the forms between the index form and the linear one, and which check a form of the pipeline has."""
from __future__ import annotations

from typing import Any, Callable

from .additions import MOST_ADDITIONS, additions, is_float_sum
from .dtype import dtypes
from .errors import VerifyError
from .kernel import EFFECTS, AxisKind
from .parts import Part, Parts
from .spec import verify_index, verify_linear
from .spec_rules import access_rule, alu_rule, cast_rule, const_rule, global_rule, names, variable_rule
from .uop import Ops, UOp, UOpList, toposort


def _flat(i: UOp) -> str | None:
  return None if i.dtype is dtypes.index else f"an expanded LOAD or STORE has one flat index, got {i.op} of {i.dtype}"


def _reduce(u: UOp) -> str | None:
  if not u.src: return "REDUCE has a source for each copy of its axes"
  wrong = next((s for s in u.src if s.dtype.scalar() is not u.dtype.scalar()), None)
  return f"REDUCE of {wrong.dtype} gives {wrong.dtype}, not {u.dtype}" if wrong is not None else None


def _cache_read(u: UOp) -> str | None:
  if len(u.src) < 3 or u.src[1].op is not Ops.DEFINE_LOCAL:
    return "an expanded CACHE_READ has an index, a local array and the STOREs that fill it"
  bad = next((s for s in u.src[2:] if s.op is not Ops.STORE or s.src[0] is not u.src[1]), None)
  return f"CACHE_READ is filled by STOREs to its array, got {bad.op}" if bad is not None else None


def _vectorize(u: UOp) -> str | None:
  if len(u.src) == u.dtype.count and all(s.dtype is u.dtype.scalar() for s in u.src): return None
  return f"VECTORIZE to {u.dtype} of {names(s.dtype for s in u.src)}"


EXPANDED: dict[Ops, Callable[[UOp], str | None]] = {
  Ops.CONST: const_rule,
  Ops.ALU: alu_rule,
  Ops.CAST: cast_rule,
  Ops.BITCAST: cast_rule,
  Ops.DEFINE_GLOBAL: global_rule,
  Ops.DEFINE_LOCAL: variable_rule,
  Ops.RANGE: lambda u: None,
  Ops.SPECIAL: lambda u: None,
  Ops.REDUCE: _reduce,
  Ops.CACHE_READ: _cache_read,
  Ops.LOAD: lambda u: access_rule(u, _flat),
  Ops.STORE: lambda u: access_rule(u, _flat),
  Ops.ATOMIC: lambda u: access_rule(u, _flat),
  Ops.SCAN: _reduce,
  Ops.SORT: _reduce,
  Ops.VECTORIZE: _vectorize,
  Ops.GEP: lambda u: None,
}
_GONE = (AxisKind.UPCAST, AxisKind.UNROLL, AxisKind.LANE)


def verify_part(part: Part, name: str) -> None:
  """Check an expanded part. Raises VerifyError: for an axis whose copies should have been made, a float sum of more than 4,096
  additions, .."""
  kernel = part.kernel
  for u in kernel.reduces:
    if is_float_sum(u) and (n := additions(kernel, u)) > MOST_ADDITIONS:
      raise VerifyError(
        f"kernel {name!r}: an accumulator of {u.dtype} takes {n:,} additions one after the other, which is not exact enough; "
        f"{MOST_ADDITIONS:,} at most"
      )
  gone = {a.id: a for a in kernel.axes if a.kind in _GONE and a.size > 1}
  nodes = toposort(part.roots)
  for u in nodes:   # a copy in local memory may be filled by loops over them
    if u.op is Ops.CACHE_READ: gone = {i: a for i, a in gone.items() if i not in u.arg}
  for u in nodes:
    rule = EXPANDED.get(u.op)
    wrong = f"{u.op} does not belong in the expanded form" if rule is None else rule(u)
    if wrong is None and u.op is Ops.RANGE and u.arg[0] in gone: wrong = f"the copies of axis {gone[u.arg[0]]} have not been made"
    if wrong is not None: raise VerifyError(f"kernel {name!r}: {wrong}\n{UOpList(nodes).lines()[nodes.index(u)]}")
  fills = {s for n in nodes if n.op is Ops.CACHE_READ for s in n.src}
  bad = next((u for u in nodes if u.op in EFFECTS and u not in part.roots and u not in fills), None)
  if bad is not None: raise VerifyError(f"kernel {name!r}: a {bad.op} is a root, something reads this one")


def verify_form(form: str, program: Any, name: str = "") -> None:
  """Check a program in a form of the pipeline: "index", "parts", "expanded", "ordered" or "linear". Raises VerifyError."""
  if form in ("ordered", "linear"): verify_linear(program, name, form == "linear")
  elif form == "index": verify_index(program.body, program.axes, program.params, name)
  elif isinstance(program, Parts):
    for part in program.all():
      if form == "parts": verify_index(part.kernel.body, part.kernel.axes, part.kernel.params, name, not program.kernel.plain)
      else: verify_part(part, name)
