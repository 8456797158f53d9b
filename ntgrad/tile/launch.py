"""Calling a kernel: its arguments become memory, in order with everything else that reads and writes it."""
from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np

from ntgrad.backends.base import Program
from ntgrad.backends.specs import SPEC
from ntgrad.codegen import index as ix
from ntgrad.codegen.index.records import packed
from ntgrad.codegen.ir import DType, Ops, Recent, UOp, config, dtypes
from ntgrad.codegen.ir.errors import ArgumentError, DeviceError, DTypeError, GradientError, NtgradError, shown
from ntgrad.core import Base as Tensor
from ntgrad.engine import nan_checks
from ntgrad.engine.buffer import Buffer, Storage, number_buffer, slice_of
from ntgrad.engine.counters import phase
from ntgrad.engine.device import default_device
from ntgrad.engine.device_asserts import Checks, watch
from ntgrad.engine.observers import observers
from ntgrad.engine.plan import Step
from ntgrad.engine.realize import base_of, before_writing, captures, realize, rebased, run_step
from ntgrad.engine.report import timing
from ntgrad.engine.traced_sizes import traces
from ntgrad.graph import BoundInt, caller, mode, nodes as graph, origins, repeats, write_watchers

from .block import dtype_of
from .jagged import Jagged
from .open_sizes import Sizes
from .parameters import Parameter, is_meta

if TYPE_CHECKING:
  from .library import Built
  from .signature import Signature
  from .specialised import Specialised


Positional = Sequence[Any]   # arguments of a call: by position
ByName = Mapping[str, Any]   # and by name
Span = tuple[int, int]       # of elements in memory: the first, and the one behind the last
EVERYTHING: Span = (0, 1 << 62)   # more elements than any memory has
SlotPair = tuple[int, int]   # slots: of a parameter that is written, and of another that may be the same memory


class Argument(NamedTuple):
  """What a kernel is specialised for; ``jagged`` is a jagged tensor's dimension, shape in memory, and its offsets' dtype."""
  shape: Sizes
  dtype: DType
  jagged: tuple[int, Sizes, DType] | None = None


@dataclass(eq=False, repr=False)
class Launcher:
  """A compiled kernel on a device; ``sharing`` pairs may be the same memory, ``together`` gives the kernel for those that are.
  ``base`` is the launcher that one with certain ``sizes`` was made from."""
  kernel: str
  step: Step
  writes: Sizes
  names: tuple[str, ...]
  sharing: Callable[[], Sequence[SlotPair]]   # found when it is asked for: the application may have to be read again
  checks: Checks | None = None
  together: Callable[..., Launcher] | None = None
  static: Callable[..., Launcher | None] | None = None   # gives that of the kernel that has numbers for its sizes
  base: Launcher | None = None
  sizes: Sizes = ()
  reads: Callable[[], Sequence[Span]] | None = None   # gives what is read of each argument; None where nobody knows
  known: Recent[Sizes, Launcher] = field(default_factory=lambda: Recent(64), init=False)   # by sizes
  sizeless = False   # of a class: whether its arguments have the same sizes in all graphs that call it
  in_place = False   # of a class: whether what it writes may be what it reads

  def with_sizes(self, sizes: Sizes) -> Launcher:
    """The launcher for certain run-time sizes, the same one each time; of expressions of sizes, one for a plan of any."""
    bound = any([type(n) is BoundInt for n in sizes])   # which equal numbers that are not
    if (found := None if bound else self.known[sizes]) is None:
      if any([isinstance(n, UOp) for n in sizes]): step = replace(self.step, takes=tuple(map(ix.node, sizes)))
      else:
        program, given = self.step.program.variant(sizes)  # type: ignore[union-attr]
        step = replace(self.step, program=program, sizes=given)
      found = replace(self, step=step, together=self.together and partial(self.together, sizes=sizes),
                      static=self.static and partial(self.static, sizes), base=self, sizes=sizes)
      if not bound: self.known[sizes] = found
    return found

  @cached_property
  def program(self) -> Program:
    """What is launched."""
    assert self.step.program is not None
    return self.step.program

  def __repr__(self) -> str:
    """The kernel as it is compiled and how it is called: plans that call it are kept on disk under that. One that checks what it
    reads, or that is for any sizes, has memory and variants of its own, which no text tells."""
    if self.checks is not None or (spec := getattr(self.program, "spec", None)) is None: return object.__repr__(self)
    digest = hashlib.sha256(packed(SPEC, spec)).hexdigest()
    known = self.kernel, digest, self.writes, self.names, tuple(self.sharing()), self.sizes, replace(self.step, program=None)
    return f"Launcher{known}"


