"""From a kernel's index form to linear UOps: dtypes, the IR, views, arrangements, Opts, the linearizer. Knows no device."""
if __name__ != "ntgrad.codegen":
  raise ImportError("import this package as ntgrad.codegen (the bare name would load a second copy)")

from . import view as view  # its rules give UOps their shapes
