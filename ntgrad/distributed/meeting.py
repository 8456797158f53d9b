"""How processes that know nothing but an address agree on a few bytes, and stay connected: rank 0 listens there, until all have
come."""
from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack

from ntgrad.codegen.ir import DistributedError

_HELLO = struct.Struct(">8sII")   # who speaks: a name, its rank, how many it thinks there are
_NAME = b"ntgrad 1"
PATIENCE = 120.0                  # seconds, at most, in which all have to come
RETRY = 0.2                       # seconds between tries to connect


Links = dict[int, socket.socket]   # by rank


def shared(rank: int, size: int, address: tuple[str, int], nbytes: int, make: Callable[[], bytes],
           timeout: float) -> tuple[bytes, Links]:
  """The ``nbytes`` bytes that ``make`` gives in rank 0, in every rank; and connections: of rank 0 to all others, of others to
  rank 0. Raises DistributedError where some do not come in time, or think otherwise of how many there are."""
  if rank == 0: return _give(size, address, make(), timeout) if size > 1 else (make(), {})
  return _take(rank, size, address, nbytes, timeout)


def exactly(s: socket.socket, n: int) -> bytes:
  """The next bytes that come. Raises OSError where the connection is closed before."""
  out = memoryview(bytearray(n))
  done = 0
  while done < n:
    if not (more := s.recv_into(out[done:])): raise OSError("the connection was closed")
    done += more
  return bytes(out)


def _kept(s: socket.socket) -> socket.socket:
  s.settimeout(None)
  s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
  return s


def _give(size: int, address: tuple[str, int], data: bytes, timeout: float) -> tuple[bytes, Links]:
  where, end, links = f"{address[0]}:{address[1]}", time.monotonic() + timeout, Links()
  try: server = socket.create_server(address, backlog=size)
  except OSError as e:
    raise DistributedError(f"init_process_group: rank 0 cannot listen at {where}: {e}; give another address") from None
  with ExitStack() as opened:
    opened.enter_context(server)
    while len(links) < size - 1:
      server.settimeout(max(end - time.monotonic(), 0.001))
      try: s = opened.enter_context(server.accept()[0])
      except TimeoutError:
        missing = ", ".join([str(r) for r in range(1, size) if r not in links])
        raise DistributedError(f"init_process_group: of {size} ranks {missing} have not come to {where} in {timeout:.0f} "
                               "s") from None
      s.settimeout(5.0)
      try:
        name, rank, theirs = _HELLO.unpack(exactly(s, _HELLO.size))
        if name != _NAME: continue   # somebody else
        if theirs != size:
          raise DistributedError(f"init_process_group: rank 0 was started as one of {size}, rank {rank} as one of {theirs}")
        if not 0 < rank < size or rank in links:
          raise DistributedError(f"init_process_group: two processes are rank {rank} of {size}")
        s.sendall(data)
        links[rank] = _kept(s)
      except OSError: continue   # it may come again
    opened.pop_all()
  server.close()
  return data, links


def _take(rank: int, size: int, address: tuple[str, int], nbytes: int, timeout: float) -> tuple[bytes, Links]:
  end, why = time.monotonic() + timeout, ""
  while (left := end - time.monotonic()) > 0:
    try:
      s = socket.create_connection(address, timeout=min(left, 5.0))
      try:
        s.sendall(_HELLO.pack(_NAME, rank, size))
        s.settimeout(left)
        return exactly(s, nbytes), {0: _kept(s)}
      except OSError:
        s.close()
        raise
    except OSError as e: why = str(e)
    time.sleep(RETRY)
  raise DistributedError(f"init_process_group: rank {rank}: rank 0 does not answer at {address[0]}:{address[1]} in "
                         f"{timeout:.0f} s ({why}); MASTER_ADDR and MASTER_PORT, or init_method, say where it is")
