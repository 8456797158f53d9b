"""Indices that are outside: index tensors and classes (``config.check_indices``), run-time indices of tile kernels
(``checks="all"``), and buffers beyond 32 bits."""
from __future__ import annotations

import re
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
import ntgrad.array_api
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Device, Tensor, config, jit, nn
from ntgrad.codegen.ir.uop import Ops, toposort
from ntgrad.engine.compile import program_spec
from ntgrad.engine.index_checks import value_bounds
from ntgrad.errors import ArgumentError, ConfigError, IndexOutOfRangeError, NtgradError, ShapeError
from ntgrad.schedule import create_schedule
from ntgrad.tile.kernel import device_for
from ntgrad.utils.checkpoint import checkpoint
from support.devices import DEVICES, missing
from support.marks import long_where

HOSTS = ("CPU", "NUMPY")


def on(device: str, values: Any, dtype: Any = np.int32) -> Tensor:
  """A tensor of which nothing is known on the host."""
  if reason := missing(device): pytest.skip(reason)
  return (Tensor(np.array(values, dtype), device=device) + 0).realize()


def rows(device: str) -> Tensor: return on(device, np.arange(20).reshape(10, 2), np.float32)


# ---- index tensors

def _set(x: Tensor, i: Tensor) -> Tensor:
  y = (x + 0).realize()
  y[i] = 5.0
  return y


CALLS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
  "getitem": (lambda x, i: x[i], r"getitem: index 12 is outside dimension 0 of a tensor of shape \(10, 2\), which has 10 el"),
  "second": (lambda x, i: x.T[:, i], r"getitem: index 12 is outside dimension 1 of a tensor of shape \(2, 10\)"),
  "several": (lambda x, i: x[i, i * 0], r"getitem: index 12 is outside dimension 0"),
  "setitem": (_set, "setitem: index 12 is outside dimension 0"),
  "gather": (lambda x, i: x.gather(0, i.reshape(4, 1)), "gather: index 12 is outside dimension 0"),
  "scatter": (lambda x, i: x.scatter(0, i.reshape(4, 1), x[:4, :1]), "scatter: index 12 is outside dimension 0"),
  "one_hot": (lambda x, i: i.abs().one_hot(12), "one_hot: index 12 is outside the 12 classes, which go from 0 to 11"),
  "embedding": (lambda x, i: nn.Embedding(10, 3).__call__(i) if x.device == Device.DEFAULT else x[i], "index 12 is outside"),
  "cross_entropy": (lambda x, i: x.reshape(4, 5).cross_entropy((i - 2).clamp(0, 10) // 2), "cross_entropy: index 5 is outside"),
  "gradient": (lambda x, i: _gradient(x, i), "getitem: index 12 is outside"),
}


def _gradient(x: Tensor, i: Tensor) -> Tensor:
  w = x.detach().clone()
  w.requires_grad = True
  return (w[i] * 2).sum().gradient(w)[0]


@pytest.mark.parametrize("device", HOSTS)
@pytest.mark.parametrize("name", CALLS)
def test_raised_where_the_host_waits(name: str, device: str) -> None:
  fn, said = CALLS[name]
  x, bad, good = rows(device), on(device, [1, 5, 12, 3]), on(device, [1, 4, 3, 0])
  fn(x, good).numpy()
  out = fn(x, bad).realize()
  with pytest.raises(IndexOutOfRangeError, match=said) as e: out.numpy()
  assert "test_index_checks.py:" in str(e.value) and "last at (" in str(e.value)
  out.numpy()   # said once
  del out, e   # they keep what has been computed
  fn(x, good).numpy()
  fn(x, bad).realize()
  with pytest.raises(IndexOutOfRangeError): Device.synchronize(device)
  with config(check_indices=0): fn(x, bad).numpy()


# ---- the call that the user made
F = nn.functional


def _put(write: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor], Tensor]:
  """A call that writes to a tensor of its own."""
  def call(x: Tensor, i: Tensor) -> Tensor:
    y = x + 0
    write(y, i)
    return y
  return call


def _item(y: Tensor, i: Tensor) -> None: y[i] = 5.0


def _items(y: Tensor, i: Tensor) -> None: y[:, i] = 5.0


