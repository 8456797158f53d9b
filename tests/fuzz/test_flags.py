"""True and False are no numbers: every public parameter that takes a number refuses them, but for elements of tensors."""
from __future__ import annotations

import io
import warnings
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest

from ntgrad import Device
from ntgrad.errors import NtgradError

from .test_arguments import GOOD, _finish, _small  # noqa: F401

# operands and elements, of which bools are some
ELEMENTS = {"x", "other", "value", "val", "fill_value", "no", "weight", "min_", "max_", "exponent", "data", "obj", "index",
            "item", "batch", "sampler"}
# layers keep these for their calls, which refuse them; what takes anything
LATER = {*((f"nn.{layer}", "dim") for layer in ("GLU", "Softmax", "Softmin", "LogSoftmax", "CosineSimilarity")),
         ("ntgrad.save", "pickle_protocol"), ("nn.ParameterDict.get", "default"),
         ("nn.Flatten", "start_dim"), ("nn.Flatten", "end_dim"), ("nn.Unflatten", "dim"), ("nn.Identity", "*0"),
         ("ntgrad.result_type", "*1"), *((f"ntgrad.{kind}Tensor", "*0") for kind in (
           "BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"))}
FLAGS = (True, np.True_)


def number(x: Any) -> bool: return isinstance(x, (int, float)) and not isinstance(x, bool)


def with_flags(value: Any) -> list[Any]:
  """A number, or the first of a list of them, as a flag."""
  if number(value): return list(FLAGS)
  if isinstance(value, (tuple, list)) and value and number(value[0]): return [type(value)([f, *value[1:]]) for f in FLAGS]
  return []


@pytest.mark.parametrize("name", GOOD)
def test_a_flag_is_no_number(name: str) -> None:
  good = GOOD[name]()
  taken = []
  for parameter in good.parameters():
    if parameter in ELEMENTS or (name, parameter) in LATER: continue
    for value in with_flags(good.given(parameter)):
      try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
          warnings.simplefilter("ignore")
          _finish(GOOD[name]().with_bad(parameter, value))
        taken.append(f"{parameter} = {value!r}")
      except NtgradError: pass
      finally: Device.DEFAULT = "NUMPY"
  assert not taken, f"{name} takes {taken}"
