"""Several processes, each with its own device, as one program: groups of ranks and what they compute together.

The names and arguments are ``torch.distributed``'s. docs/distributed.md begins with a program."""
from __future__ import annotations

from ntgrad.compat.public import show

from . import functional
from .operations import (
  ReduceOp,
  Work,
  all_gather,
  all_gather_into_tensor,
  all_reduce,
  all_to_all,
  all_to_all_single,
  barrier,
  broadcast,
  destroy_process_group,
  get_backend,
  get_local_rank,
  get_rank,
  get_world_size,
  is_available,
  is_initialized,
  new_group,
  recv,
  reduce_scatter,
  reduce_scatter_tensor,
  send,
)
from .start import init, init_process_group
from .threads import run
from .world import Group

__all__ = [
  "Group", "ReduceOp", "Work", "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "barrier",
  "broadcast", "destroy_process_group", "functional", "get_backend", "get_local_rank", "get_rank", "get_world_size", "init",
  "init_process_group", "is_available", "is_initialized", "new_group", "recv", "reduce_scatter", "reduce_scatter_tensor", "run",
  "send"]

show(__name__)
