"""``import ntgrad as torch``: functions and modules under PyTorch's names, with PyTorch's parameters."""
from __future__ import annotations

import importlib
import inspect
import io
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, config, dtypes, nn
from ntgrad.compat.signatures import AT_TOP, TOP
from ntgrad.errors import (
  ArgumentError,
  AxisError,
  DeviceError,
  DTypeError,
  GradientError,
  InterchangeError,
  NtgradError,
  ShapeError,
)
from ntgrad.functions import _FILE_OF, find
from ntgrad.nn.functional import ctc_kernels
from ntgrad.tensor.made import Made, function, method, rows
from support.beside_torch import compare
from support.name_cases import cases, computed, inputs

torch: Any = ntgrad
NAMES = [*_FILE_OF, *rows(TOP), *AT_TOP]
MODULES = ("autograd autograd.functional cuda func linalg optim optim.lr_scheduler optim.swa_utils random special utils.data "
           "utils.checkpoint")
CASES = cases()


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
  with config(dev="NUMPY"): yield


# ---- beside PyTorch
@pytest.mark.parametrize("part", range(0, len(CASES), 12))
def test_as_pytorch(part: int) -> None:
  """Values, gradients, shapes, and dtypes but for ints, which are int32 here."""
  there = pytest.importorskip("torch", minversion="2.13")
  for case in CASES[part:part + 12]:
    for want, have in zip(computed(there, case), computed(torch, case)):
      assert len(want) == len(have), case
      for a, b in zip(want, have):
        if not isinstance(a, np.ndarray): assert a == b or abs(a - b) <= 1e-6 * abs(a), case
        else:
          np.testing.assert_allclose(b, a, 1e-6, 1e-6, err_msg=case)
          assert a.shape == b.shape and (a.dtype == b.dtype or (a.dtype.kind, b.dtype.kind) == ("i", "i")), case


def test_every_name_of_the_tables_has_a_case() -> None:
  """Functions without one are those that draw random numbers, set something, or are a spelling of one that has."""
  used = "\n".join([f"torch.{c}" for c in CASES])
  elsewhere = set("bernoulli multinomial rand_like randn_like normal poisson randint_like manual_seed seed initial_seed "
                  "get_rng_state set_rng_state set_default_device get_default_device set_float32_matmul_precision "
                  "get_float32_matmul_precision get_num_threads set_num_threads use_deterministic_algorithms "
                  "is_inference_mode_enabled function "
                  "are_deterministic_algorithms_enabled set_printoptions frombuffer save load".split())
  without = [n for n in NAMES if f"torch.{n}(" not in used and f"torch.{n} " not in used and n not in elsewhere and n[-1] != "_"]
  plain = {n for n, row in rows(TOP).items() if row.parameters in ("input", "input, other")} | AT_TOP
  alike = set("BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor HalfTensor IntTensor ShortTensor adjoint conj "
              "is_conj is_neg is_storage resolve_conj resolve_neg dtype nan e inf pi fill divide subtract multiply "
              "nonzero_static swapdims moveaxis unsafe_chunk unsafe_split split_with_sizes unsafe_split_with_sizes dsplit "
              "put diagonal_scatter histogram nanquantile clamp_max clamp_min cholesky_inverse cholesky_solve pinverse "
              "empty_like addr channels_last channels_last_3d contiguous_format memory_format preserve_format".split())
  assert set(without) - plain - alike == set()


# ---- what always holds
def arrays() -> dict[str, Any]: return inputs()


