"""Kernels of connectionist temporal classification in the tile language: each program has one sample of a batch, and goes through
its steps.

A *state* is a place in the labels with blanks before, between and behind them, 2 * labels + 1 of them: a step stays in its
state or goes on to the next one, or from a label to the next label where these differ. Steps, samples and classes are any number;
states are a block, of a power of two.
"""
from __future__ import annotations

import functools
from typing import Any

from ntgrad import tile
from ntgrad.tile import Tensor, language as tl
from ntgrad.tile.function import Function

NEVER = -1e30   # the logarithm of no probability: finite, so that differences are numbers

# mypy does not know the language's blocks


def _arranged(*parameters: Any) -> Any:
  """All that belongs to a sample for each program: it is the middle one of three dimensions, or the first."""
  return tuple(p.tile((-1, 1, -1)).squeeze((0, 2)) if p.ndim == 3 else p if p.constexpr else p.tile((1, -1)).squeeze(1)
                for p in parameters)


def _either(a: Any, b: Any, c: Any) -> Any:
  """log(exp(a) + exp(b) + exp(c))."""
  top = tl.maximum(tl.maximum(a, b), tl.maximum(c, NEVER))
  return top + tl.log(tl.exp(a - top) + tl.exp(b - top) + tl.exp(c - top))


def _sizes(sizes: Any) -> Any:
  """The steps of a sample, and how many states it has."""
  at = tl.arange(0, 2)
  return tl.sum(tl.where(at == 0, sizes[0], 0)), 2 * tl.sum(tl.where(at == 1, sizes[0], 0)) + 1


def _forward(x: Any, labels: Any, sizes: Any, blank: Any, said: Any, alpha: Any, total: Any) -> None:
  """``said``: the class of each state. ``alpha[t]``: the log likelihood of all ways to be in a state after step t. ``total``: of
  those that say all labels."""
  n, states = tl.program_id(0), said.shape[1]
  at = tl.arange(0, states)
  steps, end = _sizes(sizes)
  name = tl.load(labels.source[n, at // 2], mask=(at % 2 == 1) & (at < end), other=blank)
  jump = (at >= 2) & (name != blank) & (name != tl.gather(name, tl.maximum(at - 2, 0), 0))
  a = tl.where(at == 0, tl.zeros((states,), x.dtype), NEVER)
  for t in range(x.source.shape[0]):
    one = tl.where(at >= 1, tl.gather(a, tl.maximum(at - 1, 0), 0), NEVER)
    two = tl.where(jump, tl.gather(a, tl.maximum(at - 2, 0), 0), NEVER)
    new = _either(a, one, two) + tl.load(x.source[t, n, name])
    a = tl.where(t < steps, tl.where(at < end, new, NEVER), a)
    tl.store(alpha.source[t, n, at], a)
  last = tl.where((at < end) & (at >= end - 2), a, NEVER)
  top = tl.maximum(tl.max(last), NEVER)
  said = name[None]  # noqa: F841
  total = tl.full((1, 1), 0.0, total.dtype) + top + tl.log(tl.sum(tl.exp(last - top)))  # noqa: F841


def _backward(x: Any, sizes: Any, blank: Any, said: Any, alpha: Any, total: Any, share: Any) -> None:
  """``share[t]``: the part of the ways to say all labels that is in a state after step t."""
  n, states = tl.program_id(0), said.shape[1]
  at = tl.arange(0, states)
  steps, end = _sizes(sizes)
  name, all_ways = said[0], tl.sum(total[0])
  after = tl.gather(name, tl.minimum(at + 2, states - 1), 0)
  jump = (at < states - 2) & (after != blank) & (after != name)
  ends = tl.where((at < end) & (at >= end - 2), tl.zeros((states,), x.dtype), NEVER)
  later = ends
  for i in range(x.source.shape[0]):
    t = x.source.shape[0] - 1 - i
    one = tl.where(at < states - 1, tl.gather(later, tl.minimum(at + 1, states - 1), 0), NEVER)
    two = tl.where(jump, tl.gather(later, tl.minimum(at + 2, states - 1), 0), NEVER)
    rest = tl.where(t < steps - 1, _either(later, one, two), ends)
    part = tl.exp(tl.load(alpha.source[t, n, at]) + rest - all_ways)
    tl.store(share.source[t, n, at], tl.where((t < steps) & (all_ways > 0.5 * NEVER) & (at < end), part, 0.0))
    later = tl.where(at < end, rest + tl.load(x.source[t, n, name]), NEVER)


@functools.lru_cache(64)
def made(states: int) -> tuple[Function, Function]:
  """The kernels, forward and backward, for so many states."""
  x, sizes, said, total = ("steps", "samples", "classes"), ("samples", 2), ("samples", states), ("samples", 1)
  steps = "steps", "samples", states
  def kernel(application: Any, name: str, *shapes: Any) -> Any:
    tensors = [Tensor(0, constexpr=True) if s is None else Tensor(shape=s) for s in shapes]
    return tile.make(_arranged, application, tensors, kernel_name=name, num_warps=4 if states <= 512 else 8)
  def like(x: Any, *others: Any) -> Any: return (x.shape[0], x.shape[1], states), x.dtype
  forward = kernel(_forward, "ctc", x, ("samples", "labels"), sizes, None, said, steps, total)
  backward = kernel(_backward, "ctc_backward", x, sizes, None, said, steps, total, steps)
  return tile.function(forward, outputs={
    "said": lambda x, *others: ((x.shape[1], states), "int32"), "alpha": like,
    "total": lambda x, *others: ((x.shape[1], 1), x.dtype)}), tile.function(backward, outputs={"share": like})
