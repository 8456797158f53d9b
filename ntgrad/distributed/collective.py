"""A collective operation as a node of the tensor graph: a CALL (see ``tile/launch.py``) whose program talks to other ranks.

  out, token = CALL(out, x, token)

Each writes the world's token on its device and so comes after the one that wrote it before: all ranks do them in the order in
which their programs ask for them, whatever is needed first. Whoever needs a value has those done that were asked for before it.
A plan and a captured function launch it between kernels, as they launch these."""
from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ntgrad.backends.base import Device, KernelSource, Program, ProgramSpec, Raw, Sizes
from ntgrad.codegen.choose.bound import Work
from ntgrad.codegen.ir import DistributedError, DType, DTypeError, Ops, dtypes
from ntgrad.engine.buffer import Buffer
from ntgrad.engine.device import get_device
from ntgrad.engine.plan import Step
from ntgrad.engine.realize import rebased
from ntgrad.graph import caller
from ntgrad.graph.lock import synchronized
from ntgrad.tensor import Tensor
from ntgrad.tile.launch import Launcher, result_of

from .messages import OPERATIONS
from .transport import Doing
from .world import Group, here, known

_PAIRS = "send", "recv"   # what two ranks do
_IN_PLACE = "all_reduce", "broadcast"


@dataclass(frozen=True)
class Operation:
  """What ranks do together: ``kind`` of ``messages.OPERATIONS``, on ``shape`` -> ``out`` of ``dtype``, ``op`` of a reduction, and
  ``root``, the rank (in the group) from or to which. ``line``: the user's; ``begin`` and ``first``: the bytes at which the result
  and what is sent begin."""
  kind: str
  dtype: DType
  shape: tuple[int, ...]
  out: tuple[int, ...]
  device: str
  group: str
  op: str
  root: int
  line: str
  begin: int = 0
  first: int = 0

  @property
  def name(self) -> str: return f"{self.kind}_{'x'.join(map(str, self.shape)) or 'scalar'}"

  def doing(self, rank: int) -> Doing:
    """What it is, the same words on every rank of which it is one operation."""
    of = f"{self.dtype.name} {self.shape}"
    if self.kind in _PAIRS:
      a, b = (rank, self.root) if self.kind == "send" else (self.root, rank)
      return Doing(f"a message of {of} from rank {a} to {b}", self.line)
    how = f" ({self.op})" if self.op else f" from rank {self.root}" if self.kind == "broadcast" else ""
    return Doing(f"{self.kind}{how} of {of}", self.line)


class Collective(Program):
  """The program of an operation. Memory of the host is read and written where it lies, that of another device by copies; where
  the transport has its own way it is put into the device's stream, and into graphs that replays launch."""

  def __init__(self, operation: Operation):
    o = self.operation = operation
    self.device: Device = get_device(o.device)
    self._doing = dict[int, Doing]()   # by rank: threads share a program
    self.nbytes = nbytes = tuple([prod(s) * o.dtype.itemsize for s in (o.out, o.shape)])
    self.spec = ProgramSpec(o.name, KernelSource(f"# {o.doing(-1)}\n"), (1,), (1,), 3, work=Work(sum(nbytes), (), nbytes))

  @property
  def recorded(self) -> bool:   # type: ignore[override]
    """Whether a graph of the device can have it."""
    return (world := known()) is not None and world.groups[self.operation.group].transport.in_stream   # type: ignore[union-attr]
  @property
  def apart(self) -> bool: return not self.recorded   # type: ignore[override]

  def _here(self) -> tuple[Any, Doing]:
    """The transport of this rank, and how it names the operation."""
    transport: Any = here().groups[self.operation.group].transport
    if (doing := self._doing.get(transport.rank)) is None:
      doing = self._doing[transport.rank] = self.operation.doing(transport.rank)
    return transport, doing

  def __call__(self, buffers: Sequence[Raw], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Do it: (out, x, token). Raises DistributedError."""
    o, start, device = self.operation, time.perf_counter(), self.device
    transport, doing = self._here()
    if wait: device.synchronize()
    if transport.in_stream:
      self.before()
      device.enter()
      self.record(device.stream_handle() or 0, buffers)
      self.after()
    else:
      into, x = [raw if not at else device.at(raw, at) for raw, at in zip(buffers, (o.begin, o.first))]
      (out, back), (given, _) = [_on_host(device, raw, n) for raw, n in zip((into, x), self.nbytes)]
      np_dtype = o.dtype.np
      OPERATIONS[o.kind](transport, doing, given.view(np_dtype), out.view(np_dtype), o.op, o.root)
      if back: device.copyin(into, out)
      here().done()
    if wait: device.synchronize()
    return time.perf_counter() - start if wait else None

  def record(self, stream: int, buffers: Sequence[Raw]) -> None:
    """See :meth:`Program.record`. Raises DistributedError."""
    o = self.operation
    self._here()[0].put(o, buffers[0] + o.begin, buffers[1] + o.first, stream)

  def before(self) -> None:
    """Compare it with the other ranks' where that has to be. Raises DistributedError, DTypeError."""
    transport, doing = self._here()
    transport.begin(self.operation, doing, self.device)

  def after(self) -> None:
    """Have it watched, and count it."""
    transport, doing = self._here()
    transport.begun(doing)
    here().done()


def _on_host(device: Device, raw: Raw, nbytes: int) -> tuple[np.ndarray, bool]:
  """The bytes of an allocation, after everything launched; and whether they are a copy."""
  whole, begin = raw if type(raw) is tuple or hasattr(raw, "offset") and hasattr(raw, "raw") else (raw, 0)
  if device.dlpack[0] == 1 and (address := device.address(whole, begin + nbytes)):
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address + begin)), False
  return device.copyout(raw, nbytes), True


