"""The errors that ntgrad raises (see ``ntgrad.codegen.ir.errors``)."""
# ruff: noqa: F403, F405
from ntgrad.codegen.ir.errors import *
from ntgrad.compat.public import show

__all__ = sorted(k for k, v in globals().items() if isinstance(v, type) and issubclass(v, NtgradError))  # noqa: PLE0605

show(__name__)
