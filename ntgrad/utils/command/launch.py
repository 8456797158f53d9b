"""``launch``: a script as several processes of one machine."""
from __future__ import annotations

import argparse
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ntgrad.codegen.ir import DistributedError
from ntgrad.distributed.world import NOTES, notes

from .parser import add_script, command

PATIENCE = 5.0   # seconds that processes have to end by themselves, or that others have to join them
_LOOPBACK = {"UCX_NET_DEVICES": "lo", "FI_TCP_IFACE": "lo"}   # where MPI's own transports listen, of ranks of one machine
AT_ONCE = 1.0   # seconds within which the others end when one is killed
_KILLED = re.compile(rb"PID (\d+) RUNNING AT")   # what MPICH's mpiexec says of a process that was killed


def add(commands: argparse._SubParsersAction[Any]) -> None:
  """``launch``."""
  parser = command(
    commands, "launch", launched,
    "Run a script as N processes of this machine, the ranks of one group. Each line of theirs has the rank in front; signals go "
    "to all; where one fails all end, and the reason of the first is told. Several machines: mpirun, torchrun or srun.",
    "launch -n 4 train.py --epochs 1", json=False)
  parser.add_argument("-n", type=int, default=2, metavar="N", help="how many processes (2)")
  parser.add_argument("--backend", choices=["mpi", "nccl"], default="mpi",
                      help="mpi: by mpiexec, for CPUs (the default); nccl: a GPU for each process")
  add_script(parser)


