"""Records: what is written is read as it was; bytes of any other kind are refused, whatever their checksum; nothing is run."""
from __future__ import annotations

import json
import math
import pickle
import random
import struct
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ntgrad.backends.base import KernelSource, ProgramSpec
from ntgrad.backends.cuda.compiler import BINARY, Binary
from ntgrad.backends.opencl import binaries
from ntgrad.backends.specs import SOURCE, SPEC, WORK, check
from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.bound import Operations, Unit, Work
from ntgrad.codegen.index import records
from ntgrad.codegen.index.records import (
  BOOL,
  BYTES,
  CONDITION,
  COUNT,
  COUNTS,
  DIM,
  DTYPE,
  FLOAT,
  INT,
  NODE,
  PLAIN,
  SIZE,
  STR,
  TEXT,
  ZIPPED,
  Between,
  Form,
  Maybe,
  OneOf,
  RecordError,
  Sequence,
  Table,
  TupleForm,
  opened,
  packed,
  sealed,
  unpacked,
)
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UnaryOps, UOp
from ntgrad.engine import compile as compiling, plan_cache
from ntgrad.graph.variable import BoundInt
from support.marks import long

N, M = ix.Size("N", 1, 1 << 40, hint=100), ix.Size("größe", constexpr=True, unit=16, wide=True)
n, m = N.node, M.node
GRID = ix.number(ix.add(ix.mul(ix.cdiv(n, 64), ix.greatest(m, ix.const(1))), ix.mod(n, 7)))
SOURCES = [
  KernelSource("text"),
  KernelSource("a\0\n\ud800é" * 500, (("data0", "__global float*"), ("n", "long")), (("num_warps", 4),), ("a helper", "a helper"),
               ((0, 4), (1, 16)), ("before ", "(after)"), 7.25, (dtypes.int32, dtypes.int64)),
]
SPECS = [
  ProgramSpec("k", SOURCES[0], (3, 4, 5), (1, 2, 1), 3),
  ProgramSpec("k_2", SOURCES[1], (GRID, 1, 1), (32,), 2, (),
              Work(GRID, (Operations(Unit.MATRIX, "float16", 1 << 70),), (4, GRID)), (("num_stages", 3),), (M, N)),
]
VALUES: list[tuple[Form[Any], list[Any]]] = [
  (BOOL, [True, False]),
  (INT, [0, -1, (1 << 63) - 1, -(1 << 63), 1 << 63, 10 ** 6000, -(10 ** 6000)]),
  (COUNT, [0, 5]),
  (FLOAT, [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf]),
  (STR, ["", "a", "\0", "ä\ud800\U0001f600", '"\\\n', "x" * 100_000]),
  (TEXT, ["", "ä\ud800\0"]),
  (BYTES, [b"", b"\0\xff" * 1000]),
  (ZIPPED, [b"", b"abc", bytes(10 ** 6), random.Random(0).randbytes(10_000)]),
  (Maybe(INT), [None, 0]),
  (Maybe(Maybe(INT)), [None, 5]),
  (Sequence(STR), [(), ("a", "b")]),
  (COUNTS, [(), (0, 1 << 62)]),
  (TupleForm(INT, STR), [(1, "a")]),
  (Table(STR, INT), [{}, {"a": 1, "": 2}]),
  (OneOf({"a": 1, "b": 2}), [1, 2]),
  (DTYPE, [*dtypes.all, dtypes.index, dtypes.float32.vec(4), dtypes.bool.vec(16)]),
  (SIZE, [N, M, ix.Size("x", -5, None, True, True, True)]),
  (DIM, [0, -7, 1 << 80, n, GRID]),
  (NODE, [n, ix.lt(n, m), ix.both(ix.lt(n, 5), ix.eq(ix.mod(m, 4), 0)), ix.TRUE, ix.const(-(1 << 70))]),
  (CONDITION, [ix.lt(n, m), ix.FALSE]),
  (WORK, [Work(), SPECS[1].work]),
  (SOURCE, SOURCES),
  (SPEC, SPECS),
  (BINARY, [Binary("k", "sm_90", b"\x7fELF\0", "ptx\n\xff", 4, 1, 1 << 17, 0, 1)]),
  (compiling.PROGRAM_FORM, [(s, (ix.lt(n, 9),)) for s in SPECS] + [(SPECS[0], ())]),
  (plan_cache.PLAN_FORM, [
    (0, (), (), (), ()),
    (2, (("CPU", (3, 0, 4), dtypes.float32), ("CPU", (), dtypes.bool)), (2, 0), (5,), (
      (SPECS[0], (2, 0, 1), (0,), (), "CPU", (0, 4, 512), (7, 8), ()),
      (None, (3, 2), (0,), (2,), "NUMPY", (), (), ()), (SPECS[1], (2, 3), (0,), (), "CPU", (), (), (100, -(1 << 31))))),
  ]),
  (binaries.FORM, [
    ("source", False, {}, b"binary", ()),
    ("source", True, {"k": (3, 64)}, None, (("AB/CD/program.bc", b"x" * 1000), ("AB/CD/last_accessed", b""))),
  ]),
]
PAIRS = [(form, v) for form, values in VALUES for v in values]


