"""One typed object for every setting. Each field names its environment variable.

``with config(debug=4): ...`` sets fields for the block, in the thread (or asyncio task) that it is in; an assignment outside of such a block
sets them for the process. Fields marked ``key`` change the code that is
generated and so belong to every cache key.
"""
from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Iterator, Mapping, Sequence

from .errors import ConfigError


def _setting(env: str, default: Any, help: str, key: bool = False, values: Sequence[Any] = ()) -> Any:
  kind = type(default)
  raw = os.environ.get(env)
  value = default
  if raw is not None:
    try:
      value = kind(raw)
    except ValueError:
      raise ConfigError(f"environment variable {env}={raw!r}: expected {kind.__name__}") from None
    if values and value not in values: raise ConfigError(f"environment variable {env}={raw!r}: expected {_either(values)}")
  return field(default_factory=lambda: value, metadata={"env": env, "help": help, "key": key, "kind": kind, "values": values})


def _either(values: Sequence[Any]) -> str:
  return f"{values[0]} to {values[-1]}" if isinstance(values, range) else f"{', '.join(map(str, values[:-1]))} or {values[-1]}"


_here: ContextVar[Mapping[str, Any]] = ContextVar("ntgrad settings", default=MappingProxyType({}))   # what the with blocks around say
_lock = threading.Lock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)   # type: ignore[attr-defined]


@dataclass
class Config:
  """The settings in force. Assign a field, or use ``with config(field=value):``."""
  debug: int = _setting("DEBUG", 0, "1 devices and schedules, 2 a line per kernel, 3 axes and arrangements, 4 source, 5 linear UOps, 6 assembly")
  noopt: int = _setting("NOOPT", 0, "1 leaves every kernel as plain loops", key=True)
  allow_tf32: int = _setting("ALLOW_TF32", 0, "1 lets CUDA round the factors of float32 products to tf32, which is faster", key=True)
  dev: str = _setting("DEV", "", "default device: CPU (OpenCL/PoCL), CL, NUMPY, ...")
  tune: int = _setting("TUNE", 1, "0 takes the model's block sizes for tile kernels instead of measuring some")
  beam: int = _setting("BEAM", 0, "n measures Opts for each new kernel, going on from the n fastest each time; 0 takes the model's", key=True)
  jit: int = _setting("JIT", 1, "0 makes ntgrad.jit call the function plainly")
  cache: int = _setting("CACHE", 1, "0 keeps nothing on disk")
  cache_dir: str = _setting("CACHE_DIR", "", "folder of the disk cache; empty is the platform's cache folder")
  cache_bytes: int = _setting("CACHE_BYTES", 2 << 30, "bytes that the disk cache may take; what was not used for longest goes first; 0 is no limit",
                              values=range(1 << 62))
  memory: int = _setting("MEMORY", 0, "bytes that a device may have for tensors, with what it keeps for reuse; 0 is all that it has",
                         values=range(1 << 62))
  verify: int = _setting("VERIFY", 0, "1 checks the program after every pass")
  vector_bits: int = _setting("VECTOR_BITS", 0, "bits of a vector register of the CPU to make code for: 128, 256, 512; 0 is the machine's",
                              key=True, values=(0, 128, 256, 512))
  cores: int = _setting("CORES", 0, "cores of the CPU to make code for; 0 is the machine's", key=True, values=range(1025))
  workers: int = _setting("WORKERS", 0, "processes that compile many new kernels, this one among them; 0 is one a core")
  color: int = _setting("COLOR", -1, "1 always, 0 never, -1 only on a terminal")

  @contextmanager
  def __call__(self, **changes: Any) -> Iterator[Config]:
    """Set fields for a ``with`` block. Raises ConfigError for an unknown field or a value of another type."""
    known = {f.name: f for f in fields(self)}
    for name, value in changes.items():
      if name not in known:
        raise ConfigError(f"config has no field {name!r}; fields: {', '.join(known)}")
      kind = known[name].metadata["kind"]
      if not isinstance(value, kind):
        raise ConfigError(f"config.{name} takes {kind.__name__}, got {value!r}")
      values = known[name].metadata["values"]
      if values and value not in values: raise ConfigError(f"config.{name} is {_either(values)}, got {value!r}")
    before = _here.get()
    self._take_out(changes)
    try:
      _here.set({**before, **changes})
      yield self
    finally:
      _here.set(before)
      self._put_back(changes)

  def __post_init__(self) -> None:
    self._process: dict[str, Any] = {}   # what fields have outside of the blocks that have them
    self._blocks: dict[str, int] = {}    # in how many blocks they are

  def _take_out(self, names: Mapping[str, Any]) -> None:
    with _lock:
      for name in names:
        if name not in self._process:
          self._process[name] = self.__dict__[name]
          object.__setattr__(self, "__class__", _Within)
          del self.__dict__[name]
        self._blocks[name] = self._blocks.get(name, 0) + 1

  def _put_back(self, names: Mapping[str, Any]) -> None:
    with _lock:
      for name in names:
        self._blocks[name] -= 1
        if not self._blocks[name]:
          self.__dict__[name] = self._process[name]
          del self._process[name]
      if not self._process: object.__setattr__(self, "__class__", Config)

  def __setattr__(self, name: str, value: Any) -> None:
    if name in _here.get():
      _here.set({**_here.get(), name: value})
      return
    with _lock:
      process = self.__dict__.get("_process", {})
      (process if name in process else self.__dict__)[name] = value

  def key(self) -> tuple[Any, ...]:
    """The fields that change generated code."""
    return tuple([getattr(self, name) for name in _KEYED])


class _Within(Config):
  """The settings while some thread is in a with block. The fields that such blocks have are no attributes of the object meanwhile, so who asks
  comes to ``__getattr__``; all others, and all when there is no block, are as quick as attributes are."""

  def __getattr__(self, name: str) -> Any:
    here = _here.get()
    if name in here: return here[name]
    process = self.__dict__.get("_process", {})
    try: return process[name] if name in process else self.__dict__[name]
    except KeyError: pass
    if name in self.__dict__: return self.__dict__[name]   # put back meanwhile
    raise AttributeError(f"config has no field {name!r}")


_KEYED = tuple(f.name for f in fields(Config) if f.metadata["key"])
config = Config()
