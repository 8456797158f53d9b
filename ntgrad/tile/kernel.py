"""Kernels as people write them: ``make`` puts an arrangement of symbolic tensors and an application for one program together. The
kernel is specialised for the shapes, dtypes and compile-time values that it is called with."""
from __future__ import annotations

import inspect
import os
import sys
import time
import types
from functools import lru_cache, partial
from traceback import extract_tb, walk_tb
from typing import Any, Callable, ClassVar, Mapping, Sequence

from ntgrad.backends import renderer
from ntgrad.backends.base import Device
from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim, assuming, sizes_of
from ntgrad.codegen.ir import Recent, UOp, config, dtypes, power_of_two
from ntgrad.codegen.ir.errors import ApplicationError, ArgumentError, DeviceError, NtgradError, ShapeError, shown
from ntgrad.codegen.kernel import Kernel, UOpList
from ntgrad.compat.notebook import table
from ntgrad.core import Base as Lazy
from ntgrad.engine import report
from ntgrad.engine.device import default_device, get_device
from ntgrad.engine.search_results import CHOICE, TUNER, About, device_text, keep_choice
from ntgrad.graph import as_tuple, checked
from ntgrad.graph.lock import enter, holds_lock, lock, synchronized
from ntgrad.graph.origins import pointed
from ntgrad.graph.symbol import Symbol, evaluate
from ntgrad.reads import reads_of, wrappers

from . import tune
from .assessments import Assessment, asking, dimensions_agree, same_grids, whole_windows
from .block import seen
from .interpret import Interpreter
from .launch import Argument, ByName, Positional, SlotPair, converted_arguments, describe_arguments, launch, tune_for
from .open_sizes import MOST_FORMS, Family, SizedKernel, agree_on_grid, equal_in, form_of, likely_size, names_in
from .python_source import line_of, only_places, source_of
from .races import refuse_races
from .signature import BeyondError, ByParameter, Constants, Found, MemoryOf, Signature, constant, unbounded
from .specialised import Specialised
from .tensor import Tensor, check_takes, named
from .trace import Tracer
from .tune import first_choice, fitting, free_symbols, remembered, search_values, tuning_key


@checked
def make(arrangement: Callable[..., Any], application: Callable[..., Any], tensors: Sequence[Any], *,
         kernel_name: str | None = None, num_warps: int | Sequence[int] | None = None,
         num_stages: int | Sequence[int] | None = None, max_num_configs: int | None = None,
         output_dir: str | os.PathLike[str] | None = None, caller: str | None = None, checks: str | None = None) -> TileKernel:
  """A kernel from an arrangement (how the parameters are tiled) and an application (what one program does with its tiles).

  ``arrangement(*tensors)`` gives the arranged tensors, whose outermost levels have the same shape: the grid. ``application``
  takes as many parameters; ``tensors`` may be more, and have other things that the arrangement takes. ``num_warps``,
  ``num_stages`` (a number, or several to try) and ``max_num_configs`` steer the tuner; ``output_dir`` keeps the generated
  source there. ``checks`` ("none", "entry", "all") is for this kernel what ``config.checks`` is for all. Raises ShapeError,
  AxisError and ArgumentError, with the line of the arrangement, for what does not fit.
  """
  if checks not in (None, "none", "entry", "all"):
    raise ArgumentError(f"make: checks is {shown(checks)}; it takes 'none', 'entry' or 'all', or None for config.checks")
  names = parameter_names(application)
  symbolic, count = [t for t in tensors if isinstance(t, Tensor)], len(names)
  if len(tensors) < count:
    raise ArgumentError(f"make: {application.__name__} has {count} parameters ({', '.join(names)}) and {len(tensors)} "
                        "tensors; one for each")
  renamed = iter(named(symbolic, [*names[:len(symbolic)], *[t.name for t in symbolic[count:]]]))
  check_takes("make", arrangement, len(tensors))
  written = arrangement.func if isinstance(arrangement, partial) else arrangement   # whose lines errors show
  called = getattr(written, "__name__", type(written).__name__)
  try:
    with asking() as asked: arranged = arrangement(*[next(renamed) if isinstance(t, Tensor) else t for t in tensors])
  except NtgradError as e: raise at_line(e, written) from None
  except Exception as e:
    other = next((t for t in tensors if not isinstance(t, Tensor)), None)
    what = f" cannot do with {shown(other)}, which is no tensor" if other is not None else ""
    said = ArgumentError(f"make: {called}{what}: {type(e).__name__}: {e}").with_traceback(e.__traceback__)
    raise at_line(said, written) from e
  arranged = as_tuple(arranged)
  if len(tensors) > count: arranged = arranged[:count]
  arranged = tuple(Tensor(0, constexpr=True, value=t) if isinstance(t, (bool, int, float)) else t for t in arranged)
  if len(arranged) != count or not all(isinstance(t, Tensor) for t in arranged):
    raise ArgumentError(f"make: {called} gives {len(arranged)} values for the {count} parameters of "
                        f"{application.__name__}; it returns one arranged tensor for each")
  order = [t.name for t in arranged]
  if order != names:
    if len(symbolic) == count:
      raise ArgumentError(f"make: {called} gives {', '.join(order)}; it returns {', '.join(names)}, in this order")
    arranged = named(arranged, names)   # which of the tensors are parameters is known now
  options = zip(tune.COMPILER_OPTIONS, (num_warps, num_stages))
  settings: dict[str, Any] = {n: as_tuple(v) for n, v in options if v is not None}
  if max_num_configs is not None: settings["max_num_configs"] = max_num_configs
  @lru_cache(maxsize=1)
  def wider() -> TileKernel:
    free = [unbounded(t) or t for t in tensors]
    return make(arrangement, application, free, kernel_name=kernel_name, num_warps=num_warps, num_stages=num_stages,
                max_num_configs=max_num_configs, output_dir=output_dir, checks=checks)
  return TileKernel(application, tuple(t.source for t in arranged), arranged, kernel_name or application.__name__, settings,
                    output_dir, asked, checks, wider if any([unbounded(t) for t in tensors]) else None)


