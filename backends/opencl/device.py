"""The OpenCL runtime: memory with reuse, copies, launches. PoCL makes any CPU a device; its queue is in order, so memory that is
freed may be handed out again while a kernel still reads it: whatever writes it next stands behind that kernel in the queue."""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import math
import os
import shutil
import sys
import threading
import time
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence
from weakref import WeakSet

import numpy as np

from ntgrad.codegen.ir import CompileError, DeviceError, OutOfMemoryError, Recent, Target, config, dtypes

from .. import rates, workers
from ..base import Graph, Node, Program, ProgramSpec, Specs, grid_of
from ..memory_pool import Pooled
from ..process import Driver, forked, temporary, uninterrupted
from . import binaries, tiers
from .compiler import WIDEST, Compiler, Unit, forget, identity_of, is_pocl, keep, known_bits, widest
from .cpuname import give_name
from .program import SMALL_GRID, OpenCLProgram, Part
from .renderer import OpenCLRenderer, pretended
from .selftest import Functions
from .threads import CPUGraph, NotYet, Threads, allocated, threads_of, works_like_this
from .tiers import BothWays

_KEEP = 0.25                  # of the device's memory may lie unused in the pool
_MOST_LOCAL = 512 << 10       # bytes of a CPU's local memory that are used
_LEAST_SCORES = 8 << 20       # bytes: a loop over blocks of scores takes a second to compile; fewer fit caches, and are stored
_LOOKED = 1e-3                # seconds that a wait looks again and again: being woken takes up to 0.08 ms
_LEVEL_2 = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
_driver = Driver("OpenCL")
_leave_core: Callable[[], object] = getattr(os, "sched_yield", lambda: time.sleep(0))


def _forget_half(package: str) -> None:
  """Have an import that failed, or was interrupted, be made anew. Python lets go of the package, but not of its parts, which the
  next import would then not set in it. Machine code is loaded once."""
  if package in sys.modules: return
  for name, module in list(sys.modules.items()):
    if name.startswith(f"{package}.") and (getattr(module, "__file__", None) or "").endswith(".py"): del sys.modules[name]


@cache
def import_opencl() -> Any:
  """The pyopencl module. Raises DeviceError where it is not installed or cannot load."""
  folder = str(binaries.folder())
  try:
    with uninterrupted():   # its own objects complain, on stderr, where they are half made when they go
      import pyopencl
      # where it opens a data base of code for calls, in a folder that may not be there, or may not be written
      home = os.environ.get("XDG_CACHE_HOME")
      os.environ["XDG_CACHE_HOME"] = folder
      try: import_module("pyopencl.invoker")
      finally:
        if home is None: del os.environ["XDG_CACHE_HOME"]
        else: os.environ["XDG_CACHE_HOME"] = home
  except BaseException as e:   # a missing ICD loader is an OSError, a broken build an ImportError; handlers may raise, too
    _forget_half("pyopencl")
    if not isinstance(e, Exception): raise
    raise DeviceError(f"no OpenCL: importing pyopencl failed ({e}); pip install 'pyopencl[pocl]'") from None
  return pyopencl


def _cl_devices() -> list[Any]:
  cl = import_opencl()
  _driver.start()
  binaries.folder()   # of this process
  before = _threads()
  try:
    found = [d for p in cl.get_platforms() for d in p.get_devices()]
    give_cores(_threads() - before, found)
    for d in found:
      if is_cpu(d) and is_pocl(d): give_name(d)
    return found
  except Exception as e:
    raise DeviceError(f"no OpenCL device: {e}; pip install 'pyopencl[pocl]' brings one for the CPU") from None


def _threads() -> set[int]: return {int(t) for t in os.listdir("/proc/self/task")} if sys.platform == "linux" else set()


def give_cores(threads: set[int], devices: Sequence[Any]) -> None:
  """Give each of the threads that a CPU's driver has just started a core of its own, of those that this process may use. Else the
  system wakes two of them on one core while the thread that launches still runs on the other: half the speed for kernels of less
  than some milliseconds. ``POCL_AFFINITY=0`` leaves the threads alone."""
  cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
  workers = [int(d.max_compute_units) for d in devices if is_cpu(d) and is_pocl(d)]
  if "POCL_AFFINITY" in os.environ or workers != [len(threads)] or len(cores) < len(threads): return
  for thread, core in zip(sorted(threads), cores):
    with contextlib.suppress(OSError): os.sched_setaffinity(thread, {core})


