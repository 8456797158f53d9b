"""Batch normalisation over the batches of all ranks."""
from __future__ import annotations

from typing import Any

from ntgrad.distributed import functional
from ntgrad.distributed.operations import group_of
from ntgrad.distributed.world import known
from ntgrad.nn.module import Module, placed
from ntgrad.nn.norms import BatchNorm, normalised, statistics
from ntgrad.tensor import Tensor


@placed
class SyncBatchNorm(BatchNorm):
  """:class:`nn.BatchNorm` by the mean and variance of the batches of all ranks of ``process_group`` (None: all), which may be of
  different sizes: ``(n, num_features, ..) -> same``. Outside of training, and in a process that is in no group, as that one."""
  process_group: Any = None

  def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
               track_running_stats: bool = True, process_group: Any = None):
    super().__init__(num_features, eps, affine, track_running_stats, momentum)
    self.process_group = process_group

  @classmethod
  def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
    """Have each BatchNorm in a model be a SyncBatchNorm, with its parameters and statistics. Gives the model."""
    for m in list(module.modules()) if isinstance(module, Module) else []:
      if not isinstance(m, BatchNorm) or isinstance(m, cls): continue
      m.__class__, m.process_group = cls, process_group
    return module

  def __call__(self, x: Tensor) -> Tensor:
    """``(n, num_features, ..) -> same``. Raises ShapeError for another number of features or of dimensions."""
    trains = self._trains("it normalises by the running statistics, which stay as they are") if self.track_running_stats else True
    if known() is None or not trains or (group := group_of(self.process_group)).size() == 1: return super().__call__(x)
    self._fits(x)
    mean, var = statistics(x)
    own = mean.reshape(1, -1).cat(var.reshape(1, -1), Tensor.full((1, 1), float(x.numel() // self.sz), dtype=mean.dtype,
                                                                 device=x.device), dim=1)
    told = functional.all_gather(own, group)   # a row for each rank
    means, variances, counts = told[:, :self.sz], told[:, self.sz:-1], told[:, -1:].detach()
    share, total = counts / counts.sum(), counts.sum()
    mean = (means * share).sum(0)
    var = ((variances + (means - mean) ** 2) * share).sum(0)
    if self.track_running_stats: self._track(mean, var * (total / (total - 1)))
    return normalised(x, self.weight, self.bias, mean, var, self.eps)