def jit(fn: Callable[..., Any] | None = None, **settings: Any) -> Any:
  """A kernel from a function annotated with arranged tensors: ``@tile.jit``, or ``@tile.jit(num_warps=4)``."""
  if fn is not None and not callable(fn):
    raise ArgumentError(f"jit: {shown(fn)} is no function; decorate one with @tile.jit, or @tile.jit(num_warps=4)")
  around = sys._getframe(1).f_locals          # where the annotations were written, if they are text
  def made(fn: Callable[..., Any]) -> TileKernel:
    annotations = inspect.get_annotations(fn, eval_str=True, locals=around)
    names = parameter_names(fn)
    if missing := [n for n in names if not isinstance(annotations.get(n), Tensor)]:
      raise ArgumentError(f"jit: parameters {', '.join(missing)} of {fn.__name__} are not annotated with an arranged Tensor")
    arranged = named([annotations[n] for n in names], names)
    return make(lambda *_: arranged, fn, [a.source for a in arranged], **settings)
  return made if fn is None else made(fn)


def parameter_names(fn: Any) -> list[str]:
  """The names of a function's parameters. Raises ArgumentError for what is no Python function."""
  if not isinstance(fn, types.FunctionType): raise ArgumentError(f"make: an application is a Python function, got {fn!r}")
  if fn.__name__ == "<lambda>":
    raise ArgumentError("make: the application is a lambda, which cannot assign to its parameters; write it with def")
  parameters = inspect.signature(fn).parameters
  if several := [str(p) for p in parameters.values() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]:
    raise ArgumentError(f"make: {fn.__name__} takes {' and '.join(several)}; an application has a name for each parameter")
  return list(parameters)


def at_line(e: NtgradError, fn: Any) -> NtgradError:
  """An error with the line of ``fn`` that it passed through, and a caret."""
  code, tb = getattr(fn, "__code__", None), e.__traceback__
  found = [at for at, (frame, _) in zip(extract_tb(tb), walk_tb(tb)) if frame.f_code is code]
  if not found: return e
  file, line, begin, end = found[-1].filename, found[-1].lineno or 0, found[-1].colno or 0, found[-1].end_colno or 0
  return type(e)(f"{e}\n  {pointed(file, line, fn.__name__, line_of(fn.__code__, line), begin, end)}")


