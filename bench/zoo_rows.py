"""The rows of ``bench/zoo.py``: each kind of work once, with its inputs, what ntgrad computes and what torch computes.

A kind has as many sizes for a GPU as for a CPU, an odd one among them, and a tiny one for tests. Its functions get the inputs as
tensors; that of torch gets torch as well. With ``wrt`` the gradients for these inputs are part of the work; where the output is
not one number, its gradient is the last input. Whole models are in ``zoo_models.py``.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from ntgrad import Tensor

Sizes = tuple[int, ...]
PRODUCTS, CONVOLUTIONS, REDUCTIONS, NORMS = "products", "convolutions", "reductions", "row and column normalisation"
SCANS, MOVES, POINTS, INDEXING = "scans and sorts", "memory movement", "elementwise and random", "indexing"
LOSSES, STEPS, ATTENTION = "losses", "whole steps", "attention"
GROUPS = (PRODUCTS, CONVOLUTIONS, REDUCTIONS, NORMS, SCANS, MOVES, POINTS, INDEXING, LOSSES, STEPS, ATTENTION)
APART = (ATTENTION,)   # measured, no part of the verdict


@dataclass(frozen=True)
class Input:
  """An input: how its numbers are drawn. ``dtype`` is the row's where it is empty."""
  shape: Sizes
  draw: str = "normal"   # uniform, ints (below ``high``), signed (ints of a byte), mask
  high: int = 0
  dtype: str = ""


def normal(*shape: int, dtype: str = "") -> Input: return Input(shape, "normal", dtype=dtype)
def uniform(*shape: int) -> Input: return Input(shape, "uniform")
def ints(high: int, *shape: int) -> Input: return Input(shape, "ints", high, "int32")
def signed(*shape: int) -> Input: return Input(shape, "signed", dtype="int8")
def mask(*shape: int) -> Input: return Input(shape, "mask", dtype="bool")


@dataclass(frozen=True)
class Kind:
  """A kind of work."""
  name: str
  group: str
  inputs: Callable[..., list[Input]]
  ours: Callable[..., Any] | None                 # None: ntgrad has no such function
  theirs: Callable[..., Any]                      # of torch and the inputs
  gpu: Sequence[Sizes]
  cpu: Sequence[Sizes]
  tiny: Sizes
  dtype: str = "float32"
  cpu_dtype: str = "float32"
  wrt: Sizes = ()
  check: str = "close"                            # or random: the mean and the deviation of what is drawn; loss
  compile: bool = True                            # whether torch.compile may find something better than one call of a library
  last: bool = False                              # channels_last is tried
  model: str = ""                                 # a whole model of zoo_models.py, and what is done with it
  weight: float = 1.0                             # about how long it takes to measure, a plain row being 1


@dataclass(frozen=True)
class Row:
  """A kind of some size."""
  kind: Kind
  sizes: Sizes
  dtype: str

  @property
  def name(self) -> str: return f"{self.kind.name} {'×'.join(map(str, self.sizes))} {self.dtype}"
  @property
  def inputs(self) -> list[Input]: return self.kind.inputs(*self.sizes)
  @property
  def odd(self) -> bool: return any(n % 2 or n % 8 and n > 64 for n in self.sizes)


KINDS: list[Kind] = []


def kind(name: str, group: str, inputs: Any, ours: Any, theirs: Any, gpu: Any, cpu: Any, tiny: Any, **more: Any) -> None:
  """One more kind; sizes may be numbers where there is one of them."""
  def several(x: Any) -> Sizes: return x if isinstance(x, tuple) else (x,)
  KINDS.append(Kind(name, group, inputs, ours, theirs, [several(s) for s in gpu], [several(s) for s in cpu], several(tiny),
                    **more))


def rows(device: str) -> list[Row]:
  """All rows for a kind of device, CPU or CUDA, or of the tiny sizes (TINY)."""
  def of(k: Kind) -> Iterator[Row]:
    sizes = {"CPU": k.cpu, "CUDA": k.gpu, "TINY": [k.tiny]}[device]
    dtype = k.dtype if device == "CUDA" or k.dtype not in ("bfloat16", "float16") else k.cpu_dtype
    for s in sizes: yield Row(k, s, dtype)
  return [r for k in KINDS for r in of(k)]


# ---- products

