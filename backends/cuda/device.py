"""The CUDA runtime: memory with reuse, copies, launches of what Triton compiled. No PyTorch, no CUDA toolkit.

Everything goes to one stream, in order: memory that is freed may be handed out again while a kernel still reads it, for whatever writes it
next stands behind that kernel. An allocation is its address, a plain int.
"""
from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from typing import Any, Sequence

import numpy as np

from ntgrad.backends.base import Device, Program, ProgramSpec, Target
from ntgrad.backends.cuda import compiler, driver as nvidia
from ntgrad.backends.cuda.compiler import Binary
from ntgrad.backends.cuda.driver import Events, Staging, available, call
from ntgrad.backends.cuda.renderer import TritonRenderer, launch_grid, signature
from ntgrad.codegen.errors import CompileError, DeviceError, StateError

_ALIGN = 512                  # sizes are multiples of it, as the allocator's are
_KEEP = 0.5                   # of the device's memory may lie unused in the pool
_PLAIN_SHARED = 48 << 10      # more shared memory than this must be asked for
_LAST = 8                     # launches that an error tells of
_here = threading.local()     # the device whose context this thread is in


def settings(source: str) -> tuple[int, int]:
  """Warps and pipeline stages for a kernel, from the sizes of its blocks: enough registers a thread, and wide loads."""
  if "tl.dot(" in source:
    accumulators = [math.prod(int(n) for n in re.findall(r"\d+", m)) for m in re.findall(r"tl\.full\(\(([^)]*)\)", source)]
    return (8 if max(accumulators, default=0) > 128 * 128 else 4), 3
  elements = math.prod(int(n) for n in re.findall(r"tl\.arange\(0, (\d+)\)", source))
  warps = 4
  while warps < 16 and elements > warps * 32 * 16: warps *= 2
  return warps, 3


class CUDAProgram(Program):
  """A kernel on its device, compiled when it is first launched or asked to be ready."""

  def __init__(self, device: CUDADevice, spec: ProgramSpec):
    self.spec, self._device = spec, device
    self.binary: Binary | None = None
    # what a launch needs, once it is known: function, stream, grid and block, kernel, what the compiler adds to the parameters (addresses of
    # global and of profile scratch), how to note it, its name, how many buffers
    self._bound: tuple[Any, Any, Any, Any, tuple[int, int], Any, str, int] | None = None
    self._scratch: tuple[int, int] | None = None   # address and bytes

  def __call__(self, buffers: Sequence[Any], wait: bool = False) -> float | None:
    """Launch; with ``wait`` the seconds from start to end on the device's clock.

    Raises CompileError for a kernel that cannot be built, DeviceError when the device refuses.
    """
    if self._bound is None: self.ready()
    launch, stream, config, kernel, more, note, name, count = self._bound  # type: ignore[misc]
    if len(buffers) != count: raise DeviceError(f"kernel {name} takes {count} buffers, got {len(buffers)}")
    if getattr(_here, "device", None) is not self._device: self._device.enter()
    note(name)
    if wait: return self._timed(buffers)
    try: launch(stream, config, kernel, *buffers, *more)
    except Exception as e: raise self._device.failed(e, f"kernel {name}: launch of {config.grid} programs failed") from None
    return None

  def _timed(self, buffers: Sequence[Any]) -> float:
    device = self._device
    launch, stream, config, kernel, more, *_ = self._bound  # type: ignore[misc]
    try:
      start = device.clock.record()
      launch(stream, config, kernel, *buffers, *more)
      end = device.clock.record()
      end.sync()
      seconds = float(end - start) * 1e-3
    except Exception as e: raise device.failed(e, f"kernel {self.spec.name} failed") from None
    device.clock.give(start)
    device.clock.give(end)
    return seconds

  def ready(self) -> None:
    """Compile and load it now. Raises CompileError, also for a kernel that needs more shared memory than the chip has."""
    if self._bound is not None: return
    device, spec = self._device, self.spec
    device.enter()
    b = self.binary = device.build(spec)
    grid = launch_grid(spec.grid)
    try:
      module = device.core.ObjectCode.from_cubin(b.cubin)
      kernel = module.get_kernel(b.name)
      if b.shared > _PLAIN_SHARED:
        most = device.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call(device.driver.cuKernelSetAttribute(most, b.shared, kernel.handle, device.number), f"asking for {b.shared:,} bytes of shared memory")
    except Exception as e: raise device.failed(e, f"kernel {spec.name}: the device does not take it") from None
    more = (0, 0)
    if b.global_scratch_size:
      size = b.global_scratch_size * math.prod(grid) * b.num_ctas
      self._scratch = (device.alloc(size), size)
      more = (self._scratch[0], 0)
    config = device.core.LaunchConfig(grid=grid, block=(32 * b.num_warps, 1, 1), shmem_size=b.shared)
    self._bound = (device.core.launch, device.stream, config, kernel, more, device.launched.append, spec.name, spec.nparams)

  def __del__(self) -> None:
    if getattr(self, "_scratch", None): self._device.free(*self._scratch)  # type: ignore[misc]


