"""Movement operations of ``Tensor``: the same elements seen in another shape or order, or as other bits. They cost nothing when
a kernel runs.

Those that show each element at most once, and ``expand``, are views: they share memory with what they show. Others (pad,
repeat, unfold, cat, ..) are tensors of their own."""
from __future__ import annotations

import itertools
import math
import operator
from typing import Any, Self, Sequence

from ntgrad.codegen.ir import ArgumentError, AxisError, DType, DTypeError, Ops, ShapeError, UOp, dtypes, promote, shown
from ntgrad.core import Base, axes_of, axis_of, shape_of, whole_number
from ntgrad.graph import Bits, Ints, Operand, Places, Several, aligned_names, checked, fit, nodes as graph, operand, origins, text
from ntgrad.graph.checks import as_tuple

from .families import member
from .patterns import pattern_moves
from .promotion import broadcast_shape, common_device, scalar_node

Dims = int | str | Sequence[int | str]
_MOST_PIECES = 4096   # that a dimension of fewer elements is split into


def pad_value(u: UOp, padding: Sequence[tuple[int, int]], value: Any) -> UOp:
  """PAD with a number other than zero."""
  if not any([lo or hi for lo, hi in padding]): return u
  if value == 0: return graph.pad(u, padding)
  return graph.where(graph.pad(graph.const(True, dtypes.bool, u.shape), padding), graph.pad(u, padding), value)


def several(name: str, given: Sequence[Any]) -> tuple[Any, ...]:
  """Tensors given one after the other or in lists; arrays and numbers beside a tensor become tensors. Raises ArgumentError."""
  if given and all([isinstance(t, Base) for t in given]): return tuple(given)
  if len(given) == 1 and isinstance(given[0], Several): given = list(given[0])   # all of its parts, as of any tuple
  flat = [t for g in given for t in (g if isinstance(g, (tuple, list)) and not isinstance(g, Several) else (g,))]
  for t in flat:
    if isinstance(t, Several): raise t.refused()
  first = next((t for t in flat if isinstance(t, Base)), None)
  if first is None:
    raise ArgumentError(f"{name}: no Tensor in {shown(given)}; give one or more, one after the other or in a list")
  return tuple([operand(name, t, first) for t in flat])


def behind_a_list(given: Sequence[Any]) -> bool:
  """Whether a list of tensors is followed by a dim: ``([a, b], 1)``."""
  return len(given) == 2 and isinstance(given[0], (tuple, list)) and isinstance(given[1], (int, str))


def _joined(name: str, tensors: Sequence[Any], d: int) -> Any:
  """Tensors of as many dimensions one after the other along one that all have, named as ``name`` in errors."""
  first, *rest = tensors
  s = first.shape
  for t in tensors:
    if len(t.shape) != len(s) or any([a != b for i, (a, b) in enumerate(zip(t.shape, s)) if i != d]):
      n = len(s)
      places = [n + i if i != d else None for i in range(n)]   # from n on: to be equal, not only to broadcast
      if all([len(t.shape) == n for t in tensors]): fit(name, tensors, [places] * len(tensors), n)
      raise ShapeError(f"{name}: shapes {', '.join(text(t) for t in tensors)} on axis {d}; they must be equal but for that axis")
  common_device(name, *[t.lazydata for t in tensors])
  dtype = promote(*[t.dtype for t in tensors])
  called = aligned_names(name, tensors)
  return first._wrap_many(graph.cat([graph.cast(t.lazydata, dtype) for t in tensors], d), rest, called)


def _beside(parts: Sequence[UOp], axis: int) -> UOp:
  """One after the other along an axis as CAT has it, but computed by whoever reads it: for parts that are mostly small."""
  parts = [p for p in parts if p.shape[axis]] or list(parts[:1])
  ends = list(itertools.accumulate([p.shape[axis] for p in parts]))
  first, *others = [graph.pad(p, [(begin, ends[-1] - end) if d == axis else (0, 0) for d in range(len(p.shape))])
                    for p, begin, end in zip(parts, (0, *ends), ends)]
  for u, begin in zip(others, ends): first = graph.where(graph.lt(graph.index_along(axis, u.shape), begin), first, u)
  return first


def sliced(item: slice, size: int) -> tuple[int, int, int]:
  """The first element of a slice, how many it has, and its step, as ``slice.indices`` has them. What is made of Variables stays
  so: each end is compared with the size, so that a capture knows for which values it is cut off."""
  step = 1 if item.step is None else operator.index(item.step)
  if step == 0: raise ValueError("slice step cannot be zero")
  low, high = (0, size) if step > 0 else (-1, size - 1)
  def end(given: Any, without: int) -> int:
    if given is None: return without
    n: int = given if isinstance(given, int) else operator.index(given)
    if n < 0: n = n + size
    return low if n < low else high if n > high else n
  first, last = (end(item.start, low), end(item.stop, high)) if step > 0 else (end(item.start, high), end(item.stop, low))
  length, each = (last - first, step) if step > 0 else (first - last, -step)
  return first, (length + each - 1) // each if length > 0 else 0, step


