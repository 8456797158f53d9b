"""The CUDA runtime: on a stand-in for NVIDIA's modules what it hands to them, on a GPU what it computes."""
from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
import types
from dataclasses import replace
from typing import Any, Iterator

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.cuda import compiler, device as runtime, driver as nvidia
from ntgrad.backends.cuda.compiler import Binary
from ntgrad.backends.cuda.device import CUDADevice
from ntgrad.backends.cuda.driver import Events, Staging
from ntgrad.backends.cuda.renderer import settings
from ntgrad.backends.memory_pool import bucket
from ntgrad.codegen.ir.errors import CompileError, DeviceError, StateError
from support import triton
from support.cuda_graphs import FakeGraphs
from support.cuda_streams import FakeStreams
from support.devices import needs_cuda

SOURCE = (
  "import triton\nimport triton.language as tl\n\n\n# data0: *fp32, data1: *fp32\n@triton.jit\ndef double(data0, data1):\n"
  "  r0 = tl.program_id(0)*64 + tl.arange(0, 64)\n  tl.store(data0 + r0, tl.load(data1 + r0)*2)\n"
)
STRAY = SOURCE.replace("data1 + r0", "data1 + r0.to(tl.int64)*1000000000000")


# ---- a machine with a GPU that only remembers

class Event:
  """A mark; ``at`` is when it was made."""
  clock = itertools.count()
  is_done = True   # or what a test says

  def __init__(self) -> None: self.at, self.synced = next(self.clock), 0
  @property
  def handle(self) -> Event: return self
  def sync(self) -> None: self.synced += 1
  def __sub__(self, other: Event) -> float: return float(self.at - other.at)


class Stream:
  """What was asked of it."""
  handle = 77

  def __init__(self, handle: int = 77) -> None: self.broken, self.handle = "", handle
  def record(self, event: Any = None, options: Any = None) -> Event: return Event() if event is None else event
  def sync(self) -> None:
    if self.broken: raise RuntimeError(self.broken)


class Memory:
  """An allocation in host memory, so that copies to it can be looked at."""

  def __init__(self, size: int):
    self.block = (ctypes.c_ubyte * (size + 512))()
    self.handle = (ctypes.addressof(self.block) + 511) // 512 * 512
    self.closed = False
  def close(self, stream: Any) -> None: self.closed = True


class Attribute(int):
  """An error code with a name."""
  name = "CUDA_ERROR_INVALID_VALUE"


