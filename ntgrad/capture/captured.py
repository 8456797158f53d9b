"""Captures: one signature of a function that ntgrad.jit made, run plainly, then recorded, then replayed."""
from __future__ import annotations

import copy
import functools
from typing import Any, Callable, NamedTuple, Sequence
from weakref import ref

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir import CaptureError, NotFiniteError, NtgradError, Ops, Recent, config, dtypes, live_nodes, shown
from ntgrad.engine import overrides, realize as engine, report
from ntgrad.engine.buffer import Buffer, constants
from ntgrad.engine.device import Device
from ntgrad.engine.observers import observers
from ntgrad.engine.realize import base_of
from ntgrad.engine.recording import Output, Recorder, Shared, Watch, nothing_known, told_apart
from ntgrad.engine.replay import Replay
from ntgrad.engine.sized_recording import SizedRecording, outline
from ntgrad.engine.traced_sizes import Trace, VariableValues, tracing
from ntgrad.graph import Alias, BoundInt, live_aliases, mode, origins, through, waiting
from ntgrad.graph.modes import autocast
from ntgrad.graph.nodes import const
from ntgrad.reads import Reads, reads_of
from ntgrad.tensor import random

from .arguments import VALUES, Call, Pieces, constant, put, take
from .memory import ArgumentMemory, Given, exact, keeper, made_after, make_own, sharing, write_back

RECORDINGS = 64   # of a function: so many signatures, or up to as many more
BRANCHES = 4      # captures of one signature for values at which comparisons come out otherwise
VARIANTS = 8      # captures of one signature for what the function read
CHANGES = 4       # of them that are made without one that is used again, before the function is no longer captured
REST = 16         # calls that it then runs plainly
TRIES = 2         # pairs of recordings that are compared before a function is captured for each shape


class Sizes(NamedTuple):
  """Sizes that change: a variable for each, its value, and where it is from: (Tensor, dimension) first, then other arguments."""
  sizes: tuple[ix.Size, ...]
  values: VariableValues
  dims: tuple[tuple[int, int], ...]
  others: tuple[int, ...]


NO_SIZES = Sizes((), (), (), ())


