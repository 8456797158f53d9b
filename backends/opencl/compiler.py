"""Many kernels to binaries: a few programs of several kernels, kept on disk.

PoCL takes 30 to 50 ms to build a kernel, 35 ms more for machine code at its first launch, and 50 ms to hand out the program binary,
which has that machine code only after the launch. So a program is saved once all its kernels have run and nothing has been compiled
for a moment, by a thread of its own, or at exit. Where the machine has the cores for it, worker processes build.
"""
from __future__ import annotations

import atexit
import ctypes
import json
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

from ntgrad.backends import cache
from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.opencl import pool
from ntgrad.codegen.config import config
from ntgrad.codegen.errors import CompileError

OPTIONS = "-cl-std=CL1.2 -w"
GROUP = 10                    # kernels in one program at most
FEW = 5                       # new kernels that are worth a worker where config.workers asks for them
QUIET = 1.0                   # seconds without a compile after which programs are saved
_BUILD, _SAVE, _START = 0.065, 0.05, 0.9  # seconds to build a small kernel, to take its binary, to start a worker
# what OpenCL C calls something already: PoCL does not find a kernel of such a name
RESERVED = frozenset("""
abs acos acosh acospi add_sat all any as async_work_group_copy asin asinh asinpi atan atan2 atan2pi atanh atanpi atomic_add
barrier bitselect bool cbrt ceil char clamp clz constant copysign cos cosh cospi cross degrees distance dot double erf erfc exp
exp10 exp2 expm1 fabs fdim float floor fma fmax fmin fmod fract frexp get_global_id get_group_id get_local_id global hadd half
hypot ilogb image int isequal isfinite isgreater isinf isless isnan isnormal kernel ldexp length lgamma local log log10 log1p
log2 logb long mad mad24 mad_hi mad_sat main max min mix modf mul24 mul_hi nan nextafter normalize popcount pow pown powr
prefetch printf private radians read_only remainder remquo restrict rhadd rint rootn rotate round rsqrt sampler select short
shuffle shuffle2 sign signbit sin sincos sinh sinpi size_t sqrt step smoothstep sub_sat tan tanh tanpi tgamma trunc uchar uint
ulong upsample ushort vload_half vstore_half wait_group_events write_only""".split())


@dataclass
class Unit:
  """A program of several kernels: its OpenCL object, and those of its kernels that have not run yet."""
  program: Any
  names: dict[str, str]                          # key of a spec → name of its kernel in the program
  waiting: set[str] = field(default_factory=set)
  launched: bool = False                         # nothing left to note at launches


def join(specs: Sequence[ProgramSpec]) -> tuple[str, list[str]]:
  """One source of several kernels: shared helpers once, a name for each kernel. Gives the source and the names in order."""
  parts: dict[str, None] = {}
  typedefs: dict[str, None] = {}
  names: list[str] = []
  kernels: list[str] = []
  for spec in specs:
    name = spec.name if spec.name not in RESERVED else f"{spec.name}_kernel"
    n = len(names)
    while name in names: name, n = f"{spec.name}_{n}", n + 1   # r_4 with 6 before it must not become an r_4_6 that is there
    names.append(name)
    *helpers, kernel = spec.source.strip("\n").split("\n\n")
    for h in helpers:
      if h.startswith("typedef"): typedefs.update(dict.fromkeys(h.split("\n")))
      else: parts[h] = None
    if name != spec.name: kernel = re.sub(rf"(\bvoid\s+){re.escape(spec.name)}(?=\()", rf"\g<1>{name}", kernel, count=1)
    kernels.append(kernel)
  return "\n\n".join([*(["\n".join(typedefs)] if typedefs else []), *parts, *kernels]) + "\n", names


