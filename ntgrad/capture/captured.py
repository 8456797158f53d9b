"""Captures: one signature of a function that ntgrad.jit made, run plainly, then recorded, then replayed."""
from __future__ import annotations

import copy
import functools
from typing import Any, Callable, NamedTuple, Sequence
from weakref import ref

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import CaptureError, NtgradError
from ntgrad.codegen.ir.recent import Recent
from ntgrad.codegen.ir.uop import Ops, live_nodes
from ntgrad.engine import overrides, planner, realize as engine, report
from ntgrad.engine.buffer import Buffer
from ntgrad.engine.device import Device
from ntgrad.engine.realize import base_of
from ntgrad.engine.recording import Output, Recorder, Shared, Watch, nothing_known, told_apart
from ntgrad.engine.replay import Replay
from ntgrad.engine.sized_recording import Outline, SizedRecording, outline
from ntgrad.engine.traced_sizes import Trace, VariableValues, tracing
from ntgrad.graph import origins
from ntgrad.graph.alias import Alias, live_aliases, through, waiting
from ntgrad.graph.modes import mode
from ntgrad.graph.nodes import const
from ntgrad.graph.variable import BoundInt
from ntgrad.reads import Reads, reads_of
from ntgrad.tensor import random

from .arguments import VALUES, Pieces, constant, put, take
from .memory import Given, exact, keeper, made_after, make_own, serials_in_order, sharing, write_back

RECORDINGS = 64   # of a function: so many signatures, or up to as many more
BRANCHES = 4      # captures of one signature for values at which comparisons come out otherwise
VARIANTS = 8      # captures of one signature for what the function read
CHANGES = 4       # of them that are made without one that is used again, before the function is no longer captured
REST = 16         # calls that it then runs plainly
TRIES = 2         # pairs of recordings that are compared before a function is captured for each shape

class Sizes(NamedTuple):
  """Sizes that change: the variable for each, its value now, and where it comes from: dimensions of Tensors (which Tensor, which
  dimension) first, then other arguments (which)."""
  sizes: tuple[ix.Size, ...]
  values: VariableValues
  dims: tuple[tuple[int, int], ...]
  others: tuple[int, ...]


class First(NamedTuple):
  """The first of two recordings, and the values that it was made at."""
  outline: Outline
  values: VariableValues
  sized: SizedRecording

  def holds(self, values: VariableValues) -> bool:
    """Whether comparisons come out at other values as they did."""
    return values == self.values or self.sized.holds(values)


NO_SIZES = Sizes((), (), (), ())


