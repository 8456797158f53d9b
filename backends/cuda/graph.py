"""CUDA graphs of captured kernels: built node by node, launched by one call. A node's parameters are arrays of this process that
the driver reads when the node is made or patched: an address or a size that changes is written there, and the node given to the
driver again. A launch that is under way is not changed by that."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence, cast

from ..base import Graph, Grid, Node, Sizes
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
    self._given = list[Parameters]()           # for each node its parameters,
    self._params = list[Any]()                 # and the driver's struct that has their address
    self._nodes = list[Any]()
    self._buffers = list[int]()                # how many of them are buffers; sizes follow
    self._sizes: list[tuple[int, ...] | None] = [n.sizes for n in nodes]
    self._changed = dict[int, None]()          # nodes that the driver knows with other addresses or sizes
    self._left_out = set[int]()             # nodes without programs, as the driver knows them
    self._empty = set[int]()                # as they are
    self._set, self._enable, self._launch = (driver.cuGraphExecKernelNodeSetParams, driver.cuGraphNodeSetEnabled,
                                             driver.cuGraphLaunch)
    self._stream = device.stream.handle
    self._graph = call(driver.cuGraphCreate(0), "making a graph failed")
    last: dict[CUDAProgram, int] = {}   # all launches of a program use its one scratch memory, so they come after one another
    for i, (program, n) in enumerate(zip(self._programs, nodes)):
      after = set(n.after)
      if program.binary is not None and program.binary.global_scratch_size:
        if program in last: after.add(last[program])
        last[program] = i
      self._add(i, program, n, sorted(after))
    self._exec = call(driver.cuGraphInstantiate(self._graph, 0), f"instantiating a graph of {len(nodes)} kernels failed")
    self._changed.update(dict.fromkeys(sorted(self._empty)))

  def _add(self, i: int, program: CUDAProgram, n: Node, after: Sequence[int]) -> None:
    function, grid, block, shared, more = program.node(n.sizes)
    buffers = program.given(n.args)
    given = Parameters((*buffers, *more))
    self._buffers.append(len(buffers))
    p = self._driver.CUDA_KERNEL_NODE_PARAMS()
    p.func, p.sharedMemBytes, p.kernelParams = function, shared, given.address
    p.blockDimX, p.blockDimY, p.blockDimZ = block
    self._cover(i, p, grid)
    before = [self._nodes[i] for i in after]
    self._nodes.append(call(self._driver.cuGraphAddKernelNode(self._graph, before or None, len(before), p),
                            f"adding kernel {program.spec.label} to a graph failed"))
    self._given.append(given)
    self._params.append(p)

  def change(self, node: int, arg: int, raw: int) -> None:
    """See :meth:`Graph.change`. The driver learns of it before the next launch."""
    values = self._given[node].values
    if arg < self._buffers[node] and values[arg] != raw:   # the kernel may have no use for the last
      self._changed[node] = None   # first, for an interrupt may come between
      values[arg] = raw

  def resize(self, node: int, sizes: Sizes) -> None:
    """See :meth:`Graph.resize`. The driver learns of it before the next launch."""
    if sizes == self._sizes[node]: return
    _, grid, _, _, more = self._programs[node].node(sizes)
    self._sizes[node], self._changed[node] = None, None   # until it has them: an interrupt may come between
    self._given[node].values[self._buffers[node]:] = more
    self._cover(node, self._params[node], grid)
    self._sizes[node] = sizes

  def _cover(self, node: int, p: Any, grid: Grid) -> None:
    """Let a node have a grid. One without programs is no grid: such a node is left out, and keeps what it has."""
    if all(grid): self._empty.discard(node)
    else: self._empty.add(node)
    p.gridDimX, p.gridDimY, p.gridDimZ = grid if all(grid) else (1, 1, 1)

  def _patch(self, node: int) -> None:
    check(self._set(self._exec, self._nodes[node], self._params[node]))
    if (empty := node in self._empty) == (node in self._left_out): return
    check(self._enable(self._exec, self._nodes[node], int(not empty)))
    (self._left_out.add if empty else self._left_out.discard)(node)

  def __call__(self) -> None:
    """Patch what has changed and launch. Raises DeviceError."""
    device = self._device
    device.here()
    device.launched.extend(self._last)
    try:
      if self._changed:
        for node in self._changed: self._patch(node)
        self._changed.clear()
      check(self._launch(self._exec, self._stream))
    except Exception as e:
      names = list(dict.fromkeys(self._names))
      raise device.failed(e, f"replaying {len(self._names)} captured kernels failed ({', '.join(names[:_NAMED])}"
                             f"{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''})") from None

  def __del__(self) -> None:
    try:   # at interpreter exit the driver may be gone; a launch under way keeps what it needs
      if getattr(self, "_exec", None) is not None: self._driver.cuGraphExecDestroy(self._exec)
      if getattr(self, "_graph", None) is not None: self._driver.cuGraphDestroy(self._graph)
    except Exception: pass