def same(a: Any, b: Any) -> bool:
  """Equal, of the same types, floats by their bits."""
  if type(a) is not type(b): return False
  if isinstance(a, float): return struct.pack("d", a) == struct.pack("d", b) or math.isnan(a) and math.isnan(b)
  if isinstance(a, (tuple, list)) and type(a) in (tuple, list): return len(a) == len(b) and all(map(same, a, b))
  if isinstance(a, dict): return list(map(repr, a)) == list(map(repr, b)) and all(map(same, a.values(), b.values()))
  return bool(a is b if isinstance(a, UOp) else a == b)


@pytest.mark.parametrize("form, value", PAIRS, ids=[f"{type(f).__name__}{i}" for i, (f, _) in enumerate(PAIRS)])
def test_what_is_written_is_read(form: Form[Any], value: Any) -> None:
  body = packed(form, value, "its name")
  assert same(unpacked(form, body, "its name"), value) and packed(form, value, "its name") == body
  assert opened(sealed(body)) == body
  with pytest.raises(RecordError, match="not 'another'"): unpacked(form, body, "another")


def test_records_have_all_that_a_kernel_is() -> None:
  """A field that comes to one of these classes comes to its form, too."""
  left_out = {ProgramSpec: {"uops", "given", "again"}}
  for form, cls in ((SPEC, ProgramSpec), (SOURCE, KernelSource), (WORK, Work), (BINARY, Binary)):
    assert {*form.names} == {f.name for f in fields(cls)} - left_out.get(cls, set())   # type: ignore[attr-defined]
  assert set(SIZE.names) == set(ix.Size._fields)   # type: ignore[attr-defined]
  spec = replace(SPECS[0], uops=(n,), given="label", again=lambda: None)
  assert unpacked(SPEC, packed(SPEC, spec)) == SPECS[0]
  assert unpacked(SPEC, packed(SPEC, spec)).again is None and pickle.loads(pickle.dumps(spec)).again is None


def plain(rng: random.Random, depth: int = 0) -> Any:
  """Some plain value."""
  kind = rng.randrange(7 if depth > 4 else 10)
  if kind == 0: return rng.choice([None, True, False])
  if kind in (1, 2): return rng.choice([1, -1]) * rng.getrandbits(rng.choice([1, 8, 62, 63, 64, 20_000]))
  if kind in (3, 4): return rng.choice([struct.unpack("d", rng.randbytes(8))[0], rng.random(), 0.0, -0.0, math.inf, -math.inf])
  if kind == 5: return "".join([chr(rng.randrange(1 << rng.choice([7, 8, 16, 20]))) for _ in range(rng.randrange(20))])
  if kind == 6: return rng.randbytes(rng.randrange(50))
  items = [plain(rng, depth + 1) for _ in range(rng.randrange(5))]
  if kind == 9: return {rng.choice([i, str(i), (i,), i + 0.5, None, bytes([i])]): v for i, v in enumerate(items)}
  return tuple(items) if kind == 7 else items


def test_plain_values() -> None:
  rng = random.Random(1)
  for _ in range(2000):
    value = plain(rng)
    assert same(unpacked(PLAIN, packed(PLAIN, value)), value)


def expression(rng: random.Random, sizes: list[UOp]) -> UOp:
  u = rng.choice([*sizes, ix.const(rng.randrange(-5, 100))])
  for _ in range(rng.randrange(8)):
    v = rng.choice([*sizes, ix.const(rng.randrange(1, 100))])
    u = rng.choice([ix.add, ix.sub, ix.mul, ix.fdiv, ix.mod, ix.greatest, ix.least])(u, v)
  return u


