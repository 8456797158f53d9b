"""Opts for a kernel with run-time sizes: those that are good for its *twin*, the same kernel with numbers in their place.

    a0:N GRID, N about 4096      twin a0:4096 GRID     a0.vectorize(8), a0.serial(256)
                                 ->                    a0.serial(2048), a1.peel(8), a1.vectorize(8)

Where an Opt divides an axis and the size need not be a multiple, the axis becomes two loops, or its last vector starts earlier,
or it gets masks. What depends on the numbers all the same (a panel in local memory) is noted in ``Kernel.needs``.
"""
from __future__ import annotations

from dataclasses import fields, replace
from typing import Callable, Iterable, Iterator

from .. import index as ix
from ..ir import BinaryOps, OptError, Target, UOp, power_of_two
from ..kernel import Axis, AxisKind, Kernel, substitute
from ..opts import Block, CacheRead, Cover, Opt, Pad, Peel, Serial, ShiftInwards, Split, Swizzle
from ..opts.axes import Unroll, Upcast, UpcastInwards, Vectorize
from ..opts.base import PREFIX, SizedOpt
from ..opts.memory import most_along
from .candidates import note_refusal
from .cpu_panels import local_bytes

MULTIPLES = (512, 64), (32, 16)   # sizes from the first number on are seen as multiples of the second
ROUNDED = 64   # what a copy in local memory has room for is rounded up to about such multiples, where long sums are cut in parts
_SHARE = 64   # vectors of a program of a kernel that only maps elements, where the twin leaves it open


