"""The pages for those who come from PyTorch and tinygrad: nothing is unknown, what is said to be here is."""
from __future__ import annotations

import importlib
import importlib.util
import inspect
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, dtypes, nn
from ntgrad.errors import CaptureError, IndexOutOfRangeError
from ntgrad.functions import MISSING, dtype, find
from support.scripts import load

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("pytorch", "tinygrad")
tables = load("docs/names/tables.py")
MODULES = {"Tensor": Tensor, "nn": nn, "ntgrad": ntgrad, "config": ntgrad.config, "Device": ntgrad.Device, "dtypes": dtypes,
         "np": np}


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_page_is_what_the_lists_and_notes_say(library: str) -> None:
  text, unknown = tables.document(library)
  assert unknown == [], "say in docs/names/notes.txt what these are here, or why they are not"
  assert tables.page(library).read_text() == text, "run python docs/names/tables.py"


def test_the_package_has_the_reasons() -> None:
  """One table: what docs/names/notes.txt says is what a missing name is refused with."""
  assert tables.ABSENT.read_text() == tables.absent(), "run python docs/names/tables.py"
  names = [n for line in tables.ABSENT.read_text().splitlines() if line[0] == " " for n in line.split()]
  assert len(names) == len(set(names)) > 700 and [n for n in names if tables.found(n) is not None] == []


@pytest.mark.parametrize(("code", "said"), [
  ("ntgrad.angle", "there are no complex numbers"), ("ntgrad.fft.fft(x)", "there are no complex numbers"),
  ("nn.DataParallel", "one process a device"),
  ("nn.LazyLinear", "sizes are given when a layer is made"),
  ("F.scaled_mm", "quantised weights"), ("F.abs", "Tensor has, x.abs(..)"), ("nn.optim.LBFGS", "subclasses"),
  ("ntgrad.optim.LBFGS", "subclasses `nn.optim.Optimizer`"),
  ("ntgrad.linalg.eig", "complex"), ("ntgrad.special.i0", "build it of what there is"), ("ntgrad.cuda.Stream", "one stream"),
  ("ntgrad.helpers.fetch", "nothing is fetched"),
  ("x.byte()", 'use `x.cast("uint8")`')])
def test_a_missing_name_says_why(code: str, said: str) -> None:
  space = {"ntgrad": ntgrad, "nn": nn, "F": nn.functional, "Tensor": Tensor, "x": Tensor([1])}
  with pytest.raises(AttributeError) as e: eval(code, space)
  assert re.search(r"has no attribute '\w+': ", str(e.value)) and said in str(e.value), str(e.value)
  parts = code.split("(")[0].split(".")
  if parts[0] in ("ntgrad", "nn") and len(parts) == 2 and "(" not in code:
    with pytest.raises(ImportError) as i: exec(f"from {'ntgrad.' * (parts[0] == 'nn')}{parts[0]} import {parts[1]}", {})
    assert said in str(i.value)


def test_a_name_that_is_nowhere_is_a_plain_error() -> None:
  for x, name in ((ntgrad, "nothing"), (nn, "nothing"), (nn.functional, "nothing"), (Tensor, "nothing"), (Tensor([1]), "nothing"),
                  (nn.Linear(1, 1), "nothing"), (ntgrad, "_angle"), (ntgrad.linalg, "Tensor")):
    assert not hasattr(x, name) and getattr(x, name, 3) == 3
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'$"): getattr(x, name)
  with pytest.raises(ImportError, match="cannot import name 'nothing' from 'ntgrad'$"): exec("from ntgrad import nothing", {})


PUBLIC = ["ntgrad", *[f"ntgrad.{name}" for name in (
  "array_api autograd autograd.functional config cuda distributed distributed.functional errors func helpers linalg nn nn.data "
  "nn.datasets nn.functional nn.init "
  "nn.optim nn.optim.lr_scheduler nn.optim.swa_utils nn.parallel nn.state nn.utils nn.utils.checkpoint nn.utils.data optim "
  "optim.lr_scheduler optim.swa_utils random special tile tile.language utils utils.checkpoint utils.data").split()]]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_shows_its_own_names_alone(name: str) -> None:
  """Not what its file imports: ``Any``, ``math``, ``import_module``, errors, helpers of other files."""
  module = importlib.import_module(name)
  beneath = {k for k, v in vars(module).items() if inspect.ismodule(v) and v.__name__ == f"{name}.{k}"}
  foreign = {k for k in vars(module) if k[0] != "_"} - beneath - set(module.__all__)
  if name == "ntgrad": foreign = {k for k in foreign if find(k) is MISSING and dtype(k) is None}   # what was asked for before
  assert foreign == set() and not {"Any", "annotations", "import_module", "TYPE_CHECKING"} & set(dir(module))
  values = {k: getattr(module, k) for k in module.__all__}
  others = [k for k, v in values.items() if inspect.ismodule(v) and not v.__name__.startswith("ntgrad.")]
  assert others == ["math"] * (name == "ntgrad.tile.language")   # Triton's ``tl.math``


