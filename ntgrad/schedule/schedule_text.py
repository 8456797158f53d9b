"""A schedule as text: each kernel as the short body that a person would have written in the tile language."""
from __future__ import annotations

from ntgrad.codegen.explain.printing import index_form, kernel_name
from ntgrad.codegen.explain.tile_source import short_source
from ntgrad.codegen.ir import ExportError
from ntgrad.compat import notebook
from ntgrad.graph.buffer_names import BufferNames

from .lower import ScheduleItem, buffer_names_of


class Schedule(list[ScheduleItem]):
  """The kernels of a schedule in order. ``print`` shows them."""

  def __str__(self) -> str:
    names = BufferNames()
    return "\n".join(line for i, item in enumerate(self) for line in _shown(i, item, names))

  def _repr_html_(self) -> str:
    return notebook.table(f"a schedule of {len(self)} steps", [[line] for line in str(self).splitlines()])


def _shown(number: int, item: ScheduleItem, names: BufferNames) -> list[str]:
  """The lines for a step: what it writes from what, with names for sizes and of buffers, and its body; the index form of a kernel
  that the tile language does not have."""
  if item.call is not None: return [f"{number:<3d}{item.call.kernel}: a call"]
  if item.ast is None: return [f"{number:<3d}copy to {item.nodes[0].device}"]
  try: head, *body = short_source(item.ast)
  except ExportError as e: head, body = f"no kernel of the tile language ({e})", index_form(item.ast).splitlines()
  called = ", ".join(f"data{p.slot} is {name}" for p, name in zip(item.ast.params, buffer_names_of(item, names)) if name)
  return [f"{number:<3d}{kernel_name(item.ast)}: {head}", *(f"     {line}" for line in ([called, *body] if called else body))]
