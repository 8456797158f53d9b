"""What the ledger has of kernels: cases that make some, machines that are not here, and what was chosen and rendered for each.

A case is a name and a function that computes something. Whatever was made before is forgotten first, so that a case has all of
its kernels, whichever cases come before it.
"""
from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import importlib
import importlib.util
import io
import itertools
import linecache
import re
import sys
import zlib
from collections import Counter
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator, Sequence
from unittest import mock

import numpy as np

from ntgrad import Tensor, config, dtypes, nn
from ntgrad.backends.base import Program, ProgramSpec
from ntgrad.codegen.candidates import refusals
from ntgrad.codegen.parts import Parts
from ntgrad.codegen.pipeline import PASSES
from ntgrad.codegen.printing import form_text
from ntgrad.engine import compile, plans, report

from .all_ops import ROWS, Row, values
from .ledger_names import steady
from .models import resnet18
from .network_build import KINDS, grown
from .network_draws import SIZES
from .network_machines import MACHINES, Machine, Pretended, opened
from .network_program import PRELUDE, Spec
from .network_run import Nothing, default, results

ROOT = Path(__file__).resolve().parents[2]
# CPUs with vectors of 256 and of 512 bits, and a GPU
NAMED = {"avx2": MACHINES["cpu2x256"], "avx512": MACHINES["cpu16x512"], "sm_90": MACHINES["sm_90"]}
SETTINGS: dict[str, Any] = {"tune": 0, "verify": 0, "color": 0, "debug": 0, "show": "", "only": "", "beam": 0, "noopt": 0,
                            "allow_tf32": 0, "dynamic": "auto", "origins": 1, "override": ""}
# the kinds of the zoo whose kernels are shown after each pass
PASSES_OF = ("matmul", "matmul int8", "vector × matrix", "batched matmul", "conv 3×3", "depthwise conv 3×3",
             "max pool 3×3, stride 2", "sum over axis 0", "sum over axis 1", "argmax over axis 1", "variance over axis 1",
             "softmax of rows", "layer norm", "layer norm with gradients", "cumsum along rows", "sort of rows", "topk 16 of rows",
             "transpose", "cat of three along axis 1", "causal attention")
# what takes Triton long to compile, and is in no way special
SLOW = ("matmul fp32", "matmul fp64")
VARIABLES = {f.metadata["env"] for f in fields(config)}   # of the environment, that settings are read from
Entries = dict[str, str]


@dataclass(frozen=True)
class Case:
  """Something that makes kernels; ``settings`` are those of ``config``."""
  name: str
  run: Callable[[], Any]
  settings: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Made:
  """A kernel, as its device's compiler got it, and its parts after their Opts."""
  spec: ProgramSpec
  parts: Parts | None


# ---- the cases

@contextlib.contextmanager
def beside(folder: Path) -> Iterator[None]:
  """Modules of a folder can be imported by bare names; no longer than that, as some have names that packages have too."""
  sys.path.insert(0, str(folder))
  try: yield
  finally: sys.path.remove(str(folder))


def zoo_module(name: str) -> ModuleType:
  with beside(ROOT / "bench"): return importlib.import_module(name)


def _zoo_row(row: Any) -> Callable[[], Any]:
  def run() -> None:
    xs = [Tensor.empty(*i.shape, dtype=i.dtype or row.dtype).realize() for i in row.inputs]
    model = row.kind.model
    fn = zoo_module("zoo_models").ours(model, row.sizes, row.dtype) if model else zoo_module("zoo_rows").computed(row.kind)
    with Tensor.train(): Tensor.realize(*fn(*xs))
  return run


def zoo(machine: Machine) -> Iterator[Case]:
  """The rows of bench/zoo.py, at the sizes that they are measured with on such a machine."""
  for row in zoo_module("zoo_rows").rows("CUDA" if machine is NAMED["sm_90"] else "CPU"):
    if row.kind.ours is not None: yield Case(row.name, _zoo_row(row))


