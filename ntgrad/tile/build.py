"""Ahead of time: a family of kernels compiled into a folder, and run from there without reading or compiling anything. A
configuration that leaves sizes open gives one kernel for all of them, in the variants that calls would make."""
from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import math
import os
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np

from ntgrad.backends.base import Device, Program, ProgramSpec
from ntgrad.codegen import index as ix
from ntgrad.codegen.choose.gpu_cost import estimate
from ntgrad.codegen.index import assuming, evaluator, negated, sizes_of
from ntgrad.codegen.ir import UOp, config as settings, dtypes
from ntgrad.codegen.ir.errors import ArgumentError, NtgradError, ShapeError, StateError, did_you_mean, shown
from ntgrad.codegen.ir.paths import usable
from ntgrad.codegen.kernel import Kernel, substitute
from ntgrad.engine import report
from ntgrad.engine.device import default_device, get_device
from ntgrad.engine.measuring import Bench, CandidateMemory
from ntgrad.engine.size_variants import WIDE, SizedProgram, Variant
from ntgrad.graph import checked
from ntgrad.graph.symbol import Symbol, evaluate

from . import manifest
from .assessments import Whole, dimensions_agree
from .kernel import TileKernel, make
from .library import FORMAT, Library, arguments_text
from .open_sizes import Sizes, likely_size
from .parameters import Parameter
from .specialised import Specialised
from .tensor import Tensor
from .tune import COMPILER_OPTIONS, noting, shown_values

_LONGEST = 1 << 14   # elements that a block has at most where nothing says how long a size is
SEED = 0             # of the numbers that configurations are measured on
_SHORT = 16          # and what is short for a loop
_MOST = 40           # hints that a kernel is compiled for
_PROBES = 1 << 16    # sizes that are looked at for such a hint
_SOURCE = 1 << 17    # characters of source, beyond which a CPU's kernel is compiled for no more hints: a convolution's has 60 000
_LAST = 1 << 62      # the work of a variant that is for sizes that no other takes


@dataclass(frozen=True)
class Config:
  """One member of a family: what ``premake`` is called with, the arguments' shapes and dtypes, and values for symbols.

  A dimension is an int, or open: None or "?", a name or a Symbol. Without ``arguments`` all are as the tensors are declared.
  ``hints`` say what open sizes may well be, one number or several: the kernel is made to be fast for these.
  """
  args: tuple[Any, ...] = ()
  kwargs: Mapping[str, Any] = field(default_factory=dict)
  arguments: Sequence[tuple[Sequence[Any], Any]] = ()
  values: Mapping[str, int] = field(default_factory=dict)
  hints: Mapping[str, int | Sequence[int]] = field(default_factory=dict)


