"""Ahead of time: a family of kernels compiled into a folder, and run from there without reading or compiling anything."""
from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from ntgrad.backends.base import Device, KernelSource, ProgramSpec
from ntgrad.checks import checked
from ntgrad.codegen.config import config as settings
from ntgrad.codegen.errors import ArgumentError, StateError, shown
from ntgrad.device import canonical, default_device
from ntgrad.engine.compile import from_specs
from ntgrad.engine.device import get_device
from ntgrad.engine.plans import Step

from .kernel import make
from .launch import Launcher, describe, lent, memory_of, run, settled

FORMAT = 3


@dataclass(frozen=True)
class Config:
  """One member of a family: what ``premake`` is called with, the arguments' shapes and dtypes, and values for symbols."""
  args: tuple[Any, ...] = ()
  kwargs: Mapping[str, Any] = field(default_factory=dict)
  arguments: Sequence[tuple[tuple[int, ...], Any]] = ()
  values: Mapping[str, int] = field(default_factory=dict)


@checked
def build(
  premake: Callable[..., tuple[Any, Any, Sequence[Any]]],
  configs: Sequence[Config],
  output_dir: str | os.PathLike[str],
  *,
  target: str = "opencl",
  kernel_name: str | None = None,
) -> Path:
  """Compile a kernel for each of ``configs`` into a folder, which :func:`load` runs. Gives the folder.

  ``premake(*config.args, **config.kwargs)`` gives ``(arrangement, application, tensors)``. ``target`` is "opencl" (this machine's
  default device), or "sm_80", "sm_90" … for a GPU that need not be there. The folder has each kernel's source and binary, and a
  manifest. Raises ArgumentError for two configurations that a call could not tell apart.
  """
  folder = Path(output_dir)
  if folder.exists() and not folder.is_dir():
    raise StateError(f"build: {str(folder)!r} is a file; give a folder, or the path of a new one")
  folder.mkdir(parents=True, exist_ok=True)
  entries: list[dict[str, Any]] = []
  for number, c in enumerate(configs):
    made = premake(*c.args, **c.kwargs)
    if not isinstance(made, tuple) or len(made) != 3:
      raise ArgumentError(f"build: premake gives {shown(made)}; it returns (arrangement, application, tensors)")
    arrangement, application, tensors = made
    kernel = make(arrangement, application, tensors, kernel_name=kernel_name)
    taken = [describe((tuple(shape), dtype)) for shape, dtype in c.arguments]
    with settings(checks="entry" if settings.checks == "all" else settings.checks):   # a library has no notes
      s = kernel.specialise(*c.arguments, **c.values)
    if s.asserts:
      raise ArgumentError(f"build: {kernel.name} has a device_assert, which a library cannot say the line of; leave it out there")
    entry: dict[str, Any] = {
      "kernel": kernel.name,
      "arguments": [[list(a.shape), a.dtype.name] for a in taken],
      "values": {n: v for n, v in s.values.items() if n in c.values},
      "all_values": dict(s.values),
      "parameters": [p.name for p in s.parameters],
      "writes": list(s.writes),
    }
    clash = next((e for e in entries if (e["arguments"], e["values"]) == (entry["arguments"], entry["values"])), None)
    if clash is not None:
      raise ArgumentError(
        f"build: two configurations of {kernel.name} have the arguments {show(entry['arguments'])} and values {entry['values']}"
      )
    stem = f"{kernel.name}_{number}"
    spec, binary, extension = compiled(s, target)
    (folder / f"{stem}.{extension}").write_text(spec.source.text)
    (folder / f"{stem}.bin").write_bytes(binary)
    entry |= {
      "name": spec.name,
      "source": f"{stem}.{extension}",
      "binary": f"{stem}.bin",
      "sha256": hashlib.sha256(binary).hexdigest(),
      "grid": list(spec.grid),
      "local": list(spec.local),
      "nparams": spec.nparams,
      "flops": spec.flops,
      "bytes": spec.bytes,
    }
    entries.append(entry)
  (folder / "manifest.json").write_text(json.dumps({"format": FORMAT, "target": target, "kernels": entries}, indent=1))
  return folder


