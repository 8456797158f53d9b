"""npz files, several safetensors files with an index, tar and zip archives, reading when a tensor is used, what loading says."""
from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, nn
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.errors import DTypeError, MissingFileError, StateError
from ntgrad.nn.state import (
  load_state_dict,
  npz_load,
  npz_save,
  safe_load,
  safe_load_metadata,
  safe_save,
  tar_extract,
  zip_extract,
)
from support.marks import long

RNG = np.random.default_rng(0)
ARRAYS: dict[str, np.ndarray[Any, Any]] = {d: (RNG.standard_normal((3, 4)) * 50).astype(d) for d in
          ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "bool")}
ARRAYS |= {d: np.arange(6).astype(d) for d in ("uint8", "uint16", "uint32", "uint64")}
ARRAYS |= {"scalar": np.array(2.5, np.float32), "none": np.zeros((0, 3), np.float32), "a/b": np.ones(2, np.float32)}


def same(got: dict[str, Tensor], want: dict[str, np.ndarray[Any, Any]]) -> None:
  assert list(got) == list(want)
  for k, a in want.items():
    b = got[k].numpy()
    assert b.dtype == a.dtype and b.shape == a.shape, k
    np.testing.assert_array_equal(b, a, err_msg=k)


# ---- npz

@pytest.mark.parametrize("compressed", (False, True))
def test_npz_and_numpy(tmp_path: Path, compressed: bool) -> None:
  (np.savez_compressed if compressed else np.savez)(tmp_path / "a.npz", **ARRAYS)
  same(npz_load(tmp_path / "a.npz"), ARRAYS)
  npz_save({k: Tensor(v) for k, v in ARRAYS.items()}, tmp_path / "b", compressed)
  with np.load(tmp_path / "b", allow_pickle=False) as f: assert all(f[k].tobytes() == v.tobytes() for k, v in ARRAYS.items())
  same(npz_load(tmp_path / "b", "NUMPY"), ARRAYS)
  assert sorted(os.listdir(tmp_path)) == ["a.npz", "b"]


def test_npz_orders(tmp_path: Path) -> None:
  x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
  np.savez(tmp_path / "a.npz", columns=np.asfortranarray(x), swapped=x.astype(">f4"), view=x[::-1, :, ::2])
  same(npz_load(tmp_path / "a.npz"), {"columns": x, "swapped": x, "view": x[::-1, :, ::2]})


