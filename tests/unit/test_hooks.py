"""Hooks of Modules and of tensors: called as PyTorch calls them, with what it gives, and part of what ``ntgrad.jit`` captures."""
from __future__ import annotations

import copy
import pickle
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
import ntgrad.utils.checkpoint
from ntgrad import Tensor, nn
from ntgrad.errors import ArgumentError, CaptureError, GradientError
from ntgrad.utils.hooks import RemovableHandle
from support.beside_torch import Program, compare, linear


def of_tensors(torch: Any, note: Callable[..., Any]) -> None:
  x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
  y = 3 * x
  z = y ** 2
  double = y.register_hook(lambda g: note("y", g) or g * 2)   # after y was used, as programs do
  z.register_hook(lambda g: note("z", g))
  y.retain_grad()
  note(y.retains_grad, x.retains_grad, z.retains_grad, y.is_leaf)
  for _ in range(2):
    z.sum().backward(retain_graph=True)
    note(x.grad, y.grad)
  double.remove()
  double.remove()
  z.sum().backward()
  note(x.grad, y.grad)


def of_leaves(torch: Any, note: Callable[..., Any]) -> None:
  p = torch.ones(3, requires_grad=True)
  scale = torch.tensor([0.5, 2.0, -3.0])
  clamped = p.register_hook(lambda g: g.clamp(0, 1))
  p.register_post_accumulate_grad_hook(lambda t: note("accumulated", t.grad, t is p))
  for _ in range(2): (p * scale).sum().backward()
  with torch.no_grad(): p.mul_(2)
  with clamped: (p * scale).sum().backward()
  note(p.grad)
  p.grad = None
  (p * scale).sum().backward()
  p.register_hook(lambda g: g + 1)
  note(torch.autograd.grad((p * p).sum(), p))
  def step(t: Any) -> None:
    t.sub_(t.grad)   # as an optimizer does, without a block of its own
    t.grad = None
  q = torch.ones(2, requires_grad=True)
  q.register_post_accumulate_grad_hook(step)
  (q * q).sum().backward()
  note(q, q.grad)


def of_second_gradients(torch: Any, note: Callable[..., Any]) -> None:
  q = torch.tensor([2.0], requires_grad=True)
  c = q * q
  c.register_hook(lambda g: g * g)
  g, = torch.autograd.grad((c * c).sum(), q, create_graph=True)
  g.sum().backward()
  note(g, q.grad)


def of_checkpoints_and_clones(torch: Any, note: Callable[..., Any]) -> None:
  w = torch.ones(2, requires_grad=True)
  def fn(v: Any) -> Any:
    inner = v * 3
    inner.register_hook(lambda g: note(g) or g * 2)
    return inner.sin()
  torch.utils.checkpoint.checkpoint(fn, w, use_reentrant=False).sum().backward()
  k = w.clone()
  k.retain_grad()
  (k * 3).sum().backward()
  note(w.grad, k.grad)


def of_results_of_functions(torch: Any, note: Callable[..., Any]) -> None:
  class Both(torch.autograd.Function):   # type: ignore[misc, name-defined]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any: return x * 2, x * 3
    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any: return g * 2 + h * 3
  x = torch.ones(2, requires_grad=True)
  a, b = Both.apply(x)
  b.register_hook(lambda g: note(g) or g * 10)
  (a + b).sum().backward()
  note(x.grad)


def of_forward(torch: Any, note: Callable[..., Any]) -> None:
  x, layer = torch.tensor([[1.0, -2.0]]), linear(torch)
  layer.register_forward_hook(lambda m, a, o: note("after", m is layer, a, o))
  twice = layer.register_forward_hook(lambda m, a, k, o: note(a, sorted(k), o) or o * 2, with_kwargs=True)
  layer.register_forward_hook(lambda m, a, o: note("first", o), prepend=True)
  note(layer(x))
  twice.remove()
  layer.register_forward_pre_hook(lambda m, a: (a[0] + 1,))
  layer.register_forward_pre_hook(lambda m, a: a[0] * 2)
  layer.register_forward_pre_hook(lambda m, a: note("prepended", a), prepend=True)
  note(layer(x), layer.forward(x))