@checked
def build(premake: Callable[..., tuple[Any, Any, Sequence[Any]]], configs: Sequence[Any], output_dir: str | os.PathLike[str], *,
          target: str = "opencl", kernel_name: str | None = None, caller: str | None = None,
          meta_parameters: Sequence[str] | None = None, lazy: bool = False) -> Library:
  """Compile a kernel for each of ``configs`` into a folder. Gives what :func:`load` gives for it; as a path it is the folder.

  ``premake(*config.args, **config.kwargs)`` gives ``(arrangement, application, tensors)``. ``target`` is "opencl" (this machine's
  default device), or "sm_80", "sm_90" … for a GPU that need not be there. The folder has each kernel's source and binary, and a
  manifest. A configuration may be a tuple ``(args, kwargs, options)``, options being ``num_warps`` and ``num_stages`` for the
  compiler. ``meta_parameters`` are keywords of ``premake`` by which calls need not tell configurations apart: of those that
  differ in nothing else one is kept. It is the fastest: measured for their shapes (of open sizes the hints; of several by the
  geometric mean) on this machine's device, and by the cost model for a GPU that need not be there. With ``TUNE=0`` it is the
  first.
  A call tells configurations apart by the arguments' shapes and dtypes, by values of symbols, and by the parameters of
  ``premake``, in their order behind the tensors or by name: ``kernel(x, y, 3)``, ``kernel(x, y, factor=3)``.
  ``caller`` and ``lazy`` say nothing here: whoever has the folder calls it, and building takes no locks. Raises ArgumentError for
  two configurations that a call could not tell apart.
  """
  folder = Path(output_dir)
  with usable("build", folder):
    if folder.exists() and not folder.is_dir():
      raise StateError(f"build: {str(folder)!r} is a file; give a folder, or the path of a new one")
    folder.mkdir(parents=True, exist_ok=True)
  entries: list[dict[str, Any]] = []
  device, meta = _device_of(target), list(meta_parameters or ())
  alike: dict[Any, list[int]] = {}   # configurations, by what calls tell them apart by
  read = list(map(configuration, configs))
  for number, (c, _) in enumerate(read):
    same = repr((c.args, {n: v for n, v in c.kwargs.items() if n not in meta}, c.arguments, c.values))
    alike.setdefault(same if meta else number, []).append(number)
  for several in alike.values():
    kernels = [_made_by(premake, n, *read[n], kernel_name) for n in several]
    said = [{n: v for n, v in read[i][0].kwargs.items() if n in meta} for i in several]
    best = fastest_config(kernels, [read[n][0] for n in several], said, device, target == "opencl")
    number, kernel = several[best], kernels[best]
    c = read[number][0]
    config = {n: manifest.told(v) for n, v in given_to(premake, number, c).items() if n not in meta}
    with settings(checks="entry" if settings.checks == "all" else settings.checks):   # a library has no notes
      entry, specs = compiled(kernel, c, device)
    entry["config"] = config
    if any(all(e.get(told) == entry.get(told) for told in ("arguments", "values", "condition", "config")) for e in entries):
      raise ArgumentError(f"build: two configurations of {kernel.name} have the arguments {arguments_text(entry['arguments'])} "
                          f"and values {entry['values'] | config}")
    stem, extension = f"{kernel.name}_{number}", "cl" if target == "opencl" else "py"
    binary = _packed(specs, target, device)
    (folder / f"{stem}.bin").write_bytes(binary)
    for i, (spec, record) in enumerate(zip(specs, entry.get("programs", [entry]))):
      record |= manifest.program(spec, f"{stem}{f'_{i}' if 'programs' in entry else ''}.{extension}")
      (folder / record["source"]).write_text(spec.source.text)
    entries.append(entry | {"binary": f"{stem}.bin", "sha256": hashlib.sha256(binary).hexdigest()})
  (folder / "manifest.json").write_text(json.dumps({"format": FORMAT, "target": target, "kernels": entries}, indent=1))
  return Library(folder)


# ---- one configuration

def given_to(premake: Callable[..., Any], number: int, c: Config) -> dict[str, Any]:
  """What the parameters of ``premake`` are in the configuration with a number. Raises ArgumentError for what it does not take."""
  try: found = signature(premake).bind(*c.args, **c.kwargs)
  except TypeError as e: raise ArgumentError(f"build: configuration {number} is not what premake takes: {e}") from None
  found.apply_defaults()
  return found.arguments


def is_closed(c: Config) -> bool:
  """Whether a configuration has a number for each size."""
  return bool(c.arguments) and all(isinstance(n, int) for shape, _ in c.arguments for n in shape)


def _made_by(premake: Callable[..., Any], number: int, c: Config, options: dict[str, Any], name: str | None) -> TileKernel:
  """The kernel of the configuration with a number. Raises ArgumentError for what ``premake`` does not take, or gives."""
  given_to(premake, number, c)
  made = premake(*c.args, **c.kwargs)
  if not isinstance(made, tuple) or len(made) != 3:
    raise ArgumentError(f"build: premake gives {shown(made)}; it returns (arrangement, application, tensors)")
  arrangement, application, tensors = made
  return make(arrangement, application, tensors if is_closed(c) else _declared(tensors, c), kernel_name=name, **options)


