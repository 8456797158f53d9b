"""NCCL as the carrier between GPUs: its own collective operations, in the device's stream, by its C interface."""
from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ntgrad.backends.base import Device, Raw
from ntgrad.backends.process import interrupt_waits
from ntgrad.codegen.ir import DistributedError, DTypeError, dtypes, prod
from ntgrad.engine.device import Device as Devices, get_device

from .comparing import Begun, Comparison, Messages
from .meeting import PATIENCE, shared
from .transport import QUIET, Doing, Message, Reports, Transport

ID_BYTES = 128    # of what ranks agree on before they are a group
_PROGRESS = 7     # ncclInProgress: no error
_PARTING = 5.0    # seconds that leaving a group may take: NCCL waits for the others
_LOOK = 0.2       # seconds between looks whether operations have ended
_DTYPES = {d: i for i, d in enumerate((
  dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float16, dtypes.float32,
  dtypes.float64, dtypes.bfloat16))} | {dtypes.bool: 1}
# pointers, counts and numbers, of which the last are the group and the stream
_ARGUMENTS = {"ncclAllReduce": "ppniipp", "ncclReduceScatter": "ppniipp", "ncclAllGather": "ppnipp", "ncclBroadcast": "ppniipp",
              "ncclSend": "pniipp", "ncclRecv": "pniipp"}
_OPS = {"sum": 0, "product": 1, "max": 2, "min": 3, "avg": 4}


class _Id(ctypes.Structure):
  _fields_ = [("internal", ctypes.c_char * ID_BYTES)]


@cache
def load() -> Any:
  """libnccl: of the wheel nvidia-nccl-cu13 or -cu12, else of the system. Raises DistributedError."""
  spec = find_spec("nvidia")
  wheels = [p / "nccl/lib/libnccl.so.2" for p in map(Path, (spec and spec.submodule_search_locations) or ())]
  for path in [*[str(p) for p in wheels if p.exists()], "libnccl.so.2"]:
    try: library = ctypes.CDLL(path)
    except OSError as e: why = e
    else:
      library.ncclGetErrorString.restype = ctypes.c_char_p
      for name, kinds in _ARGUMENTS.items():
        getattr(library, name).argtypes = [{"p": ctypes.c_void_p, "n": ctypes.c_size_t, "i": ctypes.c_int}[k] for k in kinds]
      return library
  raise DistributedError(f"backend nccl: {why}; pip install nvidia-nccl-cu13, or -cu12 for a driver of CUDA 12")


