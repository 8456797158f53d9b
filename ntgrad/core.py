"""The bottom of ``Tensor``: what a tensor holds, how operations make new ones, gradient mode,
and values coming back to the host.
"""
from __future__ import annotations

import functools
from types import TracebackType
from typing import Any, Callable, Iterator, Self, Sequence, TypeVar
from weakref import ref

import numpy as np

from ntgrad import graph
from ntgrad.codegen.dtype import DType
from ntgrad.codegen.errors import ArgumentError, AssignError, AxisError, DTypeError, GradientError, ShapeError
from ntgrad.codegen.uop import MOVEMENT, Ops, UOp
from ntgrad.device import Device

F = TypeVar("F", bound=Callable[..., Any])


class LiveTensors:
  """Every Tensor object that is alive, weakly held. Iterating gives the tensors alive now, in the order of their making, so that
  schedules that take in several of them have the same structure every time.
  """
  __slots__ = ("refs",)

  def __init__(self) -> None: self.refs: dict[ref[Base], None] = {}
  def __iter__(self) -> Iterator[Any]:
    for r in list(self.refs):
      t = r()
      if t is not None: yield t
  def __len__(self) -> int: return len(self.refs)


live_tensors = LiveTensors()
_add_live: Callable[[Any], Any] = live_tensors.refs.setdefault
_drop_live: Callable[[Any], Any] = live_tensors.refs.pop


class _Mode:
  """Whether results remember that they need gradients, and whether layers behave as in training."""
  __slots__ = ("grad", "training")
  def __init__(self) -> None: self.grad, self.training = True, False


mode = _Mode()


class no_grad:
  """Results made in the block, or in the decorated function, require no gradients: ``with no_grad(): ..`` or ``@no_grad``."""

  __slots__ = ("before",)

  def __new__(cls, fn: Any = None) -> Any: return object.__new__(cls) if fn is None else cls()(fn)
  def __init__(self) -> None: self.before: list[bool] = []
  def __enter__(self) -> no_grad:
    self.before.append(mode.grad)
    mode.grad = False
    return self
  def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
    mode.grad = self.before.pop()
  def __call__(self, fn: F) -> F:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
      with no_grad(): return fn(*args, **kwargs)
    return call  # type: ignore[return-value]


