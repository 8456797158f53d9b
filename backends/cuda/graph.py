"""CUDA graphs of kernels that are launched again and again: built node by node, launched by one call. The nodes' parameters are
one array, of which the driver reads a part when a node is made or patched: an address or a size that changes is written there,
and the node given to the driver again. A launch that is under way is not changed by that.

Another library's work is a node that is a graph: what it puts into a stream for the addresses that its node has. It is recorded
at the first launch, and again for others. Such a stream has the highest priority, so that a message to other GPUs begins among
kernels that wait for none."""
from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from ..base import Argument, Graph, Grid, Node, Raw, Sizes
from .driver import Parameters, call, check

if TYPE_CHECKING:
  from .device import CUDADevice

_NAMED = 8   # kernels, in an error
_KEPT = 4    # recordings of another library's work, each for other addresses


class CUDAGraph(Graph):
  """Kernels, and what other libraries record, as nodes of a CUDA graph. The programs are ready, and of ``device``. Raises
  DeviceError, or what ``cuda.bindings`` raises, where the driver does not make it."""

  def __init__(self, device: CUDADevice, nodes: Sequence[Node]):
    driver = self._driver = device.driver
    self._device = device
    self._programs: list[Any] = [n.program for n in nodes]   # their code and scratch stay alive
    self._names = [p.spec.label for p in self._programs]
    self._last = self._names[-(device.launched.maxlen or 0):]
    self._graph = self._exec = None
    self._recorded = {i: dict[tuple[int, ...], Any]() for i, p in enumerate(self._programs) if p.recorded}   # by their addresses
    self._sizes: list[tuple[int, ...] | None] = [n.sizes for n in nodes]
    self._added: Any = None                    # to each address of memory that is a parameter
    self._changed = dict[int, None]()          # nodes that the driver knows with other addresses or sizes
    self._left_out, self._empty = set[int](), set[int]()   # nodes without programs: as the driver knows them, as they are
    self._set, self._enable = driver.cuGraphExecKernelNodeSetParams, driver.cuGraphNodeSetEnabled
    self._launch, self._stream = driver.cuGraphLaunch, device.stream.handle
    self._args = [self._given(i, n.args) for i, n in enumerate(nodes)]   # the parameters that are buffers
    launches = [None if i in self._recorded else self._programs[i].node(n.sizes) for i, n in enumerate(nodes)]
    filled = [[0] * len(args) + (launch[-1] if launch else []) for args, launch in zip(self._args, launches)]
    self._starts = np.cumsum([0, *map(len, filled)]).tolist()
    self._parameters = Parameters([x for values in filled for x in values])
    self._values: Any = np.frombuffer(self._parameters.values, np.uint64)
    # of each kernel the driver's struct, with its parameters' address
    self._params = [launch and self._described(i, launch) for i, launch in enumerate(launches)]
    last: dict[Any, int] = {}   # all launches of a program use its one scratch memory, so they come after one another
    self._after = list[list[int]]()
    for i, n in enumerate(nodes):
      after = set(n.after)
      if i not in self._recorded and (binary := (program := self._programs[i]).binary) is not None and binary.global_scratch_size:
        if program in last: after.add(last[program])
        last[program] = i
      self._after.append(sorted(after))
    if not self._recorded: self._make()
    else: device.recorded.add(self)

  def _make(self) -> None:
    """Have the driver make the graph, with the addresses that there are."""
    driver, self._nodes = self._driver, list[Any]()
    self._graph = call(driver.cuGraphCreate(0), "making a graph failed")
    for i, (after, p) in enumerate(zip(self._after, self._params)):
      before = [self._nodes[j] for j in after]
      made = (driver.cuGraphAddChildGraphNode(self._graph, before or None, len(before), self._recording(i)) if p is None else
              driver.cuGraphAddKernelNode(self._graph, before or None, len(before), p))
      self._nodes.append(call(made, f"adding {self._names[i]} to a graph failed"))
    self._exec = call(driver.cuGraphInstantiate(self._graph, 0), f"instantiating a graph of {len(self._nodes)} kernels failed")
    self._left_out.clear()
    self._changed = dict.fromkeys(sorted(self._empty))

  def _described(self, i: int, launch: tuple[Any, ...]) -> Any:
    function, grid, block, shared, _ = launch
    p = self._driver.CUDA_KERNEL_NODE_PARAMS()
    p.func, p.sharedMemBytes, p.kernelParams = function, shared, self._parameters.address + 8 * self._starts[i]
    p.blockDimX, p.blockDimY, p.blockDimZ = block
    self._cover(i, p, grid)
    return p

  def _given(self, i: int, args: Sequence[Argument]) -> Sequence[Argument]:
    return args if i in self._recorded else self._programs[i].given(args)

  def _recording(self, i: int) -> Any:
    """What another library does for the addresses that its node has, as a graph. Those of the last few addresses are kept."""
    known, addresses = self._recorded[i], tuple(self._values[self._starts[i]:self._starts[i + 1]].tolist())
    if addresses not in known:
      while len(known) >= _KEPT: self._driver.cuGraphDestroy(known.pop(next(iter(known))))
      known[addresses] = self._device.record(lambda stream: self._programs[i].record(stream, addresses))
    known[addresses] = found = known.pop(addresses)   # the newest
    return found

  def change(self, node: int, args: Sequence[Argument], sizes: Sizes) -> None:
    """See :meth:`Graph.change`. The driver learns of it before the next launch."""
    self._args[node], self._added = self._given(node, args), None
    if sizes == self._sizes[node]: return
    _, grid, _, _, more = self._programs[node].node(sizes)
    self._sizes[node], self._changed[node] = None, None   # until it has them: an interrupt may come between
    self._values[self._starts[node] + len(self._args[node]):self._starts[node + 1]] = more
    self._cover(node, self._params[node], grid)
    self._sizes[node] = sizes

  def _cover(self, node: int, p: Any, grid: Grid) -> None:
    """Let a node have a grid. One without programs is no grid: such a node is left out, and keeps what it has."""
    (self._empty.discard if all(grid) else self._empty.add)(node)
    p.gridDimX, p.gridDimY, p.gridDimZ = grid if all(grid) else (1, 1, 1)

  def _patch(self, node: int) -> None:
    if node in self._recorded:
      return check(self._driver.cuGraphExecChildGraphNodeSetParams(self._exec, self._nodes[node], self._recording(node)))
    check(self._set(self._exec, self._nodes[node], self._params[node]))
    if (empty := node in self._empty) == (node in self._left_out): return
    check(self._enable(self._exec, self._nodes[node], int(not empty)))
    (self._left_out.add if empty else self._left_out.discard)(node)

  def _find(self, count: int) -> None:
    """Where each address comes from: its node and its place among the parameters, its place in a table and what is added. The
    table has ``count`` addresses of memory, and then where in it arguments begin that move."""
    found = [(i, at + k, a.memory + count * a.moves, a.place + a.offset)
             for i, (args, at) in enumerate(zip(self._args, self._starts)) for k, a in enumerate(args)]
    self._of, self._to, self._from, added = np.array(found, np.int64).reshape(-1, 4).T.copy()
    self._added = added.view(np.uint64)

  def _place(self, memory: Sequence[Raw], begins: Sequence[int]) -> None:
    """Give the nodes the addresses of their arguments."""
    if self._added is None: self._find(len(memory))
    now = np.array([*memory, *map(add, memory, begins)], np.uint64)[self._from] + self._added
    different = now != self._values[self._to]
    if not different.any(): return
    self._changed.update(dict.fromkeys(self._of[different].tolist()))   # first, for an interrupt may come between
    self._values[self._to] = now

  def __call__(self, memory: Sequence[Raw], begins: Sequence[int] = ()) -> None:
    """Patch what has changed and launch. Raises DeviceError, and what forbids another library's work."""
    device = self._device
    device.here()
    for i in self._recorded: self._programs[i].before()
    device.launched.extend(self._last)
    try:
      self._place(memory, begins)
      if self._exec is None: self._make()
      if self._changed:
        for node in self._changed: self._patch(node)
        self._changed.clear()
      check(self._launch(self._exec, self._stream))
    except Exception as e:
      names = list(dict.fromkeys(self._names))
      raise device.failed(e, f"launching {len(self._names)} kernels at once failed ({', '.join(names[:_NAMED])}"
                             f"{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''})") from None
    for i in self._recorded: self._programs[i].after()

  def release(self) -> None:
    """Destroy what the driver has of it; the next launch makes it again. A launch under way keeps what it needs."""
    driver, known = self._driver, [graph for recordings in self._recorded.values() for graph in recordings.values()]
    if self._exec is not None: driver.cuGraphExecDestroy(self._exec)
    for graph in (self._graph, *known):
      if graph is not None: driver.cuGraphDestroy(graph)
    self._graph = self._exec = None
    for recordings in self._recorded.values(): recordings.clear()

  def __del__(self) -> None:
    try: self.release()   # at interpreter exit the driver may be gone, and it may not have been made
    except Exception: pass