class NCCLTransport(Transport):
  """A group of processes with a GPU each. ``asked``: the first and the last operation that was put into the stream since a thread
  has looked, which sees that they end."""
  in_stream = True

  def __init__(self, library: Any, comm: Any, device: str, messages: Messages, name: str, ranks: Sequence[int], rank: int,
               timeout: float):
    super().__init__(name, ranks, rank, timeout, Reports())
    self.library, self.comm, self.device, self.messages = library, comm, device, messages
    self.comparison, self.known = Comparison(messages, name, ranks, rank), set[str]()
    self.asked: tuple[Doing, Doing] | None = None
    self.newest: Begun | None = None   # of those that are compared, what the stream has
    self.closed = threading.Event()
    threading.Thread(target=self._watch, name=f"ntgrad {name}", daemon=True).start()

  @classmethod
  def of_world(cls, rank: int, size: int, local_rank: int, address: tuple[str, int], timeout: float) -> NCCLTransport:
    """The group of all processes; GPU number ``local_rank`` is this one's, and its default device."""
    # in CUDA graphs: memory that is used there is not registered, which all ranks would have to do at once; and all that uses a
    # group is in one stream, so graphs need not see to it
    for setting in "NCCL_GRAPH_REGISTER", "NCCL_GRAPH_MIXING_SUPPORT": os.environ.setdefault(setting, "0")
    library = load()
    name = f"CUDA:{local_rank}" if local_rank else "CUDA"
    Devices.DEFAULT = name
    device = get_device(name)
    device.enter()
    def make() -> bytes:
      made = _Id()
      _ok(library, library.ncclGetUniqueId(ctypes.byref(made)), "ncclGetUniqueId")
      return ctypes.string_at(ctypes.addressof(made), ID_BYTES)
    data, links = shared(rank, size, address, ID_BYTES, make, min(timeout, PATIENCE))
    unique = _Id.from_buffer_copy(data)
    comm = ctypes.c_void_p()
    _ok(library, library.ncclCommInitRank(ctypes.byref(comm), size, unique, rank), "ncclCommInitRank")
    return cls(library, comm, name, Messages(rank, links), "world", range(size), rank, timeout)

  # ---- operations
  def begin(self, o: Any, doing: Doing, device: Device) -> None:
    """See that an operation may be put into the device's stream. Raises DistributedError and DTypeError."""
    if device.name != self.device:
      raise DistributedError(f"{o.kind} of a tensor on {device.name}: backend nccl of this rank has {self.device}")
    if o.dtype not in _DTYPES: raise DTypeError(f"{o.kind}: NCCL has no {o.dtype.name}; cast it first")
    if o.kind in ("send", "recv"): return
    begun = self.comparison.history.add(doing)
    if doing.text not in self.known: self._wait_for_next(begun)
    self.newest = begun

  def put(self, o: Any, out: Raw, x: Raw, stream: int) -> None:
    """Put an operation into a stream. Raises DistributedError."""
    self.enqueue(o.kind, out, x, prod(o.shape), prod(o.out), _DTYPES[o.dtype], o.dtype.itemsize, o.op, o.root, stream)

  def begun(self, doing: Doing) -> None:
    """An operation is in the stream."""
    self.asked = self.asked[0] if self.asked else doing, doing

  def enqueue(self, kind: str, out: int, x: int, count: int, out_count: int, dtype: int, itemsize: int, op: str, root: int,
              stream: int) -> None:
    """One operation of NCCL's: addresses, elements of ``x`` and of ``out``, NCCL's number of the dtype, the reduction."""
    lib, comm, how = self.library, self.comm, _OPS.get(op, 0)
    def call(name: str, *args: Any) -> None: _ok(lib, getattr(lib, name)(*args, comm, stream), name)
    match kind:
      case "all_reduce": call("ncclAllReduce", x, out, count, dtype, how)
      case "reduce_scatter": call("ncclReduceScatter", x, out, out_count, dtype, how)
      case "all_gather": call("ncclAllGather", x, out, count, dtype)
      case "broadcast": call("ncclBroadcast", x, out, count, dtype, root)
      case "send": call("ncclSend", x, count, dtype, root)
      case "recv": call("ncclRecv", out, count, dtype, root)
      case _:   # all_to_all
        part = count // self.size
        _ok(lib, lib.ncclGroupStart(), "ncclGroupStart")
        for r in range(self.size):
          call("ncclSend", x + r * part * itemsize, part, dtype, r)
          call("ncclRecv", out + r * part * itemsize, part, dtype, r)
        _ok(lib, lib.ncclGroupEnd(), "ncclGroupEnd")

  def _wait_for_next(self, begun: Begun) -> None:
    """Before the first operation of a kind: wait until the next rank is about to do it. Raises DistributedError where that does
    something else, has ended, or does not come."""
    began, pause, rank = time.monotonic(), 0.0001, self.comparison.next
    while not self.comparison.reached(begun):
      waited = time.monotonic() - began
      if interrupt_waits(): raise DistributedError(f"{begun.doing}: Ctrl-C while it waited for rank {rank}")
      if self.comparison.ended: raise DistributedError(f"{begun.doing}: rank {rank} has ended and will not take part")
      if waited > self.timeout:
        raise DistributedError(f"{begun.doing}: no answer from rank {rank} after {waited:.0f} s (operation "
                               f"{begun.number} of group {self.name}); it is stopped or slow, or does something else; "
                               "init_process_group(timeout=..) says how long to wait")
      time.sleep(pause := min(2 * pause, 0.02))
    self.known.add(begun.doing.text)

  # ---- what goes wrong
  def _watch(self) -> None:
    """End this process, and with it the job, where NCCL has an error or an operation takes longer than ``timeout``: the device
    waits for it, and whoever waits for the device cannot be told."""
    device: Any = get_device(self.device)
    device.enter()
    behind, state = deque[tuple[Any, tuple[Doing, Doing], float]](), ctypes.c_int()   # events, what is before each, and when
    compared, seen = time.monotonic(), None
    while not self.closed.wait(_LOOK):
      if (asked := self.asked) is not None:
        self.asked = None
        behind.append((device.events.record(), asked, time.monotonic()))
      while behind and behind[0][0].is_done: device.events.give(behind.popleft()[0])
      self.library.ncclCommGetAsyncError(self.comm, ctypes.byref(state))
      if state.value not in (0, _PROGRESS): why = f"NCCL: {self.library.ncclGetErrorString(state.value).decode()}"
      elif behind and time.monotonic() - behind[0][2] > self.timeout:
        first, last = behind[0][1]
        why = (f"{first}{f', or an operation after it, up to {last},' if last != first else ''}: not done after "
               f"{self.timeout:.0f} s; some rank is stopped or slow, or does something else")
      elif time.monotonic() - compared > QUIET and (behind or self.newest is not seen):
        why, compared, seen = self._differs(bool(behind)), time.monotonic(), self.newest
        if not why: continue
      else: continue
      print(f"ntgrad: rank {self.ranks[self.rank]} of {self.size}: {why}", file=sys.stderr, flush=True)
      self.abort(why)

  def _differs(self, waits: bool) -> str:
    """What the next rank does, where that is something else, or it has ended while this one ``waits``; "" else."""
    rank = self.comparison.next
    try:
      if self.newest is None or self.comparison.reached(self.newest) or not waits or not self.comparison.ended: return ""
    except DistributedError as e: return str(e)
    return f"{self.newest.doing}: rank {rank} has ended and will not take part"

  def start(self, tag: int, sends: Sequence[Message], receives: Sequence[Message]) -> Any:
    """Refused: NCCL carries tensors of GPUs."""
    raise DistributedError("backend nccl carries tensors on CUDA alone; use backend mpi for those on the CPU")

  def tell(self, rank: int, data: bytes) -> None: """Others are not told: their launcher ends them."""

  def subgroup(self, name: str, ranks: Sequence[int]) -> Transport | None:
    """See :class:`Transport`."""
    me, comm = self.ranks[self.rank], ctypes.c_void_p()
    order = list(ranks).index(me) if me in ranks else 0
    color = 0 if me in ranks else -1   # NCCL_SPLIT_NOCOLOR
    _ok(self.library, self.library.ncclCommSplit(self.comm, color, order, ctypes.byref(comm), None), "ncclCommSplit")
    return NCCLTransport(self.library, comm, self.device, self.messages, name, ranks, order, self.timeout) if color == 0 else None

  def abort(self, why: str) -> None:
    """End this process at once: the driver ends what it has on the device. (``ncclCommAbort`` waits for other ranks, and a thread
    that waits for the device would meanwhile go on, with values that nobody has made.)"""
    os._exit(1)

  def close(self) -> None:
    """End the group, after all that was put into the stream; ``_PARTING`` seconds later at most, where others do not."""
    device: Any = get_device(self.device)
    device.synchronize()
    for graph in list(device.recorded): graph.release()   # NCCL waits for those that have its work
    self.closed.set()
    parting = threading.Thread(target=self.library.ncclCommDestroy, args=(self.comm,), daemon=True)
    parting.start()
    parting.join(_PARTING)
    if self.name == "world": self.messages.close()


def _ok(library: Any, result: int, what: str) -> None:
  """Raises DistributedError for a result that says so."""
  if result in (0, _PROGRESS): return
  raise DistributedError(f"NCCL: {what}: {library.ncclGetErrorString(result).decode()}; NCCL_DEBUG=WARN says more")
