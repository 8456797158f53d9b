"""The reference page of the tile language has everything that is public, and everything that is public says what it is."""
from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.codegen.ir.dtype import DType

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tile.md").read_text()
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = "\n".join(m[2] for m in _FENCE.finditer(PAGE) if m[1] == "python")
CODE = PYTHON + "\n".join(re.findall(r"`([^`]+)`", _FENCE.sub("", PAGE)))

FUNCTIONS = {n: f for n, f in vars(tl).items() if not n.startswith("_") and inspect.isfunction(f)
             and f.__module__ == "ntgrad.tile.operations"}
DTYPES = [n for n, d in vars(tl).items() if isinstance(d, DType)]
LIBDEVICE = [n for n in vars(tl.libdevice) if not n.startswith("_")]
TENSOR = [n for n in vars(tile.Tensor) if not n.startswith("_")]
META = ["tile", "expand", "squeeze", "unsqueeze", "permute", "flatten", "unflatten", "ravel", "pad", "flip"]


def named(name: str, text: str) -> bool: return re.search(rf"(?<![\w]){re.escape(name)}(?!\w)", text) is not None


@pytest.mark.parametrize("name", tile.__all__)
def test_public_names_of_tile(name: str) -> None: assert named(name, CODE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_a_line_that_runs(name: str) -> None: assert named(f"tl.{name}", PYTHON)


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_listed(name: str) -> None: assert named(f"tl.{name}", CODE)


def test_other_names_of_the_language() -> None:
  assert all(named(n, CODE) for n in ("tl.libdevice", "tl.constexpr"))
  assert [n for n in LIBDEVICE if not named(n, CODE)] == []
  own = set(LIBDEVICE) - {n for n in LIBDEVICE if n in FUNCTIONS}
  assert [n for n in own if not named(f"tl.libdevice.{n}", PYTHON)] == [], "names that only libdevice has run under these names"


@pytest.mark.parametrize("name", TENSOR)
def test_what_a_tensor_has_is_listed(name: str) -> None: assert named(name, CODE)


@pytest.mark.parametrize("name", META)
def test_meta_operations_have_a_heading_a_line_and_a_refusal(name: str) -> None:
  heading = re.search(rf"^\*\*`{name}\(.*?\)`\*\*.*?(?=^\*\*`|^## )", PAGE, re.MULTILINE | re.DOTALL)
  assert heading is not None and f".{name}(" in heading[0] and "→" in heading[0] and "\n  refused: " in heading[0]


@pytest.mark.parametrize("cls", [tile.Symbol, tile.Tensor], ids=lambda c: c.__name__)
def test_constructor_options_are_listed(cls: Any) -> None:
  assert [p for p in inspect.signature(cls).parameters if not named(p, CODE)] == []


@pytest.mark.parametrize(
  "fn", [tile.make, tile.build, tile.function, tile.visualize, tile.Jagged, tile.Config, tile.load], ids=lambda f: f.__name__
)
def test_parameters_are_listed(fn: Any) -> None:
  assert [p for p in inspect.signature(fn).parameters if p != "caller" and not named(p, CODE)] == []


def public() -> list[tuple[str, Any]]:
  """Everything with a name that a person calls or reads."""
  out: list[tuple[str, Any]] = [(f"tile.{n}", getattr(tile, n)) for n in tile.__all__] + [
    (f"tl.{n}", f) for n, f in FUNCTIONS.items()
  ]
  for cls in (tile.Symbol, tile.Tensor):
    out += [
      (f"{cls.__name__}.{n}", f)
      for n, f in vars(cls).items()
      if not n.startswith("_") and (inspect.isfunction(f) or isinstance(f, property))
    ]
  return out


@pytest.mark.parametrize("name,what", public(), ids=lambda v: v if isinstance(v, str) else "")
def test_docstrings(name: str, what: Any) -> None: assert inspect.getdoc(what), f"{name} has no docstring"


def test_lines_are_short() -> None: assert [n for n, line in enumerate(PAGE.splitlines(), 1) if len(line) > 140] == []
