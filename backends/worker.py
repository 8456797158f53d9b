"""A process that builds kernels for another: ``python -m ntgrad.backends.worker PARENT``, the parent's process id.

Jobs come on stdin and answers go to stdout, each a length and a pickle. A job is the settings of the disk cache, a function and
its arguments; the answer is "made" with the result, "refused" with the text of a CompileError, or "failed" with that of another
error. It ends when stdin does, or when the parent has.
"""
from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

from ntgrad.backends.messages import receive, send
from ntgrad.codegen.config import config
from ntgrad.codegen.errors import CompileError

LOOK = 1.0                    # seconds between looks at whether the parent is there
GRACE = 3.0                   # seconds to leave, with what lies in temporary folders removed


def watch(parent: int) -> None:
  """Leave when the parent has ended, whatever is being built: a pipe tells of it only between jobs, and not while a fork has it
  too."""
  while os.getppid() == parent: time.sleep(LOOK)
  os.kill(os.getpid(), signal.SIGTERM)
  time.sleep(GRACE)
  os._exit(1)


def answer(settings: dict[str, Any], function: Any, arguments: tuple[Any, ...]) -> tuple[str, Any]:
  """What a job gives."""
  try:
    with config(**settings): return "made", function(*arguments)
  except CompileError as e: return "refused", str(e)
  except Exception as e: return "failed", f"{type(e).__name__}: {e}"


def main() -> None:
  """Answer jobs until there are none."""
  jobs, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
  os.dup2(2, 1)  # what a driver prints must not come between answers
  signal.signal(signal.SIGINT, signal.SIG_IGN)   # it goes to all processes of a terminal, and means the parent
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
  threading.Thread(target=watch, args=(int(sys.argv[1]),), daemon=True).start()
  while True:
    try: job = receive(jobs)
    except EOFError: return
    send(answers, answer(*job))


if __name__ == "__main__": main()
