"""Capture: a function's kernels are recorded once and then launched again, with no tensor code in between."""
from __future__ import annotations

import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, Callable, Collection, Concatenate, Generic, Mapping, ParamSpec, TypeVar, overload
from weakref import ref

import numpy as np

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import ArgumentError, Ops, Recent, config, shown
from ntgrad.engine.buffer import being_recorded
from ntgrad.engine.observers import observers
from ntgrad.engine.replay import Replay
from ntgrad.engine.size_variants import names_beside
from ntgrad.engine.traced_sizes import VariableValues
from ntgrad.graph import BoundInt, checked
from ntgrad.graph.lock import enter, holds_lock, lock, synchronized
from ntgrad.reads import wrappers
from ntgrad.tensor import Tensor

from .arguments import Pieces
from .captured import NO_SIZES, RECORDINGS, Capture, Sizes, call_of, difference, pieces_of, signature

_Key = tuple[Any, ...]   # a signature
ROUTES = 1024     # signatures of which it is known what capture they have

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class TinyJit(Generic[P, R]):
  """A function whose kernels are captured: ``f = ntgrad.jit(f)``, or ``@ntgrad.jit`` above a function or method.

  The first call runs the function, the second runs it and records every kernel, later ones launch those kernels on their
  arguments and run no Python of the function. All calls mean the same. What the function writes and others still see after the
  call (arguments, tensors that it holds, views of either) is written when the call ends, realised or not. Its results are Tensors
  of their own, without gradients: one that is an argument, or a view of what lives on, is copied at the end of each call. So the
  function's Tensors must come from its arguments or be held somewhere (parameters, state), and its results must be Tensors, in
  nested tuples, lists, dicts and dataclasses, or fixed numbers. Random numbers are new ones at each call.

  What the function's code reads from elsewhere (globals, closures, defaults, attributes of objects and items of containers, the
  modes and settings of Modules, and what the functions that it calls read so) is compared at every call: where it is not what it
  was, the function is captured anew, and what comes again is replayed again. What cannot be compared (the time, random numbers of
  Python's, arrays and lists of more than 4,096 bytes or elements, ``next`` of an iterator, what the function changes itself)
  stays what it was; a warning says so once, at its line, and with ``strict`` it is refused.

  Where an argument is written, which arguments share memory and which part of it each shows belong to what was captured; a call
  that shares otherwise runs plainly, and the one after it captures again. Calls in several threads come one after another.

  Arguments that are numpy arrays come in as Tensors on the default device; those inside lists and dicts stay what they are,
  and their values belong to the signature. There is one capture for each signature: how the arguments are nested, the shapes,
  dtypes and devices of their Tensors, the values of all else in them, training and gradient mode, and the default device. So
  the first call with another shape runs plainly and the second is captured too; what one capture writes the others see. At
  least the 64 signatures used last are kept.

  Sizes that change have one capture for all their values (2 and more; 0 and 1 have their own): the values of Variables among the
  arguments (``step(x, n.bind(17))``), the dimensions of ``dynamic={"x": (0,)}`` (a parameter's name or position, its dimensions),
  and dimensions that are others at a later call. In the function these sizes are ints that remember what they are. It is recorded
  at two values; where the two recordings differ by more than by numbers that are made of these sizes (with + - * // % and /), it
  is captured for each shape, and ``DEBUG=1`` says why. What Python code does with a size is what it did when it was recorded: a
  comparison that comes out otherwise at a later value is noticed, and such values have another capture, but a loop over
  ``range(n // 100)`` is unrolled as it was. ``config.dynamic = "never"`` captures for each shape.

  Raises ArgumentError for what is no function, and CaptureError at the second call for what cannot be repeated (a value read,
  nothing computed, a schedule of learning rates stepped, ..). A jit called while another records is part of it. ``prune`` is
  taken as tinygrad has it, without effect: every kernel runs at every call."""

  def __new__(cls, fn: Any = None, **options: Any) -> Any:
    """A jit, or where the function is missing (``@ntgrad.jit(dynamic=..)``) what makes one of it."""
    return super().__new__(cls) if fn is not None or not options else functools.partial(cls, **options)

  @checked
  def __init__(self, fn: Callable[P, R], *, dynamic: Mapping[Any, Any] | None = None, strict: bool = False, prune: bool = False):
    self.fn, self.strict = fn, strict
    self.dynamic = _axes(fn, dynamic or {})
    self.name = getattr(fn, "__qualname__", type(fn).__name__).split("<locals>.")[-1]
    functools.update_wrapper(self, fn, updated=())
    self._captures: Recent[Any, Capture] = Recent(RECORDINGS)
    self._last: Capture | None = None                    # of the last call
    self._of: dict[int, tuple[ref[Any], TinyJit[..., Any]]] = {}   # methods: one jit an object
    self._last_key: Any = None
    self._values: VariableValues = ()                            # of its sizes
    self._routes: Recent[Any, tuple[Any, Sizes]] = Recent(ROUTES)   # signatures → those without sizes, and the sizes
    # by the signature without sizes: shapes of a call, and the dimensions that were others in another one
    self._earlier: Recent[Any, tuple[list[tuple[int, ...]], frozenset[tuple[int, int]]]] = Recent(RECORDINGS)

  @overload
  def __get__(self, owner: None, kind: Any = None) -> TinyJit[P, R]: ...
  @overload
  def __get__(self: TinyJit[Concatenate[Any, Q], R], owner: object, kind: Any = None) -> TinyJit[Q, R]: ...
  def __get__(self, owner: Any, kind: Any = None) -> Any:
    if owner is None: return self
    key = id(owner)
    found = self._of.get(key)
    if found is not None and found[0]() is owner: return found[1]
    own = TinyJit[..., Any](functools.partial(call_of, ref(owner), self.fn), strict=self.strict)
    self._of[key] = ref(owner, lambda _: self._of.pop(key, None)), own
    own.name, own.dynamic = self.name, {k - 1 if isinstance(k, int) else k: axes for k, axes in self.dynamic.items()}
    return own

  # ---- looking: at what the last call used
  @property
  def captured(self) -> bool:
    """Whether calls like the last one replay."""
    return self._replay is not None
  @property
  def kernels(self) -> int:
    """How many kernels (copies included) a replay launches; 0 before the capture."""
    return len(self._replay.steps) if self._replay else 0
  @property
  def planned_bytes(self) -> int:
    """Bytes that the inner buffers of the captured kernels share."""
    return self._replay.planned_bytes if self._replay else 0
  @property
  def unplanned_bytes(self) -> int:
    """Bytes that they would take each on its own."""
    return self._replay.unplanned_bytes if self._replay else 0
  @property
  def _replay(self) -> Replay | None: return self._last.used.replay if self._last is not None else None

  @synchronized
  def reset(self) -> None:
    """Forget all captures: the next call runs plainly, the one after it captures."""
    self._captures.clear()
    self._earlier.clear()
    self._routes.clear()
    self._last, self._of = None, {}

  # ---- calling
  @holds_lock
  def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
    if not config.jit: return self.fn(*args, **kwargs)
    enter()
    with lock: return self._called(args, kwargs)

  def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if any([type(a) is np.ndarray for a in (*args, *kwargs.values())]):
      args, kwargs = tuple(map(_given, args)), {k: _given(a) for k, a in kwargs.items()}
    if being_recorded: return self.fn(*args, **kwargs)
    kwargs = dict(sorted(kwargs.items()))
    call = pieces_of(args, kwargs)
    key, found = signature(call), self._last
    if found is None or self._last_key != key:
      if observers: call.why = difference(self._last_key, key, call)
      found, self._values = self._find(key, call)
      self._last, self._last_key = found, key
    call.values = self._values
    return found.call(call)

  def _find(self, key: _Key, pieces: Pieces) -> tuple[Capture, VariableValues]:
    """The capture for calls of a signature, and the values of its sizes in them."""
    if (found := self._captures[key]) is not None and found.replay is not None: return found, ()
    if (route := (key, NO_SIZES) if config.dynamic == "never" else self._routes[key]) is None:
      route = self._sized(key, pieces)
      if route[1].sizes: self._routes[key] = route
    key, sizes = route
    if (found := self._captures[key]) is None:
      found = self._captures[key] = Capture(self.fn, self.name, sizes, strict=self.strict)
    return found, sizes.values

  def _sized(self, key: _Key, pieces: Pieces) -> tuple[_Key, Sizes]:
    """The signature without what may change in it, and the sizes that do: those of Variables and ``dynamic``, else the dimensions
    that were others in an earlier call."""
    marks, tensors, others, *rest = key
    sizes = sizes_in(pieces, {(i, d) for i, place in enumerate(pieces.places) for d in self.dynamic.get(_argument(place), ())})
    if sizes.dims or sizes.others: return _without(key, sizes), sizes
    general = marks, tuple((tuple(n if n < 2 else -1 for n in shape), *more) for shape, *more in tensors), others, *rest
    shapes = [shape for shape, *_ in tensors]
    earlier, static = self._earlier[general], self._captures[key]
    if earlier is None: self._earlier[general] = earlier = shapes, frozenset()
    before, differ = earlier
    if before == shapes and not differ or static is not None and static.replay is not None: return key, NO_SIZES
    dims = differ.union((i, d) for i, (a, b) in enumerate(zip(before, shapes)) for d, (n, m) in enumerate(zip(a, b)) if n != m)
    if dims != differ:
      self._earlier[general] = shapes, dims
      self._routes.clear()
    sizes = sizes_in(pieces, dims)
    return _without(key, sizes), sizes


