"""``python -m ntgrad reduce``: of a kernel that a device computes otherwise than the oracle the least that still differs, found
by leaving out Opts, statements and operations, and by making axes shorter, as a program of a few lines."""
from __future__ import annotations

import sys
import time
from argparse import REMAINDER, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

import numpy as np

from ntgrad.codegen import pipeline
from ntgrad.codegen.explain.tile_source import tile_source
from ntgrad.codegen.ir import MissingFileError, NtgradError, Ops, UOp, config, dtypes
from ntgrad.codegen.ir.paths import usable
from ntgrad.codegen.kernel import Axis, Param, substitute
from ntgrad.engine import compile as compiling
from ntgrad.engine.device import get_device
from ntgrad.engine.override_files import Exported, read
from ntgrad.engine.profile import there_is
from ntgrad.engine.tolerances import rounding

from .check import Arrays, Case, Check, Oracle, compare

SECONDS = 120.0   # that are spent
LINES = 30        # of the program at most
SIZES = 2, 3, 4, 5, 8, 16, 17, 32, 64, 128, 256, 1024   # that are tried for an axis
# what params may hold, from the simplest on
CONTENTS = ("np.zeros({s}, {d!r})", "np.ones({s}, {d!r})", "np.arange({n}).reshape({s}).astype({d!r})",
            "np.random.default_rng(0).standard_normal({s}).astype({d!r})")


# ---- running
def results(case: Case) -> tuple[Arrays, Arrays]:
  """The params after a launch on the device, and what they are by the oracle. Raises whatever compiling does."""
  device = get_device(case.device)
  with config(tiers=0, verify=1):
    parts = pipeline.prepare(case.kernel, device.renderer.target, case.name)
    spec, _ = compiling.rendered(parts.kernel, parts.after(case.opts), device, case.name)
    program, = device.compile([spec])
  raws = [device.alloc(max(a.nbytes, 1)) for a in case.data]
  try:
    for raw, a in zip(raws, case.data): device.copyin(raw, np.ascontiguousarray(a).reshape(-1).view(np.uint8))
    program([device.at(raw, 0) if p.align else raw for p, raw in zip(case.kernel.params, raws)])
    got = [device.copyout(raw, a.nbytes).view(a.dtype).reshape(a.shape) for raw, a in zip(raws, case.data)]
  finally:
    for raw, a in zip(raws, case.data): device.free(raw, max(a.nbytes, 1))
  return got, Oracle(case.kernel, case.name)(case.data, {})


def differs(case: Case) -> str | None:
  """How the device's results differ; None where they do not, and for what is no kernel any more."""
  try:
    got, want = results(case)
    oracle = Oracle(case.kernel, case.name)
    return compare(case.kernel, lambda data: want if data is case.data else oracle(data, {}), case.data, got)
  except Exception: return None   # of a kernel that was cut any pass may say that it is none


def both(space: Mapping[str, Any], device: str, data: Arrays) -> tuple[np.ndarray, np.ndarray]:
  """For a program that was written here (its globals are ``space``): what the device gives and what is right, of the first param
  that differs, else of the first that is written."""
  found = Exported(space["kernel"], "", None, tuple(space.get("ALIGNS", ())), dict(space.get("AXES", {})), space["__file__"])
  case = Case(found.form(), found.kernel.name, tuple(map(tuple, space["OPTS"])), device, data)
  got, want = results(case)
  written = [p.slot for p in case.kernel.params if p.written]
  i = next((i for i in written if not np.array_equal(got[i], want[i])), written[0])
  return got[i].astype(np.float64), want[i].astype(np.float64)


# ---- making it smaller
def smaller(case: Case) -> Iterator[Case]:
  """Cases that have a little less, what takes most away first."""
  kernel, opts = case.kernel, case.opts
  if any(opts): yield replace(case, opts=tuple([()] * len(opts)))
  for i, mine in enumerate(opts):
    for j in range(len(mine)): yield replace(case, opts=(*opts[:i], (*mine[:j], *mine[j + 1:]), *opts[i + 1:]))
  if kernel.stores_only and len(kernel.body) > 1:
    for s in kernel.body: yield with_body(case, (s,))
  for u in reversed(kernel.nodes):
    if u.op in (Ops.STORE, Ops.CONST) or u.dtype is dtypes.index or u.dtype not in dtypes.all: continue
    less = [s for s in u.src if s.dtype is u.dtype and s.op is not Ops.DEFINE_GLOBAL]
    if u.op is Ops.LOAD: less = [UOp.const(u.dtype, 1)]
    for s in less: yield with_body(case, substitute(kernel.body, {u: s}))
  for a in kernel.axes:
    if a.rng not in kernel.nodes and a.id not in kernel.bound:
      yield replace(case, kernel=kernel.with_(axes=tuple([x for x in kernel.axes if x is not a])))
    for n in SIZES if isinstance(a.size, int) else ():
      if n < a.known: yield shorter(case, a, n)


def with_body(case: Case, body: Sequence[UOp]) -> Case:
  """With other statements, and the params that are in them."""
  kernel = case.kernel.with_(body=tuple(body))
  used = [p for p in kernel.params if p.uop in kernel.nodes]
  new = [replace(p, slot=i, written=p.uop in kernel.written) for i, p in enumerate(used)]
  body = substitute(kernel.body, {p.uop: q.uop for p, q in zip(used, new)})
  return replace(case, kernel=kernel.with_(params=tuple(new), body=body), data=[case.data[p.slot] for p in used])


