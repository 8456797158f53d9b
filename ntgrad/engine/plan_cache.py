"""Whole schedules on disk: a structure that any process has seen before is neither scheduled nor rendered again, only loaded.

An entry's key is the structure of the graph (no addresses, nothing that differs between processes), the settings and devices that
the generated code depends on, and the state of ntgrad's own sources.
"""
from __future__ import annotations

import hashlib
import pickle
from typing import Any, Hashable, Iterable

from ntgrad.backends import cache
from ntgrad.backends.base import ProgramSpec
from ntgrad.codegen.config import config

from . import overrides
from .compile import from_specs
from .device import get_device
from .plan import Plan, Step

TABLE = "plan"


def key_of(structure: Hashable, devices: Iterable[str]) -> str | None:
  """The entry that a structure on some devices has. None where plans are not kept: cache off, a debug level that shows how
  kernels come about, passes to verify, kernels of a person's own, or a device that runs UOps.
  """
  if overrides.given or config.override or overrides.noted: return None
  if not config.cache or config.debug >= 3 or config.verify: return None
  targets = [(d, get_device(d).identity, get_device(d).renderer.target) for d in sorted(set(devices))]
  if any([t.name == "numpy" for *_, t in targets]): return None
  text = repr((structure, targets, cache.sources()))
  return None if cache.sources() is None or " at 0x" in text else hashlib.sha256(text.encode()).hexdigest()


def load(key: str) -> Plan | None:
  """The plan kept under a key, its programs ready. None where there is none; a damaged one is removed."""
  raw = cache.load(TABLE, key)
  if raw is None: return None
  try:
    inputs, made, outputs, steps, specs = pickle.loads(raw)
    steps = [
      (n, tuple(slots), tuple(writes), tuple(last_use), str(device), tuple(offsets), tuple(nodes))
      for n, slots, writes, last_use, device, offsets, nodes in steps
    ]
    kernels = {device: [ProgramSpec(*s) for s in found] for device, found in specs.items()}
  except Exception:   # whatever is in there, it is no plan
    cache.remove(TABLE, key)
    return None
  programs = {device: from_specs(found, get_device(device)) for device, found in kernels.items()}
  ready = [
    Step(None if n is None else programs[device][n], slots, writes, last_use, device, offsets, nodes=nodes)
    for n, slots, writes, last_use, device, offsets, nodes in steps
  ]
  return Plan(inputs, made, tuple(ready), outputs)


def store(key: str, plan: Plan) -> None:
  """Keep a plan."""
  specs: dict[str, list[Any]] = {}
  steps: list[Any] = []
  for s in plan.steps:
    number = None
    if s.program is not None:
      spec: ProgramSpec = s.program.spec  # type: ignore[attr-defined]
      mine = specs.setdefault(s.device, [])
      number = len(mine)
      mine.append((spec.name, spec.source, spec.grid, spec.local, spec.nparams, (), spec.work, spec.options, spec.sizes))
    steps.append((number, s.slots, s.writes, s.last_use, s.device, s.offsets, s.nodes))
  cache.store(TABLE, key, pickle.dumps((plan.inputs, plan.made, plan.outputs, steps, specs), pickle.HIGHEST_PROTOCOL))
