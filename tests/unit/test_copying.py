"""copy, deepcopy and pickle of tensors, layers, optimizers and models; numpy's functions and operators on tensors."""
from __future__ import annotations

import copy
import pickle
from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Tensor, nn
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.errors import DeviceError, GradientError, InterchangeError

Copier = Callable[[Any], Any]
BOTH: list[Any] = [pytest.param(copy.deepcopy, id="deepcopy")]
BOTH += [
  pytest.param(lambda x, p=p: pickle.loads(pickle.dumps(x, p)), id=f"pickle{p}") for p in range(2, pickle.HIGHEST_PROTOCOL + 1)
]
each_way = pytest.mark.parametrize("again", BOTH)


@each_way
@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_values_and_dtypes(again: Copier, dtype: Any) -> None:
  t = Tensor([[0, 1, 1], [1, 0, 1]]).cast(dtype)
  made = again(t)
  assert type(made) is Tensor and made.dtype is dtype and made.shape == (2, 3) and made.tolist() == t.tolist()


@each_way
@pytest.mark.parametrize(
  "make",
  [
    lambda: Tensor.zeros(2, 3),
    lambda: Tensor(5),
    lambda: Tensor.empty(0, 4),
    lambda: Tensor([1.0, 2.0]) + 1,
    lambda: Tensor.arange(6).reshape(2, 3).T,
    lambda: Tensor([1.0]).expand(3),
    lambda: Tensor.arange(9)[::-2],
    lambda: Tensor([1.0, 2.0], device="NUMPY"),
  ],
)
def test_lazy_values_and_views(again: Copier, make: Callable[[], Tensor]) -> None:
  t = make()
  made = again(t)
  assert (made.shape, made.dtype, made.device, made.tolist()) == (t.shape, t.dtype, t.device, t.tolist())


@each_way
def test_the_copy_is_apart(again: Copier) -> None:
  t = Tensor([1.0, 2.0, 3.0]).realize()
  made = again(t)
  t[0] = 7
  made[1] = 8
  assert t.tolist() == [7, 2, 3] and made.tolist() == [1, 8, 3]
  t.assign(t * 2).realize()
  assert made.tolist() == [1, 8, 3]


@each_way
def test_a_write_that_is_waiting_is_copied(again: Copier) -> None:
  t = Tensor([1.0, 2.0, 3.0]).realize()
  t[1] = 9
  assert again(t).tolist() == [1, 9, 3] and again(t[1:]).tolist() == [9, 3]


@each_way
def test_gradients(again: Copier) -> None:
  leaf, never, plain = Tensor([1.0, 2.0], requires_grad=True), Tensor([1.0], requires_grad=False), Tensor([1.0])
  (leaf * leaf).sum().backward()
  made, *others = again((leaf, never, plain))
  assert made.requires_grad is True and made.is_leaf and made.grad.tolist() == [2, 4]
  assert [t.requires_grad for t in others] == [False, None]
  made.grad = None
  (made * 3).sum().backward()
  assert made.grad.tolist() == [3, 3] and leaf.grad.tolist() == [2, 4]
  assert again((leaf * 2).detach()).tolist() == [2, 4]
  for t in (leaf * 2, leaf[0]):
    with pytest.raises(GradientError, match="detach"): again(t)


@each_way
def test_what_is_shared_stays_shared(again: Copier) -> None:
  base = Tensor([[1.0, 2.0], [3.0, 4.0]])
  a, row, b, turned = again([base, base[0], base, base.T])
  assert a is b
  row[1] = 9
  a[1] += 1
  assert a.tolist() == [[1, 9], [4, 5]] and turned.tolist() == [[1, 4], [9, 5]] and base.tolist() == [[1, 2], [3, 4]]


def test_a_shallow_copy_is_a_view() -> None:
  t, w = Tensor([1.0, 2.0]), Tensor([1.0, 2.0], requires_grad=True)
  made = copy.copy(t)
  made[0] = 5
  assert made is not t and t.tolist() == [5, 2]
  (copy.copy(w) * 2).sum().backward()
  assert w.grad.tolist() == [2, 2]


class Net:
  def __init__(self) -> None:
    self.first, self.norm, self.last = nn.Conv2d(1, 2, 3), nn.BatchNorm(2), nn.Linear(8, 3)
    self.tied = self.last.weight
  def __call__(self, x: Tensor) -> Tensor: return self.last(self.norm(self.first(x)).relu().flatten(1))


def _train(net: Net, opt: Any) -> float:
  x = Tensor(np.arange(64, dtype=np.float32).reshape(4, 1, 4, 4) / 64)
  with Tensor.train():
    opt.zero_grad()
    loss = net(x).cross_entropy(Tensor([0, 1, 2, 1])).backward()
    opt.step()
  return loss.item()


