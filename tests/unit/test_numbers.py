"""Numbers that change from call to call: two structures that differ only in them share a kernel (DESIGN section 6, rule 8)."""
from __future__ import annotations

from ntgrad import Tensor
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
