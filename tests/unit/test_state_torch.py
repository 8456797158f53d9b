"""Files of torch.save, put together by hand from their format: values, views of shared memory, what is refused, damage."""
from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ntgrad import Device, Tensor, nn, no_grad
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.errors import ArgumentError, MissingFileError, StateError
from ntgrad.nn.state import torch_load, torch_save
from support.torch_pickle import Call, Kept, Name, Raw, in_line, ordered, pickled, storage, tarred, tensor, zipped

X = np.arange(24, dtype=np.float32)
F = storage("FloatStorage", "0", 24)
FORMATS = ("zip", "compressed zip", "in a line")


def write(path: Path, x: Any, storages: dict[str, np.ndarray[Any, Any]], how: str) -> Path:
  if how == "in a line": path.write_bytes(in_line(x, {k: (a.size, a.tobytes()) for k, a in storages.items()}))
  else: path.write_bytes(zipped(x, {k: a.tobytes() for k, a in storages.items()}, compressed=how != "zip"))
  return path


@pytest.mark.parametrize("how", FORMATS)
def test_views_of_one_storage(tmp_path: Path, how: str) -> None:
  x = X.reshape(2, 3, 4)
  views = {
    "whole": (0, (2, 3, 4), (12, 4, 1), x), "turned": (0, (4, 3, 2), (1, 4, 12), x.T),
    "part": (14, (2, 1), (4, 2), x[1, :2, 2:3]),
    "number": (7, (), (), x[0, 1, 3]), "column": (3, (2, 3, 1), (12, 4, 1), x[..., 3:]),
    "again": (5, (4, 3), (0, 1), np.stack([X[5:8]] * 4)),
    "steps": (1, (3,), (9,), X[1::9]), "none": (24, (0, 3), (3, 1), np.zeros((0, 3))),
    "windows": (2, (5, 3), (1, 1), np.stack([X[2 + i:5 + i] for i in range(5)]))}
  sd = ordered(*[(k, tensor(F, *v[:3])) for k, v in views.items()], state={"_metadata": ordered(("", {"version": 1}))})
  got = torch_load(write(tmp_path / "a", sd, {"0": X}, how))
  assert type(got) is dict and list(got) == list(views)
  for k, (_, size, _, want) in views.items():
    assert got[k].shape == size and got[k].dtype is dtypes.float32, k
    np.testing.assert_array_equal(got[k].numpy(), want, err_msg=k)
  # one memory
  got["whole"][1, 0, 2] = 99.0
  assert got["turned"].numpy()[2, 0, 1] == 99 and got["part"].numpy()[0, 0] == 99


KINDS = {"Float": np.float32, "Double": np.float64, "Half": np.float16, "BFloat16": ml_dtypes.bfloat16, "Long": np.int64,
         "Int": np.int32, "Short": np.int16, "Char": np.int8, "Byte": np.uint8, "Bool": np.bool_}


@pytest.mark.parametrize("how", FORMATS)
def test_dtypes(tmp_path: Path, how: str) -> None:
  arrays = {k: (np.arange(6) % 2 if k == "Bool" else np.arange(6) * 3).astype(d) for k, d in KINDS.items()}
  x = {k: tensor(storage(f"{k}Storage", k, 6), 0, (2, 3), (3, 1)) for k in KINDS}
  got = torch_load(write(tmp_path / "a", x, arrays, how), "NUMPY")
  for k, a in arrays.items():
    assert got[k].numpy().dtype == a.dtype and got[k].device == "NUMPY"
    np.testing.assert_array_equal(got[k].numpy(), a.reshape(2, 3))


def test_storages_of_bytes(tmp_path: Path) -> None:
  """As torch writes dtypes that have no class of storages."""
  kinds = {"uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
           "float8_e5m2": ml_dtypes.float8_e5m2}
  arrays = {k: np.arange(4).astype(d) for k, d in kinds.items()}
  make = Name("torch._utils", "_rebuild_tensor_v3")
  x = {k: Call(make, (storage("UntypedStorage", k, a.nbytes, "torch.storage"), 1, (3,), (1,), False, ordered(), Name("torch", k)))
       for k, a in arrays.items()}
  got = torch_load(write(tmp_path / "a", x, arrays, "zip"))
  for k, a in arrays.items(): assert got[k].numpy().tobytes() == a[1:].tobytes() and got[k].numpy().dtype == a.dtype


