"""The verifier: what is legal in each of the three forms, one table of rules an op.

A rule is a function of a node (and where it stands) that gives one sentence about what is wrong, or None. The first sentence
becomes a VerifyError that names the kernel, the rule broken and the line of the listing.
"""
from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence

from .dtype import DType, dtypes
from .errors import VerifyError
from .functions import COMBINERS, refusal
from .index import vmax
from .kernel import EFFECTS, reads_its_place
from .spec_rules import (
  BUFFERS,
  access_rule,
  alu_rule,
  cast_rule,
  const_rule,
  global_rule,
  local_rule,
  names,
  variable_rule,
)
from .uop import NO_VALUE, Ops, UOp, UOpList, step_of, toposort

# ---- the linear form

class _Scope:
  """Where each node stands: the LOOPs and IFs that are open there."""

  def __init__(self, widths: bool = True) -> None:
    self.widths = widths                       # whether indices have theirs
    self.open: list[UOp] = []
    self.path: dict[UOp, tuple[UOp, ...]] = {}
    self.at: dict[UOp, int] = {}
    self.assigned: dict[UOp, UOp] = {}         # accumulator: its last PHI so far
    self.named: dict[Any, UOp] = {}            # slots and SPECIAL dimensions that are taken
    self.previous: UOp | None = None

  def accumulator(self, u: UOp) -> UOp:
    while u.op is Ops.PHI: u = u.src[0]
    return u


def _scalar_int(what: str, at: _Scope) -> Callable[[UOp], str | None]:
  def rule(i: UOp) -> str | None:
    fits = i.dtype.kind in "iu" and i.dtype.count == 1 and (i.dtype is not dtypes.index or not at.widths)
    return None if fits else f"{what} is a scalar int, got {i.dtype}"
  return rule


def _once(u: UOp, at: _Scope, what: str, key: Any) -> str | None:
  if (what, key) in at.named: return f"{what} {key} is defined twice"
  at.named[(what, key)] = u
  return None


def _no_sources(u: UOp) -> str | None: return f"{u.op.name} has no sources" if u.src else None


def _lin_global(u: UOp, at: _Scope) -> str | None: return global_rule(u) or _no_sources(u) or _once(u, at, "slot", u.arg[0])


def _lin_local(u: UOp, at: _Scope) -> str | None: return local_rule(u) or _once(u, at, "local name", u.arg[0])


def _lin_acc(u: UOp, at: _Scope) -> str | None:
  want = {"f": float, "b": bool}.get(u.dtype.kind, int)
  if not isinstance(u.arg, (int, float)) or (want is not float and isinstance(u.arg, float)):
    return f"the arg of DEFINE_ACC is its start value, a Python {want.__name__}, got {u.arg!r}"
  return None


def _lin_special(u: UOp, at: _Scope) -> str | None:
  a = u.arg
  if not (
    isinstance(a, tuple) and len(a) == 3 and a[0] in ("g", "l") and a[1] in (0, 1, 2) and isinstance(a[2], int) and a[2] >= 1
  ):
    return f"the arg of SPECIAL is ('g' or 'l', dimension 0..2, size >= 1), got {a!r}"
  return _no_sources(u) or _scalar_int("the value of SPECIAL", at)(u) or _once(u, at, "SPECIAL", (a[0], a[1]))


def _lin_loop(u: UOp, at: _Scope) -> str | None:
  if len(u.src) < 2: return f"LOOP has a start and an end, got {len(u.src)} sources"
  wrong = _scalar_int("a LOOP", at)(u)
  if wrong: return wrong
  if any(s.dtype is not u.dtype for s in u.src[:2]):
    return f"LOOP of {u.dtype} from {u.src[0].dtype} to {u.src[1].dtype}: one dtype expected"
  step = step_of(u)
  if step is not None and step.dtype is not u.dtype: return f"LOOP of {u.dtype} in steps of {step.dtype}: one dtype expected"
  if step is not None and vmax(step) < 1: return "LOOP goes up: its step is positive"
  if u.arg not in (None, "flatten"): return f"the arg of LOOP is None or 'flatten', got {u.arg!r}"
  at.open.append(u)
  return None