def test_extremes() -> None:
  a = arrays()["x"]
  x = torch.tensor(a, requires_grad=True)
  values, indices = torch.max(x, 1)
  assert np.array_equal(values.numpy(), a.max(1)) and np.array_equal(indices.numpy(), a.argmax(1))
  assert indices.dtype is dtypes.int32
  assert torch.max(x, dim=0, keepdim=True).indices.shape == (1, 4) and torch.min(x).item() == a.min()
  assert np.array_equal(torch.max(x, -x).numpy(), np.abs(a)) and torch.max(torch.tensor(3.0), 0).values.item() == 3
  torch.max(x, axis=1)[0].sum().backward()
  assert np.array_equal(x.grad.numpy(), (a == a.max(1, keepdims=True)))
  same = torch.tensor([[1.0, 1.0], [2.0, 1.0]], requires_grad=True)
  assert torch.autograd.grad(torch.max(same, 1).values.sum(), same)[0].tolist() == [[1, 0], [1, 0]]   # the first of equal ones
  assert isinstance(x.max(axis=1), Tensor), "the method's axis is tinygrad's and numpy's"


def test_positions_of_parameters() -> None:
  a = arrays()["x"]
  x = torch.tensor(a)
  for got, want in ((torch.std(x, 1, False), a.std(1)), (torch.var(x, False), a.var()),
                    (torch.var(x, 0, True, True), a.var(0, ddof=1)[None]), (torch.gradient(x)[1], np.gradient(a, axis=1)),
                    (torch.std_mean(x, 1)[1], a.mean(1)), (torch.sum(x, (0, 1), True), a.sum()[None, None]),
                    (torch.norm(x, 1, 0), np.abs(a).sum(0)), (torch.cat([x, x], 1), np.concatenate([a, a], 1)),
                    (torch.split(x, [1, 3], 1)[1], a[:, 1:]), (torch.where(x > 0, x, 0.0), np.where(a > 0, a, 0)),
                    (torch.clamp(x, -0.5, 0.5), a.clip(-0.5, 0.5)), (torch.add(x, x, alpha=2), 3 * a), (torch.pow(2, x), 2 ** a),
                    (torch.flip(x, (0,)), a[::-1]), (torch.sort(x, 1, True)[0], -np.sort(-a, 1)), (torch.range(1, 3), [1, 2, 3]),
                    (torch.linspace(start=0, end=1, steps=3), [0, 0.5, 1]), (torch.arange(end=3), [0, 1, 2]),
                    (torch.linalg.norm(x), np.linalg.norm(a)), (torch.linalg.norm(x, 1), np.linalg.norm(a, 1)),
                    (torch.column_stack([x[0], x[1]]), a[:2].T), (torch.cross(x, x[:, :1]), np.cross(a, a[:, :1], axis=0)),
                    (torch.special.ndtr(torch.tensor([0.0])), [0.5]),
                    (torch.special.entr(torch.tensor([0.0, -1.0])), [0, -math.inf])):
    np.testing.assert_allclose(got.numpy(), want, 1e-6, 1e-7)


def test_dtypes_and_devices() -> None:
  assert torch.finfo(torch.float16).max == 65504 and torch.iinfo("uint8").max == 255 and torch.finfo().dtype is dtypes.float32
  assert torch.finfo(torch.tensor(1.0)).eps == 2 ** -23 and torch.promote_types("uint8", "int8") is dtypes.int16
  assert torch.result_type(torch.tensor([1]), 1.5) is dtypes.float32 and not torch.can_cast("float32", "int32")
  assert isinstance(torch.tensor([1.0]).dtype, torch.dtype) and isinstance(torch.tensor([1.0]).shape, torch.Size)
  d = torch.device("cuda", 1)
  assert (d, d.type, d.index) == ("CUDA:1", "cuda", 1) and torch.device(2) == "CUDA:2" and torch.device(d) == d
  x = torch.zeros(2, device=torch.device("numpy"))
  assert x.device == "NUMPY" and x.device.type == "numpy" and x.device.index is None and x.to(x.device).device == "NUMPY"
  with torch.device("cpu"): assert torch.get_default_device().type == "cpu"
  with pytest.raises(DeviceError): torch.device("abacus")
  torch.set_default_device("numpy")
  assert Device.DEFAULT == "NUMPY"
  torch.set_default_device(None)