def shorter(case: Case, axis: Axis, n: int) -> Case:
  """With fewer values of an axis, and of the dimensions that only it goes through."""
  kernel, to = case.kernel, replace(axis, size=n)
  along: dict[tuple[UOp, int], set[UOp]] = {}
  for u in kernel.nodes:
    if u.op in (Ops.LOAD, Ops.STORE, Ops.ATOMIC):
      for d, at in enumerate(u.src[1].src): along.setdefault((u.src[0], d), set()).add(at)
  def dims(p: Param) -> tuple[Any, ...]:
    return tuple([n if m == axis.size and along.get((p.uop, d)) == {axis.rng} else m for d, m in enumerate(p.shape)])
  params = tuple([replace(p, shape=dims(p)) for p in kernel.params])
  axes = tuple([to if a is axis else a for a in kernel.axes])
  data = [a[tuple(map(slice, p.shape))].copy() for a, p in zip(case.data, params)]
  return replace(case, kernel=kernel.with_(params=params, axes=axes, body=substitute(kernel.body, {axis.rng: to.rng})), data=data)


def as_written(case: Case) -> Case | None:
  """A case with the kernel that its text in the tile language makes; None where it has none."""
  try:
    found = read(tile_source(case.kernel, case.name, case.opts))
    return replace(case, kernel=found.form(), opts=found.opts or ())
  except Exception: return None   # as in ``differs``


def reduced(case: Case) -> Case:
  """The least that was found to differ, and can be written if the case can."""
  until, again, text = time.perf_counter() + SECONDS, True, as_written(case) is not None
  while again:
    again = False
    for less in smaller(case):
      if time.perf_counter() > until: return case
      new = as_written(less) if text else less
      if new is None or differs(new) is None: continue
      case, again = new, True
      break
  return case


# ---- writing it
def contents(case: Case) -> tuple[Case, list[str]]:
  """A case with the simplest data that differs, and that as text."""
  texts = []
  for i, a in enumerate(case.data):
    shape, name = tuple(map(int, a.shape)), case.kernel.params[i].dtype.name
    for text in [c.format(s=shape, d=name, n=a.size) for c in CONTENTS]:
      less = replace(case, data=[*case.data[:i], eval(text, {"np": np}), *case.data[i + 1:]])  # noqa: S307 (one of CONTENTS)
      if differs(less) is not None:
        case = less
        break
    else: text = f"np.array({a.reshape(-1).tolist()}).reshape({shape}).astype({name!r})"
    texts.append(text)
  return case, texts


def program(case: Case, texts: Sequence[str]) -> str:
  """A case, its data as ``texts``, as a program that ends with an assertion. Raises ExportError for a kernel that the tile
  language does not have."""
  off = max([rounding(p.dtype) if p.dtype.kind == "f" else 0.0 for p in case.kernel.params if p.written])
  source = tile_source(case.kernel, case.name, case.opts)
  lines = [line for line in source.splitlines() if line and not line.startswith("KEY")]
  return "\n".join([
    *lines, "if __name__ == '__main__':", "  import numpy as np", "  from ntgrad.command.reduce import both",
    f"  data = [{(',' + chr(10) + ' ' * 10).join(texts)}]",
    f"  got, want = both(globals(), {case.device!r}, data)",
    f"  np.testing.assert_allclose(got, want, rtol={off}, atol={off})", ""])


def load(path: str) -> Case:
  """What ``check --save`` wrote. Raises MissingFileError, OverrideError."""
  with usable("reduce", path, MissingFileError), np.load(path, allow_pickle=False) as f:
    found, name, device = read(str(f["source"])), str(f["name"]), str(f["device"])
    kernel = found.form()
    data = [f[f"data{p.slot}"].view(p.dtype.np).reshape(p.shape) for p in kernel.params]
  return Case(kernel, name, found.opts or (), device, data)


def reduce_case(args: Namespace) -> int:
  """Write a program for a script's first kernel that differs, or for a saved one. The exit code is 0 where it is written."""
  there_is(args.script, "reduce")
  if args.script.endswith(".npz"): case = load(args.script)
  else:
    check = Check()
    check.run(args.script, args.args)
    if check.case is None:
      print("all kernels are as the oracle's: there is nothing to reduce")
      return 1
    print(check.first)
    case = check.case
  if differs(case) is None:
    print(f"{case.name}: launched again by itself it is as the oracle's, so it cannot be reduced")
    return 1
  case, texts = contents(reduced(case))
  try: text = program(case, texts)
  except NtgradError as e:
    print(f"the kernel that is left has no form in the tile language: {e}\n{case.kernel}\nopts   {case.opts}")
    return 1
  path = Path(args.output or f"reduced_{case.name}.py")
  path.write_text(text)
  lines = text.count("\n")
  print(f"wrote {path}, {lines} lines{f', more than {LINES}' if lines > LINES else ''}: {differs(case)}", file=sys.stdout)
  return 0


def add(commands: Any) -> None:
  """Add the command to argparse's."""
  parser = commands.add_parser("reduce", help="make a short program of a kernel that differs from the oracle",
                               description="Run a script as check does, or read what check --save has written, and write a "
                               "short program that has the least of the kernel that still differs.")
  parser.add_argument("-o", dest="output", metavar="FILE", help="the program, by default reduced_NAME.py")
  parser.add_argument("script", help="a script, or a .npz of check --save")
  parser.add_argument("args", nargs=REMAINDER)
  parser.set_defaults(run=reduce_case)
