"""Symbolic tensors: what an arrangement is written with. A Tensor is a parameter (its source) and the meta-operations done to it
so far, each checked when it is called as far as sizes are known. With numbers for symbols, ``arrangement`` does the same to a
concrete Arrangement, from which kernels get their indices: shapes here are for people and for proofs."""
from __future__ import annotations

import inspect
import itertools
import operator
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np

from ntgrad.codegen.index import Dim, numbers
from ntgrad.codegen.ir import ArgumentError, AxisError, DType, NtgradError, ShapeError, shown
from ntgrad.codegen.kernel.arrangement import Arrangement, full_key, key_text
from ntgrad.graph import checked, no_flag
from ntgrad.graph.origins import Line, at_lines, here, say_once
from ntgrad.graph.symbol import Expr, Symbol, evaluate_size, symbols_of
from ntgrad.graph.symbol_sympy import is_sympy

from . import shapes
from .block import dtype_of

_Shape = tuple[Expr, ...]
SYMBOL_OPTIONS = "constexpr meta lower_bound upper_bound power_of_two".split()
_count = itertools.count()


@dataclass(frozen=True)
class Operation:
  """A meta-operation of Arrangement on a level; the line that did it, and how many whole windows there must be some of."""
  level: int
  name: str
  args: tuple[Any, ...]
  line: Line | None = field(default=None, compare=False)
  windows: _Shape = field(default=(), compare=False)

  def filled(self, table: Mapping[str, Any]) -> Operation:
    return replace(self, args=_filled(self.args, table), windows=_filled(self.windows, table))

  def text(self) -> str:
    """As written: ``.tile((BM, BK))``."""
    level = f", level={self.level}" if self.level else ""
    name, args = self.name, self.args
    if name == "index": return f".index({key_text(args[0], True)}{level})" if self.level else f"[{key_text(args[0])}]"
    if name == "flatten": args = args[0], args[1] + 1   # as the Tensor has it: the end is not included
    if name == "tile": args = args[0], *[f"{k}={v}" for k, v in zip(("strides", "dilation", "floor_mode"), args[1:]) if v]
    return f".{name}({(', '.join(map(str, args)) + level).removeprefix(', ')})"


@dataclass(frozen=True, eq=False)
class Declaration:
  """A parameter as it was declared. ``given`` is its shape with None for the dimensions that take their name from the tensor."""
  name: str
  shape: _Shape
  given: tuple[Expr | None, ...]
  automatic: tuple[bool, ...] = ()   # dimensions that are numbers until they are met with a second value
  dtype: DType | type | None = None   # of the elements; a Python type for any dtype of its kind
  other: Any = None
  shape_options: tuple[Mapping[str, Any], ...] = ()
  constexpr: bool = False
  value: Any = None
  jagged_dim: int | None = None
  line: Line | None = None   # that declared it

  def named(self, name: str) -> Declaration:
    """With its anonymous dimensions named from ``name``."""
    shape = tuple(Symbol(f"{name}_size_{d}", **{"lower_bound": 0, **o}) if g is None else g
                  for d, (g, o) in enumerate(zip(self.given, self.shape_options)))
    return replace(self, name=name, shape=shape)


DTYPE_KINDS: dict[Any, str] = {bool: "b", int: "iu", float: "fe"}   # of the dtypes that Python's types stand for


def _element(dtype: Any) -> DType | type | None:
  """A declared dtype; Python's types as they are, None for any. A number says nothing, as NineToothed's JIT never looks at it."""
  if isinstance(dtype, (int, float)) and not isinstance(dtype, (bool, DType)):
    say_once("tile.Tensor: dtype", f"tile.Tensor: dtype={shown(dtype)} is a number: ignored, the argument's is taken")
    return None
  return dtype if dtype is None or any(dtype is kind for kind in DTYPE_KINDS) else dtype_of(dtype)


