"""Memory of a tensor: allocated on first use, given back when nobody holds it."""
from __future__ import annotations

import gc
import math
import threading
from functools import lru_cache
from itertools import count
from typing import Any, Iterable
from weakref import WeakKeyDictionary, WeakSet, ref

import numpy as np

from ntgrad.backends import memory_pool as pools
from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import MOVEMENT, CaptureError, DType, NtgradError, Ops, OutOfMemoryError, UOp, dtypes, live_nodes, prod
from ntgrad.codegen.ir.elementwise import make
from ntgrad.graph import BoundInt, caller, live_aliases, values
from ntgrad.graph.buffer_names import BufferNames
from ntgrad.graph.origins import blame_caller
from ntgrad.schedule.placement import PART_ALIGN_BYTES, alignment, consecutive

from .counters import phase
from .device import LATE, get_device, waited
from .observers import observers

LARGE_BYTES = 1 << 20   # bytes of an allocation of which it is known where it was made
_serials = count()
# recording.Watch: told (``wrote``, ``read``, ..) of all that passes between host and buffers, while ntgrad.jit runs a function
transfer_watchers: list[Any] = []
being_recorded: list[Any] = []             # those of them that are a recording.Recorder
_LARGEST = 10                              # allocations that are named where memory has run out
overwritten: WeakSet[Buffer] = WeakSet()   # versions that something still refers to though they are gone


def refuse_recording(what: str, then: str = "which a replay does not repeat; call it outside of the captured function") -> None:
  """Raises CaptureError where this thread records: ``what`` is no work of a device, so replays would not do it."""
  for r in being_recorded:
    if r.thread == threading.get_ident(): raise CaptureError(f"jit {r.name}: {what}, {then}")


class Storage:
  """A piece of device memory, allocated when ``raw`` is first asked for, given back when the last Buffer that shares it is gone.
  ``serial`` is its number in the order of making, ``version`` how often it has been written in place, ``writer`` the Alias that
  writes it, if there is one. ``foreign``: another library sees it too, and may write it."""
  __slots__ = "device", "nbytes", "serial", "version", "writer", "foreign", "place", "_raw", "_owner", "__weakref__"
  read_only = False   # a flag of the class: only another library's memory may be
  address = 0         # where other libraries' memory lies

  def __init__(self, device: str, nbytes: int):
    self.device, self.nbytes, self.serial, self.version = device, max(int(nbytes), 1), next(_serials), 0
    self.writer: ref[Any] | None = None
    self.foreign, self.place = False, ""   # where a large one was made, in the user's code
    self._raw: Any = None
    self._owner: Any = None

  def overlaps(self, other: Storage) -> bool:
    """Whether some byte is in both."""
    if self is other: return True
    if self.device != other.device or not (self.foreign and other.foreign): return False
    a, b = self.begin, other.begin
    return a < b + other.nbytes and b < a + self.nbytes

  @property
  def begin(self) -> int:
    """The address of memory that another library sees too."""
    return self.address or self._owner.address(self.raw, self.nbytes)

  @property
  def raw(self) -> Any:
    """The device's allocation, made now if there is none."""
    if self._raw is None:
      self._owner = get_device(self.device)
      try: self._raw = self._owner.alloc(self.nbytes)
      except OutOfMemoryError as e:
        raise OutOfMemoryError(f"{e}\nthe largest that {self.device} has:\n{largest(self.device)}") from None
      for o in observers: o.allocated(self)
    return self._raw

  def release(self) -> None:
    """Give the memory back now."""
    if self._raw is not None:
      raw, self._raw = self._raw, None
      for o in observers: o.released(self)
      self._owner.free(raw, self.nbytes)

  def __del__(self) -> None:
    try: self.release()
    except Exception: pass   # at interpreter exit the device may be gone


def largest(device: str) -> str:
  """A line each for the largest allocations, for errors: bytes, what lies there, where it was made or written."""
  held: dict[Storage, str] = {}
  names = BufferNames()
  for a in live_aliases:
    u = resolved(a.node if a.memory is None else a.memory.node)
    if u.op is not Ops.BUFFER: continue
    by = f", written by {a.place}" if a.place and a.memory is not None else ""
    held[u.arg.storage] = f"{names.of(u) or 'a tensor'} of shape {u.shape} ({u.dtype}){by}"
  found = sorted([s for s in gc.get_objects() if issubclass(type(s), Storage) and not s.foreign and s._raw is not None
                  and s.device == device], key=lambda s: -s.nbytes)
  lines = [f"  {s.nbytes:14,}  {held.get(s, 'what is computed at the moment, or kept for gradients or a jit')}"
           f"{f', made by {s.place}' if s.place else ''}" for s in found[:_LARGEST]]
  if rest := sum(s.nbytes for s in found[_LARGEST:]): lines.append(f"  {rest:14,}  in {len(found) - _LARGEST} more")
  return "\n".join(lines)