def sizes_in(pieces: Pieces, dims: Collection[tuple[int, int]]) -> Sizes:
  """The sizes of a call that change: these dimensions, and the values of Variables. Those of 0 and 1 are not among them, and
  neither are values of a Variable that has two."""
  found: dict[ix.Size, dict[int, int]] = {}   # the values of Variables, and where each is first
  for i, o in enumerate(pieces.others):
    if type(o) is BoundInt and o.node.op is Ops.SIZE and o >= 2: found.setdefault(o.node.arg, {}).setdefault(int(o), i)
  once = {size: next(iter(values.items())) for size, values in found.items() if len(values) == 1}
  free = names_beside({s.name for s in once})
  shapes = [t.lazydata.shape for t in pieces.tensors]
  at = sorted((i, d) for i, d in dims if d < len(shapes[i]) and shapes[i][d] >= 2)
  new, values = [ix.Size(next(free), 2) for _ in at], [int(shapes[i][d]) for i, d in at]
  return Sizes((*new, *once), (*values, *[n for n, _ in once.values()]), tuple(at), tuple(i for _, i in once.values()))


def _without(key: _Key, sizes: Sizes) -> _Key:
  """A signature that says only which sizes change."""
  marks, tensors, others, *rest = key
  shapes = [list(shape) for shape, *_ in tensors]
  for i, d in sizes.dims: shapes[i][d] = None
  named = sizes.sizes[len(sizes.dims):]
  left = tuple((BoundInt, o[1].node) if o[0] is BoundInt and o[1].node.arg in named else o for o in others)
  return marks, tuple((tuple(shape), *more) for shape, (_, *more) in zip(shapes, tensors)), left, *rest


