"""Memory that tensors share, and writes to it: what is a view, what is a tensor of its own, what costs what."""
from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, config, nn
from ntgrad.backends.opencl.device import available
from ntgrad.engine import realize as engine
from ntgrad.engine.device import get_device
from ntgrad.errors import AssignError, DTypeError, GradientError, ShapeError
from ntgrad.graph.modes import no_grad
from support.devices import HAS_CUDA
from support.marks import long_half

OPENCL = available()[0]
DEVICES = ["NUMPY", *(["CPU"] if OPENCL else []), *(["CUDA"] if HAS_CUDA else [])]
A = np.array([1, 2, 3, 4], np.float32)
M = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True, params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
  with config(dev=request.param): yield request.param


class Launches:
  """Kernels launched in the block, and the bytes that they write."""

  def __enter__(self) -> Launches:
    self.kernels, self.steps, self.written = 0, [], 0
    engine.captures.append(self.note)
    return self
  def __exit__(self, *_: object) -> None: engine.captures.remove(self.note)
  def note(self, step: Any, buffers: Any) -> None:
    self.kernels += 1
    self.steps.append([b.shape for b in buffers])


# ---- the model

VIEWS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
  "index": (lambda t: t[1], lambda a: a[1]),
  "slice": (lambda t: t[1:, ::2], lambda a: a[1:, ::2]),
  "steps": (lambda t: t[::-2, 3:0:-1], lambda a: a[::-2, 3:0:-1]),
  "none": (lambda t: t[None, ..., 1], lambda a: a[None, ..., 1]),
  "whole": (lambda t: t[:], lambda a: a[:]),
  "reshape": (lambda t: t.reshape(2, 6), lambda a: a.reshape(2, 6)),
  "view": (lambda t: t.view(-1), lambda a: a.reshape(-1)),
  "flatten": (lambda t: t.flatten(), lambda a: a.reshape(-1)),
  "unflatten": (lambda t: t.unflatten(1, (2, 2)), lambda a: a.reshape(3, 2, 2)),
  "permute": (lambda t: t.permute(1, 0), lambda a: a.T),
  "transpose": (lambda t: t.transpose(0, 1), lambda a: a.T),
  "T": (lambda t: t.T, lambda a: a.T),
  "squeeze": (lambda t: t[:1].squeeze(0), lambda a: a[0]),
  "unsqueeze": (lambda t: t.unsqueeze(1), lambda a: a[:, None]),
  "flip": (lambda t: t.flip(0, 1), lambda a: a[::-1, ::-1]),
  "shrink": (lambda t: t.shrink(((1, 3), None)), lambda a: a[1:3]),
  "split": (lambda t: t.split([1, 2])[1], lambda a: a[1:]),
  "chunk": (lambda t: t.chunk(2, 1)[1], lambda a: a[:, 2:]),
  "unbind": (lambda t: t.unbind(1)[2], lambda a: a[:, 2]),
  "diagonal": (lambda t: t[:, :3].diagonal(), lambda a: a.reshape(-1)[::5][:3]),
  "detach": (lambda t: t.detach(), lambda a: a),
  "bitcast": (lambda t: t.bitcast(t.dtype), lambda a: a),
  "bits": (lambda t: t[1:].bitcast("int32")[:, ::2].bitcast("float32"), lambda a: a[1:, ::2]),
  "wider bits": (lambda t: t.bitcast("float64")[1:].bitcast("float32"), lambda a: a[1:]),
  "narrower bits": (lambda t: t.T[::2].bitcast("uint8").bitcast("float32")[1], lambda a: a[:, 2]),
  "view of a dtype": (lambda t: t.view("int16").view(dtype="float32"), lambda a: a),
  "view of a dtype by its object": (lambda t: t.view(ntgrad.int16).view(dtype="float32"), lambda a: a),
  "unfold": (lambda t: t.unfold(1, 2, 2), lambda a: a.reshape(3, 2, 2)),
}
OWN: dict[str, Callable[[Tensor], Tensor]] = {
  "contiguous": lambda t: t.contiguous(),
  "clone": lambda t: t.clone(),
  "cast": lambda t: t.cast(t.dtype),
  "float": lambda t: t.float(),
  "to": lambda t: t.to(t.device),
  "plus": lambda t: +t,
  "add": lambda t: t + 0,
  "rows": lambda t: t[[0, 1, 2]],
  "pad": lambda t: t.pad(((0, 0), (0, 0))),
  "repeat": lambda t: t.repeat(1, 1),
  "cat": lambda t: Tensor.cat(t, dim=0),
  "stack": lambda t: t.stack(dim=0)[0],
  "sum": lambda t: t.unsqueeze(0).sum(0),
  "max": lambda t: t.reshape(3, 4, 1).max(axis=-1),
  "tensor": lambda t: Tensor(t),
  "roll": lambda t: t.roll(0),
  "abs": lambda t: t.abs(),
  "dropout": lambda t: t.dropout(0.5),
  "where": lambda t: Tensor.ones(3, 4, dtype="bool").where(t, 0),
  "interleave": lambda t: t.repeat_interleave(1),
  "expand add": lambda t: t.expand(3, 4) * 1,
}


