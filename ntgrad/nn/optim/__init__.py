"""Optimizers, schedules of learning rates (``lr_scheduler``), averages of weights (``EMA``, ``swa_utils``)."""
# ruff: noqa: F401 - what is handed on
from ntgrad.compat.public import show

from . import by_hand, lr_scheduler, swa_utils
from .base import Optimizer, OptimizerGroup
from .rules import ASGD, LAMB, LARS, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Lion, Muon, NAdam, RAdam, RMSprop, Rprop
from .swa_utils import EMA

__all__ = ["ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "EMA", "LAMB", "LARS", "Lion", "Muon", "NAdam", "Optimizer",
           "OptimizerGroup", "RAdam", "RMSprop", "Rprop", "SGD"]

show(__name__)
