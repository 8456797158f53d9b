"""Triton source to a cubin, for any chip, with no GPU, no CUDA toolkit and no PyTorch.

The cubin, with what a launch must know of it, is stored in ntgrad's disk cache; Triton's is not used. Kernels that are known
before they are needed wait in a queue (:func:`ahead`), from which worker processes build too (``backends/workers.py``).
"""
from __future__ import annotations

import importlib.util
import linecache
import os
import re
import struct
import tempfile
import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache as once
from importlib import metadata
from types import ModuleType
from typing import Any, Callable, Iterator, Sequence, TypeVar

from ntgrad.codegen.index import records
from ntgrad.codegen.ir import CompileError, Recent

from .. import cache, workers
from ..base import KernelSource, ProgramSpec
from ..process import temporary

LOCK = threading.RLock()      # Triton's settings, and its language while the interpreter stands in for it, are global
os.register_at_fork(after_in_child=LOCK._at_fork_reinit)   # type: ignore[attr-defined]
# small kernels waiting (a tenth of a second each) that are worth starting workers, which takes a second or two
MANY = 16.0
_TABLE, _LENGTH = "triton", struct.Struct("<Q")
Found = TypeVar("Found", "Binary", "Binary | None")
_loaded: Recent[str, ModuleType] = Recent(1024)


@dataclass(frozen=True)
class Binary:
  """A compiled kernel and what its launch must know. Two pointers follow its own parameters: global and profile scratch."""
  name: str                  # the symbol in the cubin
  target: str                # "sm_90"
  cubin: bytes
  ptx: str
  num_warps: int
  num_ctas: int
  shared: int                # bytes of shared memory a program
  global_scratch_size: int   # bytes a program
  global_scratch_align: int

  def pack(self) -> bytes:
    """As bytes: how many, and a record."""
    body = records.packed(BINARY, self, _TABLE)
    return _LENGTH.pack(len(body)) + body

  @staticmethod
  def unpack(data: bytes) -> list[Binary]:
    """What ``pack`` made, of one binary after another. Raises ValueError for something else."""
    found = []
    while data:
      if len(data) < _LENGTH.size: raise ValueError(f"{len(data)} bytes are no kernel")
      end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
      if end > len(data): raise ValueError(f"{end:,} bytes of a kernel expected, got {len(data):,}")
      found.append(records.unpacked(BINARY, data[_LENGTH.size:end], _TABLE))
      data = data[end:]
    return found


_COUNTS = "num_warps num_ctas shared global_scratch_size global_scratch_align".split()
BINARY = records.Object(Binary, name=records.STR, target=records.STR, cubin=records.BYTES, ptx=records.TEXT,
                        **dict.fromkeys(_COUNTS, records.COUNT))


@once
def available() -> tuple[bool, str]:
  """Whether triton is installed, and if not, what to do."""
  if importlib.util.find_spec("triton") is None: return False, "triton is not installed: pip install 'ntgrad[cuda]' (Linux only)"
  return True, ""


def _triton() -> Any:
  found, reason = available()
  if not found: raise CompileError(reason)
  import triton
  return triton


def load(source: str) -> ModuleType:
  """The module that rendered source makes; the same one for the same text. Raises CompileError where it is no Python."""
  _triton()
  if (found := _loaded.get(source)) is not None: return found
  name = f"ntgrad_triton_{cache.key(source)[:16]}"
  file = f"<{name}>"
  # triton reads a function's source through inspect, which finds in linecache what is in no file
  linecache.cache[file] = len(source), None, source.splitlines(True), file
  module = ModuleType(name)
  weakref.finalize(module, linecache.cache.pop, file, None).atexit = False
  module.__file__ = file
  try: exec(compile(source, file, "exec"), module.__dict__)
  except Exception as e:   # what runs is a file's text, or nearly so
    raise CompileError(f"the rendered source is no Python: {e}\n{source}") from None
  _loaded[source] = module
  return module


def capability(target: str) -> int:
  """``"sm_90"`` → 90. Raises CompileError for another form."""
  m = re.fullmatch(r"sm_(\d+)a?", target)
  if m is None: raise CompileError(f"CUDA target {target!r}: expected sm_ and a number, such as sm_80 or sm_90")
  return int(m.group(1))


@once
def version() -> str:
  """Triton's, if possible without the third of a second that importing it takes: kernels from the disk need no more."""
  try: return metadata.version("triton")
  except metadata.PackageNotFoundError: return str(_triton().__version__) if available()[0] else ""


@dataclass(frozen=True)
class Request:
  """A kernel to compile, and for what. Every pointer is a multiple of 16 bytes."""
  source: KernelSource
  name: str
  target: str = "sm_90"
  num_warps: int = 4
  num_stages: int = 3        # at most: fewer where their shared memory would not fit
  shared: int = 227 << 10    # bytes of it that a program can have

  @property
  def fuses(self) -> bool: return bool(dict(self.source.options).get("enable_fp_fusion"))

  @property
  def key(self) -> str:
    """Where the disk cache has it."""
    s = self.source
    return cache.key(cache.version(), version(), s.text, self.name, s.signature, s.parts, self.target, self.num_warps,
                     self.num_stages, self.fuses)

  def fitting(self, make: Callable[[Request], Found]) -> Found:
    """What ``make`` (``build`` or ``cached``) gives for as many stages as fit, or for one; None where that is None."""
    for stages in range(self.num_stages, 0, -1):
      if (found := make(replace(self, num_stages=stages))) is None or found.shared <= self.shared: break
    return found


