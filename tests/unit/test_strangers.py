"""Files from strangers: what is bounded and checked, paths that cannot be used, states that do not fit.
``tests/fuzz/files.py`` tries attacks on every format."""
from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, nn
from ntgrad.codegen.ir.errors import NtgradError, OutOfMemoryError, StateError, shown
from ntgrad.nn import datasets, state
from ntgrad.nn.optim.lr_scheduler import ReduceLROnPlateau, SequentialLR, StepLR
from ntgrad.nn.state import archives, torch_load
from ntgrad.nn.state.pickles import DEEPEST
from support.hostile_files import Entry, zipped as zip_of
from support.torch_pickle import Raw, storage, tensor, zipped

X = np.arange(24, dtype=np.float32)
F = storage("FloatStorage", "0", 24)


def write(path: Path, x: Any) -> Path:
  path.write_bytes(zipped(x, {"0": X.tobytes()}))
  return path


def test_plain_values_in_proportion(tmp_path: Path) -> None:
  """What people save beside tensors is far from the limits."""
  rng = np.random.default_rng(0)
  value = {"words": {f"word{i}": i for i in range(20000)}, "tokens": rng.integers(0, 50000, 100000).tolist(),
    "rows": [[1.5] * 4] * 9,
           "deep": None, "rates": [i / 7 for i in range(50000)]}
  for _ in range(DEEPEST - 2): value["deep"] = [value["deep"]]
  state.torch_save(value, tmp_path / "a.pt")
  assert torch_load(tmp_path / "a.pt") == value


def test_what_comes_again_is_written_once(tmp_path: Path) -> None:
  doubled: list[Any] = [1]
  for _ in range(60): doubled = [doubled, doubled]
  state.torch_save(doubled, tmp_path / "a.pt")
  assert (tmp_path / "a.pt").stat().st_size < 5000
  with pytest.raises(StateError, match="parts if it were written out"): torch_load(tmp_path / "a.pt")
  row = [1, (2, 3)]
  state.torch_save({"a": row, "b": [row, row]}, tmp_path / "a.pt")
  got = torch_load(tmp_path / "a.pt")
  assert got == {"a": row, "b": [row, row]} and got["a"] is got["b"][0] is got["b"][1]


def test_ranges_and_slices(tmp_path: Path) -> None:
  """As Python 2's names have them too."""
  made = Raw(b"](c__builtin__\nxrange\nK\x02K\x05K\x02\x87Rcbuiltins\nslice\nNK\x02\x86Re")
  assert torch_load(write(tmp_path / "a.pt", made)) == [range(2, 5, 2), slice(None, 2)]


def test_many_views(tmp_path: Path) -> None:
  """A tensor for each row of another."""
  got = torch_load(write(tmp_path / "a.pt", [tensor(F, 2 * (i % 12), (2,), (1,)) for i in range(5000)]))
  assert len(got) == 5000 and got[4999].tolist() == X[14:16].tolist()


def test_windows_take_no_memory(tmp_path: Path) -> None:
  """Views, or looked up where they are used."""
  got = torch_load(write(tmp_path / "a.pt", [tensor(F, 0, (12, 12), (1, 1)), tensor(F, 0, (10**6, 10**6, 12), (0, 0, 1)),
                                              tensor(F, 3, (12, 2, 10**10), (1, 1, 0))]))
  np.testing.assert_array_equal(got[0].numpy(), np.lib.stride_tricks.sliding_window_view(X, 12)[:12])
  assert got[1][5, 6].tolist() == X[:12].tolist() and got[2][:, :, 7].numpy()[3, 1] == X[7]
  for t in got[1:]:
    with pytest.raises(OutOfMemoryError): t.numpy()


@pytest.mark.parametrize("value, said", [
  (Raw(b"}N" + b"\x85" * 1000 + b"Ns"), "a key .*expected a number, text or a short tuple"),
  (Raw(b"}(K\x01K\x02\x86NX\1\0\0\0a\x89I01\nNG" + bytes(8) + b"Nu"), ""),
  (Raw(b"}\x8a\x08" + b"\xff" * 7 + b"\x1fNs"), "a key 2305843009213693951"),
  (Raw(b"]\x94h\0a"), "a list that has itself"), (Raw(b"]" * 200 + b"a" * 199), "more than 100 deep"),
  (Raw(b"N\x85" + b"2\x86" * 40), "parts if it were written out"),
  (Raw(b"](" + b"\x8f" * 300000 + b"e"), "makes more than 40 MiB")])
def test_limits(tmp_path: Path, value: Any, said: str) -> None:
  write(tmp_path / "a.pt", value)
  if not said: assert torch_load(tmp_path / "a.pt") == {(1, 2): None, "a": False, True: None, 0.0: None}
  else:
    with pytest.raises(StateError, match=said): torch_load(tmp_path / "a.pt")