BF16: dict[str, Any] = {"dtype": "bfloat16"}
PLAIN: dict[str, Any] = {"compile": False}


def cubes(*ns: int) -> list[Sizes]: return [(n, n, n) for n in ns]


def product(name: str, a: Any, b: Any, ours: Any, theirs: Any, gpu: Any, cpu: Any, **more: Any) -> None:
  """A matrix product of sizes m, k, n."""
  kind(name, PRODUCTS, lambda m, k, n: [a(m, k, n), b(m, k, n)], ours, theirs, gpu, cpu, (9, 8, 7), **{**PLAIN, **more})


def left(m: int, k: int, n: int) -> Input: return normal(m, k)
def right(m: int, k: int, n: int) -> Input: return normal(k, n)


product("matmul", left, right, lambda a, b: a @ b, lambda t, a, b: a @ b,
        [*cubes(512, 1024, 2048, 4096, 1000), (128, 4096, 16384), (64, 4096, 1024), (4096, 64, 1024), (4096, 4096, 16),
         (4097, 1001, 511)],
        [*cubes(128, 256, 512, 1024, 500), (32, 512, 2048), (16, 1024, 256), (1024, 16, 256), (1024, 1024, 16),
         (515, 251, 127)], **BF16)
product("matmul fp32", left, right, lambda a, b: a @ b, lambda t, a, b: a @ b, [(2048, 2048, 2048), (2047, 2049, 2051)],
        [(768, 768, 768), (767, 769, 771)])
product("aᵀ·b", lambda m, k, n: normal(k, m), right, lambda a, b: a.transpose(0, 1) @ b, lambda t, a, b: a.t() @ b,
        [(2048, 2048, 2048), (2049, 2047, 2045)], [(512, 512, 512), (513, 511, 509)], **BF16)
product("a·bᵀ", left, lambda m, k, n: normal(n, k), lambda a, b: a @ b.transpose(0, 1), lambda t, a, b: a @ b.t(),
        [(2048, 2048, 2048), (2049, 2047, 2045)], [(512, 512, 512), (513, 511, 509)], **BF16)
product("matmul fp64", left, right, lambda a, b: a @ b, lambda t, a, b: a @ b, [(1024, 1024, 1024), (1023, 1025, 1021)],
        [(384, 384, 384), (383, 385, 381)], dtype="float64")
product("matmul int8", lambda m, k, n: signed(m, k), lambda m, k, n: signed(k, n), lambda a, b: a.dot(b, dtype="int32"),
        lambda t, a, b: t._int_mm(a, b), [(2048, 2048, 2048), (2056, 2040, 2072)], [(512, 512, 512), (520, 504, 536)],
        dtype="int8")
kind("vector × matrix", PRODUCTS, lambda k, n: [normal(1, k), normal(k, n)], lambda a, b: a @ b, lambda t, a, b: a @ b,
     [(8192, 8192), (8191, 8193)], [(2048, 2048), (2047, 2049)], (8, 9), **BF16, **PLAIN)
kind("matrix × vector", PRODUCTS, lambda m, k: [normal(m, k), normal(k)], lambda a, b: a @ b, lambda t, a, b: a @ b,
     [(8192, 8192), (8191, 8193)], [(2048, 2048), (2047, 2049)], (8, 9), **BF16, **PLAIN)
kind("gelu(a·b + c)", PRODUCTS, lambda m, k, n: [normal(m, k), normal(k, n), normal(n)], lambda a, b, c: (a @ b + c).gelu(),
     lambda t, a, b, c: t.nn.functional.gelu(t.addmm(c, a, b), approximate="tanh"), [(4096, 4096, 4096), (4001, 4003, 4005)],
     [(512, 512, 512), (501, 503, 505)], (5, 6, 7), dtype="float16")
kind("batched matmul", PRODUCTS, lambda b, m, n, k: [normal(b, m, k), normal(b, k, n)], lambda a, b: a @ b,
     lambda t, a, b: t.bmm(a, b), [(256, 512, 512, 64), (255, 511, 513, 65)], [(16, 256, 256, 64), (15, 255, 257, 65)],
     (2, 5, 6, 3), **BF16, **PLAIN)


# ---- convolutions and other windows

def f(t: Any) -> Any: return t.nn.functional


LAST: dict[str, Any] = {"last": True, "dtype": "bfloat16"}

