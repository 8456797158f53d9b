"""Capture: a function's kernels are recorded once and then launched again, with no tensor code in between."""
from __future__ import annotations

import functools
from typing import Any, Callable
from weakref import ref

from ntgrad.codegen.config import config
from ntgrad.codegen.errors import CaptureError
from ntgrad.codegen.uop import Ops, UOp
from ntgrad.core import Base, live_tensors, mode
from ntgrad.graph import buffer as buffer_node, const

from . import realize as engine
from .arguments import VALUES, Pieces, kept, put, same, take, text
from .buffer import Buffer
from .capture import Output, Recorder, Replay, Watch, base_of, nothing_known


class Signature:
  """What a capture was made for: how its arguments are nested, what each Tensor is, what all else is."""

  def __init__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], pieces: Pieces, buffers: list[Buffer]):
    self.name, self.marks, self.text = name, pieces.marks, text(args) + (" " + text(kwargs) if kwargs else "")
    self.tensors = [(t.shape, t.dtype, b.device) for t, b in zip(pieces.tensors, buffers)]
    self.others = [kept(o) for o in pieces.others]
    self.modes = (mode.training, mode.grad)

  def check(self, args: tuple[Any, ...], kwargs: dict[str, Any], pieces: Pieces) -> None:
    """Refuse arguments that do not fit. Raises CaptureError."""
    if pieces.marks != self.marks:
      raise CaptureError(f"jit {self.name}: called with {text(args)}{' ' + text(kwargs) if kwargs else ''}, captured with {self.text}; "
                         "arguments must be nested alike")
    for t, place, (shape, dtype, device) in zip(pieces.tensors, pieces.places, self.tensors):
      u = t.lazydata
      if u.shape != shape: raise CaptureError(f"jit {self.name}: {place} has shape {u.shape}, captured with {shape}; {_ANOTHER}")
      if u.dtype is not dtype: raise CaptureError(f"jit {self.name}: {place} is {u.dtype.name}, captured with {dtype.name}; cast it, or {_ANOTHER}")
      if u.device is not None and u.device != device:
        raise CaptureError(f"jit {self.name}: {place} is on {u.device}, captured on {device}; move it with .to({device!r})")
    for value, old, place in zip(pieces.others, self.others, pieces.other_places):
      if not same(old, value):
        raise CaptureError(f"jit {self.name}: {place} is {text(value)}, captured with {text(old)}, which is part of the captured kernels; "
                           f"pass what changes as a Tensor, or {_ANOTHER}")
    if (mode.training, mode.grad) != self.modes:
      now, then = (f"Tensor.training {training}, gradients {'on' if grad else 'off'}" for training, grad in ((mode.training, mode.grad), self.modes))
      raise CaptureError(f"jit {self.name}: called with {now}, captured with {then}; {_ANOTHER}")


_ANOTHER = "give each its own ntgrad.jit, or reset() this one"
_recording: list[Recorder] = []


