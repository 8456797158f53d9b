"""DLPack's structs and capsules, as Python sees them through ctypes."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Hashable

CPU, CUDA, PINNED, MANAGED = 1, 2, 3, 13   # types of devices
DLPACK_VERSION = 1, 1                    # major and minor version of the protocol
READ_ONLY, COPIED_FLAG = 1, 2              # flags
_INT, _OBJECT, _ADDRESS, _TEXT = ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p   # of C
_WORD, _LONG = ctypes.c_uint32, ctypes.c_uint64


class DLTensor(ctypes.Structure):
  """DLTensor."""
  _fields_ = [("data", _ADDRESS), *((name, ctypes.c_int32) for name in "device_type device_id ndim".split()),
              ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
              *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("shape", "strides")), ("byte_offset", _LONG)]


class Managed(ctypes.Structure):
  """DLManagedTensor."""
  _fields_ = [("tensor", DLTensor), ("context", _ADDRESS), ("deleter", _ADDRESS)]


class Versioned(ctypes.Structure):
  """DLManagedTensorVersioned."""
  _fields_ = [("major", _WORD), ("minor", _WORD), *Managed._fields_[1:], ("flags", _LONG), *Managed._fields_[:1]]


class Exchange(ctypes.Structure):
  """DLPackExchangeAPI: a library's functions for looking at its tensors without a capsule."""
  _fields_ = [*Versioned._fields_[:2],
              *((name, _ADDRESS) for name in "older allocate managed to_object look stream".split())]


# capsules keep the address of their name, so the names are kept here
NAMES: dict[type[ctypes.Structure], tuple[bytes, bytes]] = {Managed: (b"dltensor", b"used_dltensor"),
                                                            Versioned: (b"dltensor_versioned", b"used_dltensor_versioned")}
_Function = Callable[..., Any]


def _function(name: str, result: Any, *args: Any) -> _Function: return ctypes.PYFUNCTYPE(result, *args)((name, ctypes.pythonapi))


new_capsule = _function("PyCapsule_New", _OBJECT, _ADDRESS, _TEXT, _ADDRESS)
is_valid = _function("PyCapsule_IsValid", _INT, _OBJECT, _TEXT)
pointer_of = _function("PyCapsule_GetPointer", _ADDRESS, _OBJECT, _TEXT)
rename = _function("PyCapsule_SetName", _INT, _OBJECT, _TEXT)
_Deleter = ctypes.PYFUNCTYPE(None, _ADDRESS)   # called with Python's lock, as the destructor of a capsule would


@dataclass(slots=True)
class Owner:
  """A tensor that a producer handed over: given back when nobody holds this."""
  pointer: int
  deleter: int | None
  def __del__(self) -> None:
    if self.deleter: _Deleter(self.deleter)(self.pointer)


@lru_cache(maxsize=64)
def exchange(kind: Hashable) -> tuple[_Function, _Function] | None:
  """A library's functions that look at a tensor, and that give the stream it works in; None where it has none."""
  if (found := getattr(kind, "__dlpack_c_exchange_api__", None)) is None or not is_valid(found, b"dlpack_exchange_api"):
    return None
  api = Exchange.from_address(pointer_of(found, b"dlpack_exchange_api"))
  if api.major != DLPACK_VERSION[0] or not api.look or not api.stream: return None
  look, stream = ctypes.PYFUNCTYPE(_INT, _OBJECT, _ADDRESS), ctypes.PYFUNCTYPE(_INT, _INT, ctypes.c_int32, _ADDRESS)
  return look(api.look), stream(api.stream)
