"""Programs far deeper than Python's stack may be: nothing recurses over graphs, and no source nests deeper than its compiler
reads."""
from __future__ import annotations

import inspect
import pickle
import re
import sys
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Iterator

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Tensor, jit, nn
from ntgrad.backends import renderer
from ntgrad.backends.cuda import compiler
from ntgrad.backends.cuda.renderer import TritonRenderer
from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.bound import work_of
from ntgrad.codegen.explain.printing import index_form
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import ArgumentError
from ntgrad.codegen.ir.uop import Ops, UOp
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, Param
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.opts import Unroll, Upcast
from ntgrad.engine.device import Device, get_device
from ntgrad.engine.report import describe
from ntgrad.graph.symbol import Symbol, cdiv, evaluate
from ntgrad.nn.state import get_state_dict
from ntgrad.schedule import create_schedule
from support import triton
from support.devices import missing
from support.kernels import launch, spec
from support.marks import long, long_half, long_where

N = 400
ROOM = 150   # frames that a program's depth must not take


@contextmanager
def shallow() -> Iterator[None]:
  """With a stack that has room for little more than is on it already."""
  before = sys.getrecursionlimit()
  sys.setrecursionlimit(len(inspect.stack(0)) + ROOM)
  try: yield
  finally: sys.setrecursionlimit(before)


def numbers(*shape: int, seed: int = 0) -> Tensor: return Tensor(np.random.default_rng(seed).random(shape, np.float32))


def repeat(step: Callable[..., Tensor], x: Tensor, n: int = N) -> Tensor:
  for i in range(n): x = step(x, i)
  return x


def chain() -> Tensor:
  c, d = numbers(8, seed=1), numbers(8, seed=2)
  return repeat(lambda x, i: x * c + d, numbers(8))


def gradient() -> Tensor:
  c, d = Tensor(np.linspace(0.9, 0.99, 8, dtype=np.float32), requires_grad=True), numbers(8, seed=2)
  return repeat(lambda x, i: x * c + d, numbers(8)).sum().gradient(c)[0]


def product() -> Tensor:
  x = repeat(lambda p, i: p * (numbers(8, seed=i + 1) + 0.5), numbers(8))
  return x.pad(((1, 3),)).sum()


def written() -> Tensor:
  x = numbers(N)
  for i in range(N): x[i] = float(i)
  return x + 1


def stepped() -> Tensor:
  x = numbers(8)
  for _ in range(N): x.assign(x * 0.5 + 1)
  return x


def summed() -> Tensor:
  t = Tensor(0.0)
  for i in range(N): t = t + (numbers(4, seed=i) * i).sum()
  return t


PROGRAMS: dict[str, Callable[[], Tensor]] = {
  "chain": chain,
  "gradient": gradient,
  "product": product,
  "written": written,
  "stepped": stepped,
  "summed": summed,
  "choices": lambda: repeat(lambda x, i: (x > 0.5).where(x * 0.5, x + 0.1), numbers(8)),
  "ints": lambda: repeat(lambda x, i: (x * 3 + i) % 1000, Tensor(np.arange(8, dtype=np.int32))),
  "indices": lambda: numbers(1000)[repeat(lambda x, i: (x * 3 + i) % 1000, Tensor.arange(8))],
  "gathers": lambda: repeat(
    lambda x, i: Tensor(np.arange(8, dtype=np.int32)[::-1].copy())[x], Tensor(np.arange(8, dtype=np.int32)), 100
  ),
  "pads": lambda: repeat(lambda x, i: x.pad(((1, 1),)).shrink(((1, 4),)) * 1.0, numbers(3)),
  "wider": lambda: repeat(lambda x, i: x.pad(((1, 1),)) + 1, numbers(3), 200),
  "moves": lambda: repeat(lambda x, i: x.permute(1, 0).reshape(2, 8).reshape(4, 4).flip(0), numbers(4, 4)),
  "reductions": lambda: repeat(lambda x, i: x - x.sum(1, keepdim=True) * 0.01, numbers(4, 4), 200),
  "matmuls": lambda: repeat(lambda x, i: (x @ numbers(4, 4, seed=1)).tanh(), numbers(4, 4), 200),
  "casts": lambda: repeat(lambda x, i: x.cast("float16").cast("float32") * 0.5 + 1, numbers(8)),
  "detached": lambda: repeat(lambda x, i: x.detach() * 0.5 + 1, numbers(8)),
  "kernels": lambda: repeat(lambda x, i: (x * 0.5 + 1).contiguous(), numbers(8), 200),
  "greatest": lambda: repeat(lambda x, i: x.maximum(numbers(4, seed=i)), numbers(4)),
  "triangles": lambda: repeat(lambda x, i: x.tril() * 0.5 + 0.1, numbers(8, 8), 200),
  "doubled": lambda: repeat(lambda x, i: (x + x) * 0.5, numbers(4)),
}


def warm(device: str) -> None:
  """What is imported and opened at first use is not what these tests look at."""
  with config(debug=5, cache=0): ((numbers(4, 4) @ numbers(4, 4)).sum() + 1).realize()
  assert not Device.DEFAULT or Device.DEFAULT == device