def _add(y: Tensor, i: Tensor) -> None: y[i] += 1.0


class Words(nn.Module):
  """A model of the user's: what it calls is named, not it."""
  def __init__(self, table: Tensor) -> None:
    super().__init__()
    self.table = nn.Embedding(10, 10, _weight=table)
  def forward(self, i: Tensor) -> Tensor: return self.table(i)


class Mine(nn.Embedding):
  """A layer of the user's."""


def _mine(x: Tensor, i: Tensor) -> Tensor:
  layer = Mine(10, 10)
  layer.weight = x
  return layer(i)


# a table of shape (10, 10) and an index (3,) that may be outside; what the message names
NAMED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
  "x[i]": (lambda x, i: x[i], "getitem"),
  "x[:, i]": (lambda x, i: x[:, i], "getitem"),
  "x[i, i]": (lambda x, i: x[i, i], "getitem"),
  "x[i] = v": (_put(_item), "setitem"),
  "x[:, i] = v": (_put(_items), "setitem"),
  "x[i] += v": (_put(_add), "getitem, setitem"),
  "gather": (lambda x, i: x.gather(0, i.reshape(3, 1)), "gather"),
  "ntgrad.gather": (lambda x, i: ntgrad.gather(x, 0, i.reshape(3, 1)), "gather"),
  "take": (lambda x, i: x[0].take(i), "take"),
  "ntgrad.take": (lambda x, i: ntgrad.take(x[0], i), "take"),
  "take_along_dim": (lambda x, i: x.take_along_dim(i.reshape(3, 1), 0), "take_along_dim"),
  "index_select": (lambda x, i: x.index_select(1, i), "index_select"),
  "ntgrad.index_select": (lambda x, i: ntgrad.index_select(x, 0, i), "index_select"),
  "index_add": (lambda x, i: x.index_add(0, i, x[:3]), "index_add"),
  "index_add_": (_put(lambda y, i: y.index_add_(0, i, y[:3] * 2)), "index_add_"),
  "index_copy": (lambda x, i: x.index_copy(0, i, x[:3] * 2), "index_copy"),
  "index_copy_": (_put(lambda y, i: y.index_copy_(1, i, y[:, :3] * 2)), "index_copy_"),
  "index_fill": (lambda x, i: x.index_fill(0, i, 2.0), "index_fill"),
  "index_fill_": (_put(lambda y, i: y.index_fill_(0, i, 2.0)), "index_fill_"),
  "index_put": (lambda x, i: x.index_put((i,), x[:3] * 2), "index_put"),
  "index_put_": (_put(lambda y, i: y.index_put_((i, i), y[0, :3], accumulate=True)), "index_put_"),
  "put": (lambda x, i: x[0].put(i, x[1, :3]), "put"),
  "put_": (_put(lambda y, i: y[0].put_(i, y[1, :3] * 2)), "put_"),
  "scatter": (lambda x, i: x.scatter(0, i.reshape(3, 1), x[:3, :1] * 2), "scatter"),
  "scatter_": (_put(lambda y, i: y.scatter_(0, i.reshape(3, 1), y[:3, :1] * 2)), "scatter_"),
  "scatter_add": (lambda x, i: x.scatter_add(0, i.reshape(3, 1), x[:3, :1]), "scatter_add"),
  "scatter_add_": (_put(lambda y, i: y.scatter_add_(0, i.reshape(3, 1), y[:3, :1] * 2)), "scatter_add_"),
  "scatter_reduce": (lambda x, i: x.scatter_reduce(0, i.reshape(3, 1), x[:3, :1] * 2, "amax"), "scatter_reduce"),
  "one_hot": (lambda x, i: i.one_hot(10) * x[:3], "one_hot"),
  "F.one_hot": (lambda x, i: F.one_hot(i, 10) * x[:3], "one_hot"),
  "F.embedding": (lambda x, i: F.embedding(i, x), "embedding"),
  "F.embedding padding": (lambda x, i: F.embedding(i, x, padding_idx=1, scale_grad_by_freq=True), "embedding"),
  "F.embedding norm": (lambda x, i: F.embedding(i, (x + 0).detach(), max_norm=1.0), "embedding"),
  "F.embedding_bag": (lambda x, i: F.embedding_bag(i.reshape(1, 3), x), "embedding_bag"),
  "Embedding": (lambda x, i: nn.Embedding(10, 10, _weight=x)(i), r"nn\.Embedding"),
  "EmbeddingBag": (lambda x, i: nn.EmbeddingBag(10, 10, _weight=x, mode="sum")(i.reshape(1, 3)), r"nn\.EmbeddingBag"),
  "in a Sequential": (lambda x, i: nn.Sequential(nn.Embedding(10, 10, _weight=x), nn.ReLU())(i), r"nn\.Embedding"),
  "in a model": (lambda x, i: Words(x)(i), r"nn\.Embedding"),
  "a layer of the user's": (_mine, "Mine"),
  "cross_entropy": (lambda x, i: x[:3].cross_entropy(i), "cross_entropy"),
  "F.cross_entropy": (lambda x, i: F.cross_entropy(x[:3], i), "cross_entropy"),
  "CrossEntropyLoss": (lambda x, i: nn.CrossEntropyLoss()(x[:3], i), r"nn\.CrossEntropyLoss"),
  "smoothed": (lambda x, i: F.cross_entropy(x[:3], i, label_smoothing=0.1), "cross_entropy"),
  "sparse": (lambda x, i: x[:3].sparse_categorical_crossentropy(i, ignore_index=-100), "sparse_categorical_crossentropy"),
  "nll_loss": (lambda x, i: x[:3].log_softmax().nll_loss(i), "nll_loss"),
  "NLLLoss": (lambda x, i: nn.NLLLoss()(x[:3].log_softmax(), i), r"nn\.NLLLoss"),
  "multi_margin_loss": (lambda x, i: F.multi_margin_loss(x[:3], i), "multi_margin_loss"),
  "multilabel": (lambda x, i: F.multilabel_margin_loss(x[:3, :3].pad(((0, 0), (0, 7))), i.reshape(3, 1).expand(3, 10)),
                 "multilabel_margin_loss"),
  "linear_cross_entropy": (lambda x, i: F.linear_cross_entropy(x[:3], x, i), "linear_cross_entropy"),
  "offsets": (lambda x, i: F.embedding_bag(i, x, Tensor([0, 2])), "embedding_bag"),
  "max_unpool1d": (lambda x, i: x[:1, :3].reshape(1, 1, 3).max_unpool1d(i.reshape(1, 1, 3), 2, output_size=(6,)), "max_unpool1d"),
  "the standard's": (lambda x, i: ntgrad.array_api.take(x, i, axis=0), "take"),
  "vmap": (lambda x, i: ntgrad.func.vmap(lambda row: row[i])(x), "getitem"),
  "a captured layer": (lambda x, i: jit(nn.Embedding(10, 10, _weight=x))(i), r"nn\.Embedding"),
  "checkpoint": (lambda x, i: checkpoint(nn.Embedding(10, 10, _weight=x), i), r"nn\.Embedding"),
  "linalg": (lambda x, i: ntgrad.linalg.norm(x[i]), "getitem"),
}