def describe_argument(a: Any) -> Argument:
  """Shape and dtype of an argument. Raises ArgumentError for what is no tensor."""
  if isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], (tuple, list)): return Argument(tuple(a[0]), dtype_of(a[1]))
  if isinstance(a, bool): return Argument((), dtypes.bool)
  if isinstance(a, int):
    if not -(1 << 63) <= a < 1 << 63: raise ArgumentError(f"{shown(a)} as an argument; numbers are int64 at most")
    return Argument((), dtypes.int32 if -(1 << 31) <= a < 1 << 31 else dtypes.int64)
  if isinstance(a, float): return Argument((), dtypes.float32)
  if isinstance(a, Jagged):
    entries = a.dim, tuple(map(int, a.values.shape)), describe_argument(a.offsets).dtype
    return Argument(a.shape, describe_argument(a.values).dtype, entries)
  shape, dtype = getattr(a, "shape", None), getattr(a, "dtype", None)
  if shape is None or dtype is None: raise ArgumentError(f"{shown(a)} is no argument; it takes a tensor, an array or a number")
  if not isinstance(dtype, DType):
    try: dtype = dtypes.of(dtype)
    except NtgradError: dtype = dtypes.of(str(dtype).rpartition(".")[2].removesuffix("fn"))   # torch.float32, torch.float8_e4m3fn
  return Argument(tuple(int(n) for n in shape), dtype)


def describe_arguments(kernel: Signature, args: Positional) -> list[Argument]:
  """The arguments of a call. Raises ArgumentError or DTypeError with the parameter's name for what is no tensor."""
  out = []
  for t, a in zip(kernel.takes, args):
    try: out.append(describe_argument(a))
    except NtgradError as e: raise type(e)(f"{kernel.name}: {t.name}: {e}") from None
  return out + [describe_argument(a) for a in args[len(kernel.given):]]


def _declared(kernel: str, name: str, dtype: DType | None, a: Any) -> Any:
  """An argument, a number in the declared dtype. Raises DTypeError (a float for ints) and ArgumentError (an int too large)."""
  if dtype is None or not isinstance(a, (bool, int, float, np.number, np.bool_)): return a
  kind = dtypes.of(a.dtype if isinstance(a, np.generic) else type(a)).kind
  if "buif".index(kind) > "buif".index(dtype.kind.replace("u", "i")):
    raise DTypeError(f"{kernel}: {name} has elements of {dtype}, got the number {shown(a)}; convert it")
  if dtype.kind in "iu" and not dtypes.min(dtype) <= a <= dtypes.max(dtype):
    raise ArgumentError(f"{kernel}: {name} is a {dtype}, from {dtypes.min(dtype)} to {dtypes.max(dtype)}, got {shown(a)}")
  return np.array(a, dtype.np)


def converted_arguments(kernel: Signature, args: Positional) -> list[Any]:
  """The arguments of a call, numbers of the dtypes that are declared, and ints where floats are declared as those."""
  takes = kernel.takes
  return [_as_floats(t, _declared(kernel.name, t.name, wanted(t, a), a)) for t, a in zip(takes, args)] + list(args[len(takes):])


def wanted(t: Any, a: Any) -> DType | None:
  """The dtype that a parameter declares for an argument; None where it takes that of the argument."""
  return dtypes.default_float if t._source.dtype is float and isinstance(a, (int, np.integer)) else t.element