class Adopted(Storage):
  """Memory of another library at ``address``, kept by ``owner``, not the device's pool. Written in place unless ``read_only``."""
  __slots__ = "read_only", "owner", "address"

  def __init__(self, device: str, nbytes: int, raw: Any, owner: Any, read_only: bool, address: int):
    super().__init__(device, nbytes)
    self.address, self.foreign = address, True
    self._raw, self._owner, self.owner, self.read_only = raw, get_device(device), owner, read_only

  def release(self) -> None:
    """Let go of the owner, once the device has done what was launched on its memory."""
    self._raw, owner, self.owner = None, self.owner, None
    if owner is not None: self._owner.let_go(owner)


class Buffer:
  """``shape`` elements of ``dtype`` on ``device``: one *version* of a Storage. Compared by identity. Writing in place makes a
  new Buffer over the Storage: a graph of the old contents never looks like one of the new."""

  __slots__ = ("device", "shape", "dtype", "signature", "storage", "version", "rng_count", "rng_from", "node_ref", "known",
               "gone", "offset", "align", "between", "__weakref__")

  def __init__(self, device: str, shape: tuple[int, ...], dtype: DType, storage: Storage | None = None):
    self.device, self.shape, self.dtype = device, shape, dtype
    self.offset = self.align = 0        # of a part of a storage that kernels read: its first byte, and the align of a Param
    self.storage = Storage(device, prod(shape) * dtype.itemsize) if storage is None else storage
    self.signature: tuple[Any, ...] = shape, dtype, device
    if self.storage.read_only: self.signature += ("read-only",)   # other kernels take it
    self.rng_count = 0                  # for a random generator's state: how many numbers it stands for
    self.rng_from: Any = None           # and whose; None: the default generator's
    self.version, self.gone = self.storage.version, ""   # what wrote over it
    self.node_ref: ref[UOp] | None = None
    self.known: list[int] = []          # the graph nodes whose value it is, by id: their entries in ``values``
    # of ints that came from the host: the version that these are, the least and the greatest
    self.between: tuple[int, int, int] | None = None

  @property
  def stale(self) -> bool:
    """Whether a later version has been written over it."""
    return self.version != self.storage.version
  def is_value_of(self, node: UOp, seen: UOp | None = None) -> None:
    """The value of a graph node is here (``seen``: a view of here) from now on."""
    values.put(node, self.node if seen is None else seen)
    self.known.append(id(node))

  def overwritten(self, what: str) -> Buffer:
    """``what`` has written over the memory: the next version. Nodes whose value was here are computed again where needed."""
    self.storage.version += 1
    self.gone = what
    overwritten.add(self)
    for i in self.known:
      if (entry := values.known.get(i)) is None: continue
      u = entry.value   # of a younger node in an older one's place it is anything: an operation on memory, or on none
      while u.src and (u.op in MOVEMENT or u.op is Ops.DETACH): u = u.src[0]
      if u.arg is self: values.known.pop(i, None)
    self.known.clear()
    return self.again()

  def again(self) -> Buffer:
    """The same memory as it is now, as another Buffer."""
    b = Buffer(self.device, self.shape, self.dtype, self.storage)
    b.rng_count, b.rng_from = self.rng_count, self.rng_from
    return b

  @property
  def size(self) -> int: return prod(self.shape)
  @property
  def nbytes(self) -> int: return self.size * self.dtype.itemsize
  @property
  def allocated(self) -> bool: return self.storage._raw is not None
  @property
  def raw(self) -> Any: return self.storage.raw

  @property
  def node(self) -> UOp:
    """The BUFFER node of this buffer."""
    if self.node_ref is None or (found := self.node_ref()) is None:
      found = make(Ops.BUFFER, self.dtype, (), self, self.shape, self.device)
      self.node_ref = ref(found)
    return found

  @staticmethod
  def from_numpy(device: str, array: np.ndarray) -> Buffer:
    """A buffer with the values of ``array`` (any layout), of its shape and dtype."""
    b = Buffer(device, tuple(array.shape), dtypes.of(array.dtype))
    if b.storage.nbytes >= LARGE_BYTES: b.storage.place = f"the host's data at {caller()}"
    b.write(array)
    if array.dtype.kind in "iu" and 0 < array.size <= LARGE_BYTES:   # (the methods take more time on few numbers)
      b.between = b.version, int(np.minimum.reduce(array, axis=None)), int(np.maximum.reduce(array, axis=None))
    return b

  def write(self, array: np.ndarray) -> None:
    """Replace the contents; the array's bytes must be as many as the buffer's."""
    for w in transfer_watchers: w.wrote(self, array)
    self.put(array)

  def put(self, array: np.ndarray) -> None:
    """``write`` that nobody is told of."""
    self.between = None
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if flat.nbytes:
      raw = self.raw
      with phase("copies"): self.storage._owner.copyin(raw, flat)

  def take(self, source: Buffer) -> None:
    """Copy the contents of a buffer of as many bytes on any device."""
    if not self.nbytes: return
    to, by = self.raw, source.raw
    with phase("copies"): copy_between(self.storage._owner, to, source.storage._owner, by, self.nbytes)

  def numpy(self) -> np.ndarray:
    """The contents as a fresh array of the buffer's shape, after everything launched."""
    for w in transfer_watchers: w.read(self)
    return self.get()

  def get(self) -> np.ndarray:
    """``numpy`` that nobody is told of."""
    if not self.nbytes: return np.empty(self.shape, self.dtype.np)
    raw = self.raw
    owner = self.storage._owner
    try:
      if observers and getattr(owner, "busy", True):   # else nothing has to be waited for
        with phase("waiting"): owner.synchronize()
      with phase("copies"): out: np.ndarray = owner.copyout(raw, self.nbytes).view(self.dtype.np).reshape(self.shape)
    except NtgradError as e:
      blame_caller(e, LATE)
      raise
    for tell in waited: tell(self.device)
    return out

  def __repr__(self) -> str: return f"Buffer({self.device}, {self.shape}, {self.dtype})"


