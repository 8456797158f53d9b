"""Ints on every device, and constants: they wrap, whatever the result goes to; shifts and divisions that C leaves open are what
docs/numbers.md says. Every value is taken as it is, and as int64 or float64, in one kernel: a compiler that may think that a sum
does not overflow computes it wide. (A sum of which only the low bits are kept is plain C, which the sanitizer would report.)"""
from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Tensor, config
from support import plain_c
from support.devices import DEVICES, missing
from support.marks import long_where

INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
Fn = Callable[..., Tensor]


@pytest.fixture(params=[*DEVICES, plain_c.SanitizedDevice.name])
def device(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> Iterator[str]:
  name = request.param
  why = missing(name) if name in DEVICES else "" if plain_c.has_sanitizer() else "no C compiler with a sanitizer"
  if why: pytest.skip(why)
  with config(dev=name), np.errstate(all="ignore"): yield name
  said = capfd.readouterr().err
  assert "runtime error" not in said, said


def edges(dtype: str) -> np.ndarray:
  i = np.iinfo(dtype)
  found = [0, 1, 2, 3, 7, i.bits - 1, i.bits, i.max, i.max - 1, i.max // 2 + 1, i.min, i.min + 1, 46341, 65536, -1, -2, -i.bits]
  return np.array([x for x in dict.fromkeys(found) if i.min <= x <= i.max], dtype)


class Compared:
  """Values and what they have to be, computed together."""
  def __init__(self) -> None: self.found: list[tuple[str, Tensor, np.ndarray]] = []

  def add(self, what: str, value: Tensor, want: np.ndarray, *dtypes: str) -> None:
    self.found.append((what, value, want))
    for d in dtypes or ("int64", "float64"): self.found.append((f"{what} {d}", value.cast(d), want.astype(d)))

  def check(self) -> None:
    Tensor.realize(*[t for _, t, _ in self.found])
    for what, t, want in self.found: np.testing.assert_array_equal(t.numpy(), want, what, strict=True)


TWO: dict[str, tuple[Fn, Callable[..., np.ndarray]]] = {
  "add": (lambda a, b: a + b, np.add),
  "sub": (lambda a, b: a - b, np.subtract),
  "mul": (lambda a, b: a * b, np.multiply),
  "//": (lambda a, b: a // b, np.floor_divide),
  "%": (lambda a, b: a % b, np.mod),
  "fmod": (lambda a, b: a.fmod(b), np.fmod),
  "<<": (lambda a, b: a << b, np.left_shift),
  ">>": (lambda a, b: a >> b, np.right_shift),
  "|a - b|": (lambda a, b: (a - b).abs(), lambda a, b: np.abs(a - b)),
  "-(a * b) + a": (lambda a, b: -(a * b) + a, lambda a, b: -(a * b) + a),
  "a + b > a": (lambda a, b: a + b > a, lambda a, b: a + b > a),
  "(a * b) >> 1": (lambda a, b: (a * b) >> 1, lambda a, b: (a * b) >> 1),
  "(a + b) // 2": (lambda a, b: (a + b) // 2, lambda a, b: (a + b) // 2),
}
ONE: dict[str, tuple[Fn, Callable[..., np.ndarray]]] = {
  "abs": (Tensor.abs, np.abs), "neg": (Tensor.neg, np.negative), "square": (Tensor.square, np.square),
  "sign": (Tensor.sign, np.sign),
}


@long_where(lambda device, dtype: device != "NUMPY" and dtype != "uint8")
@pytest.mark.parametrize("dtype", INTS)
def test_of_two(device: str, dtype: str) -> None:
  """Memory with memory, with a number, and two numbers, which nothing but a constant is left of."""
  e, out = edges(dtype), Compared()
  a, b = [x.ravel() for x in np.meshgrid(e, e)]
  A, B, E = Tensor(a).realize(), Tensor(b).realize(), Tensor(e).realize()
  i, wider = np.iinfo(dtype), "float64" if dtype == "int64" else "int64"
  for name, (fn, want) in TWO.items():
    out.add(name, fn(A, B), want(a, b))
    for y in [y for y in (0, -1, i.bits, i.min) if i.min <= y]:
      if (device, dtype, name, y) == ("CUDA", "int16", "//", -1): continue   # see numbers.md
      full, most = np.full_like(e, y), np.full_like(e, i.max)
      if y or name not in ("//", "%", "fmod"): out.add(f"{name} {y}", fn(E, y), want(e, full), wider)
      out.add(f"{y} {name}", fn(Tensor(y, dtype=dtype), E), want(full, e), wider)
      out.add(f"{y} {name} max", fn(Tensor([y], dtype=dtype), Tensor(i.max, dtype=dtype)), want(full, most)[:1], wider)
  for name, (fn, want) in ONE.items(): out.add(name, fn(E), want(e))
  out.check()


@pytest.mark.parametrize("noopt", [0, 1])
def test_of_places(device: str, noopt: int) -> None:
  """arange is data, though a kernel has it for an index."""
  n, out = np.arange(100, dtype=np.int32), Compared()
  x, big = Tensor.arange(100), np.int32(100000000)
  with config(noopt=noopt):
    out.add("n * big // 3", x * int(big) // 3, n * big // 3)
    out.add("n * big > 0", x * int(big) > 0, n * big > 0)
    out.add("|n * big|", (x * int(big)).abs(), np.abs(n * big))
    out.add("n * n * big % 3", x * x * int(big) % 3, n * n * big % 3)
    out.add("int8", x.cast("int8") * 5 // 3, n.astype(np.int8) * np.int8(5) // 3)
    out.add("1 << n", Tensor(1).lshift(x), np.left_shift(np.int32(1), n))
    out.check()


@long_where(lambda device, dtype, shape: device != "NUMPY" and (dtype != "int32" or shape[1] == 300))
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
@pytest.mark.parametrize("shape", [(3, 5), (2, 300)])
def test_sums_products_and_scans(device: str, dtype: str, shape: tuple[int, int]) -> None:
  rng, i = np.random.default_rng(0), np.iinfo(dtype)
  a = rng.integers(i.min, i.max, shape, dtype=dtype, endpoint=True)
  a[0, :3], a[1, :3] = i.max, i.min
  for noopt in (0, 1):
    out, x = Compared(), Tensor(a).realize()
    for name in ("sum", "prod", "cumsum", "cumprod"):
      for axis in (0, 1): out.add(f"{name} {axis}", getattr(x, name)(axis, dtype=dtype), getattr(a, name)(axis, dtype=dtype))
    out.add("sum of |x|", x.abs().sum(1, dtype=dtype), np.abs(a).sum(1, dtype=dtype))
    out.add("half of a sum", x.sum(1, dtype=dtype) // 2, a.sum(1, dtype=dtype) // np.array(2, dtype))
    out.add("the greatest running sum", x.cumsum(1, dtype=dtype).max(axis=1), a.cumsum(1, dtype=dtype).max(axis=1))
    wide = x[:, :1].expand(shape[0], 1000), np.repeat(a[:, :1], 1000, 1)
    for name in ("sum", "prod"):
      out.add(f"{name} of repeated", getattr(wide[0], name)(1, dtype=dtype), getattr(wide[1], name)(1, dtype=dtype))
    with config(noopt=noopt): out.check()


def test_through_memory_of_a_kernel(device: str) -> None:
  """What a kernel writes and reads again."""
  def application(x, y, z):
    y = x + x  # noqa: F841
    z = tl.cast(y, tl.int64)  # noqa: F841
  dims = lambda x, y, z: (x.tile((4,)), y.tile((4,)), z.tile((4,)))
  kernel = tile.make(dims, application, (tile.Tensor(1), tile.Tensor(1), tile.Tensor(1)))
  x = Tensor([1 << 30, -(1 << 31), 5, (1 << 31) - 1], dtype="int32")
  y, z = Tensor([0] * 4, dtype="int32"), Tensor([0] * 4, dtype="int64")
  kernel(x, y, z)
  assert y.tolist() == z.tolist() == [-(1 << 31), 0, 10, -2]


def test_rows_that_are_added(device: str) -> None:
  index, value = Tensor([0, 1, 0, 0]), Tensor([2**31 - 1, 5, 2**31 - 1, 3], dtype="int32")
  assert Tensor.zeros(2, dtype="int32").scatter_add(0, index, value).cast("int64").tolist() == [1, 5]


def test_as_an_index(device: str) -> None:
  """A place that is computed wraps before it is one."""
  x, i = Tensor(np.arange(8, dtype=np.float32)), Tensor([2**31 - 1, 2**31 - 3], dtype="int32")
  assert x[(i + i) + 4].tolist() == [2, 6] and x[(i * 2 + 4).cast("int64")].tolist() == [2, 6]
