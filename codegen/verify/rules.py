"""What the verifier's tables are made of: rules for nodes of more than one form, and makers of rules.

A rule is a function of a node that gives one sentence about what is wrong, or None. The first sentence becomes a VerifyError that
names the program, the rule broken and the line of the listing."""
from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, Sequence

from ..index import Size
from ..ir import BinaryOps, DType, Number, Ops, TernaryOps, UnaryOps, UOp, VerifyError, dtypes, held
from ..ir.functions import COMBINERS, FUNCTIONS, refusal
from ..kernel import ACCESSES, ATOMICS, Fold, Print, UOpList

ANY = 1 << 30   # sources: no limit

Rule = Callable[[UOp], str | None]
BUFFERS = Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL
_ARITY = {UnaryOps: 1, BinaryOps: 2, TernaryOps: 3}


def verify(nodes: Sequence[UOp], name: str, *rules: Rule) -> None:
  """Check every node by all rules, in order. Raises VerifyError with the first sentence, and the node's line of the listing."""
  for i, u in enumerate(nodes):
    for rule in rules:
      if wrong := rule(u): raise node_error(name, wrong, nodes, i)


def node_error(name: str, wrong: str, nodes: Sequence[UOp], i: int) -> VerifyError:
  """The error about node ``i`` of a listing. A source that is not in the listing has a number past its end."""
  return VerifyError(f"{name}: {wrong}\n{UOpList([*nodes, *(s for s in nodes[i].src if s not in nodes)]).lines()[i]}")


# ---- makers of rules

def by_op(table: Mapping[Ops, Rule], form: str) -> Rule:
  """The rule that a table has for the node's op. An op without one does not belong in the form."""
  return lambda u: table[u.op](u) if u.op in table else f"{u.op} does not belong in {form}"


def all_of(*rules: Rule) -> Rule:
  """The first sentence that one of the rules gives."""
  return lambda u: next((wrong for rule in rules if (wrong := rule(u))), None)


def op_rules(*shared: Mapping[Ops, Rule], **rules: Rule | tuple[Rule, ...]) -> dict[Ops, Rule]:
  """Rules by the names of ops, one or several an op, after and over those of shared tables."""
  out: dict[Ops, Rule] = {}
  for t in shared: out.update(t)
  return out | {Ops[name]: rule if callable(rule) else all_of(*rule) for name, rule in rules.items()}


def source_count(least: int, what: str, most: int | None = None) -> Rule:
  """From ``least`` to ``most`` sources (default: exactly ``least``); ``what`` names them: "a base and an index"."""
  return lambda u: None if least <= len(u.src) <= (least if most is None else most) else \
    f"{u.op.name} has {what}, got {len(u.src)} sources"


def argument(fits: Callable[[Any], bool], what: str) -> Rule:
  """An arg that ``fits``; ``what`` describes it."""
  return lambda u: None if fits(u.arg) else f"the arg of {u.op.name} is {what}, got {u.arg!r}"


def one_dtype(*at: int) -> Rule:
  """The sources at these positions (default: all of them) have the dtype of the node."""
  def rule(u: UOp) -> str | None:
    read = [u.src[i].dtype for i in at] or [s.dtype for s in u.src]
    return None if all(d is u.dtype for d in read) else f"{u.op.name} of {names(read)} gives {u.dtype}: one dtype expected"
  return rule


# ---- parts of rules

no_sources = source_count(0, "no sources")
one_source = source_count(1, "one source")
same_dtype = all_of(one_source, one_dtype())


def fields(value: Any, *kinds: type) -> bool: return isinstance(value, tuple) and tuple(map(type, value)) == kinds


def tuple_of(value: Any, *lengths: int) -> bool: return isinstance(value, tuple) and len(value) in lengths


def int_dtype(what: str, u: UOp) -> str | None:
  """``what``, which ``u`` is, has a scalar int dtype."""
  return None if u.dtype.kind in "iu" and u.dtype.count == 1 else f"{what} has a scalar int dtype, got {u.dtype}"


def spreads(dtype: DType, element: DType, count: int) -> bool: return dtype.scalar() is element and dtype.count in (1, count)


def python_type(dtype: DType) -> type[Number]: return {"f": float, "e": float, "b": bool}.get(dtype.kind, int)


def names(ds: Iterable[DType]) -> str: return " and ".join(dict.fromkeys(map(str, ds)))   # each dtype once, joined by "and"


# ---- rules

