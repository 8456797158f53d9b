"""What in-place writes mean, in numpy: a value is a piece of flat memory and the index of each of its elements in it.

A view is another index into the same memory, so that every reshape is a view; a write sets memory at those elements. ``Tensor``,
``jit`` and ``no_grad`` here stand for those of ntgrad in the programs of ``fuzz_program``. ``Undefined`` is raised where the
model takes no side.
"""
from __future__ import annotations

from typing import Any, Callable, Iterator

import numpy as np

import ntgrad
from ntgrad.errors import AssignError, DTypeError, GradientError, ShapeError

from .reference import ints_first

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float64", "int32", "int64", "int16", "uint8", "bool")
LIMIT = {"float64": (-2.0 ** 40, 2.0 ** 40)}   # other dtypes: what float32 has exactly with room for sums
MOST = 200                                    # elements of a value


class Undefined(Exception):
  """A program does something that the model has no rule for; it is not run."""


class Session:
  """One run of a program: what is perturbed, the constants that all perturbed runs share, and what was seen."""

  def __init__(self, exact: bool = True, moved: tuple[int, int, float] | None = None, constants: list[Array] | None = None):
    self.exact, self.moved = exact, moved
    self.constants: list[Array] = [] if constants is None else constants
    self.known = iter(self.constants) if constants is not None else None
    self.gradients: dict[int, Array] = {}
    self.leaves: list[Tensor] = []
    self.losses: list[float] = []
    self.grad = True
    self.written: set[int] = set()   # ids of memory written since a call began
    self.pending = self.stale = False   # a write since the last realize(); a write that was realised
    self.refusable = False           # the statement may raise CaptureError (a call) or GradientError (backward)
    self.kept: list[Memory] = []     # so that ids stay

  def constant(self, value: Array) -> Array:
    """The value that the unperturbed run has here: no gradient passes."""
    if self.known is not None: return next(self.known)
    self.constants.append(np.array(value))
    return value

  def realized(self) -> None: self.stale, self.pending = self.stale or self.pending, False


session = Session()


def begin(s: Session) -> Session:
  global session
  session = s
  return s


class Memory:
  """Flat values; a leaf's move with the perturbation."""

  def __init__(self, flat: Array, leaf: int | None = None):
    self.flat, self.leaf, self.needs, self.views = flat, leaf, leaf is not None, list[Any]()
    session.kept.append(self)

  def moves(self) -> Array:
    out = np.zeros(self.flat.shape)
    if session.moved is not None and session.moved[0] == self.leaf: out[session.moved[1]] = session.moved[2]
    return out


def promote(a: Any, b: Any) -> Any:
  """ntgrad's promotion of two values: an int and a float give the float, what has no dimensions counts by its category."""
  p, q = category(a.dtype), category(b.dtype)
  if p != q and (2 in (p, q) or (a.ndim == 0) != (b.ndim == 0)): return a.dtype if p > q else b.dtype
  if (a.ndim == 0) != (b.ndim == 0): return a.dtype if a.ndim else b.dtype
  return np.promote_types(a.dtype, b.dtype)


def category(dtype: Any) -> int: return {"b": 0, "f": 2}.get(dtype.kind, 1)


def fit(wide: Any, dtype: Any) -> Array:
  """A result in its dtype: ints wrap, of floats only small ones are compared."""
  wide, dtype = np.asarray(wide), np.dtype(dtype)
  low, high = LIMIT.get(dtype.name, (-4000, 4000)) if session.exact else (-4000, 4000)
  if wide.size > MOST or wide.ndim > 5 or not np.isfinite(wide).all(): raise Undefined
  if wide.dtype.kind in "iub" and dtype.kind in "iu": return wide.astype(dtype)
  if dtype.kind in "ub": low, high = 0, 255 if dtype.kind == "u" else 1
  if wide.size and (wide.min() < low or wide.max() > high): raise Undefined
  if session.exact and dtype.kind == "f" and (wide * 8 != np.round(wide * 8)).any(): raise Undefined
  return np.array(np.trunc(wide) if dtype.kind in "iu" else wide).astype(dtype)


