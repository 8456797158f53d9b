"""Recurrent layers, with PyTorch's names of weights, so that what it has saved can be loaded.

What all steps take from the input is one product before the first. All steps of a layer, in both directions, are then one kernel
(``recurrent_kernels.py``), and so is the way back, after which the gradients of weights are products over all steps. Where it
takes less time a step is two kernels: the product of the state with its weights, and the gates.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ntgrad.codegen.ir import ArgumentError, ShapeError, shown
from ntgrad.engine.device import get_device
from ntgrad.graph import no_grad, one_width
from ntgrad.tensor import Tensor
from ntgrad.tensor.custom import ruled
from ntgrad.tensor.gradient import gradients, walk as beneath

from . import recurrent_kernels as kernels
from .common import count, last, leaf, probability, size
from .module import Module, placed
from .utils.rnn import PackedSequence, pad_packed_sequence

State = tuple[Tensor, ...]   # (h,), of an LSTM (h, c)


# ---- one step: what the input gives to the gates, the state, its weights, a GRU's bias -> the next state. Biases are in what the
# input gives; a GRU multiplies what the state gives to the third gate, bias included, by another one: it adds the state's later
def _plain(method: str) -> Callable[..., State]:
  return lambda x, state, weight, bias: (getattr(x + state[0].dot(weight), method)(),)


def _lstm(x: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
  h, c = state
  i, f, g, o = (x + h.dot(weight)).chunk(4, -1)
  c = f.sigmoid() * c + i.sigmoid() * g.tanh()
  return o.sigmoid() * c.tanh(), c


def _gru(x: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
  h, = state
  y = h.dot(weight) if bias is None else h.dot(weight) + bias
  (xr, xz, xn), (yr, yz, yn) = x.chunk(3, -1), y.chunk(3, -1)
  n = (xn + (xr + yr).sigmoid() * yn).tanh()
  return n + (xz + yz).sigmoid() * (h - n),


_STEPS: dict[str, Callable[..., State]] = {"tanh": _plain("tanh"), "relu": _plain("relu"), "LSTM": _lstm, "GRU": _gru}


# ---- all steps of a layer
class _Inputs(NamedTuple):
  """What all steps of a layer take, in its directions; of what there is none, an empty sequence."""
  before: Sequence[Any]        # what the input gives to the gates: (directions, steps, n, gates * hidden)
  states: Sequence[Any]        # to begin with, (directions, n, size) each
  weights: Sequence[Any]       # of each direction (gates * hidden, size),
  biases: Sequence[Any] = ()   # of a GRU (gates * hidden,)
  narrow: Sequence[Any] = ()   # and with a projection (size, hidden)
  lengths: Sequence[Any] = ()  # of the sequences (n,), int32: then they stay in their state

  @property
  def all(self) -> list[Any]: return [x for xs in self for x in xs]
  def others(self, xs: Sequence[Any]) -> _Inputs:
    left = iter(xs)   # in place of ``all``
    return _Inputs(*[[next(left) for _ in mine] for mine in self])


def _unrolled(kind: str, x: _Inputs) -> list[Any]:
  """The outputs (steps, n, directions, size), and of an LSTM the last cells (directions, n, hidden): each step by itself."""
  outputs, ends = list[Any](), list[State]()
  for d, weight in enumerate(x.weights):
    state, out = tuple([s[d] for s in x.states]), list[Any]()
    for t in range(x.before[0].shape[1])[::-1 if d else 1]:
      new = _STEPS[kind](x.before[0][d, t], state, weight.transpose(0, 1), x.biases[d] if x.biases else None)
      if x.narrow: new = new[0].dot(x.narrow[d].transpose(0, 1)), *new[1:]
      state = tuple([(x.lengths[0] > t).unsqueeze(1).where(a, b) for a, b in zip(new, state)]) if x.lengths else new
      out.append(state[0])
    outputs.append(Tensor.stack(out[::-1 if d else 1]))
    ends.append(state)
  return [Tensor.stack(outputs, dim=2), *map(Tensor.stack, list(zip(*ends))[1:])]


def _slopes(ys: Sequence[Any], grads: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
  """The gradients at ``xs`` from those at ``ys``, which can be differentiated again; None for none."""
  above = {y.lazydata: g.lazydata for y, g in zip(ys, grads) if y is not None and g is not None}
  found = gradients(beneath(*above), above, [x.lazydata for x in xs])
  return [Tensor._from_node(found[x.lazydata]) if x.lazydata in found else None for x in xs]


def _stacked(xs: Sequence[Any], *shape: int, turned: bool = False) -> list[Any]:
  """Weights of all directions in one, (directions, *shape), the last two dimensions ``turned``; nothing of none."""
  return [Tensor.stack([x.reshape(*shape).transpose(-1, -2) if turned else x.reshape(*shape) for x in xs])] if xs else []


def _by_kernels(kind: str, x: _Inputs, rows: int, zeros: bool) -> list[Any]:
  """``_unrolled`` by kernels, whose programs have so many ``rows``; ``zeros`` are the states to begin with."""
  (directions, steps, n, wide), gates = x.before[0].shape, kernels.GATES[kind]
  hidden, state = wide // gates, x.weights[0].shape[1]
  forward, backward = kernels.made(kind, directions, hidden, state, bool(x.lengths))
  lstm, form = kind == "LSTM", x.others(range(len(x.all)))   # without what it holds

  def gradient(above: Sequence[Any], given: _Inputs, outs: Sequence[Any]) -> list[Any]:
    out, kept, weights, narrow, biases = outs[0], outs[1 + lstm:], list[Any](), list[Any](), list[Any]()
    into, *found = backward(*_stacked(given.weights, gates, hidden, state), *_stacked(given.narrow, state, hidden), *given.states,
                            *given.lengths, *kept, out, *above, ROWS=rows)
    first, apart = found[len(found) - 1 - lstm:], found[0]   # what is apart, if there is
    for d in range(directions):
      g, h = (apart if kind == "GRU" else into)[d].reshape(steps, n, wide), out[:, :, d]
      later, earlier, start = (g[:-1], h[1:], g[-1]) if d else (g[1:], h[:-1], g[0])
      weight = later.reshape(-1, wide).transpose(0, 1).dot(earlier.reshape(-1, state))
      weights.append(weight if zeros else weight + start.transpose(0, 1).dot(given.states[0][d]))
      if given.biases: biases.append(g.sum((0, 1)))
      if given.narrow:
        narrow.append(apart[d, :, :, 0].reshape(-1, state).transpose(0, 1).dot(kept[0][d, :, :, 6].reshape(-1, hidden)))
    return [into.reshape(directions, steps, n, wide), *first, *weights, *biases, *narrow]

  def rule(grads: Sequence[Any], xs: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    above = [x.new_zeros(*x.shape) if g is None else g for x, g in zip(outs, grads[:1 + lstm])]
    with no_grad():
      found = gradient([t.detach() for t in above], form.others([t.detach() for t in xs]), [t.detach() for t in outs])
    return ruled(found, [*above, *xs], again)

  def again(grads: Sequence[Any], xs: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """The gradients of gradients: those of the steps by themselves, in which nothing is made of another of the ``xs``."""
    leaves = [ruled([x.detach()], [x], lambda gs, *_: gs)[0] for x in xs]
    above, given = leaves[:1 + lstm], form.others(leaves[1 + lstm:])
    return _slopes(_slopes(_unrolled(kind, given), above, given.all), grads, leaves)

  plain = x.others([t.detach() for t in x.all])
  biases = _stacked(plain.biases, gates, 1, hidden)
  if kind == "GRU" and not biases: biases = [plain.before[0].new_zeros(directions, gates, 1, hidden)]
  made = forward(plain.before[0].reshape(directions, steps, n, gates, hidden),
                 *_stacked(plain.weights, gates, hidden, state, turned=True), *biases,
                 *_stacked(plain.narrow, state, hidden, turned=True), *plain.states, *plain.lengths, ROWS=rows)
  *kept, out = [made] if isinstance(made, Tensor) else made[:len(made) - lstm]
  return ruled([out, *(made[-1:] if lstm else ()), *kept], x.all, rule)[:1 + lstm]


def _steps(kind: str, x: _Inputs, zeros: bool) -> list[Any]:
  """What ``_unrolled`` gives, in the way that takes less time."""
  before, (wide, state), gates = x.before[0], x.weights[0].shape, kernels.GATES[kind]
  mixed = any([t.dtype is not before.dtype for t in x.all[:len(x.all) - len(x.lengths)]])
  (d, steps, n), target = before.shape[:3], get_device(before.device).renderer.target
  rows = 0 if mixed or 0 in before.shape else kernels.rows_of_programs(
    target, d, steps, n, gates, wide // gates, state, before.dtype)
  return _by_kernels(kind, x, rows, zeros) if rows else _unrolled(kind, x)


class _Cell(Module):
  _said = "*input_size *hidden_size bias"
  _kind: ClassVar[str]

  def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
    name, gates = type(self).__name__, kernels.GATES[self._kind]
    self.input_size, self.hidden_size = size(name, "input_size", input_size), size(name, "hidden_size", hidden_size)
    self.bias, bound = bias, 1 / math.sqrt(hidden_size)
    self.weight_ih, self.weight_hh = [leaf(gates * hidden_size, n, bound=bound) for n in (input_size, hidden_size)]
    self.bias_ih, self.bias_hh = [leaf(gates * hidden_size, bound=bound) if bias else None for _ in range(2)]

  def __call__(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
    """The state after one step, from ``hx`` (None: zeros). Raises ShapeError."""
    return self._step(input, (hx,))[0]

  def _step(self, x: Tensor, state: tuple[Tensor | None, ...]) -> State:
    name, bias = type(self).__name__, self.bias_ih
    if x.ndim not in (1, 2): raise ShapeError(f"nn.{name}: input of shape {x.shape}, expected (n, {self.input_size})")
    last(name, x, self.input_size, "input_size")
    shape = *x.shape[:-1], self.hidden_size
    for s in state:
      if s is not None and s.shape != shape: raise ShapeError(f"nn.{name}: a state of shape {s.shape}, expected {shape}")
    one_width(f"nn.{name}", x, self.weight_ih, *state)
    given = tuple(Tensor.zeros(*shape, dtype=x.dtype, device=x.device) if s is None else s for s in state)
    if bias is not None and self.bias_hh is not None and self._kind != "GRU": bias = bias + self.bias_hh
    return _STEPS[self._kind](x.linear(self.weight_ih.transpose(0, 1), bias), given, self.weight_hh.transpose(0, 1), self.bias_hh)


@placed
class RNNCell(_Cell):
  """``h' = tanh(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh)``, or relu: (n, input_size), (n, hidden_size) or None -> (n, hidden_size)."""
  _said = "*input_size *hidden_size bias nonlinearity"

  def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"):
    self.nonlinearity = self._kind = _nonlinearity("RNNCell", nonlinearity)   # type: ignore[misc]
    super().__init__(input_size, hidden_size, bias)


