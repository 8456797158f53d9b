"""Random kernels with run-time sizes, and the same with numbers; launching one with sizes."""
from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import numpy as np

from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim, Size
from ntgrad.codegen.index.sizes import evaluator
from ntgrad.codegen.ir.errors import OptError
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp, prod
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.opts import OPTS, Opt, ShiftInwards, Vectorize
from ntgrad.codegen.passes.parts import Parts
from ntgrad.codegen.pipeline import finish
from ntgrad.codegen.verify.forms import verify_index, verify_linear
from ntgrad.engine.compile import extent

from .opts import drawn
from .statements import Builder, E, Place, at

Array = np.ndarray[Any, Any]
Choose = Callable[[Sequence[Any]], Any]
Make = Callable[[Mapping[str, Dim]], Kernel]
NAMES = ("M", "N", "K")
# numbers that sizes have: of one vector or less, one more than several, what all widths divide
NUMBERS = ((16, 16, 16), (1, 1, 1), (7, 5, 3), (17, 9, 33), (32, 48, 16), (3, 20, 40), (33, 1, 8))


def symbols(hint: int = 16, unit: int = 1, lower: int = 1) -> dict[str, Dim]:
  """A SIZE for each name."""
  return {n: ix.mul(UOp(Ops.SIZE, ix.INT, (), Size(n, lower, unit=unit, hint=hint)), unit) for n in NAMES}


def numbers(values: Sequence[int]) -> dict[str, Dim]: return dict(zip(NAMES, values))


# ---- kernels by hand

def elementwise(n: Mapping[str, Dim]) -> Kernel:
  """out[i, j] = x[i, j] * 2 + y[j]"""
  b = Builder()
  i, j = b.grid(n["M"]), b.grid(n["N"])
  out, x, y = b.param((n["M"], n["N"]), written=True), b.param((n["M"], n["N"])), b.param((n["N"],))
  return b.kernel(out.set((i, j), x[i, j] * 2.0 + y[j]))


def transposed(n: Mapping[str, Dim]) -> Kernel:
  """out[i, j] = x[j, i] + y[M - 1 - i, j]"""
  b = Builder()
  i, j = b.grid(n["M"]), b.grid(n["N"])
  out, x, y = b.param((n["M"], n["N"]), written=True), b.param((n["N"], n["M"])), b.param((n["M"], n["N"]))
  return b.kernel(out.set((i, j), x[j, i] + y[ix.sub(ix.node(ix.minus(n["M"], 1)), i.rng), j]))


def flattened(n: Mapping[str, Dim]) -> Kernel:
  """out[i] = x[i // N, i % N] of M * N elements"""
  b = Builder()
  i = b.grid(ix.times(n["M"], n["N"]))
  out, x = b.param((ix.times(n["M"], n["N"]),), written=True), b.param((n["M"], n["N"]))
  return b.kernel(out.set(i, x[ix.fdiv(i.rng, ix.node(n["N"])), ix.mod(i.rng, ix.node(n["N"]))] + 1.0))


def row_sum(n: Mapping[str, Dim]) -> Kernel:
  """out[i] = sum of x[i, k] over k"""
  b = Builder()
  i, k = b.grid(n["M"]), b.loop(n["K"])
  out, x = b.param((n["M"],), written=True), b.param((n["M"], n["K"]))
  return b.kernel(out.set(i, x[i, k].sum(k)))


def whole_sum(n: Mapping[str, Dim]) -> Kernel:
  """out[0] = the sum of x[i, k]"""
  b = Builder()
  i, k = b.loop(n["M"]), b.loop(n["K"])
  out, x = b.param((1,), written=True), b.param((n["M"], n["K"]))
  return b.kernel(out.set(0, x[i, k].sum(i, k)))


def centered(n: Mapping[str, Dim]) -> Kernel:
  """out[i, k] = x[i, k] - max(x[i, :]), two[i] = the sum of that: two phases, two stores."""
  b = Builder()
  i, k = b.grid(n["M"]), b.loop(n["K"])
  out, two, x = b.param((n["M"], n["K"]), written=True), b.param((n["M"],), written=True), b.param((n["M"], n["K"]))
  value = x[i, k] - x[i, k].reduce(BinaryOps.MAX, k)
  return b.kernel(out.set((i, k), value), two.set(i, value.sum(k)))


def product(n: Mapping[str, Dim]) -> Kernel:
  """out = x @ y"""
  b = Builder()
  i, j, k = b.grid(n["M"]), b.grid(n["N"]), b.loop(n["K"])
  out, x, y = b.param((n["M"], n["N"]), written=True), b.param((n["M"], n["K"])), b.param((n["K"], n["N"]))
  return b.kernel(out.set((i, j), (x[i, k] * y[k, j]).sum(k)))


