"""Rendered kernels as records: the forms of what a disk cache keeps of them, and what must be so of one that was read."""
# ruff: noqa: F403, F405 - forms are those of records.py
from __future__ import annotations

from math import prod

from ntgrad.codegen.choose.bound import Operations, Unit, Work
from ntgrad.codegen.index import evaluator
from ntgrad.codegen.index.records import *

from .base import KernelSource, ProgramSpec, grid_of

MOST = 1 << 16   # work-items of a group, and what else no device has more of
OPTIONS = Sequence(TupleForm(STR, INT))
SOURCE = Object(
  KernelSource, text=TEXT, signature=Sequence(TupleForm(STR, STR)), options=OPTIONS, helpers=Sequence(TEXT),
  parts=Sequence(TupleForm(Between(0), Between(1))), kernel=TupleForm(TEXT, TEXT), weight=FLOAT, sizes=Sequence(DTYPE))
WORK = Object(Work, bytes=DIM, beside=DIM, axes=Sequence(DIM),
              operations=Sequence(Object(Operations, unit=OneOf({u.value: u for u in Unit}), dtype=STR, count=DIM)))
SPEC = Object(   # without its UOps, and its label, which is another one in every process
  ProgramSpec, name=STR, source=SOURCE, grid=Sequence(DIM), local=COUNTS, nparams=Between(0, MOST), work=WORK,
  options=OPTIONS, sizes=Sequence(SIZE))


def check(spec: ProgramSpec) -> None:
  """Raises RecordError, or what its expressions raise, for a kernel that no renderer makes."""
  source, count = spec.source, len(spec.sizes)
  if not spec.name.isidentifier() or len(spec.grid) > 3 or len(spec.local) > 3:
    raise RecordError(f"{spec.name!r:.80} is no kernel")
  if not 1 <= prod(spec.local) <= MOST: raise RecordError(f"{spec.name}: groups of {spec.local} work-items")
  if source.sizes and len(source.sizes) != count or any(slot >= spec.nparams for slot, _ in source.parts):
    raise RecordError(f"{spec.name}: its source has other parameters than it")
  if source.signature and len(source.signature) - count - len(source.parts) > spec.nparams:
    raise RecordError(f"{spec.name}: {len(source.signature)} parameters for {spec.nparams} buffers")
  grid_of(spec)
  if not all(isinstance(n, int) for n in spec.work.numbers): evaluator(spec.work.numbers, spec.sizes)