def configuration(c: Any) -> tuple[Config, dict[str, Any]]:
  """A configuration, given as one or as a tuple (args, kwargs, options), and the compiler's options. Raises ArgumentError."""
  if isinstance(c, Config): return c, {}
  if not isinstance(c, (tuple, list)) or not 1 <= len(c) <= 3 or not isinstance(c[0], (tuple, list)):
    raise ArgumentError(f"build: a configuration is a tile.Config, or a tuple (args, kwargs, options), got {shown(c)}")
  kwargs, options = (dict(part or {}) for part in (*c[1:], *({},) * (3 - len(c))))
  known = *COMPILER_OPTIONS, "max_num_configs"
  if wrong := [n for n in options if n not in known]:
    raise ArgumentError(f"build: no option {wrong[0]!r}{did_you_mean(wrong[0], known)}; there are {', '.join(known)}")
  return Config(tuple(c[0]), kwargs), options


def compiled(kernel: TileKernel, c: Config, device: Device) -> tuple[dict[str, Any], list[ProgramSpec]]:
  """A kernel for the shapes of a configuration, or all sizes that it leaves open: what the manifest says of it, its programs."""
  if is_closed(c):
    s = kernel.specialise(*c.arguments, **c.values)
    return _about(s, c), [s.spec(device)]
  hints = {n: [v] if isinstance(v, int) else list(v) for n, v in c.hints.items()}
  if unknown := [n for n in hints if n not in kernel.symbols]:
    raise ArgumentError(f"build: no size {', '.join(unknown)} in {kernel.name}; it has {', '.join(kernel.symbols)}")
  form = kernel.general(device.renderer.target.blocks, c.values, list(c.arguments) or None, {n: v[0] for n, v in hints.items()})
  s = form.specialised
  assert isinstance(s, Specialised)
  if not s.kernel.sizes: return _about(s, c), [s.spec(device)]
  program, most = variants(s, device, hints)
  of = {p.name: p.dtype for p in s.parameters}
  condition = manifest.conditions([form.condition])
  entry = _about(s, c) | {
    "arguments": [[list(map(manifest.declared_size, t.shape)), p.dtype.name] for t, p in zip(kernel.takes, s.parameters)],
    "takes": manifest.signature(kernel, [of.get(t.name) for t in kernel.tensors]),
    "sizes": [size.name for size in s.kernel.sizes],
    "condition": condition,
    "values_made_for": dict(form.values),
    "agreements": agreements(kernel, s),
    "all_values": {n: v for n, v in form.values.items() if [n, "==", v] in condition},
    "choice": {**{name: list(map(manifest.size_entry, es)) for name, es in zip(("elements", "stored"), program.measures[::2])},
               "work": [manifest.size_entry(program.measures[1])], "strided": list(program.strided), "unit": program.unit,
               "stream": program.stream, "most": most},
    "programs": [
      {"units": list(v.units), "wide": v.wide, "work": v.work, "needs": manifest.conditions(v.needs)} for v in program.variants]}
  return entry, list(map(small, program.variants))


def _about(s: Specialised, c: Config) -> dict[str, Any]:
  """What the manifest says of every kernel. Raises ArgumentError for one that no library can have."""
  if s.asserts:
    raise ArgumentError(f"build: {s.name} has a device_assert, which a library cannot say the line of; leave it out there")
  return {"kernel": s.name, "arguments": [[list(p.arrangement.source), p.dtype.name] for p in s.parameters],
          "values": {n: v for n, v in s.values.items() if n in c.values}, "all_values": dict(s.values),
          "parameters": [p.name for p in s.parameters], "writes": list(s.writes),
          "tiled": [p.name for p in s.parameters if p.tiled], "checks": settings.checks}


def _declared(tensors: Sequence[Tensor], c: Config) -> list[Tensor]:
  """The tensors, their dimensions without names as a configuration has them: as if they had been declared so."""
  if not c.arguments: return list(tensors)
  count = len([t for t in tensors if not (t.constexpr and t.value is not None)])
  if count != len(c.arguments): raise ArgumentError(f"build: {len(c.arguments)} arguments for {count} tensors")
  arguments = iter(c.arguments)
  def declared(t: Tensor) -> Tensor:
    shape, dtype = ((), None) if t.constexpr and t.value is not None else next(arguments)
    if len(shape) != t.ndim or t.operations: return t   # general says what is wrong
    s = t._source
    dims = [n if g is None else g for g, n in zip(s.given, shape)]
    element = s.dtype if s.dtype is not None or dtype is None else dtypes.of(dtype)
    return Tensor(None, dims, element, s.other, s.shape_options, s.constexpr, s.value, jagged_dim=s.jagged_dim)
  return list(map(declared, tensors))


