"""Calls of functions that tables make of methods, derived from the methods' good calls, and of the array API's functions."""
from __future__ import annotations

import inspect
from typing import Any, Callable

import ntgrad
from ntgrad import Tensor, array_api as xp, linalg, special
from ntgrad.compat.signatures import LINALG, SPECIAL, TOP
from ntgrad.tensor.made import method, rows

P = inspect.Parameter
PLACED = (P.POSITIONAL_ONLY, P.POSITIONAL_OR_KEYWORD)
OF_INTS = ("bitwise_not",)   # methods without parameters that floats have not


def tables() -> dict[str, tuple[Any, str]]:
  """Functions that are made by tables, with the names of their methods."""
  places: Any = (("ntgrad", ntgrad, TOP), ("linalg", linalg, LINALG), ("special", special, SPECIAL))
  return {f"{at}.{n}": (getattr(module, n), row.method) for at, module, table in places for n, row in rows(table).items()}


def of_methods(call: Any, good: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
  """A call of each function of a table: its method's good call, with the tensor in front."""
  def make(fn: Any, of: str) -> Any:
    known = good.get(f"Tensor.{of}")
    x = Tensor.ones(2, 2, dtype="int32") if of in OF_INTS else Tensor.ones(2, 2) * 0.5
    made = call(getattr(x, of)) if known is None else known()
    own = [made.fn.__self__] if inspect.ismethod(made.fn) and isinstance(made.fn.__self__, Tensor) else []
    bound = inspect.signature(made.fn).bind(*made.args, **made.kwargs).arguments
    parameters = list(inspect.signature(fn).parameters.values())
    named = {p.name: bound[p.name] for p in parameters if p.kind is P.KEYWORD_ONLY and p.name in bound}
    placed = [v for n, v in bound.items() if inspect.signature(made.fn).parameters[n].kind in PLACED and n not in named]
    several = [v for n, v in bound.items() if inspect.signature(made.fn).parameters[n].kind is P.VAR_POSITIONAL]
    if several and not any(p.kind is P.VAR_POSITIONAL for p in parameters):   # PyTorch has a list
      placed = [*own, several[0]] if own_parameter(of) else [(*own, *several[0])]
    else: placed = [*own, *placed, *(several[0] if several else ())]
    if not any(p.kind is P.VAR_POSITIONAL for p in parameters): placed = placed[:sum(p.kind in PLACED for p in parameters)]
    return call(fn, *placed, **named)
  return {name: lambda fn=fn, of=of: make(fn, of) for name, (fn, of) in tables().items()}


def own_parameter(of: str) -> bool:
  """Whether a method has a parameter for its tensor: not so for ``Tensor.cat(*tensors)``."""
  return next(iter(inspect.signature(method(of)).parameters.values())).kind is not P.VAR_POSITIONAL


STANDARD = """
all(x, axis=1, keepdims=True) | any(x, axis=1, keepdims=True) | arange(0, 5, 2, dtype='int64', device='NUMPY')
argmax(x, axis=1, keepdims=True) | argmin(x, axis=1, keepdims=True) | argsort(x, axis=0, descending=True, stable=True)
asarray([1.0], dtype='float64', device='NUMPY', copy=True) | astype(x, 'float64', copy=True, device='NUMPY')
broadcast_to(x, (2, 2, 3)) | broadcast_arrays(x, x) | can_cast('int8', 'int16') | clip(x, 0.25, 0.5) | concat([x, x], axis=1)
count_nonzero(x, axis=1, keepdims=True) | cumulative_sum(x, axis=1, dtype='float64', include_initial=True)
cumulative_prod(x, axis=1, dtype='float64', include_initial=True) | diff(x, axis=0, n=1, prepend=x, append=x)
expand_dims(x, axis=1) | eye(2, 3, k=1, dtype='int32', device='NUMPY') | flip(x, axis=0)
from_dlpack(x, device='NUMPY', copy=True)
full((2,), 1.5, dtype='float64', device='NUMPY') | full_like(x, 2.0, dtype='float64', device='NUMPY')
isdtype('int8', 'integral')
isin(x, x, invert=True) | linspace(0, 1, 3, dtype='float64', device='NUMPY', endpoint=False) | matmul(x, x.T)
matrix_transpose(x)
max(x, axis=1, keepdims=True) | min(x, axis=1, keepdims=True) | mean(x, axis=1, keepdims=True) | moveaxis(x, 0, 1)
meshgrid(x[0], x[1], indexing='ij') | nonzero(x) | ones((2,), dtype='int32', device='NUMPY')
ones_like(x, dtype='int32', device='NUMPY')
zeros((2,), dtype='int32', device='NUMPY') | zeros_like(x, dtype='int32', device='NUMPY') | permute_dims(x, (1, 0))
prod(x, axis=1, dtype='float64', keepdims=True) | sum(x, axis=1, dtype='float64', keepdims=True) | repeat(x, 2, axis=1)
reshape(x, (3, 2), copy=True) | roll(x, 1, axis=1) | searchsorted(x[0], x, side='right', sorter=i[0])
sort(x, axis=0, descending=True, stable=True)
squeeze(x[None], 0) | stack([x, x], axis=1) | std(x, axis=1, correction=1.0, keepdims=True)
var(x, axis=1, correction=1.0, keepdims=True)
take(x, i[0], axis=1) | take_along_axis(x, i, axis=1) | tensordot(x, x, axes=2) | tile(x, (1, 2)) | tril(x, k=1) | triu(x, k=1)
unstack(x, axis=1) | vecdot(x, x, axis=0) | where(x > 0.3, x, 0.0) | unique_all(x) | unique_counts(x) | unique_inverse(x)
unique_values(x) | positive(x)
"""


def standard(call: Any) -> dict[str, Callable[[], Any]]:
  """A call of each function of the array API that has more than operands."""
  out: dict[str, Callable[[], Any]] = {}
  for text in [c.strip() for line in STANDARD.strip().split("\n") for c in line.split(" | ")]:
    name, _, rest = text.partition("(")
    def make(name: str = name, rest: str = rest) -> Any:
      x = Tensor([[0.125, 0.25, 0.75], [0.5, 1.0, 0.25]], dtype="float32")
      i = Tensor([[0, 1, 2], [1, 0, 2]])
      return eval(f"_call({rest}", {"_call": lambda *a, **k: call(getattr(xp, name), *a, **k), "x": x, "i": i})
    out[f"xp.{name}"] = make
  return out
