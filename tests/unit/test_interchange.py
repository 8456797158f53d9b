"""Memory shared with other libraries: on a CPU with numpy (torch and JAX where they are), on a stand-in for a GPU, and on a
GPU."""
from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import sys
import types
from threading import Thread
from typing import Any, Iterator

import numpy as np
import pytest
from unit.test_cuda_device import Event, Fake, fake  # noqa: F401

import ntgrad
from ntgrad import Device, Tensor, config, tile
from ntgrad.backends.cuda import device as runtime
from ntgrad.backends.opencl.device import available
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.recent import Recent
from ntgrad.engine import buffer, compile, device as opening, interchange, planner
from ntgrad.engine.buffer import Adopted
from ntgrad.engine.device import get_device
from ntgrad.engine.dlpack import Managed, Versioned, is_valid, new_capsule, pointer_of
from ntgrad.engine.realize import rebased
from ntgrad.errors import ArgumentError, CaptureError, DTypeError, InterchangeError
from ntgrad.tile import foreign_tensors
from support.devices import needs_cuda
from support.triton import needs_triton

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")   # JAX would take most of the GPU
CPUS = ["NUMPY", *(["CPU"] if available()[0] else [])]
BLOCK = tile.Symbol("BLOCK", constexpr=True)


@pytest.fixture(params=CPUS)
def cpu(request: pytest.FixtureRequest) -> Iterator[str]:
  with config(dev=request.param): yield request.param


def aligned(*shape: int, dtype: Any = np.float32) -> np.ndarray:
  """0, 1, 2, .. at a multiple of 64 bytes."""
  n = int(np.prod(shape))
  room = np.zeros(n * np.dtype(dtype).itemsize + 64, np.uint8)
  out = room[-room.ctypes.data % 64:][:n * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
  out[...] = np.arange(n).reshape(shape)
  return out


def shared(t: Tensor) -> bool:
  """Whether a tensor is a view of another library's memory."""
  u = rebased(t.lazydata)
  while u.src: u = u.src[0]
  return u.arg is not None and isinstance(u.arg.storage, Adopted)


def held() -> int:
  """How many tensors consumers hold."""
  gc.collect()
  interchange.reclaim()
  return len(interchange._exports)


def add_application(x: Any, y: Any, z: Any) -> None: z = x + y   # noqa: F841
def add_arrangement(x: Any, y: Any, z: Any) -> Any: return x.tile((BLOCK,)), y.tile((BLOCK,)), z.tile((BLOCK,))


def new_kernel() -> Any: return tile.make(add_arrangement, add_application, (tile.Tensor(1),) * 3, kernel_name="add")


# ---- out, on a CPU

def test_numpy_sees_the_memory(cpu: str) -> None:
  t = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)) * 2
  assert t.__dlpack_device__() == (1, 0)
  n = np.from_dlpack(t)   # computes it
  np.testing.assert_array_equal(n, np.arange(12).reshape(3, 4) * 2)
  n[0, 0] = 70
  assert t.numpy()[0, 0] == 70
  t.assign(t + 1).realize()
  Device.synchronize()
  assert n[0, 0] == 71 and n[2, 3] == 23


def test_views_are_shown_as_they_are(cpu: str) -> None:
  t = (Tensor(np.arange(60, dtype=np.int32).reshape(3, 4, 5)) + 0).realize()
  whole, want = np.from_dlpack(t), np.arange(60).reshape(3, 4, 5)
  views = [
    (lambda x: x.T if isinstance(x, np.ndarray) else x.permute(2, 1, 0)),
    (lambda x: x[1]),
    (lambda x: x[:, 1:3, 2:]),
    (lambda x: x[1:, 0]),
    (lambda x: x.reshape(12, 5)[3:7]),
    (lambda x: x.reshape(3, 2, 2, 5)[:, 1]),
    (lambda x: x[:, 1:3].reshape(3, 10)),
    (lambda x: x[2, 3, 4]),
  ]
  for view in views:
    got = np.from_dlpack(view(t))
    np.testing.assert_array_equal(got, view(want))
    assert np.shares_memory(got, whole)
  for view in [lambda x: x[::-1], lambda x: x[:, 1:3].reshape(6, 5)[1:].T.reshape(25), lambda x: x * 1]:   # memory of their own
    got = np.from_dlpack(view(t))
    np.testing.assert_array_equal(got, view(want))
    assert not np.shares_memory(got, whole)
  with pytest.raises(InterchangeError, match=r"__dlpack__: a tensor of shape \(3, 4, 5\) that is a view \(FLIP\)"):
    t[::-1].__dlpack__(copy=False)
  copied = np.from_dlpack(t, copy=True)
  assert not np.shares_memory(copied, whole) and np.array_equal(copied, want)


def test_small_and_odd_ones(cpu: str) -> None:
  for t, want in [
    (Tensor(3.5), np.float32(3.5)),
    (Tensor.ones(2, 3), np.ones((2, 3))),
    (Tensor.empty(0, 4), np.empty((0, 4))),
    (Tensor([1.0, 2.0]).reshape(2, 1).expand(2, 3), [[1, 1, 1], [2, 2, 2]]),
    (Tensor([True, False]), [True, False]),
  ]:
    got = np.from_dlpack(t)
    np.testing.assert_array_equal(got, want)
    assert got.shape == t.shape
  with Tensor.no_grad(): assert np.from_dlpack(Tensor([1.0, 2.0], requires_grad=True)).tolist() == [1, 2]


def test_memory_lives_as_long_as_its_consumer(cpu: str) -> None:
  before, (allocated, *_) = held(), Device.memory(cpu)
  n = np.from_dlpack(Tensor(np.full(1000, 7.0)) + 1)
  later = [(Tensor(np.zeros(1000)) + i).realize() for i in range(5)]   # would take its place in the pool
  assert (n == 8).all() and held() == before + 1
  part = n[5:]
  del n
  assert held() == before + 1
  del part, later
  assert held() == before and Device.memory(cpu).allocated < allocated + 1000   # a few numbers are kept