class Tensor:
  """The model's tensor. Views share ``memory``; all other results are made by ``_own``."""

  def __init__(self, data: Any = None, dtype: str | None = None, requires_grad: bool | None = None):
    if isinstance(data, (int, float)): raise Undefined   # a constant, which has no memory
    needs = isinstance(data, Tensor) and data.needs
    value = data.value() if isinstance(data, Tensor) else np.array(data)
    if not isinstance(data, (Tensor, np.ndarray, np.generic)) and value.dtype.kind in "if":
      dtype = dtype or f"{value.dtype.name[:-2]}32"
    value = fit(value, dtype or value.dtype)
    leaf = None
    if requires_grad:
      if value.dtype != "float64": raise Undefined
      leaf = len(session.leaves)
      session.leaves.append(self)
    self.overlaps = False
    self.memory, self.index, self.constant = Memory(value.flatten(), leaf), np.arange(value.size).reshape(value.shape), False
    self.memory.flat = self.memory.flat + self.memory.moves().astype(value.dtype) if leaf is not None else self.memory.flat
    self.memory.needs = leaf is not None or (needs and session.grad)
    self.memory.views.append(self)

  @classmethod
  def zeros(cls, *shape: int, dtype: str) -> Tensor: return cls(np.zeros(shape, dtype))
  @classmethod
  def ones(cls, *shape: int, dtype: str) -> Tensor: return cls(np.ones(shape, dtype))

  # ---- what it is
  shape = property(lambda self: self.index.shape)
  ndim = property(lambda self: self.index.ndim)
  dtype = property(lambda self: self.memory.flat.dtype)
  needs = property(lambda self: self.memory.needs and not self.constant)
  is_leaf = property(lambda self: any(self is t for t in session.leaves))

  def value(self) -> Array:
    """Its values now, as operations take them."""
    v = self.memory.flat[self.index]
    return session.constant(v) if self.constant and not session.exact else v

  def _view(self, index: Any, constant: bool = False, expanded: bool = False) -> Tensor:
    t = object.__new__(Tensor)
    t.overlaps = self.overlaps or expanded   # a view through expand is read-only, whatever is left of it
    t.memory, t.index, t.constant = self.memory, np.array(index), self.constant or constant or not session.grad
    if t.index.ndim > 5 or t.index.size > MOST: raise Undefined
    t.memory.views.append(t)
    return t

  # ---- views
  def __getitem__(self, index: Any) -> Tensor:
    index, plain = host_index(index)
    if plain: return self._view(self.index[index])
    v, rest = ints_first(self.value(), index)
    return self._own(v[rest], self)
  def reshape(self, *shape: Any) -> Tensor:
    return self._view(self.index.reshape(shape[0] if shape and isinstance(shape[0], tuple) else shape))
  view = reshape
  def flatten(self, start: int = 0, end: int = -1) -> Tensor:
    if not self.ndim: return self.reshape(1)
    s, a, b = self.shape, start % self.ndim, end % self.ndim
    return self.reshape((*s[:a], int(np.prod(s[a:b + 1])), *s[b + 1:]))
  def unflatten(self, dim: int, sizes: Any) -> Tensor:
    if np.prod(sizes) != self.shape[dim]: raise Undefined   # of nothing numpy makes any shape
    return self.reshape((*self.shape[:dim], *sizes, *self.shape[dim:][1:]))
  def permute(self, *order: int) -> Tensor: return self._view(self.index.transpose(order))
  def transpose(self, a: int = 1, b: int = 0) -> Tensor: return self._view(self.index.swapaxes(a, b))
  T = property(lambda self: self._view(self.index.T))
  def squeeze(self, dim: int | None = None) -> Tensor:
    return self if dim is not None and self.shape[dim] != 1 else self._view(self.index.squeeze(dim))
  def unsqueeze(self, dim: int) -> Tensor: return self._view(np.expand_dims(self.index, dim))
  def flip(self, *dims: int) -> Tensor: return self._view(np.flip(self.index, dims))
  def shrink(self, box: Any) -> Tensor: return self._view(self.index[tuple(slice(*b) for b in box)])
  def split(self, sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    at = range(sizes, self.shape[dim], sizes) if isinstance(sizes, int) else np.cumsum(sizes)[:-1]
    return tuple(self._view(i) for i in np.split(self.index, list(at), dim))
  def chunk(self, chunks: int, dim: int = 0) -> tuple[Tensor, ...]: return self.split(max(-(-self.shape[dim] // chunks), 1), dim)
  def unbind(self, dim: int = 0) -> tuple[Tensor, ...]: return tuple(self._view(i) for i in np.moveaxis(self.index, dim, 0))
  def diagonal(self) -> Tensor:
    if len(self.shape) != 2 or self.shape[0] != self.shape[1]: raise Undefined   # ntgrad's is of a square matrix
    return self._view(np.diagonal(self.index))
  def expand(self, *shape: int) -> Tensor:
    old = (1,) * (len(shape) - self.index.ndim) + self.index.shape
    return self._view(np.broadcast_to(self.index, shape), expanded=old != tuple(shape))
  broadcast_to = expand
  def unfold(self, dim: int, size: int, step: int) -> Tensor:
    windows = np.lib.stride_tricks.sliding_window_view(self.index, size, dim)
    return self._view(windows[(slice(None),) * dim + (slice(None, None, step),)], expanded=step < size)
  def detach(self) -> Tensor: return self._view(self.index, True)

  # ---- tensors of their own
  def _own(self, wide: Any, *sources: Any, dtype: Any = None) -> Tensor:
    value = fit(wide, dtype or self.dtype)
    if not session.grad and not session.exact: value = session.constant(value)
    t = Tensor(value)
    t.memory.needs = session.grad and any(s.needs for s in sources if isinstance(s, Tensor))
    return t
  def contiguous(self) -> Tensor: return self._own(self.value(), self)
  clone = contiguous
  def cast(self, dtype: str) -> Tensor:
    v = self.value()
    return self._own(v != 0 if dtype == "bool" else v, self, dtype=dtype)
  def to(self, device: Any) -> Tensor: return self.contiguous()
  def pad(self, pairs: Any) -> Tensor: return self._own(np.pad(self.value(), pairs) if self.ndim else self.value(), self)
  def repeat(self, *counts: int) -> Tensor: return self._own(np.tile(self.value(), counts), self)
  def repeat_interleave(self, n: int, dim: int) -> Tensor: return self._own(np.repeat(self.value(), n, dim), self)
  def cat(self, *others: Tensor, dim: int = 0) -> Tensor:
    if any(o.dtype != self.dtype for o in others): raise Undefined
    return self._own(np.concatenate([t.value() for t in (self, *others)], dim), self, *others)

  def stack(self, *others: Tensor, dim: int = 0) -> Tensor:
    return self.unsqueeze(dim).cat(*[o.unsqueeze(dim) for o in others], dim=dim)

  def diag(self) -> Tensor: return self._own(np.diag(self.value()), self)
  def meshgrid(self, *others: Tensor) -> tuple[Tensor, ...]:
    grids = np.meshgrid(*[t.value() for t in (self, *others)], indexing="ij")
    return tuple(t._own(g, t) for t, g in zip((self, *others), grids))
  def roll(self, k: int, dim: int) -> Tensor: return self._own(np.roll(self.value(), k, dim), self)
  def sum(self, dim: Any = None, keepdim: bool = False) -> Tensor:
    v = self.value()
    return self._own(v.sum(dim, keepdims=keepdim), self, dtype=v.dtype if v.dtype.kind == "f" else "int64")
  def prod(self, dim: Any = None, keepdim: bool = False) -> Tensor:
    if self.dtype.kind != "f": raise Undefined
    with np.errstate(all="ignore"): return self._own(self.value().prod(dim, keepdims=keepdim), self)
  def any(self) -> Tensor: return self._own((self.value() != 0).any(), self, dtype="bool")
  def all(self) -> Tensor: return self._own((self.value() != 0).all(), self, dtype="bool")
  def cumsum(self, dim: int, dtype: str) -> Tensor: return self._scan(np.cumsum, dim, dtype)
  def cumprod(self, dim: int, dtype: str) -> Tensor: return self._scan(np.cumprod, dim, dtype)
  def _scan(self, fn: Any, dim: int, dtype: str) -> Tensor:
    with np.errstate(all="ignore"): return self._own(fn(self.cast(dtype).value(), dim, dtype), self, dtype=dtype)
  def abs(self) -> Tensor:
    if self.dtype.kind == "b": raise Undefined
    return self._own(np.abs(self.value()), self)
  def max(self, axis: Any = None, keepdim: bool = False) -> Tensor:
    return self._own(self.value().max(axis, keepdims=keepdim), self)
  def where(self, yes: Tensor, no: Any) -> Tensor:
    if self.dtype.kind != "b" or (no.dtype != yes.dtype if isinstance(no, Tensor) else yes.dtype.kind == "b"): raise Undefined
    return self._own(np.where(self.value(), yes.value(), _value(no)), yes, no, dtype=yes.dtype)
  def matmul(self, other: Tensor) -> Tensor: return self._own(self.value() @ other.value(), self, other)
  def sin(self) -> Tensor: return self._own(np.sin(self.value()), self)
  def tanh(self) -> Tensor: return self._own(np.tanh(self.value()), self)
  def sigmoid(self) -> Tensor: return self._own(1 / (1 + np.exp(-self.value())), self)
  def __neg__(self) -> Tensor: return self * -1
  def __gt__(self, other: Any) -> Tensor: return self._own(self.value() > _value(other), dtype="bool")

  def _arithmetic(self, fn: Any, other: Any) -> tuple[Array, Any]:
    """A result's values, unrounded, and its dtype."""
    if hasattr(other, "dtype"): dtype = promote(self, other)
    else: dtype = self.dtype if isinstance(other, int) or self.dtype.kind == "f" else np.dtype("float32")
    if dtype.kind == "b": raise Undefined
    wide = "float64" if dtype.kind == "f" else "int64"
    with np.errstate(all="ignore"): return fn(self.value().astype(wide), np.asarray(_value(other)).astype(wide)), dtype
  def _with(self, fn: Any, other: Any) -> Tensor:
    wide, dtype = self._arithmetic(fn, other)
    return self._own(wide, self, other, dtype=dtype)
  def __add__(self, other: Any) -> Tensor: return self._with(np.add, other)
  def __sub__(self, other: Any) -> Tensor: return self._with(np.subtract, other)
  def __mul__(self, other: Any) -> Tensor: return self._with(np.multiply, other)
  def __pow__(self, n: int) -> Tensor:
    if self.dtype.kind == "b": raise Undefined
    return self._own(self.value() ** n, self)
  def _ints(self, fn: Any, other: Any) -> Tensor:
    """Of ints of one dtype, computed in it."""
    v = np.asarray(_value(other))
    if self.dtype.kind not in "iu" or hasattr(other, "dtype") and other.dtype != self.dtype: raise Undefined
    with np.errstate(all="ignore"): return self._own(fn(self.value(), v.astype(self.dtype)), self, other)
  def __floordiv__(self, other: Any) -> Tensor: return self._ints(np.floor_divide, other)
  def __mod__(self, other: Any) -> Tensor: return self._ints(np.remainder, other)
  def __lshift__(self, other: Any) -> Tensor: return self._ints(np.left_shift, other)
  def __rshift__(self, other: Any) -> Tensor: return self._ints(np.right_shift, other)

  # ---- writes
  def _write(self, index: Array, value: Any, needs: bool, assign: bool = False) -> None:
    """Memory at ``index`` becomes ``value``, which was computed before."""
    m = self.memory
    value = fit(np.broadcast_to(value, index.shape), self.dtype)
    if self.overlaps: raise AssignError("a write to an expanded tensor")
    if m.leaf is not None and session.grad:
      if assign and self.is_leaf:
        if needs: raise GradientError("a leaf that requires a gradient is assigned a value that does too")
      elif self.constant or assign: raise Undefined
      else: raise GradientError("a leaf that requires a gradient is changed in place")
    elif m.leaf is not None and not self.is_leaf: raise Undefined
    if not session.exact and (self.constant or not session.grad or m.leaf is not None):
      before, value, needs = m.flat[index], session.constant(value), False
      # its gradient goes on to the value before, as in PyTorch
      if m.leaf is None and m.needs: value = value + (before - session.constant(before))
    m.flat[index] = value
    if m.leaf is not None: m.flat = m.flat + np.where(np.isin(np.arange(m.flat.size), index), m.moves(), 0)
    m.needs |= needs
    session.written.add(id(m))
    session.pending = True

  def _given(self, value: Any) -> tuple[Array, bool]:
    """A value written into this tensor's dtype. Raises DTypeError."""
    typed = isinstance(value, (Tensor, np.ndarray))
    if typed and category(value.dtype) > category(self.dtype): raise DTypeError("a value of another category")
    v = np.array(_value(value))
    if not typed and v.dtype.kind == "f" and self.dtype.kind != "f": raise Undefined
    return v, isinstance(value, Tensor) and value.needs

  def __setitem__(self, index: Any, value: Any) -> None:
    base, rest = ints_first(self.index, host_index(index)[0])
    at = base[rest]
    v, needs = self._given(value)
    while v.ndim > at.ndim and v.shape[0] == 1: v = v[0]
    if not broadcasts(v.shape, at.shape): raise ShapeError("a value of another shape")
    self._write(np.array(at), v, needs)

  def assign(self, value: Any) -> Tensor:
    v = _value(value)
    if self.is_leaf and isinstance(value, Tensor) and value.memory is self.memory: raise Undefined
    if not isinstance(value, Tensor): v = np.broadcast_to(v, self.shape)
    elif not broadcasts(v.shape, self.shape) or v.dtype != self.dtype: raise AssignError("another shape or dtype")
    v = np.broadcast_to(v, self.shape)
    self._write(self.index, np.array(v), isinstance(value, Tensor) and value.needs, True)
    return self

  def _set_data(self, value: Any) -> None:
    if not session.exact: raise Undefined
    if not isinstance(value, Tensor): raise Undefined
    # a view of all of it may be the tensor itself
    if any([t.memory is self.memory and t is not self and t.constant is self.constant and np.array_equal(t.index, self.index)
            for t in self.memory.views]): raise Undefined
    if value.memory is not self.memory or not np.array_equal(value.index, self.index):
      flat = value.value().flatten()
      self.memory, self.index, self.overlaps = Memory(flat), np.arange(flat.size).reshape(value.shape), False
      self.memory.views.append(self)
  data = property(detach, _set_data)

  def _in_place(self, fn: Any, other: Any) -> Tensor:
    wide, dtype = self._arithmetic(fn, other)
    if wide.shape != self.shape: raise ShapeError("a result of another shape")
    if category(dtype) > category(self.dtype): raise DTypeError("a result of another category")
    self._write(self.index, wide, self.needs or (isinstance(other, Tensor) and other.needs))
    return self
  def __iadd__(self, other: Any) -> Tensor: return self._in_place(np.add, other)
  def __isub__(self, other: Any) -> Tensor: return self._in_place(np.subtract, other)
  def __imul__(self, other: Any) -> Tensor: return self._in_place(np.multiply, other)
  def __itruediv__(self, other: Any) -> Tensor:
    if self.dtype.kind != "f": raise DTypeError("ints divided are floats")
    return self._in_place(np.divide, other)
  add_, mul_ = __iadd__, __imul__
  def copy_(self, value: Any) -> Tensor:
    """The values, broadcast and cast to this dtype."""
    if self.memory.leaf is not None: raise Undefined
    v = np.asarray(_value(value))
    if not broadcasts(v.shape, self.shape): raise ShapeError("a value of another shape")
    return self.assign(self._own(np.broadcast_to(v != 0 if self.dtype.kind == "b" else v, self.shape), value))
  fill_ = copy_
  def zero_(self) -> Tensor: return self.fill_(0)

  # ---- values
  def realize(self, *others: Tensor) -> Tensor:
    session.realized()
    return self
  def numpy(self) -> Array:
    session.realized()
    return np.array(self.memory.flat[self.index])
  def tolist(self) -> Any: return self.numpy().tolist()
  def backward(self) -> Tensor:
    if not self.needs or self.shape: raise Undefined
    session.losses.append(float(self.memory.flat[self.index]))
    session.refusable = session.stale
    return self


# without an operator of its own, Python's ``t += v`` is ``t = t + v``
for _name in ("__iadd__", "__isub__", "__imul__", "__itruediv__", "add_", "mul_", "fill_", "copy_", "zero_", "unbind"):
  if not hasattr(ntgrad.Tensor, _name): delattr(Tensor, _name)


def _value(x: Any) -> Any: return x.value() if isinstance(x, Tensor) else np.asarray(x)


def broadcasts(a: tuple[int, ...], to: tuple[int, ...]) -> bool:
  """Whether a shape broadcasts to another as it is."""
  return len(a) <= len(to) and all(m in (1, n) for m, n in zip(a[::-1], to[::-1]))


def host_index(index: Any) -> tuple[Any, bool]:
  """An index as numpy takes it, and whether it is a basic one."""
  items = index if isinstance(index, tuple) else (index,)
  items = tuple(_value(i) if isinstance(i, (Tensor, list)) else i for i in items)
  return items, not any(isinstance(i, np.ndarray) for i in items)


def grad(t: Tensor) -> Array:
  """The gradient that ``backward`` left, from finite differences."""
  return session.gradients.get(session.leaves.index(t), np.zeros(t.shape))


class no_grad:
  """``with no_grad():`` of the model."""
  def __enter__(self) -> None: self.before, session.grad = session.grad, False
  def __exit__(self, *_: Any) -> None: session.grad = self.before


class jit:
  """A captured function of the model: the plain call, its results copied. A call with arguments that overlap in another
  way, where one of them is written, may be refused, and so may a function that launches nothing."""

  def __init__(self, fn: Callable[..., Any]):
    self.fn, self.patterns = fn, dict[Any, list[tuple[Any, ...]]]()   # by the arguments' shapes and dtypes

  def __call__(self, *args: Tensor) -> Any:
    state = [v for n, v in self.fn.__globals__.items() if n in self.fn.__code__.co_names and isinstance(v, Tensor)]
    patterns = self.patterns.setdefault(tuple((t.shape, t.dtype) for t in args), [])
    before, session.written = session.written, set()
    result = self.fn(*args)
    # equal numbers: the same element of memory that the call writes
    places = [(id(t.memory), int(i)) if id(t.memory) in session.written else None for t in (*args, *state) for i in t.index.flat]
    first: dict[Any, int] = {}
    pattern = tuple(k if p is None else first.setdefault(p, k) for k, p in enumerate(places))
    tensors = list(_tensors(result))
    launches = any(t.index.size for t in tensors) or any(
      t.memory.flat.size for t in (*args, *state) if id(t.memory) in session.written
    )
    session.refusable |= not launches or any(p != pattern for p in patterns)
    patterns.append(pattern)
    session.written |= before
    session.pending = True
    copies = [t.clone() for t in tensors]
    return copies[0] if isinstance(result, Tensor) else tuple(copies)


def _tensors(x: Any) -> Iterator[Tensor]:
  if isinstance(x, Tensor): yield x
  elif isinstance(x, tuple):
    for y in x: yield from _tensors(y)
