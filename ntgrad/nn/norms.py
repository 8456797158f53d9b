"""Layers that normalise."""
from __future__ import annotations

import math
from typing import Any, ClassVar

from ntgrad.codegen.ir import ArgumentError, ShapeError, dtypes
from ntgrad.graph import Ints, as_tuple, checked, flag, one_width
from ntgrad.graph.recipes import recalled
from ntgrad.tensor import Tensor

from .common import count, size, spatial, untrained
from .module import Module, placed

_RUNNING = "it normalises by the running statistics, which stay as they are"


def _scale_and_shift(shape: tuple[int, ...], weight: bool, bias: bool = True) -> tuple[Tensor | None, Tensor | None]:
  """The parameters that a norm begins with: ones and zeros, each None where it has none."""
  return (Tensor.ones(*shape, requires_grad=True) if weight else None,
          Tensor.zeros(*shape, requires_grad=True) if weight and bias else None)


class _Tracking(Module):
  """A norm that keeps running statistics: ``running_mean``, ``running_var`` and how many batches they are of."""
  _buffers = frozenset("running_mean running_var num_batches_tracked".split())

  def _make(self, name: str, n: int, eps: float, momentum: float | None, affine: bool, track: bool, bias: bool) -> None:
    if momentum is not None and not 0 <= momentum <= 1: raise ArgumentError(f"nn.{name}: momentum is {momentum}, expected 0 to 1")
    self.eps, self.momentum, self.affine, self.track_running_stats = eps, momentum, affine, track
    self.weight, self.bias = _scale_and_shift((n,), affine, bias)
    if track:
      self.running_mean, self.running_var = untrained(0, n), untrained(1, n)
      self.num_batches_tracked = untrained(0, dtype=dtypes.int64)

  def _enough(self, x: Tensor, n: int) -> None:
    if n >= 2: return
    raise ArgumentError(f"nn.{type(self).__name__}: input of shape {tuple(x.shape)} has {n} value a channel, training needs at "
                        "least 2")

  def _track(self, mean: Tensor, var: Tensor) -> None:
    """Move the running statistics towards a batch's; with ``momentum`` None they are the mean over all batches."""
    self.num_batches_tracked.assign(self.num_batches_tracked + 1)
    new: Any = self.momentum
    if new is None: new = self.num_batches_tracked.cast(self.running_mean.dtype).reciprocal()
    for running, now in (self.running_mean, mean), (self.running_var, var): running.assign(_towards(running, now, new))


def _towards(running: Any, now: Any, new: Any) -> Any: return (1 - new) * running + new * now.detach().cast(running.dtype)


def statistics(x: Any) -> tuple[Any, Any]:
  """The mean and biased variance of each channel, in float32 at least."""
  x, axes = x._wide(), tuple(i for i in range(x.ndim) if i != 1)
  mean = x.mean(axis=axes)
  # Σ(x - mean) is 0, so the variance has no gradient through the mean: no reduction needed to find that out
  centred = x - mean.detach().reshape(1, -1, *[1] * (x.ndim - 2))
  return mean, (centred * centred).mean(axis=axes)