def test_random_numbers() -> None:
  g = torch.manual_seed(3)
  a, state = torch.rand(4), torch.get_rng_state()
  b = torch.rand(4).tolist()
  torch.set_rng_state(state)
  assert torch.rand(4).tolist() == b and torch.initial_seed() == 3 and g is torch.default_generator
  torch.random.manual_seed(3)
  assert torch.rand(4).tolist() == a.tolist()
  with torch.random.fork_rng(): torch.rand(9)
  assert torch.rand(4).tolist() == b
  n = torch.normal(torch.zeros(3000), torch.tensor(2.0)).numpy()
  assert abs(n.std() - 2) < 0.2 and torch.normal(0.0, 1.0, (2, 3)).shape == (2, 3) == torch.normal(0.0, torch.ones(2, 3)).shape
  assert set(torch.randint_like(torch.zeros(50, dtype=torch.int32), 3).tolist()) == {0, 1, 2}
  assert torch.Generator(device="cpu").manual_seed(1).initial_seed() == 1


def test_gradient_modes() -> None:
  x = torch.ones(2, requires_grad=True)

  @torch.no_grad()
  def without() -> Any: return x * 2
  @torch.inference_mode
  def neither() -> Any: return x * 2
  @torch.enable_grad()
  def still() -> Any: return x * 2
  @torch.set_grad_enabled(False)
  def off() -> Any: return x * 2
  assert not without().requires_grad and not neither().requires_grad and not off().requires_grad and torch.is_grad_enabled()
  with torch.no_grad(): assert still().requires_grad and not (x * 2).requires_grad and torch.is_inference_mode_enabled()


def test_lists_of_numbers_that_are_tensors() -> None:
  x, n = torch.tensor(1.5, requires_grad=True), torch.tensor(3)
  for data, values, dtype in (([x, x * 2], [1.5, 3], "float32"), ([n, n], [3, 3], "int32"), ([x, n], [1.5, 3], "float32"),
                              ([x, 0.25], [1.5, 0.25], "float32"), ([0.25, x], [0.25, 1.5], "float32"),
                              ([n, 0.5], [3, 0.5], "float32"),
                              ([x.double(), 2], [1.5, 2], "float64"), ([[x > 1], [x > 2]], [[True], [False]], "bool"),
                              ([x.reshape(1), n.reshape(1, 1)], [1.5, 3], "float32")):
    t = torch.tensor(data)
    assert t.tolist() == values and t.dtype.name == dtype and not t.requires_grad
  assert torch.tensor([x, n], dtype=torch.int64).tolist() == [1, 3] and x.type_as(n).dtype == n.dtype


def test_sizes_where_data_is_due() -> None:
  assert torch.Tensor(2, 3).shape == (2, 3) and torch.Tensor(1, 2, 3, 4).shape == (1, 2, 3, 4) and torch.Tensor(2).shape == ()
  with pytest.raises(ArgumentError, match="sizes must be ints"): torch.Tensor([1.5], 3)


def test_gradients_of_several() -> None:
  x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
  g = torch.autograd.grad((x * y).sum(), (x, y))
  assert g[0].tolist() == [3, 4] and g[1].tolist() == [1, 2] and not g[0].requires_grad and x.grad is None
  z = torch.tensor([1.0], requires_grad=True)
  assert [g.tolist() for g in torch.autograd.grad((x * y for y in (x, y)), {"x": x, "y": y}.values(), iter([y, x]))] == \
    [g.tolist() for g in torch.autograd.grad([x * x, x * y], [x, y], (y, x))]
  v = torch.autograd.Variable(x * 2, requires_grad=True)
  (v * y).sum().backward()
  assert v.grad.tolist() == [3, 4] and x.grad is None and not torch.autograd.Variable(x).requires_grad
  y.grad = None
  assert torch.autograd.grad(x.sum(), (x, z), allow_unused=True)[1] is None
  assert torch.autograd.grad(x.sum(), (x, z), materialize_grads=True)[1].tolist() == [0]
  first, = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
  assert torch.autograd.grad(first.sum(), x)[0].tolist() == [6, 12]
  torch.autograd.backward([(x * y).sum(), (x ** 2).sum()])
  assert x.grad.tolist() == [5, 8]
  x.grad = y.grad = None
  (x * y).sum().backward(inputs=[x])
  assert x.grad.tolist() == [3, 4] and y.grad is None
  x.grad = None
  (x ** 3).sum().backward(create_graph=True)
  assert torch.autograd.grad(x.grad.sum(), x)[0].tolist() == [6, 12]
  assert torch.autograd.functional.hessian(lambda a: (a ** 3).sum(), torch.tensor([1.0, 2.0])).tolist() == [[6, 0], [0, 12]]
  assert torch.autograd.functional.jacobian(lambda a: a.cumsum(0), torch.ones(2)).tolist() == [[1, 0], [1, 1]]


