"""Opts: what each makes of a small kernel, what it refuses, its text and JSON, and what the search tries from there."""
from __future__ import annotations

import ast
import json
import random
import traceback
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Callable, Iterable

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.codegen import index as ix, opts
from ntgrad.codegen.choose.cpu import optimize
from ntgrad.codegen.explain.printing import index_form
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.errors import OptError, VerifyError
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.ir.uop import Ops, UOp, prod
from ntgrad.codegen.kernel import Axis, AxisKind, Kernel, reads_its_place
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.opts import (
  OPTS,
  Block,
  CacheRead,
  Cover,
  Fuse,
  Local,
  NonTemporal,
  Opt,
  Pad,
  Parallel,
  Peel,
  Persistent,
  Reorder,
  Serial,
  ShiftInwards,
  Split,
  SplitInwards,
  Stages,
  Swizzle,
  TensorDescriptor,
  Unroll,
  Upcast,
  UpcastInwards,
  Vectorize,
  Warps,
  read_opt,
)
from ntgrad.codegen.passes.additions import MOST_ADDITIONS, additions, limit_additions
from ntgrad.codegen.passes.parts import Parts
from ntgrad.codegen.passes.statements import split_statements
from ntgrad.codegen.verify.forms import verify_index
from ntgrad.engine.compile import chosen_for, options
from ntgrad.engine.device import default_device, get_device
from ntgrad.engine.search import changed
from ntgrad.schedule import create_schedule
from support.kernels import GRAPHS, contents, kernels, launch, spec
from support.opts import drawn
from support.statements import Builder, for_

E = Tensor.empty
Golden = Callable[[str, str], None]


def kernel(t: Tensor) -> Kernel:
  k = create_schedule([t])[-1].ast
  assert k is not None
  return k


def after(k: Kernel, steps: Iterable[Opt]) -> Kernel: return Parts.of(k).after([steps]).kernel


def elements() -> Kernel: return kernel(E(6, 10).T + 1)            # a0:10 GRID, a1:6 GRID
def rows() -> Kernel: return kernel(E(3, 10).sum(1))               # a0:3 GRID, a1:10 LOOP
def product() -> Kernel: return kernel(E(12, 6) @ E(6, 16))        # a0:12 GRID, a1:16 GRID, a2:6 LOOP
def table() -> Kernel: return kernel(E(5, 4)[E(2, dtype="int32")])  # rows of it, by an index


def adding(rows: int, width: int = 17) -> Kernel:
  """The gradient of rows taken by an index: ``out[index[i], j] += value[i, j]``."""
  x = E(5, width)
  x.requires_grad = True
  return create_schedule((x[E(rows, dtype="int32")] * E(rows, width)).sum().gradient(x))[-1].ast


def in_order() -> Kernel:
  """Rows are set in the order of an index with two axes, each of several columns."""
  x = E(5, 4)
  x[E(2, 3, dtype="int32")] = E(2, 3, 4)
  k = next(i.ast for i in create_schedule([x]) if i.ast.sequential)
  return k if len(k.sequential) > 1 else Split(next(iter(k.sequential)), 3).apply(k)


def shared() -> Kernel:
  """An axis that a reduction binds is gone through again by a STORE that adds, another is not."""
  b = Builder()
  j, k = b.loop(5), b.loop(3)
  out, x, y = b.param((5,), written=True), b.param((5, 3)), b.param((5,))
  return b.kernel(out.set(j, out[j] + x[j, k].sum(j, k) * y[j]))


def program() -> Kernel:
  """A FOR adds up rows in a variable."""
  b = Builder()
  g, k = b.grid(4), b.loop(6)
  out, x = b.param((4,), written=True), b.param((4, 6))
  total = b.variable()
  return b.kernel(total.set((), 0), for_(k, total.set((), total[()] + x[g, k])), out.set(g, total[()]))


def two_statements() -> Kernel:
  """The sum of a row in a variable, then stored."""
  b = Builder()
  g, i = b.grid(4), b.loop(6)
  out, x, total = b.param((4,), written=True), b.param((4, 6)), b.variable()
  return b.kernel(total.set((), x[g, i].sum(i)), out.set(g, total[()]))


# with run-time sizes; an axis of 16 * M values is one that 16 divides
def size(name: str, hint: int = 100, unit: int = 1) -> UOp:
  return ix.mul(UOp(Ops.SIZE, ix.INT, (), ix.Size(name, 1, unit=unit, hint=hint)), unit)


def sized(unit: int = 1) -> Kernel:
  """out[i, j] = x[j, i] + 1"""
  b = Builder()
  i, j = b.grid(size("M", unit=unit)), b.grid(size("N", unit=unit))
  out, x = b.param((i.size, j.size), written=True), b.param((j.size, i.size))
  return b.kernel(out.set((i, j), x[j, i] + 1.0))


