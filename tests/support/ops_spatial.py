"""The table of operations, continued: Spatial."""
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from . import reference as R
from .ops import rows

Array = np.ndarray[Any, Any]


# ---- convolution
def conv_transpose(x: Array, w: Array, b: Array, stride: int, padding: int, extra: int, dilation: int, groups: int) -> Array:
  """Every input element adds its kernel to the output; any number of spatial dims."""
  n = w.ndim - 2
  size = [(s - 1) * stride + (k - 1) * dilation + 1 for s, k in zip(x.shape[2:], w.shape[2:])]
  out = np.zeros((x.shape[0], w.shape[1] * groups, *[s + extra for s in size]))
  xs, ws = np.split(x, groups, 1), np.split(w, groups, 0)
  for at in np.ndindex(*x.shape[2:]):
    here = tuple([slice(i * stride, i * stride + (k - 1) * dilation + 1, dilation) for i, k in zip(at, w.shape[2:])])
    parts = [np.tensordot(a[(slice(None), slice(None), *at)], c, 1) for a, c in zip(xs, ws)]
    out[(slice(None), slice(None), *here)] += np.concatenate(parts, 1)
  inside = tuple([slice(padding, s - padding + extra) for s in size])
  return out[(slice(None), slice(None), *inside)] + b.reshape(1, -1, *[1] * n)


def columns(x: Array, size: Any, stride: int = 1, padding: int = 0, dilation: int = 1) -> Array:
  t = R.windows(R.pads(x, 2, padding), size, (stride,) * 2, (dilation,) * 2)
  return t.transpose(0, 1, 4, 5, 2, 3).reshape(x.shape[0], x.shape[1] * math.prod(size), -1)


def images(t: Array, out: Any, size: Any, stride: int, padding: int) -> Array:
  h, w = out[0] + 2 * padding, out[1] + 2 * padding
  rows_, cols = (h - size[0]) // stride + 1, (w - size[1]) // stride + 1
  t = t.reshape(t.shape[0], -1, *size, rows_, cols)
  y = np.zeros((*t.shape[:2], h, w))
  for i, j in np.ndindex(rows_, cols):
    y[:, :, i * stride:i * stride + size[0], j * stride:j * stride + size[1]] += t[..., i, j]
  return y[:, :, padding:h - padding, padding:w - padding]


C1, C2 = ((2, 4, 7), "any"), ((2, 4, 5, 4), "any")
rows(
  "convolution", (C1, ((6, 4, 3), "any"), ((6,), "any")),
  ("conv1d", lambda x, w, b: x.conv1d(w, b, stride=2, padding=1), lambda x, w, b: R.conv(x, w, b, stride=2, padding=1)),
  ("same", lambda x, w, b: x.conv1d(w, b, padding="same", dilation=2),
   lambda x, w, b: R.conv(x, w, b, dilation=2, padding=((2, 2),))),
  ("valid without a batch", lambda x, w, b: x[0].conv1d(w, b, padding="valid"), lambda x, w, b: R.conv(x[:1], w, b)[0]),
  ("conv3d", lambda x, w, b: x.reshape(1, 2, 4, 7, 1).conv3d(w.reshape(4, 2, 3, 3, 1), padding=(1, 0, 0)),
   lambda x, w, b: R.conv(x.reshape(1, 2, 4, 7, 1), w.reshape(4, 2, 3, 3, 1), padding=((1, 1), (0, 0), (0, 0)))),
  ("transpose1d", lambda x, w, b: x.conv_transpose1d(w.reshape(4, 6, 3), b, stride=2, padding=1, output_padding=1),
   lambda x, w, b: conv_transpose(x, w.reshape(4, 6, 3), b, 2, 1, 1, 1, 1)),
  ("transpose2d", lambda x, w, b: x.reshape(1, 2, 4, 7).conv_transpose2d(
     w.reshape(2, 3, 3, 4), b, groups=2, stride=3, dilation=2, output_padding=1),
   lambda x, w, b: conv_transpose(x.reshape(1, 2, 4, 7), w.reshape(2, 3, 3, 4), b, 3, 0, 1, 2, 2)),
  ("transpose3d", lambda x, w, b: x.reshape(2, 2, 7, 2, 1).conv_transpose3d(w.reshape(2, 6, 3, 2, 1), b, dilation=(1, 2, 1)),
   lambda x, w, b: conv_transpose(x.reshape(2, 2, 7, 2, 1), np.insert(w.reshape(2, 6, 3, 2, 1), 1, 0, 3), b, 1, 0, 0, 1, 1)),
  composed=True, tol=64, sizes=False,
)
rows(
  "convolution", C2,
  ("im2col", lambda x: x.im2col((3, 2), stride=2, padding=1), lambda x: columns(x, (3, 2), 2, 1), {"kinds": "fi", "tol": 0}),
  ("col2im", lambda x: x.reshape(2, 8, 10).col2im((6, 3), (2, 2)), lambda x: images(x.reshape(2, 8, 10), (6, 3), (2, 2), 1, 0)),
  ("col2im padded", lambda x: x.reshape(2, 8, 10)[:, :, :4].col2im((3, 2), (2, 2), stride=2, padding=1),
   lambda x: images(x.reshape(2, 8, 10)[:, :, :4], (3, 2), (2, 2), 2, 1)),
  composed=True, tol=8, sizes=False,
)