@pytest.fixture(params=["NUMPY", "CPU"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
  name = str(request.param)
  if missing(name): pytest.skip(missing(name))
  monkeypatch.setattr(Device, "assigned", name)
  warm(name)
  return name


def value(name: str) -> np.ndarray[Any, Any]:
  with config(debug=5), shallow(): return np.asarray(PROGRAMS[name]().numpy())


@long_where(lambda device: device != "NUMPY")
@pytest.mark.parametrize("name", long_half(PROGRAMS))
def test_programs(name: str, device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
  got = value(name)
  text = capsys.readouterr().out
  assert np.isfinite(got).all() and max(map(len, text.splitlines()), default=0) < 20_000
  if device == "NUMPY": return
  monkeypatch.setattr(Device, "assigned", "NUMPY")
  np.testing.assert_allclose(got, value(name), rtol=1e-4, atol=1e-5)


@triton.needs_triton
@pytest.mark.parametrize("name", ["chain", "choices", "indices", "product"])
def test_programs_of_triton(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(Device, "assigned", triton.NAME)
  warm(triton.NAME)
  got = PROGRAMS[name]().numpy()   # the interpreter itself is Python's
  monkeypatch.setattr(Device, "assigned", "NUMPY")
  np.testing.assert_allclose(got, value(name), rtol=1e-4, atol=1e-5)


def test_captured(device: str) -> None:
  c, d = numbers(8, seed=1).realize(), numbers(8, seed=2).realize()
  run = jit(lambda x: repeat(lambda x, i: x * c + d, x))
  with shallow(): got = [run(numbers(8, seed=i).realize()).numpy() for i in range(4)]
  want = np.random.default_rng(3).random(8, np.float32)
  for _ in range(N): want = want * c.numpy() + d.numpy()
  np.testing.assert_allclose(got[3], want, rtol=1e-4)


def test_nested_arguments() -> None:
  def nested(t: Tensor) -> Any:
    out: Any = t
    for i in range(N): out = ([out], i) if i % 2 else {"in": out}
    return out
  @jit
  def run(x: Any) -> Any: return nested(first(x) + 1)
  def first(x: Any) -> Tensor:
    while not isinstance(x, Tensor): x = next(iter(x.values())) if isinstance(x, dict) else x[0]
    return x
  with shallow():
    for i in range(4): out = first(run(nested(Tensor([float(i)]).realize()))).item()
  assert out == 4.0


@long
def test_many_operations() -> None:
  c, d, n = numbers(4, seed=1), numbers(4, seed=2), 50_000
  x = numbers(4)
  c, d, x = (Tensor(t.numpy(), device="NUMPY") for t in (c, d, x))
  with config(cache=0, verify=0), shallow(): got = repeat(lambda x, i: x * c + d, x, n).numpy()
  want, a, b = x.numpy(), c.numpy(), d.numpy()
  for _ in range(n): want = want * a + b
  np.testing.assert_allclose(got, want, rtol=1e-4)


# ---- kernels

def copies(what: str) -> Kernel:
  x = Tensor.empty(3, N)
  kernel = create_schedule([(x * Tensor.empty(3, N)).sum(1) if what == "unroll" else x * 2 + 1])[-1].ast
  return (Unroll if what == "unroll" else Upcast)(1, N).apply(kernel)


def deep_kernel() -> Kernel:
  c = Tensor.empty(3)
  return create_schedule([repeat(lambda x, i: x * c + i, Tensor.empty(3))])[-1].ast


KERNELS = {"upcast": lambda: copies("upcast"), "unroll": lambda: copies("unroll"), "deep": deep_kernel}


def depth(line: str) -> int:
  """How deep brackets nest in a line."""
  at = most = 0
  for c in line:
    at += (c in "([{") - (c in ")]}")
    most = max(most, at)
  return most


@pytest.mark.parametrize("target", ["opencl", "triton", "numpy"])
@pytest.mark.parametrize("name", KERNELS)
def test_rendered(name: str, target: str) -> None:
  r = renderer(target)
  linearize(create_schedule([Tensor.empty(4, 4).sum(1)])[-1].ast, r.target)   # what is imported at first use
  with shallow():
    kernel = KERNELS[name]()
    text = describe(kernel)
    source = r.render("k", linearize(kernel, r.target))
  for line in (*text.splitlines(), *source.text.splitlines()): assert depth(line) < 60   # clang reads 256 levels, Python 200


@triton.needs_triton
def test_cubin_of_a_deep_kernel() -> None:
  r = TritonRenderer(capability=90)
  source = r.render("k", linearize(deep_kernel(), r.target))
  assert compiler.build(compiler.Request(source, "k", "sm_90")).cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize("device", ["NUMPY", "CPU", triton.NAME])
@pytest.mark.parametrize("name", ["upcast", "unroll"])
def test_copies_run(name: str, device: str) -> None:
  if missing(device): pytest.skip(missing(device))
  x = np.random.default_rng(0).random((3, N), np.float32)
  kernel = KERNELS[name]()
  data = [np.zeros(3 if name == "unroll" else (3, N), np.float32), x, x][:len(kernel.params)]
  opened = get_device(device)
  with shallow() if device != triton.NAME else nullcontext():
    (out,) = launch(opened, [spec(kernel, name, opened.renderer.target)], kernel, data)
  np.testing.assert_allclose(
    np.asarray(out[0]).reshape(data[0].shape), (x * x).sum(1) if name == "unroll" else x * 2 + 1, rtol=1e-5
  )


def test_regions_in_regions() -> None:
  axis = Axis(0, 8, AxisKind.GRID)
  p = Param(0, (8,), dtypes.float32, True)
  where = UOp(Ops.INDEX, dtypes.index, (axis.rng,))
  body: tuple[UOp, ...] = (UOp.unique(Ops.STORE, dtypes.float32, (p.uop, where, UOp.const(dtypes.float32, 1.0))),)
  for i in range(N):
    body = (UOp.unique(Ops.IF, dtypes.bool, (ix.lt(axis.rng, 1 + i % 7), *body), 1),) if i % 2 else \
           (UOp.unique(Ops.FOR, dtypes.int32, (ix.const(2), *body), i + 1),)
  kernel = Kernel((p,), (axis, *(Axis(i + 1, 2, AxisKind.LOOP) for i in range(0, N, 2))), body)
  with shallow():
    assert len(kernel.statements) == N + 1 and work_of(kernel).flops == 0
    assert index_form(kernel).count("\n") > N
    assert sum(u.op is Ops.LOOP for u in linearize(kernel)) == N // 2


# ---- applications

def rows(x: Any, y: Any) -> Any: return x.tile((8,)), y.tile((8,))


def horner(x: Any, y: Any) -> None:
  out = x
  for i in tl.static_range(400): out = out * x + i
  y = out  # noqa: F841


def turned(x: Any, y: Any) -> None:
  out = x
  for _ in tl.static_range(400): out = tl.where(out > 0.5, out * x, out + 0.001)
  y = out[::-1]  # noqa: F841


def choosing(x: Any, y: Any) -> None:
  a, b = (), ()
  for i in tl.static_range(100): a, b = (a, i), (b, i + 1)
  t = a if tl.sum(x, 0) > 0 else b
  total = 0.0
  for _ in tl.static_range(100):
    total = total + t[1]
    t = t[0]
  y = x * 0 + total  # noqa: F841


@pytest.mark.parametrize("application, want", [
  (horner, lambda x: np.polyval([1, *range(400)], x.astype(np.float64))), (turned, None), (choosing, lambda x: x * 0 + 99 * 50)],
  ids=["horner", "turned", "choosing"])
def test_applications(application: Any, want: Any, device: str, capsys: pytest.CaptureFixture[str]) -> None:
  x = np.random.default_rng(0).random(16, np.float32) * 0.9
  y = np.empty_like(x)
  make = tile.make(rows, application, (tile.Tensor(1),) * 2)
  with config(debug=5), shallow(): make(x, y)
  assert "body" in capsys.readouterr().out
  if want is not None: np.testing.assert_allclose(y, want(x), rtol=1e-4)
  assert np.isfinite(y).all()


# ---- symbols, models

@long
def test_long_symbols() -> None:
  names = [Symbol(f"n{i}", lower_bound=0) for i in range(300)]
  with shallow():
    e = sum(n * (i + 2) for i, n in enumerate(names))
    assert str(e).count("+") == 299 and e.bounds == (0, None) and hash(e) == hash(e + 0) and e + 1 != e
    assert evaluate(e, {n.name: 1 for n in names}) == sum(range(2, 302))
    assert e.subs({n: 1 for n in names}) == sum(range(2, 302)) and e.subs({names[0]: names[1]}) == e - 2 * names[0] + 2 * names[1]
    assert pickle.loads(pickle.dumps(e)) == e
  assert Symbol(str(e)).subs({n: n for n in names}) == e
  with pytest.raises(ArgumentError, match="neither|nested deeper"): Symbol("(" * 300 + "x" + ")" * 300)


def test_deep_symbols() -> None:
  x = Symbol("x", lower_bound=0)
  e, value = x, 10 ** 6
  with shallow():
    for i in range(N // 10): e, value = cdiv(2 * e + i, 3), -(-(2 * value + i) // 3)
    assert evaluate(e, {"x": 10**6}) == e.subs({x: 10**6}) == value
    assert e.bounds[0] >= 0 and len(re.findall("cdiv|//", str(e))) == N // 10
    assert pickle.loads(pickle.dumps(e)) == e


def test_deep_models() -> None:
  class Deep:
    def __init__(self) -> None: self.layers = [nn.Linear(2, 2) for _ in range(N)]
    def __call__(self, x: Tensor) -> Tensor: return repeat(lambda x, i: self.layers[i](x), x)
  model = Deep()
  with shallow():
    assert len(get_state_dict(model)) == 2 * N
    assert model(numbers(3, 2)).shape == (3, 2)