def _argument(place: str) -> int | str:
  """The position or the name that begins how an error calls an argument: "argument 0[1]", "argument 'x'"."""
  m = re.match(r"argument (?:'([^']*)'|(\d+))", place)
  assert m is not None
  return m[1] or int(m[2])


def _axes(fn: Callable[..., Any], dynamic: Mapping[Any, Any]) -> dict[int | str, tuple[int, ...]]:
  """``dynamic`` by position and by name. Raises ArgumentError for what the function does not have."""
  if not dynamic: return {}
  try: names = list(inspect.signature(fn).parameters)
  except (TypeError, ValueError): names = []
  out: dict[int | str, tuple[int, ...]] = {}
  for parameter, axes in dynamic.items():
    given = (axes,) if isinstance(axes, int) else axes
    if not isinstance(given, (tuple, list)) or not all(type(a) is int and a >= 0 for a in given):
      raise ArgumentError(f"jit: dynamic has dimensions of {parameter!r} as ints from 0 on, got {shown(axes)}")
    if isinstance(parameter, str) and names and parameter not in names:
      raise ArgumentError(f"jit: dynamic names {parameter!r}; the function's parameters are {', '.join(names)}")
    if not isinstance(parameter, (int, str)):
      raise ArgumentError(f"jit: dynamic has parameters' names or positions, got {shown(parameter)}")
    for i, name in enumerate(names):
      if parameter in (i, name): out[i] = out[name] = tuple(given)
    out[parameter] = tuple(given)
  return out


def _given(a: Any) -> Any:
  """An argument as the function gets it: arrays as Tensors, which may be others at each call."""
  return Tensor(a) if type(a) is np.ndarray and a.dtype.kind != "O" else a


if TYPE_CHECKING:
  @overload
  def jit(fn: Callable[P, R], *, dynamic: Mapping[Any, Any] | None = None, strict: bool = False,
          prune: bool = False) -> TinyJit[P, R]: ...
  @overload
  def jit(fn: None = None, *, dynamic: Mapping[Any, Any] | None = None,
          strict: bool = False, prune: bool = False) -> Callable[[Callable[P, R]], TinyJit[P, R]]: ...
  def jit(fn: Any = None, *, dynamic: Any = None, strict: bool = False, prune: bool = False) -> Any: ...
else: jit = TinyJit

wrappers[TinyJit] = lambda captured: captured.fn
