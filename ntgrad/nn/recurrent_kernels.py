"""Kernels of recurrent layers in the tile language: a program goes through all steps of some sequences in one direction.

``before`` (directions, steps, n, gates, hidden) is what the input gives to the gates, ``out`` (steps, n, directions, state) what
a layer gives. What the way back needs of each step is ``kept`` (directions, steps, n, parts, hidden): the values of the gates,
then of a GRU what the state gives to the third, of an LSTM the cell, its tanh and, with a projection, what is projected. Weights
have along memory what they give. A sequence that has ended (``lengths``) stays in its last state.
"""
from __future__ import annotations

import functools
from typing import Any

from ntgrad import tile
from ntgrad.codegen.ir import DType, Target
from ntgrad.tile import Tensor, language as tl
from ntgrad.tile.function import Function

GATES = {"tanh": 1, "relu": 1, "LSTM": 4, "GRU": 3}
ROWS = 16, 4, 1   # sequences that a program may have
_LAUNCHES = 2     # of a step that is no part of a kernel: the product of the state with its weights, and the gates
_TRIPS = 4        # to memory and back in a step, beside one for each gate, where threads of a program exchange values
_AT_ONCE = 4      # rows that a core's registers have room for: weights come that often, of those that its cache has no room for
# on a chip with blocks (H200): how many times longer a product of a few rows takes without matrix units, and into how many parts
# the registers of a core are cut, one of which has room for the weights of a gate
_WITHOUT_UNITS, _PARTS = 2, 8


