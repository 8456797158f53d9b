"""``Tensor``: lazy tensor code. Operations build the graph of ``lazydata``; nothing runs until a value is needed.

The methods live in mixins, each upon the one before: ``core`` (what a tensor holds), ``elementwise``, ``movement``, ``reduction``,
``functional``, ``creation``, ``random``, ``indexing``; this file has the constructor and the gradients.
"""
from __future__ import annotations

from types import TracebackType
from typing import Any, ClassVar
from weakref import ref

from ntgrad.codegen.dtype import DType, dtypes
from ntgrad.core import _add_live, _drop_live, live_tensors, mode, no_grad
from ntgrad.creation import node_of
from ntgrad.device import Device
from ntgrad.indexing import Indexing


class _Training(type):
  """Makes ``Tensor.training`` a setting of the class."""
  @property
  def training(cls) -> bool:
    """Whether dropout drops and batch norms take the batch's statistics."""
    return mode.training
  @training.setter
  def training(cls, value: bool) -> None: mode.training = bool(value)


class train:
  """``with Tensor.train(): ...``: layers behave as in training (``Tensor.train(False)``: as in use)."""
  def __init__(self, value: bool = True) -> None: self.value, self.before = value, mode.training
  def __enter__(self) -> train:
    self.before, mode.training = mode.training, self.value
    return self
  def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
    mode.training = self.before
  def __call__(self, fn: Any) -> Any:
    import functools
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
      with train(self.value): return fn(*args, **kwargs)
    return call


class Tensor(Indexing, metaclass=_Training):
  """A lazy tensor made from a number, nested lists, a numpy array, bytes (uint8), a UOp or another Tensor.

  ``dtype`` None keeps numpy's dtype; lists and numbers give bool, int32 or float32. ``device`` None is the default one.
  ``requires_grad=True`` makes it a leaf whose ``grad`` ``backward`` sets. Raises ShapeError for ragged lists, DTypeError for data or
  dtypes that ntgrad does not have, DeviceError, ArgumentError for ints that do not fit the dtype.
  """
  __slots__ = ()
  train: ClassVar[type[train]] = train
  no_grad: ClassVar[type[no_grad]] = no_grad

  def __init__(self, data: Any = None, device: str | None = None, dtype: DType | str | None = None, requires_grad: bool | None = None):
    d = dtype if dtype is None or isinstance(dtype, DType) else dtypes.of(dtype)
    self.lazydata = node_of(data, None if device is None else Device.canonicalize(device), d)
    self.grad = None
    self._state = 0
    if isinstance(data, Tensor):
      self._state = min(data._state, 1)
      if requires_grad: self.lazydata, self._state = data.detach().lazydata, 0
    _add_live(ref(self, _drop_live))
    if requires_grad is not None: self.requires_grad = requires_grad

  def backward(self, gradient: Tensor | None = None) -> Tensor:
    """Add the gradient of this tensor (one element, or with ``gradient`` given) to ``grad`` of every leaf beneath it.

    Raises GradientError where there is no graph to a leaf, or the tensor has several elements and no gradient is given.
    """
    from ntgrad.gradient import backward
    backward(self, gradient)
    return self

  def gradient(self, *targets: Tensor, gradient: Tensor | None = None) -> list[Tensor]:
    """The gradients of this tensor with respect to the targets; nothing is stored. Raises GradientError."""
    from ntgrad.gradient import gradient as find
    return find(self, targets, gradient)


__all__ = ["Tensor", "live_tensors", "no_grad"]