def _lin_if(u: UOp, at: _Scope) -> str | None:
  if not u.src or u.src[0].dtype is not dtypes.bool: return f"IF has one bool, got {names(s.dtype for s in u.src) or 'nothing'}"
  at.open.append(u)
  return None


def _lin_while(u: UOp, at: _Scope) -> str | None:
  at.open.append(u)
  return _no_sources(u)


def _lin_break(u: UOp, at: _Scope) -> str | None:
  if len(u.src) != 1 or u.src[0].dtype is not dtypes.bool:
    return f"BREAK has one bool, got {names(s.dtype for s in u.src) or 'nothing'}"
  return None if at.open and at.open[-1].op is Ops.WHILE else "BREAK stands directly in a WHILE"


def _lin_else(u: UOp, at: _Scope) -> str | None:
  if len(u.src) != 1 or u.src[0].op is not Ops.IF or not at.open or at.open[-1] is not u.src[0]:
    return "ELSE belongs to the IF that is open"
  at.open[-1] = u
  return None


_OPENERS = {Ops.ENDLOOP: Ops.LOOP, Ops.ENDIF: Ops.IF, Ops.ENDWHILE: Ops.WHILE}


def _lin_end(u: UOp, at: _Scope) -> str | None:
  opener = _OPENERS[u.op]
  if not u.src or u.src[0].op is not opener:
    return f"{u.op.name} ends a {opener.name}, its source is {u.src[0].op if u.src else 'missing'}"
  if not at.open or (at.open[-1].src[0] if at.open[-1].op is Ops.ELSE else at.open[-1]) is not u.src[0]:
    inner = f"line {at.at[at.open[-1]]} is the innermost open one" if at.open else "nothing is open"
    return f"{u.op.name} ends line {at.at[u.src[0]]}, but {inner}"
  at.open.pop()
  return None


def _lin_phi(u: UOp, at: _Scope) -> str | None:
  if len(u.src) < 3: return f"PHI has an accumulator, a value and its loops, got {len(u.src)} sources"
  acc = at.accumulator(u.src[0])
  if acc.op is not Ops.DEFINE_ACC: return f"PHI assigns a DEFINE_ACC, got {acc.op}"
  if u.dtype is not acc.dtype: return f"PHI of {u.dtype} on an accumulator of {acc.dtype}"
  if u.src[1].dtype.scalar() is not u.dtype.scalar() or u.src[1].dtype.count not in (1, u.dtype.count):
    return f"PHI assigns {u.src[1].dtype} to an accumulator of {u.dtype}"
  loops = [x for x in at.open if x.op is Ops.LOOP]
  for x in u.src[2:]:
    if x.op is not Ops.LOOP: return f"the sources of PHI after the value are LOOPs, got {x.op}"
    if x not in loops: return f"PHI stands outside its loop (line {at.at[x]})"
  if loops[-1] not in u.src[2:]: return f"PHI stands in a loop (line {at.at[loops[-1]]}) that is none of its own"
  if loops[-1] in at.path[acc]:
    return "PHI assigns an accumulator that is defined inside the same loop, so it is set anew each time round"
  previous = at.previous
  while previous is not None and previous.op is Ops.PHI:  # the group before this one
    if at.accumulator(previous) is acc: return "two PHIs of one parallel assignment set the same accumulator"
    previous = at.named.get(("before", previous))
  if at.previous is not None: at.named[("before", u)] = at.previous
  at.assigned[acc] = u
  return None


def _lin_barrier(u: UOp, at: _Scope) -> str | None:
  for x in at.open:
    if x.op is Ops.WHILE: return f"BARRIER inside line {at.at[x]}, a WHILE, whose rounds differ between work-items"
    conditions = x.src[0].src[:1] if x.op is Ops.ELSE else x.src[:1] if x.op is Ops.IF else x.src[:2]
    bad = next((n for n in toposort(conditions) if (n.op is Ops.SPECIAL and n.arg[0] == "l") or (n.op is Ops.LOAD)), None)
    if bad is not None:
      return f"BARRIER inside line {at.at[x]}, whose condition differs between work-items (it depends on line {at.at[bad]})"
  return None