@long
def test_expressions_are_read_as_the_same_nodes() -> None:
  rng = random.Random(2)
  sizes = [ix.Size(name, 1, top).node for name, top in (("A", None), ("B", 1000), ("C", 1 << 40))]
  for _ in range(300):
    value = tuple([ix.number(expression(rng, sizes)) for _ in range(4)])
    found = unpacked(Sequence(DIM), packed(Sequence(DIM), value))
    assert all(a is b or type(a) is int and a == b for a, b in zip(value, found))
    conditions = tuple([rng.choice([ix.lt, ix.eq])(expression(rng, sizes), expression(rng, sizes)) for _ in range(3)])
    assert all(a is b for a, b in zip(conditions, unpacked(Sequence(CONDITION), packed(Sequence(CONDITION), conditions))))


def test_an_expression_may_be_deep() -> None:
  """Deeper than Python's stack, as graphs may be."""
  u = n
  for i in range(5000): u = UOp(Ops.ALU, ix.INT, (u, m if i % 2 else n), BinaryOps.MAX)
  assert unpacked(NODE, packed(NODE, u)) is u


def test_numbers_that_remember_are_numbers() -> None:
  assert type(unpacked(COUNTS, packed(COUNTS, (BoundInt.of(3, n), True + 1)))[0]) is int


# ---- what has no form

@pytest.mark.parametrize("form, value", [
  (INT, True), (INT, 1.0), (INT, "1"), (BOOL, 1), (FLOAT, 1), (STR, b"a"), (TEXT, 1), (BYTES, "a"), (BYTES, bytearray(b"a")),
  (ZIPPED, None), (COUNT, -1), (COUNTS, (1, -1)), (COUNTS, (True,)), (Between(1, 5), 6), (TupleForm(INT), (1, 2)),
  (OneOf({"a": 1}), 2), (DTYPE, "float32"), (PLAIN, object()), (PLAIN, {1}), (PLAIN, dtypes.int32), (SPEC, SOURCES[0]),
  (NODE, UOp(Ops.LOAD, dtypes.float32)), (NODE, UOp.const(dtypes.float32, 1.0)), (NODE, UOp.alu(UnaryOps.NEG, n)), (DIM, 1.5),
])
def test_what_has_no_form_is_not_written(form: Form[Any], value: Any) -> None:
  with pytest.raises(RecordError): packed(form, value)


def test_plain_values_have_an_end() -> None:
  deep: Any = []
  for _ in range(100_000): deep = [deep]
  itself: list[Any] = []
  itself.append(itself)
  for value in (deep, itself):
    with pytest.raises(RecordError, match="deep"): packed(PLAIN, value)
  while deep: deep = deep[0]


# ---- bytes of other kinds

def record(value: Any, nodes: Any = (), blobs: Any = (), name: str = "") -> bytes:
  """A body as anybody may write one."""
  text = json.dumps([name, list(nodes), list(map(len, blobs)), value]).encode()
  return struct.pack("<Q", len(text)) + text + b"".join(blobs)


SIZED = ["SIZE", ["N", None, None, False, False, False, 1, None, False]]


def test_the_hand_written_form_is_right() -> None:
  assert unpacked(TupleForm(INT, TEXT), record([3, 0], blobs=[b"abc"])) == (3, "abc")
  assert unpacked(DIM, record([2], [SIZED, ["CONST", 3], ["MUL", 0, 1]])) is ix.mul(ix.Size("N").node, 3)