def rows_of_programs(target: Target, directions: int, steps: int, n: int, gates: int, hidden: int, state: int,
                     dtype: DType) -> int:
  """How many sequences a program has. 0: steps that are kernels of their own, each on all cores, take less time."""
  rates, cores, weights = target.rates, max(target.cores, 1), gates * hidden * state
  by_vector, by_unit = rates.vector.get(dtype.name, rates.vector["float32"]), rates.matrix.get(dtype.name, 0)
  loads = dtype.itemsize * cores / rates.cache   # of a weight, by a core
  def least(sequences: int, operations: float) -> float:   # seconds of a core, to load all weights too
    return weights * max(2 * sequences * cores / operations, loads)
  def step(rows: int) -> float:   # seconds of a step of programs with so many rows
    waves = -(-(-(-n // rows) * directions) // cores)
    if not target.blocks:
      again = weights * loads * -(-rows // _AT_ONCE) if weights * dtype.itemsize > target.core_cache else 0.0
      return waves * (least(rows, by_vector) + again)
    product = least(rows, by_unit) if by_unit else least(rows, by_vector) * _WITHOUT_UNITS
    return waves * product + (_TRIPS + gates) * target.latency
  if target.blocks and hidden * state * dtype.itemsize * _PARTS > target.register_file * 4: return 0   # they are one block
  found = ROWS[0]   # a block of a product on a GPU has that many at least
  for rows in ROWS[1:]:
    if not target.blocks and step(rows) <= step(found) / 2: found = rows   # each number of rows is one more kernel
  launch = target.launch + target.blocks * (target.start + 2 * target.latency)   # until what it loads has come, and is stored
  apart = directions * (_LAUNCHES * launch + least(n, max(by_vector, by_unit)) / cores)
  # before the first step the weights are turned, and states are filled
  return found if _LAUNCHES * target.launch + steps * step(found) < steps * apart else 0


# ---- kernels (mypy does not know the language's blocks)
def _arrangement(directions: int) -> Any:
  size = tile.Symbol("ROWS", constexpr=True)

  def of_steps(p: Any) -> Any:
    """(directions, steps, n, parts, size) or (steps, n, directions, size) -> for each program (steps, ..) of (rows, size)."""
    inner = p.ndim - 4
    if inner: p = p.permute((1, 2, 0, 3, 4))
    p = p.tile((1, size, 1, *(1,) * inner, -1)).squeeze(3 + inner).permute((1, 2, 0, *range(3, 3 + inner)))
    p = p.tile((1, 1, *(-1,) * (1 + inner))).squeeze(tuple(range(2, 3 + inner)))
    p.dtype = p.dtype.squeeze((0, 1))
    p.dtype.dtype = p.dtype.dtype.squeeze((0, *range(2, 3 + inner)))
    return p

  def of_sequences(p: Any) -> Any:
    """(directions, n, size) -> (rows, size), or (n,) -> (rows,)."""
    if p.ndim == 1: return p.tile((size,)).unsqueeze(1).expand((-1, directions))
    p = p.tile((1, size, -1)).squeeze(2).permute((1, 0))
    p.dtype = p.dtype.squeeze(0)
    return p

  def of_weights(p: Any, programs: Any) -> Any:
    """(directions, gates, m, n) -> (gates,) of (m, n); (directions, m, n) -> (m, n)."""
    inner = p.ndim - 3
    p = p.tile((1, *(1,) * inner, -1, -1)).squeeze((1 + inner, 2 + inner))
    p.dtype = p.dtype.squeeze(tuple(range(1 + inner)))
    if inner:
      p = p.tile((1, -1)).squeeze(1)
      p.dtype = p.dtype.squeeze(0)
    return p.unsqueeze(0).expand((programs, -1))

  def arrangement(*parameters: Any) -> Any:
    programs = next(of_sequences(p).shape[0] for p in parameters if p.name in ("h0", "grad_h0"))
    return tuple(p if p.constexpr else of_weights(p, programs) if p.name in ("weight", "bias", "narrow") else
                 of_steps(p) if p.ndim > 3 else of_sequences(p) for p in parameters)
  return arrangement


# the place of step k of the direction of a program: the second one begins with the last
def _place(k: Any, steps: Any, directions: int) -> Any:
  return k if directions == 1 else k + tl.program_id(1) * (steps - 1 - 2 * k)

# a new value, of sequences that have not ended; without lengths none has
def _held(live: Any, new: Any, old: Any) -> Any: return new if live is None else tl.where(live, new, old)


def _forward(kind: str, directions: int, some: bool, projected: bool) -> Any:
  def forward(before: Any, weight: Any, bias: Any, narrow: Any, h0: Any, c0: Any, lengths: Any, kept: Any, out: Any,
              last: Any) -> None:
    h, c = h0, c0
    for k in range(out.shape[0]):
      t = _place(k, out.shape[0], directions)
      live = t < lengths[:, None] if some else None
      if kind == "LSTM":
        kept[t, 0] = tl.sigmoid(before[t, 0] + tl.dot(h, weight[0]))
        kept[t, 1] = tl.sigmoid(before[t, 1] + tl.dot(h, weight[1]))
        kept[t, 2] = tl.tanh(before[t, 2] + tl.dot(h, weight[2]))
        kept[t, 3] = tl.sigmoid(before[t, 3] + tl.dot(h, weight[3]))
        kept[t, 4] = _held(live, kept[t, 1] * c + kept[t, 0] * kept[t, 2], c)
        kept[t, 5] = tl.tanh(kept[t, 4])
        if projected: kept[t, 6] = kept[t, 3] * kept[t, 5]
        out[t] = _held(live, tl.dot(kept[t, 6], narrow) if projected else kept[t, 3] * kept[t, 5], h)
        c = kept[t, 4]
      elif kind == "GRU":
        kept[t, 0] = tl.sigmoid(before[t, 0] + bias[0] + tl.dot(h, weight[0]))
        kept[t, 1] = tl.sigmoid(before[t, 1] + bias[1] + tl.dot(h, weight[1]))
        kept[t, 3] = bias[2] + tl.dot(h, weight[2])
        kept[t, 2] = tl.tanh(before[t, 2] + kept[t, 0] * kept[t, 3])
        out[t] = _held(live, kept[t, 2] + kept[t, 1] * (h - kept[t, 2]), h)
      else:
        y = before[t, 0] + tl.dot(h, weight[0])
        out[t] = _held(live, tl.tanh(y) if kind == "tanh" else tl.maximum(y, 0.0), h)
      h = out[t]
    if kind == "LSTM": last = c   # noqa: F841
  return forward


def _backward(kind: str, directions: int, some: bool, projected: bool) -> Any:
  """``into``: the gradients of ``before``; ``apart``: of a GRU of what the state gives to the gates, with a projection those of
  the output, of all steps from its own on."""
  def backward(weight: Any, narrow: Any, h0: Any, c0: Any, lengths: Any, kept: Any, out: Any, grad_out: Any, grad_last: Any,
               into: Any, apart: Any, grad_h0: Any, grad_c0: Any) -> None:
    steps = out.shape[0]
    wide = tl.float64 if h0.dtype == tl.float64 else tl.float32
    dh, dc = tl.zeros(h0.shape, wide), tl.cast(grad_last, wide) if kind == "LSTM" else None
    for back in range(steps):
      k = steps - 1 - back
      t, earlier = _place(k, steps, directions), _place(max(k - 1, 0), steps, directions)
      live = t < lengths[:, None] if some else None
      above = dh + grad_out[t]
      if kind == "LSTM":
        if projected:
          apart[t, 0] = _held(live, above, 0.0)
          into[t, 0] = tl.dot(apart[t, 0], narrow)
        g = into[t, 0] if projected else above
        o, y = kept[t, 3], kept[t, 5]
        into[t, 3] = _held(live, g * y * o * (1.0 - o), 0.0)
        dc = dc + _held(live, g * o * (1.0 - y * y), 0.0)
        into[t, 2] = _held(live, dc * kept[t, 0] * (1.0 - kept[t, 2] * kept[t, 2]), 0.0)
        into[t, 1] = _held(live, dc * tl.where(k == 0, c0, kept[earlier, 4]) * kept[t, 1] * (1.0 - kept[t, 1]), 0.0)
        into[t, 0] = _held(live, dc * kept[t, 2] * kept[t, 0] * (1.0 - kept[t, 0]), 0.0)
        dc = _held(live, dc * kept[t, 1], dc)
        new = tl.dot(into[t, 0], weight[0]) + tl.dot(into[t, 1], weight[1])
        new = new + tl.dot(into[t, 2], weight[2]) + tl.dot(into[t, 3], weight[3])
      elif kind == "GRU":
        r, z, n = kept[t, 0], kept[t, 1], kept[t, 2]
        into[t, 1] = _held(live, above * (tl.where(k == 0, h0, out[earlier]) - n) * z * (1.0 - z), 0.0)
        into[t, 2] = _held(live, above * (1.0 - z) * (1.0 - n * n), 0.0)
        into[t, 0] = into[t, 2] * kept[t, 3] * r * (1.0 - r)
        apart[t, 0], apart[t, 1], apart[t, 2] = into[t, 0], into[t, 1], into[t, 2] * r
        new = above * z + tl.dot(apart[t, 0], weight[0]) + tl.dot(apart[t, 1], weight[1]) + tl.dot(apart[t, 2], weight[2])
      else:
        into[t, 0] = _held(live, above * (1.0 - out[t] * out[t]) if kind == "tanh" else tl.where(out[t] > 0.0, above, 0.0), 0.0)
        new = tl.dot(into[t, 0], weight[0])
      dh = _held(live, new, above)
    grad_h0 = dh   # noqa: F841
    if kind == "LSTM": grad_c0 = dc   # noqa: F841
  return backward


@functools.lru_cache(64)
def made(kind: str, directions: int, hidden: int, state: int, some: bool) -> tuple[Function, Function]:
  """The kernels of a layer, forward and backward; ``some``: sequences have lengths of their own."""
  gates, cell, projected = GATES[kind], kind == "LSTM", state != hidden
  parts = {"LSTM": 6 + projected, "GRU": 4}.get(kind, 0)
  apart = (1, state) if projected else (3, hidden) if kind == "GRU" else ()
  d, n = directions, "n"
  shapes = {
    "before": (d, "steps", n, gates, hidden), "weight": (d, gates, state, hidden), "h0": (d, n, state),
    "bias": kind == "GRU" and (d, gates, 1, hidden), "narrow": projected and (d, hidden, state), "c0": cell and (d, n, hidden),
    "lengths": some and (n,), "kept": parts and (d, "steps", n, parts, hidden), "out": ("steps", n, d, state),
    "last": cell and (d, n, hidden)}
  back = shapes | {
    "weight": (d, gates, hidden, state), "narrow": projected and (d, state, hidden), "grad_out": shapes["out"],
    "grad_last": shapes["c0"], "grad_c0": shapes["c0"], "grad_h0": shapes["h0"], "into": shapes["before"],
    "apart": apart and (d, "steps", n, *apart)}
  def function(application: Any, name: str, shapes: dict[str, Any], *written: str) -> Function:
    names = application.__code__.co_varnames[:application.__code__.co_argcount]
    tensors = [Tensor(shape=shapes[p]) if shapes[p] else Tensor(0, constexpr=True, value=0) for p in names]
    given = [p for p in names if shapes[p] and p not in written]
    def like(output: str, *inputs: Any) -> Any:
      sizes = {s: a for x, p in zip(inputs, given) for s, a in zip(shapes[p], x.shape)}
      return tuple([sizes.get(s, s) for s in shapes[output]]), inputs[0].dtype
    kernel = tile.make(_arrangement(d), application, tensors, kernel_name=f"{name}_{kind.lower()}", num_warps=8)
    return tile.function(kernel, outputs={p: functools.partial(like, p) for p in written if shapes[p]})
  return (function(_forward(kind, d, some, projected), "steps", shapes, "kept", "out", "last"),
          function(_backward(kind, d, some, projected), "steps_back", back, "into", "apart", "grad_h0", "grad_c0"))