def _options(shape_options: Any, n: int) -> tuple[Mapping[str, Any], ...]:
  """One mapping of Symbol options a dimension."""
  each = (shape_options,) * n if shape_options is None or isinstance(shape_options, Mapping) else tuple(shape_options)
  if len(each) != n:
    raise ArgumentError(f"Tensor: shape_options for each of {n} dimensions (or one mapping for all), got {len(each)}")
  for o in each:
    if o is not None and (not isinstance(o, Mapping) or any(k not in SYMBOL_OPTIONS for k in o)):
      raise ArgumentError(f"Tensor: shape_options are mappings of {', '.join(SYMBOL_OPTIONS)}; got {o!r}")
  return tuple(o or {} for o in each)


def _dimension(size: Any, options: Mapping[str, Any]) -> Expr | None:
  """A declared dimension: an int, a Symbol, a name, an expression as text, or None or "?" for one that the tensor names."""
  if size is None or isinstance(size, Symbol): return size
  if isinstance(size, str): return None if size == "?" else Symbol(size, **options)
  if is_sympy(size): return Symbol(size)
  try: n = operator.index(size)
  except TypeError: raise ArgumentError(f"Tensor: a dimension is an int, a Symbol, a name or None, got {size!r}") from None
  if n < 0: raise ArgumentError(f"Tensor: a dimension of {n}; None is one that is not known yet")
  return n


def _declared(name: str, doc: str) -> Any:
  """A property of a Tensor: what its declaration says."""
  return property(operator.attrgetter(f"_source.{name}"), doc=doc)


