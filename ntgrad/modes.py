"""Whether results need gradients, by PyTorch's names, and how layers behave in a block; ``no_grad`` is in ``core``."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from ntgrad.checks import checked
from ntgrad.core import _training, mode as current, no_grad


class enable_grad(ContextDecorator):
  """Results made in the block, or in the decorated function, may require gradients, inside ``no_grad`` too."""

  def __new__(cls, orig_func: Any = None) -> Any: return object.__new__(cls) if orig_func is None else cls()(orig_func)
  def __init__(self, orig_func: Any = None) -> None: self.before: list[bool] = []
  def __enter__(self) -> enable_grad:
    self.before.append(current.grad)
    current.grad = True
    return self
  def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
    current.grad = self.before.pop()


@checked
class set_grad_enabled:
  """Gradients on or off from here on in this thread; as a block (``with set_grad_enabled(False):``) until its end; above a
  function in that one."""

  def __init__(self, mode: bool) -> None: self.before, current.grad = current.grad, mode
  def __enter__(self) -> set_grad_enabled: return self
  def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
    current.grad = self.before

  def __call__(self, fn: Any) -> Any:
    """A function that runs so; gradients outside of it are as they were before."""
    made = no_grad() if not current.grad else enable_grad()
    current.grad = self.before
    return made(fn)


@checked
def inference_mode(mode: bool | Callable[..., Any] = True) -> Any:
  """``no_grad()``, or with False ``enable_grad()``; above a function also without brackets."""
  if callable(mode): return no_grad(mode)
  return no_grad() if mode else enable_grad()


def is_grad_enabled() -> bool:
  """Whether results may require gradients, in this thread."""
  return current.grad


class behaving:
  """``with behaving(True): ..``: as in training inside; outside it is as if nobody had said so."""
  __slots__ = ("value", "before")

  def __init__(self, value: bool) -> None: self.value = value
  def __enter__(self) -> None: self.before = _training.set(self.value)
  def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
    _training.reset(self.before)


__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "set_grad_enabled"]
