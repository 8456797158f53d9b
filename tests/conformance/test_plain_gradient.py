"""Gradients do not depend on ``requires_grad``: ``gradient(x)`` at a plain tensor is what ``backward`` leaves at a leaf."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ntgrad import Device, Tensor, dtypes
from ntgrad.errors import GradientError
from support.all_ops import COMPOSED, FAMILIES, ROWS, Row
from support.marks import long_where

from .test_ops import inputs, report, several, together


@pytest.fixture(autouse=True)
def _device() -> Any:
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None


def built(row: Row, leaves: bool) -> tuple[list[Tensor], Tensor | None]:
  """The floats that a row is of, and the sum of what it gives, each element times its place; None for no floats."""
  arrays = inputs(row, dtypes.float64)
  xs = [Tensor(a, requires_grad=leaves and a.dtype.kind == "f" or None) for a in arrays]
  # through a value that is not computed, as functions get them
  outs = several(row.fn(*[x * 1.5 if x.dtype.kind == "f" else x for x in xs]))
  terms = [(o * Tensor(np.arange(1, o.numel() + 1) / o.numel()).reshape(o.shape)).sum() for o in outs if o.dtype.kind == "f"]
  return [x for x in xs if x.dtype.kind == "f"], sum(terms[1:], terms[0]) if terms else None


def at_leaves(row: Row) -> list[Tensor]:
  xs, loss = built(row, True)
  if loss is None: return []
  try: loss.backward()
  except GradientError: return []   # none has a slope
  return [x.grad for x in xs if x.grad is not None]


def at_plain(row: Row) -> list[Tensor]:
  xs, loss = built(row, False)
  leaves, other = built(row, True)
  if loss is None: return []
  try: other.backward()
  except GradientError: return []
  return list(loss.gradient(*[x for x, leaf in zip(xs, leaves) if leaf.grad is not None]))


@long_where(lambda family: family in COMPOSED)
@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_of_plain_tensors(family: str) -> None:
  rows = [r for r in ROWS if r.family == family and r.takes(dtypes.float64)]
  wanted, wrong = together(rows, at_leaves)
  got, more = together(rows, at_plain)
  wrong |= more
  for row in wanted.keys() & got.keys():
    for g, w in zip(got[row], wanted[row], strict=True):
      if not np.array_equal(g, w, equal_nan=True): wrong.setdefault(row, f"gives {g.ravel()[:4]}, a leaf has {w.ravel()[:4]}")
  report(f"gradients of {family}", wrong)
