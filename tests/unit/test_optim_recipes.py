"""Steps of optimizers by recipes: what is made is what the rules make, bit for bit, and they are asked anew where they would say
something else."""
from __future__ import annotations

import copy
import random
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Sequence

import numpy as np
import pytest

from ntgrad import GlobalCounters, Tensor, dtypes, jit, no_grad
from ntgrad.nn import optim
from ntgrad.nn.recipes import Recipes
from ntgrad.nn.utils import clip_grad_norm_, gradients
from support.marks import long_after, long_where

KINDS: dict[str, tuple[type[optim.Optimizer], dict[str, Any]]] = {
  "SGD": (optim.SGD, {"lr": 0.1}), "SGD, momentum": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
  "SGD, dampening": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
  "SGD, nesterov": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
  "SGD, classic": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "classic": True}),
  "RMSprop": (optim.RMSprop, {"momentum": 0.5, "centered": True}), "Adagrad": (optim.Adagrad, {"lr_decay": 0.1}),
  "Adadelta": (optim.Adadelta, {}), "Rprop": (optim.Rprop, {}), "ASGD": (optim.ASGD, {}), "Lion": (optim.Lion, {}),
  "Adam": (optim.Adam, {}), "Adam, decoupled": (optim.Adam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
  "AdamW": (optim.AdamW, {"amsgrad": True}), "Adamax": (optim.Adamax, {}), "NAdam": (optim.NAdam, {}), "RAdam": (optim.RAdam, {}),
  "LARS": (optim.LARS, {}), "LAMB": (optim.LAMB, {}), "Muon": (optim.Muon, {"ns_steps": 1})}


def parameters(dtype: str = "float32", shapes: Sequence[tuple[int, ...]] = ((3, 5), (2, 8), (4, 2, 3))) -> list[Tensor]:
  rng = np.random.default_rng(3)
  return [Tensor(rng.standard_normal(s).astype(np.float32), dtype=dtype, requires_grad=True) for s in shapes]


def backward(params: Sequence[Tensor], factor: float = 1.0) -> None:
  sum([(p * p / 2 + p.sin() * factor).sum().cast("float32") for p in params], Tensor(0.0)).backward()


def bits(opt: Any) -> list[bytes]:
  """All that a step leaves."""
  tensors = [*opt.params, *[t for s in opt.state_dict()["state"].values() for t in s.values()]]
  return [t.numpy().tobytes() for t in (*tensors, *[p.grad for p in opt.params if p.grad is not None])]


@contextmanager
def counted(kind: type[optim.Optimizer], rule: str = "_update") -> Iterator[list[int]]:
  """The list gets an entry for each call of a rule. (It is patched from the block's beginning on.)"""
  calls, before = list[int](), getattr(kind, rule)
  def call(*args: Any, **kwargs: Any) -> Any:
    calls.append(1)
    return before(*args, **kwargs)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(kind, rule, call)
    yield calls


