"""The shapes that meta-operations give, where sizes may be Symbols, and what is refused when they are called; numbers have the
last word in ``codegen/kernel/arrangement.py``. A size that is not known is taken for 1 or more."""
from __future__ import annotations

import math
import operator
from typing import Any, Sequence

from ntgrad.codegen.ir import ArgumentError, AxisError, IndexOutOfRangeError, ShapeError
from ntgrad.graph import as_tuple
from ntgrad.graph.symbol import Expr, Symbol, bounds_of, cdiv, maximum, minimum

_Shape = tuple[Expr, ...]


def sizes(name: str, values: Any) -> _Shape:
  """Ints and Symbols as a tuple. Raises ArgumentError for anything else."""
  if isinstance(values, int | Symbol): raise ArgumentError(f"{name}: a tuple with a size for each dimension, got {values}")
  return tuple(v if isinstance(v, Symbol) else _int(name, v) for v in values)


def _int(name: str, v: Any) -> int:
  try: return operator.index(v)
  except TypeError: raise ArgumentError(f"{name}: sizes are ints and Symbols, got {v!r}") from None


def axes(name: str, given: int | Sequence[int], n: int) -> tuple[int, ...]:
  """Axis numbers of a level with ``n`` dimensions, negative ones from the end."""
  got = as_tuple(given)
  for a in got:
    if isinstance(a, bool) or not isinstance(a, int): raise ArgumentError(f"{name}: a dimension's number is an int, got {a!r}")
    if not -n <= a < n: raise AxisError(f"{name}: dimension {a}; there are {n}")
  out = tuple(a % n for a in got)
  if len(set(out)) != len(out): raise AxisError(f"{name}: a dimension is given twice in {got}")
  return out


def _per_dim(name: str, what: str, got: _Shape, n: int) -> None:
  if len(got) != n: raise ShapeError(f"{name}: one {what} a dimension, so {n} of them, got {got}")


def tiled_shape(shape: _Shape, tile_shape: _Shape, strides: _Shape | None, dilation: _Shape | None,
                floor_mode: bool) -> tuple[_Shape, _Shape]:
  """The outer and the inner shape."""
  n = len(shape)
  for what, got in (("tile size", tile_shape), ("stride", strides), ("dilation", dilation)):
    if got is not None: _per_dim("tile", what, got, n)
  inner = tuple(d if s == -1 else s for s, d in zip(tile_shape, shape))
  steps = inner if strides is None else tuple(z if s == -1 else s for s, z in zip(strides, inner))
  gaps: _Shape = (1,) * n if dilation is None else dilation
  for what, got in (("size", tile_shape), ("stride", strides), ("dilation", dilation)):
    for v in got or ():
      hi = bounds_of(v)[1]
      if hi is not None and hi < 1 and (v != -1 or what == "dilation"):
        raise ArgumentError(f"tile: a {what} of {v}; it is 1 or more" + ("" if what == "dilation" else ", or -1"))
  return tuple(_windows(at, *args, floor_mode) for at, args in enumerate(zip(shape, inner, steps, gaps))), inner


