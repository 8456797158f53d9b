"""Optimizers, schedules of learning rates (``lr_scheduler``), averages of weights (``EMA``, ``swa_utils``)."""
from ntgrad.compat.public import show

from . import lr_scheduler as lr_scheduler, swa_utils as swa_utils
from .adam import Adam, Adamax, AdamW, NAdam, RAdam
from .base import Optimizer, OptimizerGroup
from .descent import ASGD, SGD, Adadelta, Adagrad, Lion, RMSprop, Rprop
from .layerwise import LAMB, LARS, Muon
from .swa_utils import EMA

__all__ = ["ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "EMA", "LAMB", "LARS", "Lion", "Muon", "NAdam", "Optimizer",
           "OptimizerGroup", "RAdam", "RMSprop", "Rprop", "SGD"]

show(__name__)