def _lin_vectorize(u: UOp, at: _Scope) -> str | None:
  if len(u.src) != u.dtype.count: return f"VECTORIZE to {u.dtype} of {len(u.src)} sources"
  if any(s.dtype is not u.dtype.scalar() for s in u.src): return f"VECTORIZE to {u.dtype} of {names(s.dtype for s in u.src)}"
  return None


def _lin_gep(u: UOp, at: _Scope) -> str | None:
  if len(u.src) != 1: return f"GEP takes one vector, got {len(u.src)} sources"
  v = u.src[0].dtype
  if not isinstance(u.arg, int) or not 0 <= u.arg < v.count: return f"GEP of lane {u.arg!r} of a vector of {v.count}"
  return f"GEP of {v} gives {v.scalar()}, not {u.dtype}" if u.dtype is not v.scalar() else None


LINEAR: dict[Ops, Callable[[UOp, _Scope], str | None]] = {
  Ops.CONST: lambda u, at: const_rule(u),
  Ops.ALU: lambda u, at: alu_rule(u),
  Ops.CAST: lambda u, at: cast_rule(u),
  Ops.BITCAST: lambda u, at: cast_rule(u),
  Ops.DEFINE_GLOBAL: _lin_global,
  Ops.DEFINE_LOCAL: _lin_local,
  Ops.DEFINE_ACC: _lin_acc,
  Ops.SPECIAL: _lin_special,
  Ops.LOOP: _lin_loop,
  Ops.ENDLOOP: _lin_end,
  Ops.IF: _lin_if,
  Ops.ELSE: _lin_else,
  Ops.ENDIF: _lin_end,
  Ops.WHILE: _lin_while,
  Ops.BREAK: _lin_break,
  Ops.ENDWHILE: _lin_end,
  Ops.PHI: _lin_phi,
  Ops.RANGE: lambda u, at: _range_rule(u),
  Ops.REDUCE: lambda u, at: _reduce_rule(u),
  Ops.SCAN: lambda u, at: _scan_rule(u),
  Ops.SORT: lambda u, at: _scan_rule(u),
  Ops.ATOMIC: lambda u, at: access_rule(u, _scalar_int("the index", at)),
  Ops.LOAD: lambda u, at: access_rule(u, _scalar_int("the index", at)),
  Ops.STORE: lambda u, at: access_rule(u, _scalar_int("the index", at)),
  Ops.BARRIER: _lin_barrier,
  Ops.VECTORIZE: _lin_vectorize,
  Ops.GEP: _lin_gep,
}


def _sources(u: UOp, at: _Scope) -> str | None:
  """Sources stand before, have values, and are in scope here."""
  here = tuple(at.open)
  for s in u.src:
    if s not in at.at: return f"reads a {s.op} that does not stand before it"
    if u.op in (Ops.ENDLOOP, Ops.ELSE, Ops.ENDIF, Ops.ENDWHILE, Ops.BARRIER, Ops.DEFINE_ACC): continue
    extra = u.op is Ops.LOOP and s not in u.src[:2] and s is not step_of(u)   # LOOP and DEFINE_ACC may name what they come after
    if s.op in NO_VALUE and not extra: return f"reads line {at.at[s]}, a {s.op}, which has no value"
    if s.op in BUFFERS and not (u.op in (Ops.LOAD, Ops.STORE, Ops.ATOMIC) and s is u.src[0]):
      return f"reads line {at.at[s]}, a buffer, other than by LOAD or STORE"
    home = at.path[at.accumulator(s) if s.op is Ops.PHI else s]
    if s.op in (Ops.LOOP, Ops.IF): home = (*home, s)
    if here[:len(home)] != home and not extra:
      return f"uses line {at.at[s]} after the end of the {home[-1].op.name} (line {at.at[home[-1]]}) that it is defined in"
    if s.op is Ops.DEFINE_ACC and s in at.assigned and u.op is not Ops.PHI:
      inside = at.path[at.assigned[s]]
      if here[:len(inside)] != inside:
        return f"reads the accumulator of line {at.at[s]} after its loop; line {at.at[at.assigned[s]]}, its PHI, is meant"
  return None


