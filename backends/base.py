"""What a backend is: a renderer, a compiler and a runtime behind one device object. The engine knows devices only through these
classes. A device that lacks a capability inherits what says so: DeviceError, None or False where the engine has another way."""
from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence, TypeAlias

import numpy as np

from ntgrad.codegen.choose.bound import Work
from ntgrad.codegen.index import Size, evaluator, size_text
from ntgrad.codegen.ir import CompileError, DeviceError, DType, Target, UOp

Sizes: TypeAlias = tuple[int, ...]       # the numbers that a launch gives for its kernel's sizes
Grid: TypeAlias = tuple[int, int, int]   # programs in each dimension
Raw: TypeAlias = Any   # an allocation, as its device has it: an array of bytes, an OpenCL buffer, an address


@dataclass(frozen=True)
class KernelSource:
  """A kernel as a renderer wrote it, with all that its compiler must know of it: only people and compilers read the text."""
  text: str                                     # the whole source
  # name and type of each parameter, as its compiler takes them: buffers in slot order, then sizes, then where parts begin
  signature: tuple[tuple[str, str], ...] = ()
  options: tuple[tuple[str, int], ...] = ()   # for the compiler, from what the kernel does; after those of a ProgramSpec
  helpers: tuple[str, ...] = ()   # declarations and functions that the kernel uses, each after those that it uses itself
  parts: tuple[tuple[int, int], ...] = ()   # slot and alignment in bytes of each param that begins where a launch says
  kernel: tuple[str, str] = "", ""            # the text without them: what stands before the kernel's name, and what after it
  weight: float = 1.0                           # about how many small kernels it is worth to a compiler
  sizes: tuple[DType, ...] = ()   # dtypes of the sizes that a launch gives, in the order of ``ProgramSpec.sizes``

  @cached_property
  def digest(self) -> str:
    """Stands for the text in keys."""
    return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class ProgramSpec:
  """A kernel ready to compile: everything that a disk cache keeps of it."""
  name: str
  source: KernelSource                   # the numpy backend runs ``uops``
  grid: tuple[int | UOp, ...]            # GRID sizes, dimension 0 fastest, padded to 3 by the runtime: ints, or over SIZEs
  local: tuple[int, ...]                 # LOCAL sizes
  nparams: int                           # buffers, in slot order
  uops: tuple[UOp, ...] = ()             # the linear program (numpy runs it; others keep it for DEBUG=5)
  work: Work = Work()                    # what a launch does at least; over SIZEs as the grid is
  options: tuple[tuple[str, int], ...] = ()   # for the compiler: ("num_warps", 8); others leave it to the device
  sizes: tuple[Size, ...] = ()           # what a launch gives numbers for: those of ``codegen.sizes.arguments(uops)``
  given: str = field(default="", compare=False)   # the label that the engine gave it: no part of what it is, nor of caches' keys
  # of a kernel that was read from the disk: makes it anew, where what was read does not compile
  again: Callable[[], ProgramSpec | None] | None = field(default=None, compare=False, repr=False)

  def __getstate__(self) -> dict[str, Any]: return {**self.__dict__, "again": None}   # for this process alone

  @property
  def label(self) -> str: return self.given or self.name   # the name that messages have

  @property
  def text(self) -> str:
    """The source for people to read, with the kernel's label in place of its name."""
    text = self.source.text
    return text if self.label == self.name else re.sub(rf"\b{re.escape(self.name)}\b", self.label, text)


Specs: TypeAlias = Sequence[ProgramSpec]


def remade(spec: ProgramSpec, error: CompileError) -> ProgramSpec:
  """What to compile in place of a kernel from the disk that does not compile. Raises the error where it is the same made anew."""
  new = spec.again() if spec.again is not None else None
  if new is None or new.source == spec.source: raise error
  return replace(new, options=spec.options, given=spec.given)


def size_names(sizes: Iterable[Size], taken: Callable[[str], bool]) -> dict[Size, str]:
  """What each size is called in a source: ``N``, ``N_16`` for one in units of 16; something like it where that is ``taken``."""
  out = dict[Size, str]()
  for size in sizes:
    name = re.sub(r"[\W_]+", "_", size.name, flags=re.ASCII).strip("_") + (f"_{size.unit}" if size.unit != 1 else "")
    if taken(name) or not name[:1].isalpha(): name = f"size_{name}"
    while taken(name) or name in out.values(): name += "_"
    out[size] = name
  return out