def sized_rows() -> Kernel:
  """out[i] = the sum of x[i, k]"""
  b = Builder()
  i, k = b.grid(size("M")), b.loop(size("K"))
  out, x = b.param((i.size,), written=True), b.param((i.size, k.size))
  return b.kernel(out.set(i, x[i, k].sum(k)))


def sized_product() -> Kernel:
  """out = x @ y"""
  b = Builder()
  i, j, k = b.grid(size("M")), b.grid(size("N")), b.loop(size("K"))
  out, x, y = b.param((i.size, j.size), written=True), b.param((i.size, k.size)), b.param((k.size, j.size))
  return b.kernel(out.set((i, j), (x[i, k] * y[k, j]).sum(k)))


def uneven() -> Kernel:
  """Programs of 8 elements each, the last of fewer: the size of a2 varies with a0."""
  return Serial(0, 8).apply(sized())


def sized_adding() -> Kernel:
  """out[at[k]] += x[k], one k after the other"""
  b = Builder()
  k = b.loop(size("K"))
  out, x, at = b.param((5,), written=True), b.param((k.size,)), b.param((k.size,), dtypes.int32)
  store = out.set(at[k], x[k])
  return b.kernel(store.replace(store.src, arg=("add", (k.id,))))


def ordered(k: Kernel) -> list[int]: return [a.id for a in k.axes if a.id in k.sequential]
def written(k: Kernel) -> int: return next(p.slot for p in k.params if p.written)
def indices(k: Kernel) -> int: return next(p.slot for p in k.params if p.dtype.kind == "i")


# ---- what each makes of a kernel

STEPS: list[tuple[Callable[[], Kernel], list[Opt]]] = [
  (rows, [Split(1, 5)]),
  (elements, [Upcast(1, 2)]),
  (elements, [Upcast(1)]),
  (rows, [Unroll(1, 5)]),
  (product, [Vectorize(1, 8)]),
  (rows, [Vectorize(1, 2)]),
  (elements, [ShiftInwards(0, 8)]),
  (rows, [ShiftInwards(1, 4)]),
  (lambda: kernel(E(9, 10) @ E(10)), [ShiftInwards(1, 4)]),
  (elements, [Local(0, 5)]),
  (elements, [Serial(0, 5)]),
  (elements, [Serial(0)]),
  (elements, [Block(0, 4)]),
  (rows, [Block(1, 16)]),
  (product, [Fuse(0, 1)]),
  (rows, [Pad(1, 4)]),
  (elements, [Pad(0, 4)]),
  (product, [Reorder(1, first=True)]),
  (product, [Reorder(0, first=False)]),
  (product, [Serial(1, 5), Reorder(3, first=True)]),
  (product, [Serial(1, 5), Reorder(1, first=False)]),
  (elements, [Serial(0), Parallel(0)]),
  (product, [Swizzle(0, 4)]),
  (product, [Swizzle(0)]),
  (product, [Persistent(7)]),
  (product, [Vectorize(1, 8), Serial(0), CacheRead(2, 3)]),
  (product, [Serial(0, 4), CacheRead(1, 2, each_round=True)]),
  (product, [Vectorize(1, 8), CacheRead(2, 3), Split(2, 3)]),
  (product, [Local(1, 8), CacheRead(1, 2)]),
  (elements, [NonTemporal(0)]),
  (product, [TensorDescriptor(1)]),
  (elements, [Warps(8)]),
  (elements, [Stages(3)]),
  # run-time sizes
  (sized_rows, [Split(1, 512)]),
  (lambda: sized(16), [Vectorize(1, 8)]),
  (sized, [ShiftInwards(1, 8)]),
  (sized_rows, [ShiftInwards(1, 8)]),
  (sized, [UpcastInwards(0, 4)]),
  (elements, [UpcastInwards(0, 4)]),
  (elements, [SplitInwards(0, 4)]),
  (lambda: kernel(E(9, 10) @ E(10, 21)), [SplitInwards(1, 16), Vectorize(3, 8), Upcast(3), SplitInwards(0, 4)]),
  (elements, [Serial(0, 4)]),
  (sized, [Serial(1, 64)]),
  (sized, [Serial(1)]),
  (sized, [Block(1, 64)]),
  (sized_rows, [Cover(1, 128)]),
  (sized, [Fuse(0, 1)]),
  (sized_rows, [Pad(1, 4)]),
  (rows, [Peel(1, 4)]),
  (rows, [Peel(1, 3)]),
  (sized_rows, [Peel(1, 8)]),
  (sized, [Serial(1, 64), Peel(2, 8)]),
  (lambda: sized(16), [Swizzle(0, 8)]),
  (sized_product, [ShiftInwards(1, 8), Serial(0), CacheRead(2, 3)]),
  (sized_product, [Persistent(132)]),
]


