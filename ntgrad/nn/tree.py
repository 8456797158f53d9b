"""What a model is made of: tensors in objects, lists and dicts, found by going through them; and how that prints."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from ntgrad.codegen.ir import StateError
from ntgrad.compat.notebook import table
from ntgrad.graph import checked
from ntgrad.graph.change_counts import Stamped
from ntgrad.tensor import Tensor


class ModuleBase(Stamped):
  """What is seen of a Module (``nn/module.py``) from here: which of its tensors are not trained, and what its line says."""
  _said: ClassVar[str] = ""                  # attributes that ``repr`` shows; with * in front without their names
  _leaves: bool = False                      # no plain tensor is a part of it: it is a layer, or calls ``super().__init__()``
  _buffers: frozenset[str] = frozenset()     # names of tensors that are not trained
  _private: ClassVar[frozenset[str]] = frozenset()   # attributes that are no part of the model

  def extra_repr(self) -> str:
    """What ``repr`` shows in brackets."""
    given = [(n, getattr(self, n.removeprefix("*"))) for n in self._said.split()]
    return ", ".join(f"{x!r}" if n[0] == "*" else f"{n}={x is not None if isinstance(x, Tensor) else x!r}" for n, x in given)
  def __repr__(self) -> str: return summary(self) if _has_parts(self) else f"{type(self).__name__}({self.extra_repr()})"
  def _repr_html_(self) -> str: return table(summary(self).partition("\n")[0], _lines(self))


class Part(NamedTuple):
  """Something in a model: its dotted path, itself, what holds it, and under which name."""
  path: str
  value: Any
  holder: Any
  key: str


def parts_of(x: Any, leaves: bool = False) -> list[tuple[str, Any]]:
  """What lies directly in an object, as ``nn.state.get_state_dict`` goes through it: attributes, values of a dict, items; of a
  Module its own tensors first, as PyTorch has them. ``leaves``: of tensors those that are or were leaves, and buffers."""
  if isinstance(x, (Tensor, type)): return []
  buffers: Collection[str] = ()
  if isinstance(x, Mapping): found = [(str(k), v) for k, v in x.items()]
  elif isinstance(x, (list, tuple)): found = list(zip(getattr(x, "_fields", map(str, range(len(x)))), x))
  else: found = list(vars(x).items()) if hasattr(x, "__dict__") else []
  if isinstance(x, ModuleBase):
    leaves, buffers, own = x._leaves, x._buffers, [p for p in found if p[0] not in x._private]
    found = sorted(own, key=lambda p: (not isinstance(p[1], Tensor), p[0] in buffers))
  return [(k, v) for k, v in found if not leaves or not isinstance(v, Tensor) or k in buffers or v._state in (-1, 2)]


def is_part(x: Any) -> bool:
  """Whether something is a tensor or may hold some."""
  return not isinstance(x, type) and (isinstance(x, (Tensor, Mapping, list, tuple)) or hasattr(x, "__dict__"))


_MANY, _DEEPEST = 1 << 18, 10000   # parts of a model that are not counted; how deep one may be


def walk(root: Any, into_modules: bool = True) -> Iterator[Part]:
  """Everything in a model, in the order of definition; what is held twice comes twice. Without ``into_modules`` nothing that
  lies in a Module beneath the root."""
  # a stack, not recursion; ``above`` are the holders, so that a model that refers back to itself ends: None closes one
  stack: list[Part | None] = [Part("", root, None, "")]
  above = list[tuple[int, bool]]()
  holders = set[int]()
  seen = set[int]()
  count = 0
  while stack:
    part = stack.pop()
    if part is None:
      holders.discard(above.pop()[0])
      continue
    value = part.value
    if id(value) in holders: continue
    count += 1
    seen.add(id(value))
    if count > _MANY and count > 64 * len(seen) or len(above) > _DEEPEST:
      raise StateError(f"a model in which {len(seen)} lists, dicts and objects hold each other {len(above)} deep and come "
                       f"{count} times (at {part.path[:60]!r}); name tensors by a path of their own, at most {_DEEPEST} deep")
    if part.holder is not None: yield part
    if not into_modules and part.holder is not None and isinstance(value, ModuleBase): continue
    leaves = bool(above) and above[-1][1] and isinstance(value, (Mapping, list, tuple))   # what of a list, its Module says
    inner = [Part(f"{part.path}.{k}" if part.path else k, v, value, k) for k, v in parts_of(value, leaves) if is_part(v)]
    if not inner: continue
    above.append((id(value), leaves or isinstance(value, ModuleBase) and value._leaves))
    holders.add(id(value))
    stack.append(None)
    stack.extend(reversed(inner))


def tensors(root: Any) -> dict[str, Part]:
  """Every tensor of a model under its path, each once."""
  found = dict[int, Part]()
  for p in walk(root):
    if isinstance(p.value, Tensor): found.setdefault(id(p.value), p)
  return {p.path: p for p in found.values()}


def is_buffer(p: Part) -> bool:
  """Whether a tensor is no parameter: its Module has registered it as a buffer, or it is of a dtype without gradients. In objects
  that are no Modules: ``requires_grad=False`` was set on it."""
  if p.value.dtype.kind != "f": return True
  return p.key in p.holder._buffers if isinstance(p.holder, ModuleBase) else p.value.requires_grad is False


# ---- in words
class Summary(str):
  """A text that prints as it is."""
  def __repr__(self) -> str: return str(self)


@checked
def summary(model: Any) -> Summary:
  """A model as a tree: every layer with the shapes of its tensors and the number of its parameters, the whole first.
  ``model`` is a Module or any object that holds layers and tensors; nothing is computed. What is held twice counts once."""
  found = tensors(model).values()
  parameters, buffers = [[p.value for p in found if is_buffer(p) is b] for b in (False, True)]
  numbers = sum(t.numel() for t in parameters)
  total = f"{numbers:,} parameter{'s' * (numbers != 1)} ({size_text(sum(t.nbytes() for t in parameters))})"
  still = sum(t.numel() for t in parameters if t.requires_grad is False)
  if still: total += f", {still:,} of them not trained"
  if buffers: total += f", {sum(t.numel() for t in buffers):,} numbers in buffers"
  lines = _lines(model)
  name = min(max([len(what) for what, _, _ in lines], default=0), 60)
  number = max([len(counted) for _, counted, _ in lines], default=0)
  return Summary("\n".join([
    f"{_name(model)}: {total}", *[f"{what:{name}}  {counted:>{number}}  {shapes}".rstrip() for what, counted, shapes in lines]]))


def _lines(root: Any) -> list[tuple[str, str, str]]:
  """What it is, how many parameters, and shapes: a line for each object beneath a model that is a Module or holds tensors. Lists
  and dicts are part of the path."""
  def shapes(x: Any) -> str: return ", ".join(f"{k} {tuple(t.shape)}" for k, t in parts_of(x) if isinstance(t, Tensor))
  out = [("  (itself)", "", own)] if (own := shapes(root)) else []
  seen, opened = {id(root)}, {id(root)}   # a list may have itself
  stack = [(root, iter(parts_of(root)), "", 1)]
  while stack:
    x, rest, prefix, depth = stack[-1]
    for key, v in rest:
      if isinstance(v, Tensor) or not is_part(v) or id(v) in opened and isinstance(v, (Mapping, list, tuple)): continue
      path = f"{prefix}{key}"
      if isinstance(v, (Mapping, list, tuple)):
        stack.append((v, iter(parts_of(v)), f"{path}.", depth))
        opened.add(id(v))
        break
      again = id(v) in seen
      inside = {} if again else tensors(v)
      if not inside and not again and not isinstance(v, ModuleBase): continue
      count = sum(p.value.numel() for p in inside.values() if not is_buffer(p))
      seen.add(id(v))
      counted = "as above" if again else f"{count:,}" if count else ""
      out.append((f"{'  ' * depth}{path}: {_name(v)}", counted, "" if again else shapes(v)))
      if not again:
        stack.append((v, iter(parts_of(v)), "", depth + 1))
        break
    else:
      stack.pop()
      opened.discard(id(x))
  return out


def _name(x: Any) -> str:
  """An object in one line, without what it holds."""
  if not isinstance(x, ModuleBase): return type(x).__name__
  said = x.extra_repr()
  return f"{type(x).__name__}({said})" if said or not _has_parts(x) else type(x).__name__


def _has_parts(x: Any) -> bool: return any(isinstance(p.value, ModuleBase) for p in walk(x, False))


def size_text(n: int) -> str:
  """A number of bytes in words."""
  size, units = float(n), "bytes KiB MiB GiB".split()
  while size >= 1024 and len(units) > 1: size, units = size / 1024, units[1:]
  return f"{n} bytes" if units[0] == "bytes" else f"{size:.1f} {units[0]}"