class TileKernel(Signature):
  """A kernel of the tile language; calling it runs it. See :func:`make`."""
  _KNOWN: ClassVar[Mapping[str, int]] = {**Signature._KNOWN, "_chosen": 1024, "_specialised": 1024, "_families": 256}
  _chosen: Recent[Any, dict[str, int]]
  _specialised: Recent[Any, Specialised | None]
  _families: Recent[Any, Family]

  def __init__(self, application: Any, tensors: tuple[Tensor, ...], arranged: tuple[Tensor, ...], name: str,
               settings: dict[str, Any], output_dir: str | os.PathLike[str] | None, asked: Sequence[Assessment] = (),
               checks: str | None = None, wider: Callable[[], TileKernel] | None = None):
    aside = only_places(application)
    super().__init__(name, tensors, arranged, [*same_grids(name, arranged, aside), *asked], checks, aside)
    self.wider = wider   # gives the kernel for sizes that options of dimensions without a name do not speak of
    self.application, self.settings, self.output_dir = application, settings, output_dir
    self.__name__, self.__doc__ = name, application.__doc__
    self.tuned = any(s.meta for s in self.symbols.values())
    self.seconds: float | None = None   # that a search may take, where ``tune`` says it
    try: text = source_of(application)
    except ApplicationError: text = repr((application.__code__.co_code, application.__code__.co_consts))
    self.identity = tune.fingerprint(name, text)
    self.reads = reads_of(application)
    self.reads.begin()   # the first call has nothing to compare, the second one does
    self.reads.said(name)

  def __repr__(self) -> str: return f"<tile kernel {self.name}({', '.join(self.names)})>"
  def _repr_html_(self) -> str: return table(repr(self)[1:-1], [(t,) for t in self.arranged])

  # ---- shapes
  def assessments(self) -> str:
    """What the kernel assumes of sizes, a line each: whether it is decided, which line asks, the host's code that checks it."""
    sizes = [(s, f"{t.name}.shape[{d}]") for t in reversed(self.tensors) for d, s in enumerate(t.shape)]
    places = {s.name: at for s, at in sizes if isinstance(s, Symbol)}
    checked = [*self.assessed, *whole_windows(self.arranged)]
    return "\n".join(f"{a}; host: {host}" if (host := a.host(places)) else str(a) for a in checked)

  # ---- specialising
  def index_form(self) -> Kernel:
    """The kernel for the sizes that its tensors are declared with: numbers, or for all."""
    taken = [(t.source.shape, t.element) for t in self.tensors]
    if all(isinstance(n, int) for shape, _ in taken for n in shape): return self.specialise(*taken).kernel
    return self.general(False, {}).specialised.kernel

  def specialise(self, *arguments: Any, **given: Any) -> Specialised:
    """The kernel for arguments (tensors, arrays, or ``(shape, dtype)``), compile-time values by name; all sizes are numbers."""
    args, values = self.called(arguments, given)
    args = converted_arguments(self, args)
    device = next((a.device for a in args if isinstance(a, Lazy)), None)
    found = self._specialise(describe_arguments(self, args), args, values, device, numbers_only=True)
    if found is None: raise ArgumentError(f"{self.name}: an argument without elements leaves nothing to run")
    return found[0]

  @synchronized
  def _specialise(self, taken: Sequence[Argument], arguments: Positional, given: ByName, device: str | None = None,
                  buffers: MemoryOf | None = None, numbers_only: bool = False) -> Found:
    """See :meth:`Signature._specialise`. ``numbers_only``: all sizes are numbers."""
    if self.reads is not None and (self._specialised or self._families) and not self.reads.hold(): self.read_otherwise()
    full = self.placed(taken)
    numbers, given = self.again(given)
    for i, x in zip(self.given, arguments):
      if self.tensors[i].constexpr: numbers[i], full[i] = constant(self.names[i], x), None
    try: values = self.bind(full, given)
    except BeyondError:
      if self.wider is None: raise
      (wider := self.wider()).seconds = self.seconds
      try: return wider._specialise(taken, arguments, given, device, buffers, numbers_only)
      finally: self.reads = wider.reads
    left, on = [s for n, s in self.symbols.items() if n not in values], device or default_device()
    if left: values = self.choose(left, full, numbers, values, on, buffers)
    if not numbers_only and (form := self.form(full, numbers, values, given, on)) is not None:
      return form.specialised, form.sizes(values), form
    key = tuple(full), items_of(numbers), items_of(values), self.checks or config.checks
    found = self._specialised[key]
    if found is None: found = self._specialised[key] = self.build(full, numbers, values)
    return None if found is None else (found, (), None)

  def general(self, blocks: bool, given: ByName, arguments: Positional | None = None,
              likely: Mapping[str, int] | None = None) -> SizedKernel:
    """The kernel for all sizes that no number is given for. ``arguments``: (shape, dtype) for each, an int for a dimension that
    is a number, anything else for one that is not; None: as the tensors are declared, of float32 where they do not say.
    ``likely``: values that names may well have. ``blocks``: for a target that computes with blocks. Raises ShapeError where
    arrangement or application must know a number."""
    wanted = arguments if arguments is not None else [((None,) * len(t.shape), None) for t in self.takes]
    if len(wanted) != len(self.given): raise ArgumentError(f"{self.name}: takes {len(self.given)} arguments, got {len(wanted)}")
    hints = {n: likely_size(s) for n, s in self.symbols.items()} | {**(likely or {}), **given}
    numbers, given = self.again(given)
    fixed: dict[str, Any] = dict(given)
    full: list[Argument | None] = [None] * len(self.names)
    for t, (shape, _) in zip(self.takes, wanted):
      if len(shape) != len(t.shape): raise ShapeError(f"{self.name}: {t.name} has {len(t.shape)} dimensions, got {shape}")
      fixed |= {e.name: n for e, n in zip(t.shape, shape) if isinstance(n, int) and isinstance(e, Symbol) and e.is_name}
    hints |= fixed
    grids = [t.levels[0] for t in self.arranged if t.levels != ((),) and t.name not in self.aside]
    agree_on_grid(grids, hints, {*fixed, *(likely or ())})
    for i, t, (shape, dtype) in zip(self.given, self.takes, wanted):
      if t.constexpr or t.jagged_dim is not None: raise ArgumentError(f"{self.name}: {t.name} must be given, it is compiled in")
      found = tuple(n if isinstance(n, int) else evaluate(e, hints) for e, n in zip(t.shape, shape))
      full[i] = Argument(found, dtypes.of(t.element or dtype or dtypes.float32))
    values = self.bind(full, given)
    free = free_symbols([s for n, s in self.symbols.items() if n not in values], self)
    if blocks:
      settings = {"num_warps": (4,), **self.settings}   # what a library has no value for is its compiler's
      values |= fitting(free, lambda v: self.build(full, numbers, values | v), renderer("triton").target, settings)
    else: values |= first_choice(free, blocks)
    open_ = [n for n in names_in(self.tensors) if n not in fixed and not self.symbols[n].constexpr]
    form = form_of(open_, values, self.symbols, partial(self.sized, full, numbers))
    pinned = [n for c in ix.conjuncts(form.condition) for n, to in equal_in(c) if n in open_ and isinstance(to, int)]
    if pinned: raise ShapeError(f"{self.name}: {', '.join(pinned)} must be a number when the kernel is made")
    return form

  def sized(self, full: ByParameter, numbers: Constants, values: Mapping[str, Dim]) -> tuple[Specialised, list[UOp]]:
    """The kernel for run-time sizes, and the conditions on them that it takes."""
    with assuming() as conditions: s = self.build(full, numbers, values)
    if s is None: raise ShapeError(f"{self.name}: there are no programs")
    return s, list(conditions)

  def family(self, full: ByParameter, numbers: Constants, given: ByName, device: str) -> Family:
    """What is known of the calls that differ from one in sizes only."""
    kinds = tuple(None if a is None else (len(a.shape), a.dtype) for a in full)
    key = kinds, items_of(numbers), items_of(given), device, config.key(), self.checks or config.checks
    if (found := self._families[key]) is None: found = self._families[key] = Family()
    return found

  def form(self, full: ByParameter, numbers: Constants, values: Mapping[str, int], given: ByName,
           device: str) -> SizedKernel | None:
    """The kernel for many sizes that serves a call; None where the call has numbers."""
    if any(a is not None and a.jagged is not None for a in full): return None
    family = self.family(full, numbers, given, device)
    names = family.open(self, values, given)
    if not names: return None
    found = next((f for f in family.forms if f.serves(values)), None)
    if found is not None or len(family.forms) >= MOST_FORMS: return found
    if any(a is not None and 0 in a.shape for a in full): return None
    # what was equal in every call is one size, until a call comes in which it is not
    equal = {} if family.forms else {n: to for n, to in family.equal.items() if n in names and to in names}
    try: found = form_of(names, values, self.symbols, partial(self.sized, full, numbers), equal)
    except NtgradError as e:
      report.stays_static(self.name, names, e)
      return None
    if not found.specialised.kernel.sizes: return None
    family.forms.append(found)
    report.sized(self.name, ", ".join(s.name for s in found.specialised.sizes), family, found)
    return found

  def choose(self, left: Sequence[Symbol], full: ByParameter, numbers: Constants, values: dict[str, int],
             device: str, buffers: MemoryOf | None) -> dict[str, int]:
    """With values for the tuner's symbols: measured (where there is memory, unless ``TUNE=0``), remembered, or the first."""
    free = free_symbols(left, self)
    about = tuple(None if a is None else (tuple(map(power_of_two, a.shape)), a.dtype, a.jagged) for a in full)
    key = about, items_of(numbers), items_of({n: power_of_two(v) for n, v in values.items()}), device, config.key()
    if (known := self._chosen[key]) is not None: return values | known
    opened = get_device(device)
    target, start = opened.renderer.target, first_choice(free, opened.renderer.target.blocks)
    def read(v: dict[str, int]) -> Specialised | None: return self.build(full, numbers, values | v)
    to_measure = buffers if config.tune and not config.noopt else None
    if to_measure is None and not target.blocks: return values | start
    memo, table = (("first", key), "tile-first") if to_measure is None else (key, TUNER)
    found = self._chosen[memo]
    if found is None:
      name, lines = tuning_key(self, full, numbers, values, opened), None
      def remember(best: dict[str, int]) -> None:
        keep_choice(table, name, CHOICE, best, About(device_text(opened), self.name))
        self._chosen[memo] = best
      found = remembered(name, free, table)
      if found is None:
        if to_measure is None: found = fitting(free, read, target, self.settings)
        elif (s := read(start)) is None or s.kernel.prints: return values | start   # each candidate would print
        else: found, lines = search_values(self, free, read, opened, to_measure(s), remember, self.seconds)
        remember(found)
        if lines is not None: report.tuned(self.name, found, lines)
      self._chosen[memo] = found
    return values | found

  def build(self, full: ByParameter, numbers: Constants, values: Mapping[str, Dim],
            shared: Sequence[SlotPair] = (), slopes: bool = False) -> Specialised | None:
    """Arrange with ``values`` (numbers, sizes), read the application; ``shared`` are one memory, ``slopes`` for gradients."""
    arranged = self.arrange(full, numbers, values)
    if arranged is None: return None
    parameters, tiles = arranged
    for w, other in shared: parameters[other].one = parameters[w]
    known = {n: ix.count(v) for n, v in values.items()}
    checks = self.checks or config.checks
    grids = self.with_grids(parameters)
    tracer = Tracer(parameters, grids[0].arrangement.levels[0] if grids else (), checks, slopes)
    reads = reads_of(self.application) if self.reads is None else None
    try:
      with tracer: Interpreter(tracer, values).application(self.application, tiles)
    except NtgradError:
      # of the arrangement, whichever line came to it
      if misfit := next((p.misfit for p in parameters if p.misfit is not None), None): raise misfit from None
      raise
    if reads is not None:
      reads.settle()
      self.reads = reads
    if not any(p.written for p in parameters):
      raise ApplicationError(f"{self.name}: the application stores nothing; assign to one of {', '.join(self.names)}")
    told = {n: vs[0] for n, vs in self.settings.items() if n in tune.COMPILER_OPTIONS} | known
    mine = tuple((n, told[n]) for n in tune.COMPILER_OPTIONS if n in told)
    kernel = tracer.kernel()
    if any(p.shared for p in parameters): refuse_races(self.name, kernel, parameters, tracer.places)
    if checks != "none": dimensions_agree(self.name, kernel, parameters, {t.name: t for t in self.tensors}, lines=tracer.reached)
    def again(shared: Sequence[SlotPair]) -> Specialised | None:
      with assuming() as conditions: found = self.build(full, numbers, values, shared)
      if conditions:   # a launch looks at those of the kernel as it is
        with assuming() as asked: self.build(full, numbers, values)
        if not conditions.keys() <= asked.keys(): return None
      return found
    def at(sizes: Mapping[str, int]) -> Specialised | None:
      if any(s.name not in sizes for s in sizes_of(values.values())): return None
      here = {n: v if isinstance(v, int) else evaluate(seen(v), sizes) for n, v in values.items()}
      shapes = [tuple(evaluate(e, here) for e in t._source.shape) for t in self.tensors]
      return self.build([None if a is None else a._replace(shape=s) for a, s in zip(full, shapes)], numbers, here)
    return Specialised(self.name, kernel, tuple(parameters), known, mine, tuple(tracer.lines), self.output_dir,
                       tuple(tracer.asserts), None if shared else again, at if kernel.sizes else None,
                       tuple(tracer.breakpoints), tracer.places)

  # ---- calling
  @holds_lock
  def __call__(self, *args: Any, **given: Any) -> None:
    """Run on tensors (ntgrad's, numpy's, what speaks DLPack), compile-time values by name; outputs are written in place."""
    if lock._is_owned(): enter()   # type: ignore[attr-defined]
    with lock: launch(self, args, given)

  def tune(self, *calls: Sequence[Any], seconds: float = 10.0, **given: Any) -> list[dict[str, int]]:
    """Choose block sizes for several calls, each a tuple of arguments, in ``seconds`` for all: what one leaves is the next ones'.

    ``given`` are compile-time values by name, for all calls. What is found is kept on disk, and is what calls with such shapes
    use; what has been found before is not searched again. Nothing is written. A compiler that is at work when the time is over
    is waited for. Gives the values for each call. After Ctrl-C what was found so far is kept. Raises ArgumentError for a kernel
    without Symbols that the tuner chooses, and for what is no call.
    """
    if not self.tuned: raise ArgumentError(f"{self.name}.tune: it has no block_size(), so there is nothing to choose")
    if wrong := [c for c in calls if not isinstance(c, (tuple, list))]:
      raise ArgumentError(f"{self.name}.tune: a call is a tuple of its arguments, got {shown(wrong[0])}")
    if not isinstance(seconds, (int, float)) or not seconds > 0:
      raise ArgumentError(f"{self.name}.tune: seconds is {shown(seconds)}; it is a number greater than 0")
    out, ends = [], time.perf_counter() + seconds
    with lock:
      for i, call in enumerate(calls):
        left = (ends - time.perf_counter()) / (len(calls) - i)
        self.seconds = max(left, seconds / len(calls) / 2)   # one before may have taken longer than its share
        try: found = tune_for(self, *self.called(call, given))
        finally: self.seconds = None
        out.append({n: v for n, v in found.values.items() if self.symbols[n].meta} if isinstance(found, Specialised) else {})
    return out

  # ---- seeing
  def _seen(self, args: Positional, given: ByName, blocks: bool = False) -> Specialised:
    if args: return self.specialise(*args, **given)
    if self.reads is not None and not self.reads.hold(): self.read_otherwise()
    if self.last is not None and not given: return self.last
    try: return self.general(blocks, given).specialised
    except NtgradError as e:
      what = f"{self.name}: has not been called yet; give the arguments, or (shape, dtype) for each. There is none for all sizes"
      raise type(e)(f"{what}: {e}") from None

  def source(self, target: str = "opencl", *args: Any, **given: Any) -> str:
    """The source for a target: for these arguments, those of the last call, or all sizes; what runs here if it has the target."""
    device = device_for(target)
    return self._seen(args, given, device.renderer.target.blocks).spec(device).source.text

  def uops(self, *args: Any, **given: Any) -> UOpList:
    """The linear UOps, for these arguments, those of the last call, or all sizes."""
    return self._seen(args, given).uops

  def arrangements(self, *args: Any, **given: Any) -> str:
    """The meta-operations that arrange each parameter, with numbers or, before any call, sizes."""
    return self._seen(args, given).arrangements()


wrappers[TileKernel] = lambda kernel: kernel.application


def items_of(values: Mapping[Any, Any]) -> tuple[Any, ...]:
  """The entries of a mapping in order, for a key."""
  return tuple(sorted(values.items()))


def device_for(target: str) -> Device:
  """The default device, or else the CPU, where that is such a target; something with the renderer of one where it is not."""
  for name in (default_device(), "CPU"):
    try: device = get_device(name)
    except DeviceError: continue
    if device.renderer.target.name == target: return device
  return types.SimpleNamespace(renderer=renderer(target), name=target)  # type: ignore[return-value]
