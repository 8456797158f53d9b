"""Many kernels to binaries: programs of several kernels, cached on disk. PoCL takes 100 ms to build one, and another 100 for
machine code at its first launch, one at a time. So kernels wait in units, in the order of their launches; a unit is built when
its first kernel is needed, and meanwhile worker processes (``backends/workers.py``) build from the other end. What this process
has built is saved once all its kernels have run and nothing has been compiled for a moment, or at exit.

Many kernels are first built quickly, without optimisation, which takes a third of the time. Those that are launched again and
again are built once more by workers (``optimise``), and take over when they are there (``OpenCLDevice.take_over``)."""
from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Iterable
from weakref import WeakValueDictionary

from ntgrad.codegen.index.records import BYTES, STR, OneOf, Table, TupleForm
from ntgrad.codegen.ir import CompileError, Recent, StateError, config, keep_handlers, not_in_handler

from .. import cache, workers
from ..base import ProgramSpec, Specs
from . import binaries
from .cpuname import missing
from .declared import WITHOUT_HEADER, declared

OPTIONS, QUICK = "-cl-std=CL1.2 -w", "-cl-opt-disable"
GROUP = 4                     # kernels in one program at most
MANY = 8                      # small kernels waiting that are worth starting workers, which takes a second
QUICK_FROM = 12               # small kernels waiting from which on they are built quickly
QUIET = 1.0                   # seconds without a compile after which programs are saved
UNSAVED = 50                  # programs that wait to be saved, from which on they are saved at once
FORMAT = 5                    # of programs in the disk cache: greater where kernels have other names inside, or other sources
# what the disk cache has: the width of vectors; where a kernel's program is; a program, with its kernels' names by their keys
BITS, WHERE, PROGRAM = OneOf({str(n): n for n in (128, 256, 512)}), STR, TupleForm(Table(STR, STR), BYTES)
# a kernel whose name tells the width of the vector registers that the compiler uses
WIDEST = """
#if defined(__AVX512F__) || !defined(__x86_64__)
__kernel void bits_512(void) {}
#elif defined(__AVX__)
__kernel void bits_256(void) {}
#else
__kernel void bits_128(void) {}
#endif
"""

Build = Callable[[str, Specs, bool], bytes]   # of a device's name and kernels a packed program, in a worker; see Unit.quick
_folders: Recent[str, Path] = Recent(1024)   # PoCL's, of programs built in this process


@dataclass(eq=False)
class Unit(workers.Job):
  """A program of several kernels, from the time when they are known."""
  specs: dict[str, ProgramSpec] = field(default_factory=dict)   # by key
  # key of a spec -> name of its kernel in the program: its own and its number there. Nothing else ends in a number after "_"
  # (helper functions end in a type, OpenCL's own names have none), so no two things of a program have one name
  names: dict[str, str] = field(default_factory=dict)
  program: Any = None                            # the OpenCL object, once it is there
  source: str = ""                               # of a program built here
  files: binaries.Files | None = None            # PoCL's of the program
  shapes: dict[str, tuple[int, int]] = field(default_factory=dict)   # see binaries.FORM; of a program that was packed
  binary: bytes | None = None                    # of another driver than PoCL
  # the kernels, or what is wrong, if they do not go together
  alone: dict[str, Unit | CompileError] = field(default_factory=dict)
  device: str = ""                               # for a worker,
  in_worker: Build | None = None                 # and what it calls
  waiting: set[str] = field(default_factory=set) # kernels of a program built here that have not run yet
  launched: bool = False                         # nothing left to note at launches
  kept: str = ""                                 # the key of a program that was read from the disk cache
  code: dict[str, dict[bool, int]] = field(default_factory=dict)   # see Files.machine_code, by the kernel's name
  quick: bool = False                            # whether it is built without optimisation
  final: bool = False                            # whether no optimised one is to take its place, though it is built quickly
  arrived: list[Unit] | None = None              # where it says that a worker has been at it

  def add(self, k: str, spec: ProgramSpec) -> None:
    """Put a kernel at the end."""
    self.names.setdefault(k, f"{spec.name}_{len(self.specs)}")
    self.specs[k] = spec
    self.count, self.weight = len(self.specs), sum(s.source.weight for s in self.specs.values())
    self.worth_building = self.count >= min(GROUP, 2)

  def join(self) -> str:
    """One source of the kernels: shared helpers once, each kernel under its name in the program."""
    # in this order each helper comes after what it uses
    helpers = dict.fromkeys(h for spec in self.specs.values() for h in spec.source.helpers)
    return "\n\n".join([*helpers, *(self.names[k].join(spec.source.kernel) for k, spec in self.specs.items())]) + "\n"

  def work(self) -> workers.Work:
    """The answer is a packed program."""
    assert self.in_worker is not None, "a unit that waits in a queue"
    return self.in_worker, (self.device, [replace(s, uops=()) for s in self.specs.values()], self.quick)   # it reads source only

  def finished(self) -> None:
    if self.arrived is not None: self.arrived.append(self)


