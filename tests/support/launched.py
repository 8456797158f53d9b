"""``ranks.py`` as several processes."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().with_name("ranks.py")
PATHS = os.pathsep.join([str(SCRIPT.parents[2]), str(SCRIPT.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
needs_mpi = pytest.mark.skipif(find_spec("mpi4py") is None or not Path(sys.executable).with_name("mpiexec").exists(),
                               reason="needs mpi4py and an MPI library: pip install 'ntgrad[distributed]'")


def started(n: int, *args: str, folder: Path | None = None, launcher: str = "mpiexec",
            seconds: float = 120) -> subprocess.CompletedProcess[str]:
  """A program of ``ranks.py`` in processes that mpiexec starts, or ``ntgrad launch`` ("launch": for MPI, "nccl")."""
  backend = "nccl" if launcher == "nccl" else "mpi"
  begin = ([str(Path(sys.executable).with_name("mpiexec")), "-n", str(n), sys.executable] if launcher == "mpiexec" else
           [sys.executable, "-m", "ntgrad", "launch", "--backend", backend, "-n", str(n)])
  env = {**os.environ, "PYTHONPATH": PATHS, "RANKS_BACKEND": backend}
  if folder is not None: env["RANKS_OUT"] = str(folder)
  return subprocess.run([*begin, str(SCRIPT), *args], capture_output=True, text=True, timeout=seconds, env=env, check=False)


def results(n: int, folder: Path, *args: str, launcher: str = "mpiexec") -> list[Any]:
  """What a program gives in each of them."""
  folder.mkdir(exist_ok=True)
  found = started(n, *args, folder=folder, launcher=launcher, seconds=300)
  assert found.returncode == 0, found.stderr
  return [json.loads((folder / f"{r}.json").read_text()) for r in range(n)]