class CUDADevice(Device):
  """One NVIDIA GPU. ``allocated`` and ``peak`` are bytes asked for and not yet given back, now and at most."""

  def __init__(self, name: str = "CUDA"):
    self.name = name
    self.number = nvidia.find(name)
    self.core, self.driver = nvidia.modules()
    self.lost = ""                                        # what broke the device for this process
    self.launched: deque[str] = deque(maxlen=_LAST)       # kernels, the last ones
    try:
      self.device = self.core.Device(self.number)
      self.enter()
      self.stream = self.device.create_stream()
      p = self.device.properties
      self.cores, self.shared = int(p.multiprocessor_count), int(p.max_shared_memory_per_block_optin)
      _, total = call(self.driver.cuMemGetInfo(), "asking for its memory")
    except Exception as e: raise DeviceError(f"{name}: opening the device failed: {_said(e)}") from None
    self.memory = int(total)
    self.capability = nvidia.capability_of(self.driver, self.number)
    self.renderer = TritonRenderer(Target("triton", lanes=1, registers=255, cores=self.cores, local_memory=self.shared, max_params=100, blocks=True),
                                   capability=self.capability)
    self.events, self.clock = (Events(self.core, self.device, self.stream, timing) for timing in (False, True))
    self._staging: Staging | None = None
    self.allocated = self.peak = self.pooled = 0
    self._owners: dict[int, Any] = {}                     # address → cuda.core's Buffer, of all that is in use or in the pool
    self._pool: dict[int, list[int]] = {}
    self._packed: dict[tuple[str, str], Binary] = {}

  @staticmethod
  def available(name: str = "CUDA") -> tuple[bool, str]:
    """See :func:`ntgrad.backends.cuda.driver.available`."""
    return available(name)

  def enter(self) -> None:
    """Make this thread's driver calls go to this device. Raises DeviceError when the device is lost."""
    if self.lost: raise DeviceError(self.lost)
    self.device.set_current()
    _here.device = self

  def failed(self, e: Exception, what: str) -> DeviceError:
    """What to raise for an error; the device is lost after those that CUDA does not recover from."""
    said = _said(e)
    if self.lost: return DeviceError(self.lost)
    if not any(word in said for word in _LASTING): return DeviceError(f"{what}: {said}")
    after = ", ".join(dict.fromkeys(self.launched)) or "no kernel"
    self.lost = (f"{self.name} is lost to this process: {what}: {said}. Launched last: {after}; DEBUG=2 waits for each kernel and names the one "
                 "that failed. Other devices can be used on")
    return DeviceError(self.lost)

  # ---- memory
  def alloc(self, nbytes: int) -> int:
    """The address of at least ``nbytes`` bytes, from the pool where it has them."""
    size = bucket(nbytes)
    free = self._pool.get(size)
    if free:
      raw = free.pop()
      self.pooled -= size
    else: raw = self._new(size, nbytes)
    self.allocated += nbytes
    if self.allocated > self.peak: self.peak = self.allocated
    return raw

  def _new(self, size: int, nbytes: int) -> int:
    self.enter()
    said = f"the device has {self.memory:,}"
    for attempt in (0, 1) if size <= self.memory else ():
      try: buffer = self.device.allocate(size, stream=self.stream)
      except Exception as e:
        error = self.failed(e, "allocating failed")
        if self.lost: raise error from None
        said = _said(e)
        if attempt == 0: self.trim()   # the pool may hold what is missing
      else:
        raw = int(buffer.handle)
        self._owners[raw] = buffer
        return raw
    raise DeviceError(f"{self.name}: out of memory allocating {nbytes:,} bytes ({self.allocated:,} in use of {self.memory:,}; {said})")

  def free(self, raw: int, nbytes: int) -> None:
    """Back to the pool; to the system where the pool is full."""
    self.allocated -= nbytes
    size = bucket(nbytes)
    self._pool.setdefault(size, []).append(raw)
    self.pooled += size
    if self.pooled > self.memory * _KEEP: self.trim()

  def part(self, raw: int, offset: int, nbytes: int) -> int:
    """An address in it."""
    return raw + offset

  def trim(self) -> None:
    """Give the pool's unused memory back to the system."""
    if self.lost: return
    self.enter()
    pool, self._pool, self.pooled = self._pool, {}, 0
    for raws in pool.values():
      for raw in raws: self._owners.pop(raw).close(self.stream)
    self.synchronize()
    pool_of = getattr(self.device.memory_resource, "handle", None)
    if pool_of is not None: self.driver.cuMemPoolTrimTo(pool_of, 0)

  def reset_peak(self) -> None:
    """Start measuring ``peak`` anew."""
    self.peak = self.allocated

  @property
  def staging(self) -> Staging:
    """The pinned memory for copies, made when first needed."""
    if self._staging is None: self._staging = Staging(self.driver, self.stream, self.events)
    return self._staging

  def copyin(self, raw: int, data: np.ndarray) -> None:
    """Host to device; on return the data has been taken, it is on the device before what is launched next."""
    self.enter()
    try: self.staging.send(raw, data)
    except Exception as e: raise self.failed(e, f"{self.name}: copying {data.nbytes:,} bytes to the device failed") from None

  def copyout(self, raw: int, nbytes: int) -> np.ndarray:
    """Device to host, after everything launched before."""
    self.enter()
    out = np.empty(nbytes, np.uint8)
    try: self.staging.fetch(raw, out)
    except Exception as e: raise self.failed(e, f"{self.name}: copying {nbytes:,} bytes to the host failed") from None
    return out

  # ---- programs
  def compile(self, specs: Sequence[ProgramSpec]) -> list[Program]:
    """Programs that are compiled when they are needed."""
    return [CUDAProgram(self, s) for s in specs]

  def build(self, spec: ProgramSpec) -> Binary:
    """A kernel's cubin for this chip, with as many warps and pipeline stages as its options say, or else :func:`settings`.

    Stages are fewer where their shared memory would not fit. Raises CompileError.
    """
    known = self._packed.get((spec.name, spec.source))
    if known is not None: return known
    told, guess = dict(spec.options), settings(spec.source)
    warps, stages = told.get("num_warps") or guess[0], told.get("num_stages") or guess[1]
    types, target = signature(spec.source), f"sm_{self.capability}"
    while True:
      binary = compiler.build(spec.source, spec.name, types, target, warps, stages)
      if binary.shared <= self.shared: return binary
      if stages == 1:
        raise CompileError(f"kernel {spec.name} needs {binary.shared:,} bytes of shared memory a program, {self.name} has {self.shared:,}; "
                           "make its blocks smaller")
      stages -= 1

  def pack(self, specs: Sequence[ProgramSpec]) -> bytes:
    """Compiled kernels as bytes. See :meth:`Device.pack`."""
    packed = [self.build(s).pack() for s in specs]
    if len(packed) == 1: return packed[0]
    return json.dumps({"binaries": [len(p) for p in packed]}).encode() + b"\n" + b"".join(packed)

  def unpack(self, data: bytes, specs: Sequence[ProgramSpec]) -> None:
    """Know kernels that ``pack`` made, here or for a chip like this one. See :meth:`Device.unpack`."""
    try:
      parts = [data]
      if data.startswith(b'{"binaries"'):
        head, _, rest = data.partition(b"\n")
        parts = []
        for n in json.loads(head)["binaries"]: parts, rest = [*parts, rest[:n]], rest[n:]
      binaries = [Binary.unpack(p) for p in parts]
    except (ValueError, TypeError, KeyError): raise StateError(f"{self.name}: these are no kernels for CUDA") from None
    if len(binaries) != len(specs): raise StateError(f"{self.name}: {len(binaries)} kernels for {len(specs)} programs")
    for b, s in zip(binaries, specs):
      if b.target != f"sm_{self.capability}":
        raise StateError(f"{self.name}: kernel {s.name} was built for {b.target}, this device is sm_{self.capability}; build it again")
      self._packed[(s.name, s.source)] = b

  def disassemble(self, spec: ProgramSpec) -> str:
    """A kernel's machine code where CUDA's cuobjdump is installed, else its PTX."""
    b, tool = self.build(spec), shutil.which("cuobjdump")
    if tool is None: return b.ptx
    with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
      f.write(b.cubin)
      f.flush()
      done = subprocess.run([tool, "-sass", f.name], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 and done.stdout.strip() else b.ptx

  def synchronize(self) -> None:
    """Wait for everything launched. Raises DeviceError for what went wrong in it."""
    self.enter()
    try: self.stream.sync()
    except Exception as e: raise self.failed(e, f"{self.name}: a kernel failed") from None


# after these CUDA refuses everything in this process
_LASTING = ("ILLEGAL_ADDRESS", "MISALIGNED_ADDRESS", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "ILLEGAL_INSTRUCTION", "INVALID_ADDRESS_SPACE", "INVALID_PC",
            "HARDWARE_STACK_ERROR", "ASSERT", "ECC_UNCORRECTABLE", "CONTEXT_IS_DESTROYED", "DEVICE_UNAVAILABLE", "CONTAINED", "UNKNOWN")


def _said(e: Exception) -> str: return (str(e).strip() or type(e).__name__).splitlines()[0]


def bucket(nbytes: int) -> int:
  """The size that is allocated for ``nbytes``: whole units, eight steps to a doubling, so that near sizes share."""
  units = max((nbytes + _ALIGN - 1) // _ALIGN, 1)
  if units <= 8: return units * _ALIGN
  step = 1 << (units.bit_length() - 4)
  return (units + step - 1) // step * step * _ALIGN