def _as_floats(t: Any, a: Any) -> Any:
  """An argument, ints as the floats that its parameter declares. A tuple (shape, dtype) stays."""
  if t._source.dtype is not float and (t.element is None or t.element.kind != "f") or isinstance(a, (tuple, Jagged)): return a
  try: kind = describe_argument(a).dtype.kind
  except NtgradError: return a   # ``describe_arguments`` says what is wrong
  want: DType = t.element or dtypes.default_float
  if kind not in "iu": return a
  return Tensor._from_node(graph.cast(a.lazydata, want)) if isinstance(a, Tensor) else np.asarray(a).astype(want.np)


def launch(kernel: Signature, args: Positional, given: ByName) -> None:
  """Run a kernel on its arguments. To be called with the lock held."""
  if kernel.last is not None and kernel.reads is not None and not kernel.reads.hold(): kernel.read_otherwise()
  if given or len(args) != len(kernel.given): args, given = kernel.called(args, given)
  if others and not others.isdisjoint(map(type, args)): return launch_borrowed(kernel, args, given)
  try:   # a call like one before: all arguments are tensors in memory, or numbers
    try: nodes = [a.lazydata for a in args if a._state <= 0]
    except AttributeError:
      if not all([isinstance(a, _PLAIN) for a in args]): raise   # to go on below, where no error is being handled
      nodes = _with_numbers(kernel, args)
    key = *[n.arg.signature for n in nodes], config.noopt, config.allow_tf32, config.dynamic, config.checks, *given.items()
    found = kernel._launchers[key]
    if found is None: found = _sized(kernel, key, len(nodes))
  except (AttributeError, TypeError): found = None   # TypeError: a value that no key may have
  if found is not None and len(nodes) == len(args) and all([args[i]._alias.memory is nodes[i].arg for i in found.writes]):
    return run_launch(found, args, nodes)
  if all([isinstance(a, _PLAIN) for a in args]): _prepare(kernel, args, given)
  else: launch_borrowed(kernel, args, given)


def _sized(kernel: Signature, key: tuple[Any, ...], count: int) -> Launcher | None:
  """The launcher of a kernel for many sizes for ``count`` arguments whose sizes are new; None where there is none."""
  dims, alike = _alike(kernel, key, count)
  for of_shapes, launcher in kernel._sized[alike] or ():
    fits, *sizes = of_shapes(dims)
    if not fits: continue
    found: Launcher = launcher.with_sizes(tuple(sizes))
    kernel._launchers[key] = found
    return found
  return None


def _alike(kernel: Signature, key: tuple[Any, ...], count: int) -> tuple[list[int], tuple[Any, ...]]:
  """The sizes in a call's key, and what calls have in common that differ in sizes only (rounded up where the tuner chooses)."""
  dims = [d for signature in key[:count] for d in signature[0]]
  chosen = tuple([(d - 1).bit_length() for d in dims]) if config.tune and kernel.tuned else ()
  return dims, (*[(*signature[1:], len(signature[0])) for signature in key[:count]], chosen, *key[count:])


others: set[type] = set()   # types of other libraries' tensors that calls have had


def launch_borrowed(kernel: Signature, args: Positional, given: ByName) -> None:
  """Run a kernel on arguments some of which are other libraries': what they have on a GPU is worked on where it is."""
  known, of = borrowed()
  if (found := known(args, _PLAIN)) is not None:
    mine, device, stream = found
    if stream: device.follow(stream)
    launch(kernel, mine, given)
    if stream: device.precede(stream)
    return
  with of(args, _PLAIN, kernel) as mine:
    if all([a is b for a, b in zip(args, mine)]):
      _prepare(kernel, args, given)
      return
    others.update({type(a) for a, b in zip(args, mine) if a is not b and not isinstance(a, Jagged)})
    launch(kernel, mine, given)