def identity_of(device: Any) -> tuple[str, ...]:
  """What programs depend on: the driver, its compiler, and options."""
  return (device.platform.name, device.platform.version, device.name, device.version + missing(device.version),
          device.driver_version, OPTIONS)


def known_bits(identity: tuple[str, ...]) -> int | None:
  """What an earlier process has found for ``vector_bits``. None: the disk cache has nothing of this driver."""
  return cache.get("opencl-bits", cache.key("vector-bits", identity), BITS)


_widest: dict[tuple[str, ...], int] = {}   # of this process, by driver
_finding = threading.Lock()
os.register_at_fork(after_in_child=_finding._at_fork_reinit)   # type: ignore[attr-defined]


def widest(cl: Any, device: Any, identity: tuple[str, ...]) -> int:
  """The width of the widest vector registers that PoCL's compiler uses for a device."""
  not_in_handler(_finding)
  with _finding:
    if identity not in _widest and (bits := known_bits(identity)) is not None: _widest[identity] = bits
    if identity not in _widest:
      program = cl._cl._Program(cl.Context([device]), WIDEST)
      program._build(f"{OPTIONS} {WITHOUT_HEADER}".encode(), [device])
      keep_handlers()
      _widest[identity] = int(str(program.get_info(cl.program_info.KERNEL_NAMES)).removeprefix("bits_"))
      cache.put("opencl-bits", cache.key("vector-bits", identity), BITS, _widest[identity])
    return _widest[identity]


def is_pocl(device: Any) -> bool: return "portable computing" in device.platform.name.lower()


