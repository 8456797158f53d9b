"""Programs of kernels with run-time sizes: a few variants of one kernel, made when sizes come that need them.

A variant is compiled for 32 or 64 bits of index, for strides that are multiples of 16 bytes or not (where that is worth it),
for what its Opts need of the sizes (a row that is one block of 1024), and for about so much work: what is good for a product of
32 x 32 is a quarter as fast for one of 1024. Which one is launched is found by the sizes.
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Callable, NamedTuple, Sequence

from ntgrad.backends.base import Device, Program, ProgramSpec, Raw
from ntgrad.codegen import index as ix
from ntgrad.codegen.kernel import AxisKind, Kernel
from ntgrad.codegen.opts.axes import seen_by
from ntgrad.codegen.recent import Recent
from ntgrad.codegen.rewrite import substitute
from ntgrad.codegen.sizes import evaluator, sizes_of
from ntgrad.codegen.uop import Ops, UOp

ALIGNED = 16        # bytes that strides are multiples of, for vectors and tensor descriptors of targets with blocks,
UNIT = 16           # and elements for others
PATTERNS = 4        # which sizes are multiples: so many combinations have variants of their own, the last for any
# elements of a buffer, or values of axes, from which on an index may not fit 32 bits: blocks and vectors go on past the last one
WIDE = (1 << 31) - (1 << 24)
MORE = 16           # times the work that a variant was made for, from which on there is another
LITTLE = 1 << 20    # values of all axes: work that any variant does
Sizes = tuple[int, ...]


class Variant(NamedTuple):
  """A compiled kernel. ``fits`` tells whether it may be launched with sizes, ``given`` what it gets for them."""
  program: Program
  fits: Callable[[Sequence[int]], tuple[int, ...]]
  given: Callable[[Sequence[int]], tuple[int, ...]]
  units: tuple[int, ...]
  wide: bool
  work: int            # of what it was made for
  needs: tuple[UOp, ...] = ()   # ``fits`` as conditions


def in_units(sizes: Sequence[ix.Size], units: Sizes) -> Callable[[Sequence[int]], tuple[int, ...]]:
  """A function from sizes to how many ``units`` each has."""
  return evaluator(tuple([ix.fdiv(UOp(Ops.SIZE, ix.INT, (), s), unit) for s, unit in zip(sizes, units)]), tuple(sizes))


def with_sizes(kernel: Kernel, new: Sequence[UOp]) -> Kernel:
  """The kernel with other expressions for its sizes."""
  table = dict(zip([UOp(Ops.SIZE, ix.INT, (), s) for s in kernel.sizes], new))
  def known(n: ix.Dim) -> ix.Dim: return n if isinstance(n, int) else ix.number(substitute((n,), table)[0])
  params = tuple([replace(p, shape=tuple(map(known, p.shape))) for p in kernel.params])
  return kernel.with_(
    params=params, axes=seen_by(kernel.axes, table), body=substitute(kernel.body, table), needs=substitute(kernel.needs, table)
  )


class Variants(Program):
  """Variants of a kernel with run-time sizes, and what tells which of them is for certain sizes.

  ``extents`` are the elements of buffers and the values of axes, which an index has to hold; ``work`` the values of all axes;
  ``stored`` the bytes of each buffer that is written. ``strided`` says which sizes make strides; where they are multiples of
  ``unit`` and ``stream`` bytes are stored, there may be a variant for that.
  """

  def __init__(self, sizes: tuple[ix.Size, ...], extents: Sequence[ix.Dim], work: ix.Dim, stored: Sequence[ix.Dim],
               strided: tuple[int, ...], unit: int, stream: int):
    self.sizes, self.strided, self.unit, self.stream = sizes, strided, unit, stream
    self.measures = tuple(extents), work, tuple(stored)
    self.elements, self.stored = evaluator(tuple(extents), sizes), evaluator(tuple(stored), sizes)
    self.work = evaluator((work,), sizes)
    self.variants: list[Variant] = []
    self.found: Recent[Sizes, tuple[Program, Sizes]] = Recent(4096)

  @property
  def spec(self) -> ProgramSpec:
    """Of the variant that was made last."""
    spec: ProgramSpec = self.variants[-1].program.spec  # type: ignore[attr-defined]
    return spec

  def __call__(self, buffers: Sequence[Raw], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Launch the variant for these sizes, one for each of the kernel's ``sizes``."""
    program, given = self.found[sizes] or self.variant(sizes)
    return program(buffers, wait, given)

  def variant(self, sizes: Sizes) -> tuple[Program, Sizes]:
    """The program for sizes, and what it is launched with."""
    found = self.found[sizes]
    if found is None:
      v = self.chosen(sizes, *self.wanted(sizes), max(*self.work(sizes), 1))
      found = self.found[sizes] = v.program, v.given(sizes)
    return found

  def wanted(self, sizes: Sizes) -> tuple[Sizes, bool]:
    """What is best for sizes: what each is a multiple of, and whether an index has to have 64 bits."""
    wide = max(*self.elements(sizes), *sizes) >= WIDE
    if not self.strided or self.stream and max(self.stored(sizes), default=0) < self.stream: return (1,) * len(sizes), wide
    return tuple([self.unit if i in self.strided and n % self.unit == 0 else 1 for i, n in enumerate(sizes)]), wide

  def chosen(self, sizes: Sizes, units: Sizes, wide: bool, work: int) -> Variant:
    """The variant for sizes, of which ``wanted`` says ``units`` and ``wide``."""
    raise NotImplementedError

  def ready(self) -> None:
    """Variants are compiled when they are launched; wait for those that there are."""
    for v in self.variants: v.program.ready()


