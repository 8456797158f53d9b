"""What the ledger has of public names: each one's kind and signature; and how text loses what a move of files changes.

A module is public if its file ends with ``show(__name__)``, which has it show its ``__all__`` alone; ``FURTHER`` are public too.
"""
from __future__ import annotations

import hashlib
import importlib
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator

import ntgrad
from ntgrad import Tensor, dtypes
from ntgrad.compat.public import present

ROOT = Path(__file__).resolve().parents[2]
FURTHER = ("ntgrad.config", "ntgrad.engine.schedule", "ntgrad.errors", "ntgrad.renderer.cstyle", "ntgrad.tile",
           "ntgrad.tile.libdevice")
# a file of the product; a module, class or function of it by its full name
_FILE = re.compile(r"""(?:[^\s"'<>()]*/)?(?:ntgrad|codegen|backends)/[\w/]+\.py(?:"?,? line \d+|:\d+)?""")
_DOTTED = re.compile(r"\bntgrad(?:\.\w+)+")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


@cache
def _own() -> re.Pattern[str]:
  """A file of the product by its last name, with a line: no file of the tests and examples is called like it."""
  def called(*folders: str) -> set[str]: return {p.name for f in folders for p in (ROOT / f).rglob("*.py")}
  found = called("ntgrad", "codegen", "backends") - called("tests", "examples", "bench")
  return re.compile(rf"(?<![\w/.])(?:{'|'.join(sorted(map(re.escape, found)))}):\d+")


def steady(text: str) -> str:
  """Text without what a move changes: files of the product and lines in them, and modules before names; and without addresses.
  The tile language's modules stay, as sources import them."""
  def file(m: re.Match[str]) -> str: return '<ntgrad>"' if '"' in m[0] else "<ntgrad>"
  def last(m: re.Match[str]) -> str: return m[0] if m[0] in ("ntgrad.tile", "ntgrad.tile.language") else m[0].rpartition(".")[2]
  return _ADDRESS.sub("0x", _DOTTED.sub(last, _own().sub("<ntgrad>", _FILE.sub(file, text))))


def public_modules() -> dict[str, ModuleType]:
  """The public modules by their names, imported."""
  out = {"ntgrad": ntgrad}
  def walk(package: ModuleType) -> None:
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
      if found.name in ("ntgrad.codegen", "ntgrad.backends", "ntgrad.__main__"): continue
      spec = importlib.util.find_spec(found.name)
      text = Path(spec.origin).read_text() if spec is not None and spec.origin else ""
      if found.name in FURTHER or re.search(r"^show\(__name__\)", text, re.M):
        out[found.name] = importlib.import_module(found.name)
      if found.ispkg: walk(importlib.import_module(found.name))
  walk(ntgrad)
  return dict(sorted(out.items()))


def names_of(module: ModuleType) -> list[str]:
  """The public names of a module; of ``ntgrad`` those that are found when they are asked for too."""
  own = [n for n, x in vars(module).items() if n[0] != "_" and getattr(x, "__module__", "") == module.__name__]
  found = {*getattr(module, "__all__", own)}
  if module is ntgrad:
    from ntgrad.compat.signatures import AT_TOP, TOP
    from ntgrad.functions import _FILE_OF
    from ntgrad.tensor.made import rows
    asked = {*_FILE_OF, *AT_TOP, *rows(TOP), *dir(Tensor), *dir(dtypes)}
    found |= {n for n in asked if n[0] != "_" and hasattr(module, n)}
  return sorted(found)


def names() -> dict[str, str]:
  """Every public name, with its kind and signature; of a class, its public attributes too that no other public class gives it."""
  modules = public_modules()
  things = {f"{at}.{n}": getattr(m, n) for at, m in modules.items() for n in names_of(m)}
  classes = {id(x) for x in things.values() if inspect.isclass(x)}
  out, seen = {}, set[int]()
  for name, x in things.items():
    out[name] = said(x)
    if not inspect.isclass(x) or id(x) in seen or not x.__module__.startswith("ntgrad"): continue
    seen.add(id(x))
    out.update({f"{name}.{n}": text for n, text in _attributes(x, classes)})
  return out


def _attributes(kind: type, classes: set[int]) -> Iterator[tuple[str, str]]:
  for n in sorted(present(kind, dir(kind))):
    owner = next((k for k in kind.__mro__ if n in k.__dict__), object)
    given = owner is not kind and (id(owner) in classes or not owner.__module__.startswith("ntgrad"))
    if given or n[0] == "_" and n not in ("__init__", "__call__"): continue
    x = owner.__dict__[n]
    if isinstance(x, property):
      yield n, f"property{', can be set' if x.fset else ''}{_signature(x.fget)[6:]}"
    elif isinstance(x, (staticmethod, classmethod)): yield n, f"{type(x).__name__} {_signature(x.__func__)}"
    elif callable(x): yield n, f"method {_signature(x)}"
    else: yield n, f"attribute {type(x).__name__}"   # its value may be another later


def said(x: Any) -> str:
  """The kind of a thing, and its signature or value."""
  if inspect.ismodule(x): return f"module {steady(x.__name__) if x.__name__ == 'math' else ''}".strip()
  if inspect.isclass(x): return f"class({', '.join(k.__name__ for k in x.__mro__[1:-1] if k.__name__[0] != '_')}) {_signature(x)}"
  return f"function {_signature(x)}" if callable(x) else f"value {_value(x)}"


def _value(x: Any) -> str:
  """A value, or the type of one that has no short text of its own."""
  text = steady(repr(x)) if isinstance(x, (bool, int, float, str, tuple, frozenset, type(None))) else ""
  if isinstance(x, frozenset): text = f"frozenset {sorted(map(str, x))}"
  return text if 0 < len(text) < 200 else f"{type(x).__name__}"


def _signature(fn: Any) -> str:
  try: found = inspect.signature(fn)
  except (TypeError, ValueError): return "(?)"
  space = getattr(inspect.unwrap(fn), "__globals__", {}) if not inspect.isclass(fn) else getattr(fn.__init__, "__globals__", {})
  def plain(a: Any) -> Any:
    """An annotation without modules of the product: ``ix.Dim`` is ``Dim``."""
    if not isinstance(a, str): return a
    def short(m: re.Match[str]) -> str:
      module = space.get(m[1])
      return m[2] if inspect.ismodule(module) and module.__name__.startswith("ntgrad") else m[0]
    return re.sub(r"\b(\w+)\.(\w+)", short, a)
  parameters = [p.replace(annotation=plain(p.annotation)) for p in found.parameters.values()]
  text = str(found.replace(parameters=parameters, return_annotation=plain(found.return_annotation)))
  return re.sub(r" at 0x\b", "", steady(text))


def digests(folder: Path) -> dict[str, str]:
  """The files beneath a folder that are no code."""
  files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix not in (".py", ".pyc")]
  return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
