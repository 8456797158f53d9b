"""Matrix products, convolutions, pooling and normalisation of ``Tensor``.

Products of matrices and convolutions are written as an expanded product and one sum: the scheduler finds the tiles.
"""
from __future__ import annotations

import math
from typing import Any, Callable, Self, Sequence

from ntgrad import graph
from ntgrad.checks import Ints, Operand, checked
from ntgrad.codegen.dtype import dtypes, promote
from ntgrad.codegen.errors import ArgumentError, DTypeError, ShapeError
from ntgrad.codegen.uop import BinaryOps, UnaryOps, UOp
from ntgrad.core import axes_of, real_number
from ntgrad.elementwise import broadcast_shape, common_device
from ntgrad.movement import pad_value, several
from ntgrad.names import Names, Places, fit, fit_aligned, merged, text
from ntgrad.reduction import Reduction

Pair = tuple[int, int]
Padding = int | Sequence[int | Sequence[int]]


def _product(name: str, a: UOp, b: UOp) -> tuple[UOp, UOp, Any]:
  """Both factors in the dtype that their product is summed in, and the dtype of the result."""
  if a.device != b.device: common_device(name, a, b)
  out = a.dtype if a.dtype is b.dtype else promote(a.dtype, b.dtype)
  acc = graph.acc_dtype(out)
  if out.kind != "f": out = acc
  return graph.cast(a, acc), graph.cast(b, acc), out


def _of_product(name: str, tensors: Sequence[Any], places: Sequence[Places], ndim: int) -> Names | None:
  """The names of a sum of products: of each factor, where its dimensions go in the result (behind it: what is summed)."""
  if all([t._names is None for t in tensors]): return None
  return merged(name, tensors, places, ndim, "factor")


def _product_places(nx: int, ny: int) -> tuple[list[Places], int]:
  """Where the dimensions of a matrix product's factors go, and how many the result has; the summed one is the last place."""
  n = max(nx, ny, 2) - 2 + (nx > 1) + (ny > 1)
  batch = n - (nx > 1) - (ny > 1)
  x = (*range(batch - (nx - 2), batch), batch, n) if nx > 1 else (n,)
  y = (*range(batch - (ny - 2), batch), n, n - 1) if ny > 1 else (n,)
  return [x, y], n


def _convolution_places(n: int, out: int, into: int, groups: int) -> tuple[list[Places], int]:
  """The same for a convolution over n dimensions, whose weight has the channels that come out at dimension ``out``, and those
  that go in at ``into``; in several groups these are parts of the input's, so that their names need not agree."""
  weight: list[int | None] = [None] * (n + 2)
  weight[out] = 1
  if groups == 1: weight[into] = n + 2
  return [(0, n + 2, *range(2, n + 2)), weight], n + 2


def _numbers(name: str, what: str, value: Any, n: int, least: int) -> tuple[int, ...]:
  out = tuple(value) if isinstance(value, (tuple, list)) else (value,) * n
  if len(out) != n: raise ShapeError(f"{name}: {what} {out} for {n} spatial dimensions; give one number, or {n}")
  if not all([isinstance(v, int) and v >= least for v in out]):
    raise ArgumentError(f"{name}: {what} {out}; it must be ints of at least {least}")
  return out


def _padding(name: str, padding: Any, n: int) -> list[Pair]:
  """An int, one a dim, a flat torch padding (last dim first), or pairs, as (before, after) a spatial dim."""
  if not isinstance(padding, (tuple, list)): pairs: list[Any] = [(padding, padding)] * n
  elif all([isinstance(p, int) for p in padding]):
    if len(padding) == n: pairs = [(p, p) for p in padding]
    elif len(padding) == 2 * n: pairs = [(padding[i], padding[i + 1]) for i in range(2 * n - 2, -1, -2)]
    else: raise ShapeError(f"{name}: padding {tuple(padding)} for {n} spatial dimensions; give 1, {n} or {2 * n} numbers")
  else:
    pairs = [(p,) if isinstance(p, int) else p for p in padding]
    if len(pairs) != n or any([len(p) != 2 for p in pairs]):
      raise ShapeError(f"{name}: padding {padding}; give {n} (before, after) pairs")
  if min([min(p) for p in pairs]) < 0: raise ArgumentError(f"{name}: padding {padding}; it must not be negative")
  return pairs