def test_other_values(tmp_path: Path) -> None:
  parameter = Call(Name("torch._utils", "_rebuild_parameter"), (tensor(F, 0, (4,), (1,)), True, ordered()))
  tagged = Call(Name("torch._tensor", "_rebuild_from_type_v2"),
                (Name("torch._utils", "_rebuild_tensor_v2"), Name("torch.nn.parameter", "Parameter"),
                 (F, 4, (2,), (1,), True, ordered()), {"tag": "x"}))
  x = [parameter, tagged, 3, -2**70, 2.5, "ä", None, True, (1, (2,)), {"a": [], "b": {}},
       Call(Name("torch", "Size"), ((2, 3),)), Call(Name("torch", "device"), ("cuda", 1)), Name("torch", "bfloat16"),
       Call(Name("__builtin__", "set"), ([1, 2],)), Call(Name("builtins", "complex"), (1.0, -2.0)),
       Call(Name("_codecs", "encode"), ("\xff\0", "latin1")), Raw(b"C\x02hi"), Raw(b"(K\x01K\x02\x91"), Raw(b"\x8f(K\x05\x90")]
  got = torch_load(write(tmp_path / "a", x, {"0": X}, "zip"))
  assert got[0].requires_grad and got[1].requires_grad and got[1].tolist() == [4, 5]
  assert got[2:] == [3, -2**70, 2.5, "ä", None, True, (1, (2,)), {"a": [], "b": {}}, (2, 3), "cuda:1", dtypes.bfloat16, {1, 2},
                     1 - 2j, b"\xff\0", b"hi", frozenset((1, 2)), {5}]


def test_big_endian(tmp_path: Path) -> None:
  (tmp_path / "a").write_bytes(zipped(tensor(F, 0, (24,), (1,)), {"0": X.astype(">f4").tobytes()}, b"big"))
  np.testing.assert_array_equal(torch_load(tmp_path / "a").numpy(), X)


def test_torch_0_1(tmp_path: Path) -> None:
  x = {"a": Kept("7"), "b": [Kept("8")], "s": Kept((Name("torch", "FloatStorage"), "source")), "n": 1}
  data = tarred(x, {1: ("Float", 24, X.tobytes())}, {7: (1, (2, 3), (1, 2), 3), 8: (2, (2,), (1,), 1)}, [(2, 1, 10, 5)])
  (tmp_path / "a").write_bytes(data)
  got = torch_load(tmp_path / "a")
  np.testing.assert_array_equal(got["a"].numpy(), X[3:9].reshape(3, 2).T)
  assert got["b"][0].tolist() == [11, 12] and got["n"] == 1
  for n in range(512, len(data.rstrip(b"\0")), 97):
    (tmp_path / "a").write_bytes(data[:n])
    with pytest.raises(StateError): torch_load(tmp_path / "a")


def test_bytes_are_read_when_they_are_used(tmp_path: Path) -> None:
  big = np.arange(1 << 20, dtype=np.float32)
  x = {k: tensor(storage("FloatStorage", k, big.size), 0, (big.size,), (1,)) for k in "01"}
  path = write(tmp_path / "a", x, {"0": big, "1": big}, "zip")
  before = Device.memory().allocated
  got = torch_load(path)
  assert Device.memory().allocated == before
  os.replace(write(tmp_path / "b", x, {"0": big * 0, "1": big * 0}, "zip"), path)   # another file takes its place
  assert got["1"][-1].item() == big[-1]
  assert Device.memory().allocated - before < 1.5 * big.nbytes
  path = write(tmp_path / "c", x, {"0": big, "1": big}, "zip")
  got = torch_load(path)
  os.truncate(path, 1000)
  with pytest.raises(StateError, match="has fewer now; load it again"): got["0"].numpy()


