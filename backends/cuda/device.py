"""The CUDA runtime: memory with reuse, copies, launches of what Triton compiled. No PyTorch, no CUDA toolkit. Everything goes to
one stream, in order: memory that is freed may be handed out again while a kernel still reads it, for what writes it next stands
behind that kernel. An allocation is its address, a plain int."""
from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Callable, Iterator, Sequence, TypeVar
from weakref import WeakSet

import numpy as np

from ntgrad.codegen.ir import CompileError, DeviceError, OutOfMemoryError, StateError, config, not_in_handler

from .. import rates
from ..base import Device, Graph, Grid, Node, Program, ProgramSpec, Sizes, Specs, remade
from ..memory_pool import Pooled
from ..process import forked
from . import compiler, driver as nvidia
from .compiler import Binary
from .driver import Events, Parameters, Staging, available, call, check
from .graph import CUDAGraph
from .renderer import CLOCK, TARGET, TritonRenderer, launch_grid

_T = TypeVar("_T")
_ALIGN = 512                  # sizes are multiples of it, as the allocator's are
_KEEP = 0.5                   # of the device's memory may lie unused in the pool
_PLAIN_SHARED = 48 << 10      # more shared memory than this must be asked for
LEGACY = 1                    # the handle of the legacy default stream
_NON_BLOCKING = 1             # a stream that does not wait for the legacy default stream
_LAST = 8                     # launches that an error tells of
_here = threading.local()     # the device whose context this thread is in