@pytest.mark.parametrize("kind", ["pt", "npz", "zip"])
def test_checksums(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """Of a small file when it is opened, of a large one when a tensor is read."""
  path = tmp_path / f"a.{kind}"
  if kind == "pt": write(path, {"x": tensor(F, 0, (24,), (1,))})
  elif kind == "npz": np.savez(path, x=X)
  else:
    with zipfile.ZipFile(path, "w") as z: z.writestr("x", X.tobytes())
  read: Callable[[], Any] = lambda: {"pt": torch_load, "npz": state.npz_load,
    "zip": state.zip_extract}[kind](path)["x"]  # type: ignore[operator]
  assert np.frombuffer(read().numpy().tobytes(), np.float32).tolist() == X.tolist()
  data = path.read_bytes()
  at = data.index(X.tobytes()) + 50
  path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1:])
  with pytest.raises(StateError, match="others than were written"): read()
  monkeypatch.setattr(archives, "SMALL", 0)
  x = read()
  with pytest.raises(StateError, match="others than were written"): x.numpy()


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """Of an array only the header is read, of bools too; what is used is as large as it says."""
  np.savez_compressed(tmp_path / "a.npz", x=np.zeros(30 << 20, np.bool_), y=np.zeros(5))
  unpack = archives.member_bytes
  monkeypatch.setattr(archives, "member_bytes", lambda *a: pytest.fail("unpacked") if a[2].size > 1 << 20 else unpack(*a))
  got = state.npz_load(tmp_path / "a.npz")
  assert got["x"].shape == (30 << 20,) and got["y"].tolist() == [0.0] * 5


def test_names_in_archives(tmp_path: Path) -> None:
  for name, said in ((b"\0a", "has the name"), (b"", "has the name"), (b"/a", "leads out"), (b"b/../../a", "leads out")):
    (tmp_path / "a").write_bytes(zip_of([Entry(b"x", b"1"), Entry(name, b"2")]))
    with pytest.raises(StateError, match=said): state.zip_extract(tmp_path / "a")
  names = ["/x", "../x", "a/b", "ä"]   # of arrays: no paths
  state.npz_save({n: Tensor([1.0]) for n in names}, tmp_path / "a.npz")
  assert list(state.npz_load(tmp_path / "a.npz")) == names


LONG = ("a" * 5000, "a" * 300, "x/" * 3000, "a\0b", "\ud800")
PATHS: dict[str, Callable[[str], Any]] = {
  "save": lambda p: ntgrad.save({}, p), "load": ntgrad.load, "npz_save": lambda p: state.npz_save({}, p),
  "npz_load": state.npz_load,
  "safe_save": lambda p: state.safe_save({}, p), "safe_load": state.safe_load, "metadata": state.safe_load_metadata,
  "gguf_load": state.gguf_load, "tar": state.tar_extract, "zip": state.zip_extract, "idx": datasets.load_idx,
  "mnist": datasets.mnist,
  "cifar": datasets.cifar10, "csv": datasets.csv, "text": datasets.text, "folder": datasets.image_folder,
  "library": ntgrad.tile.load, "build": lambda p: ntgrad.tile.build(lambda: (), [], p)}


@pytest.mark.parametrize("name", PATHS)
def test_paths_that_cannot_be(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.chdir(tmp_path)
  for path in LONG:
    with pytest.raises(NtgradError) as e: PATHS[name](path)
    assert len(str(e.value)) < 1000
  assert not os.listdir(tmp_path)


def test_messages_are_short() -> None:
  """Also of what is large, deep or has itself."""
  ring: list[Any] = []
  ring.append(ring)
  deep: Any = None
  for _ in range(10**5): deep = (deep,)
  doubled: Any = (1,)
  for _ in range(50): doubled = (doubled, doubled, doubled)
  for x in (ring, deep, doubled, b"a" * 10**7, bytearray(10**7), dict.fromkeys(range(10**6), ring), {frozenset([1])},
    10 ** 10000):
    assert len(shown(x)) < 3000
  assert shown({"b", "a"}) == "{'a', 'b'}" and shown(set()) == "set()" and shown({1: {2: [3]}}) == "{1: {2: [3]}}"


def test_states_that_do_not_fit() -> None:
  """Nothing of them is taken."""
  model = nn.Linear(2, 2)
  adam = nn.optim.Adam(model.parameters(), lr=0.5)
  model(Tensor([[1.0, 2.0]])).sum().backward()
  adam.step()
  deep: Any = None
  for _ in range(10**4): deep = [deep]
  def held() -> Any: return [t.tolist() for s in adam.state_dict()["state"].values() for t in s.values()],
  adam.param_groups[0]["lr"]
  before = held()
  for change in ({"param_groups": deep}, {"param_groups": [{"params": [deep]}]}, {"param_groups": 3}, {"state": deep},
    {"state": {0: deep}},
                 {"state": {0: {"exp_avg": deep}}}, {"state": {0: {deep[0] and 1: 2}}},
                 *[{"param_groups": [{**adam.state_dict()["param_groups"][0], k: deep}]} for k in ("lr", "betas", "eps",
                   "initial_lr")]):
    with pytest.raises(StateError): adam.load_state_dict({**adam.state_dict(), **change})
    assert held() == before
  first = StepLR(adam, 3)
  for schedule in (first, ReduceLROnPlateau(adam), SequentialLR(adam, [StepLR(adam, 2), StepLR(adam, 3)], [4])):
    good = schedule.state_dict()
    for key in good:
      with pytest.raises(StateError): schedule.load_state_dict({**good, key: object()})
    assert schedule.state_dict() == good
    schedule.load_state_dict(good)


