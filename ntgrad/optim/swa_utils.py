"""``ntgrad.nn.optim.swa_utils`` under the name that PyTorch has for it."""
# ruff: noqa: F403, F405 - the names are those of ntgrad.nn.optim.swa_utils
from ntgrad.nn.optim.swa_utils import *
from ntgrad.nn.optim.swa_utils import __all__ as __all__
from ntgrad.public import show

show(__name__)
