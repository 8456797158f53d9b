"""Running kernels that were compiled before: nothing is read or compiled, what must be so of arguments is checked as ever."""
from __future__ import annotations

import hashlib
import json
import math
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

from ntgrad.backends.base import Device, Program
from ntgrad.codegen import index as ix
from ntgrad.codegen.index import evaluator, nested_text
from ntgrad.codegen.ir import ArgumentError, DeviceError, NtgradError, Recent, ShapeError, StateError, UOp, dtypes
from ntgrad.codegen.ir.paths import reason, shown_path
from ntgrad.codegen.kernel import substitute
from ntgrad.codegen.kernel.arrangement import Arrangement
from ntgrad.engine.compile import from_specs
from ntgrad.engine.device import canonical, default_device, get_device, there
from ntgrad.engine.plan import Step
from ntgrad.engine.size_variants import Variant, Variants, in_units
from ntgrad.graph import checked, lock

from . import manifest
from .launch import EVERYTHING, Argument, ByName, Launcher, Positional, Span, describe_argument, launch
from .open_sizes import SizedKernel, Sizes, form_for
from .parameters import Parameter
from .signature import Found, MemoryOf, Signature
from .tensor import Tensor

FORMAT = 4   # of a library's manifest; another one is not read
_DIMENSION = re.compile(r"\bdim(\d+)_(\d+)\b")


class BuiltProgram(Variants):
  """The variants of a library's kernel. ``most``: up to where it has some, by size."""

  def __init__(self, kernel: str, found: Mapping[str, Any], programs: Sequence[Program]):
    choice = found["choice"]
    sizes = tuple(map(ix.Size, found["sizes"]))
    elements, (work,), stored = ([manifest.expression(e) for e in choice[m]] for m in ("elements", "work", "stored"))
    super().__init__(sizes, elements, work, stored, tuple(choice["strided"]), choice["unit"], choice["stream"])
    self.kernel, self.most = kernel, choice["most"]
    for p, record in zip(programs, found["programs"], strict=True):
      needs = tuple(map(manifest.comparison, record["needs"]))
      units = tuple(record["units"])
      given = in_units(sizes, units, p.spec.sizes)  # type: ignore[attr-defined]
      self.variants.append(Variant(p, evaluator(needs, sizes), given, units, record["wide"], record["work"], needs))
    self.fits = evaluator(tuple(self.condition(v) for v in self.variants), sizes)
    self.groups: dict[tuple[Sizes, bool], list[list[tuple[int, float]]]] = {}

  def condition(self, v: Variant) -> UOp:
    """When a variant takes sizes: its units divide them, and what it needs of their numbers holds."""
    units = {s.node: unit for s, unit in zip(self.sizes, v.units) if unit > 1}
    whole = [ix.eq(ix.mod(s, unit), 0) for s, unit in units.items()]
    return ix.both(*whole, *substitute(v.needs, {s: ix.fdiv(s, unit) for s, unit in units.items()}))

  def chosen(self, sizes: Sizes, units: Sizes, wide: bool, work: int) -> Variant:
    """The variant for sizes that comes nearest to what is best for them. Raises ArgumentError where there is none."""
    fits, size = self.fits(sizes), math.log(work)
    for group in self.groups.get((units, wide)) or self.grouped(units, wide):
      if near := [(abs(size - log), i) for i, log in group if fits[i]]: return self.variants[min(near)[1]]
    far = [(s.name, n) for s, n in zip(self.sizes, sizes) if n > self.most.get(s.name, n)]
    what = "; ".join(f"{s} is {n}, and it has programs up to {self.most[s]}" for s, n in far) or \
      f"{', '.join(f'{s.name} = {n}' for s, n in zip(self.sizes, sizes))} is none that it was built for"
    raise ArgumentError(f"{self.kernel}: the library has no program for these sizes: {what}; build it with such hints")

  def grouped(self, units: Sizes, wide: bool) -> list[list[tuple[int, float]]]:
    """The variants for sizes of which ``wanted`` says this, the best first: by number, with the logarithm of their work."""
    groups: dict[Sizes, list[tuple[int, float]]] = {}
    for i, v in enumerate(self.variants):
      # where alignment always pays, the greatest multiples are the best
      worst = v.units not in (units, (1,) * len(units)) if self.stream else -math.prod(v.units)
      key = worst, v.units != units, v.wide and not wide
      if v.wide or not wide: groups.setdefault(key, []).append((i, math.log(v.work)))
    out = self.groups[units, wide] = [groups[k] for k in sorted(groups)]
    return out


