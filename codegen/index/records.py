"""Records: plain data as bytes, for files that outlive a process. Reading one runs nothing that it says.

A ``Form`` says what a record has: numbers, text, tuples of them, objects of a few of ntgrad's classes with their fields. What is
read is checked against it, field by field; anything else raises RecordError. (The text is JSON, which Python reads in C. Its own
fast formats, pickle and marshal, are not safe with bytes that somebody else wrote.)

A record is a head (magic, version, length, checksum) and a body. The body is the length of a JSON text, the text, and then bytes
and long texts as they are, each text once. The JSON is a list: what the record is called, the nodes of expressions (sources
first, so nothing here is as deep as a graph), the lengths of what follows, and the value. The body is parsed after its length
and checksum were found right."""
from __future__ import annotations

import json
import struct
import zlib
from enum import Enum
from hashlib import sha256
from typing import Any, Callable, Generic, Mapping, TypeVar

from ..ir import COMPARE, BinaryOps, DType, NtgradError, Ops, UOp, dtypes, toposort
from . import algebra as ix

RECORD_VERSION = 1   # of the forms: another one is not read
DEEPEST = 32         # how deep plain values may be
RATIO = 1100         # compressed bytes become at most so many times as many
_MAGIC = b"ntgrad\x00R"
_HEAD = struct.Struct("<8sIQ32s")
HEAD_SIZE = _HEAD.size
_LENGTH = struct.Struct("<Q")
_T = TypeVar("_T")
_V = TypeVar("_V")


class RecordError(ValueError): """Bytes that are no such record, or a value that has no such form."""


# ---- the head

def sealed(body: bytes) -> bytes:
  """A body with its head in front."""
  return _HEAD.pack(_MAGIC, RECORD_VERSION, len(body), sha256(body).digest()) + body


def opened(raw: bytes) -> bytes:
  """The body of what ``sealed`` gave. Raises RecordError for a damaged one, or one of another version."""
  if len(raw) < _HEAD.size: raise RecordError(f"{len(raw)} bytes are no record")
  magic, version, length, digest = _HEAD.unpack_from(raw)
  if (magic, version) != (_MAGIC, RECORD_VERSION): raise RecordError(f"no record of version {RECORD_VERSION}")
  body = raw[_HEAD.size:]
  if len(body) != length or sha256(body).digest() != digest: raise RecordError("a damaged record")
  return body


# ---- the body

def packed(form: Form[_T], value: _T, name: str = "") -> bytes:
  """The body of a record called ``name``. Raises RecordError for a value that does not have the form."""
  out = _Writer()
  try:
    written = form.write(value, out)
    text = json.dumps([name, out.nodes, list(map(len, out.blobs)), written], separators=(",", ":")).encode()
  except (ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError) as e: raise RecordError(_said(e)) from None
  return b"".join([_LENGTH.pack(len(text)), text, *out.blobs])


def unpacked(form: Form[_T], body: bytes, name: str = "") -> _T:
  """The value that ``packed`` made a body of. Raises RecordError for a body that is none of this form and name."""
  try:
    end = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    if end > len(body): raise RecordError("it ends too early")
    called, nodes, lengths, value = json.loads(body[_LENGTH.size:end])
    if called != name: raise RecordError(f"it is called {called!r:.100}, not {name!r}")
    return form.read(value, Reader(nodes, lengths, body[end:]))
  except RecordError: raise
  except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError, MemoryError, struct.error,
          zlib.error, NtgradError) as e: raise RecordError(_said(e)) from None


def _said(e: Exception) -> str: return str(e) if isinstance(e, RecordError) else f"{type(e).__name__}: {str(e)[:200]}"


class _Writer:
  """What the values of a record share."""

  def __init__(self) -> None:
    self.nodes: list[Any] = []
    self.blobs: list[bytes] = []
    self._texts: dict[str, int] = {}
    self._numbers: dict[UOp, int] = {}

  def blob(self, data: bytes) -> int:
    self.blobs.append(data)
    return len(self.blobs) - 1

  def text(self, value: str) -> int:
    if value not in self._texts: self._texts[value] = self.blob(value.encode("utf-8", "surrogatepass"))
    return self._texts[value]

  def node(self, u: UOp) -> int:
    """The number of a node, which is written with its sources."""
    numbers = self._numbers
    for n in toposort((u,), numbers.__contains__):
      if n in numbers: continue
      self.nodes.append(_written(n, [numbers[s] for s in n.src], self))
      numbers[n] = len(numbers)
    return numbers[u]


