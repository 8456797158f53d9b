"""Archives, arrays, weights and tables made to do harm: for each format what is wrong in it, in some size."""
from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from support.file_cases import Case, safetensors, whole

BIG = 2 ** 63 - 1


# ---- zip: built by hand, so that every field may lie

class Entry:
  """A member: its name, its bytes as they lie in the file, and what its headers say."""
  def __init__(self, name: bytes, data: bytes, **said: Any):
    self.name, self.data = name, data
    self.said = {"method": 0, "flags": 0, "crc": zlib.crc32(data), "packed": len(data), "size": len(data), "extra": b"",
      "own": {}, **said}


def zipped(entries: list[Entry], count: int | None = None, size: int | None = None, begin: int | None = None,
  at: dict[int, int] | None = None,
           end: bytes | None = None) -> bytes:
  """A zip archive; ``at`` says where the headers of members are, in place of where they are."""
  out, directory = bytearray(), bytearray()
  for i, e in enumerate(entries):
    s, first = e.said, (at or {}).get(i, len(out))
    o = {**s, **s["own"]}
    out += struct.pack("<4s5H3I2H", b"PK\3\4", 20, o["flags"], o["method"], 0, 33, o["crc"], o["packed"] & 0xffffffff,
                       o["size"] & 0xffffffff, len(o.get("name", e.name)), 0) + o.get("name", e.name) + e.data
    directory += struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, s["flags"], s["method"], 0, 33, s["crc"], s["packed"] & 0xffffffff,
                             s["size"] & 0xffffffff, len(e.name), len(s["extra"]), 0, 0, 0, 0, first & 0xffffffff)
    directory += e.name + s["extra"]
  n = len(entries) if count is None else count
  tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, n & 0xffff, n & 0xffff, len(directory) if size is None else size,
                     len(out) if begin is None else begin, 0)
  return bytes(out + directory + (tail if end is None else end))


def deflated(data: bytes) -> bytes: return zlib.compress(data, 9)[2:-4]
def bomb(name: bytes, made: bytes, n: int, **said: Any) -> Entry:
  """A member of n zeros behind ``made``."""
  packer, out, crc = zlib.compressobj(9, zlib.DEFLATED, -15), [], 0
  for part in (made, *[bytes(1 << 20)] * (n >> 20)):
    out.append(packer.compress(part))
    crc = zlib.crc32(part, crc)
  data = b"".join(out) + packer.flush()
  return Entry(name, data, **{"method": 8, "crc": crc, "size": len(made) + (n >> 20 << 20), **said})


def large(*numbers: int) -> bytes: return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers)