def test_gradients_of_dicts() -> None:
  """Per sample, of a model's parameters by name; and of several models as one."""
  from ntgrad.func import functional_call, grad, vmap
  net = torch.nn.Linear(2, 1)
  weights, x = {k: v.detach() for k, v in net.named_parameters()}, torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])
  def loss(w: Any, a: Any) -> Any: return (functional_call(net, w, (a,)) ** 2).sum()
  each = vmap(grad(loss), in_dims=(None, 0))(weights, x)
  assert list(each) == ["weight", "bias"] and each["weight"].shape == (3, 1, 2)
  y = 2 * (x @ weights["weight"].T + weights["bias"])
  assert torch.allclose(each["weight"], y[:, :, None] * x[:, None]) and torch.allclose(each["bias"], y)
  both, value = torch.func.grad_and_value(lambda w, p: (w["weight"] * p[0]).sum() + p[1].sum(), (0, 1))(weights, [x[0], x[1]])
  assert isinstance(value, torch.Tensor) and both[0]["weight"].tolist() == [[1, 2]] and both[0]["bias"].tolist() == [0]
  assert torch.allclose(both[1][0], weights["weight"][0]) and both[1][1].tolist() == [1, 1]
  several = {k: torch.stack([v, v * 2]) for k, v in weights.items()}
  out = vmap(lambda w, a: functional_call(net, w, (a,)), in_dims=(0, None))(several, x)
  assert out.shape == (2, 3, 1) and torch.allclose(out[1], out[0] * 2)
  with pytest.raises(ArgumentError, match="argument 0 of 1 has no Tensor"): grad(loss)({"weight": 1.0})


@pytest.mark.parametrize(("call", "error"), [
  (lambda x: torch.max(x, 5), AxisError), (lambda x: torch.max(x, x, other=x), ArgumentError),
  (lambda x: torch.sum(1), ArgumentError), (lambda x: torch.max(x, x[0, :3]), ShapeError),
  (lambda x: torch.std(x, True, False), ArgumentError), (lambda x: torch.finfo("int8"), DTypeError),
  (lambda x: torch.where(x > 0, x), ArgumentError), (lambda x: torch.scatter(x, 0, x), NtgradError),
  (lambda x: torch.norm(x, "inf"), ArgumentError),
  (lambda x: torch.autograd.grad(x * 2, x), GradientError),
  (lambda x: torch.autograd.grad(x.sum(), torch.ones(1)), GradientError),
  (lambda x: torch.autograd.grad(x.sum(), [1]), ArgumentError), (lambda x: torch.linalg.norm(x[None], 2), ShapeError),
  (lambda x: torch.vmap(lambda a, b: a)(x, x[:2]), ArgumentError), (lambda x: torch.cuda.synchronize("cpu"), DeviceError),
  (lambda x: torch.gradient(x, edge_order=3), ArgumentError), (lambda x: torch.compile(3), ArgumentError),
  (lambda x: (x * 2).sum().backward(inputs=[x * 2]), GradientError)])
