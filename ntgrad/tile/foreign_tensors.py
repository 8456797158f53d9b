"""Other libraries' tensors on a GPU as arguments: worked on where they are, in order with their libraries' streams."""
from __future__ import annotations

import ctypes
import struct
import sys
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Callable, Sequence

from ntgrad.backends.base import Device
from ntgrad.codegen.ir import ArgumentError, InterchangeError, NtgradError, Ops
from ntgrad.core import Base as Tensor
from ntgrad.engine import interchange
from ntgrad.engine.buffer import Adopted, Buffer, transfer_watchers
from ntgrad.engine.device import canonical, get_device
from ntgrad.engine.dlpack import CUDA, MANAGED, DLTensor, exchange
from ntgrad.engine.interchange import Foreign, adopt, interchange_error, not_while_captured, speaks, take

from .jagged import Jagged, of_entries
from .parameters import is_meta

if TYPE_CHECKING:
  from .signature import Signature

_MOST = 1024   # tensors of other libraries that are known by where they are
_NEAR = 64     # bytes from a tensor's sizes to its strides, at most, that are read together


class Borrowed:
  """Arguments with other libraries' tensors on a GPU made Tensors for a call (``with Borrowed(args) as args``): the same
  memory, or where it lies badly copies that are copied back if they were written. What the call launches comes after what their
  libraries have launched, and before what they launch next. Raises as ``take`` and ``adopt`` do."""

  def __init__(self, args: Sequence[Any], plain: tuple[type, ...], kernel: Signature | None = None):
    self.asked: set[tuple[int, int]] = set()   # functions (by identity) and devices for which the stream is known
    self.streams: dict[tuple[Device, int | None], None] = {}   # devices, and the streams that libraries work in
    self.copies: list[tuple[Buffer, Foreign]] = []
    self.picked: list[tuple[Any, Foreign]] = []   # those whose strides no view has: values of their own
    self.taken: dict[int, Any] = {}   # by identity: an argument that is given twice is one Tensor
    self.args = [a if isinstance(a, plain) else self._named(i, a, kernel) for i, a in enumerate(args)]

  def _named(self, i: int, a: Any, kernel: Signature | None) -> Any:
    """``_tensor``; an error says which argument of the kernel it is."""
    try: return self._tensor(a)
    except NtgradError as e:
      if kernel is None or i >= len(kernel.given): raise
      raise type(e)(f"{kernel.name}: {kernel.takes[i].name}: {e}") from e.__cause__

  def _tensor(self, a: Any) -> Any:
    """A tensor on a GPU as a Tensor; other things as they are."""
    functions = exchange(type(a))   # type: ignore[arg-type]
    if functions is None:
      if (other := self._without_memory(a)) is not None: return other
      if id(a) in self.taken: return self.taken[id(a)]
      if not speaks(a) or interchange.dlpack_device(a)[0] != CUDA: return a
      f = take(a)
      if not f.read_only: self.streams[get_device(f.device), _stream(a)] = None
      made = self.taken[id(a)] = self._adopted(f)
      return made
    look, current = functions
    t, address = _known.seen
    try: look(a, address)
    except Exception as e:
      if (other := self._without_memory(a)) is not None: return other
      raise interchange_error(a, e) from None
    data, kind, number, ndim, dtype, shape, strides, offset = _FIELDS(t)
    size = 8 * ndim
    if kind != CUDA and kind != MANAGED: return a
    if transfer_watchers: not_while_captured("a tile kernel is called with a tensor of another library")
    if (id(current), number) not in self.asked:
      self.asked.add((id(current), number))
      stream, device = ctypes.c_void_p(), get_device(canonical(f"CUDA:{number}"))
      current(CUDA, number, ctypes.addressof(stream))
      self.streams[device, stream.value or 1] = None
      device.follow(stream.value or 1)
    if not strides: laid = ctypes.string_at(shape, size), b""
    elif size <= (behind := strides - shape) <= _NEAR:   # both at once: the strides stand behind the sizes
      both = ctypes.string_at(shape, behind + size)
      laid = both[:size], both[behind:]
    else: laid = ctypes.string_at(shape, size), ctypes.string_at(strides, size)
    key = data, number, dtype, offset, laid
    known = _known.tensors
    found = known.get(key)
    if found is None:
      if len(known) >= _MOST:
        known.clear()
        _known.quick.clear()
      # no owner: the caller has the tensor until its library's stream comes after the call
      found = self._adopted(interchange.read_dltensor(t, None, False, a))
      if _shared(found): known[key] = found   # it holds nothing, and is right whatever is there at the next call
    facts = _facts(type(a))   # type: ignore[arg-type]
    if facts is not None and key in known:
      if len(_known.quick) >= _MOST: _known.quick.clear()
      _known.quick[facts(a)] = found, get_device(canonical(f"CUDA:{number}"))
    return found

  def _without_memory(self, a: Any) -> Any:
    """What stands for a tensor that has no memory of its own: a jagged one's parts, a meta tensor itself; None for any other."""
    if is_meta(a): return a
    if not getattr(a, "is_nested", False): return None
    # a jagged one has this function too, which raises
    if str(getattr(a, "layout", "")) != "torch.jagged" and callable(getattr(a, "_nested_tensor_size", None)):
      values, offsets = of_entries(a)
      return Jagged(self._tensor(values), offsets)
    if not callable(getattr(a, "offsets", None)):
      raise ArgumentError("a nested tensor of separate pieces is no batch in one memory; make it with layout=torch.jagged")
    return Jagged(self._tensor(a.values()), self._tensor(a.offsets()), getattr(a, "_ragged_idx", 1))

  def _adopted(self, f: Foreign) -> Any:
    t = object.__new__(Tensor._class)._hold_memory(adopt(f))
    if t.lazydata.op is Ops.BUFFER and not _shared(t): self.copies.append((t.lazydata.arg, f))
    if t.lazydata.op is Ops.GATHER: self.picked.append((t, f))
    return t

  def __enter__(self) -> list[Any]: return self.args
  def __exit__(self, kind: Any, *_: object) -> None:
    if kind is not None: return
    for t, f in self.picked:
      if t.lazydata.op is Ops.BUFFER and t.lazydata.arg.storage.version:
        raise InterchangeError(f"memory of shape {f.shape} with strides {f.strides} on {f.device} is written: several elements "
                               "may lie at one place; give the kernel a contiguous tensor")
    for b, f in self.copies:
      if not b.storage.version or not b.nbytes: continue
      if f.read_only:
        raise InterchangeError(f"memory of shape {f.shape} on {f.device} is another library's and read-only; it cannot be "
                               "written")
      device = get_device(f.device)
      device.copy_from(f.address, device, b.raw, b.nbytes)
    for device, stream in self.streams: device.precede(stream)


