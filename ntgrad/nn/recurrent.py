"""Recurrent layers, with PyTorch's names of weights, so that what it has saved can be loaded.

What all steps of a sequence take from the input is one product before the first step. A step is then two kernels: the product of
the state with its weights, and the gates.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from ntgrad.codegen.ir import ArgumentError, ShapeError, shown
from ntgrad.graph import one_width
from ntgrad.tensor import Tensor

from .common import count, last, leaf, probability, size
from .module import Module, placed

State = tuple[Tensor, ...]   # (h,), of an LSTM (h, c)


# ---- one step: what the input gives to the gates (biases included), the state, its weights, a GRU's bias -> the next state
def _plain(method: str) -> Callable[..., State]:
  return lambda x, state, weight, bias: (getattr(x + state[0].dot(weight), method)(),)


def _lstm(x: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
  h, c = state
  i, f, g, o = (x + h.dot(weight)).chunk(4, -1)
  c = f.sigmoid() * c + i.sigmoid() * g.tanh()
  return o.sigmoid() * c.tanh(), c


def _gru(x: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
  h, = state
  y = h.dot(weight)
  if bias is not None: y = y + bias
  (xr, xz, xn), (yr, yz, yn) = x.chunk(3, -1), y.chunk(3, -1)
  n = (xn + (xr + yr).sigmoid() * yn).tanh()
  return n + (xz + yz).sigmoid() * (h - n),


_STEPS: dict[str, Callable[..., State]] = {"tanh": _plain("tanh"), "relu": _plain("relu"), "LSTM": _lstm, "GRU": _gru}
_GATES = {"tanh": 1, "relu": 1, "LSTM": 4, "GRU": 3}


def _from_input(kind: str, x: Tensor, weight: Tensor, bias_ih: Tensor | None, bias_hh: Tensor | None) -> Tensor:
  """What the input gives to the gates. A GRU multiplies what the state gives to the third by another gate, bias included: there
  the state's bias is added later."""
  if bias_ih is not None and bias_hh is not None and kind != "GRU": bias_ih = bias_ih + bias_hh
  return x.linear(weight.transpose(0, 1), bias_ih)


