"""Good calls for ``tests/fuzz/test_arguments.py``: functions and modules under PyTorch's names that are no methods of ``Tensor``.

What the tables make of methods needs none: the methods have theirs.
"""
from __future__ import annotations

import importlib
from typing import Any, Callable

import ntgrad
from ntgrad import nn
from ntgrad.functions import _FILE_OF

MODULES: dict[str, Any] = {n: importlib.import_module(f"ntgrad.{n}")
                           for n in ("linalg", "special", "autograd", "autograd.functional", "func", "cuda", "random")}
# without parameters, or what others have calls for
PLAIN = set("""
seed initial_seed get_rng_state get_num_threads get_default_device are_deterministic_algorithms_enabled is_inference_mode_enabled
get_float32_matmul_precision e inf nan pi newaxis Size dtype is_available device_count is_bf16_supported is_initialized
empty_cache default_generator Function enable_grad inference_mode no_grad set_grad_enabled current_device get_device_name
get_device_capability synchronize set_device mem_get_info memory_allocated memory_reserved max_memory_allocated manual_seed_all
reset_peak_memory_stats channels_last channels_last_3d contiguous_format preserve_format
memory_format""".split())


def own(m: Any) -> list[str]:
  """The names of a module that no table has."""
  return [n for n in m.__all__ if n not in getattr(m, "_MADE", ())]


def names() -> set[str]:
  """All that a good call is asked for."""
  out = {f"ntgrad.{n}" for n in _FILE_OF if n not in PLAIN}
  return out | {f"{at}.{n}" for at, m in MODULES.items() for n in own(m) if n not in PLAIN}