def _said(call: Callable[[], Any]) -> str:
  with pytest.raises(IndexOutOfRangeError) as e: call()
  return str(e.value)


@long_where(lambda how: how in ("gradient", "twice"))
@pytest.mark.parametrize("how", ["value", "gradient", "captured", "late", "twice"])
@pytest.mark.parametrize("name", NAMED)
def test_the_call_of_the_user_is_named(name: str, how: str) -> None:
  fn, said = NAMED[name]
  device = Device.DEFAULT
  good, bad = on(device, [1, 3, 2]), on(device, [1, 12, 2])
  table = np.arange(100).reshape(10, 10) / 50
  def loss(x: Tensor, i: Tensor) -> Tensor: return fn(x, i).sum()
  if how == "captured":
    x, f = on(device, table, np.float32), jit(loss)
    for _ in range(3): f(x, good).numpy()
    def call() -> Any: f(x, bad).numpy()
  elif how == "gradient":
    x = on(device, table, np.float32).requires_grad_()
    def call() -> Any:
      out = loss(x, bad)
      if not out.requires_grad: return out.numpy()
      out.backward()
      x.grad.numpy()
  elif how == "late":
    x = on(device, table, np.float32)
    kept = loss(x, bad).realize()
    def call() -> Any: Device.synchronize(kept.device)
  else:
    x = on(device, table, np.float32)
    if how == "twice":   # the same index, of which another line of the user's has made a node
      others = [x[bad], x.scatter(0, bad.reshape(3, 1), 1.0), bad.one_hot(10), x.T.index_select(0, bad)]
      text = _said(lambda: fn(x, bad).numpy())
      assert re.search(rf"(^|, ){said.split(', ')[-1]}(, |:)", text.split("\n")[0]) and len(others) == 4, text
      return
    def call() -> Any: fn(x, bad).numpy()
  text = _said(call)
  first = text.split("\n")[0]
  assert re.match(rf"{said}: ", first) and "test_index_checks.py:" in first and "index 12 is outside" in first, text