@lru_cache(maxsize=1)
def borrowed() -> tuple[Any, Any]:
  """What is needed of ``foreign_tensors.py`` for a call: loaded by the first one with another library's tensors."""
  from .foreign_tensors import Borrowed, known_arguments
  return known_arguments, Borrowed


def _with_numbers(kernel: Signature, args: Positional) -> list[UOp]:
  """The nodes of arguments some of which are Python numbers. Raises AttributeError for anything else."""
  device: str = next((a.lazydata.arg.device for a in args if isinstance(a, Tensor)), None) or default_device()
  out = []
  for t, a in zip(kernel.takes, args):
    dtype = _NUMBERS.get(type(a))
    if dtype is None:
      if a._state > 0: raise AttributeError
      out.append(a.lazydata)
      continue
    want = wanted(t, a) or dtype
    if want is not dtype: a = _declared(kernel.name, t.name, want, a).item()
    elif dtype is dtypes.int32 and not -(1 << 31) <= a < 1 << 31:
      if not -(1 << 63) <= a < 1 << 63: raise AttributeError
      want = dtypes.int64
    out.append(number_buffer(device, want, a).node)
  return out


_PLAIN = Tensor, np.ndarray, np.generic, bool, int, float, Jagged   # what no other library is asked for
_NUMBERS = {bool: dtypes.bool, int: dtypes.int32, float: dtypes.float32}


def tune_for(kernel: Signature, args: Positional, given: ByName) -> Specialised | Built | None:
  """The kernel that a call would run, whose block sizes the tuner chooses now. To be called with the lock held."""
  with borrowed()[1](args, _PLAIN, kernel) as mine: return _prepare(kernel, mine, given, run=False)


def _prepare(kernel: Signature, args: Positional, given: ByName, run: bool = True) -> Specialised | Built | None:
  """Everything that a first call, or one with other things than tensors in memory, needs; the kernel, which is ``run``."""
  asked, args = args, converted_arguments(kernel, args)
  by_name = {t.name: a for t, a in zip(kernel.takes, args)}
  devices: dict[str, str] = {}
  for name, a in by_name.items():
    for t in (a.values, a.offsets) if isinstance(a, Jagged) else (a,):
      if isinstance(t, Tensor): devices.setdefault(t.device, name)
  if len(devices) > 1:
    where = " and ".join([f"{n} is on {d}" for d, n in sorted(devices.items())])
    raise DeviceError(f"{kernel.name}: {where}; move them to one device with .to()")
  device = devices.popitem()[0] if devices else kernel.device or default_device()
  back: list[Callable[[], None]] = []
  tensors: list[Tensor] = []
  def memory(s: Specialised | Built) -> list[Buffer]:
    if not tensors: tensors.extend(settled(kernel, s, by_name, device, back))
    return [_memory_of(t) for t in tensors]
  found = kernel._specialise(describe_arguments(kernel, args), args, given, device, memory)
  if found is None: return None   # no programs: some argument is empty
  specialised, sizes, form = found
  if not run: return specialised
  written = {p.name: p.dtype for p in specialised.parameters if p.written}
  for t, a, b in zip(kernel.takes, asked, args):
    if a is not b and t.name in written:
      raise DTypeError(f"{kernel.name}: {t.name} is written, and has elements of {written[t.name]}, got a tensor or number of "
                       f"{describe_argument(a).dtype}")
  kernel.last = specialised
  computed = all(base_of(a.lazydata).op is Ops.BUFFER and not a._alias.pending for a in args if isinstance(a, Tensor))
  if not tensors and not computed and call_later(specialised, sizes, by_name, device): return specialised
  nodes = [b.node for b in memory(specialised)]
  launcher = specialised.launcher(device, tuple([n.arg.align for n in nodes]), sizes)
  same = [type(a) in _NUMBERS or isinstance(a, Tensor) and a.lazydata is n for a, n in zip(asked, nodes)]
  if len(nodes) == len(args) and all(same):
    # as launch has it
    key = *[n.arg.signature for n in nodes], config.noopt, config.allow_tf32, config.dynamic, config.checks, *given.items()
    kernel._launchers[key] = launcher
    if form is not None and (of_shapes := form.of_shapes(kernel, [n.arg.shape for n in nodes])) is not None:
      _, alike = _alike(kernel, key, len(nodes))
      sized = specialised.launcher(device)
      kernel._sized[alike] = [*[f for f in kernel._sized[alike] or () if f[1] is not sized], (of_shapes, sized)]
  run_launch(launcher, tensors, nodes)
  for write_back in back: write_back()
  return specialised