@pytest.mark.parametrize("cls", OPTS.values(), ids=list(OPTS))
def test_before_and_after(cls: type[Opt], golden: Golden) -> None:
  """The index form before and after lists of Opts that end with one of this class."""
  parts = []
  for make, steps in STEPS:
    if type(steps[-1]) is not cls: continue
    before = after = make()
    for o in steps: after = o.apply(after)
    assert after.applied == tuple(steps) and before.applied == ()
    verify_index(after, "k")
    told = "".join(f"\ntold   {name}={n}" for name, n in options(after))
    parts.append(f"{index_form(before)}\n-> {' '.join(map(str, steps))}\n{index_form(after)}{told}")
  assert parts
  golden(f"opts/{cls.name}", "\n\n".join(parts))


def test_what_peel_leaves_over_has_its_own_comparisons() -> None:
  """One that always holds in the main part need not hold in the rest."""
  x = E(17).pad(((0, 1),))
  k = Serial(0).apply(kernel(x + x.flip(0)))
  data = contents(k, np.random.default_rng(0), True)
  want = launch(get_device("NUMPY"), [spec(k, "k")], k, data)[0]
  got, = launch(get_device("NUMPY"), [spec(Peel(0, 4).apply(k), "k")], k, data)
  for g, w in zip(got, want): np.testing.assert_array_equal(g, w)


def test_long_sums_of_persistent_programs_are_cut() -> None:
  k = Persistent(3).apply(kernel(E(9, 1020).sum(1)))
  assert all(additions(limit_additions(k), u) <= MOST_ADDITIONS for u in limit_additions(k).reduces)


# ---- what each refuses

def cached() -> Kernel: return CacheRead(2, 1).apply(Serial(0).apply(product()))
def blocks() -> Kernel: return Block(0, 4).apply(product())