@checked
class Movement(Base):
  """The movement operations."""
  __slots__ = ()

  # ---- shape
  def reshape(self, *shape: Any) -> Self:
    """A view: the elements in row-major order in another shape; one size may be -1, and None is the size that the tensor has in
    this place. Raises ShapeError if the sizes do not give as many."""
    u = self.lazydata
    new = shape_of("reshape", shape, u.shape)
    if new == u.shape: return self
    n = self.numel()
    if -1 in new:
      known = -math.prod(new)
      if new.count(-1) > 1: raise ShapeError(f"reshape: sizes {new} have -1 more than once; only one size can be found")
      if known <= 0 or n % known:
        raise ShapeError(f"reshape: shape {text(self)} has {n} elements, which sizes {new} do not divide; "
                         "give sizes whose product does")
      new = tuple([n // known if s == -1 else s for s in new])
      if new == u.shape: return self
    if math.prod(new) != n or min(new, default=0) < 0:
      raise ShapeError(f"reshape: shape {text(self)} has {n} elements, {new} has {math.prod(new)}; give a shape of {n} elements")
    return self._seen((Ops.RESHAPE, new))

  def _regrouped(self, shape: tuple[int, ...], dims: Places) -> Self:
    """A reshape to a shape that fits, of each of whose dimensions ``dims`` says which one of this tensor it is: for names, since
    sizes leave open which dim of 1 is which."""
    return self if shape == self.shape and self._names is None else self._seen((Ops.RESHAPE, shape), dims=dims)

  def flatten(self, start_dim: int | str = 0, end_dim: int | str = -1) -> Self:
    """(a, b, c) -> (a*b*c,), or only the dims from start to end. Raises AxisError."""
    s = self.shape
    a, b = self._dim("flatten", start_dim), self._dim("flatten", end_dim)
    if a > b: raise AxisError(f"flatten: start_dim {start_dim} is after end_dim {end_dim} in a tensor with {len(s)} dimensions")
    shape = s[:a] + (math.prod(s[a:b + 1]),) + s[b + 1:]
    return self._regrouped(shape, (*range(a), a if a == b and s else None, *range(b + 1, len(s))))

  def ravel(self) -> Self:
    """A view of one dim: ``flatten()``."""
    return self.flatten()

  def unflatten(self, dim: int | str, sizes: Sequence[int]) -> Self:
    """(a*b,) -> (a, b) for one dim. Raises AxisError, ShapeError."""
    d = self._dim("unflatten", dim)
    s, sizes = self.shape, tuple(sizes)
    rest = math.prod([x for x in sizes if x != -1])
    if sizes.count(-1) > 1 or (rest != s[d] if -1 not in sizes else rest <= 0 or s[d] % rest):
      raise ShapeError(f"unflatten: dimension {d} of shape {s} has {s[d]} elements, sizes {sizes} do not give as many")
    parts = tuple([s[d] // rest if x == -1 else x for x in sizes])
    dims = [d] if len(parts) == 1 else [None] * len(parts)
    return self._regrouped(s[:d] + parts + s[d + 1:], (*range(d), *dims, *range(d + 1, len(s))))

  def squeeze(self, dim: int | str | Sequence[int | str] | None = None) -> Self:
    """Without dims of 1 (all, or the ones named if they are 1). Raises AxisError."""
    s = self.shape
    axes = self._dims("squeeze", dim)
    left = [i for i, d in enumerate(s) if d != 1 or i not in axes]
    return self._regrouped(tuple([s[i] for i in left]), left)

  def unsqueeze(self, dim: int | str) -> Self:
    """A new dim of 1 at ``dim``. Raises AxisError."""
    s = self.shape
    d = axis_of("unsqueeze", dim, len(s) + 1, self._names)
    return self._regrouped(s[:d] + (1,) + s[d:], (*range(d), None, *range(d, len(s))))

  def atleast_1d(self) -> Self:
    """A view of at least one dim: () -> (1,)."""
    return self if self.ndim else self.reshape(1)
  def atleast_2d(self) -> Self:
    """A view of at least two dims: (n,) -> (1, n), () -> (1, 1)."""
    return self if self.ndim >= 2 else self.atleast_1d().unsqueeze(0)
  def atleast_3d(self) -> Self:
    """A view of at least three dims: (m, n) -> (m, n, 1), (n,) -> (1, n, 1), () -> (1, 1, 1)."""
    return self if self.ndim >= 3 else self.atleast_2d().unsqueeze(-1)

  def expand(self, *shape: Any) -> Self:
    """Dims of 1 repeated to other sizes, new dims in front; -1 or None keeps a size. Raises ShapeError."""
    s = self.lazydata.shape
    given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    new = shape_of("expand", [-1 if d is None else d for d in given])
    if new == s: return self
    k = len(new) - len(s)
    if k >= 0 and -1 in new: new = tuple([s[i - k] if i >= k and d == -1 else d for i, d in enumerate(new)])
    if k < 0 or any([d != a and a != 1 for d, a in zip(new[k:], s)]) or any([d < 0 for d in new]):
      raise ShapeError(f"expand: shape {s} to {new}; only dimensions of 1 take another size, new ones come in front")
    if new == s: return self
    return self._seen((Ops.RESHAPE, (1,) * k + s), (Ops.EXPAND, new), dims=(*[None] * k, *range(len(s))))

  broadcast_to = expand
  def expand_as(self, other: Operand) -> Self:
    """Expanded to another tensor's shape."""
    return self.expand(other.shape)
  def view_as(self, other: Operand) -> Self:
    """Reshaped to another tensor's shape."""
    return self.reshape(other.shape)

  # ---- order
  def permute(self, *order: Any) -> Self:
    """Dims in another order: (a, b, c).permute(2, 0, 1) -> (c, a, b). Raises AxisError unless every dim is named once."""
    n = len(self.lazydata.shape)
    args = order[0] if len(order) == 1 and isinstance(order[0], (tuple, list)) else order
    o = tuple([self._dim("permute", a) for a in args])
    if len(o) != n or len(set(o)) != n:
      raise AxisError(f"permute: order {tuple(args)} for a tensor with {n} dimensions; name every dimension once")
    return self._permute(o)

  def _permute(self, o: tuple[int, ...]) -> Self: return self._seen((Ops.PERMUTE, o))

  def transpose(self, dim0: int | str = 1, dim1: int | str = 0) -> Self:
    """Two dims swapped. Raises AxisError."""
    n = self.ndim
    if n < 2 and dim0 == 1 and dim1 == 0: return self
    a, b = self._dim("transpose", dim0), self._dim("transpose", dim1)
    order = list(range(n))
    order[a], order[b] = b, a
    return self._permute(tuple(order))

  def swapaxes(self, axis0: int | str, axis1: int | str) -> Self:
    """``transpose``: a view with two dims swapped. Raises AxisError."""
    return self.transpose(axis0, axis1) if self.ndim else self
  def swapdims(self, dim0: int | str, dim1: int | str) -> Self:
    """``transpose``: a view with two dims swapped. Raises AxisError."""
    return self.transpose(dim0, dim1) if self.ndim else self

  def movedim(self, source: Dims, destination: Dims) -> Self:
    """A view with dims moved to other places, the others in their order: (a, b, c).movedim(0, -1) -> (b, c, a). Raises AxisError
    for a dim named twice, ArgumentError for another number of places than dims."""
    src, dst = as_tuple(source), as_tuple(destination)
    n = self.ndim
    if len(src) != len(dst): raise ArgumentError(f"movedim: dims {src} to {dst}; give as many of both")
    if not n: return self
    a, b = [self._dim("movedim", d) for d in src], [self._dim("movedim", d) for d in dst]
    if len(set(a)) != len(a) or len(set(b)) != len(b):
      raise AxisError(f"movedim: dims {src} to {dst} of a tensor with {n} dimensions; name none twice")
    order, rest = [-1] * n, iter([d for d in range(n) if d not in a])
    for i, j in zip(a, b): order[j] = i
    return self._permute(tuple([next(rest) if o < 0 else o for o in order]))

  moveaxis = movedim

  @property
  def T(self) -> Self:
    """All dims in reverse order."""
    return self._permute(tuple(range(self.ndim))[::-1])
  @property
  def mT(self) -> Self:
    """The last two dims swapped. Raises AxisError for fewer than two."""
    if self.ndim < 2: raise AxisError(f"mT: a tensor of shape {self.shape}; it takes at least 2 dimensions")
    return self.transpose(-2, -1)

  def flip(self, *axis: Any) -> Self:
    """Dims with their elements in reverse order. Raises AxisError."""
    return self._seen((Ops.FLIP, axes_of("flip", axis[0] if len(axis) == 1 else axis, self.ndim, self._names)))

  def rot90(self, k: int = 1, dims: Sequence[int | str] = (0, 1)) -> Self:
    """A view turned k times by a right angle in the plane of two dims, from the first towards the second. Raises AxisError."""
    if len(dims) != 2: raise AxisError(f"rot90: dims {shown(dims)}; it turns in the plane of two")
    a, b = [self._dim("rot90", d) for d in dims]
    if a == b or self.ndim < 2: raise AxisError(f"rot90: dims {shown(dims)} of shape {self.shape}; it takes two different ones")
    if k % 4 == 0: return self
    if k % 4 == 2: return self.flip(a, b)
    return self.flip(b).transpose(a, b) if k % 4 == 1 else self.transpose(a, b).flip(b)

  def fliplr(self) -> Self:
    """A view with the second dim reversed. Raises ShapeError for fewer than two."""
    if self.ndim < 2: raise ShapeError(f"fliplr: shape {self.shape}; it takes at least 2 dimensions")
    return self.flip(1)
  def flipud(self) -> Self:
    """A view with the first dim reversed. Raises ShapeError for shape ()."""
    if not self.ndim: raise ShapeError("flipud: shape (); it takes at least 1 dimension")
    return self.flip(0)

  def roll(self, shifts: Ints, dims: int | str | Sequence[int | str] | None = None) -> Self:
    """Elements moved along dims, those that fall off coming in at the other end. Raises AxisError, ArgumentError."""
    if dims is None: return self.flatten().roll(shifts, 0).reshape(self.shape)._own()._called(self._names)
    ds, ks = as_tuple(dims), as_tuple(shifts)
    if len(ks) != len(ds): raise ArgumentError(f"roll: shifts {ks} for dims {ds}; give as many of both")
    u = self.lazydata
    for k, dim in zip(ks, ds):
      d = self._dim("roll", dim)
      n = u.shape[d]
      k = k % n if n else 0
      if k: u = graph.cat((graph.part(u, d, n - k, n), graph.part(u, d, 0, n - k)), d)
    return self._wrap(u)

  # ---- parts
  def shrink(self, bounds: Sequence[tuple[int, int] | None]) -> Self:
    """A box: (begin, end) of each dim, None for all of it. Raises ShapeError, ArgumentError."""
    u = self.lazydata
    if len(bounds) != len(u.shape):
      raise ShapeError(f"shrink: {len(bounds)} bounds for shape {u.shape}; give one for each dimension")
    box = tuple([(0, s) if b is None else b for b, s in zip(bounds, u.shape)])
    if not all([0 <= b <= e <= s for (b, e), s in zip(box, u.shape)]):
      raise ArgumentError(f"shrink: bounds {box} of shape {u.shape}; each needs 0 <= begin <= end <= size")
    return self._shrink(box)

  def _shrink(self, box: Sequence[tuple[int, int]]) -> Self: return self._seen((Ops.SHRINK, tuple(box)))

  def _part(self, d: int, begin: int, end: int) -> Self:
    """A view of the elements of a dim from begin to end."""
    return self._shrink([(begin, end) if i == d else (0, n) for i, n in enumerate(self.shape)])

  def narrow(self, dim: int | str, start: int, length: int) -> Self:
    """A view of ``length`` elements of a dim from ``start`` on (negative: from the end). Raises AxisError, ArgumentError."""
    d, s = self._dim("narrow", dim, "narrow"), self.shape
    begin = start + s[d] if start < 0 else start
    if not 0 <= begin <= s[d] or not 0 <= length <= s[d] - begin:
      raise ArgumentError(f"narrow: start {start}, length {length} on dimension {d} of shape {s}; it has {s[d]} elements")
    return self._part(d, begin, begin + length)

  def split(self, sizes: int | Sequence[int], dim: int | str = 0) -> tuple[Self, ...]:
    """Pieces of a size (the last may be smaller), or of the given sizes, along a dim. Raises AxisError, ArgumentError."""
    d, s = self._dim("split", dim, "split"), self.shape
    if not isinstance(sizes, (tuple, list)):
      size = whole_number("split", "size", sizes, 1)
      sizes = [min(size, s[d] - at) for at in range(0, max(s[d], 1), size)]
    if sum(sizes) != s[d] or min(sizes, default=0) < 0:
      raise ArgumentError(f"split: sizes {tuple(sizes)} of dimension {d} of shape {s}; they must add up to {s[d]}")
    out, at = [], 0
    for n in sizes:
      out.append(self._part(d, at, at + n))
      at += n
    return tuple(out)

  def chunk(self, chunks: int, dim: int | str = 0) -> tuple[Self, ...]:
    """At most so many equal pieces along a dim (the last may be smaller). Raises AxisError, ArgumentError."""
    chunks = whole_number("chunk", "chunks", chunks, 1)
    d = self._dim("chunk", dim)
    return self.split(max(-(-self.shape[d] // chunks), 1) if self.shape else 1, d)

  def tensor_split(self, indices_or_sections: Ints, dim: int | str = 0) -> tuple[Self, ...]:
    """Views: so many pieces of a dim, the first ones greater by one where it does not divide; or the pieces that end at the given
    indices (as slices have them), and the rest. Raises AxisError, ArgumentError."""
    return self._split_at("tensor_split", indices_or_sections, self._dim("tensor_split", dim))
  def _split_at(self, name: str, where: Any, d: int, even: bool = False) -> tuple[Self, ...]:
    if not self.ndim: raise AxisError(f"{name}: a tensor of shape () has no dimension to split")
    n = self.shape[d]
    if isinstance(where, int):
      whole_number(name, "sections", where, 1)
      said = f"{name}: {where} sections of dimension {d} of shape {self.shape}"
      if where > max(n, _MOST_PIECES): raise ArgumentError(f"{said}; where most are empty it makes up to {_MOST_PIECES}")
      if even and n % where: raise ArgumentError(f"{said}; they must be equal")
      cuts = [i * (n // where) + min(i, n % where) for i in range(1, where)]
    else: cuts = list(where)
    found = [sliced(slice(a, b), n) for a, b in zip([0, *cuts], [*cuts, None])]
    return tuple([self._part(d, begin if m else 0, begin + m if m else 0) for begin, m, _ in found])
  def hsplit(self, indices_or_sections: Ints) -> tuple[Self, ...]:
    """Views of equal pieces, or up to given indices, of the second dim (of one: the first). Raises AxisError, ArgumentError."""
    return self._split_at("hsplit", indices_or_sections, min(self.ndim - 1, 1), True)
  def _split_like(self, name: str, d: int, indices_or_sections: Ints) -> tuple[Self, ...]:
    least = max(d + 1, 2)
    if self.ndim < least: raise AxisError(f"{name}: shape {self.shape}; it takes at least {least} dimensions")
    return self._split_at(name, indices_or_sections, d, True)
  vsplit = member(_split_like, 0, "The same of the first dim, of at least 2. Raises AxisError, ArgumentError.")
  dsplit = member(_split_like, 2, "The same of the third dim. Raises AxisError, ArgumentError.")

  def unbind(self, dim: int | str = 0) -> tuple[Self, ...]:
    """Views of the slices along a dim, without it: (n, ..) -> n of (..). Raises AxisError."""
    d, s = self._dim("unbind", dim, "take apart"), self.shape
    left = [k for k in range(len(s)) if k != d]
    return tuple([self._part(d, i, i + 1)._regrouped(s[:d] + s[d + 1:], left) for i in range(s[d])])

  def diagonal(self, offset: int = 0, dim1: int | str = 0, dim2: int | str = 1) -> Self:
    """The elements whose index along ``dim2`` is that along ``dim1`` plus ``offset``: (.., m, .., n, ..) -> (.., k), the others
    first. A view: what is written to it is written to the tensor. Raises ShapeError, AxisError."""
    if self.ndim < 2: raise ShapeError(f"diagonal: shape {self.shape}; it takes at least two dimensions")
    a, b = [self._dim("diagonal", d) for d in (dim1, dim2)]
    if a == b: raise AxisError(f"diagonal: dim1 {dim1!r} and dim2 {dim2!r} are the same dimension")
    rest = tuple([d for d in range(self.ndim) if d not in (a, b)])
    s, m, n = tuple([self.shape[d] for d in rest]), self.shape[a], self.shape[b]
    first, size = max(-offset, 0) * n + max(offset, 0), max(min(m - max(-offset, 0), n - max(offset, 0)), 0)
    whole = tuple([(0, k) for k in s])
    moves: list[Any] = [(Ops.PERMUTE, (*rest, a, b)), (Ops.RESHAPE, (*s, m * n))]
    if not size or 0 in s: moves += [(Ops.SHRINK, (*whole, (0, 0))), (Ops.RESHAPE, (*s, size))]
    else:
      moves += [(Ops.SHRINK, (*whole, (first, first + (size - 1) * (n + 1) + 1))),
                (Ops.TILE, (*[(1, 1, 1)] * len(s), (1, n + 1, 1))), (Ops.RESHAPE, (*s, size))]
    return self._seen(*moves, dims=(*rest, None))

  def unfold(self, dim: int | str, size: int, step: int) -> Self:
    """A view of the windows of one dim: (.., d, ..) -> (.., windows, .., size); it can be written where windows share nothing.
    Raises AxisError, ArgumentError."""
    d, s = self._dim("unfold", dim), self.shape
    if not s or not 0 <= size <= s[d] or step < 1:
      raise ArgumentError(f"unfold: size {size}, step {step} on dimension {d} of shape {s}; "
                          "size goes from 0 to the dimension, step from 1")
    n = (s[d] - size) // step + 1
    shape, dims = (*s[:d], n, *s[d + 1:], size), (*range(len(s)), None)
    if not size:
      return self._seen((Ops.SHRINK, tuple([(0, k * (i != d)) for i, k in enumerate(s)])), (Ops.RESHAPE, shape), dims=dims)
    tiles = tuple([(size, step if n > 1 else max(step, size), 1) if i == d else (1, 1, 1) for i in range(len(s))])
    return self._seen((Ops.TILE, tiles), (Ops.RESHAPE, shape), dims=dims)

  def windows(self, size: Sequence[int], stride: Ints = 1, dilation: Ints = 1) -> Self:
    """Windows of the last dims: (.., d0, d1) -> (.., outer0, outer1, size0, size1). Raises ShapeError, ArgumentError."""
    n, s = len(size), self.shape
    st, di = as_tuple(stride, n), as_tuple(dilation, n)
    if len(st) != n or len(di) != n or n > len(s):
      raise ShapeError(f"windows: size {tuple(size)}, stride {st}, dilation {di} for shape {s}; "
                       "they need one number each for the last dimensions")
    if min((*size, *st, *di), default=1) < 1:
      raise ArgumentError(f"windows: size {tuple(size)}, stride {st}, dilation {di}; all must be at least 1")
    if any([(k - 1) * g + 1 > d for k, g, d in zip(size, di, s[len(s) - n:])]):
      raise ShapeError(f"windows: windows of {tuple(size)} with dilation {di} do not fit into shape {s}; "
                       "pad the tensor or take smaller ones")
    return self._wrap(graph.windows(self.lazydata, size, st, di))._called(
      None if self._names is None else self._names + (None,) * n)

  # ---- padded, repeated and joined
  def pad(self, padding: int | Sequence[None | int | Sequence[int]], mode: str = "constant", value: float | bool = 0.0) -> Self:
    """More elements round the tensor: a (before, after) pair a dim, or flat as in torch, from the last dim. Negative cuts off.
    ``mode`` is "constant" (``value``), "reflect", "replicate" or "circular". Raises ShapeError, ArgumentError."""
    s = self.shape
    given = (padding,) if isinstance(padding, int) else padding
    pairs: list[Any]
    if all([isinstance(p, int) for p in given]):
      if len(given) % 2 or len(given) > 2 * len(s):
        raise ShapeError(f"pad: {given} for shape {s}; a flat padding has 2 numbers a dimension, last dimension first")
      pairs = [(0, 0)] * (len(s) - len(given) // 2) + [(given[i], given[i + 1]) for i in range(len(given) - 2, -2, -2)]
    else:
      pairs = [(0, 0) if p is None else (p,) if isinstance(p, int) else p for p in given]
      if len(pairs) != len(s) or any([len(p) != 2 for p in pairs]):
        raise ShapeError(f"pad: {given} for shape {s}; give one (before, after) pair for each of the {len(s)} dimensions")
    if any([min(lo, 0) + min(hi, 0) + d < 0 for d, (lo, hi) in zip(s, pairs)]):
      raise ShapeError(f"pad: {tuple(pairs)} cuts off more than shape {s} has")
    if mode != "constant": return self._pad_from_inside(pairs, mode)
    u = self.lazydata
    if any([lo < 0 or hi < 0 for lo, hi in pairs]):
      u = graph.shrink(u, [(max(-lo, 0), d - max(-hi, 0)) for d, (lo, hi) in zip(s, pairs)])
      pairs = [(max(lo, 0), max(hi, 0)) for lo, hi in pairs]
    elif not any([lo or hi for lo, hi in pairs]): return self._own()
    if u.dtype.kind == "b" and value not in (0, 1):
      raise ArgumentError(f"pad: value {value} does not fit bool; it takes True and False")
    scalar_node("pad", value, u.dtype, ())
    return self._wrap(pad_value(u, pairs, value))

  def _pad_from_inside(self, pairs: Sequence[tuple[int, int]], mode: str) -> Self:
    """``pad`` with elements of the tensor. Negative amounts crop what was reflected or replicated; "circular" crops first."""
    if mode not in ("reflect", "replicate", "circular"):
      raise ArgumentError(f"pad: mode {mode!r}; it takes 'constant', 'reflect', 'replicate' or 'circular'")
    u, s = self.lazydata, self.shape
    for d, (lo, hi) in enumerate(pairs):
      cropped = min(lo, 0), min(hi, 0)
      lo, hi = max(lo, 0), max(hi, 0)
      if mode == "circular": u, cropped = graph.part(u, d, -cropped[0], s[d] + cropped[1]), (0, 0)
      n = u.shape[d]
      most = {"reflect": max(n - 1, 0), "circular": n, "replicate": max(lo, hi) if n else 0}[mode]
      if max(lo, hi) > most:
        raise ArgumentError(f"pad: {pairs[d]} of dimension {d} of shape {s} in mode {mode!r}; it takes up to {most}")
      if mode == "reflect":
        before, after = graph.flip(graph.part(u, d, 1, lo + 1), (d,)), graph.flip(graph.part(u, d, n - 1 - hi, n - 1), (d,))
      elif mode == "circular": before, after = graph.part(u, d, n - lo, n), graph.part(u, d, 0, hi)
      else:
        before, after = [
          graph.expand(graph.part(u, d, *at), (*s_[:d], k, *s_[d + 1:])) if k else graph.part(u, d, 0, 0)
          for at, k, s_ in (((0, 1), lo, u.shape), ((n - 1, n), hi, u.shape))]
      u = graph.part(_beside((before, u, after), d), d, -cropped[0], n + lo + hi + cropped[1])
    return self._wrap(u)

  def repeat(self, *repeats: Any) -> Self:
    """The whole tensor so many times along each dim; extra counts make dims in front. Raises ShapeError, ArgumentError."""
    r = shape_of("repeat", repeats)
    s = (1,) * (len(r) - self.ndim) + self.shape
    if len(r) < self.ndim: raise ShapeError(f"repeat: {r} for shape {self.shape}; give at least {self.ndim} counts")
    if min(r, default=0) < 0: raise ArgumentError(f"repeat: counts {r}; they must not be negative")
    u = graph.reshape(self.lazydata, tuple([x for d in s for x in (1, d)]))
    u = graph.expand(u, tuple([x for k, d in zip(r, s) for x in (k, d)]))
    return self._wrap(graph.reshape(u, tuple([k * d for k, d in zip(r, s)])))._called(
      None if self._names is None else (None,) * (len(r) - self.ndim) + self._names)

  def tile(self, *reps: Any) -> Self:
    """``repeat``, with counts of 1 in front where fewer than dims are given. Raises ArgumentError."""
    r = shape_of("tile", reps)
    return self.repeat((1,) * (self.ndim - len(r)) + r)

  def repeat_interleave(self, repeats: int, dim: int | str | None = None) -> Self:
    """Each element so many times in a row, along one dim or (None) of the flattened tensor. Raises AxisError, ArgumentError."""
    x = self.flatten() if dim is None else self
    d = 0 if dim is None else x._dim("repeat_interleave", dim)
    repeats = whole_number("repeat_interleave", "repeats", repeats, 0)
    s = x.shape
    u = graph.expand(graph.reshape(x.lazydata, s[:d + 1] + (1,) + s[d + 1:]), s[:d + 1] + (repeats,) + s[d + 1:])
    return self._wrap(graph.reshape(u, s[:d] + (s[d] * repeats,) + s[d + 1:]))

  def cat(*tensors: Any, dim: int | str = 0) -> Any:
    """Joined along a dim: ``a.cat(b, c, dim=1)``, ``Tensor.cat(a, b)``, ``Tensor.cat([a, b])`` or ``Tensor.cat([a, b], 1)``.
    Raises ShapeError, AxisError, DeviceError, ArgumentError."""
    if behind_a_list(tensors): tensors, dim = tensors[:1], tensors[1]
    self, *_ = tensors = several("cat", tensors)
    d = self._dim("cat", dim)
    if not self.shape: raise AxisError("cat: tensors of shape () cannot be joined; stack them")
    return _joined("cat", tensors, d)

  def stack(*tensors: Any, dim: int | str = 0) -> Any:
    """Joined along a new dim, given as for ``cat``. Raises ShapeError, AxisError, DeviceError, ArgumentError."""
    if behind_a_list(tensors): tensors, dim = tensors[:1], tensors[1]
    self, *_ = tensors = several("stack", tensors)
    for t in tensors:
      if t.shape != self.shape: raise ShapeError(f"stack: shapes {', '.join(text(t) for t in tensors)}; they must be equal")
    d = axis_of("stack", dim, self.ndim + 1, self._names)
    return _joined("stack", [t.unsqueeze(d) for t in tensors], d)

  def hstack(*tensors: Any) -> Any:
    """Joined along the second dim (tensors of one dim: along that), given as for ``cat``. Raises ShapeError, ArgumentError."""
    ts = [t.atleast_1d() for t in several("hstack", tensors)]
    return Movement.cat(ts, dim=min(ts[0].ndim - 1, 1))
  def vstack(*tensors: Any) -> Any:
    """Joined along the first dim, as rows where they have one dim, given as for ``cat``. Raises ShapeError, ArgumentError."""
    return Movement.cat([t.atleast_2d() for t in several("vstack", tensors)])
  def dstack(*tensors: Any) -> Any:
    """Joined along the third dim, given as for ``cat``. Raises ShapeError, ArgumentError."""
    return Movement.cat([t.atleast_3d() for t in several("dstack", tensors)], dim=2)

  def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Any, ...]:
    """Grids of coordinates of 1-d tensors, given as for ``cat``. Raises ShapeError, ArgumentError."""
    if indexing not in ("ij", "xy"): raise ArgumentError(f"meshgrid: indexing {indexing!r}; it takes 'ij' or 'xy'")
    tensors = several("meshgrid", tensors)
    if any([t.ndim > 1 for t in tensors]):
      raise ShapeError(f"meshgrid: shapes {', '.join(str(t.shape) for t in tensors)}; it takes 1-d tensors")
    n, place = len(tensors), list(range(len(tensors)))
    if indexing == "xy" and n > 1: place[:2] = [1, 0]
    lines = [t._regrouped((1,) * p + (t.numel(),) + (1,) * (n - p - 1), [0 if i == p and t.ndim else None for i in range(n)])
             for t, p in zip(tensors, place)]
    shape = broadcast_shape("meshgrid", *[line.shape for line in lines])
    return tuple([line.expand(shape)._own() for line in lines])

  def cartesian_prod(*tensors: Any) -> Any:
    """Every combination of an element of each 1-d tensor, the last changing fastest: (a,), (b,) -> (a * b, 2); of one tensor
    that tensor. Raises ShapeError, ArgumentError."""
    ts = several("cartesian_prod", tensors)
    if any([t.ndim != 1 for t in ts]):
      raise ShapeError(f"cartesian_prod: shapes {', '.join([str(t.shape) for t in ts])}; it takes 1-d tensors")
    if len(ts) == 1: return ts[0]._own()
    return Movement.stack([t.flatten() for t in Movement.meshgrid(*[t.named() for t in ts])], dim=1)

  # ---- by a pattern
  def rearrange(self, formula: str, **sizes: Any) -> Self:
    """Dimensions split, put in another order and joined, as einops has it: ``x.rearrange("b (h w) c -> b c h w", h=4)``. A view.
    Both sides have the same names, each once; parentheses group those that make one dimension, ``1`` and ``()`` are dimensions of
    1, ``...`` stands for any number of them (in parentheses on the right only). Of each group's sizes one may be left open. A
    dimension that stays one keeps its name of ``named``. Raises ArgumentError for a pattern that is none, ShapeError for sizes
    that do not fit."""
    pieces, groups = pattern_moves(formula, self, {k: whole_number("rearrange", f"size {k}", n, 0) for k, n in sizes.items()})
    moved = self._regrouped(tuple([n for _, n in pieces]), [d for d, _ in pieces])._permute(tuple([k for g in groups for k in g]))
    shape = tuple([math.prod([pieces[k][1] for k in g]) for g in groups])
    ends = list(itertools.accumulate([len(g) for g in groups]))
    return moved._regrouped(shape, [end - 1 if len(g) == 1 else None for g, end in zip(groups, ends)])

  # ---- bits
  def view(self, *shape: Any, dtype: Any = None) -> Self:
    """``reshape``, or, of one dtype or its name, ``bitcast``. Raises ShapeError, ArgumentError, DTypeError."""
    if dtype is None and len(shape) == 1 and isinstance(shape[0], (DType, str)): return self.bitcast(shape[0])
    if dtype is None: return self.reshape(*shape)
    if shape: raise ArgumentError(f"view: a shape {shown(shape)} and dtype={shown(dtype)}; give one of them")
    return self.bitcast(dtype)

  def bitcast(self, dtype: DType | str) -> Self:
    """A view of the same bits as another dtype. One of another size changes the last dimension: (.., n) of float32 is (.., 4n) of
    uint8 (the lowest byte first) and (.., n / 2) of float64. No gradient passes, but for the same dtype. Raises DTypeError where
    one is bool and the other is not, ShapeError where the last dimension is missing or does not divide."""
    d, u = dtypes.of(dtype), self.lazydata
    if d is u.dtype: return self._seen((Ops.RESHAPE, u.shape))
    if (d.kind == "b") != (u.dtype.kind == "b"):
      raise DTypeError(f"bitcast: {u.dtype.name} as {d.name}; bool goes with bool only")
    few, many = sorted((d.itemsize, u.dtype.itemsize))
    n = many // few
    if n > 1 and (not u.shape or (few != d.itemsize and u.shape[-1] % n)):
      raise ShapeError(f"bitcast: shape {u.shape} of {u.dtype.name} as {d.name}; the last dimension must be there"
                       f"{f', and a multiple of {n}' if u.shape else ''}")
    called = self._names if n == 1 or self._names is None else (*self._names[:-1], None)
    return self._of_alias(Bits(origins.note_origin(graph.bits(u, d)), self._alias, (*self._view, (Ops.BITCAST, d))), called)