def test_what_is_known_is_named_too() -> None:
  x = rows(Device.DEFAULT)
  for call, said in [(lambda: x[:, [2]], "getitem: index 2 on axis 1"), (lambda: x.select(0, 11), "select: index 11"),
                     (lambda: ntgrad.select(x, 0, 11), "select: index 11"), (lambda: x[11], "getitem: index 11"),
                     (lambda: x.take([20]), "take: index 20"),
                     (lambda: nn.Embedding(10, 2)(Tensor.full((2,), 10)), "nn.Embedding: index 10"),
                     (lambda: nn.CrossEntropyLoss()(x, Tensor.full((10,), 2)), "nn.CrossEntropyLoss: class 2 of 2"),
                     (lambda: F.nll_loss(x, Tensor([0] * 9 + [7])), "nll_loss: index 7")]:
    assert _said(lambda call=call: call().numpy()).startswith(said)   # type: ignore[misc]


@pytest.mark.parametrize("device", HOSTS)
def test_negative_indices_and_ignored_classes(device: str) -> None:
  x = rows(device)
  assert x[on(device, [-10, -1])].numpy().tolist() == [[0, 1], [18, 19]]
  with pytest.raises(IndexOutOfRangeError, match=r"index -11 is outside .* last at \(1, 0\) of the index, of shape \(2, 1\)"):
    x[on(device, [[-10], [-11]])].numpy()
  logits, labels = x.reshape(4, 5), on(device, [0, -100, 4, 2])
  assert np.isfinite(logits.cross_entropy(labels, ignore_index=-100).item())
  assert np.isfinite(logits.nll_loss(labels, Tensor.ones(5, device=device), ignore_index=-100).item())
  with pytest.raises(IndexOutOfRangeError, match="cross_entropy: index -100"): logits.cross_entropy(labels).item()
  far = on(device, [2 ** 40, 1], np.int64)
  with pytest.raises(IndexOutOfRangeError, match="index 2147483647 is outside"): x[far].numpy()   # the nearest of 32 bits
  long = np.zeros(100_000, np.int32)
  long[[5, 77_777]] = 10, 11
  with pytest.raises(IndexOutOfRangeError, match=r"index 11 is outside .*; last at \(77777,\)"): x[on(device, long)].numpy()


@pytest.mark.parametrize("device", HOSTS)
def test_captured(device: str) -> None:
  x, seen = rows(device), []

  @jit
  def f(i: Tensor) -> Tensor: return x[i] * 2

  good = on(device, [1, 2, 3])
  for _ in range(4): seen.append(f(good).numpy())
  np.testing.assert_array_equal(seen[0], seen[-1])
  out = f(on(device, [1, 10, 3]))
  with pytest.raises(IndexOutOfRangeError, match=r"index 10 is outside .*; last at \(1,\)"): out.numpy()
  np.testing.assert_array_equal(f(good).numpy(), seen[0])


def marks(t: Tensor) -> int: return len([u for u in toposort((t.lazydata,)) if u.op is Ops.DETACH and u.arg is not None])


