#!/usr/bin/env python3
"""Many kinds of work in many sizes, each beside the best that torch does with it.

    python bench/zoo.py --list                                   # the rows
    python bench/zoo.py --device CUDA --shard 3/8 --out z.json   # a part of them; a row that is in the file is not measured again
    python bench/zoo.py --only softmax,products                  # rows whose name or group has one of the words
    python bench/zoo.py --profile "softmax of rows"              # our kernels of such rows, and their times
    python bench/zoo.py --write --out z.json                     # bench/RESULTS-zoo-<device>.md from what was measured

A row is a captured function (``ntgrad.jit``) on random inputs, several sets of them in turn, through the public API. It counts
only if its error against float64 is at most twice torch's. torch's times are the best of eager, torch.compile, and on a GPU
either replayed from a CUDA graph; they are kept in bench/reference-<device>.json and measured anew with ``--remeasure``, or where
the file has none. Three calibrating rows tell whether the file belongs to this machine.
"""
from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
os.environ.setdefault("TIERS", "0")     # steady steps: what runs is optimised
os.environ.setdefault("DYNAMIC", "never")   # rows are kernels with numbers: sizes.py has those with run-time sizes

import zoo_report as report  # noqa: E402
import zoo_rows as zoo  # noqa: E402

GRACE = 15   # seconds that a row may need to notice that its time is over


def options() -> argparse.ArgumentParser:
  """The command line."""
  p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  p.add_argument("--device", default="CPU", choices=("CPU", "CUDA"))
  p.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts, n being 8 if left out (default all)")
  p.add_argument("--only", default="", help="comma-separated words; rows whose name or group has one of them")
  p.add_argument("--list", action="store_true", help="print the rows and stop")
  p.add_argument("--out", nargs="+", default=[], help="files of results: the first is written, all are read")
  p.add_argument("--reference", default="", help="torch's times (default bench/reference-<device>.json)")
  p.add_argument("--remeasure", action="store_true", help="measure torch again")
  p.add_argument("--ours-only", action="store_true", help="without torch: times and results are compared with the reference file")
  p.add_argument("--no-compile", action="store_true", help="without torch.compile")
  p.add_argument("--again", action="store_true", help="measure rows that are in the file again")
  p.add_argument("--limit", type=float, default=60, help="seconds for a row; heavy ones have more (default %(default)s)")
  p.add_argument("--minutes", type=float, default=0, help="start no row after so many minutes (default 3.5 with --shard)")
  p.add_argument("--seconds", type=float, default=1.0, help="for timed calls of each side (default %(default)s)")
  p.add_argument("--least", action="store_true", help="take the least time and not the median, on a busy machine")
  p.add_argument("--profile", default="", metavar="WORDS", help="print the kernels of rows whose name has these words")
  p.add_argument("--write", action="store_true", help="write bench/RESULTS-zoo-<device>.md")
  p.add_argument("--note", default="", help="a sentence for the top of that file")
  p.add_argument("--tiny", action="store_true", help="every kind in a tiny size, for tests")
  p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
  return p


def limit_of(row: zoo.Row, limit: float) -> float: return limit * max(1.0, row.kind.weight / 4)