def find(name: str) -> Any:
  """The pyopencl device that ``name`` means: CPU the first CPU, PoCL before others; CL the first device that is no CPU, or else
  the first; CL:n the n-th of all. Raises DeviceError where there is none."""
  devices = _cl_devices()
  cpus = sorted((d for d in devices if is_cpu(d)), key=lambda d: not is_pocl(d))
  kind, _, number = name.partition(":")
  if kind == "CPU": pick = cpus
  elif kind == "CL": pick = devices if number else [d for d in devices if d not in cpus] or devices
  else: raise DeviceError(f"no OpenCL device is called {name!r}; names: CPU, CL, CL:0, CL:1, ...")
  at = number or "0"
  if not at.isdigit() or int(at) >= len(pick):
    raise DeviceError(f"no OpenCL device {name!r}; found: "
                      f"{', '.join(f'CL:{i} {d.name.strip()}' for i, d in enumerate(devices)) or 'none'}")
  return pick[int(at)]


def available(name: str = "CPU") -> tuple[bool, str]:
  """Whether the device exists, and its name or the reason why not. Does not raise."""
  try: device = find(name)
  except DeviceError as e: return False, str(e)
  if is_cpu(device) and is_pocl(device): _start_compiler(device)
  return True, device.name.strip()


@cache
def _start_compiler(device: Any) -> None:
  """PoCL starts its compiler when it builds the first program, which takes 0.3 s. Where the disk cache has nothing of this driver
  that is done at once, in a thread: who has asked for the device will need it."""
  cl, identity = import_opencl(), identity_of(device)
  if known_bits(identity) is not None: return
  def start() -> None:
    with contextlib.suppress(cl.Error): widest(cl, device, identity)
  started = threading.Thread(target=start, name="ntgrad-start-compiler", daemon=True)
  started.start()
  atexit.register(started.join)   # the driver must not go while it is in there


def is_cpu(d: Any) -> bool: return bool(d.type & import_opencl().device_type.CPU)


