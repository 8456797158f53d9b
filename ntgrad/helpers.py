"""What scripts import beside tensors, under tinygrad's names: settings of the environment, counters, timing, text."""
from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ContextDecorator, ExitStack
from typing import Any, Callable, TypeVar

from ntgrad.codegen.ir import ArgumentError, ConfigError
from ntgrad.codegen.ir.config import Settings, config
from ntgrad.compat.public import show
from ntgrad.engine import counters
from ntgrad.engine.device import Device
from ntgrad.graph import checked, origins
from ntgrad.graph.modes import behaving

T = TypeVar("T")
COLORS = "black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"


def getenv(key: str, default: Any = 0) -> Any:
  """An environment variable as the type of ``default``. Raises ConfigError where it cannot be read so."""
  if (value := os.environ.get(key)) is None: return default
  try: return type(default)(value)
  except (TypeError, ValueError):
    raise ConfigError(f"environment variable {key} is {value!r}, expected what {type(default).__name__} takes") from None


class Context(ContextDecorator):
  """``with Context(DEBUG=2, NOOPT=1): ...``, or above a function: settings by the names of their environment variables; the same
  as ``config(debug=2, noopt=1)``. ``TRAINING=1`` is ``Tensor.train()``. A name that no setting has, such as one of tinygrad's
  compiler, changes nothing and is warned of once. Raises ConfigError for a value that a setting does not take."""

  def __init__(self, **settings: Any):
    known = {f.metadata["env"]: name for name, f in Settings.__dataclass_fields__.items()}
    self.training = settings.pop("TRAINING", None)
    if self.training not in (None, 0, 1): raise ConfigError(f"Context: TRAINING is {self.training!r}, expected 0 or 1")
    for k in settings:
      if k not in known:
        origins.say_once(("Context", k), f"Context: {k} is no setting here and changes nothing; there are TRAINING, "
                                         f"{', '.join(known)}")
    self.settings = {known[k]: v for k, v in settings.items() if k in known}
    self.inside = list[ExitStack]()

  def __enter__(self) -> Context:
    with ExitStack() as stack:
      stack.enter_context(config(**self.settings))
      if self.training is not None: stack.enter_context(behaving(bool(self.training)))
      self.inside.append(stack.pop_all())
    return self

  def __exit__(self, *error: Any) -> None: self.inside.pop().__exit__(*error)


def _total(name: str, doc: str) -> Any: return property(lambda self: getattr(counters.totals(), name), doc=doc)


class _Counters:
  """What has been launched since ``reset()``, schedules and replays together (a direct call of a tile kernel is not counted)."""

  kernel_count = _total("kernels", "Kernels.")
  global_ops = _total("operations", "Operations, each launch's least.")
  global_mem = _total("nbytes", "Bytes read and written, each launch's least.")
  time_sum_s = _total("seconds", "Seconds in kernels, of those that were timed: with ``DEBUG=2`` or a profile.")

  @property
  def mem_used(self) -> int:
    """Bytes that tensors have on the default device now."""
    return Device.memory().allocated

  def reset(self) -> None:
    """Count from 0 again."""
    counters.reset_counters()

  def __repr__(self) -> str:
    t = counters.totals()
    return f"GlobalCounters(kernels={t.kernels:,}, operations={t.operations:,}, bytes={t.nbytes:,}, seconds={t.seconds:.6f})"


GlobalCounters = _Counters()


class Timing(ContextDecorator):
  """``with Timing("step "): ...`` prints how long the block took, in ms. ``on_exit`` gets ns and gives more text."""

  def __init__(self, prefix: str = "", on_exit: Callable[[int], str] | None = None, enabled: bool = True):
    self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled
    self.began = self.et = 0

  def __enter__(self) -> Timing:
    self.began = time.perf_counter_ns()
    return self

  def __exit__(self, *_: object) -> None:
    self.et = time.perf_counter_ns() - self.began
    if self.enabled: print(f"{self.prefix}{self.et * 1e-6:6.2f} ms{self.on_exit(self.et) if self.on_exit else ''}")