class Compiler:
  """Builds for one device. Finds kernels in memory, on disk, or makes them."""

  def __init__(self, cl: Any, context: Any, device: Any, name: str, finish: Callable[[], object], in_worker: Build):
    self.cl, self.context, self.device, self.name, self.in_worker = cl, context, device, name, in_worker
    self.finish = finish                         # waits for everything launched
    self.identity = identity_of(device)
    # units live as long as programs that use them
    self.units = WeakValueDictionary[str, Unit]()    # by key of a spec
    self.loaded = WeakValueDictionary[str, Unit]()   # by key of a program
    self.given = dict[str, Unit]()             # those that :meth:`take_packed` got, by key of a spec
    # the last unit that waits may still grow. No workers for a GPU: its driver is quick, and no place for kernels on memory of no
    # meaning
    self.queue = workers.Queue(MANY if device.type & cl.device_type.CPU else None)
    self.first = workers.Queue(0, rank=-1)     # what others wait for
    # programs that are there and are built again, optimised; those of them that workers have been at
    self.later, self.optimising, self.arrived = workers.Queue(0, background=True), dict[str, Unit](), list[Unit]()
    self.coming = 0.0                          # weight of kernels that will be compiled soon
    self.tiers = False                         # whether both ways of building give the same bits, and one can replace the other
    self.unsaved = list[tuple[Unit, dict[str, Any]]]()   # and the settings of the cache where they belong
    self.built = self.found = 0                  # kernels built, kernels read from disk: for tests and DEBUG
    self.whole = 0                               # programs that needed the whole header, or do not compile
    self.lock, self.saving = threading.Lock(), threading.Lock()
    self.last = 0.0                              # when something was compiled
    self.saver: threading.Thread | None = None
    atexit.register(self.leave)

  def vector_bits(self) -> int:
    """Width of the vector registers that compiled code uses. PoCL tells the CPU's own, but its LLVM may not know a new CPU: it
    takes Zen 4, which has AVX-512, for Zen 3."""
    if (native := max(int(self.device.native_vector_width_float), 1)*32) <= 128 or not is_pocl(self.device): return native
    bits = widest(self.cl, self.device, self.identity)
    keep_handlers()   # another thread may have started LLVM
    return min(native, bits)

  def key(self, spec: ProgramSpec) -> str:
    """The cache key of a kernel: its source and launch, the device with its driver, the options."""
    return cache.key(FORMAT, self.identity, spec.name, spec.source.digest, tuple(spec.local))

  def compile(self, specs: Specs) -> list[Unit]:
    """The unit of each spec; :meth:`ready` waits for it."""
    out = [self.known(k := self.key(s)) or self.load(k) or self.add(k, s) for s in specs]
    if self.two_tiers():
      with workers.changed:
        waiting = [u for u in self.queue.waiting() if isinstance(u, Unit) and not u.taken]
        if workers.alive() or self.coming + sum(u.weight for u in waiting) > QUICK_FROM:
          for u in waiting: u.quick = True
    self.queue.serve()
    return out

  def two_tiers(self) -> bool:
    """Whether many kernels are built quickly first. Not for those that are measured or disassembled, or where nobody would
    build them again."""
    return self.tiers and config.tiers == "auto" and not config.beam and config.debug < 6 and workers.size() > 1

  def known(self, k: str) -> Unit | None:
    """The unit of a kernel that is in memory."""
    unit = self.units.get(k)
    return unit if unit is None or not unit.quick or unit.final or self.two_tiers() else None

  def add(self, k: str, spec: ProgramSpec) -> Unit:
    """Put a new kernel at the end of what is to be built; gives its unit."""
    with workers.changed:
      last = next(reversed(self.queue.waiting()), None)
      unit = last if isinstance(last, Unit) and len(last.specs) < GROUP and last.program is None else self.unit(())
      self.units[k] = unit
      unit.add(k, spec)
      if unit is not last: self.queue.add(unit)
      if len(unit.specs) == GROUP: workers.changed.notify_all()
    return unit

  def unit(self, specs: Iterable[ProgramSpec], quick: bool = False) -> Unit:
    """A unit of these kernels, equal ones once."""
    unit = Unit(device=self.name, in_worker=self.in_worker, quick=quick)
    for s in specs: unit.add(self.key(s), s)
    return unit

  # ---- kernels that were built quickly, once more
  def optimise(self, wanted: Iterable[ProgramSpec]) -> None:
    """Have workers build kernels again, in this order, of those that were built quickly."""
    found = {k: s for s in wanted if (k := self.key(s)) not in self.optimising
             and (unit := self.units.get(k)) is not None and unit.quick and not unit.final and unit.done}
    if not found or not self.two_tiers(): return
    units = list[Unit]()
    for spec in found.values():   # as many small ones together as a group has
      if not units or units[-1].weight + spec.source.weight > GROUP: units.append(self.unit(()))
      units[-1].add(self.key(spec), spec)
    for unit in units:
      unit.arrived, unit.count = self.arrived, 0   # nobody waits for it
      self.optimising.update(dict.fromkeys(unit.specs, unit))
      self.later.add(unit)
    self.later.serve()

  def take_optimised(self) -> list[Unit]:
    """The optimised units that workers have made since the last call, their machine code where PoCL looks for it."""
    out = list[Unit]()
    while self.arrived:
      unit = self.arrived.pop()
      for k in unit.specs: self.optimising.pop(k, None)
      packed, unit.answer = unit.answer, None
      if packed == b"": out += {u for k in unit.specs if (u := self.load(k)) is not None and not u.quick}   # they are on disk
      if not packed or not self.take_contents(unit, packed): continue   # the worker could not: what there is stays
      unit.done = unit.launched = True
      out.append(unit)
    return out

  def ready(self, unit: Unit, spec: ProgramSpec) -> Unit:
    """Wait until a kernel of the unit can be launched; build it here if nobody has begun. Gives the unit that has the kernel: one
    of its own where another of the group does not compile. Raises CompileError."""
    if unit.program is not None or unit.shapes: return unit
    self.last = time.monotonic()
    if not unit.taken and unit.answer is None and not unit.done and workers.alive(): self.build(unit)   # and see ``begin``
    if unit.program is None and not unit.shapes:
      with self.queue.claim(unit) as mine:
        if mine and not unit.alone and not self.take_answer(unit): self.build(unit)
    alone = unit.alone.get(self.key(spec), unit)
    if isinstance(alone, CompileError): raise CompileError(str(alone))
    return alone

  def begin(self, unit: Unit) -> None:
    """To be called before a kernel of a unit is launched for the first time. The device compiles it to machine code then, which
    takes longer than what ``ready`` does; a worker that has taken the unit meanwhile, from the end, brings that."""
    if unit.done: return
    with workers.building():
      if workers.alive(): self.finish()   # until then they may take it
      with self.queue.claim(unit) as mine:
        packed, unit.answer = unit.answer, None
        if mine and packed is not None and self.take_contents(unit, packed): unit.launched = True

  def take_built(self, specs: Specs, packed: bytes) -> Unit:
    """Know kernels that a worker has built."""
    unit = self.unit(specs, quick=True)
    unit.answer = packed
    self.units.update(dict.fromkeys(unit.specs, unit))
    return unit

  def take_answer(self, unit: Unit) -> bool:
    """Load what a worker has made of a unit. False where there is nothing, or this driver does not take it."""
    packed, unit.answer = unit.answer, None
    if not (unit.shapes or unit.program) and (packed is None or not self.take_contents(unit, packed)): return False
    unit.launched = True   # an interrupt may have come between: then there is no answer any more
    self.built += len(unit.specs)
    return True

  def load(self, k: str) -> Unit | None:
    """The unit of a kernel from the disk cache, the optimised one if it is there. None where it is absent or damaged."""
    for quick in (False, True) if self.two_tiers() else (False,):
      if (where := cache.get("opencl-program-of", tiered(k, quick), WHERE)) is None: continue
      unit = self.loaded.get(where) or self.load_kept(where)
      if unit is not None and k in unit.names:   # else another program has come there
        unit.final = not quick
        self.units[k] = unit
        self.found += 1
        return unit
      cache.remove("opencl-program-of", tiered(k, quick))
    return None

  def kept(self, spec: ProgramSpec, quick: bool) -> bool:
    """Whether the disk cache has a kernel, built so or better."""
    k = self.key(spec)
    return any(cache.get("opencl-program-of", tiered(k, tier), WHERE) is not None for tier in (False, True)[:1 + quick])

  def load_kept(self, where: str) -> Unit | None:
    """The program under a key of the disk cache, or None. One that makes no sense, or of another driver, is removed."""
    names, packed = cache.get("opencl-program", where, PROGRAM) or ({}, None)
    if packed is None: return None
    unit = Unit(names=names, launched=True, done=True, kept=where)
    if self.take_contents(unit, packed) and names and {*names.values()} <= {*(unit.shapes or self.kernel_names(unit))}:
      self.loaded[where] = unit
      return unit
    cache.remove("opencl-program", where)
    others = [u.files.path for u in self.units.values() if u.files is not None]
    if unit.files is not None and unit.files.path not in others: unit.files.remove()
    return None

  def kernel_names(self, unit: Unit) -> list[str]:
    try: return str(unit.program.get_info(self.cl.program_info.KERNEL_NAMES)).split(";")
    except self.cl.Error: return []

  def look(self, unit: Unit, name: str) -> None:
    """See that a kernel's machine code is some, where it was read from the disk cache."""
    if not unit.kept or unit.files is None or name in unit.code: return
    bad = list[str]()
    unit.code[name] = unit.files.machine_code(name, unit, bad)
    if bad: cache.remove("opencl-program", unit.kept)

  def build(self, unit: Unit) -> None:
    """Build a unit here; each kernel alone where they fail together. Raises CompileError for a single kernel that fails."""
    unit.source, unit.waiting = unit.join(), set(unit.specs)
    self.built += len(unit.specs)
    not_in_handler(self.lock)
    with workers.building(), self.lock:
      binaries.new_folders()   # others may have come
      try: unit.program = self.load_source(unit.source, unit.quick)
      except self.cl.Error as e:
        for k in unit.specs: self.units.pop(k, None)
        spec, *more = unit.specs.values()
        if not more: raise CompileError(explain(spec, unit.source, str(e))) from None
      k = cache.key(self.identity, unit.quick, unit.source)
      new = binaries.new_folders()
      path = new.pop() if len(new) == 1 else _folders[k]   # of the same program built before
      if path is not None: _folders[k], unit.files = path, binaries.Files(path)
    if unit.program is not None: return
    for k, s in unit.specs.items():   # which names the kernel at fault
      one = self.unit([s])
      try: self.build(one)
      except CompileError as e: unit.alone[k] = e
      else:
        one.done = True
        unit.alone[k] = self.units[k] = one

  def load_source(self, source: str, quick: bool = False) -> Any:
    """A program from its source. Raises pyopencl's Error with the compiler's log."""
    options = f"{OPTIONS} {QUICK}" if quick else OPTIONS
    if is_pocl(self.device):
      try: return self.load_program(f"{options} {WITHOUT_HEADER}", declared(source))
      except self.cl.Error: self.whole += 1
    return self.load_program(OPTIONS, source)   # of what it calls nothing is known

  def load_program(self, options: str, *source: Any) -> Any:
    """A program from its source, or a list of devices and one of binaries. Raises pyopencl's Error with the compiler's log."""
    program = self.cl._cl._Program(self.context, *source)
    try: program._build(options.encode(), [self.device])
    except self.cl.Error as e:
      raise self.cl.Error(str(program.get_build_info(self.device, self.cl.program_build_info.LOG) or e)) from None
    keep_handlers()
    return program

  def take_contents(self, unit: Unit, packed: bytes) -> bool:
    """Give a unit what :meth:`pack` made bytes of. Its program is made when a kernel goes through the queue (``program_of``): its
    machine code can be called without. False for bytes that make no sense, and where this driver does not take them."""
    try: unit.source, unit.quick, unit.shapes, unit.binary, unit.files = binaries.unpack(packed)
    except ValueError: return False
    if unit.files is not None and unit.program is not None: unit.files.written()   # a program that waits for its machine code
    if unit.binary is None and unit.shapes: return True
    with suppress(self.cl.Error): self.program_of(unit)
    return unit.program is not None

  def program_of(self, unit: Unit) -> Any:
    """The program of a unit that is there. Raises pyopencl's Error."""
    if unit.program is None:
      not_in_handler(self.lock)
      with self.lock:
        if unit.binary is not None: unit.program = self.load_program(OPTIONS, [self.device], [unit.binary])
        else:
          if unit.files is not None: unit.files.written()
          try: unit.program = self.load_source(unit.source, unit.quick)
          except self.cl.Error:   # what lay on disk is none of PoCL's
            if unit.files is None: raise
            unit.files.remove()
            unit.program = self.load_source(unit.source, unit.quick)
    return unit.program

  def take_packed(self, packed: bytes, specs: Specs) -> None:
    """Know the kernels of a program packed from ``specs``. Raises StateError for one that this driver does not take."""
    unit = self.unit(specs)
    if not self.take_contents(unit, packed):
      raise StateError(f"{self.name} does not take these kernels, which another version or driver made; build them again")
    unit.launched = unit.done = True
    for k in unit.specs: self.units[k] = self.given[k] = unit

  def pack(self, unit: Unit) -> bytes:
    """A program built here, whose kernels have all been launched, as bytes."""
    # a kernel gets its machine code when the device comes to run it, which is long after the launch where others wait
    self.finish()
    shapes = unit.shapes
    if unit.program is not None and unit.files is not None:
      kernels = {name: self.cl.Kernel(unit.program, name) for name in unit.names.values()}
      shapes = {name: (int(k.num_args), self.local_bytes(k)) for name, k in kernels.items()}
    return binaries.pack(unit.source, unit.quick, shapes, unit.files, self.cl, unit.program)

  def local_bytes(self, kernel: Any) -> int:
    """Bytes of local memory that a kernel has for a group."""
    return int(kernel.get_work_group_info(self.cl.kernel_work_group_info.LOCAL_MEM_SIZE, self.device))

  def launched(self, unit: Unit, spec: ProgramSpec) -> None:
    """Note that a kernel of a new program has been launched; after the last of them the program can be saved."""
    unit.waiting.discard(self.key(spec))
    if unit.waiting: return
    unit.launched = True
    if not config.cache: return
    not_in_handler(self.lock)
    with self.lock: self.unsaved.append((unit, cache.settings()))
    self.last = time.monotonic()
    if self.saver is None or not self.saver.is_alive():
      self.saver = threading.Thread(target=self._save_when_quiet, name="ntgrad-save-programs", daemon=True)
      self.saver.start()

  def _save_when_quiet(self) -> None:
    # the driver compiles one thing at a time: a save in between would hold up the next kernel
    while self.unsaved:
      if (wait := self.last + QUIET - time.monotonic()) > 0 and len(self.unsaved) < UNSAVED: time.sleep(min(wait, QUIET/4))
      else: self._save_one()

  def _save_one(self) -> bool:
    not_in_handler(self.saving)
    with self.saving:   # whoever leaves, and removes PoCL's folder then, waits for a save under way
      with self.lock:
        if not self.unsaved: return False
        unit, settings = self.unsaved.pop(0)
      try: packed = self.pack(unit)
      except (OSError, ValueError): return True   # PoCL's files are gone: it is compiled again when it is needed
      if any(self.units.get(k) is unit for k in unit.names):   # else others have taken its place
        with config(**settings): keep(packed, unit.names, unit.quick and not unit.final)
    return True

  def save(self) -> None:
    """Write the binaries of new programs to disk now."""
    while self._save_one(): pass

  def leave(self) -> None:
    """At exit, before PoCL's folder goes: what was launched has run (a kernel's machine code is looked up there when it starts,
    and PoCL ends the process where it cannot write it again), and new programs are saved."""
    self.finish()
    self.save()

  def disassemble(self, spec: ProgramSpec) -> str:
    """The machine code of a kernel that has run, or a sentence that says why there is none."""
    k = self.key(spec)
    unit = self.units.get(k)
    if unit is None or unit.program is None: return f"# no assembly of {spec.label}: it has not been compiled"
    name = unit.names[k]
    self.finish()
    where = (binaries.folder(), "*/*/") if unit.files is None else (unit.files.written(), "")
    found = [*where[0].glob(f"{where[1]}{name}/*/{name}.so")]
    if not found: return f"# no assembly of {spec.label}: the OpenCL driver keeps its machine code to itself"
    tool = shutil.which("objdump") or shutil.which("llvm-objdump")
    if tool is None: return f"# no assembly of {spec.label}: install objdump (binutils) to see it"
    out = subprocess.run([tool, "-d", "--no-show-raw-insn", "--no-addresses", str(found[0])], capture_output=True,
                         text=True).stdout
    return max(re.findall(rf"^<_pocl_kernel_{name}(?:_workgroup)?>:\n(?:.+\n)*", out, re.MULTILINE), key=len,
               default=out).rstrip()  # the other one only calls it