@placed
class GRUCell(_Cell):
  """A step of a gated recurrent unit (https://arxiv.org/abs/1406.1078), gates in the order reset, update, new:
  (n, input_size), (n, hidden_size) or None -> (n, hidden_size)."""
  _kind = "GRU"


@placed
class LSTMCell(_Cell):
  """A step of a long short-term memory (https://doi.org/10.1162/neco.1997.9.8.1735), gates in the order input, forget, cell,
  output: (n, input_size), (h, c) of (n, hidden_size) each or None -> (h', c')."""
  _kind = "LSTM"

  def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
    """The state after one step, from ``hc`` (None: zeros). Raises ShapeError."""
    return self._step(x, (None, None) if hc is None else hc)  # type: ignore[return-value]


class _Recurrent(Module):
  """Several layers over a sequence. The weights of layer k are ``weight_ih_lk``, ``weight_hh_lk``, ``bias_ih_lk``, ``bias_hh_lk``
  and, with proj_size, ``weight_hr_lk``; those of the other direction end in ``_reverse``."""
  _kind: ClassVar[str]
  _said = "*input_size *hidden_size num_layers bias batch_first dropout bidirectional"
  proj_size = 0

  def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
               dropout: float = 0.0, bidirectional: bool = False):
    name, proj_size = type(self).__name__, self.proj_size
    self.input_size, self.hidden_size = size(name, "input_size", input_size), size(name, "hidden_size", hidden_size)
    self.num_layers, self.bias, self.batch_first = count(name, "num_layers", num_layers), bias, batch_first
    self.dropout, self.bidirectional = probability(f"nn.{name}", "dropout", dropout), bidirectional
    if not 0 <= proj_size < hidden_size:
      raise ArgumentError(f"nn.{name}: proj_size is {shown(proj_size)}, expected 0 (none) or less than {hidden_size}")
    wide, out = kernels.GATES[self._kind] * hidden_size, proj_size or hidden_size
    for k in range(num_layers):
      for end in self._ends():
        shapes: dict[str, tuple[int, ...]] = {
          "weight_ih": (wide, out * (1 + bidirectional) if k else input_size), "weight_hh": (wide, out)}
        if bias: shapes |= {"bias_ih": (wide,), "bias_hh": (wide,)}
        if proj_size: shapes["weight_hr"] = proj_size, hidden_size
        for what, shape in shapes.items(): setattr(self, f"{what}_l{k}{end}", leaf(*shape, bound=1 / math.sqrt(hidden_size)))

  def _ends(self) -> tuple[str, ...]: return ("", "_reverse") if self.bidirectional else ("",)
  def flatten_parameters(self) -> None:
    """Does nothing: weights may lie anywhere. For programs written for PyTorch."""

  def __call__(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Any, Tensor]:
    """The outputs, packed as the input is, and the last states, from the states ``hx`` (None: zeros). Raises ShapeError."""
    out, (h,) = self._run(input, None if hx is None else (hx,))
    return out, h

  def _run(self, x: Any, given: tuple[Tensor, ...] | None) -> tuple[Any, State]:
    """The outputs of the last layer, and the last states of all; of packed sequences each one's at its own end."""
    name, packed, lengths = type(self).__name__, x if isinstance(x, PackedSequence) else None, list[Tensor]()
    if packed is not None:
      if packed.data.ndim != 2:
        raise ShapeError(f"nn.{name}: packed elements of shape {packed.data.shape}, expected (.., {self.input_size})")
      x, _ = pad_packed_sequence(packed, self.batch_first)
      lengths = [Tensor(packed._layout()[1].sum(0, np.int32), device=x.device)]
    if x.ndim not in (2, 3):
      raise ShapeError(f"nn.{name}: input of shape {x.shape}, expected ({'n, steps' if self.batch_first else 'steps, n'}, "
                       f"{self.input_size}) or (steps, {self.input_size})")
    last(name, x, self.input_size, "input_size")
    one, x = x.ndim == 2, x.named()
    if one or self.batch_first: x = x.unsqueeze(1) if one else x.transpose(0, 1)
    if not x.shape[0]: raise ShapeError(f"nn.{name}: input of shape {x.shape} has no steps, expected at least one")
    one_width(f"nn.{name}", x, vars(self)["weight_ih_l0"], *(given or ()))
    states, ends, d = self._states(name, x, given, one), list[Any](), len(self._ends())
    for k in range(self.num_layers):
      if k and self.dropout: x = x.dropout(self.dropout, self._trains("nothing is dropped between layers"))
      x, *end = self._layer(x, k, tuple([s[k * d:k * d + d] for s in states]) if given else states, given is None, lengths)
      ends.append(end)
    final = tuple(map(Tensor.cat, zip(*ends)))
    if one: return x.squeeze(1), tuple(s.squeeze(1) for s in final)
    if packed is not None: return packed._with(x), final
    return x.transpose(0, 1) if self.batch_first else x, final

  def _states(self, name: str, x: Tensor, given: tuple[Tensor, ...] | None, one: bool) -> State:
    """The states that all layers begin with, (layers * directions, n, size), or zeros that one begins with."""
    n = len(self._ends()) * (1 if given is None else self.num_layers)
    shapes = [(n, x.shape[1], self.proj_size or self.hidden_size), (n, x.shape[1], self.hidden_size)]
    if given is None: return tuple([x.new_zeros(*s) for s in shapes[:1 + (self._kind == "LSTM")]])
    for t, s in zip(given, shapes):
      want = (s[0], s[2]) if one else s
      if t.shape != want: raise ShapeError(f"nn.{name}: a state of shape {t.shape}, expected {want}")
    return tuple([(t.unsqueeze(1) if one else t).named() for t in given])

  def _layer(self, x: Tensor, k: int, states: State, zeros: bool, lengths: Sequence[Tensor]) -> list[Any]:
    """One layer: the outputs, and the last states of its directions, (directions, n, size) each."""
    def of(what: str) -> list[Any]: return [getattr(self, f"{what}_l{k}{end}") for end in self._ends()]
    gru, d = self._kind == "GRU", len(self._ends())
    before = x.unsqueeze(0).dot(Tensor.stack(of("weight_ih")).transpose(1, 2).unsqueeze(1))
    if self.bias:
      biases = of("bias_ih") if gru else [a + b for a, b in zip(of("bias_ih"), of("bias_hh"))]
      before = before + Tensor.stack(biases).reshape(d, 1, 1, -1)
    out, *cells = _steps(self._kind, _Inputs(
      [before], states, of("weight_hh"), of("bias_hh") if gru and self.bias else (),
      of("weight_hr") if self.proj_size else (), lengths), zeros)
    return [out.reshape(*out.shape[:2], -1), Tensor.stack([out[0 if i else -1, :, i] for i in range(d)]), *cells]


