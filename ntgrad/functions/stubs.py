"""Stubs: what editors and mypy read of functions and layers that are made of rows of the table of signatures.

``python -m ntgrad stubs`` writes them, each beside the module that shows its names; a test compares them with the table.
"""
from __future__ import annotations

import ast
import builtins
import collections.abc
import typing
from pathlib import Path
from typing import Any, Iterator

from ntgrad.compat.signatures import ARRAY, ARRAY_OF_TWO, FUNCTIONAL, LINALG, SPECIAL, TOP, each_layer
from ntgrad.nn.made import MadeLayer
from ntgrad.tensor.made import Made, rows

_TABLES = {"functions/top.pyi": TOP, "functions/linalg.pyi": LINALG, "functions/special.pyi": SPECIAL,
           "functions/array.pyi": ARRAY | ARRAY_OF_TWO, "nn/functional/made.pyi": FUNCTIONAL}
_HEAD = "# Written by `python -m ntgrad stubs` from ntgrad/compat/signatures.py.\nfrom __future__ import annotations\n"


def _indented(text: str) -> str: return f'  """{text}"""'


def _function(made: Made) -> str: return f"{made.heading}:\n{_indented(made.text)}"


def _layer(made: MadeLayer) -> str:
  given = [made.field(n) for n in made.fields if n != "*"]
  if "*" in made.fields: given.insert(made.fields.index("*"), "*")
  return "\n".join([
    f"class {made.name}(Layer):", _indented(made.function.text), *[f"  {made.field(n)}" for n in made.fields if n != "*"],
    f"  def __init__({', '.join(['self', *given])}) -> None: ...", f"  {made.heading}: ..."])


def _imports(texts: list[str], of: list[Made]) -> list[str]:
  """Imports of what annotations name: of Python's own from their modules, of the rest from a module of a method that uses it."""
  known: dict[str, str] = {"Tensor": "ntgrad.tensor", "Layer": "ntgrad.nn.made"}
  for made in of:
    scope = made.scope()
    for name, value in scope.items():
      own = next((m.__name__ for m in (typing, collections.abc) if getattr(m, name, None) is value), scope["_home"])
      if name[0] != "_": known.setdefault(name, own)
  used = {n.id for text in texts for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
  used -= {*dir(builtins)}
  lines: dict[str, list[str]] = {}
  for name in sorted(used): lines.setdefault(known[name], []).append(name)
  return [f"from {module} import {', '.join(names)}" for module, names in sorted(lines.items())]


def stubs() -> Iterator[tuple[Path, str]]:
  """Each stub's path and text."""
  root = Path(__file__).parents[1]
  for place, table in _TABLES.items():
    made = [Made(name, row) for name, row in rows(table).items()]
    yield root / place, _text([_function(m) for m in made], made)
  layers = [MadeLayer(row) for row in each_layer()]
  yield root / "nn/layers.pyi", _text([_layer(m) for m in layers], [m.function for m in layers])


def _text(texts: list[str], made: list[Any]) -> str:
  return "\n".join([_HEAD, *_imports(texts, made), *["\n" + t for t in texts]]) + "\n"


def write() -> None:
  """Write all stubs."""
  for path, text in stubs(): path.write_text(text)
