#!/usr/bin/env python3
"""What somebody meets who brings a PyTorch script to a CPU: whole training steps and loops beside torch, as they are written.

    python bench/first_hour.py                         # the table (some minutes)
    python bench/first_hour.py --only plain,generation # the measurements whose name has one of these words
    python bench/first_hour.py --quick                 # few steps: whether it works, not how fast
    python bench/first_hour.py --write                 # also replaces the table of bench/RESULTS-first-hour.md

Each measurement has a process of its own. torch (eager, as many threads) is in the same process and takes turns, if it can be
imported; without it there are no ratios and nothing to compare values with. A row whose values are not torch's has no verdict.
Times are medians after warm-up; a ratio is torch's time over ours; CPU seconds are those of the process and of all it starts.
First losses are of processes that import one library each: seconds of the clock from after the imports to the printed loss.
"""
from __future__ import annotations

import argparse
import datetime
import importlib.util
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

import measure
import numpy as np
from first_hour_models import WORKS, Work
from rows import FAST, SLOW

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]   # bench/cuda.py is no package

import ntgrad  # noqa: E402
from ntgrad.engine import counters  # noqa: E402
from ntgrad.engine.device import get_device  # noqa: E402

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

FILE = HERE / "RESULTS-first-hour.md"
NOTES = "## Predictions and outcomes"   # of that file, from here on
AGREE = 1e-3       # the most that a loss may differ from torch's, as a part of it
TOKENS, ROUNDS = 40, 150
MINUTES = 10       # a measurement may take
PAUSE = 0.1        # seconds between turns: threads of torch's libraries spin for a while after their last call
RUNS = 3           # processes of which a first loss is the median
# the mean of a group of ratios, and each: must, aim
MEANS = {"plain": (0.8, 1.0), "captured": (2.2, 3.0)}
EACH = {"plain": (0.5, 0.7), "captured": (1.0, 3.0)}
# seconds to a first loss with an empty cache folder, with a full one, and of what an everyday script does later: must, aim
COLD = {"VAE": (1.3, 0.8), **dict.fromkeys(("GPT", "ViT", "biLSTM"), (2.6, 1.5)),
        **dict.fromkeys(("ResNet-18", "U-Net", "ConvNeXt"), (4.2, 2.5))}
WARM, LATER = (0.5, 0.3), (0.4, 0.05)


@dataclass
class Row:
  """A line of the table: what was measured, and what must and what should be reached."""
  work: str
  ours: str
  theirs: str
  value: float | None        # None: could not be measured
  unit: str
  sign: str                  # FAST: at least so much, SLOW: at most
  must: float | None
  aim: float | None = None
  wrong: str = ""            # why there is no verdict

  @property
  def ok(self) -> bool: return "*" not in self.verdict()

  def verdict(self) -> str:
    """What is reached; in bold what is missed and by how much, or what is wrong."""
    if self.wrong: return f"**{self.wrong}**"
    if self.value is None or self.must is None: return "–"
    def reached(limit: float, value: float = self.value) -> bool: return value >= limit if self.sign == FAST else value <= limit
    if not reached(self.must): return f"**misses by {abs(self.value / self.must - 1):.0%}**"
    return "aim" if self.aim is not None and reached(self.aim) else "must"

  def cells(self) -> list[str]:
    """The row as the columns of the table."""
    value = "–" if self.value is None else f"{self.value:.{2 if isinstance(self.value, float) else 0}f} {self.unit}"
    limits = ["–" if limit is None else f"{self.sign} {limit:g}" for limit in (self.must, self.aim)]
    return [self.work, self.ours, self.theirs, value, *limits, self.verdict()]


def table(rows: list[Row]) -> str:
  """The rows as markdown."""
  head = ["work", "ntgrad", "torch", "value", "must", "aim", "verdict"]
  return "\n".join("| " + " | ".join(c) + " |" for c in (head, ["---"] * 3 + ["--:"] * 3 + ["---"], *(r.cells() for r in rows)))


# ---- measuring

