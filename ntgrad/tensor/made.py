"""Functions made of methods of ``Tensor`` by rows of the table of signatures (``compat/signatures.py``)."""
from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from ntgrad.graph import checked, other_names

from . import Tensor
from .convolution import numbers

_STATIC = staticmethod, classmethod
_ROW = re.compile(r"(\w+)(?::(\w+))?(?:\((.*)\))?")   # name:method(further arguments)


class Row(NamedTuple):
  """A function: its parameters as source, the method that it calls, and arguments of that which are always the same."""
  parameters: str
  method: str
  fixed: str


def parts(pattern: re.Pattern[str], row: str) -> list[str]:
  """The parts of a row of the table. Raises ValueError for one that is wrong."""
  found = pattern.fullmatch(row)
  if found is None: raise ValueError(f"compat/signatures.py: {row!r} is no row")
  return [*found.groups("")]


def rows(table: Mapping[str, str]) -> dict[str, Row]:
  """The rows of a table that has the names for each list of parameters: ``"sum"``, or ``"expit:sigmoid"`` where the method has
  another name, or ``"upsample_nearest:interpolate(mode='nearest')"``; ``"lp_poolNd"`` is three names, with 1, 2 and 3."""
  out = {}
  for parameters, names in table.items():
    for word in names.split():
      for one in [word.replace("Nd", f"{n}d") for n in (1, 2, 3)] if "Nd" in word else [word]:
        name, of, fixed = parts(_ROW, one)
        out[name] = Row(parameters, of or name, fixed)
  return out


def method(name: str) -> Any:
  """The public method of ``Tensor`` with this name, None where there is none."""
  if name.startswith("_"): return None
  found = inspect.getattr_static(Tensor, name, None)
  return getattr(Tensor, name) if isinstance(found, _STATIC) or inspect.isfunction(found) else None


# ---- what a parameter that only functions have does: its annotation in a row -> the parameter's annotation, and its argument

def _implicit_dim(dim: Any, ndim: int) -> Any:
  """The dim that a softmax without one goes along in PyTorch: 0 for 0, 1 and 3 dimensions, else 1."""
  return dim if dim is not None else 0 if ndim in (0, 1, 3) else 1


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
  """The reduction, which the two older arguments stand for where one of them is given."""
  if size_average is None and reduce is None: return reduction
  return "none" if reduce is False else "sum" if size_average is False else "mean"


_OWN = {"Spatial": ("Ints", "_numbers({name!r}, {p!r}, {p}, {rank}, {least})"),
        "Implicit": ("Any", "_implicit_dim({p}, {first}.ndim)")}
# what methods have not
_OLDER = {"size_average": "bool | None", "reduce": "bool | None", "inplace": "bool", "cudnn_enabled": "bool",
          "memory_format": "str | None", "out_int32": "bool"}
_NOT_PASSED = {*_OLDER, "out"}


def written(name: str, input: Tensor, result: Tensor, inplace: bool = True) -> Tensor:
  """A result, or with ``inplace`` the input with the result written to it. Raises as ``Tensor.add_``."""
  return input._in_place(name, lambda: result) if inplace else result


def _into(out: Tensor | None, result: Tensor) -> Tensor: return result if out is None else out.assign(result)


_TOOLS = {"_into": _into, "_numbers": numbers, "_implicit_dim": _implicit_dim, "_reduction_of": reduction_of,
          "_written": written}


def _parsed(source: str) -> Any: return ast.parse(source).body[0]


def _of_functions(annotation: Any) -> str:
  """An annotation in a method (or a parameter with one) as functions have it; "" where there is none."""
  return "" if annotation is inspect.Parameter.empty else re.sub(r"\b(Self|Base)\b", "Tensor", str(annotation))


