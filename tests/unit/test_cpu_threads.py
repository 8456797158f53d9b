"""Kernels that threads of ours run without PoCL's queue: the same bits as through the queue, whatever the grid, the arguments and
the number of threads."""
from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor
from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.backends.opencl import threads as pool
from ntgrad.backends.opencl.device import OpenCLDevice, available
from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.bound import Operations, Unit, Work
from ntgrad.codegen.index.algebra import Size
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import DeviceError
from ntgrad.codegen.ir.uop import Ops, UOp
from support.graphs import Launches
from support.marks import long

pytestmark = pytest.mark.skipif(not available()[0], reason=available()[1])
ROWS = 6000


def opened(count: int = 0) -> OpenCLDevice:
  """A device of its own, with so many threads."""
  d = OpenCLDevice("CPU")
  if not d.direct: pytest.skip("PoCL's machine code is not called here: another version, another machine, or DIRECT=0")
  started = d.started(count)
  assert started is not None and count in (0, started.threads)
  return d


@pytest.fixture(scope="module")
def device() -> OpenCLDevice: return opened()


SOURCE = """
__kernel void {name}(__global uint* out, __global const uint* a, __global const uint* b) {{
  __local uint t[16];
  __local uint u[4];
  uint g = (get_group_id(2) * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0);
  for (int i = 0; i < 16; i++) t[15 - i] = a[g * 16 + i];
  for (int i = 0; i < 4; i++) u[i] = t[i] * {k}u;
  for (int i = 0; i < 16; i++) out[g * 16 + i] += t[i] + u[i % 4] + b[i];
}}
"""
HEAVY = Work(bytes=1 << 30, operations=(Operations(Unit.VECTOR, "float32", 1 << 30),))   # so that it is shared out


def kernel(name: str, grid: tuple[int, ...], k: int = 3, work: Work = HEAVY) -> ProgramSpec:
  text = SOURCE.format(name=name, k=k)
  before, after = text.split(name, 1)
  return ProgramSpec(name, KernelSource(text, kernel=(before, after)), grid, (1,), 3, work=work)


def expected(a: Any, b: Any, groups: int, k: int, times: int = 1) -> Any:
  t = a[:groups * 16].reshape(groups, 16)[:, ::-1]
  return (times * (t + np.tile(t[:, :4] * np.uint32(k), 4) + b[:16]).astype(np.uint32)).ravel()


def raws(d: OpenCLDevice, *arrays: Any) -> list[Any]:
  out = []
  for x in arrays:
    out.append(d.alloc(x.nbytes))
    d.copyin(out[-1], x.view(np.uint8).ravel())
  return out


def numbers() -> tuple[Any, Any, Any]:
  rng = np.random.default_rng(0)
  return np.zeros(ROWS * 16, np.uint32), *[rng.integers(0, 1 << 31, ROWS * 16, np.uint32) for _ in range(2)]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("grid", [(1,), (2,), (5, 3), (3, 5, 7), (ROWS,), (10, 20, 30)], ids=str)
def test_same_as_the_queue(grid: tuple[int, ...], count: int) -> None:
  d = opened(count)
  groups = int(np.prod(grid))
  zero, a, b = numbers()
  out, *given = raws(d, zero, a, b)
  [p] = d.compile([kernel("same", grid)])
  for times in range(1, 6):   # the first through the queue
    p([out, *given])
    got = d.copyout(out, zero.nbytes).view(np.uint32)
    np.testing.assert_array_equal(got[:groups * 16], expected(a, b, groups, 3, times))
    assert not got[groups * 16:].any()
  assert p._direct, "it still goes through the queue"   # type: ignore[attr-defined]


@pytest.mark.parametrize("work", [HEAVY, Work()], ids=["shared out", "one thread"])
def test_a_thousand_launches_as_one_call(work: Work) -> None:
  """Each reads what the one before has written."""
  d = opened(4)
  zero, a, b = numbers()
  specs = [kernel(f"chain_{k}", (64,), k, work) for k in range(4)]
  programs = d.compile(specs)
  out, back, other = raws(d, zero, a, b)
  want = [zero.copy(), a.copy()]
  graph = Launches(d, *[(programs[i % 4].clone(), [(out, back)[i % 2], (back, out)[i % 2], other], (), ()) for i in range(1000)])
  assert isinstance(graph.graph, pool.CPUGraph)
  for _ in range(4):
    graph()
    for i in range(1000): want[i % 2][:1024] += expected(want[1 - i % 2], b, 64, i % 4)
  for raw, w in zip((out, back), want): np.testing.assert_array_equal(d.copyout(raw, w.nbytes).view(np.uint32), w)
  assert not graph.graph._apart


def test_a_kernel_that_was_built_before_it_runs(device: OpenCLDevice) -> None:
  """Its machine code is there after its first launch, as for any other."""
  given = raws(device, *numbers())
  with ntgrad.config(cache=0):   # where it may lie with its machine code
    [p] = device.compile([kernel("built", (5,))])
    p.ready()
    for _ in range(3): p(given)
  assert p._direct   # type: ignore[attr-defined]