@pytest.mark.parametrize("realized", [True, False])
@pytest.mark.parametrize("name", long_half(VIEWS))
def test_views_share(name: str, realized: bool) -> None:
  """A write through a view is seen by the base and by other views, and the other way round, lazily and not."""
  of, want = VIEWS[name]
  for lazy in (True, False):
    t, a = Tensor(M) if realized else Tensor(M) * 1, M.copy()
    v, w = of(t), want(a)
    other = t.T
    v.assign(Tensor(w * 10))
    w[...] = w * 10
    if not lazy: v.realize()
    np.testing.assert_array_equal(t.numpy(), a)
    t[1, 2] = 77
    a[1, 2] = 77
    np.testing.assert_array_equal(v.numpy(), w)
    np.testing.assert_array_equal(other.numpy(), a.T)
    assert v.shape == w.shape


@pytest.mark.parametrize("realized", [True, False])
@pytest.mark.parametrize("name", OWN)
def test_everything_else_is_its_own(name: str, realized: bool) -> None:
  for later in (True, False):
    t = Tensor(M) if realized else Tensor(M) * 1
    v = OWN[name](t)
    before = np.array(v.numpy()) if not later else None
    t[0, 0] = 50
    v_before = v.numpy() if before is None else before
    x = v
    while x.ndim: x = x[0]
    x.assign(70)
    t.realize()
    assert t.numpy()[0, 0] == 50
    after = v.numpy()
    assert after.flat[0] == 70 and (after.reshape(-1)[1:] == v_before.reshape(-1)[1:]).all() and v_before.flat[0] == 0


def test_expanded_tensors_are_read_only_views() -> None:
  x = Tensor([5.0])
  y = x.expand(3)
  for write in (
    lambda: y.__setitem__(1, 0),
    lambda: y.assign(Tensor([1.0, 2.0, 3.0])),
    lambda: y[1:].assign(0),
    lambda: y.__iadd__(1),
    lambda: y.bitcast("int32").assign([1, 2, 3]),
    lambda: Tensor([1.0, 2.0, 3.0]).unfold(0, 2, 1).__setitem__(0, 5),
  ):
    with pytest.raises(AssignError, match="several times"):
      write()
  x += 1
  assert y.tolist() == [6, 6, 6] and x.tolist() == [6]
  z = Tensor([1.0, 2.0]).repeat(2)   # of its own
  z[0] = 9
  assert z.tolist() == [9, 2, 1, 2]
  for own in (
    Tensor([1.0, 2.0]).diag(),
    Tensor([1.0, 2.0]).meshgrid(Tensor([3.0, 4.0]))[0],
    Tensor([1.0, 2.0]).repeat_interleave(2).reshape(2, 2),
    Tensor.full((2, 2), Tensor(3.0)),
    Tensor.zeros(2, 2),
  ):
    before = own.numpy()
    own[0, 1] = 50
    before[0, 1] = 50
    np.testing.assert_array_equal(own.numpy(), before)


def test_bits_follow_what_is_written_to_either() -> None:
  t = Tensor([1.0, 2.0]).realize()
  bits = t.bitcast("uint32").realize()
  bits.assign([0x40000000, 0x40400000])
  assert t.tolist() == [2.0, 3.0] and bits.tolist() == [0x40000000, 0x40400000]
  t[1] = 1.0
  assert bits.tolist() == [0x40000000, 0x3f800000]
  bits[Tensor([0])] = 0
  bits += 0x800000
  assert t.tolist() == [np.array(0x800000, np.uint32).view(np.float32).item(), 2.0]
  w = Tensor([1.0, -2.0], requires_grad=True)
  signs = w.bitcast("int32") >> 31
  assert not signs.requires_grad and signs.tolist() == [0, -1]
  view = w.bitcast("int32")
  view ^= -2 ** 31   # as through detach()
  assert w.tolist() == [-1.0, 2.0] and w.is_leaf


