"""Layers that are functions with their parameters kept: the rows ``LAYERS`` of the table of signatures.

``ELU(alpha, inplace): elu`` is::

    @layer
    class ELU(Layer):
      alpha: float = 1.0
      inplace: bool = False
      def __call__(self, input: Tensor) -> Tensor: return Tensor.elu(input, self.alpha)

Types and defaults are those of ``nn.functional.elu``. ``inplace`` writes the result to the input, as PyTorch has it. No memory is
saved by it: it is for programs that go on with the input.
"""
from __future__ import annotations

import ast
import os
import re
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, TypeVar, dataclass_transform

from ntgrad.codegen.ir import ArgumentError
from ntgrad.compat.signatures import FUNCTIONAL, each_layer
from ntgrad.graph import checked
from ntgrad.tensor.made import Made, Row, parts, rows

from .common import batched_or_not, ints, probability
from .module import Module, forward_of

C = TypeVar("C", bound=type)
_REDUCTIONS = {"KLDivLoss": ("mean", "batchmean", "sum", "none")}   # of others without batchmean
_LEAST = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}   # of windows, for each spatial dimension


@dataclass_transform()
def layer(cls: C) -> C:
  """A layer whose arguments are the class's annotated attributes, checked as all public functions' are."""
  kind: Any = cls
  if "__call__" not in vars(kind): kind.__call__, kind.forward = kind.__call__, forward_of(kind)   # refuses under its own name
  made: Any = checked(dataclass(repr=False, eq=False)(cls))
  made._said = " ".join(f.name for f in fields(made) if f.name != "inplace" and f.name not in getattr(made, "_unsaid", ()))
  return made


class Layer(Module):
  """What layers of the table have in common: their arguments are checked once, when they are made."""
  _rank = 0   # of windows: how many spatial dimensions there are
  _drops = False

  def __post_init__(self) -> None:
    name, kept = type(self).__name__, vars(self)
    if self._drops: probability(f"nn.{name}", "p", kept["p"])
    if "reduction" in kept and kept["reduction"] not in (known := _REDUCTIONS.get(name, ("mean", "sum", "none"))):
      raise ArgumentError(f"nn.{name}: reduction {kept['reduction']!r}; "
                          f"it takes {', '.join(map(repr, known[:-1]))} or {known[-1]!r}")
    if "lower" in kept and not kept["lower"] <= kept["upper"]:
      raise ArgumentError(f"nn.{name}: lower {kept['lower']}, upper {kept['upper']}; they must be in order")
    if "output_ratio" in kept and (kept["output_size"] is None) is (kept["output_ratio"] is None):
      raise ArgumentError(f"nn.{name}: give output_size or output_ratio, one of them")
    if not self._rank: return
    if "output_size" in kept and "kernel_size" not in kept:   # None keeps a size
      sizes = kept["output_size"] if isinstance(kept["output_size"], (tuple, list)) else (kept["output_size"],) * self._rank
      ints(name, "output_size", tuple([1 if n is None else n for n in sizes]), self._rank, 1)
    if kept.get("stride", 0) is None: self.stride = kept["kernel_size"]
    for what in _LEAST.keys() & kept.keys(): setattr(self, what, ints(name, what, kept[what], self._rank, _LEAST[what]))


# ---- made of rows

_ROW = re.compile(r"(\w+)\((.*?)\): (\w+)(?:\((.*)\))?")
_FUNCTIONS = rows(FUNCTIONAL)
_ROWS = {row.partition("(")[0]: row for row in each_layer()}


class MadeLayer:
  """A row of ``LAYERS``, read: the layer's name, its function, its arguments (names with annotation and default, as source) and
  what a call takes."""

  def __init__(self, row: str):
    self.name, given, function, also = parts(_ROW, row)
    self.function = Made(function, _FUNCTIONS.get(function) or Row(f"input{'1' * ('input2' in also)}, ...", function, ""))
    arguments = self.function.definition.args
    self.kinds = {a.arg: ast.unparse(a.annotation) if a.annotation else "Any" for a in self.function.parameters}
    self.defaults = {a.arg: ast.unparse(v) for a, v in zip([*arguments.args, *arguments.kwonlyargs], [
      *[None] * (len(arguments.args) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]) if v is not None}
    words = [w for w in given.split(", ") if w]
    self.unsaid = frozenset(w[1:] for w in words if w[0] == "-")
    self.fields = [w.removeprefix("-") for w in words]
    self.called = [self.function.first, *[w for w in also.split(", ") if w]]
    self.rank = int(next(iter(re.findall(r"\d", self.name)), 0)) if {"kernel_size", "output_size"} & {*self.fields} else 0
    self.drops = "training" in self.function.values and "p" in self.fields

  def field(self, name: str) -> str:
    """An argument of the class: operands are tensors here, since what is kept is shown, loaded and moved as such."""
    return "_: KW_ONLY" if name == "*" else self._said(name, self.kinds[name].replace("Operand", "Tensor"))

  def parameter(self, name: str) -> str:
    """A parameter of the call."""
    return self._said(name, "Tensor" if name == self.called[0] else "Any" if (k := self.kinds[name]) == "Operand" else k)

  def _said(self, name: str, kind: str) -> str:
    return f"{name}: {kind}{f' = {self.defaults[name]}' if name in self.defaults else ''}"

  @property
  def heading(self) -> str:
    """``__call__``'s first line."""
    return f"def __call__(self, {', '.join(map(self.parameter, self.called))}) -> {ast.unparse(self.function.definition.returns)}"

  def source(self) -> str:
    """The class."""
    values = {n: (n if n in self.called else f"self.{n}" if n in self.fields else "") for n in self.function.values}
    if "training" in values:
      without = "nothing is dropped" if self.drops else "the slope is the mean of both"
      values["training"] = f"{'self.p != 0 and ' * self.drops}self._trains({without!r})"
    for n, own in self.function.values.items():   # Softmax's dim where none is given
      if values[n] and own.startswith("_implicit_dim"): values[n] = own.replace(f"({n},", f"({values[n]},")
    call = self.function.call(self.function.first, {n: v for n, v in values.items() if v})
    if "inplace" in self.fields: call = f"_written('nn.{self.name}', {self.function.first}, {call}, self.inplace)"
    return "\n".join([
      "from __future__ import annotations", "@_layer", f"class {self.name}(_Layer):", f"  {self.function.text!r}",
      f"  _rank, _unsaid, _drops = {self.rank}, {self.unsaid!r}, {self.drops}",
      f"  _buffers = frozenset({[n for n in self.fields if 'Operand' in self.kinds.get(n, '')]!r})",
      *[f"  {self.field(n)}" for n in self.fields],
      f"  {self.heading}:", f'    """See the class. Raises as :func:`nn.functional.{self.function.name}`."""',
      *[f"    _batched_or_not({self.name!r}, {self.function.first}, {self.rank})"] * bool(self.rank), f"    return {call}"])


def class_of(name: str) -> Any:
  """The layer of a row. Raises KeyError where there is none of this name."""
  made = MadeLayer(_ROWS[name])
  scope = {**made.function.scope(), "_layer": layer, "_Layer": Layer, "_batched_or_not": batched_or_not,
           "KW_ONLY": KW_ONLY, "__name__": "ntgrad.nn.layers"}
  exec(compile(made.source(), f"{os.path.dirname(__file__)}/<layer {name}>", "exec"), scope)
  return scope[name]
