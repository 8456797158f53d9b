"""What Opts do to effects: a STORE that adds, a scatter, an ATOMIC, a kernel that reads what it writes."""
from __future__ import annotations

import numpy as np
import pytest

from ntgrad import Tensor
from ntgrad.codegen.errors import OptError
from ntgrad.codegen.kernel import Kernel, reads_its_place
from ntgrad.codegen.opt import Opt, apply_opt
from ntgrad.codegen.optimize import optimize
from ntgrad.codegen.target import Target
from ntgrad.engine.device import get_device
from ntgrad.schedule import create_schedule
from support.kernels import launch, spec

E = Tensor.empty


def adding(rows: int, width: int = 17) -> Kernel:
  """The gradient of rows taken by an index: ``out[index[i], j] += value[i, j]``."""
  x = E(5, width)
  x.requires_grad = True
  return create_schedule((x[E(rows, dtype="int32")] * E(rows, width)).sum().gradient(x))[-1].ast


def test_a_row_added_is_read_and_written() -> None:
  one, four = adding(1), adding(4)
  assert all(reads_its_place(s) for k in (one, four) for s in k.body) and one.in_place and four.in_place
  assert not one.sequential and len(four.sequential) == 1
  assert not any(o.name == "overlap" for k in (one, four) for o in optimize(k, Target("opencl", lanes=8, registers=16, cores=2)).applied)


def refused(kernel: Kernel, opt: Opt, why: str) -> None:
  with pytest.raises(OptError, match=why): apply_opt(kernel, opt)


def test_refusals() -> None:
  one, four = adding(1), adding(4)
  along = next(a.id for a in four.axes if a.size == 17)
  ordered, = four.sequential
  refused(one, Opt("overlap", one.axes[0].id, 8), "the kernel writes what it reads")
  refused(four, Opt("overlap", along, 8), "the kernel writes what it reads")
  for k in (one, four):
    slot = next(p.slot for p in k.params if p.written)
    refused(k, Opt("stream", slot), "depends on what was there")
    refused(k, Opt("descriptor", slot), "neither reads nor writes data")
  refused(four, Opt("merge", along, ordered), "not gone through alike|one is gone through in order")
  refused(four, Opt("merge", along, along), "another axis of the kernel")
  refused(four, Opt("stream", next(p.slot for p in four.params if not p.written)), "has no STORE to")
  for name in ("lane", "upcast", "tile", "block"): refused(four, Opt(name, ordered, 2), "gone through in order|is unrolled")
  refused(four, Opt("grid", ordered), "cannot be spread over programs")


def test_what_is_gone_through_in_order_keeps_it() -> None:
  """Two axes of an index: rows are set in their order, so the axes cannot change places."""
  x = E(5, 4)
  x[E(2, 3, dtype="int32")] = E(2, 3, 4)
  k = next(i.ast for i in create_schedule([x]) if i.ast.sequential)
  k = k if len(k.sequential) > 1 else apply_opt(k, Opt("split", next(iter(k.sequential)), 3))
  a, b = [x.id for x in k.axes if x.id in k.sequential]
  refused(k, Opt("first", b), "would change it")
  refused(k, Opt("last", a), "would change it")
  rest = next(x.id for x in k.axes if x.id not in k.sequential)
  assert apply_opt(apply_opt(k, Opt("first", rest)), Opt("last", rest)).applied[-1].name == "last"


@pytest.mark.parametrize("width", [9, 17, 33])
@pytest.mark.parametrize("rows", [[0], [3, 3], [0, 4, 0]])
def test_gradients_of_rows(rows: list[int], width: int) -> None:
  x = Tensor(np.ones((5, width), np.float32), requires_grad=True)
  want = np.zeros((5, width))
  np.add.at(want, rows, 1)
  np.testing.assert_array_equal(x[rows].sum().gradient(x)[0].numpy(), want)


def test_what_says_where_is_not_staged() -> None:
  """Indices, and the numbers that gates and conditions compare, are read where they are used."""
  k = create_schedule([E(5, 4)[E(2, dtype="int32")]])[-1].ast
  slot = next(p.slot for p in k.params if p.dtype.kind == "i")
  axis = next(a.id for a in k.axes if a.size == 2)
  for name in ("stage", "pack"): refused(apply_opt(k, Opt("upcast", axis, 2)), Opt(name, axis, slot), "says where to read or write")


def test_lanes_that_read_nothing_are_staged_too() -> None:
  """A gate that is false for a whole vector gives one zero, which every lane of the staged array gets."""
  k, = [i.ast for i in create_schedule([E(4, 1).pad(((1, 1), (1, 4))) + 1])]
  rows, columns = (a.id for a in k.axes)
  for opt in (Opt("upcast", columns, 6), Opt("overlap", rows, 4), Opt("stage", rows, 1)): k = apply_opt(k, opt)
  data = [np.zeros((6, 6), np.float32), np.arange(1, 5, dtype=np.float32).reshape(4, 1)]
  got, = launch(get_device("NUMPY"), [spec(k, "k")], k, data)
  np.testing.assert_array_equal(got[0].reshape(6, 6), np.pad(data[1], ((1, 1), (1, 4))) + 1)
