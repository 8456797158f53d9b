"""One process that ``launch`` has started: runs the script, and notes how it ended, also where it has joined no others."""
from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

from ntgrad.distributed.start import place_of
from ntgrad.distributed.world import NOTES, known

from .parser import run_script


def main(script: str, *args: str) -> None:
  """Run a script as ``python script args...`` does. Raises SystemExit as it does."""
  for stream in sys.stdout, sys.stderr: stream.reconfigure(line_buffering=True, write_through=False)   # type: ignore[union-attr]
  place = place_of(-1, -1, os.environ)
  assert place is not None
  note, shown = Path(os.environ[NOTES], str(place.rank)), sys.excepthook

  def failed(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
    shown(kind, error, tb)
    if known() is None:
      who = f"rank {place.rank} of {place.size}"
      note.with_suffix(".error").write_text(f"{who} failed before it joined the others: {kind.__name__}: {error}")
  sys.excepthook = failed
  try: run_script(script, args)
  finally:
    if not note.exists(): note.with_suffix(".ended").touch()   # it has joined nobody


if __name__ == "__main__": main(*sys.argv[1:])
