"""Programs of kernels with run-time sizes: a few variants of one kernel, each made when sizes come that need it.

Variants differ in indices of 32 or 64 bits, in what sizes are multiples of (strides of 16 bytes, the blocks of a product, whose
loop has no masks then), in what their Opts need of the sizes (a row that is one block of 1024), and in about how much work they
do. The sizes of a launch say which variant runs.
"""
from __future__ import annotations

import itertools
import math
import operator
import re
from dataclasses import replace
from typing import Callable, Container, Iterator, NamedTuple, Sequence

from ntgrad.backends.base import Device, Program, ProgramSpec, Raw, Sizes
from ntgrad.codegen import index as ix, pipeline
from ntgrad.codegen.choose.runtime_sizes import size_divisors
from ntgrad.codegen.index import evaluator, sizes_of
from ntgrad.codegen.ir import BinaryOps, Ops, Recent, UOp, toposort
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, substitute
from ntgrad.codegen.opts.axes import seen_by

ALIGNED = 16        # bytes that strides are multiples of, for vectors and tensor descriptors of targets with blocks
UNIT = 16           # elements that strides are multiples of on other targets
PATTERNS = 4        # which sizes are multiples of what: so many combinations have variants of their own, the last for any
# elements of a buffer, or values of axes, from which on an index may not fit 32 bits: blocks and vectors go on past the last one
WIDE = (1 << 31) - (1 << 24)
_MORE = 16           # times the work that a variant was made for, from which on there is another; the square of it for a third ..
_LITTLE = 1 << 20    # values of all axes: work that any variant does
LIKELY = 128         # what a variant for any sizes is chosen for, at least
FILLED, STREAMED = 1 << 16, 1 << 24   # elements that programs which fill memory are chosen for: up to the cache, beyond it
WHOLE = 64           # elements that those are multiples of which go past the cache: vectors of any dtype
AUTOMATIC = re.compile(r"s\d+")   # a size that nobody gave a name


_Numbers = Callable[[Sequence[int]], Sizes]   # what an ``evaluator`` gives


class _Blocks(NamedTuple):
  """What each size would be a multiple of if all blocks were whole, and which sizes are those of loops."""
  of: Sizes
  loops: Sizes = ()

  def whole(self, sizes: Sizes) -> bool:
    """Whether no block of a loop is partial."""
    return bool(self.loops) and all(sizes[i] % self.of[i] == 0 for i in self.loops)


NO_BLOCKS = _Blocks(())


class Variant(NamedTuple):
  """A compiled kernel. ``fits``: whether it may be launched with sizes; ``given``: a number for each of ``ProgramSpec.sizes``."""
  program: Program
  fits: _Numbers
  given: _Numbers
  units: Sizes
  wide: bool
  work: int            # of what it was made for
  needs: tuple[UOp, ...] = ()   # ``fits`` as conditions
  blocks: _Blocks = NO_BLOCKS    # that it computes with
  free: bool = False            # whether it was made for any sizes, others not fitting


class New(NamedTuple):
  """A variant to be compiled: the sizes that Opts are chosen for; what it is for, as in Variant."""
  sizes: Sizes
  units: Sizes
  wide: bool
  blocks: _Blocks = NO_BLOCKS
  free: bool = False


def in_units(sizes: Sequence[ix.Size], units: Sizes, taken: Sequence[ix.Size]) -> _Numbers:
  """A function from numbers for ``sizes`` to how many ``units`` those have that are ``taken``, by their names: what a program is
  launched with. Of sizes whose multiples are known, it need not take all."""
  counted = {s.name: ix.fdiv(s.node, unit) for s, unit in zip(sizes, units)}
  return evaluator(tuple(counted[s.name] for s in taken), tuple(sizes))


def with_sizes(kernel: Kernel, new: Sequence[UOp]) -> Kernel:
  """The kernel with other expressions for its sizes."""
  table = dict(zip([s.node for s in kernel.sizes], new))
  def known(n: ix.Dim) -> ix.Dim: return n if isinstance(n, int) else ix.number(substitute((n,), table)[0])
  params = tuple(replace(p, shape=tuple(map(known, p.shape))) for p in kernel.params)
  return kernel.with_(params=params, axes=seen_by(kernel.axes, table), body=substitute(kernel.body, table),
                      needs=substitute(kernel.needs, table))


def names_beside(named: Container[str]) -> Iterator[str]:
  """s0, s1, .. for sizes without a name of their own, but those that others have."""
  return (name for k in itertools.count() if (name := f"s{k}") not in named)


