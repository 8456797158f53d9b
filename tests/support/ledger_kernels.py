"""What the ledger has of kernels: what was chosen and rendered for machines that are not here, and what was printed meanwhile.

Whatever was made before is forgotten before each case, so that a case has all of its kernels, whichever cases come before it.
"""
from __future__ import annotations

import builtins
import contextlib
import hashlib
import io
import itertools
import linecache
import re
from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any, Sequence
from unittest import mock

from ntgrad import Tensor, config
from ntgrad.backends.base import Program, ProgramSpec
from ntgrad.codegen.choose.candidates import refusals
from ntgrad.codegen.explain.printing import form_text
from ntgrad.codegen.passes.parts import Parts
from ntgrad.codegen.pipeline import PASSES
from ntgrad.engine import compile, planner, report

from .ledger_cases import GROUPS, NAMED, Case, kind_of, specs, tile_kernels, tiles, title, zoo, zoo_module, zoo_row
from .ledger_names import steady
from .network_build import grown
from .network_machines import Machine, Pretended, opened
from .network_run import Nothing, default
from .numbering import reset_numbering

# the cache on disk has plans and kernels without their parts
SETTINGS: dict[str, Any] = {"cache": 0, "tune": 0, "verify": 0, "color": 0, "debug": 0, "show": "", "only": "", "beam": 0,
                            "noopt": 0, "allow_tf32": 0, "dynamic": "auto", "origins": 1, "override": ""}
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
class Made:
  """A kernel, as its device's compiler got it, and its parts after their Opts."""
  spec: ProgramSpec
  parts: Parts | None


# ---- what is made

def forget() -> None:
  """Nothing has been compiled, and no kernel's name has a number."""
  for found in (compile._programs, planner._plans): found.clear()
  compile._by_spec.clear()
  reset_numbering()
  refusals.clear()


def made(case: Case, machine: Machine) -> list[Made]:
  """The kernels of a case, in the order in which they are made."""
  device, chosen, out = opened(machine), dict[tuple[str, str], Parts](), list[Made]()
  fresh = compile.fresh

  def watched(*args: Any, **given: Any) -> Any:
    found = fresh(*args, **given)
    if found.parts is not None: chosen[found.spec.name, found.spec.source.text] = found.parts
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
  return {r.name: printed(Case(r.name, zoo_row(r)), NAMED[machine], show=every, debug=5) for r in rows}


def origins() -> Entries:
  """The tables of kernels of every second network, which name the lines of the program that each kernel computes."""
  out = {}
  for s in specs()[::2]:
    text, file = grown(s).text.replace("np.random.default_rng(0)", "nothing"), f"network{s.number:02}.py"
    def run(text: str = text, file: str = file) -> None:
      linecache.cache[file] = (len(text), None, text.splitlines(True), file)
      exec(builtins.compile(text, file, "exec"), {"nothing": Nothing()})
    said = printed(Case(title(s), run), NAMED["avx512"], debug=3)
    tables = re.findall(r"── schedule [\s\S]*?(?=\n\n|$)", said)
    out[title(s)] = "\n".join([*tables, "", *[f"{n:4}  {line}".rstrip() for n, line in enumerate(text.splitlines(), 1)]])
  return out


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
  firsts = list({kind_of(c.name): c for c in reversed(rows)}.values())[::-1]
  for case in itertools.chain(tiles(machine), firsts):
    if len(found) >= count: break
    try: specs = [m.spec for m in made(case, machine)]
    except Exception: continue   # among the kernels it stands as refused
    if not specs: continue
    spec = replace(specs[-1], source=replace(specs[-1].source, text=steady(specs[-1].source.text)))
    binary = compiler.work(compiler.request(spec, "sm_90"))
    found[f"{case.name} · {spec.name}"] = f"cubin {digest(binary.cubin)}, {binary.num_warps} warps, {binary.shared} bytes shared"
  return found
