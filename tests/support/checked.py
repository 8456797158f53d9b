"""Kernels that are drawn to see what their checks say, and what they should: by numpy, without anything of the package.

A kernel goes through *labels*, each cut into tiles of the grid, spanned by one tile, or gone along by a loop. Each parameter has
some of them, as dimensions that a chain of meta-operations makes of its source. A call is right if names have one value, all
meta-operations fit, grids are equal, no program has an empty tile, blocks broadcast, and what parameters have of a label lies at
the same places of it: else one of them is read or written where the other has ended. Two that are declared by names may differ.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import numpy as np

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.tile import Symbol, Tensor
from support.pictures import Misfit, Picture, bound, on

f32 = np.float32
Bounds = dict[Any, tuple[int, int]]
TILE, SPAN, LOOP = "tile", "span", "loop"
REDUCE = ("sum", "loopsum", "product", "pick", "dynamic")


@dataclass
class Cut:
  """How a label is gone through."""
  role: str
  size: int = 1
  stride: int = -1
  gap: int = 1


@dataclass
class Piece:
  """What a parameter has of a label: source dimensions, declared somehow, and how they become one dimension of its size."""
  declared: tuple[Any, ...]
  how: tuple[Any, ...] = ()      # (), ("flip",), ("slice", a, b), ("step", s), ("pad", a, b), ("flatten",)

  def sources(self, n: int) -> tuple[int, ...]:
    """Sizes of the source dimensions for a label of n elements."""
    match self.how:
      case ("slice", a, b): return (n + a + b,)
      case ("step", s): return (max(n * s - s // 2, 0),)
      case ("pad", a, b): return (max(n - a - b, 0),)
      case ("flatten",):
        f = next((f for f in (3, 2, 5) if n % f == 0), 1)
        return (f, n // f)
      case _: return (n,)


@dataclass
class Part:
  """A parameter: a piece of each label that it has."""
  name: str
  pieces: dict[int, Piece]
  floor: bool = False
  turned: bool = False           # its source has the dimensions in the other order

  @property
  def declared(self) -> list[Any]:
    """What the dimensions of its source are declared as."""
    order = sorted(self.pieces, reverse=self.turned)
    return [d for label in order for d in self.pieces[label].declared]

  def shape(self, sizes: Sequence[int]) -> tuple[int, ...]:
    """Of the source, for sizes of the labels."""
    order = sorted(self.pieces, reverse=self.turned)
    return tuple([n for label in order for n in self.pieces[label].sources(sizes[label])])

  def whole(self, label: int, shape: Sequence[int]) -> int:
    """How many elements of a label there are in a source."""
    order = [m for m in sorted(self.pieces, reverse=self.turned) for _ in self.pieces[m].declared]
    n = math.prod(n for m, n in zip(order, shape) if m == label)
    match self.pieces[label].how:
      case ("slice", a, b): return max(n - a - b, 0)
      case ("step", s): return -(-n // s)
      case _: return n

  def tensor(self, bounds: Bounds) -> Tensor:
    """As it is declared; ``bounds`` are those of some names."""
    def of(d: Any) -> Any:
      if isinstance(d, tuple): return d[0]
      return Symbol(d, lower_bound=bounds[d][0], upper_bound=bounds[d][1]) if d in bounds else d
    return Tensor(shape=tuple(map(of, self.declared)), name=self.name)


@dataclass
class Case:
  """A kernel."""
  kind: str
  cuts: list[Cut]
  parts: list[Part]              # the last is written
  picks: tuple[int, ...] = ()
  bounds: Bounds = field(default_factory=dict)
  even: int | None = None        # a source dimension of the last that a check of its own says is even

  @property
  def rank(self) -> int: return len(self.cuts)
  @property
  def reduces(self) -> bool:
    """Whether the last label is added up."""
    return self.kind in REDUCE
  @property
  def grid(self) -> list[int]: return [d for d, c in enumerate(self.cuts) if c.role == TILE]
  @property
  def loop(self) -> int | None: return next((d for d, c in enumerate(self.cuts) if c.role == LOOP), None)

  def arrange(self, t: Any, part: Part, grid: Sequence[Any] | None) -> Any:
    """A symbolic tensor, or a picture, as the kernel has it; ``grid`` is that of the written parameter."""
    order = sorted(part.pieces, reverse=part.turned)
    if part.turned and len(part.declared) > 1:
      groups, at = {}, 0
      for label in order:
        groups[label] = list(range(at, at + len(part.pieces[label].declared)))
        at += len(groups[label])
      t = on(t, "permute", tuple([d for label in sorted(groups) for d in groups[label]]))
    for at, label in enumerate(sorted(part.pieces)):
      match part.pieces[label].how:
        case ("flip",): t = on(t, "flip", (at,))
        case ("slice", a, b): t = on(t, "index", [*[slice(None)] * at, slice(a or None, -b or None)])
        case ("step", s): t = on(t, "index", [*[slice(None)] * at, slice(None, None, s)])
        case ("flatten",): t = on(t, "flatten", at, at + 2)
    if any(p.how[:1] == ("pad",) for p in part.pieces.values()):
      hows = [part.pieces[label].how for label in sorted(part.pieces)]
      t = on(t, "pad", tuple([how[1:] if how[:1] == ("pad",) else (0, 0) for how in hows]))
    for label in range(self.rank):
      if label not in part.pieces: t = on(t, "unsqueeze", label)
    have = [label in part.pieces for label in range(self.rank)]
    sizes = tuple([(-1 if c.role == SPAN else c.size) if h else 1 for c, h in zip(self.cuts, have)])
    strides = tuple([c.stride if h and c.role == TILE else -1 for c, h in zip(self.cuts, have)])
    gaps = tuple([c.gap if h else 1 for c, h in zip(self.cuts, have)])
    t = on(t, "tile", sizes, strides, gaps, part.floor)
    if self.loop is not None and self.loop in part.pieces:
      t = on(t, "tile", tuple([-1 if d == self.loop else 1 for d in range(self.rank)]))
      gone = tuple([d for d in range(self.rank) if d != self.loop])
      if gone: t = on(t, "squeeze", gone, level=1)
    gone = tuple([d for d, c in enumerate(self.cuts) if c.role != TILE])
    if gone: t = on(t, "squeeze", gone)
    if self.kind == "product" and not isinstance(t, Picture):   # matrices; a picture keeps all labels
      t = on(t, "squeeze", tuple([d for d in range(3) if not have[d]]), level=len(t.levels) - 1)
    if grid is not None and not all(have[d] for d in self.grid):
      t = on(t, "expand", tuple([-1 if have[d] else n for d, n in zip(self.grid, grid)]))
    return t

  def make(self) -> tile.TileKernel:
    """The kernel."""
    def arrangement(*tensors: Any) -> Any:
      z = self.arrange(tensors[-1], self.parts[-1], None)
      given = [t for t in tensors if t.shape]
      if self.even is not None: tile.check(tensors[-1].shape[self.even] % 2 == 0, "even")
      others = [self.arrange(t, p, z.shape) for t, p in zip(given[:-1], self.parts)]
      return (*[t for t in tensors if not t.shape], *others, z)
    scalars = (Tensor(0),) if self.kind == "dynamic" else ()
    tensors = *scalars, *[p.tensor(self.bounds) for p in self.parts]
    return tile.make(arrangement, application(self.kind, len(self.parts), self.picks), tensors)


# ---- what kernels do

def application(kind: str, n: int, picks: Sequence[int]) -> Callable[..., None]:
  """The application of a kind, with n parameters."""
  def map2(x: Any, z: Any) -> None: z = x * 2 + 1  # noqa: F841
  def map3(x: Any, y: Any, z: Any) -> None: z = x * 2 + y  # noqa: F841
  def atomic2(x: Any, z: Any) -> None: tl.atomic_add(z, x * 2 + 1)
  def atomic3(x: Any, y: Any, z: Any) -> None: tl.atomic_add(z, x * 2 + y)
  def inplace2(x: Any, z: Any) -> None: z += x * 2 + 1  # noqa: F841
  def inplace3(x: Any, y: Any, z: Any) -> None: z += x * 2 + y  # noqa: F841
  def sum2(x: Any, z: Any) -> None: z = tl.sum(x * 2, axis=z.ndim - 1, keep_dims=True)  # noqa: F841
  def sum3(x: Any, y: Any, z: Any) -> None: z = tl.sum(x * 2 + y, axis=z.ndim - 1, keep_dims=True)  # noqa: F841
  def loopsum2(x: Any, z: Any) -> None:
    total = tl.zeros(z.shape)
    for k in range(x.shape[0]): total += tl.sum(x[k] * 2, axis=z.ndim - 1, keep_dims=True)
    z = total  # noqa: F841
  def loopsum3(x: Any, y: Any, z: Any) -> None:
    total = tl.zeros(z.shape)
    for k in range(x.shape[0]): total += tl.sum(x[k] * 2 + y[k], axis=z.ndim - 1, keep_dims=True)
    z = total  # noqa: F841
  def loops2(x: Any, z: Any) -> None:
    for k in range(x.shape[0]): z[k] = x[k] * 2 + 1
  def loops3(x: Any, y: Any, z: Any) -> None:
    for k in range(x.shape[0]): z[k] = x[k] * 2 + y[k]
  def product3(x: Any, y: Any, z: Any) -> None:
    total = tl.zeros(z.shape)
    for k in range(x.shape[0]): total += tl.dot(x[k], tl.trans(y[k]))
    z = total  # noqa: F841
  def pick2(x: Any, z: Any) -> None: z = tl.sum(x[picks[0]] * 2 + x[picks[1]], axis=z.ndim - 1, keep_dims=True)  # noqa: F841
  def dynamic2(i: Any, x: Any, z: Any) -> None: z = tl.sum(x[i], axis=z.ndim - 1, keep_dims=True)  # noqa: F841
  each: list[Any] = [map2, map3, atomic2, atomic3, inplace2, inplace3, sum2, sum3, loopsum2, loopsum3, loops2, loops3, product3,
                     pick2, dynamic2]
  return next(f for f in each if f.__name__ == f"{kind}{n}")


# ---- what is right

class Refused(Misfit):
  """A call that must be refused. The message must have all of one of ``said``; ``surely``: it may be accepted too."""

  def __init__(self, why: str, *said: Sequence[Any], surely: bool = True):
    super().__init__(f"{why} {said}")
    self.said, self.surely = [tuple(map(str, each)) for each in said], surely


def given_names(p: Piece) -> bool: return all(d not in (None, "?") for d in p.declared)


def reference(case: Case, shapes: Sequence[tuple[int, ...]], data: Sequence[np.ndarray], i: int = 0) -> np.ndarray:
  """What the written parameter has after a call. Raises Refused."""
  try: bound([(d, n, p.name) for p, s in zip(case.parts, shapes) for d, n in zip(p.declared, s)], case.bounds)
  except Misfit as e: raise Refused("names", *e.args[0]) from None
  try:
    z = case.arrange(Picture(shapes[-1]), case.parts[-1], None)
    pictures = [*[case.arrange(Picture(s), p, z.dims(0)) for s, p in zip(shapes[:-1], case.parts)], z]
  except Misfit as e: raise Refused(f"meta-operation {e}") from None
  grid = z.dims(0)
  grids = [(part.name, p.dims(0)) for p, part in zip(pictures, case.parts)]
  different = [(a, b, *map(str, m), *map(str, n)) for a, m in grids for b, n in grids if m != n]
  if different: raise Refused("grids", *different)
  if case.even is not None and shapes[-1][case.even] % 2: raise Refused("check", ("even", shapes[-1][case.even]))
  out = data[-1].astype(np.float64)
  if 0 in grid: return out
  for p, part in zip(pictures, case.parts):
    if any(0 in p.dims(level) for level in range(1, len(p.levels))): raise Refused("an empty tile", (part.name, 0))
  blocks(case, pictures)
  agree(case, pictures, shapes)
  return computed(case, pictures, data, out, i)


def blocks(case: Case, pictures: Sequence[Picture]) -> None:
  """That blocks broadcast, to no more than what is written."""
  inner = [p.x.shape[-case.rank:] for p in pictures]
  try: value = list(np.broadcast_shapes(*inner[:-1]))
  except ValueError: raise Refused(f"blocks {inner}") from None
  if case.reduces: value[-1] = 1
  if any(a not in (1, b) for a, b in zip(value, inner[-1])): raise Refused(f"blocks {value} to {inner[-1]}")
  if case.kind == "pick":
    n = pictures[0].dims(1)[0]
    if any(not -n <= at < n for at in case.picks): raise Refused("an index of a level", ("x", n))


def places(case: Case, p: Picture, label: int) -> np.ndarray:
  """Where a parameter has elements along a label, whatever the others: (tiles, elements of a tile)."""
  n = p.x.ndim
  axes = [n - case.rank + label]
  if case.cuts[label].role == TILE: axes.insert(0, case.grid.index(label))
  if case.cuts[label].role == LOOP: axes.insert(0, len(case.grid))
  out = (p.x >= 0).any(tuple([d for d in range(n) if d not in axes]))
  return out if out.ndim == 2 else out[None]


def agree(case: Case, pictures: Sequence[Picture], shapes: Sequence[tuple[int, ...]]) -> None:
  """That parameters which have a label have it at the same places."""
  said, surely = [], False
  for label in range(case.rank):
    have = [(p, part, s) for p, part, s in zip(pictures, case.parts, shapes) if label in part.pieces]
    have = [h for h in have if h[1].pieces[label].how[:1] != ("pad",)]
    for k, (p, a, s) in enumerate(have):
      for q, b, t in have[k + 1:]:
        if given_names(a.pieces[label]) and given_names(b.pieces[label]): continue
        mine, theirs = places(case, p, label), places(case, q, label)
        if case.cuts[label].role == SPAN and 1 in (mine.size, theirs.size): continue   # one broadcasts
        m, n = a.whole(label, s), b.whole(label, t)
        differ = 0 not in s + t and (mine.shape != theirs.shape or (mine != theirs).any())   # nothing is nowhere
        surely |= bool(differ)   # else the end of one may lie between two tiles
        if differ or (m != n and (0 in s + t or case.cuts[label].stride != -1)): said.append((a.name, b.name, m, n))
  if said: raise Refused("sizes", *said, surely=surely)


def computed(case: Case, pictures: Sequence[Picture], data: Sequence[np.ndarray], out: np.ndarray, i: int) -> np.ndarray:
  """What the kernel computes: elements outside read as 0, and are not written."""
  values = [np.where(p.x >= 0, np.append(d.ravel(), 0)[p.x], 0).astype(np.float64) for p, d in zip(pictures, data)]
  z, at = pictures[-1].x, len(case.grid)
  looped = case.loop is not None
  if looped:
    rounds = values[0].shape[at]
    def fitted(v: np.ndarray, n: int, fill: int) -> np.ndarray:
      more = [(0, max(n - v.shape[at], 0)) if d == at else (0, 0) for d in range(v.ndim)]
      return np.pad(v.take(range(min(n, v.shape[at])), at), more, constant_values=fill)
    if case.kind in ("pick", "dynamic"):
      n = values[0].shape[at]
      if case.kind == "pick": values[0] = values[0].take(case.picks[0], at) * 2 + values[0].take(case.picks[1], at)
      else: values[0] = values[0].take(i, at) if 0 <= i < n else 0 * values[0].take(0, at)
    else: values[:-1] = [fitted(v, rounds, 0) for v in values[:-1]]
    if case.kind == "loops": z = fitted(z, rounds, -1)
  if case.kind in ("pick", "dynamic"): total = values[0]
  elif case.kind == "product": total = values[0] * values[1]
  elif len(values) == 3: total = values[0] * 2 + values[1]
  else: total = values[0] * 2 + (0 if "sum" in case.kind else 1)
  if case.reduces: total = total.sum(-1, keepdims=True)
  if case.kind in ("loopsum", "product"): total = total.sum(at)
  total = np.broadcast_to(total, z.shape)
  flat = out.reshape(-1)
  inside = z >= 0
  if case.kind in ("atomic", "inplace"): flat[z[inside]] += total[inside]
  else: flat[z[inside]] = total[inside]
  return flat.reshape(out.shape)


def elements(shape: Sequence[int], seed: int) -> np.ndarray:
  """Whole numbers, all different from 0."""
  return (np.arange(math.prod(shape)) * (seed + 3) % 17 + 1).reshape(tuple(shape)).astype(f32)
