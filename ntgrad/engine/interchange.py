"""Sharing memory with other libraries: DLPack and ``__cuda_array_interface__``, both ways, without copies.

**In**: ``take`` reads another library's tensor, ``adopt`` makes a node over its memory. **Out**: ``capsule`` and ``cuda_array``
describe a tensor's memory to others, which keep it alive. Both sides may write shared memory and see what the other writes in
place; neither is told. Where memory changes hands, streams wait for one another (on a CPU everything launched has ended); for
later writes, synchronise.
"""
from __future__ import annotations

import atexit
import ctypes
import sys
import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Sequence

import numpy as np

from ntgrad.backends import memory_pool
from ntgrad.backends.base import Device as Opened
from ntgrad.codegen.ir import DType, DTypeError, InterchangeError, NoInterfaceError, Ops, UOp, dtypes, prod
from ntgrad.graph import apply_view, lock, nodes as graph, synchronized

from . import dlpack
from .buffer import Adopted, Buffer, Storage, refuse_recording
from .device import Device, canonical, get_device
from .dlpack import CPU, CUDA, DLPACK_VERSION, NAMES, Managed, Owner, Versioned, is_valid
from .realize import before_writing, rebased

_Ints = tuple[int, ...]
_ALIGN = {CPU: 64, CUDA: 16}                      # what compiled kernels rely on: memory that lies otherwise is copied
# dtypes that numpy itself has not
_OWN = {dtypes.bfloat16: 4, dtypes.float8_e4m3: 10, dtypes.float8_e5m2: 12, dtypes.float8_e8m0: 14}
_CODES = {**{d: {"i": 0, "u": 1, "f": 2, "b": 6}[d.kind] for d in dtypes.all if d not in _OWN}, **_OWN}
_DTYPES = {(code, d.itemsize * 8): d for d, code in _CODES.items()}


