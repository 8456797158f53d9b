"""The classes of errors: all are RuntimeErrors, and what a script catches of PyTorch's or Python's is caught of ours."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, errors, nn
from ntgrad.errors import NtgradError

# a call that is refused (``L`` is the library), and Python's class of it
CALLS: dict[str, type[Exception]] = {
  # values
  "x.reshape(4)": ValueError, "L.zeros(-1)": ValueError, "L.arange(0, 5, 0)": ValueError, "x.permute(0)": ValueError,
  "L.tensor([[1], [1, 2]])": ValueError, "nn.Dropout(2.0)": ValueError, "L.optim.SGD([w], lr=-1.0)": ValueError,
  "F.binary_cross_entropy(x, L.ones(4))": ValueError, "x.kthvalue(9)": ValueError, "L.optim.SGD([], lr=0.1)": ValueError,
  "F.cross_entropy(x, L.tensor([1]))": ValueError, "x.item()": ValueError,
  "bool(x)": ValueError, "x.unflatten(0, (5, 5))": ValueError,
  "L.utils.data.DataLoader([1], batch_size=0)": ValueError, "L.utils.data.random_split([1, 2], [5])": ValueError,
  # types
  "x + 'a'": TypeError, "x.reshape('a')": TypeError, "L.zeros('a')": TypeError, "L.tensor('abc')": TypeError,
  "L.relu('a')": TypeError,
  "x.pow('a')": TypeError, "nn.Linear('a', 2)": TypeError, "nn.Linear(2, 2)('a')": TypeError, "L.manual_seed('a')": TypeError,
  "L.optim.SGD(w, lr=0.1)": TypeError, "x.sum(foo=1)": TypeError, "nn.Linear(2, 2, foo=1)": TypeError, "x.clamp('a')": TypeError,
  "len(x[0, 0])": TypeError, "list(x[0, 0])": TypeError, "iter(x[0, 0])": TypeError, "L.ones(2, dtype='foo')": TypeError,
  "x.max(1) * 2": TypeError, "setattr(x, 'data', 3)": TypeError, "L.cat(3)": TypeError, "x.masked_fill(3, 1)": TypeError,
  # indices and axes
  "x[5]": IndexError, "x[0, 0, 0]": IndexError, "x[1.5]": IndexError, "x['a']": IndexError, "x[[0, 7]]": IndexError,
  "x.sum(5)": IndexError,
  "x[L.ones(5).bool()]": IndexError, "x.softmax(7)": IndexError, "x.squeeze(9)": IndexError, "x.transpose(0, 5)": IndexError,
  "x.select(0, 9)": IndexError, "x.max(5)": IndexError, "nn.ModuleList()[3]": IndexError, "nn.Sequential()[1]": IndexError,
  "nn.Embedding(3, 2)(L.tensor([7])).detach().numpy()": IndexError, "F.cross_entropy(x, L.tensor([5, 1])).item()": IndexError,
  "L.utils.data.Subset([1, 2], [9])[0]": IndexError, "x.__setitem__(9, 1)": IndexError, "x[L.ones(2)]": IndexError,
  # names
  "nn.ModuleDict()['a']": KeyError, "w_group['foo']": KeyError, "nn.Linear(2, 2).state_dict()['foo']": KeyError,
  "nn.Linear(2, 2).get_parameter('foo')": AttributeError, "nn.Linear(2, 2).get_submodule('foo')": AttributeError,
  "nn.Linear(2, 2).get_buffer('foo')": AttributeError, "x.foo": AttributeError, "nn.Linear(2, 2).foo": AttributeError,
  "x.max(1).sum": AttributeError, "L.load('/nowhere/a.pt')": FileNotFoundError,
  # what PyTorch has a RuntimeError for, and Python nothing
  "x @ x": RuntimeError, "x + L.ones(4)": RuntimeError, "L.cat([x, L.ones(4, 4)])": RuntimeError, "x.view(7)": RuntimeError,
  "x.expand(5, 5)": RuntimeError, "x.to('foo')": RuntimeError, "x.sum().backward()": RuntimeError,
  "L.einsum('ij,jk', x, x)": RuntimeError,
  "nn.Linear(3, 4)(L.ones(2, 5))": RuntimeError, "nn.Linear(2, 2).load_state_dict({})": RuntimeError, "x.topk(9)": RuntimeError,
  "nn.Linear(2, 2).load_state_dict({'weight': x, 'bias': x})": RuntimeError, "w.add_(1)": RuntimeError,
  "x.narrow(0, 1, 5)": RuntimeError,
  "nn.Conv2d(3, 4, 3)(L.ones(1, 2, 8, 8))": RuntimeError, "L.ones(2, dtype=L.int32).requires_grad_()": RuntimeError,
  "x.gather(0, x)": RuntimeError, "L.linalg.inv(x)": RuntimeError, "x.repeat(-1)": RuntimeError, "x.split([1, 5])": RuntimeError,
}
NOT_THERE = {"x.permute(0)", "L.optim.SGD([], lr=0.1)", "L.tensor([[1], [1, 2]])", "x.clamp('a')"}   # another class in PyTorch


def refused(call: str, lib: Any) -> Exception:
  x, w = lib.ones(2, 3), lib.ones(2, requires_grad=True)
  group = lib.optim.SGD([w], lr=0.1).param_groups[0]
  try: eval(call, {"L": lib, "x": x, "w": w, "w_group": group, "nn": lib.nn, "F": lib.nn.functional})
  except Exception as e: return e
  raise AssertionError(f"{call} is taken")


@pytest.mark.parametrize("call", CALLS)
def test_what_a_script_catches(call: str) -> None:
  ours = refused(call, ntgrad)
  assert isinstance(ours, CALLS[call]), type(ours)
  # Python refuses names of arguments and of attributes by itself
  if not any([s in call for s in ("foo", "FileNot", "x.max(1).sum")]): assert isinstance(ours, NtgradError)
  if isinstance(ours, NtgradError): assert isinstance(ours, RuntimeError) and str(ours) == ours.args[0]


@pytest.mark.parametrize("call", [c for c in CALLS if c not in NOT_THERE and "x.max(1)" not in c])
def test_as_in_pytorch(call: str) -> None:
  """What PyTorch raises is caught, or what is more exact than its RuntimeError."""
  theirs = refused(call, pytest.importorskip("torch"))
  ours = refused(call, ntgrad)
  known = [k for k in (ValueError, TypeError, IndexError, KeyError, AttributeError, OSError) if isinstance(theirs, k)]
  assert not known or any([isinstance(ours, k) for k in known]) or CALLS[call] is ValueError, (type(ours), type(theirs))
  if isinstance(theirs, RuntimeError): assert isinstance(ours, RuntimeError)


def test_every_class() -> None:
  for name in errors.__all__:
    kind = getattr(errors, name)
    assert issubclass(kind, RuntimeError) and issubclass(kind, NtgradError) and kind.__doc__
    assert str(kind("said 'so'")) == "said 'so'"
  with pytest.raises(ValueError): Tensor.ones(2).sum(4)   # numpy's AxisError is one
  with pytest.raises(RuntimeError): nn.Linear(2, 2)(Tensor(np.ones((1, 3), np.float32)))
