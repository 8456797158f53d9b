"""``Module``: what a model may inherit from, and all layers do. Nothing asks for it: any object that holds layers is a model.

A Module keeps no lists. Its parameters and Modules are found in its attributes, in lists and dicts among them, and in objects
that are no Modules, as ``nn.state.get_state_dict`` finds tensors. So attributes may be set at any time, in any way, and
``super().__init__()`` need not be called. A class that calls it is as PyTorch's are: it and the Modules that are given to it
begin in training, a plain tensor is no part of it, and cannot take a parameter's place.

**Training.** A Module may have a mode of its own: such a class begins with one, and ``train`` and ``eval`` give one to a Module
and all Modules in it. It counts for this Module, and, in the ``forward`` of a model, for whatever it calls that has none
(``x.dropout()``, plain objects). What has none (a layer that stands alone or in a plain class) behaves as ``Tensor.training``
(``with Tensor.train():``) says. ``train(None)`` takes the mode away again."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Self, TypeVar

from ntgrad.codegen.ir import ArgumentError, AssignError, DType, DTypeError, MissingNameError, dtypes, shown
from ntgrad.compat.public import explain, present
from ntgrad.core import memory_format
from ntgrad.engine.device import Device
from ntgrad.graph import Alias, behaving, checked, mode as current, nodes as graph
from ntgrad.graph.origins import say_once
from ntgrad.tensor import Tensor

from .common import is_dtype
from .hooks import Hooked
from .paths import within
from .tree import ModuleBase, is_buffer, tensors, walk

if TYPE_CHECKING:
  from .state.names import Unmatched

C = TypeVar("C", bound=type)
M = TypeVar("M", bound="Module")


def _to(name: str, where: str = "") -> Callable[[M], M]:
  """The method of a Module that is ``to(where)`` by another name."""
  def moved(self: Any) -> Any: return self.to(where or name)
  moved.__name__, moved.__qualname__, moved.__doc__ = name, f"Module.{name}", f"``to(\"{where or name}\")``."
  moved.__annotations__ = {"return": "Self"}
  return moved


@checked
class Module(Hooked):
  """A model or a layer: define ``forward`` (as in PyTorch) or ``__call__``; calling the Module calls it.
  Tensors in attributes are parameters, but for those that are registered as buffers or are of a dtype without gradients, and, in
  layers and classes that call ``super().__init__()``, those that are no ``nn.Parameter``."""
  _room: ClassVar[str] = "nn."                    # for messages
  _mode: bool | None = None
  _begun: bool = False                            # ``super().__init__()`` was called
  _passing: frozenset[str] = frozenset()          # of ``_buffers`` the ones that are not saved
  # attributes that are its own
  _private: ClassVar[frozenset[str]] = frozenset("_mode _begun _leaves _buffers _passing _hooks".split())

  def __dir__(self) -> list[str]: return present(type(self), super().__dir__())

  def __init__(self) -> None:
    """It is as PyTorch's from here on: see the head of ``nn/module.py``."""
    self._begun = self._leaves = self._mode = True
    _begin(list(vars(self).values()))

  def __setattr__(self, name: str, value: Any) -> None:
    old = self.__dict__.get(name)
    if isinstance(old, Tensor) and old._state == 2 and name not in self._buffers: self._displaces(name, value)
    if self._mode is not None: _begin(value)
    super().__setattr__(name, value)

  def _displaces(self, name: str, value: Any) -> None:
    """Raises AssignError for what cannot be a parameter where there is one; elsewhere a plain tensor becomes the parameter."""
    if not isinstance(value, Tensor):
      if value is None or isinstance(value, ModuleBase) or not self._begun: return
    elif value._state != 0 and not (self._begun and value._state == 1): return
    elif not self._begun:
      if value.is_floating_point(): value.requires_grad = True
      return
    raise AssignError(f"{type(self).__name__}.{name} is a parameter, and {shown(value)} is none; assign nn.Parameter(..) of it, "
                      f"or write it: with no_grad(): m.{name}.copy_(..)")

  def __init_subclass__(cls, **kwargs: Any) -> None:
    """``forward`` and ``__call__`` are one: a class that defines one of them has the other as well."""
    super().__init_subclass__(**kwargs)
    own = vars(cls)
    if cls.__module__.startswith("ntgrad.nn."): cls._leaves = True
    if "__call__" in own: cls.__call__ = within(own["__call__"])   # type: ignore[method-assign]
    if "forward" in own and "__call__" not in own: cls.__call__ = Module.__call__   # type: ignore[method-assign]
    elif "__call__" in own and "forward" not in own: cls.forward = forward_of(cls)   # type: ignore[attr-defined]

  @within
  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """What ``forward`` gives, in this Module's mode. Raises ArgumentError for a class that has neither."""
    forward = getattr(self, "forward", None)
    if forward is None: raise ArgumentError(f"{type(self).__name__}: cannot be called; define forward(self, ..)")
    if self._mode is None or self._mode is current.training: return forward(*args, **kwargs)
    with behaving(self._mode): return forward(*args, **kwargs)

  # ---- training or not
  @property
  def training(self) -> bool:
    """Whether it behaves as in training: its own mode where it has one, else ``Tensor.training``. What is assigned is the mode of
    this Module alone."""
    return current.training if self._mode is None else self._mode
  @training.setter
  def training(self, value: bool | None) -> None:
    if not any(value is mode for mode in (None, True, False)):
      raise ArgumentError(f"training is {shown(value)}; it takes True, False or None")
    self._mode = value

  def train(self, mode: bool | None = True) -> Self:
    """Give this Module and all in it a mode of their own; None: they follow ``Tensor.training`` again. Gives the Module."""
    for m in self.modules(): m._mode = mode
    return self
  def eval(self) -> Self:
    """``train(False)``."""
    return self.train(False)
  def _trains(self, otherwise: str) -> bool:
    """``training``, of a layer whose result it changes: that nobody has said it, and what is ``otherwise``, is told once."""
    if self._mode is None and not current.said:
      name = f"nn.{type(self).__name__}"
      say_once(f"mode of {name}", f"{name} is in no Module and does as Tensor.training says, which is False: "
               f"{otherwise}. In a Module it begins in training. Say which is meant: layer.train(), layer.eval(), or "
               "Tensor.training = True")
    return self.training

  # ---- what is in it
  def named_modules(self) -> Iterator[tuple[str, Module]]:
    """This Module (its path is "") and all in it, each once, with their paths."""
    yield "", self
    yield from _modules_of(self, True)
  def modules(self) -> Iterator[Module]:
    """This Module and all in it, each once."""
    return (m for _, m in self.named_modules())
  def named_children(self) -> Iterator[tuple[str, Module]]:
    """The Modules that are in it but in no other one, with their paths: ``layers.0`` for one in a list."""
    return _modules_of(self, False)
  def children(self) -> Iterator[Module]:
    """The Modules that are in it but in no other one."""
    return (m for _, m in self.named_children())

  def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that can be trained with its path (behind ``prefix.``), each once; those with ``requires_grad=False`` too.
    Without ``recurse`` those that no Module in it holds."""
    return self._named(False, prefix, recurse)
  def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
    """Every tensor that can be trained, each once; see ``named_parameters``."""
    return (t for _, t in self.named_parameters("", recurse))
  def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that is state but never trained (running statistics), with its path, each once; see ``named_parameters``."""
    return self._named(True, prefix, recurse)
  def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
    """Every tensor that is state but never trained."""
    return (t for _, t in self.named_buffers("", recurse))
  def _named(self, buffers: bool, prefix: str, recurse: bool) -> Iterator[tuple[str, Tensor]]:
    inner = () if recurse else tuple([f"{path}." for path, _ in self.named_children()])
    return ((f"{prefix}{'.' * bool(prefix)}{path}", p.value) for path, p in tensors(self).items()
            if is_buffer(p) is buffers and not path.startswith(inner))

  def get_submodule(self, target: str) -> Module:
    """The Module at a path, as ``named_modules`` has them. Raises ArgumentError."""
    return self._held("get_submodule", target, self.named_modules())
  def get_parameter(self, target: str) -> Tensor:
    """The tensor at a path, as ``named_parameters`` has them. Raises ArgumentError."""
    return self._held("get_parameter", target, self.named_parameters())
  def get_buffer(self, target: str) -> Tensor:
    """The tensor at a path, as ``named_buffers`` has them. Raises ArgumentError."""
    return self._held("get_buffer", target, self.named_buffers())
  def _held(self, name: str, target: str, named: Iterator[tuple[str, Any]]) -> Any:
    there = dict(named)
    if target not in there: raise MissingNameError(f"{name}: nothing at {target!r}; there are {', '.join(there) or 'none'}")
    return there[target]

  def add_module(self, name: str, module: Any) -> None:
    """Set an attribute to a layer, or to None. Raises ArgumentError for a name that no attribute can have."""
    if module is not None and not callable(module): raise ArgumentError(f"add_module: {shown(module)} is no layer")
    setattr(self, self._new("add_module", name), module)
  def register_module(self, name: str, module: Any) -> None:
    """``add_module``."""
    self.add_module(name, module)
  def register_parameter(self, name: str, param: Tensor | None) -> None:
    """Set an attribute to a tensor that is trained, or to None. Raises ArgumentError for a name that no attribute can have."""
    if param is not None and param._state == 0: param.requires_grad = True
    setattr(self, self._new("register_parameter", name), param)
  def _new(self, what: str, name: str) -> str:
    if not name or "." in name or hasattr(type(self), name):
      raise ArgumentError(f"{what}: {name!r} cannot be a {what.split('_')[1]}'s name; give the name of a new attribute")
    return name

  def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
    """Set an attribute to a tensor that is never trained; without ``persistent`` ``state_dict`` leaves it out. Raises
    ArgumentError for a name that no attribute can have."""
    self._new("register_buffer", name)
    if tensor is not None and tensor.requires_grad: tensor = tensor.detach()
    setattr(self, name, tensor)
    self._buffers = self._buffers | {name}
    self._passing = self._passing - {name} if persistent else self._passing | {name}

  # ---- state
  def state_dict(self) -> dict[str, Tensor]:
    """Every tensor under its path, as ``nn.state.get_state_dict`` has them, but for buffers that are not persistent."""
    from .state import get_state_dict
    gone = {p.path for p in walk(self) if isinstance(p.holder, Module) and p.key in p.holder._passing}
    return {k: t for k, t in get_state_dict(self).items() if k not in gone}
  def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Unmatched:
    """Assign tensors by name; gives ``missing_keys`` and ``unexpected_keys``. See ``nn.state.load_state_dict``. Raises
    StateError, then nothing has been assigned."""
    from .state import load_state_dict
    return load_state_dict(self.state_dict(), state_dict, strict)

  # ---- changing all of it
  def to(self, *args: Any, device: str | None = None, dtype: DType | str | None = None, non_blocking: bool = False,
         memory_format: memory_format | None = None) -> Self:
    """Move every tensor to a device, cast the floats to a dtype, or both: ``to("CPU")``, ``to(dtypes.half)``,
    ``to("NUMPY", "float16")``. The tensors stay the same objects; ``non_blocking`` and ``memory_format`` have no effect. Raises
    DeviceError, DTypeError, ArgumentError."""
    for a in args:
      if isinstance(a, DType) or (isinstance(a, str) and is_dtype(a)): dtype = a
      elif isinstance(a, str): device = a
      else: raise ArgumentError(f"nn.{type(self).__name__}.to: {shown(a)} is neither a device nor a dtype")
    where = None if device is None else Device._located(device)
    kind = None if dtype is None else dtypes.of(dtype)
    if kind is not None and kind.kind != "f": raise DTypeError(f"nn.{type(self).__name__}.to: {kind.name} is no float dtype")
    for p in tensors(self).values():
      t: Tensor = p.value
      if kind is not None and t.is_floating_point(): _become(t, t.detach().cast(kind))
      if where is not None: _become(t, t.detach().to(where))
    return self
  half, bfloat16, double, float = _to("half", "float16"), _to("bfloat16"), _to("double", "float64"), _to("float", "float32")
  cpu, cuda = _to("cpu", "CPU"), _to("cuda", "CUDA")
  def type(self, dst_type: DType | str) -> Self:
    """``to(dst_type)``."""
    return self.to(dtype=dst_type)

  def zero_grad(self, set_to_none: bool = True) -> None:
    """Forget the gradients of all parameters: ``grad`` is None; without ``set_to_none`` zeros."""
    for t in self.parameters(): t.grad = None if set_to_none or t.grad is None else t.grad.zeros_like()
  def requires_grad_(self, requires_grad: bool = True) -> Self:
    """Set ``requires_grad`` of all parameters."""
    for t in self.parameters(): t.requires_grad = requires_grad
    return self
  def apply(self, fn: Callable[..., Any]) -> Self:
    """Call ``fn`` with every Module in it, inner ones first, and with itself last."""
    for m in list(self.modules())[::-1]: fn(m)
    return self


