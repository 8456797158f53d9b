"""The verifier's tables of the forms of a kernel: what is legal for each op in the index form, expanded parts and the linear
form, and where it may stand."""
# ruff: noqa: F403, F405 - what rules are made of is rules.py's
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterable, Sequence

from ..index import of_sizes, size_text, vmax
from ..ir import NO_VALUE, Ops, UOp, VerifyError, dtypes, step_of, toposort
from ..kernel import DOT, EFFECTS, REGIONS, AxisKind, Kernel, accumulator, ids_of, is_variable, orders, reads_its_place
from ..passes.additions import additions, is_float_sum, most_additions
from ..passes.parts import Part, Parts
from .rules import *

# ---- values that both forms have

_COMBINES: Rule = lambda u: combiner_rule(u.arg[0], u.dtype)
REDUCTIONS = op_rules(
  REDUCE=(argument(lambda a: tuple_of(a, 2) and isinstance(a[1], tuple), "(combiner, axis ids)"),
    same_dtype, lambda u: f"REDUCE binds an axis twice: {u.arg[1]}" if len(set(u.arg[1])) != len(u.arg[1]) else None, _COMBINES),
  SCAN=(same_dtype, argument(lambda a: tuple_of(a, 3, 4) and fields(a[1:3], int, bool), "(combiner, axis id, reverse)"),
    _COMBINES),
  SORT=(same_dtype, argument(lambda a: fields(a, int, bool) or fields(a, int, bool, int, bool), "(axis id, descending)")))

# ---- the linear form


def _loop(u: UOp) -> str | None:
  step = step_of(u)
  ends = [s.dtype for s in (*u.src[:2], step) if s is not None]
  if {*ends} - {u.dtype}: return f"LOOP of {names(ends)} has an index of {u.dtype}: one dtype expected"
  return "LOOP goes up: its step is positive" if step is not None and vmax(step) < 1 else None


def _condition(u: UOp) -> str | None:
  what = u.src[0].dtype if u.src else "nothing"
  return None if what is dtypes.bool else f"the condition of {u.op.name} is a bool, got {what}"


def _phi(u: UOp) -> str | None:
  acc, value, dtype = accumulator(u), u.src[1].dtype, u.dtype
  if acc.op is not Ops.DEFINE_ACC: return f"PHI assigns a DEFINE_ACC, got {acc.op}"
  if dtype is not acc.dtype: return f"PHI of {dtype} on an accumulator of {acc.dtype}"
  if not spreads(value, dtype.scalar(), dtype.count): return f"PHI assigns {value} to an accumulator of {dtype}"
  return next((f"the sources of PHI after the value are LOOPs, got {x.op}" for x in u.src[2:] if x.op is not Ops.LOOP), None)


def _ends(opener: Ops) -> Rule:
  return lambda u: None if u.src and u.src[0].op is opener else \
    f"{u.op.name} ends a {opener.name}, its source is {u.src[0].op if u.src else 'missing'}"


def _product(u: UOp) -> str | None:
  """A REDUCE, or a product of two blocks and maybe an accumulator."""
  if not isinstance(u.arg, tuple) or u.arg[0] is not DOT: return REDUCTIONS[Ops.REDUCE](u)
  if len(u.src) not in (2, 3): return f"a product of blocks has two factors and maybe an accumulator, got {len(u.src)} sources"
  a, b, *acc = (s.dtype for s in u.src)
  if a is not b or any(d is not u.dtype for d in acc):
    return f"a product of blocks has factors of one dtype and an accumulator of {u.dtype}, got {names((a, b, *acc))}"
  return argument(lambda a: fields(a, str, tuple) and len(a[1]) == 1, f"({DOT!r}, (axis id,))")(u)