REFUSED: list[tuple[Callable[[], Kernel], Callable[[Kernel], Opt], str]] = [
  # any Opt on axes
  (rows, lambda k: Upcast(7, 2), r"a7\.upcast\(2\): the kernel has axes a0:3 GRID, a1:10 LOOP"),
  (lambda: Persistent(2).apply(elements()), lambda k: Block(0, 2), r"persistent programs \(a0:60 LOOP/2\) are the last step"),
  (lambda: Persistent(2).apply(elements()), lambda k: CacheRead(1, 0), "are the last step"),
  (program, lambda k: Split(1, 2), "a FOR goes through a1:6 LOOP, as it is written"),
  (lambda: kernel(E(4, 6).cumsum(1)), lambda k: Vectorize(0, 2), "the kernel has a SCAN in a value; the pass scans"),
  (lambda: kernel(E(4, 6).argsort(1)), lambda k: Vectorize(0, 2), "the kernel has a SORTED in a value; the pass sorts"),
  *[
    (lambda o=o: o.apply(elements()), lambda k, again=again: again, f"axis a0:10 {kind} is expanded already")  # type: ignore[misc]
    for o, kind in ((Upcast(0), "UPCAST"), (Vectorize(0), "LANE"), (Local(0), "LOCAL"), (Block(0), "TILE"))
    for again in (Split(0, 2), Upcast(0, 2), Serial(0), Serial(0, 2), Block(0, 2), Parallel(0), ShiftInwards(0, 4))
  ],
  *[
    (cached, lambda k, o=o: o, "a copy in local memory is laid out; cache_read comes later")  # type: ignore[misc]
    for o in (Unroll(2, 2), Upcast(1, 2), Vectorize(1, 4), ShiftInwards(1, 3), Block(2, 2), Local(0, 2), Upcast(0, 2))
  ],
  # parts of an axis
  *[
    (elements, lambda k, c=c: c(0, 4), "4 does not divide the axis a0:10 GRID; pad it first")  # type: ignore[misc]
    for c in (Split, Upcast, Vectorize, Local)
  ],
  (elements, lambda k: Unroll(0, 2), "only a reduced axis is unrolled; upcast an output axis"),
  (rows, lambda k: Upcast(1, 2), "a reduced axis is unrolled, not upcast"),
  (rows, lambda k: Local(1, 2), "a reduced axis has no work-items"),
  (lambda: Vectorize(0, 2).apply(elements()), lambda k: Vectorize(1, 2), "the kernel has a LANE axis already"),
  (lambda: Vectorize(0, 2).apply(elements()), lambda k: ShiftInwards(1, 4), "the kernel has a LANE axis already"),
  *[
    (lambda: adding(4), lambda k, c=c: c(*k.sequential, 2), "is gone through in order")  # type: ignore[misc]
    for c in (Vectorize, Unroll, Serial, Block, ShiftInwards, SplitInwards)
  ],
  (lambda: adding(4), lambda k: Serial(*k.sequential), "is gone through in order"),
  (elements, lambda k: ShiftInwards(1, 8), "the axis a1:6 GRID is shorter than 8"),
  (lambda: adding(1), lambda k: ShiftInwards(k.axes[0].id, 8), "the kernel writes what it reads"),
  (lambda: adding(4), lambda k: ShiftInwards(next(a.id for a in k.axes if a.size == 17), 8), "the kernel writes what it reads"),
  (
    lambda: elements().with_(axes=(Axis(7, 1, AxisKind.GRID), *elements().axes)),
    lambda k: Pad(7, 4),
    "a7:1 GRID has one element, which no",
  ),
  # several axes
  (elements, lambda k: Fuse(0, 0), "another axis of the kernel is fused with a0:10 GRID"),
  (elements, lambda k: Fuse(0, 5), "the kernel has axes a0:10 GRID, a1:6 GRID"),
  (rows, lambda k: Fuse(0, 1), "a0:3 GRID and a1:10 LOOP are not gone through alike"),
  (lambda: Serial(0).apply(rows()), lambda k: Fuse(0, 1), "a0:3 LOOP and a1:10 LOOP: a reduction binds one of them only"),
  (lambda: Serial(0).apply(cached()), lambda k: Fuse(0, 1), "not gone through alike"),
  (shared, lambda k: Fuse(0, 1), "what is stored varies with one of them only, and would be stored several times"),
  (in_order, lambda k: Fuse(*ordered(k)), "one is gone through in order"),
  (in_order, lambda k: Reorder(ordered(k)[1], first=True), "axes that are gone through in order would change it"),
  (in_order, lambda k: Reorder(ordered(k)[0], first=False), "axes that are gone through in order would change it"),
  # programs
  (rows, lambda k: Parallel(1), "a reduced axis cannot be spread over programs"),
  (lambda: adding(4), lambda k: Parallel(*k.sequential), "cannot be spread over programs"),
  (rows, lambda k: Swizzle(1, 2), "a1:10 LOOP is not an axis of programs"),
  (elements, lambda k: Swizzle(0, 4), "4 does not divide the axis a0:10 GRID"),
  (program, lambda k: Persistent(2), "the kernel's statements are in an order, each program goes through them once"),
  (elements, lambda k: Persistent(60), "the kernel has 60 programs; at least one and fewer than that can be persistent"),
  (lambda: Local(0, 2).apply(elements()), lambda k: Persistent(2), "programs with work-items cannot be persistent"),
  # memory
  (
    lambda: next(split_statements(Local(0, 2).apply(two_statements())).all()).kernel,
    lambda k: CacheRead(1, 1),
    "one statement of several that work-items go through, each at its own pace",
  ),
  (blocks, lambda k: CacheRead(1, 2), "the kernel has blocks, which are read at once"),
  (elements, lambda k: CacheRead(1, 0), "a program reads one element of data1, there is nothing to copy first"),
  (
    lambda: Upcast(0, 2).apply(table()),
    lambda k: CacheRead(indices(k), 0),
    "says where to read or write, and is read where that is done",
  ),
  (lambda: Upcast(0, 2).apply(table()), lambda k: CacheRead(indices(k), 0, each_round=True), "says where to read or write"),
  (product, lambda k: CacheRead(1, 1), "no read of data1 goes along a1"),
  (product, lambda k: CacheRead(9, 1), "no read of data9 goes along a1"),
  (cached, lambda k: CacheRead(2, 2), "data2 is copied to local memory already"),
  (product, lambda k: NonTemporal(1), "the kernel has no STORE to data1 that needs no order"),
  (program, lambda k: NonTemporal(0), "the kernel has no STORE to data0 that needs no order"),
  (lambda: adding(1), lambda k: NonTemporal(written(k)), "depends on what was there, which is read"),
  (lambda: adding(4), lambda k: NonTemporal(written(k)), "depends on what was there, which is read"),
  (lambda: adding(4), lambda k: TensorDescriptor(written(k)), "neither reads nor writes data0 one element a place"),
  (product, lambda k: TensorDescriptor(7), "neither reads nor writes data7 one element a place"),
  # run-time sizes
  (sized, lambda k: Vectorize(1), r"a1\.vectorize\(\): the size of a1:N GRID is no number"),
  (sized, lambda k: Upcast(1, 4), "4 does not divide the axis a1:N GRID; pad it first"),
  (sized, lambda k: Split(1, 4), "4 does not divide the axis a1:N GRID; pad it first"),
  (sized, lambda k: ShiftInwards(1), r"a1\.shift_inwards\(\): the size of a1:N GRID is no number"),
  (sized_rows, lambda k: UpcastInwards(1, 4), "a reduced axis is unrolled, not upcast"),
  (sized, lambda k: Swizzle(0, 8), "8 does not divide the axis a0:M GRID"),
  (uneven, lambda k: Parallel(2), "the size of a2:.* varies"),
  (uneven, lambda k: ShiftInwards(2, 4), "the size of a2:.* varies"),
  (uneven, lambda k: Fuse(2, 2), "another axis of the kernel is fused"),
  (uneven, lambda k: Upcast(0, 1), "the size of a2:.* varies with a0:"),
  (uneven, lambda k: Cover(2, 16), "the size of a2:.* varies"),
  (sized, lambda k: Peel(0, 4), "a0:M GRID is no loop"),
  (rows, lambda k: Peel(1, 16), "the axis a1:10 LOOP is shorter than 16"),
  (lambda: adding(4), lambda k: Peel(*k.sequential, 2), "is gone through in order"),
  (lambda: Serial(next(a.id for a in adding(4).axes if a.size == 17)).apply(adding(4)),
   lambda k: Peel(next(a.id for a in k.axes if a.size == 17), 8), "one element would be left over"),
  (lambda: Serial(1, 4).apply(rows()), lambda k: Peel(1, 2), "varies with a1"),
  (sized_adding, lambda k: Cover(0, 16), "is gone through in order"),
  (sized_adding, lambda k: Peel(0, 16), "is gone through in order"),
  (lambda: Serial(0, 1 << 20).apply(sized()), lambda k: CacheRead(1, 2), "the size of a2:.* varies"),
  (elements, lambda k: Cover(0, 16), "the size of a0:10 GRID is a number; block takes it"),
  # fields
  (rows, lambda k: Warps(6), r"warps\(6\): a program has 1, 2, 4, 8, .. warps"),
  (rows, lambda k: Upcast(0, 0), r"a0\.upcast\(0\): n is at least 1, got 0"),
  (rows, lambda k: Persistent(0), "programs is at least 1, got 0"),
  (rows, lambda k: Pad(-1, 4), "axis is at least 0, got -1"),
  (rows, lambda k: Pad("a0", 4), "Pad: axis is int, got 'a0'"),  # type: ignore[arg-type]
  (rows, lambda k: Pad(0, None), "Pad: n is int, got None"),
  (rows, lambda k: Stages(True), "n is int, got True"),  # type: ignore[arg-type]
  (rows, lambda k: Upcast(0, 2.0), r"n is int \| None, got 2.0"),
  (rows, lambda k: Reorder(0, 1), "first is bool, got 1"),  # type: ignore[arg-type]
  # JSON
  *[
    (rows, lambda k, e=e: read_opt(e), "is no Opt: a name of")  # type: ignore[misc]
    for e in (
      [],
      ["overlap", 0, 8],
      ["pad", 0],
      ["pad", 0, 4, 4],
      ["pad", 0, "4"],
      [7],
      [["pad"], 0, 4],
      7,
      None,
      "pad",
      {},
      {"pad": 1},
    )
  ],
]