class Compiler:
  """Builds for one device. Finds kernels in memory, on disk, or makes them."""

  def __init__(self, cl: Any, context: Any, device: Any, name: str):
    self.cl, self.context, self.device, self.name = cl, context, device, name
    self.identity = (device.platform.name, device.platform.version, device.name, device.version, device.driver_version, OPTIONS)
    self.units: dict[str, Unit] = {}             # by key of a spec
    self.loaded: dict[str, Unit] = {}            # by key of a program
    self.unsaved: list[Unit] = []
    self.built = self.found = 0                  # kernels built, kernels read from disk: for tests and DEBUG
    self.finish: Callable[[], object] = lambda: None   # waits for everything launched
    self.lock = threading.Lock()
    self.last = 0.0                              # when something was compiled
    self.saver: threading.Thread | None = None
    atexit.register(self.save)

  def key(self, spec: ProgramSpec) -> str:
    """What a kernel is kept under: its source and launch, the device with its driver, the options."""
    return cache.key(self.identity, spec.name, spec.source, tuple(spec.local))

  def compile(self, specs: Sequence[ProgramSpec]) -> list[tuple[Unit, Any]]:
    """A program and a kernel object for each spec. Raises CompileError."""
    self.last = time.monotonic()
    keys = [self.key(s) for s in specs]
    new: dict[str, ProgramSpec] = {}
    for k, s in zip(keys, specs):
      if k in self.units or k in new: continue
      if not self.load(k): new[k] = s
    if workers_pay(new): new = self.build_in_workers(new)
    todo = list(new.items())
    for at in range(0, len(todo), GROUP): self.build(dict(todo[at:at + GROUP]))
    return [(self.units[k], self.cl.Kernel(self.units[k].program, self.units[k].names[k])) for k in keys]

  def load(self, k: str) -> bool:
    """Take a kernel from the disk cache. False where it is absent or damaged."""
    raw = cache.load("opencl-kernel", k)
    if raw is None: return False
    entry = json.loads(raw)
    unit = self.loaded.get(entry["program"])
    if unit is None:
      binary = cache.load("opencl-program", entry["program"])
      if binary is None: return False
      try:
        program = self.load_binary(binary)
      except self.cl.Error:  # made by a driver that calls itself the same
        cache.remove("opencl-program", entry["program"])
        return False
      unit = self.loaded[entry["program"]] = Unit(program, {}, launched=True)
    unit.names[k] = entry["kernel"]
    self.units[k] = unit
    self.found += 1
    return True

  def make(self, specs: Sequence[ProgramSpec]) -> tuple[Any, list[str]]:
    """Build one program of several kernels: its OpenCL object and the kernels' names in it.

    Raises CompileError for the first kernel that fails.
    """
    source, names = join(specs)
    program = self.cl._cl._Program(self.context, source)
    try:
      program._build(OPTIONS.encode(), [self.device])
    except self.cl.Error as e:
      if len(specs) > 1:
        for s in specs: self.make([s])  # names the kernel at fault
      log = program.get_build_info(self.device, self.cl.program_build_info.LOG)
      raise CompileError(explain(specs[0], source, str(log or e))) from None
    return program, names

  def build(self, specs: dict[str, ProgramSpec]) -> None:
    """Build new kernels as one program in this process."""
    program, names = self.make(list(specs.values()))
    self.add(Unit(program, dict(zip(specs, names)), set(specs)))

  def add(self, unit: Unit) -> None:
    """Know the kernels of a new program."""
    for k in unit.names: self.units[k] = unit
    self.built += len(unit.names)

  def load_binary(self, binary: bytes) -> Any:
    """A program from its binary. Raises pyopencl's Error for one that the driver does not take."""
    program = self.cl._cl._Program(self.context, [self.device], [binary])
    program._build(OPTIONS.encode(), [self.device])
    return program

  def build_in_workers(self, specs: dict[str, ProgramSpec]) -> dict[str, ProgramSpec]:
    """Build new kernels in other processes. Gives those that are left to build here."""
    groups = deal(specs, pool.size())
    left: dict[str, ProgramSpec] = {}
    for group, binary in zip(groups, pool.build(self.name, [list(g.values()) for g in groups])):
      if binary is None:
        left.update(group)
        continue
      _, names = join(list(group.values()))
      try:
        unit = Unit(self.load_binary(binary), dict(zip(group, names)), launched=True)
      except self.cl.Error:
        left.update(group)
        continue
      keep(binary, unit.names)
      self.add(unit)
    return left

  def launched(self, unit: Unit, spec: ProgramSpec) -> None:
    """Note that a kernel of a new program has been launched; after the last of them the program can be saved."""
    unit.waiting.discard(self.key(spec))
    if unit.waiting: return
    unit.launched = True
    if not config.cache: return
    with self.lock: self.unsaved.append(unit)
    self.last = time.monotonic()
    if self.saver is None or not self.saver.is_alive():
      self.saver = threading.Thread(target=self._save_when_quiet, name="ntgrad-save-programs", daemon=True)
      self.saver.start()

  def _save_when_quiet(self) -> None:
    # the driver compiles one thing at a time: a save in between would hold up the next kernel
    while self.unsaved:
      wait = self.last + QUIET - time.monotonic()
      if wait > 0: time.sleep(wait)
      else: self._save_one()

  def _save_one(self) -> bool:
    with self.lock:
      if not self.unsaved: return False
      unit = self.unsaved.pop(0)
      self.finish()  # a kernel gets its machine code when the device comes to run it, which is long after the launch where others wait
      keep(binary_of(self.cl, unit.program), unit.names)
    return True

  def save(self) -> None:
    """Write the binaries of new programs to disk now; runs at exit."""
    while self._save_one(): pass

  def disassemble(self, spec: ProgramSpec) -> str:
    """The machine code of a kernel that has run, or a sentence that says why there is none."""
    unit = self.units.get(self.key(spec))
    if unit is None: return f"# no assembly of {spec.name}: it has not been compiled"
    name = unit.names[self.key(spec)]
    code = machine_code(binary_of(self.cl, unit.program), name)
    if code is None: return f"# no assembly of {spec.name}: the OpenCL driver keeps its machine code to itself"
    tool = shutil.which("objdump") or shutil.which("llvm-objdump")
    if tool is None: return f"# no assembly of {spec.name}: install objdump (binutils) to see it"
    with tempfile.NamedTemporaryFile(suffix=".so") as f:
      f.write(code)
      f.flush()
      out = subprocess.run([tool, "-d", "--no-show-raw-insn", "--no-addresses", f.name], capture_output=True, text=True).stdout
    sections = re.split(r"\n(?=<[^>]+>:\n)", out)
    mine = [x.rstrip() for x in sections if re.match(rf"<_pocl_kernel_{name}(_workgroup)?>", x)]
    return max(mine, key=len, default=out)  # the other one only calls it


