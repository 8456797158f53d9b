"""What cuda.bindings.driver has for launches and graphs, of a machine that only remembers."""
from __future__ import annotations

import ctypes
import types
from collections import Counter
from typing import Any

STREAM, RECORDING = 77, 99


class Refused(int):
  """An error code with a name."""
  name = "CUDA_ERROR_NOT_SUPPORTED"


class FakeGraphs:
  """Puts the functions into a driver. What a graph launches goes to ``launches``: ``(grid, block, shared, kernel, parameters)`` a
  node.

  ``parameters`` is how many a kernel has, ``fails`` the function that gives an error; ``made``, ``patched`` and ``launched`` are
  what was done, ``alive`` counts graphs and what was instantiated of them. What stands in ``recorded``, which is a list while a
  stream is recorded, becomes a graph of its own.
  """

  def __init__(self, driver: Any, launches: list[Any], asked: list[Any]):
    self.parameters, self.fails, self.error = 4, "", Refused(801)
    self.made: list[Any] = []
    self.patched: list[int] = []
    self.launched = 0
    self.alive: Counter[str] = Counter()
    self._launches, self._asked = launches, asked
    self.recorded: list[Any] | None = None
    driver.CUstreamCaptureMode = types.SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    driver.CUDA_KERNEL_NODE_PARAMS = types.SimpleNamespace
    for name in (
      "cuGraphCreate",
      "cuGraphDestroy",
      "cuGraphAddKernelNode",
      "cuGraphAddChildGraphNode",
      "cuGraphExecChildGraphNodeSetParams",
      "cuCtxGetStreamPriorityRange",
      "cuStreamCreateWithPriority",
      "cuStreamBeginCapture",
      "cuStreamEndCapture",
      "cuGraphInstantiate",
      "cuGraphExecDestroy",
      "cuGraphLaunch",
      "cuGraphExecKernelNodeSetParams",
      "cuGraphNodeSetEnabled",
      "cuKernelGetFunction",
      "cuFuncSetAttribute",
      "cuLaunchKernel",
    ):
      setattr(driver, name, self._call(name, getattr(self, "_" + name)))

  def _call(self, name: str, function: Any) -> Any:
    def call(*args: Any) -> tuple[Any, ...]: return (self.error,) if self.fails == name else (0, *function(*args))
    return call

  def _read(self, p: Any) -> tuple[Any, ...]:
    """A node's parameters, through the addresses, as the driver copies them."""
    pointers = (ctypes.c_void_p * self.parameters).from_address(p.kernelParams)
    values = tuple([ctypes.c_uint64.from_address(at).value for at in pointers])   # type: ignore[arg-type]
    return (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ), p.sharedMemBytes, p.func[1], values

  def _cuLaunchKernel(self, function: Any, *given: int) -> tuple[Any, ...]:
    gx, gy, gz, bx, by, bz, shared, stream, parameters, extra = given
    assert stream >= STREAM and extra == 0
    self._launches.append(
      self._read(
        types.SimpleNamespace(
          gridDimX=gx,
          gridDimY=gy,
          gridDimZ=gz,
          blockDimX=bx,
          blockDimY=by,
          blockDimZ=bz,
          sharedMemBytes=shared,
          func=function,
          kernelParams=parameters,
        )
      )
    )
    return ()

  def _cuKernelGetFunction(self, kernel: tuple[str, str]) -> tuple[Any, ...]: return (("function", kernel[1]),)
  def _cuFuncSetAttribute(self, function: Any, which: str, value: int) -> tuple[Any, ...]:
    self._asked.append((which, value, function))
    return ()
  def _cuGraphCreate(self, flags: int) -> tuple[Any, ...]:
    assert flags == 0
    self.alive["graph"] += 1
    return (types.SimpleNamespace(nodes=[]),)
  def _add(self, graph: Any, after: Any, n: int, launch: Any) -> tuple[Any, ...]:
    after = list(after or ())
    assert len(after) == n == len({id(a) for a in after}) and all(a in graph.nodes for a in after)
    node = types.SimpleNamespace(number=len(graph.nodes), after=tuple(a.number for a in after), launch=launch)
    graph.nodes.append(node)
    return (node,)
  def _cuGraphAddKernelNode(self, graph: Any, after: Any, n: int, p: Any) -> tuple[Any, ...]:
    return self._add(graph, after, n, self._read(p))
  def _cuGraphAddChildGraphNode(self, graph: Any, after: Any, n: int, child: Any) -> tuple[Any, ...]:
    return self._add(graph, after, n, tuple(child.nodes))
  def _cuGraphExecChildGraphNodeSetParams(self, exec: Any, node: Any, child: Any) -> tuple[Any, ...]:
    exec.launches[node.number] = tuple(child.nodes)
    self.patched.append(node.number)
    return ()
  def _cuCtxGetStreamPriorityRange(self) -> tuple[Any, ...]: return 0, -5
  def _cuStreamCreateWithPriority(self, flags: int, priority: int) -> tuple[Any, ...]:
    assert (flags, priority) == (1, -5)
    return (RECORDING,)
  def _cuStreamBeginCapture(self, stream: int, mode: str) -> tuple[Any, ...]:
    assert (stream, mode, self.recorded) == (RECORDING, "relaxed", None)
    self.recorded = []
    return ()
  def _cuStreamEndCapture(self, stream: int) -> tuple[Any, ...]:
    assert stream == RECORDING and self.recorded is not None
    self.alive["graph"] += 1
    found, self.recorded = types.SimpleNamespace(nodes=self.recorded), None
    return (found,)
  def _cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, ...]:
    assert flags == 0
    self.alive["exec"] += 1
    launches = [n.launch for n in graph.nodes]
    self.made.append(types.SimpleNamespace(after=[n.after for n in graph.nodes], launches=launches, left_out=set()))
    return (self.made[-1],)
  def _cuGraphExecKernelNodeSetParams(self, exec: Any, node: Any, p: Any) -> tuple[Any, ...]:
    exec.launches[node.number] = self._read(p)
    self.patched.append(node.number)
    return ()
  def _cuGraphNodeSetEnabled(self, exec: Any, node: Any, enabled: int) -> tuple[Any, ...]:
    (exec.left_out.discard if enabled else exec.left_out.add)(node.number)
    return ()
  def _cuGraphLaunch(self, exec: Any, stream: int) -> tuple[Any, ...]:
    assert stream == STREAM
    self.launched += 1
    self._launches.extend(x for i, x in enumerate(exec.launches) if i not in exec.left_out)
    return ()
  def _cuGraphDestroy(self, graph: Any) -> tuple[Any, ...]:
    self.alive["graph"] -= 1
    return ()
  def _cuGraphExecDestroy(self, exec: Any) -> tuple[Any, ...]:
    self.alive["exec"] -= 1
    return ()
