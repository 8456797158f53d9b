"""Folders of pictures, a folder a class."""
from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, NtgradError, shown
from ntgrad.codegen.ir.paths import shown_path
from ntgrad.graph import checked
from ntgrad.nn.data import Dataset
from ntgrad.nn.data.sets import row_of
from ntgrad.nn.state.archives import array_header
from ntgrad.nn.state.files import Mapped, plain_file

from .images import folder_of, listing

Array = np.ndarray[Any, Any]
_OWN = ".npy", ".ppm", ".pgm", ".bmp"
_PILLOW = tuple(".png .jpg .jpeg .gif .webp .tif .tiff".split())
_MOST = 1 << 28   # pixels of a picture


@checked
class ImageFolder(Dataset[tuple[Any, int]]):
  """Pictures in folders named as their classes, ``data/cat/1.png``: rows are ``(picture, number of its class)``.

  Pictures are uint8 ``(channels, height, width)``, with ``channels`` 3 (grey ones are repeated), 1 (0.299 red + 0.587 green +
  0.114 blue) or None (as they are, without transparency); ``transform(picture)`` is called on each. They are read when a row is
  asked for: PPM, PGM, BMP and ``.npy`` (such an array) by ntgrad, PNG, JPEG, GIF, WebP and TIFF by the package pillow.

  ``classes`` are the names, sorted; ``paths`` and ``labels`` those of the rows. Other files, and names that begin with a dot, are
  left out. Raises ArgumentError where there are no classes, a class has no picture, or, when it is read, a picture is damaged."""

  def __init__(self, path: str | os.PathLike[str], transform: Callable[..., Any] | None = None, channels: int | None = 3):
    if channels not in (None, 1, 3): raise ArgumentError(f"image_folder: channels {channels}; it takes 1, 3 or None")
    root = folder_of("image_folder", path, "a folder of pictures for each class")
    folders = sorted([f for f in root.iterdir() if f.is_dir() and f.name[0] != "."])
    if not folders: raise ArgumentError(f"image_folder: {str(root)!r} has no folders, one for each class; it has {listing(root)}")
    self.root, self.transform, self.channels = root, transform, channels
    self.classes = tuple(f.name for f in folders)
    self.paths = list[Path]()
    counts = []
    for folder in folders:
      found = sorted([p for p in folder.rglob("*") if p.suffix.lower() in _OWN + _PILLOW and p.name[0] != "." and p.is_file()])
      if not found:
        raise ArgumentError(f"image_folder: {str(folder)!r} has no pictures ({', '.join(_OWN + _PILLOW)}); it has "
                            f"{listing(folder)}")
      self.paths += found
      counts.append(len(found))
    self.labels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)

  def __len__(self) -> int: return len(self.paths)

  def __getitem__(self, index: Any) -> tuple[Any, int]:
    i = row_of("ImageFolder", index, len(self))
    picture = _read(self.paths[i], self.channels)
    return (picture if self.transform is None else self.transform(picture)), int(self.labels[i])


@checked
def image_folder(path: str | os.PathLike[str], transform: Callable[..., Any] | None = None,
                 channels: int | None = 3) -> ImageFolder:
  """The pictures of a folder that has a folder for each class; see ImageFolder."""
  return ImageFolder(path, transform, channels)


def _read(path: Path, channels: int | None) -> Array:
  """A picture, uint8 ``(channels, height, width)``. Raises ArgumentError, MissingFileError."""
  def refuse(why: str) -> ArgumentError: return ArgumentError(f"image_folder: {shown_path(path)} is no whole picture: {why}")
  kind = path.suffix.lower()
  if kind in _PILLOW: a = _by_pillow(path, refuse)
  else: a = {".npy": _npy, ".bmp": _bmp}.get(kind, _pnm)(Mapped("image_folder", path)[:].tobytes(), refuse)
  if channels is None or len(a) == channels: return a
  if len(a) == 1: return np.repeat(a, 3, 0)
  if len(a) != 3: raise ArgumentError(f"image_folder: {str(path)!r} has {len(a)} channels; take channels=None, or keep 1 or 3")
  return np.round(np.tensordot((0.299, 0.587, 0.114), a, 1)).astype(np.uint8)[None]


Refuse = Callable[[str], ArgumentError]


def _npy(data: bytes, refuse: Refuse) -> Array:
  if data[:6] != b"\x93NUMPY": raise refuse(f"it starts with {data[:6]!r}, expected \\x93NUMPY")
  shape, columns, _, dtype, begin = array_header(data, "it", refuse)  # type: ignore[arg-type]
  if dtype != np.uint8 or len(shape) not in (2, 3) or 0 in shape:
    raise refuse(f"it is {dtype} {shown(shape)}, expected uint8 (channels, height, width)")
  if len(data) - begin != math.prod(shape):
    raise refuse(f"it has {len(data) - begin} bytes, shape {shape} takes {math.prod(shape)}")
  a = np.frombuffer(data, np.uint8, offset=begin).reshape(shape, order="F" if columns else "C").copy()
  return a if a.ndim == 3 else a[None]


