"""What lies in a device's memory, for errors: found by looking when it is asked, so that it costs nothing before."""
from __future__ import annotations

import gc

from ntgrad.alias import live_aliases
from ntgrad.codegen.uop import Ops

from .buffer import Storage

MOST = 10   # allocations that are named


def largest(device: str) -> str:
  """The largest allocations of a device, a line each: bytes, what lies there, and where it was made or written in the user's
  code."""
  held: dict[Storage, str] = {}
  for a in live_aliases:
    u = a.node if a.memory is None else a.memory.node
    u = u.__dict__.get("_realized", u)
    if u.op is not Ops.BUFFER: continue
    what = f"a tensor of shape {u.shape} ({u.dtype})"
    held[u.arg.storage] = what + (f", written by {a.place}" if a.place and a.memory is not None else "")
  found = [s for s in gc.get_objects() if issubclass(type(s), Storage) and not s.foreign and s._raw is not None
           and s.device == device]
  found.sort(key=lambda s: -s.nbytes)
  lines = [f"  {s.nbytes:14,}  {held.get(s, 'what is computed at the moment, or kept for gradients or a jit')}" +
           (f", made by {s.place}" if s.place else "") for s in found[:MOST]]
  rest = sum(s.nbytes for s in found[MOST:])
  if rest: lines.append(f"  {rest:14,}  in {len(found) - MOST} more")
  return "\n".join(lines)
