"""What a kernel is: parameters, axes and a body in index form. Beside it: arrangements, what accesses do along axes, blocks."""
from .kernel import *  # noqa: F403 (its names, all of them)