def with_common_names(kernel: Kernel) -> tuple[Kernel, tuple[ix.Size, ...]]:
  """A kernel whose sizes without a name of their own are s0, s1, .. in the order of its params, and what it is launched with, of
  the given kernel's sizes: (s7, s2) * (s2, s4) -> (s0, s1) * (s1, s2), (s7, s2, s4). So kernels that differ in that are one."""
  own = tuple(dict.fromkeys([*[s for p in kernel.params for n in p.shape for s in sizes_of([n])], *kernel.sizes]))
  named = {s.name for s in own if not AUTOMATIC.fullmatch(s.name)}
  free = names_beside(named)
  to = {s: s._replace(name=s.name if s.name in named else next(free), hint=None) for s in own}
  back = {new: s for s, new in to.items()}
  kernel = with_sizes(kernel, [to[s].node for s in kernel.sizes])
  return kernel, tuple(back[s] for s in kernel.sizes)


class Variants(Program):
  """Variants of a kernel with run-time sizes, and the expressions that say which of them is for certain sizes: ``extents``,
  elements of buffers and values of axes, which an index has to hold; ``work``, the values of all axes; ``stored``, the bytes of
  each buffer that is written. ``strided`` says which sizes make strides: where these are multiples of ``unit``, and ``stream``
  bytes are stored, there may be a variant for that."""

  def __init__(self, sizes: tuple[ix.Size, ...], extents: Sequence[ix.Dim], work: ix.Dim, stored: Sequence[ix.Dim],
               strided: Sizes, unit: int, stream: int):
    self.sizes, self.strided, self.unit, self.stream = sizes, strided, unit, stream
    self.measures = tuple(extents), work, tuple(stored)
    self.elements, self.stored = evaluator(tuple(extents), sizes), evaluator(tuple(stored), sizes)
    self.work = evaluator((work,), sizes)
    self.variants: list[Variant] = []
    self.found: Recent[Sizes, tuple[Program, Sizes]] = Recent(4096)

  @property
  def spec(self) -> ProgramSpec:
    """Of the variant that was made last."""
    return self.variants[-1].program.spec  # type: ignore[attr-defined]

  def __call__(self, buffers: Sequence[Raw], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Launch the variant for these sizes, one for each of the kernel's ``sizes``."""
    program, given = self.found[sizes] or self.variant(sizes)
    return program(buffers, wait, given)

  def variant(self, sizes: Sizes) -> tuple[Program, Sizes]:
    """The program for sizes, and what it is launched with."""
    if (found := self.found[sizes]) is None:
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
  """A kernel with run-time sizes on a device, in as many variants as the sizes that it has seen need. ``make`` compiles a
  kernel whose sizes have their final form: it gives the program, and the conditions on these sizes that its Opts need.
  ``likely``: sizes that it is for, if they are known. What is compiled for others of about as much work is the same then."""
  likely: Sizes = ()

  def __init__(self, kernel: Kernel, device: Device, make: Callable[[Kernel], tuple[Program, tuple[UOp, ...]]]):
    self.kernel, self.make = kernel, make
    self.target = target = device.renderer.target
    # where vectors are any place's, only those that are stored past the cache need to begin at multiples
    strides = sizes_of([n for p in kernel.params if target.blocks or p.written for n in p.shape[1:]])
    strided = tuple(i for i, s in enumerate(kernel.sizes) if s in strides)   # those that make strides
    unit = max(ALIGNED // min([p.dtype.itemsize for p in kernel.params], default=1), 1) if target.blocks else UNIT
    grid = [a.size for a in kernel.of_kind(AxisKind.GRID)]
    values = [a.size for a in kernel.axes if not a.varies]
    # 20 - 4*s is the length of an axis, or divides, for some s only
    by = [d for d in size_divisors(kernel) if all(u.op in (Ops.SIZE, Ops.CONST, Ops.ALU) for u in toposort([d]))]
    self.positive = evaluator((1, *values, *by), kernel.sizes)
    extents = [*[ix.product(p.shape) for p in kernel.params], *values, ix.product(grid)]
    super().__init__(kernel.sizes, extents, ix.product(values),
                     [ix.times(ix.product(p.shape), p.dtype.itemsize) for p in kernel.params if p.written], strided, unit,
                     0 if target.blocks else target.stream)

  def chosen(self, sizes: Sizes, units: Sizes, wide: bool, work: int) -> Variant:
    """The variant for sizes; compiled where no variant fits."""
    if self.kernel.free: return self.filling(sizes)
    while isinstance(found := self.choice(sizes, units, wide, work), New):
      if all((v := self.new(*found)).fits(sizes)): return v
    return found

  def choice(self, sizes: Sizes, units: Sizes, wide: bool, work: int) -> Variant | New:
    """The variant for sizes, or the one to compile for them: it may be for ``likely`` ones, and not fit."""
    mine = [v for v in self.variants if v.wide == wide]
    near = _nearest(mine, work)
    if near is not None: units = in_blocks(sizes, units, near.blocks)
    if not self.room(units):   # what was made for other multiples
      fit = [v.units for v in mine if not any(map(operator.mod, sizes, v.units))]
      units = max(fit, key=math.prod, default=(1,) * len(sizes))
    mine = [v for v in mine if v.units == units]
    each = [v.work for v in mine if not v.free]
    more = work > max(max(each, default=0) * _MORE ** len(each), _LITTLE)
    if not more and (v := _nearest([v for v in mine if all(v.fits(sizes))], work)) is not None: return v
    usual = bool(self.likely) and not mine and self.wanted(self.likely)[1] == wide and (
      work <= max(*self.work(self.likely), _LITTLE // _MORE) * _MORE)
    blocks = self.blocks(self.likely if usual else sizes, units, wide)
    whole = in_blocks(sizes, units, blocks)
    if not self.room(whole): whole = units
    free = bool(mine) and not more and not self.target.blocks   # where blocks span sizes, each power of two has its variant
    known = (usual or free and bool(self.likely)) and not any(map(operator.mod, self.likely, whole))
    return New(self.likely if known else sizes, whole, wide, blocks, free)

  def filling(self, sizes: Sizes) -> Variant:
    """The variant of a kernel that fills memory along its only axis, of which there are three: for less than a vector, for any
    other count, and for whole vectors that go past the cache. The last vector begins earlier where it would not be whole."""
    (axis,), count = self.kernel.axes, max(*self.work(sizes), 1)
    wide, vectors = count >= WIDE, self.target.lanes > 1
    short, past = vectors and count < UNIT, 0 < self.stream <= max(self.stored(sizes)) and count % WHOLE == 0
    units = tuple([WHOLE if past and s.node is axis.size else 1 for s in self.sizes])
    for v in self.variants:
      if (v.units, v.wide, vectors and v.work < UNIT) == (units, wide, short): return v
    likely = 1 if short else STREAMED if past or self.target.blocks else FILLED
    least, most = (1, UNIT - 1) if short else (UNIT if vectors else 1, None)
    final = [f._replace(lower=-(-least // f.unit), upper=most or f.upper) if s.node is axis.size else s._replace(hint=0)
             for s, f in zip(self.sizes, self.final((likely,) * len(sizes), units, wide))]
    kernel = with_sizes(self.kernel, [ix.mul(s.node, s.unit) for s in final])
    if vectors and not short:   # a0:n -> a0:cdiv(n, 16), a1:16
      n, old = ix.node(kernel.axes[0].size), kernel.axes[0].rng
      rows, lanes = Axis(0, ix.cdiv(n, UNIT), AxisKind.GRID), Axis(1, UNIT, AxisKind.GRID)
      new = ix.add(ix.least(ix.mul(rows.rng, UNIT), ix.sub(n, UNIT)), lanes.rng)
      kernel = kernel.with_(axes=(rows, lanes), body=substitute(kernel.body, {old: new}))
    program, _ = self.make(kernel)
    given = in_units(self.sizes, units, program.spec.sizes)  # type: ignore[attr-defined]
    self.variants.append(v := Variant(program, lambda _: (), given, units, wide, count))
    return v

  def room(self, units: Sizes) -> bool:
    """Whether there are, or may be, variants for these multiples: the last that may be is for any sizes."""
    have = [v.units for v in self.variants]
    return units in have or len({*have, (1,) * len(units)}) < PATTERNS

  def chosen_for(self, sizes: Sizes, free: bool) -> Sizes:
    """What a variant's Opts are chosen for: one for any sizes, a ``free`` one, for large ones where an axis can be as long."""
    large = tuple(max(n, LIKELY) for n in sizes)
    return large if free and min(self.positive(large)) > 0 else sizes

  def new(self, sizes: Sizes, units: Sizes, wide: bool, blocks: _Blocks = NO_BLOCKS, free: bool = False) -> Variant:
    """Compile a variant, its Opts chosen for these sizes; a ``free`` one may be launched with any."""
    likely = self.chosen_for(sizes, free)
    program, needs = self.make(self.kernel_of(New(sizes, units, wide, blocks, free)))
    final, spec = self.final(likely, units, wide), program.spec  # type: ignore[attr-defined]
    counts, holds = in_units(self.sizes, units, final), evaluator(needs, tuple(final))
    given, work = in_units(self.sizes, units, spec.sizes), max(*self.work(sizes), 1)
    v = Variant(program, lambda sizes: holds(counts(sizes)), given, units, wide, work, needs, blocks, free)
    assert all(v.fits(sizes)), f"{program} needs other sizes than {sizes}, which it was made for"
    self.variants.append(v)
    return v

  def kernel_of(self, new: New) -> Kernel:
    """The kernel of a variant that is not there yet."""
    return self.kernel_for(self.chosen_for(new.sizes, new.free), new.units, new.wide).with_(free=new.free)

  def first_kernel(self, sizes: Sizes) -> Kernel:
    """The kernel of the variant that is compiled for sizes where there is none yet."""
    found = self.choice(sizes, *self.wanted(sizes), max(*self.work(sizes), 1))
    assert isinstance(found, New)
    return self.kernel_of(found)

  def free_kernel(self) -> Kernel | None:
    """The kernel of the variant for any sizes, where that will be compiled for those that the only one there is does not fit."""
    if len(self.variants) != 1 or self.target.blocks or not self.likely or not (first := self.variants[0]).needs: return None
    return self.kernel_of(New(self.likely, first.units, first.wide, free=True))

  def final(self, sizes: Sizes, units: Sizes, wide: bool) -> list[ix.Size]:
    """What a launch gives: for each size how many units it has."""
    out = []
    for s, n, unit in zip(self.sizes, sizes, units):
      lower, upper = s.lower if unit == 1 else -(-(s.lower or 0) // unit), s.upper   # 0 is a multiple of everything
      if not wide: upper = WIDE if upper is None else min(upper, WIDE)   # shows that sums do not overflow
      if upper is not None: upper //= unit
      out.append(s._replace(unit=unit, lower=lower, upper=upper, hint=n // unit, wide=wide))
    return out

  def kernel_for(self, sizes: Sizes, units: Sizes, wide: bool) -> Kernel:
    """The kernel with its sizes as multiples: K -> 64*(K/64)."""
    return with_sizes(self.kernel, [ix.mul(s.node, s.unit) for s in self.final(sizes, units, wide)])

  def blocks(self, sizes: Sizes, units: Sizes, wide: bool) -> _Blocks:
    """The blocks that the Opts for these sizes make, on a target that computes with blocks: (K + 63)//64 of them are of 64."""
    if not self.target.blocks or all(a.kind is not AxisKind.LOOP or isinstance(a.size, int) for a in self.kernel.axes):
      return _Blocks((1,) * len(sizes))
    parts = pipeline.run_passes(pipeline.prepare(self.kernel_for(sizes, units, wide), self.target), self.target, "opts", "opts")
    of, loops = {s.name: 1 for s in self.sizes}, set()
    for axis in [a for k in (parts.kernel, *[p.kernel for p in parts.all()]) for a in k.axes if isinstance(a.size, UOp)]:
      for u in toposort((axis.size,)):
        if u.op is not Ops.ALU or u.arg is not BinaryOps.IDIV: continue
        (terms, more), n = ix.linear(u.src[0]), u.src[1].arg
        if more != n - 1 or [(t.op, k) for t, k in terms] != [(Ops.SIZE, 1)]: continue
        size = terms[0][0].arg
        of[size.name] = math.lcm(of[size.name], size.unit * n)
        if axis.kind is AxisKind.LOOP: loops.add(size.name)
    return _Blocks(tuple(of.values()), tuple(i for i, name in enumerate(of) if name in loops))


def _nearest(among: Sequence[Variant], work: int) -> Variant | None:
  """The variant that was made for about so much work."""
  return among[0] if len(among) == 1 else min(among, key=lambda v: abs(math.log(work / v.work)), default=None)


def in_blocks(sizes: Sizes, units: Sizes, blocks: _Blocks) -> Sizes:
  """What sizes are multiples of, those of whole blocks where no block of a loop is partial; else ``units``."""
  if not blocks.whole(sizes): return units
  return tuple(b if n % b == 0 else unit for n, unit, b in zip(sizes, units, map(math.lcm, units, blocks.of)))