def _commands(args: argparse.Namespace, script: Sequence[str]) -> list[tuple[str, list[str], dict[str, str]]]:
  """What to start: what its lines begin with, the command, and variables. Raises DistributedError."""
  if args.backend == "mpi":
    # of the environment that Python runs in, else of the path
    program = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    if program is None: raise DistributedError("launch: there is no mpiexec; pip install 'ntgrad[distributed]' brings one")
    told = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    prefix = ["--tag-output"] if "Open MPI" in told or "OpenRTE" in told else ["-prepend-rank"]
    return [("", [program, *prefix, "-n", str(args.n), *script], {k: v for k, v in _LOOPBACK.items() if k not in os.environ})]
  with socket.create_server(("127.0.0.1", 0)) as free: port = free.getsockname()[1]
  every = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(args.n)}
  return [(f"[{r}] ", list(script), {**every, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(args.n)]


def launched(args: argparse.Namespace) -> int:
  """Start the processes, and wait for all; gives the exit code of the first that failed. Raises DistributedError."""
  if args.n < 1: raise DistributedError(f"launch: -n {args.n}; expected 1 or more")
  with tempfile.TemporaryDirectory(prefix="ntgrad-launch-") as folder:
    job = Job(Path(folder))
    handlers = {s: signal.signal(s, job.pass_on) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
      script = [sys.executable, "-m", f"{__package__}.rank", args.script, *args.args]
      for prefix, line, env in _commands(args, script): job.start(prefix, line, env)
      code = job.wait()
    finally:
      job.end()
      for s, handler in handlers.items(): signal.signal(s, handler)
    if code or job.signal: print(f"python -m ntgrad launch: {job.reason(code, args.n)}", file=sys.stderr, flush=True)
    return 128 + job.signal if job.signal else code if code >= 0 else 128 - code


class Job:
  """Processes that belong together. ``folder`` is where they note who they are. ``signal``: what ended them from outside."""

  def __init__(self, folder: Path):
    self.folder, self.processes, self.signal, self.killed, self.named = folder, list[subprocess.Popen[bytes]](), 0, 0, 0
    self._readers: list[threading.Thread] = []
    self._watched = dict[int, int]()                 # a rank's process -> what tells when it has ended
    self._gone = list[tuple[float, list[int]]]()     # when, and which ones

  def start(self, prefix: str, line: Sequence[str], env: dict[str, str]) -> None:
    """Start one, in a session of its own: Ctrl-C in a terminal comes here first."""
    own = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}   # lines come whole
    p = subprocess.Popen(line, env={**own, **env, NOTES: str(self.folder)}, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    self.processes.append(p)
    for source, to in (p.stdout, sys.stdout), (p.stderr, sys.stderr):
      reader = threading.Thread(target=self._read, args=(source, to, prefix), daemon=True)
      reader.start()
      self._readers.append(reader)

  def _read(self, source: BinaryIO, to: Any, prefix: str) -> None:
    for line in source:
      if (found := _KILLED.search(line)) is not None: self.named = self.named or int(found[1])
      to.write(prefix + line.decode(errors="replace"))
      to.flush()

  def pass_on(self, number: int, frame: Any) -> None:
    """Give all a signal that has come."""
    self.signal = number
    self._tell(number)

  def _tell(self, number: int) -> None:
    for p in self.processes:
      if p.poll() is None: os.killpg(p.pid, number)

  def wait(self) -> int:
    """Wait until all have ended, or one has failed, or all were told to end; the exit code of the first that failed."""
    since = 0.0
    while not self.signal:
      for p in self.processes:
        if (code := p.poll() or 0) < 0: self.killed = self.killed or p.pid   # before others are, for it
        if code: return code
      if all([p.returncode == 0 for p in self.processes]): return 0
      if not self.reason_to_end(): since = 0.0
      elif not since: since = time.monotonic()
      elif time.monotonic() - since > PATIENCE: return 1
      self._watch(0.05)
    return 0

  def _watch(self, seconds: float) -> None:
    """Wait, but for no longer than until a rank ends. mpiexec ends the others then, and may name one of these."""
    for pid, _ in notes(self.folder).values():
      if pid not in self._watched and hasattr(os, "pidfd_open"):
        try: self._watched[pid] = os.pidfd_open(pid)
        except OSError: self._watched[pid] = -1   # it has ended
    there = {fd: pid for pid, fd in self._watched.items() if fd >= 0}
    for fd in (ended := select.select([*there], [], [], seconds)[0]):
      os.close(fd)
      self._watched[there[fd]] = -1
    if ended: self._gone.append((time.monotonic(), [there[fd] for fd in ended]))

  def reason_to_end(self) -> str:
    """Why the others cannot go on, who may not know it: a rank has failed, or has ended while some wait for all to join."""
    there = sorted(self.folder.iterdir(), key=lambda p: p.stat().st_mtime_ns)
    if failed := [p for p in there if p.suffix == ".error"]: return failed[0].read_text()
    names = {p.name for p in there}
    ended, waiting = [[p.stem for p in there if p.suffix == suffix] for suffix in (".ended", ".joining")]
    if not ended or names.issuperset(waiting): return ""
    return f"rank {ended[0]} has ended before it joined the others, which wait for it"

  def end(self) -> None:
    """End all that are left: asked first, then killed; ranks too that have lost whoever started them."""
    def ended(seconds: float) -> bool:
      end = time.monotonic() + seconds
      while any([p.poll() is None for p in self.processes]) and time.monotonic() < end: time.sleep(0.02)
      return all([p.poll() is not None for p in self.processes])
    if not self.signal or not ended(PATIENCE): self._tell(signal.SIGTERM)
    if not ended(PATIENCE): self._tell(signal.SIGKILL)
    for pid, _ in notes(self.folder).values():
      try:
        # it is that process, not another one of its number
        if self.folder.name.encode() in Path(f"/proc/{pid}/environ").read_bytes(): os.kill(pid, signal.SIGKILL)
      except OSError: pass
    for reader in self._readers: reader.join(PATIENCE)
    for fd in self._watched.values():
      if fd >= 0: os.close(fd)

  def reason(self, code: int, size: int) -> str:
    """What ended them, of the first that noted it, or was killed."""
    if self.signal: return f"ended by {signal.Signals(self.signal).name}"
    if found := self.reason_to_end(): return found
    ranks, last = notes(self.folder), self._gone[-1][0] if self._gone else 0.0
    first = next((pids for when, pids in self._gone if when > last - AT_ONCE), [])
    killed = self.killed or (first[0] if len(first) == 1 else self.named)
    for rank, (pid, steps) in ranks.items():
      if pid == killed: return f"rank {rank} of {size} (process {pid}) was killed after {steps} operations"
    return f"ended with exit code {code}"
