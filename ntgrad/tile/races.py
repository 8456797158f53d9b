"""Races of a tile kernel, as NUMPY finds them, in its application's words: its grid's programs, its parameters, its lines."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Sequence

import numpy as np

from ntgrad.backends.base import ProgramAround, Sizes
from ntgrad.codegen.index import Dim, evaluator
from ntgrad.codegen.ir import Ops, RaceError
from ntgrad.codegen.kernel import Kernel

if TYPE_CHECKING:
  from .specialised import Specialised

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
    raise RaceError(f"{self.of.name}: {said}: a race, the launch decides what comes of it; give each its own elements, use "
                    "atomic operations alone, or make two kernels of it") from None
