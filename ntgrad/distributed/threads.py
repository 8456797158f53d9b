"""Ranks that are threads of one process: for tests, and for looking at a program for many ranks without starting any."""
from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from ntgrad.codegen.ir import ArgumentError, DistributedError, config
from ntgrad.graph.lock import lock
from ntgrad.tensor.random import sequence_of_thread

from .transport import Bytes, Message, Reports, Transport, report
from .world import World, enter, leave

Key = tuple[str, int, int, int]   # a group, who sends, who receives (ranks of the world), and the tag


class Room:
  """Where threads leave messages for each other."""

  def __init__(self, size: int) -> None:
    self.changed, self.error = threading.Condition(), ""
    self.boxes: dict[Key, deque[Bytes]] = {}
    self.reports = [Reports() for _ in range(size)]   # by rank: what it was told


class Threads(Transport):
  """A group of threads, which hand copies to each other."""

  def __init__(self, room: Room, name: str, ranks: Sequence[int], rank: int, timeout: float):
    super().__init__(name, ranks, rank, timeout, room.reports[ranks[rank]])
    self.room = room

  def start(self, tag: int, sends: Sequence[Message], receives: Sequence[Message]) -> list[tuple[int, Key, Bytes]]:
    """See :class:`Transport`."""
    room, me = self.room, self.ranks[self.rank]
    with room.changed:
      for r, data in sends: room.boxes.setdefault((self.name, me, self.ranks[r], tag), deque()).append(data.copy())
      room.changed.notify_all()
    return [(r, (self.name, self.ranks[r], me, tag), into) for r, into in receives]

  def wait(self, started: list[tuple[int, Key, Bytes]], seconds: float) -> list[int]:
    """See :class:`Transport`. Others compute meanwhile: whoever computes holds the lock of all threads."""
    held = lock._release_save() if lock._is_owned() else None   # type: ignore[attr-defined]
    try:
      with self.room.changed:
        if not self._take(started) and seconds: self.room.changed.wait_for(lambda: self._take(started), seconds)
    finally:
      if held is not None: lock._acquire_restore(held)   # type: ignore[attr-defined]
    return [r for r, *_ in started]

  def _take(self, started: list[tuple[int, Key, Bytes]]) -> bool:
    boxes = self.room.boxes
    if self.room.error: raise DistributedError(self.room.error)
    for one in list(started):
      _, key, into = one
      if not (box := boxes.get(key)): continue
      into[...] = box.popleft()
      if not box: del boxes[key]
      started.remove(one)
    return not started

  def tell(self, rank: int, data: bytes) -> None: self.room.reports[rank].take(data)
  def subgroup(self, name: str, ranks: Sequence[int]) -> Transport | None:
    """See :class:`Transport`."""
    return Threads(self.room, name, ranks, ranks.index(self.rank), self.timeout) if self.rank in ranks else None


def run(fn: Callable[..., Any], world_size: int, args: Sequence[Any] = (), timeout: float = 60.0) -> list[Any]:
  """Call ``fn(*args)`` in ``world_size`` threads, each a rank of one group, and give what each returns, in the order of ranks.
  Functions of ``ntgrad.jit`` run plainly there, and no tensor that one rank writes may be another's. The first
  error of a rank ends all, and is raised with a note of the rank's number. ``timeout``: see ``init_process_group``."""
  if world_size < 1: raise ArgumentError(f"distributed.run: world_size is {world_size}, expected 1 or more")
  room, results, errors = Room(world_size), [None] * world_size, list[tuple[int, BaseException]]()

  def rank_of(rank: int) -> None:
    transport = Threads(room, "world", range(world_size), rank, timeout)
    enter(world := World(transport, "threads", rank), thread=True)
    sequence_of_thread()
    try:
      with config(jit=0):   # a recording is of all that the process computes, and others compute while a rank waits
        results[rank] = fn(*args)
        leave()
    except BaseException as e:
      world.give_up()
      with room.changed:
        errors.append((rank, e))
        room.error = room.error or f"rank {rank} of {world_size} has failed: {type(e).__name__}: {e}"
        room.changed.notify_all()
    finally:
      for r in range(world_size): transport.tell(r, report("ended", rank))

  threads = [threading.Thread(target=copy_context().run, args=(rank_of, r), name=f"rank {r}", daemon=True)
             for r in range(world_size)]
  for t in threads: t.start()
  try:
    for t in threads: t.join()
  except BaseException:
    room.error = room.error or "the thread that has started the ranks was interrupted"
    raise
  if errors:
    rank, error = errors[0]
    error.add_note(f"in rank {rank} of {world_size}")
    raise error
  return results
