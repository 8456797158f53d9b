"""``ZeroRedundancyOptimizer``: each rank keeps the optimizer's state of a part of the parameters (ZeRO 1,
https://arxiv.org/abs/1910.02054).

  gradients of all ranks --reduce_scatter--> a part of the mean --step--> the part of the parameters --all_gather--> parameters

The parts are of the flat buffers that optimizers work on (``nn/optim/flat.py``), so a step is a few kernels, and two collective
operations for each 25 MB of a group, dtype and device."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ntgrad.codegen.ir import ArgumentError, GradientError, StateError, shown
from ntgrad.distributed.collective import collective
from ntgrad.distributed.operations import group_of
from ntgrad.graph import checked, no_grad
from ntgrad.graph.hooks import of_leaf
from ntgrad.nn.optim.base import Optimizer, OptimizerGroup
from ntgrad.nn.optim.flat import Flat, Slices, in_a_row, own
from ntgrad.tensor import Tensor

from .data_parallel import BUCKET_MB, Buckets, synchronise


@dataclass(frozen=True)
class _Piece:
  """Parameters of a Flat that are reduced and gathered together: from ``begin`` to ``end`` in it, with the zeros behind the last
  ``count`` elements a rank, which lie from ``at`` on in its part."""
  slices: Slices
  begin: int
  end: int
  count: int
  at: int


class _Shard:
  """The part of a Flat that this rank steps: of each piece of about ``BUCKET_MB`` a part. Gradients of the last piece are there
  first, and are on their way while others are made."""

  def __init__(self, flat: Flat, group: Any):
    self.flat, self.group, self.pieces, n = flat, group, list[_Piece](), group.size()
    first, begin, bounds = 0, 0, [*flat.begins, flat.size]
    for i, end in enumerate(bounds[1:], 1):
      if end < flat.size and ((end - begin) * flat.dtype.itemsize < BUCKET_MB * 1e6 or (end - begin) % n): continue
      count, at = -(-(end - begin) // n), sum([p.count for p in self.pieces])
      self.pieces.append(_Piece(Slices(flat.params[first:i], len(flat.params) > 1), begin, end, count, at))
      first, begin = i, end
    self.count = sum([p.count for p in self.pieces])
    synchronise([flat.flat], group)
    flat.move(given=False)
    self.part = own(self.mine(flat.flat)).realize()
    self.part.requires_grad = True

  def padded(self, x: Tensor, p: _Piece) -> Tensor:
    """A piece with the zeros behind it."""
    after = p.count * self.group.size() - (p.end - p.begin)
    return x.pad(((0, after),)) if after else x

  def mine(self, whole: Tensor) -> Tensor:
    """This rank's part of something that has an element for each of the parameters'."""
    rank = max(self.group.rank(), 0)
    return in_a_row([self.padded(whole[p.begin:p.end], p)[rank * p.count:(rank + 1) * p.count] for p in self.pieces])

  def gathered(self, part: Tensor) -> Tensor:
    """The whole of all ranks' parts."""
    return in_a_row([self.gather(part, p)[:p.end - p.begin] for p in self.pieces])

  def gather(self, part: Tensor, p: _Piece, first: int = 0, into: Tensor | None = None, begin: int = 0) -> Tensor:
    """A piece, with what is behind it, of all ranks' parts, which begin at element ``first`` of ``part``."""
    at = first + p.at
    return collective("all_gather", part.detach(), (p.count * self.group.size(),), self.group, into=into, begin=begin,
                      piece=(at, at + p.count))

  def spread(self, parts: Flat, first: int) -> None:
    """Have the parameters be what all ranks' parts are, which begin at element ``first`` of ``parts``."""
    flat, memory = self.flat, self.flat.memory
    for p in self.pieces:
      if memory is not None and p.count * self.group.size() == p.end - p.begin:
        self.gather(parts.flat, p, first, memory, flat.first + p.begin)
      else: flat.flat[p.begin:p.end].assign(self.gather(parts.flat, p, first)[:p.end - p.begin])

  def averaged(self) -> bool:
    """Whether DistributedDataParallel has the parameters' gradients be the mean already."""
    return all([(hooks := of_leaf(p)) is not None and any([isinstance(h.fn, Buckets) and h.fn.on for h in hooks.all])
                for p in self.flat.params])

  def gradients(self) -> list[Tensor]:
    """Those of the parameters. Raises GradientError where one has none."""
    there = [g for g in self.flat.gradients() if g is not None]
    if len(there) < len(self.flat.params):
      missing = [self.flat.numbers[i] for i, p in enumerate(self.flat.params) if p.grad is None]
      raise GradientError(f"ZeroRedundancyOptimizer.step: parameters number {shown(missing)} have no gradient; all need one at "
                          "every step: leave out, or set requires_grad=False on, those that the loss is not made of")
    return there

  def reduce(self, grads: list[Tensor], into: Tensor, first: int) -> None:
    """Write the mean of the ranks' gradients of this rank's part into a flat tensor, from element ``first`` on."""
    end = len(grads)
    for p in self.pieces[::-1]:
      begin = end - len(p.slices.params)
      whole = self.padded(self.in_one(p.slices, grads[begin:end]), p)
      collective("reduce_scatter", whole, (p.count,), self.group, "avg", into=into, begin=first + p.at)
      end = begin

  def in_one(self, slices: Slices, grads: list[Tensor]) -> Tensor:
    """Gradients as one flat tensor, of which they are slices then."""
    if (whole := slices.shown(grads)) is None:
      whole = slices.join([g.cast(self.flat.dtype) for g in grads]).detach().contiguous()
      slices.show_gradients(grads, whole)
    return whole