class Base:
  """What a tensor holds.

  ``lazydata`` is the node of the tensor graph whose value this tensor is. ``grad`` is the gradient that ``backward`` left, or None.
  """
  __slots__ = ("lazydata", "grad", "_state", "__weakref__")
  lazydata: UOp
  grad: Any
  _state: int  # -1: never requires a gradient, 0: does not, 1: made from tensors that do, 2: a leaf that does

  # ---- how operations make results
  def _wrap(self, node: UOp) -> Self:
    """A result made from this tensor alone."""
    t = object.__new__(type(self))
    if self._state > 0:
      if mode.grad: t._state = 1
      else: node, t._state = graph.detach(node), 0
    else: t._state = 0
    t.lazydata, t.grad = node, None
    _add_live(ref(t, _drop_live))
    return t

  def _wrap_many(self, node: UOp, sources: Sequence[Base]) -> Self:
    """A result made from this tensor and others."""
    if self._state <= 0:
      for s in sources:
        if s._state > 0: return s._wrap(node)  # type: ignore[return-value]
    return self._wrap(node)

  @classmethod
  def _from_node(cls, node: UOp) -> Self:
    t = object.__new__(cls)
    t.lazydata, t.grad, t._state = node, None, 0
    _add_live(ref(t, _drop_live))
    return t

  # ---- what it is
  @property
  def dtype(self) -> DType:
    """The element type."""
    return self.lazydata.dtype
  @property
  def shape(self) -> tuple[int, ...]:
    """The size of each dimension."""
    return self.lazydata.shape
  @property
  def ndim(self) -> int:
    """The number of dimensions."""
    return len(self.lazydata.shape)
  @property
  def device(self) -> str:
    """The canonical name of the device (the default device for constants)."""
    return self.lazydata.device or Device.DEFAULT

  @property
  def requires_grad(self) -> bool | None:
    """True: ``backward`` finds a gradient through it. Assigning True makes the tensor a leaf, whose ``grad`` is set.

    None where nothing was said (an optimizer turns it on), False where it was turned off. Raises GradientError for dtypes
    other than floats.
    """
    return True if self._state > 0 else (False if self._state < 0 else None)
  @requires_grad.setter
  def requires_grad(self, value: bool | None) -> None:
    if not value:
      if self._state == 1: self.lazydata = graph.detach(self.lazydata)
      self._state = 0 if value is None else -1
    elif self._state != 2 and not (self._state == 1):
      if self.lazydata.dtype.kind != "f":
        raise GradientError(f"requires_grad: a tensor of {self.dtype} has no gradient; cast it to a float dtype first")
      # equal computations are one node: a leaf gets memory of its own, so that two leaves that start equal stay two
      if not is_buffer_view(self.lazydata): self.lazydata = self._owned(self.lazydata)
      self._state = 2

  def requires_grad_(self, requires_grad: bool = True) -> Self:
    """Set ``requires_grad`` and give the tensor itself."""
    self.requires_grad = requires_grad
    return self

  @property
  def is_leaf(self) -> bool:
    """Whether ``backward`` sets ``grad`` here: ``requires_grad=True`` was set on it, it is not the result of an operation."""
    return self._state != 1

  def numel(self) -> int:
    """The number of elements."""
    n = 1
    for s in self.lazydata.shape: n *= s
    return n
  nelement = numel
  def element_size(self) -> int:
    """Bytes of one element."""
    return self.lazydata.dtype.itemsize
  def nbytes(self) -> int:
    """Bytes of all elements."""
    return self.numel() * self.lazydata.dtype.itemsize
  def dim(self) -> int:
    """The number of dimensions."""
    return len(self.lazydata.shape)
  def is_floating_point(self) -> bool:
    """Whether the dtype is a float."""
    return self.lazydata.dtype.kind == "f"
  def size(self, dim: int | None = None) -> Any:
    """The shape, or the size of one dimension. Raises AxisError."""
    return self.shape if dim is None else self.shape[axis_of("size", dim, self.ndim)]

  def __len__(self) -> int:
    if not self.shape: raise ShapeError("len: a tensor of shape () has no length; it needs at least one dimension")
    return self.shape[0]
  def __repr__(self) -> str:
    grad = "" if self._state <= 0 else ", requires_grad=True"
    return f"<Tensor {self.shape} {self.dtype} on {self.device}, {self.lazydata.op.name}{grad}>"
  __hash__ = object.__hash__
  def __bool__(self) -> bool:
    if self.numel() != 1:
      raise ShapeError(f"bool: a tensor of shape {self.shape} is not one truth value; "
                       "use .any() or .all(), or a tensor of one element")
    return bool(self.item())
  def __int__(self) -> int: return int(self.item())
  def __float__(self) -> float: return float(self.item())
  def __index__(self) -> int:
    if self.dtype.kind not in "iu": raise DTypeError(f"index: a tensor of {self.dtype} is no integer; cast it first")
    return int(self.item())

  # ---- moving values
  def detach(self) -> Self:
    """The same value; no gradient passes through it."""
    t = self._from_node(graph.detach(self.lazydata))
    return t
  def contiguous(self) -> Self:
    """The same value, realised in memory of its own when it is realised."""
    return self._wrap(graph.contiguous(self.lazydata))
  def contiguous_backward(self) -> Self:
    """The same value (a hint in tinygrad; nothing here)."""
    return self
  def clone(self) -> Self:
    """A copy in memory of its own; gradients pass."""
    return self._wrap(self._owned(self.lazydata))
  def _owned(self, value: UOp) -> UOp:
    from ntgrad.engine.buffer import Buffer
    return graph.assign(graph.buffer(Buffer(value.device or Device.DEFAULT, value.shape, value.dtype)), value)

  def to(self, device: str | None) -> Self:
    """The same value on a device (None: the default one). Raises DeviceError for an unknown name."""
    name = Device.canonicalize(device)
    return self if (self.lazydata.device or Device.DEFAULT) == name else self._wrap(graph.copy(self.lazydata, name))
  def to_(self, device: str | None) -> Self:
    """Move this tensor itself to a device. Raises DeviceError for an unknown name."""
    moved = self.to(device).lazydata
    if moved is not self.lazydata:
      if self._state == 2: moved = self._owned(moved)
      self._become(moved)
    return self

  def _become(self, node: UOp) -> None:
    """Take another node of the same value (realised memory); a result that needs a gradient remembers the graph it came from."""
    old = self.lazydata
    if node is old: return
    if self._state == 1 and "origin" not in node.__dict__: node.__dict__["origin"] = _unlinked(old)
    self.lazydata = node

  def realize(self, *others: Any) -> Self:
    """Compute this tensor (and the others) now; its value is memory afterwards. Gives the tensor itself."""
    tensors = [t for t in (self, *others) if not is_memory(t.lazydata)]
    if tensors:
      from ntgrad.engine.realize import realize
      realize(tensors)
    return self

  def assign(self, x: Any) -> Self:
    """Write x into this tensor's memory when realised; from now on the tensor is the new value. Gives the tensor itself.

    A tensor that is no memory yet, and no view of another, gets memory of its own, and so does one over another library's memory that is
    read-only; other memory of other libraries is written. Raises AssignError where the shape, dtype or
    device is another, or the tensor is a view of something that is not in memory.
    """
    u = self.lazydata
    if u.op is Ops.DETACH: u = u.src[0]
    make: Any = type(self)
    v: UOp = x.lazydata if isinstance(x, Base) else make(x, dtype=u.dtype, device=u.device).expand(u.shape).lazydata
    if v is u: return self
    if v.shape != u.shape:
      raise AssignError(f"assign: a value of shape {v.shape} does not fit a tensor of shape {u.shape}; give that shape")
    if v.dtype is not u.dtype:
      raise AssignError(f"assign: a value of {v.dtype} does not fit a tensor of {u.dtype}; cast it first")
    if v.device is not None and u.device is not None and v.device != u.device:
      raise AssignError(f"assign: the value is on {v.device}, the tensor on {u.device}; move it with .to({u.device!r})")
    if isinstance(x, Base) and x._state > 0:
      if mode.grad and self._state == 2:
        raise GradientError("assign: a leaf that requires a gradient is assigned a value that does too; "
                                                             "use no_grad() or .detach() the value")
      if mode.grad: self._state = 1
      else: v = graph.detach(v)
    base = u
    while base.op in MOVEMENT: base = base.src[0]
    if u.op is Ops.ASSIGN:
      # memory that nothing was written to yet stays the pending value's; the new one gets its own (and may not need the pending one)
      if u.src[0].op is Ops.BUFFER and not u.src[0].arg.allocated: return self._set_assigned(self._owned(v))
      target = u  # after what is pending
    elif base.op is Ops.BUFFER:
      if base.arg.storage.read_only:
        if u is base: return self._set_assigned(self._owned(v))
        raise AssignError(f"assign: a view of shape {u.shape} of another library's memory, which is read-only; assign to a .clone() of it")
      target = u
    elif base.op is Ops.CONST or u is base: return self._set_assigned(self._owned(v))
    else:
      raise AssignError(f"assign: the tensor is a view of a value that is not in memory ({base.op}); realize() that value first")
    return self._set_assigned(graph.assign(target, v))

  def _set_assigned(self, node: UOp) -> Self:
    self.lazydata = node
    return self

  def replace(self, x: Base) -> Self:
    """Take another tensor's value (not its memory's place): same shape and dtype. Raises AssignError."""
    if x.shape != self.shape or x.dtype is not self.dtype:
      raise AssignError(f"replace: {x.dtype} of shape {x.shape} in place of {self.dtype} of shape {self.shape}; "
                        "they must be the same")
    self.lazydata = self._owned(x.lazydata) if self._state == 2 and not is_buffer_view(x.lazydata) else x.lazydata
    return self

  # ---- values on the host
  def numpy(self) -> np.ndarray[Any, Any]:
    """The value as a fresh numpy array of the same shape and dtype; computes it if need be."""
    u = self.lazydata
    if not is_host_view(u):
      self.realize()
      u = self.lazydata
      if not is_host_view(u):  # a small part of a large buffer: gather it there, copy only that
        t = self._from_node(UOp(Ops.CONTIGUOUS, u.dtype, (u,)))
        u = t.realize().lazydata
    return host_view(u)

  def data(self) -> memoryview:
    """The value's memory as a memoryview."""
    return np.ascontiguousarray(self.numpy()).data
  def tolist(self) -> Any:
    """The value as nested lists of Python numbers."""
    a = self.numpy()
    return a.astype(np.float32).tolist() if self.dtype.kind == "f" and self.dtype.itemsize < 4 else a.tolist()
  def item(self) -> Any:
    """The value of a one-element tensor as a Python number. Raises ShapeError for more or fewer elements."""
    if self.numel() != 1:
      raise ShapeError(f"item: a tensor of shape {self.shape} is not one number; item takes a tensor of one element")
    value = self.numpy().reshape(()).item()
    return value