class Reader:
  """The same of one that is read. Raises RecordError."""

  def __init__(self, nodes: Any, lengths: Any, rest: bytes):
    if set(map(type, _items(lengths))) - {int} or min(lengths, default=0) < 0 or sum(lengths) != len(rest):
      raise RecordError("its bytes have other lengths")
    self.blobs: list[bytes] = []
    self.nodes: list[UOp] = []
    self._texts: dict[int, str] = {}
    at = 0
    for n in lengths:
      self.blobs.append(rest[at:at + n])
      at += n
    for n in nodes: self.nodes.append(_node(n, self))

  def of(self, items: list[_V], i: Any) -> _V:
    if type(i) is not int or not 0 <= i < len(items): raise RecordError(f"there is no number {i!r:.40}")
    return items[i]

  def text(self, i: Any) -> str:
    if (found := self._texts.get(i)) is None: found = self._texts[i] = str(self.of(self.blobs, i), "utf-8", "surrogatepass")
    return found


# ---- forms

class Form(Generic[_T]):
  """How values of a kind are written, as what JSON has, and read. Both raise RecordError, or what Python raises for others.
  ``names`` are those of an object's fields."""
  def __init__(self, write: Callable[[_T, _Writer], Any], read: Callable[[Any, Reader], _T], names: tuple[str, ...] = ()):
    self.write, self.read, self.names = write, read, names


def Exactly(kind: type[_T], fits: Callable[[_T], bool] | None = None, what: str = "") -> Form[_T]:
  """Values of one of Python's types that ``fits``. Those of classes made of it are written as plain ones."""
  plain: Any = kind
  def read(x: Any, of: Any) -> _T:
    if type(x) is kind and (fits is None or fits(x)): return x
    raise RecordError(f"expected {what or kind.__name__}, got {x!r:.40}")
  return Form(lambda value, to: read(plain(value) if isinstance(value, kind) and type(value) is not bool else value, to), read)


def Between(low: int, high: int | None = None) -> Form[int]:
  """Ints within bounds."""
  return Exactly(int, lambda x: low <= x and (high is None or x <= high), f"an int from {low} to {high}")


def _write_int(value: int, to: _Writer) -> Any:
  if not isinstance(value, int) or isinstance(value, bool): raise RecordError(f"expected int, got {value!r:.40}")
  return int(value) if -(1 << 63) <= value < 1 << 63 else hex(value)


def _read_int(x: Any, of: Reader) -> int:
  if type(x) is int: return x
  if type(x) is not str or hex(found := int(x, 16)) != x: raise RecordError(f"expected int, got {x!r:.40}")
  return found


def _write_bytes(value: bytes, to: _Writer) -> Any:
  if type(value) is not bytes: raise RecordError(f"expected bytes, got {type(value).__name__}")
  return to.blob(value)


def _unzip(x: Any, of: Reader) -> bytes:
  number, length = x
  data = BYTES.read(number, of)
  if not 0 <= COUNT.read(length, of) <= len(data) * RATIO: raise RecordError(f"{length:,} bytes of {len(data):,}")
  found = zlib.decompressobj()
  out = found.decompress(data, length + 1)
  if len(out) != length or not found.eof or found.unused_data: raise RecordError("compressed bytes of another length")
  return out


def Maybe(form: Form[_T]) -> Form[_T | None]:
  """Something, or None."""
  return Form(lambda value, to: None if value is None else [form.write(value, to)],
              lambda x, of: None if x is None else form.read(_items(x, 1)[0], of))


def Sequence(form: Form[_T]) -> Form[tuple[_T, ...]]:
  """A tuple of so many values of one form as there are."""
  read = form.read
  return Form(lambda value, to: [form.write(v, to) for v in value], lambda x, of: tuple([read(v, of) for v in _items(x)]))