def test_a_capsule_that_nobody_reads(cpu: str) -> None:
  before = held()
  t = Tensor([1.0, 2.0]) + 1
  kept = t.__dlpack__()
  assert held() == before + 1 and is_valid(kept, b"dltensor")
  del kept
  assert held() == before
  kept = t.__dlpack__(max_version=(1, 0))
  assert is_valid(kept, b"dltensor_versioned") and Tensor.from_dlpack(kept).tolist() == [2, 3]
  with pytest.raises(InterchangeError, match="used before"): Tensor.from_dlpack(kept)


def test_deleters_may_be_called_by_anyone(cpu: str) -> None:
  """By threads of others, and while an exception is on its way, which must not get lost."""
  before = held()
  def consumer() -> None:
    n = np.from_dlpack(Tensor(np.arange(10.0)) + 1)
    assert n[9] == 10
    raise KeyError("mine")
  with pytest.raises(KeyError, match="mine"): consumer()
  def work() -> None:
    for i in range(50): assert np.from_dlpack(Tensor(np.full(100, i, np.float32)))[50] == i
  threads = [Thread(target=work) for _ in range(4)]
  for t in threads: t.start()
  for t in threads: t.join()
  assert held() == before


def test_refused_places(cpu: str) -> None:
  t = Tensor([1.0, 2.0]).realize()
  with pytest.raises(InterchangeError, match="for a device of DLPack's type 2, number 0"): t.__dlpack__(dl_device=(2, 0))
  assert not hasattr(t, "__cuda_array_interface__")


def test_not_while_a_jit_records(cpu: str) -> None:
  a = aligned(4)
  for wrong in (lambda x: Tensor(np.from_dlpack(x * 2)) + 1, lambda x: x + Tensor.from_dlpack(a)):
    f = ntgrad.jit(lambda x, wrong=wrong: wrong(x).realize())
    f(Tensor([1.0, 2, 3, 4]))
    with pytest.raises(CaptureError, match="while the function is captured"): f(Tensor([1.0, 2, 3, 4]))
  g = ntgrad.jit(lambda x: (x * 2).realize())
  for i in range(4):
    np.testing.assert_array_equal(g(Tensor.from_dlpack(aligned(4) + 0 if i % 2 else aligned(4))).numpy(), np.arange(4) * 2)


# ---- in, on a CPU

def test_memory_of_the_host_is_used_where_it_is(cpu: str) -> None:
  a = aligned(8, 8)
  t = ntgrad.from_dlpack(a)
  assert shared(t) and t.dtype is dtypes.float32 and t.device == cpu
  np.testing.assert_array_equal((t + 1).numpy(), a + 1)
  a[0] = -1
  np.testing.assert_array_equal((t * 3).numpy(), a * 3)
  t.assign(t * 2).realize()          # writes into it
  Device.synchronize()
  np.testing.assert_array_equal(a[:2], [[-2] * 8, np.arange(8, 16) * 2])
  assert not shared(Tensor(a)) and not shared(Tensor.from_dlpack(a, copy=True))
  odd = aligned(65)[1:]
  assert not shared(Tensor.from_dlpack(odd)) and Tensor.from_dlpack(odd).tolist() == odd.tolist()
  with pytest.raises(InterchangeError, match="without a copy .it must lie at a multiple of 64 bytes"):
    Tensor.from_dlpack(odd, copy=False)


def test_strides(cpu: str) -> None:
  """Slices, steps, transposes and broadcasts are views of the memory; nothing past the last element is read."""
  a = aligned(8, 16)
  for w in (a.T, a[::2], a[:, :5], a[2:5, :3].T, a[:, ::2], a[:, ::5], a[::3, :7:3], a[:, 0], np.broadcast_to(a[0], (3, 16)),
            np.broadcast_to(a[:, None, :5], (8, 2, 5)).transpose(2, 0, 1), a[4:, 0][None], a.reshape(4, 2, 16)[:, 1:]):
    t = Tensor.from_dlpack(w)
    np.testing.assert_array_equal(t.numpy(), w)
    np.testing.assert_array_equal((t * 2 + 1).numpy(), w * 2 + 1)
    assert shared(t) == (w.ctypes.data % 64 == 0), w.strides
  for w in (a[::-1], np.lib.stride_tricks.sliding_window_view(a, 3, 1)):
    assert not shared(Tensor.from_dlpack(w)) and np.array_equal(Tensor.from_dlpack(w).numpy(), w)
  want = a.copy()
  # written there
  for at in ((slice(None), slice(5)), (slice(None), slice(None, None, 5)), (slice(None, None, 3), slice(0, 13, 4))):
    t = Tensor.from_dlpack(a[at])
    assert shared(t)
    t.assign(t * 3 - 1).realize()
    Device.synchronize()
    want[at] = want[at] * 3 - 1
    np.testing.assert_array_equal(a, want)


def test_the_owner_is_kept(cpu: str) -> None:
  a = aligned(1000)
  gone: list[int] = []
  class Owned(np.ndarray):
    def __del__(self) -> None: gone.append(1)
  t = Tensor.from_dlpack(a.view(Owned))
  x = (t[1:] + 1)
  gc.collect()
  assert not gone
  np.testing.assert_array_equal(x.numpy(), a[1:] + 1)
  del t, x
  gc.collect()
  Device.synchronize()
  assert gone == [1]


