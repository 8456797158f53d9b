"""The memory that optimizers work on: parameters of one dtype on one device as slices of one buffer, and state beside it."""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from weakref import WeakSet

from ntgrad.codegen.ir import Ops, dtypes, promote
from ntgrad.codegen.ir.errors import ArgumentError, ShapeError, shown
from ntgrad.graph import Alias, AliasView
from ntgrad.nn.recipes import Recipes
from ntgrad.tensor import Tensor

_ALIGN = 64   # bytes: every parameter starts at a cache line (and a vector register) of its own
_flats = WeakSet[Alias]()   # flat memory that has zeros between the tensors


class Slices:
  """Where tensors of one dtype lie behind each other in flat memory of ``size`` elements: each begins at a cache line of its own,
  with zeros between them, where there are ``several``."""

  def __init__(self, params: list[Tensor], several: bool | None = None):
    step = _step(params[0]) if (len(params) > 1 if several is None else several) else 1
    self.params, sizes = params, [math.prod(p.shape) for p in params]
    *self.begins, self.size = accumulate([-(-n // step) * step for n in sizes], initial=0)
    self.slices = [(at, at + n) for at, n in zip(self.begins, sizes)]
    self._views = dict[tuple[int, Sequence[int]], AliasView]()

  def join(self, parts: Sequence[Tensor], first: int = 0) -> Tensor:
    """One flat tensor of the tensors from number ``first`` on, and the zeros behind each."""
    padded = []
    for (begin, end), after, part in zip(self.slices[first:], [*self.begins, self.size][first + 1:], parts):
      part = part.reshape(end - begin)
      padded.append(part.pad(((0, after - end),)) if after > end else part)
    return in_a_row(padded)

  def empty(self) -> Tensor:
    """Flat memory that nobody has written, of the tensors' dtype and device: (size,)."""
    made = Tensor.empty(self.size, dtype=self.params[0].dtype, device=self.params[0].device)
    _flats.add(made._alias)
    return made

  def view(self, flat: Tensor, i: int) -> Tensor:
    """Tensor number ``i`` as a slice of ``flat``."""
    return flat.shrink((self.slices[i],)).reshape(self.params[i].shape)

  def shown(self, parts: Sequence[Tensor | None]) -> Tensor | None:
    """The tensor that has all of these as its slices, as ``view`` gives them; None where there is none."""
    if (first := parts[0]) is None or (alias := first._alias).node.shape != (self.size,): return None
    if not all([t is not None and t._alias is alias and t._view == self._view(i) for i, t in enumerate(parts)]): return None
    return _whole(alias)

  def show_gradients(self, grads: Sequence[Tensor | None], flat: Tensor) -> None:
    """Make the gradients that may be views of the flat one."""
    for i, g in enumerate(grads):
      if g is None or g.lazydata.dtype is not self.params[0].dtype: continue
      view = self._view(i)
      if not g._view and len(g._alias.tensors) == 1 and g._alias.memory is None: g._rehome(flat._alias, view)
      elif moves(g): show(g, flat._alias, view)

  def _view(self, i: int) -> AliasView:
    if (found := self._views.get(key := (i, self.params[i].lazydata.shape))) is None:
      (begin, end), shape = self.slices[i], key[1]
      view: AliasView = ((Ops.RESHAPE, shape),) if shape != (end - begin,) else ()
      found = self._views[key] = view if end - begin == self.size else ((Ops.SHRINK, ((begin, end),)), *view)
    return found


class Flat(Slices):
  """Parameters of one dtype on one device, as slices of ``flat``. Padding between slices stays 0.

  A parameter's memory moves into ``flat`` with everything that shares it. One that has to stay where it is (another library sees
  it, or it is a part of something larger) has a Flat of its own, whose ``flat`` is a view of it; so have those together that lie
  behind each other in another optimizer's. ``numbers`` are those of the parameters among all that an optimizer has."""

  def __init__(self, params: list[Tensor], numbers: list[int]):
    self.numbers, self.moves = numbers, moves(params[0])
    super().__init__(params)
    self.dtype, self.device = params[0].dtype, params[0].device
    self.wide = promote(self.dtype, dtypes.float32)  # what the update is computed in, and the state kept in
    self.memory: Tensor | None = None   # what all of ``flat`` lies in, from its element ``first`` on
    self.first = 0
    if self.moves:
      self.flat = self.memory = own(self.join(params))
      _flats.add(self.flat._alias)
    elif len(params) == 1: self.flat = params[0].detach().reshape(-1).requires_grad_(False)
    else:
      self.first, _ = params[0]._view[0][1][0]
      self.memory = _whole(params[0]._alias).detach().requires_grad_(False)
      self.flat = self.memory[self.first:self.first + self.size]
    self.states, self.masks, self.recipes = dict[str, Tensor](), dict[tuple[bool, ...], Tensor](), Recipes()

  def __getitem__(self, state: str) -> Tensor: return self.states[state]

  def move(self, given: bool = True) -> None:
    """Make the parameters, with all that shares their memory, views of ``flat``; those that left it give it their new values."""
    for i, p in enumerate(self.params):
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

  def mask(self, have: tuple[bool, ...]) -> Tensor:
    """Where there is a gradient, of some parameters that have one."""
    if have not in self.masks:
      self.masks[have] = self.join([Tensor.full(tuple(p.shape), h, dtype=dtypes.bool, device=self.device)
                                    for h, p in zip(have, self.params)]).contiguous()
    return self.masks[have]


def in_a_row(parts: Sequence[Tensor]) -> Tensor:
  """Flat tensors behind each other."""
  return parts[0] if len(parts) == 1 else Tensor.cat(*parts, dim=0)


def moves(t: Tensor) -> bool:
  """Whether a tensor's memory may be given another place: no other library sees it, and it is no part of something larger."""
  memory = t._alias.memory
  return (memory is None or not memory.storage.foreign) and (
    len(t._alias.tensors) == 1 or all([op is Ops.DETACH for op, _ in t._view]))


def follows_in_a_flat(t: Tensor, before: Tensor) -> bool:
  """Whether a parameter lies behind another one in memory of a Flat, as ``Slices`` has them."""
  if t._alias is not before._alias or t._alias not in _flats: return False
  (begin, _), (_, end) = map(_ends, (t, before))
  return begin == -(-end // _step(t)) * _step(t)


def _ends(t: Tensor) -> tuple[int, int]:
  """The elements of flat memory that a tensor shows; (-1, -1) where it is no slice of it."""
  kinds, size = [op for op, _ in t._view], t._alias.node.shape[0]
  if kinds in ([], [Ops.RESHAPE]): return 0, size
  return t._view[0][1][0] if kinds in ([Ops.SHRINK], [Ops.SHRINK, Ops.RESHAPE]) else (-1, -1)


def flat_memory(t: Tensor) -> Alias | None:
  """The flat memory that a tensor lies in; None where it lies in none."""
  return t._alias if t._alias in _flats else None


def joined(tensors: Sequence[Tensor]) -> list[Tensor]:
  """The tensors, but the flat one in place of those that fill it and are all that anybody sees of it, each there once."""
  ids, whole = Counter(map(id, tensors)), dict[Alias, Tensor]()
  for a in dict.fromkeys([a for t in tensors if (a := flat_memory(t)) is not None]):   # in their order
    seen, size = sorted(a.seen(), key=_ends), a.node.shape[0]
    fill = _ends(seen[0])[0] == 0 and _ends(seen[-1])[1] > size - _step(seen[0]) and all(
      [follows_in_a_flat(t, before) for before, t in pairwise(seen)])
    if fill and all([ids[id(t)] == 1 for t in seen]): whole[a] = _whole(a)
  return [*whole.values(), *[t for t in tensors if t._alias not in whole]]


def _step(t: Tensor) -> int: return max(1, _ALIGN // t.dtype.itemsize)


def _whole(alias: Alias) -> Tensor:
  """A tensor that shows all of an Alias."""
  found = Tensor._from_node(alias.node)
  found._rehome(alias, ())
  return found


def show(t: Tensor, alias: Alias, view: AliasView) -> None:
  """Make a tensor, with all that shares its memory, views of an Alias, where ``view`` shows its value."""
  if not all([op is Ops.DETACH for op, _ in t._view]): t._view = ()   # it is alone
  for x in list(t._alias.seen()): x._rehome(alias, view + x._view)


def own(value: Tensor) -> Tensor:
  """A value as a tensor of its own, that nothing trains."""
  return value.detach().clone().requires_grad_(False)