def build(r: Request) -> Binary:
  """A kernel, from the disk cache or compiled with the request's own stages. Raises CompileError with what Triton said."""
  if (found := cached(r)) is None: cache.put(_TABLE, r.key, BINARY, found := _compile(_triton(), r))
  return found


def cached(r: Request) -> Binary | None: return cache.get(_TABLE, r.key, BINARY)


def shared_memory(capability: int) -> int:
  """Bytes of shared memory that a program can have, of chips that are not here (CUDA's table of compute capabilities)."""
  return {80: 163, 87: 163, 90: 227, 100: 227, 103: 227, 110: 227}.get(capability, 99) << 10


def request(spec: ProgramSpec, target: str, shared: int | None = None) -> Request:
  """The request for a kernel: warps and stages of its options, or else its source's. ``shared``: bytes that the device has."""
  told = {"num_warps": 4, "num_stages": 3, **dict(spec.source.options), **{name: n for name, n in spec.options if n}}
  return Request(spec.source, spec.name, target, told["num_warps"], told["num_stages"],
                 shared or shared_memory(capability(target)))


def work(r: Request) -> Binary:
  """A worker's job. Raises CompileError only for what Triton said of the kernel."""
  _, reason = available()
  if reason: raise ImportError(reason)   # this process may have another path
  return r.fitting(build)


def prepare(*_: object) -> bytes:
  """Load what compiles, in a worker."""
  if available()[0]: _triton()
  return b""


@dataclass(eq=False)
class Unit(workers.Job):
  """A kernel that will be needed. It is in the queue for as long as something refers to it."""
  request: Request
  binary: Binary | None = None

  def work(self) -> workers.Work: return work, (self.request,)


_queue = workers.Queue(MANY)
_units: weakref.WeakValueDictionary[Request, Unit] = weakref.WeakValueDictionary()


def ahead(requests: Sequence[Request]) -> list[Unit]:
  """Kernels that will be needed, in this order: read from the disk, or else queued until they are built or nobody holds them."""
  out = []
  for r in requests:
    if (unit := _units.get(r)) is None:
      unit = _units[r] = Unit(r, binary=r.fitting(cached), weight=r.source.weight)
      unit.done = unit.binary is not None
      if not unit.done: _queue.add(unit)
    out.append(unit)
  _queue.serve()
  return out


def finished(r: Request) -> Binary:
  """A kernel compiled, by a worker or here; one that does not fit with one stage is given as it is. Raises CompileError."""
  unit = _units.get(r) or Unit(r)
  with _queue.claim(unit) as mine:
    if mine and unit.refused: raise CompileError(unit.refused)
    if mine: unit.binary, unit.answer = unit.answer or r.fitting(build), None
  assert unit.binary is not None
  return unit.binary


@contextmanager
def _unhashed(cache: Any) -> Iterator[None]:
  """Triton's files are not read to tell this Triton from others, which takes half a second to one: its cache is one kernel's."""
  before, cache.triton_key = cache.triton_key, version
  try: yield
  finally: cache.triton_key = before


def _compile(triton: Any, r: Request) -> Binary:
  from triton.backends.compiler import GPUTarget
  from triton.compiler import ASTSource
  arch = capability(r.target)
  anywhere = [slot for slot, align in r.source.parts if align % 16]
  attrs = {(i,): [["tt.divisibility", 16]] for i, (_, t) in enumerate(r.source.signature)
           if t.startswith("*") and i not in anywhere}
  ast = ASTSource(fn=getattr(load(r.source.text), r.name), signature=dict(r.source.signature), attrs=attrs)
  options = {"num_warps": r.num_warps, "num_stages": r.num_stages, "enable_fp_fusion": r.fuses, "sanitize_overflow": False}
  with (LOCK, tempfile.TemporaryDirectory(prefix="triton-", dir=temporary()) as folder, triton.knobs.cache.scope(),
        _unhashed(triton.runtime.cache)):
    triton.knobs.cache.dir = folder
    try: compiled = triton.compile(ast, target=GPUTarget("cuda", arch, 32), options=options)
    except Exception as e:   # of many classes, some without a common base
      raise CompileError(f"kernel {r.name} for {r.target}: {type(e).__name__}: "
                         f"{(str(e).strip() or str(e.__cause__ or ''))[:2000]}\n{r.source.text}") from e
    m = compiled.metadata
    return Binary(str(m.name), f"sm_{arch}", compiled.asm["cubin"], compiled.asm["ptx"],
                  *[int(getattr(m, name)) for name in _COUNTS])