def test_read_only_memory_is_never_written(cpu: str) -> None:
  a = aligned(6)
  a.flags.writeable = False
  t = Tensor.from_dlpack(a)
  assert shared(t)
  part = t[1:3]
  part.assign(Tensor([7.0, 8.0]))   # the tensor gets memory of its own, with its views
  assert part.tolist() == [7, 8] and t.tolist() == [0, 7, 8, 3, 4, 5] and not shared(t)
  t = Tensor.from_dlpack(a)
  kernel, out = new_kernel(), np.zeros(6, np.float32)
  kernel(t, t, out, BLOCK=8)
  for _ in range(2):
    with pytest.raises(ArgumentError, match="add: z is written, and its memory is another library's and read-only"):
      kernel(t, t, Tensor.from_dlpack(a), BLOCK=8)
  t.assign(t + 1).realize()
  Device.synchronize()
  assert (
    t.tolist() == [1, 2, 3, 4, 5, 6]
    and a.tolist() == [0, 1, 2, 3, 4, 5]
    and not shared(t)
    and out.tolist() == [0, 2, 4, 6, 8, 10]
  )
  t = Tensor.from_dlpack(a)
  t[2:4] = 9
  assert t.tolist() == [0, 1, 9, 9, 4, 5] and a[2] == 2


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_dtypes(cpu: str, version: Any) -> None:
  for d in dtypes.all:
    t = Tensor(np.arange(64).astype(d.np).reshape(8, 8)).realize()
    back = Tensor.from_dlpack(t.__dlpack__(max_version=version))
    assert back.dtype is d and back.shape == (8, 8) and shared(back)
    np.testing.assert_array_equal(back.numpy().view(np.uint8), t.numpy().view(np.uint8))
  with pytest.raises(DTypeError, match="DLPack's type 5, 64 bits, 1 lanes"): Tensor.from_dlpack(np.zeros(3, np.complex64))


def test_what_is_no_tensor() -> None:
  with pytest.raises(InterchangeError, match="neither __dlpack__"): Tensor.from_dlpack([1, 2])
  with pytest.raises(DTypeError, match="tensors of other libraries"): Tensor(object())
  class Elsewhere:
    def __dlpack__(self, **how: Any) -> Any: raise AssertionError
    def __dlpack_device__(self) -> tuple[int, int]: return 8, 0
  with pytest.raises(InterchangeError, match="Elsewhere is on a device of DLPack's type 8"): Tensor(Elsewhere())


def test_a_tensor_of_our_own() -> None:
  t = Tensor([1.0, 2.0], device="NUMPY").realize()
  assert Tensor.from_dlpack(t).lazydata is not None and Tensor.from_dlpack(t, copy=True).tolist() == [1, 2]
  with pytest.raises(InterchangeError, match="with copy=False"): Tensor.from_dlpack(t, device="CPU", copy=False)


# ---- other libraries, on a CPU

def test_torch(cpu: str) -> None:
  torch = pytest.importorskip("torch")
  x = torch.arange(64.).reshape(8, 8)
  t = Tensor.from_dlpack(x)
  assert shared(t) and torch.from_dlpack(t).data_ptr() == x.data_ptr()
  x[0, 0] = 5
  assert (t + 1).numpy()[0, 0] == 6 and not shared(Tensor(x))
  assert Tensor(x.bfloat16()).dtype is dtypes.bfloat16 and torch.from_dlpack(Tensor(x.bfloat16())).dtype is torch.bfloat16
  kernel, z = new_kernel(), torch.zeros(2, 8, dtype=torch.bfloat16)
  kernel(x[0].bfloat16(), x[1].bfloat16(), z[1], BLOCK=8)
  assert torch.equal(z[1], x[0].bfloat16() + x[1].bfloat16())
  learned = Tensor(x.clone().requires_grad_())   # gradients do not pass between libraries
  assert not learned.requires_grad and learned.tolist() == x.tolist()

  def lost() -> Any: return torch.from_dlpack(Tensor([1.0, 2.0]) + 1).reshape(7)
  with pytest.raises(RuntimeError, match="shape"): lost()   # its own error, though a tensor is given back on the way


def test_jax(cpu: str) -> None:
  jax = pytest.importorskip("jax")
  with jax.default_device(jax.devices("cpu")[0]):
    x = jax.numpy.arange(64, dtype=jax.numpy.float32).reshape(8, 8)
    t = Tensor.from_dlpack(x)
    np.testing.assert_array_equal((t + 1).numpy(), np.asarray(x) + 1)
    t.assign(t * 2).realize()   # JAX's arrays do not change
    assert x[0, 1] == 1 and t.numpy()[0, 1] == 2 and np.array_equal(Tensor(x).numpy(), np.asarray(x))
    y = jax.dlpack.from_dlpack(t)
    np.testing.assert_array_equal(np.asarray(y), t.numpy())


# ---- memory

def test_memory_of_a_device(cpu: str) -> None:
  held()
  before = Device.memory()
  assert before == Device.memory(cpu) and before.total > 1 << 20
  Device.reset_peak()
  x = Tensor.empty(1 << 18).realize()
  x.lazydata.arg.raw
  y = (x + 1).realize()
  del y
  got = Device.memory()
  assert got.allocated == before.allocated + (1 << 20) and got.peak == before.allocated + (2 << 20)
  if cpu == "CPU": assert got.pooled >= 1 << 20
  Device.reset_peak(cpu)
  assert Device.memory().peak == got.allocated
  del x


# ---- a machine with GPUs that only remembers