class Tensor:
  """A symbolic tensor: ``Tensor(2)``, ``Tensor(shape=(4, "N", "2*N + 1", None))``.

  ``shape`` has ints, Symbols, names and expressions as text, and None or "?" for anonymous dimensions, which become Symbols
  ``<name>_size_<d>`` with the options of ``shape_options`` (one mapping for all dimensions, or one a dimension). ``other`` is
  what out-of-bounds elements read (0). ``constexpr`` and ``value``: a scalar that is part of the kernel. ``jagged_dim``: the
  dimension whose length differs from one to the next. Raises ArgumentError for arguments that say nothing or contradict
  each other.

  A tiled tensor nests: its ``dtype`` is the next level, a Tensor that can be changed and set: ``t.dtype = t.dtype.squeeze(0)``.
  """
  _source: Declaration
  _ops: tuple[Operation, ...]
  _levels: tuple[_Shape, ...]

  @checked
  def __init__(self, ndim: int | None = None, shape: Sequence[Any] | None = None, dtype: Any = None, other: Any = None,
               shape_options: Mapping[str, Any] | Iterable[Any] | None = None, constexpr: bool = False,
               value: Any = None, name: str | None = None, jagged_dim: int | None = None):
    if shape is None and ndim is None: raise ArgumentError("Tensor: the number of dimensions, or a shape")
    if shape is None and (isinstance(ndim, bool) or not isinstance(ndim, int) or ndim < 0):
      raise ArgumentError(f"Tensor: {ndim!r} dimensions")
    given = (None,) * (ndim or 0) if shape is None else no_flag("Tensor", "a shape", tuple(shape))
    n = len(given)
    if ndim is not None and n != ndim: raise ArgumentError(f"Tensor: {ndim} dimensions, but a shape of {n}: {given}")
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
      raise ArgumentError(f"Tensor: {name!r} is no name")
    options = _options(shape_options, n)
    if jagged_dim is not None:
      if not -n <= jagged_dim < n: raise AxisError(f"Tensor: jagged_dim {jagged_dim} of {n} dimensions")
      jagged_dim %= n
    if (constexpr or value is not None) and given:
      raise ArgumentError(f"Tensor: constexpr and value are those of a scalar, Tensor(0); this one has {n} dimensions")
    dims = tuple(_dimension(s, o) for s, o in zip(given, options))
    source = Declaration("", (), dims, tuple(s is None for s in given), _element(dtype), other, options, bool(constexpr), value,
                         jagged_dim, here()).named(name or f"tensor_{next(_count)}")
    self._set(source)

  def _set(self, source: Declaration, ops: tuple[Operation, ...] = (), levels: tuple[_Shape, ...] = (), level: int = 0,
           begin: int = 0, parent: Tensor | None = None) -> Tensor:
    """``level``: its place among ``levels``. ``begin``: how many operations ``parent`` had when this was taken out of it."""
    self._source, self._ops, self._levels = source, ops, levels or (source.shape,)
    self._level, self._begin, self._parent = level, begin, parent
    return self

  @classmethod
  def _of(cls, *given: Any) -> Tensor: return cls.__new__(cls)._set(*given)

  def _new(self, ops: tuple[Operation, ...], levels: tuple[_Shape, ...], source: Declaration | None = None) -> Tensor:
    return self._of(source or self._source, ops, levels, self._level, self._begin)

  def _then(self, name: str, args: tuple[Any, ...], *shapes: _Shape, merged: int = 1, windows: _Shape = ()) -> Tensor:
    """With one more operation: ``shapes`` instead of this level (and of the ``merged - 1`` beneath it)."""
    k = self._level
    return self._new((*self._ops, Operation(k, name, args, here(), windows)),
                     (*self._levels[:k], *shapes, *self._levels[k + merged:]))

  # ---- what it is

  @property
  def shape(self) -> _Shape:
    """This level's shape: ints and Symbols. It can be set: of a parameter that is not arranged yet that declares its sizes; else
    dimensions of 1 are expanded, and others are cut to the first elements."""
    return self._levels[self._level]

  @shape.setter
  def shape(self, value: Sequence[Any]) -> None:
    want = tuple(value)
    if len(want) != self.ndim: raise ShapeError(f"shape: {self.ndim} dimensions, got {want}; in {self}")
    if not self._ops and self._level == 0:   # as if it had been declared so
      same = [old if new is old else _dimension(new, o) for old, new, o in zip(self.shape, want, self.shape_options)]
      s, kept = self._source, [new is old for old, new in zip(self.shape, same)]
      given = tuple(g if k else new for g, k, new in zip(s.given, kept, same))
      source = replace(s, given=given, automatic=tuple(a and k for a, k in zip(s.automatic, kept))).named(self.name)
      self._set(source)
      return
    made: Tensor = self
    for d, (old, new) in enumerate(zip(self.shape, shapes.sizes("shape", want))):
      if (old == new) is True: continue
      key = *[slice(None)] * d, slice(0, new)
      made = made.expand([new if e == d else -1 for e in range(self.ndim)]) if old == 1 else made[key]
    self._ops, self._levels = made._ops, made._levels
    if self._parent is not None: self._parent.dtype = self

  @property
  def ndim(self) -> int:
    """How many dimensions this level has."""
    return len(self.shape)

  @property
  def levels(self) -> tuple[_Shape, ...]:
    """The shapes of this level and those beneath it, outermost first."""
    return self._levels[self._level:]

  @property
  def source(self) -> Tensor:
    """The parameter before any meta-operation."""
    return self if not self._ops and self._level == 0 else self._of(self._source)

  @property
  def strides(self) -> tuple[Symbol, ...]:
    """The source's strides in elements, Symbols ``<name>_stride_<d>``: what an array that is given for it says."""
    return tuple(Symbol(f"{self.name}_stride_{d}") for d in range(len(self._source.shape)))

  name: str = _declared("name", "The parameter's name.")
  other: Any = _declared("other", "What elements outside the source read; None is 0.")
  constexpr: bool = _declared("constexpr", "Whether it is a scalar that is part of the kernel.")
  value: Any = _declared("value", "A constexpr scalar's value, where it is declared with one.")
  jagged_dim: int | None = _declared("jagged_dim", "The dimension whose length differs, None where all are regular.")
  shape_options: tuple[Mapping[str, Any], ...] = _declared("shape_options", "The declared options of each source dimension.")

  def _lines(self) -> list[Line | None]:
    """For each level the line that made it what it is."""
    out = [self._source.line]
    for o in self._ops:
      if o.name == "ravel": del out[o.level:]
      out[o.level:o.level + 1] = [o.line] * (1 + (o.name == "tile"))
    return out

  @property
  def operations(self) -> tuple[Operation, ...]:
    """The meta-operations so far."""
    return self._ops

  @property
  def dtype(self) -> Any:
    """The next level, a Tensor; of the innermost level the element dtype, or None where the argument will say it."""
    if self._level + 1 == len(self._levels): return self._source.dtype
    return self._of(self._source, self._ops, self._levels, self._level + 1, len(self._ops), self)

  @dtype.setter
  def dtype(self, value: Any) -> None:
    inner = self._level + 1
    if isinstance(value, Tensor):
      if value._source is not self._source or value._level != inner or inner >= len(self._levels):
        raise ArgumentError(f"dtype: {value} is no inner level of {self}; set what was made from its own dtype")
      base, since = value._ops[:value._begin], self._ops[value._begin:]
      mine = tuple(o for o in since if o.level < inner)
      if self._ops[:value._begin] != base or any(o.name in ("tile", "ravel") for o in mine):
        raise ArgumentError(f"dtype: {value} was made from the dtype of another arrangement than {self}")
      self._ops, self._levels = (*base, *mine, *value._ops[value._begin:]), (*self._levels[:inner], *value._levels[inner:])
      if self._parent is not None: self._parent.dtype = self
      return
    if inner < len(self._levels): raise ArgumentError(f"dtype: {self} has inner levels; its dtype is a Tensor, got {value!r}")
    source = replace(self._source, dtype=_element(value))
    t: Tensor | None = self
    while t is not None: t._source, t = source, t._parent

  def innermost(self) -> Tensor:
    """The innermost level."""
    return self.dtype.innermost() if isinstance(self.dtype, Tensor) else self

  def size(self, dim: int | None = None) -> Any:
    """The shape, or one of its dimensions."""
    return self.shape if dim is None else self.shape[dim]

  def stride(self, dim: int | None = None) -> Any:
    """The source's strides, or one of them."""
    return self.strides if dim is None else self.strides[dim]

  @property
  def element(self) -> DType | None:
    """The element dtype, where it is declared."""
    return self._source.dtype if isinstance(self._source.dtype, DType) else None

  def symbols(self) -> frozenset[Symbol]:
    """All Symbols in the source's shape and in the meta-operations."""
    found: list[Symbol] = []
    mapped((self._source.shape, *[o.args for o in self._ops]), found.append)
    return frozenset(n for s in found for n in symbols_of(s))

  def __repr__(self) -> str:
    return f"{self.name}({', '.join(map(str, self._source.shape))})" + "".join(o.text() for o in self._ops)

  __iter__ = None  # an index never ends where the size is not known

  # ---- meta-operations

  def _refusing(self, fn: Callable[..., Any], *args: Any) -> Any:
    """``fn``, its errors with the tensor that they are about."""
    try: return fn(*args)
    except NtgradError as e: raise type(e)(f"{e}; in {self}" + (f", level {self._level}" if self._level else "")) from None

  def tile(self, tile_shape: Sequence[Any], strides: Sequence[Any] | None = None, dilation: Sequence[Any] | None = None,
           floor_mode: bool = False) -> Tensor:
    """(d, …) -> (tiles, …) of (tile_shape, …): a new level of windows.

    A size of -1 takes the whole dimension. ``strides`` from a window to the next (default, or -1: the tile's size), ``dilation``
    from an element of a window to the next (default 1). A partial last window counts, its outside elements masked, unless
    ``floor_mode``.
    """
    args = tuple(None if a is None else shapes.sizes("tile", a) for a in (tile_shape, strides, dilation))
    outer, inner = self._refusing(shapes.tiled_shape, self.shape, *args, bool(floor_mode))
    return self._then("tile", (*args, bool(floor_mode)), outer, inner, windows=outer if floor_mode else ())

  def expand(self, shape: Sequence[Any]) -> Tensor:
    """(1, n) -> (m, n): dimensions of 1 become any size, -1 leaves one alone. An unknown size is checked before the launch."""
    want = self._refusing(shapes.expanded_shape, self.shape, shapes.sizes("expand", shape))
    return self._then("expand", (want,), want)

  def squeeze(self, dim: int | Sequence[int]) -> Tensor:
    """(1, n) -> (n): dimensions of 1 go. One whose size is not known yet is checked before the launch."""
    gone = self._refusing(shapes.axes, "squeeze", dim, self.ndim)
    return self._then("squeeze", (_alone(gone),), self._refusing(shapes.squeezed_shape, self.shape, gone))

  def unsqueeze(self, dim: int) -> Tensor:
    """(n) -> (1, n): a dimension of 1 comes before ``dim``."""
    at, = self._refusing(shapes.axes, "unsqueeze", dim, self.ndim + 1)
    return self._then("unsqueeze", (at,), (*self.shape[:at], 1, *self.shape[at:]))

  def permute(self, dims: Sequence[int]) -> Tensor:
    """(m, n) -> (n, m): dimension i of the result is dimension ``dims[i]``."""
    order = self._refusing(shapes.permutation, dims, self.ndim)
    return self._then("permute", (order,), tuple(self.shape[d] for d in order))

  def flatten(self, start_dim: int | None = None, end_dim: int | None = None) -> Tensor:
    """(a, b, c) -> (a, b*c): the dimensions from ``start_dim`` to before ``end_dim`` become one. One level only."""
    first, last, out = self._refusing(shapes.flatten, self.shape, start_dim, end_dim)
    return self._then("flatten", (first, last), out)

  def unflatten(self, dim: int, sizes: Sequence[Any]) -> Tensor:
    """(a*b, c) -> (a, b, c): a dimension becomes several, a size of -1 what is left for it."""
    at, = self._refusing(shapes.axes, "unflatten", dim, self.ndim)
    want = shapes.sizes("unflatten", sizes)
    return self._then("unflatten", (at, want), self._refusing(shapes.unflatten, self.shape, at, want))

  def ravel(self) -> Tensor:
    """((a, b), (c, d)) -> ((a, b, c, d)): this level and all beneath it become one. The dimensions stay."""
    return self._then("ravel", (), tuple(d for level in self.levels for d in level), merged=len(self.levels))

  def pad(self, pad: Sequence[Sequence[Any]]) -> Tensor:
    """(n) -> (lo + n + hi): masked elements before and behind."""
    pairs, out = self._refusing(shapes.padded_shape, self.shape, pad)
    return self._then("pad", (pairs,), out)

  def flip(self, dims: int | Sequence[int]) -> Tensor:
    """(n) -> (n), last element first."""
    return self._then("flip", (_alone(self._refusing(shapes.axes, "flip", dims, self.ndim)),), self.shape)

  def __getitem__(self, key: Any) -> Tensor:
    """(m, n) -> (n): indices, slices with steps, None and ..., as numpy has them; bounds and indices may be Symbols."""
    out = self._refusing(lambda: shapes.index(self.shape, full_key(key, self.ndim)))
    return self._then("index", (key if isinstance(key, tuple) else (key,),), out)

  # ---- numbers

  def named(self, name: str) -> Tensor:
    """The same tensor under another name, its anonymous dimensions renamed after it."""
    return named((self,), (name,))[0]

  def subs(self, values: Mapping[Any, Any]) -> Tensor:
    """With values for Symbols (given by name, or as Symbols), and shapes for tensors: ``{BM: 2, x: Tensor(shape=(5, 6))}``."""
    table = substitutions(values)
    symbols = self.symbols()
    for s in symbols:
      if not s.meta and isinstance(n := table.get(s.name), int) and (why := s.refusal(n)): raise ShapeError(f"subs: {why}")
    old = self._source
    shape = tuple(_filled(old.shape, table))
    given = tuple(None if g is None and n is s else n for g, s, n in zip(old.given, old.shape, shape))
    source = replace(old, shape=shape, given=given)
    out = self._new(tuple(o.filled(table) for o in self._ops), tuple(_filled(self._levels, table)), source)
    if all(isinstance(table.get(s.name), int) for s in symbols):
      out._levels = tuple(numbers(level) for level in out._replayed(source.shape, {}).levels)
    return out

  def sizes(self, shape: Sequence[int]) -> dict[str, int]:
    """The values of the names in the source's shape, from an array's ``shape``. Raises ShapeError where it does not fit."""
    mine, got = self._source.shape, tuple(shape)
    if len(got) != len(mine):
      raise ShapeError(f"{self.name}: {len(mine)} dimensions ({', '.join(map(str, mine))}), got an array of shape {got}")
    out: dict[str, int] = {}
    for d, (want, n) in enumerate(zip(mine, got)):
      if want.__class__ is int:
        if want != n: raise ShapeError(f"{self.name}: dimension {d} is {want}, got an array of shape {got}")
      elif isinstance(want, Symbol) and want.is_name:
        if out.setdefault(want.name, n) != n:
          raise ShapeError(f"{self.name}: {want} is {out[want.name]} and {n} in an array of shape {got}")
        if not (want.lower_bound or 0) <= n <= (n if want.upper_bound is None else want.upper_bound):
          most = "any size" if want.upper_bound is None else want.upper_bound
          raise ShapeError(f"{self.name}: dimension {d} has {n} elements; {want} goes from {want.lower_bound or 0} to {most}")
    return out

  def arrangement(self, shape: Sequence[int] | None = None, values: Mapping[str, Dim] | None = None) -> Arrangement:
    """The concrete Arrangement of an array of ``shape`` (default: the source's own) where names have ``values``: numbers, or
    expressions of run-time sizes.

    Names in the source's shape need no value. Raises ArgumentError for a name without a value, ShapeError and so on where it does
    not fit.
    """
    known = dict(values or {})
    if shape is not None:
      for name, n in self.sizes(shape).items():
        if known.setdefault(name, n) != n:
          raise ShapeError(f"{self.name}: {name} is {known[name]}, got an array of shape {tuple(shape)}")
    have = tuple(evaluate_size(e, known) for e in self._source.shape)
    if shape is not None and have != tuple(shape):
      raise ShapeError(f"{self.name}: a shape of {have}, got an array of shape {tuple(shape)}")
    return self._replayed(have, known)

  def _replayed(self, shape: Sequence[Any], values: Mapping[str, Dim]) -> Arrangement:
    a, o = Arrangement.of(tuple(shape)), None
    try:
      for o in self._ops: a = getattr(a, o.name)(*mapped(o.args, lambda s: evaluate_size(s, values)), level=o.level)
    except NtgradError as e:
      raise type(e)(f"{self.name}: {e}; in {self}, with {a}{o.text() + at_lines(o.line) if o else ''}") from None
    return a

  def eval(self, subs: Mapping[Any, Any] | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Each element's number in the source (row by row), -1 where masked. int64, of the shape of all levels together."""
    return self.concrete(subs).elements()

  def offsets(self, dim: int | None = None, subs: Mapping[Any, Any] | None = None) -> Any:
    """Each element's index in source dimension ``dim`` (default: a tuple of all), masked or not. int64, shaped as ``eval``."""
    out = self.concrete(subs).offsets()
    return out if dim is None else out[self._refusing(shapes.axes, "offsets", dim, len(out))[0]]

  def concrete(self, subs: Mapping[Any, Any] | None = None) -> Arrangement:
    """The Arrangement where ``subs`` has all values that are missing. Raises ArgumentError for a Symbol without one."""
    if self._level:
      raise ArgumentError(f"{self}: this is its level {self._level}; eval and offsets are those of the whole tensor")
    full = self.subs(subs or {})
    if missing := sorted(s.name for s in full.symbols()):
      raise ArgumentError(f"{self}: no value for {', '.join(missing)}; give them as eval({{name: value}})")
    return full.arrangement()


def _arranged(name: str, tensor: Any, values: Any) -> Tensor:
  """The tensor that a function was given. Raises ArgumentError for anything else, and for values that are no mapping."""
  if not isinstance(tensor, Tensor): raise ArgumentError(f"{name}: {shown(tensor)}; it takes a tile.Tensor")
  if not isinstance(values, Mapping): raise ArgumentError(f"{name}: {shown(values)}; values are a dict")
  return tensor


def eval(tensor: Tensor, subs: Mapping[Any, Any] | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:  # noqa: A001
  """``tensor.eval(subs)``: each element's number in the source, -1 where there is none."""
  return _arranged("eval", tensor, {} if subs is None else subs).eval(subs)


def subs(tensor: Tensor, values: Mapping[Any, Any]) -> Tensor:
  """``tensor.subs(values)``: the tensor with values for Symbols."""
  return _arranged("subs", tensor, values).subs(values)


def _alone(axes: tuple[int, ...]) -> Any: return axes[0] if len(axes) == 1 else axes


def mapped(args: Any, fn: Callable[[Symbol], Any]) -> Any:
  """Nested arguments with what ``fn`` makes of each Symbol in its place."""
  match args:
    case Symbol(): return fn(args)
    case tuple(): return tuple(mapped(a, fn) for a in args)
    case slice(): return slice(*[mapped(a, fn) for a in (args.start, args.stop, args.step)])
  return args


def _filled(args: Any, table: Mapping[str, Any]) -> Any: return mapped(args, lambda s: s.subs(table))


def substitutions(values: Mapping[Any, Any]) -> dict[str, Any]:
  """{name: int or Symbol} from a mapping with names, Symbols and Tensors (as ``subs`` takes it) for keys."""
  out: dict[str, Any] = {}
  for k, v in values.items():
    if isinstance(k, Tensor):
      shape, own = v.shape if isinstance(v, Tensor) else v["shape"] if isinstance(v, Mapping) else v, k._source.shape
      if len(shape) != len(own): raise ShapeError(f"subs: {k.name} has {len(own)} dimensions, got a shape {tuple(shape)}")
      out.update({s.name: n for s, n in zip(own, shape) if isinstance(s, Symbol) and s.is_name})
      continue
    if not isinstance(k, str) and not (isinstance(k, Symbol) and k.is_name):
      raise ArgumentError(f"subs: names, Symbols and Tensors get values, got {k!r}")
    out[k if isinstance(k, str) else k.name] = v if isinstance(v, Symbol) else operator.index(v)
  return out


def check_takes(name: str, arrangement: Callable[..., Any], count: int) -> None:
  """Raises ArgumentError for an arrangement that does not take so many tensors."""
  try: signature = inspect.signature(arrangement)
  except ValueError: return   # written in C, says nothing
  try: signature.bind(*range(count))
  except TypeError as e: raise ArgumentError(f"{name}: {shown(arrangement)} does not take {count} tensors: {e}") from None


@checked
def named(tensors: Sequence[Tensor], names: Sequence[str]) -> tuple[Tensor, ...]:
  """The tensors under other names; anonymous dimensions are renamed after them, also where others of these use their sizes."""
  if len(names) != len(tensors): raise ArgumentError(f"named: {len(tensors)} tensors and {len(names)} names; one for each")
  sources = [t._source.named(n) for t, n in zip(tensors, names)]
  own = [{old.name: new for g, old, new in zip(s.given, t._source.shape, s.shape) if g is None and isinstance(old, Symbol)}
         for t, s in zip(tensors, sources)]
  everywhere = {old: new for table in own for old, new in table.items()}
  tables = [everywhere | mine for mine in own]   # one tensor may stand for several parameters
  return tuple(t._new(tuple(o.filled(table) for o in t._ops), _filled(t._levels, table), s)
               for t, s, table in zip(tensors, sources, tables))