def note_place(storages: Iterable[Storage]) -> None:
  """Note on large ones where they are made, in the user's code."""
  place = ""
  for s in storages:
    if s.nbytes >= LARGE_BYTES: s.place = place = place or caller()


def copy_between(to: Any, raw: Any, source: Any, of: Any, nbytes: int) -> None:
  """Copy memory between devices, through the host only where they have no other way."""
  if not to.copy_from(raw, source, of, nbytes): to.copyin(raw, source.copyout(of, nbytes))


def resolved(u: UOp) -> UOp:
  """The memory that already holds a node's value, or the node."""
  known = values.known.get(id(u))
  return known.value if known is not None and known() is u else u


def without_reshapes(u: UOp) -> UOp:
  """A node without reshapes on top: what is computed has its elements in the same order. A stand-in, which somebody may hold who
  was called while a recipe was recorded, is a DETACH of nothing."""
  u = resolved(u)
  while u.op is Ops.RESHAPE or u.op is Ops.DETACH and u.src: u = resolved(u.src[0])
  return u


def walk_nodes(sinks: Iterable[UOp], known: dict[UOp, None] | None = None) -> list[UOp]:
  """The nodes beneath ``sinks``, sources first, existing values as their BUFFERs; but those in ``known``, which gets the rest."""
  done: dict[UOp, None] = {} if known is None else known
  known_value = values.known.get   # as ``resolved``, without a call
  out: list[UOp] = []
  stack = [resolved(s) for s in sinks][::-1]
  while stack:
    n = stack[-1]
    if n in done:
      stack.pop()
      continue
    missing = []
    for s in n.src:
      if s in done: continue
      if (entry := known_value(id(s))) is not None and entry() is s and (s := entry.value) in done: continue
      missing.append(s)
    if missing: stack.extend(missing[::-1])
    else:
      done[n] = None
      out.append(n)
      stack.pop()
  return out


def slice_of(u: UOp) -> Buffer | None:
  """A slice of memory whose elements are consecutive as a Buffer of its own, for kernels to read; None for any other node."""
  chain: list[UOp] = []
  while (u := resolved(u)).op in (Ops.SHRINK, Ops.RESHAPE):
    chain.append(u)
    u = u.src[0]
  memory, first = u.arg, 0
  if u.op is not Ops.BUFFER or not memory.size: return None
  for m in chain[::-1]:
    if m.op is Ops.RESHAPE: continue
    if (begin := consecutive(m.src[0].shape, m.arg)) is None: return None
    first += ix.count(begin)   # of memory that there is
  out, size = Buffer(memory.device, chain[0].shape, u.dtype, memory.storage), u.dtype.itemsize
  out.version = memory.version   # stale where the memory is
  out.offset = at = memory.offset + first * size
  if type(at) is not BoundInt: out.align = alignment(at, size)
  else: out.align = PART_ALIGN_BYTES if ix.mod(at.node, PART_ALIGN_BYTES) is ix.ZERO else size   # wherever it is
  return out if out.size else None


# ---- numbers as buffers

# memory of numbers, which no tensor has and nobody writes, and the numbers in words
constants: WeakKeyDictionary[Storage, str] = WeakKeyDictionary()


def number_buffer(device: str, dtype: DType, value: float, shape: tuple[int, ...] = ()) -> Buffer:
  """A number as a buffer of shape (), or (1,). 0.0 and -0.0 are two."""
  return _number_buffer(device, dtype, value, math.copysign(1, value), shape)


@lru_cache(maxsize=4096)
def _number_buffer(device: str, dtype: DType, value: float, sign: float, shape: tuple[int, ...]) -> Buffer:
  made = Buffer.from_numpy(device, np.full(shape, value, dtype.np))
  constants[made.storage] = f"{dtype.name} {value!r}"
  made.storage.writer = ref(number_buffer)   # which writes nothing
  return made


pools.relievers[:0] = [_number_buffer.cache_clear, live_nodes]   # the latter lets go of what an interrupt kept from going
