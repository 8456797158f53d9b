"""How processes that know nothing but an address agree on a few bytes: rank 0 listens there, until all have come."""
from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

from ntgrad.codegen.ir import DistributedError

_HELLO = struct.Struct(">8sII")   # who speaks: a name, its rank, how many it thinks there are
_NAME = b"ntgrad 1"
PATIENCE = 120.0                  # seconds, at most, in which all have to come
RETRY = 0.2                       # seconds between tries to connect


def shared(rank: int, size: int, address: tuple[str, int], nbytes: int, make: Callable[[], bytes], timeout: float) -> bytes:
  """The ``nbytes`` bytes that ``make`` gives in rank 0, in every rank. Raises DistributedError where some do not come in time, or
  think otherwise of how many there are."""
  if rank == 0: return _give(size, address, make(), timeout) if size > 1 else make()
  return _take(rank, size, address, nbytes, timeout)


def _exactly(s: socket.socket, n: int) -> bytes:
  out = memoryview(bytearray(n))
  done = 0
  while done < n:
    if not (more := s.recv_into(out[done:])): raise OSError("the connection was closed")
    done += more
  return bytes(out)


def _give(size: int, address: tuple[str, int], data: bytes, timeout: float) -> bytes:
  where, end, left = f"{address[0]}:{address[1]}", time.monotonic() + timeout, set(range(1, size))
  try: server = socket.create_server(address, backlog=size)
  except OSError as e:
    raise DistributedError(f"init_process_group: rank 0 cannot listen at {where}: {e}; give another address") from None
  with server:
    while left:
      server.settimeout(max(end - time.monotonic(), 0.001))
      try: s, _ = server.accept()
      except TimeoutError:
        missing = ", ".join(map(str, sorted(left)))
        raise DistributedError(f"init_process_group: of {size} ranks {missing} have not come to {where} in {timeout:.0f} "
                               "s") from None
      with s:
        s.settimeout(5.0)
        try:
          name, rank, theirs = _HELLO.unpack(_exactly(s, _HELLO.size))
          if name != _NAME: continue   # somebody else
          if theirs != size:
            raise DistributedError(f"init_process_group: rank 0 was started as one of {size}, rank {rank} as one of {theirs}")
          if rank not in left: raise DistributedError(f"init_process_group: two processes are rank {rank} of {size}")
          s.sendall(data)
          left.discard(rank)
        except OSError: continue   # it may come again
  return data


def _take(rank: int, size: int, address: tuple[str, int], nbytes: int, timeout: float) -> bytes:
  end, why = time.monotonic() + timeout, ""
  while (left := end - time.monotonic()) > 0:
    try:
      with socket.create_connection(address, timeout=min(left, 5.0)) as s:
        s.sendall(_HELLO.pack(_NAME, rank, size))
        s.settimeout(left)
        return _exactly(s, nbytes)
    except OSError as e: why = str(e)
    time.sleep(RETRY)
  raise DistributedError(f"init_process_group: rank {rank}: rank 0 does not answer at {address[0]}:{address[1]} in "
                         f"{timeout:.0f} s ({why}); MASTER_ADDR and MASTER_PORT, or init_method, say where it is")