def test_refusals(call: Any, error: Any) -> None:
  with pytest.raises(error): call(torch.ones(3, 4, requires_grad=True))


# ---- how names are found
def test_tables() -> None:
  assert len(NAMES) == len(set(NAMES)), "each name once"
  for name, row in rows(TOP).items():
    made = function(name, row)
    assert made.__doc__ == Made(name, row).text and made.__name__ == name
    assert len(made.__doc__ or "") > 5 and method(row.method) is not None
    given = [p.replace(annotation=p.empty) for p in inspect.signature(made).parameters.values()]
    assert given == list(inspect.signature(eval(f"lambda {row.parameters}: 0")).parameters.values()), name
  for name in NAMES: assert getattr(torch, name) is find(name) or callable(getattr(torch, name)), name
  for name in AT_TOP: assert getattr(torch, name) is getattr(nn.functional, name)


def test_files(tmp_path: Path) -> None:
  b, path = io.BytesIO(), tmp_path / "saved.pt"
  for to in (b, path): torch.save({"a": torch.arange(3), "b": [torch.ones(2, 2)], "n": 3}, to)
  b.seek(0)
  for at in (b, path):
    d = torch.load(at, map_location=torch.device("numpy"))
    assert d["a"].tolist() == [0, 1, 2] and d["b"][0].shape == (2, 2) and d["n"] == 3 and d["a"].device == "NUMPY"
  with pytest.raises(ArgumentError, match="map_location"): torch.load(path, map_location={"cuda": "cpu"})


def test_modules() -> None:
  for name in MODULES.split():
    m: Any = importlib.import_module(f"ntgrad.{name}")
    for n in m.__all__: assert getattr(m, n) is not None, (name, n)
  assert torch.optim.SGD is nn.optim.SGD and torch.optim.lr_scheduler.StepLR is nn.optim.lr_scheduler.StepLR
  assert torch.utils.data.DataLoader is nn.data.DataLoader and torch.autograd.Function is ntgrad.Function
  assert torch.utils.checkpoint.checkpoint is nn.checkpoint
  for place in ("torch", "torch.utils", "torch.autograd"):
    with pytest.raises(AttributeError, match="nothing"): eval(place).nothing


def test_cuda_says_what_there_is() -> None:
  there = torch.cuda.is_available()
  assert there == (torch.cuda.device_count() > 0) and torch.cuda.memory_allocated() >= 0
  if there:
    assert torch.cuda.get_device_capability() >= (8, 0) and torch.cuda.get_device_name() and torch.cuda.current_device() >= 0
    torch.cuda.synchronize()
  else:
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_reserved() == 0
    for call in (torch.cuda.get_device_name, torch.cuda.current_device, torch.cuda.synchronize):
      with pytest.raises(DeviceError): call()


def test_importing_loads_none_of_it() -> None:
  code = "import sys, ntgrad; ntgrad.Tensor([1.0]).max(0); print(*[m for m in sys.modules if m.startswith('ntgrad.')])"
  r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
  later = {f"ntgrad.{n}" for n in ("functions", "linalg", "autograd", "cuda", "nn")}
  assert r.stdout and not later & set(r.stdout.split()), r.stderr


# ---- losses and pools
def test_ctc_layer() -> None:
  x = Tensor(np.random.default_rng(0).standard_normal((6, 2, 4)), requires_grad=True)
  for how in ("mean", "sum", "none"):
    got = nn.CTCLoss(1, how)(x.log_softmax(-1), [[2, 2], [3, 0]], [6, 5], [2, 1])
    want = nn.functional.ctc_loss(x.log_softmax(-1), Tensor([[2, 2], [3, 0]]), [6, 5], [2, 1], 1, how)
    assert np.array_equal(got.numpy(), want.numpy())
  assert nn.CTCLoss(zero_infinity=True)(x[:1].log_softmax(-1), [[1, 2], [1, 2]], [1, 1], [2, 2]).item() == 0
  with pytest.raises(ArgumentError, match="reduction"): nn.CTCLoss(0, "all")


