"""Forked processes: what the parent had opened is refused there, all else works, and they end."""
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.devices import missing
from support.marks import long

ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
WARNS = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}   # of Python 3.12, for a fork with threads: which is what is tried here
needs_cpu = pytest.mark.skipif(bool(missing("CPU")), reason=missing("CPU"))

# ``child(f)`` forks; the child prints what f gives, or its error's class and text, and ends as Python does.
FORK = """
import os, sys
from ntgrad import Tensor, Device
from ntgrad.errors import DeviceError, NtgradError
def child(*fs, end=sys.exit):
  sys.stdout.flush()
  pid = os.fork()
  if pid == 0:
    for f in fs:
      try: print(f(), flush=True)
      except NtgradError as e: print(type(e).__name__, e, flush=True)
    end(0)
  done, status = os.waitpid(pid, 0)
  print("status", status)
"""


def run(code: str, timeout: float = 100, **env: str) -> list[str]:
  """The lines that a program prints, which must print nothing to stderr and end by itself."""
  done = subprocess.run(
    [sys.executable, "-c", FORK + textwrap.dedent(code)],
    env={**os.environ, "PYTHONPATH": PATHS, "ORIGINS": "0", **WARNS, **env},   # an error is a line
    capture_output=True,
    text=True,
    timeout=timeout,
    check=False,
  )
  assert (done.returncode, done.stderr) == (0, ""), done.stderr
  return done.stdout.splitlines()


@needs_cpu
@pytest.mark.parametrize("end", ["sys.exit", "os._exit"])
def test_what_the_parent_has_opened_is_refused(end: str) -> None:
  """Every way to use it names spawn; NUMPY works; memory of the parent's tensors is let go; the parent goes on, and saves its
  programs."""
  lines = run(f"""
    import gc
    import numpy as np
    from ntgrad.engine.device import get_device
    a = Tensor([1.0, 2.0], device="CPU")
    b = (a + 1).realize()
    lazy, raw, d, program = a * 3, b._alias.memory.raw, get_device("CPU"), get_device("CPU").programs.pop()
    def gone():
      global a, b, lazy
      del a, b, lazy
      return gc.collect() >= 0
    child(lambda: Tensor([1.0], device="CPU").numpy(), lambda: lazy.numpy(), lambda: b.numpy(),
          lambda: d.alloc(5000).size > 0 and d.copyin(raw, np.zeros(8, np.uint8)), lambda: Device.synchronize("CPU"),
          lambda: d.synchronize(), lambda: program([raw] * program.spec.nparams), lambda: Device.memory("CPU"),
          lambda: (Tensor([1.0, 2.0], device="NUMPY") + 1).tolist(), gone, end={end})
    print((a + 1).tolist(), lazy.tolist(), (a * 7 + 1).tolist())
    """)
  refused, rest = lines[:8], lines[8:]
  assert all(x.startswith("DeviceError ") and 'get_context("spawn")' in x for x in refused), lines
  assert rest == ["[2.0, 3.0]", "True", "status 0", "[2.0, 3.0] [3.0, 6.0] [8.0, 15.0]"]


@long
@needs_cpu
def test_a_child_opens_its_own() -> None:
  """Where the parent has opened no device, children may, several at once, and so may the parent afterwards."""
  lines = run("""
    x = Tensor([1.0, 2.0], device="NUMPY").realize()
    for i in range(2): child(lambda: (Tensor([1.0, 2.0], device="CPU") * 2).tolist())
    print((Tensor([1.0], device="CPU") + 1).tolist())
    child(lambda: (Tensor([1.0], device="CPU") * 2).tolist())
    """)
  assert lines[:5] == ["[2.0, 4.0]", "status 0"] * 2 + ["[2.0]"] and "spawn" in lines[5]


@long
@needs_cpu
def test_children_of_children() -> None:
  lines = run("""
    child(lambda: (Tensor([1.0], device="CPU") + 1).tolist(), lambda: child(lambda: Tensor([1.0], device="CPU").numpy(),
          lambda: Tensor([2.0], device="NUMPY").item()))
    """)
  assert lines[0] == "[2.0]" and "spawn" in lines[1] and lines[2:] == ["2.0", "status 0", "None", "status 0"]


@needs_cpu
def test_workers_are_the_parents() -> None:
  """Processes that compile are not the child's: it neither ends them nor waits for them, though threads of the parent held
  locks."""
  lines = run("""
    import time, threading
    from ntgrad.backends import workers as pool
    class Long(pool.Job):
      def work(self): return time.sleep, (1.5,)
    class Short(pool.Job):
      def work(self): return len, ((1, 2),)
    q = pool.Queue(0)
    jobs = [Short(), Long(), Long()]
    for j in jobs: q.add(j)
    q.serve()
    while not jobs[2].taken: time.sleep(0.01)
    held, let_go = threading.Event(), threading.Event()
    def hold():
      with pool.changed:
        held.set()
        let_go.wait()
    threading.Thread(target=hold).start()
    held.wait()
    def here():
      with q.claim(jobs[2]) as mine: return mine, pool.alive()
    child(here)
    let_go.set()
    while jobs[2].answer is None and not jobs[2].done and jobs[2].taken: time.sleep(0.01)
    print(pool.alive(), jobs[2].here)
    """, WORKERS="2")
  assert lines == ["(True, False)", "status 0", "True", "False"] or lines == ["(True, False)", "status 0", "True False"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loaders(method: str, tmp_path: Path) -> None:
  """Workers of a pool give arrays, whatever their parent has opened."""
  script = tmp_path / "loading.py"
  script.write_text(textwrap.dedent(f"""
    import multiprocessing
    import numpy as np
    from ntgrad import Device, Tensor
    def batch(i):
      Device.DEFAULT = "NUMPY"
      return (Tensor(np.full((4, 3), i, np.float32)) * 2 + 1).numpy()
    if __name__ == "__main__":
      (Tensor([1.0]) + 1).realize()
      with multiprocessing.get_context("{method}").Pool(2) as workers:
        print(sum(int(x.sum()) for x in workers.map(batch, range(6))))
        workers.close()
        workers.join()
      print((Tensor([1.0]) + 2).tolist())
    """))
  done = subprocess.run(
    [sys.executable, script],
    env={**os.environ, "PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
    timeout=100,
    check=False,
  )
  assert (done.stdout, done.stderr, done.returncode) == ("432\n[3.0]\n", "", 0)