class TinyJit:
  """A function whose kernels are captured: ``f = ntgrad.jit(f)``, or ``@ntgrad.jit`` above a function or method.

  The first call runs the function, the second runs it and records every kernel, later ones launch those kernels on their arguments and
  run no Python of the function. So the function's Tensors must come from its arguments or be held somewhere (parameters, state), and
  its results must be Tensors, in nested tuples, lists, dicts and dataclasses, or fixed numbers. What it assigns (``Tensor.assign``,
  optimizers) goes on being assigned; random numbers are new ones at each call; a result's memory is its own. An argument is what it
  was when the call began, also where the function assigns the memory that it views. Python numbers that the function takes from
  elsewhere stay as they were when it was captured.

  Raises CaptureError at the second call for what cannot be repeated (a value read, nothing computed, ..), and later for arguments of
  another shape, dtype, device or nesting, and for other arguments that are no Tensors. A jit called while another records is part of it.
  """

  def __init__(self, fn: Callable[..., Any]):
    self.fn = fn
    self.name = getattr(fn, "__qualname__", type(fn).__name__).split("<locals>.")[-1]
    functools.update_wrapper(self, fn, updated=())
    self.calls = self._late = 0
    self._host: list[tuple[Any, ...]] = []
    self._signature: Signature | None = None
    self._replay: Replay | None = None
    self._result: Any = None
    self._of: dict[int, tuple[ref[Any], TinyJit]] = {}   # methods: one capture an object

  def __get__(self, owner: Any, kind: Any = None) -> Any:
    if owner is None: return self
    found = self._of.get(id(owner))
    if found is None or found[0]() is not owner:
      key = id(owner)
      found = self._of[key] = (ref(owner, lambda _: self._of.pop(key, None)), TinyJit(functools.partial(_call, ref(owner), self.fn)))
      found[1].name = self.name
    return found[1]

  # ---- looking
  @property
  def captured(self) -> bool:
    """Whether calls replay."""
    return self._replay is not None
  @property
  def kernels(self) -> int:
    """How many kernels (copies included) a replay launches; 0 before the capture."""
    return len(self._replay.steps) if self._replay is not None else 0
  @property
  def planned_bytes(self) -> int:
    """Bytes that the inner buffers of the captured kernels share."""
    return self._replay.planned_bytes if self._replay is not None else 0
  @property
  def unplanned_bytes(self) -> int:
    """Bytes that they would take each on its own."""
    return self._replay.unplanned_bytes if self._replay is not None else 0

  def reset(self) -> None:
    """Forget the capture: the next call runs plainly, the one after it captures."""
    self.calls = self._late = 0
    self._replay = self._signature = self._result = None
    self._host, self._of = [], {}

  # ---- calling
  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    if not config.jit or _recording: return self.fn(*args, **kwargs)
    kwargs = dict(sorted(kwargs.items()))
    if self._replay is not None: return self._again(args, kwargs)
    if self.calls == 0:
      with Watch() as watch: result = self.fn(*args, **kwargs)
      self._host = watch.data
      self.calls = 1
      return result
    return self._capture(args, kwargs)

  def _again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from ntgrad.random import next_state
    assert self._replay is not None and self._signature is not None
    pieces = _pieces(args, kwargs)
    self._signature.check(args, kwargs, pieces)
    return put(self._result, _giver(self._replay.run(self._inputs(pieces), next_state)))

  def _inputs(self, pieces: Pieces) -> list[Buffer]:
    """A buffer for each Tensor argument that holds exactly its elements. Raises CaptureError for constants."""
    waiting = []
    for t, place in zip(pieces.tensors, pieces.places):
      u = t.lazydata
      if u.op is Ops.BUFFER: continue
      base = base_of(u)
      while base.op is Ops.DETACH: base = base_of(base.src[0])
      if base.op is Ops.CONST:
        raise CaptureError(f"jit {self.name}: {place} is a constant ({base.arg}, shape {t.shape}) without memory, which kernels have inside them; "
                           "pass .contiguous().realize() of it, or a Tensor made from a list")
      waiting.append(t)
    if waiting: engine.realize(waiting)
    out: list[Any] = []
    views: list[Any] = []
    for t in pieces.tensors:
      u = t.lazydata
      while u.op is Ops.RESHAPE: u = engine.resolved(u.src[0])
      if u.op is Ops.BUFFER: out.append(u.arg)
      else:
        views.append(type(t)._from_node(UOp(Ops.CONTIGUOUS, u.dtype, (u,))))
        out.append(views[-1])
    if views: engine.realize(views)
    return [base_of(b.lazydata).arg if isinstance(b, Base) else b for b in out]

  def _capture(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the function and record what it launches. Raises CaptureError for what a replay could not repeat."""
    from ntgrad import random
    name = self.name
    waiting = [t for t in live_tensors if base_of(t.lazydata).op is Ops.ASSIGN]
    if waiting: engine.realize(waiting)   # assigned before the call: not the function's to repeat
    pieces = _pieces(args, kwargs)
    buffers = self._inputs(pieces)
    signature = Signature(name, args, kwargs, pieces, buffers)
    recorder = Recorder(name)
    # the function gets copies: what it computes from them is new, and none is memory that it writes
    copies = [Buffer(b.device, b.shape, b.dtype) for b in buffers]
    for copied, b in zip(copies, buffers): copied.take(b)
    stand_ins = [_stand_in(t, b) for t, b in zip(pieces.tensors, copies)]
    unrealised = [ref(t) for t in live_tensors if base_of(t.lazydata).op not in (Ops.BUFFER, Ops.CONST)]
    seed, count = random.place()
    serials = [c.storage.serial for c in copies]
    _recording.append(recorder)
    try:
      with recorder, nothing_known():
        given = iter(stand_ins)
        call: Any = put((args, kwargs), lambda: next(given))
        outputs, result = self._outputs([self.fn(*call[0], **call[1])], recorder, serials)
    finally: _recording.remove(recorder)
    if not recorder.launches:
      raise CaptureError(f"jit {name}: the function launched no kernel, so there is nothing to capture; realize() what it computes")
    rng = [b for b, _ in recorder.host if b.rng_count]
    if random.place() != (seed, (count + sum([b.rng_count for b in rng])) % 2 ** 64):
      raise CaptureError(f"jit {name}: the function sets the random seed (manual_seed), which a replay cannot repeat; do it before the call")
    if len(recorder.data) == len(self._host) and recorder.data != self._host:
      shape, dtype, _ = next(a for a, b in zip(recorder.data, self._host) if a != b)
      raise CaptureError(f"jit {name}: the function makes a tensor of shape {shape} ({dtype.name}) from host data that is not the same at each call; "
                         "pass it as an argument")
    for x, serial, place in zip(stand_ins, serials, pieces.places):
      if x.grad is not None:
        raise CaptureError(f"jit {name}: {place} gets a gradient (.grad) inside, which replays do not give it; return gradients "
                           "(loss.gradient(x)), or detach() the argument")
      if any([serial in launch.writes for launch in recorder.launches]):
        raise CaptureError(f"jit {name}: {place} is assigned inside; assign to a tensor that the function holds, or return the new value")
    gone = [ref(b.storage) for b in copies]
    given = call = x = copied = None  # type: ignore[assignment]
    stand_ins.clear()
    copies.clear()
    for t in live_tensors:   # a kept result would keep the whole graph that it came from
      if _made_after(recorder.start, t): t.lazydata.__dict__.pop("origin", None)
    t = None
    late = [x for x in (r() for r in unrealised) if x is not None and _made_after(recorder.start, x)]
    if late and self._late < 2:
      # computed here because its sources were about to be overwritten: this call is right as it ran, the next one is captured
      self._late += 1
      return put(result, _giver([o.first() for o in outputs]))
    if late:
      raise CaptureError(f"jit {name}: a tensor of shape {late[0].shape} that was made before each call is computed in it; realize() it before, "
                         "or make it inside")
    for r, place in zip(gone, pieces.places):
      if r() is not None:
        raise CaptureError(f"jit {name}: {place} is kept after the call (in an attribute, a list, or by a tensor that was not realised), where "
                           "replays would not renew it; return it, or assign it to a tensor that exists before the call")
    host = [b for b, _ in recorder.host if not b.rng_count]
    self._replay = Replay(recorder, serials, outputs, rng, host)
    self._signature, self._result = signature, result
    if config.debug >= 1:
      print(f"captured {name}: {self.kernels} kernels; inner buffers take {self.planned_bytes:,} bytes, {self.unplanned_bytes:,} without sharing")
    return put(result, _giver([o.first() for o in outputs]))

  def _outputs(self, box: list[Any], recorder: Recorder, inputs: list[int]) -> tuple[list[Output], Any]:
    """Realise the result (alone in ``box``, so that nothing else holds it); gives its Tensors and the rest with holes for them."""
    result = box.pop()
    pieces = take(result, "the result", Pieces())
    for value, place in zip(pieces.others, pieces.other_places):
      if not isinstance(value, VALUES):
        raise CaptureError(f"jit {self.name}: {place} is a {type(value).__name__}, which replays could not renew; return Tensors, in nested "
                           "tuples, lists, dicts and dataclasses")
    waiting = [t for t in pieces.tensors if base_of(t.lazydata).op is not Ops.BUFFER]
    if waiting: engine.realize(waiting)
    nodes = [(type(t), t.lazydata) for t in pieces.tensors]
    holes = put(result, _giver([_hole(t) for t in pieces.tensors]))
    places = pieces.places
    writes = {k for x in recorder.launches for k in x.writes}
    made_by_host = {b.storage.serial for b, _ in recorder.host}
    result = pieces = waiting = None  # type: ignore[assignment]
    held = {base.arg.storage for t in live_tensors if (base := base_of(t.lazydata)).op is Ops.BUFFER}
    for i, (kind, node) in enumerate(nodes):
      s = base_of(node).arg.storage
      empty = base_of(node).arg.nbytes == 0   # nothing launches for it
      if s.serial in inputs and not empty:
        raise CaptureError(f"jit {self.name}: {places[i]} is an argument as it was given; return something computed, or leave it out")
      if (s.serial not in writes or s.serial in made_by_host) and not empty:
        raise CaptureError(f"jit {self.name}: {places[i]} (shape {node.shape}) is not computed by the call but was made "
                           f"{'from host data' if s.serial in made_by_host else 'before it'}; leave it out of the result")
      if s.serial < recorder.start or s in held or empty:   # it goes on being written, the result must not
        copy = kind._from_node(UOp(Ops.CONTIGUOUS, node.dtype, (node,)))
        engine.realize([copy])
        nodes[i] = (kind, copy.lazydata)
    return [Output(kind, node) for kind, node in nodes], holes


def _pieces(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pieces:
  out = Pieces([(len(args), tuple(kwargs))])
  for i, a in enumerate(args): take(a, f"argument {i}", out)
  for k, a in kwargs.items(): take(a, f"argument {k!r}", out)
  return out


def _made_after(serial: int, t: Any) -> bool:
  base = base_of(t.lazydata)
  return base.op is Ops.BUFFER and base.arg.storage.serial > serial


def _giver(tensors: list[Any]) -> Callable[[], Any]:
  given = iter(tensors)
  return lambda: next(given)


def _stand_in(t: Any, b: Buffer) -> Any:
  """What the function gets for an argument while it is recorded."""
  x = type(t)._from_node(buffer_node(b))
  x._state = 2 if t._state > 0 else t._state
  return x


def _hole(t: Any) -> Any:
  return type(t)._from_node(const(0, t.dtype))


def _call(owner: ref[Any], fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: return fn(owner(), *args, **kwargs)


jit = TinyJit


__all__ = ["TinyJit", "jit"]
