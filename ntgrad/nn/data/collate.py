"""One batch of many rows."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, DTypeError, ShapeError, dtypes, shown
from ntgrad.graph import checked, foreign
from ntgrad.nn.common import is_dtype
from ntgrad.tensor import Tensor

_DEEP, _MOST = 64, 1 << 16   # rows may be nested so deep, and have so many columns


@checked
def default_collate(batch: Sequence[Any]) -> Any:
  """The rows ``batch`` as one: Tensors, arrays and numbers are stacked to Tensors whose first dimension is the batch; tuples,
  lists and dicts of them are collated item by item; strings and bytes are a list.

  Arrays keep their dtype, Python's numbers have the one that ``Tensor`` gives a list of them. Raises ShapeError for rows of
  different shapes, lengths or keys, DTypeError for what no tensor is made of, ArgumentError for no rows."""
  return collated(batch, None)


class _Count:
  """How many columns there are: lists that hold each other twice have more than can be made."""
  n = 0


def collated(rows: Sequence[Any], device: str | None, deep: int = 0, count: _Count | None = None) -> Any:
  """``default_collate`` with Tensors on ``device`` (None: the default one, or where the rows' Tensors are)."""
  count = count or _Count()
  count.n += 1
  if count.n > _MOST:
    raise ShapeError(f"default_collate: rows of more than {_MOST} columns, or of lists that come again and again")
  if not len(rows): raise ArgumentError("default_collate: no rows; a batch has one or more")
  if deep > _DEEP: raise ShapeError(f"default_collate: rows are nested more than {_DEEP} deep")
  first = rows[0]
  if isinstance(first, (str, bytes)): return list(rows)
  kinds = {_kind(x) for x in rows}
  if len(kinds) > 1:
    raise DTypeError(f"default_collate: rows of {' and '.join(sorted(kinds))}; they must be of one kind, or give a collate_fn")
  kind = kinds.pop()
  if kind == "numbers":
    return Tensor(np.stack(rows) if all(isinstance(x, np.generic) for x in rows) and len({x.dtype for x in rows}) == 1
                  else list(rows), device=device)
  if kind == "arrays": return _stacked(rows, device)
  if kind == "Tensors": return _stacked([x.detach().numpy() for x in rows], device or first.device)
  if kind == "dicts":
    if (odd := next((x for x in rows if x.keys() != first.keys()), None)) is not None:
      raise ShapeError(f"default_collate: dicts with the keys {shown(list(first))} and {shown(list(odd))}; all must be alike")
    return {k: collated([x[k] for x in rows], device, deep + 1, count) for k in first}
  if kind == "lists":
    lengths = sorted({len(x) for x in rows})
    if len(lengths) > 1:
      raise ShapeError(f"default_collate: lists of {lengths[0]} and of {lengths[-1]} items; all rows must be alike, or give a "
                       "collate_fn")
    return _as(first, [collated(column, device, deep + 1, count) for column in zip(*rows)])
  raise DTypeError(f"default_collate: rows of {type(first).__name__} ({shown(first)}); they may be Tensors, arrays, numbers, "
                   "text, and tuples, lists and dicts of these. Give a collate_fn for others")


def placed(x: Any, device: str | None, deep: int = 0, count: _Count | None = None) -> Any:
  """Arrays and Tensors within lists, tuples and dicts as Tensors on ``device``; what no tensor is made of stays as it is."""
  if isinstance(x, Tensor): return x if device is None or x.device == device else x.to(device).realize()
  if isinstance(x, np.ndarray): return Tensor(x, device=device) if x.dtype.kind in "biuf" or is_dtype(x.dtype) else x
  if deep > _DEEP or not isinstance(x, (Mapping, list, tuple)): return x
  count = count or _Count()
  count.n += len(x)
  if count.n > 1 << 24:
    raise ShapeError(f"DataLoader: a batch of more than {count.n} values, or of lists that come again and again")
  if isinstance(x, Mapping): return {k: placed(v, device, deep + 1, count) for k, v in x.items()}
  return _as(x, [placed(v, device, deep + 1, count) for v in x])


def _as(like: Any, items: list[Any]) -> Any:
  """Items as a list, a tuple or a named tuple, whichever ``like`` is."""
  if isinstance(like, list): return items
  return type(like)(*items) if hasattr(like, "_fields") else tuple(items)


def _kind(x: Any) -> str:
  if isinstance(x, Tensor): return "Tensors"
  if isinstance(x, (bool, int, float, np.bool_, np.number)): return "numbers"
  if isinstance(x, np.ndarray): return "arrays"
  if isinstance(x, (str, bytes)): return "text"
  if isinstance(x, Mapping): return "dicts"
  if isinstance(x, (list, tuple)): return "lists"
  return "arrays" if foreign(x) else type(x).__name__


def _stacked(rows: Sequence[Any], device: str | None) -> Tensor:
  """Arrays, or what numpy or DLPack can read as arrays, as one Tensor."""
  arrays = [np.asarray(x) if hasattr(type(x), "__array__") else Tensor(x).numpy() for x in rows]
  shapes = list(dict.fromkeys([a.shape for a in arrays]))
  if len(shapes) > 1:
    raise ShapeError(f"default_collate: rows of shape {shapes[0]} and {shapes[1]}; they must be the same, or give a collate_fn")
  kinds = list(dict.fromkeys([a.dtype for a in arrays]))
  if len(kinds) > 1:
    raise DTypeError(f"default_collate: rows of {kinds[0]} and {kinds[1]}; they must be of one dtype, or give a collate_fn")
  dtypes.of(arrays[0].dtype)   # refuses what no tensor has
  return Tensor(np.stack(arrays), device=device)
