"""Hooks of Modules: what programs have called before and after a Module, and when gradients come to its outputs and leave its
inputs."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ntgrad.codegen.ir import ArgumentError, GradientError, UOp, shown
from ntgrad.graph import checked, mode
from ntgrad.graph.hooks import Hook, Hooks, RemovableHandle
from ntgrad.tensor import Tensor
from ntgrad.tensor.custom import Ruled, attached
from ntgrad.tensor.hooks import called, taken

from .tree import ModuleBase

Nodes = tuple[UOp | None, ...]


@checked
class Hooked(ModuleBase):
  """A Module's hooks. They run where the Module is called, not where its ``forward`` is."""
  _hooks: Hooks | None = None

  def _hook(self, name: str, hook: Hook, first: bool = False) -> RemovableHandle:
    if self._hooks is None: self._hooks = Hooks()
    return self._hooks.add(name, hook, first)

  def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                with_kwargs: bool = False) -> RemovableHandle:
    """``hook(module, args)`` is called before the Module; what it gives takes the place of ``args``, a tuple or its one element.
    With ``with_kwargs`` it is ``hook(module, args, kwargs)``, which gives None or both. ``prepend``: before other such hooks."""
    return self._hook("register_forward_pre_hook", Hook("before", hook, with_kwargs), prepend)

  def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
                            always_call: bool = False) -> RemovableHandle:
    """``hook(module, args, output)`` is called after the Module, with ``with_kwargs`` ``hook(module, args, kwargs, output)``;
    what it gives takes the output's place. ``always_call``: also after an error, with None for the output. A captured function
    runs it when it is captured: what it computes is part of replays, what it prints or appends to a list is not."""
    return self._hook("register_forward_hook", Hook("after", hook, with_kwargs, always_call), prepend)

  def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    """``hook(module, grad_output)`` is called when the gradients of the outputs are known, a tuple; what it gives takes their
    place. An output that is neither a Tensor nor a tuple of them has none."""
    return self._hook("register_full_backward_pre_hook", Hook("backward_pre", hook), prepend)

  def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    """``hook(module, grad_input, grad_output)`` is called when the gradients of the inputs by place are known, tuples with None
    for what requires none; what it gives takes the place of ``grad_input``."""
    return self._hook("register_full_backward_hook", Hook("backward", hook), prepend)


def run(module: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
  """A call of a Module, with its hooks. Raises ArgumentError for what a hook may not give."""
  mine: Hooks = module._hooks
  after, result = mine.at("after"), None
  try:
    for h in mine.at("before"):
      if (out := h.of_call(module, args, kwargs)) is None: continue
      if not h.with_kwargs: args = out if isinstance(out, tuple) else (out,)
      elif isinstance(out, tuple) and len(out) == 2: args, kwargs = out
      else: raise ArgumentError(f"a forward pre-hook with kwargs gives {shown(out)}; it gives None or (args, kwargs)")
    passing = None
    if mode.grad and (mine.at("backward_pre") or mine.at("backward")):
      passing = _Passing(module, mine, len(args))
      args = passing.through(args, passing.inputs)
    result = call(module, *args, **kwargs)
    while after:
      h = after.pop(0)
      if (out := h.of_call(module, args, kwargs, result)) is not None: result = out
    if passing is None: return result
    out = passing.through(result if isinstance(result, tuple) else (result,), passing.outputs)
    return out if isinstance(result, tuple) else out[0]
  except Exception:
    for h in [h for h in after if h.always]:
      try: h.of_call(module, args, kwargs, result)
      except Exception as e: warnings.warn(f"a forward hook with always_call=True failed after another error: {e}", stacklevel=2)
    raise


class _Through(Ruled):
  """The same values as before; their gradients are what the rule makes of them, from nodes or None by number."""
  own = False

  def gradients(self, at: Any, sources: Any, need: Any) -> list[tuple[UOp, UOp]]:
    found = self.rule([at.get(i) for i in range(len(sources))], (), ())
    return [(s, g) for s, g in zip(sources, found) if g is not None]


class _Passing:
  """The gradients of one call of a Module: of its outputs first, then of its inputs."""

  def __init__(self, module: Any, mine: Hooks, count: int) -> None:
    self.module, self.mine, self.count = module, mine, count
    self.wrapped = False              # whether an input has a gradient
    self.grad_outputs: Nodes | None = None

  def through(self, values: tuple[Any, ...], rule: Callable[[Nodes], Nodes]) -> tuple[Any, ...]:
    """Values with a rule between the gradients of those that require one and what these are made of."""
    at = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x._state > 0]
    if not at: return values
    self.wrapped = self.wrapped or rule == self.inputs
    def by_place(grads: Sequence[UOp | None], *_: Any) -> list[UOp | None]:
      every = dict(zip(at, grads))
      found = rule(tuple([every.get(i) for i in range(len(values))]))
      return [found[i] for i in at]
    nodes, out = tuple([values[i].lazydata for i in at]), list(values)
    call = _Through(by_place, nodes, nodes)
    for number, i in enumerate(at): out[i] = attached(values[i], call, number, True)
    return type(values)(*out) if hasattr(values, "_fields") else tuple(out)

  def outputs(self, grads: Nodes) -> Nodes:
    for h in self.mine.at("backward_pre"): grads = _replaced(h.fn, called(h.fn, self.module, grads), grads)
    self.grad_outputs = grads
    return grads if self.wrapped else (self._called((None,) * self.count), grads)[1]

  def inputs(self, grads: Nodes) -> Nodes: return grads if self.grad_outputs is None else self._called(grads)

  def _called(self, grads: Nodes) -> Nodes:
    for h in self.mine.at("backward"):
      grads = _replaced(h.fn, called(h.fn, self.module, grads, self.grad_outputs), grads, self.wrapped)
    self.grad_outputs = None
    return grads


def _replaced(fn: Any, out: Any, grads: Nodes, may: bool = True) -> Nodes:
  """What a hook gave in the place of gradients. Raises GradientError for another number of them, or where there are none."""
  if out is None: return grads
  given = out if isinstance(out, tuple) else (out,)
  if len(given) != len(grads) or not may and any([g is not None for g in given]):
    raise GradientError(f"the hook {getattr(fn, '__name__', shown(fn))} gives {len(given)} gradients for {len(grads)}"
                        f"{'' if may else ' of inputs that require none'}; give None, or one for each")
  return tuple([None if g is None else taken(fn, g, like) for g, like in zip(given, grads)])
