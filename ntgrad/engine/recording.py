"""Recording the kernels that a function launches, and launching them again on other buffers."""
from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Collection, Iterator, Sequence
from weakref import ref

import numpy as np

from ntgrad.backends.base import Device, Sizes
from ntgrad.codegen.ir import CaptureError, Ops, UOp, toposort
from ntgrad.graph import Alias, BoundInt, alias, apply_view as seen_through, live_aliases, values
from ntgrad.graph.origins import Made

from . import realize as engine
from .buffer import Buffer, Storage, being_recorded, copy_between, transfer_watchers
from .keeping import captured_calls, numbers_held
from .plan import Step
from .realize import apply_moves, base_of, moves_from_base
from .sized_recording import plain_ints


@dataclass(frozen=True)
class Launch:
  """A recorded step: the program (None: a copy), the serial numbers of its storages and of those that it writes, the byte at
  which each argument begins (() if all begin at 0), the numbers of its sizes; ``of`` and ``asked`` as in a Step."""
  program: Any
  serials: Sizes
  writes: Sizes
  offsets: Sizes
  sizes: Sizes = ()
  of: Any = None
  asked: Sizes = ()
  made: Made = field(default=(), compare=False)   # the lines that it is from


@dataclass(eq=False)
class Copy:
  """A copy between devices, called as a program is."""
  to: Device
  source: Device
  nbytes: int

  def __call__(self, buffers: Sequence[Any], wait: bool = False, sizes: Sizes = ()) -> None:
    """Copy the second buffer into the first."""
    copy_between(self.to, buffers[0], self.source, buffers[1], self.nbytes)


class Watch:
  """Sees what this thread moves from the host into buffers (its digests) and which tensors it writes, while a function runs."""

  def __init__(self) -> None:
    self.thread = threading.get_ident()
    self.host: list[tuple[Buffer, str]] = []
    self.writes: dict[ref[Alias], UOp | None] = {}   # what was written, and its value before
    self.tells: list[tuple[list[Any], Any]] = [(transfer_watchers, self), (alias.write_watchers, self.written)]   # and who of it

  def __enter__(self) -> Any:
    for told, own in self.tells: told.append(own)
    return self
  def __exit__(self, *_: object) -> None: self.leave()

  def leave(self) -> None:
    """See nothing any more. An interrupt may come before ``__exit__`` does anything: who enters leaves in a ``finally`` too."""
    for told, own in self.tells:
      if own in told: told.remove(own)
    self.tells.clear()   # or this would keep itself

  def written(self, a: Alias) -> None:
    """A tensor is about to be written."""
    if threading.get_ident() == self.thread: self.writes.setdefault(ref(a), a.node)

  def undo(self) -> None:
    """Take back writes that have not been performed."""
    for r, node in self.writes.items():
      if node is None or (a := r()) is None or not (a.pending or a.memory is None): continue
      if any(b.stale for b in engine.buffers_beneath(node)): continue   # a part of it was performed
      a.write(node, "a call that was refused")

  @property
  def changed(self) -> list[Alias]:
    """What was written and is still there."""
    return [a for r in self.writes if (a := r()) is not None]

  def wrote(self, buffer: Buffer, array: np.ndarray) -> None:
    """Host data went into a buffer."""
    if threading.get_ident() == self.thread:
      self.host.append((buffer, hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).hexdigest()))
  def read(self, buffer: Buffer) -> None:
    """A buffer's value went to the host."""
  def seeded(self, name: str) -> None:
    """A function (``name``) is about to set where a sequence of random numbers is."""
  def refuse(self, step: Step, buffers: Sequence[Buffer]) -> None:
    """A step of a plan is about to run, of which none has begun."""

  @property
  def data(self) -> list[tuple[Any, ...]]:
    """Shape, dtype and digest of all host data but the places of random numbers."""
    return [(b.shape, b.dtype, d) for b, d in self.host if not b.rng_count]


class Shared(CaptureError):
  """An argument shares memory with what the function writes, as it did not in the call before."""


