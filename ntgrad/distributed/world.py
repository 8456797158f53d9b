"""What a rank knows of itself and of the others: its world, the groups in it, and how its end is told."""
from __future__ import annotations

import atexit
import os
import struct
import sys
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ntgrad.codegen.ir import DistributedError, toposort
from ntgrad.engine.realize import realize
from ntgrad.graph import waiting
from ntgrad.graph.lock import synchronized
from ntgrad.tensor import Tensor

from .transport import Transport, report

NOTES = "NTGRAD_LAUNCH_NOTES"   # the folder where ranks note who they are for ``python -m ntgrad launch``
TOLD = 0.2     # seconds until what was printed has gone through a launcher, which ends everything at once
_NOTE = struct.Struct("<qq")    # process, operations done


class Group:
  """Some of the ranks, by their numbers in the world. ``transport`` is None in a process that is not one of them."""

  def __init__(self, name: str, ranks: Sequence[int], transport: Transport | None):
    self.name, self.ranks, self.transport = name, tuple(ranks), transport

  def rank(self) -> int:
    """The number of this process in the group; -1 where it is not in it."""
    return -1 if self.transport is None else self.transport.rank
  def size(self) -> int:
    """How many ranks it has."""
    return len(self.ranks)
  def __repr__(self) -> str: return f"Group({self.name}, ranks {', '.join(map(str, self.ranks))})"


class World:
  """All ranks. ``tokens``: a number on each device that every collective operation writes, so that they have one order: that of
  the program."""

  def __init__(self, transport: Transport, backend: str, local_rank: int):
    self.transport, self.backend, self.local_rank = transport, backend, local_rank
    self.rank, self.size = transport.ranks[transport.rank], transport.size
    self.groups, self.tokens = {"world": Group("world", transport.ranks, transport)}, dict[str, Tensor]()
    self.steps, self.failed = 0, False
    folder = os.environ.get(NOTES)
    self.note = Path(folder, str(self.rank)) if folder and backend != "threads" else None
    # a file as memory: to write there asks nothing of the system
    self._noted = None if self.note is None else np.memmap(self.note, np.uint8, "w+", shape=_NOTE.size).data
    self.done(0)

  def token(self, device: str) -> Tensor:
    """The number on a device."""
    if device not in self.tokens: self.tokens[device] = Tensor.zeros(1, dtype="int32", device=device).contiguous().realize()
    return self.tokens[device]

  def done(self, steps: int = 1) -> None:
    """Count operations that are done, and note it where a launcher looks."""
    self.steps += steps
    if self._noted is not None: _NOTE.pack_into(self._noted, 0, os.getpid(), self.steps)

  def flush(self) -> None:
    """Do all operations that were asked for."""
    realize(list(self.tokens.values()))

  @synchronized
  def give_up(self) -> None:
    """Have no other thread do what was asked for and is not done: writes that are made of it wait until they are read."""
    nodes = {t._alias.memory.node for t in self.tokens.values()}
    for u in toposort([a.node for a in waiting()]):
      if not nodes.isdisjoint(u.src): nodes.add(u)
    for a in waiting():
      if a.node in nodes: a.leave_to_reader()

  def fail(self, why: str) -> None:
    """Tell how this rank has ended, and end the others."""
    if self.failed: return
    self.failed = True
    sys.stdout.flush()
    text = f"rank {self.rank} of {self.size} failed after {self.steps} operations: {why}"
    print(f"ntgrad: {text}", file=sys.stderr, flush=True)
    if self.note is not None: self.note.with_suffix(".error").write_text(text)
    time.sleep(TOLD)
    self.transport.abort(text)


def notes(folder: Path) -> dict[int, tuple[int, int]]:
  """The process and the count of operations of each rank that has noted them."""
  found = {}
  for path in folder.iterdir():
    data = path.read_bytes() if path.name.isdigit() else b""
    if len(data) == _NOTE.size and any(data): found[int(path.name)] = _NOTE.unpack(data)
  return found


_of_process: list[World] = []
_of_thread: ContextVar[World | None] = ContextVar("world", default=None)


def known() -> World | None:
  """The world that this process or thread is in."""
  return _of_thread.get() or (_of_process[0] if _of_process else None)


def here() -> World:
  """The same. Raises DistributedError where there is none."""
  if (world := known()) is None:
    raise DistributedError("this process is in no group yet; call ntgrad.distributed.init_process_group() first")
  return world


def enter(world: World, thread: bool = False) -> None:
  """Be in a world: this thread alone, or the process, whose end is told then."""
  if thread:
    _of_thread.set(world)
    return
  _of_process[:] = [world]
  _hook(world)
  atexit.register(_at_exit, world)


def leave() -> None:
  """Do what was asked for, and be in no world any more."""
  if (world := known()) is None: return
  world.flush()
  if _of_thread.get() is not None: _of_thread.set(None)
  else: _of_process.clear()
  for group in world.groups.values():
    if group.transport is not None: group.transport.close()


def _hook(world: World) -> None:
  """Have an exception that nobody handles end the other ranks too, after it was shown."""
  shown, shown_in_thread = sys.excepthook, threading.excepthook

  def uncaught(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> Any:
    shown(kind, error, tb)
    sys.stderr.flush()
    world.fail(f"{kind.__name__}: {error}")

  def in_thread(args: Any) -> Any:
    shown_in_thread(args)
    if args.exc_type is not SystemExit: world.fail(f"{args.exc_type.__name__}: {args.exc_value} (in a thread)")
  sys.excepthook, threading.excepthook = uncaught, in_thread


def _at_exit(world: World) -> None:
  """At the end of the process: do what was asked for, and tell the others that this rank will do no more."""
  if world.failed or not _of_process: return
  try: leave()
  except Exception as e:
    print(f"ntgrad: rank {world.rank}: {e}", file=sys.stderr, flush=True)
    world.fail(f"{type(e).__name__}: {e}")
  for r in range(world.size):
    if r != world.rank: world.transport.tell(r, report("ended", world.rank))
