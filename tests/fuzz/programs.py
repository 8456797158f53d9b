"""Random programs of in-place writes, views, gradients and captured functions, compared with a model in numpy
(``support.fuzz_model``), and programs whose sizes change, compared with the same at numbers (``support.fuzz_sizes``).

  python tests/fuzz/programs.py --minutes 5 [--device CPU|NUMPY] [--kind eager|gradient|capture|sizes|all] [--seed S] [--jobs J]
  python tests/fuzz/programs.py --show capture 17      # the program of a seed, as code

Programs run in child processes, so that a crash of one is a finding like others. What fails is cut down and printed as code.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "tests"):
  if str(folder) not in sys.path: sys.path.insert(0, str(folder))
for setting, value in (("TUNE", "0"), ("VERIFY", "1"), ("POISON", "1"), ("WORKERS", "1")): os.environ.setdefault(setting, value)

SECONDS = 20    # of a processor that a program may take: other work on the machine does not count
SHORTEN = 12    # seconds for finding a shorter one
EACH = 2        # findings of a kind that one job shortens
SILENT = 120    # seconds without a word after which a job is ended


def one(kind: str, seed: int, device: str, found: Counter[str]) -> dict[str, Any]:
  """Run the program of a seed; says what failed, and the shortest program that fails so (unless ``found`` says that there are
  enough)."""
  from support.fuzz_generate import generate
  from support.fuzz_program import minimised, run, source
  if kind == "sizes": return one_of_sizes(seed, device, found)
  program, exact = generate(kind, seed), kind != "gradient"
  signal.setitimer(signal.ITIMER_PROF, SECONDS)
  problem = run(program, exact)
  if problem is None: return {}
  found[problem.kind] += 1
  if found[problem.kind] > EACH: return {"problem": problem.kind, "code": ""}
  if problem.what != "TimeoutError":
    signal.setitimer(signal.ITIMER_PROF, SECONDS + SHORTEN)
    program, problem = minimised(program, problem, exact, seconds=SHORTEN)
  signal.setitimer(signal.ITIMER_PROF, 0)
  return {"problem": problem.kind, "code": source(program, exact, problem, device)}


def one_of_sizes(seed: int, device: str, found: Counter[str]) -> dict[str, Any]:
  """The same for a program whose sizes change. It meets the plans of those before it."""
  from support import fuzz_sizes, fuzz_sizes_generate
  program = fuzz_sizes_generate.generate(seed)
  signal.setitimer(signal.ITIMER_PROF, 3 * SECONDS)
  try: problem = fuzz_sizes.run(program, device)
  except fuzz_sizes.Invalid: problem = None
  if problem is None: return {}
  found[problem.kind] += 1
  if found[problem.kind] > EACH: return {"problem": problem.kind, "code": ""}
  if problem.what != "TimeoutError":
    signal.setitimer(signal.ITIMER_PROF, 6 * SECONDS)
    program, problem = fuzz_sizes.shortened(program, problem, device, seconds=2 * SHORTEN)
  signal.setitimer(signal.ITIMER_PROF, 0)
  return {"problem": problem.kind, "code": fuzz_sizes.source(program, device, problem)}


def child(args: argparse.Namespace) -> None:
  """A job: one program after another; a line of JSON before and after each."""
  from ntgrad import Device
  Device.DEFAULT = args.device
  def late(*_: Any) -> None: raise TimeoutError(f"more than {SECONDS} seconds")
  signal.signal(signal.SIGPROF, late)
  seed, until = args.seed, time.monotonic() + 60 * args.minutes
  found: Counter[str] = Counter()
  while time.monotonic() < until:
    for kind in kinds(args.kind):
      print(json.dumps({"kind": kind, "seed": seed}), flush=True)
      try: said = one(kind, seed, args.device, found)
      except Exception as e: said = {"problem": f"the fuzzer: {type(e).__name__} {e}", "code": ""}
      print(json.dumps({"kind": kind, "seed": seed, **said, "done": True}), flush=True)
    seed += args.step
  print(json.dumps({"end": True}), flush=True)


def kinds(kind: str) -> list[str]: return ["eager", "gradient", "capture", "sizes"] if kind == "all" else [kind]


class Job(threading.Thread):
  """Keeps a child process going until the time is over; one that dies or goes silent is a finding, and the next seeds get a new
  one."""

  def __init__(self, args: argparse.Namespace, number: int):
    super().__init__(daemon=True)
    self.args, self.seed, self.until = args, args.seed + number, time.monotonic() + 60 * args.minutes
    self.findings: list[dict[str, Any]] = []
    self.ran: Counter[str] = Counter()

  def run(self) -> None:
    while (left := self.until - time.monotonic()) > 0:
      a = self.args
      process = subprocess.Popen(
        [
          sys.executable,
          __file__,
          "--child",
          "--minutes",
          str(left / 60),
          "--device",
          a.device,
          "--kind",
          a.kind,
          "--seed",
          str(self.seed),
          "--step",
          str(a.jobs),
        ],
        stdout=subprocess.PIPE,
        text=True,
      )
      last: dict[str, Any] = {}
      assert process.stdout is not None
      timer = None
      for line in process.stdout:
        if timer: timer.cancel()
        if not line.startswith("{"): continue
        last = json.loads(line)
        if "done" in last:
          self.ran[last["kind"]] += 1
          if "problem" in last:
            self.findings.append(last)
            if last["code"] and self.args.verbose:
              print(f"# {last['kind']} {last['seed']}: {last['problem']}\n{last['code']}", flush=True)
        timer = threading.Timer(SILENT, process.kill)
        timer.daemon = True
        timer.start()
      if timer: timer.cancel()
      code = process.wait()
      if "end" in last: return
      if "seed" not in last: raise SystemExit(f"a job did not start: {code}")
      self.findings.append({**last, "problem": f"the process ended with {code}", "code": "", "crash": True})
      self.seed = last["seed"] + a.jobs


def crash(kind: str, seed: int, device: str, seconds: float) -> str:
  """The shortest program that ends the process, each tried in a process of its own."""
  from support import fuzz_sizes, fuzz_sizes_generate
  from support.fuzz_generate import generate
  from support.fuzz_program import minimise, source
  if kind == "sizes": return fuzz_sizes.source(fuzz_sizes_generate.generate(seed), device)
  def fails(p: Any) -> bool:
    try: text = source(p, kind != "gradient", None, device)
    except Exception: return False
    try:
      return subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=SECONDS, env=environment()).returncode < 0
    except subprocess.TimeoutExpired:
      return False
  program = generate(kind, seed)
  return source(minimise(program, fails, seconds) if fails(program) else program, kind != "gradient", None, device)


def environment() -> dict[str, str]:
  return {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT), str(ROOT / "tests")])}


def report(args: argparse.Namespace, jobs: list[Job], seconds: float) -> int:
  """What ran and what was found, the shortest program of each kind of finding."""
  ran = sum((j.ran for j in jobs), Counter[str]())
  groups: dict[str, list[dict[str, Any]]] = {}
  for f in [f for j in jobs for f in j.findings]:
    shape = re.sub(r"\d+|#.*", "", f["code"].split("DEFAULT")[-1]) if f["problem"] == "wrong value" else ""
    groups.setdefault(f"{f['kind']}: {f['problem']} {shape}", []).append(f)
  for found in sorted(groups.values(), key=len):
    if "crash" in found[0]: found[0]["code"] = crash(found[0]["kind"], found[0]["seed"], args.device, args.shorten)
    best = min(found, key=lambda f: (not f["code"], len(f["code"])))
    if not best["code"] and best["problem"] == "wrong value": continue   # of which others were shortened
    seeds = ", ".join(str(f["seed"]) for f in found[:8]) + ", .." * (len(found) > 8)
    print(f"# ---- {best['kind']} {best['seed']} on {args.device}: {best['problem']} ({len(found)} programs: seeds {seeds})")
    print(best["code"])
  total = sum(len(g) for g in groups.values())
  failed = Counter(f["kind"] for j in jobs for f in j.findings)
  for kind in kinds(args.kind): print(f"{kind}: {ran[kind]} programs, {failed[kind]} of them failed")
  print(f"{sum(ran.values()) / max(seconds, 1e-9):.1f} programs a second on {args.device}, {args.jobs} jobs")
  return 1 if total else 0


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--minutes", type=float, default=1)
  parser.add_argument("--device", default="NUMPY")
  parser.add_argument("--kind", default="all", choices=["eager", "gradient", "capture", "sizes", "all"])
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--jobs", type=int, default=1)
  parser.add_argument("--shorten", type=float, default=60, help="seconds for shortening a program that crashes")
  parser.add_argument("--verbose", action="store_true", help="print findings as they come")
  parser.add_argument("--show", nargs=2, metavar=("KIND", "SEED"), help="print the program of a seed")
  parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
  parser.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.child:
    child(args)
    return 0
  if args.show:
    from support import fuzz_sizes, fuzz_sizes_generate
    from support.fuzz_generate import generate
    from support.fuzz_program import source
    kind, seed = args.show
    if kind == "sizes":
      print(fuzz_sizes.source(fuzz_sizes_generate.generate(int(seed)), args.device), end="")
      return 0
    print(source(generate(kind, int(seed)), kind != "gradient", None, args.device), end="")
    return 0
  began, jobs = time.monotonic(), [Job(args, k) for k in range(args.jobs)]
  for j in jobs: j.start()
  for j in jobs: j.join()
  return report(args, jobs, time.monotonic() - began)


if __name__ == "__main__": sys.exit(main())