kind("conv 3×3", CONVOLUTIONS, lambda n, i, o, h: [normal(n, i, h, h), normal(o, i, 3, 3)], lambda x, w: x.conv2d(w, padding=1),
     lambda t, x, w: f(t).conv2d(x, w, padding=1), [(32, 256, 256, 28), (31, 255, 257, 27)], [(4, 64, 64, 28), (3, 63, 65, 27)],
     (2, 3, 4, 5), **LAST, **PLAIN)
kind("conv 3×3 forward, backward", CONVOLUTIONS, lambda n, i, o, h: [normal(n, i, h, h), normal(o, i, 3, 3), normal(n, o, h, h)],
     lambda x, w: x.conv2d(w, padding=1), lambda t, x, w: f(t).conv2d(x, w, padding=1),
     [(32, 128, 128, 28), (31, 127, 129, 27)], [(4, 32, 32, 28), (3, 31, 33, 27)], (2, 3, 4, 5), wrt=(0, 1), **LAST, **PLAIN)
kind("conv 7×7 from 3 channels, stride 2", CONVOLUTIONS, lambda n, o, h: [normal(n, 3, h, h), normal(o, 3, 7, 7)],
     lambda x, w: x.conv2d(w, stride=2, padding=3), lambda t, x, w: f(t).conv2d(x, w, stride=2, padding=3),
     [(64, 64, 224), (63, 65, 223)], [(4, 32, 112), (3, 31, 111)], (2, 3, 9), **LAST, **PLAIN)
kind("depthwise conv 3×3", CONVOLUTIONS, lambda n, c, h: [normal(n, c, h, h), normal(c, 1, 3, 3)],
     lambda x, w: x.conv2d(w, groups=w.shape[0], padding=1), lambda t, x, w: f(t).conv2d(x, w, groups=w.shape[0], padding=1),
     [(32, 256, 56), (31, 257, 55)], [(4, 64, 56), (3, 65, 55)], (2, 3, 5), **LAST)
kind("conv 1×1", CONVOLUTIONS, lambda n, i, o, h: [normal(n, i, h, h), normal(o, i, 1, 1)], lambda x, w: x.conv2d(w),
     lambda t, x, w: f(t).conv2d(x, w), [(32, 256, 512, 28), (31, 255, 513, 27)], [(4, 64, 128, 28), (3, 63, 129, 27)],
     (2, 3, 4, 5), **LAST, **PLAIN)
kind("max pool 3×3, stride 2", CONVOLUTIONS, lambda n, c, h: [normal(n, c, h, h)], lambda x: x.max_pool2d(3, stride=2, padding=1),
     lambda t, x: f(t).max_pool2d(x, 3, 2, 1), [(64, 64, 112), (63, 65, 111)], [(8, 32, 56), (7, 33, 55)], (2, 3, 8), **LAST)
kind("average pool 2×2", CONVOLUTIONS, lambda n, c, h: [normal(n, c, h, h)], lambda x: x.avg_pool2d(2),
     lambda t, x: f(t).avg_pool2d(x, 2), [(64, 64, 112), (63, 65, 111)], [(8, 32, 56), (7, 33, 55)], (2, 3, 8), **LAST)
kind("spectrogram, windows of 1024", CONVOLUTIONS, lambda b, n: [normal(b, n), normal(1024, 1026)],
     lambda x, w: (x.unfold(1, 1024, 256) @ w).square(), lambda t, x, w: (x.unfold(1, 1024, 256) @ w).square(),
     [(16, 262144), (15, 262153)], [(2, 16384), (1, 16393)], (1, 1800))


# ---- reductions

BIG, LITTLE, SMALL = [(8192, 8192), (8191, 8193)], [(2048, 2048), (2047, 2049)], (5, 7)


def reduction(name: str, ours: Any, theirs: Any, draw: Any = normal, **more: Any) -> None:
  """A reduction of a matrix."""
  kind(name, REDUCTIONS, lambda m, n: [draw(m, n)], ours, theirs, BIG, LITTLE, SMALL, **more)