def test_bits_of_a_tensor_that_is_gone() -> None:
  """They are a value of their own; where others may show the same, a write is refused."""
  bits = Tensor([1.0, 2.0]).realize().bitcast("uint32")
  bits[0] = 7
  assert bits.tolist() == [7, 0x40000000]
  t = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
  a, b, c = t[:2].bitcast("uint32"), t[2:].bitcast("uint32"), t[1:3].bitcast("uint32")
  del t
  with pytest.raises(AssignError, match="which another bitcast shows too"): a[0] = 7
  del c
  a[0] = 7
  assert a.tolist() == [7, 0x40000000] and b.tolist() == [0x40400000, 0x40800000]


def test_bits_and_captured_functions() -> None:
  """Bits are written in a captured function, and those outside follow its replays."""
  state = Tensor([1.0, 2.0]).realize()
  seen = state.bitcast("int32").realize()

  @ntgrad.jit
  def by_bits(x: Tensor) -> Tensor:
    state.bitcast("int32").assign(x.bitcast("int32") + 1).realize()
    return state * 1
  @ntgrad.jit
  def by_argument(x: Tensor) -> None: x.assign(x * 2).realize()
  for k in range(6):
    got = by_bits(Tensor([float(k), 2.0]).realize())
    want = np.array([k, 2.0], np.float32).view(np.int32) + 1
    np.testing.assert_array_equal(got.numpy().view(np.int32), want)
    np.testing.assert_array_equal(seen.numpy(), want)
  for _ in range(6):
    before = state.numpy() * 2
    by_argument(state)
    np.testing.assert_array_equal(seen.numpy(), before.view(np.int32))


def test_bits_are_copied_with_what_they_show() -> None:
  t = Tensor([1.0, 2.0]).realize()
  bits = t.bitcast("int32")
  for made in (copy.deepcopy([t, bits]), copy.deepcopy([bits, t])[::-1], pickle.loads(pickle.dumps([t, bits]))):
    made[1][0] = 0
    assert made[0].tolist() == [0.0, 2.0] and t.tolist() == [1.0, 2.0]
  for alone in (copy.deepcopy(bits), pickle.loads(pickle.dumps(bits))):
    alone[0] = 0
    assert alone.tolist() == [0, 0x40000000] and t.tolist() == [1.0, 2.0]


# ---- every line that went wrong

def test_padded() -> None:
  y = Tensor(np.ones(4, np.float32)).pad((3, 3))
  y[0] = 5
  assert y.tolist() == [5, 0, 0, 1, 1, 1, 1, 0, 0, 0]


def test_two_own_tensors_of_one_value() -> None:
  x = Tensor(A)
  y = x.contiguous()
  x[0] = 7
  y[1] = 9
  assert x.tolist() == [7, 2, 3, 4] and y.tolist() == [1, 9, 3, 4]
  x = Tensor(A)
  m, v = x * 0, x * 0
  m.realize(v)
  m[0] = 1
  v[1] = 2
  assert m.tolist() == [1, 0, 0, 0] and v.tolist() == [0, 2, 0, 0]
  x = Tensor(A)
  v, w = x * 2, x * 2
  w.realize()
  w[0] = 0
  w.realize()
  assert v.tolist() == [2, 4, 6, 8] and w.tolist() == [0, 4, 6, 8]


def test_detached() -> None:
  x = Tensor(A).realize()
  b = x.detach()
  x.assign(x + 1)
  b.assign(b + 100)
  assert x.tolist() == b.tolist() == [102, 103, 104, 105]


@pytest.mark.parametrize("realized", [True, False])
def test_writes_through_views(realized: bool) -> None:
  t = Tensor(M) if realized else Tensor(M) + 0
  t[:2].assign(Tensor(np.ones((2, 4), np.float32)))
  t[1][2] = 5
  t.T[1, 0] = 5
  t[::-1][0] = 6
  t[1:].assign(t[1:] * 2)
  want = np.array([[1, 5, 1, 1], [2, 2, 10, 2], [12, 12, 12, 12]], np.float32)
  np.testing.assert_array_equal(t.numpy(), want)


