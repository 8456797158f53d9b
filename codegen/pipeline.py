"""The passes, in order, and what runs them: from a kernel in index form to its list of UOps.

    kernel (index form) --scales, tiles, scans, sorts, scatters, selections--> kernel --statements--> parts
    --opts, additions--> parts --expand--> expanded --place--> ordered --widths--> linear --floats, dots, sums, wholes--> linear

The last four are for targets with blocks, whose renderers run them before they write. After ``opts`` nothing chooses.
``VERIFY=1`` checks the form after every pass (``verify/``), ``SHOW=expand,place`` prints it after these, ``python -m ntgrad
passes`` prints the list.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable

from .choose.chooser import choose, choose_statements
from .explain.printing import form_text
from .ir.config import config
from .ir.errors import ConfigError
from .ir.target import Target
from .kernel import Kernel
from .kernel.linear import UOpList
from .passes.additions import limit_additions
from .passes.dots import find_dots
from .passes.expand import expand_axes
from .passes.floats import widen_floats
from .passes.parts import Parts
from .passes.place import place
from .passes.scales import lower_scales
from .passes.scans import lower_scans
from .passes.scatters import spread_scatters
from .passes.selections import may_select, replace_selections
from .passes.sorts import lower_sorts
from .passes.statements import split_statements
from .passes.sums import keep_blocks
from .passes.tiles import cover_tiles, keep_tiles, lower_tiles
from .passes.wholes import branch_whole
from .passes.widths import lower_index
from .verify.forms import verify_form


@dataclass(frozen=True)
class Pass:
  """``run(program, target)``: a program of form ``takes`` becomes one of form ``gives``; the first lines of ``about`` say how."""
  name: str
  takes: str
  gives: str
  run: Callable[[Any, Target | None], Any]
  about: Callable[..., Any]


def _tiles(kernel: Kernel, target: Target | None) -> Kernel:
  if target and target.blocks: return cover_tiles(kernel, target.row)
  if not kernel.plain: return kernel
  return keep_tiles(kernel) if config.noopt else lower_tiles(kernel)


def _selections(kernel: Kernel, target: Target | None) -> Kernel:
  return replace_selections(kernel, target) if any([may_select(u) for u in kernel.reduces]) else kernel


def _additions(parts: Parts, target: Target | None) -> Parts:
  return parts.map(lambda p: replace(p, kernel=limit_additions(p.kernel)))


def _expand(parts: Parts, target: Target | None) -> Parts: return parts.map(lambda p: replace(p, roots=expand_axes(p.kernel)))


def _dots(uops: UOpList, target: Target | None) -> UOpList:
  return find_dots(uops, target is not None and target.fp8_dots, target is not None and target.double_dots)


PASSES = (
  Pass("scales", "index", "index", lower_scales, lower_scales),
  Pass("tiles", "index", "index", _tiles, lower_tiles),
  Pass("scans", "index", "index", lower_scans, lower_scans),
  Pass("sorts", "index", "index", lower_sorts, lower_sorts),
  Pass("scatters", "index", "index", spread_scatters, spread_scatters),
  Pass("selections", "index", "index", _selections, replace_selections),
  Pass("statements", "index", "parts", split_statements, split_statements),
  Pass("opts", "parts", "parts", choose, choose),
  Pass("additions", "parts", "parts", _additions, limit_additions),
  Pass("expand", "parts", "expanded", _expand, expand_axes),
  Pass("place", "expanded", "ordered", place, place),
  Pass("widths", "ordered", "linear", lower_index, lower_index),
  # where blocks are written
  Pass("floats", "linear", "linear", lambda uops, target: widen_floats(uops), widen_floats),
  Pass("dots", "linear", "linear", _dots, find_dots),
  Pass("sums", "linear", "linear", lambda uops, target: keep_blocks(uops), keep_blocks),
  Pass("wholes", "linear", "linear", lambda uops, target: branch_whole(uops), branch_whole),
)
_NUMBER = {p.name: i for i, p in enumerate(PASSES)}


def run_passes(program: Any, target: Target | None, first: str, last: str, name: str = "") -> Any:
  """What the passes from ``first`` to ``last`` make of a program; ``name`` is the kernel's, for messages. Raises VerifyError,
  ConfigError."""
  shown = {x.strip() for x in config.show.split(",")} - {""} if config.show else ()
  if unknown := [x for x in shown if x not in _NUMBER]:
    raise ConfigError(f"SHOW={config.show!r}: no pass {unknown[0]!r}; passes: {', '.join(_NUMBER)}")
  for p in PASSES[_NUMBER[first]:_NUMBER[last] + 1]:
    program = p.run(program, target)
    if config.verify: verify_form(p.gives, program, name)
    if p.name in shown and config.speaks_of(name):
      print(f"---- {name or 'kernel'} after {p.name}\n{form_text(program)}", flush=True)
  return program


def prepare(kernel: Kernel, target: Target | None, name: str = "") -> Parts:
  """The parts that Opts are chosen for."""
  parts: Parts = run_passes(kernel, target, "scales", "statements", name)
  return parts


def finish(parts: Parts, target: Target | None, name: str = "") -> UOpList:
  """The list of UOps of parts after their Opts."""
  uops: UOpList = run_passes(parts, target, "additions", "widths", name)
  return uops


def linearize(kernel: Kernel, target: Target | None = None, name: str = "") -> UOpList:
  """The list of UOps of a kernel with the Opts that it has; for a kernel whose statements have an order those that ``target``
  likes are chosen, and without a target the UOps are scalar."""
  kernel = spread_scatters(lower_sorts(lower_scans(lower_scales(kernel), target), target), target)
  parts = split_statements(_selections(kernel, target), target)
  return finish(parts if kernel.plain else choose_statements(parts, target), target, name)


def listing() -> str:
  """The passes as a table: number, name, form before and after, what it does."""
  def about(p: Pass) -> str: return " ".join((p.about.__doc__ or "").split("\n\n")[0].split())
  return "\n".join(f"{i:<3}{p.name:11}{p.takes + ' -> ' + p.gives:22}{about(p)}" for i, p in enumerate(PASSES, 1))
