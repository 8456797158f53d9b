"""Replays: launches the steps of a recording again, over a memory plan, for other inputs and other sizes."""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Hashable, Iterable, Sequence
from weakref import ref

import numpy as np

from ntgrad.backends.base import Argument
from ntgrad.backends.process import uninterrupted
from ntgrad.codegen.ir import CaptureError, NotFiniteError, Recent, config
from ntgrad.graph import Alias, live_aliases

from . import counters, device_asserts, launch_graphs, memory_plan, nan_checks, realize as engine, report
from .buffer import LARGE_BYTES, Buffer, Storage, constants
from .counters import phase
from .device import get_device
from .launch_graphs import Launched, LaunchList
from .observers import observers
from .recording import Copy, Output, Recorder, storage_of
from .sized_recording import At, SizedRecording

AT_ONCE = 16 << 20   # bytes of inner buffers that are allocated for the greatest sizes at once
FORMS = 16           # sets of programs that a replay for all sizes keeps ready


class Replay:
  """The recorded launches with a memory plan, for all values of the variables of ``sized``, each run for some. ``inputs`` and
  ``outputs`` have other memory at every run, all the rest keeps its own."""

  def __init__(self, recorder: Recorder, inputs: Sequence[int], outputs: Sequence[Output], rng: Sequence[Buffer],
               host: Sequence[Buffer], sized: SizedRecording):
    self.name, self.start, self.outputs, self.rng = recorder.name, recorder.start, list(outputs), list(rng)
    self.launches, self.sizes = recorder.launches, recorder.sizes
    self.made_by = [x.made for x in recorder.launches]
    self._inputs, self.sized, self.values, self._at = list(inputs), sized, sized.values, sized.first
    self._held, self._room = dict[int, Buffer](), dict[int, int]()   # numbers that depend on sizes; bytes of inner buffers
    made = self._made_of = {o.serial: (b.device, b.shape, b.dtype) for o in outputs if (b := o.buffer) is not None}
    moving = {*inputs, *made}
    alive = {k: s for k, r in recorder.storages.items() if (s := r()) is not None and k not in moving}
    # host data that launches write over: it goes in again at every replay
    writes = {k for x in recorder.launches for k in x.writes} - moving
    self.refill = [(b, recorder.arrays[b.storage.serial]) for b in host if b.storage.serial in writes]
    self.fixed: list[Storage] = [*alive.values(), *(b.storage for b in (*host, *rng))]  # keeps them
    self.written, self.touched = {alive[k] for k in writes & alive.keys()}, set(alive.values())
    self.checks = device_asserts.checks_in(self.written)
    # gradients that the function leaves, and whose they are: set at every replay, other calls may leave others
    self.grads = [(ref(t), t.grad) for a in live_aliases for t in a.seen() if t.grad is not None and self._made(t.grad._alias)]
    self._owners(alive)
    self.written -= {c.storage for c in self.checks}   # nobody else reads what is noted there
    # the allocations that launches are given, the place of each by serial, and those of arenas after them
    fixed_raws: dict[int, Any] = {s.serial: s.raw for s in self.fixed}
    self._number = {k: i for i, k in enumerate(dict.fromkeys((*fixed_raws, *inputs, *made, *sized.numbers)))}
    self._memory: list[Any] = [fixed_raws.get(k) for k in self._number]
    self.foreign = any(type(s) is not Storage for s in self.written)
    self._forms: Recent[tuple[Any, ...], LaunchList] = Recent(FORMS)
    self._find_lifetimes({*fixed_raws, *inputs, *made})
    self._arrange(self._at)
    self._use(self._at)

  @property
  def steps(self) -> list[Launched]:
    """What is launched."""
    return self.form.steps

  def _form(self, at: At) -> LaunchList:
    """The launches with the programs that some sizes need."""
    steps: list[Launched] = []
    for i, (x, program) in enumerate(zip(self.launches, at.programs)):
      device, source = (get_device(self.sizes[k][0]) for k in (x.serials[0], x.serials[-1]))
      if program is None: steps.append(Launched(Copy(device, source, at.copies[i]), None, self._args(i, at), at.sizes[i]))
      else: steps.append(Launched(program.clone(), device, self._args(i, at), at.sizes[i]))
    return LaunchList(steps)

  def _args(self, i: int, at: At) -> list[Argument]:
    """Where a launch's arguments lie."""
    serials = self.launches[i].serials
    return [Argument(*(self._places.get(k) or (self._number[k], 0, 0)), offset)
            for k, offset in zip(serials, at.offsets[i] or (0,) * len(serials))]

  def _use(self, at: At) -> None:
    """Go over to the launches, sizes, places and shapes of some sizes."""
    if (form := self._forms[at.programs]) is None: form = self._forms[at.programs] = self._form(at)
    self.form, self._at = form, at
    self.made = [(k, (device, shape, dtype)) for (k, (device, _, dtype)), shape in zip(self._made_of.items(), at.made)]
    moved = {i for i, _ in self.sized.places}
    for i, (step, sizes) in enumerate(zip(form.steps, at.sizes)):
      if i in moved or step.sizes != sizes: form.change(i, self._args(i, at) if i in moved else step.args, sizes)
    for i, nbytes in enumerate(at.copies):
      if nbytes: form.steps[i].program.nbytes = nbytes
    for k, make in self.sized.numbers.items():
      self._held[k] = number = make(self.values)
      self._memory[self._number[k]] = number.raw

  def move(self, values: tuple[int, ...]) -> bool:
    """Be for these values of the variables from now on. False where they need another recording."""
    if values == self.values: return True
    if (at := self.sized.at(values)) is None: return False
    if any([at.nbytes[k] > room for k, room in self._room.items()]):
      self._arrange(at)
      self._forms.clear()
    self.values = values
    self._use(at)
    return True

  def _owners(self, alive: dict[int, Storage]) -> None:
    """Find whose the memory is that the launches use: they see what is written, and tell when it is replaced."""
    self.owners: list[tuple[ref[Alias], Storage]] = []
    self.sharers = [(ref(a), s) for a in live_aliases
                    if a.memory is None and (s := storage_of(a)) in self.touched and s.serial < self.start]
    # what gradients were added to: anybody's zero_grad replaces it
    self.summed = {storage_of(t.grad._alias) for a in live_aliases for t in a.seen() if t.grad is not None} & self.touched
    # memory that only values not computed yet read (a random number generator's place): those stand for it
    self.readers: dict[Storage, list[ref[Alias]]] = {}
    for s in alive.values():
      if s.writer is not None and isinstance(owner := s.writer(), Alias): self.owners.append((ref(owner), s))
      elif s.serial < self.start and s not in constants: self.readers[s] = []
    for a in live_aliases if self.readers else ():
      for s in {b.storage for b in engine.buffers_beneath(a.node)} & self.readers.keys(): self.readers[s].append(ref(a))
    for s, r in self.readers.items():
      if not r: raise self._gone(s, "is no tensor's any more when the call ends")

  def _made(self, a: Alias) -> bool:
    """Whether a value lies in memory that the launches make and write."""
    s = storage_of(a)
    return s in self.written and s.serial >= self.start

  def _gone(self, s: Storage, what: str) -> CaptureError:
    return CaptureError(
      f"jit {self.name}: a tensor of {s.nbytes} bytes on {s.device} that the captured function reads {what}, so a replay would "
      "read an old value; change it in place with assign(), pass it as an argument, or reset() the jit")

  def _find_lifetimes(self, known: set[int]) -> None:
    """Find when the inner buffers are needed. What other ranks are sent lives until the next such launch, so that kernels
    meanwhile do not write over it, which would have them wait."""
    self._life: dict[int, tuple[int, int]] = {}
    sent: tuple[int, ...] = ()
    for i, x in enumerate(self.launches):
      if x.program is not None and x.program.recorded:
        self._life.update({k: (self._life[k][0], i) for k in sent if k in self._life})
        sent = x.serials
      for k in x.serials:
        if k in known: continue
        if k < self.start:
          raise CaptureError(
            f"jit {self.name}: the function reads a tensor of shape {self.sizes[k][2]} that was made before the call and "
            "replaces it, so a replay would read an old value; change it in place with assign(), or pass it as an argument")
        self._life[k] = self._life.get(k, (i,))[0], i

  def _arrange(self, at: At) -> None:
    """Give the inner buffers their places: the number of the arena, the first byte in it and how many (both multiples of
    ``memory.PIECE_ALIGN_BYTES``). Of sizes that vary there is room for the greatest that Variables have, where that
    is little; else for the greatest so far and, from the second time on, for half as much again."""
    again = bool(self._room)
    greatest = {} if again else self.sized.greatest()
    if sum(greatest.get(k, 0) for k in self._life) > AT_ONCE: greatest = {}
    for k in self._life:
      n, room = max(at.nbytes[k], greatest.get(k, 0)), self._room.get(k, 0)
      if n > room: self._room[k] = n + n // 2 if again else n
    self._places, self._arenas = dict[int, tuple[int, int, int]](), list[Storage]()
    del self._memory[len(self._number):]
    self.planned_bytes, self.unplanned_bytes = 0, sum(self._room.values())
    for device in dict.fromkeys(self.sizes[k][0] for k in self._life):
      mine = [k for k in self._life if self.sizes[k][0] == device]
      offsets, total = memory_plan.arrange([memory_plan.Lifetime(*self._life[k], self._room[k]) for k in mine])
      arena = Storage(device, total)
      arena.place = f"jit {self.name}, for inner buffers"
      self.planned_bytes += total
      self._arenas.append(arena)
      for k, start in zip(mine, offsets): self._places[k] = len(self._memory), start, memory_plan.rounded(self._room[k])
      self._memory.append(arena.raw)
    # What launches touch, by the memory that they were recorded on, which holds whatever the addresses are: at replays nothing
    # else here touches an input or an output. Storages over another library's memory may be the same bytes: all count as one.
    shared = launch_graphs.pieces({k: (home, start, start + nbytes) for k, (home, start, nbytes) in self._places.items()})
    shared.update({s.serial: ("foreign",) for s in self.touched if type(s) is not Storage})

    def touched(serials: Iterable[int]) -> tuple[Hashable, ...]:
      return tuple(dict.fromkeys(p for k in serials for p in shared.get(k, (k,))))
    self._accesses = [memory_plan.MemoryUse(touched(x.serials), touched(x.writes)) for x in self.launches]

  # ---- at every run
  def check(self) -> bool:
    """See that the memory which the function held when captured is still its tensors', with their newest values in it. False
    where tensors shared that memory, and no longer do (it is not known which of them the function means), and where gradients, or
    what the function made and kept, are gone or were replaced."""
    waiting: list[Alias] = []
    sharers = [(b, s) for r, s in self.sharers if (b := r()) is not None]
    if any([storage_of(b) is not s for b, s in sharers]): return False
    shared = {s for _, s in sharers} | self.summed
    for r, s in self.owners:
      a: Any = r()
      there = a is not None and a.memory is not None and a.memory.storage is s
      if s.serial >= self.start:   # made by the capture, and kept: whoever keeps another one now does not see what is launched
        if not there: return False
        continue
      if s in shared and (not there or a.pending): return False
      if a is None: raise self._gone(s, "is gone or was replaced")
      if not there: raise self._gone(s, f"(shape {a.node.shape}) has been given other memory")
      if a.pending: waiting.append(a)
    if waiting: engine.compute(waiting)
    for s, refs in self.readers.items():
      if all([r() is None for r in refs]): raise self._gone(s, "is gone")
    return True

  @phase("running")
  def run(self, inputs: Sequence[tuple[Buffer, Alias | None]], draw: Callable[[int, Any], np.ndarray]) -> list[Any]:
    """Launch everything on ``inputs`` (with an Alias: one that is written); gives a fresh tensor for each output. Raises
    NotFiniteError (``config.check_nan``), with all that is written as it was before."""
    theirs = [a for _, a in inputs if a is not None]
    mine = [a for r, s in self.owners if s in self.written and (a := r()) is not None]
    storages = {*self.written, *(a.memory.storage for a in theirs)}
    if storages: engine.before_writing(storages, [*mine, *theirs])   # whoever still needs what is about to be written over
    copies = []   # held until everything is launched, or an output would get their memory
    for k, (b, a) in zip(self._inputs, inputs):
      if a is not None: b = a.memory
      elif self.foreign and type(b.storage) is not Storage:   # it may be the same bytes as what the launches write
        b, old = Buffer(b.device, b.shape, b.dtype), b
        b.take(old)
        copies.append(b)
      self._memory[self._number[k]] = b.raw
    for o in observers: o.asked(True)
    made: dict[int, Buffer] = {}
    for k, m in self.made:
      made[k] = b = Buffer(*m)
      if b.storage.nbytes >= LARGE_BYTES: b.storage.place = f"jit {self.name}"
      self._memory[self._number[k]] = b.raw
    if not self.form.graphs and config.debug < 2: self.form.make_graphs(self._accesses)
    saved = nan_checks.saved_memory(storages) if config.check_nan else {}
    if storages:
      with uninterrupted():
        self._launch(draw)
        for a in *mine, *theirs: a.overwritten(f"a call of {self.name}")
    else: self._launch(draw)
    if config.check_nan and (kind := nan_checks.kind_in([*[a.memory for a in (*mine, *theirs)], *made.values()])):
      nan_checks.restore(saved)
      for b, count in zip(self.rng, self._at.counts): draw(-count, b.rng_from)
      raise NotFiniteError(f"{self.name}: a replay gave {kind}, which a plain call does not")
    for r, grad in self.grads:
      if (t := r()) is not None: t.grad = grad
    return [o.kind._from_node(engine.apply_moves(made[o.serial].node, m)) for o, m in zip(self.outputs, self._at.movements)]

  def _launch(self, draw: Callable[[int, Any], np.ndarray]) -> None:
    counters.count_launches(self.steps)
    for b, count in zip(self.rng, self._at.counts): b.put(draw(count, b.rng_from))
    for b, array in self.refill: b.put(array)
    if not report.timing(self.steps, self.made_by): self.form(self._memory)
    else:
      for s in self.steps:
        raws = self.form.raws(s, self._memory)
        if s.device is None: report.copied(partial(s.program, raws), s.program.nbytes, s.program.to, s.program.source)
        elif (seconds := s.program(raws, True, s.sizes)) is not None: report.ran(s.program, seconds, s.sizes, s.device)
    for c in self.checks: device_asserts.watch(c)