def compiled(s: Any, target: str) -> tuple[ProgramSpec, bytes, str]:
  """Source, binary, and what files of such source are called."""
  if target == "opencl":
    device = get_device(default_device())
    spec = s.spec(device)
    return spec, device.pack([spec]), "cl"
  if target.startswith("sm_"):
    from types import SimpleNamespace

    from ntgrad.backends.cuda import compiler as triton
    from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer
    number = triton.capability(target)
    chip = replace(TARGET, local_memory=triton.shared_memory(number))
    renderer = TritonRenderer(chip, number)
    spec = s.spec(SimpleNamespace(renderer=renderer, name=target))
    return spec, triton.finished(triton.request(spec, target)).pack(), "py"
  raise ArgumentError(f"build: no target {target!r}; targets: opencl, sm_80, sm_90, …")


class Library:
  """The kernels of a folder that :func:`build` made. Calling it runs the one whose arguments fit."""

  def __init__(self, folder: str | os.PathLike[str], device: str | None = None):
    self.folder = Path(folder)
    try: manifest = json.loads((self.folder / "manifest.json").read_text())
    except (OSError, ValueError) as e: raise StateError(f"load: {self.folder} is no folder of built kernels ({e})") from None
    if manifest.get("format") != FORMAT:
      raise StateError(f"load: {self.folder} has format {manifest.get('format')!r}; this version reads {FORMAT}: build it again")
    self.target: str = manifest["target"]
    self.kernels: list[dict[str, Any]] = manifest["kernels"]
    self.device = default_device() if device is None else canonical(device)
    self._launchers: dict[int, Launcher] = {}

  def __repr__(self) -> str: return f"<{len(self.kernels)} built kernels for {self.target} in {self.folder}>"

  def __call__(self, *args: Any, **values: int) -> None:
    """Run the kernel that was built for these shapes and dtypes. Raises ArgumentError where there is none."""
    taken = [describe(a) for a in args]
    want = [[list(a.shape), a.dtype.name] for a in taken]
    fits = [
      i
      for i, k in enumerate(self.kernels)
      if k["arguments"] == want and all(k["all_values"].get(n) == v for n, v in values.items())
    ]
    if len(fits) != 1:
      have = "; ".join(show(k["arguments"]) + (f" with {k['values']}" if k["values"] else "") for k in self.kernels)
      what = f"{'several kernels' if fits else 'no kernel'} for {show(want)}{f' with {values}' if values else ''}"
      raise ArgumentError(f"{self!r}: {what}; there is {have}")
    k = self.kernels[fits[0]]
    with lent(args) as mine:
      back: list[Callable[[], None]] = []
      given = [(name, a, i in k["writes"]) for i, (name, a) in enumerate(zip(k["parameters"], mine))]
      tensors = settled(k["kernel"], given, self.device, back)
      launcher = self._launchers.get(fits[0]) or self._launchers.setdefault(fits[0], self.launcher(k))
      run(launcher, tensors, [memory_of(t).node for t in tensors])
      for write_back in back: write_back()

  def launcher(self, k: Mapping[str, Any]) -> Launcher:
    """A kernel of the folder, on the device. Raises StateError for a damaged file or one that the device does not take."""
    binary = (self.folder / k["binary"]).read_bytes()
    if hashlib.sha256(binary).hexdigest() != k["sha256"]:
      raise StateError(f"load: {self.folder / k['binary']} is damaged; build it again")
    device: Device = get_device(self.device)
    source = KernelSource((self.folder / k["source"]).read_text())
    spec = ProgramSpec(k["name"], source, tuple(k["grid"]), tuple(k["local"]), k["nparams"], (), k["flops"], k["bytes"])
    device.unpack(binary, [spec])
    program, = from_specs([spec], device)
    return Launcher(
      k["kernel"],
      Step(program, tuple(range(spec.nparams)), tuple(k["writes"]), (), self.device),
      tuple(k["writes"]),
      tuple(k["parameters"]),
      (),   # arguments that are the same memory take a kernel of their own
    )


@checked
def load(folder: str | os.PathLike[str], device: str | None = None) -> Library:
  """The kernels of a folder that :func:`build` made, for a device. Raises StateError."""
  return Library(folder, device)


def show(arguments: Sequence[Any]) -> str: return ", ".join(f"{d}{tuple(shape)}" for shape, d in arguments)


__all__ = ["Config", "Library", "build", "load"]
