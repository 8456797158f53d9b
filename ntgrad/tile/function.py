"""Kernels as functions of tensors: outputs are made by the call, and gradients flow where there is a backward kernel."""
from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Callable, Collection, Mapping, Sequence, Union
from weakref import ref

from ntgrad.codegen.ir import ArgumentError, DType, GradientError, UOp, dtypes, shown
from ntgrad.core import Base as Tensor
from ntgrad.engine.buffer import Buffer
from ntgrad.engine.device import default_device
from ntgrad.graph import checked, mode, nodes as graph
from ntgrad.reads import wrappers

from .derived_gradient import Derivations, RuleCall, once
from .kernel import TileKernel
from .launch import Argument, as_tensor, converted_arguments, describe_argument
from .tensor import Tensor as Symbolic

Like = Union[str, Callable[..., Any]]


@dataclass(eq=False)
class Call:
  """What the gradients of one call need. It holds its results' values, not the nodes, so that no result keeps itself."""
  function: Function
  inputs: dict[str, Any]                      # tensors are cut off from their graphs
  results: dict[str, Tensor]                  # likewise
  given: dict[str, Any]
  differentiable: list[str]                   # the inputs that gradients go on to, in the order of ``sources``
  sources: tuple[UOp, ...]
  outputs: dict[int, ref[UOp]] = field(default_factory=dict)

  def moved(self, to: Callable[[UOp], UOp]) -> Call:
    """The same call of other nodes."""
    def other(x: Any) -> Any: return Tensor._from_node(to(x.lazydata)) if isinstance(x, Tensor) else x
    inputs, results = ({n: other(x) for n, x in xs.items()} for xs in (self.inputs, self.results))
    return Call(self.function, inputs, results, self.given, self.differentiable, tuple(map(to, self.sources)))

  def gradients(self, at: Mapping[int, UOp], sources: Sequence[UOp], need: Collection[UOp]) -> list[tuple[UOp, UOp]]:
    """The gradients at the inputs from those at the outputs, by number; nothing depends on an output that has none."""
    known: dict[str, Any] = {**self.inputs, **self.results}
    for i, (n, t) in enumerate(self.results.items()):
      known[f"grad_{n}"] = Tensor._from_node(at[i] if i in at else graph.const(0.0, t.dtype, t.shape)).to(t.device)
    found: dict[str, Tensor] = {}
    for kernel in self.function.backward:
      args = []
      for p in [t.name for t in kernel.takes]:
        if p not in known and (x := self.inputs.get(p.removeprefix("grad_"))) is not None:
          known[p] = found[p] = new_tensor(x.device, x.shape, x.dtype)
        if p not in known:
          raise GradientError(f"{self.function.kernel.name}: its backward kernel {kernel.name} has a parameter {p!r}; parameters "
                              "are called as those of the forward kernel, or grad_ and one of its names: "
                              f"{', '.join(self.function.kernel.names)}")
        args.append(known[p])
      kernel(*args, **{n: v for n, v in self.given.items() if n in kernel.symbols})
    pairs = [(s, found[f"grad_{n}"].lazydata) for n, s in zip(self.differentiable, sources) if f"grad_{n}" in found]
    return once(self.function.kernel.name, pairs, at)


