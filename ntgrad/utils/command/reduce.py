"""``reduce``: of a kernel that a device computes otherwise than the oracle the least that still differs, found
by leaving out Opts, statements and operations, and by making axes shorter, as a program of a few lines."""
from __future__ import annotations

import time
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

import numpy as np

from ntgrad.codegen import pipeline
from ntgrad.codegen.explain.tile_source import tile_source
from ntgrad.codegen.ir import MissingFileError, NtgradError, Ops, UOp, config, dtypes
from ntgrad.codegen.ir.paths import usable
from ntgrad.codegen.kernel import ACCESSES, Axis, substitute
from ntgrad.engine import compile as compiling
from ntgrad.engine.buffer import Buffer
from ntgrad.engine.device import get_device
from ntgrad.engine.override_files import Exported, read
from ntgrad.engine.overrides import rounding_part

from .check import Arrays, Case, Check, compare, oracle
from .parser import add_script, command, tell

SECONDS = 120.0   # that are spent
SIZES = 2, 3, 4, 5, 8, 16, 17, 32, 64, 128, 256, 1024   # that are tried for an axis
# what params may hold, from the simplest on
CONTENTS = ("np.zeros({s}, {d!r})", "np.ones({s}, {d!r})", "np.arange({n}).reshape({s}).astype({d!r})",
            "np.random.default_rng(0).standard_normal({s}).astype({d!r})")


def results(case: Case) -> Arrays:
  """The params after a launch on the device. Raises whatever compiling does."""
  device = get_device(case.device)
  with config(tiers=0, verify=1):
    parts = pipeline.prepare(case.kernel, device.renderer.target, case.name)
    spec, _ = compiling.rendered(parts.kernel, parts.after(case.opts), device, case.name)
    program, = device.compile([spec])
  buffers = [Buffer(case.device, a.shape, p.dtype) for p, a in zip(case.kernel.params, case.data)]
  for b, a in zip(buffers, case.data): b.put(a)
  program([device.at(b.raw, 0) if p.align else b.raw for p, b in zip(case.kernel.params, buffers)])
  return [b.get() for b in buffers]


def differs(case: Case) -> str | None:
  """How the device's results differ; None where they do not, and for what is no kernel any more."""
  try:
    right = oracle(case.kernel, case.name)
    right(case.data, {})   # what it refuses was cut too far
    return compare(case.kernel, lambda data: right(data, {}), case.data, results(case))
  except Exception: return None   # of a kernel that was cut any pass may say that it is none


def fitting(case: Case) -> Case:
  """Without the Opts that do not apply: those of a kernel for all sizes may not to one with numbers."""
  kept = []
  for part, opts in zip(pipeline.prepare(case.kernel, get_device(case.device).renderer.target, case.name).all(), case.opts):
    kernel = part.kernel
    for o in opts:
      with suppress(NtgradError): kernel = o.apply(kernel)
    kept.append(kernel.applied)
  return replace(case, opts=tuple(kept))


def both(space: Mapping[str, Any], device: str, data: Arrays) -> tuple[np.ndarray, np.ndarray]:
  """For a program that was written here (its globals are ``space``): what the device gives and what is right, of the first param
  that differs, else of the last that is written."""
  found = Exported(space["kernel"], "", None, tuple(space.get("ALIGNS", ())), dict(space.get("AXES", {})), space["__file__"])
  case = Case(found.form(), found.kernel.name, tuple(map(tuple, space["OPTS"])), device, data)
  got, want = results(case), oracle(case.kernel, case.name)(data, {})
  pairs = [(got[p.slot].astype(float), want[p.slot].astype(float)) for p in case.kernel.params if p.written]
  return next(((a, b) for a, b in pairs if not np.array_equal(a, b)), pairs[-1])


def smaller(case: Case) -> Iterator[Case]:
  """Cases that have a little less, what takes most away first."""
  kernel, opts = case.kernel, case.opts
  if any(opts): yield replace(case, opts=((),) * len(opts))
  for i, mine in enumerate(opts):
    for j in range(len(mine)): yield replace(case, opts=(*opts[:i], (*mine[:j], *mine[j + 1:]), *opts[i + 1:]))
  for s in kernel.body if kernel.stores_only and len(kernel.body) > 1 else (): yield with_body(case, (s,))
  for u in reversed(kernel.nodes):
    if u.op in (Ops.STORE, Ops.CONST) or u.dtype not in dtypes.all: continue
    for s in (UOp.const(u.dtype, 1),) if u.op is Ops.LOAD else u.src:
      if s.dtype is u.dtype: yield with_body(case, substitute(kernel.body, {u: s}))
  for a in kernel.axes:
    for n in SIZES if isinstance(a.size, int) else ():
      if n < a.known: yield shorter(case, a, n)


def with_body(case: Case, body: Sequence[UOp]) -> Case:
  """With other statements, the params that are in them and the axes that they go through."""
  kernel = case.kernel.with_(body=tuple(body))
  used = [p for p in kernel.params if p.uop in kernel.nodes]
  new = [replace(p, slot=i, written=p.uop in kernel.written) for i, p in enumerate(used)]
  axes = tuple([a for a in kernel.axes if a.rng in kernel.nodes or a.id in kernel.bound])
  body = substitute(kernel.body, {p.uop: q.uop for p, q in zip(used, new)})
  return replace(case, kernel=kernel.with_(params=tuple(new), axes=axes, body=body), data=[case.data[p.slot] for p in used])


