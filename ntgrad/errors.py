"""The errors that ntgrad raises (see ``ntgrad.codegen.errors``)."""
from ntgrad.codegen.errors import (
                                   ArgumentError,
                                   AssignError,
                                   AxisError,
                                   CaptureError,
                                   CompileError,
                                   ConfigError,
                                   DeviceError,
                                   DTypeError,
                                   GradientError,
                                   IndexOutOfRangeError,
                                   NtgradError,
                                   OptError,
                                   ShapeError,
                                   StateError,
                                   VerifyError,
)

__all__ = ["ArgumentError", "AssignError", "AxisError", "CaptureError", "CompileError", "ConfigError", "DeviceError", "DTypeError",
           "GradientError", "IndexOutOfRangeError", "NtgradError", "OptError", "ShapeError", "StateError", "VerifyError"]