def tiered(k: str, quick: bool) -> str: return cache.key("quick", k) if quick else k   # of a kernel as it was built


def keep(packed: bytes, names: dict[str, str], quick: bool = False) -> None:
  """Put on disk a program whose kernels have all run, and where each of them is found."""
  k = tiered(cache.key("program", sorted(names)), quick)
  if cache.put("opencl-program", k, PROGRAM, (names, packed)):
    for spec_key in names: cache.put("opencl-program-of", tiered(spec_key, quick), WHERE, k)


def forget(names: dict[str, str]) -> None:
  """Remove kernels that were built quickly from the disk: the optimised ones are there. Their program goes with its last one."""
  def program(spec_key: str) -> str | None: return cache.get("opencl-program-of", tiered(spec_key, True), WHERE)
  found = {k: where for k in names if (where := program(k)) is not None}
  for spec_key in found: cache.remove("opencl-program-of", tiered(spec_key, True))
  for where in {*found.values()}:
    others, _ = cache.get("opencl-program", where, PROGRAM) or ({}, b"")
    if where not in map(program, others): cache.remove("opencl-program", where)


def explain(spec: ProgramSpec, source: str, log: str) -> str:
  """An error message: the compiler's log and the lines of source that it names."""
  lines = source.split("\n")
  named = sorted({int(m) for m in re.findall(r":(\d+):\d+:", log)} & set(range(1, len(lines) + 1)))
  quoted = "\n".join(f"  {n:4d}  {lines[n - 1]}" for n in named[:8])
  return f"kernel {spec.label}: the OpenCL compiler refused the source\n{quoted}\n{log.strip()}"
