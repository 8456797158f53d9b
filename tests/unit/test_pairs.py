"""What gives values and indices: by place and as ``dim=`` a pair, as PyTorch has it, along ``axis=`` the values alone; and what
is said where the pair is taken for a tensor."""
from __future__ import annotations

import copy
import inspect
import operator
import pickle
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, jit
from ntgrad.errors import ArgumentError, AxisError, ShapeError
from ntgrad.tensor.reduction import Picked

X = np.array([[3.0, 1.0, 2.0, 2.0], [0.5, 7.0, -1.0, 7.0], [4.0, 4.0, 0.0, -2.0]], np.float32)
# what comes before the dim
NAMES: dict[str, tuple[Any, ...]] = {"max": (), "min": (), "median": (), "nanmedian": (), "mode": (), "kthvalue": (2,),
                                     "cummax": (), "cummin": (), "sort": (), "topk": (2,)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_by_place_and_by_name(name: str, dim: int) -> None:
  x, before = Tensor(X), NAMES[name]
  ways: list[Callable[[], Any]] = [
    lambda: getattr(x, name)(*before, dim), lambda: getattr(x, name)(*before, dim=dim),
    lambda: getattr(ntgrad, name)(x, *before, dim),
    lambda: getattr(ntgrad, name)(x, *before, dim=dim), lambda: getattr(ntgrad, name)(x, *before, axis=dim),
    lambda: getattr(x.named("a", "b"), name)(*before, ("a", "b")[dim]), lambda: getattr(x, name)(*before, np.int64(dim))]
  alone = getattr(x, name)(*before, axis=dim)
  assert isinstance(alone, Tensor)
  for way in ways:
    values, indices = pair = way()
    assert type(pair) is Picked and pair.values is values and pair.indices is indices and indices.dtype is ntgrad.int32
    np.testing.assert_array_equal(values.numpy(), alone.numpy())
    if values.ndim == 2 and name != "kthvalue":
      np.testing.assert_array_equal(np.take_along_axis(X, indices.numpy().astype(np.int64), dim), values.numpy())
  if name not in ("sort", "topk", "cummax", "cummin"):
    assert getattr(x, name)(*before, dim, True)[0].shape == getattr(x, name)(*before, axis=dim, keepdim=True).shape
  with pytest.raises(ArgumentError, match="give one of them"): getattr(x, name)(*before, dim=1, axis=1)
  with pytest.raises(AxisError): getattr(x, name)(*before, 2)


@pytest.mark.parametrize("name", NAMES)
def test_as_pytorch(name: str) -> None:
  torch = pytest.importorskip("torch")
  for given in ((1,), (0,), (-1,)) + (((1, True),) if name not in ("sort", "topk", "cummax", "cummin") else ()):
    ours, theirs = getattr(Tensor(X), name)(*NAMES[name], *given), getattr(torch.tensor(X), name)(*NAMES[name], *given)
    np.testing.assert_array_equal(ours.values.numpy(), theirs.values.numpy())
    assert ours.indices.shape == tuple(theirs.indices.shape)
  one = getattr(Tensor(2.0), name)(*([1] if NAMES[name] else []), 0)
  assert type(one) is Picked and one.values.shape == one.indices.shape == () and one.values.item() == 2


def test_all_elements_and_two_tensors() -> None:
  x, y = Tensor(X), Tensor(X[::-1].copy())
  for t in (x.max(), x.max(None), x.max(axis=None), x.max(axis=(0, 1)), x.max((0, 1)), ntgrad.max(x), x.median().max()):
    assert isinstance(t, Tensor) and t.shape == ()
  assert x.max(None, True).shape == (1, 1) and x.max(axis=0, keepdim=True).shape == (1, 4) == x.max(0, keepdims=True)[0].shape
  np.testing.assert_array_equal(x.max(y).numpy(), np.maximum(X, X[::-1]))
  np.testing.assert_array_equal(x.min(y).numpy(), np.minimum(X, X[::-1]))
  np.testing.assert_array_equal(np.max(x, 1), X.max(1))   # numpy's own
  np.testing.assert_array_equal(np.max(x, axis=0), X.max(0))
  xp = x.__array_namespace__()
  assert isinstance(xp.max(x, axis=1), Tensor) and isinstance(xp.sort(x, axis=0), Tensor)
  low, high = x.aminmax(dim=1)
  np.testing.assert_array_equal(low.numpy(), X.min(1))
  np.testing.assert_array_equal(high.numpy(), X.max(1))


def test_gradients_of_both_ways() -> None:
  x = Tensor(np.array([[1.0, 3.0, 3.0]], np.float32), requires_grad=True)
  x.max(1).values.sum().backward()
  assert x.grad.tolist() == [[0, 1, 0]]   # the first of equal ones
  x.grad = None
  x.max(axis=1).sum().backward()
  assert x.grad.tolist() == [[0, 0.5, 0.5]]


TAKEN: dict[str, Callable[[Any, Any], Any]] = {   # a pair, and a tensor
  **{f"p {op.__name__} 2": (lambda p, x, op=op: op(p, 2)) for op in (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.lt,
    operator.le, operator.gt, operator.ge, operator.eq, operator.ne)},
  **{f"2 {op.__name__} p": (lambda p, x, op=op: op(2, p)) for op in (operator.add, operator.sub, operator.mul, operator.truediv)},
  **{f"x {op.__name__} p": (lambda p, x, op=op: op(x, p)) for op in (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.lt, operator.eq, operator.matmul)},
  **{f"p {op.__name__} x": (lambda p, x, op=op: op(p, x)) for op in (
    operator.add, operator.sub, operator.mul, operator.gt, operator.eq)},
  "p + p": lambda p, x: p + p, "-p": lambda p, x: -p, "abs": lambda p, x: abs(p),
  "format": lambda p, x: f"{p:.2f}", "round": lambda p, x: round(p), "float": lambda p, x: float(p),
  "numpy": lambda p, x: np.asarray(p), "np.exp": lambda p, x: np.exp(p), "np.float32 *": lambda p, x: np.float32(2) * p,
  "Tensor": lambda p, x: Tensor(p), "stack": lambda p, x: Tensor.stack(p, p), "cat": lambda p, x: ntgrad.cat([x, p]),
  "maximum": lambda p, x: x.maximum(p), "ntgrad.exp": lambda p, x: ntgrad.exp(p),
  "p[:, None]": lambda p, x: p[:, None], "p[i]": lambda p, x: p[Tensor([0])], "assign": lambda p, x: x.assign(p),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_pair_that_is_taken_for_a_tensor_is_told(name: str) -> None:
  x = Tensor(X)
  with pytest.raises(TypeError, match=r"^\(values, indices\) is a tuple of tensors, not one tensor.*x.max\(axis=1\)"):
    TAKEN[name](x.max(1), x)


@pytest.mark.parametrize("name", ["sum", "shape", "numpy", "item", "argmax", "reshape", "T", "dtype", "realize", "unsqueeze"])
def test_what_a_pair_has_not_is_told(name: str) -> None:
  pair = Tensor(X).max(1)
  said = rf"not one tensor, and has no \.{name}; take \.values, or write axis="
  with pytest.raises(AttributeError, match=said): getattr(pair, name)
  assert not hasattr(pair, name) and not hasattr(pair, "__array_interface__")
  with pytest.raises(AttributeError, match=r"^\(min, max\) is a tuple of tensors, not one tensor, and has no .*; take \.min$"):
    getattr(Tensor(X).aminmax(), name)


def test_a_pair_is_a_tuple() -> None:
  pair = Tensor(X).max(1)
  assert isinstance(pair, tuple) and len(pair) == 2 and pair[0] is pair.values and pair[-1] is pair.indices
  assert pair[:1] == (pair.values,)
  assert pair == pair and pair != "text" and pair is not None and bool(pair) and {pair: 1}[pair] == 1
  assert len(pair + (1,)) == 3 and ((1,) + pair)[1] is pair.values and pair._fields == ("values", "indices")
  assert repr(pair).startswith("Picked(values=") and f"{pair}" == repr(pair) and [*pair] == [pair.values, pair.indices]
  for again in (copy.copy(pair), copy.deepcopy(pair), pickle.loads(pickle.dumps(pair)), pair._replace(values=pair.values)):
    assert type(again) is Picked and again.values.tolist() == pair.values.tolist()
  assert Tensor.stack(Tensor(X).max(0)).shape == (2, 4)   # of its parts, as of those of any tuple
  with pytest.raises(IndexError): pair[2]
  f = jit(lambda x: x.max(1))
  for _ in range(4): assert type(f(Tensor(X).realize())) is Picked
  assert "axis" in inspect.signature(Tensor.max).parameters
  with pytest.raises(ShapeError): Tensor(X).max(Tensor.ones(3))
