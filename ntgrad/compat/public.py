"""What people see of a public module: the names that are its own, and why another name is not there.

The last line of such a module's file is ``show(__name__)``. From then on there is, under its name, a module that has its
``__all__`` and the modules beneath it; what the file imports for itself (``Any``, ``math``, errors) is seen by its functions
alone. A name that is missing is looked up in ``ntgrad/compat/absent.txt``, which has the reasons of docs/coming-from-pytorch.md
and docs/coming-from-tinygrad.md.
"""
from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from opcode import opmap
from pathlib import Path
from types import ModuleType
from typing import Any

# a module, or a class -> what the names in it begin with in the lists of PyTorch's and tinygrad's names
ELSEWHERE = {"ntgrad.amp": "ntgrad.nn.amp"}   # modules by their public names
_PLACES = {"ntgrad": ("torch.", ""), "ntgrad.nn.optim": ("optim.", "nn.optim.")}


def show(name: str) -> None:
  """Have the module whose file ends here show its own names alone."""
  file = sys.modules[name]
  given, seen = vars(file), ModuleType(name, file.__doc__)
  own = {*given["__all__"]}
  beneath = {k for k, v in given.items() if isinstance(v, ModuleType) and v.__name__ == f"{name}.{k}"}
  vars(seen).update({k: v for k, v in given.items() if k in own or k in beneath or k[0] == "_"})
  later, files = given.get("__getattr__"), given.get("_FILES", ())   # modules that are imported when they are asked for

  def find(k: str) -> Any:
    # of one that another thread imports: once it is there
    found = import_module(f"{name}.{k}") if f"{name}.{k}" in sys.modules else None
    if found is None:
      try:
        if later is None and k not in files: raise AttributeError(k)
        found = import_module(f"{name}.{k}") if later is None else later(k)
      except AttributeError as e:
        if e.args != (k,): raise   # another one's, of a module that is imported
        why = reason(name, k)
        f = sys._getframe(1)   # ``from .. import ..`` would leave the reason out
        if f.f_lasti >= 0 and f.f_code.co_code[f.f_lasti] == opmap["IMPORT_FROM"]:
          raise ImportError(f"cannot import name {k!r} from {name!r}{why}", name=name) from None
        raise AttributeError(f"module {name!r} has no attribute {k!r}{why}") from None
    vars(seen)[k] = found
    return found

  vars(seen).update(__getattr__=find, __dir__=given.get("__dir__", lambda: sorted({*own, *files})))
  sys.modules[name] = seen


class _Elsewhere:
  """Asked for modules that nobody else finds, last of all: finds those that lie elsewhere, and says why another one of ntgrad
  is not there (``import ntgrad.fft``)."""
  @staticmethod
  def create_module(spec: ModuleSpec) -> ModuleType:
    found = import_module(ELSEWHERE[spec.name])
    spec.loader_state = found.__spec__
    return found

  @staticmethod
  def exec_module(module: Any) -> None: module.__spec__ = module.__spec__.loader_state   # its own, as it has been executed

  @staticmethod
  def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
    if name in ELSEWHERE: return ModuleSpec(name, _Elsewhere)   # type: ignore[arg-type]
    place, _, last = name.rpartition(".")
    # what only asks whether there is one (``importlib.util.find_spec``) gets no error
    if place.partition(".")[0] == "ntgrad" and sys._getframe(2).f_code.co_name == "_find_and_load_unlocked":
      if why := reason(place, last): raise ModuleNotFoundError(f"No module named {name!r}{why}", name=name)
    return None


sys.meta_path.append(_Elsewhere)


class Absent:
  """Stands in a class for an attribute that is not there: who asks for it is told why. ``__getattr__`` would tell too, and make
  every attribute of the class's objects slower to reach."""

  def __init__(self, name: str, why: str): self.name, self.why = name, why

  def __get__(self, x: Any, kind: type) -> Any:
    raise AttributeError(f"{'type object ' * (x is None)}{kind.__name__!r}{' object' * (x is not None)} has no "
                         f"attribute {self.name!r}: {self.why}")


def explain(kind: type, place: str) -> None:
  """Have a class (``place`` in the tables: ``Tensor``, ``nn.Module``) say why it has not what PyTorch's or tinygrad's has."""
  for name, why in _reasons().items():
    where, _, attribute = name.rpartition(".")
    if where != place or not attribute or hasattr(kind, attribute): continue
    setattr(kind, attribute, Absent(attribute, why))


def present(kind: type, names: Iterable[str]) -> list[str]:
  """Of the names of a class, or of its objects, those that are there."""
  absent = {n for k in kind.__mro__ for n, x in k.__dict__.items() if isinstance(x, Absent)}
  return [n for n in names if n not in absent]


def reason(place: str, name: str) -> str:
  """Why a name is not in a module, behind a colon; "" where nothing is known."""
  if name[:1] == "_": return ""
  whys = _reasons()
  for before in _PLACES.get(place, (f"{place.removeprefix('ntgrad.')}.",)):
    if found := whys.get(f"{before}{name}") or whys.get(f"{before.removeprefix('torch.')}{name}."): return f": {found}"
  return ""


@cache
def _reasons() -> dict[str, str]:
  """Why by name; by what several names begin with, the reason of the first of them."""
  out = dict[str, str]()
  for line in Path(__file__).with_name("absent.txt").read_text().splitlines():
    if line[0] != " ": why = line
    for name in line.split() if line[0] == " " else ():
      out.setdefault(name, why)
      parts = name.split(".")
      for i in range(1, len(parts)): out.setdefault(f"{'.'.join(parts[:i])}.", why)
  return out
