"""Random networks whose kernels are chosen, lowered, rendered and launched for machines that are not here; every tenth is
computed on this CPU too, and compared with plain loops (``support.network_run``).

  python tests/fuzz/networks.py --count 1000 [--seed 0] [--jobs 2] [--state FILE]   # goes on where it was ended
  python tests/fuzz/networks.py --only 17 [--seed 0] [--machine cpu3x256]           # one network, printed as a program

A network is a function of its number and the seed. Each draws three machines, and numbers or run-time sizes.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "tests"):
  if str(folder) not in sys.path: sys.path.insert(0, str(folder))
for setting, value in (("TUNE", "0"), ("VERIFY", "1"), ("WORKERS", "1")): os.environ.setdefault(setting, value)

SILENT = 600    # seconds without a network after which a job is ended
EACH = 100      # networks of a process: it keeps the kernels that it has made, of which equal ones are made once


def child(args: argparse.Namespace) -> None:
  """A process of a job: one network after another of the numbers on its input; a line of JSON before and after each."""
  from support.network_draws import draws
  from support.network_run import tried
  todo = set(json.loads(sys.stdin.read())[:EACH])
  for d in draws(args.seed):
    if not todo: break
    if d.spec.number not in todo: continue
    todo.discard(d.spec.number)
    print(json.dumps({"number": d.spec.number}), flush=True)
    began = time.process_time()
    failures, made = tried(d, not args.no_values)
    print(json.dumps({"number": d.spec.number, "seconds": time.process_time() - began, "kernels": made, "machines": d.machines,
                      "sizes": d.spec.sizes, "failures": [{**asdict(f), "cause": f.cause} for f in failures]}), flush=True)
  print(json.dumps({"end": True}), flush=True)


class Run:
  """The networks that are to be tried, those that were, and what was found: kept in a file, a line of JSON each."""

  def __init__(self, args: argparse.Namespace):
    self.args, self.lock, self.began = args, threading.Lock(), time.monotonic()
    self.done: dict[int, dict[str, Any]] = {}
    self.state = Path(args.state) if args.state else None
    if self.state is not None and self.state.exists():
      for line in self.state.read_text().splitlines():
        if line.endswith("}") and (r := json.loads(line))["seed"] == args.seed: self.done[r["number"]] = r
    self.before = len(self.done)

  def take(self, result: dict[str, Any]) -> None:
    """A network was tried."""
    with self.lock:
      self.done[result["number"]] = result
      if self.state is not None:
        with self.state.open("a") as f: f.write(json.dumps({"seed": self.args.seed, **result}) + "\n")
      for f in result["failures"]:
        again = f"--seed {self.args.seed} --only {result['number']} --machine {f['where']}"
        print(f"FAIL {result['number']} on {f['where']}: {f['what']}\n     python tests/fuzz/networks.py {again}", flush=True)
      n = len(self.done)
      if n % 20 == 0 or n == self.args.count:
        each = (time.monotonic() - self.began) / max(n - self.before, 1)
        print(f"{n} of {self.args.count} networks, {each:.1f} s each, {sum(r['kernels'] for r in self.done.values())} kernels, "
              f"{sum(bool(r['failures']) for r in self.done.values())} failed", flush=True)

  def job(self, k: int) -> None:
    """Every ``jobs``-th network in processes that are started again where one ends."""
    a = self.args
    while todo := [n for n in range(k, a.count, a.jobs) if n not in self.done]:
      process = subprocess.Popen([sys.executable, __file__, "--child", "--seed", str(a.seed), *["--no-values"] * a.no_values],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
      assert process.stdin is not None and process.stdout is not None
      process.stdin.write(json.dumps(todo))
      process.stdin.close()
      last: dict[str, Any] = {}
      timer = None
      for line in process.stdout:
        if timer: timer.cancel()
        if line.startswith('{"'):
          last = json.loads(line)
          if "failures" in last: self.take(last)
        timer = threading.Timer(SILENT, process.kill)
        timer.daemon = True
        timer.start()
      if timer: timer.cancel()
      code = process.wait()
      if "end" in last: continue
      if "number" not in last: raise SystemExit(f"a job did not start: {code}")
      if "failures" in last: continue
      lost = {"where": "process", "what": f"the process ended with {code}", "settings": "", "code": "", "cause": f"ended {code}"}
      self.take({"number": last["number"], "seconds": 0, "kernels": 0, "machines": [], "sizes": "", "failures": [lost]})

  def report(self) -> int:
    """A line for each cause, and how many networks."""
    causes: Counter[str] = Counter()
    first: dict[str, tuple[int, str]] = {}
    for n, r in sorted(self.done.items()):
      for f in r["failures"]:
        causes[f["cause"]] += 1
        first.setdefault(f["cause"], (n, f["where"]))
    for cause, count in causes.most_common():
      print(f"{count:5} × {cause}   first: --only {first[cause][0]} --machine {first[cause][1]}")
    seconds = sum(r["seconds"] for r in self.done.values())
    print(f"{len(self.done)} networks of seed {self.args.seed}, {seconds:.0f} s of processors, "
          f"{sum(bool(r['failures']) for r in self.done.values())} failed")
    return bool(causes)


def one(args: argparse.Namespace) -> int:
  """One network, printed, and what is found."""
  from support.network_build import grown
  from support.network_draws import draw
  from support.network_machines import MACHINES
  from support.network_run import on, wrong_values
  d = draw(args.seed, args.only)
  if args.machine in MACHINES: d = replace(d, machines=(args.machine,))
  program = grown(d.spec)
  print(f"# network {args.only} of seed {args.seed}: {', '.join(d.spec.kinds)}; on {', '.join(d.machines)}")
  print(program.text, flush=True)
  for name in () if args.machine == "values" else d.machines:
    print(f"# {name} ({MACHINES[name].environment})", flush=True)
    print(f"# {on(MACHINES[name], program)} kernels", flush=True)
  if d.spec.small and not args.no_values and args.machine in ("", "values"):
    failures = wrong_values(d)
    print(f"# values: {failures[0].what + ' with ' + failures[0].settings if failures else 'right'}")
    return bool(failures)
  return 0


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--count", type=int, default=1000)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--jobs", type=int, default=1)
  parser.add_argument("--state", default="", help="file of what was tried, to go on from")
  parser.add_argument("--only", type=int, metavar="N", help="print and try one network")
  parser.add_argument("--machine", default="", help='with --only: one machine (cpu3x256, sm_90, numpy), or "values"')
  parser.add_argument("--no-values", action="store_true", help="compute nothing")
  parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.child:
    child(args)
    return 0
  if args.only is not None: return one(args)
  from support.devices import missing
  if missing("CPU") and not args.no_values: print(f"no values are compared: {missing('CPU')}")
  run = Run(args)
  jobs = [threading.Thread(target=run.job, args=(k,), daemon=True) for k in range(args.jobs)]
  for j in jobs: j.start()
  for j in jobs: j.join()
  return run.report()


if __name__ == "__main__": sys.exit(main())
