"""One typed object for every setting. Each field names its environment variable.

``with config(debug=4): ...`` sets fields for the block, in the thread (or asyncio task) that it is in; an assignment outside of
such a block sets them for the process. Fields marked ``key`` change the code that is generated and so belong to every cache key.
"""
from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Iterable, Iterator, Mapping, Sequence

from .errors import ConfigError
from .handlers import not_in_handler

Value = int | str


def _setting(env: str, default: Value, help: str, key: bool = False, values: Sequence[Value] = ()) -> Any:
  """A dataclass field, which stands for its value: an environment variable's, or the default."""
  kind: Any = type(default)
  if kind is int: values = values or (0, 1)
  if values and type(values[-1]) is not kind: kind = kind, int   # a word, or numbers
  about = {"env": env, "default": default, "help": help, "key": key, "kind": kind, "values": values}
  value: Value = os.environ.get(env, default)
  if kind is not str:
    try: value = int(value)
    except ValueError: pass   # refused below
  value = _checked(f"environment variable {env}", value, about)
  return field(default_factory=lambda: value, metadata=about)


def _checked(what: str, value: Value, about: Mapping[str, Any]) -> Value:
  """``value``, if the setting takes it. Raises ConfigError."""
  kind, values = about["kind"], about["values"]
  if isinstance(value, kind) and (not values or value in values): return value
  expected = "a string" if not values else f"a whole number from {values[0]} to {values[-1]}" if isinstance(values, range) else \
    f"{', '.join(map(str, values[:-1]))} or {values[-1]}"
  raise ConfigError(f"{what} is {value!r}, expected {expected} ({about['help']})")


# the fields that the enclosing with blocks of this thread or task set
_here: ContextVar[Mapping[str, Value]] = ContextVar("ntgrad settings", default=MappingProxyType({}))
_lock = threading.Lock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)   # type: ignore[attr-defined]


