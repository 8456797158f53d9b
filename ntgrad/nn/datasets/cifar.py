"""CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html), in the binary form or the Python form as published."""
from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from ntgrad.codegen.ir.errors import ArgumentError, shown
from ntgrad.codegen.ir.paths import shown_path
from ntgrad.graph.checks import checked
from ntgrad.nn.state.mapped import Mapped, Refuse
from ntgrad.nn.state.pickles import Built, Called, load, text_bytes

from .digits import Images, folder_of, listing

_PIXELS = 3 * 32 * 32


@checked
def cifar10(data: str | os.PathLike[str]) -> Images:
  """CIFAR-10: 32 × 32 pictures in 10 classes, uint8 ``(n, 3, 32, 32)`` and int32 ``(n,)``, 50,000 to train on, 10,000 held out.

  ``data`` is the folder as it is unpacked: ``cifar-10-batches-bin`` (``data_batch_1.bin``, .., ``test_batch.bin``) or
  ``cifar-10-batches-py`` (``data_batch_1``, .., pickles, of which nothing is run), or the folder that it is in. There may be
  fewer than five batches. Raises ArgumentError where a file is missing, damaged or of another length.
  """
  return _images("cifar10", data, ("cifar-10-batches-bin", "cifar-10-batches-py"), [f"data_batch_{i}" for i in range(1, 6)],
                 "test_batch", 10, 1, 0)


@checked
def cifar100(data: str | os.PathLike[str], coarse: bool = False) -> Images:
  """CIFAR-100: 32 × 32 pictures in 100 classes, or with ``coarse`` in the 20 classes above these; shapes as of ``cifar10``.

  ``data`` is as of ``cifar10``: ``cifar-100-binary`` (``train.bin``, ``test.bin``) or ``cifar-100-python`` (``train``, ``test``).
  Raises as that does."""
  return _images("cifar100", data, ("cifar-100-binary", "cifar-100-python"), ["train"], "test", 20 if coarse else 100, 2,
                 0 if coarse else 1)


def _images(name: str, data: str | os.PathLike[str], inner: tuple[str, str], train: list[str], test: str, *how: int) -> Images:
  """The files of a folder, or of one in it, in either form: the first to train on and the one to test on have to be there."""
  top = folder_of(name, data, "its files")
  for folder in (top, *[top / i for i in inner]):
    for read, end in ((_binary, ".bin"), (_pickled, "")):
      there = [path for n in (*train, test) if (path := folder / (n + end)).is_file()]
      if not {folder / (n + end) for n in (train[0], test)} <= set(there): continue
      *first, last = [read(name, path, *how) for path in there]
      return Images(np.concatenate([x for x, _ in first]), np.concatenate([y for _, y in first]), *last)
  raise ArgumentError(f"{name}: {str(top)!r} has no {train[0]}.bin and {test}.bin, nor the same without .bin; it has "
                      f"{listing(top)}")


def _binary(name: str, path: Path, classes: int, labels: int, which: int) -> tuple[np.ndarray, np.ndarray]:
  """Rows of ``labels`` bytes, one a label, and the pixels."""
  table = Mapped(name, path)[:]
  row = labels + _PIXELS
  if not len(table) or len(table) % row:
    raise ArgumentError(f"{name}: {str(path)!r} has {len(table)} bytes, expected a multiple of {row} (a picture and its labels)")
  table = table.reshape(-1, row)
  return _checked(name, path, table[:, labels:], table[:, which], classes)


def _checked(name: str, path: Path, pixels: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
  if labels.max() >= classes or labels.min() < 0:
    raise ArgumentError(f"{name}: the labels of {str(path)!r} go from {labels.min()} to {labels.max()}, expected 0 to "
                        f"{classes - 1}")
  return np.ascontiguousarray(pixels).reshape(-1, 3, 32, 32), labels.astype(np.int32)


# ---- the Python form: pickles of numpy arrays, as Python 2 wrote them

class _DType(Built):
  """numpy.dtype of bytes; its state is how bytes are ordered, of which one has none."""
  def __init__(self, text: Any, *how: Any):
    if not isinstance(text, (str, bytes)) or text not in ("u1", b"u1"): raise ValueError(f"a dtype {shown(text)}, expected u1")
  def build(self, state: Any) -> None:
    """Nothing is taken of it."""


class _Array(Built):
  def __init__(self, *how: Any): self.array: np.ndarray | None = None

  def build(self, state: Any) -> None:
    """``(version, shape, dtype, whether in Fortran's order, bytes)``."""
    _, shape, dtype, fortran, data = state
    if isinstance(data, str): data = data.encode("latin-1")   # Python 2 has one type for both
    if not isinstance(dtype, _DType) or not isinstance(data, bytes) or not isinstance(shape, tuple) or len(shape) > 3 \
       or not all(type(n) is int and 0 <= n < 1 << 40 for n in shape) or math.prod(shape) != len(data):
      raise ValueError(f"an array of shape {shown(shape)} and {shown(data)}")
    self.array = np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C")


_KNOWN: dict[str, Any] = {
  "numpy.dtype": Called("numpy.dtype", _DType), "numpy.ndarray": None, "_codecs.encode": Called("_codecs.encode", text_bytes),
  **dict.fromkeys(("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"),
                  Called("numpy's _reconstruct", _Array))}


def _pickled(name: str, path: Path, classes: int, labels: int, which: int) -> tuple[np.ndarray, np.ndarray]:
  """A dict of ``data`` (n, 3072) and lists of labels."""
  def error(why: str) -> ArgumentError: return ArgumentError(f"{name}: {shown_path(path)} is no batch as published: {why}")
  refuse: Refuse = error   # type: ignore[assignment]
  def no_other(pid: Any) -> Any: raise error(f"its pickle asks for {shown(pid)}")
  found = load(Mapped(name, path)[:].data, _KNOWN, no_other, refuse).value
  if not isinstance(found, dict): raise error(f"it holds {shown(found)}, expected a dict")
  found = {k.decode("latin-1") if isinstance(k, bytes) else k: v for k, v in found.items()}
  key = "labels" if labels == 1 else ("coarse_labels", "fine_labels")[which]
  data, numbers = found.get("data"), found.get(key)
  pixels = data.array if isinstance(data, _Array) else None
  if pixels is None or pixels.ndim != 2 or pixels.shape[1] != _PIXELS or not len(pixels):
    raise error(f"its data is {'missing' if pixels is None else f'an array of shape {pixels.shape}'}, expected (n, {_PIXELS})")
  if not isinstance(numbers, list) or len(numbers) != len(pixels) or not all(type(n) is int and 0 <= n < 256 for n in numbers):
    raise error(f"its {key} are {shown(numbers)}, expected {len(pixels)} numbers")
  return _checked(name, path, pixels, np.array(numbers), classes)
