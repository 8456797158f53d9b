"""A device for tests: memory is numpy's, kernels are rendered to plain C, compiled with the machine's C compiler and loaded by
ctypes."""
from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Mapping, Sequence

import numpy as np
import pytest

from ntgrad.backends.base import Program, ProgramSpec, grid_of
from ntgrad.backends.c import CRenderer
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.engine import device as devices

NAME = "NUMPY:11"   # whose memory it has
CC = next((found for name in (os.environ.get("CC", ""), "cc", "gcc", "clang") if name and (found := shutil.which(name))), None)
REASON = "" if CC else "no C compiler: neither cc, gcc nor clang is installed"
needs_cc = pytest.mark.skipif(not CC, reason=REASON)
COMMAND = [str(CC), "-std=c11", "-O1", "-Wall", "-Werror", "-Wno-unused", "-Wno-parentheses", "-fPIC", "-shared"]

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@cache
def folder() -> Path:
  """Where libraries lie until the process ends."""
  made = tempfile.mkdtemp(prefix="ntgrad-c-")
  atexit.register(shutil.rmtree, made, ignore_errors=True)
  return Path(made)


def build(
  sources: Sequence[str], command: Sequence[str] = COMMAND, end: str = ".c", headers: Mapping[str, str] = NO_HEADERS
) -> ctypes.CDLL:
  """A library of sources, each by itself; ``headers`` lie beside them. Fails with what the compiler says."""
  at = Path(tempfile.mkdtemp(dir=folder()))
  files = {f"{i}{end}": source for i, source in enumerate(sources)}
  for name, text in {**headers, **files}.items():
    (at / name).write_text(text)
  done = subprocess.run([*command, "-o", "all.so", *files, "-lm"], cwd=at, capture_output=True, text=True)
  assert not done.returncode, "\n".join([done.stderr, *sources])
  return ctypes.CDLL(str(at / "all.so"))


class CProgram(Program):
  """A function of a library."""

  def __init__(self, spec: ProgramSpec, function: Any):
    self.spec, self.function, self.grid = spec, function, grid_of(spec)

  def __call__(self, buffers: Sequence[Any], wait: bool = False, sizes: tuple[int, ...] = ()) -> float | None:
    """Run it. See :meth:`Program.__call__`."""
    numbers = [np.ctypeslib.as_ctypes_type(dtype.np)(n) for n, dtype in zip(sizes, self.spec.source.sizes)]
    self.function(*[ctypes.c_void_p(b.ctypes.data) for b in buffers], *numbers, (ctypes.c_int * 3)(*self.grid(sizes)))
    return 0.0 if wait else None


class CDevice(NumpyDevice):
  """See the module."""
  name, identity = NAME, "plain C"
  command = COMMAND

  def __init__(self) -> None: self.renderer = CRenderer()  # type: ignore[assignment]

  def compile(self, specs: Sequence[ProgramSpec]) -> list[Program]:
    """One library of all."""
    # for kernels may be called the same
    library = build([f"#define {s.name} kernel_{i}\n{s.source.text}" for i, s in enumerate(specs)], self.command)
    return [CProgram(s, library[f"kernel_{i}"]) for i, s in enumerate(specs)]


devices._open[NAME] = CDevice()


class SanitizedDevice(CDevice):
  """The same, with a compiler that optimises and adds code which says on stderr what C leaves open: ints that overflow, shifts by
  the width, divisions by zero."""
  name, identity = "NUMPY:13", "plain C, sanitized"
  command = [*(c for c in COMMAND if c not in ("-O1", "-Werror")), "-O2", "-fsanitize=undefined"]


@cache
def has_sanitizer() -> bool:
  """Whether the compiler has it."""
  if not CC: return False
  try: build(["int f(int x) { return x + 1; }\n"], SanitizedDevice.command)
  except (AssertionError, OSError): return False
  return True


devices._open[SanitizedDevice.name] = SanitizedDevice()
