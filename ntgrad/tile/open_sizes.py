"""Sizes that stay symbols: what is met with a second value becomes a run-time size. While a kernel is made for sizes, questions
that bounds do not answer (is N == M?) are answered as it is for the call at hand, and become conditions
(``codegen/index/assume.py``). A call for which none of a kernel's forms fits gets one more, or numbers."""
from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Container, Iterable, Mapping, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import UNKNOWN, Dim, evaluator, without_options
from ntgrad.codegen.ir import BinaryOps, Ops, UOp, config
from ntgrad.codegen.kernel import rewrite
from ntgrad.graph.symbol import Expr, Symbol, evaluate, symbols_of

if TYPE_CHECKING:
  from .kernel import TileKernel
  from .signature import Signature
  from .specialised import Specialised
  from .tensor import Tensor

_LARGEST = (1 << 31) - 1  # a run-time size; greater ones are numbers
MOST_FORMS = 16           # of the calls that differ in sizes only: from then on each has numbers
MOST_SEEN = 64            # values of a dimension, to tell whether there are several
_Values = Mapping[str, int]
_NONE: Mapping[str, str] = {}
Sizes = tuple[int, ...]
Shapes = Callable[[Sequence[int]], Sizes]


@dataclass(frozen=True)
class SizedKernel:
  """A kernel for many sizes: which values of names it takes, and what it is launched with for them."""
  specialised: Any                                    # Specialised, or Built where it comes from a library
  condition: UOp                                      # of names without options
  values: _Values                                      # that it was made for
  fits: Shapes                                        # of all values, in this order

  def serves(self, values: _Values) -> bool:
    """Whether it may be launched where names have these values."""
    return tuple(values) == tuple(self.values) and bool(self.fits(tuple(values.values()))[0])

  def sizes(self, values: _Values) -> Sizes:
    """What a launch gives for the kernel's sizes."""
    return tuple(values[s.name] for s in self.specialised.sizes)

  def of_shapes(self, kernel: Signature, shapes: Sequence[Sizes]) -> Shapes | None:
    """``serves`` and ``sizes`` as one function of the dimensions of all arguments, one after another. Names that are in no shape
    have the values that they had first. None where a dimension is an expression of names."""
    declared = [t._source.shape for t in kernel.takes if not t.constexpr]
    if [len(s) for s in declared] != [len(s) for s in shapes]: return None
    dims = [ix.Size(f"d{i}").node for i in range(sum(map(len, shapes)))]
    first: dict[str, UOp] = {}
    conditions = []
    for want, d in zip([e for shape in declared for e in shape], dims):
      if isinstance(want, Symbol) and not want.is_name: return None
      to = ix.const(want) if isinstance(want, int) else first.setdefault(want.name, d)
      if to is not d: conditions.append(UOp.alu(BinaryOps.CMPEQ, d, to))
    known = {n: first.get(n) or ix.const(v) for n, v in self.values.items()}
    conditions += rewrite((self.condition,), {Ops.SIZE: lambda old, new: known[old.arg.name]})
    return evaluator((ix.both(*conditions), *[known[s.name] for s in self.specialised.sizes]), tuple(d.arg for d in dims))


@dataclass
class Family:
  """The calls of a kernel that differ in sizes only."""
  seen: dict[str, set[int]] = field(default_factory=dict)   # of each name the values that it had
  equal: dict[str, str] = field(default_factory=dict)       # of dimensions without a name: the first that was equal in every call
  forms: list[SizedKernel] = field(default_factory=list)

  def open(self, kernel: TileKernel, values: _Values, given: Iterable[str]) -> list[str]:
    """The names that are sizes in a call with these values, which is noted."""
    automatic = names_in(kernel.tensors, automatic=True)
    def free(s: Symbol) -> bool: return not s.constexpr and not s.power_of_two
    names = [n for n in names_in(kernel.tensors) if n not in given and free(kernel.symbols[n])]
    if config.dynamic == "never": return []
    for n in names:
      had = self.seen.setdefault(n, set())
      if len(had) < MOST_SEEN: had.add(values[n])
    first: dict[tuple[str, int], str] = {}
    self.equal = {n: first.setdefault((self.equal.get(n, ""), values[n]), n) for n in names if n in automatic}
    if not all(0 < values[n] <= _LARGEST for n in names): return []
    return names if config.dynamic == "always" else [n for n in names if n not in automatic or len(self.seen[n]) > 1]


def likely_size(s: Symbol) -> int:
  """A number that a size may well be."""
  return min(max(s.lower_bound or 1, UNKNOWN), s.upper_bound or UNKNOWN)