def test_a_graph_is_changed(device: OpenCLDevice) -> None:
  zero, a, b = numbers()
  [p] = device.compile([kernel("changed", (64,))])
  out, one, two, last = raws(device, zero, a, b, zero)
  graph = Launches(device, (p.clone(), [out, one, two], (), ()))
  for _ in range(2): graph()
  graph.change(0, 0, last)
  graph.change(0, 1, two)
  graph()
  np.testing.assert_array_equal(device.copyout(out, 4096).view(np.uint32), expected(a, b, 64, 3, 2))
  np.testing.assert_array_equal(device.copyout(last, 4096).view(np.uint32), expected(b, b, 64, 3))


def sized(name: str) -> ProgramSpec:
  text = f"""__kernel void {name}(__global uint* out, int n, ulong at) {{
    out[at / 4 + get_group_id(0)] += n;
  }}"""
  before, after = text.split(name, 1)
  n = Size("n", 0)
  count = UOp(Ops.SIZE, ix.INT, (), n)
  source = KernelSource(text, kernel=(before, after), sizes=(dtypes.int32,), parts=((0, 4),))
  return ProgramSpec(name, source, (count,), (1,), 1, sizes=(n,), work=Work(bytes=count))


def test_sizes_and_places(device: OpenCLDevice) -> None:
  """Grids of run-time sizes, also none, and wide ones, for which PoCL makes other machine code; parts of memory."""
  n = 70000
  [p] = device.compile([sized("sized")])
  [out] = raws(device, np.zeros(n + 8, np.uint32))
  graph = Launches(device, (p.clone(), [device.at(out, 8)], (), (1,)), (p.clone(), [out], (), (0,)))
  want = np.zeros(n + 8, np.uint32)
  for k in (3, 1, 0, n, 7, n, 5, 65535, 65534, 65536):
    p([device.at(out, 4)], sizes=(k,))
    graph.resize(0, (k,))
    graph()
    want[1:1 + k] += k
    want[2:2 + k] += k
    np.testing.assert_array_equal(device.copyout(out, want.nbytes).view(np.uint32), want)


def test_launches_from_several_python_threads(device: OpenCLDevice) -> None:
  zero, a, b = numbers()
  [p] = device.compile([kernel("several", (64,))])
  p(raws(device, zero, a, b))
  device.synchronize()
  outs = [raws(device, zero, a, b) for _ in range(4)]
  clones = [p.clone() for _ in outs]
  for c, r in zip(clones, outs): c(r)

  def repeat(c: Callable[[Any], Any], r: list[Any]) -> None:
    for _ in range(200): c(r)
  workers = [threading.Thread(target=repeat, args=x) for x in zip(clones, outs)]
  for t in workers: t.start()
  for t in workers: t.join()
  for r in outs: np.testing.assert_array_equal(device.copyout(r[0], 4096).view(np.uint32), expected(a, b, 64, 3, 201))


def test_helpers_sleep_and_wake(device: OpenCLDevice) -> None:
  import time
  zero, a, b = numbers()
  [p] = device.compile([kernel("asleep", (ROWS,))])
  given = raws(device, zero, a, b)
  for i in range(12):
    p(given)
    if i % 3 == 0: time.sleep(0.02)   # more than they look for work
  np.testing.assert_array_equal(device.copyout(given[0], zero.nbytes).view(np.uint32), expected(a, b, ROWS, 3, 12))


def test_denormals_stay_whatever_a_library_has_set(device: OpenCLDevice) -> None:
  """A shared library made with -ffast-math has its thread flush denormals to zero, and threads inherit that."""
  def plain(name: str, line: str) -> ProgramSpec:
    text = f"__kernel void {name}(__global float* out, __global uint* state) {{ {line} }}"
    before, after = text.split(name, 1)
    return ProgramSpec(name, KernelSource(text, kernel=(before, after)), (64,), (1,), 2, work=HEAVY)
  halve, state = device.compile([
    plain("halve", "out[get_group_id(0)] *= 0.5f;"),
    plain("state", """uint was; __asm__ volatile("stmxcsr %0" : "=m"(was)); state[1] = was;
                      __asm__ volatile("ldmxcsr %0" : : "m"(state[0]));"""),
  ])
  numbers = np.full(64, 1e-39, np.float32)
  out, word = raws(device, numbers, np.array([0x1f80, 0], np.uint32))
  for p in (halve, state): p([out, word])
  device.synchronize()
  for p in (halve, state): p([out, word])
  code = next(iter(state.code.values()))                    # type: ignore[attr-defined]
  launch = state._launch                                    # type: ignore[attr-defined]
  words = word.host.view(np.uint32)

  def here(value: int) -> int:
    """Set this thread's state, as a library would; gives what it was."""
    words[0] = value
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_uint64] * 3)(code)
    call(ctypes.addressof(launch.pointers), ctypes.addressof(launch.context), 0, 0, 0)
    return int(words[1])
  before = here(0x9fc0)   # flushes denormals
  try: halve([out, word])
  finally: after = here(before)
  assert after == 0x9fc0, "the launch has changed the state of its thread"
  np.testing.assert_array_equal(device.copyout(out, 256).view(np.float32), numbers * np.float32(0.125))


