"""Recording the kernels that a function launches, and launching them again on other buffers."""
from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Hashable, Iterable, Iterator, Sequence
from weakref import ref

import numpy as np

from ntgrad import alias
from ntgrad.alias import Alias, live_aliases, onto as seen_through
from ntgrad.backends.base import Device
from ntgrad.backends.process import uninterrupted
from ntgrad.codegen.config import config
from ntgrad.codegen.dtype import DType
from ntgrad.codegen.errors import CaptureError
from ntgrad.codegen.recent import Recent
from ntgrad.codegen.uop import MOVEMENT, Ops, UOp, live_nodes, toposort
from ntgrad.variable import Bound

from . import asserts, graphs, memory, plans, realize as engine, report
from .buffer import LARGE, Buffer, Storage, watchers
from .device import get_device
from .sized_capture import At, Outline, Sized, at, outline, plain

AT_ONCE = 16 << 20   # bytes of inner buffers that are allocated for the greatest sizes at once
FORMS = 16   # sets of programs that a replay for all sizes keeps ready


@dataclass(frozen=True)
class Launch:
  """A recorded step: the program (None: a copy), the serial numbers of its storages, those that it writes, at which byte of its
  storage each argument begins (() for all at 0), and the numbers of its sizes. ``of`` and ``asked`` as a Step has them."""
  program: Any
  serials: tuple[int, ...]
  writes: tuple[int, ...]
  offsets: tuple[int, ...]
  sizes: tuple[int, ...] = ()
  of: Any = None
  asked: tuple[int, ...] = ()


class Copy:
  """A copy between devices, called as a program is."""

  def __init__(self, to: Device, source: Device, nbytes: int): self.to, self.source, self.nbytes = to, source, nbytes
  def __call__(self, buffers: Sequence[Any], wait: bool = False, sizes: tuple[int, ...] = ()) -> float | None:
    """Copy the second buffer into the first, through the host only where devices have no other way."""
    to, source = buffers
    if not self.to.copy_from(to, self.source, source, self.nbytes): self.to.copyin(to, self.source.copyout(source, self.nbytes))
    return None


class Watch:
  """Sees what this thread moves from the host into buffers while a function runs plainly (its digests), and which tensors it
  writes."""

  def __init__(self) -> None:
    self.thread = threading.get_ident()
    self.host: list[tuple[Buffer, str]] = []
    self.writes: dict[ref[Alias], UOp | None] = {}   # what was written, and its value before

  def __enter__(self) -> Any:
    watchers.append(self)
    alias.watchers.append(self.written)
    return self
  def __exit__(self, *_: object) -> None: self.leave()

  def leave(self) -> None:
    """See nothing any more. An interrupt may come before ``__exit__`` does anything, so whoever enters leaves in a ``finally``
    too."""
    if self in watchers: watchers.remove(self)
    if self.written in alias.watchers: alias.watchers.remove(self.written)

  def written(self, a: Alias) -> None:
    """A tensor is about to be written."""
    if threading.get_ident() == self.thread: self.writes.setdefault(ref(a), a.node)

  def undo(self) -> None:
    """Take back writes that have not been performed."""
    for r, node in self.writes.items():
      if node is None or (a := r()) is None or not (a.pending or a.memory is None): continue
      if any([u.op is Ops.BUFFER and u.arg.stale for u in engine.walk((node,))]): continue   # a part of it was performed
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

  @property
  def data(self) -> list[tuple[Any, ...]]:
    """Shape, dtype and digest of all host data but the places of random numbers."""
    return [(b.shape, b.dtype, d) for b, d in self.host if not b.rng_count]


class Shared(CaptureError):
  """An argument shares memory with what the function writes, as it did not in the call before."""


