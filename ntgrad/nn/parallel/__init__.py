"""Models and optimizers over several ranks: gradients that are the mean of all, batch norm over all batches, an optimizer's state
in parts, checkpoints. docs/distributed.md begins with a program."""
from ntgrad.compat.public import show

from .checkpoint import load_checkpoint, save_checkpoint
from .data_parallel import DistributedDataParallel
from .norms import SyncBatchNorm
from .sharded import ZeroRedundancyOptimizer

__all__ = ["DistributedDataParallel", "SyncBatchNorm", "ZeroRedundancyOptimizer", "load_checkpoint",
           "save_checkpoint"]

show(__name__)