def test_npz_refusals(tmp_path: Path) -> None:
  for bad, said in (({3: Tensor([1.0])}, "use a string"), ({"x": np.ones(2)}, "expected a Tensor"),
                    ({"x": Tensor([1.0]).cast("bfloat16")}, "bfloat16, which the format has not; cast it")):
    with pytest.raises(StateError, match=said): npz_save(bad, tmp_path / "a")  # type: ignore[arg-type]
  assert not os.listdir(tmp_path)
  np.savez(tmp_path / "a.npz", x=np.array([{}, 1]))
  with pytest.raises(StateError, match="'x.npy' holds object, which no tensor"): npz_load(tmp_path / "a.npz")
  np.savez(tmp_path / "a.npz", x=np.array(["text"]))
  with pytest.raises(StateError, match="which no tensor"): npz_load(tmp_path / "a.npz")
  np.savez(tmp_path / "a.npz", x=np.arange(6.0))
  whole = (tmp_path / "a.npz").read_bytes()
  with zipfile.ZipFile(tmp_path / "a.npz") as z: array = z.read("x.npy")
  for a, b, said in ((b"(6,)", b"(7,)", "'x.npy' has 48 bytes of data, shape .7,. of float64 takes 56"),
                     (b"(6,)", b"(-6)", "header|shape"), (b"NUMPY", b"NUMPX", "no header of an array"),
                     (b"'shape'", b"'shope'", "no header of an array")):
    (tmp_path / "a.npz").write_bytes(whole.replace(a, b))
    with pytest.raises(StateError, match="the bytes of 'x.npy' are others than were written"): npz_load(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as z: z.writestr("x.npy", array.replace(a, b))
    with pytest.raises(StateError, match=said): npz_load(tmp_path / "a.npz")
  for n in range(0, len(whole), 5):
    (tmp_path / "a.npz").write_bytes(whole[:n])
    with pytest.raises(StateError, match="not a whole npz file"): npz_load(tmp_path / "a.npz")
  for _ in range(300):
    data = bytearray(whole)
    data[RNG.integers(len(data))] ^= 1 << RNG.integers(8)
    (tmp_path / "a.npz").write_bytes(data)
    try: npz_load(tmp_path / "a.npz", "NUMPY")["x"].numpy()
    except (StateError, KeyError): pass


# ---- several files with an index

def sharded(folder: Path, where: Any) -> Path:
  safe_save({"a": Tensor([1.0]), "b": Tensor([2.0])}, folder / "one.safetensors")
  safe_save({"c": Tensor([3.0])}, folder / "two.safetensors")
  index = folder / "model.safetensors.index.json"
  index.write_text(json.dumps({"metadata": {"total_size": 12, "k": "v"}, "weight_map": where}))
  return index


def test_index(tmp_path: Path) -> None:
  index = sharded(tmp_path, {"c": "two.safetensors", "a": "one.safetensors", "b": "one.safetensors"})
  for path in (tmp_path, index, str(tmp_path)):
    got = safe_load(path)
    assert list(got) == ["c", "a", "b"] and [t.item() for t in got.values()] == [3, 1, 2]
    assert safe_load_metadata(path) == {"total_size": "12", "k": "v"}
  (tmp_path / "one").mkdir()
  safe_save({"x": Tensor([1.0])}, tmp_path / "one" / "model.safetensors")
  assert list(safe_load(tmp_path / "one")) == ["x"]


@pytest.mark.parametrize("where, said", [
  ({"a": "two.safetensors"}, "says that 'a' is in 'two.safetensors', which has 'c'"),
  ({"a": "../one.safetensors"}, "expected the name of a .safetensors file of the same folder"),
  ({"a": "/etc/passwd"}, "expected the name"), ({"a": 3}, "expected the name"), ({"a": ""}, "expected the name"),
  ({"a": "x\0.safetensors"}, "expected the name"), ([], "no weight_map"), (None, "no weight_map")])
def test_damaged_index(tmp_path: Path, where: Any, said: str) -> None:
  index = sharded(tmp_path, where)
  with pytest.raises(StateError, match=said): safe_load(tmp_path)
  index.write_text("{")
  with pytest.raises(StateError, match="is not JSON"): safe_load(index)
  index.write_text("[]")
  with pytest.raises(StateError, match="JSON list"): safe_load(index)


def test_a_file_that_the_index_names_is_missing(tmp_path: Path) -> None:
  sharded(tmp_path, {"a": "one.safetensors", "c": "three.safetensors"})
  with pytest.raises(MissingFileError, match="'c' is in 'three.safetensors', which is not there"): safe_load(tmp_path)


# ---- read when used, written one after the other

def test_only_what_is_used_is_read(tmp_path: Path) -> None:
  big = np.arange(1 << 20, dtype=np.float32)
  safe_save({f"x{i}": Tensor(big + i) for i in range(4)}, tmp_path / "a")
  Device.reset_peak()
  before = Device.memory().allocated
  got = safe_load(tmp_path / "a")
  assert Device.memory().allocated == before
  assert (got["x2"] * 2).sum().item() == pytest.approx(float(2 * (big.astype(np.float64) + 2).sum()), rel=1e-5)
  assert Device.memory().allocated - before < 1.1 * big.nbytes
  # saved again over the same file: straight from where the bytes are, nothing comes to the device
  Device.reset_peak()
  before = Device.memory().allocated
  safe_save(got, tmp_path / "a")
  assert Device.memory().peak - before < big.nbytes // 2
  np.testing.assert_array_equal(safe_load(tmp_path / "a")["x3"].numpy(), big + 3)
  np.testing.assert_array_equal(got["x3"].numpy(), big + 3)   # of the file that was there before


@long
def test_tensors_are_computed_one_after_the_other(tmp_path: Path) -> None:
  n = 1 << 20
  x = Tensor.rand(n).realize()
  lazy = {f"x{i}": x * (i + 1) for i in range(8)} | {"random": Tensor.rand(5), "turned": Tensor.arange(6).reshape(2, 3).T}
  Device.reset_peak()
  before = Device.memory().allocated
  safe_save(lazy, tmp_path / "a")
  assert Device.memory().peak - before < 2.5 * 4 * n
  got = safe_load(tmp_path / "a")
  for k in ("x0", "x7", "random", "turned"): np.testing.assert_array_equal(got[k].numpy(), lazy[k].numpy())


def test_written_tensors_are_not_read_over(tmp_path: Path) -> None:
  safe_save({"x": Tensor.arange(6)}, tmp_path / "a")
  x = safe_load(tmp_path / "a")["x"]
  x[2] = 9
  assert x.tolist() == [0, 1, 9, 3, 4, 5]
  y = safe_load(tmp_path / "a")["x"]
  y[1:3].assign(Tensor([7, 7], dtype=y.dtype))
  safe_save({"x": y}, tmp_path / "b")
  assert safe_load(tmp_path / "b")["x"].tolist() == [0, 7, 7, 3, 4, 5]


def test_loading_inside_of_a_jit(tmp_path: Path) -> None:
  for i in range(2): safe_save({"x": Tensor([1.0 + i, 2.0])}, tmp_path / str(i))
  outside = safe_load(tmp_path / "1")["x"]
  step = ntgrad.jit(lambda y: (y + safe_load(tmp_path / "0")["x"] + outside).realize())
  for i in range(4): assert step(Tensor([float(i), 0.0])).tolist() == [3 + i, 4]


# ---- archives

FILES = {"a.txt": b"hello", "folder/b.bin": bytes(range(256)) * 300, "empty": b""}


def tarred(mode: str) -> bytes:
  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
    folder = tarfile.TarInfo("folder")
    folder.type = tarfile.DIRTYPE
    tar.addfile(folder)
    for name, data in FILES.items():
      info = tarfile.TarInfo(name)
      info.size = len(data)
      tar.addfile(info, io.BytesIO(data))
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    tar.addfile(link)
  return out.getvalue()


def zipped(how: int) -> bytes:
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w", how) as z:
    z.writestr("folder/", b"")
    for name, data in FILES.items(): z.writestr(name, data)
  return out.getvalue()


@pytest.mark.parametrize("extract, data", [
  (tar_extract, tarred("w:")), (tar_extract, tarred("w:gz")), (tar_extract, tarred("w:bz2")), (tar_extract, tarred("w:xz")),
  (zip_extract, zipped(zipfile.ZIP_STORED)), (zip_extract, zipped(zipfile.ZIP_DEFLATED))])
def test_archives(tmp_path: Path, extract: Any, data: bytes) -> None:
  (tmp_path / "a").write_bytes(data)
  for fn in (tmp_path / "a", str(tmp_path / "a"), Tensor(data)):
    got = extract(fn)
    assert {k: bytes(t.data()) for k, t in got.items()} == FILES and all(t.dtype is dtypes.uint8 for t in got.values())
  assert extract(Tensor(data), "NUMPY")["a.txt"].device == "NUMPY"
  for n in range(0, len(data) - 1100 if extract is tar_extract else len(data), max(len(data) // 60, 1)):
    (tmp_path / "a").write_bytes(data[:n])
    try: got = extract(tmp_path / "a", "NUMPY")
    except StateError as e: assert "is not a whole" in str(e)
    else: assert all(bytes(t.data()) == FILES[k] for k, t in got.items()), n   # it ends between two members
  for _ in range(100):
    changed = bytearray(data)
    changed[RNG.integers(len(data))] ^= 1 << RNG.integers(8)
    (tmp_path / "a").write_bytes(changed)
    try: [t.data() for t in extract(tmp_path / "a", "NUMPY").values()]
    except StateError: pass


def test_archives_are_refused() -> None:
  for extract in (tar_extract, zip_extract):
    with pytest.raises(DTypeError, match="it takes bytes, uint8"): extract(Tensor([1.0]))
    with pytest.raises(StateError, match="a tensor of 5 bytes is not a whole"): extract(Tensor(b"hello"))
  with pytest.raises(StateError, match="not a whole"): tar_extract(Tensor(gzip.compress(b"hello")))


# ---- loading into a model

class Net:
  def __init__(self) -> None: self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)


def test_narrow_floats_are_cast(capsys: pytest.CaptureFixture[str]) -> None:
  net, other = Net(), Net()
  sd = {k: t.cast("bfloat16" if "bias" in k else "float16") for k, t in nn.state.get_state_dict(other).items()}
  load_state_dict(net, sd)
  said = capsys.readouterr().err
  assert said == "ntgrad: load_state_dict: weights of bfloat16 and float16 are cast to the model's float32\n"
  assert net.first.weight.dtype is dtypes.float32
  np.testing.assert_array_equal(net.first.weight.numpy(), sd["first.weight"].float().numpy())


def test_what_differs_is_said_in_full() -> None:
  sd: dict[str, Any] = dict(nn.state.get_state_dict(Net()))
  sd["frist.weight"] = sd.pop("first.weight")
  sd["second.bias"] = Tensor.zeros(3)
  sd["first.bias"] = Tensor.zeros(4, dtype="int32")
  with pytest.raises(StateError) as e: load_state_dict(Net(), sd)
  assert str(e.value).splitlines() == [
    "load_state_dict: the state dict does not fit the model:",
    "  the model needs 'first.weight', which the state dict lacks",
    "  the state dict has 'frist.weight', which the model lacks",
    "  'first.bias' is int32 in the state dict and float32 in the model; cast it first: state_dict['first.bias'].cast('float32')",
    "  'second.bias' has shape (3,) in the state dict and (2,) in the model",
    "  near names: 'first.weight' and 'frist.weight'",
    "  rename them, or pass strict=False to load only the names that both have"]


def test_prefixes() -> None:
  net, other = Net(), nn.state.get_state_dict(Net())
  with pytest.raises(StateError, match=r"the same but for 'model\.' before them; pass prefix='model\.'"):
    load_state_dict(net, {"model." + k: t for k, t in other.items()})
  load_state_dict(net, {"model." + k: t for k, t in other.items()} | {"optimizer": Tensor([1.0])}, prefix="model.")
  np.testing.assert_array_equal(net.first.weight.numpy(), other["first.weight"].numpy())
  with pytest.raises(StateError, match=r"put 'net\.' before them"): load_state_dict({"net": net}, other)
  with pytest.raises(StateError, match="no name of the state dict begins with 'x'"): load_state_dict(net, other, prefix="x")
