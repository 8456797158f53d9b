"""Modes of a thread or asyncio task: whether results need gradients, whether layers behave as in training, and in which dtypes
operations compute (``ntgrad.autocast``)."""
from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import Any, Callable, ClassVar, Self, TypeVar

from ntgrad.codegen.ir import ArgumentError, DType, shown

from .checks import checked

_F = TypeVar("_F", bound=Callable[..., Any])

_grad: ContextVar[bool] = ContextVar("gradients", default=True)
_training: ContextVar[bool | None] = ContextVar("training", default=None)   # None: nobody has said it
Autocast = tuple[tuple[str, DType], ...]   # types of devices ("cuda"), each with the dtype that products are computed in there
autocast: ContextVar[Autocast] = ContextVar("autocast", default=())


class _Mode:
  """Whether results need gradients, and whether layers behave as in training: of this thread, or asyncio task."""
  __slots__ = ()
  @property
  def grad(self) -> bool: return _grad.get()
  @grad.setter
  def grad(self, value: bool) -> None: _grad.set(value)
  @property
  def training(self) -> bool: return _training.get() is True
  @training.setter
  def training(self, value: bool) -> None: _training.set(value)
  @property
  def said(self) -> bool:
    """Whether ``training`` was ever set here."""
    return _training.get() is not None


mode = current = _Mode()   # the second name is for where a parameter has the first


class behaving:
  """``with behaving(True): ..``: as in training inside; outside it is as if nobody had said so."""
  __slots__ = "value", "before"

  def __init__(self, value: bool) -> None: self.value = value
  def __enter__(self) -> None: self.before = _training.set(self.value)
  def __exit__(self, *_: object) -> None: _training.reset(self.before)


class _Said(type):
  def __bool__(cls) -> bool: return not mode.grad


class _Gradients:
  """Gradients are on, or off, in a block or in a decorated function."""
  __slots__ = ("before",)
  on: ClassVar[bool]
  before: list[bool]

  def __enter__(self) -> Self:
    self.before.append(mode.grad)
    mode.grad = self.on
    return self
  def __exit__(self, *_: object) -> None: mode.grad = self.before.pop()
  def __call__(self, fn: _F) -> _F:
    if not callable(fn):
      raise ArgumentError(f"{type(self).__name__}: {shown(fn)} is no function; decorate one, or use it in a with statement")
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
      with type(self)(): return fn(*args, **kwargs)
    return call  # type: ignore[return-value]


class no_grad(_Gradients, metaclass=_Said):
  """Results made in the block, or in the decorated function, require no gradients: ``with no_grad(): ..`` or ``@no_grad``. A new
  thread begins with gradients."""
  __slots__ = ()
  on = False

  def __new__(cls, fn: Any = None) -> Any: return object.__new__(cls) if fn is None else cls()(fn)
  def __init__(self, fn: Any = None) -> None: self.before = []


class enable_grad(_Gradients):
  """Results made in the block, or in the decorated function, may require gradients, inside ``no_grad`` too."""
  __slots__ = ()
  on = True

  def __new__(cls, orig_func: Any = None) -> Any: return object.__new__(cls) if orig_func is None else cls()(orig_func)
  def __init__(self, orig_func: Any = None) -> None: self.before = []


@checked
class set_grad_enabled:
  """Gradients on or off from here on in this thread; as a block (``with set_grad_enabled(False):``) until its end; above a
  function in that one."""

  def __init__(self, mode: bool) -> None: self.before, current.grad = current.grad, mode
  def __enter__(self) -> set_grad_enabled: return self
  def __exit__(self, *_: object) -> None: mode.grad = self.before

  def __call__(self, fn: Any) -> Any:
    """A function that runs so; gradients outside of it are as they were before."""
    made = no_grad() if not mode.grad else enable_grad()
    mode.grad = self.before
    return made(fn)


@checked
def inference_mode(mode: bool | Callable[..., Any] = True) -> Any:
  """``no_grad()``, or with False ``enable_grad()``; above a function also without brackets."""
  if callable(mode): return no_grad(mode)
  return no_grad() if mode else enable_grad()


def is_grad_enabled() -> bool:
  """Whether results may require gradients, in this thread."""
  return mode.grad