@checked
class Functional(Reduction):
  """Products, convolutions, pooling, normalisation."""
  __slots__ = ()

  # ---- products
  def dot(self, w: Any, dtype: Any = None) -> Self:
    """The matrix product: 1-d with 1-d is the inner product; dims before the last two broadcast. Raises ShapeError.

    (.., m, k) @ (.., k, n) -> (.., m, n). float16, bfloat16 and fp8 accumulate in float32; small ints in int32.
    """
    if not isinstance(w, Functional): w = type(self)(w, device=self.lazydata.device)  # type: ignore[call-arg]
    x, y = self.lazydata, w.lazydata
    sx, sy = x.shape, y.shape
    nx, ny = len(sx), len(sy)
    if not nx or not ny: raise ShapeError(f"matmul: shapes {sx} and {sy}; both need at least one dimension (use * for numbers)")
    k = sx[-1]
    if sy[-2 if ny > 1 else 0] != k:
      fit("matmul", (self, w), *_product_places(nx, ny), "factor")
      raise ShapeError(f"matmul: shapes {text(self)} and {text(w)}; the last dimension of the first ({k}) must equal "
                       f"the {'second to last' if ny > 1 else 'only'} dimension of the second ({sy[-2 if ny > 1 else 0]})")
    if x.dtype.kind == "b" and y.dtype.kind == "b": x = graph.cast(x, dtypes.default_int)
    a, b, out = _product("matmul", x, y)
    called = None if self._names is w._names is None else _of_product("matmul", (self, w), *_product_places(nx, ny))
    if dtype is not None: out = dtypes.of(dtype)
    if nx == 1 and ny == 1:
      total = graph.drop(graph.reduce(BinaryOps.ADD, graph.mul(a, b), (0,)), (0,))
      return self._wrap_many(graph.cast(total, out), (w,), called)
    n = sy[-1] if ny > 1 else 1
    m = sx[-2] if nx > 1 else 1
    try: batch = broadcast_shape("matmul", sx[:-2], sy[:-2]) if nx > 2 or ny > 2 else ()
    except ShapeError:
      fit("matmul", (self, w), *_product_places(nx, ny), "factor")
      raise
    full = (*batch, m, n, k)
    if nx > 1: a = graph.reshape(a, sx[:-1] + (1, k))
    if ny > 1: b = graph.permute(b, (*range(ny - 2), ny - 1, ny - 2))
    if ny > 2: b = graph.reshape(b, sy[:-2] + (1, n, k))
    total = graph.reduce(BinaryOps.ADD, graph.mul(graph.broadcast(a, full), graph.broadcast(b, full)), (len(full) - 1,))
    total = graph.reshape(total, (*batch, *((m,) if nx > 1 else ()), *((n,) if ny > 1 else ())))
    return self._wrap_many(graph.cast(total, out), (w,), called)

  def matmul(self, x: Any, reverse: bool = False, dtype: Any = None) -> Self:
    """``self @ x``; see ``dot``."""
    if reverse: return type(self)(x, device=self.lazydata.device).dot(self, dtype)  # type: ignore[call-arg]
    return self.dot(x, dtype)
  def __matmul__(self, x: Any) -> Self: return self.dot(x)
  def __rmatmul__(self, x: Any) -> Self: return self.matmul(x, True)

  def linear(self, weight: Operand, bias: Operand | None = None) -> Self:
    """``self @ weight + bias`` with a weight (in, out), or ``self * weight`` for a 1-d one. Raises ShapeError."""
    x = self * weight if weight.ndim == 1 else self.dot(weight)
    return x if bias is None else x + bias

  def sequential(self, layers: Sequence[Callable[..., Any]]) -> Any:
    """The layers applied one after the other."""
    x: Any = self
    for layer in layers: x = layer(x)
    return x

  def outer(self, x: Operand) -> Self:
    """(m,), (n,) -> (m, n). Raises ShapeError."""
    if self.ndim != 1 or x.ndim != 1: raise ShapeError(f"outer: shapes {self.shape} and {x.shape}; it takes two 1-d tensors")
    return self.unsqueeze(1) * x.unsqueeze(0)

  # ---- convolution and pooling
  def conv2d(self, weight: Operand, bias: Operand | None = None, groups: int = 1, stride: Ints = 1, dilation: Ints = 1,
             padding: Padding = 0) -> Self:
    """Convolution: (n, cin, *spatial), weight (cout, cin/groups, *kernel) -> (n, cout, *out). Any number of spatial dims.

    ``padding`` is a number, one a spatial dim, a flat (left, right, top, bottom) from the last dim, or pairs.
    Raises ShapeError, ArgumentError, DeviceError.
    """
    x, w = self.lazydata, weight.lazydata
    sx, sw = x.shape, w.shape
    n = len(sw) - 2
    if n < 1 or len(sx) != n + 2:
      raise ShapeError(f"conv2d: input {sx} with weight {sw}; "
                       "give (n, cin, *spatial) and (cout, cin/groups, *kernel) of as many dimensions")
    if groups < 1 or sx[1] != groups * sw[1] or sw[0] % groups:
      raise ShapeError(f"conv2d: input {text(self)} with weight {text(weight)} and groups {groups}; "
                       f"channels must be groups * {sw[1]} = {groups * sw[1]} in, "
                       f"and a multiple of groups out")
    if bias is not None and bias.shape != (sw[0],):
      raise ShapeError(f"conv2d: bias {bias.shape} with weight {sw}; it must be ({sw[0]},)")
    st, di = _numbers("conv2d", "stride", stride, n, 1), _numbers("conv2d", "dilation", dilation, n, 1)
    pairs = _padding("conv2d", padding, n)
    kernel = sw[2:]
    if any([(k - 1) * d + 1 > s + lo + hi for k, d, s, (lo, hi) in zip(kernel, di, sx[2:], pairs)]) or 0 in kernel:
      raise ShapeError(f"conv2d: a kernel of {kernel} with dilation {di} does not fit into {sx[2:]} with padding {tuple(pairs)}")
    a, b, out = _product("conv2d", x, w)
    bs, cin, cout = sx[0], sw[1], sw[0] // groups
    # the output channels are expanded before the windows are made: in the gradient their sum and the windows' then are one
    a = graph.pad(graph.reshape(a, (bs, groups, 1, cin, *sx[2:])), ((0, 0),) * 4 + tuple(pairs))
    a = graph.windows(graph.expand(a, (bs, groups, cout, cin, *a.shape[4:])), kernel, st, di)
    order = (0, 1, 2, *range(4, 4 + n), 3, *range(4 + n, 4 + 2 * n))
    a = graph.permute(a, order)
    full = a.shape
    spatial = full[3:3 + n]
    b = graph.expand(graph.reshape(b, (1, groups, cout) + (1,) * n + (cin, *kernel)), full)
    total = graph.reduce(BinaryOps.ADD, graph.mul(a, b), tuple(range(3 + n, 4 + 2 * n)))
    node = graph.cast(graph.reshape(total, (bs, sw[0], *spatial)), out)
    result = self._wrap_many(node, (weight,), None if self._names is weight._names is None else _of_product(
      "conv2d", (self, weight), *_convolution_places(n, 0, 1, groups)))
    return result if bias is None else result + bias.reshape((1, -1) + (1,) * n)

  def conv_transpose2d(self, weight: Operand, bias: Operand | None = None, groups: int = 1, stride: Ints = 1, dilation: Ints = 1,
                       padding: Padding = 0, output_padding: Ints = 0) -> Self:
    """The adjoint of convolution: (n, cin, *spatial), weight (cin, cout/groups, *kernel). Raises ShapeError, ArgumentError."""
    sx, sw = self.shape, weight.shape
    n = len(sw) - 2
    if n < 1 or len(sx) != n + 2 or groups < 1 or sx[1] != sw[0] or sw[0] % groups:
      raise ShapeError(f"conv_transpose2d: input {sx} with weight {sw} and groups {groups}; "
                       "give (n, cin, *spatial) and (cin, cout/groups, *kernel)")
    st, di = _numbers("conv_transpose2d", "stride", stride, n, 1), _numbers("conv_transpose2d", "dilation", dilation, n, 1)
    pairs, extra = _padding("conv_transpose2d", padding, n), _numbers("conv_transpose2d", "output_padding", output_padding, n, 0)
    if self._names is not None or weight._names is not None:
      called = _of_product("conv_transpose2d", (self, weight), *_convolution_places(n, 1, 0, groups))
      out = self.named().conv_transpose2d(weight.named(), None, groups, st, di, padding, output_padding)
      out._names = called
      return out if bias is None else out + bias.reshape((1, -1) + (1,) * n)
    w = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).flip(*range(2, 2 + n))
    x = self
    if any([s > 1 for s in st]):  # stride - 1 zeros after each element but the last
      x = x.reshape(sx[:2] + tuple([v for s in sx[2:] for v in (s, 1)]))
      x = x.pad(((0, 0), (0, 0)) + tuple([p for s in st for p in ((0, 0), (0, s - 1))]))
      x = x.reshape(sx[:2] + tuple([s * t for s, t in zip(sx[2:], st)]))
      x = x.shrink((None, None) + tuple([(0, (s - 1) * t + 1) for s, t in zip(sx[2:], st)]))
    full = [((k - 1) * d - lo, (k - 1) * d - hi + e) for k, d, (lo, hi), e in zip(sw[2:], di, pairs, extra)]
    x = x.pad(((0, 0), (0, 0)) + tuple(full))
    return x.conv2d(w, bias, groups, 1, dilation, 0)

  def _pool(self, name: str, kernel_size: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool,
            fill: Any) -> tuple[UOp, int, list[Pair]]:
    """Windows of the last dims, with the padding filled: (.., out.., kernel..)."""
    n = 2 if isinstance(kernel_size, int) else len(kernel_size)
    if not n: raise ArgumentError(f"{name}: kernel_size {kernel_size}; give a number, or one for each of the last dimensions")
    u = self.lazydata
    s = u.shape
    if len(s) < n: raise ShapeError(f"{name}: shape {s}; it takes at least {n} dimensions")
    k = _numbers(name, "kernel_size", kernel_size, n, 1)
    st, di = _numbers(name, "stride", k if stride is None else stride, n, 1), _numbers(name, "dilation", dilation, n, 1)
    pairs = _padding(name, padding, n)
    if any([max(p) > (size - 1) * d // 2 + (size - 1) * d % 2 for size, d, p in zip(k, di, pairs)]):
      raise ArgumentError(f"{name}: padding {tuple(pairs)} with a kernel of {k}; it must be at most half of the kernel, "
                          "so that every window has an element")
    spatial = s[len(s) - n:]
    if ceil_mode:  # further windows that start inside the input or the padding before it
      grown = []
      for size, t, d, dim, (lo, hi) in zip(k, st, di, spatial, pairs):
        out = -(-(dim + lo + hi - (size - 1) * d - 1) // t) + 1
        if (out - 1) * t >= dim + lo: out -= 1
        grown.append((lo, max(hi, (out - 1) * t + (size - 1) * d + 1 - dim - lo)))
      pairs = grown
    if any([(size - 1) * d + 1 > dim + lo + hi for size, d, dim, (lo, hi) in zip(k, di, spatial, pairs)]):
      raise ShapeError(f"{name}: a kernel of {k} with dilation {di} does not fit into {spatial} with padding {tuple(pairs)}")
    every = ((0, 0),) * (len(s) - n) + tuple(pairs)
    return graph.windows(pad_value(u, every, fill), k, st, di), n, pairs

  def max_pool2d(self, kernel_size: Ints = (2, 2), stride: Ints | None = None, dilation: Ints = 1, padding: Padding = 0,
                 ceil_mode: bool = False) -> Self:
    """The greatest of each window of the last dims (2, or as many as the kernel has); stride None is the kernel's size.

    Raises ShapeError, ArgumentError.
    """
    lowest = dtypes.min(self.dtype)
    t, n, _ = self._pool("max_pool2d", kernel_size, stride, dilation, padding, ceil_mode, lowest)
    axes = tuple(range(len(t.shape) - n, len(t.shape)))
    fn = BinaryOps.OR if t.dtype.kind == "b" else BinaryOps.MAX
    return self._wrap(graph.drop(graph.reduce(fn, t, axes), axes))

  def avg_pool2d(self, kernel_size: Ints = (2, 2), stride: Ints | None = None, dilation: Ints = 1, padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True) -> Self:
    """The mean of each window of the last dims; padding counts as zeros unless told otherwise.

    Raises ShapeError, ArgumentError.
    """
    if self.dtype.kind != "f": raise DTypeError(f"avg_pool2d: a tensor of {self.dtype.name}; it takes floats (cast it first)")
    t, n, pairs = self._pool("avg_pool2d", kernel_size, stride, dilation, padding, ceil_mode, 0)
    axes = tuple(range(len(t.shape) - n, len(t.shape)))
    acc = graph.acc_dtype(t.dtype)
    total = graph.reduce(BinaryOps.ADD, graph.cast(t, acc), axes)
    size = math.prod(t.shape[len(t.shape) - n:])
    if ceil_mode or (not count_include_pad and any([lo or hi for lo, hi in pairs])):
      ones = type(self)(1.0, dtype=acc).expand(self.shape[len(self.shape) - n:])  # type: ignore[call-arg]
      if count_include_pad:  # only what the caller padded counts, not what ceil_mode added
        ones = ones.pad(tuple(_padding("avg_pool2d", padding, n)), value=1.0)
        pairs = [(0, hi - p) for (_, hi), (_, p) in zip(pairs, _padding("avg_pool2d", padding, n))]
      k = t.shape[len(t.shape) - n:]
      st = _numbers("avg_pool2d", "stride", k if stride is None else stride, n, 1)
      di = _numbers("avg_pool2d", "dilation", dilation, n, 1)
      there = graph.windows(graph.pad(ones.lazydata, pairs), k, st, di)
      counts = graph.reduce(BinaryOps.ADD, there, tuple(range(n, 2 * n)))
      divisor = graph.expand(graph.reshape(counts, (1,) * (len(total.shape) - 2 * n) + counts.shape), total.shape)
    else: divisor = graph.const(float(size), acc, total.shape)
    return self._wrap(graph.cast(graph.drop(graph.div(total, divisor), axes), t.dtype))

  # ---- normalisation
  def layernorm(self, axis: int | str | Sequence[int | str] = -1, eps: float = 1e-5) -> Self:
    """(x - mean) / sqrt(variance + eps) along axes; small floats are computed in float32. Raises AxisError."""
    u = self.lazydata
    if u.dtype.kind != "f": raise DTypeError(f"layernorm: a tensor of {u.dtype.name}; it takes floats (cast it first)")
    eps = real_number("layernorm", "eps", eps)
    axes = axes_of("layernorm", axis, len(u.shape), self._names)
    x = graph.cast(u, graph.acc_dtype(u.dtype))
    mean = self._mean_node(x, axes)
    d = graph.sub(x, graph.expand(mean, x.shape))
    var = self._mean_node(graph.mul(d, d), axes)
    inv = graph.unary(UnaryOps.RSQRT, graph.scalar(BinaryOps.ADD, var, eps))
    return self._wrap(graph.cast(graph.mul(d, graph.expand(inv, d.shape)), u.dtype))

  def rms_norm(self, axis: int | str | Sequence[int | str] = -1, eps: float = 1e-6) -> Self:
    """x / sqrt(mean(x²) + eps) along axes. Raises AxisError."""
    x = self.cast(graph.acc_dtype(self.dtype))
    return (x * (x.square().mean(axis, keepdim=True) + eps).rsqrt()).cast(self.dtype)

  def batchnorm(
    self, weight: Operand | None, bias: Operand | None, mean: Operand, invstd: Operand,
    axis: int | str | tuple[int | str, ...] = 1
  ) -> Self:
    """(x - mean) * invstd * weight + bias, statistics and parameters along the channel axes; weight and bias may be None.

    Each has the sizes of the channel axes in order, with or without dims of 1 for the others, or as many elements in one dim.
    Raises ShapeError.
    """
    axes = axes_of("batchnorm", axis, self.ndim, self._names)
    shape = tuple([s if i in axes else 1 for i, s in enumerate(self.shape)])
    channels = tuple([s for s in shape if s != 1])

    def along(what: str, t: Any) -> Any:
      if tuple([s for s in t.shape if s != 1]) not in (channels, tuple([s for s in (math.prod(shape),) if s != 1])):
        raise ShapeError(
          f"batchnorm: {what} of shape {t.shape} for input {self.shape} on axis {axis}; "
          f"it needs shape {tuple([self.shape[a] for a in axes])} or {shape}"
        )
      return t.reshape(shape)

    scale = along("invstd", invstd)
    if weight is not None:
      scale = scale * along("weight", weight)
    x = (self - along("mean", mean)) * scale
    return x if bias is None else x + along("bias", bias)