@pytest.fixture
def gpus(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:   # noqa: F811
  """Two of them; host memory stands for theirs. Nothing that was made for them stays."""
  fake.gpus, fake.room = 2, 1 << 24
  for kept in ("_programs", "_by_spec"): monkeypatch.setattr(compile, kept, {})
  monkeypatch.setattr(planner, "_plans", Recent(100))
  monkeypatch.setattr(Event, "is_done", True)
  real = {n: opening._open.pop(n) for n in list(opening._open) if n.startswith("CUDA")}
  def forget() -> None:
    held()
    buffer._number_buffer.cache_clear()
    runtime._here.__dict__.clear()
  forget()
  yield fake
  forget()
  for n in list(opening._open):
    if n.startswith("CUDA"): del opening._open[n]
  opening._open.update(real)


class OnGPU:
  """An array of another library in the memory of a GPU (a numpy array's)."""

  def __init__(self, array: np.ndarray, number: int = 0, versioned: bool = True, read_only: bool = False):
    self.array, self.number, self.versioned, self.read_only, self.shape, self.dtype = (
      array,
      number,
      versioned,
      read_only,
      array.shape,
      array.dtype,
    )
    self.streams: list[Any] = []
    self.over = 0   # how often it was given back

  def __dlpack_device__(self) -> tuple[int, int]: return 2, self.number

  def __dlpack__(self, stream: Any = None, **how: Any) -> Any:
    if how and not self.versioned: raise TypeError("an unexpected keyword argument 'max_version'")
    self.streams.append(stream)
    m: Any = Versioned(1, 0, None, None, int(self.read_only)) if self.versioned else Managed()
    def deleter(pointer: int) -> None: self.over += 1
    n = self.array.ndim
    self.kept = m, ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(deleter), (ctypes.c_int64 * n)(*self.shape), \
      (ctypes.c_int64 * n)(*[s // self.array.itemsize for s in self.array.strides])
    m.deleter = ctypes.cast(self.kept[1], ctypes.c_void_p)
    t = m.tensor
    t.data, t.device_type, t.device_id, t.ndim, t.code, t.bits, t.lanes = self.array.ctypes.data, 2, self.number, n, 2, 32, 1
    t.shape, t.strides = self.kept[2:]
    return new_capsule(ctypes.addressof(m), b"dltensor_versioned" if self.versioned else b"dltensor", None)


class OnlyInterface:
  """An array of a library that has no DLPack."""
  def __init__(self, array: np.ndarray, stream: int | None = None):
    self.array, self.shape, self.dtype = array, array.shape, array.dtype
    self.__cuda_array_interface__ = {
      "shape": array.shape,
      "typestr": array.dtype.str,
      "data": (array.ctypes.data, False),
      "version": 3,
      "strides": None if array.flags.c_contiguous else array.strides,
      "stream": stream,
    }


class WithInterface(OnlyInterface):
  """... as a property of its class, which is what is looked for."""
  __cuda_array_interface__: dict[str, Any] = {}


def test_memory_of_a_gpu_is_adopted(gpus: Fake) -> None:
  x = OnGPU(aligned(4, 8))
  t = Tensor(x)
  assert t.device == "CUDA" and shared(t) and x.streams == [77] and t.lazydata.arg.raw == x.array.ctypes.data
  np.testing.assert_array_equal(t.numpy(), x.array)
  d = get_device("CUDA")
  assert d.allocated == 0 and x.over == 0
  one = Tensor(OnGPU(aligned(3), 1))
  assert one.device == "CUDA:1" and one.tolist() == [0, 1, 2]
  assert (
    ntgrad.from_dlpack(x).device == "CUDA"
    and not shared(Tensor.from_dlpack(x, copy=True))
    and gpus.streams.log[-1] == ("copy", 128, 77)
  )
  np.testing.assert_array_equal(Tensor(OnGPU(x.array.T)).numpy(), x.array.T)
  backwards = OnGPU(x.array[::-1])
  assert Tensor(backwards).shape == (4, 8) and gpus.streams.log[-1] == ("copy", 128, 77)
  with pytest.raises(InterchangeError, match="with the strides of a view"): Tensor.from_dlpack(OnGPU(x.array[::-1]), copy=False)


@pytest.mark.parametrize("shape, strides, first", [
  ((4, 5), (3, 2), 0), ((4, 8), (-8, 1), 24), ((4, 4), (8, -2), 7), ((3,), (0,), 5), ((), (), 3)])
def test_any_strides(shape: tuple[int, ...], strides: tuple[int, ...], first: int) -> None:
  """Strides of no view: elements are read where they lie, also several from one place, and backwards."""
  flat = np.arange(32, dtype=np.float32)
  want = np.lib.stride_tricks.as_strided(flat[first:], shape, [4 * s for s in strides])
  got = Tensor._from_node(interchange.gather_strided(Tensor(flat).lazydata, shape, strides, first))
  np.testing.assert_array_equal(got.numpy(), want)


def test_owners_are_dropped_when_the_stream_has_passed(gpus: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
  x, y = OnGPU(aligned(8)), OnGPU(aligned(8))
  t = Tensor(x)
  monkeypatch.setattr(Event, "is_done", False)   # a kernel is still reading
  del t
  assert x.over == 0
  t = Tensor(y)
  assert x.over == 0
  monkeypatch.setattr(Event, "is_done", True)
  get_device("CUDA").synchronize()
  assert x.over == 1 and y.over == 0
  del t
  assert y.over == 1


def test_unaligned_memory_is_copied_there(gpus: Fake) -> None:
  x = OnGPU(aligned(9)[1:])
  t = Tensor(x)
  assert (
    not shared(t)
    and t.device == "CUDA"
    and ("copy", 32, 77) in gpus.streams.log
    and t.tolist() == list(range(1, 9))
    and x.over == 1
  )


def test_versions_and_flags(gpus: Fake) -> None:
  assert not Tensor(OnGPU(aligned(8))).lazydata.arg.storage.read_only
  assert Tensor(OnGPU(aligned(8), read_only=True)).lazydata.arg.storage.read_only
  assert Tensor(OnGPU(aligned(8), versioned=False)).lazydata.arg.storage.read_only   # as JAX's, which cannot say so
  class Says(OnGPU):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: return {"data": (self.array.ctypes.data, False)}
  assert not Tensor(Says(aligned(8), versioned=False)).lazydata.arg.storage.read_only


def test_cuda_array_interface_in(gpus: Fake) -> None:
  a = aligned(8)
  gpus.streams.devices[a.ctypes.data] = 1
  t = Tensor(WithInterface(a, 555))
  assert t.device == "CUDA:1" and shared(t) and t.tolist() == a.tolist()
  assert gpus.streams.log[:2] == [("record", 555), ("wait", 78, 555)]
  gpus.streams.log.clear()
  assert Tensor(WithInterface(a.reshape(2, 4).T)).numpy().tolist() == a.reshape(2, 4).T.tolist() and not gpus.streams.log


@pytest.mark.parametrize("stream, waits", [(None, None), (1, None), (2, 2), (0, None), (9999, 9999), (-1, None)])
def test_a_consumer_waits_for_us(gpus: Fake, stream: int | None, waits: int | None) -> None:
  """The legacy default stream (1) does so by itself."""
  t = Tensor(np.arange(6, dtype=np.float32), device="CUDA").realize()
  assert t.__dlpack_device__() == (2, 0)
  kept = t.__dlpack__(stream=stream, max_version=(1, 0))
  m = Versioned.from_address(pointer_of(kept, b"dltensor_versioned"))
  assert (m.tensor.data, m.tensor.device_type, m.tensor.device_id) == (t.lazydata.arg.raw, 2, 0)
  assert gpus.streams.log == ([] if waits is None else [("wait", waits, 0)])
  with pytest.raises(InterchangeError, match="stream 'a'"): t.__dlpack__(stream="a")
  host = t.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
  m = Versioned.from_address(pointer_of(host, b"dltensor_versioned"))
  assert m.tensor.device_type == 1 and (ctypes.c_float * 6).from_address(m.tensor.data)[:] == [0, 1, 2, 3, 4, 5]
  with pytest.raises(InterchangeError, match="with copy=False; move it"): t.__dlpack__(dl_device=(1, 0), copy=False)


def test_memory_that_was_shown_is_used_again_after_the_device_has_settled(gpus: Fake) -> None:
  d = get_device("CUDA")
  t = Tensor(np.zeros(128, np.float32), device="CUDA").realize()
  at = t.lazydata.arg.raw
  kept = t.__dlpack__(stream=-1)
  del t
  assert d.alloc(512) != at and d.allocated == 1024
  del kept
  assert d.alloc(512) == at and gpus.streams.log == [("settle",)]
  t = Tensor(np.zeros(128, np.float32), device="CUDA").realize()
  about, at = t.__cuda_array_interface__, t.lazydata.arg.raw
  assert about == t.__cuda_array_interface__ and about["data"] == (at, False) and about["stream"] == 77 and about["version"] == 3
  assert about["strides"] is None and about["typestr"] == "<f4" and about["shape"] == (128,)
  t.replace(Tensor.zeros(128, device="CUDA"))   # the consumer holds the tensor only
  gc.collect()
  assert d.alloc(512) != at
  del t
  gc.collect()
  gpus.streams.log.clear()
  assert d.alloc(512) == at and gpus.streams.log == [("settle",)]
  turned = Tensor(np.zeros((2, 3), np.float32), device="CUDA").realize().T.__cuda_array_interface__
  assert (turned["shape"], turned["strides"]) == ((3, 2), (4, 12))
  assert not hasattr(Tensor(np.zeros(2), device="CUDA", dtype="bfloat16"), "__cuda_array_interface__")


@needs_triton
def test_a_kernel_works_on_borrowed_memory(gpus: Fake) -> None:
  """Addresses are handed on, the libraries' streams wait; nothing is copied."""
  kernel = new_kernel()
  x, y, z = (OnGPU(aligned(64)) for _ in range(3))
  for _ in range(2):
    kernel(x, y, z, BLOCK=64)
    assert gpus.launches[-1][-1][:3] == tuple(a.array.ctypes.data for a in (x, y, z))
  assert x.streams == [77, 77] and x.over == 2 and len(kernel._launchers) == 1
  s = WithInterface(aligned(64), 555)
  gpus.streams.log.clear()
  kernel(s, y, s, BLOCK=64)   # in place
  assert gpus.launches[-1][-1][:3] == (s.array.ctypes.data, y.array.ctypes.data, s.array.ctypes.data)
  assert gpus.streams.log[0] == ("record", 555) and gpus.streams.log[-1] == ("wait", 555, 0)
  with pytest.raises(ArgumentError, match="z is written, and its memory is another library's and read-only"):
    kernel(x, y, OnGPU(aligned(64), read_only=True), BLOCK=64)
  kernel(OnGPU(aligned(128)[::2]), y, z, BLOCK=64)   # a copy of what is read is fine
  gpus.streams.log.clear()
  badly = OnGPU(aligned(65)[1:])                     # copied, and copied back
  kernel(x, y, badly, BLOCK=64)
  assert [e for e in gpus.streams.log if e[0] == "copy"] == [("copy", 256, 77)] * 2 and gpus.launches[-1][-1][
    2
  ] != badly.array.ctypes.data


def with_functions(stream: list[int], looks: list[Any]) -> Any:
  """A class of tensors that DLPack's functions look at, which are noted in ``looks``; its library works in ``stream[0]``. The
  functions live as long as the class."""
  class Fast(OnGPU):
    def __dlpack__(self, **how: Any) -> Any: raise AssertionError
  def look(x: Any, out: int) -> int:
    looks.append(x)
    OnGPU.__dlpack__(x)
    ctypes.memmove(out, ctypes.addressof(x.kept[0]) + Versioned.tensor.offset, 48)
    return 0
  def current(kind: int, number: int, out: int) -> int:
    ctypes.c_void_p.from_address(out).value = stream[0]
    return 0
  functions = (ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(look),
               ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)(current))
  from ntgrad.engine.dlpack import Exchange
  api = Exchange(1, 3, None, None, None, None, *[ctypes.cast(f, ctypes.c_void_p) for f in functions])
  Fast.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(api), b"dlpack_exchange_api", None)   # type: ignore[attr-defined]
  Fast.functions = api, functions   # type: ignore[attr-defined]
  return Fast


@needs_triton
def test_a_library_with_functions_for_it(gpus: Fake) -> None:
  """DLPack's exchange API: no capsule, and the stream that the library works in now; the default stream waits by itself."""
  stream: list[int] = [0]
  Fast = with_functions(stream, [])
  kernel = new_kernel()
  x, y, z = (Fast(aligned(64)) for _ in range(3))
  for stream[0], log in ((0, []), (555, [("record", 555), ("wait", 77, 555), ("wait", 555, 0)])):
    gpus.streams.log.clear()
    kernel(x, y, z, BLOCK=64)
    assert gpus.launches[-1][-1][:3] == tuple(a.array.ctypes.data for a in (x, y, z))
    assert gpus.streams.log == log
  assert x.over == 0


@needs_triton
def test_torch_tensors_are_known_by_what_torch_says_of_them(gpus: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
  """Later calls do not look through DLPack, unless something about a tensor is another."""
  stream: list[int] = [0]
  looks: list[Any] = []
  class Facts:
    device, requires_grad, negative = "cuda:0", False, False
    def data_ptr(self) -> int: return int(self.array.ctypes.data)   # type: ignore[attr-defined]
    def stride(self) -> tuple[int, ...]: return tuple(s // 4 for s in self.array.strides)   # type: ignore[attr-defined]
    def is_neg(self) -> bool: return self.negative
  Torch = type("Tensor", (Facts, with_functions(stream, looks)), {})
  module = types.SimpleNamespace(Tensor=Torch, nn=types.SimpleNamespace(Parameter=None),
                                 _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda number: stream[number]))
  monkeypatch.setitem(sys.modules, "torch", module)
  for cached in (foreign_tensors._facts, foreign_tensors._stream_of): cached.cache_clear()
  try:
    kernel = new_kernel()
    x, y, z = (Torch(aligned(64)) for _ in range(3))
    kernel(x, y, z, BLOCK=64)
    assert looks == [x, y, z]
    for stream[0], log in ((0, []), (555, [("record", 555), ("wait", 77, 555), ("wait", 555, 0)])):
      gpus.streams.log.clear()
      kernel(y, x, z, BLOCK=64)
      assert gpus.launches[-1][-1][:3] == tuple(a.array.ctypes.data for a in (y, x, z))
      assert gpus.streams.log == log and len(looks) == 3
    kernel(x, Tensor(aligned(64), device="CUDA").realize(), z, BLOCK=64)   # beside one of ours
    assert len(looks) == 3 and gpus.launches[-1][-1][0] == x.array.ctypes.data
    x.negative = True   # as of an imaginary part: what is in memory is another value
    kernel(x, y, z, BLOCK=64)
    assert looks[3:] == [x, y, z]
    half = Torch(aligned(128)[:32])
    kernel(half, half, half, BLOCK=64)
    assert looks[6:] == [half] * 3 and gpus.launches[-1][-1][:3] == (half.array.ctypes.data,) * 3
  finally:
    for cached in (foreign_tensors._facts, foreign_tensors._stream_of): cached.cache_clear()


def test_copies_between_gpus(gpus: Fake) -> None:
  """From device to device, each stream waiting for the other."""
  a = np.arange(1000, dtype=np.float32)
  t = Tensor(a, device="CUDA:0").realize()
  assert t.device == "CUDA" and Tensor(a, device="cuda:1").device == "CUDA:1"
  there = t.to("CUDA:1").realize()
  assert there.device == "CUDA:1" and np.array_equal(there.numpy(), a)
  assert gpus.streams.log == [("wait", 78, 0), ("peer", "context 1", "context 0", 4000, 78), ("wait", 77, 0)]
  assert Device.memory("CUDA:1").allocated == 4000 and Device.memory("CUDA").allocated == 4000
  np.testing.assert_array_equal(there.to("NUMPY").numpy(), a)


def test_threads_are_in_the_context_of_the_device_they_use(gpus: Fake) -> None:
  seen: list[int] = []
  zero, one = get_device("CUDA"), get_device("CUDA:1")
  for d in (zero, one): d.device.set_current = lambda n=d.number: seen.append(n)   # type: ignore[attr-defined]
  def work() -> None:
    for d in (zero, one, zero): d.copyout(d.alloc(4), 4)
  runtime._here.__dict__.clear()
  thread = Thread(target=work)
  thread.start()
  thread.join()
  assert list(dict.fromkeys(seen)) == [0, 1] and seen[-1] == 0


# ---- a GPU

def needs(library: str) -> Any:
  return pytest.mark.skipif(importlib.util.find_spec(library) is None, reason=f"{library} is not installed")


@needs_cuda
@needs("torch")
class TestTorch:
  """Both ways with PyTorch, and its streams."""

  @pytest.fixture(autouse=True)
  def _first(self) -> None:   # what used another GPU before has left it current
    import torch
    torch.cuda.set_device(0)

  def test_in_and_out(self) -> None:
    import torch

    for d in (
      torch.float32,
      torch.bfloat16,
      torch.float16,
      torch.int64,
      torch.bool,
      torch.uint8,
      torch.float8_e4m3fn,
      torch.float8_e5m2,
    ):
      x = torch.arange(64, device="cuda").reshape(8, 8).to(d)
      t = Tensor(x)
      assert t.device == "CUDA" and shared(t) and t.lazydata.arg.raw == x.data_ptr()
      back = torch.from_dlpack(t)
      assert back.data_ptr() == x.data_ptr() and back.dtype == d and torch.equal(back.float(), x.float())
    t = (Tensor(torch.arange(12., device="cuda").reshape(3, 4)) * 2 + 1)
    want = torch.arange(12., device="cuda").reshape(3, 4) * 2 + 1
    assert torch.equal(torch.from_dlpack(t), want) and torch.equal(torch.as_tensor(t, device="cuda"), want)
    assert torch.equal(torch.from_dlpack(t.T), want.T) and torch.from_dlpack(t.T).data_ptr() == torch.from_dlpack(t).data_ptr()
    assert np.array_equal(np.from_dlpack(t, device="cpu"), want.cpu().numpy())

  def test_writes_are_seen_on_both_sides(self) -> None:
    import torch
    x = torch.zeros(1000, device="cuda")
    t = Tensor(x)
    x += 1
    torch.cuda.synchronize()
    t.assign(t * 5).realize()
    Device.synchronize("CUDA")
    assert bool((x == 5).all())
    y = torch.from_dlpack(t + 2)
    y *= 2
    assert bool((y == 14).all())

  def test_strides(self) -> None:
    import torch
    x = torch.arange(8 * 64., device="cuda").reshape(8, 64)
    for w in (x.T, x[::2], x[:, :5], x[:, ::2], x[2:5, 4:8].T, x[0].expand(3, 64), x[:, 1:3]):
      t = Tensor(w)
      np.testing.assert_array_equal(t.numpy(), w.cpu().numpy())
      np.testing.assert_array_equal((t * 2).numpy(), (w * 2).cpu().numpy())
      assert shared(t) == (w.data_ptr() % 16 == 0)

  def test_streams(self) -> None:
    """Long work before and after on torch's streams, with memory given back in between."""
    import torch
    n = 1 << 24
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
      with torch.cuda.stream(stream):
        for i in range(10):
          x = torch.zeros(n, device="cuda")
          for _ in range(20): x += 1
          t = (Tensor(x) + i).realize()
          del x
          torch.full((n,), -1.0, device="cuda")   # may take x's memory, once it may
          y = torch.from_dlpack(t)
          del t
          z = y * 2
          del y
          other = (Tensor.ones(n, device="CUDA") * -5).realize()
          assert bool((z == 2 * (20 + i)).all()), i
          del other

  def test_memory_is_kept(self) -> None:
    import torch
    t = Tensor(torch.full((1 << 20,), 3.0, device="cuda"))
    for _ in range(10): torch.full((1 << 20,), 4.0, device="cuda")
    assert bool((torch.from_dlpack(t + 1) == 4).all())
    y = torch.from_dlpack(Tensor(np.full(1 << 20, 6, np.float32), device="CUDA") + 1)
    for i in range(10): (Tensor.ones(1 << 20, device="CUDA") * i).contiguous().realize()
    assert bool((y == 7).all())

  @needs_triton
  def test_tile_kernels_write_in_place(self) -> None:
    import torch
    kernel, n = new_kernel(), 1 << 22
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
      with torch.cuda.stream(stream):
        for i in range(20):
          x, y, z = torch.full((n,), float(i), device="cuda"), torch.ones(n, device="cuda"), torch.zeros(n, device="cuda")
          kernel(x, y, z, BLOCK=256)
          z += 1
          del x, y
          w = torch.full((n,), -9.0, device="cuda")
          assert bool((z == i + 2).all()), i
          del w
    x = torch.arange(64., device="cuda")
    kernel(x, x, x, BLOCK=64)
    assert torch.equal(x, torch.arange(64., device="cuda") * 2)
    out = torch.zeros(4, 64, device="cuda")
    kernel(x, x, out[2], BLOCK=64)
    assert torch.equal(out[2], x * 2) and float(out.sum()) == float((x * 2).sum())
    kernel(torch.arange(128., device="cuda")[::2], x, out[1], BLOCK=64)
    assert torch.equal(out[1], torch.arange(128., device="cuda")[::2] + x)

  def test_a_jit_takes_them(self) -> None:
    import torch
    f = ntgrad.jit(lambda a: (a * 2 + 1).realize())
    for i in range(6):
      x = torch.full((1000,), float(i), device="cuda")
      assert bool((torch.from_dlpack(f(Tensor(x))) == 2 * i + 1).all())

  def test_no_torch_in_the_product(self) -> None:
    import subprocess
    import sys

    code = (
      "import sys; from ntgrad import Tensor; Tensor([1.0], device='CUDA').realize().__dlpack__(); print('torch' in sys.modules)"
    )
    assert (
      subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True).stdout == "False\n"
    )


@needs_cuda
@needs("cupy")
def test_cupy_on_a_gpu() -> None:
  import cupy
  cupy.cuda.Device(0).use()
  x = cupy.arange(64, dtype=cupy.float32).reshape(8, 8)
  t = Tensor(x)
  assert t.device == "CUDA" and shared(t) and t.lazydata.arg.raw == x.data.ptr
  for y in (cupy.from_dlpack(t), cupy.asarray(t)): assert y.data.ptr == x.data.ptr
  np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray((t + 1).T)), (np.arange(64).reshape(8, 8) + 1).T)
  assert np.array_equal(cupy.asnumpy(cupy.asarray(Tensor(x[:, 4:]) * 2)), np.arange(64).reshape(8, 8)[:, 4:] * 2)
  with cupy.cuda.Stream(non_blocking=True):
    for i in range(10):
      x = cupy.full(1 << 22, i, cupy.float32)
      x += 1
      y = cupy.asarray(Tensor(x) * 2)
      assert bool((y == 2 * i + 2).all())


