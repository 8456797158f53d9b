"""``ntgrad.nn.optim.swa_utils`` under the name that PyTorch has for it."""
# ruff: noqa: F403, F405 - the names are those of ntgrad.nn.optim.swa_utils
from ntgrad.compat.public import show
from ntgrad.nn.optim.swa_utils import *
from ntgrad.nn.optim.swa_utils import __all__ as __all__

show(__name__)