def of_arguments_by_name(torch: Any, note: Callable[..., Any]) -> None:
  class Net(torch.nn.Module):   # type: ignore[misc, name-defined]
    def __init__(self) -> None:
      super().__init__()
      self.a, self.r, self.b = linear(torch), torch.nn.ReLU(inplace=True), linear(torch)
    def forward(self, x: Any, scale: float = 1.0, *, extra: Any = None) -> Any: return self.b(self.r(self.a(x))) * scale
  net, x = Net(), torch.tensor([[1.0, -2.0]])
  net.register_forward_pre_hook(lambda m, a, k: note(a, k) or (a, {**k, "scale": 3.0}), with_kwargs=True)
  net.register_forward_hook(lambda m, a, k, o: note(k), with_kwargs=True)
  for part in net.a, net.r, net.b: part.register_forward_hook(lambda m, a, o: note(type(m).__name__, o))
  note(net(x, scale=2.0), net(x, extra=1))
  heads = torch.nn.MultiheadAttention(4, 2, batch_first=True)
  heads.register_forward_pre_hook(lambda m, a, k: (a, {**k, "need_weights": True}), with_kwargs=True)
  z = torch.ones(1, 3, 4)
  note(heads(z, z, z, need_weights=False)[1] is not None)


def of_errors(torch: Any, note: Callable[..., Any]) -> None:
  def fails(m: Any, a: Any, o: Any) -> None: raise ValueError("mine")
  x, layer, other = torch.ones(1, 2), linear(torch), linear(torch)
  layer.register_forward_hook(lambda m, a, o: note("always", o), always_call=True)
  layer.register_forward_hook(lambda m, a, o: note("never"))
  with pytest.raises(RuntimeError): layer(torch.ones(1, 3))
  other.register_forward_hook(fails)
  other.register_forward_hook(lambda m, a, o: note("late", o), always_call=True)
  with pytest.raises(ValueError, match="mine"): other(x)
  other.register_forward_hook(fails, always_call=True)
  with pytest.raises(ValueError, match="mine"), pytest.warns(UserWarning, match="always_call"): other(x)
  for hook in (lambda m, a, k: 3), (lambda m, a, k: (1, 2, 3)):
    layer = linear(torch)
    layer.register_forward_pre_hook(hook, with_kwargs=True)
    with pytest.raises(RuntimeError): layer(x)


def of_backward(torch: Any, note: Callable[..., Any]) -> None:
  layer, x = linear(torch), torch.tensor([[1.0, -2.0]], requires_grad=True)
  layer.register_full_backward_hook(lambda m, i, o: note(m is layer, i, o, type(i).__name__))
  layer(x).sum().backward()
  layer.register_full_backward_pre_hook(lambda m, o: note("before", o) or (o[0] * 2,))
  layer.register_full_backward_hook(lambda m, i, o: (i[0] * 10,))
  (layer(x) * 3).sum().backward()
  note(x.grad, layer.weight.grad)
  alone = linear(torch)
  alone.register_full_backward_hook(lambda m, i, o: note(i, o))
  alone(x.detach()).sum().backward()
  note(alone.weight.grad)
  alone.register_full_backward_hook(lambda m, i, o: (o[0],))
  with pytest.raises(RuntimeError): alone(x.detach()).sum().backward()
  with torch.no_grad(): note(layer(x), bool(layer(x).requires_grad))
  chain = torch.nn.Sequential(linear(torch), torch.nn.ReLU(), linear(torch))
  for n, part in enumerate(chain): part.register_full_backward_hook(lambda m, i, o, n=n: note(n, i, o))
  chain(x).sum().backward()
  note(torch.autograd.grad(chain(x).sum(), x), chain[0].weight.grad)


def of_several(torch: Any, note: Callable[..., Any]) -> None:
  class Several(torch.nn.Module):   # type: ignore[misc, name-defined]
    def forward(self, a: Any, b: Any, c: Any) -> Any: return a * b, a + b, c
  m, a, b = Several(), torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
  handle = m.register_full_backward_hook(lambda m, i, o: note(i, o))
  product, total, three = m(a, b, 3)
  total.sum().backward()
  note(a.grad, b.grad, three)
  m(a, b, 3)[0].sum().backward()
  handle.remove()
  m.register_full_backward_hook(lambda m, i, o: (i[0],))
  with pytest.raises(RuntimeError): m(a, b, 3)[0].sum().backward()


PROGRAMS = [of_tensors, of_leaves, of_second_gradients, of_checkpoints_and_clones, of_results_of_functions, of_forward,
            of_arguments_by_name, of_errors, of_backward, of_several]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_as_pytorch(program: Program) -> None: compare(program, "utils.checkpoint")


