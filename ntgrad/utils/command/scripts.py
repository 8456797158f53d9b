"""``profile`` and ``eject``: run a script; show where its time and its memory went, or write its kernels as files."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ntgrad.codegen.ir import config
from ntgrad.engine.profiling import Profile
from ntgrad.tile.eject import Eject

from .parser import add_script, command, run_script, tell


def add_profile(commands: argparse._SubParsersAction[Any]) -> None:
  """``profile``."""
  parser = command(
    commands, "profile", profiled,
    "Run a script, and show where its time and its memory went: by kind, by line, by Module, by kernel, with advice at the end. "
    "The exit code is the script's.", "profile train.py --epochs 1", "profile --trace out.json train.py")
  parser.add_argument("--trace", metavar="FILE", help="write what happened to a file that Perfetto and chrome://tracing read")
  add_script(parser)


def add_eject(commands: argparse._SubParsersAction[Any]) -> None:
  """``eject``."""
  parser = command(
    commands, "eject", ejected, "Run a script, and write its kernels as files of the tile language. OVERRIDE=folder runs those "
    "of a folder instead; the exit code is the script's.", "eject --kernel 'r_*' -o mine train.py --epochs 1")
  parser.add_argument("--kernel", default="*", metavar="PATTERN", help="only those whose names fit")
  parser.add_argument("-o", default="mine", metavar="FOLDER", help="where the files go (mine)")
  add_script(parser)


def profiled(args: argparse.Namespace) -> None:
  """Run a script, and print where its time went when it ends. Raises SystemExit as the script does."""
  p = Profile()
  if args.trace is not None: open(args.trace, "w").close()   # what cannot be written is told before it runs
  try:
    with p: run_script(args.script, args.args, args.json)
  finally:
    sys.stderr.flush()
    if args.trace is not None: p.trace(args.trace)
    tell(args, p.data() if args.json else {}, str(p))


def ejected(args: argparse.Namespace) -> None:
  """Run a script, and write its kernels. Raises SystemExit as the script does."""
  with config(cache=0), Eject(args.kernel, Path(args.o)) as found:
    try: run_script(args.script, args.args, args.json)
    finally:
      for path in found.written.values(): print(f"wrote {path}", file=sys.stderr)
      for name, why in found.refused.items(): print(f"{name} is no file of the tile language: {why}", file=sys.stderr)
      if not found.written and not found.refused: print(f"no kernel's name fits {args.kernel!r}", file=sys.stderr)
      if args.json: tell(args, {"written": list(map(str, found.written.values())), "refused": found.refused})