LINEAR = op_rules(KERNEL, VECTORS, REDUCTIONS, access_rules(partial(int_dtype, "the index")),
  REDUCE=_product,
  DEFINE_GLOBAL=(KERNEL[Ops.DEFINE_GLOBAL], no_sources),
  DEFINE_LOCAL=local_rule,
  DEFINE_ACC=lambda u:
    None if isinstance(u.arg, (int, float)) and (python_type(u.dtype) is float or not isinstance(u.arg, float)) else
    f"the arg of DEFINE_ACC is its start value, a Python {python_type(u.dtype).__name__}, got {u.arg!r}",
  DEFINE_VAR=KERNEL[Ops.SIZE],
  SPECIAL=(
    argument(lambda a: tuple_of(a, 3) and a[0] in ("g", "l") and a[1] in (0, 1, 2) and
      (a[2] >= 1 if type(a[2]) is int else isinstance(a[2], UOp) and of_sizes(a[2])),
      "('g' or 'l', dimension 0..2, size >= 1 or an index over SIZEs)"),
    lambda u: "a group has a number of work-items that is known" if u.arg[0] == "l" and isinstance(u.arg[2], UOp) else None,
    no_sources, partial(int_dtype, "SPECIAL")),
  LOOP=(source_count(2, "a start and an end", ANY), partial(int_dtype, "a LOOP"), _loop,
    argument(lambda a: a in (None, "flatten"), "None or 'flatten'")),
  ENDLOOP=_ends(Ops.LOOP),
  IF=_condition,
  ELSE=_ends(Ops.IF),
  ENDIF=_ends(Ops.IF),
  WHILE=no_sources,
  BREAK=(one_source, _condition),
  ENDWHILE=_ends(Ops.WHILE),
  PHI=(source_count(3, "an accumulator, a value and its loops", ANY), _phi),
  BARRIER=lambda u: None)


class _Scope:
  """Where each node so far is: its line, and the LOOPs, IFs and WHILEs that are open there."""

  def __init__(self, widths: bool) -> None:
    self.widths = widths                       # whether indices have the width that they are computed in
    self.open: list[UOp] = []
    self.path: dict[UOp, tuple[UOp, ...]] = {}
    self.line: dict[UOp, int] = {}
    self.assigned: dict[UOp, UOp] = {}         # accumulator: its last PHI so far
    self.phis: set[UOp] = set()                # the accumulators of the parallel assignment that the last node belongs to
    self.unique: set[tuple[Ops, Any]] = set()  # slots, names and SPECIAL dimensions that are defined

  def stands(self, u: UOp) -> str | None:
    """Whether the node may come here: once, with sources that come before it and are in scope."""
    line = self.line
    if u in line: return f"stands twice (before in line {line[u]})"
    if self.widths and u.dtype.scalar() is dtypes.index and u.op not in NO_VALUE:
      return "has dtype index; a linear program has int32 or int64"
    if self.phis and u.op not in (Ops.PHI, Ops.ENDLOOP):
      return "stands between a PHI and its ENDLOOP; the PHIs of a loop are one parallel assignment just before its end"
    here = tuple(self.open)
    for s in u.src:
      if s not in line: return f"reads a {s.op} that does not stand before it"
      if u.op in (Ops.ENDLOOP, Ops.ELSE, Ops.ENDIF, Ops.ENDWHILE, Ops.BARRIER, Ops.DEFINE_ACC): continue
      # LOOP and DEFINE_ACC may name what they come after
      extra = u.op is Ops.LOOP and s not in u.src[:2] and s is not step_of(u)
      if s.op in NO_VALUE and not extra: return f"reads line {line[s]}, a {s.op}, which has no value"
      if s.op in BUFFERS and u.op not in (Ops.PRINT, Ops.FOLD) and not (u.op in ACCESSES and s in u.src[:5:4]):
        return f"reads line {line[s]}, a buffer, other than by LOAD or STORE"
      home = self.path[accumulator(s)]
      if s.op in (Ops.LOOP, Ops.IF): home = *home, s
      if here[:len(home)] != home and not extra:
        end = home[-1]
        return f"uses line {line[s]} after the end of the {end.op.name} (line {line[end]}) that it is defined in"
      if s in self.assigned and u.op is not Ops.PHI:
        last = self.assigned[s]
        inside = self.path[last]
        if here[:len(inside)] != inside:
          return f"reads the accumulator of line {line[s]} after its loop; line {line[last]}, its PHI, is meant"
    return None

  def enter(self, u: UOp) -> str | None:
    """Check the rule of the node's place, and note its line and what it opens or closes."""
    self.path[u] = tuple(self.open)
    if u.op is not Ops.PHI: self.phis.clear()
    wrong = _PLACES[u.op](self, u) if u.op in _PLACES else None
    self.line[u] = len(self.line)
    return wrong

  def closes(self, u: UOp) -> str | None:
    """ENDLOOP, ENDIF, ENDWHILE and ELSE: what they end is the innermost open one."""
    inner = self.open[-1] if self.open else None
    if inner is None or (inner.src[0] if inner.op is Ops.ELSE and u.op is not Ops.ELSE else inner) is not u.src[0]:
      what = "nothing is open" if inner is None else f"line {self.line[inner]} is the innermost open one"
      return f"{u.op.name} ends line {self.line[u.src[0]]}, but {what}"
    self.open[-1:] = [u] if u.op is Ops.ELSE else []
    return None

  def assigns(self, u: UOp) -> str | None:
    """PHI: once for an accumulator from outside, at the end of the innermost of its loops."""
    acc, loops = accumulator(u), [x for x in self.open if x.op is Ops.LOOP]
    for x in u.src[2:]:
      if x not in loops: return f"PHI stands outside its loop (line {self.line[x]})"
    if loops[-1] not in u.src[2:]: return f"PHI stands in a loop (line {self.line[loops[-1]]}) that is not one of its loops"
    if loops[-1] in self.path[acc]:
      return "PHI assigns an accumulator that is defined inside the same loop, so each iteration starts it again"
    if acc in self.phis: return "two PHIs of one parallel assignment set the same accumulator"
    self.phis.add(acc)
    self.assigned[acc] = u
    return None

  def synchronizes(self, u: UOp) -> str | None:
    """BARRIER: every work-item reaches it, so no condition around it differs between work-items."""
    for x in self.open:
      if x.op is Ops.WHILE: return f"BARRIER inside line {self.line[x]}, a WHILE, whose rounds differ between work-items"
      conditions = x.src[0].src[:1] if x.op is Ops.ELSE else x.src[:1] if x.op is Ops.IF else x.src[:2]
      for n in toposort(conditions):
        if n.op is Ops.LOAD or n.op is Ops.SPECIAL and n.arg[0] == "l":
          return f"BARRIER inside line {self.line[x]}, whose condition differs between work-items " \
            f"(it depends on line {self.line[n]})"
    return None

  def defines(self, u: UOp) -> str | None:
    """What is defined once: a slot, a local name, a size, a dimension of the grid."""
    what = {Ops.DEFINE_GLOBAL: "slot", Ops.DEFINE_LOCAL: "local name", Ops.DEFINE_VAR: "size"}.get(u.op, "SPECIAL")
    key = u.arg[:2] if u.op is Ops.SPECIAL else size_text(u.arg) if u.op is Ops.DEFINE_VAR else u.arg[0]
    if (u.op, key) in self.unique: return f"{what} {key} is defined twice"
    self.unique.add((u.op, key))
    return None