class Recorder(Watch):
  """Records every launch of this thread in the ``with`` block. Memory is held weakly: what is gone at the end was an inner
  buffer."""

  def __init__(self, name: str):
    super().__init__()
    self.name = name
    self.start = Storage("", 0).serial
    self.launches: list[Launch] = []
    self.storages: dict[int, ref[Storage]] = {}
    self.sizes: dict[int, tuple[str, int, Buffer | str]] = {}   # serial → device, bytes, how it prints
    # memory that a copy stands for, or such a copy: which argument it is, and whether launches may read it
    self.arguments: dict[int, tuple[str, bool]] = {}
    self.arrays: dict[int, np.ndarray] = {}   # what came from the host, by storage

  def __enter__(self) -> Any:
    engine.captures.append(self.note)
    engine.checks.append(self.refuse)
    return super().__enter__()

  def leave(self) -> None:
    """See :meth:`Watch.leave`."""
    super().leave()
    if self.note in engine.captures: engine.captures.remove(self.note)
    if self.refuse in engine.checks: engine.checks.remove(self.refuse)

  def note(self, step: engine.Step, buffers: Sequence[Buffer]) -> None:
    """A launch."""
    if threading.get_ident() != self.thread: return
    for b in buffers:
      s = b.storage
      if s.serial not in self.storages:
        nbytes = b.nbytes
        self.storages[s.serial] = ref(s)
        if type(nbytes) is not Bound or nbytes != s.nbytes: nbytes = s.nbytes
        self.sizes[s.serial] = s.device, nbytes, f"{b.shape} {b.dtype}"
    self.refuse(step, buffers)
    serials = tuple([b.storage.serial for b in buffers])
    offsets = tuple([b.offset + n for b, n in zip(buffers, step.offsets)])
    self.launches.append(Launch(step.program, serials, tuple([serials[i] for i in step.writes]), offsets, step.sizes, step.of,
                                step.asked))

  def counts(self, rng: Sequence[Buffer]) -> list[int]:
    """How many random numbers are drawn for each place of them."""
    return [b.rng_count for b in rng]

  def outline(self, outputs: Sequence[Output], rng: Sequence[Buffer], label: Callable[[int], Any],
              more: Sequence[Any]) -> Outline:
    """What was recorded, for comparing with another recording."""
    return outline(self.launches, self.sizes, label, outputs, self.counts(rng), more)

  def at(self, outputs: Sequence[Output], rng: Sequence[Buffer]) -> At:
    """The numbers of what was recorded, as they are."""
    numbers = outline(self.launches, self.sizes, lambda k: None, outputs, self.counts(rng), ()).numbers
    return at(self.launches, self.sizes, outputs, plain(numbers), False)

  def refuse(self, step: engine.Step, buffers: Sequence[Buffer]) -> None:
    """Raises Shared for a launch that reaches an argument's memory otherwise than through the argument."""
    if threading.get_ident() != self.thread: return
    for i, b in enumerate(buffers): self.reach(b, i in step.writes)

  def reach(self, buffer: Buffer, write: bool = False) -> None:
    """Raises Shared where memory is an argument's that was copied, and a copy would not do."""
    place, readable = self.arguments.get(buffer.storage.serial, ("", True))
    if place and (write or not readable):
      raise Shared(
        f"jit {self.name}: {place} shares memory that the function reaches by itself, which was not so in the call before; "
        "call the function again: it then runs plainly, and is captured at the call after that"
      )

  def wrote(self, buffer: Buffer, array: np.ndarray) -> None:
    """Host data is a constant of the capture, unless it overwrites something older."""
    if threading.get_ident() != self.thread: return
    if buffer.storage.serial < self.start:
      raise CaptureError(
        f"jit {self.name}: a tensor of shape {buffer.shape} gets values from the host while the function is captured, "
        "which a replay cannot repeat; pass the values as a Tensor argument, or write them before the call"
      )
    self.arrays[buffer.storage.serial] = array.copy()
    super().wrote(buffer, array)

  def read(self, buffer: Buffer) -> None:
    """Refused: the host would go on with a number that a replay does not have."""
    if threading.get_ident() != self.thread: return
    raise CaptureError(
      f"jit {self.name}: the value of a tensor of shape {buffer.shape} ({buffer.dtype}) is read on the host (numpy, item, "
      "tolist, bool, ..) while the function is captured; return the tensor and read it after the call"
    )


