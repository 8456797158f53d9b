"""From a kernel's index form to linear UOps: dtypes, the IR, views, arrangements, Opts, the linearizer. Knows no device."""
from __future__ import annotations

if __name__ != "ntgrad.codegen":
  raise ImportError("import this package as ntgrad.codegen (the bare name would load a second copy)")

import sys

from .index import view as view  # its rules give UOps their shapes
from .ir.short_names import Finder

sys.meta_path.append(Finder)
