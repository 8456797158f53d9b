"""The bottom of ``Tensor``: what it holds, how operations make new ones, and values coming back to the host."""
from __future__ import annotations

import math
import sys
from functools import wraps
from types import CodeType
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Self, Sequence
from weakref import ref

import numpy as np

from ntgrad.backends.memory_pool import host_room
from ntgrad.codegen.ir import MOVEMENT, DType, Ops, UOp, can_cast, config, dtypes, toposort
from ntgrad.codegen.ir.errors import ArgumentError, AssignError, DTypeError, GradientError, ScalarError, ShapeError, shown
from ntgrad.engine.device import Device, DeviceName, device_name
from ntgrad.graph import BoundInt, dimension_names as dimensions, mode, nodes as graph, origins
from ntgrad.graph.alias import Alias, AliasView, Move, apply_view, next_look, repeats, results, write_watchers
from ntgrad.graph.change_counts import Stamped
from ntgrad.graph.checks import Valued, checked, of_kind, real_number, whole_number
from ntgrad.graph.dimension_names import Names, Places, axes_of, axis_of, checked_names, names_at, text
from ntgrad.graph.host_values import MAX_DIMS, host_view, is_host_view
from ntgrad.graph.modes import autocast

_frame, _internal, _inside, _own_lines = sys._getframe, origins.internal, origins.calling, origins.own_lines
_user: CodeType | None = None   # the user's code that made a tensor before
_MOVE: dict[Ops, Callable[[UOp, Any], UOp]] = {
  Ops.RESHAPE: graph.reshape, Ops.PERMUTE: graph.permute, Ops.EXPAND: graph.expand, Ops.SHRINK: graph.shrink,
  Ops.FLIP: graph.flip, Ops.TILE: graph.tile, Ops.DETACH: lambda u, _: graph.detach(u)}
_MERGE: dict[Ops, Callable[[Any, Any], Any]] = {   # the move before, this one -> both
  Ops.RESHAPE: lambda a, b: b, Ops.EXPAND: lambda a, b: b, Ops.PERMUTE: lambda a, b: tuple([a[i] for i in b]),
  Ops.SHRINK: lambda a, b: tuple([(begin + o, end + o) for (begin, end), (o, _) in zip(b, a)])}


class Leaf(ref[Any]):
  """The note of a node at which gradients stop: the leaf whose value it is."""
  __slots__ = ("hooks",)   # of a clone of it


class memory_format(str):
  """An order of dimensions in memory, such as ``ntgrad.channels_last``: it is taken where PyTorch takes one, and changes nothing,
  since kernels are made for what they read."""
  __slots__ = ()


class Size(int):
  """A tensor's number of elements; called, its shape or the size of one dimension."""
  tensor: Base

  def __new__(cls, tensor: Base) -> Size:
    out = super().__new__(cls, tensor.numel())
    out.tensor = tensor
    return out

  def __call__(self, dim: int | str | None = None) -> Any:
    t = self.tensor
    return t.shape if dim is None else t.shape[t._dim("size", dim)]


def casting(fn: Callable[..., Any], within: Callable[..., Any]) -> Callable[..., Any]:
  """A method that ``within`` calls where autocasting is on: ``within(fn, args, kwargs)``."""
  @wraps(fn)
  def call(*args: Any, **kwargs: Any) -> Any: return within(fn, args, kwargs) if autocast.get() else fn(*args, **kwargs)
  return call


