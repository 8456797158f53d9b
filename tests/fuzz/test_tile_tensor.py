"""Random chains of meta-operations: the picture that a symbolic tensor gives is what numpy gives for the same chain on numbered
elements.

Each chain is done three times: on an array with numpy, on a Tensor with numbers, and on a Tensor whose sizes (and tile sizes) are
Symbols that get their numbers at the end.
"""
from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
from hypothesis import given, settings, strategies as st

from ntgrad.graph.symbol import Symbol, evaluate
from ntgrad.tile.tensor import Tensor

Draw = Callable[[st.SearchStrategy[Any]], Any]


class Model:
  """Levels of an array of source numbers, -1 where masked; every operation on dimensions [start, stop) of it, those of one
  level."""

  def __init__(self, shape: tuple[int, ...]):
    self.levels: list[tuple[int, ...]] = [shape]
    self.x = np.arange(math.prod(shape)).reshape(shape)

  def span(self, level: int) -> tuple[int, int]:
    start = sum(map(len, self.levels[:level]))
    return start, start + len(self.levels[level])

  def put(self, level: int, x: np.ndarray, n: int) -> None:
    start, _ = self.span(level)
    self.x, self.levels[level] = x, x.shape[start:start + n]

  def tile(self, level: int, sizes: list[int], strides: list[int], gaps: list[int], floor: bool) -> None:
    start, stop = self.span(level)
    x, n = self.x, stop - start
    # windows of dimension start + d: its inner part goes behind the level
    for d, (size, stride, gap) in enumerate(zip(sizes, strides, gaps)):
      length = x.shape[start + d]
      ends = [b + (size - 1) * gap + 1 for b in range(0, length + stride, stride)]
      # the first that reaches the end
      count = sum(e <= length for e in ends) if floor else next(i for i, e in enumerate(ends) if e >= length) + 1
      begins = range(0, count * stride, stride)
      where = np.array(begins)[:, None] + np.arange(size)[None] * gap
      taken = np.take(x, np.minimum(where, length - 1), axis=start + d)
      outside = (where >= length).reshape((1,) * (start + d) + where.shape + (1,) * (x.ndim - start - d - 1))
      x = np.moveaxis(np.where(outside, -1, taken), start + d + 1, start + n + d)
    self.x = x
    self.levels[level:level + 1] = [x.shape[start:stop], x.shape[stop:stop + n]]

  def pick(self, level: int, key: tuple[Any, ...]) -> None:
    start, _ = self.span(level)
    before = self.x.ndim
    missing = len(self.levels[level]) - sum(k is not None and k is not ... for k in key)
    at = next((i for i, k in enumerate(key) if k is ...), len(key))
    x = self.x[(slice(None),) * start + key[:at] + (slice(None),) * missing + key[at + 1:]]
    self.put(level, x, len(self.levels[level]) + x.ndim - before)


def factors(n: int) -> list[int]: return [f for f in range(1, n + 1) if n % f == 0]