def agreements(kernel: TileKernel, s: Specialised) -> list[list[Any]]:
  """Comparisons of ``dim0_1`` (dimension 1 of argument 0) and so on that must hold, as one index goes through both; messages."""
  def whole_of(p: Parameter, t: Tensor) -> Whole:
    w = Whole.new(p, t)
    def dim(d: int) -> UOp: return ix.Size(f"dim{p.slot}_{d}", hint=1009 + 64 * p.slot + d).node
    return replace(w, limits=tuple(n if at is None or isinstance(n, int) else dim(at) for n, at in zip(w.limits, w.source)))
  out: list[list[Any]] = []
  known: list[UOp] = []
  while settings.checks != "none":
    with assuming() as found:
      found.update(dict.fromkeys(known))
      try: dimensions_agree(s.name, s.kernel, s.parameters, {t.name: t for t in kernel.tensors}, whole_of)
      except ShapeError as e:
        known.append(negated(next(reversed(found))))
        out.append([manifest.conditions(known[-1:])[0], str(e)])
        continue
    break
  return out


# ---- which of several configurations that differ in meta-parameters only is kept

def fastest_config(kernels: Sequence[TileKernel], members: Sequence[Config], said: Sequence[dict[str, Any]], device: Device,
                   here: bool) -> int:
  """The number of the fastest configuration: measured if the device is ``here``, else by the model. 0 with ``TUNE=0``."""
  if len(members) == 1 or not settings.tune or settings.noopt: return 0
  made: dict[int, list[Specialised]] = {}   # by number, for each of the shapes
  lines: list[str] = []
  for i, (kernel, c) in enumerate(zip(kernels, members)):
    with noting(lines, said[i]):
      made[i] = [kernel.specialise(*sizes, **c.values) for sizes in sizes_for(kernel, replace(c, hints=members[0].hints))]
  if not made: return 0   # which says why when it is compiled
  seconds: dict[int, float] = {}
  with ExitStack() as held:
    benches = []
    for s in next(iter(made.values())) if here else ():
      benches.append(Bench(device, memory(s, device, held)))
      with settings(noopt=1): benches[-1].reference(*device.compile([s.spec(device)]))
    for i, several in made.items():
      with noting(lines, said[i]):
        if here: times = [b.measure(p) for b, p in zip(benches, device.compile([s.spec(device) for s in several]))]
        else: times = [estimate(s.kernel, device.renderer.target) for s in several]
        seconds[i] = math.exp(sum([math.log(max(t, 1e-9)) for t in times]) / len(times))   # the geometric mean
        lines.append(f"{shown_values(said[i])}: {seconds[i] * 1e6:.1f} µs{'' if here else ' by the model'}")
  best = min(seconds or made, key=lambda i: seconds.get(i, 0.0))
  report.tuned(kernels[best].name, said[best], lines)
  return best


def sizes_for(kernel: TileKernel, c: Config) -> list[list[tuple[Sizes, Any]]]:
  """The shape and dtype of each argument: those of a configuration, for what it leaves open each of its hints (or some likely
  number)."""
  given = kernel.takes
  if c.arguments and len(c.arguments) != len(given):
    raise ArgumentError(f"{kernel.name}: takes {len(given)} arguments, got {len(c.arguments)}")
  def number(n: Any, declared: Any, likely: Mapping[str, int]) -> int:
    if isinstance(n, int): return n
    s = n if isinstance(n, Symbol) else Symbol(n) if isinstance(n, str) and n != "?" else declared
    return s if isinstance(s, int) else int(evaluate(s, {m.name: likely.get(m.name, likely_size(m)) for m in s.names()}))
  wanted = c.arguments or [((None,) * len(t.shape), t.element or "float32") for t in given]
  out = []
  for values in itertools.product(*[[v] if isinstance(v, int) else v for v in c.hints.values()]):
    likely = dict(zip(c.hints, values))
    out.append([(tuple(number(n, e, likely) for n, e in zip(shape, t.shape)), dtype) for t, (shape, dtype) in zip(given, wanted)])
  return [sizes for i, sizes in enumerate(out) if sizes not in out[:i]]