def _read_counts(x: Any, of: Reader) -> tuple[int, ...]:
  if x and (set(map(type, _items(x))) != {int} or min(x) < 0): raise RecordError(f"numbers expected, got {x!r:.80}")
  return tuple(_items(x))


def TupleForm(*forms: Form[Any]) -> Form[tuple[Any, ...]]:
  """A tuple with a form for each of its values."""
  reads = [f.read for f in forms]
  def write(value: tuple[Any, ...], to: _Writer) -> Any:
    if len(value) != len(forms): raise RecordError(f"{len(forms)} values expected, got {len(value)}")
    return [f.write(v, to) for f, v in zip(forms, value)]
  return Form(write, lambda x, of: tuple([read(v, of) for read, v in zip(reads, _items(x, len(reads)))]))


def Table(key: Form[Any], form: Form[_T]) -> Form[dict[Any, _T]]:
  """A dict."""
  def read(x: Any, of: Reader) -> dict[Any, _T]:
    out = {key.read(k, of): form.read(v, of) for k, v in (_items(pair, 2) for pair in _items(x))}
    if len(out) != len(x): raise RecordError("a key comes twice")
    return out
  return Form(lambda value, to: [[key.write(k, to), form.write(v, to)] for k, v in value.items()], read)


def Object(made: Callable[..., _T], **fields: Form[Any]) -> Form[_T]:
  """An object of one of our classes: fields that are not named have their default."""
  reads = [(name, form.read) for name, form in fields.items()]
  def write(value: _T, to: _Writer) -> Any:
    if type(value) is not made: raise RecordError(f"expected {made.__name__}, got {type(value).__name__}")
    return [form.write(getattr(value, name), to) for name, form in fields.items()]
  return Form(write, lambda x, of: made(**{n: read(v, of) for (n, read), v in zip(reads, _items(x, len(reads)))}), tuple(fields))


def OneOf(values: Mapping[str, _T]) -> Form[_T]:
  """One of some values, by their names."""
  names = {v: n for n, v in values.items()}
  return Form(lambda value, to: names[value], lambda x, of: values[STR.read(x, of)])


def _write_plain(value: Any, to: _Writer, depth: int = 0) -> Any:
  kind = type(value)
  if value is None or kind is bool or kind is str or kind is float: return value
  if kind is int: return value if -(1 << 63) <= value < 1 << 63 else ["int", INT.write(value, to)]
  if kind is bytes: return ["bytes", BYTES.write(value, to)]
  if depth >= DEEPEST: raise RecordError(f"values may be {DEEPEST} deep")
  if kind is tuple or kind is list: return [kind.__name__, *[_write_plain(v, to, depth + 1) for v in value]]
  if kind is not dict: raise RecordError(f"{kind.__name__} is no plain value")
  return ["dict", *[_write_plain(v, to, depth + 1) for pair in value.items() for v in pair]]


def _read_plain(x: Any, of: Reader, depth: int = 0) -> Any:
  if type(x) is not list:
    if type(x) is dict: raise RecordError("no such value")
    return x
  if depth > DEEPEST: raise RecordError(f"values may be {DEEPEST} deep")
  what, *rest = x
  if what == "int": return INT.read(_items(rest, 1)[0], of)
  if what == "bytes": return BYTES.read(_items(rest, 1)[0], of)
  values = [_read_plain(v, of, depth + 1) for v in rest]
  if what == "list": return values
  if what == "tuple": return tuple(values)
  if what != "dict" or len(values) % 2: raise RecordError(f"no such value: {what!r:.40}")
  return dict(zip(values[::2], values[1::2]))


def _items(x: Any, count: int | None = None) -> list[Any]:
  if type(x) is not list or count is not None and len(x) != count:
    raise RecordError(f"{'several' if count is None else count} values expected, got {x!r:.80}")
  return x


# ---- what is ours

def _read_dtype(x: Any, of: Reader) -> DType:
  if type(x) is str: return _DTYPES[x]
  name, count = x
  if not 2 <= COUNT.read(count, of) <= 1024: raise RecordError(f"a vector of {count}")
  return _DTYPES[name].vec(count)


def _read_node(x: Any, of: Reader, dtype: DType, wrong: str) -> UOp:
  found = NODE.read(x, of)
  if found.dtype is not dtype: raise RecordError(wrong)
  return found