explain(Module, "nn.Module")


def _modules_of(root: Module, deep: bool) -> Iterator[tuple[str, Module]]:
  """The Modules in one, each once, with their paths; not ``deep``: that are in no other one."""
  seen = {id(root)}
  for p in walk(root, deep):
    if isinstance(p.value, Module) and id(p.value) not in seen:
      seen.add(id(p.value))
      yield p.path, p.value


def _begin(x: Any) -> None:
  """Have Modules that have no mode begin in training: this one, those in it, or those in a list, tuple or dict."""
  if not isinstance(x, (Module, list, tuple, dict)): return
  stack, seen = [x], set()
  while stack:
    at: Any = stack.pop()
    if id(at) in seen: continue
    seen.add(id(at))
    if isinstance(at, Module):
      if at._mode is not None: continue   # so all in it have one
      at._mode = True
      at = vars(at)
    stack.extend([v for v in (at.values() if isinstance(at, dict) else at) if isinstance(v, (Module, list, tuple, dict))])


def forward_of(cls: type) -> Callable[..., Any]:
  """The method that does what a call of this class does, whatever a class beneath it makes of calls."""
  def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    call = vars(cls)["__call__"]
    return (call if self._hooks is None else call.__wrapped__)(self, *args, **kwargs)
  forward.__doc__ = "What a call does."
  return forward