def zoo_sized(machine: Machine) -> Iterator[Case]:
  """The first size of each row that is no whole model, its sizes given at the launch."""
  found = [list(rows) for _, rows in itertools.groupby(zoo(machine), lambda c: re.sub(r" [\d×]+ \w+$", "", c.name))]
  wholes = {k.name for k in zoo_module("zoo_rows").KINDS if k.model}
  for first, *_ in found:
    if not any(first.name.startswith(name) for name in wholes): yield Case(first.name, first.run, (("dynamic", "always"),))


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


def _title(s: Spec) -> str: return f"network {s.number:02} {', '.join(s.kinds)}, {s.sizes}"


def networks(machine: Machine) -> Iterator[Case]:
  """Random networks, and steps of training a residual one."""
  for s in specs(): yield Case(_title(s), lambda s=s: results(grown(s), Nothing()))   # type: ignore[misc]
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
  for name, run in ported.cases(np.random.default_rng(0)).items(): yield Case(f"ported {name}", run)


GROUPS: dict[str, Callable[[Machine], Iterator[Case]]] = {
  "zoo": zoo, "zoo-sized": zoo_sized, "ops": operations, "networks": networks, "tile": tiles
}


# ---- what is made

def forget() -> None:
  """Nothing has been compiled, and no kernel's name has a number."""
  for found in (compile._programs, plans._plans, plans._sized, plans._general): found.clear()
  compile._by_spec.clear()
  report.reset()
  refusals.clear()


def made(case: Case, machine: Machine) -> list[Made]:
  """The kernels of a case, in the order in which they are made."""
  device, chosen, out = opened(machine), dict[tuple[str, str], Parts](), list[Made]()
  fresh = compile.fresh

  def watched(*args: Any, **given: Any) -> Any:
    found = fresh(*args, **given)
    chosen[found.spec.name, found.spec.source.text] = found.parts
    return found

  def compiled(found: Sequence[ProgramSpec]) -> list[Program]:
    out.extend([Made(s, chosen.get((s.name, s.source.text))) for s in found])
    return Pretended.compile(device, found)

  forget()
  Tensor.manual_seed(0)
  with config(**{**SETTINGS, **dict(case.settings)}), default(machine.device):
    with mock.patch.object(compile, "fresh", watched), mock.patch.object(device, "compile", compiled): case.run()
  forget()
  return out


def entry(m: Made, texts: bool) -> str:
  """A kernel as the ledger has it."""
  s, text = m.spec, steady(m.spec.source.text)
  opts = [", ".join(map(str, o)) for o in (m.parts.opts if m.parts is not None else ())]
  told = {**dict(s.source.options), **dict(s.options)}
  lines = [*[f"opts     {o or 'none'}" for o in opts], f"launch   grid {report.grid_text(s)}, {s.nparams} buffers",
           *[f"sizes    {', '.join(n.name for n in s.sizes)}"] * bool(s.sizes),
           *[f"options  {', '.join(f'{k}={v}' for k, v in sorted(told.items()))}"] * bool(told),
           f"uops     {len(s.uops)}", f"source   {digest(text)}"]
  return "\n".join([*lines, *[f"  {line}".rstrip() for line in text.strip("\n").split("\n")]] if texts else lines)


def digest(text: str | bytes) -> str: return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def kernels(group: str, machine: str, match: str = "", texts: bool = True) -> Entries:
  """The kernels of a group's cases whose names have ``match``, chosen and rendered for a machine."""
  out: Entries = {}
  for case in GROUPS[group](NAMED[machine]):
    if match not in case.name: continue
    try: found = made(case, NAMED[machine])
    except Exception as e:
      out[f"{case.name} · refused"] = refusal(e)
      continue
    count: Counter[str] = Counter()
    for m in found:
      count[m.spec.name] += 1
      out[f"{case.name} · {m.spec.name} · {count[m.spec.name]}"] = entry(m, texts)
    out[f"{case.name} · all"] = f"{len(found)} kernels\n" + "\n".join(m.spec.name for m in found)
  return out


def refusal(e: Exception) -> str: return steady(f"{type(e).__name__}: {e}")


# ---- what is printed

