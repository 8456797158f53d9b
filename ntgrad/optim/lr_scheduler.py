"""``ntgrad.nn.optim.lr_scheduler`` under the name that PyTorch has for it."""
# ruff: noqa: F403, F405 - the names are those of ntgrad.nn.optim.lr_scheduler
from ntgrad.compat.public import show
from ntgrad.nn.optim.lr_scheduler import *
from ntgrad.nn.optim.lr_scheduler import __all__ as __all__

show(__name__)
