"""Which device a machine gets, and what is said when there is none."""
from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import ntgrad.config
from ntgrad import Device, Tensor, config, nn
from ntgrad.backends.opencl.device import available
from ntgrad.codegen.ir.config import Settings
from ntgrad.engine import device
from ntgrad.errors import ConfigError, DeviceError
from support.devices import HAS_CUDA


@pytest.fixture(autouse=True)
def nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
  """What tests with devices that are pretended have found is not there."""
  monkeypatch.setattr(device, "_there", set())


@pytest.mark.skipif(HAS_CUDA, reason="the GPU is the default device")
def test_without_opencl_the_numpy_backend_is_used_and_says_so_once() -> None:
  env = {**os.environ, "OCL_ICD_VENDORS": "/nonexistent", "DEV": ""}
  code = "from ntgrad import Tensor; print((Tensor([1.0, 2.0]) + 1).tolist(), (Tensor([1.0]) * 3).tolist())"
  done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=True)
  assert done.stdout.split("\n")[0] == "[2.0, 3.0] [3.0]"
  assert done.stderr.count("using the slow numpy backend") == 1 and done.stderr.count("no OpenCL") == 1


@pytest.mark.parametrize("name", ["FOO", "", "CPU:x", "CUDA:x", "CUDA:"])
def test_unknown_devices_are_refused_at_the_call(name: str) -> None:
  with pytest.raises(DeviceError, match="devices are CPU, CL, CUDA, NUMPY"): Tensor([1.0], device=name)


MISSING = ["CUDA:97", "cuda:97", "CL:97", "cl:97", "CPU:97"] + ["CUDA", "cuda", "cuda:0"] * (not HAS_CUDA)
NAMED = {   # what takes a device
  "Tensor": lambda d: Tensor([1], device=d), "a number": lambda d: Tensor(1.0, device=d),
  "tensor": lambda d: ntgrad.tensor(1, device=d),
  "as_tensor": lambda d: ntgrad.as_tensor([1], device=d), "zeros": lambda d: Tensor.zeros(2, device=d),
  "full_like": lambda d: Tensor([1]).full_like(2, device=d), "empty": lambda d: Tensor.empty(2, device=d),
  "arange": lambda d: ntgrad.arange(3, device=d), "eye": lambda d: Tensor.eye(3, device=d),
  "rand": lambda d: Tensor.rand(2, device=d), "randint": lambda d: Tensor.randint(3, device=d),
  "randperm": lambda d: ntgrad.randperm(3, device=d), "to": lambda d: Tensor([1]).to(d),
  "to a device": lambda d: Tensor([1]).to(ntgrad.device(d)), "to_": lambda d: Tensor([1.0]).to_(d),
  "a layer": lambda d: nn.Linear(1, 1, device=d), "Module.to": lambda d: nn.Linear(1, 1).to(d),
  "DEFAULT": lambda d: setattr(Device, "DEFAULT", d), "set_default_device": ntgrad.set_default_device,
  "with": lambda d: ntgrad.device(d).__enter__(), "synchronize": Device.synchronize, "memory": Device.memory,
  "DataLoader": lambda d: ntgrad.utils.data.DataLoader([1, 2], device=d)}


@pytest.mark.parametrize("what", NAMED)
def test_a_device_that_is_not_there_is_refused_at_the_call(what: str) -> None:
  before = Device.DEFAULT
  for name in (*MISSING, "gpu", "GPU"):
    with pytest.raises(DeviceError) as e: NAMED[what](name)
    assert "this machine has" in str(e.value) and "NUMPY" in str(e.value), str(e.value)
    assert name.upper().removesuffix(":0") in str(e.value).upper()
    if name.lower() == "gpu": assert "an NVIDIA GPU is CUDA, any other OpenCL device CL" in str(e.value)
  assert Device.DEFAULT == before


@pytest.mark.parametrize("name", MISSING)
def test_a_setting_for_a_device_that_is_not_there(name: str) -> None:
  with config(dev=name), pytest.raises(DeviceError, match="is not there.*this machine has"): Tensor([1])


def test_what_there_is() -> None:
  """Scripts that ask before they name a device go on; asking opens none."""
  there = Device.get_available_devices()
  assert "NUMPY" in there and ("CUDA" in there) is HAS_CUDA is ntgrad.cuda.is_available()
  assert ntgrad.device("cuda").type == "cuda" and ntgrad.device("cuda", 3) == "CUDA:3"   # a name is no use of it
  chosen = ntgrad.device("cuda" if ntgrad.cuda.is_available() else "cpu")
  assert Tensor([1], device=chosen).device == chosen
  if not HAS_CUDA:
    assert ntgrad.cuda.device_count() == ntgrad.cuda.memory_allocated() == ntgrad.cuda.max_memory_allocated() == 0
    ntgrad.cuda.empty_cache()
  for name in there: assert Tensor([1], device=name).device == name


def test_what_is_made_of_numbers_belongs_to_no_device() -> None:
  """Equal constants and counters are one node; that one of them was computed on a device says nothing of the others."""
  devices = ["NUMPY", "CPU"] if available()[0] else ["NUMPY"]
  kept = []
  for dev in devices:
    with config(dev=dev):
      others = [Tensor.ones(2, 3), Tensor.arange(6).reshape(2, 3), (Tensor.arange(3) * 2).contiguous()]
      kept += [
        (t, other)
        for t, other in zip([Tensor.ones(2, 3), Tensor.arange(6).reshape(2, 3), (Tensor.arange(3) * 2).contiguous()], others)
      ]
      for t, _ in kept: t.realize()
  for dev in devices:
    for t, other in kept:
      got = Tensor(np.zeros((2, 3), np.int32), device=dev) + other
      assert got.device == dev and got.tolist() == (np.zeros((2, 3)) + t.numpy()).tolist()


