"""The memory that optimizers work on: parameters of one dtype on one device as slices of one buffer, and state beside it."""
from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from ntgrad.codegen.ir import Ops, dtypes, promote
from ntgrad.codegen.ir.errors import ArgumentError, ShapeError, shown
from ntgrad.graph import Alias, AliasView
from ntgrad.nn.recipes import Recipes
from ntgrad.tensor import Tensor

_ALIGN = 64   # bytes: every parameter starts at a cache line (and a vector register) of its own


class Flat:
  """Parameters of one dtype on one device, as slices of ``flat``. Padding between slices stays 0.

  A parameter's memory moves into ``flat`` with everything that shares it. One that has to stay where it is (another library sees
  it, or it is a part of something larger) has a Flat of its own, whose ``flat`` is a view of it. ``numbers`` are those of the
  parameters among all that an optimizer has."""

  def __init__(self, params: list[Tensor], numbers: list[int]):
    self.params, self.numbers, self.moves = params, numbers, moves(params[0])
    self.dtype, self.device = params[0].dtype, params[0].device
    self.wide = promote(self.dtype, dtypes.float32)  # what the update is computed in, and the state kept in
    step = max(1, _ALIGN // self.dtype.itemsize) if self.moves and len(params) > 1 else 1
    sizes = [math.prod(p.shape) for p in params]
    *begins, self.size = accumulate([-(-n // step) * step for n in sizes], initial=0)
    self.slices = [(at, at + n) for at, n in zip(begins, sizes)]
    self.flat = own(self.join(params)) if self.moves else params[0].detach().reshape(-1).requires_grad_(False)
    self.states, self.masks, self.recipes = dict[str, Tensor](), dict[tuple[bool, ...], Tensor](), Recipes()

  def __getitem__(self, state: str) -> Tensor: return self.states[state]

  def join(self, parts: Sequence[Tensor]) -> Tensor:
    """One flat tensor of the parts (each of as many elements as its parameter), zeros between them: (size,)."""
    padded = []
    for (begin, end), after, part in zip(self.slices, [b for b, _ in self.slices[1:]] + [self.size], parts):
      part = part.reshape(end - begin)
      padded.append(part.pad(((0, after - end),)) if after > end else part)
    return padded[0] if len(padded) == 1 else Tensor.cat(*padded, dim=0)

  def view(self, flat: Tensor, i: int) -> Tensor:
    """Parameter ``i`` as a slice of ``flat``."""
    return flat.shrink((self.slices[i],)).reshape(self.params[i].shape)

  def move(self, given: bool = True) -> None:
    """Make the parameters, with all that shares their memory, views of ``flat``; those that left it give it their new values."""
    for i, p in enumerate(self.params) if self.moves else ():
      if p._alias is self.flat._alias: continue
      part = self.view(self.flat, i)
      if given: part.assign(p.detach())
      show(p, part._alias, part._view)

  def full(self, value: float = 0.0) -> Tensor:
    """State with a number everywhere: (size,), wide."""
    return own(Tensor.full((self.size,), value, dtype=self.wide, device=self.device))

  def gradients(self) -> list[Tensor | None]:
    """Those of the parameters; [] if none has one. Raises ArgumentError and ShapeError."""
    for p in self.params:
      if (g := p.grad) is None: continue
      if not isinstance(g, Tensor): raise ArgumentError(f"step: a gradient is {shown(g)}, expected a Tensor or None")
      if g.lazydata.shape != p.lazydata.shape:
        raise ShapeError(f"step: a gradient of shape {tuple(g.shape)} for a parameter of shape {tuple(p.shape)}; "
                         "they must be the same")
    found = [p.grad for p in self.params]
    return found if any([g is not None for g in found]) else []

  def show_gradients(self, grads: Sequence[Tensor | None], flat: Tensor) -> None:
    """Make the gradients that may be views of the flat one."""
    for (begin, end), g in zip(self.slices, grads):
      if g is None or (u := g.lazydata).dtype is not self.dtype: continue
      view: AliasView = ((Ops.RESHAPE, u.shape),) if u.shape != (end - begin,) else ()
      if end - begin != self.size: view = (Ops.SHRINK, ((begin, end),)), *view
      if not g._view and len(g._alias.tensors) == 1 and g._alias.memory is None: g._rehome(flat._alias, view)
      elif moves(g): show(g, flat._alias, view)

  def mask(self, have: tuple[bool, ...]) -> Tensor:
    """Where there is a gradient, of some parameters that have one."""
    if have not in self.masks:
      self.masks[have] = self.join([Tensor.full(tuple(p.shape), h, dtype=dtypes.bool, device=self.device)
                                    for h, p in zip(have, self.params)]).contiguous()
    return self.masks[have]


def moves(t: Tensor) -> bool:
  """Whether a tensor's memory may be given another place: no other library sees it, and it is no part of something larger."""
  memory = t._alias.memory
  return (memory is None or not memory.storage.foreign) and (
    len(t._alias.tensors) == 1 or all([op is Ops.DETACH for op, _ in t._view]))


def show(t: Tensor, alias: Alias, view: AliasView) -> None:
  """Make a tensor, with all that shares its memory, views of an Alias, where ``view`` shows its value."""
  if not all([op is Ops.DETACH for op, _ in t._view]): t._view = ()   # it is alone
  for x in list(t._alias.seen()): x._rehome(alias, view + x._view)


def own(value: Tensor) -> Tensor:
  """A value as a tensor of its own, that nothing trains."""
  return value.detach().clone().requires_grad_(False)
