"""A process that builds kernels for another: ``python -P worker.py PARENT PIPE``, the parent's process id and the descriptor of
the pipe to it. A job is the settings of the disk cache, a function and its arguments; the answer is "made" with the
result, "refused" with the text of a CompileError, or "failed" with that of another error. It ends when the pipe is closed, or
when the parent has ended."""
from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Callable

LOOK = 1.0                    # seconds between checks that the parent lives
GRACE = 3.0                   # seconds to remove temporary folders in, then the process is ended


def without_tensors() -> None:
  """Have the package's parts be imported without what it gives users, which takes longer than all that a worker needs. Whoever
  asks the package for something gets it all the same."""
  spec = importlib.util.find_spec("ntgrad")
  assert spec is not None and spec.loader is not None, "the package that this file belongs to"
  loader, package = spec.loader, importlib.util.module_from_spec(spec)
  def whole(name: str) -> Any:
    if name.startswith("__"): raise AttributeError(name)   # Python's own questions
    del package.__getattr__
    loader.exec_module(package)
    return getattr(package, name)
  package.__getattr__ = whole   # type: ignore[method-assign]
  sys.modules["ntgrad"] = package


if __name__ == "__main__": without_tensors()   # before the first import of a part

from ntgrad.codegen.ir import CompileError, config  # noqa: E402 - see above


def watch(parent: int) -> None:
  """Leave when the parent has ended, even in the middle of a job: the pipe tells of it only between jobs, and not while a fork of
  the parent holds the pipe too."""
  while os.getppid() == parent: time.sleep(LOOK)
  os.kill(os.getpid(), signal.SIGTERM)
  time.sleep(GRACE)
  os._exit(1)


def answer(settings: dict[str, Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
  """Do a job; gives the answer to it."""
  try:
    with config(**settings): return "made", function(*arguments)
  except CompileError as e: return "refused", str(e)
  except Exception as e: return "failed", f"{type(e).__name__}: {e}"


def main() -> None:
  """Answer jobs until there are none."""
  parent, pipe = map(int, sys.argv[1:])
  jobs: Connection[Any, Any] = Connection(pipe)
  signal.signal(signal.SIGINT, signal.SIG_IGN)   # it goes to all processes of a terminal, and means the parent
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
  threading.Thread(target=watch, args=(parent,), daemon=True).start()
  gc.disable()   # it takes a tenth of the time, and what a job leaves is gone between jobs
  while True:
    if not jobs.poll(): gc.collect()
    try: job = jobs.recv()
    except EOFError: return
    jobs.send(answer(*job))


if __name__ == "__main__": main()