def test_numbers_that_change_on_two_devices() -> None:
  """A number is given to kernels of the device on which it is used, also one that both use."""
  x = np.arange(4, dtype=np.float32)
  for a, b in ((1.5, 1.5), (2.5, 2.5), (3.5, 0.25), (4.5, 0.75)):
    there, want = (Tensor(x, device="NUMPY") * a).to("CPU") * b, x * a * b
    assert (there.device, there.tolist(), (there.to("NUMPY") - a).tolist()) == ("CPU", want.tolist(), (want - a).tolist())
    with config(dev="NUMPY"): assert (Tensor.arange(4) * a).to("CPU").tolist() == (x * a).tolist()   # made on the default one
  for k in range(4):   # where a part begins is a number, too
    y = Tensor(x, device="NUMPY").clone()
    y[k:k + 1] = Tensor(x, device="NUMPY")[k:k + 1] * (k + 1.5)
    assert y.to("CPU").tolist() == np.where(np.arange(4) == k, x * (k + 1.5), x).tolist()


def test_what_has_no_memory_is_copied_from_the_default_device() -> None:
  with config(dev="NUMPY"):
    a = Tensor.arange(6).reshape(2, 3)
    a[1, 0] = 100
    got = a.gather(1, a.argsort(1, descending=True)).to("CPU")   # with a check of the index
    assert got.device == "CPU" and got.tolist() == [[2, 1, 0], [100, 5, 4]]


@pytest.mark.parametrize("name", [f.name for f in fields(Settings) if f.metadata["kind"] is int])
def test_settings_refuse_what_they_do_not_take(name: str) -> None:
  was = getattr(config, name)
  for value in (-2, 1 << 70, "1", 1.0, None):
    for give in (
      lambda v: setattr(config, name, v),
      lambda v: config(**{name: v}).__enter__(),
      lambda v: setattr(ntgrad.config, name, v),
    ):
      with pytest.raises(ConfigError, match=rf"config.{name} is {value!r}, expected .*\d"):
        give(value)
      assert getattr(config, name) == was


@pytest.mark.parametrize("settings", [config, ntgrad.config])
def test_monkeypatch_puts_a_setting_back(settings: object) -> None:
  was = config.dynamic
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(settings, "dynamic", "never")
    assert config.dynamic == "never"
  assert config.dynamic == was
  with config(dynamic="always"): assert config.dynamic == "always"


def test_a_setting_that_is_none_is_refused() -> None:
  before = vars(config).copy()
  for give in (lambda: setattr(config, "debag", 1), lambda: config(debug=5, debag=1).__enter__()):
    with pytest.raises(ConfigError, match="no field 'debag'; fields: debug, "): give()
  assert vars(config) == before


@pytest.mark.parametrize(
  "variable, value, said",
  [
    ("WORKERS", "-3", "WORKERS is -3, expected a whole number from 0 to 1024"),
    ("BEAM", "-1", "BEAM is -1, expected a whole number from 0"),
    ("DEBUG", "-1", "DEBUG is -1, expected a whole number from 0 to 6"),
    ("DEBUG", "abc", "DEBUG is 'abc', expected a whole number from 0 to 6"),
    ("VECTOR_BITS", "100", "VECTOR_BITS is 100, expected 0, 128, 256 or 512"),
    ("NOOPT", "yes", "NOOPT is 'yes', expected 0 or 1"),
    ("JIT", "", "JIT is '', expected 0 or 1"),
    ("COLOR", "1.5", "COLOR is '1.5', expected -1, 0 or 1"),
  ],
)
def test_variables_refuse_what_they_do_not_take(variable: str, value: str, said: str) -> None:
  done = subprocess.run(
    [sys.executable, "-c", "import ntgrad"], env={**os.environ, variable: value}, capture_output=True, text=True, timeout=120
  )
  assert done.returncode and f"ConfigError: environment variable {said}" in done.stderr


@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
def test_a_number_on_another_device_than_the_default(device: str) -> None:
  if not available()[0]: pytest.skip("no OpenCL device")
  with config(dev="CPU" if device == "NUMPY" else "NUMPY"):
    x, half = Tensor([1.0, 2.0], device=device), Tensor(0.5, device=device)
    assert half.item() == 0.5 and (x + half).tolist() == [1.5, 2.5] and (Tensor(0.5).to(device) * x).tolist() == [0.5, 1.0]
    assert Tensor.full((), 3, device=device).item() == 3 and Tensor.ones(2, device=device).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("device", ["CPU", "NUMPY"])
@pytest.mark.parametrize("write", [
  lambda t: t.zero_(), lambda t: t.fill_(0), lambda t: t.assign(Tensor.zeros(3)), lambda t: t.copy_(Tensor.zeros(3)),
  lambda t: t.__setitem__(slice(None), 0), lambda t: t.__imul__(0)], ids=["zero_", "fill_", "assign", "copy_", "setitem", "imul"])
def test_a_number_that_is_written_stays_on_the_device(write: Any, device: str) -> None:
  if not available()[0]: pytest.skip("no OpenCL device")
  with config(dev="CPU" if device == "NUMPY" else "NUMPY"):
    x = Tensor([1.0, 2.0, 3.0], device=device).realize()
    view = x[1:]
    write(x)
    assert x.device == view.device == (x + 1).device == device and (view + 1).tolist() == [1.0, 1.0] and x.device == device
    assert (x * 2).realize().device == device
