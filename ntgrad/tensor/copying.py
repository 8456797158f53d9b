"""Copies and pickles of tensors, and numpy's functions on them.

A tensor is copied and pickled as what it is: a view of an Alias, which holds the value (see ``alias``). What shares memory inside
one deep copy or pickle therefore shares it afterwards: shared parameters, views, a model and its optimizer.
"""
from __future__ import annotations

import copyreg
from typing import Any, Callable, Iterable, Mapping, Self, Sequence
from weakref import ref

import numpy as np

from ntgrad import graph
from ntgrad.alias import Alias, Bits, View, shown_of
from ntgrad.codegen.dtype import DType
from ntgrad.codegen.errors import GradientError, InterchangeError
from ntgrad.codegen.uop import Ops
from ntgrad.core import Base
from ntgrad.engine.buffer import Buffer
from ntgrad.engine.device import Device
from ntgrad.names import Names


class Copying(Base):
  """``copy``, ``pickle``, and values for numpy."""
  __slots__ = ()

  def __copy__(self) -> Self:
    """A view of all of it: the same memory; a gradient goes on to this tensor."""
    return self._seen((Ops.RESHAPE, self.shape)) if self._state > 0 else self.detach()

  def __reduce__(self) -> Any:
    """For ``pickle`` and ``copy.deepcopy``: the value, the dtype, the device's name, ``requires_grad``, ``grad`` and ``names``.

    Raises GradientError for the result of operations that requires a gradient: its graph cannot be copied.
    """
    if self._state == 1:
      raise GradientError(
        f"copy or pickle: a tensor of shape {self.shape} that was made from tensors which require a gradient has a graph, "
        "which stays where it is; take .detach() of it, or copy the tensors that it was made from"
      )
    return _tensor, (type(self), self._alias, self._view, self._state, self.grad, self._names), getattr(self, "__dict__", None)

  # ---- numpy
  __array_priority__ = 1000   # ndarray + Tensor is a Tensor

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """The value for ``numpy.asarray`` and numpy's functions, an array of its own; with ``copy=False`` one over the tensor's
    memory.

    Raises InterchangeError where ``copy=False`` asks for another dtype, or for memory that numpy cannot see.
    """
    if copy is not False:
      values = self.numpy()
      return values if dtype is None else values.astype(dtype, copy=False)
    if dtype is not None and np.dtype(dtype) != self.dtype.np:
      raise InterchangeError(
        f"__array__: a tensor of {self.dtype.name} as {np.dtype(dtype)} with copy=False; leave out copy=False, or .cast() it"
      )
    shown: Any = self
    try: return np.from_dlpack(shown, copy=False)
    except (BufferError, RuntimeError) as e:
      if isinstance(e, InterchangeError): raise
      raise InterchangeError(f"__array__: a tensor of {self.dtype.name} on {self.device} with copy=False: {e}") from None

  def __array_function__(
    self, fn: Callable[..., Any], types: Iterable[type], args: Sequence[Any], kwargs: Mapping[str, Any]
  ) -> Any:
    """numpy's functions take the values of tensors, and give what they give for arrays."""
    return fn(*_arrays(list(args)), **dict(zip(kwargs, _arrays(list(kwargs.values())))))


def _arrays(items: list[Any]) -> list[Any]:
  """Arguments of a numpy function, with arrays in place of tensors, those in lists and tuples too."""
  out = [i.numpy() if isinstance(i, Base) else i for i in items]
  return [type(i)(_arrays(list(i))) if type(i) in (list, tuple) else i for i in out]


def _tensor(cls: type[Copying], alias: Alias, view: View, state: int, grad: Any, names: Names | None = None) -> Copying:
  t = object.__new__(cls)
  t._alias, t._view, t._node, t.grad, t._state, t._names = alias, view, None, grad, state, names
  alias.tensors[ref(t, alias.tensors.pop)] = None
  return t


def _stored(alias: Alias) -> Any:
  """An Alias for ``pickle``: the bytes of its newest value."""
  node = alias.node
  values = Base._from_node(graph.detach(node)).numpy()
  return _alias, (node.dtype, values.shape, node.device, np.ascontiguousarray(values).reshape(-1).view(np.uint8))


def _alias(dtype: DType, shape: tuple[int, ...], device: str | None, data: np.ndarray[Any, Any]) -> Alias:
  return Alias(graph.buffer(Buffer.from_numpy(device or Device.DEFAULT, data.view(dtype.np).reshape(shape))))


def _stored_bits(bits: Bits) -> Any:
  """With the Alias whose bits they are, as a view goes with its base."""
  source = bits.source()
  return _stored(bits) if source is None else (shown_of, (source, bits.beneath))


copyreg.pickle(Alias, _stored)
copyreg.pickle(Bits, _stored_bits)
