"""The mark ``long``: which cases have it, what leaves them out, and that the short run still calls every public name."""
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fuzz import test_arguments as arguments, test_keywords as keywords

from support.marks import long, long_after, long_unless, long_where
from support.reached import missed, share

ROOT = Path(__file__).resolve().parents[2]


def left_of(request: pytest.FixtureRequest, *args: str, all: bool = False, mark: str = "") -> list[str]:
  """Which of three tests of a file, one of them long and one where its parameter says so, a command runs."""
  file = str(ROOT/"tests/conftest.py")
  conftest: Any = next(p for p in request.config.pluginmanager.get_plugins() if getattr(p, "__file__", "") == file)
  class Item(SimpleNamespace):
    __hash__ = object.__hash__
    path, callspec = ROOT/"tests/unit/a.py", SimpleNamespace(params={"n": 3, "m": 1})
    def get_closest_marker(self, name: str) -> Any: return next(self.iter_markers(name), None)
    def iter_markers(self, name: str) -> Any: return iter([m for m in self.marks if m.name == name])
    def add_marker(self, name: str) -> None: self.marks.append(getattr(pytest.mark, name).mark)
  where = long_where(lambda n: n > 2).mark
  items, out = [Item(name=name, marks=marks) for name, marks in (("short", []), ("long", [long.mark]), ("where", [where]))], []
  config = SimpleNamespace(option=SimpleNamespace(all=all, markexpr=mark), args=list(args), rootpath=ROOT,
                           hook=SimpleNamespace(pytest_deselected=lambda items: out.extend(items)))
  conftest.pytest_collection_modifyitems(config, items)
  assert {i.name for i in (*items, *out)} == {"short", "long", "where"}
  return [i.name for i in items]


def test_what_runs(request: pytest.FixtureRequest) -> None:
  assert left_of(request) == left_of(request, "tests/unit", "tests/unit/b.py::test_b") == ["short"]
  every = ["short", "long", "where"]
  assert left_of(request, all=True) == left_of(request, mark="long") == every   # which have the mark, pytest sees itself
  assert left_of(request, "tests/unit/a.py::test_a") == every


def test_cases_of_tables() -> None:
  def marked(cases: list[Any]) -> list[Any]: return [c.values for c in cases if getattr(c, "marks", ()) == (long,)]
  assert marked(long_unless(lambda a, b: a < b, [(1, 2), (2, 1)])) == [(2, 1)]
  assert marked(long_unless(str.islower, ["a", "B"])) == [("B",)]
  assert marked(long_after(2, range(4))) == [(2,), (3,)]


def marks(test: Any) -> set[str]:
  """Of a test, and of its cases."""
  own = getattr(test, "pytestmark", [])
  cases = [c for p in own if p.name == "parametrize" for c in p.args[1]]
  return {m.name for m in (*own, *[m for c in cases for m in getattr(c, "marks", ())])}


@pytest.mark.parametrize("test", [
  arguments.test_a_wrong_argument_is_refused, arguments.test_every_public_name_has_a_good_call,   # methods, layers, kernels
  arguments.test_what_has_no_parameters_can_be_called, keywords.test_what_tables_make_can_be_called])
def test_every_public_name_is_called_in_the_short_run(test: Any) -> None: assert "long" not in marks(test)


def test_long_cases_are_seen() -> None: assert "long" in marks(keywords.test_by_place_and_by_name)


def test_lines_that_are_missed() -> None:
  short, full = {"a": {1, 2, 9}}, {"a": {1, 2}, "b": {3}, "c": {4, 5, 6}}
  assert list(missed(short, full).items()) == [("c", {4, 5, 6}), ("b", {3})] and share(short, full) == 1 - 4 / 6
