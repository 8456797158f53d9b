"""A kernel of an OpenCL device: launched through its queue, or, where its machine code can be called, by ntgrad's own threads."""
from __future__ import annotations

import ctypes
import sys
import time
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Sequence
from weakref import WeakSet

import numpy as np

from ntgrad.codegen.choose.bound import bound
from ntgrad.codegen.index import evaluator
from ntgrad.codegen.ir import CompileError, DeviceError

from ..base import Argument, Program, ProgramSpec, Sizes, grid_of, remade
from .compiler import Unit
from .threads import SETTLED, WORTH_OPTIMISING, WORTH_WAKING, Launch, Record, Threads, count_locals

if TYPE_CHECKING:
  from .device import OpenCLDevice

SMALL_GRID = 65535   # PoCL makes other machine code for grids wider than this


class Part(NamedTuple):
  """What lies in a cl.Buffer from byte ``offset`` on."""
  raw: Any
  offset: int


class OpenCLProgram(Program):
  """A kernel on its device. It is built when it is first launched, or before, by a worker."""

  def __init__(self, device: OpenCLDevice, spec: ProgramSpec, unit: Unit):
    self.unit, self._device = unit, device
    self._kernel: Any = None
    self._linkable = True       # whether its machine code may come
    self._describe(spec)
    self._sizes: Sizes | None = None   # of the last launch
    self._global: Sizes = ()           # for them; empty where there is nothing to launch
    self._args = list[Any]()  # keeps alive what the last launch uses: OpenCL's arguments do not
    self._count = 0             # buffers among the kernel's parameters: none beyond the last that it uses
    self._locals: tuple[int, int] | None = None   # arrays of local memory, at most, and the bytes of all
    self.code = dict[bool, int]()   # its machine code, once it is there: see Files.machine_code
    self._work: Any = None      # the numbers of its work at some sizes
    self._records: Any = None   # its launch by our own threads, from then on
    self._launch: Launch | None = None
    self._ran = False           # whether the queue has run it: its machine code comes then
    self._direct = False        # whether the grid is one that they launch
    self._launches = WeakSet[Launch]()   # of this program, without those of its clones
    self._spent = 0.0           # seconds of quick code, run by our own threads, one by one
    self._enqueue = device.cl._cl.enqueue_nd_range_kernel
    device.programs.add(self)

  def _describe(self, spec: ProgramSpec) -> None:
    self.spec, self._local, self._grid = spec, (*spec.local, 1, 1, 1)[:3], grid_of(spec)
    self.prints = "printf(" in spec.source.text
    if self.prints: self._linkable = False   # our own threads have no buffer for what is printed

  def __call__(self, buffers: Sequence[Any], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Launch; with ``wait`` the seconds on the device's clock. Raises CompileError, or DeviceError when the device refuses."""
    device = self._device
    if self._launch is None:
      if self._kernel is None: self.ready()
      if not self.unit.done:
        device.compiler.begin(self.unit)
        if device.direct and self._linkable: self._take()
      elif self._ran and self._linkable and device.direct: self._link()
    if sizes is not self._sizes and sizes != self._sizes: self._resize(sizes)
    if not self._global: return 0.0 if wait else None
    if buffers != self._args: self._set(buffers)
    if self._direct: return self._run(wait)
    queue = device.queue
    if self.prints: sys.stdout.flush()   # PoCL writes past Python, when the kernel has run
    try: event = self._enqueue(queue, self._object(), self._global, self._local)
    except Exception as e:
      raise DeviceError(
        f"kernel {self.spec.label}: launch with grid {self._grid(sizes)} and local {self.spec.local} failed: {e}") from None
    finally: device.enqueued += 1   # after it was enqueued, and whatever comes in between: an interrupt too
    device.last, self._ran = event, True
    if self.prints: device.drain()
    if not self.unit.launched: device.compiler.launched(self.unit, self.spec)
    if not wait: return None
    device.settle()
    event.wait()
    return float(event.profile.end - event.profile.start)*1e-9

  def _run(self, wait: bool) -> float | None:
    """Let our own threads run it, after what is in the queue."""
    device = self._device
    if device.busy: device.drain()
    device.here()
    if device.compiler.arrived: device.take_over()
    assert device.threads is not None and self._launch is not None
    start = time.perf_counter() if wait or self.quick else 0.0
    device.threads.run(self._records, 1, self._launch.seconds > WORTH_WAKING)
    if self.quick:
      self._spent += time.perf_counter() - start
      if self._spent > WORTH_OPTIMISING and start - device.prepared > SETTLED:
        self._spent = 0.0
        device.compiler.optimise([self.spec])
    return time.perf_counter() - start if wait else None

  @property
  def quick(self) -> bool: return self.unit.quick and not self.unit.final  # type: ignore[override]

  def optimised(self) -> None:
    """See :meth:`Program.optimised`."""
    self.ready()
    self._device.compiler.optimise([self.spec])
    self._device.wait_optimised()

  def replace_code(self, unit: Unit) -> None:
    """Run the machine code of another unit from now on."""
    if not (codes := self._code_of(unit)): return
    self.unit, self.code, self._kernel = unit, codes, None
    for launch in list(self._launches): launch.replace_code(codes, unit)

  def _object(self) -> Any:
    """Its kernel object, for the queue."""
    if self._kernel is None:
      compiler, unit = self._device.compiler, self.unit
      self._kernel = self._device.cl.Kernel(compiler.program_of(unit), unit.names[compiler.key(self.spec)])
    return self._kernel

  def ready(self) -> None:
    """Build it now, or wait for the worker that does."""
    if self._kernel is not None or self._launch is not None: return
    try: self._build()
    except CompileError as e:
      self._describe(remade(self.spec, e))
      self.unit, = self._device.compiler.compile([self.spec])
      self._build()
    if self.spec.again is not None: self.spec = replace(self.spec, again=None)   # it keeps what the kernel is made of
    if self._device.direct and self._linkable: self._take()
    if self._launch is None: self._object()

  def _take(self) -> None:
    self.take_code()
    if self.code: self._link()

  def _build(self) -> None:
    """Have its unit built, and see how many arguments it takes. Raises CompileError."""
    compiler, spec = self._device.compiler, self.spec
    self.unit = unit = compiler.ready(self.unit, spec)
    name = unit.names[compiler.key(spec)]
    compiler.look(unit, name)
    kernel = None if name in unit.shapes else self._device.cl.Kernel(compiler.program_of(unit), name)
    count = unit.shapes[name][0] if kernel is None else int(kernel.num_args)
    self._count = count - len(spec.sizes) - len(spec.source.parts)
    if not 0 <= self._count <= spec.nparams:
      raise CompileError(f"kernel {spec.label}: {count} parameters, for {spec.nparams} buffers, {len(spec.sizes)} sizes")
    self._device.prepared = time.perf_counter()
    self._kernel = kernel   # last: who finds it does not ask for the rest

  def find_code(self) -> None:
    """Build it, and take its machine code where that was in the disk cache: then PoCL is not asked at all."""
    self._build()
    self.take_code()

  def take_code(self, again: bool = False) -> None:
    """Take its machine code, if it is there: when it has run, or was in the disk cache."""
    self.code = self._code_of(self.unit, again)

  def _code_of(self, unit: Unit, again: bool = False) -> dict[bool, int]:
    name = unit.names.get(self._device.compiler.key(self.spec), "")
    if unit.files is None or not name: return {}
    if again or not unit.code.get(name): unit.code[name] = unit.files.machine_code(name, unit)
    return unit.code[name]

  def _link(self) -> None:
    """Let our own threads launch it from now on, where they can: it has run, or its machine code was in the disk cache."""
    device = self._device
    if (threads := device.started()) is None: return
    if not self.code:
      device.drain()
      self.take_code()
      self._linkable = bool(self.code)
      if not self.code: return
    if not self.unit.launched: device.compiler.launched(self.unit, self.spec)   # as far as its machine code goes
    self._records = (Record * 1)()
    self._launch = self.launch_of(self._records[0], threads)
    self._sizes, self._args = None, []

  @property
  def width(self) -> int:
    """How many numbers a launch takes: an address for each buffer, the sizes, the places of parts."""
    return self._count + len(self.spec.sizes) + len(self.spec.source.parts)

  def launch_of(self, record: Record, threads: Threads, values: Any = None) -> Launch:
    """A launch of it, with ``values`` for its arguments, or arguments of its own."""
    if self._locals is None: self._locals = self._count_locals()
    new = Launch(threads, record, self._local, (ctypes.c_uint64 * self.width)() if values is None else values, self._locals)
    self._launches.add(new)
    return new

  def _count_locals(self) -> tuple[int, int]:
    if not (count := count_locals(self.spec.source.text)): return 0, 0
    name = self.unit.names[self._device.compiler.key(self.spec)]
    nbytes = self.unit.shapes[name][1] if name in self.unit.shapes else self._device.compiler.local_bytes(self._object())
    return count, -(-nbytes // 4096) * 4096

  def put(self, launch: Launch, i: int, raw: Any) -> None:
    """Give a launch its i-th buffer."""
    whole, offset = (raw.raw, raw.offset) if type(raw) is Part else (raw, 0)
    if i < self._count: launch.values[i] = whole.address
    for k, (slot, _) in enumerate(self.spec.source.parts, self._count + len(self.spec.sizes)):
      if slot == i: launch.values[k] = offset

  def numbers_of(self, args: Sequence[Argument], begins: int) -> Iterator[tuple[int, int, int]]:
    """What is a launch's own among its numbers: the place of each, and a place in a table and what is added to the number there.
    The table has the addresses of memory, from ``begins`` on where in it arguments begin, and 0 as the last."""
    for i, a in enumerate(args[:self._count]): yield i, a.memory, a.place
    for k, (slot, _) in enumerate(self.spec.source.parts, self._count + len(self.spec.sizes)):
      a = args[slot]
      yield k, begins + a.memory if a.moves else -1, a.offset

  def cover(self, launch: Launch, sizes: Sizes) -> bool:
    """Give a launch its sizes, and with them its grid. False where there is no machine code for that. Raises DeviceError."""
    grid = self._grid(sizes)
    for i, n in self._numbers(sizes): launch.values[i] = int(n)
    small = all(g*n < SMALL_GRID for g, n in zip(grid, self._local))
    if not (False in self.code or small and True in self.code): self.take_code(again=True)
    if (small := small and True in self.code) not in self.code: return False
    launch.resize(self.code, small, self.unit, grid, self._seconds(sizes))
    return True

  def _numbers(self, sizes: Sizes) -> list[tuple[int, Any]]:
    """The place of each size among the parameters, and the number in its dtype. Raises DeviceError."""
    try: return [(i, dtype.np.type(n)) for i, (n, dtype) in enumerate(zip(sizes, self.spec.source.sizes), self._count)]
    except OverflowError as e: raise DeviceError(f"kernel {self.spec.label}: a size is out of range: {e}") from None

  def _seconds(self, sizes: Sizes) -> float:
    """What a launch takes on one thread, at least."""
    work, target = self.spec.work, self._device.renderer.target
    if self._work is None: self._work = evaluator(work.numbers, self.spec.sizes) if sizes else lambda _: work.numbers
    return bound(work.with_numbers(self._work(sizes)), target).seconds * max(target.cores, 1)

  def _set(self, buffers: Sequence[Any]) -> None:
    if len(buffers) != self.spec.nparams:
      raise DeviceError(f"kernel {self.spec.label} takes {self.spec.nparams} buffers, got {len(buffers)}")
    self._args = []
    if not self._direct or self._launch is None: self._set_kernel(buffers)
    else:
      for i, b in enumerate(buffers): self.put(self._launch, i, b)
    self._args = list(buffers)

  def _set_kernel(self, buffers: Sequence[Any]) -> None:
    given, parts = buffers[:self._count], self.spec.source.parts
    if parts: given = [b.raw if type(b) is Part else b for b in given]
    self._object()._set_arg_multi(tuple(chain(*enumerate(given))))  # a tenth of what set_args takes
    offsets = [(i, np.uint64(buffers[slot].offset if type(buffers[slot]) is Part else 0))
               for i, (slot, _) in enumerate(parts, self._count + len(self.spec.sizes))]
    # set_arg_multi tries buffers first, by exceptions: 15 µs each
    if offsets: self._object()._set_arg_buf_multi(tuple(chain(*offsets)))

  def _resize(self, sizes: Sizes) -> None:
    """Launch for other sizes from now on. Raises DeviceError."""
    grid, self._sizes = self._grid(sizes), None
    direct = self._launch is not None and self.cover(self._launch, sizes)
    if sizes and not direct: self._object()._set_arg_buf_multi(tuple(chain(*self._numbers(sizes))))
    self._global = tuple(g*n for g, n in zip(grid, self._local)) if all(grid) else ()
    if direct != self._direct: self._args, self._direct = [], direct
    self._sizes = sizes

  def clone(self) -> OpenCLProgram:
    new = copy(self)   # with its machine code, where that is there
    new._kernel = new._launch = new._records = new._sizes = None
    new._args, new._direct, new._launches = [], False, WeakSet()
    self._device.programs.add(new)
    return new

  def forget(self) -> None: self._args = []