def test_into_a_model(tmp_path: Path) -> None:
  sd = ordered(("module.weight", tensor(F, 0, (3, 4), (4, 1))), ("module.bias", tensor(F, 12, (3,), (1,))))
  layer = nn.Linear(4, 3)
  nn.state.load_state_dict(layer, torch_load(write(tmp_path / "a", sd, {"0": X}, "zip")), prefix="module.")
  np.testing.assert_allclose(layer(Tensor(X[None, :4])).numpy(), X[None, :4] @ X[:12].reshape(3, 4).T + X[12:15], rtol=1e-6)


# ---- what is refused

@pytest.mark.parametrize("x, said", [
  (Call(Name("os", "system"), ("touch ran",)), "an object of os.system, and only tensors and plain values are loaded"),
  (Call(Name("builtins", "eval"), ("open('ran', 'w')",)), "an object of builtins.eval"),
  (Call(Name("torch", "load"), ("x",)), "an object of torch.load"),
  (Call(Name("torch._utils", "_rebuild_sparse_tensor"), (1,)), "torch._utils._rebuild_sparse_tensor"),
  (Call(Name("torch.nn.modules.linear", "Linear"), ()), "torch.nn.modules.linear.Linear"),
  (Raw(b"(cos\nsystem\nX\x09\x00\x00\x00touch rano"), "os.system"),
  (Raw(b"(X\x09\x00\x00\x00touch ranios\nsystem\n"), "the instruction INST"),
  (Raw(b"cbuiltins\nset\n)\x81"), "the instruction NEWOBJ"),
  (Raw(b"\x82\x01"), "the instruction EXT1"),
  (tensor(storage("ComplexFloatStorage", "0", 3), 0, (3,), (1,)), "a storage of ComplexFloat, and ntgrad has no such dtype"),
  (tensor(storage("FloatStorage", "0", 25), 0, (3,), (1,)), "has 96 bytes, its storage 100"),
  (tensor(storage("FloatStorage", "9", 3), 0, (3,), (1,)), "there is no 'archive/data/9'"),
  (tensor(F, 0, (25,), (1,)), "takes elements 0 to 25 of a storage of 24"),
  (tensor(F, 20, (3, 3), (1, 1)), "takes elements 20 to 25"),
  (tensor(F, 0, (2**62, 2**62), (0, 0)), "has a shape of 2 dimensions"),
  (tensor(F, 0, (2,), (-1,)), "strides"), (tensor(F, -1, (2,), (1,)), "offset -1"), (tensor(F, 0, (2, 2), (1,)), "strides"),
  (tensor(F, 0, ("a",), (1,)), "size"),  # type: ignore[arg-type]
  (Kept(("storage", 3, "0", "cpu", 2)), "which is no storage|has 2 elements of"), (Kept("x"), "which is no storage"),
  (Call(Name("torch._utils", "_rebuild_tensor_v2"), (1,)), "other arguments than it takes"),
  (Call(Name("torch._utils", "_rebuild_parameter"), (1,)), "which is no tensor"),
  (Call(Name("torch", "Size"), ((2,),), {"a": 1}), "damaged"),   # attributes of a tuple
  (Raw(b"}]K\x01s"), "damaged"), (Raw(b"0"), "damaged"), (Raw(b"e"), "damaged"), (Raw(b"h\x05"), "damaged"),
  (Raw(b"(("), "damaged|ends"),
  (Raw(b"K\x01K\x02"), "more or less than one value"), (Raw(b"K\x01)R"), "damaged"), (Raw(b"T\xff\xff\xff\x7f"), "damaged")])
def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: Any, said: str) -> None:
  monkeypatch.chdir(tmp_path)
  with pytest.raises(StateError, match=said): torch_load(write(tmp_path / "a", x, {"0": X}, "zip"))
  assert os.listdir(tmp_path) == ["a"]


def test_bools_are_0_or_1(tmp_path: Path) -> None:
  x = tensor(storage("BoolStorage", "0", 3), 0, (3,), (1,))
  with pytest.raises(StateError, match="holds a byte 7"):
    torch_load(write(tmp_path / "a", x, {"0": np.array([0, 1, 7], np.uint8)}, "zip"))


