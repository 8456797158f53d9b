"""What a kernel takes: its parameters, how they are arranged, and what must be so of their sizes before anything is launched."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.arrangement import Arrangement
from ntgrad.codegen.assume import below, same
from ntgrad.codegen.config import config
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.codegen.recent import Recent
from ntgrad.codegen.size_text import shape_text
from ntgrad.codegen.sizes import Dim
from ntgrad.symbol import Symbol, evaluate, size_of, solved

from .assess import Assessment, no_empty_tiles
from .launch import Argument
from .place import Parameter, Tile
from .tensor import Tensor

if TYPE_CHECKING:
  from .sizes import Form


class Signature:
  """A kernel as its calls see it; ``launch`` runs it. One is read from an application, another from a library's manifest."""
  tuned = False                # whether the tuner chooses for it
  pieces = True                # whether what it reads may be a piece of a memory
  device: str | None = None    # where it runs where no argument says; None: the default device

  def __init__(self, name: str, tensors: Sequence[Tensor], arranged: Sequence[Tensor], assessed: Sequence[Assessment],
               checks: str | None):
    self.name, self.tensors, self.arranged, self.assessed, self.checks = name, tensors, arranged, assessed, checks
    self.names = [t.name for t in tensors]
    # the positional arguments of a call
    self.given = [i for i, t in enumerate(tensors) if not (t.constexpr and t.value is not None)]
    self.symbols: dict[str, Symbol] = {s.name: s for t in arranged for s in t.symbols()}
    self._launchers: Recent[Any, Any] = Recent(1024)
    self._sized: Recent[Any, Any] = Recent(256)   # of calls that differ in sizes only: what tells which kernel serves them
    self.last: Any = None                         # the kernel of the last call

  def _specialise(self, taken: Sequence[Argument], arguments: Sequence[Any], given: Mapping[str, Any], device: str | None = None,
                  buffers: Callable[[Any], Sequence[Any]] | None = None) -> tuple[Any, tuple[int, ...], Form | None] | None:
    """The kernel for arguments, what a launch gives for its run-time sizes, and the form that tells which other sizes it serves;
    None where there are no programs. ``device`` is where it is to run, ``buffers`` gives the arguments' memory."""
    raise NotImplementedError

  def placed(self, taken: Sequence[Argument]) -> list[Argument | None]:
    """The arguments of a call by parameter. Raises ArgumentError where there are more or fewer than it takes."""
    if len(taken) != len(self.given):
      names = [self.names[i] for i in self.given]
      raise ArgumentError(f"{self.name}: takes {len(names)} arguments ({', '.join(names)}), got {len(taken)}")
    full: list[Argument | None] = [None] * len(self.names)
    for i, a in zip(self.given, taken): full[i] = a
    return full

  def bind(self, arguments: Sequence[Argument | None], given: Mapping[str, Any]) -> dict[str, int]:
    """What every symbol is, from the shapes of the arguments and compile-time values. Raises ShapeError, ArgumentError."""
    values: dict[str, int] = {}
    source: dict[str, str] = {}
    expressions: list[tuple[Symbol, int, str]] = []   # sizes that are no names, how many elements there are, where
    for t, a in zip(self.tensors, arguments):
      if a is None: continue
      shape = a.shape
      if len(shape) != len(t.shape):
        raise ShapeError(f"{self.name}: {t.name} has {len(t.shape)} dimensions, got a tensor of shape {shape}")
      for d, (want, n) in enumerate(zip(t.shape, shape)):
        if isinstance(want, int):
          if n != want: raise ShapeError(f"{self.name}: dimension {d} of {t.name} is {want}, got a tensor of shape {shape}")
          continue
        if not want.is_name:
          expressions.append((want, n, f"dimension {d} of {t.name}"))
          continue
        key = want.name
        if key in values and values[key] != n:
          raise ShapeError(
            f"{self.name}: {key} is {values[key]} in {source[key]} and {n} in dimension {d} of {t.name}; one symbol has one size"
          )
        values[key] = n
        source[key] = f"dimension {d} of {t.name}"
        self.within(want, n)
    for name, value in given.items():
      s = self.symbols.get(name)
      if s is None:
        free = [n for n in self.symbols if n not in values]
        raise ArgumentError(f"{self.name}: no compile-time value {name!r}; it has {', '.join(free) or 'none'}")
      if not isinstance(value, int): raise ArgumentError(f"{self.name}: {name} is an int, got {value!r}")
      if values.get(name, value) != value:
        raise ShapeError(f"{self.name}: {name} is {values[name]} in {source[name]}, and {value} is given")
      values[name] = value
      self.within(s, value)
    self.solve(expressions, values)
    return values

  def solve(self, expressions: Sequence[tuple[Symbol, int, str]], values: dict[str, int]) -> None:
    """Find the names that are left in sizes such as 2 * N + 1, one after another, and see that all such sizes are right."""
    for want, n, place in [*expressions] * len(expressions):   # one with several unknowns may have one when others are found
      try: found = solved(want, n, values)
      except ArgumentError as e: raise ShapeError(f"{self.name}: {place} has {n} elements; {e}") from None
      if found is None: continue
      values[found[0].name] = found[1]
      self.within(*found)
    for want, n, place in expressions:
      if any(s.name not in values for s in want.names()): continue
      is_ = evaluate(want, values)
      if is_ != n:
        known = ", ".join(f"{s} = {values[s.name]}" for s in sorted(want.names(), key=str))
        raise ShapeError(f"{self.name}: {place} has {n} elements; {want} is {is_} where {known}")

  def within(self, s: Symbol, n: int) -> None:
    """A size against the bounds of its symbol."""
    why = s.refusal(n)
    if why: raise ShapeError(f"{self.name}: {why}")

  def arrange(self, full: Sequence[Argument | None], numbers: Mapping[int, Any],
              values: Mapping[str, Dim]) -> tuple[list[Parameter], list[Any]] | None:
    """The parameters that are memory, and what the application gets for each, where names have values (numbers, or expressions
    of run-time sizes); None where there are no programs. Raises what does not fit."""
    parameters: list[Parameter] = []
    tiles: list[Any] = []
    for i, (t, a) in enumerate(zip(self.arranged, full)):
      if i in numbers:
        tiles.append(numbers[i])
        continue
      assert a is not None
      shape, dtype = tuple([size_of(e, values) for e in t._source.shape]), a.dtype
      want = self.tensors[i].element
      if want is not None and dtypes.of(want) is not dtype:
        raise DTypeError(f"{self.name}: {t.name} has elements of {dtypes.of(want)}, got a tensor of {dtype}")
      other = self.tensors[i].other
      if all(isinstance(n, int) for n in shape): arrangement = t.arrangement(a.shape, values)
      else: arrangement = t.arrangement(None, values)
      p = Parameter(self.names[i], len(parameters), arrangement, dtype, other)
      parameters.append(p)
      dim = self.tensors[i].jagged_dim
      if (dim is None) is not (a.jagged is None) or (a.jagged is not None and a.jagged[0] != dim):
        given = "a plain tensor; wrap its values and offsets in tile.Jagged"
        if a.jagged is not None: given = f"one jagged in {a.jagged[0]}"
        declared = "not jagged" if dim is None else f"jagged in dimension {dim}"
        raise ArgumentError(f"{self.name}: {p.name} is {declared}, got {given}")
      if a.jagged is not None:
        p.jagged, p.memory, starts = a.jagged
        p.offsets = Parameter(f"{p.name}_offsets", len(parameters), Arrangement.of((a.shape[0] + 1,)), starts, of=p.name)
        parameters.append(p.offsets)
      tiles.append(Tile(p))
    grids = [p for p in parameters if not p.scalar and not p.of]
    for p in grids[1:]:
      grid, first = p.arrangement.levels[0], grids[0].arrangement.levels[0]
      if len(grid) != len(first) or not all(map(same, grid, first)):
        raise ShapeError(
          f"{self.name}: the outermost level of {p.name} is {shape_text(grid)}, that of {grids[0].name} is "
          f"{shape_text(first)}, for tensors of shapes {shape_text(p.arrangement.source)} and "
          f"{shape_text(grids[0].arrangement.source)}; "
          "all parameters are arranged for the same grid"
        )
    checks = self.checks or config.checks
    if checks != "none":
      known = {n: ix.count(v) for n, v in values.items()}
      for asked in self.assessed: asked.check(self.name, known, values)
    if any(below(n, 1) for p in grids for n in p.arrangement.levels[0]): return None
    no_empty_tiles(self.name, parameters)
    return parameters, tiles
