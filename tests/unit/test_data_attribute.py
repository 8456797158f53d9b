"""``x.data``: the memory of a tensor without its gradient, which alone can be called, and what is written by it."""
from __future__ import annotations

import copy
import pickle
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
from ntgrad import Tensor, TinyJit, jit, nn
from ntgrad.codegen.ir import toposort
from ntgrad.errors import ArgumentError, CaptureError, GradientError

A = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def leaf(a: Any = A) -> Tensor: return Tensor(np.array(a, np.float32), requires_grad=True)


def same(t: Any, a: Any) -> None: np.testing.assert_allclose(t.numpy(), np.array(a), rtol=1e-5, atol=1e-6)


class Mine(Tensor):
  """A tensor of the user's."""


def test_it_alone_can_be_called() -> None:
  for t in (leaf(), Tensor(A), Mine(A), leaf() * 2):
    d = t.data
    assert callable(d) and isinstance(d, Tensor) and isinstance(d, type(t)) and type(d).__name__ == type(t).__name__
    assert not d.requires_grad and d.is_leaf and not callable(t)
    seen = d()
    assert isinstance(seen, memoryview) and bytes(seen) == t.numpy().tobytes()
    others = [d + 1, 1 - d, -d, d[0], d.T, d.reshape(-1), d.detach(), d.exp(), d.sum(), d.zeros_like(), d.rand_like(), d.clone(),
              d @ d.T, d.cat(d), d.max(1)[1], d.to("float16"), d.pad(((0, 1), (0, 0))), d[[0, 1]], copy.copy(d), copy.deepcopy(d),
              pickle.loads(pickle.dumps(d)), Tensor(d), nn.Parameter(d), d.new_tensor([1.0]), d.abs(),
              d.gather(0, d.argmax(1, keepdim=True)), d.named("a", "b"), d.unbind()[0], d.cast("int32"), d.bitcast("int32"),
              ntgrad.zeros_like(d), ntgrad.add(d, d), *d.split(1), *iter(d)]
    for k, o in enumerate(others): assert not callable(o), (k, o)
    assert type(d * 2) is (Mine if type(t) is Mine else Tensor) and not callable(pickle.loads(pickle.dumps([d]))[0])
  assert bytes(Tensor([1, 2], dtype="uint8").data()) == b"\x01\x02"
  assert Tensor(3).data().shape == () and Tensor(3).data().tolist() == 3