def both(make: Callable[[Any], Any], model: Callable[[Any], Any] = lambda made: made) -> tuple[Any, Any]:
  """What ``make`` gives for ntgrad and for torch (None without it), with the same weights, which are in memory."""
  theirs = None
  if torch is not None:
    torch.manual_seed(0)
    theirs = make(torch)
  ntgrad.manual_seed(0)
  ours = make(ntgrad)
  if theirs is not None: model(ours).load_state_dict(model(theirs).state_dict())
  ntgrad.Tensor.realize(*model(ours).state_dict().values())
  return ours, theirs


def differ(ours: list[float], theirs: list[float], what: str) -> str:
  """Where two series are not the same; empty where they are."""
  for i, (a, b) in enumerate(zip(ours, theirs)):
    if not abs(a - b) <= AGREE * abs(b): return f"wrong: {what} {i} is {a:.6g}, torch's {b:.6g}"
  return ""


def cpu_seconds() -> float:
  """CPU seconds of this process and of all that it started, whether they live or not."""
  if not Path("/proc/self/stat").exists(): return sum(os.times()[:4])
  parent: dict[int, int] = {}
  ticks: dict[int, int] = {}
  for file in Path("/proc").glob("[0-9]*/stat"):
    try: fields = file.read_text().rsplit(")", 1)[1].split()
    except OSError: continue   # it has ended
    pid = int(file.parent.name)
    parent[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))   # its own, and of children that ended
  def mine(pid: int) -> bool:
    while pid != os.getpid() and pid in parent: pid = parent[pid]
    return pid == os.getpid()
  return sum(ticks[p] for p in ticks if mine(p)) / os.sysconf("SC_CLK_TCK")


def spent(fn: Callable[[], Any]) -> tuple[float, Any]:
  """CPU seconds of a call, and what it gives; begins when nothing else in this process computes: threads of torch's libraries
  spin for most of a second after the weights were taken from it."""
  for _ in range(100):
    before = time.process_time()
    time.sleep(PAUSE)
    if time.process_time() - before < PAUSE / 10: break
  before = cpu_seconds()
  out = fn()
  return cpu_seconds() - before, out


def kernels(fn: Callable[[], Any]) -> int:
  """How many kernels a call launches."""
  before = counters.totals().kernels
  fn()
  return counters.totals().kernels - before


# ---- training steps

def losses(library: Any, work: Work, step: Callable[..., Any]) -> Iterator[tuple[float, float]]:
  """The seconds and the loss of one step after the other, each with tensors that are made of new arrays."""
  for i in itertools.count():
    arrays = work.batch(i)
    start = time.perf_counter()
    loss = step(*[library.from_numpy(a) for a in arrays]).item()
    work.after()
    yield time.perf_counter() - start, loss


def steps(how: str, name: str, quick: bool) -> list[Row]:
  """Training steps of a workload: ``how`` they run, plain or captured."""
  ours, theirs = both(WORKS[name], lambda work: work.model)
  step = ntgrad.jit(ours.step) if how == "captured" else ours.step
  sides = [losses(ntgrad, ours, step), *([losses(torch, theirs, theirs.step)] if theirs is not None else [])]
  first = [[next(side)[1] for _ in range(ours.steady)] for side in sides]   # plain, recorded, replayed
  wrong = differ(first[0], first[-1], "loss")
  ntgrad.Device.optimise()   # of steady steps
  if how == "captured" and not step.captured: wrong = wrong or "not captured"
  budget, least = (0.2, 3) if quick else (2.0, 15)
  took = measure.turns([partial(lambda side: next(side)[0], side) for side in sides], budget, least, 200, PAUSE)
  must, aim = EACH[how]
  work = f"{how}: {name}" + (f", {ours.steady} losses compared" if ours.steady < Work.steady else "")
  return [Row(work, f"{took[0] * 1e3:.2f} ms", f"{took[1] * 1e3:.2f} ms" if theirs is not None else "no torch",
              took[1] / took[0] if theirs is not None else None, "×", FAST, must, aim, wrong)]


