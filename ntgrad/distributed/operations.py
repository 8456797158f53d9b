"""What programs call: collective operations that write tensors in place, with ``torch.distributed``'s names and arguments.

They are ordered with everything else that reads and writes those tensors, and run when a value is needed, as every operation
does. No gradients go through them; those of ``ntgrad.distributed.functional`` give new tensors, and have gradients."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ntgrad.codegen.ir import ArgumentError, ShapeError, shown
from ntgrad.engine.buffer import refuse_recording
from ntgrad.engine.realize import realize
from ntgrad.graph import checked, no_grad
from ntgrad.tensor import Tensor

from .collective import collective
from .world import Group, here, known, leave


class ReduceOp:
  """How a reduction combines the values of ranks. AVG divides their sum by the number of ranks."""
  SUM, AVG, PRODUCT, MIN, MAX = "sum", "avg", "product", "min", "max"


OPS = frozenset({ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX})


class Work:
  """An operation that was asked for by ``async_op=True``. It is in its order already; waiting changes only when it runs."""

  def __init__(self, *tensors: Tensor): self._tensors = tensors
  def wait(self, timeout: Any = None) -> bool:
    """True: whoever reads the result gets it."""
    return True
  def is_completed(self) -> bool:
    """Have it done, and wait for that; True."""
    realize(self._tensors)
    return True


def group_of(group: Any) -> Group:
  """The group that is meant: None is all ranks. Raises ArgumentError for what is none."""
  if group is None: return here().groups["world"]
  if not isinstance(group, Group):
    raise ArgumentError(f"{shown(group)} is no group; new_group(ranks) gives one, None is all ranks")
  return group


def op_of(op: Any) -> str:
  """A reduction by its name. Raises ArgumentError."""
  if op not in OPS: raise ArgumentError(f"op {shown(op)}; ReduceOp has {', '.join(sorted(OPS))}")
  return str(op)


def root_of(name: str, rank: int, group: Group) -> int:
  """The number in a group of a rank of the world. Raises ArgumentError."""
  if rank not in group.ranks: raise ArgumentError(f"{name}: rank {rank} is not in {group}")
  return group.ranks.index(rank)


def tensors_of(name: str, given: Any, group: Group, like: Tensor | None = None) -> list[Tensor]:
  """A list of a tensor for each rank of a group, of one shape and dtype. Raises ArgumentError and ShapeError."""
  found = list(given) if isinstance(given, (list, tuple)) else []
  if len(found) != group.size() or not all([isinstance(t, Tensor) for t in found]):
    raise ArgumentError(f"{name}: {shown(given)}; expected a list of {group.size()} Tensors, one for each rank")
  first = like if like is not None else found[0]
  for t in found: _fits(name, t, first.shape, first)
  return found


def numbers_of(number: int, group: Group, device: Any = None) -> list[int]:
  """The numbers that all ranks of a group give, in their order."""
  return collective("all_gather", Tensor([number], dtype="int64", device=device), (group.size(),), group).tolist()


def _fits(name: str, t: Tensor, shape: Sequence[int], like: Tensor) -> None:
  if tuple(t.shape) != tuple(shape) or t.dtype is not like.dtype:
    raise ShapeError(f"{name}: a tensor of {t.dtype.name} {tuple(t.shape)}, expected {like.dtype.name} {tuple(shape)}")


def _written(async_op: bool, *pairs: tuple[Tensor, Tensor]) -> Work | None:
  """Write results. Those are of other ranks: no gradient goes through."""
  with no_grad():
    for t, value in pairs: t.assign(value)
  return Work(*[t for t, _ in pairs]) if async_op else None


# ---- who and where
def is_available() -> bool:
  """True: threads are always there; ``init_process_group`` says what a backend lacks."""
  return True
def is_initialized() -> bool:
  """Whether this process is in a group."""
  return known() is not None
def get_backend(group: Any = None) -> str:
  """"mpi", "nccl" or "threads"."""
  group_of(group)
  return here().backend
def get_rank(group: Any = None) -> int:
  """The number of this process in a group (None: of all), from 0; -1 where it is not in it. Raises DistributedError."""
  return group_of(group).rank()
def get_world_size(group: Any = None) -> int:
  """How many ranks a group has; -1 where this process is not in it. Raises DistributedError."""
  found = group_of(group)
  return found.size() if found.rank() >= 0 else -1
def get_local_rank() -> int:
  """The number of this process among those of its machine: which GPU is its own. Raises DistributedError."""
  return here().local_rank


@checked
def new_group(ranks: Any = None) -> Group:
  """A group of some ranks, in their order; None: of all. Every process calls it, also those that are not in it. Raises
  ArgumentError."""
  world = here()
  mine = tuple(range(world.size)) if ranks is None else tuple(ranks)
  if not mine or len({*mine}) != len(mine) or not all([type(r) is int and 0 <= r < world.size for r in mine]):
    raise ArgumentError(f"new_group: ranks {shown(ranks)}; expected different numbers from 0 to {world.size - 1}")
  world.flush()   # making it is an operation of all ranks, which comes after those before
  name = f"group{len(world.groups)}"
  group = world.groups[name] = Group(name, mine, world.transport.subgroup(name, mine))
  return group


def destroy_process_group(group: Any = None) -> None:
  """Have all operations done that were asked for, and leave the group; None: all groups."""
  if group is None: leave()
  else: here().flush()


def barrier(group: Any = None) -> None:
  """Return when every rank of a group has come here, and has done what it was asked for before. Raises DistributedError."""
  refuse_recording("distributed.barrier")
  g, device = group_of(group), next(iter(here().tokens), None)
  collective("all_gather", Tensor.zeros(1, dtype="int32", device=device).contiguous(), (g.size(),), g).numpy()


# ---- operations
@checked
def all_reduce(tensor: Tensor, op: str = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
  """Have ``tensor`` be the combination of all ranks' ones, in the order of ranks. float16 and bfloat16 are combined in float32
  and rounded once. Raises DistributedError, ArgumentError, DTypeError."""
  g = group_of(group)
  return _written(async_op, (tensor, collective("all_reduce", tensor.detach(), tuple(tensor.shape), g, op_of(op))))


@checked
def broadcast(tensor: Tensor, src: int, group: Any = None, async_op: bool = False) -> Work | None:
  """Have ``tensor`` be that of rank ``src`` (of the world). Raises DistributedError and ArgumentError."""
  g = group_of(group)
  made = collective("broadcast", tensor.detach(), tuple(tensor.shape), g, root=root_of("broadcast", src, g))
  return _written(async_op, (tensor, made))


@checked
def all_gather(tensor_list: Any, tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
  """Have the tensors of a list, one for each rank, be the ranks' ``tensor``. Raises DistributedError, ArgumentError,
  ShapeError."""
  g = group_of(group)
  outs = tensors_of("all_gather", tensor_list, g, tensor)
  made = collective("all_gather", tensor.detach(), (g.size(), *tensor.shape), g)
  return _written(async_op, *[(t, made[i]) for i, t in enumerate(outs)])


@checked
def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
  """The same, one behind the other along dim 0: ``(n, ..) -> (ranks * n, ..)``, or ``(ranks, n, ..)``. Raises as it."""
  g, shape = group_of(group), tuple(input_tensor.shape)
  joined = (g.size() * shape[0], *shape[1:]) if shape else (g.size(),)
  wanted = (g.size(), *shape) if output_tensor.ndim > max(len(shape), 1) else joined
  _fits("all_gather_into_tensor", output_tensor, wanted, input_tensor)
  return _written(async_op, (output_tensor, collective("all_gather", input_tensor.detach(), wanted, g)))


@checked
def reduce_scatter(output: Tensor, input_list: Any, op: str = ReduceOp.SUM, group: Any = None,
                   async_op: bool = False) -> Work | None:
  """Have ``output`` be the combination of what the ranks' lists have for this one. Raises DistributedError, ArgumentError,
  ShapeError, DTypeError."""
  g = group_of(group)
  parts = tensors_of("reduce_scatter", input_list, g, output)
  joined = Tensor.stack(*[t.detach() for t in parts])
  return _written(async_op, (output, collective("reduce_scatter", joined, tuple(output.shape), g, op_of(op))))


@checked
def reduce_scatter_tensor(output: Tensor, input: Tensor, op: str = ReduceOp.SUM, group: Any = None,
                          async_op: bool = False) -> Work | None:
  """The same, of one tensor: ``input`` (ranks * n, ..), or (ranks, n, ..), to ``output`` (n, ..). Raises as it."""
  g, shape = group_of(group), tuple(output.shape)
  wanted = (g.size(), *shape) if input.ndim > len(shape) else (g.size() * shape[0], *shape[1:])
  _fits("reduce_scatter_tensor", input, wanted, output)
  return _written(async_op, (output, collective("reduce_scatter", input.detach(), shape, g, op_of(op))))


@checked
def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False) -> Work | None:
  """Send element r of the second list to rank r, and get that of rank r in element r of the first. All tensors have one shape.
  Raises DistributedError, ArgumentError, ShapeError."""
  g = group_of(group)
  ins = tensors_of("all_to_all", input_tensor_list, g)
  outs = tensors_of("all_to_all", output_tensor_list, g, ins[0])
  x = Tensor.stack(*[t.detach() for t in ins])
  made = collective("all_to_all", x, tuple(x.shape), g)
  return _written(async_op, *[(t, made[i]) for i, t in enumerate(outs)])


@checked
def all_to_all_single(output: Tensor, input: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
  """The same, of one tensor in equal parts along dim 0. Raises as it."""
  g, shape = group_of(group), tuple(input.shape)
  if not shape or shape[0] % g.size():
    raise ShapeError(f"all_to_all_single: a tensor of shape {shape} for {g.size()} ranks; dim 0 must be a multiple of that")
  _fits("all_to_all_single", output, shape, input)
  return _written(async_op, (output, collective("all_to_all", input.detach(), shape, g)))


@checked
def send(tensor: Tensor, dst: int, group: Any = None) -> None:
  """Send a tensor to rank ``dst``, now: what was asked for before is done first. Raises DistributedError and ArgumentError."""
  refuse_recording("distributed.send")
  _other("send", dst)
  g = group_of(group)
  collective("send", tensor.detach(), tuple(tensor.shape), g, root=root_of("send", dst, g)).realize()


@checked
def recv(tensor: Tensor, src: int, group: Any = None) -> int:
  """Have ``tensor`` be what rank ``src`` sends, of its shape and dtype; gives ``src``. Raises DistributedError, ArgumentError."""
  refuse_recording("distributed.recv")
  _other("recv", src)
  g = group_of(group)
  _written(False, (tensor, collective("recv", tensor.detach(), tuple(tensor.shape), g, root=root_of("recv", src, g))))
  realize([tensor])
  return src


def _other(name: str, rank: int) -> None:
  if rank == here().rank: raise ArgumentError(f"{name}: rank {rank} is this one")
