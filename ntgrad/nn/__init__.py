"""Layers; optimizers in ``nn.optim``, names of tensors and safetensors files in ``nn.state``, digits in ``nn.datasets``.

A layer is a plain object with Tensors for attributes and a ``__call__``; there is no Module to inherit from.
"""
from __future__ import annotations

import math
from typing import Any

from ntgrad.checks import Ints, checked
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.errors import ArgumentError, DTypeError, ShapeError, shown
from ntgrad.core import MAX_SIZE
from ntgrad.nn import optim as optim, state as state
from ntgrad.tensor import Tensor

__all__ = ["BatchNorm", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Embedding", "GroupNorm", "LayerNorm", "LayerNorm2d",
           "Linear", "RMSNorm", "datasets", "optim", "state"]


def __getattr__(name: str) -> Any:
  if name == "datasets":
    import importlib
    return importlib.import_module("ntgrad.nn.datasets")
  raise AttributeError(f"module 'ntgrad.nn' has no attribute {name!r}")


def _size(layer: str, what: str, n: Any) -> int:
  if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_SIZE:
    raise ArgumentError(f"nn.{layer}: {what} is {shown(n)}, expected a whole number from 1 to {MAX_SIZE}")
  return n


def _ints(layer: str, what: str, x: Ints, rank: int, least: int) -> tuple[int, ...]:
  out = (x,) * rank if isinstance(x, int) else tuple(x)
  if len(out) != rank or not all(least <= n <= MAX_SIZE for n in out):
    raise ArgumentError(
      f"nn.{layer}: {what} is {shown(x)}, expected a whole number from {least} to {MAX_SIZE}, or {rank} of them"
    )
  return out


def _last(layer: str, x: Tensor, want: int, what: str) -> None:
  if x.ndim == 0 or x.shape[-1] != want:
    raise ShapeError(f"nn.{layer}: input of shape {tuple(x.shape)}, expected (.., {want}): its last dimension is {what}")


def _untrained(value: Tensor) -> Tensor:
  """A value in memory of its own (equal constants are one node) that no optimizer trains."""
  return value.clone().requires_grad_(False)


@checked
class Linear:
  """``x @ weight.T + bias``: ``(.., in_features) -> (.., out_features)``.

  ``weight`` is (out_features, in_features), ``bias`` (out_features,) or None, both from U(-k, k) with k = 1/√in_features.
  """

  def __init__(self, in_features: int, out_features: int, bias: bool = True):
    self.in_features, self.out_features = (
      _size("Linear", "in_features", in_features),
      _size("Linear", "out_features", out_features),
    )
    bound = 1 / math.sqrt(in_features)
    self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound, requires_grad=True)
    self.bias: Tensor | None = Tensor.uniform(out_features, low=-bound, high=bound, requires_grad=True) if bias else None

  def __call__(self, x: Tensor) -> Tensor:
    """``(.., in_features) -> (.., out_features)``. Raises ShapeError for another last dimension."""
    _last("Linear", x, self.in_features, "in_features")
    return x.linear(self.weight.transpose(0, 1), self.bias)