def test_a_value_that_overlaps_what_it_is_written_to() -> None:
  """The right side is read before anything is written."""
  for write, want in (
    (lambda x: x.__setitem__(slice(1, None), x[:-1]), [1, 1, 2, 3]),
    (lambda x: x.assign(x.flip(0)), [4, 3, 2, 1]),
    (lambda x: x.__setitem__(slice(None, None, 2), x[1::2] + x[0]), [3, 2, 5, 4]),
    (lambda x: x.__setitem__([3, 0], x[[0, 3]] * 2), [8, 2, 3, 2]),
    (lambda x: x[1:].assign(x[:3] + x[1:].sum()), [1, 10, 11, 12]),
  ):
    for realized in (True, False):
      x = Tensor(A) if realized else Tensor(A) * 1
      write(x)
      assert x.tolist() == want


def test_both_versions_in_one_kernel() -> None:
  x = Tensor(A).realize()
  old = x.contiguous()
  x[1:3] = x[1:3] * 10
  both = x + old * 100 + x.flip(0)
  Tensor.realize(x, both)
  assert x.tolist() == [1, 20, 30, 4] and both.tolist() == [105, 250, 350, 405]


def test_memory_goes_to_who_writes_last() -> None:
  """Copies of copies, written in turns, with lazy readers between."""
  x = Tensor(A).realize()
  seen = []
  want = []
  a, copies, truth = A.copy(), [x], [A.copy()]
  for i in range(4):
    copies.append(copies[-1].clone())
    truth.append(truth[-1].copy())
    copies[i][i] = 10 * i
    truth[i][i] = 10 * i
    seen.append(copies[i] * 2)
    want.append(truth[i] * 2)
    if i % 2: copies[i].realize()
  for c, t in zip([*copies, *seen], [*truth, *want]): np.testing.assert_array_equal(c.numpy(), t)
  assert a[0] == 1


# ---- augmented operators and writing methods

def test_augmented_operators_write() -> None:
  x = Tensor(A)
  y, z = x, x[1:]
  x += 1
  x *= Tensor([2.0])
  x -= np.float32(1)
  x /= 2
  assert y is x and y.tolist() == [1.5, 2.5, 3.5, 4.5] and z.tolist() == [2.5, 3.5, 4.5]
  z **= 2
  assert x.tolist() == [1.5, 6.25, 12.25, 20.25]
  i = Tensor([7, 8, 9])
  j = i
  i //= 2
  i %= 3
  i <<= 2
  i |= 1
  i ^= 3
  i &= 14
  i >>= 1
  n = np.array([7, 8, 9])
  n //= 2
  n %= 3
  n <<= 2
  n |= 1
  n ^= 3
  n &= 14
  n >>= 1
  assert j.tolist() == n.tolist()
  x[1:] += 1
  assert x.tolist() == [1.5, 7.25, 13.25, 21.25]
  w = Tensor(np.eye(2, dtype=np.float32))
  v = w
  w @= Tensor([[1.0, 2.0], [3.0, 4.0]])
  assert v.tolist() == [[1, 2], [3, 4]]
  h, small = Tensor([1.0], dtype="float16"), Tensor([100], dtype="int8")   # results are cast within a category
  h += Tensor([2.0], dtype="float32")
  small += Tensor([100], dtype="int64")
  assert (h.dtype, h.tolist(), small.dtype, small.tolist()) == ("float16", [3.0], "int8", [-56])


