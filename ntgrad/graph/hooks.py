"""Functions that programs have called when a Module is called, or when a gradient is found: what registering one gives, and those
of tensors."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from weakref import WeakSet, ref

from ntgrad.codegen.ir import ArgumentError, UOp, shown

from .change_counts import Stamped
from .nodes import Result


class Hook(NamedTuple):
  """A function and when it is called; the flags are those that it was registered with."""
  when: str
  fn: Callable[..., Any]
  with_kwargs: bool = False
  always: bool = False

  def of_call(self, module: Any, args: Any, kwargs: Any, *result: Any) -> Any:
    """What it gives for a call of a Module, after that with its result."""
    return self.fn(module, args, *[kwargs] * self.with_kwargs, *result)


class Hooks:
  """The hooks of one Module, tensor or node, in the order in which they are called. It is replaced as a whole, and is none of the
  containers that a model's tensors are looked for in."""
  __slots__ = "all", "__weakref__"

  def __init__(self) -> None: self.all: tuple[Hook, ...] = ()

  def add(self, name: str, hook: Hook, first: bool = False) -> RemovableHandle:
    """One more hook, behind the others or before them. Raises ArgumentError for what cannot be called."""
    if not callable(hook.fn): raise ArgumentError(f"{name}: {shown(hook.fn)} cannot be called; it takes a function")
    self.all = (hook, *self.all) if first else (*self.all, hook)
    Stamped.changes += 1   # captured functions look again
    return RemovableHandle(self, hook)

  def at(self, when: str) -> list[Hook]: return [h for h in self.all if h.when == when]


class RemovableHandle:
  """What registering a hook gives. ``remove()`` takes the hook away again, as often as one likes; ``with handle:`` does at its
  end."""
  __slots__ = "_hooks", "_hook"

  def __init__(self, hooks: Hooks | None, hook: Hook) -> None:
    self._hooks, self._hook = None if hooks is None else ref(hooks), hook

  def remove(self) -> None:
    """The hook is not called any more."""
    if (hooks := None if self._hooks is None else self._hooks()) is None: return
    hooks.all = tuple([h for h in hooks.all if h is not self._hook])
    Stamped.changes += 1
  def __enter__(self) -> RemovableHandle: return self
  def __exit__(self, *_: object) -> None: self.remove()
  def __reduce__(self) -> Any: return RemovableHandle, (None if self._hooks is None else self._hooks(), self._hook)


# ---- of tensors
of_leaves: dict[int, tuple[ref[Any], Hooks]] = {}   # by the leaf's identity
_of_nodes: WeakSet[Hooks] = WeakSet()   # which nodes hold


class _HookedResult(Result):
  """The note of a call's output that has hooks."""
  hooks: Hooks


def of_leaf(t: Any, make: bool = False) -> Hooks | None:
  """The hooks of a leaf, which stay with it whatever its value is."""
  if (found := of_leaves.get(id(t))) is not None and found[0]() is t: return found[1]
  if not make: return None
  key, mine = id(t), Hooks()
  of_leaves[key] = ref(t, lambda _, known=of_leaves: known.pop(key, None)), mine   # type: ignore[misc]
  return mine


def of_node(u: UOp, make: bool = False) -> Hooks | None:
  """The hooks of a tensor that is made of others: they lie in the note of its node, which tensors of equal value share."""
  if not (_of_nodes or make): return None
  found: Hooks | None = u.note if type(u.note) is Hooks else getattr(u.note, "hooks", None)
  if found is not None or not make: return found
  _of_nodes.add(found := Hooks())
  if u.note is None: u.note = found
  else:
    if type(u.note) is Result: u.note = _HookedResult(*u.note)
    u.note.hooks = found
  return found


def carry_over(old: UOp, new: UOp) -> None:
  """``new`` stands for ``old``, in a graph of the same values."""
  if (found := of_node(old)) is not None: of_node(new, True).all = found.all   # type: ignore[union-attr]


def any_of(nodes: Iterable[UOp]) -> bool: return bool(_of_nodes) and any([of_node(u) is not None for u in nodes])