def test_other_versions_have_the_queue() -> None:
  assert not pool.works_like_this("OpenCL 3.0 PoCL 4.0  Linux, Release, LLVM 16")
  assert not pool.works_like_this("OpenCL 3.0 CUDA 12.4")


@pytest.mark.parametrize("text, count", [
  ("__local float cache0[8] __attribute__((aligned(64)));\n  __local int x[2];", 2), ("__kernel void f(__local float* a) {}", 0),
  ("int my__local = 3;", 0),
])
def test_arrays_of_local_memory_are_counted(text: str, count: int) -> None: assert pool.count_locals(text) == count


PROGRAM = """
  import hashlib, numpy as np, ntgrad
  from ntgrad import Tensor, nn
  Tensor.manual_seed(3)
  class Net:
    def __init__(self):
      self.conv, self.norm, self.out = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8*49, 10)
    def __call__(self, x): return self.out(self.norm(self.conv(x)).relu().max_pool2d(2).flatten(1))
  Tensor.training = True
  net, x = Net(), Tensor(np.random.default_rng(1).standard_normal((16, 3, 14, 14)).astype("f4"))
  optim = nn.optim.Adam(nn.state.get_parameters(net))
  @ntgrad.jit
  def step(x):
    optim.zero_grad()
    loss = net(x).sparse_categorical_crossentropy(Tensor(np.arange(16) % 10))
    loss.backward()
    optim.step()
    return loss.realize()
  losses = [step(x).item().hex() for _ in range(6)]
  state = b"".join(t.numpy().tobytes() for t in nn.state.get_parameters(net))
  print(losses, hashlib.sha256(state).hexdigest())
"""


@long
def test_a_training_step_has_the_same_bits() -> None:
  """Through the queue and by threads of ours."""
  def run(**settings: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], env={**os.environ, **settings}, text=True,
                          capture_output=True)
    assert not done.returncode, done.stderr
    return done.stdout
  assert run(DIRECT="0", DEV="CPU") == run(DIRECT="1", DEV="CPU")


def test_after_a_fork_the_device_says_so() -> None:
  x = (Tensor([1.0, 2.0], device="CPU") + 1).realize()
  f = ntgrad.jit(lambda a: (a * 2 + 1).realize())
  for _ in range(4): f(x)
  pid = os.fork()
  if pid == 0:
    code = 1
    try: f(x)
    except DeviceError as e: code = 0 if "fork" in str(e) else 2
    finally: os._exit(code)
  assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
  assert f(x).tolist() == [5.0, 7.0]


LOADS = """
from ntgrad import Tensor
from ntgrad.backends.opencl.compiler import Compiler
loaded = []
real = Compiler.take_contents
def note(self, unit, packed):
  loaded.append(hash(packed))
  return real(self, unit, packed)
Compiler.take_contents = note
x = Tensor([1.0, 2.0], device="CPU")
for _ in range(2): (x + 1).numpy()
print(len(loaded), len(set(loaded)))
"""


@long
def test_a_program_from_the_disk_is_loaded_once(tmp_path: Path) -> None:
  """The threads' three kernels are one program, which takes PoCL 36 ms."""
  root = str(Path(__file__).resolve().parents[2])
  env = {**os.environ, "CACHE_DIR": str(tmp_path), "VERIFY": "0", "CACHE": "1", "PYTHONPATH": root}
  def loads() -> list[int]:
    out = subprocess.run([sys.executable, "-c", LOADS], env=env, text=True, capture_output=True, timeout=120, check=True).stdout
    return [int(n) for n in out.split()]
  assert loads() == [0, 0]
  again, programs = loads()
  assert again == programs >= 2


def test_a_graph_shares_out_what_takes_long(device: OpenCLDevice) -> None:
  """By what its launches were measured to take, not by what they were expected to."""
  zero, a, b = numbers()
  few, many = device.compile([kernel("few", (1,)), kernel("many", (ROWS,))])
  out, one, two = raws(device, zero, a, b)
  graph = Launches(device, (few, [out, one, two], (), ()), (many, [out, one, two], (), ()))
  for _ in range(8): graph()
  assert isinstance(graph.graph, pool.CPUGraph)
  short, long = graph.graph._launches
  assert (short.record.pieces, long.record.pieces > 1) == (1, device.threads.threads > 1 and graph.graph._taken[1] > 20e-6)
  want = expected(a, b, ROWS, 3, 8)
  want[:16] += expected(a, b, 1, 3, 8)
  np.testing.assert_array_equal(device.copyout(out, zero.nbytes).view(np.uint32), want)