base_of = engine.base_of


def storage_of(a: Alias) -> Storage | None:
  """The memory that an Alias's value lies in, its own or another's; None where it is not computed."""
  base = base_of(a.node)
  return base.arg.storage if base.op is Ops.BUFFER else None


Move = tuple[Ops, DType, Any]


def moved(u: UOp) -> tuple[Move, ...]:
  """The movement between a node and what it is a view of, innermost first (not its nodes: they would hold the memory)."""
  out: list[Move] = []
  u = engine.resolved(u)
  while u.op in MOVEMENT or u.op is Ops.DETACH:
    if u.op in MOVEMENT: out.append((u.op, u.dtype, u.arg))
    u = engine.resolved(u.src[0])
  return tuple(out[::-1])


def onto(node: UOp, movement: Iterable[Move]) -> UOp:
  """The same view of another node."""
  for op, dtype, arg in movement: node = UOp(op, dtype, (node,), arg)
  return node


@contextmanager
def nothing_known() -> Iterator[None]:
  """Values that were computed before are not found again in the block, so that what is computed there is launched there.

  Those stay whose sources have been overwritten since: nothing could compute them again.
  """
  # a tensor from before keeps its value, also where the function computes the same: its node becomes another one
  for a in live_aliases:
    engine.settle(a)
    history = a.history
    if history is a.node or "_realized" not in history.__dict__: continue
    own = UOp.unique(Ops.CONTIGUOUS, history.dtype, (history,))
    own.__dict__["shape"], own.__dict__["device"] = history.shape, history.device
    base_of(a.node).arg.is_value_of(own, a.node)
    for t in a.seen():
      if t._state == 1 and t._node is not None: t._node = seen_through(own, t._view)
  known = [n for n in live_nodes() if "_realized" in n.__dict__]
  stale: dict[UOp, bool] = {}
  for n in toposort(known): stale[n] = n.arg.stale if n.op is Ops.BUFFER else any([stale[s] for s in n.src])
  forgotten = [(n, n.__dict__.pop("_realized")) for n in known if not stale[n]]
  try: yield
  finally:
    for n, value in forgotten: n.__dict__.setdefault("_realized", value)


@contextmanager
def told_apart() -> Iterator[None]:
  """Values from before that are not computed yet have nodes of their own in the block. So whatever is computed there tells which
  of them it uses: those are computed too, each into memory of its own, where later writes to them are found.

  The nodes that the function makes by itself are never among these, also where it computes the same.
  """
  apart: list[_Apart] = []
  try:
    apart.extend(_Apart(a) for a in live_aliases if not a.pending and not engine.is_view(a.node))
    yield
  finally:
    for x in apart: x.undo()


class _Apart:
  """A value that has a node of its own, which equals no other, until ``undo``."""

  def __init__(self, a: Alias):
    self.alias, self.node, self.seen = ref(a), a.node, [(ref(t), t._node) for t in a.seen()]
    a.renew()
    self.own = a.node
    engine.outside[a.node] = self.alias

  def undo(self) -> None:
    """Give the value its node back, unless it was computed or written."""
    engine.outside.pop(self.own, None)
    a = self.alias()
    if a is None or a.node is not self.own: return
    a.node = self.node
    for t in a.seen(): t._node = None
    for r, node in self.seen:
      if (t := r()) is not None and t._alias is a: t._node = node