@dataclass
class Built:
  """A compiled kernel of a library: what ``Specialised`` is to a kernel that is read here."""
  name: str
  parameters: tuple[Parameter, ...]
  writes: Sizes
  sizes: tuple[ix.Size, ...]
  load: Callable[[str], Program]
  launchers: dict[str, Launcher] = field(default_factory=dict)

  @property
  def reads(self) -> Sequence[Span]:
    """Of each parameter the elements that may be read: all."""
    return [EVERYTHING] * len(self.parameters)

  @property
  def touched(self) -> frozenset[int]:
    """The slots of the parameters that it may read or write: all."""
    return frozenset(p.slot for p in self.parameters)

  def launcher(self, device: str, aligns: Sizes = (), sizes: Sizes = ()) -> Launcher:
    """What launches it on a device, for certain run-time sizes."""
    found = self.launchers.get(device)
    if found is None:   # arguments that are the same memory take a kernel of their own
      names = tuple(p.name for p in self.parameters)
      step = Step(self.load(device), tuple(range(len(names))), self.writes, (), device)
      found = self.launchers[device] = Launcher(self.name, step, self.writes, names, lambda: ())
    return found.with_sizes(sizes) if sizes else found


class BuiltKernel(Signature):
  """A kernel of a library: for certain shapes, or for all sizes that its ``form`` serves."""
  pieces = False

  def __init__(self, library: Library, found: Mapping[str, Any]):
    self.library, self.found, self.device = library, found, library.device
    self.constants: dict[str, int] = found["all_values"]
    self.config: dict[str, Any] = found.get("config", {})   # the parameters of ``premake`` that calls tell kernels apart by
    self.arguments = [(tuple(shape), dtypes.of(d)) for shape, d in found["arguments"]]
    self.form: SizedKernel | None = None
    tensors: Sequence[Tensor]
    if "takes" in found: tensors, arranged, assessed = manifest.signature_parts(found["takes"])
    else:
      tensors = [Tensor(shape=shape, dtype=d, name=n) for n, (shape, d) in zip(found["parameters"], self.arguments, strict=True)]
      arranged, assessed = tensors, []
    aside = set(found["parameters"]).difference(found.get("tiled", found["parameters"]))
    super().__init__(found["kernel"], tensors, arranged, assessed, found["checks"], aside)
    writes = tuple(found["writes"])
    parameters = tuple(Parameter(t.name, i, Arrangement.of(()), d, written=i in writes)
                       for i, (t, (_, d)) in enumerate(zip(self.takes, self.arguments, strict=True)))
    self.built = Built(self.name, parameters, writes, tuple(map(ix.Size, found.get("sizes", ()))), self.load)
    if "takes" in found:
      self.form = form_for(self.built, ix.both(*map(manifest.comparison, found["condition"])), found["values_made_for"])
      self.agreements = [(manifest.comparison(c), message) for c, message in found["agreements"]]

  def alike(self, taken: Sequence[Argument]) -> bool:
    """Whether arguments have the numbers of dimensions and the dtypes that it was built for."""
    return [(len(a.shape), a.dtype) for a in taken] == [(len(shape), d) for shape, d in self.arguments]

  def serves(self, taken: Sequence[Argument]) -> bool:
    """Whether it may be launched for arguments like those that it was built for."""
    try: return self.form is not None and self.form.serves(self.values(taken, {}))
    except NtgradError: return False

  def values(self, taken: Sequence[Argument], given: ByName) -> dict[str, int]:
    """What names are, in the form's order. Raises what does not fit."""
    names = self.form.values   # type: ignore[union-attr]
    known = self.constants | self.bind(self.placed(taken), given)
    if missing := [n for n in names if n not in known]:
      raise ArgumentError(f"{self.name}: no value for {', '.join(missing)}; give it by name")
    return {n: known[n] for n in names}

  def _specialise(self, taken: Sequence[Argument], arguments: Positional, given: ByName, device: str | None = None,
                  buffers: MemoryOf | None = None) -> Found:
    for t, a in zip(self.tensors, taken):
      if a.jagged is not None: raise ArgumentError(f"{self.name}: {t.name} is not jagged, got one jagged in {a.jagged[0]}")
    if (form := self.form) is None: return self.built, (), None
    values = self.values(taken, given)
    if self.alike(taken) and form.serves(values): return self.built, form.sizes(values), form
    if self.arrange(self.placed(taken), self.again({})[0], values, self.found.get("tiled", self.names)) is None: return None
    sizes = {f"dim{i}_{d}": n for i, a in enumerate(taken) for d, n in enumerate(a.shape)}
    for condition, message in self.agreements:
      if not _holds(condition, sizes): raise ShapeError(_DIMENSION.sub(lambda m: str(sizes[m[0]]), message))
    wrong = [c for c in ix.conjuncts(form.condition) if not _holds(c, values)]
    said = " and ".join(f"{a} {sign} {b}" for a, sign, b in manifest.conditions(wrong))
    known = ", ".join(f"{n} = {v}" for n, v in values.items() if n not in self.constants)
    raise ArgumentError(f"{self.name}: the library has no kernel for {known}: it was built for sizes with {said}; build it with "
                        "such hints too")

  def load(self, device: str) -> Program:
    """Its program on a device. Raises StateError for a damaged file or one that the device does not take."""
    library, found = self.library, self.found
    if device != library.device:
      raise DeviceError(f"{self.name}: arguments on {device}, and a library for {library.device}; load it for that, or move them")
    records = found.get("programs", [found])
    binary = (library.folder / found["binary"]).read_bytes()
    if hashlib.sha256(binary).hexdigest() != found["sha256"]:
      raise StateError(f"load: {library.folder / found['binary']} is damaged; build it again")
    on: Device = get_device(device)
    with library.understood():
      specs = [manifest.spec_of(r, (library.folder / r["source"]).read_text()) for r in records]
      on.unpack(binary, specs)
      programs = from_specs(specs, on)
      return BuiltProgram(self.name, found, programs) if self.form is not None else programs[0]