def _windows(at: int, d: Expr, size: Expr, stride: Expr, gap: Expr, floor_mode: bool) -> Expr:
  """How many windows dimension ``at`` has."""
  if d == 0 and size == 0: return 1   # the whole of nothing
  if gap == 1 and stride == size:
    if d == 1 and not floor_mode: return 1
    count = d // size if floor_mode else cdiv(d, size)
  else:
    rest = d - (size - 1) * gap - 1
    count = (rest // stride if floor_mode else cdiv(maximum(rest, 0), stride)) + 1
  if floor_mode and isinstance(count, int) and count < 1:
    apart = "" if gap == 1 else f" (dilation {gap})"
    raise ShapeError(f"tile: no window of {size}{apart} lies inside dimension {at}, which has {d} elements")
  return count


def _never(n: Expr, value: int) -> bool:
  """Whether a size is known not to be a number."""
  low, high = bounds_of(n)
  return low is not None and low > value or high is not None and high < value


def expanded_shape(shape: _Shape, want: _Shape) -> _Shape:
  """The shape with -1 filled in."""
  _per_dim("expand", "size", want, len(shape))
  for d, (n, w) in enumerate(zip(shape, want)):
    if isinstance(w, int) and w < -1: raise ArgumentError(f"expand: dimension {d} to {w}; sizes are 0 or more, or -1")
    if w == -1 or isinstance(n, int) and n < 2 or n == w: continue   # an empty dimension has no element for any of them
    if _never(n, 1) and (n == w) is False:
      raise ShapeError(f"expand: dimension {d} of {shape} is {n}, only a dimension of 1 becomes {w}; -1 leaves it alone")
  return tuple(n if w == -1 else w for n, w in zip(shape, want))


def squeezed_shape(shape: _Shape, gone: tuple[int, ...]) -> _Shape:
  """Without the dimensions ``gone``."""
  for a in gone:
    if _never(shape[a], 1) and shape[a] != 0:
      raise ShapeError(f"squeeze: dimension {a} of {shape} is {shape[a]}; only a dimension of 1 can go")
  return tuple(n for d, n in enumerate(shape) if d not in gone)


def permutation(dims: Any, n: int) -> tuple[int, ...]:
  """An order of all ``n`` dimensions."""
  order = axes("permute", dims, n)
  if len(order) != n:
    raise AxisError(f"permute: each of {n} dimensions once, got {tuple(dims) if isinstance(dims, tuple | list) else dims}")
  return order


def flatten(shape: _Shape, start: int | None, end: int | None) -> tuple[int, int, _Shape]:
  """First and last dimension that become one, and the shape then."""
  n = len(shape)
  if n == 0: raise AxisError("flatten: there are no dimensions")
  first, stop = 0 if start is None else start, n if end is None else end
  for what, v in (("start_dim", first), ("end_dim", stop)):
    if isinstance(v, bool) or not isinstance(v, int): raise ArgumentError(f"flatten: {what} is an int, got {v!r}")
    if not -n <= v <= n: raise AxisError(f"flatten: {what} {v}; there are {n} dimensions")
  first, stop = first + n * (first < 0), stop + n * (stop < 0)
  if first >= stop: raise AxisError(f"flatten: no dimension from {start} to {end}, {end} not included; there are {n}")
  return first, stop - 1, (*shape[:first], math.prod(shape[first:stop]), *shape[stop:])


def unflatten(shape: _Shape, at: int, want: _Shape) -> _Shape:
  """Dimension ``at`` as ``want``. Sizes that are not known are checked when they are."""
  n, known = shape[at], tuple(w for w in want if w != -1)
  if len(want) - len(known) > 1 or any(isinstance(w, int) and w < 0 for w in known):
    raise ArgumentError(f"unflatten: sizes are 0 or more, one may be -1, got {want}")
  product = math.prod(known)
  rest = n // product if not isinstance(product, int) or product else 0
  if len(known) == len(want): wrong = _never(n - product, 0)
  else: wrong = isinstance(n, int) and isinstance(product, int) and rest * product != n
  if wrong: raise ShapeError(f"unflatten: dimension {at} of {shape} is {n}, which is no {want}")
  return *shape[:at], *[rest if w == -1 else w for w in want], *shape[at + 1:]


def padded_shape(shape: _Shape, padding: Any) -> tuple[tuple[_Shape, ...], _Shape]:
  """The amounts as pairs, and the shape with them."""
  pairs = tuple(sizes("pad", p) for p in padding)
  if len(pairs) != len(shape) or any(len(p) != 2 for p in pairs):
    raise ShapeError(f"pad: a pair (before, behind) for each of {len(shape)} dimensions, got {padding}")
  for p in pairs:
    if any(isinstance(v, int) and v < 0 for v in p): raise ArgumentError(f"pad: amounts are 0 or more, got {p}; slicing cuts off")
  return pairs, tuple(lo + n + hi for n, (lo, hi) in zip(shape, pairs))


def index(shape: _Shape, keys: tuple[Any, ...]) -> _Shape:
  """The shape that a full key (an entry for each dimension, and None) leaves."""
  out: list[Expr] = []
  d = 0
  for k in keys:
    if k is None:
      out.append(1)
      continue
    if isinstance(k, slice): out.append(_sliced(shape[d], k))
    elif isinstance(k, bool) or not isinstance(k, int | Symbol):
      raise ArgumentError(f"index: ints, Symbols, slices, None and ..., got {k!r}")
    elif isinstance(k, int) and (n := bounds_of(shape[d])[1]) is not None and not -n <= k < n:
      raise IndexOutOfRangeError(f"index: {k} is outside dimension {d} of {shape}")
    d += 1
  return tuple(out)


def _sliced(n: Expr, k: slice) -> Expr:
  """How many elements a slice takes of a dimension."""
  start, stop, step = parts = k.start, k.stop, k.step
  if any(isinstance(p, bool) or not isinstance(p, int | Symbol | None) for p in parts) or isinstance(step, Symbol):
    raise ArgumentError(f"index: a slice has ints and Symbols, and an int for a step, got {k}")
  if step == 0: raise ArgumentError("index: a step of 0")
  if not any(isinstance(p, Symbol) for p in (n, *parts)): return len(range(*k.indices(n)))
  if step is None: step = 1
  def back(v: Any) -> bool: return isinstance(v, int) and v < 0  # counted from the end; a Symbol is not
  if step > 0:
    first = 0 if start is None else maximum(n + start, 0) if back(start) else start
    last = n if stop is None else n + stop if back(stop) else _within(stop, n)
    reach = last if first == 0 and not back(stop) else maximum(last - first, 0)
  else:
    first = n - 1 if start is None else n + start if back(start) else minimum(start, n - 1)
    last = -1 if stop is None else maximum(n + stop, -1) if back(stop) else stop
    reach = n if start is None and stop is None else maximum(first - last, 0)
  return cdiv(reach, abs(step))


def _within(v: Expr, n: Expr) -> Expr:
  """min(v, n) for a size n, which is 1 or more."""
  return v if isinstance(v, int) and v <= 1 else minimum(v, n)
