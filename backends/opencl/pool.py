"""The worker processes of this process: started when many kernels are new, kept while there is work, gone when they have idled.

They are plain subprocesses with a module of their own, so a script needs no ``if __name__ == "__main__"``.
"""
from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Sequence

import ntgrad
from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.opencl.messages import receive, send
from ntgrad.codegen.config import config

_workers: list[subprocess.Popen[bytes]] = []
_lock = threading.Lock()


def size() -> int:
  """How many workers there may be: ``config.workers``, or one a core that this process may use."""
  if not sys.executable: return 1
  return config.workers or min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)


def alive() -> bool:
  """Whether workers are running already."""
  return any(w.poll() is None for w in _workers)


def _start() -> subprocess.Popen[bytes]:
  env = dict(os.environ)
  for name in ("POCL_CACHE_DIR", "POCL_KERNEL_CACHE"): env.pop(name, None)  # a folder of its own
  env["PYTHONPATH"] = os.pathsep.join([str(Path(next(iter(ntgrad.__path__))).parent), *filter(None, [env.get("PYTHONPATH")])])
  return subprocess.Popen([sys.executable, "-m", "ntgrad.backends.opencl.worker"], env=env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def build(device: str, groups: Sequence[Sequence[ProgramSpec]]) -> list[bytes | None]:
  """The binary of each group of kernels; None where a worker failed."""
  todo: queue.SimpleQueue[int] = queue.SimpleQueue()
  for i in range(len(groups)): todo.put(i)
  out: list[bytes | None] = [None]*len(groups)

  def drive(worker: subprocess.Popen[bytes]) -> None:
    assert worker.stdin is not None and worker.stdout is not None
    while True:
      try:
        i = todo.get_nowait()
      except queue.Empty:
        return
      try:
        # the linear UOps stay here: a worker reads source only
        send(worker.stdin, (device, [ProgramSpec(s.name, s.source, s.grid, s.local, s.nparams) for s in groups[i]]))
        answer = receive(worker.stdout)
        out[i] = answer if isinstance(answer, bytes) else None
      except (OSError, EOFError, ValueError):
        worker.kill()
        return

  with _lock:
    _workers[:] = [w for w in _workers if w.poll() is None]
    while len(_workers) < min(size(), len(groups)): _workers.append(_start())
    threads = [threading.Thread(target=drive, args=(w,), daemon=True) for w in _workers]
    for t in threads: t.start()
    for t in threads: t.join()
  return out


def stop() -> None:
  """End the workers and wait for them."""
  for w in _workers:
    if w.stdin is not None: w.stdin.close()
    w.wait()
    if w.stdout is not None: w.stdout.close()
  _workers.clear()