@checked
class Base(Valued):
  """What a tensor holds: an Alias, which is the value that it shares with others, and the view of it that it shows.

  ``lazydata`` is the node of the tensor graph whose value this tensor is. ``grad`` is the gradient that ``backward`` left, or
  None. ``names`` are the names of its dimensions (docs/shapes.md).
  """
  __slots__ = "_alias", "_view", "_node", "grad", "_state", "_names", "__weakref__"
  _alias: Alias
  _view: AliasView
  _node: UOp | None   # what the view shows of the newest version; None: not known since that changed
  grad: Any
  _state: int  # -1: never requires a gradient, 0: does not, 1: made from tensors that do, 2: a leaf that does
  _names: Names | None   # a name or None for each dimension; None: none has one
  _class: ClassVar[type[Base]]   # Tensor, which is made of parts that stand above this
  _plain: ClassVar[type[Base]]   # what results are: the class itself, but for what ``data`` gives

  if TYPE_CHECKING:   # as Tensor has it
    def __init__(self, data: Any = None, device: str | None = None, dtype: Any = None, requires_grad: bool | None = None): ...

  def __init_subclass__(cls, **kwargs: Any) -> None:
    super().__init_subclass__(**kwargs)
    if "_plain" not in vars(cls): cls._plain = cls

  @property
  def lazydata(self) -> UOp:
    """The node of the tensor graph whose value this tensor is now."""
    n = self._node
    return n if n is not None else self._read()

  def _read(self) -> UOp:
    """Find the node of the newest version."""
    base, view = self._alias.node, self._view
    if self._state == 2:   # gradients stop here, and no other tensor has the same node
      node = graph.stand_in(apply_view(base, view))
      node.note = Leaf(self)
    else:
      if self._state == 1 and (t := self._leaf()) is not None: base, view = t.lazydata, view[len(t._view):]
      node = apply_view(base, view)
    self._node = node
    return node

  def _leaf(self) -> Base | None:
    """The leaf that it shows a part of."""
    return next((t for t in self._alias.seen() if t._state == 2 and self._view[:len(t._view)] == t._view), None)

  # ---- how operations make results
  def _hold(self, node: UOp, state: int) -> Self:
    """Be a tensor of its own, with a value."""
    self._alias = a = Alias(node)
    self._view, self._node, self.grad, self._state, self._names = (), node, None, state, None
    a.tensors[ref(self, a.tensors.pop)] = None
    return self

  def _wrap(self, node: UOp, depth: int = 2, sources: Sequence[Base] = ()) -> Self:
    """A result made from this tensor (and ``sources``): a tensor of its own. One of as many dimensions has this tensor's names,
    one of another number none; whoever moves dimensions sets ``_names`` afterwards. The user's call is ``depth`` above or
    more."""
    global _user
    t: Any = object.__new__(self._plain)
    line = None
    if config.origins:   # as ``origins.origin_now`` finds it, without a call
      f: Any = _frame(depth)
      if (code := f.f_code) is not _user:   # one look tells, where a function makes one tensor after the other
        try:
          while _internal[code.co_filename]: code = (f := f.f_back).f_code
        except (KeyError, AttributeError): code = (f := origins.user_frame()).f_code   # a file that was not seen before
        _user = code
      line = code, f.f_lasti, _inside.path
      if node.origin is None: node.origin = line
    if self._state <= 0: t._hold(node, 0)
    elif mode.grad: t._hold(node, 1)
    else: t._hold(graph.detach(node), 0)
    if self._names is not None and len(self._names) == len(node.shape): t._names = self._names
    if line is not None and (node.origin is not line or _own_lines):
      origins.note_value(node, line, t._alias, (self, *sources))
    results[0] += 1
    return t if results[0] < next_look[0] else t._cut()

  def _counted(self) -> Self:
    """This tensor, a result that no ``_wrap`` has made."""
    results[0] += 1
    return self if results[0] < next_look[0] else self._cut()

  def _cut(self) -> Self:
    """Many tensors have been made without a value being asked for: compute this one, if that is what it is made of."""
    from ntgrad.engine.realize import cut
    cut(self)
    return self

  def _called(self, names: Names | None) -> Self:
    """This tensor, which is new, with names."""
    self._names = names
    return self

  def _wrap_many(self, node: UOp, sources: Sequence[Base], names: Names | None = None) -> Self:
    """A result made from this tensor and others, with the names that its maker found (``merged``)."""
    source: Any = self
    if self._state <= 0:
      for s in sources:
        if s._state > 0:
          source = s
          break
    return source._wrap(node, 3, (self, *sources))._called(names)

  def _own(self) -> Self:
    """The same value as a tensor of its own. Nothing is copied until one of the two is written."""
    return self._wrap(self.lazydata)

  def _seen(self, *moves: Move, dims: Places | None = None) -> Self:
    """A view of this tensor: one move after the other. A move of the same kind as the last one becomes one with it. ``dims`` is
    for names, where sizes do not say it: of each dimension of the view, which one of this tensor it is (None: a new one)."""
    node, view, called = self.lazydata, self._view, self._names
    if called is not None: called = dimensions.moved_names(called, node.shape, moves) if dims is None else names_at(called, dims)
    for op, arg in moves:
      # gradients may be asked for at each node of those that need them
      if view and view[-1][0] is op and self._state <= 0 and op in _MERGE:
        node, arg = node.src[0], _MERGE[op](view[-1][1], arg)
        view = view[:-1]
      after = _MOVE[op](node, arg)
      if after is not node or op is Ops.DETACH: node, view = after, (*view, (op, after.arg))
    if view is self._view and self._state <= 0 and called == self._names: return self
    return self._shown(node, view, self._state > 0 and moves[-1][0] is not Ops.DETACH, called)

  def _shown(self, node: UOp, view: AliasView, attached: bool, called: Names | None) -> Self:
    """A view of the same Alias: its node, whether gradients pass, its names."""
    if attached and not mode.grad: node, view, attached = graph.detach(node), (*view, (Ops.DETACH, None)), False
    t: Any = object.__new__(self._plain)
    t._alias, t._view, t._node, t.grad, t._state, t._names = self._alias, view, node, None, 1 if attached else 0, called
    tensors = t._alias.tensors
    tensors[ref(t, tensors.pop)] = None
    return t

  def _of_alias(self, alias: Alias, names: Names | None) -> Self:
    """A tensor that sees all of an Alias, without gradient."""
    t: Any = object.__new__(self._plain)
    t._alias, t._view, t._node, t.grad, t._state, t._names = alias, (), alias.node, None, 0, names
    alias.tensors[ref(t, alias.tensors.pop)] = None
    return t

  def _rehome(self, alias: Alias, view: AliasView) -> None:
    """See another Alias from now on."""
    for r in list(self._alias.tensors):
      if r() is self: del self._alias.tensors[r]
    self._alias, self._view, self._node = alias, view, None
    alias.tensors[ref(self, alias.tensors.pop)] = None

  @classmethod
  def _from_node(cls, node: UOp) -> Self:
    """A tensor with the value of a node: of this class, or for Base itself a Tensor."""
    made: Any = object.__new__(cls._plain if cls is not Base else Base._class)
    return made._hold(origins.note_origin(node), 0)

  def _hold_memory(self, node: UOp) -> Self:
    """Be a view of memory that nobody else has yet: what ``node`` shows of a BUFFER."""
    view: list[Move] = []
    base = node
    while base.op in MOVEMENT:
      view.append((base.op, base.arg))
      base = base.src[0]
    self._hold(base, 0)
    if view: self._view, self._node = tuple(view[::-1]), node
    return self

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
  def device(self) -> DeviceName:
    """The canonical name of the device (the default device for constants), a str with a ``type`` and an ``index``."""
    return device_name(self.lazydata.device or Device.DEFAULT)

  @property
  def requires_grad(self) -> bool | None:
    """True: ``backward`` finds a gradient through it. Assigning True makes the tensor a leaf, whose ``grad`` is set. None where
    nothing was said (an optimizer turns it on), False where it was turned off. Raises GradientError for dtypes other than
    floats."""
    return True if self._state > 0 else False if self._state < 0 else None
  @requires_grad.setter
  def requires_grad(self, value: bool | None) -> None:
    if value is not None and not isinstance(value, (bool, np.bool_)):
      raise ArgumentError(f"requires_grad is {shown(value)}; it takes True, False or None")
    Stamped.changes += 1
    if not value:
      if self._state == 1: self._view = *self._view, (Ops.DETACH, None)
      self._state, self._node = 0 if value is None else -1, None
    elif self._state <= 0:
      if self.lazydata.dtype.kind != "f":
        raise GradientError(f"requires_grad: a tensor of {self.dtype} has no gradient; cast it to a float dtype first")
      self._state, self._node = 2, None

  def requires_grad_(self, requires_grad: bool = True) -> Self:
    """Set ``requires_grad`` and give the tensor itself."""
    self.requires_grad = requires_grad
    return self

  @property
  def is_param(self) -> bool:
    """Whether an optimizer that is given this tensor trains it: True but where ``requires_grad`` is False."""
    return self._state >= 0
  def is_param_(self, is_param: bool = True) -> Self:
    """Say whether optimizers train this tensor, by tinygrad's name for ``requires_grad_``; the result of an operation and a
    tensor of ints stay as they are. Gives the tensor itself."""
    if self._state != 1 and self.is_floating_point(): self.requires_grad = is_param
    return self

  @property
  def is_leaf(self) -> bool:
    """Whether ``backward`` sets ``grad`` here: ``requires_grad=True`` was set on it, it is not the result of an operation."""
    return self._state != 1

  def numel(self) -> int:
    """The number of elements."""
    return math.prod(self.lazydata.shape)
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
  @property
  def size(self) -> Size:
    """The number of elements, as numpy has it; called, as PyTorch has it, the shape (``x.size()``) or one dimension's size
    (``x.size(0)``, ``x.size("time")``; raises AxisError)."""
    return Size(self)

  # ---- names of dimensions
  @property
  def names(self) -> tuple[str | None, ...]:
    """The name of each dimension, None for one without. Assigning them names this tensor itself (a leaf, say), as ``named`` does
    a view of it; None takes them away."""
    return (None,) * len(self.lazydata.shape) if self._names is None else self._names
  @names.setter
  def names(self, value: Sequence[str | None] | None) -> None:
    if value is not None and not isinstance(value, (tuple, list)):
      raise ArgumentError(f"names: {shown(value)}; it takes a tuple with a name or None for each dimension, or None")
    self._names = None if value is None else checked_names("names", tuple(value), self.shape)

  def named(self, *names: str | None) -> Self:
    """A view of this tensor whose dimensions have these names, one for each: ``x.named("batch", None, "channels")``; without
    arguments a view without names.

    Names follow through operations, stand for axes (``x.sum("batch")``), and are checked where tensors meet: see "Names of
    dimensions" in docs/shapes.md. Raises ShapeError for another number of names, ArgumentError for one that is no identifier or
    stands twice.
    """
    return self._shown(self.lazydata, self._view, self._state > 0, checked_names("named", names, self.shape) if names else None)

  def __len__(self) -> int:
    if not self.shape: raise ScalarError("len: a tensor of shape () has no length; it needs at least one dimension")
    return self.shape[0]
  __hash__ = object.__hash__
  def __bool__(self) -> bool:
    if self.numel() != 1:
      raise ShapeError(f"bool: a tensor of shape {self.shape} is not one truth value; "
                       "use .any() or .all(), or a tensor of one element")
    return bool(self.item())
  def __int__(self) -> int:
    value = self.item()
    if value - value != 0: raise ArgumentError(f"int: {value} is no whole number, nor near one")   # nan, inf
    return int(value)
  def __float__(self) -> float: return float(self.item())
  def __index__(self) -> int:
    if self.dtype.kind not in "iu": raise DTypeError(f"index: a tensor of {self.dtype} is no integer; cast it first")
    return int(self.item())

  # ---- moving values
  def detach(self) -> Self:
    """The same memory; no gradient passes through it."""
    return self._seen((Ops.DETACH, None))
  def contiguous(self, memory_format: memory_format | None = None) -> Self:
    """The same value as a tensor of its own, realised in one piece when it is realised; ``memory_format`` has no effect."""
    return self._wrap(graph.contiguous(self.lazydata))
  def contiguous_backward(self) -> Self:
    """The same value (a hint in tinygrad; nothing here)."""
    return self._own()
  def clone(self, device: str | None = None, *, memory_format: memory_format | None = None) -> Self:
    """The same value as a tensor of its own (memory is copied when one of the two is written), on a device, or where it is;
    gradients pass. ``memory_format`` has no effect. Raises DeviceError."""
    return self._own() if device is None else self.to(device)

  def to(self, *where: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False, copy: bool = True,
         memory_format: memory_format | None = None) -> Self:
    """The same value as a tensor of its own on a device, in a dtype, or both: ``x.to("CUDA")``, ``x.to("float16")``,
    ``x.to("CPU", dtypes.int32)``; those of another tensor for ``x.to(y)``. ``None`` is the default device. ``non_blocking``,
    ``copy`` and ``memory_format`` are taken as PyTorch has them, without effect.

    Raises DeviceError for what is neither a device nor a dtype.
    """
    places, kind = [] if device is None else [device], None if dtype is None else dtypes.of(dtype)
    for x in where:
      if isinstance(x, Base): places, kind = [*places, x.device], x.dtype
      elif x is not None and (named := dtypes.find(x)) is not None: kind = named
      else: places.append(x)
    t = self if kind is None or kind is self.dtype else self._wrap(graph.cast(self.lazydata, kind))
    here = self.lazydata.device or Device.DEFAULT
    name = Device._located(places[-1] if places else None) if places or kind is None else here
    if name != here: return t._wrap(graph.copy(t.lazydata, name))
    return t._own() if t is self else t
  def to_(self, device: str | None) -> Self:
    """Move this tensor itself to a device; its views stay where they are. Raises DeviceError for an unknown name."""
    if Device._located(device) == self.device: return self
    self._rehome(Alias(self.to(device).lazydata), ())
    return self

  def realize(self, *others: Any) -> Self:
    """Compute this tensor (and the others) now; its value is memory afterwards. Gives the tensor itself. Raises ArgumentError."""
    try: tensors = [t for t in (self, *others) if t._alias.memory is None or t._alias.pending]
    except AttributeError:
      wrong = next(t for t in (self, *others) if not isinstance(t, Base))
      raise ArgumentError(f"realize: {shown(wrong)} is no Tensor; it takes Tensors, one after the other") from None
    if tensors:
      from ntgrad.engine.realize import realize
      realize(tensors)
    return self

  # ---- writing
  def _write(self, name: str, value: UOp, attached: bool = False, index: UOp | None = None) -> Self:
    """Make ``value`` (of this dtype) what this tensor shows, or its rows ``index``, in the next version of what is shared."""
    alias, view, here = self._alias, self._view, self.lazydata.device
    self._check_writable(name)
    # a number has no device: it goes to the default one
    if value.device is None and here is not None and here != Device.DEFAULT: value = graph.copy(value, here)
    leaf = any([t._state == 2 for t in alias.seen()])
    constant = not mode.grad or (Ops.DETACH, None) in view   # for gradients
    needs = any([t._state == 1 for t in alias.seen()])
    if attached and leaf and not constant and config.all_leaves:
      if self._made_of_others(value):   # it is the result of an operation from here on
        for t in alias.seen(): t._state, t._node = min(t._state, 1), None
        leaf = False
      else: value, attached = graph.detach(value), False
    if attached and leaf and not constant:
      raise GradientError(f"{name}: a leaf that requires a gradient is assigned a value that does too; use no_grad() or "
                          ".detach() the value")
    if 0 in value.shape or (index is None and value is self.lazydata):   # nothing changes
      for note in write_watchers: note(alias)
      return self
    if attached and constant: value, attached = graph.detach(value), False
    before = alias.history if constant and needs and not leaf else None
    alias.put(view, value, index, name)
    if before is not None: alias.pass_on(before)
    for t in () if leaf else alias.seen():
      if (Ops.DETACH, None) not in t._view and (t._state >= 0 or attached): t._state = int(needs or attached)
    return self

  def _made_of_others(self, value: UOp) -> bool:
    """Whether gradients of a value go to leaves that do not share this tensor's memory."""
    made = toposort([value], lambda n: n.op is Ops.DETACH or n.op is Ops.OUTPUT and not n.src[0].arg.passes)
    return any([isinstance(n.note, Leaf) and (t := n.note()) is not None and t._alias is not self._alias for n in made])

  def _check_writable(self, name: str) -> None:
    if self._alias.packed is not None:
      raise AssignError(f"{name}: a tensor of shape {self.shape} whose value is unpacked from {self._alias.packed.numel()} bytes "
                        "cannot be written; write to a .clone(), which has its values")
    if repeats((*self._alias.beneath, *self._view)):
      raise AssignError(f"{name}: a tensor of shape {self.shape} that shows elements several times (expand, unfold) cannot be "
                        "written; write to what it shows, or to a .clone()")

  def _check_names(self, name: str, value: Base) -> None:
    """Raises ShapeError where a value that is written here has another name, or (if one has names) another size, at a
    dimension."""
    if self._names is value._names is None: return
    dimensions.fit_aligned(name, (self, value))
    if self._names is not None and value._names is not None: dimensions.aligned_names(name, (self, value))

  def _dim(self, name: str, dim: Any, to: str = "") -> int:
    """A dim as a number from 0; ``to`` says what is done with it that takes one. Raises AxisError."""
    n = self.ndim
    if type(dim) is int and -n <= dim < n: return dim % n
    return axis_of(name, dim, n, self._names, to)

  def _dims(self, name: str, dims: Any) -> tuple[int, ...]:
    """A dim, several, or None for all, as sorted numbers from 0. Raises AxisError."""
    return axes_of(name, dims, self.ndim, self._names)

  def _needs_floats(self, name: str) -> None:
    of_kind("f", name, "a tensor", self, "it takes floats (cast it first)")

  def _check_leaf(self, name: str) -> None:
    if mode.grad and self._state > 0 and not config.all_leaves and self._leaf() is not None:
      raise GradientError(f"{name}: a leaf that requires a gradient cannot be changed in place; use no_grad and assign, or "
                          ".detach() it")

  def assign(self, x: Any) -> Self:
    """Replace this tensor's value, and with it what all views of the same memory see. Gives the tensor itself.

    ``x`` is a tensor of this device, or what a tensor is made of; it is expanded to this shape, and cast within the category of
    its dtype, or to one above it. Memory is written when the value is realised; memory of another library that is read-only is
    left as it is, and the tensor gets its own. Raises AssignError for a shape that does not broadcast, a category above, another
    device and for expanded tensors, GradientError for a leaf given a value that requires a gradient, ShapeError for a name that
    stands at another dimension.
    """
    u = self.lazydata
    make: Any = type(self)
    v: UOp = x.lazydata if isinstance(x, Base) else make(x, dtype=u.dtype, device=u.device).expand(u.shape).lazydata
    self._check_writable("assign")
    if not graph.broadcasts(v.shape, u.shape):
      raise AssignError(f"assign: a value of shape {text(x)} does not fit a tensor of shape {text(self)}; give that shape")
    if isinstance(x, Base): self._check_names("assign", x)
    if not can_cast(v.dtype, u.dtype):
      raise AssignError(f"assign: a value of {v.dtype} does not fit a tensor of {u.dtype}; cast it first")
    if v.device is not None and u.device is not None and v.device != u.device:
      raise AssignError(f"assign: the value is on {v.device}, the tensor on {u.device}; move it with .to({u.device!r})")
    return self._write("assign", graph.broadcast(graph.cast(v, u.dtype), u.shape), isinstance(x, Base) and x._state > 0)

  def replace(self, x: Base) -> Self:
    """Take another tensor's value, with its dtype and device, and share no memory any more. Raises AssignError for another shape,
    GradientError where a leaf that requires a gradient would have a dtype without one."""
    if x.shape != self.shape: raise AssignError(f"replace: shape {x.shape} in place of {self.shape}; they must be the same")
    self._check_names("replace", x)
    if x.dtype.kind != "f" and self._state > 0:
      raise GradientError(f"replace: {x.dtype} in place of {self.dtype} that requires a gradient; detach() it first, or cast the "
                          "value to a float dtype")
    if x is not self: self._rehome(Alias(x.lazydata if self._state != 2 else graph.detach(x.lazydata)), ())
    return self

  # ---- values on the host
  def numpy(self) -> np.ndarray[Any, Any]:
    """The value as a fresh numpy array of the same shape and dtype; computes it if need be."""
    from ntgrad.engine.realize import rebased
    u = rebased(self.lazydata)
    if self._alias.pending or not is_host_view(u):
      self.realize()
      u = rebased(self.lazydata)
      if not is_host_view(u):  # a small part of a large buffer: gather it there, copy only that
        u = self._from_node(UOp(Ops.CONTIGUOUS, u.dtype, (u,))).realize().lazydata
    return host_view(u)

  def tolist(self) -> Any:
    """The value as nested lists of Python numbers."""
    host_room(self.numel() * (8 if self.dtype.kind == "b" else 40), "tolist")
    a = self.numpy()
    return a.astype(np.float32).tolist() if self.dtype.kind in "fe" and self.dtype.itemsize < 4 else a.tolist()
  def item(self) -> Any:
    """The value of a one-element tensor as a Python number. Raises ShapeError for more or fewer elements."""
    if self.numel() != 1:
      raise ShapeError(f"item: a tensor of shape {self.shape} is not one number; item takes a tensor of one element")
    return self.numpy().reshape(()).item()


