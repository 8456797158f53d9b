"""How many files of ntgrad/ a first computation goes through: what somebody has to open who follows it.

codegen/ and backends/ have a list of passes and a file for each part of a language, and are not counted.
"""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.marks import long

PACKAGE = Path(__file__).resolve().parents[2] / "ntgrad"
COUNT = """
import sys
from ntgrad import Tensor, tile
from ntgrad.tile import language as tl

def arrangement(x, out): return x.tile((1, -1)), out.tile((1, -1))

def application(x, out):
  e = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
  out = e / tl.sum(e, axis=1, keep_dims=True)

x, out = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize(), Tensor([[0.0, 0.0], [0.0, 0.0]]).realize()
rows = tile.make(arrangement, application, (tile.Tensor(2), tile.Tensor(2)), kernel_name="rows")
entered = {}
def note(frame, event, arg):
  if event == "call" and frame.f_code.co_name != "<module>": entered.setdefault(frame.f_code.co_filename)
todo = {"softmax": lambda: x.softmax(1).realize(), "tile": lambda: rows(x, out)}[sys.argv[1]]
sys.setprofile(note)
todo()
sys.setprofile(None)
print(*entered, sep="\\n")
"""


def entered(what: str, folder: Path) -> list[str]:
  """The files of ntgrad/ whose functions a process calls for something that it has not done before, with an empty cache."""
  env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "CACHE_DIR": str(folder / "cache"), "DEBUG": "0"}
  script = folder / "count.py"
  script.write_text(COUNT)
  out = subprocess.run([sys.executable, str(script), what], env=env, capture_output=True, text=True, timeout=120)
  assert out.returncode == 0, out.stderr
  below = [Path(line).relative_to(PACKAGE) for line in out.stdout.splitlines() if line.startswith(f"{PACKAGE}{os.sep}")]
  return [str(p) for p in below if p.parts[0] not in ("codegen", "backends") and p.suffix == ".py"]


@long
@pytest.mark.parametrize("what, most", [("softmax", 25), ("tile", 25)])
def test_files_of_a_first_computation(what: str, most: int, tmp_path: Path) -> None:
  found = entered(what, tmp_path)
  print(f"{what}: {len(found)} files: {', '.join(found)}")
  assert "engine/buffer.py" in found and len(found) <= most, f"{len(found)} files, {most} at most: {', '.join(found)}"
