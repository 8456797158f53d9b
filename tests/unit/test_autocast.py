"""Mixed precision: in which dtypes operations compute within ``autocast``, and how ``GradScaler`` scales, skips and grows."""
from __future__ import annotations

import threading
from copy import deepcopy
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, config, dtypes, nn
from ntgrad.amp import GradScaler, autocast
from ntgrad.errors import ArgumentError, NtgradError, StateError
from ntgrad.nn import functional as F
from ntgrad.schedule import create_schedule
from support.devices import missing
from support.marks import long

LOW, F32 = dtypes.bfloat16, dtypes.float32
DEVICES = ["NUMPY", pytest.param("CPU", marks=pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU")))]


def on(device: str, *args: Any, **kwargs: Any) -> autocast: return autocast(device.lower(), *(args or (LOW,)), **kwargs)


def rand(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
  return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def _on_numpy(monkeypatch: pytest.MonkeyPatch) -> None: monkeypatch.setattr(ntgrad.Device, "assigned", "NUMPY")


X, IMAGE, W = (4, 4), (2, 3, 8, 8), (5, 3, 3, 3)
PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
  "@": lambda x, w: x @ w, "matmul": lambda x, w: x.matmul(w), "mm": lambda x, w: x.mm(w), "mv": lambda x, w: x.mv(w[0]),
  "linear": lambda x, w: F.linear(x, w), "dot": lambda x, w: x.dot(w), "bmm": lambda x, w: x[None].bmm(w[None]),
  "addmm": lambda x, w: w.addmm(x, w), "prelu": lambda x, w: F.prelu(x, w[0]),
  "einsum": lambda x, w: ntgrad.einsum("ij,jk->ik", x, w),
  "sdpa": lambda x, w: F.scaled_dot_product_attention(x[None, None], w[None, None], w[None, None]),
  "conv2d": lambda x, w: F.conv2d(x.reshape(1, 1, 4, 4), w[:2, :2].reshape(1, 1, 2, 2)),
  "conv_transpose2d": lambda x, w: F.conv_transpose2d(x.reshape(1, 1, 4, 4), w[:2, :2].reshape(1, 1, 2, 2)),
  "nn.Linear": lambda x, w: nn.Linear(4, 2)(x), "nn.Conv1d": lambda x, w: nn.Conv1d(4, 2, 1)(x[None])}
WIDE: dict[str, Callable[[Any, Any], Any]] = {
  "exp": lambda x, w: x.exp(), "log": lambda x, w: x.abs().log(), "**": lambda x, w: x ** 2, "1 / x": lambda x, w: 1 / x,
  "softmax": lambda x, w: F.softmax(x, -1), "log_softmax": lambda x, w: x.log_softmax(-1), "sum": lambda x, w: x.sum(),
  "cumsum": lambda x, w: x.cumsum(0), "prod": lambda x, w: x.prod(), "norm": lambda x, w: x.norm(),
  "softplus": lambda x, w: F.softplus(x),
  "layer_norm": lambda x, w: F.layer_norm(x, (4,)), "nn.LayerNorm": lambda x, w: nn.LayerNorm(4)(x),
  "group_norm": lambda x, w: F.group_norm(x, 2),
  "mse_loss": lambda x, w: F.mse_loss(x, w.cast(x.dtype)), "rsqrt": lambda x, w: x.abs().rsqrt(),
  "cross_entropy": lambda x, w: F.cross_entropy(x, Tensor([0, 1, 2, 3])), "ntgrad.sum": lambda x, w: ntgrad.sum(x)}
AS_IT_IS: dict[str, Callable[[Any, Any], Any]] = {
  "relu": lambda x, w: x.relu(), "gelu": lambda x, w: F.gelu(x), "silu": lambda x, w: F.silu(x),
  "sigmoid": lambda x, w: x.sigmoid(),
  "tanh": lambda x, w: x.tanh(), "mean": lambda x, w: x.mean(), "var": lambda x, w: x.var(), "max": lambda x, w: x.max(),
  "sqrt": lambda x, w: x.sqrt(),
  "x * 2": lambda x, w: x * 2, "dropout": lambda x, w: F.dropout(x, 0.1), "max_pool2d": lambda x, w: F.max_pool2d(x[None], 2),
  "avg_pool2d": lambda x, w: F.avg_pool2d(x[None], 2), "transpose": lambda x, w: x.T, "cat": lambda x, w: ntgrad.cat([x, x])}


@pytest.mark.parametrize("name", [*PRODUCTS, *WIDE, *AS_IT_IS])
def test_dtypes(name: str) -> None:
  """As PyTorch's lists for GPUs have them: products in the low dtype, some in float32, all else as the inputs are."""
  fn = {**PRODUCTS, **WIDE, **AS_IT_IS}[name]
  x, w = Tensor(rand(4, 4)), Tensor(rand(4, 4, seed=1))
  with on("NUMPY"):
    wide, low, both = fn(x, w), fn(x.cast(LOW), w.cast(LOW)), fn(x.cast(LOW), w)
  if name in PRODUCTS: assert wide.dtype is low.dtype is both.dtype is LOW
  elif name in WIDE: assert wide.dtype is low.dtype is F32
  else: assert wide.dtype is F32 and low.dtype is LOW
  if name != "dropout" and not name.startswith("nn."):
    np.testing.assert_allclose(low.cast(F32).numpy(), fn(x, w).numpy(), rtol=0.1, atol=0.1)


def test_the_widest_dtype_of_the_inputs() -> None:
  x, w = Tensor(rand(4, 4)), Tensor(rand(4, 4, seed=1))
  with on("NUMPY"):
    assert (x.cast(LOW) + w).dtype is F32 and (x.cast(LOW) * w.cast(LOW)).dtype is LOW
    assert ntgrad.cat([x, w.cast(LOW)]).dtype is F32
    assert (x.double() @ w.double()).dtype is dtypes.float64 and x.double().exp().dtype is dtypes.float64
    assert (Tensor([[1, 2]]) @ Tensor([[3], [4]])).dtype is dtypes.int32
    y = x.cast(LOW)
    y.exp_()
    y **= 2
    assert y.dtype is LOW   # in place


def test_blocks() -> None:
  x = Tensor(rand(3, 3))
  def now() -> Any: return (x @ x).dtype
  half = autocast("numpy", dtypes.float16)
  with half:
    assert now() is dtypes.float16 and ntgrad.is_autocast_enabled("numpy")
    assert ntgrad.get_autocast_dtype("numpy") is dtypes.float16
    with on("NUMPY"): assert now() is LOW
    assert not GradScaler("CUDA:77", enabled=False).is_enabled()   # is asked for no device
    with on("NUMPY", enabled=False):
      assert now() is F32 and not ntgrad.is_autocast_enabled("numpy")
      with half: assert now() is dtypes.float16   # again, within itself
    with autocast("cuda"): assert now() is dtypes.float16
    with pytest.raises(ZeroDivisionError), on("NUMPY"): 1 / 0  # noqa: B018
    assert now() is dtypes.float16
    seen: list[Any] = []
    t = threading.Thread(target=lambda: seen.append(now()))
    t.start()
    t.join()
    assert seen == [F32]   # a thread begins without
  with autocast("cuda", dtypes.float16), autocast("cpu"): assert now() is F32
  assert now() is F32

  @on("NUMPY")
  def f(x: Any) -> Any: return x @ x, now()
  assert f(x)[0].dtype is LOW and f(x)[1] is LOW and now() is F32 and f.__name__ == "f"
  @autocast("numpy", dtypes.float16)
  def recursive(n: int) -> Any: return now() if n == 0 else recursive(n - 1)
  assert recursive(3) is dtypes.float16
  for name, default in (("cuda", dtypes.float16), ("cpu", LOW), ("numpy", LOW)): assert ntgrad.get_autocast_dtype(name) is default


MISUSES: list[tuple[Any, Callable[[], Any], str]] = [
  (ArgumentError, lambda: autocast("gpu"), "device type 'gpu'"), (ArgumentError, lambda: autocast("cuda:0"), "without a number"),
  (ArgumentError, lambda: autocast(LOW), "device_type"), (ArgumentError, lambda: autocast("cpu", enabled="no"), "enabled"),
  (NtgradError, lambda: autocast("cpu", "float17"), "float17"), (TypeError, lambda: autocast(), "device_type"),
  (ArgumentError, lambda: autocast("cpu")(3), "fn"), (ArgumentError, lambda: ntgrad.is_autocast_enabled("tpu"), "tpu"),
  (ArgumentError, lambda: ntgrad.get_autocast_dtype("cpu:1"), "cpu:1"),
  (ArgumentError, lambda: GradScaler(growth_factor=1.0), "growth_factor 1.0"),
  (ArgumentError, lambda: GradScaler(backoff_factor=1.5), "backoff_factor 1.5"),
  (ArgumentError, lambda: GradScaler(growth_interval=0), "growth_interval 0"),
  (ArgumentError, lambda: GradScaler(init_scale=-1.0), "init_scale -1"), (NtgradError, lambda: GradScaler("tpu"), "tpu"),
  (ArgumentError, lambda: GradScaler().scale(3), "3"), (ArgumentError, lambda: GradScaler().step(3), "no optimizer"),
  (ArgumentError, lambda: GradScaler().unscale_("adam"), "no optimizer"),
  (StateError, lambda: GradScaler().update(), "call step"),
  (ArgumentError, lambda: GradScaler().update(Tensor([1.0, 2.0])), "one number"),
  (ArgumentError, lambda: GradScaler().update(-2.0), "-2"),
  (StateError, lambda: GradScaler().load_state_dict({"scale": 2.0}), "'growth_factor'"),
]


@pytest.mark.parametrize("kind, misuse, said", MISUSES)
def test_misuses(kind: Any, misuse: Callable[[], Any], said: str) -> None:
  with pytest.raises(kind) as e: misuse()
  assert said in str(e.value)


@pytest.mark.parametrize("dtype", [F32, dtypes.int32, dtypes.float64])
def test_a_dtype_that_is_not_low(dtype: Any) -> None:
  """PyTorch warns, and computes as without."""
  with pytest.warns(UserWarning, match="it is off here"): block = autocast("numpy", dtype)
  with block: assert (Tensor(rand(2, 2)) @ Tensor(rand(2, 2))).dtype is F32


@pytest.mark.parametrize("layer, shape", [
  (lambda: nn.LSTM(3, 4), (5, 2, 3)), (lambda: nn.GRU(3, 4, bidirectional=True), (5, 2, 3)), (lambda: nn.LSTMCell(3, 4), (2, 3)),
  (lambda: nn.MultiheadAttention(4, 2), None), (lambda: nn.BatchNorm2d(3), (2, 3, 4, 4)), (lambda: nn.Bilinear(3, 3, 2), None),
  (lambda: nn.TransformerEncoderLayer(4, 2, 8), (5, 2, 4)), (lambda: nn.ConvTranspose2d(3, 2, 2), (2, 3, 4, 4)),
  (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 4)), (lambda: nn.Embedding(5, 3), None)])
@pytest.mark.parametrize("dtype", [LOW, pytest.param(dtypes.float16, marks=long)])
def test_layers(layer: Callable[[], Any], shape: Any, dtype: Any) -> None:
  """Each gives about what it gives without, and its parameters gradients of their own dtype."""
  Tensor.manual_seed(0)
  net = layer()
  net.eval()
  args = ((Tensor(rand(*shape)),) if shape else (Tensor(np.array([0, 3])),) if isinstance(net, nn.Embedding) else
          (Tensor(rand(2, 3)),) * 2 if isinstance(net, nn.Bilinear) else (Tensor(rand(3, 2, 4)),) * 3)
  def first(y: Any) -> Any: return y[0] if isinstance(y, tuple) else y
  want = first(net(*args)).numpy()
  for given in (args, [a.cast(dtype) if a.dtype is F32 else a for a in args]):
    with on("NUMPY", dtype): got = first(net(*given))
    np.testing.assert_allclose(got.cast(F32).numpy(), want, rtol=0.1, atol=0.05)
  got.cast(F32).square().sum().backward()
  assert all(p.grad is not None and p.grad.dtype is F32 and np.isfinite(p.grad.numpy()).all() for p in net.parameters())


def test_batch_norm_keeps_float32_statistics() -> None:
  norm, x = nn.BatchNorm2d(3), rand(8, 3, 6, 6) * 3 + 50
  norm.train()
  with on("NUMPY"): y = norm(Tensor(x).cast(LOW))
  x = Tensor(x).cast(LOW).cast(F32).numpy()
  assert y.dtype is LOW and norm.running_mean.dtype is F32
  np.testing.assert_allclose(norm.running_mean.numpy(), x.mean((0, 2, 3)) * 0.1, rtol=1e-5)
  np.testing.assert_allclose(norm.running_var.numpy(), 0.9 + 0.1 * x.var((0, 2, 3), ddof=1), rtol=1e-4)


def test_a_parameter_is_cast_once() -> None:
  """And what is multiplied is what was stored."""
  w, x = Tensor(rand(16, 16), requires_grad=True).realize(), Tensor(rand(4, 16)).realize()
  with on("NUMPY"): y, z = x @ w, (x * 2) @ w
  cast, *products = create_schedule([y, z])
  assert [n.dtype for n in cast.nodes] == [LOW, F32] and cast.nodes[1].shape == (16, 16)
  assert len(products) == 2 and all(cast.nodes[0] in item.nodes for item in products)


@pytest.mark.parametrize("device", DEVICES)
def test_training(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """Plain and captured alike, near to float32; a function that was recorded without computes otherwise within."""
  monkeypatch.setattr(ntgrad.Device, "assigned", device)
  x, y = Tensor(rand(16, 6)), Tensor(np.arange(16) % 4)
  def losses(captured: bool, low: bool) -> list[float]:
    Tensor.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    opt = nn.optim.AdamW(net.parameters(), lr=0.01)
    def step(x: Tensor, y: Tensor) -> Tensor:
      opt.zero_grad()
      with on(device, enabled=low): loss = F.cross_entropy(net(x), y)
      loss.backward()
      opt.step()
      return loss.detach()
    f = ntgrad.jit(step) if captured else step
    return [float(f(x, y).item()) for _ in range(12)]
  want = losses(False, False)
  low = losses(False, True)
  assert low != want and low == losses(True, True) == losses(False, True) and losses(True, False) == want
  np.testing.assert_allclose(low, want, rtol=0.02)

  f = ntgrad.jit(lambda x: (x @ x.T).realize())
  for _ in range(3):   # a capture for each
    assert f(x).dtype is F32
    with on(device): assert f(x).dtype is LOW


class TestGradScaler:
  @pytest.mark.parametrize("device", DEVICES)
  @pytest.mark.parametrize("captured", [False, True])
  def test_a_step_with_inf_changes_nothing(self, captured: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ntgrad.Device, "assigned", device)
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    opt, scaler = nn.optim.Adam([w], lr=0.1), GradScaler(init_scale=8.0, growth_interval=3)
    plain = nn.optim.Adam([v := Tensor([1.0, 2.0, 3.0], requires_grad=True)], lr=0.1)
    def step(x: Tensor) -> Tensor:
      opt.zero_grad()
      scaler.scale((w * x).sum()).backward()
      scaler.step(opt)
      scaler.update()
      return w.detach() * 1
    f = ntgrad.jit(step) if captured else step
    scales = []
    for i, bad in enumerate([0, 0, np.inf, 0, 0, 0, np.nan, np.inf, 0]):
      x = rand(3, seed=i) + bad
      f(Tensor(x))
      if not bad:
        plain.zero_grad()
        (v * Tensor(x)).sum().backward()
        plain.step()
      scales.append(scaler.get_scale())
      np.testing.assert_allclose(w.numpy(), v.numpy(), rtol=1e-5)
    assert scales == [8, 8, 4, 4, 4, 8, 4, 2, 2]
    assert opt.state_dict()["state"][0]["step"].item() == 6

  def test_gradients_that_would_vanish(self) -> None:
    w = Tensor([1.0], requires_grad=True)
    def grad(scale: float) -> float:
      w.grad, scaler = None, GradScaler(init_scale=scale)
      scaler.scale((w.cast(dtypes.float16) * 1e-4).cast(F32).sum() * 1e-5).backward()
      opt = nn.optim.SGD([w], lr=0.0)
      scaler.unscale_(opt)
      return float(w.grad.item())
    assert grad(1.0) == 0 and grad(65536.0) == pytest.approx(1e-9, rel=0.01)

  def test_unscaled_for_clipping(self) -> None:
    w = Tensor([3.0, 4.0], requires_grad=True)
    opt, scaler = nn.optim.SGD([w], lr=1.0), GradScaler(init_scale=128.0)
    scaler.scale((w * w).sum() / 2).backward()
    scaler.unscale_(opt)
    assert nn.utils.clip_grad_norm_([w], 1.0).item() == pytest.approx(5.0)
    with pytest.raises(StateError, match="once a step"): scaler.unscale_(opt)
    scaler.step(opt)
    with pytest.raises(StateError, match=r"since the last update\(\)"): scaler.step(opt)
    with pytest.raises(StateError, match="has stepped"): scaler.unscale_(opt)
    scaler.update()
    np.testing.assert_allclose(w.numpy(), [2.4, 3.2], rtol=1e-5)

  @pytest.mark.parametrize("nested", [False, True])
  def test_two_optimizers_and_a_group(self, nested: bool) -> None:
    a, b, c = (Tensor([1.0], requires_grad=True) for _ in range(3))
    one, two = nn.optim.SGD([a], lr=1.0), nn.optim.OptimizerGroup(nn.optim.SGD([b], lr=1.0), nn.optim.SGD([c], lr=1.0))
    if nested: two = nn.optim.OptimizerGroup(two)
    scaler = GradScaler(init_scale=4.0)
    sums = scaler.scale([a.sum(), (b + c).sum() * float("inf")])
    for s in sums: s.backward()
    scaler.step(one)
    scaler.step(two)
    scaler.update()
    assert a.tolist() == [0.0] and b.tolist() == c.tolist() == [1.0] and scaler.get_scale() == 2.0

  def test_state(self) -> None:
    scaler = GradScaler(init_scale=4.0, growth_interval=7)
    state = scaler.state_dict()
    assert state == {"scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 7, "_growth_tracker": 0}
    other = GradScaler(enabled=True)
    other.load_state_dict({**state, "_growth_tracker": 5, "scale": 16.0})
    assert other.state_dict() == {**state, "_growth_tracker": 5, "scale": 16.0}
    other.update(2.0)
    assert other.get_scale() == 2.0
    assert deepcopy(other).state_dict() == other.state_dict()

  def test_switched_off(self) -> None:
    w = Tensor([1.0], requires_grad=True)
    opt, scaler = nn.optim.SGD([w], lr=1.0), GradScaler(enabled=False)
    loss = scaler.scale(w.sum())
    loss.backward()
    scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    assert w.tolist() == [0.0] and scaler.get_scale() == 1.0 and scaler.state_dict() == {} and not scaler.is_enabled()


@long
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_beside_pytorch(name: str) -> None:
  """Losses of two hundred steps, on the CPU."""
  torch = pytest.importorskip("torch")
  rng = np.random.default_rng(0)
  given = [rng.standard_normal(s).astype(np.float32) * 0.3 for s in ((24, 12), (24,), (5, 24), (5,))]
  x, y = rng.standard_normal((64, 12)).astype(np.float32), rng.integers(0, 5, 64)
  def losses(lib: Any) -> list[float]:
    model = lib.nn.Sequential(lib.nn.Linear(12, 24), lib.nn.Tanh(), lib.nn.Linear(24, 5))
    with lib.no_grad():
      for p, a in zip(model.parameters(), given): p.copy_(lib.tensor(a))
    opt, scaler = lib.optim.AdamW(model.parameters(), lr=3e-3), lib.amp.GradScaler("cpu", enabled=name == "float16")
    out = []
    for _ in range(200):
      opt.zero_grad()
      with lib.autocast("cpu", getattr(lib, name)): loss = lib.nn.functional.cross_entropy(model(lib.tensor(x)), lib.tensor(y))
      scaler.scale(loss).backward()
      scaler.step(opt)
      scaler.update()
      out.append(float(loss.item()))
    return out
  ntgrad.Device.assigned = "CPU" if not missing("CPU") else "NUMPY"
  np.testing.assert_allclose(losses(ntgrad), losses(torch), rtol=0.02)


def test_a_cpu_says_that_it_converts(capsys: pytest.CaptureFixture[str]) -> None:
  for debug, lines in ((0, 0), (1, 1)):
    with config(debug=debug, color=0), ntgrad.autocast("cpu"): pass
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("autocast: cpu multiplies bfloat16 as float32") == lines