@placed
class RNN(_Recurrent):
  """``h_t = tanh(x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh)`` (or relu) over a sequence, in num_layers layers.

  ``(steps, n, input_size) -> (steps, n, hidden_size)`` (with ``batch_first`` n comes first; without n one sequence), and the last
  state of each layer (num_layers, n, hidden_size). A ``nn.utils.rnn.PackedSequence`` gives one too, and the states at the end of
  each sequence. ``dropout`` is of what each layer but the last gives, in training. ``bidirectional`` has each layer read the
  sequence in both directions, with weights of their own: twice as many outputs and states, forward first."""
  _said = f"{_Recurrent._said} nonlinearity"

  def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
               batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False):
    self.nonlinearity = self._kind = _nonlinearity("RNN", nonlinearity)   # type: ignore[misc]
    super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)


@placed
class GRU(_Recurrent):
  """Gated recurrent units (https://arxiv.org/abs/1406.1078) over a sequence, in num_layers layers; gates in the order reset,
  update, new. Shapes and arguments are those of :class:`RNN`."""
  _kind = "GRU"


@placed
class LSTM(_Recurrent):
  """Long short-term memory (https://doi.org/10.1162/neco.1997.9.8.1735) over a sequence, in num_layers layers; gates in the order
  input, forget, cell, output. Shapes and arguments are those of :class:`RNN`; a state is a pair (h, c). With ``proj_size`` h is
  multiplied by (proj_size, hidden_size) weights, and has that size (https://arxiv.org/abs/1402.1128)."""
  _kind = "LSTM"
  _said = f"{_Recurrent._said} proj_size"

  def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
               dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0):
    if proj_size: self.proj_size = proj_size
    super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)

  def __call__(self, input: Tensor | PackedSequence,  # type: ignore[override]
               hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
    """The outputs, packed as the input is, and the last states (h, c), from ``hx`` (None: zeros). Raises ShapeError."""
    return self._run(input, hx)  # type: ignore[return-value]


def _nonlinearity(name: str, x: str) -> str:
  if x not in ("tanh", "relu"): raise ArgumentError(f"nn.{name}: nonlinearity {shown(x)}; it takes 'tanh' or 'relu'")
  return x
