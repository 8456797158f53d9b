"""``nn.functional`` against PyTorch, where it is installed: the calls of ``support/functional_cases.py`` and their gradients."""
from __future__ import annotations

import pytest

from support.functional_cases import CASES

pytest.importorskip("torch", minversion="2.13")
from support.functional_torch import error  # noqa: E402


@pytest.mark.parametrize("name", sorted({case.name for case in CASES}))
def test_as_pytorch(name: str) -> None:
  """PyTorch itself is off by 1e-8 where it computes with constants of float32."""
  for case in CASES:
    if case.name == name: assert error(case) < 2e-8, (case.args, case.kwargs)