class Recorder(Watch):
  """Records every launch of this thread in the block. Memory is held weakly: what is gone at the end was an inner buffer."""

  def __init__(self, name: str):
    super().__init__()
    self.name = name
    self.start = Storage("", 0).serial
    self.numbers = numbers_held()
    self.launches: list[Launch] = []
    self.storages: dict[int, ref[Storage]] = {}
    self.sizes: dict[int, tuple[str, int, Buffer | str]] = {}   # serial → device, bytes, how it prints
    # memory that a copy stands for, or such a copy: which argument it is, and whether launches may read it
    self.arguments: dict[int, tuple[str, bool]] = {}
    self.arrays: dict[int, np.ndarray] = {}   # what came from the host, by storage
    self.tells += [(engine.captures, self.note), (being_recorded, self)]

  def note(self, step: Step, buffers: Sequence[Buffer]) -> None:
    """A launch."""
    if threading.get_ident() != self.thread: return
    for b in buffers:
      s = b.storage
      if s.serial not in self.storages:
        self.storages[s.serial] = ref(s)   # an equal BoundInt says what the bytes are made of
        nbytes = n if type(n := b.nbytes) is BoundInt and n == s.nbytes else s.nbytes
        self.sizes[s.serial] = s.device, nbytes, f"{b.shape} {b.dtype}"
    self.refuse(step, buffers)
    serials = tuple(b.storage.serial for b in buffers)
    writes, offsets = tuple(serials[i] for i in step.writes), tuple(b.offset + n for b, n in zip(buffers, step.offsets))
    self.launches.append(Launch(step.program, serials, writes, offsets, step.sizes, step.of, step.asked, engine.made_now[0]))

  def refuse(self, step: Step, buffers: Sequence[Buffer]) -> None:
    """Raises Shared for a launch that reaches an argument's memory otherwise than through the argument."""
    if threading.get_ident() != self.thread: return
    for i, b in enumerate(buffers): self.reach(b, i in step.writes)

  def reach(self, buffer: Buffer, write: bool = False) -> None:
    """Raises Shared where memory is an argument's that was copied, and a copy would not do."""
    place, readable = self.arguments.get(buffer.storage.serial, ("", True))
    if place and (write or not readable):
      raise Shared(
        f"jit {self.name}: {place} shares memory that the function reaches by itself, which was not so in the call before; "
        "call the function again: it then runs plainly, and is captured at the call after that")

  def wrote(self, buffer: Buffer, array: np.ndarray) -> None:
    """Host data is a constant of the capture, unless it overwrites something older."""
    if threading.get_ident() != self.thread: return
    if buffer.storage.serial < self.start:
      raise CaptureError(
        f"jit {self.name}: a tensor of shape {buffer.shape} gets values from the host while the function is captured, "
        "which a replay cannot repeat; pass the values as a Tensor argument, or write them before the call")
    self.arrays[buffer.storage.serial] = array.copy()
    super().wrote(buffer, array)

  def read(self, buffer: Buffer) -> None:
    """Refused: the host would go on with a number that a replay does not have."""
    if threading.get_ident() != self.thread: return
    raise CaptureError(
      f"jit {self.name}: the value of a tensor of shape {buffer.shape} ({buffer.dtype}) is read on the host (numpy, item, "
      "tolist, bool, ..) while the function is captured; return the tensor and read it after the call")

  def seeded(self, name: str) -> None:
    """Refused: a replay goes on in the sequence."""
    if threading.get_ident() != self.thread: return
    raise CaptureError(f"jit {self.name}: the function starts a sequence of random numbers ({name}) while it is captured, which "
                       "a replay cannot repeat; do it before the call")


def storage_of(a: Alias) -> Storage | None:
  """The memory that an Alias's value lies in, its own or another's; None where it is not computed."""
  base = base_of(a.node)
  return base.arg.storage if base.op is Ops.BUFFER else None


@contextmanager
def nothing_known() -> Iterator[None]:
  """Values that were computed before are not found again in the block, so that what is computed there is launched there; but
  those whose sources have been overwritten since, which nothing could compute again."""
  # a tensor from before keeps its value, also where the function computes the same: its node becomes another one
  for a in live_aliases:
    engine.settle(a)
    if (history := a.history) is a.node or history not in values: continue
    own = UOp.unique(Ops.CONTIGUOUS, history.dtype, (history,))
    own.__dict__["shape"], own.__dict__["device"] = history.shape, history.device
    base_of(a.node).arg.is_value_of(own, a.node)
    for t in a.seen():
      if t._state == 1 and t._node is not None: t._node = seen_through(own, t._view)
  known, stale = [n for n in values.nodes() if not n.is_unique], dict[UOp, bool]()
  for n in toposort(known): stale[n] = n.arg.stale if n.op is Ops.BUFFER else any(stale[s] for s in n.src)
  forgotten = [(n, values.pop(n)) for n in known if not stale[n]]
  try: yield
  finally:
    for n, value in forgotten:
      if value is not None and n not in values: values.put(n, value)


@contextmanager
def told_apart(arguments: Collection[int]) -> Iterator[None]:
  """A call of a captured function, whose arguments have memory of these serial numbers. Values from before that are not computed
  yet have nodes of their own in the block, which the function cannot make by itself. So what is computed there tells which of
  them it uses: those are computed too, each into memory of its own."""
  apart: list[tuple[ref[Alias], UOp, UOp, list[tuple[ref[Any], UOp | None]]]] = []
  captured_calls.append(arguments)
  try:
    for a in live_aliases:
      if a.pending or a.packed is not None or engine.is_view(a.node): continue
      r, node, seen = ref(a), a.node, [(ref(t), t._node) for t in a.seen()]
      a.renew()
      engine.values_before_call[a.node] = r
      apart.append((r, node, a.node, seen))
    yield
  finally:   # each gets its node back, unless it was computed or written
    captured_calls.pop()
    for r, node, own, seen in apart:
      engine.values_before_call.pop(own, None)
      if (known := r()) is None or known.node is not own: continue
      known.node = node
      for t in known.seen(): t._node = None
      for of, before in seen:
        if (t := of()) is not None and t._alias is known: t._node = before


class Output:
  """A returned tensor: the storage that its kernels write (by serial number), and the view of it."""

  def __init__(self, kind: Any, node: UOp):
    b: Buffer = base_of(node).arg
    self.kind, self.movement, self.serial, self.shape = kind, moves_from_base(node), b.storage.serial, b.shape
    self.buffer: Buffer | None = b

  def first(self) -> Any:
    """The tensor that the recording itself gives; the memory is its own from now on."""
    assert self.buffer is not None
    b, self.buffer = self.buffer, None
    if any(type(n) is BoundInt for n in b.shape): b = Buffer(b.device, plain_ints(b.shape), b.dtype, b.storage)
    return self.kind._from_node(apply_moves(b.node, plain_ints(self.movement)))
