"""Which line of the user's an error names that comes when a tile kernel is called: of the declaration, the arrangement, the
application."""
from __future__ import annotations

import copy
import pickle
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad import Tensor
from ntgrad.errors import DTypeError, NtgradError, ShapeError

LINES = Path(__file__).read_text().split("\n")


def ones(*shape: int, dtype: str = "float32") -> Any: return np.ones(shape, dtype)


def named(kind: type[NtgradError], marks: list[str], fn: Any, *args: Any) -> str:
  """The message of a refusal, below which the lines of this file with these marks stand, in this order."""
  with pytest.raises(kind) as e: fn(*args)
  first, *below = str(e.value).split("\n")
  found = [LINES[int(line.split(":")[1].split(",")[0]) - 1] for line in below if Path(__file__).name in line]
  assert [line.split("# ")[-1] for line in found] == marks, str(e.value)
  for line in found: assert line.strip().split("   #")[0] in str(e.value)
  return first


def arranged(x: Any, y: Any, z: Any) -> Any:
  z = z.tile((16, 16))   # tiles of z
  x, y = x.tile((16, 8)).tile((1, -1)), y.tile((8, 16)).tile((-1, 1))
  x = x.expand((-1, z.shape[1]))   # grid of x
  y = y.expand((z.shape[0], -1))   # grid of y
  x.dtype = x.dtype.squeeze(0)     # level of x
  y.dtype = y.dtype.squeeze(1)
  return x, y, z


def product(x: Any, y: Any, z: Any) -> None:
  total = tl.zeros(z.shape)
  for k in range(x.shape[0]):
    a = x[k]
    total += tl.dot(a, y[k])   # the product
  z = total   # noqa: F841  # the result


MATMUL = tile.make(arranged, product, (
  tile.Tensor(2),   # x
  tile.Tensor(2),   # y
  tile.Tensor(2),   # z
))
NAMED = tile.make(arranged, product, (
  tile.Tensor(shape=("M", "K"), dtype="float32"),   # named x
  tile.Tensor(shape=("K", "N"), dtype="float32"),   # named y
  tile.Tensor(shape=("M", "N"), dtype="float32"),   # named z
))


@pytest.mark.parametrize("of", [lambda *shape: ones(*shape), lambda *shape: Tensor(ones(*shape))], ids=["arrays", "tensors"])
def test_a_product(of: Any) -> None:
  said = named(ShapeError, ["named x", "named y"], NAMED, of(32, 16), of(24, 32), of(32, 32))
  assert said == "product: K is 16 in dimension 1 of x and 24 in dimension 0 of y; one symbol has one size"
  said = named(ShapeError, ["the product"], MATMUL, of(32, 16), of(24, 32), of(32, 32))
  assert "dimension 1 of x has 16 elements, dimension 0 of y has 24" in said
  said = named(ShapeError, ["the result"], MATMUL, of(32, 16), of(16, 32), of(32, 31))
  assert "dimension 1 of y has 32 elements, dimension 1 of z has 31" in said
  named(ShapeError, ["grid of y", "grid of x"], MATMUL, of(32, 16), of(16, 32), of(64, 32))
  named(ShapeError, ["level of x"], MATMUL, of(32, 0), of(0, 32), of(32, 32))


def test_ranks_and_dtypes() -> None:
  assert named(ShapeError, ["y"], MATMUL, ones(32, 16), ones(16), ones(32, 32)) == (
    "product: y has 2 dimensions, got a tensor of shape (16,)"
  )
  named(ShapeError, ["named z"], NAMED, ones(32, 16), ones(16, 32), ones(32, 32, 1))
  named(DTypeError, ["named y"], NAMED, ones(32, 16), ones(16, 32, dtype="float64"), ones(32, 32))


def test_sizes_of_dimensions() -> None:
  def double(x: Any, y: Any) -> None: y = x * 2   # noqa: F841
  def blocks(x: Any, y: Any) -> Any: return x.tile((2,)), y.tile((2,))
  k = tile.make(blocks, double, (
    tile.Tensor(shape=(8,)),   # eight
    tile.Tensor(1),
  ))
  named(ShapeError, ["eight"], k, ones(4), ones(4))
  k = tile.make(lambda x, y: (x.tile((2,)), y.tile((4,))), double, (
    tile.Tensor(shape=("K",), shape_options={"upper_bound": 8}),   # at most 8
    tile.Tensor(shape=("2*K",)),   # twice
  ))
  named(ShapeError, ["at most 8"], k, ones(10), ones(20))
  named(ShapeError, ["twice"], k, ones(8), ones(12))


def test_what_is_not_known_before_the_call() -> None:
  def double(x: Any, y: Any) -> None: y = x * 2   # noqa: F841
  def whole(x: Any, y: Any) -> Any:
    x = x.tile((4, 32), floor_mode=True)   # windows
    return x.tile((1, -1)), y.tile((4, 32)).tile((1, -1))
  def rows(x: Any, y: Any) -> Any:
    x = x.tile((1, -1))
    return x.squeeze(0), y.tile((1, -1)).squeeze(0)   # squeezed
  def wide(x: Any, y: Any) -> Any:
    y = y.tile((1, -1))
    return x.tile((1, -1)).expand((y.shape[0], -1)), y   # expanded
  def made(arrangement: Any) -> Any: return tile.make(arrangement, double, (tile.Tensor(2), tile.Tensor(2)))
  said = named(ShapeError, ["windows"], made(whole), ones(8, 20), ones(8, 20))
  assert said.startswith("x: tile: no window of 32 lies inside dimension 1, which has 20 elements; in x(x_size_0, x_size_1)")
  named(ShapeError, ["squeezed"], made(rows), ones(3, 20), ones(3, 20))
  named(ShapeError, ["expanded"], made(wide), ones(3, 20), ones(6, 20))


def test_annotations(tmp_path: Path) -> None:
  """Those that are text too: there the line is that of the function."""
  code = """
    import ntgrad.tile as tile
    @tile.jit
    def double(
      x: tile.Tensor(1).tile((32,), floor_mode=True),
      y: tile.Tensor(1).tile((32,)),
    ): y = x * 2
  """
  for future, line in (("", 5), ("from __future__ import annotations\n", 4)):
    path = tmp_path / f"annotated{line}.py"
    path.write_text(future + textwrap.dedent(code))
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    with pytest.raises(ShapeError, match=rf"no window of 32 lies inside.*\n  .*annotated{line}.py:{line}, in "):
      names["double"](ones(20), ones(20))


def test_lines_are_no_part_of_what_a_tensor_is() -> None:
  a = tile.Tensor(shape=(4, 8))
  b, c = a.tile((2, 2)), \
    a.tile((2, 2))
  assert b.operations == c.operations and b._lines() != c._lines()
  for t in (pickle.loads(pickle.dumps(b)), copy.deepcopy(b), b.named("x"), b.subs({})): assert t._lines() == b._lines()
  assert len(b.ravel()._lines()) == 1 and len(b.tile((1, 1))._lines()) == 3