@needs_cuda
@needs_triton
@needs("cupy")
def test_cupy_in_tile_kernels() -> None:
  import cupy
  kernel = new_kernel()
  for _ in range(3):
    x, y, z = cupy.arange(1000, dtype=cupy.float32), cupy.ones(1000, cupy.float32), cupy.zeros(1000, cupy.float32)
    kernel(x, y, z, BLOCK=64)
    assert bool((z == x + 1).all())


@needs_cuda
@needs_triton
@needs("numba")
def test_numba_has_an_interface_only() -> None:
  cuda = pytest.importorskip("numba.cuda")
  x, z = cuda.to_device(np.arange(64, dtype=np.float32)), cuda.to_device(np.zeros(64, np.float32))
  t = Tensor(x)
  assert t.device == "CUDA" and shared(t)
  np.testing.assert_array_equal((t + 1).numpy(), np.arange(64) + 1)
  kernel = new_kernel()
  for _ in range(3):
    kernel(x, x, z, BLOCK=64)
    np.testing.assert_array_equal(z.copy_to_host(), np.arange(64) * 2)
    kernel(x, z, z, BLOCK=64)   # in place
    np.testing.assert_array_equal(z.copy_to_host(), np.arange(64) * 3)


@needs_cuda
@needs("jax")
def test_jax_on_a_gpu() -> None:
  import jax
  if jax.default_backend() != "gpu": pytest.skip("JAX sees no GPU")
  x = jax.numpy.arange(64, dtype=jax.numpy.float32).reshape(8, 8) + 0
  t = Tensor(x)
  assert t.device == "CUDA" and shared(t)
  np.testing.assert_array_equal((t * 2).numpy(), np.arange(64).reshape(8, 8) * 2)
  y = jax.dlpack.from_dlpack(t + 1)
  np.testing.assert_array_equal(np.asarray(y * 2), (np.arange(64).reshape(8, 8) + 1) * 2)
  t.assign(t * 0).realize()
  assert float(x[0, 1]) == 1 and t.numpy()[0, 1] == 0


