"""What operands have together: the shape that they broadcast to, their device, the dtype that they are promoted to; and the
numbers that stand beside them.

Promotion is PyTorch's (docs/numbers.md): tensors of shape () take part by their category where others have dimensions, Python
numbers beside any tensor, so ``int32 * 0.5`` is float32 and ``float16 * 0.5`` float16."""
from __future__ import annotations

import math
from typing import Any

from ntgrad.codegen.ir import ArgumentError, DeviceError, DType, ShapeError, UOp, dtypes, promote_tensors, shown
from ntgrad.graph import nodes as graph, shape_with_variables
from ntgrad.graph.nodes import Shape


def broadcast_shape(name: str, *shapes: Shape) -> Shape:
  """The shape that all of ``shapes`` broadcast to, as in numpy. Raises ShapeError."""
  n = max([len(s) for s in shapes])
  out = [1] * n
  for s in shapes:
    for i, d in enumerate(s, n - len(s)):
      if d != 1:
        if out[i] not in (1, d):
          raise ShapeError(f"{name}: shapes {' and '.join(map(shape_with_variables, shapes))} do not broadcast; "
                           "dimensions, counted from the last, must be equal or 1")
        out[i] = d
  return tuple(out)


def common_device(name: str, *nodes: UOp) -> None:
  """Raises DeviceError if nodes live on different devices (constants live on any)."""
  first = None
  for n in nodes:
    d = n.device
    if d is None: continue
    if first is None: first = d
    elif d != first: raise DeviceError(f"{name}: tensors on {first} and on {d}; move them to one device with .to()")


def common_dtype(*nodes: UOp) -> DType:
  """The dtype that operands have together."""
  return promote_tensors([u.dtype for u in nodes if u.shape], [u.dtype for u in nodes if not u.shape])


def scalar_dtype(value: Any, dtype: DType) -> DType:
  """The dtype that a Python number and a tensor of ``dtype`` work in."""
  kind = dtype.kind
  if kind == "e": return dtypes.float32
  if kind == "f" or isinstance(value, bool): return dtype
  return dtypes.default_float if not isinstance(value, int) else dtypes.default_int if kind == "b" else dtype


def scalar_node(name: str, value: Any, dtype: DType, shape: Shape) -> UOp:
  """A Python number as a constant. Raises ArgumentError for one that an int dtype does not hold, and an int beyond floats."""
  if dtype.kind in "fe":
    try: return graph.const(value, dtype, shape)
    except OverflowError: raise ArgumentError(f"{name}: {shown(value)} does not fit {dtype.name}") from None
  if dtype.kind != "b":
    lo, hi = dtypes.min(dtype), dtypes.max(dtype)
    if not lo <= value <= hi: raise ArgumentError(f"{name}: {shown(value)} does not fit {dtype.name}, which holds {lo} to {hi}")
    if value != int(value): raise ArgumentError(f"{name}: {value} does not fit {dtype.name}, which holds ints")
  return graph.const(value, dtype, shape)


def cut_to_int(name: str, value: Any, dtype: DType) -> Any:
  """A Python number without its fraction where the dtype is one of ints. Raises ArgumentError for inf and NaN."""
  if dtype.kind not in "iu" or isinstance(value, int): return value
  if not math.isfinite(value): raise ArgumentError(f"{name}: {value} as {dtype.name}; it takes ints")
  return int(value)
