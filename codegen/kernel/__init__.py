"""What a kernel is: parameters, axes and a body in index form; what accesses do along axes, its linear form, how it is rewritten.
Beside these, by their own names: arrangements, and a kernel by other names."""
# ruff: noqa: F403
from .accesses import *
from .kernel import *
from .linear import *
from .rewrite import *