def mean(how: str, rows: list[Row]) -> list[Row]:
  """The mean of the ratios of a group, where all of it was measured beside torch; with a verdict where all values are right."""
  group = [r for r in rows if r.work.startswith(f"{how}: ")]
  ratios = [r.value for r in group if r.value is not None and not r.wrong]
  if not ratios or len(group) < len(WORKS): return []
  wrong = "" if len(ratios) == len(WORKS) else f"only {len(ratios)} of {len(WORKS)} count"
  return [Row(f"{how}: mean of {len(ratios)}", f"geometric {geometric_mean(ratios):.2f}", f"least {min(ratios):.2f}",
              fmean(ratios), "×", FAST, *MEANS[how], wrong)]


# ---- loops

def seconds_text(s: float | None) -> str: return "no torch" if s is None else f"{s:.2f} CPU s"


def generation(quick: bool) -> list[Row]:
  """Tokens of the GPT without a cache: what is computed gets longer by one each time, and the last token is asked for."""
  count = 6 if quick else TOKENS
  def tokens(library: Any, model: Any) -> list[int]:
    model.eval()
    idx = library.from_numpy(np.array([[1, 2, 3]]))
    with library.no_grad():
      for _ in range(count):
        idx = library.cat([idx, model(idx[:, -64:])[:, -1, :].argmax(-1, keepdim=True)], dim=1)
        idx[0, -1].item()
    return [int(i) for i in idx[0].tolist()]
  ours, theirs = both(lambda library: WORKS["GPT"](library).model)
  def first() -> list[int]:
    out = tokens(ntgrad, ours)
    get_device("CPU").wait_optimised()   # what is built in the background counts here, not the second time
    return out
  with measure.compiled() as made: cold, found = spent(first)
  warm, again = spent(lambda: tokens(ntgrad, ours))
  wrong = "" if found == again else "wrong: other tokens the second time"
  other: list[float | None] = [None, None]
  if theirs is not None:
    results = [spent(lambda: tokens(torch, theirs)) for _ in range(2)]
    other = [s for s, _ in results]
    if results[0][1] != found: wrong = "wrong: other tokens than torch's"
  name = f"{count} tokens without a cache"
  return [Row(f"{name}, cold", seconds_text(cold), seconds_text(other[0]), cold, "s", SLOW, 6, 3, wrong),
          Row(f"{name}, again", seconds_text(warm), seconds_text(other[1]), warm, "s", SLOW, 0.8, 0.4, wrong),
          Row(f"programs for {count} tokens", f"{made['plans']} plans", "–", made["programs"], "programs", SLOW, 60, None, wrong)]


def carried(quick: bool) -> list[Row]:
  """A state that goes through a cell again and again, with a value asked for each time."""
  third = 5 if quick else ROUNDS // 3
  def rounds(library: Any, net: Any) -> tuple[list[float], list[float]]:
    h, values, clock = library.zeros(1, 32), [], [time.process_time()]
    with library.no_grad():
      for i in range(3 * third):
        h = net[0](library.ones(1, 32), h)
        values.append(net[1](h).item())
        if (i + 1) % third == 0: clock.append(time.process_time())
    return values, [b - a for a, b in zip(clock, clock[1:])]
  ours, theirs = both(lambda library: library.nn.ModuleList([library.nn.GRUCell(32, 32), library.nn.Linear(32, 1)]))
  cold, (values, parts) = spent(lambda: rounds(ntgrad, ours))
  again, _ = spent(lambda: rounds(ntgrad, ours))
  wrong, other = "", None
  if theirs is not None:
    other, (want, _) = spent(lambda: rounds(torch, theirs))
    wrong = differ(values, want, "value")
  name, text = f"{3 * third} rounds of h = cell(x, h)", f"{seconds_text(cold)}, again {again:.2f}"
  return [Row(f"{name}, cold", text, seconds_text(other), cold, "s", SLOW, 0.8, None, wrong),
          Row(f"{name}: the last {third} ÷ the {third} before", f"{parts[2]:.3f} ÷ {parts[1]:.3f} CPU s", "–",
              parts[2] / parts[1], "×", SLOW, 1.25, None, wrong)]