def assert_flags(s: Specialised | Built, device: str) -> Tensor:
  """The argument in which a kernel notes which of its asserts failed."""
  return s.checks(device)[1]   # type: ignore[index,union-attr]  # a library's kernels have none


def _memory_of(t: Tensor) -> Buffer:
  """The memory of a tensor that is computed and lies there in one piece, in its shape."""
  if (piece := piece_of(t)) is not None: return piece
  u = rebased(t.lazydata)
  while u.op is Ops.RESHAPE: u = u.src[0]
  b: Buffer = u.arg
  if b.shape == t.shape: return b
  shaped = Buffer(b.device, t.shape, b.dtype, b.storage)
  shaped.version = b.version
  return shaped


def piece_of(t: Tensor) -> Buffer | None:
  """A tensor that is one piece of computed memory, as kernels read it from where it begins: ``x[2:5]``. None for any other."""
  return None if in_memory(t) or t._alias.pending else slice_of(rebased(t.lazydata))


def settled(of: Signature, s: Specialised | Built, given: ByName, device: str, back: list[Callable[[], None]]) -> list[Tensor]:
  """A kernel's arguments, given by name, as tensors in memory; ``back`` gets how results go back to where they came from."""
  out: list[Tensor] = []
  spans: list[tuple[str, Buffer]] = []   # what is written
  arrays: list[_Array] = []   # the arrays so far
  kernel = of.name
  for p in s.parameters:
    a = assert_flags(s, device) if p.notes else given[p.of or p.name]
    if isinstance(a, Jagged): a = a.offsets if p.of else a.values
    if is_meta(a) and p.slot not in s.touched: a = np.zeros((), p.dtype.np)   # what is not read needs no memory
    name, written = p.name, p.written
    t, write_back = as_tensor(kernel, name, a, device, written, arrays, lambda i=p.slot: s.reads[i])   # type: ignore[misc]
    if t._state > 0 and mode.grad:
      raise GradientError(f"{kernel}: {name} requires a gradient, which a kernel by itself has not; "
                          "use tile.function, or .detach() it")
    if written:
      t.realize()
      if t._alias.memory is None and base_of(t.lazydata).arg.storage.read_only:
        raise ArgumentError(f"{kernel}: {name} is written, and its memory is another library's and read-only; give it a copy "
                            "(.clone())")
      u = rebased(t.lazydata)
      if (piece := u.arg if u.op is Ops.BUFFER else slice_of(u)) is not None: spans.append((name, piece))
      if not in_memory(t):   # a part of memory: the kernel writes a copy, which goes back afterwards
        shown, t = t, t.detach().contiguous()
        back.append(lambda shown=shown, t=t: shown.detach().assign(t).realize())   # type: ignore[misc]
      elif t._alias.memory is None: t._alias.renew()   # memory of its own
    elif not in_memory(t) and not (of.pieces and piece_of(t) is not None): t = t.contiguous()   # it may be a piece
    out.append(t)
    if write_back is not None: back.append(lambda write_back=write_back, t=t: write_back(t.numpy()))   # type: ignore[misc]
  for (first, x), (second, y) in combinations(spans, 2):   # which of the two would stay?
    if x.storage is y.storage and x.offset < y.offset + y.nbytes and y.offset < x.offset + x.nbytes:
      raise ArgumentError(f"{kernel}: {first} and {second} overlap in memory, and both are written; "
                          f"give {second} memory of its own")
  bases = [base_of(t.lazydata) for t, p in zip(out, s.parameters) if p.written]   # some are copies that have not been made yet
  theirs = {u.arg.storage for u in bases if u.op is Ops.BUFFER}
  out = [t.contiguous() if (piece := piece_of(t)) is not None and piece.storage in theirs else t for t in out]
  realize([t for t in out if not in_memory(t) and piece_of(t) is None])
  return out


