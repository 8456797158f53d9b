"""Layers that normalise."""
from __future__ import annotations

from ntgrad.checks import checked
from ntgrad.codegen.dtype import dtypes
from ntgrad.codegen.errors import ArgumentError, ShapeError
from ntgrad.nn.common import last, size, untrained
from ntgrad.tensor import Tensor


@checked
class BatchNorm:
  """Batch normalisation over every axis but the second (https://arxiv.org/abs/1502.03167): ``(n, sz, ..) -> (n, sz, ..)``.

  While ``Tensor.training``, by the batch's own mean and (biased) variance, and the running ones move towards it by ``momentum``
  (the variance unbiased, as in PyTorch); else by the running ones. ``affine`` adds ``weight`` and ``bias`` of shape (sz,).
  """
  _room = "nn."

  def __init__(self, sz: int, eps: float = 1e-5, affine: bool = True, track_running_stats: bool = True, momentum: float = 0.1):
    self.sz, self.eps, self.track_running_stats, self.momentum = size("BatchNorm", "sz", sz), eps, track_running_stats, momentum
    if not 0 <= momentum <= 1: raise ArgumentError(f"nn.BatchNorm: momentum is {momentum}, expected 0 to 1")
    self.weight: Tensor | None = Tensor.ones(sz, requires_grad=True) if affine else None
    self.bias: Tensor | None = Tensor.zeros(sz, requires_grad=True) if affine else None
    if track_running_stats:
      self.num_batches_tracked = untrained(Tensor.zeros(dtype=dtypes.int64))
      self.running_mean, self.running_var = untrained(Tensor.zeros(sz)), untrained(Tensor.ones(sz))

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
  _room = "nn."

  def __init__(self, normalized_shape: int | tuple[int, ...], eps: float = 1e-5, elementwise_affine: bool = True,
               bias: bool = True):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape: raise ArgumentError("nn.LayerNorm: normalized_shape is empty, expected the sizes of the last dimensions")
    for n in shape: size("LayerNorm", "normalized_shape", n)
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
  _room = "nn."

  def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True):
    self.num_groups, self.num_channels, self.eps = size("GroupNorm", "num_groups", num_groups), num_channels, eps
    if size("GroupNorm", "num_channels", num_channels) % num_groups:
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
  _room = "nn."

  def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True):
    self.dim, self.eps = size("RMSNorm", "dim", dim), eps
    self.weight: Tensor | None = Tensor.ones(dim, requires_grad=True) if elementwise_affine else None

  def __call__(self, x: Tensor) -> Tensor:
    """``(.., dim) -> (.., dim)``, in the dtype of ``x``. Raises ShapeError for another last dimension."""
    last("RMSNorm", x, self.dim, "dim")
    wide = x if x.dtype.itemsize >= 4 else x.float()
    x = (wide * ((wide * wide).mean(-1, keepdim=True) + self.eps).rsqrt()).cast(x.dtype)
    return x if self.weight is None else x * self.weight


__all__ = ["BatchNorm", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "LayerNorm", "LayerNorm2d", "RMSNorm"]