@pytest.mark.parametrize("form, body", [
  (INT, b""), (INT, b"\0" * 7), (INT, b"\0" * 8), (INT, struct.pack("<Q", 1 << 60) + b"1"), (INT, b"not a record at all"),
  (INT, struct.pack("<Q", 2) + b"[]"), (INT, struct.pack("<Q", 200_000) + b"[" * 200_000),
  (INT, struct.pack("<Q", 3) + b"\xff" * 3),
  (INT, record(True)), (INT, record(1.0)), (INT, record(None)), (INT, record("z")), (INT, record([])), (INT, record({})),
  (INT, record(1, name="x")), (INT, record(1, blobs=[b"x"]) + b"y"), (COUNT, record(-1)),
  (COUNTS, record([1, "a"])), (COUNTS, record([1, -1])), (COUNTS, record([1, True])), (COUNTS, record([1, 1.0])),
  (COUNTS, record(7)),
  (COUNTS, record({"0": 1})), (STR, record(7)), (TEXT, record(0)), (TEXT, record(-1, blobs=[b"a"])),
  (TEXT, record("0", blobs=[b"a"])),
  (TEXT, record(True, blobs=[b"a", b"b"])), (TEXT, record(0, blobs=[b"\xff"])), (TEXT, record([0], blobs=[b"a"])),
  (BYTES, record(5, blobs=[b"a"])), (ZIPPED, record([0, 1], blobs=[b"a"])), (ZIPPED, record([0, 1 << 50], blobs=[b"a" * 100])),
  (Maybe(INT), record(5)), (Maybe(INT), record([1, 2])), (TupleForm(INT, INT), record([1])), (TupleForm(INT, INT), record("ab")),
  (Table(STR, INT), record([["a", 1], ["a", 2]])), (Table(STR, INT), record([["a"]])), (Table(STR, INT), record({"a": 1})),
  (OneOf({"a": 1}), record("b")), (DTYPE, record("float33")), (DTYPE, record(["float32", 1 << 40])),
  (DTYPE, record(["float32", 1])),
  (SIZE, record(["N", None, None, False, False, False, 0, None, False])), (SIZE, record(["N"])), (PLAIN, record(["set", 1])),
  (PLAIN, record(["dict", 1])), (PLAIN, record(["dict", ["list"], 1])), (PLAIN, record({})), (PLAIN, record([])),
  (PLAIN, record(["int", True])), (NODE, record(0)), (NODE, record(0, [["LOAD", 0]])), (NODE, record(0, [["CONST", 1.5]])),
  (NODE, record(0, [["CONST"]])), (NODE, record(0, [["ADD", 0, 0]])), (NODE, record(1, [["CONST", 1], ["ADD", 0, 1]])),
  (NODE, record(1, [["CONST", 1], ["ADD", 0]])), (NODE, record(1, [["CONST", 1], ["ADD", 0, -1]])),
  (NODE, record(2, [SIZED, ["CONST", 0], ["IDIV", 0, 1]])), (NODE, record(1, [SIZED, ["MOD", 0, 0]])),
  (NODE, record(2, [SIZED, ["CONST", True], ["ADD", 0, 1]])), (NODE, record(1, [SIZED, ["AND", 0, 0]])),
  (NODE, record(0, 5 * [7])),
  (NODE, record(0, [SIZED, {}])), (CONDITION, record(0, [SIZED])), (DIM, record([0], [["CONST", True]])), (DIM, record("a")),
])
def test_other_bytes_are_refused(form: Form[Any], body: bytes) -> None:
  with pytest.raises(RecordError): unpacked(form, body)


def test_a_small_record_is_not_a_large_value() -> None:
  """Compressed bytes say how many they become, and become no more."""
  import zlib
  bomb = zlib.compress(bytes(50_000_000), 9)
  for said in (10, 50_000_000 - 1, 1 << 62):
    with pytest.raises(RecordError): unpacked(ZIPPED, record([0, said], blobs=[bomb]))


class Bomb:
  """What makes a file when it is unpickled."""
  def __init__(self, path: Path): self.path = path
  def __reduce__(self) -> Any: return Path.touch, (self.path,)


def test_pickles_are_not_read(tmp_path: Path) -> None:
  made = tmp_path / "made"
  bomb = pickle.dumps(Bomb(made))
  pickle.loads(bomb)
  assert made.exists()
  made.unlink()
  for form, _ in VALUES:
    for body in (bomb, record(0, blobs=[bomb]), struct.pack("<Q", len(bomb)) + bomb):
      try: unpacked(form, body)
      except RecordError: pass
  assert not made.exists()


# ---- damage

def test_heads() -> None:
  raw = sealed(b"body")
  assert opened(raw) == b"body" and opened(sealed(b"")) == b""
  for i in range(len(raw)):
    for bad in (raw[:i], raw[:i] + bytes([raw[i] ^ 1]) + raw[i + 1:], raw[:i] + raw[i + 1:], raw[:i] + b"x" + raw[i:]):
      with pytest.raises(RecordError): opened(bad)
  with pytest.raises(RecordError): opened(raw + b"x")


def test_other_versions_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(records, "RECORD_VERSION", records.RECORD_VERSION + 1)
  newer = sealed(b"body")
  monkeypatch.undo()
  with pytest.raises(RecordError, match="version"): opened(newer)