WRITES: dict[str, tuple[Callable[[Tensor], Any], Callable[[np.ndarray], Any]]] = {
  "mul_": (lambda p: p.data.mul_(0.5), lambda a: a * 0.5), "add_": (lambda p: p.data.add_(p.data, alpha=-0.5), lambda a: a * 0.5),
  "fill_": (lambda p: p.data.fill_(3), lambda a: a * 0 + 3), "zero_": (lambda p: p.data.zero_(), lambda a: a * 0),
  "clamp_": (lambda p: p.data.clamp_(-1, 1), lambda a: a.clip(-1, 1)), "copy_": (lambda p: p.data.copy_(Tensor([1.0, 2.0, 3.0])),
                                                                              lambda a: a * 0 + [1, 2, 3]),
  "item": (lambda p: p.data.__setitem__(0, 5.0), lambda a: np.stack([a[0] * 0 + 5, a[1]])),
  "all": (lambda p: p.data.__setitem__(..., 7.0), lambda a: a * 0 + 7),
  "mask": (lambda p: p.data.__setitem__(p.data > 1, 0.0), lambda a: np.where(a > 1, 0, a)),
  "rows": (lambda p: p.data.__setitem__(Tensor([1]), 9.0), lambda a: np.stack([a[0], a[1] * 0 + 9])),
  "set": (lambda p: setattr(p, "data", p.data * 2 + 1), lambda a: a * 2 + 1),
  "set of another": (lambda p: setattr(p, "data", Tensor.ones(2, 3)), lambda a: a * 0 + 1),
  "set with a gradient": (lambda p: setattr(p, "data", p * p), lambda a: a * a),
  "flipped": (lambda p: setattr(p, "data", p.data.flip(0)), lambda a: a[::-1]),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("kind", ["leaf", "tensor", "detached", "buffer"])
def test_writes(name: str, kind: str) -> None:
  """Of leaves, of plain tensors, of parameters that are slices of an optimizer's memory."""
  write, want = WRITES[name]
  p = leaf()
  if kind == "tensor": p = Tensor(A)
  if kind == "detached": p = Tensor(A).requires_grad_(False)
  if kind == "buffer":
    other = leaf(A + 1)
    nn.optim.SGD([other, p], lr=0.1)
  state = p.requires_grad
  for _ in range(2):
    before = p.numpy()
    write(p)
    same(p, want(before))
    assert p.requires_grad is state and p.is_leaf
  if kind == "buffer": same(other, A + 1)


def test_in_place_operators() -> None:
  p = leaf()
  p.data += 1
  p.data *= 2
  p.data -= Tensor([1.0, 2.0, 3.0])
  p.data /= 2
  same(p, ((A + 1) * 2 - [1, 2, 3]) / 2)
  (p * p).sum().backward()
  p.grad.data.zero_()
  same(p.grad, A * 0)
  p.grad.data = Tensor.ones(2, 3)
  same(p.grad, A * 0 + 1)


def test_detach_() -> None:
  p = leaf()
  (p * p).sum().backward()
  assert p.grad.detach_() is p.grad and p.grad.zero_().numpy().tolist() == (A * 0).tolist()
  y = p * 2
  assert y.requires_grad and not y.detach_().requires_grad and y.is_leaf and not p.detach_().requires_grad
  same(y, A * 2)


def test_what_shared_the_memory_keeps_its_values() -> None:
  p = leaf()
  backup, row, detached = p.data, p[0], p.detach()[1:]
  p.data = Tensor.zeros(2, 3)
  same(p, A * 0)
  same(backup, A)
  same(row, A[0])
  same(detached, A[1:])
  row.sum().backward()   # of the leaf as it was
  same(p.grad, [[1, 1, 1], [0, 0, 0]])
  detached.fill_(4)
  same(backup, [A[0], [4, 4, 4]])   # they share memory still
  p.data = backup
  backup.fill_(9)
  same(p, [A[0], [4, 4, 4]])
  value = Tensor.ones(2, 3)
  p.data = value
  value.fill_(2)
  p.data.fill_(3)
  same(p, A * 0 + 3)
  same(value, A * 0 + 2)


def test_a_gradient_of_what_was_made_before() -> None:
  p = leaf()
  loss = (p * p).sum()
  p.data = Tensor.ones(2, 3)
  loss.backward()
  same(p.grad, 2 * A)


# what is written to y = w * 2, or to v, a part of it, without a gradient; the values of y then; its derivative
UNSEEN: dict[str, tuple[Callable[[Tensor, Tensor], Any], Callable[[np.ndarray], Any], int]] = {
  "masked": (lambda y, v: y.data.masked_fill_(y < 0, 9.0), lambda a: np.where(a < 0, 9, a), 2),
  "a part": (lambda y, v: y.data[0].fill_(5.0), lambda a: np.stack([a[0] * 0 + 5, a[1]]), 2),
  "detached": (lambda y, v: y.detach().mul_(3), lambda a: a * 3, 2),
  "set": (lambda y, v: setattr(y, "data", y.data.clamp(max=3)), lambda a: a.clip(None, 3), 2),
  "a view": (lambda y, v: v.data.add_(1), lambda a: np.stack([a[0], a[1] + 1]), 2),
  "before": (lambda y, v: (y.data.add_(1), y.mul_(2)), lambda a: (a + 1) * 2, 4),
  "after": (lambda y, v: (y.mul_(2), y.data.add_(1)), lambda a: a * 2 + 1, 4)}


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("name", UNSEEN)
def test_gradients_go_on_through_what_is_written(name: str, realized: bool) -> None:
  """As in PyTorch: the values are new, the graph is the old one; for views too."""
  write, want, slope = UNSEEN[name]
  w = leaf()
  y = w * 2
  v = y[1:]
  if realized: y.realize()
  write(y, v)
  with ntgrad.no_grad(): y[:, 1] = 4.0
  if realized: Tensor.realize(y, v)
  a = want(A * 2)
  a[:, 1] = 4
  same(y, a)
  ((y * y).sum() + (0 if name == "set" else (v * v).sum())).backward()   # v is not what y.data = .. gives
  if name != "set": a[1] *= 2
  same(w.grad, 2 * a * slope)


def test_what_is_written_often_grows_nothing() -> None:
  p = leaf()
  y = p * 2
  for k in range(5):
    y.data.fill_(k)
    if k % 2: y.realize()
  assert len(toposort([y.lazydata])) < 20
  y.sum().backward()
  same(p.grad, A * 0 + 2)


def test_a_part_leaves_what_it_is_a_part_of() -> None:
  base = Tensor(A)
  part = base[1:]
  part.data = Tensor.ones(1, 3)
  same(base, A)
  same(part, [[1, 1, 1]])
  p = leaf()
  d = p.data
  d.data = Tensor.zeros(2, 3)
  same(p, A)
  same(d, A * 0)
  floats = Tensor([1.0, 2.0])
  bits = floats.bitcast("int32")
  bits.data = Tensor([0, 0])
  same(floats, [1, 2])
  same(bits, [0, 0])
  shown = Tensor([1.0]).expand(3)
  shown.data = Tensor([1.0, 2.0, 3.0])
  same(shown, [1, 2, 3])


def test_another_shape_or_dtype() -> None:
  p = leaf()
  p.data = Tensor.ones(4)
  assert p.shape == (4,) and p.requires_grad and p.is_leaf
  p.data = p.data.half()
  assert p.dtype is ntgrad.float16
  p.data = p.data.float().reshape(2, 2)
  (p * 3).sum().backward()
  same(p.grad, [[3, 3], [3, 3]])


def test_refused() -> None:
  p = leaf()
  for value in ([1.0], 2.0, None, np.ones((2, 3), np.float32)):
    with pytest.raises(ArgumentError, match=r"data = .*it takes a Tensor"): p.data = value
    with pytest.raises(TypeError): p.data = value
  with pytest.raises(GradientError, match="cast it to a float dtype first"): p.data = Tensor([1, 2])
  with pytest.raises(AttributeError): del p.data
  same(p, A)


@pytest.mark.parametrize("how", ["SGD", "AdamW"])
def test_optimizers_go_on(how: str) -> None:
  """A backup that is put back between steps, weights that are cut off after each, as in PyTorch."""
  torch = pytest.importorskip("torch")
  x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
  layers = [nn.Linear(3, 2), torch.nn.Linear(3, 2)]
  layers[1].load_state_dict({k: torch.tensor(v.numpy()) for k, v in layers[0].state_dict().items()})
  def run(lib: Any, layer: Any, x: Any) -> list[Any]:
    o = getattr(lib.optim, how)(layer.parameters(), lr=0.1)
    out = []
    for k in range(4):
      o.zero_grad()
      (layer(x) ** 2).sum().backward()
      o.step()
      for p in layer.parameters(): p.data.clamp_(-0.5, 0.5)
      backup = {n: p.data for n, p in layer.named_parameters()}
      for _, p in layer.named_parameters(): p.data = p.data * 0 + k
      out += [p.detach().numpy().copy() for p in layer.parameters()]
      for n, p in layer.named_parameters(): p.data = backup[n]
      out += [p.detach().numpy().copy() for p in layer.parameters()]
    return out
  with Tensor.train(): ours = run(ntgrad, layers[0], Tensor(x))
  theirs = run(torch, layers[1], torch.tensor(x))
  for a, b in zip(ours, theirs, strict=True): np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrap", [jit, TinyJit])
def test_captured(wrap: Any) -> None:
  p, q = leaf(), leaf([1.0, 2.0, 3.0])

  @wrap
  def step(x: Tensor) -> Tensor:
    p.grad = q.grad = None
    loss = ((p * x + q) ** 2).sum()
    loss.backward()
    p.data = p.data - 0.1 * p.grad
    q.data.sub_(0.1 * q.grad)
    q.data.clamp_(-2, 2)
    return loss.realize()

  a, b = A.copy(), np.array([1.0, 2.0, 3.0], np.float32)
  for k in range(7):
    x = np.full((2, 3), 0.5 + k / 10, np.float32)
    y = a * x + b
    assert step(Tensor(x).realize()).item() == pytest.approx(float((y ** 2).sum()), rel=1e-4)
    a, b = a - 0.2 * y * x, (b - 0.2 * y.sum(0)).clip(-2, 2)
    same(p, a)
    same(q, b)
    if k == 4:   # between replays
      p.data = p.data * 0.5
      a = a * 0.5


def test_captured_argument_and_what_does_not_fit() -> None:
  @jit
  def write(w: Tensor, v: Tensor) -> Tensor:
    w.data = v * 2
    return w.sum()
  for k in range(5):
    w = Tensor.zeros(3).realize()
    assert write(w, Tensor([1.0, 2.0, k]).realize()).item() == 6 + 2 * k
    same(w, [2, 4, 2 * k])
  with pytest.raises(CaptureError, match=r"data: float32 of shape \(2,\) .* it has to fit"):
    write(Tensor.zeros(3), Tensor.ones(2))
  double = jit(lambda t: t * 2)
  for k in range(4): same(double(leaf([k, 1.0]).data), [2 * k, 2])


def test_given_on() -> None:
  """To layers, state dicts, numpy, other libraries and tile kernels."""
  layer = nn.Linear(3, 2)
  layer.load_state_dict({k: v.data for k, v in nn.Linear(3, 2).state_dict().items()})
  layer.weight = nn.Parameter(layer.weight.data * 2)
  assert layer(Tensor.ones(1, 3)).shape == (1, 2) and layer.weight.requires_grad
  nn.init.zeros_(layer.weight.data)
  same(layer.weight, np.zeros((2, 3)))
  np.testing.assert_array_equal(np.from_dlpack(Tensor(A).data), A)
  assert np.asarray(leaf().data).tolist() == A.tolist() and float(leaf([2.0]).data) == 2

  def arrangement(x: Any, y: Any) -> Any: return x.tile((2, -1)), y.tile((2, -1))
  def application(x: Any, y: Any) -> None: y = x * 3  # noqa: F841
  kernel = tile.make(arrangement, application, (tile.Tensor(2), tile.Tensor(2)))
  out = Tensor.zeros(2, 3).contiguous()
  kernel(leaf().data, out.data)
  same(out, A * 3)


def test_a_value_written_without_a_gradient_when_what_it_was_made_of_is_written() -> None:
  """What its gradient goes on to is computed before: the value could not be asked for any more."""
  w = Tensor([2.0, 3.0], requires_grad=True)
  y = w * 3
  y.detach().add_(y)
  with ntgrad.no_grad(): w.assign(Tensor([5.0, 7.0]))
  assert w.tolist() == [5.0, 7.0] and y.tolist() == [12.0, 18.0]
  y.sum().backward()
  assert w.grad is not None and w.grad.tolist() == [3.0, 3.0]