def window(n: Mapping[str, Dim]) -> Kernel:
  """out[i, j] = sum of x[i + a, j + b] * w[a, b], 3 by K, and zeros around x: the last element has no neighbours."""
  b = Builder()
  i, j, a, c = b.grid(n["M"]), b.grid(n["N"]), b.loop(3), b.loop(n["K"])
  out, w = b.param((n["M"], n["N"]), written=True), b.param((3, n["K"]))
  x = b.param((n["M"], ix.minus(ix.plus(n["N"], n["K"]), 1)))
  row = ix.add(at(i), ix.sub(a.rng, 1))
  inside = ix.both(ix.ge(row, 0), ix.lt(row, ix.node(n["M"])))
  return b.kernel(out.set((i, j), (x.load((row, at(j, 1, c.rng)), inside) * w[a, c]).sum(a, c)))


def adding(n: Mapping[str, Dim]) -> Kernel:
  """out[i] += sum of x[i, k], which reads what it writes"""
  b = Builder()
  i, k = b.grid(n["M"]), b.loop(n["K"])
  out, x = b.param((n["M"],), written=True), b.param((n["M"], n["K"]))
  return b.kernel(out.set(i, out[i] + x[i, k].sum(k)))


def in_place(n: Mapping[str, Dim]) -> Kernel:
  """out[i, j] = out[i, j] * 2 + x[j]"""
  b = Builder()
  i, j = b.grid(n["M"]), b.grid(n["N"])
  out, x = b.param((n["M"], n["N"]), written=True), b.param((n["N"],))
  return b.kernel(out.set((i, j), out[i, j] * 2.0 + x[j]))


MAKES: dict[str, Make] = {f.__name__: f for f in (
  elementwise, transposed, flattened, row_sum, whole_sum, centered, product, window, adding, in_place
)}


# ---- random ones

def random_kernel(choose: Choose) -> Make:
  """A function from sizes to a kernel: output axes, reduced ones, params that are read along some of them, one or two phases of
  reductions, one or two stores."""
  kinds = ["M", "N", "K", "M", "N", "K", "M+N", "2*N", "3", "8"]
  outs = [choose(kinds) for _ in range(choose([1, 1, 2, 2, 3]))]
  reduced = [choose(kinds) for _ in range(choose([0, 1, 1, 2]))]
  loops = [choose([False, False, True]) for _ in outs]
  count = len(outs) + len(reduced)
  reads = []
  for _ in range(choose([1, 2, 2, 3])):
    dims: list[tuple[str, ...]] = []
    for a in choose([tuple(range(count)), tuple(reversed(range(count)))]):
      if choose([0, 1, 1]): dims.append((choose(["plain", "plain", "plain", "back", "shifted", "padded"]), a))
    if len(dims) > 1 and choose([0, 0, 0, 1]): dims = [("window", dims[0][1], dims[1][1]), *dims[2:]]
    reads.append(dims)
  fn = choose(["sum", "sum", "max"])
  how, again, second = choose(["product", "sum"]), choose([False, False, True]), choose([False, False, True])

  def make(n: Mapping[str, Dim]) -> Kernel:
    sizes: dict[str, Dim] = {**n, "M+N": ix.plus(n["M"], n["N"]), "2*N": ix.times(n["N"], 2), "3": 3, "8": 8}
    b = Builder()
    o = [b.loop(sizes[s]) if loop else b.grid(sizes[s]) for s, loop in zip(outs, loops)]
    r = [b.loop(sizes[s]) for s in reduced]
    axes = [*o, *r]
    out = b.param(tuple([a.size for a in o]), written=True)
    values = [_read(b, axes, dims) for dims in reads]
    value = values[0]
    for v in values[1:]: value = value * v if how == "product" else value + v
    def combined(v: E) -> E: return v.reduce(BinaryOps.MAX, *r) if fn == "max" else v.sum(*r)
    if r and again: value = value - (value.reduce(BinaryOps.MAX, *r))
    total = combined(value) if r else value
    body = [out.set(tuple(o), total)]
    if second:
      other = b.param(tuple([a.size for a in axes]), written=True)
      body.append(other.set(tuple(axes), value + total))
    return b.kernel(*body)
  return make