def test_augmented_operators_refuse() -> None:
  x, i = Tensor(A), Tensor([1, 2])
  def refused(error: type[Exception], fn: Callable[[], Any], *words: str) -> None:
    with pytest.raises(error) as e: fn()
    for w in words: assert w in str(e.value)
  refused(ShapeError, lambda: x.__iadd__(Tensor(np.ones((2, 4), np.float32))), "(2, 4)", "(4,)")
  refused(DTypeError, lambda: i.__iadd__(1.5), "float", "int")
  refused(DTypeError, lambda: i.__itruediv__(2), "float", "int")
  refused(DTypeError, lambda: Tensor([True]).__iadd__(i[:1]), "int32", "bool")
  w = Tensor(A, requires_grad=True)
  refused(GradientError, lambda: w.__iadd__(1), "leaf", "no_grad")
  refused(GradientError, lambda: w[1:].mul_(2), "leaf", "no_grad")
  refused(GradientError, lambda: w.__setitem__(0, 1.0), "leaf", "no_grad")
  refused(GradientError, lambda: w.assign(w * 2), "leaf", "no_grad")
  assert w.tolist() == [1, 2, 3, 4] and x.tolist() == [1, 2, 3, 4] and i.tolist() == [1, 2]
  with no_grad(): w += 1
  w[1:].assign(Tensor([7.0, 8.0, 9.0]))   # without a gradient of its own
  assert w.tolist() == [2, 7, 8, 9]
  (w * w).sum().backward()
  assert w.grad.tolist() == [4, 14, 16, 18]


def test_writing_methods() -> None:
  x = Tensor(M)
  x[0].add_(1).mul_(2)
  x[1].zero_()
  x[2].fill_(3)
  x[:, 0].copy_([7, 8, 9])
  x.T[1].sub_(1)
  x[2:].div_(2)
  assert x.tolist() == [[7, 3, 6, 8], [8, -1, 0, 0], [4.5, 1, 1.5, 1.5]]
  i = Tensor([1, 2])
  i.copy_(Tensor([3, 4], dtype="int16"))
  assert i.tolist() == [3, 4] and i.fill_(2).tolist() == [2, 2]
  with pytest.raises(ShapeError): i.copy_(Tensor([1, 2, 3]))
  with pytest.raises(DTypeError): i.add_(0.5)


# ---- gradients

def test_gradients_through_writes() -> None:
  x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
  y = x * 2
  y[1:].mul_(3)
  (y * y).sum().backward()
  assert y.tolist() == [2, 12, 18] and x.grad.tolist() == [8, 144, 216]
  x.grad = None
  z = Tensor.zeros(2, 3)
  view = z.T
  z[1] = x * x
  z[0, 1:] += x[:2]
  z[[0, 1], [0, 0]] = x[:2] * 5
  (view * Tensor(np.arange(6, dtype=np.float32).reshape(3, 2))).sum().backward()
  # z = [[5 x0, x0, x1], [5 x1, x1^2, x2^2]], factors [[0, 2, 4], [1, 3, 5]]
  assert x.grad.tolist() == [2, 4 + 5 + 3 * 2 * 2, 5 * 2 * 3]
  x.grad = None
  y = x * 2
  y[:2] = 1.0   # what was there has no gradient any more
  y.sum().backward()
  assert x.grad.tolist() == [0, 0, 2]


def test_a_value_that_was_written_over_before_it_is_gone() -> None:
  w = Tensor([1.0, 1.0, 1.0], requires_grad=True)
  b = Tensor([1.0, 2.0, 3.0]).realize()
  c = b * w
  b.assign(b * 5)
  c.sum().backward()   # ordered before the write
  assert w.grad.tolist() == [1, 2, 3] and b.tolist() == [5, 10, 15] and w.grad.tolist() == [1, 2, 3]


def test_a_value_that_is_gone_is_refused() -> None:
  w = Tensor([1.0, 1.0, 1.0], requires_grad=True)
  b = Tensor([1.0, 2.0, 3.0]).realize()
  c = b * w
  b.assign(b * 5).realize()
  with pytest.raises(GradientError) as e: c.sum().backward()
  for word in ("(3,)", "assign", "test_alias.py", "overwritten"): assert word in str(e.value)
  with pytest.raises(GradientError): c.sum().gradient(w)
  assert w.grad is None and c.tolist() == [1, 2, 3]
  (b + w).sum().backward()   # needs no old value
  assert w.grad.tolist() == [1, 1, 1]


def test_a_value_that_is_gone_but_can_be_computed_again() -> None:
  x = Tensor([1.0, 2.0, 3.0]).realize()
  w = Tensor([2.0, 2.0, 2.0], requires_grad=True)
  h = (x * w).realize()
  loss = (h * h).sum().realize()
  with no_grad(): h.mul_(0).realize()
  loss.backward()
  assert w.grad.tolist() == [4, 16, 36] and h.tolist() == [0, 0, 0]