def test_a_second_gradient_of_ctc_is_refused() -> None:
  x = Tensor(np.random.default_rng(0).standard_normal((6, 1, 4)), requires_grad=True)
  g, = torch.autograd.grad(nn.CTCLoss()(x.log_softmax(-1), [[1, 2]], [6], [2]), x, create_graph=True)
  with pytest.raises(GradientError, match="ctc_loss: its gradient has no gradient itself"): torch.autograd.grad(g.sum(), x)


def test_ctc_compiles_once_for_all_lengths() -> None:
  ctc_kernels.made.cache_clear()
  rng = np.random.default_rng(0)
  for steps, n, classes in ((5, 1, 4), (9, 2, 4), (30, 3, 7)):
    x = Tensor(rng.standard_normal((steps, n, classes)), requires_grad=True)
    nn.CTCLoss()(x.log_softmax(-1), rng.integers(1, classes, (n, 3)), [steps] * n, [3] * n).backward()
    assert np.isfinite(x.grad.numpy()).all()
  for made in ctc_kernels.made(16):
    family, = made.kernel._families.values()
    assert len(family.forms) == 1


def test_lp_pool_is_a_root_of_powers_without_abs() -> None:
  x = Tensor([[[-1.0, -2.0, 3.0, 1.0]]])
  assert x.lp_pool1d(1, 2).tolist() == [[[-3, 4]]] == nn.LPPool1d(1, 2)(x).tolist()
  odd = x.lp_pool1d(3, 2).numpy().ravel()
  assert math.isnan(odd[0]) and abs(odd[1] - 28 ** (1 / 3)) < 1e-5
  assert x.lp_pool1d(math.inf, 2).tolist() == [[[2, 3]]] and x.lp_pool1d(-math.inf, 2).tolist() == [[[1, 1]]]
  np.testing.assert_allclose(x.lp_pool1d(2, 2).numpy().ravel(), [5 ** 0.5, 10 ** 0.5], 1e-6)


def test_extremes_by_the_name_of_a_dimension() -> None:
  """By the name ``dim`` values and where they are, of which the first of equal ones gets the gradient; else values alone."""
  a = np.array([[3.0, 1.0, 3.0], [2.0, 5.0, 5.0]], np.float32)
  for name, where in (("max", np.argmax), ("min", np.argmin)):
    x = Tensor(a, requires_grad=True)
    values, indices = getattr(x, name)(dim=1)
    assert indices.tolist() == where(a, 1).tolist() and values.tolist() == getattr(a, name)(1).tolist()
    values.sum().backward()
    assert x.grad is not None and x.grad.tolist() == np.eye(3)[where(a, 1)].tolist()
    assert getattr(x, name)(dim=-1, keepdim=True).values.shape == (2, 1) and getattr(x, name)(dim=(0, 1)).shape == ()
    assert getattr(x, name)(1).values.tolist() == getattr(x, name)(axis=1).tolist() == values.tolist()
    with pytest.raises(ArgumentError, match="give one of them"): getattr(x, name)(1, axis=1)


# ---- what chooses nothing here, and where elements lie
def test_backends() -> None:
  import ntgrad.backends.cudnn as cudnn
  cudnn.benchmark = torch.backends.cudnn.deterministic = True
  assert cudnn.benchmark and not cudnn.is_available() and cudnn.version() is None
  assert not torch.backends.mps.is_available() and not torch.backends.mps.is_built() and torch.backends.cuda.is_built()
  torch.backends.cuda.enable_flash_sdp(False)
  with config(allow_tf32=0):
    torch.backends.cuda.matmul.allow_tf32 = True
    assert config.allow_tf32 and torch.get_float32_matmul_precision() == "high"
    torch.backends.cuda.matmul.allow_tf32 = False
    assert not config.allow_tf32 and torch.backends.cuda.matmul.allow_tf32 is False
  for place, name in (torch.backends, "xeon"), (torch.backends.cuda, "cufft_plan_cache"):
    with pytest.raises(AttributeError, match=name): getattr(place, name)