_PLACES: dict[Ops, Callable[[_Scope, UOp], str | None]] = {
  **dict.fromkeys((Ops.LOOP, Ops.IF, Ops.WHILE), lambda scope, u: scope.open.append(u)),
  **dict.fromkeys((Ops.ENDLOOP, Ops.ELSE, Ops.ENDIF, Ops.ENDWHILE), _Scope.closes),
  **dict.fromkeys((Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL, Ops.DEFINE_VAR, Ops.SPECIAL), _Scope.defines),
  Ops.BREAK: lambda scope, _: None if [x.op for x in scope.open[-1:]] == [Ops.WHILE] else "BREAK stands directly in a WHILE",
  Ops.PHI: _Scope.assigns,
  Ops.BARRIER: _Scope.synchronizes}


def verify_linear(uops: Sequence[UOp], name: str = "", widths: bool = True) -> None:
  """Check a linear program; without ``widths`` its indices still have the dtype index. Raises VerifyError: rule and line."""
  scope = _Scope(widths)
  verify(uops, f"kernel {name!r}", scope.stands, by_op(LINEAR, "a linear program"), scope.enter)
  if scope.open:
    raise node_error(f"kernel {name!r}", f"the {scope.open[-1].op.name} never ends", uops, scope.line[scope.open[-1]])


# ---- the index form

_STATEMENTS = *EFFECTS, Ops.FOLD, Ops.PRINT, *REGIONS


