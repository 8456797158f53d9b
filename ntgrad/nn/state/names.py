"""The tensors of a model by name, and bringing those of a state dict into it."""
from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ntgrad.codegen.ir import ArgumentError, StateError, dtypes, shown
from ntgrad.engine import interchange
from ntgrad.graph import checked
from ntgrad.graph.buffer_names import remember_names
from ntgrad.nn.tree import walk
from ntgrad.tensor import Tensor

_MOST, _CANDIDATES = 8, 2000   # names that an error lists; names that one is compared with to find what was meant
_HALVES = dtypes.float16, dtypes.bfloat16


@checked
def get_state_dict(obj: Any, prefix: str = "") -> dict[str, Tensor]:
  """Every Tensor reachable from ``obj`` (attributes, dict values, list and tuple items) under its dotted path.

  ``{"l1.weight": Tensor, "layers.0.bias": Tensor, ..}``, in the order of definition, a Module's own first. A tensor held twice is
  listed under both names. ``prefix`` goes before every name. Schedules and tables call the tensors so from then on. Raises
  StateError where two paths spell one name.
  """
  out = tensors_in(obj, prefix)
  remember_names(out)
  return out


def tensors_in(obj: Any, prefix: str = "") -> dict[str, Tensor]:
  """:func:`get_state_dict` without a note of the names."""
  out = dict[str, Tensor]()
  for path, x in (("", obj), *[(p.path, p.value) for p in walk(obj)]):
    if not isinstance(x, Tensor): continue
    name = ".".join(filter(None, (prefix.rstrip("."), path)))
    if out.setdefault(name, x) is not x:
      raise StateError(f"get_state_dict: two different tensors are both called {name!r}; rename one of the attributes or keys")
  return out


@checked
def get_parameters(obj: Any) -> list[Tensor]:
  """Every Tensor reachable from ``obj``, each once, in the order of :func:`get_state_dict`.

  Includes tensors that are not trained (running statistics); optimizers train those with ``requires_grad`` and leave the others.
  """
  return list({id(t): t for t in tensors_in(obj).values()}.values())


def listed(names: Sequence[Any]) -> str:
  """The first names for a message, and how many more there are."""
  said = ", ".join(map(shown, names[:_MOST]))
  return said if len(names) <= _MOST else f"{said} and {len(names) - _MOST} more"


# ---- into a model

class Unmatched(NamedTuple):
  """Names that only one side had: those of the model that were not loaded, those of the state dict that were left out."""
  missing_keys: list[str]
  unexpected_keys: list[str]


@checked
def load_state_dict(model: Any, state_dict: Mapping[str, Any], strict: bool = True, verbose: bool = False,
                    prefix: str = "", *, consume: bool = False, realize: bool = True) -> Unmatched:
  """Assign the tensors of ``state_dict`` to those of ``model`` with the same names, moved to the model's devices. Numpy arrays
  and other libraries' tensors do as well: ``model.load_state_dict(torch_model.state_dict())``.

  With ``prefix`` only names of the state dict that begin with it count, and the rest of each is the name: ``prefix="model."``
  loads what was saved as a part of something larger. float16 and bfloat16 are cast where the model has float32, which is said
  once.

  Gives the names that only one side has, ``missing_keys`` and ``unexpected_keys``. Everything is checked before anything is
  assigned. Raises StateError, with all that differs, for a name that only one side has (unless ``strict`` is False) and for a
  tensor of another shape or dtype. ``verbose`` prints what was loaded and left out. ``consume`` takes what was loaded out of the
  state dict; with ``realize=False`` nothing is read or copied before a value is needed. Raises ArgumentError for ``consume`` of
  what nothing can be taken from.
  """
  mine = get_state_dict(model)
  if consume and not isinstance(state_dict, MutableMapping):
    raise ArgumentError(f"load_state_dict: consume=True of a {type(state_dict).__name__}; give a dict")
  given = {k[len(prefix):] if prefix else k: _tensor(v) for k, v in state_dict.items()
           if not prefix or isinstance(k, str) and k.startswith(prefix)}
  if prefix and not given:
    raise StateError(f"load_state_dict: no name of the state dict begins with {prefix!r}; it has {listed(list(state_dict))}")
  missing = [k for k in mine if k not in given]
  extra = [k for k in given if k not in mine]
  wrong = [said for name, target in mine.items() if name in given and (said := _differs(name, given[name], target))]
  if wrong or strict and (missing or extra):
    raise StateError(f"load_state_dict: {_difference(mine, given, *((missing, extra) if strict else ([], [])), wrong)}")
  pairs = {id(target): (target, given[name]) for name, target in mine.items() if name in given and given[name] is not target}
  cast = sorted({value.dtype.name for target, value in pairs.values() if value.dtype is not target.dtype})
  if pairs and realize: Tensor.realize(*[value for _, value in pairs.values()])
  # what they are now: a target may be another one's value
  values = [value.detach().to(target.device).cast(target.dtype) for target, value in pairs.values()]
  for (target, _), value in zip(pairs.values(), values): target.assign(value)
  if pairs and realize: Tensor.realize(*[target for target, _ in pairs.values()])
  if isinstance(state_dict, MutableMapping) and consume:
    for name in mine.keys() & given.keys(): del state_dict[prefix + name]
  if cast: print(f"ntgrad: load_state_dict: weights of {' and '.join(cast)} are cast to the model's float32", file=sys.stderr)
  if verbose:
    print(f"loaded {len(mine) - len(missing)} tensors{f', without {listed(missing)}' if missing else ''}"
          f"{f', ignored {listed(extra)}' if extra else ''}")
  return Unmatched(missing, extra)