class Made:
  """A row, read: a function's name, its parameters with annotations (``definition``, an ast), and how it calls the method.

  Arguments go to the method's parameters of the same name (or of one that it takes for it, ``dim`` for ``axis``), else to the one
  at the same place; what finds none has no effect. ``...`` among a row's parameters stands for the method's own.
  """

  def __init__(self, name: str, row: Row):
    self.name, self.fixed, self.method = name, row.fixed, method(row.method) or method(row.method.removesuffix("_"))
    self.always_written = method(row.method) is None   # elu_, which Tensor has not
    self.theirs = inspect.signature(self.method).parameters
    of_tensor, has = "self" in self.theirs, [p for p in self.theirs.values() if p.name != "self"]
    self.definition = _parsed(f"def {name}({row.parameters.replace('...', ', '.join(map(_of_functions, map(str, has))))}): pass")
    given = self.definition.args
    self.parameters: list[Any] = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    self.first: str = self.parameters[0].arg
    if of_tensor: self.parameters.pop(0).annotation = ast.Name("Tensor")
    self.definition.returns = ast.Name(_of_functions(inspect.signature(self.method).return_annotation) or "Any")
    self.at = self._places([p.name for p in has])
    self.values = {a.arg: self._value(a) for a in self.parameters}
    if "size_average" in self.values: self.values["reduction"] = "_reduction_of(size_average, reduce, reduction)"

  def _places(self, theirs: list[str]) -> dict[str, str]:
    """The method's parameter for each of the function's that has one."""
    also, names = other_names(self.method), [a.arg for a in self.parameters]
    out = {n: m for n in names if (m := n if n in theirs else also.get(n)) in theirs}
    for n, m in zip(names, theirs):
      if n not in out and n not in _NOT_PASSED and m not in out.values(): out[n] = m
    return out

  def _value(self, a: Any) -> str:
    """The argument for a parameter, as source; gives the parameter its annotation."""
    said = "" if a.annotation is None else ast.unparse(a.annotation).strip("'")
    kind, value = _OWN.get(said, (said, "{p}"))
    if not kind and (m := self.at.get(a.arg)) is not None: kind = _of_functions(self.theirs[m].annotation)
    if kind := kind or _OLDER.get(a.arg, ""): a.annotation = ast.Name(kind)
    return value.format(name=self.name, p=a.arg, first=self.first, rank=next(iter(re.findall(r"\d", self.name)), "2"),
                        least=int(a.arg != "padding"))

  def call(self, first: str, values: Mapping[str, str]) -> str:
    """The method's call as source: arguments by place as long as the places agree, then by name."""
    given = [first] if "self" in self.theirs else []
    places, by_place = [p.name for p in self.theirs.values() if p.kind is not p.KEYWORD_ONLY], True
    for n, value in values.items():
      if (m := self.at.get(n)) is None or f"{m}=" in self.fixed: continue
      by_place = by_place and len(given) < len(places) and places[len(given)] == m
      given.append(value if by_place else f"{m}={value}")
    return f"_method({', '.join([*given, *([self.fixed] if self.fixed else [])])})"

  def scope(self) -> dict[str, Any]:
    """What the source of a call, and the annotations, name."""
    home = inspect.unwrap(self.method).__globals__
    return {**home, **_TOOLS, "Tensor": Tensor, "_method": self.method, "_home": home["__name__"]}

  @property
  def heading(self) -> str:
    """``def name(parameters) -> what it gives``."""
    return ast.unparse(self.definition).partition(":\n")[0]

  @property
  def text(self) -> str:
    """The method's docstring, with parameters as the function calls them: in code, and those that are no words."""
    known = {m: n for n, m in self.at.items()}
    def renamed(m: re.Match[str]) -> str: return re.sub(r"\w+", lambda w: known.get(w[0], w[0]), m[0])
    return re.sub(r"``.*?``|\b\w+_\w+\b|\bx\b", renamed, self.method.__doc__ or "", flags=re.S)


def function(name: str, row: Row, module: str = __name__) -> Callable[..., Any]:
  """The function of a row, as one of a module::

      function("sum", Row("input, dim=None, keepdim=False, *, dtype=None", "sum", ""))

  is ``def sum(input, dim=None, keepdim=False, *, dtype=None): return Tensor.sum(input, dim, keepdim, dtype=dtype)``. What PyTorch
  calls ``dim`` may be called ``axis``, as it may there. With ``inplace`` the result is written to the input.
  """
  made = Made(name, row)
  result, scope = made.call(made.first, made.values), made.scope() | {"__name__": module}
  if made.always_written or "inplace" in made.values:
    result = f"_written({name!r}, {made.first}, {result}{', inplace' if 'inplace' in made.values else ''})"
  if "out" in made.values: result = f"_into(out, {result})"
  exec(compile(f"from __future__ import annotations\n{made.heading}: return {result}",
               os.path.join(os.path.dirname(__file__), f"<function {name}>"), "exec"), scope)   # a file of ntgrad's
  out = scope[name]
  out.__doc__, out.__checked_below__ = made.text, {n for n, m in made.at.items() if n == m and made.values[n] == n}
  return checked(out)


def functions(table: Mapping[str, str], module: str) -> dict[str, Callable[..., Any]]:
  """All functions of a table, by name."""
  return {name: function(name, row, module) for name, row in rows(table).items()}
