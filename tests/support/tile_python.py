"""An application as Python itself runs it: names are Python's, a tile is a value that never changes, a level above the innermost
is a list.

What a parameter's name stands for in the end is what the kernel must have written.
"""
from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
import types
import zlib
from typing import Any, Callable, Sequence

import numpy as np

import ntgrad.tile as tile
from ntgrad.codegen.ir.config import config
from ntgrad.tile import Tensor

WIDTH, ROWS = 4, 3            # of a tile; of the level above it

TL = types.SimpleNamespace(
  sum=np.sum, max=np.max, maximum=np.maximum, minimum=np.minimum, where=lambda *xs: np.where(*xs).view(Value), static_range=range,
  cumsum=lambda x, axis: np.cumsum(x, axis), flip=lambda x, axis: np.flip(x, axis).view(Value))


class Value(np.ndarray):
  """An array that never changes: ``a += b`` makes another one."""
  def __iadd__(self, other: Any) -> Any: return self + other
  def __isub__(self, other: Any) -> Any: return self - other
  def __imul__(self, other: Any) -> Any: return self * other


def by_python(fn: Callable[..., Any], parameters: Sequence[Any]) -> list[Any]:
  """What the parameters are after running the function's body on arrays (one tile) and lists of arrays (a level of tiles)."""
  tree = ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0]
  assert isinstance(tree, ast.FunctionDef)
  names = [a.arg for a in tree.args.args]
  space: dict[str, Any] = dict(zip(names, parameters)) | {"tl": TL}
  exec(compile(ast.Module(tree.body, []), "<application>", "exec"), space)
  return [space[n] for n in names]


def check_names(fn: Callable[..., Any], device: str) -> None:
  """Run an application as a kernel and by Python. Parameters called ``z…`` have a level of tiles, others one tile."""
  names = list(inspect.signature(fn).parameters)
  start = [np.arange(1, 1 + WIDTH * (ROWS if n.startswith("z") else 1), dtype=np.float32) * 10 ** i for i, n in enumerate(names)]
  given = [list(x.reshape(ROWS, WIDTH).view(Value)) if n.startswith("z") else x.view(Value) for n, x in zip(names, start)]
  want = by_python(fn, given)
  arrange = [(lambda t: t.tile((WIDTH,)).tile((ROWS,))) if n.startswith("z") else (lambda t: t.tile((WIDTH,))) for n in names]
  arrays = [x.copy() for x in start]
  with config(dev=device):
    tile.make(lambda *ts: tuple(a(t) for a, t in zip(arrange, ts)), fn, (Tensor(1),) * len(names))(*arrays)
  for n, got, w in zip(names, arrays, want):
    np.testing.assert_array_equal(
      got.reshape(-1, WIDTH), np.broadcast_to(np.asarray(w, np.float32), (len(got) // WIDTH, WIDTH)), err_msg=n
    )


def defined(text: str, name: str = "program") -> Callable[..., Any]:
  """The function that a text defines, its source known to Python."""
  file = f"<{name} {zlib.crc32(text.encode())}>"
  linecache.cache[file] = (len(text), None, text.splitlines(True), file)
  space: dict[str, Any] = {"tl": __import__("ntgrad.tile.language", fromlist=["_"])}
  exec(compile(text, file, "exec"), space)
  made: Callable[..., Any] = space[name]
  return made
