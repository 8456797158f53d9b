"""``autograd.detect_anomaly`` and ``config.check_nan``: the first NaN names the operation that made it."""
from __future__ import annotations

import gc
import inspect
import re
from typing import Any, Callable
from weakref import ref

import numpy as np
import pytest

import ntgrad
import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Tensor, autograd, config, nn
from ntgrad.engine import nan_checks
from ntgrad.engine.buffer import Buffer
from ntgrad.errors import NotFiniteError
from ntgrad.graph import live_aliases
from support.marks import long

NAN, INF = float("nan"), float("inf")


def line_of(fn: Callable[..., Any], text: str) -> int:
  """The number of the line of a function that has a text."""
  lines, first = inspect.getsourcelines(fn)
  return first + next(i for i, line in enumerate(lines) if text in line)


def message(compute: Callable[[], Any], **how: Any) -> str:
  """What the error says that a function raises, which computes something."""
  with autograd.detect_anomaly(**how), pytest.raises(NotFiniteError) as e: compute()
  return str(e.value)


def at(fn: Callable[..., Any], text: str) -> str: return f"test_anomaly.py:{line_of(fn, text)} "


def test_forward_in_the_middle_of_a_kernel() -> None:
  def compute() -> None:
    x = Tensor([[1.0, 2.0, -3.0], [4.0, 5.0, 6.0]])
    y = x * 2
    z = y.log()   # here
    (z.exp() + 1).sum().item()
  said = message(compute)
  assert said.startswith("log makes NaN, in the forward pass, at ") and at(compute, "# here") in said
  assert "result: float (2, 3), from 0.693147 to 2.48491, 1 NaN, no inf" in said
  assert "input 0: float (2, 3), from -6 to 12, no NaN, no inf" in said


def test_backward() -> None:
  def compute() -> None:
    x = Tensor([0.0, 1.0], requires_grad=True)
    (x.sqrt() * 0).sum().backward()   # here
    assert x.grad is not None
    x.grad.numpy()
  said = message(compute)
  assert "in the backward pass" in said and f"{at(compute, '# here')}gradient of sqrt" in said


def test_at_the_end_of_the_block_what_was_made_in_it_is_computed() -> None:
  x, other = Tensor([0.0, 1.0], requires_grad=True), Tensor([-1.0]).log()
  with pytest.raises(NotFiniteError, match="gradient of sqrt"), autograd.detect_anomaly(): (x.sqrt() * 0).sum().backward()
  assert np.isnan(other.numpy()).all()   # of before
  with autograd.detect_anomaly():
    inner = Tensor([-1.0, 1.0]).log()   # beneath what is asked for
    kept = (inner > 0).where(inner, 0.0)
  np.testing.assert_array_equal(kept.numpy(), [0, 0])
  p = Tensor([1.0, 2.0]).realize()
  with pytest.raises(NotFiniteError, match="sqrt"), autograd.detect_anomaly(): p.assign((p - 3).sqrt())


def test_after_an_in_place_update() -> None:
  a = Tensor([1.0, 2.0]).contiguous().realize()
  def compute() -> None:
    a.sub_(3)
    a.sqrt_()   # here
    a.realize()
  said = message(compute)
  assert "sqrt makes NaN" in said and at(compute, "# here") in said and "from -2 to -1, no NaN" in said


def test_what_is_overwritten_is_computed_from_what_it_was() -> None:
  """The schedule reads p and writes it: the copy of before is what the search reads."""
  p = Tensor([4.0, 1.0]).contiguous().realize()
  def compute() -> None:
    for _ in range(4): p.assign((p - 1).sqrt()).realize()   # 1.7, 0; 0.9, NaN
  said = message(compute)
  assert "input 0: float (2,), from -1 to 0.732051, no NaN, no inf" in said


class Root(ntgrad.Function):
  @staticmethod
  def forward(ctx: Any, x: Tensor) -> Tensor:
    ctx.save_for_backward(x)
    return x * 1
  @staticmethod
  def backward(ctx: Any, gradient: Tensor) -> Tensor:
    x, = ctx.saved_tensors
    return gradient * x.sqrt()


def test_custom_function() -> None:
  def compute() -> None:
    x = Tensor([-1.0, 1.0], requires_grad=True)
    Root.apply(x).sum().backward()
    assert x.grad is not None
    x.grad.numpy()
  said = message(compute)
  assert "sqrt makes NaN, in the backward pass" in said and at(Root.backward, "sqrt") in said


