"""``Tensor``: lazy tensor code. Operations build the graph of ``lazydata``; nothing runs until a value is needed.

The methods live in parts, most in a file of its own name: each derives from the parts whose methods it uses, ``Base`` (``core``)
beneath all. docs/architecture.md has a table, and tests/unit/test_tensor_parts.py holds it. This file has the constructor, what
other libraries see of a tensor, the gradients, and the operations of all parts that are written in place (``exp_``, ``tril_``).
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Self

from ntgrad.codegen.ir import MOVEMENT, DType, GradientError, InterchangeError, UOp, dtypes
from ntgrad.compat.public import explain, present
from ntgrad.core import Base
from ntgrad.engine.device import Device
from ntgrad.graph import checked, flag, mode, no_grad, nodes as graph, origins
from ntgrad.graph.hooks import Hook, RemovableHandle

from .activation import Activation
from .attention import Attention
from .autocasting import cast_methods
from .convolution import Convolution
from .creation import node_of
from .elementwise import Casts
from .hooks import Kept, register, retains
from .linalg import Linalg
from .losses import Losses
from .normalising import Normalising
from .products import Products
from .protocols import Protocols
from .resampling import Resampling


class _Modes(type):
  """Makes ``Tensor.training`` and ``Tensor.no_grad`` settings of the class."""
  def __dir__(cls) -> list[str]: return present(cls, super().__dir__())

  @property
  def no_grad(cls) -> type[no_grad]:
    """What ``with Tensor.no_grad(): ..`` and ``@Tensor.no_grad()`` call; true where results require no gradients in this thread.
    ``Tensor.no_grad = True`` has that from here on."""
    return no_grad
  @no_grad.setter
  def no_grad(cls, value: bool) -> None: mode.grad = not flag("Tensor.no_grad", value)

  @property
  def training(cls) -> bool:
    """Whether dropout drops and batch norms take the batch's statistics, in this thread (or asyncio task); a new thread begins
    without."""
    return mode.training
  @training.setter
  def training(cls, value: bool) -> None: mode.training = flag("Tensor.training", value)


@checked
class train:
  """``with Tensor.train(): ...``: layers behave as in training (``Tensor.train(False)``: as in use)."""
  def __init__(self, value: bool = True) -> None: self.value, self.before = value, mode.training
  def __enter__(self) -> train:
    self.before, mode.training = mode.training, self.value
    return self
  def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
    mode.training = self.before
  def __call__(self, fn: Any) -> Any:
    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
      with train(self.value): return fn(*args, **kwargs)
    return call


class _Written:
  """Operations whose results are written to their tensor, by the names that it is assigned to: ``exp_`` is ``exp`` in place, with
  the same parameters."""
  def __set_name__(self, owner: type, name: str) -> None:
    of = name[:-1]
    @wraps(getattr(owner, of))
    def call(self: Any, *args: Any, **kwargs: Any) -> Any: return self._in_place(name, lambda: getattr(self, of)(*args, **kwargs))
    call.__name__, call.__qualname__, call.__doc__ = name, f"Writing.{name}", f"``{of}``, written in place; see ``add_``."
    setattr(owner, name, call)


_written: Any = _Written()


class Writing(Activation, Products):
  """Operations written in place. Each raises what the operation raises, and ShapeError, DTypeError, AssignError and
  GradientError as ``add_`` does."""
  __slots__ = ()

  def zero_(self) -> Self:
    """Zeros, written in place; see ``add_``."""
    return self.fill_(0)
  def fill_(self, value: Any) -> Self:
    """A number (or a tensor of one element) everywhere, written in place; see ``add_``."""
    t: Any = value if isinstance(value, Base) else type(self)(value, dtype=self.dtype)
    return self._in_place("fill_", lambda: t.reshape(()).expand(self.shape))
  def detach_(self) -> Self:
    """No gradient passes through this tensor itself from now on; a leaf is none any more."""
    self.requires_grad = None
    return self
  @checked
  def copy_(self, x: Any) -> Self:
    """``x``, broadcast to this shape, cast to this dtype and moved to this device, written in place; see ``add_``."""
    t: Any = x if isinstance(x, Base) else type(self)(x)
    return self._in_place("copy_", lambda: t.to(self.device).cast(self.dtype).expand(self.shape))

  abs_ = acos_ = acosh_ = addcdiv_ = addcmul_ = addmm_ = asin_ = asinh_ = atan_ = atan2_ = atanh_ = baddbmm_ = _written
  bitwise_and_ = bitwise_not_ = bitwise_or_ = bitwise_xor_ = ceil_ = clamp_ = clamp_max_ = clamp_min_ = clip_ = _written
  copysign_ = cos_ = cosh_ = cumprod_ = cumsum_ = deg2rad_ = digamma_ = erf_ = erfc_ = erfinv_ = exp_ = exp2_ = _written
  expm1_ = floor_ = floor_divide_ = fmod_ = frac_ = gcd_ = hypot_ = lcm_ = lerp_ = lgamma_ = log_ = log10_ = log1p_ = _written
  log2_ = logical_and_ = logical_not_ = logical_or_ = logical_xor_ = logit_ = masked_fill_ = nan_to_num_ = neg_ = _written
  pow_ = rad2deg_ = reciprocal_ = relu_ = remainder_ = round_ = rsqrt_ = sigmoid_ = sign_ = sin_ = sinc_ = sinh_ = _written
  sqrt_ = square_ = tan_ = tanh_ = threshold_ = tril_ = triu_ = trunc_ = xlogy_ = _written


@checked
class Tensor(Protocols, Writing, Resampling, Attention, Losses, Linalg, Convolution, Normalising, Casts, metaclass=_Modes):
  """A lazy tensor made from a number, nested lists, a numpy array, bytes, a UOp, another Tensor, or another library's tensor.

  Views (indexing, reshape, permute, ..) share its memory, and see and make its writes; everything else is a tensor of its own
  (docs/memory.md).

  ``dtype`` None keeps numpy's dtype; lists and numbers give bool, int32 or float32. Bytes are uint8, or the bits of a dtype that
  is given. ``device`` None is the default one. A tensor of another library (PyTorch, CuPy, JAX: whatever has DLPack or
  ``__cuda_array_interface__``) on a GPU stays there and shares its memory, see :meth:`from_dlpack`; one in memory of the host is
  copied, as a numpy array is. ``requires_grad=True`` makes it a leaf whose ``grad`` ``backward`` sets. Raises ShapeError for
  ragged lists, DTypeError for data or dtypes that ntgrad does not have, DeviceError, ArgumentError for ints that do not fit the
  dtype. ``Tensor(2, 3)``, two sizes or more, is memory that is not initialised, as PyTorch has it; ``Tensor(2)`` is 2."""
  __slots__ = ()
  train: ClassVar[type[train]] = train
  def __dir__(self) -> list[str]: return present(type(self), super().__dir__())

  def __init__(self, data: Any = None, device: str | int | None = None, dtype: DType | str | None = None,
               requires_grad: bool | None = None):
    if isinstance(device, int):
      data = self.empty(*[n for n in (data, device, dtype, requires_grad) if n is not None])
      device = dtype = requires_grad = None
    d = dtype if dtype is None or isinstance(dtype, DType) else dtypes.of(dtype)
    node = node_of(data, None if device is None else Device._located(device), d)
    state = 0
    if isinstance(data, Tensor) and data._state > 0:
      if requires_grad is None and mode.grad: state = 1
      else: node = graph.detach(node)
    if node.op in MOVEMENT and not isinstance(data, (Tensor, UOp, bool, int, float)): self._hold_memory(node)  # another library's
    else:
      origins.note_origin(node)
      self._hold(node, state)
    if isinstance(data, Tensor): self._names = data._names
    self._made_leaf(requires_grad)

  @classmethod
  def from_dlpack(cls, x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Another library's tensor, a numpy array or a DLPack capsule as a Tensor of its shape and dtype, over the same memory where
    that can be.

    Memory of a GPU stays on that GPU (``CUDA``, ``CUDA:1``, ..); memory of the host comes to ``device`` (None: the default one)
    and is shared where that is the CPU. Shared is what is contiguous or a view with slices, steps, transposes and broadcasts, and
    lies at a multiple of 16 bytes (64 on the host); else, or with ``copy=True``, values are copied. The memory is kept as long as
    tensors need it. On a GPU, what is computed from the Tensor comes after what the other library has launched.

    Shared memory is one value for both: ``assign`` and optimizers write into it (not where it is read-only, as JAX's: then they
    give the Tensor memory of its own), and what the other library writes later is seen by whatever is computed after that, in no
    order unless both synchronise (``Device.synchronize()``).

    Raises InterchangeError where ``copy=False`` rules out what would be needed or memory is not given, DTypeError, DeviceError,
    and CaptureError while a jit records."""
    from ntgrad.engine import interchange
    name = None if device is None else Device._located(device)
    if isinstance(x, Tensor):
      if name is None or name == x.device: return x.detach().clone() if copy else x.detach()
      if copy is False: raise InterchangeError(f"from_dlpack: a Tensor on {x.device} for {name}, with copy=False")
      return x.detach().to(name)
    if not interchange.speaks(x):
      raise InterchangeError(f"from_dlpack: {type(x).__name__} has neither __dlpack__ nor __cuda_array_interface__")
    node = interchange.adopt(interchange.take(x), name, copy)
    t = object.__new__(cls)._hold_memory(node)
    if name is None or node.device == name: return t
    if copy is False: raise InterchangeError(f"from_dlpack: a tensor on {node.device} for {name}, with copy=False")
    return t.to(name)

  def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                 dl_device: tuple[Any, int] | None = None, copy: bool | None = None) -> Any:
    """A DLPack capsule over this tensor's memory, computed if need be: for ``torch.from_dlpack(t)``, ``numpy.from_dlpack(t)`` and
    the like.

    The consumer's ``stream`` comes after everything launched here. The memory is the tensor's own (reshapes, transposes and
    slices of memory included), and kept until the consumer lets go of it: both see what the other writes. Copies are made of
    other views, of memory without an address (OpenCL devices other than PoCL), for ``copy=True``, and for ``dl_device=(1, 0)``,
    the host. Gradients do not pass. Raises InterchangeError where ``copy=False`` rules that out, CaptureError while a jit
    records."""
    from ntgrad.engine import interchange
    return interchange.capsule(self, stream, max_version, dl_device, copy)

  def __dlpack_device__(self) -> tuple[int, int]:
    """DLPack's device type and number of the memory: (1, 0) the host, (2, n) CUDA:n."""
    from ntgrad.engine import interchange
    return interchange.place_for(self)

  @property
  def __cuda_array_interface__(self) -> dict[str, Any]:
    """Version 3 of the interface, with the stream that a consumer has to wait for; for tensors on CUDA only. See ``__dlpack__``.
    Raises NoInterfaceError (an AttributeError) for other devices, and for dtypes that numpy has not."""
    from ntgrad.engine import interchange
    return interchange.cuda_array(self)

  @property
  def grad_fn(self) -> UOp | None:
    """What made a tensor that gradients go through: its node of the graph; None for a leaf, and for one without gradients."""
    return self.lazydata if self._state == 1 else None

  def backward(self, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False,
               inputs: Tensor | Sequence[Tensor] | None = None) -> Tensor:
    """Add the gradient of this tensor (one element, or with ``gradient`` given, which broadcasts) to ``grad`` of every leaf
    beneath it, or of the leaves ``inputs`` alone. With ``create_graph`` it has a gradient itself. The graph stays as long as a
    tensor holds it, whatever ``retain_graph`` says: it may be gone through again. Raises GradientError where there is no graph
    to a leaf, or the tensor has several elements and no gradient is given."""
    from .gradient import backward
    backward(self, gradient, [inputs] if isinstance(inputs, Tensor) else inputs, create_graph)
    return self

  def gradient(self, *targets: Tensor, gradient: Tensor | None = None) -> list[Tensor]:
    """The gradients of this tensor with respect to the targets, zeros for one that it is not made of; nothing is stored.
    ``gradient`` is as for ``backward``. A target that requires no gradient is found by its expression: equal ones are one,
    whose gradient is that of all; a number (``Tensor(2.0)``, ``Tensor.ones(3)``) is refused then. Raises GradientError."""
    from .gradient import gradient as find
    return [t.zeros_like() if g is None else g for t, g in zip(targets, find(self, targets, gradient, unused=True))]

  # ---- what is called for gradients
  def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
    """``hook(gradient)`` is called whenever the gradient of this tensor is found; a Tensor that it gives takes the gradient's
    place. ``remove()`` of what this gives ends that. In a captured function the hook runs when it is captured, and what it
    computes is part of every replay. Of equal expressions, which are computed once, the gradient is that of all. Raises
    GradientError for a tensor that requires no gradient."""
    return register(self, "register_hook", Hook("gradient", hook))

  def register_post_accumulate_grad_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
    """``hook(leaf)`` is called after each ``backward`` that has added to ``grad`` of this leaf; see :meth:`register_hook`. Raises
    GradientError for a tensor that is no leaf."""
    if self._state == 1:
      raise GradientError(f"register_post_accumulate_grad_hook: a tensor of shape {self.shape} is made of others and has no "
                          "grad; take a leaf, or register_hook")
    return register(self, "register_post_accumulate_grad_hook", Hook("accumulated", hook))

  def retain_grad(self) -> None:
    """``backward`` adds to ``grad`` of this tensor too, which is made of others; of a leaf it does so anyway. Raises
    GradientError for a tensor that requires no gradient."""
    if self._state != 2 and not retains(self): register(self, "retain_grad", Hook("kept", Kept(self)))

  @property
  def retains_grad(self) -> bool:
    """Whether ``retain_grad`` was called for this tensor, and it is no leaf."""
    return retains(self)


cast_methods(Tensor)
Base._class = Tensor
explain(Tensor, "Tensor")


class _Package(ModuleType):
  """This package, which can be called: programs written for other libraries make tensors by ``ntgrad.tensor(..)``."""
  def __call__(self, data: Any, dtype: DType | str | None = None, device: str | None = None,
               requires_grad: bool | None = None) -> Tensor:
    """A tensor of its own of the data; see :class:`Tensor` for what it takes and raises."""
    if isinstance(data, Tensor): data = data.detach().clone()
    return Tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


sys.modules[__name__].__class__ = _Package

__all__ = ["Tensor", "no_grad"]