def test_other_files(tmp_path: Path) -> None:
  for data, said in ((b"", "neither a zip archive"), (b"hello", "neither"), (pickle.dumps({"a": 1}), "neither"),
                     (pickled(0x1950a86a20f9469cfc6c) + pickled(7), "version 7"), (b"PK\3\4", "no directory at its end")):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(StateError, match=said): torch_load(tmp_path / "a")
  with pytest.raises(MissingFileError): torch_load(tmp_path / "none")


@pytest.mark.parametrize("how", FORMATS)
def test_any_damage_is_refused_or_read(tmp_path: Path, how: str) -> None:
  rng = np.random.default_rng(0)
  x = {"a": tensor(F, 2, (3, 4), (4, 1)), "b": Call(Name("torch", "Size"), ((2,),)), "c": [1, 2.5, "x"]}
  whole = write(tmp_path / "a", x, {"0": X}, how).read_bytes()
  for n in range(0, len(whole), 7):
    (tmp_path / "a").write_bytes(whole[:n])
    with pytest.raises(StateError): torch_load(tmp_path / "a", "NUMPY")
  for _ in range(400):
    data = bytearray(whole)
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    (tmp_path / "a").write_bytes(data)
    try: torch_load(tmp_path / "a", "NUMPY")["a"].numpy()
    except (StateError, KeyError): pass


# ---- writing

def test_what_is_written_is_read(tmp_path: Path) -> None:
  x = Tensor(X.reshape(4, 6))
  tensors = {"turned": x.T, "part": x[1:3, 2], "number": x[1, 1], "none": Tensor.zeros(0, 3), "lazy": x * 2 + 1,
             **{d.name: Tensor([1, 0, 1], dtype=d) for d in dtypes.all}}
  plain = {"list": [1, -5, 2 ** 40, -2 ** 63, 10 ** 700, 2.5, True, None, "h\u00e9", (1, ())], 3: {"deep": {}},
           "numpy": np.float32(2)}
  torch_save({**tensors, **plain}, tmp_path / "a.pt")
  got = torch_load(tmp_path / "a.pt", map_location="NUMPY", weights_only=True)
  assert list(got) == [*tensors, *plain] and {k: got[k] for k in plain} == plain
  for k, t in tensors.items():
    assert got[k].dtype is t.dtype and got[k].device == "NUMPY" and not got[k].requires_grad, k
    np.testing.assert_array_equal(got[k].numpy(), t.numpy(), err_msg=k)


def test_written_once(tmp_path: Path) -> None:
  w = Tensor(X, requires_grad=True)
  torch_save({"a": w, "b": [w]}, tmp_path / "a.pt")
  with zipfile.ZipFile(tmp_path / "a.pt") as z:
    assert z.testzip() is None
    assert [n for n in z.namelist() if "/data/" in n] == ["archive/data/0"]
    at = z.getinfo("archive/data/0").header_offset
  raw = (tmp_path / "a.pt").read_bytes()
  assert raw.index(X.tobytes()) % 64 == 0 and raw.index(X.tobytes()) > at
  got = torch_load(tmp_path / "a.pt")
  assert got["a"].requires_grad
  with no_grad(): got["a"].add_(1)
  np.testing.assert_array_equal(got["b"][0].numpy(), X + 1)


def test_not_written(tmp_path: Path) -> None:
  ring: list[Any] = []
  ring.append(ring)
  for x, said in (({"a": {1, 2}}, "set"), ({"a": lambda: 0}, "function"), (ring, "in itself"), ("\ud800", "UTF-8")):
    with pytest.raises(StateError, match=said): torch_save(x, tmp_path / "a.pt")
  assert not list(tmp_path.iterdir())
  with pytest.raises(MissingFileError): torch_save({}, tmp_path / "no" / "a.pt")
  torch_save({}, tmp_path / "a.pt")
  with pytest.raises(ArgumentError, match="map_location"): torch_load(tmp_path / "a.pt", "NUMPY", map_location="CPU")
