"""Evaluates a linear program: SPECIALs are array axes, vector lanes the last axis, LOOP is a Python ``for``.

All programs of a chunk of the grid run in lockstep, so a value is an array that broadcasts over
``(group axes.., local axes.., lanes)``; an axis that it does not depend on has size 1. IF is a mask over the programs.
A program is compiled to nested lists of Python closures once, and run a chunk at a time.
"""
from __future__ import annotations

import itertools
from typing import Any, Callable, Iterator, NoReturn, Sequence

import numpy as np

from ntgrad.codegen.errors import VerifyError
from ntgrad.codegen.uop import Ops, TernaryOps, UOp, UOpList, step_of

from .functions import cast, function
from .memory import Array, Memory, Tracker

CHUNK = 1 << 18  # elements of the largest intermediate

Step = Callable[["_State"], None]


class _State:
  """One chunk while it runs."""

  def __init__(self, n: int):
    self.values: list[Any] = [None] * n
    self.mask: Array | None = None                # programs that run; None: all
    self.memory: dict[UOp, Memory] = {}
    self.base: dict[UOp, Array] = {}              # where each program's part of a DEFINE_LOCAL begins
    self.who: Array | None = None                 # the group number of each program
    self.item: Array | None = None                # the work-item number within its group
    self.axes: list[Array] = []
    self.shape: tuple[int, ...] = ()              # programs along each axis