def test_a_missing_module_says_why() -> None:
  for name, said in (("ntgrad.multiprocessing", "one process"), ("ntgrad.fft", "complex"),
                     ("ntgrad.utils.tensorboard", "the script's own"), ("ntgrad.nn.utils.stateless", "functional_call")):
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}': .*{said}") as e: exec(f"import {name} as x", {})
    assert e.value.name == name and importlib.util.find_spec(name) is None
  for name in ("ntgrad.nothing", "nothing_of_this_name"):
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'$"): exec(f"import {name}", {})


def test_public_modules_are_modules() -> None:
  """What stands in a module's place has what modules have."""
  assert ntgrad.linalg is sys.modules["ntgrad.linalg"] is importlib.import_module("ntgrad.linalg")
  assert ntgrad.linalg.__file__.endswith("linalg.py") and ntgrad.linalg.__spec__.name == "ntgrad.linalg" and ntgrad.linalg.__doc__
  norm = ntgrad.linalg.norm
  assert pickle.loads(pickle.dumps(norm)) is norm and inspect.getmodule(norm) is ntgrad.linalg
  space: dict[str, Any] = {}
  exec("from ntgrad.linalg import *", space)
  assert set(ntgrad.linalg.__all__) == set(space) - {"__builtins__"}


def there(path: str) -> bool:
  """Whether a dotted name leads somewhere."""
  first, *rest = path.split(".")
  if first in ("helpers", "tile"): at: Any = importlib.import_module(f"ntgrad.{first}")
  else: at = MODULES[first]
  for name in rest:
    if not hasattr(at, name):
      try: at = importlib.import_module(f"{at.__name__}.{name}")
      except (ImportError, AttributeError): return False
    else: at = getattr(at, name)
  return True


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_said_to_be_here_is(library: str) -> None:
  names = tables.listed(library)
  gone = []
  for name, said in names.items():
    e = tables.entry(name, said)
    if e.where == "–" or "nn.data" in e.where: continue
    for path in re.findall(r"(?<![\w.])(?:Tensor|nn|ntgrad|config|Device|dtypes|helpers|tile|np)(?:\.[A-Za-z_]\w*)+", e.where):
      if not there(path): gone.append(f"{name}: {path}")
  assert gone == []
  noted = {n for library in LIBRARIES for n in tables.listed(library)}
  assert sorted(set(tables.NAMES) - noted) == [], "notes of names that no list has"


def test_parameters_are_compared() -> None:
  assert tables.differs(Tensor.topk, "k, dim, largest, sorted") == ""
  assert tables.differs(Tensor.conv2d, "weight, bias, stride, padding, dilation, groups") == "another order: give them by name"
  assert tables.differs(Tensor.sum, "dim, keepdim, dtype, colour") == "without `colour`"
  assert tables.differs(nn.Linear, "in_features, out_features, bias, device, dtype") == ""
  assert tables.differs(nn.LSTM, "input_size, hidden_size, num_layers, bias, batch_first, proj_size, device") == ""


# ---- what the remarks say