reduction("sum over axis 0", lambda x: x.sum(0), lambda t, x: x.sum(0))
reduction("sum over axis 1", lambda x: x.sum(1), lambda t, x: x.sum(1), **BF16)
reduction("sum of all", lambda x: x.sum(), lambda t, x: x.sum(), uniform)
reduction("max over axis 0", lambda x: x.max(axis=0), lambda t, x: x.amax(0))
reduction("max of all", lambda x: x.max(), lambda t, x: x.amax(), **BF16)
reduction("argmax over axis 1", lambda x: x.argmax(1), lambda t, x: x.argmax(1))
reduction("variance over axis 1", lambda x: x.var(1), lambda t, x: x.var(1))
reduction("logsumexp over axis 0", lambda x: x.logsumexp(0), lambda t, x: x.logsumexp(0))


# ---- rows and columns normalised

def norm(name: str, inputs: Any, ours: Any, theirs: Any, gpu: Any, cpu: Any, tiny: Any = SMALL, **more: Any) -> None:
  """A normalisation."""
  kind(name, NORMS, inputs, ours, theirs, gpu, cpu, tiny, **more)


def matrix(m: int, n: int) -> list[Input]: return [normal(m, n)]
def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor: return x.layernorm() * w + b
def torch_layer_norm(t: Any, x: Any, w: Any, b: Any) -> Any: return f(t).layer_norm(x, (x.shape[-1],), w, b)


def batch_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
  """In training, as nn.BatchNorm has it."""
  mean = x.mean((0, 2, 3))
  centred = x - mean.detach().reshape(1, -1, 1, 1)
  return x.batchnorm(w, b, mean, ((centred * centred).mean((0, 2, 3)) + 1e-5).rsqrt())


def group_norm(x: Tensor) -> Tensor: return x.reshape(x.shape[0], 8, -1).layernorm().reshape(x.shape)


norm("softmax of rows", matrix, lambda x: x.softmax(-1), lambda t, x: x.softmax(-1), [(16384, 8192), (16383, 8191)], LITTLE,
     **BF16)
norm("softmax over axis 0", matrix, lambda x: x.softmax(0), lambda t, x: x.softmax(0), [(8192, 4096), (8191, 4097)], LITTLE)
norm("softmax of short rows", matrix, lambda x: x.softmax(-1), lambda t, x: x.softmax(-1), [(1048576, 64), (1048575, 63)],
     [(65536, 64), (65535, 63)], **BF16)
norm("masked softmax", lambda b, h, n, m: [normal(b, h, n, m), mask(b, 1, n, m)], lambda x, k: k.where(x, -math.inf).softmax(-1),
     lambda t, x, k: x.masked_fill(~k, -math.inf).softmax(-1), [(16, 4, 128, 128), (15, 4, 127, 129)],
     [(16, 4, 128, 128), (15, 4, 127, 129)], (2, 2, 9, 40))
norm("layer norm", lambda m, n: [normal(m, n), normal(n), normal(n)], layer_norm, torch_layer_norm,
     [(16384, 8192), (16383, 8191)], LITTLE, **BF16)
norm("layer norm with gradients", lambda m, n: [normal(m, n), normal(n), normal(n), normal(m, n)], layer_norm, torch_layer_norm,
     [(16384, 1024), (16383, 1023)], [(4096, 512), (4095, 511)], wrt=(0, 1, 2))
norm("rms norm", lambda m, n: [normal(m, n), normal(n)], lambda x, w: x.rms_norm() * w,
     lambda t, x, w: f(t).rms_norm(x, (x.shape[-1],), w, 1e-6), [(16384, 4096), (16383, 4097)], LITTLE, **BF16)
norm("batch norm with gradients", lambda n, c, h: [normal(n, c, h, h), normal(c), normal(c), normal(n, c, h, h)], batch_norm,
     lambda t, x, w, b: f(t).batch_norm(x, None, None, w, b, True), [(64, 256, 56), (63, 255, 55)], [(8, 32, 28), (7, 31, 27)],
     (2, 3, 5), wrt=(0, 1, 2), last=True)
norm("group norm", lambda n, c, h: [normal(n, c, h, h)], group_norm, lambda t, x: f(t).group_norm(x, 8),
     [(64, 256, 28), (63, 264, 27)], [(8, 64, 28), (7, 72, 27)], (2, 8, 3))


# ---- scans and sorts

def scan(name: str, inputs: Any, ours: Any, theirs: Any, gpu: Any, cpu: Any, tiny: Any = SMALL, **more: Any) -> None:
  """A scan or a sort."""
  kind(name, SCANS, inputs, ours, theirs, gpu, cpu, tiny, **more)


def has(name: str, fn: Any) -> Any: return fn if hasattr(Tensor, name) else None