class Function:
  """A kernel that makes its outputs. See :func:`function`."""

  def __init__(self, kernel: TileKernel, backward: tuple[TileKernel, ...], outputs: Mapping[str, Like]):
    self.kernel, self.backward, self.outputs = kernel, backward, outputs
    self.inputs = [t.name for t in kernel.takes if t.name not in outputs]
    self.derivations = Derivations(kernel)
    self.__name__, self.__doc__ = kernel.name, kernel.__doc__

  def __call__(self, *inputs: Any, **given: Any) -> Any:
    """The output, or a tuple of several. Raises GradientError where a gradient is needed that no kernel and no rule gives."""
    if len(inputs) != len(self.inputs):
      raise ArgumentError(f"{self.__name__}: takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), got {len(inputs)}")
    named = dict(zip(self.inputs, inputs))
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    device = tensors[0].device if tensors else default_device()
    needs = mode.grad and any(t._state > 0 for t in tensors)
    plain = {n: x.detach() if isinstance(x, Tensor) else x for n, x in named.items()}
    made = {n: self.make(n, like, plain, device) for n, like in self.outputs.items()}
    everything = plain | made
    self.kernel(*[everything[t.name] for t in self.kernel.takes], **given)
    results = list(made.values())
    sources = [n for n, x in named.items() if isinstance(x, Tensor) and x.dtype.kind == "f"]
    if mode.grad and sources:   # gradient(x) may ask at tensors that require none too
      call = self.ruled(named, everything, given, sources, needs) if not self.backward else \
        Call(self, plain, made, given, sources, tuple(named[n].lazydata for n in sources))
      for i, t in enumerate(results):
        if t.dtype.kind != "f": continue
        results[i] = Tensor._from_node(graph.with_gradient(t.lazydata, call, i))
        results[i]._state = int(needs)
    return results[0] if len(results) == 1 else tuple(results)

  def ruled(self, inputs: Mapping[str, Any], arguments: Mapping[str, Any], given: Mapping[str, Any], sources: Sequence[str],
            needs: bool) -> RuleCall:
    """What has the gradients of a call by rule. Raises GradientError for one that ``needs`` them and has no rule."""
    takes, device = self.kernel.takes, next(iter(arguments[n].device for n in self.outputs))
    given_as = dict(zip([t.name for t in takes], converted_arguments(self.kernel, [arguments[t.name] for t in takes])))
    like = {t.name: described(t, given_as[t.name]) for t in takes}
    find = lru_cache(maxsize=1)(partial(self.derivations.find, like, given))
    if needs: find()   # as the application is now
    nodes = {n: x.lazydata if isinstance(x, Tensor) else as_node(n, given_as[n], device) for n, x in inputs.items()}
    return RuleCall(self.__name__, nodes, find, list(self.outputs), sources)

  def make(self, name: str, like: Like, inputs: Mapping[str, Any], device: str) -> Tensor:
    """An output, not filled yet."""
    if isinstance(like, str):
      if like not in inputs:
        raise ArgumentError(f"{self.__name__}: output {name} is like {like!r}, which is none of {', '.join(self.inputs)}")
      return new_tensor(device, inputs[like].shape, inputs[like].dtype)
    got = like(*inputs.values())
    shape, dtype = got if len(got) == 2 and isinstance(got[0], (tuple, list)) else (got, None)
    if dtype is None: dtype = next((x.dtype for x in inputs.values() if isinstance(x, Tensor)), dtypes.default_float)
    return new_tensor(device, tuple(shape), dtypes.of(dtype))


wrappers[Function] = lambda f: (f.kernel, *f.backward)


def new_tensor(device: str, shape: tuple[int, ...], dtype: DType) -> Tensor:
  """Memory with nothing in it yet."""
  return Tensor._from_node(Buffer(device, tuple(shape), dtype).node)


def described(t: Symbolic, x: Any) -> Any:
  """What a gradient depends on of an argument: shape and dtype, of one that is compiled in the number."""
  return x if t.constexpr else Argument(x.shape, x.dtype) if isinstance(x, Tensor) else describe_argument(x)


def as_node(name: str, x: Any, device: str) -> UOp:
  """An argument that is no tensor as a node of the tensor graph."""
  if describe_argument(x).shape == (): return graph.const(x.item() if hasattr(x, "item") else x, describe_argument(x).dtype)
  return as_tensor(name, name, x, device, False, [])[0].lazydata


@checked
def function(kernel: TileKernel, backward: TileKernel | Sequence[TileKernel] | None = None,
             outputs: Mapping[str, Like] | None = None) -> Function:
  """A function of tensors from a kernel that writes its last parameters.

  ``outputs`` says what the written parameters are like: a parameter's name to an input's name (its shape and dtype), or to a
  function of all inputs that gives a shape, or ``(shape, dtype)``. Left out, the last parameter is the output, like the first.
  ``backward``, a kernel or several, gives the gradients. Their parameters are found by name: those of ``kernel`` (inputs and
  outputs, as they were), ``grad_`` and an output's name (read), ``grad_`` and an input's name (written). Left out, the gradients
  follow from the application by rule: each input's is tensor code, scheduled with the rest of the graph. A call whose gradient no
  rule gives is a GradientError with the line of the application. Raises ArgumentError for names that the kernel has not.
  """
  names = [t.name for t in kernel.takes]
  made = dict(outputs) if outputs is not None else {names[-1]: names[0]}
  if unknown := [n for n in made if n not in names]:
    raise ArgumentError(f"function: {kernel.name} has no parameter {', '.join(unknown)}; it has {', '.join(names)}")
  if wrong := [n for n, like in made.items() if not (isinstance(like, str) or callable(like))]:
    raise ArgumentError(f"function: output {wrong[0]} is like {shown(made[wrong[0]])}; it takes the name of an input, or a "
                        "function")
  return Function(kernel, () if backward is None else (backward,) if isinstance(backward, TileKernel) else tuple(backward), made)
