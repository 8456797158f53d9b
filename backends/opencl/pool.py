"""The worker processes of this process: started when many kernels are new, kept while there is work, gone when they have idled.

They are plain subprocesses with a module of their own, so a script needs no ``if __name__ == "__main__"``.
"""
from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Sequence

import ntgrad
from ntgrad.backends.base import ProgramSpec
from ntgrad.backends.opencl.messages import receive, send
from ntgrad.codegen.config import config
from ntgrad.codegen.errors import CompileError

if TYPE_CHECKING:
  from ntgrad.backends.opencl.compiler import Compiler

IDLE = 30.0                   # seconds without a job after which a worker ends
_workers: list[subprocess.Popen[bytes]] = []


def size() -> int:
  """How many processes compile, this one among them: ``config.workers``, or one a core that this process may use."""
  if not sys.executable: return 1
  return config.workers or min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)


def alive() -> bool:
  """Whether workers are running already."""
  return any(w.poll() is None for w in _workers)


def serve(compiler: Compiler) -> None:
  """See to it that workers take units of ``compiler``."""
  _workers[:] = [w for w in _workers if w.poll() is None]
  while len(_workers) < size() - 1:
    worker = _start()
    _workers.append(worker)
    threading.Thread(target=_drive, args=(worker, compiler), name="ntgrad-worker", daemon=True).start()


def _start() -> subprocess.Popen[bytes]:
  env = dict(os.environ)
  env["PYTHONPATH"] = os.pathsep.join([str(Path(next(iter(ntgrad.__path__))).parent), *filter(None, [env.get("PYTHONPATH")])])
  return subprocess.Popen([sys.executable, "-m", "ntgrad.backends.opencl.worker"], env=env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _drive(worker: subprocess.Popen[bytes], compiler: Compiler) -> None:
  """Hand units to a worker until none has come for a while; then end it."""
  assert worker.stdin is not None and worker.stdout is not None
  while (unit := compiler.take(IDLE)) is not None:
    answer: object = None
    try:
      # the linear UOps stay here: a worker reads source only
      send(worker.stdin, (compiler.name, [ProgramSpec(s.name, s.source, s.grid, s.local, s.nparams) for s in unit.specs.values()]))
      answer = receive(worker.stdout)
    except (OSError, EOFError, ValueError):
      worker.kill()
    compiler.give(unit, answer if isinstance(answer, bytes) else None)
    if worker.poll() is not None: return
  worker.stdin.close()


def once(device: str, specs: Sequence[ProgramSpec]) -> bytes:
  """A packed program from a worker of its own. Raises CompileError."""
  worker = _start()
  assert worker.stdin is not None and worker.stdout is not None
  try:
    send(worker.stdin, (device, list(specs)))
    answer = receive(worker.stdout)
  except (OSError, EOFError): answer = "the process that compiles ended"
  finally:
    worker.stdin.close()
    worker.wait()
  if isinstance(answer, bytes): return answer
  raise CompileError(str(answer))


def stop() -> None:
  """End the workers and wait for them."""
  for w in _workers:
    if w.stdin is not None: w.stdin.close()
    w.wait()
    if w.stdout is not None: w.stdout.close()
  _workers.clear()
