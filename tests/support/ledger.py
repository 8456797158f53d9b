"""A ledger of what the product makes: public names, the Opts and sources of some thousand kernels for machines that are not here,
cubins, tile sources, what passes print. Two trees make the same if their ledgers are equal, byte for byte.

  python -m tests.support.ledger write FOLDER [--only names,kernels,..] [--match TEXT] [--cubins] [--digests] [--jobs 2]
  python -m tests.support.ledger compare A B

``compare`` counts what is equal in each file, shows what differs, and exits with 1 where anything does. The files are sorted and
the same whatever PYTHONHASHSEED and CACHE_DIR are; files of the product, lines in them and modules before names are left out, so
that moving a file changes nothing. Each file is made by a process of its own. Nothing is launched, and no GPU is needed.

| part | files | what |
|---|---|---|
| names | names.txt | each public name, its kind and signature |
| kernels | kernels/zoo-avx512.txt, .. | Opts, launch, number of UOps and source of the kernels of each case, on each machine |
| tile | tile.txt | the examples in the tile language: arrangement, index form, UOps, source for each target |
| origins | origins.txt | schedules of networks, with the lines of the program that each kernel computes |
| passes | passes/avx512.txt, .. | some kernels after each pass, and as DEBUG=5 shows them |
| golden | golden.txt | digests of the files of tests/golden |
| cubins | cubins.txt | digests of cubins for sm_90, which are the same in each run; only with --cubins |
"""
from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Sequence

from . import ledger_kernels as made, ledger_names as named
from .ledger_cases import NAMED, ROOT

MARK = "=== "
PARTS = ("names", "kernels", "tile", "origins", "passes", "golden", "cubins")
SHOWN, LINES = 3, 20   # entries of a file that differ, and lines of each, that are shown
Entries = dict[str, str]


# ---- writing

def files(only: Sequence[str], cubins: bool) -> list[str]:
  """The files of some parts, those that take longest first; all parts if none is named."""
  out = [f"kernels/{group}-{machine}" for group in ("ops", "zoo", "networks", "zoo-sized", "tile") for machine in NAMED]
  out = ["cubins", *out, "origins", *[f"passes/{machine}" for machine in NAMED], "tile", "names", "golden"]
  return [f for f in out if (not only or f.split("/")[0] in only) and (cubins or f != "cubins")]


def entries(file: str, match: str = "", texts: bool = True) -> Entries:
  """What a file has; of kernels those of cases whose names have ``match``."""
  part, _, rest = file.partition("/")
  if part == "kernels":
    group, _, machine = rest.rpartition("-")
    return made.kernels(group, machine, match, texts)
  if part == "passes": return made.passes(rest, match)
  if part == "golden": return named.digests(ROOT / "tests" / "golden")
  return {"names": named.names, "tile": made.tile_sources, "origins": made.origins, "cubins": made.cubins}[part]()


def text_of(found: Entries) -> str:
  """Entries as the text of a file: a line each, or, where some have several lines, each under a line with its name."""
  found = {k.replace("\n", " "): "\n".join(map(str.rstrip, v.strip("\n").split("\n"))) for k, v in found.items()}
  if not any("\n" in v for v in found.values()): return "".join(f"{k}  {v}\n" for k, v in sorted(found.items()))
  # a line of an entry that looks like a mark is moved to the right
  return "".join(f"{MARK}{k}\n" + v.replace("\n" + MARK, "\n " + MARK) + "\n\n" for k, v in sorted(found.items()))


def write_file(folder: Path, file: str, match: str = "", texts: bool = True) -> int:
  """Write a file of the ledger. Gives how many entries it has."""
  found, path = entries(file, match, texts), folder / f"{file}.txt"
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text_of(found))
  return len(found)


def write(folder: Path, args: argparse.Namespace) -> int:
  """Write the files, each in a process of its own. Gives how many could not be written."""
  began = time.monotonic()
  with tempfile.TemporaryDirectory(prefix="ledger-") as cache:
    # a setting in the environment of who calls changes nothing
    env = {k: v for k, v in os.environ.items() if k not in made.VARIABLES}
    env.update(TUNE="0", WORKERS="1", CACHE_DIR=cache, PYTHONPATH=str(ROOT), COLOR="0")
    command = [sys.executable, "-m", __spec__.name, "file", str(folder.resolve()), "--match", args.match]
    if args.digests: command.append("--digests")
    def one(file: str) -> int:
      start = time.monotonic()
      done = subprocess.run([*command, "--file", file], cwd=ROOT, env=env, text=True, capture_output=True, check=False)
      said = done.stdout.strip() if done.returncode == 0 else f"FAILED\n{done.stderr[-3000:]}"
      print(f"{time.monotonic() - start:6.1f} s  {file}: {said}", flush=True)
      return done.returncode != 0
    with ThreadPoolExecutor(args.jobs) as pool: failed = sum(pool.map(one, files(args.only, args.cubins)))
  print(f"{time.monotonic() - began:6.1f} s  {folder}" + (f": {failed} files FAILED" if failed else ""))
  return failed