def printed(case: Case, machine: Machine, **settings: Any) -> str:
  """What a case prints with settings, without times."""
  said = io.StringIO()
  with contextlib.redirect_stdout(said):
    try: made(Case(case.name, case.run, tuple(settings.items())), machine)
    except Exception as e: print(refusal(e))
  lines = [line for line in steady(said.getvalue()).split("\n") if not line.startswith(("***", "first run in"))]
  return re.sub(r"(schedule \d+: [^\n]*), [\d.]+ \w+\b[^\n]*", r"\1", "\n".join(lines))


def passes(machine: str, match: str = "") -> Entries:
  """Some kernels after each pass, and as DEBUG=5 shows them."""
  rows = [r for r in zoo_module("zoo_rows").rows("TINY") if r.kind.name in PASSES_OF and match in r.name]
  every = ",".join(p.name for p in PASSES)
  return {r.name: printed(Case(r.name, _zoo_row(r)), NAMED[machine], show=every, debug=5) for r in rows}


def origins() -> Entries:
  """The tables of kernels of every second network, which name the lines of the program that each kernel computes."""
  out = {}
  for s in specs()[::2]:
    text, file = grown(s).text, f"network{s.number:02}.py"
    def run(text: str = text, file: str = file) -> None:
      env: dict[str, Any] = {}
      linecache.cache[file] = (len(text), None, text.splitlines(True), file)
      exec(compile_text(text.replace("np.random.default_rng(0)", "nothing"), file), {**env, "nothing": Nothing()})
    said = printed(Case(_title(s), run), NAMED["avx512"], debug=3)
    tables = re.findall(r"── schedule [\s\S]*?(?=\n\n|$)", said)
    out[_title(s)] = "\n".join([*tables, "", *[f"{n:4}  {line}".rstrip() for n, line in enumerate(text.splitlines(), 1)]])
  return out


def compile_text(text: str, file: str) -> Any:
  """A program as code of a file."""
  return builtins.compile(text, file, "exec")


def tile_sources() -> Entries:
  """The kernels of examples/tile: how they are arranged, their index form, and their source for every target."""
  out = {}
  for name, get in tile_kernels():
    for target, machine in (("opencl", "avx512"), ("triton", "sm_90"), ("c", "avx512"), ("metal", "avx512")):
      forget()
      with config(**SETTINGS), default(opened(NAMED[machine]).name):
        kernel, args, given = get()
        try: out[f"{name} · {target}"] = steady(kernel.source(target, *args, **given))
        except Exception as e: out[f"{name} · {target}"] = refusal(e)
        if target != "opencl": continue
        found = kernel.specialise(*args, **given)
        out[f"{name} · arrangement"] = found.arrangements()
        out[f"{name} · application"] = form_text(found.kernel)
        out[f"{name} · uops"] = str(found.uops)
        out[f"{name} · assessments"] = str(kernel.assessments)
  return out


# ---- machine code

def cubins(count: int = 60) -> Entries:
  """Digests of ``count`` kernels compiled for sm_90: those of the tile examples, and the last one of each row of the zoo."""
  from ntgrad.backends.cuda import compiler
  found: Entries = {}
  machine = NAMED["sm_90"]
  rows = [c for c in zoo(machine) if not c.name.startswith(SLOW)]
  firsts = list({re.sub(r" [\d×]+ \w+$", "", c.name): c for c in reversed(rows)}.values())[::-1]
  for case in itertools.chain(tiles(machine), firsts):
    if len(found) >= count: break
    try: specs = [m.spec for m in made(case, machine)]
    except Exception: continue   # among the kernels it stands as refused
    if not specs: continue
    spec = replace(specs[-1], source=replace(specs[-1].source, text=steady(specs[-1].source.text)))
    binary = compiler.work(compiler.request(spec, "sm_90"))
    found[f"{case.name} · {spec.name}"] = f"cubin {digest(binary.cubin)}, {binary.num_warps} warps, {binary.shared} bytes shared"
  return found


assert PRELUDE.count("np.random.default_rng(0)") == 1, "the line that makes a program's generator"
