"""Values for parameters to begin with: each function writes a tensor in place, leaves that require gradients too, and gives it.

Values are drawn when they are needed, from ``Tensor.manual_seed``'s sequence or a ``generator``'s. ``fan_in`` of a weight
(out, in, *kernel) is how many inputs an output has, ``fan_out`` how many outputs an input has.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, ShapeError
from ntgrad.compat.public import show
from ntgrad.core import real_number
from ntgrad.graph import checked, no_grad, of_kind
from ntgrad.tensor import Tensor
from ntgrad.tensor.random import Generator


def _float(name: str, t: Tensor) -> Tensor:
  of_kind("f", f"nn.init.{name}", "a tensor", t, "it takes floats")
  return t


def _write(t: Tensor, value: Any) -> Tensor:
  with no_grad(): return t.assign(value)


def _drawn(how: str, t: Tensor, generator: Generator | None, **values: float) -> Any:
  return getattr(Tensor, how)(*t.shape, **values, generator=generator, dtype=t.dtype, device=t.device)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
  """Uniform in [a, b)."""
  return _write(tensor, _drawn("uniform", _float("uniform_", tensor), generator, low=a, high=b))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
  """Normal with a mean and a standard deviation."""
  return _write(tensor, _drawn("normal", _float("normal_", tensor), generator, mean=mean, std=std))


def constant_(tensor: Tensor, val: float | bool) -> Tensor:
  """One number everywhere."""
  return _write(tensor, tensor.new_full(tensor.shape, val))


def ones_(tensor: Tensor) -> Tensor:
  """1 everywhere."""
  return constant_(tensor, 1)


def zeros_(tensor: Tensor) -> Tensor:
  """0 everywhere."""
  return constant_(tensor, 0)


def eye_(tensor: Tensor) -> Tensor:
  """1 on the diagonal of a matrix, else 0. Raises ShapeError for other than two dimensions."""
  if tensor.ndim != 2: raise ShapeError(f"nn.init.eye_: a tensor of shape {tensor.shape}; it takes two dimensions")
  return _write(tensor, Tensor.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
  """The weight (out, in, *kernel) of a convolution that gives its input unchanged, in each group. Raises ShapeError."""
  if tensor.ndim not in (3, 4, 5):
    raise ShapeError(f"nn.init.dirac_: a tensor of shape {tensor.shape}; it takes 3, 4 or 5 dimensions")
  out, into = tensor.shape[:2]
  if groups < 1 or out % groups: raise ArgumentError(f"nn.init.dirac_: {out} channels cannot be divided into {groups} groups")
  a = np.zeros(tensor.shape, np.float32)
  centre = tuple(k // 2 for k in tensor.shape[2:])
  for g in range(groups):
    for d in range(min(out // groups, into)): a[(g * (out // groups) + d, d, *centre)] = 1
  return _write(tensor, Tensor(a, device=tensor.device).cast(tensor.dtype))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
  """By how much a function makes deviations smaller: what weights before it are multiplied with. ``param`` is the slope of
  leaky_relu (0.01). Raises ArgumentError for an unknown name."""
  known = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75, **dict.fromkeys(
    "linear sigmoid conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d".split(), 1.0)}
  if nonlinearity == "leaky_relu":
    return math.sqrt(2) / math.hypot(1, real_number("nn.init.calculate_gain", "param", 0.01 if param is None else param))
  if nonlinearity not in known:
    raise ArgumentError(f"nn.init.calculate_gain: {nonlinearity!r}; it takes leaky_relu, {', '.join(known)}")
  return known[nonlinearity]


def _fans(name: str, t: Tensor) -> tuple[int, int]:
  _float(name, t)
  if t.ndim < 2: raise ShapeError(f"nn.init.{name}: a tensor of shape {t.shape}; it takes at least two dimensions")
  kernel = math.prod(t.shape[2:])
  return t.shape[1] * kernel, t.shape[0] * kernel


def _xavier(name: str, t: Tensor, gain: float) -> float:
  return real_number(f"nn.init.{name}", "gain", gain) * math.sqrt(2 / max(sum(_fans(name, t)), 1))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
  """Uniform in ±gain·√(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010). Raises ShapeError."""
  bound = abs(math.sqrt(3) * _xavier("xavier_uniform_", tensor, gain))
  return _write(tensor, _drawn("uniform", tensor, generator, low=-bound, high=bound))


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
  """Normal with deviation gain·√(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010). Raises ShapeError."""
  return _write(tensor, _drawn("normal", tensor, generator, std=abs(_xavier("xavier_normal_", tensor, gain))))


def _kaiming(name: str, t: Tensor, a: float, mode: str, nonlinearity: str) -> float:
  if mode not in ("fan_in", "fan_out"): raise ArgumentError(f"nn.init.{name}: mode {mode!r}; it takes 'fan_in' or 'fan_out'")
  return calculate_gain(nonlinearity, a) / math.sqrt(max(_fans(name, t)[mode == "fan_out"], 1))


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                     generator: Generator | None = None) -> Tensor:
  """Uniform in ±gain·√(3 / fan) (https://arxiv.org/abs/1502.01852); ``a`` is the slope of leaky_relu. Raises ShapeError."""
  bound = math.sqrt(3) * _kaiming("kaiming_uniform_", tensor, a, mode, nonlinearity)
  return _write(tensor, _drawn("uniform", tensor, generator, low=-bound, high=bound))


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                    generator: Generator | None = None) -> Tensor:
  """Normal with deviation gain / √fan (https://arxiv.org/abs/1502.01852); ``a`` is the slope of leaky_relu. Raises ShapeError."""
  return _write(tensor, _drawn("normal", tensor, generator, std=_kaiming("kaiming_normal_", tensor, a, mode, nonlinearity)))


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
  """A matrix with orthogonal rows or columns (https://arxiv.org/abs/1312.6120), of more dimensions all but the first as one;
  found on the host. Raises ShapeError."""
  _fans("orthogonal_", tensor)
  rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
  if not rows * columns: return tensor
  q, r = np.linalg.qr(Tensor.randn(max(rows, columns), min(rows, columns), generator=generator, device=tensor.device)
                      .numpy().astype(np.float64))
  q = q * np.where(np.diagonal(r) < 0, -1, 1)
  a = (q if rows >= columns else q.T) * real_number("nn.init.orthogonal_", "gain", gain)
  return _write(tensor, Tensor(a.reshape(tensor.shape), device=tensor.device).cast(tensor.dtype))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                  generator: Generator | None = None) -> Tensor:
  """Normal with a mean and a standard deviation, of which only values in [a, b] are drawn. Raises ArgumentError."""
  name = "nn.init.trunc_normal_"
  _float("trunc_normal_", tensor)
  mean, std, a, b = [real_number(name, k, v) for k, v in (("mean", mean), ("std", std), ("a", a), ("b", b))]
  if std <= 0 or a > b: raise ArgumentError(f"{name}: std {std} from {a} to {b}; std is more than 0, and a not more than b")
  return _write(tensor, _drawn("trunc_normal", tensor, generator, mean=mean, std=std, a=a, b=b))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
  """Normal with a standard deviation, and in each column a part ``sparsity`` of the elements, chosen at random on the host,
  0 (Martens, 2010). Raises ShapeError for other than two dimensions."""
  _float("sparse_", tensor)
  if tensor.ndim != 2: raise ShapeError(f"nn.init.sparse_: a tensor of shape {tensor.shape}; it takes two dimensions")
  if not 0 <= real_number("nn.init.sparse_", "sparsity", sparsity) <= 1:
    raise ArgumentError(f"nn.init.sparse_: sparsity {sparsity}; it must be from 0 to 1")
  drawn = _drawn("normal", tensor, generator, std=std)
  place = Tensor.rand(*tensor.shape, generator=generator, device=tensor.device).numpy().argsort(0).argsort(0)
  return _write(tensor, Tensor(place >= math.ceil(sparsity * tensor.shape[0]), device=tensor.device).where(drawn, 0))


__all__ = ["calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
           "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_"]

globals().update({name: checked(globals()[name]) for name in __all__})

show(__name__)
