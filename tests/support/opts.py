"""Random Opts on kernels: what the plain loops compute is compared with what the changed kernel computes."""
from __future__ import annotations

import random
import zlib
from dataclasses import fields
from typing import Any, Callable, Iterable, Sequence

import numpy as np

from ntgrad import Tensor
from ntgrad.backends.base import Device
from ntgrad.codegen import index as ix
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import OptError
from ntgrad.codegen.ir.uop import prod
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.opts import OPTS, Block, OnAxis, Opt, Persistent, Serial, ShiftInwards, SizedOpt, Unroll, Upcast, Vectorize
from ntgrad.engine.compile import extent
from ntgrad.engine.device import get_device
from ntgrad.engine.overrides import rounding_part
from ntgrad.schedule import create_schedule

from . import triton
from .kernels import Array, contents, kernels, launch, spec
from .programs import Program

WIDTHS = (2, 3, 4, 8, 16)         # of OpenCL's vectors
MOST_PROGRAMS = 50                # that the interpreter goes through, one by one
Choose = Callable[[Sequence[Any]], Any]


def drawn(cls: type[Opt], kernel: Kernel, choose: Choose) -> Opt:
  """An Opt of a class, each field drawn by what it stands for: axes and params of the kernel, numbers that mostly divide the
  axis."""
  axis = choose(kernel.axes)
  sizes = [None, 3, 8, *(n for n in (2, 3, 4, 8, 16, axis.count) if n and ix.divides(n, axis.size))]
  if cls in (Vectorize, ShiftInwards): sizes = [n for n in sizes if (n or axis.size) in WIDTHS] or [2]
  if not issubclass(cls, SizedOpt): sizes = [1, 2, 4, 8]
  among = {
    "axis": [axis.id],
    "other": [a.id for a in kernel.axes],
    "param": [p.slot for p in kernel.params],
    "n": sizes,
    "programs": [1, 2, 3, 7],
  }
  return cls(*[choose(among.get(f.name, [False, True])) for f in fields(cls)])


def opts(kernel: Kernel, choose: Choose, most: int = 7, blocks: bool = False) -> Kernel:
  """The kernel after some Opts; those that it does not take are left out, as long as the code stays small. ``blocks``: for
  targets that have them."""
  known = [c for c in OPTS.values() if c.blocks in (None, blocks) or c in (Upcast, Unroll, Serial)]   # these all targets take
  on_axes = [c for c in known if issubclass(c, OnAxis)]
  if blocks: on_axes += [Block] * 3
  def taken(cls: type[Opt]) -> Kernel:
    try:
      out = drawn(cls, kernel, choose).apply(kernel)
      return out if _copies(out) <= max(64, _copies(kernel)) else kernel
    except OptError: return kernel
  for _ in range(choose(range(most + 1))):
    if kernel.axes: kernel = taken(choose(on_axes))
  # what comes after all that splits axes; persistent programs are the last step
  late = sorted({*known} - {*on_axes, Persistent}, key=lambda c: c.name)
  for cls in [*late, *late, *[Persistent] * blocks]:
    if kernel.axes and choose([0, 0, 1]): kernel = taken(cls)
  return kernel


def _copies(kernel: Kernel) -> int:
  n = 1
  for a in kernel.axes:
    if a.kind.name in ("UPCAST", "UNROLL", "LANE"): n *= a.size
  return n


def seed(*what: object) -> int: return zlib.crc32(repr(what).encode())


_plain: dict[tuple[str, bool], list[tuple[Kernel, list[Array], list[Array]]]] = {}


def plain(name: str, whole: bool) -> list[tuple[Kernel, list[Array], list[Array]]]:
  """Each kernel of a graph, what it is given, and what its plain loops make of that."""
  key = (name, whole)
  if key not in _plain:
    _plain[key] = []
    for i, k in enumerate(kernels(name)):
      data = contents(k, np.random.default_rng(seed(name, i, whole)), whole)
      _plain[key].append((k, data, launch(get_device("NUMPY"), [spec(k, name)], k, data)[0]))
  return _plain[key]


def check(device: Device, name: str, whole: bool, choose: Choose, versions: int = 1) -> None:
  for k, data, want in plain(name, whole): same(device, name, k, data, want, whole, choose, versions)


def same(
  device: Device, name: str, k: Kernel, data: list[Array], want: list[Array], whole: bool, choose: Choose, versions: int
) -> int:
  """Some versions of a kernel compute what it does. Gives how many ran."""
  tried = [opts(k, choose, blocks=device.renderer.target.blocks) for _ in range(versions)]
  if device.name == triton.NAME:
    tried = [t for t in tried if prod(extent(t, AxisKind.GRID)) <= MOST_PROGRAMS]
  # functions such as exp turn whole numbers into others, and each device rounds those its own way
  exact = whole and not any(u.arg.name in ("EXP", "LOG", "SQRT", "RSQRT", "RECIP", "DIV") for u in k.nodes if u.op.name == "ALU")
  for version, got in zip(
    tried, launch(device, [spec(t, f"{name.replace(' ', '_')}_{j}") for j, t in enumerate(tried)], k, data)
  ):
    for g, w in zip(got, want):
      title = f"{name} after {', '.join(map(str, version.applied)) or 'nothing'} on {device.name}"
      if exact or g.dtype.kind in "iub":
        assert np.array_equal(g, w), f"{title}:\n{g}\nplain loops:\n{w}"
      else:
        a, b = g.astype(np.float64), w.astype(np.float64)
        eps = max(rounding_part(dtypes.of(g.dtype), k), 1e-5)
        np.testing.assert_allclose(
          a, b, rtol=eps, atol=eps * max(1.0, float(np.abs(b).max(initial=0, where=np.isfinite(b)))), err_msg=title
        )
  return len(tried)


def random_kernels(device: Device, seeds: Iterable[int], versions: int) -> int:
  """Kernels of random tensor programs and of their gradients, after random Opts, compute what their plain loops do. Gradients of
  rows taken by an index are STOREs that add. Gives how many versions ran."""
  ran = 0
  for s in seeds:
    rng = random.Random(s)
    def choose(xs: Sequence[Any], rng: random.Random = rng) -> Any: return rng.choice(list(xs))
    program = Program(choose, "NUMPY", 6, np.random.default_rng(s), linear=s % 2 == 1)
    last = program.values[-1][0]
    outputs = [last]
    if program.linear:
      total = (last * Tensor.empty(*last.shape, device="NUMPY")).sum()
      inputs = [x for x, _ in program.leaves if x.lazydata in total.lazydata.toposort()]
      outputs = total.gradient(*inputs) if inputs else []
    for item in create_schedule(outputs):
      if item.ast is None or not item.ast.plain: continue
      data = contents(item.ast, np.random.default_rng(s), True)
      want = launch(get_device("NUMPY"), [spec(item.ast, "k")], item.ast, data)[0]
      ran += same(device, "k", item.ast, data, want, True, choose, versions)
  return ran