def shorter(case: Case, axis: Axis, n: int) -> Case:
  """With fewer values of an axis, and of the dimensions that only it goes through."""
  kernel, to, along = case.kernel, replace(axis, size=n), dict[tuple[UOp, int], set[UOp]]()
  for u in [u for u in kernel.nodes if u.op in ACCESSES]:
    for d, at in enumerate(u.src[1].src): along.setdefault((u.src[0], d), set()).add(at)
  params = tuple([replace(p, shape=tuple([n if along.get((p.uop, d)) == {axis.rng} else m for d, m in enumerate(p.shape)]))
                  for p in kernel.params])
  body = substitute(kernel.body, {axis.rng: to.rng})
  kernel = kernel.with_(params=params, axes=tuple([to if a is axis else a for a in kernel.axes]), body=body)
  return replace(case, kernel=kernel, data=[a[tuple(map(slice, p.shape))].copy() for a, p in zip(case.data, params)])


def as_written(case: Case) -> Case | None:
  """A case with the kernel that its text in the tile language makes; None where it has none."""
  try:
    found = read(tile_source(case.kernel, case.name, case.opts))
    return replace(case, kernel=found.form(), opts=found.opts or ())
  except Exception: return None   # as in ``differs``


def reduced(case: Case) -> tuple[Case, list[str]]:
  """The least that was found to differ, and can be written if the case can; and its data as text, the simplest that will do."""
  until, text = time.perf_counter() + SECONDS, as_written(case) is not None
  while True:
    tried = takewhile(lambda _: time.perf_counter() <= until, smaller(case))
    new = (as_written(less) if text else less for less in tried)
    if (less := next((x for x in new if x is not None and differs(x) is not None), None)) is None: break
    case = less
  texts = []
  for i, (a, p) in enumerate(zip(case.data, case.kernel.params)):
    for t in CONTENTS:
      t = t.format(s=tuple(map(int, a.shape)), d=p.dtype.name, n=a.size)
      less = replace(case, data=[*case.data[:i], eval(t, {"np": np}), *case.data[i + 1:]])  # noqa: S307 (one of CONTENTS)
      if differs(less) is not None: break
    else: less, t = case, f"np.array({a.astype(float).tolist()}).astype({p.dtype.name!r})"
    case = less
    texts.append(t)
  return case, texts


def program(case: Case, texts: Sequence[str]) -> str:
  """A case, its data as ``texts``, as a program that ends with an assertion. Raises ExportError for a kernel that the tile
  language does not have."""
  off = max([rounding_part(p.dtype) if p.dtype.kind == "f" else 0.0 for p in case.kernel.params if p.written])
  lines = tile_source(case.kernel, case.name, case.opts).splitlines()
  return "\n".join([
    *[line for line in lines if line and not line.startswith("KEY")],
    "import numpy as np", "from ntgrad.utils.command.reduce import both", f"data = [{(',' + chr(10) + ' ' * 8).join(texts)}]",
    f"got, want = both(globals(), {case.device!r}, data)", f"np.testing.assert_allclose(got, want, rtol={off}, atol={off})", ""])


def load(path: str) -> Case:
  """What ``check --save`` wrote. Raises MissingFileError, OverrideError."""
  with usable("reduce", path, MissingFileError), np.load(path, allow_pickle=False) as f:
    text, name, device = map(str, f["texts"])
    found = read(text)
    kernel = found.form()
    data = [f[f"data{p.slot}"].view(p.dtype.np).reshape(p.shape) for p in kernel.params]
  return Case(kernel, name, found.opts or (), device, data)


def reduce_case(args: Namespace) -> int:
  """Write a program for a script's first kernel that differs, or for a saved one. The exit code is 0 where it is written."""
  check = Check()
  if not args.script.endswith(".npz"): check.run(args.script, args.args, json=args.json)
  if check.first is not None: print(check.first[0])
  case = load(args.script) if args.script.endswith(".npz") else check.first and check.first[1]
  if case is None or differs(case := fitting(case)) is None:
    print("all kernels are as the oracle's" if case is None else f"{case.name}, launched by itself, is as the oracle's")
    return 1
  case, texts = reduced(case)
  try: text = program(case, texts)
  except NtgradError as e:
    print(f"the kernel that is left has no form in the tile language: {e}\n{case.kernel}\nopts   {case.opts}")
    return 1
  path = Path(args.output or f"reduced_{case.name}.py")
  path.write_text(text)
  lines, how = text.count("\n"), differs(case)
  tell(args, {"wrote": str(path), "lines": lines, "differs": how}, f"wrote {path}, {lines} lines: {how}")
  return 0


def add(commands: Any) -> None:
  """``reduce``."""
  parser = command(
    commands, "reduce", reduce_case, "Make a short program of a kernel that check finds, which fails alone: of a script, or of "
    "what check --save wrote. The exit code is 0 where it is written.", "reduce train.py", "reduce -o small.py case.npz")
  parser.add_argument("-o", dest="output", metavar="FILE", help="the program (reduced_NAME.py)")
  add_script(parser)