@long
@pytest.mark.parametrize("captured", [False, True])
def test_in_a_loop_at_step_7(captured: bool) -> None:
  ntgrad.manual_seed(0)
  layer = nn.Linear(4, 3)
  optimizer = ntgrad.optim.AdamW(layer.parameters(), lr=1e-3)
  def step(x: Tensor) -> Tensor:
    optimizer.zero_grad()
    h = layer(x)
    loss = (h.square().sum(1) + x[:, 0]).log().mean()   # here
    loss.backward()
    optimizer.step()
    return loss.detach()
  call = ntgrad.jit(step) if captured else step
  data = np.random.default_rng(0).random((10, 8, 4)).astype(np.float32) + 0.5
  data[7, 3] = [-9, 0, 0, 0]
  with autograd.detect_anomaly():
    for i in range(7): assert np.isfinite(call(Tensor(data[i])).item())
    assert not captured or call.captured   # type: ignore[attr-defined]
    drawn = ntgrad.default_generator.get_state().tolist()
    with pytest.raises(NotFiniteError) as e: call(Tensor(data[7])).item()
    assert "log makes NaN, in the forward pass" in str(e.value) and at(test_in_a_loop_at_step_7, "# here") in str(e.value)
    assert "8" in str(e.value) and "1 NaN" in str(e.value)
    assert ntgrad.default_generator.get_state().tolist() == drawn
    for i in (8, 9, 6, 5): assert np.isfinite(call(Tensor(data[i])).item())   # it goes on
  assert not captured or call.captured   # type: ignore[attr-defined]


def test_a_replay_that_draws_numbers_draws_the_same_again() -> None:
  @ntgrad.jit
  def f(x: Tensor) -> Tensor: return ((Tensor.rand(64) - x) * 1000).sqrt().sum()
  ntgrad.manual_seed(3)
  with autograd.detect_anomaly():
    for _ in range(3): f(Tensor([-1.0])).realize()
    assert f.captured
    with pytest.raises(NotFiniteError, match="sqrt makes NaN"): f(Tensor([0.01])).realize()
  assert ntgrad.default_generator.get_state().tolist() == [4 * 64, 3]


def test_masks_raise_nothing() -> None:
  q = Tensor(np.random.default_rng(0).standard_normal((2, 3, 5, 4)), dtype="float32", requires_grad=True)
  for how in ({}, {"check_inf": True}):
    with autograd.detect_anomaly(**how):
      out = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
      scores = q @ q.transpose(-2, -1)
      mask = Tensor(np.where(np.tri(5) > 0, 0, -INF).astype(np.float32))
      masked = scores + mask
      (masked.softmax(-1) @ q).sum().add(out.sum()).backward()
      assert np.isinf(masked.numpy()).any() and np.isfinite(q.grad.numpy()).all()
      x = Tensor([-1.0, 2.0], requires_grad=True)
      (x > 0).where(x.log(), 0.0).sum().backward()
      np.testing.assert_array_equal(x.grad.numpy(), [0, 0.5])
      assert Tensor([0.0, -1.0]).log().isnan().any().item()
      assert x.grad.max().item() == 0.5 and Tensor([1.0, INF]).sum().item() == INF
      q.grad = None


def test_data_with_nan_may_be_moved_but_not_computed_with() -> None:
  x = Tensor([1.0, NAN, 3.0]).realize()
  with autograd.detect_anomaly():
    assert np.isnan(x.flip(0).contiguous().numpy()[1])
    np.testing.assert_array_equal(x.nan_to_num(5.0).add(1).numpy(), [2, 6, 4])
  assert "mul reads, from memory, NaN" in message(lambda: (x * 2).numpy())


def test_infinities_on_request() -> None:
  def compute() -> None: (Tensor([1.0, 100.0]).exp() * 2).numpy()
  with autograd.detect_anomaly(): compute()
  assert "exp makes inf, in the forward pass" in message(compute, check_inf=True)
  assert "div makes inf" in message(lambda: (1 / Tensor([1.0, 0.0])).numpy(), check_inf=True)
  narrow = message(lambda: (Tensor([1.0, 300.0]) * 300).half().numpy(), check_inf=True)
  assert "cast makes inf" in narrow


def test_nan_of_infinities_says_where_these_are_from() -> None:
  def compute() -> None:
    y = Tensor([1.0, 100.0]).exp()   # here
    (y - y * 2).numpy()
  said = message(compute)
  assert "sub makes NaN" in said and re.search("before that\nexp makes inf", said) and at(compute, "# here") in said


@pytest.mark.parametrize("make, helps", [
  (lambda: Tensor([1.0, 100.0]).exp(), "subtract the greatest value"), (lambda: 1 / Tensor([0.0, 1.0]), "keep 0 away"),
  (lambda: Tensor([0.0, 1.0]).log(), "keep 0 away"), (lambda: Tensor([7e4]).half() + 0, "too large for that dtype"),
  (lambda: Tensor([1e30, 1.0]) * 1e10, "smaller learning rate"), (lambda: Tensor([-1.0, 1.0]).sqrt(), "negative numbers")])
def test_what_helps(make: Callable[[], Tensor], helps: str) -> None:
  with autograd.detect_anomaly(check_inf=True), pytest.raises(NotFiniteError, match=f"what may help: .*{helps}"):
    make().numpy()


