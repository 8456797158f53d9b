"""A dot product by hand, with its loop and without: golden listings and sources, and what every renderer takes.

``tests/examples/test_documents.py`` compares the listing with that of tinygrad's notes.
"""
from __future__ import annotations

from typing import Callable

import pytest

from ntgrad import Tensor
from ntgrad.backends import render
from ntgrad.codegen.ir.uop import BinaryOps, Ops
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.schedule import create_schedule


def walk(upcast: bool, capsys: pytest.CaptureFixture[str]) -> tuple[Linearizer, str]:
  """The script; what ``print`` showed."""
  capsys.readouterr()
  a = Tensor([1, 2, 3, 4]).realize()
  b = Tensor([5, 6, 7, 8]).realize()
  k = Linearizer(create_schedule([a.dot(b)])[-1].ast)
  if upcast: k.upcast()
  k.linearize()
  k.uops.print()
  return k, capsys.readouterr().out.rstrip("\n")


def test_without_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
  k, out = walk(True, capsys)
  ops = [u.op for u in k.uops]
  assert not {Ops.LOOP, Ops.ENDLOOP, Ops.DEFINE_ACC, Ops.PHI} & set(ops)
  loads = [u for u in k.uops if u.op is Ops.LOAD]
  assert (
    len(loads) == 8
    and all(u.src[1].op is Ops.CONST for u in loads)
    and sorted(u.src[1].arg for u in loads) == [0, 0, 1, 1, 2, 2, 3, 3]
  )
  muls, adds = ([u for u in k.uops if u.op is Ops.ALU and u.arg is fn] for fn in (BinaryOps.MUL, BinaryOps.ADD))
  assert len(muls) == 4 and len(adds) == 3 and ops.count(Ops.STORE) == 1
  assert all(later.src[0] is earlier for earlier, later in zip(adds, adds[1:]))   # a chain, in index order


@pytest.mark.parametrize("upcast", [False, True], ids=["loop", "upcast"])
def test_listing_and_source(upcast: bool, capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]) -> None:
  k, out = walk(upcast, capsys)
  golden(f"dot_{'upcast' if upcast else 'loop'}", f"# linear UOps\n{out}\n\n# OpenCL\n{render('opencl', 'dot', k.uops)}")


@pytest.mark.parametrize("target", ["opencl", "numpy"])
def test_every_renderer_takes_it(target: str, capsys: pytest.CaptureFixture[str]) -> None:
  for upcast in (False, True): assert isinstance(render(target, "dot", walk(upcast, capsys)[0].uops), str)


def test_realising_gives_the_number() -> None:
  a = Tensor([1, 2, 3, 4]).realize()
  assert a.dot(Tensor([5, 6, 7, 8])).item() == 70