@dataclass
class Settings:
  """The settings in force. Assign a field, or use ``with config(field=value):``. Raises ConfigError for what a setting does not
  take."""

  debug: int = _setting("DEBUG", 0,
    "1 devices and schedules, 2 a line per kernel, 3 axes and arrangements, 4 source, 5 linear UOps, 6 assembly", values=range(7))
  noopt: int = _setting("NOOPT", 0, "1 leaves every kernel as plain loops", key=True)
  allow_tf32: int = _setting(
    "ALLOW_TF32", 0, "1 lets CUDA round the factors of float32 products to tf32, which is faster", key=True)
  conv_tf32: int = _setting(
    "CONV_TF32", 1, "1 lets CUDA round the factors of float32 convolutions to tf32, as PyTorch does; 0 does not", key=True)
  dynamic: str = _setting("DYNAMIC", "auto",
    "when a size becomes one that kernels take at the launch: auto, where a structure is seen with another number; never; always",
    key=True, values=("auto", "never", "always"))
  dev: str = _setting("DEV", "", "default device: CPU (OpenCL/PoCL), CL, NUMPY, ...")
  tune: int = _setting("TUNE", 1, "0 takes the model's block sizes for tile kernels instead of measuring some")
  all_leaves: int = _setting("ALL_LEAVES", 0,
    "1 makes every float tensor that is not computed a leaf, which backward gives a gradient, unless requires_grad= says other")
  beam: int = _setting("BEAM", 0,
    "n measures Opts for each new kernel, going on from the n fastest each time; 0 takes the model's", key=True,
    values=range(1025))
  jit: int = _setting("JIT", 1, "0 makes ntgrad.jit call the function plainly")
  cache: int = _setting("CACHE", 1, "0 stores nothing on disk")
  cache_dir: str = _setting("CACHE_DIR", "", "folder of the disk cache; empty is the platform's cache folder")
  cache_bytes: int = _setting("CACHE_BYTES", 2 << 30,
    "bytes that the disk cache may take; the least recently used entries are removed first; 0 is no limit", values=range(1 << 62))
  memory: int = _setting("MEMORY", 0, "bytes that a device may have for tensors, with its cached memory; 0 is all that it has",
    values=range(1 << 62))
  show: str = _setting(
    "SHOW", "", "passes (a list with commas) after which a kernel is printed; python -m ntgrad passes has their names")
  origins: int = _setting(
    "ORIGINS", 1, "0 keeps no note of the lines that make operations, which tables of kernels and errors name")
  only: str = _setting(
    "ONLY", "", "what DEBUG and SHOW print of kernels is about those whose names match: a pattern (r_*), or several with commas")
  verify: int = _setting("VERIFY", 0, "1 checks the program after every pass")
  poison: int = _setting("POISON", 0, "1 fills new memory with the byte 0xFF (NaN, -1), so that reading what nobody wrote shows")
  vector_bits: int = _setting("VECTOR_BITS", 0,
    "bits of a vector register of the CPU to make code for: 128, 256, 512; 0 is the machine's", key=True,
    values=(0, 128, 256, 512))
  direct: int = _setting(
    "DIRECT", 1, "0 launches the CPU's kernels through PoCL's queue; 1 by ntgrad's own threads, where possible")
  cores: int = _setting("CORES", 0, "cores of the CPU to make code for; 0 is the machine's", key=True, values=range(1025))
  workers: int = _setting(
    "WORKERS", 0, "processes that compile many new kernels, this one among them; 0 is one a core", values=range(1025))
  checks: str = _setting("CHECKS", "entry",
    "what tile kernels check: none; entry, their sizes and tl.device_assert; all, run-time indices on the device too",
    values=("none", "entry", "all"))
  check_indices: Value = _setting("CHECK_INDICES", "auto",
    "1 checks index tensors and classes on the device, 0 does not; auto does on CPU and NUMPY", values=("auto", 0, 1))
  check_nan: int = _setting("CHECK_NAN", 0,
    "1 raises NotFiniteError for the first NaN that a computation makes, 2 for an infinity made of finite values too",
    values=range(3))
  tiers: Value = _setting("TIERS", "auto",
    "auto builds many new kernels of the CPU quickly, and those that run often again, optimised; 0 optimises each at once; check "
    "builds and runs each both ways, and compares the bits", values=("auto", "check", 0))
  override: str = _setting(
    "OVERRIDE", "", "folder with files of python -m ntgrad eject, whose kernels run in the place of the scheduled ones", key=True)
  progress: int = _setting("PROGRESS", 1, "0 does not say on terminals and in notebooks how far long compiling is")
  color: int = _setting("COLOR", -1, "1 always, 0 never, -1 only on a terminal", values=(-1, 0, 1))

  @contextmanager
  def __call__(self, **changes: Value) -> Iterator[Settings]:
    """Set fields for a ``with`` block. Raises ConfigError for an unknown field or a value that it does not take."""
    for name, value in changes.items(): self._check(name, value)
    before = _here.get()
    self._begin(changes)
    try:
      _here.set({**before, **changes})
      yield self
    finally:
      _here.set(before)
      self._end(changes)

  def __post_init__(self) -> None:
    self._process: dict[str, Value]   # of each field that some with block sets: its value outside of them
    self._blocks: dict[str, int]    # of each such field: how many blocks set it
    self.__dict__.update(_process={}, _blocks={})

  def _begin(self, names: Iterable[str]) -> None:
    """A with block that sets these fields begins: each has a value for each thread from here on."""
    not_in_handler(_lock)
    with _lock:
      for name in names:
        if name not in self._process:
          self._process[name] = self.__dict__[name]
          object.__setattr__(self, "__class__", _Within)
          del self.__dict__[name]
        self._blocks[name] = self._blocks.get(name, 0) + 1

  def _end(self, names: Iterable[str]) -> None:
    """A with block that sets these fields ends; with the last one a field is an attribute again."""
    with _lock:
      for name in names:
        self._blocks[name] -= 1
        if not self._blocks[name]:
          self.__dict__[name] = self._process[name]
          del self._process[name]
      if not self._process: object.__setattr__(self, "__class__", Settings)

  def _check(self, name: str, value: Value) -> None:
    known = self.__dataclass_fields__
    if name not in known: raise ConfigError(f"config has no field {name!r}; fields: {', '.join(known)}")
    _checked(f"config.{name}", value, known[name].metadata)

  def __setattr__(self, name: str, value: Value) -> None:
    self._check(name, value)
    if name in _here.get():
      _here.set({**_here.get(), name: value})
      return
    not_in_handler(_lock)
    with _lock:
      process = self.__dict__.get("_process", {})
      (process if name in process else self.__dict__)[name] = value

  def speaks_of(self, kernel: str) -> bool:
    """Whether dumps are to show the kernel of this name: ``only`` is empty, or has a pattern that matches it."""
    return not self.only or any([fnmatchcase(kernel, pattern.strip()) for pattern in self.only.split(",")])

  def key(self) -> tuple[Value, ...]:
    """The fields that change generated code."""
    return tuple([getattr(self, name) for name in _KEYED])

  def keyed(self) -> dict[str, Value]: return {name: getattr(self, name) for name in _KEYED}


class _Within(Settings):
  """The settings while some thread is in a with block.

  The fields that such blocks set are removed from the object's attributes, so that reading one calls ``__getattr__``. Reading any
  other field, or any field while there is no block, costs no more than an attribute."""

  def __getattr__(self, name: str) -> Value:
    here = _here.get()
    if name in here: return here[name]
    process = self.__dict__.get("_process", {})
    try: return process[name] if name in process else self.__dict__[name]
    except KeyError: pass
    if name in self.__dict__: return self.__dict__[name]   # put back meanwhile
    raise AttributeError(f"config has no field {name!r}")


_KEYED = tuple(f.name for f in fields(Settings) if f.metadata["key"])
config = Settings()
