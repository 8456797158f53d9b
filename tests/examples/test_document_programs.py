"""Each program of the documents, with the roots of its imports changed and nothing else: what it computes, what it prints."""
from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path
from typing import Any

import pytest

from ntgrad import Tensor
from ntgrad.codegen.kernel import Axis, AxisKind
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.engine.schedule import create_schedule
from ntgrad.errors import OptError
from support.documents import ADDITION, ANNOTATED, FLOATS, HAND, LISTING, METAL, PRODUCT, here


def run(program: str, folder: Path, **names: Any) -> dict[str, Any]:
  """A program as a file of its own, with these names in the place of words in capitals."""
  path = folder / "program.py"
  path.write_text(here(program))
  return runpy.run_path(str(path), names)


# ---- tinygrad


def printed(folder: Path, capsys: pytest.CaptureFixture[str], a: list[Any], b: list[Any],
            upcast: bool = False) -> tuple[str, str]:
  """The listing that the program prints, and Metal's source without its header."""
  capsys.readouterr()
  run(HAND, folder, A=a, B=b, UPCAST=upcast)
  listing, source = capsys.readouterr().out.split("#include <metal_stdlib>\nusing namespace metal;\n\n")
  return listing, source


def test_the_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  assert printed(tmp_path, capsys, [1, 2, 3, 4], [5, 6, 7, 8]) == (LISTING, METAL + "\n")
  assert printed(tmp_path, capsys, [1.0, 2.0, 3.0], [5.0, 6.0, 7.0])[0] == FLOATS


def test_no_loop_after_upcast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  listing, source = printed(tmp_path, capsys, [1, 2, 3, 4], [5, 6, 7, 8], True)
  assert listing.count("UOps.LOAD ") == 8 and "LOOP" not in listing and "for (" not in source
  assert "  *(data0+0) = ((val0*val1)+(val2*val3)+(val4*val5)+(val6*val7));\n" in source


def dot(n: int) -> Linearizer:
  item, = create_schedule([Tensor.empty(n).dot(Tensor.empty(n))])
  assert item.ast is not None
  return Linearizer(*item.ast)


def told(k: Linearizer) -> tuple[Any, ...]:
  """What the notes look at: the sizes that loops go through, and those that are written out."""
  loops = k.full_shape[k.first_reduce + k.group_for_reduces:k.shape_len - k.upcasted]
  return k.full_shape, k.upcasted, loops, k.full_shape[k.shape_len - k.upcasted:]


def test_what_a_linearizer_tells() -> None:
  k = dot(3)
  assert told(k) == ((3,), 0, (3,), ())
  assert k.reduceop is k.kernel.reduces[0] and k.bufs == list(k.kernel.params) and k.earlybufs == k.bufs[1:]
  k.upcast()
  assert told(k) == ((3,), 1, (), (3,))
  rows = Linearizer(create_schedule([Tensor.empty(4, 6, 8).sum(1)])[-1].ast)
  assert rows.full_shape == (4, 8, 6) and (rows.first_reduce, rows.shape_len) == (2, 3)
  assert rows.upcast(0, 2).lane(1, 4).full_shape == (2, 2, 6, 2, 4) and rows.upcasted == 2
  assert [b.written for b in rows.bufs] == [True, False]
  plain = Linearizer(create_schedule([Tensor.empty(4) + 1])[-1].ast)
  assert plain.reduceop is None and plain.earlybufs == [] and plain.first_reduce == plain.shape_len == 1


def test_upcasted_may_be_set() -> None:
  k = Linearizer(create_schedule([Tensor.empty(4, 6, 8).sum(1)])[-1].ast)
  k.upcasted += 2
  assert k.upcasted == 2 and k.full_shape[:1] == (4,)
  for n in (4, 1):
    with pytest.raises(OptError): k.upcasted = n


def test_what_cannot_be_upcast() -> None:
  k = dot(3)
  k.upcast()
  with pytest.raises(OptError, match="^upcast: no GRID or LOOP axis is left of a0:3 UNROLL$"): k.upcast()
  for step, verb in (("upcast", "upcast"), ("lane", "vectorize"), ("unroll", "unroll")):
    with pytest.raises(OptError, match=f"^{step}: can't {verb} a dimension with size 1, and the kernel has no other$"):
      getattr(dot(1), step)()
  with pytest.raises(OptError, match="the kernel has axes none, since all dimensions have one element"): dot(1).tile(0, 2)
  k = dot(3)   # kernels of one's own may have such an axis
  k.kernel = k.kernel.with_(axes=(*k.kernel.axes, Axis(1, 1, AxisKind.GRID)))
  for axis in (None, 1):
    with pytest.raises(OptError, match="^upcast: can't upcast a dimension with size 1, which a1:1 GRID is$"): k.upcast(axis)
  k.upcast(0)


# ---- NineToothed


@pytest.fixture(params=["ntgrad", "torch"])
def torch(request: pytest.FixtureRequest) -> str:
  """Whose tensors a kernel is called with."""
  if importlib.util.find_spec(request.param) is None: pytest.skip(f"no {request.param}")
  return str(request.param)


def with_tensors_of(library: str, program: str) -> str:
  return program.replace("import torch\n", f"import {library} as torch\n")


@pytest.mark.parametrize("block", ["ninetoothed.block_size()", "1024"])
def test_addition(block: str, torch: str, tmp_path: Path) -> None:
  run(with_tensors_of(torch, ADDITION.replace("=BLOCK)", f"={block})")), tmp_path, DEVICE="cpu")


@pytest.mark.parametrize("program", [PRODUCT, ANNOTATED], ids=["make", "jit"])
def test_products(program: str, torch: str, tmp_path: Path) -> None:
  run(with_tensors_of(torch, program), tmp_path, DEVICE="cpu")
