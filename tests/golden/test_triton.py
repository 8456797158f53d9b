"""Triton source of kernels with TILE axes, as read once."""
from __future__ import annotations

from typing import Callable

import pytest
from golden.test_kernels import attention, fibonacci

from ntgrad.backends import render
from ntgrad.codegen.explain.printing import form_text, index_form
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import Ops
from ntgrad.codegen.kernel import AxisKind
from ntgrad.codegen.kernel.linear import UOpList, block_shapes
from ntgrad.codegen.linearizer import Linearizer
from ntgrad.schedule import create_schedule
from support.descriptors import marked, product, source
from support.triton_kernels import GRAPHS, NAMES, kernels, lines

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("name", NAMES)
def test_blocks(name: str, golden: Golden) -> None:
  parts = []
  for k in kernels(name): parts += [f"# {', '.join(map(str, k.axes))}", render("triton", name, lines(k))]
  golden(f"triton/{name}", "\n".join(parts))


@pytest.mark.parametrize("name", ["matmul", "softmax"])
def test_shapes_of_blocks(name: str, golden: Golden) -> None:
  """UOps that are blocks say of which shape: what a sum binds is gone from it."""
  k = kernels(name)[-1]
  uops = lines(k)
  golden(f"triton/{name}_blocks", form_text(uops))
  shapes = block_shapes(uops)
  sizes = {a.id: a.size for a in k.axes if a.kind is AxisKind.TILE}
  for u in uops:
    if u.op is Ops.RANGE: assert shapes[u] == (sizes[u.arg[0]],)
    if u.op is Ops.REDUCE: assert set(shapes.get(u, ())) == {sizes[i] for i in sizes if i not in u.arg[1]}


@pytest.mark.parametrize("name", ["row_sum", "matmul", "mixed"])
def test_scalars(name: str, golden: Golden) -> None:
  """Without a target's Opts: plain loops."""
  k = create_schedule(GRAPHS[name]())[-1].ast
  assert k is not None
  golden(f"triton/{name}_scalar", render("triton", name, Linearizer(k).linearize().uops))


def test_by_hand(golden: Golden) -> None:
  """Both PHIs of a loop are one parallel assignment."""
  golden("triton/fibonacci", render("triton", "fibonacci", UOpList(fibonacci(10).uops)))
  golden("triton/attention", render("triton", "attention", UOpList(attention(8).uops)))


def test_descriptors(golden: Golden) -> None:
  """Params of a ragged product by tensor descriptor, one operand transposed; each batch is an element of a dimension of its
  own."""
  k = marked(product(200, 96, 72, (64, 32, 32), dtypes.bfloat16, (False, True), batch=3), 0, 1, 2)
  golden("triton/descriptors", "\n".join([*(f"# {line}" for line in index_form(k).splitlines()), source(k)]))