MAX_SIZE = 2 ** 63 - 1


def shape_of(name: str, args: Sequence[Any], kept: Sequence[int] = ()) -> tuple[int, ...]:
  """A shape given as one sequence or as separate ints; None where ``kept`` has the size. Raises ArgumentError for what is no int,
  and for more than memory has room for."""
  shape = tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else tuple(args)
  for s in shape:
    if type(s) is not int and type(s) is not BoundInt:
      if s is None and kept: return shape_of(name, [kept[i] if s is None and i < len(kept) else s for i, s in enumerate(shape)])
      if not isinstance(s, (int, np.integer)) or isinstance(s, bool):
        raise ArgumentError(f"{name}: sizes must be ints, got {shown(s)} in {shown(shape)}")
      return shape_of(name, [int(x) if isinstance(x, np.integer) else x for x in shape])
    if s > MAX_SIZE: raise ArgumentError(f"{name}: a size of {shown(s)} in {shown(shape)}; sizes go up to {MAX_SIZE}")
  if len(shape) > MAX_DIMS:
    raise ArgumentError(f"{name}: a shape of {len(shape)} dimensions; tensors have up to {MAX_DIMS}, as arrays of numpy do")
  return shape


__all__ = ["MAX_DIMS", "MAX_SIZE", "Base", "mode", "shape_of", "whole_number", "real_number"]