def _tensor(value: Any) -> Any:
  """Arrays and other libraries' tensors as Tensors; what is none as it is."""
  return Tensor(value) if not isinstance(value, Tensor) and (
    isinstance(value, (np.ndarray, np.generic)) or interchange.speaks(value)) else value


def _differs(name: str, value: Any, target: Tensor) -> str | None:
  """Why a tensor cannot be loaded into ``target``, in words."""
  if not isinstance(value, Tensor): return f"{name!r} is {type(value).__name__}, expected a Tensor; wrap it in Tensor(..)"
  if tuple(value.shape) != tuple(target.shape):
    return f"{name!r} has shape {tuple(value.shape)} in the state dict and {tuple(target.shape)} in the model"
  if value.dtype is target.dtype or (value.dtype in _HALVES and target.dtype is dtypes.float32): return None
  return (f"{name!r} is {value.dtype.name} in the state dict and {target.dtype.name} in the model; "
          f"cast it first: state_dict[{name!r}].cast({target.dtype.name!r})")


def _difference(mine: Mapping[str, Tensor], given: Mapping[str, Any], missing: Sequence[str], extra: Sequence[str],
                wrong: Sequence[str]) -> str:
  """All that differs, a line each."""
  lines = [f"the model needs {listed(missing)}, which the state dict lacks"] if missing else []
  if extra: lines.append(f"the state dict has {listed(extra)}, which the model lacks")
  lines += wrong[:_MOST]
  if len(wrong) > _MOST: lines.append(f"{len(wrong) - _MOST} more have another shape or dtype")
  if hint := _prefixed(missing, extra): lines.append(hint)
  elif missing or extra:
    if near := _near(mine, given, missing, extra): lines.append(f"near names: {', '.join(f'{a!r} and {b!r}' for a, b in near)}")
    lines.append("rename them, or pass strict=False to load only the names that both have")
  return lines[0] if len(lines) == 1 else "\n  ".join(["the state dict does not fit the model:", *lines])


def _prefixed(missing: Sequence[str], extra: Sequence[str]) -> str | None:
  """What to do where the names differ by nothing but what stands before them."""
  if not missing or not extra or not all(isinstance(k, str) for k in extra): return None
  for short, long, said in ((missing, extra, "pass prefix={!r}"),
                            (extra, missing, "put {!r} before them: {{{!r} + k: v for k, v in state_dict.items()}}")):
    ends = [k[:-len(short[0])] for k in long if short[0] and k.endswith(short[0])]
    longs = set(long)
    for before in ends:
      if before and all(f"{before}{k}" in longs for k in short):
        return f"the names are the same but for {before!r} before them; {said.format(before, before)}"
  return None


def _near(mine: Mapping[str, Tensor], given: Mapping[str, Any], missing: Sequence[str],
          extra: Sequence[str]) -> list[tuple[str, str]]:
  """Names of the model and of the state dict that may be meant for each other: alike, and of one shape."""
  from difflib import get_close_matches
  out = []
  others = [k for k in extra if isinstance(k, str)][:_CANDIDATES]
  for name in missing[:_MOST]:
    same = [k for k in others if isinstance(given[k], Tensor) and given[k].shape == mine[name].shape]
    if found := get_close_matches(name, same or others, n=1): out.append((name, found[0]))
  return out