def _about(size: UOp) -> int:
  """The number that a twin has for a size: its hint, of longer ones the next multiple, which heuristics like: 1000 -> 1024."""
  unit, n = size.arg.unit, max(ix.hint(size), 1) * size.arg.unit
  step = next((s for least, s in MULTIPLES if n >= least and s % unit == 0), unit)
  return -(-n // step) * step // unit


def size_divisors(kernel: Kernel) -> tuple[UOp, ...]:
  """What is divided by, where that depends on run-time sizes."""
  divide = BinaryOps.IDIV, BinaryOps.MOD
  return tuple(dict.fromkeys(u.src[1] for u in kernel.nodes if u.arg in divide and ix.has_sizes(u.src[1])))


def with_numbers(kernel: Kernel) -> Kernel:
  """The twin of a kernel: each run-time size about what it is, or exactly that where a divisor would not be positive else."""
  sizes = [s.node for s in kernel.sizes]
  table = {u: ix.const(_about(u)) for u in sizes}
  by = substitute(size_divisors(kernel), table)
  if any(ix.vmin(d) < 1 for d in by): table = {u: ix.const(max(ix.hint(u), 1)) for u in sizes}
  def known(n: ix.Dim) -> ix.Dim: return n if isinstance(n, int) else max(ix.count(substitute((n,), table)[0]), 1)
  # an axis of several elements stays one: its RANGE must not vanish
  def numbered(a: Axis) -> Axis:
    return replace(a, size=max(ix.count(known(a.size)), 2), most=-(-max(most_along(a), 2) // ROUNDED) * ROUNDED)
  axes = tuple(a if isinstance(a.size, int) else numbered(a) for a in kernel.axes)
  ranges = {a.rng: b.rng for a, b in zip(kernel.axes, axes) if a is not b}
  params = tuple(replace(p, shape=tuple(map(known, p.shape))) for p in kernel.params)
  return kernel.with_(params=params, axes=axes, body=substitute(kernel.body, {**table, **ranges}), needs=())


def as_twin(kernel: Kernel, target: Target, choose: Callable[[Kernel], Kernel]) -> Kernel:
  """A kernel after the Opts that ``choose`` gives for a target; with run-time sizes after those for its twin."""
  if not kernel.sizes: return choose(kernel)
  twin = with_numbers(kernel)
  return _Replay(kernel, twin, target).run(choose(twin).applied[len(kernel.applied):])


class _Replay:
  """The Opts of a twin applied to a kernel with run-time sizes."""

  def __init__(self, kernel: Kernel, twin: Kernel, target: Target):
    self.kernel, self.twin, self.target = kernel, twin, target
    self.ids = {a.id: a.id for a in kernel.axes}   # of the twin's axes -> of the kernel's
    self.done: set[Opt] = set()                    # of the twin's, applied together with others
    self.shared: set[int] = set()                  # axes whose values programs go through in a loop of vectors; left are programs

  def run(self, opts: Iterable[Opt]) -> Kernel:
    """Apply what each of the twin's Opts means; what does not go without its numbers is left out."""
    opts = list(opts)
    for n, opt in enumerate(opts):
      before, self.twin = self.twin.counts, opt.apply(self.twin)
      new = [a.id for a in self.twin.axes if a.id not in before]
      mine, kernel = self.mine(opt), self.kernel
      if mine is None or opt in self.done: continue
      had = {a.id for a in kernel.axes}
      try:
        for step in self.steps(mine, before, opt, opts[n + 1:]):
          kernel = step.apply(kernel)
          if isinstance(step, CacheRead) and local_bytes(kernel) > self.target.local_memory: kernel = self.kernel
      except OptError as e:
        if not self.kernel.free: note_refusal(self.kernel, e)   # one for all sizes goes without what needs something of them
        continue
      self.kernel = kernel
      # of several new axes the last is the one that the Opt itself makes
      if new and (made := [a.id for a in kernel.axes if a.id not in had]): self.ids[new[0]] = max(made)
    return self.kernel

  def mine(self, opt: Opt) -> Opt | None:
    """An Opt with the kernel's own axes; None where one of them was not made."""
    named = {f.name: self.ids.get(getattr(opt, f.name)) for f in fields(opt) if PREFIX.get(f.name) == "a"}
    return None if None in named.values() else replace(opt, **named) if named else opt

  def steps(self, opt: Opt, sizes: dict[int, int], twins: Opt, later: list[Opt]) -> Iterator[Opt]:
    """What an Opt of the twin, whose axes had these sizes before it, is for the kernel."""
    if not isinstance(opt, SizedOpt) or not isinstance(twins, SizedOpt):
      yield opt
      return
    axis, size = self.kernel.axis(opt.axis), sizes[twins.axis]
    n = opt.n or size
    if type(opt) is Serial and opt.n is None and axis.kind is AxisKind.GRID and isinstance(axis.size, UOp):
      yield replace(opt, n=power_of_two(max(size, _SHARE)))   # one program of what is as short; more where it is longer
    elif type(opt) is Split and axis.kind is AxisKind.GRID and not ix.divides(n, axis.size): return
    elif type(opt) in (Serial, Split): yield opt
    elif axis.id in self.shared: return
    elif isinstance(axis.size, int) or opt.n is not None and ix.divides(n, axis.size): yield opt
    elif isinstance(opt, Block):
      # the twin's block may be larger: its sizes are multiples
      yield Cover.of(axis) if n >= size and axis.id in self.kernel.bound else replace(opt, n=n)
    elif isinstance(opt, Swizzle): return
    elif isinstance(opt, (Vectorize, ShiftInwards, Upcast, Unroll)): yield from self.copies(opt, axis, n, twins, later)
    else:
      yield Pad(axis.id, n)
      yield replace(opt, n=n)

  def copies(self, opt: SizedOpt, axis: Axis, n: int, twins: SizedOpt, later: list[Opt]) -> Iterator[Opt]:
    """Lanes and copies of an axis that they may not divide."""
    kernel, id = self.kernel, axis.id
    kind = Vectorize if isinstance(opt, ShiftInwards) else type(opt)
    if axis.kind is AxisKind.LOOP and (id in kernel.bound or kernel.in_place):
      yield Peel(id, n)
      yield kind(id, n)
    elif (kernel.bound and not kernel.in_place or axis.kind is not AxisKind.GRID) and \
      not (kernel.free and kind is Vectorize):
      if axis.count >= n: yield (UpcastInwards if kind is Upcast else ShiftInwards)(id, n)   # the twin has two for one
    else:   # neighbouring elements by one program, in a loop over whole vectors, and one over what is left
      share = next((o for o in later if isinstance(o, Serial) and o.axis == twins.axis), None)
      if share is not None: self.done.add(share)
      yield Serial(id, n * (share.n if share is not None and share.n else _SHARE))
      inner = max(a.id for a in kernel.axes) + 1
      yield Peel(inner, n)
      yield kind(inner, n)
      self.shared.add(id)