def memory(s: Specialised, device: Device, held: ExitStack) -> list[CandidateMemory]:
  """Memory for each parameter, as long as ``held``: floats from 0 to 1, and ints that are 0, which are places everywhere."""
  rng, out = np.random.default_rng(SEED), []
  for p in s.parameters:
    n = math.prod([ix.count(m) for m in p.shape])
    array = (rng.random(n, np.float32) if p.dtype.kind == "f" else np.zeros(n)).astype(p.dtype.np)
    raw = device.alloc(size := max(array.nbytes, 1))
    held.callback(device.free, raw, size)
    if n: device.copyin(raw, array.view(np.uint8))
    out.append(CandidateMemory(array.nbytes, p.dtype, raw, p.written))
  return out


# ---- programs

class Rendered(Program):
  """A program that is not compiled yet."""
  def __init__(self, spec: ProgramSpec): self.spec = spec


def variants(s: Specialised, device: Device, hints: Mapping[str, Sequence[int]]) -> tuple[SizedProgram, dict[str, int]]:
  """The variants that serve all sizes of a kernel as far as can be; of sizes that must fit a block the greatest that does."""
  def rendered(kernel: Kernel) -> tuple[Program, tuple[UOp, ...]]:
    spec, needs = s.rendered(kernel, device)
    return Rendered(spec), needs
  program, sizes = SizedProgram(s.kernel, device, rendered), s.kernel.sizes
  likely = [hints.get(size.name, [_within(size, ix.count(size.node))]) for size in sizes]
  for at in itertools.product(*likely): _add(program, at)
  base, refused = tuple(v[0] for v in likely), set[Sizes]()
  blocks = device.renderer.target.blocks
  for _ in range(_MOST):
    written = "".join([v.program.spec.source.text for v in program.variants])  # type: ignore[attr-defined]
    if complete(program) or not blocks and len(written) > _SOURCE: break   # the variant for any sizes, below, serves what is left
    steps = [_steps(size, b, blocks) if _needed(program, size) else [b] for size, b in zip(sizes, base)]
    probes = itertools.islice(nearest_sizes(steps, base), _PROBES)
    near = next((at for at in probes if at not in refused and not served(program, at)), None)
    if near is None: break
    try: _add(program, near)
    except NtgradError: refused.add(near)
  if complete(program): return program, {}
  if not blocks: _add(program, base, _LAST)
  return program, {
    size.name: max([n for n in _steps(size, b, True) if served(program, (*base[:i], n, *base[i + 1:]))], default=b)
    for i, (size, b) in enumerate(zip(sizes, base)) if _needed(program, size)}


def nearest_sizes(steps: Sequence[Sequence[int]], base: Sizes) -> Iterator[Sizes]:
  """Each choice of one number of each of ``steps``, by how many doublings and halvings it is from ``base``, the nearest first."""
  each = [sorted((abs(math.log2(n / b)), n) for n in ns) for ns, b in zip(steps, base)]
  heap = [(sum(s[0][0] for s in each), (0,) * len(each), 0)]
  while heap:
    far, at, first = heapq.heappop(heap)
    yield tuple(s[i][1] for s, i in zip(each, at))
    for d in range(first, len(at)):   # those before stay as they are: each choice comes once
      if (i := at[d] + 1) < len(each[d]):
        heapq.heappush(heap, (far - each[d][i - 1][0] + each[d][i][0], (*at[:d], i, *at[d + 1:]), d))


def complete(program: SizedProgram) -> bool:
  """Whether some variant takes all sizes."""
  return any(max(v.units) == 1 and not v.needs for v in program.variants)


def _needed(program: SizedProgram, size: ix.Size) -> bool:
  """Whether some variant needs something of a size."""
  return size.name in {n.name for v in program.variants for n in sizes_of(v.needs)}


def _within(size: ix.Size, n: int) -> int:
  """A number in a size's bounds."""
  return max(size.lower or 1, n if size.upper is None else min(n, size.upper))