def run_launch(launcher: Launcher, tensors: Sequence[Tensor], nodes: Sequence[UOp]) -> None:
  """Launch; what was written is the next version of its memory."""
  buffers: list[Buffer] = []
  storages: list[Storage] = []
  raws: list[Any] = []
  for n in nodes:
    b = n.arg
    storage = b.storage
    if b.version != storage.version:
      raise DeviceError(f"{b} was overwritten by {b.gone or 'a kernel'}; this tensor holds an older version of it")
    buffers.append(b)
    storages.append(storage)
    raws.append(storage.raw if storage._raw is None else storage._raw)
  del n, b   # they would count as holders
  for i in launcher.writes:
    if storages.count(storages[i]) > 1 or storages[i].foreign:
      launcher = _together(launcher, storages, nodes)
      break
  for i in launcher.writes:
    if holders(nodes, i) > _ALONE:   # else only its tensor holds the node: nobody else reads it
      before_writing([storages[i]], [tensors[i]._alias])
  for i in launcher.writes:   # before the launch: an interrupt between the two leaves the old contents under a new version
    alias = tensors[i]._alias
    # nobody else can ask for the old contents: the buffer goes on as the new version of itself
    if holders(nodes, i) <= _ALONE and holders(buffers, i) <= _ALONE + 1:   # its node's key has the buffer too
      storage = buffers[i].storage
      storage.version += 1
      buffers[i].version = storage.version
    else: alias.overwritten(f"a kernel called at {caller()}")
    for note in write_watchers: note(alias)
  if captures or observers or config.debug >= 2 or launcher.step.offsets:
    line = origins.origin_now() if observers else None
    made = ((line, launcher.kernel),) if line is not None else ()
    with phase("running"): run_step(launcher.step, buffers, timing([launcher.step], [made]), made)
  elif launcher.step.sizes: launcher.program(raws, False, launcher.step.sizes)
  else: launcher.program(raws)
  if launcher.checks is not None: watch(launcher.checks)
  if config.check_nan: nan_checks.check_kernel(launcher.kernel, launcher.names, launcher.step, buffers)


def holders(things: Sequence[Any], i: int) -> int:
  """How many references there are to an element of a sequence, Python's own included."""
  return sys.getrefcount(things[i])


def _alone() -> int:
  """``holders`` of what a list and two other objects hold (an Alias and its tensor, or its node)."""
  x = object()
  other = [x]
  return holders([x, other], 0)


_ALONE = _alone()


def in_memory(t: Tensor) -> bool:
  """Whether a tensor's value is computed and is a whole piece of memory in order."""
  u = rebased(t.lazydata)
  while u.op is Ops.RESHAPE: u = u.src[0]
  return u.op is Ops.BUFFER and not t._alias.pending


# an argument's name, the array, whether it is written, what is read of it, and the tensor of it
_Array = tuple[str, np.ndarray, bool, Callable[[], Span], Tensor]


