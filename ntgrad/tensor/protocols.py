"""What Python, numpy and notebooks ask of a tensor: copies and pickles, ``data``, numpy's functions on it, devices by name, its
text, iteration, ``in``, ``divmod``.

A tensor is copied and pickled as what it is: a view of an Alias, which holds the value (see ``graph/alias.py``). What shares
memory inside one deep copy or pickle therefore shares it afterwards: shared parameters, views, a model and its optimizer."""
from __future__ import annotations

import copyreg
import html
from functools import lru_cache
from inspect import Signature
from typing import Any, Callable, ClassVar, Iterable, Iterator, Mapping, Self, Sequence, cast

import numpy as np

from ntgrad.codegen.ir import DType, Ops, errors
from ntgrad.codegen.ir.errors import ArgumentError, CaptureError, GradientError, InterchangeError, ScalarError, ShapeError, shown
from ntgrad.compat.notebook import table
from ntgrad.core import Base, memory_format
from ntgrad.engine.buffer import Buffer
from ntgrad.engine.device import Device
from ntgrad.graph import Names, checked, nodes as graph, text
from ntgrad.graph.alias import Alias, AliasView, Bits, apply_view, beyond, repeats, shown_of, through, view_covers, write_watchers
from ntgrad.graph.host_values import host_view, is_host_view
from ntgrad.graph.origins import frame_line, user_frame

from .printing import WHOLE, tensor_text
from .reduction import Reduction

ROWS, COLUMNS = 20, 20   # of a table in a notebook


