"""The one node type (UOp) and what nodes are made of: dtypes, operations, functions. Also settings, errors and targets. What most
files take from here stands under the package's own name: ``from ntgrad.codegen.ir import Ops, UOp, dtypes``."""
# ruff: noqa: F401, F403
from .config import config as config
from .dtype import *
from .errors import *
from .functions import COMBINERS, FUNCTIONS, Fn, identity, refusal
from .handlers import *
from .recent import *
from .rounding import *
from .spelling import *
from .target import *
from .uop import *
