"""One algebra for indices and sizes: integers that are known when a kernel is made, or when it is launched; what sizes are
assumed to be, how they are written, and views of memory. Beside it: plain data on disk (``records.py``).

``from ntgrad.codegen import index as ix`` gives the algebra."""
# ruff: noqa: F403
from .algebra import *
from .assume import *
from .size_text import *
from .sizes import *
from .view import *