def machine_code(binary: bytes, name: str) -> bytes | None:
  """The ELF file of kernel ``name`` in a program binary: the one for its own group size where there are several."""
  best: bytes | None = None
  at = binary.find(b"\x7fELF")
  while at >= 0:
    table, = struct.unpack_from("<Q", binary, at + 40)
    size, count = struct.unpack_from("<HH", binary, at + 58)
    elf = binary[at:at + table + size*count]
    generic = b"/0-0-0/" in binary[max(at - 200, 0):at]  # the file's path stands before it
    if f"_pocl_kernel_{name}_workgroup".encode() in elf and (best is None or not generic): best = elf
    at = binary.find(b"\x7fELF", at + 4)
  return best


def binary_of(cl: Any, program: Any) -> bytes:
  """The binary of a program of one device. Other threads run on meanwhile, where pyopencl's own call would hold them up."""
  try:
    get = ctypes.CDLL(cl._cl.__file__).clGetProgramInfo
  except (OSError, AttributeError):
    return bytes(program.get_info(cl.program_info.BINARIES)[0])
  get.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
  size = ctypes.c_size_t()
  if get(program.int_ptr, int(cl.program_info.BINARY_SIZES), ctypes.sizeof(size), ctypes.byref(size), None) or not size.value:
    return bytes(program.get_info(cl.program_info.BINARIES)[0])
  data = ctypes.create_string_buffer(size.value)
  where = ctypes.c_void_p(ctypes.addressof(data))
  if get(program.int_ptr, int(cl.program_info.BINARIES), ctypes.sizeof(where), ctypes.byref(where), None):
    return bytes(program.get_info(cl.program_info.BINARIES)[0])
  return data.raw


def workers_pay(specs: dict[str, ProgramSpec]) -> bool:
  """Whether building in worker processes ends sooner than building here: they must take binaries too, so two of them seldom win."""
  n = pool.size()
  if n < 2 or len(specs) < FEW: return False
  if config.workers: return True
  size = sum(max(1.0, len(s.source)/2000) for s in specs.values())
  return size*_BUILD > (0.05 if pool.alive() else _START) + size*(_BUILD + _SAVE)/n


def keep(binary: bytes, names: dict[str, str]) -> None:
  """Put on disk a program whose kernels have all run, and where each of them is found."""
  k = cache.key("program", sorted(names))
  if cache.store("opencl-program", k, binary):
    for spec_key, name in names.items():
      cache.store("opencl-kernel", spec_key, json.dumps({"program": k, "kernel": name}).encode())


def deal(specs: dict[str, ProgramSpec], workers: int) -> list[dict[str, ProgramSpec]]:
  """Groups of about equal work, at least one a worker, the longest sources first."""
  count = -(-len(specs)//GROUP)
  count = -(-count//workers)*workers
  groups: list[dict[str, ProgramSpec]] = [{} for _ in range(count)]
  weight = [0]*count
  for k, s in sorted(specs.items(), key=lambda item: -len(item[1].source)):
    i = weight.index(min(weight))
    groups[i][k] = s
    weight[i] += len(s.source) + 500
  return [g for g in groups if g]


def explain(spec: ProgramSpec, source: str, log: str) -> str:
  """An error message: the compiler's log and the lines of source that it names."""
  lines = source.split("\n")
  named = sorted({int(m) for m in re.findall(r":(\d+):\d+:", log)} & set(range(1, len(lines) + 1)))
  quoted = "\n".join(f"  {n:4d}  {lines[n - 1]}" for n in named[:8])
  return f"kernel {spec.name}: the OpenCL compiler refused the source\n{quoted}\n{log.strip()}"
