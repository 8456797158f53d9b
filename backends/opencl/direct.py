"""Launches that go to ``threads.Threads``: of one kernel, and of a replay's kernels as one call."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Sequence, cast

import numpy as np

from ..base import Graph, Node, Sizes
from .threads import TESTED, WORTH_WAKING, Launch, Record, Threads, spec

if TYPE_CHECKING:
  from .device import OpenCLDevice
  from .program import OpenCLProgram


class CPUGraph(Graph):
  """Kernels that run one after the other in one call, once the machine code of each is there; until then each by itself."""

  def __init__(self, device: OpenCLDevice, threads: Threads, nodes: Sequence[Node]):
    self._device, self._threads = device, threads
    self._programs = [cast("OpenCLProgram", n.program) for n in nodes]
    self._args = [list(n.args) for n in nodes]
    self._sizes = [n.sizes for n in nodes]
    self._records: Any = None
    self._launches: list[Launch] = []
    self._apart: set[int] = set(range(len(nodes)))   # those whose machine code is not there
    self._seconds = 0.0                              # what all that are shared out take on one thread

  def _link(self) -> None:
    """Take the machine code that is there by now."""
    if self._records is None:
      if not all([p.code for p in self._programs]): return
      records = (Record * len(self._programs))()
      launches = [p.launch_of(r, self._threads) for p, r in zip(self._programs, records)]
      for i, raws in enumerate(self._args):
        for j, raw in enumerate(raws): self._programs[i].put(launches[i], j, raw)
      self._launches, self._records = launches, records   # at once: an interrupt before, and they are made again
    for i in sorted(self._apart): self._cover(i)

  def _cover(self, node: int) -> None:
    launch = self._launches[node]
    before = launch.seconds
    if self._programs[node].cover(launch, self._sizes[node]): self._apart.discard(node)
    else: self._apart.add(node)
    self._seconds += launch.seconds - before

  def change(self, node: int, arg: int, raw: Any) -> None:
    self._args[node][arg] = raw
    if self._launches: self._programs[node].put(self._launches[node], arg, raw)

  def resize(self, node: int, sizes: Sizes) -> None:
    self._sizes[node] = sizes
    if self._launches: self._cover(node)

  def __call__(self) -> None:
    """Launch everything. Raises DeviceError."""
    device = self._device
    if device.busy: device.drain()
    if self._apart: self._link()
    if self._apart:
      for program, raws, sizes in zip(self._programs, self._args, self._sizes): program(raws, False, sizes)
      return
    device.here()
    self._threads.run(self._records, len(self._launches), self._seconds > WORTH_WAKING)


_threads: dict[tuple[object, int], Threads] = {}   # of this process, by driver and number


def threads_of(device: OpenCLDevice, count: int = 0) -> Threads | None:
  """So many threads for a device (0: one a core that this process may use), tested; None where its code cannot be called so."""
  compiler = device.compiler
  count = count or min(int(device.device.max_compute_units), len(os.sched_getaffinity(0)))
  key = compiler.identity, count
  if key in _threads: return _threads[key]
  specs = [spec(name) for name in ("RUN", "HELP", "TEST")]
  keys = [compiler.key(s) for s in specs]
  held = [compiler.units.get(k) or compiler.load(k) for k in keys]   # until programs do: one that is let go is loaded again
  if None in held:
    unit = compiler.unit(specs)
    compiler.build(unit)
    unit.done = True
    compiler.units.update(dict.fromkeys(keys, unit))
  run, help, test = [cast("OpenCLProgram", p) for p in device.compile(specs)]
  zeros, out = device.new_raw(4096), device.new_raw(4096)
  zeros.host[:] = 0
  for p in (run, help, test): p([out if p is test else zeros, *[zeros] * (p.spec.nparams - 1)])
  device.queue.finish()
  for p in (run, help, test): p.take_code()
  if not (run.code and help.code and test.code): return None
  threads = Threads(count, *[next(iter(p.code.values())) for p in (run, help)])
  threads.keep(run.unit, help.unit)
  # groups in three dimensions, two arrays of local memory, a number as an argument
  groups, record = int(np.prod(TESTED)), (Record * 1)()
  launch = test.launch_of(record[0], threads)
  given, got = zeros.host.view(np.uint64)[:groups * 8], out.host.view(np.uint64)[:groups * 8]
  given[:] = np.arange(groups * 8)
  for i, raw in enumerate((device.at(out, 7), zeros)): test.put(launch, i, raw)
  if not test.cover(launch, ()): return None
  threads.run(record, 1, True)
  first = given.reshape(-1, 8)
  if (got != (1000 * first + first[:, ::-1] + 7).ravel()).any(): return None
  _threads[key] = threads
  return threads
