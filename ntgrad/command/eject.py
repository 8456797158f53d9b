"""``eject``: the kernels of a script as files of the tile language."""
from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

from ntgrad.codegen.ir import config
from ntgrad.tile.eject import Eject

from .parser import add_script, command, run_script, tell


def add(commands: argparse._SubParsersAction[Any]) -> None:
  """``eject``."""
  parser = command(
    commands, "eject", ejected, "Run a script, and write its kernels as files of the tile language. OVERRIDE=folder runs those "
    "of a folder instead; the exit code is the script's.", "eject --kernel 'r_*' -o mine train.py --epochs 1")
  parser.add_argument("--kernel", default="*", metavar="PATTERN", help="only those whose names fit")
  parser.add_argument("-o", default="mine", metavar="FOLDER", help="where the files go (mine)")
  add_script(parser)


def ejected(args: argparse.Namespace) -> None:
  """Run a script, and write its kernels. Raises SystemExit as the script does."""
  with config(cache=0), Eject(args.kernel, Path(args.o)) as found, ExitStack() as stack:
    if args.json: stack.enter_context(redirect_stdout(sys.stderr))
    try: run_script(args.script, args.args)
    finally:
      stack.close()
      for path in found.written.values(): print(f"wrote {path}", file=sys.stderr)
      for name, why in found.refused.items(): print(f"{name} is no file of the tile language: {why}", file=sys.stderr)
      if not found.written and not found.refused: print(f"no kernel's name fits {args.kernel!r}", file=sys.stderr)
      if args.json: tell(args, {"written": list(map(str, found.written.values())), "refused": found.refused})
