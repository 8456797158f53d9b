"""The page for those who come from NineToothed: nothing is unknown, and it is what the lists and notes say."""
from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import ntgrad.tile as tile
from support.scripts import load

ROOT = Path(__file__).resolve().parents[2]
tiles = load("docs/names/tiles.py")


def test_the_page_is_what_the_lists_and_notes_say() -> None:
  text, unknown = tiles.page()
  assert unknown == [], "say in docs/names/ninetoothed-notes.txt what these are here, or why they are not"
  assert (ROOT / "docs/coming-from-ninetoothed.md").read_text() == text, "run python docs/names/tiles.py"


def test_what_is_here_takes_what_it_takes_there() -> None:
  """Parameters by name and by place, but for those that a note is about."""
  here = {n: (f, p) for n, p in tiles.names().items() if (f := tiles.found(n)) is not None and n not in tiles.notes()}
  lacking = {n: tiles.lacks(f[1], p) for n, (f, p) in here.items()}
  assert {n: gone for n, gone in lacking.items() if gone} == {}


def test_notes_are_about_names_that_there_are_and_say_what_is_here() -> None:
  names, notes = tiles.names(), tiles.notes()
  assert [n for n in notes if not any(fnmatchcase(name, n) for name in names)] == []
  modules = {"tl": tile.language, "tile": tile}
  for said in notes.values():
    for module, name in re.findall(r"`(tl|tile)\.(\w+)", said): assert hasattr(modules[module], name), said
