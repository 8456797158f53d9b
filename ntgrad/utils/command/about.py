"""``devices`` and ``env``: what ntgrad finds on this machine."""
from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any

from ntgrad.backends.process import cores
from ntgrad.codegen.ir import DeviceError, config
from ntgrad.engine.device import DEVICE_NAMES, Device, available, get_device

from .cache import size
from .parser import command, tell

PACKAGES = "numpy", "triton", "pyopencl", "pocl-binary-distribution", "sympy", "ml_dtypes", "platformdirs", "cuda-core"
# of the environment, beside settings: what ntgrad, the drivers and Triton go by
VARIABLES = ("COMPILER_PATH", "CUDA_VISIBLE_DEVICES", "OCL_ICD_FILENAMES", "OCL_ICD_VENDORS", "POCL_AFFINITY", "POCL_DEBUG",
             "POCL_DEVICES", "POCL_MAX_PTHREAD_COUNT", "TMPDIR", "TRITON_INTERPRET", "XDG_CACHE_HOME")


def add(commands: argparse._SubParsersAction[Any]) -> None:
  """``devices`` and ``env``."""
  command(commands, "devices", lambda args: tell(args, devices()),
          "The devices that ntgrad can use here, and why it cannot use others.", "devices", "devices --json")
  command(commands, "env", lambda args: tell(args, env()),
          "What a report of a bug needs: versions, devices, settings, the disk cache.", "env")


def devices() -> dict[str, Any]:
  """Each device that can be opened, by name, the default one, and why there are no others."""
  try: out: dict[str, Any] = {"default": Device.DEFAULT}
  except DeviceError as e: out = {"default": f"none: {e}"}
  there = Device.get_available_devices()
  out["devices"], missing = {}, {name: available(name)[1] for name in DEVICE_NAMES if name not in there}
  for name in there:
    try: device = get_device(name)
    except DeviceError as e: missing[name] = str(e)
    else:
      target = device.renderer.target
      out["devices"][name] = {"hardware": available(name)[1] or cpu(), "kind": target.name, "compute_units": target.cores,
                              "memory": device.memory, "driver": device.identity}
  return {**out, "missing": missing}


def env() -> dict[str, Any]:
  """What one has to know of a machine and an installation, without secrets: of the environment what ntgrad reads."""
  settings = {f.metadata["env"]: (getattr(config, f.name), f.metadata["default"]) for f in fields(config)}
  return {
    "ntgrad": version("ntgrad"), "from": next(iter(sys.modules["ntgrad"].__path__)), "python": platform.python_version(),
    "system": platform.platform(), "cpu": cpu(),
    "cores": cores(), "packages": {name: version(name) for name in PACKAGES},
    "changed_settings": {name: value for name, (value, default) in settings.items() if value != default},
    "environment": {name: os.environ[name] for name in (*settings, *VARIABLES) if name in os.environ},
    "disk_cache": size(),
    **devices()}


def version(package: str) -> str:
  """A package's version."""
  if package == "ntgrad": return str(sys.modules["ntgrad"].__version__)
  try: return metadata.version(package)
  except metadata.PackageNotFoundError: return "not installed"


def cpu() -> str:
  """The name of the CPU."""
  about = Path("/proc/cpuinfo")
  named = re.search(r"^model name\s*: (.*)", about.read_text() if about.exists() else "", re.MULTILINE)
  return named[1] if named else platform.processor() or platform.machine()
