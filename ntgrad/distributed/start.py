"""Who a process is: from arguments, or from what a launcher has put into its environment."""
from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from ntgrad.codegen.ir import ArgumentError, DistributedError, shown
from ntgrad.engine.device import Device
from ntgrad.graph import checked

from .mpi import MPITransport
from .nccl import NCCLTransport
from .transport import Transport
from .world import NOTES, World, enter, known

# by launcher: its variables of the rank, of how many there are, and of the number on this machine
LAUNCHERS = {
  "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
  "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
  "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
  "SLURM": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")}
BACKENDS = "mpi", "nccl"
TIMEOUT = 600.0   # seconds


class Place(NamedTuple):
  """A process among all: its number, how many there are, its number on this machine, and who says so."""
  rank: int
  size: int
  local_rank: int
  by: str


def place_of(rank: int, world_size: int, env: Mapping[str, str]) -> Place | None:
  """Who a process is: by its arguments (-1: not given), else by the first launcher that its environment has. None where nobody
  says it. Raises ArgumentError and DistributedError."""
  if rank != -1 or world_size != -1:
    if not 0 <= rank < world_size:
      raise ArgumentError(f"init_process_group: rank {rank} of world_size {world_size}; give both, rank from 0 to world_size - 1")
    return Place(rank, world_size, int(env.get("LOCAL_RANK", rank)), "arguments")
  for by, names in LAUNCHERS.items():
    if names[0] not in env or names[1] not in env: continue
    try: number, size, local = [int(env.get(n, env[names[0]])) for n in names]
    except ValueError:
      given = ", ".join([f"{n}={env.get(n)!r}" for n in names])
      raise DistributedError(f"init_process_group: {by}'s variables are no numbers: {given}") from None
    if not 0 <= number < size: raise DistributedError(f"init_process_group: {by} says rank {number} of {size}")
    return Place(number, size, local, by)
  return None


def _seconds(timeout: Any) -> float:
  if isinstance(timeout, timedelta): return timeout.total_seconds()
  if isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout > 0: return float(timeout)
  raise ArgumentError(f"init_process_group: timeout is {shown(timeout)}, expected seconds above 0 or a timedelta")


def _address(init_method: str | None, env: Mapping[str, str]) -> tuple[str, int]:
  """Where ranks meet. Raises ArgumentError."""
  if init_method in (None, "env://"): host, port = env.get("MASTER_ADDR", "127.0.0.1"), env.get("MASTER_PORT", "29500")
  else:
    kind, _, rest = str(init_method).partition("://")
    host, _, port = rest.rpartition(":")
    if kind != "tcp" or not host: raise ArgumentError(f"init_method {init_method!r}; it takes 'env://' or 'tcp://host:port'")
  if not port.isdigit() or not 0 < int(port) < 1 << 16: raise ArgumentError(f"init_process_group: {port!r} is no port")
  return host, int(port)


@checked
def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: Any = TIMEOUT, world_size: int = -1,
                       rank: int = -1) -> None:
  """Join the other processes of a job, which all call this once.

  Who the process is comes from ``rank`` and ``world_size`` or from the variables of torchrun, Open MPI, MPICH (PMI) or SLURM.
  With ``backend`` "mpi" it is MPI that knows, and what else says it must agree; "nccl" is for CUDA tensors, with a GPU for each
  process; None takes "nccl" where the default device is CUDA, else "mpi". ``init_method`` ("tcp://host:port", else MASTER_ADDR
  and MASTER_PORT) is where ranks meet for NCCL: rank 0 listens on that address alone, and only until all have come. ``timeout``:
  seconds (or a timedelta) after which a rank that does not answer is an error.

  From then on an exception that nobody handles ends all processes, with the rank's number in the message. Raises DistributedError
  where processes do not find each other, or do not agree how many they are, and ArgumentError."""
  if known() is not None:
    raise DistributedError("init_process_group: this process is in a group already; destroy_process_group() ends that")
  seconds, place = _seconds(timeout), place_of(rank, world_size, os.environ)
  kind = backend or ("nccl" if Device.DEFAULT.startswith("CUDA") else "mpi")
  if kind not in BACKENDS: raise ArgumentError(f"init_process_group: backend {backend!r}; there are {', '.join(BACKENDS)}")
  if (folder := os.environ.get(NOTES)) and place is not None: Path(folder, f"{place.rank}.joining").touch()   # it waits
  transport: Transport
  if kind == "mpi":
    transport = MPITransport.of_world(seconds)
    if place is not None and (place.rank, place.size) != (transport.rank, transport.size):
      raise DistributedError(
        f"init_process_group: {place.by} says rank {place.rank} of {place.size}, MPI says {transport.rank} of {transport.size}; "
        "start the script with mpirun (or srun --mpi=..) of the MPI library that mpi4py uses: python -m ntgrad launch does")
  else:
    if place is None:
      raise DistributedError("init_process_group: nothing says which rank this is; start the script by python -m ntgrad launch, "
                             "torchrun, mpirun or srun, or give rank and world_size")
    transport = NCCLTransport.of_world(place.rank, place.size, place.local_rank, _address(init_method, os.environ), seconds)
  enter(World(transport, kind, transport.rank if place is None else place.local_rank))


init = init_process_group
