"""``ntgrad.nn.data`` under the name that PyTorch has for it."""
# ruff: noqa: F403, F405 - the names are those of ntgrad.nn.data
from ntgrad.compat.public import show
from ntgrad.nn.data import *
from ntgrad.nn.data import __all__ as __all__

show(__name__)
