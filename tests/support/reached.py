"""How much of what one run of the tests reaches another one reaches, from what ``coverage`` has noted of both:
``python tests/support/reached.py SHORT FULL``. CONTRIBUTING.md has the commands."""
from __future__ import annotations

import sys
from pathlib import Path

Lines = dict[str, set[int]]


def noted(path: str) -> Lines:
  """The lines that ran, by file."""
  from coverage import CoverageData
  if not Path(path).is_file(): sys.exit(f"{path}: no such file; `coverage combine` makes one")
  data = CoverageData(path)
  data.read()
  return {f: {*(data.lines(f) or ())} for f in data.measured_files()}


def missed(short: Lines, full: Lines) -> Lines:
  """What the full run alone reaches, most first."""
  left = {f: lines - short.get(f, set()) for f, lines in full.items()}
  return dict(sorted([(f, lines) for f, lines in left.items() if lines], key=lambda item: -len(item[1])))


def share(short: Lines, full: Lines) -> float:
  """The part of the full run's lines that the short one reaches."""
  return 1 - sum(map(len, missed(short, full).values())) / sum(map(len, full.values()))


if __name__ == "__main__":
  short, full = map(noted, sys.argv[1:3])
  for file, lines in missed(short, full).items(): print(f"{len(lines):5d} {file}: {', '.join(map(str, sorted(lines)))}")
  print(f"{share(short, full):.2%} of {sum(map(len, full.values()))} lines")
