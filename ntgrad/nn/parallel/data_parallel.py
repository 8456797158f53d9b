"""``DistributedDataParallel``: a model that every rank has, whose gradients are the mean over all ranks."""
from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ntgrad.codegen.ir import ArgumentError, DistributedError, GradientError
from ntgrad.distributed.collective import collective
from ntgrad.distributed.operations import group_of, numbers_of
from ntgrad.distributed.world import Group
from ntgrad.graph import checked, no_grad
from ntgrad.nn.module import Module
from ntgrad.nn.optim.flat import Slices, flat_memory
from ntgrad.tensor import Tensor
from ntgrad.tensor.gradient import walk

BUCKET_MB = 25
_SHOWN = 8   # names that an error lists


def synchronise(tensors: Sequence[Tensor], group: Group) -> None:
  """Have tensors be those of the group's first rank, a broadcast for each dtype and device."""
  kinds: dict[Any, list[Tensor]] = {}
  for t in tensors:
    if t.numel(): kinds.setdefault((t.dtype, t.device), []).append(t)
  with no_grad():
    for same in [Slices(k, several=False) for k in kinds.values()]:
      made = collective("broadcast", same.join([t.detach() for t in same.params]), (same.size,), group)
      for i, t in enumerate(same.params): t.assign(same.view(made, i))


class Buckets:
  """The gradients of parameters, by buckets: each is reduced as a whole, when the last of its gradients is there, and after those
  before it. A backward pass makes the gradients of the last layers first, so the first bucket has the last parameters. What comes
  of a bucket lies in its part of a flat tensor, of which gradients are slices: as the optimizer has the parameters. ``flats``:
  those of a backward pass that goes on, one for each dtype and device."""

  def __init__(self, named: Sequence[tuple[str, Tensor]], group: Group, bucket_bytes: float):
    self.group, self.names, self.params = group, {id(t): name for name, t in named}, [t for _, t in named]
    self.bucket_bytes, self.homes = bucket_bytes, list[Any]()
    self.on, self.ready, self.done, self.flats = True, set[int](), 0, dict[Slices, Tensor]()
    self._lay_out()

  def _lay_out(self) -> None:
    """Make the buckets anew where parameters have been moved: by an optimizer, whose groups have a flat tensor each."""
    if self.homes == (homes := [flat_memory(t) for t in self.params]): return
    self.homes = homes
    kinds: dict[Any, list[Tensor]] = {}
    for t, home in zip(self.params, homes): kinds.setdefault((t.dtype, t.device, home), []).append(t)
    self.buckets: list[tuple[Slices, range]] = []   # and which of the kind's parameters
    for kind in map(Slices, kinds.values()):
      end, size = len(kind.params), 0
      for i in reversed(range(end)):
        size += kind.params[i].nbytes()
        if i and size + kind.params[i - 1].nbytes() <= self.bucket_bytes: continue
        self.buckets.append((kind, range(i, end)))
        end, size = i, 0
    place = {id(t): i for i, t in enumerate(self.params)}
    self.buckets.sort(key=lambda b: -place[id(b[0].params[b[1].start])])   # as they are whole

  def __call__(self, t: Tensor) -> None:
    """A parameter's gradient is there (a hook of the parameter)."""
    if self.on: self.take([t])

  def take(self, tensors: Sequence[Tensor]) -> None:
    """Gradients are there: reduce the buckets that are whole."""
    if not self.ready: self._lay_out()
    self.ready.update(map(id, tensors))
    while self.done < len(self.buckets):
      kind, which = self.buckets[self.done]
      if not all([id(kind.params[i]) in self.ready for i in which]): return
      self._reduce(kind, which)
      self.done += 1
    self._end()

  def _end(self) -> None:
    self.ready, self.done, self.flats = set(), 0, {}   # the gradients have them

  def _reduce(self, kind: Slices, which: range) -> None:
    params, begin = kind.params[which.start:which.stop], kind.begins[which.start]
    with no_grad():
      if (flat := self.flats.get(kind)) is None: flat = self.flats[kind] = kind.empty()
      grads = [Tensor.zeros(*t.shape, dtype=t.dtype, device=t.device) if t.grad is None else t.grad.cast(t.dtype) for t in params]
      mine = kind.join(grads, which.start).detach()
      collective("all_reduce", mine, tuple(mine.shape), self.group, "avg", into=flat, begin=begin)
      for i in which: kind.params[i].grad = kind.view(flat, i)

  def begin(self) -> None:
    """A forward pass begins. Raises GradientError where the last backward pass left some gradients out."""
    if not self.ready: return
    missing = [name for i, name in self.names.items() if i not in self.ready]
    self._end()
    more = f", and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    raise GradientError(
      f"DistributedDataParallel: the last backward pass gave no gradient of {', '.join(missing[:_SHOWN])}{more}, so the others "
      "were not all reduced; find_unused_parameters=True takes those for 0, requires_grad=False leaves them out")