def _read(b: Builder, axes: list[Axis], dims: Sequence[tuple[Any, ...]]) -> E:
  shape: list[Dim] = []
  index: list[UOp] = []
  gate = ix.TRUE
  for how, *ids in dims:
    a = axes[ids[0]]
    size = a.size
    if how == "plain": at_, n = a.rng, size
    elif how == "back": at_, n = ix.sub(ix.node(ix.minus(size, 1)), a.rng), size
    elif how == "shifted": at_, n = ix.add(a.rng, 2), ix.plus(size, 3)
    elif how == "padded":
      at_, n = ix.sub(a.rng, 1), size
      gate = ix.both(gate, ix.ge(at_, 0))
    else:
      other = axes[ids[1]]
      at_, n = ix.add(a.rng, ix.mul(other.rng, 2)), ix.plus(size, ix.times(other.size, 2))
    shape.append(n)
    index.append(at_)
  p: Place = b.param(tuple(shape) or (1,))
  return p.load(tuple(index) or (0,), gate) if gate is not ix.TRUE else p[tuple(index) or (0,)]


# ---- Opts, and running

MOST_VALUES = 30_000   # of all axes, that plain loops go through one by one; more where no sizes have so few

def opts(kernel: Kernel, choose: Choose, most: int = 6, lanes: bool = True) -> Kernel:
  """The kernel after some Opts, each drawn; those that it does not take are left out, as long as the code stays small."""
  known = [c for c in OPTS.values() if not c.blocks and (lanes or c not in (Vectorize, ShiftInwards))]
  for _ in range(choose(range(most + 1))):
    cls: type[Opt] = choose(known)
    if not kernel.axes: break
    try: out = drawn(cls, kernel, choose).apply(kernel)
    except OptError: continue
    if copies(out) <= max(64, copies(kernel)): kernel = out
  return kernel


def copies(kernel: Kernel) -> int:
  n = 1
  for a in kernel.of_kind(AxisKind.UPCAST, AxisKind.UNROLL, AxisKind.LANE): n *= a.known
  return n


def ready(
  kernel: Kernel | Parts, device: Device, name: str = "k", target: Target | None = None
) -> Callable[..., list[Array] | None]:
  """A function that launches a kernel as it is with sizes and contents of its params, and gives the contents of those that it
  writes; None where it needs other sizes."""
  parts = kernel if isinstance(kernel, Parts) else None
  k = parts.kernel if parts is not None else kernel
  assert isinstance(k, Kernel)
  verify_index(k, name)
  uops = finish(parts, target, name) if parts is not None else linearize(k)
  verify_linear(uops, name)
  spec = ProgramSpec(
    name, device.renderer.render(name, uops), extent(k, AxisKind.GRID), extent(k, AxisKind.LOCAL), len(k.params), tuple(uops),
    sizes=k.sizes
  )
  program, = device.compile([spec])
  needs = evaluator(k.needs, k.sizes)

  def launch(values: Mapping[str, int], data: Sequence[Array]) -> list[Array] | None:
    sizes = tuple([values[s.name] // s.unit for s in k.sizes])
    if not all(needs(sizes)): return None
    raws = [device.alloc(max(a.nbytes, 1)) for a in data]
    for raw, a in zip(raws, data): device.copyin(raw, np.ascontiguousarray(a).reshape(-1).view(np.uint8))
    program(raws, sizes=sizes)
    device.synchronize()
    written = [(raw, a) for raw, a, p in zip(raws, data, k.params) if p.written]
    out = [device.copyout(raw, a.nbytes).view(a.dtype).reshape(a.shape).copy() for raw, a in written]
    for raw, a in zip(raws, data): device.free(raw, max(a.nbytes, 1))
    return out
  return launch


def contents(kernel: Kernel, rng: np.random.Generator) -> list[Array]:
  """Small whole numbers, so that sums are exact in any order."""
  return [rng.integers(-3, 4, p.shape).astype(p.dtype.np) for p in kernel.params]


def same(
  make: Make, versions: Sequence[tuple[Kernel | Parts, Target | None]], device: Device, oracle: Device,
  units: Sequence[Sequence[int]]
) -> int:
  """Versions of a kernel with run-time sizes compute what the kernel with numbers does. Gives how many launches there were."""
  launches = [(v, ready(v, device, f"k{i}", t)) for i, (v, t) in enumerate(versions)]
  ran = 0
  made = [make(numbers(values)) for values in units]
  work = [prod(a.count for a in k.axes) for k in made]
  for values, static, n in zip(units, made, work):
    if n > max(MOST_VALUES, min(work)): continue
    data = contents(static, np.random.default_rng(values[0]))
    want = ready(static, oracle)({}, data)
    assert want is not None
    for version, launch in launches:
      got = launch(dict(zip(NAMES, values)), data)
      if got is None: continue
      ran += 1
      for g, w in zip(got, want):
        k = version.kernel if isinstance(version, Parts) else version
        title = f"after {', '.join(map(str, k.applied)) or 'nothing'} with {dict(zip(NAMES, values))} on {device.name}"
        assert np.array_equal(g, w), f"{title}\n{g}\nwith numbers:\n{w}"
  return ran