def _index(index: UOp) -> str | None:
  if index.op is not Ops.INDEX: return f"a LOAD or STORE has an INDEX, one expression a source dimension; got {index.op}"
  return next((wrong for s in index.src if (wrong := int_dtype("an expression of an INDEX", s))), None)


def _region(u: UOp) -> str | None:
  return next((f"{u.op.name} has statements ({', '.join(x.name for x in _STATEMENTS)}), got {s.op}"
               for s in u.src[1:] if s.op not in _STATEMENTS), None)


def _for(u: UOp) -> str | None:
  if u.src[0].dtype is not dtypes.index: return f"the end of FOR is an index, got {u.src[0].dtype}"
  bound = any(n.op is Ops.REDUCE and u.arg in n.arg[1] for n in toposort(u.src[1:]))
  return f"a REDUCE inside the FOR over axis {u.arg} binds that axis" if bound else None


def _cache_read(u: UOp) -> str | None:
  if len(u.src) != 1 or u.src[0].op is not Ops.LOAD: return "CACHE_READ copies one LOAD to local memory"
  return next((f"CACHE_READ along axis {i}, which its LOAD does not vary with" for i in u.arg if i not in ids_of(u)), None)


def _sorted(u: UOp) -> str | None:
  if len(u.src) != 2 or u.src[0].dtype is not u.dtype or u.dtype.kind != "u" or u.src[1].op not in (Ops.RANGE, Ops.CONST):
    return "SORTED has a value of its dtype, unsigned ints, and an axis for its places"
  return argument(lambda a: fields(tuple(a), int, int, int, int, bool), "(axis id, low, high, keep, bitonic)")(u)


INDEX = op_rules(KERNEL, REDUCTIONS, access_rules(_index, scatters=True),
  SORTED=_sorted,
  INDEX=lambda u: None,
  CACHE_READ=_cache_read,
  FOR=(source_count(1, "an end and statements", ANY), argument(lambda a: isinstance(a, int), "an axis id"), _for, _region),
  WHILE=(_condition, _region),
  IF=(_condition, lambda u: None if isinstance(u.arg, int) and 0 <= u.arg < len(u.src) else
    f"the arg of IF is how many of its {len(u.src) - 1} statements are for true, got {u.arg!r}", _region))


def _misplaced(kernel: Kernel) -> Rule:
  """Statements are read by regions only, SCAN and SORT by a STORE into a variable only; a SCAN of the scheduler, whose kernels
  have no variables, by any value."""
  anywhere = (Ops.SORT,) if kernel.stores_only else (Ops.SCAN, Ops.SORT)
  def rule(u: UOp) -> str | None:
    for s in u.src:
      if s.op in _STATEMENTS and u.op not in REGIONS: return f"reads a {s.op.name}, which is a statement and has no value"
      if s.op in anywhere and not (u.op is Ops.STORE and s is u.src[2] and u.src[0].op is Ops.DEFINE_LOCAL):
        return f"reads a {s.op.name}, which is only the whole value of a STORE into a variable"
    return None
  return rule


def _fits(kernel: Kernel) -> Rule:
  """The axes, params and variables that a node refers to are the kernel's, with the size and dimensions that the node has."""
  sizes = {a.id: a.size for a in kernel.axes}
  def rule(u: UOp) -> str | None:
    op, arg = u.op, u.arg
    axes: Iterable[int] = arg[:1] if op is Ops.RANGE else arg[1] if op is Ops.REDUCE else (arg,) if op is Ops.FOR else ()
    for i in axes:
      if i in sizes: continue
      return f"{op.name} over axis {i}, which the kernel does not have (axes: {', '.join(map(str, sorted(sizes))) or 'none'})"
    if op is Ops.RANGE and sizes[arg[0]] != arg[1]:
      return f"RANGE of {arg[1]} over axis {arg[0]}, whose size is {sizes[arg[0]]}"
    if op not in ACCESSES: return None
    buffer, n = u.src[0], len(u.src[1].src)
    what, name = ("variable", buffer.arg[0]) if is_variable(buffer) else ("param", buffer.arg[1])
    param = kernel.by_uop.get(buffer)
    if buffer.op is Ops.DEFINE_GLOBAL and param is None: return f"{op.name} of {name!r}, which the kernel does not have"
    shape = buffer.arg[1] if is_variable(buffer) else None if param is None else param.shape
    if shape is None or len(shape) == n: return None
    return f"an INDEX of {n} dimensions into {what} {name!r} of shape {shape}"
  return rule