def one_by_one(quick: bool) -> list[Row]:
  """The norm of each gradient of eight layers, asked for one after the other."""
  x = np.random.default_rng(0).standard_normal((16, 32), np.float32)
  def norms(library: Any, net: Any) -> list[float]:
    net.zero_grad()
    net(library.from_numpy(x)).pow(2).mean().backward()
    return [p.grad.norm().item() for p in net.parameters()]
  ours, theirs = both(lambda library: library.nn.Sequential(
    *[m for _ in range(8) for m in (library.nn.Linear(32, 32), library.nn.Tanh())]))
  found = [kernels(lambda: norms(ntgrad, ours)) for _ in range(3)]
  wrong = differ(norms(ntgrad, ours), norms(torch, theirs), "norm") if theirs is not None else ""
  return [Row("p.grad.norm().item() of 8 layers", ", ".join(map(str, found)), "–", max(found), "kernels", SLOW, 50, None, wrong)]


def loss_first(quick: bool) -> list[Row]:
  """Kernels of a step whose loss is asked for before its gradients are, over those of a step where it is asked for at the end."""
  found: dict[str, list[int]] = {}
  for name in ("perceptron",) if quick else ("perceptron", "CNN", "GPT", "U-Net"):
    work, _ = both(WORKS[name], lambda work: work.model)
    inputs = [ntgrad.from_numpy(a) for a in work.batch(0)]
    def once(early: bool, work: Work = work, inputs: list[Any] = inputs) -> int:
      return kernels(lambda: work.step(*inputs, early=early).item())
    after = max(once(False) for _ in range(3))   # before anything is known of the other order
    found[name] = [max(once(True) for _ in range(3)), after]
  text = ", ".join(f"{name} {a} ÷ {b}" for name, (a, b) in found.items())
  return [Row("loss.item() before loss.backward(): kernels ÷ after", text, "–", max(a / b for a, b in found.values()), "×",
              SLOW, 1.1)]


# ---- first losses

def first_times(name: str, quick: bool) -> list[Row]:
  """What ``bench/first_loss.py`` measures of a workload, cold and again with the cache folder that it left; for torch, too."""
  sides = {"cold": ("ntgrad", ""), "warm": ("ntgrad", ", warm disk cache"), **({"torch": ("torch", "")} if torch else {})}
  runs: dict[str, list[dict[str, dict[str, Any]]]] = {side: [] for side in sides}
  for _ in range(1 if quick else RUNS):
    with tempfile.TemporaryDirectory(prefix="ntgrad-bench-") as folder:
      for side, (library, _) in sides.items():
        done = subprocess.run([sys.executable, str(HERE / "first_loss.py"), library, name], text=True, stdout=subprocess.PIPE,
                              env={**os.environ, "CACHE_DIR": folder}, check=True)
        runs[side].append(json.loads(done.stdout.splitlines()[-1]))
  rows = []
  for side, what in itertools.product(("cold", "warm"), runs["cold"][0]):
    found, values = [r[what] for r in runs[side]], {r[what]["value"] for r in runs["cold"] + runs["warm"]}
    seconds = {s: median(r[what]["seconds"] for r in runs[s]) for s in runs}
    must, aim = LATER if name == "everyday" else COLD[name] if side == "cold" else WARM
    rows.append(Row(f"{what}{sides[side][1]}: {name}", f"{found[0]['programs']} programs, {found[0]['plans']} plans",
                    f"{seconds['torch']:.3f} s" if torch else "no torch", seconds[side], "s", SLOW, must, aim,
                    "" if len(values) == 1 else f"wrong: with one seed there are values {sorted(values)}"))
  return rows


# ---- a process for each

@dataclass(frozen=True)
class Measurement:
  """What gives some rows of the table. ``fresh``: it starts with an empty cache folder of its own."""
  rows: Callable[[bool], list[Row]]
  fresh: bool = False


MEASUREMENTS: dict[str, Measurement] = {
  **{f"{how} {name}": Measurement(partial(steps, how, name)) for how in MEANS for name in WORKS},
  "generation": Measurement(generation, fresh=True),
  "carried state": Measurement(carried, fresh=True),
  "gradients one by one": Measurement(one_by_one),
  "loss before backward": Measurement(loss_first),
  **{f"first loss {name}": Measurement(partial(first_times, name)) for name in COLD},
  "first of everyday": Measurement(partial(first_times, "everyday")),
}