def test_what_is_known_to_be_inside_costs_nothing() -> None:
  x, i = rows("CPU"), on("CPU", [3, 4])
  known = [
    x.argmax(0), x.argmin(0), Tensor.arange(10, device="CPU"), Tensor.randint(5, high=10, device="CPU"), i.clamp(0, 9),
    Tensor(np.array([1, -10, 9]), device="CPU"), Tensor(np.arange(20), device="CPU").realize()[3:8] // 2, i % 10, [1, 2, -1],
    Tensor.full((3,), 9, device="CPU"), on("CPU", [3], np.uint8) // 32, (i > 3).where(9, 0),
  ]
  for index in known: assert marks(x[index]) == 0, index
  assert marks(Tensor.zeros(256, 2, device="CPU").contiguous()[on("CPU", [3, 255], np.uint8)]) == 0
  for index in (i, i + 1, i % 11, Tensor(np.array([10]), device="CPU"), Tensor.arange(11, device="CPU"), i.max().reshape(1)):
    assert marks(x[index]) == 1
  deep = i
  for _ in range(200): deep = deep + deep
  assert value_bounds(deep.lazydata) == (-2 ** 31, 2 ** 31 - 1)
  with pytest.raises(IndexOutOfRangeError, match="index 11 is outside"): x[Tensor.full((3,), 11, device="CPU")]
  changed = Tensor(np.array([1, 2]), device="CPU").realize()
  changed.assign(changed + 9).realize()
  with pytest.raises(IndexOutOfRangeError, match="index 11"): x[changed].numpy()


def test_the_setting() -> None:
  x, i = rows("CPU"), on("CPU", [3, 40])
  for value, count in ((0, 0), (1, 1), ("auto", 1)):
    with config(check_indices=value): assert marks(x[i]) == count
  with pytest.raises(ConfigError, match="config.check_indices is 'off', expected auto, 0 or 1"): config.check_indices = "off"
  with pytest.raises(ConfigError, match="config.checks is 'some', expected none, entry or all"): config.checks = "some"
  with config(check_indices=0): assert x[i].numpy().tolist() == [[6, 7], [0, 0]]


# ---- tile kernels

def gather(x: Any, i: Any, y: Any) -> None: y = x.source[i]  # noqa: F841


def scatter(x: Any, i: Any, y: Any) -> None: y.source[i] = i * 1.0


def masked(x: Any, i: Any, y: Any) -> None: y = tl.load(x.source[i], mask=(i >= 0) & (i < 10))  # noqa: F841


def total(x: Any, n: Any, y: Any) -> None:
  out = tl.zeros(y.shape)
  for k in range(n): out += x[k]
  y = out  # noqa: F841


def whole(t: Any, other: Any) -> Any: return t.tile((-1,)).expand((other.shape[0],))


def arranged(x: Any, i: Any, y: Any) -> Any: return whole(x, i.tile((16,))), i.tile((16,)), y.tile((16,))


@pytest.mark.parametrize("device", DEVICES)
def test_indices_of_tile_kernels(device: str) -> None:
  x, y = on(device, np.arange(10), np.float32), on(device, np.zeros(25), np.float32)
  good, bad = np.zeros(25), np.zeros(25)
  bad[20], bad[4] = 17, -3
  k = tile.make(arranged, gather, (tile.Tensor(1),) * 3, checks="all")
  k(x, on(device, good), y)
  y.numpy()
  k(x, on(device, bad), y)
  said = r"gather: index 17 is outside dimension 0 of x, which has 10 elements \(test_index_checks.py:\d+\)"
  with pytest.raises(IndexOutOfRangeError, match=said): y.numpy()
  plain = tile.make(arranged, gather, (tile.Tensor(1),) * 3)
  plain(x, on(device, bad), y)
  assert y.numpy()[20] == 0
  with config(checks="all"): plain(x, on(device, bad), y)
  with pytest.raises(IndexOutOfRangeError, match=said): y.numpy()
  tile.make(arranged, masked, (tile.Tensor(1),) * 3, checks="all")(x, on(device, bad), y)
  y.numpy()