def test_threads() -> None:
  with config(cores=0):
    torch.set_num_threads(3)
    assert config.cores == torch.get_num_threads() == 3
    for wrong in 0, -1, 1.5:
      with pytest.raises(ArgumentError): torch.set_num_threads(wrong)


VIEWS = """x | x.permute(0, 2, 3, 1) | x[:, ::2] | x[0] | x[:, 1] | x[..., 2:4] | x.transpose(1, 2) | x.reshape(6, 20)
x.unsqueeze(0) | x[:1] | x.flatten(1) | x[0, 0].t() | x[:, :, :1].expand(2, 3, 7, 5) | x.permute(0, 2, 3, 1)[1]
x.permute(0, 2, 3, 1).contiguous() | x + 1 | x.unsqueeze(2).unsqueeze(-1) | x.unfold(3, 2, 1)
x[0, 0, 0] | x.sum() | x.flip(0) | x.split(2, 3)[1] | x.movedim(0, -1)
x.reshape(2, 3, 20).transpose(1, 2) | x.view(2, 3, 2, 2, 5).transpose(0, 2) | x[:0] | x.detach()[:, 1:2]"""


def test_strides_are_those_of_pytorch() -> None:
  def program(t: Any, note: Any) -> None:
    x = t.tensor(np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5))
    for view in VIEWS.replace("\n", " | ").split(" | "):
      y = eval(view, {"x": x})
      note(view, tuple(y.stride()), y.is_contiguous(), y.ndim == 4 and y.is_contiguous(memory_format=t.channels_last),
           [y.stride(d) for d in range(-y.ndim, 0)])
  compare(program)


def test_addresses() -> None:
  x = torch.tensor(np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5))
  assert x.data_ptr() == x.view(-1).data_ptr() == x.detach().data_ptr() == x.data.data_ptr()
  assert x[1].data_ptr() - x.data_ptr() == 240 and x.clone().data_ptr() != x.data_ptr()
  a, b = nn.Linear(2, 2), nn.Linear(2, 2)
  b.weight = a.weight
  assert a.weight.data_ptr() == b.weight.data_ptr() != a.bias.data_ptr()   # type: ignore[union-attr]
  with pytest.raises(InterchangeError, match="data_ptr"): x[:1].expand(5, 3, 4, 5).data_ptr()
  with pytest.raises(AxisError): x.stride(7)


def test_memory_formats_change_nothing() -> None:
  x, layer = torch.tensor(np.arange(24.0).reshape(1, 2, 3, 4)), nn.Linear(2, 2)
  for f in (torch.channels_last, torch.channels_last_3d, torch.contiguous_format, torch.preserve_format):
    assert isinstance(f, torch.memory_format) and layer.to(memory_format=f, non_blocking=True) is layer
    for y in (x.to(memory_format=f), x.to("cpu", memory_format=f), x.contiguous(memory_format=f), x.clone(memory_format=f)):
      assert np.array_equal(y.numpy(), x.numpy()) and y.is_contiguous()
  for call in (lambda: x.to(memory_format="channels_last"), lambda: x.contiguous(memory_format=3),
               lambda: x.clone(memory_format=1)):
    with pytest.raises(ArgumentError, match="memory_format"): call()


def test_what_matplotlib_asks_for() -> None:
  """``plt.hist`` takes one histogram a column, as of an array: it looks for ``to_numpy``."""
  a = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
  assert np.array_equal(torch.tensor(a).to_numpy(), a)
  cbook = pytest.importorskip("matplotlib.cbook")
  for x, y in zip(cbook._reshape_2D(torch.tensor(a), "x"), cbook._reshape_2D(a, "x"), strict=True): assert np.array_equal(x, y)