def _pnm(data: bytes, refuse: Refuse) -> Array:
  """PPM and PGM, as numbers or as bytes: P2, P3, P5, P6."""
  head = re.match(rb"P([2356])(?:\s|#[^\n]*\n)+(\d{1,9})(?:\s|#[^\n]*\n)+(\d{1,9})(?:\s|#[^\n]*\n)+(\d{1,5})\s", data[:1 << 16])
  if head is None: raise refuse(f"it starts with {data[:12]!r}, expected P2, P3, P5 or P6, width, height and the greatest value")
  form, width, height, top = (int(g) for g in head.groups())
  channels, count = (3 if form in (3, 6) else 1), width * height
  if not 0 < count <= _MOST or not 0 < top < 256: raise refuse(f"{width} × {height} pixels, values up to {top}, expected 255")
  rest = data[head.end():]
  if form > 3: values = np.frombuffer(rest, np.uint8)
  else:
    if re.fullmatch(rb"[\d\s]*", rest) is None or re.search(rb"\d{4}", rest): raise refuse("its pixels are no numbers up to 255")
    values = np.fromstring(rest, np.uint16, sep=" ").clip(max=255).astype(np.uint8)
  if len(values) < count * channels:
    raise refuse(f"{width} × {height} pixels take {count * channels} values, it has {len(values)}")
  values = values[:count * channels]
  if values.max() > top: raise refuse(f"it has a value {values.max()}, and says that none is above {top}")
  if top < 255: values = ((values.astype(np.uint32) * 255 + top // 2) // top).astype(np.uint8)
  return np.ascontiguousarray(values.reshape(height, width, channels).transpose(2, 0, 1))


def _bmp(data: bytes, refuse: Refuse) -> Array:
  """BMP without compression: 8 bits with a palette, 24 or 32 bits."""
  if len(data) < 54 or data[:2] != b"BM":
    raise refuse(f"it starts with {data[:2]!r} and has {len(data)} bytes, expected BM and 54 or more")
  begin, head, width, height, bits, packed = struct.unpack_from("<4i2xHi", data, 10)
  if head < 40 or packed not in (0, 3) or bits not in (8, 24, 32) or (packed and bits != 32):
    raise refuse(f"{bits} bits a pixel, compression {packed}; expected 8, 24 or 32 bits without compression")
  rows, stride = abs(height), (width * bits + 31) // 32 * 4
  if width < 1 or not 0 < rows * width <= _MOST or not 14 + head <= begin or begin + stride * rows > len(data):
    raise refuse(f"{width} × {rows} pixels from byte {begin} on, it has {len(data)} bytes")
  if packed and data[54:66] != bytes([0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0]):
    raise refuse("its colours are in another order than blue, green, red")
  table = np.frombuffer(data, np.uint8, stride * rows, begin).reshape(rows, stride)[:, :width * bits // 8]
  if height > 0: table = table[::-1]   # the last row comes first
  if bits > 8: pixels = table.reshape(rows, width, bits // 8)[..., 2::-1]
  else:
    colours = np.frombuffer(data[14 + head:begin], np.uint8)
    palette = colours[:len(colours) // 4 * 4].reshape(-1, 4)[:, 2::-1]
    if table.max() >= len(palette): raise refuse(f"a colour {table.max()} of {len(palette)}")
    pixels = palette[table]
  return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _by_pillow(path: Path, refuse: Refuse) -> Array:
  try:
    from PIL import Image
  except ImportError:
    raise ArgumentError(f"image_folder: {str(path)!r} takes the package pillow to read; pip install pillow, or keep pictures as "
                        f"{', '.join(_OWN)}") from None
  try:
    # others have readers that run programs
    with Image.open(plain_file("image_folder", path), formats="PNG JPEG GIF WEBP TIFF".split()) as picture:
      width, height = picture.size
      if width * height * 3 > (40 << 20) + 256 * path.stat().st_size:
        raise refuse(f"it has {width} × {height} pixels, too many for {path.stat().st_size} bytes")
      if picture.mode[0] in "IF": raise refuse(f"its pixels are {picture.mode}, expected 8 bits a channel")
      grey = picture.mode in ("1", "L", "LA")
      a = np.asarray(picture.convert("L" if grey else "RGB"))
  except NtgradError: raise
  except Exception as e: raise refuse(str(e)[:200]) from None   # decoders raise whatever they meet
  return a[None] if grey else np.ascontiguousarray(a.transpose(2, 0, 1))