def alu_rule(u: UOp) -> str | None:
  """The number of sources, their dtypes, and what the function takes."""
  dtype = u.dtype
  fn, values = u.arg, u.src
  arity = _ARITY.get(type(fn))
  if arity is None: return f"ALU needs a function (UnaryOps, BinaryOps or TernaryOps), got {fn!r}"
  if len(values) != arity: return f"{fn} takes {arity} sources, got {len(values)}"
  for s in values:
    if s.dtype.count not in (1, dtype.count):
      return f"{fn} gives {dtype.count} elements, a source has {s.dtype.count} (1 or {dtype.count} expected)"
  if fn is TernaryOps.WHERE:
    if values[0].dtype.scalar() is not dtypes.bool: return f"the condition of WHERE is bool, got {values[0].dtype}"
    values = values[1:]
  kind, *others = {s.dtype.scalar() for s in values}
  if others: return f"the sources of {fn} have one dtype, got {names(s.dtype for s in values)}"
  gives = FUNCTIONS[fn].gives or kind
  return f"{fn} of {kind} gives {gives}, not {dtype.scalar()}" if dtype.scalar() is not gives else refusal(fn, kind)


size_rule = all_of(
  argument(lambda a: isinstance(a, Size), "a Size"), no_sources,
  lambda u: None if u.dtype is dtypes.index or u.op is Ops.DEFINE_VAR and u.dtype in (dtypes.int32, dtypes.int64) else
  f"{u.op.name} is an index{', an int32 or an int64' if u.op is Ops.DEFINE_VAR else ''}, got {u.dtype}")


def cast_rule(u: UOp) -> str | None:
  """A source of the same count, or a scalar that is broadcast."""
  src = u.src[0].dtype
  if src.count not in (1, u.dtype.count): return f"{u.op.name} keeps the count: {src} to {u.dtype}"
  return None if u.op is not Ops.BITCAST or src.itemsize == u.dtype.itemsize else \
    f"BITCAST keeps the item size: {src} has {src.itemsize} bytes, {u.dtype} {u.dtype.itemsize}"


def const_rule(u: UOp) -> str | None:
  """A value of the dtype's kind that the dtype has."""
  arg, dtype = u.arg, u.dtype
  want = python_type(dtype)
  if u.src: return "CONST has no sources"
  if type(arg) is not want: return f"a {dtype} constant is a Python {want.__name__}, got {arg!r}"
  if want is int and dtype is not dtypes.index and not dtypes.min(dtype.scalar()) <= arg <= dtypes.max(dtype.scalar()):
    return f"{arg} is outside {dtype}"
  return f"{arg} is not rounded to {dtype}" if want is float and arg == arg and held(arg, dtype) != arg else None


VALUES = op_rules(CONST=const_rule, ALU=alu_rule, CAST=(one_source, cast_rule), BITCAST=(one_source, cast_rule))


def combiner_rule(op: Any, dtype: DType) -> str | None:
  """What reduces, and which dtypes it takes."""
  if op not in COMBINERS: return f"no combiner {op!r}; combiners: {', '.join(c.name for c in COMBINERS)}"
  return refusal(op, dtype, f"a reduction by {op.name}")


_range = all_of(
  argument(lambda a: tuple_of(a, 2) and isinstance(a[0], int) and
           (isinstance(a[1], UOp) or isinstance(a[1], int) and a[1] >= 1), "(axis id, size >= 1)"),
  lambda u: None if u.src == (u.arg[1],) else "a RANGE whose size is no number has it as its source"
  if isinstance(u.arg[1], UOp) else no_sources(u),
  lambda u: int_dtype("a RANGE", u))


def access_rules(index: Rule, scatters: bool = False) -> dict[Ops, Rule]:
  """The entries of a table for LOAD, STORE and ATOMIC: a buffer, an index that keeps to its rule, the value's dtype, the gate.

  ``scatters``: a STORE may go through axes in order, adding later values to earlier ones or replacing them."""
  def rule(u: UOp) -> str | None:
    op, src, arg = u.op, u.src, u.arg
    store = op is not Ops.LOAD
    # the last: that all elements of a vector lie in memory, also those that are not read
    most = 7 if op is Ops.ATOMIC else 4 if store else 5
    if wrong := source_count(2 + store, f"{2 + store} to {most} sources", most)(u): return wrong
    buf = src[0]
    if buf.op not in BUFFERS: return f"{op.name} needs a DEFINE_GLOBAL or DEFINE_LOCAL first, got {buf.op}"
    if wrong := index(src[1]): return wrong
    dtype = src[2].dtype if store else u.dtype
    if dtype.scalar() is not buf.dtype: return f"{op.name} of {dtype} in a buffer of {buf.dtype}"
    gate, other = (*src[2 + store:], None, None)[:2]
    if gate is not None and not spreads(gate.dtype, dtypes.bool, dtype.count):
      return f"a gate is bool, one or one a lane ({dtype.count}), got {gate.dtype}"
    if op is Ops.ATOMIC and src[4:]:
      if len(src) != 6 + (arg == "cas") or src[4].op is not Ops.DEFINE_LOCAL or any(s.dtype is not buf.dtype for s in src[4::2]):
        return f"ATOMIC {arg} gives {dtype} to a variable of that dtype, at an index, and only cas has what it compares with"
      if wrong := index(src[5]): return wrong
    elif src[4:] and src[4].dtype is not dtypes.bool: return f"whether a vector lies in memory is a bool, got {src[4].dtype}"
    if other is not None and not spreads(other.dtype, dtype.scalar(), dtype.count):
      return f"`other` of a LOAD of {dtype} is {other.dtype}"
    if store and buf.op is Ops.DEFINE_GLOBAL and not buf.arg[2]:
      return f"{op.name} into {buf.arg[1]!r}, which is declared as not written"
    allowed = ATOMICS if op is Ops.ATOMIC else (None, "nt", "tma") if store else (None, "tma", "look")
    ordered = scatters and op is Ops.STORE
    if arg not in allowed and not (ordered and fields(arg, str, tuple) and arg[0] in ("add", "set")):
      also = ", ('add' or 'set', axis ids)" if ordered else ""
      return f"the arg of {op.name} is one of {', '.join(map(repr, allowed))}{also}, got {arg!r}"
    if buf.op is Ops.DEFINE_LOCAL and op is Ops.ATOMIC:
      return f"ATOMIC on {buf.arg[0]!r}, which only one program sees: a STORE does it"
    if buf.op is Ops.DEFINE_LOCAL and arg == "tma": return f"{op.name} of {buf.arg[0]!r} by descriptor: only params have one"
    return f"ATOMIC takes numbers, got {dtype}" if op is Ops.ATOMIC and dtype.kind == "b" else None
  return dict.fromkeys(ACCESSES, rule)