@checked
class DistributedDataParallel(Module):
  """A model that each rank of a group has and gives another part of a batch: ``DistributedDataParallel(model)``.

  Parameters and buffers become those of the group's first rank. ``backward()`` leaves in ``.grad`` the mean of the ranks'
  gradients: so for a loss that is a mean over as many samples on every rank, what one device gives for the whole batch. They are
  reduced in buckets of ``bucket_cap_mb`` megabytes, in the order in which a backward pass makes them. ``broadcast_buffers``: a
  forward pass in training begins with the buffers of the first rank. ``find_unused_parameters``: parameters that a result is not
  made of count as 0; without it a rank that has such is refused at the next forward pass, which names them.

  ``device_ids``, ``output_device``, ``dim``, ``gradient_as_bucket_view`` and ``static_graph`` are taken as PyTorch has them,
  without effect. Raises ArgumentError for a model without parameters to train, DistributedError for other ranks' models."""
  _private = Module._private | {"_buckets", "_group"}

  def __init__(self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0, broadcast_buffers: bool = True,
               process_group: Any = None, bucket_cap_mb: float | None = None, find_unused_parameters: bool = False,
               gradient_as_bucket_view: bool = False, static_graph: bool = False):
    super().__init__()
    if not isinstance(module, Module): raise ArgumentError(f"DistributedDataParallel: {type(module).__name__} is no nn.Module")
    self.module, self.broadcast_buffers, self.find_unused_parameters = module, broadcast_buffers, find_unused_parameters
    self._group = group_of(process_group)
    named = [(name, t) for name, t in module.named_parameters() if t.requires_grad]
    if not named: raise ArgumentError("DistributedDataParallel: the model has no parameter that requires a gradient")
    cap = BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb
    if not cap > 0: raise ArgumentError(f"DistributedDataParallel: bucket_cap_mb is {cap}, expected a number above 0")
    self._same(dict(module.named_parameters()))
    synchronise([*module.parameters(), *module.buffers()], self._group)
    Tensor.realize(*module.parameters(), *module.buffers())
    self._buckets = Buckets(named, self._group, cap * 1e6)
    for _, t in named: t.register_post_accumulate_grad_hook(self._buckets)

  def _same(self, named: dict[str, Tensor]) -> None:
    """Raises DistributedError where ranks have other models."""
    mine = zlib.crc32(repr([(name, tuple(t.shape), t.dtype.name) for name, t in named.items()]).encode())
    told = numbers_of(mine, self._group, next(iter(named.values())).device)
    if wrong := [self._group.ranks[i] for i, n in enumerate(told) if n != told[0]]:
      raise DistributedError(f"DistributedDataParallel: the parameters of rank{'s' * (len(wrong) > 1)} "
                             f"{', '.join(map(str, wrong))} have other names, shapes or dtypes than those of rank "
                             f"{self._group.ranks[0]}")

  def forward(self, *args: Any, **kwargs: Any) -> Any:
    """What the model gives. Raises GradientError where the last backward pass left out gradients."""
    buckets = self._buckets
    if buckets.on: buckets.begin()
    if self.training and buckets.on and self.broadcast_buffers: synchronise(list(self.module.buffers()), self._group)
    out = self.module(*args, **kwargs)
    if self.find_unused_parameters and buckets.on and self.training: buckets.take(self._unused(out))
    return out

  def _unused(self, out: Any) -> list[Tensor]:
    """The parameters that a result is not made of."""
    stack, nodes = [out], []
    while stack:
      x = stack.pop()
      if isinstance(x, Tensor): nodes.append(x.lazydata)
      elif isinstance(x, (list, tuple)): stack += x
      elif isinstance(x, dict): stack += x.values()
    used = {id(t) for n in walk(*nodes) if callable(n.note) and (t := n.note()) is not None}
    return [t for t in self._buckets.params if id(t) not in used]

  @contextmanager
  def no_sync(self) -> Iterator[None]:
    """In the block gradients gather on each rank by themselves, for the backward pass after it to reduce."""
    before, self._buckets.on = self._buckets.on, False
    try: yield
    finally: self._buckets.on = before