class Workers:
  """Runs rows in a process that is replaced where a row breaks it or takes too long."""

  def __init__(self, args: argparse.Namespace, out: report.Results, deadline: float) -> None:
    self.args, self.out, self.deadline = args, out, deadline

  def run(self, rows: list[zoo.Row]) -> str:
    """All rows, one after the other. Returns why it stopped, or nothing."""
    while rows and time.time() < self.deadline:
      done, why = self._process(rows)
      if why: return why
      rows = [r for r in rows if r.name not in done]
      if not done and time.time() < self.deadline: return "the process that measures ended before its first row"
    return f"no time left for {len(rows)} rows" if rows else ""

  def _process(self, rows: list[zoo.Row]) -> tuple[set[str], str]:
    with tempfile.TemporaryFile("w+") as errors:
      command = [sys.executable, "-u", str(HERE / "zoo.py"), *sys.argv[1:], "--worker"]
      pipe = subprocess.PIPE
      p = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, start_new_session=True)
      assert p.stdin is not None and p.stdout is not None
      json.dump({"rows": [r.name for r in rows], "deadline": self.deadline}, p.stdin)
      p.stdin.close()
      lines: queue.Queue[str | None] = queue.Queue()
      def read(stream: Any = p.stdout) -> None:
        for line in stream: lines.put(line)
        lines.put(None)
      threading.Thread(target=read, daemon=True).start()
      try: return self._follow(p, lines, errors, {r.name: r for r in rows})
      finally:
        try: os.killpg(p.pid, signal.SIGKILL)   # with the processes that compiled for it
        except ProcessLookupError: pass
        p.wait()

  def _follow(self, p: Any, lines: Any, errors: Any, rows: dict[str, zoo.Row]) -> tuple[set[str], str]:
    done: set[str] = set()
    current, end = "", time.time() + 300
    def broken(why: str) -> None:
      done.add(current)
      self.out.add(current, {"group": rows[current].kind.group, "failed": why})
      print(f"{current}: FAILED: {why}", flush=True)
    while True:
      try: line = lines.get(timeout=1)
      except queue.Empty:
        if p.poll() is not None: break
        if time.time() < end: continue
        if not current: return done, "the process that measures said nothing for minutes"
        broken("took longer than its time")
        return done, ""
      if line is None: break
      word, _, rest = line.rstrip("\n").partition(" ")
      if word == "@begin": current, end = rest, time.time() + limit_of(rows[rest], self.args.limit) + GRACE
      elif word == "@end":
        done.add(rest)
        current, end = "", time.time() + 120
      elif word == "@refused": return done, rest
      else: print(line, end="", flush=True)
    p.wait()
    errors.seek(0)
    text = errors.read()
    if current: broken(f"the process ended with {p.returncode}: {text[-300:]}")
    elif p.returncode not in (0, 3): return done, f"the process that measures ended with {p.returncode}:\n{text[-2000:]}"
    if p.returncode == 0: done.update(rows if not current else ())
    return done, ""


def main() -> None:
  """Measure, list, profile or write."""
  args = options().parse_args()
  found = zoo.rows("TINY" if args.tiny else args.device)
  named = args.device.lower()
  args.reference = args.reference or str(HERE / f"reference-{named}.json")
  args.out = args.out or [str(HERE / f"zoo-{named}.json")]
  if args.worker:
    import zoo_worker
    sys.exit(zoo_worker.work(args, {r.name: r for r in found}))
  signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: ended from outside"))   # the process that measures ends with this one
  i, n = map(int, (args.shard if "/" in args.shard else f"{args.shard}/8").split("/"))
  if not 1 <= i <= n: sys.exit(f"bench: --shard {args.shard}: there are parts 1 to {n}")
  wanted = zoo.select(zoo.shard(found, i, n), [w for w in args.only.lower().split(",") if w])
  if args.list:
    for r in wanted: print(f"{r.kind.group:32}{r.name}")
    print(f"{len(wanted)} rows")
    return
  if args.profile:
    import zoo_worker
    zoo_worker.profile(args, [r for r in found if args.profile.lower() in r.name.lower()])
    return
  out = report.Results(args.out)
  if args.write:
    file = HERE / f"RESULTS-zoo-{named}.md"
    file.write_text(report.document(found, out.read(), named, args.note))
    print(f"{file} written")
    return
  have = out.read()["rows"]
  todo = [r for r in wanted if args.again or r.name not in have]
  todo.sort(key=lambda r: -r.kind.weight)   # the heavy ones first: the last row may end late
  minutes = args.minutes or (3.5 if n > 1 else 1e6)
  why = Workers(args, out, time.time() + 60 * minutes).run(todo)
  data = out.read()
  if not args.ours_only: report.keep_reference(Path(args.reference), data)
  print(report.verdict(found, data["rows"]))
  if why: sys.exit(f"bench: {why}")


if __name__ == "__main__": main()
