"""Methods that are another one with its first arguments given: families whose members differ by a row of a table."""
from __future__ import annotations

from typing import Any, Callable, Concatenate, Generic, ParamSpec, TypeVar, overload

from ntgrad.graph import with_given

_A = TypeVar("_A")
_F = TypeVar("_F", bound=Callable[..., Any])
_R = TypeVar("_R")
_S = TypeVar("_S")
_P = ParamSpec("_P")
_Method = Callable[Concatenate[_S, _P], _R]


class _Member(Generic[_P]):
  """Becomes a method of the class that it stands in, by the name that it is first assigned to."""
  made: Any = None

  def __init__(self, result: str, doc: str, *parts: Any) -> None: self.result, self.doc, self.parts = result, doc, parts

  def __set_name__(self, owner: type, name: str) -> None:
    if self.made is None: self.made = self.method(owner, name)
    setattr(owner, name, classmethod(self.made) if isinstance(self.parts[0], classmethod) else self.made)

  def __get__(self, instance: Any, owner: type[_S]) -> Callable[_P, _S]: raise AttributeError   # for mypy: of class methods

  def method(self, owner: type, name: str) -> Any:
    """The method by this name."""
    fn, *given = [x.made if isinstance(x, _Member) else getattr(x, "__func__", x) for x in self.parts]
    made = with_given(fn, name, given, 1, self.result, self.doc)
    made.__qualname__ = f"{owner.__qualname__}.{name}"
    return made


@overload
def member(fn: Callable[Concatenate[_S, str, _P], _R], doc: str, /) -> _Method[_S, _P, _R]: ...
@overload
def member(fn: Callable[Concatenate[_S, str, _A, _P], _R], given: _A, doc: str, /) -> _Method[_S, _P, _R]: ...
@overload
def member(fn: Callable[Concatenate[_S, _A, _P], _R], given: _A, doc: str, /) -> _Method[_S, _P, _R]: ...
def member(*parts: Any) -> Any:
  """A method with what is given behind ``self``, and a docstring: ``exp = member(_unary, UnaryOps.EXP, "e to the power ..")``.
  A method whose first parameter is ``name`` is given the new one's name in front."""
  return _Member("{call}", parts[-1], *parts[:-1])


def class_member(fn: Callable[Concatenate[type[Any], str, _A, _P], Any], given: _A, doc: str) -> _Member[_P]:
  """The same of a class method that gives an object of the class."""
  return _Member("{call}", doc, fn, given)


def in_place(fn: _F) -> _F:
  """The method ``fn``, written in place, by the name that it is assigned to: ``scatter_ = in_place(scatter)``."""
  made: Any = _Member("self._in_place({name!r}, lambda: {call})", f"``{fn.__name__}``, written in place; see ``add_``.", fn)
  return made


def in_a_copy(fn: _F, doc: str) -> _F:
  """The method ``fn``, which writes to its tensor, of a copy: ``put = in_a_copy(put_, "..")``."""
  made: Any = _Member("self._own().{name}_({others})", doc, fn)
  return made