def gpu_count() -> int:
  from ntgrad.backends.cuda import driver
  return next(n for n in range(9) if not driver.available(f"CUDA:{n}")[0])


@needs_cuda
def test_two_gpus() -> None:
  if gpu_count() < 2: pytest.skip("one GPU")
  a = np.random.default_rng(0).standard_normal(1 << 22).astype(np.float32)
  zero = Tensor(a, device="CUDA").realize()
  for i in range(5):
    there = ((zero + i).to("CUDA:1") * 2)
    back = there.to("CUDA") - 1
    assert there.device == "CUDA:1" and back.device == "CUDA"
    np.testing.assert_array_equal(back.numpy(), (a + np.float32(i)) * 2 - 1)
  f = ntgrad.jit(lambda x: ((x + 1).to("CUDA:1") * 2).to("CUDA").realize())
  for i in range(5): np.testing.assert_array_equal(f((zero * i).realize()).numpy(), (a * np.float32(i) + 1) * 2)
  out: dict[str, np.ndarray] = {}
  def work(name: str) -> None: out[name] = (Tensor(a, device=name) * 3 + 1).numpy()
  threads = [Thread(target=work, args=(n,)) for n in ("CUDA", "CUDA:1")]
  for t in threads: t.start()
  for t in threads: t.join()
  for n in out.values(): np.testing.assert_allclose(n, a * 3 + 1, rtol=1e-6)