SCAN = [(4096, 8192), (4095, 8191)], [(512, 2048), (511, 2047)]
scan("cumsum along rows", matrix, lambda x: x.cumsum(1), lambda t, x: x.cumsum(1), *SCAN)
scan("cumsum along columns", matrix, lambda x: x.cumsum(0), lambda t, x: x.cumsum(0), *SCAN)
scan("cumsum of a vector", lambda n: [uniform(n)], lambda x: x.cumsum(0), lambda t, x: x.cumsum(0), [1 << 24, (1 << 24) - 5],
     [1 << 20, (1 << 20) - 5], 700)
scan("sort of rows", matrix, has("sort", lambda x: x.sort(1)), lambda t, x: t.sort(x, 1), [(4096, 4096), (4095, 4097)],
     [(256, 1024), (255, 1025)])
scan("topk 16 of rows", matrix, has("topk", lambda x: x.topk(16, 1)[0]), lambda t, x: t.topk(x, 16, 1)[0], *SCAN, (5, 20))


# ---- memory movement

def move(name: str, inputs: Any, ours: Any, theirs: Any, gpu: Any = BIG, cpu: Any = LITTLE, tiny: Any = SMALL,
         **more: Any) -> None:
  """A copy in another order."""
  kind(name, MOVES, inputs, ours, theirs, gpu, cpu, tiny, **more)


FOUR = [(64, 256, 64, 64), (63, 255, 65, 63)], [(8, 64, 64, 32), (7, 63, 65, 31)], (2, 3, 4, 5)
move("transpose", matrix, lambda x: x.transpose(0, 1).contiguous(), lambda t, x: x.t().contiguous())
move("permute 0231", lambda *s: [normal(*s)], lambda x: x.permute(0, 2, 3, 1).contiguous(),
     lambda t, x: x.permute(0, 2, 3, 1).contiguous(), *FOUR, **BF16)
move("cat of three along axis 1", lambda m, n: [normal(m, n), normal(m, n), normal(m, n)], lambda *x: Tensor.cat(*x, dim=1),
     lambda t, *x: t.cat(x, 1))
move("pad by 3 and 5", matrix, lambda x: x.pad(((3, 5), (3, 5))), lambda t, x: f(t).pad(x, (3, 5, 3, 5)))
move("flip both axes", matrix, lambda x: x.flip(0, 1).contiguous(), lambda t, x: x.flip(0, 1))
move("every other row and third column", matrix, lambda x: x[::2, ::3].contiguous(), lambda t, x: x[::2, ::3].contiguous())
move("cast to bfloat16", matrix, lambda x: x.cast("bfloat16"), lambda t, x: x.to(t.bfloat16))


# ---- elementwise and random

def point(name: str, inputs: Any, ours: Any, theirs: Any, **more: Any) -> None:
  """Elementwise work."""
  kind(name, POINTS, inputs, ours, theirs, BIG, LITTLE, SMALL, **more)


point("gelu(2x + 1)·x", matrix, lambda x: (2 * x + 1).gelu() * x, lambda t, x: f(t).gelu(2 * x + 1, approximate="tanh") * x)
point("silu(x)·y, added to x", lambda m, n: [normal(m, n), normal(m, n)], lambda x, y: x + x.silu() * y,
      lambda t, x, y: x + f(t).silu(x) * y, **BF16)
point("x + y of a row and of a column", lambda m, n: [normal(1, n), normal(m, 1)], lambda x, y: x + y, lambda t, x, y: x + y)
point("dropout 0.1", lambda m, n: [uniform(m, n)], lambda x: x.dropout(0.1), lambda t, x: f(t).dropout(x, 0.1), check="random")
for _name, _ours, _theirs in (("rand", Tensor.rand, "rand"), ("randn", Tensor.randn, "randn")):
  kind(_name, POINTS, lambda n: [Input((n,), "size")], lambda x, g=_ours: g(*x.shape),
       lambda t, x, g=_theirs: getattr(t, g)(x.shape, device=x.device), [1 << 22, (1 << 22) - 3], [1 << 20, (1 << 20) - 3], 4096,
       check="random")


# ---- indexing

def index(name: str, inputs: Any, ours: Any, theirs: Any, gpu: Any, cpu: Any, tiny: Any, **more: Any) -> None:
  """Indices and what they choose."""
  kind(name, INDEXING, inputs, ours, theirs, gpu, cpu, tiny, **more)