def target_of(d: Any, vector_bits: int) -> Target:
  """What the optimiser needs to know of a pyopencl device; of a CPU, with vectors of ``vector_bits``, as settings say."""
  memory = int(d.local_mem_size)
  gpu = Target("opencl", registers=32, cores=int(d.max_compute_units), locals=True, local_memory=memory, dtypes=tuple(
    x for x in dtypes.all if x is not dtypes.float64 or "cl_khr_fp64" in d.extensions))
  hertz = float(d.max_clock_frequency) * 1e6
  if not is_cpu(d): return replace(gpu, rates=rates.of_units(gpu.cores, hertz))
  # a CPU's local memory is what PoCL makes of a cache's size: no more than what every machine has
  cpu = pretended(replace(gpu, lanes=max(vector_bits // 32, 1), locals=False, long_index=True,
                          local_memory=min(memory, _MOST_LOCAL), core_cache=core_cache() or gpu.core_cache,
                          least_scores=_LEAST_SCORES))
  return replace(cpu, rates=rates.of_cpu(cpu.cores, cpu.lanes, hertz))


@cache
def core_cache() -> int:
  """Bytes of the cache that each core has for itself, as Linux tells; 0 where it does not."""
  try: text = _LEVEL_2.read_text().strip()
  except OSError: return 0
  return int(text[:-1]) << 10 if text[-1:] == "K" and text[:-1].isdigit() else 0


class OpenCLDevice(Pooled):
  """One OpenCL device. New memory costs a page fault every 4 KB, so it is pooled."""

  def __init__(self, name: str = "CPU"):
    super().__init__()
    self.name = name
    self.cl = import_opencl()
    device = self.device = find(name)
    self.context = self.cl.Context([device])
    self.queue = self.cl.CommandQueue(self.context, properties=self.cl.command_queue_properties.PROFILING_ENABLE)
    self._renderers: Recent[tuple[int, int], OpenCLRenderer] = Recent(16)
    self.compiler = Compiler(self.cl, self.context, device, name, self.queue.finish, build_missing)
    self.identity = " | ".join(self.compiler.identity)
    self.fresh = known_bits(self.compiler.identity) is None
    self.functions = Functions(self.identity, self.run, *[partial(_run, name)] * bool(is_cpu(device)))
    self.programs = WeakSet[OpenCLProgram]()
    self.last: Any = None   # the event of what was enqueued last
    # what was enqueued, and how much of it has ended for certain; counted after it was enqueued. Other threads may wait while one
    # launches: what comes in meanwhile is not taken for ended
    self.enqueued = self.ended = 0
    self.threads: Threads | None = None   # that run kernels without the queue, once they are there
    self.own_code: Unit | None = None      # what they run, where this process has not found it on disk
    self.prepared = 0.0   # when a kernel was last made ready for its first launch
    self.replaced = 0     # how often programs have taken over from those that were built quickly
    self.memory = int(device.global_mem_size)
    self.most_pooled = int(self.memory*_KEEP)
    # PoCL's memory is the host's: a buffer stays at one address, and may be the host's own
    self.on_host = is_cpu(device) and is_pocl(device)
    # whether threads may, or might, run kernels without the queue
    self.direct = self.on_host and bool(config.direct) and works_like_this(device.platform.version)
    known = tiers.known(self.compiler.identity)
    self.compiler.tiers, self.untested = self.direct and bool(known), self.direct and known is None

  def forked(self) -> None:
    """Nothing goes to the driver from here, whose threads the fork has not. See :meth:`Device.forked`."""
    super().forked()
    self.threads, self.ended = None, self.enqueued
    self.lost, self.most_pooled = forked(f"{self.name}: it"), sys.maxsize
    self.direct = False   # to start threads is to build what they run, and another thread of the parent may have held PoCL's lock
    self._left = self.queue, self.context   # not released: that would call the driver
    del self.queue, self.context
    self.__class__ = _Lost
    atexit.unregister(self.compiler.leave)
    self.compiler.unsaved.clear()

  @property
  def renderer(self) -> OpenCLRenderer:  # type: ignore[override]
    """For the device's target, as ``config.vector_bits`` and ``config.cores`` have it now."""
    key = config.vector_bits, config.cores
    if (found := self._renderers[key]) is None:
      found = self._renderers[key] = OpenCLRenderer(
        target_of(self.device, config.vector_bits or self.compiler.vector_bits()), self.functions)
    return found

  # ---- ntgrad's own threads
  def started(self, count: int = 0) -> Threads | None:
    """The threads that run kernels without the queue, one for each core or so many; None where they cannot."""
    if self.threads is None and self.direct:
      self.direct = False   # meanwhile the queue runs what is launched
      try:
        self.threads = threads_of(self, count)
        self.direct = self.threads is not None
      except NotYet: self.direct = True
      except (CompileError, DeviceError): pass
    return self.threads

  def take_over(self) -> None:
    """Have programs that were built quickly run what workers have optimised since."""
    for unit in self.compiler.take_optimised():
      for p in list(self.programs):
        if p.quick and self.compiler.key(p.spec) in unit.names: p.replace_code(unit)
      self.compiler.units.update(dict.fromkeys(unit.names, unit))
      self.replaced += 1
      forget(unit.names)

  def test_tiers(self) -> None:
    """Have a worker find out, when there is nothing else to do, whether the driver gives the same bits for both ways of building:
    for processes to come."""
    self.untested = False
    if not config.cache or workers.size() < 2: return
    self.tier_test = TierTest(name=self.name)   # as long as the device lives
    self.compiler.later.add(self.tier_test)
    self.compiler.later.serve()

  def wait_optimised(self) -> None:
    """Wait until workers have built what they were asked to optimise, and use it."""
    while self.compiler.optimising:
      self.compiler.later.serve()
      with workers.changed: workers.changed.wait_for(lambda: self.compiler.arrived or not workers.alive())
      if not self.compiler.arrived: break   # no worker is left
      self.take_over()

  def optimise(self) -> None:
    """See :meth:`Device.optimise`."""
    self.compiler.optimise([p.spec for p in list(self.programs)])
    self.wait_optimised()

  def graph(self, nodes: Sequence[Node]) -> Graph | None:
    # those that print need the queue; BothWays is two programs
    if any(not isinstance(n.program, OpenCLProgram) or n.program.prints for n in nodes): return None
    threads = self.started()
    if threads is not None and self.untested: self.test_tiers()
    return CPUGraph(self, threads, nodes) if threads is not None else None

  @property
  def busy(self) -> bool: return self.ended != self.enqueued   # whether the queue may have something to do

  def drain(self) -> None:
    """Wait until the queue is empty."""
    if self.busy: self.synchronize()

  def here(self) -> None:
    """Raises DeviceError in a process that was forked from the one that opened the device."""
    if self.lost: raise DeviceError(self.lost)

  # ---- memory
  def _new(self, size: int, nbytes: int) -> Any:
    limit = int(self.device.max_mem_alloc_size)
    if nbytes <= limit:
      try: return self.new_raw(min(size, limit))
      except (self.cl.Error, MemoryError): pass
    raise OutOfMemoryError(f"{self.name}: out of memory allocating {nbytes:,} bytes ({self.allocated:,} in use, "
                           f"{limit:,} at most in one piece)")

  def new_raw(self, size: int) -> Any:
    """A buffer. Where the device's memory is the host's, ntgrad allocates it: ``host`` as an array of bytes, at ``address``."""
    return self._over(*allocated(size)) if self.on_host else self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, size)

  def _over(self, host: np.ndarray, address: int) -> Any:
    """A buffer over memory of the host."""
    raw = self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE | self.cl.mem_flags.USE_HOST_PTR, hostbuf=host)
    raw.host, raw.address = host, address
    return raw

  def part(self, raw: Any, offset: int, nbytes: int) -> Any:
    """A sub-buffer."""
    if self.on_host: return self._over(raw.host[offset:offset + nbytes], raw.address + offset)
    return raw.get_sub_region(offset, nbytes)

  def at(self, raw: Any, offset: int) -> Any: return Part(raw, offset)

  def trim(self) -> None:
    """Give the pool's unused memory back to the system."""
    pool = self._emptied()   # before the queue ends: what is freed meanwhile may be in use after that
    self.synchronize()       # PoCL does not keep what a kernel in the queue uses
    for p in list(self.programs): p.forget()
    del pool

  def copyin(self, raw: Any, data: np.ndarray) -> None:
    """Host to device, complete on return."""
    if not data.nbytes: return
    self.here()
    if self.on_host:
      self.drain()
      raw.host[:data.nbytes] = data
    else: self.cl.enqueue_copy(self.queue, raw, data, is_blocking=True)

  def copyout(self, raw: Any, nbytes: int) -> np.ndarray:
    """Device to host, after everything launched before."""
    if not nbytes: return np.empty(0, np.uint8)
    self.here()
    raw, begin = raw if isinstance(raw, Part) else (raw, 0)
    if self.on_host:
      self.drain()
      return np.array(raw.host[begin:begin + nbytes])
    out = np.empty(nbytes, np.uint8)
    self.last = copied = self.cl.enqueue_copy(self.queue, out, raw, src_offset=begin, is_blocking=False)
    self.settle()
    copied.wait()
    return out

  # ---- programs
  def compile(self, specs: Specs) -> list[Program]:
    """Programs that are built when they are needed. Raises CompileError for a group that is too large."""
    most = int(self.device.max_work_group_size)
    for s in specs:
      if math.prod(s.local) > most:
        raise CompileError(f"kernel {s.label}: a group of {s.local} work-items; {self.name} takes {most}")
    programs = self.programs_of(specs)
    if config.tiers != "check" or not self.compiler.tiers: return [*programs]
    return [BothWays(self, OpenCLProgram(self, p.spec, self.compiler.unit([p.spec], quick=True)), p) for p in programs]

  def programs_of(self, specs: Specs) -> list[OpenCLProgram]:
    return [OpenCLProgram(self, s, unit) for s, unit in zip(specs, self.compiler.compile(specs))]

  @contextlib.contextmanager
  def expecting(self, kernels: int) -> Iterator[None]:
    """See :meth:`Device.expecting`."""
    self.compiler.coming += kernels
    try: yield
    finally: self.compiler.coming -= kernels

  def builds_anywhere(self) -> Callable[..., bytes] | None:
    """See :meth:`Device.builds_anywhere`."""
    return build_missing if self.on_host and self.compiler.two_tiers() else None

  def take_built(self, specs: Specs, packed: bytes) -> Any:
    """See :meth:`Device.take_built`."""
    return self.compiler.take_built(specs, packed)

  def run(self, source: str, name: str, inputs: Sequence[np.ndarray], count: int, items: int = 1,
          quick: bool = False) -> np.ndarray:
    """What one group of work-items of a kernel writes: ``count`` elements of the inputs' dtype, 0 where it writes none, to test
    the driver. Raises DeviceError."""
    cl, out = self.cl, np.zeros(count, inputs[0].dtype)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    try:
      with self.compiler.lock: kernel = cl.Kernel(self.compiler.load_source(source, quick), name)
      buffers = [cl.Buffer(self.context, flags, hostbuf=x) for x in (*inputs, out)]
      kernel(self.queue, (items,), (items,), *buffers)
      cl.enqueue_copy(self.queue, out, buffers[-1])
    except cl.Error as e: raise DeviceError(f"{self.name}: kernel {name}: {e}") from None
    return out

  def pack(self, specs: Specs) -> bytes:
    """See :meth:`Device.pack`; each kernel runs once, on memory of no meaning, in a process of its own."""
    return workers.once((build, (self.name, list(specs))))

  def unpack(self, data: bytes, specs: Specs) -> None: self.compiler.take_packed(data, specs)

  def disassemble(self, spec: ProgramSpec) -> str: return self.compiler.disassemble(spec)

  def synchronize(self) -> None:
    """Wait for everything launched."""
    self.here()
    before = self.enqueued
    if self.ended == before: return
    self.settle()
    self.queue.finish()
    self.ended = max(self.ended, before)

  def settle(self) -> None:
    """Look whether what was enqueued last has ended until it has, a millisecond at most: that takes less than sleeping and being
    woken. The core is left to whoever wants it between two looks."""
    event, self.last = self.last, None
    if event is None: return
    self.queue.flush()
    end = time.perf_counter() + _LOOKED
    while event.command_execution_status > 0 and time.perf_counter() < end: _leave_core()

  # ---- memory that other libraries have too
  def adopt(self, address: int, nbytes: int) -> Any:
    """A cl.Buffer over host memory. See :meth:`Device.adopt`."""
    if not self.on_host: return None
    return self._over(np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)), address)

  def address(self, raw: Any, nbytes: int) -> int:
    """The host address of a buffer. See :meth:`Device.address`."""
    if not self.on_host: return 0
    self.drain()
    return int(raw.address)


