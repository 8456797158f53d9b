"""CUDA graphs of kernels that are launched again and again: built node by node, launched by one call. The nodes' parameters are
one array, of which the driver reads a part when a node is made or patched: an address or a size that changes is written there,
and the node given to the driver again. A launch that is under way is not changed by that."""
from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any, Sequence, cast

import numpy as np

from ..base import Argument, Graph, Grid, Node, Raw, Sizes
from .driver import Parameters, call, check

if TYPE_CHECKING:
  from .device import CUDADevice, CUDAProgram

_NAMED = 8   # kernels, in an error


class CUDAGraph(Graph):
  """Kernels as nodes of a CUDA graph. The programs are ready, and of ``device``. Raises DeviceError, or what ``cuda.bindings``
  raises, where the driver does not make it."""

  def __init__(self, device: CUDADevice, nodes: Sequence[Node]):
    driver = self._driver = device.driver
    self._device, self._programs = device, [cast("CUDAProgram", n.program) for n in nodes]   # their code and scratch stay alive
    self._names = [p.spec.label for p in self._programs]
    self._last = self._names[-(device.launched.maxlen or 0):]
    self._graph = self._exec = None
    self._params, self._nodes = list[Any](), list[Any]()   # of each the driver's struct, with its parameters' address
    self._sizes: list[tuple[int, ...] | None] = [n.sizes for n in nodes]
    self._added: Any = None                    # to each address of memory that is a parameter
    self._changed = dict[int, None]()          # nodes that the driver knows with other addresses or sizes
    self._left_out, self._empty = set[int](), set[int]()   # nodes without programs: as the driver knows them, as they are
    self._set, self._enable = driver.cuGraphExecKernelNodeSetParams, driver.cuGraphNodeSetEnabled
    self._launch, self._stream = driver.cuGraphLaunch, device.stream.handle
    self._graph = call(driver.cuGraphCreate(0), "making a graph failed")
    self._args = [program.given(n.args) for program, n in zip(self._programs, nodes)]   # the parameters that are buffers
    launches = [program.node(n.sizes) for program, n in zip(self._programs, nodes)]
    filled = [[0] * len(args) + more for args, (*_, more) in zip(self._args, launches)]
    self._starts = np.cumsum([0, *map(len, filled)]).tolist()
    self._given = Parameters([x for values in filled for x in values])
    self._values: Any = np.frombuffer(self._given.values, np.uint64)
    last: dict[CUDAProgram, int] = {}   # all launches of a program use its one scratch memory, so they come after one another
    for i, (program, n, launch) in enumerate(zip(self._programs, nodes, launches)):
      after = set(n.after)
      if program.binary is not None and program.binary.global_scratch_size:
        if program in last: after.add(last[program])
        last[program] = i
      self._add(i, program, launch, sorted(after))
    self._exec = call(driver.cuGraphInstantiate(self._graph, 0), f"instantiating a graph of {len(nodes)} kernels failed")
    self._changed.update(dict.fromkeys(sorted(self._empty)))

  def _add(self, i: int, program: CUDAProgram, launch: Any, after: Sequence[int]) -> None:
    function, grid, block, shared, _ = launch
    p = self._driver.CUDA_KERNEL_NODE_PARAMS()
    p.func, p.sharedMemBytes, p.kernelParams = function, shared, self._given.address + 8 * self._starts[i]
    p.blockDimX, p.blockDimY, p.blockDimZ = block
    self._cover(i, p, grid)
    before = [self._nodes[i] for i in after]
    self._nodes.append(call(self._driver.cuGraphAddKernelNode(self._graph, before or None, len(before), p),
                            f"adding kernel {program.spec.label} to a graph failed"))
    self._params.append(p)

  def change(self, node: int, args: Sequence[Argument], sizes: Sizes) -> None:
    """See :meth:`Graph.change`. The driver learns of it before the next launch."""
    self._args[node], self._added = self._programs[node].given(args), None
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
    """Patch what has changed and launch. Raises DeviceError."""
    device = self._device
    device.here()
    device.launched.extend(self._last)
    try:
      self._place(memory, begins)
      if self._changed:
        for node in self._changed: self._patch(node)
        self._changed.clear()
      check(self._launch(self._exec, self._stream))
    except Exception as e:
      names = list(dict.fromkeys(self._names))
      raise device.failed(e, f"launching {len(self._names)} kernels at once failed ({', '.join(names[:_NAMED])}"
                             f"{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''})") from None

  def __del__(self) -> None:
    try:   # at interpreter exit the driver may be gone; a launch under way keeps what it needs
      if getattr(self, "_exec", None) is not None: self._driver.cuGraphExecDestroy(self._exec)
      if getattr(self, "_graph", None) is not None: self._driver.cuGraphDestroy(self._graph)
    except Exception: pass
