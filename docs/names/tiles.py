"""Writes docs/coming-from-ninetoothed.md: each public name of NineToothed and of its language, and what it is here or why not.

    python docs/names/tiles.py           # writes the page
    python docs/names/tiles.py --list    # writes ninetoothed.txt, where ninetoothed and triton are installed

The names are in ``ninetoothed.txt`` with their parameters: ``Tensor.tile(tile_shape, strides)``. Those that are here under the
same name are found by looking, and so are parameters that are not here; the rest is in ``ninetoothed-notes.txt``.
"""
from __future__ import annotations

import inspect
import re
import sys
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import ntgrad.tile as tile  # noqa: E402

ROOMS = {"": tile, "Tensor.": tile.Tensor, "Symbol.": tile.Symbol, "language.": tile.language,
         "language.libdevice.": tile.language.libdevice}


def names() -> dict[str, str]:
  """The names there, with what stands between their brackets."""
  out = {}
  for line in (HERE / "ninetoothed.txt").read_text().split("\n"):
    if m := re.fullmatch(r"([\w.]+)(?:\((.*)\))?", line): out[m[1]] = m[2] or ""
  return out


def notes() -> dict[str, str]:
  """What is said of names, and of patterns of names that are not here."""
  lines = [n for n in (HERE / "ninetoothed-notes.txt").read_text().split("\n") if n and n[0] != "#"]
  return {first.strip(): rest.strip() for first, _, rest in (n.partition("|") for n in lines)}


def found(name: str) -> tuple[str, Any] | None:
  """Where a name is here, and what it is."""
  prefix = max((p for p in ROOMS if name.startswith(p)), key=len)
  last = name.removeprefix(prefix)
  if not hasattr(ROOMS[prefix], last): return None
  where = {"": "tile.", "language.": "tl.", "language.libdevice.": "tl.libdevice."}.get(prefix, f"tile.{prefix}")
  return f"`{where}{last}`", getattr(ROOMS[prefix], last)


def lacks(fn: Any, parameters: str) -> str:
  """The parameters that are not here under these names and at these places."""
  if inspect.isclass(fn): fn = fn.__init__
  try: mine = [p for p in inspect.signature(fn).parameters.values() if p.name != "self"]
  except (TypeError, ValueError): return ""
  if any(p.kind is p.VAR_KEYWORD for p in mine): return ""
  named = {p.name: i for i, p in enumerate(mine)}
  more = next((i for i, p in enumerate(mine) if p.kind is p.VAR_POSITIONAL), len(mine))
  there = [n for n in re.findall(r"\w+", parameters) if n not in ("self", "kwargs") and n[0] != "_"]
  return ", ".join(f"`{n}`" for i, n in enumerate(there)
                   if not re.fullmatch(r"arg\d", n) and (named.get(n) != i if i < more else more == len(mine) and n not in named))


def page() -> tuple[str, list[str]]:
  """The page, and the names of which nothing is known."""
  said, unknown, rows = notes(), [], []
  for name, parameters in names().items():
    here = found(name)
    note = said.get(name) or next((v for k, v in said.items() if here is None and fnmatch(name, k)), "")
    if here is None and not note: unknown.append(name)
    missing = lacks(here[1], parameters) if here is not None and name not in said else ""
    rows.append(f"| `{name}` | {here[0] if here is not None else '–'} | {note or (f'without {missing}' if missing else '')} |")
  count = sum(found(n) is not None for n in names())
  return (
    "# Coming from NineToothed\n\n"
    "Each public name of NineToothed 0.26 and of its language (Triton 3.9's, and libdevice), and what it is here. Written by\n"
    "`python docs/names/tiles.py`. `import ntgrad.tile as tile`, `import ntgrad.tile.language as tl`; what differs in\n"
    "meaning is in [tile.md](tile.md#coming-from-ninetoothed-or-triton).\n\n"
    f"{count} of {len(rows)} names are here.\n\n| there | here | what differs, or why |\n|---|---|---|\n" + "\n".join(rows) + "\n"
  ), unknown


def listed() -> list[str]:
  """The names of the installed package."""
  import ninetoothed
  import triton.language
  from triton.language.extra import libdevice
  def text(prefix: str, place: Any, name: str) -> str:
    x = getattr(place, name)
    x = getattr(x, "fn", x)   # what triton.jit has decorated has the signature of the decoration
    try: return f"{prefix}{name}({', '.join(n for n in inspect.signature(x).parameters if not n.startswith('_'))})"
    except (TypeError, ValueError): return prefix + name
  out = [text("", ninetoothed, n) for n in sorted(ninetoothed.__all__)]
  for cls in (ninetoothed.Tensor, ninetoothed.Symbol):
    out += [text(f"{cls.__name__}.", cls, n) for n in sorted(vars(cls)) if n[0] != "_"]
  out += [text("language.", triton.language, n) for n in sorted(triton.language.__all__)]
  out += [text("language.libdevice.", libdevice, n) for n in sorted(dir(libdevice))
          if n[0] != "_" and getattr(getattr(libdevice, n), "__module__", "") == libdevice.__name__]
  return [re.sub(r"\bself, |\bself\b", "", n) for n in out]


if __name__ == "__main__":
  if "--list" in sys.argv: (HERE / "ninetoothed.txt").write_text("\n".join(listed()) + "\n")
  else:
    written, missing = page()
    (HERE.parent / "coming-from-ninetoothed.md").write_text(written)
    if missing: print("say in ninetoothed-notes.txt what these are here, or why they are not:", *missing)
