"""Pickles made to do harm, in all files that have pickles: each attack in several sizes; and instructions at random."""
from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from support.file_cases import Case, F, X
from support.torch_pickle import Raw, code, pickled, tarred, tensor

MASK = 2 ** 61 - 1   # numbers that differ by it have one hash


def integer(x: int) -> bytes:
  raw = x.to_bytes(x.bit_length() // 8 + 1, "little", signed=True)
  return b"\x8b" + struct.pack("<I", len(raw)) + raw


def text(x: bytes) -> bytes: return b"X" + struct.pack("<I", len(x)) + x
def number(n: int) -> bytes: return b"J" + struct.pack("<i", n)
def name(module: str, word: str) -> bytes: return f"c{module}\n{word}\n".encode()
def call(module: str, word: str, *args: bytes) -> bytes: return name(module, word) + b"(" + b"".join(args) + b"tR"
def deep(n: int) -> bytes: return b"N" + b"\x85" * n
def doubled(n: int) -> bytes: return b"N\x85" + b"2\x86" * min(n, 10 ** 4)
def rebuild(size: tuple[Any, ...], stride: tuple[Any, ...],
  offset: Any = 0) -> bytes: return code(tensor(F, offset, size, stride))
def place(key: bytes, kind: bytes = b"ctorch\nFloatStorage\n", size: bytes = b"K\x18", where: bytes = text(b"cpu")) -> bytes:
  return b"(" + text(b"storage") + kind + key + where + size + b"tQ"


def doubled_list(n: int) -> bytes:
  """A list that has a list twice, which has a list twice, .."""
  out = [b"]\x94"]
  for i in range(min(n, 5000)): out.append(b"0](j%sj%se\x94" % ((struct.pack("<I", i),) * 2))
  return b"".join(out)


def again(made: bytes, module: str, word: str, times: int = 3000) -> bytes:
  """A call of one large value, over and over."""
  return made + b"\x940" + name(module, word) + b"\x940](" + b"h\1h\0\x85R" * times + b"e"


def distinct(n: int, end: bytes = b"") -> bytes: return b"".join([number(i) + end for i in range(min(n, 10 ** 5))])


# instructions that leave one value, for a number n that says how much of it
DEEP: dict[str, Callable[[int], bytes]] = {
  "tuple": deep, "list": lambda n: b"]" * n + b"a" * (n - 1), "dict": lambda n: b"}" + b"N}" * n + b"s" * n,
  "key": lambda n: b"}" + deep(n) + b"Ns", "keys": lambda n: b"}(" + deep(n) + b"NNNu",
  "marked key": lambda n: b"(" + deep(n) + b"Nd",
  "member": lambda n: b"\x8f(" + deep(n) + b"\x90", "frozen member": lambda n: b"(" + deep(n) + b"\x91",
  "frozensets": lambda n: b"(" * n + b"N" + b"\x91" * n, "lists and tuples": lambda n: b"]" * n + b"\x85a" * (n - 1),
  "pairs": lambda n: call("collections", "OrderedDict", b"](" + deep(n) + b"N\x86e"),
  "counted": lambda n: call("collections", "Counter", b"](" + deep(n) + b"N\x86e"),
  "set": lambda n: call("builtins", "set", b"](" + deep(n) + b"e"), "frozenset": lambda n: call("builtins", "frozenset", deep(n)),
  "pid": lambda n: deep(n) + b"Q", "key of a storage": lambda n: place(deep(n)),
  "class of a storage": lambda n: place(b"K\1", deep(n)),
  "size of a storage": lambda n: place(text(b"0"), size=deep(n)), "first of a pid": lambda n: b"(" + deep(n) + b"NNNNtQ",
  "device": lambda n: call("torch", "device", deep(n)), "layout": lambda n: call("torch.serialization", "_get_layout", deep(n)),
  "slice": lambda n: call("builtins", "slice", deep(n)), "complex": lambda n: call("builtins", "complex", deep(n)),
  "slices": lambda n: name("builtins", "slice") + b"\x94N" + b"\x940h\0h\1\x85R" * min(n, 30000),
  "range": lambda n: call("builtins", "range", deep(n)), "name": lambda n: deep(n) + text(b"a") + b"\x93",
  "encoding": lambda n: call("_codecs", "encode", text(b"a"), deep(n)), "Size": lambda n: call("torch", "Size", deep(n)),
  "state": lambda n: b"N" + deep(n) + b"b", "function": lambda n: deep(n) + b")R",
  "arguments": lambda n: name("torch", "Size") + deep(n) + b"R",
  "tensor": lambda n: call("torch._utils", "_rebuild_parameter", deep(n), b"\x88N"),
  "sizes of a tensor": lambda n: call("torch._utils", "_rebuild_tensor_v2", code(F), b"K\0", deep(n), deep(n), b"\x89N"),
  "dtype of a tensor": lambda n: call("torch._utils", "_rebuild_tensor_v3", code(F), b"K\0K\1\x85K\1\x85\x89N", deep(n)),
  "calls": lambda n: (name("torch._tensor", "_rebuild_from_type_v2") + b"\x940" + name("torch", "Tensor") + b"\x940h\0"
                      + b"(h\0h\1" * n + b")" + b"Nt" * n + b"R")}
DOUBLED: dict[str, Callable[[int], bytes]] = {
  "tuple": doubled, "list": doubled_list, "dict": lambda n: b"}\x94" + b"".join(
    [b"0}(K\1j%sK\2j%su\x94" % ((struct.pack("<I", i),) * 2) for i in range(min(n, 5000))]),
  "key": lambda n: b"}" + doubled(n) + b"Ns", "member": lambda n: call("builtins", "set", b"](" + doubled(n) + b"e"),
  "pid": lambda n: doubled(n) + b"Q", "device": lambda n: call("torch", "device", doubled(n)),
  "names": lambda n: doubled(n) + b"2\x93",
  "error": lambda n: call("torch", "Size", doubled(n)), "list as an error": lambda n: call("torch", "Size", doubled_list(n)),
  "function": lambda n: doubled(n) + b")R", "a set of it": lambda n: call("builtins", "frozenset", doubled(n))}
LARGE: dict[str, Callable[[int], bytes]] = {
  "Size of a range": lambda n: call("torch", "Size", call("builtins", "range", integer(n * 10 ** 6))),
  "set of a range": lambda n: call("builtins", "set", call("builtins", "range", integer(n * 10 ** 6))),
  "bytearray of a number": lambda n: call("builtins", "bytearray", integer(n * 10 ** 6)),
  "complex of text": lambda n: call("builtins", "complex", text(b"1" * n)),
  "copies of text": lambda n: again(text(b"a" * n), "_codecs", "encode", 10 ** 9 // n),
  "copies of bytes": lambda n: again(b"B" + struct.pack("<I", n) + bytes(n), "builtins", "bytearray", 10 ** 9 // n),
  "copies of a list": lambda n: again(b"](" + b"K\1" * n + b"e", "torch", "Size", 10 ** 9 // n),
  "copies of a dict": lambda n: again(b"}(" + distinct(n, b"N") + b"u", "collections", "OrderedDict", 10 ** 8 // n),
  "copies of a set": lambda n: again(b"\x8f(" + distinct(n) + b"\x90", "builtins", "frozenset", 10 ** 8 // n),
  "keys of one hash": lambda n: b"}(" + b"".join([integer(MASK * i) + b"N" for i in range(min(n, 10 ** 5))]) + b"u",
  "members of one hash": lambda n: b"\x8f(" + b"".join([integer(MASK * i) for i in range(min(n, 10 ** 5))]) + b"\x90",
  "complex keys of one hash": lambda n: b"}(" + b"".join(
    [call("builtins", "complex", b"G" + struct.pack(">d", -1000003.0 * i), b"G" + struct.pack(">d", float(i))) + b"N"
     for i in range(2, min(n, 20000))]) + b"u",
  "tuples": lambda n: b"N" + b"\x85" * n, "lists": lambda n: b"]" * n, "dicts": lambda n: b"}" * n, "sets": lambda n: b"\x8f" * n,
  "sets in a list": lambda n: b"](" + b"\x8f" * n + b"e" + b"Na", "pops": lambda n: b"N0" * n, "marks": lambda n: b"(" * n,
  "protocols": lambda n: b"\x80\2" * n, "frames": lambda n: (b"\x95" + bytes(8)) * (n // 4), "copies": lambda n: b"N" + b"2" * n,
  "Nones": lambda n: b"N" * n,
  "memos": lambda n: b"N" + b"\x94" * n + b"\xff",
  "far memos": lambda n: b"N" + b"".join([b"r" + struct.pack("<I", 2 ** 31 + i) for i in range(n // 4)]) + b"\xff",
  "int in digits": lambda n: b"I" + b"9" * n + b"\n", "LONG in digits": lambda n: b"L" + b"9" * n + b"L\n",
  "float in digits": lambda n: b"F" + b"x" * n + b"\n",
  "text without end": lambda n: b"V" + b"a" * n, "quote without end": lambda n: b"S'" + b"\\" * n + b"\n",
  "name": lambda n: b"c" + b"a" * n + b"\nb\n",
  "name in quotes": lambda n: text(b"torch") + text(b"a" * n) + b"\x93",
  "LONG4": lambda n: b"\x8b\xff\xff\xff\x7f", "LONG4 below 0": lambda n: b"\x8b\xff\xff\xff\xff",
  "BINBYTES": lambda n: b"B\xff\xff\xff\xff",
  "BINBYTES8": lambda n: b"\x8e" + struct.pack("<Q", 2 ** 62), "BINUNICODE8": lambda n: b"\x8d" + struct.pack("<Q", 2 ** 64 - 1),
  "BYTEARRAY8": lambda n: b"\x96" + struct.pack("<Q", 2 ** 40), "BINSTRING": lambda n: b"T" + struct.pack("<I", 2 ** 31 + 5),
  "numel": lambda n: place(text(b"0"), size=integer(1 << 8 * n)), "size": lambda n: rebuild((Raw(integer(1 << 8 * n)),), (1,)),
  "offset": lambda n: rebuild((2,), (1,), Raw(integer(1 << 8 * n))),
  "stride": lambda n: rebuild((2,), (Raw(integer(1 << 8 * n)),)),
  "int as key": lambda n: b"}" + integer(1 << 8 * n) + b"Ns",
  "int as device": lambda n: call("torch", "device", text(b"cpu"), integer(1 << 8 * n)),
  "int as function": lambda n: integer(1 << 8 * n) + b")R", "int as memo": lambda n: b"Np" + b"9" * 4000 + b"\n\xff",
  "dimensions": lambda n: rebuild((1,) * min(n, 10 ** 5), (1,) * min(n, 10 ** 5)),
  "numel of sizes": lambda n: rebuild((2 ** 62, 2 ** 62), (0, 0)),
  "sizes": lambda n: call("torch._utils", "_rebuild_tensor_v2", code(F),
    b"K\0(" + integer(2 ** 62) * (n // 20) + b"t(" + b"K\0" * (n // 20) + b"t\x89N"),
  "expanded": lambda n: rebuild((n, 10 ** 6, 10 ** 6), (0, 0, 0)),
  "windows": lambda n: rebuild((12, 12, n, 10 ** 8), (1, 1, 0, 0)),
  "many tensors": lambda n: name("torch._utils", "_rebuild_tensor_v2") + b"\x940(" + code(F) + b"K\0K\2\x85K\1\x85\x89Nt\x940]("
    + b"h\0h\1R" * n + b"e\xff",
  "many storages": lambda n: b"](" + place(text(b"0")) * (n // 20) + b"e\xff"}
ODD: dict[str, bytes] = {
  "a list of itself": b"]\x94h\0a", "itself in a tuple": b"]\x94h\0\x85a", "a dict of itself": b"}\x94" + text(b"a") + b"h\0s",
  "itself, far": b"]\x94" + b"]" * 50 + b"h\0a" + b"a" * 50, "list as key": b"}]Ns", "dict as member": b"\x8f(}\x90",
  "a set as key": b"}\x8fNs",
  "half a pair": b"}(Nu", "no list": b"NNa", "no dict": b"NNNs", "no mark": b"]Ne",
  "a tensor as key": b"}" + rebuild((2,), (1,)) + b"Ns",
  "memo 2**40": b"Np%d\n0" % 2 ** 40, "memo missing": b"j\xff\xff\xff\xff", "memo below 0": b"Np-1\n0g-1\n0",
  "FRAME": b"\x95" + b"\xff" * 8,
  "surrogates": text(b"\xff\xfe"), "stride below 0": rebuild((2, 2), (-2, 1)), "size below 0": rebuild((-2,), (1,)),
  "size of text": rebuild(("a",), (1,)),
  "size of floats": rebuild((2.0,), (1,)), "True as size": rebuild((True,), (1,)), "beyond the storage": rebuild((25,), (1,)),
  "offset beyond": rebuild((1,), (1,), 24), "more strides": rebuild((2,), (1, 1)),
  "no arguments": call("torch._utils", "_rebuild_tensor_v2"),
  "other storage": place(text(b"7")), "a path as storage": place(text(b"../data.pkl")),
  "two kinds": b"(" + code(F) + place(text(b"0"), b"ctorch\nLongStorage\n", b"K\x0c") + b"t",
  "no class": place(text(b"0"), b"ctorch\nNoStorage\n"), "a function as class": place(text(b"0"), b"ctorch\nSize\n"),
  "a dtype as class": place(text(b"0"), b"ctorch\nfloat32\n"),
  "a tensor in a pid": b"(" + rebuild((2,), (1,)) + b"NNNNtQ", "a number as pid": b"K\1Q", "text as pid": b"Pabc\n",
  "an empty pid": b")Q",
  "view of a storage": b"(" + text(b"storage") + name("torch", "FloatStorage") + text(b"0") + text(b"cpu") + b"K\x18N\x85tQ",
  "arrays": call("numpy.core.multiarray", "_reconstruct", b"cnumpy\nndarray\n", b"K\0\x85", b"C\1b") + b"(K\1K\1\x85"
    + call("numpy", "dtype", text(b"O8")) + b"\x89]tb",
  "scalars": call("numpy.core.multiarray", "scalar", b"NN"), "INST": b"(ios\nsystem\n", "NEWOBJ": b"cbuiltins\nset\n)\x81",
  "NEWOBJ_EX": b"cbuiltins\nset\n)}\x92", "OBJ": b"(cbuiltins\nset\no", "EXT1": b"\x82\1", "EXT4": b"\x84\1\0\0\0",
  "NEXT_BUFFER": b"\x97", "READONLY": b"N\x98",
  "system": call("posix", "system", text(b"true")), "getattr": call("builtins", "getattr", b"cbuiltins\nset\n", text(b"__doc__")),
  "dotted": text(b"torch") + text(b"Size.__init__") + b"\x93", "a call of a tensor": rebuild((2,), (1,)) + b")R",
  "state of a tensor": rebuild((2,), (1,)) + b"}b",
  "state of a list": b"]}b", "state of a set": b"\x8f}b", "a mark left": b"N(", "nothing": b"", "no instruction": b"\xff",
  "a list called": b"ctorch\nSize\n]R",
  "two values": b"NN", "a storage of a view": call("torch._utils", "_rebuild_tensor_v2", rebuild((2,), (1,)),
    b"K\0K\1\x85K\1\x85\x89N"),
  "a tensor of None": call("torch._utils", "_rebuild_tensor_v2", b"N", b"K\0K\1\x85K\1\x85\x89N")}


def file_of(how: str, instructions: bytes) -> tuple[str, bytes]:
  """The kind and the bytes of a file in which a pickle stands."""
  data = b"\x80\2" + instructions + b"."
  if how == "line.pt":
    head = b"".join(map(pickled, (0x1950a86a20f9469cfc6c, 1001, {"little_endian": True})))
    return how, head + data + pickled(["0"]) + struct.pack("<q", 24) + X.tobytes()
  if how in ("first.pt", "cifar"): return "line.pt" if how == "first.pt" else how, data
  if how == "tar.pt": return how, tarred(Raw(instructions), {1: ("Float", 24, X.tobytes())}, {7: (1, (2, 3), (1, 2), 3)}, [])
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if how == "packed.pt" else zipfile.ZIP_STORED) as z:
    for part, inner in (("data.pkl", data), ("byteorder", b"little"), ("data/0", X.tobytes()), ("version", b"3\n")):
      z.writestr("a/" + part, inner)
  return "pt", out.getvalue()


HOWS = ("pt", "line.pt", "cifar", "packed.pt", "first.pt", "tar.pt")


def hostile_pickles(rng: np.random.Generator, most: int = 10 ** 6) -> Iterator[Callable[[], Case]]:
  """Every attack, in a zip archive and in another file, in some size up to ``most``. What a pickle asks for in a file of torch
  0.1 is another thing, and some of it is there."""
  for group, attacks in (("deep", DEEP), ("doubled", DOUBLED), ("large", LARGE)):
    for attack, make in attacks.items():
      for how in ("pt", HOWS[rng.integers(1, len(HOWS))]):
        n = int(most // 10 ** rng.integers(2) * rng.uniform(.5, 1))
        yield partial(_case, f"{group} {attack}, {n}", how, make, n)
  for attack, made in ODD.items():
    for how in ("pt", HOWS[rng.integers(1, len(HOWS))]): yield partial(_case, attack, how, lambda _, made=made: made,
      0)  # type: ignore[misc]


def _case(name: str, how: str, make: Callable[[int], bytes], n: int) -> Case:
  return Case(f"{name}, in {how}", *file_of(how, make(n)), how != "tar.pt")


_SMALL = (b"N", b"]", b"}", b")", b"\x8f", b"(", b"K\1", text(b"a"), b"G" + bytes(8), b"C\2hi", b"\x88", integer(2 ** 70), b"K\0",
  text(b"cpu"))
_NAMES = (("torch", "Size"), ("collections", "OrderedDict"), ("builtins", "set"), ("builtins", "slice"), ("torch", "device"),
  ("_codecs", "encode"),
          ("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_parameter"), ("torch", "FloatStorage"),
          ("builtins", "bytearray"),
          ("builtins", "complex"), ("torch", "float32"), ("builtins", "range"), ("os", "system"),
          ("torch._tensor", "_rebuild_from_type_v2"))


def random_pickle(rng: np.random.Generator) -> Case:
  """Instructions at random, most of them such as may stand behind those before."""
  def some(of: tuple[Any, ...]) -> Any: return of[rng.integers(len(of))]
  makes: tuple[Callable[[], bytes], ...] = (
    lambda: some(_SMALL), lambda: some(_SMALL), lambda: some(_SMALL), lambda: name(*some(_NAMES)), lambda: b"\x85R",
    lambda: b"\x94",
    lambda: b"h" + bytes([rng.integers(8)]), lambda: some((b"\x85", b"\x86", b"\x87", b"t", b"l", b"d", b"\x91")),
    lambda: some((b"a", b"e", b"s", b"u", b"\x90")), lambda: some((b"R", b"b", b"Q", b"\x93", b"2", b"0", b"1")), lambda: code(F),
    lambda: rebuild((int(rng.integers(6)),), (int(rng.integers(4)),), int(rng.integers(5))),
    lambda: b"(" + b"N" * int(rng.integers(9)) + b"t",
    lambda: rng.bytes(int(rng.integers(1, 4))))
  made = b"".join([some(makes)() for _ in range(int(rng.integers(3, 100)))])
  return Case("random instructions", *file_of(some(HOWS), made), False)
