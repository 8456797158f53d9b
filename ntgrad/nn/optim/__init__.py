"""Optimizers. Parameters live in one flat buffer a dtype and device, so that a step is one kernel, however many there are."""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ntgrad.backends.process import uninterrupted
from ntgrad.checks import checked
from ntgrad.codegen.dtype import DType, dtypes, promote
from ntgrad.codegen.errors import ArgumentError, DTypeError, GradientError, ShapeError, shown
from ntgrad.codegen.uop import Ops
from ntgrad.tensor import Tensor

_ALIGN = 64  # bytes: every parameter starts at a cache line (and a vector register) of its own


class _Group:
  """Parameters of one dtype on one device, as slices of ``flat``. Padding between slices stays 0.

  A parameter's memory moves into ``flat`` with everything that shares it. One that has to stay where it is (another library sees
  it, or it is a part of something larger) is a group of its own, whose ``flat`` is a view of it.
  """

  def __init__(self, params: list[Tensor], moves: bool):
    self.params, self.moves, self.dtype, self.device = params, moves, params[0].dtype, params[0].device
    self.wide = promote(self.dtype, dtypes.float32)  # what the update is computed in, and the state kept in
    step = max(1, _ALIGN // self.dtype.itemsize) if moves else 1
    self.slices: list[tuple[int, int]] = []
    at = 0
    for p in params:
      n = math.prod(p.shape)
      self.slices.append((at, at + n))
      at += -(-n // step) * step
    self.size = at
    self.flat = _own(self.join(params)) if moves else params[0].detach().reshape(-1)
    self.states: dict[str, Tensor] = {}
    self.masks: dict[tuple[bool, ...], Tensor] = {}

  def join(self, parts: Sequence[Tensor]) -> Tensor:
    """One flat tensor of the parts (each of as many elements as its parameter), zeros between them: (size,)."""
    padded = []
    for (begin, end), after, part in zip(self.slices, [b for b, _ in self.slices[1:]] + [self.size], parts):
      part = part.detach().reshape(end - begin)
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
      show(p, part)

  def zeros(self) -> Tensor:
    return _own(Tensor.zeros(self.size, dtype=self.wide, device=self.device))

  def gradients(self) -> tuple[Tensor, Tensor | None] | None:
    """The flat gradient, and where there is one (None if everywhere). None if no parameter has a gradient."""
    have = tuple(p.grad is not None for p in self.params)
    if not any(have): return None
    grads = []
    for p in self.params:
      g = p.grad
      if g is None: g = Tensor.zeros(*p.shape, dtype=self.dtype, device=self.device)
      elif not isinstance(g, Tensor): raise ArgumentError(f"step: a gradient is {shown(g)}, expected a Tensor or None")
      elif tuple(g.shape) != tuple(p.shape):
        raise ShapeError(f"step: a gradient of shape {tuple(g.shape)} for a parameter of shape {tuple(p.shape)}; "
                         "they must be the same")
      grads.append(g.cast(self.dtype))
    flat = self.join(grads).contiguous()
    for i, p in enumerate(self.params):
      if p.grad is not None and p.grad.dtype is self.dtype and moves(p.grad): show(p.grad, self.view(flat, i))
    if all(have): return flat, None
    if have not in self.masks:
      ones = [Tensor.full(tuple(p.shape), h, dtype=dtypes.bool, device=self.device) for h, p in zip(have, self.params)]
      self.masks[have] = self.join(ones).contiguous()
    return flat, self.masks[have]


def moves(t: Tensor) -> bool:
  """Whether a tensor's memory may be given another place: no other library sees it, and it is no part of something larger."""
  memory = t._alias.memory
  return (memory is None or not memory.storage.foreign) and (
    len(t._alias.tensors) == 1 or all(op is Ops.DETACH for op, _ in t._view)
  )


def show(t: Tensor, part: Tensor) -> None:
  """Make a tensor, with all that shares its memory, views of ``part``, which has its value."""
  if not all(op is Ops.DETACH for op, _ in t._view): t._view = ()   # it is alone
  for x in list(t._alias.seen()): x._rehome(part._alias, part._view + x._view)


@checked
class Optimizer:
  """Base of the optimizers: takes ``params``, steps them against their ``.grad``.

  Parameters become views of one flat buffer a dtype and device, with everything that shares their memory; those that another
  library sees, or that are parts of something larger, stay where they are. Those with ``requires_grad=False`` (running
  statistics) are not trained, but realised with every step; ``None`` counts as True. One without a ``.grad`` at a step keeps its
  value and state.

  Raises ArgumentError for no parameter to train, one given twice, or a learning rate that is not a positive number, and
  DTypeError for a parameter that is not a float.
  """

  def __init__(self, params: Iterable[Tensor], lr: float):
    name = type(self).__name__
    if isinstance(params, Tensor): raise ArgumentError(f"{name}: params is one Tensor, expected a list of them")
    params = list(params)
    for p in params:
      if not isinstance(p, Tensor):
        raise ArgumentError(f"{name}: params has a {type(p).__name__}, expected Tensors (nn.state.get_parameters(model))")
    if len({id(p) for p in params}) != len(params):
      raise ArgumentError(f"{name}: a parameter of shape {_first_twice(params).shape} is given twice; give each once")
    self.params = [p for p in params if p.requires_grad is not False]
    self.buffers = [p for p in params if p.requires_grad is False]
    if not self.params:
      raise ArgumentError(f"{name}: none of the {len(params)} params has requires_grad; set it on those to train")
    groups: dict[tuple[DType, Any, int | None], list[Tensor]] = {}
    for p in self.params:
      if not dtypes.is_float(p.dtype):
        raise DTypeError(f"{name}: a parameter of shape {tuple(p.shape)} is {p.dtype.name}, only floats can be trained")
      p.requires_grad = True
      if math.prod(p.shape): groups.setdefault((p.dtype, p.device, None if moves(p) else id(p)), []).append(p)
    self._device = self.params[0].device
    self._groups = [_Group(ps, alone is None) for (_, _, alone), ps in groups.items()]
    # a buffer, not a number in the kernels: changing it compiles nothing
    self._lr = Tensor(
      [_positive(name, "lr", lr)], dtype=promote(dtypes.float32, *(g.wide for g in self._groups)), device=self._device
    )
    self._make_state()
    Tensor.realize(self._lr, *self._state_tensors(), *self.buffers)
    for g in self._groups: g.move(given=False)

  # ---- what an optimizer defines
  def _make_state(self) -> None:
    """Fill each group's ``states`` with tensors of its flat size, and make what else is kept."""

  def _advance(self) -> None:
    """Assign what changes with every step whatever the gradients (step counts)."""

  def _update(self, group: _Group, p: Tensor, g: Tensor, lr: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The new parameters and state from the old and the gradient, all flat in the group's wide dtype."""
    raise NotImplementedError

  def _extra_state(self) -> list[Tensor]: return []

  # ---- what everyone calls
  @property
  def lr(self) -> Tensor:
    """The learning rate, (1,), float32 (float64 if a parameter is).

    Assign a number (``opt.lr = 0.01``) or a one-element Tensor; nothing is compiled anew.
    """
    return self._lr

  @lr.setter
  def lr(self, value: float | Tensor) -> None:
    if isinstance(value, Tensor):
      if math.prod(value.shape) != 1: raise ShapeError(f"lr: a Tensor of shape {tuple(value.shape)}, expected one element")
      self._lr.assign(value.detach().reshape(1).cast(self._lr.dtype).to(self._device))
    else:
      self._lr.assign(Tensor([_positive(type(self).__name__, "lr", value)], dtype=self._lr.dtype, device=self._device)).realize()

  def zero_grad(self) -> None:
    """Forget the gradients (``.grad = None``), so that the next ``backward()`` starts anew."""
    for p in self.params: p.grad = None

  def step(self) -> None:
    """Update the parameters from their gradients and realise everything. Raises GradientError if no parameter has a gradient."""
    with uninterrupted(): tensors = self.schedule_step()   # all of it or nothing
    Tensor.realize(*tensors)

  def schedule_step(self) -> list[Tensor]:
    """As :meth:`step`, lazily: the tensors to realise (parameters, state, gradients, untrained tensors) for the step to
    happen."""
    found = [g.gradients() for g in self._groups]
    if not any(found):
      raise GradientError(f"{type(self).__name__}.step: none of the {len(self.params)} parameters has a gradient; "
                          "call loss.backward() first, with Tensors that have requires_grad")
    self._advance()
    out: list[Tensor] = []
    for group, grads in zip(self._groups, found):
      if grads is None: continue
      flat, mask = grads
      group.move()
      old, lr = group.flat, self._lr.to(group.device).cast(group.wide)
      new, states = self._update(group, old.cast(group.wide), flat.cast(group.wide), lr)
      if mask is not None:
        new = mask.where(new, old.cast(group.wide))
        states = {k: mask.where(s, group.states[k]) for k, s in states.items()}
      for k, s in states.items(): group.states[k].assign(s)
      group.flat.assign(new.cast(group.dtype))
      out.append(flat)
    return [*out, *self._state_tensors(), self._lr, *self.buffers]

  def _state_tensors(self) -> list[Tensor]:
    return [t for g in self._groups for t in (g.flat, *g.states.values())] + self._extra_state()


def _own(value: Tensor) -> Tensor:
  """A value as a tensor of its own."""
  return value.detach().clone()


def _positive(name: str, what: str, value: Any, zero: bool = False) -> float:
  try:
    x = float(value)
  except (TypeError, ValueError, OverflowError):
    raise ArgumentError(f"{name}: {what} is {shown(value)}, expected a number") from None
  if not (math.isfinite(x) and (x > 0 or (zero and x == 0))):
    raise ArgumentError(f"{name}: {what} is {value!r}, expected a number {'of at least' if zero else 'above'} 0")
  return x


def _first_twice(params: list[Tensor]) -> Tensor:
  seen: set[int] = set()
  for p in params:
    if id(p) in seen: return p
    seen.add(id(p))
  return params[0]


@checked
class SGD(Optimizer):
  """Stochastic gradient descent with momentum, as PyTorch has it.

  ``g += weight_decay·p``; ``b = momentum·b + g``; ``p -= lr·(g + momentum·b if nesterov else b)``.
  Nesterov's momentum: http://proceedings.mlr.press/v28/sutskever13.pdf. Raises as :class:`Optimizer`, and ArgumentError for
  negative ``momentum`` or ``weight_decay`` and for ``nesterov`` without momentum.
  """

  def __init__(self, params: Iterable[Tensor], lr: float = 0.001, momentum: float = 0.0, weight_decay: float = 0.0,
               nesterov: bool = False):
    self.momentum = _positive("SGD", "momentum", momentum, zero=True)
    self.weight_decay = _positive("SGD", "weight_decay", weight_decay, zero=True)
    self.nesterov = nesterov
    if nesterov and not momentum: raise ArgumentError("SGD: nesterov needs a momentum above 0")
    super().__init__(params, lr)

  def _make_state(self) -> None:
    for g in self._groups if self.momentum else []: g.states["b"] = g.zeros()

  def _update(self, group: _Group, p: Tensor, g: Tensor, lr: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    if self.weight_decay: g = g + self.weight_decay * p
    if not self.momentum: return p - lr * g, {}
    b = self.momentum * group.states["b"] + g
    return p - lr * (g + self.momentum * b if self.nesterov else b), {"b": b}


@checked
class _Adam(Optimizer):
  def __init__(self, params: Iterable[Tensor], lr: float, b1: float, b2: float, eps: float, weight_decay: float, decoupled: bool):
    name = type(self).__name__
    for what, b in (("b1", b1), ("b2", b2)):
      if not 0 <= b < 1: raise ArgumentError(f"{name}: {what} is {b!r}, expected at least 0 and below 1")
    self.b1, self.b2, self.decoupled = b1, b2, decoupled
    self.eps, self.weight_decay = _positive(name, "eps", eps, True), _positive(name, "weight_decay", weight_decay, True)
    super().__init__(params, lr)

  def _make_state(self) -> None:
    # 1 - b1^t and 1 - b2^t: advanced as c = b·c + (1 - b), which loses nothing to cancellation as 1 - b^t does
    self._correction = _own(Tensor.zeros(2, dtype=self._lr.dtype, device=self._device))
    self._betas = Tensor([[self.b1, self.b2], [1 - self.b1, 1 - self.b2]], dtype=self._lr.dtype, device=self._device)
    for g in self._groups: g.states.update(m=g.zeros(), v=g.zeros())

  def _extra_state(self) -> list[Tensor]: return [self._correction, self._betas]

  def _advance(self) -> None:
    self._correction.assign(self._betas[0] * self._correction + self._betas[1])

  def _update(self, group: _Group, p: Tensor, g: Tensor, lr: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    if self.weight_decay and not self.decoupled: g = g + self.weight_decay * p
    correction = self._correction.to(group.device).cast(group.wide)
    m = self.b1 * group.states["m"] + (1 - self.b1) * g
    v = self.b2 * group.states["v"] + (1 - self.b2) * (g * g)
    up = (m / correction[0:1]) / ((v / correction[1:2]).sqrt() + self.eps)
    if self.weight_decay and self.decoupled: up = up + self.weight_decay * p
    return p - lr * up, {"m": m, "v": v}


@checked
class Adam(_Adam):
  """Adam (https://arxiv.org/abs/1412.6980) with bias correction. ``weight_decay`` is added to the gradient, as in PyTorch.

  ``m = b1·m + (1-b1)·g``; ``v = b2·v + (1-b2)·g²``; ``p -= lr · m/(1-b1ᵗ) / (√(v/(1-b2ᵗ)) + eps)``.
  ``t`` counts the optimizer's steps. Raises as :class:`Optimizer`, and ArgumentError for betas outside [0, 1) and for negative
  ``eps`` or ``weight_decay``.
  """

  def __init__(self, params: Iterable[Tensor], lr: float = 0.001, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
               weight_decay: float = 0.0):
    super().__init__(params, lr, b1, b2, eps, weight_decay, decoupled=False)


@checked
class AdamW(_Adam):
  """Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101): as :class:`Adam`, and ``p -= lr · weight_decay · p``."""

  def __init__(self, params: Iterable[Tensor], lr: float = 0.001, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
               weight_decay: float = 0.01):
    super().__init__(params, lr, b1, b2, eps, weight_decay, decoupled=True)


__all__ = ["Adam", "AdamW", "Optimizer", "SGD"]