def test_refusals() -> None:
  x = Tensor.ones(2, requires_grad=True)
  for call, kind, said in (
      (lambda: Tensor.ones(2).register_hook(print), GradientError, "requires no gradient"),
      (lambda: Tensor.ones(2).retain_grad(), GradientError, "retain_grad"),
      (lambda: (x * 2).register_post_accumulate_grad_hook(print), GradientError, "made of others"),
      (lambda: x.register_hook(3), ArgumentError, "a function"),
      (lambda: nn.Linear(2, 2).register_forward_hook(None), ArgumentError, "a function")):
    with pytest.raises(kind, match=said): call()   # type: ignore[no-untyped-call]
  for wrong in Tensor.ones(3), Tensor.ones(2, dtype="float64"), 3:
    y = x * 2
    y.register_hook(lambda g, wrong=wrong: wrong)
    with pytest.raises(GradientError, match="the hook <lambda> gives"): y.sum().backward()
  x.retain_grad()   # nothing to do
  assert not x.retains_grad


class Adds:
  """A hook with state, some of it a tensor."""
  def __init__(self) -> None: self.by, self.seen = Tensor.ones(1), list[Any]()
  def __call__(self, module: Any, args: Any, output: Any) -> Any:
    self.seen.append(output.detach())
    return output + self.by


def test_copies_pickles_and_states() -> None:
  layer, x = nn.Linear(2, 3), Tensor.ones(1, 2)
  plain, hook = layer(x).numpy(), Adds()
  layer.handle = layer.register_forward_hook(hook)   # type: ignore[attr-defined]
  assert sorted(layer.state_dict()) == ["bias", "weight"] and len(list(layer.parameters())) == 2
  for other in copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)):
    np.testing.assert_allclose(other(x).numpy(), plain + 1, 1e-6)
    assert not hook.seen, "it has a hook of its own"
    other.handle.remove()
    np.testing.assert_allclose(other(x).numpy(), plain, 1e-6)
  np.testing.assert_allclose(layer(x).numpy(), plain + 1, 1e-6)
  assert len(hook.seen) == 1 and isinstance(layer.handle, RemovableHandle)
  named = nn.ModuleDict({"a": layer})
  named.register_forward_pre_hook(lambda m, a: None)
  assert named.keys() == ["a"]


class Net(nn.Module):
  def __init__(self) -> None:
    super().__init__()
    self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 1)
  def forward(self, x: Any) -> Any: return self.b(self.a(x).relu())


def test_captured() -> None:
  """A captured step computes what hooks compute, and is captured anew where hooks come and go."""
  net = Net()
  def plain(x: Tensor) -> tuple[Tensor, Any]:
    for p in net.parameters(): p.grad = None
    loss = net(x).square().sum()
    loss.backward()
    return loss, net.b.weight.grad
  step = ntgrad.jit(plain)
  found: dict[str, Tensor] = {}
  def compare() -> None:
    xs = [Tensor(np.random.default_rng(n).standard_normal((4, 2)).astype(np.float32)) for n in range(3)]
    have, wanted = [[[t.numpy() for t in (*fn(x), found["g"])] for x in xs] for fn in (step, plain)]
    assert step.captured
    for a, b in zip(sum(have, []), sum(wanted, [])): np.testing.assert_allclose(a, b, 1e-5)
  handle = net.a.register_forward_hook(lambda m, a, o: o * 2)
  net.a.register_full_backward_hook(lambda m, i, o: found.update(g=o[0].realize()))
  net.b.weight.register_hook(lambda g: g * 3)
  compare()
  handle.remove()
  compare()
  more = net.b.weight.register_hook(lambda g: g + 7)
  compare()
  more.remove()
  compare()
  net.b.register_forward_hook(lambda m, a, o: print(o.mean().item()))
  step(Tensor.ones(4, 2))
  with pytest.raises(CaptureError, match="read on the host"): step(Tensor.ones(4, 2))


def test_gradients_of_other_tensors_keep_their_recipes() -> None:
  """A leaf's hook is called after its gradient was found as without it, and goes with the leaf."""
  from ntgrad.graph import hooks
  before = len(hooks.of_leaves)
  p = Tensor.ones(2, requires_grad=True)
  p.register_hook(lambda g: g * 2)
  assert len(hooks.of_leaves) == before + 1
  (p * 3).sum().backward()
  assert p.grad is not None and p.grad.tolist() == [6.0, 6.0]
  del p
  assert len(hooks.of_leaves) == before
