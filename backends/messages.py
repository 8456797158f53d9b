"""Messages between a process and its workers: a length, then a pickle."""
from __future__ import annotations

import pickle
import struct
from typing import IO, Any


def send(stream: IO[bytes], message: Any) -> None:
  """Write one message."""
  data = pickle.dumps(message)
  left = memoryview(struct.pack("<q", len(data)) + data)
  while left: left = left[stream.write(left):]   # a pipe without a buffer takes a part at a time
  stream.flush()


def receive(stream: IO[bytes]) -> Any:
  """Read one message. Raises EOFError where the other side is gone."""
  return pickle.loads(_exactly(stream, struct.unpack("<q", _exactly(stream, 8))[0]))


def _exactly(stream: IO[bytes], n: int) -> bytearray:
  data = bytearray()
  while len(data) < n:
    part = stream.read(n - len(data))
    if not part: raise EOFError
    data += part
  return data