class Evaluator:
  """A linear program, compiled for numpy. Raises VerifyError while running for what a device would leave undefined."""

  def __init__(self, name: str, uops: Sequence[UOp]):
    self.name, self.uops = name, UOpList(uops)
    self.number = {u: i for i, u in enumerate(self.uops)}
    self.params = [u for u in self.uops if u.op is Ops.DEFINE_GLOBAL]
    specials = {(u.arg[0], u.arg[1]): u for u in self.uops if u.op is Ops.SPECIAL}
    self.sizes: dict[tuple[str, int], int] = {k: u.arg[2] for k, u in specials.items()}
    # dimension 0 is the fastest: last of the group axes, last of the local axes
    self.groups = sorted([k for k in self.sizes if k[0] == "g"], key=lambda k: -k[1])
    self.locals = sorted([k for k in self.sizes if k[0] == "l"], key=lambda k: -k[1])
    self.ndim = len(self.groups) + len(self.locals) + 1
    self.items = int(np.prod([self.sizes[k] for k in self.locals], dtype=np.int64))
    self.launched = self.items * int(np.prod([self.sizes[k] for k in self.groups], dtype=np.int64))
    written, read = set(), set()
    for u in self.uops:
      if u.op in (Ops.STORE, Ops.ATOMIC): written.add(u.src[0])
      elif u.op is Ops.LOAD: read.add(u.src[0])
    self.written, self.read = written, read
    self.current: UOp | None = None  # the line that runs
    self.weight = max(
      [u.dtype.count for u in self.uops]
      + [u.arg[1] if u.arg[2] == "private" else -(-u.arg[1] // self.items) for u in self.uops if u.op is Ops.DEFINE_LOCAL]
    )
    self.slot: dict[UOp, int] = {}
    for i, u in enumerate(self.uops):  # a PHI is its accumulator's current value
      self.slot[u] = self.slot[u.src[0]] if u.op is Ops.PHI else i
    self.drops = self._last_uses()
    self.steps = _Planner(self).steps

  def fail(self, u: UOp, sentence: str) -> NoReturn:
    """Raise VerifyError about a line of the listing."""
    raise VerifyError(f"kernel {self.name!r} {sentence}; line {self.uops.lines()[self.number[u]].strip()}")

  def _fail_here(self, sentence: str) -> NoReturn:
    assert self.current is not None
    self.fail(self.current, sentence)

  def _last_uses(self) -> dict[int, list[int]]:
    """After which line the value of a slot may be forgotten: its last use, or the end of the loop which has that use."""
    opened: list[int] = []
    path: list[tuple[int, ...]] = []
    close: dict[int, int] = {}
    for i, u in enumerate(self.uops):
      path.append(tuple(opened))
      if u.op is Ops.ELSE: path[-1] = tuple(opened[:-1])
      if u.op in (Ops.ELSE, Ops.ENDLOOP, Ops.ENDIF, Ops.ENDWHILE):
        close[opened.pop()] = i
        path[-1] = tuple(opened)
      if u.op in (Ops.LOOP, Ops.IF, Ops.ELSE, Ops.WHILE): opened.append(i)
    last: dict[int, int] = {}
    for i, u in enumerate(self.uops):
      for s in (u, *u.src):
        at = self.slot[s]
        home, here = path[at], path[i]
        use = i if here == home else close[here[len(home)]] if here[:len(home)] == home else i
        last[at] = max(last.get(at, 0), use)
    drops: dict[int, list[int]] = {}
    for slot, i in last.items(): drops.setdefault(i, []).append(slot)
    return drops

  # ---- running
  def chunks(self) -> Iterator[list[range]]:
    """Boxes of group ids, each small enough for one go."""
    room = max(1, CHUNK // (self.items * self.weight))
    parts: list[list[range]] = []
    for k in reversed(self.groups):
      n = self.sizes[k]
      step = min(n, room)
      parts.append([range(b, min(b + step, n)) for b in range(0, n, step)] if n else [])
      room = max(1, room // n) if step == n and n else 1
    for box in itertools.product(*reversed(parts)): yield list(box)

  def run(self, buffers: Sequence[Array]) -> None:
    """Launch over flat uint8 arrays, one a param in slot order."""
    params: dict[UOp, Memory] = {}
    same: dict[tuple[int, int], list[UOp]] = {}
    for u in self.params:
      slot, name = u.arg[:2]
      if slot >= len(buffers):
        raise VerifyError(f"kernel {self.name!r} has param {slot} {name!r}, but was launched with {len(buffers)} buffers")
      raw, size = buffers[slot], u.dtype.itemsize
      data = raw[:raw.nbytes // size * size].view(u.dtype.np)
      # one allocation under two params is one memory: what one writes the other sees
      params[u] = Memory(f"param {slot} {name!r}", data, data.size, self._fail_here)
      same.setdefault((data.ctypes.data, size), []).append(u)
    for users in same.values():
      if self.launched == self.items or not self.written.intersection(users): continue
      reads = not self.read.isdisjoint(users)
      tracker = Tracker(max(params[u].size for u in users), reads)
      for u in users: params[u].tracker = tracker
    with np.errstate(all="ignore"):
      for box in self.chunks(): self._run_chunk(box, params)

  def _run_chunk(self, box: list[range], params: dict[UOp, Memory]) -> None:
    st = _State(len(self.uops))
    st.memory = dict(params)
    ranges = box + [range(self.sizes[k]) for k in self.locals]
    st.shape = tuple(len(r) for r in ranges)
    for axis, r in enumerate(ranges):
      st.axes.append(np.arange(r.start, r.stop).reshape([-1 if a == axis else 1 for a in range(self.ndim)]))
    ng = len(self.groups)
    group, item = np.zeros([1] * self.ndim, np.int64), np.zeros([1] * self.ndim, np.int64)
    for axis, k in enumerate(self.groups): group = group * self.sizes[k] + st.axes[axis]
    for axis, k in enumerate(self.locals): item = item * self.sizes[k] + st.axes[ng + axis]
    st.item = np.broadcast_to(item, st.shape + (1,))
    if self.launched > self.items: st.who = np.broadcast_to(group, st.shape + (1,))
    for step in self.steps: step(st)


class _Planner:
  """Turns the list into closures; LOOP and IF take the closures up to their end."""

  def __init__(self, ev: Evaluator):
    self.ev, self.at = ev, 0
    self.ones = (1,) * ev.ndim
    self.steps = self.block(None)

  def block(self, opener: UOp | None) -> list[Step]:
    """The steps up to what ends ``opener``: its ENDLOOP, ELSE, ENDIF or ENDWHILE."""
    ev = self.ev
    steps: list[Step] = []
    while self.at < len(ev.uops):
      first, u = self.at, ev.uops[self.at]
      self.at += 1
      if u.op in (Ops.ENDLOOP, Ops.ELSE, Ops.ENDIF, Ops.ENDWHILE):
        if opener is None or u.src[0] is not opener: ev.fail(u, "ends something that is not open here")
        self.at -= 1
        return steps
      if u.op is Ops.PHI:
        group = [u]
        while self.at < len(ev.uops) and ev.uops[self.at].op is Ops.PHI:
          group.append(ev.uops[self.at])
          self.at += 1
        steps.append(self.phi(group))
      elif u.op in (Ops.LOOP, Ops.IF, Ops.WHILE):
        parts = [self.block(u)]
        if ev.uops[self.at].op is Ops.ELSE:
          self.at += 1
          parts.append(self.block(u))
        self.at += 1
        steps.append({Ops.LOOP: self.loop, Ops.IF: self.branch, Ops.WHILE: self.repeat}[u.op](u, *parts))
      else:
        step = self.step(u)
        if step is not None: steps.append(step)
      gone = [s for i in range(first, self.at) for s in ev.drops.get(i, ())]
      # what a nested block defines is dropped by that block
      if u.op in (Ops.LOOP, Ops.IF, Ops.WHILE): gone = ev.drops.get(self.at - 1, [])
      if gone: steps.append(_drop(gone))
    if opener is not None: ev.fail(opener, "opens something that never ends")
    return steps

  def slots(self, u: UOp) -> list[int]: return [self.ev.slot[s] for s in u.src]

  def step(self, u: UOp) -> Step | None:
    """The closure of a node without a body; None where there is nothing to do."""
    make = self.break_ if u.op is Ops.BREAK else getattr(self, u.op.name.lower(), None)
    if make is None: self.ev.fail(u, f"has a {u.op} which the numpy backend cannot evaluate")
    return make(u)

  def sink(self, u: UOp) -> None: return None
  def define_global(self, u: UOp) -> None: return None

  def const(self, u: UOp) -> Step:
    value, out = np.full(self.ones, u.arg, u.dtype.np), self.ev.slot[u]
    def run(st: _State) -> None: st.values[out] = value
    return run

  def define_acc(self, u: UOp) -> Step:
    value, out = np.full(self.ones, u.arg, u.dtype.np), self.ev.slot[u]
    def run(st: _State) -> None:
      old = st.values[out]
      st.values[out] = value if st.mask is None or old is None else np.where(st.mask, value, old)
    return run

  def special(self, u: UOp) -> Step:
    ev, out, dtype = self.ev, self.ev.slot[u], u.dtype.np
    axis = (ev.groups + ev.locals).index((u.arg[0], u.arg[1]))
    def run(st: _State) -> None: st.values[out] = st.axes[axis].astype(dtype)
    return run

  def define_local(self, u: UOp) -> Step:
    ev = self.ev
    name, size, kind = u.arg
    private, groups = kind == "private", len(ev.groups)
    def run(st: _State) -> None:
      part = st.shape if private else st.shape[:groups] + (1,) * (len(st.shape) - groups)
      parts = int(np.prod(part, dtype=np.int64))
      tracker = Tracker(parts * size, True) if not private and ev.items > 1 else None
      st.memory[u] = Memory(f"{kind} array {name!r}", np.zeros(parts * size, u.dtype.np), size, ev._fail_here, tracker,
                            np.zeros(parts * size, np.bool_))
      st.base[u] = (np.arange(parts, dtype=np.intp) * size).reshape(part + (1,))
    return run

  def alu(self, u: UOp) -> Step:
    src, out = self.slots(u), self.ev.slot[u]
    f = function(u.arg, u.src[-1].dtype.scalar(), u.dtype.scalar())
    if len(src) == 1:
      a = src[0]
      def unary(st: _State) -> None: st.values[out] = f(st.values[a])
      return unary
    if len(src) == 2:
      a, b = src
      def binary(st: _State) -> None: st.values[out] = f(st.values[a], st.values[b])
      return binary
    a, b, c = src
    assert u.arg is TernaryOps.WHERE
    def where(st: _State) -> None: st.values[out] = f(st.values[a], st.values[b], st.values[c])
    return where

  def cast(self, u: UOp) -> Step:
    a, out, f = self.ev.slot[u.src[0]], self.ev.slot[u], cast(u.src[0].dtype.scalar(), u.dtype.scalar())
    def run(st: _State) -> None: st.values[out] = f(st.values[a])
    return run

  def bitcast(self, u: UOp) -> Step:
    a, out, dtype = self.ev.slot[u.src[0]], self.ev.slot[u], u.dtype.np
    def run(st: _State) -> None: st.values[out] = st.values[a].view(dtype)
    return run

  def vectorize(self, u: UOp) -> Step:
    src, out = self.slots(u), self.ev.slot[u]
    def run(st: _State) -> None: st.values[out] = np.concatenate(np.broadcast_arrays(*[st.values[s] for s in src]), axis=-1)
    return run

  def gep(self, u: UOp) -> Step:
    a, out, lane = self.ev.slot[u.src[0]], self.ev.slot[u], u.arg
    def run(st: _State) -> None:
      v = st.values[a]
      st.values[out] = v if v.shape[-1] == 1 else v[..., lane:lane + 1]  # one lane stands for all equal ones
    return run

  def load(self, u: UOp) -> Step:
    ev, out, count, buf = self.ev, self.ev.slot[u], u.dtype.count, u.src[0]
    src = self.slots(u)
    index, gate, other = src[1], src[2] if len(src) > 2 else None, src[3] if len(src) > 3 else None
    shared = buf.op is Ops.DEFINE_LOCAL
    def run(st: _State) -> None:
      ev.current = u
      g = st.mask if gate is None else st.values[gate] if st.mask is None else st.values[gate] & st.mask
      st.values[out] = st.memory[buf].load(st.values[index], count, g, None if other is None else st.values[other],
                                           st.base.get(buf), st.item if shared else st.who)
    return run

  def store(self, u: UOp) -> Step:
    ev, count, buf = self.ev, u.src[2].dtype.count, u.src[0]
    src = self.slots(u)
    index, value, gate = src[1], src[2], src[3] if len(src) > 3 else None
    shared = buf.op is Ops.DEFINE_LOCAL
    def run(st: _State) -> None:
      ev.current = u
      g = st.mask if gate is None else st.values[gate] if st.mask is None else st.values[gate] & st.mask
      st.memory[buf].store(st.values[index], count, st.values[value], g, st.base.get(buf), st.item if shared else st.who)
    return run

  def atomic(self, u: UOp) -> Step:
    ev, buf, how = self.ev, u.src[0], u.arg
    src = self.slots(u)
    index, value, gate = src[1], src[2], src[3] if len(src) > 3 else None
    def run(st: _State) -> None:
      ev.current = u
      g = st.mask if gate is None else st.values[gate] if st.mask is None else st.values[gate] & st.mask
      st.memory[buf].atomic(how, st.values[index], st.values[value], g, st.shape)
    return run

  def barrier(self, u: UOp) -> Step:
    ev = self.ev
    own = tuple(range(len(ev.groups), ev.ndim - 1))
    def run(st: _State) -> None:
      if st.mask is not None and own and (st.mask.any(axis=own) != st.mask.all(axis=own)).any():
        ev.fail(u, "has a barrier that only some work-items of a group reach")
      for m in st.memory.values():
        if m.written is not None and m.tracker is not None: m.tracker.reset()
    return run

  def phi(self, group: list[UOp]) -> Step:
    slot = self.ev.slot
    pairs = [(slot[u], slot[u.src[1]]) for u in group]
    def run(st: _State) -> None:
      new = [st.values[v] for _, v in pairs]  # all read before any is set
      for (acc, _), v in zip(pairs, new):
        st.values[acc] = v if st.mask is None else np.where(st.mask, v, st.values[acc])
    return run

  def loop(self, u: UOp, body: list[Step]) -> Step:
    ev, out, ones, dtype = self.ev, self.ev.slot[u], self.ones, u.dtype.np
    (lo, hi), by = self.slots(u)[:2], step_of(u)
    each, one = None if by is None else ev.slot[by], np.ones(ones, dtype)
    def run(st: _State) -> None:
      start, end, stride = st.values[lo], st.values[hi], one if each is None else st.values[each]
      if (stride < 1).any(): ev.fail(u, "has a loop that does not go up")
      if start.size == 1 and end.size == 1 and stride.size == 1:
        for i in range(int(start.item()), int(end.item()), int(stride.item())):
          st.values[out] = np.full(ones, i, dtype)
          for step in body: step(st)
        return
      outer = st.mask  # bounds that differ from program to program: those that are through sit out
      rounds = (end.astype(np.int64) - start + stride - 1) // stride
      if outer is not None: rounds = np.where(outer, rounds, 0)
      for i in range(max(0, int(rounds.max()))):
        index = start + np.asarray(i, dtype)*stride
        live = index < end
        st.values[out], st.mask = index, live if outer is None else live & outer
        if st.mask.any():
          for step in body: step(st)
      st.mask = outer
    return run

  def branch(self, u: UOp, body: list[Step], otherwise: Sequence[Step] = ()) -> Step:
    cond = self.ev.slot[u.src[0]]
    def run(st: _State) -> None:
      outer, c = st.mask, st.values[cond]
      for part, where in ((body, c), (otherwise, ~c)):
        mask = where if outer is None else where & outer
        if not part or not mask.any(): continue
        st.mask = None if mask.all() else mask
        for step in part: step(st)
      st.mask = outer
    return run

  def break_(self, u: UOp) -> Step:
    cond = self.ev.slot[u.src[0]]
    def run(st: _State) -> None: st.mask = st.values[cond] if st.mask is None else st.values[cond] & st.mask
    return run

  def repeat(self, u: UOp, body: list[Step]) -> Step:
    """WHILE: its BREAK leaves fewer and fewer programs, until there is none."""
    def run(st: _State) -> None:
      outer = st.mask
      while True:
        for step in body:
          step(st)
          if st.mask is not None and not st.mask.any(): break
        else: continue
        break
      st.mask = outer
    return run


def _drop(slots: list[int]) -> Step:
  def run(st: _State) -> None:
    for s in slots: st.values[s] = None
  return run