EMBED = [(8192, 50257, 256), (8191, 50257, 255)], [(2048, 5000, 256), (2047, 5003, 255)], (6, 9, 5)
ALONG = [(4096, 8192, 2048), (4095, 8191, 2047)], [(512, 2048, 512), (511, 2047, 511)], (5, 9, 4)
index("embedding", lambda n, v, d: [normal(v, d), ints(v, n)], lambda w, i: w[i], lambda t, w, i: f(t).embedding(i, w), *EMBED)
index("embedding gradient", lambda n, v, d: [normal(v, d), ints(v, n), normal(n, d)], lambda w, i: w[i],
      lambda t, w, i: f(t).embedding(i, w), *EMBED, wrt=(0,))
index("gather along rows", lambda m, n, k: [normal(m, n), ints(n, m, k)], lambda x, i: x.gather(1, i),
      lambda t, x, i: t.gather(x, 1, i), *ALONG)
index("columns by index", lambda m, n, k: [normal(m, n), ints(n, k)], lambda x, i: x[:, i],
      lambda t, x, i: t.index_select(x, 1, i), *ALONG)
index("add at indices along rows", lambda m, n, k: [normal(m, n), ints(n, m, k), normal(m, k)],
      lambda x, i, y: x.scatter(1, i, y, reduce="add"), lambda t, x, i, y: x.scatter_add(1, i, y), *ALONG)
index("one-hot of 1000", lambda n: [ints(1000, n)], lambda i: i.one_hot(1000).float(), lambda t, i: f(t).one_hot(i, 1000).float(),
      [65536, 65535], [2048, 2047], 5)


# ---- losses

def loss(name: str, inputs: Any, ours: Any, theirs: Any, gpu: Any = BIG, cpu: Any = LITTLE, tiny: Any = SMALL,
         **more: Any) -> None:
  """A loss of many values."""
  kind(name, LOSSES, inputs, ours, theirs, gpu, cpu, tiny, **more)


CLASSES = [(8192, 50257), (8191, 50257)], [(512, 8192), (511, 8191)], (5, 9)
def logits(n: int, c: int) -> list[Input]: return [normal(n, c), ints(c, n)]


loss("cross entropy", logits, lambda x, y: x.cross_entropy(y), lambda t, x, y: f(t).cross_entropy(x, y), *CLASSES)
loss("cross entropy with gradient", logits, lambda x, y: x.cross_entropy(y), lambda t, x, y: f(t).cross_entropy(x, y),
     *CLASSES, wrt=(0,))
loss("nll of log-softmax", logits, lambda x, y: x.log_softmax(-1).nll_loss(y),
     lambda t, x, y: f(t).nll_loss(x.log_softmax(-1), y), [(65536, 1000), (65535, 1001)], [(4096, 1000), (4095, 1001)], (5, 9))
loss("mse with gradient", lambda m, n: [normal(m, n), normal(m, n)], lambda x, y: x.mse_loss(y),
     lambda t, x, y: f(t).mse_loss(x, y), wrt=(0,))
loss("bce with logits, with gradient", lambda m, n: [normal(m, n), uniform(m, n)], lambda x, y: x.binary_crossentropy_logits(y),
     lambda t, x, y: f(t).binary_cross_entropy_with_logits(x, y), wrt=(0,))


# ---- whole steps, and attention

def step(name: str, model: str, inputs: Any, gpu: Any, cpu: Any, tiny: Any, **more: Any) -> None:
  """What is done with a whole model."""
  kind(name, STEPS, inputs, True, None, gpu, cpu, tiny, check="loss", model=model, **{"weight": 3.0, **more})


def tokens(layers: int, heads: int, vocabulary: int, batch: int, length: int) -> list[Input]:
  return [ints(vocabulary, batch, length), ints(vocabulary, batch, length)]


# layers, heads (of 64 channels), vocabulary, batch, tokens
SMALL_GPT = [(4, 4, 1000, 8, 128), (4, 4, 1001, 7, 129)], [(4, 4, 1000, 8, 128), (4, 4, 1001, 7, 129)], (1, 1, 7, 2, 4)
step("GPT-2, a training step", "gpt train", tokens, [(12, 12, 50257, 16, 1024), (12, 12, 50257, 5, 1001)],
     [(2, 6, 8192, 2, 128), (2, 6, 8191, 3, 101)], (1, 1, 11, 2, 4), weight=12.0, **BF16)