class Output:
  """A returned tensor: the storage that its kernels write (by serial number), and the view of it."""

  def __init__(self, kind: Any, node: UOp):
    self.kind, self.movement = kind, moved(node)
    self.buffer: Buffer | None = base_of(node).arg
    self.serial, self.shape = base_of(node).arg.storage.serial, base_of(node).arg.shape

  def first(self) -> Any:
    """The tensor that the recording itself gives; the memory is its own from now on."""
    assert self.buffer is not None
    b, self.buffer = self.buffer, None
    if any([type(n) is Bound for n in b.shape]): b = Buffer(b.device, plain(b.shape), b.dtype, b.storage)
    return self.kind._from_node(onto(b.node, plain(self.movement)))


class Form:
  """The launches of a Replay with certain programs: a replay for other sizes may need others."""

  def __init__(self, steps: list[graphs.Launched], slots: dict[int, graphs.Slot], places: dict[tuple[int, int], Place]):
    self.steps, self.slots, self.places = steps, slots, places
    self.calls: list[Callable[[], None]] | None = None           # all steps, from the first replay on
    self.resize: dict[int, Callable[[tuple[int, ...]], None]] = {}   # those in graphs


class Place:
  """Where an argument begins in its memory, for sizes at which that is not always the same byte."""
  __slots__ = ("at", "offset")

  def __init__(self, at: Callable[[Any, int], Any], offset: int): self.at, self.offset = at, offset
  def __call__(self, raw: Any) -> Any: return self.at(raw, self.offset)