STR, BOOL, FLOAT, COUNT = Exactly(str), Exactly(bool), Exactly(float), Between(0)
INT: Form[int] = Form(_write_int, _read_int)   # of any size: long ones as hexadecimal text, as Python reads no long decimal ones
BYTES: Form[bytes] = Form(_write_bytes, lambda x, of: of.of(of.blobs, x))
ZIPPED: Form[bytes] = Form(lambda value, to: [BYTES.write(zlib.compress(value, 1), to), len(value)], _unzip)
TEXT: Form[str] = Form(lambda value, to: to.text(STR.write(value, to)), lambda x, of: of.text(x))   # long, or in several places
COUNTS: Form[tuple[int, ...]] = Form(Sequence(COUNT).write, _read_counts)   # numbers from 0 on, which are many
PLAIN: Form[Any] = Form(_write_plain, _read_plain)   # None, bools, numbers, text, bytes, and tuples, lists and dicts of these
_DTYPES = {d.name: d for d in (*dtypes.all, dtypes.index)}
DTYPE: Form[DType] = Form(lambda value, to: value.name if value.count == 1 else [value.name, value.count], _read_dtype)
# an expression of numbers and sizes of a launch, as ``codegen/index/sizes.py`` evaluates them; a size; a condition
NODE: Form[UOp] = Form(lambda value, to: to.node(value), lambda x, of: of.of(of.nodes, x))
DIM: Form[ix.Dim] = Form(
  lambda value, to: [NODE.write(value, to)] if isinstance(value, UOp) else INT.write(value, to),
  lambda x, of: _read_node(_items(x, 1)[0], of, ix.INT, "a condition is no size") if type(x) is list else INT.read(x, of))
CONDITION: Form[UOp] = Form(NODE.write, lambda x, of: _read_node(x, of, dtypes.bool, "a size is no condition"))
SIZE = Object(ix.Size, name=STR, lower=Maybe(INT), upper=Maybe(INT), constexpr=BOOL, meta=BOOL, power_of_two=BOOL,
              unit=Between(1), hint=Maybe(INT), wide=BOOL)

_LOGIC = BinaryOps.AND, BinaryOps.OR
_FUNCTIONS: dict[str, BinaryOps] = {f.name: f for f in (
  *_LOGIC, *COMPARE, BinaryOps.ADD, BinaryOps.SUB, BinaryOps.MUL, BinaryOps.IDIV, BinaryOps.MOD, BinaryOps.MAX, BinaryOps.MIN)}


def _written(u: UOp, src: list[int], to: _Writer) -> list[Any]:
  arg = u.arg
  if u.dtype is not ix.INT and u.dtype is not dtypes.bool: raise RecordError(f"{u!r} is no expression of sizes")
  if u.op is Ops.CONST: return ["CONST", BOOL.write(arg, to) if u.dtype is dtypes.bool else INT.write(arg, to)]
  if u.op is Ops.SIZE and u.dtype is ix.INT: return ["SIZE", SIZE.write(arg, to)]
  if u.op is not Ops.ALU or not isinstance(arg, Enum) or arg.name not in _FUNCTIONS:
    raise RecordError(f"{u!r} is no expression of sizes")
  return [arg.name, *src]


def _node(x: Any, of: Reader) -> UOp:
  """The node that ``_written`` gave, upon nodes that have been read."""
  what, *rest = x
  if what == "CONST": return UOp(Ops.CONST, dtypes.bool, (), v) if type(v := rest[0]) is bool else ix.const(INT.read(v, of))
  if what == "SIZE": return SIZE.read(rest[0], of).node
  fn, (a, b) = _FUNCTIONS[what], [of.of(of.nodes, i) for i in rest]
  if not a.dtype is b.dtype is (dtypes.bool if fn in _LOGIC else ix.INT): raise RecordError(f"{what} of other dtypes")
  if fn in (BinaryOps.IDIV, BinaryOps.MOD) and ix.vmin(b) < 1: raise RecordError(f"{what} by what may be 0")
  return UOp(Ops.ALU, dtypes.bool if fn in _LOGIC or fn in COMPARE else ix.INT, (a, b), fn)