def placed(cls: C) -> C:
  """A layer whose arguments are checked, and that also takes ``device`` and ``dtype``, by name: where its tensors are, and what
  its floats are."""
  kind: Any = cls
  if "__call__" not in vars(kind): kind.__call__, kind.forward = kind.__call__, forward_of(kind)   # refuses under its own name
  made = kind.__init__
  at = inspect.signature(made)

  @functools.wraps(made)
  def make(self: Any, *args: Any, device: str | None = None, dtype: DType | str | None = None, **kwargs: Any) -> None:
    made(self, *args, **kwargs)
    if device is not None or dtype is not None: self.to(device=device, dtype=dtype)

  more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
          for name, kind in (("device", "str | None"), ("dtype", "Any"))]
  make.__signature__ = at.replace(parameters=[*at.parameters.values(), *more])  # type: ignore[attr-defined]
  kind.__init__ = make
  return checked(cls)


class _Leaves(type):
  """Makes ``isinstance(x, nn.Parameter)`` say whether x is a leaf that gradients are found for."""
  def __instancecheck__(cls, x: Any) -> bool: return isinstance(x, Tensor) and x.is_leaf and x.requires_grad is True


class Parameter(metaclass=_Leaves):
  """A tensor as a leaf that gradients are found for: ``self.scale = nn.Parameter(Tensor.ones(3))``; or what one is made of.
  Raises GradientError for a dtype that has no gradients."""
  def __new__(cls, data: Any, requires_grad: bool = True) -> Tensor:  # type: ignore[misc]
    return (data if isinstance(data, Tensor) else Tensor(data)).detach().clone().requires_grad_(requires_grad)


def _become(t: Tensor, value: Tensor) -> None:
  """Have a tensor hold another value, of another dtype or elsewhere; its views stay as they are."""
  if value.dtype is t.dtype and value.device == t.device: return
  t._rehome(Alias(graph.detach(value.lazydata)), ())
  if t.grad is not None: t.grad = t.grad.cast(value.dtype).to(value.device)