def as_tensor(kernel: str, name: str, a: Any, device: str, written: bool,
              arrays: list[_Array],
              reads: Callable[[], Span] = lambda: EVERYTHING) -> tuple[Tensor, Callable[[np.ndarray], None] | None]:
  """An argument as a tensor in memory, and how to bring back what is written. ``arrays`` before it; it is added to them.
  ``reads`` gives what is read of it."""
  if isinstance(a, Tensor): return a, None
  if isinstance(a, (bool, int, float)):
    if written: raise ArgumentError(f"{kernel}: {name} is written, and got the number {a!r}; give it a tensor or an array")
    return Tensor._from_node(number_buffer(device, describe_argument(a).dtype, a).node), None
  if isinstance(a, (np.ndarray, np.generic)): array = np.asarray(a)
  elif is_meta(a): raise ArgumentError(f"{kernel}: {name} is a meta tensor, which has no memory, and the kernel uses it")
  else:
    from ntgrad.engine import interchange
    if not interchange.speaks(a):
      raise ArgumentError(f"{kernel}: {name} is a Tensor, a numpy array, a number or another library's tensor, got "
                          f"{type(a).__name__}")
    theirs = interchange.take(a)
    if theirs.kind == interchange.CUDA:
      if written: raise ArgumentError(f"{kernel}: {name} is written, as a part of another argument; give it as an ntgrad.Tensor")
      return Tensor._from_node(interchange.adopt(theirs)), None
    array = theirs.array()
  found = beside(kernel, name, array, written, arrays, reads)
  t = found if found is not None else Tensor._from_node(Buffer.from_numpy(device, array).node)
  arrays.append((name, array, written, reads, t))
  if not written: return t, None
  if not array.flags.writeable: raise ArgumentError(f"{kernel}: {name} is written, and the array is read-only")
  def back(result: np.ndarray) -> None: array[...] = result
  return t, back


def beside(kernel: str, name: str, array: np.ndarray, written: bool, arrays: Sequence[_Array],
           reads: Callable[[], Span]) -> Tensor | None:
  """The tensor of an array that is the memory of one before it, where one of the two is written: the same memory on the device
  too. None where it is its own, or nothing is read of the other where it is written. Raises ArgumentError for arrays that overlap
  otherwise."""
  for other, known, also, known_reads, t in arrays:
    if not (written or also) or not np.may_share_memory(array, known): continue
    try:
      if not np.shares_memory(array, known, max_work=10_000): continue  # type: ignore[arg-type]  # any number
    except np.exceptions.TooHardError: pass
    whole = array.flags.c_contiguous and known.flags.c_contiguous and (array.nbytes, array.dtype) == (known.nbytes, known.dtype)
    if array.ctypes.data != known.ctypes.data or not whole and \
        (array.shape, array.strides, array.dtype) != (known.shape, known.strides, known.dtype):
      if written is not also and _apart(*((array, known, known_reads) if written else (known, array, reads))): continue
      a, b = (name, other) if written else (other, name)
      raise ArgumentError(f"{kernel}: {a} and {b} overlap in memory: what one program writes others read; "
                          f"give {a} memory of its own")
    if array.shape == known.shape: return t
    memory = t.lazydata.arg
    return Tensor._from_node(Buffer(memory.device, array.shape, memory.dtype, memory.storage).node)
  return None


def _apart(written: np.ndarray, other: np.ndarray, reads: Callable[[], Span]) -> bool:
  """Whether what is read of another array, its elements in order, lies outside of a written one."""
  first, last = reads()
  if first == last: return True
  if not other.flags.c_contiguous: return False
  low, high = np.lib.array_utils.byte_bounds(written)
  begin, size = other.ctypes.data, other.itemsize
  return begin + last * size <= low or high <= begin + first * size


def _together(launcher: Launcher, storages: Sequence[Storage], nodes: Sequence[UOp]) -> Launcher:
  """What to launch where a written argument may be another one's memory too: the kernel for it. Raises ArgumentError where what
  one program writes others would read."""
  shared: list[SlotPair] = []
  for w in launcher.writes:
    for i, other in enumerate(storages):
      if i == w or not storages[w].overlaps(other): continue
      if i not in launcher.writes and launcher.reads is not None and storages[w] is not other:
        (first, last), size, begin = launcher.reads()[i], nodes[i].arg.dtype.itemsize, storages[w].begin - other.begin
        if first == last or begin + storages[w].nbytes <= first * size or last * size <= begin: continue
      same = storages[w] is other or (storages[w].begin, storages[w].nbytes) == (other.begin, other.nbytes)
      if same and (w, i) in launcher.sharing() and launcher.together is not None:
        shared.append((w, i))
        continue
      # what must be kept has a number of elements
      if same and launcher.static is not None and launcher.step.sizes and (numbers := launcher.static()) is not None:
        return _together(numbers, storages, nodes)
      a, b = launcher.names[w], launcher.names[i]
      what = "are the same memory" if same else "overlap in memory"
      raise ArgumentError(f"{launcher.kernel}: {a} and {b} {what}: what one program writes others read; "
                          f"give {a} memory of its own")
  return launcher.together(shared=tuple(shared)) if shared and launcher.together is not None else launcher