@checked
class Conv2d:
  """2-d convolution (cross-correlation): ``(n, in_channels, h, w) -> (n, out_channels, h', w')``.

  ``weight`` is (out_channels, in_channels / groups, *kernel_size), ``bias`` (out_channels,) or None, both from U(-k, k) with
  k = 1/√(in_channels / groups · kernel elements). ``padding`` takes a number, one a dimension, or "same" (stride 1).
  """
  _rank = 2

  def __init__(self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints | str = 0,
               dilation: Ints = 1, groups: int = 1, bias: bool = True):
    name, rank = type(self).__name__, self._rank
    for what, n in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)): _size(name, what, n)
    if in_channels % groups or out_channels % groups:
      raise ArgumentError(f"nn.{name}: {in_channels} channels in and {out_channels} out cannot be divided into {groups} groups")
    self.kernel_size = _ints(name, "kernel_size", kernel_size, rank, 1)
    self.stride, self.dilation = _ints(name, "stride", stride, rank, 1), _ints(name, "dilation", dilation, rank, 1)
    self.in_channels, self.groups = in_channels, groups
    self.padding: tuple[int, ...]
    if isinstance(padding, str):
      if padding != "same" or self.stride != (1,) * rank:
        raise ArgumentError(f"nn.{name}: padding {padding!r} with stride {self.stride}; give numbers, or 'same' with stride 1")
      # (left, right, top, bottom), the last dimension first; an even kernel pads one more after than before
      total = [d * (k - 1) for d, k in zip(self.dilation[::-1], self.kernel_size[::-1])]
      self.padding = tuple(p for t in total for p in (t // 2, t - t // 2))
    else:
      self.padding = _ints(name, "padding", padding, rank, 0)
    bound = 1 / math.sqrt(in_channels // groups * math.prod(self.kernel_size))
    self.weight = Tensor.uniform(
      out_channels, in_channels // groups, *self.kernel_size, low=-bound, high=bound, requires_grad=True
    )
    self.bias: Tensor | None = Tensor.uniform(out_channels, low=-bound, high=bound, requires_grad=True) if bias else None

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, in_channels, *spatial) -> (n, out_channels, *spatial')``. Raises ShapeError for another rank or number of
    channels."""
    if x.ndim != self._rank + 2 or x.shape[1] != self.in_channels:
      spatial = ", ".join("hw"[:self._rank])
      raise ShapeError(f"nn.{type(self).__name__}: input of shape {tuple(x.shape)}, expected (n, {self.in_channels}, {spatial})")
    return x.conv2d(self.weight, self.bias, groups=self.groups, stride=self.stride, dilation=self.dilation, padding=self.padding)


@checked
class Conv1d(Conv2d):
  """1-d convolution: ``(n, in_channels, w) -> (n, out_channels, w')``. See :class:`Conv2d`."""
  _rank = 1


@checked
class BatchNorm:
  """Batch normalisation over every axis but the second (https://arxiv.org/abs/1502.03167): ``(n, sz, ..) -> (n, sz, ..)``.

  While ``Tensor.training``, by the batch's own mean and (biased) variance, and the running ones move towards it by ``momentum``
  (the variance unbiased, as in PyTorch); else by the running ones. ``affine`` adds ``weight`` and ``bias`` of shape (sz,).
  """

  def __init__(self, sz: int, eps: float = 1e-5, affine: bool = True, track_running_stats: bool = True, momentum: float = 0.1):
    self.sz, self.eps, self.track_running_stats, self.momentum = _size("BatchNorm", "sz", sz), eps, track_running_stats, momentum
    if not 0 <= momentum <= 1: raise ArgumentError(f"nn.BatchNorm: momentum is {momentum}, expected 0 to 1")
    self.weight: Tensor | None = Tensor.ones(sz, requires_grad=True) if affine else None
    self.bias: Tensor | None = Tensor.zeros(sz, requires_grad=True) if affine else None
    if track_running_stats:
      self.num_batches_tracked = _untrained(Tensor.zeros(dtype=dtypes.int64))
      self.running_mean, self.running_var = _untrained(Tensor.zeros(sz)), _untrained(Tensor.ones(sz))

  def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and biased variance, each (sz,), to normalise ``x`` by: the batch's own, or the running ones outside training."""
    if self.track_running_stats and not Tensor.training: return self.running_mean, self.running_var
    axes = tuple(i for i in range(x.ndim) if i != 1)
    mean = x.mean(axis=axes)
    # Σ(x - mean) is 0, so the variance has no gradient through the mean: no reduction needed to find that out
    centred = x - mean.detach().reshape(1, -1, *[1] * (x.ndim - 2))
    return mean, (centred * centred).mean(axis=axes)

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, sz, ..) -> (n, sz, ..)``. Raises ShapeError for another sz, in training ArgumentError for one value a channel."""
    if x.ndim < 2 or x.shape[1] != self.sz:
      raise ShapeError(f"nn.BatchNorm: input of shape {tuple(x.shape)}, expected (n, {self.sz}, ..)")
    mean, var = self.calc_stats(x)
    if self.track_running_stats and Tensor.training:
      n = x.numel() // self.sz
      if n < 2:
        raise ArgumentError(f"nn.BatchNorm: input of shape {tuple(x.shape)} has {n} value a channel, training needs at least 2")
      self.running_mean.assign((1 - self.momentum) * self.running_mean + self.momentum * mean.detach())
      self.running_var.assign((1 - self.momentum) * self.running_var + (n * self.momentum / (n - 1)) * var.detach())
      self.num_batches_tracked.assign(self.num_batches_tracked + 1)
    return x.batchnorm(self.weight, self.bias, mean, (var + self.eps).rsqrt())


BatchNorm2d = BatchNorm3d = BatchNorm


@checked
class LayerNorm:
  """Layer normalisation over the last dimensions (https://arxiv.org/abs/1607.06450): ``(.., *normalized_shape) -> same``.

  ``weight`` (ones) and ``bias`` (zeros) have ``normalized_shape``; both are None without ``elementwise_affine``.
  """

  def __init__(self, normalized_shape: int | tuple[int, ...], eps: float = 1e-5, elementwise_affine: bool = True,
               bias: bool = True):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape: raise ArgumentError("nn.LayerNorm: normalized_shape is empty, expected the sizes of the last dimensions")
    for n in shape: _size("LayerNorm", "normalized_shape", n)
    self.normalized_shape, self.axis, self.eps = shape, tuple(range(-len(shape), 0)), eps
    self.weight: Tensor | None = Tensor.ones(*shape, requires_grad=True) if elementwise_affine else None
    self.bias: Tensor | None = Tensor.zeros(*shape, requires_grad=True) if elementwise_affine and bias else None

  def __call__(self, x: Tensor) -> Tensor:
    """``(.., *normalized_shape) -> same``. Raises ShapeError for other last dimensions."""
    if tuple(x.shape[-len(self.normalized_shape):]) != self.normalized_shape:
      want = ", ".join(map(str, self.normalized_shape))
      raise ShapeError(f"nn.{type(self).__name__}: input of shape {tuple(x.shape)}, expected (.., {want})")
    x = x.layernorm(axis=self.axis, eps=self.eps)
    if self.weight is not None: x = x * self.weight
    return x if self.bias is None else x + self.bias


@checked
class LayerNorm2d(LayerNorm):
  """Layer normalisation over the channels of ``(n, c, h, w)``."""

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, c, h, w) -> same``. Raises ShapeError for another number of channels."""
    return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@checked
class GroupNorm:
  """Group normalisation (https://arxiv.org/abs/1803.08494): ``(n, num_channels, ..) -> same``.

  Each of ``num_groups`` groups of channels by its own mean and variance. ``affine`` adds ``weight`` and ``bias`` of
  (num_channels,).
  """

  def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True):
    self.num_groups, self.num_channels, self.eps = _size("GroupNorm", "num_groups", num_groups), num_channels, eps
    if _size("GroupNorm", "num_channels", num_channels) % num_groups:
      raise ArgumentError(f"nn.GroupNorm: {num_channels} channels cannot be divided into {num_groups} groups")
    self.weight: Tensor | None = Tensor.ones(num_channels, requires_grad=True) if affine else None
    self.bias: Tensor | None = Tensor.zeros(num_channels, requires_grad=True) if affine else None

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, num_channels, ..) -> same``. Raises ShapeError for another number of channels."""
    if x.ndim < 2 or x.shape[1] != self.num_channels:
      raise ShapeError(f"nn.GroupNorm: input of shape {tuple(x.shape)}, expected (n, {self.num_channels}, ..)")
    shape, rank = x.shape, x.ndim
    names = x._names
    x = x.reshape(shape[0], self.num_groups, -1).layernorm(axis=-1, eps=self.eps).reshape(shape)
    x._names = names
    if self.weight is None or self.bias is None: return x
    return x * self.weight.reshape(1, -1, *[1] * (rank - 2)) + self.bias.reshape(1, -1, *[1] * (rank - 2))


@checked
class RMSNorm:
  """``x / √(mean(x²) + eps) · weight`` over the last dimension (https://arxiv.org/abs/1910.07467), in float32 inside."""

  def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True):
    self.dim, self.eps = _size("RMSNorm", "dim", dim), eps
    self.weight: Tensor | None = Tensor.ones(dim, requires_grad=True) if elementwise_affine else None

  def __call__(self, x: Tensor) -> Tensor:
    """``(.., dim) -> (.., dim)``, in the dtype of ``x``. Raises ShapeError for another last dimension."""
    _last("RMSNorm", x, self.dim, "dim")
    wide = x if x.dtype.itemsize >= 4 else x.float()
    x = (wide * ((wide * wide).mean(-1, keepdim=True) + self.eps).rsqrt()).cast(x.dtype)
    return x if self.weight is None else x * self.weight


@checked
class Embedding:
  """Rows of a table: int ``(..) -> (.., embed_size)``. ``weight`` is (vocab_size, embed_size), Glorot uniform."""

  def __init__(self, vocab_size: int, embed_size: int):
    self.vocab_size, self.embed_size = _size("Embedding", "vocab_size", vocab_size), _size("Embedding", "embed_size", embed_size)
    bound = math.sqrt(6 / (vocab_size + embed_size))
    self.weight = Tensor.uniform(vocab_size, embed_size, low=-bound, high=bound, requires_grad=True)

  def __call__(self, idx: Tensor) -> Tensor:
    """``(..) -> (.., embed_size)``, as ``weight[idx]``. Raises DTypeError for an index that is not an integer."""
    if not dtypes.is_int(idx.dtype):
      raise DTypeError(f"nn.Embedding: index of {idx.dtype.name}, expected an integer dtype; use idx.cast('int32')")
    return self.weight[idx]
