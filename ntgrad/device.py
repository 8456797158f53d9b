"""Device names. "CPU" is OpenCL on a CPU, "CL" (also "CL:1", ..) any other OpenCL device, "CUDA" (also "CUDA:1", ..) an NVIDIA GPU through
Triton, "NUMPY" the slow oracle.

Names are canonical here; opening a device is ``ntgrad.engine.device``'s work.
"""
from __future__ import annotations

import re
from functools import cache

from ntgrad.codegen.errors import DeviceError

KINDS = ("CPU", "CL", "CUDA", "NUMPY", "TRITON")
_ALIASES = {"GPU": "CL", "OPENCL": "CL", "NP": "NUMPY", "POCL": "CPU"}


@cache
def canonical(name: str) -> str:
  """``"cpu"`` → ``"CPU"``, ``"cl:0"`` → ``"CL"``, ``"CL:1"`` stays. Raises DeviceError for a name that no device has."""
  m = re.fullmatch(r"([A-Za-z]+)(?::(\d+))?", name) if isinstance(name, str) else None
  kind = m.group(1).upper() if m else ""
  kind = _ALIASES.get(kind, kind)
  if m is None or kind not in KINDS:
    raise DeviceError(f"device {name!r}: no such device; "
                      f"devices are {', '.join(KINDS)}, with a number for all but the first (CL:1)")
  return kind if m.group(2) is None or int(m.group(2)) == 0 else f"{kind}:{int(m.group(2))}"


class _Device:
  """``Device.DEFAULT``: the device that tensors are made on when none is named. Assign a name to change it."""
  _chosen: str | None = None

  @property
  def DEFAULT(self) -> str:
    """The default device's canonical name: what was assigned, else ``config.dev`` (``DEV=``), else what the machine has."""
    if self._chosen is not None: return self._chosen
    from ntgrad.engine.device import default_device
    return canonical(default_device())

  @DEFAULT.setter
  def DEFAULT(self, name: str | None) -> None: self._chosen = None if name is None else canonical(name)

  def canonicalize(self, name: str | None) -> str:
    """The canonical name; None means the default. Raises DeviceError for a name that no device has."""
    return self.DEFAULT if name is None else canonical(name)

  def __repr__(self) -> str: return f"Device(DEFAULT={self.DEFAULT!r})"


Device = _Device()
