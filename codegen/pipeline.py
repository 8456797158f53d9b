"""The passes, in order, and what runs them: from a kernel in index form to its list of UOps.

    kernel (index form) --scales, tiles, one_pass, longest, masks, scans, sorts, scatters, selections--> kernel
    --statements--> parts --opts, additions--> parts --expand--> expanded --place--> ordered --widths--> linear
    --floats, dots, sums, wholes--> linear

The last four are for targets with blocks, whose renderers run them before they write. After ``opts`` nothing chooses.
``VERIFY=1`` checks the form after every pass (``verify/``), ``SHOW=expand,place`` prints it after these, ``python -m ntgrad
passes`` prints the list.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Collection

from .choose.chooser import choose
from .explain.printing import form_text
from .ir import ConfigError, Target, config
from .kernel import Kernel, UOpList
from .passes.additions import limit_additions
from .passes.dots import find_dots
from .passes.expand import expand_axes
from .passes.floats import widen_floats
from .passes.longest_first import longest_first
from .passes.masks import branch_masks
from .passes.one_pass import lower_one_pass
from .passes.parts import Parts
from .passes.place import place
from .passes.scales import lower_scales
from .passes.scans import lower_scans
from .passes.scatters import spread_scatters
from .passes.selections import replace_selections
from .passes.sorts import lower_sorts
from .passes.statements import split_statements
from .passes.sums import keep_blocks
from .passes.tiles import lower_tiles, tiles_for
from .passes.wholes import branch_whole
from .passes.widths import lower_index
from .verify.forms import verify_form


@dataclass(frozen=True)
class Pass:
  """A program of form ``takes`` becomes one of form ``gives``, by ``run(program, target)``; the first lines of ``about`` say how,
  which is the same function unless another is given."""
  name: str
  takes: str
  gives: str
  about: Callable[..., Any]
  other: Callable[[Any, Target | None], Any] | None = None

  @property
  def run(self) -> Callable[[Any, Target | None], Any]: return self.other or self.about


PASSES = (
  Pass("scales", "index", "index", lower_scales),
  Pass("tiles", "index", "index", lower_tiles, tiles_for),
  Pass("one_pass", "index", "index", lower_one_pass),
  Pass("longest", "index", "index", longest_first),
  Pass("masks", "index", "index", branch_masks),
  Pass("scans", "index", "index", lower_scans),
  Pass("sorts", "index", "index", lower_sorts),
  Pass("scatters", "index", "index", spread_scatters),
  Pass("selections", "index", "index", replace_selections),
  Pass("statements", "index", "parts", split_statements),
  Pass("opts", "parts", "parts", choose),
  Pass("additions", "parts", "parts", limit_additions, lambda parts, target: parts.with_kernels(limit_additions)),
  Pass("expand", "parts", "expanded", expand_axes),
  Pass("place", "expanded", "ordered", place),
  Pass("widths", "ordered", "linear", lower_index),
  # where blocks are written
  Pass("floats", "linear", "linear", widen_floats, lambda uops, target: widen_floats(uops)),
  Pass("dots", "linear", "linear", find_dots),
  Pass("sums", "linear", "linear", keep_blocks, lambda uops, target: keep_blocks(uops)),
  Pass("wholes", "linear", "linear", branch_whole, lambda uops, target: branch_whole(uops)))
_NUMBER = {p.name: i for i, p in enumerate(PASSES)}


def run_passes(program: Any, target: Target | None, first: str, last: str, name: str = "", without: Collection[str] = ()) -> Any:
  """What the passes from ``first`` to ``last`` make of a program, but for some; ``name`` is the kernel's, for messages. Raises
  VerifyError, ConfigError."""
  shown = {x.strip() for x in config.show.split(",")} - {""} if config.show else ()
  if unknown := [x for x in shown if x not in _NUMBER]:
    raise ConfigError(f"SHOW={config.show!r}: no pass {unknown[0]!r}; passes: {', '.join(_NUMBER)}")
  checked = None   # the form that the program has been checked for
  for p in PASSES[_NUMBER[first]:_NUMBER[last] + 1]:
    if p.name in without: continue
    before, program = program, p.run(program, target)
    if config.verify and (program is not before or checked != p.gives): verify_form(p.gives, program, name)
    checked = p.gives
    if p.name in shown and config.speaks_of(name):
      print(f"---- {name or 'kernel'} after {p.name}\n{form_text(program)}", flush=True)
  return program


def prepare(kernel: Kernel, target: Target | None, name: str = "") -> Parts:
  """The parts that Opts are chosen for."""
  return run_passes(kernel, target, "scales", "statements", name)


def finish(parts: Parts, target: Target | None, name: str = "") -> UOpList:
  """The list of UOps of parts after their Opts."""
  return run_passes(parts, target, "additions", "widths", name)


def linearize(kernel: Kernel, target: Target | None = None, name: str = "") -> UOpList:
  """The list of UOps of a kernel with the tiles and Opts that it has; for a kernel whose statements have an order those that
  ``target`` likes are chosen, and without a target the UOps are scalar."""
  parts = run_passes(kernel, target, "scales", "statements", name, ("tiles",))
  return run_passes(parts, target, "opts", "widths", name, ("opts",) if parts.kernel.plain else ())


def about(p: Pass) -> str: return " ".join((p.about.__doc__ or "").split("\n\n")[0].split())   # what a pass does


def listing() -> str:
  """The passes as a table: number, name, form before and after, what it does."""
  return "\n".join(f"{i:<3}{p.name:11}{p.takes + ' -> ' + p.gives:22}{about(p)}" for i, p in enumerate(PASSES, 1))