def is_buffer_view(u: UOp) -> bool:
  """Whether a node is memory, or a movement view of memory."""
  while u.op in MOVEMENT: u = u.src[0]
  return u.op is Ops.BUFFER


def _unlinked(u: UOp) -> UOp:
  """The graph of a realised value without the link from it to its memory, which would be a circle: memory that only a collection frees."""
  chain = []
  v = u
  while "_realized" not in v.__dict__:
    if v.op not in MOVEMENT: return u
    chain.append(v)
    v = v.src[0]
  v = _apart(v, v.src)
  for m in reversed(chain): v = _apart(m, (v,))
  return v


def _apart(u: UOp, src: tuple[UOp, ...]) -> UOp:
  v = UOp.fresh(u.op, u.dtype, src, u.arg)
  v.__dict__["shape"], v.__dict__["device"] = u.shape, u.device
  return v


def is_memory(u: UOp) -> bool:
  """Whether a node is memory seen through movement and DETACH: there is nothing to compute."""
  while u.op in MOVEMENT or u.op is Ops.DETACH: u = u.src[0]
  return u.op is Ops.BUFFER


_HOST = frozenset({Ops.DETACH, Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.SHRINK, Ops.FLIP})


def is_host_view(u: UOp) -> bool:
  """Whether a node is a constant, or a plain view of memory that is small or mostly used: its value is found on the host."""
  size = 1
  for s in u.shape: size *= s
  while u.op in _HOST: u = u.src[0]
  return u.op is Ops.CONST or (u.op is Ops.BUFFER and (u.arg.size <= 4 * size or u.arg.nbytes <= 65536))


