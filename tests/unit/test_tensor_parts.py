"""The parts of ``Tensor``: each derives from the parts whose methods it uses, and from no other.

That it derives from all of them is also what mypy holds, which has to know what ``self`` has.
"""
from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Callable

import pytest

from ntgrad import Tensor
from ntgrad.core import Base
from ntgrad.tensor.families import class_member, in_a_copy, in_place, member
from support.tensor_parts import Reader, owners, parts, returns, uses

ROOT = Path(__file__).resolve().parents[2]


def reads(source: str) -> set[str]:
  """The names that methods of a class with this body use."""
  return set(Reader("class P:\n" + "\n".join(f"  {line}" for line in source.split("\n")), "P", {}, returns()).found)


@pytest.mark.parametrize("source, names", [
  ("def f(self): return self.exp().sum()", {"exp", "sum"}),
  ("def f(self, x: Operand): return 1 - x.T", {"T", "__rsub__"}),
  ("def f(self, n: int, u: UOp): return n + u.arg", set()),
  ("def f(self):\n  a, b = self.split(2), -self\n  return b @ a[0]", {"split", "__neg__", "__matmul__"}),
  ("def f(self): return [t[0] < 1 for t in self.unbind()]", {"unbind", "__getitem__", "__lt__"}),
  ("@classmethod\ndef f(cls): return cls.zeros(3).lazydata + 1", {"zeros", "lazydata"}),
  ("def f(self):\n  x: Any = self\n  x += x.shape[0]\n  return type(x).full(2)", {"__add__", "shape", "full"}),
  ("exp_ = log_ = _written", {"exp", "log"}), ("half = member(Elementwise.cast, dtypes.float16, '')", {"cast"}),
])
def test_what_a_method_uses(source: str, names: set[str]) -> None: assert reads(source) == names


@pytest.mark.parametrize("part", parts(), ids=lambda p: p.__name__)
def test_a_part_derives_from_what_it_uses(part: type) -> None:
  needed: dict[type, str] = {}
  missing = []
  for name, use in uses(part).items():
    for owner in owners(name):
      if owner is part or part in owners(name): continue
      needed.setdefault(owner, name)
      if use.sure and not issubclass(part, owner):
        missing.append(f"{part.__module__}:{use.line}: {part.__name__} uses {name}, but does not derive from {owner.__name__}")
  assert not missing, "\n".join(missing)
  for name in vars(part):   # what it has again, and calls by super()
    needed.update({o: name for o in owners(name) if o is not part and issubclass(part, o)})
  unneeded = [b.__name__ for b in part.__bases__ if b is not Base and b not in needed]
  assert not unneeded, f"{part.__name__} derives from {', '.join(unneeded)}, of which it uses nothing"
  again = [b.__name__ for b in part.__bases__ if any(o is not b and issubclass(o, b) for o in part.__bases__)]
  assert not again, f"{part.__name__} names {', '.join(again)}, which another base brings in"
  assert vars(part)["__slots__"] == ()


def test_tensor_derives_from_what_no_part_derives_from() -> None:
  tops = {p for p in parts() if not any(p in q.__bases__ for q in parts())}
  assert set(Tensor.__bases__) == tops


def section() -> str:
  """What the documentation says of the parts."""
  return (ROOT / "docs/architecture.md").read_text().split("## The parts of Tensor\n")[1].split("\n## ")[0]


def test_the_files_of_the_documentation() -> None:
  """Every file is named, and the methods that are named beside it are in it."""
  rows = [[cell.split("; ") for cell in row] for row in re.findall(r"^\| (.*) \| (.*\.py`) \|$", section(), flags=re.M)]
  found, wrong = set(), []
  for whats, files in rows:
    assert len(whats) == len(files)
    for what, where in zip(whats, files):
      names = re.findall(r"`(\w+\.py)`", where)
      found.update(names)
      for name in re.findall(r"`(\w+)`", what):
        made = inspect.getattr_static(Tensor, name, None)
        if made is None: continue
        of = Path(inspect.unwrap(getattr(made, "__func__", made)).__code__.co_filename).name
        if of not in names: wrong.append(f"{name} is in {of}, not in {where}")
  assert not wrong, "\n".join(wrong)
  assert found == {p.name for p in (ROOT / "ntgrad/tensor").glob("*.py")}


def test_the_table_of_the_documentation() -> None:
  rows = [[re.findall(r"`(\w+)`", cell) for cell in row] for row in re.findall(r"^\| (`.*) \| (.*) \|$", section(), flags=re.M)]
  table = {part: bases for bases, of in rows for part in of}
  assert table == {p.__name__: [b.__name__ for b in p.__bases__] for p in parts()}


class Family:
  """Methods that are made of others."""
  def _both(self, name: str, k: int, x: int, *more: int, y: int = 2) -> tuple[object, ...]: return name, k, x, more, y
  one = uno = member(_both, 1, "The first.")
  two = member(_both, 2, "The second.")
  @classmethod
  def _named(cls, name: str, k: int, x: int = 5) -> tuple[object, ...]: return cls, name, k, x
  three = class_member(_named, 3, "The third.")
  def _own(self) -> Family: return Family()
  def _in_place(self, name: str, make: Callable[[], object]) -> object: return name, make()
  def put_(self, x: int) -> tuple[object, int]: return self, x
  put = in_a_copy(put_, "The fourth.")
  one_ = in_place(put_)


def test_members_of_a_family() -> None:
  a: Any = Family()
  assert a.one(3, 4, y=5) == a.uno(3, 4, y=5) == ("one", 1, 3, (4,), 5) and a.two(3) == ("two", 2, 3, (), 2)
  assert str(inspect.signature(Family.two)) == "(self, x: 'int', *more: 'int', y: 'int' = 2) -> 'tuple[object, ...]'"
  assert Family.one.__doc__ == "The first." and Family.one.__qualname__ == "Family.one" and Family.uno is Family.one
  assert Family.three() == (Family, "three", 3, 5)
  assert a.put(7)[0] is not a and a.put(7)[1] == 7 and a.one_(8) == ("one_", (a, 8))
