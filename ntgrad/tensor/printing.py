"""The text of a tensor with its values, in the layout of PyTorch's ``torch/_tensor_str.py``."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from ntgrad.codegen.ir import dtypes
from ntgrad.engine.device import Device

WHOLE = 1 << 20   # elements up to which all values are copied to the host to be printed


@dataclass
class PrintOptions:
  """How values are printed, as ``set_printoptions`` says it."""
  precision: int = 4         # digits behind the point
  threshold: float = 1000    # elements; of more, those at the edges are shown
  edgeitems: int = 3         # at either end of each dimension
  linewidth: int = 80        # characters
  sci_mode: bool | None = None   # with exponents; None: where the values ask for it


options = PrintOptions()
_HEAD = "tensor("


def tensor_text(t: Any) -> str:
  """A tensor that is computed, with its values. See ``Tensor.__str__``."""
  dtype, shape, device, empty = t.dtype, t.shape, t.device, 0 in t.shape
  ordinary = (dtypes.default_float,) if empty else (dtypes.default_float, dtypes.default_int, dtypes.int64, dtypes.bool)
  suffixes = (
    (device != Device.DEFAULT, f"device='{device.type}{'' if device.index is None else f':{device.index}'}'"),
    (len(shape) != 1 if empty else not options.edgeitems, f"size={tuple([int(n) for n in shape])}"),
    (dtype not in ordinary, f"dtype=torch.{dtype.np.name}"), (t.requires_grad, "requires_grad=True"))
  out = _HEAD + ("[]" if empty else _values_text(t.detach()))
  column = len(out) - out.rfind("\n") + 1   # as PyTorch counts it
  for s in [text for said, text in suffixes if said]:
    apart = ", "
    if column + len(s) + 2 > options.linewidth: apart, column = ",\n" + " " * len(_HEAD), len(_HEAD) - 2
    out, column = out + apart + s, column + 2 + len(s)
  return out + ")"


def _values_text(t: Any) -> str:
  edge, floats = options.edgeitems, t.dtype.kind in "fe"
  cut = [d for d, n in enumerate(t.shape) if t.numel() > options.threshold and n > 2 * edge]
  shape = tuple([2 * edge + 1 if d in cut else int(n) for d, n in enumerate(t.shape)])   # with the place of the dots
  for d in cut if t.numel() > WHOLE else ():   # only what is shown is copied
    t = t.narrow(d, 0, edge).cat(t.narrow(d, t.shape[d] - edge, edge), dim=d)
  values = t.numpy()
  for d in cut: values = values.take([*range(edge), *range(-edge, 0)], d)
  if floats: values = values.astype(np.float64)
  texts, width = _number_texts(values.reshape(-1).tolist(), floats)
  return _nested_text(np.array(texts, object).reshape(values.shape), shape, width, len(_HEAD))


def _number_texts(values: list[Any], floats: bool) -> tuple[list[str], int]:
  """Numbers as text, and their width: of floats, that of those that are neither 0 nor infinite nor NaN."""
  spec, point, measured = "", "", [v for v in values if v and math.isfinite(v)] if floats else values
  if floats:
    sizes = sorted([abs(v) for v in measured]) or [1.0]
    least, most = sizes[0], sizes[-1]
    many = most / least > 1000 or most > 1e8 or least < 1e-4
    if measured and (many if options.sci_mode is None else options.sci_mode): spec = f".{options.precision}e"
    elif all([v.is_integer() for v in measured]): spec, point = ".0f", "."
    else: spec = f".{options.precision}f"
  def text(v: Any) -> str: return format(v, spec) + point if point and math.isfinite(v) else format(v, spec)
  width = max([1, *[len(text(v)) for v in measured]])
  return [text(v).rjust(width) for v in values], width


def _nested_text(texts: Any, shape: Sequence[int], width: int, indent: int) -> str:
  """Texts in brackets. Where ``shape`` has one more in a dimension than they have, dots stand in the middle."""
  if not shape: return str(texts.item())
  last = len(shape) == 1
  rows = [*texts] if last else [_nested_text(t, shape[1:], width, indent + 1) for t in texts]
  if shape[0] > len(rows): rows.insert(len(rows) // 2, " ..." if last and rows else "...")
  apart = "," + "\n" * max(len(shape) - 1, 1) + " " * (indent + 1)
  if last:
    most = max(1, (options.linewidth - indent) // (width + 2))   # on a line
    rows = [", ".join(rows[i:i + most]) for i in range(0, len(rows), most)]
  return f"[{apart.join(rows)}]"
