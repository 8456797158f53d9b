"""Normalisation by mean and variance, by a norm, and by the size of what stands around."""
from __future__ import annotations

import math
from typing import Any, Self, Sequence

from ntgrad.codegen.ir import ArgumentError, ShapeError, UnaryOps, acc_dtype
from ntgrad.core import real_number
from ntgrad.graph import Operand, checked, no_grad, nodes as graph, one_width, text
from ntgrad.graph.nodes import Shape
from ntgrad.graph.recipes import recalled

from .elementwise import info_of
from .reduction import Reduction


@checked
class Normalising(Reduction):
  """Normalisation; small floats are computed in float32."""
  __slots__ = ()

  def layernorm(self, axis: int | str | Sequence[int | str] = -1, eps: float = 1e-5) -> Self:
    """(x - mean) / sqrt(variance + eps) along axes; small floats are computed in float32. Raises AxisError."""
    return self._normal("layernorm", self._dims("layernorm", axis), eps)

  def _normal(self, name: str, axes: Shape, eps: float) -> Self:
    self._needs_floats(name)
    u = self.lazydata
    eps = real_number(name, "eps", eps)
    x = graph.cast(u, acc_dtype(u.dtype))
    d = x - graph.expand(self._mean_node(x, axes), x.shape)
    inv = graph.unary(UnaryOps.RSQRT, self._mean_node(d * d, axes) + eps)
    return self._wrap(graph.cast(d * graph.expand(inv, d.shape), u.dtype))

  def _last_dims(self, name: str, normalized_shape: Any, given: Sequence[tuple[str, Any]]) -> Shape:
    """The last dims, which have sizes ``normalized_shape``, as what is given with them has too. Raises ShapeError."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    n = self.ndim - len(shape)
    one_width(name, self, *[t for _, t in given])
    if not shape or n < 0 or self.shape[n:] != shape:
      raise ShapeError(f"{name}: normalized_shape {shape} for input {text(self)}; it must have the sizes of the last dimensions")
    for what, t in given:
      if t is not None and t.shape != shape: raise ShapeError(f"{name}: {what} of shape {t.shape}; it must be {shape}")
    return tuple(range(n, self.ndim))

  @recalled
  def layer_norm(self, normalized_shape: int | Sequence[int], weight: Operand | None = None, bias: Operand | None = None,
                 eps: float = 1e-5) -> Self:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dims (https://arxiv.org/abs/1607.06450). (..,
    *normalized_shape) -> the same; weight and bias have ``normalized_shape``. Raises ShapeError, DTypeError."""
    axes = self._last_dims("layer_norm", normalized_shape, (("weight", weight), ("bias", bias)))
    return self._normal("layer_norm", axes, eps)._affine(weight, bias)

  def _affine(self, weight: Any, bias: Any) -> Self:
    x = self if weight is None else self * weight
    return x if bias is None else x + bias

  def rms_norm(self, normalized_shape: int | Sequence[int] | None = None, weight: Operand | None = None,
               eps: float | None = 1e-6, axis: int | str | Sequence[int | str] = -1) -> Self:
    """x / sqrt(mean(x²) + eps) * weight over the last dims (https://arxiv.org/abs/1910.07467); small floats in float32.
    ``normalized_shape`` has the sizes of these dims, as weight has; without it, it is along ``axis``. ``eps`` None is the dtype's
    smallest step at 1. Raises ShapeError, AxisError, DTypeError."""
    self._needs_floats("rms_norm")
    if normalized_shape is not None: axes = self._last_dims("rms_norm", normalized_shape, (("weight", weight),))
    else: axes = self._dims("rms_norm", axis)
    x = self._wide()
    if eps is None: eps = float(info_of(self.dtype).eps)
    x = (x * (x.square().mean(axes, keepdim=True) + real_number("rms_norm", "eps", eps)).rsqrt()).cast(self.dtype)
    return x._affine(weight, None)

  def batchnorm(self, weight: Operand | None, bias: Operand | None, mean: Operand, invstd: Operand,
                axis: int | str | tuple[int | str, ...] = 1) -> Self:
    """(x - mean) * invstd * weight + bias, statistics and parameters along the channel axes; weight and bias may be None. Each
    has the sizes of the channel axes in order, with or without dims of 1 for the others, or as many elements in one dim. Raises
    ShapeError."""
    axes = self._dims("batchnorm", axis)
    one_width("batchnorm", self, weight, bias, mean, invstd)
    shape = tuple([s if i in axes else 1 for i, s in enumerate(self.shape)])
    channels = [s for s in shape if s != 1]

    def along(what: str, t: Any) -> Any:
      if [s for s in t.shape if s != 1] not in (channels, [math.prod(shape)]):
        raise ShapeError(f"batchnorm: {what} of shape {t.shape} for input {self.shape} on axis {axis}; "
                         f"it needs shape {tuple([self.shape[a] for a in axes])} or {shape}")
      return t.reshape(shape)

    scale = along("invstd", invstd)
    if weight is not None: scale = scale * along("weight", weight)
    x = (self - along("mean", mean)) * scale
    return x if bias is None else x + along("bias", bias)

  def _channels(self, name: str, least: int, given: Sequence[tuple[str, Any]]) -> int:
    """How many channels, dim 1, there are; what is given has one element for each. Raises ShapeError, DTypeError."""
    if self.ndim < least: raise ShapeError(f"{name}: shape {text(self)}; it takes (n, channels{', ..' * (least > 2)}) at least")
    self._needs_floats(name)
    c = self.shape[1]
    one_width(name, self, *[t for _, t in given])
    for what, t in given:
      if t is not None and t.shape != (c,):
        raise ShapeError(f"{name}: {what} of shape {t.shape} for input {text(self)}; it must have one element a channel, ({c},)")
    return c

  def _by_channel(self, weight: Any, bias: Any) -> Self:
    """x * weight + bias, each of which has one element a channel."""
    shape = 1, -1, *[1] * (self.ndim - 2)
    return self._affine(None if weight is None else weight.reshape(shape), None if bias is None else bias.reshape(shape))

  def _moved(self, mean: Any, var: Any, axes: Shape, momentum: float) -> None:
    """Running statistics moved towards those of this tensor, taken along axes and averaged over what stands before the last."""
    with no_grad():
      x = self.detach()._wide()
      for running, now in ((mean, x.mean(axes)), (var, x.var(axes))):
        if running is None: continue
        if now.ndim > 1: now = now.mean(0)
        running.assign(((1 - momentum) * running + momentum * now.named()).cast(running.dtype))

  def batch_norm(self, running_mean: Operand | None, running_var: Operand | None, weight: Operand | None = None,
                 bias: Operand | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Self:
    """Normalisation of each channel over the batch and what follows (https://arxiv.org/abs/1502.03167): (n, c, ..) -> the same.
    By the running statistics, or, in ``training``, by the batch's own mean and variance; then the running ones, where given, move
    towards these by ``momentum`` (the variance unbiased). All are (c,). Raises ShapeError, DTypeError; ArgumentError where
    running statistics are missing, and for a single value a channel in training."""
    name, momentum = "batch_norm", real_number("batch_norm", "momentum", momentum)
    given = ("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)
    c = self._channels(name, 2, given)
    axes = 0, *range(2, self.ndim)
    if training:
      each = math.prod([self.shape[a] for a in axes])
      if each == 1: raise ArgumentError(f"{name}: shape {text(self)} has one value a channel; training takes several")
      out = self._normal(name, axes, eps)._by_channel(weight, bias)
      if each: self._moved(running_mean, running_var, axes, momentum)
      return out
    if running_mean is None or running_var is None:
      raise ArgumentError(f"{name}: no running_{'mean' if running_mean is None else 'var'} outside of training; give both, or "
                          "training=True")
    shape = 1, c, *[1] * (self.ndim - 2)
    inv = (running_var + real_number(name, "eps", eps)).rsqrt().reshape(shape)
    return ((self._wide() - running_mean.reshape(shape)) * inv).cast(self.dtype)._by_channel(weight, bias)

  def instance_norm(self, running_mean: Operand | None = None, running_var: Operand | None = None, weight: Operand | None = None,
                    bias: Operand | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5) -> Self:
    """Normalisation of each channel of each sample over what follows: (n, c, l, ..) -> the same
    (https://arxiv.org/abs/1607.08022). By its own mean and variance, towards whose averages over the batch the running ones move;
    or, without ``use_input_stats``, by the running ones. All are (c,). Raises ShapeError, DTypeError, ArgumentError as
    :meth:`batch_norm`."""
    name, momentum = "instance_norm", real_number("instance_norm", "momentum", momentum)
    self._channels(name, 3, (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)))
    if not use_input_stats: return self.batch_norm(running_mean, running_var, weight, bias, False, momentum, eps)
    axes = tuple(range(2, self.ndim))
    each = math.prod(self.shape[2:])
    if each == 1: raise ArgumentError(f"{name}: shape {text(self)} has one value a channel of a sample; it takes several")
    out = self._normal(name, axes, eps)._by_channel(weight, bias)
    if each and self.shape[0]: self._moved(running_mean, running_var, axes, momentum)
    return out

  def group_norm(self, num_groups: int, weight: Operand | None = None, bias: Operand | None = None, eps: float = 1e-5) -> Self:
    """Normalisation of groups of channels of each sample (https://arxiv.org/abs/1803.08494): (n, c, ..) -> the same. Weight and
    bias are (c,). Raises ShapeError, DTypeError; ArgumentError for a number of groups that does not divide c."""
    c = self._channels("group_norm", 2, (("weight", weight), ("bias", bias)))
    if num_groups < 1 or c % num_groups:
      raise ArgumentError(f"group_norm: {c} channels of input {text(self)} cannot be divided into {num_groups} groups")
    s = self.shape
    groups = self.named().reshape(s[0], num_groups, c // num_groups, *s[2:])
    axes = tuple(range(2, groups.ndim))
    return groups._normal("group_norm", axes, eps).reshape(s)._own()._called(self._names)._by_channel(weight, bias)

  def local_response_norm(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Self:
    """x / (k + alpha * mean(x² of ``size`` channels around))^beta (AlexNet, section 3.3): (n, c, l, ..) -> the same. Channels
    outside count as zeros. Raises ShapeError, DTypeError, ArgumentError for a size below 1."""
    c = self._channels("local_response_norm", 3, ())
    if size < 1: raise ArgumentError(f"local_response_norm: size {size}; it must be at least 1")
    alpha, beta, k = [real_number("local_response_norm", *given) for given in (("alpha", alpha), ("beta", beta), ("k", k))]
    u, n = graph.cast(self.lazydata, acc_dtype(self.dtype)), self.ndim
    if not c: return self._own()
    before, after = min(size // 2, c - 1), min((size - 1) // 2, c - 1)   # as far as there are channels
    squares = graph.pad(u * u, ((0, 0), (before, after), *((0, 0),) * (n - 2)))
    t, axes = graph.tile(squares, ((1, 1, 1), (before + after + 1, 1, 1), *((1, 1, 1),) * (n - 2))), range(n, 2 * n)
    return self._wrap(graph.cast(u * graph.power(graph.drop(graph.total(t, axes), axes) * (alpha / size) + k, -beta), self.dtype))

  def normalize(self, p: float = 2, dim: int | str = 1, eps: float = 1e-12) -> Self:
    """x over its p-norm along a dim, which counts as ``eps`` at least. Raises AxisError, ArgumentError; see ``norm``."""
    x = self._in_floats()
    wide = x._wide()
    return (wide / wide.norm(p, self._dim("normalize", dim), keepdim=True).clamp(eps)).cast(x.dtype)
