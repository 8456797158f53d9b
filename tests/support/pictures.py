"""Arrangements by numpy: arrays of source numbers, cut into levels as the tile language's meta-operations cut a parameter.

Nothing of the package takes part, so that what its checks say can be compared with what lies where.
"""
from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

import numpy as np


class Misfit(Exception):
  """A meta-operation, or a call, that does not fit its sizes."""


class Picture:
  """An array of the numbers of source elements, row by row, -1 where there is none; its dimensions are those of ``levels``."""

  def __init__(self, shape: Sequence[int]):
    self.x = np.arange(math.prod(shape)).reshape(tuple(shape))
    self.levels: list[int] = [len(shape)]   # how many dimensions each has

  def begin(self, level: int) -> int: return sum(self.levels[:level])

  def dims(self, level: int) -> tuple[int, ...]:
    """The shape of a level."""
    return self.x.shape[self.begin(level):][:self.levels[level]]

  def do(self, name: str, *args: Any, level: int = 0) -> None:
    """A meta-operation by its name, on a level."""
    getattr(self, name)(self.begin(level), level, *args)

  def tile(self, at: int, level: int, sizes: Sequence[int], strides: Sequence[int] | None = None,
           gaps: Sequence[int] | None = None, floor: bool = False) -> None:
    n = self.levels[level]
    x = self.x
    for d, size in enumerate(sizes):
      length = x.shape[at + d]
      size = length if size == -1 else size
      stride = size if strides is None or strides[d] == -1 else strides[d]
      gap = 1 if gaps is None else gaps[d]
      reach = (size - 1) * gap + 1
      if size == 0: begins = [0]   # the whole of nothing
      elif floor: begins = [b for b in range(0, length, stride) if b + reach <= length]
      else: begins = [b for b in range(0, length + stride, stride) if length and (b == 0 or b - stride + reach < length)]
      if floor and not begins: raise Misfit(f"no window of {size} in {length}")
      where = np.array(begins, int)[:, None] + np.arange(size)[None] * gap
      padded = np.concatenate([x, np.full((*x.shape[:at + d], 1, *x.shape[at + d + 1:]), -1, x.dtype)], at + d)
      x = np.moveaxis(np.take(padded, np.minimum(where, length), axis=at + d), at + d + 1, at + n + d)
    self.x, self.levels[level:level + 1] = x, [n, n]

  def expand(self, at: int, level: int, shape: Sequence[int]) -> None:
    full = list(self.x.shape)
    for d, n in enumerate(shape):
      if n == -1 or full[at + d] == n: continue
      if full[at + d] != 1: raise Misfit(f"dimension {d} of {full} to {n}")
      full[at + d] = n
    self.x = np.broadcast_to(self.x, full)

  def squeeze(self, at: int, level: int, gone: Sequence[int]) -> None:
    if any(self.x.shape[at + d] != 1 for d in gone): raise Misfit(f"squeeze {gone} of {self.x.shape}")
    self.x, self.levels[level] = self.x.squeeze(tuple([at + d for d in gone])), self.levels[level] - len(gone)

  def unsqueeze(self, at: int, level: int, d: int) -> None:
    self.x, self.levels[level] = np.expand_dims(self.x, at + d), self.levels[level] + 1

  def permute(self, at: int, level: int, order: Sequence[int]) -> None:
    n = self.levels[level]
    self.x = self.x.transpose((*range(at), *[at + o for o in order], *range(at + n, self.x.ndim)))

  def flip(self, at: int, level: int, dims: Sequence[int]) -> None: self.x = np.flip(self.x, tuple([at + d for d in dims]))

  def flatten(self, at: int, level: int, first: int, last: int) -> None:
    """``last`` is not included."""
    s = self.x.shape
    self.x = self.x.reshape((*s[:at + first], math.prod(s[at + first:at + last]), *s[at + last:]))
    self.levels[level] -= last - first - 1

  def unflatten(self, at: int, level: int, d: int, sizes: Sequence[int]) -> None:
    s = self.x.shape
    rest = math.prod(n for n in sizes if n != -1)
    if -1 in sizes and (rest == 0 or s[at + d] % rest): raise Misfit(f"unflatten {s} to {sizes}")
    full = [s[at + d] // rest if n == -1 else n for n in sizes]
    if math.prod(full) != s[at + d]: raise Misfit(f"unflatten {s} to {sizes}")
    self.x, self.levels[level] = self.x.reshape((*s[:at + d], *full, *s[at + d + 1:])), self.levels[level] + len(sizes) - 1

  def pad(self, at: int, level: int, pairs: Sequence[tuple[int, int]]) -> None:
    full = [(0, 0)] * self.x.ndim
    full[at:at + len(pairs)] = pairs
    self.x = np.pad(self.x, full, constant_values=-1)

  def index(self, at: int, level: int, key: Sequence[slice]) -> None: self.x = self.x[(slice(None),) * at + tuple(key)]


def on(t: Any, name: str, *args: Any, level: int = 0) -> Any:
  """A meta-operation by its name on a level of a Picture, or of a symbolic tensor."""
  if isinstance(t, Picture):
    t.do(name, *args, level=level)
    return t
  if name == "index": name, args = "__getitem__", (tuple(args[0]),)
  if level == 0: return getattr(t, name)(*args)
  above = t
  for _ in range(level - 1): above = above.dtype
  above.dtype = getattr(above.dtype, name)(*args)
  return t


# ---- names of sizes

def bound(declared: Sequence[tuple[Any, int, str]], bounds: Mapping[Any, tuple[int, int]]) -> dict[str, int]:
  """The values of names, from what each dimension is declared as, how many elements it has, and where it is.

  A dimension is None or "?", a number, a name, or (text, unknowns, function of them). A name that is in no shape by itself is
  found where one name is left, and the dimension is a multiple of it and a number. Raises Misfit with all that is wrong: what a
  message must have of each, the name and both values.
  """
  values: dict[str, int] = {}
  wrong: list[tuple[Any, ...]] = []
  for want, n, where in declared:
    if isinstance(want, int) and want != n: wrong.append((where, want, n))
    if isinstance(want, str) and want != "?" and values.setdefault(want, n) != n: wrong.append((want, values[want], n))
  expressions = [(w, n, where) for w, n, where in declared if isinstance(w, tuple)]
  for (_, names, fn), n, _where in expressions * len(expressions):
    left = [s for s in names if s not in values]
    if len(left) != 1: continue
    def of(v: int, fn: Any = fn, names: Any = names, left: Any = left) -> int:
      return fn(*[v if s in left else values[s] for s in names])
    step = of(1) - of(0)
    if step == 0 or any(of(v) != of(0) + v * step for v in range(-8, 9)): continue   # not a sum
    if (n - of(0)) % step: wrong.append((left[0], n))
    values[left[0]] = (n - of(0)) // step
  for (text, names, fn), n, _where in expressions:
    missing = [s for s in names if s not in values]
    if missing: wrong += [(s,) for s in missing]
    elif fn(*[values[s] for s in names]) != n: wrong.append((text, n, fn(*[values[s] for s in names])))
  wrong += [(n, values[n]) for n, (low, high) in bounds.items() if n in values and not low <= values[n] <= high]
  if wrong: raise Misfit(wrong)
  return values