def known_arguments(args: Sequence[Any], plain: tuple[type, ...]) -> tuple[list[Any], Device, int] | None:
  """The arguments of a call with Tensors in place of PyTorch's that calls had before, their device, and PyTorch's stream there; 0
  for the default stream, which is in order by itself. None where some tensor is not known. ``Borrowed`` finds the same by
  DLPack's functions, which take ctypes a microsecond each."""
  mine, device = [], None
  quick = _known.quick
  try:
    for a in args:
      facts = _facts(type(a))   # type: ignore[arg-type]
      if facts is None:
        if not isinstance(a, plain): return None
        mine.append(a)
        continue
      found = quick.get(facts(a))
      if found is None or device is not None and found[1] is not device: return None
      t, device = found
      mine.append(t)
  except Exception: return None   # a tensor without memory: what is wrong with it is said where it is looked at
  if device is None: return None
  if transfer_watchers: not_while_captured("a tile kernel is called with a tensor of another library")
  current = _stream_of()
  assert current is not None
  return mine, device, current(device.number)  # type: ignore[attr-defined]


@lru_cache(maxsize=64)
def _facts(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
  """A function that tells where a tensor of this type is and how it lies there; None for types that are not PyTorch's own."""
  torch: Any = sys.modules.get("torch")
  if torch is None or kind is not torch.Tensor and kind is not torch.nn.Parameter or _stream_of() is None: return None
  return lambda a: (a.data_ptr(), a.dtype, a.shape, a.stride(), a.device, a.requires_grad, a.is_neg())


@lru_cache(maxsize=1)
def _stream_of() -> Callable[[int], int] | None:
  """PyTorch's function that gives its stream on a GPU (Triton asks the same), where it has one."""
  return getattr(sys.modules["torch"]._C, "_cuda_getCurrentRawStream", None)


_FIELDS = struct.Struct("=QiiiIQQQ").unpack   # of a DLTensor; code, bits and lanes in one


class _Known(threading.local):
  """A thread's Tensors over memory that calls borrowed, by where and what it is."""
  def __init__(self) -> None:
    self.tensors: dict[Any, Any] = {}
    self.quick: dict[Any, tuple[Any, Device]] = {}   # likewise, by what PyTorch says, with the device
    tensor = DLTensor()
    self.seen = tensor, ctypes.addressof(tensor)   # what a library says of a tensor is put here


_known = _Known()


def _shared(t: Any) -> bool:
  """Whether a tensor is another library's memory, whole."""
  return t.lazydata.op is Ops.BUFFER and isinstance(t.lazydata.arg.storage, Adopted)


def _stream(x: Any) -> int | None:
  """The stream that a tensor's library says it works in; None where it does not say."""
  try: return int(x.__cuda_array_interface__["stream"])
  except Exception: return None
