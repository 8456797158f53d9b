"""Settings that scripts make, and what takes functions."""
from __future__ import annotations

import math
from typing import Any, Callable, Sequence

from ntgrad.backends.process import cores
from ntgrad.codegen.ir import ArgumentError, config, shown
from ntgrad.engine.device import Device
from ntgrad.graph import checked, mode as current
from ntgrad.tensor import Tensor
from ntgrad.tensor.printing import PrintOptions, options

from .kinds import device as _device

Dims = int | None | Sequence[int | None]


# ---- functions of functions
def compile(model: Any = None, **options: Any) -> Any:
  """The model or function as it is: what it computes becomes fused kernels anyway. ``ntgrad.jit`` of a whole step leaves out its
  Python too, where that means the same. Raises ArgumentError for what cannot be called."""
  if model is None: return lambda fn: compile(fn, **options)
  if not callable(model): raise ArgumentError(f"compile: {shown(model)}; it takes a model or a function")
  return model


def function(fxn: Any = None, *, precompile: bool = False, precompile_backward: bool = False, allow_implicit: bool = False,
             grad_fxn: Any = None) -> Any:
  """A function of Tensors as it is, under the name of tinygrad's decorator, which makes a call in the graph of it: here its
  results share kernels with what is made of them, whatever the options say, and gradients pass to all that it reads. Raises
  ArgumentError for ``grad_fxn``, and for what cannot be called."""
  if grad_fxn is not None:
    raise ArgumentError("function: grad_fxn takes nodes of tinygrad's graph; write the gradient as ntgrad.Function has it")
  if fxn is None: return function
  if not callable(fxn): raise ArgumentError(f"function: {shown(fxn)}; it takes a function")
  return fxn


@checked
def vmap(func: Callable[..., Any], in_dims: Dims = 0, out_dims: Dims = 0, randomness: str = "error", *,
         chunk_size: int | None = None) -> Callable[..., Any]:
  """A function of batches from one of their entries: called once for each entry along ``in_dims`` (one for all arguments, or one
  for each; None: the same for all entries), its results stacked along ``out_dims``.

  Kernels grow with the number of entries: what broadcasts by itself is better written so. Raises ArgumentError for batches of
  different sizes, or none.
  """
  def mapped(*args: Any, **kwargs: Any) -> Any:
    dims = [in_dims] * len(args) if in_dims is None or isinstance(in_dims, int) else list(in_dims)
    if len(dims) != len(args): raise ArgumentError(f"vmap: {len(dims)} in_dims for {len(args)} arguments; give one for each")
    sizes = set[int]()
    for a, d in zip(args, dims): _over(lambda t: sizes.add(len(t.unbind(d))), None if d is None else a)  # noqa: B023 - called at once
    if len(sizes) != 1: raise ArgumentError(f"vmap: batches of sizes {sorted(sizes)}; give tensors of one size along in_dims")
    def entry(i: int) -> list[Any]:
      return [a if d is None else _over(lambda t: t.select(d, i), a) for a, d in zip(args, dims)]  # noqa: B023 - as above
    each = [func(*entry(i), **kwargs) for i in range(sizes.pop())]
    if not each: raise ArgumentError("vmap: a batch without entries")
    return _stacked(each, out_dims)
  return mapped


def _over(fn: Callable[[Any], Any], x: Any) -> Any:
  """``x`` with what ``fn`` gives for each Tensor in it."""
  if isinstance(x, dict): return {k: _over(fn, v) for k, v in x.items()}
  if isinstance(x, (tuple, list)): return getattr(type(x), "_make", type(x))([_over(fn, v) for v in x])
  return fn(x) if isinstance(x, Tensor) else x


def _stacked(results: list[Any], dims: Any) -> Any:
  if isinstance(results[0], Tensor): return Tensor.stack(results, dim=dims)
  if isinstance(results[0], dict):
    return {k: _stacked([r[k] for r in results], dims[k] if isinstance(dims, dict) else dims) for k in results[0]}
  if not isinstance(results[0], (tuple, list)):
    raise ArgumentError(f"vmap: a function gives {shown(results[0])}; it gives Tensors")
  every = list(dims) if isinstance(dims, (tuple, list)) else [dims] * len(results[0])
  return tuple(_stacked([r[i] for r in results], d) for i, d in enumerate(every))


# ---- devices and threads
def get_default_device() -> _device: return _device(Device.DEFAULT)


def set_default_device(device: Any) -> None:
  """Make new tensors on a device where none is named; None: the machine's best one. Raises DeviceError."""
  Device.DEFAULT = None if device is None else _device(device)


def get_num_threads() -> int:
  """For how many cores kernels of the CPU are made."""
  return config.cores or cores()


@checked
def set_num_threads(n: int) -> None:
  """For how many cores kernels of the CPU are made (``config.cores``). How many threads run them the driver says when it starts,
  by the cores that the process may use. Raises ArgumentError."""
  if n < 1: raise ArgumentError(f"set_num_threads: {n}; it takes 1 or more")
  config.cores = n


# ---- numbers
def use_deterministic_algorithms(mode: Any, *, warn_only: Any = False) -> None:
  """Nothing: the same program gives the same bits on the same device, always."""


def are_deterministic_algorithms_enabled() -> bool: return True


@checked
def set_float32_matmul_precision(precision: str) -> None:
  """Whether CUDA rounds factors of float32 products to tf32: "highest" does not, "high" and "medium" do. Raises ArgumentError."""
  if precision not in ("highest", "high", "medium"):
    raise ArgumentError(f"set_float32_matmul_precision: {precision!r}; it takes 'highest', 'high' or 'medium'")
  config.allow_tf32 = precision != "highest"


def get_float32_matmul_precision() -> str: return "high" if config.allow_tf32 else "highest"


def is_inference_mode_enabled() -> bool: return not current.grad


@checked
def set_printoptions(precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
                     linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None) -> None:
  """How ``print`` shows tensors: ``precision`` digits behind the point, of more than ``threshold`` elements ``edgeitems`` at the
  ends of a dimension, lines of ``linewidth`` characters, exponents or none (``sci_mode``; None: as values ask for it). A
  ``profile`` is a set: "default" (4, 1000, 3, 80), "short" (2, 1000, 2, 80), "full" (all elements). Raises ArgumentError."""
  known = {"default": PrintOptions(), "short": PrintOptions(precision=2, edgeitems=2), "full": PrintOptions(threshold=math.inf)}
  if profile is not None and profile not in known:
    raise ArgumentError(f"set_printoptions: profile {profile!r}; it takes {', '.join(map(repr, known))}")
  numbers = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
  given = {name: value for name, value in numbers.items() if value is not None}
  for name, value in given.items():
    if not value >= 0: raise ArgumentError(f"set_printoptions: {name} {value}; it takes 0 or more")
  vars(options).update({**(vars(known[profile]) if profile else {}), **given, "sci_mode": sci_mode})
