"""Methods that are another one with its first arguments given: families whose members differ by a row of a table."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Concatenate, Generic, ParamSpec, TypeVar, overload

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
    """A function of the parameters that are left: ``def exp(self): return _fn(self, _0)``. It is written out, as a call by
    ``*args`` takes longer; errors show it in the line of the method that it calls."""
    fn, *given = [x.made if isinstance(x, _Member) else getattr(x, "__func__", x) for x in self.parts]
    code = fn.__code__
    if code.co_varnames[1:2] == ("name",): given = [name, *given]
    n, known = code.co_argcount, {f"_{i}": x for i, x in enumerate(given)}
    k = n + code.co_kwonlyargcount
    left, by_name = code.co_varnames[1 + len(given):n], code.co_varnames[n:k]
    star = [f"*{code.co_varnames[k]}"] if code.co_flags & inspect.CO_VARARGS else []
    passes = ", ".join([*known, *left, *star, *[f"{p}={p}" for p in by_name]])
    result = self.result.format(name=name, call=f"_fn({code.co_varnames[0]}, {passes})", others=passes)
    text = "\n" * (code.co_firstlineno - 1) + (
      f"def {name}({code.co_varnames[0]}, {', '.join([*left, *(star or ['*'] * bool(by_name)), *by_name])}): return {result}")
    scope = {**fn.__globals__, **known, "_fn": fn}
    exec(compile(text, code.co_filename, "exec"), scope)
    made = scope[name]
    made.__annotations__ = {k: v for k, v in fn.__annotations__.items() if k in (*left, *by_name, "return") or f"*{k}" in star}
    made.__doc__, made.__qualname__ = self.doc.strip(), f"{owner.__qualname__}.{name}"
    for k in "__defaults__", "__kwdefaults__": setattr(made, k, getattr(fn, k))
    made.__dict__.update(fn.__dict__)
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
