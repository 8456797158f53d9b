"""The verifier's table of expanded parts, and which check each form of the pipeline has."""
from __future__ import annotations

from typing import Any

from ..ir.dtype import dtypes
from ..ir.errors import VerifyError
from ..ir.uop import Ops, UOp, toposort
from ..kernel import EFFECTS, AxisKind
from ..passes.additions import additions, is_float_sum, most_additions
from ..passes.parts import Part, Parts
from .linear import verify_index, verify_linear
from .rules import (
  ANY,
  VALUES,
  Rule,
  access_rules,
  all_of,
  by_op,
  gep_rule,
  global_rule,
  range_rule,
  size_rule,
  source_count,
  variable_rule,
  vectorize_rule,
  verify,
)


def _flat(i: UOp) -> str | None:
  return None if i.dtype is dtypes.index else f"an expanded LOAD or STORE has one flat index, got {i.op} of {i.dtype}"


def _copies(u: UOp) -> str | None:
  wrong = next((s for s in u.src if s.dtype.scalar() is not u.dtype.scalar()), None)
  return f"{u.op.name} of {wrong.dtype} gives {wrong.dtype}, not {u.dtype}" if wrong is not None else None


def _cache_read(u: UOp) -> str | None:
  if len(u.src) < 3 or u.src[1].op is not Ops.DEFINE_LOCAL:
    return "an expanded CACHE_READ has an index, a local array and the STOREs that fill it"
  bad = next((s for s in u.src[2:] if s.op is not Ops.STORE or s.src[0] is not u.src[1]), None)
  return f"CACHE_READ is filled by STOREs to its array, got {bad.op}" if bad is not None else None


EXPANDED: dict[Ops, Rule] = {
  **VALUES,
  **access_rules(_flat),
  **dict.fromkeys((Ops.REDUCE, Ops.SCAN, Ops.SORT), all_of(source_count(1, "a source for each copy of its axes", ANY), _copies)),
  Ops.DEFINE_GLOBAL: global_rule,
  Ops.DEFINE_LOCAL: variable_rule,
  Ops.RANGE: range_rule,
  Ops.SIZE: size_rule,
  Ops.SPECIAL: lambda u: None,
  Ops.CACHE_READ: _cache_read,
  Ops.VECTORIZE: vectorize_rule,
  Ops.GEP: gep_rule,
}
_EXPANDED_KINDS = (AxisKind.UPCAST, AxisKind.UNROLL, AxisKind.LANE)


def verify_part(part: Part, name: str) -> None:
  """Check an expanded part. Raises VerifyError: for an axis whose copies should have been made, a float sum of too many
  additions, .."""
  kernel, nodes = part.kernel, toposort(part.roots)
  for u in kernel.reduces:
    if is_float_sum(u) and (n := additions(kernel, u)) > (most := most_additions(kernel, u)):
      raise VerifyError(
        f"kernel {name!r}: an accumulator of {u.dtype} takes {n:,} additions one after the other, which is not exact enough; "
        f"{most:,} at most"
      )
  copied = {i for u in nodes if u.op is Ops.CACHE_READ for i in u.arg}   # loops over these may fill it
  expanded = {a.id: a for a in kernel.of_kind(*_EXPANDED_KINDS) if a.known > 1 and a.id not in copied}
  fills = {s for u in nodes if u.op is Ops.CACHE_READ for s in u.src}
  read = {s for u in nodes for s in u.src if s.op in EFFECTS} - fills
  def finished(u: UOp) -> str | None:
    if u.op is Ops.RANGE and u.arg[0] in expanded: return f"the copies of axis {expanded[u.arg[0]]} have not been made"
    return f"a {u.op} is a root, something reads this one" if u in read else None
  verify(nodes, f"kernel {name!r}", by_op(EXPANDED, "the expanded form"), finished)


def verify_form(form: str, program: Any, name: str = "") -> None:
  """Check a program in a form of the pipeline: "index", "parts", "expanded", "ordered" or "linear". Raises VerifyError."""
  if form in ("ordered", "linear"): verify_linear(program, name, form == "linear")
  elif form == "index": verify_index(program, name)
  elif isinstance(program, Parts):
    for part in program.all():
      if form == "parts": verify_index(part.kernel, name, not program.kernel.plain)
      else: verify_part(part, name)
