"""What a library's manifest says of kernels for many sizes, as plain JSON. Expressions are text that is parsed, never run."""
from __future__ import annotations

from keyword import iskeyword
from typing import Any, Iterable, Mapping, Sequence
from unicodedata import normalize

import numpy as np

from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.bound import Operations, Unit, Work
from ntgrad.codegen.index import COMPARISONS, Dim, text_of, without_options
from ntgrad.codegen.ir import ArgumentError, DType, NtgradError, Ops, UOp, dtypes
from ntgrad.graph.symbol import Condition, Expr, Symbol

from .assessments import Assessment
from .block import dtype_of
from .signature import Signature
from .tensor import SYMBOL_OPTIONS, Declaration, Operation, Tensor

_SIGNS = "< <= > >= == !=".split()
_OPERATIONS = "tile expand squeeze unsqueeze permute flatten unflatten ravel pad flip index".split()


# ---- expressions

def size_entry(e: Dim) -> int | str:
  """An expression of run-time sizes as text, in which they have their names alone."""
  return e if isinstance(e, int) else text_of(without_options(e))


def expression(x: Any) -> Dim:
  """What ``size_entry`` gave. Raises ArgumentError for anything else."""
  return ix.number(Symbol(x).node)


def conditions(cs: Iterable[UOp]) -> list[list[int | str]]:
  """Comparisons, all of which must hold: ``[["N", "<", 17]]``."""
  out = []
  for c in ix.conjuncts(ix.both(*cs)):
    if c.op is not Ops.ALU or c.arg not in COMPARISONS: raise ArgumentError(f"build: {c} is no comparison of sizes")
    a, b = c.src
    out.append([size_entry(ix.number(a)), COMPARISONS[c.arg], size_entry(ix.number(b))])
  return out


def comparison(found: Sequence[Any]) -> UOp:
  """One of those that ``conditions`` gave."""
  a, sign, b = found
  fn = next((f for f, s in COMPARISONS.items() if s == sign), None)
  if fn is None: raise ArgumentError(f"{sign!r} compares nothing")
  return UOp.alu(fn, ix.node(expression(a)), ix.node(expression(b)))


def checked_name(name: str) -> None:
  """Raises ArgumentError for a name that does not come back from text as it is."""
  if iskeyword(name) or normalize("NFKC", name) != name:
    raise ArgumentError(f"build: a size is called {name!r}, which a library cannot have; give it another name")


# ---- what a kernel takes

def signature(k: Signature, taken: Sequence[DType | None]) -> dict[str, Any]:
  """A kernel's parameters, of these dtypes, with their arrangements, and what it assumes of sizes."""
  for n in k.symbols: checked_name(n)
  parameters = []
  for t, arranged, dtype in zip(k.tensors, k.arranged, taken):
    s = t._source
    parameters.append({"name": s.name, "shape": list(map(declared_size, s.shape)), "named": [g is not None for g in s.given],
                       "dtype": None if dtype is None else dtype.name, "other": s.other, "value": s.value,
                       "constexpr": s.constexpr, "operations": [[o.level, o.name, _packed(o.args)] for o in arranged.operations]})
  return {
    "symbols": {n: {o: getattr(s, o) for o in SYMBOL_OPTIONS} for n, s in sorted(k.symbols.items())},
    "parameters": parameters,
    "assessed": [[[declared_size(c.a), c.op, declared_size(c.b)], a.message, a.where, a.of] for a in k.assessed
                 if isinstance(c := a.condition, Condition)]}


