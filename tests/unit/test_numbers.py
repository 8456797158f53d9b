"""Numbers that change from call to call: two structures that differ only in them share a kernel."""
from __future__ import annotations

import numpy as np
import pytest

from ntgrad import Tensor, dtypes
from ntgrad.codegen.ir.dtype import DType, held
from ntgrad.engine import compile as engine_compile


def test_other_numbers_compile_once_more_and_then_never() -> None:
  x = Tensor([1.0, 2.0, 3.0]).realize()
  counts = []
  for k in (0.137, 0.219, 0.331, 0.447):
    got = (x * k + 1.25).tolist()
    assert all(abs(g - (v * k + 1.25)) < 1e-6 for g, v in zip(got, (1.0, 2.0, 3.0)))
    counts.append(len(engine_compile._programs))
  assert counts[1] == counts[2] == counts[3]


def test_common_numbers_stay_in_the_code() -> None:
  x = Tensor([1.0, -2.0]).realize()
  assert (x.relu() * 2).tolist() == [2.0, 0.0]
  before = len(engine_compile._programs)
  assert (x.relu() * 0.5).tolist() == [0.5, 0.0]   # another constant of the code: a kernel of its own
  assert len(engine_compile._programs) == before + 1


def test_scalars_get_memory_of_their_own() -> None:
  one = Tensor.ones(()).realize()
  assert (Tensor.ones(()) + 1).item() == 2.0 and one.item() == 1.0


@pytest.mark.parametrize("dtype", [d for d in dtypes.floats if d.itemsize >= 2], ids=lambda d: d.name)
def test_a_number_has_the_same_bits_in_the_code_and_as_a_parameter(dtype: DType) -> None:
  x = Tensor(np.ones(3, dtype.np)).realize()
  for k in (0.13713713713713713, 0.21921921921921922, 0.33133133133133133):   # in the code, then parameters
    for got in ((x * k).cast("float64").numpy(), (x * k).numpy().astype(np.float64)): assert got.tolist() == [held(k, dtype)] * 3
