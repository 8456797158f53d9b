"""Messages between a process and its workers: a length, then a pickle."""
from __future__ import annotations

import pickle
import struct
from typing import IO, Any


def send(stream: IO[bytes], message: Any) -> None:
  """Write one message."""
  data = pickle.dumps(message)
  stream.write(struct.pack("<q", len(data)) + data)
  stream.flush()


def receive(stream: IO[bytes]) -> Any:
  """Read one message. Raises EOFError where the other side is gone."""
  head = stream.read(8)
  if len(head) < 8: raise EOFError
  data = stream.read(struct.unpack("<q", head)[0])
  return pickle.loads(data)
