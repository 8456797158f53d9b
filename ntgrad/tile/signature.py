"""What a kernel takes: its parameters, how they are arranged, and what must be so of their sizes before anything is launched."""
from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable, ClassVar, Container, Mapping, Sequence, Union

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim, below, same_size, shape_text
from ntgrad.codegen.ir import ArgumentError, DType, DTypeError, Recent, ShapeError, config, did_you_mean, shown
from ntgrad.codegen.kernel.arrangement import Arrangement
from ntgrad.engine import report
from ntgrad.graph.origins import Line, at_lines
from ntgrad.graph.symbol import Symbol, evaluate, evaluate_size, solved
from ntgrad.reads import Reads

from .assessments import Assessment, forgotten_expand, mended, no_empty_tiles
from .launch import Argument, ByName, Positional
from .open_sizes import SizedKernel, Sizes
from .parameters import Parameter, Tile
from .tensor import DTYPE_KINDS, Tensor

Found = Union[tuple[Any, Sizes, Union[SizedKernel, None]], None]   # what ``_specialise`` gives
ByParameter = Sequence[Union[Argument, None]]   # None for a compile-time number
Constants = Mapping[int, Any]                  # the compile-time numbers, by parameter
MemoryOf = Callable[[Any], Sequence[Any]]    # of a kernel the Buffers, by slot
STATES = 4   # of what an application reads, whose kernels are kept


class BeyondError(ShapeError):
  """A size that is not what the options of a dimension without a name say: they are about what is likely."""


