"""The command line. Each function of ``ADD`` makes the parser of a command, or of several; it sets ``run``, a function of the
arguments that gives the exit code: 0 (or None) all is well, 1 something was found or failed, 2 wrong usage."""
from __future__ import annotations

import os
import sys
from typing import Sequence

from ntgrad.codegen.ir import NtgradError

from . import about, cache, check, code, launch, reduce, scripts
from .parser import PROGRAM, Parser

ADD = about.add, scripts.add_profile, check.add, reduce.add, launch.add, scripts.add_eject, cache.add, code.add


def main(args: Sequence[str] | None = None) -> int:
  """Run a command; gives its exit code. ``args``: what stands behind ``python -m ntgrad``, by default what the process was given.
  Raises SystemExit for wrong usage, for ``--help``, and as a script does that is run."""
  parser = Parser(prog=PROGRAM, description=sys.modules["ntgrad"].__doc__, epilog=f"example:\n  {PROGRAM} devices\n"
                  f"  {PROGRAM} profile --help")
  parser.add_argument("--version", action="version", version=f"ntgrad {about.version('ntgrad')}")
  parser.set_defaults(run=lambda _: parser.print_help())
  commands = parser.add_subparsers(title="commands", metavar="command")
  for add in ADD: add(commands)
  given = parser.parse_args(args)
  try:
    found = given.run(given)
    sys.stdout.flush()
  except BrokenPipeError:   # whoever reads has enough
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
  except (NtgradError, OSError) as e:
    told = f"{e.filename}: {e.strerror}" if isinstance(e, OSError) and e.filename else e
    print(f"{PROGRAM}: {told}", file=sys.stderr)
    return 1
  return found or 0