class _Lost(OpenCLDevice):
  """A device in a process forked from the one that opened it: asking for what goes to the driver says why it is not there."""

  def __getattr__(self, name: str) -> Any:
    if name in ("queue", "context"): raise DeviceError(self.lost)
    raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


@dataclass(eq=False, kw_only=True)
class TierTest(workers.Job):
  """See ``tiers.test``."""
  name: str
  count: int = 0

  def work(self) -> workers.Work: return _test_tiers, (self.name,)


# ---- in a worker process
def _test_tiers(name: str) -> bool: return tiers.test(_worker_device(name))


@cache
def _worker_device(name: str) -> OpenCLDevice:
  """The device of a process that only compiles."""
  # PoCL's threads go where there is room: each on a core of its own, as in other processes, one of them and one of the parent's
  # would share a core while another idles
  os.environ.setdefault("POCL_AFFINITY", "0")
  if (gold := shutil.which("ld.gold")) is not None:   # takes half the time of ld, which is a fifth of a quick build
    linker = temporary() / "linker" / "ld"
    if not linker.exists():
      linker.parent.mkdir()
      linker.symlink_to(gold)
    os.environ["COMPILER_PATH"] = str(linker.parent)   # where clang looks first
  return OpenCLDevice(name)


def _run(name: str, source: str, kernel: str, inputs: Sequence[np.ndarray], count: int) -> np.ndarray:
  return _worker_device(name).run(source, kernel, inputs, count)