@checked
class Protocols(Reduction):
  """What Python, numpy and notebooks ask of a tensor."""
  __slots__ = ()
  _array_api: ClassVar[Any]   # what gives ``ntgrad.array_api``, which is made of tensors

  # ---- copies
  def __copy__(self) -> Self:
    """A view of all of it: the same memory; a gradient goes on to this tensor."""
    return self._seen((Ops.RESHAPE, self.shape)) if self._state > 0 else self.detach()

  def __reduce__(self) -> Any:
    """For ``pickle`` and ``copy.deepcopy``: the value, the dtype, the device's name, ``requires_grad``, ``grad`` and ``names``.
    Raises GradientError for the result of operations that requires a gradient: its graph cannot be copied."""
    if self._state == 1:
      raise GradientError(
        f"copy or pickle: a tensor of shape {self.shape} that was made from tensors which require a gradient has a graph, "
        "which stays where it is; take .detach() of it, or copy the tensors that it was made from")
    return _tensor, (self._plain, self._alias, self._view, self._state, self.grad, self._names), getattr(self, "__dict__", None)

  # ---- the memory without its gradient
  @property
  def data(self) -> Any:
    """The same memory as a tensor without a gradient, as ``detach()`` gives it: ``p.data.mul_(0.5)`` writes a leaf. It alone can
    be called: ``x.data()`` is a memoryview of a copy of the values, as tinygrad has it.

    ``p.data = value`` writes a tensor's values to ``p``; what shared its memory, ``backup = p.data``, keeps the values of before.
    A value of another shape, dtype or device gives ``p`` memory of its own. Where ``ntgrad.jit`` runs a function, what shares the
    memory sees the write too, and the value has to fit (else CaptureError). Raises ArgumentError for what is no tensor,
    GradientError for ints in a leaf."""
    t: Any = self.detach()
    t.__class__ = _called(cast(Any, self._plain))
    return t
  @data.setter
  def data(self, value: Any) -> None:
    if not isinstance(value, Base):
      raise ArgumentError(f"data = {shown(value)}: it takes a Tensor; .fill_() and .copy_() write numbers and arrays")
    if value._alias is self._alias and through(value._view) == through(self._view): return   # p.data += 1
    u, v = self.lazydata, value.lazydata
    if self._state > 0 and v.dtype.kind != "f":
      raise GradientError(f"data: a value of {v.dtype.name} for a tensor with a gradient; cast it to a float dtype first")
    device = u.device or Device.DEFAULT
    same = u.shape == v.shape and u.dtype is v.dtype and device == (v.device or device)
    if write_watchers and not same:
      raise CaptureError(f"data: {v.dtype.name} of shape {v.shape} on {v.device or device} for {u.dtype.name} of shape {u.shape} "
                         f"on {device}, where a function is captured; it has to fit")
    others = [t for t in self._alias.seen() if t is not self and t._state != -1]
    parts = [(t, rest) for t in others if (rest := beyond(t._view, self._view)) is not None]
    fits = same and self._alias.packed is None and not repeats((*self._alias.beneath, *self._view))
    # what a value does not fit leaves its memory, and so does what is no leaf and shows a part of something else, or a leaf
    if not fits or self._state != 2 and not write_watchers and (
      self._alias.beneath or not view_covers(self._view) or len(parts) != len(others) or any([t._state == 2 for t in others])):
      self._rehome(Alias(graph.detach(v)), ())
      if same and self._state == 1: self._alias.pass_on(u)
      if len(u.shape) != len(v.shape): self._names = value._names
      return
    if not write_watchers: self._part_from(parts)
    self.detach().assign(value.detach())

  def _part_from(self, parts: Sequence[tuple[Base, AliasView]]) -> None:
    """Others that show of this tensor's value, and what, keep that value, in an Alias of its own. (What an optimizer has of its
    parameters never requires a gradient; it is not among them, and goes on seeing them.)"""
    if not parts: return
    alias = Alias(apply_view(self._alias.node, through(self._view)))
    for t, rest in parts:
      node = t.lazydata
      t._rehome(alias, rest)
      if t._state == 1: t._node = node   # which leads to the leaf that it was made from

  # ---- numpy
  __array_priority__ = 1000   # ndarray + Tensor is a Tensor

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """The value for ``numpy.asarray`` and numpy's functions, an array of its own; with ``copy=False`` one over the tensor's
    memory. Raises InterchangeError where ``copy=False`` asks for another dtype, or for memory that numpy cannot see."""
    if copy is not False:
      values = self.numpy()
      return values if dtype is None else values.astype(dtype, copy=False)
    if dtype is not None and np.dtype(dtype) != self.dtype.np:
      raise InterchangeError(
        f"__array__: a tensor of {self.dtype.name} as {np.dtype(dtype)} with copy=False; leave out copy=False, or .cast() it")
    memory: Any = self
    try: return np.from_dlpack(memory, copy=False)
    except (BufferError, RuntimeError) as e:
      if isinstance(e, InterchangeError): raise
      raise InterchangeError(f"__array__: a tensor of {self.dtype.name} on {self.device} with copy=False: {e}") from None

  def to_numpy(self) -> np.ndarray[Any, Any]:
    """``numpy()``, by the name that matplotlib and pandas ask for."""
    return self.numpy()

  def __array_function__(self, fn: Callable[..., Any], types: Iterable[type], args: Sequence[Any],
                         kwargs: Mapping[str, Any]) -> Any:
    """numpy's functions take the values of tensors, and give what they give for arrays."""
    return fn(*_arrays(list(args)), **dict(zip(kwargs, _arrays(list(kwargs.values())))))

  # ---- the array API standard
  def __array_namespace__(self, *, api_version: str | None = None) -> Any:
    """The namespace of the array API standard: ``ntgrad.array_api``. Raises ArgumentError for a version later than its own."""
    namespace = self._array_api()
    if api_version is not None and api_version > namespace.__array_api_version__:
      raise ArgumentError(f"__array_namespace__: version {api_version}; it has {namespace.__array_api_version__}")
    return namespace

  def to_device(self, device: str, /, *, stream: Any = None) -> Self:
    """The same value as a tensor of its own on a device. Raises DeviceError."""
    return self.to(device=device)

  # ---- the order of elements in memory
  def stride(self, dim: int | str | None = None) -> Any:
    """How many elements lie from each index of a dimension to the next: of all in a tuple, or of one. A view has those of what it
    shows; a result lies in order. Raises AxisError."""
    from ntgrad.engine import interchange
    strides = interchange.strides_shown(self)
    return strides if dim is None else strides[self._dim("stride", dim)]

  def is_contiguous(self, memory_format: memory_format | None = None) -> bool:
    """Whether the elements lie in order: those of ``channels_last`` and ``channels_last_3d`` with dimension 1 innermost."""
    last = str(memory_format).startswith("torch.channels_last")
    if last and self.ndim != (5 if str(memory_format).endswith("3d") else 4): return False
    n, found = 1, self.stride()
    for d in reversed([0, *range(2, self.ndim), 1] if last else range(self.ndim)):
      if self.shape[d] != 1 and found[d] != n: return 0 in self.shape and not last
      n *= self.shape[d]
    return True

  def data_ptr(self) -> int:
    """The address of the first element, which is computed if need be, in the memory that is this tensor's own as for
    :meth:`__dlpack__`. Raises InterchangeError for views that have no strides and for memory without an address, CaptureError
    while a jit records."""
    from ntgrad.engine import interchange
    return interchange.view_of(self, False, "data_ptr").address

  # ---- devices and dtypes, as PyTorch has them
  def cpu(self) -> Self:
    """The same value as a tensor of its own on the CPU."""
    return self.to("CPU")
  def cuda(self, device: int | None = None) -> Self:
    """The same value as a tensor of its own on a GPU (its number). Raises DeviceError where there is none."""
    return self.to("CUDA" if not device else f"CUDA:{device}")
  def type(self, dtype: Any = None) -> Any:
    """The same value in another dtype, or without one the dtype's name. Raises DTypeError."""
    return self.dtype.name if dtype is None else self.to(dtype=dtype)
  def type_as(self, other: Base) -> Self:
    """The same value with the dtype, and on the device, of another tensor."""
    return self.to(other.device, other.dtype)
  @property
  def is_cuda(self) -> bool:
    """Whether it is on a GPU."""
    return self.device.startswith("CUDA")
  is_sparse = False   # tensors are dense

  # ---- text
  def _known(self) -> np.ndarray[Any, Any] | None:
    """The values, where they are there already; None where they would have to be computed, or are very many on a device."""
    if self._alias.pending: return None
    from ntgrad.engine.buffer import being_recorded
    from ntgrad.engine.realize import rebased
    if being_recorded: return None
    u = rebased(self.lazydata)
    if not is_host_view(u): return None
    if self.numel() <= WHOLE: return host_view(u)
    memory: Any = self.detach()
    try: return np.from_dlpack(memory, copy=False)
    except (BufferError, RuntimeError, errors.NtgradError): return None

  def _brief(self) -> str:
    """The tensor without its values, for messages."""
    return f"<Tensor {text(self)} {self.dtype.name} on {self.device}{', requires_grad=True' if self._state > 0 else ''}>"

  def __repr__(self) -> str:
    """Shape, dtype, device, and the values where they have been computed. Nothing is computed for it."""
    head, values = self._brief()[:-1], self._known()
    if values is None: return f"{head}, {self.lazydata.op.name}, not computed>" if self._alias.memory is None else f"{head}>"
    if values.dtype.kind == "V" or values.dtype.itemsize < 4 and self.dtype.kind == "f": values = values.astype(np.float32)
    printed = np.array2string(values, separator=", ", threshold=1000, max_line_width=120)
    return f"{head}:{chr(10) if chr(10) in printed else ' '}{printed}>"

  def __str__(self) -> str:
    """The tensor with its values, which are computed, as PyTorch prints it: of more than 1,000 elements those at the edges.
    ``ntgrad.set_printoptions`` says how.

    The dtype stands behind the values, ``dtype=torch.float64``, but for ``dtypes.default_float``, ``dtypes.default_int``, bool
    and int64, which sums of ints have; the device where it is not the default one; and ``requires_grad=True``, also where
    PyTorch has ``grad_fn=``. Raises CaptureError where ``ntgrad.jit`` captures a function."""
    from ntgrad.engine.buffer import refuse_recording
    refuse_recording(f"a tensor of shape {text(self)} is printed at {frame_line(user_frame())} while the function is captured",
                     "where it has no values; return the tensor and print it after the call")
    return tensor_text(self.realize())

  def __format__(self, spec: str) -> str:
    """``f"{loss:.3f}"``: the number of a tensor of one element; without a format that of one of shape (), else the text with the
    values. Raises ShapeError for several elements."""
    if not spec: return str(self) if self.ndim else str(self.item())
    if self.numel() != 1:
      raise ShapeError(f"format: {spec!r} for a tensor of shape {text(self)}; it takes one element (.tolist() gives all)")
    return format(self.item(), spec)

  def _repr_html_(self) -> str:
    """For notebooks: a table of the values of one or two dimensions where they have been computed, else the text."""
    values = self._known() if self.ndim in (1, 2) and self.numel() <= WHOLE else None
    if values is None: return f"<pre>{html.escape(repr(self))}</pre>"
    rows = np.atleast_2d(values)
    cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row[:COLUMNS].tolist()] for row in rows[:ROWS]]
    if rows.shape[1] > COLUMNS: cells = [[*row, "…"] for row in cells]
    if rows.shape[0] > ROWS: cells.append(["…"] * min(rows.shape[1], COLUMNS + 1))
    return table(self._brief()[1:-1], cells)

  # ---- as a container and as a number
  def __iter__(self) -> Iterator[Self]:
    if not self.ndim: raise ScalarError("iteration: a tensor of shape () has no dimension to go along; .item() gives its number")
    return iter([self[i] for i in range(self.shape[0])])

  def __contains__(self, value: Any) -> bool: return bool((self == value).any().item())

  def __divmod__(self, x: Any) -> tuple[Self, Self]: return self // x, self % x
  def __rdivmod__(self, x: Any) -> tuple[Self, Self]: return x // self, x % self


@lru_cache(64)
def _called(kind: Any) -> Any:
  """The class of what ``data`` gives for a tensor of a class: that can be called."""
  def call(self: Any) -> memoryview: return np.asarray(self.numpy(), order="C").data
  def new(cls: Any, *args: Any, **kwargs: Any) -> Any: return kind(*args, **kwargs)   # nobody else makes one
  return type(kind)(kind.__name__, (kind,), {"__slots__": (), "__call__": call, "__new__": new, "_plain": kind,
                                             "__module__": kind.__module__, "__doc__": kind.__doc__,
                                             "__signature__": Signature()})   # or it is sought by comparing


def _arrays(items: list[Any]) -> list[Any]:
  """Arguments of a numpy function, with arrays in place of tensors, those in lists and tuples too."""
  out = [i.numpy() if isinstance(i, Base) else i for i in items]
  return [type(i)(_arrays(list(i))) if type(i) in (list, tuple) else i for i in out]


def _tensor(cls: type[Protocols], alias: Alias, view: AliasView, state: int, grad: Any, names: Names | None = None) -> Protocols:
  t = object.__new__(cls)._of_alias(alias, names)
  t._view, t._node, t.grad, t._state = view, None, grad, state
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