def verify_linear(uops: Sequence[UOp], name: str = "", widths: bool = True) -> None:
  """Check a linear program; without ``widths`` its indices still have the dtype index. Raises VerifyError with the rule broken
  and the line."""
  at = _Scope(widths)
  for i, u in enumerate(uops):
    rule = LINEAR.get(u.op)
    if rule is None: wrong: str | None = f"{u.op} does not belong in a linear program"
    elif u in at.at: wrong = f"stands twice (before in line {at.at[u]})"
    elif widths and u.dtype.scalar() is dtypes.index and u.op not in NO_VALUE:
      wrong = "has dtype index; a linear program has int32 or int64"
    elif at.previous is not None and at.previous.op is Ops.PHI and u.op not in (Ops.PHI, Ops.ENDLOOP):
      wrong = "stands between a PHI and its ENDLOOP; the PHIs of a loop are one parallel assignment just before its end"
    else: wrong = _sources(u, at)
    at.path[u] = tuple(at.open)
    if wrong is None and rule is not None: wrong = rule(u, at)
    if wrong is not None: raise VerifyError(f"kernel {name!r} line {i}: {wrong}\n{node_line(uops, i)}")
    at.at[u] = i
    at.previous = u
  if at.open: raise VerifyError(f"kernel {name!r}: the {at.open[-1].op.name} never ends\n{node_line(uops, at.at[at.open[-1]])}")


def node_line(uops: Sequence[UOp], i: int) -> str:
  """The listing line; sources that are not in the list are added in front so that it can be printed."""
  shown = UOpList(uops)
  known = set(shown)
  lost = [s for s in shown[i].src if s not in known]
  if not lost: return shown.lines()[i]
  u = shown[i]
  numbers = [shown.index(s) if s in known else "?" for s in u.src]
  return f"{i:4d} {u.op!s:20s}: {u.dtype!s:25s} {numbers!s:32s} {u.arg}"


# ---- the index form

def _index_rule(index: UOp) -> str | None:
  if index.op is not Ops.INDEX: return f"a LOAD or STORE has an INDEX, one expression a source dimension; got {index.op}"
  bad = next((s for s in index.src if s.dtype.kind not in "iu" or s.dtype.count != 1), None)
  return f"an INDEX has scalar ints, got {bad.dtype}" if bad is not None else None


def _range_rule(u: UOp) -> str | None:
  a = u.arg
  if not (isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], int) and isinstance(a[1], int) and a[1] >= 1):
    return f"the arg of RANGE is (axis id, size >= 1), got {a!r}"
  return _no_sources(u) or (None if u.dtype.kind in "iu" else f"a RANGE is an int, got {u.dtype}")


def combiner_rule(op: Any, dtype: DType) -> str | None:
  """What reduces, and which dtypes it takes."""
  if op not in COMBINERS: return f"no combiner {op!r}; combiners: {', '.join(c.name for c in COMBINERS)}"
  return refusal(op, dtype, f"a reduction by {op.name}")


def _reduce_rule(u: UOp) -> str | None:
  if len(u.src) != 1: return f"REDUCE takes one value, got {len(u.src)}"
  if not (isinstance(u.arg, tuple) and len(u.arg) == 2 and isinstance(u.arg[1], tuple)):
    return f"the arg of REDUCE is (combiner, axis ids), got {u.arg!r}"
  op, axes = u.arg
  if u.dtype is not u.src[0].dtype: return f"REDUCE of {u.src[0].dtype} gives {u.src[0].dtype}, not {u.dtype}"
  if len(set(axes)) != len(axes): return f"REDUCE binds an axis twice: {axes}"
  return combiner_rule(op, u.dtype)


def _index_store(u: UOp) -> str | None:
  wrong = access_rule(u, _index_rule, tuple)
  if wrong: return wrong
  # a scatter: later values are added to earlier ones, or replace them
  if isinstance(u.arg, tuple) and (len(u.arg) != 2 or u.arg[0] not in ("add", "set") or not isinstance(u.arg[1], tuple)):
    return f"the arg of a scattering STORE is ('add' or 'set', axis ids), got {u.arg!r}"
  return None


