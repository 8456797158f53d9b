"""Trying the language: a function of whole arrays, as one program with one block for each."""
from __future__ import annotations

from typing import Any, Callable

from ntgrad.codegen.index import numbers
from ntgrad.codegen.ir import ApplicationError, config
from ntgrad.codegen.kernel.arrangement import Arrangement
from ntgrad.core import Base as Tensor
from ntgrad.engine.device import default_device
from ntgrad.engine.realize import realize
from ntgrad.graph import checked

from .block import block, is_value
from .function import new_tensor
from .interpret import Interpreter
from .launch import as_tensor, assert_flags, describe_argument, in_memory, run_launch
from .parameters import Parameter, Tile
from .specialised import Specialised
from .trace import Tracer


def _whole(shape: tuple[int, ...]) -> Arrangement:
  """An array as the tile of a single program."""
  a = Arrangement.of(shape)
  return a.tile(shape).squeeze(tuple(range(len(shape)))) if shape else a


@checked
def apply(fn: Callable[..., Any], *arrays: Any) -> Any:
  """``fn`` of arrays (or tensors, or numbers), read and run as an application on one block for each: ``apply(lambda x: tl.exp(x),
  x)``.

  Gives arrays where all arguments are arrays or numbers, else tensors; several where ``fn`` gives a tuple. Blocks are as large as
  the arrays: this is for trying, testing and small things.
  """
  taken = [describe_argument(a) for a in arrays]
  parameters = [Parameter(f"argument{i}", i, _whole(a.shape), a.dtype) for i, a in enumerate(taken)]
  tracer = Tracer(parameters, (), checks=config.checks)
  with tracer:
    got = Interpreter(tracer).call(fn, list(map(Tile, parameters)), {})
    results = got if isinstance(got, tuple) else (got,)
    if not all(is_value(r) or isinstance(r, (bool, int, float)) for r in results):
      raise ApplicationError(f"{getattr(fn, '__name__', 'the function')} gives {got!r}; a block, or a tuple of blocks")
    for b in list(map(block, results)):
      p = Parameter(f"result{len(parameters) - len(arrays)}", len(parameters), _whole(numbers(b.dims)), b.dtype)
      parameters.append(p)
      Tile(p).store(b)
  device = next((a.device for a in arrays if isinstance(a, Tensor)), None) or default_device()
  given = [as_tensor("apply", p.name, a, device, p.written, []) for p, a in zip(parameters, arrays)]
  inputs = [t if in_memory(t) else t.detach().contiguous() for t, _ in given]
  realize([t for t in inputs if not in_memory(t)])
  s = Specialised("apply", tracer.kernel(), tuple(parameters), {}, asserts=tuple(tracer.asserts))
  more = parameters[len(arrays):]
  made = [assert_flags(s, device) if p.notes else new_tensor(device, numbers(p.arrangement.source), p.dtype) for p in more]
  tensors = [*inputs, *made]
  run_launch(s.launcher(device), tensors, [t.lazydata for t in tensors])
  for (_, back), t in zip(given, tensors):
    if back is not None: back(t.numpy())
  plain = not any(isinstance(a, Tensor) for a in arrays)
  out = tuple(t.numpy() if plain else t for p, t in zip(more, made) if not p.notes)
  return out if isinstance(got, tuple) else out[0]