@contextmanager
def rules_alone() -> Iterator[None]:
  """No recipe is made in the block."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(Recipes, "make", lambda self, key, tensors, code: code(tensors))
    yield


def stepped(opt: optim.Optimizer, calls: list[int], n: int = 2) -> int:
  """How often a rule is asked in so many steps."""
  calls.clear()
  for _ in range(n):
    opt.zero_grad()
    backward(opt.params)
    opt.step()
  return len(calls)


# ---- that rules are not asked again

@long_where(lambda name: name in ("Muon", "LAMB", "LARS"))
@pytest.mark.parametrize("name", KINDS)
def test_a_repeated_step_asks_no_rule_and_does_the_same(name: str) -> None:
  kind, options = KINDS[name]
  found = []
  for plain in (False, True):
    with rules_alone() if plain else counted(kind) as calls:
      opt, left, asked = kind(parameters(), **options), [], 0
      for step in range(5):
        opt.zero_grad()
        before = GlobalCounters.kernel_count
        backward(opt.params, 1.0 + step)
        opt.step()
        left.append((GlobalCounters.kernel_count - before, bits(opt)))
        if calls is not None and step >= 2: assert len(calls) == asked   # memory of one parameter is its own after the first
        asked = 0 if calls is None else len(calls)
      found.append(left)
  assert found[0] == found[1]


def test_scalars_are_asked_for_once() -> None:
  opt, calls = optim.NAdam(parameters()), list[int]()
  scalars = optim.NAdam._scalars
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(optim.NAdam, "_scalars", classmethod(lambda cls, n, t: [calls.append(1), *scalars(n, t)][1:]))
    assert stepped(opt, calls, 4) == 1


# ---- that they are, where something is not as it was

def _of_another_dtype(opt: optim.Optimizer) -> None:
  opt.zero_grad()
  backward(opt.params)
  for p in opt.params: p.grad = p.grad.cast("float64")
  opt.step()


def _without_one(opt: optim.Optimizer) -> None:
  opt.zero_grad()
  backward(opt.params[1:])
  opt.step()


def _constant(opt: optim.Optimizer) -> None:
  for p in opt.params: p.grad = Tensor.full(p.shape, 0.5)
  opt.step()


def _of_another_shape(opt: optim.Optimizer) -> None: opt.params[0].data = Tensor.ones(5, 3)


@pytest.mark.parametrize("change", [
  lambda opt: opt.param_groups[0].update(weight_decay=0.2), lambda opt: opt.param_groups[0].update(nesterov=True),
  lambda opt: opt.param_groups[0].update(maximize=True), lambda opt: opt.param_groups[0].update(classic=True),
  lambda opt: opt.add_param_group({"params": [Tensor([1.0, 2.0])]}),
  _of_another_dtype, _without_one, _constant, _of_another_shape,
  lambda opt: setattr(opt, "decoupled", True), lambda opt: setattr(dtypes, "default_float", "float64")])
def test_rules_are_asked_after_a_change(change: Callable[[Any], None]) -> None:
  before = dtypes.default_float
  with counted(optim.SGD) as calls:
    opt = optim.SGD(parameters(), 0.1, momentum=0.9)
    assert stepped(opt, calls, 3) == 1
    try:
      calls.clear()
      change(opt)
      if not calls: assert stepped(opt, calls, 1) >= 1
    finally: dtypes.default_float = before


def test_numbers_that_only_kernels_read_ask_no_rule() -> None:
  with counted(optim.Adam) as calls:
    opt = optim.Adam(parameters())
    stepped(opt, calls)
    for lr in (0.1, Tensor([0.2]), 0.3):
      opt.lr = lr
      opt.param_groups[0]["betas"] = 0.8, float(lr if isinstance(lr, float) else 0.2)
      assert stepped(opt, calls) == 0


def test_a_user_s_rules_are_asked_each_time() -> None:
  class Mine(optim.SGD):
    """With a number that is nowhere else."""
    scale = 1.0
    def _update(self, group: Any, flat: Any, p: Tensor, g: Tensor, n: Any) -> Any: return p - n.lr * self.scale * g, {}

  opt = Mine(params := parameters(), lr=0.5)
  for scale in (1.0, 2.0, 3.0):
    opt.scale, want = scale, [p.numpy() for p in params]
    opt.zero_grad()
    sum([p.sum() for p in params], Tensor(0.0)).backward()
    opt.step()
    for p, w in zip(params, want): np.testing.assert_allclose(p.numpy(), w - 0.5 * scale, rtol=1e-6)


def test_a_rule_of_one_optimizer_or_put_in_a_class_s_place_is_asked() -> None:
  calls = list[int]()
  opt = optim.SGD(parameters(), 0.1)
  stepped(opt, calls)
  rule = opt._update
  opt._update = lambda *args: [calls.append(1), rule(*args)][1]   # type: ignore[assignment, method-assign, func-returns-value]
  assert stepped(opt, calls, 3) == 3
  del opt._update   # type: ignore[method-assign]
  assert stepped(opt, calls, 3) == 0
  with counted(optim.SGD) as asked: assert stepped(opt, asked, 3) == 1


class Loud(Tensor):
  """A tensor whose reshapes are counted."""
  reshapes = 0
  def reshape(self, *shape: Any) -> Any:
    Loud.reshapes += 1
    return super().reshape(*shape)


def test_gradients_of_a_user_s_class_or_with_names_go_through_the_methods() -> None:
  with counted(optim.SGD) as calls:
    opt = optim.SGD(parameters(), 0.1)
    for _ in range(3):
      for p in opt.params: p.grad = Loud(np.ones(p.shape, np.float32))
      opt.step()
    assert len(calls) == 3 and Loud.reshapes >= 9
    for _ in range(3):
      for p in opt.params: p.grad = Tensor(np.ones(p.shape, np.float32)).named(*"abc"[:p.ndim])
      opt.step()
    assert len(calls) == 6


def test_tables_are_bounded() -> None:
  opt = optim.SGD(parameters(), 0.1)
  for i in range(40):
    opt.param_groups[0]["weight_decay"] = i / 100
    stepped(opt, [], 1)
  recipes = opt.param_groups[0].flats[0].recipes
  assert len(recipes) + len(recipes.older) <= 16


def test_copies_have_no_recipes() -> None:
  opt = optim.NAdam(parameters())
  stepped(opt, [])
  assert opt.param_groups[0].recipes and opt.param_groups[0].flats[0].recipes
  other = copy.deepcopy(opt)
  assert not other.param_groups[0].recipes and not other.param_groups[0].flats[0].recipes
  stepped(opt, [])
  stepped(other, [])
  assert bits(opt) == bits(other)


# ---- gradients that are not each of its own

@pytest.mark.parametrize("first", [True, False])
def test_one_gradient_of_two_parameters(first: bool) -> None:
  """Once there is a recipe for it, and a recipe for others is there."""
  found = []
  for plain in (False, True):
    with rules_alone() if plain else counted(optim.SGD):
      opt = optim.SGD(parameters(shapes=((3, 5), (3, 5), (4,))), 0.1, momentum=0.9)
      for step in range(4):
        a, b, c = [Tensor(np.full(p.shape, i + step, np.float32)) * 2 for i, p in enumerate(opt.params)]
        if (step % 2 == 0) is first: b = a if step < 2 else a.detach()
        opt.params[0].grad, opt.params[1].grad, opt.params[2].grad = a, b, c
        opt.step()
        found.append(bits(opt))
  assert found[:4] == found[4:]


def test_a_gradient_made_of_another_s_is_no_part_of_the_recipe() -> None:
  """What the rules make of the first gradient is the second one."""
  params = parameters(shapes=((4, 4), (16,)))
  opt = optim.SGD(params, 1.0)
  for other in (False, True, False):
    want = [p.numpy() for p in params]
    g = Tensor(np.ones((4, 4), np.float32)).realize() * 3
    params[0].grad, params[1].grad = g, Tensor(np.full(16, 5, np.float32)).realize() * 1 if other else g.reshape(16)
    opt.step()
    np.testing.assert_array_equal(params[0].numpy(), want[0] - 3)
    np.testing.assert_array_equal(params[1].numpy(), want[1] - (5 if other else 3))


# ---- at random

def _edit(rng: random.Random, opt: Any) -> None:
  """Something that people do between two steps."""
  params, group = opt.params, rng.choice(opt.param_groups)
  what = rng.randrange(13)
  if what == 0: rng.choice(params).grad = None
  elif what == 1:
    p = rng.choice(params)
    p.grad = Tensor(np.full(p.shape, 0.25, np.float32), dtype=rng.choice(["float32", "float64", "float16"]))
  elif what == 2: params[-1].grad = params[0].grad if params[0].shape == params[-1].shape else None
  elif what == 3: group["lr"] = rng.choice([0.01, 0.2, Tensor([0.03])])
  elif what == 4 and "weight_decay" in group: group["weight_decay"] = rng.choice([0.0, 0.1])
  elif what == 5 and "maximize" in group: group["maximize"] = not group["maximize"]
  elif what == 6: params[0].grad = Tensor.full(params[0].shape, 1.0)
  elif what == 7: opt.load_state_dict(opt.state_dict())
  elif what == 8: clip_grad_norm_(params, rng.choice([0.5, 1.0]))
  elif what == 9:
    with no_grad(): params[0].assign(params[0] * 0.5)
  elif what == 10: params[0].data = params[0].detach() * 0.5
  elif what == 11: opt.zero_grad(set_to_none=False)
  elif what == 12 and len(opt.param_groups) < 3:
    opt.add_param_group({"params": [Tensor(np.full((2, 3), 0.5, np.float32))], "lr": 0.02})


def _run(seed: int, name: str) -> list[Any]:
  rng = random.Random(seed)
  kind, options = KINDS[name]
  params = parameters(rng.choice(["float32", "float64", "float16"]), rng.choice([((3, 5), (2, 8)), ((3, 5),), ((4, 4), (4, 4))]))
  if rng.random() < 0.3: params += parameters("float32", ((2, 2),))
  opt, out = kind(params, **options), list[Any]()
  for step in range(6):
    if rng.random() < 0.8: opt.zero_grad()
    backward(opt.params, 1.0 + step)
    if rng.random() < 0.6: _edit(rng, opt)
    if all(p.grad is None for p in opt.params): continue
    before = GlobalCounters.kernel_count
    if rng.random() < 0.2: opt.schedule_step()
    elif rng.random() < 0.2:
      with no_grad(): opt.step()
    else: opt.step()
    out.append((GlobalCounters.kernel_count - before, bits(opt)))
  return out


@pytest.mark.parametrize("seed", long_after(3, range(14)))
def test_steps_with_changes_between_them(seed: int) -> None:
  name = [n for n in KINDS if n != "Muon"][5 * seed % (len(KINDS) - 1)]
  found = _run(seed, name)
  with rules_alone(): assert found == _run(seed, name)


def test_captured_steps() -> None:
  """Recorded with a recipe, or without."""
  def run(steps: int) -> list[bytes]:
    opt = optim.Adam(parameters(), 0.1)
    stepped(opt, [], steps)
    @jit  # type: ignore[untyped-decorator]
    def step(scale: Tensor) -> Tensor:
      opt.zero_grad()
      loss = sum([(p * p * scale).sum() for p in opt.params], Tensor(0.0)).backward()
      clip_grad_norm_(opt.params, 1.0)
      opt.step()
      return loss.realize()
    for i in range(5):
      opt.lr = 0.1 / (i + 1)
      step(Tensor([float(i + 1)]).realize())
    return bits(opt)
  for steps in (0, 3):
    found = run(steps)
    with rules_alone(): assert found == run(steps)


# ---- clipping and averages

def test_clipping_and_averages_are_made_once() -> None:
  found = []
  for plain in (False, True):
    calls = list[int]()
    with rules_alone() if plain else pytest.MonkeyPatch.context() as patch:
      if patch is not None:
        total = gradients.get_total_norm
        patch.setattr(gradients, "get_total_norm", lambda *a, calls=calls, total=total: [calls.append(1), total(*a)][1])
      opt = optim.SGD(parameters(), 0.1)
      ema = optim.EMA(opt.params, 0.75)
      out: list[Any] = []
      for step in range(4):
        opt.zero_grad()
        backward(opt.params, 1.0 + step)
        out.append(clip_grad_norm_(opt.params, 0.625).item())
        out += [p.grad.numpy().tobytes() for p in opt.params]
        opt.step()
        ema.update()
        out += [a.numpy().tobytes() for a in ema.average]
      if patch is not None: assert len(calls) == 1
    found.append(out)
  assert found[0] == found[1]


def test_clipping_gradients_that_share_memory() -> None:
  """Each is scaled after the one before it."""
  a, b = Tensor([1.0, 2.0], requires_grad=True), Tensor([1.0, 2.0], requires_grad=True)
  for _ in range(3):
    a.grad = b.grad = Tensor([3.0, 4.0])
    clip_grad_norm_([a, b], 1.0)
    np.testing.assert_allclose(a.grad.numpy(), np.array([3.0, 4.0]) / 50, rtol=1e-5)
