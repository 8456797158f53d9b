"""Weights that are computed of others, lists and dicts of parameters, batch norms fused into the layer before: as in PyTorch."""
from __future__ import annotations

import copy
import pickle
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, nn
from ntgrad.errors import ArgumentError, AssignError, AxisError, GradientError
from ntgrad.nn.utils import parametrizations, parametrize
from support.beside_torch import Program, compare, linear

X = [[1.0, -2.0]]


def of_weight_norm(torch: Any, note: Callable[..., Any]) -> None:
  utils, x = torch.nn.utils, torch.tensor(X)
  for dim in 0, 1, None, -1:
    layer = utils.weight_norm(linear(torch), dim=dim)
    y = layer(x)
    note(y, layer.state_dict(), [n for n, _ in layer.named_parameters()])
    (y * y).sum().backward()
    note(layer.weight_g.grad, layer.weight_v.grad, layer.weight)
    with torch.no_grad(): layer.weight_g.mul_(2)
    note(layer(x))
    utils.remove_weight_norm(layer)
    note(sorted(layer.state_dict()), layer.weight, layer(x), type(layer).__name__)
  with pytest.raises(ValueError): utils.remove_weight_norm(linear(torch))


def of_parametrized_weight_norm(torch: Any, note: Callable[..., Any]) -> None:
  utils, x = torch.nn.utils, torch.tensor(X)
  for dim in 0, 1, None:
    layer = utils.parametrizations.weight_norm(linear(torch), dim=dim)
    note(layer(x), layer.state_dict(), [n for n, _ in layer.named_parameters()], type(layer).__name__)
    (layer(x) ** 2).sum().backward()
    parts = layer.parametrizations.weight
    note(parts.original0.grad, parts.original1.grad)
    other = copy.deepcopy(layer)
    with torch.no_grad(): parts.original0.mul_(2)
    note(layer(x), other(x), *[utils.parametrize.is_parametrized(layer, *n) for n in ((), ("weight",), ("bias",))])
    layer.weight = torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    note(layer.weight, parts.original0)
    other.load_state_dict(layer.state_dict())
    note(other(x))
    utils.parametrize.remove_parametrizations(layer, "weight")
    note(sorted(layer.state_dict()), layer.weight, type(layer).__name__, utils.parametrize.is_parametrized(layer))


def of_parametrizations(torch: Any, note: Callable[..., Any]) -> None:
  class Symmetric(torch.nn.Module):   # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any: return x.triu() + x.triu(1).transpose(-1, -2)
    def right_inverse(self, x: Any) -> Any: return x.triu()
  class Scaled(torch.nn.Module):   # type: ignore[misc, name-defined]
    def __init__(self) -> None:
      super().__init__()
      self.by = torch.nn.Parameter(torch.ones(1) * 2)
    def forward(self, x: Any) -> Any: return x * self.by
  class Row(torch.nn.Module):   # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any: return x[0]
  p, layer, x = torch.nn.utils.parametrize, linear(torch), torch.tensor(X)
  p.register_parametrization(layer, "weight", Symmetric())
  note(layer.weight, sorted(layer.state_dict()), layer(x))
  p.register_parametrization(layer, "weight", Scaled())
  p.register_parametrization(layer, "bias", Scaled())
  note(layer.weight, sorted(layer.state_dict()), layer(x), len(list(layer.parameters())))
  layer(x).sum().backward()
  note({n: t.grad for n, t in sorted(layer.named_parameters())})
  p.remove_parametrizations(layer, "weight", leave_parametrized=False)
  note(layer.weight, sorted(layer.state_dict()))
  for name in "weight", "nothing":
    with pytest.raises(ValueError): p.register_parametrization(linear(torch), name, Row())


def of_lists(torch: Any, note: Callable[..., Any]) -> None:
  parameters = torch.nn.ParameterList([torch.ones(2), torch.nn.Parameter(torch.zeros(1)), 3])
  parameters.append(torch.ones(1) * 5)
  parameters += [torch.ones(1)]
  parameters[0] = torch.ones(2) * 7
  note(len(parameters), list(parameters), parameters[-1], list(parameters[1:3]), sorted(parameters.state_dict()),
       len(list(parameters.parameters())), parameters[0].requires_grad, isinstance(parameters[0], torch.nn.Parameter))
  still = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(1), requires_grad=False)])
  note(bool(still[0].requires_grad))


def of_dicts(torch: Any, note: Callable[..., Any]) -> None:
  d = torch.nn.ParameterDict({"a": torch.ones(2), "b": torch.nn.Parameter(torch.zeros(1))})
  d["c"] = torch.ones(1)
  d.update({"d": torch.ones(3)})
  note(len(d), list(d), sorted(d.keys()), sorted(d.state_dict()), "a" in d, "z" in d, d.get("z"), d.pop("a"), list(reversed(d)),
       d.popitem(), list(d.copy()), list(d | torch.nn.ParameterDict({"q": torch.ones(1)})), d.setdefault("e", torch.ones(1)))
  del d["b"]
  note(sorted(d), [n for n, _ in d.items()], len(list(d.values())))
  d.clear()
  note(len(d))
  class Net(torch.nn.Module):   # type: ignore[misc, name-defined]
    def __init__(self) -> None:
      super().__init__()
      self.many = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2)) for _ in range(2)])
      self.named = torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.ones(2))})
    def forward(self, x: Any) -> Any: return sum(p * x for p in self.many) + self.named["w"]
  net = Net()
  net(torch.ones(2)).sum().backward()
  note(sorted(net.state_dict()), {n: p.grad for n, p in net.named_parameters()})