class Signature:
  """A kernel as its calls see it; ``launch`` runs it. One is read from an application, another from a library's manifest."""
  tuned = False                # whether the tuner chooses for it
  pieces = True                # whether what it reads may be a piece of a memory
  device: str | None = None    # where it runs where no argument says; None: the default device
  _KNOWN: ClassVar[Mapping[str, int]] = {"_launchers": 1024, "_sized": 256}   # what is known of calls, and of how many at most
  _launchers: Recent[Any, Any]
  _sized: Recent[Any, Any]     # of calls that differ in sizes only: what tells which kernel serves them

  def __init__(self, name: str, tensors: Sequence[Tensor], arranged: Sequence[Tensor], assessed: Sequence[Assessment],
               checks: str | None, aside: Container[str] = ()):
    self.name, self.tensors, self.arranged, self.assessed, self.checks = name, tensors, arranged, assessed, checks
    self.aside = aside   # the names of parameters of which the application uses no tile: they have no grid
    self.names = [t.name for t in tensors]
    # the positional arguments of a call
    self.given = [i for i, t in enumerate(tensors) if not (t.constexpr and t.value is not None)]
    self.takes = [tensors[i] for i in self.given]
    self.symbols: dict[str, Symbol] = {s.name: s for t in arranged for s in t.symbols()}
    self.reads: Reads | None = None               # what its application reads from outside
    self._states: list[tuple[Reads, dict[str, Any]]] = []   # what was known while it read otherwise
    self.forget()

  def forget(self) -> None:
    """Forget all calls."""
    for name, most in self._KNOWN.items(): setattr(self, name, Recent(most))
    self.last: Any = None   # the kernel of the last call

  def read_otherwise(self) -> None:
    """The application would read other things now: go on with what is known of such calls, or begin anew. See ``STATES``."""
    assert self.reads is not None
    report.note_line(f"{self.name} is read anew: {self.reads.why}")
    before = {n: getattr(self, n) for n in (*self._KNOWN, "last")}
    if self.reads.returns: self._states = [*self._states[1 - STATES:], (self.reads, before)]
    self.reads = None
    self.forget()
    if found := next((state for state in self._states if state[0].hold()), None):
      self._states.remove(found)
      self.reads = found[0]
      vars(self).update(found[1])

  def _specialise(self, taken: Sequence[Argument], arguments: Positional, given: ByName, device: str | None = None,
                  buffers: MemoryOf | None = None) -> Found:
    """The kernel for arguments, what a launch gives for its run-time sizes, and the form that tells which other sizes it serves;
    None where there are no programs. ``device`` is where it is to run, ``buffers`` gives the arguments' memory."""
    raise NotImplementedError

  def called(self, args: Positional, given: ByName) -> tuple[Positional, ByName]:
    """What a call gives by position and by name; tensors may be given by name, numbers that have a value once more."""
    if len(args) == len(self.names) > len(self.given):
      again = {self.names[i]: a for i, a in enumerate(args) if i not in self.given}
      if twice := [n for n in again if n in given]: raise ArgumentError(f"{self.name}: {', '.join(twice)} is given twice")
      args, given = [args[i] for i in self.given], {**again, **given}
    mine = [t.name for t in self.takes]
    if not any(n in given for n in mine): return args, given
    twice, rest = [n for n in mine[:len(args)] if n in given], mine[len(args):]
    if twice: raise ArgumentError(f"{self.name}: {', '.join(twice)} is given twice")
    if missing := [n for n in rest if n not in given]:
      raise ArgumentError(f"{self.name}: takes {len(mine)} arguments ({', '.join(mine)}); {', '.join(missing)} is not given")
    return [*args, *(given[n] for n in rest)], {n: v for n, v in given.items() if n not in rest}

  def again(self, given: ByName) -> tuple[dict[int, Any], dict[str, Any]]:
    """The compile-time numbers that have values, by parameter, as declared or as a call gives them; and what else it gives."""
    numbers: dict[int, Any] = {i: t.value for i, t in enumerate(self.tensors) if i not in self.given}
    rest = dict(given)
    for i in numbers:
      if (name := self.names[i]) in rest: numbers[i] = constant(name, rest.pop(name))
    return numbers, rest

  def placed(self, taken: Sequence[Argument]) -> list[Argument | None]:
    """The arguments of a call by parameter. Raises ArgumentError where there are more or fewer than it takes."""
    if len(taken) != len(self.given):
      names = [t.name for t in self.takes]
      raise ArgumentError(f"{self.name}: takes {len(names)} arguments ({', '.join(names)}), got {len(taken)}")
    by = dict(zip(self.given, taken))
    return [by.get(i) for i in range(len(self.names))]

  def bind(self, arguments: ByParameter, given: ByName) -> dict[str, int]:
    """What every symbol is, from the shapes of the arguments and compile-time values. Raises ShapeError, ArgumentError."""
    values: dict[str, int] = {}
    said: dict[str, tuple[str, Line | None]] = {}   # where names have their sizes, and the line that declared it
    # sizes that are no names, how many elements there are, in which dimension, the line that declared it
    expressions: list[tuple[Symbol, int, str, Line | None]] = []
    for t, a in zip(self.tensors, arguments):
      if a is None: continue
      shape, line = a.shape, t._source.line
      if len(shape) != len(t.shape):
        raise ShapeError(f"{self.name}: {t.name} has {len(t.shape)} dimensions, got a tensor of shape {shape}{at_lines(line)}")
      for d, (want, n) in enumerate(zip(t.shape, shape)):
        place = f"dimension {d} of {t.name}"
        if isinstance(want, int):
          if n == want: continue
          raise ShapeError(f"{self.name}: {place} is {want}, got a tensor of shape {shape}{at_lines(line)}")
        if not want.is_name:
          expressions.append((want, n, place, line))
          continue
        key = want.name
        if values.setdefault(key, n) != n:
          raise ShapeError(f"{self.name}: {key} is {values[key]} in {said[key][0]} and {n} in {place}; one symbol has one size"
                           f"{at_lines(said[key][1], line)}")
        said[key] = place, line
        if t._source.automatic[d] and (why := want.refusal(n)): raise BeyondError(f"{self.name}: {why}{at_lines(line)}")
        self.within(want, n, line)
    for name, value in given.items():
      s = self.symbols.get(name)
      if s is None:
        free = [n for n in self.symbols if n not in values]
        near = did_you_mean(name, [*free, *self.names])
        raise ArgumentError(f"{self.name}: no compile-time value {name!r}{near}; it has {', '.join(free) or 'none'}")
      if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentError(f"{self.name}: {name} is an int, got {shown(value)}")
      if values.get(name, value) != value:
        raise ShapeError(f"{self.name}: {name} is {values[name]} in {said[name][0]}, and {value} is given")
      values[name] = value
      if s.meta and value < 1: raise ShapeError(f"{self.name}: {name} is {value}; a size of a block is 1 or more")
      if not s.meta: self.within(s, value)   # the bounds of the others are what the tuner keeps to
    self.solve(expressions, values)
    return values

  def solve(self, expressions: Sequence[tuple[Symbol, int, str, Line | None]], values: dict[str, int]) -> None:
    """Find the names that are left in sizes such as 2 * N + 1, one after another, and see that all such sizes are right."""
    for want, n, place, line in [*expressions] * len(expressions):   # of several unknowns one may be left when others are found
      try: found = solved(want, n, values)
      except ArgumentError as e: raise ShapeError(f"{self.name}: {place} has {n} elements; {e}{at_lines(line)}") from None
      if found is None: continue
      values[found[0].name] = found[1]
      self.within(*found, line)
    for want, n, place, line in expressions:
      if any(s.name not in values for s in want.names()): continue
      if (is_ := evaluate(want, values)) != n:
        known = ", ".join(f"{s} = {values[s.name]}" for s in sorted(want.names(), key=str))
        raise ShapeError(f"{self.name}: {place} has {n} elements; {want} is {is_} where {known}{at_lines(line)}")

  def within(self, s: Symbol, n: int, line: Line | None = None) -> None:
    """A size against the bounds of its symbol, which a line declared."""
    if why := s.refusal(n): raise ShapeError(f"{self.name}: {why}{at_lines(line)}")

  def arrange(self, full: ByParameter, numbers: Constants, values: Mapping[str, Dim],
              tiled: Container[str] = ()) -> tuple[list[Parameter], list[Any]] | None:
    """The parameters that are memory, and what the application gets for each; None where there are no programs. Raises what does
    not fit; a grid only of those in ``tiled``, that of others where the application comes to a tile."""
    parameters: list[Parameter] = []
    tiles: list[Any] = []
    for i, (t, a) in enumerate(zip(self.arranged, full)):
      if i in numbers:
        tiles.append(numbers[i])
        continue
      assert a is not None
      shape, dtype, declared = tuple(evaluate_size(e, values) for e in t._source.shape), a.dtype, self.tensors[i]
      if (want := wrong(declared, dtype)) is not None:
        line = declared._source.line
        raise DTypeError(f"{self.name}: {t.name} has elements of {want}, got a tensor of {dtype}{at_lines(line)}")
      p = Parameter(self.names[i], len(parameters), t._replayed(shape, values), dtype, declared.other,
                    whole=bool(shape) and not t.operations)
      parameters.append(p)
      dim, jagged = declared.jagged_dim, a.jagged
      if dim != (given := jagged and jagged[0]):
        takes = "not jagged" if dim is None else f"jagged in dimension {dim}"
        got = "a plain tensor; wrap its values and offsets in tile.Jagged" if given is None else f"one jagged in {given}"
        raise ArgumentError(f"{self.name}: {p.name} is {takes}, got {got}")
      if jagged is not None:
        p.jagged, p.memory, starts = jagged
        p.offsets = Parameter(f"{p.name}_offsets", len(parameters), Arrangement.of((a.shape[0] + 1,)), starts, of=p.name)
        parameters.append(p.offsets)
      tiles.append(Tile(p))
    grids = self.with_grids(parameters)
    known = {n: ix.count(v) for n, v in values.items()}
    self.assess("", known, values)
    nothing = any([below(n, 1) for p in grids[:1] for n in p.arrangement.levels[0]])
    for p in grids[1:]:
      p.fit = partial(self.fit, p, grids[0], known, values)
      if nothing and not p.whole or p.name in tiled: p.fit()
    if nothing: return None
    no_empty_tiles(self.name, [p for p in parameters if p.fit is None], self.arranged)
    return parameters, tiles

  def with_grids(self, parameters: Sequence[Parameter]) -> list[Parameter]:
    """The parameters with programs, in front the one whose grid it is."""
    found = [p for p in parameters if not p.scalar and not p.of]
    return sorted(found, key=lambda p: p.name in self.aside)

  def fit(self, p: Parameter, first: Parameter, known: Mapping[str, int], values: Mapping[str, Dim]) -> None:
    """See that a parameter has tiles in the grid, which is that of the first one. Raises ShapeError."""
    grid, want = p.arrangement.levels[0], first.arrangement.levels[0]
    p.fit = None
    if (fits := in_grid(p.arrangement, want)) is not None: p.arrangement = fits
    else:
      mine, others = (next(t for t in self.arranged if t.name == q.name) for q in (p, first))
      p.misfit = ShapeError(
        f"{self.name}: the outermost level of {p.name} is {shape_text(grid)}, that of {first.name} is {shape_text(want)}, for "
        f"tensors of shapes {shape_text(p.arrangement.source)} and {shape_text(first.arrangement.source)}; all parameters are "
        f"arranged for the same grid{mended(p.name, mine.levels[0], others.levels[0], first.name)}"
        f"{at_lines(mine._lines()[0], others._lines()[0])}")
      raise p.misfit
    self.assess(p.name, known, values)
    if not any([below(n, 1) for n in want]): no_empty_tiles(self.name, [p], self.arranged)

  def assess(self, of: str, known: Mapping[str, int], values: Mapping[str, Dim]) -> None:
    """Check what is assumed of sizes because of a parameter, or ("") of all. Raises ShapeError."""
    if (self.checks or config.checks) == "none": return
    for asked in self.assessed:
      if asked.of == of: asked.check(self.name, known, values)