class _Cell(Module):
  _said = "*input_size *hidden_size bias"
  _kind: ClassVar[str]

  def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
    name, gates = type(self).__name__, _GATES[self._kind]
    self.input_size, self.hidden_size = size(name, "input_size", input_size), size(name, "hidden_size", hidden_size)
    self.bias, bound = bias, 1 / math.sqrt(hidden_size)
    self.weight_ih, self.weight_hh = [leaf(gates * hidden_size, n, bound=bound) for n in (input_size, hidden_size)]
    self.bias_ih, self.bias_hh = [leaf(gates * hidden_size, bound=bound) if bias else None for _ in range(2)]

  def __call__(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
    """The state after one step, from ``hx`` (None: zeros). Raises ShapeError."""
    return self._step(input, (hx,))[0]

  def _step(self, x: Tensor, state: tuple[Tensor | None, ...]) -> State:
    name, h = type(self).__name__, self.hidden_size
    if x.ndim not in (1, 2): raise ShapeError(f"nn.{name}: input of shape {x.shape}, expected (n, {self.input_size})")
    last(name, x, self.input_size, "input_size")
    shape = *x.shape[:-1], h
    for s in state:
      if s is not None and s.shape != shape: raise ShapeError(f"nn.{name}: a state of shape {s.shape}, expected {shape}")
    one_width(f"nn.{name}", x, self.weight_ih, *state)
    given = tuple(Tensor.zeros(*shape, dtype=x.dtype, device=x.device) if s is None else s for s in state)
    return _STEPS[self._kind](_from_input(self._kind, x, self.weight_ih, self.bias_ih, self.bias_hh), given,
                              self.weight_hh.transpose(0, 1), self.bias_hh)


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

  def __call__(self, x: Tensor,  # type: ignore[override]
               hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """The state after one step, from ``hc`` (None: zeros). Raises ShapeError."""
    h, c = self._step(x, (None, None) if hc is None else hc)
    return h, c


class _Recurrent(Module):
  """Several layers over a sequence. The weights of layer k are ``weight_ih_lk``, ``weight_hh_lk``, ``bias_ih_lk``, ``bias_hh_lk``
  and, with proj_size, ``weight_hr_lk``; those of the other direction end in ``_reverse``."""
  _kind: ClassVar[str]
  _said = "*input_size *hidden_size num_layers bias batch_first dropout bidirectional"
  proj_size = 0

  def _make(self, input_size: int, hidden_size: int, num_layers: int, bias: bool, batch_first: bool, dropout: float,
            bidirectional: bool, proj_size: int = 0) -> None:
    name, gates = type(self).__name__, _GATES[self._kind]
    size(name, "input_size", input_size)
    size(name, "hidden_size", hidden_size)
    count(name, "num_layers", num_layers)
    probability(f"nn.{name}", "dropout", dropout)
    if not 0 <= proj_size < hidden_size:
      raise ArgumentError(f"nn.{name}: proj_size is {shown(proj_size)}, expected 0 (none) or less than {hidden_size}")
    self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
    self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
    if proj_size: self.proj_size = proj_size
    bound, out = 1 / math.sqrt(hidden_size), proj_size or hidden_size
    for k in range(num_layers):
      for end in self._ends():
        into = out * (1 + bidirectional) if k else input_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates * hidden_size, into), "weight_hh": (gates * hidden_size, out)}
        if bias: shapes |= {"bias_ih": (gates * hidden_size,), "bias_hh": (gates * hidden_size,)}
        if proj_size: shapes["weight_hr"] = proj_size, hidden_size
        for what, shape in shapes.items(): setattr(self, f"{what}_l{k}{end}", leaf(*shape, bound=bound))

  def _ends(self) -> tuple[str, ...]: return ("", "_reverse") if self.bidirectional else ("",)
  def flatten_parameters(self) -> None:
    """Does nothing: weights may lie anywhere. For programs written for PyTorch."""

  def __call__(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The outputs, and the last states, from the states ``hx`` (None: zeros). Raises ShapeError."""
    out, (h,) = self._run(input, None if hx is None else (hx,))
    return out, h

  def _run(self, x: Tensor, given: tuple[Tensor, ...] | None) -> tuple[Tensor, State]:
    """The outputs of the last layer, and the last states of all."""
    name = type(self).__name__
    if x.ndim not in (2, 3):
      raise ShapeError(f"nn.{name}: input of shape {x.shape}, expected ({'n, steps' if self.batch_first else 'steps, n'}, "
                       f"{self.input_size}) or (steps, {self.input_size})")
    last(name, x, self.input_size, "input_size")
    one = x.ndim == 2
    x = x.named()
    if one: x = x.unsqueeze(1)
    elif self.batch_first: x = x.transpose(0, 1)
    if not x.shape[0]: raise ShapeError(f"nn.{name}: input of shape {x.shape} has no steps, expected at least one")
    one_width(f"nn.{name}", x, vars(self)["weight_ih_l0"], *(given or ()))
    states = self._states(name, x, given, one)
    ends = list[State]()
    for k in range(self.num_layers):
      if k and self.dropout: x = x.dropout(self.dropout, self._trains("nothing is dropped between layers"))
      outputs = []
      for end in self._ends():
        out, state = self._direction(x, f"_l{k}{end}", states[len(ends)], bool(end))
        outputs.append(out)
        ends.append(state)
      x = outputs[0] if len(outputs) == 1 else outputs[0].cat(outputs[1], dim=-1)
    final = tuple(s[0].stack(*s[1:], dim=0) for s in zip(*ends))
    if one: return x.squeeze(1), tuple(s.squeeze(1) for s in final)
    return x.transpose(0, 1) if self.batch_first else x, final

  def _states(self, name: str, x: Tensor, given: tuple[Tensor, ...] | None, one: bool) -> list[State]:
    """The state that each layer and direction begins with."""
    n = self.num_layers * len(self._ends())
    shapes = [(n, x.shape[1], self.proj_size or self.hidden_size), (n, x.shape[1], self.hidden_size)]
    if given is None:
      return [tuple(x.new_zeros(*s[1:]) for s in shapes[:1 + (self._kind == "LSTM")])] * n
    for t, s in zip(given, shapes):
      want = (s[0], s[2]) if one else s
      if t.shape != want: raise ShapeError(f"nn.{name}: a state of shape {t.shape}, expected {want}")
    return list(zip(*[(t.unsqueeze(1) if one else t).named() for t in given]))

  def _direction(self, x: Tensor, end: str, state: State, backwards: bool) -> tuple[Tensor, State]:
    """One layer in one direction: the output at each step, and the last state."""
    kind, step = self._kind, _STEPS[self._kind]
    bias_ih, bias_hh = [getattr(self, f"bias_{b}{end}", None) for b in ("ih", "hh")]
    before = _from_input(kind, x, getattr(self, f"weight_ih{end}"), bias_ih, bias_hh)
    weight = getattr(self, f"weight_hh{end}").transpose(0, 1)
    narrow = getattr(self, f"weight_hr{end}").transpose(0, 1) if self.proj_size else None
    outputs = []
    for t in reversed(range(x.shape[0])) if backwards else range(x.shape[0]):
      state = step(before[t], state, weight, bias_hh)
      if narrow is not None: state = state[0].dot(narrow), *state[1:]
      outputs.append(state[0])
    if backwards: outputs.reverse()
    return outputs[0].stack(*outputs[1:], dim=0), state


@placed
class RNN(_Recurrent):
  """``h_t = tanh(x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh)`` (or relu) over a sequence, in num_layers layers.

  ``(steps, n, input_size) -> (steps, n, hidden_size)`` (with ``batch_first`` n comes first; without n one sequence), and the last
  state of each layer (num_layers, n, hidden_size). ``dropout`` is of what each layer but the last gives, in training.
  ``bidirectional`` has each layer read the sequence in both directions, with weights of their own: twice as many outputs and
  states, forward first.
  """
  _said = f"{_Recurrent._said} nonlinearity"

  def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
               batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False):
    self.nonlinearity = self._kind = _nonlinearity("RNN", nonlinearity)   # type: ignore[misc]
    self._make(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)


@placed
class GRU(_Recurrent):
  """Gated recurrent units (https://arxiv.org/abs/1406.1078) over a sequence, in num_layers layers; gates in the order reset,
  update, new. Shapes and arguments are those of :class:`RNN`."""
  _kind = "GRU"

  def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
               dropout: float = 0.0, bidirectional: bool = False):
    self._make(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)


@placed
class LSTM(_Recurrent):
  """Long short-term memory (https://doi.org/10.1162/neco.1997.9.8.1735) over a sequence, in num_layers layers; gates in the order
  input, forget, cell, output. Shapes and arguments are those of :class:`RNN`; a state is a pair (h, c). With ``proj_size`` h is
  multiplied by (proj_size, hidden_size) weights, and has that size (https://arxiv.org/abs/1402.1128)."""
  _kind = "LSTM"
  _said = f"{_Recurrent._said} proj_size"

  def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
               dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0):
    self._make(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size)

  def __call__(self, input: Tensor,  # type: ignore[override]
               hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The outputs, and the last states (h, c), from the states ``hx`` (None: zeros). Raises ShapeError."""
    out, (h, c) = self._run(input, hx)
    return out, (h, c)


def _nonlinearity(name: str, x: str) -> str:
  if x not in ("tanh", "relu"): raise ArgumentError(f"nn.{name}: nonlinearity {shown(x)}; it takes 'tanh' or 'relu'")
  return x
