"""Names of a model's tensors, and safetensors files: ours against the safetensors package, and every kind of damage."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ntgrad import Tensor, nn
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.errors import ArgumentError, MissingFileError, StateError
from ntgrad.nn.state import (
  SAFE_DTYPES,
  get_parameters,
  get_state_dict,
  load_state_dict,
  safe_load,
  safe_load_metadata,
  safe_save,
)


class Block:
  def __init__(self) -> None:
    self.l = nn.Linear(3, 4)
    self.name, self.n = "block", 3


class Net:
  def __init__(self) -> None:
    self.blocks = [Block(), Block()]
    self.heads = {"a": nn.Linear(4, 2, bias=False), 7: Tensor.zeros(2)}
    self.pair = (Tensor.ones(1), None)
    self.parent = self   # models do refer to themselves


NAMES = ["blocks.0.l.weight", "blocks.0.l.bias", "blocks.1.l.weight", "blocks.1.l.bias", "heads.a.weight", "heads.7", "pair.0"]


# ---- names

def test_names_in_order_of_definition() -> None:
  net = Net()
  assert list(get_state_dict(net)) == NAMES
  assert list(get_state_dict(net, "m")) == ["m." + n for n in NAMES] == list(get_state_dict(net, prefix="m."))
  assert get_state_dict(net)["heads.a.weight"] is net.heads["a"].weight  # type: ignore[union-attr]


def test_containers() -> None:
  a, b, c = (Tensor.zeros(i + 1) for i in range(3))
  P = namedtuple("P", "x y")
  assert list(get_state_dict(P(a, [b]))) == ["x", "y.0"]
  assert list(get_state_dict(OrderedDict(q=a, r=OrderedDict(s=b, t=c)))) == ["q", "r.s", "r.t"]
  assert list(get_state_dict(a, "t")) == ["t"] and get_state_dict(None) == {} and get_state_dict(3) == {}
  with pytest.raises(StateError, match=r"both called 'a\.b'"): get_state_dict({"a.b": a, "a": {"b": b}})


def test_parameters_are_listed_once() -> None:
  a, b = Tensor.zeros(1), Tensor.zeros(1)
  assert [id(t) for t in get_parameters([a, b, {"again": a}])] == [id(a), id(b)]
  assert list(get_state_dict([a, b, {"again": a}])) == ["0", "1", "2.again"]
  chain: list[Any] = [a]
  for _ in range(5000): chain = [chain]
  assert get_parameters(chain) == [a]


# ---- loading into a model

def test_load_state_dict() -> None:
  one, two = nn.Linear(3, 4), nn.Linear(3, 4)
  weight = one.weight
  load_state_dict(one, get_state_dict(two))
  assert one.weight is weight
  np.testing.assert_array_equal(one.weight.numpy(), two.weight.numpy())
  np.testing.assert_array_equal(one.bias.numpy(), two.bias.numpy())  # type: ignore[union-attr]
  assert one.weight.requires_grad
  # not the same memory
  one.weight.assign(Tensor.zeros(4, 3)).realize()
  assert np.abs(two.weight.numpy()).sum() > 0


def test_load_arrays_and_other_libraries_tensors() -> None:
  class Other:   # speaks DLPack, as PyTorch's tensors do
    def __init__(self, a: np.ndarray): self.a = a
    def __dlpack__(self, **_: Any) -> Any: return self.a.__dlpack__()
    def __dlpack_device__(self) -> tuple[int, int]: return self.a.__dlpack_device__()
  weight, bias = np.random.default_rng(0).random((2, 3), np.float32), np.ones(2, np.float32)
  layer = nn.Linear(3, 2)
  kept = load_state_dict(layer, {"weight": weight, "bias": Other(bias), "more": np.zeros(1)}, strict=False)
  assert kept.unexpected_keys == ["more"] and layer.weight.tolist() == weight.tolist() and layer.bias.tolist() == [1, 1]
  with pytest.raises(StateError, match="'bias' is list, expected a Tensor"):
    load_state_dict(layer, {"weight": weight, "bias": [1.0, 1.0]})


def test_load_swapped_and_same() -> None:
  a, b = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
  load_state_dict({"a": a, "b": b}, {"a": b, "b": a})
  assert a.tolist() == [3, 4] and b.tolist() == [1, 2]
  load_state_dict({"a": a}, {"a": a})
  assert a.tolist() == [3, 4]


@pytest.mark.parametrize("change, said", [
  (lambda d: d.pop("l.bias"), "the model needs 'l.bias', which the state dict lacks"),
  (lambda d: d.update(x=Tensor.zeros(1)), "the state dict has 'x', which the model lacks"),
  (lambda d: d.update({"l.bias": Tensor.zeros(5)}), r"'l.bias' has shape \(5,\) in the state dict and \(4,\) in the model"),
  (lambda d: d.update({"l.bias": Tensor.zeros(4, dtype=dtypes.float64)}), "'l.bias' is float64 in the state dict and float32"),
  (lambda d: d.update({"l.bias": [0.0] * 4}), "'l.bias' is list, expected a Tensor")])
def test_load_refusals_leave_the_model(change: Callable[[dict[str, Any]], Any], said: str) -> None:
  block = Block()
  before = block.l.weight.numpy()
  new: dict[str, Any] = get_state_dict(Block())
  change(new)
  with pytest.raises(StateError, match=said): load_state_dict(block, new)
  np.testing.assert_array_equal(block.l.weight.numpy(), before)


def test_load_not_strict(capsys: pytest.CaptureFixture[str]) -> None:
  block = Block()
  bias = block.l.bias.numpy()  # type: ignore[union-attr]
  load_state_dict(block, {"l.weight": Tensor.ones(4, 3), "x": Tensor.zeros(1)}, strict=False, verbose=True)
  assert block.l.weight.numpy().sum() == 12
  np.testing.assert_array_equal(block.l.bias.numpy(), bias)  # type: ignore[union-attr]
  assert "loaded 1 tensors, without 'l.bias', ignored 'x'" in capsys.readouterr().out
  with pytest.raises(StateError, match="shape"): load_state_dict(block, {"l.weight": Tensor.ones(3, 4)}, strict=False)


# ---- files

def sample() -> dict[str, np.ndarray]:
  rng = np.random.default_rng(0)
  out: dict[str, np.ndarray] = {}
  for name, d in SAFE_DTYPES.items():
    x = rng.standard_normal((3, 5)) * 3
    if d.kind == "u": x = np.abs(x)
    out[f"{name} µ"] = x > 0 if d is dtypes.bool else x.astype(np.float32).astype(d.np)
  out["scalar"], out["odd"] = np.array(2.5, np.float32), np.arange(3, dtype=np.uint8)
  return out


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]: return {k: Tensor(v) for k, v in arrays.items()}


def same(a: np.ndarray, b: np.ndarray) -> bool:
  return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_file_round_trip(tmp_path: Path) -> None:
  arrays = sample()
  safe_save(tensors(arrays), tmp_path / "a.safetensors", {"k": "värde"})
  got = safe_load(tmp_path / "a.safetensors")
  assert list(got) == list(arrays) and safe_load_metadata(str(tmp_path / "a.safetensors")) == {"k": "värde"}
  assert all(same(got[k].numpy(), v) for k, v in arrays.items())
  assert os.listdir(tmp_path) == ["a.safetensors"]


def test_empty_and_zero_sized(tmp_path: Path) -> None:
  safe_save({}, tmp_path / "a")
  assert safe_load(tmp_path / "a") == {} and safe_load_metadata(tmp_path / "a") == {}


def test_package_reads_ours(tmp_path: Path) -> None:
  package = pytest.importorskip("safetensors.numpy")
  arrays = sample()
  safe_save(tensors(arrays), tmp_path / "a", {"format": "pt"})
  raw = (tmp_path / "a").read_bytes()
  assert int.from_bytes(raw[:8], "little") % 8 == 0
  header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
  offsets = [(v["data_offsets"][0], SAFE_DTYPES[v["dtype"]].itemsize) for k, v in header.items() if k != "__metadata__"]
  assert all(begin % size == 0 for begin, size in offsets)
  from safetensors import safe_open
  with safe_open(tmp_path / "a", "np") as f: assert f.metadata() == {"format": "pt"} and set(f.keys()) == set(arrays)
  plain = {k: v for k, v in arrays.items() if v.dtype.kind in "biuf" and hasattr(np, v.dtype.name)}   # which numpy has
  safe_save(tensors(plain), tmp_path / "b")
  got = package.load_file(tmp_path / "b")
  assert all(same(got[k], v) for k, v in plain.items())


def test_we_read_the_package_s(tmp_path: Path) -> None:
  package = pytest.importorskip("safetensors.numpy")
  arrays = {k: v for k, v in sample().items() if v.dtype not in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)}
  package.save_file(arrays, tmp_path / "a", {"x": "y"})
  got = safe_load(tmp_path / "a")
  assert set(got) == set(arrays) and safe_load_metadata(tmp_path / "a") == {"x": "y"}
  assert all(same(got[k].numpy(), v) for k, v in arrays.items())


def test_save_is_whole_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  path = tmp_path / "a"
  safe_save({"x": Tensor([1.0])}, path)
  before = path.read_bytes()
  def broken(*_: Any) -> None: raise OSError("disk full")
  monkeypatch.setattr(os, "fsync", broken)
  with pytest.raises(OSError, match="disk full"): safe_save({"x": Tensor([2.0])}, path)
  assert path.read_bytes() == before and os.listdir(tmp_path) == ["a"]


def test_save_refusals(tmp_path: Path) -> None:
  for bad, said in (
    ({"__metadata__": Tensor([1.0])}, "cannot be a tensor's name"),
    ({3: Tensor([1.0])}, "cannot be a tensor's name"),
    ({"x": np.zeros(2)}, "'x' is ndarray, expected a Tensor"),
  ):
    with pytest.raises(StateError, match=said):
      safe_save(bad, tmp_path / "a")  # type: ignore[arg-type]
  with pytest.raises(StateError, match="metadata 'n' is not a string"):
    safe_save({}, tmp_path / "a", {"n": 3})  # type: ignore[dict-item]
  assert not os.listdir(tmp_path)


def raw_file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
  text = header if isinstance(header, bytes) else json.dumps(header).encode()
  return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
  return {"dtype": dtype, "shape": shape if not isinstance(shape, tuple) else list(shape),
          "data_offsets": offsets if not isinstance(offsets, tuple) else list(offsets)}


DAMAGED: list[tuple[bytes, str]] = [
  (b"", "has 0 bytes"),
  (b"\1\2\3", "has 3 bytes"),
  (raw_file({}, length=1000), "header of 1000 bytes does not fit the file of 10 bytes"),
  (raw_file({}, length=2**63), "header length is 9223372036854775808 bytes"),
  (raw_file(b"{not json}"), "not JSON"),
  (raw_file(b"\xff\xfe{}"), "not JSON"),
  (raw_file(b""), "not JSON"),
  (raw_file(b"[" * 100_000), "not JSON"),
  (raw_file(b'{"a":' + b"1" * 10_000 + b"}"), "not JSON"),
  (raw_file([]), "a JSON list"),
  (raw_file(b"null"), "a JSON NoneType"),
  (raw_file({"__metadata__": {"a": 1}}), "__metadata__ is not"),
  (raw_file({"__metadata__": []}), "__metadata__ is not"),
  (raw_file({"a": {}}), "'a' lacks one of"),
  (raw_file({"a": 3}), "'a' lacks one of"),
  (raw_file({"a": entry("F33")}, bytes(8)), "has the dtype 'F33'; dtypes: BOOL"),
  (raw_file({"a": entry(["F32"])}, bytes(8)), "has the dtype"),
  (raw_file({"a": entry(shape="2")}, bytes(8)), "has the shape"),
  (raw_file({"a": entry(shape=(-2, -1))}, bytes(8)), "has the shape"),
  (raw_file({"a": entry(shape=(2.0,))}, bytes(8)), "has the shape"),
  (raw_file({"a": entry(shape=(True, 2))}, bytes(8)), "has the shape"),
  (raw_file({"a": entry(offsets=(0,))}, bytes(8)), "has the data_offsets"),
  (raw_file({"a": entry(offsets=(-8, 0))}, bytes(8)), "has the data_offsets"),
  (raw_file({"a": entry(offsets=(8, 0))}, bytes(8)), "takes bytes 8 to 0"),
  (raw_file({"a": entry()}, bytes(7)), "takes bytes 0 to 8 of its 7 bytes"),
  (raw_file({"a": entry(shape=(3,))}, bytes(8)), r"takes 8 bytes, shape \(3,\) of float32 takes 12"),
  (raw_file({"a": entry(shape=(2**40, 2**40))}, bytes(8)), "has a shape of 2 dimensions"),
  (raw_file({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)), "'b' starts at byte 4, which overlaps 'a'"),
  (raw_file({"a": entry(), "b": entry(offsets=(0, 8))}, bytes(8)), "overlaps"),
  (raw_file({"a": entry(), "b": entry(offsets=(12, 20))}, bytes(20)), "'b' starts at byte 12, which leaves a hole after 'a'"),
  (raw_file({"a": entry()}, bytes(9)), "tensors take 8 bytes, the file has 9 bytes"),
  (
    raw_file(b'{"a":' + json.dumps(entry()).encode() + b',"a":' + json.dumps(entry()).encode() + b"}", bytes(8)),
    "'a' stands twice",
  ),
  (raw_file({"a": entry("BOOL", (2,), (0, 2))}, b"\1\2"), "holds a byte 2"),
  (raw_file({"a": entry(shape=(1,) * 65, offsets=(0, 4))}, bytes(4)), "of 65 dimensions, .* a tensor has up to 64"),
  (
    raw_file({"a": entry(shape=(2**63, 0), offsets=(0, 0))}),
    "of 2 dimensions, 9223372036854775808, 0; a tensor has up to 64 and 9223372036854775807 bytes",
  ),
  (raw_file({"a": entry(shape=(2**62, 2**62, 0), offsets=(0, 0))}), "a tensor has up to"),
  (raw_file({"a": entry(shape=(10**400, 0), offsets=(0, 0))}), "an int of 1329 bits"),
]


@pytest.mark.parametrize("data, said", DAMAGED)
def test_damaged_file_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
  (tmp_path / "a").write_bytes(data)
  with pytest.raises(StateError, match=said): safe_load(tmp_path / "a")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
  safe_save({"x": Tensor([1.0, 2.0]), "y": Tensor([True])}, tmp_path / "a")
  whole = (tmp_path / "a").read_bytes()
  for n in range(len(whole)):
    (tmp_path / "a").write_bytes(whole[:n])
    with pytest.raises(StateError, match="not a whole safetensors file"): safe_load(tmp_path / "a")


def test_flipped_bits_never_crash(tmp_path: Path) -> None:
  safe_save({"x": Tensor([1.0, 2.0]), "y": Tensor([True])}, tmp_path / "a", {"k": "v"})
  whole = (tmp_path / "a").read_bytes()
  rng = np.random.default_rng(0)
  for _ in range(300):
    data = bytearray(whole)
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    (tmp_path / "a").write_bytes(data)
    try: safe_load(tmp_path / "a")
    except StateError: pass


def test_missing_file(tmp_path: Path) -> None:
  with pytest.raises(FileNotFoundError, match="safe_load: no file for .*none"): safe_load(tmp_path / "none")
  with pytest.raises(MissingFileError, match="safe_save: no folder for .*none"):
    safe_save({"a": Tensor([1.0])}, tmp_path / "none" / "a")


def test_64_dimensions_load_and_save(tmp_path: Path) -> None:
  safe_save({"a": Tensor([1.0, 2.0]).reshape(*[1] * 63, 2)}, tmp_path / "a")
  assert safe_load(tmp_path / "a")["a"].shape == (1,) * 63 + (2,)


def test_only_plain_files(tmp_path: Path) -> None:
  os.mkfifo(tmp_path / "pipe")
  for path, said in (
    (tmp_path, "is a folder"),
    (tmp_path / "pipe", "no plain file"),
    ("/dev/null", "no plain file"),
    ("/dev/zero", "no plain file"),
  ):
    for do in (lambda p: safe_save({"a": Tensor([1.0])}, p), safe_load):
      with pytest.raises(StateError, match=said):
        do(path)
  assert os.listdir(tmp_path) == ["pipe"]
  for path in (None, 5, "a\0b", "", b"a", "\ud800"):
    for do in (lambda p: safe_save({"a": Tensor([1.0])}, p), safe_load):
      with pytest.raises(ArgumentError, match="path is .*; it takes a path as a string"): do(path)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
  (tmp_path / "link").symlink_to(tmp_path / "a")
  safe_save({"x": Tensor([1.0])}, tmp_path / "link")
  assert (tmp_path / "link").is_symlink() and safe_load(tmp_path / "a")["x"].tolist() == [1]


def test_what_killed_saves_left_is_removed(tmp_path: Path) -> None:
  """A process is killed in the middle of a save, another one is in the middle of its own: only what nobody writes any more
  goes."""
  code = (
    "import sys, time\nfrom pathlib import Path\nfrom ntgrad.nn.state.files import replacing\n"
    "with replacing(Path(sys.argv[1])) as f:\n  f.write(b'half')\n  f.flush()\n  print('writing', flush=True)\n  "
    "sys.stdin.read()"
  )
  save = [sys.executable, "-c", code]
  with subprocess.Popen([*save, tmp_path / "b"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
    assert killed.stdout is not None and killed.stdout.readline() == b"writing\n"
    killed.kill()
  assert len(left := os.listdir(tmp_path)) == 1
  with subprocess.Popen([*save, tmp_path / "b"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alive:
    assert alive.stdout is not None and alive.stdout.readline() == b"writing\n"
    (tmp_path / ".mine.ntgrad-unfinished").touch()   # another name than ours
    safe_save({"x": Tensor([1.0])}, tmp_path / "a")
    there = os.listdir(tmp_path)
    assert left[0] not in there and len(there) == 3 and {"a", ".mine.ntgrad-unfinished"} < set(there)
    alive.communicate()
  assert sorted(os.listdir(tmp_path)) == [".mine.ntgrad-unfinished", "a", "b"] and (tmp_path / "b").read_bytes() == b"half"

