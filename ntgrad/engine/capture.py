"""Recording the kernels that a function launches, and launching them again on other buffers."""
from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Hashable, Iterable, Iterator, Sequence
from weakref import ref

import numpy as np

from ntgrad.backends.base import Device
from ntgrad.codegen.config import config
from ntgrad.codegen.dtype import DType
from ntgrad.codegen.errors import CaptureError
from ntgrad.codegen.uop import MOVEMENT, Ops, UOp, live_nodes, toposort
from ntgrad.core import live_tensors

from . import graphs, memory, realize as engine, report
from .buffer import Buffer, Storage, watchers
from .device import get_device


@dataclass(frozen=True)
class Launch:
  """A recorded step: the program (None: a copy), the serial numbers of its storages, and those that it writes."""
  program: Any
  serials: tuple[int, ...]
  writes: tuple[int, ...]


class Copy:
  """A copy between devices, called as a program is."""

  def __init__(self, to: Device, source: Device, nbytes: int): self.to, self.source, self.nbytes = to, source, nbytes
  def __call__(self, buffers: Sequence[Any], wait: bool = False) -> float | None:
    """Copy the second buffer into the first, through the host only where devices have no other way."""
    to, source = buffers
    if not self.to.copy_from(to, self.source, source, self.nbytes): self.to.copyin(to, self.source.copyout(source, self.nbytes))
    return None


class Watch:
  """Sees what this thread moves from the host into buffers while a function runs plainly: its digests."""

  def __init__(self) -> None:
    self.thread = threading.get_ident()
    self.host: list[tuple[Buffer, str]] = []

  def __enter__(self) -> Any:
    watchers.append(self)
    return self
  def __exit__(self, *_: object) -> None: watchers.remove(self)

  def wrote(self, buffer: Buffer, array: np.ndarray) -> None:
    """Host data went into a buffer."""
    if threading.get_ident() == self.thread:
      self.host.append((buffer, hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).hexdigest()))
  def read(self, buffer: Buffer) -> None:
    """A buffer's value went to the host."""

  @property
  def data(self) -> list[tuple[Any, ...]]:
    """Shape, dtype and digest of all host data but the places of random numbers."""
    return [(b.shape, b.dtype, d) for b, d in self.host if not b.rng_count]


class Recorder(Watch):
  """Records every launch of this thread in the ``with`` block. Memory is held weakly: what is gone at the end was an inner buffer."""

  def __init__(self, name: str):
    super().__init__()
    self.name = name
    self.start = Storage("", 0).serial
    self.launches: list[Launch] = []
    self.storages: dict[int, ref[Storage]] = {}
    self.sizes: dict[int, tuple[str, int, Buffer | str]] = {}   # serial → device, bytes, how it prints

  def __enter__(self) -> Any:
    engine.captures.append(self.note)
    return super().__enter__()
  def __exit__(self, *_: object) -> None:
    super().__exit__()
    engine.captures.remove(self.note)

  def note(self, step: engine.Step, buffers: Sequence[Buffer]) -> None:
    """A launch."""
    if threading.get_ident() != self.thread: return
    for b in buffers:
      s = b.storage
      if s.serial not in self.storages: self.storages[s.serial], self.sizes[s.serial] = ref(s), (s.device, s.nbytes, f"{b.shape} {b.dtype}")
    serials = tuple([b.storage.serial for b in buffers])
    self.launches.append(Launch(step.program, serials, tuple([serials[i] for i in step.writes])))

  def wrote(self, buffer: Buffer, array: np.ndarray) -> None:
    """Host data is a constant of the capture, unless it overwrites something older."""
    if threading.get_ident() != self.thread: return
    if buffer.storage.serial < self.start:
      raise CaptureError(f"jit {self.name}: a tensor of shape {buffer.shape} gets values from the host while the function is captured, "
                         "which a replay cannot repeat; pass the values as a Tensor argument, or write them before the call")
    super().wrote(buffer, array)

  def read(self, buffer: Buffer) -> None:
    """Refused: the host would go on with a number that a replay does not have."""
    if threading.get_ident() != self.thread: return
    raise CaptureError(f"jit {self.name}: the value of a tensor of shape {buffer.shape} ({buffer.dtype}) is read on the host (numpy, item, "
                       "tolist, bool, ..) while the function is captured; return the tensor and read it after the call")


