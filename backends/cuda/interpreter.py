"""A device that runs rendered Triton source under Triton's interpreter, over numpy memory: for tests of CUDA without a GPU.

The interpreter takes the language's functions apart into numpy calls, as an environment variable tells it once a process; here it
is told for one launch at a time, so that the same process compiles, with what it has no numpy for (libdevice, narrow floats, NaN
in a maximum).
"""
from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Iterator, Sequence

import ml_dtypes
import numpy as np

from ntgrad.codegen.ir import CompileError, VerifyError

from ..base import Program, ProgramSpec, Sizes, Specs
from ..numpy.device import NumpyDevice
from ..numpy.functions import erf
from ..numpy.memory import Array
from . import compiler
from .descriptors import UNIT
from .renderer import TARGET, TritonRenderer, launch_grid

try:
  import triton.language as tl
  from triton.language.extra.cuda import libdevice
  from triton.runtime import interpreter as ti
  from triton.runtime.interpreter import TensorHandle, _get_np_dtype
  from triton.runtime.jit import JITFunction
except ImportError as e: raise CompileError(compiler.available()[1] or f"importing triton failed: {e}") from None

# libdevice's functions that numpy does not have under the same name
_MATH: dict[str, Callable[..., Any]] = {"erf": erf, "rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.power}
# functions that reductions and scans of rendered source combine with
_WORDS = """_max_nan maximum _min_nan minimum _max fmax _min fmin _elementwise_max fmax _elementwise_min fmin _add add
_sum_combine add _mul multiply _and bitwise_and _or bitwise_or _xor bitwise_xor _xor_combine bitwise_xor""".split()
_COMBINE: dict[str, np.ufunc] = {name: getattr(np, spelling) for name, spelling in zip(_WORDS[::2], _WORDS[1::2])}
_NARROW = {"bf16": ml_dtypes.bfloat16, "fp8e4nv": ml_dtypes.float8_e4m3fn, "fp8e5": ml_dtypes.float8_e5m2}


def _extern(library: str, path: str, symbol: str, args: list[TensorHandle], result: tl.dtype, pure: bool) -> TensorHandle:
  """A libdevice function by its symbol: float32 computed in float64 and rounded once."""
  name = symbol.removeprefix("__nv_")
  found = (_MATH.get(n) or getattr(np, n, None) for n in (name, name.removesuffix("f")))   # f: of float32
  if (f := next(filter(None, found), None)) is None: raise NotImplementedError(f"{symbol} has no numpy function here")
  return TensorHandle(np.asarray(f(*(a.data.astype(np.float64) for a in args))).astype(args[0].data.dtype), args[0].dtype.scalar)


def _as_numbers(handle: TensorHandle) -> Array:
  """A handle's data as numpy numbers; the interpreter has narrow floats as bits."""
  narrow = _NARROW.get(handle.dtype.scalar.name)
  data: Array = handle.data
  return data if narrow is None else data.view(narrow)


def _cast(src: TensorHandle, to: tl.dtype, rounding: object = None) -> TensorHandle:
  """What hardware does: to nearest even, by way of float32 where there is no other."""
  x, t = _as_numbers(src), to.scalar
  if src.dtype.scalar.name in _NARROW: x = x.astype(np.float32)
  if t.name in _NARROW: return TensorHandle(x.astype(np.float32).astype(_NARROW[t.name]).view(_get_np_dtype(t)), t)
  return TensorHandle(x.astype(_get_np_dtype(t)), t)


def _dot(a: TensorHandle, b: TensorHandle, c: TensorHandle, precision: object, imprecise: object) -> TensorHandle:
  x, y = (_as_numbers(v).astype(c.data.dtype) for v in (a, b))
  return TensorHandle(np.matmul(x, y) + c.data, c.dtype.scalar)


def _reduce(reducer: ti.ReduceOps, values: Sequence[tl.tensor]) -> tl.tensor:
  """A reduction by a function that numpy has too: Triton's interpreter would go through it element by element."""
  known = _COMBINE.get(getattr(reducer.combine_fn, "__name__", ""))
  if known is None or len(values) != 1: return _REDUCE(reducer, values)
  x, = values
  return reducer.to_tensor(
    known.reduce(x.handle.data, axis=reducer.axis, keepdims=reducer.keep_dims, dtype=x.handle.data.dtype), x.dtype)


def _scan(scanner: ti.ScanOps, values: Sequence[tl.tensor]) -> list[tl.tensor]:
  """A scan by a function that numpy has too."""
  known = _COMBINE.get(getattr(scanner.combine_fn, "__name__", ""))
  if known is None or len(values) != 1: return _SCAN(scanner, values)
  x, = values
  def in_order(data: Array) -> Array: return np.flip(data, scanner.axis) if scanner.reverse else data
  data = known.accumulate(in_order(x.handle.data), axis=scanner.axis, dtype=x.handle.data.dtype)
  return [scanner.to_tensor(in_order(data), x.dtype)]


_REDUCE, _SCAN = ti.ReduceOps.apply_impl, ti.ScanOps.apply_impl


def _range(*bounds: int | tl.tensor, **options: object) -> Iterator[tl.tensor]:
  """The language's range: a kernel's counter is a scalar of the language, not an int."""
  numbers = [int(np.ravel(b.handle.data)[0]) if hasattr(b, "handle") else int(b) for b in bounds]
  return (ti.interpreter_semantic.to_tensor(i, False) for i in range(*numbers))


class PointerMemory:
  """What a kernel was given, as ranges of addresses. Every access that a mask lets through must lie in one of them."""

  def __init__(self, buffers: Sequence[Array]):
    self.ranges = sorted((b.ctypes.data, b.ctypes.data + b.nbytes) for b in buffers)
    self.starts = np.array([begin for begin, _ in self.ranges], np.uint64)
    self.ends = np.array([end for _, end in self.ranges], np.uint64)

  def check(self, what: str, pointers: TensorHandle, mask: TensorHandle | None) -> None:
    """Raises VerifyError for an address outside: ``pointers`` are handles of addresses, ``mask`` says which are used."""
    inside = np.broadcast_to(mask.data, pointers.data.shape) if mask is not None else np.ones(pointers.data.shape, bool)
    first = pointers.data[inside].astype(np.uint64)
    if not first.size: return
    i = np.searchsorted(self.starts, first, "right").astype(np.int64) - 1
    past = first + np.uint64(pointers.get_element_ty().primitive_bitwidth + 7 >> 3) > self.ends[np.maximum(i, 0)]
    if (wrong := past | (i < 0)).any():
      raise VerifyError(f"{what} outside the kernel's memory, at {int(wrong.sum())} of {first.size} places, the first at "
                        f"{int(first[wrong][0]) - int(self.starts[max(int(i[wrong][0]), 0)])} bytes from the start of a buffer")


@contextmanager
def interpreting(module: ModuleType, buffers: Sequence[Array]) -> Iterator[None]:
  """While it lasts, ``triton.jit`` functions compute with numpy. Accesses outside the buffers raise VerifyError."""
  builder, memory = ti.interpreter_builder, PointerMemory(buffers)
  module.__dict__.setdefault("core", tl.core)   # so that this is patched too, for the library's own functions
  def checked(method: str, what: str, pointers: int, mask: int) -> Callable[..., Any]:
    """The builder's method, which looks at its addresses and its mask first."""
    original = getattr(builder, method)
    def access(*args: Any, **kwargs: Any) -> Any:
      memory.check(what, args[pointers], args[mask])
      return original(*args, **kwargs)
    return access
  with compiler.LOCK:
    store = builder.create_descriptor_store
    def checked_store(box: ti.TensorDescHandle, value: TensorHandle, corner: Sequence[TensorHandle]) -> object:
      """A chip writes a box's rows in units of 16 bytes: where the last unit is not full, what lies behind the row is overwritten
      too. Raises VerifyError for such a store. (A load gives zeros for those elements, as it should.)"""
      size, block, itemsize = (int(box.shape[-1].data.item()), box.block_shape[-1],
                               box.base.dtype.element_ty.primitive_bitwidth + 7 >> 3)
      if (end := int(corner[-1].data.item()) + block) > size and size * itemsize % UNIT:
        raise VerifyError(f"a store by descriptor writes past its box: rows of {size} elements, {size * itemsize} bytes, no "
                          f"multiple of {UNIT}, and a block ends at element {end}")
      return store(box, value, corner)
    patches = {"options": ti.InterpreterOptions(sanitize_overflow=False), "create_extern_elementwise": _extern,
               "cast_impl": _cast, "create_fp_to_fp": _cast, "create_dot": _dot, "create_descriptor_store": checked_store,
               # a scalar as a block: its own bits, for the handle of a comparison's result says int32
               "create_splat": lambda to, x: TensorHandle(np.full(to.shape, np.ravel(x.data)[0]), to.scalar),
               "get_bf16": lambda x: TensorHandle(np.array([x]).astype(ml_dtypes.bfloat16).view(np.uint16), tl.bfloat16),
               "get_all_ones_value": lambda t: TensorHandle(np.invert(np.zeros(1, _get_np_dtype(t))), t.scalar),
               "create_masked_load": checked("create_masked_load", "a load", 0, 1),
               "create_masked_store": checked("create_masked_store", "a store", 0, 2),
               "create_atomic_rmw": checked("create_atomic_rmw", "an atomic", 1, 3)}
    scope = ti._patch_lang(SimpleNamespace(__globals__=module.__dict__))
    try:
      ti._patch_builtin(libdevice, builder, scope)
      scope.set_attr(ti.ReduceOps, "apply_impl", _reduce)
      scope.set_attr(ti.ScanOps, "apply_impl", _scan)
      scope.set_attr(JITFunction, "__call__", lambda self, *args, **kwargs: rewritten(self.fn)(*args, **kwargs))
      for name, f in patches.items(): scope.set_attr(builder, name, f)
      scope.set_attr(tl, "range", _range)
      module.__dict__["range"] = _range
      with np.errstate(all="ignore"): yield
    finally:
      module.__dict__.pop("range", None)
      scope.restore()


def rewritten(fn: Callable[..., None]) -> Callable[..., None]:
  """A kernel's or helper's Python function as the interpreter runs it."""
  return ti.InterpretedFunction(fn).rewrite()


class InterpretedProgram(Program):
  """A rendered kernel. Launching runs its programs one after the other. Raises CompileError for source that is no Python."""

  def __init__(self, spec: ProgramSpec):
    self.spec = spec
    self.module = compiler.load(spec.source.text)
    self.fn = getattr(self.module, spec.name).fn
    self.types = [t for _, t in spec.source.signature]
    self.grid = launch_grid(spec)

  def __call__(self, buffers: Sequence[Array], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Run over the buffers. Raises CompileError with the program's place in the grid where the interpreter refuses."""
    if len(buffers) != self.spec.nparams:
      raise VerifyError(f"kernel {self.spec.label!r} takes {self.spec.nparams} buffers, got {len(buffers)}")
    start = time.perf_counter()
    with interpreting(self.module, buffers):
      run = rewritten(self.fn)
      types = [tl.str_to_ty(t, None) for t in self.types]
      given = buffers[:len(types) - len(sizes)]   # no others than the kernel uses
      values = [*(np.array([raw.ctypes.data], np.uint64) for raw in given),
                *(np.array([n], dtype.np) for n, dtype in zip(sizes, self.spec.source.sizes))]
      args = [tl.tensor(TensorHandle(x, t), t) for x, t in zip(values, types)]
      nx, ny, nz = self.grid(sizes)
      ti.interpreter_builder.set_grid_dim(nx, ny, nz)
      for z, y, x in np.ndindex(nz, ny, nx):
        ti.interpreter_builder.set_grid_idx(x, y, z)
        try: run(*args)
        except Exception as e:
          raise CompileError(f"kernel {self.spec.label}, program ({x}, {y}, {z}): {type(e).__name__}: {e}\n"
                             f"{self.spec.source.text}") from e
    return time.perf_counter() - start if wait else None


class InterpreterDevice(NumpyDevice):
  """numpy memory; launches are interpreted, and done when they return. Slow: for tests."""
  name = "TRITON"
  identity = "Triton's interpreter"

  def __init__(self) -> None: self.renderer = TritonRenderer(replace(TARGET, cores=2))   # programs run one by one: few large ones

  def compile(self, specs: Specs) -> list[Program]: return [InterpretedProgram(s) for s in specs]
