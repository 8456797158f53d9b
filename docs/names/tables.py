"""Writes docs/coming-from-pytorch.md and docs/coming-from-tinygrad.md: each public name there, and what it is here or why not.

    python docs/names/tables.py               # writes both, and ntgrad/compat/absent.txt
    python docs/names/tables.py --check       # names of which nothing is known
    python docs/names/tables.py --parameters  # remarks about parameters, as found by looking

The names are in ``pytorch.txt`` (which ``listed.py`` writes) and ``tinygrad.txt``, with parameters where they are known:
``Tensor.sort(dim, descending | stable)``, what only some overloads have behind ``|``. Where a name is here is found by looking,
and so are parameters that are not here or stand in another order; the rest is in ``notes.txt``.
"""
from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ABSENT = HERE.parents[1] / "ntgrad" / "compat" / "absent.txt"
sys.path.insert(0, str(HERE.parents[1]))

import ntgrad  # noqa: E402
from ntgrad import Device, Tensor, dtypes, nn  # noqa: E402
from ntgrad.graph import with_code  # noqa: E402

# a prefix there -> where to look here, in this order: the object, how its names are written
PLACES: dict[str, list[tuple[Any, str]]] = {
  "Tensor.": [(Tensor, "Tensor.{}")],
  "torch.": [(ntgrad, "ntgrad.{}"), (Tensor, "Tensor.{}"), (dtypes, "dtypes.{}")],
  "nn.optim.Optimizer.": [(nn.optim.Optimizer, "nn.optim.Optimizer.{}")], "nn.Module.": [(nn.Module, "nn.Module.{}")],
  "optim.Optimizer.": [(nn.optim.Optimizer, "nn.optim.Optimizer.{}")],
  "dtypes.": [(dtypes, "dtypes.{}")], "Device.": [(Device, "Device.{}")],
  "": [(ntgrad, "ntgrad.{}")]}
MODULES = {"nn.init.": "ntgrad.nn.init", "nn.functional.": "ntgrad.nn.functional", "nn.utils.": "ntgrad.nn.utils",
           "nn.utils.rnn.": "ntgrad.nn.utils.rnn", "nn.utils.parametrize.": "ntgrad.nn.utils.parametrize",
           "nn.utils.parametrizations.": "ntgrad.nn.utils.parametrizations", "utils.hooks.": "ntgrad.utils.hooks",
           "backends.cudnn.": "ntgrad.backends.cudnn", "backends.cuda.": "ntgrad.backends.cuda",
           "backends.mps.": "ntgrad.backends.mps",
           "optim.lr_scheduler.": "ntgrad.nn.optim.lr_scheduler",
           "optim.swa_utils.": "ntgrad.nn.optim.swa_utils", "optim.": "ntgrad.nn.optim", "nn.optim.": "ntgrad.nn.optim",
           "utils.data.": "ntgrad.utils.data", "utils.checkpoint.": "ntgrad.utils.checkpoint", "linalg.": "ntgrad.linalg",
           "special.": "ntgrad.special", "autograd.": "ntgrad.autograd", "autograd.functional.": "ntgrad.autograd.functional",
           "func.": "ntgrad.func", "cuda.": "ntgrad.cuda", "amp.": "ntgrad.amp",
           "nn.state.": "ntgrad.nn.state", "nn.datasets.": "ntgrad.nn.datasets", "helpers.": "ntgrad.helpers", "nn.": "ntgrad.nn"}
CAST = ntgrad.Tensor.matmul.__code__   # of methods that autocasting is for
MOVED = "squeeze swapaxes swapdims t transpose unsqueeze".split()
COMPARED = "eq ge greater greater_equal gt le less less_equal lt ne not_equal".split()
TITLES = {"pytorch": "PyTorch", "tinygrad": "tinygrad"}
# parameters that need no remark: they say where results go, how memory is laid out, or which kernel is taken
PASSED_OVER = set("out memory_format layout pin_memory size_average reduce non_blocking implicit names foreach fused capturable "
                  "differentiable inplace path out_dtype sparse_grad b _stacklevel mask_check enable_nested_tensor cudnn_enabled "
                  "cudnn_enable min_value max_value remove_duplicate random_samples recompute_scale_factor train out_int32 "
                  "compute_mode".split())