@recalled
def normalised(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
  """By a mean and variance of each channel, in the dtype of ``x``."""
  return x._wide().batchnorm(weight, bias, mean, (var + eps).rsqrt()).cast(x.dtype)


@recalled
def _in_training(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float, momentum: float) -> Any:
  """The running mean and variance, moved towards those of the batch, and what that is by its own."""
  own, n = statistics(x), x.numel() // x.shape[1]
  return (_towards(mean, own[0], momentum), _towards(var, own[1] * (n / (n - 1)), momentum),
          normalised(x, weight, bias, *own, eps))


@placed
class BatchNorm(_Tracking):
  """Batch normalisation over every axis but the second (https://arxiv.org/abs/1502.03167): ``(n, sz, ..) -> (n, sz, ..)``.

  In training, by the batch's own mean and (biased) variance, and the running ones move towards it by ``momentum`` (the variance
  unbiased, as in PyTorch; None: they are the mean over all batches so far); else by the running ones. ``affine`` adds ``weight``
  and ``bias`` of shape (sz,), the latter unless ``bias`` is False. This name takes any number of dimensions from 2.

  By place the parameters are tinygrad's, or PyTorch's where ``momentum``, a float or None, is third:
  ``(sz, eps, momentum, affine, track_running_stats)``.
  """
  _said = "*sz eps momentum affine track_running_stats"
  _ranks: ClassVar[tuple[int, ...]] = ()   # numbers of dimensions that it takes; none: any from 2

  def __init__(self, sz: int, eps: float = 1e-5, affine: bool | float | None = True, track_running_stats: bool = True,
               momentum: bool | float | None = 0.1, bias: bool = True):
    if affine is None or isinstance(affine, float):
      affine, track_running_stats, momentum = track_running_stats, momentum if isinstance(momentum, bool) else True, affine
    for name, value in ("affine", affine), ("track_running_stats", track_running_stats): flag(f"nn.BatchNorm: {name}", value)
    if isinstance(momentum, bool): raise ArgumentError(f"nn.BatchNorm: momentum is {momentum}, expected 0 to 1")
    self.sz = size("BatchNorm", "sz", sz)
    self._make("BatchNorm", sz, eps, momentum, bool(affine), track_running_stats, bias)

  def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and biased variance, each (sz,), to normalise ``x`` by: the batch's own, or the running ones outside training."""
    if self.track_running_stats and not self._trains(_RUNNING): return self.running_mean, self.running_var
    return statistics(x)

  def _fits(self, x: Tensor) -> None:
    """Raises ShapeError for another sz or number of dimensions."""
    if x.ndim < 2 or x.shape[1] != self.sz or (self._ranks and x.ndim not in self._ranks):
      wanted = " or ".join(f"(n, {self.sz}{', ' * (n > 2)}{spatial(n - 2)})" for n in self._ranks) or f"(n, {self.sz}, ..)"
      raise ShapeError(f"nn.{type(self).__name__}: input of shape {tuple(x.shape)}, expected {wanted}")

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, sz, ..) -> (n, sz, ..)``. Raises ShapeError for another sz or number of dimensions, in training ArgumentError for one
    value a channel."""
    self._fits(x)
    tracks = self.track_running_stats and self._trains(_RUNNING)
    if tracks: self._enough(x, n := x.numel() // self.sz)
    if tracks and self.momentum is not None and type(self).calc_stats is BatchNorm.calc_stats:
      mean, var, out = _in_training(x, self.weight, self.bias, self.running_mean, self.running_var, self.eps, self.momentum)
      self.num_batches_tracked.assign(self.num_batches_tracked + 1)
      self.running_mean.assign(mean)
      self.running_var.assign(var)
      return out
    mean, var = self.calc_stats(x)
    if tracks: self._track(mean, var * (n / (n - 1)))
    return normalised(x, self.weight, self.bias, mean, var, self.eps)


class BatchNorm1d(BatchNorm):
  """:class:`BatchNorm` of ``(n, sz)`` or ``(n, sz, w)``."""
  _ranks = 2, 3


class BatchNorm2d(BatchNorm):
  """:class:`BatchNorm` of ``(n, sz, h, w)``."""
  _ranks = (4,)


class BatchNorm3d(BatchNorm):
  """:class:`BatchNorm` of ``(n, sz, d, h, w)``."""
  _ranks = (5,)


@placed
class InstanceNorm2d(_Tracking):
  """Each channel of each sample by its own mean and variance (https://arxiv.org/abs/1607.08022): ``(n, num_features, h, w)`` or
  ``(num_features, h, w)`` ``-> same``.

  ``affine`` adds ``weight`` and ``bias`` of (num_features,). With ``track_running_stats`` running statistics are kept in training
  and used outside of it, as BatchNorm does.
  """
  _said = "*num_features eps momentum affine track_running_stats"
  _rank = 2

  def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
               track_running_stats: bool = False, bias: bool = True):
    self.num_features = size(name := type(self).__name__, "num_features", num_features)
    self._make(name, num_features, eps, momentum, affine, track_running_stats, bias)

  def __call__(self, x: Tensor) -> Tensor:
    """The input's shape. Raises ShapeError for another number of channels or dimensions, in training ArgumentError for one value
    a channel."""
    name, n = type(self).__name__, self._rank
    if x.ndim not in (n + 1, n + 2) or x.shape[-1 - n] != self.num_features:
      raise ShapeError(f"nn.{name}: input of shape {tuple(x.shape)}, expected (n, {self.num_features}, {spatial(n)})")
    one_width(f"nn.{name}", x, self.weight, self.bias, *((self.running_mean,) if self.track_running_stats else ()))
    axes, wide = tuple(range(-n, 0)), (self.num_features, *[1] * n)
    if self.track_running_stats and not self._trains(_RUNNING):
      x = (x - self.running_mean.reshape(wide)) * (self.running_var.reshape(wide) + self.eps).rsqrt()
    else:
      if self.training: self._enough(x, math.prod(x.shape[-n:]))
      if self.track_running_stats:
        over = axes if x.ndim == n + 1 else (0, *axes)   # the mean over samples of what each has
        mean, var = x.mean(over), x.detach().var(axes)
        self._track(mean, var if x.ndim == n + 1 else var.mean(0))
      x = x.layernorm(axis=axes, eps=self.eps)
    if self.weight is not None: x = x * self.weight.reshape(wide)
    return x if self.bias is None else x + self.bias.reshape(wide)


class InstanceNorm1d(InstanceNorm2d):
  """The same for ``(n, num_features, w)`` or ``(num_features, w)``. See :class:`InstanceNorm2d`."""
  _rank = 1


class InstanceNorm3d(InstanceNorm2d):
  """The same for ``(n, num_features, d, h, w)`` or ``(num_features, d, h, w)``. See :class:`InstanceNorm2d`."""
  _rank = 3


@placed
class InstanceNorm(Module):
  """Each channel of each sample by its own mean and variance, for any number of dimensions: ``(n, num_features, ..) -> same``.

  By tinygrad's name; ``weight`` and ``bias`` are (num_features,), with ``affine`` (:class:`InstanceNorm2d` has none by default).
  """
  _said = "*num_features eps affine"

  def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True):
    self.num_features, self.eps, self.affine = size("InstanceNorm", "num_features", num_features), eps, affine
    self.weight, self.bias = _scale_and_shift((num_features,), affine)

  def __call__(self, x: Tensor) -> Tensor:
    """The input's shape. Raises ShapeError for another number of channels, or nothing behind them."""
    if x.ndim < 3 or x.shape[1] != self.num_features:
      raise ShapeError(f"nn.InstanceNorm: input of shape {tuple(x.shape)}, expected (n, {self.num_features}, ..)")
    one_width("nn.InstanceNorm", x, self.weight, self.bias)
    return x.layernorm(tuple(range(2, x.ndim)), self.eps)._by_channel(self.weight, self.bias)


@checked
class LocalResponseNorm(Module):
  """x / (k + alpha · mean(x² of ``size`` channels around))^beta: ``(n, c, ..) -> same`` (AlexNet, section 3.3)."""
  _said = "*size alpha beta k"

  def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
    self.size, self.alpha, self.beta, self.k = count(type(self).__name__, "size", size), alpha, beta, k

  def __call__(self, input: Tensor) -> Tensor:
    """The input's shape. Raises ShapeError for less than 3 dimensions."""
    return input.local_response_norm(self.size, self.alpha, self.beta, self.k)


@checked
class CrossMapLRN2d(LocalResponseNorm):
  """:class:`LocalResponseNorm` of ``(n, c, h, w)``, by the name that Torch had for it (PyTorch's own, under this name, never
  takes the first channel out of its sums)."""
  def __call__(self, input: Tensor) -> Tensor:
    """The input's shape. Raises ShapeError for another number of dimensions."""
    if input.ndim != 4: raise ShapeError(f"nn.CrossMapLRN2d: input of shape {input.shape}, expected (n, c, h, w)")
    return super().__call__(input)


class _OverLast(Module):
  def _over(self, name: str, what: str, sizes: Ints) -> tuple[int, ...]:
    shape = tuple(size(name, what, n) for n in as_tuple(sizes))
    if not shape: raise ArgumentError(f"nn.{name}: {what} is empty, expected the sizes of the last dimensions")
    self.normalized_shape, self.axis = shape, tuple(range(-len(shape), 0))
    return shape

  def _fits(self, x: Tensor) -> None:
    if tuple(x.shape[-len(self.normalized_shape):]) != self.normalized_shape:
      raise ShapeError(f"nn.{type(self).__name__}: input of shape {tuple(x.shape)}, "
                       f"expected (.., {', '.join(map(str, self.normalized_shape))})")


@placed
class LayerNorm(_OverLast):
  """Layer normalisation over the last dimensions (https://arxiv.org/abs/1607.06450): ``(.., *normalized_shape) -> same``.
  ``weight`` (ones) and ``bias`` (zeros) have ``normalized_shape``; both are None without ``elementwise_affine``."""
  _said = "*normalized_shape eps"

  def __init__(self, normalized_shape: int | tuple[int, ...], eps: float = 1e-5, elementwise_affine: bool = True,
               bias: bool = True):
    shape, self.eps = self._over("LayerNorm", "normalized_shape", normalized_shape), eps
    self.weight, self.bias = _scale_and_shift(shape, elementwise_affine, bias)

  def __call__(self, x: Tensor) -> Tensor:
    """``(.., *normalized_shape) -> same``. Raises ShapeError for other last dimensions."""
    self._fits(x)
    return x.layer_norm(self.normalized_shape, self.weight, self.bias, self.eps)


@checked
class LayerNorm2d(LayerNorm):
  """Layer normalisation over the channels of ``(n, c, h, w)``."""

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, c, h, w) -> same``. Raises ShapeError for another number of channels."""
    return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@placed
class GroupNorm(Module):
  """Group normalisation (https://arxiv.org/abs/1803.08494): ``(n, num_channels, ..) -> same``.

  Each of ``num_groups`` groups of channels by its own mean and variance. ``affine`` adds ``weight`` and, unless ``bias`` is
  False, ``bias`` of (num_channels,).
  """
  _said = "*num_groups *num_channels eps affine"

  def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, bias: bool = True):
    self.num_groups, self.num_channels = size("GroupNorm", "num_groups", num_groups), num_channels
    self.eps, self.affine = eps, affine
    if size("GroupNorm", "num_channels", num_channels) % num_groups:
      raise ArgumentError(f"nn.GroupNorm: {num_channels} channels cannot be divided into {num_groups} groups")
    self.weight, self.bias = _scale_and_shift((num_channels,), affine, bias)

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, num_channels, ..) -> same``. Raises ShapeError for another number of channels."""
    if x.ndim < 2 or x.shape[1] != self.num_channels:
      raise ShapeError(f"nn.GroupNorm: input of shape {tuple(x.shape)}, expected (n, {self.num_channels}, ..)")
    return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)


@placed
class RMSNorm(_OverLast):
  """``x / √(mean(x²) + eps) · weight`` over the last dimension (https://arxiv.org/abs/1910.07467), in float32 inside.
  ``dim`` may be the sizes of several last dimensions. ``eps`` None is what the dtype of the input rounds to, as in PyTorch."""
  _said = "*dim eps"

  def __init__(self, dim: Ints, eps: float | None = 1e-6, elementwise_affine: bool = True):
    shape, self.dim, self.eps = self._over("RMSNorm", "dim", dim), dim, eps
    self.weight, _ = _scale_and_shift(shape, elementwise_affine, False)

  def __call__(self, x: Tensor) -> Tensor:
    """``(.., dim) -> (.., dim)``, in the dtype of ``x``. Raises ShapeError for another last dimension."""
    self._fits(x)
    return x.rms_norm(self.normalized_shape, self.weight, self.eps)