def call_of(owner: ref[Any], fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
  """A call of a method of an object that is not kept alive."""
  return fn(owner(), *args, **kwargs)


def called(fn: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
  """The user's function in a captured one, and its arguments."""
  if isinstance(fn, functools.partial) and fn.func is call_of: return fn.args[1], (fn.args[0](), *args)
  return fn, args


def signature(pieces: Pieces) -> tuple[Any, ...]:
  """What a capture is made for: how arguments are nested, what each Tensor is and its dimensions are called, what all else is."""
  tensors = tuple([((u := t.lazydata).shape, u.dtype, u.device or Device.DEFAULT, t._names) for t in pieces.tensors])
  rounding = autocast.get(), config.allow_tf32, config.conv_tf32
  numbers = dtypes.default_float, dtypes.default_int, *rounding, config.all_leaves
  settings = mode.training, mode.grad, Device.assigned, config.dev, *numbers, overrides.state()
  return tuple(pieces.marks), tensors, tuple(map(constant, pieces.others)), settings


def own_result(t: Any) -> Any:
  """A result's value as a Tensor of its own, which the line has made that made the result."""
  node = t.detach().lazydata
  if node.origin is None: node.origin = t._alias.line or t._alias.node.origin
  return type(t)._from_node(node)


def difference(old: tuple[Any, ...] | None, new: tuple[Any, ...], call: Pieces) -> tuple[str, str]:
  """Why a call has another signature than the one before it: in a word, and in a sentence."""
  if old is None: return "anew", "it was not called before"
  if old[0] == new[0]:
    for place, (a, *_), (b, *_) in zip(call.places, old[1], new[1]):
      if a != b: return "size", f"{place} has shape {ix.shape_text(b)}, and had {ix.shape_text(a)}"
    for place, value, a, b in zip(call.other_places, call.others, old[2], new[2]):
      if a != b: return "constant", f"{place} is {shown(value)}, and was another one"
  return "", "its arguments are of another kind, or modes or settings are others"


class Capture:
  """What a jit knows of the calls of one signature: what the plain call did, then what replays launch. With ``sizes`` it is for
  all values of them: recorded at two, and replayed at others where the two recordings agree."""

  _next: Capture | None = None           # for values at which comparisons come out otherwise
  _first: SizedRecording | None = None   # the first recording of two
  _tries = TRIES
  calls = _late = 0
  _host: Sequence[tuple[Any, ...]] = ()
  _host_values: VariableValues = ()      # of the sizes then
  _writes: Sequence[ref[Alias]] = ()     # what the first call wrote and left
  _written: Sequence[bool] = ()          # which arguments were among it
  _shared: Sequence[int] = ()            # which arguments shared memory then
  _given: Sequence[Given] = ()
  replay: Replay | None = None
  _variants: Sequence[Capture] = ()      # for what the function read otherwise
  _changed = 0                           # how many of these were made since one served a second time
  _result: Any = None
  _why = ""                              # what it read otherwise the last time

  def __init__(self, fn: Callable[..., Any], name: str, sizes: Sizes = NO_SIZES, depth: int = BRANCHES, strict: bool = False):
    self.fn, self.name, self.sizes, self.depth, self.strict = fn, name, sizes, depth, strict
    self.used = self._now = self   # what did the last call; the one among the variants that did
    self._each: Recent[VariableValues, Capture] = Recent(RECORDINGS)   # for values that need recordings of their own
    self.reads = Reads()           # what the function read when it was recorded

  def call(self, call: Call) -> Any:
    """The function's result for arguments of the signature."""
    if self.sizes.sizes and (one := self._other(call.values)) is not None:
      try: return one.call(call)
      finally: self.used = one.used
    self.used = self
    if self.replay is not None and (self._first is None or self._first.values == call.values):
      now = self._for_reads()
      if now.replay is not None: return now._replayed(call)
      call.why = "constant", self._why
      self.used = now
      if self._changed > CHANGES:
        self._changed += 1
        if self._changed > CHANGES + REST: self._changed = CHANGES - 1
        return now._plainly(call)
      if now is not self: return now.call(call)
    plain = self.calls == 0 or any(self._written) and sharing(call) != self._shared
    return self._plainly(call) if plain else self._capture(call)

  def _replayed(self, call: Call) -> Any:
    assert self.replay is not None
    inputs = self._inputs(call)
    # memory may be shared otherwise than when it was captured
    if inputs is None or not self.replay.check(): return self._plainly(call)
    try: outputs = self.replay.run(inputs, random.next_state)
    except NtgradError as e:
      if isinstance(e, NotFiniteError): self._plainly(call)   # which finds the operation
      origins.blame_caller(e, f"in a replay of {self.name}, called")
      raise
    return put(self._result, iter(outputs).__next__)

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
      why = self._why = now.reads.why
      report.note_line(f"{self.name} is captured anew: {why}")
      self._changed += 1
      if self._changed == CHANGES + 1:
        origins.say_once(("changes", self.name, why), f"jit {self.name}: what it reads has been other at each of the last "
                         f"{CHANGES} calls: {why}; it runs plainly for {REST} calls; pass it as a Tensor, or read it outside of "
                         "the function")
      if now.reads.returns:
        found = self._another(self.sizes, self.depth)
        self._variants = *self._variants[1 - VARIANTS:], found
      else:   # nothing can bring back what is gone
        found = now
        found.replay, found.calls = None, 0
    self._now = found
    return found

  def _another(self, sizes: Sizes = NO_SIZES, depth: int = BRANCHES) -> Capture:
    return Capture(self.fn, self.name, sizes, depth, self.strict)

  def _other(self, values: VariableValues) -> Capture | None:
    """The capture for other values: where a comparison comes out otherwise, and for all where recordings did not agree."""
    if self._tries:
      if self.replay is not None and self.replay.values:
        if self.replay.move(values): return None
      elif self._first is None or values == self._first.values or self._first.holds(values): return None
      if self.depth:
        if self._next is None: self._next = self._another(self.sizes, self.depth - 1)
        return self._next
    if (found := self._each[values]) is None: found = self._each[values] = self._another()
    return found

  def _alone(self) -> Capture:
    """What was recorded last, for its values alone."""
    out = copy.copy(self)
    out.sizes, out._first, out.used, out._now, out._each = NO_SIZES, None, out, out, Recent(1)
    return out

  def _sized(self, trace: Trace, recorder: Recorder, inputs: Sequence[int], outputs: Sequence[Output],
             rng: Sequence[Buffer]) -> SizedRecording | None:
    """The numbers of a recording for all values, if it is the second and agrees with the first; else None."""
    there = {k: s for k, r in recorder.storages.items() if (s := r()) is not None}
    labels: dict[int, Any] = {
      **{b.storage.serial: ("data", "" if b.rng_count else digest) for b, digest in recorder.host[::-1]},
      **{k: ("argument", i) for i, k in enumerate(inputs)},
      **{k: ("number", constants[s]) for k, s in there.items() if s in constants},
      **{k: ("number", str(dtype), n.text) for k, (_, dtype, n) in trace.numbers.items()}}
    def label(k: int) -> Any: return labels[k] if k in labels else ("state", k) if k < recorder.start else None
    more = [tuple((g.kind, g.view, g.shape, g.group) for g in self._given),
            tuple(map(constant, take(self._result, "", Pieces()).others))]
    recorded = recorder.launches, recorder.sizes, outputs
    outlined = outline(*recorded, rng, label, more)
    sized, first = SizedRecording(trace, outlined, *recorded), self._first
    why, made = trace.lost, {o.serial for o in outputs}
    if not why:
      if sized.varying & there.keys() - made - labels.keys(): why = "it keeps a tensor of such a size"
      elif any(self._given[t].kind != "read" for t, _ in self.sizes.dims): why = "an argument of such a size is written"
      elif first is None: self._first = sized
      else: why = sized.refuses(first)
    if why:
      self._tries = 0 if trace.lost else self._tries - 1
      self._first = sized
      if not self._tries:
        report.note_line(f"{self.name} is captured for each shape "
                         f"({', '.join(f'{s.name} = {n}' for s, n in zip(trace.sizes, trace.values))}): {why}")
    if why or first is None: return None
    same = [ix.eq(size.node, n) for size, n, before in zip(trace.sizes, trace.values, first.values) if n == before]
    for c in same: trace.holds(c)   # a number that forgot it would not have shown
    if same: sized = SizedRecording(trace, outlined, *recorded)
    self._first = None
    report.note_line(f"captured {self.name} for all values of {', '.join(s.name for s in trace.sizes)}")
    return sized

  def _plainly(self, call: Call) -> Any:
    """Run the function itself, and see what it writes."""
    for o in observers: o.plainly(called(self.fn, call.args)[0], *call.why)
    self.replay = self._result = self._first = None
    watch = Watch()
    memory = [b.arg.storage.serial for t in call.tensors if (b := base_of(t._alias.node)).op is Ops.BUFFER]
    with told_apart(memory):
      try:
        with watch: result = self.fn(*call.args, **call.kwargs)
      finally: watch.leave()
      self._host, self._host_values, self.calls = watch.data, call.values, 1
      own = [own_result(t) for t in take(result, "the result", Pieces()).tensors]
      changed = watch.changed
      engine.compute([*changed, *(t._alias for t in own)])
    make_own([a for a in changed if a.memory is None])   # what is written again and again has memory of its own
    self._writes = list(map(ref, changed))
    self._written = [t._alias in changed for t in call.tensors]
    self._shared = sharing(call)
    return put(result, iter(own).__next__)

  def _inputs(self, call: Call) -> ArgumentMemory | None:
    """For a replay, the memory of each argument that is not the function's own (with its Alias if it is written). None where the
    arguments share memory otherwise than when it was captured."""
    assert self.replay is not None
    if any([t._alias.node.op is not Ops.BUFFER or t._alias.pending for t in call.tensors]): engine.realize(call.tensors)
    if not self.replay.written and all([g.kind == "read" for g in self._given]):
      return [(b, None) for b in exact(call.tensors)]
    read: list[Any] = []
    groups: dict[int, Alias] = {}
    for t, g in zip(call.tensors, self._given):
      a: Alias = t._alias
      if g.kind == "read": read.append(t)
      elif through(t._view) != g.view: return None
      elif g.kind == "state":
        if g.alias is None or g.alias() is not a: return None
      elif a.node.shape != g.shape or groups.setdefault(g.group, a) is not a: return None
    if len(set(groups.values())) != len(groups): return None
    for a in groups.values():
      if a.memory is None: make_own([a])
    theirs = {a.memory.storage for a in groups.values()}
    if not theirs.isdisjoint(self.replay.touched): return None
    written = self.replay.written | theirs
    if written and any([base_of(t.lazydata).arg.storage in written for t in read]): return None
    buffers = iter(exact(read))
    out: ArgumentMemory = []
    for g in self._given:
      if g.kind == "read": out.append((next(buffers), None))
      elif g.kind == "written" and (first := groups.pop(g.group, None)) is not None: out.append((first.memory, first))
    return out

  def _stand_ins(self, call: Call, recorder: Recorder, trace: Trace | None) -> tuple[list[Any], ArgumentMemory]:
    """What the function gets for its arguments while it is recorded, and the copies among that."""
    self._given = given_as = list[Given]()
    out: list[Any] = []
    writes = {a for r in self._writes if (a := r()) is not None}
    reads = iter(exact([t for t, w in zip(call.tensors, self._written) if t._alias not in writes and not w]))
    copies: ArgumentMemory = []
    groups: dict[Alias, tuple[int, Any]] = {}
    open_ = {} if trace is None else dict(zip(self.sizes.dims, self.sizes.sizes))
    for number, (t, w, place) in enumerate(zip(call.tensors, self._written, call.places)):
      a, view = t._alias, through(t._view)
      if a in writes or w and len(a.tensors) > len({id(x) for x in call.tensors if x._alias is a}):
        # the function may hold it, or a part of it, itself: it gets the memory
        g, x = Given("state", view, alias=ref(a)), t.detach()
      elif w:
        if a not in groups:
          b = Buffer(a.memory.device, a.memory.shape, a.memory.dtype)
          b.take(a.memory)
          copies.append((b, a))
          groups[a] = len(groups), type(t)._from_node(b.node)
        g, x = Given("written", view, a.node.shape, groups[a][0]), groups[a][1].detach()
        x._view, x._node = (*x._view, *view), None
      else:
        given = next(reads)
        shape = tuple(int(n) if (size := open_.get((number, d))) is None else BoundInt.of(n, size.node)
                       for d, n in enumerate(t.shape))
        b = Buffer(given.device, shape, given.dtype)   # what is computed from a copy is new
        b.take(given)
        copies.append((b, None))
        recorder.arguments[b.storage.serial] = place, True
        g, x = Given("read"), type(t)._from_node(b.node)
      given_as.append(g)
      if g.kind != "state" and a.memory is not None: recorder.arguments[a.memory.storage.serial] = place, g.kind == "read"
      # what was computed before and is written (a cache) is none to differentiate by
      if t._state > w and not config.all_leaves: x.requires_grad = True
      x._names = t._names
      out.append(x)
    return out, copies

  def _capture(self, call: Call) -> Any:
    """Run the function and record what it launches. Raises CaptureError for what a replay could not repeat."""
    name, values = self.name, call.values
    engine.compute(waiting())   # written before the call: not the function's to repeat
    mine = [a for r in self._writes if (a := r()) is not None and a.memory is not None]
    engine.before_writing([a.memory.storage for a in mine], mine)
    engine.realize(call.tensors)
    theirs = dict.fromkeys(t._alias for t, w in zip(call.tensors, self._written) if w)
    engine.compute(theirs)   # all of what an argument is a part of
    for a in theirs:
      if a.memory is None: make_own([a])
    recorder = Recorder(name)
    trace = Trace(self.sizes.sizes, values) if self.sizes.sizes else None
    before, before_values = (self._alone(), self._first.values) if self._first is not None else (None, ())
    self.reads = reads_of(*called(self.fn, call.args), call.kwargs)
    stand_ins, copies = self._stand_ins(call, recorder, trace)
    elsewhere = [ref(a) for a in live_aliases if a.memory is None]   # values not computed, or in another's memory
    seed, count = random.place()
    inputs = [b.storage.serial for b, _ in copies]
    try:
      with recorder, nothing_known(), told_apart(inputs), tracing(trace):
        given: Any = put((call.args, call.kwargs), iter(stand_ins).__next__)
        box = [self.fn(*given[0], **given[1])]
        self.reads.settle()
        outputs, result = self._outputs(box, recorder, inputs)
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
    rng = [b for b, _ in recorder.host if b.rng_count]
    drawn = sum(b.rng_count for b in rng if b.rng_from is None)
    other_data = len(recorder.data) == len(self._host) and recorder.data != self._host
    each = other_data and self.sizes.sizes and values != self._host_values   # it may be the same at each call of these sizes
    self._refuse(recorder, outputs, random.place() == (seed, (count + drawn) % 2 ** 64), other_data and not each)
    if each:
      self._tries, self._first = 0, None
      report.note_line(f"{name} is captured for each shape: it makes a tensor from host data that is not the same at each size")
      write_back(copies, name)
      return put(result, iter([o.first() for o in outputs]).__next__)
    for x, place in zip(stand_ins, call.places):
      if x.grad is not None:
        raise CaptureError(f"jit {name}: {place} gets a gradient (.grad) inside, which replays do not give it; return gradients "
                           "(loss.gradient(x)), or detach() the argument")
    gone = [(ref(b.storage), f"an argument of shape {b.shape} that is written" if a is not None
             else recorder.arguments[b.storage.serial][0]) for b, a in copies]
    write_back(copies, name)
    del given
    x = a = None
    stand_ins.clear()
    copies.clear()
    # a kept result, and what was written, would keep the whole graph that they came from
    for a in {*recorder.changed, *[a for a in live_aliases if made_after(recorder.start, a)]}:
      for t in a.seen():
        if t._state == 1: t._node = None
    late = [x for r in elsewhere if (x := r()) is not None and made_after(recorder.start, x)]
    if late and self._late < 2:
      # computed because it is used, or its sources were about to be overwritten: this call is right, the next one is captured
      self._late += 1
      make_own([a for a in recorder.changed if a.memory is None])
      return put(result, iter([o.first() for o in outputs]).__next__)
    if late:
      raise CaptureError(f"jit {name}: a tensor of shape {late[0].node.shape} that was made before each call is computed in it; "
                         "realize() it before, or make it inside")
    if any(r() is not None for r, _ in gone): live_nodes()   # lets go of what an interrupt kept from going
    for r, place in gone:
      if (storage := r()) is not None:
        raise CaptureError(
          f"jit {name}: {place} is kept after the call {keeper(storage)}, where replays would not renew it; realize() what is "
          "computed from it before the call ends, return it, or assign it to a tensor that exists before the call")
    host = [b for b, _ in recorder.host if not b.rng_count]
    self._result, self._late = result, 0
    sized = None if trace is None else self._sized(trace, recorder, inputs, outputs, rng)
    recorded = recorder.launches, recorder.sizes, outputs
    here = sized or SizedRecording(Trace((), ()), outline(*recorded, rng), *recorded)
    done = self.replay = Replay(recorder, inputs, outputs, rng, host, here)
    if before is not None and sized is None and self.sizes.sizes: self._each[before_values] = before
    if trace is not None and not self._tries:
      self._each[values] = one = self._alone()
      self.replay, self.used = None, one
    if config.debug >= 1:
      print(f"captured {name}: {len(done.steps)} kernels; inner buffers take {done.planned_bytes:,} bytes, "
            f"{done.unplanned_bytes:,} without sharing")
    return put(result, iter([o.first() for o in outputs]).__next__)

  def _refuse(self, recorder: Recorder, outputs: Sequence[Output], same_place: bool, other_data: bool) -> None:
    """Raises CaptureError for what was recorded and would not be the same at a replay."""
    me = f"jit {self.name}"
    lines = self.reads.said(me)
    if lines and self.strict: raise CaptureError(f"{me}: it reads what is not compared at later calls: {'; '.join(lines)}")
    if not recorder.launches and not outputs and not recorder.writes:
      raise CaptureError(f"{me}: the function launched no kernel, so there is nothing to capture; realize() what it computes")
    if not same_place:
      raise CaptureError(
        f"{me}: the function sets the random seed (manual_seed), which a replay cannot repeat; do it before the call")
    if other_data:
      shape, dtype, _ = next(a for a, b in zip(recorder.data, self._host) if a != b)
      raise CaptureError(f"{me}: the function makes a tensor of shape {shape} ({dtype.name}) from host data that is not the same "
                         "at each call; pass it as an argument")

  def _outputs(self, box: list[Any], recorder: Recorder, inputs: Sequence[int]) -> tuple[list[Output], Any]:
    """Perform what the call has written, and realise the result (alone in ``box``, so that nothing else holds it) in memory of
    its own; gives its Tensors and the rest with holes for them."""
    result = box.pop()
    pieces = take(result, "the result", Pieces())
    for value, place in zip(pieces.others, pieces.other_places):
      if not isinstance(value, VALUES):
        raise CaptureError(f"jit {self.name}: {place} is a {type(value).__name__}, which replays could not renew; return "
                           "Tensors, in nested tuples, lists, dicts and dataclasses")
    own = [own_result(t) for t in pieces.tensors]
    holes = put(result, iter([type(t)._from_node(const(0, t.dtype)) for t in pieces.tensors]).__next__)
    result = pieces = None  # type: ignore[assignment]
    for t in own:   # before anything is performed
      if (base := base_of(t._alias.node)).op is Ops.BUFFER: recorder.reach(base.arg)
    grads = [t.grad._alias for a in live_aliases for t in a.seen() if t.grad is not None]   # of its making: each replay sets them
    left = [a for a in grads if not engine.is_view(a.node) and a.node not in engine.values_before_call]
    engine.compute([*recorder.changed, *left, *(t._alias for t in own)])
    free = {k for x in recorder.launches for k in x.writes if k >= recorder.start}
    free -= {*inputs, *[b.storage.serial for b, _ in recorder.host]}
    again = [a for a in grads if (base := base_of(a.node)).op is Ops.BUFFER and base.arg.storage.serial in inputs]
    for t in own:
      s = base_of(t._alias.node).arg.storage
      if s.serial not in free or s.writer is not None and s.writer() not in (None, t._alias): again.append(t._alias)
      else: free.remove(s.serial)
    make_own(again)   # what others see, or was not computed here, is copied
    return [Output(type(t), t._alias.node) for t in own], holes


def pieces_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
  """The arguments of a call as what they are made of."""
  out = Call([(len(args), tuple(kwargs))], args=args, kwargs=kwargs)
  for i, a in enumerate(args): take(a, f"argument {i}", out)
  for k, a in kwargs.items(): take(a, f"argument {k!r}", out)
  return out