class SizedProgram(Variants):
  """A kernel with run-time sizes on a device, in as many variants as the sizes that it has met need.

  ``make`` compiles a kernel whose sizes have their final form: it gives the program, and the conditions on these sizes that its
  Opts need.
  """

  def __init__(self, kernel: Kernel, device: Device, make: Callable[[Kernel], tuple[Program, tuple[UOp, ...]]]):
    self.kernel, self.make, target = kernel, make, device.renderer.target
    # where vectors are any place's, only those that are stored past the cache need to begin at multiples
    strides = sizes_of([n for p in kernel.params if target.blocks or p.written for n in p.shape[1:]])
    strided = tuple([i for i, s in enumerate(kernel.sizes) if s in strides])   # those that make strides
    unit = max(ALIGNED // min([p.dtype.itemsize for p in kernel.params], default=1), 1) if target.blocks else UNIT
    grid = [a.size for a in kernel.of_kind(AxisKind.GRID)]
    values = [a.size for a in kernel.axes if not a.varies]
    extents = [*[ix.product(p.shape) for p in kernel.params], *values, ix.product(grid)]
    stored = [ix.times(ix.product(p.shape), p.dtype.itemsize) for p in kernel.params if p.written]
    super().__init__(kernel.sizes, extents, ix.product(values), stored, strided, unit, 0 if target.blocks else target.stream)

  def chosen(self, sizes: Sizes, units: Sizes, wide: bool, work: int) -> Variant:
    """The variant for sizes; compiled where no variant fits."""
    if units not in (patterns := {v.units for v in self.variants}) and len(patterns) >= PATTERNS - 1: units = (1,) * len(sizes)
    fit = [v for v in self.variants if v.units == units and v.wide == wide and all(v.fits(v.given(sizes)))]
    v = min(fit, key=lambda v: abs(math.log(work / v.work)), default=None)
    return self.new(sizes, units, wide) if v is None or work > max(v.work * MORE, LITTLE) else v

  def new(self, sizes: Sizes, units: Sizes, wide: bool) -> Variant:
    """Compile a variant, its Opts chosen for these sizes."""
    nodes = []
    for s, n, unit in zip(self.sizes, sizes, units):
      lower, upper = (s.lower if unit == 1 else max((s.lower or 0) // unit, 1)), s.upper
      if not wide: upper = WIDE if upper is None else min(upper, WIDE)   # shows that sums do not overflow
      if upper is not None: upper //= unit
      size = s._replace(unit=unit, lower=lower, upper=upper, hint=n // unit, wide=wide)
      nodes.append(ix.mul(UOp(Ops.SIZE, ix.INT, (), size), unit))
    program, needs = self.make(with_sizes(self.kernel, nodes))
    own = tuple([next(f for t, _ in ix.linear(n)[0] for f in ix.factors(t)).arg for n in nodes])
    given = in_units(self.sizes, units)
    v = Variant(program, evaluator(needs, own), given, units, wide, max(*self.work(sizes), 1), needs)
    assert all(v.fits(given(sizes))), f"{program} needs other sizes than {sizes}, which it was made for"
    self.variants.append(v)
    return v