# what is given by place: its name says nothing
FIRST = set("other self end size input input2 x2 b A tensor vec2 sections split_size_or_sections dim0 from Y x t fn fxn arg ll "
            "device".split())


class Found(NamedTuple):
  """Where a name is here, as it is written, and what it is."""
  where: str
  what: Any = None


def notes() -> tuple[dict[str, tuple[str, str]], list[tuple[str, str]]]:
  """Names and patterns of ``notes.txt``."""
  names, patterns = {}, []
  for line in (HERE / "notes.txt").read_text().splitlines():
    if not line.strip() or line[0] in "#+": continue
    first, *rest = [part.strip() for part in re.split(r"\s\|(?=\s|$)", line)]
    if first.startswith("~ "): patterns.append((first[2:], rest[0]))
    else: names[first] = rest[0], rest[1] if len(rest) > 1 else ""
  return names, patterns


NAMES, PATTERNS = notes()


def _opened(place: Any, name: str) -> bool:
  """Whether a name is a module of ntgrad that is there because something has imported it."""
  return inspect.ismodule(getattr(place, name, None)) and name not in getattr(place, "__all__", ())


def found(name: str) -> Found | None:
  """Where a name is here."""
  for prefix, module in sorted(MODULES.items(), key=lambda m: -len(m[0])):
    if name.startswith(prefix):
      last = name.removeprefix(prefix)
      try: place = importlib.import_module(module)
      except ImportError: place = None
      if last and "." not in last and hasattr(place, last) and not _opened(place, last):
        return Found(f"`{module.removeprefix('ntgrad.')}.{last}`", getattr(place, last))
  for prefix, places in PLACES.items():
    last = name.removeprefix(prefix)
    if not name.startswith(prefix) or "." in last: continue
    for place, written in places:
      if prefix and _opened(place, last): continue
      if hasattr(place, last): return Found(f"`{written.format(last)}`", getattr(place, last))
      if place is Tensor and last.endswith("_") and hasattr(place, last[:-1]):
        if last[:-1] in MOVED: return Found(f"`x = x.{last[:-1]}(..)`")
        return Found(f"`x.assign(x.{last[:-1]}(..){'.cast(x.dtype)' if last[:-1] in COMPARED else ''})`")
  return None


# ---- parameters
def ours(x: Any) -> tuple[list[str], set[str], bool] | None:
  """Parameters that go by place, all of them, and whether any number goes by place; None for what is no function."""
  if not callable(x) or isinstance(x, property): return None
  f = x.__init__ if isinstance(x, type) else x
  if getattr(f, "__code__", None) is CAST: f = f.__wrapped__   # takes what the method takes
  try: given = list(inspect.signature(with_code(f), follow_wrapped=False).parameters.values())
  except (TypeError, ValueError): return None
  given = [p for p in given if p.name != "self"]
  many = any(p.kind is p.VAR_POSITIONAL for p in given)
  places = [p.name for p in given if p.kind is p.POSITIONAL_OR_KEYWORD or p.kind is p.POSITIONAL_ONLY]
  names = {p.name for p in given} | ({"*"} if any(p.kind is p.VAR_KEYWORD for p in given) else set())
  return places, names, many


def differs(x: Any, said: str) -> str:
  """What a caller has to know of parameters: which of ``said`` are not here, and whether their order is another."""
  here = ours(x)
  if here is None or "*" in here[1]: return ""
  places, names, many = here
  main, _, more = said.partition("|")
  theirs = [p.strip() for p in main.split(",") if p.strip()]
  others = [p.strip() for p in more.split(",") if p.strip()]
  if many and theirs and theirs[0] not in names: theirs = theirs[1:]
  # the first operand may have another name
  names = names | ({*theirs[:1]} & FIRST if places else set())
  missing = [p for p in [*theirs, *others] if p not in names and p not in PASSED_OVER]
  also = {"dim": "axis", "axis": "dim", "keepdim": "keepdims"}
  common = [p for p in theirs if p in names and p not in PASSED_OVER]
  order = [also[p] if p in also and p not in places and also[p] in places else p for p in common]
  out = []
  if missing: out.append("without " + ", ".join(f"`{p}`" for p in missing))
  if not many and [p for p in order if p in places] != [p for p in places if p in order]:
    out.append("another order: give them by name")
  return "; ".join(out)


