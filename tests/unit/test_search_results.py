"""``python -m ntgrad cache export`` and ``import``: what searches have found goes to another machine with such a device. What is
no such file, or is for another device, is refused as a whole."""
from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad import Tensor, config, tile
from ntgrad.__main__ import main
from ntgrad.backends import cache
from ntgrad.engine import search_results as results
from ntgrad.engine.device import default_device, get_device
from ntgrad.tile import block_size, kernel as tile_kernels

KEYS = [cache.key(n) for n in range(4)]
OPTS = ((["split", 0, 4], ["serial", 0, None]), ())
CHOICE = {"BLOCK": 32, "num_warps": 4}


def here() -> str: return results.device_text(get_device(default_device()))


@pytest.fixture
def file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
  """A file with a result of each search, made where there are also those of another device and another version; then an empty
  cache."""
  with config(cache=1, cache_dir=str(tmp_path / "there")):
    keep = results.keep_choice
    assert keep(results.BEAM, KEYS[0], results.LISTS, OPTS, results.About(here(), "r_4_4", cache.version()))
    assert keep(results.TUNER, KEYS[1], results.CHOICE, CHOICE, results.About(here(), "matmul"))
    assert keep(results.TUNER, KEYS[2], results.CHOICE, CHOICE, results.About("another device", "matmul"))
    assert keep(results.BEAM, KEYS[3], results.LISTS, OPTS, results.About(here(), "r_4_4", "another version"))
    assert cache.put("plan", KEYS[3], results.CHOICE, CHOICE)
    assert main(["cache", "export", str(tmp_path / "found.json")]) == 0
  assert f"2 results for {here()}; 2 of other devices, settings or versions are left out" in capfd.readouterr().out
  with config(cache=1, cache_dir=str(tmp_path / "here")): yield tmp_path / "found.json"


def kept() -> int: return len([*cache.entries(cache.folder())])


def test_to_another_machine(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
  text = json.loads(file.read_text())
  assert {r["kernel"]: r["choice"] for r in text["results"]} == {"r_4_4": json.loads(json.dumps(OPTS)), "matmul": CHOICE}
  assert text["device"] == here() and text["code"] == cache.version()
  assert main(["cache", "import", str(file)]) == 0 and "2 results are kept" in capfd.readouterr().out
  assert results.found_choice(results.BEAM, KEYS[0], results.LISTS) == OPTS
  assert results.found_choice(results.TUNER, KEYS[1], results.CHOICE) == CHOICE and kept() == 2
  again = file.parent / "again.json"
  assert main(["cache", "export", str(again)]) == 0 and json.loads(again.read_text()) == text


def test_another_device_or_version(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
  text = json.loads(file.read_text())
  file.write_text(json.dumps({**text, "device": "NVIDIA H100 | sm_90"}))
  assert main(["cache", "import", str(file)]) == 1 and kept() == 0
  said = capfd.readouterr().err
  assert f"{file}: its results are for 'NVIDIA H100 | sm_90', and {default_device()} here is '{here()}'" in said
  file.write_text(json.dumps({**text, "code": "another version"}))
  assert main(["cache", "import", str(file), "--json"]) == 0
  assert json.loads(capfd.readouterr().out) == {"results": 1, "left_out": 1}
  assert kept() == 1 and results.found_choice(results.TUNER, KEYS[1], results.CHOICE) == CHOICE


def test_files_that_are_refused(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
  """Nothing of them is kept, and nothing lies outside of the cache's folder."""
  text = json.loads(file.read_text())
  beam = next(i for i, r in enumerate(text["results"]) if r["table"] == results.BEAM)
  def changed(at: int, **to: Any) -> Any:
    out = copy.deepcopy(text)
    out["results"][at] |= to
    return out
  whole = file.read_bytes()
  wrong: list[Any] = [
    {}, [], 7, None, {**text, "format": 2}, {**text, "device": 7}, {**text, "results": 7}, {**text, "results": [7]},
    changed(beam, key="../../evil"), changed(beam, key="0" * 63), changed(beam, key=7), changed(beam, table="plan"),
    changed(beam, choice={"a": 1}), changed(beam, choice=7), changed(beam, kernel=7), changed(beam, choice=[[{"a": {}}]]),
    changed(1 - beam, choice={"BLOCK": "32"}), changed(1 - beam, choice={"BLOCK": 0}), changed(1 - beam, choice=[["BLOCK", 32]])]
  for content in [*[json.dumps(w).encode() for w in wrong], b"", whole[:-20], b"\xff\xfe", b"[" * 100_000, b"\x80\x04K\x01."]:
    file.write_bytes(content)
    assert main(["cache", "import", str(file)]) == 1, content[:80]
    assert f"{file}: it " in capfd.readouterr().err and kept() == 0, content[:80]
  assert main(["cache", "import", str(file.parent / "none.json")]) == 1
  file.write_bytes(whole)
  with config(cache=0): assert main(["cache", "import", str(file)]) == 1
  assert "nothing is kept" in capfd.readouterr().err


def test_a_kernel_takes_what_was_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """The block size that was found on one machine is what another uses without a search."""
  B = block_size(8, 64)
  def doubled(x: Any, y: Any) -> None: y = x * 2  # noqa: F841
  def made() -> Any: return tile.make(lambda x, y: (x.tile((B,)), y.tile((B,))), doubled, (tile.Tensor(1), tile.Tensor(1)))
  x, y = np.ones(100, np.float32), np.zeros(100, np.float32)
  monkeypatch.setattr(tile_kernels, "search_values", lambda *_: ({str(B): 16}, []))
  with config(tune=1, cache=1, cache_dir=str(tmp_path / "there")):
    made()(x, y)
    assert main(["cache", "export", str(tmp_path / "found.json")]) == 0
  monkeypatch.delattr(tile_kernels, "search_values")
  with config(tune=1, cache=1, cache_dir=str(tmp_path / "here")):
    assert main(["cache", "import", str(tmp_path / "found.json")]) == 0
    k = made()
    k(x, y)
    assert k.last.values[str(B)] == 16 and (y == 2).all()


def test_opts_that_were_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  from ntgrad.codegen import pipeline
  from ntgrad.engine import search
  from ntgrad.engine.compile import rendered
  from ntgrad.schedule import create_schedule
  device = get_device(default_device())
  kernel = create_schedule([Tensor.empty(64, 96) + 1])[-1].ast
  parts = pipeline.prepare(kernel, device.renderer.target, "k")
  with config(cache=1, beam=1):
    start = search.choose(parts, device.renderer.target)
    found = next(parts.after(o) for o in search.neighbours(start, device.renderer.target) if o != start.opts)
    with config(cache_dir=str(tmp_path / "there")):
      monkeypatch.setattr(search, "search_opts", lambda *_: found)
      assert search.best(parts, device, "k", rendered).opts == found.opts
      assert main(["cache", "export", str(tmp_path / "found.json")]) == 0
    monkeypatch.delattr(search, "search_opts")
    with config(cache_dir=str(tmp_path / "here")):
      assert main(["cache", "import", str(tmp_path / "found.json")]) == 0
      assert search.best(parts, device, "k", rendered).opts == found.opts
