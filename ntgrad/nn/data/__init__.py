"""Batches to train on: datasets, samplers that say in which order their rows come, and ``DataLoader``, which makes batches of
them. The names are those of ``torch.utils.data``."""
from ntgrad.compat.public import show

from .collate import default_collate
from .loader import DataLoader, get_worker_info
from .samplers import (
  BatchSampler,
  DistributedSampler,
  RandomSampler,
  Sampler,
  SequentialSampler,
  SubsetRandomSampler,
  WeightedRandomSampler,
)
from .sets import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, random_split

__all__ = ["BatchSampler", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterableDataset", "RandomSampler",
           "Sampler", "SequentialSampler", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
           "default_collate", "get_worker_info", "random_split"]

show(__name__)
