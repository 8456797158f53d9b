"""A name for a CPU that PoCL's compiler does not know. PoCL asks its LLVM for one, which says "generic" of a CPU newer than
itself (PoCL 3.0 of one with Zen 5), and its C compiler refuses that: every build fails with "unknown target CPU 'generic'". No
option sets another one, so it is replaced in the driver's description of the device, before anything is built for it."""
from __future__ import annotations

import ctypes
import os
import re
import struct
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

_UNKNOWN = b"generic\0"
_BEFORE = b"x86_64-"  # what begins the name of the platform, which comes before the CPU's
_WORDS = 128          # of the description that are looked at; the name is the 80th or so
# the levels of the x86-64 ABI, which are names of CPUs for LLVM since version 12, and flags of /proc/cpuinfo that they need
_LEVELS = {"x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl avx2 bmi1 bmi2 f16c fma movbe",
           "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma movbe", "x86-64-v2": "cx16 popcnt sse4_1 sse4_2 ssse3", "x86-64": ""}
_names: dict[str, ctypes.Array[ctypes.c_char]] = {}   # that drivers' descriptions point at


def level(flags: set[str]) -> str:
  """The highest level of the x86-64 ABI that a CPU with these flags of /proc/cpuinfo has."""
  return next(name for name, needs in _LEVELS.items() if {*needs.split()} <= flags)


@lru_cache(maxsize=16)
def missing(version: str) -> str:
  """The name that a PoCL device with this version should have been given; "" where its own will do."""
  if sys.platform != "linux" or sys.maxsize < 2**32 or not re.search(r"x86_64\S*-generic\b", version): return ""
  flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
  return level(set(flags[1].split()) if flags else set())


def give_name(device: Any) -> None:
  """Make PoCL compile for a level of the x86-64 ABI where it does not know the CPU of a pyopencl device."""
  name = missing(device.version)
  where = _find(device.int_ptr) if name else None   # None: it has one by now
  if where is None: return
  ctypes.c_uint64.from_address(where).value = ctypes.addressof(
    _names.setdefault(name, ctypes.create_string_buffer(name.encode())))


def _find(start: int) -> int | None:
  """The address of the pointer to the name, in what lies at ``start``; the system refuses to read where nothing is."""
  try: memory = os.open("/proc/self/mem", os.O_RDONLY)
  except OSError: return None
  try:
    before = b""
    for i, word in enumerate(struct.unpack(f"<{_WORDS}Q", os.pread(memory, _WORDS * 8, start))):
      try: found = os.pread(memory, 8, word)
      except (OSError, OverflowError): found = b""
      if found == _UNKNOWN and before.startswith(_BEFORE): return start + i * 8
      before = found
  except (OSError, struct.error): pass
  finally: os.close(memory)
  return None
