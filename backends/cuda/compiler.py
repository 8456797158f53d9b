"""Triton source to a cubin, for any chip, with no GPU, no CUDA toolkit and no PyTorch.

What is kept on disk is the cubin with what a launch must know of it, in ntgrad's own cache: Triton's stays empty.
"""
from __future__ import annotations

import importlib.util
import json
import linecache
import re
import tempfile
import threading
from dataclasses import asdict, dataclass
from functools import cache as once
from types import ModuleType
from typing import Any, Mapping

from ntgrad.backends import cache
from ntgrad.codegen.errors import CompileError

LOCK = threading.RLock()      # Triton's settings, and its language while the interpreter stands in for it, are global
_TABLE = "triton"
_loaded: dict[str, ModuleType] = {}


@dataclass(frozen=True)
class Binary:
  """A compiled kernel and what its launch must know. Two pointers follow the kernel's own parameters: global scratch, and profile scratch."""
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
    """One line of JSON, then the PTX, then the cubin."""
    about = {k: v for k, v in asdict(self).items() if k not in ("cubin", "ptx")}
    ptx = self.ptx.encode()
    return json.dumps({**about, "ptx": len(ptx)}).encode() + b"\n" + ptx + self.cubin

  @staticmethod
  def unpack(data: bytes) -> Binary:
    """What ``pack`` made. Raises ValueError for something else."""
    head, _, rest = data.partition(b"\n")
    about = json.loads(head)
    n = about.pop("ptx")
    return Binary(**about, ptx=rest[:n].decode(), cubin=rest[n:])


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
  found = _loaded.get(source)
  if found is not None: return found
  name = f"ntgrad_triton_{cache.key(source)[:16]}"
  file = f"<{name}>"
  # triton reads a function's source through inspect, which finds in linecache what is in no file
  linecache.cache[file] = (len(source), None, source.splitlines(True), file)
  module = ModuleType(name)
  module.__file__ = file
  try:
    exec(compile(source, file, "exec"), module.__dict__)
  except SyntaxError as e:
    raise CompileError(f"the rendered source is no Python: {e}\n{source}") from None
  _loaded[source] = module
  return module


def capability(target: str) -> int:
  """``"sm_90"`` → 90. Raises CompileError for another form."""
  m = re.fullmatch(r"sm_(\d+)a?", target)
  if m is None: raise CompileError(f"CUDA target {target!r}: expected sm_ and a number, such as sm_80 or sm_90")
  return int(m.group(1))


def build(source: str, name: str, signature: Mapping[str, str], target: str = "sm_90", num_warps: int = 4, num_stages: int = 3,
          divisible: int = 16) -> Binary:
  """The kernel ``name`` of a rendered module, compiled for a chip; from the disk cache where that has it.

  ``signature`` is what ``renderer.signature`` gives; every pointer is a multiple of ``divisible`` bytes. Raises CompileError with what
  Triton said.
  """
  triton = _triton()
  arch = capability(target)
  fuse = sums(source)
  key = cache.key(cache.version(), triton.__version__, source, name, tuple(signature.items()), target, num_warps, num_stages, divisible, fuse)
  kept = cache.load(_TABLE, key)
  if kept is not None:
    try: return Binary.unpack(kept)
    except (ValueError, TypeError, KeyError): cache.remove(_TABLE, key)
  out = _compile(triton, source, name, signature, arch, num_warps, num_stages, divisible, fuse)
  cache.store(_TABLE, key, out.pack())
  return out


def sums(source: str) -> bool:
  """Whether a kernel adds things up. Only then are products and sums fused: elsewhere time goes to memory, and numbers keep numpy's bits."""
  return any(word in source for word in ("tl.dot(", "tl.sum(", "tl.reduce(", "  for ", "  while "))


def _compile(triton: Any, source: str, name: str, signature: Mapping[str, str], arch: int, warps: int, stages: int, divisible: int,
             fuse: bool) -> Binary:
  from triton.backends.compiler import GPUTarget
  from triton.compiler import ASTSource
  fn = getattr(load(source), name)
  attrs = {(i,): [["tt.divisibility", divisible]] for i, t in enumerate(signature.values()) if t.startswith("*")}
  options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": fuse, "sanitize_overflow": False}
  with LOCK, tempfile.TemporaryDirectory(prefix="ntgrad-triton-") as folder, triton.knobs.cache.scope():
    triton.knobs.cache.dir = folder
    try:
      compiled = triton.compile(ASTSource(fn=fn, signature=dict(signature), attrs=attrs), target=GPUTarget("cuda", arch, 32), options=options)
    except Exception as e:   # of many classes, some without a common base
      said = str(e).strip() or str(e.__cause__ or "")
      raise CompileError(f"kernel {name} for sm_{arch}: {type(e).__name__}: {said[:2000]}\n{source}") from e
    m = compiled.metadata
    return Binary(str(m.name), f"sm_{arch}", compiled.asm["cubin"], compiled.asm["ptx"], int(m.num_warps), int(m.num_ctas), int(m.shared),
                  int(m.global_scratch_size), int(m.global_scratch_align))