@needs_cuda
@needs("torch")
def test_two_gpus_with_torch() -> None:
  import torch
  if gpu_count() < 2: pytest.skip("one GPU")
  x = torch.arange(100., device="cuda:1")
  t = Tensor(x)
  assert t.device == "CUDA:1" and shared(t) and torch.equal(torch.from_dlpack(t + 1), x + 1)
  np.testing.assert_array_equal((t.to("CUDA") * 2).numpy(), np.arange(100) * 2)


# ---- memory that others see is not shared by copy on write

def test_before_an_address_is_given_out(cpu: str) -> None:
  """Who shares the memory lazily gets a copy, who has to read it is computed; later writes of others are seen."""
  x = Tensor(np.arange(4, dtype=np.float32)).realize()
  y, copy, lazy, view = x.contiguous().realize(), x.clone(), x * 2, x[1:]
  shared_with = np.from_dlpack(x)
  shared_with[0] = 7
  assert x.tolist() == [7, 1, 2, 3] and view.tolist() == [1, 2, 3]
  assert (
    y.tolist() == [0, 1, 2, 3]
    and copy.tolist() == [0, 1, 2, 3]
    and lazy.tolist() == [0, 2, 4, 6]
    and (x * 2).tolist() == [14, 2, 4, 6]
  )
  late = x.clone().realize()   # a real copy: the memory may change under it
  Device.synchronize()
  shared_with[1] = 8
  assert late.tolist() == [7, 1, 2, 3] and x.tolist() == [7, 8, 2, 3]
  x.assign(x + 1).realize()
  Device.synchronize()
  assert shared_with.tolist() == [8, 9, 3, 4]