def _elements(fits: Callable[[Any], bool], what: str) -> Rule:
  return all_of(argument(fits, what), lambda u: f"a buffer has a scalar dtype, got {u.dtype}" if u.dtype.count != 1 else None)


_global = _elements(
  lambda a: (fields(a, int, str, bool) or fields(a, int, str, bool, int) and a[3] >= 1) and a[0] >= 0,
  "(slot, name, written) and, where it begins somewhere in a memory, the bytes that its place is a multiple of")
local_rule = _elements(
  lambda a: fields(a, str, int, str) and a[1] >= 1 and a[2] in ("local", "private"), "(name, size >= 1, 'local' or 'private')")
_shaped = _elements(lambda a: all(type(n) is int and n >= 1 for n in a[1]) and a[2] == "private", "(name, sizes >= 1, 'private')")


def _vectorize(u: UOp) -> str | None:
  """A scalar for each element of the vector."""
  if len(u.src) != u.dtype.count: return f"VECTORIZE to {u.dtype} of {len(u.src)} sources"
  found = [s.dtype for s in u.src]
  return f"VECTORIZE to {u.dtype} of {names(found)}" if {*found} - {u.dtype.scalar()} else None


def _gep(u: UOp) -> str | None:
  v = u.src[0].dtype
  if not isinstance(u.arg, int) or not 0 <= u.arg < v.count: return f"GEP of lane {u.arg!r} of a vector of {v.count}"
  return f"GEP of {v} gives {v.scalar()}, not {u.dtype}" if u.dtype is not v.scalar() else None


_print = all_of(argument(lambda a: isinstance(a, Print), "a Print"), lambda u: None if all(
  s.op is Ops.DEFINE_LOCAL if i < len(u.arg.shapes) else s.dtype.kind in "iu" for i, s in enumerate(u.src)) and
  len(u.src) >= len(u.arg.shapes) else "PRINT has a variable for each of its shapes, then ints: the program's place")


def _fold(u: UOp) -> str | None:
  f, n = u.arg, len(u.arg.first)
  if not len(f.second) == len(f.results) == n == len(u.src) - len(f.asked) or any(s.op is not Ops.DEFINE_LOCAL for s in u.src):
    return f"FOLD reads {n} variables and fills {len(f.asked)}, got {len(u.src)} sources"
  given = [[x.dtype for x in xs] for xs in (f.first, f.second, f.results, u.src[:n])]
  if given != given[:1] * 4 or [s.dtype for s in u.src[n:]] != [f.results[i].dtype for i in f.asked]:
    return f"FOLD of {names(given[3])} combines {names(given[0])} and {names(given[1])} to {names(given[2])}"
  return None if 0 <= f.axis < len(f.shape) else f"FOLD along dimension {f.axis} of {f.shape}"


# tables that forms of a kernel share
KERNEL = op_rules(
  VALUES, RANGE=_range, SIZE=size_rule, DEFINE_GLOBAL=_global, PRINT=_print,
  FOLD=(argument(lambda a: isinstance(a, Fold), "a Fold"), _fold),
  DEFINE_LOCAL=lambda u: (_shaped if fields(u.arg, str, tuple, str) else local_rule)(u))   # or an array of the linear form
VECTORS = op_rules(VECTORIZE=_vectorize, GEP=(one_source, _gep))