# ---- arguments that are not computed yet
#     x = a + b                 # not computed
#     kernel(x, out)            # out is CALL(out, x, out): what it holds after the kernel has run
#     out.sum().item()          # one schedule: x, the kernel, the sum
# What a kernel writes is the next version of its argument, as with every other write. So whoever needs the old one has it, other
# results of the kernel are computed with the one that is asked for, and a call whose results nobody asks for does not run.

def call_later(s: Specialised, sizes: Sizes, given: ByName, device: str) -> bool:
  """Make what a kernel writes the next version of these arguments. False where the call has to be made at once: for arrays, for
  arguments that share memory, need a gradient or have sizes of Variables, for kernels that check what they compute, or print."""
  # what is traced says which sizes a launch takes
  if traces or s.kernel.prints or any(p.notes or p.of for p in s.parameters): return False
  arguments = [(p, given[p.name]) for p in s.parameters]
  tensors = [(p, a) for p, a in arguments if isinstance(a, Tensor)]
  if any(t._state > 0 or any(type(n) is BoundInt for n in t.shape) for _, t in tensors): return False
  if any(not isinstance(a, Tensor) and (p.written or getattr(a, "shape", ()) != ()) for p, a in arguments): return False  # arrays
  written = [(p.slot, t) for p, t in tensors if p.written]
  if not written or any(repeats(t._view) or t._alias.packed is not None or not _plain(t) for _, t in written): return False
  if _share(tensors): return False
  # a number of a declared dtype is an array
  def number(a: Any) -> Any: return a.item() if isinstance(a, (np.ndarray, np.generic)) else a
  nodes = [rebased(a.lazydata) if isinstance(a, Tensor) else number_buffer(device, p.dtype, number(a)).node for p, a in arguments]
  launcher = s.launcher(device, (), sizes)
  empty = tuple([slot for slot, _ in written if (u := nodes[slot]).op is Ops.BUFFER and not u.arg.allocated])
  results = [(t, result_of(launcher, nodes, slot, empty, device)) for slot, t in written]
  for t, value in results: t._write("a kernel called", value)
  return True


def result_of(launcher: Launcher, nodes: Sequence[UOp], slot: int, empty: Sizes, device: str) -> UOp:
  """What an argument of a call holds after it; ``empty`` are those whose memory has no values before."""
  u = nodes[slot]
  return origins.note_origin(graph.make(Ops.CALL, u.dtype, (u, *nodes), (launcher, slot, empty), u.shape, device))


def _plain(t: Tensor) -> bool:
  """Whether a tensor is not the memory of another library, which is written when a kernel returns."""
  base = base_of(t.lazydata)
  memories = [base.arg if base.op is Ops.BUFFER else None, t._alias.memory]
  return not any(m is not None and m.storage.foreign for m in memories)


def _share(tensors: Sequence[tuple[Parameter, Tensor]]) -> bool:
  """Whether some memory that is written is another argument's too."""
  def places(t: Tensor) -> set[int]:
    base = base_of(t.lazydata)
    return {id(t._alias), id(base.arg.storage if base.op is Ops.BUFFER else t._alias)}
  found = [(p.written, places(t)) for p, t in tensors]
  return any(i != j and w & t for i, (writes, w) in enumerate(found) if writes for j, (_, t) in enumerate(found))
