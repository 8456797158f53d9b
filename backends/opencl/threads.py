"""Kernels of PoCL's CPU run by threads of this process, without a queue, whose launches cost 30 to 60 µs: once a kernel has run
there, PoCL has written its machine code to a shared library, which we call. The thread that launches takes part in the work,
helpers look for more for a millisecond, then they sleep; not in Python, whose lock they would have to wait for. Many launches,
such as those of a replay, are one call.

What runs in the threads is OpenCL C too: RUN goes through launches, or helps. It calls a kernel as PoCL's own threads do, for
each group of work-items: ``_pocl_kernel_NAME_workgroup(args, context, x, y, z)``. ``args`` has the address of each argument, then
of each address of local memory, of which every thread has its own. This is so in PoCL 3.0, on Linux and x86-64; others have the
queue."""
from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import platform
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Mapping, Sequence, cast

import numpy as np

from ntgrad.codegen.ir import not_in_handler

from .. import workers
from ..base import Argument, Graph, Grid, KernelSource, Node, ProgramSpec, Raw, Sizes
from ..memory_pool import host_room
from ..process import Parameters

if TYPE_CHECKING:
  from .device import OpenCLDevice
  from .program import OpenCLProgram

PIECES = 16          # for each thread a grid is cut into so many pieces: those that end early take more
PATIENCE = 1 << 14   # pauses (of about 50 ns) that a helper looks for work before it sleeps
SHORT = 2e-6         # seconds on one thread at least, of a launch that is not shared out: finding each other takes as long
WORTH_WAKING = 15e-6 # the same of launches for which helpers that sleep are woken
# the same where they were measured: helpers have nothing in their caches, and start late
MEASURED_SHORT, MEASURED_WAKING = 20e-6, 100e-6
# seconds that a kernel which was built quickly has taken, from which on it is built again; the same of a graph's, if its sizes
# change too often to know what each takes
WORTH_OPTIMISING, ALL_WORTH_OPTIMISING = 0.02, 0.25
SETTLED = 0.5        # seconds since a kernel was made ready, after which that begins: a first step needs all cores for itself
MEASURED = 2, 4      # runs of a graph in which its launches are measured
_THREADS, _LEAVE, _CORES, _IDS = 18, 19, 23, 24  # words of pool_t
_LINE = 64                            # bytes of a cache line
_PAGE = 4096                          # bytes of a page
TESTED = 3, 2, 2                    # groups of the test

