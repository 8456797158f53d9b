"""What a piece of Tensor code makes of tensors that are of the same kinds each time: from the second time on by a recipe."""
from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ntgrad.codegen.ir import Ops, Recent, UOp, dtypes
from ntgrad.engine.device import Device
from ntgrad.graph.nodes import detach
from ntgrad.graph.origins import origin_now
from ntgrad.graph.recipes import Recipe, nothing_computed, unequalled
from ntgrad.graph.variable import looks
from ntgrad.tensor import Tensor

_KEPT = 8   # recipes of one piece of code
_THROUGH = frozenset({Ops.DETACH, Ops.EXPAND, Ops.RESHAPE})


class Recipes(Recent[Any, tuple[tuple[Any, ...], Recipe]]):
  """The recipes of one piece of code, by all that it looks at. A copy has none."""
  __slots__ = ()

  def __init__(self) -> None: super().__init__(_KEPT)
  def __reduce__(self) -> Any: return Recipes, ()

  def make(self, key: Hashable, tensors: Sequence[Tensor], code: Callable[[Sequence[Tensor]], dict[Any, Tensor]]) -> Any:
    """What ``code`` gives for tensors, by name, as nodes. It is not called where it was called before with the same key, for
    tensors of the same dtypes, shapes, devices, operations and constants: ``key`` has whatever else it looks at.
    It is called each time, and its tensors come as they are, with ``None`` for a key, for tensors of a user's class, with names
    or attached to a graph, and while comparisons of sizes are noted."""
    if key is None or looks or not all([t._plain is Tensor and t._names is None and t._state <= 0 for t in tensors]):
      return code(tensors)
    at: list[Any] = [key, dtypes.default_float, Device.DEFAULT]
    nodes, inputs = [t.lazydata for t in tensors], dict[int, UOp]()   # by place: one may come twice
    for i, u in enumerate(nodes):
      base = u
      while base.op in _THROUGH: base = base.src[0]
      if base.op is Ops.CONST: at.append(u)   # it is folded into what reads it
      else:
        at += u.op, u.is_unique, base.op, u.dtype, u.shape, u.device
        inputs[i] = u
    if (known := self[tuple(at)]) is None:
      # each by a node that equals no other: what is made of one is never another
      alone = {i: _alone(u) for i, u in inputs.items()}
      with nothing_computed(): made = code([Tensor._from_node(alone.get(i, u)) for i, u in enumerate(nodes)])
      known = self[tuple(at)] = tuple(made), Recipe([*alone.values()], [t.lazydata for t in made.values()])
    return dict(zip(known[0], known[1].later([*inputs.values()], origin_now())))


def _alone(u: UOp) -> UOp:
  """A node of the same operation that equals no other; a DETACH of one, as that may be dropped, of such a node."""
  if u.op is Ops.DETACH and not u.is_unique: return detach(_alone(u.src[0]))
  return unequalled(u.op, u.dtype, u.src, u.arg, u.shape, u.device)


def write(t: Tensor, made: Any, leaf: bool = False) -> None:
  """Assign what was made: a Tensor, or a node of the same shape and dtype. ``leaf``: what shares the memory is a leaf."""
  a = t._alias
  if isinstance(made, Tensor): t.assign(made)
  elif t._view or a.beneath or a.packed is not None or made is a.node or not leaf and any([x._state > 0 for x in a.seen()]):
    t._write("assign", made)
  else: a.write(made, "assign")   # all of it, and nothing that gradients pass
