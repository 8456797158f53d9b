"""Hooks of tensors: what programs have called for a gradient while it is found. ``graph/hooks.py`` has what registering gives."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

from ntgrad.codegen.ir import GradientError, UOp, shown
from ntgrad.core import Base
from ntgrad.graph import set_grad_enabled
from ntgrad.graph.hooks import Hook, Hooks, RemovableHandle, of_leaf, of_node

_differentiable = [True]   # whether the gradients that are being found may have gradients themselves


@contextmanager
def differentiable(value: bool) -> Iterator[None]:
  """In the block gradients are found that have gradients themselves, or have none."""
  before, _differentiable[0] = _differentiable[0], value
  try: yield
  finally: _differentiable[0] = before


def called(fn: Callable[..., Any], *args: Any) -> Any:
  """What a hook gives: nodes among its arguments are tensors for it, and results have gradients where these will."""
  def given(x: Any) -> Any:
    if isinstance(x, tuple): return tuple(map(given, x))
    if not isinstance(x, UOp): return x
    t = Base._from_node(x)
    t._state = int(_differentiable[0])
    return t
  with set_grad_enabled(_differentiable[0]): return fn(*map(given, args))


def taken(fn: Any, out: Any, like: UOp | None) -> UOp | None:
  """The gradient that a hook gave in the place of another one. Raises GradientError for what cannot be that."""
  if out is None: return like
  if isinstance(out, Base) and (like is None or out.shape == like.shape and out.dtype is like.dtype): return out.lazydata
  what = "None" if like is None else f"a gradient of {like.dtype.name} {like.shape}"
  raise GradientError(f"the hook {getattr(fn, '__name__', shown(fn))} gives {shown(out)} for {what}; give None, or a Tensor of "
                      "the gradient's dtype and shape")


def hooked(u: UOp | None, mine: Hooks | None) -> UOp | None:
  """A gradient after its hooks, which may have replaced it."""
  if u is None or mine is None: return u
  for h in (*mine.at("gradient"), *mine.at("kept")): u = taken(h.fn, called(h.fn, u), u)
  return u


def call_hooks(when: str, mine: Hooks | None, *args: Any) -> None:
  """Call those of a kind, for what they do."""
  for h in () if mine is None else mine.at(when): called(h.fn, *args)


def register(t: Any, name: str, hook: Hook) -> RemovableHandle:
  """A hook of a tensor. Raises GradientError for one that has no gradient."""
  if t._state <= 0:
    raise GradientError(f"{name}: a tensor of shape {t.shape} that requires no gradient; set requires_grad=True on it, or on "
                        "what it is made of, outside of no_grad")
  mine: Any = of_leaf(t, True) if t._state == 2 else of_node(t.lazydata, True)
  return mine.add(name, hook)


def retains(t: Any) -> bool:
  """Whether ``retain_grad`` was called for a tensor that is made of others."""
  mine = of_node(t.lazydata) if t._state == 1 else None
  return mine is not None and any([isinstance(h.fn, Kept) and h.fn.of() is t for h in mine.all])


class Kept:
  """Adds to ``grad`` of a tensor that is made of others, as long as it lives."""
  __slots__ = ("of",)

  def __init__(self, t: Base) -> None: self.of = ref(t)

  def __call__(self, g: Any) -> None:
    if (t := self.of()) is not None: t.grad = g if t.grad is None else t.grad + g