def base_of(u: UOp) -> UOp:
  """What a node is a view of."""
  u = engine.resolved(u)
  while u.op in MOVEMENT: u = engine.resolved(u.src[0])
  return u


Move = tuple[Ops, DType, Any]


def moved(u: UOp) -> tuple[Move, ...]:
  """The movement between a node and what it is a view of, innermost first (not its nodes: they would hold the memory)."""
  out: list[Move] = []
  u = engine.resolved(u)
  while u.op in MOVEMENT:
    out.append((u.op, u.dtype, u.arg))
    u = engine.resolved(u.src[0])
  return tuple(out[::-1])


def onto(node: UOp, movement: Iterable[Move]) -> UOp:
  """The same view of another node."""
  for op, dtype, arg in movement: node = UOp(op, dtype, (node,), arg)
  return node


def renew(tensors: Iterable[Any], written: set[Storage]) -> None:
  """Memory in ``written`` is a version on: tensors that view it see it, what was computed from the version before is not found again."""
  for s in written: s.version += 1
  new: dict[Storage, UOp] = {}
  for t in tensors:
    base = base_of(t.lazydata)
    if base.op is not Ops.BUFFER or base.arg.storage not in written: continue
    s = base.arg.storage
    node = new.get(s)
    if node is None: node = new[s] = base.arg.again().node
    t.lazydata = onto(node, moved(t.lazydata))


@contextmanager
def nothing_known() -> Iterator[None]:
  """Values that were computed before are not found again in the block, so that what is computed there is launched there.

  Those stay whose sources have been overwritten since: nothing could compute them again.
  """
  known = [n for n in live_nodes() if "_realized" in n.__dict__ and n.op is not Ops.ASSIGN]
  stale: dict[UOp, bool] = {}
  for n in toposort(known): stale[n] = n.arg.stale if n.op is Ops.BUFFER else any([stale[s] for s in n.src])
  forgotten = [(n, n.__dict__.pop("_realized")) for n in known if not stale[n]]
  try: yield
  finally:
    for n, value in forgotten: n.__dict__.setdefault("_realized", value)


class Output:
  """A returned tensor: the storage that its kernels write (by serial number), and the view of it."""

  def __init__(self, kind: Any, node: UOp):
    self.kind, self.movement = kind, moved(node)
    self.buffer: Buffer | None = base_of(node).arg
    self.serial = base_of(node).arg.storage.serial

  def first(self) -> Any:
    """The tensor that the recording itself gives; the memory is its own from now on."""
    assert self.buffer is not None
    node, self.buffer = self.buffer.again().node, None
    return self.kind._from_node(onto(node, self.movement))