def test_dtypes_of_results() -> None:
  x = Tensor([[1, 5, 2], [3, 3, 1]])
  assert all(t.dtype is dtypes.int32 for t in (x, x.argmax(1), x.sort(1)[1], x.topk(2)[1], x.nonzero(), x.one_hot(6),
                                               Tensor.arange(3), Tensor.randint(3), x.sum(dtype="int64").cast("int32")))
  assert x.mean().dtype is (x / 2).dtype is (x * 0.5).dtype is Tensor([1.5]).dtype is dtypes.float32
  assert Tensor(np.array([1])).dtype is dtypes.int64 and Tensor(np.array([1.0])).dtype is dtypes.float64
  assert all(t.sum().dtype is dtypes.int64 for t in (x, Tensor([True, True]), Tensor([1], dtype="uint8")))
  assert (Tensor([7, -7]) // 2).tolist() == [3, -4] and (Tensor([7, -7]) % 3).tolist() == [1, 2]


def test_extremes_give_values_and_the_first_of_equals_is_found() -> None:
  x = Tensor([[1, 5, 5], [3, 3, 1]])
  assert x.max(axis=1).tolist() == [5, 3] and x.argmax(1).tolist() == [1, 0] and x.topk(2)[1].tolist() == [[1, 2], [0, 1]]
  assert x.sort(1, descending=True)[1].tolist() == [[1, 2, 0], [0, 1, 2]] and Tensor([1.0, 2.0, 3.0, 4.0]).median().item() == 2


def test_views_and_copies() -> None:
  x = Tensor.zeros(2, 3)
  turned = x.T.reshape(6)     # shares memory, whatever order it lies in
  turned += 1
  assert x.sum().item() == 6
  own = x.contiguous()
  own += 1
  assert x.sum().item() == 6
  array = np.ones(2)
  t = Tensor.from_numpy(array).realize()
  array[0] = 5
  assert t.tolist() == [1, 1]


def test_gradients() -> None:
  w = Tensor([2.0], requires_grad=True)
  slope, = (w ** 3).sum().gradient(w)
  assert slope.sum().gradient(w)[0].tolist() == [12]
  loss = (w * 2).sum()
  loss.backward(retain_graph=True)
  loss.backward()
  assert w.grad is not None and w.grad.tolist() == [4]
  with ntgrad.no_grad():
    with ntgrad.enable_grad(): assert ntgrad.is_grad_enabled() and (w * 2).requires_grad
    assert not ntgrad.is_grad_enabled() and not (w * 2).requires_grad
  with ntgrad.set_grad_enabled(False): assert not (w * 2).requires_grad
  @ntgrad.inference_mode()
  def inside() -> bool: return ntgrad.is_grad_enabled()
  assert not inside() and ntgrad.is_grad_enabled()


def test_training_is_a_mode() -> None:
  x = Tensor.ones(100)
  assert x.dropout(0.5).tolist() == x.tolist() and x.dropout(0.5, training=True).min().item() == 0
  layer = nn.Dropout(0.5)
  assert not layer.training and layer.train().training and layer(x).min().item() == 0


def test_layers_take_pytorchs_names() -> None:
  layer = nn.Linear(2, 3, device="NUMPY", dtype="float64")
  assert layer.weight.device == "NUMPY" and layer.weight.dtype is dtypes.float64 and layer.weight.requires_grad
  norm = nn.BatchNorm2d(num_features=3, momentum=0.2, dtype="float16")
  assert norm.weight is not None and norm.weight.dtype is dtypes.float16 and norm.num_batches_tracked.dtype is dtypes.int64
  assert nn.Embedding(num_embeddings=4, embedding_dim=2).weight.shape == (4, 2) and nn.RMSNorm(normalized_shape=3).dim == 3
  model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
  assert list(model.parameters(recurse=False)) == [] and [n for n, _ in model.named_parameters("a")][0] == "a.0.weight"
  assert model.get_submodule("1") is model[1] and model.get_parameter("0.bias") is model[0].bias
  assert model.get_buffer("1.running_mean").shape == (2,)


def test_keywords_as_people_write_them() -> None:
  x = Tensor([[1.234, 5.678], [3.0, 4.0]])
  np.testing.assert_allclose(x.round(decimals=1).numpy(), [[1.2, 5.7], [3, 4]], rtol=1e-6)
  np.testing.assert_allclose(x.std(dim=1, unbiased=False).numpy(), x.numpy().std(1), rtol=1e-5)
  np.testing.assert_allclose(x.var(1, unbiased=True, keepdim=True).numpy(), x.numpy().var(1, ddof=1, keepdims=True), rtol=1e-5)
  assert x.pow(exponent=2).shape == (2, 2) and [t.shape for t in x.split(split_size=1)] == [(1, 2)] * 2
  assert x.mean(dtype="float64").dtype is dtypes.float64 and x.int().cumsum(0, dtype="int64").dtype is dtypes.int64
  assert x.leaky_relu(negative_slope=0.1).shape == (2, 2) and x.unfold(dimension=1, size=1, step=1).shape == (2, 2, 1)
  assert x.pad(pad=(0, 1)).shape == (2, 3) and round(x.std(correction=0).item(), 3) == round(float(x.numpy().std()), 3)


def test_what_a_jit_cannot_record() -> None:
  x = Tensor([0.0, 1.0, 2.0])
  find = ntgrad.jit(lambda t: t.nonzero_static(size=2))
  for _ in range(4): assert find(x).tolist() == [[1], [2]]
  look = ntgrad.jit(lambda t: t.nonzero())
  with pytest.raises(CaptureError):
    for _ in range(3): look(x)
  with pytest.raises(IndexOutOfRangeError): Tensor([1.0, 2.0], device="CPU")[Tensor([1, 5], device="CPU")].numpy()