def grid_of(spec: ProgramSpec) -> Callable[[Sequence[int]], Grid]:
  """The three dimensions of a launch's grid, 0 or more, as a function of its sizes, which raises DeviceError for other counts."""
  evaluate, count = evaluator((*spec.grid, 1, 1, 1)[:3], spec.sizes), len(spec.sizes)

  def grid(sizes: Sequence[int]) -> Grid:
    if len(sizes) != count:
      raise DeviceError(
        f"kernel {spec.label} takes {count} sizes ({', '.join(map(size_text, spec.sizes)) or 'none'}), got {len(sizes)}")
    x, y, z = evaluate(sizes)
    return max(x, 0), max(y, 0), max(z, 0)
  return grid


class Renderer:
  """Linear UOps to source."""
  target: Target
  settings: tuple[Any, ...] = ()   # what sources depend on beside the target, the device and ``config``: part of caches' keys

  def render(self, name: str, uops: Sequence[UOp], notes: Sequence[str] = ()) -> KernelSource:
    """The source of a kernel called ``name``; ``notes`` are comments. Raises CompileError for what the target cannot express."""
    raise NotImplementedError


class Program:
  """A compiled kernel. Calling it launches and returns; with ``wait`` it returns the seconds that the device took. ``quick``:
  whether it was built without optimisation, and an optimised one may take its place; ``apart``: whether each launch is made by
  itself, as part of no :class:`Graph`; ``recorded``: whether it is another library's work, which a Graph has it ``record``."""
  quick = apart = recorded = False

  def __call__(self, buffers: Sequence[Raw], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Launch with a raw allocation a param, in slot order, and an int for each size of the spec; of an empty grid nothing."""
    raise NotImplementedError

  def ready(self) -> None:
    """Wait until it can be launched at once; for devices that compile when a kernel is needed. Raises CompileError."""

  def optimised(self) -> None:
    """Wait until it is what it will be: devices may build a program quickly first, and replace it. Raises CompileError."""
    self.ready()

  def record(self, stream: int, buffers: Sequence[Raw]) -> None:
    """Put a launch into a stream, for a Graph that will repeat it. Raises what the other library does."""
    raise NotImplementedError

  def before(self) -> None: """A Graph that has it is about to be launched. Raises what forbids that."""
  def after(self) -> None: """That has been launched."""

  def clone(self) -> Program:
    """The same kernel with arguments of its own, as each step of a replay has one: few of them are set again then."""
    return self


class ProgramAround(Program):
  """What launches ``program`` and does something beside, such as comparing results. It has that one's spec."""
  program: Any

  @property
  def spec(self) -> ProgramSpec: return self.program.spec

  def ready(self) -> None: self.program.ready()


class Argument(NamedTuple):
  """Where an argument of a launch lies: in which of the allocations that a :class:`Graph` is called with; the piece of it that is
  the buffer, from byte ``place`` on (``nbytes`` 0: all of it); its first byte there. ``moves``: a call's ``begins`` are added."""
  memory: int
  place: int = 0
  nbytes: int = 0
  offset: int = 0
  moves: bool = False


@dataclass(frozen=True)
class Node:
  """One launch of a :class:`Graph`: its arguments in slot order, and the numbers of the launches that it comes after."""
  program: Program
  args: Sequence[Argument]
  after: Sequence[int] = ()
  sizes: Sizes = ()


class Graph:
  """Launches that a device takes all at once. Those that do not depend on one another may run at the same time."""

  def ready(self) -> bool:
    """Whether it can be called; if not, each launch has to be made by itself."""
    return True

  def __call__(self, memory: Sequence[Raw], begins: Sequence[int] = ()) -> None:
    """Launch everything on these allocations and return. ``begins``: the byte of each at which arguments begin that move. Raises
    DeviceError when the device refuses; nothing has been launched then."""
    raise NotImplementedError

  def change(self, node: int, args: Sequence[Argument], sizes: Sizes) -> None:
    """Give a launch other places and ``sizes``, and with them another grid, from the next call on. Raises DeviceError."""
    raise NotImplementedError


class Device:
  """One device: memory, compiler, launches. Raw allocations are opaque to the engine. ``allocated`` and ``peak`` are bytes asked
  for and not yet given back, now and at most; ``pooled`` bytes are kept for reuse, of ``memory``."""
  name: str
  identity: str             # the hardware and its driver: what was measured here is kept for them alone
  renderer: Renderer
  allocated = peak = pooled = memory = 0
  fresh = False   # whether the disk cache had nothing that was compiled for its driver when it was opened
  lost = ""   # why it cannot be used any more in this process

  def alloc(self, nbytes: int) -> Raw:
    """A raw allocation of at least ``nbytes`` (≥ 1), not initialised, aligned to 64 bytes. Raises OutOfMemoryError."""
    raise NotImplementedError

  def free(self, raw: Raw, nbytes: int) -> None:
    """Give an allocation back (kept for reuse). Work already launched on it still completes."""
    raise NotImplementedError

  def trim(self) -> None: """Give memory that is kept for reuse back to the system."""

  def part(self, raw: Raw, offset: int, nbytes: int) -> Raw:
    """A piece of an allocation, usable as one of its own while that lives; ``offset`` is a multiple of 512."""
    raise NotImplementedError

  def at(self, raw: Raw, offset: int) -> Raw:
    """An argument of a launch: what lies in an allocation from byte ``offset`` on, for a param that has an ``align``."""
    raise NotImplementedError

  def reset_peak(self) -> None: self.peak = self.allocated

  def copy_from(self, raw: Raw, source: Device, source_raw: Raw, nbytes: int) -> bool:
    """Copy an allocation of another device, in order with what both have launched; False where it has to go through the host."""
    return False

  def copyin(self, raw: Raw, data: np.ndarray) -> None:
    """Host to device; ``data`` is a flat contiguous array of uint8 and may be changed after the call."""
    raise NotImplementedError

  def copyout(self, raw: Raw, nbytes: int) -> np.ndarray:
    """Device to host after all earlier launches: a fresh flat uint8 array. ``raw`` may be what ``at`` gives."""
    raise NotImplementedError

  def compile(self, specs: Specs) -> list[Program]:
    """Compile many kernels at once; from the disk cache where it has them."""
    raise NotImplementedError

  @contextmanager
  def expecting(self, kernels: int) -> Iterator[None]:
    """In the block so many kernels may be compiled, one after the other, before one of them is launched."""
    yield

  def builds_anywhere(self) -> Callable[..., bytes] | None:
    """What builds kernels in another process, if that may: a function of this device's name, their specs, and whether they are to
    be there quickly rather than optimised. It gives what ``take_built`` takes."""
    return None

  prepare: Callable[..., bytes] | None = None   # called like that without specs it makes a process ready to compile

  def take_built(self, specs: Specs, packed: bytes) -> Any:
    """Know kernels that another process has built, while somebody has what this gives, or launches them."""

  def pack(self, specs: Specs) -> bytes:
    """Kernels compiled ahead of time, as bytes. Raises DeviceError where the device has none."""
    raise DeviceError(f"{self.name} has no binaries that could be kept")

  def unpack(self, data: bytes, specs: Specs) -> None:
    """Take in kernels that :meth:`pack` made, for ``compile`` to find. Raises StateError for what this device does not take."""
    raise DeviceError(f"{self.name} has no binaries that could be kept")

  def graph(self, nodes: Sequence[Node]) -> Graph | None:
    """A graph of launches that will be repeated; None where the device can only launch each by itself. Raises CompileError."""
    return None

  def optimise(self) -> None: """Have all programs that were built quickly optimised, and wait for that."""

  def synchronize(self) -> None:
    """Wait for everything launched."""
    raise NotImplementedError

  def forked(self) -> None:
    """Called in a forked process. A device that cannot be used there is ``lost``: its methods but ``free`` raise DeviceError."""

  # ---- memory shared with other libraries; the methods as they stand are right for memory of the host
  dlpack = 1, 0   # DLPack's device type and number of what ``address`` gives

  def enter(self) -> None: """Make it this thread's current device, where its driver has such a thing."""

  def adopt(self, address: int, nbytes: int) -> Raw | None:
    """A raw allocation over memory that another library owns, at a multiple of 64 bytes. None where the device cannot use it."""
    return None

  def address(self, raw: Raw, nbytes: int) -> int:
    """The address of an allocation for other libraries; on the host all that was launched has ended. 0: they cannot use it."""
    return 0

  def stream_handle(self) -> int | None:
    """The stream that launches go to, for libraries that order their own work with it."""
    return None

  def follow(self, stream: int) -> None: """What is launched from now on comes after everything in another library's stream."""

  def precede(self, stream: int | None) -> None:
    """What another library puts into a stream from now on comes after everything launched here. None: into any stream."""
    self.synchronize()

  def let_go(self, owner: object) -> None:
    """Drop an object that keeps adopted memory alive, once nothing launched here uses that memory any more."""
    self.synchronize()

  def settle(self) -> None:
    """Wait for everything on the device, other libraries' work too, so that memory they used may be used again."""
