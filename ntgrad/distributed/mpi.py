"""MPI as the carrier of messages, by mpi4py: buffers only, nothing is pickled."""
from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ntgrad.codegen.ir import DistributedError

from .transport import REPORT_BYTES, Message, Reports, Transport

SPINS = 2000     # looks at messages, each a microsecond or two, before a process that waits lets others have its core
REPORTS = 7      # the tag of reports, in a communicator of their own


class MPITransport(Transport):
  """A group of MPI's processes."""

  def __init__(self, mpi: Any, comm: Any, reporting: Any, name: str, ranks: Sequence[int], timeout: float, reports: Reports):
    super().__init__(name, ranks, comm.Get_rank(), timeout, reports)
    self.mpi, self.comm, self.reporting = mpi, comm, reporting
    self.most = comm.Get_attr(mpi.TAG_UB) or 32767
    self.sent: list[Any] = []

  @classmethod
  def of_world(cls, timeout: float) -> MPITransport:
    """The group of all processes. Raises DistributedError where mpi4py, or an MPI library, is not there."""
    try:
      from mpi4py import MPI
    except (ImportError, RuntimeError) as e:
      raise DistributedError(f"backend mpi: {e}; pip install 'ntgrad[distributed]' (mpi4py, and mpich as its library)") from None
    world = MPI.COMM_WORLD
    return cls(MPI, world.Dup(), world.Dup(), "world", range(world.Get_size()), timeout, Reports())

  def start(self, tag: int, sends: Sequence[Message], receives: Sequence[Message]) -> list[tuple[int, Any]]:
    """See :class:`Transport`."""
    mpi, comm, tag = self.mpi, self.comm, tag % self.most
    return [*[(r, comm.Irecv([into, mpi.BYTE], r, tag)) for r, into in receives],
            *[(r, comm.Isend([data, mpi.BYTE], r, tag)) for r, data in sends]]

  def wait(self, started: list[tuple[int, Any]], seconds: float) -> list[int]:
    """See :class:`Transport`."""
    end, spins, test = time.monotonic() + seconds, 0, self.mpi.Request.Testall
    requests = [request for _, request in started]
    try:
      while not test(requests):
        spins += 1
        if spins & 15 == 0:
          if time.monotonic() > end: break
          if spins < SPINS: os.sched_yield()
          else: time.sleep(0.0002)
      else: started.clear()
      return list(dict.fromkeys([r for r, request in started if not request.Test()]))
    except self.mpi.Exception as e:   # of another length, of a process that is gone
      raise DistributedError(f"MPI: {e}") from None

  def tell(self, rank: int, data: bytes) -> None:
    """See :class:`Transport`."""
    self.sent = [r for r in self.sent if not r.Test()]
    self.sent.append(self.reporting.Isend([np.frombuffer(data, np.uint8), self.mpi.BYTE], rank, REPORTS))

  def listen(self) -> None:
    """See :class:`Transport`."""
    into = np.empty(REPORT_BYTES, np.uint8)
    while self.reporting.Iprobe(self.mpi.ANY_SOURCE, REPORTS):
      self.reporting.Recv([into, self.mpi.BYTE], self.mpi.ANY_SOURCE, REPORTS)
      self.reports.take(into.tobytes())

  def subgroup(self, name: str, ranks: Sequence[int]) -> Transport | None:
    """See :class:`Transport`."""
    mine = self.rank in ranks
    comm = self.comm.Split(0 if mine else self.mpi.UNDEFINED, ranks.index(self.rank) if mine else 0)
    return MPITransport(self.mpi, comm, self.reporting, name, ranks, self.timeout, self.reports) if mine else None

  def abort(self, why: str) -> None: self.mpi.COMM_WORLD.Abort(1)