def host_view(u: UOp) -> np.ndarray[Any, Any]:
  """The value of a node for which ``is_host_view`` holds."""
  chain = []
  while u.op in _HOST:
    chain.append(u)
    u = u.src[0]
  a = np.array(u.arg, u.dtype.np) if u.op is Ops.CONST else u.arg.numpy()
  for n in reversed(chain):
    if n.op is Ops.RESHAPE: a = a.reshape(n.arg)
    elif n.op is Ops.PERMUTE: a = a.transpose(n.arg)
    elif n.op is Ops.EXPAND: a = np.broadcast_to(a, n.arg)
    elif n.op is Ops.SHRINK: a = a[tuple([slice(b, e) for b, e in n.arg])]
    elif n.op is Ops.FLIP: a = np.flip(a, n.arg)
  return np.array(a, order="C") if chain or u.op is Ops.CONST else a


def axis_of(name: str, axis: Any, ndim: int) -> int:
  """An axis as a number from 0; negative ones count from the end. Raises AxisError."""
  if type(axis) is int and 0 <= axis < ndim: return axis
  if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
    raise AxisError(f"{name}: axis {axis!r} is no integer")
  if not -max(ndim, 1) <= axis < max(ndim, 1):
    raise AxisError(f"{name}: axis {axis} of a tensor with {ndim} dimensions; axes go from {-max(ndim, 1)} to {max(ndim, 1) - 1}")
  return int(axis) % max(ndim, 1)


def axes_of(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
  """An axis, several, or None for all, as sorted numbers from 0. Raises AxisError (also for one given twice)."""
  if axis is None: return tuple(range(ndim))
  if not isinstance(axis, (tuple, list)): return (axis_of(name, axis, ndim),) if ndim else (axis_of(name, axis, ndim), )[:0]
  axes = sorted([axis_of(name, a, ndim) for a in axis])
  if len(set(axes)) != len(axes): raise AxisError(f"{name}: axes {tuple(axis)} name one twice in a tensor with {ndim} dimensions")
  return tuple(axes) if ndim else ()


def shape_of(name: str, args: Sequence[Any]) -> tuple[int, ...]:
  """A shape given as one sequence or as separate ints. Raises ArgumentError for anything that is not an int."""
  shape = tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else tuple(args)
  for s in shape:
    if type(s) is not int:
      if all([isinstance(x, (int, np.integer)) and not isinstance(x, bool) for x in shape]): return tuple([int(x) for x in shape])
      raise ArgumentError(f"{name}: sizes must be ints, got {s!r} in {shape}")
  return shape


__all__ = ["Base", "live_tensors", "mode", "no_grad", "is_buffer_view", "axis_of", "axes_of", "shape_of"]