def filled(torch: Any, layer: Any, seed: int) -> Any:
  """A layer in use, with numbers of a seed."""
  rng = np.random.default_rng(seed)
  with torch.no_grad():
    for name, t in sorted(layer.state_dict().items()):
      if "num" not in name: t.copy_(torch.from_numpy(np.abs(rng.standard_normal(tuple(t.shape))).astype(np.float32) + 0.5))
  return layer.eval()


def of_fused(torch: Any, note: Callable[..., Any]) -> None:
  n, utils = torch.nn, torch.nn.utils
  image = torch.from_numpy(np.random.default_rng(9).standard_normal((2, 3, 5, 5)).astype(np.float32))
  for conv, norm, transpose in ((n.Conv2d(3, 4, 3, bias=False), n.BatchNorm2d(4), False),
                                (n.Conv2d(3, 4, 3), n.BatchNorm2d(4, affine=False), False),
                                (n.ConvTranspose2d(3, 4, 3), n.BatchNorm2d(4), True)):
    filled(torch, conv, 1), filled(torch, norm, 2)
    fused = utils.fuse_conv_bn_eval(conv, norm, transpose)
    np.testing.assert_allclose(fused(image).detach().numpy(), norm(conv(image)).detach().numpy(), 1e-4, 1e-4)
    note(fused.weight.sum(), fused.bias, isinstance(fused, type(conv)))
  fused = utils.fusion.fuse_linear_bn_eval(filled(torch, n.Linear(3, 4), 1), filled(torch, n.BatchNorm1d(4), 2))
  note(fused.weight, fused.bias)


PROGRAMS = [of_weight_norm, of_parametrized_weight_norm, of_parametrizations, of_lists, of_dicts, of_fused]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_as_pytorch(program: Program) -> None:
  compare(program, *[f"nn.utils.{m}" for m in ("parametrize", "parametrizations", "fusion")])


def test_computed_weights_are_copied_pickled_and_captured() -> None:
  x = Tensor.ones(1, 2)
  for make in nn.utils.weight_norm, parametrizations.weight_norm:
    layer: Any = make(nn.Linear(2, 2))
    for other in copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)):
      assert type(other) is type(layer) and isinstance(other, nn.Linear) and [*other.state_dict()] == [*layer.state_dict()]
      np.testing.assert_array_equal(other(x).numpy(), layer(x).numpy())
    fn = ntgrad.jit(lambda x, layer=layer: layer(x))
    for n in range(4):
      if n == 3: layer.state_dict()[[k for k in layer.state_dict() if k[-1] in "g0"][0]].data.mul_(2)
      np.testing.assert_allclose(fn(x).numpy(), layer(x).numpy(), 1e-6)
    assert fn.captured


def test_refusals() -> None:
  layer: Any = nn.utils.weight_norm(nn.Linear(2, 2))
  class Half(nn.Module):
    def forward(self, x: Any) -> Any: return x / 2
  halved: Any = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Half())
  normed = parametrizations.weight_norm(nn.Linear(2, 2))
  for call, kind, said in (
      (lambda: nn.utils.weight_norm(layer), ArgumentError, "no tensor 'weight'"),
      (lambda: nn.utils.weight_norm(nn.Linear(2, 2), dim=5), AxisError, "weight_norm"),
      (lambda: setattr(layer, "weight", Tensor.ones(2, 2)), AssignError, "weight_g"),
      (lambda: setattr(halved, "weight", Tensor.ones(2, 2)), AssignError, "right_inverse"),
      (lambda: parametrize.remove_parametrizations(layer, "weight"), ArgumentError, "no parametrization"),
      (lambda: parametrize.remove_parametrizations(normed, "weight", False), ArgumentError, "2 originals"),
      (lambda: nn.ParameterDict()["b"], KeyError, "ParameterDict: no 'b'"),
      (lambda: nn.ParameterList([Tensor([1])]), GradientError, "dtypes.int"), (lambda: nn.ParameterDict({"keys": Tensor.ones(1)}),
                                                                          ArgumentError, "ParameterDict: 'keys'"),
      (lambda: nn.utils.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1).train(), nn.BatchNorm2d(1).eval()), ArgumentError, "training"),
      (lambda: nn.utils.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1).eval(), nn.BatchNorm2d(1, track_running_stats=False).eval()),
       ArgumentError, "running statistics"),
      (lambda: nn.utils.fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(4).eval()), ArgumentError, "3 features")):
    with pytest.raises(kind, match=said): call()   # type: ignore[no-untyped-call]
