"""The cases of the ledger: what makes its kernels, by group.

A case is a name and a function that computes something on the default device, a machine that is not here: tensors have no bytes,
so rows of the zoo are as large as they are measured.
"""
from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from ntgrad import Tensor, dtypes, nn
from ntgrad.tile import TileKernel

from .all_ops import ROWS, Row, values
from .models import resnet18
from .network_build import KINDS, grown
from .network_draws import SIZES
from .network_machines import MACHINES, Machine
from .network_program import Spec
from .network_run import Nothing, results

ROOT = Path(__file__).resolve().parents[2]
# CPUs with vectors of 256 and of 512 bits, and a GPU
NAMED = {"avx2": MACHINES["cpu2x256"], "avx512": MACHINES["cpu16x512"], "sm_90": MACHINES["sm_90"]}


@dataclass(frozen=True)
class Case:
  """Something that makes kernels; ``settings`` are those of ``config``."""
  name: str
  run: Callable[[], Any]
  settings: tuple[tuple[str, Any], ...] = ()


@contextlib.contextmanager
def beside(folder: Path) -> Iterator[None]:
  """Modules of a folder can be imported by bare names; no longer than that, as some have names that packages have too."""
  sys.path.insert(0, str(folder))
  try: yield
  finally: sys.path.remove(str(folder))


def zoo_module(name: str) -> ModuleType:
  """A module of bench/zoo.py."""
  with beside(ROOT / "bench"): return importlib.import_module(name)


def zoo_row(row: Any) -> Callable[[], Any]:
  """What ntgrad computes of a row of bench/zoo.py."""
  def run() -> None:
    xs = [Tensor.empty(*i.shape, dtype=i.dtype or row.dtype).realize() for i in row.inputs]
    model = row.kind.model
    fn = zoo_module("zoo_models").ours(model, row.sizes, row.dtype) if model else zoo_module("zoo_rows").computed(row.kind)
    with Tensor.train(): Tensor.realize(*fn(*xs))
  return run


def zoo(machine: Machine) -> Iterator[Case]:
  """The rows of bench/zoo.py, at the sizes that they are measured with on such a machine."""
  for row in zoo_module("zoo_rows").rows("CUDA" if machine is NAMED["sm_90"] else "CPU"):
    if row.kind.ours is not None: yield Case(row.name, zoo_row(row))


def zoo_sized(machine: Machine) -> Iterator[Case]:
  """The first size of each kind of row, its sizes given at the launch. There are no whole models and no convolutions, whose
  indices of many sizes take minutes; networks have some."""
  rows = zoo_module("zoo_rows")
  left_out = {k.name for k in rows.KINDS if k.model or k.group == rows.CONVOLUTIONS}
  found = [list(cases) for _, cases in itertools.groupby(zoo(machine), lambda c: kind_of(c.name))]
  for first, *_ in found:
    if kind_of(first.name) not in left_out: yield Case(first.name, first.run, (("dynamic", "always"),))


def kind_of(row: str) -> str:
  """The kind of a row of the zoo, of its name."""
  return re.sub(r" [\d×]+ \w+$", "", row)


def _operation(row: Row, gradient: bool) -> Callable[[], Any]:
  dtype = next(d for d in (dtypes.float32, dtypes.int32, dtypes.uint8, dtypes.bool) if row.takes(d))
  def run() -> None:
    rng = np.random.default_rng(zlib.crc32(f"{row.family} {row.name}".encode()))
    xs = [Tensor(values(spec, dtype, rng)) for spec in row.inputs]
    if gradient: xs = [x.requires_grad_() if x.dtype.kind == "f" else x for x in xs]
    made = row.fn(*xs)
    outs = list(made) if isinstance(made, (tuple, list)) else [made]
    if gradient:
      for o in outs:
        if o.dtype.kind == "f" and o.requires_grad: o.square().sum().backward()
      outs = [x.grad for x in xs if x.grad is not None]
    Tensor.realize(*outs)
  return run


def operations(machine: Machine) -> Iterator[Case]:
  """The rows of the conformance tests, and their gradients."""
  for row in ROWS: yield Case(f"{row.family}: {row.name}", _operation(row, False))
  for row in ROWS:
    if row.grad and row.takes(dtypes.float32): yield Case(f"{row.family}: {row.name}, gradient", _operation(row, True))


def specs() -> list[Spec]:
  """Networks that have every kind of block once; one in three is called with other sizes too, one has Variables."""
  return [Spec(i, 1, KINDS[3 * i:3 * i + 3], SIZES[i % 3], False) for i in range(-(-len(KINDS) // 3))]


def title(s: Spec) -> str:
  """What a network is called."""
  return f"network {s.number:02} {', '.join(s.kinds)}, {s.sizes}"


def networks(machine: Machine) -> Iterator[Case]:
  """Random networks, and steps of training a residual one."""
  for s in specs(): yield Case(title(s), lambda s=s: results(grown(s), Nothing()))   # type: ignore[misc]
  for opt in ("SGD", "Adam"): yield Case(f"resnet18 of width 8, {opt}", lambda opt=opt: _trained(opt))   # type: ignore[misc]


def _trained(optimizer: str) -> None:
  with Tensor.train():
    model = resnet18(width=8, classes=10)
    opt = getattr(nn.optim, optimizer)(nn.state.get_parameters(model), lr=0.01)
    for _ in range(2):
      opt.zero_grad()
      loss = model(Tensor.empty(4, 3, 32, 32).realize()).sparse_categorical_crossentropy(Tensor(np.zeros(4, np.int32))).backward()
      opt.step()
      loss.realize()


def tile_kernels() -> Iterator[tuple[str, Callable[[], tuple[Any, Sequence[Any], dict[str, Any]]]]]:
  """The kernels of examples/tile that have a case: its name, and how to get the kernel and the arguments of a call."""
  folder = ROOT / "examples" / "tile"
  def case(name: str) -> tuple[Any, Sequence[Any], dict[str, Any]]:
    with beside(folder): kernel, args, _ = importlib.import_module(name).case(np.random.default_rng(0))
    kernel.forget()
    return (kernel, args[:-1], args[-1]) if isinstance(args[-1], dict) else (kernel, args, {})
  for path in sorted(folder.glob("*.py")):
    functions = {n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)}
    if "case" in functions: yield path.stem, lambda name=path.stem: case(name)   # type: ignore[misc]


def tiles(machine: Machine) -> Iterator[Case]:
  """Calls of the kernels of examples/tile."""
  def call(get: Callable[[], Any]) -> None:
    kernel, args, given = get()
    kernel(*args, **given)
  for name, get in tile_kernels(): yield Case(name, lambda get=get: call(get))   # type: ignore[misc]
  with beside(ROOT / "examples" / "tile"): ported = importlib.import_module("ported")
  def anew(run: Callable[[], Any]) -> None:
    for kernel in vars(ported).values():
      if isinstance(kernel, TileKernel): kernel.forget()
    run()
  for name, run in ported.cases(np.random.default_rng(0)).items():
    yield Case(f"ported {name}", lambda run=run: anew(run))   # type: ignore[misc]


GROUPS: dict[str, Callable[[Machine], Iterator[Case]]] = {
  "zoo": zoo, "zoo-sized": zoo_sized, "ops": operations, "networks": networks, "tile": tiles
}