_SOURCE = r"""
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
typedef struct { ulong code, args, stride, context, nx, ny, nz, pieces, size, groups, ticks; } launch_t;
// ticket: which launch it is (22 bits), how many pieces it has (21), how many are taken (21). Who has taken a piece knows that
// the launch stays what it is until that piece is finished
typedef struct {
  volatile ulong ticket; ulong pad0[7];
  volatile ulong finished; ulong pad1[7];
  volatile ulong launch; ulong number, threads; volatile ulong leave, busy, sleeping, bell; ulong size; volatile ulong ids[1];
} pool_t;

// code(args, context, x, y, z) as C compilers of x86-64 do it, below what this function may keep under the stack's end
static void call(ulong code, ulong args, ulong context, ulong x, ulong y, ulong z) {
  __asm__ volatile(
    "mov %5, %%r8\n\tmov %%rsp, %%rbx\n\tsub $256, %%rsp\n\tand $-64, %%rsp\n\tcall *%%rax\n\tmov %%rbx, %%rsp"
    : "+a"(code), "+D"(args), "+S"(context), "+d"(x), "+c"(y) : "r"(z)
    : "rbx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
      "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#ifdef __AVX512F__
      , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",
      "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#endif
  );
}

static long system(long what, ulong a, ulong b, ulong c) {   // a call of Linux, whose fourth argument is 0
  long r;
  __asm__ volatile("xor %%r10d, %%r10d\n\tsyscall" : "=a"(r) : "a"(what), "D"(a), "S"(b), "d"(c) : "rcx", "r10", "r11", "memory");
  return r;
}
static void yield_core(void) { system(24, 0, 0, 0); }   // sched_yield

// floats as OpenCL has them, with denormals, rounded to nearest; a library may have set this thread otherwise. Gives what it was
static uint set_floats(uint state) {
  uint before;
  __asm__ volatile("stmxcsr %0" : "=m"(before));
  __asm__ volatile("ldmxcsr %0" : : "m"(state));
  return before;
}

static void groups(__global const launch_t* l, ulong thread, ulong from, ulong to) {
  ulong nx = l->nx, ny = l->ny, args = l->args + thread * l->stride, x = from % nx, y = from / nx % ny, z = from / nx / ny;
  for (ulong g = from; g < to; g++) {
    call(l->code, args, l->context, x, y, z);
    if (++x == nx) { x = 0; if (++y == ny) { y = 0; z++; } }
  }
}

// take pieces of the launch that is under way until none is left; whether there was one. The first are large, the last small
static int take(__global pool_t* p, ulong thread) {
  for (int did = 0;; did = 1) {
    ulong t, n, next, pieces;
    do {
      t = p->ticket; next = t & 0x1fffff; pieces = t >> 21 & 0x1fffff;
      if (next >= pieces) return did;
      n = (pieces - next) / (2 * p->threads); n = n ? n : 1;
    } while (atom_cmpxchg((volatile __global ulong*)&p->ticket, t, t + n) != t);
    __global const launch_t* l = (__global const launch_t*)p->launch;
    groups(l, thread, next * l->size, min((next + n) * l->size, l->groups));
    atom_add((volatile __global ulong*)&p->finished, n);
  }
}

// wake helpers that sleep, on other cores than this thread's: the system would wake one on the core of whoever wakes it, where it
// waits for a tenth of a millisecond, or for the launch to end. ids has the helpers' threads, then bits of the cores
static void wake(__global pool_t* p) {
  uint core = 0;
  volatile __global ulong* cores = p->ids + p->threads;
  if (system(309, (ulong)&core, 0, 0) == 0 && core < 64 * p->size && p->size) {   // getcpu
    ulong mine = cores[core / 64] & 1ul << core % 64;
    cores[core / 64] ^= mine;
    for (ulong i = 1; i < p->threads; i++) if (p->ids[i]) system(203, p->ids[i], 8 * p->size, (ulong)cores);  // sched_setaffinity
    cores[core / 64] ^= mine;
  }
  atom_add((volatile __global ulong*)&p->bell, 1ul);
  system(202, (ulong)&p->bell, 129, 0x7fffffff);   // futex: wake, of this process
}

// look for work for as long as "patience" pauses, sleep, and so on until it is time to leave
static void help(__global pool_t* p, ulong thread, ulong patience) {
  p->ids[thread] = system(186, 0, 0, 0);   // gettid
  while (!p->leave) {
    for (ulong k = 1; (k < patience || p->busy) && !p->leave; k++) {
      if (take(p, thread)) k = 0;
      if (k % 256) __builtin_ia32_pause(); else yield_core();
    }
    ulong bell = p->bell;
    atom_add((volatile __global ulong*)&p->sleeping, 1ul);
    if (!p->busy && !p->leave) system(202, (ulong)&p->bell, 128, bell);   // futex: wait while the bell is what it was
    atom_add((volatile __global ulong*)&p->sleeping, -1ul);
  }
}

// how: of a helper's thread its number and its patience, else 0, 0; then how many launches, whether to wake helpers, and whether
// to launch alone and note how long each takes
__kernel void RUN(__global pool_t* p, __global launch_t* l, __global const ulong* how) {
  ulong count = how[2];
  uint floats = set_floats(0x1f80);
  if (how[0]) { help(p, how[0], how[1]); return; }
  for (ulong i = 0; how[4] && i < count; i++) {
    ulong begun = __builtin_ia32_rdtsc();
    groups(l + i, 0, 0, l[i].groups);
    l[i].ticks = __builtin_ia32_rdtsc() - begun;
  }
  if (how[4]) { set_floats(floats); return; }
  if (how[3]) {
    atom_xchg((volatile __global ulong*)&p->busy, 1ul);   // who is about to sleep does not: it looks after it has said so
    if (p->sleeping) wake(p);
  }
  for (ulong i = 0; i < count; i++, l++) {
    if (l->pieces <= 1) { groups(l, 0, 0, l->groups); continue; }
    p->launch = (ulong)l; p->finished = 0;
    atom_xchg((volatile __global ulong*)&p->ticket, ++p->number << 42 | l->pieces << 21);
    take(p, 0);
    for (int k = 1; p->finished != l->pieces; k++) { if (k % 1024) __builtin_ia32_pause(); else yield_core(); }
  }
  p->busy = 0;
  set_floats(floats);
}

__kernel void TEST(__global ulong* out, __global const ulong* in, ulong at) {
  __local ulong first[8];
  __local ulong second[8];
  ulong g = (get_group_id(2) * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0);
  for (int i = 0; i < 8; i++) { first[i] = in[g * 8 + i]; second[7 - i] = first[i]; }
  for (int i = 0; i < 8; i++) out[g * 8 + i] = 1000 * first[i] + second[i] + at;
}
"""