class Entry(NamedTuple):
  """A line of a page; ``look`` is what was found about parameters."""
  where: str
  remark: str
  look: str = ""


def entry(name: str, said: str | None = None) -> Entry | None:
  """Where a name is here, and a remark; None where nothing is known of it."""
  here = found(name)
  if name in NAMES:
    where, remark = NAMES[name]
    if where: return Entry(where, remark)
    if here is None: raise ValueError(f"notes.txt: {name} has a remark and is not here")
    return Entry(here.where, remark)   # a remark stands for what could be found by looking
  if here is not None:
    look = "" if said is None else differs(here.what, said)
    return Entry(here.where, look, look)
  return next((Entry("–", why) for pattern, why in PATTERNS if re.fullmatch(pattern, name)), None)


def listed(library: str) -> dict[str, str | None]:
  """Names of a library, each with its parameters."""
  out: dict[str, str | None] = {}
  for line in (HERE / f"{library}.txt").read_text().splitlines():
    name, bracket, rest = line.partition("(")
    out[name] = rest.rstrip(")") if bracket else None
  return out


def document(library: str) -> tuple[str, list[str]]:
  """The page of a library, and the names of which nothing is known."""
  names = listed(library)
  entries = {n: entry(n, said) for n, said in names.items()}
  about = (HERE / f"{library}.md").read_text().strip()
  lines = [f"# Coming from {TITLES[library]}", "", "<!-- written by docs/names/tables.py -->", "", about, "", "## Every name", ""]
  here = sum(1 for e in entries.values() if e is not None and e.where != "–")
  lines += [f"{here} of {len(names)} public names are here.", "", f"| {TITLES[library]} | here | remark |", "| --- | --- | --- |"]
  lines += [f"| `{n}` | {e.where} | {e.remark} |" for n, e in entries.items() if e is not None]
  return "\n".join(lines) + "\n", [n for n, e in entries.items() if e is None]


def absent() -> str:
  """The file of the package that has why names are not here: a reason, then the names, in lines of their own."""
  whys: dict[str, list[str]] = {}
  seen: set[str] = set()
  def say(name: str, why: str) -> None:
    if name not in seen: whys.setdefault(why, []).append(name)
    seen.add(name)
  for library in TITLES:
    for name, said in listed(library).items():
      e = entry(name, said)
      if e is None: continue
      if e.where == "–": say(name, e.remark)
      elif found(name) is None: say(name, f"use {e.where}" + (f"; {e.remark}" if e.remark else ""))
  for line in (HERE / "notes.txt").read_text().splitlines():   # modules, and what else no list has
    if line.startswith("+ "): say(*line[2:].split(" | "))
  lines = []
  for why, names in whys.items():
    lines += [why, *textwrap.wrap(" ".join(names), 120, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)]
  return "\n".join(lines) + "\n"


def page(library: str) -> Path: return HERE.parent / f"coming-from-{library}.md"


def main() -> int:
  unknown = 0
  for library in TITLES:
    text, missing = document(library)
    unknown += len(missing)
    if "--check" in sys.argv: print(library, len(missing), *missing, sep="\n  ")
    elif "--parameters" in sys.argv:
      for n, said in listed(library).items():
        e = entry(n, said)
        if e is not None and e.look: print(f"{n}({said}): {e.look}")
    else: page(library).write_text(text)
  if len(sys.argv) == 1: ABSENT.write_text(absent())
  return unknown > 0


if __name__ == "__main__": sys.exit(main())
