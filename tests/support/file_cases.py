"""Good files of every format that is read, their readers, and the same files damaged, by a seed."""
from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from support import gguf
from support.torch_pickle import Call, Kept, Name, Raw, in_line, ordered, pickled, storage, tarred, tensor, zipped

X = np.arange(24, dtype=np.float32)
F = storage("FloatStorage", "0", 24)
KINDS = ("pt", "packed.pt", "line.pt", "tar.pt", "npz", "packed.npz", "safetensors", "index.json", "gguf", "zip", "tar", "tgz",
  "txz",
         "idx", "idx.gz", "cifar", "csv", "ppm", "bmp", "npy", "png")


class Case(NamedTuple):
  """A file: what is wrong with it, which reader it is for, its bytes, and whether it has to be refused."""
  name: str
  kind: str
  data: bytes
  refused: bool = True


# ---- readers

def read(kind: str, path: Path) -> None:
  """Read all of a file, with the reader of its kind."""
  from ntgrad import Tensor
  from ntgrad.nn import datasets, state
  from ntgrad.nn.data import DataLoader
  def use(x: Any) -> None:
    for t in (x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else [x]):
      if isinstance(t, Tensor): t.numpy()
  ends = kind.rpartition(".")[2]
  if ends == "pt": use(state.torch_load(path, "NUMPY"))
  elif ends == "npz": use(state.npz_load(path, "NUMPY"))
  elif ends in ("safetensors", "json"): use(state.safe_load(path, "NUMPY"))
  elif ends == "gguf": use(state.gguf_load(path, "NUMPY")[1])
  elif ends == "zip": use(state.zip_extract(path, "NUMPY"))
  elif ends in ("tar", "tgz", "txz", "tbz"): use(state.tar_extract(path, "NUMPY"))
  elif ends in ("idx", "gz"): datasets.load_idx(path)
  elif ends == "cifar": datasets.cifar10(path.parent)
  elif ends == "csv": datasets.csv(path)
  else: next(iter(DataLoader(datasets.image_folder(path.parent.parent), batch_size=1)))


def place(kind: str, folder: Path, data: bytes) -> Path:
  """Write a file to where its reader looks for it."""
  if kind == "cifar":
    for name in ("data_batch_1", "test_batch"): (folder / name).write_bytes(data)
    return folder / "test_batch"
  if kind in ("ppm", "bmp", "npy", "png"): (folder / "class").mkdir(exist_ok=True)
  path = folder / ("class" if kind in ("ppm", "bmp", "npy", "png") else "") / f"a.{kind}"
  path.write_bytes(data)
  return path


# ---- good files

def whole(kind: str) -> bytes:
  """A good file of a kind."""
  a = np.arange(200, dtype=np.float32).reshape(10, 20)
  value = ordered(("a", tensor(F, 2, (3, 4), (4, 1))), ("b", [1, 2.5, "text", (True, None)]),
    ("s", Call(Name("torch", "Size"), ((2,),))))
  out = io.BytesIO()
  if kind in ("pt", "packed.pt"): return zipped(value, {"0": X.tobytes()}, compressed=kind != "pt")
  if kind == "line.pt": return in_line(value, {"0": (24, X.tobytes())})
  if kind == "tar.pt": return tarred({"a": Kept("7")}, {1: ("Float", 24, X.tobytes())}, {7: (1, (2, 3), (1, 2), 3)}, [])
  if kind == "npz": np.savez(out, a=a, b=a > 7, c=np.asfortranarray(a))
  elif kind == "packed.npz": np.savez_compressed(out, a=a, b=a > 7)
  elif kind == "safetensors": return safetensors({"a": {"dtype": "F32", "shape": [10, 20], "data_offsets": [0, 800]}},
    a.tobytes())
  elif kind == "index.json": return json.dumps({"metadata": {"n": 1}, "weight_map": {"a": "a.safetensors"}}).encode()
  elif kind == "gguf":
    with tempfile.TemporaryDirectory() as folder:
      return gguf.write(Path(folder) / "a",
        [("general.name", "text", "x", ""), ("n", "u32", 7, ""), ("l", "list", [1, 2], "i32")],
                        {"a": ("F32", (10, 20), a.tobytes())})
  elif kind in ("zip", "tar", "tgz", "txz"): return archive(kind, {"a.txt": b"one" * 50, "b/c.bin": bytes(range(256))})
  elif kind in ("idx", "idx.gz"):
    data = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 4, 4) + bytes(range(32))
    return data if kind == "idx" else gzip.compress(data, mtime=0)
  elif kind == "cifar": return pickled({"data": cifar_array((2, 3072), bytes(6144)), "labels": [1, 2]})
  elif kind == "csv": return b"a,b,c\n" + b"".join(b"%d,%d.5,x%d\n" % (i, i, i) for i in range(30))
  elif kind == "ppm": return b"P6 4 4 255\n" + bytes(range(48))
  elif kind == "npy": np.save(out, np.arange(48, dtype=np.uint8).reshape(3, 4, 4))
  else:
    from PIL import Image
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(out, kind)
  return out.getvalue()


def safetensors(header: Any, data: bytes) -> bytes:
  text = header if isinstance(header, bytes) else json.dumps(header).encode()
  return struct.pack("<Q", len(text)) + text + data


def archive(kind: str, files: dict[str, bytes]) -> bytes:
  out = io.BytesIO()
  if kind == "zip":
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
      for name, data in files.items(): z.writestr(name, data)
  else:
    with tarfile.open(fileobj=out, mode={"tar": "w:", "tgz": "w:gz", "txz": "w:xz"}[kind]) as t:  # type: ignore[call-overload]
      for name, data in files.items():
        info = tarfile.TarInfo(name)
        info.size = len(data)
        t.addfile(info, io.BytesIO(data))
  return out.getvalue()


def cifar_array(shape: tuple[int, ...], data: bytes) -> Call:
  dtype = Call(Name("numpy", "dtype"), ("u1", 0, 1), (3, "|", None, None, None, -1, -1, 0))
  return Call(Name("numpy.core.multiarray", "_reconstruct"), (Name("numpy", "ndarray"), (0,), "b"),
              (1, shape, dtype, False, Raw(b"B" + struct.pack("<I", len(data)) + data)))


# ---- damage

def damaged(rng: np.random.Generator, kind: str) -> Case:
  """A good file with something in it changed."""
  data = bytearray(whole(kind))
  n = len(data)
  at = int(rng.integers(n))
  how = ("flip", "flips", "cut", "length", "swap", "zeros", "twice", "missing", "byte", "more")[rng.integers(10)]
  if how in ("flip", "flips"):
    for i in [at] if how == "flip" else rng.integers(n, size=8): data[i] ^= 1 << int(rng.integers(8))
  elif how == "cut": del data[at:]
  elif how == "length": data[at:at + 4] = struct.pack("<I", (0, 1, 0x7fffffff, 0xffffffff, 0x80000000, n)[rng.integers(6)])
  elif how == "swap": data[at:at + 8] = data[at:at + 8][::-1]
  elif how == "zeros": data[at:at + 16] = bytes(len(data[at:at + 16]))
  elif how == "twice": data[at:at] = data[at:at + int(rng.integers(1, 200))]
  elif how == "missing": del data[at:at + int(rng.integers(1, 50))]
  elif how == "byte": data[at] = int(rng.integers(256))
  else: data += data[:int(rng.integers(1, 100))]
  return Case(f"{how} at {at}", kind, bytes(data), False)
