"""Every mistake that ntgrad reports, one class per kind, all under :class:`NtgradError`, which is a RuntimeError.

Those of values, types, indices and keys are also what Python has for them.

A message says what was asked, the shapes or values that do not fit, and what would be accepted."""
from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any


def did_you_mean(name: str, names: Iterable[str]) -> str:
  """"; did you mean a or b?" for names that are nearly ``name``; "" where there are none."""
  near = get_close_matches(name, list(names), 3)
  return f"; did you mean {' or '.join(near)}?" if near else ""


class NtgradError(RuntimeError): """Base of every error that ntgrad raises on purpose: a RuntimeError, as PyTorch's are."""


class ShapeError(NtgradError, ValueError): """Shapes that do not go together (broadcast, reshape, matmul, ...)."""


class MaskShapeError(ShapeError, IndexError): """A bool mask of another shape than the dimensions that it stands at."""


class ScalarError(ShapeError, TypeError): """A tensor of shape () that is asked for its length, or for its parts."""


class AxisError(NtgradError, IndexError, ValueError):
  """An axis or dimension number that the tensor does not have, or one given twice. A ValueError too, as numpy's is."""


class IndexOutOfRangeError(NtgradError, IndexError): """An index outside its dimension."""


class DTypeError(NtgradError, TypeError): """A dtype that the operation or the device does not take."""


class IndexTypeError(DTypeError, IndexError): """Something that is no index: floats, text."""


class DeviceError(NtgradError): """An unknown device, or tensors of different devices in one operation."""


class OutOfMemoryError(DeviceError, MemoryError):
  """A device without as much free memory as is asked for, even after all cached memory was released."""


class ArgumentError(NtgradError, ValueError, TypeError):
  """An argument that the operation does not accept: a value (stride 0, negative size, ...) or something of another type."""


class MissingNameError(ArgumentError, AttributeError): """A path in a model at which nothing is."""


class MissingKeyError(ArgumentError, KeyError):
  """A name under which nothing is."""
  __str__ = Exception.__str__   # a KeyError's is the message in quotes


class GradientError(NtgradError): """A gradient that cannot be formed (no graph, not a scalar, a non-float leaf)."""


class AssignError(NtgradError): """An assignment to something that is not a buffer, or of another shape or dtype."""


class CaptureError(NtgradError):
  """A captured function called with arguments that do not fit, or that reads a value while captured."""


class VerifyError(NtgradError):
  """A program that is not legal at its stage: a mistake inside ntgrad, or in a kernel built by hand."""


class RaceError(VerifyError):
  """Two programs of one launch touch an element, one of them writes it, and not both do so atomically; NUMPY finds it.
  ``race``: the param's slot, the element, then of both programs what they do and their number, row by row in the grid."""
  def __init__(self, text: str, race: Any = None):
    super().__init__(text)
    self.race = race


class OptError(NtgradError, ValueError): """A scheduling step (tile, upcast, ...) that the kernel cannot take."""


class CompileError(NtgradError): """Generated source that the device's compiler refused."""


class ApplicationError(NtgradError, ValueError):
  """An application of the tile language that cannot be read: an unknown name, a statement that kernels do not have, a
  value of the wrong kind."""


class ExportError(NtgradError, ValueError):
  """A scheduled kernel that has something that the tile language does not: it cannot be written as a file of it."""


class OverrideError(NtgradError):
  """A kernel that was put in the place of a scheduled one and gives something else, or does not fit there."""


class DeviceAssertError(NtgradError, AssertionError):
  """A check that a kernel made while it ran, and that did not hold; raised where the host next waits for the device."""


class NotFiniteError(NtgradError, FloatingPointError):
  """A computation made NaN, or an infinity, while that is looked for: ``detect_anomaly``, ``config.check_nan``."""


class StateError(NtgradError, ValueError): """A state dictionary or safetensors file that does not fit or is damaged."""


class DistributedError(NtgradError): """Processes that do not fit together, that are gone, or that cannot be reached."""


class MissingFileError(NtgradError, FileNotFoundError): """A file or folder that is not there."""


class ConfigError(NtgradError, ValueError):
  """A configuration field or environment variable with a value that it does not take."""


class InterchangeError(NtgradError, BufferError):
  """Memory that cannot be shared with another library as asked: strides, a dtype or a device that one of the two does not
  have, or a copy that is not allowed."""


class NoInterfaceError(NtgradError, AttributeError):
  """A memory interface that this tensor does not have; ``hasattr`` is False for it."""


class _Short(reprlib.Repr):
  def __init__(self) -> None:
    super().__init__()
    self.maxstring = self.maxother = 60
  def repr_int(self, x: int, level: int) -> str:   # Python refuses to write thousands of digits
    return repr(x) if -10 ** 40 < x < 10 ** 40 else f"an int of {x.bit_length()} bits"
  def repr_Tensor(self, x: Any, level: int) -> str:   # without its values
    return x._brief() if hasattr(x, "_brief") else self.repr_instance(x, level)
  def repr_bytes(self, x: Any, level: int) -> str: return repr(x) if len(x) <= 60 else f"{x[:40]!r}.. ({len(x)} bytes)"
  repr_bytearray = repr_bytes
  def repr_dict(self, x: Any, level: int) -> str:   # its first entries, as they come: values may be costly to compare
    if level <= 0: return "{...}"
    inner = [f"{self.repr1(k, level - 1)}: {self.repr1(v, level - 1)}" for k, v in islice(x.items(), self.maxdict)]
    return "{" + ", ".join(inner + ["..."] * (len(x) > self.maxdict)) + "}"
  def repr_set(self, x: Any, level: int) -> str:
    first = sorted(x) if len(x) <= self.maxset and all(isinstance(v, str) for v in x) else islice(x, self.maxset)
    inner = [self.repr1(v, level - 1) for v in first] if level > 0 else []
    return "{" + ", ".join(inner + ["..."] * (len(x) > len(inner))) + "}" if x else f"{type(x).__name__}()"
  repr_frozenset = repr_set
  def repr_ndarray(self, x: Any, level: int) -> str: return f"an array of {x.dtype} of shape {x.shape}"


_short = _Short()


def shown(x: Any) -> str:
  """A value for a message, cut short."""
  said = _short.repr(x)
  return said if len(said) <= 600 else f"{said[:400]}..{said[-100:]}"


def few(values: Sequence[Any]) -> str: return ", ".join(map(shown, values[:8])) + (", .." if len(values) > 8 else "")
