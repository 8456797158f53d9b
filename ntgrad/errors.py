"""The errors that ntgrad raises (see ``ntgrad.codegen.errors``)."""
from ntgrad.codegen.errors import (
                                   ApplicationError,
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
                                   InterchangeError,
                                   MissingFileError,
                                   NoInterfaceError,
                                   NtgradError,
                                   OptError,
                                   OutOfMemoryError,
                                   ShapeError,
                                   StateError,
                                   VerifyError,
)

__all__ = ["ApplicationError", "ArgumentError", "AssignError", "AxisError", "CaptureError", "CompileError", "ConfigError", "DeviceError",
           "DTypeError", "GradientError", "IndexOutOfRangeError", "InterchangeError", "MissingFileError", "NoInterfaceError", "NtgradError",
           "OptError", "OutOfMemoryError", "ShapeError", "StateError", "VerifyError"]