@each_way
@pytest.mark.parametrize(
  "optimizer", [lambda p: nn.optim.SGD(p, 0.1, momentum=0.9), lambda p: nn.optim.Adam(p, 0.1)], ids=["sgd", "adam"]
)
def test_models_and_optimizers(again: Copier, optimizer: Callable[[Any], Any]) -> None:
  """They train on alike. A copy's first step writes to memory of its own, the original's where the old values lie: their kernels
  differ, and so may the last bits."""
  Tensor.manual_seed(3)
  net = Net()
  opt = optimizer(nn.state.get_parameters(net))
  _train(net, opt)
  net2, opt2 = again((net, opt))
  assert net2.tied is net2.last.weight and {id(p) for p in opt2.params} <= {id(p) for p in nn.state.get_parameters(net2)}
  np.testing.assert_allclose([_train(net2, opt2) for _ in range(3)], [_train(net, opt) for _ in range(3)], rtol=1e-5)
  ours, theirs = nn.state.get_state_dict(net), nn.state.get_state_dict(net2)
  assert list(ours) == list(theirs)
  for k in ours: np.testing.assert_allclose(ours[k].numpy(), theirs[k].numpy(), rtol=1e-4, atol=1e-5)
  for layer in (nn.Linear(2, 3), nn.LayerNorm(3), nn.GroupNorm(2, 4), nn.RMSNorm(3), nn.Embedding(4, 2), nn.Conv1d(1, 2, 3)):
    weight = again(layer).weight
    assert weight.requires_grad and weight.tolist() == layer.weight.tolist()


def test_another_class_keeps_its_class_and_attributes() -> None:
  t = Named([1.0, 2.0])
  t.name = "x"
  for made in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
    assert type(made) is Named and made.name == "x" and made.tolist() == [1, 2]


class Named(Tensor):
  name: str


def test_a_device_that_is_not_there_is_named() -> None:
  data = pickle.dumps(Tensor([1.0, 2.0], device="NUMPY")).replace(b"\x05NUMPY", b"\x05CL:99")
  with pytest.raises(DeviceError, match="CL:99"): pickle.loads(data)


# ---- numpy

A = np.array([10.0, 20.0, 30.0], np.float32)


@pytest.mark.parametrize(
  "expression",
  [
    "a + x",
    "a - x",
    "a * x",
    "a / x",
    "a // x",
    "a % x",
    "a ** x",
    "a @ x",
    "a == x",
    "a != x",
    "a < x",
    "a >= x",
    "np.float32(2) * x",
    "np.float64(3) - x",
    "np.int64(2) ** x",
    "x + a",
    "x @ a",
  ],
)
def test_operators_with_arrays_give_tensors(expression: str) -> None:
  values = np.array([1.0, 2.0, 3.0], np.float32)
  made = eval(expression, {"a": A, "np": np, "x": Tensor(values)})
  assert type(made) is Tensor
  np.testing.assert_allclose(made.numpy(), eval(expression, {"a": A, "np": np, "x": values}), rtol=1e-6)


@pytest.mark.parametrize(
  "expression",
  [
    "np.exp(x)",
    "np.add(a, x)",
    "np.add.reduce(x)",
    "np.sum(x)",
    "np.mean(x, axis=0)",
    "np.std(x)",
    "np.max(x)",
    "np.argsort(x)",
    "np.transpose(x)",
    "np.squeeze(x)",
    "np.concatenate([x, x])",
    "np.stack((x, a))",
    "np.where(x > 1, x, 0)",
    "np.einsum('i,i->', x, a)",
    "np.linalg.norm(x)",
    "np.size(x)",
    "np.shape(x)",
    "np.clip(x, 1, 2)",
    "np.asarray(x)",
    "np.array(x, dtype=np.float64)",
    "np.array(x, copy=True)",
    "np.array([x, x])",
    "np.full_like(x, 2)",
    "np.block([[x], [a]])",
  ],
)
def test_functions_of_numpy_give_arrays(expression: str) -> None:
  values = np.array([1.0, 2.0, 3.0], np.float32)
  made, expected = (eval(expression, {"a": A, "np": np, "x": x}) for x in (Tensor(values), values))
  assert type(made) is type(expected) and np.array_equal(made, expected)
  if isinstance(expected, np.ndarray): assert made.dtype == expected.dtype


def test_an_array_of_a_tensor_is_apart_unless_told_otherwise() -> None:
  x = Tensor([1.0, 2.0, 3.0], device="CPU").realize()
  array, shared = np.asarray(x), np.asarray(x, copy=False)
  array[0] = 5
  shared[1] = 7
  assert x.tolist() == [1, 7, 3]
  assert np.asarray(x.bfloat16()).dtype == dtypes.bfloat16.np and np.asarray(Tensor(5)).shape == ()
  for refused, dtype in ((x, "float64"), (x.expand(2, 3), None), (x.bfloat16(), None)):
    with pytest.raises(InterchangeError, match="copy=False"): np.asarray(refused, dtype=dtype, copy=False)