class Fake:
  """cuda.core and cuda.bindings.driver of a machine with ``gpus`` of ``capability``."""

  def __init__(self, gpus: int = 1, capability: int = 90, room: int = 1 << 20):
    self.gpus, self.capability, self.room, self.used = gpus, capability, room, 0
    self.launches: list[tuple[Any, ...]] = []
    self.asked: list[tuple[Any, ...]] = []
    self.stream = Stream()
    self.blocks: list[Memory] = []
    fake = self
    class Device:
      def __init__(self, number: int):
        self.number = number
        self.properties = types.SimpleNamespace(
          multiprocessor_count=132,
          max_shared_memory_per_block_optin=232448,
          l2_cache_size=50 << 20,
          memory_clock_rate=2_619_000,
          global_memory_bus_width=5120,
        )
        self.memory_resource = types.SimpleNamespace(handle=5)
      def set_current(self) -> None: pass
      def create_stream(self, options: Any) -> Stream:
        assert options == {"nonblocking": False}
        return Stream(Stream.handle + self.number) if self.number else fake.stream
      def allocate(self, size: int, stream: Any) -> Memory:
        if fake.used + size > fake.room: raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: there is none")
        fake.used += size
        fake.blocks.append(Memory(size))
        close = fake.blocks[-1].close
        def closing(stream: Any) -> None:
          fake.used -= size
          close(stream)
        fake.blocks[-1].close = closing  # type: ignore[method-assign]
        return fake.blocks[-1]
    def module(cubin: bytes) -> Any:
      return types.SimpleNamespace(get_kernel=lambda name: types.SimpleNamespace(name=name, handle=("kernel", name), cubin=cubin))
    self.core = types.SimpleNamespace(Device=Device, StreamOptions=dict, EventOptions=lambda timing_enabled: "timing",
                                      ObjectCode=types.SimpleNamespace(from_cubin=module))
    self.pinned: list[Any] = []
    def pinned(size: int) -> tuple[int, int]:
      self.pinned.append((ctypes.c_ubyte * size)())
      return 0, ctypes.addressof(self.pinned[-1])
    def copy(to: int, source: int, n: int, stream: int) -> tuple[int]:
      assert Stream.handle <= stream < Stream.handle + self.gpus
      ctypes.memmove(to, source, n)
      return (0,)

    def attribute(which: str, n: int) -> tuple[int, int]:
      return 0, self.capability // 10 if which == "major" else self.capability % 10

    def set_attribute(*a: Any) -> tuple[int]:
      self.asked.append(a)
      return (0,)
    names = types.SimpleNamespace
    self.driver = names(
      cuInit=lambda flags: (0,),
      cuDriverGetVersion=lambda: (0, 13000),
      cuDeviceGetCount=lambda: (0, self.gpus),
      cuDeviceGetName=lambda n, i: (0, b"Fake\0\0"),
      CUdevice_attribute=names(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR="major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR="minor"
      ),
      CUfunction_attribute=names(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared"),
      cuDeviceGetAttribute=attribute,
      cuKernelSetAttribute=set_attribute,
      cuMemGetInfo=lambda: (0, self.room, self.room),
      cuMemAllocHost=pinned,
      cuMemcpyHtoDAsync=copy,
      cuMemcpyDtoHAsync=copy,
      cuMemPoolTrimTo=lambda pool, keep: (0,),
    )
    self.graphs = FakeGraphs(self.driver, self.launches, self.asked)
    self.streams = FakeStreams(self.driver)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
  """Found in the place of NVIDIA's modules."""
  f = Fake()
  monkeypatch.setattr(nvidia, "modules", lambda: (f.core, f.driver))

  def build(r: compiler.Request) -> Binary:
    return Binary(r.name, r.target, b"cubin", "ptx", r.num_warps, 1, 100_000 * r.num_stages, 0, 1)

  monkeypatch.setattr(compiler, "build", build)
  monkeypatch.setattr(compiler, "cached", lambda *a: None)
  yield f
  runtime._here.__dict__.clear()


def spec(grid: tuple[int, ...] = (10, 1, 1), source: str = SOURCE) -> ProgramSpec:
  return ProgramSpec("double", triton.module(source, 2), grid, (1, 1, 1), 2)


def test_launch(fake: Fake) -> None:
  """Addresses in slot order, then two that the compiler adds; shared memory over 48 KB is asked for, stages are given up for
  it."""
  d = CUDADevice("CUDA")
  program, = d.compile([spec()])
  a, b = d.alloc(2560), d.alloc(2560)
  program([a, b])
  program([b, d.part(a, 512, 100)])
  launch = ((10, 1, 1), (128, 1, 1), 200_000, "double")
  assert fake.launches == [(*launch, (a, b, 0, 0)), (*launch, (b, a + 512, 0, 0))]
  assert fake.asked == [("shared", 200_000, ("function", "double"))]
  assert program([a, b], wait=True) == 1e-3
  with pytest.raises(DeviceError, match="double takes 2 buffers, got 1"): program([a])


def test_options(fake: Fake) -> None:
  """Warps and stages that a kernel was given stand before those that its source suggests."""
  device = CUDADevice("CUDA")
  told = replace(spec(), options=(("num_warps", 8), ("num_stages", 1)))
  device.compile([told])[0]([1, 2])
  assert fake.launches[0][1:3] == ((256, 1, 1), 100_000)
  known = CUDADevice("CUDA")
  known.unpack(device.pack([told]), [spec()])
  assert known.build(spec()).num_warps == 8


@pytest.mark.parametrize("grid, launched", [((3, 4, 5), (3, 4, 5)), ((3, 70000, 2), (420000, 1, 1)), ((5,), (5, 1, 1))])
def test_grids(fake: Fake, grid: tuple[int, ...], launched: tuple[int, ...]) -> None:
  d = CUDADevice("CUDA")
  d.compile([spec(grid)])[0]([1, 2])
  assert fake.launches[0][0] == launched


def test_scratch(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
  """Memory that the compiler wants for each program is there for all of them, as long as the kernel."""
  monkeypatch.setattr(compiler, "build", lambda *a: Binary("double", "sm_90", b"", "", 8, 1, 1000, 256, 128))
  d = CUDADevice("CUDA")
  program, = d.compile([spec((3, 4, 1))])
  program([1, 2])
  assert (
    fake.launches[0][1:3] == ((256, 1, 1), 1000)
    and fake.launches[0][4][2] in d._owners
    and d.allocated == 256 * 12
    and not fake.asked
  )
  del program
  assert d.allocated == 0 and d.pooled == 256 * 12


def test_too_much_shared_memory(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(compiler, "build", lambda *a: Binary("double", "sm_90", b"", "", 4, 1, 300_000, 0, 1))
  with pytest.raises(CompileError, match="double needs 300,000 bytes"): CUDADevice("CUDA").compile([spec()])[0].ready()


def test_memory(fake: Fake) -> None:
  d = CUDADevice("CUDA")
  a = d.alloc(1000)
  assert (d.allocated, d.peak, fake.used) == (1000, 1000, 1024)
  d.free(a, 1000)
  assert d.alloc(700) == a and d.pooled == 0 and len(fake.blocks) == 1
  d.free(a, 700)
  b = d.alloc(fake.room)              # the pool is given up for it
  assert fake.blocks[0].closed and d.peak == fake.room
  with pytest.raises(DeviceError, match="out of memory allocating 5,000 bytes"): d.alloc(5000)
  with pytest.raises(DeviceError, match="out of memory"): d.alloc(1 << 40)
  d.free(b, fake.room)                # more than the pool keeps
  d.reset_peak()
  assert (d.allocated, d.peak, d.pooled, fake.used) == (0, 0, 0, 0)
  assert d.alloc(5000) in d._owners


def test_buckets() -> None:
  for n in (1, 511, 512, 513, 5000, 123456, 1 << 30):
    assert n <= bucket(n, 512) <= max(n * 1.13 + 512, 512) and not bucket(n, 512) % 512


def test_copies(fake: Fake) -> None:
  d = CUDADevice("CUDA")
  x = np.random.default_rng(0).integers(0, 256, 100_000).astype(np.uint8)
  raw = d.alloc(x.size)
  d.staging = Staging(d.driver, d.stream, d.events, 1 << 16)   # several times around
  for _ in range(3):
    d.copyin(raw, x)
    np.testing.assert_array_equal(d.copyout(raw, x.size), x)
    x = x[::-1].copy()
  assert d.copyout(raw, 0).size == 0


def test_pinned_memory_is_not_used_twice_at_a_time(fake: Fake) -> None:
  """What a copy under way uses is waited for before it is written again."""
  s = Staging(fake.driver, fake.stream, Events(fake.core, fake.stream), 1 << 16)
  made: list[tuple[int, int, Event]] = []
  rng = np.random.default_rng(1)
  for _ in range(200):
    n = int(rng.integers(1, s.piece + 1))
    at = s.reserve(n)
    done = max((e.at for _, _, e in made if e.synced), default=-1)   # and with it all before
    assert at + n <= s.size and all(at >= stop or start >= at + n for start, stop, e in made if e.at > done)
    made.append((at, at + n, Event()))
    s.pending.append(made[-1])
  assert len(s.pending) < 100


def test_errors(fake: Fake) -> None:
  """A launch that is refused is an error, and that is all; after an invalid address the device is not used any more."""
  d = CUDADevice("CUDA")
  program, = d.compile([spec()])
  program.ready()
  fake.graphs.fails, fake.graphs.error.name = "cuLaunchKernel", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
  with pytest.raises(DeviceError, match=r"kernel double: a launch of \(10, 1, 1\) programs failed: .*OUT_OF_RESOURCES"):
    program([1, 2])
  fake.graphs.fails = ""
  program([1, 2])
  d.synchronize()
  fake.stream.broken = "CUDA_ERROR_ILLEGAL_ADDRESS: a kernel went astray"
  with pytest.raises(DeviceError, match="CUDA is lost .* Launched last: double;"): d.synchronize()
  for use in (d.synchronize, lambda: d.alloc(1000), lambda: d.copyin(1, np.zeros(4, np.uint8)), lambda: d.copyout(1, 4)):
    with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"): use()


def test_packed(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
  d = CUDADevice("CUDA")
  one, two = spec(), ProgramSpec("other", triton.module(SOURCE.replace("double", "other"), 2), (1,), (1,), 2)
  for specs in ([one], [one, two]):
    data, known = d.pack(specs), CUDADevice("CUDA")
    known.unpack(data, specs)
    assert [known.build(s).name for s in specs] == [s.name for s in specs] and len(known._packed) == len(specs)
  with pytest.raises(StateError, match="no kernels for CUDA"): d.unpack(b"nonsense", [one])
  with pytest.raises(StateError, match="no kernels for CUDA"): d.unpack(data[:-1], [one, two])
  with pytest.raises(StateError, match="2 kernels for 1"): d.unpack(data, [one])
  fake.capability = 80
  with pytest.raises(StateError, match="built for sm_90, this device is sm_80"): CUDADevice("CUDA").unpack(data, [one, two])


def test_kernels_that_differ_in_warps_only(fake: Fake) -> None:
  d, known = CUDADevice("CUDA"), CUDADevice("CUDA")
  specs = [replace(spec(), options=(("num_warps", n), ("num_stages", 2))) for n in (2, 4, 8)]
  known.unpack(d.pack(specs), specs)
  for device in (d, known): assert [device.build(s).num_warps for s in specs] == [2, 4, 8]


def test_settings() -> None:
  assert [settings(4096, n, flat) for n, flat in ((64 * 64, False), (128 * 128, True), (128 * 256, False))] == [
    (4, 4),
    (4, 3),
    (8, 4),
  ]
  assert [settings(n, 0, False)[0] for n in (64, 1024, 4096, 8192, 65536)] == [4, 4, 16, 16, 16]


def test_devices(fake: Fake) -> None:
  fake.gpus = 2
  assert nvidia.available("CUDA:1") == (True, "Fake")
  assert CUDADevice("CUDA:1").number == 1
  assert nvidia.available("CUDA:2") == (False, "no CUDA device 'CUDA:2': the machine has 2")
  assert not nvidia.available("CPU")[0]
  fake.capability = 75
  assert nvidia.available()[1] == "no CUDA: CUDA is of compute capability 7.5, kernels need 8.0 or later"
  fake.driver.cuInit = lambda flags: (Attribute(100),)
  assert not nvidia.available()[0] and "INVALID_VALUE" in nvidia.available()[1]


def test_without_a_driver_nothing_is_imported() -> None:
  """The question alone must not load NVIDIA's packages, nor triton."""
  code = (
    "import sys; from ntgrad.backends.cuda import driver; driver._NODES = ('/nonexistent',)\n"
    "from ntgrad.engine.device import default_device\n"
    "print(driver.available(), default_device() in ('CPU', 'NUMPY'), [m for m in sys.modules if m.split('.')[0] in ('cuda', "
    "'triton')])\n"
    "from ntgrad import Tensor\n"
    "try: Tensor([1.0], device='CUDA').realize()\nexcept Exception as e: print(type(e).__name__, e)"
  )
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
  first, second = done.stdout.splitlines()
  assert first == "(False, 'no CUDA: this machine has no NVIDIA driver; use another device, such as CPU') True []"
  assert second.startswith("DeviceError device 'CUDA' is not there: no CUDA: this machine has no NVIDIA driver")
  assert "; this machine has " in second and "NUMPY" in second


# ---- a GPU

@pytest.fixture(scope="module")
def gpu() -> CUDADevice: return CUDADevice("CUDA")


def bytes_of(x: np.ndarray) -> np.ndarray: return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


@needs_cuda
@triton.needs_triton
def test_a_kernel(gpu: CUDADevice) -> None:
  x = np.random.default_rng(0).standard_normal(640).astype(np.float32)
  a, b = gpu.alloc(x.nbytes), gpu.alloc(x.nbytes)
  gpu.copyin(b, bytes_of(x))
  program, = gpu.compile([spec()])
  program([a, b])
  np.testing.assert_array_equal(gpu.copyout(a, x.nbytes).view(np.float32), x * 2)
  seconds = program([a, b], wait=True)
  assert seconds is not None and 0 < seconds < 0.1
  assert "double" in gpu.disassemble(spec())
  gpu.free(a, x.nbytes)
  gpu.free(b, x.nbytes)


@needs_cuda
def test_large_copies(gpu: CUDADevice) -> None:
  x = np.random.default_rng(0).integers(0, 256, (100 << 20) + 13).astype(np.uint8)
  raw = gpu.alloc(x.size)
  gpu.copyin(raw, x)
  assert np.array_equal(gpu.copyout(raw, x.size), x)
  gpu.free(raw, x.size)
  gpu.trim()


@needs_cuda
def test_out_of_memory_can_be_gone_on_after(gpu: CUDADevice) -> None:
  held = []
  with pytest.raises(DeviceError, match="out of memory"):
    while True: held.append(gpu.alloc(8 << 30))
  for raw in held: gpu.free(raw, 8 << 30)
  gpu.trim()
  x = np.arange(100, dtype=np.uint8)
  raw = gpu.alloc(100)
  gpu.copyin(raw, x)
  assert np.array_equal(gpu.copyout(raw, 100), x)


@needs_cuda
@triton.needs_triton
def test_an_invalid_address_names_the_kernel() -> None:
  """In a process of its own, which goes on with another device."""
  mod = triton.module(STRAY, 2)
  code = (
    f"import numpy as np; from ntgrad import Tensor\nfrom ntgrad.backends.base import KernelSource, ProgramSpec\n"
    f"from ntgrad.engine.device import get_device\nd = get_device('CUDA')\np, = d.compile([ProgramSpec('double', {mod!r}, (10,), "
    "(1,), 2)])\n"
    "p([d.alloc(2560), d.alloc(2560)])\n"
    "for _ in range(2):\n  try: d.synchronize()\n  except Exception as e: print(type(e).__name__, e)\n"
    "print((Tensor([1.0], device='NUMPY') + 1).tolist())"
  )
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
  lines = done.stdout.splitlines()
  assert len(lines) == 3 and lines[2] == "[2.0]", done.stdout + done.stderr
  assert all(line.startswith("DeviceError CUDA is lost") and "ILLEGAL_ADDRESS" in line and "double" in line for line in lines[:2])


@needs_cuda
@triton.needs_triton
def test_tensors_come_here_by_themselves() -> None:
  a, b = np.random.default_rng(0).standard_normal((2, 100, 70)).astype(np.float32)
  t = Tensor(a) @ Tensor(b).T
  assert t.device == "CUDA"
  np.testing.assert_allclose(t.numpy(), a @ b.T, rtol=1e-3, atol=1e-3)
