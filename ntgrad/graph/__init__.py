"""The tensor graph: its nodes and how they are made, what shares memory, run-time sizes, names of dimensions, lines of origin.
What most files take from here stands under the package's own name:
``from ntgrad.graph import Operand, checked, nodes as graph``."""
# ruff: noqa: F403
from .alias import *
from .checks import *
from .dimension_names import *
from .modes import *
from .variable import *