def _holds(condition: UOp, values: Mapping[str, int]) -> bool:
  """Whether a comparison of names without options holds where they have values."""
  return bool(evaluator((condition,), tuple(map(ix.Size, values)))(tuple(values.values()))[0])


class Library:
  """The kernels of a folder that :func:`build` made. Calling it runs the one whose arguments fit; as a path it is the folder."""

  def __init__(self, folder: str | os.PathLike[str], device: str | None = None):
    self.folder = Path(folder)
    try: found = json.loads((self.folder / "manifest.json").read_text())
    except (OSError, ValueError) as e:
      raise StateError(f"load: {shown_path(folder)} is no folder of built kernels ({reason(e)})") from None
    have = found.get("format") if isinstance(found, dict) else None
    if have != FORMAT: raise StateError(f"load: {self.folder} has format {have!r}; this version reads {FORMAT}: build it again")
    self.device = default_device() if device is None else there(canonical(device))
    self._chosen: Recent[Any, BuiltKernel] = Recent(4096)
    with self.understood():
      self.target: str = found["target"]
      self.kernels: list[dict[str, Any]] = found["kernels"]
      made = [BuiltKernel(self, k) for k in self.kernels]
    self._static, self._free = [k for k in made if k.form is None], [k for k in made if k.form is not None]
    self._count, self._told = (len(made[0].takes), list(made[0].config)) if made else (0, [])
    self._only = self._free[0] if self._free == made and len(made) == 1 else None   # it says itself what does not fit

  @contextmanager
  def understood(self) -> Iterator[None]:
    """Raises StateError where what the block reads in the manifest makes no sense."""
    try: yield
    except (StateError, DeviceError): raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, NtgradError) as e:
      raise StateError(f"load: {self.folder / 'manifest.json'} is damaged ({type(e).__name__}: {e}); build it again") from None

  def __repr__(self) -> str: return f"<{len(self.kernels)} built kernels for {self.target} in {self.folder}>"

  def __fspath__(self) -> str: return str(self.folder)
  def __str__(self) -> str: return str(self.folder)
  def __truediv__(self, name: str | os.PathLike[str]) -> Path: return self.folder / name

  def __call__(self, *args: Any, **values: Any) -> None:
    """Run the kernel that was built for such arguments: tensors, then parameters of configurations in their order or by name,
    and values of symbols by name. Raises ArgumentError where there is none, and what the kernel raises."""
    with lock:
      kernel = self._only
      if len(args) > self._count:
        values = dict(zip(self._told, args[self._count:], strict=False)) | values
        if len(args) - self._count <= len(self._told): args = args[:self._count]
      if kernel is None or values:
        values = {n: manifest.told(v) if n in self._told else v for n, v in values.items()}
        taken = tuple(describe_argument(a) for a in args)
        key = taken, *values.items()
        kernel = self._chosen[key]
        if kernel is None: kernel = self._chosen[key] = self.kernel_for(taken, values)
      rest = {n: v for n, v in values.items() if n not in kernel.constants and (n in kernel.symbols or n not in self._told)}
      launch(kernel, args, rest)

  def kernel_for(self, taken: Sequence[Argument], values: Mapping[str, int]) -> BuiltKernel:
    """The kernel for arguments: for these very shapes, else for all. Raises ArgumentError for none, or several that differ."""
    want = [(a.shape, a.dtype) for a in taken]
    def told(k: BuiltKernel) -> bool: return all(k.config[n] in (v, None) for n, v in values.items() if n in k.config)
    numbers = {n: v for n, v in values.items() if n not in self._told}
    static = [k for k in self._static if k.arguments == want and told(k)]
    fits = [k for k in static if all(k.constants.get(n) == v for n, v in numbers.items())]
    if not fits:
      free = [k for k in self._free if told(k) and all(k.constants.get(n, v) == v for n, v in numbers.items())]
      alike = [k for k in free if k.alike(taken)]
      fits = alike if len(alike) < 2 else [k for k in alike if k.serves(taken)] or alike[:1]
      if not fits and self._only is not None: fits = free
      said = [(k.found["values"], k.config) for k in fits]
      if fits and all(s == said[0] for s in said): fits = fits[:1]
    if len(fits) == 1: return fits[0]
    have = "; ".join(arguments_text(k["arguments"]) + (f" with {more}" if (more := k["values"] | k.get("config", {})) else "")
                     for k in self.kernels)
    what = f"{'several kernels' if fits else 'no kernel'} for {arguments_text([(s, d.name) for s, d in want])}"
    raise ArgumentError(f"{self!r}: {what}{f' with {values}' if values else ''}; there is {have}")


@checked
def load(folder: str | os.PathLike[str], device: str | None = None) -> Library:
  """The kernels of a folder that :func:`build` made, for a device. Raises StateError."""
  return Library(folder, device)


def arguments_text(arguments: Sequence[Any]) -> str:
  """Shapes and dtypes as messages have them."""
  return ", ".join(f"{d}{nested_text(tuple(shape))}" for shape, d in arguments)