def _root_arrangement(x: Any, y: Any) -> Any: return x.tile((16,)), y.tile((16,))
def _root(x: Any, y: Any) -> None: y = tl.sqrt(x)  # noqa: F841


def test_tile_kernels() -> None:
  kernel = tile.make(_root_arrangement, _root, (tile.Tensor(1), tile.Tensor(1)))
  def direct(x: Tensor) -> None: kernel(x, Tensor.empty(40))
  good, bad = Tensor(np.arange(40, dtype=np.float32)).realize(), Tensor(np.arange(-1, 39, dtype=np.float32)).realize()
  with autograd.detect_anomaly(): direct(good)
  said = message(lambda: direct(bad))
  assert said.startswith("kernel _root gives NaN, called at test_anomaly.py:")
  assert "  x: float (40,), from -1 to 38, no NaN, no inf" in said
  def later() -> None:
    y = Tensor.zeros(40).contiguous()
    kernel(good - 1, y)   # here
    y.sum().item()
  said = message(later)
  assert "kernel _root makes NaN" in said and at(later, "# here") in said


def test_off_again_and_nothing_is_kept() -> None:
  assert config.check_nan == 0
  def compute() -> ref[Any]:
    x = Tensor([-1.0, 2.0]).realize()
    with pytest.raises(NotFiniteError), autograd.detect_anomaly(): x.log().numpy()
    return ref(x.lazydata.arg.storage)
  gc.collect()
  before = len(live_aliases)
  memory = compute()
  gc.collect()
  assert memory() is None and len(live_aliases) == before
  assert config.check_nan == 0 and np.isnan(Tensor([-1.0]).log().item())
  with autograd.set_detect_anomaly(True):
    assert config.check_nan == 1
    with autograd.set_detect_anomaly(False): assert np.isnan(Tensor([-2.0]).log().item())
    with pytest.raises(NotFiniteError): Tensor([-3.0]).log().item()
  autograd.set_detect_anomaly(True, check_nan=False)
  assert config.check_nan == 0
  with config(check_nan=1), pytest.raises(FloatingPointError): Tensor([-4.0]).log().item()


@pytest.mark.parametrize("captured", [False, True])
def test_what_is_written_keeps_its_value(captured: bool) -> None:
  """A step that gives NaN changes no parameter and nothing of the optimizer's; the next one goes on from there."""
  def trained(bad: bool) -> np.ndarray[Any, Any]:
    Tensor.manual_seed(5)
    layer = nn.Linear(4, 2)
    optimizer = nn.optim.Adam(layer.parameters(), lr=0.1)
    def plain(x: Tensor) -> Tensor:
      optimizer.zero_grad()
      loss = (layer(x) * x[0, 0].log()).mean()
      loss.backward()
      optimizer.step()
      return loss
    step = ntgrad.jit(plain) if captured else plain
    for x in (1.0, 2.0, 3.0, 4.0):
      step(Tensor([[x] * 4])).item()
      if bad and x == 3.0:
        with pytest.raises(NotFiniteError), autograd.detect_anomaly(): step(Tensor([[-1.0] * 4])).item()
    return layer.weight.numpy()
  np.testing.assert_array_equal(trained(True), trained(False))


@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
@pytest.mark.parametrize("together", [nan_checks.PIECE_BYTES, 600])
def test_copies_of_what_is_written_are_put_back(monkeypatch: pytest.MonkeyPatch, device: str, together: int) -> None:
  """In one piece of memory, and in several, from the first time on."""
  monkeypatch.setattr(nan_checks, "PIECE_BYTES", together)
  arrays = [np.arange(n).astype(dtype) for n, dtype in ((3, np.uint8), (200, np.float32), (1, np.int64), (130, np.float64))]
  buffers = [Buffer.from_numpy(device, a) for a in arrays]
  for _ in range(5):
    saved = nan_checks.saved_memory([b.storage for b in buffers])
    for b, a in zip(buffers, arrays): b.put(np.zeros_like(a))
    nan_checks.restore(saved)
    for b, a in zip(buffers, arrays): np.testing.assert_array_equal(b.numpy(), a)


@pytest.mark.parametrize("check_nan", [0, 1])
def test_results_and_state_without_elements(check_nan: int) -> None:
  """Beside others, as often as it takes for a plan to be one call."""
  for _ in range(6):
    a, empty, b, none = [Tensor(np.ones(s, np.float32)).realize() for s in (3, 0, 4, (0, 3))]
    with config(check_nan=check_nan):
      y, z = a + 1, empty + 1
      Tensor.realize(y, z)
      b.assign(b + 1)
      none.assign(none + 1)
      Tensor.realize(b, none)
    assert y.tolist() == [2] * 3 and b.tolist() == [2] * 4 and z.shape == (0,) and none.numpy().shape == (0, 3)
