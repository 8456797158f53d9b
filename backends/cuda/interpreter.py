"""A device that runs rendered Triton source under Triton's interpreter, over numpy memory: for tests of what CUDA will run,
without a GPU.

Triton's interpreter takes the language's functions apart into numpy calls. It is told once a process by an environment variable
to do so; here it is told for one launch at a time, so that the same process compiles, and what it has no numpy for (libdevice,
narrow floats, NaN in a maximum) is added for that time.
"""
from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Callable, Iterator, Sequence

import ml_dtypes
import numpy as np

from ntgrad.backends.base import Program, ProgramSpec
from ntgrad.backends.cuda import compiler
from ntgrad.backends.cuda.descriptors import UNIT
from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer, launch_grid
from ntgrad.backends.numpy.device import NumpyDevice
from ntgrad.backends.numpy.functions import erf
from ntgrad.codegen.errors import CompileError, VerifyError

NAME = "TRITON"
Array = np.ndarray[Any, Any]

_MATH: dict[str, Callable[..., Any]] = {
  "exp": np.exp,
  "exp2": np.exp2,
  "log": np.log,
  "log2": np.log2,
  "sin": np.sin,
  "cos": np.cos,
  "tan": np.tan,
  "tanh": np.tanh,
  "erf": erf,
  "trunc": np.trunc,
  "rint": np.rint,
  "rsqrt": lambda x: 1 / np.sqrt(x),
  "fmod": np.fmod,
  "copysign": np.copysign,
  "pow": np.power,
}
_COMBINE: dict[str, Any] = {
  "_max_nan": np.maximum,
  "_min_nan": np.minimum,
  "_elementwise_max": np.fmax,
  "_elementwise_min": np.fmin,
  "_add": np.add,
  "_sum_combine": np.add,
  "_mul": np.multiply,
  "_prod_combine": np.multiply,
  "_and": np.bitwise_and,
  "_or": np.bitwise_or,
  "_xor": np.bitwise_xor,
  "_xor_combine": np.bitwise_xor,
  "_max": np.maximum,
  "_min": np.minimum,
}


def _extern(library: str, path: str, symbol: str, args: list[Any], result: Any, pure: bool) -> Any:
  """A libdevice function by its symbol: float32 computed in float64 and rounded once."""
  from triton.runtime.interpreter import TensorHandle
  name = symbol.removeprefix("__nv_")
  f = _MATH.get(name) or _MATH.get(name.removesuffix("f"))
  if f is None: raise NotImplementedError(f"{symbol} has no numpy function here")
  data = np.asarray(f(*(a.data.astype(np.float64) for a in args))).astype(args[0].data.dtype)
  return TensorHandle(data, args[0].dtype.scalar)


def _as_numbers(handle: Any) -> Array:
  """A handle's data as numpy numbers; it keeps bfloat16 as bits."""
  data: Array = handle.data
  return data.view(_narrow(handle.dtype.scalar)) if _narrow(handle.dtype.scalar) is not None else data


def _narrow(t: Any) -> Any:
  return {"bf16": ml_dtypes.bfloat16, "fp8e4nv": ml_dtypes.float8_e4m3fn, "fp8e5": ml_dtypes.float8_e5m2}.get(
    getattr(t, "name", "")
  )


def _cast(src: Any, to: Any) -> Any:
  """What hardware does: to nearest even, by way of float32 where there is no other."""
  from triton.runtime.interpreter import TensorHandle, _get_np_dtype
  x, t = _as_numbers(src), to.scalar
  if _narrow(src.dtype.scalar) is not None: x = x.astype(np.float32)
  narrow = _narrow(t)
  if narrow is not None: return TensorHandle(x.astype(np.float32).astype(narrow).view(_get_np_dtype(t)), t)
  return TensorHandle(x.astype(_get_np_dtype(t)), t)


def _splat(to: Any, x: Any) -> Any:
  """A scalar as a block: its own bits, for the handle of a comparison's result says int32."""
  from triton.runtime.interpreter import TensorHandle
  return TensorHandle(np.full(to.shape, np.ravel(x.data)[0]), to.scalar)


def _bfloat16(value: float) -> Any:
  import triton.language as tl
  from triton.runtime.interpreter import TensorHandle
  return TensorHandle(np.array([value]).astype(ml_dtypes.bfloat16).view(np.uint16), tl.bfloat16)


def _all_ones(t: Any) -> Any:
  from triton.runtime.interpreter import TensorHandle, _get_np_dtype
  return TensorHandle(np.invert(np.zeros(1, _get_np_dtype(t))), t.scalar)