@checked
def colored(text: str, color: str | None, background: bool = False) -> str:
  """Text in one of eight colours for a terminal, in upper case a bright one. Raises ArgumentError for another colour."""
  if color is None: return text
  if color.lower() not in COLORS: raise ArgumentError(f"colored: {color!r}; colours are {', '.join(COLORS)}")
  return f"\x1b[{COLORS.index(color.lower()) + 10 * background + 60 * color.isupper() + 30}m{text}\x1b[0m"


def prod(values: Iterable[Any]) -> Any:
  """The product of numbers, 1 for none."""
  return math.prod(values)


def flatten(lists: Iterable[Iterable[T]]) -> list[T]:
  """The items of all lists in one."""
  return [x for items in lists for x in items]


def all_same(items: Sequence[Any]) -> bool:
  """Whether all are equal; True for none."""
  return all(x == items[0] for x in items)


def all_int(values: Iterable[Any]) -> bool:
  """Whether all are Python ints."""
  return all(isinstance(x, int) for x in values)


def argsort(values: Sequence[Any]) -> tuple[int, ...]:
  """Where the elements stand, from the least to the greatest."""
  return tuple(sorted(range(len(values)), key=values.__getitem__))


def ceildiv(a: int, b: int) -> int:
  """a / b rounded up."""
  return -(-a // b)


def round_up(n: int, multiple: int) -> int:
  """The least multiple that is not less than n."""
  return ceildiv(n, multiple) * multiple


def dedup(items: Iterable[T]) -> list[T]:
  """Each once, where it stood first."""
  return list(dict.fromkeys(items))


def fully_flatten(x: Any) -> list[Any]:
  """Lists of lists of .. as one list."""
  return [v for part in x for v in fully_flatten(part)] if isinstance(x, (list, tuple)) else [x]


def partition(items: Iterable[T], condition: Callable[[T], Any]) -> tuple[list[T], list[T]]:
  """Those for which a condition holds, and the others."""
  found: tuple[list[T], list[T]] = [], []
  for x in items: found[not condition(x)].append(x)
  return found


def merge_dicts(dicts: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
  """One dict of several. Raises ArgumentError where they say different things of a key."""
  out = dict[Any, Any]()
  for d in dicts:
    for k, v in d.items():
      if k in out and out[k] != v: raise ArgumentError(f"merge_dicts: {k!r} is {out[k]!r} in one and {v!r} in another")
      out[k] = v
  return out


def get_single_element(items: Sequence[T]) -> T:
  """The one element. Raises ArgumentError for another number of them."""
  if len(items) != 1: raise ArgumentError(f"get_single_element: {len(items)} elements; it takes one")
  return items[0]


def unwrap(x: T | None) -> T:
  """What is not None. Raises ArgumentError for None."""
  if x is None: raise ArgumentError("unwrap: None; there is no value")
  return x


def ansistrip(text: str) -> str:
  """Text without its colours."""
  return re.sub("\x1b\\[(K|.*?m)", "", text)


def ansilen(text: str) -> int:
  """How long a text is without its colours."""
  return len(ansistrip(text))


def make_tuple(x: Any, count: int) -> tuple[Any, ...]:
  """A number ``count`` times, or a sequence as a tuple."""
  return (x,) * count if isinstance(x, (int, float)) else tuple(x)


class _Plain(Iterable[T]):
  """A progress bar that shows nothing."""
  def __init__(self, items: Iterable[T]): self.items = items
  def __iter__(self) -> Iterator[T]: return iter(self.items)
  def set_description(self, text: str) -> None: pass


def tqdm(items: Iterable[T], **options: Any) -> Any:
  """The items with a progress bar, where the package tqdm is installed; ``set_description(text)`` says what stands before it."""
  try:
    from tqdm import tqdm as bar
  except ImportError: return _Plain(items)
  return bar(items, **options)


def trange(n: int, **options: Any) -> Any:
  """``range(n)`` with a progress bar; see :func:`tqdm`."""
  return tqdm(range(n), **options)


__all__ = ["Context", "GlobalCounters", "Timing", "all_int", "all_same", "ansilen", "ansistrip", "argsort", "ceildiv", "colored",
           "dedup", "flatten", "fully_flatten", "get_single_element", "getenv", "make_tuple", "merge_dicts", "partition", "prod",
           "round_up", "tqdm", "trange", "unwrap"]

show(__name__)