class Replay:
  """The recorded launches with a memory plan. ``inputs`` and ``outputs`` have other memory at every run, all the rest keeps its
  own. With ``sized`` the launches are for all values of variables, each run for some."""

  def __init__(
    self, recorder: Recorder, inputs: Sequence[int], outputs: Sequence[Output], rng: Sequence[Buffer], host: Sequence[Buffer],
    sized: Sized | None = None
  ):
    self.name, self.start, self.outputs, self.rng = recorder.name, recorder.start, list(outputs), list(rng)
    self.launches, self.sizes = recorder.launches, recorder.sizes
    self.sized, self.values = sized, sized.values if sized is not None else ()
    self._at: At = recorder.at(outputs, rng) if sized is None else sized.first
    self._held: dict[int, Buffer] = {}   # numbers that depend on sizes
    made = {o.serial: (b.device, b.shape, b.dtype) for o in outputs if (b := o.buffer) is not None}
    self._inputs, self._made_of = list(inputs), made
    numbers = sized.numbers if sized is not None else {}
    places = sized.places if sized is not None else {}
    moved = {recorder.launches[i].serials[a] for i, a in places}
    moving = {*inputs, *made}
    alive = {k: s for k, r in recorder.storages.items() if (s := r()) is not None and k not in moving}
    # host data that launches write over: it goes in again at every replay
    writes = {k for x in recorder.launches for k in x.writes}
    self.refill = [
      (b, recorder.arrays[b.storage.serial]) for b in host if b.storage.serial in writes and b.storage.serial not in moving
    ]
    self.fixed: list[Storage] = [*alive.values(), *(b.storage for b in (*host, *rng))]  # keeps them
    self.written = {alive[k] for x in recorder.launches for k in x.writes if k in alive}
    self.touched = set(alive.values())
    self.checks = asserts.checks_in(self.written)
    # gradients that the function leaves, and whose they are: set at every replay, other calls may leave others
    self.grads = [(ref(t), t.grad) for a in live_aliases for t in a.seen() if t.grad is not None and self._made(t.grad._alias)]
    self._owners(alive)
    self.written -= {c.storage for c in self.checks}   # nobody else reads what is noted there
    self._fixed_raws: dict[int, Any] = {s.serial: s.raw for s in self.fixed}
    # what slots are for: inputs, outputs, numbers that depend on sizes, and memory in which a launch's place does
    self._moving = dict.fromkeys((*inputs, *made, *numbers, *moved))
    self._alive = alive
    self.foreign = any([type(s) is not Storage for s in self.written])
    self._room: dict[int, int] = {}
    self._forms: Recent[tuple[Any, ...], Form] = Recent(FORMS)
    self._find_lifetimes({*self._fixed_raws, *inputs, *made})
    self._arrange(self._at)
    self._devices = [None if x.program is None else get_device(recorder.sizes[x.serials[0]][0]) for x in recorder.launches]
    self._use(self._at)

  @property
  def steps(self) -> list[graphs.Launched]:
    """What is launched."""
    return self.form.steps

  @property
  def calls(self) -> list[Callable[[], None]] | None:
    """What launches all steps; None before the first replay."""
    return self.form.calls

  def _form(self, at: At) -> Form:
    """The launches with the programs that some sizes need."""
    sizes, varying = self.sizes, {} if self.sized is None else self.sized.places
    raws = {**self._fixed_raws}
    for k, (arena, start, end) in self._places.items(): raws[k] = get_device(arena.device).part(arena.raw, start, end - start)
    slots = {k: graphs.Slot() for k in self._moving}
    steps: list[graphs.Launched] = []
    found: dict[tuple[int, int], Place] = {}
    for i, x in enumerate(self.launches):
      device, source = get_device(sizes[x.serials[0]][0]), get_device(sizes[x.serials[-1]][0])
      args = [raws.get(k) for k in x.serials]
      offsets = at.offsets[i]
      for j, k in enumerate(x.serials):
        to: Any = None
        if (i, j) in varying: to = found[i, j] = Place(device.at, offsets[j])
        elif offsets and offsets[j]: to = partial(device.at, offset=offsets[j])
        if k in slots: slots[k].args.append((args, j, to))
        elif to is not None: args[j] = to(args[j])
      program = at.programs[i]
      steps.append(graphs.Launched(Copy(device, source, at.copies[i]) if program is None else program.clone(), args, at.sizes[i]))
    return Form(steps, slots, found)

  def _use(self, at: At) -> None:
    """Go over to the launches, sizes, places and shapes of some sizes."""
    form = self._forms[at.programs]
    if form is None: form = self._forms[at.programs] = self._form(at)
    self.form, self._at = form, at
    self.inputs = [form.slots[k] for k in self._inputs]
    self.made = [(k, form.slots[k], (device, shape, dtype))
                 for (k, (device, _, dtype)), shape in zip(self._made_of.items(), at.made)]
    if self.sized is None: return
    for i, (step, sizes) in enumerate(zip(form.steps, at.sizes)):
      if step.sizes == sizes: continue
      step.sizes = sizes
      if i in form.resize: form.resize[i](sizes)
    for i, nbytes in enumerate(at.copies):
      if nbytes: form.steps[i].program.nbytes = nbytes
    for (i, j), place in form.places.items():
      if place.offset == at.offsets[i][j]: continue
      place.offset = at.offsets[i][j]
      form.slots[self.launches[i].serials[j]].raw = None   # its arguments are found again
    for k, make in self.sized.numbers.items(): self._hold(form.slots[k], k, make(self.values))
    for k in self._moving:
      if k in self._fixed_raws and k not in self.sized.numbers: form.slots[k].fill(self._fixed_raws[k])
      elif k in self._places: form.slots[k].fill(self._part(k))

  def _hold(self, slot: graphs.Slot, k: int, number: Buffer) -> None:
    slot.fill(number.raw)
    self._held[k] = number

  def _part(self, k: int) -> Any:
    arena, start, end = self._places[k]
    return get_device(arena.device).part(arena.raw, start, end - start)

  def move(self, values: tuple[int, ...]) -> bool:
    """Be for these values of the variables from now on. False where they need another recording."""
    if values == self.values: return True
    assert self.sized is not None
    at = self.sized.at(values)
    if at is None: return False
    if any([at.nbytes[k] > room for k, room in self._room.items()]):
      self._arrange(at)
      self._forms.clear()
    self.values = values
    self._use(at)
    return True

  def _owners(self, alive: dict[int, Storage]) -> None:
    """Find whose the memory is that the launches use: they see what is written, and tell when it is replaced."""
    self.owners: list[tuple[ref[Alias], Storage]] = []
    self.sharers = [
      (ref(a), s) for a in live_aliases if a.memory is None and (s := storage_of(a)) in self.touched and s.serial < self.start
    ]
    # memory that only values not computed yet read (a random number generator's place): those stand for it
    self.readers: dict[Storage, list[ref[Alias]]] = {}
    for s in alive.values():
      owner = s.writer() if s.writer is not None else None
      if isinstance(owner, Alias): self.owners.append((ref(owner), s))
      elif s.serial < self.start and s not in plans.constants: self.readers[s] = []
    if self.readers:
      for a in live_aliases:
        for s in {u.arg.storage for u in engine.walk((a.node,)) if u.op is Ops.BUFFER}:
          if s in self.readers: self.readers[s].append(ref(a))
    for s, r in self.readers.items():
      if not r: raise self._gone(s, "is no tensor's any more when the call ends")

  def _made(self, a: Alias) -> bool:
    """Whether a value lies in memory that the launches make and write."""
    s = storage_of(a)
    return s in self.written and s.serial >= self.start

  def _gone(self, s: Storage, what: str) -> CaptureError:
    return CaptureError(
      f"jit {self.name}: a tensor of {s.nbytes} bytes on {s.device} that the captured function reads {what}, so a replay would "
      "read an old value; change it in place with assign(), pass it as an argument, or reset() the jit"
    )

  def _find_lifetimes(self, known: set[int]) -> None:
    """Find when the inner buffers are needed."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    read_first: set[int] = set()
    for i, x in enumerate(self.launches):
      for k in x.serials:
        if k in known: continue
        if k not in first:
          first[k] = i
          if k not in x.writes or k < self.start: read_first.add(k)
        last[k] = i
    for k in read_first:
      if k < self.start:
        raise CaptureError(
          f"jit {self.name}: the function reads a tensor of shape {self.sizes[k][2]} that was made before the call and "
          "replaces "
          "it, so a replay would read an old value; change it in place with assign(), or pass it as an argument"
        )
    self._life = {k: (first[k], last[k]) for k in first}

  def _arrange(self, at: At) -> None:
    """Give the inner buffers their places: the arena, the first byte in it and the one past the last (both multiples of
    ``memory.ALIGN``). Of sizes that vary there is room for the greatest that Variables have, where that is little; else for the
    greatest so far and, from the second time on, for half as much again."""
    sizes, again = self.sizes, bool(self._room)
    greatest = {} if again or self.sized is None else self.sized.greatest()
    if sum([greatest[k] for k in self._life if k in greatest]) > AT_ONCE: greatest = {}
    for k in self._life:
      n, room = max(at.nbytes[k], greatest.get(k, 0)), self._room.get(k, 0)
      if n > room: self._room[k] = n + n // 2 if again else n
    self._places: dict[int, tuple[Storage, int, int]] = {}
    self.arenas: list[Storage] = []
    self.planned_bytes = self.unplanned_bytes = 0
    for device in dict.fromkeys(sizes[k][0] for k in self._life):
      mine = [k for k in self._life if sizes[k][0] == device]
      offsets, total = memory.arrange([memory.Lifetime(*self._life[k], self._room[k]) for k in mine])
      arena = Storage(device, total)
      arena.place = f"jit {self.name}, for inner buffers"
      self.arenas.append(arena)
      self.planned_bytes += total
      self.unplanned_bytes += sum(self._room[k] for k in mine)
      for k, start in zip(mine, offsets): self._places[k] = (arena, start, start + memory.rounded(self._room[k]))
    # What launches touch, by the memory that they were recorded on: at every replay an input is memory that nothing else here
    # touches, an output memory that nothing else has, and all the rest stays where it is. So this holds whatever the addresses
    # are. Two storages over another library's memory may be the same bytes, so all of that is taken for one.
    shared = graphs.pieces(self._places)
    shared.update({k: ("foreign",) for k, s in self._alive.items() if type(s) is not Storage})

    def touched(serials: Iterable[int]) -> tuple[Hashable, ...]:
      return tuple(dict.fromkeys([p for k in serials for p in shared.get(k, (k,))]))

    self._accesses = [memory.Access(touched(x.serials), touched(x.writes)) for x in self.launches]

  # ---- at every run
  def check(self) -> bool:
    """See that the memory which the function held when captured is still its tensors', with their newest values in it. False
    where tensors shared that memory, and no longer do (it is not known which of them the function means), and where what the
    function made and kept is gone or was replaced."""
    waiting = []
    sharers = [(a, s) for r, s in self.sharers if (a := r()) is not None]
    if any([storage_of(a) is not s for a, s in sharers]): return False
    shared = {s for _, s in sharers}
    for r, s in self.owners:
      a = r()
      if s.serial >= self.start:   # made by the capture, and kept: whoever keeps another one now does not see what is launched
        if a is None or a.memory is None or a.memory.storage is not s: return False
        continue
      if s in shared and (a is None or a.pending or a.memory is None or a.memory.storage is not s): return False
      if a is None: raise self._gone(s, "is gone or was replaced")
      if a.memory is None or a.memory.storage is not s: raise self._gone(s, f"(shape {a.node.shape}) has been given other memory")
      if a.pending: waiting.append(a)
    if waiting: engine.compute(waiting)
    for s, refs in self.readers.items():
      if all([r() is None for r in refs]): raise self._gone(s, "is gone")
    return True

  def run(self, inputs: Sequence[tuple[Buffer, Alias | None]], draw: Callable[[int], np.ndarray]) -> list[Any]:
    """Launch everything on ``inputs`` (with an Alias: one that is written); gives a fresh tensor for each output."""
    theirs = [a for _, a in inputs if a is not None]
    mine = [a for r, s in self.owners if s in self.written and (a := r()) is not None]
    storages = {*self.written, *(a.memory.storage for a in theirs)}
    if storages: engine.before_writing(storages, [*mine, *theirs])   # whoever still needs what is about to be written over
    copies = []   # held until everything is launched, or an output would get their memory
    for slot, (b, a) in zip(self.inputs, inputs):
      if a is not None: b = a.memory
      elif self.foreign and type(b.storage) is not Storage:   # it may be the same bytes as what the launches write
        b, old = Buffer(b.device, b.shape, b.dtype), b
        b.take(old)
        copies.append(b)
      slot.fill(b.raw)
    made: dict[int, Buffer] = {}
    for k, slot, m in self.made:
      made[k] = b = Buffer(*m)
      if b.storage.nbytes >= LARGE: b.storage.place = f"jit {self.name}"
      slot.fill(b.raw)
    form = self.form
    if form.calls is None and config.debug < 2:
      form.calls, form.resize = graphs.calls(form.steps, self._devices, self._accesses, form.slots.values())
    if storages:
      with uninterrupted():
        self._launch(draw)
        for a in (*mine, *theirs): a.overwritten(f"a call of {self.name}")
    else: self._launch(draw)
    for r, grad in self.grads:
      if (t := r()) is not None: t.grad = grad
    return [o.kind._from_node(onto(made[o.serial].node, m)) for o, m in zip(self.outputs, self._at.movements)]

  def _launch(self, draw: Callable[[int], np.ndarray]) -> None:
    for b, count in zip(self.rng, self._at.counts): b.put(draw(count))
    for b, array in self.refill: b.put(array)
    if self.form.calls is None or config.debug >= 2: self._launch_and_tell()
    else:
      for call in self.form.calls: call()
    for c in self.checks: asserts.watch(c)

  def _launch_and_tell(self) -> None:
    for s in self.steps:
      seconds = s.program(s.args, True, s.sizes)
      if seconds is not None: report.ran(s.program.spec, max(seconds, 1e-9), s.sizes)
