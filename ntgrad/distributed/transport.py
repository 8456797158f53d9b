"""How ranks reach each other: messages of bytes, several at once, with an end to waiting. What carries them is a subclass's.

Nothing that comes is trusted to be more than bytes: a message goes into memory whose size is known before, and a report (what a
rank waits for, or that it has ended) is text of a fixed size."""
from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ntgrad.backends.process import interrupt_waits
from ntgrad.codegen.ir import DistributedError

REPORT_BYTES = 1024   # of a report, padded with blanks
QUIET = 1.0           # seconds without an answer, after which a rank tells the others what it waits for

Bytes = np.ndarray[Any, Any]        # flat, of uint8
Message = tuple[int, Bytes]         # the other rank, and what it is sent, or where what it sends goes


class Doing(NamedTuple):
  """A collective operation as messages name it: what it is, and the user's line."""
  text: str
  line: str

  def __str__(self) -> str: return f"{self.text} ({self.line})" if self.line else self.text


@dataclass
class Reports:
  """What the ranks of a world have told this one; shared by all groups."""
  # by rank: the group, the operation's number there, what it is, and how often that was told
  waiting: dict[int, tuple[str, int, Doing, int]] = field(default_factory=dict)
  ended: dict[int, str] = field(default_factory=dict)   # by rank, and how

  def take(self, data: bytes) -> None:
    """Note a report; what is none is left out."""
    try: kind, rank, group, number, text, line = json.loads(data.decode().rstrip())
    except (ValueError, TypeError): return
    if list(map(type, (rank, group, number, text, line))) != [int, str, int, str, str]: return
    if kind == "ended": self.ended[rank] = text
    else:
      *known, times = self.waiting.get(rank, (None, 0))
      self.waiting[rank] = *(now := (group, number, Doing(text, line))), times + 1 if tuple(known) == now else 1


def report(kind: str, rank: int, group: str = "", number: int = 0, doing: Doing | None = None) -> bytes:
  """A report as bytes."""
  text, line = (doing.text[:300], doing.line[-200:]) if doing is not None else ("", "")
  return json.dumps([kind, rank, group, number, text, line]).encode()[:REPORT_BYTES].ljust(REPORT_BYTES)


class Transport:
  """A group of processes: ``ranks`` are their numbers in the world, of which this one has number ``rank`` in the group.
  ``counts``: how many operations of the group were begun here, by channel: "" is that of all ranks, and each pair has its own.
  ``in_stream``: whether operations are put into a stream of the device, by ``begin``, ``put`` and ``begun``."""
  in_stream = False

  def __init__(self, name: str, ranks: Sequence[int], rank: int, timeout: float, reports: Reports):
    self.name, self.ranks, self.rank, self.timeout, self.reports = name, tuple(ranks), rank, timeout, reports
    self.size, self.counts = len(ranks), dict[str, int]()

  # ---- what a way to carry messages defines
  def start(self, tag: int, sends: Sequence[Message], receives: Sequence[Message]) -> Any:
    """Begin to send and to receive messages, which are of one operation where they have one tag."""
    raise NotImplementedError
  def wait(self, started: Any, seconds: float) -> list[int]:
    """Wait until all is done, at most so long: the ranks (of the group) from which something is missing."""
    raise NotImplementedError
  def tell(self, rank: int, data: bytes) -> None:
    """Send a report to a rank of the world, without waiting."""
    raise NotImplementedError
  def subgroup(self, name: str, ranks: Sequence[int]) -> Transport | None:
    """A group of some of the world's ranks; None in a process that is not in it. Every process of the world calls it."""
    raise NotImplementedError
  def listen(self) -> None: """Take in the reports that have come, where they wait for that."""
  def abort(self, why: str) -> None: """End the job, other processes too, where that is not done by whoever sees the error."""
  def close(self) -> None: """Give back what the group has."""

  # ---- what they share
  def exchange(self, doing: Doing, sends: Sequence[Message], receives: Sequence[Message], channel: str = "") -> None:
    """Send and receive messages, and wait for all of them. Messages of other operations, or of another number, are not taken
    for these: their tag is a hash of both. Raises DistributedError where another rank does something else, has ended, or does
    not answer within ``timeout`` seconds, and for Ctrl-C."""
    number = self.counts[channel] = self.counts.get(channel, 0) + 1
    where = f"{self.name} {channel}".rstrip()
    tag = zlib.crc32(f"{where}|{number}|{doing.text}".encode()) & 0x7fff_ffff
    started, began, look = self.start(tag, sends, receives), time.monotonic(), QUIET
    while missing := self.wait(started, 0.05):
      waited = time.monotonic() - began
      if interrupt_waits(): raise DistributedError(f"{doing}: Ctrl-C while it waited for {self._named(missing)}")
      self.listen()
      for r in missing: self._compare(doing, where, number, r, started)
      if waited > look:
        look += QUIET
        for r in missing: self.tell(self.ranks[r], report("waits", self.ranks[self.rank], where, number, doing))
      if waited > self.timeout:
        raise DistributedError(
          f"{doing}: no answer from {self._named(missing)} after {waited:.0f} s (operation {number} of group {where}); it is "
          "stopped or slow, or does something else; init_process_group(timeout=..) says how long to wait")

  def _compare(self, doing: Doing, where: str, number: int, r: int, started: Any) -> None:
    """Raises DistributedError where a rank is known to have ended, or to wait for another operation than this one."""
    rank, mine = self.ranks[r], self.ranks[self.rank]
    if (why := self.reports.ended.get(rank)) is not None:
      if r not in self.wait(started, 0.0): return   # its part has come
      raise DistributedError(f"{doing}: {self._named([r])} has ended{f' ({why})' if why else ''} and will not take part")
    group, at, theirs, times = self.reports.waiting.get(rank, ("", 0, doing, 0))
    if group == where: differ = at > number or at == number and theirs.text != doing.text
    else: differ = times > 2   # it goes on waiting for this one
    if not differ or r not in self.wait(started, 0.0): return
    raise DistributedError(
      f"ranks do different things as operation {number} of group {where}:\n  rank {mine}: {doing}\n  rank {rank}: {theirs}"
      f"{f', operation {at} of group {group}' if (group, at) != (where, number) else ''}\n"
      "every rank of a group calls the same operations in the same order, with tensors of one shape and dtype")

  def _named(self, ranks: Sequence[int]) -> str:
    shown = ", ".join([str(self.ranks[r]) for r in ranks[:8]]) + (", .." if len(ranks) > 8 else "")
    return f"rank{'s' * (len(ranks) > 1)} {shown} of {self.size}"