def _dot(a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
  from triton.runtime.interpreter import TensorHandle
  x, y = (_as_numbers(v).astype(d.data.dtype) for v in (a, b))
  return TensorHandle(np.matmul(x, y) + d.data, d.dtype.scalar)


def _plain_reduce(reducer: Any, values: Any) -> Any:
  """A reduction by a function that numpy has too: Triton's interpreter would go through it element by element."""
  known = _COMBINE.get(getattr(reducer.combine_fn, "__name__", ""))
  if known is None or len(values) != 1: return None
  x = values[0]
  data = known.reduce(x.handle.data, axis=reducer.axis, keepdims=reducer.keep_dims, dtype=x.handle.data.dtype)
  return reducer.to_tensor(data, x.dtype)


def _plain_scan(scanner: Any, values: Any) -> Any:
  known = _COMBINE.get(getattr(scanner.combine_fn, "__name__", ""))
  if known is None or len(values) != 1: return None
  x = values[0]
  data = np.flip(x.handle.data, scanner.axis) if scanner.reverse else x.handle.data
  data = known.accumulate(data, axis=scanner.axis, dtype=data.dtype)
  return [scanner.to_tensor(np.flip(data, scanner.axis) if scanner.reverse else data, x.dtype)]


class PointerMemory:
  """What a kernel was given, as ranges of addresses. Every access that a mask lets through must lie in one of them."""

  def __init__(self, buffers: Sequence[Array]):
    self.ranges = sorted((b.ctypes.data, b.ctypes.data + b.nbytes) for b in buffers)
    self.starts = np.array([begin for begin, _ in self.ranges], np.uint64)
    self.ends = np.array([end for _, end in self.ranges], np.uint64)

  def check(self, what: str, pointers: Any, mask: Any) -> None:
    """Raises VerifyError for an address outside: ``pointers`` are handles of addresses, ``mask`` says which are used."""
    inside = np.broadcast_to(mask.data, pointers.data.shape) if mask is not None else np.ones(pointers.data.shape, bool)
    first = pointers.data[inside].astype(np.uint64)
    if not first.size: return
    i = np.searchsorted(self.starts, first, "right").astype(np.int64) - 1
    past = first + np.uint64(pointers.get_element_ty().primitive_bitwidth + 7 >> 3) > self.ends[np.maximum(i, 0)]
    if (wrong := past | (i < 0)).any():
      raise VerifyError(f"{what} outside the kernel's memory, at {int(wrong.sum())} of {first.size} places, the first at "
                        f"{int(first[wrong][0]) - int(self.starts[max(int(i[wrong][0]), 0)])} bytes from the start of a buffer")


def _check_box(box: Any, corner: Any) -> None:
  """A chip writes a box's rows in units of 16 bytes: where the last unit is not full, what lies behind the row is overwritten
  too. Raises VerifyError for such a store. (A load gives zeros for those elements, as it should.)"""
  size, block, itemsize = (
    int(box.shape[-1].data.item()),
    box.block_shape[-1],
    box.base.dtype.element_ty.primitive_bitwidth + 7 >> 3,
  )
  end = int(corner[-1].data.item()) + block
  if end > size and size * itemsize % UNIT:
    raise VerifyError(
      f"a store by descriptor writes past its box: rows of {size} elements, {size * itemsize} bytes, no multiple of {UNIT}, and "
      f"a block ends at element {end}"
    )


@contextmanager
def interpreting(module: Any, buffers: Sequence[Array] | None = None) -> Iterator[None]:
  """While it lasts, Triton's language computes with numpy, and calling a ``triton.jit`` function runs it. With ``buffers``,
  accesses outside them raise VerifyError."""
  import triton.language as tl
  from triton.language.extra.cuda import libdevice
  from triton.runtime import interpreter as ti
  from triton.runtime.jit import JITFunction
  builder = ti.interpreter_builder
  module.__dict__.setdefault("core", tl.core)   # so that this is patched too, for the library's own functions
  def call(self: Any, *args: Any, **kwargs: Any) -> Any: return rewritten(self.fn)(*args, **kwargs)
  def counted(*bounds: Any, **about: Any) -> Iterator[Any]:
    numbers = [int(np.ravel(b.handle.data)[0]) if hasattr(b, "handle") else int(b) for b in bounds]
    return (ti.interpreter_semantic.to_tensor(i, False) for i in range(*numbers))
  def reduce(self: Any, values: Any) -> Any:
    found = _plain_reduce(self, values)
    return was_reduce(self, values) if found is None else found
  def scan(self: Any, values: Any) -> Any:
    found = _plain_scan(self, values)
    return was_scan(self, values) if found is None else found
  memory = PointerMemory(buffers) if buffers is not None else None
  def checked(method: str, what: str, pointers: int, mask: int) -> None:
    """The builder's method, which looks at its addresses and its mask first."""
    was = getattr(builder, method)
    def access(*args: Any, **kwargs: Any) -> Any:
      assert memory is not None
      memory.check(what, args[pointers], args[mask])
      return was(*args, **kwargs)
    scope.set_attr(builder, method, access)
  was_store = builder.create_descriptor_store
  def store(box: Any, value: Any, corner: Any) -> Any:
    _check_box(box, corner)
    return was_store(box, value, corner)
  with compiler.LOCK:
    scope = ti._patch_lang(_Globals(module.__dict__))
    try:
      ti._patch_builtin(libdevice, builder, scope)
      was_reduce, was_scan = ti.ReduceOps.apply_impl, ti.ScanOps.apply_impl
      scope.set_attr(ti.ReduceOps, "apply_impl", reduce)
      scope.set_attr(ti.ScanOps, "apply_impl", scan)
      scope.set_attr(JITFunction, "__call__", call)
      scope.set_attr(builder, "options", ti.InterpreterOptions(sanitize_overflow=False))
      scope.set_attr(builder, "create_extern_elementwise", _extern)
      scope.set_attr(builder, "cast_impl", _cast)
      scope.set_attr(builder, "create_splat", _splat)
      scope.set_attr(builder, "create_fp_to_fp", lambda src, to, rounding: _cast(src, to))
      scope.set_attr(builder, "create_dot", _dot)
      scope.set_attr(builder, "get_bf16", _bfloat16)
      scope.set_attr(builder, "get_all_ones_value", _all_ones)
      scope.set_attr(builder, "create_descriptor_store", store)
      if memory is not None:
        checked("create_masked_load", "a load", 0, 1)
        checked("create_masked_store", "a store", 0, 2)
        checked("create_atomic_rmw", "an atomic", 1, 3)
      scope.set_attr(tl, "range", counted)
      module.__dict__["range"] = counted   # a kernel's counter is a scalar of the language, not an int
      with np.errstate(all="ignore"): yield
    finally:
      module.__dict__.pop("range", None)
      scope.restore()


class _Globals:
  """What ``_patch_lang`` asks a function for."""
  def __init__(self, names: dict[str, Any]): self.__globals__ = names


def rewritten(fn: Any) -> Any:
  """A kernel's or helper's Python function as the interpreter runs it."""
  from triton.runtime.interpreter import InterpretedFunction
  return InterpretedFunction(fn).rewrite()


class InterpretedProgram(Program):
  """A rendered kernel. Launching runs its programs one after the other. Raises CompileError for source that is no Python."""

  def __init__(self, spec: ProgramSpec):
    self.spec = spec
    self.module = compiler.load(spec.source.text)
    self.fn = getattr(self.module, spec.name).fn
    self.types = [t for _, t in spec.source.signature]

  def __call__(self, buffers: Sequence[Any], wait: bool = False) -> float | None:
    """Run over the buffers. Raises CompileError with the program's place in the grid where the interpreter refuses."""
    import triton.language as tl
    from triton.runtime import interpreter as ti

    if len(buffers) != self.spec.nparams:
      raise VerifyError(f"kernel {self.spec.name!r} takes {self.spec.nparams} buffers, got {len(buffers)}")
    start = time.perf_counter()
    builder = ti.interpreter_builder
    with interpreting(self.module, buffers):
      run = rewritten(self.fn)
      types = [tl.str_to_ty(t, None) for t in self.types]
      args = [tl.tensor(ti.TensorHandle(np.array([raw.ctypes.data], np.uint64), t), t) for raw, t in zip(buffers, types)]
      nx, ny, nz = launch_grid(self.spec.grid)
      builder.set_grid_dim(nx, ny, nz)
      for z in range(nz):
        for y in range(ny):
          for x in range(nx):
            builder.set_grid_idx(x, y, z)
            try:
              run(*args)
            except Exception as e:
              raise CompileError(
                f"kernel {self.spec.name}, program ({x}, {y}, {z}): {type(e).__name__}: {e}\n{self.spec.source.text}"
              ) from e
    return time.perf_counter() - start if wait else None


class InterpreterDevice(NumpyDevice):
  """numpy memory; launches are interpreted, and done when they return. Slow: for tests."""
  name = NAME
  identity = "Triton's interpreter"

  def __init__(self) -> None:
    found, reason = compiler.available()
    if not found: raise CompileError(reason)
    self.renderer = TritonRenderer(replace(TARGET, cores=2))   # programs run one by one: few large ones

  def compile(self, specs: Sequence[ProgramSpec]) -> list[Program]:
    """Each program's source, loaded."""
    return [InterpretedProgram(s) for s in specs]