# ---- comparing

def read(path: Path) -> Entries:
  """The entries of a file."""
  text = path.read_text() if path.exists() else ""
  if text.startswith(MARK):
    parts = [part.partition("\n") for part in ("\n" + text).split("\n" + MARK)[1:]]
    return {name: body.rstrip("\n") for name, _, body in parts}
  return {line.partition("  ")[0]: line.partition("  ")[2] for line in text.splitlines()}


def compare(a: Path, b: Path) -> tuple[str, bool]:
  """What two ledgers have alike and not, as text, and whether all of it is alike."""
  out, alike = [], True
  names = sorted({str(p.relative_to(folder)) for folder in (a, b) for p in folder.rglob("*.txt")})
  if not names: return f"there is no ledger in {a} and {b}", False
  for name in names:
    if missing := [folder for folder in (a, b) if not (folder / name).exists()]:
      out.append(f"{name}: not in {missing[0]}")
      alike = False
      continue
    old, new = read(a / name), read(b / name)
    differ = sorted(k for k in {*old, *new} if old.get(k) != new.get(k))
    same = len({*old, *new}) - len(differ)
    if not differ and (a / name).read_bytes() != (b / name).read_bytes(): differ = ["(the files' bytes)"]
    out.append(f"{name}: {same} equal" + (f", {len(differ)} differ" if differ else ""))
    alike &= not differ
    for k in differ[:SHOWN]: out += ["  " + line for line in _difference(k, old.get(k), new.get(k))]
    if len(differ) > SHOWN: out += ["  and", *[f"    {k}" for k in differ[SHOWN:SHOWN + LINES]]]
    if len(differ) > SHOWN + LINES: out.append(f"    and {len(differ) - SHOWN - LINES} more")
  return "\n".join(out), alike


def _difference(name: str, old: str | None, new: str | None) -> list[str]:
  if old is None or new is None: return [f"{name}: only in {'the second' if old is None else 'the first'}"]
  lines = list(difflib.unified_diff(old.split("\n"), new.split("\n"), lineterm="", n=2))[2:]
  return [f"{name}:", *[f"  {line}" for line in lines[:LINES]], *["  …"] * (len(lines) > LINES)]


# ---- the command line

def main(arguments: Sequence[str] | None = None) -> int:
  """Run a command. Gives the exit status."""
  parser = argparse.ArgumentParser("python -m tests.support.ledger", description=(__doc__ or "").split("\n\n")[0])
  commands = parser.add_subparsers(dest="command", required=True)
  for name in ("write", "file"):
    p = commands.add_parser(name, help="write a ledger into a folder" if name == "write" else argparse.SUPPRESS)
    p.add_argument("folder", type=Path)
    p.add_argument("--match", default="", metavar="TEXT", help="only kernels of cases whose names have this")
    p.add_argument("--digests", action="store_true", help="digests of sources instead of their texts")
    p.add_argument("--file", default="", help=argparse.SUPPRESS)
    p.add_argument("--only", default=[], type=lambda text: text.split(","), metavar="PART,PART", help=", ".join(PARTS))
    p.add_argument("--cubins", action="store_true", help="compile kernels for sm_90 too, which takes minutes and needs triton")
    p.add_argument("--jobs", type=int, default=2, help="processes at a time")
  p = commands.add_parser("compare", help="what differs between two ledgers")
  p.add_argument("a", type=Path)
  p.add_argument("b", type=Path)
  args = parser.parse_args(arguments)
  if args.command == "compare":
    text, alike = compare(args.a, args.b)
    print(text)
    return int(not alike)
  if args.command == "file":
    print(f"{write_file(args.folder, args.file, args.match, not args.digests)} entries")
    return 0
  if unknown := {*args.only} - {*PARTS}: parser.error(f"no part {', '.join(sorted(unknown))}; parts: {', '.join(PARTS)}")
  args.cubins |= "cubins" in args.only
  return int(bool(write(args.folder, args)))


if __name__ == "__main__": sys.exit(main())
