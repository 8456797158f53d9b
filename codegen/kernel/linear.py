"""A linear program as a list of nodes, and as text."""
from __future__ import annotations

from typing import Mapping

from ..index.sizes import arg_text
from ..ir.dtype import number_text
from ..ir.uop import NO_VALUE, Ops, UOp


class UOpList(list[UOp]):
  """A linear program, in order."""

  @property
  def uops(self) -> UOpList: return self   # ``k.uops.uops``, as older scripts have it
  def lines(self, shapes: Mapping[UOp, tuple[int, ...]] | None = None) -> list[str]:
    """One line a node: number, op, dtype, the numbers of its sources, argument; of blocks, which are in ``shapes``, the
    shape after the dtype."""
    number, blocks = {u: i for i, u in enumerate(self)}, shapes or {}
    def typed(u: UOp) -> str: return f"{_dtype_text(u)} {blocks[u]}" if u in blocks else _dtype_text(u)
    return [
      f"{i:4d} {str(u.op):20s}: {typed(u):25s} {str([number[s] for s in u.src]):32s} {_arg_text(u)}"
      for i, u in enumerate(self)
    ]

  def __str__(self) -> str: return "\n".join(self.lines())
  def print(self) -> None:
    """Print the listing."""
    print(self)


def _dtype_text(u: UOp) -> str:
  if u.op in NO_VALUE: return ""
  return f"ptr.{u.dtype}" if u.op in (Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL) else str(u.dtype)


def _arg_text(u: UOp) -> str:
  if u.op is Ops.CONST: return number_text(u.arg, u.dtype)
  if u.op in (Ops.SIZE, Ops.DEFINE_VAR, Ops.SPECIAL):
    return arg_text(u.arg)
  return str(u.arg)