def _free(u: UOp, within: frozenset[int]) -> str | None:
  """A STORE writes one value to a place; ``within`` are the axes that go on around it, one value after another or a place
  each."""
  ordered = u.arg[1] if isinstance(u.arg, tuple) else ()
  free = u.src[2].ranges - u.src[1].ranges - (u.src[3].ranges if len(u.src) > 3 else frozenset())
  free = frozenset(r for r in free if r.arg[0] not in ordered and r.arg[0] not in within)
  return f"STORE of a value that depends on {_axes(free)} to a place that does not" if free else None


def _scan_rule(u: UOp) -> str | None:
  n = 3 if u.op is Ops.SCAN else 2
  if len(u.src) != 1 or u.dtype is not u.src[0].dtype: return f"{u.op.name} has one value and keeps its dtype"
  if not isinstance(u.arg, tuple) or len(u.arg) != n or not isinstance(u.arg[-2], int) or not isinstance(u.arg[-1], bool):
    return f"the arg of {u.op.name} is {'(combiner, axis id, reverse)' if n == 3 else '(axis id, descending)'}, got {u.arg!r}"
  return combiner_rule(u.arg[0], u.dtype) if n == 3 else None


def _statement_rule(u: UOp) -> str | None:
  """FOR, WHILE and IF: an end or a condition, then statements."""
  if not u.src: return f"{u.op.name} has {'an end' if u.op is Ops.FOR else 'a condition'} and statements"
  if u.op is Ops.FOR:
    if u.src[0].dtype is not dtypes.index: return f"the end of FOR is an index, got {u.src[0].dtype}"
    if not isinstance(u.arg, int): return f"the arg of FOR is an axis id, got {u.arg!r}"
    bound = next((n for n in toposort(u.src[1:]) if n.op is Ops.REDUCE and u.arg in n.arg[1]), None)
    if bound is not None: return f"a REDUCE inside the FOR over axis {u.arg} binds that axis"
  elif u.src[0].dtype is not dtypes.bool: return f"the condition of {u.op.name} is a bool, got {u.src[0].dtype}"
  if u.op is Ops.IF and not (isinstance(u.arg, int) and 0 <= u.arg < len(u.src)):
    return f"the arg of IF is how many of its {len(u.src) - 1} statements are for true, got {u.arg!r}"
  bad = next((s for s in u.src[1:] if s.op not in _STATEMENTS), None)
  return None if bad is None else f"{u.op.name} has statements (STORE, ATOMIC, FOR, WHILE, IF), got {bad.op}"


_STATEMENTS = (Ops.STORE, Ops.ATOMIC, Ops.FOR, Ops.WHILE, Ops.IF)


def _axes(rs: Iterable[UOp]) -> str: return ", ".join(f"axis {i} of {n}" for i, n in sorted(r.arg for r in rs))


def _cache_read_rule(u: UOp) -> str | None:
  if len(u.src) != 1 or u.src[0].op is not Ops.LOAD: return "CACHE_READ copies one LOAD to local memory"
  missing = [i for i in u.arg if i not in {r.arg[0] for r in u.ranges}]
  return f"CACHE_READ along axis {missing[0]}, which its LOAD does not vary with" if missing else None


INDEX: dict[Ops, Callable[[UOp], str | None]] = {
  Ops.CONST: const_rule, Ops.ALU: alu_rule, Ops.CAST: cast_rule, Ops.BITCAST: cast_rule, Ops.DEFINE_GLOBAL: global_rule,
  Ops.DEFINE_LOCAL: variable_rule, Ops.RANGE: _range_rule, Ops.INDEX: lambda u: None, Ops.REDUCE: _reduce_rule,
  Ops.CACHE_READ: _cache_read_rule, Ops.LOAD: lambda u: access_rule(u, _index_rule), Ops.STORE: _index_store,
  Ops.ATOMIC: lambda u: access_rule(u, _index_rule), Ops.SCAN: _scan_rule, Ops.SORT: _scan_rule,
  Ops.FOR: _statement_rule, Ops.WHILE: _statement_rule, Ops.IF: _statement_rule}