def signature_parts(found: Mapping[str, Any]) -> tuple[list[Tensor], list[Tensor], list[Assessment]]:
  """The tensors that ``signature`` had, as declared and as arranged, and its assessments."""
  symbols = {n: Symbol(n, **o) for n, o in found["symbols"].items()}
  declared: list[Tensor] = []
  arranged: list[Tensor] = []
  for p in found["parameters"]:
    shape = tuple(_unsized(e, symbols) for e in p["shape"])
    given = tuple(e if g else None for e, g in zip(shape, p["named"], strict=True))
    dtype = None if p["dtype"] is None else dtypes.of(p["dtype"])
    source = Declaration(p["name"], shape, given, (False,) * len(shape), dtype, p["other"], ({},) * len(shape), p["constexpr"],
                         p["value"])
    operations = tuple(Operation(level, name, _unpacked(args, symbols)) for level, name, args in p["operations"])
    if any(o.name not in _OPERATIONS for o in operations): raise ValueError("no such meta-operation")
    declared.append(Tensor._of(source))
    arranged.append(Tensor._of(source, operations))
  def assessed(c: Sequence[Any]) -> Condition:
    a, op, b = c
    if op not in _SIGNS: raise ValueError(f"{op!r:.40} compares nothing")
    return Condition(op, _unsized(a, symbols), _unsized(b, symbols))
  return declared, arranged, [Assessment(assessed(c), *said) for c, *said in found["assessed"]]


def declared_size(e: Expr) -> int | str: return e if isinstance(e, int) else str(e)


def _unsized(x: Any, symbols: Mapping[str, Symbol]) -> Expr:
  found = x if isinstance(x, int) else Symbol(x)
  return found.subs(symbols) if isinstance(found, Symbol) else found


def _packed(a: Any) -> Any:
  """A meta-operation's arguments as JSON: a size is an int or {"size": its text}."""
  match a:
    case Symbol(): return {"size": str(a)}
    case slice(): return {"slice": list(map(_packed, (a.start, a.stop, a.step)))}
    case tuple() | list(): return list(map(_packed, a))
  if a is Ellipsis: return "..."
  return a if a is None or isinstance(a, bool) else int(a)


def _unpacked(a: Any, symbols: Mapping[str, Symbol]) -> Any:
  if isinstance(a, list): return tuple(_unpacked(x, symbols) for x in a)
  if a == "...": return Ellipsis
  if not isinstance(a, dict): return a
  return _unsized(a["size"], symbols) if "size" in a else slice(*[_unpacked(x, symbols) for x in a["slice"]])


# ---- programs

def told(value: Any) -> Any:
  """A parameter of a configuration as the manifest has it, so that calls are compared with it: numbers and text as they are,
  dtypes (of any library) by name, anything else as it prints."""
  if value is None or isinstance(value, (bool, int, float, str)) and not isinstance(value, DType): return value
  if isinstance(value, np.generic): return value.item()
  try: return dtype_of(value).name
  except NtgradError: pass
  try: return dtype_of(str(value).rpartition(".")[2]).name   # torch.float32
  except NtgradError: return repr(value)


def program(spec: ProgramSpec, source: str) -> dict[str, Any]:
  """A rendered kernel, its source in a file. Sizes that count units have the names of those that they are parts of."""
  about = spec.source
  return {
    "name": spec.name, "source": source, "grid": list(map(size_entry, spec.grid)), "local": list(spec.local),
    "nparams": spec.nparams, "options": spec.options,
    "does": {"bytes": size_entry(spec.work.bytes), "axes": list(map(size_entry, spec.work.axes)),
             "operations": [[o.unit.value, o.dtype, size_entry(o.count)] for o in spec.work.operations]},
    "sizes": [s.name for s in spec.sizes],
    "about": {"signature": about.signature, "options": about.options, "parts": about.parts,
              "sizes": [d.name for d in about.sizes]}}


def spec_of(found: Mapping[str, Any], source: str) -> ProgramSpec:
  """The rendered kernel that ``program`` had."""
  about, does = found["about"], found["does"]
  pairs: dict[str, Any] = {n: tuple(map(tuple, about[n])) for n in ("signature", "options", "parts")}
  text = KernelSource(source, **pairs, sizes=tuple(map(dtypes.of, about["sizes"])))
  operations = tuple(Operations(Unit(unit), dtype, expression(n)) for unit, dtype, n in does["operations"])
  work = Work(expression(does["bytes"]), operations, tuple(map(expression, does["axes"])))
  options = tuple((name, n) for name, n in found["options"])
  grid, sizes = tuple(map(expression, found["grid"])), tuple(map(ix.Size, found["sizes"]))
  return ProgramSpec(found["name"], text, grid, tuple(found["local"]), found["nparams"], (), work, options, sizes)