def in_process(name: str, cores: int, quick: bool, shared: str) -> list[Row]:
  """The rows of a measurement, made by a process of its own."""
  with tempfile.TemporaryDirectory(prefix="ntgrad-bench-") as own:
    folder = own if MEASUREMENTS[name].fresh else shared
    env = {**os.environ, "CACHE_DIR": folder, "DEV": "CPU", "CORES": str(cores), "OMP_NUM_THREADS": str(cores)}
    if env.pop("PYTHONDONTWRITEBYTECODE", ""): env.setdefault("PYTHONPYCACHEPREFIX", f"{shared}/python")   # as a user has it
    command = [sys.executable, __file__, "--one", name, "--cores", str(cores), *(["--quick"] if quick else [])]
    try: done = subprocess.run(command, env=env, text=True, capture_output=True, check=False, timeout=60 * MINUTES)
    except subprocess.TimeoutExpired: return [failed(name, f"over {MINUTES} minutes")]
  if not done.returncode: return [Row(**r) for r in json.loads(done.stdout.splitlines()[-1])]
  print(done.stderr[-4000:], file=sys.stderr)
  return [failed(name, (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:160].translate({ord("|"): "/"}))]


def failed(name: str, why: str) -> Row: return Row(name, "–", "–", None, "", "", None, None, f"failed: {why}")


def about(cores: int) -> str:
  """Date, processor, cores that are used, versions; and whether other work disturbed the run."""
  text = (f"{datetime.date.today()}, {measure.processor()}, {cores} cores, device CPU, Python {platform.python_version()}, "
          f"{'no torch: no ratios' if torch is None else f'torch {torch.__version__} eager'}")
  if measure.load() < 0.5: return text
  return f"{text}\n\n**The machine was busy before the run (load {measure.load():.1f}): the times are not to be relied on.**"


def main() -> None:
  """Measure, print, and exit 1 if a row misses its mark or is wrong."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--only", default="", help="comma-separated words; measurements whose name has one of them")
  parser.add_argument("--cores", type=int, default=2, help="cores that both sides use (default %(default)s)")
  parser.add_argument("--quick", action="store_true", help="few steps, for tests: the verdicts mean nothing")
  parser.add_argument("--json", default="", metavar="FILE", help="also write the rows there")
  parser.add_argument("--write", action="store_true", help=f"replace the table of bench/{FILE.name}")
  parser.add_argument("--one", default="", help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.one:
    if torch is not None: torch.set_num_threads(args.cores)
    rows = MEASUREMENTS[args.one].rows(args.quick)
    if refused := measure.dropped(): sys.exit(f"Opts that were chosen do not apply: {refused[0]}")
    print(json.dumps([asdict(r) for r in rows]))
    return
  words = [w for w in args.only.lower().split(",") if w]
  names = [n for n in MEASUREMENTS if not words or any(w in n.lower() for w in words)]
  if not names: sys.exit(f"bench: --only {args.only}: there are {', '.join(MEASUREMENTS)}")
  head, rows = about(args.cores), []
  with tempfile.TemporaryDirectory(prefix="ntgrad-bench-") as shared:
    for name in names:
      rows += (new := in_process(name, args.cores, args.quick, shared))
      print("\n".join(f"{r.work}: {r.verdict()}" for r in new), file=sys.stderr, flush=True)
  rows = [m for how in MEANS for m in mean(how, rows)] + rows
  text = f"{head}\n\n{table(rows)}\n"
  print(text)
  data = {"about": head, "rows": [{**asdict(r), "verdict": r.verdict()} for r in rows]}
  if args.json: Path(args.json).write_text(json.dumps(data, indent=1, ensure_ascii=False))
  if args.write:
    old = FILE.read_text() if FILE.exists() else ""
    kept = old[old.index(NOTES):] if NOTES in old else ""   # what a person wrote
    FILE.write_text(f"# What `bench/first_hour.py` measured\n\n{text}{kept and chr(10)}{kept}")
  sys.exit(0 if all(not r.wrong if args.quick else r.ok for r in rows) else 1)


if __name__ == "__main__": main()