def _steps(size: ix.Size, likely: int, blocks: bool) -> list[int]:
  """What a size may be, for variants that are made for it: for blocks all powers of two, else a few numbers."""
  low, high = _within(size, 1), _within(size, _LONGEST)
  each = [1 << i for i in range(_LONGEST.bit_length())] if blocks else [_SHORT, likely]
  return sorted({low, high, *[n for n in each if low <= n <= high]})


def served(program: SizedProgram, at: Sequence[int]) -> bool:
  """Whether some variant takes sizes, whatever divides them."""
  return any(max(v.units) == 1 and all(v.fits(at)) for v in program.variants)


def _add(program: SizedProgram, at: Sizes, work: int | None = None) -> None:
  """Render the variants for about these sizes: aligned or not, of 32 and 64 bits, of whole blocks; with ``work`` for any."""
  many = tuple(program.unit if i in program.strided else 1 for i in range(len(at)))
  pays = not program.stream or max(program.stored(at), default=0) >= program.stream
  far = max(ix.vmax(ix.node(e)) for e in (*program.measures[0], *[s.node for s in program.sizes])) >= WIDE
  each = [(1,) * len(at)]
  if pays: each.append(many)
  blocks = program.blocks(at, each[0], False)
  if blocks.loops: each.append(tuple(map(math.lcm, many, blocks.of)))
  for units in dict.fromkeys(each):
    near = tuple(-(-n // unit) * unit for n, unit in zip(at, units))
    if any(s.upper is not None and n > s.upper for n, s in zip(near, program.sizes)): continue
    before = [_said(v) for v in program.variants]
    made = [program.new(near, units, wide, free=work is not None) for wide in ((False, True) if far else (False,))]
    if len(made) == 2 and _said(made[0]) == _said(made[1]): made = [made[0]._replace(wide=True)]
    made = [v if work is None else v._replace(work=work) for v in made if _said(v) not in before]
    program.variants[len(before):] = made


def small(v: Variant) -> ProgramSpec:
  """A variant's program, its sizes with the least bounds at which it may be launched: what compiles it runs it so."""
  spec: ProgramSpec = v.program.spec  # type: ignore[attr-defined]
  every = tuple(dict.fromkeys([*spec.sizes, *sizes_of(v.needs)]))
  holds, at = evaluator(v.needs, every), [s.hint or 1 for s in every]
  for i, s in enumerate(spec.sizes):
    tries = [1 << k for k in range(at[i].bit_length()) if 1 << k >= (s.lower or 1)]
    at[i] = next((n for n in tries if all(holds([*at[:i], n, *at[i + 1:]]))), at[i])
  sizes = tuple(s._replace(lower=n, hint=None) for s, n in zip(spec.sizes, at))
  table = {a.node: b.node for a, b in zip(spec.sizes, sizes)}
  return replace(spec, sizes=sizes, grid=tuple(ix.number(substitute((ix.node(g),), table)[0]) for g in spec.grid))


def _said(v: Variant) -> tuple[Any, ...]:
  """All of a variant that makes a difference to a launch."""
  spec: ProgramSpec = v.program.spec  # type: ignore[attr-defined]
  return spec.source.text, spec.source.signature, spec.options, str(manifest.program(spec, "")), str(manifest.conditions(v.needs))


# ---- targets

def _device_of(target: str) -> Device:
  """What kernels are rendered for: this machine's device, or a GPU that need not be there. Raises ArgumentError."""
  if target == "opencl": return get_device(default_device())
  if not target.startswith("sm_"): raise ArgumentError(f"build: no target {target!r}; targets: opencl, sm_80, sm_90, …")
  from ntgrad.backends.cuda import compiler as triton
  from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer
  number = triton.capability(target)
  chip = replace(TARGET, local_memory=triton.shared_memory(number))
  return SimpleNamespace(renderer=TritonRenderer(chip, number), name=target)   # type: ignore[return-value]


def _packed(specs: Sequence[ProgramSpec], target: str, device: Device) -> bytes:
  """Programs compiled, as bytes."""
  if target == "opencl": return device.pack(specs)
  from ntgrad.backends.cuda import compiler as triton
  waiting = triton.ahead(requests := [triton.request(s, target) for s in specs])   # workers compile what comes later
  out = b"".join(triton.finished(r).pack() for r in requests)
  del waiting
  return out