def agree_on_grid(grids: Sequence[Sequence[Expr]], hints: dict[str, int], fixed: Container[str]) -> None:
  """Change likely sizes so that the grids of all parameters are the same for them, as they are in calls: of each that differs,
  one size that is not ``fixed`` and only in it becomes the greatest that does it, others only in it 1 if need be."""
  for grid in grids[1:]:
    for a, b in zip(grid, grids[0]) if len(grid) == len(grids[0]) else ():
      mine, theirs = symbols_of(a), symbols_of(b)
      if any(s.name not in hints for s in mine | theirs) or evaluate(a, hints) == evaluate(b, hints): continue
      for e, own, other in ((a, mine - theirs, b), (b, theirs - mine, a)):
        names, to = sorted(s.name for s in own if s.name not in fixed), evaluate(other, hints)
        for found in (found_size(e, to, hints | ones, names[-1]) for ones in ({}, dict.fromkeys(names[:-1], 1)) if names):
          if found is not None: break
        else: continue
        hints |= found
        break


def found_size(e: Expr, to: int, hints: Mapping[str, int], name: str) -> dict[str, int] | None:
  """Likely sizes with the greatest value of one name for which an expression that grows with it is a number; None for none."""
  def at(n: int) -> int: return evaluate(e, {**hints, name: n})
  low = bisect_right(range(1, _LARGEST), to, key=at)
  return {**hints, name: low} if low and at(low) == to else None


def names_in(tensors: Sequence[Tensor], automatic: bool = False) -> list[str]:
  """The names in the shapes of parameters, or only those of dimensions that were declared without one."""
  dims = [(e, a) for t in tensors for e, a in zip(t._source.shape, t._source.automatic) if isinstance(e, Symbol)]
  return list(dict.fromkeys([s.name for e, a in dims if a or not automatic for s in sorted(e.names(), key=str)]))


def form_of(names: Sequence[str], values: _Values, symbols: Mapping[str, Symbol],
            make: Callable[[Mapping[str, Dim]], tuple[Specialised, Iterable[UOp]]],
            equal: Mapping[str, str] = _NONE) -> SizedKernel:
  """A kernel for all values of ``names`` that are like these, by ``make``, which gives the conditions that this takes too. What
  must be equal is one size: the kernel is made again with one name for both, or with the number. So is what is to be ``equal``:
  each name, and the one that stands for it."""
  given: dict[str, Dim] = dict(values)
  for n in names:   # 1 or more, and within the symbol's bounds
    s = symbols[n]
    low, high = max(s.lower_bound or 1, 1), _LARGEST if s.upper_bound is None else min(s.upper_bound, _LARGEST)
    given[n] = ix.Size(equal.get(n, n), low, high, hint=values[n]).node
  while True:
    specialised, conditions = make(given)
    conditions = list(conditions)
    found = {n: to for c in conditions for n, to in equal_in(c)}
    if not found: break
    given = {n: found.get(v.arg.name, v) if isinstance(v, UOp) else v for n, v in given.items()}
  each = list(map(without_options, conditions))
  for n, v in given.items():
    name = ix.Size(n).node
    if not isinstance(v, UOp): each.append(UOp.alu(BinaryOps.CMPEQ, name, ix.const(values[n])))
    elif v.arg.name != n: each.append(UOp.alu(BinaryOps.CMPEQ, name, without_options(v)))
    else: each += [UOp.alu(BinaryOps.CMPLE, ix.const(v.arg.lower), name), UOp.alu(BinaryOps.CMPLE, name, ix.const(v.arg.upper))]
  return form_for(specialised, ix.both(*each), values)


def form_for(specialised: Any, condition: UOp, values: _Values) -> SizedKernel:
  """The form of a kernel that serves values which fulfil a condition on names without options."""
  return SizedKernel(specialised, condition, dict(values), evaluator((condition,), tuple(ix.Size(n) for n in values)))


def equal_in(c: UOp) -> list[tuple[str, Dim]]:
  """The size and what it is equal to, where a condition says so: N == M, N == 4."""
  if c.op is not Ops.ALU or c.arg is not BinaryOps.CMPEQ or c.src[1].op is not Ops.CONST: return []
  terms, rest = ix.linear(c.src[0])
  n = c.src[1].arg - rest
  if any(t.op is not Ops.SIZE for t, _ in terms): return []
  match terms:
    case [(a, k)] if n % k == 0: return [(a.arg.name, n // k)]
    case [(a, k), (b, m)] if n == 0 and k == -m:
      a, b = sorted((a, b), key=lambda t: str(t.arg.name))
      return [(b.arg.name, a)]
  return []