def build_missing(name: str, specs: Specs, quick: bool) -> bytes:
  """``build``, where not all kernels lie on disk; of none the process is ready to compile then."""
  compiler = _worker_device(name).compiler
  if not specs: compiler.load_source(WIDEST)   # the smallest program
  return b"" if all(compiler.kept(s, quick) for s in specs) else build(name, specs, quick)


def build(name: str, specs: Specs, quick: bool = False) -> bytes:
  """The packed program of ``specs`` for a device, machine code included, which is put on disk too: each kernel runs once on
  memory of no meaning. ``quick``: without optimisation. A crash there costs the worker only. Raises CompileError."""
  device = _worker_device(name)
  unit = device.compiler.unit(specs, quick)
  device.compiler.build(unit)
  if unit.program is None: raise CompileError(f"kernels {', '.join(s.name for s in specs)} do not compile as one program")
  unit.done = unit.launched = True   # it is not saved here
  memory = device.cl.Buffer(device.context, device.cl.mem_flags.READ_WRITE, min(int(device.device.max_mem_alloc_size), 1 << 31))
  device.direct = False
  for spec in unit.specs.values():
    # those that it was made for fit it; else small ones, where it does not matter
    sizes = tuple([max(1, s.lower or 1) if s.hint is None else s.hint for s in spec.sizes])
    # one group makes the same code as many, unless the grid is wide
    grid = tuple((SMALL_GRID + 1)//n + 1 if g*n > SMALL_GRID else 1 for g, n in zip(grid_of(spec)(sizes), (*spec.local, 1, 1, 1)))
    OpenCLProgram(device, replace(spec, grid=grid), unit)([memory]*spec.nparams, sizes=sizes)
  packed = device.compiler.pack(unit)
  keep(packed, unit.names, quick)
  return packed
