"""``ntgrad.nn.optim`` under the name that PyTorch has for it."""
# ruff: noqa: F401, F403, F405 - the names are those of ntgrad.nn.optim
from ntgrad.compat.public import show
from ntgrad.nn.optim import *
from ntgrad.nn.optim import __all__

from . import lr_scheduler, swa_utils

show(__name__)
