"""Races of a tile kernel, as NUMPY finds them, in its application's words: its grid's programs, its parameters, its lines."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from ntgrad.backends.base import Program, Sizes
from ntgrad.codegen.index import Dim, evaluator
from ntgrad.codegen.ir import Ops, RaceError
from ntgrad.codegen.kernel import Kernel

Places = Mapping[tuple[int, Ops], Sequence[str]]   # of a LOAD, STORE or ATOMIC of a parameter, by its slot: the lines
_OPS = {"reads": Ops.LOAD, "writes": Ops.STORE, "updates": Ops.ATOMIC}


@dataclass(eq=False)
class Named(Program):
  """A program of NUMPY whose races are said so. ``exact`` makes the one whose programs are the application's, where those of this
  one are elements of their blocks."""
  program: Any
  exact: Callable[[], Any] | None
  kernel: Kernel
  name: str
  parameters: Sequence[str]
  places: Places

  @property
  def spec(self) -> Any: return self.program.spec

  def __call__(self, buffers: Sequence[Any], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Launch. Raises RaceError."""
    try: return self.program(buffers, wait, sizes)  # type: ignore[no-any-return]
    except RaceError as e: found, exact = e, None if self.exact is None else self.exact()
    known, own = dict(zip([s.name for s in self.spec.sizes], sizes)), exact is None
    if exact is not None and all(s.name in known for s in exact.spec.sizes):
      try: exact(buffers, False, tuple(known[s.name] for s in exact.spec.sizes))
      except RaceError as e: found, own = e, True
    buffer, element, (verb, first), (does, second) = found.race
    def numbers(dims: Sequence[Dim]) -> tuple[int, ...]: return evaluator(tuple(dims), self.spec.sizes)(sizes)
    def at(what: str) -> str: return f" at {' or '.join(lines)}" if (lines := self.places.get((slot, _OPS[what]), ())) else ""
    slot, grid = buffer.arg[0], numbers([a.size for a in self.kernel.grid])
    index = np.unravel_index(element, numbers(self.kernel.params[slot].shape))
    where, a, b = f"{self.parameters[slot]}[{', '.join(map(str, index))}]", program_of(first, grid), program_of(second, grid)
    if not own or a == b: said = f"elements of one program's block write {where} with different values{at(verb)}"
    else: said = f"program {a} {verb} {where}{at(verb)}, program {b} {does} it{at(does)}"
    raise RaceError(f"{self.name}: {said}: a race, the launch decides what comes of it; give each its own elements, use atomic "
                    "operations alone, or make two kernels of it") from None


def program_of(place: Mapping[int, int], grid: Sequence[int]) -> tuple[int, ...]:
  """A program's place in the grid, from that along the launch's dimensions: the last is 0, the third last and more share 2."""
  out, rest = [place.get(d, 0) for d, _ in enumerate(grid[::-1][:2])], place.get(2, 0)
  for n in grid[::-1][2:]:
    out.append(rest % n)
    rest //= n
  return tuple(out[::-1])