def test_a_leaf_that_is_written_between() -> None:
  w = Tensor([1.0, 2.0], requires_grad=True)
  loss = (w * Tensor([3.0, 4.0])).sum()
  with no_grad(): w.assign(w * 10)
  late = (w * w).sum()
  (loss + late).backward()   # both versions are the leaf's
  assert w.grad.tolist() == [3 + 20, 4 + 40]
  v = w[1:]
  with no_grad(): w.mul_(2)
  v.sum().backward()
  assert w.grad.tolist() == [23, 45] and v.tolist() == [40]


def test_two_leaves_of_one_value() -> None:
  a = Tensor(A)
  w, v, u = Tensor(a, requires_grad=True), a.detach().requires_grad_(), a.clone().requires_grad_()
  (a * 2 + w * 3 + v * 4 + u * 5 + a.detach()).sum().backward()
  assert [t.grad.tolist()[0] for t in (w, v, u)] == [3, 4, 5]


# ---- costs

def test_a_write_moves_the_bytes_of_the_view() -> None:
  """One kernel over the part, eager, captured, with a live view of the cache; a pending reader of the old version runs first,
  alone."""
  cache, k = Tensor(np.zeros((4, 32, 8), np.float32)).realize(), Tensor(np.ones((4, 1, 8), np.float32)).realize()
  view = cache[:, :4]
  for p in range(2):
    with Launches() as ran:
      cache[:, p:p + 1] = k
      cache.realize()
    assert ran.kernels == 1 and [s for s in ran.steps[0] if np.prod(s) > 1] == [cache.shape, (4, 1, 8)]
  with Launches() as alone: cache.sum().realize()
  reader, other = cache.sum(), k * 2
  with Launches() as ran:
    cache[:, 2:3] = k
    cache.realize()
  assert ran.kernels == alone.kernels + 1
  with Launches() as ran: assert reader.item() == 64 and other.sum().item() == 64
  assert ran.kernels == 1   # the other one, which had nothing to do with it
  np.testing.assert_array_equal(view.numpy()[:, :, 0], [[1, 1, 1, 0]] * 4)


def test_a_decoding_step_copies_no_cache() -> None:
  cache = Tensor(np.zeros((2, 16, 4), np.float32)).realize()
  q = Tensor(np.ones((2, 4), np.float32))
  @ntgrad.jit
  def step(k: Tensor, p: Tensor) -> Tensor:
    cache[:, p] = k
    return (cache * q.reshape(2, 1, 4)).sum(-1)
  want = np.zeros((2, 16, 4), np.float32)
  for i in range(6):
    k = np.full((2, 4), i + 1, np.float32)
    want[:, i] = k
    with Launches() as ran: got = step(Tensor(k), Tensor(np.array(i, np.int32)))
    np.testing.assert_array_equal(got.numpy(), want.sum(-1))
  np.testing.assert_array_equal(cache.numpy(), want)
  assert step.captured and step.kernels <= 3 and step.unplanned_bytes < cache.nbytes() / 8 and not ran.kernels


@pytest.mark.parametrize("count", [100, 400])
def test_costs_are_linear(count: int, device: str) -> None:
  """Nodes of the graph, not seconds."""
  w = Tensor(A).realize()
  for _ in range(count): w.assign(w + 1)
  assert len(w.lazydata.toposort()) <= 2 * count + 10
  x = Tensor(np.zeros((count, 2), np.float32)).realize()
  for i in range(count): x[i] = i
  assert len(x.lazydata.toposort()) <= 5 * count + 10
  if device == "NUMPY":
    assert w.tolist() == (A + count).tolist()
    assert x.numpy()[:, 1].tolist() == list(range(count))


@pytest.mark.skipif(not OPENCL, reason="no OpenCL")
def test_a_detached_value_keeps_nothing_else(device: str) -> None:
  if device != "CPU": pytest.skip("numpy's own memory")
  d = get_device("CPU")
  gc.collect()
  gc.disable()
  try:
    w = Tensor(np.ones((256, 256), np.float32), requires_grad=True)
    x = Tensor(np.ones((256, 256), np.float32))
    before = d.allocated
    losses = []
    for _ in range(20):
      loss = ((x @ w).relu() @ w).mean()
      losses.append(loss.detach())
      loss.backward()
      w.grad.realize(loss)
      w.grad = None
    del loss
    assert d.allocated - before < 20 * 4096 and losses[3].item() > 0
  finally: gc.enable()


# ---- optimizers