# ---- in
@dataclass(slots=True)
class Foreign:
  """Another library's tensor: where it lies, what it is, who keeps it. Strides are in elements, None where it is contiguous."""
  address: int
  shape: _Ints
  strides: _Ints | None
  dtype: DType
  kind: int                # CPU or CUDA
  number: int
  read_only: bool
  owner: Any

  @property
  def device(self) -> str:
    """The name of the GPU that it lies on, CPU for memory of the host."""
    return canonical(f"CUDA:{self.number}") if self.kind == CUDA else "CPU"
  @property
  def size(self) -> int:
    """Elements from its first to its last place in memory."""
    if self.strides is None or 0 in self.shape: return prod(self.shape)
    return 1 + sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides))
  @property
  def aligned(self) -> bool:
    """Whether kernels can take its memory as it is."""
    return self.address % _ALIGN[self.kind] == 0

  def array(self) -> np.ndarray[Any, Any]:
    """An array over memory of the host, of the same strides. It keeps the owner."""
    if 0 in self.shape: return np.empty(self.shape, self.dtype.np)
    size = self.dtype.itemsize
    strides = None if self.strides is None else tuple(s * size for s in self.strides)
    about = {"shape": self.shape, "typestr": f"|V{size}", "data": (self.address, self.read_only), "strides": strides,
             "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=about, owner=self.owner)).view(self.dtype.np)


def speaks(x: Any) -> bool:
  """Whether something is another library's tensor (or a DLPack capsule)."""
  return hasattr(type(x), "__dlpack__") or hasattr(type(x), "__cuda_array_interface__") or type(x).__name__ == "PyCapsule"


def dlpack_device(x: Any) -> tuple[int, int]:
  """DLPack's type and number of a tensor's device; pinned memory is the host's. Raises InterchangeError."""
  if hasattr(type(x), "__dlpack_device__"):
    try: kind, number = x.__dlpack_device__()
    except Exception as e: raise interchange_error(x, e) from None
    return _kind(int(kind), x), int(number)
  if hasattr(type(x), "__dlpack__"): return CPU, 0
  from ntgrad.backends.cuda.driver import device_of
  return CUDA, device_of(_interface(x)["data"][0])


def take(x: Any) -> Foreign:
  """Another library's tensor, or a DLPack capsule. On a GPU, what is launched from now on comes after what its library has
  launched. Raises InterchangeError where its library does not give it, DTypeError, DeviceError."""
  if type(x).__name__ == "PyCapsule": return _read(x, x)
  if not hasattr(type(x), "__dlpack__"): return _take_interface(x)
  if getattr(x, "requires_grad", False) and hasattr(x, "detach"): x = x.detach()   # gradients do not pass between libraries
  kind, number = dlpack_device(x)
  order: dict[str, Any] = {}
  if kind == CUDA:
    device = get_device(canonical(f"CUDA:{number}"))
    device.enter()   # torch gives tensors of the thread's device only
    order["stream"] = device.stream_handle()
  try:
    try: given = x.__dlpack__(**order, max_version=DLPACK_VERSION)
    except TypeError: given = x.__dlpack__(**order)   # before DLPack 1.0
  except Exception as e: raise interchange_error(x, e) from None
  return _read(given, x)


def _read(given: Any, x: Any) -> Foreign:
  """What a capsule holds; it is empty afterwards."""
  kind, name, used = next(((k, *names) for k, names in NAMES.items() if is_valid(given, names[0])), (None, b"", b""))
  if kind is None: raise InterchangeError(f"{_name(x)}: no DLPack capsule, or one that was used before; each is taken once")
  pointer = dlpack.pointer_of(given, name)
  managed: Any = kind.from_address(pointer)
  if kind is Versioned and managed.major != DLPACK_VERSION[0]:
    raise InterchangeError(f"{_name(x)}: a capsule of DLPack {managed.major}.{managed.minor}; ntgrad reads versions "
                           f"{DLPACK_VERSION[0]}.*")
  dlpack.rename(given, used)
  owner = Owner(pointer, managed.deleter)
  # a capsule without a version cannot say that memory must not be written (JAX's must not): taken for such, as by numpy
  return read_dltensor(managed.tensor, owner, bool(managed.flags & dlpack.READ_ONLY) if kind is Versioned else not _writable(x),
                       x)


def read_dltensor(t: Any, owner: Any, read_only: bool, x: Any) -> Foreign:
  """A DLTensor in Python. Raises DTypeError, InterchangeError."""
  if (dtype := _DTYPES.get((t.code, t.bits)) if t.lanes == 1 else None) is None:
    raise DTypeError(f"{_name(x)}: elements of DLPack's type {t.code}, {t.bits} bits, {t.lanes} lanes; ntgrad has "
                     f"{', '.join(d.name for d in dtypes.all)}")
  shape = tuple(t.shape[:t.ndim])
  strides = _plain(shape, tuple(t.strides[:t.ndim]) if t.strides and t.ndim else None)
  return Foreign((t.data or 0) + t.byte_offset, shape, strides, dtype, _kind(t.device_type, x), t.device_id, read_only, owner)


def _kind(device_type: int, x: Any) -> int:
  """CPU or CUDA: who can read the memory. Raises InterchangeError for other devices."""
  if (kind := {dlpack.PINNED: CPU, dlpack.MANAGED: CUDA}.get(device_type, device_type)) in _ALIGN: return kind
  raise InterchangeError(
    f"{_name(x)} is on a device of DLPack's type {kind}; ntgrad takes memory of the host (1) and of CUDA (2)")


def _take_interface(x: Any) -> Foreign:
  """A tensor that has ``__cuda_array_interface__`` only."""
  about = _interface(x)
  shape, (address, read_only) = tuple(map(int, about["shape"])), about["data"]
  try: dtype = dtypes.of(np.dtype(about["typestr"]))
  except TypeError as e: raise DTypeError(f"{_name(x)}: {e}") from None
  if (strides := about.get("strides")) is not None:
    if any(s % dtype.itemsize for s in strides):
      raise InterchangeError(f"{_name(x)}: strides of {strides} bytes are not whole elements of {dtype.name}")
    strides = tuple(int(s) // dtype.itemsize for s in strides)
  kind, number = dlpack_device(x) if address else (CUDA, 0)
  f = Foreign(address or 0, shape, _plain(shape, strides), dtype, kind, number, bool(read_only), x)
  if (stream := about.get("stream")) is not None: get_device(f.device).follow(int(stream))
  return f


def _interface(x: Any) -> dict[str, Any]:
  try: return dict(x.__cuda_array_interface__)
  except Exception as e: raise interchange_error(x, e) from None


def _writable(x: Any) -> bool:
  """Whether ``__cuda_array_interface__`` says so."""
  try: return not x.__cuda_array_interface__["data"][1]
  except Exception: return False   # it has none, or none now: torch raises where a gradient is needed


def _name(x: Any) -> str: return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def interchange_error(x: Any, e: Exception) -> InterchangeError:
  """What to raise where a library does not give a tensor's memory."""
  said = str(e).partition("\n")[0]   # PyTorch's have a trace of C++ behind
  return InterchangeError(f"{_name(x)} does not give its memory: {type(e).__name__}: {said}")


def _contiguous(shape: Sequence[int]) -> _Ints:
  return tuple(prod(shape[i + 1:]) for i in range(len(shape)))


def _plain(shape: _Ints, strides: _Ints | None) -> _Ints | None:
  """Strides, or None where they are those of a contiguous tensor (a dimension of 1 may have any)."""
  if strides is None or 0 in shape: return None
  return None if all(n == 1 or s == c for n, s, c in zip(shape, strides, _contiguous(shape))) else strides


def strided(flat: UOp, shape: _Ints, strides: Sequence[int]) -> UOp | None:
  """A view of a flat node, from its first element to its last, as windows, reshapes, permute and expand. None where strides are
  negative or what one step covers overlaps the next (but a dimension may have stride 0)."""
  dims = sorted((i for i, (n, s) in enumerate(zip(shape, strides)) if n > 1 and s), key=lambda i: -strides[i])
  u, inner = flat, flat.shape[0]
  for i in dims:
    n, s = shape[i], strides[i]
    inner -= (n - 1) * s   # what the dims beneath cover
    if s < inner or inner < 1: return None
    outer = u.shape[:-1]
    if s != inner: u = graph.tile(u, (*[(1, 1, 1)] * len(outer), (inner, s, 1)))
    u = graph.reshape(u, (*outer, n, inner))
  u = graph.shrink(u, [(0, m) for m in (*u.shape[:-1], 1)])
  u = graph.permute(graph.reshape(u, u.shape[:-1]), tuple(map(dims.index, sorted(dims))))
  return graph.expand(graph.reshape(u, tuple(n if i in dims else 1 for i, n in enumerate(shape))), shape)


def adopt(f: Foreign, device: str | None = None, copy: bool | None = None) -> UOp:
  """A node over another library's memory; ``device`` is where memory of the host is wanted (None: the default device). Memory of
  a GPU stays there. It is shared where it lies as kernels need it and its strides are those of a view (see ``strided``); else,
  and with ``copy=True``, the node is a copy. Raises InterchangeError where ``copy=False`` rules that out, CaptureError while a
  jit records."""
  name = f.device if f.kind == CUDA else device or Device.DEFAULT
  opened = get_device(name)
  if 0 in f.shape: return Buffer(name, f.shape, f.dtype).node
  flat, steps, nbytes = f.shape if f.strides is None else (f.size,), f.strides or (), f.size * f.dtype.itemsize
  seen = min(steps, default=0) >= 0 and _over(Buffer(name, flat, f.dtype).node, f) is not None   # as a view
  if (f.kind == CUDA or opened.dlpack[0] == CPU) and f.aligned and seen and not copy:
    if (raw := opened.adopt(f.address, nbytes)) is not None:
      not_while_captured(f"a tensor of shape {f.shape} is taken from another library")
      made = Buffer(name, flat, f.dtype, Adopted(name, nbytes, raw, f.owner, f.read_only, f.address))
      return _over(made.node, f)  # type: ignore[return-value]  # it is one
  if copy is False:
    raise InterchangeError(
      f"memory of shape {f.shape}, strides {f.strides}, at {f.address:#x} on {f.device} cannot be used on {name} without "
      f"a copy (it must lie at a multiple of {_ALIGN[f.kind]} bytes, with the strides of a view); leave out copy=False")
  if f.kind == CPU: return Buffer.from_numpy(name, f.array()).node
  not_while_captured(f"a tensor of shape {f.shape} is taken from another library")
  behind = -sum((n - 1) * s for n, s in zip(f.shape, steps) if s < 0)   # elements before the first
  to = Buffer(name, flat, f.dtype)
  opened.copy_from(to.raw, opened, f.address - behind * f.dtype.itemsize, to.nbytes)
  opened.let_go(f.owner)
  node = _over(to.node, f) if seen else None
  return gather_strided(to.node, f.shape, steps, behind) if node is None else node


def gather_strided(flat: UOp, shape: _Ints, strides: Sequence[int], first: int) -> UOp:
  """The elements of a flat node that any strides reach from its ``first`` one on, those that several places share too."""
  kind = graph.place_dtype(flat.shape[0])
  at = graph.const(first, kind, shape)
  for d, s in enumerate(strides):
    if s: at = graph.add(at, graph.cast(graph.mul(graph.index_along(d, shape), s), kind))
  return graph.gather(flat, at)


def _over(node: UOp, f: Foreign) -> UOp | None: return node if f.strides is None else strided(node, f.shape, f.strides)


def not_while_captured(what: str) -> None:
  """Raises CaptureError where this thread records a jit: a replay would not do it again."""
  refuse_recording(f"{what} while the function is captured",
                   "which a replay cannot repeat; do it before the call, and pass a Tensor as an argument")


# ---- out
@dataclass(slots=True)
class _View:
  """A realised tensor in memory: the storage, or an array with a copy, where its first element lies, strides in elements."""
  keep: Any
  device: Opened | None       # None: the copy
  address: int
  strides: _Ints


class _Export:
  """Memory that a consumer may use: the struct it reads, and what keeps the memory."""
  __slots__ = "managed", "sizes", "view", "name", "capsule", "mark"

  def __init__(self, managed: Any, shape: Sequence[int], view: _View):
    self.managed, self.view, self.name = managed, view, NAMES[type(managed)][0]
    self.sizes = [(ctypes.c_int64 * max(len(shape), 1))(*v) for v in (shape, view.strides)]
    managed.tensor.shape, managed.tensor.strides = self.sizes
    managed.deleter = _done
    self.mark = ctypes.c_uint64.from_buffer(managed).value
    self.capsule = dlpack.new_capsule(ctypes.addressof(managed), self.name, None)

  def over(self) -> bool:
    """Whether the consumer has let go of it, or there never was one: the capsule was dropped unread, and only this holds it."""
    return ctypes.c_uint64.from_buffer(self.managed).value != self.mark or (
      sys.getrefcount(self.capsule) <= 2 and bool(is_valid(self.capsule, self.name)))


# A consumer may call the deleter in a thread without Python, after Python's end, or while an exception is on its way. So it is
# the C library's time(): it writes over the first bytes of the struct that it is given, and ``reclaim`` looks for that.
_done: int | None = ctypes.cast(ctypes.CDLL(None).time, ctypes.c_void_p).value
_exports: dict[int, _Export] = {}
# tensors (identity) and storages (number) that others see through __cuda_array_interface__
_showing: set[tuple[int, int]] = set()
_shown: list[tuple[Opened, Storage]] = []    # the memory of those whose tensor is gone


def reclaim() -> None:
  """Take back memory that no consumer holds any more: at every export, and after the first before devices ask for more."""
  if reclaim not in memory_pool.reclaimers: memory_pool.reclaimers.append(reclaim)
  if not _exports and not _shown: return
  over = [e for e in list(_exports.values()) if e.over()]
  for e in over: _exports.pop(id(e), None)
  with lock: shown = [_shown.pop() for _ in range(len(_shown))]
  # it goes to a pool and is written by whatever comes next, while consumers may still use it in streams that are not known here
  for d in {e.view.device for e in over} | {d for d, _ in shown}:
    if d is not None: d.settle()


# what is out at the end stays where it is: consumers write into it after Python has gone
atexit.register(lambda: ctypes.pythonapi.Py_IncRef(ctypes.py_object(_exports)))


@synchronized
def view_of(t: Any, copy: bool | None, what: str) -> _View:
  """Where the value of a Tensor lies, computed if need be, for others to see. Reshapes, permutations and slices of memory are
  shown as they are, other views as contiguous copies of their own, and memory that has no address as a copy on the host. Raises
  InterchangeError where ``copy=False`` rules that out, CaptureError while a jit records."""
  not_while_captured(f"a tensor of shape {t.shape} is given to another library")
  t.realize()
  at = None if copy else _layout(rebased(t.lazydata))
  if at is None:
    if copy is False:
      raise InterchangeError(f"{what}: a tensor of shape {t.shape} that is a view ({t.lazydata.op.name}) has no memory of its "
                             "own to show without a copy; leave out copy=False, or give .contiguous() of it")
    t = t._from_node(UOp.unique(Ops.CONTIGUOUS, t.dtype, (t.detach().lazydata,))).realize()
    at = 0, _contiguous(t.shape)
  alias = t._alias
  if alias.memory is None and rebased(t.lazydata).device is not None:   # it lies in memory that another tensor writes
    alias.renew()
    t.realize()
    at = _layout(rebased(t.lazydata)) or at
  (start, strides), buffer = at, alias.memory
  # from here on others may write: who shares the memory, or still has to read it, gets a copy, or its value
  if not buffer.storage.foreign: before_writing([buffer.storage], [alias])
  device = get_device(buffer.device)
  address = device.address(buffer.raw, buffer.nbytes) if buffer.nbytes else 0
  buffer.storage.foreign |= bool(address)
  if address or not buffer.nbytes: return _View(buffer.storage, device, address + start * t.dtype.itemsize, strides)
  if copy is False:
    raise InterchangeError(f"{what}: memory of {buffer.device} has no address that others could use; leave out copy=False")
  return _on_host(t)


def _on_host(t: Any) -> _View:
  array = np.ascontiguousarray(t.numpy())
  return _View(array, None, int(array.ctypes.data), _contiguous(t.shape))


def _layout(u: UOp, expanded: bool = False) -> tuple[int, _Ints] | None:
  """First element and strides of a view of a BUFFER; None where it is no such thing, or (but for ``expanded``) several of its
  elements lie in one place."""
  chain = []
  while u.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.DETACH, Ops.TILE) or expanded and u.op is Ops.EXPAND:
    chain.append(u)
    u = u.src[0]
  if u.op is not Ops.BUFFER: return None
  start, strides = 0, _contiguous(u.shape)
  for n in chain[::-1]:
    if n.op is Ops.PERMUTE: strides = tuple(strides[i] for i in n.arg)
    elif n.op is Ops.TILE: strides = tuple(s * step for s, (_, step, _) in zip(strides, n.arg)) + strides
    elif n.op is Ops.SHRINK: start += sum(b * s for (b, _), s in zip(n.arg, strides))
    elif n.op is Ops.EXPAND: strides = tuple(s if a == b else 0 for s, a, b in zip(strides, n.src[0].shape, n.shape))
    elif n.op is Ops.RESHAPE:
      if (found := _reshaped(n.src[0].shape, strides, n.shape)) is None: return None
      strides = found
  return start, strides


def strides_shown(t: Any) -> _Ints:
  """How many elements of the value that a Tensor shares lie from each index of a dimension to the next, by its moves; those of a
  contiguous tensor where there are no such numbers (a flip)."""
  found = _layout(apply_view(Buffer(t.device, t._alias.node.shape, t._alias.node.dtype).node, t._view), True)
  shape, strides = t.shape, list(_contiguous([max(n, 1) for n in t.shape]) if found is None or 0 in t.shape else found[1])
  for i in reversed(range(len(shape))):   # a dimension of 1 goes past the one inside it
    if shape[i] == 1: strides[i] = shape[i + 1] * strides[i + 1] if i + 1 < len(shape) else 1
  return tuple(strides)


def _reshaped(shape: _Ints, strides: _Ints, to: _Ints) -> _Ints | None:
  """Strides of a reshaped view; None where there are none."""
  if 0 in shape: return _contiguous(to)
  runs: list[list[int]] = []   # dims that lie one in the other like those of a contiguous tensor: elements, innermost stride
  for n, s in zip(shape, strides):
    if n == 1: continue
    if runs and runs[-1][1] == n * s: runs[-1] = [runs[-1][0] * n, s]
    else: runs.append([n, s])
  out = []
  for n in reversed(to):   # from the innermost dim, each in one run
    if n == 1: out.append(1)
    elif runs and runs[-1][0] % n == 0:
      size, step = runs.pop()
      out.append(step)
      if size != n: runs.append([size // n, step * n])
    else: return None
  return tuple(out[::-1])


def place_for(t: Any) -> tuple[int, int]:
  """``Tensor.__dlpack_device__``."""
  return get_device(t.device).dlpack


def capsule(t: Any, stream: Any, max_version: tuple[int, int] | None, dl_device: tuple[Any, int] | None,
            copy: bool | None) -> Any:
  """``Tensor.__dlpack__``."""
  reclaim()
  place = place_for(t)
  to = place if dl_device is None else tuple(map(int, dl_device))
  if to == place: v = view_of(t, copy, "__dlpack__")
  elif to[0] == CPU and copy is not False: v = _on_host(t)
  else:
    raise InterchangeError(f"__dlpack__: a tensor on {t.device} for a device of DLPack's type {to[0]}, number {to[1]}"
                           f"{' with copy=False' if copy is False else ''}; move it with .to() first")
  if v.device is not None: _hand_over(v.device, stream)
  managed: Any = Managed()
  if max_version is not None and max_version[0] >= DLPACK_VERSION[0]:
    managed = Versioned(*DLPACK_VERSION, None, None, dlpack.COPIED_FLAG if copy else 0)
  tensor = managed.tensor
  tensor.data, tensor.device_type, tensor.device_id, tensor.ndim = v.address or None, *to, t.ndim
  tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset = _CODES[t.dtype], t.dtype.itemsize * 8, 1, 0
  export = _Export(managed, t.shape, v)
  made = export.capsule   # held here before others can take it for dropped
  _exports[id(export)] = export
  return made


def _hand_over(device: Opened, stream: Any) -> None:
  """Make a consumer's stream wait for ntgrad's. Raises InterchangeError for what is no stream."""
  if device.stream_handle() is None: return   # where there are no streams, what was launched has ended
  if stream is not None and (not isinstance(stream, int) or stream < -1):
    raise InterchangeError(f"__dlpack__: stream {stream!r}; it is a CUDA stream's address, 1, 2, -1 or None")
  if stream != -1: device.precede(stream or 1)


def cuda_array(t: Any) -> dict[str, Any]:
  """``Tensor.__cuda_array_interface__``."""
  if not t.device.startswith("CUDA"):
    raise NoInterfaceError(f"__cuda_array_interface__: a tensor on {t.device}; only those on CUDA have it")
  if t.dtype in _OWN: raise NoInterfaceError(f"__cuda_array_interface__ has no {t.dtype.name}; use DLPack, or cast it")
  reclaim()
  v = view_of(t, None, "__cuda_array_interface__")
  assert v.device is not None
  v.device.precede(1)   # for consumers that do not look at "stream" (torch): they mostly work in the default one
  key = id(t), v.keep.serial
  if key not in _showing:   # consumers hold the tensor, whose value may come to lie in other memory
    _showing.add(key)
    weakref.finalize(t, _hidden, key, v.device, v.keep).atexit = False
  if (strides := _plain(t.shape, v.strides)) is not None: strides = tuple(s * t.dtype.itemsize for s in strides)
  return {"shape": t.shape, "typestr": t.dtype.np.str, "data": (v.address, False), "version": 3, "strides": strides,
          "stream": v.device.stream_handle()}


def _hidden(key: tuple[int, int], device: Opened, storage: Storage) -> None:
  _showing.discard(key)
  _shown.append((device, storage))