step("ResNet, a training step", "resnet train", lambda depth, n, h: [normal(n, 3, h, h), ints(1000, n)],
     [(50, 128, 224), (50, 64, 193)], [(18, 8, 32), (18, 7, 39)], (18, 2, 16), weight=12.0, last=True, **BF16)
step("transformer, forward", "gpt forward", tokens, *SMALL_GPT)
step("transformer, gradients", "gpt gradients", tokens, *SMALL_GPT)
step("LSTM of 64 steps, a training step", "lstm train", lambda b, d: [normal(b, 64, d), ints(10, b)], [(128, 256), (127, 255)],
     [(32, 64), (31, 65)], (2, 5))
step("perceptron 784-1024-1024-10, a training step", "perceptron train", lambda b: [normal(b, 784), ints(10, b)], [4096, 4001],
     [128, 125], 5)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor: return q.scaled_dot_product_attention(k, v, is_causal=True)
def torch_attend(t: Any, q: Any, k: Any, v: Any) -> Any: return f(t).scaled_dot_product_attention(q, k, v, is_causal=True)


HEADS = [(4, 16, 2048, 64), (3, 15, 2001, 64)], [(1, 4, 512, 64), (1, 3, 501, 64)], (1, 2, 9, 8)
kind("causal attention", ATTENTION, lambda *s: [normal(*s)] * 3, attend, torch_attend, *HEADS, **BF16)
kind("causal attention with gradients", ATTENTION, lambda *s: [normal(*s)] * 4, attend, torch_attend, *HEADS, wrt=(0, 1, 2),
     **BF16)


# ---- numbers

POOL = 1 << 20


def draw(i: Input, dtype: str, seed: int) -> np.ndarray[Any, Any]:
  """An input's numbers: a million different ones, over and over."""
  import ml_dtypes
  rng = np.random.default_rng(seed)
  n = math.prod(i.shape)
  own: Any = np.dtype(ml_dtypes.bfloat16) if (i.dtype or dtype) == "bfloat16" else np.dtype(i.dtype or dtype)
  some: Any
  if i.draw == "size": return np.zeros(i.shape, np.float32)
  if i.draw == "normal": some = rng.standard_normal(POOL, np.float32) if own.itemsize < 8 else rng.standard_normal(POOL)
  elif i.draw == "uniform": some = rng.random(POOL, np.float32)
  elif i.draw == "ints": some = rng.integers(0, i.high, POOL)
  elif i.draw == "signed": some = rng.integers(-128, 128, POOL)
  else: some = rng.random(POOL, np.float32) < 0.9
  return np.resize(some.astype(own), n).reshape(i.shape)


def tensors(row: Row, seed: int) -> list[np.ndarray[Any, Any]]:
  """A row's inputs, others for another seed."""
  return [draw(i, row.dtype, 1000 * seed + k) for k, i in enumerate(row.inputs)]


def computed(k: Kind) -> Callable[..., tuple[Any, ...]]:
  """What ntgrad computes of a kind that is no whole model: its outputs, and its gradients."""
  def run(*xs: Tensor) -> tuple[Any, ...]:
    assert k.ours is not None
    if not k.wrt:
      out = k.ours(*xs)
      return tuple(out) if isinstance(out, (tuple, list)) else (out,)
    with_upstream = k.group != LOSSES
    out = k.ours(*(xs[:-1] if with_upstream else xs))
    return (out, *out.gradient(*[xs[i] for i in k.wrt], gradient=xs[-1] if with_upstream else None))
  return run


def select(found: Sequence[Row], words: Sequence[str]) -> list[Row]:
  """The rows whose name or group has one of the words; all if there are none."""
  return [r for r in found if not words or any(w in r.name.lower() or w in r.kind.group for w in words)]


def shard(found: Sequence[Row], i: int, n: int) -> list[Row]:
  """Part i of n (from 1): the heaviest rows first, each to the part that has the least so far."""
  parts: list[list[Row]] = [[] for _ in range(n)]
  for r in sorted(found, key=lambda r: -r.kind.weight):
    min(parts, key=lambda p: sum(x.kind.weight for x in p)).append(r)
  return [r for r in found if r in parts[i - 1]]
