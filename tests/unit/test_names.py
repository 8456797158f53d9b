"""Names of dimensions: where operations put them, what is said where they do not fit, and that values do not know of them."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ntgrad import Device, Tensor, jit, nn, no_grad
from ntgrad.errors import ArgumentError, AssignError, AxisError, NtgradError, ShapeError
from ntgrad.graph.dimension_names import regrouped
from ntgrad.nn import optim, state


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None


def counted(*shape: int) -> Tensor:
  return Tensor(np.arange(math.prod(shape), dtype=np.float32).reshape(shape) / 7, device="NUMPY")


X, W, V, K, M = counted(2, 3, 4), counted(4, 5), counted(4), counted(2, 4, 3), counted(4, 4)
IMAGE, KERNEL, ONE = counted(1, 2, 5, 5), counted(3, 2, 2, 2), counted(1, 5, 1)
INDEX = Tensor([[1, 0], [2, 1]], device="NUMPY")
B, T, C = "batch", "time", "channels"
BTC = (B, T, C)


def same(got: Tensor, plain: Tensor) -> bool:
  """The same node of the graph, since values know nothing of names; where memory is new at every call, the same values."""
  return got.lazydata is plain.lazydata or np.array_equal(got.numpy(), plain.numpy(), equal_nan=got.dtype.kind == "f")


def called(t: Tensor, names: tuple[str | None, ...]) -> Tensor:
  return t.named(*names)


# what is done, with which tensors, their names, the names of the result
ONE_TENSOR: dict[str, tuple[Callable[[Any], Any], tuple[str | None, ...]]] = {
  "exp": (lambda x: x.exp(), BTC),
  "neg": (lambda x: -x, BTC),
  "abs": (lambda x: abs(x), BTC),
  "sign": (lambda x: x.sign(), BTC),
  "x + 1": (lambda x: x + 1, BTC),
  "1 / x": (lambda x: 1 / x, BTC),
  "x ** 0": (lambda x: x**0, BTC),
  "x ** 2": (lambda x: x**2, BTC),
  "x < 1": (lambda x: x < 1, BTC),
  "maximum": (lambda x: x.maximum(1), BTC),
  "clamp": (lambda x: x.clamp(0, 1), BTC),
  "x + array": (lambda x: x + np.ones(4, np.float32), BTC),
  "array * x": (lambda x: np.ones(4, np.float32) * x, BTC),
  "where": (lambda x: (x > 0).where(x, 0), BTC),
  "masked_fill": (lambda x: x.masked_fill(x > 1, 0), BTC),
  "x + x": (lambda x: x + x, BTC),
  "x - mean": (lambda x: x - x.mean(2, keepdim=True), BTC),
  "x - mean of time": (lambda x: x - x.mean((0, 1)), BTC),
  "cast": (lambda x: x.int(), BTC),
  "bitcast": (lambda x: x.bitcast("int32"), BTC),
  "half": (lambda x: x.half().gelu(), BTC),
  "detach": (lambda x: x.detach(), BTC),
  "contiguous": (lambda x: x.contiguous(), BTC),
  "clone": (lambda x: x.clone(), BTC),
  "to": (lambda x: x.to("CPU"), BTC),
  "Tensor": (lambda x: Tensor(x), BTC),
  "relu": (lambda x: x.relu(), BTC),
  "silu": (lambda x: x.silu(), BTC),
  "gelu": (lambda x: x.gelu(), BTC),
  "sigmoid": (lambda x: x.sigmoid(), BTC),
  "softmax": (lambda x: x.softmax(1), BTC),
  "log_softmax": (lambda x: x.log_softmax(-1), BTC),
  "layernorm": (lambda x: x.layernorm(), BTC),
  "rms_norm": (lambda x: x.rms_norm(), BTC),
  "cumsum": (lambda x: x.cumsum(1), BTC),
  "tril": (lambda x: x.tril(), BTC),
  # movement
  "permute": (lambda x: x.permute(2, 0, 1), (C, B, T)),
  "transpose": (lambda x: x.transpose(0, 2), (C, T, B)),
  "T": (lambda x: x.T, (C, T, B)),
  "mT": (lambda x: x.mT, (B, C, T)),
  "reshape, split": (lambda x: x.reshape(2, 3, 2, 2), (B, T, None, None)),
  "reshape, merge": (lambda x: x.reshape(6, 4), (None, C)),
  "reshape, all": (lambda x: x.reshape(-1), (None,)),
  "reshape, 1 at the end": (lambda x: x.reshape(2, 3, 4, 1), (*BTC, None)),
  "flatten": (lambda x: x.flatten(1), (B, None)),
  "flatten one": (lambda x: x.flatten(1, 1), BTC),
  "unflatten": (lambda x: x.unflatten(2, (2, 2)), (B, T, None, None)),
  "unsqueeze": (lambda x: x.unsqueeze(1), (B, None, T, C)),
  "unsqueeze, squeeze": (lambda x: x.unsqueeze(1).squeeze(1), BTC),
  "expand": (lambda x: x.expand(5, 2, 3, 4), (None, *BTC)),
  "expand as": (lambda x: x[:1].expand_as(X), BTC),
  "shrink": (lambda x: x.shrink(((0, 1), None, (1, 3))), BTC),
  "flip": (lambda x: x.flip(0), BTC),
  "pad": (lambda x: x.pad(((0, 0), (1, 1), (0, 2))), BTC),
  "pad, reflect": (lambda x: x.pad(((0, 0), (1, 1), (0, 2)), "reflect"), BTC),
  "pad, negative": (lambda x: x.pad(((0, 0), (-1, 1), (0, 0))), BTC),
  "roll": (lambda x: x.roll(1, 1), BTC),
  "roll all": (lambda x: x.roll(1), BTC),
  "repeat": (lambda x: x.repeat(1, 2, 1), BTC),
  "repeat in front": (lambda x: x.repeat(2, 1, 1, 1), (None, *BTC)),
  "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), BTC),
  "split": (lambda x: x.split(2, 1)[1], BTC),
  "chunk": (lambda x: x.chunk(2, 1)[0], BTC),
  "unbind": (lambda x: x.unbind(1)[0], (B, C)),
  "unfold": (lambda x: x.unfold(2, 2, 1), (*BTC, None)),
  "windows": (lambda x: x.windows((2, 2)), (*BTC, None, None)),
  # parts
  "int": (lambda x: x[1], (T, C)),
  "-int": (lambda x: x[..., -1], (B, T)),
  "slice": (lambda x: x[:, 1:], BTC),
  "step": (lambda x: x[:, ::2, ::-1], BTC),
  "None": (lambda x: x[:, None, 0], (B, None, C)),
  "list": (lambda x: x[:, [0, 2]], (B, None, C)),
  "tensor": (lambda x: x[:, INDEX], (B, None, None, C)),
  "tensor and int": (lambda x: x[0, INDEX], (None, None, C)),
  "tensor, apart from an int": (lambda x: x[0, :, INDEX], (T, None, None)),
  "two tensors": (lambda x: x[Tensor([0, 1]), :, Tensor([1, 1])], (None, T)),
  "gather": (lambda x: x.gather(1, Tensor(np.zeros((2, 2, 4), np.int32))), (B, None, C)),
  "scatter": (lambda x: x.scatter(1, Tensor(np.zeros((2, 2, 4), np.int32)), 1.0), BTC),
  # reductions
  "sum": (lambda x: x.sum(1), (B, C)),
  "sum all": (lambda x: x.sum(), ()),
  "sum keepdim": (lambda x: x.sum(1, keepdim=True), BTC),
  "mean": (lambda x: x.mean((0, 2)), (T,)),
  "max": (lambda x: x.max(axis=0), (T, C)),
  "var": (lambda x: x.var(-1), (B, T)),
  "std": (lambda x: x.std(0), (T, C)),
  "norm": (lambda x: x.norm(axis=2), (B, T)),
  "prod": (lambda x: x.prod(0), (T, C)),
  "any": (lambda x: x.any(0), (T, C)),
  "argmax": (lambda x: x.argmax(1), (B, C)),
  "argmin keepdim": (lambda x: x.argmin(1, keepdim=True), BTC),
  "argmax all": (lambda x: x.argmax(), ()),
  "logsumexp": (lambda x: x.logsumexp(2), (B, T)),
  "max_pool2d": (lambda x: x.max_pool2d((1, 2)), BTC),
  "avg_pool2d": (lambda x: x.avg_pool2d((1, 2)), BTC),
  # products
  "dot": (lambda x: x.dot(W), (B, T, None)),
  "vector": (lambda x: x.dot(V), (B, T)),
  "batches": (lambda x: x @ K, (B, T, None)),
  "reversed": (lambda x: K.dot(x), (B, None, C)),
  "linear": (lambda x: x.linear(W, Tensor([1.0] * 5)), (B, T, None)),
  "einsum": (lambda x: Tensor.einsum("btc,co->bot", x, W), (B, None, T)),
  "attention": (lambda x: x.scaled_dot_product_attention(x, x), BTC),
  "causal": (lambda x: x.scaled_dot_product_attention(X, X, is_causal=True), (B, T, None)),
  "attention's values": (lambda x: X.scaled_dot_product_attention(X, x), (B, None, C)),
  # the rest
  "cat": (lambda x: x.cat(X, dim=1), BTC),
  "stack": (lambda x: Tensor.stack(X, x, dim=1), (B, None, T, C)),
  "zeros_like": (lambda x: x.zeros_like(), BTC),
  "one_hot": (lambda x: x.int().one_hot(3), (*BTC, None)),
  "mse_loss": (lambda x: x.mse_loss(X, reduction="none"), BTC),
  "cross_entropy": (lambda x: x.cross_entropy(INDEX.expand(2, 2)[:, [0, 1, 1, 0]], "none"), (B, C)),
  "nll_loss": (lambda x: x.nll_loss([[0, 1, 2, 0]] * 2, V[:3], reduction="none"), (B, C)),
  "loss": (lambda x: x.cross_entropy([[0, 1, 2, 0]] * 2), ()),
}


@pytest.mark.parametrize("name", ONE_TENSOR)
def test_names_follow(name: str) -> None:
  fn, want = ONE_TENSOR[name]
  plain, got = fn(X), fn(called(X, BTC))
  assert got.names == want and plain.names == (None,) * plain.ndim
  assert same(got, plain)
  assert got.shape == plain.shape and got.dtype is plain.dtype


OTHERS: dict[str, tuple[Callable[..., Any], list[tuple[Tensor, tuple[str | None, ...]]], tuple[str | None, ...]]] = {
  "broadcast": (lambda a, b: a + b, [(X, (B, None, None)), (V, (C,))], (B, None, C)),
  "the second's": (lambda a, b: a * b, [(X, ()), (V, (C,))], (None, None, C)),
  "one node, names apart": (
    lambda a, b: a.reshape(4, 1, 4) * b.reshape(1, 4, 4),
    [(M, ("i", "k")), (M, ("j", "k"))],
    ("i", "j", "k"),
  ),
  "matmul of one node": (lambda a, b: a @ b, [(M, ("i", "k")), (M, ("k", "j"))], ("i", "j")),
  "a tensor and its transpose": (lambda a, b: a @ b.T, [(M, ("i", "k")), (M, ("j", "k"))], ("i", "j")),
  "int + float": (lambda a, b: a.int() + b, [(M, ("i", None)), (M, (None, "k"))], ("i", "k")),
  "where": (lambda a, b: (a > 0).where(a, b), [(X, (B, None, None)), (V, (C,))], (B, None, C)),
  "dot": (lambda a, b: a @ b, [(X, BTC), (W, (C, "out"))], (B, T, "out")),
  "batches": (lambda a, b: a @ b, [(X, (None, T, C)), (K, (B, C, "out"))], (B, T, "out")),
  "vectors": (lambda a, b: a @ b, [(V, (C,)), (V, (C,))], ()),
  "vector and matrix": (lambda a, b: a @ b, [(V, (C,)), (W, (C, "out"))], ("out",)),
  "vector and batches": (lambda a, b: a @ b, [(V, (C,)), (K, (B, C, "out"))], (B, "out")),
  "outer": (lambda a, b: a.outer(b), [(V, ("i",)), (V, ("j",))], ("i", "j")),
  "einsum": (lambda a, b: Tensor.einsum("ij,kj->ik", a, b), [(M, ("i", "j")), (M, ("k", "j"))], ("i", "k")),
  "cat": (lambda a, b: a.cat(b, dim=1), [(X, (B, T, None)), (X, (None, None, C))], BTC),
  "stack": (lambda a, b: a.stack(b, dim=1), [(X, BTC), (X, BTC)], (B, None, T, C)),
  "meshgrid": (lambda a, b: a.meshgrid(b)[0] + a.meshgrid(b)[1], [(V, ("i",)), (ONE.reshape(5)[:1], ("j",))], ("i", "j")),
  "index": (lambda a, b: a[b], [(W, ("words", C)), (INDEX, (B, T))], (B, T, C)),
  "index in the middle": (lambda a, b: a[:, b], [(X, BTC), (INDEX, ("i", "j"))], (B, "i", "j", C)),
  "gather": (lambda a, b: a.gather(1, b), [(X, BTC), (INDEX.reshape(2, 2, 1), (None, "chosen", None))], (B, "chosen", C)),
  "cross_entropy": (lambda a, b: a.cross_entropy(b, "none"), [(M, (None, "classes")), (INDEX.reshape(4), (B,))], (B,)),
  "conv2d": (
    lambda a, b: a.conv2d(b),
    [(IMAGE, (B, C, "height", "width")), (KERNEL, ("out", C, None, None))],
    (B, "out", "height", "width"),
  ),
  "conv2d in groups": (
    lambda a, b: a.repeat(1, 3, 1, 1).conv2d(b, groups=3),
    [(IMAGE, (B, C, None, None)), (KERNEL, ("out", "part", None, None))],
    (B, "out", None, None),
  ),
  "conv_transpose2d": (
    lambda a, b: a.conv_transpose2d(b, stride=2),
    [(IMAGE, (B, C, "height", "width")), (KERNEL[:2], (C, "out", None, None))],
    (B, "out", "height", "width"),
  ),
  "a decoder's step": (lambda a, b: a @ b, [(X[:1, :1], BTC), (W, (C, "out"))], (B, T, "out")),
}


@pytest.mark.parametrize("name", OTHERS)
def test_names_meet(name: str) -> None:
  fn, tensors, want = OTHERS[name]
  got, plain = fn(*[called(t, n) for t, n in tensors]), fn(*[t for t, _ in tensors])
  assert got.names == want and same(got, plain)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_names_do_not_go_by_sizes(size: int) -> None:
  """A batch, a step or an image of one element, or of none, has the names that a larger one has."""
  x = Tensor.ones(size, 1, size).named(*BTC)
  assert x.sum("time").names == (B, C) and x.squeeze("time").names == (B, C) and x.unsqueeze(0).names == (None, *BTC)
  assert x[:, 0].names == (B, C) and x[None].names == (None, *BTC) and x.expand(3, size, 1, size).names == (None, *BTC)
  assert (x + Tensor.ones(1).named("channels")).names == BTC and x.softmax("channels").names == BTC
  assert (x @ Tensor.ones(size, 1).named("channels", "out")).names == (B, T, "out")
  assert [t.names for t in x.unbind("time")] == [(B, C)] and x.flatten(1).names == (B, None)
  assert x[None, 0].names == (None, T, C) if size else True
  if size:
    assert x.mean((0, 2)).names == (T,) and x.max(axis="batch").names == (T, C)


# ---- messages
x, y = counted(8, 128).named(B, T), counted(8, 64).named(B, T)
REFUSED: dict[str, tuple[Callable[[], Any], type[NtgradError], str]] = {
  "count": (
    lambda: X.named(B, T),
    ShapeError,
    "named: 2 names ('batch', 'time') for shape (2, 3, 4); give one for each dimension, None for a dimension without",
  ),
  "twice": (
    lambda: X.named(B, B, None),
    ArgumentError,
    "named: 'batch' stands 2 times in ('batch', 'batch', None) for shape (2, 3, 4); a name stands at one dimension",
  ),
  "no identifier": (
    lambda: X.named("a b", None, None),
    ArgumentError,
    "named: 'a b' in ('a b', None, None) for shape (2, 3, 4); a name is an identifier such as 'time', or None",
  ),
  "no text": (lambda: X.named(1, None, None), ArgumentError, "named: names is 1; it takes a string or None"),
  "names=": (
    lambda: setattr(Tensor.ones(2), "names", "i"),
    ArgumentError,
    "names: 'i'; it takes a tuple with a name or None for each dimension, or None",
  ),
  "sizes": (
    lambda: x + y[0],
    ShapeError,
    "add: 'time' is 128 in the first tensor and 64 in the second: shapes (batch 8, time 128) and (time 64)",
  ),
  "sizes of two names": (
    lambda: x * Tensor.ones(64).named(C),
    ShapeError,
    "mul: 'time' is 128 in the first tensor and 'channels' 64 in the second: shapes (batch 8, time 128) and (channels 64)",
  ),
  "sizes, one without a name": (
    lambda: x - Tensor.ones(64),
    ShapeError,
    "sub: 'time' is 128 in the first tensor and dimension 0 is 64 in the second: shapes (batch 8, time 128) and (64,)",
  ),
  "names": (
    lambda: x + Tensor.ones(128).named(C),
    ShapeError,
    "add: 'time' of the first tensor meets 'channels' of the second: shapes "
    "(batch 8, time 128) and (channels 128); bring the dimensions into one order, or rename one with .named()",
  ),
  "places": (
    lambda: x[:, :8].named(None, T) + x[:, :8].named(T, None),
    ShapeError,
    "add: 'time' would be dimension 0 and dimension 1 of the "
    "result: it is dimension 0 of the second tensor and dimension 1 of the first: shapes (8, time 8) and (time 8, 8); "
    "rename one with .named()",
  ),
  "where": (
    lambda: (x > 0).where(x, y),
    ShapeError,
    "where: 'time' is 128 in the first tensor and 64 in the third: shapes "
    "(batch 8, time 128), (batch 8, time 128) and (batch 8, time 64)",
  ),
  "summed sizes": (
    lambda: Tensor.ones(8, 64).named(B, C) @ Tensor.ones(32, 5).named("features", "out"),
    ShapeError,
    "matmul: 'channels' is 64 in the first factor and 'features' 32 in the second: shapes (batch 8, channels 64) and "
    "(features 32, out 5)",
  ),
  "summed names": (
    lambda: Tensor.ones(8, 64).named(B, C) @ Tensor.ones(64, 5).named("features", "out"),
    ShapeError,
    "matmul: 'channels' of the first factor meets 'features' of the second: shapes (batch 8, channels 64) and "
    "(features 64, out 5); bring the dimensions into one order, or rename one with .named()",
  ),
  "batches": (
    lambda: Tensor.ones(8, 2, 3).named(B, T, C) @ Tensor.ones(7, 3, 2),
    ShapeError,
    "matmul: 'batch' is 8 in the first factor and "
    "dimension 0 is 7 in the second: shapes (batch 8, time 2, channels 3) and (7, 3, 2)",
  ),
  "a product with itself": (
    lambda: x @ x.T,
    ShapeError,
    "matmul: 'batch' would be dimension 0 and dimension 1 of the result: it is dimension 0 "
    "of the first factor and dimension 1 of the second: shapes (batch 8, time 128) and (time 128, batch 8); "
    "rename one with .named()",
  ),
  "einsum": (lambda: Tensor.einsum("ij,jk->ik", x, x.T), ShapeError, "einsum: 'batch' would be dimension 0 and dimension 1"),
  "cat": (
    lambda: x.cat(y),
    ShapeError,
    "cat: 'time' is 128 in the first tensor and 64 in the second: shapes (batch 8, time 128) and (batch 8, time 64)",
  ),
  "cat of names": (lambda: x.cat(x.named(T, None)), ShapeError, "cat: 'batch' of the first tensor meets 'time' of the second"),
  "stack": (lambda: Tensor.stack(x, y), ShapeError, "stack: shapes (batch 8, time 128), (batch 8, time 64); they must be equal"),
  "stack of names": (
    lambda: Tensor.stack(x, x.named("a", T)),
    ShapeError,
    "stack: 'batch' of the first tensor meets 'a' of the second",
  ),
  "loss": (lambda: x.mse_loss(y), ShapeError, "mse_loss: 'time' is 128 in the first tensor and 64 in the second"),
  "classes": (
    lambda: x.cross_entropy(Tensor.zeros(8, dtype="int32").named("rows")),
    ShapeError,
    "cross_entropy: 'batch' of the first tensor meets 'rows' of the second: shapes (batch 8, time 128) and (rows 8)",
  ),
  "attention": (
    lambda: X.named(*BTC).scaled_dot_product_attention(X.named(*BTC), X[:, :2].named(*BTC)),
    ShapeError,
    "scaled_dot_product_attention: 'time' is 3 in the second tensor and 2 in the third",
  ),
  "conv2d": (
    lambda: IMAGE.named(B, C, None, None).conv2d(KERNEL.named("out", "in_", None, None)),
    ShapeError,
    "conv2d: 'channels' of the first factor meets 'in_' of the second",
  ),
  "index": (lambda: x[Tensor([1, 2]).named(T)], ShapeError, "getitem: 'time' would be dimension 0 and dimension 1 of the result"),
  "in place": (lambda: x.clone().add_(Tensor.ones(128).named(C)), ShapeError, "add: 'time' of the first tensor meets 'channels'"),
  "copy_": (
    lambda: x.clone().copy_(x.named("rows", None)),
    ShapeError,
    "copy_: 'batch' of the first tensor meets 'rows' of the second",
  ),
  "assign": (
    lambda: x.clone().assign(x.named(T, None)),
    ShapeError,
    "assign: 'batch' of the first tensor meets 'time' of the second",
  ),
  "assign of another shape": (
    lambda: x.clone().assign(y),
    AssignError,
    "assign: a value of shape (batch 8, time 64) does not fit a tensor of shape (batch 8, time 128); give that shape",
  ),
  "setitem": (
    lambda: x.clone().__setitem__(0, Tensor.ones(128).named(C)),
    ShapeError,
    "setitem: 'time' of the first tensor meets 'channels'",
  ),
  "setitem of sizes": (
    lambda: x.clone().__setitem__(0, Tensor.ones(64).named(T)),
    ShapeError,
    "setitem: 'time' is 128 in the first tensor and 64",
  ),
  "setitem of rows": (
    lambda: x.clone().__setitem__([0, 1], Tensor.ones(128).named(C)),
    ShapeError,
    "setitem: 'time' of the first tensor meets",
  ),
  "axis": (lambda: x.sum("tim"), AxisError, "sum: no dimension has the name 'tim'; the names are ('batch', 'time')"),
  "axis without names": (
    lambda: X.sum("time"),
    AxisError,
    "sum: axis 'time' of a tensor without names; give a number, or name the dimensions with .named()",
  ),
  "axis twice": (lambda: x.sum(("time", -1)), AxisError, "sum: axes ('time', -1) name one twice in a tensor with 2 dimensions"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
  fn, kind, text = REFUSED[name]
  with pytest.raises(kind) as e:
    fn()
  assert str(e.value).startswith(text)


# ---- axes by name
@pytest.mark.parametrize(
  "fn",
  [
    lambda x, t, c: x.sum(t),
    lambda x, t, c: x.mean((t, c)),
    lambda x, t, c: x.argmax(t),
    lambda x, t, c: x.softmax(t),
    lambda x, t, c: x.cumsum(t),
    lambda x, t, c: x.layernorm(c),
    lambda x, t, c: x.transpose(t, c),
    lambda x, t, c: x.permute(c, 0, t),
    lambda x, t, c: x.flip(t),
    lambda x, t, c: x.unsqueeze(t),
    lambda x, t, c: x[:, :1].squeeze(t),
    lambda x, t, c: x.flatten(t, c),
    lambda x, t, c: x.unflatten(c, (2, 2)),
    lambda x, t, c: x.split(2, t)[0],
    lambda x, t, c: x.chunk(2, c)[0],
    lambda x, t, c: x.unbind(t)[0],
    lambda x, t, c: x.cat(x, dim=t),
    lambda x, t, c: x.stack(x, dim=c),
    lambda x, t, c: x.roll(1, t),
    lambda x, t, c: x.repeat_interleave(2, t),
    lambda x, t, c: x.unfold(c, 2, 1),
    lambda x, t, c: x.var(t),
    lambda x, t, c: x.norm(axis=c),
    lambda x, t, c: x.logsumexp((t, c)),
    lambda x, t, c: x.any(t),
  ],
)
def test_axes_by_name(fn: Callable[..., Any]) -> None:
  assert fn(X.named(*BTC), "time", "channels").lazydata is fn(X, 1, 2).lazydata


def test_size_and_repr() -> None:
  t = X.named(B, None, C)
  assert (t.size("channels"), t.size(1), t.size()) == (4, 3, (2, 3, 4))
  assert repr(t).startswith("<Tensor (batch 2, 3, channels 4) ") and repr(X).startswith("<Tensor (2, 3, 4) ")


# ---- what named gives
def test_named_is_a_view() -> None:
  t = Tensor.zeros(2, 3).contiguous().realize()
  v = t.named("rows", "columns")
  assert t.names == (None, None) and v.names == ("rows", "columns") and v.lazydata is t.lazydata
  v[0] = 1
  t[1, 0] += 2
  assert v.tolist() == t.tolist() == [[1, 1, 1], [2, 0, 0]]
  assert v.named().names == v.named(None, None).names == (None, None) and v.named("a", None).names == ("a", None)
  assert Tensor(1.0).named().names == () and v.named(*v.T.names).names == ("columns", "rows")


def test_names_of_a_leaf() -> None:
  w = Tensor([[1.0, 2.0]], requires_grad=True)
  w.names = ("rows", "columns")
  (w * w).sum().backward()
  assert w.grad.names == ("rows", "columns") and w.grad.tolist() == [[2, 4]] and w.is_leaf
  w.names = None
  assert w.names == (None, None)
  v = w.named("a", "b")  # of a leaf a view: gradients go on to it
  assert not v.is_leaf and v.requires_grad
  (g,) = v.sum().gradient(v)
  assert g.names == ("a", "b")
  (v * 3).sum().backward()
  assert w.grad.tolist() == [[5, 7]]
  with no_grad():
    assert not w.named("a", "b").requires_grad


def test_gradients_are_those_without_names() -> None:
  def loss(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w).softmax(-1).log().sum(-1) * x.sum(-1)).sum()

  found = []
  for names in ((BTC, (C, "out")), ((None,) * 3, (None,) * 2)):
    x, w = [Tensor(t.numpy() + 1, requires_grad=True) for t in (X, W)]
    x.names, w.names = names
    loss(x, w).backward()
    assert (x.grad.names, w.grad.names) == names
    found.append((x.grad.numpy(), w.grad.numpy()))
  assert all(np.array_equal(a, b) for a, b in zip(*found))


def test_writes_keep_the_targets_names() -> None:
  t = Tensor.zeros(2, 3).contiguous().named("rows", None)
  t += Tensor.ones(3).named("columns")
  t[0] = Tensor.ones(3).named("columns")
  t.assign(t.detach().named(None, "columns") + 1)
  t.copy_(Tensor([5.0])).mul_(2)
  assert t.names == ("rows", None) and t.tolist() == [[10] * 3] * 2
  t.replace(Tensor.zeros(2, 3))
  assert t.names == ("rows", None)


def test_copies_and_files(tmp_path: Path) -> None:
  t = X.named(*BTC)
  for made in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
    assert made.names == BTC and made.tolist() == t.tolist()
  state.safe_save({"t": t}, str(tmp_path / "t"))
  assert state.safe_load(str(tmp_path / "t"))["t"].names == (None,) * 3


def test_layers_and_optimizers() -> None:
  """Parameters have no names, so the names of what goes through a layer are those of the dimensions that stay."""
  image = Tensor.ones(1, 2, 6, 6).named(B, C, "height", "width")
  x = nn.Conv2d(2, 3, 3)(image)
  assert x.names == (B, None, "height", "width")
  assert nn.GroupNorm(1, 2)(image).names == nn.BatchNorm(2)(image).names == nn.LayerNorm2d(2)(image).names == image.names
  assert nn.Linear(48, 5)(x.max_pool2d(1).relu().flatten(1)).names == (B, None)
  assert nn.LayerNorm(4)(X.named(*BTC)).names == nn.RMSNorm(4)(X.named(*BTC)).names == BTC
  assert nn.Embedding(4, 5)(INDEX.named(B, T)).names == (B, T, None)
  with Tensor.train():
    assert nn.BatchNorm(2)(image).names == image.names and image.dropout().names == image.names
  w = Tensor.ones(3, 2, requires_grad=True)
  w.names = ("i", "o")
  for kind in (optim.SGD, optim.Adam):
    (w * w).sum().backward()
    kind([w]).step()
    assert w.names == ("i", "o")


def test_captured_functions() -> None:
  """Results of a captured function have no names, from the first call on; names given inside hold inside."""

  @jit
  def rows(x: Tensor) -> Tensor:
    return x.named("rows", "columns").sum("columns").realize()

  for k in range(4):
    out = rows(Tensor([[1.0, 2.0], [3.0, k]]).named("rows", "columns"))
    assert out.names == (None,) and out.tolist() == [3, 3 + k]


def test_arguments_of_captured_functions_keep_their_names() -> None:
  """In the recording call too, which gets other tensors; other names are another capture."""
  seen: list[tuple[str | None, ...]] = []

  @jit
  def total(x: Tensor, y: Tensor) -> Tensor:
    seen.append(x.names)
    return (x.transpose(0, 1) + y).sum("columns").realize() if x.names[0] is not None else (x.T + y).realize()

  def x(k: int = 0) -> Tensor: return Tensor([[1.0, 2.0], [3.0, k]])
  for k in range(4): assert total(x(k).named("columns", "rows"), x().named("rows", "columns")).tolist() == [7, 5 + k]
  assert seen == [("columns", "rows")] * 2
  for k in range(4): assert total(x(k), x()).tolist() == [[2, 5], [5, k]]
  assert seen[2:] == [(None, None)] * 2
  for _ in range(3):
    with pytest.raises(ShapeError, match="'rows' of the first tensor meets 'time' of the second"):
      total(x().named("columns", "rows"), x().named("time", "columns"))


def test_names_of_arguments_that_are_written_or_change_their_size() -> None:
  @jit
  def add(to: Tensor, x: Tensor) -> Tensor:
    assert to.names == x.names[1:] == ("columns",)
    to += x.sum("rows")
    return (x * 2).realize()

  to = Tensor([1.0, 2.0]).named("columns")
  for n in (2, 2, 3, 5, 4): assert add(to, Tensor.ones(n, 2).named("rows", "columns")).shape == (n, 2)
  assert to.tolist() == [17, 18] and to.names == ("columns",)


# ---- random chains of movement, against a model
def model_reshape(old: tuple[int, ...], new: tuple[int, ...]) -> list[int | None]:
  """A dim is the same one where as many elements come before it and it has the size; dims of 1 count as many on both sides."""

  def before(s: tuple[int, ...]) -> list[int]:
    return [math.prod(s[:i]) for i in range(len(s))]

  a, b = before(old), before(new)
  out: list[int | None] = []
  for j, n in enumerate(new):
    same = [i for i, m in enumerate(old) if m == n and a[i] == b[j]]
    ones = [k for k, m in enumerate(new) if m == 1 and b[k] == b[j]]
    out.append((same[0] if n > 1 else same[ones.index(j)] if len(same) == len(ones) else None) if same else None)
  return out


def shapes_of(n: int, draw: Any) -> tuple[int, ...]:
  out = []
  while n > 1:
    d = draw(st.sampled_from([k for k in range(2, n + 1) if n % k == 0]))
    out.append(d)
    n //= d
  for _ in range(draw(st.integers(0, 2))):
    out.insert(draw(st.integers(0, len(out))), 1)
  return tuple(out)


Step = tuple[Callable[[Any], Any], list[str | None], Any]


def step(kind: str, draw: Any, s: tuple[int, ...], names: list[str | None], where: Any) -> Step:
  """A random move of a tensor: what is done, the names afterwards, and where each element was at first (coordinates last)."""
  n = len(s)
  d = draw(st.integers(0, n - 1)) if n else 0
  if kind == "permute":
    order = draw(st.permutations(range(n)))
    return lambda x: x.permute(order), [names[i] for i in order], where.transpose(*order, n)
  if kind == "reshape":
    new = shapes_of(math.prod(s), draw)
    dims = list(range(n)) if new == s else model_reshape(s, new)
    assert regrouped(s, new) == dims
    return lambda x: x.reshape(new), [None if i is None else names[i] for i in dims], where.reshape(*new, -1)
  if kind == "unsqueeze":
    return lambda x: x.unsqueeze(d), [*names[:d], None, *names[d:]], np.expand_dims(where, d)
  if kind == "expand":
    full = (2, *[3 if i == d and k == 1 else k for i, k in enumerate(s)])
    return lambda x: x.expand(full), [None, *names], np.broadcast_to(where, (*full, where.shape[-1]))
  if kind == "cast" or not n:
    return lambda x: x.cast("int32"), names, where
  if kind == "add":
    return lambda x: x + x.max(), names, where
  if kind == "flip":
    return lambda x: x.flip(d), names, np.flip(where, d)
  if kind == "max":
    return lambda x: x.max(axis=d), names[:d] + names[d + 1 :], where.take(-1, d)
  if kind == "squeeze":
    if s[d] == 1:
      names, where = names[:d] + names[d + 1 :], where.squeeze(d)
    return lambda x: x.squeeze(d), names, where
  if kind == "shrink":
    return lambda x: x.shrink([(0, 1) if i == d else None for i in range(n)]), names, where.take([0], d)
  at: list[Any] = [slice(None)] * n
  at[d] = draw(st.sampled_from([0, -1, slice(None, None, -1), slice(0, None, 2), None]))
  left = [None] if at[d] is None else [] if isinstance(at[d], int) else [names[d]]
  return lambda x: x[tuple(at)], [*names[:d], *left, *names[d + (at[d] is not None) :]], where[tuple(at)]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_chains(data: st.DataObject) -> None:
  draw: Any = data.draw
  shape = tuple(draw(st.lists(st.sampled_from([1, 1, 2, 3, 4]), min_size=1, max_size=4)))
  first: list[str | None] = [draw(st.sampled_from([f"d{i}", None])) for i in range(len(shape))]
  names, plain = first, Tensor(np.arange(math.prod(shape)).reshape(shape))
  t, where = plain.named(*names), np.stack(np.indices(shape), -1)
  kinds = "permute reshape squeeze unsqueeze flip shrink index expand max cast add".split()
  for _ in range(draw(st.integers(1, 6))):
    kind = draw(st.sampled_from(kinds))
    if plain.numel() > 500:
      return
    fn, names, where = step(kind, draw, plain.shape, names, where)
    plain, t = fn(plain), fn(t)
    assert t.names == tuple(names) and t.lazydata is plain.lazydata and t.shape == where.shape[:-1]
    for i, name in enumerate(names):  # along other dimensions the index of the dimension of that name does not change
      if name is None:
        continue
      index = where[..., first.index(name)]
      for k in range(t.ndim):
        assert k == i or (index == index.take([0], k)).all()