def zips(n: int, kind: str, good: Entry) -> dict[str, Callable[[], bytes]]:
  """What may be wrong with a zip archive in which ``good`` is a good member."""
  g, d = good, good.data
  end = b"a.npy" if kind == "npz" else b"x"
  return {
    "NUL in front": lambda: zipped([g, Entry(b"\0" + end, d)]), "NUL inside": lambda: zipped([g, Entry(b"b\0" + end, d)]),
    "no name": lambda: zipped([g, Entry(b"", d)]),
    "absolute": lambda: zipped([g, Entry(b"/" + end, d)]), "outside": lambda: zipped([g, Entry(b"../" + end, d)]),
    "outside, far": lambda: zipped([g, Entry(b"b/../../" + end, d)]),
    "backslash": lambda: zipped([g, Entry(b"..\\" + end, d)]), "twice": lambda: zipped([g, g]),
    "not UTF-8": lambda: zipped([g, Entry(b"\xff\xfe" + end, d, flags=0x800)]),
    "encrypted": lambda: zipped([Entry(g.name, d, flags=1)]), "method 99": lambda: zipped([Entry(g.name, d, method=99)]),
    "bzip2": lambda: zipped([Entry(g.name, bz2.compress(d), method=12)]),
    "other checksum": lambda: zipped([Entry(g.name, d, crc=1)]),
    "other name in front": lambda: zipped([Entry(g.name, d, own={"name": b"x" * len(g.name)})]),
    "other size in front": lambda: zipped([Entry(g.name, d, own={"size": 1})]),
    "longer": lambda: zipped([Entry(g.name, d, size=n, packed=n)]),
    "size of 2**32 - 1": lambda: zipped([Entry(g.name, d, size=2 ** 32 - 1, packed=2 ** 32 - 1)]),
    "size of 2**63": lambda: zipped([Entry(g.name, d, size=2 ** 32 - 1, packed=2 ** 32 - 1, extra=large(2 ** 63, 2 ** 63))]),
    "size of 2**64 - 1": lambda: zipped([Entry(g.name, deflated(d), method=8, size=2 ** 32 - 1, extra=large(2 ** 64 - 1))]),
    "unpacks to less": lambda: zipped([Entry(g.name, deflated(d), method=8, size=len(d) + 1, crc=zlib.crc32(d))]),
    "unpacks to more": lambda: zipped([bomb(g.name, d, 200 << 20, size=len(d), crc=zlib.crc32(d))]),
    "no deflate": lambda: zipped([Entry(g.name, b"\xff" * 50, method=8, size=50)]),
    "overlapping": lambda: zipped([g, Entry(g.name[:-1] + b"2" if kind != "npz" else b"2.npy", d)], at={1: 0}),
    "in each other": lambda: quine(n, g),
    "many names of one": lambda: zipped([g] + [Entry(b"%d" % i + end, b"") for i in range(2000)], at={i: 0 for i in range(2001)}),
    "many members": lambda: zipped([Entry(b"%d" % i, b"") for i in range(n // 100)]) + b"!",
    "directory elsewhere": lambda: zipped([g], begin=BIG & 0xfffffff),
    "directory too large": lambda: zipped([g], size=0xffffff), "directory empty": lambda: zipped([g], size=0),
    "more entries": lambda: zipped([g], count=60000),
    "no directory": lambda: zipped([g], end=b""), "no end": lambda: zipped([g])[:-5], "more behind": lambda: zipped([g]) + b"\0",
    "large directory, wrong": lambda: zipped([g],
      end=struct.pack("<4sIQI", b"PK\6\7", 0, BIG, 1) + struct.pack("<4s4H2IH", b"PK\5\6", *[0xffff] * 4, *[2 ** 32 - 1] * 2, 0)),
    "large directory, huge": lambda: zipped([g],
      end=struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 2 ** 60, 2 ** 60, 2 ** 60, 0)
                                           + struct.pack("<4sIQI", b"PK\6\7", 0, 0, 1)
                                             + struct.pack("<4s4H2IH", b"PK\5\6", *[0xffff] * 4, *[2 ** 32 - 1] * 2, 0)),
    "ends only": lambda: b"PK\3\4" + b"PK\5\6" * (n // 40), "long name": lambda: zipped([g, Entry(b"n" * 65000, d, crc=1)])}


def quine(n: int, g: Entry) -> bytes:
  """Members that are parts of one deflated stream, as in bombs of overlapping files."""
  data = zipped([Entry(b"kernel", deflated(bytes(n)), method=8, size=n, crc=zlib.crc32(bytes(n)))])
  at = data.index(b"PK\1\2")
  names = [Entry(b"%05d" % i, deflated(bytes(n)), method=8, size=n, crc=zlib.crc32(bytes(n))) for i in range(300)]
  directory = b"".join(zipped([e], begin=0, at={0: 0})[30 + 5 + len(e.data):-22] for e in names)
  return data[:at] + directory + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 300, 300, len(directory), at, 0)


def npy(header: bytes, data: bytes = bytes(96), version: bytes = b"\1\0", length: int | None = None) -> bytes:
  n = len(header) if length is None else length
  first = version == b"\1\0"
  return b"\x93NUMPY" + version + struct.pack("<H" if first else "<I", n & (0xffff if first else 0xffffffff)) + header + data


def array_header(shape: Any = "(24,)", descr: Any = "'<f4'", fortran: str = "False") -> bytes:
  return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()


def npys(n: int) -> dict[str, Callable[[], bytes]]:
  """Arrays with something wrong."""
  h = array_header
  deep = min(n, 30000)
  heads = {
    "nested": h("(" * deep + ")" * deep), "signs": h("(" + "-" * deep + "1,)"), "digits": h("(" + "9" * deep + ",)"),
    "digits without end": b"{'shape': (" + b"1" * deep,
    "many digits": h("(" + "1" * 40 + "x"), "large": h("(2**62,)"), "2**62": h(f"({2 ** 62},)"),
    "product": h(f"({2 ** 32}, {2 ** 32}, 0)"), "below 0": h("(-24,)"),
    "dimensions": h("(" + "1, " * 8000 + ")"), "objects": h(descr="'|O'"), "structured": h(descr="[('a', '<f4')]"),
    "text": h(descr="'<U6'"), "complex": h("(12,)", "'<c8'"),
    "subarray": h("(2,)", "'(3,4)f4'"), "huge subarray": h("(2,)", "'(1000000000,1000000000)f4'"),
    "nested dtypes": h(descr="[" * deep + "]" * deep), "commas": h(descr="'" + "f4," * 12 + "f4'"),
    "a call": h("__import__('os').getcwd()"), "no shape": b"{'descr': '<f4', 'fortran_order': False, }",
    "twice": h()[:-2] + b"'shape': (24,), }", "more": h()[:-2] + b"'x': 1, }",
    "spaces": b"{" + b" " * 70000 + h()[1:], "names": b"{" + b"'a'," * 10000, "no dict": b"[1]", "fortran 2": h(fortran="2"),
    "empty": b"", "bytes": bytes(range(256))}
  return {**{k: lambda v=v: npy(v) for k, v in heads.items()},  # type: ignore[misc]
          "long header": lambda: npy(h(), length=60000), "longer header": lambda: npy(h(), version=b"\2\0", length=2 ** 31),
          "version 9": lambda: npy(h(), version=b"\x09\0"),
          "too little": lambda: npy(h(), bytes(95)), "too much": lambda: npy(h(), bytes(97)),
          "bools": lambda: npy(h("(96,)", "'|b1'"), bytes([7] * 96))}


# ---- safetensors, gguf, tar, and what datasets read

def tensors(n: int) -> dict[str, Callable[[], bytes]]:
  """Safetensors files with something wrong."""
  def one(shape: str = "[2]", offsets: str = "[0, 8]", dtype: str = '"F32"', more: str = "", name: str = '"a"') -> bytes:
    return f'{{{name}: {{"dtype": {dtype}, "shape": {shape}, "data_offsets": {offsets}{more}}}}}'.encode()
  deep = n // 2
  heads = {
    "nested": b"[" * deep + b"]" * deep, "nested objects": b'{"a":' * (deep // 5) + b"1" + b"}" * (deep // 5),
    "lists": b'{"a": [' + b"[]," * (n // 3) + b"[]]}",
    "objects": b'{"a": [' + b"{}," * (n // 3) + b"{}]}", "numbers": b'{"a": [' + b"999," * (n // 4) + b"1]}",
    "texts": b'{"__metadata__": {' + b",".join([b'"%d":"ab"' % i for i in range(n // 12)]) + b"}",
    "digits": one("[" + "9" * 5000 + "]"), "digits of 4000": one("[" + "9" * 4000 + "]"),
    "product of digits": one("[" + "9" * 4000 + ("," + "9" * 4000) * (n // 5000) + "]"),
    "offset of digits": one(offsets="[0, " + "9" * 4000 + "]"), "dimensions": one("[" + "1," * (n // 2) + "2]"),
    "2**63": one("[9223372036854775808, 0]", "[0, 0]"), "floats": one("[2.0]"),
    "1e400": one("[1e400]"), "NaN": one("[NaN]"), "below 0": one("[-2]"), "true": one("[true, 2]"),
    "other dtype": one(dtype='"C64"'), "dtype of a list": one(dtype="[1]"), "no text": b"{'a': 1}",
    "twice": b'{"a": 1, "a": 2}', "names of digits": one(name='"' + "a" * deep + '"', shape="[3]"),
    "overlap": b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, '
               b'"b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
    "hole": one("[1]", "[4, 8]"), "turned": one(offsets="[8, 0]"), "a number": b"1", "nothing": b"",
    "surrogates": one(name='"\\ud800"', shape="[3]"), "not UTF-8": b'{"\xff": 1}',
    "metadata": b'{"__metadata__": {"a": 1}}', "metadata deep": b'{"__metadata__": ' + b"[" * 900 + b"]" * 900 + b"}",
    "bools": one("[8]", dtype='"BOOL"')}
  made: dict[str, Callable[[], bytes]] = {k: lambda v=v: safetensors(v, bytes([7] * 8)) for k,
    v in heads.items()}  # type: ignore[misc]
  return {**made, "length": lambda: struct.pack("<Q", 2 ** 63) + b"{}",
    "length of 99 MB": lambda: struct.pack("<Q", 99_000_000) + b"{}", "short": lambda: b"\1\2"}


def indexes(n: int) -> dict[str, Callable[[], bytes]]:
  def where(file: Any) -> Callable[[], bytes]: return lambda: json.dumps({"weight_map": {"a": file}}).encode()
  return {"outside": where("../a.safetensors"), "absolute": where("/etc/a.safetensors"), "NUL": where("a\0.safetensors"),
    "long": where("a" * 5000 + ".safetensors"), "no text": where(["a"]),
          "itself": where("a.index.json"), "deep": lambda: b'{"weight_map": ' + b"[" * n + b"]" * n + b"}",
          "metadata": lambda: b'{"weight_map": {}, "metadata": ' + b"[" * (n // 2),
          "other": lambda: b'{"weight_map": 3}', "missing": where("b.safetensors")}


def ggufs(n: int) -> dict[str, Callable[[], bytes]]:
  """GGUF files with something wrong."""
  def file(values: bytes = b"", tensors: bytes = b"", counts: tuple[int, int] | None = None, version: int = 3) -> bytes:
    a, b = counts or (1 if tensors else 0, 1 if values else 0)
    return b"GGUF" + struct.pack("<IQQ", version, a, b) + values + tensors
  def text(x: bytes) -> bytes: return struct.pack("<Q", len(x)) + x
  def value(kind: int, x: bytes, name: bytes = b"a") -> bytes: return text(name) + struct.pack("<I", kind) + x
  def entry(ndim: int = 1, sizes: bytes = struct.pack("<Q", 8), kind: int = 0, begin: int = 0, name: bytes = b"t") -> bytes:
    return text(name) + struct.pack("<I", ndim) + sizes + struct.pack("<IQ", kind, begin)
  return {
    "tensors": lambda: file(counts=(BIG, 0)), "values": lambda: file(counts=(0, BIG)),
    "text": lambda: file(value(8, struct.pack("<Q", 2 ** 64 - 1))), "name": lambda: file(struct.pack("<Q", 2 ** 63) + b"a"),
    "list": lambda: file(value(9, struct.pack("<IQ", 0, 2 ** 62))),
    "list of lists": lambda: file(value(9, struct.pack("<IQ", 9, 2 ** 62))),
    "nested": lambda: file(value(9, struct.pack("<IQ", 9, 1) * (n // 12))),
    "empty texts": lambda: file(value(9, struct.pack("<IQ", 8, n // 8) + bytes(n // 8 * 8)), counts=(1, 1)),
    "empty lists": lambda: file(value(9, struct.pack("<IQ", 9, n // 12) + struct.pack("<IQ", 0, 0) * (n // 12)), counts=(1, 1)),
    "bools": lambda: file(value(9, struct.pack("<IQ", 7, n) + bytes(n)), counts=(1, 1)),
    "shorts": lambda: file(value(9, struct.pack("<IQ", 3, n // 2) + b"\1\2" * (n // 2)), counts=(1, 1)),
    "type 99": lambda: file(value(99, b"")), "dimensions": lambda: file(tensors=entry(2 ** 31)),
    "many dimensions": lambda: file(tensors=entry(n // 8, struct.pack("<Q", 1) * (n // 8)) + bytes(64)),
    "size": lambda: file(tensors=entry(1, struct.pack("<Q", 2 ** 63)) + bytes(64)),
    "product": lambda: file(tensors=entry(2, struct.pack("<2Q", 2 ** 40, 2 ** 40)) + bytes(64)),
    "place": lambda: file(tensors=entry(begin=2 ** 63) + bytes(64)),
    "place between": lambda: file(tensors=entry(begin=7) + bytes(99)),
    "alignment 0": lambda: file(value(4, bytes(4), b"general.alignment"), entry() + bytes(64)),
    "alignment 2**31": lambda: file(value(4, struct.pack("<I", 2 ** 31), b"general.alignment"), entry() + bytes(64)),
    "alignment of text": lambda: file(value(8, text(b"x"), b"general.alignment"), entry() + bytes(64)),
    "alignment of a list": lambda: file(value(9, struct.pack("<IQ", 0, 0), b"general.alignment"), entry() + bytes(64)),
    "type of a tensor": lambda: file(tensors=entry(kind=77) + bytes(64)),
    "half a block": lambda: file(tensors=entry(kind=2) + bytes(64)),
    "twice": lambda: file(tensors=entry() + entry(begin=32) + bytes(128), counts=(2, 0)),
    "in each other": lambda: file(tensors=entry() + entry(name=b"u") + bytes(128), counts=(2, 0)),
    "value twice": lambda: file(value(4, bytes(4)) * 2, counts=(0, 2)), "version 7": lambda: file(version=7),
    "big-endian": lambda: b"GGUF" + struct.pack(">IQQ", 3, 0, 1),
    "long name": lambda: file(tensors=entry(kind=77, name=b"n" * n) + bytes(64)),
    "not UTF-8": lambda: file(value(8, text(b"\xff")))}


def tars(n: int) -> dict[str, Callable[[], bytes]]:
  """Tar archives with something wrong."""
  def block(name: bytes = b"a", size: bytes = b"00000000005\0", kind: bytes = b"0", sum_: int | None = None) -> bytes:
    h = bytearray(name[:100].ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size + b"00000000000\0" + b" " * 8 + kind
                  + bytes(100) + b"ustar\x0000" + bytes(247))
    h[148:156] = b"%06o\0 " % ((sum(h) if sum_ is None else sum_) & 0o777777)
    return bytes(h)
  data, end = b"hello".ljust(512, b"\0"), bytes(1024)
  def pax(text: bytes) -> bytes:
    return block(size=b"%011o\0" % len(text), kind=b"x") + text.ljust(-(-len(text) // 512) * 512, b"\0")
  def packed(pack: Callable[[bytes], bytes]) -> bytes: return pack(block(size=b"%011o\0" % (100 << 20)) + bytes(100 << 20) + end)
  return {
    "size beyond": lambda: block(size=b"77777777777\0") + data + end,
    "size of bytes": lambda: block(size=b"\x80" + b"\xff" * 11) + data + end,
    "size below 0": lambda: block(size=b"\xff" * 12) + data + end,
    "size of text": lambda: block(size=b"hello world\0") + data + end, "checksum": lambda: block(sum_=1) + data + end,
    "checksum of the second": lambda: block() + data + block(b"b", sum_=1) + data + end,
    "absolute": lambda: block(b"/etc/x") + data + end, "outside": lambda: block(b"../x") + data + end,
    "NUL in front": lambda: block(b"\0a") + data + end, "twice": lambda: (block() + data) * 2 + end,
    "sparse": lambda: block(kind=b"S") + data + end,
    "sparse of POSIX": lambda: pax(b"22 GNU.sparse.major=1\n") + block() + data + end,
    "long name": lambda: block(size=b"77777777777\0", kind=b"L") + end,
    "name of NUL": lambda: block(size=b"%011o\0" % 2, kind=b"L") + bytes(512) + block() + data + end,
    "attributes": lambda: pax(b"1" * min(n, 10 ** 5)) + block() + data + end,
    "attributes without a name": lambda: pax(b"9 aaaaaaa\n") + block() + data + end,
    "attributes of 0": lambda: pax(b"0 a=b\n") + block() + data + end,
    "size in attributes": lambda: pax(b"25 size=9999999999999999\n") + block() + data + end,
    "path in attributes": lambda: pax(b"13 path=../x\n") + block() + data + end,
    "many digits": lambda: pax(b"".join([b"%d " % i for i in range(min(n, 20000))])) + block() + data + end,
    "half a block": lambda: (block() + data + end)[:700], "text": lambda: b"hello" * 200,
    "gzip": lambda: packed(lambda x: gzip.compress(x, 9)), "bzip2": lambda: packed(bz2.compress),
    "xz": lambda: packed(lzma.compress), "gzip of gzip": lambda: gzip.compress(gzip.compress(bytes(n)) * 3)[:-4],
    "gzip without end": lambda: gzip.compress(whole("tar"))[:-20],
    "xz with a large window": lambda: lzma.compress(whole("tar"),
      filters=[{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 30}])}


def pictures(n: int) -> dict[str, tuple[str, Callable[[], bytes]]]:
  """Pictures and tables with something wrong."""
  from PIL import Image
  def png(side: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side)).save(out, "png", compress_level=9)
    return out.getvalue()
  idx = bytes([0, 0, 8, 3])
  return {
    "idx of large sizes": ("idx", lambda: idx + b"\xff" * 12),
    "idx of 255 dimensions": ("idx", lambda: bytes([0, 0, 8, 255]) + b"\xff" * 1020),
    "idx of 200 ones": ("idx", lambda: bytes([0, 0, 8, 200]) + struct.pack(">I", 1) * 200 + b"\1"),
    "idx of another type": ("idx", lambda: bytes([0, 0, 99, 1])),
    "idx bomb": ("idx.gz", lambda: gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", 100 << 20) + bytes(100 << 20), 9)),
    "idx in gzip without end": ("idx.gz", lambda: gzip.compress(whole("idx"))[:-8]),
    "ppm of large sizes": ("ppm", lambda: b"P6 99999 99999 255\n" + bytes(99)),
    "ppm of digits": ("ppm", lambda: b"P3 4 4 255\n" + b"9" * n),
    "ppm of words": ("ppm", lambda: b"P3 4 4 255\n" + b"1 " * 47 + b"x"),
    "ppm of comments": ("ppm", lambda: b"P6 " + b"#\n" * (n // 2) + b"4"),
    "bmp of large sizes": ("bmp", lambda: whole("bmp")[:18] + b"\xff\xff\xff\x7f" * 2 + whole("bmp")[26:]),
    "bmp below 0": ("bmp", lambda: whole("bmp")[:18] + b"\0\0\0\x80" * 2 + whole("bmp")[26:]),
    "npy of objects": ("npy", lambda: npy(array_header("(24,)", "'|O'"))),
    "npy of large sizes": ("npy", lambda: npy(array_header(f"({2 ** 40},)", "'|u1'"))),
    "npy nested": ("npy", lambda: npy(array_header("(" * 5000 + ")" * 5000))),
    "npy of 0": ("npy", lambda: npy(array_header("(0, 4)", "'|u1'"), b"")), "png bomb": ("png", lambda: png(9000)),
    "png larger": ("png", lambda: png(14000)),
    "png without end": ("png", lambda: whole("png")[:-20]), "csv of columns": ("csv", lambda: b"," * n + b"\n"),
    "csv of rows": ("csv", lambda: b"a,b\n" + b"1\n" * 9), "csv of a quote": ("csv", lambda: b'a,b\n"' + b"x" * n),
    "csv of one text": ("csv", lambda: b"a,b\n" + b"x,1\n" * 5000 + b"y" * 100_000 + b",1\n"),
    "csv of NUL": ("csv", lambda: b"a,b\n\0,\xff\n"),
    "csv of names": ("csv", lambda: b",".join([b"%d" % i for i in range(n // 8)] * 2) + b"\n1\n"),
    "nothing": ("csv", lambda: b"")}


def hostile_files(rng: np.random.Generator, most: int = 10 ** 6) -> Iterator[Callable[[], Case]]:
  """Every attack in some size up to ``most``."""
  def size() -> int: return int(most // 10 ** rng.integers(2) * rng.uniform(.5, 1))
  good = {"pt": Entry(b"a/data.pkl", b"\x80\2}."), "npz": Entry(b"a.npy", npy(array_header())), "zip": Entry(b"a", b"hello" * 9)}
  for kind, member in good.items():
    for name, make in zips(n := size(), kind, member).items():
      if kind == "npz" and name in ("absolute", "outside", "outside, far", "backslash"): continue   # names, no paths
      yield partial(_case, name, kind, make, n)
  for kind, table in (("npz", npys), ("safetensors", tensors), ("index.json", indexes), ("gguf", ggufs), ("tar", tars)):
    for name, make in table(n := size()).items():
      yield partial(_case, name, kind, (lambda make=make: zipped([Entry(b"a.npy", make())])) if kind == "npz" else make, n)
      if kind == "npz": yield partial(_case, "packed, " + name, kind, lambda make=make: zipped([packed(b"a.npy", make())]), n)
  for name, (kind, make) in pictures(n := size()).items(): yield partial(_case, name, kind, make, n)
  bombs: dict[str, tuple[str, Callable[[], list[Entry]]]] = {
    "bomb of a pickle": ("pt", lambda: [bomb(b"a/data.pkl", b"\x80\2", 300 << 20)]),
    "bomb of a byte order": ("pt", lambda: [good["pt"], bomb(b"a/byteorder", b"little", 300 << 20)]),
    "bomb of a header": ("npz", lambda: [bomb(b"a.npy", b"", 300 << 20)])}
  for name, (kind, entries) in bombs.items(): yield partial(_case, name, kind, lambda entries=entries: zipped(entries()), 0)


def packed(name: bytes, data: bytes) -> Entry: return Entry(name, deflated(data), method=8, size=len(data), crc=zlib.crc32(data))


def _case(name: str, kind: str, make: Callable[[], bytes], n: int) -> Case:
  return Case(f"{name}, {n}", kind, make(), name != "png without end")   # which pillow reads
