"""Races of a tile kernel, in its application's words: its grid's programs, its parameters, its lines. Those that its indices show
are refused on every device; NUMPY finds the others when it runs."""
from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence

import numpy as np

from ntgrad.backends.base import ProgramAround, Sizes
from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim, below, evaluator
from ntgrad.codegen.ir import BinaryOps, Ops, RaceError, UOp, toposort
from ntgrad.codegen.kernel import EFFECTS, AxisKind, Kernel, gate_or_true, inner, is_variable, orders, rewrite, substitute

from .parameters import Parameter

if TYPE_CHECKING:
  from .specialised import Specialised

_ADVICE = "give each its own elements, use atomic operations alone, or make two kernels of it"
_OPS = {"reads": Ops.LOAD, "writes": Ops.STORE, "updates": Ops.ATOMIC}


@dataclass(eq=False)
class Named(ProgramAround):
  """A program of NUMPY, of a kernel ``of`` people, whose races are said so. ``exact`` makes it without Opts, which may change the
  grid."""
  program: Any
  kernel: Kernel
  of: Specialised
  exact: Callable[[], Any]

  def __call__(self, buffers: Sequence[Any], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Launch. Raises RaceError."""
    try: return self.program(buffers, wait, sizes)
    except RaceError as e: found, own = e, not self.kernel.plain
    if not own and (exact := self.exact()).spec.sizes == self.spec.sizes:
      try: exact(buffers, False, sizes)
      except RaceError as e: found, own = e, True
    slot, element, (verb, first), (does, second) = found.race
    def place(i: int, dims: Sequence[Dim]) -> tuple[int, ...]:
      return tuple(map(int, np.unravel_index(i, evaluator(tuple(dims), self.spec.sizes)(sizes))))
    def at(what: str) -> str:
      return " at " + " or ".join(lines) if (lines := self.of.accesses.get((slot, _OPS[what]))) else ""
    where = f"{self.of.parameters[slot].name}[{', '.join(map(str, place(element, self.kernel.params[slot].shape)))}]"
    a, b = (place(n, [axis.size for axis in self.kernel.grid]) if own else () for n in (first, second))
    said = f"program {a} {verb} {where}{at(verb)}, program {b} {does} it{at(does)}"
    if a == b: said = f"elements of one program's block write {where} with different values{at(verb)}"
    raise RaceError(f"{self.of.name}: {said}: a race, the launch decides what comes of it; {_ADVICE}") from None


def refuse_races(name: str, kernel: Kernel, parameters: Sequence[Parameter],
                 lines: Mapping[tuple[int | str, Ops], Sequence[str]]) -> None:
  """Raises RaceError where several programs store to one element, each a value of its own, as the indices show: the value depends
  on the program, and the place does not, or windows overlap in which the value is another. A value that is the same is no race,
  what is stored under a condition on the program may be one program's, and programs that look at what atomic operations found
  may wait for each other."""
  several = [a.rng for a in kernel.grid if a.size != 1]
  suspect = {p.slot: p for p in parameters if p.shared}
  if not suspect or not several or any(map(orders, kernel.nodes)): return
  # with the conditions and lengths of the regions around each
  effects = [(s, tuple([r.src[0] for r in around])) for s, around in in_regions(kernel.body) if s.op in EFFECTS]
  varying = _varying(effects)
  def axes(*us: UOp) -> set[UOp]:
    return set().union(*[u.ranges for u in us], *[varying.get(n, ()) for n in toposort(us) if n.op is Ops.DEFINE_LOCAL])
  for s, conditions in effects:
    if s.op is not Ops.STORE or s.src[0].op is not Ops.DEFINE_GLOBAL or (p := suspect.get(s.src[0].arg[0])) is None: continue
    place, value = (*s.src[1].src, gate_or_true(s), *conditions), rewrite((s.src[2],), {Ops.ALU: zero})[0]
    there, own = axes(*place), axes(value)
    steps = [{g: ix.const(1)} for g in several if g in own and g not in there and below(1, g.arg[1])]
    if not steps and not any(n.op is Ops.DEFINE_LOCAL for n in toposort((value, *place))):
      steps = [step for step in _overlaps(kernel, several, place) if _moved(value, step) is not value]
    if not steps: continue
    def program(step: Mapping[UOp, UOp]) -> tuple[int, ...]: return tuple(step.get(a.rng, ix.ZERO).arg for a in kernel.grid)
    first = {r: ix.const(max(-n.arg, 0)) for r, n in steps[0].items()}   # where another program's element is
    at = [substitute((i,), {**dict.fromkeys(i.ranges, ix.ZERO), **first})[0] for i in s.src[1].src]
    where = f"{p.name}[{', '.join(str(i.arg) if i.op is Ops.CONST else '…' for i in at)}]"
    line = f" at {' or '.join(found)}" if (found := lines.get((p.slot, Ops.STORE))) else ""
    raise RaceError(f"{name}: program {program({})} writes {where}{line}, program {program(steps[0])} writes it{line}, each a "
                    f"value of its own: a race, the launch decides what comes of it; {_ADVICE}")


def zero(u: UOp, new: UOp) -> UOp | None:
  """0 for what is multiplied by it."""
  return UOp.const(u.dtype, 0) if u.arg is BinaryOps.MUL and any(s.op is Ops.CONST and s.arg == 0 for s in u.src) else None


def _moved(u: UOp, step: Mapping[UOp, UOp]) -> UOp: return substitute((u,), {r: ix.add(r, n) for r, n in step.items()})[0]


def in_regions(body: Sequence[UOp]) -> Iterator[tuple[UOp, tuple[UOp, ...]]]:
  """Every statement, in order, a region before what it has; each with the regions around it, outermost first."""
  stack: list[tuple[UOp, tuple[UOp, ...]]] = [(s, ()) for s in reversed(body)]
  while stack:
    s, around = stack.pop()
    yield s, around
    stack += [(x, (*around, s)) for part in inner(s) for x in part][::-1]


def _varying(effects: Sequence[tuple[UOp, tuple[UOp, ...]]]) -> dict[UOp, set[UOp]]:
  """The axes that the contents of each variable depend on."""
  out: dict[UOp, set[UOp]] = {}
  fills = [(s.src[0], set().union(*[u.ranges for u in made]), [n for n in toposort(made) if n.op is Ops.DEFINE_LOCAL])
           for s, conditions in effects if is_variable(s.src[0]) for made in [(*s.src[1:], *conditions)]]
  changed = True
  while changed:
    changed = False
    for v, own, read in fills:
      found = own.union(*[out.get(n, ()) for n in read])
      if not found <= out.setdefault(v, set()):
        out[v] |= found
        changed = True
  return out


def _overlaps(kernel: Kernel, several: Sequence[UOp], place: Sequence[UOp]) -> Iterator[dict[UOp, UOp]]:
  """Steps from a program and an element of its tile to another program's at the same place, along axes."""
  tiles = [a.rng for a in kernel.axes if a.kind is AxisKind.TILE and a.id not in kernel.bound]
  for i in place:
    terms = dict(ix.linear(i)[0]) if i.dtype is ix.INT else {}
    for g in [t for t in terms if t in several]:
      for t in [t for t in terms if t in tiles]:
        a, b = terms[g], terms[t]
        if not isinstance(a, int) or not isinstance(b, int): continue
        far, back = abs(b) // gcd(a, b), abs(a) // gcd(a, b) * (-1 if (a > 0) == (b > 0) else 1)
        if not below(far, g.arg[1]) or not below(abs(back), t.arg[1]): continue
        step = {g: ix.const(far), t: ix.const(back)}
        if all(_moved(x, step) is x for x in place): yield step