# ---- pooling
def places(x: Array, size: Any, stride: Any, padding: int = 0) -> Array:
  """Where the greatest of each window is in the flattened last two dims."""
  low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
  t = R.windows(R.pads(x, 2, padding, low), size, stride, (1, 1))
  at = R.windows(R.pads(np.arange(x.shape[-2] * x.shape[-1]).reshape(x.shape[-2:]), 2, padding), size, stride, (1, 1))
  best = t.reshape(*t.shape[:-2], -1).argmax(-1)
  at = np.broadcast_to(at.reshape(*at.shape[:2], -1), (*best.shape, size[0] * size[1]))
  return np.take_along_axis(at, best[..., None], -1)[..., 0]


def parts(size: int, out: int) -> list[slice]: return [slice(o * size // out, -(-(o + 1) * size // out)) for o in range(out)]
def adaptive(x: Array, sizes: Any, fn: Any) -> Array:
  n = len(sizes)
  cells = itertools.product(*[parts(s, t) for s, t in zip(x.shape[-n:], sizes)])
  out = np.stack([fn(x[(..., *at)], axis=tuple(range(-n, 0))) for at in cells], -1)
  return out.reshape(*x.shape[:-n], *sizes)


def ceiled(x: Array, fn: Any) -> Array:
  """Windows of 3 by 3, 2 apart, of which the last ones may end outside."""
  (h, w), out = x.shape[-2:], [-(-(s - 3) // 2) + 1 for s in x.shape[-2:]]
  cells = [x[..., 2 * i:min(2 * i + 3, h), 2 * j:min(2 * j + 3, w)] for i, j in np.ndindex(*out)]
  return np.stack([fn(c, axis=(-2, -1)) for c in cells], -1).reshape(*x.shape[:-2], *out)


def unpooled(x: Array) -> Array:
  y = np.zeros((2, 3, 42))
  np.put_along_axis(y, places(x, (2, 2), (2, 2)).reshape(2, 3, -1), R.max_pool(x, (2, 2)).reshape(2, 3, -1), 2)
  return y.reshape(2, 3, 6, 7)


P = ((2, 3, 6, 7), "distinct")
rows(
  "pooling", P,
  ("max_pool1d", lambda x: x.max_pool1d(3, 2, padding=1),
   lambda x: R.max_pool(R.pads(x, 1, 1, -99), (1, 3), (1, 2)), {"kinds": "fi"}),
  ("max_pool3d", lambda x: x.max_pool3d((2, 3, 2), 1), lambda x: R.windows(x, (2, 3, 2), (1,) * 3, (1,) * 3).max((-3, -2, -1))),
  ("ceil_mode", lambda x: x[..., :6].max_pool2d(3, 2, ceil_mode=True), lambda x: ceiled(x[..., :6], np.max), {"tol": 0}),
  ("avg ceil_mode", lambda x: x[..., :6].avg_pool2d(3, 2, ceil_mode=True), lambda x: ceiled(x[..., :6], np.mean)),
  ("avg_pool1d", lambda x: x.avg_pool1d(3, 2), lambda x: R.avg_pool(x, (1, 3), (1, 2))),
  ("avg_pool3d", lambda x: x.avg_pool3d(2, 1, divisor_override=3),
   lambda x: R.windows(x, (2,) * 3, (1,) * 3, (1,) * 3).sum((-3, -2, -1)) / 3),
  ("lp_pool2d", lambda x: x.lp_pool2d(4, 2),
   lambda x: R.windows(x ** 4, (2, 2), (2, 2), (1, 1)).sum((-2, -1)) ** (1 / 4), {"tol": 32}),
  ("lp_pool2d of abs", lambda x: x.abs().lp_pool2d(3, 2),
   lambda x: R.windows(np.abs(x) ** 3, (2, 2), (2, 2), (1, 1)).sum((-2, -1)) ** (1 / 3), {"tol": 32}),
  ("lp_pool2d odd", lambda x: x.lp_pool2d(3, 2),
   lambda x: R.windows(x ** 3, (2, 2), (2, 2), (1, 1)).sum((-2, -1)) ** (1 / 3), {"tol": 32, "grad": False}),
  ("unpool", lambda x: x.max_pool2d(2, return_indices=True)[0].max_unpool2d(
     x.max_pool2d(2, return_indices=True)[1], 2, output_size=(6, 7)), unpooled, {"tol": 0}),
  ("adaptive_avg", lambda x: x.adaptive_avg_pool2d((3, 3)), lambda x: adaptive(x, (3, 3), np.mean)),
  ("adaptive_avg 1d", lambda x: x.adaptive_avg_pool1d(5), lambda x: adaptive(x, (5,), np.mean)),
  ("adaptive_avg 3d", lambda x: x.adaptive_avg_pool3d((2, None, 3)), lambda x: adaptive(x, (2, 6, 3), np.mean)),
  ("adaptive_max", lambda x: x.adaptive_max_pool2d((4, 7)), lambda x: adaptive(x, (4, 7), np.max), {"kinds": "fi"}),
  ("adaptive_max 1d", lambda x: x.adaptive_max_pool1d(9), lambda x: adaptive(x, (9,), np.max)),
  composed=True, tol=8, sizes=False, special=False,
)
rows(
  "pooling", P,
  ("indices", lambda x: x.max_pool2d((3, 2), 1, padding=1, return_indices=True)[1], lambda x: places(x, (3, 2), (1, 1), 1)),
  ("adaptive indices", lambda x: x.adaptive_max_pool2d((2, 7), return_indices=True)[1], lambda x: places(x, (3, 1), (3, 1))),
  composed=True, kinds="f", out="int32", grad=False, sizes=False, special=False,
)


# ---- interpolation
def matrix(size: int, out: int, mode: str, corners: bool = False) -> Array:
  """(out, size): how much of each element is in each of the result."""
  m = np.zeros((out, size))
  for o in range(out):
    if mode == "nearest": m[o, o * size // out] = 1
    elif mode == "nearest-exact": m[o, (2 * o + 1) * size // (2 * out)] = 1
    elif mode == "area": m[o, parts(size, out)[o]] = 1 / (parts(size, out)[o].stop - parts(size, out)[o].start)
    else:
      c = o * (size - 1) / max(out - 1, 1) if corners else (o + 0.5) * size / out - 0.5
      if mode != "bicubic": c = min(max(c, 0), size - 1)
      for j in range(math.floor(c) - 1, math.floor(c) + 3):
        d, a = abs(c - j), -0.75
        near, far = ((a + 2) * d - a - 3) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        m[o, min(max(j, 0), size - 1)] += (near if d <= 1 else far if d < 2 else 0) if mode == "bicubic" else max(0, 1 - d)
  return m


def resized(x: Array, sizes: Any, mode: str, corners: bool = False) -> Array:
  for d, out in enumerate(sizes, 2): x = np.moveaxis(np.tensordot(matrix(x.shape[d], out, mode, corners), x, (1, d)), 0, d)
  return x


Z = ((2, 3, 4, 6), "any")
rows(
  "interpolate", Z,
  ("nearest twice", lambda x: x.interpolate(scale_factor=2), lambda x: x.repeat(2, 2).repeat(2, 3), {"tol": 0, "kinds": "fiub"}),
  ("nearest", lambda x: x.interpolate((7, 5)), lambda x: x[:, :, np.arange(7) * 4 // 7][..., np.arange(5) * 6 // 5],
   {"tol": 0, "kinds": "fiub"}),
  ("exact", lambda x: x.interpolate((2, 9), mode="nearest-exact"), lambda x: resized(x, (2, 9), "nearest-exact"), {"tol": 0}),
  ("bilinear twice", lambda x: x.interpolate(scale_factor=2, mode="bilinear"), lambda x: resized(x, (8, 12), "linear")),
  ("bilinear half", lambda x: x.interpolate((2, 3), mode="bilinear"), lambda x: resized(x, (2, 3), "linear")),
  ("bilinear odd", lambda x: x.interpolate((7, 11), mode="bilinear"), lambda x: resized(x, (7, 11), "linear")),
  ("corners", lambda x: x.interpolate((8, 9), mode="bilinear", align_corners=True), lambda x: resized(x, (8, 9), "linear", True)),
  ("linear", lambda x: x[:, :, 0].interpolate(9, mode="linear"), lambda x: resized(x[:, :, 0], (9,), "linear")),
  ("trilinear", lambda x: x.unsqueeze(1).interpolate((6, 6, 9), mode="trilinear"),
   lambda x: resized(x[:, None], (6, 6, 9), "linear")),
  ("bicubic", lambda x: x.interpolate(scale_factor=2, mode="bicubic"), lambda x: resized(x, (8, 12), "bicubic")),
  ("bicubic odd", lambda x: x.interpolate((3, 7), mode="bicubic", align_corners=True),
   lambda x: resized(x, (3, 7), "bicubic", True)),
  ("area", lambda x: x.interpolate((3, 3), mode="area"), lambda x: resized(x, (3, 3), "area")),
  composed=True, tol=16, sizes=False, special=False,
)
rows(
  "interpolate", ((2, 8, 2, 4), "any"),
  ("pixel_shuffle", lambda x: x.pixel_shuffle(2),
   lambda x: x.reshape(2, 2, 2, 2, 2, 4).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 8)),
  ("pixel_unshuffle", lambda x: x.pixel_unshuffle(2),
   lambda x: x.reshape(2, 8, 1, 2, 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(2, 32, 1, 2)),
  composed=True, tol=0, kinds="fiub", sizes=False,
)


# ---- normalisation
def scaled(x: Array, axes: Any, w: Array, b: Array) -> Array:
  s = (1, -1, *[1] * (x.ndim - 2))
  return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5) * w.reshape(s) + b.reshape(s)


def local(x: Array, size: int) -> Array:
  squares = np.pad(x * x, ((0, 0), (size // 2, (size - 1) // 2), (0, 0)))
  around = np.lib.stride_tricks.sliding_window_view(squares, size, 1).mean(-1)
  return x / (1.5 + 0.3 * around) ** 0.75


rows(
  "normalise", (((3, 4, 5), "any"), ((4,), "any"), ((4,), "any"), ((4,), "any"), ((4,), "pos")),
  ("layer_norm", lambda x, w, b, m, v: x.transpose(1, 2).layer_norm(4, w, b),
   lambda x, w, b, m, v: R.layernorm(x.swapaxes(1, 2)) * w + b),
  ("rms_norm", lambda x, w, b, m, v: x.transpose(1, 2).rms_norm((4,), w, 1e-5),
   lambda x, w, b, m, v: x.swapaxes(1, 2) / np.sqrt((x * x).mean(1)[..., None] + 1e-5) * w),
  ("batch_norm", lambda x, w, b, m, v: x.batch_norm(m, v, w, b),
   lambda x, w, b, m, v: (x - m[:, None]) / np.sqrt(v[:, None] + 1e-5) * w[:, None] + b[:, None]),
  ("batch_norm training", lambda x, w, b, m, v: x.batch_norm(None, None, w, b, True),
   lambda x, w, b, m, v: scaled(x, (0, 2), w, b)),
  ("instance_norm", lambda x, w, b, m, v: x.instance_norm(weight=w, bias=b), lambda x, w, b, m, v: scaled(x, 2, w, b)),
  ("group_norm", lambda x, w, b, m, v: x.group_norm(2, w, b),
   lambda x, w, b, m, v: scaled(x.reshape(3, 2, 10), 2, np.ones(2), np.zeros(2)).reshape(3, 4, 5) * w[:, None] + b[:, None]),
  ("local_response_norm", lambda x, w, b, m, v: x.local_response_norm(3, 0.3, 0.75, 1.5), lambda x, w, b, m, v: local(x, 3)),
  ("local_response_norm wide", lambda x, w, b, m, v: x.local_response_norm(9, 0.3, 0.75, 1.5), lambda x, w, b, m, v: local(x, 9)),
  composed=True, tol=32, sizes=False, special=False,
)

# ---- padding
rows(
  "padding", ((2, 3, 4), "any"),
  ("reflect", lambda a: a.pad((2, -1, -1, 2), mode="reflect"),
   lambda a: np.pad(a, ((0, 0), (0, 2), (2, 0)), "reflect")[:, 1:, :-1]),
  ("replicate", lambda a: a.pad((-1, 5, 2, 0), mode="replicate"), lambda a: np.pad(a, ((0, 0), (2, 0), (0, 5)), "edge")[..., 1:]),
  ("circular", lambda a: a.pad((2, -1, 0, 3), mode="circular"), lambda a: np.pad(a[..., :-1], ((0, 0), (0, 3), (2, 0)), "wrap")),
  ("constant", lambda a: a.pad(((1, -1), (-1, -1), (0, 3)), value=1),
   lambda a: np.pad(a[:1, 1:2], ((1, 0), (0, 0), (0, 3)), constant_values=1)),
  composed=True, tol=0, kinds="fiub", sizes=False,
)