class CUDAProgram(Program):
  """A kernel on its device, compiled when it is first launched or asked to be ready."""

  def __init__(self, device: CUDADevice, spec: ProgramSpec):
    self._device = device
    self.binary: Binary | None = None
    self.unit: compiler.Unit | None = None         # its place in the queue, until it is there
    # what a launch needs, once it is known: the driver's function, what it takes after the stream, the parameters, how to note it
    self._bound: tuple[Callable[..., Any], tuple[int, int], Any, Callable[[str], None]] | None = None
    # sizes, and what the driver's function takes up to the stream for them; empty where there is nothing to launch
    self._placed: tuple[tuple[int, ...] | None, tuple[Any, ...]] = None, ()
    self._kernel: Any = None                       # cuda.core's, which keeps the code loaded
    self._take(spec)
    # addresses and bytes of global scratch memory, where the kernel needs some. The last is used; those before it were too small
    # for a larger grid, but graphs may have them
    self._scratch = [(0, 0)]
    self._lock = threading.Lock()                  # the parameters are the program's own

  def _take(self, spec: ProgramSpec) -> None:
    self.spec, self._grid = spec, launch_grid(spec)
    # parameters of the kernel, and the pointers among them: no buffers beyond the last that it uses. Those of a library have no
    # signature
    self._count = len(spec.source.signature) or spec.nparams + len(spec.sizes)
    self._pointers = self._count - len(spec.sizes)

  def __call__(self, buffers: Sequence[int], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Launch; with ``wait`` the seconds on the device's clock. Raises CompileError, or DeviceError when the device refuses."""
    if self._bound is None: self.ready()
    launch, what, values, note = self._bound  # type: ignore[misc]
    device, count = self._device, self._count
    placed, where = self._placed
    if sizes is not placed and sizes != placed: where = self._place(sizes)
    if not where: return 0.0 if wait else None
    given = self.given(buffers)
    if sizes: given = *given, *sizes
    if getattr(_here, "device", None) is not device: device.enter()
    note(self.spec.label)
    start = end = None
    try:
      if wait: start = device.clock.record()
      if self._lock.locked(): not_in_handler(self._lock)
      with self._lock:
        values[:count] = given
        result = launch(*where, *what)
      check(result)
      if not wait: return None
      end = device.clock.record()
      end.sync()
      seconds = float(end - start) * 1e-3
    except Exception as e: raise device.failed(e, f"kernel {self.spec.label}: a launch of {where[1:4]} programs failed") from None
    device.clock.give(start)
    device.clock.give(end)
    return seconds

  def ready(self) -> None:
    """Compile and load it now. Raises CompileError, also for a kernel that needs more shared memory than the chip has."""
    if self._bound is not None: return
    device = self._device
    device.enter()
    try: b = self.binary = device.build(self.spec)
    except CompileError as e:
      self._take(remade(self.spec, e))
      b = self.binary = device.build(self.spec)
    if self.spec.again is not None: self.spec = replace(self.spec, again=None)   # it keeps what the kernel is made of
    self.unit, spec = None, self.spec
    self._function = self._load(b)
    self._parameters = Parameters([0] * (self._count + 2))   # and those of ``_added``
    if not spec.sizes: self._place(())
    self._bound = device.driver.cuLaunchKernel, (self._parameters.address, 0), self._parameters.values, device.launched.append

  def given(self, buffers: Sequence[_T]) -> Sequence[_T]:
    """The buffers that are parameters. Raises DeviceError for more or fewer than the program has."""
    count, pointers = self.spec.nparams, self._pointers
    if len(buffers) != count: raise DeviceError(f"kernel {self.spec.label} takes {count} buffers, got {len(buffers)}")
    return buffers if count == pointers else buffers[:pointers]

  def _place(self, sizes: Sizes) -> tuple[Any, ...]:
    """What the driver's function takes up to the stream; scratch memory for the grid is there then. Raises DeviceError."""
    b, grid = self.binary, self._grid(sizes)
    assert b is not None
    self._parameters.values[self._count:] = self._added(grid)
    where = (self._function, *grid, 32 * b.num_warps, 1, 1, b.shared, self._device.stream.handle) if all(grid) else ()
    self._placed = sizes, where
    return where

  def _added(self, grid: Grid) -> tuple[int, int]:
    """The parameters that the compiler adds for so many programs: addresses of global and of profile scratch."""
    b = self.binary
    assert b is not None
    if (size := b.global_scratch_size * math.prod(grid) * b.num_ctas) > self._scratch[-1][1]:
      if self.spec.sizes: size = 1 << (size - 1).bit_length()   # it will not grow often
      self._scratch.append((self._device.alloc(size), size))
    return self._scratch[-1][0], 0

  def _load(self, b: Binary) -> Any:
    """The driver's function. Raises DeviceError."""
    device, name = self._device, self.spec.label
    try:
      self._kernel = device.core.ObjectCode.from_cubin(b.cubin).get_kernel(b.name)
      function = call(device.driver.cuKernelGetFunction(self._kernel.handle), f"kernel {name}: asking for its function failed")
      if b.shared > _PLAIN_SHARED:
        call(device.driver.cuFuncSetAttribute(
          function, device.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, b.shared),
          f"asking for {b.shared:,} bytes of shared memory")
    except Exception as e: raise device.failed(e, f"kernel {name}: the device does not take it") from None
    return function

  def node(self, sizes: Sizes) -> tuple[Any, Grid, Grid, int, list[int]]:
    """What a graph's node has: function, grid, block, shared bytes, what follows the buffers. Raises CompileError."""
    self.ready()
    b, grid = self.binary, self._grid(sizes)
    assert b is not None
    return self._function, grid, (32 * b.num_warps, 1, 1), b.shared, [*sizes, *self._added(grid)]

  def __del__(self) -> None:
    try:   # at interpreter exit the pool may be gone
      for address, size in self._scratch[1:]: self._device.free(address, size)
    except Exception: pass


class CUDADevice(Pooled):
  """One NVIDIA GPU: ``CUDA`` the first, ``CUDA:1`` the second, ..."""
  unit = _ALIGN
  prepare = staticmethod(compiler.prepare)

  def __init__(self, name: str = "CUDA"):
    super().__init__()
    self.name = name
    self.number = nvidia.find(name)
    self.dlpack = 2, self.number
    self.core, self.driver = nvidia.modules()
    self.launched = deque[str](maxlen=_LAST)       # kernels, the last ones
    try:
      self.device = self.core.Device(self.number)
      self.enter()
      # what is put into the legacy default stream waits for it, and it for that, without being told
      self.stream = self.device.create_stream(options=self.core.StreamOptions(nonblocking=False))
      p = self.device.properties
      cores, self.shared = int(p.multiprocessor_count), int(p.max_shared_memory_per_block_optin)
      driver = call(self.driver.cuDriverGetVersion(), "asking for the driver's version")
      _, total = call(self.driver.cuMemGetInfo(), "asking for its memory")
    except Exception as e: raise DeviceError(f"{name}: opening the device failed: {_said(e)}") from None
    self.memory = int(total)
    self.most_pooled = int(self.memory * _KEEP)
    self.capability = nvidia.capability_of(self.driver, self.number)
    self.identity = f"{available(name)[1]} | sm_{self.capability} | driver {driver} | Triton {compiler.version()}"
    self.renderer = TritonRenderer(replace(
      TARGET, cores=cores, local_memory=self.shared, cache=int(p.l2_cache_size),
      # kHz, two transfers a clock, bits
      bandwidth=p.memory_clock_rate * 1e3 * 2 * p.global_memory_bus_width / 8 or TARGET.bandwidth,
      rates=rates.of_nvidia(self.capability, cores, float(getattr(p, "clock_rate", 0)) * 1e3 or CLOCK)), self.capability)
    self.events, self.clock = (Events(self.core, self.stream, timing) for timing in (False, True))
    self._copying = threading.RLock()                     # the pinned ring is used by one thread at a time
    self._owners = dict[int, Any]()                     # address → cuda.core's Buffer, of all that is in use or in the pool
    self._let_go = deque[tuple[Any, Any]]()        # events, and owners of adopted memory that is unused after them
    self._packed = dict[tuple[Any, ...], Binary]()
    self.recorded = WeakSet[CUDAGraph]()           # graphs that have other libraries' work

  def enter(self) -> None:
    """Make this thread's driver calls go to this device. Raises DeviceError when the device is lost."""
    if self.lost: raise DeviceError(self.lost)
    self.device.set_current()
    _here.device = self

  def forked(self) -> None:
    """The driver refuses everything in a fork. See :meth:`Device.forked`."""
    super().forked()
    self.lost, self.most_pooled = forked(f"{self.name}: it"), sys.maxsize
    _here.device = None

  def here(self) -> None:
    """``enter``, unless this thread is here already; for what is called often."""
    if self.lost or getattr(_here, "device", None) is not self: self.enter()

  def failed(self, e: Exception, what: str) -> DeviceError:
    """What to raise for an error; the device is lost after those that CUDA does not recover from."""
    said = _said(e)
    if self.lost: return DeviceError(self.lost)
    if not any(word in said for word in _LASTING): return DeviceError(f"{what}: {said}")
    self.lost = (f"{self.name} is lost to this process: {what}: {said}. Launched last: "
                 f"{', '.join(dict.fromkeys(self.launched)) or 'no kernel'}; DEBUG=2 waits for each kernel and names the one "
                 "that failed. Other devices can be used on")
    return DeviceError(self.lost)

  @contextmanager
  def explained(self, what: str) -> Iterator[None]:
    """``with device.explained("copying failed"): ..``: on the device; errors are DeviceErrors as :meth:`failed` has them."""
    self.enter()
    try: yield
    except Exception as e: raise self.failed(e, f"{self.name}: {what}") from None

  # ---- memory
  def _new(self, size: int, nbytes: int) -> int:
    self.enter()
    said = f"the device has {self.memory:,}"
    if size <= self.memory:
      try: buffer = self.device.allocate(size, stream=self.stream)
      except Exception as e:
        error = self.failed(e, "allocating failed")
        if self.lost: raise error from None
        said = _said(e)
      else:
        raw = int(buffer.handle)
        self._owners[raw] = buffer
        return raw
    raise OutOfMemoryError(
      f"{self.name}: out of memory allocating {nbytes:,} bytes ({self.allocated:,} in use of {self.memory:,}; {said})")

  def part(self, raw: int, offset: int, nbytes: int) -> int: return raw + offset

  def at(self, raw: int, offset: int) -> int: return raw + offset

  def trim(self) -> None:
    """Give the pool's unused memory back to the system."""
    if self.lost: return
    self.enter()
    for raws in self._emptied().values():
      for raw in raws: self._owners.pop(raw).close(self.stream)
    self.synchronize()
    pool_of = getattr(self.device.memory_resource, "handle", None)
    if pool_of is not None: self.driver.cuMemPoolTrimTo(pool_of, 0)

  @cached_property
  def staging(self) -> Staging: return Staging(self.driver, self.stream, self.events)   # the pinned memory for copies

  def copyin(self, raw: int, data: np.ndarray) -> None:
    """Host to device; on return the data has been taken, it is on the device before what is launched next."""
    with self.explained(f"copying {data.nbytes:,} bytes to the device failed"), self._copying: self.staging.send(raw, data)

  def copyout(self, raw: int, nbytes: int) -> np.ndarray:
    """Device to host, after everything launched before."""
    out = np.empty(nbytes, np.uint8)
    with self.explained(f"copying {nbytes:,} bytes to the host failed"), self._copying: self.staging.fetch(raw, out)
    if self._let_go: self._drop()
    return out

  def copy_from(self, raw: int, source: Device, source_raw: int, nbytes: int) -> bool:
    """From this GPU or another one, not by way of the host. See :meth:`Device.copy_from`."""
    if not isinstance(source, CUDADevice): return False
    if source is not self: source.precede(self.stream_handle())
    driver, stream = self.driver, self.stream.handle
    with self.explained(f"copying {nbytes:,} bytes from {source.name} failed"):
      if source is self: call(driver.cuMemcpyDtoDAsync(raw, source_raw, nbytes, stream), "cuMemcpyDtoDAsync")
      else: call(driver.cuMemcpyPeerAsync(raw, self.context, source_raw, source.context, nbytes, stream), "cuMemcpyPeerAsync")
    if source is not self: self.precede(source.stream_handle())   # what was read may be written or freed next
    return True

  @cached_property
  def context(self) -> Any:
    """The context that all libraries of this process use on this device."""
    return call(self.driver.cuDevicePrimaryCtxRetain(self.number), f"{self.name}: asking for its context failed")

  # ---- memory shared with other libraries
  def adopt(self, address: int, nbytes: int) -> int: return address

  def address(self, raw: int, nbytes: int) -> int: return raw

  def stream_handle(self) -> int: return int(self.stream.handle)

  def follow(self, stream: int) -> None:
    """See :meth:`Device.follow`; 1 is the legacy default stream, 2 the thread's."""
    if self._let_go: self._drop()
    self._after(stream, self.stream_handle())

  def precede(self, stream: int | None) -> None:
    """See :meth:`Device.precede`; 1 is the legacy default stream, 2 the thread's."""
    if stream is None: self.synchronize()
    else: self._after(None, stream)

  def _after(self, first: int | None, then: int) -> None:
    """What is put into the stream ``then`` from now on waits for what is in ``first`` (None: this device's own stream) now."""
    if first == then or LEGACY in (first, then): return
    self.here()
    try:
      event = self.events.record() if first is None else self.events.spare()
      if first is not None: check(self.driver.cuEventRecord(event.handle, first))
      check(self.driver.cuStreamWaitEvent(then, event.handle, 0))
    except Exception as e: raise self.failed(e, f"{self.name}: putting two streams in order failed") from None
    self.events.give(event)   # recording it again does not change a wait that was asked for

  def let_go(self, owner: Any) -> None:
    """See :meth:`Device.let_go`. Nothing waits: an owner is dropped at a later call, when the event recorded now is done."""
    self.enter()
    self._let_go.append((self.events.record(), owner))
    self._drop()

  def _drop(self) -> None:
    """Drop the owners whose events are done."""
    while self._let_go:
      first = self._let_go.popleft()   # taken out before anything else runs: dropping an owner may come here again
      if not first[0].is_done: return self._let_go.appendleft(first)
      self.events.give(first[0])

  def settle(self) -> None:
    """Wait for the device, whatever the stream. See :meth:`Device.settle`."""
    with self.explained("a kernel failed"): call(self.driver.cuCtxSynchronize(), "cuCtxSynchronize")

  # ---- programs
  def compile(self, specs: Specs) -> list[Program]:
    """Programs that are compiled when they are needed, or before that by a worker."""
    out = [CUDAProgram(self, s) for s in specs]
    new = [p for p in out if _packed_key(p.spec) not in self._packed]
    for p, unit in zip(new, compiler.ahead([self._request(p.spec) for p in new])): p.unit = unit
    return list(out)

  def _request(self, spec: ProgramSpec) -> compiler.Request: return compiler.request(spec, f"sm_{self.capability}", self.shared)

  def graph(self, nodes: Sequence[Node]) -> Graph | None:
    """A CUDA graph; None where the driver makes none, which ``DEBUG=1`` tells of. See :meth:`Device.graph`."""
    self.enter()
    for n in nodes: n.program.ready()
    try: return CUDAGraph(self, nodes)
    except Exception as e:
      error = self.failed(e, f"{self.name}: {len(nodes)} kernels are launched one by one")
      if self.lost: raise error from None
      if config.debug >= 1: print(error, file=sys.stderr)
      return None

  @cached_property
  def _recording(self) -> Any:
    """A stream to record from, before whose work nothing else goes."""
    _, first = call(self.driver.cuCtxGetStreamPriorityRange(), "asking for the priorities of streams")
    return call(self.driver.cuStreamCreateWithPriority(_NON_BLOCKING, first), "making a stream")

  def record(self, put: Callable[[int], None]) -> Any:
    """What is ``put`` into a stream, as a graph of CUDA's that the caller destroys. Raises DeviceError, and what ``put`` does."""
    driver, stream = self.driver, self._recording
    modes = driver.CUstreamCaptureMode
    call(driver.cuStreamBeginCapture(stream, modes.CU_STREAM_CAPTURE_MODE_RELAXED), "recording a stream")   # other threads go on
    try: put(int(stream))
    except BaseException:
      driver.cuStreamEndCapture(stream)
      raise
    return call(driver.cuStreamEndCapture(stream), "recording a stream")

  def build(self, spec: ProgramSpec) -> Binary:
    """A kernel's cubin for this chip, with its options' warps and stages, or else its source's; fewer stages where their shared
    memory would not fit. Raises CompileError."""
    if (known := self._packed.get(_packed_key(spec))) is not None: return known
    binary = compiler.finished(self._request(spec))
    if binary.shared <= self.shared: return binary
    raise CompileError(f"kernel {spec.label} needs {binary.shared:,} bytes of shared memory a program, {self.name} has "
                       f"{self.shared:,}; make its blocks smaller")

  def pack(self, specs: Specs) -> bytes:
    """Compiled kernels as bytes. See :meth:`Device.pack`."""
    programs = self.compile(specs)   # workers build what comes later
    packed = b"".join(self.build(s).pack() for s in specs)
    del programs
    return packed

  def unpack(self, data: bytes, specs: Specs) -> None:
    """Take in kernels that ``pack`` made, here or for a chip like this one. See :meth:`Device.unpack`."""
    try: binaries = Binary.unpack(data)
    except ValueError: raise StateError(f"{self.name}: these are no kernels for CUDA of this version; build them again") from None
    if len(binaries) != len(specs): raise StateError(f"{self.name}: {len(binaries)} kernels for {len(specs)} programs")
    for b, s in zip(binaries, specs):
      if b.target != f"sm_{self.capability}":
        raise StateError(
          f"{self.name}: kernel {s.label} was built for {b.target}, this device is sm_{self.capability}; build it again")
      self._packed[_packed_key(s)] = b

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
    with self.explained("a kernel failed"): self.stream.sync()
    self._drop()


# after these CUDA refuses everything in this process
_LASTING = """ILLEGAL_ADDRESS MISALIGNED_ADDRESS LAUNCH_FAILED LAUNCH_TIMEOUT ILLEGAL_INSTRUCTION INVALID_ADDRESS_SPACE INVALID_PC
HARDWARE_STACK_ERROR ASSERT ECC_UNCORRECTABLE CONTEXT_IS_DESTROYED DEVICE_UNAVAILABLE CONTAINED UNKNOWN""".split()


def _packed_key(spec: ProgramSpec) -> tuple[Any, ...]: return spec.name, spec.source, spec.options


def _said(e: Exception) -> str: return (str(e).strip() or type(e).__name__).splitlines()[0]