def verify_index(roots: Sequence[UOp], axes: Iterable[Any] | None = None, params: Iterable[Any] | None = None, name: str = "",
                 part: bool = False) -> None:
  """Check the body of a kernel: its statements and all beneath. A ``part`` of one may be a value, and has SPECIALs for what
  stands around it.

  ``axes`` and ``params`` are the kernel's (``Axis``, ``Param``). Raises VerifyError: among others
  for a RANGE that is no axis of the kernel and an INDEX that does not fit its param.
  """
  axes = None if axes is None else list(axes)
  known = None if axes is None else {a.id: a.size for a in axes}
  shapes = None if params is None else {p.slot: p.shape for p in params}
  nodes = toposort(roots)
  around = frozenset(u.arg for u in nodes if u.op is Ops.FOR)
  programs = around.union(a.id for a in axes if a.kind.name == "GRID") if axes is not None else around
  for u in nodes:
    rule = INDEX.get(u.op) if u.op is not Ops.SPECIAL or not part else _no_sources
    wrong = f"{u.op} does not belong in the index form" if rule is None else rule(u)
    if wrong is None and u.op is Ops.STORE: wrong = _free(u, around if u.src[0].op is Ops.DEFINE_GLOBAL else programs)
    if wrong is None and u.op is Ops.RANGE and known is not None:
      id, size = u.arg
      if id not in known:
        wrong = f"RANGE of axis {id}, which the kernel does not have (axes: {', '.join(map(str, sorted(known))) or 'none'})"
      elif known[id] != size: wrong = f"RANGE of {size} over axis {id}, whose size is {known[id]}"
    if wrong is None and u.op is Ops.REDUCE and known is not None:
      lost = [i for i in u.arg[1] if i not in known]
      if lost: wrong = f"REDUCE over axis {lost[0]}, which the kernel does not have"
    if wrong is None and u.op in (Ops.LOAD, Ops.STORE, Ops.ATOMIC) and shapes is not None and u.src[0].op is Ops.DEFINE_GLOBAL:
      slot = u.src[0].arg[0]
      if slot not in shapes: wrong = f"{u.op.name} of slot {slot}, which the kernel does not have"
      elif len(u.src[1].src) != len(shapes[slot]):
        wrong = f"an INDEX of {len(u.src[1].src)} dimensions into param {slot} of shape {shapes[slot]}"
    if (
      wrong is None
      and u.op in (Ops.LOAD, Ops.STORE)
      and u.src[0].op is Ops.DEFINE_LOCAL
      and isinstance(u.src[0].arg[1], tuple)
      and len(u.src[1].src) != len(u.src[0].arg[1])
    ):
      wrong = f"an INDEX of {len(u.src[1].src)} dimensions into variable {u.src[0].arg[0]!r} of shape {u.src[0].arg[1]}"
    if wrong is None and u.op is Ops.FOR and known is not None and u.arg not in known:
      wrong = f"FOR over axis {u.arg}, which the kernel does not have"
    if wrong is None: wrong = next((f"reads a {s.op.name}, which is {what}" for s in u.src if (what := _misplaced(u, s))), None)
    if wrong is not None: raise VerifyError(f"kernel {name!r}: {wrong}\n{node_line(nodes, nodes.index(u))}")
  twice = next((a for a in axes or () if a.again), None)
  if twice is not None:
    written = {s.src[0] for s in nodes if s.op in EFFECTS}
    for u in nodes:
      if u.op in EFFECTS and reads_its_place(u) or u.op is Ops.LOAD and u.src[0] in written:
        raise VerifyError(
          f"kernel {name!r}: axis {twice} has {twice.again} elements twice, and what is written depends on what was there\n"
          f"{node_line(nodes, nodes.index(u))}"
        )
  for r in roots:
    if r.op not in _STATEMENTS and not part:
      raise VerifyError(f"kernel {name!r}: the body of a kernel is statements, got {r.op}\n{node_line(nodes, nodes.index(r))}")


def _misplaced(u: UOp, s: UOp) -> str:
  if s.op in _STATEMENTS and u.op not in (Ops.FOR, Ops.WHILE, Ops.IF): return "a statement and has no value"
  if s.op in (Ops.SCAN, Ops.SORT) and not (u.op is Ops.STORE and s is u.src[2] and u.src[0].op is Ops.DEFINE_LOCAL):
    return "only the whole value of a STORE into a variable"
  return ""
