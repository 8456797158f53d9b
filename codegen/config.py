"""One typed object for every setting. Each field names its environment variable.

``with config(debug=4): ...`` sets fields for the block. Fields marked ``key`` change the code that is
generated and so belong to every cache key.
"""
from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Iterator, Mapping, Sequence

from .errors import ConfigError


def _setting(env: str, default: Any, help: str, key: bool = False, values: Sequence[Any] = ()) -> Any:
  made = field(default=default, metadata={"env": env, "help": help, "key": key, "kind": type(default), "values": values})
  raw = os.environ.get(env)
  if raw is not None:
    value: Any = raw
    if type(default) is int:
      try: value = int(raw)
      except ValueError: pass   # refused below
    made.default = _checked(f"environment variable {env}", value, made.metadata)
  return made


def _checked(what: str, value: Any, about: Mapping[str, Any]) -> Any:
  """A value that the setting takes. Raises ConfigError for another."""
  kind, values = about["kind"], about["values"]
  if isinstance(value, kind) and (not values or value in values): return value
  raise ConfigError(f"{what} is {value!r}, expected {_either(values) if values else 'a string'} ({about['help']})")


def _either(values: Sequence[Any]) -> str:
  if isinstance(values, range): return f"a whole number from {values[0]} to {values[-1]}"
  return f"{', '.join(map(str, values[:-1]))} or {values[-1]}"


@dataclass
class Config:
  """The settings in force. Assign a field, or use ``with config(field=value):``. Raises ConfigError for what a setting does not take."""
  debug: int = _setting("DEBUG", 0, "1 devices and schedules, 2 a line per kernel, 3 axes and arrangements, 4 source, 5 linear UOps, 6 assembly",
                        values=range(7))
  noopt: int = _setting("NOOPT", 0, "1 leaves every kernel as plain loops", key=True, values=(0, 1))
  allow_tf32: int = _setting("ALLOW_TF32", 0, "1 lets CUDA round the factors of float32 products to tf32, which is faster", key=True,
                             values=(0, 1))
  dev: str = _setting("DEV", "", "default device: CPU (OpenCL/PoCL), CL, NUMPY, ...")
  tune: int = _setting("TUNE", 1, "0 takes the model's block sizes for tile kernels instead of measuring some", values=(0, 1))
  beam: int = _setting("BEAM", 0, "n measures Opts for each new kernel, going on from the n fastest each time; 0 takes the model's", key=True,
                       values=range(1025))
  jit: int = _setting("JIT", 1, "0 makes ntgrad.jit call the function plainly", values=(0, 1))
  cache: int = _setting("CACHE", 1, "0 keeps nothing on disk", values=(0, 1))
  cache_dir: str = _setting("CACHE_DIR", "", "folder of the disk cache; empty is the platform's cache folder")
  verify: int = _setting("VERIFY", 0, "1 checks the program after every pass", values=(0, 1))
  vector_bits: int = _setting("VECTOR_BITS", 0, "bits of a vector register of the CPU to make code for: 128, 256, 512; 0 is the machine's",
                              key=True, values=(0, 128, 256, 512))
  cores: int = _setting("CORES", 0, "cores of the CPU to make code for; 0 is the machine's", key=True, values=range(1025))
  workers: int = _setting("WORKERS", 0, "processes that compile many new kernels, this one among them; 0 is one a core", values=range(1025))
  color: int = _setting("COLOR", -1, "1 always, 0 never, -1 only on a terminal", values=(-1, 0, 1))

  @contextmanager
  def __call__(self, **changes: Any) -> Iterator[Config]:
    """Set fields for a ``with`` block. Raises ConfigError for an unknown field or a value that it does not take."""
    before = {name: value for name, value in vars(self).items() if name in changes}
    try:
      for name, value in changes.items():
        setattr(self, name, value)
      yield self
    finally:
      for name, value in before.items():
        setattr(self, name, value)

  def __setattr__(self, name: str, value: Any) -> None:
    known = self.__dataclass_fields__
    if name not in known: raise ConfigError(f"config has no field {name!r}; fields: {', '.join(known)}")
    object.__setattr__(self, name, _checked(f"config.{name}", value, known[name].metadata))

  def key(self) -> tuple[Any, ...]:
    """The fields that change generated code."""
    return tuple([getattr(self, name) for name in _KEYED])


_KEYED = tuple(f.name for f in fields(Config) if f.metadata["key"])
config = Config()
