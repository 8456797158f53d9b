"""The calls of ``functional_cases`` made of PyTorch and of ntgrad, and compared: values, what is written in place, gradients.

    PYTHONPATH=.:tests python tests/support/functional_torch.py   # worst errors, by function
"""
from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch

import ntgrad.nn.functional as ours
from ntgrad import Tensor, config
from support.functional_cases import CASES, C, Case


def _ran(case: Case, module: Any, make: Any, read: Any) -> tuple[list[Any], list[Any]]:
  """Results and arguments after the call, as arrays, and gradients."""
  leaves: list[Any] = []

  def given(a: Any) -> Any:
    if isinstance(a, C): return make(a.array, False)
    if not isinstance(a, np.ndarray): return a
    t = make(a, a.dtype.kind == "f" and case.slopes)
    if a.dtype.kind == "f": leaves.append(t)
    return t
  args, kwargs = [given(a) for a in case.args], {k: given(a) for k, a in case.kwargs.items()}
  tensors = [a for a in [*args, *kwargs.values()] if hasattr(a, "detach")]
  first = args[0] if args else kwargs.get("input")
  inplace = case.name[-1] == "_" or any([a is True for a in case.args]) or case.kwargs.get("inplace")
  # a leaf that needs gradients cannot be written
  if case.slopes and inplace and leaves and leaves[0] is first:
    if args: args[0] = first * 1
    else: kwargs["input"] = first * 1
  if case.name == "ctc_loss": args[0] = args[0].log_softmax(-1)
  out = getattr(module, case.name)(*args, **kwargs)
  results = [r for r in (out if isinstance(out, tuple) else (out,)) if r is not None]
  grads: list[Any] = []
  floats = [r for r in results if read(r).dtype.kind == "f"]
  if case.slopes and leaves and floats:
    # a fixed direction; infinities (of ctc_loss) have no slope
    total: Any = sum([(r * make(np.cos(np.arange(math.prod(r.shape), dtype=np.float64)).reshape(tuple(r.shape)), False)).sum()
                      for r in floats])
    total.backward()
    grads = [np.zeros(tuple(x.shape)) if x.grad is None else read(x.grad) for x in leaves]
  return [read(r) for r in results] + [read(t) for t in tensors], grads


def both(case: Case) -> tuple[tuple[list[Any], list[Any]], tuple[list[Any], list[Any]]]:
  """What PyTorch and what ntgrad gives."""
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    def theirs(a: Any, grad: bool) -> Any:
      t = torch.tensor(a)
      return t.requires_grad_() if grad else t
    import torch.nn.functional as F
    want = _ran(case, F, theirs, lambda t: t.detach().numpy())
  with config(dev="NUMPY"):
    return want, _ran(case, ours, lambda a, grad: Tensor(np.array(a), requires_grad=grad), lambda t: t.numpy())


def error(case: Case) -> float:
  """The greatest difference, of numbers above 1 in parts of them. Raises AssertionError for other shapes or kinds."""
  want, got = both(case)
  worst = 0.0
  for what, a, b in (("values", want[0], got[0]), ("gradients", want[1], got[1])):
    assert len(a) == len(b), (case.name, what, len(a), len(b))
    for x, y in zip(a, b):
      assert x.shape == y.shape and x.dtype.kind == y.dtype.kind, (case.name, what, x.shape, y.shape, x.dtype, y.dtype)
      if not x.size: continue
      x, y = x.astype(np.float64), y.astype(np.float64)
      same = (x == y) | (np.isnan(x) & np.isnan(y))
      with np.errstate(invalid="ignore"): d = np.where(same, 0, np.abs(x - y) / np.maximum(np.abs(x), 1))
      worst = max(worst, float(np.where(np.isnan(d), np.inf, d).max()))
  return worst


def main() -> None:
  worst: dict[str, tuple[int, float]] = {}
  for i, case in enumerate(CASES):
    try: e = error(case)
    except Exception as problem:
      print(f"{i} {case.name} {[getattr(a, 'shape', a) for a in case.args]} {list(case.kwargs)}: {type(problem).__name__} "
            f"{str(problem)[:300]}")
      e = math.inf
    if 1e-8 < e < math.inf: print(f"{i} {case.name} {[getattr(a, 'shape', a) for a in case.args]} {list(case.kwargs)}: {e:.3g}")
    n, w = worst.get(case.name, (0, 0.0))
    worst[case.name] = n + 1, max(w, e)
  for name, (n, w) in sorted(worst.items()): print(f"{name}: {n} calls, worst {w:.2g}")
  print(f"{len(worst)} functions, {sum(n for n, _ in worst.values())} calls, worst {max(w for _, w in worst.values()):.3g}")


if __name__ == "__main__": main()
