"""Reads and writes of parts by all combinations of up to four elements of an index, on the level of the tensor graph, as PyTorch
has them: numpy's with ints taken first (``ints_first``), which is compared with PyTorch where that is installed."""
from __future__ import annotations

import importlib
import importlib.util
import itertools
import warnings
from typing import Any, Iterator

import numpy as np
import pytest
from graph_eval import value as value_of

from ntgrad import Tensor, config
from ntgrad.errors import NtgradError
from support.reference import ints_first

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

A = np.arange(3 * 4 * 3 * 2, dtype=np.int32).reshape(3, 4, 3, 2)
KINDS: dict[str, Any] = {
  "int": -1, "slice": slice(None), "part": slice(0, 2), "none": None, "dots": ..., "list": [0, 2], "tensor": np.array([1, 0]),
  "column": np.array([[1], [0]]), "single": np.array(1), "true": True, "mask": 1, "wide mask": 2}
FEW = ("int", "slice", "none", "tensor", "single", "true", "mask")


def indices(count: int) -> Iterator[tuple[Any, ...]]:
  """Every index of so many elements (of four: of FEW kinds) that has room in A's dimensions; arrays stand for tensors."""
  for names in itertools.product(KINDS if count < 4 else FEW, repeat=count):
    taken = [0 if n in ("none", "dots", "true") else 2 if n == "wide mask" else 1 for n in names]
    if sum(taken) > A.ndim or names.count("dots") > 1: continue
    out, axis = [], 0
    for n, k in zip(names, taken):
      if "mask" in n:
        shape = A.shape[axis:axis + k]
        out.append(np.arange(np.prod(shape)).reshape(shape) % 3 != 1)
      else: out.append(KINDS[n])
      axis += k if n != "dots" else A.ndim - sum(taken)
    yield tuple(out)


def read(x: Any, index: Any) -> Any:
  """The part, or None where it is refused."""
  try: part = x[index]
  except (IndexError, NtgradError): return None
  return value_of(part) if isinstance(part, Tensor) else np.array(part)


def written(x: Any, index: Any, value: Any) -> Any:
  """All of it after a write, or None."""
  try: x[index] = value
  except (IndexError, RuntimeError, ValueError, NtgradError): return None
  return value_of(x) if isinstance(x, Tensor) else x


def expected(index: Any) -> tuple[Any, Any, Any]:
  """The part, what is written there, and what then is there."""
  a = A.copy()
  view, rest = ints_first(a, index)
  part = read(view, rest)
  if part is None: return None, None, None
  value = 1000 + np.arange(part.size, dtype=np.int32).reshape(part.shape)
  return part, value, a if written(view, rest, value) is not None else None


def same(x: Any, y: Any) -> bool: return (x is None) == (y is None) and (x is None or np.array_equal(x, y))


def wrong(index: Any) -> str:
  """What is wrong with an index, in a few words."""
  part, value, after = expected(index)
  made = tuple([Tensor(i) if isinstance(i, np.ndarray) else i for i in index])
  x = Tensor(A)
  got = read(x, made)
  if not same(got, part): return f"{index}: gives {np.shape(got)}, not {np.shape(part)} with these values"
  if part is None: return ""
  return "" if same(written(x, made, Tensor(value)), after) else f"{index}: another write"


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_parts_and_writes(count: int) -> None:
  with config(check_indices=0): assert [w for i in indices(count) if (w := wrong(i))] == []


@pytest.mark.skipif(torch is None, reason="compares with PyTorch")
def test_what_is_expected_is_pytorchs() -> None:
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for index in itertools.chain(*[indices(n) for n in (1, 2, 3, 4)]):
      part, value, after = expected(index)
      made = tuple([torch.from_numpy(i) if isinstance(i, np.ndarray) else i for i in index])
      x = torch.from_numpy(A.copy())
      assert same(read(x, made), part), index
      if part is not None: assert same(written(x, made, torch.as_tensor(value)), after), index