def calls(call: Any, f: Any, i: Any, b: Any) -> dict[str, Callable[[], Any]]:
  """A call of each, with all of its parameters; ``f``, ``i`` and ``b`` make tensors of floats, ints and bools."""
  torch: Any = ntgrad
  x: Any = importlib.import_module("ntgrad.autograd.functional")
  def leaf(*shape: int) -> Any: return f(*shape).requires_grad_()
  def eye() -> Any: return torch.eye(2) * 2
  def total(t: Any) -> Any: return (t * t).sum()
  def first(t: Any, *more: Any) -> Any: return (t * t).sum()
  def graph(fn: Any, *more: Any, **named: Any) -> Any:
    w = leaf(2)
    return call(fn, (w * 2).sum(), w, *more, **named)
  spread = {n: lambda n=n: call(getattr(torch, n), f(2, 3), 1, None, True, correction=1)
            for n in ("std", "var", "std_mean", "var_mean")}
  typed = {n: lambda n=n: call(getattr(torch, n), [1, 0]) for n in _FILE_OF if n.endswith("Tensor")}
  same = {n: lambda n=n: call(getattr(torch, n), f(2)) for n in """is_complex is_conj is_neg is_signed real conj resolve_conj
          resolve_neg isreal msort""".split()}
  found = {
    **{n: lambda n=n: call(getattr(torch, n), f(2, 3), 1, True) for n in ("max", "min", "median", "nanmedian")},
    **spread, **typed, **same, **{f"atleast_{k}d": lambda k=k: call(getattr(torch, f"atleast_{k}d"), f(2)) for k in (1, 2, 3)},
    **{n: lambda n=n: call(getattr(torch, n), f(2)) for n in ("is_tensor", "is_storage", "typename")},
    "save": lambda: call(torch.save, {"a": f(2)}, "good", None, 2, True),
    "load": lambda: call(torch.load, _saved(), "NUMPY", None, weights_only=True, mmap=False),
    "gradient": lambda: call(torch.gradient, f(3, 3), spacing=1.0, dim=1, edge_order=1),
    "norm": lambda: call(torch.norm, f(2, 3), 2, 1, True, dtype="float32"), "svd": lambda: call(torch.svd, eye(), True, True),
    "qr": lambda: call(torch.qr, eye(), True), "adjoint": lambda: call(torch.adjoint, f(2, 3)),
    "batch_norm": lambda: call(torch.batch_norm, f(2, 3), f(3), f(3), f(3), f(3), True, 0.1, 1e-5, True),
    "instance_norm": lambda: call(torch.instance_norm, f(1, 2, 3), f(2), f(2), f(2), f(2), True, 0.1, 1e-5, True),
    "broadcast_tensors": lambda: call(torch.broadcast_tensors, f(2), f(1)),
    "column_stack": lambda: call(torch.column_stack, [f(2), f(2)]), "cross": lambda: call(torch.cross, f(2, 3), f(2, 3), 1),
    "fill": lambda: call(torch.fill, f(2), 1.0), "isin": lambda: call(torch.isin, i(2), i(3), assume_unique=False, invert=True),
    "pow": lambda: call(torch.pow, f(2), 2), "rsub": lambda: call(torch.rsub, f(2), f(2), alpha=2),
    "repeat_interleave": lambda: call(torch.repeat_interleave, f(2), 2, 0, output_size=4),
    "scatter": lambda: call(torch.scatter, f(2, 3), 1, i(2, 3), f(2, 3), reduce="add"),
    "searchsorted": lambda: call(torch.searchsorted, f(3), f(2), out_int32=True, right=True, side="right", sorter=i(3)),
    "where": lambda: call(torch.where, b(2), f(2), 0),
    "arange": lambda: call(torch.arange, 0, 5, 1, dtype="float32", device="NUMPY", requires_grad=True),
    "range": lambda: call(torch.range, 0, 5, 1, dtype="float32", device="NUMPY", requires_grad=True),
    "as_tensor": lambda: call(torch.as_tensor, [1.0], "float32", "NUMPY"),
    "asarray": lambda: call(torch.asarray, [1.0], dtype="float32", device="NUMPY", copy=True, requires_grad=True),
    "scalar_tensor": lambda: call(torch.scalar_tensor, 1.0, dtype="float32", device="NUMPY", requires_grad=True),
    "frombuffer": lambda: call(torch.frombuffer, b"abcdefgh", dtype="float32", count=1, offset=0, requires_grad=True),
    "normal": lambda: call(torch.normal, 0.0, 1.0, (2,), generator=torch.Generator(1), dtype="float32", device="NUMPY",
                           requires_grad=True),
    "poisson": lambda: call(torch.poisson, f(2), torch.Generator(1)),
    "randint_like": lambda: call(torch.randint_like, i(2), 0, 5, generator=torch.Generator(1), dtype="int32", device="NUMPY"),
    "manual_seed": lambda: call(torch.manual_seed, 1), "set_rng_state": lambda: call(torch.set_rng_state, torch.get_rng_state()),
    "broadcast_shapes": lambda: call(torch.broadcast_shapes, (2, 1), (3,)),
    "can_cast": lambda: call(torch.can_cast, "int8", "int32"),
    "device": lambda: call(torch.device, "cpu", 0), "finfo": lambda: call(torch.finfo, "float32"),
    "iinfo": lambda: call(torch.iinfo, "int32"), "is_nonzero": lambda: call(torch.is_nonzero, f(1)),
    "is_same_size": lambda: call(torch.is_same_size, f(1), f(2)),
    "promote_types": lambda: call(torch.promote_types, "int8", "float32"),
    "result_type": lambda: call(torch.result_type, f(2), 1.5),
    "compile": lambda: call(torch.compile, abs), "function": lambda: call(
      torch.function, abs, precompile=True, precompile_backward=True, allow_implicit=True, grad_fxn=None),
    "vmap": lambda: call(torch.vmap, total, 0, 0, "error", chunk_size=1),
    "set_num_threads": lambda: call(torch.set_num_threads, 2),
    "set_default_device": lambda: call(torch.set_default_device, "NUMPY"),
    "set_float32_matmul_precision": lambda: call(torch.set_float32_matmul_precision, "highest"),
    "use_deterministic_algorithms": lambda: call(torch.use_deterministic_algorithms, True, warn_only=True),
    "set_printoptions": lambda: call(torch.set_printoptions, 4, 1000, 3, 80, "default", True),
  }
  return {
    **{f"ntgrad.{n}": made for n, made in found.items()},
    "linalg.vector_norm": lambda: call(torch.linalg.vector_norm, f(2, 3), 2, 1, True, dtype="float32"),
    "linalg.matrix_norm": lambda: call(torch.linalg.matrix_norm, f(2, 3), "fro", (0, 1), True, dtype="float32"),
    "linalg.norm": lambda: call(torch.linalg.norm, f(2, 3), 2, 1, True, dtype="float32"),
    "linalg.cond": lambda: call(torch.linalg.cond, eye(), 2),
    "linalg.matrix_rank": lambda: call(torch.linalg.matrix_rank, eye(), 0.1, False, atol=0.1, rtol=0.1),
    "linalg.pinv": lambda: call(torch.linalg.pinv, eye(), 0.1, False, atol=0.1, rtol=0.1),
    "linalg.lstsq": lambda: call(torch.linalg.lstsq, eye(), f(2, 1), 0.1, driver="gels"),
    "linalg.svd": lambda: call(torch.linalg.svd, eye(), False, driver="gesvd"),
    "linalg.svdvals": lambda: call(torch.linalg.svdvals, eye(), driver="gesvd"),
    "linalg.vecdot": lambda: call(torch.linalg.vecdot, f(2, 3), f(3), dim=1),
    "linalg.vander": lambda: call(torch.linalg.vander, f(2), 3),
    **{f"special.{n}": lambda n=n: call(getattr(torch.special, n), f(2)) for n in ("entr", "log_ndtr", "ndtr", "ndtri")},
    "special.xlog1py": lambda: call(torch.special.xlog1py, f(2), f(2)),
    "special.multigammaln": lambda: call(torch.special.multigammaln, f(2) * 3, 2),
    "autograd.grad": lambda: graph(torch.autograd.grad, f(), True, True, True, True, False, True),
    "autograd.Variable": lambda: call(torch.autograd.Variable, f(2), True, False),
    "autograd.backward": lambda: call(torch.autograd.backward, _KEPT[0].sum() * 2, f(), True, False, None, _KEPT[:1]),
    "autograd.detect_anomaly": lambda: call(torch.autograd.detect_anomaly, True, False),
    "autograd.set_detect_anomaly": lambda: call(torch.autograd.set_detect_anomaly, False, True, False),
    "autograd.functional.jacobian": lambda: call(x.jacobian, first, f(2), False, False, False, "reverse-mode"),
    "autograd.functional.hessian": lambda: call(x.hessian, first, f(2), False, False, False, "reverse-mode"),
    **{f"autograd.functional.{n}": lambda n=n: call(getattr(x, n), first, f(2), None, False, False) for n in ("vjp",)},
    **{f"autograd.functional.{n}": lambda n=n: call(getattr(x, n), first, f(2), f(2), False, False)
       for n in ("jvp", "vhp", "hvp")},
    **{f"func.{n}": lambda n=n: call(getattr(torch.func, n), total, 0, False) for n in ("grad", "grad_and_value")},
    **{f"func.{n}": lambda n=n: call(getattr(torch.func, n), total, 0) for n in ("jacrev", "jacfwd", "hessian")},
    "func.vmap": lambda: call(torch.func.vmap, total), "func.vjp": lambda: call(torch.func.vjp, first, f(2), has_aux=False),
    "func.jvp": lambda: call(torch.func.jvp, first, (f(2),), (f(2),)),
    "func.functional_call": lambda: call(torch.func.functional_call, _Own(), {"bias": f(2)}, (f(1, 2),), {}),
    "cuda.manual_seed": lambda: call(torch.cuda.manual_seed, 1), "random.fork_rng": lambda: call(_forked, [], True),
    "random.manual_seed": lambda: call(torch.random.manual_seed, 1),
    "random.set_rng_state": lambda: call(torch.random.set_rng_state, torch.get_rng_state()),
  }


def _saved() -> str:
  ntgrad.save({"a": ntgrad.Tensor.ones(2, device="NUMPY")}, "good")
  return "good"


class _Own(nn.Module):
  def __init__(self) -> None: self.bias = ntgrad.Tensor.ones(2, device="NUMPY")
  def __call__(self, *args: Any, **kwargs: Any) -> Any: return self.bias * 2


def _forked(devices: Any, enabled: Any) -> None:
  torch: Any = ntgrad
  with torch.random.fork_rng(devices, enabled): pass


_KEPT = [ntgrad.Tensor.ones(2, device="NUMPY", requires_grad=True)]
