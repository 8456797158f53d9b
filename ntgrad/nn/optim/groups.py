"""Groups of parameters that have the same options, with the numbers that kernels read in a small buffer."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ntgrad.codegen.ir import DType, dtypes, promote
from ntgrad.codegen.ir.errors import ArgumentError, ShapeError, shown
from ntgrad.engine.realize import write_from_host
from ntgrad.nn.recipes import Recipes
from ntgrad.tensor import Tensor

from .flat import Flat, follows_in_a_flat, moves, own

if TYPE_CHECKING:
  from .base import Optimizer


class Numbers:
  """Numbers of small buffers by name, as Tensors of shape (1,)."""

  def __init__(self, *parts: tuple[Tensor, tuple[str, ...]]): self._parts = parts

  def __getattr__(self, name: str) -> Tensor:
    for values, names in self._parts:
      if name in names: return values[(i := names.index(name)):i + 1]
    raise AttributeError(name)


class Shared(dict[str, Any]):
  """A group of an optimizer that is written by hand. It may be given to one within that, which has other options."""


class ParamGroup(MutableMapping[str, Any]):
  """Parameters that have the same options, as PyTorch's ``param_groups`` has them: ``group["lr"] = 0.01``, ``group["params"]``.

  What the options come to as numbers (``numbers``: a name each, the learning rate first) lies in a buffer. Raises ArgumentError
  for a value that an option does not take."""

  def __init__(self, optimizer: Optimizer, params: list[Tensor], options: Mapping[str, Any]):
    self.kind, self.params = type(optimizer), params
    self.options: dict[str, Any] = {"params": params, **options}
    self.known: Any = None         # the node that the buffer had when the numbers here were written
    self.check()
    groups = dict[tuple[DType, Any, int | None], list[int]]()
    newest, first_of = dict[Any, int](), dict[int, int]()   # in each memory; of those that lie behind each other
    first = sum(len(g.params) for g in optimizer.param_groups)
    for i, p in enumerate(params):
      if not math.prod(p.shape): continue
      stays, last = optimizer._alone or not moves(p), newest.get(p._alias)
      behind = last is not None and not optimizer._alone and follows_in_a_flat(p, params[last])
      newest[p._alias], first_of[i] = i, first_of[last] if last is not None and behind else i
      groups.setdefault((p.dtype, p.device, first_of[i] if stays else None), []).append(i)
    self.flats = [Flat([params[i] for i in at], [first + i for i in at]) for at in groups.values()]
    self.device = params[0].device
    self.dtype = promote(dtypes.float32, *(f.wide for f in self.flats))
    self.names = tuple(self.numbers())
    self.host = self._values()
    self.buffer = Tensor(self.host, device=self.device)
    self.scalar_names = tuple(self.kind._scalars_of if self.options.get(self.kind._scalars_with, True) else ())
    self.scalars = self._small(len(self.scalar_names))
    self.steps = self.scalars[:1] if self.kind._recurrent else self._small(1)
    self.recipes = Recipes()   # of the scalars

  def __getstate__(self) -> dict[str, Any]: return {**vars(self), "known": self.known is self.buffer._alias.node}
  def __setstate__(self, state: dict[str, Any]) -> None:
    vars(self).update(state)
    self.known = self.buffer._alias.node if state["known"] else None

  def _small(self, n: int) -> Tensor: return own(Tensor.zeros(n, dtype=self.dtype, device=self.device))
  def _values(self) -> np.ndarray[Any, Any]: return np.array(list(self.numbers().values()), np.dtype(self.dtype.np))

  def numbers(self) -> dict[str, float]:
    """What kernels read, the learning rate first."""
    lr = self.options["lr"]
    return {"lr": 0.0 if isinstance(lr, Tensor) else lr, **self.kind._numbers(self)}

  def check(self) -> None:
    """Raises ArgumentError for a value that an option does not take."""
    for option, value in self.options.items():
      if option == "lr" and isinstance(value, Tensor): continue
      if option in self.kind._checks: self.options[option] = self.kind._checks[option](self.kind.__name__, option, value)
    self.kind._check(self)

  def __getitem__(self, option: str) -> Any:
    value = self.options[option]
    if option != "lr" or (not isinstance(value, Tensor) and self.buffer._alias.node is self.known): return value
    return float(self.buffer[:1].item())   # it was written as a Tensor

  def __setitem__(self, option: str, value: Any) -> None:
    if not isinstance(option, str): raise ArgumentError(f"{self.kind.__name__}: no option {shown(option)}")
    options = self.options
    if option == "lr" and isinstance(value, Tensor):
      if math.prod(value.shape) != 1: raise ShapeError(f"lr: a Tensor of shape {tuple(value.shape)}, expected one element")
      self.buffer[:1].assign(value.detach().reshape(1).cast(self.dtype).to(self.device))
      options[option] = value
      return
    if option not in self.kind._checks:
      options[option] = value
      return
    value = self.kind._checks[option](self.kind.__name__, option, value)
    before, lr = options.get(option), self["lr"]
    options["lr"], options[option] = lr, value
    try: self.check()
    except ArgumentError:
      options[option] = before
      raise
    self.add_states()
    self.write()

  def __delitem__(self, option: str) -> None: raise ArgumentError(f"{self.kind.__name__}: option {option!r} stays")
  def __iter__(self) -> Iterator[str]: return iter(self.options)
  def __len__(self) -> int: return len(self.options)

  def add_states(self) -> None:
    """Begin the state that the options ask for, where there is none: a schedule may set a momentum that was 0."""
    names = *self.kind._states, *[s for option, s in self.kind._states_with.items() if self.options.get(option)]
    for f in self.flats: f.states.update({s: f.full(self.kind._initial(self, s)) for s in names if s not in f.states})

  def write(self) -> None:
    """Write the numbers to the buffer."""
    before, values = self.host, self._values()
    if not write_from_host(self.buffer._alias, values, "the options of an optimizer"):
      self.buffer.assign(Tensor(values, device=self.device)).realize()
    self.known, self.host = self.buffer._alias.node, values
    if not np.array_equal(before[1:], values[1:]): self.write_scalars()

  def write_scalars(self) -> None:
    """Have the scalars be as if the options had always been what they are."""
    if self.kind._recurrent:
      self.scalars.assign(self.scalars_at(self.steps.clone().realize(), self.buffer, self.scalars)).realize()

  def scalars_at(self, t: Tensor, buffer: Tensor, scalars: Tensor) -> Tensor:
    """The scalars of step ``t``, after those of the one before, side by side, which a single kernel computes."""
    found = self.kind._scalars(Numbers((buffer, self.names), (scalars, self.scalar_names)), t)
    out = found[0]
    if len(found) == 1: return out
    i = Tensor.arange(len(found), device=out.device)
    for k, s in enumerate(found[1:], 1): out = i.eq(k).where(s, out)
    return out

  def next_scalars(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """What a step makes of the numbers, scalars and count of steps."""
    buffer, scalars, steps = inputs
    if self.kind._recurrent:
      many = len(self.scalar_names)
      return {"scalars": buffer[1:many + 1] * scalars + buffer[many + 1:2 * many + 1]}
    return {"steps": (t := steps + 1), "scalars": self.scalars_at(t, buffer, scalars)}

  def tensors(self) -> list[Tensor]:
    """All that a step writes, and the buffer."""
    extra = [self.scalars] if self.kind._recurrent else [self.steps, self.scalars] if self.scalar_names else []
    return [t for f in self.flats for t in (f.flat, *f.states.values())] + [*extra, self.buffer]

  def __repr__(self) -> str:
    return (f"{len(self.params)} parameters, {sum(p.numel() for p in self.params):,} numbers: "
            f"{', '.join(f'{k}={self[k]!r}' for k in self if k != 'params' and self[k] is not None)}")


def decayed(group: ParamGroup, p: Tensor, g: Tensor, n: Numbers) -> Tensor:
  """The gradient (or the direction of a step) with that of ``weight_decay / 2 · p²``."""
  return g + n.weight_decay * p if group["weight_decay"] else g