def test_what_shares_a_parameter_s_memory_follows_its_steps() -> None:
  w, b = Tensor(M.copy(), requires_grad=True), Tensor(A.copy(), requires_grad=True)
  before, row = w.detach(), w.T
  opt = nn.optim.SGD([w, b], lr=1.0)
  after, part = w.detach(), w[1]
  for _ in range(2):
    opt.zero_grad()
    (w.sum() * 2 + b.sum()).backward()
    opt.step()
  want = M - 4
  for t, a in ((w, want), (before, want), (after, want), (row, want.T), (part, want[1]), (b, A - 2)):
    np.testing.assert_array_equal(t.numpy(), a)
  nn.state.load_state_dict({"w": w, "b": b}, {"w": Tensor(M), "b": Tensor(A)})
  np.testing.assert_array_equal(before.numpy(), M)
  before.mul_(2)
  opt.zero_grad()
  (w.sum() + b.sum()).backward()
  opt.step()
  np.testing.assert_array_equal(row.numpy(), M.T * 2 - 1)


def test_tied_parameters_and_parts() -> None:
  """A tied weight is one parameter; a part of something larger stays where it is."""
  w = Tensor(np.ones((3, 3), np.float32), requires_grad=True)
  tied = w.T
  big = Tensor(M.copy())
  part = big[1:].requires_grad_()
  opt = nn.optim.Adam([w, part], lr=0.1)
  def step() -> None:
    opt.zero_grad()
    ((w * 2).sum() + tied.sum() + part.sum()).backward()
    opt.step()
  for _ in range(3): step()
  np.testing.assert_allclose(tied.numpy(), np.full((3, 3), 0.7), rtol=1e-4)
  np.testing.assert_allclose(big.numpy(), np.concatenate([M[:1], M[1:] - 0.3]), rtol=1e-4)


@pytest.mark.parametrize("change", ["none", "load_state_dict", "assign", "tied"])
def test_kernels_of_a_step(change: str) -> None:
  w, b = Tensor(M.copy(), requires_grad=True), Tensor(A.copy(), requires_grad=True)
  opt = nn.optim.Adam([w, b], lr=0.1)
  used = w.T if change == "tied" else w
  def run() -> int:
    opt.zero_grad()
    (used.sum() + b.sum()).backward()
    Tensor.realize(w.grad, b.grad)
    with Launches() as ran: opt.step()
    return ran.kernels
  first = run()
  if change == "load_state_dict": nn.state.load_state_dict([w, b], {"0": Tensor(M), "1": Tensor(A)})
  if change == "assign":
    with no_grad(): w.assign(w * 2).realize()
  assert run() == run() == first <= 4


def test_many_small_writes() -> None:
  w = Tensor(A).realize()
  for _ in range(800): w.assign(w + 1)
  assert w.tolist() == (A + 800).tolist()


def test_detach_is_always_another_tensor() -> None:
  w = Tensor(A, requires_grad=True)
  with no_grad(): x = w * 2
  y = x.detach()
  assert y is not x and y.detach() is not y
  x[0] = w[0] * 3   # attached: what was detached stays so
  assert not y.requires_grad and not (x.detach() * 2).requires_grad and x.requires_grad
  y.requires_grad = True
  assert y.is_leaf and not x.is_leaf and y.tolist() == [3, 4, 6, 8]
  (y * 5).sum().backward()
  assert y.grad.tolist() == [5] * 4 and w.grad is None


def test_results_of_other_shapes_in_one_memory() -> None:
  """What is computed for two in one memory, in a shape that is neither's: a write to one is not seen by the other."""
  x = Tensor(np.arange(1, 4))
  x.unsqueeze(1).transpose(0, 1)[...] += x
  column = x.view(3, 1)
  first, second = ntgrad.jit(lambda: (column, x))()
  second.fill_(0)
  second.realize()
  assert (first.tolist(), x.tolist(), second.tolist()) == ([[2], [4], [6]], [2, 4, 6], [0, 0, 0])


def test_zeros_that_are_written_by_an_index_are_kept() -> None:
  """A ring buffer that began as a number in no memory: the graph of a loop does not get longer."""
  ring, at = Tensor.zeros(8), Tensor([1, 2]).realize()
  for k in range(4):
    ring[at] = ring.max() + 1
    assert (ring * 2).sum().item() == 4 * (k + 1)
    if k: assert ring._alias.memory is not None