@checked
class ZeroRedundancyOptimizer(OptimizerGroup):
  """An optimizer whose state lies in parts on the ranks of a group: ``ZeroRedundancyOptimizer(params, nn.optim.AdamW, lr=1e-3)``.

  ``params`` as for any optimizer, groups too; ``defaults`` are options of ``optimizer_class``, which must treat each element by
  itself (not Muon, LARS, LAMB). A step takes the mean of all ranks' gradients; where DistributedDataParallel has made that
  already it is not made again. Without it ``.grad`` is this rank's own until then, so limits of the norm need it. Schedules take
  this optimizer: its ``param_groups`` are those of this rank's parts. Parameters begin as those of the group's first rank.
  ``parameters_as_bucket_view`` and ``overlap_with_ddp`` are taken as PyTorch has them, without effect. Raises ArgumentError and
  DistributedError."""

  def __init__(self, params: Any, optimizer_class: Any, process_group: Any = None, parameters_as_bucket_view: bool = False,
               overlap_with_ddp: bool = False, **defaults: Any):
    if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
      raise ArgumentError(f"ZeroRedundancyOptimizer: {shown(optimizer_class)} is no class of optimizers")
    if optimizer_class._alone:
      raise ArgumentError(f"ZeroRedundancyOptimizer: {optimizer_class.__name__} looks at each parameter as a whole; a rank has "
                          "parts of some: take an optimizer that treats each element by itself")
    self.group = group_of(process_group)
    make: Any = optimizer_class
    options = dict(make([Tensor.zeros(1, requires_grad=True)], **defaults).defaults)
    # an optimizer without state has the groups, their options checked, and the flat buffers
    self._all = _Groups(params, options.pop("lr"), options)
    self.shards = [[_Shard(f, self.group) for f in g.flats] for g in self._all.param_groups]
    self.optim: Optimizer = make([   # of this rank's parts
      {**{k: v for k, v in g.options.items() if k != "params"}, "params": [s.part for s in shards]}
      for g, shards in zip(self._all.param_groups, self.shards)])
    super().__init__(self.optim)

  def __iter__(self) -> Iterator[Any]:
    raise ArgumentError("ZeroRedundancyOptimizer: it reduces gradients within a step, so GradScaler cannot look at them before; "
                        "compute in bfloat16, which needs no scale")

  @property
  def params(self) -> list[Tensor]:
    """All parameters that are trained."""
    return self._all.params
  @property
  def lr(self) -> Any:
    """See :class:`nn.optim.Optimizer`."""
    return self.optim.lr
  @lr.setter
  def lr(self, value: Any) -> None: self.optim.lr = value

  def zero_grad(self, set_to_none: bool = True) -> None:
    """See :class:`nn.optim.Optimizer`."""
    self._all.zero_grad(set_to_none)

  def step(self, closure: Any = None) -> Any:
    """Update the parameters of all ranks, which all call this. Raises GradientError where a parameter has no gradient."""
    out = None if closure is None else closure()
    super().step()
    return out

  def schedule_step(self) -> list[Tensor]:
    """As :meth:`step`, lazily: gives the tensors to realise for it."""
    shards = [s for group in self.shards for s in group]
    grads = {s: s.gradients() for s in shards}
    # the parts of a group lie together, as its optimizer has them
    homes = {f: [(s, f.begins[i]) for i, p in enumerate(f.params) for s in shards if s.part is p]
             for g in self.optim.param_groups for f in g.flats}
    with no_grad():
      for f, mine in homes.items():
        for s, _ in mine: s.flat.move()
        f.move()
        f.flat.assign(f.join([s.mine(s.flat.flat) for s, _ in mine]))   # which others may have written
        filled = [end for _, end in f.slices] == [*f.begins[1:], f.size]
        made = f.empty() if filled else Tensor.zeros(f.size, dtype=f.dtype, device=f.device).contiguous()
        for i, (s, first) in reversed([*enumerate(mine)]):
          if s.averaged(): s.part.grad = s.mine(s.in_one(s.flat, grads[s]))
          else:
            s.reduce(grads[s], made, first)
            s.part.grad = f.view(made, i)
    tensors = self.optim.schedule_step()
    for p in self.optim.params: p.grad = None
    with no_grad():
      for f, mine in homes.items():
        for s, first in mine: s.spread(f, first)
    return [*tensors, *[s.flat.flat for s in shards]]

  def state_dict(self) -> dict[str, Any]:
    """The whole state, as one optimizer over all parameters has it: all ranks call this together."""
    with no_grad():
      mine = self.optim.state_dict()
      state = dict[int, dict[str, Tensor]]()
      for n, s in enumerate([s for shards in self.shards for s in shards]):
        whole = {k: s.gathered(v) if v.ndim else v for k, v in mine["state"].get(n, {}).items()}
        for i, number in enumerate(s.flat.numbers):
          state[number] = {k: s.flat.view(v, i) if v.ndim else v for k, v in whole.items()}
    parts, groups = mine["param_groups"], self._all.state_dict()["param_groups"]
    Tensor.realize(*[v for s in state.values() for v in s.values()])
    return {"state": {i: s for i, s in sorted(state.items()) if s},
            "param_groups": [{**part, "params": g["params"]} for part, g in zip(parts, groups)]}

  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    """Take what :meth:`state_dict` gave, of any number of ranks, or of one optimizer. Raises StateError."""
    states, groups = state_dict.get("state"), state_dict.get("param_groups")
    if not isinstance(states, Mapping) or not isinstance(groups, (list, tuple)) or len(groups) != len(self.shards):
      raise StateError(f"ZeroRedundancyOptimizer.load_state_dict: {shown(state_dict)}; expected a dict with 'state' and "
                       f"{len(self.shards)} 'param_groups'")
    mine, options = dict[int, dict[str, Any]](), []
    with no_grad():
      for g, shards in zip(groups, self.shards):
        options.append({**g, "params": list(range(len(mine), len(mine) + len(shards)))})
        for s in shards:
          given = [states.get(i, states.get(str(i), {})) for i in s.flat.numbers]
          part = dict[str, Any]()
          for k in given[0]:
            parts = [x.get(k) for x in given]
            if k == "step" or k in self.optim._kept: part[k] = parts[0]
            elif not all([isinstance(p, Tensor) for p in parts]):
              raise StateError(f"ZeroRedundancyOptimizer.load_state_dict: not every parameter has the state {k!r}")
            else: part[k] = own(s.mine(s.flat.join([p.to(s.flat.device).cast(s.flat.wide) for p in parts])))
          mine[len(mine)] = part
    self.optim.load_state_dict({"state": mine, "param_groups": options})

  def __repr__(self) -> str: return f"ZeroRedundancyOptimizer({self.group}, {self.optim!r})"


class _Groups(Optimizer):
  """Groups of parameters with the options of a class of optimizers, and their flat buffers; no state."""


_Groups.__name__ = ZeroRedundancyOptimizer.__name__   # as errors say it