class Replay:
  """The recorded launches with a memory plan. ``inputs`` and ``outputs`` have other memory at every run, all the rest keeps its own."""

  def __init__(self, recorder: Recorder, inputs: Sequence[int], outputs: Sequence[Output], rng: Sequence[Buffer], host: Sequence[Buffer]):
    self.name, self.start, self.outputs, self.rng = recorder.name, recorder.start, list(outputs), list(rng)
    made = {o.serial: (b.device, b.shape, b.dtype) for o in outputs if (b := o.buffer) is not None}
    moving = {k: graphs.Slot() for k in (*inputs, *made)}
    self.inputs, self.made = [moving[k] for k in inputs], [(k, moving[k], m) for k, m in made.items()]
    alive = {k: s for k, r in recorder.storages.items() if (s := r()) is not None and k not in moving}
    self.fixed: list[Storage] = [*alive.values(), *(b.storage for b in (*host, *rng))]   # keeps them
    self.written = {alive[k] for x in recorder.launches for k in x.writes if k in alive}
    self._owners(recorder, alive)
    raws: dict[int, Any] = {s.serial: s.raw for s in self.fixed}
    places = self._place(recorder, {*raws, *moving})
    raws.update({k: get_device(a.device).part(a.raw, start, recorder.sizes[k][1]) for k, (a, start, _) in places.items()})
    self.steps: list[graphs.Launched] = []
    self.calls: list[Callable[[], None]] | None = None   # all steps, from the first replay on
    self._devices: list[Device | None] = []
    for x in recorder.launches:
      args = [raws.get(k) for k in x.serials]
      for i, k in enumerate(x.serials):
        if k in moving: moving[k].args.append((args, i))
      (to, nbytes, _), (source, _, _) = recorder.sizes[x.serials[0]], recorder.sizes[x.serials[-1]]
      self._devices.append(None if x.program is None else get_device(to))
      self.steps.append((Copy(get_device(to), get_device(source), nbytes) if x.program is None else x.program.clone(), args))
    # What launches touch, by the memory that they were recorded on: at every replay an input is memory that nothing here writes, an
    # output memory that nothing else has, and all the rest stays where it is. So this holds whatever the addresses are.
    # Two storages over another library's memory may be the same bytes, so all of that is taken for one.
    shared = graphs.pieces(places)
    shared.update({k: ("foreign",) for k, s in alive.items() if type(s) is not Storage})
    self.foreign = any([type(s) is not Storage for s in self.written])
    def touched(serials: Iterable[int]) -> tuple[Hashable, ...]:
      return tuple(dict.fromkeys([p for k in serials for p in shared.get(k, (k,))]))
    self._accesses = [memory.Access(touched(x.serials), touched(x.writes)) for x in recorder.launches]
    self._slots = list(moving.values())

  def _owners(self, recorder: Recorder, alive: dict[int, Storage]) -> None:
    """Find the tensors that view memory which the launches use: they see what is written, and tell when it is replaced."""
    self.owners: dict[int, tuple[ref[Any], Storage]] = {}
    self.state = [s for s in alive.values() if s.serial < recorder.start and s not in engine.constants]
    values = set(alive.values())
    for t in live_tensors:
      base = base_of(t.lazydata)
      if base.op is Ops.BUFFER and base.arg.storage in values: self.owners[id(t)] = (ref(t), base.arg.storage)
    owned = {s for _, s in self.owners.values()}
    # memory that only unrealised tensors read (a random number generator's place): those stand for it
    self.readers: dict[Storage, list[ref[Any]]] = {s: [] for s in self.state if s not in owned}
    if self.readers:
      for t in live_tensors:
        for s in {u.arg.storage for u in engine.walk((t.lazydata,)) if u.op is Ops.BUFFER}:
          if s in self.readers: self.readers[s].append(ref(t))
    for s, r in self.readers.items():
      if not r: raise self._gone(s, "is no tensor's any more when the call ends")

  def _gone(self, s: Storage, what: str) -> CaptureError:
    return CaptureError(f"jit {self.name}: a tensor of {s.nbytes} bytes on {s.device} that the captured function reads {what}, so a replay would "
                        "read an old value; change it in place with assign(), pass it as an argument, or reset() the jit")

  def _place(self, recorder: Recorder, known: set[int]) -> dict[int, tuple[Storage, int, int]]:
    """Give the inner buffers their places: the arena, the first byte in it and the one past the last (both multiples of ``memory.ALIGN``)."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    read_first: set[int] = set()
    for i, x in enumerate(recorder.launches):
      for k in x.serials:
        if k in known: continue
        if k not in first:
          first[k] = i
          if k not in x.writes or k < recorder.start: read_first.add(k)
        last[k] = i
    for k in read_first:
      if k < recorder.start:
        raise CaptureError(f"jit {self.name}: the function reads a tensor of shape {recorder.sizes[k][2]} that was made before the call and replaces "
                           "it, so a replay would read an old value; change it in place with assign(), or pass it as an argument")
    places: dict[int, tuple[Storage, int, int]] = {}
    self.arenas: list[Storage] = []
    self.planned_bytes = self.unplanned_bytes = 0
    for device in dict.fromkeys(recorder.sizes[k][0] for k in first):
      mine = [k for k in first if recorder.sizes[k][0] == device]
      offsets, total = memory.arrange([memory.Lifetime(first[k], last[k], recorder.sizes[k][1]) for k in mine])
      arena = Storage(device, total)
      self.arenas.append(arena)
      self.planned_bytes += total
      self.unplanned_bytes += sum(recorder.sizes[k][1] for k in mine)
      for k, at in zip(mine, offsets): places[k] = (arena, at, at + memory.rounded(recorder.sizes[k][1]))
    return places

  # ---- at every run
  def check(self) -> None:
    """See that the memory which the function held when captured is still its tensors', and let whoever needs old contents have them."""
    waiting = []
    lost: set[Storage] = set()
    held: set[Storage] = set()
    for r, s in self.owners.values():
      t = r()
      if t is None:
        lost.add(s)
        continue
      if s.serial >= self.start: continue   # made by the capture: nothing that the launches start from
      base = base_of(t.lazydata)
      if base.op is not Ops.BUFFER: waiting.append((t, s))
      elif base.arg.storage is not s: raise self._gone(s, f"(shape {t.shape}) has been given other memory")
      held.add(s)
    if waiting:
      engine.realize([t for t, _ in waiting])
      for t, s in waiting:
        base = base_of(t.lazydata)
        if base.op is not Ops.BUFFER or base.arg.storage is not s: raise self._gone(s, f"(shape {t.shape}) has been given other memory")
    for s, refs in self.readers.items():
      if all([r() is None for r in refs]): raise self._gone(s, "is gone")
    if lost - held:
      for s in self.state:
        if s in lost and s not in held: raise self._gone(s, "is gone or was replaced")
    if self.written: self._save_readers()

  def _save_readers(self) -> None:
    """Compute every live tensor that still needs what the launches are about to overwrite."""
    written, owners = self.written, self.owners
    found = []
    for t in live_tensors:
      u = t.lazydata
      if u.op is Ops.BUFFER and u.arg.storage not in written: continue
      mine = owners.get(id(t))
      if mine is not None and mine[0]() is t: continue
      if any([n.op is Ops.BUFFER and n.arg.storage in written for n in engine.walk((u,))]):
        if engine.is_view(u): t.lazydata = UOp(Ops.CONTIGUOUS, u.dtype, (u,))
        found.append(t)
    if found: engine.realize(found)

  def run(self, inputs: Sequence[Buffer], draw: Callable[[int], np.ndarray]) -> list[Any]:
    """Launch everything on ``inputs``; gives a fresh tensor for each output."""
    self.check()
    written = self.written
    copies = []   # held until everything is launched, or an output would get their memory
    for slot, b in zip(self.inputs, inputs):
      s = b.storage
      if s in written or (self.foreign and type(s) is not Storage):   # the launches would change it under their own feet
        b, old = Buffer(b.device, b.shape, b.dtype), b
        b.take(old)
        copies.append(b)
      slot.fill(b.raw)
    for b in self.rng: b.put(draw(b.rng_count))
    made: dict[int, Buffer] = {}
    for k, slot, m in self.made:
      made[k] = b = Buffer(*m)
      slot.fill(b.raw)
    if config.debug >= 2: self._launch_and_tell()
    else:
      if self.calls is None: self.calls = graphs.calls(self.steps, self._devices, self._accesses, self._slots)
      for call in self.calls: call()
    if written: renew([t for r, _ in self.owners.values() if (t := r()) is not None], self.written)
    return [o.kind._from_node(onto(made[o.serial].node, o.movement)) for o in self.outputs]

  def _launch_and_tell(self) -> None:
    for program, args in self.steps:
      seconds = program(args, True)
      if seconds is not None: report.ran(program.spec, max(seconds, 1e-9))