def wrong(t: Tensor, dtype: DType) -> Any:
  """What the elements of an argument must be, where they may not be of a dtype; else None."""
  want = t._source.dtype
  if isinstance(want, type): return None if dtype.kind in DTYPE_KINDS[want] else want.__name__
  return None if want is None or want is dtype else want


_BOUNDS = {"lower_bound", "upper_bound", "power_of_two"}


def unbounded(t: Any) -> Tensor | None:
  """A tensor without bounds of its dimensions without a name; None for one that has none."""
  if not isinstance(t, Tensor) or t.operations: return None
  s = t._source
  options = tuple({k: v for k, v in o.items() if not a or k not in _BOUNDS} for a, o in zip(s.automatic, s.shape_options))
  return None if options == tuple(map(dict, s.shape_options)) else t._of(replace(s, shape_options=options).named(s.name))


def in_grid(a: Arrangement, want: Sequence[Dim]) -> Arrangement | None:
  """An arrangement with its programs in another grid: those of the same number, counted in row-major order. Where the grid has
  more, the others have masked tiles. None where it has fewer, or as many in as many dimensions of other sizes, or where one would
  rather expand the arrangement (see ``forgotten_expand``)."""
  grid = a.levels[0]
  apart = len(grid) != len(want)
  (n, *rest), (most, *others) = ((ix.product(grid),), (ix.product(want),)) if apart or not grid else (grid, want)
  if unlike := not all(map(same_size, rest, others)):
    n, most, rest, others, apart = ix.product(grid), ix.product(want), [], [], True
    if not below(n, most): return None
  equal = not unlike and same_size(n, most)
  if not equal and (below(most, n) or forgotten_expand(grid, want, same_size)): return None
  if apart:
    if not a.levels[0]: a = a.unsqueeze(0)
    if len(a.levels[0]) > 1: a = a.flatten()
  if not equal: a = a.pad(((0, ix.minus(most, n)), *((0, 0),) * len(rest)))
  return a.unflatten(0, tuple(want)) if apart and len(want) != 1 else a


def constant(name: str, x: Any) -> Any:
  """A compile-time number. Raises ArgumentError."""
  if isinstance(x, (bool, int, float)): return x
  if hasattr(x, "item") and getattr(x, "shape", None) == (): return x.item()
  raise ArgumentError(f"{name} is known at compile time: a number, got {x!r}")