def _unordered(kernel: Kernel) -> Rule:
  """The order in which elements are stored does not matter: a STORE writes different places for different values of its
  axes, and an element that is stored twice gets the same value twice."""
  fors = frozenset(u.arg for u in kernel.nodes if u.op is Ops.FOR)
  programs = fors.union(a.id for a in kernel.grid)
  locked = any(map(orders, kernel.effects))
  twice = next((a for a in kernel.axes if a.again), None)
  def rule(u: UOp) -> str | None:
    if u.op is Ops.STORE:
      ordered = fors if u.src[0].op is Ops.DEFINE_GLOBAL and not locked else programs
      if isinstance(u.arg, tuple): ordered = ordered.union(u.arg[1])
      place = u.src[1].ranges.union(*(s.ranges for s in u.src[3:]))
      free = sorted(r.arg for r in u.src[2].ranges - place if r.arg[0] not in ordered)
      if free:
        return f"STORE of a value that depends on {', '.join(f'axis {i} of {n}' for i, n in free)} to a place that does not"
    if twice is not None and (u.op in EFFECTS and reads_its_place(u) or u.op is Ops.LOAD and u.src[0] in kernel.written):
      return f"axis {twice} has {twice.again} elements twice, and what is written depends on what was there"
    return None
  return rule


def verify_index(kernel: Kernel, name: str = "", part: bool = False) -> None:
  """Check a kernel in index form: its statements and all nodes beneath. A ``part`` of a kernel may be a value, and has SPECIALs
  for the program's position and the loops around it.

  Raises VerifyError: among others for a RANGE that is no axis of the kernel and an INDEX that does not fit its param."""
  about, table = f"kernel {name!r}", {**INDEX, Ops.SPECIAL: no_sources} if part else INDEX
  verify(kernel.nodes, about, by_op(table, "the index form"), _fits(kernel), _unordered(kernel), _misplaced(kernel))
  for r in kernel.body:
    if r.op not in _STATEMENTS and not part:
      raise node_error(about, f"the body of a kernel is statements, got {r.op}", kernel.nodes, kernel.nodes.index(r))


# ---- expanded parts

def _filled(u: UOp) -> str | None:
  if len(u.src) < 3 or u.src[1].op is not Ops.DEFINE_LOCAL:
    return "an expanded CACHE_READ has an index, a local array and the STOREs that fill it"
  return next((f"CACHE_READ is filled by STOREs to its array, got {s.op}" for s in u.src[2:]
               if s.op is not Ops.STORE or s.src[0] is not u.src[1]), None)


_EACH_COPY = all_of(source_count(1, "a source for each copy of its axes", ANY), lambda u: next(
  (f"{u.op.name} of {s.dtype} gives {s.dtype}, not {u.dtype}" for s in u.src if s.dtype.scalar() is not u.dtype.scalar()), None))
EXPANDED = op_rules(KERNEL, VECTORS, access_rules(
  lambda i: None if i.dtype is dtypes.index else f"an expanded LOAD or STORE has one flat index, got {i.op} of {i.dtype}"),
  REDUCE=_EACH_COPY, SCAN=_EACH_COPY, SORT=_EACH_COPY, SPECIAL=lambda u: None, CACHE_READ=_filled)
_EXPANDED_KINDS = AxisKind.UPCAST, AxisKind.UNROLL, AxisKind.LANE


def verify_part(part: Part, name: str) -> None:
  """Check an expanded part. Raises VerifyError: for an axis whose copies have not been made, a sum of too many additions, .."""
  kernel, nodes = part.kernel, toposort(part.roots)
  for u in kernel.reduces:
    if is_float_sum(u) and (n := additions(kernel, u)) > (most := most_additions(kernel, u)):
      raise VerifyError(
        f"kernel {name!r}: an accumulator of {u.dtype} takes {n:,} additions one after the other, which is not exact enough; "
        f"{most:,} at most")
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