def call_of(owner: ref[Any], fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
  """A call of a method of an object that is not kept alive."""
  return fn(owner(), *args, **kwargs)


def called(fn: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
  """The user's function in a captured one, and its arguments."""
  if isinstance(fn, functools.partial) and fn.func is call_of: return fn.args[1], (fn.args[0](), *args)
  return fn, args


def signature(pieces: Pieces) -> tuple[Any, ...]:
  """What a capture is made for: how its arguments are nested, what each Tensor is and what its dimensions are called, what
  all else is."""
  tensors = tuple([((u := t.lazydata).shape, u.dtype, u.device or Device.DEFAULT, t._names) for t in pieces.tensors])
  others = tuple([constant(o) for o in pieces.others])
  settings = (mode.training, mode.grad, Device.assigned, config.dev, dtypes.default_float, dtypes.default_int, overrides.state())
  return tuple(pieces.marks), tensors, others, settings


class Capture:
  """What a jit knows of the calls of one signature: what the plain call did, then what replays launch.

  With ``sizes`` it is for all values of them: recorded at two, and replayed at others where the two recordings agree.
  """

  def __init__(self, fn: Callable[..., Any], name: str, key: tuple[Any, ...], sizes: Sizes = NO_SIZES, depth: int = BRANCHES,
               strict: bool = False):
    self.fn, self.name, self.key, self.sizes, self.dims, self.strict = fn, name, key, sizes.sizes, sizes.dims, strict
    self._all, self._depth = sizes, depth
    self._next: Capture | None = None           # for values at which comparisons come out otherwise
    self.used = self                            # what did the last call
    self._first: First | None = None            # the first recording of two
    self._tries = TRIES
    self._each: Recent[VariableValues, Capture] = Recent(RECORDINGS)   # for values that need recordings of their own
    self.calls = self._late = 0
    self._host: list[tuple[Any, ...]] = []
    self._host_values: VariableValues = ()              # of the sizes then
    self._writes: list[ref[Alias]] = []         # what the first call wrote and left
    self._written: list[bool] = []              # which arguments were among it
    self._shared: list[int] = []                # which arguments shared memory then
    self._given: list[Given] = []
    self.replay: Replay | None = None
    self.reads = Reads()                        # what the function read when it was recorded
    self._variants: list[Capture] = []          # for what it read otherwise
    self._now = self                            # the one among them that served the last call
    self._changed = 0                           # how many were made since one served a second time
    self._result: Any = None

  def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], pieces: Pieces, values: VariableValues = ()) -> Any:
    """The function's result for arguments of the signature, ``values`` being those of its sizes."""
    if self.sizes and (one := self._other(values)) is not None:
      try: return one.call(args, kwargs, pieces, values)
      finally: self.used = one.used
    self.used = self
    if self.replay is not None and not (self.sizes and self._second(values)):
      now = self._for_reads()
      if now.replay is not None: return now._replayed(args, kwargs, pieces, values)
      self.used = now
      if self._changed > CHANGES:
        self._changed += 1
        if self._changed > CHANGES + REST: self._changed = CHANGES - 1
        return now._plainly(args, kwargs, pieces, values)
      if now is not self: return now.call(args, kwargs, pieces, values)
    if self.calls == 0 or (any(self._written) and sharing(pieces) != self._shared):
      return self._plainly(args, kwargs, pieces, values)
    return self._capture(args, kwargs, pieces, values)

  def _replayed(self, args: tuple[Any, ...], kwargs: dict[str, Any], pieces: Pieces, values: VariableValues) -> Any:
    assert self.replay is not None
    inputs = self._inputs(pieces)
    # memory may be shared otherwise than when it was captured
    if inputs is None or not self.replay.check(): return self._plainly(args, kwargs, pieces, values)
    try: outputs = self.replay.run(inputs, random.next_state)
    except NtgradError as e:
      origins.blame_caller(e, f"in a replay of {self.name}, called")
      raise
    return put(self._result, _giver(outputs))

  def _for_reads(self) -> Capture:
    """The capture for what the function reads now: the last one, one that was made before, or another."""
    now = self._now
    if now.replay is not None and now.reads.hold():
      self._changed = 0
      return now
    others = [c for c in (self, *self._variants) if c is not now]
    found = next((c for c in others if c.replay is not None and c.reads.hold()), None)
    if found is None: found = next((c for c in (now, *others) if c.replay is None), None)   # it is on its way
    if found is None:
      why = now.reads.why
      report.note_line(f"{self.name} is captured anew: {why}")
      self._changed += 1
      if self._changed == CHANGES + 1:
        text = f"jit {self.name}: what it reads has been other at each of the last {CHANGES} calls: {why}"
        help = f"it runs plainly for {REST} calls; pass it as a Tensor, or read it outside of the function"
        origins.say_once(("changes", self.name, why), f"{text}; {help}")
      if now.reads.returns:
        found = Capture(self.fn, self.name, self.key, self._all, self._depth, self.strict)
        self._variants = [*self._variants[1 - VARIANTS:], found]
      else:   # nothing can bring back what is gone
        found = now
        found.replay, found.calls = None, 0
    self._now = found
    return found

  def _other(self, values: VariableValues) -> Capture | None:
    """The capture for values that are not this one's: those at which a comparison comes out otherwise, and all where the
    recordings did not agree."""
    if self._tries:
      if self.replay is not None and self.replay.sized is not None:
        if self.replay.move(values): return None
      elif self._first is None or self._first.holds(values): return None
      if self._depth:
        if self._next is None: self._next = Capture(self.fn, self.name, self.key, self._all, self._depth - 1, self.strict)
        return self._next
    found = self._each[values]
    if found is None: found = self._each[values] = Capture(self.fn, self.name, self.key, strict=self.strict)
    return found

  def _second(self, values: VariableValues) -> bool:
    """Whether what was recorded at one value is to be recorded at another."""
    return self._first is not None and self._first.values != values

  def _alone(self) -> Capture:
    """What was recorded last, for its values alone."""
    out = copy.copy(self)
    out.sizes, out.dims, out._first, out.used, out._now, out._each = (), (), None, out, out, Recent(1)
    return out

  def _sized(self, trace: Trace, recorder: Recorder, inputs: Sequence[int], outputs: Sequence[Output], rng: Sequence[Buffer],
             pieces: Pieces) -> SizedRecording | None:
    """The numbers of a recording for all values, if it is the second and agrees with the first; else None."""
    labels: dict[int, Any] = {k: ("argument", i) for i, k in enumerate(inputs)}
    there = {k: s for k, r in recorder.storages.items() if (s := r()) is not None}
    labels.update({k: ("number", planner.constants[s]) for k, s in there.items() if s in planner.constants})
    labels.update({k: ("number", str(dtype), n.text) for k, (_, dtype, n) in trace.numbers.items()})
    for b, digest in recorder.host: labels.setdefault(b.storage.serial, ("data", "" if b.rng_count else digest))
    made = {o.serial for o in outputs}
    def label(k: int) -> Any:
      if k in labels: return labels[k]
      return ("state", k) if k < recorder.start else None
    kinds = [(g.kind, g.view, g.shape, g.group) for g in self._given]
    more = [tuple(kinds), tuple([constant(v) for v in take(self._result, "", Pieces()).others])]
    recorded = recorder.launches, recorder.sizes, outputs
    mine = outline(*recorded, rng, label, more)
    sized = SizedRecording(trace, mine, *recorded)
    names = ", ".join([f"{s.name} = {n}" for s, n in zip(trace.sizes, trace.values)])
    why = trace.lost
    if not why:
      kept = [k for k, e in zip(recorder.sizes, sized.exprs_of_memory) if k in there and k not in made and k not in labels
              and not isinstance(e, int)]
      if kept: why = "it keeps a tensor of such a size"
      elif any([g.kind != "read" for i, g in enumerate(self._given) if i in [t for t, _ in self.dims]]):
        why = "an argument of such a size is written"
    if not why and self._first is None:
      self._first = First(mine, trace.values, sized)
      return None
    if not why and self._first is not None: why = sized.refuses(self._first.outline, self._first.values, mine)
    if not why:
      assert self._first is not None
      same = [(size, n) for size, n, first in zip(trace.sizes, trace.values, self._first.values) if n == first]
      for size, n in same: trace.holds(ix.eq(size.node, n))   # a number that forgot it would not have shown
      if same: sized = SizedRecording(trace, mine, *recorded)
      self._first = None
      report.note_line(f"captured {self.name} for all values of {', '.join([s.name for s in trace.sizes])}")
      return sized
    self._tries -= 1
    self._first = First(mine, trace.values, sized)
    if trace.lost: self._tries = 0
    if not self._tries: report.note_line(f"{self.name} is captured for each shape ({names}): {why}")
    return None

  def _plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any], pieces: Pieces, values: VariableValues) -> Any:
    """Run the function itself, and see what it writes."""
    self.replay = self._result = self._first = None
    watch = Watch()
    with told_apart():
      try:
        with watch: result = self.fn(*args, **kwargs)
      finally: watch.leave()
      self._host, self._host_values, self.calls = watch.data, values, 1
      found = take(result, "the result", Pieces())
      own = [type(t)._from_node(t.detach().lazydata) for t in found.tensors]   # results of their own
      changed = watch.changed
      engine.compute([*changed, *(t._alias for t in own)])
    shared = [a for a in changed if a.memory is None]   # what is written again and again has memory of its own
    for a in shared: a.renew()
    engine.compute(shared)
    self._writes = [ref(a) for a in changed]
    self._written = [t._alias in changed for t in pieces.tensors]
    self._shared = sharing(pieces)
    return put(result, _giver(own))

  def _inputs(self, pieces: Pieces) -> list[tuple[Buffer, Alias | None]] | None:
    """For a replay, the memory of each argument that is not the function's own (with its Alias if it is written). None where the
    arguments share memory otherwise than when it was captured."""
    assert self.replay is not None
    if any([t._alias.node.op is not Ops.BUFFER or t._alias.pending for t in pieces.tensors]): engine.realize(pieces.tensors)
    if not self.replay.written and all([g.kind == "read" for g in self._given]):
      return [(b, None) for b in exact(pieces.tensors)]
    out: list[tuple[Buffer, Alias | None]] = []
    read: list[Any] = []
    groups: dict[int, Alias] = {}
    for t, g in zip(pieces.tensors, self._given):
      a: Alias = t._alias
      if g.kind == "read": read.append(t)
      elif g.kind == "state":
        if g.alias is None or g.alias() is not a or through(t._view) != g.view: return None
      else:
        if through(t._view) != g.view or a.node.shape != g.shape or groups.setdefault(g.group, a) is not a: return None
    if len(set(groups.values())) != len(groups): return None
    for a in groups.values():
      if a.memory is None: make_own(a)
    written = {*self.replay.written, *(a.memory.storage for a in groups.values())}
    if any([a.memory.storage in self.replay.touched for a in groups.values()]): return None
    if written and any([base_of(t.lazydata).arg.storage in written for t in read]): return None
    buffers = iter(exact(read))
    done: set[int] = set()
    for g in self._given:
      if g.kind == "read": out.append((next(buffers), None))
      elif g.kind == "written" and g.group not in done:
        done.add(g.group)
        out.append((groups[g.group].memory, groups[g.group]))
    return out

  def _stand_ins(self, pieces: Pieces, trace: Trace | None = None) -> tuple[list[Any], list[Buffer], list[tuple[Buffer, Alias]]]:
    """What the function gets for its arguments while it is recorded; the copies among them that it may read, and those that it
    may write, with the Aliases that they stand for."""
    self._given, out = [], []
    writes = {a for r in self._writes if (a := r()) is not None}
    reads = iter(exact([t for t, w in zip(pieces.tensors, self._written) if t._alias not in writes and not w]))
    read: list[Buffer] = []
    written: list[tuple[Buffer, Alias]] = []
    groups: dict[Alias, tuple[int, Any]] = {}
    open_ = {} if trace is None else {place: size for place, size in zip(self.dims, self.sizes)}
    for number, (t, w) in enumerate(zip(pieces.tensors, self._written)):
      a, view = t._alias, through(t._view)
      if a in writes or (w and len(a.tensors) > len({id(x) for x in pieces.tensors if x._alias is a})):
        # the function may hold it, or a part of it, itself: it gets the memory
        self._given.append(Given("state", view, alias=ref(a)))
        x = t.detach()
      elif w:
        if a not in groups:
          b = Buffer(a.memory.device, a.memory.shape, a.memory.dtype)
          b.take(a.memory)
          written.append((b, a))
          groups[a] = len(groups), type(t)._from_node(b.node)
        self._given.append(Given("written", view, a.node.shape, groups[a][0]))
        x = groups[a][1].detach()
        x._view, x._node = (*x._view, *view), None
      else:
        self._given.append(Given("read"))
        given = next(reads)
        shape = tuple([int(n) if (size := open_.get((number, d))) is None else BoundInt.of(n, size.node)
                       for d, n in enumerate(t.shape)])
        b = Buffer(given.device, shape, given.dtype)   # what is computed from a copy is new
        b.take(given)
        read.append(b)
        x = type(t)._from_node(b.node)
      if t._state > 0: x.requires_grad = True
      x._names = t._names
      out.append(x)
    return out, read, written

  def _capture(self, args: tuple[Any, ...], kwargs: dict[str, Any], pieces: Pieces, values: VariableValues = ()) -> Any:
    """Run the function and record what it launches. Raises CaptureError for what a replay could not repeat."""
    name = self.name
    engine.compute(waiting())   # written before the call: not the function's to repeat
    mine = [a for r in self._writes if (a := r()) is not None and a.memory is not None]
    engine.before_writing([a.memory.storage for a in mine], mine)
    engine.realize(pieces.tensors)
    theirs = dict.fromkeys([t._alias for t, w in zip(pieces.tensors, self._written) if w])
    engine.compute(theirs)   # all of what an argument is a part of
    for a in theirs:
      if a.memory is None: make_own(a)
    recorder = Recorder(name)
    trace = Trace(self.sizes, values) if self.sizes else None
    before, before_values = (self._alone(), self._first.values) if self._first is not None else (None, ())
    self.reads = reads_of(*called(self.fn, args), kwargs)
    stand_ins, read, written = self._stand_ins(pieces, trace)
    # values not computed, or in another's memory
    elsewhere = [ref(a) for a in live_aliases if a.memory is None]
    seed, count = random.place()
    serials = [b.storage.serial for b in read]
    written_serials = [b.storage.serial for b, _ in written]
    copies = iter(serials)
    for t, g, place in zip(pieces.tensors, self._given, pieces.places):
      if g.kind == "state": continue
      if t._alias.memory is not None: recorder.arguments[t._alias.memory.storage.serial] = place, g.kind == "read"
      if g.kind == "read": recorder.arguments[next(copies)] = place, True
    try:
      with recorder, nothing_known(), told_apart(), tracing(trace):
        call: Any = put((args, kwargs), _giver(stand_ins))
        box = [self.fn(*call[0], **call[1])]
        self.reads.settle()
        outputs, result = self._outputs(box, recorder, {*serials, *written_serials})
    except Shared:
      self.calls = 0   # the next call runs plainly
      recorder.undo()
      raise
    except Exception as e:
      if trace is not None and not isinstance(e, CaptureError):
        self._tries = 0   # it may be sizes that are no plain ints: later calls are captured for each shape
        report.note_line(f"{name} is captured for each shape: recording it for all sizes failed ({e})")
      raise
    finally: recorder.leave()
    recorder.writes = dict.fromkeys(recorder.writes)   # the values before would keep memory
    lines = self.reads.said(f"jit {name}")
    if lines and self.strict: raise CaptureError(f"jit {name}: it reads what is not compared at later calls: {'; '.join(lines)}")
    if not recorder.launches and not outputs and not recorder.writes:
      raise CaptureError(
        f"jit {name}: the function launched no kernel, so there is nothing to capture; realize() what it computes"
      )
    rng = [b for b, _ in recorder.host if b.rng_count]
    if random.place() != (seed, (count + sum([b.rng_count for b in rng if b.rng_from is None])) % 2 ** 64):
      raise CaptureError(
        f"jit {name}: the function sets the random seed (manual_seed), which a replay cannot repeat; do it before the call"
      )
    other_data = len(recorder.data) == len(self._host) and recorder.data != self._host
    if other_data and self.sizes and values != self._host_values:   # it may be the same at each call of these sizes
      self._tries, self._first = 0, None
      report.note_line(f"{name} is captured for each shape: it makes a tensor from host data that is not the same at each size")
      write_back(written, name)
      return put(result, _giver([o.first() for o in outputs]))
    if other_data:
      shape, dtype, _ = next(a for a, b in zip(recorder.data, self._host) if a != b)
      raise CaptureError(
        f"jit {name}: the function makes a tensor of shape {shape} ({dtype.name}) from host data that is not the same at each "
        "call; "
        "pass it as an argument"
      )
    for x, place in zip(stand_ins, pieces.places):
      if x.grad is not None:
        raise CaptureError(f"jit {name}: {place} gets a gradient (.grad) inside, which replays do not give it; return gradients "
                           "(loss.gradient(x)), or detach() the argument")
    copied = [p for p, g in zip(pieces.places, self._given) if g.kind == "read"]
    copied += [f"an argument of shape {b.shape} that is written" for b, _ in written]
    gone = [(ref(b.storage), p) for b, p in zip([*read, *(b for b, _ in written)], copied)]
    write_back(written, name)
    del call
    x = a = t = None
    stand_ins.clear()
    read.clear()
    written.clear()
    # a kept result, and what was written, would keep the whole graph that they came from
    for a in {*recorder.changed, *[a for a in live_aliases if made_after(recorder.start, a)]}:
      for t in a.seen():
        if t._state == 1: t._node = None
    late = [x for x in (r() for r in elsewhere) if x is not None and made_after(recorder.start, x)]
    if late and self._late < 2:
      # computed here because it is used, or its sources were about to be overwritten: this call is right as it ran, the next one
      # is captured
      self._late += 1
      shared = [a for a in recorder.changed if a.memory is None]
      for a in shared: a.renew()
      engine.compute(shared)
      return put(result, _giver([o.first() for o in outputs]))
    if late:
      raise CaptureError(
        f"jit {name}: a tensor of shape {late[0].node.shape} that was made before each call is computed in it; realize() it "
        "before, "
        "or make it inside"
      )
    if any([r() is not None for r, _ in gone]): live_nodes()   # lets go of what an interrupt kept from going
    for r, place in gone:
      if (storage := r()) is not None:
        raise CaptureError(
          f"jit {name}: {place} is kept after the call {keeper(storage)}, where replays would not renew it; realize() what is "
          "computed from it before the call ends, return it, or assign it to a tensor that exists before the call"
        )
    host = [b for b, _ in recorder.host if not b.rng_count]
    self._result, self._late = result, 0
    inputs = serials_in_order(self._given, serials, written_serials)
    sized = None if trace is None else self._sized(trace, recorder, inputs, outputs, rng, pieces)
    done = self.replay = Replay(recorder, inputs, outputs, rng, host, sized)
    if before is not None and sized is None and self.sizes: self._each[before_values] = before
    if trace is not None and not self._tries:
      self._each[values] = one = self._alone()
      self.replay, self.used = None, one
    if config.debug >= 1:
      print(
        f"captured {name}: {len(done.steps)} kernels; inner buffers take {done.planned_bytes:,} bytes, "
        f"{done.unplanned_bytes:,} without sharing"
      )
    return put(result, _giver([o.first() for o in outputs]))

  def _outputs(self, box: list[Any], recorder: Recorder, inputs: set[int]) -> tuple[list[Output], Any]:
    """Perform what the call has written, and realise the result (alone in ``box``, so that nothing else holds it) in memory of
    its own; gives its Tensors and the rest with holes for them."""
    result = box.pop()
    pieces = take(result, "the result", Pieces())
    for value, place in zip(pieces.others, pieces.other_places):
      if not isinstance(value, VALUES):
        raise CaptureError(
          f"jit {self.name}: {place} is a {type(value).__name__}, which replays could not renew; return Tensors, in nested "
          "tuples, lists, dicts and dataclasses"
        )
    own = [type(t)._from_node(t.detach().lazydata) for t in pieces.tensors]
    holes = put(result, _giver([_hole(t) for t in pieces.tensors]))
    result = pieces = None  # type: ignore[assignment]
    for t in own:   # before anything is performed
      if (base := base_of(t._alias.node)).op is Ops.BUFFER: recorder.reach(base.arg)
    engine.compute([*recorder.changed, *(t._alias for t in own)])
    writes = {k for x in recorder.launches for k in x.writes}
    made_by_host = {b.storage.serial for b, _ in recorder.host}
    taken: set[int] = set()
    again = []
    for t in own:   # what others see, or was not computed here, is copied
      s = base_of(t._alias.node).arg.storage
      seen = s.writer is not None and s.writer() not in (None, t._alias)
      if (
        seen
        or s.serial in taken
        or s.serial in inputs
        or s.serial not in writes
        or s.serial in made_by_host
        or s.serial < recorder.start
      ):
        t._alias.renew()
        again.append(t._alias)
      else:
        taken.add(s.serial)
    engine.compute(again)
    return [Output(type(t), t._alias.node) for t in own], holes


def pieces_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pieces:
  """The arguments of a call as what they are made of."""
  out = Pieces([(len(args), tuple(kwargs))])
  for i, a in enumerate(args): take(a, f"argument {i}", out)
  for k, a in kwargs.items(): take(a, f"argument {k!r}", out)
  return out


def _giver(tensors: list[Any]) -> Callable[[], Any]:
  given = iter(tensors)
  return lambda: next(given)


def _hole(t: Any) -> Any:
  return type(t)._from_node(const(0, t.dtype))
