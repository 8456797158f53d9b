"""Writes docs/coming-from-pytorch.md and docs/coming-from-tinygrad.md: each public name there, and what it is here or why not.

    python docs/names/tables.py          # writes both
    python docs/names/tables.py --check  # names of which nothing is known

The names are in ``pytorch.txt`` and ``tinygrad.txt``; where a name is here is found by looking, the rest stands in ``notes.txt``.
"""
from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))


import ntgrad  # noqa: E402
from ntgrad import Tensor, nn  # noqa: E402

# a prefix there -> where to look here, in this order: the object, how its names are written
PLACES: dict[str, list[tuple[Any, str]]] = {
  "Tensor.": [(Tensor, "Tensor.{}")],
  "torch.": [(ntgrad, "ntgrad.{}"), (Tensor, "Tensor.{}")],
  "nn.functional.": [(Tensor, "Tensor.{}")],
  "linalg.": [(Tensor, "Tensor.{}")],
  "": [(ntgrad, "ntgrad.{}")]}
MODULES = {"nn.init.": "ntgrad.nn.init", "nn.utils.": "ntgrad.nn.utils", "optim.lr_scheduler.": "ntgrad.nn.optim.lr_scheduler",
           "optim.": "ntgrad.nn.optim", "nn.optim.": "ntgrad.nn.optim", "utils.data.": "ntgrad.nn.data",
           "nn.state.": "ntgrad.nn.state", "nn.datasets.": "ntgrad.nn.datasets", "helpers.": "ntgrad.helpers", "nn.": "ntgrad.nn"}
TITLES = {"pytorch": "PyTorch", "tinygrad": "tinygrad"}


def notes() -> tuple[dict[str, tuple[str, str]], list[tuple[str, str]]]:
  """Names and patterns of ``notes.txt``."""
  names, patterns = {}, []
  for line in (HERE / "notes.txt").read_text().splitlines():
    if not line.strip() or line[0] == "#": continue
    first, *rest = [part.strip() for part in re.split(r" \| ?", line)]
    if first.startswith("~ "): patterns.append((first[2:], rest[0]))
    else: names[first] = rest[0], rest[1] if len(rest) > 1 else ""
  return names, patterns


NAMES, PATTERNS = notes()


def found(name: str) -> str | None:
  """Where a name is here, as it is written."""
  for prefix, module in sorted(MODULES.items(), key=lambda m: -len(m[0])):
    if name.startswith(prefix):
      last = name.removeprefix(prefix)
      try: place = importlib.import_module(module)
      except ImportError: place = None
      if last and "." not in last and place is not None and hasattr(place, last):
        return f"`{module.removeprefix('ntgrad.')}.{last}`"
  for prefix, places in PLACES.items():
    last = name.removeprefix(prefix)
    if not name.startswith(prefix) or "." in last: continue
    for place, written in places:
      if hasattr(place, last): return f"`{written.format(last)}`"
      if place is Tensor and last.endswith("_") and hasattr(place, last[:-1]): return f"`x.assign(x.{last[:-1]}(..))`"
  return None


def entry(name: str) -> tuple[str, str] | None:
  """Where a name is here, and a remark; None where nothing is known of it."""
  if name in NAMES: return NAMES[name]
  where = found(name)
  if where is not None: return where, ""
  return next((("–", why) for pattern, why in PATTERNS if re.fullmatch(pattern, name)), None)


def document(library: str) -> tuple[str, list[str]]:
  """The page of a library, and the names of which nothing is known."""
  names = (HERE / f"{library}.txt").read_text().split()
  entries = {n: entry(n) for n in names}
  about = (HERE / f"{library}.md").read_text().strip()
  lines = [f"# Coming from {TITLES[library]}", "", "<!-- written by docs/names/tables.py -->", "", about, ""]
  here = sum(1 for e in entries.values() if e is not None and e[0] != "–")
  lines += [f"{here} of {len(names)} public names are here.", "", f"| {TITLES[library]} | here | remark |", "| --- | --- | --- |"]
  lines += [f"| `{n}` | {e[0]} | {e[1]} |" for n, e in entries.items() if e is not None]
  return "\n".join(lines) + "\n", [n for n, e in entries.items() if e is None]


def main() -> int:
  unknown = 0
  for library in TITLES:
    text, missing = document(library)
    unknown += len(missing)
    if "--check" in sys.argv: print(library, len(missing), *missing, sep="\n  ")
    else: (HERE.parent / f"coming-from-{library}.md").write_text(text)
  assert nn
  return unknown > 0


if __name__ == "__main__": sys.exit(main())
