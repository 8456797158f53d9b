"""What an arrangement does, as arrays of numbers: no kernel, no device."""
from __future__ import annotations

import inspect
import math
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from ntgrad.codegen.index.sizes import numbers
from ntgrad.codegen.ir.errors import ArgumentError
from ntgrad.graph.checks import checked

from .tensor import Tensor, check_takes, named

_Numbers = np.ndarray[Any, np.dtype[np.int64]]


def arranged(arrangement: Callable[..., Any], tensors: Sequence[Tensor], subs: Mapping[Any, Any]) -> tuple[Tensor, ...]:
  """The tensors as ``arrangement`` gives them back, named after its parameters where it has as many."""
  given = tuple(t.subs(subs) for t in tensors)
  try: parameters = inspect.signature(arrangement).parameters.values()
  except (TypeError, ValueError): parameters = {}.values()
  names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:len(given)]
  if len(names) == len(given):   # dimensions may be meant by the names that they have now
    given = tuple(t.subs({k: v for k, v in subs.items() if isinstance(k, str)}) for t in named(given, names))
  check_takes("arrangement", arrangement, len(given))
  out = arrangement(*given)
  out = (out,) if isinstance(out, Tensor) else tuple(out) if isinstance(out, (tuple, list)) else ()
  if len(out) != len(given) or not all(isinstance(t, Tensor) for t in out):
    raise ArgumentError("an arrangement gives one arranged tensor for each of its tensors; "
                        f"this one gives {len(out)} arranged tensors for {len(given)}")
  return out


@checked
def simulate_arrangement(arrangement: Callable[..., Any], tensors: Sequence[Tensor],
                         subs: Mapping[Any, Any] | None = None) -> tuple[tuple[_Numbers, ...], tuple[_Numbers, ...]]:
  """The elements of each source, numbered row by row, and the same numbers as the programs see them.

  ``subs`` has values for Symbols, as ``Tensor.eval`` takes them. Two tuples of int64 arrays, one a tensor: the first with the
  shapes of the sources; the second with the programs (the outermost level, flattened) first, then the dimensions of the other
  levels, -1 where an element lies outside. Raises ArgumentError for Symbols without a value.
  """
  sources, targets = [], []
  for t in arranged(arrangement, tensors, subs or {}):
    whole = t.concrete(subs)
    shape = numbers(whole.source)
    sources.append(np.arange(math.prod(shape), dtype=np.int64).reshape(shape))
    picture = whole.elements()
    inner = picture.shape[len(whole.shape):]
    targets.append(picture.reshape((-1, *inner) if whole.shape else inner))
  return tuple(sources), tuple(targets)