@pytest.mark.parametrize("device", HOSTS)
def test_stores_levels_and_ranges(device: str) -> None:
  x, y = on(device, np.arange(12), np.float32), on(device, np.zeros(25), np.float32)
  k = tile.make(lambda x, i, y: (x.tile((16,)), i.tile((16,)), y.tile((16,))), scatter, (tile.Tensor(1),) * 3, checks="all")
  i = np.arange(25)
  i[3] = 25
  k(on(device, np.zeros(25), np.float32), on(device, i), y)
  with pytest.raises(IndexOutOfRangeError, match="scatter: index 25 is outside dimension 0 of y, which has 25"): y.numpy()
  sums = tile.make(
    lambda x, n, y: (x.tile((4,)).tile((-1,)), n, y.tile((4,))), total, tuple(map(tile.Tensor, (1, 0, 1))), checks="all"
  )
  z = on(device, np.zeros(4), np.float32)
  sums(x, 3, z)
  assert z.numpy().tolist() == [12, 15, 18, 21]
  sums(x, 5, z)
  with pytest.raises(IndexOutOfRangeError, match="total: index 4 is outside dimension 0 of level 1 of x, which has 3"): z.numpy()


def test_no_checks() -> None:
  def asked(x: Any, y: Any) -> Any:
    tile.check(x.shape[0] % 2 == 0, "pairs")
    return x.tile((16,)), y.tile((16,))
  def logs(x: Any, y: Any) -> None:
    tl.device_assert(x > 0)
    y = tl.log(x)  # noqa: F841
  tensors = (tile.Tensor(1),) * 2
  x, y = -np.ones(5, np.float32), np.zeros(5, np.float32)
  with pytest.raises(ShapeError, match="pairs"): tile.make(asked, logs, tensors)(x, y)
  tile.make(asked, logs, tensors, checks="none")(x, y)
  with config(checks="none"): tile.make(asked, logs, tensors)(x, y)
  with pytest.raises(ShapeError, match="pairs"), config(checks="none"): tile.make(asked, logs, tensors, checks="entry")(x, y)
  with pytest.raises(ArgumentError, match="checks is 'some'; it takes 'none', 'entry' or 'all'"):
    tile.make(asked, logs, tensors, checks="some")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value, said", [(-2.5, "where -2.5 is compared"), (float("nan"), "where nan is compared")])
def test_asserts_say_what_they_compare(device: str, value: float, said: str) -> None:
  def positive(x: Any, y: Any) -> None:
    tl.device_assert(x > 0, "{positive} numbers")
    y = x  # noqa: F841
  k = tile.make(lambda x, y: (x.tile((16,)), y.tile((16,))), positive, (tile.Tensor(1),) * 2)
  x, y = on(device, [1, value, 2], np.float32), on(device, [0, 0, 0], np.float32)
  k(x, y)
  with pytest.raises(NtgradError, match=rf"\{{positive\}} numbers .* \(0, 1\) of .*{said}"): y.numpy()


# ---- buffers of more elements than 32 bits count

def add(x: Any, y: Any) -> None: y = x + 1  # noqa: F841


@pytest.mark.parametrize("target, wide", [("opencl", "long"), ("triton", "int64")])
def test_offsets_beyond_32_bits(target: str, wide: str) -> None:
  k = tile.make(lambda x, y: (x.tile((256,)), y.tile((256,))), add, (tile.Tensor(1),) * 2)
  for n, has in ((1 << 20, False), (1 << 32, True)):
    assert (wide in k.source(target, ((n,), "float32"), ((n,), "float32"))) == has
  levels = tile.make(lambda *t: tuple(x.tile((16, 16)).tile((1, -1)) for x in t), _levels, (tile.Tensor(2),) * 2)
  assert wide in levels.source(target, ((1 << 16, 1 << 16), "float32"), ((1 << 16, 1 << 16), "float32"))
  device = device_for(target)
  def source(t: Tensor) -> str: return program_spec(create_schedule([t])[-1].ast, device, "k", ())[0].source.text
  big = Tensor.empty(1 << 16, 1 << 16, device="NUMPY")
  for t in (big + 1, big.T + 1, big.sum(0), big[Tensor.empty(8, dtype="int32", device="NUMPY")]): assert wide in source(t)
  assert wide not in source(Tensor.empty(1 << 10, 1 << 10, device="NUMPY") + 1)


def _levels(x: Any, y: Any) -> None:
  for k in range(x.shape[1]): y[0, k] = x[0, k] + 1
