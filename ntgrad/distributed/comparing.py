"""How ranks of NCCL see that they do the same: on the host, as nobody learns from a GPU what another one waits for.

A rank keeps the last operations of a group that it has begun, by number, each with a hash of it and all before. It asks the next
rank of the group for the operation of a number: before its first one of a kind, and once a second while it begins more. As every
rank asks the next one, those that differ are found wherever they are. Messages go by rank 0, to which every rank has a connection
since they met (``meeting.py``); they are JSON of a fixed size."""
from __future__ import annotations

import itertools
import json
import socket
import threading
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ntgrad.codegen.ir import DistributedError

from .meeting import exactly
from .transport import REPORT_BYTES, Doing

KEPT = 4096      # operations of a group
PATIENT = 1.0    # seconds in which a rank that lives answers


class Begun(NamedTuple):
  """An operation: its number in the group, what it is, and a hash of it and all before."""
  number: int
  doing: Doing
  mark: int


class History:
  """The last operations of a group that this rank has begun."""

  def __init__(self) -> None: self.last = deque[Begun](maxlen=KEPT)

  def add(self, doing: Doing) -> Begun:
    """Note one more."""
    before = self.last[-1] if self.last else Begun(0, doing, 0)
    self.last.append(made := Begun(before.number + 1, doing, zlib.crc32(doing.text.encode(), before.mark)))
    return made

  def at(self, number: int) -> Begun | None:
    """That of a number; the newest, where that is before it, and the oldest, where it is forgotten. None where there is none."""
    while self.last:
      newest, oldest = self.last[-1], self.last[0]
      if number >= newest.number: return newest
      if number <= oldest.number: return oldest
      if (found := self.last[number - oldest.number]).number == number: return found   # else another thread has added some
    return None


class Messages:
  """Questions to other ranks of the world, and answers to theirs. ``links``: of rank 0 the connections to all others, of others
  that to rank 0; ``lost``: ranks that are known to have ended."""

  def __init__(self, rank: int, links: Mapping[int, socket.socket]):
    self.rank, self.links, self.lost, self.histories = rank, links, set[int](), dict[str, History]()
    self.serials, self.answers, self.changed = itertools.count(), dict[int, Begun | None](), threading.Condition()
    self.waiting, self.sending = set[int](), threading.Lock()
    for other, link in links.items():
      threading.Thread(target=self._read, args=(other, link), name=f"ntgrad messages of {other}", daemon=True).start()

  @property
  def cut(self) -> bool:
    """Whether rank 0, by which messages go, has ended."""
    return self.rank > 0 and 0 in self.lost

  def ask(self, rank: int, group: str, number: int) -> Begun | None:
    """What a rank's ``History.at`` gives for a group. None also where it does not answer, or is gone."""
    serial, end = next(self.serials), time.monotonic() + PATIENT
    self.waiting.add(serial)
    self._send("ask", rank, self.rank, serial, group, number)
    with self.changed:
      self.changed.wait_for(lambda: serial in self.answers or rank in self.lost or self.cut, end - time.monotonic())
      self.waiting.discard(serial)
      return self.answers.pop(serial, None)

  def _send(self, kind: str, to: int, source: int, serial: int, group: str, number: int = 0, text: str = "", line: str = "",
            mark: int = 0) -> None:
    link = 0 if self.rank else to
    data = json.dumps([kind, to, source, serial, group, number, text[:300], line[-100:], mark]).encode().ljust(REPORT_BYTES)
    try:
      with self.sending: self.links[link].sendall(data)
    except OSError: self._note(link)

  def _note(self, lost: int, serial: int = -1, answer: Begun | None = None) -> None:
    """A rank (-1: none) has ended, and an answer has come."""
    with self.changed:
      if lost >= 0: self.lost.add(lost)
      if serial in self.waiting: self.answers[serial] = answer
      self.changed.notify_all()

  def _read(self, other: int, link: socket.socket) -> None:
    """Take what comes by a connection, until it is closed, or something comes that is no message."""
    with suppress(OSError, ValueError, TypeError, LookupError):
      while True:
        message = json.loads(exactly(link, REPORT_BYTES))
        if list(map(type, message)) != [str, int, int, int, str, int, str, str, int]: break
        kind, to, source, serial, group, number, text, line, mark = message
        if to != self.rank: self._send(*message)   # rank 0 passes it on
        elif kind == "ask":
          begun = known.at(number) if (known := self.histories.get(group)) is not None else None
          self._send("is", source, to, serial, group, *((begun.number, *begun.doing, begun.mark) if begun is not None else ()))
        elif kind == "ended": self._note(number)
        else: self._note(-1, serial, Begun(number, Doing(text, line), mark) if number else None)
    self._note(other)
    for rank in self.links.keys() - self.lost if not self.rank else (): self._send("ended", rank, 0, -1, "", other)

  def close(self) -> None:
    """Close the connections: this rank has ended."""
    for link in self.links.values():
      with suppress(OSError): link.shutdown(socket.SHUT_RDWR)
      link.close()


class Comparison:
  """The operations of a group of ``ranks`` (numbers in the world), of which this is number ``rank``."""

  def __init__(self, messages: Messages, name: str, ranks: Sequence[int], rank: int):
    self.messages, self.name, self.size = messages, name, len(ranks)
    self.mine, self.next = ranks[rank], ranks[(rank + 1) % len(ranks)]
    self.history = messages.histories[name] = History()

  @property
  def ended(self) -> bool:
    """Whether the next rank is known to have ended."""
    return self.next in self.messages.lost

  def reached(self, begun: Begun) -> bool:
    """Whether the next rank has begun an operation too. Raises DistributedError, with both lines, where it has begun another one
    as this or as one before it."""
    if self.size == 1 or self.messages.cut and not self.ended: return True   # nobody can be asked
    if (pair := self._both(begun.number)) is None: return False
    here, there = pair
    if here.number != there.number: return there.number > begun.number   # more than is remembered here
    if here.mark == there.mark: return there.number >= begun.number
    same, differ = max(here.number - KEPT, 0), here.number
    while differ - same > 1:   # the first that differs, of those that both remember
      found = self._both(middle := (same + differ) // 2)
      if found is None or found[0].mark == found[1].mark or found[0].number != found[1].number: same = middle
      else: differ, (here, there) = middle, found
    raise DistributedError(f"ranks do different things as operation {differ} of group {self.name}:\n"
                           f"  rank {self.mine}: {here.doing}\n  rank {self.next}: {there.doing}\n"
                           "every rank of a group calls the same operations in the same order, with tensors of one shape and "
                           "dtype")

  def _both(self, number: int) -> tuple[Begun, Begun] | None:
    """What this rank and the next one have begun as operation ``number``, or the newest of that before it. None where one has
    begun nothing, or does not answer."""
    there = self.messages.ask(self.next, self.name, number)
    here = self.history.at(there.number) if there is not None else None
    return (here, there) if here is not None and there is not None else None