def chain(draw: Draw, shape: tuple[int, ...], symbolic: bool) -> tuple[Model, Tensor, Tensor, dict[str, int]]:
  """A random chain on all three; and the values of the Symbols in the last."""
  m, t = Model(shape), Tensor(shape=shape, name="t")
  u = Tensor(len(shape), name="u")
  values: dict[str, int] = {f"u_size_{d}": n for d, n in enumerate(shape)}

  def sym(n: int) -> Any:
    """A number as a Symbol, at times."""
    if not symbolic or n < 0 or not draw(st.booleans()): return n
    name = f"s{len(values)}"
    values[name] = n
    return Symbol(name, lower_bound=draw(st.sampled_from([None, 1]))) if n else n

  def do(level: int, fn: Callable[[Tensor], Tensor], a: Tensor) -> Tensor:
    """``fn`` on a level, through the dtypes above it."""
    if level == 0: return fn(a)
    handle = a
    for _ in range(level - 1): handle = handle.dtype
    handle.dtype = fn(handle.dtype)
    return a

  for _ in range(draw(st.integers(0, 6))):
    if m.x.size > 3000: break
    level = draw(st.integers(0, len(m.levels) - 1))
    dims = m.levels[level]
    start, stop = m.span(level)
    n = len(dims)
    op = draw(
      st.sampled_from(
        ["tile", "tile", "expand", "squeeze", "unsqueeze", "permute", "flatten", "unflatten", "ravel", "pad", "flip", "index"]
      )
    )
    update: Callable[[], None]
    if op == "tile":
      if len(m.levels) == 4: continue
      sizes = [draw(st.integers(1, 4)) for _ in dims]
      whole = [draw(st.sampled_from([False, False, True])) for _ in dims]
      sizes = [d if w else s for s, d, w in zip(sizes, dims, whole)]
      floor = draw(st.booleans())
      given_strides, given_gaps = draw(st.booleans()), draw(st.booleans())
      gaps = [draw(st.integers(1, 3)) if given_gaps else 1 for _ in dims]
      strides = [draw(st.integers(1, 4)) if given_strides and draw(st.booleans()) else -1 for _ in dims]
      if floor and any(d < (s - 1) * g + 1 for d, s, g in zip(dims, sizes, gaps)): continue
      args = [tuple(-1 if w else sym(s) for s, w in zip(sizes, whole)), tuple(map(sym, strides)) if given_strides else None,
              tuple(map(sym, gaps)) if given_gaps else None, floor]
      steps = [s if k == -1 else k for k, s in zip(strides, sizes)]
      update = lambda level=level, sizes=sizes, steps=steps, gaps=gaps, floor=floor: m.tile(level, sizes, steps, gaps, floor)
      fn: Callable[[Tensor], Tensor] = lambda a, args=args: a.tile(*args)
    elif op == "expand":
      want = [draw(st.integers(1, 3)) if d == 1 and draw(st.booleans()) else -1 for d in dims]
      size = tuple(map(sym, want))
      full = (*m.x.shape[:start], *(d if w == -1 else w for w, d in zip(want, dims)), *m.x.shape[stop:])
      update = lambda level=level, full=full, n=n: m.put(level, np.broadcast_to(m.x, full), n)
      fn = lambda a, size=size: a.expand(size)
    elif op == "squeeze":
      gone = tuple(d for d, s in enumerate(dims) if s == 1 and draw(st.booleans()))
      update = lambda level=level, gone=gone, start=start, n=n: m.put(
        level, np.squeeze(m.x, tuple(start + g for g in gone)), n - len(gone)
      )
      fn = lambda a, gone=gone: a.squeeze(gone)
    elif op == "unsqueeze":
      if n > 3: continue
      at = draw(st.integers(-n - 1, n))
      update = lambda level=level, at=at, start=start, n=n: m.put(level, np.expand_dims(m.x, start + at % (n + 1)), n + 1)
      fn = lambda a, at=at: a.unsqueeze(at)
    elif op == "permute":
      order = tuple(draw(st.permutations(range(n))))
      full = (*range(start), *(start + o for o in order), *range(stop, m.x.ndim))
      update = lambda level=level, full=full, n=n: m.put(level, m.x.transpose(full), n)
      fn = lambda a, order=order: a.permute(order)
    elif op == "flatten":
      if n == 0: continue
      first = draw(st.integers(0, n - 1))
      last = draw(st.integers(first + 1, n))
      full = (*m.x.shape[:start + first], math.prod(dims[first:last]), *m.x.shape[start + last:])
      update = lambda level=level, full=full, k=n - (last - first) + 1: m.put(level, m.x.reshape(full), k)
      fn = lambda a, first=first, last=last: a.flatten(first, last)
    elif op == "unflatten":
      if n == 0: continue
      at = draw(st.integers(0, n - 1))
      f = draw(st.sampled_from(factors(dims[at]) or [1]))
      into = draw(st.sampled_from([(f, -1), (-1, f), (f, dims[at] // f)]))
      full = (
        *m.x.shape[: start + at],
        *((f, dims[at] // f) if into[0] != -1 else (dims[at] // f, f)),
        *m.x.shape[start + at + 1 :],
      )
      into = tuple(map(sym, into))
      update = lambda level=level, full=full, n=n: m.put(level, m.x.reshape(full), n + 1)
      fn = lambda a, at=at, into=into: a.unflatten(at, into)
    elif op == "ravel":
      def merge(level: int = level) -> None: m.levels[level:] = [m.x.shape[sum(map(len, m.levels[:level])):]]
      update = merge
      fn = lambda a: a.ravel()
    elif op == "pad":
      pairs = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in dims]
      full = ((0, 0),) * start + tuple(pairs) + ((0, 0),) * (m.x.ndim - stop)
      amounts = tuple(tuple(map(sym, p)) for p in pairs)
      update = lambda level=level, full=full, n=n: m.put(level, np.pad(m.x, full, constant_values=-1) if full else m.x, n)
      fn = lambda a, amounts=amounts: a.pad(amounts)
    elif op == "flip":
      which = tuple(d for d in range(n) if draw(st.booleans()))
      update = lambda level=level, which=which, start=start, n=n: m.put(level, np.flip(m.x, tuple(start + d for d in which)), n)
      fn = lambda a, which=which: a.flip(which)
    else:
      count, dots = draw(st.integers(0, n)), draw(st.booleans())
      key: list[Any] = [...] if dots else []
      written: list[Any] = [...] if dots else []
      for d in dims[n - count:] if dots else dims[:count]:
        if draw(st.integers(0, 3)) == 0:
          key.append(draw(st.integers(-d, d - 1)))
          written.append(sym(key[-1]))
          continue
        b, e = (draw(st.one_of(st.none(), st.integers(-d - 1, d + 1))) for _ in range(2))
        step = draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
        if len(range(*slice(b, e, step).indices(d))) == 0: b = e = step = None
        key.append(slice(b, e, step))
        written.append(slice(b if b is None else sym(b), e if e is None else sym(e), step))
      if draw(st.booleans()):
        at = draw(st.integers(0, len(key)))
        key.insert(at, None)
        written.insert(at, None)
      update = lambda level=level, key=tuple(key): m.pick(level, key)
      fn = lambda a, written=tuple(written): a[written]
    u = do(level, fn, u)
    update()
    t = do(level, lambda a, fn=fn: fn(a), t) if not symbolic else t
  return m, t, u, values


def agrees(m: Model, t: Tensor, values: dict[str, int], shape: tuple[int, ...]) -> None:
  levels = tuple(tuple(evaluate(e, values) for e in level) for level in t.levels)
  a = t.arrangement(shape, values)
  assert levels == a.levels == tuple(m.levels), f"{t}: {levels}, the arrangement has {a.levels}, numpy {m.levels}"
  assert np.array_equal(a.elements(), m.x), str(t)
  assert np.array_equal(t.eval(values), m.x)
  for d, (index, n) in enumerate(zip(a.offsets(), shape)):
    inside = m.x >= 0
    assert (index[inside] == np.unravel_index(m.x[inside], shape)[d]).all() and (index[inside] < n).all()


SHAPES = st.lists(st.integers(1, 7), min_size=0, max_size=3).map(tuple)


@settings(max_examples=120)
@given(SHAPES, st.data())
def test_chains(shape: tuple[int, ...], data: st.DataObject) -> None:
  m, t, u, values = chain(data.draw, shape, symbolic=False)
  agrees(m, t, {}, shape)
  agrees(m, u, values, shape)


@settings(max_examples=120)
@given(SHAPES, st.data())
def test_chains_with_symbols(shape: tuple[int, ...], data: st.DataObject) -> None:
  m, _, u, values = chain(data.draw, shape, symbolic=True)
  agrees(m, u, values, shape)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=3))
def test_plain_tilings_cover_everything_once(dims: list[tuple[int, int, int]]) -> None:
  shape = tuple(d for d, _, _ in dims)
  t = Tensor(shape=shape).tile([a for _, a, _ in dims]).tile([b for _, _, b in dims])
  t.dtype = t.dtype.flatten()
  seen = t.eval().ravel()
  assert sorted(seen[seen >= 0].tolist()) == list(range(math.prod(shape)))