def test_a_copy_that_is_given_out_is_a_copy(cpu: str) -> None:
  x = Tensor(np.arange(64, dtype=np.float32)).realize()
  y = x.contiguous().realize()
  out = np.from_dlpack(y)
  out[0] = 7
  assert y.tolist()[0] == 7 and x.tolist()[0] == 0
  x[1] = 5
  assert out[1] == 1


def test_adopted_memory_is_copied_by_who_owns_a_copy(cpu: str) -> None:
  a = aligned(8)
  t = Tensor.from_dlpack(a)
  own, lazy = t.clone().realize(), t.clone()
  Device.synchronize()
  a[0] = 9
  assert own.tolist()[0] == 0 and lazy.tolist()[0] == 9 and t.tolist()[0] == 9
  part = t[2:]
  part.mul_(2).realize()
  Device.synchronize()
  assert a.tolist() == [9, 1, 4, 6, 8, 10, 12, 14]


def test_a_parameter_that_others_see_stays_where_it_is(cpu: str) -> None:
  a = aligned(4)
  p, q = Tensor.from_dlpack(a).requires_grad_(), Tensor(np.ones(3, np.float32), requires_grad=True)
  opt = ntgrad.nn.optim.SGD([p, q], lr=1.0)
  (p.sum() + q.sum()).backward()
  opt.step()
  Device.synchronize()
  assert a.tolist() == [-1, 0, 1, 2] and p.tolist() == a.tolist() and q.tolist() == [0, 0, 0]