@pytest.mark.parametrize("make, opt, why", REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refusals(make: Callable[[], Kernel], opt: Callable[[Kernel], Opt], why: str) -> None:
  k = make()
  with pytest.raises(OptError, match=why): opt(k).apply(k)


def test_every_refusal_has_a_test() -> None:
  """Each ``raise`` in the files of Opts is come to by one of the cases above."""
  folder = Path(opts.__file__).resolve().parent
  there = {
    (p.name, n.lineno) for p in folder.glob("*.py") for n in ast.walk(ast.parse(p.read_text())) if isinstance(n, ast.Raise)
  }
  seen = set()
  for make, opt, _ in REFUSED:
    k = make()
    try: opt(k).apply(k)
    except OptError as e: seen.add((Path((last := traceback.extract_tb(e.__traceback__)[-1]).filename).name, last.lineno))
  assert there - seen == set() and len(there) > 25


# ---- all of them

@pytest.mark.parametrize("cls", OPTS.values(), ids=list(OPTS))
def test_text_and_json(cls: type[Opt]) -> None:
  """A class is known by its name; its Opts read back from JSON, differ from others with other fields, and say what they
  change."""
  assert OPTS[cls.name] is cls and cls.__doc__ and ("→" in cls.__doc__ or cls in (Warps, Stages))
  rng, k = random.Random(cls.name), product()
  drawings = [drawn(cls, k, rng.choice) for _ in range(40)]
  for o in drawings:
    assert type(o) is cls and read_opt(json.loads(json.dumps(o.json()))) == o and f"{cls.name}(" in str(o)
  assert len(set(drawings)) == len({str(o) for o in drawings}) > 1


def test_texts() -> None:
  made = [
    Vectorize(0, 8),
    Upcast(3),
    Serial(1, 4),
    Fuse(0, 2),
    Reorder(1, first=False),
    CacheRead(1, 2),
    CacheRead(1, 2, each_round=True),
    Persistent(132),
    TensorDescriptor(0),
    NonTemporal(0),
    Warps(8),
  ]
  assert " ".join(map(str, made)) == (
    "a0.vectorize(8) a3.upcast() a1.serial(4) a0.fuse(a2) a1.reorder(first=False) data1.cache_read(a2) data1.cache_read(a2, "
    "each_round=True) "
    "persistent(132) data0.tensor_descriptor() data0.non_temporal() warps(8)"
  )
  assert Upcast(0, 2) != Unroll(0, 2) and len({Upcast(0, 2), Unroll(0, 2), Upcast(0, 2)}) == 2


TARGETS = {
  "lanes": Target("opencl", lanes=8, registers=16, cores=2, local_memory=512 << 10),
  "locals": Target("opencl", locals=True, cores=80),
  "blocks": Target("triton", cores=4, blocks=True, descriptors=True),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_neighbours_apply_or_are_refused(target: Target) -> None:
  """Two steps of the search from what the model chose: each list applies and is verified, or is refused with an OptError."""
  added: set[type[Opt]] = set()
  for make in (elements, rows, product, table, lambda: kernel(E(1024, 256) @ E(256, 1024))):
    k = make()
    start = optimize(k, target)
    front, rng = [start], random.Random(0)
    for _ in range(2):
      steps = [o for now in front for o in changed(now, target)]
      done = []
      for step in rng.sample(steps, min(len(steps), 60)):
        try: done.append(after(k, step))
        except OptError: continue
        verify_index(done[-1], "k")
        added.update(map(type, set(step) - set(start.applied)))
      assert done
      front = rng.sample(done, min(len(done), 3))
  if target.blocks: assert added == {Block, Swizzle, Persistent, TensorDescriptor, Warps, Stages}
  else: assert added >= {Upcast, Unroll, Serial, Local if target.locals else Vectorize}


@pytest.mark.parametrize("name", GRAPHS)
def test_any_opt_applies_or_is_refused(name: str) -> None:
  """Random Opts of every class on random kernels raise nothing but OptError, keep STOREs that equal no other, and leave a kernel
  that is legal."""
  rng = random.Random(name)
  for k in kernels(name):
    lone = replace(k, body=tuple([type(s).unique(s.op, s.dtype, s.src, s.arg) for s in k.body]))
    for start in (k, lone):
      now = start
      for _ in range(24):
        if not now.axes: break
        try: now = drawn(rng.choice(list(OPTS.values())), now, rng.choice).apply(now)
        except OptError: continue
      assert all(s.is_unique == start.body[0].is_unique for s in now.body)
      verify_index(now, "k")


def test_fields_are_named_as_what_they_are() -> None:
  assert {f.name for c in OPTS.values() for f in fields(c)} == {"axis", "other", "param", "n", "programs", "first", "each_round"}


# ---- effects

def test_a_row_added_is_read_and_written() -> None:
  one, four = adding(1), adding(4)
  assert all(reads_its_place(s) for k in (one, four) for s in k.body) and one.in_place and four.in_place
  assert not one.sequential and len(four.sequential) == 1
  assert not any(isinstance(o, ShiftInwards) for k in (one, four) for o in optimize(k, TARGETS["lanes"]).applied)


def test_what_is_gone_through_in_order_keeps_it() -> None:
  k = in_order()
  rest = next(x.id for x in k.axes if x.id not in k.sequential)
  moved = Reorder(rest, first=False).apply(Reorder(rest, first=True).apply(k))
  assert ordered(moved) == ordered(k) and moved.axes[-1].id == rest


@pytest.mark.parametrize("width", [9, 17, 33])
@pytest.mark.parametrize("rows", [[0], [3, 3], [0, 4, 0]])
def test_gradients_of_rows(rows: list[int], width: int) -> None:
  x = Tensor(np.ones((5, width), np.float32), requires_grad=True)
  want = np.zeros((5, width))
  np.add.at(want, rows, 1)
  np.testing.assert_array_equal(x[rows].sum().gradient(x)[0].numpy(), want)


def same(k: Kernel, *steps: Opt, device: str = "NUMPY") -> Kernel:
  """The kernel after Opts, once it has computed what the plain one does."""
  rng = np.random.default_rng(0)
  data: list[Any] = [rng.integers(-3, 4, p.shape).astype(p.dtype.np) for p in k.params]
  now = after(k, steps)
  got, want = (launch(get_device(device), [spec(x, "k")], x, data)[0] for x in (now, k))
  for g, w in zip(got, want): np.testing.assert_array_equal(g, w)
  return now


def test_lanes_that_read_nothing_are_copied_too() -> None:
  """A gate that is false for a whole vector gives one zero, which every lane of the local array gets."""
  k = kernel(E(4, 1).pad(((1, 1), (1, 4))) + 1)
  down, across = (a.id for a in k.axes)
  same(k, Upcast(across, 6), ShiftInwards(down, 4), CacheRead(1, down))


def test_a_copied_axis_is_split_in_the_copy_too() -> None:
  """Long sums are split when a kernel is made linear, after all Opts: the copy has both parts."""
  k = kernel(E(2, 8200) @ E(8200, 4))
  long, = k.bound
  now = limit_additions(same(k, Vectorize(1, 4), Serial(0), CacheRead(2, 1)))
  copy, = [u for u in now.nodes if u.op is Ops.CACHE_READ]
  assert len(now.applied) > 3 and set(copy.arg) == {r.arg[0] for r in copy.ranges} and long in copy.arg


SHARED: list[list[Opt]] = [
  [Local(1, 8), CacheRead(1, 2)],                                     # all work-items read the same
  [Local(1, 8), CacheRead(2, 2)],                                     # each its own column
  [Local(1, 8), Serial(0), CacheRead(1, 2, each_round=True)],         # made anew in each iteration
  [Local(0, 4), Local(1, 8), Serial(0, 2), CacheRead(1, 2, each_round=True), CacheRead(2, 2)],
  [Local(0, 4), Vectorize(1, 8), CacheRead(2, 4)],
  [Local(0, 8), Unroll(2), CacheRead(2, 2)],                          # no loop whose values the work-items could share
]


@pytest.mark.parametrize("device", ["NUMPY", "CPU"])
@pytest.mark.parametrize("steps", SHARED, ids=lambda steps: " ".join(map(str, steps)))
def test_work_items_share_a_copy(steps: list[Opt], device: str) -> None:
  """Each has a part of it to make, and waits for the others before and after; the oracle finds what would race."""
  if device == "CPU" and default_device() != "CPU": pytest.skip("no OpenCL device")
  same(kernel(E(16, 12) @ E(12, 24)), *steps, device=device)


def test_a_shared_copy_has_numbers_that_no_loop_changes() -> None:
  """The zeros of padding are stored where the rest of the copy is: between the barriers, in each iteration."""
  k = kernel(E(3, 4, 2).pad(((0, 0), (0, 0), (1, 3))) + 1)
  items, rows, columns = (a.id for a in k.axes)
  uops = linearize(same(k, Local(items), Serial(rows), Upcast(columns), CacheRead(1, columns, each_round=True)))
  first, last = [i for i, u in enumerate(uops) if u.op is Ops.BARRIER]
  fills = [i for i, u in enumerate(uops) if u.op is Ops.STORE and u.src[0].op is Ops.DEFINE_LOCAL]
  assert len(fills) == 6 and first < min(fills) and max(fills) < last


def test_barriers_of_a_shared_copy_are_needed() -> None:
  k = after(kernel(E(16, 12) @ E(12, 24)), SHARED[2])
  uops = linearize(k)
  waits = [i for i, u in enumerate(uops) if u.op is Ops.BARRIER]
  rows, fill, _ = [u for u in uops if u.op is Ops.LOOP]   # of the copy, work-item l makes the elements l, l + 8, ..
  assert fill.src[0].op is Ops.SPECIAL and fill.src[0].arg == ("l", 0, 8) and fill.src[2].arg == 8
  assert len(waits) == 2 and uops.index(rows) < waits[0] < uops.index(fill) < waits[1]
  data: list[Any] = [np.arange(prod(p.shape), dtype=np.float32).reshape(p.shape) for p in k.params]
  whole = spec(k, "k")
  for left_out in waits:
    racing = replace(whole, uops=tuple(u for i, u in enumerate(uops) if i != left_out))
    with pytest.raises(VerifyError, match="'cache0' .* a race"): launch(get_device("NUMPY"), [racing], k, data)


def test_padded_effects_have_gates() -> None:
  """Of an ATOMIC too: what was added to an axis is not counted."""
  b = Builder()
  i = b.grid(10)
  out, x = b.param((1,), written=True), b.param((10,))
  padded = Pad(0, 4).apply(b.kernel(out.atomic("add", 0, x[i])))
  assert [a.size for a in padded.axes] == [12] and len(padded.body[0].src) == 4
  assert "a0 < 10" in index_form(padded)


@pytest.mark.parametrize("columns, place", [(12, False), (10, False), (12, True)])
def test_rows_with_a_gap_are_read_without_a_gate(columns: int, place: bool) -> None:
  """Where the parameter has something behind the axis. What says where another access goes has a gate all the same."""
  b = Builder()
  i, j = b.grid(3), b.grid(10)
  out, x, table = b.param((3, 10), written=True), b.param((3, columns), dtypes.int32 if place else dtypes.float32), b.param((9,))
  k = b.kernel(out.set((i, j), table[UOp(Ops.CAST, dtypes.index, (x[i, j].u,))] if place else x[i, j]))
  padded = Pad(1, 4).apply(k)
  gates = [len(u.src) > 2 for u in padded.nodes if u.op is Ops.LOAD and u.src[0] is x.uop]
  assert gates == [columns == 10 or place] and len(padded.body[0].src) == 4
  data: list[Any] = [np.arange(prod(p.shape)).reshape(p.shape).astype(p.dtype.np) % 9 for p in k.params]
  data[1][:, 10:] = 10 ** 6   # no place
  plain, now = (launch(get_device("NUMPY"), [spec(x, "k")], x, data)[0][0] for x in (k, padded))
  assert (plain == now).all() and plain.any()


def test_a_padded_axis_keeps_what_is_said_of_it() -> None:
  lanes = ShiftInwards(0, 4).apply(elements())
  assert lanes.axis(2).again == 2 and Pad(2, 8).apply(lanes).axis(2) == replace(lanes.axis(2), size=8)


def test_lanes_that_start_earlier_leave_out_what_was_had() -> None:
  for t, n in ((E(3, 11).sum(1), 4), (E(3, 11).amax(1), 4), (E(9, 10) @ E(10), 4), (E(3, 12).sum(1), 4), (E(5, 7).prod(1), 3)):
    now = same(kernel(t), ShiftInwards(1, n))
    assert not any(u.op is Ops.DETACH for u in now.nodes)


LANES = Target("opencl", lanes=16, registers=32, cores=2, local_memory=512 << 10, core_cache=2 << 20)


@pytest.mark.parametrize("graph", [
  lambda: E(1000, 1000) @ E(1000, 1000), lambda: E(509, 509) @ E(509, 509), lambda: E(1000, 1000) @ E(1000, 1000).T,
  lambda: E(127, 1021) @ E(1021, 263),
])
def test_products_of_any_size_have_panels(graph: Callable[[], Tensor]) -> None:
  """Sizes that lanes and copies do not divide are cut into blocks, the last of which starts earlier."""
  best = optimize(kernel(graph()), LANES)
  assert {"split_inwards", "vectorize", "cache_read"} <= {o.name for o in best.applied}
  assert prod(a.known for a in best.of_kind(AxisKind.UPCAST)) >= 16


@pytest.mark.parametrize("graph", [
  lambda: E(2048, 256).T @ E(2048, 64), lambda: E(4096, 256).T @ E(4096, 32), lambda: E(1024, 512).T @ E(1024, 128),
  lambda: (E(32, 64, 64).permute(2, 0, 1).reshape(64, 1, 2048) * E(32, 64, 256).permute(2, 0, 1).reshape(1, 256, 2048)).sum(2),
])
def test_all_that_is_copied_fits(graph: Callable[[], Tensor]) -> None:
  """A panel that fills local memory leaves no room for the rows that go through it."""
  local = [u for u in linearize(optimize(kernel(graph()), LANES)) if u.op is Ops.DEFINE_LOCAL and u.arg[2] == "local"]
  assert 0 < sum(u.arg[1] * u.dtype.itemsize for u in local) <= LANES.local_memory


def test_rows_that_lie_apart_are_packed() -> None:
  best = optimize(kernel(E(1024, 1024).T @ E(1024, 1024)), LANES)
  assert {o.param for o in best.applied if isinstance(o, CacheRead)} == {1, 2}


def test_places_in_a_table_are_no_lanes() -> None:
  """The rows of a product that an int64 table says have the lanes of their own dtype, and are packed where each step has one."""
  rows = Tensor.empty(2048, dtype="int64")
  def width(t: Tensor) -> int: return next(o.n for o in optimize(kernel(t), LANES).applied if isinstance(o, Vectorize))
  assert width(E(1000, 128)[rows] @ E(128, 512)) == width(E(2048, 128) @ E(128, 512)) == 16
  of_weight = optimize(kernel(E(1000, 128)[rows].T @ E(2048, 512)), replace(LANES, lanes=8, registers=16))
  assert len({o.param for o in of_weight.applied if isinstance(o, CacheRead)}) == 2


@pytest.mark.parametrize("cores", [2, 16, 64])
@pytest.mark.parametrize("graph", [
  lambda: E(1000, 1000) @ E(1000, 1000), lambda: E(1024, 1024).T @ E(1024, 1024), lambda: E(65521, 64).softmax(),
  lambda: E(7, 64, 56, 56).conv2d(E(64, 64, 3, 3)),
])
def test_every_core_gets_as_much(graph: Callable[[], Tensor], cores: int) -> None:
  """The programs of a large kernel keep all cores busy to the end, or nearly so."""
  best = optimize(kernel(graph()), replace(LANES, cores=cores))
  programs = prod(a.count for a in best.of_kind(AxisKind.GRID))
  assert -(-programs // cores) * cores <= 1.2 * programs


def test_blocks_are_turned_around_in_registers() -> None:
  """A transpose reads and writes whole vectors."""
  best = optimize(kernel(E(67, 83).T.contiguous()), LANES)
  accesses = [u for u in linearize(best) if u.op in (Ops.LOAD, Ops.STORE)]
  assert len(accesses) == 32 and all((u if u.op is Ops.LOAD else u.src[2]).dtype.count == 16 for u in accesses)


def test_a_copy_is_made_of_what_a_sum_reads() -> None:
  """A weight and what is added to the product lie in one buffer: only the weight has a panel, for which there is room."""
  flat, x = Tensor.empty(160 * 160 + 128 * 160), Tensor.empty(32, 128, 160)
  item, = create_schedule([x @ flat[:25600].reshape(160, 160) + flat[25600:].reshape(128, 160)])
  assert item.ast is not None
  kernel = chosen_for(item.ast, get_device("CPU"), "product")[1].kernel
  assert sum(u.op is Ops.CACHE_READ for u in kernel.nodes) == 1