@pytest.mark.parametrize("form, value", [(SPEC, SPECS[1]), *[(form, values[1]) for form, values in VALUES[-2:]]])
def test_damaged_bodies_are_refused_or_values(form: Form[Any], value: Any) -> None:
  """With a right checksum, too: any bytes give RecordError, or a value that has the form, in little time."""
  body, rng, read = packed(form, value, "name"), random.Random(3), 0
  for _ in range(1500):
    damaged = bytearray(body)
    for _ in range(rng.randrange(1, 4)):
      at = rng.randrange(len(damaged))
      how = rng.randrange(4)
      if how == 0: damaged[at] = rng.randrange(256)
      elif how == 1: del damaged[at:at + rng.randrange(1, 9)]
      elif how == 2: damaged[at:at] = rng.choice([b"[", b"]", b"-", b"9999999999", b"null", b"true", b'"', b",", b"1e999", b"{}"])
      else: damaged[at:at + 1] = bytes([damaged[at] ^ (1 << rng.randrange(8))])
      if not damaged: damaged += b"x"
    try: found = unpacked(form, bytes(damaged), "name")
    except RecordError: continue
    read += 1
    assert same(unpacked(form, packed(form, found)), found)
  assert read < 1200


@pytest.mark.parametrize("spec", [
  replace(SPECS[0], name="a b"), replace(SPECS[0], name="k(); evil"), replace(SPECS[0], grid=(1, 1, 1, 1)),
  replace(SPECS[0], local=(1 << 20, 1 << 20)), replace(SPECS[0], local=(0, 1)), replace(SPECS[0], grid=(n, 1, 1)),
  replace(SPECS[1], sizes=()), replace(SPECS[1], sizes=(N,)),
  replace(SPECS[1], work=Work(ix.Size("other").node)), replace(SPECS[1], nparams=1),
  replace(SPECS[0], source=replace(SOURCES[1], parts=())),
])
def test_kernels_that_no_renderer_makes(spec: ProgramSpec) -> None:
  check(SPECS[0])
  check(replace(SPECS[1], nparams=5))
  with pytest.raises(Exception): check(spec)   # noqa: B017 (of its expressions any)


# ---- programs of PoCL

CODE = b"BC\xc0\xde" + struct.pack("<3I", 0x35, 1, 0)   # with one block of one word
LIBRARY = b"\x7fELF\2\1\1" + bytes(33) + struct.pack("<Q10xHH", 64, 64, 2) + bytes(2) + bytes(128)


@pytest.mark.parametrize("path", [
  "a", "a/b", "/a/b/c", "../a/b/c", "a/../../b/c", "a/b/..", "a/./b/c", "a//b/c", "a/b/c\0", "a/b/c d", "a/b/",
])
def test_files_stay_in_their_folder(path: str) -> None:
  with pytest.raises(ValueError): binaries.unpack(packed(binaries.FORM, ("", False, {}, None, ((path, b"x"),)), "program"))


def test_programs_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(binaries, "folder", lambda: tmp_path)
  def unpack(*program: Any) -> Any: return binaries.unpack(packed(binaries.FORM, program, "program"))
  whole, shapes = ("A/B/k/1-1-1/k.so", LIBRARY), {"k": (1, 0)}
  *about, files = unpack("s", True, shapes, None, (whole, ("A/B/program.bc", CODE)))
  assert about == ["s", True, shapes, None] and not (tmp_path / "A").exists()
  assert files.written() == tmp_path / "A" / "B" and (tmp_path / whole[0]).read_bytes() == LIBRARY
  assert unpack("s", False, {}, b"binary", ()) == ("s", False, {}, b"binary", None)
  for wrong in (("s", False, {}, None, ()), ("s", False, {}, b"b", (whole,)),
                ("s", False, {}, None, (whole, ("A/C/program.bc", CODE))),
                *[("s", False, {}, None, (("A/D/k/k.so", content),)) for content in (b"", b"abc", LIBRARY[:-1])],
                *[("s", False, {}, None, (whole, ("A/D/program.bc", code))) for code in (CODE[:4], CODE[:-4], CODE + CODE[:4])]):
    with pytest.raises(ValueError): unpack(*wrong)
  for junk in (b"", b"PK\3\4", pickle.dumps(Bomb(tmp_path / "made"))):
    with pytest.raises(ValueError): binaries.unpack(junk)
  assert not (tmp_path / "A" / "C").exists() and not (tmp_path / "A" / "D").exists() and not (tmp_path / "made").exists()