class Record(ctypes.Structure):
  """A launch, as the machine code reads it."""
  _fields_ = [(name, ctypes.c_uint64) for name in "code args stride context nx ny nz pieces size groups ticks".split()]


class Context(ctypes.Structure):
  """What PoCL tells a group of the grid."""
  _fields_ = [*[(name, ctypes.c_size_t * 3) for name in ("groups", "offset", "local")], ("print_buffer", ctypes.c_void_p),
              ("print_position", ctypes.c_void_p), ("print_capacity", ctypes.c_uint), ("dimensions", ctypes.c_uint)]


def allocated(nbytes: int) -> tuple[np.ndarray[Any, Any], int]:
  """Memory of the process that begins at a page, and its address. Raises MemoryError."""
  host_room(nbytes, "a buffer")
  memory = np.empty(nbytes + _PAGE, np.uint8)
  at = -memory.ctypes.data % _PAGE
  return memory[at:at + nbytes], memory.ctypes.data + at


class Launch:
  """A kernel with its arguments, the array ``values``, ready to be called by every thread of a pool."""

  def __init__(self, pool: Threads, record: Record, local: tuple[int, ...], values: Any, locals: tuple[int, int]):
    (count, nbytes), arguments = locals, len(values)
    width, threads = arguments + count, pool.threads
    self.values: Any = values
    self.scratch = [pool.scratch(t, count * nbytes) for t in range(threads)] if count else []
    self.places = (ctypes.c_uint64 * max(count * threads, 1))(*[at + i * nbytes for at in self.scratch for i in range(count)])
    at, places = ctypes.addressof(values), ctypes.addressof(self.places)
    self.pointers = (ctypes.c_uint64 * max(width * threads, 1))(*[
      at + 8*i if i < arguments else places + 8*(t*count + i - arguments) for t in range(threads) for i in range(width)])
    self.context = Context(local=local, dimensions=3)
    self.record, self.pool, self.seconds = record, pool, 0.0
    self.small = False
    self.owner: object = None   # see ``resize``
    record.args, record.stride, record.context = ctypes.addressof(self.pointers), 8 * width, ctypes.addressof(self.context)

  def resize(self, codes: Mapping[bool, int], small: bool, owner: object, grid: Grid, seconds: float) -> None:
    """Launch machine code over a grid from now on, which takes so long on one thread at least. ``codes`` for any grid (False) and
    for ``small`` ones (True) stay loaded while their ``owner`` lives."""
    self.small, self.owner = small, owner
    r, groups = self.record, grid[0] * grid[1] * grid[2]
    self.context.groups[:] = grid
    r.code, r.groups = codes[small], groups
    r.nx, r.ny, r.nz = grid if groups else (1, 1, 1)
    r.size = max(-(-groups // (PIECES * self.pool.threads)), 1)
    self.share(seconds, SHORT)

  def replace_code(self, codes: Mapping[bool, int], owner: object) -> None:
    """Launch other machine code of the same kernel from now on, where there is some for this grid."""
    if self.owner is not None and (code := codes.get(self.small)) is not None: self.record.code, self.owner = code, owner

  def share(self, seconds: float, least: float) -> None:
    """Share the launch out, or not: it takes so long on one thread."""
    r = self.record
    r.pieces = 1 if seconds < least or self.pool.threads == 1 else -(-r.groups // r.size)
    self.seconds = seconds if r.pieces > 1 else 0.0   # of what is shared out


class Threads:
  """The thread that launches, and helpers. To be used by one thread at a time."""

  def __init__(self, threads: int, run: int):
    """``run`` is the machine code of :func:`spec`'s kernel."""
    self.threads = threads
    self._scratch: list[tuple[Any, int, int]] = [(None, 0, 0)] * threads   # memory, its address and size
    self._kept = list[Any]()
    cores = sum([1 << core for core in os.sched_getaffinity(0)])
    words = cores.bit_length() // 64 + 1
    self._pool, self._how = self._lasting(_IDS + threads + words), self._lasting(5)
    self._pool[_THREADS], self._pool[_CORES] = threads, words
    self._pool[(at := _IDS + threads):at + words] = [cores >> 64 * i & (1 << 64) - 1 for i in range(words)]
    self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_uint64] * 3)(run)
    self._context = Context(groups=(1, 1, 1), local=(1, 1, 1), dimensions=3)
    self._at_context = ctypes.addressof(self._context)
    self._helpers = list[threading.Thread]()
    self._given = Parameters([self._pool.ctypes.data, 0, self._how.ctypes.data])
    self.lock = _thread.allocate_lock()

  def _lasting(self, words: int) -> np.ndarray[Any, Any]:
    memory, _ = allocated(-(-words * 8 // _LINE) * _LINE)
    memory[:] = 0
    self._kept.append(memory)
    return memory.view(np.uint64)

  def scratch(self, thread: int, nbytes: int) -> int:
    """The address of a thread's memory for what is local to a group: one for all launches."""
    _, at, size = self._scratch[thread]
    if size < nbytes:
      self._kept.append(self._scratch[thread][0])   # launches have its address
      memory, at = allocated(size := max(nbytes, 2 * size, 1 << 16))
      self._scratch[thread] = memory, at, size
    return at

  def run(self, records: Any, count: int, wake: bool, alone: bool = False) -> None:
    """Run launches one after the other, and return when the last has ended; ``wake`` helpers that sleep. ``alone``: on this
    thread; the records get how long each took."""
    if self.lock.locked(): not_in_handler(self.lock)
    with self.lock:
      self._given.values[1], self._how[2:5] = ctypes.addressof(records), (count, wake, alone)
      if wake and len(self._helpers) < self.threads - 1: self._begin()
      self._run(self._given.address, self._at_context, 0, 0, 0)

  # ---- helpers
  def _begin(self) -> None:
    for i in range(1, self.threads):
      self._helpers.append(threading.Thread(target=self._helper, args=(i,), name=f"ntgrad-cpu-{i}", daemon=True))
      self._helpers[-1].start()
    atexit.register(self.leave)

  def _helper(self, thread: int) -> None:
    how = self._lasting(5)
    how[:2] = thread, PATIENCE
    given = Parameters([self._pool.ctypes.data, 0, how.ctypes.data])
    self._run(given.address, self._at_context, 0, 0, 0)   # until they leave

  def leave(self) -> None:
    """End the helpers."""
    self._pool[_LEAVE] = 1
    while any([t.is_alive() for t in self._helpers]):
      self.run(ctypes.c_uint64(), 0, True)   # nothing: that wakes them
      for t in self._helpers: t.join(0.01)


# ---- what the threads run
def spec(name: str) -> ProgramSpec:
  """One of the kernels of ``_SOURCE``, to be compiled like any other."""
  helpers, *kernels = re.split(r"(?=__kernel void )", _SOURCE)
  text = next(k for k in kernels if f"void {name}(" in k)
  before, after = text.split(name, 1)
  return ProgramSpec(f"threads_{name.lower()}", KernelSource(
    f"{helpers}{text}", helpers=(helpers,), kernel=(before, after), parts=((0, 8),) if name == "TEST" else ()),
    TESTED if name == "TEST" else (1,), (1,), 2 + (name != "TEST"))


def works_like_this(version: str) -> bool:
  """Whether machine code of a PoCL can be called as this module does, by its platform's version."""
  return sys.platform == "linux" and platform.machine() == "x86_64" and "PoCL 3.0" in version


def count_locals(text: str) -> int: return len(re.findall(r"\b__local\b[^;*]*;", text))   # arrays that a kernel has, at most


# ---- launches: of one kernel, and of a replay's kernels as one call
class CPUGraph(Graph):
  """Kernels that run one after the other in one call, once the machine code of each is there."""

  def __init__(self, device: OpenCLDevice, threads: Threads, nodes: Sequence[Node]):
    self._device, self._threads = device, threads
    self._programs = [cast("OpenCLProgram", n.program) for n in nodes]
    self._nodes = [(n.args, n.sizes) for n in nodes]
    self._apart = set[int](range(len(nodes)))   # those whose machine code is not there
    self._seconds = 0.0                         # what all that are shared out take on one thread
    self._runs, self._taken = 0, list[float]()   # seconds of each launch on one thread
    self._replaced = device.replaced             # machine code when they were measured
    # what was built quickly: the run from which on it is worth optimising, and which node it is, the last first
    self._due = list[tuple[float, int]]()
    self._spent = 0.0                            # seconds of runs before it is known what each launch takes
    self._records: Any = None                   # all launches, from when the machine code of each has been there
    self._launches = list[Launch]()

  def ready(self) -> bool:
    """Whether the machine code of all is there by now."""
    if self._apart:
      if self._records is None:
        if not all([p.code for p in self._programs]): return False
        self._link()
      for i in sorted(self._apart): self._cover(i)
    return not self._apart

  def _link(self) -> None:
    """Make the launches. The numbers of all lie side by side, so that few operations find all addresses."""
    *self._starts, count = np.cumsum([0, *[p.width for p in self._programs]]).tolist()
    self._values = np.zeros(count + 1, np.uint64)
    records = (Record * len(self._programs))()
    self._launches = [p.launch_of(r, self._threads, (ctypes.c_uint64 * p.width).from_buffer(self._values.data, 8 * at))
                      for p, r, at in zip(self._programs, records, self._starts)]
    self._added: Any = None
    self._records = records   # last: an interrupt before, and they are made again

  def _find(self, begins: int) -> None:
    """Where each number comes from: see :meth:`OpenCLProgram.numbers_of`."""
    found = [(at + i, source, n) for p, (args, _), at in zip(self._programs, self._nodes, self._starts)
             for i, source, n in p.numbers_of(args, begins)]
    self._to, self._from, added = np.array(found, np.int64).reshape(-1, 3).T.copy()
    self._added = added.view(np.uint64)

  def _cover(self, node: int) -> None:
    launch = self._launches[node]
    before = launch.seconds
    (self._apart.discard if self._programs[node].cover(launch, self._nodes[node][1]) else self._apart.add)(node)
    self._seconds += launch.seconds - before
    self._runs = 0

  def change(self, node: int, args: Sequence[Argument], sizes: Sizes) -> None:
    """See :meth:`Graph.change`."""
    if sizes != self._nodes[node][1]: self._apart.add(node)   # until it covers them
    self._nodes[node], self._added = (args, sizes), None
    if self._launches and node in self._apart: self._cover(node)

  def __call__(self, memory: Sequence[Raw], begins: Sequence[int] = ()) -> None:
    """Launch everything. Raises DeviceError."""
    device = self._device
    if device.busy: device.drain()
    device.here()
    if self._added is None: self._find(len(memory))
    table = np.array([*[raw.address for raw in memory], *begins, 0], np.uint64)
    self._values[self._to] = table[self._from] + self._added
    if device.compiler.arrived: device.take_over()
    if self._replaced != device.replaced and not device.compiler.optimising: self._replaced, self._runs = device.replaced, 0
    self._runs += 1
    if self._runs > MEASURED[-1]: self._threads.run(self._records, len(self._launches), self._seconds > MEASURED_WAKING)
    else: self._measure()
    if self._due and self._due[-1][0] <= self._runs: self._optimise()

  def _measure(self) -> None:
    """A run in which it is found which launches are worth sharing out."""
    if self._runs == 1 and self._spent > ALL_WORTH_OPTIMISING:   # sizes changed each time before it was known
      self._spent = 0.0
      self._device.compiler.optimise([p.spec for p in self._programs if p.quick])
    begun = time.perf_counter()
    self._threads.run(self._records, len(self._launches), self._seconds > WORTH_WAKING, self._runs in MEASURED)
    self._spent += (seconds := time.perf_counter() - begun)
    if self._runs not in MEASURED: return
    ticks = [r.ticks for r in self._records]
    taken = [n * seconds / (sum(ticks) or 1) for n in ticks]
    self._taken = taken if self._runs == MEASURED[0] else [*map(min, self._taken, taken)]   # the less disturbed ones
    quick = dict[int, list[Any]]()   # of a kernel that was built quickly: what all its launches take, one of them
    for i, (t, p) in enumerate(zip(self._taken, self._programs)):
      if p.quick: quick.setdefault(id(p.spec), [0.0, i])[0] += t
    self._due = sorted([(self._runs - 1 + WORTH_OPTIMISING / max(t, 1e-9), i) for t, i in quick.values()], reverse=True)
    if self._runs < MEASURED[-1]: return
    self._spent = 0.0
    for launch, each in zip(self._launches, self._taken): launch.share(each, MEASURED_SHORT)
    self._seconds = sum([launch.seconds for launch in self._launches])

  def _optimise(self) -> None:
    """Have the kernels optimised for which it is worth it by now."""
    due = list[int]()
    while self._due and self._due[-1][0] <= self._runs: due.append(self._due.pop()[1])
    self._device.compiler.optimise([self._programs[i].spec for i in due])


_threads: dict[tuple[object, int], Threads] = {}   # of this process, by driver and number


class NotYet(Exception):
  """A worker is building what the threads run."""


def threads_of(device: OpenCLDevice, count: int = 0) -> Threads | None:
  """So many threads for a device (0: one a core that this process may use), tested; None where its code cannot be called so.
  Raises NotYet while a worker builds what they run: the queue runs kernels meanwhile."""
  compiler = device.compiler
  count = count or min(int(device.device.max_compute_units), len(os.sched_getaffinity(0)))
  key = compiler.identity, count
  if key in _threads: return _threads[key]
  specs = [spec(name) for name in ("RUN", "TEST")]
  keys = [compiler.key(s) for s in specs]
  held = [compiler.units.get(k) or compiler.load(k) for k in keys]   # until programs do: one that is let go is loaded again
  if None in held:
    device.own_code = unit = compiler.unit(specs, quick=True)   # they call machine code: optimised they would be no faster
    unit.final = True
    compiler.units.update(dict.fromkeys(keys, unit))
    if workers.alive(): compiler.first.add(unit)
  with workers.changed:
    if (u := device.own_code) is not None and not u.done and u.answer is None and not u.here and workers.alive(): raise NotYet
  run, test = device.programs_of(specs)
  zeros, out = device.new_raw(4096), device.new_raw(4096)
  zeros.host[:] = 0
  for p in run, test:
    p.find_code()
    if not p.code: p([out if p is test else zeros, *[zeros] * (p.spec.nparams - 1)])
  device.queue.finish()
  for p in run, test: p.take_code()
  if not (run.code and test.code): return None
  threads = Threads(count, next(iter(run.code.values())))
  threads._kept.append(run.unit)   # which has the machine code
  # groups in three dimensions, two arrays of local memory, a number as an argument
  groups, record = int(np.prod(TESTED)), (Record * 1)()
  launch = test.launch_of(record[0], threads)
  given, got = zeros.host.view(np.uint64)[:groups * 8], out.host.view(np.uint64)[:groups * 8]
  given[:] = np.arange(groups * 8)
  for i, raw in enumerate((device.at(out, 7), zeros)): test.put(launch, i, raw)
  if not test.cover(launch, ()): return None
  threads.run(record, 1, True)
  first = given.reshape(-1, 8)
  if (got != (1000 * first + first[:, ::-1] + 7).ravel()).any(): return None
  _threads[key] = threads
  return threads