class _Launcher(Launcher):
  """A launcher that no plan on disk knows: the operation is another process's too."""
  sizeless = True
  __repr__ = object.__repr__

  @property
  def in_place(self) -> bool:   # type: ignore[override]
    """Whether the result may lie where the tensor does: what is sent of it is not overwritten before."""
    return self.kernel.startswith(_IN_PLACE)


@lru_cache(maxsize=1024)
def _launcher(o: Operation) -> Launcher:
  step = Step(Collective(o), (), (0, 2), (), o.device)
  return _Launcher(o.name, step, (0, 2), ("out", "x", "token"), tuple)


@synchronized
def collective(kind: str, x: Tensor, out: tuple[int, ...], group: Group, op: str = "", root: int = 0, into: Tensor | None = None,
               begin: int = 0, piece: tuple[int, int] | None = None) -> Tensor:
  """The result, of shape ``out``, of an operation on tensors without gradients, as part of the graph: a tensor, or from element
  ``begin`` on in the flat tensor ``into``. ``piece``: the elements of a flat ``x`` that it is of, instead of all. Raises
  DTypeError, and DistributedError in a process that is not in the group."""
  world = here()
  if group.transport is None:
    raise DistributedError(f"{kind}: rank {world.rank} is not in {group}; only its ranks call its operations")
  if op and (x.dtype is dtypes.bool and op not in ("min", "max") or op == "avg" and x.dtype.kind != "f"):
    raise DTypeError(f"{kind}: {op} of {x.dtype.name}; cast it first")
  if not prod(out) or not x.numel(): return Tensor.zeros(*out, dtype=x.dtype, device=x.device) if into is None else into
  device, token = str(x.device), world.token(str(x.device))
  shape, first = (tuple(map(int, x.shape)), 0) if piece is None else ((piece[1] - piece[0],), piece[0])
  begin, first = begin * x.dtype.itemsize, first * x.dtype.itemsize
  o = Operation(kind, x.dtype, shape, out, device, group.name, op, root, caller(), begin, first)
  launcher = _launcher(o)
  to = Buffer(device, out, x.dtype).node if into is None else rebased(into.lazydata)
  nodes = to, rebased(x.lazydata), rebased(token.lazydata)
  empty = (0,) if to.op is Ops.BUFFER and not to.arg.allocated else ()
  result, passed = [result_of(launcher, nodes, slot, empty, device) for slot in (0, 2)]
  if into is None: made = Tensor._from_node(result)
  else: (made := into)._write(kind, result)
  token._write(kind, passed)
  return made
