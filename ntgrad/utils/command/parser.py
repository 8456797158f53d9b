"""What all commands share: parsers that answer in sentences, results as text or JSON, and scripts that are run."""
from __future__ import annotations

import argparse
import difflib
import json
import linecache
import runpy
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from textwrap import fill
from typing import Any, Iterable, NoReturn, Sequence

from ntgrad.engine.report import bytes_text, print_now

PROGRAM = "python -m ntgrad"


class Parser(argparse.ArgumentParser):
  """Tells what is wrong with arguments in one sentence, and names the nearest command for one that there is not."""

  def __init__(self, **options: Any):
    super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

  def error(self, message: str) -> NoReturn: self.exit(2, f"{self.prog}: {message}; {self.prog} --help says more\n")

  def _check_value(self, action: argparse.Action, value: Any) -> None:
    known = list(map(str, action.choices or ()))
    if action.choices is None or str(value) in known: return
    near = difflib.get_close_matches(str(value), known, 1)
    what = f"a value of {'/'.join(action.option_strings)}" if action.option_strings else "a command"
    self.error(f"{value!r} is not {what}{f' (did you mean {near[0]!r}?)' if near else ''}: there are {', '.join(known)}")


def command(commands: argparse._SubParsersAction[Any], name: str, run: Any, about: str, *examples: str,
            json: bool = True) -> Parser:
  """The parser of a new command, which calls ``run`` (None: prints its help). Lists of commands have the first sentence of what
  is said ``about`` it. ``examples`` stand behind ``python -m ntgrad``. ``json``: whether it takes ``--json``."""
  lines = "\n".join([f"  {PROGRAM} {example}" for example in examples])
  parser: Parser = commands.add_parser(name, help=about.partition(". ")[0].rstrip("."), description=fill(about),
                                       epilog=f"example{'s' * (len(examples) > 1)}:\n{lines}")
  parser.set_defaults(run=run or (lambda _: parser.print_help()))
  if json: parser.add_argument("--json", action="store_true", help="print JSON")
  return parser


def tell(args: argparse.Namespace, found: Any, text: str | None = None) -> None:
  """Print what a command has found: as JSON, as a ``text``, or else a line for each entry."""
  print_now(json.dumps(found, indent=2) if args.json else text if text is not None else "\n".join(_lines(found)))


def _lines(found: dict[str, Any], indent: str = "") -> Iterable[str]:
  width = max([len(k) for k, v in found.items() if not isinstance(v, dict)], default=0)
  for name, value in found.items():
    if isinstance(value, dict):
      yield f"{indent}{name}" if value else f"{indent}{name}: none"
      yield from _lines(value, indent + "  ")
    else: yield f"{indent}{name:{width}}  {bytes_text(value) if name in ('memory', 'bytes', 'limit') else value}"


# ---- scripts

def add_script(parser: argparse.ArgumentParser) -> None:
  """Have a parser take a script and its arguments: all that stands behind the script is the script's, flags too."""
  parser.add_argument("script", type=_script, help="a Python file")
  parser.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="what the script is given").required = False


def _script(path: str) -> str:
  if not Path(path).exists(): raise argparse.ArgumentTypeError(f"there is no file {path}")
  return path


def run_script(script: str, args: Sequence[str], json: bool = False) -> None:
  """Run a script as ``python script args...`` does; with ``json`` what it prints goes to standard error. Raises SystemExit as it
  does, 1 after an exception, which is shown."""
  argv, path = sys.argv, sys.path[0]
  sys.argv, sys.path[0] = [script, *args], str(Path(script).resolve().parent)
  try:
    linecache.checkcache(script)   # another text may have been run by this name
    with redirect_stdout(sys.stderr) if json else nullcontext(): runpy.run_path(script, run_name="__main__")
  except Exception as e:
    tb = e.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename != script: tb = tb.tb_next
    e.__traceback__ = tb or e.__traceback__   # without the frames above the script's own
    sys.excepthook(type(e), e, e.__traceback__)
    raise SystemExit(1) from None
  finally: sys.argv, sys.path[0] = argv, path
