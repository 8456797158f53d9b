"""One algebra for indices and sizes: integers that are known when a kernel is made, or when it is launched. Beside it: views of
memory (``view.py``), rewriting (``rewrite.py``), and plain data on disk (``records.py``).

``from ntgrad.codegen import index as ix`` gives the algebra."""
from .algebra import *  # noqa: F403 (its list says what it hands on)
